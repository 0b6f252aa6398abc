//! Samples of the last five minutes.

use serde::Serialize;

/// How many samples are kept: one a second.
pub(super) const SAMPLES: usize = 300;

/// One second of a route, or of all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sample {
    pub passed: u32,
    pub delayed: u32,
    pub rejected: u32,
    /// Admitted requests that got a status of 500 to 599.
    pub failed: u32,
    /// Microseconds from arrival to the end of the answer, of admitted requests; 0: there was none.
    pub p50: u32,
    pub p99: u32,
    /// At the end of the second.
    pub in_flight: u32,
    pub waiting: u32,
}

/// Samples by column, oldest first, as charts take them.
#[derive(Debug, Default, Serialize)]
pub(super) struct Columns {
    passed: Vec<u32>,
    delayed: Vec<u32>,
    rejected: Vec<u32>,
    failed: Vec<u32>,
    /// Milliseconds.
    p50: Vec<Option<f64>>,
    p99: Vec<Option<f64>>,
    in_flight: Vec<u32>,
    waiting: Vec<u32>,
}

/// The last [`SAMPLES`] samples, oldest first from `next` on.
#[derive(Clone, Debug)]
pub(super) struct History {
    samples: Box<[Sample; SAMPLES]>,
    next: usize,
}

impl Sample {
    /// Returns whether nothing happened and nothing is in flight.
    pub(super) fn is_idle(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn requests(&self) -> u64 {
        u64::from(self.passed) + u64::from(self.delayed) + u64::from(self.rejected)
    }
}

/// Returns microseconds as milliseconds; `None` for 0.
pub(super) fn millis(micros: u32) -> Option<f64> {
    (micros > 0).then(|| f64::from(micros) / 1e3)
}

impl Default for History {
    fn default() -> Self {
        Self { samples: Box::new([Sample::default(); SAMPLES]), next: 0 }
    }
}

impl History {
    pub(super) fn push(&mut self, sample: Sample) {
        self.samples[self.next] = sample;
        self.next = (self.next + 1) % SAMPLES;
    }

    /// Returns all samples, oldest first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Sample> {
        let (newer, older) = self.samples.split_at(self.next);
        older.iter().chain(newer)
    }

    /// Returns the latest samples, newest first.
    pub(super) fn latest(&self, count: usize) -> impl Iterator<Item = &Sample> {
        self.iter().rev().take(count)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.samples.iter().all(Sample::is_idle)
    }

    pub(super) fn columns(&self) -> Columns {
        let column = |of: fn(&Sample) -> u32| self.iter().map(of).collect();
        let latency = |of: fn(&Sample) -> u32| self.iter().map(|at| millis(of(at))).collect();
        Columns {
            passed: column(|at| at.passed),
            delayed: column(|at| at.delayed),
            rejected: column(|at| at.rejected),
            failed: column(|at| at.failed),
            p50: latency(|at| at.p50),
            p99: latency(|at| at.p99),
            in_flight: column(|at| at.in_flight),
            waiting: column(|at| at.waiting),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(passed: u32) -> Sample {
        Sample { passed, ..Sample::default() }
    }

    #[test]
    fn the_latest_five_minutes_are_kept_in_order() {
        let mut history = History::default();
        assert!(history.is_idle());
        for second in 1..=450 {
            history.push(sample(second));
        }
        let passed: Vec<u32> = history.iter().map(|at| at.passed).collect();
        assert_eq!(passed, (151..=450).collect::<Vec<_>>());
        assert_eq!(history.latest(2).map(|at| at.passed).collect::<Vec<_>>(), [450, 449]);
        assert_eq!(history.columns().passed.len(), SAMPLES);
        assert!(!history.is_idle());
    }

    #[test]
    fn a_second_without_answers_has_no_latency() {
        let mut history = History::default();
        history.push(Sample { p50: 1_500, ..sample(1) });
        let columns = history.columns();
        assert_eq!(columns.p50[SAMPLES - 2..], [None, Some(1.5)]);
    }
}

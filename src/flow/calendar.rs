//! Windows of a calendar: days and months, which differ in length.
//!
//! A day of a time zone has 23 to 25 hours, a month 28 to 31 days. Whoever knows the
//! rules of time zones says when windows begin, as values, for as long as an
//! [`Instant`] reaches; here they are only looked up. Windows that follow each other
//! in even steps are one run, so that a zone's days take a run for each change of
//! its clock.

use super::time::Instant;
use core::{fmt, num::NonZeroU64, time::Duration};
use std::sync::Arc;

/// When each window begins.
#[derive(Clone, PartialEq, Eq)]
pub struct Calendar {
    name: Arc<str>,
    /// Nanoseconds from the beginning of a window to the next one's, within a run.
    step: NonZeroU64,
    /// In order.
    runs: Arc<[Run]>,
}

/// Windows that begin one step apart; the last one ends where the next run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// When the first begins.
    pub start: Instant,
    /// How many there are; one at least.
    pub count: NonZeroU64,
}

impl Calendar {
    /// Returns the calendar of the windows in `runs`, in which they begin `step` apart.
    /// `name` says which they are, as in `month (Europe/Berlin)`.
    ///
    /// Before the first run and after the last one there are no boundaries.
    pub fn new(name: &str, step: NonZeroU64, mut runs: Vec<Run>) -> Self {
        runs.sort_by_key(|run| run.start);
        Self { name: name.into(), step, runs: runs.into() }
    }

    /// Returns which windows these are.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the length of its windows, if all have the same.
    pub fn even(&self) -> Option<Duration> {
        (self.runs.len() == 1).then(|| Duration::from_nanos(self.step.get()))
    }

    /// Returns when the window that `now` falls in begins, and when the next one does.
    pub fn window(&self, now: Instant) -> (Instant, Instant) {
        let after = self.runs.partition_point(|run| run.start <= now);
        let next = self.runs.get(after).map_or(Instant::FAR_FUTURE, |run| run.start);
        let Some(run) = after.checked_sub(1).and_then(|at| self.runs.get(at)) else {
            return (Instant::EPOCH, next);
        };
        let begin =
            |index: u64| run.start + Duration::from_nanos(index.saturating_mul(self.step.get()));
        let passed = now.as_nanos().saturating_sub(run.start.as_nanos()) / self.step;
        let index = passed.min(run.count.get() - 1);
        let end = if index + 1 < run.count.get() { begin(index + 1) } else { next };
        (begin(index), end.min(next))
    }
}

impl fmt::Debug for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calendar(step: u64, runs: &[(u64, u64)]) -> Calendar {
        let nonzero = |n| NonZeroU64::new(n).expect("not zero");
        let run =
            |&(start, count)| Run { start: Instant::from_nanos(start), count: nonzero(count) };
        Calendar::new("day", nonzero(step), runs.iter().map(run).collect())
    }

    #[track_caller]
    fn check(calendar: &Calendar, expected: &[(u64, u64, u64)]) {
        for &(now, begin, end) in expected {
            let (from, to) = calendar.window(Instant::from_nanos(now));
            assert_eq!((from.as_nanos(), to.as_nanos()), (begin, end), "at {now}");
        }
    }

    #[test]
    fn the_last_window_of_a_run_is_longer_or_shorter() {
        // 24, 24, 25, 24, 23, 24, …
        let days = calendar(24, &[(0, 3), (73, 2), (120, u64::MAX)]);
        let days_of = [(0, 0, 24), (23, 0, 24), (24, 24, 48), (48, 48, 73), (72, 48, 73)];
        check(&days, &days_of);
        check(&days, &[(73, 73, 97), (97, 97, 120), (119, 97, 120), (120, 120, 144)]);
        check(&days, &[(12_000, 12_000, 12_024), (12_023, 12_000, 12_024)]);
        assert_eq!(days.even(), None);
        assert_eq!(calendar(24, &[(0, 9)]).even(), Some(Duration::from_nanos(24)));
    }

    #[test]
    fn beyond_what_was_said_there_are_no_boundaries() {
        let months = calendar(1, &[(31, 1), (59, 1), (90, 1)]);
        check(&months, &[(5, 0, 31), (31, 31, 59), (58, 31, 59), (59, 59, 90)]);
        check(&months, &[(90, 90, u64::MAX), (9_000, 90, u64::MAX)]);
        check(&calendar(1, &[]), &[(7, 0, u64::MAX)]);
    }
}

//! The cost that most requests of a rule have had lately, for reserves that are learned.
//!
//! Of the latest 1,000 samples, the smallest that at least 95 % of them do not exceed. Before the first
//! it is 1, and never less.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::{collections::VecDeque, sync::Arc};

/// The samples that count.
const SAMPLES: usize = 1_000;

/// The percentage of samples that the estimate covers.
const PERCENT: usize = 95;

/// An estimate that requests read while others add samples.
#[derive(Clone, Debug)]
pub struct Estimate(Arc<AtomicU64>);

impl Default for Estimate {
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(1)))
    }
}

impl Estimate {
    /// Returns it.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The latest samples of one rule.
#[derive(Debug, Default)]
pub(super) struct Learned {
    /// The oldest first.
    samples: VecDeque<u64>,
    /// The same, the smallest first.
    sorted: Vec<u64>,
    estimate: Estimate,
}

impl Learned {
    pub(super) const fn estimate(&self) -> &Estimate {
        &self.estimate
    }

    /// Adds a sample. It takes the time to move at most 1,000 numbers.
    pub(super) fn add(&mut self, sample: u64) {
        if self.samples.len() == SAMPLES
            && let Some(oldest) = self.samples.pop_front()
        {
            let at = self.sorted.partition_point(|other| *other < oldest);
            self.sorted.remove(at);
        }
        self.samples.push_back(sample);
        let at = self.sorted.partition_point(|other| *other < sample);
        self.sorted.insert(at, sample);

        let rank = (self.sorted.len() * PERCENT).div_ceil(100);
        let estimate = self.sorted.get(rank.saturating_sub(1)).copied().unwrap_or(1);
        self.estimate.0.store(estimate.max(1), Relaxed);
    }

    /// Returns the samples, for another process.
    pub(super) fn export(&self) -> Vec<u64> {
        self.samples.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_95_percent_of_the_latest_thousand_do_not_exceed() {
        let mut learned = Learned::default();
        let estimate = learned.estimate().clone();
        assert_eq!(estimate.get(), 1, "before the first");
        learned.add(7);
        assert_eq!(estimate.get(), 7);
        for sample in 1..=1_000 {
            learned.add(sample);
        }
        assert_eq!(estimate.get(), 950, "the first one does not count any more");
        for _ in 0..949 {
            learned.add(0);
        }
        assert_eq!(estimate.get(), 950, "949 of 1,000 are 0, and the next one is 950");
        learned.add(0);
        assert_eq!(estimate.get(), 1, "950 are 0, and it is never less than 1");
        assert_eq!(learned.export().len(), 1_000);
    }
}

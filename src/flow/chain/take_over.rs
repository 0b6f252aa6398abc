//! A chain in the place of another one, whose rules it decided about before they were in force.

use super::{Chain, slots::Wanted};
use crate::flow::{limiter::Algorithm, statistic::Counts, time::Instant};
use core::mem::{swap, take};

impl Chain {
    /// Goes on where `old` stops. The statistics, and the counts of rules of the same name, are
    /// those of `old`: this chain's own are of requests that it did not really decide. A rate rule
    /// that is the same in both goes on with the state that `old` has of it.
    ///
    /// States that requests hold something of stay where they are, so that each is given back
    /// where it was taken. `old` is not used by new requests any more.
    pub(in crate::flow) fn take_over(&mut self, old: &mut Self, now: Instant) {
        let now = self.clamp(now).max(old.clamp(now));
        self.statistic.take_history(&mut old.statistic, now);
        for entry in &mut self.slots {
            let of_old =
                old.slots.iter_mut().find(|before| before.wanted.is_version_of(&entry.wanted));
            let Some(before) = of_old else {
                entry.counts = Counts::default();
                entry.rejections = None;
                continue;
            };
            entry.counts = before.counts;
            if before.wanted.counts_by() == entry.wanted.counts_by() {
                entry.rejections = before.rejections.take();
                entry.grants = take(&mut before.grants);
            }
            if before.wanted == entry.wanted && before.wanted.holds_nothing() {
                swap(&mut before.slot, &mut entry.slot);
            }
        }
        self.is_behind = true;
    }
}

impl Wanted {
    /// Returns whether requests in flight hold nothing of its state, and no other gateway knows it.
    fn holds_nothing(&self) -> bool {
        match self {
            Self::Flow(rule) => {
                !matches!(rule.algorithm, Algorithm::Concurrency(_) | Algorithm::Synced(_))
            }
            Self::Breaker(_) | Self::Pacing(_) => false,
        }
    }
}

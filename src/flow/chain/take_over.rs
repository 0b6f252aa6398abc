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
        let now = self.clamp(old.clamp(now));
        self.has_lent |= old.has_lent;
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

#[cfg(test)]
mod tests {
    use crate::flow::{
        Algorithm, Claim, Gate, Instant, Key, Rules, SlotId,
        limiter::{
            fixed_window::{self, Align},
            token_bucket,
        },
        timeline::{rate, rule},
    };
    use core::time::Duration;
    use std::sync::Arc;

    fn gate(rules: &Rules) -> (Arc<Gate>, Vec<SlotId>) {
        let gate = Arc::new(Gate::new(Instant::EPOCH));
        let slots = gate.install(rules, Instant::EPOCH).flow;
        (gate, slots)
    }

    /// Asks at `now` and with a patience, both in milliseconds. Returns how long a rejected request
    /// should wait.
    fn ask(
        (gate, slots): &(Arc<Gate>, Vec<SlotId>),
        now: u64,
        cost: u64,
        patience: u64,
    ) -> Option<Duration> {
        let patience = Duration::from_millis(patience);
        let claim = |slot: &SlotId| Claim { slot: *slot, key: Key::Shared, cost, patience };
        let claims: Vec<Claim> = slots.iter().map(claim).collect();
        let now = Instant::EPOCH + Duration::from_millis(now);
        gate.enter(now, &claims).err().and_then(|rejection| rejection.reason.retry_after())
    }

    #[test]
    fn loans_that_are_taken_over_extend_retry_after() {
        let window = fixed_window::Config { rate: rate(2, 100), align: Align::Clock };
        let bucket = token_bucket::Config { rate: rate(1, 100), burst: 3 };
        let rules = Rules {
            flow: vec![
                rule("window", Algorithm::FixedWindow(window)),
                rule("bucket", Algorithm::TokenBucket(bucket)),
            ],
            ..Rules::default()
        };
        let old = gate(&rules);
        assert_eq!(ask(&old, 100, 1, 0), None);
        assert_eq!(ask(&old, 130, 2, 500), None, "it borrows the window from 200 on");
        let new = gate(&rules);
        new.0.take_over(&old.0, Instant::EPOCH + Duration::from_millis(130));
        // The bucket has room from 200 on, and the window from 300 on.
        assert_eq!(ask(&new, 140, 1, 0), Some(Duration::from_millis(160)));
    }

    #[test]
    fn time_does_not_step_back_for_a_state_that_is_taken_over() {
        let bucket = token_bucket::Config { rate: rate(1, 100), burst: 1 };
        let rules =
            Rules { flow: vec![rule("it", Algorithm::TokenBucket(bucket))], ..Rules::default() };
        let old = gate(&rules);
        assert_eq!(ask(&old, 1_000, 1, 0), None);
        let new = gate(&rules);
        new.0.take_over(&old.0, Instant::EPOCH + Duration::from_millis(900));
        assert_eq!(ask(&new, 950, 1, 0), Some(Duration::from_millis(100)));
    }
}

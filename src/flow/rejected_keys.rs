//! The keys that a rule rejects most.
//!
//! Two summaries of five minutes each, so that an old flood does not hide a new one. They are
//! written by rejections only.

use super::{time::Instant, top::Top};
use core::time::Duration;

/// The keys of a summary: a key with more than 1/128 of its rejections is among them.
const CAPACITY: usize = 128;

/// How long a summary counts.
const PERIOD: Duration = Duration::from_mins(5);

/// The keys that a rule has rejected most in the last five to ten minutes.
#[derive(Clone, Debug)]
pub struct RejectedKeys {
    /// When counting began.
    pub since: Instant,
    /// Rejections of all keys since then.
    pub total: u64,
    /// By fingerprint.
    pub keys: Top<u128, ()>,
}

/// What a rule counts of its rejections.
#[derive(Debug)]
pub(super) struct RejectionCounts {
    current: RejectedKeys,
    before: RejectedKeys,
}

impl RejectedKeys {
    fn new(now: Instant) -> Self {
        Self { since: now, total: 0, keys: Top::new(CAPACITY) }
    }

    fn clear(&mut self, now: Instant) {
        self.since = now;
        self.total = 0;
        self.keys.clear();
    }
}

impl RejectionCounts {
    pub(super) fn new(now: Instant) -> Self {
        Self { current: RejectedKeys::new(now), before: RejectedKeys::new(now) }
    }

    pub(super) fn record(&mut self, key: u128, now: Instant) {
        self.roll(now);
        self.current.total += 1;
        self.current.keys.add(key, 1, || ());
    }

    /// Returns both summaries, the older one first.
    pub(super) fn observe(&mut self, now: Instant) -> [RejectedKeys; 2] {
        self.roll(now);
        [self.before.clone(), self.current.clone()]
    }

    /// Begins another summary when the current one is five minutes old.
    fn roll(&mut self, now: Instant) {
        let age = now.since(self.current.since);
        if age < PERIOD {
            return;
        }
        core::mem::swap(&mut self.before, &mut self.current);
        self.current.clear(now);
        if age >= 2 * PERIOD {
            self.before.clear(now);
        }
    }
}

/// Joins what [`RejectionCounts::observe`] returned, outside the gate's lock.
pub(super) fn join([mut before, current]: [RejectedKeys; 2]) -> RejectedKeys {
    before.total += current.total;
    before.keys.merge(current.keys, |(), ()| ());
    before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(count: u64) -> Instant {
        Instant::EPOCH + Duration::from_secs(count)
    }

    fn seen(rejections: &mut RejectionCounts, now: u64) -> (u64, Vec<(u128, u64)>) {
        let seen = join(rejections.observe(seconds(now)));
        let keys = seen.keys.sorted().into_iter().map(|entry| (entry.key, entry.count));
        (seen.total, keys.collect())
    }

    #[test]
    fn rejections_are_forgotten_after_five_to_ten_minutes() {
        let mut rejections = RejectionCounts::new(seconds(0));
        for (at, key) in [(0, 1), (10, 1), (299, 2), (301, 2), (302, 2)] {
            rejections.record(key, seconds(at));
        }
        assert_eq!(seen(&mut rejections, 600), (5, vec![(2, 3), (1, 2)]));
        assert_eq!(seen(&mut rejections, 602), (2, vec![(2, 2)]));
        assert_eq!(seen(&mut rejections, 1_202), (0, vec![]));
    }

    #[test]
    fn a_long_pause_leaves_nothing() {
        let mut rejections = RejectionCounts::new(seconds(0));
        rejections.record(1, seconds(0));
        rejections.record(2, seconds(5_000));
        assert_eq!(seen(&mut rejections, 5_001), (1, vec![(2, 1)]));
    }
}

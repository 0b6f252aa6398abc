//! A bounded map that forgets what was not used lately.

use crate::flow::Instant;
use ahash::AHashMap;
use core::time::Duration;

/// Values by fingerprint. One that is not used is forgotten after one to two periods, or earlier if
/// there are too many.
#[derive(Debug)]
pub(super) struct Recent<V> {
    current: AHashMap<u128, V>,
    previous: AHashMap<u128, V>,
    since: Instant,
    period: Duration,
    /// The most values of a generation.
    most: usize,
}

impl<V> Recent<V> {
    pub(super) fn new(period: Duration, most: usize) -> Self {
        let since = Instant::EPOCH;
        Self { current: AHashMap::new(), previous: AHashMap::new(), since, period, most }
    }

    /// Returns a value, which is used thereby.
    pub(super) fn get(&mut self, key: u128, now: Instant) -> Option<&mut V> {
        self.turn(now, false);
        if let Some(value) = self.previous.remove(&key) {
            self.insert(key, value, now);
        }
        self.current.get_mut(&key)
    }

    pub(super) fn insert(&mut self, key: u128, value: V, now: Instant) {
        let is_full = self.current.len() >= self.most && !self.current.contains_key(&key);
        self.turn(now, is_full);
        self.current.insert(key, value);
    }

    /// Begins a new generation if it is time.
    fn turn(&mut self, now: Instant, is_full: bool) {
        let age = now.since(self.since);
        if age < self.period && !is_full {
            return;
        }
        self.previous = core::mem::take(&mut self.current);
        if age >= 2 * self.period {
            self.previous = AHashMap::new();
        }
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Instant {
        Instant::EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn what_is_not_used_for_two_periods_is_forgotten() {
        let mut recent = Recent::new(PERIOD, 100);
        recent.insert(1, 'a', at(100));
        recent.insert(2, 'b', at(100));
        for seconds in [109, 111, 119, 123, 132] {
            assert_eq!(recent.get(1, at(seconds)), Some(&mut 'a'), "{seconds}");
        }
        assert_eq!(recent.get(2, at(132)), None);
        assert_eq!(recent.get(1, at(152)), None);
    }

    #[test]
    fn it_never_holds_more_than_two_generations() {
        let mut recent = Recent::new(PERIOD, 3);
        for key in 0..100 {
            recent.insert(key, (), at(100));
            assert!(recent.current.len() + recent.previous.len() <= 6);
        }
        assert!(recent.get(99, at(100)).is_some());
        assert!(recent.get(0, at(100)).is_none());
    }
}

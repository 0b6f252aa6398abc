//! The most frequent of any number of keys, in bounded memory.
//!
//! The space-saving algorithm (Metwally, Agrawal and El Abbadi, 2005): a new key takes the place of
//! the rarest one and inherits its count, which is the most that its own can be wrong by. With room
//! for `k` keys, a key that came more often than `n / k` of `n` times is always among them.

use super::time::Instant;
use ahash::AHashMap;
use core::{cmp::Reverse, hash::Hash, time::Duration};

/// The most frequent keys, each with a value of the caller's.
#[derive(Clone, Debug)]
pub struct Top<K, V> {
    entries: Vec<TopEntry<K, V>>,
    places: AHashMap<K, usize>,
    capacity: usize,
}

/// One of the most frequent keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopEntry<K, V> {
    /// The key.
    pub key: K,
    /// At least how often it came.
    pub count: u64,
    /// By how much `count` may be too high.
    pub error: u64,
    /// The caller's, since the key took its place.
    pub value: V,
}

impl<K: Copy + Eq + Hash, V> Top<K, V> {
    /// Returns an empty one for at most `capacity` keys, at least one.
    pub fn new(capacity: usize) -> Self {
        Self { entries: Vec::new(), places: AHashMap::new(), capacity: capacity.max(1) }
    }

    /// Counts a key `count` times, and returns its value: `fresh` if it was not known.
    pub fn add(&mut self, key: K, count: u64, fresh: impl FnOnce() -> V) -> &mut V {
        let place = match self.places.get(&key) {
            Some(place) => *place,
            None => self.enter(key, fresh()),
        };
        let entry = &mut self.entries[place];
        entry.count += count;
        &mut entry.value
    }

    /// Forgets all, and keeps the memory.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.places.clear();
    }

    /// Returns how often a key may have come that is not among the entries.
    pub fn most_unknown(&self) -> u64 {
        let is_full = self.entries.len() >= self.capacity;
        let least = self.entries.iter().map(|entry| entry.count).min();
        least.filter(|_| is_full).unwrap_or(0)
    }

    /// Returns the place of a key that was not known.
    fn enter(&mut self, key: K, value: V) -> usize {
        let place = self.entries.len();
        if place < self.capacity {
            self.entries.push(TopEntry { key, count: 0, error: 0, value });
            self.places.insert(key, place);
            return place;
        }
        let rarest = self.entries.iter().enumerate().min_by_key(|(_, entry)| entry.count);
        let place = rarest.map_or(0, |(place, _)| place);
        let entry = &mut self.entries[place];
        self.places.remove(&entry.key);
        *entry = TopEntry { key, count: entry.count, error: entry.count, value };
        self.places.insert(key, place);
        place
    }

    /// Adds what another one has counted. `join` adds its value to the one here.
    ///
    /// A key that only one of both has may have come as often to the other as that one's rarest.
    pub fn merge(&mut self, other: Self, join: impl Fn(&mut V, V)) {
        let floor = self.most_unknown();
        let added = other.most_unknown();
        for entry in &mut self.entries {
            entry.count += added;
            entry.error += added;
        }
        for TopEntry { key, count, error, value } in other.entries {
            if let Some(place) = self.places.get(&key) {
                let entry = &mut self.entries[*place];
                entry.count = entry.count - added + count;
                entry.error = entry.error - added + error;
                join(&mut entry.value, value);
            } else {
                let count = count + floor;
                let error = error + floor;
                self.entries.push(TopEntry { key, count, error, value });
            }
        }
        self.entries.sort_by_key(|entry| Reverse(entry.count));
        self.entries.truncate(self.capacity);
        let places = self.entries.iter().enumerate().map(|(place, entry)| (entry.key, place));
        self.places = places.collect();
    }

    /// Returns the entries, the most frequent first.
    pub fn sorted(&self) -> Vec<&TopEntry<K, V>> {
        let mut sorted: Vec<_> = self.entries.iter().collect();
        sorted.sort_by_key(|entry| Reverse(entry.count));
        sorted
    }
}

/// The keys of a summary: a key with more than 1/128 of its rejections is among them.
const CAPACITY: usize = 128;

/// The time for which a summary counts.
const PERIOD: Duration = Duration::from_mins(5);

/// The keys that a rule has rejected most in the last five to ten minutes.
#[derive(Clone, Debug)]
pub struct RejectedKeys {
    /// The beginning of the count.
    pub since: Instant,
    /// Rejections of all keys since then.
    pub total: u64,
    /// By fingerprint.
    pub keys: Top<u128, ()>,
}

/// The rejections of a rule by key, in two summaries of five minutes each, so that an old flood does
/// not hide a new one. Only rejections write them.
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
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn exact(keys: &[u8]) -> HashMap<u8, u64> {
        let mut exact = HashMap::new();
        for key in keys {
            *exact.entry(*key).or_default() += 1;
        }
        exact
    }

    proptest! {
        #[test]
        fn counts_are_too_high_by_no_more_than_their_error(
            keys in proptest::collection::vec(0..40_u8, 0..600),
            capacity in 1..12_usize,
            shards in 1..4_usize,
        ) {
            let exact = exact(&keys);
            let mut parts: Vec<Top<u8, u64>> = (0..shards).map(|_| Top::new(capacity)).collect();
            for (at, key) in keys.iter().enumerate() {
                *parts[at % shards].add(*key, 1, || 0) += 1;
            }
            let mut all = Top::new(capacity);
            for part in parts {
                all.merge(part, |mine, theirs| *mine += theirs);
            }
            let sorted = all.sorted();
            prop_assert_eq!(sorted.len(), exact.len().min(capacity));
            for entry in &sorted {
                let real = exact[&entry.key];
                prop_assert!(entry.count >= real, "{entry:?}: {real}");
                prop_assert!(entry.count - entry.error <= real, "{entry:?}: {real}");
                prop_assert!(entry.value <= real, "{entry:?}: {real}");
            }
            for (key, real) in exact {
                let is_known = sorted.iter().any(|entry| entry.key == key);
                prop_assert!(is_known || real <= all.most_unknown(), "{key}: {real}");
            }
        }

        #[test]
        fn a_frequent_key_is_always_known_and_its_error_has_a_bound(
            keys in proptest::collection::vec(0..40_u8, 0..600),
            capacity in 1..12_usize,
        ) {
            let mut top = Top::new(capacity);
            for key in &keys {
                top.add(*key, 1, || ());
            }
            let bound = (keys.len() / capacity) as u64;
            let sorted = top.sorted();
            prop_assert!(sorted.iter().all(|entry| entry.error <= bound));
            for (key, real) in exact(&keys) {
                let is_known = sorted.iter().any(|entry| entry.key == key);
                prop_assert!(is_known || real <= bound, "{key}: {real} of {}", keys.len());
            }
        }
    }

    #[test]
    fn what_is_cleared_counts_from_zero() {
        let mut top = Top::new(2);
        top.add('a', 5, || ());
        top.clear();
        top.add('b', 1, || ());
        let expected = TopEntry { key: 'b', count: 1, error: 0, value: () };
        assert_eq!(top.sorted(), [&expected]);
    }
}

#[cfg(test)]
mod rejected_keys_tests {
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

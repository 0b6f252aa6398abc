//! The most frequent of any number of keys, in bounded memory.
//!
//! The space-saving algorithm (Metwally, Agrawal and El Abbadi, 2005): a new key takes the place of
//! the rarest one and inherits its count, which is the most that its own can be wrong by. With room
//! for `k` keys, a key that came more often than `n / k` of `n` times is always among them.

use ahash::AHashMap;
use core::{cmp::Reverse, hash::Hash};

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

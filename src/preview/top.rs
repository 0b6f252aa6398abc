//! The most frequent of any number of keys, in bounded memory.
//!
//! The space-saving algorithm (Metwally, Agrawal and El Abbadi, 2005): a new key takes the place of
//! the rarest one and inherits its count, which is the most that its own can be wrong by. A key
//! that came more often than `n / capacity` of `n` times is always among them.

use ahash::AHashMap;
use core::hash::Hash;

/// The most frequent keys, each with a value of the caller's.
#[derive(Debug)]
pub(super) struct Top<K, V> {
    entries: Vec<Entry<K, V>>,
    places: AHashMap<K, usize>,
    capacity: usize,
}

#[derive(Clone, Debug)]
pub(super) struct Entry<K, V> {
    pub(super) key: K,
    /// At least how often it came.
    pub(super) count: u64,
    /// By how much `count` may be too high.
    pub(super) error: u64,
    pub(super) value: V,
}

impl<K: Copy + Eq + Hash, V> Top<K, V> {
    /// Keeps at most `capacity` keys, which is not zero.
    pub(super) fn new(capacity: usize) -> Self {
        Self { entries: Vec::new(), places: AHashMap::new(), capacity }
    }

    /// Counts a key `count` times, and returns its value: `fresh` if it was not known.
    pub(super) fn add(&mut self, key: K, count: u64, fresh: impl FnOnce() -> V) -> &mut V {
        let place = match self.places.get(&key) {
            Some(place) => *place,
            None => self.enter(key, fresh()),
        };
        let entry = &mut self.entries[place];
        entry.count += count;
        &mut entry.value
    }

    /// Returns the place of a key that was not known.
    fn enter(&mut self, key: K, value: V) -> usize {
        let place = self.entries.len();
        if place < self.capacity {
            self.entries.push(Entry { key, count: 0, error: 0, value });
            self.places.insert(key, place);
            return place;
        }
        let rarest = self.entries.iter().enumerate().min_by_key(|(_, entry)| entry.count);
        let place = rarest.map_or(0, |(place, _)| place);
        let entry = &mut self.entries[place];
        self.places.remove(&entry.key);
        *entry = Entry { key, count: entry.count, error: entry.count, value };
        self.places.insert(key, place);
        place
    }

    /// Adds what another one has counted. `join` adds its value to the one here.
    pub(super) fn merge(&mut self, other: Self, join: impl Fn(&mut V, V))
    where
        V: Default,
    {
        for Entry { key, count, error, value } in other.entries {
            join(self.add(key, count, V::default), value);
            if let Some(place) = self.places.get(&key) {
                self.entries[*place].error += error;
            }
        }
    }

    /// Returns the entries, the most frequent first.
    pub(super) fn sorted(&self) -> Vec<&Entry<K, V>> {
        let mut sorted: Vec<_> = self.entries.iter().collect();
        sorted.sort_by_key(|entry| core::cmp::Reverse(entry.count));
        sorted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn counts_are_too_high_by_no_more_than_their_error_and_frequent_keys_are_kept(
            keys in proptest::collection::vec(0..40_u8, 0..600),
            capacity in 1..12_usize,
            shards in 1..4_usize,
        ) {
            let mut exact: HashMap<u8, u64> = HashMap::new();
            let mut parts: Vec<Top<u8, u64>> = (0..shards).map(|_| Top::new(capacity)).collect();
            for (at, key) in keys.iter().enumerate() {
                *exact.entry(*key).or_default() += 1;
                *parts[at % shards].add(*key, 1, || 0) += 1;
            }
            let mut all = Top::new(capacity);
            for part in parts {
                all.merge(part, |mine, theirs| *mine += theirs);
            }
            let sorted = all.sorted();
            prop_assert!(sorted.len() <= capacity);
            for entry in &sorted {
                let real = exact[&entry.key];
                prop_assert!(entry.count >= real.min(entry.count), "{entry:?}");
                prop_assert!(entry.count - entry.error <= real, "{entry:?}: {real}");
                prop_assert!(entry.value <= real);
            }
            if shards == 1 {
                for (key, real) in exact {
                    let found = sorted.iter().find(|entry| entry.key == key);
                    prop_assert!(found.is_some_and(|it| it.count >= real)
                        || real <= (keys.len() / capacity) as u64);
                }
            }
        }
    }
}

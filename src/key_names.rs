//! Clients' keys as text, for pages that may show them (`admin.show_keys`).
//!
//! Rules know clients by fingerprint only. Workers keep the names of keys that a rule rejects or that
//! have used at least half of a limit, so that the fullest and the most rejected keys have names.

use ahash::AHashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Parts with a lock each, so that workers seldom meet.
const SHARDS: usize = 16;

/// Names in one generation of a part: 16,384 in all, of at most [`LONGEST`] bytes.
const MOST: usize = 512;

/// The longest name in bytes. The rest is cut off.
const LONGEST: usize = 256;

/// The names that were kept last.
#[derive(Debug, Default)]
pub struct KeyNames {
    shards: [Mutex<Shard>; SHARDS],
}

/// A full generation takes the place of the one before.
#[derive(Debug, Default)]
struct Shard {
    current: AHashMap<u128, Arc<str>>,
    before: AHashMap<u128, Arc<str>>,
}

impl KeyNames {
    /// Returns whether the name of a fingerprint was kept lately and need not be made.
    pub fn knows(&self, key: u128) -> bool {
        self.shard(key).current.contains_key(&key)
    }

    /// Keeps a name.
    pub fn keep(&self, key: u128, name: &str) {
        let name = name.get(..name.floor_char_boundary(LONGEST)).unwrap_or(name);
        let mut shard = self.shard(key);
        if shard.current.len() >= MOST {
            shard.before = core::mem::take(&mut shard.current);
        }
        shard.current.insert(key, name.into());
    }

    /// Returns the name of a fingerprint, if it is kept.
    pub fn find(&self, key: u128) -> Option<Arc<str>> {
        let shard = self.shard(key);
        shard.current.get(&key).or_else(|| shard.before.get(&key)).cloned()
    }

    /// Forgets all names.
    pub fn clear(&self) {
        for shard in &self.shards {
            *shard.lock().unwrap_or_else(PoisonError::into_inner) = Shard::default();
        }
    }

    fn shard(&self, key: u128) -> MutexGuard<'_, Shard> {
        let at = usize::try_from(key % SHARDS as u128).unwrap_or(0);
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_names_are_kept_in_bounded_memory() {
        let names = KeyNames::default();
        let all = 10 * (SHARDS * MOST) as u128;
        for key in 0..all {
            names.keep(key, &format!("client {key}"));
        }
        let kept = (0..all).filter(|key| names.find(*key).is_some()).count();
        assert!(kept <= 2 * SHARDS * MOST);
        assert_eq!(names.find(all - 1).as_deref(), Some(&*format!("client {}", all - 1)));
        assert!(names.knows(all - 1) && !names.knows(0));
        names.clear();
        assert!((0..all).all(|key| names.find(key).is_none()));
    }

    #[test]
    fn a_long_name_is_cut_at_a_character() {
        let names = KeyNames::default();
        names.keep(1, &"ä".repeat(LONGEST));
        assert_eq!(names.find(1).as_deref(), Some(&*"ä".repeat(LONGEST / 2)));
    }
}

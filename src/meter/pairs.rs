//! Counts by tag in a fixed table, and counts up to a limit, without a lock.
//!
//! A compare-and-swap gives a free slot to a tag for good. A tag takes the first free slot from its
//! own on, so that threads with the same new tag race for the same slot, and a tag never has two.
//! Relaxed ordering is enough: a tag guards only its count, which starts at zero.
//!
//! `tests/models.rs` checks this file with loom.

use super::atomics::{AtomicU64, Relaxed};
use core::array;

/// Counts of up to `N` tags, and of all others together.
#[derive(Debug)]
pub(super) struct Pairs<const N: usize> {
    slots: [Pair; N],
    others: AtomicU64,
}

/// A count and its tag; zero means free.
#[derive(Debug, Default)]
struct Pair {
    tag: AtomicU64,
    count: AtomicU64,
}

impl<const N: usize> Default for Pairs<N> {
    fn default() -> Self {
        Self { slots: array::from_fn(|_| Pair::default()), others: AtomicU64::default() }
    }
}

impl<const N: usize> Pairs<N> {
    /// Counts `tag`, which is not zero.
    pub(super) fn count(&self, tag: u64) {
        self.count_of(tag).fetch_add(1, Relaxed);
    }

    fn count_of(&self, tag: u64) -> &AtomicU64 {
        let home = usize::try_from(tag % N as u64).unwrap_or_default();
        for step in 0..N {
            let pair = &self.slots[(home + step) % N];
            let mut found = pair.tag.load(Relaxed);
            if found == 0 {
                found = match pair.tag.compare_exchange(0, tag, Relaxed, Relaxed) {
                    Ok(_) => tag,
                    Err(winner) => winner,
                };
            }
            if found == tag {
                return &pair.count;
            }
        }
        &self.others
    }

    /// Returns the tags with a count above zero.
    pub(super) fn read(&self) -> impl Iterator<Item = (u64, u64)> {
        let read = |pair: &Pair| (pair.tag.load(Relaxed), pair.count.load(Relaxed));
        self.slots.iter().map(read).filter(|(tag, count)| *tag > 0 && *count > 0)
    }

    /// Returns the count of tags beyond the table.
    pub(super) fn others(&self) -> u64 {
        self.others.load(Relaxed)
    }
}

/// Increments `taken` if it is below `limit`. Returns whether it did. To check before adding would
/// admit too many, as threads share the number without a lock.
pub(super) fn take(taken: &AtomicU64, limit: u64) -> bool {
    let one_more = |taken| (taken < limit).then_some(taken + 1);
    taken.fetch_update(Relaxed, Relaxed, one_more).is_ok()
}

//! Counts by tag, in a few places that threads share without a lock.
//!
//! A place is free until one compare-and-swap gives it to a tag, whose it stays. A tag
//! takes the first free place from its own on, so that two threads with the same new
//! tag race for the same one, and a tag never has two. Relaxed is enough: a tag guards
//! nothing but its count, which is zero whoever looks first.
//!
//! `tests/models.rs` compiles this file over loom's atomics, and so tries every order
//! in which threads can run and every value that they can read.

use super::atomics::{AtomicU64, Relaxed};
use core::array;

/// Counts of up to `N` tags, and of all others together.
#[derive(Debug)]
pub(super) struct Pairs<const N: usize> {
    places: [Pair; N],
    others: AtomicU64,
}

/// A count and its tag: zero, if it counts for no pair.
#[derive(Debug, Default)]
struct Pair {
    tag: AtomicU64,
    count: AtomicU64,
}

impl<const N: usize> Default for Pairs<N> {
    fn default() -> Self {
        Self { places: array::from_fn(|_| Pair::default()), others: AtomicU64::default() }
    }
}

impl<const N: usize> Pairs<N> {
    /// Counts one of `tag`, which is not zero.
    pub(super) fn count(&self, tag: u64) {
        self.count_of(tag).fetch_add(1, Relaxed);
    }

    fn count_of(&self, tag: u64) -> &AtomicU64 {
        let home = usize::try_from(tag % N as u64).unwrap_or_default();
        for step in 0..N {
            let pair = &self.places[(home + step) % N];
            let mut seen = pair.tag.load(Relaxed);
            if seen == 0 {
                seen = match pair.tag.compare_exchange(0, tag, Relaxed, Relaxed) {
                    Ok(_) => tag,
                    Err(winner) => winner,
                };
            }
            if seen == tag {
                return &pair.count;
            }
        }
        &self.others
    }

    /// Returns each tag with its count. One that is taken but not counted yet is left out.
    pub(super) fn read(&self) -> impl Iterator<Item = (u64, u64)> {
        let read = |pair: &Pair| (pair.tag.load(Relaxed), pair.count.load(Relaxed));
        self.places.iter().map(read).filter(|(tag, count)| *tag > 0 && *count > 0)
    }

    /// Returns the count of tags that found no place.
    pub(super) fn others(&self) -> u64 {
        self.others.load(Relaxed)
    }
}

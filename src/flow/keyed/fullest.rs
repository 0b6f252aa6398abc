//! The clients that have used the most, found in steps.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

/// The fullest keys of the states that were looked at so far.
#[derive(Debug)]
pub struct Fullest {
    most: usize,
    /// The rank that another key must exceed.
    least: u128,
    /// Ranks and fingerprints, the emptiest on top.
    found: BinaryHeap<Reverse<(u128, u128)>>,
}

impl Fullest {
    /// Looks for at most this many keys.
    pub fn new(most: usize) -> Self {
        Self { most, least: 0, found: BinaryHeap::new() }
    }

    /// Returns the rank that another key must exceed.
    pub(in crate::flow) const fn least(&self) -> u128 {
        self.least
    }

    /// Takes a state into account. One of rank zero has used nothing.
    #[inline]
    pub(in crate::flow) fn offer(&mut self, rank: u128, key: u128) {
        if rank > self.least {
            self.take(rank, key);
        }
    }

    fn take(&mut self, rank: u128, key: u128) {
        if self.found.len() < self.most {
            self.found.push(Reverse((rank, key)));
        } else if let Some(mut emptiest) = self.found.peek_mut() {
            *emptiest = Reverse((rank, key));
        }
        if self.found.len() == self.most {
            self.least = self.found.peek().map_or(u128::MAX, |Reverse((rank, _))| *rank);
        }
    }

    /// Returns the fingerprints, the fullest first, each once: a client that was evicted and came
    /// back may have been seen twice.
    pub(in crate::flow) fn into_keys(self) -> Vec<u128> {
        let mut keys = Vec::new();
        for Reverse((_, key)) in self.found.into_sorted_vec() {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        keys
    }
}

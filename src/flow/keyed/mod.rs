//! A state for each client, in bounded memory.
//!
//! At most `max_keys` states are kept. When all are taken and a new client comes, a clock hand
//! looks at a few states, and the one with the least to lose goes to the new client. The evicted
//! client's usage is kept in a [summary] of bounded size. A client that returns, or is new,
//! begins with what the summary holds for it, which is never less than it used. So
//! - no client gains by an eviction: whatever passes would also pass with room for all;
//! - a new client gets a place however many others come. Its first request is rejected only if it would
//!   be rejected by itself, or if evicted clients used up all of its four cells: with a chance of
//!   at most `(J / (N·w))^4`, where `J` was charged to them while usages count (two windows, or a
//!   bucket's time to drain), and `w` is `2·max_keys`, at least 1024.
//!
//! A state stays where it is while it is **held**: requests of its client are in flight or have
//! borrowed, or its charges are not synced yet. If [`SEARCH`](table::SEARCH) states are all held,
//! the new client shares one of a few **overflow** states, chosen by its key, and adds its own
//! usage. A client that later gets its own state starts with the overflow state's usage.
//!
//! An edit puts all states and the summary out of date and converts none. A decision converts what
//! it reads; the rest is converted a few at a time ([`Table::catch_up`]), so that no request waits
//! for all.

mod index;
mod summary;
mod table;
mod usage;

use core::{cmp::Reverse, ops::AddAssign};
use index::Fingerprint;
use serde::{Deserialize, Serialize};
use std::{collections::BinaryHeap, sync::Arc};
pub(super) use table::{OTHERS, OVERFLOWS, Table, entry_bytes, summary_bytes};
pub(super) use usage::{PastUsage, Scale};

/// A rule's key, and how many clients it can count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keyed {
    /// The key as text, as `client_ip/64`. An edit compares it.
    pub by: Arc<str>,
    /// The most clients that have a state of their own.
    pub max_keys: u32,
}

/// The number of keys in a rule's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// Clients with a state of their own, including fresh states that wait for another client.
    pub live: u32,
    /// The most clients.
    pub max: u32,
    /// Events of a full table since the rule had it; a rule's [`Counts`](super::Counts) have all.
    pub churn: Churn,
}

/// Events of a full table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Churn {
    /// Clients with usage that lost their place to a new one.
    pub evicted: u64,
    /// Clients that got a place and began with usage of the summary.
    pub restored: u64,
    /// Decisions about clients that shared an overflow state.
    pub overflowed: u64,
}

impl AddAssign for Churn {
    fn add_assign(&mut self, other: Self) {
        self.evicted += other.evicted;
        self.restored += other.restored;
        self.overflowed += other.overflowed;
    }
}

/// The place of a charged state. It stays there while it is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum KeySlot {
    /// The state of all, or of all without a key.
    Shared,
    /// A client's own.
    Own(u32),
    /// An overflow state of several clients.
    Overflow(u32),
}

/// The place of the state of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    /// An existing state.
    At(KeySlot),
    /// The client is new.
    New {
        fingerprint: Fingerprint,
        /// The place it will get: another client's, or one past the last.
        at: u32,
    },
}

impl Lookup {
    /// Returns whether the usage there is all of the client's, or of those that count together.
    pub(super) const fn is_own(self) -> bool {
        matches!(self, Self::At(KeySlot::Own(_) | KeySlot::Shared))
    }
}

/// A limiter's view of its states at an instant.
pub(in crate::flow) trait StatePolicy<S> {
    /// Returns whether `state` must not be evicted.
    fn is_held(&self, state: &S) -> bool;
    /// Returns whether `state` decides as a fresh one does.
    fn is_fresh(&self, state: &S) -> bool;
    fn scale(&self) -> Scale;
    /// Returns what to remember of `state` when it is evicted.
    fn past_usage(&self, state: &S) -> PastUsage;
    fn renew(&self, state: &mut S);
    /// Raises the usage of `state` to this past usage.
    fn absorb(&self, state: &mut S, usage: PastUsage);

    /// Returns what an eviction of `state` loses; zero if nothing.
    fn loss(&self, state: &S) -> u64 {
        if self.is_fresh(state) { 0 } else { self.scale().weight(self.past_usage(state)).max(1) }
    }
}

/// The conversion of states and usages from before the latest edit.
pub(in crate::flow) struct Conversion<'a, S> {
    pub(in crate::flow) state: &'a dyn Fn(&mut S),
    pub(in crate::flow) usage: &'a dyn Fn(PastUsage) -> PastUsage,
}

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

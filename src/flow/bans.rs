//! Clients that a rule rejects for a while because they have exceeded it.
//!
//! A ban begins when the rule rejects a client because its limit is used up, or when the cost of a
//! request that is settled later leaves more used than the limit. Until its end, the rule rejects all
//! requests of the client. They do not prolong it.
//!
//! Bans are kept beside the states: a client that loses its place in a full table stays banned.

use super::{
    decision::{Claim, Decision, Key, Reason},
    time::Instant,
};
use ahash::AHashMap;
use core::time::Duration;
use std::collections::BTreeSet;

/// The most bytes that a ban takes: 33 in a table that is at least 7/16 full, and 32 in nodes with room
/// for eleven, of which at least five are used, with their pointers.
pub(super) const BAN_BYTES: u64 = 176;

/// The bans of one rule.
#[derive(Debug)]
pub(super) struct Bans {
    /// The most clients with a key that are banned at once.
    most: usize,
    /// That of all clients without a key.
    shared: Option<Instant>,
    ends: AHashMap<u128, Instant>,
    /// The same, the earliest end first.
    order: BTreeSet<(Instant, u128)>,
}

impl Bans {
    /// Returns no bans. With more than `most` at once, the one that ends first gives way.
    pub(super) fn new(most: usize) -> Self {
        Self { most: most.max(1), shared: None, ends: AHashMap::new(), order: BTreeSet::new() }
    }

    /// Keeps at most this many from now on.
    pub(super) const fn set_most(&mut self, most: usize) {
        self.most = if most == 0 { 1 } else { most };
    }

    /// Returns the end of a client's ban, if it is banned at `now`.
    pub(super) fn end_of(&self, key: Key, now: Instant) -> Option<Instant> {
        let end = match key {
            Key::Of(key) => self.ends.get(&key).copied(),
            Key::Shared => self.shared,
            Key::Missing | Key::Duplicate => None,
        };
        end.filter(|end| now < *end)
    }

    /// Decides about a request after the limiter, in a rule that bans for `length`. The wait is over
    /// when the ban is and the limiter admits the request. Returns true if the request begins a ban:
    /// only if the usage `is_own`, as no client is banned for what others have used.
    pub(super) fn decide(
        &self,
        claim: &Claim,
        decision: Decision,
        now: Instant,
        length: Duration,
        is_own: bool,
    ) -> (Decision, bool) {
        let own = match decision {
            Decision::Reject(reason) if reason.is_lasting() => return (decision, false),
            Decision::Reject(reason) => reason.retry_after().unwrap_or_default(),
            Decision::Pass | Decision::Delay(_) => Duration::ZERO,
        };
        if let Some(end) = self.end_of(claim.key, now).filter(|_| claim.cost > 0) {
            let retry_after = end.since(now).max(own);
            return (Decision::Reject(Reason::Banned { retry_after }), false);
        }
        match decision {
            Decision::Reject(Reason::Rate { retry_after }) if is_own => {
                let retry_after = retry_after.max(length);
                (Decision::Reject(Reason::Rate { retry_after }), true)
            }
            Decision::Reject(_) | Decision::Pass | Decision::Delay(_) => (decision, false),
        }
    }

    /// Bans a client until `end`, unless it is banned already. Returns whether this is a new ban.
    pub(super) fn begin(&mut self, key: Key, now: Instant, end: Instant) -> bool {
        if end <= now || self.end_of(key, now).is_some() {
            return false;
        }
        match key {
            Key::Of(key) => self.insert(key, now, end),
            Key::Shared => self.shared = Some(end),
            Key::Missing | Key::Duplicate => return false,
        }
        true
    }

    fn insert(&mut self, key: u128, now: Instant, end: Instant) {
        if let Some(before) = self.ends.insert(key, end) {
            self.order.remove(&(before, key));
        }
        self.order.insert((end, key));
        while let Some(&(first, key)) = self.order.first()
            && (first <= now || self.order.len() > self.most)
        {
            self.order.pop_first();
            self.ends.remove(&key);
        }
    }

    /// Ends the ban of a client. Returns whether it was banned.
    pub(super) fn lift(&mut self, key: Key, now: Instant) -> bool {
        let was_banned = self.end_of(key, now).is_some();
        match key {
            Key::Of(key) => {
                if let Some(end) = self.ends.remove(&key) {
                    self.order.remove(&(end, key));
                }
            }
            Key::Shared => self.shared = None,
            Key::Missing | Key::Duplicate => {}
        }
        was_banned
    }

    /// Returns the bans at `now`: that of clients without a key first, then those that end last.
    pub(super) fn in_force(&self, now: Instant) -> impl Iterator<Item = (Key, Instant)> {
        let shared = self.end_of(Key::Shared, now).map(|end| (Key::Shared, end));
        let of_keys = self.order.iter().rev().take_while(move |(end, _)| now < *end);
        shared.into_iter().chain(of_keys.map(|(end, key)| (Key::Of(*key), *end)))
    }
}

#[cfg(test)]
mod tests;

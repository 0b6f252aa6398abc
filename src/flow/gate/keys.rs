//! What operators see and change of single keys.

use super::Gate;
use crate::flow::{
    chain::NotReset,
    decision::{Key, SlotId},
    grants::Grant,
    keyed::Fullest,
    time::Instant,
    top::{RejectedKeys, join},
};
use core::time::Duration;

/// What one key has used of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyUsage {
    /// Its fingerprint.
    pub key: u128,
    /// What is used, of the rule's limit.
    pub used: u64,
    /// Time until nothing is.
    pub reset: Duration,
}

impl Gate {
    /// Looks at some keys of the rule behind `slot`. `before` is `u32::MAX` or the previous result;
    /// `None` means done. It holds the lock for about a microsecond, and for some ten while states are
    /// converted after an edit.
    ///
    /// What changes between two calls may be seen before or after; a rule without keys has none.
    pub fn find_fullest(
        &self,
        slot: SlotId,
        now: Instant,
        before: u32,
        fullest: &mut Fullest,
    ) -> Option<u32> {
        self.lock().find_fullest(slot, now, before, fullest)
    }

    /// Returns what the fullest keys that were found have used at `now`, the fullest first.
    pub fn usages(&self, slot: SlotId, now: Instant, fullest: Fullest) -> Vec<KeyUsage> {
        let usage = |key| {
            let usage = self.lock().usage_of(slot, now, key)?;
            Some(KeyUsage { key, used: usage.used, reset: usage.reset })
        };
        let mut usages: Vec<KeyUsage> = fullest.into_keys().into_iter().filter_map(usage).collect();
        usages.sort_by_key(|usage| core::cmp::Reverse((usage.used, usage.reset)));
        usages
    }

    /// Returns the keys that the rule has rejected most; `None` if it has rejected no key.
    pub fn rejected_keys(&self, slot: SlotId, now: Instant) -> Option<RejectedKeys> {
        // A statement of its own releases the lock before the rest.
        let seen = self.lock().rejected_keys(slot, now);
        seen.map(join)
    }

    /// Returns whether the rule's keys can be reset.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn may_reset(&self, slot: SlotId) -> Result<(), NotReset> {
        self.lock().may_reset(slot)
    }

    /// Gives a key of a rule its whole budget again, as if it had never come. Returns whether it
    /// had used any of it. If gateways sync the rule, their next sync brings the usage back, unless
    /// the store's state is reset too.
    ///
    /// # Errors
    ///
    /// Why it is not reset; nothing changes.
    pub fn reset_key(&self, slot: SlotId, now: Instant, key: Key) -> Result<bool, NotReset> {
        self.lock().reset_key(slot, now, key)
    }

    /// Gives every key of a rule its whole budget again.
    ///
    /// # Errors
    ///
    /// Why they are not reset; nothing changes.
    pub fn reset_all(&self, slot: SlotId) -> Result<(), NotReset> {
        // A statement of its own: the old states are dropped after the lock.
        let old = self.lock().reset_all(slot)?;
        drop(old);
        Ok(())
    }

    /// Adds a grant to the rule behind `slot`, in place of the key's earlier one. It survives edits
    /// that keep or convert the rule. Returns whether the rule has room for it, of
    /// [`MOST_GRANTS`](crate::flow::MOST_GRANTS).
    pub fn grant(&self, slot: SlotId, now: Instant, grant: Grant) -> bool {
        self.lock().grant(slot, now, grant)
    }

    /// Notes a key that a dry run in the store would have rejected at `now`: it is among the
    /// [rejected](Self::rejected_keys) ones.
    pub fn note_rejected_key(&self, slot: SlotId, key: Key, now: Instant) {
        self.lock().note_rejected_key(slot, key, now);
    }

    /// Returns the grants of a rule that are in force.
    pub fn grants(&self, slot: SlotId, now: Instant) -> Vec<Grant> {
        self.lock().grants(slot, now)
    }
}

#[cfg(test)]
mod tests;

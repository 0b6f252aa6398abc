//! Single keys and their budgets, for operators: the fullest and the most rejected keys, resets, and
//! grants.

use super::{Gate, chain_slot::ChainSlot};
use crate::flow::{
    Algorithm,
    bans::Bans,
    decision::{Key, SlotId},
    grants::Grant,
    keyed::Fullest,
    rules::SlotRule,
    slot::{Renewed, Slot},
    time::{Instant, WallOffset},
    top::{RejectedKeys, join},
};
use core::{cmp::Reverse, fmt, time::Duration};

/// The usage of one key of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyUsage {
    /// Its fingerprint.
    pub key: u128,
    /// The used part of its limit.
    pub used: u64,
    /// Its limit: the rule's, or that of its plan.
    pub limit: u64,
    /// Time until nothing is.
    pub reset: Duration,
}

/// Why a key is not reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotReset {
    /// The rule is gone.
    NoRule,
    /// It counts requests in flight, which only their end takes back.
    InFlight,
    /// Gateways sync its states, each of which is reset at all gateways by its key.
    Synced,
    /// Another process is taking over and has a part of the states.
    HandingOver,
    /// The table is full of clients with requests in flight, and this one shares a state.
    Overflowed,
}

impl fmt::Display for NotReset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoRule => "the rule is not in force any more",
            Self::InFlight => "the rule counts running requests, which only their end takes back",
            Self::Synced => "gateways sync the keys of this rule: name one",
            Self::HandingOver => "a new process is taking over: try again when it has",
            Self::Overflowed => "the rule's table is full, and the key shares a state with others",
        })
    }
}

impl Gate {
    /// Looks at some keys of the rule behind `slot`. `before` is `u32::MAX` or the previous result;
    /// `None` means done. It holds the lock for about a microsecond, and for some ten while states are
    /// converted after an edit.
    ///
    /// A change between two calls may be seen before or after; a rule without keys has none.
    pub fn find_fullest(
        &self,
        slot: SlotId,
        now: Instant,
        before: u32,
        fullest: &mut Fullest,
    ) -> Option<u32> {
        self.with_slot(slot, now, |entry, now| entry.slot.find_fullest(now, before, fullest))?
    }

    /// Returns the usage at `now` of the fullest keys that were found, the fullest first.
    pub fn usages(&self, slot: SlotId, now: Instant, fullest: Fullest) -> Vec<KeyUsage> {
        let usage = |key| {
            let (usage, limit) =
                self.with_slot(slot, now, |entry, now| entry.slot.usage_of(now, key))??;
            Some(KeyUsage { key, used: usage.used, limit, reset: usage.reset })
        };
        let mut usages: Vec<KeyUsage> = fullest.into_keys().into_iter().filter_map(usage).collect();
        usages.sort_by_key(|usage| Reverse((usage.used, usage.reset)));
        usages
    }

    /// Returns the keys that the rule has rejected most; `None` if it has rejected no key.
    pub fn rejected_keys(&self, slot: SlotId, now: Instant) -> Option<RejectedKeys> {
        let seen =
            self.with_slot(slot, now, |entry, now| Some(entry.rejections.as_mut()?.observe(now)));
        // Outside the lock.
        seen?.map(join)
    }

    /// Notes a key that a dry run in the store would have rejected at `now`: it is among the
    /// [rejected](Self::rejected_keys) ones.
    pub fn note_rejected_key(&self, slot: SlotId, key: Key, now: Instant) {
        let mut chain = self.lock();
        let now = chain.clamp(now);
        if let Some(entry) = chain.current(slot) {
            entry.note_rejected(key, now);
        }
    }

    /// Returns whether the rule's keys can be reset.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn may_reset(&self, slot: SlotId) -> Result<(), NotReset> {
        self.with_resettable(slot, Instant::EPOCH, |_, _, _| ())
    }

    /// Gives a key of a rule its whole budget again, as if it had never come. Returns whether it
    /// had used any of it. If gateways sync the rule, their next sync brings the usage back, unless
    /// the store's state is reset too.
    ///
    /// # Errors
    ///
    /// Why it is not reset; nothing changes.
    pub fn reset_key(&self, slot: SlotId, now: Instant, key: Key) -> Result<bool, NotReset> {
        let renew = |entry: &mut ChainSlot, now, _| {
            let was_banned = entry.bans.as_mut().is_some_and(|bans| bans.lift(key, now));
            (entry.slot.renew(now, key), was_banned)
        };
        let (renewed, was_banned) = self.with_resettable(slot, now, renew)?;
        match renewed {
            Renewed::Done => Ok(true),
            Renewed::Unused => Ok(was_banned),
            Renewed::Overflowed => Err(NotReset::Overflowed),
        }
    }

    /// Gives every key of a rule its whole budget again.
    ///
    /// # Errors
    ///
    /// Why they are not reset; nothing changes.
    pub fn reset_all(&self, slot: SlotId) -> Result<(), NotReset> {
        let reset = |entry: &mut ChainSlot, _, wall| -> Result<Box<dyn Slot>, NotReset> {
            if entry.rule.is_synced() {
                return Err(NotReset::Synced);
            }
            entry.counts = entry.counts();
            entry.bans = entry.rule.most_bans().map(|most| Box::new(Bans::new(most)));
            Ok(core::mem::replace(&mut entry.slot, entry.rule.build(wall)))
        };
        let old = self.with_resettable(slot, Instant::EPOCH, reset)??;
        // Outside the lock, as there may be many states.
        drop(old);
        Ok(())
    }

    /// Returns how many clients a rule has banned, and the bans that end last, at most this many, each
    /// with its end.
    pub fn bans(&self, slot: SlotId, now: Instant, most: usize) -> (usize, Vec<(Key, Instant)>) {
        let bans = self.with_slot(slot, now, |entry, now| {
            let bans = entry.bans.as_ref()?;
            Some((bans.in_force(now).count(), bans.in_force(now).take(most).collect()))
        });
        bans.flatten().unwrap_or_default()
    }

    /// Adds a grant to the rule behind `slot`, in place of the key's earlier one. It survives edits
    /// that keep or convert the rule. Returns whether the rule has room for it, of
    /// [`MOST_GRANTS`](crate::flow::MOST_GRANTS).
    pub fn grant(&self, slot: SlotId, now: Instant, grant: Grant) -> bool {
        self.with_slot(slot, now, |entry, now| entry.grants.add(grant, now)).unwrap_or(false)
    }

    /// Returns the grants of a rule that are in force.
    pub fn grants(&self, slot: SlotId, now: Instant) -> Vec<Grant> {
        self.with_slot(slot, now, |entry, now| entry.grants.in_force(now)).unwrap_or_default()
    }

    /// Has a limit that finds itself take over the one of a recorded decision. It learns nothing any
    /// more.
    pub fn follow_limit(&self, slot: SlotId, now: Instant, limit: u32) {
        self.with_turns(|chain| {
            chain.clamp(now);
            if let Some(entry) = chain.slot_mut(slot) {
                entry.slot.follow_limit(limit);
            }
            chain.give_all_turns();
        });
    }

    /// Runs `work` on the slot if its keys can be reset, with the time and the wall clock's offset.
    fn with_resettable<T>(
        &self,
        slot: SlotId,
        now: Instant,
        work: impl FnOnce(&mut ChainSlot, Instant, WallOffset) -> T,
    ) -> Result<T, NotReset> {
        let mut chain = self.lock();
        let now = chain.clamp(now);
        let wall = chain.wall;
        let is_handing_over = chain.journal.is_some();

        let entry = chain.slot_mut(slot).ok_or(NotReset::NoRule)?;
        let SlotRule::Flow(rule) = &entry.rule else { return Err(NotReset::NoRule) };
        if matches!(rule.algorithm.own(), Algorithm::Concurrency(_) | Algorithm::AutoConcurrency(_))
        {
            return Err(NotReset::InFlight);
        }
        if is_handing_over {
            return Err(NotReset::HandingOver);
        }
        Ok(work(entry, now, wall))
    }
}

#[cfg(test)]
mod tests;

//! What operators see and change of single keys.

use super::{
    Chain,
    slots::{ChainSlot, Wanted},
};
use crate::flow::{
    Algorithm,
    decision::{Key, SlotId},
    grants::Grant,
    keyed::Fullest,
    limiter::Usage,
    slot::{Renewed, Slot},
    time::Instant,
    top::RejectedKeys,
};
use core::fmt;

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

impl Chain {
    pub(in crate::flow) fn find_fullest(
        &mut self,
        slot: SlotId,
        now: Instant,
        before: u32,
        fullest: &mut Fullest,
    ) -> Option<u32> {
        let now = now.max(self.latest);
        self.slot_mut(slot)?.find_fullest(now, before, fullest)
    }

    pub(in crate::flow) fn usage_of(
        &mut self,
        slot: SlotId,
        now: Instant,
        key: u128,
    ) -> Option<Usage> {
        let now = now.max(self.latest);
        self.slot_mut(slot)?.usage_of(now, key)
    }

    pub(in crate::flow) fn rejected_keys(
        &mut self,
        slot: SlotId,
        now: Instant,
    ) -> Option<[RejectedKeys; 2]> {
        let now = now.max(self.latest);
        let entry = self.slots.iter_mut().find(|entry| entry.id == slot)?;
        Some(entry.rejections.as_mut()?.observe(now))
    }

    pub(in crate::flow) fn may_reset(&mut self, slot: SlotId) -> Result<(), NotReset> {
        self.resettable(slot).map(|_| ())
    }

    /// Gives a key its whole budget again. Returns whether it had used any.
    pub(in crate::flow) fn reset_key(
        &mut self,
        slot: SlotId,
        now: Instant,
        key: Key,
    ) -> Result<bool, NotReset> {
        let now = self.clamp(now);
        match self.resettable(slot)?.slot.renew(now, key) {
            Renewed::Done => Ok(true),
            Renewed::Unused => Ok(false),
            Renewed::Overflowed => Err(NotReset::Overflowed),
        }
    }

    /// Gives all keys their whole budgets again. Returns the old states, which the caller drops
    /// outside the lock.
    pub(in crate::flow) fn reset_all(&mut self, slot: SlotId) -> Result<Box<dyn Slot>, NotReset> {
        let wall = self.wall;
        let entry = self.resettable(slot)?;
        if entry.wanted.is_synced() {
            return Err(NotReset::Synced);
        }
        entry.counts = entry.counts();
        let fresh = entry.wanted.build(wall);
        Ok(core::mem::replace(&mut entry.slot, fresh))
    }

    fn resettable(&mut self, slot: SlotId) -> Result<&mut ChainSlot, NotReset> {
        let is_handing_over = self.journal.is_some();
        let entry = self.slots.iter_mut().find(|entry| entry.id == slot);
        let entry = entry.ok_or(NotReset::NoRule)?;
        let Wanted::Flow(rule) = &entry.wanted else { return Err(NotReset::NoRule) };
        match rule.algorithm {
            Algorithm::Concurrency(_) => Err(NotReset::InFlight),
            Algorithm::Synced(_)
            | Algorithm::TokenBucket(_)
            | Algorithm::WarmUp(_)
            | Algorithm::LeakyBucket(_)
            | Algorithm::SlidingLog(_)
            | Algorithm::SlidingWindow(_)
            | Algorithm::SlidingCounter(_)
            | Algorithm::FixedWindow(_)
            | Algorithm::Pacing(_) => {
                if is_handing_over {
                    Err(NotReset::HandingOver)
                } else {
                    Ok(entry)
                }
            }
        }
    }

    /// Adds a grant. Returns whether the rule is there and has room for it.
    pub(in crate::flow) fn grant(&mut self, slot: SlotId, now: Instant, grant: Grant) -> bool {
        let now = self.clamp(now);
        let entry = self.slots.iter_mut().find(|entry| entry.id == slot);
        entry.is_some_and(|entry| entry.grants.add(grant, now))
    }

    pub(in crate::flow) fn grants(&self, slot: SlotId, now: Instant) -> Vec<Grant> {
        let now = now.max(self.latest);
        let entry = self.slots.iter().find(|entry| entry.id == slot);
        entry.map_or_else(Vec::new, |entry| entry.grants.in_force(now))
    }
}

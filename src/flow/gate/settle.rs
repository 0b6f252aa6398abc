//! Costs that are known only after the response.
//!
//! At admission a request is charged its **reserve**, like any cost. When its cost is known, the
//! difference is settled in each slot that was charged: an excess is charged at that time, and what
//! is left of the reserve is given back. A state may then have more used than its limit, a debt: the
//! next request passes when it is paid. A request that settles nothing keeps its reserve charged.
//!
//! Each slot is settled by itself, in the gate that charged it.

use super::{
    Gate, Permit,
    chain::{Chain, Charged},
    chain_slot::ChainSlot,
};
use crate::flow::{
    decision::{Claim, Key, SlotId},
    keyed::{KeySlot, Lookup},
    learned::Estimate,
    limiter::{Difference, Receipt},
    slot::{Owner, Settled},
    time::Instant,
    transfer::{Journal, LateSettlement},
};
use core::mem::take;

/// A charge to one slot that the end of its request settles.
#[derive(Clone, Copy, Debug)]
pub struct Reserve {
    /// The slot as claimed, which may be one that the charged slot was reset from.
    slot: SlotId,
    charged: SlotId,
    owner: Owner,
    cost: u64,
}

/// The cost of a request in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinalCost {
    /// The cost that counts.
    pub cost: u64,
    /// The part of it that a learned reserve is to cover: without what was known of the request.
    pub unforeseen: u64,
}

impl From<u64> for FinalCost {
    fn from(cost: u64) -> Self {
        Self { cost, unforeseen: cost }
    }
}

/// A reserve whose cost is known.
#[derive(Clone, Copy, Debug)]
pub struct SettledReserve {
    reserve: Reserve,
    cost: FinalCost,
}

impl Reserve {
    /// Returns the charge of this claim to the slot `charged`.
    pub(super) const fn new(
        charged: SlotId,
        claim: &Claim,
        key_slot: KeySlot,
        receipt: Receipt,
    ) -> Self {
        let &Claim { slot, key, plan, cost, .. } = claim;
        Self { slot, charged, owner: Owner { key, plan, key_slot, receipt }, cost }
    }

    /// Returns the slot as claimed.
    pub const fn slot(&self) -> SlotId {
        self.slot
    }

    /// Returns the cost that was charged.
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// Returns the slot that was charged.
    pub(super) const fn charged(&self) -> SlotId {
        self.charged
    }

    /// Returns the state that was charged.
    pub(super) const fn owner(&self) -> &Owner {
        &self.owner
    }

    pub(super) const fn is_of_gate(&self, number: u32) -> bool {
        self.charged.gate == number
    }
}

impl SettledReserve {
    /// Returns the slot as claimed.
    pub const fn slot(&self) -> SlotId {
        self.reserve.slot
    }

    /// Returns the cost that was charged at admission.
    pub const fn reserved(&self) -> u64 {
        self.reserve.cost
    }

    /// Returns the cost that counts.
    pub const fn cost(&self) -> u64 {
        self.cost.cost
    }

    pub(super) const fn is_of_gate(&self, number: u32) -> bool {
        self.reserve.charged.gate == number
    }
}

impl Permit {
    /// Returns the charges that are not settled yet.
    pub fn reserves(&self) -> &[Reserve] {
        &self.charged.reserves
    }

    /// Settles at `now` the reserves whose cost `cost_of` knows, and returns them. The others stay
    /// charged, and may be settled later. Each rule learns from its costs.
    pub fn settle(
        &mut self,
        now: Instant,
        mut cost_of: impl FnMut(&Reserve) -> Option<FinalCost>,
    ) -> Vec<SettledReserve> {
        let Charged { reserves, .. } = &mut self.charged;
        let mut settled = Vec::new();
        for reserve in take(reserves) {
            match cost_of(&reserve) {
                Some(cost) => settled.push(SettledReserve { reserve, cost }),
                None => reserves.push(reserve),
            }
        }

        let own = settled.iter().any(|settled| settled.is_of_gate(self.gate.number));
        let budgets = self.budgets.iter().flat_map(|budgets| budgets.of_reserves(&settled));
        for gate in own.then_some(&self.gate).into_iter().chain(budgets) {
            let of_gate = settled.iter().filter(|settled| settled.is_of_gate(gate.number));
            gate.lock().settle(now, of_gate);
        }
        settled
    }
}

impl Gate {
    /// Returns what the rule behind `slot` has learned, if it settles costs. It stays over edits that
    /// keep the rule.
    pub fn learned(&self, slot: SlotId) -> Option<Estimate> {
        let mut chain = self.lock();
        chain.slot_mut(slot)?.learned.as_ref().map(|learned| learned.estimate().clone())
    }
}

impl Gate {
    /// Counts a reserve that a store has charged for the rule behind `slot`.
    pub fn note_reserved(&self, slot: SlotId, cost: u64) {
        let mut chain = self.lock();
        if let Some(entry) = chain.current(slot) {
            entry.counts.reserved = entry.counts.reserved.saturating_add(cost);
        }
    }

    /// Counts the cost in the end of a request that a store has charged a reserve for the rule behind
    /// `slot`, and has the rule learn from it.
    pub fn note_settled(&self, slot: SlotId, cost: FinalCost) {
        let mut chain = self.lock();
        if let Some(entry) = chain.current(slot) {
            entry.note_settled(cost);
        }
    }
}

impl Chain {
    /// Settles reserves of this chain's slots.
    fn settle<'s>(&mut self, now: Instant, settled: impl Iterator<Item = &'s SettledReserve>) {
        let now = self.clamp(now);
        for SettledReserve { reserve, cost } in settled {
            // A slot that an edit removed or reset is gone; its successor did not charge this request.
            let entry = self.slots.iter_mut().find(|entry| entry.id == reserve.charged);
            let Some(entry) = entry else { continue };
            entry.note_settled(*cost);

            let difference = Difference::between(reserve.cost, cost.cost);
            let Some(difference) = difference else { continue };
            let settled = entry.slot.settle(now, &reserve.owner, difference);
            if let (Some(settled), Difference::More(_)) = (settled, difference)
                && entry.bans.is_some()
            {
                entry.ban_debtor(reserve.owner.key, settled.key_slot, now, self.journal.as_ref());
            }
            if let Some(Settled { key_slot, receipt }) = settled
                && let Some(journal) = &self.journal
                && let Some(owner) = entry.slot.exported(key_slot)
            {
                let unforeseen = cost.unforeseen;
                journal.settled(
                    reserve.charged,
                    owner,
                    LateSettlement { now, receipt, difference, unforeseen },
                );
            }
        }
    }
}

impl ChainSlot {
    /// Counts a cost, and learns from it.
    fn note_settled(&mut self, cost: FinalCost) {
        if let Some(learned) = &mut self.learned {
            learned.add(cost.unforeseen);
        }
        self.counts.settled = self.counts.settled.saturating_add(cost.cost);
    }

    /// Bans a client that has more used than its limit after a settlement.
    #[inline(never)]
    fn ban_debtor(&mut self, key: Key, at: KeySlot, now: Instant, journal: Option<&Journal>) {
        let lookup = Lookup::At(at);
        if lookup.is_own() && self.slot.usage(now, lookup).used > self.slot.limit_at(lookup) {
            self.ban_noted(key, now, journal);
        }
    }
}

#[cfg(test)]
mod tests;

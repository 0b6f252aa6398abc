//! Costs that are known only after the response.
//!
//! At admission a request is charged its **reserve**, like any cost. When its cost is known, the
//! difference is settled in each slot that was charged: an excess is charged at that time, and what
//! is left of the reserve is given back. A state may then have more used than its limit, a debt: the
//! next request passes when it is paid. A request that settles nothing keeps its reserve charged.
//!
//! The cost of a response so far may be charged while it passes, as far as that exceeds the charges
//! before. In the end the total is corrected to the cost: what is too much leaves the latest charge
//! first, and the reserve last.
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
use core::{iter::once, mem::take};

/// A charge to one slot that the end of its request settles.
#[derive(Clone, Debug)]
pub struct Reserve {
    /// The slot as claimed, which may be one that the charged slot was reset from.
    slot: SlotId,
    charged: SlotId,
    owner: Owner,
    cost: u64,
    /// The charges since, the oldest first. Most have none, and allocate nothing.
    later: Vec<LaterCharge>,
}

/// A part of a cost that was charged while the response passed.
#[derive(Clone, Copy, Debug)]
struct LaterCharge {
    at: Instant,
    /// Everything that was charged by then.
    total: u64,
    cost: u64,
    /// The state that was charged; `None` if an edit had removed it.
    owner: Option<(KeySlot, Receipt)>,
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
#[derive(Clone, Debug)]
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
        let owner = Owner { key, plan, key_slot, receipt };
        Self { slot, charged, owner, cost, later: Vec::new() }
    }

    /// Returns the slot as claimed.
    pub const fn slot(&self) -> SlotId {
        self.slot
    }

    /// Returns the cost that was charged at admission.
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// Returns everything that was charged so far.
    pub fn total(&self) -> u64 {
        self.later.last().map_or(self.cost, |charge| charge.total)
    }

    /// Returns the charges since the admission: the time of each, and the total by then.
    pub fn later_charges(&self) -> impl ExactSizeIterator<Item = (Instant, u64)> {
        self.later.iter().map(|charge| (charge.at, charge.total))
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

    /// Returns the changes that correct what was charged to a cost: an excess, or the parts that are
    /// given back, from the latest charge on.
    fn corrections(&self, cost: u64) -> impl Iterator<Item = (Owner, Difference)> {
        let difference = Difference::between(self.total(), cost);
        let (more, mut less) = match difference {
            Some(Difference::More(more)) => (Some(more), 0),
            Some(Difference::Less(less)) => (None, less),
            None => (None, 0),
        };

        let later = self.later.iter().rev().map(|charge| {
            let owner = charge.owner;
            let owner = owner.map(|(key_slot, receipt)| Owner { key_slot, receipt, ..self.owner });
            (owner, charge.cost)
        });
        let parts = later.chain(once((Some(self.owner), self.cost)));
        let given_back = parts.filter_map(move |(owner, charged)| {
            let part = charged.min(less);
            less -= part;
            (part > 0).then_some((owner?, Difference::Less(part)))
        });
        more.map(|more| (self.owner, Difference::More(more))).into_iter().chain(given_back)
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

    /// Returns the charges between: see [`Reserve::later_charges`].
    pub fn later_charges(&self) -> impl ExactSizeIterator<Item = (Instant, u64)> {
        self.reserve.later_charges()
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

    /// Charges at `now`, while the response passes, what the cost of each reserve exceeds the charges
    /// before by. `cost_of` returns the cost so far, or `None` if nothing is to be charged now.
    pub fn charge_so_far(
        &mut self,
        now: Instant,
        mut cost_of: impl FnMut(&Reserve) -> Option<u64>,
    ) {
        for reserve in &mut self.charged.reserves {
            let cost = cost_of(reserve).filter(|cost| *cost > reserve.total());
            let Some(cost) = cost else { continue };
            let budgets = self.budgets.iter().flat_map(|budgets| budgets.all());
            let mut gates = once(&self.gate).chain(budgets);
            if let Some(gate) = gates.find(|gate| reserve.is_of_gate(gate.number)) {
                gate.lock().charge_so_far(now, reserve, cost);
            }
        }
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
    /// Charges what the cost so far exceeds the charges before by.
    fn charge_so_far(&mut self, now: Instant, reserve: &mut Reserve, total: u64) {
        let now = self.clamp(now);
        let cost = total - reserve.total();
        let change = Correction { now, difference: Difference::More(cost), unforeseen: None };

        let entry = self.slots.iter_mut().find(|entry| entry.id == reserve.charged);
        let settled =
            entry.and_then(|entry| entry.correct(&reserve.owner, change, self.journal.as_ref()));
        let owner = settled.map(|settled| (settled.key_slot, settled.excess));
        reserve.later.push(LaterCharge { at: now, total, cost, owner });
    }

    /// Settles reserves of this chain's slots.
    fn settle<'s>(&mut self, now: Instant, settled: impl Iterator<Item = &'s SettledReserve>) {
        let now = self.clamp(now);
        for SettledReserve { reserve, cost } in settled {
            // A slot that an edit removed or reset is gone; its successor did not charge this request.
            let entry = self.slots.iter_mut().find(|entry| entry.id == reserve.charged);
            let Some(entry) = entry else { continue };
            entry.note_settled(*cost);

            // Another process learns of it once.
            let mut unforeseen = Some(cost.unforeseen);
            for (owner, difference) in reserve.corrections(cost.cost) {
                let change = Correction { now, difference, unforeseen: unforeseen.take() };
                entry.correct(&owner, change, self.journal.as_ref());
            }
        }
    }
}

/// A change of what one request was charged.
#[derive(Clone, Copy)]
struct Correction {
    now: Instant,
    difference: Difference,
    /// The cost that the rule learns from, at the end of the request.
    unforeseen: Option<u64>,
}

impl ChainSlot {
    /// Changes what a request was charged, and tells another process of it. A client that owes then may
    /// be banned.
    fn correct(
        &mut self,
        owner: &Owner,
        change: Correction,
        journal: Option<&Journal>,
    ) -> Option<Settled> {
        let Correction { now, difference, unforeseen } = change;
        let settled = self.slot.settle(now, owner, difference)?;
        let Settled { key_slot, receipt, .. } = settled;
        if let Difference::More(_) = difference
            && self.bans.is_some()
        {
            self.ban_debtor(owner.key, key_slot, now, journal);
        }
        if let Some(journal) = journal
            && let Some(owner) = self.slot.exported(key_slot)
        {
            let settlement = LateSettlement { now, receipt, difference, unforeseen };
            journal.settled(self.id, owner, settlement);
        }
        Some(settled)
    }

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

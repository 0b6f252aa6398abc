//! Moving a slot's states to another process: the parts of the export, and the import of a state.

use super::{
    Slot as _,
    limiter_slot::{LimiterSlot, States},
};
use crate::flow::{
    decision::Key,
    keyed::{KeySlot, Lookup},
    limiter::Evictable,
    time::Instant,
    transfer::{Exporting, LateChange, StateOwner, StatePart},
};

/// The most states to export under one lock.
const MAX_STATES: u32 = 128;

/// The most numbers of states to export under one lock, but for the last state: it is exported
/// whole. A message has room for over a hundred times as many, and takes less than a millisecond.
const MAX_NUMBERS: usize = 16 * 1024;

impl<F: Evictable> LimiterSlot<F> {
    /// Takes over the state of these numbers. Returns whether they are one.
    pub(super) fn import_state(&mut self, owner: StateOwner, numbers: &[u64]) -> bool {
        let Some(state) = self.limiter.import(numbers) else { return false };

        match (&mut self.states, owner) {
            (States::One(one), StateOwner::All) => *one = state,
            (States::Keyed { table, .. }, StateOwner::All) => {
                *table.get_mut(KeySlot::Shared) = state;
            }
            (States::Keyed { table, .. }, StateOwner::Key(high, low)) => {
                let key = u128::from(high) << 64 | u128::from(low);
                return table.import_client(key, state);
            }
            (States::Keyed { table, .. }, StateOwner::Overflow(at)) => {
                let Some(key_slot) = StateOwner::overflow(at) else { return false };
                *table.get_mut(key_slot) = state;
            }
            (States::One(_), StateOwner::Key(..) | StateOwner::Overflow(_)) => return false,
        }
        true
    }

    /// Exports the state that all share, and those that share overflow states.
    pub(super) fn export_others(&self, next: u32, into: &mut Vec<StatePart>) -> Exporting {
        let shared = core::iter::once((StateOwner::All, self.states.shared()));
        let States::Keyed { table, .. } = &self.states else {
            self.export_some(shared, into);
            self.export_clock(into);
            return Exporting::Done;
        };
        let overflows = (0..).map(StateOwner::Overflow).zip(table.overflows());
        match self.export_some(shared.chain(overflows).skip(next as usize), into) {
            0 => Exporting::Clients(0),
            exported => Exporting::Others(next + exported),
        }
    }

    pub(super) fn export_clients(&self, next: u32, into: &mut Vec<StatePart>) -> Exporting {
        let States::Keyed { table, .. } = &self.states else { return Exporting::Done };
        let clients = (next..table.len()).map(|at| {
            let (key, state) = table.client(at);
            (StateOwner::of_key(key), state)
        });
        let next = next + self.export_some(clients, into);
        if next < table.len() {
            return Exporting::Clients(next);
        }
        into.push(StatePart::Hand(table.hand()));
        self.export_clock(into);
        Exporting::Summary(0)
    }

    /// Exports the first of these states. Returns how many.
    fn export_some<'s>(
        &self,
        states: impl Iterator<Item = (StateOwner, &'s F::State)>,
        into: &mut Vec<StatePart>,
    ) -> u32
    where
        F::State: 's,
    {
        let mut exported = 0;
        let mut numbers = 0;
        for (owner, state) in states {
            let state = self.limiter.export(state);
            numbers += state.len();
            into.push(StatePart::State(owner, state));
            exported += 1;
            if exported >= MAX_STATES || numbers >= MAX_NUMBERS {
                break;
            }
        }
        exported
    }

    pub(super) fn export_clock(&self, into: &mut Vec<StatePart>) {
        if let Some(limiter) = self.limiter.syncs() {
            let (offset, least) = limiter.clock().numbers();
            into.push(StatePart::StoreClock(offset, least));
        }
    }

    /// Returns where a change belongs. A charge and its settlement give its client a place; a release
    /// does not.
    pub(super) fn key_slot(
        &mut self,
        now: Instant,
        owner: StateOwner,
        change: LateChange,
    ) -> Option<KeySlot> {
        match (&self.states, owner) {
            (States::One(_), _) | (_, StateOwner::All) => Some(KeySlot::Shared),
            (States::Keyed { .. }, StateOwner::Overflow(at)) => StateOwner::overflow(at),
            (States::Keyed { .. }, StateOwner::Key(high, low)) => {
                let key = Key::Of(u128::from(high) << 64 | u128::from(low));
                self.prepare(now, key);
                let lookup = self.find(now, key);
                match (lookup, change) {
                    (_, LateChange::Charge { .. } | LateChange::Settle { .. }) => {
                        Some(self.occupy(now, lookup))
                    }
                    (Lookup::At(key_slot), _) => Some(key_slot),
                    (Lookup::New { .. }, _) => None,
                }
            }
        }
    }
}

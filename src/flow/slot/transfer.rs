//! How a slot's state moves to another process.

use super::{
    Retune as _, Transfers,
    limiter_slot::{LimiterSlot, States},
    policy::PolicyAt,
};
use crate::flow::{
    decision::Key,
    keyed::{KeySlot, Lookup},
    limiter::{Evictable, Times},
    shared::StoreClock,
    time::Instant,
    transfer::{Exporting, LateChange, StateOwner, StatePart},
};

/// The most states to export under one lock.
const MAX_STATES: u32 = 128;

/// The most numbers of states to export under one lock, but for the last state: it is exported
/// whole. A message has room for over a hundred times as many, and takes less than a millisecond.
const MAX_NUMBERS: usize = 16 * 1024;

impl<F: Evictable> Transfers for LimiterSlot<F> {
    fn export(&mut self, now: Instant, into: &mut Vec<StatePart>) -> bool {
        match self.exporting {
            Exporting::Nothing => {
                while self.catch_up(now) {}
                self.exporting = Exporting::Others(0);
            }
            Exporting::Others(next) => self.exporting = self.export_others(next, into),
            Exporting::Clients(next) => self.exporting = self.export_clients(next, into),
            Exporting::Summary(next) => {
                let policy = PolicyAt { limiter: &self.limiter, now };
                let States::Keyed { table, .. } = &self.states else {
                    self.exporting = Exporting::Done;
                    return false;
                };
                let (used, more, cells) = table.summary(next, &policy);
                if !used.is_empty() {
                    into.push(StatePart::Summary { cells, used });
                }
                self.exporting = more.map_or(Exporting::Done, Exporting::Summary);
            }
            Exporting::Done => {}
        }
        self.exporting != Exporting::Done
    }

    fn end_export(&mut self) {
        self.exporting = Exporting::Nothing;
    }

    fn exported(&self, key_slot: KeySlot) -> Option<StateOwner> {
        if !self.exporting.has(key_slot) {
            return None;
        }
        Some(match (key_slot, &self.states) {
            (KeySlot::Own(at), States::Keyed { table, .. }) => StateOwner::of_key(table.key_of(at)),
            (KeySlot::Overflow(at), _) => StateOwner::Overflow(at),
            (KeySlot::Shared | KeySlot::Own(_), _) => StateOwner::All,
        })
    }

    fn import(&mut self, now: Instant, part: StatePart) -> bool {
        match part {
            StatePart::State(owner, numbers) => {
                let Some(state) = self.limiter.import(&numbers) else { return false };
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
                    (States::One(_), StateOwner::Key(..) | StateOwner::Overflow(_)) => {
                        return false;
                    }
                }
                true
            }
            StatePart::Summary { cells, used } => {
                let work = self
                    .on_table(now, |table, policy, _| table.import_summary(cells, &used, policy));
                work.unwrap_or(false)
            }
            StatePart::Hand(hand) => {
                self.on_table(now, |table, _, _| table.set_hand(hand)).is_some()
            }
            StatePart::StoreClock(offset, least) => match self.limiter.syncs_mut() {
                Some(limiter) => {
                    limiter.set_clock(StoreClock::of_numbers(offset, least));
                    true
                }
                None => false,
            },
        }
    }

    fn apply(&mut self, now: Instant, owner: StateOwner, change: LateChange) {
        let Some(key_slot) = self.key_slot(now, owner, change) else { return };
        self.refresh(key_slot);
        let state = self.states.get_mut(key_slot);
        match change {
            LateChange::Charge { own, start, cost, .. } => {
                let times = Times { now, own: own.max(now), start: start.max(now) };
                self.limiter.charge_elsewhere(state, times, cost);
            }
            LateChange::Release { start, outcome, token, cost, .. } => {
                let end = LateChange::end(now, start, outcome, token);
                if let Some(limiter) = self.limiter.end_of_request() {
                    limiter.release(state, &end, cost);
                }
            }
            LateChange::Leave { start, .. } => {
                if let Some(limiter) = self.limiter.spaces() {
                    limiter.abandon(state, start, now);
                }
            }
            LateChange::Abandon { cost } => self.limiter.abandon(state, cost),
            // The chain's.
            LateChange::Lent => {}
        }
    }
}

impl<F: Evictable> LimiterSlot<F> {
    /// Exports the state that all share, and those that share overflow states.
    fn export_others(&self, next: u32, into: &mut Vec<StatePart>) -> Exporting {
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

    fn export_clients(&self, next: u32, into: &mut Vec<StatePart>) -> Exporting {
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

    fn export_clock(&self, into: &mut Vec<StatePart>) {
        if let Some(limiter) = self.limiter.syncs() {
            let (offset, least) = limiter.clock().numbers();
            into.push(StatePart::StoreClock(offset, least));
        }
    }

    /// Returns where a change belongs. A charge gives its client a place; a release does not.
    fn key_slot(&mut self, now: Instant, owner: StateOwner, change: LateChange) -> Option<KeySlot> {
        match (&self.states, owner) {
            (States::One(_), _) | (_, StateOwner::All) => Some(KeySlot::Shared),
            (States::Keyed { .. }, StateOwner::Overflow(at)) => StateOwner::overflow(at),
            (States::Keyed { .. }, StateOwner::Key(high, low)) => {
                let key = Key::Of(u128::from(high) << 64 | u128::from(low));
                self.prepare(now, key);
                let lookup = self.find(now, key);
                match (lookup, change) {
                    (_, LateChange::Charge { .. }) => Some(self.occupy(now, lookup)),
                    (Lookup::At(key_slot), _) => Some(key_slot),
                    (Lookup::New { .. }, _) => None,
                }
            }
        }
    }
}

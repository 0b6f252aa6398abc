//! How a slot syncs with other gateways.

use super::{
    Retune as _, Sync,
    limiter_slot::{LimiterSlot, States},
};
use crate::flow::{
    decision::Key,
    keyed::{KeySlot, Lookup, OVERFLOWS},
    limiter::Evictable,
    shared::{Delta, Numbers, RemoteState, RoundTrip, StateName},
    time::Instant,
};

/// States to read in one call, most of which are unchanged: a few microseconds under the gate's
/// lock.
const READ_LIMIT: u32 = 512;

impl<F: Evictable> Sync for LimiterSlot<F> {
    fn collect(&mut self, from: u32, most: usize, into: &mut Vec<Delta>) -> Option<u32> {
        self.limiter.syncs()?;
        let to = from.saturating_add(READ_LIMIT);
        for at in from..to {
            if into.len() >= most {
                return Some(at);
            }
            let (key_slot, name) = self.states.nth(at)?;
            self.refresh(key_slot);
            let taken = self.limiter.syncs()?.take(self.states.get_mut(key_slot));
            into.extend(taken.map(|(cost, numbers)| Delta { name, cost, numbers }));
        }
        Some(to)
    }

    fn adopt(&mut self, trip: RoundTrip, states: &[RemoteState]) -> bool {
        let now = trip.came;
        let Some(limiter) = self.limiter.syncs_mut() else { return false };
        let (clock, has_forgotten) = limiter.clock().learn(trip);
        limiter.set_clock(clock);
        if has_forgotten {
            self.states.forget(self.limiter.fresh());
        }
        for RemoteState { name, numbers } in states {
            if let Some(key_slot) = self.slot_of(now, *name, numbers) {
                let state = self.states.get_mut(key_slot);
                if let Some(limiter) = self.limiter.syncs() {
                    limiter.adopt(state, numbers, now);
                }
            }
        }
        has_forgotten
    }
}

impl<F: Evictable> LimiterSlot<F> {
    /// Returns the place of a state by its name, or a new one. `None` if there is no room: then the
    /// client's usage is remembered, so that clients of other gateways take no place from those of
    /// this one.
    fn slot_of(&mut self, now: Instant, name: StateName, numbers: &Numbers) -> Option<KeySlot> {
        match (&self.states, name) {
            (_, StateName::All) => Some(KeySlot::Shared),
            (States::One(_), StateName::Key(_) | StateName::Overflow(_)) => None,
            (States::Keyed { .. }, StateName::Overflow(at)) => {
                (at < OVERFLOWS).then_some(KeySlot::Overflow(at))
            }
            (States::Keyed { .. }, StateName::Key(key)) => {
                self.prepare(now, Key::Of(key));
                match self.find(now, Key::Of(key)) {
                    Lookup::At(KeySlot::Overflow(_)) => None,
                    lookup @ (Lookup::At(_) | Lookup::New { .. }) => {
                        let is_remembered = self.remember(now, lookup, numbers);
                        (!is_remembered).then(|| self.occupy(now, lookup))
                    }
                }
            }
        }
    }

    /// Remembers the store's usage of a client that would take another's place. Returns whether it
    /// did.
    fn remember(&mut self, now: Instant, lookup: Lookup, numbers: &Numbers) -> bool {
        let remembered = self.on_table(now, |table, policy, _| {
            let newcomer = table.newcomer_mut(lookup, policy)?;
            policy.limiter.syncs()?.adopt(newcomer, numbers, now);
            table.remember(lookup, policy);
            Some(())
        });
        remembered.flatten().is_some()
    }
}

impl<S: Clone> States<S> {
    fn forget(&mut self, fresh: S) {
        match self {
            Self::One(state) => *state = fresh,
            Self::Keyed { table, .. } => table.forget(),
        }
    }

    /// Returns the place of the state of this number, and its name.
    fn nth(&self, at: u32) -> Option<(KeySlot, StateName)> {
        match self {
            Self::One(_) => (at == 0).then_some((KeySlot::Shared, StateName::All)),
            Self::Keyed { table, .. } => table.nth(at),
        }
    }
}

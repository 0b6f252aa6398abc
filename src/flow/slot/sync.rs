//! The states of a slot under the names that gateways share.

use super::{
    Slot as _,
    limiter_slot::{LimiterSlot, States},
};
use crate::flow::{
    decision::Key,
    keyed::{KeySlot, Lookup, OVERFLOWS},
    limiter::Evictable,
    shared::{Numbers, StateName},
    time::Instant,
};

impl<F: Evictable> LimiterSlot<F> {
    /// Returns the place of a state by its name, or a new one. `None` if there is no room: then the
    /// client's usage is remembered, so that clients of other gateways take no place from those of
    /// this one.
    pub(super) fn slot_of(
        &mut self,
        now: Instant,
        name: StateName,
        numbers: &Numbers,
    ) -> Option<KeySlot> {
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
    pub(super) fn forget(&mut self, fresh: S) {
        match self {
            Self::One(state) => *state = fresh,
            Self::Keyed { table, .. } => table.forget(),
        }
    }

    /// Returns the place of the state of this number, and its name.
    pub(super) fn nth(&self, at: u32) -> Option<(KeySlot, StateName)> {
        match self {
            Self::One(_) => (at == 0).then_some((KeySlot::Shared, StateName::All)),
            Self::Keyed { table, .. } => table.nth(at),
        }
    }
}

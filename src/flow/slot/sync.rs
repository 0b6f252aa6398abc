//! How a slot takes part when gateways sync states.

use super::{
    Retune as _, Sync,
    limiter_slot::{LimiterSlot, States},
};
use crate::flow::{
    claim::Key,
    keyed::{KeySlot, Lookup, OVERFLOWS},
    shared::{Delta, Numbers, RemoteState, RoundTrip, Whose},
    time::Instant,
    traits::Evictable,
};

/// States that are looked at in one call, most of which have nothing to tell: a few
/// microseconds of the gate's lock.
const GLANCE: u32 = 512;

impl<F: Evictable> Sync for LimiterSlot<F> {
    fn collect(&mut self, from: u32, most: usize, into: &mut Vec<Delta>) -> Option<u32> {
        self.limiter.syncs()?;
        let to = from.saturating_add(GLANCE);
        for at in from..to {
            if into.len() >= most {
                return Some(at);
            }
            let (seat, whose) = self.states.nth(at)?;
            self.prepare_seat(seat);
            let taken = self.limiter.syncs()?.take(self.states.get_mut(seat));
            into.extend(taken.map(|(cost, numbers)| Delta { whose, cost, numbers }));
        }
        Some(to)
    }

    fn adopt(&mut self, way: RoundTrip, states: &[RemoteState]) -> bool {
        let now = way.came;
        let Some(limiter) = self.limiter.syncs_mut() else { return false };
        let (clock, has_forgotten) = limiter.clock().learn(way);
        limiter.set_clock(clock);
        if has_forgotten {
            self.states.forget(self.limiter.fresh());
        }
        for RemoteState { whose, numbers } in states {
            if let Some(seat) = self.seat_of(now, *whose, numbers) {
                let state = self.states.get_mut(seat);
                if let Some(limiter) = self.limiter.syncs() {
                    limiter.adopt(state, numbers, now);
                }
            }
        }
        has_forgotten
    }
}

impl<F: Evictable> LimiterSlot<F> {
    /// Returns where the state is kept, or will be, that gateways know by that name. `None` if
    /// there is no room for it: what a client has used is remembered then, so that those who come
    /// elsewhere take no place from those who come here.
    fn seat_of(&mut self, now: Instant, whose: Whose, numbers: &Numbers) -> Option<KeySlot> {
        match (&self.states, whose) {
            (_, Whose::All) => Some(KeySlot::Shared),
            (States::One(_), Whose::Key(_) | Whose::Overflow(_)) => None,
            (States::Keyed { .. }, Whose::Overflow(at)) => {
                (at < OVERFLOWS).then_some(KeySlot::Overflow(at))
            }
            (States::Keyed { .. }, Whose::Key(key)) => {
                self.prepare(now, Key::Of(key));
                match self.find(now, Key::Of(key)) {
                    Lookup::At(KeySlot::Overflow(_)) => None,
                    place @ (Lookup::At(_) | Lookup::New { .. }) => {
                        let is_remembered = self.remember(now, place, numbers);
                        (!is_remembered).then(|| self.take_seat(now, place))
                    }
                }
            }
        }
    }

    /// Remembers what the client at `place` was told to have used, if it has no place and would
    /// take another's. Returns whether it has none.
    fn remember(&mut self, now: Instant, place: Lookup, numbers: &Numbers) -> bool {
        let remembered = self.on_table(now, |table, judge, _| {
            let guest = table.guest_mut(place, judge)?;
            judge.limiter.syncs()?.adopt(guest, numbers, now);
            table.remember(place, judge);
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

    /// Returns where the state of this number is kept, and whose it is.
    fn nth(&self, at: u32) -> Option<(KeySlot, Whose)> {
        match self {
            Self::One(_) => (at == 0).then_some((KeySlot::Shared, Whose::All)),
            Self::Keyed { table, .. } => table.nth(at),
        }
    }
}

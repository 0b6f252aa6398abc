//! What a slot tells other gateways of its states, and takes over from them.

use super::{Formula, Key, Slot as _, Stage, States};
use crate::flow::{
    exchange::{Delta, Numbers, RoundTrip, Told, Whose},
    keyed::{OVERFLOWS, Place, Seat},
    time::Instant,
};

/// States that are looked at in one call, most of which have nothing to tell: a few
/// microseconds of the gate's lock.
const GLANCE: u32 = 512;

impl<F: Formula> Stage<F> {
    pub(super) fn collect_from(
        &mut self,
        from: u32,
        most: usize,
        into: &mut Vec<Delta>,
    ) -> Option<u32> {
        let to = from.saturating_add(GLANCE);
        for at in from..to {
            if into.len() >= most {
                return Some(at);
            }
            let (seat, whose) = self.states.nth(at)?;
            self.prepare_seat(seat);
            let taken = self.formula.take(self.states.get_mut(seat));
            into.extend(taken.map(|(cost, numbers)| Delta { whose, cost, numbers }));
        }
        Some(to)
    }

    pub(super) fn adopt_all(&mut self, way: RoundTrip, told: &[Told]) -> bool {
        let now = way.came;
        let has_forgotten = self.formula.set_clock(way);
        if has_forgotten {
            self.states.forget(self.formula.fresh());
        }
        for Told { whose, numbers } in told {
            if let Some(seat) = self.seat_of(now, *whose, numbers) {
                self.formula.adopt(self.states.get_mut(seat), numbers, now);
            }
        }
        has_forgotten
    }

    /// Returns where the state is kept, or will be, that gateways know by that name. `None` if
    /// there is no room for it: what a client has used is remembered then, so that those who come
    /// elsewhere take no place from those who come here.
    fn seat_of(&mut self, now: Instant, whose: Whose, numbers: &Numbers) -> Option<Seat> {
        match (&self.states, whose) {
            (_, Whose::All) => Some(Seat::Shared),
            (States::One(_), Whose::Key(_) | Whose::Overflow(_)) => None,
            (States::Keyed { .. }, Whose::Overflow(at)) => {
                (at < OVERFLOWS).then_some(Seat::Overflow(at))
            }
            (States::Keyed { .. }, Whose::Key(key)) => {
                self.prepare(now, Key::Of(key));
                match self.find(now, Key::Of(key)) {
                    Place::At(Seat::Overflow(_)) => None,
                    place @ (Place::At(_) | Place::New { .. }) => {
                        let is_remembered = self.remember(now, place, numbers);
                        (!is_remembered).then(|| self.take_seat(now, place))
                    }
                }
            }
        }
    }

    /// Remembers what the client at `place` was told to have used, if it has no place and would
    /// take another's. Returns whether it has none.
    fn remember(&mut self, now: Instant, place: Place, numbers: &Numbers) -> bool {
        let remembered = self.on_table(now, |table, judge, _| {
            let guest = table.guest_mut(place, judge)?;
            judge.formula.adopt(guest, numbers, now);
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
    fn nth(&self, at: u32) -> Option<(Seat, Whose)> {
        match self {
            Self::One(_) => (at == 0).then_some((Seat::Shared, Whose::All)),
            Self::Keyed { table, .. } => table.nth(at),
        }
    }
}

//! Requests that a slot let pass and that are not decided yet, as somebody else is
//! still being asked about them.
//!
//! They are in no state, so that one which is rejected elsewhere leaves nothing to undo.
//! Whoever is decided meanwhile must fit beside them, which is tried on a copy of the
//! state. So each of them still fits when it is charged.

use super::{
    claim::Key,
    keyed::{KeySlot, Lookup},
};

/// The identity of a reservation in its gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ticket(pub(super) u64);

/// What a slot would charge for a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) ticket: Ticket,
    pub(super) key: Key,
    /// Where its state lay when it was judged.
    pub(super) place: Lookup,
    pub(super) cost: u64,
}

/// What a slot would charge for all of them.
#[derive(Debug, Default)]
pub(super) struct Pendings(Vec<Pending>);

impl Pendings {
    /// Returns whether there are none: the usual case.
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn add(&mut self, pending: Pending) {
        self.0.push(pending);
    }

    /// Forgets what that reservation would be charged.
    pub(super) fn remove(&mut self, ticket: Ticket) {
        if let Some(at) = self.0.iter().position(|pending| pending.ticket == ticket) {
            self.0.swap_remove(at);
        }
    }

    /// Returns the costs that are to be charged where that of a request with `key`,
    /// judged at `place`, is.
    pub(super) fn of(&self, key: Key, place: Lookup) -> impl Iterator<Item = u64> + Clone {
        let together = self.0.iter().filter(move |pending| {
            let is_same_client = match pending.key {
                Key::Of(_) => pending.key == key,
                Key::Shared | Key::Missing | Key::Duplicate => false,
            };
            is_same_client || shares(pending.place) == shares(place) && shares(place).is_some()
        });
        together.map(|pending| pending.cost)
    }
}

/// Returns the state that several clients have, if that is what `place` rests on.
fn shares(place: Lookup) -> Option<KeySlot> {
    match place {
        Lookup::At(KeySlot::Own(_)) | Lookup::New { .. } => None,
        Lookup::At(seat) => Some(seat),
    }
}

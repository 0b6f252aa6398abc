//! Requests that passed here while the store is still asked about them.
//!
//! They are charged to no state, so a rejection elsewhere has nothing to undo. Other requests must
//! fit beside them, which is tried on a copy of the state; so each still fits when it is charged.

use super::{
    decision::Key,
    keyed::{KeySlot, Lookup},
};

/// The identity of a reservation in its gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ticket(pub(super) u64);

/// One slot's charge for a reserved request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) ticket: Ticket,
    pub(super) key: Key,
    /// Where its state was when it was checked.
    pub(super) lookup: Lookup,
    pub(super) cost: u64,
}

/// One slot's charges for all reserved requests.
#[derive(Debug, Default)]
pub(super) struct Pendings(Vec<Pending>);

impl Pendings {
    /// Returns whether there are none, which is usual.
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn add(&mut self, pending: Pending) {
        self.0.push(pending);
    }

    pub(super) fn remove(&mut self, ticket: Ticket) {
        if let Some(at) = self.0.iter().position(|pending| pending.ticket == ticket) {
            self.0.swap_remove(at);
        }
    }

    /// Returns the pending costs for the state that a request with `key`, found at `lookup`, uses.
    pub(super) fn of(&self, key: Key, lookup: Lookup) -> impl Iterator<Item = u64> + Clone {
        let together = self.0.iter().filter(move |pending| {
            let is_same_client = match pending.key {
                Key::Of(_) => pending.key == key,
                Key::Shared | Key::Missing | Key::Duplicate => false,
            };
            is_same_client || shares(pending.lookup) == shares(lookup) && shares(lookup).is_some()
        });
        together.map(|pending| pending.cost)
    }
}

/// Returns the state behind `lookup` if several clients share it.
fn shares(lookup: Lookup) -> Option<KeySlot> {
    match lookup {
        Lookup::At(KeySlot::Own(_)) | Lookup::New { .. } => None,
        Lookup::At(key_slot) => Some(key_slot),
    }
}

//! The parts of a rule's state.

use crate::flow::{
    keyed::{KeySlot, OVERFLOWS},
    time::Instant,
};
use serde::{Deserialize, Serialize};

/// A part of a rule's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StatePart {
    /// A state's numbers.
    State(StateOwner, Vec<u64>),
    /// Used cells of the summary of evicted clients, with their numbers; and the number of all.
    Summary {
        /// All cells, used or not.
        cells: u64,
        /// Position and usage.
        used: Vec<(u64, u64)>,
    },
    /// Where the search of a full table continues.
    Hand(u32),
    /// The clock of the store that syncs the rule: its offset, and the least time.
    StoreClock(i64, Instant),
}

/// Whose state it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StateOwner {
    /// Of all, or of all without a key.
    All,
    /// Of the client with this fingerprint, in halves: the high one first.
    Key(u64, u64),
    /// Of the clients that share this overflow state.
    Overflow(u32),
}

/// How far the export of a slot is. Clients come before the summary: a client that is evicted
/// meanwhile is exported as a client. Overflow states come before clients: a client that gets a
/// state of its own meanwhile starts with what the other process has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::flow) enum Exporting {
    /// It has not begun.
    #[default]
    Nothing,
    /// So many shared states are exported: that of all, then the overflow states.
    Others(u32),
    /// All of those are, and clients before this one.
    Clients(u32),
    /// All states are, and the summary's cells before this one.
    Summary(usize),
    /// Everything is.
    Done,
}

impl Exporting {
    /// Returns whether the state at this key slot is exported.
    pub(in crate::flow) const fn has(self, key_slot: KeySlot) -> bool {
        match (self, key_slot) {
            (Self::Nothing, _) | (Self::Others(_), KeySlot::Own(_)) => false,
            (Self::Others(next), KeySlot::Shared) => next > 0,
            (Self::Others(next), KeySlot::Overflow(at)) => at + 1 < next,
            (Self::Clients(next), KeySlot::Own(at)) => at < next,
            (Self::Clients(_), KeySlot::Shared | KeySlot::Overflow(_))
            | (Self::Summary(_) | Self::Done, _) => true,
        }
    }
}

impl StateOwner {
    /// Returns the client with this fingerprint.
    pub(in crate::flow) const fn of_key(key: u128) -> Self {
        let [high, low] = super::halves(key);
        Self::Key(high, low)
    }

    /// Returns the key slot of an overflow state, if there are so many.
    pub(in crate::flow) fn overflow(at: u32) -> Option<KeySlot> {
        (at < OVERFLOWS).then_some(KeySlot::Overflow(at))
    }
}

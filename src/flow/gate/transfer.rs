//! Moving a gate's state to another process.

use super::Gate;
use crate::flow::{
    claim::SlotId,
    time::Instant,
    transfer::{GateExport, Journal, LateChange, StateOwner, StatePart},
};

/// The slots of an imported gate, by their numbers in the old process.
#[derive(Clone, Debug, Default)]
pub struct ImportedSlots(Vec<(u32, SlotId)>);

impl Gate {
    /// Begins to export: returns the rules, and sends `journal` each change to a state that was
    /// exported. No edit may come until [`end_export`](Self::end_export).
    pub fn begin_export(&self, journal: Journal) -> GateExport {
        // No state may be of an earlier edit.
        while self.catch_up() {}
        self.lock().begin_export(journal)
    }

    /// Exports the next parts of the state of the slot with this number. Returns whether there are
    /// more. It holds the lock for some ten microseconds.
    pub fn export(&self, slot: u32, into: &mut Vec<StatePart>) -> bool {
        self.lock().export(SlotId(slot), into)
    }

    /// Stops sending changes, because no process takes over.
    pub fn end_export(&self) {
        self.lock().end_export();
    }

    /// Installs the rules of another process's gate in this new one, to import their state.
    pub fn import(&self, export: &GateExport, now: Instant) -> ImportedSlots {
        let installed = self.install(&export.rules(), now);
        self.lock().set_lent(export.has_lent);
        let slots = installed.flow.into_iter().chain(installed.breaker).chain(installed.pacing);
        let numbers = export.rules.iter().map(|(number, _)| *number);
        ImportedSlots(numbers.zip(slots).collect())
    }

    /// Imports a part of the state of `slot`. Returns whether it is one; else nothing changes.
    pub fn import_part(&self, slot: SlotId, now: Instant, part: StatePart) -> bool {
        self.lock().import(slot, now, part)
    }

    /// Applies what another process sends.
    pub fn apply(&self, slot: SlotId, owner: StateOwner, change: LateChange) {
        self.lock().apply(slot, owner, change);
    }
}

impl ImportedSlots {
    /// Returns the slot that had this number in the old process.
    pub fn find(&self, number: u32) -> Option<SlotId> {
        self.0.iter().find(|(other, _)| *other == number).map(|(_, slot)| *slot)
    }
}

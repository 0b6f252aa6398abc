//! A chain's state for another process.

use super::{Chain, slots::Wanted};
use crate::flow::{
    decision::SlotId,
    time::Instant,
    transfer::{ExportedRule, GateExport, Journal, LateChange, StateOwner, StatePart},
};

impl Chain {
    /// Begins to send changes to `journal`. Returns the rules.
    pub(in crate::flow) fn begin_export(&mut self, journal: Journal) -> GateExport {
        self.end_export();
        self.journal = Some(journal);
        let rules = self.slots.iter().map(|entry| {
            let rule = match &entry.wanted {
                Wanted::Flow(rule) => ExportedRule::Flow(rule.clone()),
                Wanted::Breaker(config) => ExportedRule::Breaker(config.clone()),
                Wanted::Pacing(config) => ExportedRule::Pacing(config.clone()),
            };
            (entry.id.0, rule)
        });
        GateExport { rules: rules.collect(), has_lent: self.has_lent }
    }

    /// Exports parts of a slot. Returns whether there are more.
    pub(in crate::flow) fn export(&mut self, slot: SlotId, into: &mut Vec<StatePart>) -> bool {
        let now = self.latest;
        self.slot_mut(slot).is_some_and(|slot| slot.export(now, into))
    }

    /// Stops sending changes.
    pub(in crate::flow) fn end_export(&mut self) {
        self.journal = None;
        self.slots.iter_mut().for_each(|entry| entry.slot.end_export());
    }

    /// Takes a part of the slot's state. Returns whether it is one.
    pub(in crate::flow) fn import(&mut self, slot: SlotId, now: Instant, part: StatePart) -> bool {
        let now = self.clamp(now);
        self.slot_mut(slot).is_some_and(|slot| slot.import(now, part))
    }

    pub(in crate::flow) fn set_lent(&mut self, has_lent: bool) {
        self.has_lent |= has_lent;
    }

    /// Applies what another process sends.
    pub(in crate::flow) fn apply(&mut self, slot: SlotId, owner: StateOwner, change: LateChange) {
        if change == LateChange::Lent {
            return self.set_lent(true);
        }
        let now = self.clamp(change.now());
        if let Some(slot) = self.slot_mut(slot) {
            slot.apply(now, owner, change);
        }
    }
}

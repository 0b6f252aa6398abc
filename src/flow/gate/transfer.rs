//! Moving a gate's state to another process.

use super::{Gate, chain_slot::ChainSlot};
use crate::flow::{
    bans::Bans,
    decision::SlotId,
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

        let mut chain = self.lock();
        chain.slots.iter_mut().for_each(|entry| entry.slot.end_export());
        chain.journal = Some(journal);
        let rules = chain.slots.iter().map(|entry| (entry.id.number, entry.rule.clone()));
        GateExport { rules: rules.collect(), has_lent: chain.has_lent }
    }

    /// Exports the next parts of the state of the slot with this number. Returns whether there are
    /// more. It holds the lock for at most 128 states, and fewer if they are large: the parts of one
    /// call have at most 16,384 numbers besides those of the last state.
    pub fn export(&self, slot: u32, into: &mut Vec<StatePart>) -> bool {
        let slot = SlotId { gate: self.number, number: slot };
        let export = self.with_slot(slot, Instant::EPOCH, |entry, now| {
            let has_more = entry.slot.export(now, into);
            if let Some(learned) = entry.learned.as_ref().filter(|_| !has_more) {
                into.push(StatePart::Learned(learned.export()));
            }
            if let Some(bans) = entry.bans.as_ref().filter(|_| !has_more) {
                export_bans(bans, now, into);
            }
            has_more
        });
        export.unwrap_or(false)
    }

    /// Stops sending changes, because no process takes over.
    pub fn end_export(&self) {
        let mut chain = self.lock();
        chain.journal = None;
        chain.slots.iter_mut().for_each(|entry| entry.slot.end_export());
    }

    /// Installs the rules of another process's gate in this new one, to import their state.
    pub fn import(&self, export: &GateExport, now: Instant) -> ImportedSlots {
        let installed = self.install(&export.rules(), now);
        self.lock().has_lent |= export.has_lent;
        let slots = installed.flow.into_iter().chain(installed.breaker).chain(installed.pacing);
        let numbers = export.rules.iter().map(|(number, _)| *number);
        ImportedSlots(numbers.zip(slots).collect())
    }

    /// Imports a part of the state of `slot`. Returns whether it is one; else nothing changes.
    pub fn import_part(&self, slot: SlotId, now: Instant, part: StatePart) -> bool {
        let import = self.with_slot(slot, now, |entry, now| match (part, &mut entry.learned) {
            (StatePart::Learned(samples), Some(learned)) => {
                for sample in samples {
                    learned.add(sample);
                }
                true
            }
            (StatePart::Bans(list), _) => {
                for (owner, end) in list {
                    entry.import_ban(owner, now, end);
                }
                entry.bans.is_some()
            }
            (part, _) => entry.slot.import(now, part),
        });
        import.unwrap_or(false)
    }

    /// Applies a change that another process sends.
    pub fn apply(&self, slot: SlotId, owner: StateOwner, change: LateChange) {
        if change == LateChange::Lent {
            self.lock().has_lent = true;
            return;
        }
        self.with_turns(|chain| {
            let now = chain.clamp(change.now());
            let Some(entry) = chain.slot_mut(slot) else { return };
            if let (LateChange::Settle { unforeseen: Some(unforeseen), .. }, Some(learned)) =
                (change, &mut entry.learned)
            {
                learned.add(unforeseen);
            }
            if let LateChange::Ban { end, .. } = change {
                return entry.import_ban(owner, now, end);
            }
            entry.slot.apply(now, owner, change);
            if entry.queue.is_some() {
                chain.give_all_turns();
            }
        });
    }
}

impl ChainSlot {
    /// Bans a client that another process has banned.
    fn import_ban(&mut self, owner: StateOwner, now: Instant, end: Instant) {
        if let Some((bans, key)) = self.bans.as_mut().zip(owner.key()) {
            bans.begin(key, now, end);
        }
    }
}

/// Adds the bans in parts of a bounded size.
fn export_bans(bans: &Bans, now: Instant, into: &mut Vec<StatePart>) {
    const IN_A_PART: usize = 4096;
    let owned = |(key, end)| Some((StateOwner::of(key)?, end));
    let all: Vec<_> = bans.in_force(now).filter_map(owned).collect();
    into.extend(all.chunks(IN_A_PART).map(|part| StatePart::Bans(part.to_vec())));
}

impl ImportedSlots {
    /// Returns the slot that had this number in the old process.
    pub fn find(&self, number: u32) -> Option<SlotId> {
        self.0.iter().find(|(other, _)| *other == number).map(|(_, slot)| *slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{
        Algorithm, Claim, Key,
        limiter::sliding_log,
        timeline::{keyed, rate},
    };
    use core::time::Duration;
    use std::sync::Arc;

    /// Asks for a client at so many instants from `from` nanoseconds on. Returns how many requests
    /// pass.
    fn passing(gate: &Arc<Gate>, slot: SlotId, client: u64, from: u64, requests: u64) -> usize {
        let key = Key::Of(u128::from(client) << 64 | 7);
        let claim = [Claim { slot, key, cost: 1, patience: Duration::ZERO, plan: None }];
        let at = |number| Instant::EPOCH + Duration::from_nanos(from + number);
        (0..requests).filter(|number| gate.enter(at(*number), &claim).is_ok()).count()
    }

    #[test]
    fn large_logs_are_exported_in_parts_of_a_bounded_size() {
        const CLIENTS: u64 = 70;
        let log = sliding_log::Config { rate: rate(1_000, 3_600_000) };
        let rules = keyed(Algorithm::SlidingLog(log), 100);
        let old = Arc::new(Gate::new(Instant::EPOCH));
        let slot = old.install(&rules, Instant::EPOCH).flow[0];
        for client in 0..CLIENTS {
            assert_eq!(passing(&old, slot, client, client * 1_000, 900), 900);
        }
        let (journal, _changes) = Journal::new();
        let export = old.begin_export(journal);
        let new = Arc::new(Gate::new(Instant::EPOCH));
        let slots = new.import(&export, Instant::EPOCH);
        let number = export.rules[0].0;
        let here = slots.find(number).unwrap();
        let mut all = 0;
        let mut has_more = true;
        while has_more {
            let mut parts = Vec::new();
            has_more = old.export(number, &mut parts);
            let numbers = parts.iter().map(|part| match part {
                StatePart::State(_, numbers) => numbers.len(),
                StatePart::Summary { .. }
                | StatePart::Hand(_)
                | StatePart::StoreClock(..)
                | StatePart::Learned(_)
                | StatePart::Bans(_) => 0,
            });
            let numbers: usize = numbers.sum();
            assert!(numbers < 16 * 1024 + 2 * 900, "{numbers}");
            all += numbers;
            for part in parts {
                assert!(new.import_part(here, Instant::EPOCH, part));
            }
        }
        assert_eq!(all, 70 * 2 * 900, "an instant and a cost for each request");
        for client in 0..CLIENTS {
            assert_eq!(passing(&new, here, client, 100_000, 200), 100);
        }
    }
}

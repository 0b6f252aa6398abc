//! The states of the gates on their way from one process to the next.

use super::{
    channel::{Channel, ChannelError},
    message::Handover,
};
use crate::flow::{
    Gate, ImportedSlots, Instant, WallOffset,
    calendar::Calendar,
    transfer::{
        GateExport, Journal, JournalReader, Late, LateChange, SlotRule, StateOwner, StatePart,
    },
};
use std::{collections::HashMap, sync::Arc};

/// Names of rules in a line of the log.
const MOST_NAMED: usize = 10;

/// Gates with another process's rules and states.
#[derive(Debug)]
pub(crate) struct IncomingState {
    now: Instant,
    wall: WallOffset,
    /// By their number.
    gates: Vec<IncomingGate>,
    /// The holds of the old process's requests: the cost in flight of each state that counts it.
    held: HashMap<(u32, u32, StateOwner), u64>,
    states: usize,
    /// Rules that this process does not know, as `route/slot`, or whose states it cannot read.
    unknown: Vec<String>,
}

#[derive(Debug)]
struct IncomingGate {
    route: Arc<str>,
    gate: Arc<Gate>,
    rules: Vec<(u32, SlotRule)>,
    slots: ImportedSlots,
}

impl IncomingState {
    pub(super) fn new(now: Instant, wall: WallOffset) -> Self {
        let gates = Vec::new();
        let held = HashMap::new();
        Self { now, wall, gates, held, states: 0, unknown: Vec::new() }
    }

    /// Adds a gate with rules, as far as they are known. `find` knows calendars by name.
    pub(super) fn add(
        &mut self,
        route: &str,
        rules: Vec<(u32, serde_json::Value)>,
        has_lent: bool,
        find: impl Fn(&str) -> Option<Calendar>,
    ) {
        let mut export = GateExport { rules: Vec::new(), has_lent };
        for (slot, rule) in rules {
            match serde_json::from_value(rule) {
                Ok(rule) => export.rules.push((slot, rule)),
                Err(error) => {
                    tracing::debug!(route, slot, %error, "an unknown rule");
                    self.unknown.push(format!("{route}/{slot}"));
                }
            }
        }
        export.resolve(find);

        // A gate that decides together with others needs a number of its own.
        let number = u32::try_from(self.gates.len() + 1).unwrap_or(u32::MAX);
        let gate = Gate::with_number(number, self.now);
        gate.set_wall(self.wall, self.now);
        let slots = gate.import(&export, self.now);

        let GateExport { rules, .. } = export;
        self.gates.push(IncomingGate { route: route.into(), gate: Arc::new(gate), rules, slots });
    }

    /// Adds parts of a state.
    pub(super) fn import(&mut self, number: u32, slot: u32, parts: Vec<StatePart>) {
        let Some(IncomingGate { route, gate, rules, slots }) = self.gates.get(number as usize)
        else {
            return;
        };
        let Some(here) = slots.find(slot) else { return };
        let rule = rules.iter().find(|(other, _)| *other == slot).map(|(_, rule)| rule);

        for part in parts {
            if let (StatePart::State(owner, numbers), Some(rule)) = (&part, rule) {
                self.states += 1;
                if rule.holds() {
                    self.held.insert((number, slot, *owner), rule.in_flight(numbers));
                }
            }
            if !gate.import_part(here, self.now, part) {
                let name = format!("{route}/{slot}");
                if !self.unknown.contains(&name) {
                    self.unknown.push(name);
                }
            }
        }
    }

    /// Applies what the old process sends.
    pub(super) fn apply(&mut self, changes: Vec<Late>) {
        for Late { gate: number, slot, owner, change } in changes {
            let Some(gate) = self.gates.get(number as usize) else { continue };
            let Some(here) = gate.slots.find(slot) else { continue };
            gate.gate.apply(here, owner, change);
            let rule = gate.rules.iter().find(|(other, _)| *other == slot);
            if !rule.is_some_and(|(_, rule)| rule.holds()) {
                continue;
            }
            let held = self.held.entry((number, slot, owner)).or_default();
            match change {
                LateChange::Charge { cost, .. } => *held = held.saturating_add(cost),
                LateChange::Release { cost, .. } => *held = held.saturating_sub(cost),
                LateChange::Abandon { .. } => *held = 0,
                LateChange::Settle { .. }
                | LateChange::Leave { .. }
                | LateChange::Ban { .. }
                | LateChange::Lent => {}
            }
        }
    }

    /// Ends what requests of the old process hold, after that has ended without a report.
    pub(super) fn abandon(&mut self) {
        for ((number, slot, owner), cost) in core::mem::take(&mut self.held) {
            if let Some(gate) = self.gates.get(number as usize)
                && let Some(here) = gate.slots.find(slot)
            {
                gate.gate.apply(here, owner, LateChange::Abandon { cost });
            }
        }
    }

    /// Returns the gates by route.
    pub(crate) fn gates(&self) -> HashMap<Arc<str>, Arc<Gate>> {
        let named = self.gates.iter();
        named.map(|gate| (Arc::clone(&gate.route), Arc::clone(&gate.gate))).collect()
    }

    /// Returns how many states there are, among them one for each client of a keyed rule.
    pub(crate) const fn states(&self) -> usize {
        self.states
    }

    /// Returns the names of what begins afresh because it is not known, if anything does.
    pub(crate) fn unknown(&self) -> Option<String> {
        let named = self.unknown.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>().join(", ");
        let more = self.unknown.len().saturating_sub(MOST_NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        (!self.unknown.is_empty()).then(|| format!("{named}{more}"))
    }
}

/// Changes in a message.
const BATCH: usize = 256;

/// The gates by their routes' names.
pub(crate) type Gates = Arc<Vec<(Arc<str>, Arc<Gate>)>>;

/// The export of some gates, which ends when it is dropped.
#[derive(Debug)]
pub(super) struct OutgoingState {
    gates: Gates,
    /// The last journal, so that changes do not end; none once the state is sent.
    journal: Option<Journal>,
    changes: JournalReader,
}

impl OutgoingState {
    /// Sends all states. Requests go on meanwhile: what they change is sent too.
    pub(super) fn send(gates: &Gates, channel: &Channel) -> Result<Self, ChannelError> {
        let (journal, changes) = Journal::new();
        let sent = Self { gates: Arc::clone(gates), journal: Some(journal), changes };
        for (number, (route, gate)) in (0..).zip(gates.iter()) {
            sent.send_gate(number, route, gate, channel)?;
        }
        channel.send(&Handover::Copied)?;
        Ok(sent)
    }

    fn send_gate(
        &self,
        number: u32,
        route: &str,
        gate: &Gate,
        channel: &Channel,
    ) -> Result<(), ChannelError> {
        let Some(journal) = &self.journal else { return Ok(()) };
        let GateExport { rules, has_lent } = gate.begin_export(journal.of(number));

        let slots: Vec<u32> = rules.iter().map(|(slot, _)| *slot).collect();
        let value = |(slot, rule): (u32, SlotRule)| Ok((slot, serde_json::to_value(rule)?));
        let rules = rules.into_iter().map(value).collect::<Result<_, _>>();
        let rules = rules.map_err(ChannelError::Encode)?;
        channel.send(&Handover::Gate { route: route.to_owned(), rules, has_lent })?;

        for slot in slots {
            let mut has_more = true;
            while has_more {
                let mut parts = Vec::new();
                has_more = gate.export(slot, &mut parts);
                if !parts.is_empty() {
                    channel.send(&Handover::Parts { gate: number, slot, parts })?;
                }
                self.send_changes(channel)?;
            }
        }
        Ok(())
    }

    /// Sends the changes so far.
    pub(super) fn send_changes(&self, channel: &Channel) -> Result<(), ChannelError> {
        while let Some(first) = self.changes.next() {
            self.send_batch(first, channel)?;
        }
        Ok(())
    }

    /// Returns whether more changed than could be sent.
    pub(super) fn is_lost(&self) -> bool {
        self.changes.is_lost()
    }

    /// Sends changes until the gates are no longer exported.
    pub(super) fn follow(&mut self, channel: &Channel) -> Result<(), ChannelError> {
        self.journal = None;
        while let Some(first) = self.changes.wait() {
            self.send_batch(first, channel)?;
        }
        channel.send(&Handover::Finished)
    }

    fn send_batch(&self, first: Late, channel: &Channel) -> Result<(), ChannelError> {
        let mut batch = vec![first];
        while batch.len() < BATCH
            && let Some(next) = self.changes.next()
        {
            batch.push(next);
        }
        channel.send(&Handover::Late(batch))
    }
}

impl Drop for OutgoingState {
    fn drop(&mut self) {
        end(&self.gates);
    }
}

/// Ends the export: no later change is sent.
pub(super) fn end(gates: &Gates) {
    gates.iter().for_each(|(_, gate)| gate.end_export());
}

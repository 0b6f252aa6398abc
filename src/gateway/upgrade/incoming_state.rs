//! The state of the old process's gates in the new one.

use crate::flow::{
    Gate, ImportedSlots, Instant, WallOffset,
    calendar::Calendar,
    transfer::{GateExport, Late, LateChange, SlotRule, StateOwner, StatePart},
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
    /// What requests of the old process hold: the cost in flight of each state that counts it.
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
                LateChange::Leave { .. } | LateChange::Lent => {}
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

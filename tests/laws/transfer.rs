//! A gate that moves to another process amid a day decides as one that stays.

use crate::{
    config,
    day::{MORNING, Step, all_days, key},
};
use core::time::Duration;
use flowgate::flow::{
    Claim, Gate, Instant, Outcome, Permit, Quota, Reason, Rules, SlotId,
    transfer::{
        GateExport, Journal, JournalReader, Late, LateChange, SlotRule, StateOwner, StatePart,
    },
};
use proptest::prelude::*;
use std::sync::Arc;

/// A gate and the slots of its rules.
struct Side {
    gate: Arc<Gate>,
    slots: Vec<SlotId>,
}

impl Side {
    fn new(rules: &Rules) -> Self {
        Self::of(Arc::new(Gate::new(MORNING)), rules, MORNING)
    }

    fn of(gate: Arc<Gate>, rules: &Rules, now: Instant) -> Self {
        let installed = gate.install(rules, now);
        let slots = installed.flow.into_iter().chain(installed.breaker).chain(installed.pacing);
        let slots = slots.collect();
        Self { gate, slots }
    }

    fn enter(
        &self,
        now: Instant,
        client: u8,
        cost: u64,
        patience: Duration,
    ) -> (Result<Permit, Reason>, Vec<Quota>) {
        let claim = |slot: &_| Claim { slot: *slot, key: key(client), cost, patience, plan: None };
        let claims: Vec<Claim> = self.slots.iter().map(claim).collect();
        match self.gate.enter(now, &claims) {
            Ok(admission) => (Ok(admission.permit), admission.report.quotas.to_vec()),
            Err(rejection) => (Err(rejection.reason), rejection.report.quotas.to_vec()),
        }
    }
}

/// A gate that stays, and one that moves.
struct Day {
    now: Instant,
    stays: Side,
    moves: Side,
    /// Of both, in the same order.
    live: Vec<(Permit, Permit)>,
    patience: Duration,
}

impl Day {
    fn new(rules: &Rules, patience: Duration) -> Self {
        Self {
            now: MORNING,
            stays: Side::new(rules),
            moves: Side::new(rules),
            live: Vec::new(),
            patience,
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Wait(nanos) => self.now = self.now + Duration::from_nanos(nanos),
            Step::End(which) if self.live.is_empty() => _ = which,
            Step::End(which) => {
                let (one, other) = self.live.swap_remove(which % self.live.len());
                let at = self.now;
                if which % 4 == 3 {
                    one.leave(at);
                    return other.leave(at);
                }
                let outcome = match which % 4 {
                    0 => Outcome::Cancelled,
                    1 => Outcome::Success { at },
                    _ => Outcome::Failure { at },
                };
                // A breaker may turn in the other process by what this one sends.
                _ = (one.finish(outcome), other.finish(outcome));
            }
            Step::Enter { client, cost } => {
                let patience = if client == 1 { self.patience } else { Duration::ZERO };
                let stays = self.stays.enter(self.now, client, cost, patience);
                let moves = self.moves.enter(self.now, client, cost, patience);
                assert_eq!(stays.1, moves.1, "at {:?}", self.now);
                match (stays.0, moves.0) {
                    (Ok(one), Ok(other)) => {
                        assert_eq!(one.start(), other.start());
                        self.live.push((one, other));
                    }
                    (Err(one), Err(other)) => assert_eq!(one, other),
                    (one, other) => assert_eq!(one.is_ok(), other.is_ok()),
                }
            }
        }
    }
}

/// As it comes out of the other end of a pipe.
fn sent<T: serde::Serialize + serde::de::DeserializeOwned>(value: &T) -> T {
    let text = serde_json::to_vec(value).expect("it is written");
    serde_json::from_slice(&text).expect("it is read")
}

/// The rules as another process reads them; it knows the calendars of `rules`.
fn received(export: &GateExport, rules: &Rules) -> GateExport {
    let rule = |(slot, rule): &(u32, SlotRule)| (*slot, sent(rule));
    let mut received =
        GateExport { rules: export.rules.iter().map(rule).collect(), has_lent: export.has_lent };
    let calendars = || rules.flow.iter().filter_map(|rule| rule.algorithm.calendar());
    received.resolve(|name| calendars().find(|calendar| calendar.name() == name).cloned());
    received
}

/// Applies what changed.
fn apply(changes: &JournalReader, gate: &Gate, slots: &flowgate::flow::ImportedSlots) {
    while let Some(late) = changes.next() {
        let Late { slot, owner, change, .. } = sent(&late);
        gate.apply(slots.find(slot).expect("a slot"), owner, change);
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_gate_that_moves_decides_as_one_that_stays(
        (rules, steps) in all_days(),
        before in 0..100_usize,
        patience in prop_oneof![Just(0), 1..2_000_000_000_u64],
    ) {
        let mut day = Day::new(&rules, Duration::from_nanos(patience));
        let mut steps = steps.into_iter();
        for step in steps.by_ref().take(before) {
            day.step(step);
        }
        let (journal, changes) = Journal::new();
        let export = day.moves.gate.begin_export(journal.of(0));
        let received = received(&export, &rules);
        let gate = Arc::new(Gate::new(MORNING));
        let moved = day.now;
        let slots = gate.import(&received, moved);
        for (slot, _) in &export.rules {
            let mut has_more = true;
            while has_more {
                let mut parts = Vec::new();
                has_more = day.moves.gate.export(*slot, &mut parts);
                // Requests go on between two steps of the export.
                for step in steps.by_ref().take(2) {
                    day.step(step);
                }
                for part in parts {
                    let here = slots.find(*slot).expect("a slot");
                    prop_assert!(gate.import_part(here, moved, sent(&part)));
                }
                apply(&changes, &gate, &slots);
            }
        }
        for step in steps.by_ref().take(5) {
            day.step(step);
            apply(&changes, &gate, &slots);
        }
        // From here on the other one decides; what the old one let in ends there.
        let old = std::mem::replace(&mut day.moves, Side::of(gate, &rules, day.now));
        for step in steps {
            day.step(step);
            apply(&changes, &day.moves.gate, &slots);
        }
        drop(old);
    }

    #[test]
    fn numbers_that_are_no_state_change_nothing(
        (rules, steps) in all_days(),
        numbers in prop::collection::vec(prop_oneof![any::<u64>(), 0..9_u64], 0..20),
        owner in prop_oneof![
            Just(StateOwner::All),
            (any::<u64>(), any::<u64>()).prop_map(|(high, low)| StateOwner::Key(high, low)),
            (0..99_u32).prop_map(StateOwner::Overflow),
        ],
    ) {
        let side = Side::new(&rules);
        let parts = [
            StatePart::State(owner, numbers.clone()),
            StatePart::Summary { cells: 4096, used: numbers.iter().map(|at| (*at, *at)).collect() },
            StatePart::Hand(u32::try_from(numbers.len()).unwrap_or(0)),
        ];
        for slot in &side.slots {
            for part in &parts {
                // Whether it is one or not: neither panics, nor does what follows.
                side.gate.import_part(*slot, MORNING, part.clone());
            }
            side.gate.apply(*slot, owner, LateChange::Abandon { cost: 3 });
        }
        let mut now = MORNING;
        for step in steps {
            match step {
                Step::Wait(nanos) => now = now + Duration::from_nanos(nanos),
                Step::Enter { client, cost } => drop(side.enter(now, client, cost, Duration::ZERO)),
                Step::End(_) => {}
            }
        }
    }
}

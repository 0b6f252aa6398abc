//! Syncing a gate's states with other gateways.

use super::{Gate, chain::Chain};
use crate::flow::{
    decision::SlotId,
    shared::{Delta, RemoteState, RoundTrip},
    slot::Slot,
};

/// States to adopt under one lock: some microseconds.
const STEP: usize = 32;

impl Gate {
    /// Collects unsynced charges of the rule behind `slot` until `into` has `most`. `from` is zero
    /// or the previous result; `None` means done. What is collected must reach the store before the
    /// next [`adopt`](Self::adopt).
    pub fn collect(
        &self,
        slot: SlotId,
        mut from: u32,
        most: usize,
        into: &mut Vec<Delta>,
    ) -> Option<u32> {
        while into.len() < most {
            // Each call is short, because it holds the lock.
            from = self.lock().collect_some(slot, from, most, into)?;
        }
        Some(from)
    }

    /// Adopts the store's `states` for the rule behind `slot`. Returns whether all other states
    /// were forgotten, so that the caller must ask for them: the store's clock was more than a
    /// second behind its earlier times, and so is another clock.
    pub fn adopt(&self, slot: SlotId, trip: RoundTrip, states: &[RemoteState]) -> bool {
        let adopt = |some| {
            let mut chain = self.lock();
            let trip = RoundTrip { came: chain.clamp(trip.came), ..trip };
            chain.synced_mut(slot).is_some_and(|slot| slot.adopt(trip, some))
        };

        // The time counts even without states.
        let (first, rest) = states.split_at(states.len().min(STEP));
        let mut has_forgotten = adopt(first);
        for some in rest.chunks(STEP) {
            has_forgotten |= adopt(some);
        }
        has_forgotten
    }
}

impl Chain {
    /// Collects some unsynced charges of a slot. An unused slot is dropped when it has no more.
    fn collect_some(
        &mut self,
        slot: SlotId,
        from: u32,
        most: usize,
        into: &mut Vec<Delta>,
    ) -> Option<u32> {
        let next = self.synced_mut(slot)?.collect(from, most, into);
        if next.is_none() {
            self.unsynced.retain(|entry| entry.id != slot);
        }
        next
    }

    /// Returns the slot with this id, also if an edit removed or reset it.
    fn synced_mut(&mut self, slot: SlotId) -> Option<&mut dyn Slot> {
        let mut slots = self.slots.iter_mut().chain(&mut self.unsynced);
        slots.find(|entry| entry.id == slot).map(|entry| &mut *entry.slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{
        Algorithm, Change, Claim, Instant, Key, Rule, Rules, StateName,
        limiter::{
            SyncedConfig,
            fixed_window::{self, Align},
            token_bucket,
        },
        timeline::{keyed, one, rate},
    };
    use core::time::Duration;
    use std::sync::Arc;

    fn synced(whole: Algorithm) -> Algorithm {
        Algorithm::Synced(SyncedConfig::new(whole, 1).unwrap())
    }

    fn open(rules: &Rules) -> (Arc<Gate>, SlotId) {
        let gate = Arc::new(Gate::new(Instant::EPOCH));
        let slot = gate.install(rules, Instant::EPOCH).flow[0];
        (gate, slot)
    }

    fn millis(count: u64) -> Instant {
        Instant::EPOCH + Duration::from_millis(count)
    }

    /// In milliseconds.
    fn trip(asked: u64, given: u64, came: u64) -> RoundTrip {
        RoundTrip { asked: millis(asked), given: millis(given), came: millis(came) }
    }

    fn enter(gate: &Arc<Gate>, slot: SlotId, now: Instant, key: Key) -> Result<(), Duration> {
        let claim = Claim { slot, key, cost: 1, patience: Duration::ZERO, plan: None };
        let decided = gate.enter(now, &[claim]);
        decided.map(drop).map_err(|rejection| rejection.reason.retry_after().unwrap())
    }

    #[test]
    fn windows_end_by_the_clock_of_the_store_and_time_does_not_step_back() {
        let config = fixed_window::Config { rate: rate(1, 100), align: Align::Clock };
        let (gate, slot) = open(&one(synced(Algorithm::FixedWindow(config))));
        let ask = |at| enter(&gate, slot, millis(at), Key::Shared);
        // The gateway is an hour ahead, and 30 ms off in its window.
        let hour = 60 * 60 * 1000;
        assert_eq!(ask(hour + 49), Ok(()), "which is forgotten");
        gate.adopt(slot, trip(hour + 50, 20, hour + 50), &[]);
        assert_eq!(ask(hour + 50), Ok(()));
        assert_eq!(ask(hour + 51), Err(Duration::from_millis(79)));
        assert_eq!(ask(hour + 130), Ok(()));
        // A slower answer has an earlier time.
        gate.adopt(slot, trip(hour + 80, 60, hour + 131), &[]);
        assert_eq!(ask(hour + 132), Err(Duration::from_millis(99)));
        let mut deltas = Vec::new();
        assert_eq!(gate.collect(slot, 0, 9, &mut deltas), None);
        assert_eq!((deltas.len(), deltas[0].name, deltas[0].cost), (1, StateName::All, 2));
        // The window that ended decides nothing any more: 1 in that which ends at 200 ms.
        assert_eq!(deltas[0].numbers[..], [200_000, 0, 1]);
        deltas.clear();
        assert_eq!((gate.collect(slot, 0, 9, &mut deltas), deltas.len()), (None, 0));
    }

    #[test]
    fn a_slow_answer_forgets_no_state() {
        let bucket = token_bucket::Config { rate: rate(1, 3_600_000), burst: 1 };
        let (gate, slot) = open(&one(synced(Algorithm::TokenBucket(bucket))));
        gate.adopt(slot, trip(1_000, 7_000, 1_001), &[]);
        assert_eq!(enter(&gate, slot, millis(1_001), Key::Shared), Ok(()));
        // The gateway, or the way back, stood still for a minute.
        gate.adopt(slot, trip(2_000, 8_001, 62_000), &[]);
        assert!(enter(&gate, slot, millis(62_000), Key::Shared).is_err());
        let mut deltas = Vec::new();
        gate.collect(slot, 0, 9, &mut deltas);
        assert_eq!((deltas.len(), deltas[0].cost), (1, 1));
    }

    #[test]
    fn a_state_of_all_is_divided_where_the_rule_is() {
        let bucket = token_bucket::Config { rate: rate(90, 9_000), burst: 90 };
        let whole = Algorithm::TokenBucket(bucket);
        let (gate, slot) = open(&one(synced(whole.clone())));
        let state = |used: u64| {
            // Each takes a tenth of a second to refill.
            [RemoteState {
                name: StateName::All,
                numbers: [used * 100_000, 0].into_iter().collect(),
            }]
        };
        let passing =
            |now| (0..99).take_while(|_| enter(&gate, slot, now, Key::Shared).is_ok()).count();
        gate.adopt(slot, trip(0, 0, 0), &state(60));
        let third = one(synced(whole).among(3));
        let changes = gate.install(&third, Instant::EPOCH).changes;
        assert_eq!(changes, [("it".into(), Change::Converted)]);
        assert_eq!(passing(Instant::EPOCH), 10, "a third of what is left");
        gate.adopt(slot, trip(0, 0, 0), &state(30));
        // 10 passed here since.
        assert_eq!(passing(Instant::EPOCH), 16, "a third of 50, rounded down");
        let mut deltas = Vec::new();
        gate.collect(slot, 0, 9, &mut deltas);
        assert_eq!(deltas[0].cost, 26, "whatever it was divided by");
    }

    #[test]
    fn a_window_holds_what_all_have_used_against_its_part() {
        let config = fixed_window::Config { rate: rate(90, 9_000), align: Align::Clock };
        let whole = synced(Algorithm::FixedWindow(config));
        let (gate, slot) = open(&one(whole.clone()));
        let state = |used| {
            [RemoteState {
                name: StateName::All,
                numbers: [9_000_000, 0, used].into_iter().collect(),
            }]
        };
        gate.adopt(slot, trip(0, 0, 0), &state(29));
        gate.install(&one(whole.among(3)), Instant::EPOCH);
        let ask = || enter(&gate, slot, Instant::EPOCH, Key::Shared);
        assert_eq!(ask(), Ok(()), "30 are its part");
        assert_eq!(ask(), Err(Duration::from_secs(9)));
        gate.install(&one(whole), Instant::EPOCH);
        assert_eq!((0..99).take_while(|_| ask().is_ok()).count(), 60);
    }

    #[test]
    fn what_was_too_much_is_remembered_over_edits() {
        let bucket = token_bucket::Config { rate: rate(90, 9_000), burst: 90 };
        let whole = synced(Algorithm::TokenBucket(bucket));
        let (gate, slot) = open(&one(whole.clone()));
        // Gateways let 120 pass together: 30 too many, of a tenth of a second each.
        let state =
            RemoteState { name: StateName::All, numbers: [12_000_000, 0].into_iter().collect() };
        gate.adopt(slot, trip(0, 0, 0), &[state]);
        let ask = || enter(&gate, slot, Instant::EPOCH, Key::Shared);
        assert_eq!(ask(), Err(Duration::from_millis(3_100)));
        gate.install(&one(whole.among(3)), Instant::EPOCH);
        assert_eq!(ask(), Err(Duration::from_millis(3_300)), "10 of its part, and one more");
        gate.install(&one(whole), Instant::EPOCH);
        assert_eq!(ask(), Err(Duration::from_millis(3_100)));
    }

    #[test]
    fn a_slot_that_an_edit_removes_or_resets_sends_all_that_was_charged_to_it() {
        let bucket = token_bucket::Config { rate: rate(1, 1_000), burst: 5 };
        let whole = Algorithm::TokenBucket(bucket);
        for after in [one(whole.clone()), Rules::default()] {
            let (gate, slot) = open(&one(synced(whole.clone())));
            assert_eq!(enter(&gate, slot, Instant::EPOCH, Key::Shared), Ok(()));
            gate.install(&after, Instant::EPOCH);
            let mut deltas = Vec::new();
            assert_eq!(gate.collect(slot, 0, 9, &mut deltas), None);
            assert_eq!((deltas.len(), deltas[0].cost), (1, 1));
            assert_eq!((gate.collect(slot, 0, 9, &mut deltas), deltas.len()), (None, 1), "once");
        }
    }

    #[test]
    fn charges_of_an_evicted_client_are_not_sent_for_its_successor() {
        let bucket = token_bucket::Config { rate: rate(1, 1_000), burst: 5 };
        for is_adopted in [false, true] {
            let (gate, slot) = open(&keyed(synced(Algorithm::TokenBucket(bucket.clone())), 1));
            let one = 1_u128 << 64;
            let other = 2_u128 << 64;
            assert_eq!(enter(&gate, slot, Instant::EPOCH, Key::Of(one)), Ok(()));
            // No request came until it decided nothing any more.
            let late = millis(60_000);
            if is_adopted {
                let numbers = [60_000_000, 0].into_iter().collect();
                let states = [RemoteState { name: StateName::Key(other), numbers }];
                gate.adopt(slot, trip(60_000, 60_000, 60_000), &states);
            }
            assert_eq!(enter(&gate, slot, late, Key::Of(other)), Ok(()));
            let mut deltas = Vec::new();
            gate.collect(slot, 0, 9, &mut deltas);
            assert_eq!(
                (deltas.len(), deltas[0].name, deltas[0].cost),
                (1, StateName::Key(other), 1)
            );
        }
    }

    #[test]
    fn a_client_of_another_gateway_takes_no_place_and_is_remembered() {
        let bucket = token_bucket::Config { rate: rate(1, 1_000), burst: 5 };
        let (gate, slot) = open(&keyed(synced(Algorithm::TokenBucket(bucket)), 1));
        let one = 1_u128 << 64;
        let other = 2_u128 << 64;
        assert_eq!(enter(&gate, slot, Instant::EPOCH, Key::Of(one)), Ok(()));
        let mut deltas = Vec::new();
        gate.collect(slot, 0, 9, &mut deltas);
        let state = RemoteState {
            name: StateName::Key(other),
            numbers: [5_000_000, 0].into_iter().collect(),
        };
        gate.adopt(slot, trip(0, 0, 0), &[state]);
        let late = enter(&gate, slot, Instant::EPOCH, Key::Of(other));
        assert_eq!(late, Err(Duration::from_secs(1)));
        let churn = || gate.observe(Instant::EPOCH).rules[0].keys.unwrap().churn;
        assert_eq!((churn().evicted, churn().restored), (0, 0));
        // Now the place is taken, and only the new charge is sent.
        assert_eq!(enter(&gate, slot, millis(1_000), Key::Of(other)), Ok(()));
        assert_eq!(churn().restored, 1);
        deltas.clear();
        gate.collect(slot, 0, 9, &mut deltas);
        assert_eq!((deltas.len(), deltas[0].name, deltas[0].cost), (1, StateName::Key(other), 1));
    }

    #[test]
    fn clients_without_room_are_synced_together() {
        let bucket = token_bucket::Config { rate: rate(1, 1_000), burst: 5 };
        let rules = keyed(synced(Algorithm::TokenBucket(bucket)), 2);
        assert!(matches!(rules.flow[..], [Rule { dry_run: false, .. }]));
        let (gate, slot) = open(&rules);
        for client in 0..3_u128 {
            assert_eq!(enter(&gate, slot, Instant::EPOCH, Key::Of(client << 64)), Ok(()));
        }
        let mut deltas = Vec::new();
        let mut from = Some(0);
        let mut calls = 0;
        while let Some(at) = from {
            calls += 1;
            from = gate.collect(slot, at, calls, &mut deltas);
        }
        let name: Vec<StateName> = deltas.iter().map(|delta| delta.name).collect();
        assert_eq!(name, [StateName::Overflow(2), StateName::Key(0), StateName::Key(1 << 64)]);
        // Another gateway has the same.
        let (other, slot) = open(&rules);
        let state = RemoteState {
            name: StateName::Overflow(2),
            numbers: [5_000_000, 0].into_iter().collect(),
        };
        other.adopt(slot, trip(0, 0, 0), &[state]);
        for client in 0..2_u128 {
            assert_eq!(enter(&other, slot, Instant::EPOCH, Key::Of(client << 64)), Ok(()));
        }
        let late = enter(&other, slot, Instant::EPOCH, Key::Of(2 << 64));
        assert_eq!(late, Err(Duration::from_secs(1)));
    }
}

//! Limits that gateways share by syncing states periodically.
//!
//! Each gateway decides immediately with the whole numbers, from the state that it last took from
//! the store and its own charges since. These charges, the **delta**, are kept beside the state as
//! the state of a client that was fresh at the last sync. A sync merges the delta into the store's
//! state and adopts that, merged with the charges made meanwhile. No charge is lost, and after a
//! sync without traffic all gateways have the same state.
//!
//! With `K` gateways and an interval `I`, a charge is known to all others after at most `2·I`: up
//! to `I` until it is sent, up to `I` until they ask. If a gateway charges `u` to a state in that
//! time, together they pass at most
//!
//! ```text
//! what one would, and (K − 1)·u more;   u ≤ N, or burst + 2·I·N/W for a bucket
//! ```
//!
//! A bucket remembers the excess, and rejects until it has drained.
//!
//! Time is the store's. The difference is taken before the answer's way back, so that a gateway is
//! never ahead of the store, whose windows end before it opens the next. Time never steps back: it
//! stands still for an answer's duration and at most a second. A state that a faster clock counted
//! is in the future, and is forgotten.
//!
//! While the store cannot be reached, the rule is divided among the gateways (`gateways` above 1).

use super::{
    Evictable, Limiter, Syncs, Times, Transfer, Usage,
    fixed_window::{self, FixedWindow},
    plans::Plan,
    sliding_counter::{self, SlidingCounter},
    sliding_window::SlidingWindow,
    stored::{size, span},
    token_bucket::TokenBucket,
};
use crate::flow::{
    decision::{Decision, PlanKey},
    keyed::{PastUsage, Scale},
    shared::{Numbers, StoreClock},
    time::Instant,
};
use core::time::Duration;

#[derive(Debug)]
pub(in crate::flow) struct Synced<F> {
    /// The limit of all gateways together, for the store's states and deltas.
    whole: F,
    /// The limit that decides here.
    here: F,
    clock: StoreClock,
}

/// A state, and the charges since the last sync.
#[derive(Debug)]
pub(in crate::flow) struct SyncedState<S> {
    state: S,
    /// Unused while `cost` is zero.
    delta: S,
    cost: u64,
}

/// A copy has no unsynced charges: the original sends them.
impl<S: Clone> Clone for SyncedState<S> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), delta: self.delta.clone(), cost: 0 }
    }
}

impl<F: Merge> Synced<F> {
    pub(in crate::flow) const fn new(whole: F, here: F) -> Self {
        Self { whole, here, clock: StoreClock::own() }
    }
}

impl<F: Merge> Limiter for Synced<F> {
    type State = SyncedState<F::State>;

    const HAS_PLANS: bool = F::HAS_PLANS;

    fn limit(&self) -> u64 {
        self.here.limit()
    }

    fn limit_of(&self, synced: &Self::State) -> u64 {
        self.here.limit_of(&synced.state)
    }

    fn fresh(&self) -> Self::State {
        SyncedState { state: self.here.fresh(), delta: self.whole.fresh(), cost: 0 }
    }

    fn is_fresh(&self, synced: &Self::State, now: Instant) -> bool {
        let now = self.clock.past(now);
        self.here.is_fresh(&synced.state, now)
            && (synced.cost == 0 || self.whole.is_over(&synced.delta, now))
    }

    fn check(&self, synced: &Self::State, now: Instant, cost: u64) -> Decision {
        self.here.check(&synced.state, self.clock.time(now), cost)
    }

    fn usage(&self, synced: &Self::State, now: Instant) -> Usage {
        self.here.usage(&synced.state, self.clock.time(now))
    }

    fn most_rank(&self, synced: &Self::State) -> u128 {
        self.here.most_rank(&synced.state)
    }

    fn rank(&self, synced: &Self::State, now: Instant) -> u128 {
        self.here.rank(&synced.state, self.clock.time(now))
    }

    fn charge(&self, synced: &mut Self::State, times: Times, cost: u64) {
        let [now, own, start] =
            [times.now, times.own, times.start].map(|time| self.clock.time(time));
        let times = Times { now, own, start };
        self.here.charge(&mut synced.state, times, cost);
        if synced.cost == 0 {
            self.whole.clear(&mut synced.delta);
        }
        self.whole.record(&mut synced.delta, &synced.state, times, cost);
        synced.cost = synced.cost.saturating_add(cost);
    }

    fn convert(&self, old: &Self, synced: &mut Self::State, now: Instant) {
        // The edit may be long ago.
        let now = self.clock.past(now);
        self.here.convert(&old.here, &mut synced.state, now);
        self.whole.convert(&old.whole, &mut synced.delta, now);
        synced.cost = self.whole.converted(&old.whole, synced.cost);
    }

    fn plan(&self, key: Option<PlanKey>) -> Plan {
        self.here.plan(key)
    }

    fn plan_of(&self, synced: &Self::State) -> Plan {
        self.here.plan_of(&synced.state)
    }

    fn follow(&self, synced: &mut Self::State, plan: Plan, now: Instant) {
        self.here.follow(&mut synced.state, plan, self.clock.time(now));
    }

    fn syncs(&self) -> Option<&dyn Syncs<Self::State>> {
        Some(self)
    }

    fn syncs_mut(&mut self) -> Option<&mut dyn Syncs<Self::State>> {
        Some(self)
    }
}

impl<F: Merge> Evictable for Synced<F> {
    fn is_held(&self, synced: &Self::State, now: Instant) -> bool {
        let now = self.clock.time(now);
        let is_sent = synced.cost == 0 || self.whole.is_over(&synced.delta, now);
        !is_sent || self.here.is_held(&synced.state, now)
    }

    fn scale(&self, now: Instant) -> Scale {
        self.here.scale(self.clock.time(now))
    }

    fn past_usage(&self, synced: &Self::State, now: Instant) -> PastUsage {
        self.here.past_usage(&synced.state, self.clock.time(now))
    }

    fn renew(&self, synced: &mut Self::State) {
        self.here.renew(&mut synced.state);
        synced.cost = 0;
    }

    fn absorb(&self, synced: &mut Self::State, usage: PastUsage, now: Instant) {
        self.here.absorb(&mut synced.state, usage, self.clock.time(now));
    }
}

/// The store has what was charged, but for what the other process sends it still.
impl<F: Merge> Transfer for Synced<F> {
    fn export(&self, synced: &Self::State) -> Vec<u64> {
        self.here.export(&synced.state)
    }

    fn import(&self, numbers: &[u64]) -> Option<Self::State> {
        Some(SyncedState { state: self.here.import(numbers)?, ..self.fresh() })
    }

    fn charge_elsewhere(&self, synced: &mut Self::State, times: Times, cost: u64) {
        let [now, own, start] =
            [times.now, times.own, times.start].map(|time| self.clock.time(time));
        self.here.charge(&mut synced.state, Times { now, own, start }, cost);
    }
}

impl<F: Merge> Syncs<SyncedState<F::State>> for Synced<F> {
    fn take(&self, synced: &mut SyncedState<F::State>) -> Option<(u64, Numbers)> {
        let cost = core::mem::take(&mut synced.cost);
        (cost > 0).then(|| (cost, self.whole.delta(&synced.delta, cost)))
    }

    fn clock(&self) -> StoreClock {
        self.clock
    }

    fn set_clock(&mut self, clock: StoreClock) {
        self.clock = clock;
    }

    fn adopt(&self, synced: &mut SyncedState<F::State>, numbers: &[u64], now: Instant) {
        // A script has no larger exact numbers; smaller ones cannot overflow below.
        if numbers.iter().any(|number| *number >= 1 << 53) {
            return;
        }
        let Some(mut state) = self.whole.parse(numbers) else { return };
        if synced.cost > 0 {
            self.whole.merge(&mut state, &synced.delta, synced.cost);
        }
        self.here.convert(&self.whole, &mut state, self.clock.time(now));
        synced.state = state;
    }
}

/// A limiter whose states can be merged. `cluster/sync/sync.lua` does the same in the store.
pub(in crate::flow) trait Merge: Evictable {
    fn clear(&self, delta: &mut Self::State) {
        *delta = self.fresh();
    }

    /// Adds to `delta` a request that was just charged to `state`.
    fn record(&self, delta: &mut Self::State, _state: &Self::State, times: Times, cost: u64) {
        self.charge(delta, times, cost);
    }

    /// Charges `delta`, of this cost, to `state`.
    fn merge(&self, state: &mut Self::State, delta: &Self::State, cost: u64);

    /// Returns whether no decision from `now` on depends on `delta`.
    fn is_over(&self, delta: &Self::State, now: Instant) -> bool {
        self.is_fresh(delta, now)
    }

    /// Converts a cost charged under `old`, before an edit.
    fn converted(&self, _old: &Self, cost: u64) -> u64 {
        cost
    }

    /// Returns the script's numbers for `delta`.
    fn delta(&self, delta: &Self::State, cost: u64) -> Numbers;

    /// Returns the state of these numbers, each below `2^53`; `None` if there is none.
    fn parse(&self, numbers: &[u64]) -> Option<Self::State>;
}

/// A charge applies `x ↦ max(x, t) + c·T` to the `TAT`. A sequence of charges is `x ↦ max(x + a,
/// b)`, where `a` is the sum of their `c·T` and `b` their result on a full bucket: two numbers
/// express any number of requests.
impl Merge for TokenBucket {
    fn merge(&self, tat: &mut u128, delta: &u128, cost: u64) {
        *tat = tat.saturating_add(self.interval().times(cost)).max(*delta);
    }

    fn is_over(&self, delta: &u128, now: Instant) -> bool {
        // Until then it may add to earlier charges of others.
        let full = self.interval().duration(self.interval().times(self.limit()));
        self.is_fresh(delta, now - full)
    }

    fn delta(&self, delta: &u128, cost: u64) -> Numbers {
        let interval = self.interval();
        let (micros, rest) = interval.split(*delta);
        let added = span(interval, interval.times(cost));
        [added, [micros, rest], size(self)].concat().into()
    }

    fn converted(&self, old: &Self, cost: u64) -> u64 {
        self.resized(old, cost)
    }

    fn parse(&self, numbers: &[u64]) -> Option<u128> {
        let [micros, rest] = *numbers else { return None };
        Some(self.interval().join(micros, rest))
    }
}

impl Merge for FixedWindow {
    /// Adds to the window that the state's requests began.
    fn record(
        &self,
        delta: &mut fixed_window::State,
        state: &fixed_window::State,
        _times: Times,
        cost: u64,
    ) {
        let used = if delta.end() == state.end() { delta.used() } else { 0 };
        *delta = fixed_window::State::stored(state.end(), used.saturating_add(cost));
    }

    /// A window that is over decides nothing.
    fn merge(&self, state: &mut fixed_window::State, delta: &fixed_window::State, _cost: u64) {
        let ours = state.end();
        let theirs = delta.end();
        if state.used() > 0 && (ours == theirs || self.overlaps(ours, theirs)) {
            let used = state.used().saturating_add(delta.used());
            *state = fixed_window::State::stored(ours, used);
        } else if state.used() == 0 || theirs > ours {
            *state = delta.clone();
        }
    }

    fn delta(&self, delta: &fixed_window::State, _cost: u64) -> Numbers {
        let nanos = delta.end().as_nanos();
        Numbers::from_slice(&[nanos / 1000, nanos % 1000, delta.used()])
    }

    fn parse(&self, numbers: &[u64]) -> Option<fixed_window::State> {
        let [micros, nanos, used] = *numbers else { return None };
        let end = Instant::from_nanos(micros.saturating_mul(1000)) + Duration::from_nanos(nanos);
        Some(fixed_window::State::stored(end, used))
    }
}

impl Merge for SlidingCounter {
    fn merge(
        &self,
        state: &mut sliding_counter::State,
        delta: &sliding_counter::State,
        _cost: u64,
    ) {
        *state = state.plus(*delta);
    }

    fn delta(&self, delta: &sliding_counter::State, _cost: u64) -> Numbers {
        Numbers::from_slice(&delta.numbers())
    }

    fn parse(&self, numbers: &[u64]) -> Option<sliding_counter::State> {
        let [index, prev, curr] = *numbers else { return None };
        Some(sliding_counter::State::stored(index, prev, curr))
    }
}

impl Merge for SlidingWindow {
    /// Reuses its memory.
    fn clear(&self, delta: &mut Self::State) {
        delta.clear();
    }

    fn merge(&self, state: &mut Self::State, delta: &Self::State, _cost: u64) {
        self.add_all(state, delta);
    }

    fn delta(&self, delta: &Self::State, _cost: u64) -> Numbers {
        self.numbers(delta)
    }

    fn parse(&self, numbers: &[u64]) -> Option<Self::State> {
        let [head, counts @ ..] = numbers else { return None };
        self.start(*head)?;
        Some(self.stored(*head, counts))
    }
}

//! Limits that gateways share by syncing states periodically.
//!
//! Each gateway decides immediately with the whole numbers, from the state that it last took from
//! the store and its own charges since. These charges, the **delta**, are kept beside the state as
//! the state of a client that was fresh at the last sync. A sync merges the delta into the store's
//! state and adopts that, merged with the charges made meanwhile. No charge is lost, and after a
//! sync without traffic all gateways have the same state.
//!
//! The part of an earlier charge that a settlement gives back is kept apart, as the state of a client that was
//! charged it in the window of that charge. A sync takes it from the store's state, and an adopted
//! state lacks what was given back meanwhile.
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
    Evictable, GivenBack, Limiter, Syncs, Times, Transfer, Unsynced, Usage,
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
    /// Unused while `cost` is zero and nothing was given back.
    delta: S,
    cost: u64,
    /// The cost that was given back since the last sync. Few rules settle costs.
    given: Option<Box<Given<S>>>,
}

/// The cost that was given back since the last sync.
#[derive(Debug)]
pub(in crate::flow) struct Given<S> {
    /// The state of a client that was charged it.
    pub(super) state: S,
    pub(super) cost: u64,
}

/// The places where a part that is given back is noted.
pub(in crate::flow) struct GivenTo<'d, S> {
    pub(super) given: &'d mut S,
    pub(super) delta: &'d mut S,
}

/// A copy has no unsynced charges: the original sends them.
impl<S: Clone> Clone for SyncedState<S> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), delta: self.delta.clone(), cost: 0, given: None }
    }
}

impl<F: Merge> Synced<F> {
    pub(in crate::flow) const fn new(whole: F, here: F) -> Self {
        Self { whole, here, clock: StoreClock::own() }
    }

    /// Returns whether no decision from `now` on, by the store's clock, depends on what was not sent.
    fn is_sent(&self, synced: &SyncedState<F::State>, now: Instant) -> bool {
        let is_over = |given: &Given<F::State>| self.whole.is_over(&given.state, now);
        (synced.cost == 0 || self.whole.is_over(&synced.delta, now))
            && synced.given.as_deref().is_none_or(is_over)
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
        let delta = self.whole.fresh();
        SyncedState { state: self.here.fresh(), delta, cost: 0, given: None }
    }

    fn is_fresh(&self, synced: &Self::State, now: Instant) -> bool {
        let now = self.clock.past(now);
        self.here.is_fresh(&synced.state, now) && self.is_sent(synced, now)
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
        if synced.cost == 0 && synced.given.is_none() {
            self.whole.clear(&mut synced.delta);
        }
        self.whole.record(&mut synced.delta, &synced.state, times, cost);
        synced.cost = synced.cost.saturating_add(cost);
    }

    /// The receipt has the store's time.
    fn give_back(&self, synced: &mut Self::State, part: &GivenBack) {
        let part = GivenBack { now: self.clock.time(part.now), ..*part };
        if synced.cost == 0 && synced.given.is_none() {
            self.whole.clear(&mut synced.delta);
        }
        let unused = || Box::new(Given { state: self.whole.fresh(), cost: 0 });
        let given = synced.given.get_or_insert_with(unused);
        let unsynced = GivenTo { given: &mut given.state, delta: &mut synced.delta };
        let cost = self.whole.give(unsynced, &synced.state, &part);
        given.cost = given.cost.saturating_add(cost);
        self.here.give_back(&mut synced.state, &part);
    }

    fn counted_at(&self, at: Instant) -> Instant {
        self.clock.time(at)
    }

    fn moves_charges(&self, old: &Self) -> bool {
        self.here.moves_charges(&old.here)
    }

    fn convert(&self, old: &Self, synced: &mut Self::State, now: Instant) {
        // The edit may be long ago.
        let now = self.clock.past(now);
        self.here.convert(&old.here, &mut synced.state, now);
        self.whole.convert(&old.whole, &mut synced.delta, now);
        synced.cost = self.whole.converted(&old.whole, synced.cost);
        if let Some(given) = &mut synced.given {
            self.whole.convert(&old.whole, &mut given.state, now);
            given.cost = self.whole.converted(&old.whole, given.cost);
        }
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
        !self.is_sent(synced, now) || self.here.is_held(&synced.state, now)
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
        synced.given = None;
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

    fn give_back_elsewhere(&self, synced: &mut Self::State, part: &GivenBack) {
        let part = GivenBack { now: self.clock.time(part.now), ..*part };
        self.here.give_back(&mut synced.state, &part);
    }
}

impl<F: Merge> Syncs<SyncedState<F::State>> for Synced<F> {
    fn take(&self, synced: &mut SyncedState<F::State>) -> Option<Unsynced> {
        let cost = core::mem::take(&mut synced.cost);
        let given = synced.given.take().filter(|given| given.cost > 0);
        if cost == 0 && given.is_none() {
            return None;
        }
        let numbers = self.whole.delta(&synced.delta, cost);
        let given = given.map(|given| self.whole.given_numbers(&given)).unwrap_or_default();
        Some(Unsynced { cost, numbers, given })
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
        let SyncedState { delta, cost, given, .. } = &*synced;
        let is_first = |given: &&Given<F::State>| self.whole.gives_first(delta, given);
        let (first, last) = match given.as_deref() {
            Some(given) if is_first(&given) => (Some(given), None),
            given => (None, given),
        };
        if let Some(given) = first {
            self.whole.take_given(&mut state, delta, given);
        }
        if *cost > 0 {
            self.whole.merge(&mut state, delta, *cost);
        }
        if let Some(given) = last {
            self.whole.take_given(&mut state, delta, given);
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

    /// Notes a part that is given back of what `state` was charged, before it leaves that. Returns how
    /// much of it counts there.
    fn give(
        &self,
        unsynced: GivenTo<'_, Self::State>,
        state: &Self::State,
        part: &GivenBack,
    ) -> u64;

    /// Takes what was given back from `state`, after `delta` was [merged](Self::merge).
    fn take_given(&self, state: &mut Self::State, delta: &Self::State, given: &Given<Self::State>);

    /// Returns whether what was given back leaves a state before `delta` is merged with it.
    fn gives_first(&self, _delta: &Self::State, _given: &Given<Self::State>) -> bool {
        false
    }

    /// Returns the script's numbers for what was given back.
    fn given_numbers(&self, given: &Given<Self::State>) -> Numbers {
        self.delta(&given.state, given.cost)
    }

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

    /// A part that is given back applies `x ↦ x − g·T`, which keeps the form: `a` and `b` fall by `g·T`.
    /// `given` is the latest `TAT` from which something was given back.
    fn give(&self, unsynced: GivenTo<'_, u128>, state: &u128, part: &GivenBack) -> u64 {
        let GivenTo { given, delta } = unsynced;
        // An edit may have resized what was charged. If it has grown, no more than that is given back.
        let before = part.receipt.limit.max(1);
        let cost = if self.limit() < before {
            let share = u128::from(part.cost) * u128::from(self.limit()) / u128::from(before);
            u64::try_from(share).unwrap_or(u64::MAX)
        } else {
            part.cost
        };
        *delta = delta.saturating_sub(self.interval().times(cost));
        *given = (*given).max(*state);
        cost
    }

    fn take_given(&self, tat: &mut u128, delta: &u128, given: &Given<u128>) {
        *tat = tat.saturating_sub(self.interval().times(given.cost)).max(*delta);
    }

    fn given_numbers(&self, given: &Given<u128>) -> Numbers {
        let interval = self.interval();
        Numbers::from_slice(&span(interval, interval.times(given.cost)))
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

    fn give(
        &self,
        unsynced: GivenTo<'_, fixed_window::State>,
        state: &fixed_window::State,
        part: &GivenBack,
    ) -> u64 {
        let is_of_window = part.receipt.at.is_some_and(|at| self.counts(state, at));
        if !is_of_window || state.end() <= part.now {
            return 0;
        }
        let GivenTo { given, delta } = unsynced;
        let mut cost = part.cost.min(state.used());
        // What was not sent has nothing to be taken from: the next charge may begin another window.
        if delta.end() == state.end() {
            let unsent = delta.used().min(cost);
            *delta = fixed_window::State::stored(state.end(), delta.used() - unsent);
            cost -= unsent;
        }
        // What was given to an earlier window is not sent yet.
        if cost == 0 {
            return 0;
        }
        let used = if given.end() == state.end() { given.used() } else { 0 };
        *given = fixed_window::State::stored(state.end(), used.saturating_add(cost));
        cost
    }

    /// A window of which all was given back is followed by the one that the next request began.
    fn gives_first(&self, delta: &fixed_window::State, given: &Given<fixed_window::State>) -> bool {
        delta.end() != given.state.end()
    }

    fn take_given(
        &self,
        state: &mut fixed_window::State,
        _delta: &fixed_window::State,
        given: &Given<fixed_window::State>,
    ) {
        let ours = state.end();
        let theirs = given.state.end();
        if ours == theirs || self.overlaps(ours, theirs) {
            let used = state.used().saturating_sub(given.state.used());
            *state = fixed_window::State::stored(ours, used);
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

    fn give(
        &self,
        unsynced: GivenTo<'_, sliding_counter::State>,
        state: &sliding_counter::State,
        part: &GivenBack,
    ) -> u64 {
        let Some(at) = part.receipt.at else { return 0 };
        let left = self.part_of(state, at, part);
        let given = unsynced.given;
        *given = given.plus(left);
        let [_, _, cost] = left.numbers();
        cost
    }

    fn take_given(
        &self,
        state: &mut sliding_counter::State,
        _delta: &sliding_counter::State,
        given: &Given<sliding_counter::State>,
    ) {
        *state = state.minus(given.state);
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

    fn give(
        &self,
        unsynced: GivenTo<'_, Self::State>,
        state: &Self::State,
        part: &GivenBack,
    ) -> u64 {
        let left = part.receipt.at.map(|at| self.part_of(state, at, part.cost));
        left.map_or(0, |left| {
            self.add_to(unsynced.given, left);
            left.count
        })
    }

    fn take_given(
        &self,
        state: &mut Self::State,
        _delta: &Self::State,
        given: &Given<Self::State>,
    ) {
        self.take_all(state, &given.state);
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

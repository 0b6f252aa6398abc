//! How states merge, by algorithm. `cluster/sync/sync.lua` does the same in the store.

use crate::flow::{
    limiter::{
        fixed_window::{self, FixedWindow},
        sliding_counter::{self, SlidingCounter},
        sliding_window::SlidingWindow,
        token_bucket::TokenBucket,
    },
    shared::{
        Numbers,
        stored::{size, span},
    },
    time::Instant,
    traits::{Evictable, Limiter, Times},
};
use core::time::Duration;

/// A limiter whose states can be merged.
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

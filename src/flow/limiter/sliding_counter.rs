//! Sliding counter: the previous window counts by its visible part.
//!
//! Windows `[k·W, (k+1)·W)` follow the clock. `e` after the current one began, the last `W` is
//! estimated as if the previous window had been even, and a request of cost `n` passes iff
//!
//! ```text
//! prev·(W − e)/W + curr + n ≤ N       decided as   prev·(W − e) + (curr + n)·W ≤ N·W
//! ```
//!
//! in integers, without rounding. A new window turns `curr` into `prev`; a gap of more than one
//! window clears both.
//!
//! Worst case: `N` in each window, and `2N − 1` in some `W` if all of `prev` came at its end. If it
//! came at its beginning, requests are rejected that an exact log would pass.
//!
//! An edit of the count keeps both counts. If the window changes, each counts in the new window of
//! its last instant: nothing expires early except by a shorter window.
//!
//! Source: the "approximated sliding window" of Cloudflare's blog (2017); the package
//! RussellLuo/slidingwindow, which drops the fraction of the weighted count and so admits up to one
//! request more.

use super::{Evictable, GivenBack, Limiter, Times, Transfer, Usage, by_wall::FollowsWall};
use crate::flow::{
    decision::{Decision, Reason},
    keyed::{PastUsage, Scale},
    rate::{Rate, div_ceil},
    time::Instant,
};
use core::{num::NonZeroU64, time::Duration};
use serde::{Deserialize, Serialize};

/// `rate.count()` in this window and the visible part of the previous one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// The count and the window.
    pub rate: Rate,
}

#[derive(Debug)]
pub(in crate::flow) struct SlidingCounter {
    limit: u64,
    /// In nanoseconds.
    window: NonZeroU64,
}

/// A client's latest two windows.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::flow) struct State {
    /// The latest window's number since the epoch.
    index: u64,
    prev: u64,
    curr: u64,
}

impl Config {
    pub(in crate::flow) const fn build(&self) -> SlidingCounter {
        SlidingCounter { limit: self.rate.count(), window: self.rate.window }
    }
}

impl State {
    /// Returns the state of window `index` and the one before.
    pub(in crate::flow) const fn stored(index: u64, prev: u64, curr: u64) -> Self {
        Self { index, prev, curr }
    }

    /// Inverts [`Self::stored`].
    pub(in crate::flow) const fn numbers(self) -> [u64; 3] {
        [self.index, self.prev, self.curr]
    }

    pub(in crate::flow) fn plus(self, other: Self) -> Self {
        let index = self.index.max(other.index);
        let one = self.at(index);
        let other = other.at(index);
        let [prev, curr] = [(one.prev, other.prev), (one.curr, other.curr)]
            .map(|(one, other)| one.saturating_add(other));
        Self { index, prev, curr }
    }

    pub(in crate::flow) fn minus(self, other: Self) -> Self {
        let other = other.at(self.index);
        if other.index > self.index {
            return self;
        }
        let prev = self.prev.saturating_sub(other.prev);
        let curr = self.curr.saturating_sub(other.curr);
        Self { index: self.index, prev, curr }
    }

    /// Returns the state in window `index`, or in its own if that is later.
    const fn at(self, index: u64) -> Self {
        match index.saturating_sub(self.index) {
            0 => self,
            1 => Self { index, prev: self.curr, curr: 0 },
            _ => Self { index, prev: 0, curr: 0 },
        }
    }
}

impl SlidingCounter {
    const fn index(&self, now: Instant) -> u64 {
        now.as_nanos() / self.window.get()
    }

    /// Returns `state` in the window of `now`.
    const fn at(&self, state: State, now: Instant) -> State {
        state.at(self.index(now))
    }

    /// Returns the state with just the part that is given back of what `state` was charged at `at`.
    pub(in crate::flow) const fn part_of(
        &self,
        state: &State,
        at: Instant,
        part: &GivenBack,
    ) -> State {
        let state = self.at(*state, part.now);
        let index = self.index(at);
        let counted = match state.index.checked_sub(index) {
            Some(0) => state.curr,
            Some(1) => state.prev,
            Some(_) | None => 0,
        };
        let curr = if part.cost < counted { part.cost } else { counted };
        State { index, prev: 0, curr }
    }

    /// Returns how long the previous window remains visible: `W − e`.
    const fn sight(&self, now: Instant) -> u64 {
        self.window.get() - now.as_nanos() % self.window.get()
    }

    /// Returns `prev·(W − e)`.
    fn weighted(&self, state: State, now: Instant) -> u128 {
        u128::from(state.prev) * u128::from(self.sight(now))
    }

    /// Returns `count·W`.
    fn whole(&self, count: u64) -> u128 {
        u128::from(count) * u128::from(self.window.get())
    }

    /// Returns the longest remaining time in which `prev` weighs at most `room`.
    fn sight_for(&self, prev: u64, room: u64) -> u64 {
        let sight = self.whole(room).checked_div(prev.into()).unwrap_or(u128::MAX);
        u64::try_from(sight).unwrap_or(u64::MAX).min(self.window.get())
    }
}

impl Limiter for SlidingCounter {
    type State = State;

    fn limit(&self) -> u64 {
        self.limit
    }

    fn fresh(&self) -> State {
        State::default()
    }

    fn is_fresh(&self, state: &State, now: Instant) -> bool {
        let state = self.at(*state, now);
        state.prev == 0 && state.curr == 0
    }

    fn check(&self, state: &State, now: Instant, cost: u64) -> Decision {
        let Some(most) = self.limit.checked_sub(cost) else {
            return Decision::too_costly(self.limit);
        };
        let state = self.at(*state, now);
        let room = most.checked_sub(state.curr);
        if room.is_some_and(|room| self.weighted(state, now) <= self.whole(room)) {
            return Decision::Pass;
        }
        // The estimate only falls and is continuous where a window ends, so the first instant with
        // room is in this window or the next.
        let window = self.window.get();
        let wait = match room {
            Some(room) => self.sight(now) - self.sight_for(state.prev, room),
            None => self.sight(now).saturating_add(window - self.sight_for(state.curr, most)),
        };
        Decision::Reject(Reason::Rate { retry_after: Duration::from_nanos(wait) })
    }

    fn usage(&self, state: &State, now: Instant) -> Usage {
        let state = self.at(*state, now);
        let reset = match (state.prev, state.curr) {
            (0, 0) => return Usage::default(),
            (_, 0) => self.sight(now),
            (_, _) => self.sight(now).saturating_add(self.window.get()),
        };
        let weighted = div_ceil(self.weighted(state, now), self.window);
        Usage { used: weighted.saturating_add(state.curr), reset: Duration::from_nanos(reset) }
    }

    fn most_rank(&self, state: &State) -> u128 {
        u128::from(state.prev) + u128::from(state.curr)
    }

    fn charge(&self, state: &mut State, times: Times, cost: u64) {
        *state = self.at(*state, times.now);
        state.curr = state.curr.saturating_add(cost);
    }

    fn give_back(&self, state: &mut State, part: &GivenBack) {
        let Some(at) = part.receipt.at else { return };
        *state = self.at(*state, part.now);
        match state.index.checked_sub(self.index(at)) {
            Some(0) => state.curr = state.curr.saturating_sub(part.cost),
            Some(1) => state.prev = state.prev.saturating_sub(part.cost),
            Some(_) | None => {}
        }
    }

    fn moves_charges(&self, old: &Self) -> bool {
        self.window != old.window
    }

    fn convert(&self, old: &Self, state: &mut State, now: Instant) {
        if self.window == old.window {
            return;
        }
        let before = old.at(*state, now);
        let mut after = State { index: self.index(now), prev: 0, curr: before.curr };
        let last = before.index.saturating_mul(old.window.get()).saturating_sub(1);
        match after.index - self.index(Instant::from_nanos(last)).min(after.index) {
            0 => after.curr = after.curr.saturating_add(before.prev),
            1 => after.prev = before.prev,
            _ => {}
        }
        *state = after;
    }
}

impl Evictable for SlidingCounter {
    fn scale(&self, now: Instant) -> Scale {
        Scale::Counts(self.index(now))
    }

    fn past_usage(&self, state: &State, now: Instant) -> PastUsage {
        let State { index, prev, curr } = self.at(*state, now);
        PastUsage::counted(index, [curr, prev])
    }

    fn absorb(&self, state: &mut State, usage: PastUsage, now: Instant) {
        let index = self.index(now);
        let [curr, prev] = usage.counts(index);
        let known = self.at(*state, now);
        *state = State { index, prev: prev.max(known.prev), curr: curr.max(known.curr) };
    }
}

impl Transfer for SlidingCounter {
    fn export(&self, state: &State) -> Vec<u64> {
        state.numbers().into()
    }

    fn import(&self, numbers: &[u64]) -> Option<State> {
        let &[index, prev, curr] = numbers else { return None };
        Some(State::stored(index, prev, curr))
    }
}

impl FollowsWall for SlidingCounter {
    fn step(&self, state: &mut State, from: Instant, to: Instant) {
        let before = self.at(*state, from);
        let index = self.index(to);
        if index < before.index {
            // Its window is in the future: what is visible counts in the one of `to`.
            let curr = self.usage(&before, from).used;
            *state = State { index, prev: 0, curr };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{
        Algorithm, Change, Rules,
        timeline::{Timeline, check, one, rate},
    };

    fn counter(count: u64, window: u64) -> Rules {
        one(Algorithm::SlidingCounter(Config { rate: rate(count, window) }))
    }

    #[test]
    fn a_quarter_of_the_window_is_gone_so_the_one_before_counts_three_quarters() {
        // 86·0.75 + 12 = 76.5: 23 more fit into 100, and 24 do not.
        let limiter = Config { rate: rate(100, 1000) }.build();
        let state = State { index: 1, prev: 86, curr: 12 };
        let now = Instant::from_nanos(1_250_000_000);
        assert_eq!(limiter.weighted(state, now) + limiter.whole(12), limiter.whole(153) / 2);
        assert_eq!(limiter.usage(&state, now).used, 77);
        assert_eq!(limiter.check(&state, now, 23), Decision::Pass);
        assert_ne!(limiter.check(&state, now, 24), Decision::Pass);
        check(
            &counter(100, 1000),
            "
            500  x86     pass
            1010 x12     pass
            1250 cost=24 block rate 5.813954
            1250 x23     pass
            1250         block rate 5.813954
            1255.813953  block rate 0.000001
            1255.813954  pass
            ",
        );
    }

    #[test]
    fn a_window_slides_out_of_sight_and_a_gap_clears_both() {
        check(
            &counter(4, 1000),
            "
            999  x4     pass
            999         block rate 251
            1000        block rate 250
            1250        pass
            1999 x2     pass
            1999 cost=2 block rate 334.333334
            2000        pass
            4000 x4     pass
            4000 cost=5 block costly 4
            ",
        );
    }

    #[test]
    fn all_of_the_window_before_at_its_end_is_the_worst_case() {
        check(
            &counter(4, 1000),
            "
            999.999999 x4 pass
            1250          pass
            1500          pass
            1750          pass
            1999.999998   block rate 0.000002
            2000          pass
            ",
        );
    }

    #[test]
    fn an_edit_keeps_what_is_used() {
        Timeline::new(&counter(4, 1000))
            .check("900  x4 pass")
            .edit(&counter(6, 1000), &[Change::Converted])
            .check("1000 x2 pass")
            .check("1000    block rate 250")
            // Both counts began in the current window of ten seconds.
            .edit(&counter(6, 10_000), &[Change::Converted])
            .check("9999    block rate 1667.666667")
            .edit(&counter(6, 1000), &[Change::Converted])
            .check("9999    block rate 167.666667");
    }

    #[test]
    fn a_shorter_window_forgets_the_one_before() {
        Timeline::new(&counter(4, 1000))
            .check("900  x4 pass")
            .edit(&counter(4, 100), &[Change::Converted])
            .check("1010    block rate 15")
            .edit(&counter(4, 1000), &[Change::Converted])
            .edit(&counter(4, 100), &[Change::Converted])
            .check("1250 x4 pass");
    }
}

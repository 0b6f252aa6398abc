//! Fixed window: a count that starts anew with every window.
//!
//! Windows `[s, s+W)` follow the clock (`s = t − t mod W`), or each begins with the
//! first request after the last one ended. A request of cost `n` passes iff
//! `used + n ≤ N`.
//!
//! Worst case: up to `2N` pass in some `W` across a boundary (`2N − 1` where a
//! window starts with its first request); `N` in each window. It refuses what an
//! exact log would let in near a window's end.
//!
//! An edit keeps what is used in the current window. Where the window's length
//! changes, all that was used in the last one counts as used in the one that its
//! last instant, or `now`, falls in.
//!
//! Source: the counter of every textbook; `align: first_request` equals the listing
//! recorded as `seed_counter` in `tests/golden`.

use crate::flow::{
    decision::{Decision, Reason},
    rate::Rate,
    slot::{Formula, Standing, Times},
    time::Instant,
};
use core::time::Duration;

/// `rate.count()` per window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// How many, and the window.
    pub rate: Rate,
    /// Where windows begin.
    pub align: Align,
}

/// Where windows begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Align {
    /// At whole multiples of the window since the clock's zero.
    #[default]
    Clock,
    /// With the first request after the last window ended.
    FirstRequest,
}

#[derive(Debug)]
pub(super) struct FixedWindow {
    limit: u64,
    /// In nanoseconds.
    window: u64,
    align: Align,
}

/// A client's latest window.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// When it began, in nanoseconds.
    start: u64,
    /// Zero iff there was no window yet.
    used: u64,
}

impl Config {
    /// Returns the limiter.
    pub(super) const fn build(&self) -> FixedWindow {
        FixedWindow {
            limit: self.rate.count(),
            window: self.rate.window_nanos(),
            align: self.align,
        }
    }
}

impl FixedWindow {
    const fn used(&self, state: &State, now: Instant) -> u64 {
        let age = now.as_nanos().saturating_sub(state.start);
        if age < self.window { state.used } else { 0 }
    }

    const fn start(&self, now: Instant) -> u64 {
        let now = now.as_nanos();
        match self.align {
            Align::Clock => now - now % self.window,
            Align::FirstRequest => now,
        }
    }

    fn end(&self, state: &State, now: Instant) -> Duration {
        Instant::from_nanos(state.start.saturating_add(self.window)).since(now)
    }
}

impl Formula for FixedWindow {
    type State = State;

    fn limit(&self) -> u64 {
        self.limit
    }

    fn fresh(&self) -> State {
        State::default()
    }

    fn is_fresh(&self, state: &State, now: Instant) -> bool {
        self.used(state, now) == 0
    }

    fn check(&self, state: &State, now: Instant, cost: u64) -> Decision {
        if cost > self.limit {
            Decision::Block(Reason::TooCostly { limit: self.limit })
        } else if self.used(state, now).saturating_add(cost) > self.limit {
            Decision::Block(Reason::Rate { retry_after: self.end(state, now) })
        } else {
            Decision::Pass
        }
    }

    fn standing(&self, state: &State, now: Instant) -> Standing {
        match self.used(state, now) {
            0 => Standing::default(),
            used => Standing { used, reset: self.end(state, now) },
        }
    }

    fn charge(&self, state: &mut State, times: Times, cost: u64) {
        let used = self.used(state, times.now);
        if used == 0 {
            state.start = self.start(times.now);
        }
        state.used = used.saturating_add(cost);
    }

    fn convert(&self, old: &Self, state: &mut State, now: Instant) {
        if (self.window, self.align) == (old.window, old.align) || self.align != Align::Clock {
            return;
        }
        let last = (state.start.saturating_add(old.window) - 1).min(now.as_nanos());
        let start = self.start(now);
        *state = State { start, used: if last < start { 0 } else { state.used } };
    }
}

//! Fixed window: a count that starts anew with every window.
//!
//! Windows `[s, s+W)` follow the clock (`s = t − t mod W`), or each begins with the
//! first request after the last one ended (the very first one with the clock), or they
//! are the days, weeks or months of a [`Calendar`], which differ in length. A request of cost `n` passes iff
//! `used + n ≤ N`.
//!
//! Worst case: up to `2N` pass in some `W` across a boundary (`2N − 1` where a
//! window starts with its first request, but `2N` across the end of the clock's very
//! first window, which starts with the clock); `N` in each window. It refuses what an
//! exact log would let in near a window's end.
//!
//! A request with priority over the limit may borrow from the window that opens next:
//! it waits until then and is counted there. At most `N` are lent of a window, and what
//! is lent is used when it opens.
//!
//! With `first_request`, a client's place in a table goes to another one window after its
//! own ended. Earlier, its client could pass in a window of others for want of room that
//! is about to end, and at once in the next: up to `3N − 2` in some `W`.
//!
//! An edit keeps what is used in the current window. If it changes the window, all
//! that was used in the one that `now` falls in counts as used in the new one that
//! `now` falls in. One with `first_request` keeps its beginning, so that it may be over;
//! where that is not known, as in the clock's very first window, or something was borrowed, one that would be over ends as the
//! old one, or after the new length, whichever comes first.
//!
//! Source: the counter of every textbook; `align: first_request` equals the listing
//! recorded as `seed_counter` in `tests/golden`.

use crate::flow::{
    calendar::Calendar,
    decision::{Decision, Reason},
    rate::Rate,
    slot::{Formula, Standing, Times},
    time::Instant,
};
use core::time::Duration;

/// `rate.count()` per window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// How many, and the window; of a calendar, its longest one.
    pub rate: Rate,
    /// Where windows begin.
    pub align: Align,
}

/// Where windows begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Align {
    /// At whole multiples of the window since the clock's zero.
    #[default]
    Clock,
    /// With the first request after the last window ended; the first one at the clock's zero.
    FirstRequest,
    /// With the windows of a calendar.
    Calendar(Calendar),
}

impl Align {
    /// Returns the calendar, if windows follow one.
    pub const fn calendar(&self) -> Option<&Calendar> {
        match self {
            Self::Clock | Self::FirstRequest => None,
            Self::Calendar(calendar) => Some(calendar),
        }
    }
}

#[derive(Debug)]
pub(super) struct FixedWindow {
    limit: u64,
    /// In nanoseconds.
    window: u64,
    align: Align,
}

/// A client's latest window.
#[derive(Clone, Debug)]
pub(super) struct State {
    /// When it ends; the clock's zero if there was none yet.
    end: Instant,
    used: u64,
    /// What was borrowed from the window that opens then.
    loan: u64,
}

impl Config {
    /// Returns the limiter.
    pub(super) fn build(&self) -> FixedWindow {
        let window = self.rate.window_nanos();
        FixedWindow { limit: self.rate.count(), window, align: self.align.clone() }
    }
}

impl State {
    /// Returns the state of a window that ends then, of which so much is used.
    pub(super) const fn stored(end: Instant, used: u64) -> Self {
        Self { end, used, loan: 0 }
    }

    /// Returns when the window ends.
    pub(super) const fn end(&self) -> Instant {
        self.end
    }

    /// Returns what is used in it.
    pub(super) const fn used(&self) -> u64 {
        self.used
    }
}

impl FixedWindow {
    /// Returns the state with the window that `now` falls in, if that is open.
    fn as_of(&self, state: &State, now: Instant) -> State {
        if now < state.end {
            return state.clone();
        }
        if state.loan > 0 {
            let next = State { end: self.end(state.end), used: state.loan, loan: 0 };
            if now < next.end {
                return next;
            }
        }
        self.fresh()
    }

    /// Returns when all of `state` is over.
    fn last_end(&self, state: &State) -> Instant {
        if state.loan > 0 { self.end(state.end) } else { state.end }
    }

    /// Returns when a window ends that is opened at `now`.
    fn end(&self, now: Instant) -> Instant {
        match &self.align {
            Align::Clock => now + Duration::from_nanos(self.window - now.as_nanos() % self.window),
            // The first window begins with the clock, as a counter's does that is made then.
            Align::FirstRequest if now.as_nanos() < self.window => {
                Instant::EPOCH + Duration::from_nanos(self.window)
            }
            Align::FirstRequest => now + Duration::from_nanos(self.window),
            Align::Calendar(calendar) => calendar.window(now).1,
        }
    }

    /// Returns whether windows that end then, which two began by their own first requests,
    /// have time in common.
    pub(super) fn overlaps(&self, one: Instant, other: Instant) -> bool {
        let apart = one.since(other).max(other.since(one));
        self.align == Align::FirstRequest && apart < Duration::from_nanos(self.window)
    }

    /// Returns when the window of `state` began, which is not over.
    fn start(&self, state: &State, now: Instant) -> Instant {
        match &self.align {
            Align::Clock | Align::FirstRequest => state.end - Duration::from_nanos(self.window),
            Align::Calendar(calendar) => calendar.window(now).0,
        }
    }
}

impl Formula for FixedWindow {
    type State = State;

    fn limit(&self) -> u64 {
        self.limit
    }

    fn fresh(&self) -> State {
        State { end: Instant::EPOCH, used: 0, loan: 0 }
    }

    fn is_fresh(&self, state: &State, now: Instant) -> bool {
        let rest = match &self.align {
            Align::Clock | Align::Calendar(_) => 0,
            Align::FirstRequest => self.window,
        };
        state.used == 0 || now >= self.last_end(state) + Duration::from_nanos(rest)
    }

    fn check(&self, state: &State, now: Instant, cost: u64) -> Decision {
        let State { end, used, loan } = self.as_of(state, now);
        if cost > self.limit {
            Decision::Block(Reason::TooCostly { limit: self.limit })
        } else if used.saturating_add(cost) <= self.limit {
            Decision::Pass
        } else {
            // The next window may be lent out.
            let is_lent = loan.saturating_add(cost) > self.limit;
            let opens = if is_lent { self.end(end) } else { end };
            Decision::Block(Reason::Rate { retry_after: opens.since(now) })
        }
    }

    fn loan(&self, state: &State, now: Instant, cost: u64) -> Option<Duration> {
        let State { end, loan, .. } = self.as_of(state, now);
        (loan.saturating_add(cost) <= self.limit).then(|| end.since(now))
    }

    fn standing(&self, state: &State, now: Instant) -> Standing {
        match self.as_of(state, now) {
            State { used: 0, .. } => Standing::default(),
            State { end, used, loan: 0 } => Standing { used, reset: end.since(now) },
            State { end, used, .. } => Standing { used, reset: self.end(end).since(now) },
        }
    }

    fn charge(&self, state: &mut State, times: Times, cost: u64) {
        *state = self.as_of(state, times.now);
        if times.own > times.now {
            state.loan = state.loan.saturating_add(cost);
            return;
        }
        if state.used == 0 {
            state.end = self.end(times.now);
        }
        state.used = state.used.saturating_add(cost);
    }

    fn convert(&self, old: &Self, state: &mut State, now: Instant) {
        let current = old.as_of(state, now);
        if current.used == 0 {
            *state = State { end: old.last_end(state), loan: 0, ..*state };
            return;
        }
        *state = current;
        let State { used, loan, .. } = *state;
        let end = match &self.align {
            align if (self.window, align) == (old.window, &old.align) => return,
            Align::Clock | Align::Calendar(_) => self.end(now),
            Align::FirstRequest => {
                let window = Duration::from_nanos(self.window);
                let end = old.start(state, now) + window;
                // A beginning that moved with each edit would put off the end for ever. That
                // of the clock's very first window is nobody's first request.
                let is_of_clock = state.end == Instant::EPOCH + Duration::from_nanos(old.window);
                let is_known = old.align == Align::FirstRequest && loan == 0 && !is_of_clock;
                if is_known || end > now { end } else { state.end.min(now + window) }
            }
        };
        // What was borrowed starts when the old window ends.
        *state = if end > state.end {
            State { end, used: used.saturating_add(loan), loan: 0 }
        } else {
            State { end, used, loan }
        };
    }
}

#[cfg(test)]
mod tests;

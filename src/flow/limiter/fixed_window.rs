//! Fixed window: a count that starts anew with every window.
//!
//! Windows `[s, s+W)` follow the clock (`s = t − t mod W`), or each begins with the
//! first request after the last one ended (the very first one with the clock), or they
//! are the days, weeks or months of a [`Calendar`], which differ in length. A request of cost `n` passes iff
//! `used + n ≤ N`.
//!
//! Worst case: up to `2N` pass in some `W` across a boundary (`2N − 1` where a
//! window starts with its first request, but `2N` across the end of the clock's very
//! first window, which starts with the clock); `N` in each window. It rejects what an
//! exact log would let in near a window's end.
//!
//! A request with priority over the limit may borrow from the window that opens next:
//! it waits until then and is counted there. At most `N` are lent of a window, and what
//! is lent is used when it opens.
//!
//! With `first_request`, a client that lost its place in a table and comes back is taken to begin
//! a window then, with what it had used: its own may end earlier.
//!
//! An edit keeps what is used in the current window. If it changes the window, all
//! that was used in the one that `now` falls in counts as used in the new one that
//! `now` falls in. One with `first_request` keeps its beginning, so that it may be over;
//! where that is not known, as in the clock's very first window, one that would be over ends as the
//! old one, or after the new length, whichever comes first. What was lent keeps its start, and is
//! used in whichever window that falls in; if that is in its midst, one with `first_request` lasts
//! its length from there.
//!
//! Where windows that began with first requests come to follow the clock or a calendar, the latest
//! lasts until a boundary at or after its end (after its new length, if that is less), with all that
//! was lent of the next; also if it was over by less than its length. Else a short stretch up to the boundary had let `N` more pass.
//!
//! Source: the counter of every textbook; `align: first_request` equals the listing
//! recorded as `seed_counter` in `tests/golden`.

use super::{
    by_wall::FollowsWall,
    loans::{Loan, Loans},
};
use crate::flow::{
    calendar::Calendar,
    decision::{Decision, Reason, ReasonKind},
    keyed::{PastUsage, Scale},
    rate::Rate,
    time::Instant,
    traits::{Evictable, Lends, Limiter, Times, Usage},
};
use core::time::Duration;

/// The last instant of a window is so much before its end.
const TICK: Duration = Duration::from_nanos(1);

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
pub(in crate::flow) struct FixedWindow {
    limit: u64,
    /// In nanoseconds.
    window: u64,
    align: Align,
}

/// A client's latest window.
#[derive(Clone, Debug)]
pub(in crate::flow) struct State {
    /// When it ends; the clock's zero if there was none yet.
    end: Instant,
    used: u64,
    /// What starts later than the latest charge.
    loans: Loans,
}

/// A window of a client's, with all that starts in it.
#[derive(Clone, Copy, Debug)]
struct Window {
    end: Instant,
    used: u64,
}

impl Config {
    /// Returns the limiter.
    pub(in crate::flow) fn build(&self) -> FixedWindow {
        let window = self.rate.window_nanos();
        FixedWindow { limit: self.rate.count(), window, align: self.align.clone() }
    }
}

impl State {
    /// Returns the state of a window that ends then, of which so much is used.
    pub(in crate::flow) fn stored(end: Instant, used: u64) -> Self {
        Self { end, used, loans: Loans::default() }
    }

    /// Returns when the window ends.
    pub(in crate::flow) const fn end(&self) -> Instant {
        self.end
    }

    /// Returns what is used in it.
    pub(in crate::flow) const fn used(&self) -> u64 {
        self.used
    }
}

impl FixedWindow {
    /// Returns the window that the latest of `loans` start in, if they follow on `state`'s.
    fn after(&self, state: &State, loans: &[Loan]) -> Window {
        let latest = Window { end: state.end, used: state.used };
        loans.iter().fold(latest, |window, loan| self.with(window, *loan))
    }

    /// Returns `window` with a loan, or the one that this opens.
    fn with(&self, window: Window, Loan { start, count }: Loan) -> Window {
        // Only an edit leaves a loan in the midst of a window, and both may be full. An end that
        // heeds the first start alone would have the next edit forget the loan.
        let used = if start < window.end { window.used } else { 0 };
        let end = self.end(window.end, start).max(window.end);
        Window { end, used: used.saturating_add(count) }
    }

    /// Returns the window of `now`, or, if none is open, the one of a request that comes then.
    fn window(&self, state: &State, now: Instant) -> Window {
        let (due, later) = state.loans.split(now);
        let open = self.after(state, due);
        let open =
            if now < open.end { open } else { Window { end: self.end(open.end, now), used: 0 } };
        let within = |window: Window, loan: &Loan| {
            if loan.start < window.end { self.with(window, *loan) } else { window }
        };
        later.iter().fold(open, within)
    }

    /// Returns when the window is over that is in the way of a request at `now`: the one that
    /// is open, or else that of the next loan.
    fn over(&self, state: &State, now: Instant) -> Instant {
        let (due, later) = state.loans.split(now);
        let Window { end, .. } = self.after(state, due);
        if now < end { end } else { later.first().map_or(now, |it| self.end(end, it.start)) }
    }

    fn fits(&self, state: &State, now: Instant, cost: u64) -> bool {
        self.window(state, now).used.saturating_add(cost) <= self.limit
    }

    /// Returns when all of `state` is over.
    fn last_end(&self, state: &State) -> Instant {
        self.after(state, state.loans.as_slice()).end
    }

    /// Counts the loans that have started by `now` in their windows.
    fn settle(&self, state: &mut State, now: Instant) {
        let mut window = Window { end: state.end, used: state.used };
        state.loans.settle(now, |loan| window = self.with(window, loan));
        (state.end, state.used) = (window.end, window.used);
    }

    /// Returns when a window ends that is opened at `now`; the one before it ended at `last`.
    fn end(&self, last: Instant, now: Instant) -> Instant {
        match &self.align {
            Align::Clock => now + Duration::from_nanos(self.window - now.as_nanos() % self.window),
            // The first window begins with the clock, as a counter's does that is made then. After
            // an edit a later one may be as near to the clock's zero, and is as long as any.
            Align::FirstRequest if last == Instant::EPOCH && now.as_nanos() < self.window => {
                Instant::EPOCH + Duration::from_nanos(self.window)
            }
            Align::FirstRequest => now + Duration::from_nanos(self.window),
            Align::Calendar(calendar) => calendar.window(now).1,
        }
    }

    /// Returns whether windows that end then, which two began by their own first requests,
    /// have time in common.
    pub(in crate::flow) fn overlaps(&self, one: Instant, other: Instant) -> bool {
        let apart = one.since(other).max(other.since(one));
        self.align == Align::FirstRequest && apart < Duration::from_nanos(self.window)
    }

    /// Returns when the window of `state` began.
    fn start(&self, state: &State) -> Instant {
        match &self.align {
            Align::Clock | Align::FirstRequest => state.end - Duration::from_nanos(self.window),
            Align::Calendar(calendar) => calendar.window(state.end - TICK).0,
        }
    }

    /// Returns when the window of `old` ends for a limiter that follows the clock: with a
    /// boundary, but not before it has lasted, nor those that follow of which was lent.
    fn aligned_end(&self, old: &Self, state: &State, now: Instant) -> Instant {
        let end = old.last_end(state);
        let begin = end - Duration::from_nanos(old.window);
        let lasts = end.min(begin + Duration::from_nanos(self.window));
        // What is used by now was used before the end.
        let last = (lasts - TICK).max(now.min(end - TICK));
        self.end(state.end, last)
    }

    /// Returns when the open window of `old` ends for a limiter whose windows begin with
    /// their first requests.
    fn free_end(&self, old: &Self, state: &State, now: Instant) -> Instant {
        let window = Duration::from_nanos(self.window);
        let begin = old.start(state);
        // A beginning that moved with each edit would put off the end for ever. That of the
        // clock's very first window is no client's first request, nor is one to come, where an
        // edit put the end off to a boundary.
        let is_of_clock = state.end == Instant::EPOCH + Duration::from_nanos(old.window);
        let is_known = old.align == Align::FirstRequest && !is_of_clock;
        if begin <= now && (is_known || begin + window > now) {
            begin + window
        } else {
            state.end.min(now + window)
        }
    }
}

impl Limiter for FixedWindow {
    type State = State;

    fn limit(&self) -> u64 {
        self.limit
    }

    fn fresh(&self) -> State {
        State::stored(Instant::EPOCH, 0)
    }

    fn is_fresh(&self, state: &State, now: Instant) -> bool {
        let rest = match &self.align {
            Align::Clock | Align::Calendar(_) => 0,
            Align::FirstRequest => self.window,
        };
        let is_unused = state.used == 0 && state.loans.is_empty();
        is_unused || now >= self.last_end(state) + Duration::from_nanos(rest)
    }

    fn check(&self, state: &State, now: Instant, cost: u64) -> Decision {
        if cost > self.limit {
            return Decision::Reject(Reason::TooCostly {
                limit: self.limit,
                kind: ReasonKind::Rate,
            });
        }
        let mut opening = now;
        while !self.fits(state, opening, cost) {
            opening = self.over(state, opening);
        }
        match opening.since(now) {
            Duration::ZERO => Decision::Pass,
            retry_after => Decision::Reject(Reason::Rate { retry_after }),
        }
    }

    fn usage(&self, state: &State, now: Instant) -> Usage {
        match self.window(state, now) {
            Window { used: 0, .. } => Usage::default(),
            Window { end, used } => Usage { used, reset: self.last_end(state).max(end).since(now) },
        }
    }

    fn charge(&self, state: &mut State, Times { now, own, .. }: Times, cost: u64) {
        self.settle(state, now);
        if own > now {
            state.loans.add(own, cost);
        } else if now < state.end && state.used > 0 {
            state.used = state.used.saturating_add(cost);
        } else {
            (state.end, state.used) = (self.end(state.end, now), cost);
        }
    }

    fn convert(&self, old: &Self, state: &mut State, now: Instant) {
        old.settle(state, now);
        if (self.window, &self.align) == (old.window, &old.align) {
            return;
        }
        if old.is_fresh(state, now) {
            // Its place in a table may have been another's since; no later edit may show it.
            state.used = 0;
            return;
        }
        let is_open = now < state.end;
        match &self.align {
            Align::Clock | Align::Calendar(_) if old.align == Align::FirstRequest => {
                state.end = self.aligned_end(old, state, now);
            }
            Align::Clock | Align::Calendar(_) if is_open => state.end = self.end(state.end, now),
            Align::FirstRequest if is_open => state.end = self.free_end(old, state, now),
            Align::Clock | Align::FirstRequest | Align::Calendar(_) => {}
        }
    }

    fn lends(&self) -> Option<&dyn Lends<Self::State>> {
        Some(self)
    }
}

impl Evictable for FixedWindow {
    /// What is lent, and a window that an edit has made last longer than one that opens now, is
    /// not said by a count.
    fn is_held(&self, state: &State, now: Instant) -> bool {
        let open = self.window(state, now);
        !state.loans.split(now).1.is_empty() || open.end > self.end(open.end, now)
    }

    fn scale(&self, now: Instant) -> Scale {
        Scale::Counts(match &self.align {
            Align::FirstRequest => now.as_nanos() / self.window,
            Align::Clock | Align::Calendar(_) => {
                let end = self.end(Instant::EPOCH, now).as_nanos();
                // Calendars have no numbers, and of some windows' ends the last bits are equal.
                end ^ end >> 32
            }
        })
    }

    fn past_usage(&self, state: &State, now: Instant) -> PastUsage {
        let Scale::Counts(generation) = self.scale(now) else { return PastUsage::NONE };
        PastUsage::counted(generation, [self.window(state, now).used, 0])
    }

    /// As if a window with a first request had begun just now: it ends later, but none follows so
    /// soon that more than is promised would pass.
    fn absorb(&self, state: &mut State, usage: PastUsage, now: Instant) {
        let Scale::Counts(generation) = self.scale(now) else { return };
        let [current, last] = usage.counts(generation);
        let used = match &self.align {
            Align::FirstRequest => current.max(last),
            Align::Clock | Align::Calendar(_) => current,
        };
        self.settle(state, now);
        if now < state.end && state.used > 0 {
            state.used = state.used.max(used);
            if self.align == Align::FirstRequest {
                state.end = state.end.max(self.end(Instant::EPOCH, now));
            }
        } else if used > 0 {
            (state.end, state.used) = (self.end(Instant::EPOCH, now), used);
        }
    }
}

impl Lends<State> for FixedWindow {
    fn loan(&self, state: &State, now: Instant, cost: u64) -> Option<Duration> {
        // Only the next window is lent.
        let next = self.over(state, now);
        self.fits(state, next, cost).then(|| next.since(now))
    }
}

impl FollowsWall for FixedWindow {
    fn step(&self, state: &mut State, from: Instant, to: Instant) {
        let (back, ahead) = (from.since(to), to.since(from));
        if self.align == Align::FirstRequest {
            // As long as it was: no user knows these windows by the clock.
            state.end =
                if state.end == Instant::EPOCH { state.end } else { state.end + ahead - back };
            return state.loans.shift(back, ahead);
        }
        self.settle(state, from);
        let last = self.last_end(state);
        let next = self.end(to, self.end(to, to));
        if back.is_zero() || last <= next {
            return;
        }
        // The window is far ahead now: what is used of it counts in the one of `to`.
        if last <= from {
            state.used = 0;
        }
        state.end = self.end(to, to);
        state.loans.shift(back, ahead);
    }
}

#[cfg(test)]
mod tests;

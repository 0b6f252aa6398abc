//! Fixed window: a count per window.
//!
//! Windows `[s, s+W)` follow the clock (`s = t − t mod W`), begin with the first request after the
//! previous one ended (the very first at the epoch), or are the days, weeks or months of a
//! [`Calendar`], which differ in length. A request of cost `n` passes iff `used + n ≤ N`.
//!
//! Worst case: `N` in each window, and up to `2N` in some `W` across a boundary (`2N − 1` where a
//! window starts with its first request, except at the end of the epoch's window). Near a window's
//! end it rejects requests that an exact log would pass.
//!
//! A request with priority may borrow from the next window: it waits until that opens and is
//! counted there. At most `N` are lent of a window.
//!
//! With `first_request`, an evicted client that returns begins a window then, with its previous
//! usage; its own window may have ended earlier.
//!
//! An edit keeps the usage of the current window. If it changes the window, the usage counts in the
//! new window of `now`. With `first_request` that window keeps its beginning, so that it may be
//! over; where the beginning is not known, it ends like the old one or after the new length,
//! whichever is first. A loan keeps its start and counts in that window; if it starts amid a window
//! with `first_request`, that one lasts its length from there.
//!
//! After an edit from windows that begin with first requests to a clock or calendar, the latest one,
//! also if it ended less than its length ago, lasts until a boundary at or after its end (after its
//! new length, if that is less), with all loans from the next. Otherwise a short time up to the
//! boundary would let `N` more pass.
//!
//! Source: the counter of every textbook; `align: first_request` equals the listing
//! recorded as `seed_counter` in `tests/golden`.

use super::{
    Evictable, GivenBack, Lends, Limiter, Times, Transfer, Usage,
    by_wall::FollowsWall,
    loans::{Loan, Loans},
};
use crate::flow::{
    calendar::Calendar,
    decision::{Decision, Reason},
    keyed::{PastUsage, Scale},
    rate::Rate,
    time::Instant,
};
use core::time::Duration;
use serde::{Deserialize, Serialize};

/// The distance of a window's last instant from its end.
const TICK: Duration = Duration::from_nanos(1);

/// `rate.count()` per window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// The count and the window; for a calendar its longest one.
    pub rate: Rate,
    /// Where windows begin.
    pub align: Align,
}

/// Where windows begin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Align {
    /// At multiples of the window since the epoch.
    #[default]
    Clock,
    /// With the first request after the previous window; the very first at the epoch.
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
    /// Its end; the epoch if there was none yet.
    end: Instant,
    used: u64,
    /// Loans that start after the latest charge.
    loans: Loans,
}

/// A client's window with the loans that start in it.
#[derive(Clone, Copy, Debug)]
struct Window {
    end: Instant,
    used: u64,
}

impl Config {
    pub(in crate::flow) fn build(&self) -> FixedWindow {
        let window = self.rate.window_nanos();
        FixedWindow { limit: self.rate.count(), window, align: self.align.clone() }
    }
}

impl State {
    /// Returns the state of a window with this end and usage.
    pub(in crate::flow) fn stored(end: Instant, used: u64) -> Self {
        Self { end, used, loans: Loans::default() }
    }

    pub(in crate::flow) const fn end(&self) -> Instant {
        self.end
    }

    pub(in crate::flow) const fn used(&self) -> u64 {
        self.used
    }
}

impl FixedWindow {
    /// Returns the window of the last of `loans` if they follow `state`'s.
    fn after(&self, state: &State, loans: &[Loan]) -> Window {
        let latest = Window { end: state.end, used: state.used };
        loans.iter().fold(latest, |window, loan| self.with(window, *loan))
    }

    /// Returns `window` with a loan, or the one that the loan opens.
    fn with(&self, window: Window, Loan { start, count }: Loan) -> Window {
        // Only an edit leaves a loan inside a window, and both may be full. The later end keeps the
        // loan over the next edit.
        let used = if start < window.end { window.used } else { 0 };
        let end = self.end(window.end, start).max(window.end);
        Window { end, used: used.saturating_add(count) }
    }

    /// Returns the open window, or the one of a request at `now`.
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

    /// Returns the end of the window that keeps a request out at `now`: the open one or that of the
    /// next loan.
    fn over(&self, state: &State, now: Instant) -> Instant {
        let (due, later) = state.loans.split(now);
        let Window { end, .. } = self.after(state, due);
        if now < end { end } else { later.first().map_or(now, |loan| self.end(end, loan.start)) }
    }

    fn fits(&self, state: &State, now: Instant, cost: u64) -> bool {
        self.window(state, now).used.saturating_add(cost) <= self.limit
    }

    /// Returns the end of the last window with usage.
    fn last_end(&self, state: &State) -> Instant {
        self.after(state, state.loans.as_slice()).end
    }

    /// Moves the loans started by `now` into their windows.
    fn settle(&self, state: &mut State, now: Instant) {
        let mut window = Window { end: state.end, used: state.used };
        state.loans.settle(now, |loan| window = self.with(window, loan));
        state.end = window.end;
        state.used = window.used;
    }

    /// Returns the end of a window that opens at `now`, after one that ended at `last`.
    fn end(&self, last: Instant, now: Instant) -> Instant {
        match &self.align {
            Align::Clock => now + Duration::from_nanos(self.window - now.as_nanos() % self.window),
            // The first window begins at the epoch, like that of a counter made then. After an edit
            // a later one may be near the epoch, with full length.
            Align::FirstRequest if last == Instant::EPOCH && now.as_nanos() < self.window => {
                Instant::EPOCH + Duration::from_nanos(self.window)
            }
            Align::FirstRequest => now + Duration::from_nanos(self.window),
            Align::Calendar(calendar) => calendar.window(now).1,
        }
    }

    /// Returns whether two windows with these ends, begun by different first requests, overlap.
    pub(in crate::flow) fn overlaps(&self, one: Instant, other: Instant) -> bool {
        let apart = one.since(other).max(other.since(one));
        self.align == Align::FirstRequest && apart < Duration::from_nanos(self.window)
    }

    /// Returns whether a charge at `at` counts in the latest window of `state`.
    pub(in crate::flow) fn counts(&self, state: &State, at: Instant) -> bool {
        match &self.align {
            Align::Clock | Align::Calendar(_) => self.end(Instant::EPOCH, at) == state.end,
            Align::FirstRequest => self.start(state) <= at && at < state.end,
        }
    }

    /// Returns when the window of `state` began.
    fn start(&self, state: &State) -> Instant {
        match &self.align {
            Align::Clock | Align::FirstRequest => state.end - Duration::from_nanos(self.window),
            Align::Calendar(calendar) => calendar.window(state.end - TICK).0,
        }
    }

    /// Returns the end of `old`'s window under a clock or calendar: a boundary at or after its end,
    /// also for following windows with loans.
    fn aligned_end(&self, old: &Self, state: &State, now: Instant) -> Instant {
        let end = old.last_end(state);
        let begin = end - Duration::from_nanos(old.window);
        let lasts = end.min(begin + Duration::from_nanos(self.window));
        // Usage up to now was before the end.
        let last = (lasts - TICK).max(now.min(end - TICK));
        self.end(state.end, last)
    }

    /// Returns the end of `old`'s open window under `first_request`.
    fn free_end(&self, old: &Self, state: &State, now: Instant) -> Instant {
        let window = Duration::from_nanos(self.window);
        let begin = old.start(state);
        // A beginning that moved with each edit would postpone the end forever. The epoch's window
        // began with no client's request, and one that an edit prolonged to a boundary may begin in
        // the future.
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
            return Decision::too_costly(self.limit);
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
            state.end = self.end(state.end, now);
            state.used = cost;
        }
    }

    fn give_back(&self, state: &mut State, part: &GivenBack) {
        let Some(at) = part.receipt.at else { return };
        self.settle(state, part.now);
        if self.counts(state, at) {
            state.used = state.used.saturating_sub(part.cost);
        }
    }

    fn moves_charges(&self, old: &Self) -> bool {
        (self.window, &self.align) != (old.window, &old.align)
    }

    fn convert(&self, old: &Self, state: &mut State, now: Instant) {
        old.settle(state, now);
        if (self.window, &self.align) == (old.window, &old.align) {
            return;
        }
        if old.is_fresh(state, now) {
            // Its place may have been another client's; no later edit may show it.
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
    /// A count cannot express loans, nor a window that an edit prolonged.
    fn is_held(&self, state: &State, now: Instant) -> bool {
        let open = self.window(state, now);
        !state.loans.split(now).1.is_empty() || open.end > self.end(open.end, now)
    }

    fn scale(&self, now: Instant) -> Scale {
        Scale::Counts(match &self.align {
            Align::FirstRequest => now.as_nanos() / self.window,
            Align::Clock | Align::Calendar(_) => {
                let end = self.end(Instant::EPOCH, now).as_nanos();
                // Calendar windows have no numbers, and some ends share their low bits.
                end ^ end >> 32
            }
        })
    }

    fn past_usage(&self, state: &State, now: Instant) -> PastUsage {
        let Scale::Counts(generation) = self.scale(now) else { return PastUsage::NONE };
        PastUsage::counted(generation, [self.window(state, now).used, 0])
    }

    /// As if a window with a first request began now: it ends later, but the next one follows no
    /// sooner than promised.
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
            state.end = self.end(Instant::EPOCH, now);
            state.used = used;
        }
    }
}

impl Lends<State> for FixedWindow {
    fn loan(&self, state: &State, now: Instant, cost: u64) -> Option<Duration> {
        // Only the next window lends.
        let next = self.over(state, now);
        self.fits(state, next, cost).then(|| next.since(now))
    }
}

impl Transfer for FixedWindow {
    fn export(&self, state: &State) -> Vec<u64> {
        [state.end.as_nanos(), state.used].into_iter().chain(state.loans.numbers()).collect()
    }

    fn import(&self, numbers: &[u64]) -> Option<State> {
        let &[end, used, ref loans @ ..] = numbers else { return None };
        Some(State { end: Instant::from_nanos(end), used, loans: Loans::of_numbers(loans)? })
    }
}

impl FollowsWall for FixedWindow {
    fn step(&self, state: &mut State, from: Instant, to: Instant) {
        let back = from.since(to);
        let ahead = to.since(from);
        if self.align == Align::FirstRequest {
            // These windows do not follow the clock and keep their length.
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
        // The window is far ahead now: its usage counts in the one of `to`.
        if last <= from {
            state.used = 0;
        }
        state.end = self.end(to, to);
        state.loans.shift(back, ahead);
    }
}

#[cfg(test)]
mod tests;

//! Sliding window: a ring of buckets, of which the latest count.
//!
//! `b` buckets of length `L = W/b` follow the clock. A bucket counts while it begins
//! after `t − W`; with `strict`, while any part of it is younger than that, for
//! which one more is kept. A request of cost `n` passes iff their sum `+ n ≤ N`.
//!
//! Worst case: `N` pass in any `W·(1 − 1/b)`, and up to `2N` in a whole `W`, since
//! a bucket is forgotten up to `W/b` early. With `strict`, `N` in any `W`; it may
//! refuse for up to `W/b` longer, about `1/(2b)` below the limit in steady traffic.
//! With `b = 1` it is the fixed window of the clock.
//!
//! An edit of the count alone keeps the buckets. Where their length changes, each
//! is counted in the new bucket of its last instant (never in the future): nothing
//! is forgotten before its time, and a shorter window forgets what it must.
//!
//! Source: Sentinel `LeapArray` and `DefaultController` (equal to them, decision
//! for decision, while the clock does not step back).

use crate::flow::{
    decision::{Decision, Reason},
    rate::Rate,
    slot::{Formula, Standing, Times},
    time::Instant,
    window::{Grid, Ring},
};
use core::{num::NonZeroU32, time::Duration};

/// `rate.count()` in the latest buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// How many, and the window.
    pub rate: Rate,
    /// In how many buckets the window is cut; none is taken for one.
    pub buckets: u32,
    /// Whether the expiring bucket counts whole, so that the bound is hard.
    pub strict: bool,
}

#[derive(Debug)]
pub(super) struct SlidingWindow {
    limit: u64,
    grid: Grid,
    /// Buckets that count.
    span: u32,
}

/// A client's buckets. The latest is not empty, unless all are.
pub(super) type State = Ring<u64>;

impl Config {
    /// Returns the limiter.
    pub(super) fn build(&self) -> SlidingWindow {
        let buckets = NonZeroU32::new(self.buckets).unwrap_or(NonZeroU32::MIN);
        SlidingWindow {
            limit: self.rate.count(),
            grid: Grid::new(self.rate.window, buckets.into()),
            span: buckets.get().saturating_add(self.strict.into()),
        }
    }
}

impl SlidingWindow {
    /// Returns what a state takes beside its own size.
    pub(super) const fn heap_bytes(&self) -> usize {
        self.span as usize * size_of::<u64>()
    }

    fn used(&self, ring: &State, now: Instant) -> u64 {
        let counts = ring.live(self.grid.index(now)).map(|(_, count)| *count);
        counts.fold(0, u64::saturating_add)
    }

    /// Returns the time until bucket `index` is forgotten.
    fn expiry(&self, index: u64, now: Instant) -> Duration {
        self.grid.start(index.saturating_add(u64::from(self.span))).since(now)
    }
}

impl Formula for SlidingWindow {
    type State = State;

    fn limit(&self) -> u64 {
        self.limit
    }

    fn fresh(&self) -> State {
        Ring::new(self.span)
    }

    fn is_fresh(&self, ring: &State, now: Instant) -> bool {
        self.grid.index(now).saturating_sub(ring.head()) >= ring.span() || self.used(ring, now) == 0
    }

    fn check(&self, ring: &State, now: Instant, cost: u64) -> Decision {
        if cost > self.limit {
            return Decision::Block(Reason::TooCostly { limit: self.limit });
        }
        let mut used = self.used(ring, now);
        if used.saturating_add(cost) <= self.limit {
            return Decision::Pass;
        }
        let mut last = ring.head();
        for (index, count) in ring.live(self.grid.index(now)) {
            used -= count;
            if used.saturating_add(cost) <= self.limit {
                last = index;
                break;
            }
        }
        Decision::Block(Reason::Rate { retry_after: self.expiry(last, now) })
    }

    fn standing(&self, ring: &State, now: Instant) -> Standing {
        match self.used(ring, now) {
            0 => Standing::default(),
            used => Standing { used, reset: self.expiry(ring.head(), now) },
        }
    }

    fn charge(&self, ring: &mut State, times: Times, cost: u64) {
        let count = ring.advance(self.grid.index(times.now));
        *count = count.saturating_add(cost);
    }

    fn convert(&self, old: &Self, ring: &mut State, now: Instant) {
        if (self.grid, self.span) == (old.grid, old.span) {
            return;
        }
        let mut converted = self.fresh();
        let current = self.grid.index(now);
        for (index, count) in ring.live(old.grid.index(now)).filter(|(_, count)| **count > 0) {
            let end = old.grid.start(index + 1) - Duration::from_nanos(1);
            let into = converted.advance(self.grid.index(end.min(now)).min(current));
            *into = into.saturating_add(*count);
        }
        *ring = converted;
    }
}

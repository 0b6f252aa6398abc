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

/// What a client used.
#[derive(Clone, Debug)]
pub(super) struct State {
    /// By bucket. The latest is not empty, unless all are.
    ring: Ring<u64>,
    /// The sum of the ring as of its latest bucket.
    sum: u64,
}

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

    fn used(state: &State, index: u64) -> u64 {
        let State { ring, sum } = state;
        match index.saturating_sub(ring.head()) {
            // Nothing was forgotten since, or all.
            0 => *sum,
            age if age >= ring.span() => 0,
            _ => ring.live(index).map(|(_, count)| *count).fold(0, u64::saturating_add),
        }
    }

    fn add(state: &mut State, index: u64, count: u64) {
        state.sum = Self::used(state, index).saturating_add(count);
        let bucket = state.ring.advance(index);
        *bucket = bucket.saturating_add(count);
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
        State { ring: Ring::new(self.span), sum: 0 }
    }

    fn is_fresh(&self, state: &State, now: Instant) -> bool {
        Self::used(state, self.grid.index(now)) == 0
    }

    fn check(&self, state: &State, now: Instant, cost: u64) -> Decision {
        if cost > self.limit {
            return Decision::Block(Reason::TooCostly { limit: self.limit });
        }
        let index = self.grid.index(now);
        let mut used = Self::used(state, index);
        if used.saturating_add(cost) <= self.limit {
            return Decision::Pass;
        }
        let enough = state.ring.live(index).find(|(_, count)| {
            used = used.saturating_sub(**count);
            used.saturating_add(cost) <= self.limit
        });
        let last = enough.map_or_else(|| state.ring.head(), |(index, _)| index);
        Decision::Block(Reason::Rate { retry_after: self.expiry(last, now) })
    }

    fn standing(&self, state: &State, now: Instant) -> Standing {
        match Self::used(state, self.grid.index(now)) {
            0 => Standing::default(),
            used => Standing { used, reset: self.expiry(state.ring.head(), now) },
        }
    }

    fn charge(&self, state: &mut State, times: Times, cost: u64) {
        Self::add(state, self.grid.index(times.now), cost);
    }

    fn convert(&self, old: &Self, state: &mut State, now: Instant) {
        if (self.grid, self.span) == (old.grid, old.span) {
            return;
        }
        let mut converted = self.fresh();
        let current = self.grid.index(now);
        let buckets = state.ring.live(old.grid.index(now));
        for (index, count) in buckets.filter(|(_, count)| **count > 0) {
            let end = old.grid.start(index + 1) - Duration::from_nanos(1);
            Self::add(&mut converted, self.grid.index(end.min(now)).min(current), *count);
        }
        *state = converted;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{
        Algorithm, Change, Rules,
        timeline::{Timeline, check, one, rate},
    };

    fn per(count: u64, window: u64, buckets: u32) -> Rules {
        let rate = rate(count, window);
        one(Algorithm::SlidingWindow(Config { rate, buckets, strict: false }))
    }

    fn strict(count: u64, window: u64, buckets: u32) -> Rules {
        let rate = rate(count, window);
        one(Algorithm::SlidingWindow(Config { rate, buckets, strict: true }))
    }

    #[test]
    fn a_bucket_is_forgotten_when_it_begins_a_window_ago() {
        check(
            &per(3, 1000, 10),
            "
            50   pass
            150  pass
            250  pass
            999  block rate 1
            1000 pass
            1000 block rate 100
            1100 pass
            1199 block rate 1
            9000 x3 pass
            9000 block rate 1000
            ",
        );
    }

    #[test]
    fn a_costly_request_waits_for_as_many_buckets_as_it_needs() {
        check(
            &per(4, 1000, 10),
            "
            50         pass
            150        pass
            250 cost=2 pass
            900        block rate 100
            900 cost=2 block rate 200
            900 cost=3 block rate 300
            900 cost=4 block rate 300
            900 cost=5 block costly 4
            ",
        );
    }

    #[test]
    fn one_bucket_is_the_fixed_window() {
        check(
            &per(2, 100, 1),
            "
            99  x2 pass
            99  block rate 1
            100 x2 pass
            199 block rate 1
            ",
        );
    }

    #[test]
    fn strict_counts_the_expiring_bucket_whole() {
        check(
            &strict(2, 1000, 10),
            "
            90   x2 pass
            1000 block rate 100
            1099.999999 block rate 0.000001
            1100 pass
            ",
        );
    }

    #[test]
    fn buckets_need_not_be_whole_nanoseconds() {
        check(
            &per(1, 1000, 3),
            "
            333.333333 pass
            1333 block rate 0
            "
            .replace("1333 block rate 0", "1333 pass")
            .as_str(),
        );
        check(
            &per(1, 1000, 3),
            "
            333.333334 pass
            1333 block rate 0.333334
            1333.333333 block rate 0.000001
            1333.333334 pass
            ",
        );
    }

    #[test]
    fn an_edit_keeps_what_is_used() {
        Timeline::new(&per(3, 1000, 10))
            .check("50 x3 pass")
            .edit(&per(4, 1000, 10), &[Change::Converted])
            .check("500 pass")
            .check("500 block rate 500")
            .edit(&per(4, 1000, 5), &[Change::Converted])
            .check("999 block rate 1")
            .check("1000 x3 pass")
            .edit(&strict(4, 1000, 5), &[Change::Converted])
            .check("1500 block rate 100")
            .check("1600 pass");
    }

    #[test]
    fn a_shorter_window_forgets_older_buckets() {
        Timeline::new(&per(9, 1000, 10))
            .check("50 x4 pass")
            .check("850 x4 pass")
            .edit(&per(5, 200, 10), &[Change::Converted])
            .check("950 pass")
            .check("950 block rate 90");
    }
}

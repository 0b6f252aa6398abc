//! The statistic slot: what a route has seen, in all and lately.
//!
//! It records decisions and ends; it never decides. The flow slots own the exact
//! counters that they decide by. Totals equal the sum of decisions: every arrival is
//! passed or blocked once, and every passed one completes, fails or is cancelled
//! once.
//!
//! The last second is kept in 10 buckets of 100 ms, the last minute in 60 of 1 s,
//! both aligned to the clock and current one included, so that a "second" is between
//! 0.9 s and 1 s long, a "minute" between 59 s and 60 s. They take 5 KB, from a
//! route's first request on.

use super::{
    decision::Outcome,
    keyed::Keys,
    slot::{SlotId, Times},
    time::Instant,
    window::{Grid, Ring},
};
use core::{num::NonZeroU64, time::Duration};
use std::sync::Arc;

/// What happened in some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Requests admitted.
    pub passed: u64,
    /// Of those, requests that had to wait for their start.
    pub waited: u64,
    /// Requests refused.
    pub blocked: u64,
    /// Admitted requests that were answered in full.
    pub completed: u64,
    /// Admitted requests whose upstream failed or ran out of time.
    pub failed: u64,
    /// Admitted requests whose client left.
    pub cancelled: u64,
    /// The time from start to end of all that completed or failed.
    pub latency_sum: Duration,
    /// The shortest of them.
    pub latency_min: Option<Duration>,
    /// The wait of all that waited.
    pub wait_sum: Duration,
}

impl Sums {
    fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.waited += other.waited;
        self.blocked += other.blocked;
        self.completed += other.completed;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
        self.latency_sum += other.latency_sum;
        self.latency_min = match (self.latency_min, other.latency_min) {
            (Some(mine), Some(theirs)) => Some(mine.min(theirs)),
            (mine, theirs) => mine.or(theirs),
        };
        self.wait_sum += other.wait_sum;
    }
}

/// Upper bounds of the wait histogram's buckets; a last one has none. From one turn
/// of a fast pacer to the longest wait that a client still sits out.
pub const WAIT_BOUNDS: [Duration; 12] = [
    Duration::from_millis(1),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_millis(2_500),
    Duration::from_secs(5),
    Duration::from_secs(10),
];

/// What a route has seen, as of an instant.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// All of it.
    pub totals: Sums,
    /// The last second.
    pub last_second: Sums,
    /// The last minute.
    pub last_minute: Sums,
    /// Requests admitted and not yet ended, waiting ones included.
    pub in_flight: u64,
    /// The most there were at a time.
    pub in_flight_max: u64,
    /// Of those in flight, requests whose start is yet to come. One that left
    /// while it waited counts until then.
    pub waiting: u64,
    /// Requests that waited up to each of [`WAIT_BOUNDS`] but not up to the one
    /// before, then the rest.
    pub waits: [u64; WAIT_BOUNDS.len() + 1],
    /// The rules in the chain's order, pacing last.
    pub rules: Vec<RuleObservation>,
}

/// What a rule has decided, as of an instant.
#[derive(Clone, Debug)]
pub struct RuleObservation {
    /// The rule's name; pacing's is `pacing`.
    pub name: Arc<str>,
    /// Its slot.
    pub slot: SlotId,
    /// Its algorithm's word; pacing's is `pacing`.
    pub algorithm: &'static str,
    /// Whether it only counts what it would refuse.
    pub dry_run: bool,
    /// The most that one client may use.
    pub limit: u64,
    /// What is used, of the state that requests without a key share.
    pub used: u64,
    /// The decisions.
    pub counts: Counts,
    /// The number of keys, if it has keys.
    pub keys: Option<Keys>,
}

/// The decisions of one rule. They outlive edits of the rule, resets included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Admitted requests that it let pass at once.
    pub passed: u64,
    /// Admitted requests that it made wait.
    pub delayed: u64,
    /// Requests refused for its reason. A route's `blocked` is the sum over rules.
    pub blocked: u64,
    /// Requests that it would have refused in earnest.
    pub dry_run_blocked: u64,
}

/// The slot.
#[derive(Debug, Default)]
pub(super) struct Statistic {
    totals: Sums,
    in_flight: u64,
    in_flight_max: u64,
    waits: [u64; WAIT_BOUNDS.len() + 1],
    /// From the first request on: most of many routes are never called.
    recent: Option<Box<Recent>>,
}

#[derive(Debug)]
struct Recent {
    second: Ring<Sums>,
    minute: Ring<Sums>,
}

const SECOND: Grid = grid(100_000_000);
const SECOND_BUCKETS: u32 = 10;
const MINUTE: Grid = grid(1_000_000_000);
const MINUTE_BUCKETS: u32 = 60;

/// Returns the grid of buckets `length` nanoseconds long.
const fn grid(length: u64) -> Grid {
    match NonZeroU64::new(length) {
        Some(length) => Grid::new(length, NonZeroU64::MIN),
        None => Grid::new(NonZeroU64::MIN, NonZeroU64::MIN),
    }
}

impl Recent {
    fn new() -> Self {
        Self { second: Ring::new(SECOND_BUCKETS), minute: Ring::new(MINUTE_BUCKETS) }
    }
}

impl Statistic {
    /// Counts an admitted request.
    pub(super) fn on_pass(&mut self, times: Times) {
        self.in_flight += 1;
        self.in_flight_max = self.in_flight_max.max(self.in_flight);
        let wait = times.start.since(times.now);
        let mut sums = Sums { passed: 1, ..Sums::default() };
        if !wait.is_zero() {
            sums.waited = 1;
            sums.wait_sum = wait;
            self.waits[WAIT_BOUNDS.partition_point(|bound| *bound < wait)] += 1;
        }
        self.add(times.now, &sums);
    }

    /// Counts a refused request.
    pub(super) fn on_block(&mut self, now: Instant) {
        self.add(now, &Sums { blocked: 1, ..Sums::default() });
    }

    /// Counts the end of a request that was allowed to begin at `start`.
    pub(super) fn on_done(&mut self, now: Instant, start: Instant, outcome: Outcome) {
        self.in_flight = self.in_flight.saturating_sub(1);
        let timed = |at: Instant| {
            let latency = at.since(start);
            Sums { latency_sum: latency, latency_min: Some(latency), ..Sums::default() }
        };
        let sums = match outcome {
            Outcome::Success { at } => Sums { completed: 1, ..timed(at) },
            Outcome::Failure { at } => Sums { failed: 1, ..timed(at) },
            Outcome::Cancelled => Sums { cancelled: 1, ..Sums::default() },
        };
        self.add(now, &sums);
    }

    /// Returns what was seen, without `waiting` and rules, which others know.
    pub(super) fn observe(&self, now: Instant) -> Observation {
        let recent = self.recent.as_deref();
        Observation {
            totals: self.totals,
            last_second: recent.map(|it| sum(&it.second, SECOND, now)).unwrap_or_default(),
            last_minute: recent.map(|it| sum(&it.minute, MINUTE, now)).unwrap_or_default(),
            in_flight: self.in_flight,
            in_flight_max: self.in_flight_max,
            waits: self.waits,
            ..Observation::default()
        }
    }

    fn add(&mut self, now: Instant, sums: &Sums) {
        self.totals.add(sums);
        let recent = self.recent.get_or_insert_with(|| Box::new(Recent::new()));
        recent.second.advance(SECOND.index(now)).add(sums);
        recent.minute.advance(MINUTE.index(now)).add(sums);
    }
}

fn sum(ring: &Ring<Sums>, grid: Grid, now: Instant) -> Sums {
    let mut sums = Sums::default();
    ring.live(grid.index(now)).for_each(|(_, bucket)| sums.add(bucket));
    sums
}

//! A route's statistics: totals and recent windows.
//!
//! It records decisions and ends; flow slots keep their own exact counters. Totals equal the sum of
//! decisions: every arrival is passed, delayed or rejected once, and every admitted one completes,
//! fails or is cancelled once.
//!
//! The last second has 10 buckets of 100 ms, the last minute 60 of 1 s, aligned to the clock with
//! the current one included: 0.9 s to 1 s, and 59 s to 60 s. They take 5 KB from a route's first
//! request on.

use super::{
    decision::{Outcome, ReasonKind, SlotId},
    keyed::{Churn, Keys},
    limit_change::AutoStats,
    limiter::breaker,
    time::{Instant, nanos},
    window::{Grid, Ring},
};
use core::{cmp::Reverse, mem::swap, num::NonZeroU64, ops::AddAssign, time::Duration};
use std::{collections::BinaryHeap, sync::Arc};

/// Counts over some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Requests that started at once.
    pub passed: u64,
    /// Requests that had to wait for their start.
    pub delayed: u64,
    /// Requests rejected.
    pub rejected: u64,
    /// Admitted requests that were answered in full.
    pub completed: u64,
    /// Admitted requests whose upstream failed or ran out of time.
    pub failed: u64,
    /// Admitted requests whose client left.
    pub cancelled: u64,
    /// The time from start to end, summed over completed and failed requests.
    pub latency_sum: Duration,
    /// The shortest of them.
    pub latency_min: Option<Duration>,
    /// The waits of delayed requests, summed.
    pub wait_sum: Duration,
}

/// Upper bounds of the wait histogram's buckets; the last bucket has none.
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

/// A route's statistics at an instant.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// Since the gate was opened.
    pub totals: Sums,
    /// 0.9 s to 1 s.
    pub last_second: Sums,
    /// 59 s to 60 s.
    pub last_minute: Sums,
    /// Requests admitted and not ended, waiting ones included.
    pub in_flight: u64,
    /// The maximum of `in_flight`.
    pub in_flight_max: u64,
    /// Requests in flight whose start is in the future, and those that left before theirs.
    pub waiting: u64,
    /// Waits per bucket of [`WAIT_BOUNDS`], not cumulative; the last bucket has the rest.
    pub waits: [u64; WAIT_BOUNDS.len() + 1],
    /// The rules in the chain's order, then the breaker, pacing last.
    pub rules: Vec<RuleObservation>,
}

/// A route's totals at an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests that started at once.
    pub passed: u64,
    /// Requests that had to wait for their start.
    pub delayed: u64,
    /// Requests rejected.
    pub rejected: u64,
    /// Requests admitted and not ended, waiting ones included.
    pub in_flight: u64,
    /// Requests in flight whose start is in the future.
    pub waiting: u64,
}

/// A rule's decisions at an instant.
#[derive(Clone, Debug)]
pub struct RuleObservation {
    /// True if the costs of its requests are settled after the responses.
    pub settles: bool,
    /// The rule's name, or `breaker` or `pacing`.
    pub name: Arc<str>,
    /// The rule's slot.
    pub slot: SlotId,
    /// Its algorithm's word, or `breaker` or `pacing`.
    pub algorithm: &'static str,
    /// True for a dry run: it only counts what it would reject.
    pub dry_run: bool,
    /// The most that one client may use.
    pub limit: u64,
    /// The used part of the shared state.
    pub used: u64,
    /// Since the rule was added.
    pub counts: Counts,
    /// The breaker's statistics, if this is one.
    pub breaker: Option<breaker::BreakerStats>,
    /// The number of keys, if it has keys.
    pub keys: Option<Keys>,
    /// The number of requests that wait for a place, if it has a queue.
    pub waiting: Option<u32>,
    /// The state of its limit, if that finds itself.
    pub auto: Option<AutoStats>,
    /// The number of clients that it rejects for a while, if it bans any.
    pub banned: Option<usize>,
}

/// The decisions of one rule. They outlive its edits and resets, and include those of removed
/// overrides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Admitted requests that it passed at once.
    pub passed: u64,
    /// Admitted requests that it delayed.
    pub delayed: u64,
    /// Requests rejected by it. A route's `rejected` is the sum over rules.
    pub rejected: ByReason,
    /// Requests that it would have rejected without dry run.
    pub dry_run_rejected: ByReason,
    /// The events in a full table, if it has keys.
    pub churn: Churn,
    /// The cost that was reserved for requests whose cost is settled.
    pub reserved: u64,
    /// The cost of those that were settled.
    pub settled: u64,
    /// The number of bans that began.
    pub bans: u64,
}

/// Rejected requests by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByReason([u64; ReasonKind::ALL.len()]);

impl ByReason {
    /// Returns the sum over reasons.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the count of a reason.
    pub const fn of(&self, kind: ReasonKind) -> u64 {
        self.0[kind as usize]
    }

    /// Returns the counts above zero.
    pub fn each(&self) -> impl Iterator<Item = (ReasonKind, u64)> {
        let all = ReasonKind::ALL.into_iter().zip(self.0);
        all.filter(|(_, count)| *count > 0)
    }

    pub(super) const fn add(&mut self, kind: ReasonKind) {
        self.0[kind as usize] += 1;
    }
}

impl AddAssign for ByReason {
    fn add_assign(&mut self, other: Self) {
        for (mine, others) in self.0.iter_mut().zip(other.0) {
            *mine += others;
        }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.delayed += other.delayed;
        self.rejected += other.rejected;
        self.dry_run_rejected += other.dry_run_rejected;
        self.churn += other.churn;
        self.reserved = self.reserved.saturating_add(other.reserved);
        self.settled = self.settled.saturating_add(other.settled);
        self.bans += other.bans;
    }
}

#[derive(Debug, Default)]
pub(super) struct Statistic {
    totals: Cell,
    in_flight: u64,
    in_flight_max: u64,
    /// Requests that wait for a free place.
    queued: u64,
    waits: [u64; WAIT_BOUNDS.len() + 1],
    /// From the first request on: with many routes most are never called.
    recent: Option<Box<Recent>>,
}

#[derive(Debug)]
struct Recent {
    /// The starts of waiting requests, earliest on top. Past ones are dropped when the next one
    /// waits.
    starts: BinaryHeap<Reverse<Instant>>,
    second: Ring<Cell>,
    minute: Ring<Cell>,
}

/// [`Sums`] in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Cell {
    passed: u64,
    delayed: u64,
    rejected: u64,
    completed: u64,
    failed: u64,
    cancelled: u64,
    latency_sum: u64,
    /// `u64::MAX` if nothing has ended.
    latency_min: u64,
    wait_sum: u64,
}

const SECOND: Grid = grid(100_000_000);
const SECOND_BUCKETS: u32 = 10;
const MINUTE: Grid = grid(1_000_000_000);
const MINUTE_BUCKETS: u32 = 60;

const fn grid(length: u64) -> Grid {
    match NonZeroU64::new(length) {
        Some(length) => Grid::new(length, NonZeroU64::MIN),
        None => Grid::new(NonZeroU64::MIN, NonZeroU64::MIN),
    }
}

impl Statistic {
    pub(super) fn on_pass(&mut self, now: Instant, start: Instant) {
        self.begin();
        self.count_wait(now, start.since(now));
        if start > now {
            self.recent().wait(now, start);
        }
    }

    /// Counts a request that waits for a free place.
    pub(super) fn on_wait(&mut self) {
        self.begin();
        self.queued += 1;
    }

    /// Counts the end of such a wait: the request starts at `start`, or leaves now.
    pub(super) fn on_waited(&mut self, now: Instant, arrival: Instant, start: Instant) {
        self.queued = self.queued.saturating_sub(1);
        self.count_wait(now, start.since(arrival));
        if start > now {
            self.recent().wait(now, start);
        }
    }

    /// Counts the end of such a wait of a request that does not start.
    pub(super) fn on_waited_in_vain(&mut self, now: Instant) {
        self.queued = self.queued.saturating_sub(1);
        self.in_flight = self.in_flight.saturating_sub(1);
        self.on_reject(now);
    }

    fn begin(&mut self) {
        self.in_flight += 1;
        self.in_flight_max = self.in_flight_max.max(self.in_flight);
    }

    fn count_wait(&mut self, now: Instant, wait: Duration) {
        if wait.is_zero() {
            return self.count(now, |cell| cell.passed += 1);
        }
        self.waits[WAIT_BOUNDS.partition_point(|bound| *bound < wait)] += 1;
        self.count(now, |cell| {
            cell.delayed += 1;
            cell.wait_sum += nanos(wait);
        });
    }

    pub(super) fn on_reject(&mut self, now: Instant) {
        self.count(now, |cell| cell.rejected += 1);
    }

    /// Counts the end of a request that was allowed to begin at `start`.
    pub(super) fn on_done(&mut self, now: Instant, start: Instant, outcome: Outcome) {
        self.in_flight = self.in_flight.saturating_sub(1);
        let end = |cell: &mut Cell, at: Instant| {
            let latency = nanos(at.since(start));
            cell.latency_sum += latency;
            cell.latency_min = cell.latency_min.min(latency);
        };
        self.count(now, |cell| match outcome {
            Outcome::Success { at } => {
                cell.completed += 1;
                end(cell, at);
            }
            Outcome::Failure { at } => {
                cell.failed += 1;
                end(cell, at);
            }
            Outcome::Cancelled => cell.cancelled += 1,
        });
    }

    /// Takes over what `old` has counted, all but its requests in flight: those here stay.
    pub(super) fn take_history(&mut self, old: &mut Self, now: Instant) {
        self.totals = old.totals;
        self.waits = old.waits;
        self.in_flight_max = old.in_flight_max.max(self.in_flight);
        let Some(before) = old.recent.as_deref_mut() else {
            self.recent = None;
            return;
        };
        let recent = self.recent();
        swap(&mut recent.second, &mut before.second);
        swap(&mut recent.minute, &mut before.minute);
        recent.starts.retain(|Reverse(start)| *start > now);
    }

    /// Returns the statistics without the rules.
    pub(super) fn observe(&self, now: Instant) -> Observation {
        let recent = self.recent.as_deref();
        Observation {
            totals: self.totals.into(),
            last_second: recent.map(|recent| sum(&recent.second, SECOND, now)).unwrap_or_default(),
            last_minute: recent.map(|recent| sum(&recent.minute, MINUTE, now)).unwrap_or_default(),
            in_flight: self.in_flight,
            in_flight_max: self.in_flight_max,
            waits: self.waits,
            waiting: recent.map_or(0, |recent| recent.waiting(now)) + self.queued,
            ..Observation::default()
        }
    }

    /// Returns the totals.
    pub(super) fn totals(&self, now: Instant) -> Totals {
        let Cell { passed, delayed, rejected, .. } = self.totals;
        let waiting = self.recent.as_deref().map_or(0, |recent| recent.waiting(now));
        let waiting = waiting + self.queued;
        Totals { passed, delayed, rejected, in_flight: self.in_flight, waiting }
    }

    fn recent(&mut self) -> &mut Recent {
        self.recent.get_or_insert_with(|| Box::new(Recent::new()))
    }

    fn count(&mut self, now: Instant, event: impl Fn(&mut Cell)) {
        event(&mut self.totals);
        let recent = self.recent();
        event(recent.second.advance(SECOND.index(now)));
        event(recent.minute.advance(MINUTE.index(now)));
    }
}

/// Waiting requests to reserve memory for.
const ROOM: usize = 64;

impl Recent {
    fn wait(&mut self, now: Instant, start: Instant) {
        while self.starts.peek().is_some_and(|Reverse(first)| *first <= now) {
            self.starts.pop();
        }
        self.starts.push(Reverse(start));
    }

    fn waiting(&self, now: Instant) -> u64 {
        self.starts.iter().filter(|Reverse(start)| *start > now).count() as u64
    }

    fn new() -> Self {
        Self {
            starts: BinaryHeap::with_capacity(ROOM),
            second: Ring::new(SECOND_BUCKETS),
            minute: Ring::new(MINUTE_BUCKETS),
        }
    }
}

impl Cell {
    const EMPTY: Self = Self {
        passed: 0,
        delayed: 0,
        rejected: 0,
        completed: 0,
        failed: 0,
        cancelled: 0,
        latency_sum: 0,
        latency_min: u64::MAX,
        wait_sum: 0,
    };

    fn plus(self, other: &Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            delayed: self.delayed + other.delayed,
            rejected: self.rejected + other.rejected,
            completed: self.completed + other.completed,
            failed: self.failed + other.failed,
            cancelled: self.cancelled + other.cancelled,
            latency_sum: self.latency_sum + other.latency_sum,
            latency_min: self.latency_min.min(other.latency_min),
            wait_sum: self.wait_sum + other.wait_sum,
        }
    }
}

impl Default for Cell {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl From<Cell> for Sums {
    fn from(cell: Cell) -> Self {
        Self {
            passed: cell.passed,
            delayed: cell.delayed,
            rejected: cell.rejected,
            completed: cell.completed,
            failed: cell.failed,
            cancelled: cell.cancelled,
            latency_sum: Duration::from_nanos(cell.latency_sum),
            latency_min: (cell.latency_min < u64::MAX)
                .then(|| Duration::from_nanos(cell.latency_min)),
            wait_sum: Duration::from_nanos(cell.wait_sum),
        }
    }
}

fn sum(ring: &Ring<Cell>, grid: Grid, now: Instant) -> Sums {
    ring.live(grid.index(now)).fold(Cell::EMPTY, |sum, (_, cell)| sum.plus(cell)).into()
}

//! Sliding log: the instants of admitted requests.
//!
//! A request of cost `n` passes iff the cost in the closed window `[t − W, t]` plus `n` is at most
//! `N`. A stamp exactly `W` old still counts.
//!
//! Worst case: `N` in any closed `W`, exact, and no request is rejected needlessly. Memory: 16
//! bytes per instant with admitted cost, at most `N`, allocated as the log fills. A decision takes
//! `O(log N)`.
//!
//! A cost that is settled after the response adds a stamp at that time, or leaves the stamp of its
//! request, which takes time for each stamp since. Then a log may have more stamps than `N`: one for
//! each request that cost more than was reserved.
//!
//! An edit of the count keeps the log. A longer window counts from the edit on; a shorter one
//! forgets.
//!
//! Source: the listing recorded as `seed_sliding_log` in `tests/golden`.

use super::{Evictable, GivenBack, Limiter, Times, Transfer, Usage};
use crate::flow::{
    decision::{Decision, Reason},
    keyed::{PastUsage, Scale},
    rate::Rate,
    time::{Instant, nanos},
};
use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// `rate.count()` in any window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// The count and the window.
    pub rate: Rate,
}

#[derive(Debug)]
pub(in crate::flow) struct SlidingLog {
    limit: u64,
    window: Duration,
}

/// A client's admitted requests.
#[derive(Clone, Debug, Default)]
pub(in crate::flow) struct State {
    /// Oldest first.
    stamps: VecDeque<Stamp>,
    /// The total before the oldest stamp.
    before: u64,
}

#[derive(Clone, Copy, Debug)]
struct Stamp {
    at: Instant,
    /// The total cost up to this stamp; it wraps, and sums are differences.
    total: u64,
}

/// Stamps in the first allocation.
const FIRST: usize = 4;

impl Config {
    pub(in crate::flow) const fn build(&self) -> SlidingLog {
        SlidingLog { limit: self.rate.count(), window: self.rate.window() }
    }

    /// Returns the bytes of a full log.
    pub fn full_bytes(&self) -> usize {
        let most = usize::try_from(self.rate.count()).unwrap_or(usize::MAX);
        most.saturating_mul(size_of::<Stamp>())
    }
}

impl State {
    fn total_before(&self, index: usize) -> u64 {
        let previous = index.checked_sub(1).and_then(|previous| self.stamps.get(previous));
        previous.map_or(self.before, |stamp| stamp.total)
    }

    /// Returns the cost of the stamps from `index` on.
    fn since(&self, index: usize) -> u64 {
        self.total_before(self.stamps.len()).wrapping_sub(self.total_before(index))
    }
}

impl SlidingLog {
    /// Returns the index of the oldest stamp that counts.
    fn oldest(&self, state: &State, now: Instant) -> usize {
        state.stamps.partition_point(|stamp| stamp.at + self.window < now)
    }

    fn used(&self, state: &State, now: Instant) -> u64 {
        state.since(self.oldest(state, now))
    }

    fn forget(&self, state: &mut State, now: Instant) {
        let gone = self.oldest(state, now);
        state.before = state.total_before(gone);
        state.stamps.drain(..gone);
    }

    /// Returns the generation of `now`; each is as long as a stamp counts.
    fn generation(&self, now: Instant) -> u64 {
        now.as_nanos() / self.counts_for()
    }

    fn begin(&self, generation: u64) -> Instant {
        Instant::from_nanos(generation.saturating_mul(self.counts_for()))
    }

    /// Returns how long a stamp counts, in nanoseconds.
    fn counts_for(&self) -> u64 {
        nanos(self.window).saturating_add(1)
    }

    /// Returns the time until `stamp` no longer counts.
    fn expiry(&self, stamp: Option<&Stamp>, now: Instant) -> Duration {
        let last = stamp.map_or(now, |stamp| stamp.at + self.window);
        (last + Duration::from_nanos(1)).since(now)
    }

    /// Allocates for one more stamp: twice as much, at most what the limit needs. Costs that are
    /// settled may need more.
    fn grow(&self, stamps: &mut VecDeque<Stamp>) {
        let len = stamps.len();
        if len == stamps.capacity() {
            let most = usize::try_from(self.limit).unwrap_or(usize::MAX);
            let more = match most.saturating_sub(len) {
                0 => len / 4,
                left => len.max(FIRST).min(left),
            };
            stamps.reserve_exact(more.max(1));
        }
    }
}

impl Limiter for SlidingLog {
    type State = State;

    fn limit(&self) -> u64 {
        self.limit
    }

    fn fresh(&self) -> State {
        State::default()
    }

    fn is_fresh(&self, state: &State, now: Instant) -> bool {
        state.stamps.back().is_none_or(|stamp| stamp.at + self.window < now)
    }

    fn check(&self, state: &State, now: Instant, cost: u64) -> Decision {
        let Some(most) = self.limit.checked_sub(cost) else {
            return Decision::too_costly(self.limit);
        };
        if self.used(state, now) <= most {
            return Decision::Pass;
        }
        // There is room when all but `most` have expired.
        let all = state.total_before(state.stamps.len());
        let enough = |stamp: &Stamp| all.wrapping_sub(stamp.total) > most;
        let last = state.stamps.get(state.stamps.partition_point(enough));
        Decision::Reject(Reason::Rate { retry_after: self.expiry(last, now) })
    }

    fn usage(&self, state: &State, now: Instant) -> Usage {
        match self.used(state, now) {
            0 => Usage::default(),
            used => Usage { used, reset: self.expiry(state.stamps.back(), now) },
        }
    }

    fn charge(&self, state: &mut State, times: Times, cost: u64) {
        self.forget(state, times.now);
        let total = state.total_before(state.stamps.len()).wrapping_add(cost);
        match state.stamps.back_mut() {
            Some(stamp) if stamp.at == times.now => stamp.total = total,
            _ => {
                self.grow(&mut state.stamps);
                state.stamps.push_back(Stamp { at: times.now, total });
            }
        }
    }

    fn give_back(&self, state: &mut State, part: &GivenBack) {
        let Some(at) = part.receipt.at else { return };
        let index = state.stamps.partition_point(|stamp| stamp.at < at);
        let found = state.stamps.get(index).filter(|stamp| stamp.at == at);
        let Some(stamp) = found else { return };
        let known = stamp.total.wrapping_sub(state.total_before(index));
        let cost = part.cost.min(known);

        for later in state.stamps.range_mut(index..) {
            later.total = later.total.wrapping_sub(cost);
        }
        if cost == known {
            state.stamps.remove(index);
        }
    }

    fn convert(&self, old: &Self, state: &mut State, now: Instant) {
        // Expired stamps must not return: the state may be another client's.
        old.forget(state, now);
    }
}

impl Evictable for SlidingLog {
    fn scale(&self, now: Instant) -> Scale {
        Scale::Counts(self.generation(now))
    }

    fn past_usage(&self, state: &State, now: Instant) -> PastUsage {
        let begin = self.begin(self.generation(now));
        let current = state.since(state.stamps.partition_point(|stamp| stamp.at < begin));
        PastUsage::counted(self.generation(now), [current, self.used(state, now) - current])
    }

    fn renew(&self, state: &mut State) {
        state.stamps.clear();
        state.before = 0;
    }

    /// Adds the missing usage as late as possible.
    fn absorb(&self, state: &mut State, usage: PastUsage, now: Instant) {
        let generation = self.generation(now);
        let known = self.past_usage(state, now).counts(generation);
        let [current, last] = usage.counts(generation);
        let current = current.saturating_sub(known[0]);
        let last = last.saturating_sub(known[1]);
        // Stamps are in order.
        let before = self.begin(generation) - Duration::from_nanos(1);
        let before = state.stamps.back().map_or(before, |latest| latest.at.max(before));
        for (at, cost) in [(before, last), (now, current)].into_iter().filter(|(_, cost)| *cost > 0)
        {
            self.charge(state, Times { now: at, own: at, start: at }, cost);
        }
    }
}

impl Transfer for SlidingLog {
    /// Each stamp's instant and cost.
    fn export(&self, state: &State) -> Vec<u64> {
        let cost = |at: usize| state.total_before(at + 1).wrapping_sub(state.total_before(at));
        let stamps = state.stamps.iter().enumerate();
        stamps.flat_map(|(at, stamp)| [stamp.at.as_nanos(), cost(at)]).collect()
    }

    fn import(&self, numbers: &[u64]) -> Option<State> {
        let (stamps, []) = numbers.as_chunks::<2>() else { return None };
        if !stamps.is_sorted_by_key(|[at, _]| at) {
            return None;
        }
        let mut total: u64 = 0;
        let stamps = stamps.iter().map(|[at, cost]| {
            total = total.wrapping_add(*cost);
            Stamp { at: Instant::from_nanos(*at), total }
        });
        Some(State { stamps: stamps.collect(), before: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{
        Algorithm, Change, Rules,
        timeline::{Timeline, check, keyed, one, rate},
    };

    fn log(count: u64, window: u64) -> Rules {
        one(Algorithm::SlidingLog(Config { rate: rate(count, window) }))
    }

    #[test]
    fn a_stamp_exactly_a_window_old_still_counts() {
        check(
            &log(2, 1000),
            "
            0           pass
            300         pass
            300         block rate 700.000001
            1000        block rate 0.000001
            1000.000001 pass
            1300        block rate 0.000001
            1300.000001 pass
            1300.000001 block rate 700.000001
            ",
        );
    }

    #[test]
    fn a_costly_request_waits_until_enough_is_forgotten() {
        check(
            &log(5, 1000),
            "
            0   cost=2 pass
            100        pass
            200 cost=2 pass
            300        block rate 700.000001
            300 cost=2 block rate 700.000001
            300 cost=3 block rate 800.000001
            300 cost=4 block rate 900.000001
            300 cost=6 block costly 5
            300 cost=0 pass
            1150 cost=3 pass
            ",
        );
    }

    #[test]
    fn room_is_taken_as_the_log_fills_and_only_for_what_can_be_used() {
        let limiter = Config { rate: rate(11, 1000) }.build();
        let mut state = limiter.fresh();
        let mut rooms = Vec::new();
        for nanos in 0..11 {
            let now = Instant::from_nanos(nanos);
            limiter.charge(&mut state, Times { now, own: now, start: now }, 1);
            rooms.push(state.stamps.capacity());
        }
        assert_eq!(rooms, [4, 4, 4, 4, 8, 8, 8, 8, 11, 11, 11]);
        // What comes at one instant shares a stamp.
        let mut state = limiter.fresh();
        for cost in [3, 1, 5] {
            let now = Instant::EPOCH;
            limiter.charge(&mut state, Times { now, own: now, start: now }, cost);
        }
        assert_eq!((state.stamps.len(), limiter.used(&state, Instant::EPOCH)), (1, 9));
    }

    #[test]
    fn totals_may_wrap() {
        let limiter = Config { rate: rate(3, 1000) }.build();
        let mut state = State { stamps: VecDeque::new(), before: u64::MAX - 1 };
        for nanos in 0..3 {
            let now = Instant::from_nanos(nanos);
            assert_eq!(limiter.check(&state, now, 1), Decision::Pass);
            limiter.charge(&mut state, Times { now, own: now, start: now }, 1);
        }
        let retry_after = Duration::from_nanos(1_000_000_001 - 3 + 1);
        let rejected = Decision::Reject(Reason::Rate { retry_after });
        assert_eq!(limiter.check(&state, Instant::from_nanos(3), 2), rejected);
    }

    #[test]
    fn an_edit_keeps_the_log() {
        Timeline::new(&log(3, 1000))
            .check("50 x3 pass")
            .edit(&log(4, 1000), &[Change::Converted])
            .check("500 pass")
            .check("500 block rate 550.000001")
            .edit(&log(4, 5000), &[Change::Converted])
            .check("1500 block rate 3550.000001")
            .edit(&log(1, 600), &[Change::Converted])
            .check("1500 pass");
    }

    #[test]
    fn a_longer_window_brings_nothing_back_to_another_client() {
        let rules = |window| keyed(Algorithm::SlidingLog(Config { rate: rate(2, window) }), 1);
        Timeline::new(&rules(1000))
            .check("0    key=a x2 pass")
            .check("1500 key=b    pass")
            .edit(&rules(9000), &[Change::Converted])
            .check("1500 key=b    pass")
            .check("1500 key=b    block rate 9000.000001");
    }
}

//! Pacing: evenly spaced starts, bounded waits.
//!
//! A leaky bucket as a queue. With `T = W/N`, a request of cost `n` arriving at `t`:
//!
//! ```text
//! start = max(t, next)         then  next = start + n·T
//! ```
//!
//! It is rejected iff it would wait (`start > t`) and the wait exceeds `max_wait`, or `max_queue`
//! requests already wait. First in, first out. Of a request that leaves while it waits, the place is
//! free: the next request that it suits takes it, and so starts before those that came earlier and
//! wait longer. A place suits if the request can start there, and the next one after it keeps its
//! distance. Nobody's start changes.
//!
//! `next` is kept as the last start and its cost, in units of [`Interval`](crate::flow::rate), so that
//! rounding does not add up; each start is rounded up to a nanosecond. After an edit of the rate
//! the next start keeps the new distance from the last one, unless that one's interval was over.
//!
//! With a warm-up, `n·T` follows the curve of `ramp.rs`: a cold service is called `f` times as
//! seldom. Where no request waited at `next`, a start may follow up to `cost − n·T` sooner than the
//! curve says, to make up for it: see `warmth.rs`.
//!
//! Worst case: starts `T` apart to the nanosecond, so at most `N + n` in any closed `W` whose last
//! request costs `n`; one that takes a free place and that another slot delays for longer may be nearer
//! to its neighbours. Clients' own queues hand no places back. Memory: 168 bytes per key, and up to 16
//! per waiting request, twice that where many leave.
//!
//! It is a slot of the route after all others, and also an algorithm of rules, with keys, costs,
//! exceptions and dry run.
//!
//! Source: Sentinel `ThrottlingController`, whose `latest` is the last start. It waits for a
//! request's own cost, `latest + n·T`; this waits for that of the previous one, as Guava does. For
//! cost 1 both are the same.

use super::{
    Evictable, Limiter, Spaces, Times, Transfer, Usage, halves,
    ramp::{Cold, Ramp, WarmUp},
    warmth::{Budget, Step, Warmth},
    whole,
};
use crate::flow::{
    decision::{Decision, Reason},
    keyed::PastUsage,
    rate::{Interval, Rate},
    time::Instant,
};
use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Starts at `rate`, evenly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// The rate of starts.
    pub rate: Rate,
    /// The longest wait for a start.
    pub max_wait: Duration,
    /// The most waiting requests.
    pub max_queue: u64,
    /// The warm-up of a cold service, if any.
    pub warm_up: Option<WarmUp>,
}

#[derive(Debug)]
pub(in crate::flow) struct Pacing {
    interval: Interval,
    max_wait: Duration,
    max_queue: u64,
    ramp: Option<Ramp>,
}

#[derive(Clone, Debug, Default)]
pub(in crate::flow) struct State {
    /// The last start in units of the interval, or earlier by saved time.
    last: u128,
    cost: u64,
    /// The coldness then.
    cold: Cold,
    warmth: Option<Warmth>,
    /// The starts of waiting requests. Past ones are dropped by the next charge.
    starts: VecDeque<Instant>,
    /// The places that requests freed when they left, in order. Between two of them is a start.
    gaps: VecDeque<Gap>,
}

/// A time in which a request may start, if its own interval fits into what is left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gap {
    from: Instant,
    to: Instant,
}

/// By how much an interval between two rounded starts may be too short.
const ROUNDING: Duration = Duration::from_nanos(1);

/// Waiting requests to reserve memory for. A longer queue grows; each request takes a thousand
/// times as much.
const ROOM: u64 = 1024;

/// Returns how many requests can wait one interval apart and at most `max_wait`, a started interval
/// included.
pub fn fitting(rate: Rate, max_wait: Duration) -> u64 {
    let waits = max_wait.as_nanos() * u128::from(rate.count());
    let waits = waits.div_ceil(u128::from(rate.window_nanos()));
    u64::try_from(waits).unwrap_or(u64::MAX)
}

impl Config {
    pub(in crate::flow) fn build(&self) -> Pacing {
        let Self { rate, max_wait, max_queue, warm_up } = *self;
        let ramp = warm_up.map(|warm_up| Ramp::new(rate, warm_up));
        Pacing { interval: Interval::of(rate), max_wait, max_queue, ramp }
    }

    /// Returns the most memory of a full queue's starts in bytes: twice their size, as it grows by
    /// doubling.
    pub(in crate::flow) fn full_bytes(&self) -> usize {
        let longest = Interval::of(self.rate).whole(Instant::EPOCH + self.max_wait);
        let places = longest.saturating_add(1).min(self.max_queue).saturating_mul(2).max(4);
        usize::try_from(places).unwrap_or(usize::MAX).saturating_mul(size_of::<Instant>())
    }
}

impl Pacing {
    fn next(&self, state: &State) -> u128 {
        let cost = match self.ramp {
            None => self.interval.times(state.cost),
            Some(ramp) => ramp.cost(state.cold, state.cost),
        };
        state.last.saturating_add(cost)
    }

    /// Returns how many requests can wait an interval apart.
    fn most_waiting(&self) -> u64 {
        let longest = self.interval.whole(Instant::EPOCH + self.max_wait).saturating_add(1);
        longest.min(self.max_queue)
    }

    /// Returns the first gap that suits a request from `from` on, and its start there.
    fn gap(&self, state: &State, from: Instant, cost: u64) -> Option<(usize, Instant)> {
        if state.gaps.is_empty() {
            return None;
        }
        let length = self.interval.duration(self.interval.times(cost)).saturating_sub(ROUNDING);
        state.gaps.iter().enumerate().find_map(|(at, gap)| {
            let start = gap.from.max(from);
            (start + length <= gap.to).then_some((at, start))
        })
    }

    /// Takes the gap at `at` for a request that begins at `start`.
    fn take_gap(&self, state: &mut State, at: usize, start: Instant, cost: u64) {
        let Some(gap) = state.gaps.get_mut(at) else { return };
        gap.from = start + self.interval.duration(self.interval.times(cost));
        // A cold service's intervals are longer than what the cost says.
        if self.ramp.is_some() || gap.from >= gap.to {
            state.gaps.remove(at);
        }
    }

    /// Returns the start behind all others.
    fn start(&self, state: &State, now: Instant) -> Instant {
        // Relative to `now`: long numbers take longer to divide.
        now + self.interval.duration(self.next(state).saturating_sub(self.interval.at(now)))
    }
}

impl Pacing {
    /// Decides about a request that would start at `start`. In a full queue one request leaves at
    /// `leaver`; if none may wait, only its own start helps.
    fn answer(&self, start: Instant, now: Instant, leaver: Option<Instant>) -> Decision {
        let wait = start.since(now);
        if wait.is_zero() {
            return Decision::Pass;
        }
        // The time until the wait is short enough.
        let until_short = wait.saturating_sub(self.max_wait);
        if let Some(leaver) = leaver {
            let retry_after = until_short.max(leaver.since(now));
            return Decision::Reject(Reason::QueueFull { retry_after });
        }
        match until_short {
            Duration::ZERO => Decision::Delay(wait),
            retry_after => Decision::Reject(Reason::QueueWait { wait, retry_after }),
        }
    }
}

/// Pacing by the earliest next start alone, for requests that cost at most 1: they wait an interval
/// apart, so that the queue takes no memory.
impl Pacing {
    /// Decides for a queue whose earliest next start is `next`.
    pub(in crate::flow) fn check_next(&self, next: u128, now: Instant) -> Decision {
        let ahead = next.saturating_sub(self.interval.at(now));
        let start = now + self.interval.duration(ahead);
        let is_full = self.usage_next(next, now).used >= self.max_queue;
        let leaver = is_full.then(|| match self.max_queue {
            0 => start,
            places => self.interval.instant(next.saturating_sub(self.interval.times(places))),
        });
        self.answer(start, now, leaver)
    }

    /// Returns the earliest next start after a charge of `cost`.
    pub(in crate::flow) fn charge_next(&self, next: u128, now: Instant, cost: u64) -> u128 {
        next.max(self.interval.at(now)).saturating_add(self.interval.times(cost))
    }

    pub(in crate::flow) fn usage_next(&self, next: u128, now: Instant) -> Usage {
        let ahead = next.saturating_sub(self.interval.at(now));
        Usage {
            used: self.interval.count(ahead).saturating_sub(1),
            reset: self.interval.duration(ahead),
        }
    }
}

impl State {
    /// Returns the starts that lie after `now`.
    fn waiting(&self, now: Instant) -> usize {
        self.starts.len() - self.starts.partition_point(|&start| start <= now)
    }

    /// Forgets what lies before `now`.
    fn forget_past(&mut self, now: Instant) {
        while self.starts.front().is_some_and(|&start| start <= now) {
            self.starts.pop_front();
        }
        while self.gaps.front().is_some_and(|gap| gap.to <= now) {
            self.gaps.pop_front();
        }
    }

    /// Notes a start, if it has to be waited for.
    fn wait_for(&mut self, start: Instant, now: Instant) {
        if start > now {
            let at = self.starts.partition_point(|&other| other <= start);
            self.starts.insert(at, start);
        }
    }
}

impl Limiter for Pacing {
    type State = State;

    fn limit(&self) -> u64 {
        self.max_queue
    }

    fn fresh(&self) -> State {
        let room = self.most_waiting().min(ROOM);
        let warmth = self.ramp.map(|ramp| Warmth::coldest(&ramp));
        State { starts: VecDeque::with_capacity(room as usize), warmth, ..State::default() }
    }

    fn is_fresh(&self, state: &State, now: Instant) -> bool {
        let is_cold =
            self.ramp.zip(state.warmth).is_none_or(|(ramp, warmth)| warmth.is_coldest(&ramp, now));
        is_cold && self.next(state) <= self.interval.at(now)
    }

    fn check(&self, state: &State, now: Instant, cost: u64) -> Decision {
        let start = match self.gap(state, now, cost) {
            Some((_, start)) => start,
            None => self.start(state, now),
        };
        let places = usize::try_from(self.max_queue).unwrap_or(usize::MAX);
        let leaver = (state.waiting(now) >= places).then(|| {
            let first = state.starts.len().checked_sub(places);
            first.and_then(|at| state.starts.get(at)).copied().unwrap_or(start)
        });
        self.answer(start, now, leaver)
    }

    fn usage(&self, state: &State, now: Instant) -> Usage {
        let reset = self.start(state, now).since(now);
        Usage { used: state.waiting(now) as u64, reset }
    }

    fn charge(&self, state: &mut State, times: Times, cost: u64) {
        state.forget_past(times.now);

        if let Some((at, own)) = self.gap(state, times.now, cost)
            && times.start < self.start(state, times.now)
        {
            // Its own start, or the later one that another slot requires.
            let (at, start) = self.gap(state, times.start.max(own), cost).unwrap_or((at, own));
            self.take_gap(state, at, start, cost);
            state.wait_for(start.max(times.start), times.now);
            return;
        }

        // Its own start, or the later one that another slot requires.
        let next = self.next(state);
        let own = self.start(state, times.now);
        let (begins, start) = if times.start > own {
            (times.start, self.interval.at(times.start))
        } else {
            (own, next.max(self.interval.at(times.now)))
        };

        state.last = start;
        state.cost = cost;

        if let (Some(ramp), Some(warmth)) = (&self.ramp, &mut state.warmth) {
            let budget = Budget { start, tat: next, slack: 0 };
            let Step { from, cold } = warmth.on_start(ramp, begins, budget, cost);
            state.last = from;
            state.cold = cold;
        }

        state.wait_for(begins, times.now);
    }

    fn convert(&self, old: &Self, state: &mut State, now: Instant) {
        let next = old.next(state);
        state.gaps.clear();
        // The next start keeps the curve's addition, and stays at least an interval after the last
        // one, which may be later than `last` by as much.
        let last = next.saturating_sub(old.interval.times(state.cost));
        state.last = self.interval.convert(last, old.interval);
        state.cold = 0;
        if next <= old.interval.at(now) {
            // Its interval is over.
            state.cost = 0;
        }
        state.warmth = match (&self.ramp, &old.ramp, state.warmth) {
            (Some(ramp), Some(old), Some(mut warmth)) => {
                warmth.convert(ramp, old, now);
                Some(warmth)
            }
            // A service without warm-up before is taken for warm.
            (Some(_), ..) => Some(Warmth::warm(now)),
            (None, ..) => None,
        };
    }

    fn spaces(&self) -> Option<&dyn Spaces<Self::State>> {
        Some(self)
    }
}

impl Evictable for Pacing {
    fn past_usage(&self, state: &State, _now: Instant) -> PastUsage {
        PastUsage::until(self.interval.instant(self.next(state)))
    }

    fn renew(&self, state: &mut State) {
        let mut starts = core::mem::take(&mut state.starts);
        starts.clear();
        let mut gaps = core::mem::take(&mut state.gaps);
        gaps.clear();
        let warmth = self.ramp.map(|ramp| Warmth::coldest(&ramp));
        *state = State { warmth, starts, gaps, ..State::default() };
    }

    /// Fully cold, with as many waiting as possible: an interval apart.
    fn absorb(&self, state: &mut State, usage: PastUsage, now: Instant) {
        let next = self.interval.at(usage.over());
        if next <= self.next(state) {
            return;
        }
        self.renew(state);
        state.last = next;
        let waiting = self.usage_next(next, now).used.min(self.most_waiting());
        for before in (1..=waiting).rev() {
            let start = next.saturating_sub(self.interval.times(before));
            state.starts.push_back(self.interval.instant(start));
        }
    }
}

impl Transfer for Pacing {
    fn export(&self, state: &State) -> Vec<u64> {
        let State { last, cost, cold, warmth, starts, gaps } = state;
        let warmth = warmth.map_or([0; 4], |warmth| {
            let [cold, last, due] = warmth.numbers();
            [1, cold, last, due]
        });
        let [high, low] = halves(*last);
        let gaps = gaps.iter().flat_map(|gap| [gap.from, gap.to]);
        let instants = starts.iter().copied().chain(gaps).map(Instant::as_nanos);
        let numbers = [high, low, *cost, *cold].into_iter().chain(warmth);
        numbers.chain([starts.len() as u64]).chain(instants).collect()
    }

    fn import(&self, numbers: &[u64]) -> Option<State> {
        let &[high, low, cost, cold, has_warmth, a, b, c, waiting, ref instants @ ..] = numbers
        else {
            return None;
        };
        let (starts, gaps) = instants.split_at_checked(usize::try_from(waiting).ok()?)?;
        let (pairs, []) = gaps.as_chunks::<2>() else { return None };
        let is_sorted = starts.is_sorted() && gaps.is_sorted();
        if !is_sorted || (has_warmth == 1) != self.ramp.is_some() {
            return None;
        }
        let warmth = self.ramp.as_ref().map(|ramp| Warmth::of_numbers(ramp, [a, b, c]));
        let cold = self.ramp.as_ref().map_or(0, |ramp| cold.min(ramp.coldest()));
        let mut state = State { last: whole([high, low])?, cost, cold, warmth, ..self.fresh() };
        state.starts.extend(starts.iter().map(|start| Instant::from_nanos(*start)));
        let gap = |[from, to]: [u64; 2]| Gap {
            from: Instant::from_nanos(from),
            to: Instant::from_nanos(to),
        };
        state.gaps.extend(pairs.iter().copied().map(gap));
        Some(state)
    }
}

impl Spaces<State> for Pacing {
    fn due(&self, state: &State, now: Instant) -> Instant {
        self.start(state, now)
    }

    fn abandon(&self, state: &mut State, start: Instant, now: Instant) {
        let Ok(at) = state.starts.binary_search(&start) else { return };
        if start <= now {
            return;
        }
        state.starts.remove(at);
        let before = state.gaps.partition_point(|gap| gap.to < start);
        let from = match state.gaps.get(before) {
            Some(gap) if gap.to == start => gap.from,
            Some(_) | None => start,
        };
        let Some(&to) = state.starts.get(at) else {
            // Nobody waits behind it.
            state.gaps.truncate(before);
            state.last = self.interval.at(from);
            state.cost = 0;
            return;
        };
        let behind = state.gaps.partition_point(|gap| gap.from < to);
        state.gaps.drain(before..behind);
        state.gaps.insert(before, Gap { from, to });
    }
}

#[cfg(test)]
mod tests {
    use crate::flow::{
        Algorithm, Change, Claim, Gate, Instant, Key, Permit, Rules, WarmUp,
        timeline::{Timeline, check, keyed, paced, rate},
    };
    use core::time::Duration;
    use proptest::{collection::vec, prelude::*};
    use std::sync::Arc;

    #[test]
    fn starts_are_evenly_spaced_and_waits_are_bounded() {
        check(
            &paced(rate(100, 1000), 25, 9),
            "
            0   pass
            0   wait 10
            0   wait 20
            0   block queue 30 5
            5   wait 25
            60  pass
            50  wait 20
            ",
        );
    }

    #[test]
    fn as_many_wait_as_the_queue_holds() {
        check(
            &paced(rate(100, 1000), 1000, 2),
            "
            0   pass
            0   wait 10
            0   wait 20
            0   block full 10
            9   block full 1
            10  wait 20
            10  block full 10
            ",
        );
        check(
            &paced(rate(100, 1000), 1000, 0),
            "
            0   pass
            1   block full 9
            10  pass
            ",
        );
    }

    #[test]
    fn the_next_start_waits_for_the_cost_of_the_last() {
        check(
            &paced(rate(100, 1000), 1000, 9),
            "
            0 cost=5 pass
            0        wait 50
            0 cost=2 wait 60
            0        wait 80
            0 cost=0 pass
            ",
        );
    }

    #[test]
    fn as_a_rule_it_paces_each_client_by_itself() {
        let pacing = paced(rate(100, 1000), 25, 1).pacing.expect("pacing");
        let rules = keyed(Algorithm::Pacing(pacing), 10);
        check(
            &rules,
            "
            0 key=a        pass
            0 key=a cost=2 wait 10
            0 key=a        block full 10
            0 key=b        pass
            0 key=b        wait 10
            10 key=a       wait 20
            40 key=a       pass
            ",
        );
        // What waits by two paces starts by the slower one, and counts so in both.
        let both = Rules { pacing: paced(rate(10, 1000), 1000, 9).pacing, ..rules };
        check(&both, "0 key=a pass\n0 key=b wait 100\n100 key=b wait 100\n205 key=b wait 95");
    }

    #[test]
    fn a_dry_run_counts_waits_and_delays_no_request() {
        let pacing = paced(rate(100, 1000), 25, 1).pacing.expect("pacing");
        let mut rules = keyed(Algorithm::Pacing(pacing), 10);
        rules.flow[0].dry_run = true;
        let day = Timeline::new(&rules).check("0 key=a x3 pass\n10 key=a pass");
        let counts = day.gate.observe(Instant::EPOCH).rules[0].counts;
        assert_eq!((counts.passed, counts.delayed, counts.dry_run_rejected.total()), (3, 0, 1));
    }

    #[test]
    fn a_place_that_is_left_goes_to_the_next_request_that_it_suits() {
        check(
            &paced(rate(100, 1000), 1000, 9),
            "
            0        pass
            0        wait 10
            0        wait 20
            0        wait 30
            1 done   3
            1 left   2
            1 cost=2 wait 39
            1        wait 9
            1        wait 59
            ",
        );
        // Two free starts next to each other are one, and a request that comes late starts at once.
        check(
            &paced(rate(100, 1000), 1000, 9),
            "
            0         pass
            0         wait 10
            0         wait 20
            0         wait 30
            1 done    3
            1 left    2
            1 left    1
            12 cost=2 wait 28
            12        pass
            ",
        );
        // The last one's is the next one's, whatever it costs.
        check(
            &paced(rate(100, 1000), 1000, 1),
            "
            0        pass
            0 cost=3 wait 10
            0        block full 10
            1 done   1
            1 left   0
            1 cost=5 wait 9
            ",
        );
        // A request that has started has left no place.
        check(
            &paced(rate(100, 1000), 1000, 9),
            "
            0       pass
            0       wait 10
            0       wait 20
            10 done 2
            10 left 1
            10      wait 20
            ",
        );
    }

    /// All that starts, without a queue: a request starts as soon as each earlier one's interval is
    /// over, and none begins within its own.
    struct Naive {
        starts: Vec<(u64, u64)>,
        interval: u64,
    }

    impl Naive {
        fn start(&self, now: u64, cost: u64) -> u64 {
            let ends = self.starts.iter().map(|(start, cost)| start + cost * self.interval);
            let mut candidates: Vec<u64> = ends.chain([now]).filter(|at| *at >= now).collect();
            candidates.sort_unstable();
            let fits = |at: &u64| {
                self.starts.iter().all(|(start, other)| {
                    start + other * self.interval <= *at || at + cost * self.interval <= *start
                })
            };
            candidates.into_iter().find(fits).expect("behind all others")
        }
    }

    proptest! {
        #[test]
        fn each_request_starts_as_early_as_the_spacing_allows(
            steps in vec((0_u64..25, 1_u64..4, 0_usize..12), 1..60),
        ) {
            let rules = paced(rate(100, 1000), 1_000_000, 1000);
            let gate = Arc::new(Gate::new(Instant::EPOCH));
            let slot = gate.install(&rules, Instant::EPOCH).pacing.expect("pacing");
            let millis = |at: u64| Instant::EPOCH + Duration::from_millis(at);
            let mut naive = Naive { starts: Vec::new(), interval: 10 };
            let mut now = 0;
            let mut waiting = Vec::new();
            for (pause, cost, leaver) in steps {
                now += pause;
                // One of those that wait leaves, or none.
                if leaver < waiting.len() {
                    let (start, permit): (u64, Permit) = waiting.swap_remove(leaver);
                    permit.leave(millis(now));
                    if start > now {
                        naive.starts.retain(|(other, _)| *other != start);
                    }
                }
                let claim = Claim { slot, key: Key::Shared, cost, patience: Duration::ZERO, plan: None };
                let admission = gate.enter(millis(now), &[claim]).expect("it may wait");
                let expected = naive.start(now, cost);
                prop_assert_eq!(admission.permit.start(), millis(expected));
                naive.starts.push((expected, cost));
                waiting.push((expected, admission.permit));
            }
        }
    }

    #[test]
    fn thirds_of_a_nanosecond_are_not_lost() {
        check(
            &paced(rate(3, 1000), 5000, 9),
            "
            0 pass
            0 wait 333.333334
            0 wait 666.666667
            0 wait 1000
            0 wait 1333.333334
            ",
        );
    }

    #[test]
    fn an_edit_of_the_warm_up_keeps_the_next_start() {
        let warming = |period, cold_factor| {
            let mut rules = paced(rate(10, 1000), 0, 9);
            let warm_up = WarmUp { period: Duration::from_millis(period), cold_factor };
            rules.pacing.iter_mut().for_each(|pacing| pacing.warm_up = Some(warm_up));
            rules
        };
        // The second start counts from a time before it, as some was saved up.
        for rules in [paced(rate(10, 1000), 0, 9), warming(100, 2)] {
            Timeline::new(&warming(10_000, 3))
                .check("10000 pass\n10600 pass")
                .edit(&rules, &[Change::Converted])
                .check("10699 block queue 1 1\n10700 pass");
        }
    }

    #[test]
    fn an_edited_rate_spaces_the_next_start_from_the_last() {
        Timeline::new(&paced(rate(1, 60_000), 100_000, 9))
            .check("0 pass")
            .check("1 wait 59999")
            .edit(&paced(rate(3, 1000), 100_000, 9), &[Change::Converted])
            .check("2 wait 60331.333334")
            .edit(&paced(rate(3, 1000), 60_000, 9), &[Change::Converted])
            .check("2 block queue 60664.666667 664.666667");
    }
}

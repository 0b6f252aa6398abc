//! Algorithms whose windows follow the wall clock.
//!
//! [`Instant`]s come from a clock that is never set; the wall clock differs from it by its steps
//! since the start. Windows of the clock or a calendar count in the wall clock's time.
//!
//! A step is handled like an edit: every state is [moved](FollowsWall::step) once, and decisions
//! only add an offset.

use super::{Evictable, GivenBack, Lends, Limiter, Receipt, Times, Transfer, Usage, plans::Plan};
use crate::flow::{
    decision::{Decision, PlanKey},
    keyed::{PastUsage, Scale},
    time::{Instant, WallOffset},
};
use core::time::Duration;

/// An algorithm whose windows follow the wall clock.
pub(in crate::flow) trait FollowsWall: Evictable {
    /// Moves `state` when the wall clock steps from `from` to `to`.
    ///
    /// Forward, windows that are over end. Backward, no usage is forgotten, and no client is
    /// rejected for longer than the end of the window after that of `to`.
    fn step(&self, state: &mut Self::State, from: Instant, to: Instant);
}

/// An algorithm with the wall clock's offset.
#[derive(Debug)]
pub(in crate::flow) struct ByWall<F> {
    limiter: F,
    wall: WallOffset,
}

impl<F> ByWall<F> {
    pub(in crate::flow) const fn new(limiter: F, wall: WallOffset) -> Self {
        Self { limiter, wall }
    }
}

impl<F: FollowsWall> Limiter for ByWall<F> {
    type State = F::State;

    const HAS_PLANS: bool = F::HAS_PLANS;

    fn limit(&self) -> u64 {
        self.limiter.limit()
    }

    fn limit_of(&self, state: &F::State) -> u64 {
        self.limiter.limit_of(state)
    }

    fn fresh(&self) -> F::State {
        self.limiter.fresh()
    }

    fn is_fresh(&self, state: &F::State, now: Instant) -> bool {
        self.limiter.is_fresh(state, self.wall.at(now))
    }

    #[inline]
    fn check(&self, state: &F::State, now: Instant, cost: u64) -> Decision {
        self.limiter.check(state, self.wall.at(now), cost)
    }

    #[inline]
    fn usage(&self, state: &F::State, now: Instant) -> Usage {
        self.limiter.usage(state, self.wall.at(now))
    }

    fn most_rank(&self, state: &F::State) -> u128 {
        self.limiter.most_rank(state)
    }

    fn rank(&self, state: &F::State, now: Instant) -> u128 {
        self.limiter.rank(state, self.wall.at(now))
    }

    #[inline]
    fn charge(&self, state: &mut F::State, times: Times, cost: u64) {
        let [now, own, start] = [times.now, times.own, times.start].map(|time| self.wall.at(time));
        self.limiter.charge(state, Times { now, own, start }, cost);
    }

    fn give_back(&self, state: &mut F::State, part: &GivenBack) {
        let receipt = Receipt { at: part.receipt.at.map(|at| self.wall.at(at)), ..part.receipt };
        let part = GivenBack { now: self.wall.at(part.now), receipt, ..*part };
        self.limiter.give_back(state, &part);
    }

    fn moves_charges(&self, old: &Self) -> bool {
        self.wall != old.wall || self.limiter.moves_charges(&old.limiter)
    }

    fn convert(&self, old: &Self, state: &mut F::State, now: Instant) {
        let to = self.wall.at(now);
        if self.wall != old.wall {
            old.limiter.step(state, old.wall.at(now), to);
        }
        self.limiter.convert(&old.limiter, state, to);
    }

    fn plan(&self, key: Option<PlanKey>) -> Plan {
        self.limiter.plan(key)
    }

    fn plan_of(&self, state: &F::State) -> Plan {
        self.limiter.plan_of(state)
    }

    fn follow(&self, state: &mut F::State, plan: Plan, now: Instant) {
        self.limiter.follow(state, plan, self.wall.at(now));
    }

    fn lends(&self) -> Option<&dyn Lends<Self::State>> {
        Some(self)
    }
}

impl<F: FollowsWall> Evictable for ByWall<F> {
    fn is_held(&self, state: &F::State, now: Instant) -> bool {
        self.limiter.is_held(state, self.wall.at(now))
    }

    fn scale(&self, now: Instant) -> Scale {
        self.limiter.scale(self.wall.at(now))
    }

    fn past_usage(&self, state: &F::State, now: Instant) -> PastUsage {
        self.limiter.past_usage(state, self.wall.at(now))
    }

    fn renew(&self, state: &mut F::State) {
        self.limiter.renew(state);
    }

    fn absorb(&self, state: &mut F::State, usage: PastUsage, now: Instant) {
        self.limiter.absorb(state, usage, self.wall.at(now));
    }
}

impl<F: FollowsWall> Transfer for ByWall<F> {
    fn export(&self, state: &F::State) -> Vec<u64> {
        self.limiter.export(state)
    }

    fn import(&self, numbers: &[u64]) -> Option<F::State> {
        self.limiter.import(numbers)
    }
}

impl<F: FollowsWall> Lends<F::State> for ByWall<F> {
    fn loan(&self, state: &F::State, now: Instant, cost: u64) -> Option<Duration> {
        self.limiter.lends()?.loan(state, self.wall.at(now), cost)
    }
}

#[cfg(test)]
mod tests {
    use crate::flow::{
        Algorithm, Claim, Gate, Instant, Key, Permit, Rules,
        calendar::{Calendar, Run},
        limiter::{
            fixed_window::{self, Align},
            leaky_bucket, sliding_counter, sliding_log, sliding_window, token_bucket,
        },
        time::WallOffset,
        timeline::{keyed, one, paced, rate, rule},
    };
    use core::{num::NonZeroU64, time::Duration};
    use proptest::{collection::vec, prelude::*};
    use std::{collections::BTreeSet, sync::Arc};

    const SECOND: i64 = 1_000_000_000;
    const HOUR: i64 = 3600 * SECOND;
    const DAY: i64 = 24 * HOUR;
    /// Noon of a day some weeks after the clock's zero.
    const NOON: i64 = 40 * DAY + 12 * HOUR;

    fn days() -> Align {
        let step = NonZeroU64::new(DAY.unsigned_abs()).expect("not zero");
        let runs = vec![Run { start: Instant::EPOCH, count: NonZeroU64::MAX }];
        Align::Calendar(Calendar::new("day", step, runs))
    }

    fn fixed(count: u64, align: Align) -> Algorithm {
        Algorithm::FixedWindow(fixed_window::Config { rate: rate(count, 86_400_000), align })
    }

    /// A gate whose wall clock is set.
    struct Day {
        gate: Arc<Gate>,
        rules: Rules,
        now: i64,
        wall: i64,
        permits: Vec<Permit>,
    }

    impl Day {
        fn new(rules: &Rules) -> Self {
            let gate = Arc::new(Gate::new(Instant::EPOCH));
            gate.install(rules, Instant::EPOCH);
            Self { gate, rules: rules.clone(), now: NOON, wall: 0, permits: Vec::new() }
        }

        fn now(&self) -> Instant {
            Instant::from_nanos(self.now.unsigned_abs())
        }

        /// Asks for client `key`; returns the `retry_after` of a rejection, in nanoseconds.
        fn ask(&mut self, key: u128) -> Result<(), Option<i64>> {
            let installed = self.gate.install(&self.rules, self.now());
            let slots = installed.flow.iter().chain(&installed.pacing);
            let claim = |slot: &_| Claim {
                slot: *slot,
                key: Key::Of(key),
                cost: 1,
                patience: Duration::ZERO,
                plan: None,
            };
            let claims: Vec<Claim> = slots.map(claim).collect();
            match self.gate.enter(self.now(), &claims) {
                Ok(admission) => {
                    self.permits.push(admission.permit);
                    Ok(())
                }
                Err(rejection) => Err(rejection
                    .reason
                    .retry_after()
                    .map(|wait| i64::try_from(wait.as_nanos()).expect("a short time"))),
            }
        }

        fn passed(&mut self, key: u128, times: usize) -> usize {
            (0..times).filter(|_| self.ask(key).is_ok()).count()
        }

        /// Sets the wall's clock by so much.
        fn step(&mut self, by: i64) {
            self.wall += by;
            self.gate.set_wall(WallOffset::from_nanos(self.wall), self.now());
        }

        fn pass_time(&mut self, nanos: i64) {
            self.now += nanos;
        }
    }

    /// Those that know the clock, for one client and for each.
    fn followers(count: u64) -> Vec<Rules> {
        let counter =
            Algorithm::SlidingCounter(sliding_counter::Config { rate: rate(count, 86_400_000) });
        [fixed(count, Align::Clock), fixed(count, days()), counter]
            .into_iter()
            .flat_map(|algorithm| [one(algorithm.clone()), keyed(algorithm, 10)])
            .collect()
    }

    #[test]
    fn two_a_day_are_admitted_two_days_later() {
        for rules in followers(2) {
            for ahead in [2 * DAY, 30 * DAY] {
                let mut day = Day::new(&rules);
                assert_eq!(day.passed(1, 5), 2, "{rules:?}");
                day.step(ahead);
                assert_eq!(day.passed(1, 5), 2, "{rules:?} after {ahead}");
            }
        }
    }

    #[test]
    fn a_step_over_a_windows_end_begins_the_next_and_one_within_it_nothing() {
        for align in [Align::Clock, days()] {
            for rules in [one(fixed(2, align.clone())), keyed(fixed(2, align.clone()), 10)] {
                let mut day = Day::new(&rules);
                assert_eq!(day.passed(1, 3), 2);
                assert_eq!(day.ask(1), Err(Some(12 * HOUR)));
                day.step(11 * HOUR);
                assert_eq!(day.ask(1), Err(Some(HOUR)), "Retry-After follows");
                day.step(-HOUR);
                assert_eq!(day.ask(1), Err(Some(2 * HOUR)));
                day.step(2 * HOUR - 1);
                assert_eq!(day.ask(1), Err(Some(1)));
                day.step(1);
                assert_eq!(day.passed(1, 3), 2);
                day.pass_time(DAY - 1);
                assert_eq!(day.ask(1), Err(Some(1)));
                day.pass_time(1);
                assert_eq!(day.passed(1, 3), 2);
            }
        }
    }

    #[test]
    fn what_was_used_is_not_given_again_when_a_window_comes_twice() {
        for align in [Align::Clock, days()] {
            let mut day = Day::new(&keyed(fixed(2, align), 10));
            day.pass_time(12 * HOUR - SECOND);
            assert_eq!(day.passed(1, 3), 2, "the last second of a day");
            assert_eq!(day.passed(3, 3), 2);
            day.pass_time(2 * SECOND);
            assert_eq!(day.passed(1, 3), 2, "the next day");
            day.step(-2 * SECOND);
            assert_eq!(day.passed(1, 3), 0, "the day before, once more");
            assert_eq!(day.passed(3, 3), 0, "nor is that day's own given again");
            assert_eq!(day.passed(2, 3), 2, "it had used nothing");
            day.pass_time(SECOND);
            assert_eq!(day.ask(1), Err(Some(DAY)), "the day comes a second time");
            assert_eq!(day.passed(3, 3), 2);
            day.pass_time(DAY);
            assert_eq!(day.passed(1, 3), 2);
        }
    }

    #[test]
    fn no_client_is_rejected_beyond_the_next_window_however_far_the_clock_steps_back() {
        for rules in followers(2) {
            for back in [HOUR, 13 * HOUR, DAY, 3 * DAY, 39 * DAY] {
                let mut day = Day::new(&rules);
                assert_eq!(day.passed(1, 3), 2);
                day.step(-back);
                assert_eq!(day.passed(1, 3), 0, "{rules:?} after {back}");
                day.pass_time(2 * DAY);
                assert_eq!(day.passed(1, 3), 2, "{rules:?} two days after {back}");
            }
        }
    }

    #[test]
    fn what_was_over_stays_over_after_a_long_step_back() {
        for rules in followers(2) {
            let mut day = Day::new(&rules);
            assert_eq!(day.passed(1, 3), 2);
            day.pass_time(3 * DAY);
            day.step(-30 * DAY);
            assert_eq!(day.passed(1, 3), 2, "{rules:?}");
        }
    }

    #[test]
    fn an_edit_after_a_step_keeps_the_count_and_a_new_rule_follows() {
        let free = |count| one(fixed(count, Align::FirstRequest));
        for align in [Align::Clock, days()] {
            let mut day = Day::new(&one(fixed(2, align.clone())));
            assert_eq!(day.passed(1, 3), 2);
            day.step(6 * HOUR);
            day.rules = one(fixed(3, align.clone()));
            assert_eq!(day.passed(1, 3), 1);
            assert_eq!(day.ask(1), Err(Some(6 * HOUR)));
            day.rules = free(3);
            let Err(Some(wait)) = day.ask(1) else { panic!("{align:?}: it is used up") };
            assert!((0..=DAY).contains(&wait), "{align:?}: {wait}");
            day.rules.flow.push(rule("new", fixed(1, align.clone())));
            day.pass_time(DAY);
            assert_eq!(day.passed(1, 3), 1);
            // It is 18:00 there.
            assert_eq!(day.ask(1), Err(Some(6 * HOUR)));
        }
    }

    #[test]
    fn limits_that_know_no_clock_are_not_disturbed() {
        let rate = rate(5, 60_000);
        let ring = sliding_window::Config { rate, buckets: 10, strict: false };
        let strict = sliding_window::Config { strict: true, ..ring.clone() };
        let short = fixed_window::Config { rate, align: Align::FirstRequest };
        let algorithms = [
            Algorithm::TokenBucket(token_bucket::Config { rate, burst: 5 }),
            Algorithm::LeakyBucket(leaky_bucket::Config { rate, capacity: 5 }),
            Algorithm::SlidingLog(sliding_log::Config { rate }),
            Algorithm::SlidingWindow(ring),
            Algorithm::SlidingWindow(strict),
            Algorithm::FixedWindow(short),
        ];
        let rules = algorithms
            .into_iter()
            .flat_map(|algorithm| [one(algorithm.clone()), keyed(algorithm, 10)]);
        for rules in rules.chain([paced(rate, 5_000, 9)]) {
            let mut still = Day::new(&rules);
            let mut stepped = Day::new(&rules);
            let back = 40 * DAY + HOUR;
            let steps = [DAY, -DAY, 61, -HOUR, 90 * SECOND, -40 * DAY, back - 90 * SECOND, -61];
            for (at, by) in (0..200).zip(steps.into_iter().cycle()) {
                for day in [&mut still, &mut stepped] {
                    day.pass_time(at % 7 * SECOND + at);
                }
                stepped.step(by);
                let key = u128::from(at.unsigned_abs() % 3);
                assert_eq!(stepped.ask(key), still.ask(key), "{rules:?} at {at}");
            }
            let totals = still.gate.observe(still.now()).totals;
            assert!(totals.passed + totals.delayed > 10 && totals.rejected > 10, "{rules:?}");
        }
    }

    proptest! {
        /// While the clock is never set back by more than a window in all.
        #[test]
        fn a_window_that_comes_twice_is_given_once(
            limit in 1..4_u64,
            aligned_to_calendar: bool,
            moves in vec((0..9 * HOUR, proptest::option::of(0..=DAY), 0..5_usize), 1..60),
        ) {
            let align = if aligned_to_calendar { days() } else { Align::Clock };
            let mut day = Day::new(&keyed(fixed(limit, align), 10));
            let mut shown = BTreeSet::new();
            let mut passed = 0;
            for (time, set, requests) in moves {
                day.pass_time(time);
                if let Some(ahead) = set {
                    day.step(ahead - day.wall);
                }
                shown.insert((day.now + day.wall) / DAY);
                passed += day.passed(1, requests);
            }
            prop_assert!(passed as u64 <= limit * shown.len() as u64);
            day.pass_time(2 * DAY);
            prop_assert_eq!(day.passed(1, 9) as u64, limit);
        }
    }
}

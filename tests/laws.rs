//! Laws that every rule keeps, on random days.
//!
//! A naive oracle (`laws/oracle.rs`) decides from the list of all that passed, by the
//! definitions; the chain must decide the same, and keep each algorithm's promise.

#[path = "laws/breaker.rs"]
mod breaker;
#[path = "laws/budgets.rs"]
mod budgets;
#[path = "laws/day.rs"]
mod day;
#[path = "laws/edges.rs"]
mod edges;
#[path = "laws/edits.rs"]
mod edits;
#[path = "laws/flood.rs"]
mod flood;
#[path = "laws/oracle.rs"]
mod oracle;
#[path = "laws/peek.rs"]
mod peek;
#[path = "laws/priority.rs"]
mod priority;
#[path = "laws/rejections.rs"]
mod rejections;
#[path = "laws/reservations.rs"]
mod reservations;
#[path = "laws/scale.rs"]
mod scale;
#[path = "laws/settlements.rs"]
mod settlements;
#[path = "laws/threads.rs"]
mod threads;
#[path = "laws/transfer.rs"]
mod transfer;
#[path = "laws/warm_up.rs"]
mod warm_up;

use core::time::Duration;
use day::{Day, DecidedRequest, Step, days, days_of_one, key, trials};
use flowgate::flow::{
    Algorithm, Claim, Instant, Rate, Reason, Rule, Rules, Verdict, limiter::token_bucket, pacing,
};
use oracle::Past;
use proptest::{prelude::*, test_runner::FileFailurePersistence};
use std::collections::HashMap;

/// Failing days are kept beside this file, to be played first for ever.
fn config() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::with_cases(256)
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_passes_is_what_the_definitions_say((rules, steps) in days()) {
        assert_definitions(&rules, steps);
    }

    #[test]
    fn a_rejected_request_leaves_no_trace((rules, steps) in days()) {
        let mut day = Day::new(&rules);
        for step in steps {
            let before = day.states();
            if let Some(DecidedRequest { decided: Err(_), .. }) = day.step(step) {
                prop_assert_eq!(before, day.states());
            }
        }
    }

    #[test]
    fn in_flight_returns_to_zero((rules, steps) in days()) {
        let mut day = Day::new(&rules);
        for step in steps {
            day.step(step);
            prop_assert_eq!(day.gate.observe(day.now).in_flight, day.live.len() as u64);
        }
        day.live.clear();
        prop_assert_eq!(day.gate.observe(day.now).in_flight, 0);
        // Nothing is held for anyone: after a long pause each client gets as much at
        // once as on a new day.
        for client in 0..3 {
            day.now = day.now + Duration::from_hours(1);
            let mut fresh = Day::new(&rules);
            fresh.now = day.now;
            for _ in 0..20 {
                let decided = |day: &mut Day| day.enter(day.now, client, 1).decided;
                prop_assert_eq!(decided(&mut day), decided(&mut fresh));
            }
            day.live.clear();
        }
    }

    #[test]
    fn the_order_of_slots_changes_no_decision((rules, steps) in days()) {
        let mut reversed = rules.clone();
        reversed.flow.reverse();
        let mut day = Day::new(&rules);
        let mut other = Day::new(&reversed);
        for step in steps {
            // Which reason is reported may change, but not when it is over.
            let decided = |request: Option<DecidedRequest>| {
                let when = |reason: Reason| (reason.is_lasting(), reason.retry_after());
                request.map(|request| request.decided.map_err(when))
            };
            prop_assert_eq!(decided(day.step(step)), decided(other.step(step)));
        }
    }

    #[test]
    fn a_dry_run_changes_no_decision((rules, dry, steps) in trials(), is_reserved: bool) {
        let mut tried = rules.clone();
        tried.flow.insert(0, dry);
        let mut day = Day::new(&rules);
        let mut other = Day::new(&tried);
        for step in steps {
            let request = match step {
                Step::Enter { client, cost } if is_reserved => {
                    let now = other.now;
                    let claims = other.claims(client, cost);
                    let reserved = other.gate.reserve(now, &claims);
                    Some(other.note(client, cost, reserved.map(|reservation| reservation.confirm(now, &[]))))
                }
                Step::Enter { .. } | Step::Wait(_) | Step::End(_) => other.step(step),
            };
            let decided =
                |request: &Option<DecidedRequest>| request.as_ref().map(|request| request.decided);
            prop_assert_eq!(decided(&day.step(step)), decided(&request));
            if let Some(DecidedRequest { now, decided: Ok(start), report, .. }) = request {
                prop_assert_eq!(report.wait(), start.since(now), "{:?}", report);
            }
        }
    }

    #[test]
    fn decisions_depend_on_the_rules_and_now_alone((rules, steps) in days()) {
        let mut day = Day::new(&rules);
        let mut other = Day::new(&rules);
        for step in steps {
            // Looking at it, or putting equal rules in force, changes nothing.
            other.install(&rules);
            other.gate.observe(other.now);
            prop_assert_eq!(day.step(step), other.step(step));
        }
    }

    #[test]
    fn a_clock_that_steps_back_is_held(
        (rules, steps) in days(),
        backs in prop::collection::vec(0..2_000_000_000_u64, 150),
    ) {
        let mut day = Day::new(&rules);
        let mut other = Day::new(&rules);
        for (step, back) in steps.into_iter().zip(backs) {
            match step {
                Step::Enter { client, cost } => {
                    // The clock has been seen at `now` before.
                    let seen = day.gate.enter(day.now, &[]);
                    prop_assert!(seen.is_ok());
                    let early = other.now - Duration::from_nanos(back);
                    drop(other.gate.enter(other.now, &[]));
                    let expected = day.enter(day.now, client, cost);
                    let request = other.enter(early, client, cost);
                    prop_assert_eq!(expected, request);
                }
                Step::Wait(_) | Step::End(_) => {
                    day.step(step);
                    other.step(step);
                }
            }
        }
    }

    #[test]
    fn a_lone_client_is_admitted_at_retry_after_and_not_earlier((rules, steps) in days()) {
        assert_retry_after(&rules, steps);
    }

    #[test]
    fn paced_starts_are_never_closer_than_the_interval((rules, steps) in days()) {
        let mut day = Day::new(&rules);
        let requests: Vec<DecidedRequest> =
            steps.into_iter().filter_map(|step| day.step(step)).collect();
        if let Some(pacing::Config { rate, .. }) = rules.pacing {
            assert_spaced(rate, &requests);
        }
    }

    #[test]
    fn a_report_has_what_is_used_and_when_it_is_not((rules, steps) in days_of_one()) {
        let mut day = Day::new(&rules);
        let mut oracle = Oracle::new(&rules);
        for step in steps {
            let request = day.step(step);
            oracle.learn(&day, request.as_ref());
            let Some(DecidedRequest { now, client, decided, report, cost }) = request else {
                continue;
            };
            let quota = report.quotas[0];
            prop_assert_eq!(matches!(quota.verdict, Verdict::Rejected(_)), decided.is_err());
            prop_assert_eq!(quota.wait, decided.unwrap_or(now).since(now));
            prop_assert!(quota.used <= quota.limit);
            let is_paced = matches!(rules.flow[..], [Rule { algorithm: Algorithm::Pacing(_), .. }]);
            if rules.pacing.is_none() && !is_paced {
                let left = quota.remaining();
                prop_assert!(decided.is_err() || oracle.fits(client, now, left));
                prop_assert!(left == quota.limit || !oracle.fits(client, now, left + 1));
                prop_assert!(decided.is_ok() || cost > left);
                if !matches!(rules.flow[0].algorithm, Algorithm::Concurrency(_)) {
                    prop_assert!(oracle.fits(client, now + quota.reset, quota.limit));
                    let early = now + quota.reset - Duration::from_nanos(1);
                    prop_assert!(quota.used == 0 || !oracle.fits(client, early, quota.limit));
                    let cost = quota.cost.max(1);
                    let more = (left / cost + 1) * cost;
                    match quota.growth {
                        Some(growth) => {
                            let early = now + growth - Duration::from_nanos(1);
                            prop_assert!(growth > Duration::ZERO);
                            prop_assert!(oracle.fits(client, now + growth, more));
                            prop_assert!(!oracle.fits(client, early, more));
                        }
                        None => prop_assert!(decided.is_err() || more > quota.limit),
                    }
                }
            }
        }
    }
}

#[test]
fn the_long_run_rate_of_a_token_bucket_is_exact() {
    for per_second in [1, 7, 100, 999, 2_004, 10_000, 100_000, 300_000] {
        let rate = Rate::new(per_second, Duration::from_secs(1)).expect("a rate");
        let burst = 10;
        let algorithm = Algorithm::TokenBucket(token_bucket::Config { rate, burst });
        let rules = Rules { flow: vec![day::rule(0, algorithm, false)], ..Rules::default() };
        let mut day = Day::new(&rules);
        let mut passed = 0_u64;
        while passed < 20_000 {
            let now = day.now;
            match day.enter(now, 0, 1).decided {
                Ok(_) => passed += 1,
                Err(reason) => day.now = now + reason.retry_after().expect("a rate"),
            }
            day.live.clear();
        }
        // The last of them came exactly when the rate allowed it: not a nanosecond of
        // drift, where a millionth part would be 20,000 intervals / 10^6.
        let ideal = (u128::from(passed - burst) * 1_000_000_000).div_ceil(per_second.into());
        assert_eq!(day.now.since(day::MORNING).as_nanos(), ideal, "at {per_second}/s");
    }
}

#[test]
fn the_long_run_rate_of_pacing_is_exact() {
    for per_second in [1, 7, 100, 999, 2_004, 10_000, 100_000, 300_000] {
        let rate = Rate::new(per_second, Duration::from_secs(1)).expect("a rate");
        let max_wait = Duration::from_secs(100_000);
        let pacing = Some(pacing::Config { rate, max_wait, max_queue: u64::MAX, warm_up: None });
        let mut day = Day::new(&Rules { pacing, ..Rules::default() });
        for n in 0..20_000_u128 {
            let start = day.enter(day.now, 0, 1).decided.expect("it may wait");
            let ideal = (n * 1_000_000_000).div_ceil(per_second.into());
            assert_eq!(start.since(day::MORNING).as_nanos(), ideal, "at {per_second}/s");
        }
    }
}

#[test]
fn totals_are_the_sum_of_decisions() {
    let mut runner = proptest::test_runner::TestRunner::new(config());
    let law = |(rules, steps): (Rules, Vec<Step>)| {
        let mut day = Day::new(&rules);
        let mut passed = 0;
        let mut delayed = 0;
        let mut rejected = 0;
        for request in steps.into_iter().filter_map(|step| day.step(step)) {
            match request.decided {
                Err(_) => rejected += 1,
                Ok(start) if start > request.now => delayed += 1,
                Ok(_) => passed += 1,
            }
        }
        let seen = day.gate.observe(day.now);
        let totals = seen.totals;
        prop_assert_eq!(
            (totals.passed, totals.delayed, totals.rejected),
            (passed, delayed, rejected)
        );
        let ended = totals.completed + totals.failed + totals.cancelled;
        prop_assert_eq!(ended + seen.in_flight, passed + delayed);
        prop_assert_eq!(seen.waits.iter().sum::<u64>(), delayed);
        prop_assert_eq!(
            seen.rules.iter().map(|rule| rule.counts.rejected.total()).sum::<u64>(),
            rejected
        );
        for rule in seen.rules {
            prop_assert_eq!(rule.counts.passed + rule.counts.delayed, passed + delayed);
        }
        Ok(())
    };
    runner.run(&days(), law).expect("the law holds");
}

#[test]
fn a_slot_without_a_claim_is_not_asked() {
    let limit = Algorithm::Concurrency(flowgate::flow::limiter::concurrency::Config { limit: 0 });
    let rules = Rules { flow: vec![day::rule(0, limit, false)], ..Rules::default() };
    let day = Day::new(&rules);
    assert!(day.gate.enter(day.now, &[]).is_ok());
    let claims =
        [Claim { slot: day.slots[0], key: key(1), cost: 1, patience: Duration::ZERO, plan: None }];
    assert!(day.gate.enter(day.now, &claims).is_err());
}

/// Asserts that what passes on a day is what the definitions say, and that each rule keeps
/// its promise.
fn assert_definitions(rules: &Rules, steps: Vec<Step>) {
    let mut day = Day::new(rules);
    let mut oracle = Oracle::new(rules);
    for step in steps {
        let expected = oracle.expect(&day, step);
        let request = day.step(step);
        assert_eq!(Expected::from(request.as_ref()), expected);
        oracle.learn(&day, request.as_ref());
    }
    oracle.assert_promises();
}

/// Asserts that the first to be rejected is admitted when it comes back at the stated time, and
/// that none is earlier.
fn assert_retry_after(rules: &Rules, steps: Vec<Step>) {
    let mut day = Day::new(rules);
    let rejected = steps.into_iter().find_map(|step| match day.step(step) {
        Some(DecidedRequest { client, cost, decided: Err(reason), .. }) => {
            reason.retry_after().map(|retry_after| (client, cost, retry_after))
        }
        Some(_) | None => None,
    });
    if let Some((client, cost, retry_after)) = rejected {
        day.live.clear();
        let opens = day.now + retry_after;
        assert!(retry_after > Duration::ZERO);
        assert!(day.enter(opens - Duration::from_nanos(1), client, cost).decided.is_err());
        assert!(day.enter(opens, client, cost).decided.is_ok());
    }
}

fn assert_spaced(rate: Rate, requests: &[DecidedRequest]) {
    let starts = requests
        .iter()
        .filter_map(|request| request.decided.ok().map(|start| (start, request.cost)));
    let starts: Vec<_> = starts.filter(|(_, cost)| *cost > 0).collect();
    for (at, &(first, _)) in starts.iter().enumerate() {
        let mut cost = 0;
        for pair in starts[at..].windows(2) {
            cost += pair[0].1;
            // Each start is rounded up to a whole nanosecond, so less than one can be
            // missing, however many intervals lie between.
            let units = (pair[1].0.since(first).as_nanos() + 1) * u128::from(rate.count());
            assert!(units > u128::from(cost) * u128::from(rate.window_nanos()));
        }
    }
}

/// What should become of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Nothing,
    Rejection,
    Start(Instant),
}

impl From<Option<&DecidedRequest>> for Expected {
    fn from(request: Option<&DecidedRequest>) -> Self {
        request
            .map_or(Self::Nothing, |request| request.decided.map_or(Self::Rejection, Self::Start))
    }
}

/// The naive chain.
struct Oracle {
    rules: Rules,
    /// By rule (pacing last) and client.
    pasts: HashMap<(usize, u8), Past>,
    /// That of who has not come yet.
    none: Past,
}

impl Oracle {
    fn new(rules: &Rules) -> Self {
        Self { rules: rules.clone(), pasts: HashMap::new(), none: Past::default() }
    }

    /// Returns whose state `client` uses in a rule.
    fn place(&self, rule: usize, client: u8) -> (usize, u8) {
        let keyed = self.rules.flow.get(rule).is_some_and(|rule| rule.keyed.is_some());
        (rule, if keyed { client } else { 0 })
    }

    fn past(&self, rule: usize, client: u8) -> &Past {
        self.pasts.get(&self.place(rule, client)).unwrap_or(&self.none)
    }

    /// Returns whether the first rule admits `cost` at `now`.
    fn fits(&self, client: u8, now: Instant, cost: u64) -> bool {
        oracle::passes(&self.rules.flow[0].algorithm, self.past(0, client), now, cost)
    }

    /// Returns what should become of the request that `step` brings, if it brings one.
    fn expect(&self, day: &Day, step: Step) -> Expected {
        let Step::Enter { client, cost } = step else { return Expected::Nothing };
        if cost == 0 {
            return Expected::Start(day.now);
        }
        let mut flow = self.rules.flow.iter().enumerate();
        let agreed = flow.all(|(at, rule)| {
            oracle::passes(&rule.algorithm, self.past(at, client), day.now, cost)
        });
        let flow = self.rules.flow.iter().enumerate();
        let paces = flow.filter_map(|(at, rule)| {
            if let Algorithm::Pacing(config) = &rule.algorithm { Some((at, config)) } else { None }
        });
        let last = self.rules.pacing.iter().map(|config| (self.rules.flow.len(), config));
        let mut starts = paces
            .chain(last)
            .map(|(at, config)| oracle::start(config, self.past(at, client), day.now));
        // The latest of all, or none if one rejects.
        let start = starts.try_fold(day.now, |latest, start| Some(latest.max(start?)));
        start.filter(|_| agreed).map_or(Expected::Rejection, Expected::Start)
    }

    fn learn(&mut self, day: &Day, request: Option<&DecidedRequest>) {
        let charged = request.filter(|request| request.cost > 0);
        if let Some((Ok(start), request)) = charged.map(|request| (request.decided, request)) {
            for rule in 0..=self.rules.flow.len() {
                let past = self.pasts.entry(self.place(rule, request.client)).or_default();
                past.passed.push((request.now.as_nanos(), request.cost));
                past.starts.push(start.as_nanos());
            }
        }
        for ((rule, client), past) in &mut self.pasts {
            let keyed = self.rules.flow.get(*rule).is_some_and(|rule| rule.keyed.is_some());
            let own = day.live.iter().filter(|live| !keyed || live.client == *client);
            past.in_flight = own.map(|live| live.cost).sum();
        }
    }

    fn assert_promises(&self) {
        for ((rule, _), past) in &self.pasts {
            if let Some(rule) = self.rules.flow.get(*rule) {
                oracle::assert_promise(&rule.algorithm, past);
            }
        }
    }
}

//! Laws of rules that are edited while requests come.

use crate::{
    Expected, Oracle, config,
    day::{
        Day, DecidedRequest, MORNING, Step, algorithm, days_of_one, one, rule, rules, steps,
        steps_of, windows,
    },
    oracle::{Past, assert_promise},
};
use core::time::Duration;
use flowgate::flow::{
    Algorithm, Counts, Instant, Keyed, Outcome, Rate, Rule, Rules, WarmUp,
    limiter::{
        concurrency, fixed_window, sliding_counter, sliding_log, sliding_window, token_bucket,
    },
    pacing,
};
use proptest::{collection::vec, prelude::*};

/// Returns a day in chapters, each with its own rules.
fn chapters(one_rule: bool) -> impl Strategy<Value = Vec<(Rules, Vec<Step>)>> {
    windows().prop_flat_map(move |window| {
        let rules = if one_rule { one(window).boxed() } else { rules(window).boxed() };
        vec((rules, steps(window)), 1..8)
    })
}

/// Clients of a crowded day: so many that most do not come between two edits.
const CROWD: u8 = 90;

/// Returns a day of many clients in chapters, each with its own numbers for one rule;
/// some states are converted as soon as a chapter begins, that many handfuls.
fn crowded() -> impl Strategy<Value = Vec<(Algorithm, (usize, Vec<Step>))>> {
    let algorithms = vec(windows().prop_flat_map(algorithm), 100);
    let days = windows().prop_flat_map(|window| vec((0..5_usize, steps_of(CROWD, window)), 1..12));
    (algorithms, days).prop_map(|(mut algorithms, days)| {
        let word = algorithms[0].word();
        algorithms.retain(|algorithm| algorithm.word() == word);
        algorithms.into_iter().zip(days).collect()
    })
}

/// Returns how long those wait who may borrow: less than a window, or several.
fn patience() -> impl Strategy<Value = Duration> {
    prop_oneof![Just(0), 1..200_u64, 1..20_000_000_u64, 1..3_000_000_000_u64]
        .prop_map(Duration::from_nanos)
}

/// Returns one rule, with room for `max_keys` if that is said.
pub(crate) fn crowd(algorithm: &Algorithm, max_keys: Option<u8>) -> Rules {
    let keyed = max_keys.map(|most| Keyed { by: "client_ip".into(), max_keys: most.into() });
    let rule = Rule { keyed, ..rule(0, algorithm.clone(), false) };
    Rules { flow: vec![rule], ..Rules::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn keyed_rules_are_edited_as_if_each_client_had_a_gate_of_its_own(
        chapters in crowded(),
        patience in patience(),
    ) {
        let mut all = Day::patient(patience);
        let mut own: Vec<Day> = (0..CROWD).map(|_| Day::patient(patience)).collect();
        let mut live = Vec::new();
        for (algorithm, (handfuls, steps)) in chapters {
            all.install(&crowd(&algorithm, Some(CROWD)));
            for day in &mut own {
                day.now = all.now;
                day.install(&crowd(&algorithm, None));
            }
            (0..handfuls).for_each(|_| _ = all.gate.catch_up());
            for step in steps {
                match step {
                    Step::Wait(_) => drop(all.step(step)),
                    Step::Enter { client, cost } => {
                        let day = &mut own[usize::from(client)];
                        day.now = all.now;
                        let request = all.enter(all.now, client, cost);
                        prop_assert_eq!(request, day.enter(all.now, client, cost));
                        live.extend(all.live.pop().zip(day.live.pop()));
                    }
                    Step::End(which) if !live.is_empty() => {
                        let (one, other) = live.swap_remove(which % live.len());
                        one.permit.finish(Outcome::Success { at: all.now });
                        other.permit.finish(Outcome::Success { at: all.now });
                    }
                    Step::End(_) => {}
                }
            }
        }
    }

    #[test]
    fn when_states_are_converted_changes_no_decision(
        chapters in crowded(),
        max_keys in 1..=CROWD,
        patience in patience(),
    ) {
        let mut late = Day::patient(patience);
        let mut early = Day::patient(patience);
        for (algorithm, (handfuls, steps)) in chapters {
            for day in [&mut late, &mut early] {
                day.install(&crowd(&algorithm, Some(max_keys)));
            }
            while early.gate.catch_up() {}
            (0..handfuls).for_each(|_| _ = late.gate.catch_up());
            for step in steps {
                prop_assert_eq!(late.step(step), early.step(step));
            }
        }
    }

    #[test]
    fn edits_lose_no_request_in_flight(chapters in chapters(false), patience in patience()) {
        let mut day = Day::patient(patience);
        for (rules, steps) in chapters {
            day.install(&rules);
            for step in steps {
                day.step(step);
                prop_assert_eq!(day.gate.observe(day.now).in_flight, day.live.len() as u64);
            }
        }
        day.live.clear();
        let seen = day.gate.observe(day.now);
        prop_assert_eq!(seen.in_flight, 0);
        for rule in seen.rules.iter().filter(|rule| rule.algorithm == "concurrency") {
            prop_assert_eq!(rule.used, 0);
        }
    }

    #[test]
    fn claims_made_before_an_edit_are_decided_by_the_rules_after_it(
        (mut before, mut after, (early, late)) in windows().prop_flat_map(|window| {
            (rules(window), rules(window), (steps(window), steps(window)))
        }),
        patience in patience(),
    ) {
        // A rule that is added is unknown to whoever claimed before.
        after.flow.truncate(before.flow.len());
        before.pacing = before.pacing.filter(|_| after.pacing.is_some());
        after.pacing = after.pacing.filter(|_| before.pacing.is_some());
        before.flow.truncate(after.flow.len());
        let mut day = Day::patient(patience);
        let mut other = Day::patient(patience);
        day.install(&before);
        other.install(&before);
        for step in early {
            prop_assert_eq!(day.step(step), other.step(step));
        }
        day.install(&after);
        // Its slots stay the old ones.
        other.gate.install(&after, other.now);
        for step in late {
            let expected = day.step(step);
            let mut request = other.step(step);
            let quotas = request.iter_mut().flat_map(|request| &mut request.report.quotas);
            for (quota, (old, new)) in quotas.zip(other.slots.iter().zip(&day.slots)) {
                prop_assert_eq!(quota.slot, *old);
                quota.slot = *new;
            }
            prop_assert_eq!(request, expected);
        }
    }

    #[test]
    fn edits_leave_no_trace_of_a_rejected_request(
        chapters in chapters(true),
        patience in patience(),
    ) {
        let mut day = Day::patient(patience);
        for (rules, steps) in chapters {
            day.install(&rules);
            for step in steps {
                let before = day.states();
                if let Some(DecidedRequest { decided: Err(_), .. }) = day.step(step) {
                    prop_assert_eq!(before, day.states());
                }
            }
        }
    }

    #[test]
    fn an_edit_of_the_count_alone_is_as_if_it_had_always_been_so(
        (mut rules, steps) in days_of_one(),
        counts in vec(1..12_u64, 150),
    ) {
        let mut day = Day::new(&rules);
        let mut oracle = Oracle::new(&rules);
        for (step, count) in steps.into_iter().zip(counts) {
            if rules.flow.iter_mut().all(|rule| recount(&mut rule.algorithm, count)) {
                day.install(&rules);
                oracle.rules = rules.clone();
            }
            let expected = oracle.expect(&day, step);
            let request = day.step(step);
            prop_assert_eq!(Expected::from(request.as_ref()), expected);
            oracle.learn(&day, request.as_ref());
        }
    }
}

/// Changes the count of an algorithm that counts, and returns true.
pub(crate) fn recount(algorithm: &mut Algorithm, count: u64) -> bool {
    let recount = |rate: &mut Rate| {
        *rate = Rate::new(count, rate.window()).expect("within its bounds");
    };
    match algorithm {
        Algorithm::SlidingWindow(config) => recount(&mut config.rate),
        Algorithm::SlidingLog(config) => recount(&mut config.rate),
        Algorithm::SlidingCounter(config) => recount(&mut config.rate),
        Algorithm::FixedWindow(config) => recount(&mut config.rate),
        Algorithm::Concurrency(config) => config.limit = count,
        // Another size is another share; and a pace is spaced from the last start.
        Algorithm::TokenBucket(_)
        | Algorithm::WarmUp(_)
        | Algorithm::LeakyBucket(_)
        | Algorithm::AutoConcurrency(_)
        | Algorithm::Pacing(_)
        | Algorithm::Closed
        | Algorithm::Planned(_)
        | Algorithm::Synced(_) => return false,
    }
    true
}

#[test]
fn a_thousand_edits_in_a_flood_keep_the_largest_promise() {
    for algorithm in
        [token_bucket as fn(u64) -> _, log, sliding, strict, counter, fixed, first_request]
    {
        // Two primes, so that edits meet every part of a window.
        let past = flood(|turn| one_rule(algorithm(50 + turn * 37 % 51)));
        assert_promise(&algorithm(100), &past);
        let passed = past.passed.len();
        assert!((450..=2_000).contains(&passed), "about 75 a second of 10 s: {passed}");
    }
}

#[test]
fn no_count_of_a_rule_sinks_at_an_edit() {
    let counting = |names: &[&str], algorithm: Algorithm| {
        let rule = |name: &&str| Rule {
            name: (*name).into(),
            keyed: Some(Keyed { by: "client_ip".into(), max_keys: 1 }),
            ..rule(0, algorithm.clone(), false)
        };
        Rules { flow: names.iter().map(rule).collect(), ..Rules::default() }
    };
    let mut day = Day::new(&counting(&["r other", "r"], token_bucket(2)));
    let seen = |day: &Day| {
        let mut sum = Counts::default();
        day.gate.observe(day.now).rules.into_iter().for_each(|rule| sum += rule.counts);
        sum
    };
    for client in 0..20 {
        day.enter(day.now, client % 5, 1);
    }
    let before = seen(&day);
    assert!(before.passed > 0 && before.rejected.total() > 0 && before.churn.evicted > 0);
    // An alternative is removed; then the rule is of another algorithm.
    for rules in [counting(&["r"], token_bucket(2)), counting(&["r"], log(2))] {
        day.install(&rules);
        assert_eq!(seen(&day), before);
    }
    day.enter(day.now, 8, 1);
    day.enter(day.now, 9, 1);
    assert_eq!(seen(&day).churn.evicted, before.churn.evicted + 1);
}

#[test]
fn a_thousand_edits_of_the_buckets_keep_the_widest_promise() {
    let buckets = |turn: u64| [3, 10, 5, 7][usize::try_from(turn % 4).expect("below 4")];
    let past = flood(|turn| one_rule(sliding_of(100, buckets(turn))));
    assert_promise(&sliding_of(100, 3), &past);
}

#[test]
fn a_thousand_edits_of_the_window_keep_the_shortest_promise_and_starve_nobody() {
    let of = |algorithm: fn(Rate) -> Algorithm, millis: [u64; 2]| {
        let rate = |millis| Rate::new(100, Duration::from_millis(millis)).expect("a rate");
        let past = flood(|turn| one_rule(algorithm(rate(millis[usize::from(turn % 2 == 1)]))));
        let long = millis[0].max(millis[1]);
        let short = millis[0].min(millis[1]);
        assert_promise(&algorithm(rate(short)), &past);
        // As many as the longer one alone lets pass, in 10 s.
        let passed = past.passed.len() as u64;
        let least = 100 * (10_000 / long);
        assert!(
            passed >= least,
            "{passed} with windows of {millis:?} ms: {:?}",
            algorithm(rate(1))
        );
    };
    let log = |rate| Algorithm::SlidingLog(sliding_log::Config { rate });
    let first = |rate| {
        let align = fixed_window::Align::FirstRequest;
        Algorithm::FixedWindow(fixed_window::Config { rate, align })
    };
    for millis in [[1_000, 2_000], [2_000, 1_000], [1_000, 700], [500, 10]] {
        of(log, millis);
        of(first, millis);
    }
}

#[test]
fn each_edit_that_raises_a_burst_lets_no_more_than_the_difference_pass_beyond_the_rate() {
    let bursts = |turn: u64| if turn.is_multiple_of(2) { 1 } else { 100 };
    let bucket =
        |burst| Algorithm::TokenBucket(token_bucket::Config { rate: per_second(100), burst });
    let mut day = Day::new(&Rules::default());
    let mut passed = 0;
    let mut most = 1;
    for turn in 0..1_000 {
        day.install(&one_rule(bucket(bursts(turn))));
        most += bursts(turn).saturating_sub(bursts(turn.saturating_sub(1)));
        for _ in 0..200 {
            passed += u64::from(day.enter(day.now, 0, 1).decided.is_ok());
        }
        assert!(passed <= most, "{passed} of {most} in {turn} edits");
        // One more is earned in this time.
        day.now = day.now + Duration::from_millis(10);
        most += 1;
        day.live.clear();
    }
    assert!(passed > 10 * 100, "edits do raise what passes");
}

#[test]
fn a_thousand_edits_of_pacing_keep_starts_apart() {
    let warm_up =
        |millis, cold_factor| WarmUp { period: Duration::from_millis(millis), cold_factor };
    let warm_ups = [Some(warm_up(10_000, 3)), None, Some(warm_up(100, 2))];
    for (max_wait, warm_ups) in [(100, &warm_ups[1..2]), (100, &warm_ups[..]), (0, &warm_ups[..])] {
        let paced = |turn: u64| Rules {
            pacing: Some(pacing::Config {
                rate: per_second(50 + turn * 37 % 51),
                max_wait: Duration::from_millis(max_wait),
                max_queue: 5,
                warm_up: warm_ups
                    .iter()
                    .copied()
                    .cycle()
                    .nth(usize::try_from(turn % 3).expect("below 3"))
                    .flatten(),
            }),
            ..Rules::default()
        };
        let past = flood(paced);
        assert!(past.starts.len() > 450, "{}", past.starts.len());
        for pair in past.starts.windows(2) {
            assert!(pair[1] - pair[0] >= 10_000_000, "{} ns", pair[1] - pair[0]);
        }
    }
}

#[test]
fn a_thousand_edits_of_concurrency_keep_the_latest_limit() {
    let mut day = Day::new(&Rules::default());
    for turn in 0..1_000_u64 {
        let limit = turn * 7 % 20;
        day.install(&one_rule(Algorithm::Concurrency(concurrency::Config { limit })));
        let before = day.live.len() as u64;
        while day.enter(day.now, 0, 1).decided.is_ok() {}
        assert_eq!(day.live.len() as u64, limit.max(before));
        day.live.truncate(usize::try_from(turn * 11 % 20).expect("below 20"));
    }
}

#[test]
fn a_thousand_edits_in_a_flood_keep_the_promise_for_clients_that_borrow() {
    for algorithm in [sliding as fn(u64) -> _, strict, fixed, first_request] {
        let past =
            flood_of(|turn| one_rule(algorithm(50 + turn * 37 % 51)), Duration::from_millis(700));
        // As of when they start: some have waited.
        let mut starts: Vec<_> = past.starts.iter().map(|&start| (start, 1)).collect();
        let waited =
            past.passed.iter().zip(&past.starts).filter(|(passed, start)| passed.0 < **start);
        assert!(waited.count() > 100);
        starts.sort_unstable();
        assert_promise(&algorithm(100), &Past { passed: starts, ..Past::default() });
    }
}

#[test]
fn edits_of_a_warm_up_after_a_pause_keep_starts_apart() {
    let warm_up = |millis, cold_factor| {
        let period = Duration::from_millis(millis);
        Some(WarmUp { period, cold_factor })
    };
    let warm_ups = [warm_up(10_000, 3), warm_up(100, 2), None];
    for (max_wait, pick) in [(0, 0), (0, 1), (100, 0), (100, 1)] {
        let paced = |warm_up| Rules {
            pacing: Some(pacing::Config {
                rate: per_second(10),
                max_wait: Duration::from_millis(max_wait),
                max_queue: 5,
                warm_up,
            }),
            ..Rules::default()
        };
        let mut day = Day::new(&paced(None));
        let mut starts = Vec::new();
        for turn in 0..300_usize {
            // What is saved up in the pause is spent by the first that comes after it.
            day.now = day.now + Duration::from_millis(turn as u64 * 37 % 1_000);
            for rules in [warm_ups[0], warm_ups[1 + (turn + pick) % 2]] {
                day.install(&paced(rules));
                for _ in 0..3 {
                    let decided = day.enter(day.now, 0, 1).decided;
                    starts.extend(decided.map(Instant::as_nanos));
                    day.live.clear();
                    day.now = day.now + Duration::from_millis(1);
                }
            }
        }
        assert!(starts.len() > 200, "{}", starts.len());
        for pair in starts.windows(2) {
            assert!(pair[1] - pair[0] >= 100_000_000, "{} ns", pair[1] - pair[0]);
        }
    }
}

fn flood(rules: impl Fn(u64) -> Rules) -> Past {
    flood_of(rules, Duration::ZERO)
}

/// A flood of 2000 requests a second for 10 s, with an edit every 10 ms; every other has
/// so much patience.
fn flood_of(rules: impl Fn(u64) -> Rules, patience: Duration) -> Past {
    let mut day = Day::patient(patience);
    let mut past = Past::default();
    for turn in 0..1_000 {
        day.install(&rules(turn));
        for client in 0..20 {
            day.now = day.now + Duration::from_micros(500);
            if let Ok(start) = day.enter(day.now, client, 1).decided {
                past.passed.push((day.now.as_nanos(), 1));
                past.starts.push(start.as_nanos());
            }
            day.live.clear();
        }
    }
    assert_eq!(day.now.since(MORNING), Duration::from_secs(10));
    past
}

fn one_rule(algorithm: Algorithm) -> Rules {
    Rules { flow: vec![rule(0, algorithm, false)], ..Rules::default() }
}

fn token_bucket(count: u64) -> Algorithm {
    let rate = per_second(count);
    Algorithm::TokenBucket(token_bucket::Config { rate, burst: count })
}

fn sliding(count: u64) -> Algorithm {
    sliding_of(count, 10)
}

fn sliding_of(count: u64, buckets: u32) -> Algorithm {
    let rate = per_second(count);
    Algorithm::SlidingWindow(sliding_window::Config { rate, buckets, strict: false })
}

fn strict(count: u64) -> Algorithm {
    let rate = per_second(count);
    Algorithm::SlidingWindow(sliding_window::Config { rate, buckets: 10, strict: true })
}

fn log(count: u64) -> Algorithm {
    Algorithm::SlidingLog(sliding_log::Config { rate: per_second(count) })
}

fn counter(count: u64) -> Algorithm {
    Algorithm::SlidingCounter(sliding_counter::Config { rate: per_second(count) })
}

fn fixed(count: u64) -> Algorithm {
    let rate = per_second(count);
    Algorithm::FixedWindow(fixed_window::Config { rate, align: fixed_window::Align::Clock })
}

fn first_request(count: u64) -> Algorithm {
    let rate = per_second(count);
    Algorithm::FixedWindow(fixed_window::Config { rate, align: fixed_window::Align::FirstRequest })
}

fn per_second(count: u64) -> Rate {
    Rate::new(count, Duration::from_secs(1)).expect("within its bounds")
}

//! Laws at any scale: from one request in 31 days to 300,000 a second, and for a day.

use crate::{
    assert_definitions, config,
    day::{MORNING, Step, key, rule},
    oracle::{Past, assert_promise},
};
use core::time::Duration;
use flowgate::flow::{
    Algorithm, Claim, Gate, Instant, Rate, Rules, WarmUp,
    limiter::{
        fixed_window::{self, Align},
        leaky_bucket, sliding_counter, sliding_log, sliding_window, token_bucket, warm_up,
    },
    pacing,
};
use proptest::{collection::vec, prelude::*};
use std::sync::Arc;

const MS: u64 = 1_000_000;
const DAY: u64 = 24 * 60 * 60 * 1_000;

/// Windows in milliseconds.
const WINDOWS: [u64; 7] = [10, 999, 1_000, 60_000, 3_600_000, DAY, 31 * DAY];

fn rate_of(count: u64, millis: u64) -> Rate {
    Rate::new(count, Duration::from_millis(millis)).expect("within its bounds")
}

/// Every algorithm that counts, with the whole count at once for a bucket.
fn every(rate: Rate) -> Vec<Algorithm> {
    let sliding =
        |strict| Algorithm::SlidingWindow(sliding_window::Config { rate, buckets: 10, strict });
    let fixed = |align| Algorithm::FixedWindow(fixed_window::Config { rate, align });
    vec![
        Algorithm::TokenBucket(token_bucket::Config { rate, burst: rate.count() }),
        Algorithm::LeakyBucket(leaky_bucket::Config { rate, capacity: rate.count() }),
        fixed(Align::Clock),
        fixed(Align::FirstRequest),
        sliding(false),
        sliding(true),
        Algorithm::SlidingLog(sliding_log::Config { rate }),
        Algorithm::SlidingCounter(sliding_counter::Config { rate }),
    ]
}

/// A rule of any scale, and steps whose waits and costs fit it.
fn wide() -> impl Strategy<Value = (Rules, Vec<Step>)> {
    let counts = prop_oneof![Just(1_u64), 2..=9_u64, 10..=2_004_u64, 2_005..=300_000_u64];
    let scale = (prop::sample::select(WINDOWS.to_vec()), counts, 0..8_usize);
    scale.prop_flat_map(|(millis, per_second, which)| {
        let count = u128::from(per_second) * u128::from(millis) / 1_000;
        let count = u64::try_from(count).expect("few enough").clamp(1, Rate::MAX_COUNT);
        let algorithm = every(rate_of(count, millis)).swap_remove(which);
        let rules = Rules { flow: vec![rule(0, algorithm, false)], ..Rules::default() };
        let window = millis * MS;
        let cost = prop_oneof![Just(1), 1..=count, Just(count), (count / 3..=count / 2)];
        let step = prop_oneof![
            2 => (0..=window / 8).prop_map(Step::Wait),
            1 => Just(Step::Wait(1)),
            1 => Just(Step::Wait(window)),
            6 => cost.prop_map(|cost| Step::Enter { client: 0, cost }),
        ];
        (Just(rules), vec(step, 1..120))
    })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_passes_is_what_the_definitions_say_at_any_scale((rules, steps) in wide()) {
        assert_definitions(&rules, steps);
    }
}

/// Returns what a rule admits from the morning on for `span`, of a client that comes back
/// exactly when the rule says.
fn saturate(algorithm: &Algorithm, span: Duration, cost: u64) -> u64 {
    let gate = Arc::new(Gate::new(MORNING));
    let rules = Rules { flow: vec![rule(0, algorithm.clone(), false)], ..Rules::default() };
    let slot = gate.install(&rules, MORNING).flow[0];
    let mut now = MORNING;
    let mut passed = 0;
    while now.since(MORNING) <= span {
        match gate
            .enter(now, &[Claim { slot, key: key(0), cost, patience: Duration::ZERO, plan: None }])
        {
            Ok(_) => passed += cost,
            Err(rejection) => now = now + rejection.reason.retry_after().expect("a rate"),
        }
    }
    passed
}

#[test]
fn under_saturation_nothing_drifts() {
    // How many in how many ms, how many windows, and the cost of each request: a whole day and
    // more, at high rates by requests of a high cost, and shorter at a high rate of requests.
    for (count, millis, windows, cost) in [
        (1, 1_000, 86_400, 1),
        (3, 7_000, 12_343, 1),
        (300_000, 1_000, 86_400, 100_000),
        (300_000, 1_000, 60, 1_000),
        (2, 10, 6_000, 1),
        (70, 3_600_000, 24 * 31, 7),
        (1_000, 31 * DAY, 24, 1),
    ] {
        let rate = rate_of(count, millis);
        let span = Duration::from_millis(millis * windows);
        let every = every(rate);
        let (exact, others) = every.split_at(5);
        for algorithm in exact {
            // What there is at once, and then N·D/W.
            assert_eq!(saturate(algorithm, span, cost), count + count * windows, "{algorithm:?}");
        }
        let strict = &others[0];
        let log = &others[1];
        let counter = &others[2];
        // In a closed window: the last one ends some nanoseconds too late.
        assert_eq!(saturate(log, span, cost), count * windows, "{log:?}");
        // A burst is held on to for a bucket longer.
        let held = saturate(strict, span, cost);
        let ideal = count * (windows * 10).div_ceil(11);
        assert!((ideal..=ideal + count).contains(&held), "{held} of {ideal}: {strict:?}");
        // The last one of a full window is estimated to be in sight to the end of the next.
        let held = saturate(counter, span, cost);
        let ideal = if count > cost { (count - cost) * windows } else { count * windows / 2 };
        assert!((ideal..=ideal + 2 * count).contains(&held), "{held} of {ideal}: {counter:?}");
    }
}

#[test]
fn a_day_of_a_service_that_gets_warm_lacks_what_was_not_let_pass_while_it_was_cold() {
    let day = Duration::from_millis(DAY);
    let warm_up = WarmUp { period: Duration::from_secs(10), cold_factor: 3 };
    for (count, millis, cost, thirds) in [
        (1, 1_000, 1, 2),
        (300_000, 1_000, 50_000, 2),
        (2_004, 1_000, 334, 2),
        (300_000, 1_000, 100_000, 3),
        (300_000, 1_000, 300_000, 3),
    ] {
        let rate = rate_of(count, millis);
        let bucket = Algorithm::WarmUp(warm_up::Config { rate, burst: count, warm_up });
        let passed = saturate(&bucket, day, cost);
        let ideal = count * DAY / millis;
        // Warm after the period and half a second, at a third of the rate at least until then;
        // where each costs about a cold second, it takes the time that all cost when warm besides.
        let lacks = count * 10_500 * thirds / 3 / millis;
        assert!((ideal - lacks..=ideal + count).contains(&passed), "{passed} of {ideal}");
    }
}

#[test]
fn a_day_of_pacing_is_exact() {
    let max_wait = Duration::from_millis(2 * DAY);
    for (count, millis, cost) in
        [(1, 1_000, 1), (3, 1_009, 1), (300_000, 1_000, 100_000), (2_004, 1_000, 501)]
    {
        let config = pacing::Config {
            rate: rate_of(count, millis),
            max_wait,
            max_queue: u64::MAX,
            warm_up: None,
        };
        let gate = Arc::new(Gate::new(MORNING));
        let rules = Rules { pacing: Some(config), ..Rules::default() };
        let slot = gate.install(&rules, MORNING).pacing.expect("pacing");
        let mut now = MORNING;
        let mut starts = 0_u64;
        while now.since(MORNING) < Duration::from_millis(DAY) {
            let admission = gate
                .enter(
                    now,
                    &[Claim { slot, key: key(0), cost, patience: Duration::ZERO, plan: None }],
                )
                .expect("room");
            now = admission.permit.start();
            let before = u128::from(starts * cost);
            let ideal = (before * u128::from(millis * MS)).div_ceil(count.into());
            assert_eq!(now.since(MORNING).as_nanos(), ideal, "{count} per {millis} ms");
            starts += 1;
        }
        assert!(starts.abs_diff((DAY * count).div_ceil(millis * cost)) <= 1, "{starts}");
    }
}

#[test]
fn of_windows_from_the_first_request_only_the_clocks_first_doubles() {
    let window = Duration::from_secs(1);
    let instant = Duration::from_nanos(1);
    for count in [1, 2, 300_000] {
        let rate = rate_of(count, 1_000);
        let config = fixed_window::Config { rate, align: Align::FirstRequest };
        let algorithm = Algorithm::FixedWindow(config);
        // One, then as many as fit a moment before its window ends, and a moment after.
        for (begin, most) in [(Instant::EPOCH, 2 * count), (MORNING, 2 * count - 1)] {
            let gate = Arc::new(Gate::new(begin));
            let rules = Rules { flow: vec![rule(0, algorithm.clone(), false)], ..Rules::default() };
            let slot = gate.install(&rules, begin).flow[0];
            let mut past = Past::default();
            let mut enter = |now: Instant, cost| {
                let claim = Claim { slot, key: key(0), cost, patience: Duration::ZERO, plan: None };
                let passes = gate.enter(now, &[claim]).is_ok();
                past.passed.extend(passes.then_some((now.as_nanos(), cost)));
                if passes { cost } else { 0 }
            };
            if begin != Instant::EPOCH {
                enter(begin, 1);
            }
            let end = begin + window;
            let before: u64 =
                [count, count - 1].map(|cost| enter(end - instant, cost)).iter().sum();
            assert_eq!(before + enter(end, count), most);
            assert_promise(&algorithm, &past);
        }
    }
}

#[test]
fn limits_in_any_unit_are_exact() {
    let third = Rate::new(1, Duration::from_nanos(333)).expect("a rate");
    let config = token_bucket::Config { rate: third, burst: 1 };
    let span = Duration::from_millis(10);
    assert_eq!(saturate(&Algorithm::TokenBucket(config), span, 1), 1 + 10_000_000 / 333);
}

//! Laws of one gate under many threads.

use crate::{
    day::{MORNING, key, rule},
    oracle::{Past, assert_promise, passes},
};
use core::{
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    time::Duration,
};
use flowgate::{
    clock::Clock,
    flow::{
        Algorithm, Claim, Gate, Instant, Outcome, Permit, Rate, Rules, SlotId, WarmUp,
        limiter::{
            concurrency,
            fixed_window::{self, Align},
            leaky_bucket, sliding_counter, sliding_log, sliding_window, token_bucket, warm_up,
        },
        pacing,
    },
};
use std::{sync::Arc, thread};

const THREADS: u64 = 16;

/// How long a gate is hammered by a real clock.
const SPELL: Duration = Duration::from_millis(120);

/// A limit that a spell of requests is far above.
const PER_MILLI: u64 = 20;

fn open(rules: &Rules, now: Instant) -> (Arc<Gate>, SlotId) {
    let gate = Arc::new(Gate::new(now));
    let installed = gate.install(rules, now);
    let slot = installed.flow.into_iter().chain(installed.pacing).next().expect("one rule");
    (gate, slot)
}

fn only(algorithm: &Algorithm, keyed: bool) -> Rules {
    Rules { flow: vec![rule(0, algorithm.clone(), keyed)], ..Rules::default() }
}

fn open_one(algorithm: &Algorithm, keyed: bool) -> (Arc<Gate>, SlotId) {
    open(&only(algorithm, keyed), MORNING)
}

/// The algorithms of a rate, `count` a millisecond.
fn rates(count: u64) -> [Algorithm; 8] {
    let rate = Rate::new(count, Duration::from_millis(1)).expect("a rate");
    let sliding =
        |strict| Algorithm::SlidingWindow(sliding_window::Config { rate, buckets: 10, strict });
    let fixed = |align| Algorithm::FixedWindow(fixed_window::Config { rate, align });
    [
        Algorithm::TokenBucket(token_bucket::Config { rate, burst: count }),
        Algorithm::LeakyBucket(leaky_bucket::Config { rate, capacity: count }),
        sliding(false),
        sliding(true),
        Algorithm::SlidingLog(sliding_log::Config { rate }),
        Algorithm::SlidingCounter(sliding_counter::Config { rate }),
        fixed(Align::Clock),
        fixed(Align::FirstRequest),
    ]
}

/// Runs `work` in each thread, and returns all that they return.
fn hammer<T: Send>(work: impl Fn() -> Vec<T> + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(&work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("it does not panic")).collect()
    })
}

#[test]
fn threads_at_one_instant_pass_exactly_the_limit() {
    for algorithm in rates(100) {
        for keyed in [false, true] {
            let (gate, slot) = open_one(&algorithm, keyed);
            let claims =
                [Claim { slot, key: key(1), cost: 1, patience: Duration::ZERO, plan: None }];
            let passed = hammer(|| {
                (0..200).filter_map(|_| gate.enter(MORNING, &claims).ok()).collect::<Vec<_>>()
            });
            assert_eq!(passed.len(), 100, "{algorithm:?}");
        }
    }
}

#[test]
fn threads_keep_the_promise_while_time_passes() {
    for algorithm in rates(100) {
        let (gate, slot) = open_one(&algorithm, false);
        let claims = [Claim { slot, key: key(1), cost: 1, patience: Duration::ZERO, plan: None }];
        let clock = AtomicU64::new(0);
        let mut starts = hammer(|| {
            // Each reads the clock, and gets to the gate when it can.
            let turns = 0..2_000;
            let read = turns.map(|_| MORNING + Duration::from_nanos(clock.fetch_add(500, SeqCst)));
            let admitted = read.filter_map(|now| gate.enter(now, &claims).ok());
            admitted.map(|admission| admission.permit.start().as_nanos()).collect()
        });
        starts.sort_unstable();
        // 16 ms at 100 a millisecond; a little is left of the last window.
        assert!((1_500..=1_800).contains(&starts.len()), "{}: {algorithm:?}", starts.len());
        let passed = starts.into_iter().map(|start| (start, 1)).collect();
        assert_promise(&algorithm, &Past { passed, ..Past::default() });
    }
}

#[test]
fn threads_hold_no_more_than_the_limit() {
    let limit = 5;
    for keyed in [false, true] {
        let (gate, slot) = open_one(&Algorithm::Concurrency(concurrency::Config { limit }), keyed);
        let claims = [Claim { slot, key: key(1), cost: 1, patience: Duration::ZERO, plan: None }];
        let in_flight = AtomicU64::new(0);
        let passed = hammer(|| {
            (0..5_000)
                .filter_map(|_| {
                    let admission = gate.enter(MORNING, &claims).ok()?;
                    assert!(in_flight.fetch_add(1, SeqCst) < limit);
                    thread::yield_now();
                    in_flight.fetch_sub(1, SeqCst);
                    drop(admission);
                    Some(())
                })
                .collect::<Vec<_>>()
        });
        let seen = gate.observe(MORNING);
        assert!(!passed.is_empty());
        assert_eq!(seen.totals.passed, passed.len() as u64);
        assert_eq!((seen.in_flight, seen.rules[0].used), (0, 0));
        assert!(seen.in_flight_max <= limit);
    }
}

#[test]
fn threads_start_no_closer_than_the_interval() {
    let rate = Rate::new(1_000, Duration::from_secs(1)).expect("a rate");
    let max_wait = Duration::from_secs(10);
    let pacing = Some(pacing::Config { rate, max_wait, max_queue: u64::MAX, warm_up: None });
    let (gate, slot) = open(&Rules { pacing, ..Rules::default() }, MORNING);
    let claims = [Claim { slot, key: key(1), cost: 1, patience: Duration::ZERO, plan: None }];
    let mut starts = hammer(|| {
        let admitted = (0..500).filter_map(|_| gate.enter(MORNING, &claims).ok());
        admitted.map(|admission| admission.permit.start()).collect()
    });
    starts.sort_unstable();
    let ideal = (0..8_000).map(|n| MORNING + Duration::from_millis(n));
    assert!(starts.into_iter().eq(ideal));
}

/// Has threads enter a gate with `rules` for a spell by a real clock, and returns what
/// `admitted` makes of those that it admits.
fn hammer_by_a_clock<T: Send>(
    rules: &Rules,
    admitted: impl Fn(&Clock, Permit) -> T + Sync,
) -> Vec<T> {
    let clock = Clock::start();
    let begin = clock.now();
    let (gate, slot) = open(rules, begin);
    let claims = [Claim { slot, key: key(1), cost: 1, patience: Duration::ZERO, plan: None }];
    hammer(|| {
        let turns = std::iter::repeat_with(|| clock.now());
        let turns = turns.take_while(|now| now.since(begin) < SPELL);
        let entered = turns.filter_map(|now| gate.enter(now, &claims).ok());
        entered.map(|admission| admitted(&clock, admission.permit)).collect()
    })
}

/// Returns when those were decided that a gate with `rules` admits by a real clock, in
/// order: the instants that it went by, not those at which the threads heard of it.
fn admitted_by_a_clock(rules: &Rules) -> Vec<u64> {
    let mut starts = hammer_by_a_clock(rules, |_, permit| permit.start().as_nanos());
    starts.sort_unstable();
    assert!(starts.len() as u64 > 2 * PER_MILLI, "{} of {rules:?}", starts.len());
    starts
}

#[test]
fn threads_keep_the_promise_by_a_real_clock() {
    for algorithm in rates(PER_MILLI) {
        let mut past = Past::default();
        for at in admitted_by_a_clock(&only(&algorithm, false)) {
            assert!(passes(&algorithm, &past, Instant::from_nanos(at), 1), "{algorithm:?}");
            past.passed.push((at, 1));
        }
        assert_promise(&algorithm, &past);
    }
}

#[test]
fn threads_find_a_cold_bucket_cold_by_a_real_clock() {
    let rate = Rate::new(PER_MILLI, Duration::from_millis(1)).expect("a rate");
    let warm_up = WarmUp { period: Duration::from_hours(1), cold_factor: 4 };
    let config = warm_up::Config { rate, burst: PER_MILLI, warm_up };
    let algorithm = Algorithm::WarmUp(config);
    let starts = admitted_by_a_clock(&only(&algorithm, false));
    // One in four intervals, but for what an hour's curve rises in a spell; a thread that
    // slept may have left some for the next.
    let least = 4 * 50_000 * 999 / 1_000;
    assert!((0..).zip(&starts).all(|(earlier, at)| at - starts[0] >= earlier * least));
    let passed = starts.into_iter().map(|start| (start, 1)).collect();
    assert_promise(&algorithm, &Past { passed, ..Past::default() });
}

#[test]
fn threads_start_no_closer_than_the_interval_by_a_real_clock() {
    let rate = Rate::new(PER_MILLI, Duration::from_millis(1)).expect("a rate");
    let max_wait = Duration::from_millis(5);
    let pacing = Some(pacing::Config { rate, max_wait, max_queue: 50, warm_up: None });
    let starts = admitted_by_a_clock(&Rules { pacing, ..Rules::default() });
    assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= 50_000));
}

#[test]
fn threads_hold_no_more_than_the_limit_by_a_real_clock() {
    const LIMIT: u64 = 5;
    let rules = only(&Algorithm::Concurrency(concurrency::Config { limit: LIMIT }), false);
    let held = hammer_by_a_clock(&rules, |clock, permit| {
        let start = permit.start();
        // Longer than the others need to come: all places are taken.
        while clock.now().since(start) < Duration::from_millis(1) {
            thread::yield_now();
        }
        let end = clock.now();
        permit.finish(Outcome::Success { at: end });
        [(start, true), (end, false)]
    });
    let mut turns: Vec<_> = held.into_iter().flatten().collect();
    // Of one instant, those that leave first.
    turns.sort_unstable();
    let mut in_flight = 0;
    let mut most = 0;
    for (_, enters) in turns {
        in_flight = if enters { in_flight + 1 } else { in_flight - 1 };
        most = most.max(in_flight);
    }
    assert_eq!((in_flight, most), (0, LIMIT));
}

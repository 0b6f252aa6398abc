//! Laws of one gate under many threads.

use crate::{
    day::{MORNING, key, rule},
    oracle::{Past, assert_promise},
};
use core::{
    sync::atomic::{AtomicU64, Ordering::SeqCst},
    time::Duration,
};
use flowgate::flow::{
    Algorithm, Claim, Gate, Rate, Rules, SlotId,
    limiter::{
        concurrency,
        fixed_window::{self, Align},
        leaky_bucket, sliding_counter, sliding_log, sliding_window, token_bucket,
    },
    pacing,
};
use std::{sync::Arc, thread};

const THREADS: u64 = 8;

fn open(rules: &Rules) -> (Arc<Gate>, SlotId) {
    let gate = Arc::new(Gate::new(MORNING));
    let installed = gate.install(rules, MORNING);
    let slot = installed.flow.into_iter().chain(installed.pacing).next().expect("one rule");
    (gate, slot)
}

fn open_one(algorithm: &Algorithm, keyed: bool) -> (Arc<Gate>, SlotId) {
    open(&Rules { flow: vec![rule(0, algorithm.clone(), keyed)], ..Rules::default() })
}

fn rates() -> [Algorithm; 8] {
    let rate = Rate::new(100, Duration::from_millis(1)).expect("a rate");
    let sliding =
        |strict| Algorithm::SlidingWindow(sliding_window::Config { rate, buckets: 10, strict });
    let fixed = |align| Algorithm::FixedWindow(fixed_window::Config { rate, align });
    [
        Algorithm::TokenBucket(token_bucket::Config { rate, burst: 100 }),
        Algorithm::LeakyBucket(leaky_bucket::Config { rate, capacity: 100 }),
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
        threads.into_iter().flat_map(|it| it.join().expect("it does not panic")).collect()
    })
}

#[test]
fn threads_at_one_instant_pass_exactly_the_limit() {
    for algorithm in rates() {
        for keyed in [false, true] {
            let (gate, slot) = open_one(&algorithm, keyed);
            let claims = [Claim { slot, key: key(1), cost: 1, patience: Duration::ZERO }];
            let passed = hammer(|| {
                (0..200).filter_map(|_| gate.enter(MORNING, &claims).ok()).collect::<Vec<_>>()
            });
            assert_eq!(passed.len(), 100, "{algorithm:?}");
        }
    }
}

#[test]
fn threads_keep_the_promise_while_time_passes() {
    for algorithm in rates() {
        let (gate, slot) = open_one(&algorithm, false);
        let claims = [Claim { slot, key: key(1), cost: 1, patience: Duration::ZERO }];
        let clock = AtomicU64::new(0);
        let mut starts = hammer(|| {
            // Each reads the clock, and gets to the gate when it can.
            let turns = 0..2_000;
            let read = turns.map(|_| MORNING + Duration::from_nanos(clock.fetch_add(500, SeqCst)));
            let admitted = read.filter_map(|now| gate.enter(now, &claims).ok());
            admitted.map(|it| it.permit.start().as_nanos()).collect()
        });
        starts.sort_unstable();
        // 8 ms at 100 a millisecond; a little is left of the last window.
        assert!((700..=1_000).contains(&starts.len()), "{}: {algorithm:?}", starts.len());
        let passed = starts.into_iter().map(|start| (start, 1)).collect();
        assert_promise(&algorithm, &Past { passed, ..Past::default() });
    }
}

#[test]
fn threads_hold_no_more_than_the_limit() {
    let limit = 5;
    for keyed in [false, true] {
        let (gate, slot) = open_one(&Algorithm::Concurrency(concurrency::Config { limit }), keyed);
        let claims = [Claim { slot, key: key(1), cost: 1, patience: Duration::ZERO }];
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
    let (gate, slot) = open(&Rules { pacing, ..Rules::default() });
    let claims = [Claim { slot, key: key(1), cost: 1, patience: Duration::ZERO }];
    let mut starts = hammer(|| {
        let admitted = (0..1_000).filter_map(|_| gate.enter(MORNING, &claims).ok());
        admitted.map(|it| it.permit.start()).collect()
    });
    starts.sort_unstable();
    let ideal = (0..8_000).map(|n| MORNING + Duration::from_millis(n));
    assert!(starts.into_iter().eq(ideal));
}

//! Laws of loans: who starts in a window is counted there, borrowed or not.

use crate::{
    config,
    day::{MORNING, rule},
};
use core::time::Duration;
use flowgate::flow::{
    Algorithm, Claim, Gate, Instant, Key, Rate, Reason, Rules,
    limiter::{
        fixed_window::{self, Align},
        sliding_window,
    },
};
use proptest::{collection::vec, prelude::*};
use std::sync::Arc;

/// In nanoseconds.
const WINDOW: u64 = 100_000_000;

fn algorithms() -> impl Strategy<Value = Algorithm> {
    let rate = |count| Rate::new(count, Duration::from_nanos(WINDOW)).expect("a rate");
    prop_oneof![
        (1..9_u64, any::<bool>()).prop_map(move |(count, clock)| {
            let align = if clock { Align::Clock } else { Align::FirstRequest };
            Algorithm::FixedWindow(fixed_window::Config { rate: rate(count), align })
        }),
        (1..9_u64, 1..7_u32, any::<bool>()).prop_map(move |(count, buckets, strict)| {
            let rate = rate(count);
            Algorithm::SlidingWindow(sliding_window::Config { rate, buckets, strict })
        }),
    ]
}

/// Nanoseconds since the one before, its cost, and its patience in milliseconds.
fn arrivals() -> impl Strategy<Value = Vec<(u64, u64, u64)>> {
    let pause = prop_oneof![4 => 0..WINDOW / 8, 1 => 0..WINDOW * 2];
    vec((pause, 1..4_u64, prop_oneof![Just(0), 1..250_u64]), 1..200)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_more_start_in_a_window_than_its_limit(
        (algorithm, arrivals) in (algorithms(), arrivals()),
    ) {
        let gate = Arc::new(Gate::new(MORNING));
        let flow = vec![rule(0, algorithm.clone(), false)];
        let slot = gate.install(&Rules { flow, ..Rules::default() }, MORNING).flow[0];
        let (mut now, mut starts) = (MORNING, Vec::new());
        for (pause, cost, millis) in arrivals {
            now = now + Duration::from_nanos(pause);
            let patience = Duration::from_millis(millis);
            let claim = Claim { slot, key: Key::Shared, cost, patience };
            match gate.enter(now, &[claim]) {
                Ok(admission) => {
                    let start = admission.permit.start();
                    prop_assert!(start.since(now) <= patience);
                    starts.push((start, cost));
                }
                Err(rejection) => {
                    // It would have to wait longer, or for another window than the next.
                    if let (Algorithm::SlidingWindow(_), Reason::Rate { retry_after }) =
                        (&algorithm, rejection.reason)
                    {
                        let window = Duration::from_nanos(WINDOW / 7 * 6);
                        prop_assert!(retry_after > patience.min(window));
                    }
                }
            }
        }
        starts.sort_unstable();
        assert_windows(&algorithm, &starts);
    }
}

fn assert_windows(algorithm: &Algorithm, starts: &[(Instant, u64)]) {
    match algorithm {
        Algorithm::SlidingWindow(sliding_window::Config { rate, buckets, strict }) => {
            let span = u128::from(buckets + u32::from(*strict));
            let bucket =
                |at: Instant| u128::from(at.as_nanos()) * u128::from(*buckets) / u128::from(WINDOW);
            for (last, _) in starts {
                let counts = starts.iter().filter(|(at, _)| {
                    bucket(*at) <= bucket(*last) && bucket(*at) + span > bucket(*last)
                });
                let sum: u64 = counts.map(|(_, cost)| cost).sum();
                assert!(sum <= rate.count(), "{sum} of {algorithm:?}");
            }
        }
        Algorithm::FixedWindow(fixed_window::Config { rate, align }) => {
            let (mut begin, mut used) = (None, 0);
            for &(at, cost) in starts {
                let at = at.as_nanos();
                let current = match begin {
                    _ if *align == Align::Clock => at - at % WINDOW,
                    Some(begin) if at < begin + WINDOW => begin,
                    Some(_) | None => at,
                };
                if begin != Some(current) {
                    (begin, used) = (Some(current), 0);
                }
                used += cost;
                assert!(used <= rate.count(), "{used} of {algorithm:?}");
            }
        }
        Algorithm::TokenBucket(_)
        | Algorithm::WarmUp(_)
        | Algorithm::LeakyBucket(_)
        | Algorithm::SlidingLog(_)
        | Algorithm::SlidingCounter(_)
        | Algorithm::Concurrency(_)
        | Algorithm::Pacing(_)
        | Algorithm::Exchanged(_) => unreachable!("only these lend"),
    }
}

//! Laws at the edges: requests a nanosecond before, at and after the instants at which
//! something ends, at any scale, and by more clients than a rule has room for.

use crate::{
    assert_definitions, assert_retry_after, config,
    day::{Day, DecidedRequest, MORNING, Step, rule},
    edits::{crowd, recount},
    oracle::{Past, assert_promise},
};
use core::time::Duration;
use flowgate::flow::{
    Algorithm, Claim, Key, Keyed, Rate, Rule, Rules, WarmUp,
    limiter::{
        concurrency, fixed_window, leaky_bucket, sliding_counter, sliding_log, sliding_window,
        token_bucket, warm_up,
    },
    pacing,
};
use proptest::{collection::vec, option, prelude::*, sample::select};
use std::collections::HashMap;

/// Windows in nanoseconds, from 10 ms to 31 days.
const WINDOWS: [u64; 5] =
    [10_000_000, 999_999_937, 1_000_000_000, 3_600_000_000_000, 2_678_400_000_000_000];

/// What happens next, as it is drawn.
#[derive(Clone, Copy, Debug)]
enum Move {
    Wait(u64),
    /// To where the next of so many parts of a window begins, by the clock.
    Edge {
        parts: u64,
        beside: u64,
    },
    /// To where a window ends that began with an earlier request.
    Echo {
        which: usize,
        beside: u64,
    },
    Enter {
        client: u8,
        cost: u64,
    },
    End(usize),
}

fn rates() -> impl Strategy<Value = Rate> {
    let counts = prop_oneof![4 => 1..=9_u64, 1 => Just(2_004), 1 => Just(300_000)];
    (counts, select(WINDOWS.to_vec())).prop_map(|(count, window)| {
        Rate::new(count, Duration::from_nanos(window)).expect("within its bounds")
    })
}

fn algorithms(rate: Rate) -> impl Strategy<Value = Algorithm> {
    use fixed_window::Align::{Clock, FirstRequest};
    let count = rate.count();
    let window = rate.window_nanos();
    let sizes = select(vec![1, count.div_ceil(2), count, 2 * count]);
    let waits = select(vec![0, window / 7, window, 3 * window]).prop_map(Duration::from_nanos);
    let aligns = select(vec![Clock, FirstRequest]);
    prop_oneof![
        sizes.clone().prop_map(move |burst| {
            Algorithm::TokenBucket(token_bucket::Config { rate, burst })
        }),
        sizes.clone().prop_map(move |capacity| {
            Algorithm::LeakyBucket(leaky_bucket::Config { rate, capacity })
        }),
        (1..=12_u32, any::<bool>()).prop_map(move |(buckets, strict)| {
            Algorithm::SlidingWindow(sliding_window::Config { rate, buckets, strict })
        }),
        Just(Algorithm::SlidingLog(sliding_log::Config { rate })),
        Just(Algorithm::SlidingCounter(sliding_counter::Config { rate })),
        aligns.prop_map(move |align| {
            Algorithm::FixedWindow(fixed_window::Config { rate, align })
        }),
        sizes.prop_map(|limit| Algorithm::Concurrency(concurrency::Config { limit })),
        (waits, select(vec![1, 3, 1_000])).prop_map(move |(max_wait, max_queue)| {
            Algorithm::Pacing(pacing::Config { rate, max_wait, max_queue, warm_up: None })
        }),
    ]
}

fn steps(rate: Rate, clients: u8) -> impl Strategy<Value = Vec<Step>> {
    let count = rate.count();
    let window = rate.window_nanos();
    let parts = prop_oneof![Just(1), 1..=12_u64, Just(count)];
    let costs = prop_oneof![
        3 => Just(1),
        2 => select(vec![count.div_ceil(3), count.div_ceil(2), count - 1, count, count + 1]),
        1 => 1..=count,
    ];
    let moves = prop_oneof![
        2 => (0..=window / 8).prop_map(Move::Wait),
        1 => (window / 2..=window * 3).prop_map(Move::Wait),
        3 => (parts, 0..3_u64).prop_map(|(parts, beside)| Move::Edge { parts, beside }),
        3 => (any::<usize>(), 0..3_u64).prop_map(|(which, beside)| Move::Echo { which, beside }),
        9 => (0..clients, costs).prop_map(|(client, cost)| Move::Enter { client, cost }),
        2 => any::<usize>().prop_map(Move::End),
    ];
    vec(moves, 1..150).prop_map(move |moves| resolve(&moves, window))
}

/// Turns edges into waits, from the morning on.
fn resolve(moves: &[Move], window: u64) -> Vec<Step> {
    let mut now = MORNING.as_nanos();
    let mut seen = Vec::new();
    let to = |now: &mut u64, edge: u64, beside: u64| {
        let wait = (edge - 1 + beside).saturating_sub(*now);
        *now += wait;
        Step::Wait(wait)
    };
    let next = |now: u64, parts: u64| {
        let window = u128::from(window);
        let parts = u128::from(parts);
        let part = u128::from(now) * parts / window + 1;
        u64::try_from((part * window).div_ceil(parts)).expect("this century")
    };
    let step = |step: &Move| match *step {
        Move::Wait(nanos) => {
            now += nanos;
            Step::Wait(nanos)
        }
        Move::Edge { parts, beside } => {
            let edge = next(now, parts);
            to(&mut now, edge, beside)
        }
        Move::Echo { which, beside } => {
            let began = if seen.is_empty() { now } else { seen[which % seen.len()] };
            to(&mut now, began + window, beside)
        }
        Move::Enter { client, cost } => {
            seen.push(now);
            Step::Enter { client, cost }
        }
        Move::End(which) => Step::End(which),
    };
    moves.iter().map(step).collect()
}

/// One or two rules, and a day at their edges.
fn days() -> impl Strategy<Value = (Rules, Vec<Step>)> {
    let rules = |rate| {
        (vec(algorithms(rate), 1..=2), any::<bool>()).prop_map(|(flow, keyed)| Rules {
            flow: flow
                .into_iter()
                .enumerate()
                .map(|(at, algorithm)| rule(at, algorithm, keyed))
                .collect(),
            ..Rules::default()
        })
    };
    rates().prop_flat_map(move |rate| (rules(rate), steps(rate, 2)))
}

/// Clients of a rule without room for them.
const CLIENTS: u8 = 4;

/// A crowded rule: its rate, how it counts, how long two of its clients would wait for a
/// window, and a day of more clients than it has room for.
fn crowds() -> impl Strategy<Value = (Rate, Algorithm, Duration, Vec<Step>)> {
    let algorithms = |rate: Rate| {
        let warm_up = (1..=20_u64, 2..=1_000_u32).prop_map(move |(period, cold_factor)| {
            let warm_up = WarmUp { period: Duration::from_secs(period), cold_factor };
            Algorithm::WarmUp(warm_up::Config { rate, burst: rate.count(), warm_up })
        });
        prop_oneof![8 => algorithms(rate), 1 => warm_up]
    };
    rates().prop_flat_map(move |rate| {
        let window = rate.window_nanos();
        let patience = select(vec![0, window / 3, 2 * window]).prop_map(Duration::from_nanos);
        (Just(rate), algorithms(rate), patience, steps(rate, CLIENTS))
    })
}

/// Returns the same with `part` quarters of its count, if it counts by a rate.
fn quarters(algorithm: &Algorithm, rate: Rate, part: u64) -> Algorithm {
    let mut fewer = algorithm.clone();
    if !matches!(algorithm, Algorithm::Concurrency(_)) {
        recount(&mut fewer, (rate.count() * part / 4).max(1));
    }
    fewer
}

/// Returns the key of a client who shares one of two states with others for want of room.
fn crowded_key(client: u8) -> Key {
    let low = u128::from(client);
    let high = u128::from(client) * 64 + u128::from(client % 2);
    Key::Of(high << 64 | low)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_passes_at_the_edges_is_what_the_definitions_say((rules, steps) in days()) {
        assert_definitions(&rules, steps);
    }

    #[test]
    fn a_lone_client_is_admitted_at_retry_after_at_the_edges((rules, steps) in days()) {
        assert_retry_after(&rules, steps);
    }

    #[test]
    fn a_rule_without_room_keeps_its_promise_to_each_client(
        (rate, algorithm, patience, steps) in crowds(),
        max_keys in 1..=2_u8,
        edits in vec(option::weighted(0.1, (1..=4_u64, 1..=3_u8)), 150),
    ) {
        let mut day = Day::new(&crowd(&algorithm, Some(max_keys)));
        let mut pasts: HashMap<u8, Past> = HashMap::new();
        for (step, edit) in steps.into_iter().zip(edits) {
            if let Some((part, max_keys)) = edit {
                day.install(&crowd(&quarters(&algorithm, rate, part), Some(max_keys)));
            }
            let Step::Enter { client, cost } = step else {
                day.step(step);
                continue;
            };
            let slot = day.slots[0];
            let key = crowded_key(client);
            let patience = if client < 2 { patience } else { Duration::ZERO };
            let decided = day.gate.enter(day.now, &[Claim { slot, key, cost, patience, plan: None }]);
            let DecidedRequest { decided, .. } = day.note(client, cost, decided);
            if let (Ok(start), true) = (decided, cost > 0) {
                let past = pasts.entry(client).or_default();
                // Who borrows from a window is counted there.
                let is_paced = matches!(algorithm, Algorithm::Pacing(_));
                let counted = if is_paced { day.now } else { start };
                past.passed.push((counted.as_nanos(), cost));
                past.starts.push(start.as_nanos());
            }
            if let Algorithm::Concurrency(concurrency::Config { limit }) = algorithm {
                let own = day.live.iter().filter(|live| live.client == client);
                prop_assert!(own.map(|live| live.cost).sum::<u64>() <= limit);
            }
        }
        for past in pasts.values_mut() {
            past.passed.sort_by_key(|(counted, _)| *counted);
            assert_promise(&algorithm, past);
        }
    }
}

#[test]
fn a_client_that_moves_to_a_window_of_others_gets_no_third_one() {
    let second = Duration::from_secs(1);
    let rate = Rate::new(2, second).expect("within its bounds");
    let align = fixed_window::Align::FirstRequest;
    let algorithm = Algorithm::FixedWindow(fixed_window::Config { rate, align });
    let keyed = Some(Keyed { by: "client_ip".into(), max_keys: 1 });
    let day = Day::new(&Rules {
        flow: vec![Rule { keyed, ..rule(0, algorithm.clone(), false) }],
        ..Rules::default()
    });
    let mut past = Past::default();
    let end = MORNING + second;
    let instant = Duration::from_nanos(1);
    for (now, client, cost) in [
        (MORNING, 0, 1),
        // For want of room in a window that ends later.
        (MORNING + instant, 2, 1),
        (end - instant, 0, 1),
        (end, 1, 1),
        (end, 0, 1),
        (end + instant, 0, 2),
    ] {
        let key = crowded_key(client);
        let claim = Claim { slot: day.slots[0], key, cost, patience: Duration::ZERO, plan: None };
        let passes = day.gate.enter(now, &[claim]).is_ok();
        past.passed.extend((passes && client == 0).then_some((now.as_nanos(), cost)));
    }
    assert_promise(&algorithm, &past);
}

#[test]
fn a_client_without_room_borrows_nothing_beyond_what_it_has_used() {
    let rate = Rate::new(1, Duration::from_millis(10)).expect("within its bounds");
    let align = fixed_window::Align::FirstRequest;
    let algorithm = Algorithm::FixedWindow(fixed_window::Config { rate, align });
    let day = Day::new(&crowd(&algorithm, Some(1)));
    let patience = Duration::from_millis(20);
    // Client 0 borrows the window from 10 ms on, and loses its place to client 1, which borrows.
    for (millis, client, passes) in
        [(0, 0, true), (0, 0, true), (16, 1, true), (16, 1, true), (16, 0, false), (26, 0, true)]
    {
        let claim =
            Claim { slot: day.slots[0], key: crowded_key(client), cost: 1, patience, plan: None };
        let decided = day.gate.enter(MORNING + Duration::from_millis(millis), &[claim]);
        assert_eq!(decided.is_ok(), passes, "client {client} at {millis} ms");
    }
}

//! Rules whose states a store keeps, against a redis-server of the test's own.

#[path = "cluster/chart.rs"]
mod chart;
#[path = "cluster/edits.rs"]
mod edits;
#[path = "cluster/equal.rs"]
mod equal;
#[path = "cluster/gateways.rs"]
mod gateways;
mod port;
#[path = "cluster/server.rs"]
mod server;
#[path = "cluster/settlements.rs"]
mod settlements;
#[path = "cluster/simulation.rs"]
mod simulation;
#[path = "cluster/synced.rs"]
mod synced;

use core::{
    cell::{Cell, RefCell},
    time::Duration,
};
use equal::{Event, Store};
use flowgate::{
    cluster::{Ask, Lease, RecordedCalls},
    flow::{
        Algorithm, Decision, Instant, Key, Keyed, Rate, Rule, Rules, Stored,
        limiter::{
            concurrency, fixed_window, leaky_bucket, sliding_counter, sliding_window, token_bucket,
        },
        pacing,
    },
};
use proptest::{collection::vec, option, prelude::*, test_runner::TestRunner};

/// Rates whose numbers are small, so that rules reject, and such whose intervals are fractions of
/// a nanosecond or whose products need more than 53 bits.
fn rates() -> impl Strategy<Value = Rate> {
    let small = (1_u64..20, 1_u64..2_000).prop_map(|(n, window)| (n, window * 1_000));
    let odd = (1_u64..1_000_000, 1_u64..100_000);
    let large = (Rate::MAX_COUNT - 9..=Rate::MAX_COUNT, 1_u64..366 * 24 * 60 * 60 * 1_000_000);
    let rate = prop_oneof![4 => small, 1 => odd, 1 => large];
    rate.prop_filter_map("a rate", |(n, micros)| Rate::new(n, Duration::from_micros(micros)))
}

fn algorithms() -> impl Strategy<Value = Algorithm> {
    let burst = || prop_oneof![1_u64..9, 1_u64..2_000];
    prop_oneof![
        (rates(), burst()).prop_map(|(rate, burst)| {
            Algorithm::TokenBucket(token_bucket::Config { rate, burst })
        }),
        (rates(), burst()).prop_map(|(rate, capacity)| {
            Algorithm::LeakyBucket(leaky_bucket::Config { rate, capacity })
        }),
        (rates(), 1_u32..12, any::<bool>()).prop_map(|(rate, buckets, strict)| {
            Algorithm::SlidingWindow(sliding_window::Config { rate, buckets, strict })
        }),
        rates().prop_map(|rate| Algorithm::SlidingCounter(sliding_counter::Config { rate })),
        (rates(), any::<bool>()).prop_map(|(rate, first)| {
            use fixed_window::Align;
            let align = if first { Align::FirstRequest } else { Align::Clock };
            Algorithm::FixedWindow(fixed_window::Config { rate, align })
        }),
        (1_u64..9).prop_map(|limit| Algorithm::Concurrency(concurrency::Config { limit })),
    ]
    .prop_filter("what a store can decide about", |algorithm| Stored::new(algorithm).is_ok())
}

fn rules() -> impl Strategy<Value = Rules> {
    let flow = vec((algorithms(), any::<bool>(), proptest::bool::weighted(0.2)), 1..4);
    let pacing = option::weighted(0.3, (rates(), 0_u64..3_000_000, 0_u64..9));
    (flow, pacing).prop_map(|(flow, pacing)| Rules {
        flow: flow.into_iter().enumerate().map(rule).collect(),
        pacing: pacing.map(|(rate, max_wait, max_queue)| {
            let max_wait = Duration::from_nanos(max_wait);
            pacing::Config { rate, max_wait, max_queue, warm_up: None }
        }),
        ..Rules::default()
    })
}

fn rule((at, (algorithm, is_keyed, dry_run)): (usize, (Algorithm, bool, bool))) -> Rule {
    let keyed = is_keyed.then(|| Keyed { by: "client_ip".into(), max_keys: 1_000 });
    Rule {
        name: at.to_string().into(),
        algorithm,
        keyed,
        dry_run,
        settles: false,
        queue: None,
        reject_for: None,
    }
}

/// Returns arrivals from `start` on, most of them close to each other, and the ends of some.
fn events(start: u64) -> impl Strategy<Value = Vec<Event>> {
    let gap = prop_oneof![
        4 => Just(0_u64), 4 => 0_u64..2_000_000, 2 => 0_u64..1_000_000_000, 1 => 0_u64..4_000_000_000_000,
    ];
    let ask = option::weighted(0.9, (0_u64..3, prop_oneof![3 => Just(1_u64), 1 => 0_u64..5]));
    let event = (gap, vec(ask, 4), proptest::bool::weighted(0.3));
    vec(event, 1..60).prop_map(move |all| {
        let mut now = Instant::from_nanos(start);
        let mut events = Vec::new();
        for (id, (gap, asks, ends)) in (0_u64..).zip(all) {
            now = now + Duration::from_nanos(gap);
            let asks = asks.into_iter().enumerate().map(|(at, ask)| {
                // The last is pacing's, where every request costs the same.
                ask.map(|(key, cost)| {
                    (Key::Of(u128::from(key) << 100), if at == 3 { 1 } else { cost })
                })
            });
            events.push(Event::Arrival { id, now, asks: asks.collect() });
            if ends {
                events.push(Event::End { of: id / 2 });
            }
        }
        events
    })
}

/// The twelfth of November 2026, and some.
const TODAY: u64 = 1_794_441_600_123_456_789;

#[test]
fn the_store_decides_as_a_gate_does_about_any_arrivals_under_any_rules() {
    let store = RefCell::new(Store::start());
    let config =
        ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() };
    let count = Cell::new(0_u32);
    TestRunner::new(config)
        .run(&(rules(), events(TODAY)), |(mut rules, events)| {
            count.set(count.get() + 1);
            // Pacing is asked as the fourth.
            rules.flow.resize_with(3, || {
                let limit = 1_000_000;
                rule((9, (Algorithm::Concurrency(concurrency::Config { limit }), false, false)))
            });
            store.borrow_mut().compare(&count.get().to_string(), &rules, &events);
            Ok(())
        })
        .expect("the same decisions");
}

#[test]
fn a_lease_that_is_asked_for_again_is_charged_once() {
    let server = server::Server::start();
    let recorded = RecordedCalls::new();
    let mut store = server.connection();
    recorded.load().exec(&mut store).expect("the scripts are in order");
    let rule = Stored::new(&Algorithm::Concurrency(concurrency::Config { limit: 9 }));
    let rule = std::sync::Arc::new(rule.expect("a store can decide about it"));
    let asks =
        [Ask { name: "{a}:r", rule: &rule, key: None, cost: 2, is_dry_run: false, settles: false }];
    let held = |store: &mut redis::Connection| {
        redis::cmd("ZRANGEBYSCORE").arg(&["{a}:r", "-inf", "+inf", "WITHSCORES"]).query(store)
    };
    for name in ["one", "one", "other", "one"] {
        let call = recorded.call(&asks, Lease { name, micros: 1_000 }, Instant::from_nanos(TODAY));
        call.exec(&mut store).expect("an answer");
    }
    let all: Vec<String> = held(&mut store).expect("leases");
    assert_eq!(
        all.chunks(2).map(|pair| &*pair[0]).collect::<Vec<_>>(),
        ["used", "one:2", "other:2"]
    );
    assert_eq!(all[1], "-4", "what they cost together");
    let leases = ["one", "other"].map(|name| ("{a}:r".to_owned(), format!("{name}:2")));
    for _ in 0..2 {
        recorded.release(&leases).exec(&mut store).expect("an answer");
    }
    let none: Vec<String> = held(&mut store).expect("leases");
    assert!(none.is_empty(), "{none:?}");
}

#[test]
fn a_grant_in_the_store_admits_what_it_is_and_leaves_no_trace() {
    let server = server::Server::start();
    let recorded = RecordedCalls::new();
    let mut store = server.connection();
    recorded.load().exec(&mut store).expect("the scripts are in order");
    let rate = Rate::new(4, Duration::from_hours(1)).expect("a rate");
    let align = fixed_window::Align::Clock;
    for (at, algorithm) in [
        Algorithm::TokenBucket(token_bucket::Config { rate, burst: 4 }),
        Algorithm::LeakyBucket(leaky_bucket::Config { rate, capacity: 4 }),
        Algorithm::SlidingWindow(sliding_window::Config { rate, buckets: 4, strict: true }),
        Algorithm::SlidingCounter(sliding_counter::Config { rate }),
        Algorithm::FixedWindow(fixed_window::Config { rate, align }),
        Algorithm::Concurrency(concurrency::Config { limit: 4 }),
    ]
    .into_iter()
    .enumerate()
    {
        let rule = std::sync::Arc::new(Stored::new(&algorithm).expect("a store can decide"));
        let name = format!("{{a}}:{at}");
        let mut lease = 0;
        let mut decide = |cost: u64, is_dry_run: bool| {
            lease += 1;
            let lease = Lease { name: &lease.to_string(), micros: 60_000_000 };
            let asks =
                [Ask { name: &name, rule: &rule, key: None, cost, is_dry_run, settles: false }];
            let call = recorded.call(&asks, lease, Instant::from_nanos(TODAY));
            let answer = call.query(&mut store).expect("an answer");
            let verdicts = RecordedCalls::read(&asks, &answer).expect("a decision");
            let passes = matches!(verdicts.answers[0].decision, Decision::Pass);
            assert_eq!(verdicts.is_admitted, passes || is_dry_run);
            (passes, verdicts.answers[0].used, verdicts.has_grant[0])
        };
        assert_eq!(decide(4, false), (true, 4, false), "{algorithm:?}");
        assert_eq!(decide(1, false), (false, 4, false), "{algorithm:?}");
        let grant = format!("{name}:grant");
        let mut other = server.connection();
        redis::cmd("SET").arg(&[&*grant, "3", "PX", "600000"]).exec(&mut other).expect("granted");
        assert_eq!(decide(4, false), (false, 4, true), "{algorithm:?}: too much");
        assert_eq!(decide(2, false), (true, 4, true), "{algorithm:?}");
        assert_eq!(decide(2, false), (false, 4, true), "{algorithm:?}: too much is left");
        assert_eq!(decide(1, true), (true, 4, true), "{algorithm:?}: a dry run");
        assert_eq!(decide(1, false), (false, 4, false), "{algorithm:?}: it is spent");
        let left: i64 = redis::cmd("EXISTS").arg(grant).query(&mut other).expect("an answer");
        assert_eq!(left, 0);
    }
}

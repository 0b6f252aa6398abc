//! Laws of gateways that sync states: what is sent is counted once, nothing is lost, all come
//! to agree, and no more passes than the bound says.

use crate::{
    TODAY, algorithms,
    gateways::{CallOutcome, Gateways, Store, key, used},
};
use core::{cell::RefCell, time::Duration};
use flowgate::cluster::{MOST_STATES, Push, most_deltas};
use flowgate::flow::{
    Algorithm, Claim, Gate, Instant, Permit, Rate, Rules, Stored,
    limiter::{
        SyncedConfig, fixed_window, leaky_bucket, sliding_counter, sliding_window, token_bucket,
    },
};
use proptest::{collection::vec, prelude::*, test_runner::TestRunner};
use std::sync::Arc;

/// Something that happens at one of the gateways.
#[derive(Clone, Copy, Debug)]
enum Event {
    Arrival { at: usize, client: u64, cost: u64 },
    Sync { at: usize, outcome: CallOutcome },
}

/// Events with the nanoseconds before each, at so many gateways.
fn events(
    gateways: usize,
    gaps: impl Strategy<Value = u64>,
) -> impl Strategy<Value = Vec<(u64, Event)>> {
    let cost = prop_oneof![3 => Just(1_u64), 1 => 1_u64..5];
    let arrival = (0..gateways, 0_u64..3, cost).prop_map(|(at, client, cost)| Event::Arrival {
        at,
        client,
        cost,
    });
    let outcome = prop_oneof![
        6 => Just(CallOutcome::Answered),
        1 => Just(CallOutcome::Lost),
        1 => Just(CallOutcome::AnswerLost),
    ];
    let sync = (0..gateways, outcome).prop_map(|(at, outcome)| Event::Sync { at, outcome });
    vec((gaps, prop_oneof![4 => arrival, 1 => sync]), 1..80)
}

fn gaps() -> impl Strategy<Value = u64> {
    prop_oneof![4 => Just(0_u64), 4 => 0_u64..2_000_000, 2 => 0_u64..1_000_000_000]
}

fn merged() -> impl Strategy<Value = Algorithm> {
    algorithms().prop_filter("what is synced", |algorithm| {
        SyncedConfig::new(algorithm.clone(), 1).is_some()
    })
}

/// Runs a law on random cases, each with a name of its own and one store for all.
fn law<S: Strategy>(cases: u32, strategy: S, test: impl Fn(&mut Store, &str, S::Value)) {
    let store = RefCell::new((Store::start(), 0_u32));
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new(config)
        .run(&strategy, |case| {
            let (store, count) = &mut *store.borrow_mut();
            *count += 1;
            test(store, &count.to_string(), case);
            Ok(())
        })
        .expect("the law holds");
}

/// A rule of one gateway alone, with a state for each client.
struct Alone {
    gate: Arc<Gate>,
    slot: flowgate::flow::SlotId,
}

impl Alone {
    fn new(algorithm: &Algorithm) -> Self {
        let gate = Arc::new(Gate::new(Instant::EPOCH));
        let rule = crate::rule((0, (algorithm.clone(), true, false)));
        let rule = flowgate::flow::Rule { settles: true, ..rule };
        let rules = Rules { flow: vec![rule], ..Rules::default() };
        let slot = gate.install(&rules, Instant::EPOCH).flow[0];
        Self { gate, slot }
    }

    fn passes(&self, now: Instant, client: u64, cost: u64) -> bool {
        self.enter(now, client, cost).is_some()
    }

    fn enter(&self, now: Instant, client: u64, cost: u64) -> Option<Permit> {
        let claim =
            Claim { slot: self.slot, key: key(client), cost, patience: Duration::ZERO, plan: None };
        self.gate.enter(now, &[claim]).ok().map(|admission| admission.permit)
    }
}

/// Something that happens at one of the gateways to costs that are settled.
#[derive(Clone, Copy, Debug)]
enum Paid {
    Enter { at: usize, client: u64, reserve: u64 },
    Settle { which: usize, cost: u64 },
    Sync { at: usize, outcome: CallOutcome },
}

fn paid(
    gateways: usize,
    gaps: impl Strategy<Value = u64>,
) -> impl Strategy<Value = Vec<(u64, Paid)>> {
    let outcome = prop_oneof![
        5 => Just(CallOutcome::Answered),
        1 => Just(CallOutcome::Lost),
        1 => Just(CallOutcome::AnswerLost),
    ];
    let cost = prop_oneof![4 => 0_u64..6, 1 => 6_u64..60];
    let event = prop_oneof![
        4 => (0..gateways, 0_u64..3, 1_u64..5)
            .prop_map(|(at, client, reserve)| Paid::Enter { at, client, reserve }),
        4 => (any::<usize>(), cost).prop_map(|(which, cost)| Paid::Settle { which, cost }),
        3 => (0..gateways, outcome).prop_map(|(at, outcome)| Paid::Sync { at, outcome }),
    ];
    vec((gaps, event), 1..80)
}

#[test]
fn a_gateway_that_syncs_with_no_other_settles_as_one_alone_whatever_calls_are_lost() {
    law(400, (merged(), paid(1, gaps())), |store, name, (algorithm, events)| {
        let mut one = Gateways::start(name, &algorithm, 1);
        let alone = Alone::new(&algorithm);
        let mut live: Vec<[Permit; 2]> = Vec::new();
        let mut now = Instant::from_nanos(TODAY);
        for (gap, event) in &events {
            now = now + Duration::from_nanos(*gap);
            match *event {
                Paid::Enter { client, reserve, .. } => {
                    let here = one.enter(0, now, client, reserve);
                    let there = alone.enter(now, client, reserve);
                    assert_eq!(here.is_some(), there.is_some(), "{algorithm:?} {events:?}");
                    live.extend(here.zip(there).map(|(here, there)| [here, there]));
                }
                Paid::Settle { which, cost } => {
                    if let Some(at) = which.checked_rem(live.len()) {
                        for mut permit in live.swap_remove(at) {
                            permit.settle(now, |_| Some(cost.into()));
                        }
                    }
                }
                Paid::Sync { outcome, .. } => one.sync(store, 0, now, outcome),
            }
            for client in 0..3 {
                let expected = used(&alone.gate, alone.slot, now, client);
                assert_eq!(one.used(0, now, client), expected, "{algorithm:?} {events:?}");
            }
        }
    });
}

/// No window ends meanwhile, so that what is used is the sum.
#[test]
fn what_gateways_settle_is_counted_once_and_all_agree_after_a_quiet_interval() {
    let rate = Rate::new(1_000_000, Duration::from_hours(1_000)).expect("a rate");
    let fixed = |align| Algorithm::FixedWindow(fixed_window::Config { rate, align });
    let algorithms = [
        Algorithm::TokenBucket(token_bucket::Config { rate, burst: 1_000_000 }),
        Algorithm::SlidingWindow(sliding_window::Config { rate, buckets: 10, strict: false }),
        Algorithm::SlidingCounter(sliding_counter::Config { rate }),
        fixed(fixed_window::Align::Clock),
        fixed(fixed_window::Align::FirstRequest),
    ];
    let algorithm = proptest::sample::select(algorithms.to_vec());
    law(200, (algorithm, paid(3, Just(0_u64))), |store, name, (algorithm, events)| {
        let mut three = Gateways::start(name, &algorithm, 3);
        let now = Instant::from_nanos(TODAY);
        let mut live: Vec<(u64, u64, Permit)> = Vec::new();
        let mut sums = [0; 3];
        // Each must know the store's clock before it sends.
        (0..3).for_each(|at| three.sync(store, at, now, CallOutcome::Answered));
        for (_, event) in &events {
            match *event {
                Paid::Enter { at, client, reserve } => {
                    let permit = three.enter(at, now, client, reserve).expect("there is room");
                    sums[usize::try_from(client).expect("small")] += reserve;
                    live.push((client, reserve, permit));
                }
                Paid::Settle { which, cost } => {
                    if let Some(at) = which.checked_rem(live.len()) {
                        let (client, reserve, mut permit) = live.swap_remove(at);
                        permit.settle(now, |_| Some(cost.into()));
                        let sum = &mut sums[usize::try_from(client).expect("small")];
                        *sum = *sum + cost - reserve;
                    }
                }
                Paid::Sync { at, outcome } => three.sync(store, at, now, outcome),
            }
        }
        (0..6).for_each(|at| three.sync(store, at % 3, now, CallOutcome::Answered));
        for at in 0..3 {
            for client in 0..3 {
                let (used, _) = three.used(at, now, client);
                let sum = sums[usize::try_from(client).expect("small")];
                assert_eq!(used, sum, "client {client} at {at}: {algorithm:?} {events:?}");
            }
        }
    });
}

/// With this, every merge is exact: in the store, of what was sent twice, of what is sent late, and
/// of what was charged while a call was under way.
#[test]
fn what_is_given_back_to_a_bucket_reaches_the_others_though_it_has_drained_since() {
    // A unit drains in a second.
    let minute = Rate::new(60, Duration::from_mins(1)).expect("a rate");
    let algorithm = Algorithm::TokenBucket(token_bucket::Config { rate: minute, burst: 60 });
    let mut store = Store::start();
    let mut two = Gateways::start("drained", &algorithm, 2);
    let start = Instant::from_nanos(TODAY);
    let mut permit = two.enter(0, start, 1, 60).expect("there is room");
    for at in [0, 1] {
        two.sync(&mut store, at, start, CallOutcome::Answered);
    }
    let end = start + Duration::from_secs(10);
    assert!(!two.passes(1, end, 1, 60), "all but ten is reserved");

    // Eight seconds ago two units would have drained: more than a delta may be late.
    permit.settle(end, |_| Some(2.into()));
    let soon = end + Duration::from_millis(1);
    for at in [0, 1] {
        two.sync(&mut store, at, soon, CallOutcome::Answered);
    }
    assert!(two.passes(1, soon, 1, 60), "nothing is used");
}

#[test]
fn a_gateway_that_syncs_with_no_other_decides_as_one_alone_whatever_calls_are_lost() {
    law(300, (merged(), events(1, gaps())), |store, name, (algorithm, events)| {
        let mut one = Gateways::start(name, &algorithm, 1);
        let alone = Alone::new(&algorithm);
        let mut now = Instant::from_nanos(TODAY);
        for (gap, event) in &events {
            now = now + Duration::from_nanos(*gap);
            match *event {
                Event::Arrival { client, cost, .. } => {
                    let passes = one.passes(0, now, client, cost);
                    assert_eq!(passes, alone.passes(now, client, cost), "{algorithm:?} {events:?}");
                }
                Event::Sync { outcome, .. } => one.sync(store, 0, now, outcome),
            }
            for client in 0..3 {
                let expected = used(&alone.gate, alone.slot, now, client);
                assert_eq!(one.used(0, now, client), expected, "{algorithm:?} {events:?}");
            }
        }
    });
}

#[test]
fn a_reset_holds_at_every_gateway_and_no_sync_undoes_it() {
    // A store whose list of changes is ahead of its clock by more than a window begins again, and
    // each change takes a microsecond.
    let is_slow = |algorithm: &Algorithm| {
        let (word, numbers) = Stored::new(algorithm).ok()?.sync_terms()?;
        let window = numbers[usize::from(word == "bucket")];
        (window >= 1_000).then_some(())
    };
    let merged = merged().prop_filter("slow", move |algorithm| is_slow(algorithm).is_some());
    let strategy = (merged, events(3, gaps()), 0_usize..3);
    law(200, strategy, |store, name, (algorithm, events, by)| {
        let mut three = Gateways::start(name, &algorithm, 3);
        let mut now = Instant::from_nanos(TODAY);
        let sync = |three: &mut Gateways, store: &mut Store, now| {
            // Twice, so that each has what the others have synced.
            (0..6).for_each(|at| three.sync(store, at % 3, now, CallOutcome::Answered));
        };
        for (gap, event) in &events {
            now = now + Duration::from_nanos(*gap);
            match *event {
                Event::Arrival { at, client, cost } => _ = three.passes(at, now, client, cost),
                Event::Sync { at, outcome } => three.sync(store, at, now, outcome),
            }
        }
        sync(&mut three, store, now);
        let others: Vec<_> = (0..6).map(|at| three.used(at % 3, now, 1 + at as u64 / 3)).collect();
        // What one has not synced yet when another is asked for the reset counts from then on.
        let unsynced = u64::from(three.passes(1, now, 0, 1));
        three.reset(store, by, now, 0);
        sync(&mut three, store, now);
        let left = if by == 1 { 0 } else { unsynced };
        for at in 0..3 {
            assert_eq!(three.used(at, now, 0).0, left, "{at} {by} {algorithm:?} {events:?}");
        }
        let after: Vec<_> = (0..6).map(|at| three.used(at % 3, now, 1 + at as u64 / 3)).collect();
        assert_eq!(after, others, "{algorithm:?} {events:?}");
        // It goes on from there.
        let next = u64::from(three.passes(2, now, 0, 1));
        assert!(left > 0 || next == 1, "{algorithm:?} {events:?}");
        sync(&mut three, store, now);
        for at in 0..3 {
            assert_eq!(three.used(at, now, 0).0, left + next, "{at} {algorithm:?} {events:?}");
        }
    });
}

#[test]
fn a_gateway_that_joins_learns_of_every_client_a_page_at_a_time() {
    const CLIENTS: u64 = 100_000;
    let mut store = Store::start();
    let rate = Rate::new(10, Duration::from_secs(10)).expect("a rate");
    let algorithm = Algorithm::SlidingCounter(sliding_counter::Config { rate });
    let mut two = Gateways::start("all", &algorithm, 2);
    let now = Instant::from_nanos(TODAY);
    assert!((0..CLIENTS).all(|client| two.passes(0, now, client, 1 + client % 3)));
    let calls = |store: &mut Store, two: &mut Gateways, at| {
        let before = store.calls;
        two.sync(store, at, now, CallOutcome::Answered);
        store.calls - before
    };
    let stored = Stored::new(&algorithm).expect("a store can decide about it");
    for (at, most) in [(0, most_deltas(&stored)), (1, MOST_STATES)] {
        let all = CLIENTS.div_ceil(most as u64);
        assert!((all..=all + 1).contains(&calls(&mut store, &mut two, at)));
    }
    assert!((0..CLIENTS).all(|client| two.used(1, now, client) == two.used(0, now, client)));
    assert_eq!(two.used(1, now, 2).0, 3);
    // What has not changed is not sent again.
    assert_eq!(calls(&mut store, &mut two, 1), 1);
}

#[test]
fn the_list_of_what_has_changed_is_cleaned_behind_states_that_live_long() {
    let mut store = Store::start();
    let rate = Rate::new(10, Duration::from_hours(1)).expect("a rate");
    let algorithm = Algorithm::SlidingCounter(sliding_counter::Config { rate });
    let mut one = Gateways::start("one", &algorithm, 1);
    let mut now = Instant::from_nanos(TODAY);
    let mut sync = |store: &mut Store, clients: core::ops::Range<u64>| {
        // Longer than a state lives, so that all in the list may have expired.
        now = now + Duration::from_hours(3) + Duration::from_micros(7);
        assert!(clients.into_iter().all(|client| one.passes(0, now, client, 1)));
        one.sync(store, 0, now, CallOutcome::Answered);
        store.listed(&one)
    };
    assert_eq!(sync(&mut store, 0..200), 200);
    let long = store.states();
    let mut listed = 0;
    for wave in 0..60_u64 {
        let first = 1000 + wave * 100;
        listed = sync(&mut store, first..first + 100);
        let others = store.states().difference(&long).cloned().collect();
        store.expire(&others);
    }
    assert!((200..900).contains(&listed), "{listed} of 6,200 are named, of which 200 live");
    assert_eq!(store.states(), long);
}

#[test]
fn the_list_of_what_has_changed_is_cleaned_beside_a_state_that_lives_longer_and_by_its_readers() {
    let mut store = Store::start();
    let rate = Rate::new(60, Duration::from_mins(10)).expect("a rate");
    let algorithm = Algorithm::TokenBucket(token_bucket::Config { rate, burst: 60 });
    let mut one = Gateways::start("one", &algorithm, 1);
    let mut now = Instant::from_nanos(TODAY);
    let mut listed = 0;
    for wave in 0..60_u64 {
        now = now + Duration::from_millis(100) + Duration::from_micros(7);
        // One client again and again, and thirteen others who come once.
        let mut clients = (0..14).map(|at| if at == 0 { 0 } else { wave * 100 + at });
        assert!(clients.all(|client| one.passes(0, now, client, 1)));
        one.sync(&mut store, 0, now, CallOutcome::Answered);
        listed = store.listed(&one);
        let mut others = store.states();
        others.retain(|state| !state.ends_with(&format!(":{:032x}", 0)));
        assert_eq!(others.len(), 13);
        store.expire(&others);
    }
    assert!(listed < 100, "{listed} of 781 are named, of which 14 live");
    let calls = |store: &mut Store, one: &mut Gateways, at| {
        let before = store.calls;
        one.sync(store, at, now, CallOutcome::Answered);
        store.calls - before
    };
    // Whoever reads the list cleans it.
    assert!((14..100).all(|client| one.passes(0, now, 10_000 + client, 1)));
    one.sync(&mut store, 0, now, CallOutcome::Answered);
    let gone = store.states();
    store.expire(&gone);
    one.join();
    one.join();
    assert!(calls(&mut store, &mut one, 1) > 1);
    assert_eq!((calls(&mut store, &mut one, 2), store.listed(&one)), (1, 0));
}

#[test]
fn what_a_clock_ahead_has_counted_in_the_next_window_takes_nothing_from_this_one() {
    let mut store = Store::start();
    let window = Duration::from_millis(100);
    let rate = Rate::new(9, window).expect("a rate");
    let align = fixed_window::Align::Clock;
    let algorithm = Algorithm::FixedWindow(fixed_window::Config { rate, align });
    let rule = Stored::new(&algorithm).expect("a store can decide about it");
    let begin = TODAY / 1_000_000_000 * 1_000_000_000;
    let mut number = 0;
    // At a millisecond, of a window that ends at another: returns the store's window and its use.
    let mut send = |now: u64, end: u64, used: u64| {
        number += 1;
        let delta = format!("- {} 0 {used}", begin / 1_000 + end * 1_000);
        let push = Push {
            name: "{a}:b",
            rule: &rule,
            gateway: "it",
            number,
            known: 0,
            late: window,
            most: MOST_STATES,
            deltas: &[delta],
        };
        let reply = store.sync(&push, Instant::from_nanos(begin + now * 1_000_000));
        let numbers = &reply.states[0].numbers;
        ((numbers[0] - begin / 1_000) / 1_000, numbers[2])
    };
    assert_eq!(send(95, 100, 5), (100, 5));
    assert_eq!(send(96, 200, 2), (100, 7), "the store's clock says which window it is");
    assert_eq!(send(97, 100, 1), (100, 8));
    assert_eq!(send(101, 200, 1), (200, 1));
    assert_eq!(send(102, 100, 1), (200, 1), "too late to count");
    // Where there is none, the first that is sent is the window, until it ends.
    assert_eq!(send(295, 400, 2), (400, 2));
    assert_eq!(send(296, 300, 1), (400, 3));
    assert_eq!(send(301, 300, 1), (400, 3));
    assert_eq!(send(302, 400, 1), (400, 4));
}

/// Returns the algorithm with a limit that nobody reaches, which counts as this one does.
fn boundless(algorithm: &Algorithm) -> Algorithm {
    const MOST: u64 = 1_000_000_000;
    let mut it = algorithm.clone();
    let wide = |rate: Rate| Rate::new(MOST, rate.window()).expect("a rate");
    match &mut it {
        Algorithm::TokenBucket(it) => it.burst = MOST,
        Algorithm::LeakyBucket(it) => it.capacity = MOST,
        Algorithm::SlidingWindow(it) => it.rate = wide(it.rate),
        Algorithm::SlidingCounter(it) => it.rate = wide(it.rate),
        Algorithm::FixedWindow(it) => it.rate = wide(it.rate),
        Algorithm::WarmUp(_)
        | Algorithm::SlidingLog(_)
        | Algorithm::Concurrency(_)
        | Algorithm::AutoConcurrency(_)
        | Algorithm::Pacing(_)
        | Algorithm::Closed
        | Algorithm::Planned(_)
        | Algorithm::Synced(_) => unreachable!("not synced"),
    }
    it
}

/// Algorithms of the clock, with windows of a tenth of a second, and buckets that do not drain
/// meanwhile: how they count does not depend on the order in which they are sent.
fn orderless() -> impl Strategy<Value = Algorithm> {
    let limit = 1_u64..40;
    let fast = |n| Rate::new(n, Duration::from_millis(100)).expect("a rate");
    let slow = Rate::new(1, Duration::from_hours(8_000)).expect("a rate");
    prop_oneof![
        limit.clone().prop_map(move |burst| {
            Algorithm::TokenBucket(token_bucket::Config { rate: slow, burst })
        }),
        limit.clone().prop_map(move |capacity| {
            Algorithm::LeakyBucket(leaky_bucket::Config { rate: slow, capacity })
        }),
        (limit.clone(), 1_u32..6, any::<bool>()).prop_map(move |(n, buckets, strict)| {
            Algorithm::SlidingWindow(sliding_window::Config { rate: fast(n), buckets, strict })
        }),
        limit.clone().prop_map(move |n| {
            Algorithm::SlidingCounter(sliding_counter::Config { rate: fast(n) })
        }),
        limit.prop_map(move |n| {
            let align = fixed_window::Align::Clock;
            Algorithm::FixedWindow(fixed_window::Config { rate: fast(n), align })
        }),
    ]
}

#[test]
fn what_passed_is_counted_once_and_all_agree_after_a_quiet_interval() {
    let gaps = prop_oneof![3 => Just(0_u64), 3 => 0_u64..1_000_000, 1 => 0_u64..50_000_000];
    law(200, (orderless(), events(4, gaps)), |store, name, (algorithm, events)| {
        let mut four = Gateways::start(name, &algorithm, 4);
        let all = Alone::new(&boundless(&algorithm));
        let mut now = Instant::from_nanos(TODAY);
        for (gap, event) in &events {
            now = now + Duration::from_nanos(*gap);
            match *event {
                Event::Arrival { at, client, cost } => {
                    if four.passes(at, now, client, cost) {
                        assert!(all.passes(now, client, cost));
                    }
                }
                Event::Sync { at, outcome } => four.sync(store, at, now, outcome),
            }
        }
        // Who comes late learns all at once.
        four.join();
        (0..5).for_each(|at| four.sync(store, at, now, CallOutcome::Answered));
        (0..4).for_each(|at| four.sync(store, at, now, CallOutcome::Answered));
        for (at, client) in (0..5).flat_map(|at| (0..3).map(move |client| (at, client))) {
            let expected = used(&all.gate, all.slot, now, client).0;
            let used = four.used(at, now, client);
            assert_eq!(used.0, expected, "gateway {at}, client {client}: {algorithm:?} {events:?}");
            assert_eq!(used, four.used(0, now, client), "{algorithm:?} {events:?}");
        }
    });
}

/// Returns the most cost within `width`, of what comes in order.
pub(crate) fn most_within(passed: &[(Instant, u64)], width: Duration) -> u64 {
    let sum = |from: usize| -> u64 {
        let start = passed[from].0;
        passed[from..]
            .iter()
            .take_while(|(at, _)| at.since(start) < width)
            .map(|passed| passed.1)
            .sum()
    };
    (0..passed.len()).map(sum).max().unwrap_or(0)
}

/// Returns what passed beyond the algorithm's own promise, at the worst.
fn excess(algorithm: &Algorithm, passed: &[(Instant, u64)]) -> u64 {
    let in_windows = |rate: Rate| {
        let index = |at: Instant| at.as_nanos() / rate.window_nanos();
        let of = |passage: &(Instant, u64)| {
            let same = passed.iter().filter(|other| index(other.0) == index(passage.0));
            same.map(|other| other.1).sum::<u64>()
        };
        passed.iter().map(of).max().unwrap_or(0).saturating_sub(rate.count())
    };
    let envelope = |rate: Rate, burst: u64| {
        let beyond = |from: usize, to: usize| {
            let took = passed[to].0.since(passed[from].0).as_nanos();
            let refill = took * u128::from(rate.count()) / u128::from(rate.window_nanos());
            let sum: u64 = passed[from..=to].iter().map(|passed| passed.1).sum();
            u128::from(sum).saturating_sub(u128::from(burst) + refill)
        };
        let pairs =
            (0..passed.len()).flat_map(|from| (from..passed.len()).map(move |to| (from, to)));
        let most = pairs.map(|(from, to)| beyond(from, to)).max().unwrap_or(0);
        u64::try_from(most).expect("few requests")
    };
    match algorithm {
        Algorithm::TokenBucket(it) => envelope(it.rate, it.burst),
        Algorithm::LeakyBucket(it) => envelope(it.rate, it.capacity),
        Algorithm::SlidingWindow(it) if it.strict => {
            most_within(passed, it.rate.window()).saturating_sub(it.rate.count())
        }
        Algorithm::SlidingWindow(it) => {
            let sure = it.rate.window().saturating_sub(it.rate.window() / it.buckets);
            most_within(passed, sure).saturating_sub(it.rate.count())
        }
        Algorithm::SlidingCounter(it) => in_windows(it.rate),
        Algorithm::FixedWindow(it) => in_windows(it.rate),
        Algorithm::WarmUp(_)
        | Algorithm::SlidingLog(_)
        | Algorithm::Concurrency(_)
        | Algorithm::AutoConcurrency(_)
        | Algorithm::Pacing(_)
        | Algorithm::Closed
        | Algorithm::Planned(_)
        | Algorithm::Synced(_) => unreachable!("not synced"),
    }
}

/// The same algorithms, with buckets that drain.
fn draining() -> impl Strategy<Value = Algorithm> {
    let bucket = (1_u64..40, 1_u64..40).prop_map(|(n, burst)| {
        let rate = Rate::new(n, Duration::from_millis(100)).expect("a rate");
        Algorithm::TokenBucket(token_bucket::Config { rate, burst })
    });
    prop_oneof![1 => bucket, 2 => orderless()]
}

#[test]
fn no_more_passes_than_a_limit_and_what_others_have_not_sent() {
    const INTERVAL: u64 = 10_000_000;
    let gaps = prop_oneof![3 => Just(0_u64), 3 => 0_u64..1_000_000, 1 => 0_u64..30_000_000];
    let arrivals = (2_usize..6).prop_flat_map(move |gateways| {
        let arrival = (gaps.clone(), 0..gateways, 1_u64..3);
        (vec(arrival, 1..200), vec(0..INTERVAL, gateways))
    });
    law(150, (draining(), arrivals), |store, name, (algorithm, (arrivals, phases))| {
        let gateways = phases.len();
        let mut them = Gateways::start(name, &algorithm, gateways);
        let mut next: Vec<u64> = phases.iter().map(|phase| TODAY + phase).collect();
        let mut now = TODAY;
        let mut passed: Vec<Vec<(Instant, u64)>> = vec![Vec::new(); gateways];
        let mut together = Vec::new();
        for (gap, at, cost) in arrivals {
            now += gap;
            // Syncs that are due before, in their order.
            while let Some((at, due)) = next
                .iter()
                .copied()
                .enumerate()
                .min_by_key(|next| next.1)
                .filter(|next| next.1 <= now)
            {
                them.sync(store, at, Instant::from_nanos(due), CallOutcome::Answered);
                next[at] += INTERVAL;
            }
            let now = Instant::from_nanos(now);
            if them.passes(at, now, 0, cost) {
                passed[at].push((now, cost));
                together.push((now, cost));
            }
        }
        let unseen = Duration::from_nanos(2 * INTERVAL);
        let mut most: Vec<u64> = passed.iter().map(|passed| most_within(passed, unseen)).collect();
        // The one that lets the last of all pass knows its own.
        most.sort_unstable();
        let bound: u64 = most[1..].iter().sum();
        let excess = excess(&algorithm, &together);
        assert!(excess <= bound, "{excess} over, {bound} at most: {algorithm:?} {together:?}");
    });
}

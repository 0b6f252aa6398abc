//! Edits of a shared bucket's size, and a store whose clock steps back.

use crate::{
    TODAY,
    gateways::{CallOutcome, Gateways, Store as SyncStore},
    server::Server,
};
use core::time::Duration;
use flowgate::{
    cluster::{Ask, Lease, RecordedCalls, Verdicts},
    flow::{
        Algorithm, Decision, Instant, Rate, Stored,
        limiter::{fixed_window, sliding_counter, sliding_window, token_bucket},
        pacing,
    },
};
use proptest::{collection::vec, prelude::*, test_runner::TestRunner};
use std::sync::Arc;

/// A store that decides about one rule at a time.
struct Store {
    connection: redis::Connection,
    recorded: RecordedCalls,
    _server: Server,
}

impl Store {
    fn start() -> Self {
        let server = Server::start();
        let mut connection = server.connection();
        let recorded = RecordedCalls::new();
        recorded.load().exec(&mut connection).expect("the scripts are in order");
        Self { connection, recorded, _server: server }
    }

    fn decide(&mut self, name: &str, rule: &Arc<Stored>, cost: u64, now: Instant) -> Verdicts {
        let asks = [Ask { name, rule, key: None, cost, is_dry_run: false, settles: false }];
        let call = self.recorded.call(&asks, Lease { name: "-", micros: 0 }, now);
        let answer = call.query(&mut self.connection).expect("an answer");
        RecordedCalls::read(&asks, &answer).expect("verdicts")
    }

    fn passes(&mut self, name: &str, rule: &Arc<Stored>, cost: u64, now: Instant) -> bool {
        self.decide(name, rule, cost, now).is_admitted
    }
}

fn rate(count: u64, window: Duration) -> Rate {
    Rate::new(count, window).expect("a rate")
}

fn bucket(burst: u64) -> Algorithm {
    let rate = rate(10, Duration::from_secs(1));
    Algorithm::TokenBucket(token_bucket::Config { rate, burst })
}

fn stored(algorithm: &Algorithm) -> Arc<Stored> {
    Arc::new(Stored::new(algorithm).expect("a store can decide about it"))
}

const fn today() -> Instant {
    Instant::from_nanos(TODAY)
}

#[test]
fn a_lower_burst_does_not_reject_for_what_the_higher_one_let_pass() {
    let mut store = Store::start();
    let high = stored(&bucket(200));
    let low = stored(&bucket(10));
    assert_eq!(high.shape(), low.shape(), "one name, so that the fill is kept");
    assert!((0..200).all(|_| store.passes("{a}:b", &high, 1, today())));
    let rejected = store.decide("{a}:b", &low, 1, today()).answers[0];
    let Decision::Reject(reason) = rejected.decision else { panic!("{rejected:?}") };
    assert_eq!(reason.retry_after(), Some(Duration::from_millis(100)));
    assert_eq!((rejected.limit, rejected.used), (10, 10));
    let full = today() + Duration::from_secs(1);
    assert!((0..10).all(|_| store.passes("{a}:b", &low, 1, full)));
    assert!(!store.passes("{a}:b", &low, 1, full));
    // The same share is missing of a higher one.
    assert!(!store.passes("{a}:b", &high, 1, full));
    assert!(store.passes("{a}:b", &high, 100, full + Duration::from_secs(10)));
}

/// Also while gateways with the old size and with the new one ask in turn.
#[test]
fn whatever_sizes_a_bucket_is_given_the_same_share_of_it_is_missing() {
    const INTERVAL: f64 = 0.1;
    let store = core::cell::RefCell::new((Store::start(), 0_u32));
    let config = ProptestConfig { cases: 60, failure_persistence: None, ..Default::default() };
    let steps = vec((1_u32..300, 1_u32..20, 0_u32..2_000), 1..60);
    TestRunner::new(config)
        .run(&steps, |steps| {
            let (store, count) = &mut *store.borrow_mut();
            *count += 1;
            let name = format!("{{{count}}}:share");
            let mut now = today();
            // In seconds, of the size at the latest call.
            let mut missing = 0.0_f64;
            let mut former = 1.0;
            // The store resizes to whole microseconds: the most by which the share may differ.
            let mut unsure = 0.0;
            for (burst, cost, gap) in steps {
                now = now + Duration::from_millis(gap.into());
                missing = (missing - f64::from(gap) / 1_000.0).max(0.0);
                let size = f64::from(burst) * INTERVAL;
                let share = missing / former;
                let after = share + f64::from(cost) * INTERVAL / size;
                unsure += 2e-6 / size;
                let passes = store.passes(&name, &stored(&bucket(burst.into())), cost.into(), now);
                let is_close = (after - 1.0).abs() < unsure;
                prop_assert!(is_close || passes == (after <= 1.0), "{after} of {burst}");
                missing = size * if passes { after } else { share };
                former = size;
            }
            Ok(())
        })
        .expect("the same share");
}

#[test]
fn with_sync_interval_a_lower_burst_keeps_the_share_too_whatever_was_sent_before() {
    for outcome in [CallOutcome::Answered, CallOutcome::AnswerLost, CallOutcome::Lost] {
        let mut store = SyncStore::start();
        let mut two = Gateways::start("burst", &bucket(200), 2);
        two.sync(&mut store, 0, today(), CallOutcome::Answered);
        assert!((0..200).all(|_| two.passes(0, today(), 0, 1)));
        two.sync(&mut store, 0, today(), outcome);
        two.edit(&bucket(10), today());
        for at in [0, 1, 0] {
            two.sync(&mut store, at, today(), CallOutcome::Answered);
        }
        for at in [0, 1] {
            assert_eq!(two.used(at, today(), 0), (10, Duration::from_secs(1)), "{outcome:?} {at}");
        }
        let full = today() + Duration::from_secs(1);
        assert!((0..10).all(|_| two.passes(1, full, 0, 1)), "{outcome:?}");
        assert!(!two.passes(1, full, 0, 1), "{outcome:?}");
    }
}

#[test]
fn what_is_charged_and_not_sent_before_an_edit_counts_as_a_share() {
    let mut store = SyncStore::start();
    let mut two = Gateways::start("untold", &bucket(200), 2);
    two.sync(&mut store, 0, today(), CallOutcome::Answered);
    assert!((0..100).all(|_| two.passes(0, today(), 0, 1)));
    two.edit(&bucket(10), today());
    for at in [0, 1] {
        two.sync(&mut store, at, today(), CallOutcome::Answered);
        assert_eq!(two.used(at, today(), 0).0, 5, "half of it");
    }
}

/// Rules with windows of a minute, and what each lets pass at once.
fn minutes() -> Vec<(Arc<Stored>, u64)> {
    let minute = Duration::from_mins(1);
    let align = fixed_window::Align::Clock;
    let rate = rate(6, minute);
    let first = fixed_window::Align::FirstRequest;
    let flow = [
        Algorithm::TokenBucket(token_bucket::Config { rate, burst: 6 }),
        Algorithm::FixedWindow(fixed_window::Config { rate, align }),
        Algorithm::FixedWindow(fixed_window::Config { rate, align: first }),
        Algorithm::SlidingCounter(sliding_counter::Config { rate }),
        Algorithm::SlidingWindow(sliding_window::Config { rate, buckets: 6, strict: true }),
    ];
    let paced = pacing::Config { rate, max_wait: 5 * minute, max_queue: 5, warm_up: None };
    let paced = Stored::paced(&paced).expect("a store can decide about it");
    let paced = (Arc::new(paced), 6);
    flow.iter().map(|rule| (stored(rule), 6)).chain([paced]).collect()
}

#[test]
fn a_clock_that_steps_back_by_more_than_a_window_rejects_nothing() {
    let mut store = Store::start();
    for (rule, limit) in minutes() {
        let name = &format!("{{a}}:{}", rule.shape());
        assert!((0..limit).all(|_| store.passes(name, &rule, 1, today())), "{name}");
        assert!(!store.passes(name, &rule, 1, today()), "{name}");
        let back = today() - Duration::from_hours(1);
        let first = store.decide(name, &rule, 1, back);
        assert!(first.is_admitted && first.stale == Some(0), "{name}: {first:?}");
        let next: Vec<Verdicts> = (1..limit).map(|_| store.decide(name, &rule, 1, back)).collect();
        assert!(
            next.iter().all(|decision| decision.is_admitted && decision.stale.is_none()),
            "{name}: {next:?}"
        );
        assert!(!store.passes(name, &rule, 1, back), "{name}");
    }
}

#[test]
fn a_clock_that_steps_back_by_less_than_a_window_forgets_nothing() {
    let mut store = Store::start();
    // In the midst of a minute.
    let now = Instant::from_nanos(TODAY / 60_000_000_000 * 60_000_000_000 + 30_000_000_000);
    for (rule, limit) in minutes() {
        let name = &format!("{{a}}:{}", rule.shape());
        assert!((0..limit / 2).all(|_| store.passes(name, &rule, 1, now)), "{name}");
        let back = now - Duration::from_secs(5);
        let next: Vec<Verdicts> = (0..limit).map(|_| store.decide(name, &rule, 1, back)).collect();
        // A bucket, or a queue, has not drained so far.
        let passed = next.iter().filter(|decision| decision.is_admitted).count() as u64;
        assert!((limit / 2 - 1..=limit / 2).contains(&passed), "{name}: {next:?}");
        assert!(next.iter().all(|decision| decision.stale.is_none()), "{name}: {next:?}");
    }
}

#[test]
fn with_sync_interval_a_clock_that_steps_back_by_more_than_a_window_rejects_nothing() {
    let minute = Duration::from_mins(1);
    let align = fixed_window::Align::Clock;
    let rate = rate(6, minute);
    for algorithm in [
        Algorithm::TokenBucket(token_bucket::Config { rate, burst: 6 }),
        Algorithm::FixedWindow(fixed_window::Config { rate, align }),
        Algorithm::SlidingCounter(sliding_counter::Config { rate }),
        Algorithm::SlidingWindow(sliding_window::Config { rate, buckets: 6, strict: true }),
    ] {
        let mut store = SyncStore::start();
        let mut two = Gateways::start("back", &algorithm, 2);
        two.sync(&mut store, 0, today(), CallOutcome::Answered);
        assert!((0..6).all(|_| two.passes(0, today(), 0, 1)));
        for at in [0, 1] {
            two.sync(&mut store, at, today(), CallOutcome::Answered);
        }
        assert!(!two.passes(1, today(), 0, 1), "{algorithm:?}");
        store.behind = Duration::from_hours(1);
        let later = today() + Duration::from_secs(1);
        let set_back = [0, 1, 0, 1].map(|at| {
            two.sync(&mut store, at, later, CallOutcome::Answered);
            core::mem::take(&mut store.was_set_back)
        });
        assert_eq!(set_back, [true, false, false, false], "{algorithm:?}");
        assert!((0..6).all(|_| two.passes(0, later, 0, 1)), "{algorithm:?}");
        for at in [0, 1] {
            two.sync(&mut store, at, later, CallOutcome::Answered);
            assert!(!two.passes(at, later, 0, 1), "{algorithm:?}");
        }
        assert!(!store.was_set_back, "{algorithm:?}");
    }
}

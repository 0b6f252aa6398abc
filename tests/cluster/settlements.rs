//! Costs that are settled after the response: the store moves its states as a gate does, once for each
//! settlement.

use crate::{
    TODAY,
    equal::{Compared, Event, Rule, Store, ask, compared, enter},
    rates, rule,
    server::Server,
};
use core::{
    cell::{Cell, RefCell},
    time::Duration,
};
use flowgate::{
    cluster::{Ask, Lease, Numbered, RecordedCalls},
    flow::{
        Algorithm, Decision, Gate, Instant, Key, Permit, Rate, Rules, SlotId, Stored,
        calendar::{Calendar, Run},
        limiter::{
            fixed_window::{self, Align},
            leaky_bucket, sliding_counter, sliding_window, token_bucket,
        },
    },
};
use proptest::{collection::vec, option, prelude::*, test_runner::TestRunner};
use redis::{Cmd, Value};
use std::{collections::HashMap, num::NonZeroU64, sync::Arc};

/// The keys and reserves of a request, by rule.
type Asks = Vec<Option<(u64, u64)>>;

#[derive(Clone, Debug)]
enum Act {
    Arrive {
        asks: Asks,
    },
    /// A request in flight ends, and costs so much of each rule; `None` keeps the reserve.
    End {
        which: usize,
        costs: Vec<Option<u64>>,
        delivery: Delivery,
    },
    /// A call comes again that was answered long ago.
    Again {
        which: usize,
    },
}

/// The way of a settlement to the store.
#[derive(Clone, Debug)]
enum Delivery {
    Once,
    /// The answer to the first call is lost.
    Twice,
    /// A decision carries it; a call of its own comes later.
    Carried,
}

fn calendar(window: u64) -> Calendar {
    let runs =
        vec![Run { start: Instant::from_nanos(TODAY - TODAY % window), count: NonZeroU64::MAX }];
    Calendar::new("equal", NonZeroU64::new(window).expect("some time"), runs)
}

fn algorithms() -> impl Strategy<Value = Algorithm> {
    let burst = || prop_oneof![1_u64..9, 1_u64..2_000];
    let fixed = |rate: Rate, align| Algorithm::FixedWindow(fixed_window::Config { rate, align });
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
        rates().prop_map(move |rate| fixed(rate, Align::Clock)),
        rates().prop_map(move |rate| fixed(rate, Align::FirstRequest)),
        rates().prop_map(move |rate| {
            let window = u64::try_from(rate.window().as_nanos()).expect("a short window");
            fixed(rate, Align::Calendar(calendar(window)))
        }),
    ]
    .prop_filter("what a store can decide about", |algorithm| Stored::new(algorithm).is_ok())
}

fn rules() -> impl Strategy<Value = Rules> {
    let flow = vec((algorithms(), any::<bool>(), proptest::bool::weighted(0.1)), 1..4);
    flow.prop_map(|flow| {
        let flow = flow.into_iter().enumerate().map(rule);
        let flow = flow.map(|rule| flowgate::flow::Rule { settles: true, ..rule });
        Rules { flow: flow.collect(), ..Rules::default() }
    })
}

fn acts() -> impl Strategy<Value = Vec<(u64, Act)>> {
    let gap = prop_oneof![
        4 => Just(0_u64), 4 => 0_u64..2_000_000, 3 => 0_u64..1_000_000_000, 1 => 0_u64..4_000_000_000_000,
    ];
    let asks = || vec(option::weighted(0.9, (0_u64..3, 1_u64..6)), 3);
    let cost = prop_oneof![4 => 0_u64..9, 1 => 10_u64..9_000];
    let delivery =
        prop_oneof![Just(Delivery::Once), Just(Delivery::Twice), Just(Delivery::Carried)];
    let act = prop_oneof![
        6 => asks().prop_map(|asks| Act::Arrive { asks }),
        5 => (any::<usize>(), vec(option::weighted(0.9, cost), 3), delivery)
            .prop_map(|(which, costs, delivery)| Act::End { which, costs, delivery }),
        1 => any::<usize>().prop_map(|which| Act::Again { which }),
    ];
    vec((gap, act), 1..80)
}

/// A request in flight.
struct Live {
    at: Instant,
    permit: Permit,
    asks: Vec<Option<(Key, u64)>>,
}

/// The decision that the store must make.
struct Expected {
    asks: Vec<Option<(Key, u64)>>,
    decision: Compared,
}

/// A call, and what the answer must be if it decides about a request.
struct Call {
    command: Cmd,
    decision: Option<Expected>,
}

struct Play<'a> {
    recorded: &'a RecordedCalls,
    gate: Arc<Gate>,
    slots: Vec<SlotId>,
    rules: Vec<Rule>,
    now: Instant,
    live: Vec<Live>,
    calls: Vec<Call>,
    /// Settlements that the store has applied, each with the least number when it was sent.
    settled: Vec<(Vec<Numbered>, u64)>,
    latest: u64,
}

impl Play<'_> {
    fn act(&mut self, act: &Act) {
        match act {
            Act::Arrive { asks } => self.arrive(asks, &[], 0),
            Act::End { which, costs, delivery } => self.end(*which, costs, delivery),
            Act::Again { which } => {
                if let Some(at) = which.checked_rem(self.settled.len()) {
                    let (numbered, low) = self.settled[at].clone();
                    self.send(&numbered, low);
                }
            }
        }
    }

    /// Has a request come, which carries settlements.
    fn arrive(&mut self, asks: &Asks, carried: &[Numbered], low: u64) {
        let asks = asks.iter().take(self.rules.len());
        let key = |key: u64| Key::Of(u128::from(key) << 100);
        let asks = asks.map(|ask| ask.map(|(client, cost)| (key(client), cost))).collect();
        self.arrive_as(asks, carried, low);
    }

    fn arrive_as(&mut self, asks: Vec<Option<(Key, u64)>>, carried: &[Numbered], low: u64) {
        let event = Event::Arrival { id: 0, now: self.now, asks: asks.clone() };
        let mut permits = HashMap::new();
        let decision = enter(&self.gate, &self.slots, &event, &mut permits);
        let expected = Expected { asks: asks.clone(), decision };
        let questions = ask(&self.rules, &asks);
        let command = if carried.is_empty() {
            self.recorded.call(&questions, Lease { name: "-", micros: 0 }, self.now)
        } else {
            self.recorded.call_after(carried, low, &questions, self.now)
        };
        self.calls.push(Call { command, decision: Some(expected) });
        if let Some(permit) = permits.remove(&0) {
            self.live.push(Live { at: self.now, permit, asks });
        }
    }

    fn end(&mut self, which: usize, costs: &[Option<u64>], delivery: &Delivery) {
        let Some(at) = which.checked_rem(self.live.len()) else { return };
        let Live { at, mut permit, asks } = self.live.swap_remove(at);
        let index = |slot| self.slots.iter().position(|own| *own == slot).expect("a rule");
        let reserved: Vec<(usize, u64)> =
            permit.reserves().iter().map(|own| (index(own.slot()), own.cost())).collect();
        permit.settle(self.now, |reserve| costs[index(reserve.slot())].map(Into::into));

        let low = self.latest + 1;
        let mut numbered = Vec::new();
        for (rule, _) in reserved {
            let mut only = vec![None; self.rules.len()];
            only[rule] = asks[rule];
            let question = ask(&self.rules, &only).remove(0);
            let settlement =
                costs[rule].and_then(|cost| RecordedCalls::reserve(&question, at).settlement(cost));
            if let Some(settlement) = settlement {
                self.latest += 1;
                numbered.push(Numbered { number: self.latest, settlement: Arc::new(settlement) });
            }
        }
        if numbered.is_empty() {
            return;
        }

        match delivery {
            Delivery::Once => self.send(&numbered, low),
            Delivery::Twice => {
                self.send(&numbered, low);
                self.send(&numbered, low);
            }
            Delivery::Carried => {
                self.arrive_as(asks, &numbered, low);
                self.send(&numbered, low);
            }
        }
        self.settled.push((numbered, low));
    }

    fn send(&mut self, numbered: &[Numbered], low: u64) {
        let command = self.recorded.settle(numbered, low, self.now);
        self.calls.push(Call { command, decision: None });
    }
}

#[test]
fn the_store_settles_as_a_gate_does_whatever_comes_twice_or_late() {
    let store = RefCell::new(Store::start());
    let config =
        ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() };
    let count = Cell::new(0_u32);
    TestRunner::new(config)
        .run(&(rules(), acts()), |(rules, acts)| {
            count.set(count.get() + 1);
            let Store { connection, recorded, .. } = &mut *store.borrow_mut();
            let gate = Arc::new(Gate::new(Instant::EPOCH));
            let slots = gate.install(&rules, Instant::EPOCH).flow;
            let mut play = Play {
                recorded,
                gate,
                slots,
                rules: Rule::all(&count.get().to_string(), &rules),
                now: Instant::from_nanos(TODAY),
                live: Vec::new(),
                calls: Vec::new(),
                settled: Vec::new(),
                latest: 0,
            };
            for (gap, act) in &acts {
                play.now = play.now + Duration::from_nanos(*gap);
                play.act(act);
            }

            if play.calls.is_empty() {
                return Ok(());
            }
            let mut pipe = redis::pipe();
            for call in &play.calls {
                pipe.add_command(call.command.clone());
            }
            let answers: Vec<Value> = pipe.query(connection).expect("an answer each");
            for (at, (call, answer)) in play.calls.iter().zip(&answers).enumerate() {
                let Some(Expected { asks, decision }) = &call.decision else {
                    prop_assert_eq!(answer, &Value::Array(Vec::new()), "call {}", at);
                    continue;
                };
                let asks = ask(&play.rules, asks);
                let verdicts = RecordedCalls::read(&asks, answer);
                prop_assert!(verdicts.is_ok(), "call {}: {:?}: {:?}", at, verdicts, answer);
                let verdicts = verdicts.expect("just asserted");
                prop_assert_eq!(&compared(&asks, &verdicts), decision, "call {}: {:?}", at, answer);
            }
            Ok(())
        })
        .expect("the same decisions");
}

/// A store that has one rule, in the year 2026.
struct OneRule {
    connection: redis::Connection,
    recorded: RecordedCalls,
    rule: Arc<Stored>,
    name: &'static str,
    latest: u64,
    _server: Server,
}

impl OneRule {
    fn start(algorithm: &Algorithm) -> Self {
        let server = Server::start();
        let mut connection = server.connection();
        let recorded = RecordedCalls::new();
        recorded.load().exec(&mut connection).expect("the scripts are in order");
        let rule = Arc::new(Stored::new(algorithm).expect("a store can decide about it"));
        Self { connection, recorded, rule, name: "{a}:r", latest: 0, _server: server }
    }

    fn ask(&self, cost: u64) -> Ask<'_> {
        Ask { name: self.name, rule: &self.rule, key: None, cost, is_dry_run: false, settles: true }
    }

    /// Returns when a request of this cost that is rejected may come again.
    fn decide(&mut self, cost: u64, now: Instant) -> Option<Duration> {
        let asks = [self.ask(cost)];
        let call = self.recorded.call(&asks, Lease { name: "-", micros: 0 }, now);
        let answer = call.query(&mut self.connection).expect("an answer");
        let asks = [self.ask(cost)];
        let verdicts = RecordedCalls::read(&asks, &answer).expect("a decision");
        match verdicts.answers[0].decision {
            Decision::Reject(reason) => reason.retry_after(),
            Decision::Pass | Decision::Delay(_) => None,
        }
    }

    fn settlement(&mut self, reserve: u64, cost: u64, at: Instant) -> Numbered {
        self.latest += 1;
        let reserve = RecordedCalls::reserve(&self.ask(reserve), at);
        let settlement = reserve.settlement(cost).expect("a difference");
        Numbered { number: self.latest, settlement: Arc::new(settlement) }
    }

    fn settle(&mut self, numbered: &Numbered, low: u64, now: Instant) -> Value {
        let call = self.recorded.settle(core::slice::from_ref(numbered), low, now);
        call.query(&mut self.connection).expect("an answer")
    }
}

fn bucket(count: u64, burst: u64) -> Algorithm {
    let rate = Rate::new(count, Duration::from_mins(1)).expect("a rate");
    Algorithm::TokenBucket(token_bucket::Config { rate, burst })
}

const NOW: Instant = Instant::from_nanos(TODAY - TODAY % 1_000);

#[test]
fn five_at_once_whose_reserves_were_too_small_are_paid_before_the_next() {
    let mut store = OneRule::start(&bucket(100, 100));
    for _ in 0..5 {
        assert_eq!(store.decide(1, NOW), None);
    }
    for cost in [58, 110, 150, 170, 175] {
        let settlement = store.settlement(1, cost, NOW);
        store.settle(&settlement, 1, NOW);
    }
    // 663 are used of 100, and the next takes one more.
    assert_eq!(store.decide(1, NOW), Some(Duration::from_millis(338_400)));
    let paid = NOW + Duration::from_millis(338_400);
    assert!(store.decide(1, paid - Duration::from_micros(1)).is_some());
    assert_eq!(store.decide(1, paid), None);
}

#[test]
fn a_debt_of_many_windows_is_no_stale_state_unless_the_clock_steps_back() {
    let mut store = OneRule::start(&bucket(100, 100));
    assert_eq!(store.decide(1, NOW), None);
    let settlement = store.settlement(1, 5_000, NOW);
    store.settle(&settlement, 1, NOW);
    let wait = |used: u64| Some(Duration::from_millis((used + 1 - 100) * 600));
    assert_eq!(store.decide(1, NOW), wait(5_000));
    assert_eq!(
        store.decide(1, NOW - Duration::from_secs(59)),
        wait(5_000).map(|wait| wait + Duration::from_secs(59))
    );
    assert_eq!(store.decide(1, NOW - Duration::from_secs(61)), None, "it begins again");
}

#[test]
fn what_an_edit_resizes_is_given_back_as_the_same_share() {
    let mut store = OneRule::start(&bucket(100, 100));
    assert_eq!(store.decide(50, NOW), None);
    let settlement = store.settlement(50, 0, NOW);
    let excess = store.settlement(50, 60, NOW);
    // From the first request on, the bucket has the new size: 20 of 40 are used, and 1 more.
    store.rule = Arc::new(Stored::new(&bucket(100, 40)).expect("a bucket"));
    assert_eq!(store.decide(1, NOW), None);
    store.settle(&excess, 1, NOW);
    // 10 more are used, whatever the size.
    assert_eq!(store.decide(10, NOW), Some(Duration::from_millis(600)));
    store.settle(&settlement, 1, NOW);
    // 20 of the 31 are given back.
    assert_eq!(store.decide(30, NOW), Some(Duration::from_millis(600)));
    assert_eq!(store.decide(29, NOW), None);
}

#[test]
fn a_call_that_comes_after_it_was_confirmed_changes_nothing() {
    let mut store = OneRule::start(&bucket(100, 100));
    assert_eq!(store.decide(10, NOW), None);
    let first = store.settlement(10, 40, NOW);
    let second = store.settlement(10, 15, NOW);
    let waits = |used: u64| Some(Duration::from_millis(600 * used));
    for (numbered, low, used) in
        [(&first, 1, 40), (&first, 1, 40), (&second, 2, 45), (&first, 1, 45), (&first, 2, 45)]
    {
        store.settle(numbered, low, NOW);
        assert_eq!(store.decide(100, NOW), waits(used));
    }
    let settled: Vec<String> = redis::cmd("ZRANGE")
        .arg(&["{a}:settled:gateway", "0", "-1"])
        .query(&mut store.connection)
        .expect("a set");
    assert_eq!(settled, ["2", "low"], "what is confirmed takes no room");
}

#[test]
fn a_state_of_another_type_is_reported_and_keeps_no_other_from_being_settled() {
    let mut store = OneRule::start(&bucket(100, 100));
    assert_eq!(store.decide(10, NOW), None);
    let settlement = store.settlement(10, 40, NOW);
    store.name = "{a}:other";
    let other = store.settlement(10, 40, NOW);
    redis::cmd("LPUSH").arg(&["{a}:other", "1"]).exec(&mut store.connection).expect("a list");
    store.name = "{a}:r";
    let call = store.recorded.settle(&[other, settlement], 1, NOW);
    let answer: Value = call.query(&mut store.connection).expect("an answer");
    assert_eq!(answer, Value::Array(vec![Value::Int(2)]));
    assert_eq!(store.decide(100, NOW), Some(Duration::from_secs(24)));
}

#[test]
fn what_is_no_state_is_reported_and_keeps_no_other_from_being_settled() {
    let rate = Rate::new(100, Duration::from_mins(1)).expect("a rate");
    let fixed = |align| Algorithm::FixedWindow(fixed_window::Config { rate, align });
    let algorithms = [
        bucket(100, 100),
        fixed(Align::Clock),
        fixed(Align::FirstRequest),
        Algorithm::SlidingWindow(sliding_window::Config { rate, buckets: 6, strict: false }),
        Algorithm::SlidingCounter(sliding_counter::Config { rate }),
    ];
    let mut rejected = 0;
    for algorithm in algorithms {
        let mut store = OneRule::start(&algorithm);
        // Of another program, and with fewer numbers than a state has.
        for (content, cost) in [("x y z", 0), ("5", 40), ("5", 0), ("1 2 x", 40)] {
            redis::cmd("FLUSHDB").exec(&mut store.connection).expect("flushed");
            assert_eq!(store.decide(10, NOW), None);
            let settlement = store.settlement(10, 40, NOW);
            store.name = "{a}:other";
            let other = store.settlement(10, cost, NOW);
            let other_number = other.number;
            redis::cmd("SET")
                .arg(&["{a}:other", content])
                .exec(&mut store.connection)
                .expect("it is set");
            store.name = "{a}:r";
            let call = store.recorded.settle(&[other, settlement], 1, NOW);
            let answer = call.query(&mut store.connection).expect("an answer");
            // What reads as a fresh state is settled.
            let Value::Array(numbers) = answer else { panic!("{answer:?}") };
            let all = Value::Int(i64::try_from(other_number).expect("a number"));
            assert!(numbers.is_empty() || numbers == [all], "{algorithm:?}: {numbers:?}");
            rejected += numbers.len();
            assert!(store.decide(61, NOW).is_some(), "{algorithm:?}: the other one is settled");
            assert_eq!(store.decide(60, NOW), None, "{algorithm:?}");
        }
    }
    assert!(rejected > 0, "the store applied all: the test shows less");
}

#[test]
fn a_settlement_waits_while_the_store_has_no_memory() {
    let mut store = OneRule::start(&bucket(100, 100));
    assert_eq!(store.decide(10, NOW), None);
    let settlement = store.settlement(10, 40, NOW);
    let set = |store: &mut OneRule, most: &str| {
        let set = ["SET", "maxmemory", most];
        redis::cmd("CONFIG").arg(&set).exec(&mut store.connection).expect("it is set");
    };
    set(&mut store, "1");
    let call = store.recorded.settle(core::slice::from_ref(&settlement), 1, NOW);
    let error = call.query::<Value>(&mut store.connection).expect_err("no memory");
    assert!(error.to_string().contains("OOM"), "{error}");
    set(&mut store, "0");
    store.settle(&settlement, 1, NOW);
    assert_eq!(store.decide(61, NOW), Some(Duration::from_millis(600)));
}

#[test]
fn what_was_settled_is_forgotten_two_hours_after_the_last() {
    let mut store = OneRule::start(&bucket(100, 100));
    assert_eq!(store.decide(10, NOW), None);
    let ttl = |store: &mut OneRule| -> i64 {
        let ttl = redis::cmd("PTTL").arg("{a}:settled:gateway").query(&mut store.connection);
        ttl.expect("a time")
    };
    let hours = 1_000 * 3_600;
    for low in [1, 2] {
        let settlement = store.settlement(10, 40, NOW);
        store.settle(&settlement, low, NOW);
        let left = ttl(&mut store);
        assert!((hours..=2 * hours).contains(&left), "{left}");
        // As if most of the time had passed.
        redis::cmd("PEXPIRE")
            .arg(&["{a}:settled:gateway", "60000"])
            .exec(&mut store.connection)
            .expect("it is set");
        assert!(ttl(&mut store) <= 60_000);
    }
    redis::cmd("PEXPIRE")
        .arg(&["{a}:settled:gateway", "1"])
        .exec(&mut store.connection)
        .expect("it is set");
    while ttl(&mut store) != -2 {
        std::thread::yield_now();
    }
    let again = Numbered { number: 1, ..store.settlement(10, 11, NOW) };
    store.settle(&again, 1, NOW);
    let settled: Vec<String> = redis::cmd("ZRANGE")
        .arg(&["{a}:settled:gateway", "0", "-1"])
        .query(&mut store.connection)
        .expect("a set");
    assert_eq!(settled, ["1", "low"], "a new set begins");
}

#[test]
fn nothing_is_given_back_to_a_store_that_has_lost_its_memory() {
    let mut store = OneRule::start(&bucket(100, 100));
    assert_eq!(store.decide(100, NOW), None);
    let less = store.settlement(100, 1, NOW);
    let more = store.settlement(100, 150, NOW);
    redis::cmd("FLUSHDB").exec(&mut store.connection).expect("flushed");
    store.settle(&less, 1, NOW);
    assert_eq!(store.decide(1, NOW), None);
    store.settle(&more, 1, NOW);
    assert_eq!(store.decide(100, NOW), Some(Duration::from_millis(600 * 51)), "1 and the excess");
}

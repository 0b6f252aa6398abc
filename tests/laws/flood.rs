//! Laws of a rule that has more keys than places: nobody gains by losing a place, and a new key
//! is served whoever else comes.

use crate::{
    config,
    day::{MORNING, rule},
    oracle::{Past, assert_promise},
};
use core::time::Duration;
use fastrand::Rng;
use flowgate::flow::{
    Algorithm, Change, Churn, Claim, Gate, Instant, Key, Keyed, Permit, Rate, Reason, RoundTrip,
    Rule, Rules, SlotId, WarmUp,
    limiter::{
        SyncedConfig, concurrency,
        fixed_window::{self, Align},
        leaky_bucket, sliding_counter, sliding_log, sliding_window, token_bucket, warm_up,
    },
    pacing,
};
use proptest::{collection::vec, prelude::*, sample::select};
use std::{collections::HashMap, sync::Arc};

/// Every algorithm that can be keyed.
fn every(rate: Rate) -> Vec<Algorithm> {
    let sliding =
        |strict| Algorithm::SlidingWindow(sliding_window::Config { rate, buckets: 10, strict });
    let fixed = |align| Algorithm::FixedWindow(fixed_window::Config { rate, align });
    let burst = rate.count();
    let warm_up = WarmUp { period: Duration::from_secs(10), cold_factor: 3 };
    let max_wait = rate.window();
    let paced = |warm_up| pacing::Config { rate, max_wait, max_queue: 3, warm_up };
    let alone = vec![
        Algorithm::TokenBucket(token_bucket::Config { rate, burst }),
        Algorithm::TokenBucket(token_bucket::Config { rate, burst: 1 }),
        Algorithm::LeakyBucket(leaky_bucket::Config { rate, capacity: burst }),
        fixed(Align::Clock),
        fixed(Align::FirstRequest),
        sliding(false),
        sliding(true),
        Algorithm::SlidingCounter(sliding_counter::Config { rate }),
        Algorithm::SlidingLog(sliding_log::Config { rate }),
        Algorithm::WarmUp(warm_up::Config { rate, burst, warm_up }),
        Algorithm::Concurrency(concurrency::Config { limit: 2 }),
        Algorithm::Pacing(paced(None)),
        Algorithm::Pacing(paced(Some(warm_up))),
    ];
    let synced =
        |algorithm: &Algorithm| SyncedConfig::new(algorithm.clone(), 1).map(Algorithm::Synced);
    let all_synced: Vec<_> = alone.iter().filter_map(synced).collect();
    [alone, all_synced].concat()
}

/// Returns the algorithm that gateways share, or this one itself.
fn whole(algorithm: &Algorithm) -> &Algorithm {
    if let Algorithm::Synced(it) = algorithm { it.whole() } else { algorithm }
}

/// Whether each client's windows begin with a first request of its own.
fn is_first_request(algorithm: &Algorithm) -> bool {
    matches!(whole(algorithm), Algorithm::FixedWindow(it) if it.align == Align::FirstRequest)
}

/// A gate with one keyed rule.
struct Keyring {
    gate: Arc<Gate>,
    slot: SlotId,
    max_keys: u32,
    is_synced: bool,
}

impl Keyring {
    fn new(algorithm: &Algorithm, max_keys: u32) -> Self {
        let gate = Arc::new(Gate::new(MORNING));
        let slot = gate.install(&Self::rules(algorithm, max_keys), MORNING).flow[0];
        Self { gate, slot, max_keys, is_synced: matches!(algorithm, Algorithm::Synced(_)) }
    }

    fn rules(algorithm: &Algorithm, max_keys: u32) -> Rules {
        let keyed = Some(Keyed { by: "client_ip".into(), max_keys });
        let flow = vec![Rule { keyed, ..rule(0, algorithm.clone(), false) }];
        Rules { flow, ..Rules::default() }
    }

    fn edit(&self, algorithm: &Algorithm, now: Instant) {
        let change = self.gate.install(&Self::rules(algorithm, self.max_keys), now).changes[0].1;
        assert!(matches!(change, Change::Kept | Change::Converted));
    }

    fn enter(&self, now: Instant, key: u64, cost: u64) -> Result<Permit, Reason> {
        if self.is_synced {
            // The store takes all that is sent, and says what time it is.
            let mut deltas = Vec::new();
            assert_eq!(self.gate.collect(self.slot, 0, usize::MAX, &mut deltas), None);
            let way = RoundTrip { asked: now, given: now, came: now };
            self.gate.adopt(self.slot, way, &[]);
        }
        let key = Key::Of(Rng::with_seed(key).u128(..));
        let claims = [Claim { slot: self.slot, key, cost, patience: Duration::ZERO, plan: None }];
        self.gate
            .enter(now, &claims)
            .map(|entered| entered.permit)
            .map_err(|entered| entered.reason)
    }

    /// Returns what happened for want of room.
    fn churn(&self) -> Churn {
        let keys = self.gate.observe(MORNING).rules[0].keys.expect("keys");
        assert!(keys.live <= self.max_keys, "{keys:?}");
        keys.churn
    }
}

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Time passes: thousandths of a window.
    Wait(u32),
    Enter {
        key: u64,
        cost: u64,
    },
    /// One of those in flight ends.
    End(usize),
    /// The numbers become these, of the same algorithm.
    Edit(usize),
}

fn rate_of(count: u64, millis: u64) -> Rate {
    Rate::new(count, Duration::from_millis(millis)).expect("within its bounds")
}

fn rates() -> impl Strategy<Value = Rate> {
    let windows = select(vec![10, 999, 1_000, 60_000, 3_600_000, 86_400_000]);
    (1..=9_u64, windows).prop_map(|(count, millis)| rate_of(count, millis))
}

fn steps(edits: u32) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..100_u32).prop_map(Step::Wait),
        1 => (500..2_100_u32).prop_map(Step::Wait),
        40 => (0..40_u64, prop_oneof![6 => Just(1), 1 => 2..=4_u64])
            .prop_map(|(key, cost)| Step::Enter { key, cost }),
        6 => any::<usize>().prop_map(Step::End),
        edits => (0..2_usize).prop_map(Step::Edit),
    ];
    vec(step, 1..300)
}

/// Whether a key never gains by usage that is dated later. A paced one gains warmth by a later start.
/// An edit takes what a cold bucket lacks for usage, of a key that has a place.
fn is_compared(algorithm: &Algorithm, is_edited: bool) -> bool {
    match algorithm {
        Algorithm::Pacing(pacing::Config { warm_up: Some(_), .. }) => false,
        Algorithm::WarmUp(_) => !is_edited,
        other @ (Algorithm::TokenBucket(_)
        | Algorithm::LeakyBucket(_)
        | Algorithm::SlidingLog(_)
        | Algorithm::SlidingWindow(_)
        | Algorithm::SlidingCounter(_)
        | Algorithm::FixedWindow(_)
        | Algorithm::Concurrency(_)
        | Algorithm::AutoConcurrency(_)
        | Algorithm::Pacing(_)
        | Algorithm::Closed
        | Algorithm::Planned(_)
        | Algorithm::Synced(_)) => !is_first_request(other),
    }
}

/// A rule with room for few, its twin, and one with room for all.
struct Rings {
    bounded: Keyring,
    twin: Keyring,
    unbounded: Keyring,
    /// Of each request in flight, its permits.
    live: Vec<Vec<Permit>>,
    pasts: HashMap<u64, Past>,
    is_edited: bool,
}

impl Rings {
    fn new(algorithm: &Algorithm, max_keys: u32) -> Self {
        let [bounded, twin] = [(); 2].map(|()| Keyring::new(algorithm, max_keys));
        let unbounded = Keyring::new(algorithm, 100_000);
        Self { bounded, twin, unbounded, live: Vec::new(), pasts: HashMap::new(), is_edited: false }
    }

    /// Asserts that a request that passes would have passed with room for all, after the same
    /// requests, and started no later. Of a window that a first request begins, and of a paced or
    /// edited warm-up, only the promise holds.
    fn enter(&mut self, algorithm: &Algorithm, now: Instant, key: u64, cost: u64) {
        let decided = self.bounded.enter(now, key, cost);
        let same = self.twin.enter(now, key, cost);
        assert_eq!(decided.as_ref().err(), same.as_ref().err(), "{key}: {algorithm:?}");
        let (Ok(permit), Ok(same)) = (decided, same) else { return };
        let past = self.pasts.entry(key).or_default();
        past.passed.push((now.as_nanos(), cost));
        past.starts.push(permit.start().as_nanos());
        let mut permits = vec![permit, same];
        if is_compared(algorithm, self.is_edited) {
            let known = self.unbounded.enter(now, key, cost);
            assert_eq!(known.as_ref().err(), None, "{key} gained: {algorithm:?}");
            permits.extend(known);
            assert!(permits[2].start() <= permits[0].start(), "{key} is early: {algorithm:?}");
        }
        self.live.push(permits);
    }

    fn edit(&mut self, algorithm: &Algorithm, now: Instant) {
        self.is_edited = true;
        for ring in [&self.bounded, &self.twin, &self.unbounded] {
            ring.edit(algorithm, now);
        }
        // Some of it is converted later.
        self.bounded.gate.catch_up();
        self.twin.gate.catch_up();
    }
}

/// Plays the steps where there is room for `max_keys`, and asserts that nobody gains by that.
fn assert_nobody_gains(kinds: [&Algorithm; 2], max_keys: u32, begin: Instant, steps: &[Step]) {
    let mut rings = Rings::new(kinds[0], max_keys);
    let mut now = begin;
    let mut algorithm = kinds[0];
    for step in steps {
        match *step {
            Step::Wait(parts) => {
                let window = whole(algorithm).most_in_a_window().map(|(_, window)| window);
                now = now + window.unwrap_or(Duration::from_secs(1)) / 1_000 * parts;
            }
            Step::Enter { key, cost } => rings.enter(algorithm, now, key, cost),
            Step::End(which) => {
                if !rings.live.is_empty() {
                    rings.live.swap_remove(which % rings.live.len());
                }
            }
            Step::Edit(which) => {
                algorithm = kinds[which];
                rings.edit(algorithm, now);
            }
        }
    }
    if kinds[0] == kinds[1] {
        for past in rings.pasts.values() {
            assert_promise(algorithm, past);
        }
    }
    assert_eq!(rings.bounded.churn(), rings.twin.churn());
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn nobody_gains_by_losing_the_place_to_another(
        algorithm in rates().prop_flat_map(|rate| select(every(rate))),
        max_keys in 1..=9_u32,
        steps in steps(0),
        phase in 0..1_000_000_007_u64,
    ) {
        let begin = MORNING + Duration::from_nanos(phase);
        assert_nobody_gains([&algorithm; 2], max_keys, begin, &steps);
    }

    #[test]
    fn nobody_gains_by_losing_the_place_to_another_beside_edits(
        (one, other) in (rates(), rates()).prop_flat_map(|(one, other)| {
            // A pace that gets slower counts from the last start, which is not remembered.
            let is_paced = |algorithm: &Algorithm| matches!(algorithm, Algorithm::Pacing(_));
            let pairs = every(one).into_iter().zip(every(other));
            select(pairs.filter(|(one, _)| !is_paced(one)).collect::<Vec<_>>())
        }),
        max_keys in 1..=9_u32,
        steps in steps(2),
        phase in 0..1_000_000_007_u64,
    ) {
        let begin = MORNING + Duration::from_nanos(phase);
        assert_nobody_gains([&one, &other], max_keys, begin, &steps);
    }
}

const JUNK: u64 = 1_000_000;

/// What comes of twice as many new keys as there is room for, each once and as many as a fortieth
/// of the room in a second, beside whom `beside` sends after each.
fn flood(algorithm: &Algorithm, room: u32, mut beside: impl FnMut(&Keyring, Instant, u32)) {
    let ring = Keyring::new(algorithm, room);
    for n in 0..2 * room {
        let now = MORNING + Duration::from_secs(40) / room * n;
        drop(ring.enter(now, JUNK + u64::from(n), 1));
        beside(&ring, now, n);
    }
    // A limit of what is in flight has nothing to remember.
    let is_remembered = !matches!(algorithm, Algorithm::Concurrency(_));
    assert!(!is_remembered || ring.churn().evicted > 1_000, "{:?} {algorithm:?}", ring.churn());
}

/// What floods are measured by, with the room: each algorithm, and two with room for 20,000
/// beside 500 new keys a second. All so slow that nothing is over before a place is lost.
fn slow() -> impl Iterator<Item = (Algorithm, u32)> {
    let rate = rate_of(5, 600_000);
    let bucket = Algorithm::TokenBucket(token_bucket::Config { rate, burst: 5 });
    let window = sliding_window::Config { rate, buckets: 10, strict: true };
    let large = [bucket, Algorithm::SlidingWindow(window)].map(|algorithm| (algorithm, 20_000));
    let alone = |algorithm: &Algorithm| !matches!(algorithm, Algorithm::Synced(_));
    every(rate).into_iter().filter(alone).map(|algorithm| (algorithm, 2_000)).chain(large)
}

#[test]
fn of_74_new_clients_in_a_flood_of_keys_all_pass() {
    for (algorithm, room) in slow() {
        let mut came = 0;
        let mut passed = 0;
        flood(&algorithm, room, |ring, now, n| {
            // From when the table has been full for a while.
            if n >= room / 4 * 5 && n.is_multiple_of(room / 100) && came < 74 {
                came += 1;
                passed += u32::from(ring.enter(now, came, 1).is_ok());
            }
        });
        // Each of the flood has used up one that lets one pass at once. When as many have lost their
        // places as there are, a sixteenth of the new ones may be taken for one, by four rows of
        // twice as many cells.
        let lets_one_pass = matches!(&algorithm, Algorithm::WarmUp(_))
            || matches!(&algorithm, Algorithm::TokenBucket(it) if it.burst == 1);
        let least = if lets_one_pass { 74 - 74 / 16 } else { 74 };
        assert!(came == 74 && passed >= least, "{passed} of {came}: {algorithm:?}");
    }
}

#[test]
fn a_client_that_has_used_up_all_gets_nothing_by_a_flood_of_keys() {
    for (algorithm, room) in slow() {
        let alone = Keyring::new(&algorithm, room);
        let mut passed = 0;
        let mut expected = 0;
        let mut ask = |ring: &Keyring, now, n: u32| {
            if n.is_multiple_of(10) {
                passed += u32::from(ring.enter(now, 1, 1).is_ok());
                expected += u32::from(alone.enter(now, 1, 1).is_ok());
            }
        };
        flood(&algorithm, room, &mut ask);
        assert!(passed <= expected, "{passed} of {expected}: {algorithm:?}");
        assert!(passed > 0, "{algorithm:?}");
    }
}

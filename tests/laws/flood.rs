//! Laws of a rule that a flood of new keys has no room for: who has a place keeps it.

use crate::{
    config,
    day::{MORNING, rule},
    oracle::{Past, assert_promise},
};
use core::time::Duration;
use flowgate::flow::{
    Algorithm, Claim, Gate, Instant, Key, Keyed, Permit, Rate, Reason, RoundTrip, Rule, Rules,
    SlotId, WarmUp,
    limiter::{
        concurrency, exchanged,
        fixed_window::{self, Align},
        leaky_bucket, sliding_counter, sliding_log, sliding_window, token_bucket, warm_up,
    },
    pacing,
};
use proptest::{collection::vec, prelude::*, sample::select};
use std::{collections::VecDeque, sync::Arc};

/// Keys that the rule has room for.
const ROOM: u32 = 6;

/// New keys between two requests of the honest client.
const FLOOD: u32 = 3 * ROOM;

/// Keys of the flood that come again and again, beside those that come once.
const GREEDY: u128 = 3;

/// Every algorithm that can be keyed.
fn every(rate: Rate) -> Vec<Algorithm> {
    let sliding =
        |strict| Algorithm::SlidingWindow(sliding_window::Config { rate, buckets: 10, strict });
    let fixed = |align| Algorithm::FixedWindow(fixed_window::Config { rate, align });
    let burst = rate.count();
    let warm_up = WarmUp { period: Duration::from_secs(10), cold_factor: 3 };
    let max_wait = rate.window();
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
        Algorithm::Pacing(pacing::Config { rate, max_wait, max_queue: 3, warm_up: None }),
    ];
    let exchange = |it: &Algorithm| exchanged::Config::new(it.clone(), 1).map(Algorithm::Exchanged);
    let exchanged: Vec<_> = alone.iter().filter_map(exchange).collect();
    [alone, exchanged].concat()
}

/// Returns the algorithm that gateways share, or this one itself.
fn whole(algorithm: &Algorithm) -> &Algorithm {
    if let Algorithm::Exchanged(it) = algorithm { it.whole() } else { algorithm }
}

/// Returns how long after its latest charge a client keeps its place at least.
fn kept(algorithm: &Algorithm) -> Duration {
    if let Algorithm::FixedWindow(it) = whole(algorithm)
        && it.align == Align::FirstRequest
    {
        return it.rate.window();
    }
    algorithm.grace()
}

/// Returns what a request may cost that ever passes, if that is not what the rate counts.
fn most_at_once(algorithm: &Algorithm) -> Option<u64> {
    if let Algorithm::TokenBucket(it) = whole(algorithm) {
        return Some(it.burst);
    }
    if let Algorithm::Concurrency(it) = algorithm { Some(it.limit) } else { None }
}

/// A gate with one keyed rule.
struct Keyring {
    gate: Arc<Gate>,
    slot: SlotId,
    is_exchanged: bool,
}

impl Keyring {
    fn new(algorithm: &Algorithm) -> Self {
        let gate = Arc::new(Gate::new(MORNING));
        let keyed = Some(Keyed { by: "client_ip".into(), max_keys: ROOM });
        let flow = vec![Rule { keyed, ..rule(0, algorithm.clone(), false) }];
        let slot = gate.install(&Rules { flow, ..Rules::default() }, MORNING).flow[0];
        Self { gate, slot, is_exchanged: matches!(algorithm, Algorithm::Exchanged(_)) }
    }

    fn enter(&self, now: Instant, key: Key, cost: u64) -> Result<Permit, Reason> {
        if self.is_exchanged {
            // The store tells what time it is, and that nothing was charged elsewhere.
            let way = RoundTrip { asked: now, given: now, came: now };
            self.gate.adopt(self.slot, way, &[]);
        }
        let claims = [Claim { slot: self.slot, key, cost, patience: Duration::ZERO }];
        self.gate.enter(now, &claims).map(|it| it.permit).map_err(|it| it.reason)
    }
}

/// New keys for which a rule has no room, and some that come with each wave of them.
struct Flood {
    keys: u128,
    /// The requests of more keys than there is room for are in flight at any time.
    live: VecDeque<Permit>,
    greedy: [Past; GREEDY as usize],
}

impl Flood {
    fn new() -> Self {
        Self { keys: 0, live: VecDeque::new(), greedy: Default::default() }
    }

    /// Sends a wave that ends before `to`.
    fn pour(&mut self, ring: &Keyring, from: Instant, to: Instant) {
        for step in 0..FLOOD {
            let now = from + to.since(from) * step / FLOOD;
            self.keys += 1;
            self.live.extend(ring.enter(now, spread(1_000 + self.keys), 1));
            let greedy = self.keys % GREEDY;
            if let Ok(permit) = ring.enter(now, spread(100 + greedy), 1) {
                let past = &mut self.greedy[usize::try_from(greedy).expect("few")];
                past.passed.push((now.as_nanos(), 1));
                past.starts.push(permit.start().as_nanos());
            }
            while self.live.len() > 4 * ROOM as usize {
                self.live.pop_front();
            }
        }
    }
}

/// Returns a key. Where there is no room, every other one shares a state with the honest
/// client, and the rest one with few: clients who hold something there stay there.
fn spread(key: u128) -> Key {
    let low = u64::try_from(key).expect("few").wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let shared = if key.is_multiple_of(2) { key / 2 % 63 + 1 } else { 0 };
    Key::Of((key * 64 + shared) << 64 | u128::from(low))
}

/// Plays requests after these pauses, alone and beside a flood, and asserts that they fare
/// the same, that nobody in the flood gets more than is promised, and that no key is held
/// beyond the room. Returns how many passed.
fn assert_undisturbed(algorithm: &Algorithm, begin: Instant, pauses: &[(Duration, u64)]) -> u64 {
    let (alone, beside) = (Keyring::new(algorithm), Keyring::new(algorithm));
    let (mut flood, mut live) = (Flood::new(), Vec::new());
    let (mut now, mut passed) = (begin, 0);
    for (at, &(pause, cost)) in pauses.iter().enumerate() {
        let next = now + pause;
        if at > 0 {
            let half = now + pause / 2;
            flood.pour(&beside, now, half);
            // Its own request ends in between.
            live.clear();
            flood.pour(&beside, half, next);
        }
        now = next;
        let (expected, decided): (_, _) =
            [&alone, &beside].map(|it| it.enter(now, spread(1), cost)).into();
        let start = |it: &Result<Permit, Reason>| it.as_ref().map(Permit::start).map_err(|it| *it);
        assert_eq!(start(&decided), start(&expected), "request {at} of {algorithm:?}");
        passed += u64::from(decided.is_ok());
        live.extend(expected.into_iter().chain(decided));
    }
    for past in &flood.greedy {
        assert_promise(algorithm, past);
    }
    let keys = beside.gate.observe(now).rules[0].keys.expect("keys");
    assert!(keys.live <= ROOM, "{keys:?}");
    assert!(keys.overflowed > 0 || pauses.len() < 3, "{keys:?}: no flood of {algorithm:?}");
    passed
}

fn rates() -> impl Strategy<Value = Rate> {
    let windows = select(vec![10, 999, 1_000, 60_000, 3_600_000, 86_400_000]);
    (1..=9_u64, windows).prop_map(|(count, millis)| rate_of(count, millis))
}

fn rate_of(count: u64, millis: u64) -> Rate {
    Rate::new(count, Duration::from_millis(millis)).expect("within its bounds")
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn who_comes_back_in_time_is_decided_about_as_if_there_were_no_flood(
        (algorithm, pauses) in rates().prop_flat_map(|rate| {
            let pause = prop_oneof![2 => 0..=1_000_u32, 1 => Just(0), 1 => Just(1_000)];
            (select(every(rate)), vec((pause, 1..=rate.count()), 2..25))
        }),
        phase in 0..1_000_000_007_u64,
    ) {
        let (kept, most) = (kept(&algorithm), most_at_once(&algorithm).unwrap_or(u64::MAX));
        let part = |(parts, cost): &(u32, u64)| (kept / 1_000 * *parts, (*cost).min(most));
        let mut pauses: Vec<_> = pauses.iter().map(part).collect();
        // One that surely passes.
        pauses[0].1 = 1;
        assert_undisturbed(&algorithm, MORNING + Duration::from_nanos(phase), &pauses);
    }
}

#[test]
fn an_even_client_at_four_fifths_of_its_rate_passes_beside_a_flood() {
    for (count, millis) in [(5, 1_000), (1, 1_000), (300, 60_000), (10, 3_600_000), (1, 86_400_000)]
    {
        let rate = rate_of(count, millis);
        let pause = rate.window() * 5 / 4 / u32::try_from(count).expect("few");
        for algorithm in every(rate) {
            let pause = pause.min(kept(&algorithm));
            let passed = assert_undisturbed(&algorithm, MORNING, &[(pause, 1); 40]);
            // A count of windows weighs what came when, and a cold service takes a third.
            let is_weighed =
                matches!(whole(&algorithm), Algorithm::SlidingCounter(_) | Algorithm::WarmUp(_));
            let is_strict = matches!(whole(&algorithm), Algorithm::SlidingWindow(it) if it.strict);
            let most = [40, 36, 13][usize::from(is_strict) + 2 * usize::from(is_weighed)];
            assert!(passed >= most, "{passed} of 40: {algorithm:?}");
        }
    }
}

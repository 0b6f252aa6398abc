//! Nanoseconds per request, and per decision.
//!
//! `cargo bench --bench flow` prints the table. A request is enter and finish together, with
//! what the gate's statistic takes; lookup and decision are what a request with claims takes
//! more than one without, whose key is made as well. Each figure is the fastest of some
//! rounds: the others measure what else the machine does. All but the last are of
//! one thread.

#![expect(clippy::print_stdout, reason = "a table is what it is for")]

use core::{hint::black_box, time::Duration};
use flowgate::flow::{
    Admission, Algorithm, Claim, Fullest, Gate, Instant, Key, Keyed, Outcome, Rate, Rule, Rules,
    SlotId,
    limiter::{concurrency, fixed_window, sliding_window, token_bucket},
    pacing,
};
use smallvec::SmallVec;
use std::sync::{Arc, Barrier};

/// Rounds to take the fastest of.
const ROUNDS: usize = 15;

/// Requests in a round.
const REQUESTS: u32 = 100_000;

fn main() {
    println!("{:<44}{:>12}{:>20}\n", "ns", "request", "lookup + decision");
    row("no slots: statistic alone", &gate(&[], None), 0);
    for algorithm in all() {
        row(&format!("1 slot: {}", algorithm.word()), &gate(&[algorithm], None), 0);
    }
    let three = [token_bucket(PLENTY), sliding_window(PLENTY), concurrency(100)];
    row("3 slots: token, sliding, concurrency", &gate(&three, None), 0);
    row("3 slots and pacing", &paced(&three), 0);
    row("1 slot, refusing", &gate(&[concurrency(0)], None), 0);
    row("3 slots, refusing", &gate(&refusing(), None), 0);
    for algorithm in all() {
        for keys in [1, 10_000, 100_000, 1_000_000] {
            let name = format!("1 slot of {keys} live keys: {}", algorithm.word());
            row(&name, &gate(std::slice::from_ref(&algorithm), Some(keys)), keys);
        }
    }
    for algorithm in all() {
        let Walk { whole, step } = walk(&algorithm);
        let name = format!("fullest of 1000000 live keys: {}", algorithm.word());
        println!("{name:<60}{:>8} µs, in steps of at most {step:?}", whole.as_micros());
    }
    for (name, edits) in edits() {
        let name = format!("longest hold at an edit of 100000 keys: {name}");
        println!("{name:<60}{:>8} µs", longest_hold(&edits));
    }
    println!(
        "{:<44}{:>8}",
        "3 slots, 2 threads, per request of each",
        contended(&gate(&three, None))
    );
}

/// A gate and its slots.
type Opened = (Arc<Gate>, Vec<SlotId>);

fn gate(algorithms: &[Algorithm], keys: Option<u32>) -> Opened {
    open(&rules(algorithms, keys))
}

fn paced(algorithms: &[Algorithm]) -> Opened {
    let pacing = pacing::Config {
        rate: Rate::new(PLENTY, Duration::from_secs(1)).expect("within its bounds"),
        max_wait: Duration::from_secs(1),
        max_queue: 100,
        warm_up: None,
    };
    open(&Rules { pacing: Some(pacing), ..rules(algorithms, None) })
}

fn open(rules: &Rules) -> Opened {
    let gate = Arc::new(Gate::new(START));
    let installed = gate.install(rules, START);
    (gate, installed.flow.into_iter().chain(installed.pacing).collect())
}

fn rules(algorithms: &[Algorithm], keys: Option<u32>) -> Rules {
    let rule = |(at, algorithm): (usize, &Algorithm)| Rule {
        name: format!("rule {at}").into(),
        algorithm: algorithm.clone(),
        keyed: keys.map(|max_keys| Keyed { by: "client_ip/64".into(), max_keys }),
        dry_run: false,
        settles: false,
        queue: None,
        reject_for: None,
    };
    Rules { flow: algorithms.iter().enumerate().map(rule).collect(), ..Rules::default() }
}

fn all() -> [Algorithm; 4] {
    let rate = rate(PLENTY);
    [
        token_bucket(PLENTY),
        sliding_window(PLENTY),
        Algorithm::FixedWindow(fixed_window::Config { rate, align: fixed_window::Align::Clock }),
        concurrency(100),
    ]
}

fn refusing() -> [Algorithm; 3] {
    [token_bucket(1), sliding_window(1), concurrency(0)]
}

fn token_bucket(burst: u64) -> Algorithm {
    // A token takes seconds, so that what was taken stays taken.
    Algorithm::TokenBucket(token_bucket::Config { rate: rate(burst.min(1_000)), burst })
}

fn sliding_window(count: u64) -> Algorithm {
    Algorithm::SlidingWindow(sliding_window::Config {
        rate: rate(count),
        buckets: 10,
        strict: false,
    })
}

fn concurrency(limit: u64) -> Algorithm {
    Algorithm::Concurrency(concurrency::Config { limit })
}

fn rate(count: u64) -> Rate {
    Rate::new(count, Duration::from_hours(1)).expect("within its bounds")
}

/// More in an hour than is asked for, so that all passes; and in an hour, so that
/// no client's use is forgotten while others are served.
const PLENTY: u64 = 10_000_000_000;

/// Some day in 2026, so that instants are as long as they will be.
const START: Instant = Instant::from_nanos(1_780_000_000_123_456_789);

/// Prints what a request takes, and what is left of that without the gate's own part.
fn row(name: &str, opened: &Opened, keys: u32) {
    let (gate, slots) = opened;
    let unclaimed = (Arc::clone(gate), Vec::new());
    let mut now = START;
    let mut keys = Keys::new(keys);
    // One request of each client stays, so that none is forgotten.
    let mut live = Vec::new();
    for _ in 0..keys.count {
        now = now + GAP;
        live.extend(enter(opened, now, keys.next()));
    }
    // By turns, so that both have the machine's quiet moments.
    let mut fastest = [Duration::MAX; 2];
    for _ in 0..ROUNDS {
        for (fastest, opened) in fastest.iter_mut().zip([opened, &unclaimed]) {
            let took = timed(|| {
                for _ in 0..REQUESTS {
                    now = one(opened, now, keys.next());
                }
            });
            *fastest = took.min(*fastest);
        }
    }
    let [request, own] = fastest.map(per_request);
    let decision = if slots.is_empty() { 0 } else { request.saturating_sub(own) };
    println!("{name:<44}{request:>12}{decision:>20}");
}

fn contended(opened: &Opened) -> u64 {
    let barrier = Barrier::new(2);
    let run = || {
        barrier.wait();
        let mut now = START;
        timed(|| {
            for _ in 0..REQUESTS {
                now = one(opened, now, Key::Shared);
            }
        })
    };
    fastest(|| {
        std::thread::scope(|scope| {
            let other = scope.spawn(run);
            run().max(other.join().expect("the other thread does not panic"))
        })
    })
}

/// Edits whose states are to be converted, there and back.
fn edits() -> [(&'static str, [Algorithm; 2]); 2] {
    let buckets = |buckets| {
        let rate = rate(PLENTY);
        Algorithm::SlidingWindow(sliding_window::Config { rate, buckets, strict: false })
    };
    [
        ("token_bucket", [token_bucket(PLENTY), token_bucket(PLENTY / 2)]),
        ("sliding_window", [buckets(10), buckets(20)]),
    ]
}

/// Returns the longest that one call keeps the others waiting while a full table is
/// edited and converted, in microseconds: the edit, a step of the conversion, or the
/// decision about a client that is new, for whom a place is looked for.
fn longest_hold(edits: &[Algorithm; 2]) -> u128 {
    const KEYS: u32 = 100_000;
    let rules = edits.clone().map(|algorithm| rules(&[algorithm], Some(KEYS)));
    let opened = open(&rules[0]);
    let mut keys = Keys::new(KEYS);
    let mut live: Vec<_> = (0..KEYS).map(|_| enter(&opened, START, keys.next())).collect();
    let longest = (1..=ROUNDS).map(|round| {
        let mut more = true;
        let edit = timed(|| drop(opened.0.install(&rules[round % 2], START)));
        let new = timed(|| live.extend([enter(&opened, START, Key::Of(round as u128))]));
        let mut longest = edit.max(new);
        while more {
            longest = longest.max(timed(|| more = opened.0.catch_up()));
        }
        longest
    });
    longest.min().unwrap_or_default().as_micros()
}

/// A walk through all keys of a rule for the fullest ones.
struct Walk {
    whole: Duration,
    /// The longest that one step keeps requests waiting.
    step: Duration,
}

/// Walks through a million keys as the admin listener does: the fastest of some rounds.
fn walk(algorithm: &Algorithm) -> Walk {
    const KEYS: u32 = 1_000_000;
    let opened = gate(std::slice::from_ref(algorithm), Some(KEYS));
    let (gate, slots) = &opened;
    let mut keys = Keys::new(KEYS);
    // One after the other: what came later is fuller.
    let at = |number: u32| START + Duration::from_nanos(number.into());
    let _live: Vec<_> = (0..KEYS).map(|key| enter(&opened, at(key), keys.next())).collect();
    let now = at(KEYS);
    let mut fastest = Walk { whole: Duration::MAX, step: Duration::MAX };
    for _ in 0..ROUNDS {
        let mut longest = Duration::ZERO;
        let whole = timed(|| {
            let mut fullest = Fullest::new(20);
            let mut next = Some(u32::MAX);
            while let Some(before) = next {
                let step = timed(|| next = gate.find_fullest(slots[0], now, before, &mut fullest));
                longest = longest.max(step);
            }
            black_box(gate.usages(slots[0], now, fullest));
        });
        fastest.whole = fastest.whole.min(whole);
        fastest.step = fastest.step.min(longest);
    }
    fastest
}

/// One request, from enter to finish; then the next may come.
fn one(opened: &Opened, now: Instant, key: Key) -> Instant {
    let next = now + GAP;
    if let Some(admission) = black_box(enter(opened, now, key)) {
        admission.permit.finish(Outcome::Success { at: next });
    }
    next
}

fn enter((gate, slots): &Opened, now: Instant, key: Key) -> Option<Admission> {
    let claims: SmallVec<[Claim; 4]> = slots
        .iter()
        .map(|&slot| Claim { slot, key, cost: 1, patience: Duration::ZERO, plan: None })
        .collect();
    gate.enter(now, &claims).ok()
}

/// Between one request and the next.
const GAP: Duration = Duration::from_micros(10);

/// Goes round some keys in an order that no prefetcher guesses.
struct Keys {
    count: u32,
    at: u32,
}

impl Keys {
    fn new(count: u32) -> Self {
        Self { count, at: 0 }
    }

    fn next(&mut self) -> Key {
        if self.count == 0 {
            return Key::Shared;
        }
        // A prime larger than any count visits every key once a round.
        self.at = (self.at + 7_368_787) % self.count;
        let spread = u128::from(self.at).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
        Key::Of(spread ^ (spread >> 67))
    }
}

#[expect(clippy::disallowed_types, reason = "a benchmark measures real time")]
fn timed(work: impl FnOnce()) -> Duration {
    let began = std::time::Instant::now();
    work();
    began.elapsed()
}

fn fastest(mut round: impl FnMut() -> Duration) -> u64 {
    per_request((0..ROUNDS).map(|_| round()).min().unwrap_or_default())
}

/// Returns a request's part of a round, in nanoseconds.
fn per_request(round: Duration) -> u64 {
    let nanos = round.as_nanos() / u128::from(REQUESTS);
    u64::try_from(nanos).expect("a round does not take years")
}

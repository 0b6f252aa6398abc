//! Laws of loans: who starts in a window is counted there, borrowed or not.

use crate::{
    config,
    day::{MORNING, rule},
};
use core::{num::NonZeroU64, time::Duration};
use flowgate::flow::{
    Algorithm, Claim, Gate, Instant, Key, Rate, Reason, ReasonKind, Rules,
    calendar::{Calendar, Run},
    limiter::{
        fixed_window::{self, Align},
        sliding_window,
    },
};
use proptest::{collection::vec, prelude::*};
use std::{collections::HashMap, sync::Arc};

/// In nanoseconds.
const WINDOW: u64 = 100_000_000;

fn algorithms() -> impl Strategy<Value = Algorithm> {
    let rate = |count| Rate::new(count, Duration::from_nanos(WINDOW)).expect("a rate");
    prop_oneof![
        (1..9_u64, any::<bool>()).prop_map(move |(count, clock)| {
            let align = if clock { Align::Clock } else { Align::FirstRequest };
            Algorithm::FixedWindow(fixed_window::Config { rate: rate(count), align })
        }),
        sliding_windows().prop_map(Algorithm::SlidingWindow),
    ]
}

fn sliding_windows() -> impl Strategy<Value = sliding_window::Config> {
    (1..9_u64, 1..7_u32, any::<bool>()).prop_map(|(count, buckets, strict)| {
        let rate = Rate::new(count, Duration::from_nanos(WINDOW)).expect("a rate");
        sliding_window::Config { rate, buckets, strict }
    })
}

/// Nanoseconds since the one before, its cost, and its patience in milliseconds.
type Arrival = (u64, u64, u64);

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let pause = prop_oneof![4 => 0..WINDOW / 8, 1 => 0..WINDOW * 2];
    vec((pause, 1..4_u64, prop_oneof![Just(0), 1..250_u64]), 1..200)
}

/// A few, between two edits.
fn short_arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let pause = prop_oneof![4 => 0..WINDOW / 8, 1 => 0..WINDOW];
    vec((pause, 1..4_u64, prop_oneof![Just(0), 1..250_u64]), 0..20)
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
        let mut now = MORNING;
        let mut starts = Vec::new();
        for (pause, cost, millis) in arrivals {
            now = now + Duration::from_nanos(pause);
            let patience = Duration::from_millis(millis);
            let claim = Claim { slot, key: Key::Shared, cost, patience, plan: None };
            if let Ok(admission) = gate.enter(now, &[claim]) {
                let start = admission.permit.start();
                prop_assert!(start.since(now) <= patience);
                starts.push((start, cost));
            }
        }
        starts.sort_unstable();
        assert_windows(&algorithm, &starts);
    }

    #[test]
    fn edits_keep_the_larger_promise_to_clients_that_borrow(
        morning in mornings(),
        chapters in edited(),
    ) {
        let gate = Arc::new(Gate::new(morning));
        let mut now = morning;
        let mut starts = Vec::new();
        for (algorithm, arrivals) in &chapters {
            let flow = vec![rule(0, algorithm.clone(), false)];
            let slot = gate.install(&Rules { flow, ..Rules::default() }, now).flow[0];
            for &(pause, cost, millis) in arrivals {
                now = now + Duration::from_nanos(pause);
                let patience = Duration::from_millis(millis * 20);
                let claim = Claim { slot, key: Key::Shared, cost, patience, plan: None };
                if let Ok(admission) = gate.enter(now, &[claim]) {
                    starts.push((admission.permit.start().as_nanos(), cost));
                }
            }
        }
        starts.sort_unstable();
        // The clock's very first window does not begin with its first request.
        let begins = morning == MORNING && chapters.iter().all(|(chapter, _)| begins(chapter));
        let promises = chapters.iter().map(|(algorithm, _)| promise(algorithm, begins));
        let (most, within) = promises.fold((0, u64::MAX), |(most, within), (count, span)| {
            (most.max(count), within.min(span))
        });
        for (at, (first, _)) in starts.iter().enumerate() {
            let span = starts[at..].iter().take_while(|(start, _)| start - first < within);
            let sum: u64 = span.map(|(_, cost)| cost).sum();
            prop_assert!(sum <= most, "{sum} of {most} in {within} ns from {first}");
        }
    }

    #[test]
    fn a_request_starts_in_the_first_bucket_that_no_sum_it_counts_in_rejects(
        (config, arrivals) in (sliding_windows(), arrivals()),
    ) {
        let gate = Arc::new(Gate::new(MORNING));
        let flow = vec![rule(0, Algorithm::SlidingWindow(config.clone()), false)];
        let slot = gate.install(&Rules { flow, ..Rules::default() }, MORNING).flow[0];
        let mut buckets = Buckets { config, counts: HashMap::new() };
        let mut now = MORNING;
        for (pause, cost, millis) in arrivals {
            now = now + Duration::from_nanos(pause);
            let patience = Duration::from_millis(millis);
            let claim = Claim { slot, key: Key::Shared, cost, patience, plan: None };
            let decided = gate.enter(now, &[claim]);
            let decided = decided.map(|entered| entered.permit.start()).map_err(|entered| entered.reason);
            prop_assert_eq!(decided, buckets.enter(now, cost, patience));
        }
    }
}

/// Returns when a day begins: some near the clock's zero, as in a scenario, where the first
/// window begins with the clock.
fn mornings() -> impl Strategy<Value = Instant> {
    prop_oneof![Just(MORNING), Just(Instant::EPOCH), (0..WINDOW * 4).prop_map(Instant::from_nanos)]
}

/// How the windows of a day are edited.
#[derive(Clone, Copy, Debug)]
enum Edits {
    /// Their lengths.
    Sliding { strict: bool },
    /// Their lengths.
    Fixed,
    /// Where they begin, and not their length: with a request or by the clock, or a calendar.
    Align { calendar: bool },
}

impl Edits {
    fn algorithm(self, count: u64, tenths: u64, buckets: u32) -> Algorithm {
        let rate = |window| Rate::new(count, Duration::from_nanos(window)).expect("a rate");
        let fixed = |rate, align| Algorithm::FixedWindow(fixed_window::Config { rate, align });
        let edited = rate(WINDOW / 10 * tenths);
        match self {
            Self::Sliding { strict } => {
                Algorithm::SlidingWindow(sliding_window::Config { rate: edited, buckets, strict })
            }
            Self::Fixed => fixed(edited, Align::FirstRequest),
            Self::Align { .. } if tenths > 10 => fixed(rate(WINDOW), Align::FirstRequest),
            Self::Align { calendar: false } => fixed(rate(WINDOW), Align::Clock),
            Self::Align { calendar: true } => {
                let [step, count] = [WINDOW, u64::MAX / WINDOW - 1].map(NonZeroU64::new);
                let (step, count) = step.zip(count).expect("neither is zero");
                let run = Run { start: Instant::from_nanos(WINDOW / 3), count };
                let calendar = Calendar::new("tenth of a second", step, vec![run]);
                fixed(rate(WINDOW), Align::Calendar(calendar))
            }
        }
    }
}

/// Chapters of a day, each with other windows of one kind, and most with the same count.
fn edited() -> impl Strategy<Value = Vec<(Algorithm, Vec<Arrival>)>> {
    let numbers = |most: u64| {
        let count = prop_oneof![4 => Just(most), 1 => 1..=most];
        (count, prop::sample::select(vec![3, 10, 15, 25, 300]), 1..7_u32, short_arrivals())
    };
    let chapters = (1..9_u64).prop_flat_map(move |most| vec(numbers(most), 2..12));
    let edits = prop_oneof![
        Just(Edits::Fixed),
        any::<bool>().prop_map(|strict| Edits::Sliding { strict }),
        any::<bool>().prop_map(|calendar| Edits::Align { calendar }),
    ];
    (edits, chapters).prop_map(|(edits, chapters)| {
        let chapter = |(count, tenths, buckets, arrivals)| {
            (edits.algorithm(count, tenths, buckets), arrivals)
        };
        chapters.into_iter().map(chapter).collect()
    })
}

/// What lends.
enum Lender<'a> {
    Sliding(&'a sliding_window::Config),
    Fixed(&'a fixed_window::Config),
}

fn lender(algorithm: &Algorithm) -> Lender<'_> {
    match algorithm {
        Algorithm::SlidingWindow(config) => Lender::Sliding(config),
        Algorithm::FixedWindow(config) => Lender::Fixed(config),
        Algorithm::TokenBucket(_)
        | Algorithm::WarmUp(_)
        | Algorithm::LeakyBucket(_)
        | Algorithm::SlidingLog(_)
        | Algorithm::SlidingCounter(_)
        | Algorithm::Concurrency(_)
        | Algorithm::AutoConcurrency(_)
        | Algorithm::Pacing(_)
        | Algorithm::Closed
        | Algorithm::Planned(_)
        | Algorithm::Synced(_) => unreachable!("only these lend"),
    }
}

/// Returns whether each window begins with its first request.
fn begins(algorithm: &Algorithm) -> bool {
    match lender(algorithm) {
        Lender::Sliding(_) => false,
        Lender::Fixed(config) => config.align == Align::FirstRequest,
    }
}

/// Returns how many may start in less than so many nanoseconds, where each window begins with
/// its first request or not.
fn promise(algorithm: &Algorithm, begins: bool) -> (u64, u64) {
    match lender(algorithm) {
        Lender::Sliding(sliding_window::Config { rate, buckets, strict }) => {
            let bucket = rate.window_nanos().div_ceil((*buckets).into());
            let early = if *strict { 0 } else { bucket };
            (rate.count(), rate.window_nanos() - early)
        }
        Lender::Fixed(fixed_window::Config { rate, .. }) => {
            (2 * rate.count() - u64::from(begins), rate.window_nanos())
        }
    }
}

/// What is counted in each bucket, from the clock's first to the last lent one.
struct Buckets {
    config: sliding_window::Config,
    counts: HashMap<u64, u64>,
}

impl Buckets {
    /// Returns when a request starts, or why it does not.
    fn enter(&mut self, now: Instant, cost: u64, patience: Duration) -> Result<Instant, Reason> {
        let limit = self.config.rate.count();
        if cost > limit {
            return Err(Reason::TooCostly { limit, kind: ReasonKind::Rate });
        }
        let bucket = now.as_nanos() * u64::from(self.config.buckets) / WINDOW;
        let mut later = bucket..;
        let opening = later.find(|at| self.fits(*at, cost)).expect("one after the last loan");
        let start = self.start(opening).max(now);
        let retry_after = start.since(now);
        // What waits may wait for a window's worth of buckets.
        if retry_after > patience || opening > bucket + self.span() {
            return Err(Reason::Rate { retry_after });
        }
        *self.counts.entry(opening).or_default() += cost;
        Ok(start)
    }

    /// Returns whether every sum of successive buckets that has `bucket` among them has room.
    fn fits(&self, bucket: u64, cost: u64) -> bool {
        let count = |at: u64| self.counts.get(&at).copied().unwrap_or_default();
        (bucket..bucket + self.span()).all(|last| {
            let sum: u64 = (last + 1 - self.span()..=last).map(count).sum();
            sum + cost <= self.config.rate.count()
        })
    }

    fn span(&self) -> u64 {
        u64::from(self.config.buckets) + u64::from(self.config.strict)
    }

    /// Returns the first instant of a bucket.
    fn start(&self, bucket: u64) -> Instant {
        Instant::from_nanos((bucket * WINDOW).div_ceil(self.config.buckets.into()))
    }
}

fn assert_windows(algorithm: &Algorithm, starts: &[(Instant, u64)]) {
    match lender(algorithm) {
        Lender::Sliding(sliding_window::Config { rate, buckets, strict }) => {
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
        Lender::Fixed(fixed_window::Config { rate, align }) => {
            let mut begin = None;
            let mut used = 0;
            for &(at, cost) in starts {
                let at = at.as_nanos();
                let current = match begin {
                    _ if *align == Align::Clock => at - at % WINDOW,
                    Some(begin) if at < begin + WINDOW => begin,
                    Some(_) | None => at,
                };
                if begin != Some(current) {
                    begin = Some(current);
                    used = 0;
                }
                used += cost;
                assert!(used <= rate.count(), "{used} of {algorithm:?}");
            }
        }
    }
}

//! Random days: rules, and requests that come and end.

use core::{num::NonZeroU64, time::Duration};
use flowgate::flow::{
    Admission, Algorithm, Claim, Gate, Instant, Key, Keyed, Outcome, Permit, Rate, Reason,
    Rejection, Report, Rule, Rules, SlotId, WarmUp, breaker,
    calendar::{Calendar, Run},
    limiter::{
        SyncedConfig, concurrency, fixed_window, leaky_bucket, sliding_counter, sliding_log,
        sliding_window, token_bucket, warm_up,
    },
    pacing,
};
use proptest::{collection::vec, option, prelude::*};
use std::sync::Arc;

/// What happens next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Time passes, in nanoseconds.
    Wait(u64),
    /// A client's request arrives.
    Enter { client: u8, cost: u64 },
    /// One of those in flight ends.
    End(usize),
}

/// A request, and what was decided about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DecidedRequest {
    /// When it arrived, as clamped.
    pub(crate) now: Instant,
    pub(crate) client: u8,
    pub(crate) cost: u64,
    /// When it may start, or why not.
    pub(crate) decided: Result<Instant, Reason>,
    pub(crate) report: Report,
}

/// A day being played.
pub(crate) struct Day {
    pub(crate) gate: Arc<Gate>,
    pub(crate) slots: Vec<SlotId>,
    pub(crate) now: Instant,
    pub(crate) live: Vec<Live>,
    /// How long every other client would wait for a window to open; zero, if not set.
    pub(crate) patience: Duration,
}

/// A request in flight.
pub(crate) struct Live {
    pub(crate) permit: Permit,
    pub(crate) client: u8,
    pub(crate) cost: u64,
}

/// Some day in 2026.
pub(crate) const MORNING: Instant = Instant::from_nanos(1_780_000_000_123_456_789);

/// Clients of a day: few, so that each has a history.
pub(crate) const CLIENTS: u8 = 3;

/// Windows in nanoseconds: round, prime, and so short that most rates have intervals
/// of parts of a nanosecond.
const WINDOWS: [u64; 4] = [1_000_000_000, 10_000_000, 999_999_937, 100];

impl Day {
    pub(crate) fn new(rules: &Rules) -> Self {
        let gate = Arc::new(Gate::new(MORNING));
        let slots = Vec::new();
        let live = Vec::new();
        let mut day = Self { gate, slots, now: MORNING, live, patience: Duration::ZERO };
        day.install(rules);
        day
    }

    /// Returns a day without rules, on which every other client has `patience`.
    pub(crate) fn patient(patience: Duration) -> Self {
        Self { patience, ..Self::new(&Rules::default()) }
    }

    pub(crate) fn install(&mut self, rules: &Rules) {
        let installed = self.gate.install(rules, self.now);
        let own = installed.pacing.into_iter().chain(installed.breaker);
        self.slots = installed.flow.into_iter().chain(own).collect();
    }

    /// Takes one step; returns what became of the request, if one arrived.
    pub(crate) fn step(&mut self, step: Step) -> Option<DecidedRequest> {
        match step {
            Step::Wait(nanos) => self.now = self.now + Duration::from_nanos(nanos),
            Step::Enter { client, cost } => return Some(self.enter(self.now, client, cost)),
            Step::End(which) => {
                if !self.live.is_empty() {
                    let live = self.live.swap_remove(which % self.live.len());
                    match which % 4 {
                        0 | 2 => _ = live.permit.finish(Outcome::Success { at: self.now }),
                        1 => _ = live.permit.finish(Outcome::Failure { at: self.now }),
                        // The client leaves.
                        _ => {}
                    }
                }
            }
        }
        None
    }

    pub(crate) fn enter(&mut self, now: Instant, client: u8, cost: u64) -> DecidedRequest {
        let decided = self.gate.enter(now, &self.claims(client, cost));
        self.note(client, cost, decided)
    }

    /// Returns a claim on every slot.
    pub(crate) fn claims(&self, client: u8, cost: u64) -> Vec<Claim> {
        let patience = if client.is_multiple_of(2) { Duration::ZERO } else { self.patience };
        let key = key(client);
        self.slots.iter().map(|&slot| Claim { slot, key, cost, patience, plan: None }).collect()
    }

    /// Notes what became of a request.
    pub(crate) fn note(
        &mut self,
        client: u8,
        cost: u64,
        decided: Result<Admission, Rejection>,
    ) -> DecidedRequest {
        let (decided, report) = match decided {
            Ok(admission) => {
                let start = admission.permit.start();
                self.live.push(Live { permit: admission.permit, client, cost });
                (Ok(start), admission.report)
            }
            Err(rejection) => (Err(rejection.reason), rejection.report),
        };
        DecidedRequest { now: self.now, client, cost, decided, report }
    }

    /// Returns the states of the slots as text, converted if an edit has left that to be
    /// done.
    pub(crate) fn states(&self) -> Vec<String> {
        while self.gate.catch_up() {}
        let text = format!("{:?}", self.gate);
        let states = text.split("slot: Stage").skip(1);
        states
            .map(|state| state.split("counts: Counts").next().unwrap_or_default().into())
            .collect()
    }
}

/// As evenly spread as a hash.
pub(crate) fn key(client: u8) -> Key {
    Key::Of(u128::from(client).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835))
}

/// Returns every kind of rule, a few at a time, with steps for a day.
pub(crate) fn days() -> impl Strategy<Value = (Rules, Vec<Step>)> {
    windows().prop_flat_map(|window| (rules(window), steps(window)))
}

/// Returns rules of every kind, with warm-ups and a breaker, and steps for a day.
pub(crate) fn all_days() -> impl Strategy<Value = (Rules, Vec<Step>)> {
    (days(), any::<bool>(), any::<bool>()).prop_map(|((mut rules, steps), warms, breaks)| {
        if warms {
            let rate = Rate::new(7, Duration::from_secs(1)).expect("a rate");
            let warm_up = WarmUp { period: Duration::from_secs(2), cold_factor: 3 };
            let config = warm_up::Config { rate, burst: 5, warm_up };
            rules.flow.push(rule(8, Algorithm::WarmUp(config), false));
            if let Some(pacing) = &mut rules.pacing {
                pacing.warm_up = Some(warm_up);
            }
        }
        rules.breaker = breaks.then(|| breaker::Config {
            error_ratio: None,
            slow: None,
            errors: Some(2),
            min_requests: 2,
            window: Duration::from_secs(1),
            buckets: 4,
            open_for: Duration::from_millis(30),
            probes: 2,
            dry_run: false,
        });
        (rules, steps)
    })
}

/// Returns one rule with steps for a day.
pub(crate) fn days_of_one() -> impl Strategy<Value = (Rules, Vec<Step>)> {
    windows().prop_flat_map(|window| (one(window), steps(window)))
}

/// Returns rules, another in dry run, which most often would make requests wait, and steps
/// for a day.
pub(crate) fn trials() -> impl Strategy<Value = (Rules, Rule, Vec<Step>)> {
    let dry = |(algorithm, keyed)| Rule { dry_run: true, ..rule(9, algorithm, keyed) };
    windows().prop_flat_map(move |window| {
        let tried = prop_oneof![
            3 => paced(window).prop_map(Algorithm::Pacing),
            1 => algorithm(window),
        ];
        (rules(window), (tried, any::<bool>()).prop_map(dry), steps(window))
    })
}

pub(crate) fn windows() -> impl Strategy<Value = u64> {
    prop::sample::select(WINDOWS.to_vec())
}

pub(crate) fn rules(window: u64) -> impl Strategy<Value = Rules> {
    let flow = vec(algorithm(window), 1..=3);
    (flow, option::of(paced(window)), any::<bool>()).prop_map(|(flow, pacing, keyed)| Rules {
        flow: flow
            .into_iter()
            .enumerate()
            .map(|(at, algorithm)| rule(at, algorithm, keyed))
            .collect(),
        pacing,
        ..Rules::default()
    })
}

pub(crate) fn one(window: u64) -> impl Strategy<Value = Rules> {
    prop_oneof![
        4 => (algorithm(window), any::<bool>()).prop_map(|(algorithm, keyed)| Rules {
            flow: vec![rule(0, algorithm, keyed)],
            ..Rules::default()
        }),
        1 => paced(window).prop_map(|pacing| Rules { pacing: Some(pacing), ..Rules::default() }),
    ]
}

pub(crate) fn rule(at: usize, algorithm: Algorithm, keyed: bool) -> Rule {
    let keyed = keyed.then(|| Keyed { by: "client_ip".into(), max_keys: 40 });
    Rule {
        name: format!("rule {at}").into(),
        algorithm,
        keyed,
        dry_run: false,
        settles: false,
        queue: None,
        reject_for: None,
    }
}

pub(crate) fn algorithm(window: u64) -> impl Strategy<Value = Algorithm> {
    // One that could be synced, and is not, decides as it does alone.
    let synced =
        |(algorithm, is_synced): (Algorithm, bool)| match SyncedConfig::new(algorithm.clone(), 1) {
            Some(config) if is_synced => Algorithm::Synced(config),
            Some(_) | None => algorithm,
        };
    (whole(window), proptest::bool::weighted(0.2)).prop_map(synced)
}

/// A new algorithm is one more line here.
fn whole(window: u64) -> impl Strategy<Value = Algorithm> {
    use fixed_window::Align::{self, Clock, FirstRequest};
    prop_oneof![
        (rate(window), 1..=12_u64).prop_map(|(rate, burst)| {
            Algorithm::TokenBucket(token_bucket::Config { rate, burst })
        }),
        (rate(window), 1..=12_u64).prop_map(|(rate, capacity)| {
            Algorithm::LeakyBucket(leaky_bucket::Config { rate, capacity })
        }),
        (rate(window), 1..=12_u32, any::<bool>()).prop_map(|(rate, buckets, strict)| {
            Algorithm::SlidingWindow(sliding_window::Config { rate, buckets, strict })
        }),
        rate(window).prop_map(|rate| Algorithm::SlidingLog(sliding_log::Config { rate })),
        rate(window).prop_map(|rate| Algorithm::SlidingCounter(sliding_counter::Config { rate })),
        (
            rate(window),
            prop_oneof![
                Just(Clock),
                Just(FirstRequest),
                calendar(window).prop_map(Align::Calendar)
            ]
        )
            .prop_map(|(rate, align)| {
                Algorithm::FixedWindow(fixed_window::Config { rate, align })
            }),
        (1..=6_u64).prop_map(|limit| Algorithm::Concurrency(concurrency::Config { limit })),
        paced(window).prop_map(Algorithm::Pacing),
    ]
}

/// Windows of `window`, half as long and twice as long, as they come.
fn calendar(window: u64) -> impl Strategy<Value = Calendar> {
    vec((window / 2..=window * 2, 1..4_u64), 0..20).prop_map(move |lengths| {
        let mut start = MORNING;
        let mut runs = Vec::new();
        for (length, count) in lengths {
            let count = NonZeroU64::new(count).expect("one at least");
            runs.push(Run { start, count });
            start = start + Duration::from_nanos(window / 2 * (count.get() - 1) + length);
        }
        runs.push(Run { start, count: NonZeroU64::MAX });
        let step = NonZeroU64::new(window / 2).expect("some time");
        // A calendar is known by its name, also to another process.
        Calendar::new(&format!("{runs:?}"), step, runs)
    })
}

pub(crate) fn paced(window: u64) -> impl Strategy<Value = pacing::Config> {
    (rate(window), 0..=window, 0..=6_u64).prop_map(|(rate, max_wait, max_queue)| {
        let max_wait = Duration::from_nanos(max_wait);
        pacing::Config { rate, max_wait, max_queue, warm_up: None }
    })
}

fn rate(window: u64) -> impl Strategy<Value = Rate> {
    (1..=13_u64).prop_map(move |count| {
        Rate::new(count, Duration::from_nanos(window)).expect("within its bounds")
    })
}

pub(crate) fn steps(window: u64) -> impl Strategy<Value = Vec<Step>> {
    steps_of(CLIENTS, window)
}

pub(crate) fn steps_of(clients: u8, window: u64) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..=window / 8).prop_map(Step::Wait),
        1 => Just(Step::Wait(1)),
        1 => (window / 2..=window * 2).prop_map(Step::Wait),
        6 => (0..clients, cost()).prop_map(|(client, cost)| Step::Enter { client, cost }),
        2 => any::<usize>().prop_map(Step::End),
    ];
    vec(step, 1..150)
}

pub(crate) fn cost() -> impl Strategy<Value = u64> {
    prop_oneof![8 => Just(1_u64), 3 => 2..=5_u64, 1 => Just(0_u64), 1 => 6..=15_u64]
}

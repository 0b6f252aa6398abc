//! Laws of rejections by several rules: a client that comes back at the stated time, alone
//! and with a request of the same cost, is not rejected by a rate, whatever rules there are.

use crate::{
    config,
    day::{self, MORNING, key, rule},
};
use core::time::Duration;
use flowgate::flow::{
    Algorithm, Claim, Gate, Instant, Outcome, Permit, Quota, Rate, Rejection, Rule, Rules, SlotId,
    Verdict, WarmUp,
    breaker::{self, Ratio},
    limiter::{
        fixed_window::{self, Align},
        leaky_bucket, sliding_counter, sliding_log, sliding_window, token_bucket, warm_up,
    },
};
use proptest::{collection::vec, option, prelude::*};
use std::sync::Arc;

/// Windows that meet each other: a client may satisfy the short one and not the long one.
const WINDOWS: [u64; 4] = [10_000_000, 1_000_000_000, 60_000_000_000, 3_600_000_000_000];

/// Rules, and how many times a request's cost each of them charges.
#[derive(Clone, Debug)]
struct Mix {
    rules: Rules,
    factors: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Wait(u64),
    Enter {
        client: u8,
        cost: u64,
    },
    /// One of those in flight ends, well or not.
    End(usize, bool),
}

struct Played {
    gate: Arc<Gate>,
    slots: Vec<SlotId>,
    factors: Vec<u64>,
    now: Instant,
    live: Vec<Permit>,
    patience: Duration,
}

impl Played {
    fn new(Mix { rules, factors }: &Mix, patience: Duration) -> Self {
        let gate = Arc::new(Gate::new(MORNING));
        let installed = gate.install(rules, MORNING);
        let slots: Vec<_> =
            installed.flow.into_iter().chain(installed.breaker).chain(installed.pacing).collect();
        Self { gate, slots, factors: factors.clone(), now: MORNING, live: Vec::new(), patience }
    }

    /// Returns why the request may not start.
    fn enter(&mut self, client: u8, cost: u64) -> Option<Rejection> {
        // The breaker and the route's own pacing count requests.
        let costs = self.factors.iter().map(|factor| factor * cost).chain([1; 2]);
        let patience = if client.is_multiple_of(2) { Duration::ZERO } else { self.patience };
        let claims: Vec<_> = self
            .slots
            .iter()
            .zip(costs)
            .map(|(&slot, cost)| Claim { slot, key: key(client), cost, patience, plan: None })
            .collect();
        match self.gate.enter(self.now, &claims) {
            Ok(admission) => {
                self.live.push(admission.permit);
                None
            }
            Err(rejection) => Some(rejection),
        }
    }

    fn step(&mut self, step: Step) -> Option<(u8, u64, Rejection)> {
        match step {
            Step::Wait(nanos) => self.now = self.now + Duration::from_nanos(nanos),
            Step::Enter { client, cost } => {
                return self.enter(client, cost).map(|rejection| (client, cost, rejection));
            }
            Step::End(which, is_good) => {
                if !self.live.is_empty() {
                    let at = self.now;
                    let permit = self.live.swap_remove(which % self.live.len());
                    permit.finish(if is_good {
                        Outcome::Success { at }
                    } else {
                        Outcome::Failure { at }
                    });
                }
            }
        }
        None
    }
}

fn warmed(window: u64) -> impl Strategy<Value = Algorithm> {
    (1..=13_u64, 1..=12_u64, 1..=20 * window, 2..=5_u32).prop_map(
        move |(count, burst, period, cold_factor)| {
            let rate = Rate::new(count, Duration::from_nanos(window)).expect("a rate");
            let period = Duration::from_nanos(period);
            let warm_up = WarmUp { period, cold_factor };
            Algorithm::WarmUp(warm_up::Config { rate, burst, warm_up })
        },
    )
}

fn windows() -> impl Strategy<Value = u64> {
    prop::sample::select(WINDOWS.to_vec())
}

fn rules_of_all_kinds() -> impl Strategy<Value = (Rule, u64)> {
    let algorithm = windows()
        .prop_flat_map(|window| prop_oneof![6 => day::algorithm(window), 1 => warmed(window)]);
    (algorithm, any::<bool>(), any::<bool>(), 1..=3_u64).prop_map(
        |(algorithm, is_keyed, is_dry, factor)| {
            (Rule { dry_run: is_dry && factor == 3, ..rule(0, algorithm, is_keyed) }, factor)
        },
    )
}

fn breakers() -> impl Strategy<Value = breaker::Config> {
    (windows(), 1..4_u64, 1..3_u32).prop_map(|(window, errors, probes)| breaker::Config {
        error_ratio: Ratio::new(500_000),
        slow: None,
        errors: Some(errors),
        min_requests: 1,
        window: Duration::from_nanos(window),
        buckets: 3,
        open_for: Duration::from_nanos(window / 2),
        probes,
        dry_run: false,
    })
}

fn mixes() -> impl Strategy<Value = Mix> {
    let pacing = option::of(windows().prop_flat_map(day::paced));
    (vec(rules_of_all_kinds(), 1..=4), pacing, option::weighted(0.3, breakers())).prop_map(
        |(flow, pacing, breaker)| {
            let (mut flow, factors): (Vec<_>, Vec<_>) = flow.into_iter().unzip();
            for (at, rule) in flow.iter_mut().enumerate() {
                rule.name = format!("rule {at}").into();
            }
            Mix { rules: Rules { flow, breaker, pacing }, factors }
        },
    )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let wait = windows().prop_flat_map(|window| 0..=window / 2);
    let step = prop_oneof![
        3 => wait.prop_map(Step::Wait),
        1 => Just(Step::Wait(1)),
        9 => (0..3_u8, prop_oneof![3 => Just(1_u64), 2 => 2..=5_u64])
            .prop_map(|(client, cost)| Step::Enter { client, cost }),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(which, good)| Step::End(which, good)),
    ];
    vec(step, 1..120)
}

/// Returns the quota of the rule that decided.
fn decided(rejection: &Rejection) -> Quota {
    let quota = rejection.report.quotas.iter().find(|quota| quota.slot == rejection.slot);
    *quota.expect("who decides was asked")
}

/// Asserts the law for a rejection, and has the client come back `late`.
fn assert_obeyed(day: &mut Played, (client, cost, rejection): (u8, u64, Rejection), late: u64) {
    let quota = decided(&rejection);
    assert_eq!(quota.verdict, Verdict::Rejected(rejection.reason.kind()));
    let reason = rejection.reason;
    if reason.is_lasting() {
        return;
    }
    // Alone: nothing else is in flight.
    day.live.clear();
    let Some(wait) = reason.retry_after() else {
        // The end of what is in flight is all that it was waiting for.
        let again = day.enter(client, cost);
        assert!(again.is_none(), "{reason:?}: {again:?}");
        return;
    };
    let rejected_at = day.now;
    // Who has priority may borrow before that, and a rule that lends may be the last to reject.
    if day.patience.is_zero() {
        day.now = rejected_at + wait.saturating_sub(Duration::from_nanos(1));
        let early = day.enter(client, cost).expect("as long as it takes");
        let mut quotas = early.report.quotas.iter();
        let still = quotas.find(|quota| quota.slot == rejection.slot).map(|quota| quota.verdict);
        let still = still.is_some_and(|verdict| matches!(verdict, Verdict::Rejected(_)));
        assert!(still, "{reason:?} is not of the rule that decides");
    }
    // What windows have lent ends neither at once nor for ever.
    day.now = rejected_at
        + if day.patience.is_zero() {
            wait + Duration::from_nanos(late)
        } else if late == 0 {
            wait
        } else {
            Duration::from_secs(wait.as_secs() + u64::from(wait.subsec_nanos() > 0))
        };
    let again = day.enter(client, cost);
    assert!(again.is_none(), "{reason:?} from {:?}: {again:?}", rejection.report);
    day.live.clear();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..config() })]

    #[test]
    fn a_client_that_comes_back_at_the_stated_time_is_not_rejected_again(
        mix in mixes(),
        steps in steps(),
        patience in prop_oneof![Just(0), windows()],
        late in prop_oneof![Just(0), 0..2_000_000_000_u64],
    ) {
        let mut day = Played::new(&mix, Duration::from_nanos(patience));
        for step in steps {
            if let Some(rejected) = day.step(step) {
                assert_obeyed(&mut day, rejected, late);
            }
        }
    }
}

/// Returns every algorithm that counts so many in a window, with a bucket of the limit's size.
fn counting(count: u64, window: Duration) -> Vec<Algorithm> {
    let rate = Rate::new(count, window).expect("a rate");
    let sliding = |strict| sliding_window::Config { rate, buckets: 10, strict };
    let fixed = |align| Algorithm::FixedWindow(fixed_window::Config { rate, align });
    vec![
        Algorithm::TokenBucket(token_bucket::Config { rate, burst: count }),
        Algorithm::LeakyBucket(leaky_bucket::Config { rate, capacity: count }),
        Algorithm::SlidingWindow(sliding(false)),
        Algorithm::SlidingWindow(sliding(true)),
        Algorithm::SlidingLog(sliding_log::Config { rate }),
        Algorithm::SlidingCounter(sliding_counter::Config { rate }),
        fixed(Align::Clock),
        fixed(Align::FirstRequest),
    ]
}

#[test]
fn a_client_that_obeys_two_rules_is_rejected_once_for_each_pause() {
    const SECOND: Duration = Duration::from_secs(1);
    const HOUR: Duration = Duration::from_hours(1);
    for (one, other, cost) in [((5, SECOND), (5, HOUR), 1), ((10, HOUR), (44, HOUR), 5)] {
        for first in counting(one.0, one.1) {
            for second in counting(other.0, other.1) {
                for flow in [[first.clone(), second.clone()], [second, first.clone()]] {
                    let flow = flow.into_iter().enumerate();
                    let flow: Vec<_> =
                        flow.map(|(at, algorithm)| rule(at, algorithm, false)).collect();
                    let mix =
                        Mix { rules: Rules { flow, ..Rules::default() }, factors: vec![1, 1] };
                    let mut day = Played::new(&mix, Duration::ZERO);
                    let mut rejected = 0;
                    for _ in 0..100 {
                        let Some(rejection) = day.enter(0, cost) else { continue };
                        assert_obeyed(&mut day, (0, cost, rejection), 0);
                        rejected += 1;
                    }
                    assert!(rejected > 5, "{mix:?}");
                }
            }
        }
    }
}

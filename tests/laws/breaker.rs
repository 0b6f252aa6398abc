//! Laws of the breaker, on random days of answers.

use crate::{
    config,
    day::{MORNING, rule},
};
use core::time::Duration;
use flowgate::flow::{
    Algorithm, Claim, Gate, Instant, Key, Outcome, Permit, Reason, Rules, SlotId,
    breaker::{BreakerStats, Config, Phase, Ratio, Slow},
    limiter::concurrency,
};
use proptest::{collection::vec, option, prelude::*};
use std::sync::Arc;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Milliseconds pass.
    Wait(u64),
    Enter,
    /// One of those under way is answered, well or not, or its client leaves.
    End(usize, Option<bool>),
}

fn ratio() -> impl Strategy<Value = Ratio> {
    (0..=4_u32).prop_map(|quarters| Ratio::new(quarters * 250_000).expect("a part"))
}

fn breaker() -> impl Strategy<Value = Config> {
    let slow = (0..20_u64, ratio())
        .prop_map(|(after, ratio)| Slow { after: Duration::from_millis(after), ratio });
    let conditions = (option::of(ratio()), option::of(slow), option::of(1..5_u64), 1..6_u64);
    let times = (prop::sample::select(vec![10_u64, 70, 100]), 1..6_u32, 1..90_u64);
    (conditions, times, 1..4_u32).prop_map(|(conditions, times, probes)| Config {
        error_ratio: conditions.0,
        slow: conditions.1,
        errors: conditions.2,
        min_requests: conditions.3,
        window: Duration::from_millis(times.0),
        buckets: times.1,
        open_for: Duration::from_millis(times.2),
        probes,
        dry_run: false,
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let outcome = prop_oneof![3 => Just(Some(true)), 3 => Just(Some(false)), 1 => Just(None)];
    let step = prop_oneof![
        2 => (0..30_u64).prop_map(Step::Wait),
        4 => Just(Step::Enter),
        4 => (any::<usize>(), outcome).prop_map(|(which, outcome)| Step::End(which, outcome)),
    ];
    vec(step, 1..200)
}

/// A request that was let in.
struct Live {
    permit: Permit,
    at: Instant,
    /// How often the breaker had changed by then.
    turns: u64,
}

struct Day {
    config: Config,
    gate: Arc<Gate>,
    claims: Vec<Claim>,
    now: Instant,
    live: Vec<Live>,
    /// Answers to those that came since it was last closed: when, failed, slow.
    answers: Vec<(Instant, bool, bool)>,
}

impl Day {
    /// A breaker behind a limit of five in flight, which rejects, too.
    fn new(config: Config) -> Self {
        let gate = Arc::new(Gate::new(MORNING));
        let limit = Algorithm::Concurrency(concurrency::Config { limit: 5 });
        let breaker = Some(config.clone());
        let rules = Rules { flow: vec![rule(0, limit, false)], breaker, ..Rules::default() };
        let installed = gate.install(&rules, MORNING);
        let slots: Vec<SlotId> = installed.flow.into_iter().chain(installed.breaker).collect();
        let claim =
            |slot| Claim { slot, key: Key::Shared, cost: 1, patience: Duration::ZERO, plan: None };
        let claims = slots.into_iter().map(claim).collect();
        Self { config, gate, claims, now: MORNING, live: vec![], answers: vec![] }
    }

    fn seen(&self) -> BreakerStats {
        self.gate.observe(self.now).rules[1].breaker.expect("a breaker")
    }

    /// Returns why it was rejected, if it was.
    fn enter(&mut self) -> Option<Reason> {
        match self.gate.enter(self.now, &self.claims) {
            Ok(admission) => {
                let turns = turns(self.seen());
                self.live.push(Live { permit: admission.permit, at: self.now, turns });
                None
            }
            Err(rejection) => Some(rejection.reason),
        }
    }

    fn end(&mut self, which: usize, good: Option<bool>) {
        if self.live.is_empty() {
            return;
        }
        let Live { permit, at, turns: before } = self.live.swap_remove(which % self.live.len());
        let now = self.now;
        let seen = self.seen();
        if seen.phase == Phase::Closed
            && before == turns(seen)
            && let Some(good) = good
        {
            let is_slow = self.config.slow.is_some_and(|slow| now.since(at) > slow.after);
            self.answers.push((now, !good, is_slow));
        }
        let outcome = match good {
            Some(true) => Outcome::Success { at: now },
            Some(false) => Outcome::Failure { at: now },
            None => Outcome::Cancelled,
        };
        let is_reported = permit.finish(outcome).is_some();
        assert_eq!(is_reported, turns(self.seen()) != turns(seen), "every change is reported");
        if self.seen().phase != Phase::Closed {
            assert!(seen.phase != Phase::Closed || self.is_too_bad());
            self.answers.clear();
        }
    }

    /// Returns whether the answers that count are too bad, by the definition.
    fn is_too_bad(&self) -> bool {
        let window = self.config.window.as_nanos();
        let buckets = u128::from(self.config.buckets);
        let bucket = |at: Instant| u128::from(at.as_nanos()) * buckets / window;
        let live =
            self.answers.iter().filter(|answer| bucket(answer.0) + buckets > bucket(self.now));
        let live: Vec<_> = live.collect();
        let failed = live.iter().filter(|answer| answer.1).count();
        let slow = live.iter().filter(|answer| answer.2).count();
        let exceeds = |part: usize, ratio: Ratio| {
            let quarters = (0..=4).find(|n| Ratio::new(n * 250_000) == Some(ratio)).expect("one");
            4 * part > quarters as usize * live.len() || (quarters == 4 && part == live.len())
        };
        live.len() as u64 >= self.config.min_requests
            && !live.is_empty()
            && (self.config.error_ratio.is_some_and(|ratio| exceeds(failed, ratio))
                || self.config.slow.is_some_and(|bound| exceeds(slow, bound.ratio))
                || self.config.errors.is_some_and(|errors| failed as u64 >= errors))
    }

    /// Returns how many probes are under way.
    fn probes(&self) -> usize {
        let now = turns(self.seen());
        self.live.iter().filter(|live| live.turns == now).count()
    }
}

fn turns(seen: BreakerStats) -> u64 {
    seen.opened + seen.half_opened + seen.closed
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_closed_breaker_opens_when_the_definition_says_and_lets_all_pass_till_then(
        (config, steps) in (breaker(), steps()),
    ) {
        let mut day = Day::new(config);
        for step in steps {
            let before = day.seen();
            match step {
                Step::Wait(millis) => day.now = day.now + Duration::from_millis(millis),
                Step::Enter => {
                    let rejected = day.enter();
                    if before.phase == Phase::Closed {
                        let limit = Reason::Concurrency { limit: 5 };
                        prop_assert!(rejected.is_none_or(|reason| reason == limit));
                    }
                }
                Step::End(which, good) => {
                    let counted = day.answers.len();
                    day.end(which, good);
                    let heard = day.answers.len() > counted;
                    if before.phase == Phase::Closed && day.seen().phase == Phase::Closed && heard {
                        prop_assert!(!day.is_too_bad());
                    }
                    if before.phase == Phase::Open {
                        prop_assert_eq!(turns(day.seen()), turns(before));
                    }
                }
            }
        }
    }

    #[test]
    fn an_open_breaker_lets_nobody_in_before_its_time_and_a_probe_then(
        (config, steps) in (breaker(), steps()),
    ) {
        let mut day = Day::new(config.clone());
        for step in steps {
            match step {
                Step::Wait(millis) => day.now = day.now + Duration::from_millis(millis),
                Step::End(which, good) => day.end(which, good),
                Step::Enter => {
                    let before = format!("{:?}", day.seen());
                    let rejected = day.enter();
                    if rejected.is_some() {
                        prop_assert_eq!(before, format!("{:?}", day.seen()), "it leaves no trace");
                    }
                    if day.seen().phase == Phase::HalfOpen {
                        prop_assert!(day.probes() <= config.probes as usize);
                    }
                    if let Some(Reason::BreakerOpen { retry_after: Some(wait) }) = rejected {
                        prop_assert!(wait > Duration::ZERO && wait <= config.open_for);
                        day.live.clear();
                        let now = day.now;
                        day.now = now + wait - Duration::from_nanos(1);
                        prop_assert!(day.enter().is_some());
                        day.now = now + wait;
                        prop_assert!(day.enter().is_none());
                        prop_assert_eq!(day.seen().phase, Phase::HalfOpen);
                        break;
                    }
                }
            }
        }
    }
}

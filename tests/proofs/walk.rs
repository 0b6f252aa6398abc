//! Random steps: a gate decides as the formulas of the proofs say, at each of a million steps.

use core::time::Duration;
use flowgate::flow::{
    Algorithm, Claim, Gate, Instant, Key, Permit, Rate, Reason, Rule, Rules, SlotId,
    limiter::{
        fixed_window::{self, Align},
        token_bucket,
    },
};
use std::sync::Arc;

/// Steps of each walk.
const STEPS: u32 = 1_000_000;

/// The interval `T` of the bucket, in nanoseconds.
const INTERVAL: i128 = 1_000_000;

/// The length of the window, in nanoseconds.
const WINDOW: i128 = 1_000_000_000;

/// The state of a formula in Rust, beside that in `proofs/`.
trait Formula {
    fn rule(&self) -> Algorithm;

    /// Returns zero if a cost is admitted, else the wait for it.
    fn wait(&self, now: i128, cost: i128) -> i128;
    fn charge(&mut self, now: i128, cost: i128);
    fn excess(&mut self, now: i128, cost: i128);
    /// Gives back a part of a charge at `at`.
    fn give_back(&mut self, now: i128, at: i128, cost: i128);
    /// Takes another limit. Returns false if the state does not follow the proof's formula then.
    fn edit(&mut self, now: i128, limit: u64);
    /// True if more is used than the limit.
    fn has_debt(&self, now: i128) -> bool;
}

/// `proofs/gcra.py`.
struct Bucket {
    tat: i128,
    burst: u64,
}

impl Bucket {
    fn size(&self) -> i128 {
        i128::from(self.burst) * INTERVAL
    }
}

impl Formula for Bucket {
    fn rule(&self) -> Algorithm {
        let rate = Rate::new(1000, Duration::from_secs(1)).expect("a rate");
        Algorithm::TokenBucket(token_bucket::Config { rate, burst: self.burst })
    }

    fn wait(&self, now: i128, cost: i128) -> i128 {
        (self.tat.max(now) - now + cost * INTERVAL - self.size()).max(0)
    }

    fn charge(&mut self, now: i128, cost: i128) {
        self.tat = self.tat.max(now) + cost * INTERVAL;
    }

    fn excess(&mut self, now: i128, cost: i128) {
        self.tat = self.tat.max(now) + cost * INTERVAL;
    }

    fn give_back(&mut self, _now: i128, _at: i128, cost: i128) {
        self.tat = (self.tat - cost * INTERVAL).max(0);
    }

    fn edit(&mut self, now: i128, limit: u64) {
        let before = self.size();
        self.burst = limit;
        if self.size() != before {
            let missing = self.tat.max(now) - now;
            let whole = missing / before;
            let rest = missing % before * self.size();
            let rounded_up = (rest + before - 1) / before;
            self.tat = now + whole * self.size() + rounded_up;
        }
    }

    fn has_debt(&self, now: i128) -> bool {
        self.tat > now + self.size()
    }
}

/// `proofs/fixed_window.py`.
struct Window {
    used: i128,
    index: i128,
    limit: u64,
}

impl Window {
    /// Begins the window of `now`, if another one was the last.
    fn at(&mut self, now: i128) {
        let index = now / WINDOW;
        if index != self.index {
            self.index = index;
            self.used = 0;
        }
    }
}

impl Formula for Window {
    fn rule(&self) -> Algorithm {
        let rate = Rate::new(self.limit, Duration::from_secs(1)).expect("a rate");
        Algorithm::FixedWindow(fixed_window::Config { rate, align: Align::Clock })
    }

    fn wait(&self, now: i128, cost: i128) -> i128 {
        let index = now / WINDOW;
        let used = if index == self.index { self.used } else { 0 };
        if used + cost <= i128::from(self.limit) { 0 } else { (index + 1) * WINDOW - now }
    }

    fn charge(&mut self, now: i128, cost: i128) {
        self.at(now);
        self.used += cost;
    }

    fn excess(&mut self, now: i128, cost: i128) {
        self.at(now);
        self.used += cost;
    }

    fn give_back(&mut self, now: i128, at: i128, cost: i128) {
        self.at(now);
        if at / WINDOW == self.index {
            self.used = (self.used - cost).max(0);
        }
    }

    fn edit(&mut self, _now: i128, limit: u64) {
        self.limit = limit;
    }

    fn has_debt(&self, now: i128) -> bool {
        now / WINDOW == self.index && self.used > i128::from(self.limit)
    }
}

/// A request in flight.
struct Running {
    permit: Permit,
    at: i128,
    reserve: i128,
}

/// A gate with one rule, and the formula that it is compared with.
struct Walk<F> {
    formula: F,
    gate: Arc<Gate>,
    slot: SlotId,
    now: i128,
    running: Vec<Running>,
    admitted: u32,
    rejected: u32,
    debts: u32,
    edits: u32,
}

impl<F: Formula> Walk<F> {
    fn new(formula: F) -> Self {
        let gate = Arc::new(Gate::new(Instant::EPOCH));
        let slot = install(&gate, &formula, 0);
        let running = Vec::new();
        Self { formula, gate, slot, now: 0, running, admitted: 0, rejected: 0, debts: 0, edits: 0 }
    }

    fn admit(&mut self, cost: u64) {
        let claim =
            Claim { slot: self.slot, key: Key::Shared, cost, patience: Duration::ZERO, plan: None };
        let wait = self.formula.wait(self.now, cost.into());
        match self.gate.enter(instant(self.now), &[claim]) {
            Ok(admission) => {
                assert_eq!(wait, 0, "the formula rejects {cost} at {}", self.now);
                self.formula.charge(self.now, cost.into());
                let permit = admission.permit;
                self.running.push(Running { permit, at: self.now, reserve: cost.into() });
                self.admitted += 1;
            }
            Err(rejection) => {
                // No other reason is one of a rule over time.
                let retry_after = match rejection.reason {
                    Reason::Rate { retry_after } => Some(retry_after),
                    Reason::TooCostly { .. }
                    | Reason::Concurrency { .. }
                    | Reason::QueueFull { .. }
                    | Reason::QueueWait { .. }
                    | Reason::NoRoomToWait { .. }
                    | Reason::WaitedTooLong { .. }
                    | Reason::Banned { .. }
                    | Reason::Closed
                    | Reason::MissingKey
                    | Reason::DuplicateKey
                    | Reason::Undecided { .. }
                    | Reason::BreakerOpen { .. } => None,
                };
                let retry_after = retry_after.expect("a rule over time has a wait");
                let waits = i128::try_from(retry_after.as_nanos()).expect("a short time");
                assert_eq!(waits, wait, "the wait for {cost} at {}", self.now);
                self.rejected += 1;
            }
        }
        self.debts += u32::from(self.formula.has_debt(self.now));
    }

    fn settle(&mut self, which: usize, cost: u64) {
        if self.running.is_empty() {
            return;
        }
        let mut request = self.running.swap_remove(which % self.running.len());
        let _settled = request.permit.settle(instant(self.now), |_| Some(cost.into()));
        let difference = i128::from(cost) - request.reserve;
        if difference > 0 {
            self.formula.excess(self.now, difference);
        } else {
            self.formula.give_back(self.now, request.at, -difference);
        }
    }

    /// Edits the limit, once nothing is in flight: a reserve follows an edit by a rule of its own.
    fn edit(&mut self, limit: u64) {
        while !self.running.is_empty() {
            self.settle(0, 1);
        }
        self.formula.edit(self.now, limit);
        self.slot = install(&self.gate, &self.formula, self.now);
        self.edits += 1;
    }
}

fn instant(now: i128) -> Instant {
    Instant::EPOCH + Duration::from_nanos(u64::try_from(now).expect("a time after the start"))
}

fn install(gate: &Gate, formula: &impl Formula, now: i128) -> SlotId {
    let rule = Rule {
        name: "walked".into(),
        algorithm: formula.rule(),
        keyed: None,
        dry_run: false,
        settles: true,
        queue: None,
        reject_for: None,
    };
    let rules = Rules { flow: vec![rule], ..Rules::default() };
    gate.install(&rules, instant(now)).flow[0]
}

/// Walks a million steps with this seed.
fn walk(seed: u64, formula: impl Formula) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut walk = Walk::new(formula);
    for _ in 0..STEPS {
        match random.u32(0..10_000) {
            0..4000 => walk.now += i128::from(random.u64(0..9_000_000)),
            4000..7000 => walk.admit(random.u64(1..=12)),
            7000..9990 => {
                let cost =
                    if random.u8(0..20) == 0 { random.u64(0..200) } else { random.u64(0..12) };
                walk.settle(random.usize(..), cost);
            }
            9990..9995 => walk.now += i128::from(random.u64(0..2_000_000_000)),
            _ => walk.edit(random.u64(12..60)),
        }
    }
    let Walk { admitted, rejected, debts, edits, .. } = walk;
    eprintln!(
        "seed {seed}: {admitted} admitted, {rejected} rejected, {debts} under debt, {edits} edits"
    );
    assert!(admitted.min(rejected).min(debts) > 10_000 && edits > 100, "the walk sees everything");
}

#[test]
fn a_bucket_takes_the_steps_of_its_proof() {
    walk(1, Bucket { tat: 0, burst: 50 });
}

#[test]
fn a_fixed_window_takes_the_steps_of_its_proof() {
    walk(2, Window { used: 0, index: 0, limit: 50 });
}

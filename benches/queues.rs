//! Nanoseconds of a request that finds a free place, with a queue and without; and of a turn in a queue.
//!
//! `cargo bench --bench queues` prints the table. A request is its decision and its end. A turn is the end of
//! a request, the start of the one that waits for its place, and the arrival of another one that waits. Each
//! figure is the fastest of some rounds.

#![expect(clippy::print_stdout, reason = "a table is what it is for")]

use core::{
    num::NonZeroU32,
    task::{Poll, Waker},
    time::Duration,
};
use flowgate::flow::{
    Algorithm, Claim, Gate, Instant, Key, Outcome, Permit, QueueConfig, Report, Rule, Rules,
    Sharer, SlotId,
    limiter::{auto_limit, concurrency},
};
use std::{collections::VecDeque, sync::Arc};

/// Rounds to take the fastest of.
const ROUNDS: usize = 25;

/// Requests in a round.
const REQUESTS: u32 = 100_000;

const START: Instant = Instant::from_nanos(1_780_000_000_123_456_789);
const GAP: Duration = Duration::from_micros(10);

fn main() {
    let fixed = Algorithm::Concurrency(concurrency::Config { limit: 100 });
    let auto = Algorithm::AutoConcurrency(auto_limit::Config { min: 100, max: 1_000 });
    println!("{:<44}{:>12}", "ns", "request");
    for (name, algorithm) in [("concurrency", &fixed), ("concurrency: auto", &auto)] {
        for (what, queue) in [("", None), (" with queue", Some(queue()))] {
            let row = format!("{name}{what}, a free place");
            println!("{row:<44}{:>12}", free_place(&World::new(algorithm, queue)));
        }
    }
    println!("\n{:<44}{:>12}", "ns", "turn");
    let one = Algorithm::Concurrency(concurrency::Config { limit: 1 });
    for tenants in [1, 100] {
        for waiting in [10, 1_000, 10_000] {
            let row = format!("{waiting} wait, of {tenants} tenants");
            let queue = QueueConfig { shares: tenants > 1, ..queue() };
            println!("{row:<44}{:>12}", turn(&World::new(&one, Some(queue)), waiting, tenants));
        }
    }
}

fn queue() -> QueueConfig {
    QueueConfig::new(Duration::from_hours(1), 1_000_000)
}

/// A gate with one rule.
struct World {
    gate: Arc<Gate>,
    slot: SlotId,
}

impl World {
    fn new(algorithm: &Algorithm, queue: Option<QueueConfig>) -> Self {
        let rule = Rule {
            name: "rule".into(),
            algorithm: algorithm.clone(),
            keyed: None,
            dry_run: false,
            settles: false,
            reject_for: None,
            queue: queue.map(Box::new),
        };
        let gate = Arc::new(Gate::new(START));
        let rules = Rules { flow: vec![rule], ..Rules::default() };
        let slot = gate.install(&rules, START).flow[0];
        Self { gate, slot }
    }

    fn enter(&self, now: Instant) -> Permit {
        let patience = Duration::ZERO;
        let claim = Claim { slot: self.slot, key: Key::Shared, cost: 1, patience, plan: None };
        let mut report = Report::default();
        self.gate.decide(now, &[claim], &mut report).expect("it may start, or wait")
    }

    /// Has a request of a tenant wait.
    fn wait(&self, now: Instant, tenant: u64) -> Permit {
        let mut permit = self.enter(now);
        let sharer = Sharer { key: tenant, weight: NonZeroU32::MIN, class: 0 };
        permit.share(vec![(self.slot, sharer)]);
        assert!(permit.poll_start(now, Waker::noop()).is_pending(), "it waits");
        permit
    }
}

fn free_place(world: &World) -> u64 {
    let mut now = START;
    fastest(|| {
        for _ in 0..REQUESTS {
            now = now + GAP;
            world.enter(now).finish(Outcome::Success { at: now });
        }
    })
}

fn turn(world: &World, waiting: u64, tenants: u64) -> u64 {
    let mut now = START;
    let mut running = Some(world.enter(now));
    // With as many of each tenant, they start in the order in which they came.
    let mut queue: VecDeque<Permit> =
        (0..waiting).map(|number| world.wait(now, number % tenants)).collect();
    let mut number = waiting;
    fastest(|| {
        for _ in 0..REQUESTS {
            now = now + GAP;
            if let Some(permit) = running.take() {
                permit.finish(Outcome::Success { at: now });
            }
            let mut next = queue.pop_front().expect("some wait");
            assert!(matches!(next.poll_start(now, Waker::noop()), Poll::Ready(Ok(_))));
            running = Some(next);
            queue.push_back(world.wait(now, number % tenants));
            number += 1;
        }
    })
}

/// Returns the nanoseconds of a request in the fastest round.
fn fastest(mut round: impl FnMut()) -> u64 {
    let rounds = (0..ROUNDS).map(|_| timed(&mut round));
    let fastest = rounds.min().unwrap_or_default();
    u64::try_from(fastest.as_nanos() / u128::from(REQUESTS)).unwrap_or(u64::MAX)
}

#[expect(clippy::disallowed_types, reason = "a benchmark measures real time")]
fn timed(round: &mut impl FnMut()) -> Duration {
    let start = std::time::Instant::now();
    round();
    start.elapsed()
}

//! Nanoseconds per request of routes that share rules.
//!
//! `cargo bench --bench budgets` prints the table. A request is enter and finish together. Each figure is
//! the fastest of some rounds: the others measure what else the machine does.

#![expect(clippy::print_stdout, reason = "a table is what it is for")]

use core::{hint::black_box, time::Duration};
use flowgate::flow::{
    Algorithm, Claim, Gate, Gates, Instant, Key, Outcome, Rate, Rule, Rules, SlotId,
    limiter::token_bucket,
};
use std::{
    sync::{Arc, Barrier},
    thread,
};

/// Rounds to take the fastest of.
const ROUNDS: usize = 15;

/// Requests in a round.
const REQUESTS: u32 = 100_000;

/// Routes that share a budget.
const ROUTES: usize = 50;

/// Some day in 2026, so that instants are as long as they will be.
const START: Instant = Instant::from_nanos(1_780_000_000_123_456_789);

fn main() {
    println!("{:<52}{:>8}\n", "ns per request", "");

    let rules = [route(&one_gate(3), &[0, 1, 2])];
    row("3 rules of a route", fastest(|| alone(&rules)));
    let levels = [nested(3)];
    row("3 levels: a rule, its budget, and the budget's parent", fastest(|| alone(&levels)));

    let budget = Arc::new(Gate::with_number(1, START));
    let gates: Vec<_> = (0..ROUTES).map(|_| sharing(&budget)).collect();
    row("50 routes on a budget, a gate for each", fastest(|| alone(&gates)));
    row("  2 threads, per request of each", fastest(|| contended(&gates)));

    let whole = one_gate(ROUTES + 1);
    let one: Vec<_> = (0..ROUTES).map(|at| route(&whole, &[at, ROUTES])).collect();
    row("50 routes on a budget, one gate for all", fastest(|| alone(&one)));
    row("  2 threads, per request of each", fastest(|| contended(&one)));

    let apart: Vec<_> = (0..ROUTES).map(|_| route(&one_gate(2), &[0, 1])).collect();
    row("50 routes without a budget, 2 rules each", fastest(|| alone(&apart)));
    row("  2 threads, per request of each", fastest(|| contended(&apart)));
}

/// The gates of a route, and what each of its requests claims.
struct Route {
    gates: Gates,
    claims: Vec<Claim>,
}

/// A gate with its slots.
struct Opened {
    gate: Arc<Gate>,
    slots: Vec<SlotId>,
}

/// Returns a gate with this many buckets that are never empty.
fn one_gate(count: usize) -> Opened {
    let gate = Arc::new(Gate::new(START));
    let slots = install(&gate, count);
    Opened { gate, slots }
}

fn install(gate: &Arc<Gate>, count: usize) -> Vec<SlotId> {
    const PLENTY: u64 = 10_000_000_000;
    let rate = Rate::new(1_000, Duration::from_hours(1)).expect("within its bounds");
    let rule = |at: usize| Rule {
        name: format!("rule {at}").into(),
        algorithm: Algorithm::TokenBucket(token_bucket::Config { rate, burst: PLENTY }),
        keyed: None,
        dry_run: false,
        settles: false,
        queue: None,
        reject_for: None,
    };
    gate.install(&Rules { flow: (0..count).map(rule).collect(), ..Rules::default() }, START).flow
}

/// Returns a route whose rules are all in one gate.
fn route(of: &Opened, places: &[usize]) -> Route {
    let claims = places.iter().map(|place| claim(of.slots[*place])).collect();
    Route { gates: Arc::clone(&of.gate).into(), claims }
}

/// Returns a route with a rule of its own, and as many budgets that it takes `levels` in all.
fn nested(levels: u32) -> Route {
    let own = one_gate(1);
    let budgets: Vec<_> =
        (1..levels).map(|number| Arc::new(Gate::with_number(number, START))).collect();
    let shared = budgets.iter().flat_map(|gate| install(gate, 1));
    let claims = own.slots.iter().copied().chain(shared).map(claim).collect();
    Route { gates: Gates::new(own.gate, budgets.iter()), claims }
}

/// Returns a route with a rule of its own that uses a budget.
fn sharing(budget: &Arc<Gate>) -> Route {
    let own = one_gate(1);
    let slots = own.slots.iter().copied().chain(install(budget, 1));
    let claims = slots.map(claim).collect();
    Route { gates: Gates::new(own.gate, [budget].into_iter()), claims }
}

fn claim(slot: SlotId) -> Claim {
    Claim { slot, key: Key::Shared, cost: 1, patience: Duration::ZERO, plan: None }
}

/// Serves a round of requests, the routes in turn.
fn serve(routes: &[Route], requests: u32) {
    let mut now = START;
    for route in routes.iter().cycle().take(requests as usize) {
        now = now + Duration::from_nanos(100);
        let admitted = route.gates.enter(now, &route.claims);
        let admission = black_box(admitted).expect("there is plenty");
        admission.permit.finish(Outcome::Success { at: now });
    }
}

#[expect(clippy::disallowed_types, reason = "a benchmark measures real time")]
fn alone(routes: &[Route]) -> Duration {
    let began = std::time::Instant::now();
    serve(routes, REQUESTS);
    began.elapsed()
}

/// The same from two threads at once, each with all requests.
fn contended(routes: &[Route]) -> Duration {
    let barrier = Barrier::new(2);
    let timed = || {
        barrier.wait();
        alone(routes)
    };
    thread::scope(|scope| {
        let other = scope.spawn(timed);
        let own = timed();
        own.max(other.join().expect("it does not panic"))
    })
}

fn fastest(mut round: impl FnMut() -> Duration) -> Duration {
    let rounds = (0..ROUNDS).map(|_| round());
    rounds.min().unwrap_or_default()
}

fn row(name: &str, round: Duration) {
    println!("{name:<52}{:>8}", round.as_nanos() / u128::from(REQUESTS));
}

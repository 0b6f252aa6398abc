//! Limits that find themselves, in virtual time: the goodput under many loads, as a share of what the best
//! limit in hindsight had.
//!
//! These are the regimes that take little time. `cargo bench --bench auto_limit` runs all of them, several
//! times.

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times of a simulation are short, and its figures are few"
)]

#[path = "auto_limit/regimes.rs"]
mod regimes;
#[path = "auto_limit/run.rs"]
mod run;
#[path = "auto_limit/service.rs"]
mod service;

use flowgate::flow::{
    Algorithm, ChangeReason, QueueConfig,
    limiter::{auto_limit, concurrency},
};
use regimes::Regime;
use run::{Outcomes, newest_when_late, run};
use std::time::Duration;

fn named(name: &str) -> Regime {
    regimes::all()
        .into_iter()
        .find(|regime| regime.name == name)
        .expect("there is one of this name")
}

fn auto() -> Algorithm {
    Algorithm::AutoConcurrency(auto_limit::Config { min: 1, max: 1_000 })
}

/// Runs a regime with a limit that finds itself, and a queue.
fn found(regime: &Regime, seed: u64) -> Outcomes {
    run(regime, &auto(), Some(newest_when_late(regime)), seed)
}

/// Runs that take little time, and the least share of the best limit's goodput that each must have.
const QUICK: [(&str, f64); 36] = [
    ("exp-8-0.5", 0.98),
    ("exp-8-0.8", 0.97),
    ("exp-8-1.2", 0.95),
    ("exp-8-2", 0.95),
    ("lognormal-8-0.8", 0.97),
    ("lognormal-8-1.2", 0.95),
    ("lognormal-8-2", 0.94),
    ("two-8-0.8", 0.94),
    ("two-8-1.2", 0.92),
    ("equal-8-0.8", 0.98),
    ("equal-8-1.2", 0.96),
    ("equal-8-2", 0.96),
    ("exp-1-0.5", 0.95),
    ("exp-1-1.2", 0.82),
    ("exp-2-0.8", 0.92),
    ("exp-2-1.2", 0.92),
    ("exp-64-0.8", 0.98),
    ("exp-64-1.2", 0.97),
    ("sharing-8-0.8", 0.96),
    ("sharing-8-1.2", 0.90),
    ("sharing-8-2", 0.90),
    ("step-8-4-1.5", 0.92),
    ("step-4-2-1.5", 0.92),
    ("slow-3-0.8", 0.94),
    ("slow-3-1.2", 0.94),
    ("slow-10-1.2", 0.94),
    ("failing-1.2", 0.95),
    ("stuck-1.2", 0.90),
    ("rejecting-1.2", 0.92),
    ("pausing-1.2", 0.93),
    ("far-10-1.2", 0.94),
    ("far-50-2", 0.95),
    ("wave-8", 0.94),
    ("bursts-1s", 0.94),
    ("bursts-0.2s", 0.87),
    ("mixed-1.2", 0.92),
];

#[test]
fn it_serves_nearly_as_many_as_the_best_limit_in_hindsight() {
    let mut shares = Vec::new();
    for (name, least) in QUICK {
        let regime = named(name);
        let share = found(&regime, 1).goodput / regime.best;
        assert!(share >= least, "{name}: {share:.3}");
        shares.push(share);
    }
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    assert!(mean >= 0.965, "{mean:.4}");
}

#[test]
fn a_load_that_fits_is_hardly_rejected() {
    for name in ["exp-8-0.5", "exp-8-0.8", "equal-8-0.8", "exp-64-0.8"] {
        let patient = Some(QueueConfig::new(Duration::from_millis(500), 1_000_000));
        let Outcomes { arrived, rejected, .. } = run(&named(name), &auto(), patient, 1);
        assert!(arrived > 10_000, "{name}");
        assert!(rejected * 1_000 <= arrived, "{name}: {rejected} of {arrived}");
    }
}

/// Clients send again when they have a response. If the limit is above their number, all of them are inside
/// the service, and no request waits at the gateway.
#[test]
fn clients_that_wait_for_responses_are_not_all_inside() {
    let patient = QueueConfig::new(Duration::from_secs(10), 1_000);
    for regime in regimes::of_clients() {
        for (seed, queue) in (1..=4).flat_map(|seed| [(seed, Some(patient.clone())), (seed, None)])
        {
            let Outcomes { inside, goodput, .. } = run(&regime, &auto(), queue, seed);
            let name = &regime.name;
            let most = 3.0 * f64::from(regime.places);
            assert!(inside <= most, "{name}, seed {seed}: {inside:.1} inside");
            assert!(goodput >= 0.88, "{name}, seed {seed}: {goodput:.3}");
        }
    }
}

#[test]
fn it_works_without_a_queue() {
    for (name, least) in
        [("exp-8-0.5", 0.97), ("exp-8-0.8", 0.96), ("exp-8-2", 0.93), ("exp-64-1.2", 0.96)]
    {
        let regime = named(name);
        let share = run(&regime, &auto(), None, 1).goodput / regime.best;
        assert!(share >= least, "{name}: {share:.3}");
    }
}

#[test]
fn overload_leaves_no_second_without_responses() {
    let regime = named("exp-8-2");
    let parts = found(&regime, 2).parts;
    let measured = &parts[80..parts.len() - 4];
    let seconds = measured.windows(4).map(|second| second.iter().sum::<u32>());
    let worst = seconds.min().expect("there are some");
    assert!(f64::from(worst) >= 0.5 * regime.capacity(), "{worst} in the worst second");
}

/// The limit of a service that has become slower stays, and that of one that has fewer places falls.
#[test]
fn a_slower_service_is_known_from_a_fuller_one() {
    let slower = found(&Regime { seconds: 55.0, ..named("slow-3-1.2") }, 1);
    let stats = slower.stats.expect("it finds itself");
    assert!((6..=20).contains(&stats.limit), "{stats:?}");
    assert!(stats.unloaded.as_millis() >= 40, "{stats:?}");
    assert!(stats.changes[ChangeReason::DiveRefuted as usize] > 0, "{stats:?}");

    let fewer = found(&Regime { seconds: 59.0, ..named("step-64-8-1.5") }, 1);
    let stats = fewer.stats.expect("it finds itself");
    assert!((6..=24).contains(&stats.limit), "{stats:?}");
    assert!(stats.changes[ChangeReason::DiveKept as usize] > 0, "{stats:?}");
}

#[test]
fn gateways_in_front_of_one_service_share_it() {
    let regime = Regime { gateways: 2, ..Regime::new("two gateways", 8, 1.5) };
    let share = found(&regime, 1).goodput;
    let fixed = Algorithm::Concurrency(concurrency::Config { limit: 5 });
    let best = run(&regime, &fixed, Some(newest_when_late(&regime)), 1).goodput;
    assert!(share >= 0.93 * best, "{share:.3} of {best:.3}");
}

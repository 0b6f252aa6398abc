//! Limits that find themselves, in all regimes of `tests/auto_limit`:
//!
//! `cargo bench --bench auto_limit -- [PART OF A NAME] [RUNS]`
//!
//! Prints for each regime the goodput as a share of that of the best limit in hindsight, the mean of the
//! runs. Then, for clients that send again when they have a response, the goodput and the mean number of
//! requests inside the service; and the mean and the worst of all regimes. It takes 16 s of CPU a run.

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times of a simulation are short, and its figures are few"
)]
#![expect(clippy::print_stdout, reason = "a table is what it is for")]

#[path = "../tests/auto_limit/regimes.rs"]
mod regimes;
#[path = "../tests/auto_limit/run.rs"]
mod run;
#[path = "../tests/auto_limit/service.rs"]
mod service;

use flowgate::flow::{Algorithm, QueueConfig, limiter::auto_limit};
use run::Outcomes;
use std::{env, process::ExitCode, time::Duration};

/// The least mean over all regimes.
const LEAST_MEAN: f64 = 0.97;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let part = words.first().map_or("", String::as_str);
    let runs: u64 = words.get(1).and_then(|runs| runs.parse().ok()).unwrap_or(1);
    let auto = Algorithm::AutoConcurrency(auto_limit::Config { min: 1, max: 1_000 });

    let mut shares = Vec::new();
    for regime in regimes::all().into_iter().filter(|regime| regime.name.contains(part)) {
        let queue = Some(run::newest_when_late(&regime));
        let outcomes = (1..=runs).map(|seed| run::run(&regime, &auto, queue.clone(), seed));
        let outcomes: Vec<_> = outcomes.collect();
        let goodput = outcomes.iter().map(|run| run.goodput).sum::<f64>() / runs as f64;
        let share = goodput / regime.best;
        let least = outcomes.iter().map(|run| run.limits.0).min().unwrap_or(0);
        let most = outcomes.iter().map(|run| run.limits.1).max().unwrap_or(0);
        println!("{:18} {share:.3}  limit {least} to {most}", regime.name);
        shares.push(share);
    }

    for regime in regimes::of_clients().into_iter().filter(|regime| regime.name.contains(part)) {
        let queue = QueueConfig::new(Duration::from_secs(10), 1_000);
        let outcome = run::run(&regime, &auto, Some(queue), 1);
        let Outcomes { inside, goodput, .. } = outcome;
        println!("{:18} {goodput:.3}  {inside:.1} inside", regime.name);
    }

    let mean = shares.iter().sum::<f64>() / shares.len().max(1) as f64;
    let worst = shares.iter().copied().fold(f64::INFINITY, f64::min);
    let low = shares.iter().filter(|share| **share < 0.95).count();
    println!("{} regimes: mean {mean:.3}, worst {worst:.3}, {low} below 0.95", shares.len());
    if part.is_empty() && mean < LEAST_MEAN { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

//! The whole proxy in virtual time, with faults that a seed chooses.
//!
//! Each seed draws a configuration, clients and servers of HTTP/1.1 and HTTP/2, what servers do with each request, edits of the rules
//! and perhaps a drain. Clients and servers run in this process, over streams that split, delay and
//! break off. Afterwards nothing may be left: no request in flight, no place in a queue, no
//! connection. `SEED=n cargo test --lib simulation` runs one seed alone and prints what happened.

mod client;
mod http1_server;
mod http2_body;
mod http2_client;
mod http2_server;
mod message;
mod network;
mod plan;
mod server;
mod verify;

use super::{Protocol, TestProxy, secs};
use crate::proxy::Connector;
use crate::{
    clock::Clock,
    config::{self, Live, Retired},
    flow::Instant,
};
use client::Exchange;
use core::time::Duration;
use network::Unsteady;
use plan::Plan;
use server::Servers;
use std::{env, fs, panic, sync::Arc};
use tempfile::TempDir;
use tokio::io::duplex;

/// How many seeds every test run tries.
const SEEDS: u64 = 300;

/// No deadline of any configuration drawn here is longer.
const LONGEST: Duration = Duration::from_hours(6);

/// When every run begins: 2027-01-15, 08:00, in nanoseconds.
const START: u64 = 1_800_000_000_000_000_000;

#[test]
fn nothing_is_left_whatever_clients_and_servers_do() {
    let only: Option<u64> = env::var("SEED").ok().map(|seed| seed.parse().expect("a number"));
    let seeds = only.map_or(0..SEEDS, |seed| seed..seed + 1);
    let mut answers = 0;
    for seed in seeds {
        let run = panic::catch_unwind(|| simulate(seed, only.is_some()));
        let result = run.unwrap_or_else(|_| panic!("SEED={seed} panicked"));
        assert!(result.violations.is_empty(), "SEED={seed}: {:#?}", result.violations);
        answers += result.answers;
    }
    assert!(only.is_some() || answers > SEEDS * 10, "only {answers} requests were answered");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..10 {
        let first = simulate(seed, false);
        let second = simulate(seed, false);
        assert_eq!(first.exchanges, second.exchanges, "SEED={seed}");
    }
}

/// What came of a run.
struct RunResult {
    /// Final answers that clients got whole.
    answers: u64,
    exchanges: Vec<Exchange>,
    violations: Vec<String>,
}

/// Runs one seed from beginning to end.
fn simulate(seed: u64, verbose: bool) -> RunResult {
    fastrand::seed(seed);
    let plan = Plan::draw(seed);
    if verbose {
        #[expect(clippy::print_stdout, reason = "asked for, to find out what happened")]
        {
            println!("{plan:#?}");
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(run(plan))
}

async fn run(plan: Plan) -> RunResult {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let servers = Servers::new(&plan);
    let log = folder.path().join("access.log");
    let connector = Connector::Simulated(servers.network());
    let clock = Clock::start_at(Instant::from_nanos(START));
    let proxy = TestProxy::of(clock, &plan.configurations[0], connector, Some(&log));
    servers.keep_time(&proxy.worker.clock);
    let edits = tokio::spawn(edit(Arc::clone(&proxy.worker.live), folder, &proxy, &plan));
    let mut clients = Vec::new();
    for connection in &plan.connections {
        clients.push(client::start(&proxy, connection));
    }
    if let Some(at) = plan.drain_at {
        drain(&proxy, at).await;
    }
    let mut exchanges = Vec::new();
    let mut violations = Vec::new();
    for client in clients {
        let (done, served) = client;
        match proxy.worker.clock.timeout(LONGEST, done).await {
            Ok(Ok(done)) => exchanges.extend(done),
            Ok(Err(error)) => violations.push(format!("a client panicked: {error}")),
            Err(_) => violations.push("a client waits for ever".to_owned()),
        }
        match proxy.worker.clock.timeout(LONGEST, served).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => violations.push(format!("a connection's task panicked: {error}")),
            Err(_) => violations.push("a connection is served for ever".to_owned()),
        }
    }
    let folder = edits.await.expect("edits end");
    exchanges.sort_by_key(|exchange| exchange.id);
    verify::verify(&proxy, &servers, &plan, &exchanges, &mut violations).await;
    // A machine that is busy may take longer than the time that a gateway gives its log at its end.
    proxy.log.finish();
    verify::verify_log(&log, &exchanges, &mut violations);
    drop(folder);
    let answers = exchanges.iter().filter(|exchange| exchange.is_whole()).count() as u64;
    RunResult { answers, exchanges, violations }
}

/// Puts each of the plan's configurations in force at its time.
fn edit(
    live: Arc<Live>,
    folder: TempDir,
    proxy: &TestProxy,
    plan: &Plan,
) -> impl Future<Output = TempDir> + use<> {
    let clock = proxy.worker.clock.clone();
    let start = clock.now();
    let edits: Vec<_> =
        plan.edits.iter().map(|edit| (edit.at, plan.configurations[edit.to].clone())).collect();
    async move {
        let mut retired = Retired::default();
        for (at, text) in edits {
            clock.sleep_until(start + at).await;
            let path = folder.path().join("gateway.yaml");
            fs::write(&path, text).expect("written");
            let plan = config::read(&path).unwrap_or_else(|problems| panic!("{problems}"));
            live.apply(plan, clock.now(), &mut retired);
        }
        folder
    }
}

/// Ends the connections as a stopping gateway does.
async fn drain(proxy: &TestProxy, at: Duration) {
    proxy.pass(at).await;
    proxy.worker.connections.drain_used();
    proxy.pass(secs(1)).await;
    proxy.worker.connections.drain();
}

/// Connects a client over a stream as unsteady as the plan says.
fn connect(
    proxy: &TestProxy,
    plan: &plan::Connection,
) -> (tokio::io::DuplexStream, tokio::task::JoinHandle<()>) {
    let (near, far) = duplex(plan.buffer);
    let protocol = if plan.http2.is_some() { Protocol::Http2 } else { Protocol::Http1 };
    let (served, _) = proxy.serve(Unsteady::new(far, plan), protocol);
    (near, served)
}

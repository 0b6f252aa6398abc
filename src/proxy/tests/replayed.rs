//! The log of a gateway whose clients leave, replayed.

use super::{Client, TestProxy};
// A test alone: the proxy itself knows nothing of the replay, which is above it.
#[cfg(test)]
use crate::replay::{self, Options};
use crate::{clock::Clock, flow::Instant, proxy::Connector};
use clap::Parser;
use core::time::Duration;
use serde_json::Value;
use std::{collections::BTreeMap, fs, path::Path};
use tokio::sync::mpsc;

/// What is compared of each decision.
const FIELDS: [&str; 7] =
    ["decision", "reason", "rule", "limit", "used", "wait_ms", "retry_after_ms"];

const REQUESTS: u64 = 150;

/// Queues of all clients: of a route, of a rule, of both, and beside other rules; and queues of each
/// client.
const ROUTES: [&str; 5] = [
    "pacing: { rate: 5/1s, max_wait: 2s }",
    "flow: [{ name: even, algorithm: pacing, limit: 10/1s, max_wait: 2s, cost: { default: 2, GET: 1, PUT: 3 } }]",
    "flow: [{ name: even, algorithm: pacing, limit: 5/1s, max_wait: 3s, max_queue: 7 }], pacing: { rate: 9/2s, max_wait: 2s }",
    "flow: [{ name: some, algorithm: sliding_window, limit: 9/2s }, { name: even, algorithm: pacing, limit: 5/1s, max_wait: 4s, except: { method: PUT } }, { name: trial, algorithm: pacing, limit: 2/1s, dry_run: true }]",
    "flow: [{ name: own, algorithm: pacing, limit: 5/1s, max_wait: 2s, key: client_ip }]",
];

#[derive(Parser)]
struct CommandLine {
    #[command(flatten)]
    options: Options,
}

/// Returns the configuration with `route`, and its log.
fn text(route: &str) -> String {
    format!(
        "listeners: [{{ name: web, listen: 127.0.0.1:0 }}]\n\
         upstreams: [{{ name: up, servers: [{{ url: \"http://127.0.0.1:9\" }}] }}]\n\
         routes: [{{ name: all, match: {{ path_prefix: / }}, upstream: up, {route} }}]\n"
    )
}

/// Has clients send requests and leave, at times drawn from `seed`, and writes the log.
async fn record(route: &str, seed: u64, log: &Path) {
    fastrand::seed(seed);
    let (accept, upstream) = mpsc::unbounded_channel();
    let clock = Clock::start_at(Instant::from_nanos(1_800_000_000_000_000_000));
    let proxy = TestProxy::of(clock, &text(route), Connector::Memory(accept), Some(log));
    let mut proxy = TestProxy { upstream, ..proxy };
    let mut arrivals = proxy.answer();
    // Requests come at even milliseconds, as starts do, and clients leave at odd ones: the order of
    // what happens at the same time is not in the log.
    let mut events = BTreeMap::<u64, Vec<(u64, bool)>>::new();
    let mut at = 2;
    for number in 0..REQUESTS {
        at += 2 + 2 * fastrand::u64(..100);
        events.entry(at).or_default().push((number, true));
        let stays = 1 + 2 * fastrand::u64(..1500);
        events.entry(at + stays).or_default().push((number, false));
    }
    let begun = proxy.now();
    let mut clients: BTreeMap<u64, Client> = BTreeMap::new();
    for (at, happens) in events {
        proxy.worker.clock.sleep_until(begun + Duration::from_millis(at)).await;
        for (number, comes) in happens {
            if comes {
                let mut client = proxy.client();
                let method = ["GET", "GET", "DELETE", "PUT"][fastrand::usize(..4)];
                client.send(&format!("{method} /{number} HTTP/1.1\r\nhost: a\r\n\r\n")).await;
                clients.insert(number, client);
            } else {
                clients.remove(&number);
            }
        }
    }
    proxy.pass(Duration::from_secs(10)).await;
    while arrivals.try_recv().is_ok() {}
    proxy.log.finish();
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[tokio::test(start_paused = true)]
async fn the_log_of_clients_that_leave_while_they_wait_gives_the_decisions_again() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let [config, log] = ["gateway.yaml", "access.log"].map(|name| folder.path().join(name));
    for (number, route) in ROUTES.iter().enumerate() {
        let mut left = 0;
        let mut taken = 0;
        for seed in 0..8 {
            record(route, seed, &log).await;
            let mut live = lines(&fs::read_to_string(&log).expect("a log"));
            fs::remove_file(&log).expect("removed");
            assert_eq!(live.len() as u64, REQUESTS);
            live.sort_by_key(|line| line["ts"].as_str().map(str::to_owned));
            let sorted: Vec<_> = live.iter().map(Value::to_string).collect();
            fs::write(&log, sorted.join("\n")).expect("written");
            fs::write(&config, text(route)).expect("written");
            let options = CommandLine::parse_from([
                "replay",
                "--output=decisions",
                log.to_str().expect("text"),
            ]);
            let mut out = Vec::new();
            replay::run(&options.options, &config, &mut out, &mut Vec::new(), None)
                .expect("it can be replayed");
            fs::remove_file(&log).expect("removed");
            let replayed = lines(core::str::from_utf8(&out).expect("text"));
            assert_eq!(replayed.len(), live.len());
            for (live, replayed) in live.iter().zip(&replayed) {
                for field in FIELDS {
                    let context = || format!("{route}, seed {seed}: {field}\n{live}\n{replayed}");
                    assert_eq!(live["flow"][field], replayed[field], "{}", context());
                }
            }
            left += live.iter().filter(|line| line["flow"]["left"] == true).count();
            taken += starts_taken(&live);
        }
        let has_own_queues = number == ROUTES.len() - 1;
        assert!(left > 0, "{route}: none left");
        assert_eq!(taken > 0, !has_own_queues, "{route}: {taken} starts were taken");
    }
}

/// Returns how many requests start before one that came earlier.
fn starts_taken(live: &[Value]) -> usize {
    let millis = |line: &Value| {
        let stamp: jiff::Timestamp = line["ts"].as_str().expect("text").parse().expect("a time");
        let wait = line["flow"]["wait_ms"].as_f64().expect("a number");
        stamp.duration_since(jiff::Timestamp::UNIX_EPOCH).as_secs_f64() * 1e3 + wait
    };
    let admitted = live.iter().filter(|line| line["flow"]["decision"] != "rejected");
    let starts: Vec<_> = admitted.map(millis).collect();
    starts.windows(2).filter(|pair| pair[1] < pair[0]).count()
}

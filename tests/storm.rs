//! A storm of reloads under load. It has a binary of its own, so that nothing runs
//! beside it.

#![expect(clippy::disallowed_types, reason = "processes and sockets live in real time")]
#![expect(clippy::panic, reason = "a helper's failure is the test's")]

#[expect(dead_code, reason = "the end-to-end tests use the rest")]
#[path = "e2e/common/mod.rs"]
mod common;

use common::{
    Gateway,
    http::Client,
    replace,
    upstream::{self, Script},
    yaml,
};
use std::{
    fs,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

const RATE: u64 = 2_000;
const REQUESTS: usize = 100_000;

/// What an edit makes of the judged rule: raised, lowered or as it was.
const LIMITS: [u32; 7] = [500, 500, 300, 400, 500, 300, 300];
const BURSTS: [u32; 5] = [50, 20, 20, 50, 50];
const MOST: u32 = 500 + 50;
const LEAST: u32 = 300;
const LEAST_BURST: u32 = 20;

/// Rules beside the judged one, which come and go and reject nothing.
const OTHERS: [&str; 4] = [
    "",
    ", { name: width, concurrency: 10000 }",
    ", { name: minute, algorithm: sliding_window, limit: 10000000/1m }",
    ", { name: each, limit: 100000/1s, key: client_ip }, { name: width, concurrency: 9000 }",
];

/// A configuration that differs from the version before.
fn text(upstream: &Script, version: usize) -> String {
    let limit = LIMITS[version % LIMITS.len()];
    let burst = BURSTS[version % BURSTS.len()];
    let others = OTHERS[version % OTHERS.len()];
    let routes = format!(
        "  - name: limited\n    match: {{ path: /limited }}\n    upstream: up\n    \
         response_headers: {{ set: {{ X-Version: v{version} }} }}\n    \
         flow: [{{ name: r, algorithm: token_bucket, limit: {limit}/1s, burst: {burst} }}{others}]\n  \
         - {{ name: rest, match: {{ path_prefix: / }}, upstream: up }}\n"
    );
    format!("access_log: access.log\n{}", yaml(upstream.address, &routes))
}

/// Takes numbers from `next` until none is left and sends each request when it is
/// due, every other one to the limited route. Returns how many were rejected.
fn client(web: SocketAddr, begun: Instant, next: &AtomicUsize) -> usize {
    let mut client = Client::new(web);
    let mut rejected = 0;
    loop {
        let number = next.fetch_add(1, Ordering::SeqCst);
        if number >= REQUESTS {
            return rejected;
        }
        let due = begun + Duration::from_micros(number as u64 * 1_000_000 / RATE);
        while let Some(left) = due.checked_duration_since(Instant::now()) {
            std::thread::park_timeout(left);
        }
        let limited = number.is_multiple_of(2);
        let answer = client.get(if limited { "/limited" } else { "/free" });
        match answer.status {
            200 => assert_eq!(answer.text(), "done"),
            429 if limited => rejected += 1,
            status => panic!("request {number} got {status}"),
        }
    }
}

/// When a request came to the limited route, in milliseconds, and whether it was admitted, as the
/// access log has it: by the clock that the decision was made by.
fn arrivals(gateway: &Gateway) -> Vec<(u64, bool)> {
    let text = fs::read_to_string(gateway.dir.path().join("access.log")).expect("a log");
    assert_eq!(text.lines().count(), REQUESTS, "every request has a line");
    let limited = text.lines().filter(|line| line.contains("\"route\":\"limited\""));
    let mut arrivals: Vec<(u64, bool)> =
        limited.map(|line| (stamp(line), line.contains("\"status\":200"))).collect();
    arrivals.sort_unstable();
    arrivals
}

/// How many of these arrivals the smallest of the buckets admits. No other admits fewer, however
/// slowly a busy machine lets the requests come.
fn least(arrivals: &[(u64, bool)]) -> usize {
    const MILLI: u64 = 1000;
    let most = u64::from(LEAST_BURST) * MILLI;
    let mut tokens = most;
    let mut before = arrivals[0].0;
    let mut admitted = 0;
    for (time, _) in arrivals {
        tokens = most.min(tokens + (time - before) * u64::from(LEAST));
        before = *time;
        if tokens >= MILLI {
            tokens -= MILLI;
            admitted += 1;
        }
    }
    admitted
}

/// The milliseconds of a line's `ts`, as in `2026-11-21T05:00:00.125Z`, since its month began.
fn stamp(line: &str) -> u64 {
    let start = line.find("\"ts\":\"").expect("a time") + 6;
    let part = |from: usize, to: usize| -> u64 {
        line[start + from..start + to].parse().expect("a number")
    };
    let hours = part(8, 10) * 24 + part(11, 13);
    (hours * 3600 + part(14, 16) * 60 + part(17, 19)) * 1000 + part(20, 23)
}

/// The most that any second of these milliseconds has.
fn worst_second(times: &[u64]) -> usize {
    let mut first = 0;
    let mut worst = 0;
    for (last, time) in times.iter().enumerate() {
        while times[first] + 1000 <= *time {
            first += 1;
        }
        worst = worst.max(last + 1 - first);
    }
    worst
}

/// The promise that a reload costs nobody anything: 100,000 requests at 2,000/s,
/// a reload every 100 ms, no failed request, no limit exceeded.
#[test]
fn a_storm_of_reloads_fails_no_request_and_exceeds_no_limit() {
    let upstream = Script::answering(|_| upstream::ok("done"));
    let mut gateway = Gateway::start(&text(&upstream, 0));
    let web = gateway.web();
    let begun = Instant::now();
    let next = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..16)
        .map(|_| {
            let next = Arc::clone(&next);
            std::thread::spawn(move || client(web, begun, &next))
        })
        .collect();
    let mut edits = 0;
    while next.load(Ordering::SeqCst) < REQUESTS {
        edits += 1;
        replace(&gateway.config, &text(&upstream, edits));
        // A signal too: edits this close together are one to the watcher.
        gateway.signal("HUP");
        std::thread::park_timeout(Duration::from_millis(100));
    }
    let rejected: usize =
        clients.into_iter().map(|client| client.join().expect("no request failed")).sum();
    let reloads = common::metrics(&gateway, "flowgate_config_reloads_total");
    let taken: f64 = reloads.iter().filter(|(key, _)| key.contains("ok")).map(|(_, n)| n).sum();
    // Some 500 on a quiet machine; a busy one begins fewer, and may take two at once.
    assert!(taken >= 50.0, "{taken} of {edits} edits were taken");
    // Its end writes the last lines of the access log.
    gateway.signal("TERM");
    gateway.wait();
    let arrivals = arrivals(&gateway);
    let times: Vec<u64> =
        arrivals.iter().filter(|arrival| arrival.1).map(|arrival| arrival.0).collect();
    assert_eq!(times.len() + rejected, REQUESTS / 2);
    // A thread may be held up between its look at the clock and the decision: 10 ms of slack.
    let worst = worst_second(&times);
    assert!(worst <= MOST as usize + 5, "{worst} in the worst second");
    let least = least(&arrivals) * 9 / 10;
    assert!(times.len() >= least, "{} of at least {least} were admitted", times.len());
}

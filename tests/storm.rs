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
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

const RATE: u64 = 2_000;
const REQUESTS: usize = 100_000;
const LIMIT: u32 = 500;
const BURST: u32 = 50;

/// A configuration that differs from every other version.
fn text(upstream: &Script, version: usize) -> String {
    let routes = format!(
        "  - name: limited\n    match: {{ path: /limited }}\n    upstream: up\n    \
         response_headers: {{ set: {{ X-Version: v{version} }} }}\n    \
         flow: [{{ name: r, algorithm: token_bucket, limit: {LIMIT}/1s, burst: {BURST} }}]\n  \
         - {{ name: rest, match: {{ path_prefix: / }}, upstream: up }}\n"
    );
    yaml(upstream.address, &routes)
}

/// Takes numbers from `next` until none is left and sends each request when it is
/// due, every other one to the limited route. Returns how many were refused.
fn client(web: SocketAddr, begun: Instant, next: &AtomicUsize) -> usize {
    let mut client = Client::new(web);
    let mut refused = 0;
    loop {
        let number = next.fetch_add(1, Ordering::SeqCst);
        if number >= REQUESTS {
            return refused;
        }
        let due = begun + Duration::from_micros(number as u64 * 1_000_000 / RATE);
        while let Some(left) = due.checked_duration_since(Instant::now()) {
            std::thread::park_timeout(left);
        }
        let limited = number.is_multiple_of(2);
        let answer = client.get(if limited { "/limited" } else { "/free" });
        match answer.status {
            200 => assert_eq!(answer.text(), "done"),
            429 if limited => refused += 1,
            status => panic!("request {number} got {status}"),
        }
    }
}

/// The promise that a reload costs nobody anything: 100,000 requests at 2,000/s,
/// a reload every 100 ms, no failed request, no limit exceeded.
#[test]
fn a_storm_of_reloads_fails_no_request_and_exceeds_no_limit() {
    let arrivals = Arc::new(Mutex::new(Vec::<Instant>::with_capacity(REQUESTS)));
    let noted = Arc::clone(&arrivals);
    let upstream = Script::answering(move |request| {
        if request.path() == "/limited" {
            noted.lock().unwrap().push(Instant::now());
        }
        upstream::ok("done")
    });
    let gateway = Gateway::start(&text(&upstream, 0));
    let (web, begun, next) = (gateway.web(), Instant::now(), Arc::new(AtomicUsize::new(0)));
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
    let refused: usize =
        clients.into_iter().map(|client| client.join().expect("no request failed")).sum();
    let arrivals = arrivals.lock().unwrap();
    assert_eq!(arrivals.len() + refused, REQUESTS / 2);
    let span = arrivals[arrivals.len() - 1].duration_since(arrivals[0]);
    // A request may reach the upstream a little later than it was admitted.
    let allowed = u128::from(BURST + 5) + span.as_millis() * u128::from(LIMIT) / 1000;
    assert!(arrivals.len() as u128 <= allowed, "{} of {allowed}", arrivals.len());
    let reloads = common::metrics(&gateway, "flowgate_config_reloads_total");
    let taken: f64 = reloads.iter().filter(|(key, _)| key.contains("ok")).map(|(_, n)| n).sum();
    assert!(taken >= 400.0, "{taken} of {edits} edits were taken");
}

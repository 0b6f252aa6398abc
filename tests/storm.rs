//! A storm of reloads under load. It has a binary of its own, so that nothing runs
//! beside it.

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
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// The promise that a reload costs nobody anything: 100,000 requests at 2,000/s,
/// a reload every 100 ms, no failed request, no limit exceeded.
#[test]
fn a_storm_of_reloads_fails_no_request_and_exceeds_no_limit() {
    const RATE: u64 = 2_000;
    const REQUESTS: usize = 100_000;
    const LIMIT: usize = 500;
    let admitted = Arc::new(std::sync::Mutex::new(Vec::<Instant>::with_capacity(REQUESTS)));
    let limited = Arc::clone(&admitted);
    let upstream = Script::answering(move |request| {
        if request.path() == "/limited" {
            limited.lock().expect("no panic").push(Instant::now());
        }
        upstream::ok("done")
    });
    let text = |i: usize| {
        yaml(
            upstream.address,
            &format!(
                "  - name: limited\n    match: {{ path: /limited }}\n    upstream: up\n    \
                 response_headers: {{ set: {{ X-Version: v{i} }} }}\n    \
                 flow: [{{ name: r, algorithm: token_bucket, limit: {LIMIT}/1s, burst: 50 }}]\n  \
                 - {{ name: rest, match: {{ path_prefix: / }}, upstream: up }}\n"
            ),
        )
    };
    let gateway = Gateway::start(&text(0));
    let web = gateway.web();
    let begun = Instant::now();
    let next = Arc::new(AtomicUsize::new(0));
    let clients: Vec<_> = (0..16)
        .map(|_| {
            let next = Arc::clone(&next);
            std::thread::spawn(move || {
                let mut client = Client::new(web);
                let mut refused = 0_usize;
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    if number >= REQUESTS {
                        return refused;
                    }
                    let due = begun + Duration::from_micros(number as u64 * 1_000_000 / RATE);
                    while let Some(left) = due.checked_duration_since(Instant::now()) {
                        std::thread::park_timeout(left);
                    }
                    let limited = number % 2 == 0;
                    let answer = client.get(if limited { "/limited" } else { "/free" });
                    match answer.status {
                        200 => assert_eq!(answer.text(), "done"),
                        429 if limited => refused += 1,
                        status => panic!("request {number} got {status}"),
                    }
                }
            })
        })
        .collect();
    let mut reloads = 0;
    while next.load(Ordering::SeqCst) < REQUESTS {
        reloads += 1;
        replace(&gateway.config, &text(reloads));
        std::thread::park_timeout(Duration::from_millis(100));
    }
    let refused: usize =
        clients.into_iter().map(|client| client.join().expect("no request failed")).sum();
    let admitted = admitted.lock().expect("no panic");
    assert_eq!(admitted.len() + refused, REQUESTS / 2);
    let span = admitted.last().expect("some").duration_since(admitted[0]).as_secs_f64();
    let allowed = 50.0 + LIMIT as f64 * span;
    // A request may reach the upstream a little later than it was admitted.
    assert!(admitted.len() as f64 <= allowed + 5.0, "{} of {allowed}", admitted.len());
    let taken = crate::common::metrics(&gateway, "flowgate_config_reloads_total");
    let taken: f64 = taken.iter().filter(|(key, _)| key.contains("ok")).map(|(_, n)| n).sum();
    assert!(taken >= 50.0, "{taken} of {reloads} edits were taken");
}

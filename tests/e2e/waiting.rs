//! Requests that wait for their turn, and services that are asked slowly at first, as a
//! client sees it.

use crate::{
    common::{
        Gateway,
        http::{self, Client},
        upstream::{self, Script},
        yaml,
    },
    throttling::{count, route},
};
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

#[test]
fn paced_requests_start_evenly() {
    let starts = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&starts);
    let upstream = Script::answering(move |_| {
        noted.lock().expect("no panic").push(Instant::now());
        upstream::ok("done")
    });
    let gateway = Gateway::start(&yaml(
        upstream.address,
        &route("    pacing: { rate: 50/1s, max_wait: 10s, max_queue: 100 }"),
    ));
    let web = gateway.web();
    let began = Instant::now();
    let clients: Vec<_> =
        (0..20).map(|_| std::thread::spawn(move || http::get(web, "/").status)).collect();
    for client in clients {
        assert_eq!(client.join().expect("no panic"), 200);
    }
    // A busy machine notes them late, and never early.
    for (at, start) in (0..).zip(&*starts.lock().expect("no panic")) {
        let took = start.duration_since(began);
        assert!(took >= Duration::from_millis(20) * at, "{at} intervals of 20 ms took {took:?}");
    }
}

#[test]
fn a_full_queue_is_a_503_with_a_time_to_come_back() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(
        upstream.address,
        &route("    pacing: { rate: 1/1m, max_wait: 500ms, max_queue: 10 }"),
    ));
    assert_eq!(http::get(gateway.web(), "/").status, 200);
    let rejected = http::get(gateway.web(), "/");
    assert_eq!(rejected.status, 503);
    assert_eq!(rejected.header("retry-after"), Some("60"));
}

#[test]
fn each_key_has_a_pace_of_its_own() {
    let upstream = upstream::echo();
    let rules = "    flow: [{ name: even, algorithm: pacing, limit: 1/1h, max_wait: 0s, \
                 key: \"header:x-id\", except: { path_prefix: /free } }]";
    let gateway = Gateway::start(&yaml(upstream.address, &route(rules)));
    let mut client = Client::new(gateway.web());
    let mut ask = |path: &str, id: &str| client.request("GET", path, &[("X-Id", id)]);
    for id in ["a", "b"] {
        assert_eq!(ask("/", id).status, 200);
        let rejected = ask("/", id);
        assert_eq!((rejected.status, rejected.header("retry-after")), (503, Some("3600")));
        assert_eq!(ask("/free", id).status, 200);
    }
}

#[test]
fn a_request_with_priority_waits_for_the_next_window_and_is_counted_there() {
    let upstream = upstream::echo();
    let rules = "    flow: [{ name: r, algorithm: fixed_window, align: first_request, limit: 2/10s, \
                 priority: { header: x-priority, equals: high, max_wait: 10s } }]";
    let gateway = Gateway::start(&yaml(upstream.address, &route(rules)));
    let mut client = Client::new(gateway.web());
    let mut ask = |priority: &str| client.request("GET", "/", &[("X-Priority", priority)]).status;
    let begin = Instant::now();
    assert_eq!([ask("low"), ask("low"), ask("low")], [200, 200, 429]);
    assert_eq!(ask("high"), 200);
    let waited = begin.elapsed();
    assert!(waited >= Duration::from_secs(10), "the window ends after {waited:?}");
    assert_eq!([ask("low"), ask("low")], [200, 429], "one of two is lent");
}

#[test]
fn a_cold_service_is_asked_as_seldom_as_it_may_be() {
    let upstream = upstream::echo();
    let start = |warm_up: &str| {
        let rule = format!("{{ name: r, limit: 40/1s, burst: 40{warm_up} }}");
        Gateway::start(&yaml(upstream.address, &route(&format!("    flow: [{rule}]"))))
    };
    let warm = start("");
    assert_eq!(count(&http::statuses(warm.web(), "/", 40), 200), 40);
    let cold = start(", warm_up: { period: 1h, cold_factor: 4 }");
    let web = cold.web();
    let begin = Instant::now();
    let statuses = http::statuses(web, "/", 40);
    // One, and one in each cold interval of 100 ms, less what an hour's curve rises.
    let most = 1 + begin.elapsed().as_millis() / 99;
    let passed = count(&statuses, 200);
    assert!((1..=most).contains(&(passed as u128)), "{passed} of at most {most}");
    assert_eq!((statuses[0], statuses.len()), (200, 40));
}

#[test]
fn a_cold_service_is_paced_by_the_curve() {
    let starts = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&starts);
    let upstream = Script::answering(move |_| {
        noted.lock().expect("no panic").push(Instant::now());
        upstream::ok("done")
    });
    let gateway = Gateway::start(&yaml(
        upstream.address,
        &route(
            "    pacing: { rate: 20/1s, max_wait: 20s, warm_up: { period: 1h, cold_factor: 10 } }",
        ),
    ));
    assert_eq!(http::statuses(gateway.web(), "/", 3), [200; 3]);
    let starts = starts.lock().expect("no panic");
    let took = starts[2].duration_since(starts[0]);
    assert!(took >= Duration::from_millis(900), "2 intervals of 500 ms took {took:?}");
}

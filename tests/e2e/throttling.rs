//! Throttling as a client sees it.

use crate::common::{
    Gateway, curl, eventually,
    http::{self, Client, head},
    metrics,
    upstream::{self, Script},
    yaml,
};
use serde_json::Value;
use std::{
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

pub(crate) fn route(rules: &str) -> String {
    format!("  - name: all\n    match: {{ path_prefix: / }}\n    upstream: up\n{rules}")
}

pub(crate) fn count(statuses: &[u16], status: u16) -> usize {
    statuses.iter().filter(|&&seen| seen == status).count()
}

#[test]
fn a_burst_passes_and_what_is_over_is_rejected() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(
        upstream.address,
        &route("    flow: [{ name: total, algorithm: token_bucket, limit: 5/1h, burst: 5 }]"),
    ));
    let statuses = http::statuses(gateway.web(), "/", 30);
    assert_eq!((count(&statuses, 200), count(&statuses, 429)), (5, 25));
    assert!(statuses[..5].iter().all(|&status| status == 200));
}

#[test]
fn every_algorithm_of_a_rate_admits_its_limit() {
    let upstream = upstream::echo();
    for rule in [
        "algorithm: token_bucket, limit: 7/1h, burst: 7",
        "algorithm: sliding_window, limit: 7/1h",
        "algorithm: sliding_window, limit: 7/1h, strict: true",
        "algorithm: fixed_window, limit: 7/1000h",
        "algorithm: fixed_window, limit: 7/1h, align: first_request",
    ] {
        let gateway = Gateway::start(&yaml(
            upstream.address,
            &route(&format!("    flow: [{{ name: r, {rule} }}]")),
        ));
        let statuses = http::statuses(gateway.web(), "/", 20);
        assert_eq!(count(&statuses, 200), 7, "{rule}");
    }
}

#[test]
fn an_override_gives_its_requests_numbers_of_their_own() {
    let upstream = upstream::echo();
    let rule = |overrides: &str| {
        let numbers = "name: r, algorithm: fixed_window, align: first_request, limit: 2/1h";
        yaml(upstream.address, &route(&format!("    flow: [{{ {numbers}{overrides} }}]")))
    };
    let gold = ", overrides: [{ when: { \"header:x-tenant\": gold }, limit: 5/1h }]";
    let gateway = Gateway::start(&rule(gold));
    let mut client = Client::new(gateway.web());
    for (tenant, limit) in [("gold", 5), ("iron", 2)] {
        for at in 0..7 {
            let answer = client.request("GET", "/", &[("X-Tenant", tenant)]);
            assert_eq!(answer.status, if at < limit { 200 } else { 429 }, "{tenant} {at}");
            let policy = format!("\"r\";q={limit};w=3600");
            assert_eq!(answer.header("ratelimit-policy"), Some(&*policy), "{tenant} {at}");
        }
    }
    let routes = http::ask(gateway.address("admin"), "/routes").json();
    let rules = routes["routes"][0]["rules"].as_array().expect("a list");
    let seen = |key: &str| rules.iter().map(|rule| rule[key].to_string()).collect::<Vec<_>>();
    assert_eq!(seen("name"), [r#""r""#, r#""r""#]);
    assert_eq!(seen("when"), [r#""header:x-tenant=gold""#, "null"]);
    assert_eq!(
        (seen("passed"), seen("rejected")),
        (vec!["5".into(), "2".into()], vec!["2".into(), "5".into()])
    );
    let counted = |decision: &str| {
        let decisions = metrics(&gateway, "flowgate_flow_decisions_total");
        let decision = format!("decision=\"{decision}\"");
        let of: Vec<f64> =
            decisions.iter().filter(|(key, _)| key.contains(&decision)).map(|(_, n)| *n).collect();
        of.iter().sum::<f64>()
    };
    assert_eq!((counted("passed"), counted("rejected")), (7.0, 7.0));
    gateway.edit(&rule(""));
    assert_eq!(client.request("GET", "/", &[("X-Tenant", "gold")]).status, 429, "as the others");
    assert_eq!((counted("passed"), counted("rejected")), (7.0, 8.0), "no counter sinks");
}

#[test]
fn a_rejection_gives_the_client_what_it_needs() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(
        upstream.address,
        &route("    flow: [{ name: per-client, limit: 2/10m, burst: 2, key: client_ip }]"),
    ));
    let first = http::get(gateway.web(), "/");
    assert_eq!(first.header("ratelimit-policy"), Some("\"per-client\";q=2;w=600"));
    assert!(
        first.header("ratelimit").is_some_and(|value| value.starts_with("\"per-client\";r=1;t="))
    );
    http::get(gateway.web(), "/");
    let rejected = http::get(gateway.web(), "/");
    assert_eq!(rejected.status, 429);
    assert_eq!(rejected.header("content-type"), Some("application/problem+json"));
    assert!(
        rejected
            .header("ratelimit")
            .is_some_and(|value| value.starts_with("\"per-client\";r=0;t="))
    );
    let wait: u64 = rejected.header("retry-after").expect("there").parse().expect("seconds");
    assert!((1..=300).contains(&wait), "{wait}");
    let problem = rejected.json();
    assert_eq!(problem["status"], 429);
    assert!(problem["type"].as_str().is_some_and(|kind| kind.ends_with("quota-exceeded")));
    assert_eq!(problem["violated-policies"][0], "per-client");
    assert_eq!(problem["reason"], "rate");
}

#[test]
fn a_client_that_waits_as_long_as_the_answer_says_is_admitted() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(
        upstream.address,
        &route("    flow: [{ name: one, limit: 1/1s, burst: 1 }]"),
    ));
    // A busy machine may take longer than the interval for two requests.
    let rejected = eventually("a rejection", || {
        Some(http::get(gateway.web(), "/")).filter(|answer| answer.status == 429)
    });
    let wait: u64 = rejected.header("retry-after").expect("there").parse().expect("seconds");
    let until = Instant::now() + Duration::from_secs(wait);
    eventually("the time has passed", || (Instant::now() >= until).then_some(()));
    assert_eq!(http::get(gateway.web(), "/").status, 200);
}

#[test]
fn of_several_rules_that_reject_the_one_that_does_for_longest_says_when_to_come_back() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(
        upstream.address,
        &route(
            "    flow:
      - { name: short, algorithm: sliding_log, limit: 5/2s, cost: 5 }
      - { name: idle, limit: 100/1s }
      - { name: long, algorithm: fixed_window, align: first_request, limit: 1/3s }",
        ),
    ));
    let wait_for = |seconds| {
        let until = Instant::now() + Duration::from_secs(seconds);
        eventually("the time has passed", || (Instant::now() >= until).then_some(()));
    };
    // On a busy machine the second request of a pair may come late: then all windows end first.
    let pair = || {
        let began = Instant::now();
        assert_eq!(http::get(gateway.web(), "/").status, 200);
        let rejected = http::get(gateway.web(), "/");
        let is_quick = began.elapsed() < Duration::from_secs(1);
        if !is_quick {
            wait_for(3);
        }
        Some(rejected).filter(|_| is_quick)
    };
    for _ in 0..2 {
        let rejected = eventually("a quick pair", pair);
        assert_eq!(rejected.status, 429);
        let wait: u64 = rejected.header("retry-after").expect("there").parse().expect("seconds");
        let quota = format!("\"long\";r=0;t={wait}");
        assert!((2..=3).contains(&wait));
        assert_eq!(rejected.header("ratelimit"), Some(&*quota));
        let problem = rejected.json();
        assert_eq!(problem["violated-policies"], serde_json::json!(["long", "short"]));
        assert!(problem["retry-after-ms"].as_u64().is_some_and(|wait| wait > 1_000), "{problem}");
        wait_for(wait);
    }
    assert_eq!(http::get(gateway.web(), "/").status, 200);
}

#[test]
fn grpc_clients_get_a_grpc_status() {
    let upstream = upstream::echo();
    let rules = "    flow: [{ name: one, limit: 1/1h, burst: 1 }]";
    let gateway = Gateway::start(&yaml(upstream.address, &route(rules)));
    let call =
        || Client::new(gateway.web()).request("GET", "/", &[("Content-Type", "application/grpc")]);
    assert_eq!(call().header("grpc-status"), None);
    let rejected = call();
    assert_eq!((rejected.status, rejected.header("grpc-status")), (200, Some("8")));
    assert!(rejected.body.is_empty());
}

#[test]
fn a_grpc_call_that_is_too_long_gets_the_status_of_a_limit() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(upstream.address, &route("    body_limit: 10")));
    let mut client = Client::new(gateway.web());
    client.send(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\nContent-Length: 11\r\n\r\nhello world",
    );
    let answer = client.read("POST");
    assert_eq!((answer.status, answer.header("grpc-status")), (200, Some("8")));
}

#[test]
fn a_custom_answer_replaces_ours() {
    let upstream = upstream::echo();
    let rules = "    flow: [{ name: none, limit: 1/1h, burst: 1 }]\n    \
                 reject: { status: 420, body: '{\"error\":\"slow down\"}' }";
    let gateway = Gateway::start(&yaml(upstream.address, &route(rules)));
    http::get(gateway.web(), "/");
    let rejected = http::get(gateway.web(), "/");
    assert_eq!((rejected.status, rejected.text().as_str()), (420, "{\"error\":\"slow down\"}"));
    assert_eq!(rejected.header("content-type"), Some("application/json"));
}

#[test]
fn legacy_headers_come_on_demand_and_none_if_switched_off() {
    let upstream = upstream::echo();
    let rules = route("    flow: [{ name: r, limit: 9/1h, burst: 9 }]");
    let legacy = Gateway::start(&format!("headers: legacy\n{}", yaml(upstream.address, &rules)));
    let answer = http::get(legacy.web(), "/");
    assert_eq!(answer.header("x-ratelimit-limit"), Some("9"));
    assert_eq!(answer.header("x-ratelimit-remaining"), Some("8"));
    assert!(answer.header("ratelimit").is_some());
    let off = Gateway::start(&format!("headers: off\n{}", yaml(upstream.address, &rules)));
    assert_eq!(http::get(off.web(), "/").header("ratelimit"), None);
}

#[test]
fn keys_are_counted_apart() {
    let upstream = upstream::echo();
    let rules =
        "    flow: [{ name: tenant, limit: 2/1h, burst: 2, key: [\"header:x-tenant\", method] }]";
    let gateway = Gateway::start(&yaml(upstream.address, &route(rules)));
    let mut client = Client::new(gateway.web());
    let mut ask =
        |method: &str, tenant: &str| client.request(method, "/", &[("X-Tenant", tenant)]).status;
    for tenant in ["a", "b"] {
        assert_eq!([ask("GET", tenant), ask("GET", tenant), ask("GET", tenant)], [200, 200, 429]);
    }
    assert_eq!(ask("DELETE", "a"), 200, "another method is another key");
    assert_eq!(ask("GET", " a\t"), 429, "blanks around a value are no new key");
}

#[test]
fn a_spoofed_address_is_no_new_client() {
    let upstream = upstream::echo();
    let rules = route("    flow: [{ name: r, limit: 1/1h, burst: 1, key: client_ip }]");
    let gateway = Gateway::start(&yaml(upstream.address, &rules));
    let mut client = Client::new(gateway.web());
    assert_eq!(client.request("GET", "/", &[("X-Forwarded-For", "1.1.1.1")]).status, 200);
    assert_eq!(client.request("GET", "/", &[("X-Forwarded-For", "2.2.2.2")]).status, 429);
    let trusting = Gateway::start(&format!(
        "trusted_proxies: [127.0.0.1]\n{}",
        yaml(upstream.address, &rules)
    ));
    let mut client = Client::new(trusting.web());
    assert_eq!(client.request("GET", "/", &[("X-Forwarded-For", "9.9.9.9, 1.1.1.1")]).status, 200);
    assert_eq!(client.request("GET", "/", &[("X-Forwarded-For", "8.8.8.8, 1.1.1.1")]).status, 429);
    assert_eq!(client.request("GET", "/", &[("X-Forwarded-For", "1.1.1.1, 2.2.2.2")]).status, 200);
    let v6 = |last: &str| format!("2001:db8:1:2::{last}");
    assert_eq!(client.request("GET", "/", &[("X-Forwarded-For", &v6("1"))]).status, 200);
    assert_eq!(
        client.request("GET", "/", &[("X-Forwarded-For", &v6("2"))]).status,
        429,
        "one /64 is one client"
    );
}

#[test]
fn cost_dry_run_and_except_do_as_they_say() {
    let upstream = upstream::echo();
    let rules = "    flow:\n      \
                 - { name: costly, limit: 10/1h, burst: 10, cost: { POST: 5 }, except: { client_ip: [10.9.8.0/24] } }\n      \
                 - { name: trial, limit: 1/1h, burst: 1, dry_run: true }";
    let gateway = Gateway::start(&format!(
        "trusted_proxies: [127.0.0.1]\naccess_log: access.jsonl\n{}",
        yaml(upstream.address, &route(rules))
    ));
    let mut client = Client::new(gateway.web());
    assert_eq!(client.request("POST", "/", &[("Content-Length", "0")]).status, 200);
    assert_eq!(client.request("POST", "/", &[("Content-Length", "0")]).status, 200);
    assert_eq!(client.get("/").status, 429);
    assert_eq!(client.request("GET", "/", &[("X-Forwarded-For", "10.9.8.7")]).status, 200);
    let decisions = metrics(&gateway, "flowgate_flow_decisions_total");
    let of = |part: &str| {
        decisions.iter().filter(|(key, _)| key.contains(part)).map(|(_, n)| n).sum::<f64>()
    };
    assert!(of("rule=\"trial\"") > 0.0, "{decisions:?}");
    let dry_run = metrics(&gateway, "flowgate_flow_dry_run_rejections_total");
    assert!(
        dry_run
            .iter()
            .any(|(key, &n)| key.contains("trial") && key.contains("\"rate\"") && n > 0.0),
        "{dry_run:?}"
    );
    assert!(!dry_run.keys().any(|key| key.contains("costly")), "{dry_run:?}");
    let lines = eventually("all four are logged", || {
        let log = std::fs::read_to_string(gateway.dir.path().join("access.jsonl")).ok()?;
        let lines: Vec<Value> =
            log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        (lines.len() == 4).then_some(lines)
    });
    let named: Vec<_> = lines
        .iter()
        .map(|line| (line["flow"]["rule"].as_str(), line["flow"]["dry_run"].as_str()))
        .collect();
    let costly = Some("costly");
    let trial = Some("trial");
    assert_eq!(named, [(costly, None), (costly, trial), (costly, trial), (None, trial)]);
}

#[test]
fn no_more_than_the_limit_are_in_flight() {
    let most = Arc::new(Mutex::new((0_i32, 0_i32)));
    let counted = Arc::clone(&most);
    let upstream = Script::answering(move |_| {
        {
            let mut most = counted.lock().expect("no panic");
            most.0 += 1;
            most.1 = most.1.max(most.0);
        }
        for _ in 0..10 {
            crate::common::pause();
        }
        counted.lock().expect("no panic").0 -= 1;
        upstream::ok("done")
    });
    let gateway = Gateway::start(&yaml(
        upstream.address,
        &route("    flow: [{ name: four, concurrency: 4 }]"),
    ));
    let barrier = Arc::new(Barrier::new(16));
    let web = gateway.web();
    let clients: Vec<_> = (0..16)
        .map(|_| {
            let barrier = Arc::clone(&barrier);
            std::thread::spawn(move || {
                barrier.wait();
                http::statuses(web, "/", 10)
            })
        })
        .collect();
    let statuses: Vec<u16> =
        clients.into_iter().flat_map(|client| client.join().expect("no panic")).collect();
    assert_eq!(count(&statuses, 200) + count(&statuses, 503), 160);
    assert!(count(&statuses, 503) > 0 && count(&statuses, 200) > 0);
    assert!(most.lock().expect("no panic").1 <= 4);
}

#[test]
fn a_rejected_request_costs_the_other_rules_nothing() {
    let upstream = upstream::echo();
    let rules = "    flow:\n      - { name: wide, limit: 10/1h, burst: 10 }\n      \
                 - { name: narrow, limit: 1/1h, burst: 1, key: \"header:x-id\" }";
    let gateway = Gateway::start(&yaml(upstream.address, &route(rules)));
    let mut client = Client::new(gateway.web());
    let mut ask = |id: &str| client.request("GET", "/", &[("X-Id", id)]).status;
    assert_eq!(ask("a"), 200);
    for _ in 0..20 {
        assert_eq!(ask("a"), 429);
    }
    let passed = (0..20).filter(|i| ask(&i.to_string()) == 200).count();
    assert_eq!(passed, 9, "twenty rejections by one rule used nothing of the other");
}

#[test]
fn explain_headers_name_the_rule() {
    let upstream = upstream::echo();
    let rules = route("    flow: [{ name: narrow, limit: 1/1h, burst: 1 }]");
    let gateway =
        Gateway::start(&format!("explain_headers: true\n{}", yaml(upstream.address, &rules)));
    http::get(gateway.web(), "/");
    assert_eq!(http::get(gateway.web(), "/").header("x-flowgate-rule"), Some("narrow"));
}

#[test]
fn curl_watches_throttling_happen() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(
        upstream.address,
        &route("    flow: [{ name: r, limit: 10/1h, burst: 10 }]"),
    ));
    let url = format!("http://{}/x", gateway.web());
    let codes: String =
        (0..30).map(|_| curl(&["-o", "/dev/null", "-w", "%{http_code} ", &url])).collect();
    assert_eq!(codes, "200 ".repeat(10) + &"429 ".repeat(20));
}

#[test]
fn a_body_is_not_read_before_the_request_is_admitted() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(
        upstream.address,
        &route("    flow: [{ name: r, limit: 1/1h, burst: 1 }]"),
    ));
    http::get(gateway.web(), "/");
    let mut client = Client::new(gateway.web());
    client.send(head("POST", "/", &[("Content-Length", "1000000000")]));
    assert_eq!(client.read("POST").status, 429);
}

#[test]
fn a_breaker_opens_on_errors_and_closes_when_its_probe_is_answered() {
    let ill = Arc::new(AtomicBool::new(true));
    let is_ill = Arc::clone(&ill);
    let upstream = Script::answering(move |_| {
        if is_ill.load(SeqCst) {
            b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n".to_vec()
        } else {
            upstream::ok("well")
        }
    });
    let gateway = Gateway::start(&yaml(
        upstream.address,
        &route("    breaker: { errors: 3, open_for: 700ms, probes: 1 }"),
    ));
    assert_eq!(http::statuses(gateway.web(), "/", 3), [500; 3]);
    gateway.wait_log("breaker opened: of 3 answers 3 failed");
    let rejected = http::get(gateway.web(), "/");
    assert_eq!(rejected.status, 503);
    assert_eq!(rejected.header("retry-after"), Some("1"));
    assert_eq!(metrics(&gateway, "flowgate_breaker_state").into_values().sum::<f64>(), 2.0);
    ill.store(false, SeqCst);
    eventually("the probe", || (http::get(gateway.web(), "/").status == 200).then_some(()));
    gateway.wait_log("breaker closed");
    assert_eq!(http::statuses(gateway.web(), "/", 5), [200; 5]);
}

#[test]
fn a_client_without_a_key_gets_no_quota_of_its_rule() {
    let upstream = upstream::echo();
    let rule = |key: &str| {
        format!(
            "{{ name: by-{key}, limit: 5/1h, burst: 5, key: \"header:{key}\", on_missing_key: reject }}"
        )
    };
    let routes = format!(
        "  - {{ name: one, match: {{ path: /one }}, upstream: up, flow: [{a}] }}\n\
         \x20 - {{ name: more, match: {{ path: /more }}, upstream: up, \
         flow: [{a}, {b}, {{ name: all, limit: 9/1h, burst: 9 }}] }}\n",
        a = rule("a"),
        b = rule("b"),
    );
    let gateway = Gateway::start(&yaml(upstream.address, &routes));
    let one = http::get(gateway.web(), "/one");
    assert_eq!((one.status, one.header("ratelimit")), (400, None));
    assert_eq!(one.json()["detail"], "the request lacks the header field a");
    assert_eq!(one.header("retry-after"), None, "it would be rejected for ever");
    let more = http::get(gateway.web(), "/more");
    assert_eq!(more.status, 400);
    assert_eq!(more.header("ratelimit"), None, "what all share is no reason to come back");
    assert_eq!(more.json()["violated-policies"], serde_json::json!(["by-a", "by-b"]));
    let keyed = Client::new(gateway.web()).request("GET", "/one", &[("a", "x")]);
    let quota = keyed.header("ratelimit").expect("a client with a key has one");
    assert!(quota.starts_with("\"by-a\";r=4;"), "{quota}");
}

#[test]
fn a_place_is_free_when_its_client_sees_the_end_of_the_response() {
    const REQUESTS: usize = 1000;
    let upstream = upstream::echo();
    let route = route("    flow: [{ name: one, concurrency: 1 }]");
    let gateway = Gateway::start(&yaml(upstream.address, &route));
    let web = gateway.web();
    for number in 0..REQUESTS {
        // Connections lead to different workers.
        assert_eq!(http::get(web, "/").status, 200, "request {number}");
    }
}

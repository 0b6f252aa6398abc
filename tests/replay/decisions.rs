//! `--output decisions`.

use crate::{config, one_route, replayed};
use core::fmt::Write as _;
use flowgate::replay::ReplayError;
use serde_json::{Value, json};

/// Replays events and returns the decisions.
fn decided(config: &str, events: &str) -> Vec<Value> {
    let (out, complaints) = replayed(config, events, |_| {}).expect("it is replayed");
    assert_eq!(complaints, "");
    out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Returns each decision's word, or the reason's of those that were rejected.
fn words(config: &str, events: &str) -> Vec<String> {
    let all = decided(config, events);
    all.iter().map(|line| word(line).unwrap_or("none").to_owned()).collect()
}

fn word(line: &Value) -> Option<&str> {
    line["reason"].as_str().or_else(|| line["decision"].as_str())
}

#[test]
fn a_line_has_the_rule_and_the_exact_times() {
    let config =
        one_route("    flow: [{ name: burst, algorithm: token_bucket, limit: 3/1ms, burst: 1 }]");
    let lines = decided(&config, "{\"t\":12.5}\n{\"t\":12.5}\n{\"t\":12.833334}\n");
    let line = |i: u64, t: f64, decision: &str, retry_after_ms: Option<f64>| {
        let reason = (decision == "rejected").then_some("rate");
        json!({
            "i": i, "t": t, "decision": decision, "reason": reason, "rule": "burst", "limit": 1, "used": 1,
            "wait_ms": 0.0, "retry_after_ms": retry_after_ms, "route": "all",
        })
    };
    assert_eq!(lines[0], line(0, 12.5, "passed", None));
    assert_eq!(lines[1], line(1, 12.5, "rejected", Some(0.333_334)));
    assert_eq!(lines[2], line(2, 12.833_334, "passed", None));
}

#[test]
fn a_request_with_a_key_twice_is_rejected_for_it() {
    let config = one_route("    flow: [{ name: r, limit: 9/1s, key: 'query:id' }]");
    let events = "{\"t\":0,\"path\":\"/?id=1\"}\n{\"t\":1,\"path\":\"/?id=2&%69d=1\"}\n";
    assert_eq!(words(&config, events), ["passed", "key"]);
    let first = config.replace("'query:id'", "'query:id', on_duplicate_key: first");
    assert_eq!(words(&first, events), ["passed", "passed"]);
}

#[test]
fn a_client_that_exceeds_is_banned_as_by_the_gateway() {
    let config = one_route("    flow: [{ name: r, limit: 2/2s, reject_for: 10s }]");
    let events = [0, 0, 0, 5_000, 10_000].map(|t| format!("{{\"t\":{t}}}\n")).concat();
    let lines = decided(&config, &events);
    let found: Vec<_> = lines.iter().map(|line| (word(line), &line["retry_after_ms"])).collect();
    let none = Value::Null;
    let whole = json!(10_000.0);
    let half = json!(5_000.0);
    let expected = [("passed", &none), ("passed", &none), ("rate", &whole), ("banned", &half)];
    assert_eq!(found[..4], expected.map(|(word, wait)| (Some(word), wait)));
    assert_eq!(found[4], (Some("passed"), &none));
}

#[test]
fn a_breaker_is_a_rule_without_a_number() {
    let config = one_route(
        "    breaker: { errors: 1, min_requests: 1, window: 10s, open_for: 5s }\n    flow: [{ name: r, limit: 9/1s }]",
    );
    let lines = decided(&config, "{\"t\":0,\"duration\":1,\"status\":500}\n{\"t\":2}\n");
    let expected = json!({
        "i": 1, "t": 2, "decision": "rejected", "reason": "breaker", "rule": "breaker", "limit": null, "used": null,
        "wait_ms": 0.0, "retry_after_ms": 4999.0, "route": "all",
    });
    assert_eq!(lines[1], expected);
}

#[test]
fn a_request_that_nobody_ends_ends_when_its_routes_time_is_up() {
    let config = one_route(
        "    timeout: 10s\n    breaker: { errors: 1, min_requests: 1, window: 10s, open_for: 1s, probes: 1 }",
    );
    // A failure opens the breaker; the probe at 2 s gets no response, which is a failure.
    let lines = decided(
        &config,
        "{\"t\":0,\"duration\":0,\"status\":500}\n{\"t\":2000}\n{\"t\":11999.999999}\n{\"t\":12000}\n\
         {\"t\":12001,\"complete\":1,\"status\":200}\n{\"t\":12999}\n{\"t\":13000,\"status\":200}\n\
         {\"t\":22999}\n{\"t\":23000,\"duration\":0}\n{\"t\":23000}\n",
    );
    let decided: Vec<_> =
        lines.iter().map(|line| (word(line), line["retry_after_ms"].as_f64())).collect();
    let [passed, broken] = ["passed", "breaker"].map(Some);
    let expected = [
        (passed, None),
        (passed, None),
        (broken, None),
        (broken, Some(1000.0)),
        (broken, Some(1.0)),
        // The log has a good response to this probe, and not the time of it.
        (passed, None),
        (broken, None),
        (passed, None),
        (passed, None),
    ];
    assert_eq!(decided, expected);

    let config = one_route("    timeout: 10s\n    flow: [{ name: c, concurrency: 1 }]");
    let events = "{\"t\":0}\n{\"t\":9999}\n{\"t\":10000}\n{\"t\":10000}\n";
    assert_eq!(words(&config, events), ["passed", "concurrency", "passed", "concurrency"]);
}

#[test]
fn a_bad_line_does_not_renumber_the_arrivals_behind_it() {
    let config = one_route("    flow: [{ name: c, concurrency: 2 }]");
    // What is no JSON might as well be an end.
    let events = "{\"t\":0}\n{\"t\":\"soon\"}\nnonsense\n{\"t\":1}\n{\"t\":2,\"complete\":2}\n\
        {\"t\":2}\n{\"t\":3,\"complete\":1}\n{\"t\":3}\n";
    let (out, complaints) = replayed(&config, events, |_| {}).unwrap();
    let lines = out.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let decided: Vec<_> = lines.map(|line| (line["i"].clone(), line["decision"].clone())).collect();
    let expected = [(0, "passed"), (2, "passed"), (3, "passed"), (4, "rejected")];
    assert_eq!(decided, expected.map(|(i, decision)| (i.into(), decision.into())));
    assert!(complaints.starts_with("2 of 8 lines"), "{complaints}");
}

#[test]
fn aligned_windows_begin_with_the_first_minute() {
    let config = one_route("    flow: [{ name: w, algorithm: fixed_window, limit: 1/7s }]");
    let events = "{\"t\":6999.999999}\n{\"t\":7000}\n{\"t\":7000.000001}\n{\"t\":14000}\n";
    assert_eq!(words(&config, events), ["passed", "passed", "rate", "passed"]);
}

#[test]
fn a_request_that_ends_at_an_arrival_has_ended_before_it() {
    let config = one_route("    flow: [{ name: c, concurrency: 1 }]");
    let events = "{\"t\":0,\"duration\":10}\n{\"t\":9.999999,\"duration\":5}\n{\"t\":10}\n\
        {\"t\":50}\n{\"t\":60,\"complete\":1}\n{\"t\":60}\n{\"t\":61,\"complete\":2}\n{\"t\":61}\n";
    // The third takes until it is said to end; what was rejected has nothing to end.
    let expected = ["passed", "concurrency", "passed", "concurrency", "concurrency", "passed"];
    assert_eq!(words(&config, events), expected);
}

#[test]
fn a_request_that_waits_takes_its_time_from_its_start() {
    let config = one_route(
        "    flow: [{ name: c, concurrency: 2 }]\n    pacing: { rate: 1/100ms, max_wait: 1s }",
    );
    // The second starts at 100 and ends at 130; the third then finds one place free.
    let events = "{\"t\":0,\"duration\":30}\n{\"t\":0,\"duration\":30}\n{\"t\":29,\"duration\":1}\n\
        {\"t\":129,\"duration\":500}\n{\"t\":129.999999,\"duration\":1}\n{\"t\":130,\"duration\":1}\n";
    let lines = decided(&config, events);
    let decided: Vec<_> =
        lines.iter().map(|line| (word(line).unwrap(), line["wait_ms"].as_f64().unwrap())).collect();
    let expected = [
        ("passed", 0.0),
        ("delayed", 100.0),
        ("concurrency", 0.0),
        ("delayed", 71.0),
        ("concurrency", 0.0),
        ("delayed", 170.0),
    ];
    assert_eq!(decided, expected);
}

#[test]
fn a_request_that_waits_for_a_place_starts_when_another_one_has_ended() {
    let config = one_route(
        "    flow: [{ name: c, concurrency: 1, queue: { max_wait: 50ms, max: 2 } }, { name: l, limit: 5/1h }]",
    );
    // The second runs from 30 to 60, the third to 70, the fifth to 170. So the sixth waits in vain until
    // 115, and the limit gets back what it was charged: the seventh is the fifth that counts.
    let events = "{\"t\":0,\"duration\":30}\n{\"t\":10,\"duration\":30}\n{\"t\":20,\"duration\":10}\n\
        {\"t\":25}\n{\"t\":64,\"duration\":100}\n{\"t\":65,\"duration\":1}\n{\"t\":200,\"duration\":1}\n{\"t\":202,\"duration\":1}\n";
    let lines = decided(&config, events);
    let decided: Vec<_> =
        lines.iter().map(|line| (word(line).unwrap(), line["wait_ms"].as_f64().unwrap())).collect();
    let expected = [
        ("passed", 0.0),
        ("delayed", 20.0),
        ("delayed", 40.0),
        ("queue", 0.0),
        ("delayed", 6.0),
        ("queue", 50.0),
        ("passed", 0.0),
        ("rate", 0.0),
    ];
    assert_eq!(decided, expected);
    assert_eq!(lines[5]["rule"], "c", "in the order of arrival");
}

#[test]
fn a_client_that_leaves_the_queue_gives_its_turn_to_the_next() {
    let config = one_route("    flow: [{ name: c, concurrency: 1, queue: { max_wait: 1s } }]");
    let events = "{\"t\":0,\"duration\":30}\n{\"t\":2}\n{\"t\":3,\"duration\":5}\n\
        {\"t\":20,\"complete\":1}\n";
    let lines = decided(&config, events);
    let waits: Vec<_> = lines.iter().map(|line| line["wait_ms"].as_f64().unwrap()).collect();
    assert_eq!(waits, [0.0, 18.0, 27.0]);
}

#[test]
fn a_plan_gives_its_tenants_more_starts_of_a_queue() {
    let queue = "{ max_wait: 1s, share_by: 'header:x-tenant', \
                 plans: { by: 'header:x-plan', weights: { gold: 3 } } }";
    let config = one_route(&format!("    flow: [{{ name: c, concurrency: 1, queue: {queue} }}]"));
    // The first runs until 10; meanwhile three of each tenant come, those without a plan first.
    let tenants = [("first", "-"), ("free", "-"), ("paying", "gold")];
    let mut events = String::new();
    for (t, (tenant, plan)) in [0, 1, 1, 1, 2, 2, 2].iter().map(|of| tenants[*of]).enumerate() {
        let headers = json!({ "x-tenant": tenant, "x-plan": plan });
        let event = json!({ "t": t, "duration": 10, "headers": headers });
        writeln!(events, "{event}").unwrap();
    }

    let lines = decided(&config, &events);
    let start =
        |at: usize| lines[at]["t"].as_f64().unwrap() + lines[at]["wait_ms"].as_f64().unwrap();
    let mut order: Vec<usize> = (1..7).collect();
    order.sort_by(|one, other| start(*one).total_cmp(&start(*other)));
    let order: Vec<_> = order.iter().map(|at| if *at > 3 { "gold" } else { "free" }).collect();
    assert_eq!(order[..4].iter().filter(|plan| **plan == "gold").count(), 3, "{order:?}");
    assert_eq!(order[4..], ["free", "free"]);
}

#[test]
fn time_that_steps_back_stands_still() {
    let config = one_route("    flow: [{ name: b, limit: 1/10ms, burst: 1 }]");
    let events = "{\"t\":10}\n{\"t\":5}\n{\"t\":20}\n";
    let lines = decided(&config, events);
    assert_eq!(lines[1]["t"], 5);
    assert_eq!(lines[1]["retry_after_ms"], 10.0);
    assert_eq!(lines[2]["decision"], "passed");
}

#[test]
fn a_request_that_is_due_by_the_latest_time_has_ended_though_time_steps_back() {
    let config = one_route("    flow: [{ name: c, concurrency: 1 }]");
    let events = "{\"t\":100,\"duration\":0}\n{\"t\":50,\"duration\":0}\n{\"t\":60,\"duration\":9}\n\
        {\"t\":108,\"duration\":0}\n{\"t\":100,\"duration\":0}\n{\"t\":109,\"duration\":0}\n";
    // The third begins at 100 and takes until 109.
    let expected = ["passed", "passed", "passed", "concurrency", "concurrency", "passed"];
    assert_eq!(words(&config, events), expected);
}

#[test]
fn only_a_rule_delays() {
    let config = one_route("    flow: [{ name: l, algorithm: sliding_log, limit: 9/1s }]");
    let lines = decided(&config, "{\"t\":100000}\n{\"t\":100}\n");
    assert_eq!(lines[1]["decision"], "passed");
    assert_eq!(lines[1]["wait_ms"], 0.0);
}

#[test]
fn a_rule_in_dry_run_is_not_what_let_a_request_pass() {
    let config = one_route(
        "    flow: [{ name: trial, limit: 1/1h, burst: 1, dry_run: true }, { name: real, limit: 9/1h, burst: 9 }]",
    );
    let lines = decided(&config, "{\"t\":0}\n{\"t\":0}\n");
    for (line, used) in lines.iter().zip(1..) {
        assert_eq!((&line["rule"], &line["used"]), (&"real".into(), &used.into()));
    }
}

#[test]
fn keys_costs_and_heads_are_heeded() {
    let config = one_route(
        "    flow: [{ name: k, algorithm: fixed_window, limit: 2/1h, key: [client_ip, \"header:x-a\"], cost: { default: 1, POST: 2 } }]",
    );
    let events = r#"{"t":0,"client_ip":"192.0.2.1","headers":{"X-A":"1"}}
{"t":0,"client_ip":"192.0.2.2","headers":{"X-A":"1"},"method":"POST"}
{"t":0,"client_ip":"192.0.2.1","headers":{"x-a":"1"},"method":"POST"}
{"t":0,"client_ip":"192.0.2.1","headers":{"x-a":"1"}}
{"t":0,"key":"a","cost":2}
{"t":0,"key":"b","cost":1}
{"t":0,"key":"a","cost":1}
{"t":0,"key":"c","cost":3}
"#;
    let expected = ["passed", "passed", "rate", "passed", "passed", "passed", "rate", "rate"];
    assert_eq!(words(&config, events), expected);
}

#[test]
fn what_costs_nothing_is_a_probe_of_the_breaker_like_another() {
    let config = one_route(
        "    flow: [{ name: r, limit: 1/1h, burst: 1 }]\n    breaker: { errors: 1, window: 10s, min_requests: 1, open_for: 1s, probes: 1 }",
    );
    let events = "{\"t\":0,\"duration\":0,\"status\":503}\n{\"t\":2000,\"cost\":0,\"duration\":500}\n\
        {\"t\":2100,\"cost\":0,\"duration\":1}\n";
    assert_eq!(words(&config, events), ["passed", "passed", "breaker"]);
}

#[test]
fn the_table_finds_the_route_unless_the_line_or_a_flag_names_it() {
    let config = config(
        "  - { name: a, match: { host: a.example }, upstream: up, flow: [{ name: r, limit: 1/1h, burst: 1 }] }\n\
         \x20 - { name: b, match: { path: /b, method: [POST] }, upstream: up }",
    );
    let events = r#"{"t":0,"host":"A.example:80","path":"/b?x=1","method":"POST"}
{"t":1,"host":"c","path":"/b?x=1","method":"POST"}
{"t":2,"host":"c","path":"/x"}
{"t":3,"route":"a"}
{"t":4,"route":"z"}
{"t":5,"host":"a.example","path":"/x/../y"}
{"t":6,"host":"a b"}
{"t":7,"host":"a.example","method":"TRACE"}
"#;
    let lines = decided(&config, events);
    let decided: Vec<_> = lines
        .iter()
        .map(|line| (line["route"].as_str(), line["decision"].as_str(), line["unreached"].as_str()))
        .collect();
    let expected = [
        (Some("a"), Some("passed"), None),
        (Some("b"), Some("passed"), None),
        (None, None, Some("no route matches")),
        (Some("a"), Some("rejected"), None),
        (None, None, Some("no route has this name")),
        (None, None, Some("a `..` segment")),
        (None, None, Some("no host has this name")),
        (None, None, Some("the method is not served")),
    ];
    assert_eq!(decided, expected);

    let forced = replayed(&config, events, |options| options.route = Some("b".into())).unwrap().0;
    assert_eq!(forced.matches("\"route\":\"b\"").count(), 6);

    let unknown = replayed(&config, events, |options| options.route = Some("z".into()));
    let Err(error @ ReplayError::NoSuchRoute { .. }) = unknown else { panic!("{unknown:?}") };
    assert_eq!(error.to_string(), "the configuration has no route `z`; it has `a`, `b`");
}

#[test]
fn bad_lines_are_counted_and_shown_and_fatal_only_if_asked() {
    let config = one_route("    flow: [{ name: r, limit: 1/1h }]");
    let mut events = "{\"t\":0}\n\nnonsense\n{\"t\":-1}\n".to_owned();
    for _ in 0..9 {
        writeln!(events, "{{}}").unwrap();
    }
    events += "{\"t\":1}";
    let (out, complaints) = replayed(&config, &events, |_| {}).unwrap();
    assert_eq!(out.lines().count(), 2);
    let said: Vec<_> = complaints.lines().collect();
    assert_eq!(said.len(), 6, "{complaints}");
    assert!(said[0].starts_with("11 of 13 lines"), "{complaints}");
    assert!(said[1].contains("input:3: not a JSON object"), "{complaints}");
    let strict = replayed(&config, &events, |options| options.strict = true);
    assert!(matches!(strict, Err(ReplayError::BadLines(11))), "{strict:?}");
}

#[test]
fn certificates_need_not_be_there() {
    let config = one_route("    flow: [{ name: r, limit: 1/1h }]").replace(
        "listen: 127.0.0.1:0",
        "listen: 127.0.0.1:0, tls: { certificates: [{ cert: none.pem, key: none.key }] }",
    );
    assert_eq!(words(&config, "{\"t\":0}\n"), ["passed"]);
}

#[test]
fn what_is_no_known_format_is_rejected() {
    let config = one_route("    flow: [{ name: r, limit: 1/1h }]");
    let unknown = replayed(&config, "hello\nworld\n", |_| {});
    assert!(matches!(unknown, Err(ReplayError::Input(_))), "{unknown:?}");
    let haproxy = "Feb  6 12:14:14 localhost haproxy[14389]: 10.0.1.2:33317 \
                   [06/Feb/2009:12:14:14.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- \
                   1/1/1/1/0 0/0 {1wt.eu} {} \"GET /index.html HTTP/1.1\"\n";
    let error = replayed(&config, haproxy, |_| {}).unwrap_err().to_string();
    assert!(error.contains("is unknown") && error.contains("HAProxy"), "{error}");
    assert_eq!(replayed(&config, "", |_| {}).unwrap().0, "");
}

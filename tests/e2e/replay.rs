//! A gateway's own access log, replayed, gives the verdicts that the gateway gave.

use crate::common::{
    Gateway, eventually,
    http::{self, Client, raw},
    metrics, pause,
    upstream::{self, Connection, Request, Script},
    yaml,
};
use serde_json::Value;
use std::{
    fs,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

/// Rules of each kind, over clients that differ by what the log has and by what
/// it has not. What is in flight and what waits depends on when requests end.
const ROUTES: &str = "\
\x20 - name: mixed
    match: { path_prefix: /mixed }
    upstream: up
    flow:
      - { name: session, limit: 40/1s, burst: 6, key: \"cookie:sid\", cost: { default: 1, POST: 2 } }
      - { name: in-flight, concurrency: 3 }
  - name: keyed
    match: { path_prefix: /keyed }
    upstream: up
    flow:
      - { name: tenant, algorithm: fixed_window, limit: 9/1h, key: [\"header:x-tenant\", path], on_missing_key: skip,
          overrides: [{ when: { \"header:x-tenant\": gold }, limit: 4/1h }] }
      - { name: even, algorithm: pacing, limit: 50/1s, max_wait: 300ms, dry_run: true }
      - { name: caller, algorithm: sliding_window, limit: 50/1h, key: client_ip, except: { header: { x-tenant: staff } },
          plans: { by: \"header:x-tenant\", limits: { gold: 70/1h, b: 20/1h } } }
  - name: paced
    match: { path_prefix: /paced, header: { x-tenant: { present: true } } }
    upstream: up
    flow: [{ name: busy, concurrency: 5 }]
    pacing: { rate: 200/1s, max_wait: 20ms }
  - name: queued
    match: { path_prefix: /queued }
    upstream: up
    pacing: { rate: 1/1h, max_wait: 1s }
  - name: fragile
    match: { path_prefix: /fragile }
    upstream: up
    breaker: { errors: 3, error_ratio: 0.9, slow_after: 2ms, slow_ratio: 0.9, min_requests: 3, window: 1s, open_for: 20ms, probes: 2 }
    flow: [{ name: enough, limit: 100000/1s }]
  - name: trial
    match: { path_prefix: /trial }
    upstream: up
    flow: [{ name: strict, limit: 9/1h, key: \"header:x-tenant\", on_missing_key: skip, dry_run: true }]
  - name: rest
    match: { path_prefix: / }
    upstream: up
    flow:
      - { name: dry, limit: 1000/1s, burst: 90, dry_run: true }
      - { name: window, algorithm: sliding_window, limit: 12/500ms, buckets: 4, priority: { header: x-tenant, equals: gold, max_wait: 450ms } }
";

const CLIENTS: usize = 8;

/// Requests of each client.
const EACH: usize = 150;

#[test]
fn a_gateways_own_log_gives_the_same_decisions_one_by_one() {
    let is_holding = Arc::new(AtomicBool::new(true));
    let holding = Arc::clone(&is_holding);
    let upstream = Script::start(move |_, mut connection| {
        while let Some(request) = connection.read() {
            while request.path().ends_with('9') && holding.load(Ordering::SeqCst) {
                pause();
            }
            if answer(&mut connection, &request).is_none() {
                return;
            }
        }
    });
    // One worker reads the clock and decides without another in between.
    let text = yaml(upstream.address, ROUTES).replace("workers: 2", "workers: 1");
    let gateway = Gateway::start(&format!("access_log: access.log\n{text}"));
    let web = gateway.web();
    // No rule is asked about these.
    let long =
        "POST /mixed/0 HTTP/1.1\r\nHost: h\r\nCookie: sid=0\r\nContent-Length: 99999999999\r\n\r\n";
    for (unasked, status) in [("GET /mixed/0 HTTP/1.1\r\n\r\n", 400), (long, 413)] {
        assert_eq!(raw(web, unasked).map(|answer| answer.status), Some(status));
    }
    let full = exceed(&gateway, "mixed", 3) + exceed(&gateway, "paced", 5);
    for status in [200, 503] {
        let queued = raw(web, http::head("GET", "/queued/0", &[]));
        assert_eq!(queued.map(|answer| answer.status), Some(status));
    }
    let full = full + 2;
    is_holding.store(false, Ordering::SeqCst);
    let threads: Vec<_> =
        (0..CLIENTS).map(|client| thread::spawn(move || be_client(web, client, EACH))).collect();
    for thread in threads {
        thread.join().expect("the client is done");
    }
    let mut live = lines(&gateway, CLIENTS * EACH + full + 2);
    live.retain(|line| line["flow"].is_object());
    assert_eq!(live.len(), CLIENTS * EACH + full, "two were rejected before any rule");
    assert_same_decisions(&gateway, &live);
    assert_all_is_there(&live);
}

/// Returns the lines of the gateway's access log in the order of time, once there are so many.
fn lines(gateway: &Gateway, count: usize) -> Vec<Value> {
    let path = gateway.dir.path().join("access.log");
    let mut live = eventually("every line", || {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let lines: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
        lines.ok().filter(|lines| lines.len() == count)
    });
    live.sort_by_key(|line| line["ts"].as_str().map(str::to_owned));
    live
}

/// Asserts that a replay of the gateway's access log decides as these lines of it say.
#[track_caller]
fn assert_same_decisions(gateway: &Gateway, live: &[Value]) {
    let output = Command::new(env!("CARGO_BIN_EXE_flowgate"))
        .args(["replay", "--strict", "--output", "decisions", "-c"])
        .args([&gateway.config, &gateway.dir.path().join("access.log")])
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let replayed = String::from_utf8(output.stdout).expect("text");
    let replayed: Vec<Value> =
        replayed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(replayed.len(), live.len());
    for (live, replayed) in live.iter().zip(&replayed) {
        assert_eq!(live["route"], replayed["route"], "{live}\n{replayed}");
        for field in ["decision", "reason", "rule", "limit", "used", "wait_ms", "retry_after_ms"] {
            assert_eq!(live["flow"][field], replayed[field], "{field}\n{live}\n{replayed}");
        }
    }
}

/// Rules that settle: by numbers in the body with a learned reserve, by the status, by the bytes and
/// by the time; in a bucket, windows and a log, and in a budget with a parent. Each rejects something,
/// however slow the machine is.
const SETTLED_ROUTES: &str = "\
\x20 - name: team
    match: { path_prefix: /team }
    upstream: up
    flow: [{ budget: team }]
  - name: chat
    match: { path_prefix: /chat }
    upstream: up
    flow:
      - { name: tokens, limit: 400/1s, burst: 900, cost: { reserve: { request_bytes: 0.25, plus: auto }, settle: openai } }
  - name: login
    match: { path_prefix: /login }
    upstream: up
    flow:
      - { name: failed, algorithm: sliding_log, limit: 9/1h, key: \"header:x-tenant\", on_missing_key: skip,
          cost: { reserve: 1, settle: { status: { '500-599': 2, default: 0 } } } }
  - name: files
    match: { path_prefix: /files }
    upstream: up
    flow: [{ name: bytes, algorithm: sliding_window, limit: 3000/300s, cost: { reserve: 40, settle: { bytes: response } } }]
  - name: stream
    match: { path_prefix: /stream }
    upstream: up
    flow:
      - { name: stream, limit: 900/1s, burst: 400, cost: { reserve: 5, settle: openai, settle_while_streaming: true } }
  - name: slow
    match: { path_prefix: / }
    upstream: up
    flow: [{ name: time, limit: 40/1m, cost: { reserve: 2, settle: { time: 1ms } } }]
";

const BUDGETS: &str = "\
budgets:
  - { name: org, algorithm: fixed_window, limit: 1500/30d, cost: { reserve: auto, settle: openai } }
  - { name: team, parent: org, limit: 20/1s, burst: 700, key: \"header:x-tenant\", cost: { reserve: 20, settle: openai } }
";

/// A server whose responses have tokens, statuses and times that the path decides.
fn counting() -> Script {
    Script::start(|_, mut connection| {
        while let Some(request) = connection.read() {
            let tokens = request.path().bytes().map(u64::from).sum::<u64>() % 290;
            if request.path().starts_with("/stream") {
                if stream(&mut connection, tokens).is_none() {
                    return;
                }
                continue;
            }
            let body =
                format!("{{\"usage\":{{\"prompt_tokens\":{tokens},\"completion_tokens\":7}}}}");
            let status = if tokens % 3 == 0 { "503 No" } else { "200 OK" };
            let length = body.len();
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n");
            let answered = connection.write(head).and_then(|()| {
                // Some stay in flight while others are decided.
                if tokens % 5 == 0 {
                    thread::park_timeout(Duration::from_millis(4));
                }
                connection.write(body)
            });
            if answered.is_none() {
                return;
            }
        }
    })
}

#[test]
fn a_log_with_settled_costs_gives_the_same_decisions_one_by_one() {
    let upstream = counting();
    let text = yaml(upstream.address, SETTLED_ROUTES).replace("workers: 2", "workers: 1");
    let gateway = Gateway::start(&format!("access_log: access.log\n{BUDGETS}{text}"));
    let web = gateway.web();
    // One tenant alone uses up its own budget, which leaves some of that of all.
    let mut first = Client::new(web);
    let passed = (0..EACH)
        .take_while(|_| first.request("GET", "/team/x", &[("X-Tenant", "gold")]).status != 429)
        .count();

    let be_client = move |number: usize| {
        let mut client = Client::new(web);
        for at in 0..EACH {
            let section = ["team", "chat", "login", "files", "slow", "stream"][(number + at) % 6];
            let path = format!("/{section}/{}", "x".repeat((at * 7 + number) % 40));
            let tenant = ["gold", "iron", "staff"][at % 3];
            client.request("GET", &path, &[("X-Tenant", tenant)]);
            if at % 30 == 29 {
                pause();
            }
        }
    };
    let clients: Vec<_> =
        (0..CLIENTS).map(|client| thread::spawn(move || be_client(client))).collect();
    for client in clients {
        client.join().expect("the client is done");
    }

    let live = lines(&gateway, CLIENTS * EACH + passed + 1);
    assert_same_decisions(&gateway, &live);
    let is_charged = |line: &Value| {
        let charges = line["flow"]["charges"]["stream"].as_array();
        charges.is_some_and(|charges| charges.len() > 2)
    };
    assert!(live.iter().any(is_charged), "nothing was charged in passing: the test shows less");
    for rule in ["tokens", "failed", "bytes", "time", "org", "team", "stream"] {
        let rejects =
            |line: &Value| line["flow"]["decision"] == "rejected" && line["flow"]["rule"] == rule;
        assert!(live.iter().any(rejects), "{rule} never rejected: the test shows less");
        let differs = |line: &Value| {
            let [reserved, settled] =
                ["reserved", "settled"].map(|part| line["flow"][part][rule].as_u64());
            settled.is_some() && reserved != settled
        };
        assert!(live.iter().any(differs), "{rule} never settled: the test shows less");
    }
}

/// Streams a response whose tokens so far are in each of its events, and are fewer in the end.
fn stream(connection: &mut Connection, tokens: u64) -> Option<()> {
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    connection.write(head)?;
    for tokens in [tokens / 4, tokens / 2, tokens, tokens * 2 / 3] {
        // Others are decided meanwhile.
        thread::park_timeout(Duration::from_millis(1));
        let usage = format!("{{\"prompt_tokens\":{tokens},\"completion_tokens\":7}}");
        let event = format!("data: {{\"usage\":{usage}}}\n\n");
        connection.write(format!("{:x}\r\n{event}\r\n", event.len()))?;
    }
    connection.write("0\r\n\r\n")
}

/// Asserts that the log has something of everything that a gateway decides.
#[track_caller]
fn assert_all_is_there(live: &[Value]) {
    let in_vain = |entry: &Value| {
        let flow = &entry["flow"];
        entry["route"] == "trial" && flow["rule"].is_null() && flow["keys"]["strict"].is_string()
    };
    assert!(live.iter().any(in_vain), "no dry run was over: the test shows less than it should");
    let is_held = |entry: &&Value| entry["route"] == "keyed" && entry["flow"]["wait_ms"] != 0.0;
    assert_eq!(live.iter().find(is_held), None, "a dry run holds nobody");
    let lent =
        |entry: &Value| entry["flow"]["rule"] == "window" && entry["flow"]["decision"] == "delayed";
    assert!(live.iter().any(lent), "nothing was lent: the test shows less than it should");
    let is = |entry: &Value, word: &str| {
        let flow = &entry["flow"];
        flow["decision"] == word || flow["reason"] == word
    };
    for word in ["passed", "delayed", "rate", "concurrency", "queue", "breaker"] {
        let was = live.iter().any(|entry| is(entry, word));
        assert!(was, "nothing was {word}: the test shows less than it should");
    }
    for rule in ["window", "tenant", "session", "caller", "in-flight", "busy", "pacing", "breaker"]
    {
        let decided = live.iter().any(|entry| entry["flow"]["rule"] == rule);
        assert!(decided, "{rule} never decided: the test shows less than it should");
    }
}

/// Has as many requests in flight on a route as its `concurrency` admits, and one more rejected.
/// The upstream holds them until the test releases them. Returns how many requests that were.
fn exceed(gateway: &Gateway, route: &str, most: u32) -> usize {
    let head = http::head("GET", &format!("/{route}/9"), &[("X-Tenant", "iron")]);
    let in_flight = || {
        let routes = metrics(gateway, "flowgate_flow_in_flight");
        let found = routes.into_iter().find(|(labels, _)| labels.contains(route));
        found.map_or(0.0, |(_, requests)| requests)
    };
    for held in 1..=most {
        let web = gateway.web();
        let head = head.clone();
        // It ends when the upstream answers, or with the test.
        thread::spawn(move || {
            let mut client = Client::new(web);
            client.send(head);
            client.try_read("GET")
        });
        eventually("it is in flight", || (in_flight() >= f64::from(held)).then_some(()));
    }
    assert_eq!(raw(gateway.web(), head).map(|answer| answer.status), Some(503), "{route} is full");
    most as usize + 1
}

/// Some fail. A few take their time, so that what is in flight decides; a few have a
/// head long before they end, by which the breaker judges them.
fn answer(connection: &mut Connection, request: &Request) -> Option<()> {
    let pause = || thread::park_timeout(Duration::from_millis(4));
    match request.path().chars().last() {
        Some('3') => pause(),
        Some('4') => {
            connection.write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n")?;
            pause();
            return connection.write("fine");
        }
        Some('5') => return connection.write("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"),
        Some(_) | None => {}
    }
    connection.write(upstream::ok("fine"))
}

/// Sends requests of all kinds, in bursts.
fn be_client(address: std::net::SocketAddr, number: usize, count: usize) {
    let mut client = Client::new(address);
    for at in 0..count {
        let cookie = format!("sid={}", (number + at) % 5);
        let mut headers = vec![("Cookie", cookie.as_str())];
        if at % 4 != 0 {
            headers.push(("X-Tenant", ["gold", "iron", "staff"][(at / 7) % 3]));
        }
        let section = [
            "mixed", "keyed", "paced", "fragile", "trial", "mixed", "paced", "other", "fragile",
            "other",
        ][(number + at) % 10];
        let path = format!("/{section}/{}", at % 7);
        let method = if at % 9 == 0 { "POST" } else { "GET" };
        client.request(method, &path, &headers);
        if at % 30 == 29 {
            pause();
        }
    }
}

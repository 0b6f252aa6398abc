//! Traces: what servers and the collector learn of a request.

use crate::common::{
    Gateway, PATIENCE,
    collector::{Seen, attribute, body, collector, noting, spans},
    eventually,
    http::Client,
    metrics,
    upstream::{self, Request, Script},
    yaml,
};
use serde_json::{Value, json};
use std::{
    net::SocketAddr,
    sync::{Mutex, mpsc},
    time::Duration,
};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

const ALL: &str = "  - { name: all, match: { path_prefix: / }, upstream: up, retry: {} }";

fn unavailable(fields: &str) -> Vec<u8> {
    format!("HTTP/1.1 503 Service Unavailable\r\n{fields}Content-Length: 0\r\n\r\n").into_bytes()
}

fn traced(collector: SocketAddr, sample: &str, upstream: SocketAddr) -> String {
    let otlp = format!("{{ endpoint: \"http://{collector}\", headers: {{ x-tenant: one }} }}");
    format!(
        "tracing: {{ otlp: {otlp}, sample: {sample}, resource: {{ team: edge }} }}\n{}",
        yaml(upstream, ALL)
    )
}

/// The one request that a collector gets.
fn only(seen: &Seen) -> Request {
    let export = eventually("an export", || seen.lock().expect("no panic").first().cloned());
    assert_eq!(seen.lock().expect("no panic").len(), 1);
    export.0
}

/// A number of 64 bits, which OTLP's JSON has as a text.
fn nanos(value: &Value) -> u64 {
    value.as_str().expect("a text").parse().expect("a number")
}

fn is_hex(value: &Value, length: usize) -> bool {
    let digits = value.as_str().expect("a text").as_bytes();
    digits.len() == length
        && digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
        && digits.iter().any(|digit| *digit != b'0')
}

/// The `traceparent` fields that a server got, one list for each request.
fn parents(seen: &Seen) -> Vec<Vec<String>> {
    let of = |request: &Request| {
        let fields = request.headers.iter();
        let parents = fields.filter(|(name, _)| name.eq_ignore_ascii_case("traceparent"));
        parents.map(|(_, value)| value.clone()).collect()
    };
    seen.lock().expect("no panic").iter().map(|(request, _)| of(request)).collect()
}

#[test]
fn a_sampled_request_and_its_attempts_arrive_at_the_collector() {
    let (collector, exports) = collector();
    let (server, requests) =
        noting(|number| if number == 0 { unavailable("") } else { upstream::ok("done") });
    // The caller samples the trace.
    let gateway = Gateway::start(&traced(collector.address, "0%", server.address));
    let parent = format!("00-{TRACE}-{CALLER}-01");
    let fields = [("traceparent", &*parent), ("tracestate", "a=1, b=2")];
    assert_eq!(Client::new(gateway.web()).request("GET", "/a?b=secret", &fields).status, 200);

    let export = only(&exports);
    assert_eq!(export.line, "POST /v1/traces HTTP/1.1");
    assert_eq!(export.header("content-type"), Some("application/json"));
    assert_eq!(export.header("x-tenant"), Some("one"));
    let body = body(&export);
    let resource = &body["resourceSpans"][0]["resource"];
    assert_eq!(attribute(resource, "service.name"), json!({ "stringValue": "flowgate" }));
    assert_eq!(attribute(resource, "team"), json!({ "stringValue": "edge" }));
    assert_eq!(body["resourceSpans"][0]["scopeSpans"][0]["scope"]["name"], "flowgate");
    assert!(!body.to_string().contains("secret"), "{body}");

    let spans = spans(&body);
    let [whole, first, second] = &spans[..] else { panic!("{spans:?}") };
    check_server_span(whole);
    check_client_span(first, whole, &server);
    check_client_span(second, whole, &server);
    assert_eq!(attribute(first, "http.response.status_code"), json!({ "intValue": "503" }));
    assert_eq!(attribute(first, "error.type"), json!({ "stringValue": "503" }));
    assert_eq!(first["status"]["code"], 2);
    assert_eq!(attribute(second, "http.response.status_code"), json!({ "intValue": "200" }));
    assert_eq!(attribute(second, "http.request.resend_count"), json!({ "intValue": "1" }));
    assert_eq!(second["status"]["code"], Value::Null);
    assert!(nanos(&second["startTimeUnixNano"]) >= nanos(&first["endTimeUnixNano"]));

    // The server's spans are below those of the attempts.
    let expected = [first, second]
        .map(|span| vec![format!("00-{TRACE}-{}-01", span["spanId"].as_str().expect("a text"))]);
    assert_eq!(parents(&requests), expected);
    assert_ne!(first["spanId"], second["spanId"]);
    let state = requests.lock().expect("no panic")[1].0.header("tracestate").map(str::to_owned);
    assert_eq!(state.as_deref(), Some("a=1,b=2"));
}

fn check_server_span(span: &Value) {
    assert_eq!((&span["traceId"], &span["parentSpanId"]), (&json!(TRACE), &json!(CALLER)));
    assert!(is_hex(&span["spanId"], 16), "{span}");
    assert_eq!((&span["kind"], &span["name"]), (&json!(2), &json!("GET all")));
    assert_eq!(span["traceState"], "a=1,b=2");
    assert!(nanos(&span["startTimeUnixNano"]) < nanos(&span["endTimeUnixNano"]));
    for (key, value) in [
        ("http.request.method", "GET"),
        ("url.path", "/a"),
        ("url.scheme", "http"),
        ("client.address", "127.0.0.1"),
        ("flowgate.route", "all"),
        ("flowgate.decision", "passed"),
    ] {
        assert_eq!(attribute(span, key), json!({ "stringValue": value }), "{key}");
    }
    assert_eq!(attribute(span, "http.response.status_code"), json!({ "intValue": "200" }));
}

fn check_client_span(span: &Value, parent: &Value, server: &Script) {
    assert_eq!(span["traceId"], TRACE);
    assert!(is_hex(&span["spanId"], 16) && span["spanId"] != parent["spanId"], "{span}");
    assert_eq!(span["parentSpanId"], parent["spanId"]);
    assert_eq!((&span["kind"], &span["name"]), (&json!(3), &json!("GET")));
    let port = server.address.port().to_string();
    assert_eq!(attribute(span, "server.port"), json!({ "intValue": port }));
    let start = nanos(&span["startTimeUnixNano"]);
    let end = nanos(&span["endTimeUnixNano"]);
    assert!(nanos(&parent["startTimeUnixNano"]) <= start && start <= end, "{span}");
    assert!(end <= nanos(&parent["endTimeUnixNano"]), "{span}");
}

#[test]
fn without_tracing_a_traceparent_passes_untouched() {
    let (server, requests) = noting(|_| upstream::ok("done"));
    let gateway = Gateway::start(&yaml(server.address, ALL));
    let parent = format!("00-{TRACE}-{CALLER}-01");
    let mut client = Client::new(gateway.web());
    client.request("GET", "/", &[("traceparent", &parent), ("tracestate", "a=1, b=2")]);
    client.get("/");
    assert_eq!(parents(&requests), [vec![parent], vec![]]);
    let requests = requests.lock().expect("no panic");
    assert_eq!(requests[0].0.header("tracestate"), Some("a=1, b=2"));
}

#[test]
fn an_export_is_repeated_when_the_collector_says() {
    let (collector, exports) =
        noting(
            |number| {
                if number == 0 { unavailable("Retry-After: 2\r\n") } else { upstream::ok("{}") }
            },
        );
    let (server, _) = noting(|_| upstream::ok("done"));
    let gateway = Gateway::start(&traced(collector.address, "100%", server.address));
    assert_eq!(Client::new(gateway.web()).get("/").status, 200);
    let exported = "flowgate_trace_spans_total{result=\"exported\"}";
    eventually("the spans are exported", || {
        let counted = metrics(&gateway, "flowgate_trace_spans_total");
        (counted.get(exported) == Some(&2.0)).then_some(())
    });
    let exports = exports.lock().expect("no panic");
    let [(first, at), (again, later)] = &exports[..] else { panic!("{exports:?}") };
    assert_eq!(first.body, again.body);
    // Less the time between an answer's beginning and its end.
    assert!(later.duration_since(*at) >= Duration::from_millis(1900));
    gateway.wait_log("cannot export traces: status 503");
    gateway.wait_log("traces are exported again");
}

#[test]
fn a_drain_exports_the_last_spans() {
    let (collector, exports) = collector();
    let (arrived, arrivals) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let server = Script::answering(move |_| {
        arrived.send(()).expect("awaited");
        wait.lock().expect("no panic").recv_timeout(PATIENCE).expect("the test says so");
        upstream::ok("done")
    });
    let mut gateway = Gateway::start(&traced(collector.address, "100%", server.address));
    let mut client = Client::new(gateway.web());
    client.send("GET /last HTTP/1.1\r\nHost: a\r\n\r\n");
    arrivals.recv_timeout(PATIENCE).expect("the request is in flight");
    gateway.signal("TERM");
    gateway.wait_log("draining");
    go.send(()).expect("awaited");
    assert_eq!(client.read("GET").status, 200);
    assert!(gateway.wait().success());
    // It has ended: what is not here now will never be.
    assert_eq!(exports.lock().expect("no panic").len(), 1);
    let spans = spans(&body(&only(&exports)));
    assert_eq!(spans.len(), 2);
    assert_eq!(attribute(&spans[0], "url.path"), json!({ "stringValue": "/last" }));
}

//! Exports of spans: edits, TLS, and collectors that are too slow.

use crate::common::{
    Gateway,
    collector::{collector, fields_of, noting, span_of, spans_so_far},
    eventually,
    http::Client,
    metrics,
    tls_server::{Authority, TlsServer, server_config},
    upstream, yaml,
};
use std::{
    net::SocketAddr,
    sync::{Mutex, mpsc},
};

const ALL: &str = "  - { name: all, match: { path_prefix: / }, upstream: up }";
/// Answered without a server: one span for each request.
const OWN: &str = "  - { name: own, match: { path_prefix: / }, respond: { status: 200 } }";

/// Nothing listens there, and nothing is asked.
const NO_SERVER: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9);

fn counted(gateway: &Gateway, result: &str) -> f64 {
    let all = metrics(gateway, "flowgate_trace_spans_total");
    all[&format!("flowgate_trace_spans_total{{result=\"{result}\"}}")]
}

#[test]
fn while_the_collector_does_not_answer_spans_are_dropped_and_no_request_waits() {
    const REQUESTS: u32 = 4000;
    let (release, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    // Answers once the test lets go of it.
    let (collector, exports) = noting(move |_| {
        drop(held.lock().map(|held| held.recv()));
        upstream::ok("{}")
    });
    let otlp = format!("{{ endpoint: \"http://{}\", timeout: 10m }}", collector.address);
    let text = format!("tracing: {{ otlp: {otlp}, sample: 100% }}\n{}", yaml(NO_SERVER, OWN));
    let gateway = Gateway::start(&text);
    let mut client = Client::new(gateway.web());
    for _ in 0..REQUESTS {
        assert_eq!(client.get("/").status, 200);
    }
    assert!(exports.lock().expect("no panic").len() <= 1, "the first one is not answered yet");
    assert_eq!((counted(&gateway, "exported"), counted(&gateway, "failed")), (0.0, 0.0));
    let dropped = counted(&gateway, "dropped");
    // 2048 wait in the queue, and at most 512 are in the export.
    let most = f64::from(REQUESTS - 2048);
    assert!((most - 512.0..=most).contains(&dropped), "{dropped}");
    drop(release);
    let all = |what: &str| counted(&gateway, what);
    eventually("the others are exported", || {
        (all("exported") + all("dropped") == f64::from(REQUESTS)).then_some(())
    });
    assert_eq!((all("dropped"), all("failed")), (dropped, 0.0));
    assert_eq!(client.get("/later").status, 200);
    span_of(&exports, "/later");
}

#[test]
fn spans_are_exported_over_tls_to_a_collector_that_is_trusted() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let authority = Authority::new("the authority");
    authority.write(folder.path(), "ca");
    Authority::new("another one").write(folder.path(), "other");
    authority.sign(folder.path(), "own", &["localhost"], |_| {});
    let collector = TlsServer::start(server_config(folder.path(), "own", None), "");
    let trusting = |ca: &str| {
        let otlp = format!("endpoint: '{}', tls: {{ ca: {ca}.pem }}", collector.url());
        format!("tracing: {{ otlp: {{ {otlp} }}, sample: 100% }}\n{}", yaml(NO_SERVER, OWN))
    };
    let gateway = Gateway::start_in(folder, &trusting("other"), &[]);
    assert_eq!(Client::new(gateway.web()).get("/").status, 200);
    let line = gateway.wait_log("cannot export traces");
    assert!(line.contains("invalid peer certificate"), "{line}");
    assert!(collector.seen().is_empty(), "{:?}", collector.seen());
    // The spans that wait for their repetition go where the edit says.
    gateway.edit(&trusting("ca"));
    gateway.wait_log("traces are exported again");
    eventually("the span is exported", || (counted(&gateway, "exported") == 1.0).then_some(()));
    assert_eq!(collector.seen()[0].server_name.as_deref(), Some("localhost"));
    assert_eq!((counted(&gateway, "failed"), counted(&gateway, "dropped")), (0.0, 0.0));
}

#[test]
fn an_edit_of_tracing_is_in_force_for_the_next_request() {
    let (first, first_exports) = collector();
    let (second, second_exports) = collector();
    let (server, requests) = noting(|_| upstream::ok("done"));
    let plain = yaml(server.address, ALL);
    let traced = |collector: SocketAddr, sample: &str| {
        let otlp = format!("{{ endpoint: \"http://{collector}\" }}");
        format!("tracing: {{ otlp: {otlp}, sample: {sample} }}\n{plain}")
    };
    let gateway = Gateway::start(&plain);
    // The same connection, which outlives the edits.
    let mut client = Client::new(gateway.web());
    let mut ask = |path: &str| {
        assert_eq!(client.get(path).status, 200);
        fields_of(&requests, path, "traceparent").pop().map(|parent| parent.ends_with("-01"))
    };
    assert_eq!(ask("/off"), None);
    let edit = gateway.edit(&traced(first.address, "0%"));
    assert!(!edit.contains("next start"), "{edit}");
    assert_eq!(ask("/none"), Some(false));
    gateway.edit(&traced(first.address, "100%"));
    assert_eq!(ask("/first"), Some(true));
    span_of(&first_exports, "/first");
    gateway.edit(&traced(second.address, "100%"));
    assert_eq!(ask("/second"), Some(true));
    span_of(&second_exports, "/second");
    gateway.edit(&plain);
    assert_eq!(ask("/off-again"), None);
    gateway.edit(&traced(first.address, "100%"));
    assert_eq!(ask("/first-again"), Some(true));
    span_of(&first_exports, "/first-again");
    // Spans of one connection come in the order of its requests: what is missing is not to come.
    for path in ["/off", "/none", "/second", "/off-again"] {
        assert!(spans_so_far(&first_exports, path).is_empty(), "{path}");
    }
    assert!(spans_so_far(&second_exports, "/first").is_empty());
}

//! Whose trace a request continues, and what is done with fields that are not as they should be.

use crate::common::{
    Gateway,
    collector::{attribute, collector, fields_of, noting, span_of, spans_so_far},
    http::Client,
    upstream, yaml,
};
use serde_json::{Value, json};
use std::net::SocketAddr;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

const ALL: &str = "  - { name: all, match: { path_prefix: / }, upstream: up }";

fn text(collector: SocketAddr, upstream: SocketAddr, keys: &str, more: &str) -> String {
    let otlp = format!("otlp: {{ endpoint: \"http://{collector}\" }}");
    format!("tracing: {{ {otlp}, {keys} }}\n{more}\n{}", yaml(upstream, ALL))
}

/// The trace, the span and the flags of a valid `traceparent`.
fn read(parent: &str) -> [&str; 3] {
    let parts: Vec<&str> = parent.split('-').collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    assert_eq!((lengths.as_slice(), parts[0]), (&[2, 32, 16, 2][..], "00"), "{parent}");
    assert!(parent.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-')));
    [parts[1], parts[2], parts[3]]
}

#[test]
fn a_trace_is_continued_for_those_clients_only_that_parent_names() {
    let (collector, exports) = collector();
    let (server, requests) = noting(|_| upstream::ok("done"));
    let of = |keys: &str, more: &str| text(collector.address, server.address, keys, more);
    let trusted = "trusted_proxies: 127.0.0.0/8";
    let gateway = Gateway::start(&of("sample: 100%", ""));
    for (path, parent, more, is_continued) in [
        ("/on", "on", "", true),
        ("/trusted", "trusted", trusted, true),
        ("/untrusted", "trusted", "trusted_proxies: 192.0.2.0/24", false),
        ("/nobody", "trusted", "", false),
        ("/off", "off", trusted, false),
    ] {
        gateway.edit(&of(&format!("sample: 100%, parent: {parent}"), more));
        let sent = format!("00-{TRACE}-{CALLER}-01");
        let fields = [("traceparent", &*sent), ("tracestate", "a=1")];
        assert_eq!(Client::new(gateway.web()).request("GET", path, &fields).status, 200);
        let span = span_of(&exports, path);
        let got = fields_of(&requests, path, "traceparent");
        let [trace, _, flags] = read(&got[0]);
        assert_eq!((got.len(), flags, &span["traceId"]), (1, "01", &json!(trace)), "{path}");
        assert_eq!(trace == TRACE, is_continued, "{path}: {got:?}");
        let linked = json!([{ "traceId": TRACE, "spanId": CALLER, "flags": 0x301 }]);
        let (parent, links, state) =
            if is_continued { (json!(CALLER), Value::Null, 1) } else { (Value::Null, linked, 0) };
        assert_eq!((&span["parentSpanId"], &span["links"]), (&parent, &links), "{path}");
        assert_eq!(fields_of(&requests, path, "tracestate").len(), state, "{path}");
    }
}

#[test]
fn a_client_that_is_not_trusted_decides_nothing_about_sampling() {
    let (collector, exports) = collector();
    let (server, requests) = noting(|_| upstream::ok("done"));
    let of = |keys: &str| text(collector.address, server.address, keys, "");
    let gateway = Gateway::start(&of("sample: 0%, parent: off"));
    let mut client = Client::new(gateway.web());
    let mut ask = |path: &str, flags: &str| {
        let sent = format!("00-{TRACE}-{CALLER}-{flags}");
        assert_eq!(client.request("GET", path, &[("traceparent", &sent)]).status, 200);
        let got = fields_of(&requests, path, "traceparent");
        let [trace, _, flags] = read(&got[0]);
        (trace == TRACE, flags.to_owned())
    };
    assert_eq!(ask("/wanted", "01"), (false, "00".to_owned()));
    gateway.edit(&of("sample: 100%, parent: on"));
    assert_eq!(ask("/unwanted", "00"), (true, "00".to_owned()));
    gateway.edit(&of("sample: 100%, parent: off"));
    assert_eq!(ask("/chosen", "00"), (false, "01".to_owned()));
    // Spans of one connection come in the order of its requests.
    span_of(&exports, "/chosen");
    for path in ["/wanted", "/unwanted"] {
        assert_eq!(spans_so_far(&exports, path), Vec::<Value>::new(), "{path}");
    }
}

#[test]
fn a_traceparent_that_is_not_valid_is_replaced() {
    let (collector, exports) = collector();
    let (server, requests) = noting(|_| upstream::ok("done"));
    let gateway = Gateway::start(&text(collector.address, server.address, "sample: 100%", ""));
    let valid = format!("00-{TRACE}-{CALLER}-01");
    let invalid: [Vec<u8>; 10] = [
        Vec::new(),
        b"00".to_vec(),
        valid.to_ascii_uppercase().into(),
        valid.replace("00-", "ff-").into(),
        valid.replace(TRACE, &"0".repeat(32)).into(),
        valid.replace(CALLER, &"0".repeat(16)).into(),
        format!("{valid}-more").into(),
        format!("{valid}, {valid}").into(),
        vec![b'0'; 8000],
        b"00-\xff\xfe".to_vec(),
    ];
    let mut client = Client::new(gateway.web());
    for (number, value) in invalid.iter().enumerate() {
        let path = format!("/{number}");
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\ntracestate: a=1\r\ntraceparent: "));
        client.send(value);
        client.send("\r\n\r\n");
        assert_eq!(client.read("GET").status, 200, "{number}");
        let got = fields_of(&requests, &path, "traceparent");
        assert_ne!(read(&got[0])[0], TRACE, "{number}");
        assert_eq!(got.len(), 1, "{number}");
        assert!(fields_of(&requests, &path, "tracestate").is_empty(), "{number}");
        let span = span_of(&exports, &path);
        let unknown = (&span["parentSpanId"], &span["links"], &span["traceState"]);
        assert_eq!(unknown, (&Value::Null, &Value::Null, &Value::Null), "{number}");
    }
    let twice = [("traceparent", &*valid), ("traceparent", &*valid)];
    assert_eq!(client.request("GET", "/twice", &twice).status, 200);
    let got = fields_of(&requests, "/twice", "traceparent");
    assert_eq!((got.len(), read(&got[0])[0] == TRACE), (1, false), "{got:?}");
}

#[test]
fn a_tracestate_is_passed_on_within_its_bounds() {
    let (collector, exports) = collector();
    let (server, requests) = noting(|_| upstream::ok("done"));
    let gateway = Gateway::start(&text(collector.address, server.address, "sample: 100%", ""));
    let many = |count: usize| (0..count).map(|at| format!("k{at}=v")).collect::<Vec<_>>().join(",");
    let long = format!("a={}", "v".repeat(256));
    let too_long = format!("{long},b={},c=1", "v".repeat(255));
    let mut client = Client::new(gateway.web());
    for (path, sent, passed) in [
        ("/spaces", "a=1 , b=2,, c=3".to_owned(), Some("a=1,b=2,c=3".to_owned())),
        ("/many", many(32), Some(many(32))),
        ("/too-many", many(33), None),
        ("/too-long", too_long, Some(long)),
        ("/repeated", "a=1,a=2".to_owned(), None),
        ("/invalid", "a=1,B=2".to_owned(), None),
    ] {
        let parent = format!("00-{TRACE}-{CALLER}-01");
        let fields = [("traceparent", &*parent), ("tracestate", &*sent)];
        assert_eq!(client.request("GET", path, &fields).status, 200, "{path}");
        let got = fields_of(&requests, path, "tracestate");
        assert_eq!(got, Vec::from_iter(passed.clone()), "{path}");
        let span = span_of(&exports, path);
        assert_eq!((&span["traceId"], &span["parentSpanId"]), (&json!(TRACE), &json!(CALLER)));
        assert_eq!(span["traceState"], passed.map_or(Value::Null, Value::from), "{path}");
    }
}

#[test]
fn baggage_passes_untouched_and_is_in_no_span() {
    let (collector, exports) = collector();
    let (server, requests) = noting(|_| upstream::ok("done"));
    let of = |keys: &str| text(collector.address, server.address, keys, "");
    let gateway = Gateway::start(&of("sample: 100%"));
    let large = format!("user=hidden,large={}", "x".repeat(8000));
    let mut client = Client::new(gateway.web());
    for (path, sent) in [("/small", "user=hidden; p=1 , b=%20"), ("/large", &*large)] {
        assert_eq!(client.request("GET", path, &[("baggage", sent)]).status, 200);
        assert_eq!(fields_of(&requests, path, "baggage"), [sent]);
        let span = span_of(&exports, path);
        assert_eq!(attribute(&span, "url.path"), json!({ "stringValue": path }));
    }
    let exports = exports.lock().expect("no panic");
    let shown = |text: &[u8]| String::from_utf8_lossy(text).contains("hidden");
    assert!(!exports.iter().any(|(export, _)| shown(&export.body)));
}

#[test]
fn a_server_gets_one_field_over_either_version_and_none_that_the_route_replaces() {
    let (collector, _exports) = collector();
    let (server, requests) = noting(|_| upstream::ok("done"));
    let behind = Gateway::start(&yaml(server.address, ALL));
    let keys = "sample: 100%, parent: on";
    let other = format!(
        "upstreams:\n  - {{ name: h2, servers: [{{ url: \"http://{}\" }}], protocol: h2 }}\n",
        behind.web()
    );
    let route = |name: &str, more: &str| {
        format!("  - {{ name: {name}, match: {{ path: /{name} }}, {more} }}\n")
    };
    let routes = [
        route("h2", "upstream: h2"),
        route("set", "upstream: up, request_headers: { set: { traceparent: mine } }"),
        route("removed", "upstream: up, request_headers: { remove: [traceparent] }"),
    ];
    let text = text(collector.address, server.address, keys, "");
    let text = text
        .replace("upstreams:\n", &other)
        .replace("routes:\n", &format!("routes:\n{}", routes.concat()));
    let gateway = Gateway::start(&text);
    let mut client = Client::new(gateway.web());
    // Not sampled, as its caller says.
    let sent = format!("00-{TRACE}-{CALLER}-00");
    for path in ["/plain", "/h2", "/set", "/removed"] {
        let fields = [("traceparent", &*sent), ("tracestate", "a=1")];
        assert_eq!(client.request("GET", path, &fields).status, 200);
        let got = fields_of(&requests, path, "traceparent");
        assert_eq!(fields_of(&requests, path, "tracestate"), ["a=1"], "{path}");
        match path {
            "/set" => assert_eq!(got, ["mine"]),
            "/removed" => assert!(got.is_empty(), "{got:?}"),
            _ => {
                let [trace, span, flags] = read(&got[0]);
                assert_eq!((got.len(), trace, flags), (1, TRACE, "00"), "{path}");
                assert_ne!(span, CALLER);
            }
        }
    }
}

//! Requests that get no response: flowgate closes their connection, or resets their stream.

use crate::common::{
    Gateway, eventually,
    http::{self, Client, head},
    http2, metrics, upstream, yaml,
};
use std::{
    io::{ErrorKind, Read},
    path::Path,
    process::Command,
};

const RST_STREAM: u8 = 3;
const INTERNAL_ERROR: [u8; 4] = [0, 0, 0, 2];

const ROUTES: &str = "  - { name: pages, match: { path_prefix: / }, upstream: up }
  - { name: closed, match: { path_prefix: /closed }, respond: close }
  - { name: map, match: { path: /map }, respond: { status: close } }
  - name: limited
    match: { path_prefix: /limited }
    upstream: up
    flow: [{ name: total, limit: 1/1h, key: path }]
    reject: { status: close }";

/// Asserts that nothing came but the end of the connection.
fn assert_closed(client: &mut Client, what: &str) {
    let mut bytes = Vec::new();
    match client.stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        // The rest of what the client sent was not read.
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{what}"),
    }
    assert_eq!(String::from_utf8_lossy(&bytes), "", "{what}");
}

#[test]
fn a_route_that_closes_sends_nothing() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(upstream.address, ROUTES));
    let grpc = ("content-type", "application/grpc");
    for request in [
        head("GET", "/closed/x?y", &[]),
        head("GET", "/map", &[]),
        head("HEAD", "/closed", &[]),
        head("POST", "/closed", &[grpc, ("te", "trailers")]),
        // The body, of which a part is there, or none.
        head("POST", "/closed", &[("content-length", "10")]),
        head("POST", "/closed", &[("content-length", "10")]) + "part",
        head("POST", "/closed", &[("transfer-encoding", "chunked")]) + "5\r\nab",
        head("POST", "/closed", &[("content-length", "4")])
            + "bodyGET / HTTP/1.1\r\nhost: a\r\n\r\n",
        // No 100 either.
        head("POST", "/closed", &[("content-length", "10"), ("expect", "100-continue")]),
        "GET /closed HTTP/1.0\r\n\r\n".to_owned(),
    ] {
        let mut client = Client::new(gateway.web());
        client.send(&request);
        assert_closed(&mut client, &request);
    }
    assert_eq!(upstream.connections(), 0);
}

#[test]
fn responses_before_it_arrive_and_requests_after_it_are_not_served() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(upstream.address, ROUTES));
    let mut client = Client::new(gateway.web());
    let get = |path| head("GET", path, &[]);
    client.send(get("/before") + &get("/closed") + &get("/after") + &get("/last"));
    assert_eq!(client.read("GET").status, 200);
    assert_closed(&mut client, "after the first response");
    let counted = metrics(&gateway, "flowgate_http_requests_total");
    let of = |labels: &str| {
        counted.iter().find(|(series, _)| series.contains(labels)).map(|(_, count)| *count)
    };
    assert_eq!(of(r#"{route="pages",method="GET",code="200"}"#), Some(1.0), "{counted:?}");
    assert_eq!(of(r#"{route="closed",method="GET",code="444"}"#), Some(1.0), "{counted:?}");
}

#[test]
fn a_rejection_that_closes_sends_nothing_and_is_counted_as_a_rejection() {
    let upstream = upstream::echo();
    let yaml = format!("access_log: access.json\n{}", yaml(upstream.address, ROUTES));
    let gateway = Gateway::start(&yaml);
    assert_eq!(http::get(gateway.web(), "/limited").status, 200);
    for request in [
        head("GET", "/limited", &[]),
        head("POST", "/limited", &[("content-type", "application/grpc")]),
        head("POST", "/limited", &[("content-length", "9"), ("expect", "100-continue")]),
    ] {
        let mut client = Client::new(gateway.web());
        client.send(&request);
        assert_closed(&mut client, &request);
    }
    assert_eq!(http::get(gateway.web(), "/other").status, 200);
    let log = gateway.dir.path().join("access.json");
    let lines = eventually("all are logged", || lines_of(&log, 5));
    let rejected: Vec<_> = lines.iter().filter(|line| line["status"] == 444).collect();
    assert_eq!(rejected.len(), 3);
    for line in rejected {
        assert_eq!((&line["outcome"], &line["bytes_out"]), (&"closed".into(), &0.into()), "{line}");
        assert_eq!(line["answered_ms"], serde_json::Value::Null, "{line}");
        let flow = &line["flow"];
        assert_eq!((&flow["decision"], &flow["rule"]), (&"rejected".into(), &"total".into()));
    }
    let admin = gateway.address("admin");
    assert_eq!(http::ask(admin, "/rejections").json()["total"], 3);
    for path in ["/limited", "/closed"] {
        let explained = explain(&gateway, path);
        assert!(explained.contains("closes the connection without a response"), "{explained}");
    }
}

fn explain(gateway: &Gateway, path: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_flowgate"))
        .args(["explain", path, "--admin", &gateway.address("admin").to_string()])
        .output()
        .expect("it runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn lines_of(log: &Path, count: usize) -> Option<Vec<serde_json::Value>> {
    let text = std::fs::read_to_string(log).ok()?;
    let lines: Vec<_> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    (lines.len() == count).then_some(lines)
}

#[test]
fn over_http2_only_the_stream_ends() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(upstream.address, ROUTES));
    let mut client = http2::Client::new(gateway.web());
    client.get(1, "/closed", &[]);
    client.post(3, "/closed", "100000");
    client.data(3, &[0; 1000]);
    client.get(5, "/limited", &[]);
    for stream in [1, 3] {
        let frame = client.read_of(stream).expect("a frame");
        assert_eq!((frame.kind, &frame.payload[..]), (RST_STREAM, &INTERNAL_ERROR[..]), "{stream}");
    }
    assert!(http2::body(&client.answer(5)).contains("/limited"));
    // What is on its way for a stream that is gone does not end the others.
    client.last_data(3, &[0; 1000]);
    client.get(7, "/limited", &[]);
    let frame = client.read_of(7).expect("a frame");
    assert_eq!((frame.kind, &frame.payload[..]), (RST_STREAM, &INTERNAL_ERROR[..]));
    client.get(9, "/other", &[]);
    assert!(http2::body(&client.answer(9)).contains("/other"));
}

#[test]
fn over_tls_the_connection_ends_in_good_order() {
    let upstream = upstream::echo();
    let dir = tempfile::tempdir().expect("a folder");
    let made = rcgen::generate_simple_self_signed(["a.example".to_owned()]).expect("a certificate");
    std::fs::write(dir.path().join("a.pem"), made.cert.pem()).expect("written");
    std::fs::write(dir.path().join("a.key"), made.signing_key.serialize_pem()).expect("written");
    let tls = "name: web, tls: { certificates: [{ cert: a.pem, key: a.key }] },";
    let yaml = yaml(upstream.address, ROUTES).replace("name: web,", tls);
    let gateway = Gateway::start_in(dir, &yaml, &[]);
    let url = format!("https://{}/closed", gateway.web());
    let run = |version: &str| {
        Command::new("curl").args(["-sS", "-k", version, &url]).output().expect("curl is installed")
    };
    // 52: the server returned nothing. Without a close_notify it would be 56.
    let closed = run("--http1.1");
    assert_eq!((closed.status.code(), &*closed.stdout), (Some(52), &b""[..]), "{closed:?}");
    // 92: an error of the stream.
    let reset = run("--http2");
    assert_eq!((reset.status.code(), &*reset.stdout), (Some(92), &b""[..]), "{reset:?}");
}

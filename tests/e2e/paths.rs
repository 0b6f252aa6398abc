//! Paths and queries as real clients write them: what is decided about is what the upstream gets.

use crate::common::{
    Gateway, curl,
    http::{self, Client, head},
    metrics, upstream, yaml,
};

const ROUTES: &str = "  - { name: admin, match: { path_prefix: /admin }, upstream: up, flow: [{ name: a, limit: 1/1h }] }
  - { name: npm, match: { path: '/npm/{package}' }, upstream: up }
  - name: each
    match: { path_prefix: /each }
    upstream: up
    flow: [{ name: p, limit: 1/1h, key: path }]
  - name: partly
    match: { path_prefix: /partly }
    upstream: up
    flow: [{ name: e, limit: 1/1h, except: { path_prefix: /partly/free } }]
  - { name: relaxed, match: { path_prefix: /relaxed }, upstream: up, relaxed_path: true }
  - { name: all, match: { path_prefix: / }, upstream: up }
";

#[test]
fn encoded_slashes_and_single_dots_pass_and_bypass_no_rule() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(upstream.address, ROUTES));
    let mut client = Client::new(gateway.web());
    let sent = |client: &mut Client, path: &str| {
        let answer = client.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        let line = answer.json()["line"].as_str().expect("a line").to_owned();
        line.split(' ').nth(1).expect("a target").to_owned()
    };
    for (path, expected) in [
        ("/@scope%2fname", "/@scope%2fname"),
        ("/@scope%2Fname?write=true", "/@scope%2Fname?write=true"),
        ("/./Packages", "/Packages"),
        ("/dists/./Release?a=./b", "/dists/Release?a=./b"),
        ("/a/%2e/b/.", "/a/b/"),
        ("/relaxed/./a%2f..", "/relaxed/./a%2f.."),
        ("/a;b//c%20d%252fe", "/a;b//c%20d%252fe"),
        ("//x/admin", "/x/admin"),
        ("/.//x?a=//b", "/x?a=//b"),
        ("//relaxed//a", "//relaxed//a"),
    ] {
        assert_eq!(sent(&mut client, path), expected, "{path}");
    }
    // A limit on /admin, however it is written.
    assert_eq!(client.get("/./admin").status, 200);
    assert_eq!(client.get("/%2e/admin").status, 429);
    // One budget for /each/a/b, read in either way.
    assert_eq!(client.get("/each/a%2fb").status, 200);
    for path in ["/each/a/b", "/each/a%2Fb", "/each/./a/b"] {
        assert_eq!(client.get(path).status, 429, "{path}");
    }
}

#[test]
fn a_path_that_leads_elsewhere_if_it_is_read_differently_is_rejected_with_its_setting() {
    let upstream = upstream::echo();
    let text = format!("access_log: access.log\n{}", yaml(upstream.address, ROUTES));
    let gateway = Gateway::start(&text);
    let paths = [
        "/admin%2fx",
        "/%2Fadmin",
        "/npm/@scope%2fname",
        "/admin;x",
        "/;x/admin",
        "/partly/free%2Fx",
        "/public%2f..%2fadmin",
        "/public/..%2Fadmin",
        "/a%2f.%2fb",
        "/a/%2e%2e/b",
        "/a%5c..%5cadmin",
        "/%u0061dmin",
    ];
    for path in paths {
        let answer = http::get(gateway.web(), path);
        let detail = answer.json()["detail"].as_str().expect("a detail").to_owned();
        assert_eq!(answer.status, 400, "{path}");
        assert!(detail.contains("relaxed_path"), "{path}: {detail}");
        assert_eq!(detail.contains("let that route match it too"), path.contains(';'), "{detail}");
    }
    assert_eq!(upstream.connections(), 0, "none of it reached the upstream");
    let rejected = metrics(&gateway, "flowgate_http_rejected_total");
    assert_eq!(rejected["flowgate_http_rejected_total{reason=\"path\"}"], 12.0, "{rejected:?}");
    let logged = crate::common::eventually("the access log is written", || {
        let log = std::fs::read_to_string(gateway.dir.path().join("access.log")).ok()?;
        (log.lines().count() == paths.len()).then_some(log)
    });
    for line in logged.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert!(line["error"].as_str().expect("why").contains("`relaxed_path: true`"), "{line}");
    }
}

#[test]
fn what_browsers_leave_unencoded_in_a_target_passes_in_http_1() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(upstream.address, ROUTES));
    let mut client = Client::new(gateway.web());
    let query = "/api/v1/query?query=up{job=\"a\"}>1 and <2|`3`^\\[4]".replace(' ', "+");
    let expected = "/api/v1/query?query=up{job=%22a%22}%3E1+and+%3C2|`3`^\\[4]";
    for body in ["", "0123456789", "{\"a\": \"<b>\"}"] {
        for _ in 0..2 {
            assert_eq!(client.get(&query).json()["line"], format!("GET {expected} HTTP/1.1"));
        }
        let length = body.len().to_string();
        client.send(head("POST", &query, &[("Content-Length", &length)]) + body);
        let answer = client.read("POST").json();
        assert_eq!(answer["line"], format!("POST {expected} HTTP/1.1"));
        assert_eq!(answer["body"], body.len());
        let chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
        let chunks = if body.is_empty() { "0\r\n\r\n" } else { &chunks };
        client.send(head("POST", &query, &[("Transfer-Encoding", "chunked")]) + chunks);
        assert_eq!(client.read("POST").json()["body"], body.len());
    }
    assert_eq!(client.get("/<a>`").json()["line"], "GET /%3Ca%3E%60 HTTP/1.1");
    // Byte by byte, and idle in between.
    for _ in 0..2 {
        for byte in head("GET", &query, &[]).as_bytes().chunks(7) {
            client.send(byte);
            std::thread::yield_now();
        }
        assert_eq!(client.read("GET").json()["line"], format!("GET {expected} HTTP/1.1"));
        for _ in 0..60 {
            crate::common::pause();
        }
    }
}

#[test]
fn a_target_that_is_only_a_fragment_is_a_slash() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(upstream.address, ROUTES));
    let mut client = Client::new(gateway.web());
    for target in ["http://a#x", "http://a", "http://a/#x", "http://a?#x"] {
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let expected = if target.contains('?') { "GET /? HTTP/1.1" } else { "GET / HTTP/1.1" };
        assert_eq!(client.read("GET").json()["line"], expected, "{target}");
    }
    let url = format!("http://{}/", gateway.web());
    let out = curl(&["--http2-prior-knowledge", "--request-target", "#x", &url]);
    assert!(out.contains("\"GET / HTTP/1.1\""), "{out}");
}

#[test]
fn via_is_off_unless_it_is_asked_for() {
    let upstream = upstream::echo();
    for (setting, expected) in [
        ("", None),
        ("via: off\n", None),
        ("via: on\n", Some("1.1 flowgate")),
        ("via: edge-1\n", Some("1.1 edge-1")),
    ] {
        let gateway = Gateway::start(&format!("{setting}{}", yaml(upstream.address, ROUTES)));
        let headers = http::get(gateway.web(), "/").json()["headers"].clone();
        let via = headers.as_array().expect("a list").iter().find(|pair| pair[0] == "via");
        assert_eq!(via.and_then(|pair| pair[1].as_str()), expected, "{setting}");
    }
}

//! CORS: preflights, the fields on every response, and a browser on another origin.

use crate::common::{
    Gateway,
    browser::Browser,
    curl,
    http::{Answer, Client, ask},
    upstream::{Script, ok},
    yaml,
};
use crate::explain::explained;
use serde_json::json;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

const APP: &str = "https://app.example.com";

/// A server that writes CORS fields of its own, and counts `OPTIONS` requests.
fn server() -> (Script, Arc<AtomicUsize>) {
    let preflights = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&preflights);
    let script = Script::answering(move |request| {
        if request.line.starts_with("OPTIONS ") {
            counter.fetch_add(1, SeqCst);
        }
        let status = request.path().trim_start_matches("/api/").parse().unwrap_or(200);
        let body = if request.line.starts_with("HEAD ") { "" } else { "hello" };
        format!(
            "HTTP/1.1 {status} Its Words\r\nContent-Length: 5\r\nAccess-Control-Allow-Origin: *\r\n\
             ACCESS-CONTROL-ALLOW-METHODS: TRACE\r\nVary: Accept, Accept-Encoding\r\nX-Own: 1\r\n\r\n{body}"
        )
        .into_bytes()
    });
    (script, preflights)
}

const ROUTES: &str = "  - name: api
    match: { path_prefix: /api }
    upstream: up
    auth: { basic: users }
    cors:
      origins: [https://app.example.com, 'https://*.example.org']
      headers: [authorization, x-key]
      expose: [retry-after, x-own]
      credentials: true
      max_age: 10m
    flow: [{ name: few, limit: 2/1h }]
  - name: orders
    match: { path: /orders, method: [PUT, DELETE] }
    upstream: up
    cors: { origins: '*', methods: '*' }
  - { name: read, match: { path_prefix: / }, upstream: up }
";

/// `alice` with the password `open sesame`.
const USERS: &str = "alice:$2y$05$bvIG6Nmid91Mu9RcmmWZfOpG29Fwqhp9izrpUlNDcHYnxtiP7OuIe\n";

fn gateway(server: &Script) -> Gateway {
    let dir = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(dir.path().join("users"), USERS).expect("written");
    Gateway::start_in(dir, &yaml(server.address, ROUTES), &[])
}

fn preflight(client: &mut Client, path: &str, origin: &str, method: &str) -> Answer {
    let fields = [
        ("Origin", origin),
        ("Access-Control-Request-Method", method),
        ("Access-Control-Request-Headers", "x-key,x-other"),
    ];
    client.request("OPTIONS", path, &fields)
}

/// The CORS fields of a response, in the order of their names, and its `Vary` lines.
fn fields(answer: &Answer) -> Vec<(&str, &str)> {
    let mut fields: Vec<_> = answer
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .filter(|(name, _)| name.starts_with("access-control-") || *name == "vary")
        .collect();
    fields.sort_unstable();
    fields
}

#[test]
fn a_preflight_is_answered_before_passwords_and_rules() {
    let (server, preflights) = server();
    let gateway = gateway(&server);
    let mut client = Client::new(gateway.web());
    for origin in [APP, "https://a.example.org"] {
        for _ in 0..3 {
            let answer = preflight(&mut client, "/api/x", origin, "PUT");
            assert_eq!((answer.status, answer.text()), (204, String::new()));
            let expected = [
                ("access-control-allow-credentials", "true"),
                ("access-control-allow-headers", "authorization, x-key"),
                ("access-control-allow-methods", "GET, HEAD, POST, PUT, PATCH, DELETE"),
                ("access-control-allow-origin", origin),
                ("access-control-expose-headers", "retry-after, x-own"),
                ("access-control-max-age", "600"),
                ("vary", "Origin"),
            ];
            assert_eq!(fields(&answer), expected);
        }
    }

    let foreign = preflight(&mut client, "/api/x", "https://evil.example", "PUT");
    assert_eq!((foreign.status, fields(&foreign)), (403, vec![("vary", "Origin")]));
    assert_eq!(foreign.json()["detail"], "`cors` of this route does not allow the origin");

    // The route is that of the request about which the browser asks.
    let orders = preflight(&mut client, "/orders", "https://any.example", "DELETE");
    let expected = [
        ("access-control-allow-headers", "x-key,x-other"),
        ("access-control-allow-methods", "DELETE"),
        ("access-control-allow-origin", "*"),
        ("vary", "Access-Control-Request-Headers"),
    ];
    assert_eq!((orders.status, fields(&orders)), (204, expected.to_vec()));
    assert_eq!(preflights.load(SeqCst), 0);

    // What is no preflight, or none of a route with `cors`, passes.
    assert_eq!(preflight(&mut client, "/orders", APP, "GET").status, 200);
    assert_eq!(preflight(&mut client, "/other", APP, "PUT").status, 200);
    assert_eq!(client.request("OPTIONS", "/other", &[("Origin", APP)]).status, 200);
    assert_eq!(preflights.load(SeqCst), 3);
    assert_eq!(client.request("OPTIONS", "/api/x", &[("Origin", APP)]).status, 401);

    for (origin, status) in [(APP, 204), ("https://evil.example", 403)] {
        let headers = json!([["origin", origin], ["access-control-request-method", "PUT"]]);
        let question = json!({ "method": "OPTIONS", "path": "/api/x", "headers": headers });
        let said = explained(&gateway, &question);
        assert_eq!((&said["decision"], &said["status"]), (&json!("not_asked"), &json!(status)));
    }

    let page = ask(gateway.address("admin"), "/metrics").text();
    let counted = r#"flowgate_flow_decisions_total{route="api","#;
    let mut lines = page.lines().filter(|line| line.starts_with(counted));
    assert!(lines.all(|line| line.ends_with(" 0")), "{page}");
}

#[test]
fn every_response_of_the_route_has_the_fields_and_none_twice() {
    let (server, _) = server();
    let gateway = gateway(&server);
    let mut client = Client::new(gateway.web());
    let basic = ("Authorization", "Basic YWxpY2U6b3BlbiBzZXNhbWU=");
    let mut get = |method: &str, path: &str, own: &[(&str, &str)]| {
        let answer = client.request(method, path, &[&[("Origin", APP)], own].concat());
        let allowed = [
            ("access-control-allow-credentials", "true"),
            ("access-control-allow-origin", APP),
            ("access-control-expose-headers", "retry-after, x-own"),
        ];
        let mut found = fields(&answer);
        found.retain(|field| *field != ("vary", "Accept, Accept-Encoding"));
        assert_eq!(found, [&allowed[..], &[("vary", "Origin")]].concat(), "{path}");
        answer.status
    };
    assert_eq!(get("GET", "/api/200", &[]), 401);
    assert_eq!(get("GET", "/api/200", &[basic]), 200);
    assert_eq!(get("HEAD", "/api/404", &[basic]), 404);
    assert_eq!(get("GET", "/api/200", &[basic]), 429);

    // A request without an origin, or of another one, also varies by it.
    for fields_of in [&[][..], &[("Origin", "https://evil.example")], &[("Origin", "null")]] {
        let answer = client.request("GET", "/api/200", fields_of);
        assert_eq!(fields(&answer), [("vary", "Origin")]);
    }
    // For all origins, nothing varies.
    let fields_of = [("Origin", APP), ("Content-Length", "0")];
    let answer = client.request("PUT", "/orders", &fields_of);
    let expected = [("access-control-allow-origin", "*"), ("vary", "Accept, Accept-Encoding")];
    assert_eq!((answer.status, fields(&answer)), (200, expected.to_vec()));
    // The server's own fields pass where there is no `cors`.
    let other = client.request("GET", "/other", &[("Origin", APP)]);
    assert_eq!(other.header("access-control-allow-methods"), Some("TRACE"));

    // A server that is gone.
    let gone = yaml(server.address, ROUTES.replace("    auth: { basic: users }\n", "").as_str());
    drop(server);
    let gateway = Gateway::start(&gone);
    let answer = Client::new(gateway.web()).request("GET", "/api/1", &[("Origin", APP)]);
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (502, Some(APP)));
}

#[test]
fn a_preflight_of_http2_gets_the_same() {
    let (server, _) = server();
    let gateway = gateway(&server);
    let url = format!("http://{}/api/x", gateway.web());
    let origin = format!("origin: {APP}");
    let asked = ["-X", "OPTIONS", "-H", &origin, "-H", "access-control-request-method: PUT"];
    let answer = curl(&[&["--http2-prior-knowledge", "-i", &url], &asked[..]].concat());
    assert!(answer.starts_with("HTTP/2 204"), "{answer}");
    for field in [
        "access-control-allow-origin: https://app.example.com",
        "access-control-max-age: 600",
        "vary: Origin",
    ] {
        assert!(answer.lines().any(|line| line.trim_end() == field), "{field}: {answer}");
    }
}

#[test]
fn a_browser_reads_what_it_may_and_nothing_else() {
    let page = Script::answering(|_| {
        let page = "<!doctype html><title>app</title>";
        let length = page.len();
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {length}\r\n\r\n{page}"
        )
        .into_bytes()
    });
    let server = Script::answering(|request| {
        let cookie = request.header("cookie").unwrap_or("none");
        let body = format!("{} {cookie}", request.line.split(' ').next().unwrap_or_default());
        ok(&body)
    });
    let origin = format!("http://{}", page.address);
    let routes = format!(
        "  - name: api
    match: {{ path_prefix: /api }}
    upstream: up
    cors: {{ origins: \"{origin}\", methods: [GET, PUT], expose: retry-after, credentials: true }}
    flow: [{{ name: few, limit: 3/1h }}]
  - {{ name: other, match: {{ path_prefix: / }}, upstream: up }}"
    );
    let gateway = Gateway::start(&yaml(server.address, &routes));
    let mut browser = Browser::start();
    browser.open(&origin);
    browser.wait("document.title === 'app'");
    let web = gateway.web();
    let mut fetch = |path: &str, init: &str| {
        browser.value(&format!(
            "fetch('http://{web}{path}', {init}).then(
                async (r) => [r.status, await r.text(), r.headers.get('retry-after')],
                (e) => e.name)"
        ))
    };

    let put = "{ method: 'PUT', headers: { 'X-Key': '1' }, credentials: 'include' }";
    assert_eq!(fetch("/api/1", put), json!([200, "PUT none", null]));
    assert_eq!(fetch("/api/1", "{ credentials: 'include' }"), json!([200, "GET none", null]));
    assert_eq!(fetch("/api/1", "{}"), json!([200, "GET none", null]));
    let rejected = fetch("/api/1", put);
    assert_eq!(rejected[0], 429, "{rejected}");
    assert!(rejected[2].is_string(), "the script reads Retry-After: {rejected}");

    // The browser itself keeps these from the script.
    assert_eq!(fetch("/api/1", "{ method: 'DELETE' }"), "TypeError");
    assert_eq!(fetch("/other", "{}"), "TypeError");
    assert_eq!(fetch("/other", put), "TypeError");
}

//! What the gateway says it would do, beside what it does; and what it has rejected.

use super::common::{
    Gateway, eventually,
    every_algorithm::{EVERY_ALGORITHM, requests},
    http::{Answer, Client},
    upstream::{Script, ok},
    yaml,
};
use serde_json::{Value, json};
use std::{
    fs,
    process::{Command, Output},
};

fn post(gateway: &Gateway, fields: &str, body: &str) -> Answer {
    let mut client = Client::new(gateway.address("admin"));
    let length = body.len();
    client.send(format!(
        "POST /explain HTTP/1.1\r\nhost: 127.0.0.1\r\n{fields}content-length: {length}\r\n\r\n{body}"
    ));
    client.read("POST")
}

const JSON: &str = "content-type: application/json\r\n";

pub(crate) fn explain(gateway: &Gateway, path: &str, tenant: &str) -> Value {
    explained(gateway, &json!({ "path": path, "headers": [["x-tenant", tenant]] }))
}

/// Asks a question.
pub(crate) fn explained(gateway: &Gateway, question: &Value) -> Value {
    let answer = post(gateway, JSON, &question.to_string());
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn rejections(gateway: &Gateway, query: &str) -> Value {
    let mut client = Client::new(gateway.address("admin"));
    let answer = client.request("GET", &format!("/rejections{query}"), &[("host", "127.0.0.1")]);
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn command(gateway: &Gateway, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
    let admin = gateway.address("admin").to_string();
    command.args(arguments).args(["--admin", &admin]).output().expect("it runs")
}

/// Adds an access log in the gateway's folder.
fn logged(yaml: &str) -> String {
    yaml.replacen("workers: 2", "workers: 2\naccess_log: access.log", 1)
}

/// Returns the lines of the access log in their order, once there are `count`.
fn lines(gateway: &Gateway, count: usize) -> Vec<Value> {
    let mut lines = eventually("all requests are logged", || {
        let text = fs::read_to_string(gateway.dir.path().join("access.log")).ok()?;
        let lines: Vec<Value> =
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        (lines.len() == count).then_some(lines)
    });
    lines.sort_by_key(|line| line["ts"].as_str().map(str::to_owned));
    lines
}

/// The interval of `/spaced`, in milliseconds.
const INTERVAL: f64 = 1000.0;

/// Rules whose intervals are long, beside those of every algorithm.
const LONG: &str = "
  - { name: spaced, match: { path: /spaced }, upstream: up, pacing: { rate: 1/1s, max_wait: 10s } }
  - { name: rare, match: { path: /rare }, upstream: up, pacing: { rate: 1/1h, max_wait: 1s } }
  - name: cold
    match: { path: /cold }
    upstream: up
    flow: [{ name: warms, limit: 12/6h, burst: 6, warm_up: { period: 1h }, key: \"header:x-tenant\" }]
  - name: counter
    match: { path: /counter }
    upstream: up
    flow: [{ name: sliding, algorithm: sliding_counter, limit: 4/24h, key: \"header:x-tenant\" }]
";

/// Requests for all rules.
fn all_requests() -> Vec<(String, String)> {
    let mut all = requests(0x9e37_79b9_7f4a_7c15, 120);
    // One after the other: on a busy machine, too, some come within the interval.
    all.extend((0..5).map(|_| ("/spaced".to_owned(), "tenant-0".to_owned())));
    for number in 0..24 {
        let tenant = format!("tenant-{}", number % 3);
        let few: &[&str] = if number < 5 { &["/rare"] } else { &[] };
        let paths = few.iter().chain(&["/cold", "/counter"]);
        all.extend(paths.map(|path| ((*path).to_owned(), tenant.clone())));
    }
    all
}

#[test]
#[expect(clippy::too_many_lines, reason = "one comparison, field by field")]
fn what_is_explained_is_what_happens_next() {
    let up = Script::answering(|_| ok("hello"));
    let gateway = Gateway::start(&logged(&yaml(up.address, &format!("{EVERY_ALGORITHM}{LONG}"))));
    let mut client = Client::new(gateway.web());
    let mut said = Vec::new();
    for (path, tenant) in all_requests() {
        // Another client's peeks in between, of all routes, change nothing.
        for other in
            ["/login", "/search", "/cart?user=1", "/rest/b", "/spaced", "/cold", "/counter"]
        {
            explain(&gateway, other, "tenant-0");
        }
        let explanation = explain(&gateway, &path, &tenant);
        let status = client.request("GET", &path, &[("x-tenant", &tenant)]).status;
        said.push((explanation, status));
    }
    let lines = lines(&gateway, said.len());
    let mut rejected = 0;
    let mut delayed = 0;
    for ((said, status), line) in said.iter().zip(&lines) {
        let flow = &line["flow"];
        assert_eq!(said["route"]["name"], line["route"], "{said} {line}");
        if line["route"].is_null() {
            assert_eq!((said["status"].as_u64(), *status), (Some(404), 404));
            continue;
        }
        assert_eq!(said["decision"], flow["decision"], "{said} {line}");
        assert_eq!(said["reason"], flow["reason"], "{said} {line}");
        let rules = said["rules"].as_array().expect("rules");
        let rule = rules.iter().find(|rule| rule["name"] == flow["rule"]);
        let rule = rule.unwrap_or_else(|| panic!("{said} {line}"));
        for field in ["limit", "used", "cost"] {
            assert_eq!(rule[field], flow[field], "{field}: {said} {line}");
        }
        if let Some(key) = flow["keys"].get(flow["rule"].as_str().expect("a rule")) {
            assert_eq!(&rule["fingerprint"], key, "{said} {line}");
        }
        // It counts down from the question to the request.
        let [before, then] = [&said["wait_ms"], &flow["wait_ms"]].map(Value::as_f64);
        assert!(then.is_some() && before >= then, "{said} {line}");
        if flow["decision"] == "delayed" {
            delayed += 1;
            assert!(then > Some(0.0) && before <= Some(INTERVAL), "{said} {line}");
        } else {
            assert_eq!(before, Some(0.0), "{said} {line}");
        }
        if flow["decision"] == "rejected" {
            rejected += 1;
            assert_eq!(said["rule"], flow["rule"], "{said} {line}");
            // Both count down.
            let retry_after =
                |answer: &Value| answer["retry_after_ms"].as_f64().unwrap_or_default();
            let before = retry_after(said);
            let then = retry_after(flow);
            assert!(before >= then, "{said} {line}");
        }
    }
    assert!(rejected > 50, "{rejected}");
    assert!(delayed > 0, "{delayed}");
    for route in ["rare", "cold", "counter"] {
        let of_route = |line: &&Value| line["route"] == route;
        let of_route: Vec<_> = lines.iter().filter(of_route).collect();
        let is_rejected = |line: &&&Value| line["flow"]["decision"] == "rejected";
        let count = of_route.iter().filter(is_rejected).count();
        assert!((1..of_route.len()).contains(&count), "{route}: {count}");
    }
    // What was peeked at is in no count.
    let listed = rejections(&gateway, "?limit=1000");
    assert_eq!(listed["total"], rejected);
}

#[test]
fn the_server_that_is_named_gets_the_next_request() {
    let servers = [(); 2].map(|()| Script::answering(|_| ok("hello")));
    let [one, two] = [&servers[0], &servers[1]].map(|server| server.address);
    let both = format!("servers: [{{ url: \"http://{one}\" }}, {{ url: \"http://{two}\" }}]");
    let more = format!(
        "upstreams:\n  - {{ name: turns, {both} }}\n  - {{ name: keyed, {both}, balance: hash, hash_key: \"header:x-tenant\" }}"
    );
    let routes = "
  - { name: turns, match: { path: /turns }, upstream: turns }
  - { name: keyed, match: { path: /keyed }, upstream: keyed }
  - { name: up, match: { path: /up }, upstream: up }";
    let gateway = Gateway::start(&logged(&yaml(one, routes)).replacen("upstreams:", &more, 1));
    let mut client = Client::new(gateway.web());
    let mut named = Vec::new();
    for number in 0..40 {
        let tenant = format!("tenant-{}", number * 7 % 10);
        for path in ["/turns", "/keyed"] {
            let server = explain(&gateway, path, &tenant)["upstream"]["server"].clone();
            assert_eq!(client.request("GET", path, &[("x-tenant", &tenant)]).status, 200);
            named.push(server);
        }
    }
    let lines = lines(&gateway, named.len());
    for (server, line) in named.iter().zip(&lines) {
        assert_eq!(*server, line["upstream"], "{line}");
    }
    for route in ["turns", "keyed"] {
        for server in [one, two] {
            let is_there =
                |line: &&Value| line["route"] == route && line["upstream"] == server.to_string();
            let count = lines.iter().filter(is_there).count();
            assert!((4..=36).contains(&count), "{route} to {server}: {count}");
        }
    }
}

#[test]
fn a_route_is_named_with_its_runner_up_and_a_client_that_is_not_let_in_with_its_status() {
    let up = Script::answering(|_| ok("hello"));
    let other = "\n  - { name: all, match: { path_prefix: / }, upstream: up }";
    let gateway = Gateway::start(&yaml(up.address, &format!("{EVERY_ALGORITHM}{other}")));
    let said = explain(&gateway, "/search?q=x", "a");
    assert_eq!(said["route"]["runner_up"]["name"], "all");
    assert_eq!(said["route"]["runner_up"]["because"], "its path is more specific");
    assert_eq!(said["rules"][0]["value"], "a");
    assert_eq!(said["request"]["path"], "/search");
    assert_eq!(said["upstream"]["server"], up.address.to_string());
    let said = explain(&gateway, "/closed", "a");
    assert_eq!((&said["status"], &said["decision"]), (&json!(403), &json!("not_asked")));
    let said = explain(&gateway, "/a%2Fb/../%2e%2e/c", "a");
    assert_eq!(said["status"], 400);
    for (question, part) in [
        (json!({ "path": "nonsense" }), "is not a path"),
        (json!({ "path": "/", "method": "CONNECT" }), "serves no CONNECT"),
        (json!({ "path": "/", "host": "a b" }), "is not a host"),
        (json!({ "path": "/", "listener": "none" }), "there are: web"),
        (json!({ "path": "/", "headers": [["a b", "c"]] }), "is not the name of a header"),
        (json!({ "path": "/", "headers": vec![("a", "b"); 129] }), "more than 128 header lines"),
    ] {
        let answer = post(&gateway, JSON, &question.to_string());
        assert_eq!(answer.status, 422, "{question}");
        assert!(answer.text().contains(part), "{question}: {}", answer.text());
    }
}

#[test]
fn only_operators_get_an_explanation_and_no_page_of_another_site() {
    let up = Script::answering(|_| ok("hello"));
    let open = yaml(up.address, EVERY_ALGORITHM);
    let gateway = Gateway::start(&open);
    let question = "{\"path\": \"/\"}";
    for (fields, status) in [
        (JSON.to_owned(), 200),
        (format!("{JSON}origin: https://evil.example\r\n"), 403),
        (format!("{JSON}sec-fetch-site: cross-site\r\n"), 403),
        ("content-type: text/plain\r\n".to_owned(), 415),
        (String::new(), 415),
    ] {
        assert_eq!(post(&gateway, &fields, question).status, status, "{fields}");
    }
    assert_eq!(post(&gateway, JSON, "{").status, 400);
    assert_eq!(post(&gateway, JSON, &" ".repeat(65 * 1024)).status, 413);
    let guarded = open.replace(
        "admin: { listen: 127.0.0.1:0 }",
        "admin: { listen: 127.0.0.1:0, token: 0123456789abcdef }",
    );
    assert_ne!(open, guarded);
    let gateway = Gateway::start(&guarded);
    assert_eq!(post(&gateway, JSON, question).status, 401);
    let token = "authorization: Bearer 0123456789abcdef\r\n";
    assert_eq!(post(&gateway, &format!("{JSON}{token}"), question).status, 200);
    let output = command(&gateway, &["explain", "/"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("--token-file"), "{said}");
    let output = command(&gateway, &["rejections"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_rejections_of_a_flood_are_listed_by_route_and_rule() {
    let up = Script::answering(|_| ok("hello"));
    let gateway = Gateway::start(&yaml(up.address, EVERY_ALGORITHM));
    let mut client = Client::new(gateway.web());
    let statuses: Vec<u16> = (0..1500)
        .map(|at| client.request("GET", "/login", &[("x-tenant", &at.to_string())]).status)
        .collect();
    assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 1496);
    for _ in 0..7 {
        client.request("GET", "/search", &[("x-tenant", "a")]);
    }
    let list = rejections(&gateway, "?limit=2000");
    assert_eq!((&list["total"], &list["missed"]), (&json!(1498), &json!(0)));
    assert_eq!(list["rejections"].as_array().map(Vec::len), Some(1000), "the last thousand");
    let latest = &list["rejections"][0];
    for (field, value) in [
        ("route", json!("search")),
        ("rule", json!("window")),
        ("reason", json!("rate")),
        ("limit", json!(5)),
        ("used", json!(5)),
        ("cost", json!(1)),
    ] {
        assert_eq!(latest[field], value, "{field}: {latest}");
    }
    assert!(latest["retry_after_ms"].as_f64().is_some_and(|wait| wait > 0.0), "{latest}");
    assert!(latest["client"].is_null(), "there is no access log: {latest}");
    let explained = explain(&gateway, "/search", "a");
    assert_eq!(explained["rules"][0]["fingerprint"], latest["key"], "the key's fingerprint");
    let counts: Vec<_> =
        list["rules"].as_array().into_iter().flatten().map(|rule| rule["count"].clone()).collect();
    assert_eq!(counts, [json!(998), json!(2)]);
    let list = rejections(&gateway, "?route=search&rule=window");
    assert_eq!(list["rejections"].as_array().map(Vec::len), Some(2));
    assert_eq!(rejections(&gateway, "?rule=none")["rejections"], json!([]));
    let output = command(&gateway, &["rejections", "--route", "search"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("rejections since the start: 1498\n"), "{text}");
    assert!(text.contains("     2  search: window (rate)\n"), "{text}");
    assert!(text.contains("5 of 5 used, cost 1, retry after "), "{text}");
    let output = command(&gateway, &["explain", "GET", "/search?q=1", "-H", "x-tenant: a"]);
    let text = String::from_utf8_lossy(&output.stdout);
    for part in [
        "GET /search\n",
        "route search  ",
        "rule window  sliding_window  header:x-tenant = a\n  rejected (rate): 5 of 5 used",
        "rule dry  token_bucket\n  rejected, but for dry_run (rate): 2 of 2 used",
        "→ rejected by window (rate), retry after ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

//! The id by which the logs of clients, gateways and servers name one request.

use crate::common::{
    Gateway, eventually,
    http::{Answer, Client},
    upstream::Script,
    yaml,
};

const ROUTES: &str = "  - { name: all, match: { path_prefix: /ok }, upstream: up }\n  \
    - { name: none, match: { path: /limited }, upstream: up, flow: [{ name: one, limit: 1/1h }] }\n  \
    - { name: other, match: { path: /edited }, upstream: up, request_headers: { remove: x-request-id }, \
    response_headers: { set: { x-request-id: ours } } }\n";

/// An upstream that says in `seen` which ids it got, and has ids of its own.
fn seeing() -> Script {
    Script::answering(|request| {
        let ids =
            request.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("x-request-id"));
        let seen: Vec<_> = ids.map(|(_, id)| id.as_str()).collect();
        let seen = seen.join("|");
        format!(
            "HTTP/1.1 200 OK\r\nX-Request-Id: theirs\r\nSeen: {seen}\r\nContent-Length: 0\r\n\r\n"
        )
        .into()
    })
}

fn ids(answer: &Answer) -> Vec<&str> {
    let named = |(name, _): &&(String, String)| name.eq_ignore_ascii_case("x-request-id");
    answer.headers.iter().filter(named).map(|(_, id)| id.as_str()).collect()
}

fn is_made(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn logged(gateway: &Gateway, requests: usize) -> Vec<Option<String>> {
    eventually("all lines of the access log", || {
        let log = std::fs::read_to_string(gateway.dir.path().join("access.jsonl")).ok()?;
        let lines = log.lines().map(serde_json::from_str::<serde_json::Value>);
        let ids = lines.map(|line| Some(line.ok()?["request_id"].as_str()?.to_owned()));
        Some(ids.collect::<Vec<_>>()).filter(|ids| ids.len() == requests)
    })
}

#[test]
fn client_upstream_and_log_get_the_same_id() {
    let upstream = seeing();
    let gateway =
        Gateway::start(&format!("access_log: access.jsonl\n{}", yaml(upstream.address, ROUTES)));
    let mut client = Client::new(gateway.web());
    let mut expected = Vec::new();
    // The client's own id, and four that are not valid.
    for (sent, is_kept) in
        [(Some("a-1:2/3"), true), (None, false), (Some("a b"), false), (Some(""), false)]
    {
        let fields: Vec<_> = sent.map(|id| ("X-Request-Id", id)).into_iter().collect();
        let answer = client.request("GET", "/ok", &fields);
        let id = answer.header("seen").expect("seen").to_owned();
        assert_eq!(ids(&answer), [&id]);
        assert_eq!(Some(&*id) == sent, is_kept);
        assert!(is_kept || is_made(&id), "{id}");
        expected.push(Some(id));
    }
    // Twice, and named by `Connection`.
    let twice = client.request("GET", "/ok", &[("X-Request-Id", "a"), ("X-Request-Id", "a")]);
    assert!(is_made(twice.header("seen").expect("seen")), "{twice:?}");
    let named =
        client.request("GET", "/ok", &[("X-Request-Id", "b"), ("Connection", "x-request-id")]);
    assert_eq!(named.header("seen"), Some("b"));
    // The gateway's own answers: a rejection, no route.
    client.get("/limited");
    let rejected = client.request("GET", "/limited", &[("X-Request-Id", "mine")]);
    assert_eq!((rejected.status, ids(&rejected)), (429, vec!["mine"]));
    let unknown = client.get("/unknown");
    assert!(unknown.status == 404 && is_made(ids(&unknown)[0]), "{unknown:?}");
    let edited = client.get("/edited");
    assert_eq!((edited.header("seen"), ids(&edited)), (Some(""), vec!["ours"]));
    let logged = logged(&gateway, 10);
    assert_eq!(logged[..4], expected);
    assert_eq!((logged[5].as_deref(), logged[7].as_deref()), (Some("b"), Some("mine")));
    assert!(logged.iter().all(Option::is_some), "{logged:?}");
}

#[test]
fn only_trusted_peers_choose_ids_if_the_file_says_so_and_off_leaves_the_header_alone() {
    let upstream = seeing();
    let text = |settings: &str| {
        format!("access_log: access.jsonl\n{settings}\n{}", yaml(upstream.address, ROUTES))
    };
    let gateway = Gateway::start(&text("request_id: trusted"));
    let seen = || {
        let answer =
            Client::new(gateway.web()).request("GET", "/ok", &[("X-Request-Id", "own id")]);
        let valid = Client::new(gateway.web()).request("GET", "/ok", &[("X-Request-Id", "own")]);
        let seen = |answer: &Answer| answer.header("seen").expect("seen").to_owned();
        (seen(&answer), seen(&valid), ids(&valid).join("|"))
    };
    let (invalid, valid, answered) = seen();
    assert!(is_made(&invalid) && is_made(&valid) && valid == answered);
    let line = gateway.edit(&text("request_id: trusted\ntrusted_proxies: [127.0.0.1]"));
    assert!(line.contains("trusted_proxies"), "{line}");
    let (invalid, valid, answered) = seen();
    assert!(is_made(&invalid) && valid == "own" && valid == answered);
    let line = gateway.edit(&text("request_id: off"));
    assert!(line.contains("request_id trusted → off"), "{line}");
    let expected = ["own id", "own", "theirs"].map(str::to_owned);
    assert_eq!(<[String; 3]>::from(seen()), expected);
    assert_eq!(logged(&gateway, 6)[4..], [None, None]);
}

#[test]
fn a_request_that_is_sent_again_keeps_its_id() {
    let closing = Script::start(|_, mut connection| drop(connection.read()));
    let other = seeing();
    let servers = format!("http://{}\" }}, {{ url: \"http://{}", closing.address, other.address);
    let text = yaml(other.address, ROUTES).replace(&format!("http://{}", other.address), &servers);
    let gateway = Gateway::start(&text);
    for _ in 0..4 {
        let answer = Client::new(gateway.web()).request("GET", "/ok", &[("X-Request-Id", "same")]);
        assert_eq!(answer.header("seen"), Some("same"));
    }
    assert!(closing.connections() > 0);
}

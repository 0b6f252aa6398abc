//! `Retry-After` of rules that are closed, and of those that spread it.

use crate::common::{
    Gateway,
    http::{self, Client},
    upstream::Script,
};
use serde_json::Value;
use std::net::SocketAddr;

fn yaml(upstream: SocketAddr, flow: &str) -> String {
    format!(
        "listeners: [{{ name: web, listen: 127.0.0.1:0 }}]\n\
         upstreams: [{{ name: app, servers: [{{ url: 'http://{upstream}' }}] }}]\n\
         routes: [{{ name: all, match: {{ path_prefix: / }}, upstream: app, flow: [{flow}] }}]\n"
    )
}

#[test]
fn a_closed_rule_rejects_all_and_says_no_time() {
    let server = Script::answering(|_| b"HTTP/1.1 204 No Content\r\n\r\n".to_vec());
    let rule = "{ name: a, limit: 0, overrides: [{ when: { method: PUT }, limit: 9/1m }] }";
    let gateway = Gateway::start(&yaml(server.address, rule));
    let rejected = http::get(gateway.web(), "/");
    assert_eq!((rejected.status, rejected.header("retry-after")), (429, None));
    let body = rejected.json();
    assert_eq!((&body["reason"], &body["retry-after-ms"]), (&"closed".into(), &Value::Null));
    assert_eq!(Client::new(gateway.web()).request("PUT", "/", &[]).status, 204);
}

#[test]
fn rejections_are_spread_and_none_comes_too_early() {
    let server = Script::answering(|_| b"HTTP/1.1 204 No Content\r\n\r\n".to_vec());
    // The next request fits in an hour, of which the test takes some seconds at most.
    let rule = "{ name: a, limit: 1/1h, retry_after_jitter: 30m }";
    let gateway = Gateway::start(&yaml(server.address, rule));
    assert_eq!(http::get(gateway.web(), "/").status, 204);
    let wait = || {
        let rejected = http::get(gateway.web(), "/");
        let header = |name| rejected.header(name).expect("a field").to_owned();
        let wait: u64 = header("retry-after").parse().expect("seconds");
        assert!(header("ratelimit").ends_with(&format!(";t={wait}")), "{}", header("ratelimit"));
        wait
    };
    let waits: Vec<u64> = (0..40).map(|_| wait()).collect();
    assert!(waits.iter().all(|wait| (3_500..=5_400).contains(wait)), "{waits:?}");
    // All of 40 within a third of the time: once in 10^18.
    let spread = waits.iter().max().zip(waits.iter().min()).map(|(most, least)| most - least);
    assert!(spread > Some(600), "{waits:?}");
}

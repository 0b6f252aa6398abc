//! One client in every form of its address: of IPv4, mapped into IPv6, and behind NAT64.

use crate::common::{Gateway, eventually, http::Client, metrics, upstream, yaml};
use std::fs;

/// Forms of an IPv4 address: `64:ff9b:1::/48` is a prefix of the file.
fn forms(of: [u8; 4]) -> [String; 4] {
    let [a, b, c, d] = of;
    [
        format!("{a}.{b}.{c}.{d}"),
        format!("::ffff:{a}.{b}.{c}.{d}"),
        format!("64:ff9b::{a:x}{b:02x}:{c:x}{d:02x}"),
        format!("[64:ff9b:1:{a:x}{b:02x}:{c:x}:{d:x}00::]:443"),
    ]
}

const ROUTES: &str = "  - name: access
    match: { path: /access }
    upstream: up
    access: { deny: [192.0.2.0/24, '64:ff9b::198.51.100.0/120', '64:ff9b:1:cb00:71:700::'] }
  - name: counted
    match: { path: /counted }
    upstream: up
    flow: [{ name: each, limit: 4/1h, key: client_ip, except: { client_ip: [10.9.0.0/16] } }]
trusted_proxies: [127.0.0.0/8, 10.1.0.0/16]
nat64: ['64:ff9b:1::/48']
access_log: access.log
";

#[test]
fn a_client_behind_nat64_is_its_ipv4_address_for_rules_access_proxies_and_logs() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(upstream.address, ROUTES));
    let mut client = Client::new(gateway.web());
    let mut ask =
        |path: &str, from: &str| client.request("GET", path, &[("X-Forwarded-For", from)]).status;

    for denied in [[192, 0, 2, 1], [198, 51, 100, 9], [203, 0, 113, 7]] {
        for form in forms(denied) {
            assert_eq!(ask("/access", &form), 403, "{form}");
        }
    }
    for form in forms([203, 0, 113, 8]) {
        assert_eq!(ask("/access", &form), 200, "{form}");
        assert_eq!(ask("/counted", &form), 200, "{form}");
    }
    for form in forms([203, 0, 113, 8]) {
        assert_eq!(ask("/counted", &form), 429, "{form}: all forms share one count");
    }
    assert_eq!(ask("/counted", "64:ff9b::cb00:7109"), 200, "another client has its own");
    for form in forms([10, 9, 0, 1]) {
        for _ in 0..5 {
            assert_eq!(ask("/counted", &form), 200, "{form} is exempt");
        }
    }
    for proxy in forms([10, 1, 0, 1]) {
        assert_eq!(ask("/access", &format!("192.0.2.1, {proxy}")), 403, "{proxy} is a proxy");
    }

    let log = gateway.dir.path().join("access.log");
    let text = eventually("the access log is written", || {
        let text = fs::read_to_string(&log).ok()?;
        text.contains("\"client_ip\":\"10.9.0.1\"").then_some(text)
    });
    assert!(text.contains("\"client_ip\":\"192.0.2.1\""), "{text}");
    assert!(!text.contains("64:ff9b"), "{text}");
}

#[test]
fn an_entry_of_x_forwarded_for_that_is_no_address_is_counted_and_logged() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(upstream.address, ROUTES));
    let mut client = Client::new(gateway.web());
    let mut ask =
        |from: &str| client.request("GET", "/counted", &[("X-Forwarded-For", from)]).status;
    let name = "flowgate_http_forwarded_for_invalid_total";
    assert_eq!(metrics(&gateway, name)[name], 0.0);

    assert_eq!(ask("\"203.0.113.8\""), 200);
    assert_eq!(ask("203.0.113.8, not-an-address"), 200);
    assert_eq!(ask("not-an-address, 203.0.113.8"), 200, "what the client wrote does not count");
    assert_eq!(ask("203.0.113.8, 127.0.0.2"), 200);
    assert_eq!(metrics(&gateway, name)[name], 2.0);
    let line = gateway.wait_log("x-forwarded-for names no client");
    for part in ["WARN", "proxy=127.0.0.1", r#"the entry `\"203.0.113.8\"` is not an address"#] {
        assert!(line.contains(part), "{line}");
    }

    // At most one line a second.
    for _ in 0..2 {
        assert_eq!(ask("nothing"), 200);
    }
    assert_eq!(ask("nothing"), 429, "they count as the proxy");
    let lines = gateway.log().matches("x-forwarded-for names no client").count();
    assert!(lines <= 3, "{lines}");
    assert_eq!(metrics(&gateway, name)[name], 5.0);
}

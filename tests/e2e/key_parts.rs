//! What rules can count by.

use crate::common::{Gateway, http::Client, run};

const NETWORKS: &str = "\
listeners:
  - { name: web, listen: 127.0.0.1:0 }
  - { name: internal, listen: 127.0.0.1:0 }
trusted_proxies: [127.0.0.1]
admin: { listen: 127.0.0.1:0, show_keys: true }
routes:
  - name: net
    match: { path: /net }
    respond: { status: 200 }
    flow: [{ name: r, limit: 2/6h, key: client_ip, ipv4_prefix: 24 }]
  - name: door
    match: { path: /door }
    respond: { status: 200 }
    flow: [{ name: r, limit: 1/6h, key: listener }]
";

#[test]
fn the_clients_of_an_ipv4_network_count_as_one() {
    let gateway = Gateway::start(NETWORKS);
    let ask = |client: &str| {
        let fields = [("X-Forwarded-For", client)];
        Client::new(gateway.web()).request("GET", "/net", &fields).status
    };
    assert_eq!(["192.0.2.1", "192.0.2.200", "192.0.2.7"].map(ask), [200, 200, 429]);
    assert_eq!(ask("192.0.3.1"), 200, "another network");

    let keys = run(&gateway, &["keys", "net", "r"]);
    assert!(keys.contains("client_ip (IPv4: /24, IPv6: /64)"), "{keys}");
    assert!(keys.contains("192.0.2.0/24"), "{keys}");
    run(&gateway, &["reset", "net", "r", "192.0.2.0/24"]);
    assert_eq!(ask("192.0.2.9"), 200, "an operator gave the network its limit again");

    gateway.edit(&NETWORKS.replace("ipv4_prefix: 24", "ipv4_prefix: 32"));
    assert_eq!(["192.0.2.1", "192.0.2.2"].map(ask), [200, 200], "each address for itself");
}

#[test]
fn each_listener_has_a_count_of_its_own() {
    let gateway = Gateway::start(NETWORKS);
    let ask = |listener: &str| Client::new(gateway.address(listener)).get("/door").status;
    assert_eq!(["web", "internal", "web", "internal"].map(ask), [200, 200, 429, 429]);
    let keys = run(&gateway, &["keys", "door", "r"]);
    assert!(keys.contains("internal") && keys.contains("for each listener"), "{keys}");
    run(&gateway, &["reset", "door", "r", "internal"]);
    assert_eq!(["web", "internal"].map(ask), [429, 200]);
}

const SEGMENTS: &str = "\
listeners: [{ name: web, listen: 127.0.0.1:0 }]
admin: { listen: 127.0.0.1:0, show_keys: true }
routes:
  - name: orgs
    match: { path_prefix: '/orgs/{org}' }
    respond: { status: 200 }
    flow: [{ name: r, limit: 2/6h, key: path:org }]
";

#[test]
fn a_segment_of_the_path_is_a_key_that_no_spelling_changes() {
    let gateway = Gateway::start(SEGMENTS);
    let ask = |path: &str| Client::new(gateway.web()).get(path).status;
    for (path, status) in [
        ("/orgs/acme", 200),
        // Servers differ in the organization that these ask for.
        ("/orgs/acme%2frepos", 400),
        ("/orgs/acme;x=1", 400),
        ("/orgs/acme;/repos", 400),
        ("/orgs/acme%3bx", 400),
        // They agree about these, and no request before used anything.
        ("/orgs/%61cme/repos/a%2fb", 200),
        ("//orgs/./acme/repos/x;y", 429),
        ("/orgs/acm%65/", 429),
        ("/orgs/other", 200),
        ("/orgs/caf%C3%A9%20x", 200),
    ] {
        assert_eq!(ask(path), status, "{path}");
    }
    let keys = run(&gateway, &["keys", "orgs", "r"]);
    assert!(keys.contains("for each path:org") && keys.contains("acme"), "{keys}");
    let explained = run(&gateway, &["explain", "GET", "/orgs/caf%C3%A9%20x/repos"]);
    assert!(explained.contains("path:org = café x"), "{explained}");
    let reset = run(&gateway, &["reset", "orgs", "r", "acme"]);
    assert_eq!(ask("/orgs/acme/repos"), 200, "{reset}");
}

#[test]
fn a_condition_takes_a_list_of_values() {
    let text = "\
listeners: [{ name: web, listen: 127.0.0.1:0 }]
admin: { listen: 127.0.0.1:0 }
routes:
  - name: plan
    match: { path: /a, header: { x-tier: [free, paid] } }
    respond: { status: 200 }
    flow:
      - name: r
        limit: 1/6h
        except: { header: { x-team: [ops, sre] } }
        overrides: [{ when: { header:x-plan: [gold, silver] }, limit: 2/6h }]
";
    let gateway = Gateway::start(text);
    let ask =
        |fields: &[(&str, &str)]| Client::new(gateway.web()).request("GET", "/a", fields).status;
    for (fields, status) in [
        (&[("x-tier", "free")][..], 200),
        (&[("x-tier", "paid")], 429),
        (&[("x-tier", "other")], 404),
        (&[], 404),
        (&[("x-tier", "free"), ("x-team", "sre")], 200),
        (&[("x-tier", "free"), ("x-team", "dev")], 429),
        (&[("x-tier", "free"), ("x-plan", "silver")], 200),
        (&[("x-tier", "free"), ("x-plan", "gold")], 200),
        (&[("x-tier", "free"), ("x-plan", "gold")], 429),
    ] {
        assert_eq!(ask(fields), status, "{fields:?}");
    }
}

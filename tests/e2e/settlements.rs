//! Costs that are settled after the response, end to end.

use crate::{
    common::{
        Gateway, await_ends,
        browser::Browser,
        eventually,
        http::{self, Client},
        upstream::{Request, Script},
    },
    explain::explain,
    port::free_port,
    top,
};
use std::{net::SocketAddr, sync::mpsc};

/// A server whose responses have the status that the path names, as in `/401`.
fn server() -> Script {
    Script::answering(|request: &Request| {
        let status = request.path().trim_start_matches('/');
        format!("HTTP/1.1 {status} As Asked\r\nContent-Length: 4\r\n\r\nbody").into_bytes()
    })
}

fn yaml(upstream: SocketAddr, budgets: &str, flow: &str) -> String {
    format!(
        "workers: 2\n\
         listeners: [{{ name: web, listen: 127.0.0.1:0 }}]\n\
         admin: {{ listen: 127.0.0.1:0 }}\n\
         budgets: [{budgets}]\n\
         upstreams: [{{ name: app, servers: [{{ url: 'http://{upstream}' }}] }}]\n\
         routes: [{{ name: all, match: {{ path_prefix: / }}, upstream: app, flow: [{flow}] }}]\n"
    )
}

const FAILED_LOGINS: &str = "{ name: failed-logins, limit: 5/6h, burst: 5, key: client_ip, \
     cost: { reserve: 1, settle: { status: { 401: 1, '500-599': 3, default: 0 } } } }";

#[test]
fn only_failed_logins_count() {
    let server = server();
    let gateway = Gateway::start(&yaml(server.address, "", FAILED_LOGINS));
    // Each on a connection of its own: the one before is settled when its response is there.
    let statuses = |path: &str, count| http::statuses(gateway.web(), path, count);
    for _ in 0..20 {
        assert_eq!(http::get(gateway.web(), "/200").status, 200);
    }
    assert_eq!(statuses("/401", 4), [401; 4]);
    assert_eq!(statuses("/200", 3), [200; 3]);
    assert_eq!(http::get(gateway.web(), "/401").status, 401);
    let rejected = http::get(gateway.web(), "/200");
    assert_eq!(rejected.status, 429);
    // One of five in six hours.
    let wait: u64 = rejected.header("retry-after").expect("a wait").parse().expect("seconds");
    assert!((4315..=4320).contains(&wait), "{wait}");
}

#[test]
fn what_costs_more_than_was_reserved_is_owed() {
    let server = server();
    let rule =
        "{ name: units, limit: 100/1m, cost: { settle: { status: { 200: 250, default: 0 } } } }";
    let gateway = Gateway::start(&yaml(server.address, "", rule));
    assert_eq!(http::get(gateway.web(), "/404").status, 404);
    assert_eq!(http::get(gateway.web(), "/200").status, 200);
    let rejected = http::get(gateway.web(), "/200");
    assert_eq!((rejected.status, rejected.header("retry-after")), (429, Some("91")));
    let keys = http::ask(gateway.address("admin"), "/keys?route=all&rule=units").json();
    let debt = keys["rules"][0]["debt"].as_u64();
    assert!(debt.is_some_and(|debt| (1..=150).contains(&debt)), "{keys}");
}

#[test]
fn top_and_the_dashboard_show_the_debt() {
    let server = server();
    let rules = "{ name: units, limit: 10/6h, burst: 10, cost: { settle: { status: { 200: 250, default: 0 } } } }, \
         { name: each, limit: 20/6h, burst: 20, key: client_ip, cost: { settle: { status: { 200: 50, default: 0 } } } }";
    let gateway = Gateway::start(&yaml(server.address, "", rules));
    assert_eq!(http::get(gateway.web(), "/200").status, 200);

    eventually("`top` shows the debts", || {
        let shown = top::once(&gateway);
        (shown.contains("250 of 10 full, debt 240") && shown.contains(", debt 30")).then_some(())
    });
    let mut browser = Browser::start();
    browser.open(&format!("http://{}/dashboard", gateway.address("admin")));
    browser.wait("document.querySelectorAll('#rows > li').length === 1");
    browser.value("document.querySelector('#rows .toggle').click()");
    let shown = "document.querySelector('#rows').innerText";
    browser.wait(&format!("{shown}.includes('250 of 10, debt 240')"));
    browser.wait(&format!("{shown}.includes('50 of 20 by the fullest key, debt 30')"));
}

#[test]
fn a_failure_before_the_response_gives_the_reserve_back_and_a_client_that_leaves_does_not() {
    let rule =
        "{ name: units, limit: 2/6h, cost: { reserve: 2, settle: { status: { default: 2 } } } }";
    let gateway = Gateway::start(&yaml(([127, 0, 0, 1], free_port()).into(), "", rule));
    assert_eq!(http::statuses(gateway.web(), "/", 5), [502; 5]);

    let (asked, is_asked) = mpsc::channel();
    let silent = Script::start(move |_, mut connection| {
        connection.read();
        asked.send(()).expect("the test waits");
        // Until the gateway closes it.
        connection.read();
    });
    let gateway = Gateway::start(&yaml(silent.address, "", rule));
    let mut client = Client::new(gateway.web());
    client.send(http::head("GET", "/", &[]));
    is_asked.recv().expect("the server is asked");
    drop(client);
    await_ends(&gateway);
    assert_eq!(http::get(gateway.web(), "/").status, 429);
}

#[test]
fn a_budget_and_its_parent_settle_each_for_itself() {
    let server = server();
    let budgets = "{ name: org, limit: 10/6h, burst: 10, cost: { reserve: 4, settle: { status: { default: 2 } } } }, \
         { name: team, limit: 6/6h, burst: 6, parent: org, cost: { settle: { status: { 200: 3, default: 0 } } } }";
    let gateway = Gateway::start(&yaml(server.address, budgets, "{ budget: team }"));
    // The org has 2 of each request and needs 4 for the next; the team has 3 of each with 200.
    assert_eq!(http::statuses(gateway.web(), "/404", 2), [404; 2]);
    assert_eq!(http::statuses(gateway.web(), "/200", 2), [200; 2]);
    let rejected = http::get(gateway.web(), "/404");
    assert_eq!(rejected.status, 429);
    assert!(
        rejected.text().contains("org") && rejected.text().contains("team"),
        "{}",
        rejected.text()
    );
}

#[test]
fn an_edit_may_add_and_remove_the_settlement() {
    let server = server();
    let plain = "{ name: units, limit: 9/6h, burst: 9, cost: 3 }";
    let settled = "{ name: units, limit: 9/6h, burst: 9, cost: { reserve: 3, settle: { status: { default: 0 } } } }";
    let gateway = Gateway::start(&yaml(server.address, "", plain));
    assert_eq!(http::statuses(gateway.web(), "/200", 2), [200; 2]);
    gateway.edit(&yaml(server.address, "", settled));
    assert_eq!(http::statuses(gateway.web(), "/200", 9), [200; 9]);
    gateway.edit(&yaml(server.address, "", plain));
    assert_eq!(http::statuses(gateway.web(), "/200", 2), [200, 429]);
}

/// A server whose response has these fields and this body, with `x-cost` as trailer `n` if asked.
fn saying(answer: &'static str) -> Script {
    Script::answering(move |_| answer.into())
}

#[test]
fn numbers_in_fields_bytes_and_time_are_costs() {
    let header = saying("HTTP/1.1 200 OK\r\nX-Cost: 2.5\r\nContent-Length: 4\r\n\r\nbody");
    let trailer = saying(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-cost\r\n\r\n4\r\nbody\r\n0\r\nx-cost: 7\r\n\r\n",
    );
    let no_number = saying("HTTP/1.1 200 OK\r\nX-Cost: much\r\nContent-Length: 0\r\n\r\n");
    for (server, settle, passing) in [
        (&header, "header: x-cost", 4),
        (&trailer, "trailer: x-cost", 2),
        (&header, "bytes: response", 3),
        // The reserve stays.
        (&no_number, "header: x-cost", 12),
        (&no_number, "bytes: both", 50),
    ] {
        let rule = format!(
            "{{ name: units, limit: 12/6h, burst: 12, cost: {{ settle: {{ {settle} }} }} }}"
        );
        let gateway = Gateway::start(&yaml(server.address, "", &rule));
        let passed = (0..50).take_while(|_| http::get(gateway.web(), "/").status == 200).count();
        assert_eq!(passed, passing, "{settle}");
    }

    let rule = "{ name: time, limit: 1000000/6h, cost: { settle: { time: 1us } } }";
    let gateway = Gateway::start(&yaml(header.address, "", rule));
    assert_eq!(http::get(gateway.web(), "/").status, 200);
    let text = http::ask(gateway.address("admin"), "/metrics").text();
    let settled = "flowgate_flow_cost_settled_total{route=\"all\",rule=\"time\"}";
    let line = text.lines().find(|line| line.starts_with(settled)).expect("its cost");
    let micros: f64 = line.rsplit(' ').next().expect("a value").parse().expect("a number");
    assert!(micros > 10.0, "{line}");
    let explained = explain(&gateway, "/", "a");
    assert_eq!(explained["rules"][0]["is_reserve"], true, "{explained}");
}

#[test]
fn a_reserve_is_learned_and_stays_over_an_edit() {
    let server = saying("HTTP/1.1 200 OK\r\nX-Cost: 30\r\nContent-Length: 0\r\n\r\n");
    let rule = |limit: u64| {
        format!(
            "{{ name: units, limit: {limit}/6h, cost: {{ reserve: auto, settle: {{ header: x-cost }} }} }}"
        )
    };
    let gateway = Gateway::start(&yaml(server.address, "", &rule(1000)));
    let reserve = || {
        let explained = explain(&gateway, "/", "a");
        explained["rules"][0]["cost"].as_u64().expect("a reserve")
    };
    assert_eq!(reserve(), 1);
    assert_eq!(http::get(gateway.web(), "/").status, 200);
    assert_eq!(reserve(), 30);
    gateway.edit(&yaml(server.address, "", &rule(20)));
    assert_eq!(reserve(), 20, "it is cut to the limit");
    gateway.edit(&yaml(server.address, "", &rule(2000)));
    assert_eq!(reserve(), 30);
}

#[test]
fn the_log_has_both_costs() {
    let server = server();
    let budgets =
        "{ name: org, limit: 100/6h, cost: { reserve: 4, settle: { status: { default: 2 } } } }";
    let flow = "{ name: own, limit: 100/6h, cost: { reserve: 5, settle: { status: { 401: 9 } } } }, { budget: org }";
    let text = format!("access_log: access.jsonl\n{}", yaml(server.address, budgets, flow));
    let gateway = Gateway::start(&text);
    assert_eq!(http::get(gateway.web(), "/401").status, 401);
    assert_eq!(http::get(gateway.web(), "/200").status, 200);
    let file = gateway.dir.path().join("access.jsonl");
    let lines = eventually("two lines", || {
        let text = std::fs::read_to_string(&file).ok()?;
        let mut lines: Vec<serde_json::Value> =
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        // Each worker writes its own.
        lines.sort_by_key(|line| line["status"] == 200);
        (lines.len() == 2).then_some(lines)
    });
    let costs = |line: usize, name: &str| lines[line]["flow"][name].clone();
    assert_eq!(costs(0, "reserved"), serde_json::json!({ "own": 5, "org": 4 }));
    assert_eq!(costs(0, "settled"), serde_json::json!({ "own": 9, "org": 2 }));
    assert_eq!(costs(1, "reserved"), serde_json::json!({ "own": 5, "org": 4 }));
    assert_eq!(costs(1, "settled"), serde_json::json!({ "org": 2 }), "200 is not listed");
}

//! Costs that are settled after the response, end to end.

use crate::{
    common::{
        Gateway, eventually,
        http::{self, Client},
        metrics,
        upstream::{Request, Script},
    },
    port::free_port,
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
    eventually("the request has ended", || {
        let in_flight = metrics(&gateway, "flowgate_requests_in_flight");
        in_flight.values().all(|count| *count == 0.0).then_some(())
    });
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

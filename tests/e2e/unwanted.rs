//! Bodies of requests that nobody wants.

use crate::common::{
    Gateway,
    http::{Client, head},
    upstream, yaml,
};

#[test]
fn a_request_that_no_route_matches_keeps_its_connection_if_its_body_is_small() {
    let upstream = upstream::echo();
    let route = "  - { name: all, match: { path: /known }, upstream: up }";
    let gateway = Gateway::start(&yaml(upstream.address, route));
    let mut client = Client::new(gateway.web());
    for _ in 0..3 {
        client.send(head("POST", "/unknown", &[("Content-Length", "5")]));
        let answer = client.read("POST");
        assert_eq!((answer.status, answer.header("connection")), (404, None));
        client.send("hello");
        assert_eq!(client.get("/known").status, 200);
    }
    client.send(head("POST", "/unknown", &[("Content-Length", "1000000")]));
    let answer = client.read("POST");
    assert_eq!((answer.status, answer.header("connection")), (404, Some("close")));
    client.send("x".repeat(1_000_000));
    assert!(client.is_closed());
}

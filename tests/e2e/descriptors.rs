//! A gateway whose limit of open files is lower than its limit of connections.

use crate::common::{
    Gateway, eventually,
    http::{self, Client, head},
    metrics, upstream, yaml,
};
use std::io::Write;

const ALL: &str = "  - { name: all, match: { path_prefix: / }, upstream: up }";

#[test]
fn clients_leave_descriptors_for_upstreams_and_the_admin_listener() {
    let upstream = upstream::echo();
    let text = format!(
        "timeouts: {{ header_read: 1m }}\n{}",
        yaml(upstream.address, ALL).replace("workers: 2", "workers: 1")
    );
    let gateway = Gateway::start_with_files(&text, 100);
    let warning = gateway.wait_log("200128 would be enough");
    assert!(warning.contains("WARN") && warning.contains("open files is 100"), "{warning}");
    let mut clients: Vec<_> = (0..120).map(|_| Client::new(gateway.web())).collect();
    gateway.wait_log("too few file descriptors");
    assert_eq!(http::ask(gateway.address("admin"), "/healthz").status, 200);
    assert_eq!(clients[0].get("/").status, 200, "one that was accepted is served");
    let rejected = metrics(&gateway, "flowgate_http_rejected_total");
    assert!(rejected[r#"flowgate_http_rejected_total{reason="connections"}"#] > 0.0);
    clients.clear();
    eventually("there is room again", || {
        let mut client = Client::new(gateway.web());
        // It may be rejected before it has asked.
        drop(client.stream.get_mut().write_all(head("GET", "/", &[]).as_bytes()));
        client.try_read("GET").filter(|answer| answer.status == 200)
    });
    assert!(!gateway.log().contains("cannot accept"), "it never came to that");
    let seen = gateway.log_len();
    gateway.edit(&format!("limits: {{ connections: 8 }}\n{text}"));
    gateway.edit(&format!("limits: {{ connections: 1000 }}\n{text}"));
    gateway.wait_log_after(seen, "2128 would be enough");
}

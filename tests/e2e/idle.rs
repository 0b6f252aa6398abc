//! What clients cost that are connected and ask for nothing.

use crate::common::{
    Gateway, eventually,
    http::{self, Client},
    upstream, yaml,
};
use std::{
    fs,
    time::{Duration, Instant},
};

const ALL: &str = "  - { name: all, match: { path_prefix: / }, upstream: up }";
const CLIENTS: usize = 500;
const BATCH: usize = 25;

/// More than a connection is idle before it sleeps.
const A_MOMENT: Duration = Duration::from_millis(200);

/// What one idle connection may hold. Built without optimisation futures are larger
/// than in a release, which needs 2.5 KiB; hyper's buffers alone would be 16 KiB.
const KIB_EACH: usize = 6;

/// The process's resident memory.
fn resident_kib(gateway: &Gateway) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", gateway.pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
    line.trim().trim_end_matches("kB").trim().parse().expect("a number")
}

#[test]
fn idle_connections_hold_little_memory_and_still_answer() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(upstream.address, ALL));
    let web = gateway.web();
    // What is allocated once for all is there before.
    for _ in 0..5 {
        http::get(web, "/");
    }
    let before = resident_kib(&gateway);
    let mut clients: Vec<Client> = Vec::new();
    while clients.len() < CLIENTS {
        // A few at a time: memory that all of them held at once would be free, but
        // resident all the same.
        for _ in 0..BATCH {
            let mut client = Client::new(web);
            assert_eq!(client.get("/").status, 200);
            clients.push(client);
        }
        let since = Instant::now();
        eventually("they sleep", || (since.elapsed() > A_MOMENT).then_some(()));
    }
    let each = resident_kib(&gateway).saturating_sub(before) / CLIENTS;
    assert!(each < KIB_EACH, "{each} KiB for each");
    for client in &mut clients {
        assert_eq!(client.get("/").status, 200);
    }
}

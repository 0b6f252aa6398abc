//! Gateways that are cut off from the store without a reset: packets are lost both ways, and
//! come late, as TCP sends them again.

use crate::{
    cluster::{Wire, config, hammer, server::Server, up},
    common::{Gateway, eventually, upstream},
    divided::divided,
    synced::{flood, settled, sum, used},
};
use std::{
    sync::atomic::Ordering::SeqCst,
    time::{Duration, Instant},
};

/// Starts three gateways, each with a wire of its own to the store.
fn three(server: &Server, yaml: impl Fn(u16) -> String) -> (Vec<Wire>, Vec<Gateway>) {
    let wires: Vec<Wire> = (0..3).map(|_| Wire::to(server)).collect();
    let gateways: Vec<_> = wires.iter().map(|wire| Gateway::start(&yaml(wire.port))).collect();
    for gateway in &gateways {
        gateway.wait_log("the store decides");
    }
    (wires, gateways)
}

#[test]
fn a_gateway_that_is_cut_off_from_the_store_has_its_part_and_the_others_have_the_limit() {
    let upstream = upstream::echo();
    let server = Server::start();
    let rules = "    flow: [{ name: r, algorithm: fixed_window, limit: 90/1000h, scope: cluster }]";
    let store = "timeout: 500ms, lease: 30s";
    let (wires, gateways) = three(&server, |port| config(upstream.address, port, store, rules));
    divided(&gateways, 30);
    wires[0].cut.store(true, SeqCst);
    let logged = gateways[0].log_len();
    let began = Instant::now();
    assert_eq!(hammer(&gateways[..1], 100), [30, 170, 0]);
    // One call of each worker, and some that began before all knew. If each request waited for its
    // call, a client's hundred would take 50 s.
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    gateways[0].wait_log_after(logged, "the store fails");
    assert_eq!(hammer(&gateways[1..], 20), [80, 0, 0]);
    wires[0].cut.store(false, SeqCst);
    gateways[0].wait_log_after(logged, "the store decides");
    eventually("it is up", || (up(&gateways[0]) == 1.0).then_some(()));
    // What was asked before it gave up is late, and was charged all the same.
    let charged = used(&server).expect("a count");
    assert!((80..=84).contains(&charged), "{charged}");
    let [more, _, failed] = hammer(&gateways, 20);
    assert_eq!((more as u64 + charged, failed), (90, 0), "one limit again");
}

#[test]
fn nothing_is_lost_or_counted_twice_when_a_gateway_is_cut_off_in_a_flood() {
    let upstream = upstream::echo();
    let server = Server::start();
    let rule = "    flow: [{ name: r, algorithm: fixed_window, limit: 1000000/1000h, scope: cluster, sync_interval: 20ms }]";
    let (wires, gateways) =
        three(&server, |port| config(upstream.address, port, "timeout: 500ms", rule));
    settled(&gateways, 1_000_000);
    let flood = flood(&gateways, Duration::from_secs(4));
    eventually("some are sent", || used(&server).filter(|used| *used > 20));
    for at in [0, 1, 0] {
        let logged = gateways[at].log_len();
        wires[at].cut.store(true, SeqCst);
        gateways[at].wait_log_after(logged, "the store fails");
        wires[at].cut.store(false, SeqCst);
        gateways[at].wait_log_after(logged, "the store decides");
    }
    let passed = sum(flood);
    eventually("all is sent", || (used(&server)? >= passed).then_some(()));
    settled(&gateways, 1_000_000);
    assert_eq!(used(&server), Some(passed));
}

//! Slots of a Redis Cluster that one node hands over to another.

use crate::{
    cluster::{PATIENT, Wire, gateways, pid, server::Server, signal, up},
    common::{Gateway, eventually, field, metrics, upstream},
    nodes::{cluster, counted, node_of, nodes, nodes_on, passed, route_on, routes_on, two_routes},
    port::free_port,
};
use std::sync::atomic::Ordering::SeqCst;

/// A slot that one node hands over to another.
struct Move<'a> {
    from: &'a Server,
    to: &'a Server,
    slot: String,
}

impl<'a> Move<'a> {
    fn begin(nodes: &'a [Server], route: &str, to: usize) -> Self {
        let from = &nodes[node_of(nodes, route)];
        let to = &nodes[to];
        let slot = cluster(from, &["KEYSLOT", route]);
        cluster(to, &["SETSLOT", &slot, "IMPORTING", &cluster(from, &["MYID"])]);
        cluster(from, &["SETSLOT", &slot, "MIGRATING", &cluster(to, &["MYID"])]);
        Self { from, to, slot }
    }

    fn key(&self, key: &str) {
        let mut migrate = redis::cmd("MIGRATE");
        migrate.arg(&["127.0.0.1", &self.to.port.to_string(), key, "0", "5000"]);
        migrate.exec(&mut self.from.connection()).expect("moved");
    }

    fn rest(&self) {
        let mut keys = redis::cmd("CLUSTER");
        keys.arg(&["GETKEYSINSLOT", &self.slot, "100"]);
        let keys: Vec<String> = keys.query(&mut self.from.connection()).expect("the rest");
        for key in keys {
            self.key(&key);
        }
    }

    fn end(self, nodes: &[Server]) {
        let owner = cluster(self.to, &["MYID"]);
        for node in [self.to, self.from].into_iter().chain(nodes) {
            cluster(node, &["SETSLOT", &self.slot, "NODE", &owner]);
        }
    }
}

/// Has the keys of the first of two routes go to a node that has not their slot yet, with a request
/// of each route before and after.
fn moved<'a>(
    nodes: &'a [Server],
    names: [&str; 2],
    to: usize,
    passed: impl Fn(usize) -> usize,
) -> Move<'a> {
    assert_eq!([passed(0), passed(1)], [1, 1]);
    counted(&nodes[node_of(nodes, names[0])], names[0], 1);
    let slot = Move::begin(nodes, names[0], to);
    slot.rest();
    assert_eq!([passed(0), passed(1)], [1, 1], "the one redirects to the other");
    slot
}

#[test]
fn a_slot_that_moves_to_another_node_takes_its_counts_along_and_disturbs_no_other() {
    let upstream = upstream::echo();
    let nodes = nodes();
    let moving = &*route_on(&nodes, 1);
    let staying = &*route_on(&nodes, 2);
    let port = nodes[0].port;
    let yaml = two_routes(upstream.address, (port, PATIENT), 20, [moving, staying]);
    let gateways = gateways(2, &yaml);
    let passed = |route: &str, requests| passed(&gateways, route, requests);
    for route in [moving, staying] {
        assert_eq!(passed(route, 2), 4);
    }
    counted(&nodes[1], moving, 4);
    let logged: Vec<usize> = gateways.iter().map(Gateway::log_len).collect();
    let slot = Move::begin(&nodes, moving, 2);
    assert_eq!(passed(moving, 1), 2, "all is where it was");
    slot.key(&format!("flowgate:{{{moving}}}:a:fixed/3600000000000"));
    assert_eq!(passed(moving, 1), 0, "a script cannot ask two nodes");
    assert_eq!(passed(staying, 1), 2);
    slot.rest();
    assert_eq!(passed(moving, 1), 2, "each time, the one redirects to the other");
    slot.end(&nodes);
    assert_eq!(passed(moving, 20), 12, "20 in all");
    assert_eq!(passed(staying, 1), 2);
    counted(&nodes[2], moving, 20);
    for (gateway, logged) in gateways.iter().zip(logged) {
        gateway.wait_log_after(logged, "the store rejected a call");
        let log = gateway.log();
        let said: Vec<_> = log.lines().skip(logged).collect();
        assert!(said.len() == 1 && said[0].contains("the store rejected a call"), "{log}");
        assert_eq!(up(gateway), 1.0);
    }
}

#[test]
fn while_the_slot_moves_where_gateways_greet_the_routes_of_others_stay_with_the_store() {
    let upstream = upstream::echo();
    let nodes = nodes();
    let greeted = node_of(&nodes, "gateways");
    let to = (greeted + 1) % 3;
    let names = [route_on(&nodes, to), route_on(&nodes, (greeted + 2) % 3)];
    let names = names.each_ref().map(String::as_str);
    let store = (nodes[to].port, &*format!("{PATIENT}, lease: 1s"));
    let yaml = two_routes(upstream.address, store, 900, names);
    let mut all = gateways(1, &yaml);
    let before = all[0].log_len();
    let slot = Move::begin(&nodes, "gateways", to);
    slot.key("flowgate:{gateways}:secret");
    let line = all[0].wait_log_after(before, "the store rejected a call");
    assert_eq!(field(&line, "call"), "greeting");
    assert!(line.contains(&format!("127.0.0.1:{}: ", nodes[greeted].port)), "{line}");
    for _ in 0..20 {
        assert_eq!(names.map(|name| passed(&all, name, 1)), [1, 1], "{}", all[0].log());
    }
    slot.rest();
    slot.end(&nodes);
    all.extend(gateways(1, &yaml));
    eventually("they count each other", || {
        let count =
            |gateway| metrics(gateway, "flowgate_store_gateways")["flowgate_store_gateways"];
        all.iter().all(|gateway| count(gateway) == 2.0).then_some(())
    });
    let log = all[0].log();
    assert!(!log.contains("the store fails") && !log.contains("nodes of the store fail"), "{log}");
    assert_eq!(up(&all[0]), 1.0);
}

#[test]
fn a_node_that_hangs_while_another_sends_to_it_is_out_and_not_the_other() {
    let upstream = upstream::echo();
    let nodes = nodes();
    for node in &nodes {
        // They name no host then, when they send to each other.
        let mut set = redis::cmd("CONFIG");
        set.arg(&["SET", "cluster-preferred-endpoint-type", "unknown-endpoint"]);
        set.exec(&mut node.connection()).expect("it is set");
    }
    let greeted = node_of(&nodes, "gateways");
    let [from, to] = [1, 2].map(|at| (greeted + at) % 3);
    let names = routes_on(&nodes, from);
    let names = names.each_ref().map(String::as_str);
    let store = (nodes[from].port, "timeout: 1s, connect_timeout: 4s");
    let gateways = gateways(1, &two_routes(upstream.address, store, 900, names));
    let passed = |at: usize| passed(&gateways, names[at], 1);
    let slot = moved(&nodes, names, to, passed);
    let before = gateways[0].log_len();
    let pid = pid(&nodes[to]);
    signal(&pid, "STOP");
    assert_eq!(passed(0), 0);
    for _ in 0..20 {
        assert_eq!([passed(0), passed(1)], [0, 1], "{}", gateways[0].log());
    }
    signal(&pid, "CONT");
    gateways[0].wait_log_after(before, "nodes of the store decide again");
    assert_eq!([passed(0), passed(1)], [1, 1]);
    slot.end(&nodes);
}

#[test]
fn two_nodes_that_use_the_time_of_a_call_up_together_are_both_in() {
    let upstream = upstream::echo();
    let ports = [(); 3].map(|()| free_port());
    let wires = ports.map(Wire::to_port);
    let nodes = nodes_on(ports, wires.each_ref().map(|wire| wire.port));
    let greeted = node_of(&nodes, "gateways");
    let [from, to] = [1, 2].map(|at| (greeted + at) % 3);
    let names = [from, to].map(|node| route_on(&nodes, node));
    let names = names.each_ref().map(String::as_str);
    let store = (wires[greeted].port, "timeout: 1s, connect_timeout: 16s");
    let gateways = gateways(1, &two_routes(upstream.address, store, 900, names));
    let passed = |at: usize| passed(&gateways, names[at], 1);
    let slot = moved(&nodes, names, to, passed);
    let before = gateways[0].log_len();
    // Each alone is in time, of the second even four answers that wait for each other.
    wires[from].delay.store(850, SeqCst);
    wires[to].delay.store(220, SeqCst);
    let line = eventually("it is nobody's fault", || {
        assert_eq!([passed(0), passed(1)], [0, 1], "{}", gateways[0].log());
        let log = gateways[0].log();
        log.lines().skip(before).find(|line| line.contains("over two nodes")).map(str::to_owned)
    });
    assert!(line.contains("the store rejected a call"), "{line}");
    let names = [from, to].map(|at| format!("127.0.0.1:{}", wires[at].port));
    assert!(line.contains(&format!("nodes: {} and {}", names[0], names[1])), "{line}");
    for wire in &wires {
        wire.delay.store(0, SeqCst);
    }
    eventually("both decide", || ([passed(0), passed(1)] == [1, 1]).then_some(()));
    slot.end(&nodes);
}

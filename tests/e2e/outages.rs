//! Nodes of a Redis Cluster that go: ones that nobody asks, and one whose replica takes over.

use crate::{
    cluster::{PATIENT, Wire, gateways, pid, server::Server, signal, up},
    common::{Gateway, PATIENCE, eventually, field, metrics, upstream, yaml},
    nodes::{cluster, node_of, nodes, nodes_on, passed, route_on},
    port::free_port,
    stores::user,
};
use std::{
    io::{BufRead, BufReader, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    sync::atomic::Ordering::SeqCst,
    time::{Duration, Instant},
};

/// Returns a setting of a node.
fn setting(node: &Server, name: &str) -> String {
    let mut get = redis::cmd("CONFIG");
    let values = get.arg(&["GET", name]).query(&mut node.connection());
    let values: Vec<String> = values.expect("a setting");
    values.into_iter().nth(1).expect("its value")
}

fn set(node: &Server, name: &str, value: &str) {
    let mut set = redis::cmd("CONFIG");
    set.arg(&["SET", name, value]).exec(&mut node.connection()).expect("it is set");
}

/// Ends a node at once, and returns what starts it again with what it knows of its cluster.
fn kill(node: &Server) -> impl FnOnce() -> Server {
    let names = ["dir", "cluster-port", "cluster-node-timeout"];
    let settings = names.map(|name| [format!("--{name}"), setting(node, name)]).concat();
    let pid = pid(node);
    let port = node.port;
    signal(&pid, "KILL");
    eventually("it has ended", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.contains(") Z ").then_some(())
    });
    move || {
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        Server::start_on(port, &[&["--cluster-enabled", "yes"], &settings[..]].concat())
    }
}

/// Starts a replica of a node, which has all that this has.
fn replica(nodes: &[Server], of: &Server) -> Server {
    let bus = free_port().to_string();
    let replica =
        Server::start_on(free_port(), &["--cluster-enabled", "yes", "--cluster-port", &bus]);
    cluster(&replica, &["MEET", "127.0.0.1", &of.port.to_string(), &setting(of, "cluster-port")]);
    for node in nodes.iter().chain([&replica]) {
        eventually("they know each other", || {
            cluster(node, &["INFO"]).contains("cluster_known_nodes:4").then_some(())
        });
    }
    // It would wait for more replicas.
    set(of, "repl-diskless-sync-delay", "0");
    cluster(&replica, &["REPLICATE", &cluster(of, &["MYID"])]);
    eventually("it has all", || {
        let mut info = redis::cmd("INFO");
        let info: String = info.arg("replication").query(&mut replica.connection()).ok()?;
        info.contains("master_link_status:up").then_some(())
    });
    for node in nodes {
        let at = format!("127.0.0.1:{}@{bus} slave", replica.port);
        eventually("they know it as a replica", || {
            cluster(node, &["NODES"]).contains(&at).then_some(())
        });
    }
    user(&replica, "cluster|slots asking");
    replica
}

/// Returns the configuration of a route with one rule.
fn one_route(upstream: SocketAddr, port: u16, route: &str, limit: u32) -> String {
    let store = format!(
        "store: {{ redis: \"redis://gate:primary-word@127.0.0.1:{port}\", cluster: true, {PATIENT} }}\n"
    );
    let rule = "name: a, algorithm: fixed_window, scope: cluster, on_store_error: deny, limit";
    let route = format!(
        "  - {{ name: {route}, match: {{ path_prefix: / }}, upstream: up, flow: [{{ {rule}: {limit}/1000h }}] }}"
    );
    store + &yaml(upstream, &route)
}

/// Returns what a node does from now on, a line for each command.
fn monitor(node: &Server) -> impl Iterator<Item = String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, node.port)).expect("it is there");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    stream.write_all(b"MONITOR\r\n").expect("it takes that");
    let mut lines = BufReader::new(stream).lines().map(|line| line.expect("a line"));
    assert_eq!(lines.next().as_deref(), Some("+OK"));
    lines
}

/// Returns what a node or its replica has counted of a route.
fn state(node: &Server, route: &str) -> Option<String> {
    let mut connection = node.connection();
    redis::cmd("READONLY").exec(&mut connection).ok()?;
    let key = format!("flowgate:{{{route}}}:a:fixed/3600000000000");
    redis::cmd("GET").arg(key).query(&mut connection).ok()
}

/// Whether the log says that a node does not fail any more, perhaps together with others.
fn is_back(gateway: &Gateway, port: u16) -> bool {
    let name = format!("127.0.0.1:{port}");
    let log = gateway.log();
    let mut back = log.lines().filter(|line| line.contains("nodes of the store decide again"));
    back.any(|line| line.contains(&name))
}

/// Returns the connections of gateways to a node.
fn gates(node: &Server) -> Vec<String> {
    let clients = redis::cmd("CLIENT").arg("LIST").query(&mut node.connection());
    let clients: String = clients.expect("the clients");
    let gates = clients.lines().filter(|line| line.contains(" user=gate "));
    gates.map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn a_node_that_nobody_asks_is_reached_again_before_the_next_request_comes() {
    let upstream = upstream::echo();
    let nodes = nodes();
    let quiet = (node_of(&nodes, "gateways") + 1) % 3;
    let route = route_on(&nodes, quiet);
    let quiet = &nodes[quiet];
    let gateways = gateways(1, &one_route(upstream.address, nodes[0].port, &route, 900));
    let gateway = &gateways[0];
    eventually("all nodes are in", || (up(gateway) == 1.0).then_some(()));
    assert_eq!(passed(&gateways, &route, 8), 8);

    // Redis closes what nobody has used for a second.
    let workers = gates(quiet);
    let before = gateway.log_len();
    assert_eq!(workers.len(), 2);
    set(quiet, "timeout", "1");
    eventually("both are closed", || {
        gates(quiet).iter().all(|gate| !workers.contains(gate)).then_some(())
    });
    set(quiet, "timeout", "0");
    gateway.wait_log_after(before, "nodes of the store fail");
    eventually("both are connected again", || {
        (gates(quiet).len() == 2 && up(gateway) == 1.0).then_some(())
    });
    assert_eq!(passed(&gateways, &route, 8), 8, "{}", gateway.log());

    let before = gateway.log_len();
    let start = kill(quiet);
    gateway.wait_log_after(before, "nodes of the store fail");
    let again = start();
    user(&again, "cluster|slots asking");
    gateway.wait_log_after(before, "nodes of the store decide again");
    assert_eq!(passed(&gateways, &route, 8), 8, "{}", gateway.log());
    let log = gateway.log();
    assert_eq!(log.lines().skip(before).count(), 2, "{log}");
    assert_eq!(up(gateway), 1.0);
}

#[test]
fn a_node_that_answers_later_than_a_call_may_take_is_out_until_it_is_in_time_again() {
    let upstream = upstream::echo();
    let ports = [(); 3].map(|()| free_port());
    let wires = ports.map(Wire::to_port);
    let nodes = nodes_on(ports, wires.each_ref().map(|wire| wire.port));
    let slow = (node_of(&nodes, "gateways") + 1) % 3;
    let route = route_on(&nodes, slow);
    let named = wires[(slow + 1) % 3].port;
    // Connecting, and what no request waits for, may take longer.
    let yaml = one_route(upstream.address, named, &route, 900_000);
    let yaml = yaml.replace(PATIENT, "timeout: 40ms, connect_timeout: 4s");
    // One request is enough to put it out for all.
    let yaml = yaml.replace("workers: 2", "workers: 1");
    let gateways = gateways(1, &yaml);
    let gateway = &gateways[0];
    eventually("it decides", || (passed(&gateways, &route, 1) == 1).then_some(()));
    let mut store = nodes[slow].connection();
    let mut connections = || -> usize {
        let info = redis::cmd("INFO").arg("stats").query(&mut store);
        let info: String = info.expect("what it counts");
        let count = info.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        count.and_then(|count| count.trim().parse().ok()).expect("a number")
    };
    wires[slow].delay.store(70, SeqCst);
    eventually("it is out", || (passed(&gateways, &route, 1) == 0).then_some(()));
    let before = gateway.log_len();
    let asked = state(&nodes[slow], &route);
    let made = connections();
    eventually("it is tried again and again", || {
        assert_eq!(passed(&gateways, &route, 1), 0);
        (connections() > made + 6).then_some(())
    });
    assert_eq!(state(&nodes[slow], &route), asked, "it was asked about none of them");
    wires[slow].delay.store(0, SeqCst);
    gateway.wait_log_after(before, "nodes of the store decide again");
    eventually("it decides again", || (passed(&gateways, &route, 1) == 1).then_some(()));
}

#[test]
fn connections_to_nodes_that_are_given_up_are_closed() {
    let upstream = upstream::echo();
    let nodes = nodes();
    let greeted = &nodes[node_of(&nodes, "gateways")];
    let other = (node_of(&nodes, "gateways") + 1) % 3;
    let route = route_on(&nodes, other);
    let yaml = one_route(upstream.address, nodes[other].port, &route, 900);
    let yaml = yaml.replace(PATIENT, &format!("{PATIENT}, lease: 1s"));
    // A second worker could find all well again, and keep what it has.
    let gateways = gateways(1, &yaml.replace("workers: 2", "workers: 1"));
    let before = gateways[0].log_len();
    let given_up = gates(&nodes[other]);
    assert_eq!(given_up.len(), 1);
    let mut store = greeted.connection();
    let mut set = |words: &[&str]| redis::cmd("SET").arg(words).exec(&mut store).expect("set");
    // No greeting goes well with that.
    set(&["flowgate:{gateways}:gateways", "a text"]);
    gateways[0].wait_log_after(before, "the store fails");
    let before = gateways[0].log_len();
    set(&["flowgate:{gateways}:gateways", "a text", "PX", "1"]);
    gateways[0].wait_log_after(before, "the store decides");
    eventually("the former one is closed", || {
        let gates = gates(&nodes[other]);
        (gates.len() == 1 && gates != given_up).then_some(())
    });
}

#[test]
fn a_gateway_that_ends_while_a_node_is_out_leaves_its_part_to_the_others() {
    let upstream = upstream::echo();
    let nodes = nodes();
    let greeted = node_of(&nodes, "gateways");
    let lost = (greeted + 1) % 3;
    let route = route_on(&nodes, lost);
    let yaml = one_route(upstream.address, nodes[greeted].port, &route, 20);
    let yaml = yaml.replace(PATIENT, "timeout: 1s, connect_timeout: 1s, lease: 1s");
    let mut gateways = gateways(2, &yaml.replace("deny", "local"));
    eventually("they know each other", || {
        let known =
            |gateway| metrics(gateway, "flowgate_store_gateways")["flowgate_store_gateways"];
        gateways.iter().all(|gateway| known(gateway) == 2.0).then_some(())
    });
    signal(&pid(&nodes[lost]), "STOP");
    assert_eq!(passed(&gateways[..1], &route, 20), 10, "half of the limit");
    drop(gateways.pop());
    // Each search for the node greets, over connections of which none has forgotten anybody.
    let mut more = 0;
    eventually("there is one gateway", || {
        more += passed(&gateways, &route, 1);
        (more == 10).then_some(())
    });
    assert_eq!(up(&gateways[0]), 0.0);
}

#[test]
fn a_gateway_that_starts_while_the_node_hangs_that_it_greets_says_so_and_counts_it() {
    let upstream = upstream::echo();
    let nodes = nodes();
    let greeted = node_of(&nodes, "gateways");
    let other = (greeted + 1) % 3;
    let pid = pid(&nodes[greeted]);
    let route = route_on(&nodes, other);
    signal(&pid, "STOP");
    let gateway = Gateway::start(&one_route(upstream.address, nodes[other].port, &route, 900));
    let line = gateway.wait_log("the store fails");
    let why = format!("127.0.0.1:{}: the time limit was reached", nodes[greeted].port);
    assert!(line.contains(&why) && line.contains("no connection to the store"), "{line}");
    assert_eq!(field(&line, "call"), "greeting");
    let counted = metrics(&gateway, "flowgate_store_errors_total");
    assert!(counted["flowgate_store_errors_total{kind=\"connection\"}"] > 0.0, "{counted:?}");
    signal(&pid, "CONT");
    gateway.wait_log("the store decides");
    assert_eq!(passed(&[gateway], &route, 4), 4);
}

#[test]
fn a_replica_that_takes_over_goes_on_with_what_the_lost_node_had_counted() {
    let upstream = upstream::echo();
    let nodes = nodes();
    let lost = (node_of(&nodes, "gateways") + 1) % 3;
    let route = route_on(&nodes, lost);
    let lost = &nodes[lost];
    let replica = replica(&nodes, lost);
    let gateways = gateways(2, &one_route(upstream.address, lost.port, &route, 20));
    let mut counted = passed(&gateways, &route, 3);
    assert_eq!(counted, 6);
    let expected = state(lost, &route);
    assert!(expected.is_some());
    eventually("the replica knows it", || (state(&replica, &route) == expected).then_some(()));
    for node in nodes.iter().chain([&replica]) {
        set(node, "cluster-node-timeout", "3000");
    }
    let before: Vec<usize> = gateways.iter().map(Gateway::log_len).collect();
    drop(kill(lost));
    eventually("the replica decides", || {
        counted += passed(&gateways, &route, 1);
        gateways.iter().all(|gateway| is_back(gateway, lost.port)).then_some(())
    });
    eventually("the limit passes", || {
        counted += passed(&gateways, &route, 1);
        (counted >= 20).then_some(())
    });
    counted += passed(&gateways, &route, 8);
    assert_eq!(counted, 20, "{}", gateways[0].log());
    for (gateway, before) in gateways.iter().zip(before) {
        gateway.wait_log_after(before, "nodes of the store fail");
        eventually("all is well", || (up(gateway) == 1.0).then_some(()));
    }
}

#[test]
fn what_a_node_was_asked_for_when_it_hung_for_longer_than_a_lease_is_given_back() {
    let upstream = upstream::echo();
    let nodes = nodes();
    let greeted = node_of(&nodes, "gateways");
    let hung = &nodes[(greeted + 1) % 3];
    let route = route_on(&nodes, (greeted + 1) % 3);
    let yaml = one_route(upstream.address, nodes[greeted].port, &route, 900);
    let yaml = yaml.replace(PATIENT, "timeout: 1s, connect_timeout: 4s, lease: 1s");
    let yaml = yaml.replace("algorithm: fixed_window,", "concurrency: 9,");
    let yaml = yaml.replace(", limit: 900/1000h", "");
    let gateways = gateways(1, &yaml);
    let gateway = &gateways[0];
    eventually("all nodes are in", || (up(gateway) == 1.0).then_some(()));
    let mut done = monitor(hung);
    let before = gateway.log_len();
    let pid = pid(hung);
    signal(&pid, "STOP");
    eventually("it is out", || (passed(&gateways, &route, 1) == 0).then_some(()));
    let long = Instant::now() + Duration::from_secs(3);
    eventually("leases have run out", || {
        assert_eq!(passed(&gateways, &route, 1), 0);
        (Instant::now() > long).then_some(())
    });
    signal(&pid, "CONT");
    gateway.wait_log_after(before, "nodes of the store decide again");
    let taken = format!("lua] \"ZADD\" \"flowgate:{{{route}}}:a:leases\"");
    let taken = done.find(|line| line.contains(&taken)).expect("what it was asked for");
    let lease = taken.rsplit(' ').next().expect("its name");
    assert!(done.any(|line| line.contains("lua] \"ZREM\"") && line.ends_with(lease)));
}

#[test]
fn attempts_to_reach_nodes_that_are_all_gone_are_counted() {
    let upstream = upstream::echo();
    let nodes = nodes();
    let route = route_on(&nodes, 0);
    let yaml = one_route(upstream.address, nodes[0].port, &route, 900);
    let gateways = gateways(1, &yaml.replace("workers: 2", "workers: 1"));
    let gateway = &gateways[0];
    eventually("all nodes are in", || (up(gateway) == 1.0).then_some(()));
    for node in &nodes {
        drop(kill(node));
    }
    let name = "flowgate_store_errors_total";
    let counted = || metrics(gateway, name)[&format!("{name}{{kind=\"connection\"}}")];
    // One of each node at most, and then those of the attempts.
    eventually("attempts are counted", || (counted() > 8.0).then_some(()));
}

#[test]
fn a_lost_node_decides_again_when_another_has_its_slots_though_nobody_had_them_for_a_while() {
    let upstream = upstream::echo();
    let nodes = nodes();
    let greeted = node_of(&nodes, "gateways");
    let [lost, heir] = [1, 2].map(|at| &nodes[(greeted + at) % 3]);
    let route = route_on(&nodes, (greeted + 1) % 3);
    let greeted = &nodes[greeted];
    for node in [greeted, heir] {
        set(node, "cluster-require-full-coverage", "no");
    }
    let gateways = gateways(2, &one_route(upstream.address, greeted.port, &route, 900));
    for gateway in &gateways {
        eventually("all nodes are in", || (up(gateway) == 1.0).then_some(()));
    }
    let before: Vec<usize> = gateways.iter().map(Gateway::log_len).collect();
    let at = lost.port;
    let id = cluster(lost, &["MYID"]);
    let slots: Vec<String> = cluster(greeted, &["NODES"])
        .lines()
        .filter(|line| line.starts_with(&id))
        .flat_map(|line| {
            line.split(' ').skip(8).map(|range| range.replace('-', " ")).collect::<Vec<_>>()
        })
        .collect();
    let slots: Vec<&str> = slots.iter().flat_map(|range| range.split(' ')).collect();
    drop(kill(lost));
    for node in [greeted, heir] {
        cluster(node, &[&["DELSLOTSRANGE"], &slots[..]].concat());
    }
    eventually("nobody has them", || {
        assert_eq!(passed(&gateways, &route, 1), 0);
        gateways.iter().all(|gateway| gateway.log().contains("no node has the keys")).then_some(())
    });
    cluster(heir, &[&["ADDSLOTSRANGE"], &slots[..]].concat());
    for (gateway, before) in gateways.iter().zip(before) {
        gateway.wait_log_after(before, "nodes of the store fail");
        eventually("it is back", || is_back(gateway, at).then_some(()));
        let one = std::slice::from_ref(gateway);
        // Each of its workers.
        eventually("it decides", || (passed(one, &route, 8) == 8).then_some(()));
        eventually("all is well", || (up(gateway) == 1.0).then_some(()));
    }
}

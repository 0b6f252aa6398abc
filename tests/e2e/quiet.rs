//! Nodes of a Redis Cluster that nobody asks.

use crate::{
    cluster::{PATIENT, gateways, pid, server::Server, signal, up},
    common::{eventually, upstream, yaml},
    nodes::{node_of, nodes, passed, route_on},
    stores::user,
};

/// Ends a node at once, and returns what starts it again with what it knows of its cluster.
fn kill(node: &Server) -> impl FnOnce() -> Server {
    let setting = |name: &str| {
        let mut get = redis::cmd("CONFIG");
        let values: Vec<String> =
            get.arg(&["GET", name]).query(&mut node.connection()).expect("a setting");
        values.into_iter().nth(1).expect("its value")
    };
    let names = ["dir", "cluster-port", "cluster-node-timeout"];
    let settings = names.map(|name| [format!("--{name}"), setting(name)]).concat();
    let (pid, port) = (pid(node), node.port);
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

/// Returns the connections of gateways to a node.
fn gates(node: &Server) -> Vec<String> {
    let clients = redis::cmd("CLIENT").arg("LIST").query(&mut node.connection());
    let clients: String = clients.expect("the clients");
    let gates = clients.lines().filter(|line| line.contains(" user=gate "));
    gates.map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn a_node_that_nobody_asks_is_reached_again_before_the_next_request_comes() {
    let (upstream, nodes) = (upstream::echo(), nodes());
    let quiet = &nodes[(node_of(&nodes, "gateways") + 1) % 3];
    let route = route_on(&nodes, (node_of(&nodes, "gateways") + 1) % 3);
    let store = format!(
        "store: {{ redis: \"redis://gate:primary-word@127.0.0.1:{}\", cluster: true, {PATIENT} }}\n",
        nodes[0].port
    );
    let rule =
        "name: a, algorithm: fixed_window, limit: 900/1000h, scope: cluster, on_store_error: deny";
    let flow = format!(
        "  - {{ name: {route}, match: {{ path_prefix: / }}, upstream: up, flow: [{{ {rule} }}] }}"
    );
    let gateways = gateways(1, &(store + &yaml(upstream.address, &flow)));
    let gateway = &gateways[0];
    assert_eq!(passed(&gateways, &route, 8), 8);

    // Redis closes what nobody has used for a second.
    let closes_after = |seconds: &str| {
        let mut set = redis::cmd("CONFIG");
        set.arg(&["SET", "timeout", seconds]);
        set.exec(&mut quiet.connection()).expect("it is set");
    };
    let (workers, before) = (gates(quiet), gateway.log_len());
    assert_eq!(workers.len(), 2);
    closes_after("1");
    eventually("both are closed", || {
        gates(quiet).iter().all(|it| !workers.contains(it)).then_some(())
    });
    closes_after("0");
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

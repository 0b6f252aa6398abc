//! A Redis Cluster: its nodes decide about a route each, hand over slots, and fail one by one.

use crate::{
    cluster::{PATIENT, Wire, gateways, pid, server::Server, signal, up},
    common::{
        Gateway, eventually,
        http::{self, Client},
        metrics, upstream, yaml,
    },
    port::free_port,
    stores::user,
};
use std::{
    net::SocketAddr,
    sync::atomic::Ordering::SeqCst,
    thread,
    time::{Duration, Instant},
};

/// Starts three nodes that have a third of the slots each, and a user that they let in.
pub(crate) fn nodes() -> Vec<Server> {
    let ports = [(); 3].map(|()| free_port());
    nodes_on(ports, ports)
}

/// The same on these ports, of which they say that they are at others.
pub(crate) fn nodes_on(ports: [u16; 3], said: [u16; 3]) -> Vec<Server> {
    let buses = [(); 3].map(|()| free_port().to_string());
    let node = |((bus, port), said): ((&String, u16), u16)| {
        let bus = ["--cluster-port", bus];
        let said = said.to_string();
        // One that hangs is not left out by the others while a test lasts.
        let patience = ["--cluster-node-timeout", "120000"];
        let options = ["--cluster-enabled", "yes", "--cluster-announce-port", &said];
        let options = [&options[..], &patience[..]].concat();
        Server::start_on(port, &[&options, &bus[..]].concat())
    };
    let nodes: Vec<Server> = buses.iter().zip(ports).zip(said).map(node).collect();
    let slots = [(0, 5460), (5461, 10922), (10923, 16383)];
    for (node, (from, to)) in nodes.iter().zip(slots) {
        let mut connection = node.connection();
        let mut add = redis::cmd("CLUSTER");
        add.arg("ADDSLOTSRANGE").arg(from).arg(to).exec(&mut connection).expect("its slots");
        for (other, bus) in nodes.iter().zip(&buses) {
            let mut meet = redis::cmd("CLUSTER");
            meet.arg(&["MEET", "127.0.0.1", &other.port.to_string(), bus]);
            meet.exec(&mut connection).expect("met");
        }
    }
    for node in &nodes {
        user(node, "cluster|slots asking");
        eventually("the cluster is whole", || {
            let info: String =
                redis::cmd("CLUSTER").arg("INFO").query(&mut node.connection()).ok()?;
            (info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3"))
                .then_some(())
        });
    }
    nodes
}

/// Has a node do one of its `CLUSTER` commands.
pub(crate) fn cluster(node: &Server, words: &[&str]) -> String {
    redis::cmd("CLUSTER").arg(words).query(&mut node.connection()).expect("done")
}

/// Returns which of three nodes has the slot of a route.
pub(crate) fn node_of(nodes: &[Server], route: &str) -> usize {
    let slot: u16 = cluster(&nodes[0], &["KEYSLOT", route]).parse().expect("a slot");
    usize::from(slot > 5_460) + usize::from(slot > 10_922)
}

/// Returns the names of two routes on that node.
pub(crate) fn routes_on(nodes: &[Server], node: usize) -> [String; 2] {
    let mut names = (0..100).map(|at| format!("r{at}")).filter(|name| node_of(nodes, name) == node);
    [(); 2].map(|()| names.next().expect("two of a hundred"))
}

/// Returns the name of one of them.
pub(crate) fn route_on(nodes: &[Server], node: usize) -> String {
    let [name, _] = routes_on(nodes, node);
    name
}

/// Returns the configuration of two routes: of each, two rules are decided atomically, one of them
/// with this limit, and the counts of another are synced.
pub(crate) fn two_routes(
    upstream: SocketAddr,
    store: (u16, &str),
    limit: u32,
    names: [&str; 2],
) -> String {
    let (port, store) = store;
    let rule = "algorithm: fixed_window, scope: cluster, limit";
    let route = |name: &str| {
        format!(
            "  - {{ name: {name}, match: {{ path_prefix: /{name} }}, upstream: up, flow: [{{ name: a, {rule}: {limit}/1000h, on_store_error: deny }}, {{ name: b, {rule}: 901/1000h }}, {{ name: p, {rule}: 900/1000h, sync_interval: 20ms }}] }}"
        )
    };
    let store = format!(
        "store: {{ redis: \"redis://gate:primary-word@127.0.0.1:{port}\", cluster: true, {store} }}\n"
    );
    store + &yaml(upstream, &names.map(route).join("\n"))
}

/// Has each gateway be asked so often, and returns how many were answered with 200, where all
/// others are rejected.
pub(crate) fn passed(gateways: &[Gateway], route: &str, requests: usize) -> usize {
    let ask = |gateway: &Gateway| http::statuses(gateway.web(), &format!("/{route}"), requests);
    let statuses: Vec<u16> = gateways.iter().flat_map(ask).collect();
    assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
    statuses.iter().filter(|status| **status == 200).count()
}

/// Waits until a node has counted so many passed requests of a route.
pub(crate) fn counted(node: &Server, route: &str, passed: usize) {
    let key = format!("flowgate:{{{route}}}:p:fixed/3600000000000:exchanged");
    eventually("what passed is counted", || {
        let state: Option<String> =
            redis::cmd("GET").arg(&key).query(&mut node.connection()).ok()?;
        (state?.split(' ').nth(2)?.parse() == Ok(passed)).then_some(())
    });
}

#[test]
fn the_nodes_of_a_cluster_decide_about_a_route_each() {
    let upstream = upstream::echo();
    let nodes = nodes();
    // One that is named and hangs keeps nobody from the others.
    let hung = Server::start();
    signal(&pid(&hung), "STOP");
    let route = |at| {
        let rules = "[{ name: a, limit: 10/1h, burst: 10, scope: cluster, on_store_error: deny }, { name: b, concurrency: 9, key: client_ip, scope: cluster, on_store_error: deny }, { name: c, limit: 900/1h, burst: 900, key: client_ip, scope: cluster, sync_interval: 50ms }]";
        format!(
            "  - {{ name: route-{at}, match: {{ path_prefix: /{at} }}, upstream: up, flow: {rules} }}"
        )
    };
    let routes = (0..8).map(route).collect::<Vec<_>>().join("\n");
    let store = format!(
        "store: {{ redis: [\"redis://gate:primary-word@127.0.0.1:{}\", \"redis://gate:primary-word@127.0.0.1:{}\"], cluster: true, {PATIENT} }}\n",
        hung.port, nodes[0].port
    );
    let gateways = gateways(2, &(store + &yaml(upstream.address, &routes)));
    for at in 0..8 {
        let path = format!("/{at}");
        let mut passed = 0;
        for gateway in &gateways {
            let statuses = http::statuses(gateway.web(), &path, 8);
            passed += statuses.iter().filter(|status| **status == 200).count();
        }
        assert_eq!(passed, 10, "{path}");
    }
    for gateway in &gateways {
        let states = "flowgate_store_sync_states_total";
        let taken = format!("{states}{{what=\"taken\"}}");
        eventually("the states of all routes are sent and taken", || {
            let counts = metrics(gateway, states);
            (counts[&taken] >= 8.0).then_some(())
        });
        assert_eq!(up(gateway), 1.0);
    }
    for node in &nodes {
        let keys: usize = redis::cmd("DBSIZE").query(&mut node.connection()).expect("a number");
        assert!(keys > 0, "routes spread over the nodes");
    }
}

#[test]
fn a_node_that_is_cut_off_keeps_no_client_waiting_and_the_others_decide_and_sync() {
    let upstream = upstream::echo();
    let ports = [(); 3].map(|()| free_port());
    let wires = ports.map(Wire::to_port);
    let nodes = nodes_on(ports, [0, 1, 2].map(|at| wires[at].port));
    // Gateways greet one node. Another one is cut off.
    let greeted = node_of(&nodes, "gateways");
    let lost = (greeted + 1) % 3;
    let lost_one = &*route_on(&nodes, lost);
    let other = &*route_on(&nodes, greeted);
    let port = wires[greeted].port;
    // What is lost on the way is charged when it arrives.
    let store = (port, "timeout: 300ms");
    let yaml = two_routes(upstream.address, store, 900, [lost_one, other]);
    let gateways = gateways(1, &yaml);
    let mut counts = [0; 2];
    let mut ask = |at: usize, requests| {
        let more = passed(&gateways, [lost_one, other][at], requests);
        counts[at] += more;
        more
    };
    assert_eq!([ask(0, 5), ask(1, 5)], [5, 5]);
    wires[lost].cut.store(true, SeqCst);
    let began = Instant::now();
    assert_eq!(ask(0, 20), 0);
    // Each may wait for its own call, and none for more, as for a connection.
    assert!(began.elapsed() < 20 * Duration::from_millis(600), "{:?}", began.elapsed());
    eventually("the other node decides", || (ask(1, 1) == 1).then_some(()));
    let in_between = counts[1];
    counted(&nodes[greeted], other, in_between);
    wires[lost].cut.store(false, SeqCst);
    let mut ask = |requests| {
        let more = passed(&gateways, lost_one, requests);
        counts[0] += more;
        more
    };
    eventually("the node decides again", || (ask(1) == 1).then_some(()));
    counted(&nodes[lost], lost_one, counts[0]);
    eventually("all is well", || (up(&gateways[0]) == 1.0).then_some(()));
}

#[test]
fn a_node_that_hangs_is_logged_once_and_leaves_the_routes_of_the_others_to_the_store() {
    let upstream = upstream::echo();
    let nodes = nodes();
    // Gateways greet one node.
    let greeted = node_of(&nodes, "gateways");
    for hung in [(greeted + 1) % 3, greeted] {
        let other = (hung + 1) % 3;
        for node in &nodes {
            redis::cmd("FLUSHALL").exec(&mut node.connection()).expect("empty");
        }
        let names = [&*route_on(&nodes, hung), &*route_on(&nodes, other)];
        // A healthy node answers in time on a busy machine, too.
        let store = (nodes[other].port, "timeout: 1s, connect_timeout: 4s");
        let yaml = two_routes(upstream.address, store, 900, names);
        // Much less than what ends while a search lasts.
        let held = "flow: [{ name: c, concurrency: 9, scope: cluster, on_store_error: deny }, ";
        let gateways = gateways(2, &yaml.replace("flow: [", held));
        let passed = |at: usize| passed(&gateways, names[at], 1);
        assert_eq!([passed(0), passed(1)], [2, 2]);
        let logged: Vec<usize> = gateways.iter().map(Gateway::log_len).collect();
        if hung == greeted {
            // Connections to the third one break, which nobody meets as nobody asks it.
            let mut kill = redis::cmd("CLIENT");
            kill.arg(&["KILL", "TYPE", "normal"]);
            kill.exec(&mut nodes[(hung + 2) % 3].connection()).expect("broken");
        }
        let pid = pid(&nodes[hung]);
        signal(&pid, "STOP");
        eventually("it is out", || (passed(0) == 0).then_some(()));
        // While it is looked for again and again.
        for _ in 0..200 {
            assert_eq!([passed(0), passed(1)], [0, 2], "{}", gateways[0].log());
            thread::park_timeout(Duration::from_millis(20));
        }
        counted(&nodes[other], names[1], 402);
        assert_eq!(gateways.iter().map(up).collect::<Vec<_>>(), [0.0, 0.0]);
        signal(&pid, "CONT");
        for (gateway, logged) in gateways.iter().zip(&logged) {
            let back =
                format!("nodes of the store decide again back=127.0.0.1:{}", nodes[hung].port);
            gateway.wait_log_after(*logged, &back);
        }
        assert_eq!([passed(0), passed(1)], [2, 2]);
        for (gateway, logged) in gateways.iter().zip(logged) {
            let log = gateway.log();
            // The third one may be named too, by a client that learns of the first before that.
            let name = format!("127.0.0.1:{}", nodes[hung].port);
            let said: Vec<_> =
                log.lines().skip(logged).filter(|line| line.contains(&name)).collect();
            assert!(said.len() == 2 && said[0].contains("nodes of the store fail"), "{log}");
            eventually("all is well", || (up(gateway) == 1.0).then_some(()));
        }
    }
}

#[test]
fn the_store_is_found_again_though_the_one_node_that_the_file_names_is_gone() {
    let upstream = upstream::echo();
    let nodes = nodes();
    let greeted = node_of(&nodes, "gateways");
    let gone = (greeted + 1) % 3;
    let names = [route_on(&nodes, gone), route_on(&nodes, greeted)];
    let names = names.each_ref().map(String::as_str);
    let store = (nodes[gone].port, &*format!("{PATIENT}, lease: 1s"));
    let gateways = gateways(1, &two_routes(upstream.address, store, 900, names));
    let gateway = &gateways[0];
    let passed = |at: usize| passed(&gateways, names[at], 1);
    assert_eq!([passed(0), passed(1)], [1, 1]);
    signal(&pid(&nodes[gone]), "KILL");
    let let_in = |words: &[&str]| {
        let mut set = redis::cmd("ACL");
        set.arg(&["SETUSER", "gate"]).arg(words);
        set.exec(&mut nodes[greeted].connection()).expect("it is set");
    };
    let before = gateway.log_len();
    let_in(&["-eval", "-evalsha"]);
    gateway.wait_log_after(before, "the store fails");
    let before = gateway.log_len();
    let_in(&["+eval", "+evalsha"]);
    gateway.wait_log_after(before, "the store decides");
    eventually("the route of the node that is left", || (passed(1) == 1).then_some(()));
    assert_eq!(passed(0), 0);
}

#[test]
fn the_keys_of_one_route_lie_on_all_nodes_where_its_rules_use_the_same_key() {
    let upstream = upstream::echo();
    let nodes = nodes();
    let rules = "[{ name: a, algorithm: fixed_window, limit: 3/1000h, key: header:x-tenant, scope: cluster, on_store_error: deny }, { name: b, concurrency: 9, key: header:x-tenant, scope: cluster, on_store_error: deny }]";
    let yaml = format!(
        "store: {{ redis: \"redis://gate:primary-word@127.0.0.1:{}\", cluster: true, {PATIENT} }}\n",
        nodes[0].port
    ) + &yaml(
        upstream.address,
        &format!("  - {{ name: r, match: {{ path_prefix: / }}, upstream: up, flow: {rules} }}"),
    );
    let gateways = gateways(2, &yaml);
    for tenant in 0..30 {
        let statuses = (0..4).map(|at| {
            let mut client = Client::new(gateways[at % 2].web());
            client.request("GET", "/", &[("x-tenant", &tenant.to_string())]).status
        });
        assert_eq!(statuses.collect::<Vec<_>>(), [200, 200, 200, 429], "{tenant}");
    }
    for tenant in 0..6 {
        let admin = gateways[0].address("admin").to_string();
        let tenant = tenant.to_string();
        let reset = std::process::Command::new(env!("CARGO_BIN_EXE_flowgate"))
            .args(["reset", "r", "a", &tenant, "--admin", &admin])
            .env_remove("FLOWGATE_ADMIN_TOKEN")
            .output()
            .expect("it runs");
        assert!(reset.status.success(), "{}", String::from_utf8_lossy(&reset.stderr));
        let mut client = Client::new(gateways[0].web());
        assert_eq!(client.request("GET", "/", &[("x-tenant", &tenant)]).status, 200);
    }
    let kept = nodes.iter().map(|node| {
        let keys = redis::cmd("KEYS").arg("*:a:fixed*").query(&mut node.connection());
        keys.map(|keys: Vec<String>| keys.len()).expect("keys")
    });
    let kept: Vec<usize> = kept.collect();
    assert!(kept.iter().all(|keys| *keys > 0) && kept.iter().sum::<usize>() == 30, "{kept:?}");
}

#[test]
fn budgets_that_a_request_meets_together_lie_on_one_node_and_are_exact() {
    let upstream = upstream::echo();
    let nodes = nodes();
    let rule = "scope: cluster, on_store_error: deny";
    // Each `org` with its teams has a tag of its own, so that the nodes share the work.
    let budgets = (0..6).map(|at| {
        format!(
            "  - {{ name: org-{at}, limit: 9/1h, burst: 9, {rule} }}
  - {{ name: team-{at}, algorithm: fixed_window, limit: 700/1000h, key: client_ip, parent: org-{at}, {rule} }}
"
        )
    });
    let budgets = format!("budgets:\n{}", budgets.collect::<String>());
    let routes = (0..6).map(|at| {
        format!(
            "  - {{ name: r{at}, match: {{ path: /{at} }}, upstream: up, flow: [{{ name: own, limit: 800/1h, burst: 800, {rule} }}, {{ budget: team-{at} }}] }}
  - {{ name: o{at}, match: {{ path: /o{at} }}, upstream: up, flow: [{{ budget: org-{at} }}] }}"
        )
    });
    let routes = routes.collect::<Vec<_>>().join("\n");
    let store = format!(
        "store: {{ redis: \"redis://gate:primary-word@127.0.0.1:{}\", cluster: true, {PATIENT} }}\n",
        nodes[0].port
    );
    let gateways = gateways(2, &(store + &budgets + &yaml(upstream.address, &routes)));

    for at in 0..6 {
        let through = passed(&gateways, &at.to_string(), 3);
        let own = passed(&gateways, &format!("o{at}"), 4);
        assert_eq!((through, own), (6, 3), "the parent {at} has 9 for both routes and gateways");
    }
    let spread = nodes.iter().filter(|node| {
        let keys: usize = redis::cmd("DBSIZE").query(&mut node.connection()).expect("a number");
        keys > 0
    });
    assert!(spread.count() > 1, "tags spread over the nodes");
}

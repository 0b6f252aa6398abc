//! Gateways and one store: what is in flight behind all of them, held by leases.

use crate::{
    cluster::{PATIENT, Wire, config, gateways, pid, server::Server, signal},
    common::{
        eventually,
        http::{self, Client},
        http2,
        upstream::{self, Script},
        yaml,
    },
    nodes::{node_of, nodes, route_on},
};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

/// An upstream that answers when the test says so.
fn held(release: &Arc<AtomicBool>, working: &Arc<AtomicUsize>) -> Script {
    let release = Arc::clone(release);
    let working = Arc::clone(working);
    Script::answering(move |_| {
        working.fetch_add(1, SeqCst);
        eventually("the release", || release.load(SeqCst).then_some(()));
        working.fetch_sub(1, SeqCst);
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec()
    })
}

/// Returns how many leases the store has of a rule, and one for their sum if there are any.
fn in_store(store: &mut redis::Connection, route: &str, rule: &str) -> usize {
    let key = format!("flowgate:{{{route}}}:{rule}:leases");
    redis::cmd("ZCARD").arg(key).query(store).expect("a number")
}

#[test]
fn what_is_in_flight_is_one_number_and_a_gateway_that_is_gone_holds_none_of_it() {
    let release = Arc::default();
    let working = Arc::default();
    let upstream = held(&release, &working);
    let server = Server::start();
    let rules = "    flow: [{ name: r, concurrency: 4, scope: cluster, on_store_error: deny }]";
    let store = format!("{PATIENT}, lease: 4s");
    let mut gateways = gateways(3, &config(upstream.address, server.port, &store, rules));
    let begin = |web: SocketAddr| {
        let mut client = Client::new(web);
        client.send(http::head("GET", "/", &[]));
        client
    };
    let mut first = [begin(gateways[0].web()), begin(gateways[0].web())];
    let second = [begin(gateways[1].web()), begin(gateways[1].web())];
    eventually("four at work", || (working.load(SeqCst) == 4).then_some(()));
    let rejected = || http::get(gateways[2].web(), "/").status == 503;
    assert!(rejected());
    // Renewed, they outlast their lease.
    let long = Instant::now() + Duration::from_secs(9);
    eventually("two leases later", || {
        assert!(rejected());
        (Instant::now() > long).then_some(())
    });
    gateways.remove(1).signal("KILL");
    drop(second);
    let web = gateways[1].web();
    let late = thread::spawn(move || {
        eventually("room", || Some(http::get(web, "/").status).filter(|status| *status == 200))
    });
    eventually("a fifth at work", || (working.load(SeqCst) == 5).then_some(()));
    release.store(true, SeqCst);
    assert_eq!(late.join().expect("no panic"), 200);
    for client in &mut first {
        assert_eq!(client.read("GET").status, 200);
    }
    let mut connection = server.connection();
    eventually("nothing is held", || (in_store(&mut connection, "all", "r") == 0).then_some(()));
}

#[test]
fn what_is_in_flight_keeps_its_places_however_often_connections_break_or_the_store_hangs() {
    const LIMIT: usize = 8;
    let release = Arc::default();
    let working = Arc::default();
    let upstream = held(&release, &working);
    let server = Server::start();
    let rules = "    flow: [{ name: r, concurrency: 8, scope: cluster, on_store_error: deny }]";
    let config = config(upstream.address, server.port, "timeout: 300ms, lease: 4s", rules);
    let gateway = gateways(1, &config).remove(0);
    let mut clients: Vec<_> = (0..LIMIT).map(|_| Client::new(gateway.web())).collect();
    for client in &mut clients {
        client.send(http::head("GET", "/", &[]));
    }
    eventually("eight at work", || (working.load(SeqCst) == LIMIT).then_some(()));
    let mut store = server.connection();
    let used = |store: &mut redis::Connection| -> f64 {
        redis::cmd("ZSCORE").arg(&["flowgate:{all}:r:leases", "used"]).query(store).expect("it")
    };
    let leases = in_store(&mut store, "all", "r");
    assert_eq!((leases, used(&mut store)), (LIMIT + 1, -8.0), "each has a name of its own");
    // With both workers' connections; the first request finds its own one broken, and is denied.
    let rejected = || (0..4).all(|_| [429, 503].contains(&http::get(gateway.web(), "/").status));
    let lapsed = Instant::now() + Duration::from_secs(6);
    while Instant::now() < lapsed {
        let before = gateway.log_len();
        redis::cmd("CLIENT")
            .arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"])
            .exec(&mut store)
            .expect("killed");
        assert!(rejected());
        gateway.wait_log_after(before, "the store decides");
        assert!(rejected(), "{}", gateway.log());
    }
    let before = gateway.log_len();
    let pid = pid(&server);
    signal(&pid, "STOP");
    let lapsed = Instant::now() + Duration::from_secs(5);
    eventually("a lease is over", || {
        assert!(rejected());
        (Instant::now() > lapsed).then_some(())
    });
    signal(&pid, "CONT");
    eventually("it decides", || {
        assert!(rejected(), "{}", gateway.log());
        gateway
            .log()
            .lines()
            .skip(before)
            .any(|line| line.contains("the store decides"))
            .then_some(())
    });
    assert!(rejected());
    assert_eq!((working.load(SeqCst), used(&mut store)), (LIMIT, -8.0));
    release.store(true, SeqCst);
    for client in &mut clients {
        assert_eq!(client.read("GET").status, 200);
    }
}

#[test]
fn a_gateway_with_a_short_lease_does_not_end_what_others_hold_for_longer() {
    let release = Arc::default();
    let working = Arc::default();
    let upstream = held(&release, &working);
    let server = Server::start();
    let rules = "    flow: [{ name: r, concurrency: 7, scope: cluster, on_store_error: deny }]";
    let store = |lease: &str| {
        let store = format!("{PATIENT}, lease: {lease}");
        gateways(1, &config(upstream.address, server.port, &store, rules))
    };
    let long = store("10m");
    let short = store("1s");
    let mut clients = [long[0].web(), short[0].web()].map(Client::new);
    for (at, client) in clients.iter_mut().enumerate() {
        client.send(http::head("GET", "/", &[]));
        eventually("it is at work", || (working.load(SeqCst) == at + 1).then_some(()));
    }
    let mut connection = server.connection();
    let mut lives = |key: &str| -> i64 {
        redis::cmd("PTTL").arg(key).query(&mut connection).expect("a number")
    };
    // The short lease is renewed three times.
    let renewed = Instant::now() + Duration::from_millis(1_100);
    eventually("it is renewed", || (Instant::now() > renewed).then_some(()));
    for key in ["flowgate:{all}:r:leases", "flowgate:{gateways}:gateways"] {
        assert!(lives(key) > 300_000, "{key}: {}", lives(key));
    }
    release.store(true, SeqCst);
    for client in &mut clients {
        assert_eq!(client.read("GET").status, 200);
    }
}

/// Returns the configuration of routes with one rule each, of so many in flight.
fn routes(upstream: SocketAddr, names: &[String], limit: u32) -> String {
    let route = |name: &String| {
        format!(
            "  - {{ name: {name}, match: {{ path: /{name} }}, upstream: up, flow: [{{ name: c, concurrency: {limit}, scope: cluster, on_store_error: deny }}] }}"
        )
    };
    yaml(upstream, &names.iter().map(route).collect::<Vec<_>>().join("\n"))
}

#[test]
fn what_is_in_flight_on_many_routes_keeps_its_places_though_the_store_is_far_away() {
    const ROUTES: usize = 150;
    let release = Arc::default();
    let working = Arc::default();
    let upstream = held(&release, &working);
    let server = Server::start();
    let wire = Wire::to(&server);
    let names: Vec<String> = (0..ROUTES).map(|at| format!("r{at}")).collect();
    let store =
        format!("store: {{ redis: \"redis://127.0.0.1:{}\", {PATIENT}, lease: 3s }}\n", wire.port);
    let yaml = store + &routes(upstream.address, &names, 1);
    let gateways = gateways(1, &yaml.replace("workers: 2", "workers: 1"));
    let web = gateways[0].web();
    let mut clients: Vec<Client> = names
        .iter()
        .map(|name| {
            let mut client = Client::new(web);
            client.send(http::head("GET", &format!("/{name}"), &[]));
            client
        })
        .collect();
    eventually("all at work", || (working.load(SeqCst) == ROUTES).then_some(()));
    // One after the other, renewals would take longer than a lease.
    wire.delay.store(25, SeqCst);
    let long = Instant::now() + Duration::from_secs(7);
    eventually("two leases later", || {
        let rejected = |name: &String| http::get(web, &format!("/{name}")).status == 503;
        assert!(names.iter().all(rejected), "{}", gateways[0].log());
        (Instant::now() > long).then_some(())
    });
    release.store(true, SeqCst);
    for client in &mut clients {
        assert_eq!(client.read("GET").status, 200);
    }
}

#[test]
fn what_ends_at_one_node_is_given_back_while_another_hangs() {
    let release = Arc::<AtomicBool>::default();
    let working = Arc::<AtomicUsize>::default();
    let nodes = nodes();
    let hung = (node_of(&nodes, "gateways") + 1) % 3;
    let names = [hung, (hung + 1) % 3].map(|at| route_on(&nodes, at));
    let slow = {
        let release = Arc::clone(&release);
        let working = Arc::clone(&working);
        let name = names[0].clone();
        Script::answering(move |request| {
            if request.line.contains(&format!("/{name} ")) {
                working.fetch_add(1, SeqCst);
                eventually("the release", || release.load(SeqCst).then_some(()));
            }
            b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec()
        })
    };
    let store = format!(
        "store: {{ redis: \"redis://gate:primary-word@127.0.0.1:{}\", cluster: true, {PATIENT} }}\n",
        nodes[hung].port
    );
    let yaml = store + &routes(slow.address, &names, 9);
    let gateways = gateways(1, &yaml.replace("workers: 2", "workers: 1"));
    let web = gateways[0].web();
    let mut client = Client::new(web);
    client.send(http::head("GET", &format!("/{}", names[0]), &[]));
    eventually("it is at work", || (working.load(SeqCst) == 1).then_some(()));
    let pid = pid(&nodes[hung]);
    signal(&pid, "STOP");
    release.store(true, SeqCst);
    // It is given back for as long as a call may take.
    assert_eq!(client.read("GET").status, 200);
    let path = format!("/{}", names[1]);
    assert_eq!(http::statuses(web, &path, 90), [200; 90], "{}", gateways[0].log());
    signal(&pid, "CONT");
}

#[test]
fn a_route_whose_keys_are_rejected_keeps_no_place_of_another() {
    let upstream = upstream::echo();
    let server = Server::start();
    let mut store = server.connection();
    let mut set = redis::cmd("ACL");
    set.arg(&["SETUSER", "gate", "on", ">primary-word", "+@all"]);
    set.arg(&["~flowgate:{gateways}*", "~flowgate:{good}*"]).exec(&mut store).expect("set");
    let wire = Wire::to(&server);
    let names = ["good", "bad"].map(str::to_owned);
    let settings = format!(
        "store: {{ redis: \"redis://gate:primary-word@127.0.0.1:{}\", {PATIENT}, lease: 10m }}\n",
        wire.port
    );
    let yaml = settings + &routes(upstream.address, &names, 999).replace("deny", "allow");
    let gateways = gateways(1, &yaml.replace("workers: 2", "workers: 1"));
    let web = gateways[0].web();
    // So that several end while one call is under way.
    wire.delay.store(5, SeqCst);
    let clients = [0, 1, 0, 1].map(|at| {
        let path = format!("/{}", names[at]);
        thread::spawn(move || http::statuses(web, &path, 50))
    });
    for client in clients {
        assert_eq!(client.join().expect("no panic"), [200; 50]);
    }
    eventually("nothing is held", || (in_store(&mut store, "good", "c") == 0).then_some(()));
}

#[test]
fn a_gateway_that_ends_gives_back_what_it_held() {
    const REQUESTS: usize = 60;
    let release = Arc::default();
    let working = Arc::default();
    let upstream = held(&release, &working);
    let server = Server::start();
    let rules = "    flow: [{ name: r, concurrency: 99, scope: cluster, on_store_error: deny }]";
    let wire = Wire::to(&server);
    let config = config(upstream.address, wire.port, PATIENT, rules);
    let mut gateway = gateways(1, &config).remove(0);
    let mut clients: Vec<Client> = (0..REQUESTS).map(|_| Client::new(gateway.web())).collect();
    for client in &mut clients {
        client.send(http::head("GET", "/", &[]));
    }
    eventually("all at work", || (working.load(SeqCst) == REQUESTS).then_some(()));
    wire.delay.store(20, SeqCst);
    gateway.signal("TERM");
    gateway.wait_log("draining");
    release.store(true, SeqCst);
    assert!(gateway.wait().success());
    assert_eq!(in_store(&mut server.connection(), "all", "r"), 0, "{}", gateway.log());
}

#[test]
fn what_a_dry_run_would_have_rejected_is_not_in_flight_there() {
    let release = Arc::default();
    let working = Arc::default();
    let upstream = held(&release, &working);
    let server = Server::start();
    let rules = "    flow: [{ name: r, concurrency: 1, scope: cluster, dry_run: true }]";
    let store = format!("{PATIENT}, lease: 4s");
    let gateway = gateways(1, &config(upstream.address, server.port, &store, rules)).remove(0);
    let mut clients = [(); 3].map(|()| Client::new(gateway.web()));
    for client in &mut clients {
        client.send(http::head("GET", "/", &[]));
    }
    eventually("three at work", || (working.load(SeqCst) == 3).then_some(()));
    let mut store = server.connection();
    let long = Instant::now() + Duration::from_secs(9);
    eventually("two leases later", || {
        let mut used = redis::cmd("ZSCORE");
        used.arg(&["flowgate:{all}:r:leases", "used"]);
        assert_eq!(used.query::<f64>(&mut store).expect("it"), -1.0);
        (Instant::now() > long).then_some(())
    });
    release.store(true, SeqCst);
    for client in &mut clients {
        assert_eq!(client.read("GET").status, 200);
    }
}

#[test]
fn a_client_that_sends_one_request_after_the_other_keeps_its_place() {
    const REQUESTS: usize = 300;
    /// `:status: 200` in HPACK.
    const INDEXED_200: u8 = 0x88;
    let upstream = upstream::echo();
    let server = Server::start();
    // The gateway gives a place back while its client already sends the next request. It renews leases
    // every third of a second meanwhile.
    let wire = Wire::to(&server);
    let store = format!("{PATIENT}, lease: 1s");
    let rules = "    flow: [{ name: r, concurrency: 1, key: client_ip, scope: cluster, on_store_error: deny }, { name: all, concurrency: 1, scope: cluster, on_store_error: deny }]";
    let gateway = gateways(1, &config(upstream.address, wire.port, &store, rules)).remove(0);
    let web = gateway.web();
    for delay in [0, 2] {
        wire.delay.store(delay, SeqCst);
        let mut client = Client::new(web);
        for number in 0..REQUESTS {
            let status = client.get("/").status;
            assert_eq!(status, 200, "request {number} of one connection, {delay} ms away");
        }
        for number in 0..REQUESTS {
            // Connections lead to different workers.
            let status = http::get(web, "/").status;
            assert_eq!(status, 200, "connection {number}, {delay} ms away");
        }
        let mut client = http2::Client::new(web);
        for stream in (1..100).step_by(2) {
            client.get(stream, "/", &[]);
            let answer = client.answer(stream);
            assert_eq!(answer[0].payload[0], INDEXED_200, "stream {stream}, {delay} ms away");
        }
    }
    wire.delay.store(0, SeqCst);
    let mut connection = server.connection();
    eventually("nothing is held", || (in_store(&mut connection, "all", "all") == 0).then_some(()));
}

//! Stores that are more than one server, and one that speaks TLS.

use crate::{
    cluster::{BREAK, MAY, PATIENT, Wire, config, gateways, hammer, server::Server, signal},
    common::{Gateway, eventually, http, metrics, upstream},
    port::free_port,
};
use std::{
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::Ordering::SeqCst,
};

/// A sentinel that ends with the test.
struct Sentinel {
    port: u16,
    child: Child,
}

impl Sentinel {
    fn start(port: u16, file: &Path) -> Self {
        let child = Command::new("redis-server")
            .arg(file)
            .args(["--sentinel", "--port", &port.to_string(), "--bind", "127.0.0.1"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server is on the path");
        Self { port, child }
    }

    /// Returns how many replicas it knows of.
    fn replicas(&self) -> Option<usize> {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}", self.port)).ok()?;
        let mut command = redis::cmd("SENTINEL");
        command.arg(&["REPLICAS", "main"]);
        let replicas: Vec<redis::Value> = command.query(&mut client.get_connection().ok()?).ok()?;
        Some(replicas.len())
    }
}

/// Makes a user `gate`, which may do what is documented and `more`.
pub(crate) fn user(server: &Server, more: &str) {
    let may = MAY.split(' ').chain(more.split(' ')).map(|word| format!("+{word}"));
    redis::cmd("ACL")
        .arg(&["SETUSER", "gate", "on", ">primary-word", "~flowgate:*"])
        .arg(may.collect::<Vec<_>>())
        .exec(&mut server.connection())
        .expect("a user");
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ended = self.child.kill().and_then(|()| self.child.wait());
    }
}

#[test]
fn a_store_behind_sentinels_is_found_again_after_a_failover() {
    let upstream = upstream::echo();
    let first = Server::start();
    let second = Server::start();
    redis::cmd("REPLICAOF")
        .arg(&["127.0.0.1", &first.port.to_string()])
        .exec(&mut second.connection())
        .expect("a replica");
    let directory = tempfile::tempdir().expect("a folder");
    let file = directory.path().join("sentinel.conf");
    let watched = format!(
        "sentinel monitor main 127.0.0.1 {} 1\nsentinel down-after-milliseconds main 500\n\
         sentinel failover-timeout main 3000\n",
        first.port
    );
    std::fs::write(&file, watched).expect("written");
    let port = free_port();
    let sentinel = Sentinel::start(port, &file);
    let rules =
        "    flow: [{ name: r, limit: 40/1h, burst: 40, scope: cluster, on_store_error: deny }]";
    let store = format!("{PATIENT}, sentinel: main");
    let gateways = gateways(2, &config(upstream.address, port, &store, rules));
    assert_eq!(hammer(&gateways, 5), [20, 0, 0]);
    // Until the sentinel knows of the replica, and that has all.
    eventually("a replica", || {
        let keys: usize = redis::cmd("DBSIZE").query(&mut second.connection()).ok()?;
        (sentinel.replicas()? == 1 && keys >= 3).then_some(())
    });
    let before: Vec<usize> = gateways.iter().map(Gateway::log_len).collect();
    drop(first);
    for (gateway, before) in gateways.iter().zip(before) {
        gateway.wait_log_after(before, "the store fails");
        gateway.wait_log_after(before, "the store decides");
    }
    assert_eq!(hammer(&gateways, 10), [20, 20, 0], "what the first had counted is known");
}

#[test]
fn a_primary_that_was_deposed_and_serves_on_is_left_within_seconds() {
    let upstream = upstream::echo();
    let first = Server::start();
    let second = Server::start();
    let directory = tempfile::tempdir().expect("a folder");
    let file = directory.path().join("sentinel.conf");
    std::fs::write(&file, format!("sentinel monitor main 127.0.0.1 {} 1\n", first.port))
        .expect("written");
    let sentinel = Sentinel::start(free_port(), &file);
    eventually("it answers", || sentinel.replicas());
    let rules = "    flow: [{ name: r, algorithm: fixed_window, limit: 40/1000h, scope: cluster, on_store_error: deny }]";
    let store = format!("{PATIENT}, sentinel: main, lease: 3s");
    let gateways = gateways(2, &config(upstream.address, sentinel.port, &store, rules));
    assert_eq!(hammer(&gateways, 5), [20, 0, 0]);
    // As after a failover that the first one has not heard of.
    let ask = |words: &[&str]| {
        let url = format!("redis://127.0.0.1:{}", sentinel.port);
        let client = redis::Client::open(url).expect("a URL");
        let mut connection = client.get_connection().expect("a connection");
        redis::cmd("SENTINEL").arg(words).exec(&mut connection).expect("done");
    };
    ask(&["REMOVE", "main"]);
    ask(&["MONITOR", "main", "127.0.0.1", &second.port.to_string(), "1"]);
    for gateway in &gateways {
        gateway.wait_log("the sentinels name another primary");
        eventually("the second one is asked", || {
            http::get(gateway.web(), "/");
            let keys: Vec<String> =
                redis::cmd("KEYS").arg("*:r:fixed*").query(&mut second.connection()).ok()?;
            (keys.len() == 1).then_some(())
        });
        assert!(!gateway.log().contains("the store fails"), "{}", gateway.log());
    }
}

#[test]
fn a_sentinel_that_hangs_keeps_no_gateway_from_the_primary_that_another_one_names() {
    let upstream = upstream::echo();
    let server = Server::start();
    let directory = tempfile::tempdir().expect("a folder");
    let [hung, other] = ["hung", "other"].map(|name| {
        let file = directory.path().join(name);
        let watched = format!("sentinel monitor main 127.0.0.1 {} 1\n", server.port);
        std::fs::write(&file, watched).expect("written");
        let sentinel = Sentinel::start(free_port(), &file);
        eventually("it answers", || sentinel.replicas());
        sentinel
    });
    signal(&hung.child.id().to_string(), "STOP");
    let rules =
        "    flow: [{ name: r, limit: 6/1h, burst: 6, scope: cluster, on_store_error: deny }]";
    let store = format!("{PATIENT}, sentinel: main");
    let one = format!("\"redis://127.0.0.1:{}\"", hung.port);
    let both = format!("[{one}, \"redis://127.0.0.1:{}\"]", other.port);
    let yaml = config(upstream.address, hung.port, &store, rules).replace(&one, &both);
    assert_eq!(hammer(&gateways(1, &yaml), 5), [6, 4, 0]);
}

#[test]
fn sentinels_and_a_primary_that_ask_for_a_password_each_get_their_own() {
    let upstream = upstream::echo();
    let server = Server::start();
    user(&server, "role");
    let directory = tempfile::tempdir().expect("a folder");
    let file = directory.path().join("sentinel.conf");
    let watched = format!(
        "sentinel monitor main 127.0.0.1 {} 1\nrequirepass default-word\n\
         user asks on >sentinel-word +role +sentinel|masters\n",
        server.port
    );
    std::fs::write(&file, watched).expect("written");
    let port = free_port();
    let _sentinel = Sentinel::start(port, &file);
    let rules =
        "    flow: [{ name: r, limit: 20/1h, burst: 20, scope: cluster, on_store_error: deny }]";
    let yaml = |login: &str| {
        let store = format!("{PATIENT}, sentinel: main{login}");
        let yaml = config(upstream.address, port, &store, rules);
        yaml.replace("redis://", "redis://gate:primary-word@")
    };
    for login in [
        ", sentinel_password: default-word",
        ", sentinel_user: asks, sentinel_password: sentinel-word",
    ] {
        let gateways = gateways(1, &yaml(login));
        assert_eq!(hammer(&gateways, 5), [10, 0, 0], "{login}");
    }
    for login in ["", ", sentinel_user: asks, sentinel_password: primary-word"] {
        let gateway = Gateway::start(&yaml(login));
        let line = gateway.wait_log("the store fails");
        assert!(!line.contains("-word"), "{line}");
        assert_eq!(hammer(std::slice::from_ref(&gateway), 5), [0, 10, 0], "{login}");
    }
}

#[test]
fn a_request_whose_answer_is_lost_in_a_cluster_is_charged_once() {
    const REQUESTS: usize = 4;
    let upstream = upstream::echo();
    let bus = free_port().to_string();
    let options = ["--cluster-enabled", "yes", "--cluster-port", &bus];
    let server = Server::start_on(free_port(), &options);
    let wire = Wire::to(&server);
    let mut store = server.connection();
    // The node is known as who listens at the wire.
    redis::cmd("CONFIG")
        .arg(&["SET", "cluster-announce-port", &wire.port.to_string()])
        .exec(&mut store)
        .expect("set");
    redis::cmd("CLUSTER").arg(&["ADDSLOTSRANGE", "0", "16383"]).exec(&mut store).expect("all");
    eventually("the cluster is whole", || {
        let info: String = redis::cmd("CLUSTER").arg("INFO").query(&mut store).ok()?;
        info.contains("cluster_state:ok").then_some(())
    });
    let rules = "    flow: [{ name: r, algorithm: fixed_window, limit: 100/1000h, scope: cluster, on_store_error: allow }]";
    let text = config(upstream.address, wire.port, &format!("cluster: true, {PATIENT}"), rules);
    let gateway = gateways(1, &text).remove(0);
    // The store learns the script.
    assert_eq!(http::get(gateway.web(), "/").status, 200);
    let mut used = || -> usize {
        let key = "flowgate:{all}:r:fixed/3600000000000";
        let state: String = redis::cmd("GET").arg(key).query(&mut store).expect("the window");
        state.rsplit(' ').next().and_then(|used| used.parse().ok()).expect("what is used")
    };
    for charged in 1..REQUESTS {
        eventually("the answer to a request is lost", || {
            let logged = gateway.log_len();
            wire.delay.store(BREAK, SeqCst);
            assert_eq!(http::get(gateway.web(), "/").status, 200);
            gateway.wait_log_after(logged, "nodes of the store fail");
            gateway.wait_log_after(logged, "nodes of the store decide again");
            // If that to a greeting was lost before, the store was not asked.
            let used = used();
            assert!((charged..=charged + 1).contains(&used), "{used} of {charged} and one more");
            (used == charged + 1).then_some(())
        });
    }
}

#[test]
fn a_store_is_asked_over_tls_if_its_certificate_is_trusted() {
    let upstream = upstream::echo();
    let directory = tempfile::tempdir().expect("a folder");
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let cert = directory.path().join("cert.pem");
    let key = directory.path().join("key.pem");
    std::fs::write(&cert, made.cert.pem()).expect("written");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("written");
    let [cert, key] = [&cert, &key].map(|path| path.to_str().expect("a plain name").to_owned());
    let port = free_port();
    let tls = port.to_string();
    let _server = Server::start_on(
        free_port(),
        &[
            "--tls-port",
            &tls,
            "--tls-cert-file",
            &cert,
            "--tls-key-file",
            &key,
            "--tls-auth-clients",
            "no",
        ],
    );
    let rules =
        "    flow: [{ name: r, limit: 5/1h, burst: 5, scope: cluster, on_store_error: deny }]";
    let yaml =
        |store: &str| config(upstream.address, port, store, rules).replace("redis://", "rediss://");
    let trusting = gateways(1, &yaml(&format!("{PATIENT}, ca: \"{cert}\"")));
    assert_eq!(hammer(&trusting, 5), [5, 5, 0]);
    let wary = Gateway::start(&yaml(PATIENT));
    wary.wait_log("the store fails");
    assert_eq!(hammer(std::slice::from_ref(&wary), 2), [0, 4, 0]);
}

#[test]
fn another_database_and_prefix_are_used_and_without_the_store_each_rule_does_as_it_says() {
    let upstream = upstream::echo();
    let server = Server::start_on(free_port(), &[]);
    user(&server, "select");
    let yaml = |store: &str, rule: &str| {
        let rules = format!(
            "    flow: [{{ name: r, algorithm: fixed_window, limit: 9/1000h, scope: cluster, {rule} }}]"
        );
        let store = format!("{PATIENT}, prefix: \"flowgate:two:\"{store}");
        let one = "redis://127.0.0.1:";
        let login = "redis://gate:primary-word@127.0.0.1:";
        let port = format!("{}\"", server.port);
        config(upstream.address, server.port, &store, &rules)
            .replace(one, login)
            .replace(&port, &format!("{}/2\"", server.port))
    };
    let denying = gateways(1, &yaml("", "on_store_error: deny"));
    assert_eq!(hammer(&denying, 2), [4, 0, 0]);
    let trips = metrics(&denying[0], "flowgate_store_round_trip_seconds_count");
    assert_eq!(trips.values().sum::<f64>(), 4.0, "{trips:?}");
    let seen = metrics(&denying[0], "flowgate_store_gateways");
    assert_eq!(seen["flowgate_store_gateways"], 1.0);
    let costly = gateways(1, &yaml(", gateways: 3", "on_store_error: local, cost: 5"));
    assert_eq!(hammer(&costly, 1), [1, 1, 0], "4 and 5 of 9");
    let mut store = server.connection();
    let keys = |store: &mut redis::Connection| -> Vec<String> {
        redis::cmd("KEYS").arg("*").query(store).expect("the keys")
    };
    assert_eq!(keys(&mut store), [""; 0]);
    redis::cmd("SELECT").arg(2).exec(&mut store).expect("selected");
    let keys = keys(&mut store);
    assert!(keys.len() >= 3 && keys.iter().all(|key| key.starts_with("flowgate:two:")), "{keys:?}");
    drop(server);
    let answer = http::get(denying[0].web(), "/");
    assert_eq!((answer.status, answer.header("retry-after")), (429, Some("1")));
    assert_eq!(hammer(&costly, 1), [0, 2, 0], "its part is 3");
}

//! Gateways and one store that fails in every way: what holds meanwhile, and that it ends.

use crate::{
    cluster::{PATIENT, Wire, config, gateways, hammer, pid, server::Server, signal, up},
    common::{
        Gateway, eventually,
        http::{self, Client},
        metrics, upstream,
    },
    divided::divided,
    port::free_port,
};
use std::{
    sync::atomic::Ordering::SeqCst,
    thread,
    time::{Duration, Instant},
};

/// Whatever happens to the store, nobody gets a 5xx and nobody waits for long; each rule does as
/// it says; and all is well again by itself.
#[test]
fn whatever_fails_in_the_store_no_client_meets_an_error_or_waits_for_it() {
    let upstream = upstream::echo();
    let server = Server::start();
    let wire = Wire::to(&server);
    let pid = pid(&server);
    let rules = "    flow: [{ name: r, limit: 1000000/1h, burst: 1000000, scope: cluster }]";
    let gateways =
        gateways(2, &config(upstream.address, wire.port, "timeout: 300ms, lease: 3s", rules));
    let run = |words: &[&str]| {
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(*word);
        }
        command.exec(&mut server.connection()).expect("the store does it");
    };
    let config_set = |name: &str, value: &str| run(&["CONFIG", "SET", name, value]);
    let faults: Vec<Fault<'_>> = vec![
        (
            "hung",
            Some("timeout"),
            Box::new(|| signal(&pid, "STOP")),
            Box::new(|| signal(&pid, "CONT")),
        ),
        (
            "slow",
            Some("timeout"),
            Box::new(|| wire.delay.store(900, SeqCst)),
            Box::new(|| wire.delay.store(0, SeqCst)),
        ),
        (
            "read-only",
            Some("read_only"),
            Box::new(|| run(&["REPLICAOF", "127.0.0.1", &free_port().to_string()])),
            Box::new(|| run(&["REPLICAOF", "NO", "ONE"])),
        ),
        (
            "full",
            Some("memory"),
            Box::new(|| config_set("maxmemory", "1")),
            Box::new(|| config_set("maxmemory", "0")),
        ),
        ("flushed", None, Box::new(|| run(&["FLUSHALL"])), Box::new(|| ())),
        ("without scripts", None, Box::new(|| run(&["SCRIPT", "FLUSH"])), Box::new(|| ())),
    ];
    for fault in &faults {
        endure(&gateways, fault);
    }
}

/// Something that goes wrong: its name, the word of the error that it is counted as if it is one,
/// how it begins and how it ends.
type Fault<'a> = (&'a str, Option<&'a str>, Box<dyn Fn() + 'a>, Box<dyn Fn() + 'a>);

fn endure(gateways: &[Gateway], (name, kind, begin, end): &Fault<'_>) {
    let logged: Vec<usize> = gateways.iter().map(Gateway::log_len).collect();
    begin();
    let start = Instant::now();
    let [passed, rejected, failed] = hammer(gateways, 100);
    let took = start.elapsed();
    let is_full = *kind == Some("memory");
    if is_full {
        // Each has tried the store again and again: a greeting that it takes is a false one.
        for gateway in gateways {
            let key = "flowgate_store_errors_total{kind=\"memory\"}";
            eventually("it has tried again", || {
                hammer(std::slice::from_ref(gateway), 1);
                let errors = metrics(gateway, "flowgate_store_errors_total");
                (errors[key] >= 8.0).then_some(())
            });
        }
    }
    end();
    assert_eq!((rejected, failed, passed), (0, 0, 400), "{name}");
    // One call each before all know, and those that look for the store meanwhile. If each request
    // waited for its call, a client's hundred would take 30 s.
    assert!(took < Duration::from_secs(20), "{name}: {took:?}");
    for (gateway, logged) in gateways.iter().zip(logged) {
        if let Some(kind) = kind {
            gateway.wait_log_after(logged, "the store fails");
            let key = format!("flowgate_store_errors_total{{kind=\"{kind}\"}}");
            assert!(metrics(gateway, "flowgate_store_errors_total")[&key] > 0.0, "{name}");
            gateway.wait_log_after(logged, "the store decides");
        }
        eventually("it is up again", || (up(gateway) == 1.0).then_some(()));
        if is_full {
            let log = gateway.log();
            for line in ["the store fails", "the store decides"] {
                let said = log.lines().skip(logged).filter(|said| said.contains(line)).count();
                assert_eq!(said, 1, "{name}: {line}: {log}");
            }
        }
    }
}

#[test]
fn a_store_that_is_killed_under_load_leaves_each_rule_as_it_says_and_comes_back() {
    let upstream = upstream::echo();
    let port = free_port();
    let server = Server::start_on(port, &[]);
    let rules = |on_error: &str| {
        format!(
            "    flow: [{{ name: r, limit: 90/1h, burst: 90, scope: cluster, on_store_error: {on_error} }}]"
        )
    };
    let local =
        gateways(3, &config(upstream.address, port, "timeout: 1s, lease: 3s", &rules("local")));
    divided(&local, 30);
    let flood: Vec<_> = local
        .iter()
        .map(|gateway| {
            let web = gateway.web();
            thread::spawn(move || http::statuses(web, "/", 300))
        })
        .collect();
    drop(server);
    let statuses: Vec<u16> =
        flood.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect();
    assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
    let passed = statuses.iter().filter(|status| **status == 200).count();
    // What the store had let pass, and the limit once more in three parts.
    assert!((90..=180).contains(&passed), "{passed}");
    for gateway in &local {
        gateway.wait_log("the store fails");
        eventually("it is down", || (up(gateway) == 0.0).then_some(()));
        assert_eq!(gateway.log().matches("the store fails").count(), 1, "{}", gateway.log());
    }
    for (on_error, expected) in [("allow", [40, 0, 0]), ("deny", [0, 40, 0])] {
        let yaml = config(upstream.address, port, "timeout: 1s", &rules(on_error));
        let gateway = [Gateway::start(&yaml)];
        gateway[0].wait_log("the store fails");
        assert_eq!(hammer(&gateway, 20), expected, "{on_error}");
    }
    let _server = Server::start_on(port, &[]);
    for gateway in &local {
        eventually("it is up again", || (up(gateway) == 1.0).then_some(()));
    }
    assert_eq!(hammer(&local, 50), [90, 210, 0], "a store without memory begins afresh");
}

#[test]
fn a_key_that_the_store_cannot_decide_about_keeps_no_other_from_being_decided() {
    let upstream = upstream::echo();
    let server = Server::start();
    let rules = "    flow:\n      - { name: r, algorithm: fixed_window, limit: 9/1000h, scope: cluster, on_store_error: deny, key: header:x-tenant }\n      - { name: c, concurrency: 4, scope: cluster, on_store_error: deny }";
    let gateway = gateways(1, &config(upstream.address, server.port, PATIENT, rules)).remove(0);
    let mut store = server.connection();
    let get = |tenant: &str| {
        let mut client = Client::new(gateway.web());
        client.send(http::head("GET", "/", &[("x-tenant", tenant)]));
        client.read("GET").status
    };
    assert_eq!(get("broken"), 200);
    let keys: Vec<String> = redis::cmd("KEYS").arg("*:r:fixed*").query(&mut store).expect("keys");
    redis::cmd("DEL").arg(&keys).exec(&mut store).expect("deleted");
    redis::cmd("LPUSH").arg(&keys[0]).arg("1").exec(&mut store).expect("another kind of value");
    for _ in 0..6 {
        assert_eq!((get("broken"), get("whole")), (429, 200));
    }
    assert_eq!(up(&gateway), 1.0);
    let errors = metrics(&gateway, "flowgate_store_errors_total");
    assert_eq!(errors["flowgate_store_errors_total{kind=\"other\"}"], 6.0);
    gateway.wait_log("the store rejected a call");
    let log = gateway.log();
    assert_eq!(log.matches("the store rejected a call").count(), 1, "{log}");
    assert!(!log.contains("the store fails"), "{log}");
}

#[test]
fn a_call_that_is_late_behind_another_one_fails_alone() {
    let upstream = upstream::echo();
    let server = Server::start();
    let wire = Wire::to(&server);
    let rules = "    flow: [{ name: r, algorithm: fixed_window, limit: 9/1000h, key: header:x-tenant, scope: cluster, on_store_error: deny }]";
    // The wire delays what one worker receives over its one connection.
    let yaml = config(upstream.address, wire.port, "timeout: 3s", rules)
        .replace("workers: 2", "workers: 1");
    let gateway = gateways(1, &yaml).remove(0);
    let web = gateway.web();
    let send = |tenant: &str| {
        let mut client = Client::new(web);
        client.send(http::head("GET", "/", &[("x-tenant", tenant)]));
        client
    };
    // The store knows the script then.
    assert_eq!(send("before").read("GET").status, 200);
    wire.delay.store(2_000, SeqCst);
    let clients: Vec<_> = ["first", "second"]
        .map(|tenant| {
            let client = send(tenant);
            // So that each is an answer of its own: the second comes after four seconds.
            thread::park_timeout(Duration::from_millis(300));
            client
        })
        .into();
    for mut client in clients {
        let status = client.read("GET").status;
        assert!([200, 429].contains(&status), "{status}");
    }
    gateway.wait_log("the store replied too late to a call");
    wire.delay.store(0, SeqCst);
    eventually("the store decides", || (send("after").read("GET").status == 200).then_some(()));
    let log = gateway.log();
    assert!(!log.contains("the store fails"), "{log}");
    assert_eq!(up(&gateway), 1.0);
}

//! Upgrades while requests wait for a free place, and of limits that find themselves.

use crate::{
    binary_upgrade::{self, Stranger},
    common::{
        Gateway, eventually,
        http::{Client, head},
        metrics, replace,
        upstream::{self, Script},
        yaml,
    },
    found_limits::{self, Load},
    queues::{Service, has_waiting, line, one_place, send},
    throttling::route,
};
use serde_json::Value;
use std::{
    collections::HashMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

const TAKES_OVER: &str = "took the state over";

/// Has the process that serves read this file only when a new one starts, which it does now.
fn upgrade_to(gateway: &Gateway, pid_file: &Path, text: &str) -> Stranger {
    gateway.signal("STOP");
    replace(&gateway.config, text);
    gateway.signal("USR2");
    gateway.signal("CONT");
    let new = binary_upgrade::successor(gateway, pid_file, gateway.pid(), 0);
    gateway.wait_log(TAKES_OVER);
    new
}

#[test]
fn those_that_wait_start_in_their_order_and_before_those_of_the_new_process() {
    let service = Service::start();
    let queue = "{ max_wait: 100s, max: 10 }";
    let (mut gateway, pid_file) = binary_upgrade::start(&one_place(&service, queue));
    let mut clients = vec![send(&gateway, "/0")];
    service.has_seen(1);
    for at in 1..=4 {
        clients.push(send(&gateway, &format!("/{at}")));
        has_waiting(&gateway, f64::from(at));
    }
    let _new = binary_upgrade::upgrade(&gateway, &pid_file);

    // The metrics are of the new process.
    has_waiting(&gateway, 0.0);
    for at in 5..=6 {
        clients.push(send(&gateway, &format!("/{at}")));
        has_waiting(&gateway, f64::from(at - 4));
    }
    drop(clients.remove(3));
    assert_eq!(line(&gateway, "/3")["flow"]["left"], true);

    for (at, client) in clients.iter_mut().enumerate() {
        service.has_seen(at + 1);
        assert_eq!(service.paths().len(), at + 1, "one at a time over both processes");
        service.respond();
        assert_eq!(client.read("GET").status, 200);
    }
    assert_eq!(service.paths(), ["/0", "/1", "/2", "/4", "/5", "/6"]);
    assert_eq!(gateway.wait().code(), Some(0));
    let waited = &line(&gateway, "/4")["flow"];
    assert_eq!(waited["decision"], "delayed", "{waited}");
}

#[test]
fn a_request_that_waits_for_too_long_in_the_old_process_is_rejected_there() {
    let service = Service::start();
    let (mut gateway, pid_file) = binary_upgrade::start(&one_place(&service, "{ max_wait: 3s }"));
    let began = Instant::now();
    let mut running = send(&gateway, "/running");
    service.has_seen(1);
    let mut late = send(&gateway, "/late");
    let _new = binary_upgrade::upgrade(&gateway, &pid_file);

    let rejection = late.read("GET");
    assert!(began.elapsed() >= Duration::from_secs(3));
    assert_eq!((rejection.status, &rejection.json()["reason"]), (503, &Value::from("queue")));
    assert!(rejection.header("retry-after").is_some(), "{rejection:?}");
    service.respond();
    assert_eq!(running.read("GET").status, 200);
    assert_eq!(gateway.wait().code(), Some(0));
    assert_eq!(service.paths(), ["/running"]);
}

#[test]
fn an_upgrade_to_a_file_without_the_rule_or_its_queue_loses_none_that_waits() {
    let service = Service::start();
    let text = one_place(&service, "{ max_wait: 100s }");
    let without_queue = text.replace(", queue: { max_wait: 100s }", "");
    let without_rule = format!(
        "access_log: access.log\n{}",
        yaml(service.script.address, &route("    timeouts: { request: 200s }"))
    );
    for other in [without_queue, without_rule] {
        let (mut gateway, pid_file) = binary_upgrade::start(&text);
        let seen = service.paths().len();
        let mut clients = vec![send(&gateway, "/0")];
        service.has_seen(seen + 1);
        for at in 1..=3 {
            clients.push(send(&gateway, &format!("/{at}")));
            has_waiting(&gateway, f64::from(at));
        }
        let _new = upgrade_to(&gateway, &pid_file, &other);
        for (at, client) in clients.iter_mut().enumerate() {
            service.has_seen(seen + at + 1);
            service.respond();
            assert_eq!(client.read("GET").status, 200);
        }
        assert_eq!(gateway.wait().code(), Some(0));
        assert_eq!(service.paths()[seen..], ["/0", "/1", "/2", "/3"]);
    }
}

#[test]
fn those_that_still_wait_when_the_drain_ends_are_cut_off_and_keep_no_place() {
    let service = Service::start();
    let text = format!("drain_timeout: 1s\n{}", one_place(&service, "{ max_wait: 100s }"));
    let (mut gateway, pid_file) = binary_upgrade::start(&text);
    let mut running = send(&gateway, "/running");
    service.has_seen(1);
    let mut waiting = send(&gateway, "/waiting");
    has_waiting(&gateway, 1.0);
    let _new = binary_upgrade::upgrade(&gateway, &pid_file);
    let mut next = send(&gateway, "/next");

    assert!(running.is_closed() && waiting.is_closed());
    gateway.wait();
    // The first signal may go to the request that was cut off.
    service.respond();
    service.respond();
    assert_eq!(next.read("GET").status, 200);
    assert_eq!(service.paths(), ["/running", "/next"]);
    assert_eq!(line(&gateway, "/waiting")["flow"]["left"], true);
}

/// Clients of several tenants and classes that ask over and over, each time on a new connection.
fn ask_until(stop: &Arc<AtomicBool>, gateway: &Gateway) -> Vec<thread::JoinHandle<[usize; 2]>> {
    const CLIENTS: usize = 48;
    let start = |number: usize| {
        let address = gateway.web();
        let stop = Arc::clone(stop);
        thread::spawn(move || {
            let tenant = format!("tenant-{}", number % 5);
            let class = ["interactive", "batch"][number % 2];
            let mut outcomes = [0_usize; 2];
            while !stop.load(SeqCst) {
                let mut client = Client::new(address);
                client.send(head("GET", "/", &[("X-Tenant", &tenant), ("X-Class", class)]));
                // Every sixth client leaves at times, soon after it has come.
                if number.is_multiple_of(6) && outcomes[0].is_multiple_of(2) {
                    thread::park_timeout(Duration::from_millis(5));
                    outcomes[0] += 1;
                    continue;
                }
                let response = client.try_read("GET").expect("a response");
                match response.status {
                    200 => outcomes[0] += 1,
                    503 => {
                        assert_eq!(response.json()["reason"], "queue");
                        outcomes[1] += 1;
                    }
                    status => panic!("{status}: {}", response.text()),
                }
            }
            outcomes
        })
    };
    (0..CLIENTS).map(start).collect()
}

#[test]
fn upgrades_under_a_backlog_lose_no_request() {
    let inside = Arc::new(AtomicUsize::new(0));
    let served = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&inside);
    let done = Arc::clone(&served);
    let script = Script::answering(move |_| {
        counted.fetch_add(1, SeqCst);
        thread::park_timeout(Duration::from_millis(4));
        counted.fetch_sub(1, SeqCst);
        done.fetch_add(1, SeqCst);
        upstream::ok("done")
    });
    let queue = "queue: { max_wait: 20s, max: 40, share_by: 'header:x-tenant', \
                 weights: { tenant-1: 4 }, classes: { by: 'header:x-class', \
                 first_to_last: [interactive, batch] }, order: lifo_when_late }";
    let rule = format!("    flow: [{{ name: places, concurrency: 4, {queue} }}]");
    let (mut gateway, pid_file) = binary_upgrade::start(&yaml(script.address, &route(&rule)));
    let stop = Arc::new(AtomicBool::new(false));
    let clients = ask_until(&stop, &gateway);
    let more = || {
        let goal = served.load(SeqCst) + 300;
        eventually("more are served", || {
            assert!(!clients.iter().any(thread::JoinHandle::is_finished), "a client has failed");
            (served.load(SeqCst) >= goal).then_some(())
        });
    };

    more();
    let first = binary_upgrade::upgrade(&gateway, &pid_file);
    more();
    assert_eq!(gateway.wait().code(), Some(0), "the old process ends");
    let _second = binary_upgrade::upgrade(&gateway, &pid_file);
    more();
    eventually("the process between ends", || (!first.is_running()).then_some(()));
    more();
    stop.store(true, SeqCst);
    let outcomes: Vec<_> =
        clients.into_iter().map(|client| client.join().expect("no loss")).collect();
    let [passed, rejected] = [0, 1].map(|at| outcomes.iter().map(|of| of[at]).sum::<usize>());
    assert!(passed > 1000 && rejected > 0, "{passed} passed, {rejected} found the queue full");

    // No place is lost either.
    eventually("all places are free", || {
        let busy = metrics(&gateway, "flowgate_flow_in_flight").values().sum::<f64>();
        (busy == 0.0 && inside.load(SeqCst) == 0).then_some(())
    });
    has_waiting(&gateway, 0.0);
}

/// The metrics of the limits that find themselves, by their lines.
fn auto_metrics(gateway: &Gateway) -> HashMap<String, f64> {
    let names = ["limit", "level", "elasticity", "trend", "unloaded_seconds", "slot_seconds"];
    let names = names.into_iter().chain(["changes_total"]);
    names.flat_map(|name| metrics(gateway, &format!("flowgate_auto_{name}"))).collect()
}

/// The only value of a metric.
fn only(gateway: &Gateway, name: &str) -> f64 {
    let values: Vec<f64> = metrics(gateway, name).into_values().collect();
    let [value] = values[..] else { panic!("one {name}: {values:?}") };
    value
}

#[test]
fn an_upgrade_takes_a_found_limit_over_and_edits_keep_it_within_their_bounds() {
    let (script, _places) = found_limits::service();
    let file = |bounds: &str| {
        let rule = format!("concurrency: {{ auto: {bounds} }}, queue: {{ max_wait: 2s }}");
        found_limits::file(&script, &rule)
    };
    let (mut gateway, pid_file) = binary_upgrade::start(&file("{ min: 1, max: 1000 }"));
    let limit = |gateway: &Gateway| only(gateway, "flowgate_auto_limit");
    let load = Load::start(&gateway);
    eventually("it has found more than it began with", || (limit(&gateway) >= 4.0).then_some(()));
    load.end();
    eventually("all have ended", || {
        let busy = metrics(&gateway, "flowgate_budget_used").values().sum::<f64>();
        (busy == 0.0).then_some(())
    });

    let before = auto_metrics(&gateway);
    assert_eq!(before.len(), 6 + 8, "a value of each, and of each reason: {before:?}");
    let _new = binary_upgrade::upgrade(&gateway, &pid_file);
    gateway.wait_log(TAKES_OVER);
    assert_eq!(auto_metrics(&gateway), before);
    assert_eq!(gateway.wait().code(), Some(0));

    gateway.edit(&file("{ min: 40, max: 50 }"));
    assert_eq!(limit(&gateway), 40.0);
    gateway.edit(&file("{ min: 1, max: 2 }"));
    assert_eq!(limit(&gateway), 2.0);
    assert!(only(&gateway, "flowgate_auto_level") <= 2.0);
    gateway.edit(&file("{ min: 1, max: 1000 }"));
    assert_eq!(limit(&gateway), 2.0, "wider bounds move nothing");
}

#[test]
fn an_upgrade_to_other_bounds_keeps_a_found_limit_within_them() {
    let (script, _places) = found_limits::service();
    let file = |bounds: &str| {
        let rule = format!("concurrency: {{ auto: {bounds} }}, queue: {{ max_wait: 2s }}");
        found_limits::file(&script, &rule)
    };
    let (mut gateway, pid_file) = binary_upgrade::start(&file("{ min: 1, max: 1000 }"));
    let load = Load::start(&gateway);
    let limit = |gateway: &Gateway| only(gateway, "flowgate_auto_limit");
    eventually("it has found more than it began with", || (limit(&gateway) >= 4.0).then_some(()));
    let changes = |gateway: &Gateway| metrics(gateway, "flowgate_auto_changes_total");
    let starts = |gateway: &Gateway| {
        let changes = changes(gateway);
        changes.into_iter().find(|(key, _)| key.contains("\"start\"")).map(|(_, count)| count)
    };
    let started = starts(&gateway);
    assert!(started >= Some(1.0), "{started:?}");

    // Under load: its clients go on with the new process, and those of the old one end there.
    let _new = upgrade_to(&gateway, &pid_file, &file("{ min: 1, max: 3 }"));
    assert!(limit(&gateway) <= 3.0, "{}", limit(&gateway));
    assert!(starts(&gateway) >= started, "its changes are counted on");
    assert_eq!(gateway.wait().code(), Some(0));
    load.end();
}

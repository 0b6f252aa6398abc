//! Servers that fail get no requests for a while; servers that are checked get none until they pass.

use crate::{
    common::{
        Gateway, eventually,
        http::{self, Client, head},
        http2,
        upstream::{self, Script},
    },
    port::free_port,
};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

fn config(servers: &[SocketAddr], more: &str) -> String {
    let servers: Vec<_> =
        servers.iter().map(|address| format!("{{ url: \"http://{address}\" }}")).collect();
    format!(
        "workers: 1\nlisteners:\n  - {{ name: web, listen: 127.0.0.1:0 }}\nadmin: {{ listen: 127.0.0.1:0 }}\n\
         access_log: access.jsonl\n\
         upstreams:\n  - {{ name: up, servers: [{}]{more} }}\nroutes:\n  \
         - {{ name: all, match: {{ path_prefix: / }}, upstream: up }}\n",
        servers.join(", ")
    )
}

fn health(gateway: &Gateway) -> Vec<String> {
    let page = http::ask(gateway.address("admin"), "/routes").json();
    let servers = page["upstreams"][0]["servers"].as_array().expect("servers").iter();
    servers.map(|server| server["health"].as_str().expect("a word").to_owned()).collect()
}

fn metric(gateway: &Gateway, name: &str, server: SocketAddr) -> Option<f64> {
    let page = http::ask(gateway.address("admin"), "/metrics").text();
    let server = format!("server=\"{server}\"");
    let mut lines = page.lines().filter(|line| line.starts_with(name) && line.contains(&server));
    lines.next()?.rsplit_once(' ')?.1.parse().ok()
}

/// A server that answers its name; its checks pass while `passes`.
fn named(name: &'static str, passes: Arc<AtomicBool>) -> Script {
    Script::answering(move |request| {
        if request.path() == "/healthz" && !passes.load(Ordering::SeqCst) {
            return b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n".to_vec();
        }
        upstream::ok(name)
    })
}

#[test]
fn a_dead_server_costs_one_connection_and_is_asked_again_when_it_lives() {
    let alive = upstream::echo();
    let dead = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let more = ", ejection: { period: 1s }, slow_start: 0s";
    let gateway = Gateway::start(&config(&[dead, alive.address], more));
    let mut client = Client::new(gateway.web());
    for _ in 0..50 {
        assert_eq!(client.get("/").status, 200);
    }
    gateway.wait_log("server ejected for 1s");
    gateway.wait_log("cannot connect");
    // A busy machine may look when the period is over.
    eventually("it is shown as ejected", || {
        assert_eq!(client.get("/").status, 200);
        let is_healthy = metric(&gateway, "flowgate_upstream_server_healthy", dead);
        (health(&gateway) == ["ejected", "healthy"] && is_healthy == Some(0.0)).then_some(())
    });
    let ejections = metric(&gateway, "flowgate_upstream_server_ejections", dead).expect("counted");
    let failures = metric(&gateway, "flowgate_upstream_connect_failures", dead).expect("counted");
    assert!(failures <= ejections, "{failures} connections for {ejections} ejections");
    eventually("the access log says why", || {
        let log = std::fs::read_to_string(gateway.dir.path().join("access.jsonl")).ok()?;
        log.contains(r#""attempts":2,"upstream_error":"cannot connect: "#).then_some(())
    });

    let _living = Script::start_at(dead, |_, mut connection| {
        while connection.read().is_some() {
            connection.write(upstream::ok("it lives"));
        }
    });
    eventually("it is asked again", || {
        client.get("/");
        (health(&gateway) == ["healthy", "healthy"]).then_some(())
    });
    gateway.wait_log("server asked again after");
}

#[test]
fn a_server_that_closes_connections_is_ejected_after_failures_in_a_row() {
    let closing = Script::start(|_, mut connection| drop(connection.read()));
    let alive = upstream::echo();
    let more = ", ejection: { failures: 3, period: 1h }";
    let gateway = Gateway::start(&config(&[closing.address, alive.address], more));
    let mut client = Client::new(gateway.web());
    for _ in 0..30 {
        assert_eq!(client.get("/").status, 200, "each is asked of the other server");
    }
    gateway.wait_log("server ejected for 1h");
    assert_eq!(closing.connections(), 3);
}

#[test]
fn the_only_server_and_the_last_one_are_always_asked() {
    let dead = || SocketAddr::from(([127, 0, 0, 1], free_port()));
    for servers in [vec![dead()], vec![dead(), dead()]] {
        let gateway = Gateway::start(&config(&servers, ""));
        for _ in 0..5 {
            assert_eq!(http::get(gateway.web(), "/").status, 502);
        }
        let last = *servers.last().expect("a server");
        assert!(metric(&gateway, "flowgate_upstream_connect_failures", last) >= Some(4.0));
        gateway.wait_log("upstream failed: cannot connect");
    }
}

#[test]
fn a_server_that_cannot_be_reached_never_looks_healthy() {
    let dead = || SocketAddr::from(([127, 0, 0, 1], free_port()));
    let off = ", ejection: { most_percent: 0 }";
    for (servers, more) in [(vec![dead()], ""), (vec![dead(), dead()], off)] {
        let gateway = Gateway::start(&config(&servers, more));
        assert_eq!(health(&gateway), vec!["not asked yet"; servers.len()]);
        for _ in 0..5 {
            assert_eq!(http::get(gateway.web(), "/").status, 502);
        }
        assert_eq!(health(&gateway), vec!["unreachable"; servers.len()]);
        for server in &servers {
            let count = |name| metric(&gateway, &format!("flowgate_upstream_{name}"), *server);
            assert_eq!(count("server_healthy"), Some(0.0));
            assert_eq!(count("server_ejections_total"), Some(0.0));
            let failures = count("connect_failures_total");
            assert_eq!(failures, Some(5.0));
            assert_eq!((count("requests_total"), count("failures_total")), (failures, failures));
        }
        gateway.wait_log("no server of the upstream is healthy");
        let _living = Script::start_at(servers[0], |_, mut connection| {
            while connection.read().is_some() {
                connection.write(upstream::ok("it lives"));
            }
        });
        eventually("an answer", || (http::get(gateway.web(), "/").status == 200).then_some(()));
        assert_eq!(health(&gateway)[0], "healthy", "at the first answer");
        gateway.wait_log("a server of the upstream is healthy again");
    }
}

#[test]
fn a_failure_of_one_upstream_does_not_hide_that_of_another_with_the_same_server() {
    let dead = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let text = config(&[dead], "").replace(
        "upstreams:\n",
        &format!("upstreams:\n  - {{ name: other, servers: [{{ url: \"http://{dead}\" }}] }}\n"),
    ) + "  - { name: other, match: { path: /other }, upstream: other }\n";
    let gateway = Gateway::start(&text);
    for path in ["/", "/other"] {
        assert_eq!(http::get(gateway.web(), path).status, 502);
    }
    for route in ["all", "other"] {
        gateway.wait_log(&format!("(os error 111) route=\"{route}\" server=\"{dead}\""));
    }
}

#[test]
fn what_a_client_breaks_off_ejects_no_server() {
    let one = upstream::echo();
    let other = upstream::echo();
    let gateway =
        Gateway::start(&config(&[one.address, other.address], ", ejection: { failures: 1 }"));
    for _ in 0..10 {
        let mut client = Client::new(gateway.web());
        client.send(head("POST", "/", &[("Content-Length", "1000")]) + "a part");
        drop(client);
    }
    eventually("all have ended", || {
        let page = http::ask(gateway.address("admin"), "/routes").json();
        let total = &page["routes"][0]["total"];
        let ended = ["completed", "failed", "cancelled"].map(|how| total[how].as_u64());
        (ended.into_iter().flatten().sum::<u64>() == 10).then_some(())
    });
    assert_eq!(health(&gateway), ["healthy", "healthy"]);
}

#[test]
fn a_name_that_no_server_takes_reaches_none() {
    let strict = Script::start(|_, mut connection| {
        while let Some(request) = connection.read() {
            if request.headers.iter().any(|(name, _)| name.contains('"')) {
                return;
            }
            connection.write(upstream::ok("fine"));
        }
    });
    let gateway = Gateway::start(&config(&[strict.address], ""));
    let mut client = http2::Client::new(gateway.web());
    for stream in [1, 3, 5] {
        client.get(stream, "/", &[("x\"a", "1")]);
        let answer = http2::body(&client.answer(stream));
        assert!(answer.contains("a header name has a character"), "{answer}");
    }
    client.get(7, "/", &[("x-a", "1")]);
    assert_eq!(http2::body(&client.answer(7)), "fine");
    assert!(!gateway.log().contains("upstream failed"), "{}", gateway.log());
}

#[test]
fn a_server_that_fails_its_checks_gets_no_requests_until_it_passes() {
    let passes = Arc::new(AtomicBool::new(true));
    let checked = named("checked", Arc::clone(&passes));
    let other = named("other", Arc::new(AtomicBool::new(true)));
    let more = ", slow_start: 0s, health: { path: /healthz, interval: 50ms, timeout: 10s, unhealthy_after: 2, \
                healthy_after: 1, expect: 200 }";
    let gateway = Gateway::start(&config(&[checked.address, other.address], more));
    let answers = || -> Vec<String> {
        let mut answers: Vec<_> = (0..20).map(|_| http::get(gateway.web(), "/").text()).collect();
        answers.sort();
        answers.dedup();
        answers
    };
    assert_eq!(answers(), ["checked", "other"]);
    passes.store(false, Ordering::SeqCst);
    gateway.wait_log("server fails its health checks");
    gateway.wait_log("status 503");
    assert_eq!(health(&gateway), ["unhealthy", "healthy"]);
    assert_eq!(answers(), ["other"]);
    passes.store(true, Ordering::SeqCst);
    gateway.wait_log("server passes its health checks");
    assert_eq!(answers(), ["checked", "other"]);

    // Without checks nothing keeps it out.
    passes.store(false, Ordering::SeqCst);
    eventually("it is out again", || (health(&gateway) == ["unhealthy", "healthy"]).then_some(()));
    gateway.edit(&config(&[checked.address, other.address], ""));
    eventually("it is checked no more", || {
        (health(&gateway) == ["healthy", "healthy"]).then_some(())
    });
}

#[test]
fn a_check_passes_at_a_server_that_serves_one_host_only() {
    let hosted = Script::answering(|request| {
        if request.header("host") == Some("app.example.com") {
            upstream::ok("hosted")
        } else {
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n".to_vec()
        }
    });
    let more = |host| {
        format!(
            ", health: {{ path: /, interval: 50ms, timeout: 10s, unhealthy_after: 1, healthy_after: 1{host} }}"
        )
    };
    let gateway = Gateway::start(&config(&[hosted.address], &more("")));
    gateway.wait_log("status 400");
    assert_eq!(health(&gateway), ["unhealthy"]);
    gateway.edit(&config(&[hosted.address], &more(", host: app.example.com")));
    gateway.wait_log("server passes its health checks");
    assert_eq!(health(&gateway), ["healthy"]);
}

#[test]
fn the_log_says_that_all_servers_get_requests_while_none_is_healthy() {
    let passes = Arc::new(AtomicBool::new(false));
    let servers = ["one", "other"].map(|name| named(name, Arc::clone(&passes)));
    let more = ", health: { path: /healthz, interval: 50ms, timeout: 10s, unhealthy_after: 1, healthy_after: 1 }";
    let gateway = Gateway::start(&config(&servers.each_ref().map(|server| server.address), more));
    gateway
        .wait_log("no server of the upstream is healthy: requests go to all of them upstream=up");
    assert_eq!(http::get(gateway.web(), "/").status, 200);
    assert!(!gateway.log().contains("gets no requests"), "{}", gateway.log());
    passes.store(true, Ordering::SeqCst);
    gateway.wait_log("a server of the upstream is healthy again");
    assert_eq!(gateway.log().matches("no server of the upstream is healthy").count(), 1);
}

#[test]
fn the_log_says_which_servers_get_requests_while_backups_fail_too() {
    let passes = Arc::new(AtomicBool::new(false));
    let [usual, backup] = ["usual", "backup"].map(|name| named(name, Arc::clone(&passes)));
    let more = ", health: { path: /healthz, interval: 50ms, timeout: 10s, unhealthy_after: 1, healthy_after: 1 }";
    let yaml = config(&[usual.address, backup.address], more);
    let url = format!("url: \"http://{}\"", backup.address);
    let marked = yaml.replace(&url, &format!("{url}, backup: true"));
    assert_ne!(yaml, marked);
    let gateway = Gateway::start(&marked);
    gateway.wait_log("requests go to all that are no backups, and to backups if those fail");
    for _ in 0..4 {
        assert_eq!(http::get(gateway.web(), "/").text(), "usual");
    }
}

#[test]
fn all_workers_together_ask_a_server_once() {
    let asked = Arc::<AtomicUsize>::default();
    let counter = Arc::clone(&asked);
    let (answer, answers) = std::sync::mpsc::channel::<()>();
    let answers = std::sync::Mutex::new(answers);
    // Each check waits for a message: meanwhile no other one comes.
    let slow = Script::answering(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        let _ended = answers.lock().expect("no panic").recv();
        upstream::ok("slow")
    });
    let other_asked = Arc::<AtomicUsize>::default();
    let counter = Arc::clone(&other_asked);
    let other = Script::answering(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        upstream::ok("other")
    });
    let more = ", health: { path: /healthz, interval: 50ms, timeout: 5m }";
    let text = config(&[slow.address, other.address], more).replace("workers: 1", "workers: 4");
    let _gateway = Gateway::start(&text);
    let wait_for_intervals = || {
        let before = other_asked.load(Ordering::SeqCst);
        eventually("the other one is asked", || {
            (other_asked.load(Ordering::SeqCst) >= before + 10).then_some(())
        });
    };
    for checks in 1..4 {
        eventually("it is asked", || (asked.load(Ordering::SeqCst) >= checks).then_some(()));
        wait_for_intervals();
        assert_eq!(asked.load(Ordering::SeqCst), checks);
        answer.send(()).expect("awaited");
    }
}

#[test]
fn an_edit_of_the_weights_does_not_bring_an_ejected_server_back() {
    let alive = upstream::echo();
    let dead = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let text = config(&[dead, alive.address], ", ejection: { period: 1h }");
    let gateway = Gateway::start(&text);
    for _ in 0..4 {
        assert_eq!(http::get(gateway.web(), "/").status, 200);
    }
    assert_eq!(health(&gateway), ["ejected", "healthy"]);
    let heavy =
        text.replace(&format!("\"http://{dead}\""), &format!("\"http://{dead}\", weight: 2"));
    gateway.edit(&heavy);
    assert_eq!(health(&gateway), ["ejected", "healthy"]);
}

//! What the gateway does with upstreams: which server, which connection, how
//! long, and what is tried again.

use crate::{
    common::{
        Gateway, eventually,
        http::{self, Client, head},
        pause,
        upstream::{self, Script},
        yaml,
    },
    port::free_port,
};
use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

const ALL: &str = "  - { name: all, match: { path_prefix: / }, upstream: up }";

fn with_servers(servers: &str, more: &str) -> String {
    format!(
        "workers: 1\nlisteners:\n  - {{ name: web, listen: 127.0.0.1:0 }}\nadmin: {{ listen: 127.0.0.1:0 }}\n\
         upstreams:\n  - {{ name: up, servers: [{servers}]{more} }}\nroutes:\n{ALL}\n"
    )
}

fn server(address: SocketAddr) -> String {
    format!("{{ url: \"http://{address}\" }}")
}

/// Nobody listens there.
fn dead() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, free_port()).into()
}

#[test]
fn connections_are_kept_and_used_again() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&with_servers(&server(upstream.address), ""));
    for _ in 0..20 {
        assert_eq!(http::get(gateway.web(), "/").status, 200);
    }
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn requests_are_shared_out_by_weight() {
    let heavy = Script::answering(|_| upstream::ok("heavy"));
    let light = Script::answering(|_| upstream::ok("light"));
    let servers =
        format!("{{ url: \"http://{}\", weight: 3 }}, {}", heavy.address, server(light.address));
    let gateway = Gateway::start(&with_servers(&servers, ""));
    let mut counts = BTreeMap::new();
    let mut client = Client::new(gateway.web());
    for _ in 0..40 {
        *counts.entry(client.get("/").text()).or_insert(0) += 1;
    }
    assert_eq!(counts, BTreeMap::from([("heavy".to_owned(), 30), ("light".to_owned(), 10)]));
}

#[test]
fn a_backup_gets_requests_only_while_the_other_server_cannot_be_reached() {
    let usual = Script::answering(|_| upstream::ok("usual"));
    let backup = Script::answering(|_| upstream::ok("backup"));
    let file = |usual: SocketAddr| {
        let backup = format!("{{ url: \"http://{}\", backup: true }}", backup.address);
        with_servers(&format!("{}, {backup}", server(usual)), "")
    };
    let gateway = Gateway::start(&file(usual.address));
    let mut client = Client::new(gateway.web());
    let mut all_are = |name: &str| {
        let texts: Vec<_> = (0..10).map(|_| client.get("/").text()).collect();
        assert_eq!(texts, [name; 10]);
    };

    all_are("usual");
    gateway.edit(&file(dead()));
    all_are("backup");
    gateway.edit(&file(usual.address));
    all_are("usual");
}

#[test]
fn least_request_avoids_the_busy_server() {
    let held = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&held);
    let stuck = Script::start(move |_, mut connection| {
        while connection.read().is_some() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let free = Script::answering(|_| upstream::ok("free"));
    let servers = format!("{}, {}", server(stuck.address), server(free.address));
    let gateway = Gateway::start(&with_servers(&servers, ", balance: least_request"));
    let mut hanging = Vec::new();
    // Whether the free server answers it.
    let mut is_answered = || {
        let mut client = Client::new(gateway.web());
        let stream = client.stream.get_ref().try_clone().expect("a second handle");
        stream.set_nonblocking(true).expect("set");
        let before = held.load(Ordering::SeqCst);
        client.send(head("GET", "/", &[]));
        let is_answered = eventually("it is answered or held", || {
            let has_answer = stream.peek(&mut [0]).is_ok();
            (has_answer || held.load(Ordering::SeqCst) > before).then_some(has_answer)
        });
        hanging.extend(Some(client).filter(|_| !is_answered));
        is_answered
    };
    // With nothing in flight either is as good. From then on the free one has less in flight, but
    // while the request before has yet to end.
    eventually("one hangs", || (!is_answered()).then_some(()));
    let answered = (0..40).filter(|_| is_answered()).count();
    assert!(answered >= 20, "only {answered} of 40 went to the free server");
}

#[test]
fn a_server_that_cannot_be_reached_is_passed_over() {
    let alive = upstream::echo();
    let servers = format!("{}, {}", server(dead()), server(alive.address));
    let gateway = Gateway::start(&with_servers(&servers, ""));
    let mut client = Client::new(gateway.web());
    for _ in 0..10 {
        client.send(head("POST", "/", &[("Content-Length", "2")]) + "hi");
        assert_eq!(client.read("POST").status, 200);
    }
}

#[test]
fn an_upstream_that_cannot_be_reached_is_a_502() {
    let gateway = Gateway::start(&with_servers(&server(dead()), ""));
    let answer = http::get(gateway.web(), "/");
    assert_eq!(answer.status, 502);
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert_eq!(answer.json()["status"], 502);
}

#[test]
fn a_get_is_sent_again_if_an_idle_connection_was_closed_meanwhile() {
    // Each connection answers one request and closes at the second, unanswered.
    let upstream = Script::start(|_, mut connection| {
        connection.read();
        connection.write(upstream::ok("once"));
        connection.read();
    });
    let gateway = Gateway::start(&with_servers(&server(upstream.address), ""));
    let mut client = Client::new(gateway.web());
    for _ in 0..30 {
        assert_eq!(client.get("/").text(), "once");
    }
}

#[test]
fn a_get_that_one_server_leaves_unanswered_is_asked_of_another() {
    let closing = Script::start(|_, mut connection| drop(connection.read()));
    let alive = upstream::echo();
    let servers = format!("{}, {}", server(closing.address), server(alive.address));
    let gateway = Gateway::start(&with_servers(&servers, ""));
    let mut client = Client::new(gateway.web());
    for _ in 0..10 {
        assert_eq!(client.get("/").status, 200);
    }
    assert!(closing.connections() >= 5, "it had its turns");
}

#[test]
fn an_answer_that_comes_before_the_upload_is_whole_is_passed_on() {
    let upstream = Script::start(|_, mut connection| {
        connection.read_head();
        connection.write(
            "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        );
        // What still comes is reset.
    });
    let gateway = Gateway::start(&with_servers(&server(upstream.address), ""));
    let body = vec![b'x'; 4 << 20];
    for _ in 0..20 {
        let mut client = Client::new(gateway.web());
        client.send(head("POST", "/", &[("Content-Length", "4194304")]));
        // It may be rejected, but not hidden, how it ends.
        drop(client.stream.get_mut().write_all(&body));
        assert_eq!(client.read("POST").status, 413);
    }
}

#[test]
fn a_post_that_was_sent_is_never_sent_again() {
    let posts = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&posts);
    let upstream = Script::start(move |_, mut connection| {
        connection.read();
        connection.write(upstream::ok("once"));
        if connection.read().is_some_and(|request| request.line.starts_with("POST")) {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let gateway = Gateway::start(&with_servers(&server(upstream.address), ""));
    let mut client = Client::new(gateway.web());
    assert_eq!(client.get("/").status, 200);
    client.send(head("POST", "/", &[("Content-Length", "2")]) + "hi");
    assert_eq!(client.read("POST").status, 502);
    assert_eq!(posts.load(Ordering::SeqCst), 1);
}

#[test]
fn a_slow_first_byte_is_a_504_and_a_stalled_answer_is_cut() {
    let upstream = Script::start(|_, mut connection| {
        let request = connection.read().expect("a request");
        if request.path() == "/stall" {
            connection.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
        }
        // Holds the connection until the gateway gives up.
        connection.read();
    });
    let routes = "  - name: all\n    match: { path_prefix: / }\n    upstream: up\n    \
                  timeouts: { first_byte: 200ms, idle: 200ms }\n";
    let gateway = Gateway::start(&yaml(upstream.address, routes));
    assert_eq!(http::get(gateway.web(), "/silent").status, 504);
    let cut = http::get(gateway.web(), "/stall");
    assert_eq!((cut.status, cut.complete, cut.text().as_str()), (200, false, "abc"));
}

#[test]
fn a_whole_request_has_a_limit_however_busy_it_is() {
    let upstream = Script::start(|_, mut connection| {
        connection.read();
        connection.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        while connection.write("1\r\nx\r\n").is_some() {
            pause();
        }
    });
    let routes = "  - name: all\n    match: { path_prefix: / }\n    upstream: up\n    \
                  timeouts: { request: 500ms }\n";
    let gateway = Gateway::start(&yaml(upstream.address, routes));
    let answer = http::get(gateway.web(), "/");
    assert_eq!((answer.status, answer.complete), (200, false));
}

#[test]
fn an_upload_that_stops_is_a_408_and_the_upstream_is_let_go() {
    let upstream = upstream::echo();
    let routes = "  - name: all\n    match: { path_prefix: / }\n    upstream: up\n    \
                  timeouts: { idle: 200ms }\n";
    let gateway = Gateway::start(&yaml(upstream.address, routes));
    let mut client = Client::new(gateway.web());
    client.send(head("POST", "/", &[("Content-Length", "10")]) + "abc");
    assert_eq!(client.read("POST").status, 408);
}

#[test]
fn an_upload_below_the_least_rate_is_a_408_and_the_log_says_why() {
    let upstream = upstream::echo();
    let routes =
        "  - { name: all, match: { path_prefix: / }, upstream: up, min_body_rate: 1MiB/s }";
    let gateway = Gateway::start(&yaml(upstream.address, routes));
    let mut client = Client::new(gateway.web());
    let begun = std::time::Instant::now();
    client.send(head("POST", "/", &[("Content-Length", "10")]) + "abc");
    assert_eq!(client.read("POST").status, 408);
    assert!(begun.elapsed() >= std::time::Duration::from_secs(5), "5 s are free");
    gateway.wait_log("timeout=\"min_body_rate\"");
}

#[test]
fn clients_that_dawdle_are_disconnected() {
    let upstream = upstream::echo();
    let text = format!(
        "timeouts: {{ header_read: 300ms, keep_alive: 600ms }}\n{}",
        yaml(upstream.address, ALL)
    );
    let gateway = Gateway::start(&text);
    let mut silent = Client::new(gateway.web());
    assert!(silent.is_closed(), "a client that says nothing");
    let mut slow = Client::new(gateway.web());
    slow.send("GET / HT");
    assert!(slow.is_closed(), "a head that is never whole");
    let mut half = Client::new(gateway.web());
    half.send("PRI * HT");
    let ended = half.stream.read_to_end(&mut Vec::new());
    assert!(ended.is_ok(), "HTTP/2's preface that is never whole: {ended:?}");
    let mut dripping = Client::new(gateway.web());
    let dripped = (0..1000).take_while(|_| {
        pause();
        dripping.stream.get_mut().write_all(b"G").is_ok()
    });
    assert!(dripped.count() < 1000, "a head that never ends");
    let mut idle = Client::new(gateway.web());
    assert_eq!(idle.get("/").status, 200);
    assert!(idle.is_closed(), "a connection that is kept for nothing");
}

#[test]
fn a_garbled_answer_is_a_502() {
    let upstream = Script::start(|_, mut connection| {
        let request = connection.read().expect("a request");
        connection.write(match request.path() {
            "/nonsense" => "SSH-2.0-OpenSSH_9\r\n\r\n",
            "/framed-twice" => {
                "HTTP/1.1 200 OK\r\nContent-Length: 99\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
            }
            "/coded" => {
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
            }
            "/both" => "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
            _ => "HTTP/1.1 200 OK\r\nBad Name: x\r\n\r\n",
        });
    });
    let gateway = Gateway::start(&yaml(upstream.address, ALL));
    for path in ["/nonsense", "/both", "/name", "/framed-twice", "/coded"] {
        assert_eq!(http::get(gateway.web(), path).status, 502, "{path}");
    }
}

#[test]
fn upstream_counters_show_what_happened() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&with_servers(&server(upstream.address), ""));
    for _ in 0..3 {
        http::get(gateway.web(), "/");
    }
    eventually("the counters", || {
        let requests = crate::common::metrics(&gateway, "flowgate_upstream_requests_total");
        (requests.values().sum::<f64>() == 3.0).then_some(())
    });
}

/// The only value of a metric of the only server.
fn count(gateway: &Gateway, name: &str) -> f64 {
    crate::common::metrics(gateway, name).values().sum()
}

#[test]
fn an_answer_that_is_not_whole_or_not_http_is_a_failure_of_its_server() {
    let upstream = Script::start(|_, mut connection| {
        let request = connection.read_head().expect("a request");
        connection.write(match request.path() {
            "/switch" => "HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
            "/framed-twice" => {
                "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            }
            _ => "HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\nhello",
        });
        if request.path() == "/held" {
            while connection.read().is_some() {}
        }
    });
    let gateway = Gateway::start(&with_servers(&server(upstream.address), ""));
    let failures = || count(&gateway, "flowgate_upstream_failures_total");
    for (after, path) in [(1.0, "/cut"), (2.0, "/framed-twice"), (3.0, "/switch")] {
        http::get(gateway.web(), path);
        assert_eq!(failures(), after, "{path}");
    }
    let ends = || count(&gateway, "flowgate_flow_ends_total");
    let before = ends();
    let mut leaving = Client::new(gateway.web());
    leaving.send(head("GET", "/held", &[]));
    assert_eq!(leaving.read_head().map(|answer| answer.status), Some(200));
    drop(leaving);
    let mut garbled = Client::new(gateway.web());
    garbled.send(head("POST", "/held", &[("Transfer-Encoding", "chunked")]));
    assert_eq!(garbled.read_head().map(|answer| answer.status), Some(200));
    garbled.send("no chunk\r\n");
    eventually("both to end", || (ends() == before + 2.0).then_some(()));
    assert_eq!(failures(), 3.0, "of which the clients' doing is none");
    let line = gateway.wait_log("upstream failed: its answer broke off: ");
    assert!(
        line.contains("the connection ended before the body did") && line.contains("attempt=1")
    );
}

#[test]
fn a_server_that_accepts_and_closes_is_given_up_soon() {
    let upstream = Script::start(|_, connection| drop(connection));
    let gateway = Gateway::start(&yaml(upstream.address, ALL));
    for _ in 0..10 {
        assert_eq!(http::get(gateway.web(), "/").status, 502);
    }
    assert!(upstream.connections() <= 40, "{} connections", upstream.connections());
}

#[test]
fn the_access_log_names_the_timeout_that_ended_a_request() {
    const HEAD: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n";
    let upstream = Script::start(|_, mut connection| {
        let request = connection.read_head().expect("a request");
        match request.path() {
            "/idle" => connection.write(format!("{HEAD}\r\n")),
            "/events" => connection.write(format!("{HEAD}Content-Type: text/event-stream\r\n\r\n")),
            _ => Some(()),
        };
        // Holds the connection until the gateway gives up.
        drop(connection.stream.read_to_end(&mut Vec::new()));
    });
    let short =
        [("first_byte", "/"), ("idle", "/idle"), ("event_stream", "/events"), ("request", "/")];
    let routes = short.map(|(key, _)| {
        format!(
            "  - {{ name: {key}, match: {{ host: {key}.test, path_prefix: / }}, upstream: up, \
             timeouts: {{ {key}: 200ms }} }}\n"
        )
    });
    let routes = routes.concat();
    let text = format!("access_log: access.log\n{}", yaml(upstream.address, &routes));
    let gateway = Gateway::start(&text);
    let ask = |key: &str, request: &str| {
        let mut client = Client::new(gateway.web());
        client.send(format!("{request} HTTP/1.1\r\nHost: {key}.test\r\n\r\n"));
        drop(client.try_read("GET"));
    };
    for (key, path) in short {
        ask(key, &format!("GET {path}"));
    }
    let mut stopped = Client::new(gateway.web());
    stopped.send("POST / HTTP/1.1\r\nHost: idle.test\r\nContent-Length: 9\r\n\r\nhalf");
    assert_eq!(stopped.read("POST").status, 408);
    let logged = eventually("all lines", || {
        let log = std::fs::read_to_string(gateway.dir.path().join("access.log")).ok()?;
        let lines =
            log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let mut named: Vec<_> = lines
            .filter_map(|line| {
                Some((line["route"].as_str()?.to_owned(), line["timeout"].as_str()?.to_owned()))
            })
            .collect();
        named.sort();
        (named.len() == 5).then_some(named)
    });
    let expected = ["event_stream", "first_byte", "idle", "idle", "request"]
        .map(|key| (key.to_owned(), format!("timeouts.{key}")));
    assert_eq!(logged, expected);
    gateway.wait_log("timeout=\"timeouts.event_stream\"");
}

#[test]
fn upstreams_with_other_settings_keep_their_connections_to_the_same_server() {
    let up = upstream::echo();
    let server = server(up.address);
    let gateway = Gateway::start(&format!(
        "workers: 1\nlisteners: [{{ name: web, listen: '127.0.0.1:0' }}]\nupstreams:\n  \
         - {{ name: one, servers: [{server}] }}\n  \
         - {{ name: other, servers: [{server}], limits: {{ header_bytes: 16KiB }}, max_idle: 1 }}\nroutes:\n  \
         - {{ name: other, match: {{ path_prefix: /other }}, upstream: other }}\n  \
         - {{ name: one, match: {{ path_prefix: / }}, upstream: one }}\n"
    ));
    let mut client = Client::new(gateway.web());
    for _ in 0..10 {
        assert_eq!(client.get("/other").status, 200);
        assert_eq!(client.get("/").status, 200);
    }
    assert_eq!(up.connections(), 2, "one for each");
}

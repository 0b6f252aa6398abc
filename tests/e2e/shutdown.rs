//! How the gateway ends: in good order, or at once if asked twice.

use crate::{
    common::{
        Gateway, connect, eventually,
        http::{self, Client, head},
        http2,
        upstream::{self, Script},
        yaml, yaml_at,
    },
    port::free_port,
};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    thread,
};

const ALL: &str = "  - { name: all, match: { path_prefix: / }, upstream: up }";

/// An upstream whose `/slow` answers when a test says so.
fn slow() -> (Script, mpsc::Sender<()>) {
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let upstream = Script::start(move |_, mut connection| {
        while let Some(request) = connection.read() {
            if request.path() == "/slow" {
                let signal = wait.lock().expect("no panic").recv_timeout(crate::common::PATIENCE);
                if signal.is_err() {
                    return;
                }
            }
            connection.write(upstream::ok("done"));
        }
    });
    (upstream, go)
}

#[test]
fn a_drain_finishes_what_is_in_flight_and_takes_nothing_new() {
    for signal in ["TERM", "INT", "QUIT"] {
        let (upstream, go) = slow();
        let mut gateway = Gateway::start(&yaml_at(free_port(), upstream.address, ALL));
        let web = gateway.web();
        let admin = gateway.address("admin");
        let mut idle = Client::new(web);
        assert_eq!(idle.get("/").status, 200);
        let mut busy = Client::new(web);
        busy.send(head("GET", "/slow", &[]));
        assert_eq!(http::ask(admin, "/readyz").status, 200);
        // The request must have arrived before the listeners close.
        eventually("it is in flight", || {
            let in_flight = crate::common::metrics(&gateway, "flowgate_flow_in_flight");
            (in_flight.values().sum::<f64>() >= 1.0).then_some(())
        });
        gateway.signal(signal);
        eventually("the listener is closed", || TcpStream::connect(web).is_err().then_some(()));
        assert_eq!(http::ask(admin, "/readyz").status, 503);
        assert_eq!(http::ask(admin, "/healthz").status, 200);
        assert!(idle.is_closed(), "an idle connection ends");
        go.send(()).expect("the upstream waits");
        let answer = busy.read("GET");
        assert_eq!((answer.text().as_str(), answer.complete), ("done", true));
        assert!(busy.is_closed());
        assert_eq!(gateway.wait().code(), Some(0), "{signal}");
    }
}

#[test]
fn a_second_signal_ends_at_once() {
    let (upstream, _go) = slow();
    let mut gateway = Gateway::start(&yaml(upstream.address, ALL));
    let mut busy = Client::new(gateway.web());
    busy.send(head("GET", "/slow", &[]));
    eventually("it is in flight", || {
        let in_flight = crate::common::metrics(&gateway, "flowgate_flow_in_flight");
        (in_flight.values().sum::<f64>() >= 1.0).then_some(())
    });
    gateway.signal("TERM");
    gateway.wait_log("draining");
    assert!(gateway.is_running());
    gateway.signal("TERM");
    gateway.wait();
    assert!(busy.is_closed());
}

#[test]
fn a_drain_has_a_deadline() {
    let (upstream, _go) = slow();
    let text = format!("drain_timeout: 300ms\n{}", yaml(upstream.address, ALL));
    let mut gateway = Gateway::start(&text);
    let mut busy = Client::new(gateway.web());
    busy.send(head("GET", "/slow", &[]));
    eventually("it is in flight", || {
        let in_flight = crate::common::metrics(&gateway, "flowgate_flow_in_flight");
        (in_flight.values().sum::<f64>() >= 1.0).then_some(())
    });
    gateway.signal("TERM");
    gateway.wait();
    assert!(busy.is_closed());
}

#[test]
fn what_the_end_cuts_off_is_in_the_access_log() {
    const ROUTES: &str = "  - { name: paced, match: { path: /paced }, upstream: up, timeouts: { request: 3h }, \
         pacing: { rate: 1/1h, max_wait: 1h } }\n  - { name: all, match: { path_prefix: / }, upstream: up }";
    let upstream = Script::start(|_, mut connection| {
        while let Some(request) = connection.read() {
            match request.path() {
                "/half" => connection.write("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"),
                "/tunnel" => connection.write(
                    "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nhello",
                ),
                _ => Some(()),
            };
        }
    });
    for (limit, signals) in [("300ms", 1), ("1h", 2)] {
        let text = yaml(upstream.address, ROUTES);
        let text = format!("access_log: access.log\ndrain_timeout: {limit}\n{text}");
        let mut gateway = Gateway::start(&text);
        let client = |path, fields: &[(&str, &str)]| {
            let mut client = Client::new(gateway.web());
            client.send(head("GET", path, fields));
            client
        };
        let mut half = client("/half", &[]);
        half.read_head().expect("a head");
        half.stream.read_exact(&mut [0; 4]).expect("half");
        let mut tunnel = client("/tunnel", &[("Connection", "upgrade"), ("Upgrade", "websocket")]);
        tunnel.read_head().expect("a head");
        tunnel.stream.read_exact(&mut [0; 5]).expect("hello");
        let paced = [client("/paced", &[]), client("/paced", &[])];
        let mut stream = connect(gateway.web());
        let get = b"\x82\x86\x84\x41\x01a";
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").expect("sent");
        stream.write_all(b"\0\0\x06\x01\x05\0\0\0\x01").expect("sent");
        stream.write_all(get).expect("sent");
        eventually("all are where they stay", || {
            let sum = |name| crate::common::metrics(&gateway, name).values().sum::<f64>();
            let waiting = sum("flowgate_flow_queue_depth");
            (waiting == 1.0 && sum("flowgate_upstream_in_flight") == 4.0).then_some(())
        });
        for _ in 0..signals {
            gateway.signal("TERM");
            gateway.wait_log("draining");
        }
        assert_eq!(gateway.wait().code(), Some(0));
        gateway.wait_log("ending with requests in flight requests=5");
        let log = std::fs::read_to_string(gateway.dir.path().join("access.log")).expect("a log");
        let mut lines: Vec<_> = log.lines().map(of_cut).collect();
        lines.sort();
        let expected = [
            ("/", 499, 0),
            ("/half", 200, 4),
            ("/paced", 499, 0),
            ("/paced", 499, 0),
            ("/tunnel", 101, 5),
        ];
        let expected = expected.map(|(path, status, bytes)| (path.to_owned(), status, bytes));
        assert_eq!(lines, expected, "{log}");
        drop((half, tunnel, paced, stream));
    }
}

/// The path, the status and the answer's bytes of a request that was cut off with its decision.
fn of_cut(line: &str) -> (String, u64, u64) {
    let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
    assert_eq!(line["outcome"], "cut", "{line}");
    assert!(line["flow"]["decision"].is_string(), "{line}");
    let number = |name: &str| line[name].as_u64().expect("a number");
    (line["path"].as_str().expect("a path").to_owned(), number("status"), number("bytes_out"))
}

#[test]
fn a_gateway_that_waits_for_its_store_answers_probes_and_hears_a_signal() {
    for rule in ["", ", sync_interval: 100ms"] {
        let store = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = store.local_addr().expect("an address");
        let flow = format!("flow: [{{ name: r, limit: 9/1h, scope: cluster{rule} }}]");
        let route =
            format!("  - {{ name: all, match: {{ path_prefix: / }}, upstream: up, {flow} }}");
        let text = format!(
            "store: {{ redis: \"redis://{address}\", connect_timeout: 1h }}\n{}",
            yaml(address, &route)
        );
        let dir = tempfile::tempdir().expect("a temporary directory");
        let config = dir.path().join("gateway.yaml");
        std::fs::write(&config, text).expect("written");
        let mut gateway = Gateway::spawn(dir, config, &[]);
        // Who connects has begun to wait; nobody answers.
        let asked = store.accept().expect("a connection");
        assert!(gateway.is_running());
        let admin = gateway.address("admin");
        assert_eq!(http::ask(admin, "/healthz").status, 200);
        assert_eq!(http::ask(admin, "/readyz").status, 503);
        assert_eq!(http::ask(admin, "/routes").status, 200);
        gateway.signal("TERM");
        assert_eq!(gateway.wait().code(), Some(0));
        gateway.wait_log("drained");
        assert!(!gateway.log().contains("ready"), "{}", gateway.log());
        drop(asked);
    }
}

#[test]
fn http2_clients_get_a_goaway() {
    let upstream = upstream::echo();
    let mut gateway = Gateway::start(&yaml(upstream.address, ALL));
    let mut stream = connect(gateway.web());
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").expect("sent");
    // Settings from the gateway show that it speaks HTTP/2.
    let mut frame = [0; 9];
    stream.read_exact(&mut frame).expect("a frame");
    assert_eq!(frame[3], 4);
    gateway.signal("TERM");
    let mut rest = vec![0; usize::from(frame[2])];
    stream.read_exact(&mut rest).expect("the settings");
    let mut goaway = false;
    while stream.read_exact(&mut frame).is_ok() {
        goaway |= frame[3] == 7;
        let mut payload = vec![0; usize::from(frame[2])];
        if stream.read_exact(&mut payload).is_err() {
            break;
        }
    }
    assert!(goaway);
    gateway.wait();
}

#[test]
fn an_http2_client_that_opens_no_more_streams_gets_the_answers_to_those_it_has() {
    let (answer, answers) = mpsc::channel();
    let answers = Mutex::new(answers);
    let upstream = Script::answering(move |_| {
        let body: String = answers.lock().expect("no panic").recv().expect("a body");
        upstream::ok(&body)
    });
    let gateway = Gateway::start(&yaml(upstream.address, ALL));
    let mut client = http2::Client::new(gateway.web());
    client.get(1, "/", &[]);
    client.go_away();
    answer.send("late".to_owned()).expect("the upstream waits");
    assert_eq!(http2::body(&client.answer(1)), "late");
}

#[test]
fn a_gateway_that_cannot_start_says_why_and_exits_with_1_or_2() {
    let upstream = upstream::echo();
    let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = taken.local_addr().expect("bound").to_string();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let config = dir.path().join("gateway.yaml");
    let text = yaml(upstream.address, ALL).replacen("127.0.0.1:0", &address, 1);
    std::fs::write(&config, text).expect("written");
    let output = Command::new(env!("CARGO_BIN_EXE_flowgate"))
        .args(["run", "-c"])
        .arg(&config)
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains(&address));
    let missing = Command::new(env!("CARGO_BIN_EXE_flowgate"))
        .args(["run", "-c", "/nowhere/gateway.yaml"])
        .output()
        .expect("it runs");
    assert_eq!(missing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("/nowhere/gateway.yaml"));
    let usage =
        Command::new(env!("CARGO_BIN_EXE_flowgate")).arg("--nonsense").output().expect("it runs");
    assert_eq!(usage.status.code(), Some(2));
}

/// A client that was accepted and asks for nothing.
fn silent(gateway: &Gateway) -> Client {
    let client = Client::new(gateway.web());
    eventually("it was accepted", || {
        let open = crate::common::metrics(gateway, "flowgate_connections_active");
        (open.values().sum::<f64>() >= 1.0).then_some(())
    });
    client
}

#[test]
fn a_connection_that_has_asked_for_nothing_does_not_hold_a_drain_up() {
    let upstream = upstream::echo();
    let text = format!("timeouts: {{ header_read: 1h }}\n{}", yaml(upstream.address, ALL));
    let mut gateway = Gateway::start(&text);
    let mut silent = silent(&gateway);
    gateway.signal("TERM");
    gateway.wait();
    assert!(silent.is_closed());
}

#[test]
fn a_drain_that_ends_with_idle_connections_only_speaks_of_no_requests() {
    let upstream = upstream::echo();
    let mut gateway =
        Gateway::start(&format!("drain_timeout: 100ms\n{}", yaml(upstream.address, ALL)));
    let mut silent = silent(&gateway);
    gateway.signal("TERM");
    gateway.wait();
    assert!(silent.is_closed());
    gateway.wait_log("drained");
    assert!(!gateway.log().contains("in flight"), "{}", gateway.log());
}

#[test]
fn a_connection_made_before_a_drain_gets_its_first_answer() {
    let upstream = upstream::echo();
    let mut gateway = Gateway::start(&yaml(upstream.address, ALL));
    let mut clients: Vec<Client> = (0..8).map(|_| Client::new(gateway.web())).collect();
    gateway.signal("TERM");
    gateway.wait_log("draining");
    for client in &mut clients {
        assert_eq!(client.get("/").status, 200);
    }
    gateway.wait();
}

/// Has many clients at `web`, each with one request a connection and then the next, until
/// connecting fails or `most` were answered. Calls `end` when some were; returns how many were.
fn crowd(web: SocketAddr, most: usize, end: impl FnOnce()) -> usize {
    let answers = AtomicUsize::new(0);
    let begun = mpsc::sync_channel(1);
    thread::scope(|scope| {
        for _ in 0..64 {
            let answers = &answers;
            let begun = begun.0.clone();
            scope.spawn(move || {
                let ask = || {
                    let mut stream = TcpStream::connect(web).ok()?;
                    stream
                        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
                        .ok()?;
                    (stream.read_to_end(&mut Vec::new()).ok()? > 0).then_some(())
                };
                while ask().is_some() {
                    match answers.fetch_add(1, Relaxed) {
                        500 => begun.send(()).expect("somebody waits"),
                        count if count >= most => return,
                        _ => {}
                    }
                }
            });
        }
        begun.1.recv_timeout(crate::common::PATIENCE).expect("answers");
        end();
    });
    answers.into_inner()
}

#[test]
fn a_listener_closes_though_clients_never_stop_coming() {
    const MOST: usize = 20_000;
    let upstream = upstream::echo();
    // One worker, so that the crowd is always at its door.
    let text = yaml_at(free_port(), upstream.address, ALL);
    let mut gateway = Gateway::start(&text.replacen("workers: 2", "workers: 1", 1));
    let answers = crowd(gateway.web(), MOST, || gateway.signal("TERM"));
    assert!(answers < MOST, "{answers}");
    assert_eq!(gateway.wait().code(), Some(0));
}

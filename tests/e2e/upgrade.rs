//! Connections that change their protocol, with a real WebSocket client.

use crate::{
    common::{
        Gateway, eventually,
        http::{self, Client, head},
        upstream::{self, Script},
        yaml, yaml_at,
    },
    port::free_port,
};
use futures_util::{SinkExt, StreamExt};
use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    sync::{Mutex, mpsc},
    time::Duration,
};
use tokio_tungstenite::tungstenite::Message;

const ALL: &str = "  - { name: all, match: { path_prefix: / }, upstream: up, flow: [{ name: two, concurrency: 2 }] }";

/// The demo's upstream, which has a WebSocket echo at `/ws`.
fn demo() -> flowgate::demo::Upstream {
    flowgate::demo::Upstream::start("127.0.0.1:0".parse().expect("an address")).expect("it starts")
}

fn in_flight(gateway: &Gateway) -> f64 {
    crate::common::metrics(gateway, "flowgate_flow_in_flight").values().sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_is_tunnelled_and_survives_a_reload() {
    let upstream = demo();
    let text = yaml(upstream.address(), ALL);
    let gateway = Gateway::start(&text);
    let url = format!("ws://{}/ws", gateway.web());
    let (mut socket, response) = tokio_tungstenite::connect_async(&url).await.expect("a WebSocket");
    assert_eq!(response.status(), 101);
    for text in ["hello", "again", &"x".repeat(100_000)] {
        socket.send(Message::text(text)).await.expect("sent");
        let echoed = socket.next().await.expect("open").expect("a message");
        assert_eq!(echoed.into_text().expect("text").as_str(), text);
    }
    assert!(in_flight(&gateway) >= 1.0, "the tunnel holds its permit");
    gateway.edit(&text.replace("concurrency: 2", "concurrency: 1"));
    socket.send(Message::text("after")).await.expect("sent");
    assert_eq!(
        socket.next().await.expect("open").expect("a message").into_text().expect("text").as_str(),
        "after"
    );
    assert_eq!(http::get(gateway.web(), "/").status, 503, "the tunnel counts under the new rule");
    socket.close(None).await.expect("closed");
    drop(socket);
    eventually("the permit is back", || (in_flight(&gateway) == 0.0).then_some(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_lets_a_tunnel_go_on_until_it_ends() {
    let upstream = demo();
    let mut gateway = Gateway::start(&yaml_at(free_port(), upstream.address(), ALL));
    let web = gateway.web();
    let (mut socket, _) =
        tokio_tungstenite::connect_async(&format!("ws://{web}/ws")).await.expect("a WebSocket");
    gateway.signal("TERM");
    eventually("the listener is closed", || TcpStream::connect(web).is_err().then_some(()));
    socket.send(Message::text("late")).await.expect("sent");
    let echoed = socket.next().await.expect("open").expect("a message");
    assert_eq!(echoed.into_text().expect("text").as_str(), "late");
    assert!(gateway.is_running());
    socket.close(None).await.expect("closed");
    drop(socket);
    assert_eq!(gateway.wait().code(), Some(0));
    gateway.wait_log("drained");
}

#[test]
fn a_tunnel_is_cut_off_at_the_drains_deadline() {
    let upstream = willing();
    let text = format!("drain_timeout: 300ms\n{}", yaml(upstream.address, ALL));
    let mut gateway = Gateway::start(&text);
    let (status, mut client) = ask(&gateway, "websocket");
    assert_eq!(status, 101);
    gateway.signal("TERM");
    assert_eq!(gateway.wait().code(), Some(0));
    assert!(client.is_closed());
    gateway.wait_log("ending with requests in flight");
}

/// Switches to whatever is asked for, and echoes bytes.
fn willing() -> Script {
    Script::start(|_, mut connection| {
        while let Some(request) = connection.read() {
            let Some(token) = request.header("upgrade") else {
                connection.write(upstream::ok("plain"));
                continue;
            };
            connection.write(format!("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: {token}\r\nContent-Length: 0\r\n\r\n"));
            let mut byte = [0];
            while connection.stream.read_exact(&mut byte).is_ok() {
                connection.write(byte);
            }
        }
    })
}

fn ask(gateway: &Gateway, token: &str) -> (u16, Client) {
    let mut client = Client::new(gateway.web());
    client.send(head("GET", "/", &[("Connection", "Upgrade"), ("Upgrade", token)]));
    let answer = client.read("GET");
    // A 101 has no length.
    assert!(answer.status != 101 || answer.header("content-length").is_none());
    (answer.status, client)
}

#[test]
fn only_what_the_route_names_is_tunnelled() {
    let upstream = willing();
    let gateway = Gateway::start(&yaml(upstream.address, ALL));
    assert_eq!(ask(&gateway, "h2c").0, 200, "a token that is not allowed is not forwarded");
    assert_eq!(ask(&gateway, "websocket").0, 101);
    let open = ALL.replace("upstream: up,", "upstream: up, upgrades: [raw],");
    let gateway = Gateway::start(&yaml(upstream.address, &open));
    assert_eq!(ask(&gateway, "websocket").0, 200);
    let (status, mut client) = ask(&gateway, "raw");
    assert_eq!(status, 101);
    client.send("ping");
    let mut echoed = [0; 4];
    client.stream.read_exact(&mut echoed).expect("echoed");
    assert_eq!(&echoed, b"ping");
}

#[test]
fn a_client_with_a_tunnel_gets_its_quota_from_the_gateway_alone() {
    const OWN: &str =
        "RateLimit: \"theirs\";r=1\r\nRateLimit-Policy: \"theirs\";q=1\r\nX-RateLimit-Limit: 1\r\n";
    let upstream = Script::answering(|_| {
        format!("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n{OWN}\r\n")
            .into_bytes()
    });
    let rules = ALL.replace("concurrency: 2", "algorithm: fixed_window, limit: 9/1h");
    let expected = [
        ("legacy", ["\"two\";r=8;t=", "\"two\";q=9;w=3600", "9"]),
        ("off", ["\"theirs\";r=1", "\"theirs\";q=1", "1"]),
    ];
    for (words, fields) in expected {
        let text = format!("headers: {words}\n{}", yaml(upstream.address, &rules));
        let gateway = Gateway::start(&text);
        let mut client = Client::new(gateway.web());
        client.send(head("GET", "/", &[("Connection", "Upgrade"), ("Upgrade", "websocket")]));
        let answer = client.read_head().expect("a head");
        assert_eq!(answer.status, 101);
        let names = ["ratelimit", "ratelimit-policy", "x-ratelimit-limit"];
        for (name, expected) in names.into_iter().zip(fields) {
            let values: Vec<_> = answer.headers.iter().filter(|(key, _)| key == name).collect();
            assert!(values.len() == 1 && values[0].1.starts_with(expected), "{words}: {values:?}");
        }
    }
}

#[test]
fn an_upstream_that_switches_unasked_is_a_502() {
    let upstream = Script::answering(|_| {
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: evil\r\n\r\n".to_vec()
    });
    let gateway = Gateway::start(&yaml(upstream.address, ALL));
    assert_eq!(http::get(gateway.web(), "/").status, 502);
    assert_eq!(ask(&gateway, "websocket").0, 502);
}

/// Switches to whatever is asked for once it has the whole request, says what that was, and echoes
/// bytes.
fn attached() -> Script {
    Script::start(|_, mut connection| {
        let request = connection.read().expect("a request");
        let token = request.header("upgrade").expect("a protocol");
        let line = &request.line;
        let body = String::from_utf8_lossy(&request.body);
        connection.write(format!(
            "HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\nUpgrade: {token}\r\nX-Got: {line} {body}\r\n\r\n"
        ));
        let mut byte = [0];
        while connection.stream.read_exact(&mut byte).is_ok() {
            connection.write(byte);
        }
    })
}

#[test]
fn a_request_of_any_method_is_tunnelled_behind_its_body() {
    const LENGTH: &[(&str, &str)] = &[("Content-Length", "13")];
    const CHUNKED: &[(&str, &str)] = &[("Transfer-Encoding", "chunked")];
    const EXPECT: &[(&str, &str)] = &[("Content-Length", "13"), ("Expect", "100-continue")];
    const JSON: &str = "{\"Tty\": true}";
    const CHUNKS: [&str; 3] = ["6\r\n{\"Tty\"\r\n", "7\r\n: true}\r\n", "0\r\n\r\n"];
    let [first, second, last] = CHUNKS;
    let upstream = attached();
    let open = ALL.replace("upstream: up,", "upstream: up, upgrades: [tcp, SPDY/3.1],");
    let open = open.replace("concurrency: 2", "concurrency: 99");
    let gateway = Gateway::start(&yaml(upstream.address, &open));
    for (method, token, fields, parts, body) in [
        ("POST", "tcp", &[][..], &[][..], ""),
        ("POST", "TCP", &[("Content-Length", "0")], &[], ""),
        ("POST", "tcp", LENGTH, &[JSON], JSON),
        ("POST", "tcp", LENGTH, &["{\"Tty\"", ": true}"], JSON),
        ("POST", "tcp/1.1", CHUNKED, &CHUNKS, JSON),
        ("PUT", "tcp", CHUNKED, &[&*[first, second, last].concat()], JSON),
        ("POST", "tcp", EXPECT, &[JSON], JSON),
        ("GET", "SPDY/3.1", &[], &[], ""),
        ("POST", "spdy/3.1", LENGTH, &[JSON], JSON),
    ] {
        // What is for the tunnel comes with the last part of the request, and behind the 101.
        for ahead in ["", "ping"] {
            let mut client = Client::new(gateway.web());
            let upgrade = [("Connection", "Upgrade"), ("Upgrade", token)];
            let mut sent = head(method, "/exec", &[&upgrade, fields].concat());
            if fields == EXPECT {
                client.send(&sent);
                assert_eq!(client.read_head().map(|head| head.status), Some(100));
                sent.clear();
            }
            for part in parts {
                sent += part;
                if !part.ends_with(['}', '\n']) {
                    client.send(&sent);
                    sent.clear();
                }
            }
            client.send(sent + ahead);
            let answer = client.read_head().expect("a head");
            assert_eq!(answer.status, 101, "{method} {token} {fields:?}");
            assert_eq!(answer.header("upgrade"), Some(token));
            assert_eq!(answer.header("content-type"), Some("application/vnd.docker.raw-stream"));
            let expected = format!("{method} /exec HTTP/1.1 {body}");
            assert_eq!(answer.header("x-got"), Some(expected.trim()), "{fields:?}");
            client.send("pong");
            let mut echoed = vec![0; ahead.len() + 4];
            client.stream.read_exact(&mut echoed).expect("echoed");
            assert_eq!(String::from_utf8_lossy(&echoed), format!("{ahead}pong"), "{fields:?}");
        }
    }
}

#[test]
fn a_request_for_another_protocol_or_version_is_forwarded_without_it() {
    let upstream = willing();
    let open = ALL.replace("upstream: up,", "upstream: up, upgrades: [websocket, tcp, SPDY/3.1],");
    let gateway = Gateway::start(&yaml(upstream.address, &open));
    for (method, token) in [
        // It begins with a GET (RFC 6455, 4.1).
        ("POST", "websocket"),
        ("POST", "WebSocket/13"),
        ("POST", "SPDY"),
        ("POST", "SPDY/3"),
        ("POST", "SPDY/3.1/a"),
        ("POST", "tcp6"),
        ("POST", "tcp/"),
        ("POST", "tcp/1 2"),
        ("POST", "tcp, h2c"),
        ("POST", "h2c"),
    ] {
        let mut client = Client::new(gateway.web());
        let fields = [("Connection", "Upgrade"), ("Upgrade", token)];
        assert_eq!(client.request(method, "/", &fields).status, 200, "{method} {token}");
    }
}

#[test]
fn an_upstream_that_switches_before_it_has_the_body_is_a_502() {
    let (heard, all) = mpsc::channel();
    let heard = Mutex::new(heard);
    let upstream = Script::start(move |_, mut connection| {
        let Some(request) = connection.read_head() else { return };
        let token = request.header("upgrade").expect("a protocol");
        connection.write(format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: {token}\r\n\r\n"
        ));
        // Until the gateway closes it.
        let mut rest = Vec::new();
        let _end = connection.stream.read_to_end(&mut rest);
        let rest = String::from_utf8_lossy(&rest).into_owned();
        heard.lock().expect("a lock").send(rest).expect("the test listens");
    });
    let open = ALL.replace("upstream: up,", "upstream: up, upgrades: [websocket, tcp],");
    let gateway = Gateway::start(&yaml(upstream.address, &open));
    for (method, token, field, part, rest) in [
        ("GET", "websocket", ("Content-Length", "10"), "12345", "67890"),
        ("POST", "tcp", ("Content-Length", "10"), "12345", "67890"),
        ("POST", "tcp", ("Content-Length", "10"), "", "1234567890"),
        ("POST", "tcp", ("Transfer-Encoding", "chunked"), "3\r\nabc\r\n", "0\r\n\r\n"),
    ] {
        let mut client = Client::new(gateway.web());
        let fields = [("Connection", "upgrade"), ("Upgrade", token), field];
        client.send(head(method, "/", &fields) + part);
        let answer = client.read("GET");
        assert_eq!((answer.status, answer.header("connection")), (502, Some("close")), "{field:?}");
        // What follows the body may be for the tunnel, and is no request.
        client.send(rest.to_owned() + &head("GET", "/hidden", &[]));
        assert!(client.is_closed(), "{field:?}");
        assert_eq!(all.recv().expect("the connection ends"), part);
    }
    assert_eq!(upstream.connections(), 4);
}

/// Asks for a tunnel and sees four bytes come back through it.
fn ping(gateway: &Gateway) -> Client {
    let (status, mut client) = ask(gateway, "websocket");
    assert_eq!(status, 101);
    client.send("ping");
    client.stream.read_exact(&mut [0; 4]).expect("echoed");
    client
}

#[test]
fn a_silent_tunnel_is_closed_after_its_timeout() {
    let upstream = willing();
    let routes = ALL.replace("upstream: up,", "upstream: up, timeouts: { tunnel: 300ms },");
    let text = format!("access_log: access.log\n{}", yaml(upstream.address, &routes));
    let gateway = Gateway::start(&text);
    assert!(ping(&gateway).is_closed());
    assert_eq!(logged(&gateway), ("completed".to_owned(), 4));
    assert_eq!(access_line(&gateway)["timeout"], "timeouts.tunnel");
    gateway.wait_log("request timed out");
}

#[test]
fn a_client_that_has_said_all_through_a_tunnel_still_hears() {
    let upstream = Script::start(|_, mut connection| {
        connection.read().expect("a request");
        let head = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
        let mut said = Vec::new();
        // Whoever writes before it has read all would not show which side closed first.
        connection.stream.get_mut().write_all(head).expect("sent");
        connection.stream.read_to_end(&mut said).expect("read to the end");
        said.extend_from_slice(b" heard");
        connection.stream.get_mut().write_all(&said).expect("sent");
    });
    let gateway = Gateway::start(&yaml(upstream.address, ALL));
    let (status, mut client) = ask(&gateway, "websocket");
    assert_eq!(status, 101);
    let first = "a".repeat(3000);
    client.send(&first);
    client.stream.get_ref().shutdown(Shutdown::Write).expect("shut down");
    let mut heard = String::new();
    client.stream.read_to_string(&mut heard).expect("read to the end");
    assert!(heard == first + " heard", "{heard}");
}

#[test]
fn a_client_that_breaks_its_tunnel_off_has_left() {
    let upstream = willing();
    let gateway =
        Gateway::start(&format!("access_log: access.log\n{}", yaml(upstream.address, ALL)));
    let client = ping(&gateway);
    socket2::SockRef::from(client.stream.get_ref()).set_linger(Some(Duration::ZERO)).expect("set");
    drop(client);
    assert_eq!(logged(&gateway), ("cancelled".to_owned(), 4));
    let failures = crate::common::metrics(&gateway, "flowgate_upstream_failures_total");
    assert_eq!(failures.values().sum::<f64>(), 0.0);
}

/// The outcome and the bytes of the only request in the access log.
fn logged(gateway: &Gateway) -> (String, u64) {
    let line = access_line(gateway);
    let outcome = line["outcome"].as_str().expect("an outcome");
    (outcome.to_owned(), line["bytes_out"].as_u64().expect("a number"))
}

/// The only line of the access log.
fn access_line(gateway: &Gateway) -> serde_json::Value {
    let line = eventually("a line", || {
        let log = std::fs::read_to_string(gateway.dir.path().join("access.log")).ok()?;
        log.ends_with('\n').then_some(log)
    });
    serde_json::from_str(&line).expect("JSON")
}

#[test]
fn a_tunnel_is_in_flight_at_its_server_until_it_ends() {
    let upstream = willing();
    let gateway = Gateway::start(&yaml(upstream.address, ALL));
    let in_flight = || {
        let servers = crate::common::metrics(&gateway, "flowgate_upstream_in_flight");
        servers.values().sum::<f64>()
    };
    let tunnels = [ping(&gateway), ping(&gateway)];
    assert_eq!(in_flight(), 2.0);
    drop(tunnels);
    eventually("both have ended", || (in_flight() == 0.0).then_some(()));
}

#[test]
fn tunnels_count_as_connections() {
    let upstream = willing();
    let text = format!(
        "limits: {{ connections: 3 }}\n{}",
        yaml(upstream.address, &ALL.replace("concurrency: 2", "concurrency: 9"))
    );
    let gateway = Gateway::start(&text);
    let held: Vec<_> = (0..3).map(|_| ask(&gateway, "websocket")).collect();
    assert!(held.iter().all(|(status, _)| *status == 101));
    let mut fourth = Client::new(gateway.web());
    assert!(fourth.is_closed());
    drop(held);
    eventually("there is room again", || http::raw(gateway.web(), head("GET", "/", &[])));
}

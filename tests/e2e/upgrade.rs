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

/// Asks for a tunnel and sees four bytes come back through it.
#[test]
fn an_upstream_that_switches_before_it_has_the_body_is_a_502() {
    let upstream = Script::start(|_, mut connection| {
        if connection.read_head().is_some() {
            connection.write(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
            );
            // Until the gateway closes it.
            let _end = connection.stream.read_to_end(&mut Vec::new());
        }
    });
    let gateway = Gateway::start(&yaml(upstream.address, ALL));
    let mut client = Client::new(gateway.web());
    let fields = [("Connection", "upgrade"), ("Upgrade", "websocket"), ("Content-Length", "10")];
    client.send(head("GET", "/", &fields) + "12345");
    assert_eq!(client.read("GET").status, 502);
}

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

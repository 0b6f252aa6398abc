//! Answers and tunnels that are silent for long, and are meant to be.

use super::{Client, TestProxy, read_head, secs};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// A client and its server after the head of an answer with `headers` has passed.
async fn begun(proxy: &mut TestProxy, request: &str, head: &str) -> (Client, DuplexStream) {
    let mut client = proxy.client();
    client.send(&format!("GET / HTTP/1.1\r\nhost: a\r\n{request}\r\n")).await;
    let mut server = proxy.upstream.recv().await.expect("a connection");
    read_head(&mut server).await.expect("a head");
    server.write_all(format!("HTTP/1.1 {head}\r\n\r\n").as_bytes()).await.expect("sent");
    read_head(&mut client.stream).await.expect("the answer's head");
    (client, server)
}

/// How long the gateway lets the two be silent, in seconds.
async fn silence(proxy: &TestProxy, client: &mut Client) -> u64 {
    let since = proxy.now();
    let mut rest = Vec::new();
    client.stream.read_to_end(&mut rest).await.expect("read to the end");
    proxy.now().since(since).as_secs()
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_events_may_be_silent_for_longer_than_other_answers() {
    let chunked = "transfer-encoding: chunked";
    for (kind, expected) in [
        ("text/event-stream", 300),
        ("Text/Event-Stream; charset=utf-8", 300),
        ("text/event-streams", 60),
        ("text/plain", 60),
    ] {
        let mut proxy = TestProxy::new("");
        let head = format!("200 OK\r\ncontent-type: {kind}\r\n{chunked}");
        let (mut client, mut server) = begun(&mut proxy, "", &head).await;
        if expected == 300 {
            proxy.pass(secs(290)).await;
        }
        server.write_all(b"6\r\ndata\n\n\r\n").await.expect("sent");
        client.stream.read_exact(&mut [0; 11]).await.expect("an event");
        assert_eq!(silence(&proxy, &mut client).await, expected, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_silence_of_event_streams_and_tunnels_can_be_set() {
    let mut proxy = TestProxy::new(", timeouts: { idle: 5s, event_stream: 2m, tunnel: 3m }");
    let head = "200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked";
    let (mut client, _server) = begun(&mut proxy, "", head).await;
    assert_eq!(silence(&proxy, &mut client).await, 120);
    let upgrade = "connection: upgrade\r\nupgrade: websocket\r\n";
    let head = format!("101 Switching Protocols\r\n{}", upgrade.trim_end());
    let (mut client, _server) = begun(&mut proxy, upgrade, &head).await;
    assert_eq!(silence(&proxy, &mut client).await, 180);
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_may_be_silent_for_an_hour() {
    let mut proxy = TestProxy::new("");
    let upgrade = "connection: upgrade\r\nupgrade: websocket\r\n";
    let head = format!("101 Switching Protocols\r\n{}", upgrade.trim_end());
    let (mut client, mut server) = begun(&mut proxy, upgrade, &head).await;
    proxy.pass(secs(3_500)).await;
    server.write_all(b"x").await.expect("sent");
    client.stream.read_exact(&mut [0]).await.expect("a byte");
    assert_eq!(silence(&proxy, &mut client).await, 3_600);
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_that_one_side_has_closed_ends_after_a_minute_of_silence() {
    let upgrade = "connection: upgrade\r\nupgrade: websocket\r\n";
    let head = format!("101 Switching Protocols\r\n{}", upgrade.trim_end());
    let mut proxy = TestProxy::new("");
    let (mut client, mut server) = begun(&mut proxy, upgrade, &head).await;
    proxy.pass(secs(500)).await;
    client.stream.shutdown().await.expect("closed");
    proxy.pass(secs(50)).await;
    server.write_all(b"x").await.expect("sent");
    client.stream.read_exact(&mut [0]).await.expect("a byte");
    assert_eq!(silence(&proxy, &mut client).await, 60);
    let mut proxy = TestProxy::new("");
    let (client, mut server) = begun(&mut proxy, upgrade, &head).await;
    server.shutdown().await.expect("closed");
    proxy.pass(secs(59)).await;
    let mut rest = Vec::new();
    let since = proxy.now();
    server.read_to_end(&mut rest).await.expect("the end");
    assert!(proxy.now().since(since).as_secs() <= 1, "{:?}", proxy.now().since(since));
    drop(client);
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_timeout_is_off_or_long_takes_as_long_as_its_parts_come() {
    const DAY: u64 = 24 * 3600;
    let head = "200 OK\r\ntransfer-encoding: chunked";
    for (request, silent) in [("off", 30), ("30d", 2)] {
        let timeouts = format!(", timeouts: {{ idle: 30d, request: {request} }}");
        let mut proxy = TestProxy::new(&timeouts);
        let (mut client, mut server) = begun(&mut proxy, "", head).await;
        // Two pauses of 14 days, then none.
        for _ in 0..2 {
            proxy.pass(secs(14 * DAY)).await;
            server.write_all(b"1\r\nx\r\n").await.expect("sent");
            client.stream.read_exact(&mut [0; 6]).await.expect("a part");
        }
        // With `off`, only `idle` ends the response.
        assert_eq!(silence(&proxy, &mut client).await, silent * DAY, "{request}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_timeout_of_the_request_the_others_still_hold() {
    let mut proxy = TestProxy::new(", timeout: off, timeouts: { first_byte: 3h }");
    let mut client = proxy.client();
    let since = proxy.now();
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let _server = proxy.upstream.recv().await.expect("a connection");
    assert_eq!(client.status().await, Some(504));
    assert_eq!(proxy.now().since(since).as_secs(), 3 * 3600);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_names_its_timeout_has_it_where_the_routes_is_off() {
    let mut proxy = TestProxy::new(", timeout: off");
    let mut client = proxy.client();
    let since = proxy.now();
    client
        .send(
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-type: application/grpc\r\n\
             grpc-timeout: 5S\r\ncontent-length: 0\r\n\r\n",
        )
        .await;
    let _server = proxy.upstream.recv().await.expect("a connection");
    let head = read_head(&mut client.stream).await.expect("an answer");
    assert!(head.contains("grpc-status: 4"), "{head}");
    assert_eq!(proxy.now().since(since).as_secs(), 5);
}

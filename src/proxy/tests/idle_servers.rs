//! Connections to servers that close them when they are idle.

use super::{TestProxy, read_head, secs};
use crate::clock::Clock;
use crate::proxy::{Connector, tests::Client};
use core::time::Duration;
use http::{Response, StatusCode};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};
use tokio::{io::AsyncWriteExt, sync::mpsc};

/// Has a request answered with `headers`, and another one `pause` later. Returns whether the
/// second one came over the connection of the first.
async fn is_used_again(headers: &str, pause: Duration) -> bool {
    let mut proxy = TestProxy::new("");
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n").await;
    let mut server = proxy.upstream.recv().await.expect("a connection");
    read_head(&mut server).await.expect("a head");
    let answer = format!("HTTP/1.1 200 OK\r\n{headers}content-length: 2\r\n\r\nok");
    server.write_all(answer.as_bytes()).await.expect("sent");
    let head = read_head(&mut client.stream).await.expect("an answer");
    assert!(!head.contains("keep-alive"), "it is the server's word to the gateway: {head}");
    proxy.pass(pause).await;
    let mut other = proxy.client();
    other.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n").await;
    proxy.pass(Duration::from_millis(1)).await;
    proxy.upstream.try_recv().is_err()
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_given_up_before_node_closes_it() {
    assert!(is_used_again("", Duration::from_millis(3_990)).await);
    assert!(!is_used_again("", Duration::from_millis(4_010)).await);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_closes_sooner_is_believed() {
    let announced = "keep-alive: timeout=3\r\n";
    assert!(is_used_again(announced, Duration::from_millis(1_990)).await);
    assert!(!is_used_again(announced, Duration::from_millis(2_010)).await);
    assert!(!is_used_again("keep-alive: timeout=0\r\n", Duration::ZERO).await);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_closes_later_does_not_lengthen_the_setting() {
    assert!(!is_used_again("keep-alive: timeout=60\r\n", secs(5)).await);
}

/// What servers of HTTP/2 have seen of their connections.
#[derive(Debug, Default)]
struct Seen {
    opened: AtomicUsize,
    closed: AtomicUsize,
}

/// Returns a proxy whose upstream speaks HTTP/2 and has these keys. Its servers answer every request.
fn with_http2(keys: &str) -> (TestProxy, Arc<Seen>) {
    let text = format!(
        "listeners: [{{ name: web, listen: 127.0.0.1:0 }}]\n\
         upstreams: [{{ name: up, servers: [{{ url: \"http://127.0.0.1:9\" }}], protocol: h2{keys} }}]\n\
         routes: [{{ name: all, match: {{ path_prefix: / }}, upstream: up }}]\n"
    );
    let (accept, mut connections) = mpsc::unbounded_channel();
    let seen = Arc::<Seen>::default();
    let noted = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Some(stream) = connections.recv().await {
            let noted = Arc::clone(&noted);
            tokio::spawn(async move {
                noted.opened.fetch_add(1, Relaxed);
                let mut connection = h2::server::handshake(stream).await.expect("HTTP/2");
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    let answer = Response::builder().status(StatusCode::NO_CONTENT).body(());
                    drop(respond.send_response(answer.expect("a response"), true));
                }
                noted.closed.fetch_add(1, Relaxed);
            });
        }
    });
    let proxy = TestProxy::of(Clock::start(), &text, Connector::Memory(accept), None);
    (proxy, seen)
}

async fn post(client: &mut Client) -> Option<u16> {
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n").await;
    client.status().await
}

#[tokio::test(start_paused = true)]
async fn a_connection_of_http_2_is_used_until_its_idle_timeout_and_not_after_it() {
    for (keys, limit) in [("", secs(4)), (", idle_timeout: 1s", secs(1))] {
        let (proxy, seen) = with_http2(keys);
        let mut client = proxy.client();
        assert_eq!(post(&mut client).await, Some(204));
        // Each request begins the time anew.
        for _ in 0..3 {
            proxy.pass(limit.saturating_sub(Duration::from_millis(10))).await;
            assert_eq!(post(&mut client).await, Some(204));
        }
        assert_eq!(seen.opened.load(Relaxed), 1, "{keys}");
        proxy.pass(limit).await;
        assert_eq!(post(&mut client).await, Some(204));
        assert_eq!(seen.opened.load(Relaxed), 2, "{keys}: without a sweep");
    }
}

#[tokio::test(start_paused = true)]
async fn idle_connections_are_closed_at_their_idle_timeout() {
    let (proxy, seen) = with_http2(", idle_timeout: 1s");
    let worker = Arc::clone(&proxy.worker);
    tokio::spawn(async move {
        loop {
            let next =
                worker.servers.pools.sweep(&worker.live.load().upstreams, worker.clock.now());
            worker.clock.sleep_until(next).await;
        }
    });
    let mut client = proxy.client();
    for pause in [100, 350, 900, 999] {
        proxy.pass(Duration::from_millis(pause)).await;
        let closed = seen.closed.load(Relaxed);
        assert_eq!(post(&mut client).await, Some(204));
        proxy.pass(Duration::from_millis(990)).await;
        assert_eq!(seen.closed.load(Relaxed), closed, "too early, after {pause}");
        proxy.pass(Duration::from_millis(60)).await;
        assert_eq!(seen.closed.load(Relaxed), closed + 1, "too late, after {pause}");
    }
}

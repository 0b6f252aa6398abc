//! Idle connections, which give up all but their socket: no client must notice.

use super::{Client, TestProxy, read_head, secs};
use crate::flow::Instant;
use crate::proxy::{connections::registry::Protocol, peer::Peer};
use core::{sync::atomic::Ordering::Relaxed, time::Duration};
use std::sync::{Arc, Weak};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio_rustls::{
    TlsAcceptor, TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore, ServerConfig,
        pki_types::{PrivateKeyDer, ServerName},
    },
};

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

/// More than a connection is idle before it sleeps.
const A_MOMENT: Duration = Duration::from_millis(150);

impl Client {
    /// Whether nothing but the connection's task holds on to what serves requests.
    fn is_idle(&self) -> bool {
        self.peer.strong_count() == 1
    }

    async fn ended_after(self, since: Instant, proxy: &TestProxy) -> Duration {
        self.served.await.expect("no panic");
        proxy.now().since(since)
    }
}

/// A client that has been answered once and was idle since.
async fn idle_client(proxy: &TestProxy) -> Client {
    let mut client = proxy.client();
    assert_eq!(client.get().await, 200);
    assert!(!client.is_idle());
    proxy.pass(A_MOMENT).await;
    assert!(client.is_idle());
    client
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_sleeps_and_serves_again() {
    let mut proxy = TestProxy::new("");
    let _arrivals = proxy.answer();
    let mut client = idle_client(&proxy).await;
    assert_eq!(proxy.worker.counters.connections_active.load(Relaxed), 1);
    for _ in 0..3 {
        assert_eq!(client.get().await, 200);
        assert!(!client.is_idle());
        proxy.pass(A_MOMENT).await;
        assert!(client.is_idle());
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_on_which_nothing_was_sent_sleeps_from_the_first() {
    let mut proxy = TestProxy::new("");
    let _arrivals = proxy.answer();
    let begun = proxy.now();
    let mut client = proxy.client();
    let silent = proxy.client();
    proxy.pass(secs(20)).await;
    assert!(client.is_idle() && silent.is_idle());
    assert_eq!(client.get().await, 200);
    let took = silent.ended_after(begun, &proxy).await;
    assert!((secs(75)..secs(76)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn blank_lines_do_not_keep_an_idle_connection() {
    for line in ["\r\n", "\n"] {
        let mut proxy = TestProxy::new("");
        let _arrivals = proxy.answer();
        let mut answered = proxy.client();
        assert_eq!(answered.get().await, 200);
        let begun = proxy.now();
        let mut unasked = proxy.client();
        for _ in 0..2 {
            proxy.pass(secs(30)).await;
            answered.send(line).await;
            unasked.send(line).await;
        }
        for client in [answered, unasked] {
            let took = client.ended_after(begun, &proxy).await;
            assert!((secs(75)..secs(76)).contains(&took), "{took:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_busy_connection_never_sleeps() {
    let mut proxy = TestProxy::new("");
    let _arrivals = proxy.answer();
    let mut client = proxy.client();
    for _ in 0..50 {
        assert_eq!(client.get().await, 200);
        proxy.pass(Duration::from_millis(95)).await;
        assert!(!client.is_idle());
    }
    proxy.pass(Duration::from_millis(800)).await;
    assert!(!client.is_idle());
    proxy.pass(Duration::from_millis(200)).await;
    assert!(client.is_idle(), "but when it is no longer busy");
}

#[tokio::test(start_paused = true)]
async fn a_request_in_pieces_wakes_a_connection_once() {
    let mut proxy = TestProxy::new("");
    let _arrivals = proxy.answer();
    let mut client = idle_client(&proxy).await;
    for piece in ["G", "ET / HTT", "P/1.1\r\nhost: a\r\n\r"] {
        client.send(piece).await;
        proxy.pass(A_MOMENT).await;
        assert!(!client.is_idle());
    }
    client.send("\n").await;
    assert_eq!(client.status().await, Some(200));
}

#[tokio::test(start_paused = true)]
async fn a_head_longer_than_the_first_read_wakes_it_whole() {
    let mut proxy = TestProxy::new("");
    let _arrivals = proxy.answer();
    let mut client = idle_client(&proxy).await;
    let long = format!("GET / HTTP/1.1\r\nhost: a\r\nx-long: {}\r\n\r\n", "x".repeat(5_000));
    client.send(&long).await;
    assert_eq!(client.status().await, Some(200));
}

#[tokio::test(start_paused = true)]
async fn a_slow_head_that_wakes_a_connection_is_cut_off_in_time() {
    let mut proxy = TestProxy::new("");
    let _arrivals = proxy.answer();
    let mut client = idle_client(&proxy).await;
    proxy.pass(secs(30)).await;
    let begun = proxy.now();
    client.send("G").await;
    let took = client.ended_after(begun, &proxy).await;
    assert!((secs(10)..secs(11)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn pipelined_requests_are_all_answered_after_a_sleep() {
    let mut proxy = TestProxy::new("");
    let _arrivals = proxy.answer();
    let mut client = idle_client(&proxy).await;
    client.send(&GET.repeat(40)).await;
    for _ in 0..40 {
        assert_eq!(client.status().await, Some(200));
    }
    proxy.pass(A_MOMENT).await;
    assert!(client.is_idle());
}

#[tokio::test(start_paused = true)]
async fn the_beginning_of_a_pipelined_request_is_neither_lost_nor_waited_for_longer() {
    let mut proxy = TestProxy::new("");
    let _arrivals = proxy.answer();
    let mut whole = idle_client(&proxy).await;
    let mut broken = idle_client(&proxy).await;
    let begun = proxy.now();
    for client in [&mut whole, &mut broken] {
        client.send(&format!("{GET}GET / HT")).await;
        assert_eq!(client.status().await, Some(200));
    }
    proxy.pass(secs(5)).await;
    whole.send("TP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(whole.status().await, Some(200));
    let took = broken.ended_after(begun, &proxy).await;
    assert!((secs(10)..secs(11)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn an_idle_client_that_leaves_is_noticed() {
    let mut proxy = TestProxy::new("");
    let _arrivals = proxy.answer();
    let Client { stream, served, .. } = idle_client(&proxy).await;
    let left = proxy.now();
    drop(stream);
    served.await.expect("no panic");
    assert_eq!(proxy.now(), left);
    assert_eq!(proxy.worker.counters.connections_active.load(Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_a_sleeping_connection_at_once() {
    let mut proxy = TestProxy::new("");
    let _arrivals = proxy.answer();
    let Client { mut stream, served, .. } = idle_client(&proxy).await;
    let drained = proxy.now();
    proxy.worker.connections.drain();
    assert_eq!(stream.read(&mut [0]).await.expect("no error"), 0);
    served.await.expect("no panic");
    assert_eq!(proxy.now(), drained);
}

#[tokio::test(start_paused = true)]
async fn sleep_does_not_lengthen_keep_alive() {
    let mut proxy = TestProxy::new("");
    let _arrivals = proxy.answer();
    let mut client = idle_client(&proxy).await;
    proxy.pass(secs(70)).await;
    assert_eq!(client.get().await, 200);
    let idle = proxy.now();
    let took = client.ended_after(idle, &proxy).await;
    assert!((secs(75)..secs(76)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_upgraded_after_a_sleep() {
    let mut proxy = TestProxy::new("");
    let mut client = proxy.client();
    proxy.pass(A_MOMENT).await;
    assert!(client.is_idle());
    client
        .send("GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
        .await;
    let mut upstream = proxy.upstream.recv().await.expect("a connection");
    read_head(&mut upstream).await.expect("a head");
    let answer =
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n";
    upstream.write_all(format!("{answer}\r\nhello").as_bytes()).await.expect("sent");
    assert_eq!(client.status().await, Some(101));
    let mut hello = [0; 5];
    client.stream.read_exact(&mut hello).await.expect("the server's");
    assert_eq!(&hello, b"hello");
    proxy.pass(A_MOMENT).await;
    client.send("hi").await;
    let mut hi = [0; 2];
    upstream.read_exact(&mut hi).await.expect("the client's");
    assert_eq!(&hi, b"hi");
}

#[tokio::test(start_paused = true)]
async fn a_rejected_upgrade_does_not_keep_a_connection_from_sleeping() {
    let mut proxy = TestProxy::new("");
    let _arrivals = proxy.answer();
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n").await;
    assert_eq!(client.status().await, Some(200));
    proxy.pass(A_MOMENT).await;
    assert!(client.is_idle());
    assert_eq!(client.get().await, 200);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_wholly_taken_keeps_its_connection_awake() {
    let mut proxy = TestProxy::new("");
    let mut client = proxy.client();
    client.send(GET).await;
    let mut upstream = proxy.upstream.recv().await.expect("a connection");
    read_head(&mut upstream).await.expect("a head");
    // All that the pipe holds from the upstream. With the gateway's header it is too much for the
    // client's, so that its end is left in h2.
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 65490\r\n\r\n{}", "x".repeat(65_490));
    upstream.write_all(answer.as_bytes()).await.expect("sent");
    proxy.pass(A_MOMENT).await;
    assert_eq!(proxy.in_flight(), 0, "all of it was handed over");
    assert!(!client.is_idle());
    assert_eq!(client.status().await, Some(200));
    proxy.pass(A_MOMENT).await;
    assert!(client.is_idle());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_nobody_read_is_never_taken_for_a_request() {
    let mut proxy = TestProxy::new(", flow: [{ name: slow, limit: 10/1s, burst: 1 }]");
    let mut arrivals = proxy.answer();
    let post = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", GET.len());
    let mut client = idle_client(&proxy).await;
    // The body that has come already is passed over.
    client.send(&format!("{GET}{post}{GET}")).await;
    assert_eq!(client.status().await, Some(200));
    assert_eq!(client.status().await, Some(429));
    proxy.pass(A_MOMENT).await;
    assert!(client.is_idle());
    // One that comes later finds the connection closed.
    client.send(&format!("{GET}{post}")).await;
    assert_eq!(client.status().await, Some(200));
    assert_eq!(client.status().await, Some(429));
    proxy.pass(A_MOMENT).await;
    drop(client.stream.write_all(GET.as_bytes()).await);
    assert_eq!(client.status().await, None);
    client.served.await.expect("no panic");
    assert_eq!(core::iter::from_fn(|| arrivals.try_recv().ok()).count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_connection_over_tls_sleeps_and_says_farewell() {
    let mut proxy = TestProxy::new("");
    let _arrivals = proxy.answer();
    let (mut client, peer) = over_tls(&proxy).await;
    for _ in 0..3 {
        proxy.pass(A_MOMENT).await;
        assert_eq!(peer.strong_count(), 1);
        // Both in one record, of which the second is not in the first read.
        let padding = format!("x-long: {}\r\n\r\n", "x".repeat(2_000));
        let long = GET.replace("\r\n\r\n", &format!("\r\n{padding}"));
        client.write_all(format!("{GET}{long}").as_bytes()).await.expect("sent");
        client.flush().await.expect("sent");
        for _ in 0..2 {
            let head = read_head(&mut client).await.expect("a head");
            assert!(head.starts_with("HTTP/1.1 200"), "{head}");
            client.read_exact(&mut [0; 2]).await.expect("a body");
        }
    }
    proxy.pass(A_MOMENT).await;
    assert_eq!(peer.strong_count(), 1);
    proxy.worker.connections.drain();
    // An end without TLS's own would be an error.
    assert_eq!(client.read(&mut [0]).await.expect("in good order"), 0);
}

/// Connects a client over TLS.
async fn over_tls(proxy: &TestProxy) -> (TlsStream<DuplexStream>, Weak<Peer>) {
    let made = rcgen::generate_simple_self_signed(["a".to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let server = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("a pair");
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("a root");
    let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let (near, far) = duplex(64 * 1024);
    let name = ServerName::try_from("a").expect("a name");
    let connector = TlsConnector::from(Arc::new(client));
    let acceptor = TlsAcceptor::from(Arc::new(server));
    let (client, server) =
        tokio::try_join!(connector.connect(name, near), acceptor.accept(far)).expect("a handshake");
    let (_, peer) = proxy.serve(Box::new(server), Protocol::Http1);
    (client, peer)
}

//! Idle connections, which give up all but their socket: no client must notice.

use super::{Client, House, read_head, secs};
use crate::{
    flow::Instant,
    proxy::{options::Protocol, peer::Peer},
};
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
    fn is_asleep(&self) -> bool {
        self.peer.strong_count() == 1
    }

    async fn ended_after(self, since: Instant, house: &House) -> Duration {
        self.served.await.expect("no panic");
        house.now().since(since)
    }
}

/// A client that has been answered once and was idle since.
async fn asleep(house: &House) -> Client {
    let mut client = house.client();
    assert_eq!(client.get().await, 200);
    assert!(!client.is_asleep());
    house.pass(A_MOMENT).await;
    assert!(client.is_asleep());
    client
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_sleeps_and_serves_again() {
    let mut house = House::new("");
    let _arrivals = house.answer();
    let mut client = asleep(&house).await;
    assert_eq!(house.worker.counters.connections_active.load(Relaxed), 1);
    for _ in 0..3 {
        assert_eq!(client.get().await, 200);
        assert!(!client.is_asleep());
        house.pass(A_MOMENT).await;
        assert!(client.is_asleep());
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_on_which_nothing_was_sent_sleeps_from_the_first() {
    let mut house = House::new("");
    let _arrivals = house.answer();
    let begun = house.now();
    let (mut client, silent) = (house.client(), house.client());
    house.pass(secs(20)).await;
    assert!(client.is_asleep() && silent.is_asleep());
    assert_eq!(client.get().await, 200);
    let took = silent.ended_after(begun, &house).await;
    assert!((secs(75)..secs(76)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_busy_connection_never_sleeps() {
    let mut house = House::new("");
    let _arrivals = house.answer();
    let mut client = house.client();
    for _ in 0..50 {
        assert_eq!(client.get().await, 200);
        house.pass(Duration::from_millis(95)).await;
        assert!(!client.is_asleep());
    }
    house.pass(Duration::from_millis(800)).await;
    assert!(!client.is_asleep());
    house.pass(Duration::from_millis(200)).await;
    assert!(client.is_asleep(), "but when it is no longer busy");
}

#[tokio::test(start_paused = true)]
async fn a_request_in_pieces_wakes_a_connection_once() {
    let mut house = House::new("");
    let _arrivals = house.answer();
    let mut client = asleep(&house).await;
    for piece in ["G", "ET / HTT", "P/1.1\r\nhost: a\r\n\r"] {
        client.send(piece).await;
        house.pass(A_MOMENT).await;
        assert!(!client.is_asleep());
    }
    client.send("\n").await;
    assert_eq!(client.status().await, Some(200));
}

#[tokio::test(start_paused = true)]
async fn a_head_longer_than_the_first_read_wakes_it_whole() {
    let mut house = House::new("");
    let _arrivals = house.answer();
    let mut client = asleep(&house).await;
    let long = format!("GET / HTTP/1.1\r\nhost: a\r\nx-long: {}\r\n\r\n", "x".repeat(5_000));
    client.send(&long).await;
    assert_eq!(client.status().await, Some(200));
}

#[tokio::test(start_paused = true)]
async fn a_slow_head_that_wakes_a_connection_is_cut_off_in_time() {
    let mut house = House::new("");
    let _arrivals = house.answer();
    let mut client = asleep(&house).await;
    house.pass(secs(30)).await;
    let begun = house.now();
    client.send("G").await;
    let took = client.ended_after(begun, &house).await;
    assert!((secs(10)..secs(11)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn pipelined_requests_are_all_answered_after_a_sleep() {
    let mut house = House::new("");
    let _arrivals = house.answer();
    let mut client = asleep(&house).await;
    client.send(&GET.repeat(40)).await;
    for _ in 0..40 {
        assert_eq!(client.status().await, Some(200));
    }
    house.pass(A_MOMENT).await;
    assert!(client.is_asleep());
}

#[tokio::test(start_paused = true)]
async fn the_beginning_of_a_pipelined_request_is_neither_lost_nor_waited_for_longer() {
    let mut house = House::new("");
    let _arrivals = house.answer();
    let (mut whole, mut broken) = (asleep(&house).await, asleep(&house).await);
    let begun = house.now();
    for client in [&mut whole, &mut broken] {
        client.send(&format!("{GET}GET / HT")).await;
        assert_eq!(client.status().await, Some(200));
    }
    house.pass(secs(5)).await;
    whole.send("TP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(whole.status().await, Some(200));
    let took = broken.ended_after(begun, &house).await;
    assert!((secs(10)..secs(11)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_is_noticed_asleep() {
    let mut house = House::new("");
    let _arrivals = house.answer();
    let Client { stream, served, .. } = asleep(&house).await;
    let left = house.now();
    drop(stream);
    served.await.expect("no panic");
    assert_eq!(house.now(), left);
    assert_eq!(house.worker.counters.connections_active.load(Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_a_sleeping_connection_at_once() {
    let mut house = House::new("");
    let _arrivals = house.answer();
    let Client { mut stream, served, .. } = asleep(&house).await;
    let drained = house.now();
    house.worker.connections.drain();
    assert_eq!(stream.read(&mut [0]).await.expect("no error"), 0);
    served.await.expect("no panic");
    assert_eq!(house.now(), drained);
}

#[tokio::test(start_paused = true)]
async fn sleep_does_not_lengthen_keep_alive() {
    let mut house = House::new("");
    let _arrivals = house.answer();
    let mut client = asleep(&house).await;
    house.pass(secs(70)).await;
    assert_eq!(client.get().await, 200);
    let idle = house.now();
    let took = client.ended_after(idle, &house).await;
    assert!((secs(75)..secs(76)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_upgraded_after_a_sleep() {
    let mut house = House::new("");
    let mut client = house.client();
    house.pass(A_MOMENT).await;
    assert!(client.is_asleep());
    client
        .send("GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
        .await;
    let mut upstream = house.upstream.recv().await.expect("a connection");
    read_head(&mut upstream).await.expect("a head");
    let answer =
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n";
    upstream.write_all(format!("{answer}\r\nhello").as_bytes()).await.expect("sent");
    assert_eq!(client.status().await, Some(101));
    let mut hello = [0; 5];
    client.stream.read_exact(&mut hello).await.expect("the server's");
    assert_eq!(&hello, b"hello");
    house.pass(A_MOMENT).await;
    client.send("hi").await;
    let mut hi = [0; 2];
    upstream.read_exact(&mut hi).await.expect("the client's");
    assert_eq!(&hi, b"hi");
}

#[tokio::test(start_paused = true)]
async fn a_refused_upgrade_does_not_keep_a_connection_from_sleeping() {
    let mut house = House::new("");
    let _arrivals = house.answer();
    let mut client = house.client();
    client.send("GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n").await;
    assert_eq!(client.status().await, Some(200));
    house.pass(A_MOMENT).await;
    assert!(client.is_asleep());
    assert_eq!(client.get().await, 200);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_wholly_taken_keeps_its_connection_awake() {
    let mut house = House::new("");
    let mut client = house.client();
    client.send(GET).await;
    let mut upstream = house.upstream.recv().await.expect("a connection");
    read_head(&mut upstream).await.expect("a head");
    // All that the pipe holds from the upstream. With the gateway's header it is too much for the
    // client's, so that its end is left in hyper.
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 65490\r\n\r\n{}", "x".repeat(65_490));
    upstream.write_all(answer.as_bytes()).await.expect("sent");
    house.pass(A_MOMENT).await;
    assert_eq!(house.in_flight(), 0, "all of it was handed over");
    assert!(!client.is_asleep());
    assert_eq!(client.status().await, Some(200));
    house.pass(A_MOMENT).await;
    assert!(client.is_asleep());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_nobody_read_is_never_taken_for_a_request() {
    let mut house = House::new(", flow: [{ name: slow, limit: 10/1s, burst: 1 }]");
    let mut arrivals = house.answer();
    let post = format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", GET.len());
    let mut client = asleep(&house).await;
    // The body that has come already is passed over.
    client.send(&format!("{GET}{post}{GET}")).await;
    assert_eq!(client.status().await, Some(200));
    assert_eq!(client.status().await, Some(429));
    house.pass(A_MOMENT).await;
    assert!(client.is_asleep());
    // One that comes later finds the connection closed.
    client.send(&format!("{GET}{post}")).await;
    assert_eq!(client.status().await, Some(200));
    assert_eq!(client.status().await, Some(429));
    house.pass(A_MOMENT).await;
    drop(client.stream.write_all(GET.as_bytes()).await);
    assert_eq!(client.status().await, None);
    client.served.await.expect("no panic");
    assert_eq!(core::iter::from_fn(|| arrivals.try_recv().ok()).count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_connection_over_tls_sleeps_and_says_farewell() {
    let mut house = House::new("");
    let _arrivals = house.answer();
    let (mut client, peer) = over_tls(&house).await;
    for _ in 0..3 {
        house.pass(A_MOMENT).await;
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
    house.pass(A_MOMENT).await;
    assert_eq!(peer.strong_count(), 1);
    house.worker.connections.drain();
    // An end without TLS's own would be an error.
    assert_eq!(client.read(&mut [0]).await.expect("in good order"), 0);
}

/// Connects a client over TLS.
async fn over_tls(house: &House) -> (TlsStream<DuplexStream>, Weak<Peer>) {
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
    let (_, peer) = house.serve(Box::new(server), Protocol::Http1);
    (client, peer)
}

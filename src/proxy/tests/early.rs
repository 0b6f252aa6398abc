//! Clients that speak, or leave, before they are answered.

use super::{Client, TestProxy, read_head, secs};
use crate::proxy::Connector;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// A client whose request is at the upstream, which has yet to answer.
async fn asking(proxy: &mut TestProxy) -> (Client, DuplexStream) {
    let mut client = proxy.client();
    client.send(GET).await;
    let mut upstream = proxy.upstream.recv().await.expect("a connection");
    read_head(&mut upstream).await.expect("a head");
    (client, upstream)
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_before_the_answer_is_answered_in_its_turn() {
    let mut proxy = TestProxy::new("");
    let (mut client, mut upstream) = asking(&mut proxy).await;
    // In pieces, and more than is read of a client that is not expected to speak.
    for half in GET.repeat(100).as_bytes().chunks(1400) {
        client.stream.write_all(half).await.expect("sent");
        proxy.pass(secs(1)).await;
    }
    for request in 0..=100 {
        if request > 0 {
            read_head(&mut upstream).await.expect("a head");
        }
        upstream.write_all(ANSWER).await.expect("sent");
        assert_eq!(client.status().await, Some(200), "request {request}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_beginning_of_a_head_that_comes_before_the_answer_is_due_from_the_answer() {
    let mut proxy = TestProxy::new("");
    let (mut client, mut upstream) = asking(&mut proxy).await;
    client.send("GET / HT").await;
    proxy.pass(secs(30)).await;
    upstream.write_all(ANSWER).await.expect("sent");
    assert_eq!(client.status().await, Some(200));
    let answered = proxy.now();
    client.served.await.expect("no panic");
    let took = proxy.now().since(answered);
    assert!((secs(10)..secs(11)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_before_the_answer_or_in_its_midst_is_missed_at_once() {
    for begun in [&b""[..], b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"] {
        let mut proxy = TestProxy::new("");
        let (client, mut upstream) = asking(&mut proxy).await;
        upstream.write_all(begun).await.expect("sent");
        proxy.pass(secs(1)).await;
        assert_eq!(proxy.in_flight(), 1);
        let left = proxy.now();
        drop(client.stream);
        client.served.await.expect("no panic");
        assert_eq!((proxy.now(), proxy.in_flight()), (left, 0));
        assert!(read_head(&mut upstream).await.is_none(), "the upstream is let go");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_after_an_upload_is_missed_at_once() {
    let chunked = "transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    for body in [chunked, "content-length: 3\r\n\r\nabc"] {
        // The body comes with the head, or after it.
        for pause in [0, 1] {
            let mut proxy = TestProxy::new("");
            let mut client = proxy.client();
            let (fields, content) = body.split_at(body.find("\r\n\r\n").unwrap() + 4);
            client.send(&format!("POST / HTTP/1.1\r\nhost: a\r\n{fields}")).await;
            proxy.pass(secs(pause)).await;
            client.send(content).await;
            let mut upstream = proxy.upstream.recv().await.expect("a connection");
            read_head(&mut upstream).await.expect("a head");
            proxy.pass(secs(1)).await;
            let left = proxy.now();
            drop(client.stream);
            client.served.await.expect("no panic");
            assert_eq!((proxy.now(), proxy.in_flight()), (left, 0), "{body:?}, {pause}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_the_queue_with_a_body_is_missed_at_once_and_asks_no_server() {
    let mut proxy = TestProxy::new(", pacing: { rate: 1/30s, max_wait: 31s }");
    let mut arrivals = proxy.answer();
    assert_eq!(proxy.client().get().await, 200);
    arrivals.recv().await.expect("the first");
    let mut waiting = proxy.client();
    waiting.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc").await;
    proxy.pass(secs(1)).await;
    let left = proxy.now();
    drop(waiting.stream);
    waiting.served.await.expect("no panic");
    assert_eq!((proxy.now(), proxy.in_flight()), (left, 0));
    proxy.pass(secs(40)).await;
    assert!(arrivals.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_and_has_closed_its_side_is_missed_at_once() {
    let mut proxy = TestProxy::new("");
    let mut client = proxy.client();
    client.send(GET).await;
    let flood = proxy.flood().await;
    proxy.pass(secs(1)).await;
    let left = proxy.now();
    client.stream.shutdown().await.expect("shut down");
    client.served.await.expect("no panic");
    assert_eq!((proxy.now(), proxy.in_flight()), (left, 0));
    flood.await.expect("the upstream is let go");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stops_in_the_midst_of_a_body_and_listens_gets_an_answer() {
    let mut proxy = TestProxy::new("");
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nhalf").await;
    let mut upstream = proxy.upstream.recv().await.expect("a connection");
    read_head(&mut upstream).await.expect("a head");
    upstream.read_exact(&mut [0; 4]).await.expect("half");
    client.stream.shutdown().await.expect("shut down");
    assert_eq!(client.status().await, Some(400));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_while_the_upstream_is_connected_to_is_missed_at_once() {
    let upload = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n";
    for request in [GET, upload, &format!("{upload}half"), &format!("{upload}the whole")] {
        let mut proxy = TestProxy::new("");
        let worker = Arc::get_mut(&mut proxy.worker).expect("the only one");
        let servers = Arc::get_mut(&mut worker.servers).expect("the only one");
        servers.connector = Connector::Stuck;
        let mut client = proxy.client();
        client.send(request).await;
        proxy.pass(secs(1)).await;
        assert_eq!(proxy.in_flight(), 1, "{request}");
        let left = proxy.now();
        // It may still listen, but what it has sent is never a whole request.
        client.stream.shutdown().await.expect("shut down");
        client.served.await.expect("no panic");
        assert_eq!((proxy.now(), proxy.in_flight()), (left, 0), "{request}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_place_of_a_client_that_leaves_the_queue_goes_to_the_next_one() {
    let mut proxy = TestProxy::new(", pacing: { rate: 1/10s, max_wait: 1m }");
    let mut arrivals = proxy.answer();
    assert_eq!(proxy.client().get().await, 200);
    let first = arrivals.recv().await.expect("the first");
    let mut waiting = [proxy.client(), proxy.client()];
    for client in &mut waiting {
        client.send(GET).await;
        proxy.pass(secs(1)).await;
    }
    let [leaving, mut staying] = waiting;
    drop(leaving.stream);
    leaving.served.await.expect("no panic");
    assert_eq!(proxy.client().get().await, 200);
    assert_eq!(staying.status().await, Some(200));
    let starts = [arrivals.recv().await, arrivals.recv().await];
    let starts = starts.map(|start| start.expect("a request").since(first).as_secs());
    assert_eq!(starts, [10, 20]);
}

#[tokio::test(start_paused = true)]
async fn interim_answers_pass_and_come_before_the_answer() {
    let early = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nConnection: x\r\nX: 1\r\n\r\n";
    for (version, passes) in [("1.1", true), ("1.0", false)] {
        let mut proxy = TestProxy::new("");
        let mut client = proxy.client();
        client.send(&format!("GET / HTTP/{version}\r\nhost: a\r\n\r\n")).await;
        let mut upstream = proxy.upstream.recv().await.expect("a connection");
        read_head(&mut upstream).await.expect("a head");
        let interim = format!("HTTP/1.1 100 Continue\r\n\r\n{early}");
        upstream.write_all(interim.as_bytes()).await.expect("sent");
        proxy.pass(secs(1)).await;
        if passes {
            let head = read_head(&mut client.stream).await.expect("an interim answer");
            assert_eq!(head, "HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\n");
        }
        upstream.write_all(early.as_bytes()).await.expect("sent");
        upstream.write_all(ANSWER).await.expect("sent");
        if passes {
            assert_eq!(client.status().await, Some(103), "with the answer");
        }
        assert_eq!(client.status().await, Some(200), "{version}");
    }
}

#[tokio::test(start_paused = true)]
async fn names_are_written_for_clients_that_heed_the_case() {
    let mut proxy = TestProxy::with_settings("h1_header_case: title\n", "");
    let (mut client, mut upstream) = asking(&mut proxy).await;
    let answer = b"HTTP/1.1 204 No Content\r\nx-my-name: a-b\r\nETag: c\r\n\r\n";
    upstream.write_all(answer).await.expect("sent");
    let head = read_head(&mut client.stream).await.expect("a head");
    for line in ["X-My-Name: a-b\r\n", "Etag: c\r\n", "X-Request-Id: ", "Date: "] {
        assert!(head.contains(line), "{line}: {head}");
    }
    // Also if the request cannot be read.
    let large = format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(40_000));
    let coded = "GET / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: identity\r\n\r\n";
    for unread in [coded, "GET / HTTP/2.5\r\nhost: a\r\n\r\n", "GET /{ HTTP/1.1\r\n\r\n", &large] {
        let mut client = proxy.client();
        client.send(unread).await;
        let head = read_head(&mut client.stream).await.expect("a head");
        for line in ["Content-Type: ", "Content-Length: ", "Date: ", "Connection: close\r\n"] {
            assert!(head.contains(line), "{line}: {head}");
        }
    }
}

//! Clients that speak, or leave, before they are answered.

use super::{Client, House, read_head, secs};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// A client whose request is at the upstream, which has yet to answer.
async fn asking(house: &mut House) -> (Client, DuplexStream) {
    let mut client = house.client();
    client.send(GET).await;
    let mut upstream = house.upstream.recv().await.expect("a connection");
    read_head(&mut upstream).await.expect("a head");
    (client, upstream)
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_before_the_answer_is_answered_in_its_turn() {
    let mut house = House::new("");
    let (mut client, mut upstream) = asking(&mut house).await;
    // In pieces, and more than is read of a client that is not expected to speak.
    for half in GET.repeat(100).as_bytes().chunks(1400) {
        client.stream.write_all(half).await.expect("sent");
        house.pass(secs(1)).await;
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
    let mut house = House::new("");
    let (mut client, mut upstream) = asking(&mut house).await;
    client.send("GET / HT").await;
    house.pass(secs(30)).await;
    upstream.write_all(ANSWER).await.expect("sent");
    assert_eq!(client.status().await, Some(200));
    let answered = house.now();
    client.served.await.expect("no panic");
    let took = house.now().since(answered);
    assert!((secs(10)..secs(11)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn who_leaves_before_the_answer_or_in_its_midst_is_missed_at_once() {
    for begun in [&b""[..], b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"] {
        let mut house = House::new("");
        let (client, mut upstream) = asking(&mut house).await;
        upstream.write_all(begun).await.expect("sent");
        house.pass(secs(1)).await;
        assert_eq!(house.in_flight(), 1);
        let left = house.now();
        drop(client.stream);
        client.served.await.expect("no panic");
        assert_eq!((house.now(), house.in_flight()), (left, 0));
        assert!(read_head(&mut upstream).await.is_none(), "the upstream is let go");
    }
}

#[tokio::test(start_paused = true)]
async fn who_leaves_after_an_upload_is_missed_at_once() {
    let chunked = "transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    for body in [chunked, "content-length: 3\r\n\r\nabc"] {
        // The body comes with the head, or after it.
        for pause in [0, 1] {
            let mut house = House::new("");
            let mut client = house.client();
            let (fields, content) = body.split_at(body.find("\r\n\r\n").unwrap() + 4);
            client.send(&format!("POST / HTTP/1.1\r\nhost: a\r\n{fields}")).await;
            house.pass(secs(pause)).await;
            client.send(content).await;
            let mut upstream = house.upstream.recv().await.expect("a connection");
            read_head(&mut upstream).await.expect("a head");
            house.pass(secs(1)).await;
            let left = house.now();
            drop(client.stream);
            client.served.await.expect("no panic");
            assert_eq!((house.now(), house.in_flight()), (left, 0), "{body:?}, {pause}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_leaves_the_queue_with_a_body_is_missed_at_once_and_asks_nobody() {
    let mut house = House::new(", pacing: { rate: 1/30s, max_wait: 31s }");
    let mut arrivals = house.answer();
    assert_eq!(house.client().get().await, 200);
    arrivals.recv().await.expect("the first");
    let mut waiting = house.client();
    waiting.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc").await;
    house.pass(secs(1)).await;
    let left = house.now();
    drop(waiting.stream);
    waiting.served.await.expect("no panic");
    assert_eq!((house.now(), house.in_flight()), (left, 0));
    house.pass(secs(40)).await;
    assert!(arrivals.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn who_takes_nothing_and_says_that_it_has_said_all_is_missed_at_once() {
    let mut house = House::new("");
    let mut client = house.client();
    client.send(GET).await;
    let flood = house.flood().await;
    house.pass(secs(1)).await;
    let left = house.now();
    client.stream.shutdown().await.expect("shut down");
    client.served.await.expect("no panic");
    assert_eq!((house.now(), house.in_flight()), (left, 0));
    flood.await.expect("the upstream is let go");
}

#[tokio::test(start_paused = true)]
async fn who_stops_in_the_midst_of_a_body_and_listens_is_told() {
    let mut house = House::new("");
    let mut client = house.client();
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nhalf").await;
    let mut upstream = house.upstream.recv().await.expect("a connection");
    read_head(&mut upstream).await.expect("a head");
    upstream.read_exact(&mut [0; 4]).await.expect("half");
    client.stream.shutdown().await.expect("shut down");
    assert_eq!(client.status().await, Some(400));
}

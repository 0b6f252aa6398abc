//! Requests that are refused: when, and what becomes of their connection.

use super::{House, read_head, secs};
use crate::meter::Refusal;
use core::time::Duration;

#[tokio::test(start_paused = true)]
async fn what_follows_a_request_that_could_be_read_in_two_ways_is_not_served() {
    for (target, bad) in [
        ("/", "transfer-encoding: gzip, chunked"),
        ("/", "transfer-encoding: chunked\r\ntransfer-encoding: chunked"),
        ("/", "host: b\r\ncontent-length: 0"),
        ("/../x", "content-length: 0"),
    ] {
        for kind in ["text/plain", "application/grpc"] {
            let mut house = House::new("");
            let mut arrivals = house.answer();
            let mut client = house.client();
            let head = format!(
                "POST {target} HTTP/1.1\r\nhost: a\r\ncontent-type: {kind}\r\n{bad}\r\n\r\n"
            );
            client.send(&format!("{head}GET /second HTTP/1.1\r\nhost: a\r\n\r\n")).await;
            let head = read_head(&mut client.stream).await.expect("an answer");
            assert!(head.contains("connection: close\r\n"), "{bad}, {kind}: {head}");
            client.served.await.expect("no panic");
            assert!(arrivals.try_recv().is_err(), "{bad}, {kind}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_is_due_in_one_time_from_the_first_byte_of_a_connection() {
    // What comes at once and 9 s later; in between the first may still be of HTTP/2.
    for (first, later) in [("P", "OST / HT"), ("PRI * ", "HTTP"), ("P", ""), ("G", "ET / HT")] {
        let house = House::new("");
        let mut client = house.stranger();
        house.pass(secs(9)).await;
        let begun = house.now();
        client.send(first).await;
        house.pass(secs(9)).await;
        client.send(later).await;
        client.served.await.expect("no panic");
        assert_eq!(house.now().since(begun).as_secs(), 10, "{first}, {later}");
        assert_eq!(house.refused(), [(Refusal::HeaderTimeout, 1)], "{first}, {later}");
    }
    let house = House::new("");
    let (silent, connected) = (house.stranger(), house.now());
    silent.served.await.expect("no panic");
    assert_eq!(house.now().since(connected).as_secs(), 10);
    assert_eq!(house.refused(), [], "who says nothing has asked for nothing");
}

#[tokio::test(start_paused = true)]
async fn what_would_wait_past_the_requests_deadline_is_refused_at_once() {
    let mut house =
        House::new(", pacing: { rate: 1/2s, max_wait: 10s }, timeouts: { request: 500ms }");
    let _arrivals = house.answer();
    let mut client = house.client();
    assert_eq!(client.get().await, 200);
    let refused = house.now();
    assert_eq!(client.get().await, 503);
    assert!(house.now().since(refused) < Duration::from_millis(10));
    // The place is at 2 s. To wait for it for more than half of the deadline is too long.
    house.pass(Duration::from_millis(1_600)).await;
    assert_eq!(client.get().await, 503);
    house.pass(Duration::from_millis(150)).await;
    assert_eq!(client.get().await, 200, "nobody has taken the next place");
    assert!(house.now().since(refused) < secs(3));
}

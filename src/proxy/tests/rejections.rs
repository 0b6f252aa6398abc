//! Requests that are rejected: when, and what becomes of their connection.

use super::{TestProxy, read_head, secs};
use crate::{
    clock::Clock,
    flow::{Instant, WallOffset},
    meter::HttpRejection,
    proxy::Connector,
};
use core::time::Duration;
use std::fs;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test(start_paused = true)]
async fn what_follows_a_request_that_could_be_read_in_two_ways_is_not_served() {
    for (target, bad) in [
        ("/", "transfer-encoding: gzip, chunked"),
        ("/", "transfer-encoding: chunked\r\ntransfer-encoding: chunked"),
        ("/", "host: b\r\ncontent-length: 0"),
        ("/../x", "content-length: 0"),
    ] {
        for kind in ["text/plain", "application/grpc"] {
            let mut proxy = TestProxy::new("");
            let mut arrivals = proxy.answer();
            let mut client = proxy.client();
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
        let proxy = TestProxy::new("");
        let mut client = proxy.stranger();
        proxy.pass(secs(9)).await;
        let begun = proxy.now();
        client.send(first).await;
        proxy.pass(secs(9)).await;
        client.send(later).await;
        client.served.await.expect("no panic");
        assert_eq!(proxy.now().since(begun).as_secs(), 10, "{first}, {later}");
        assert_eq!(proxy.rejected(), [(HttpRejection::HeaderTimeout, 1)], "{first}, {later}");
    }
    let proxy = TestProxy::new("");
    let silent = proxy.stranger();
    let connected = proxy.now();
    silent.served.await.expect("no panic");
    assert_eq!(proxy.now().since(connected).as_secs(), 10);
    assert_eq!(proxy.rejected(), [], "a silent client has sent no request to reject");
}

#[tokio::test(start_paused = true)]
async fn what_would_wait_past_the_requests_deadline_is_rejected_at_once() {
    let mut proxy =
        TestProxy::new(", pacing: { rate: 1/2s, max_wait: 10s }, timeouts: { request: 500ms }");
    let _arrivals = proxy.answer();
    let mut client = proxy.client();
    assert_eq!(client.get().await, 200);
    let rejected = proxy.now();
    assert_eq!(client.get().await, 503);
    assert!(proxy.now().since(rejected) < Duration::from_millis(10));
    // The place is at 2 s. To wait for it for more than half of the deadline is too long.
    proxy.pass(Duration::from_millis(1_600)).await;
    assert_eq!(client.get().await, 503);
    proxy.pass(Duration::from_millis(150)).await;
    assert_eq!(client.get().await, 200, "no request has taken the next place");
    assert!(proxy.now().since(rejected) < secs(3));
}

/// More than the pipe to the gateway holds.
const UPLOAD: usize = 1_000_000;

#[tokio::test(start_paused = true)]
async fn a_client_that_is_rejected_in_the_middle_of_an_upload_may_send_it_to_its_end() {
    for (route, framing) in [
        (", body_limit: 10B", "content-length: 1000000"),
        (", body_limit: 10B", "transfer-encoding: chunked\r\n\r\nf4240"),
        (NEVER, "content-length: 1000000"),
    ] {
        let proxy = TestProxy::new(route);
        let mut client = proxy.client();
        client.send(&format!("POST / HTTP/1.1\r\nhost: a\r\n{framing}\r\n\r\n")).await;
        proxy.pass(secs(1)).await;
        let request = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        client.send(&request.repeat(UPLOAD / request.len())).await;
        let ended = proxy.now();
        let head = read_head(&mut client.stream).await.expect("an answer");
        let rejected = head.starts_with("HTTP/1.1 413") || head.starts_with("HTTP/1.1 400");
        assert!(rejected && head.contains("connection: close\r\n"), "{framing}: {head}");
        let mut rest = String::new();
        client.stream.read_to_string(&mut rest).await.expect("text");
        assert!(!rest.contains("HTTP/"), "what was sent for a body is no request: {rest}");
        drop(client.stream);
        client.served.await.expect("no panic");
        assert!(proxy.now().since(ended) < secs(1), "{framing}");
        assert_eq!(proxy.rejected(), [], "{framing}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_that_is_too_large_may_be_sent_to_its_end() {
    let proxy = TestProxy::new("");
    let mut client = proxy.client();
    client.send(&format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}", "x".repeat(UPLOAD))).await;
    assert_eq!(client.status().await, Some(431));
    drop(client.stream);
    client.served.await.expect("no panic");
    assert_eq!(proxy.rejected(), [(HttpRejection::TooLarge, 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_on_sending_what_is_not_read_is_cut_off() {
    let proxy = TestProxy::new(", body_limit: 10B");
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\n").await;
    assert_eq!(client.status().await, Some(413));
    let rejected = proxy.now();
    while client.stream.write_all(b"xxxxxxxxxx").await.is_ok() {
        proxy.pass(secs(1)).await;
    }
    assert!((30..=31).contains(&proxy.now().since(rejected).as_secs()));
    client.served.await.expect("no panic");
}

/// Rules that reject every request.
const NEVER: &str = ", flow: [{ name: r, limit: 1/1h, key: \"header:x\", on_missing_key: reject }]";

#[tokio::test(start_paused = true)]
async fn a_connection_outlives_a_rejected_request_whose_small_body_comes_late() {
    for (framing, body) in [
        ("content-length: 65536", "x".repeat(65_536)),
        ("transfer-encoding: chunked", "1\r\nx\r\n0\r\n\r\n".to_owned()),
    ] {
        for (route, status) in [(NEVER, 400), ("", 502)] {
            let mut proxy = TestProxy::new(route);
            proxy.upstream.close();
            let mut client = proxy.client();
            client.send(&format!("POST / HTTP/1.1\r\nhost: a\r\n{framing}\r\n\r\n")).await;
            assert_eq!(client.status().await, Some(status), "before the body is there");
            proxy.pass(secs(5)).await;
            client.send(&body).await;
            proxy.pass(secs(20)).await;
            assert_eq!(client.get().await, status, "{framing}");
            assert_eq!(proxy.rejected(), [], "what came was no head that is late");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_rejected_body_that_does_not_come_is_waited_for_in_vain_for_15_s() {
    for expect in ["", "expect: 100-continue\r\n"] {
        let proxy = TestProxy::new(NEVER);
        let mut client = proxy.client();
        let head = format!("POST / HTTP/1.1\r\nhost: a\r\n{expect}content-length: 9\r\n\r\n");
        client.send(&head).await;
        let begun = proxy.now();
        assert_eq!(client.status().await, Some(400), "and no 100");
        assert_eq!(client.status().await, None);
        client.served.await.expect("no panic");
        // Ten to save the connection, which it is not where 100 is waited for, and five to end it.
        let seconds = if expect.is_empty() { 15 } else { 5 };
        assert_eq!(proxy.now().since(begun).as_secs(), seconds, "{expect}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_after_a_body_that_nobody_read_is_due_like_any_other() {
    let mut proxy = TestProxy::new("");
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n").await;
    let mut upstream = proxy.upstream.recv().await.expect("a connection");
    read_head(&mut upstream).await.expect("a head");
    // The answer's end gives the body up, and h2 finds the rest of it there.
    upstream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.expect("sent");
    client.send("xx").await;
    assert_eq!(client.status().await, Some(204));
    proxy.pass(secs(20)).await;
    let begun = proxy.now();
    client.send("GET / HT").await;
    client.served.await.expect("no panic");
    assert_eq!(proxy.now().since(begun).as_secs(), 10);
    assert_eq!(proxy.rejected(), [(HttpRejection::HeaderTimeout, 1)]);
}

#[tokio::test(start_paused = true)]
async fn the_log_has_the_walls_time_of_a_request_that_could_not_be_read() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let log = folder.path().join("access.log");
    // 2027-01-15, 08:00, and the wall's clock was set to a day later.
    let clock = Clock::start_at(Instant::from_nanos(1_800_000_000_000_000_000));
    clock.set_wall(WallOffset::from_nanos(86_400_000_000_000));
    let text = "listeners: [{ name: web, listen: 127.0.0.1:0 }]\n\
                routes: [{ name: all, match: { path_prefix: / }, respond: { status: 204 } }]\n";
    let (accept, _upstream) = tokio::sync::mpsc::unbounded_channel();
    let proxy = TestProxy::of(clock, text, Connector::Memory(accept), Some(&log));
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nno field\r\n\r\n").await;
    assert_eq!(client.status().await, Some(400));
    drop(client.stream);
    client.served.await.expect("no panic");
    proxy.log.finish();
    let line = fs::read_to_string(&log).expect("a log");
    assert!(line.contains("\"ts\":\"2027-01-16T08:00:00"), "{line}");
}

//! Bodies of requests on their way: how long each side may take, and which side is blamed.

use super::{TestProxy, read_head, secs};
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf},
    task::JoinHandle,
};

#[tokio::test(start_paused = true)]
async fn an_upload_under_way_does_not_use_up_the_first_byte_timeout() {
    let mut proxy = TestProxy::new(", timeouts: { first_byte: 60s, idle: 50s }");
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\n").await;
    let mut upstream = proxy.upstream.recv().await.expect("a connection");
    let answering = tokio::spawn(async move {
        read_head(&mut upstream).await.expect("a head");
        let mut body = [0; 4];
        upstream.read_exact(&mut body).await.expect("the whole body");
        upstream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.expect("sent");
        upstream
    });
    for byte in ["a", "b", "c", "d"] {
        proxy.worker.clock.sleep_until(proxy.now() + secs(40)).await;
        client.send(byte).await;
    }
    assert_eq!(client.status().await, Some(204));
    drop(answering.await.expect("no panic"));
}

/// Reads a request with a body of four bytes, and answers `pause` seconds after it.
fn answer_later(proxy: &TestProxy, mut upstream: DuplexStream, pause: u64) -> JoinHandle<()> {
    let clock = proxy.worker.clock.clone();
    tokio::spawn(async move {
        read_head(&mut upstream).await.expect("a head");
        let mut body = [0; 4];
        upstream.read_exact(&mut body).await.expect("the whole body");
        clock.sleep_until(clock.now() + secs(pause)).await;
        // The gateway may have given up.
        let _sent = upstream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await;
    })
}

/// Sends a body that takes `upload` seconds to a server that answers `pause` seconds after its end.
/// Returns the status of the response, and how long it took.
async fn answer_to_slow_upload(
    proxy: &mut TestProxy,
    upload: u64,
    pause: u64,
) -> (Option<u16>, Duration) {
    let begun = proxy.now();
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nab").await;
    let upstream = proxy.upstream.recv().await.expect("a connection");
    let answering = answer_later(proxy, upstream, pause);
    proxy.pass(secs(upload)).await;
    client.send("cd").await;
    let status = client.status().await;
    let took = proxy.now().since(begun);
    answering.await.expect("no panic");
    (status, took)
}

#[tokio::test(start_paused = true)]
async fn the_first_byte_timeout_begins_at_the_end_of_the_upload() {
    for (upload, pause, status, total) in
        [(59, 50, 204, 109), (59, 70, 504, 119), (61, 70, 504, 121), (0, 70, 504, 60)]
    {
        let mut proxy = TestProxy::new(", timeouts: { first_byte: 60s, idle: 2m }");
        let (answered, took) = answer_to_slow_upload(&mut proxy, upload, pause).await;
        assert_eq!(answered, Some(status), "{upload} s, then {pause} s");
        assert!((secs(total)..secs(total + 1)).contains(&took), "{upload}, {pause}: {took:?}");
    }
}

/// One response that comes later than 2 s opens the breaker.
const SLOW_AFTER_2S: &str = ", timeouts: { idle: 40s, first_byte: 40s }, \
     breaker: { slow_after: 2s, slow_ratio: 0, min_requests: 1, window: 1m, open_for: 1h }";

fn is_open(proxy: &TestProxy) -> bool {
    let observation = proxy.worker.live.load().routes[0].gate.observe(proxy.now());
    observation.rules[0].breaker.expect("a breaker").opened > 0
}

#[tokio::test(start_paused = true)]
async fn a_breaker_counts_no_time_that_an_upload_takes() {
    for (upload, pause, opens) in [(30, 0, false), (30, 1, false), (30, 3, true), (0, 3, true)] {
        let mut proxy = TestProxy::new(SLOW_AFTER_2S);
        assert_eq!(answer_to_slow_upload(&mut proxy, upload, pause).await.0, Some(204));
        assert_eq!(is_open(&proxy), opens, "{upload} s, then {pause} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_breaker_takes_no_response_before_the_end_of_a_slow_upload_for_slow() {
    for answer in ["HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n", ""] {
        let mut proxy = TestProxy::new(SLOW_AFTER_2S);
        let mut client = proxy.client();
        client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nab").await;
        let mut upstream = proxy.upstream.recv().await.expect("a connection");
        read_head(&mut upstream).await.expect("a head");
        proxy.pass(secs(30)).await;
        upstream.write_all(answer.as_bytes()).await.expect("sent");
        drop(upstream);
        let status = if answer.is_empty() { 502 } else { 403 };
        assert_eq!(client.status().await, Some(status));
        assert!(!is_open(&proxy), "after {status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_breaker_takes_a_server_that_stops_reading_an_upload_for_slow() {
    let mut proxy = TestProxy::new(SLOW_AFTER_2S);
    let Flood { mut reader, sending, upstream, .. } = Flood::begin(&mut proxy).await;
    let head = read_head(&mut reader).await.expect("an answer");
    assert!(head.starts_with("HTTP/1.1 504 "), "{head}");
    assert!(is_open(&proxy));
    sending.abort();
    drop(upstream);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_slow_beyond_the_whole_requests_timeout_is_to_blame() {
    // One failed request would open the breaker.
    let mut proxy = TestProxy::new(
        ", timeouts: { request: 10s }, breaker: { errors: 1, min_requests: 1, window: 1m, open_for: 1h }",
    );
    let failures = |proxy: &TestProxy| {
        let snapshot = proxy.worker.live.load_full();
        let members = snapshot.upstreams[0].members();
        members.servers[0].meter.failures.load(Relaxed)
    };
    for slow in [true, true, false] {
        let mut client = proxy.client();
        client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\nab").await;
        let mut upstream = proxy.upstream.recv().await.expect("a connection");
        read_head(&mut upstream).await.expect("a head");
        if !slow {
            client.send("cd").await;
        }
        assert_eq!(client.status().await, Some(if slow { 408 } else { 504 }));
        assert_eq!(failures(&proxy), u64::from(!slow));
    }
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(client.status().await, Some(503), "its breaker is open");
}

#[tokio::test(start_paused = true)]
async fn a_response_before_most_of_an_upload_says_that_the_connection_closes() {
    for (length, closes) in [(65_636, false), (65_637, true)] {
        let mut proxy = TestProxy::new("");
        let mut client = proxy.client();
        let part = "x".repeat(100);
        client
            .send(&format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n{part}"))
            .await;
        let mut upstream = proxy.upstream.recv().await.expect("a connection");
        read_head(&mut upstream).await.expect("a head");
        upstream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.expect("sent");
        let head = read_head(&mut client.stream).await.expect("a head");
        assert_eq!(head.contains("connection: close\r\n"), closes, "{length}: {head}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_upload_ends_with_its_trailers() {
    let mut proxy = TestProxy::new(", timeouts: { first_byte: 20s, idle: 2m }");
    let begun = proxy.now();
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n").await;
    client.send("trailer: x-sum\r\n\r\n2\r\nab\r\n0\r\nx-sum: 1\r\n\r\n").await;
    let mut upstream = proxy.upstream.recv().await.expect("a connection");
    read_head(&mut upstream).await.expect("a head");
    read_head(&mut upstream).await.expect("the body and its trailers");
    assert_eq!(client.status().await, Some(504), "the server never answers");
    let took = proxy.now().since(begun);
    assert!((secs(20)..secs(21)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_body_below_the_least_rate_is_cut_off_with_408() {
    // 5 s are free, and each byte pays for 100 ms.
    for (pause, bytes, cut_after) in
        [(6, 1, Some(5)), (1, 1, Some(5)), (1, 9, Some(41)), (2, 20, None)]
    {
        let mut proxy =
            TestProxy::new(", min_body_rate: 10/s, timeouts: { idle: 1h, first_byte: 1h }");
        let begun = proxy.now();
        let mut client = proxy.client();
        client
            .send(
                "POST / HTTP/1.1
host: a
content-length: 2000

",
            )
            .await;
        let mut upstream = proxy.upstream.recv().await.expect("a connection");
        let answering = tokio::spawn(async move {
            read_head(&mut upstream).await.expect("a head");
            if upstream.read_exact(&mut [0; 2000]).await.is_ok() {
                upstream
                    .write_all(
                        b"HTTP/1.1 204 No Content

",
                    )
                    .await
                    .expect("sent");
            }
        });
        for _ in 0..60 {
            proxy.pass(secs(pause)).await;
            if cut_after.is_some_and(|after| proxy.now().since(begun) > secs(after)) {
                break;
            }
            client.send(&"x".repeat(bytes)).await;
        }
        if cut_after.is_none() {
            client.send(&"x".repeat(800)).await;
        }
        let status = if cut_after.is_some() { 408 } else { 204 };
        assert_eq!(client.status().await, Some(status), "{bytes} bytes in {pause} s");
        answering.await.expect("no panic");
        if cut_after.is_some() {
            assert_eq!(client.status().await, None, "the rest would be read as a request");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_server_does_not_make_a_slow_client() {
    let mut proxy =
        TestProxy::new(", min_body_rate: 1MB/s, timeouts: { idle: 1h, first_byte: 1h }");
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3000000\r\n\r\n").await;
    let mut upstream = proxy.upstream.recv().await.expect("a connection");
    let clock = proxy.worker.clock.clone();
    let reading = tokio::spawn(async move {
        read_head(&mut upstream).await.expect("a head");
        let mut part = vec![0; 300_000];
        for _ in 0..10 {
            clock.sleep_until(clock.now() + secs(20)).await;
            upstream.read_exact(&mut part).await.expect("a tenth");
        }
        upstream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.expect("sent");
        upstream
    });
    client.send(&"x".repeat(3_000_000)).await;
    assert_eq!(client.status().await, Some(204));
    drop(reading.await.expect("no panic"));
}

/// Sends more than the gateway holds, for as long as it is taken.
fn flood(mut stream: WriteHalf<DuplexStream>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let block = [0; 8_192];
        while stream.write_all(&block).await.is_ok() {}
    })
}

/// An upload that is longer than anybody waits for, of which the server has read the head.
struct Flood {
    /// Where the answer comes to the client.
    reader: ReadHalf<DuplexStream>,
    sending: JoinHandle<()>,
    served: JoinHandle<()>,
    upstream: DuplexStream,
}

impl Flood {
    async fn begin(proxy: &mut TestProxy) -> Self {
        let mut client = proxy.client();
        client.send(LONG).await;
        let (reader, writer) = tokio::io::split(client.stream);
        let sending = flood(writer);
        let mut upstream = proxy.upstream.recv().await.expect("a connection");
        read_head(&mut upstream).await.expect("a head");
        Self { reader, sending, served: client.served, upstream }
    }
}

const LONG: &str = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000000\r\n\r\n";

#[tokio::test(start_paused = true)]
async fn a_server_that_stops_reading_an_upload_is_let_go_after_the_idle_timeout() {
    for (first_byte, idle) in [(60, 50), (20, 50)] {
        let mut proxy = TestProxy::new(&format!(
            ", timeouts: {{ first_byte: {first_byte}s, idle: {idle}s }}, \
             flow: [{{ name: one, concurrency: 1 }}]"
        ));
        let begun = proxy.now();
        let Flood { mut reader, sending, served, mut upstream } = Flood::begin(&mut proxy).await;
        let head = read_head(&mut reader).await.expect("an answer");
        assert!(head.starts_with("HTTP/1.1 504 "), "{head}");
        let took = proxy.now().since(begun);
        assert!((secs(idle)..secs(idle + 1)).contains(&took), "{took:?}");
        drop(reader);
        served.abort();
        sending.await.expect("the client's connection is closed");
        proxy.pass(secs(1)).await;
        assert!(upstream.write_all(b"x").await.is_err(), "the server's connection is cut off");
        assert_eq!(proxy.in_flight(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_reads_an_upload_slowly_is_let_be() {
    let mut proxy = TestProxy::new(", timeouts: { first_byte: 20s, idle: 50s }");
    let Flood { mut reader, sending, served, mut upstream } = Flood::begin(&mut proxy).await;
    let mut block = vec![0; 128 * 1024];
    for _ in 0..10 {
        proxy.pass(secs(40)).await;
        upstream.read_exact(&mut block).await.expect("more of the body");
    }
    upstream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.expect("sent");
    let head = read_head(&mut reader).await.expect("an answer");
    assert!(head.starts_with("HTTP/1.1 204 "), "{head}");
    served.abort();
    sending.abort();
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_malformed_before_the_answer_is_a_400() {
    let chunked = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    for bad in ["ZZ\r\n", "2\r\nabXX", "2\r\nab\r\nZZ\r\n", "0\r\nno trailer\r\n\r\n", "-1\r\n"] {
        for at_once in [true, false] {
            let proxy = TestProxy::new(", flow: [{ name: one, concurrency: 1 }]");
            let mut client = proxy.client();
            if at_once {
                client.send(&format!("{chunked}{bad}")).await;
            } else {
                client.send(chunked).await;
                proxy.pass(secs(1)).await;
                client.send(bad).await;
            }
            assert_eq!(client.status().await, Some(400), "{bad:?}, {at_once}");
            client.served.await.expect("the connection is closed");
            assert_eq!(proxy.in_flight(), 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_whose_answer_came_before_the_upload_had_left_serves_nobody_else() {
    // How much of the body comes before the answer begins, how much before it ends, and
    // whether the connection is used again.
    for (before, after, again) in [(4, 0, true), (0, 4, false), (200_000, 0, false)] {
        let mut proxy = TestProxy::new("");
        let mut client = proxy.client();
        let length = before + after;
        client
            .send(&format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n"))
            .await;
        let mut upstream = proxy.upstream.recv().await.expect("a connection");
        read_head(&mut upstream).await.expect("a head");
        client.send(&"x".repeat(before)).await;
        proxy.pass(secs(1)).await;
        upstream
            .write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 3\r\n\r\n")
            .await
            .expect("sent");
        read_head(&mut client.stream).await.expect("an answer");
        client.send(&"x".repeat(after)).await;
        proxy.pass(secs(1)).await;
        upstream.write_all(b"no!").await.expect("sent");
        client.stream.read_exact(&mut [0; 3]).await.expect("its body");
        let mut other = proxy.client();
        other.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        proxy.pass(secs(1)).await;
        let is_used_again = proxy.upstream.try_recv().is_err();
        assert_eq!(is_used_again, again, "{before} bytes before the answer, {after} after");
    }
}

//! Streams of HTTP/2 whose client takes its time, frame by frame.

use super::{Client, TestProxy, read_head, secs};
use crate::proxy::connections::registry::Protocol;
use crate::{clock::Clock, flow::Instant};
use core::time::Duration;
use std::sync::Arc;
use tokio::{
    io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf},
    sync::{Mutex, mpsc},
};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
/// `END_STREAM` and `END_HEADERS`.
const WHOLE: u8 = 5;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// POST of nothing to `/` at `a`, by the same table.
const POST_NOTHING: &[u8] = &[0x83, 0x86, 0x84, 0x41, 1, b'a', 0x0f, 13, 1, b'0'];
/// POST of four bytes to `/` at `a`, by the static table (RFC 7541, appendix A).
const POST: &[u8] = &[0x83, 0x86, 0x84, 0x41, 1, b'a', 0x0f, 13, 1, b'4'];
/// GET of `/` at `a`, by the same table.
const GET: &[u8] = &[0x82, 0x86, 0x84, 0x41, 1, b'a'];

/// What the gateway sent on a stream, and when.
#[derive(Debug, PartialEq, Eq)]
enum Sent {
    Data(u32, usize),
    End(u32),
    Reset(u32, Instant),
}

/// A client that grants each stream a window of its own making.
struct Http2 {
    write: Arc<Mutex<WriteHalf<DuplexStream>>>,
    sent: mpsc::UnboundedReceiver<Sent>,
}

impl Http2 {
    /// Connects with streams that may send nothing.
    async fn connect(proxy: &TestProxy) -> Self {
        Self::connect_with(proxy, 0, secs(0)).await
    }

    /// Connects with streams that may send `window` bytes, and pauses after each frame
    /// of data.
    async fn connect_with(proxy: &TestProxy, window: u32, pause: Duration) -> Self {
        let Client { stream, .. } = proxy.client_of(Protocol::Http2);
        let (read, write) = tokio::io::split(stream);
        let write = Arc::new(Mutex::new(write));
        let (note, sent) = mpsc::unbounded_channel();
        let clock = proxy.worker.clock.clone();
        tokio::spawn(listen(read, Arc::clone(&write), note, clock, pause));
        let this = Self { write, sent };
        this.write.lock().await.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("sent");
        // SETTINGS_INITIAL_WINDOW_SIZE.
        this.send(SETTINGS, 0, 0, &[&[0, 4], window.to_be_bytes().as_slice()].concat()).await;
        this
    }

    async fn get(&self, stream: u32) {
        self.send(HEADERS, WHOLE, stream, GET).await;
    }

    async fn grant(&self, stream: u32, bytes: u32) {
        self.send(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes()).await;
    }

    async fn send(&self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        send(&self.write, kind, flags, stream, payload).await;
    }

    /// Grants a byte on `stream` every 20 s, `times` times, and returns what was sent.
    async fn trickle(&mut self, proxy: &TestProxy, stream: u32, times: usize) -> Vec<Sent> {
        for _ in 0..times {
            self.grant(stream, 1).await;
            proxy.worker.clock.sleep_until(proxy.now() + secs(20)).await;
        }
        core::iter::from_fn(|| self.sent.try_recv().ok()).collect()
    }
}

async fn send(
    write: &Mutex<WriteHalf<DuplexStream>>,
    kind: u8,
    flags: u8,
    stream: u32,
    payload: &[u8],
) {
    send_frame(&mut *write.lock().await, kind, flags, stream, payload).await;
}

async fn send_frame(
    write: &mut (impl AsyncWrite + Unpin),
    kind: u8,
    flags: u8,
    stream: u32,
    payload: &[u8],
) {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    write.write_all(&frame).await.expect("sent");
}

/// Reads frames to the end, and confirms what must be.
async fn listen(
    mut read: ReadHalf<DuplexStream>,
    write: Arc<Mutex<WriteHalf<DuplexStream>>>,
    note: mpsc::UnboundedSender<Sent>,
    clock: Clock,
    pause: Duration,
) {
    let mut head = [0; 9];
    while read.read_exact(&mut head).await.is_ok() {
        let [high, middle, low, kind, flags, stream @ ..] = head;
        let length = u32::from_be_bytes([0, high, middle, low]);
        let mut payload = vec![0; length as usize];
        read.read_exact(&mut payload).await.expect("a whole frame");
        let stream = u32::from_be_bytes(stream);
        match kind {
            SETTINGS if flags & ACK == 0 => send(&write, SETTINGS, ACK, 0, &[]).await,
            PING if flags & ACK == 0 => send(&write, PING, ACK, 0, &payload).await,
            DATA => {
                drop(note.send(Sent::Data(stream, payload.len())));
                if flags & END_STREAM != 0 {
                    drop(note.send(Sent::End(stream)));
                }
                clock.sleep_until(clock.now() + pause).await;
            }
            RST_STREAM => drop(note.send(Sent::Reset(stream, clock.now()))),
            _ => {}
        }
    }
}

/// When `stream` was reset, and how many bytes of data it had until then.
fn reset_and_bytes(sent: &[Sent], stream: u32) -> (Option<Instant>, usize) {
    sent.iter().fold((None, 0), |(reset, bytes), sent| match *sent {
        Sent::Reset(id, at) if id == stream => (Some(at), bytes),
        Sent::Data(id, more) if id == stream => (reset, bytes + more),
        Sent::Data(..) | Sent::End(_) | Sent::Reset(..) => (reset, bytes),
    })
}

/// Asserts that `reset` was `after` seconds, or the quarter of `timeouts.write` later
/// that streams are looked at.
#[track_caller]
fn assert_reset(reset: Option<Instant>, begun: Instant, after: u64) {
    let took = reset.expect("it was reset").since(begun);
    assert!((secs(after)..=secs(after + 16)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_stands_still_is_reset_while_others_go_on() {
    let mut proxy = TestProxy::new(
        ", timeouts: { idle: 10h, request: 10h }, flow: [{ name: two, concurrency: 2 }]",
    );
    let mut client = Http2::connect(&proxy).await;
    let begun = proxy.now();
    client.get(1).await;
    let still = proxy.flood().await;
    client.get(3).await;
    let _moving = proxy.flood().await;
    let sent = client.trickle(&proxy, 3, 20).await;
    let (reset, bytes) = reset_and_bytes(&sent, 1);
    assert_reset(reset, begun, 60);
    assert_eq!(bytes, 0);
    assert_eq!(reset_and_bytes(&sent, 3), (None, 20), "a byte now and then is enough");
    assert_eq!(proxy.in_flight(), 1);
    still.await.expect("the upstream's connection is closed as well");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_nobody_takes_ends_however_small_it_is() {
    let mut proxy = TestProxy::new(", flow: [{ name: two, concurrency: 2 }]");
    let _arrivals = proxy.answer();
    let mut client = Http2::connect(&proxy).await;
    let begun = proxy.now();
    client.get(1).await;
    client.get(3).await;
    let sent = client.trickle(&proxy, 3, 5).await;
    assert_reset(reset_and_bytes(&sent, 1).0, begun, 60);
    assert_eq!(reset_and_bytes(&sent, 3), (None, 2));
    assert_eq!(proxy.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_trickles_for_ever_ends_at_the_requests_deadline() {
    let mut proxy = TestProxy::new(", timeouts: { idle: 10h, request: 200s }");
    let mut client = Http2::connect(&proxy).await;
    let begun = proxy.now();
    client.get(1).await;
    let flood = proxy.flood().await;
    let sent = client.trickle(&proxy, 1, 12).await;
    assert_reset(reset_and_bytes(&sent, 1).0, begun, 200);
    flood.await.expect("the upstream's connection is closed as well");
}

#[tokio::test(start_paused = true)]
async fn streams_that_share_a_slow_line_are_not_at_fault() {
    let mut proxy = TestProxy::new(", timeouts: { idle: 10h, request: 10h }");
    let most = 0x7fff_ffff;
    // Forty take turns of 2 s each, so that one moves every 80 s.
    let mut client = Http2::connect_with(&proxy, most, secs(2)).await;
    client.grant(0, most - 0xffff).await;
    let mut floods = Vec::new();
    for stream in (1..80).step_by(2) {
        client.get(stream).await;
        floods.push(proxy.flood().await);
    }
    proxy.worker.clock.sleep_until(proxy.now() + secs(600)).await;
    let sent: Vec<_> = core::iter::from_fn(|| client.sent.try_recv().ok()).collect();
    assert!(sent.len() > 100, "{} frames", sent.len());
    assert!(
        (1..80).step_by(2).all(|stream| reset_and_bytes(&sent, stream).0.is_none()),
        "{sent:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_first_look_at_a_stream_comes_in_time_however_late_the_timer_was_to_ring() {
    let mut proxy = TestProxy::new(", flow: [{ name: two, concurrency: 2 }]");
    let _arrivals = proxy.answer();
    let mut client = Http2::connect(&proxy).await;
    // The timer fires when the first head would have been due, and is armed for keep_alive.
    proxy.pass(secs(12)).await;
    let begun = proxy.now();
    client.get(1).await;
    client.get(3).await;
    let sent = client.trickle(&proxy, 3, 5).await;
    assert_reset(reset_and_bytes(&sent, 1).0, begun, 60);
}

#[tokio::test(start_paused = true)]
async fn each_request_has_its_own_deadline_though_one_timer_watches_all() {
    let mut proxy = TestProxy::new(", timeouts: { first_byte: 2s }");
    let mut client = Http2::connect_with(&proxy, 10_000, secs(0)).await;
    let mut silent = Vec::new();
    for stream in [1, 3, 5] {
        client.get(stream).await;
        silent.push(proxy.upstream.recv().await.expect("a connection"));
        proxy.pass(Duration::from_millis(600)).await;
    }
    let answered = |client: &mut Http2| {
        let sent = core::iter::from_fn(|| client.sent.try_recv().ok());
        sent.filter(|sent| matches!(sent, Sent::End(_))).collect::<Vec<_>>()
    };
    assert_eq!(answered(&mut client), []);
    for stream in [1, 3, 5] {
        proxy.pass(Duration::from_millis(100)).await;
        assert_eq!(answered(&mut client), [], "too early for {stream}");
        proxy.pass(Duration::from_millis(200)).await;
        assert_eq!(answered(&mut client), [Sent::End(stream)]);
        proxy.pass(Duration::from_millis(300)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_client_that_confirms_no_farewell_is_closed_after_keep_alive() {
    let proxy = TestProxy::new("");
    let begun = proxy.now();
    let mut client = proxy.client_of(Protocol::Http2);
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    send_frame(&mut client.stream, SETTINGS, 0, 0, &[]).await;
    send_frame(&mut client.stream, SETTINGS, ACK, 0, &[]).await;
    let clock = proxy.worker.clock.clone();
    let (mut read, mut write) = tokio::io::split(client.stream);
    // It answers the pings that ask whether it lives, which are of the first 70 s.
    let listening = tokio::spawn(async move {
        let mut head = [0; 9];
        while read.read_exact(&mut head).await.is_ok() {
            let [high, middle, low, kind, flags, ..] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, high, middle, low]) as usize];
            read.read_exact(&mut payload).await.expect("a whole frame");
            if kind == PING && flags & ACK == 0 && clock.now().since(begun) < secs(70) {
                send_frame(&mut write, PING, ACK, 0, &payload).await;
            }
        }
    });
    client.served.await.expect("no panic");
    let took = proxy.now().since(begun);
    assert!((secs(75)..secs(78)).contains(&took), "{took:?}");
    listening.await.expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn an_upload_has_ended_with_its_last_byte_though_its_client_says_so_later() {
    for (head, body) in [(POST, b"abcd".as_slice()), (POST_NOTHING, b"")] {
        let mut proxy = TestProxy::new(", timeouts: { first_byte: 60s, idle: 10s }");
        let mut client = Http2::connect_with(&proxy, 100, secs(0)).await;
        client.send(HEADERS, END_HEADERS, 1, head).await;
        if !body.is_empty() {
            client.send(DATA, 0, 1, body).await;
        }
        let mut upstream = proxy.upstream.recv().await.expect("a connection");
        read_head(&mut upstream).await.expect("a head");
        upstream.read_exact(&mut vec![0; body.len()]).await.expect("the whole body");
        client.send(DATA, END_STREAM, 1, &[]).await;
        proxy.pass(secs(50)).await;
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nin time";
        upstream.write_all(answer).await.expect("sent");
        proxy.pass(secs(1)).await;
        let sent: Vec<_> = core::iter::from_fn(|| client.sent.try_recv().ok()).collect();
        assert_eq!(reset_and_bytes(&sent, 1), (None, 7), "{} bytes: {sent:?}", body.len());
    }
}

/// When the stream of a request that is answered before its body came is reset. Who
/// `finishes` sends the body after all.
async fn reset_after_an_early_answer(proxy: &mut TestProxy, finishes: bool) -> Option<Duration> {
    let mut client = Http2::connect_with(proxy, 10_000, secs(0)).await;
    client.send(HEADERS, END_HEADERS, 1, POST).await;
    proxy.pass(secs(1)).await;
    if let Ok(mut upstream) = proxy.upstream.try_recv() {
        read_head(&mut upstream).await.expect("a head");
        let answer = b"HTTP/1.1 413 Too Large\r\ncontent-length: 7\r\n\r\ntoo big";
        upstream.write_all(answer).await.expect("sent");
        proxy.pass(secs(1)).await;
    }
    let begun = proxy.now();
    let sent: Vec<_> = core::iter::from_fn(|| client.sent.try_recv().ok()).collect();
    let (reset, bytes) = reset_and_bytes(&sent, 1);
    assert!(bytes > 0, "the answer is there");
    assert_eq!(reset, None, "not together with the answer");
    if finishes {
        client.send(DATA, END_STREAM, 1, b"abcd").await;
    } else {
        client.send(DATA, 0, 1, b"ab").await;
    }
    proxy.pass(secs(60)).await;
    let sent: Vec<_> = core::iter::from_fn(|| client.sent.try_recv().ok()).collect();
    reset_and_bytes(&sent, 1).0.map(|at| at.since(begun))
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_answered_early_is_reset_only_if_its_client_does_not_end_it() {
    let by_rule = ", flow: [{ name: r, limit: 1/1s, key: \"header:x\", on_missing_key: reject }]";
    for route in [", body_limit: 3", by_rule, ""] {
        let reset = reset_after_an_early_answer(&mut TestProxy::new(route), true).await;
        assert_eq!(reset, None, "{route}");
        let reset = reset_after_an_early_answer(&mut TestProxy::new(route), false).await;
        let reset = reset.expect("it is reset in the end");
        assert!((secs(5)..secs(6)).contains(&reset), "{route}: {reset:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_early_answer_without_a_length_ends_when_its_client_has_stopped() {
    let chunked =
        b"HTTP/1.1 413 Too Large\r\ntransfer-encoding: chunked\r\n\r\n3\r\nbig\r\n0\r\n\r\n";
    for stops in [true, false] {
        let mut proxy = TestProxy::new("");
        let mut client = Http2::connect_with(&proxy, 10_000, secs(0)).await;
        client.send(HEADERS, END_HEADERS, 1, &POST[..6]).await;
        let mut upstream = proxy.upstream.recv().await.expect("a connection");
        read_head(&mut upstream).await.expect("a head");
        upstream.write_all(chunked).await.expect("sent");
        proxy.pass(Duration::from_millis(500)).await;
        let sent: Vec<_> = core::iter::from_fn(|| client.sent.try_recv().ok()).collect();
        assert_eq!(sent, [Sent::Data(1, 3)], "all but the end");
        if stops {
            client.send(DATA, END_STREAM, 1, b"abcd").await;
            proxy.pass(Duration::from_millis(10)).await;
        } else {
            proxy.pass(secs(1)).await;
        }
        assert_eq!(client.sent.try_recv(), Ok(Sent::Data(1, 0)));
        assert_eq!(client.sent.try_recv(), Ok(Sent::End(1)));
    }
}

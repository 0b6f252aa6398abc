//! Uploads over HTTP/2: how fast over a long line, how much is held, and how those end that
//! are answered early.

use super::{TestProxy, read_head, secs};
use crate::clock::Clock;
use crate::proxy::connections::registry::Protocol;
use bytes::Bytes;
use core::{sync::atomic::Ordering::Relaxed, time::Duration};
use http::Request;
use http_body_util::Full;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split},
    sync::mpsc,
    task::JoinHandle,
};

const MIB: usize = 1024 * 1024;

/// Moves bytes, each of which takes `delay`.
fn delay_bytes(
    clock: &Clock,
    mut from: ReadHalf<DuplexStream>,
    mut to: WriteHalf<DuplexStream>,
    delay: Duration,
) {
    let (sent, mut arriving) = mpsc::unbounded_channel();
    let departing = clock.clone();
    tokio::spawn(async move {
        let mut block = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from.read(&mut block).await {
            drop(sent.send((departing.now() + delay, block[..count].to_vec())));
        }
    });
    let clock = clock.clone();
    tokio::spawn(async move {
        while let Some((at, bytes)) = arriving.recv().await {
            clock.sleep_until(at).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    });
}

/// Connects a client over a line whose round trip takes `round_trip`.
async fn connect(proxy: &TestProxy, round_trip: Duration) -> SendRequest<Full<Bytes>> {
    let (near, line_near) = duplex(MIB);
    let (line_far, far) = duplex(MIB);
    let (near_read, near_write) = split(line_near);
    let (far_read, far_write) = split(line_far);
    delay_bytes(&proxy.worker.clock, near_read, far_write, round_trip / 2);
    delay_bytes(&proxy.worker.clock, far_read, near_write, round_trip / 2);
    proxy.serve(far, Protocol::Http2);
    let (sender, connection) =
        handshake(TokioExecutor::new(), TokioIo::new(near)).await.expect("h2");
    tokio::spawn(async move { drop(connection.await) });
    sender
}

/// Uploads `size` bytes and returns the answer's status.
fn upload(sender: &SendRequest<Full<Bytes>>, size: usize) -> JoinHandle<u16> {
    let mut sender = sender.clone();
    let body = Full::new(Bytes::from(vec![0; size]));
    let request = Request::post("http://a/").body(body).expect("a request");
    tokio::spawn(
        async move { sender.send_request(request).await.expect("an answer").status().as_u16() },
    )
}

/// Reads a body of `size` bytes from the gateway, and answers.
async fn take(server: &mut DuplexStream, size: usize) {
    let mut block = vec![0; 64 * 1024];
    let mut left = size;
    while left > 0 {
        let count = server.read(&mut block[..left.min(64 * 1024)]).await.expect("more of the body");
        assert!(count > 0, "{left} bytes are missing");
        left -= count;
    }
    server.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.expect("sent");
}

#[tokio::test(start_paused = true)]
async fn an_upload_over_a_long_line_moves_two_megabytes_in_a_round_trip() {
    let mut proxy = TestProxy::new("");
    let sender = connect(&proxy, Duration::from_millis(50)).await;
    let begun = proxy.now();
    let uploading = upload(&sender, 20 * MIB);
    let mut server = proxy.upstream.recv().await.expect("a connection");
    read_head(&mut server).await.expect("a head");
    take(&mut server, 20 * MIB).await;
    assert_eq!(uploading.await.expect("no panic"), 204);
    // 10 windows, and the way there and back.
    let took = proxy.now().since(begun);
    assert!(took <= Duration::from_millis(50 * 12), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn uploads_that_nobody_takes_hold_no_more_than_they_may() {
    // The most that is read at once besides.
    const ONE_READ: u64 = 32 * 1024;
    let sizes = [
        ("", 1024),
        ("limits: { upload_buffers: 1MiB }\n", 1024),
        ("limits: { upload_buffers: 0 }\n", 0),
    ];
    for (settings, limit) in sizes {
        let mut proxy = TestProxy::with_settings(settings, "");
        let held = |proxy: &TestProxy| proxy.worker.counters.upload_buffers.load(Relaxed);
        let mut senders = Vec::new();
        let mut uploads = Vec::new();
        let mut servers = Vec::new();
        for _ in 0..4 {
            let sender = connect(&proxy, Duration::from_millis(1)).await;
            for _ in 0..2 {
                uploads.push(upload(&sender, 3 * MIB));
                let mut server = proxy.upstream.recv().await.expect("a connection");
                read_head(&mut server).await.expect("a head");
                servers.push(server);
            }
            senders.push(sender);
        }
        proxy.pass(secs(10)).await;
        let bytes = held(&proxy);
        if settings.is_empty() {
            assert!(bytes >= 15 * MIB as u64, "each of 8 streams has a window of 2 MiB: {bytes}");
        } else {
            let most = limit * 1024 + 4 * (64 * 1024 + ONE_READ);
            assert!(bytes <= most, "{bytes} of at most {most}");
        }
        for mut server in servers {
            tokio::spawn(async move {
                take(&mut server, 3 * MIB).await;
                core::future::pending::<()>().await;
            });
        }
        for upload in uploads {
            assert_eq!(upload.await.expect("no panic"), 204, "{settings}");
        }
        proxy.pass(secs(1)).await;
        assert_eq!(held(&proxy), 0, "{settings}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_small_upload_passes_beside_those_that_nobody_takes() {
    let mut proxy = TestProxy::new("");
    let sender = connect(&proxy, Duration::from_millis(1)).await;
    let mut stuck = Vec::new();
    for _ in 0..5 {
        let uploading = upload(&sender, 3 * MIB);
        let mut server = proxy.upstream.recv().await.expect("a connection");
        read_head(&mut server).await.expect("a head");
        stuck.push((uploading, server));
    }
    proxy.pass(secs(5)).await;
    let small = upload(&sender, 1000);
    let mut server = proxy.upstream.recv().await.expect("a connection");
    read_head(&mut server).await.expect("a head");
    take(&mut server, 1000).await;
    assert_eq!(small.await.expect("no panic"), 204);
}

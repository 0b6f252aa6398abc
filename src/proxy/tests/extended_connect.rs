//! `WebSocket` over HTTP/2, and trailers that it does not allow.

use super::{TestProxy, read_head, secs};
use crate::meter::HttpRejection;
use crate::proxy::connections::registry::Protocol;
use bytes::Bytes;
use core::sync::atomic::Ordering::Relaxed;
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::Empty;
use hyper::{body::Incoming, client::conn::http2::handshake, ext};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

const AGREED: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
                      Upgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n";

/// Asks for a WebSocket, which the upstream answers with `answer`. Returns the head that the upstream
/// got, and the gateway's answer.
async fn ask(
    proxy: &mut TestProxy,
    answer: &str,
) -> (Option<(String, tokio::io::DuplexStream)>, Response<Incoming>) {
    let (near, far) = duplex(64 * 1024);
    proxy.serve(far, Protocol::Http2);
    let (mut sender, connection) =
        handshake(TokioExecutor::new(), TokioIo::new(near)).await.expect("h2");
    tokio::spawn(async move { drop(connection.await) });
    // The gateway's settings allow it.
    proxy.pass(secs(1)).await;
    let request = Request::builder()
        .method(Method::CONNECT)
        .version(Version::HTTP_2)
        .uri("http://a/chat?x=1")
        .header("sec-websocket-version", "13")
        .extension(ext::Protocol::from_static("websocket"))
        .body(Empty::<Bytes>::new())
        .expect("a request");
    let asking = tokio::spawn(async move {
        let answer = sender.send_request(request).await.expect("an answer");
        // The connection ends with its sender.
        tokio::spawn(async move {
            core::future::pending::<()>().await;
            drop(sender);
        });
        answer
    });
    proxy.pass(secs(1)).await;
    let upstream = match proxy.upstream.try_recv() {
        Err(_) => None,
        Ok(mut upstream) => {
            let head = read_head(&mut upstream).await.expect("a head");
            upstream.write_all(answer.as_bytes()).await.expect("sent");
            Some((head, upstream))
        }
    };
    (upstream, asking.await.expect("no panic"))
}

#[tokio::test(start_paused = true)]
async fn a_websocket_over_http_2_is_one_of_http_1_to_its_server() {
    let mut proxy = TestProxy::new(", flow: [{ name: one, concurrency: 1 }]");
    let (upstream, answer) = ask(&mut proxy, AGREED).await;
    let (head, mut upstream) = upstream.expect("it is asked");
    assert!(head.starts_with("GET /chat?x=1 HTTP/1.1\r\n"), "{head}");
    for line in ["host: a\r\n", "upgrade: websocket\r\n", "sec-websocket-version: 13\r\n"] {
        assert!(head.contains(line), "{line}: {head}");
    }
    let key = head.lines().find_map(|line| line.strip_prefix("sec-websocket-key: "));
    assert_eq!(key.map(str::len), Some(24), "16 bytes in Base64: {head}");
    assert_eq!(answer.status(), StatusCode::OK);
    let fields = ["connection", "upgrade", "sec-websocket-accept", "content-length"];
    assert!(fields.iter().all(|name| !answer.headers().contains_key(*name)), "{answer:?}");
    let mut client = TokioIo::new(hyper::upgrade::on(answer).await.expect("a tunnel"));
    // More than a stream's window, so that it is given back.
    let sent = vec![7; 3 * 1024 * 1024];
    let echo = tokio::spawn(async move {
        let (mut read, mut write) = tokio::io::split(&mut upstream);
        let _ended = tokio::io::copy(&mut read, &mut write).await;
    });
    let (mut read, mut write) = tokio::io::split(client);
    let mut back = vec![0; sent.len()];
    let writing = async {
        write.write_all(&sent).await.expect("sent");
        write
    };
    let (read_back, write) = tokio::join!(read.read_exact(&mut back), writing);
    read_back.expect("all of it");
    assert!(back == sent);
    proxy.pass(secs(600)).await;
    assert_eq!(proxy.in_flight(), 1, "a tunnel is in flight");
    assert_eq!(proxy.worker.counters.upload_buffers.load(Relaxed), 0, "nothing is held");
    client = read.unsplit(write);
    drop(client);
    echo.await.expect("the tunnel ends with its client");
    proxy.pass(secs(1)).await;
    assert_eq!(proxy.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_websocket_over_http_2_needs_a_route_that_allows_it_and_a_server_that_agrees() {
    for (route, answer, status) in [
        (", upgrades: []", "", 405),
        ("", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", 502),
        ("", "HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n", 403),
    ] {
        let mut proxy = TestProxy::new(route);
        let (_, response) = ask(&mut proxy, answer).await;
        assert_eq!(response.status().as_u16(), status, "{route} {answer}");
        proxy.pass(secs(1)).await;
        assert_eq!(proxy.in_flight(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pseudo_header_field_in_trailers_ends_the_connection_and_the_request() {
    let mut proxy = TestProxy::new("");
    let mut client = proxy.client_of(Protocol::Http2);
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    let post = [0x83, 0x86, 0x84, 0x41, 1, b'a'];
    let frames: [&[u8]; 4] = [
        &[0, 0, 0, 4, 0, 0, 0, 0, 0],
        &[&[0, 0, 6, 1, 4, 0, 0, 0, 1][..], &post].concat(),
        &[0, 0, 3, 0, 0, 0, 0, 0, 1, b'a', b'b', b'c'],
        &[0, 0, 1, 1, 5, 0, 0, 0, 1, 0x83],
    ];
    for frame in frames {
        client.stream.write_all(frame).await.expect("sent");
        proxy.pass(secs(1)).await;
    }
    client.served.await.expect("no panic");
    assert_eq!((proxy.in_flight(), proxy.rejected()), (0, vec![(HttpRejection::Malformed, 1)]));
    let mut upstream = proxy.upstream.recv().await.expect("a connection");
    let mut got = String::new();
    upstream.read_to_string(&mut got).await.expect("text");
    assert!(!got.contains("0\r\n\r\n"), "the request has no end: {got}");
}

//! Answers as servers send them: in pieces, too much, too little, and nothing at all.

use super::*;
use crate::config::{AnswerLimits, UpstreamProtocol};
use crate::proxy::upstream::error::{NoResponseReason, Unanswered};
use core::fmt::Write as _;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use http::Method;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

fn over(io: impl super::super::transport::Io + 'static) -> Box<Connection> {
    let limits = AnswerLimits { header_bytes: 4096, headers: 20 };
    let connection_settings =
        ConnectionSettings { limits, protocol: UpstreamProtocol::H1, header: None, tls: None };
    Connection::new(Box::new(io), connection_settings)
}

fn connected() -> (Box<Connection>, DuplexStream) {
    let (near, far) = duplex(64 * 1024);
    (over(near), far)
}

fn request(method: Method) -> Request<RequestBody> {
    let request = http::Request::builder().method(method).uri("/a?b").header("host", "x");
    request.body(RequestBody::Empty).expect("a request").into()
}

/// What became of an answer: status, body and trailers, or an error; and whether the connection can
/// be used again.
async fn outcome(connection: &mut Connection, method: Method) -> (String, bool) {
    let response = match connection.send(request(method)).await {
        Ok(response) => response,
        Err(error) => return (error.to_string(), connection.rest()),
    };
    let mut text = response.status().as_str().to_owned();
    while let Some(frame) = poll_fn(|context| connection.poll_frame(context)).await {
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) => text += &String::from_utf8_lossy(&data),
            Ok(Err(trailers)) => {
                write!(text, "{:?}", trailers.into_trailers()).expect("written");
            }
            Err(error) => return (format!("{text}, {error}"), connection.rest()),
        }
    }
    (text, connection.rest())
}

const ANSWERS: &[(&str, &str, &str, bool)] = &[
    ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", "200abc", true),
    ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "200", true),
    ("GET", "HTTP/1.1 204 No Content\r\n\r\n", "204", true),
    ("GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", "304", true),
    ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", "200", true),
    (
        "GET",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x\r\nab\r\n1\r\nc\r\n0\r\nT: u\r\n\r\n",
        "200abcOk({\"t\": \"u\"})",
        true,
    ),
    (
        "GET",
        "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na",
        "200a",
        true,
    ),
    ("GET", "HTTP/1.1 200 OK\r\n\r\nup to the end", "200up to the end", false),
    ("GET", "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na", "200a", false),
    ("GET", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\na", "200a", false),
    // Another reader could take what is too much for the next answer.
    ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\n", "200a", false),
    ("GET", "HTTP/1.1 204 No Content\r\nContent-Length: 1\r\n\r\na", "204", false),
    (
        "GET",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
        "200ab, the connection ended before the body did",
        false,
    ),
    (
        "GET",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n00000000000000000001\r\n",
        "200, a chunk's size has too many digits",
        false,
    ),
    ("GET", "", "the server closed the connection without an answer", false),
    ("GET", "HTTP/1.1 200 O", "the server closed the connection without an answer", false),
    (
        "GET",
        "HTTP/1.1 200 OK\r\na b: c\r\n\r\n",
        "the answer is malformed: a field name is not a token with a colon behind it",
        false,
    ),
    (
        "GET",
        "\0\0\u{6}\u{4}\0\0\0\0\0",
        "the answer is malformed: the HTTP version is malformed; does the server speak only HTTP/2 (`protocol: h2`) or TLS (`https://`)?",
        false,
    ),
];

#[tokio::test]
async fn an_answer_is_the_same_however_it_is_cut() {
    for &(method, bytes, expected, is_reusable) in ANSWERS {
        for cut in 0..=bytes.len() {
            let (mut connection, mut server) = connected();
            let serving = tokio::spawn(async move {
                let (first, second) = bytes.as_bytes().split_at(cut);
                server.write_all(first).await.expect("sent");
                tokio::task::yield_now().await;
                server.write_all(second).await.expect("sent");
                server.shutdown().await.expect("shut down");
                server
            });
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            let (text, reusable) = outcome(&mut connection, method).await;
            let server = serving.await.expect("no panic");
            assert_eq!(text, expected, "{bytes:?} at {cut}");
            // What comes behind it may come too late to be seen with it.
            let is_so = if cut == 0 { reusable == is_reusable } else { reusable >= is_reusable };
            assert!(is_so, "{bytes:?} at {cut}: {reusable}");
            drop(server);
        }
    }
}

#[tokio::test]
async fn a_connection_serves_requests_in_turn_and_its_end_is_noticed_while_it_is_idle() {
    for end in ["", "unasked"] {
        let (mut connection, mut server) = connected();
        for _ in 0..3 {
            server.write_all(ANSWERS[0].1.as_bytes()).await.expect("sent");
            assert_eq!(outcome(&mut connection, Method::GET).await, ("200abc".to_owned(), true));
            let sent = b"GET /a?b HTTP/1.1\r\nhost: x\r\n\r\n";
            let mut received = vec![0; sent.len()];
            server.read_exact(&mut received).await.expect("the request");
            assert_eq!(received, sent);
            assert!(connection.is_quiet_by_runtime());
        }
        if end.is_empty() {
            server.shutdown().await.expect("shut down");
        } else {
            server.write_all(end.as_bytes()).await.expect("sent");
        }
        assert!(!connection.is_quiet_by_runtime(), "{end:?}");
    }
}

#[tokio::test]
async fn interim_answers_are_left_out_up_to_a_bound() {
    let hint = |length| format!("HTTP/1.1 103 Early Hints\r\nlink: {}\r\n\r\n", "x".repeat(length));
    for (count, length, expected) in [
        (100, 10, "204"),
        (101, 10, "too many interim answers"),
        (20, 3000, "204"),
        (25, 3000, "too many interim answers"),
    ] {
        let (mut connection, mut server) = connected();
        tokio::spawn(async move {
            for _ in 0..count {
                server.write_all(hint(length).as_bytes()).await?;
            }
            server.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await
        });
        let (text, _) = outcome(&mut connection, Method::GET).await;
        assert_eq!(text, expected, "{count} of {length}");
    }
}

#[tokio::test]
async fn a_head_within_the_limits_passes_and_a_larger_one_is_named_too_large() {
    for (name, fields, is_too_large) in [
        ("a", 20, false),
        ("a", 21, true),
        (&"a".repeat(200), 19, false),
        (&"a".repeat(300), 19, true),
    ] {
        let (mut connection, mut server) = connected();
        let head =
            format!("HTTP/1.1 204 No Content\r\n{}\r\n", format!("{name}: b\r\n").repeat(fields));
        server.write_all(head.as_bytes()).await.expect("sent");
        let answer = connection.send(request(Method::GET)).await.map_err(Unanswered::from);
        let found = matches!(&answer, Err(Unanswered { why: NoResponseReason::TooLarge, .. }));
        assert_eq!(
            (found, answer.is_ok()),
            (is_too_large, !is_too_large),
            "{fields} of {}",
            name.len()
        );
    }
}

/// A server that has sent all that it has to send.
struct Ready {
    answer: &'static [u8],
    /// What follows, again and again.
    flood: &'static [u8],
    takes: bool,
    sent: Arc<AtomicUsize>,
}

impl Ready {
    fn with(answer: &'static str) -> Self {
        let answer = answer.as_bytes();
        Self { answer, flood: b"", takes: false, sent: Arc::default() }
    }
}

impl AsyncRead for Ready {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        buffer.put_slice(mem::take(&mut self.answer));
        while !self.flood.is_empty() && buffer.remaining() >= self.flood.len() {
            buffer.put_slice(self.flood);
        }
        self.sent.fetch_add(buffer.filled().len(), Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Ready {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let reset = io::ErrorKind::ConnectionReset.into();
        Poll::Ready(if self.takes { Ok(bytes.len()) } else { Err(reset) })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl super::super::transport::Io for Ready {
    fn is_quiet_by_kernel(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn a_server_that_answered_before_it_closed_is_heard() {
    let mut connection = over(Ready::with(ANSWERS[0].1));
    assert_eq!(outcome(&mut connection, Method::GET).await, ("200abc".to_owned(), false));
    let mut connection = over(Ready::with(""));
    let error = connection.send(request(Method::GET)).await.expect_err("no answer");
    assert!(error.is_closed(), "{error}");
}

#[tokio::test]
async fn a_flood_leaves_other_tasks_their_turn_and_small_chunks_come_together() {
    let mut flood = Ready::with("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    flood.flood = b"1\r\nx\r\n";
    flood.takes = true;
    let sent = Arc::clone(&flood.sent);
    let mut connection = over(flood);
    connection.send(request(Method::GET)).await.expect("an answer");
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..10 {
        let before = sent.load(Relaxed);
        let mut parts = 0;
        while let Poll::Ready(part) = connection.poll_frame(&mut context) {
            part.expect("no end").expect("no error");
            parts += 1;
        }
        let read = sent.load(Relaxed) - before;
        assert!((60_000..200_000).contains(&read), "{read} bytes before others have their turn");
        assert!(parts < 40, "{parts} parts");
    }
}

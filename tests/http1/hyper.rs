//! hyper as the judge: what the codec accepts, hyper accepts and reads in the same way. Where the
//! codec is stricter is a closed list, and where hyper is.

use crate::{
    generate,
    reader::{End, Lines, Message, Role, read},
};
use bytes::Bytes;
use flowgate::http1::RequestKind;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri, request, response};
use http_body_util::{BodyExt, Empty};
use hyper::{body::Incoming, client, server, service::service_fn};
use hyper_util::rt::TokioIo;
use proptest::{prelude::*, sample::select, test_runner::FileFailurePersistence};
use std::{cell::RefCell, convert::Infallible, rc::Rc};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex},
    runtime::{Builder, Runtime},
};

/// What the codec rejects and hyper accepts, each with an example. `docs/http1-codec.md` says the same.
fn stricter_with_requests() -> Vec<(&'static str, String)> {
    let post = |rest: &str| format!("POST / HTTP/1.1\r\n{rest}");
    let chunked = |body: &str| post(&format!("transfer-encoding: chunked\r\n\r\n{body}"));
    let coding = |coding: &str| post(&format!("transfer-encoding: {coding}\r\n\r\n0\r\n\r\n"));
    vec![
        ("EmptyLines", format!("\r\n\r\n\r\n{}", post("\r\n"))),
        ("Framing(ContentLengthWithTransferEncoding)", coding("chunked\r\ncontent-length: 5")),
        ("Framing(UnknownTransferCoding)", coding("gzip, chunked")),
        ("Framing(TransferEncoding)", coding("chunked, chunked")),
        (
            "Framing(TooManyConnectionOptions)",
            post(&format!("connection: {}\r\n\r\n", ",".repeat(64))),
        ),
        ("Chunk(TooManyDigits)", chunked(&format!("{}\r\n\r\n", "0".repeat(17)))),
        ("Chunk(Extension)", chunked("0;\0\r\n\r\n")),
        ("Chunk(Trailers(LineEnd))", chunked("0\r\na: b\n\r\n\r\n")),
        ("Chunk(ExtensionTooLong)", chunked(&format!("0{}\r\n\r\n", " ".repeat(1025)))),
    ]
}

fn stricter_with_responses() -> Vec<(&'static str, String)> {
    let ok = |rest: &str| format!("HTTP/1.1 200 OK\r\n{rest}");
    let chunked = |body: &str| ok(&format!("transfer-encoding: chunked\r\n\r\n{body}"));
    let coding = |coding: &str| ok(&format!("transfer-encoding: {coding}\r\n\r\n0\r\n\r\n"));
    let bare = |version: &str, field: &str| format!("HTTP/{version} 304 x\r\n{field}\r\n\r\n");
    vec![
        ("EmptyLines", format!("\r\n\r\n\r\n{}", ok("\r\n"))),
        ("Framing(ContentLengthWithTransferEncoding)", coding("chunked\r\ncontent-length: 5")),
        ("Framing(UnknownTransferCoding)", coding("gzip, chunked")),
        ("Framing(TransferEncoding)", coding("gzip")),
        ("Framing(TransferEncodingInHttp10)", bare("1.0", "transfer-encoding: chunked")),
        ("Framing(ContentLength)", bare("1.1", "content-length: x")),
        ("Framing(ContentLengthsDiffer)", bare("1.1", "content-length: 5, 6")),
        (
            "Framing(TooManyConnectionOptions)",
            ok(&format!("connection: {}\r\n\r\n", ",".repeat(64))),
        ),
        ("Chunk(TooManyDigits)", chunked(&format!("{}\r\n\r\n", "0".repeat(17)))),
        ("Chunk(Extension)", chunked("0;\0\r\n\r\n")),
        ("Chunk(Trailers(LineEnd))", chunked("0\r\na: b\n\r\n\r\n")),
        ("Chunk(ExtensionTooLong)", chunked(&format!("0{}\r\n\r\n", " ".repeat(1025)))),
    ]
}

/// Returns whether a connection ended with an error of the list.
fn is_listed(end: &End, list: &[(&str, String)]) -> bool {
    list.iter().any(|(known, _)| *end == End::Rejected((*known).to_owned()))
}

fn config(cases: u32) -> ProptestConfig {
    let kept = FileFailurePersistence::WithSource("regressions");
    ProptestConfig { cases, failure_persistence: Some(Box::new(kept)), ..ProptestConfig::default() }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

#[test]
fn what_is_stricter_than_hyper_is_listed() {
    let runtime = runtime();
    for (error, bytes) in stricter_with_requests() {
        let (_, end) = read(&[bytes.as_bytes()], Role::Server);
        assert_eq!(end, End::Rejected(error.to_owned()), "{bytes:?}");
        let theirs = runtime.block_on(serve(bytes.as_bytes()));
        assert!(matches!(&theirs[..], [Ok(_)]), "hyper rejects it too: {bytes:?} {theirs:?}");
    }
    for (error, bytes) in stricter_with_responses() {
        let (_, end) = read(&[bytes.as_bytes()], Role::Client(RequestKind::Other));
        assert_eq!(end, End::Rejected(error.to_owned()), "{bytes:?}");
        let theirs = runtime.block_on(ask(bytes.as_bytes(), Method::GET));
        assert!(theirs.is_ok(), "hyper rejects it too: {bytes:?} {theirs:?}");
    }
}

/// hyper accepts the header, and ends before the body does. The list above has whole messages only.
#[test]
fn lengths_from_2_to_the_63_on_are_rejected_that_hyper_accepts() {
    const TOO_SHORT: &str = "error reading a body from connection";
    let runtime = runtime();
    let rejected = End::Rejected("Framing(ContentLength)".to_owned());
    let cases = [(1 << 63, true), (u64::MAX - 2, true), (u64::MAX - 1, false), (u64::MAX, false)];
    for (length, hyper_accepts) in cases {
        let bytes = format!("content-length: {length}\r\n\r\nhello");
        let request = format!("POST / HTTP/1.1\r\n{bytes}");
        assert_eq!(read(&[request.as_bytes()], Role::Server).1, rejected);
        let theirs = runtime.block_on(serve(request.as_bytes()));
        let is_short = format!("{:?}", theirs.first()).contains(TOO_SHORT);
        assert_eq!(is_short, hyper_accepts, "{length}: {theirs:?}");
        let response = format!("HTTP/1.1 200 OK\r\n{bytes}");
        assert_eq!(read(&[response.as_bytes()], Role::Client(RequestKind::Other)).1, rejected);
        let theirs = runtime.block_on(ask(response.as_bytes(), Method::GET));
        let is_short = format!("{theirs:?}").contains(TOO_SHORT);
        assert_eq!(is_short, hyper_accepts, "{length}: {theirs:?}");
    }
    let largest = format!("POST / HTTP/1.1\r\ncontent-length: {}\r\n\r\n", i64::MAX);
    assert_ne!(read(&[largest.as_bytes()], Role::Server).1, rejected);
}

proptest! {
    #![proptest_config(config(720))]

    #[test]
    fn hyper_reads_requests_alike(bytes in generate::requests()) {
        let (ours, end) = read(&[&bytes], Role::Server);
        let theirs = runtime().block_on(serve(&bytes));
        for (at, message) in ours.iter().enumerate() {
            let Ok(uri) = Uri::try_from(&*message.line.1) else {
                // hyper rejects characters in a target that the codec leaves to the caller.
                prop_assert!(!matches!(theirs.get(at), Some(Ok(_))));
                return Ok(());
            };
            let Some(Ok(their)) = theirs.get(at) else {
                return Err(TestCaseError::fail(format!("hyper rejects {message:?}: {theirs:?}")));
            };
            prop_assert_eq!(their, &in_their_words(message, Some(&uri)));
            if message.line.0 == "CONNECT" {
                return Ok(());
            }
        }
        if let Some(Ok(more)) = theirs.get(ours.len()) {
            let is_listed = is_listed(&end, &stricter_with_requests());
            prop_assert!(is_listed || end == End::Closed, "{:?}, but hyper accepts {:?}", end, more);
        }
    }

    #[test]
    fn hyper_reads_responses_alike(
        bytes in generate::responses(),
        method in select(vec![Method::GET, Method::HEAD, Method::CONNECT]),
    ) {
        let kind = RequestKind::of(method.as_str().as_bytes());
        let (mut ours, end) = read(&[&bytes], Role::Client(kind));
        let theirs = runtime().block_on(ask(&bytes, method));
        let last = ours.pop().filter(|message| !message.line.0.starts_with('1') || message.line.0 == "101");
        match (last, theirs) {
            (Some(message), Ok(their)) => {
                prop_assert_eq!(their, in_their_words(&message, None));
            }
            (Some(message), Err(error)) => {
                return Err(TestCaseError::fail(format!("hyper rejects {message:?}: {error}")));
            }
            (None, Ok(their)) => {
                let is_listed = is_listed(&end, &stricter_with_responses());
                prop_assert!(is_listed, "{:?}, but hyper accepts {:?}", end, their);
            }
            (None, Err(_)) => {}
        }
    }
}

/// A message as hyper says it: equal names together, equal lengths of a request once. The target
/// is a URI.
fn in_their_words(message: &Message, uri: Option<&Uri>) -> Message {
    let mut message = Message { keeps_alive: true, ..message.clone() };
    let mut has_length = false;
    message.fields.retain(|(name, _)| {
        let is_again = has_length && name == "content-length" && uri.is_some();
        has_length |= name == "content-length";
        !is_again
    });
    message.fields.sort_by(|one, other| one.0.cmp(&other.0));
    message.trailers.sort_by(|one, other| one.0.cmp(&other.0));
    if let Some(uri) = uri {
        message.line.1 = uri.to_string().into_bytes();
    }
    message
}

/// What hyper reads as a server. A request whose body it rejects is an error, as is the end of
/// what it accepts.
async fn serve(bytes: &[u8]) -> Vec<Result<Message, String>> {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let (near, far) = duplex(256 * 1024);
    let service = service_fn(|request: Request<Incoming>| {
        let seen = Rc::clone(&seen);
        async move {
            let (head, body) = request.into_parts();
            let message = their_request(&head, body).await;
            seen.borrow_mut().push(message);
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let connection = server::conn::http1::Builder::new()
        .half_close(true)
        .serve_connection(TokioIo::new(far), service);
    let client = async {
        let (mut reader, mut writer) = tokio::io::split(near);
        writer.write_all(bytes).await.expect("it fits into the buffer");
        writer.shutdown().await.expect("it is open");
        let mut answers = Vec::new();
        // How hyper closes is not of interest.
        drop(reader.read_to_end(&mut answers).await);
    };
    let (ended, ()) = tokio::join!(connection, client);
    if let Err(error) = ended {
        seen.borrow_mut().push(Err(error.to_string()));
    }
    seen.take()
}

async fn their_request(head: &request::Parts, body: Incoming) -> Result<Message, String> {
    let body = body.collect().await.map_err(|error| error.to_string())?;
    let trailers = body.trailers().map(lines).unwrap_or_default();
    Ok(Message {
        line: (head.method.to_string(), head.uri.to_string().into_bytes()),
        version: head.version,
        fields: lines(&head.headers),
        body: body.to_bytes().to_vec(),
        trailers,
        keeps_alive: true,
    })
}

/// What hyper reads as a client that asks by `method`.
async fn ask(bytes: &[u8], method: Method) -> Result<Message, String> {
    let (near, mut far) = duplex(256 * 1024);
    let (mut sender, connection) = client::conn::http1::handshake(TokioIo::new(near))
        .await
        .map_err(|error| error.to_string())?;
    let uri = if method == Method::CONNECT { "a:1" } else { "/" };
    let request = Request::builder().method(method).uri(uri).body(Empty::<Bytes>::new());
    let request = request.expect("a valid request");
    let server = async move {
        let mut head = vec![0; 1024];
        let length = far.read(&mut head).await.expect("a request");
        assert!(head[..length].ends_with(b"\r\n\r\n"), "a whole one");
        far.write_all(bytes).await.expect("it fits into the buffer");
        drop(far);
    };
    let exchange = async move {
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let (head, body) = response.into_parts();
        let message = their_response(&head, body).await;
        drop(sender);
        message
    };
    let (message, _, ()) = tokio::join!(exchange, connection, server);
    message
}

async fn their_response(head: &response::Parts, body: Incoming) -> Result<Message, String> {
    let body = body.collect().await.map_err(|error| error.to_string())?;
    let trailers = body.trailers().map(lines).unwrap_or_default();
    Ok(Message {
        line: (head.status.as_str().to_owned(), Vec::new()),
        version: head.version,
        fields: lines(&head.headers),
        body: body.to_bytes().to_vec(),
        trailers,
        keeps_alive: true,
    })
}

fn lines(map: &HeaderMap) -> Lines {
    let line = |(name, value): (&HeaderName, &HeaderValue)| {
        (name.as_str().to_owned(), value.as_bytes().to_vec())
    };
    let mut lines: Lines = map.iter().map(line).collect();
    lines.sort_by(|one, other| one.0.cmp(&other.0));
    lines
}

//! Interim responses of servers (103 Early Hints) pass to clients before the response.

use crate::common::{
    Gateway, PATIENCE, curl,
    http2::{Client, body},
    http2_server::{END_HEADERS, HEADERS, scripted},
    upstream::{self, Connection, Script},
    yaml,
};
use bytes::Bytes;
use core::{future::poll_fn, task::Poll};
use h2::client::{ResponseFuture, SendRequest};
use http::Request;
use std::sync::{Mutex, mpsc};
use tokio::{net::TcpStream, runtime};

/// A server that hints at its path, and answers when the test has seen that.
fn hinting() -> (Script, mpsc::Sender<()>) {
    let (seen, awaited) = mpsc::channel();
    let awaited = Mutex::new(awaited);
    let script = Script::start(move |_, mut connection: Connection| {
        while let Some(request) = connection.read() {
            let path = request.path();
            connection.write(format!(
                "HTTP/1.1 103 Early Hints\r\nLink: <{path}>\r\nContent-Length: 0\r\n\
                 Connection: x-own\r\nX-Own: 1\r\n\r\n"
            ));
            if awaited.lock().expect("no panic").recv_timeout(PATIENCE).is_err() {
                return;
            }
            connection.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    (script, seen)
}

fn in_front_of(script: &Script) -> Gateway {
    Gateway::start(&yaml(
        script.address,
        "  - { name: all, match: { path_prefix: / }, upstream: up }",
    ))
}

/// Connects a client of HTTP/2 whose settings are these.
fn with_client<F: Future<Output = ()>>(
    gateway: &Gateway,
    settings: &h2::client::Builder,
    work: impl FnOnce(SendRequest<Bytes>) -> F,
) {
    let web = gateway.web();
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async move {
        let stream = TcpStream::connect(web).await.expect("connected");
        let (client, connection) = settings.handshake(stream).await.expect("begun");
        tokio::spawn(connection);
        tokio::time::timeout(PATIENCE, work(client)).await.expect("in time");
    });
}

async fn begin(client: &SendRequest<Bytes>, path: &str) -> ResponseFuture {
    let request = Request::get(format!("http://shop.test{path}")).body(()).expect("whole");
    let mut client = client.clone().ready().await.expect("ready");
    client.send_request(request, true).expect("sent").0
}

/// Waits for an interim response, and returns its link; `None` if the response comes first.
async fn link(response: &mut ResponseFuture) -> Option<String> {
    poll_fn(|context| match response.poll_informational(context) {
        Poll::Ready(Some(Ok(hint))) => {
            assert_eq!(hint.status(), 103);
            for removed in ["x-own", "content-length"] {
                assert!(!hint.headers().contains_key(removed), "{hint:?}");
            }
            let link = hint.headers()["link"].to_str().expect("text");
            Poll::Ready(Some(link.to_owned()))
        }
        Poll::Ready(Some(Err(error))) => panic!("{error}"),
        Poll::Ready(None) => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    })
    .await
}

#[test]
fn each_stream_gets_the_hints_of_its_own_request_before_the_response() {
    let (server, seen) = hinting();
    let gateway = in_front_of(&server);
    with_client(&gateway, &h2::client::Builder::new(), |client| async move {
        for round in 0..3 {
            let paths = ["a", "b", "c"].map(|name| format!("/{name}{round}"));
            let mut responses = Vec::new();
            for path in &paths {
                responses.push((path, begin(&client, path).await));
            }
            for (path, response) in &mut responses {
                assert_eq!(link(response).await, Some(format!("<{path}>")));
            }
            // Any of them goes on with each.
            for _ in &responses {
                seen.send(()).expect("it waits");
            }
            for (_, response) in responses {
                assert_eq!(response.await.expect("a response").status(), 200);
            }
        }
    });
}

/// Calls a gateway with both versions, and expects the hint before the response.
fn assert_curl_shows_the_hint(gateway: &Gateway, before: impl Fn()) {
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        before();
        let url = format!("http://{}/page", gateway.web());
        let shown = curl(&["-si", version, &url]).to_lowercase();
        let [hint, link, ok] = [" 103", "link: </page>", " 200"].map(|part| shown.find(part));
        assert!(hint < link && link < ok && hint.is_some(), "{version}: {shown}");
    }
}

#[test]
fn curl_shows_the_hints_of_both_versions() {
    let (server, seen) = hinting();
    assert_curl_shows_the_hint(&in_front_of(&server), || seen.send(()).expect("it will"));
}

#[test]
fn curl_shows_the_hints_of_a_server_of_http_2() {
    // `:status` and `link` by their indices in HPACK's static table, the values as text.
    // `:status: 100`, by the name's index and in Huffman's code (RFC 7541).
    const CONTINUE: &[u8] = b"\x48\x82\x08\x01";
    const HINT: &[u8] = b"\x08\x03103\x0f\x1e\x07</page>";
    let server = scripted(&[], |_, mut frames| {
        while let Some((stream, _)) = frames.request() {
            for head in [CONTINUE, HINT] {
                frames.write(HEADERS, END_HEADERS, stream, head);
            }
            frames.answer(stream, b"ok");
        }
    });
    let text = yaml(server.address, "  - { name: all, match: { path_prefix: / }, upstream: up }");
    let text = text.replacen("servers:", "protocol: h2, servers:", 1);
    assert_curl_shows_the_hint(&Gateway::start(&text), || ());
}

/// Sends the head of a request that waits for 100 before its body.
fn begin_upload(client: &mut Client, stream: u32) {
    let head = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")];
    let expects = [("expect", "100-continue"), ("content-length", "4")];
    client.fields(stream, &[&head[..], &expects].concat(), false);
}

#[test]
fn a_client_of_http_2_that_waits_for_100_gets_it_once_its_request_is_admitted() {
    // `:status: 100`, by the name's index and in Huffman's code (RFC 7541).
    const CONTINUE: &[u8] = b"\x48\x82\x08\x01";
    const ROUTE: &str = "  - name: once\n    match: { path_prefix: / }\n    upstream: up\n    \
                         flow: [{ name: one, limit: 2/1h, burst: 2 }]\n";
    let echo = upstream::echo();
    let counting = scripted(&[], |_, mut frames| {
        while let Some((stream, body)) = frames.request() {
            frames.answer(stream, format!("\"body\":{}", body.len()).as_bytes());
        }
    });
    for (server, protocol) in [(&echo, "auto"), (&counting, "h2")] {
        let text = yaml(server.address, ROUTE);
        let protocol = format!("protocol: {protocol}, servers:");
        let gateway = Gateway::start(&text.replacen("servers:", &protocol, 1));
        let mut client = Client::new(gateway.web());
        begin_upload(&mut client, 1);
        let first = client.read_of(1).expect("a frame");
        assert_eq!((first.kind, &*first.payload), (HEADERS, CONTINUE));
        client.last_data(1, b"body");
        let answer = body(&client.answer(1));
        assert!(answer.contains("\"body\":4") && !answer.contains("expect"), "{answer}");
        // The body comes without waiting.
        begin_upload(&mut client, 3);
        client.last_data(3, b"body");
        assert!(body(&client.answer(3)).contains("\"body\":4"));
        begin_upload(&mut client, 5);
        let frames = client.answer(5);
        let headers: Vec<_> = frames.iter().filter(|frame| frame.kind == HEADERS).collect();
        assert_eq!(headers.len(), 1, "the rejection alone: {headers:?}");
    }
}

#[test]
fn a_hint_that_comes_while_large_headers_are_written_breaks_nothing() {
    const STREAMS: u32 = 60;
    let large =
        format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: {}\r\n\r\n", "x".repeat(50_000));
    let (hinted, hints) = mpsc::channel();
    let hinted = Mutex::new(hinted);
    let server = Script::start(move |_, mut connection: Connection| {
        while let Some(request) = connection.read() {
            if request.path() == "/hint" {
                connection.write("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
                hinted.lock().expect("no panic").send(()).expect("awaited");
            }
            connection.write(&large);
        }
    });
    let gateway = in_front_of(&server);
    let mut client = Client::new(gateway.web());
    for number in 0..STREAMS {
        let path = if number % 10 == 5 { "/hint" } else { "/" };
        client.get(2 * number + 1, path, &[]);
    }
    // It reads when the gateway has written what the sockets take, and waits with the rest.
    for _ in 0..STREAMS / 10 {
        hints.recv_timeout(PATIENCE).expect("a hint");
    }
    let mut ended = 0;
    while ended < STREAMS {
        let frame = client.read().expect("the connection lives");
        let is_last = frame.flags & 1 != 0 && matches!(frame.kind, 0 | 1);
        assert_ne!(frame.kind, 7, "GOAWAY");
        ended += u32::from(is_last);
    }
}

#[test]
fn a_client_that_wants_a_small_table_gets_hints_too() {
    let (server, seen) = hinting();
    let gateway = in_front_of(&server);
    let mut settings = h2::client::Builder::new();
    settings.header_table_size(0);
    with_client(&gateway, &settings, |client| async move {
        let mut response = begin(&client, "/").await;
        seen.send(()).expect("it waits");
        assert_eq!(link(&mut response).await.as_deref(), Some("</>"));
        assert_eq!(response.await.expect("a response").status(), 200);
    });
}

#[test]
fn behind_a_request_that_is_rejected_a_stream_gets_its_own_hints() {
    let (server, seen) = hinting();
    let gateway = in_front_of(&server);
    let mut client = Client::new(gateway.web());
    // The first one is malformed for h2, which does not report it.
    client.get(1, "/", &[("connection", "x")]);
    client.get(3, "/b", &[]);
    seen.send(()).expect("it waits");
    let frames = client.answer(3);
    let headers: Vec<_> = frames.iter().filter(|frame| frame.kind == 1).collect();
    assert_eq!(headers.len(), 2, "the hint and the response: {headers:?}");
}

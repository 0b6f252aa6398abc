//! `WebSocket` over HTTP/2: a side that breaks off is seen by the other at once.

use crate::common::{
    Gateway, PATIENCE, eventually,
    http2::Client,
    http2_server::{DATA, HEADERS, RST_STREAM},
    upstream::Script,
    yaml,
};
use core::time::Duration;
use std::{io::Read, sync::mpsc, time::Instant};

const AGREED: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
const CANCEL: u32 = 8;

/// Opens a tunnel, and waits until the server has agreed.
fn open(client: &mut Client, stream: u32) {
    let head = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/"),
        ("sec-websocket-version", "13"),
    ];
    client.fields(stream, &head, false);
    let frame = client.read_of(stream).expect("a frame");
    assert_eq!((frame.kind, frame.payload.first()), (HEADERS, Some(&0x88)), "{frame:?}");
}

fn code(payload: &[u8]) -> u32 {
    u32::from_be_bytes(*payload.first_chunk().expect("a code"))
}

#[test]
fn a_server_that_breaks_off_a_tunnel_resets_the_clients_stream() {
    let upstream = Script::start(|_, mut connection| {
        connection.read_head().expect("a request");
        connection.write(AGREED);
        connection.stream.read_exact(&mut [0; 2]).expect("the client's bytes");
        let socket = socket2::SockRef::from(connection.stream.get_ref());
        socket.set_linger(Some(Duration::ZERO)).expect("set");
    });
    let route = "  - { name: all, match: { path_prefix: / }, upstream: up }";
    let gateway =
        Gateway::start(&format!("access_log: access.log\n{}", yaml(upstream.address, route)));
    let mut client = Client::new(gateway.web());
    for stream in [1, 3] {
        open(&mut client, stream);
        client.data(stream, b"hi");
        let last = client.answer(stream).pop().expect("a frame");
        assert_eq!((last.kind, code(&last.payload)), (RST_STREAM, CANCEL));
    }
    let line = eventually("the access log is written", || {
        let log = std::fs::read_to_string(gateway.dir.path().join("access.log")).ok()?;
        log.lines().find_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
    });
    let error = line["upstream_error"].as_str().unwrap_or_default();
    assert!(error.starts_with("its tunnel broke off"), "{line}");
}

#[test]
fn a_client_that_resets_a_tunnel_ends_it_at_once_and_frees_its_place() {
    let (ended, ends) = mpsc::channel();
    let upstream = Script::start(move |_, mut connection| {
        while let Some(request) = connection.read_head() {
            if request.path() == "/plain" {
                connection.write("HTTP/1.1 204 No Content\r\n\r\n");
                continue;
            }
            connection.write(AGREED);
            connection.stream.read_exact(&mut [0; 2]).expect("the client's bytes");
            let _broken = connection.stream.read(&mut [0]);
            ended.send(()).expect("the test waits");
            // It says nothing more, and does not close its side.
            std::thread::park_timeout(PATIENCE);
        }
    });
    let route = "  - name: all
    match: { path_prefix: / }
    upstream: up
    flow: [{ name: one, concurrency: 1 }]";
    let gateway = Gateway::start(&yaml(upstream.address, route));
    for code in [0, 2, CANCEL] {
        let mut client = Client::new(gateway.web());
        open(&mut client, 1);
        client.data(1, b"hi");
        let begun = Instant::now();
        client.reset(1, code);
        ends.recv_timeout(PATIENCE).expect("the server sees the end");
        eventually("the place is free", || {
            let status = crate::common::http::get(gateway.web(), "/plain").status;
            (status == 204).then_some(())
        });
        // A tunnel of which one side alone has ended may last a minute.
        assert!(begun.elapsed() < Duration::from_secs(40), "code {code}: {:?}", begun.elapsed());
    }
}

#[test]
fn a_tunnel_whose_server_ends_ends_as_it_should() {
    let upstream = Script::start(|_, mut connection| {
        connection.read_head().expect("a request");
        connection.write(AGREED);
        connection.write("bye");
    });
    let route = "  - { name: all, match: { path_prefix: / }, upstream: up }";
    let gateway = Gateway::start(&yaml(upstream.address, route));
    let mut client = Client::new(gateway.web());
    open(&mut client, 1);
    let frames = client.answer(1);
    assert_eq!(crate::common::http2::body(&frames), "bye");
    let last = frames.last().expect("a frame");
    assert_eq!((last.kind, last.flags & 1), (DATA, 1), "{frames:?}");
}

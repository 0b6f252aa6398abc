//! Servers that break the rules, on purpose or not: neither other requests nor other clients pay for
//! it.

use crate::common::{
    Gateway, PATIENCE, curl,
    http::{self, Client, head},
    upstream::{self, Connection, Script},
    yaml,
};
use core::time::Duration;
use std::{
    io::Read,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
};

const ALL: &str = "  - { name: all, match: { path_prefix: / }, upstream: up }";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

/// A gateway with one worker in front of `upstream`.
fn in_front_of(upstream: &Script) -> Gateway {
    Gateway::start(&yaml(upstream.address, ALL).replace("workers: 2", "workers: 1"))
}

/// Writes `block` until the gateway takes no more.
fn flood(connection: &mut Connection, block: &[u8]) {
    while connection.write(block).is_some() {}
}

#[test]
fn an_endless_answer_is_cut_off() {
    let (ended, ends) = mpsc::sync_channel(9);
    let upstream = Script::start(move |_, mut connection| {
        let request = connection.read().expect("a request");
        match request.path() {
            "/interim" => flood(&mut connection, b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
            "/line" => flood(&mut connection, b"HTTP/1.1 200 OK"),
            "/empty-lines" => flood(&mut connection, b"\r\n\r\n\r\n\r\n"),
            "/fields" => {
                connection.write("HTTP/1.1 200 OK\r\n");
                flood(&mut connection, b"a: b\r\n");
            }
            "/zeros" => {
                connection.write(CHUNKED);
                flood(&mut connection, &[b'0'; 1000]);
            }
            _ => {
                connection.write(CHUNKED);
                connection.write("1;");
                flood(&mut connection, &[b'x'; 1000]);
            }
        }
        ended.send(()).expect("the test waits for it");
    });
    let gateway = in_front_of(&upstream);
    for path in ["/interim", "/line", "/empty-lines", "/fields", "/zeros", "/extension"] {
        let answer = http::get(gateway.web(), path);
        let is_begun = matches!(path, "/zeros" | "/extension");
        let expected = if is_begun { (200, false) } else { (502, true) };
        assert_eq!((answer.status, answer.complete), expected, "{path}");
        ends.recv_timeout(PATIENCE).expect("the server is let go");
    }
    gateway.wait_log("upstream failed: too many interim answers");
}

#[test]
fn others_are_served_while_servers_flood() {
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let upstream = Script::start(move |_, mut connection| {
        while let Some(request) = connection.read() {
            if request.path() == "/" {
                connection.write(upstream::ok("served"));
                continue;
            }
            connection.write(CHUNKED);
            let chunks = b"1\r\nx\r\n".repeat(10_000);
            while !over.load(Ordering::SeqCst) && connection.write(&chunks).is_some() {}
            return;
        }
    });
    let gateway = in_front_of(&upstream);
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let mut client = Client::new(gateway.web());
            client.send(head("GET", "/flood", &[]));
            assert_eq!(client.read_head().map(|answer| answer.status), Some(200));
            std::thread::spawn(move || {
                let mut block = vec![0; 64 * 1024];
                let mut total = 0;
                while let Ok(count @ 1..) = client.stream.read(&mut block) {
                    total += count;
                }
                total
            })
        })
        .collect();
    let mut client = Client::new(gateway.web());
    for _ in 0..20 {
        assert_eq!(client.get("/").text(), "served");
    }
    is_over.store(true, Ordering::SeqCst);
    for reader in readers {
        assert!(reader.join().expect("no panic") > 100_000, "the flood goes on");
    }
}

#[test]
fn a_header_byte_by_byte_is_read() {
    let upstream = Script::start(|_, mut connection| {
        while connection.read().is_some() {
            let answer = format!(
                "HTTP/1.1 200 OK\r\nX: {}\r\nContent-Length: 2\r\n\r\nok",
                "y".repeat(5_000)
            );
            for byte in answer.as_bytes().chunks(1) {
                connection.write(byte);
            }
        }
    });
    let gateway = in_front_of(&upstream);
    let mut client = Client::new(gateway.web());
    for _ in 0..2 {
        let answer = client.get("/");
        assert_eq!((answer.text().as_str(), answer.header("x").map(str::len)), ("ok", Some(5_000)));
    }
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn what_follows_an_answer_unasked_reaches_nobody() {
    let upstream = Script::start(|number, mut connection| {
        while let Some(request) = connection.read() {
            connection.write(match request.path() {
                "/twice" => [upstream::ok("first"), upstream::ok("second")].concat(),
                "/garbage" => b"HTTP/1.1 204 No Content\r\n\r\nno answer".to_vec(),
                _ => upstream::ok(&format!("connection {number}")),
            });
        }
    });
    let gateway = in_front_of(&upstream);
    let mut client = Client::new(gateway.web());
    assert_eq!(client.get("/twice").text(), "first");
    assert_eq!(client.get("/").text(), "connection 1");
    assert_eq!(client.get("/garbage").status, 204);
    assert_eq!(client.get("/").text(), "connection 2");
    assert_eq!(client.get("/").text(), "connection 2");
}

#[test]
fn a_body_that_a_server_leaves_unread_is_not_taken_for_the_next_clients_request() {
    let upstream = Script::start(|number, mut connection| {
        while let Some(request) = connection.read_head() {
            if request.line.starts_with("POST") {
                connection.stream.read_exact(&mut [0; 2]).expect("a body");
            }
            // Otherwise it begins with what was left unread.
            let is_request = request.line.starts_with(char::is_uppercase);
            let (status, said) = if is_request {
                ("200 OK", format!("connection {number}"))
            } else {
                ("400 Bad Request", "stray".to_owned())
            };
            let length = if request.line.starts_with("HEAD") { 0 } else { said.len() };
            let body = &said[..length];
            connection
                .write(format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}"));
        }
    });
    let gateway = in_front_of(&upstream);
    for method in ["GET", "HEAD", "DELETE", "OPTIONS"] {
        for (fields, body) in [
            (("Content-Length", "2"), "ab"),
            (("Transfer-Encoding", "chunked"), "2\r\nab\r\n0\r\n\r\n"),
        ] {
            let mut client = Client::new(gateway.web());
            client.send(head(method, "/", &[fields]) + body);
            assert_eq!(client.read(method).status, 200, "{method}");
            let next = http::get(gateway.web(), "/");
            assert_eq!(next.status, 200, "{method} {fields:?}: {}", next.text());
        }
    }
    // A body that is expected, and none, leave the connection as it was.
    let before = upstream.connections();
    for _ in 0..3 {
        let mut client = Client::new(gateway.web());
        client.send(head("POST", "/", &[("Content-Length", "2")]) + "ab");
        assert_eq!(client.read("POST").status, 200);
        assert_eq!(client.request("DELETE", "/", &[]).status, 200);
    }
    assert_eq!(upstream.connections(), before);
}

#[test]
fn what_a_server_sends_while_its_connection_is_idle_reaches_nobody() {
    let (asked, asks) = mpsc::sync_channel::<()>(0);
    let asks = std::sync::Mutex::new(asks);
    let upstream = Script::start(move |number, mut connection| {
        while connection.read().is_some() {
            connection.write(upstream::ok(&format!("connection {number}")));
            if number == 0 {
                asks.lock().expect("no panic").recv().expect("the test goes on");
                connection.write(upstream::ok("unasked"));
                asks.lock().expect("no panic").recv().expect("the test goes on");
            }
        }
    });
    let gateway = in_front_of(&upstream);
    let mut client = Client::new(gateway.web());
    assert_eq!(client.request("POST", "/", &[("Content-Length", "0")]).text(), "connection 0");
    // It has been written when the second is taken.
    (0..2).for_each(|_| asked.send(()).expect("the server waits"));
    assert_eq!(client.request("POST", "/", &[("Content-Length", "0")]).text(), "connection 1");
}

#[test]
fn a_connection_that_was_closed_while_it_was_idle_is_not_used_for_a_post() {
    let (closed, ends) = mpsc::sync_channel(0);
    let upstream = Script::start(move |_, mut connection| {
        connection.read().expect("a request");
        connection.write(upstream::ok("once"));
        // Closing takes until the gateway's side has received it, which a busy machine delays.
        let socket = socket2::SockRef::from(connection.stream.get_ref());
        socket.set_linger(Some(PATIENCE)).expect("set");
        drop(connection);
        closed.send(()).expect("the test waits for it");
    });
    let gateway = in_front_of(&upstream);
    let mut client = Client::new(gateway.web());
    for _ in 0..20 {
        client.send(head("POST", "/", &[("Content-Length", "2")]) + "hi");
        assert_eq!(client.read("POST").text(), "once");
        ends.recv_timeout(PATIENCE).expect("closed");
    }
}

#[test]
fn a_reset_in_the_middle_of_an_answer_cuts_the_client_off() {
    let upstream = Script::start(|_, mut connection| {
        let request = connection.read().expect("a request");
        if request.path() == "/body" {
            connection.write(CHUNKED);
            connection.write("3\r\nabc\r\n");
        } else {
            connection.write("HTTP/1.1 200 O");
        }
        // The client reads what there is before it is reset.
        std::thread::park_timeout(Duration::from_millis(50));
        let socket = socket2::SockRef::from(connection.stream.get_ref());
        socket.set_linger(Some(Duration::ZERO)).expect("set");
    });
    let gateway = in_front_of(&upstream);
    let cut = http::get(gateway.web(), "/body");
    assert_eq!((cut.status, cut.complete), (200, false));
    assert_eq!(
        http::raw(gateway.web(), head("POST", "/head", &[])).map(|answer| answer.status),
        Some(502)
    );
}

#[test]
fn an_answer_that_requires_an_upgrade_says_which() {
    let upstream = Script::answering(|_| {
        b"HTTP/1.1 426 Upgrade Required\r\nConnection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n"
            .to_vec()
    });
    let gateway = in_front_of(&upstream);
    let mut client = Client::new(gateway.web());
    for _ in 0..2 {
        let answer = client.get("/");
        let fields = ["connection", "upgrade"].map(|name| answer.header(name));
        assert_eq!((answer.status, fields), (426, [Some("upgrade"), Some("websocket")]));
    }
    let url = format!("http://{}/", gateway.web());
    let answer = curl(&["--http2-prior-knowledge", "--include", &url]);
    assert!(answer.starts_with("HTTP/2 426") && !answer.contains("websocket"), "{answer}");
}

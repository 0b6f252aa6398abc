//! Mirroring: what a mirror gets, and that clients notice nothing of it.

use crate::{
    common::{
        Gateway, connect, curl, eventually,
        http::Client,
        http2::{Client as Http2, body},
        http2_server::Http2Server,
        metrics,
        upstream::{Connection, Request, Script, ok},
    },
    port::free_port,
};
use std::{
    io::{BufRead, Read, Write},
    net::SocketAddr,
    sync::{Arc, Mutex},
};

/// A gateway of one worker, whose route has a mirror at `shadow` with more keys.
fn yaml(up: SocketAddr, shadow: &str, mirror: &str, route: &str) -> String {
    format!(
        "workers: 1\nlisteners: [{{ name: web, listen: 127.0.0.1:0 }}]\nadmin: {{ listen: 127.0.0.1:0 }}\n\
         upstreams:\n  - {{ name: up, servers: [{{ url: \"http://{up}\" }}] }}\n  \
         - {{ name: shadow, {shadow} }}\n\
         routes:\n  - name: all\n    match: {{ path_prefix: / }}\n    upstream: up\n    \
         mirror: {{ upstream: shadow{mirror} }}\n{route}"
    )
}

fn at(shadow: SocketAddr) -> String {
    format!("servers: [{{ url: \"http://{shadow}\" }}]")
}

/// A server that keeps its requests, and responds with `status`.
fn keeping(status: u16) -> (Script, Arc<Mutex<Vec<Request>>>) {
    let seen: Arc<Mutex<Vec<Request>>> = Arc::default();
    let kept = Arc::clone(&seen);
    let server = Script::answering(move |request| {
        kept.lock().expect("no panic").push(request.clone());
        format!("HTTP/1.1 {status} Status\r\nContent-Length: 4\r\nX-Of: shadow\r\n\r\ncopy")
            .into_bytes()
    });
    (server, seen)
}

/// The server of the route, which says what it got.
fn main_server() -> (Script, Arc<Mutex<Vec<Request>>>) {
    let seen: Arc<Mutex<Vec<Request>>> = Arc::default();
    let kept = Arc::clone(&seen);
    let server = Script::answering(move |request| {
        kept.lock().expect("no panic").push(request.clone());
        ok(&format!("{} {}", request.line, request.body.len()))
    });
    (server, seen)
}

/// Returns how many copies have ended so.
fn ended(gateway: &Gateway, outcome: &str) -> f64 {
    let all = metrics(gateway, "flowgate_mirror_requests_total");
    let label = format!("outcome=\"{outcome}\"");
    all.iter().filter(|(key, _)| key.contains(&label)).map(|(_, count)| count).sum()
}

#[track_caller]
fn await_ended(gateway: &Gateway, outcome: &str, count: f64) {
    eventually(&format!("{count} copies end as {outcome}"), || {
        (ended(gateway, outcome) >= count).then_some(())
    });
    assert_eq!(ended(gateway, outcome), count, "{outcome}");
}

#[test]
fn copies_are_what_the_server_gets() {
    let (up, sent) = main_server();
    let (shadow, copied) = keeping(503);
    let route = "    rewrite: { strip_prefix: /a }\n    request_headers: { set: { x-set: \"{client_ip}\" }, remove: x-secret }\n";
    let gateway = Gateway::start(&yaml(up.address, &at(shadow.address), "", route));
    let mut client = Client::new(gateway.web());

    let answer = client.request("GET", "/a/b?c=d", &[("X-Secret", "1"), ("Cookie", "e=f")]);
    assert_eq!((answer.status, answer.text().as_str()), (200, "GET /b?c=d HTTP/1.1 0"));
    assert!(answer.header("x-of").is_none());

    client.send("POST /a/form HTTP/1.1\r\nHost: shop\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.read("POST").text(), "POST /form HTTP/1.1 5");
    client.send(
        "POST /a/parts HTTP/1.1\r\nHost: shop\r\nTransfer-Encoding: chunked\r\nTrailer: x-end\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nX-End: 1\r\n\r\n",
    );
    assert_eq!(client.read("POST").text(), "POST /parts HTTP/1.1 5");
    client
        .send("PUT /a/empty HTTP/1.1\r\nHost: shop\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    assert_eq!(client.read("PUT").text(), "PUT /empty HTTP/1.1 0");
    let url = format!("http://{}/a/asked", gateway.web());
    let big = "x".repeat(100_000);
    assert_eq!(
        curl(&["-H", "Expect: 100-continue", "-d", &big, &url]),
        "POST /asked HTTP/1.1 100000"
    );
    await_ended(&gateway, "server_error", 5.0);

    let sent = sent.lock().expect("no panic");
    let copied = copied.lock().expect("no panic");
    let find = |all: &[Request], path: &str| {
        let found = all.iter().find(|request| request.path() == path).expect("it is there");
        found.clone()
    };
    let fields = |request: &Request| {
        let framing = ["content-length", "transfer-encoding"];
        let mut fields = request.headers.clone();
        fields.retain(|(name, _)| !framing.contains(&name.to_ascii_lowercase().as_str()));
        fields.sort();
        fields
    };
    for path in ["/b?c=d", "/form", "/parts", "/empty", "/asked"] {
        let one = find(&sent, path);
        let other = find(&copied, path);
        assert_eq!((&one.line, fields(&one)), (&other.line, fields(&other)));
        assert_eq!(one.body, other.body, "{path}");
        assert!(one.header("x-secret").is_none() && one.header("x-set").is_some());
    }
    // Requests without effect on servers' health and counters.
    let failures = metrics(&gateway, "flowgate_upstream_failures_total");
    assert!(failures.values().all(|count| *count == 0.0), "{failures:?}");
    let requests = metrics(&gateway, "flowgate_upstream_requests_total");
    assert_eq!(requests.values().sum::<f64>(), 5.0, "{requests:?}");
}

#[test]
fn a_mirror_that_hangs_delays_nothing_and_takes_a_bounded_number_of_copies() {
    let (up, sent) = main_server();
    let shadow = Script::start(|_, mut connection: Connection| {
        // It takes requests, and never responds.
        while connection.read().is_some() {}
    });
    let mirror = ", timeout: 10m";
    let gateway = Gateway::start(&yaml(up.address, &at(shadow.address), mirror, ""));
    let mut client = Client::new(gateway.web());
    for _ in 0..300 {
        assert_eq!(client.get("/").status, 200);
    }
    assert_eq!(ended(&gateway, "dropped"), 44.0, "256 are in flight");
    assert_eq!(sent.lock().expect("no panic").len(), 300);

    // Those in flight do not keep the process from its end.
    let mut gateway = gateway;
    gateway.signal("TERM");
    assert!(gateway.wait().success());
}

#[test]
fn a_copy_has_a_deadline_of_its_own() {
    let (up, _) = main_server();
    for hangs_in_body in [false, true] {
        let shadow = Script::start(move |_, mut connection: Connection| {
            while connection.read().is_some() {
                if hangs_in_body {
                    _ = connection.write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbegun");
                }
            }
        });
        let mirror = ", timeout: 50ms";
        let gateway = Gateway::start(&yaml(up.address, &at(shadow.address), mirror, ""));
        let mut client = Client::new(gateway.web());
        for _ in 0..3 {
            assert_eq!(client.get("/").status, 200);
        }
        await_ended(&gateway, "timeout", 3.0);
        gateway.wait_log("a copy for the mirror: no whole response within mirror.timeout");
    }
}

#[test]
fn a_mirror_that_is_closed_or_resets_fails_no_request() {
    let (up, _) = main_server();
    let closed = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let resetting = Script::start(|_, connection: Connection| {
        // What has come is not read: the connection is reset.
        drop(connection);
    });
    let broken = Script::answering(|_| b"\x16\x03\x01 this is no HTTP\r\n\r\n".to_vec());
    for shadow in [closed, resetting.address, broken.address] {
        let gateway = Gateway::start(&yaml(up.address, &at(shadow), "", ""));
        let mut client = Client::new(gateway.web());
        for _ in 0..20 {
            assert_eq!(client.get("/").status, 200);
            client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
            assert_eq!(client.read("POST").status, 200);
        }
        await_ended(&gateway, "failed", 40.0);
        gateway.wait_log("a copy for the mirror: ");
        let page = crate::common::http::ask(gateway.address("admin"), "/routes").json();
        let server = &page["upstreams"][1]["servers"][0];
        assert_eq!((&server["ejections"], &server["failures"]), (&0.into(), &0.into()), "{page}");
    }
}

#[test]
fn no_rule_counts_copies_and_rejected_requests_have_none() {
    let (up, sent) = main_server();
    let (shadow, copied) = keeping(200);
    let rules = "    flow: [{ name: few, limit: 5/1h, burst: 5 }]\n";
    let shadow_at = format!("{}, flow: [{{ name: none, limit: 1/1h }}]", at(shadow.address));
    let gateway = Gateway::start(&yaml(up.address, &shadow_at, "", rules));
    let mut client = Client::new(gateway.web());
    let statuses: Vec<_> = (0..8).map(|_| client.get("/").status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429, 429]);
    await_ended(&gateway, "ok", 5.0);
    assert_eq!(sent.lock().expect("no panic").len(), 5);
    assert_eq!(copied.lock().expect("no panic").len(), 5);
    // Its connection is used again.
    assert!(shadow.connections() <= 5);
    let all = metrics(&gateway, "flowgate_http_requests_total");
    assert_eq!(all.values().sum::<f64>(), 8.0, "{all:?}");
}

#[test]
fn a_connection_is_not_used_again_after_a_body_that_its_server_may_not_have_read() {
    let (up, _sent) = main_server();
    let (shadow, _copied) = keeping(200);
    let gateway = Gateway::start(&yaml(up.address, &at(shadow.address), "", ""));
    let mut client = Client::new(gateway.web());
    // A server that ignores the body takes it for the next request.
    let body = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n";
    for copies in 1..=3 {
        let length = body.len();
        client.send(format!("GET / HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n{body}"));
        assert_eq!(client.read("GET").status, 200);
        await_ended(&gateway, "ok", f64::from(copies));
    }
    assert_eq!(shadow.connections(), 3);
}

#[test]
fn long_bodies_pass_and_are_not_copied() {
    let (up, sent) = main_server();
    let (shadow, copied) = keeping(200);
    let mirror = ", body_limit: 1KiB";
    let gateway = Gateway::start(&yaml(up.address, &at(shadow.address), mirror, ""));
    let mut client = Client::new(gateway.web());
    let long = "x".repeat(1025);
    client.send(format!("POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 1025\r\n\r\n{long}"));
    assert_eq!(client.read("POST").text(), "POST /1 HTTP/1.1 1025");
    client.send(format!(
        "POST /2 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n401\r\n{long}\r\n0\r\n\r\n"
    ));
    assert_eq!(client.read("POST").text(), "POST /2 HTTP/1.1 1025");
    await_ended(&gateway, "too_long", 2.0);
    let fits = &long[1..];
    client.send(format!("POST /3 HTTP/1.1\r\nHost: a\r\nContent-Length: 1024\r\n\r\n{fits}"));
    assert_eq!(client.read("POST").text(), "POST /3 HTTP/1.1 1024");
    await_ended(&gateway, "ok", 1.0);
    assert_eq!(sent.lock().expect("no panic").len(), 3);
    assert_eq!(copied.lock().expect("no panic").len(), 1);
}

#[test]
fn a_body_without_its_end_is_not_copied() {
    let up = Script::start(|_, mut connection: Connection| {
        while let Some(request) = connection.read_head() {
            // One path gets a response before its body has come.
            if request.path() == "/early" {
                _ = connection.write(
                    "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                );
                return;
            }
            let mut body = [0; 3];
            if connection.stream.read_exact(&mut body).is_err() {
                return;
            }
        }
    });
    let (shadow, copied) = keeping(200);
    let gateway = Gateway::start(&yaml(up.address, &at(shadow.address), "", ""));
    let mut leaves = connect(gateway.web());
    leaves
        .write_all(b"POST /leaves HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc")
        .expect("sent");
    eventually("the server has the request", || (up.connections() == 1).then_some(()));
    drop(leaves);
    await_ended(&gateway, "incomplete", 1.0);
    let mut early = Client::new(gateway.web());
    early.send("POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc");
    assert_eq!(early.read("POST").status, 403);
    drop(early);
    await_ended(&gateway, "incomplete", 2.0);
    assert!(copied.lock().expect("no panic").is_empty());
}

#[test]
fn requests_of_http2_are_copied_to_servers_of_either_version() {
    let (up, _) = main_server();
    let (shadow, copied) = keeping(200);
    let http2 = Http2Server::start(None);
    let of_http2 = format!("protocol: h2, servers: [{{ url: \"http://{}\" }}]", http2.address);
    for shadow in [at(shadow.address), of_http2] {
        let gateway = Gateway::start(&yaml(up.address, &shadow, "", ""));
        let mut client = Http2::new(gateway.web());
        client.get(1, "/get", &[]);
        assert_eq!(body(&client.answer(1)), "GET /get HTTP/1.1 0");
        client.post(3, "/post", "7");
        client.data(3, b"one ");
        client.last_data(3, b"two");
        assert_eq!(body(&client.answer(3)), "POST /post HTTP/1.1 7");
        await_ended(&gateway, "ok", 2.0);
    }
    assert!(http2.connections() >= 1);
    let copied = copied.lock().expect("no panic");
    let post = copied.iter().find(|request| request.path() == "/post").expect("it was copied");
    assert_eq!((&post.body[..], post.header("content-length")), (&b"one two"[..], Some("7")));
}

#[test]
fn upgrades_are_not_copied() {
    let up = Script::start(|_, mut connection: Connection| {
        while let Some(request) = connection.read() {
            if request.header("upgrade").is_none() {
                _ = connection.write(ok("plain"));
                continue;
            }
            _ = connection.write(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
            );
            let mut line = String::new();
            drop(connection.stream.read_line(&mut line));
            _ = connection.write(line);
            return;
        }
    });
    let (shadow, copied) = keeping(200);
    let gateway = Gateway::start(&yaml(up.address, &at(shadow.address), "", ""));
    let mut client = Client::new(gateway.web());
    client.send("GET /ws HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
    assert_eq!(client.read_head().expect("a response").status, 101);
    client.send("through the tunnel\n");
    let mut line = String::new();
    client.stream.read_line(&mut line).expect("it comes back");
    assert_eq!(line, "through the tunnel\n");
    assert_eq!(Client::new(gateway.web()).get("/plain").text(), "plain");
    await_ended(&gateway, "ok", 1.0);
    let copied = copied.lock().expect("no panic");
    assert_eq!(copied.iter().map(Request::path).collect::<Vec<_>>(), ["/plain"]);
}

#[test]
fn a_share_is_copied_and_an_edit_changes_it() {
    let (up, _) = main_server();
    let (shadow, copied) = keeping(200);
    let file =
        |share: &str| yaml(up.address, &at(shadow.address), &format!(", share: {share}"), "");
    let gateway = Gateway::start(&file("0%"));
    let mut client = Client::new(gateway.web());
    let mut send = |count| (0..count).for_each(|_| assert_eq!(client.get("/").status, 200));
    send(50);
    assert_eq!(metrics(&gateway, "flowgate_mirror_requests_total").len(), 0);

    gateway.edit(&file("30%"));
    send(400);
    let count = eventually("each copy has ended", || {
        let all = ended(&gateway, "ok");
        let seen = copied.lock().expect("no panic").len();
        let seen = u32::try_from(seen).expect("few");
        (all > 0.0 && f64::from(seen) == all).then_some(seen)
    });
    // More than six standard deviations, of 9.2 each.
    assert!((60..=180).contains(&count), "{count} of 400 with 30 %");

    let (other, moved) = keeping(200);
    gateway.edit(&yaml(up.address, &at(other.address), "", ""));
    send(5);
    eventually("the new mirror gets the copies", || {
        (moved.lock().expect("no panic").len() == 5).then_some(())
    });
}

#[test]
fn a_request_that_is_sent_again_is_copied_once() {
    let tries = Mutex::new(0);
    let up = Script::answering(move |_| {
        let mut tries = tries.lock().expect("no panic");
        *tries += 1;
        if *tries % 2 == 1 {
            b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_vec()
        } else {
            ok("again")
        }
    });
    let (shadow, copied) = keeping(200);
    let route = "    retry: { attempts: 2, budget: 100% }\n";
    let gateway = Gateway::start(&yaml(up.address, &at(shadow.address), "", route));
    let mut client = Client::new(gateway.web());
    for _ in 0..3 {
        assert_eq!(client.get("/").text(), "again");
    }
    await_ended(&gateway, "ok", 3.0);
    assert_eq!(copied.lock().expect("no panic").len(), 3);
}

#[test]
fn a_mirror_learns_of_clients_by_the_proxy_protocol() {
    let (up, _) = main_server();
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&lines);
    let shadow = Script::start(move |_, mut connection: Connection| {
        let mut line = String::new();
        drop(connection.stream.read_line(&mut line));
        seen.lock().expect("no panic").push(line.trim_end().to_owned());
        while connection.read().is_some() {
            _ = connection.write(ok(""));
        }
    });
    let shadow_at = format!("send_proxy_protocol: v1, {}", at(shadow.address));
    let gateway = Gateway::start(&yaml(up.address, &shadow_at, "", ""));
    let mut client = Client::new(gateway.web());
    assert_eq!(client.get("/").status, 200);
    await_ended(&gateway, "ok", 1.0);
    let port = client.stream.get_ref().local_addr().expect("an address").port();
    let expected = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {port} {}", gateway.web().port());
    assert_eq!(*lines.lock().expect("no panic"), [expected]);
}

#[test]
fn a_request_without_a_host_has_that_of_the_mirrors_server() {
    let (up, _) = main_server();
    let (shadow, copied) = keeping(200);
    let gateway = Gateway::start(&yaml(up.address, &at(shadow.address), "", ""));
    let mut client = Client::new(gateway.web());
    client.send("GET /old HTTP/1.0\r\n\r\n");
    assert_eq!(client.read("GET").status, 200);
    await_ended(&gateway, "ok", 1.0);
    let copied = copied.lock().expect("no panic");
    assert_eq!(copied[0].header("host"), Some(&*shadow.address.to_string()));
}

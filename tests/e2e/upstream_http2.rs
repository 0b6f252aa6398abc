//! HTTP/2 to upstreams, and gRPC through the gateway.

use crate::{
    common::{
        Gateway, PATIENCE, curl, eventually,
        http::{self, Client, head},
        http2_server::{
            DATA, END_HEADERS, END_STREAM, HEADERS, Http2Server, RST_STREAM, SETTINGS, scripted,
        },
        metrics,
        tls_server::{Authority, server_config},
        upstream::{self, Script},
    },
    port::free_port,
};
use bytes::Bytes;
use core::future::poll_fn;
use h2::{RecvStream, SendStream, client::SendRequest};
use http_types::{HeaderMap, Request, Response};
use std::{
    fs,
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::{net::TcpStream, runtime};

use ::http as http_types;

const REFUSED_STREAM: u32 = 7;

/// The times are long, so that a busy machine opens no other connection.
fn text(url: &str, more: &str, route: &str) -> String {
    format!(
        "workers: 1\nlisteners: [{{ name: web, listen: 127.0.0.1:0 }}]\n\
         admin: {{ listen: 127.0.0.1:0 }}\n\
         upstreams: [{{ name: up, servers: [{{ url: '{url}' }}], connect_timeout: 5m, idle_timeout: 5m{more} }}]\n\
         routes: [{{ name: all, match: {{ path_prefix: / }}, upstream: up{route} }}]\n"
    )
}

fn prior_knowledge(address: SocketAddr, route: &str) -> Gateway {
    Gateway::start(&text(&format!("http://{address}"), ", protocol: h2", route))
}

#[test]
fn a_server_gets_its_own_address_for_a_host_that_the_client_does_not_name() {
    let http1 = upstream::echo();
    let http2 = Http2Server::start(None);
    for (address, protocol) in [(http1.address, "h1"), (http2.address, "h2")] {
        let protocol = format!(", protocol: {protocol}");
        let rewrite = ", rewrite: { host: own.test }";
        for (settings, more, expected) in [
            ("", "", address.to_string()),
            ("trusted_proxies: [127.0.0.1]\n", "", address.to_string()),
            ("", rewrite, "own.test".to_owned()),
        ] {
            let text = text(&format!("http://{address}"), &protocol, more);
            let gateway = Gateway::start(&format!("{settings}{text}"));
            for host in ["", "Host: \r\n"] {
                let mut client = Client::new(gateway.web());
                client.send(format!("GET /old HTTP/1.0\r\n{host}\r\n"));
                let seen = client.read("GET").text();
                let has_host =
                    [format!("[\"host\",\"{expected}\"]"), format!("GET http://{expected}/old ")]
                        .iter()
                        .any(|named| seen.contains(named));
                assert!(has_host && !seen.contains("x-forwarded-host"), "{seen}");
            }
        }
    }
}

#[test]
fn requests_of_http_1_share_a_connection_and_arrive_in_the_form_of_http_2() {
    let server = Http2Server::start(None);
    let route = ", request_headers: { set: { proxy-authorization: own } }";
    let gateway = prior_knowledge(server.address, route);
    let web = gateway.web();
    let fields =
        [("Host", "shop.test:81"), ("Connection", "x-hop, te"), ("X-Hop", "1"), ("TE", "trailers")];
    let answer = Client::new(web).request("GET", "/a?b=c", &fields);
    let text = answer.text();
    assert!(text.starts_with("GET http://shop.test:81/a?b=c ["), "{text}");
    for present in ["te: trailers", "x-forwarded-for: 127.0.0.1", "proxy-authorization: own"] {
        assert!(text.contains(present), "{present} in {text}");
    }
    for absent in ["[host:", " host:", "connection:", "x-hop", "transfer-encoding"] {
        assert!(!text.contains(absent), "{absent} in {text}");
    }
    let clients: Vec<_> = (0..20)
        .map(|number| {
            std::thread::spawn(move || {
                let mut client = Client::new(web);
                for _ in 0..5 {
                    let body = number.to_string().repeat(1000);
                    let length = body.len().to_string();
                    client.send(head("POST", "/", &[("Content-Length", &length)]));
                    client.send(&body);
                    let answer = client.read("POST");
                    assert!(answer.complete && answer.text().ends_with(&body));
                    assert!(answer.text().contains(&format!("content-length: {length}")));
                }
            })
        })
        .collect();
    for client in clients {
        client.join().expect("no panic");
    }
    assert_eq!(server.connections(), 1);
}

#[test]
fn large_bodies_pass_both_ways() {
    let server = Http2Server::start(None);
    let gateway = prior_knowledge(server.address, "");
    let body: Vec<u8> = (0..20_000_000_u32).map(|at| at.to_le_bytes()[at as usize % 3]).collect();
    let path = gateway.dir.path().join("body");
    fs::write(&path, &body).expect("written");
    let data = format!("@{}", path.display());
    for flag in ["--http1.1", "--http2-prior-knowledge"] {
        let back = gateway.dir.path().join("back");
        let out = back.to_str().expect("UTF-8");
        let url = format!("http://{}/", gateway.web());
        curl(&[flag, "--data-binary", &data, "-o", out, &url]);
        let back = fs::read(&back).expect("read");
        let first = back.iter().position(|&byte| byte == b'\n').expect("a line") + 1;
        assert!(back[first..] == body, "{flag}: {} bytes", back.len() - first);
    }
}

#[test]
fn what_is_spoken_over_tls_is_chosen_by_the_server_and_upgrades_use_http_1() {
    for (protocol, offered, expected) in [
        ("auto", &["h2", "http/1.1"][..], Some("h2")),
        ("auto", &["http/1.1"], Some("http/1.1")),
        ("auto", &[], None),
        ("h1", &["h2", "http/1.1"], Some("http/1.1")),
        ("h2", &["h2", "http/1.1"], Some("h2")),
    ] {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let authority = Authority::new("the authority");
        authority.write(folder.path(), "ca");
        authority.sign(folder.path(), "own", &["localhost"], |_| {});
        let mut config = server_config(folder.path(), "own", None);
        config.alpn_protocols =
            offered.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let server = Http2Server::start(Some(config));
        let url = format!("https://localhost:{}", server.address.port());
        let more = format!(", protocol: {protocol}, tls: {{ ca: ca.pem }}");
        let gateway = Gateway::start_in(folder, &text(&url, &more, ""), &[]);
        for _ in 0..3 {
            assert_eq!(http::get(gateway.web(), "/").status, 200, "{protocol} {offered:?}");
        }
        let chosen = server.chosen.lock().expect("no panic").clone();
        let expected = expected.map(|protocol| protocol.as_bytes().to_vec());
        assert!(
            chosen.iter().all(|choice| *choice == expected),
            "{protocol} {offered:?}: {chosen:?}"
        );
        let count = if expected.as_deref() == Some(b"h2") { 1 } else { 3 };
        assert_eq!(chosen.len(), count, "{protocol} {offered:?}");
        let fields = [("Connection", "upgrade"), ("Upgrade", "websocket")];
        let status = Client::new(gateway.web()).request("GET", "/", &fields).status;
        assert_eq!(status, if protocol == "h2" { 502 } else { 101 }, "{protocol} {offered:?}");
    }
}

#[test]
fn a_server_that_must_speak_http_2_and_does_not_is_named_in_the_log() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let authority = Authority::new("the authority");
    authority.write(folder.path(), "ca");
    authority.sign(folder.path(), "own", &["localhost"], |_| {});
    let server = Http2Server::start(Some(server_config(folder.path(), "own", None)));
    let url = format!("https://localhost:{}", server.address.port());
    let more = ", protocol: h2, tls: { ca: ca.pem }";
    let gateway = Gateway::start_in(folder, &text(&url, more, ""), &[]);
    assert_eq!(http::get(gateway.web(), "/").status, 502);
    gateway.wait_log("the server does not speak HTTP/2");
}

/// Sends a POST and returns its status.
fn post(gateway: &Gateway, body: &str) -> u16 {
    let mut client = Client::new(gateway.web());
    client.send(head("POST", "/", &[("Content-Length", &body.len().to_string())]));
    client.send(body);
    client.read("POST").status
}

/// Counts the whole requests that arrive, and plays `first` on the first connection's, after
/// it was read. Others are answered.
fn failing_first(
    first: impl Fn(&mut crate::common::http2_server::Frames, u32) + Send + Sync + 'static,
) -> (Script, Arc<AtomicUsize>) {
    let arrived = Arc::<AtomicUsize>::default();
    let counter = Arc::clone(&arrived);
    // SETTINGS_INITIAL_WINDOW_SIZE: 1 MiB.
    let server = scripted(&[0, 4, 0, 16, 0, 0], move |number, mut frames| {
        while let Some((stream, body)) = frames.request() {
            counter.fetch_add(1, Ordering::SeqCst);
            if number == 0 {
                first(&mut frames, stream);
                return;
            }
            assert!(body.is_empty() || body == b"the body");
            frames.answer(stream, b"ok");
        }
    });
    (server, arrived)
}

#[test]
fn what_a_server_says_that_it_has_not_processed_is_sent_again() {
    const ENHANCE_YOUR_CALM: u32 = 11;
    for way in 0..3 {
        let (server, arrived) = failing_first(move |frames, stream| match way {
            0 => frames.go_away(0, 0),
            1 => frames.go_away(0, ENHANCE_YOUR_CALM),
            _ => frames.reset(stream, REFUSED_STREAM),
        });
        let gateway = prior_knowledge(server.address, "");
        assert_eq!(post(&gateway, "the body"), 200, "way {way}");
        assert_eq!(arrived.load(Ordering::SeqCst), 2, "way {way}");
        assert_eq!(http::get(gateway.web(), "/").status, 200);
        let retries = metrics(&gateway, "flowgate_upstream_retries_total");
        assert_eq!(retries.values().sum::<f64>(), 1.0, "way {way}");
    }
}

#[test]
fn a_request_that_a_server_rejects_is_sent_again_over_the_same_connection() {
    let (server, arrived) = refusing(1);
    let gateway = prior_knowledge(server.address, "");
    assert_eq!(post(&gateway, "the body"), 200);
    assert_eq!((arrived.load(Ordering::SeqCst), server.connections()), (2, 1));
}

#[test]
fn a_server_that_rejects_every_request_gets_the_attempts_of_the_route() {
    for (route, attempts) in [("", 4_u32), (", retry: { attempts: 1 }", 1)] {
        let (server, arrived) = refusing(usize::MAX);
        let gateway = prior_knowledge(server.address, route);
        assert_eq!(post(&gateway, "the body"), 502);
        assert_eq!(arrived.load(Ordering::SeqCst), attempts as usize);
        gateway.wait_log("refused stream");
        let failures = metrics(&gateway, "flowgate_upstream_failures_total");
        assert_eq!(failures.values().sum::<f64>(), f64::from(attempts));
    }
}

#[test]
fn a_wait_for_room_on_the_connections_does_not_count_against_the_server() {
    // SETTINGS_MAX_CONCURRENT_STREAMS: 1.
    let server = scripted(&[0, 3, 0, 0, 0, 1], |_, mut frames| {
        let (stream, _) = frames.request().expect("a request");
        frames.head(stream);
        while frames.read().is_some() {}
    });
    let url = format!("http://{}", server.address);
    let text =
        text(&url, ", protocol: h2", "").replace("connect_timeout: 5m", "connect_timeout: 3s");
    let gateway = Gateway::start(&text);
    let held: Vec<Client> = (0..100)
        .map(|_| {
            let mut client = Client::new(gateway.web());
            client.send(head("GET", "/", &[]));
            assert_eq!(client.read_head().expect("an answer").status, 200);
            client
        })
        .collect();
    assert_eq!(http::get(gateway.web(), "/").status, 502);
    gateway.wait_log("carry as many requests as it allows");
    for name in ["flowgate_upstream_failures_total", "flowgate_upstream_connect_failures_total"] {
        assert_eq!(metrics(&gateway, name).values().sum::<f64>(), 0.0, "{name}");
    }
    assert_eq!(metrics(&gateway, "flowgate_upstream_server_healthy").values().sum::<f64>(), 1.0);
    drop(held);
}

#[test]
fn what_a_server_may_have_processed_is_not_sent_again_unless_it_is_harmless() {
    const CANCEL: u32 = 8;
    for way in 0..3 {
        let play = move |frames: &mut crate::common::http2_server::Frames, stream: u32| match way {
            0 => frames.go_away(stream, 0),
            1 => frames.reset(stream, CANCEL),
            _ => {}
        };
        let (server, arrived) = failing_first(play);
        let gateway = prior_knowledge(server.address, "");
        assert_eq!(post(&gateway, "the body"), 502, "way {way}");
        assert_eq!(arrived.load(Ordering::SeqCst), 1, "way {way}");
        gateway.wait_log("upstream failed: ");
    }
}

#[test]
fn a_server_that_speaks_the_other_version_is_named_with_the_setting_to_change() {
    let old = Script::start(|_, mut connection| {
        connection.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
        while connection.read().is_some() {}
    });
    let gateway = prior_knowledge(old.address, "");
    assert_eq!(post(&gateway, ""), 502);
    gateway.wait_log(
        "frame with invalid size; does the server speak only HTTP/1.1 (`protocol: auto`)?",
    );
}

#[test]
fn a_get_is_sent_again_if_its_connection_is_closed_before_the_answer() {
    for (method, expected, arrivals) in [("GET", 200, 3), ("POST", 502, 2)] {
        let arrived = Arc::<AtomicUsize>::default();
        let counter = Arc::clone(&arrived);
        let server = scripted(&[], move |number, mut frames| {
            while let Some((stream, _)) = frames.request() {
                if counter.fetch_add(1, Ordering::SeqCst) == 1 {
                    assert_eq!(number, 0);
                    return;
                }
                frames.answer(stream, b"ok");
            }
        });
        let gateway = prior_knowledge(server.address, "");
        let mut client = Client::new(gateway.web());
        assert_eq!(client.get("/").status, 200);
        assert_eq!(client.request(method, "/", &[]).status, expected, "{method}");
        assert_eq!(arrived.load(Ordering::SeqCst), arrivals, "{method}");
    }
}

#[test]
fn a_new_connection_that_is_closed_before_the_answer_is_a_reset_to_retry() {
    for (route, expected, arrivals) in [("", 502, 1), (", retry: {}", 200, 2)] {
        let (server, arrived) = failing_first(|_, _| {});
        let gateway = prior_knowledge(server.address, route);
        assert_eq!(http::get(gateway.web(), "/").status, expected, "{route}");
        assert_eq!(arrived.load(Ordering::SeqCst), arrivals, "{route}");
    }
}

/// Returns a server that reads bodies up to 16 MiB, and refuses the first requests without
/// processing them; it counts what arrives.
fn refusing(first: usize) -> (Script, Arc<AtomicUsize>) {
    let arrived = Arc::<AtomicUsize>::default();
    let counter = Arc::clone(&arrived);
    // SETTINGS_INITIAL_WINDOW_SIZE.
    let server = scripted(&[0, 4, 1, 0, 0, 0], move |_, mut frames| {
        while let Some((stream, _)) = frames.request() {
            if counter.fetch_add(1, Ordering::SeqCst) < first {
                frames.reset(stream, REFUSED_STREAM);
            } else {
                frames.answer(stream, b"ok");
            }
        }
    });
    (server, arrived)
}

#[test]
fn interim_responses_without_end_end_their_request_and_no_other() {
    // `:status: 103`: the name by its index in HPACK's static table, the value as text.
    const EARLY_HINTS: &[u8] = &[8, 3, b'1', b'0', b'3'];
    let server = scripted(&[], |_, mut frames| {
        let mut flooded = None;
        while let Some((stream, body)) = frames.request() {
            if body == b"flood" {
                flooded = Some(stream);
            } else {
                frames.answer(stream, b"ok");
            }
            for stream in flooded.iter().flat_map(|stream| [*stream; 100]) {
                frames.write(HEADERS, END_HEADERS, stream, EARLY_HINTS);
            }
        }
    });
    let gateway = prior_knowledge(server.address, "");
    let mut flooded = Client::new(gateway.web());
    flooded.send(head("POST", "/", &[("content-length", "5")]) + "flood");
    let mut client = Client::new(gateway.web());
    for _ in 0..20 {
        assert_eq!(client.get("/").status, 200);
    }
    let heads = std::iter::from_fn(|| flooded.read_head().map(|head| head.status));
    let heads: Vec<u16> = heads.take(101).collect();
    assert_eq!(heads, [vec![103; 100], vec![502]].concat());
}

#[test]
fn the_end_of_a_body_needs_no_room_at_the_server() {
    // SETTINGS_INITIAL_WINDOW_SIZE is 0.
    let server = scripted(&[0, 4, 0, 0, 0, 0], |_, mut frames| {
        while let Some((stream, body)) = frames.request() {
            assert!(body.is_empty());
            frames.answer(stream, b"ok");
        }
    });
    let gateway = prior_knowledge(server.address, "");
    let mut client = Client::new(gateway.web());
    client.send(head("POST", "/", &[("transfer-encoding", "chunked")]) + "0\r\n\r\n");
    assert_eq!(client.read("POST").status, 200);
}

#[test]
fn an_upload_goes_on_while_its_client_reads_nothing_of_the_answer() {
    const BODY: usize = 300_000;
    const ACK: u8 = 1;
    let (received, lengths) = std::sync::mpsc::channel();
    // SETTINGS_INITIAL_WINDOW_SIZE is 16 MiB.
    let server = scripted(&[0, 4, 1, 0, 0, 0], move |_, mut frames| {
        let stream = frames.read_kind(HEADERS).expect("a request").stream;
        // It agrees to the gateway's window, of 256 KiB.
        frames.write(SETTINGS, ACK, 0, &[]);
        frames.head(stream);
        for _ in 0..10 {
            frames.write(DATA, 0, stream, &[0; 16_000]);
        }
        received.send(frames.request().expect("its body").1.len()).expect("awaited");
        frames.write(DATA, END_STREAM, stream, b"end");
        frames.request();
    });
    let gateway = prior_knowledge(server.address, "");
    with_client(&gateway, |client| async move {
        let request = Request::post("http://shop.test/").body(()).expect("whole");
        let mut client = client.ready().await.expect("ready");
        let (answer, mut body) = client.send_request(request, false).expect("sent");
        let answer = answer.await.expect("an answer");
        body.send_data(vec![0; BODY].into(), true).expect("sent");
        let length = tokio::task::spawn_blocking(move || lengths.recv_timeout(PATIENCE));
        assert_eq!(length.await.expect("no panic"), Ok(BODY));
        let mut answer = answer.into_body();
        let mut length = 0;
        while let Some(part) = answer.data().await {
            let part = part.expect("no error");
            answer.flow_control().release_capacity(part.len()).expect("released");
            length += part.len();
        }
        assert_eq!(length, 160_003);
    });
}

#[test]
fn a_large_body_is_sent_again_and_a_server_that_is_back_soon_is_waited_for() {
    let arrived = Arc::<AtomicUsize>::default();
    let counter = Arc::clone(&arrived);
    let server = scripted(&[0, 4, 1, 0, 0, 0], move |_, mut frames| {
        while let Some((stream, _)) = frames.request() {
            if counter.fetch_add(1, Ordering::SeqCst) < 6 {
                frames.go_away(0, 0);
                return;
            }
            frames.answer(stream, b"ok");
        }
    });
    let gateway = prior_knowledge(server.address, "");
    assert_eq!(post(&gateway, &"x".repeat(300_000)), 200);
    assert_eq!(arrived.load(Ordering::SeqCst), 7);
}

#[test]
fn a_body_of_several_mebibytes_is_sent_again() {
    let (server, arrived) = refusing(1);
    let gateway = prior_knowledge(server.address, "");
    assert_eq!(post(&gateway, &"x".repeat(6 << 20)), 200);
    assert_eq!(arrived.load(Ordering::SeqCst), 2);
}

#[test]
fn a_body_is_kept_until_the_server_has_read_more_of_it_than_there_is_room_for() {
    const PING: u8 = 6;
    const BODY: usize = 12 << 20;
    // The first connection ends without its request at the ping, and the second when it has read all.
    let server = scripted(&[0, 4, 1, 0, 0, 0], |connection, mut frames| {
        let mut length = 0;
        let mut stream = 0;
        while length < BODY {
            let Some(frame) = frames.read() else { return };
            match frame.kind {
                PING if connection == 0 => break,
                PING if frame.flags == 0 => frames.write(PING, 1, 0, &frame.payload),
                HEADERS => stream = frame.stream,
                DATA => length += frame.payload.len(),
                _ => {}
            }
        }
        if connection < 2 {
            frames.go_away(0, 0);
        } else {
            frames.answer(stream, b"ok");
        }
        frames.request();
    });
    let gateway = prior_knowledge(server.address, "");
    let body = "x".repeat(BODY);
    assert_eq!(post(&gateway, &body), 502);
    assert_eq!(server.connections(), 2);
    assert_eq!(post(&gateway, &body), 200);
    assert_eq!(server.connections(), 3);
}

#[test]
fn requests_beyond_what_a_server_allows_at_once_get_another_connection() {
    // SETTINGS_MAX_CONCURRENT_STREAMS: 1.
    let server = scripted(&[0, 3, 0, 0, 0, 1], |_, mut frames| {
        let mut open = None;
        while let Some(frame) = frames.read() {
            if frame.kind == HEADERS {
                assert_eq!(open, None, "two at once");
                open = Some(frame.stream);
                frames.head(frame.stream);
                frames.write(DATA, 0, frame.stream, b"begun\n");
            } else if frame.kind == RST_STREAM {
                open = None;
            } else if frame.kind == 6 && frame.flags == 0 {
                frames.write(6, 1, 0, &frame.payload);
            }
        }
    });
    let gateway = prior_knowledge(server.address, "");
    let begin = || {
        let mut client = Client::new(gateway.web());
        client.send(head("GET", "/", &[]));
        assert_eq!(client.read_head().expect("an answer").status, 200);
        client
    };
    let held: Vec<Client> = (0..4).map(|_| begin()).collect();
    assert_eq!(server.connections(), 4);
    drop(held);
    // Their places are free again once the server knows that they were given up.
    eventually("no new connection is needed", || {
        let before = server.connections();
        drop(begin());
        (server.connections() == before).then_some(())
    });
}

#[test]
fn a_client_that_leaves_has_its_stream_reset() {
    const CANCEL: [u8; 4] = [0, 0, 0, 8];
    let (resets, codes) = std::sync::mpsc::channel();
    let resets = std::sync::Mutex::new(resets);
    let server = scripted(&[], move |_, mut frames| {
        while let Some(frame) = frames.read() {
            if frame.kind == HEADERS && frame.payload.len() > 220 {
                frames.head(frame.stream);
            }
            if frame.kind == RST_STREAM {
                resets.lock().expect("no panic").send(frame.payload).expect("awaited");
            }
        }
    });
    let gateway = prior_knowledge(server.address, "");
    // Before its answer begins, and after.
    for value in ["1".to_owned(), "x".repeat(300)] {
        let mut client = Client::new(gateway.web());
        client.send(head("GET", "/", &[("X-Value", &value)]));
        if value.len() > 1 {
            assert_eq!(client.read_head().expect("an answer").status, 200);
        } else {
            eventually("it is in flight", || {
                let all = metrics(&gateway, "flowgate_upstream_requests_total");
                (all.values().sum::<f64>() == 1.0).then_some(())
            });
        }
        drop(client);
        assert_eq!(codes.recv_timeout(PATIENCE).expect("a reset"), CANCEL);
    }
    assert_eq!(server.connections(), 1);
}

#[test]
fn a_server_may_send_256_kib_of_each_answer_at_once() {
    let (seen, windows) = std::sync::mpsc::channel();
    let seen = std::sync::Mutex::new(seen);
    let server = scripted(&[], move |_, mut frames| {
        let settings = frames.read_kind(SETTINGS).expect("settings").payload;
        let window = settings.chunks(6).find(|setting| setting[..2] == [0, 4]).expect("a window")
            [2..]
            .to_vec();
        seen.lock().expect("no panic").send(window).expect("awaited");
        let (stream, _) = frames.request().expect("a request");
        frames.answer(stream, b"ok");
    });
    let gateway = prior_knowledge(server.address, "");
    assert_eq!(http::get(gateway.web(), "/").status, 200);
    assert_eq!(windows.recv_timeout(PATIENCE).expect("a window"), (1_u32 << 18).to_be_bytes());
}

/// Runs a client of HTTP/2.
fn with_client<F: Future<Output = ()>>(
    gateway: &Gateway,
    work: impl FnOnce(SendRequest<Bytes>) -> F,
) {
    let web = gateway.web();
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async move {
        let stream = TcpStream::connect(web).await.expect("connected");
        let (client, connection) = h2::client::handshake(stream).await.expect("begun");
        tokio::spawn(connection);
        let worked = tokio::time::timeout(PATIENCE, work(client)).await;
        worked.expect("in time");
    });
}

/// Begins a call.
async fn call(
    client: SendRequest<Bytes>,
    timeout: Option<&str>,
) -> (Response<RecvStream>, SendStream<Bytes>) {
    let mut request = Request::post("http://shop.test/shop.Cart/Watch")
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    if let Some(timeout) = timeout {
        request = request.header("grpc-timeout", timeout);
    }
    let mut client = client.ready().await.expect("ready");
    let (answer, mut body) =
        client.send_request(request.body(()).expect("whole"), false).expect("sent");
    body.send_data("hello\n".into(), false).expect("sent");
    (answer.await.expect("an answer"), body)
}

async fn next(answer: &mut RecvStream) -> String {
    let part = answer.data().await.expect("a part").expect("no error");
    answer.flow_control().release_capacity(part.len()).expect("released");
    String::from_utf8(part.to_vec()).expect("UTF-8")
}

fn status(fields: &HeaderMap) -> Option<&str> {
    fields.get("grpc-status")?.to_str().ok()
}

#[test]
fn a_call_streams_both_ways_at_the_same_time_and_ends_with_trailers() {
    let server = Http2Server::start(None);
    let gateway = prior_knowledge(server.address, "");
    with_client(&gateway, |client| async move {
        let (answer, mut body) = call(client, Some("1M")).await;
        let mut answer = answer.into_body();
        let mut first = next(&mut answer).await;
        assert!(first.contains("te: trailers") && first.contains("grpc-timeout: 1M"), "{first}");
        if !first.ends_with("hello\n") {
            first = next(&mut answer).await;
        }
        assert!(first.ends_with("hello\n"), "{first}");
        for message in ["one", "two", "three"] {
            body.send_data(message.into(), false).expect("sent");
            assert_eq!(next(&mut answer).await, message);
        }
        body.send_data(Bytes::new(), true).expect("sent");
        let trailers = answer.trailers().await.expect("no error").expect("trailers");
        assert_eq!(status(&trailers), Some("0"));
    });
}

#[test]
fn the_deadline_of_a_call_is_its_own_or_the_routes_and_ends_it_with_status_4() {
    for (timeout, route) in
        [(Some("150m"), ""), (Some("1H"), ", timeout: 150ms"), (None, ", timeout: 150ms")]
    {
        let (resets, reset) = std::sync::mpsc::channel();
        let resets = std::sync::Mutex::new(resets);
        let server = scripted(&[], move |_, mut frames| {
            let mut calls = 0;
            while let Some(frame) = frames.read() {
                // The first call gets no answer, the second one the beginning of one.
                if frame.kind == HEADERS {
                    calls += 1;
                    if calls == 2 {
                        frames.head(frame.stream);
                        frames.write(DATA, 0, frame.stream, b"begun");
                    }
                }
                if frame.kind == RST_STREAM {
                    resets.lock().expect("no panic").send(frame.stream).expect("awaited");
                    if calls == 2 {
                        return;
                    }
                }
            }
        });
        let gateway = prior_knowledge(server.address, route);
        with_client(&gateway, |client| async move {
            let (answer, _body) = call(client.clone(), timeout).await;
            assert_eq!(answer.status(), 200);
            assert_eq!(status(answer.headers()), Some("4"), "{timeout:?}{route}");
        });
        assert!(reset.recv_timeout(PATIENCE).is_ok(), "the server learns it");
        if server.connections() == 1 {
            // A call that could still send says nothing about the server. It keeps the connection,
            // and the second call on it gets a head.
            with_client(&gateway, |client| async move {
                let (answer, _body) = call(client, timeout).await;
                assert_eq!(status(answer.headers()), None);
            });
            assert_eq!(server.connections(), 1);
        }
    }
}

#[test]
fn a_connection_on_which_an_answer_was_late_gets_no_more_requests() {
    let server = scripted(&[], |_, mut frames| while frames.read().is_some() {});
    let gateway = prior_knowledge(server.address, ", timeout: 150ms");
    for connections in [1, 2] {
        assert_eq!(http::get(gateway.web(), "/").status, 504);
        assert_eq!(server.connections(), connections);
    }
}

#[test]
fn a_call_whose_deadline_passes_in_its_answer_ends_with_trailers() {
    let server = scripted(&[], |_, mut frames| {
        let call = frames.read_kind(HEADERS).expect("a call");
        frames.head(call.stream);
        frames.write(DATA, 0, call.stream, b"begun");
        while frames.read().is_some() {}
    });
    let gateway = prior_knowledge(server.address, "");
    with_client(&gateway, |client| async move {
        let (answer, _body) = call(client, Some("300m")).await;
        let mut answer = answer.into_body();
        assert_eq!(next(&mut answer).await, "begun");
        assert!(answer.data().await.is_none());
        let trailers = answer.trailers().await.expect("no error").expect("trailers");
        assert_eq!(status(&trailers), Some("4"));
    });
}

#[test]
fn a_call_that_a_server_ends_with_its_head_keeps_its_status() {
    let server = scripted(&[], |_, mut frames| {
        let call = frames.read_kind(HEADERS).expect("a call");
        let mut block = vec![0x88, 0, 11];
        block.extend_from_slice(b"grpc-status\x015");
        frames.write(HEADERS, END_HEADERS | END_STREAM, call.stream, &block);
        while frames.read().is_some() {}
    });
    let gateway = prior_knowledge(server.address, "");
    with_client(&gateway, |client| async move {
        let (answer, _body) = call(client, None).await;
        assert_eq!(status(answer.headers()), Some("5"));
        assert!(answer.body().is_end_stream());
    });
}

/// A running nginx; ended when dropped.
struct Nginx(Child);

impl Nginx {
    /// Starts it with a certificate for `localhost`, whose authority is `ca.pem` in `folder`. It ends
    /// each connection after seven requests, and passes those of `/post` on. Returns its port, too.
    fn start(folder: &tempfile::TempDir, behind: SocketAddr) -> (Self, u16) {
        let authority = Authority::new("the authority");
        authority.write(folder.path(), "ca");
        authority.sign(folder.path(), "own", &["localhost"], |_| {});
        let port = free_port();
        let path = folder.path().display().to_string();
        let config = format!(
            "daemon off; master_process off; pid {path}/pid; error_log stderr;\n\
             events {{}}\n\
             http {{\n  access_log off;\n  client_body_temp_path {path}/body; proxy_temp_path {path}/proxy;\n\
             fastcgi_temp_path {path}/fastcgi; uwsgi_temp_path {path}/uwsgi; scgi_temp_path {path}/scgi;\n\
             server {{\n    listen 127.0.0.1:{port} ssl http2; keepalive_requests 7;\n\
             ssl_certificate {path}/own.pem; ssl_certificate_key {path}/own.key;\n\
             location / {{ return 200 '$server_protocol $host $ssl_session_reused'; }}\n\
             location /post {{ proxy_pass http://{behind}; }}\n  }}\n}}\n"
        );
        fs::write(folder.path().join("nginx.conf"), config).expect("written");
        let child = Command::new("nginx")
            .args(["-e", "stderr", "-p", &path, "-c", "nginx.conf"])
            .stdin(Stdio::null())
            .spawn()
            .expect("nginx is installed");
        let nginx = Self(child);
        eventually("nginx listens", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
        (nginx, port)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn nginx_is_an_upstream_over_tls_and_ends_connections_without_losing_requests() {
    // Bodies that HTTP/2 can send again: nginx refuses streams while it ends a connection.
    for (protocol, version, longest) in [("auto", "HTTP/2.0", 60_000), ("h1", "HTTP/1.1", 300_000)]
    {
        let behind = upstream::echo();
        let folder = tempfile::tempdir().expect("a temporary directory");
        let (nginx, port) = Nginx::start(&folder, behind.address);
        let url = format!("https://localhost:{port}");
        let more = format!(", protocol: {protocol}, tls: {{ ca: ca.pem }}");
        let gateway = Gateway::start_in(folder, &text(&url, &more, ""), &[]);
        let web = gateway.web();
        let clients: Vec<_> = (0..8)
            .map(|_| std::thread::spawn(move || visit_nginx(web, version, longest)))
            .collect();
        for client in clients {
            client.join().expect("no panic");
        }
        let opened = metrics(&gateway, "flowgate_upstream_connects_total");
        let opened = opened.values().sum::<f64>();
        assert!((480.0 / 7.0..240.0).contains(&opened), "{version}: {opened}");
        drop(nginx);
    }
}

/// Sends 50 GETs and 10 POSTs, of which nginx receives the whole bodies.
fn visit_nginx(web: SocketAddr, version: &str, longest: usize) {
    let mut client = Client::new(web);
    for round in 0..50 {
        let answer = client.get("/");
        assert_eq!(answer.status, 200);
        let text = answer.text();
        assert!(text.starts_with(&format!("{version} gateway.test")), "{text}");
        if round % 5 == 0 {
            let length = longest * round / 45;
            client.send(head("POST", "/post", &[("Content-Length", &length.to_string())]));
            client.send(vec![b'x'; length]);
            let answer = client.read("POST");
            assert_eq!((answer.status, answer.json()["body"].as_u64()), (200, Some(length as u64)));
        }
    }
}

/// The name `trailer` in the Huffman code of HPACK.
const TRAILER: &[u8] = b"\x4d\x83\x35\x05\xb3";

/// nginx and HAProxy end a connection, with all its requests, at a frame of trailers without fields, and nginx at any
/// trailers of a request.
#[test]
fn trailers_that_are_dropped_leave_no_frame() {
    let server = scripted(&[], |_, mut frames| {
        let mut heads = 0;
        let mut is_announced = false;
        while let Some(frame) = frames.read() {
            heads += usize::from(frame.kind == HEADERS);
            is_announced |= frame.payload.windows(5).any(|bytes| bytes == TRAILER);
            if matches!(frame.kind, HEADERS | DATA) && frame.flags & END_STREAM != 0 {
                let is_empty = frame.payload.is_empty();
                let seen = format!("{heads} {} {is_empty} {is_announced}", frame.kind == DATA);
                frames.answer(frame.stream, seen.as_bytes());
                heads = 0;
            }
        }
    });
    let dropped = "1 true true false";
    for (setting, kind, announced, expected) in [
        ("", "text/plain", "", dropped),
        ("", "text/plain", "a", dropped),
        ("", "application/grpc", "a", dropped),
        (", request_trailers: true", "text/plain", "a", "2 false false true"),
        (", request_trailers: true", "text/plain", "b", "1 true true true"),
    ] {
        let gateway = prior_knowledge(server.address, setting);
        let mut client = Client::new(gateway.web());
        let fields =
            [("Transfer-Encoding", "chunked"), ("Content-Type", kind), ("Trailer", announced)];
        client.send(head("POST", "/", &fields) + "1\r\na\r\n0\r\nA: b\r\n\r\n");
        assert_eq!(client.read("POST").text(), expected, "{setting} {kind} {announced:?}");
    }
}

#[test]
fn a_client_of_http_2_gets_values_without_the_blanks_that_a_server_wrote() {
    let server = scripted(&[], |_, mut frames| {
        while let Some((stream, _)) = frames.request() {
            // 103 and 200, each with `x: ` and a letter between blanks.
            frames.write(HEADERS, END_HEADERS, stream, b"\x08\x03103\x00\x01x\x03 a\t");
            frames.write(HEADERS, END_HEADERS | END_STREAM, stream, b"\x88\x00\x01x\x03\tb ");
        }
    });
    let gateway = prior_knowledge(server.address, "");
    with_client(&gateway, |client| async move {
        let request = Request::get("http://shop.test/").body(()).expect("whole");
        let mut client = client.ready().await.expect("ready");
        let (mut answer, _) = client.send_request(request, true).expect("sent");
        let hint = poll_fn(|context| answer.poll_informational(context)).await;
        assert_eq!(hint.expect("a hint").expect("no error").headers()["x"], "a");
        assert_eq!(answer.await.expect("an answer").headers()["x"], "b");
    });
}

#[test]
fn a_length_with_leading_zeros_arrives_without() {
    let server = Http2Server::start(None);
    let gateway = prior_knowledge(server.address, "");
    let mut client = Client::new(gateway.web());
    for (written, body) in [("0003", "abc"), ("000", "")] {
        client.send(head("POST", "/", &[("Content-Length", written)]) + body);
        let text = client.read("POST").text();
        let length = format!("content-length: {}", body.len());
        assert!(text.contains(&length) && !text.contains(written), "{text}");
    }
}

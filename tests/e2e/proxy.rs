//! The proxy over real sockets: what passes, in which form, and what does not.

use crate::common::{
    Gateway, connect, curl,
    http::{self, Client, head},
    upstream::{self, Script},
    yaml,
};
use std::{
    io::{Read, Write},
    process::Command,
    sync::mpsc,
};

const ALL: &str = "  - { name: all, match: { path_prefix: / }, upstream: up }";

fn all_to(upstream: &Script) -> Gateway {
    Gateway::start(&yaml(upstream.address, ALL))
}

/// What the upstream saw of a field, from [`upstream::echo`]'s answer.
fn seen(answer: &http::Answer, name: &str) -> Vec<String> {
    answer.json()["headers"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|pair| pair[0].as_str().is_some_and(|key| key.eq_ignore_ascii_case(name)))
        .map(|pair| pair[1].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn a_request_reaches_the_upstream_and_its_answer_the_client() {
    let upstream = upstream::echo();
    let gateway = all_to(&upstream);
    let answer = http::get(gateway.web(), "/a/b?c=d&e=%20f");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["line"], "GET /a/b?c=d&e=%20f HTTP/1.1");
    assert_eq!(seen(&answer, "host"), ["gateway.test"]);
}

#[test]
fn a_target_is_sent_on_without_its_fragment_and_with_a_path() {
    let upstream = upstream::echo();
    let gateway = all_to(&upstream);
    let mut client = Client::new(gateway.web());
    for (method, target, sent) in
        [("GET", "/x#part", "GET /x"), ("OPTIONS", "http://b.test", "OPTIONS /")]
    {
        client.send(format!("{method} {target} HTTP/1.1\r\nHost: b.test\r\n\r\n"));
        assert_eq!(client.read(method).json()["line"], format!("{sent} HTTP/1.1"));
    }
}

#[test]
fn the_upstream_learns_the_client_of_a_request_and_lies_are_replaced() {
    let upstream = upstream::echo();
    let gateway = all_to(&upstream);
    let answer = Client::new(gateway.web()).request(
        "GET",
        "/",
        &[
            ("X-Forwarded-For", "6.6.6.6"),
            ("X-Forwarded-Proto", "https"),
            ("Forwarded", "for=6.6.6.6"),
        ],
    );
    assert_eq!(seen(&answer, "x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(seen(&answer, "x-forwarded-proto"), ["http"]);
    assert_eq!(seen(&answer, "x-forwarded-host"), ["gateway.test"]);
    assert!(seen(&answer, "forwarded").is_empty());
}

#[test]
fn a_trusted_proxy_is_believed_and_added_to() {
    let upstream = upstream::echo();
    let trusted = format!("trusted_proxies: [127.0.0.0/8]\n{}", yaml(upstream.address, ALL));
    let gateway = Gateway::start(&trusted);
    let answer = Client::new(gateway.web()).request(
        "GET",
        "/",
        &[("X-Forwarded-For", "198.51.100.7"), ("X-Forwarded-Proto", "https")],
    );
    assert_eq!(seen(&answer, "x-forwarded-for").join(", "), "198.51.100.7, 127.0.0.1");
    assert_eq!(seen(&answer, "x-forwarded-proto"), ["https"]);
}

#[test]
fn hop_by_hop_fields_are_removed_both_ways() {
    let upstream = Script::answering(|request| {
        let seen = [
            "keep-alive",
            "proxy-authorization",
            "te",
            "x-named",
            "upgrade",
            "connection",
            "http2-settings",
        ]
        .iter()
        .filter(|name| request.header(name).is_some())
        .copied()
        .collect::<Vec<_>>()
        .join(",");
        format!(
            "HTTP/1.1 200 OK\r\nConnection: x-secret\r\nX-Secret: 1\r\nKeep-Alive: timeout=5\r\n\
             Proxy-Authenticate: Basic\r\nContent-Length: {}\r\n\r\n{seen}",
            seen.len()
        )
        .into_bytes()
    });
    let gateway = all_to(&upstream);
    let answer = Client::new(gateway.web()).request(
        "GET",
        "/",
        &[
            ("Connection", "keep-alive, X-Named"),
            ("X-Named", "1"),
            ("Keep-Alive", "timeout=5"),
            ("Proxy-Authorization", "Basic x"),
            ("TE", "gzip"),
            ("Upgrade", "h2c"),
            ("HTTP2-Settings", "AAMAAABkAAQAAP__"),
        ],
    );
    assert_eq!(answer.text(), "");
    for name in ["x-secret", "keep-alive", "proxy-authenticate"] {
        assert_eq!(answer.header(name), None, "{name}");
    }
}

#[test]
fn connection_cannot_take_away_what_the_upstream_relies_on() {
    let upstream = upstream::echo();
    let gateway = all_to(&upstream);
    let answer = Client::new(gateway.web()).request(
        "GET",
        "/",
        &[("Connection", "close, X-Forwarded-For, Host, Cookie"), ("Cookie", "a=b")],
    );
    assert_eq!(seen(&answer, "x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(seen(&answer, "host"), ["gateway.test"]);
    assert_eq!(seen(&answer, "cookie"), ["a=b"]);
}

#[test]
fn answers_without_a_body_keep_the_connection() {
    let upstream = Script::answering(|request| match request.path() {
        "/204" => b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(),
        "/304" => {
            b"HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\nContent-Length: 10\r\n\r\n".to_vec()
        }
        _ if request.line.starts_with("HEAD") => {
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n".to_vec()
        }
        _ => upstream::ok("hello"),
    });
    let gateway = all_to(&upstream);
    let mut client = Client::new(gateway.web());
    assert_eq!(client.get("/204").status, 204);
    let unchanged = client.get("/304");
    assert_eq!((unchanged.status, unchanged.header("etag")), (304, Some("\"x\"")));
    let head = client.request("HEAD", "/", &[]);
    assert_eq!((head.status, head.header("content-length")), (200, Some("5")));
    assert_eq!(client.get("/").text(), "hello");
    assert_eq!(upstream.connections(), 1, "the upstream's connection was kept as well");
}

#[test]
fn bodies_are_framed_anew_and_arrive_whole() {
    let upstream = upstream::echo();
    let gateway = all_to(&upstream);
    let mut client = Client::new(gateway.web());
    client.send(head("POST", "/", &[("Content-Length", "5")]) + "hello");
    assert_eq!(client.read("POST").json()["body"], 5);
    client.send(
        head("POST", "/", &[("Transfer-Encoding", "chunked")])
            + "3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n",
    );
    let chunked = client.read("POST");
    assert_eq!(chunked.json()["body"], 5);
    assert_eq!(seen(&chunked, "transfer-encoding"), ["chunked"]);
    client.send(head("POST", "/", &[("Content-Length", "0")]));
    assert_eq!(client.read("POST").json()["body"], 0);
    // Methods that seldom have a body are no exception, in either version.
    client.send(head("GET", "/", &[("Transfer-Encoding", "chunked")]) + "3\r\nabc\r\n0\r\n\r\n");
    assert_eq!(client.read("GET").json()["body"], 3);
    let url = format!("http://{}/", gateway.web());
    let line = format!("printf hello | curl -s --http2-prior-knowledge -X GET -T - {url}");
    let out = Command::new("sh").args(["-c", &line]).output().expect("curl runs").stdout;
    assert!(String::from_utf8_lossy(&out).contains("\"body\":5"));
}

#[test]
fn a_body_streams_while_the_client_still_sends() {
    let (sender, arrived) = mpsc::channel();
    let upstream = Script::start(move |_, mut connection| {
        let request = connection.read_head().expect("a head");
        assert_eq!(request.header("content-length"), Some("10"));
        let mut first = [0; 5];
        connection.stream.read_exact(&mut first).expect("the first half");
        sender.send(first).expect("the test waits");
        let mut rest = [0; 5];
        connection.stream.read_exact(&mut rest).expect("the second half");
        connection.write(upstream::ok("done"));
    });
    let gateway = all_to(&upstream);
    let mut client = Client::new(gateway.web());
    client.send(head("POST", "/", &[("Content-Length", "10")]) + "01234");
    assert_eq!(&arrived.recv_timeout(crate::common::PATIENCE).expect("it streams"), b"01234");
    client.send("56789");
    assert_eq!(client.read("POST").text(), "done");
}

#[test]
fn an_answer_streams_while_the_upstream_still_sends() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let upstream = Script::start(move |_, mut connection| {
        connection.read().expect("a request");
        connection.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n");
        wait.lock()
            .expect("no panic")
            .recv_timeout(crate::common::PATIENCE)
            .expect("the test goes on");
        connection.write("6\r\nsecond\r\n0\r\n\r\n");
    });
    let gateway = all_to(&upstream);
    let mut client = Client::new(gateway.web());
    client.send(head("GET", "/", &[]));
    let answer = client.read_head().expect("a head");
    assert_eq!(answer.header("transfer-encoding"), Some("chunked"));
    let mut chunk = [0; 10];
    client.stream.read_exact(&mut chunk).expect("the first chunk before the second is sent");
    assert_eq!(&chunk, b"5\r\nfirst\r\n");
    go.send(()).expect("the upstream waits");
    let mut rest = [0; 16];
    client.stream.read_exact(&mut rest).expect("the rest");
    assert_eq!(&rest, b"6\r\nsecond\r\n0\r\n\r\n");
}

#[test]
fn trailers_pass_where_both_sides_agreed_on_them() {
    let upstream = Script::answering(|request| {
        let asked = request.header("te").unwrap_or_default().to_owned();
        format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\nX-Asked: {asked}\r\n\r\n\
             2\r\nhi\r\n0\r\nx-sum: 42\r\n\r\n"
        )
        .into_bytes()
    });
    let gateway = all_to(&upstream);
    let answer = Client::new(gateway.web()).request("GET", "/", &[("TE", "trailers")]);
    assert_eq!(answer.header("x-asked"), Some("trailers"));
    assert_eq!(answer.trailers, [("x-sum".to_owned(), "42".to_owned())]);
    let without = http::get(gateway.web(), "/");
    assert!(without.complete && without.trailers.is_empty());
}

#[test]
fn an_answer_ends_with_its_trailers() {
    let upstream = Script::answering(|_| {
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n\
          2\r\nhi\r\n0\r\nx-sum: 42\r\n\r\n"
            .to_vec()
    });
    let routes = "  - { name: all, match: { path_prefix: / }, upstream: up, flow: [{ name: r, concurrency: 9 }] }";
    let gateway =
        Gateway::start(&yaml(upstream.address, routes).replace("workers: 2", "workers: 1"));
    let mut client = Client::new(gateway.web());
    for fields in [&[][..], &[("TE", "trailers")], &[]] {
        assert_eq!(client.request("GET", "/", fields).status, 200);
    }
    let completed = || {
        let ends = crate::common::metrics(&gateway, "flowgate_flow_ends_total");
        let completed = ends.iter().filter(|(series, _)| series.contains("completed"));
        completed.map(|(_, count)| count).sum::<f64>()
    };
    crate::common::eventually("all are completed", || (completed() == 3.0).then_some(()));
    assert_eq!(upstream.connections(), 1, "the connection is kept");
}

#[test]
fn trailers_have_no_quotas_where_the_gateway_sends_its_own() {
    let upstream = Script::answering(|_| {
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: ratelimit, ratelimit-policy, x-ratelimit-limit\r\n\r\n\
          2\r\nhi\r\n0\r\nratelimit: \"u\";r=9\r\nratelimit-policy: \"u\";q=9\r\nx-ratelimit-limit: 9\r\n\r\n"
            .to_vec()
    });
    let own = ["ratelimit", "ratelimit-policy", "x-ratelimit-limit"];
    let routes = |limit: &str| {
        format!(
            "  - {{ name: all, match: {{ path_prefix: / }}, upstream: up, flow: [{{ name: r, {limit} }}] }}"
        )
    };
    for (words, limit, passed) in [
        ("draft", "limit: 9/1h", &own[2..]),
        ("legacy", "limit: 9/1h", &[]),
        ("off", "limit: 9/1h", &own),
        ("legacy", "concurrency: 9", &own),
    ] {
        let text = yaml(upstream.address, &routes(limit));
        let gateway = Gateway::start(&format!("headers: {words}\n{text}"));
        let answer = Client::new(gateway.web()).request("GET", "/", &[("TE", "trailers")]);
        let names: Vec<_> = answer.trailers.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, passed, "{words}, {limit}");
    }
}

#[test]
fn trailers_cannot_say_what_the_head_may_not() {
    let upstream = Script::answering(|request| {
        let names: Vec<_> = request.trailers.iter().map(|(name, _)| name.to_lowercase()).collect();
        format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: keep-alive, x-inner, x-seen\r\n\r\n\
             2\r\nhi\r\n0\r\nkeep-alive: timeout=5\r\nx-inner: secret\r\nx-seen: {}\r\n\r\n",
            names.join(" ")
        )
        .into_bytes()
    });
    let routes = "  - name: all\n    match: { path_prefix: / }\n    upstream: up\n    \
                  request_trailers: true\n    \
                  request_headers: { set: { X-Tenant: a }, remove: [X-Secret] }\n    \
                  response_headers: { remove: [X-Inner] }";
    let gateway = Gateway::start(&yaml(upstream.address, routes));
    let forged = "x-forwarded-for x-forwarded-proto x-forwarded-host forwarded x-tenant x-secret \
                  keep-alive proxy-authorization connection cookie";
    let mut client = Client::new(gateway.web());
    for (names, passed) in [(format!("{forged} x-sum"), "x-sum"), (forged.to_owned(), "")] {
        let names: Vec<_> = names.split_whitespace().collect();
        let fields = names.join(": 6.6.6.6\r\n") + ": 6.6.6.6\r\n";
        client.send(
            head(
                "POST",
                "/",
                &[
                    ("Transfer-Encoding", "chunked"),
                    ("TE", "trailers"),
                    ("Trailer", &names.join(", ")),
                ],
            ) + &format!("2\r\nhi\r\n0\r\n{fields}\r\n"),
        );
        let answer = client.read("POST");
        assert_eq!(answer.trailers, [("x-seen".to_owned(), passed.to_owned())]);
    }
}

#[test]
fn expect_100_continue_is_answered_when_the_body_is_wanted_and_not_before() {
    let upstream = upstream::echo();
    let routes = "  - name: once\n    match: { path: /once }\n    upstream: up\n    \
                  flow: [{ name: one, limit: 1/1h, burst: 1 }]\n";
    let gateway = Gateway::start(&yaml(upstream.address, &format!("{routes}{ALL}")));
    let mut client = Client::new(gateway.web());
    client.send(head("POST", "/once", &[("Content-Length", "4"), ("Expect", "100-continue")]));
    assert_eq!(client.read_head().expect("interim").status, 100);
    client.send("body");
    let answer = client.read("POST");
    assert_eq!(answer.json()["body"], 4);
    assert!(seen(&answer, "expect").is_empty());
    let mut rejected = Client::new(gateway.web());
    rejected.send(head("POST", "/once", &[("Content-Length", "4"), ("Expect", "100-continue")]));
    assert_eq!(rejected.read_head().expect("a final answer").status, 429);
}

#[test]
fn interim_answers_do_not_hide_the_final_one() {
    let upstream = Script::answering(|_| {
        let mut answer =
            b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n"
                .to_vec();
        answer.extend(upstream::ok("final"));
        answer
    });
    let gateway = all_to(&upstream);
    let mut client = Client::new(gateway.web());
    assert_eq!(client.get("/").text(), "final");
    assert_eq!(client.get("/").text(), "final");
}

#[test]
fn a_cut_answer_never_looks_complete() {
    let upstream = Script::start(|_, mut connection| {
        let request = connection.read().expect("a request");
        if request.path() == "/length" {
            connection.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
        } else {
            connection.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
        }
    });
    let gateway = all_to(&upstream);
    for path in ["/length", "/chunked"] {
        let answer = http::get(gateway.web(), path);
        assert_eq!((answer.status, answer.complete), (200, false), "{path}");
    }
}

#[test]
fn what_could_be_read_in_two_ways_is_rejected() {
    let upstream = upstream::echo();
    let gateway = all_to(&upstream);
    for (what, request) in [
        ("no host", "GET / HTTP/1.1\r\n\r\n"),
        ("two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
        ("an empty host", "GET / HTTP/1.1\r\nHost:\r\n\r\n"),
        ("a host that is none", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"),
        (
            "two lengths",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        ),
        ("a signed length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\na"),
        (
            "a length and a coding",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        (
            "another coding",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        ),
        (
            "a coding twice",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        (
            "chunked under 1.0",
            "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        ("a space before the colon", "GET / HTTP/1.1\r\nHost : a\r\n\r\n"),
        ("a folded field", "GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n"),
        ("dots", "GET /a/../b HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("encoded dots", "GET /a/%2e%2e/b HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("dots beside an encoded slash", "GET /a%2f..%2fb HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("an encoded zero", "GET /a%00b HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("a backslash", "GET /a%5cb HTTP/1.1\r\nHost: a\r\n\r\n"),
    ] {
        let answer = http::raw(gateway.web(), request);
        assert!(matches!(answer.map(|answer| answer.status), Some(400 | 501) | None), "{what}");
    }
    assert_eq!(upstream.connections(), 0, "none of it reached the upstream");
}

#[test]
fn connect_and_trace_are_rejected() {
    let upstream = upstream::echo();
    let gateway = all_to(&upstream);
    for request in
        ["CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n"]
    {
        assert_eq!(http::raw(gateway.web(), request).expect("an answer").status, 405, "{request}");
    }
}

#[test]
fn oversized_requests_are_rejected_with_their_status() {
    let upstream = upstream::echo();
    let text = format!(
        "limits: {{ header_bytes: 8KiB, headers: 20, body: 1KB }}\n{}",
        yaml(upstream.address, ALL)
    );
    let gateway = Gateway::start(&text);
    let long = "x".repeat(10_000);
    assert_eq!(Client::new(gateway.web()).request("GET", "/", &[("X", &long)]).status, 431);
    let many: Vec<_> = (0..30).map(|_| ("X", "y")).collect();
    assert_eq!(Client::new(gateway.web()).request("GET", "/", &many).status, 431);
    let url = format!("http://{}/", gateway.web());
    let over_http2 = |fields: usize| {
        let fields = (0..fields).flat_map(|i| ["-H".to_owned(), format!("x-{i}: y")]);
        let fields: Vec<_> = fields.collect();
        let mut arguments = vec!["--http2-prior-knowledge", "-w", "%{http_code}"];
        arguments.extend(["-o", "/dev/null", url.as_str()]);
        arguments.extend(fields.iter().map(String::as_str));
        curl(&arguments)
    };
    assert_eq!(over_http2(10), "200");
    assert_eq!(over_http2(30), "431");
    let mut declared = Client::new(gateway.web());
    declared.send(head("POST", "/", &[("Content-Length", "1001")]));
    let too_long = declared.read("POST");
    assert_eq!(too_long.status, 413);
    assert_eq!(too_long.json()["detail"], "the request body is longer than this route accepts");
    let mut chunked = Client::new(gateway.web());
    chunked.send(head("POST", "/", &[("Transfer-Encoding", "chunked")]));
    let block = format!("200\r\n{}\r\n", "x".repeat(512));
    for _ in 0..3 {
        // The gateway may close before all is sent.
        drop(chunked.stream.get_mut().write_all(block.as_bytes()));
    }
    assert_eq!(chunked.read("POST").status, 413);
    let mut fits = Client::new(gateway.web());
    fits.send(head("POST", "/", &[("Content-Length", "1000")]) + &"x".repeat(1000));
    assert_eq!(fits.read("POST").json()["body"], 1000);
}

#[test]
fn http2_by_prior_knowledge_is_served() {
    let upstream = upstream::echo();
    let gateway = all_to(&upstream);
    let url = format!("http://{}/h2?x=1", gateway.web());
    let out =
        curl(&["--http2-prior-knowledge", "-w", "\n%{http_version}", "-H", "cookie: a=1", &url]);
    let (body, version) = out.rsplit_once('\n').expect("two lines");
    assert_eq!(version, "2");
    let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(body["line"], "GET /h2?x=1 HTTP/1.1");
    let out = curl(&["--http2-prior-knowledge", "-d", "hello", "-o", "-", &url]);
    assert!(out.contains("\"body\":5"), "{out}");
}

#[test]
fn http10_is_served_and_closed() {
    let upstream = upstream::echo();
    let gateway = all_to(&upstream);
    let mut client = Client::new(gateway.web());
    client.send("GET /old HTTP/1.0\r\n\r\n");
    assert_eq!(client.read("GET").json()["line"], "GET /old HTTP/1.1");
    assert!(client.is_closed());
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let upstream = upstream::echo();
    let gateway = all_to(&upstream);
    let mut client = Client::new(gateway.web());
    client.send((0..5).map(|i| head("GET", &format!("/{i}"), &[])).collect::<String>());
    for i in 0..5 {
        assert_eq!(client.read("GET").json()["line"], format!("GET /{i} HTTP/1.1"));
    }
}

#[test]
fn a_client_that_leaves_frees_the_upstream_and_the_permit() {
    let (sender, left) = mpsc::channel();
    let (arrived, arrival) = mpsc::channel();
    let upstream = Script::start(move |_, mut connection| {
        connection.read().expect("a request");
        arrived.send(()).expect("the test waits");
        let mut byte = [0];
        let end = connection.stream.read(&mut byte);
        sender.send(matches!(end, Ok(0) | Err(_))).expect("the test waits");
    });
    let routes = "  - { name: all, match: { path_prefix: / }, upstream: up, flow: [{ name: one, concurrency: 1 }] }";
    let gateway = Gateway::start(&yaml(upstream.address, routes));
    let mut stream = connect(gateway.web());
    stream.write_all(head("GET", "/", &[]).as_bytes()).expect("sent");
    let in_flight =
        || -> f64 { crate::common::metrics(&gateway, "flowgate_flow_in_flight").values().sum() };
    // In flight it is before that, and a client that leaves then is none that the upstream saw.
    arrival.recv_timeout(crate::common::PATIENCE).expect("the request arrives");
    assert!((in_flight() - 1.0).abs() < f64::EPSILON);
    assert_eq!(http::get(gateway.web(), "/").status, 503);
    drop(stream);
    assert!(left.recv_timeout(crate::common::PATIENCE).expect("the upstream notices"));
    crate::common::eventually("the permit is back", || (in_flight() == 0.0).then_some(()));
}

#[test]
fn a_head_request_gets_the_length_of_our_own_answer_over_either_version() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(
        upstream.address,
        "  - { name: one, match: { path: /there }, upstream: up }",
    ));
    let mut client = Client::new(gateway.web());
    let head = client.request("HEAD", "/missing", &[]);
    assert_eq!(head.status, 404);
    assert!(head.header("content-length").is_some_and(|length| length != "0"));
    assert_eq!(client.get("/there").status, 200, "nothing follows the head");
    let url = format!("http://{}/missing", gateway.web());
    let out =
        curl(&["--http2-prior-knowledge", "-I", "-w", "%{http_code}", "-o", "/dev/null", &url]);
    assert_eq!(out, "404");
}

#[test]
fn a_body_that_is_too_long_costs_no_budget() {
    let upstream = upstream::echo();
    let routes = "  - name: all\n    match: { path_prefix: / }\n    upstream: up\n    \
                  flow: [{ name: one, limit: 1/1h, burst: 1 }]";
    let text = format!("limits: {{ body: 10B }}\n{}", yaml(upstream.address, routes));
    let gateway = Gateway::start(&text);
    let mut client = Client::new(gateway.web());
    client.send(head("POST", "/", &[("Content-Length", "11")]));
    assert_eq!(client.read("POST").status, 413);
    assert_eq!(http::get(gateway.web(), "/").status, 200);
}

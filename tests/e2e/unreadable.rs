//! Requests that cannot be read: each gets an answer with the reason, and is
//! counted and logged, in either version.

use crate::common::{
    Gateway, eventually,
    http::{self, Client, head},
    http2, metrics, upstream, yaml,
};

const ALL: &str = "  - { name: all, match: { path_prefix: / }, upstream: up }";

fn rejected(gateway: &Gateway, reason: &str) -> f64 {
    let all = metrics(gateway, "flowgate_http_rejected_total");
    all.iter().find(|(series, _)| series.contains(reason)).map_or(0.0, |(_, count)| *count)
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn what_http_1_cannot_be_read_is_answered_counted_and_logged() {
    let upstream = upstream::echo();
    let limits = "access_log: access.log\nlimits: { header_bytes: 8KiB, headers: 20 }\n";
    let text = format!("{limits}{}", yaml(upstream.address, ALL));
    let gateway = Gateway::start(&text.replace("workers: 2", "workers: 1"));
    let value = "x".repeat(10_000);
    let target = "x".repeat(70_000);
    let many = "x: y\r\n".repeat(30);
    let cases = [
        ("\x16\x03\x01\x02\0\x01\0\r\n\r\n".to_owned(), 400, "without `tls`"),
        ("G\"T / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400, "method"),
        ("GET a{b HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400, "target"),
        ("GET / HTTP/3.0\r\nHost: a\r\n\r\n".to_owned(), 505, "version"),
        ("GET /echo\r\n\r\n".to_owned(), 400, "the HTTP version is missing"),
        ("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400, "the target has a blank"),
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n".to_owned(), 400, "header line"),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n".to_owned(),
            400,
            "Content-Length",
        ),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: x\r\n\r\n".to_owned(), 400, "chunked"),
        ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(), 400, "HTTP/1.0"),
        (
            format!("GET / HTTP/1.1\r\nHost: a\r\nX: {value}\r\n\r\n"),
            431,
            "larger than `limits.header_bytes` allows",
        ),
        (
            format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n"),
            431,
            "has more lines than `limits.headers` allows",
        ),
        (format!("GET /{target} HTTP/1.1\r\nHost: a\r\n\r\n"), 414, "`limits.header_bytes`"),
    ];
    for (request, status, word) in &cases {
        let mut client = Client::new(gateway.web());
        // An answer to what was asked before, and the one to this, are two.
        assert_eq!(client.get("/").status, 200);
        client.send(request);
        let answer = client.read("GET");
        assert_eq!((answer.status, answer.header("connection")), (*status, Some("close")));
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        assert!(answer.header("date").is_some());
        let detail = answer.json()["detail"].as_str().expect("a detail").to_owned();
        assert!(detail.contains(word), "{detail}");
        assert!(client.is_closed());
    }
    // A connection counts when it ends, which its client may see first.
    let counted = || (rejected(&gateway, "malformed"), rejected(&gateway, "too_large"));
    eventually("all are counted", || (counted() == (10.0, 3.0)).then_some(()));
    gateway.wait_log("request rejected: ");
    let errors = eventually("the access log is written", || {
        let log = std::fs::read_to_string(gateway.dir.path().join("access.log")).ok()?;
        let errors: Vec<_> = log
            .lines()
            .filter_map(|line| {
                // The last line may be there in part.
                let line: serde_json::Value = serde_json::from_str(line).ok()?;
                Some((line["status"].as_u64()?, line["error"].as_str()?.to_owned()))
            })
            .collect();
        (errors.len() == cases.len()).then_some(errors)
    });
    for ((_, status, word), (logged, error)) in cases.iter().zip(errors) {
        assert!(u64::from(*status) == logged && error.contains(word), "{word}: {logged} {error}");
    }
}

#[test]
fn a_pipelined_request_that_cannot_be_read_is_answered_behind_the_others() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(upstream.address, ALL));
    let mut client = Client::new(gateway.web());
    client.send(head("GET", "/1", &[]) + &head("GET", "/2", &[]) + "GET /3?\" x\r\n\r\n");
    for path in ["/1", "/2"] {
        assert_eq!(client.read("GET").json()["line"], format!("GET {path} HTTP/1.1"));
    }
    assert_eq!(client.read("GET").status, 400);
    assert!(client.is_closed());
}

#[test]
fn what_http_2_cannot_be_read_is_a_400_on_its_stream_and_the_others_go_on() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(upstream.address, ALL));
    let mut client = http2::Client::new(gateway.web());
    for (turn, path) in ["/?q=\"a\"", "/?<", "/<>`", "/?q=\"b\""].iter().enumerate() {
        let stream = 4 * u32::try_from(turn).expect("few") + 1;
        client.get(stream, path, &[]);
        let frames = client.answer(stream);
        assert_eq!((frames.len(), frames[0].kind, frames[0].payload[0]), (1, 1, 0x8c));
        let header = String::from_utf8_lossy(&frames[0].payload);
        for part in [
            "proxy-status",
            "one possible cause",
            r#"\" as %22"#,
            "< as %3C",
            "> as %3E",
            "backtick as %60",
        ] {
            assert!(header.contains(part), "{part}: {header}");
        }
        client.get(stream + 2, "/fine", &[]);
        assert!(http2::body(&client.answer(stream + 2)).contains("GET /fine"), "{path}");
    }
    eventually("all are counted", || (rejected(&gateway, "malformed") == 4.0).then_some(()));
    let line = gateway.wait_log("`%22`");
    assert!(line.contains("One possible cause"), "{line}");
    let url = format!("http://{}/?q=\"a\"", gateway.web());
    let shown = crate::common::curl(&["-i", "--http2-prior-knowledge", &url]);
    assert!(shown.starts_with("HTTP/2 400") && shown.contains("%22"), "{shown}");
}

/// A malformed request of HTTP/2, by its fields (RFC 9113, 8.2 and 8.3).
const MALFORMED_FIELDS: &[(&str, &[(&str, &str)])] = &[
    ("a pseudo-header field of responses", &[METHOD, SCHEME, PATH, (":status", "200")]),
    ("a pseudo-header field behind others", &[METHOD, SCHEME, ("x", "y"), PATH]),
    ("a field of the connection", &[METHOD, SCHEME, PATH, ("connection", "keep-alive")]),
    ("TE with another value", &[METHOD, SCHEME, PATH, ("te", "trailers, deflate")]),
    ("an empty path", &[METHOD, SCHEME, (":path", "")]),
    ("no method", &[SCHEME, PATH]),
    ("no scheme", &[METHOD, PATH]),
    ("no path", &[METHOD, SCHEME, (":authority", "a")]),
    ("two methods", &[METHOD, METHOD, SCHEME, PATH]),
    ("two schemes", &[METHOD, SCHEME, SCHEME, PATH]),
    ("two paths", &[METHOD, SCHEME, PATH, PATH]),
];

const METHOD: (&str, &str) = (":method", "GET");
const SCHEME: (&str, &str) = (":scheme", "http");
const PATH: (&str, &str) = (":path", "/");

/// Expects a 400, and behind it a reset with `PROTOCOL_ERROR`.
#[track_caller]
fn expect_rejected(client: &mut http2::Client, stream: u32, name: &str) {
    let frames = client.answer(stream);
    assert_eq!((frames[0].kind, frames[0].payload.first()), (1, Some(&0x8c)), "{name}");
    let reset = client.read_of(stream).unwrap_or_else(|| panic!("{name}: the stream is reset"));
    assert_eq!((reset.kind, &*reset.payload), (3, &[0, 0, 0, 1][..]), "{name}");
}

#[test]
fn a_malformed_request_of_http_2_gets_a_400_and_a_reset_behind_it() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(upstream.address, ALL));
    let mut client = http2::Client::new(gateway.web());
    let mut streams = (0..).map(|turn| 2 * turn + 1);
    let mut next = || streams.next().expect("without end");

    for (name, fields) in MALFORMED_FIELDS {
        let stream = next();
        client.fields(stream, fields, true);
        expect_rejected(&mut client, stream, name);
    }

    let depends_on_itself = next();
    let priority = [&depends_on_itself.to_be_bytes()[..], &[15]].concat();
    let payload = [&priority, &http2::block(&[METHOD, SCHEME, PATH])[..]].concat();
    client.send(1, 0x25, depends_on_itself, &payload);
    expect_rejected(&mut client, depends_on_itself, "a stream that depends on itself");

    let second_header = next();
    client.post(second_header, "/", "5");
    client.fields(second_header, &[("x", "y")], false);
    expect_rejected(&mut client, second_header, "a second header that does not end the stream");

    let shorter = next();
    client.post(shorter, "/", "5");
    client.last_data(shorter, b"abc");
    expect_rejected(&mut client, shorter, "a body that is shorter than announced");

    let longer = next();
    client.post(longer, "/", "5");
    client.data(longer, b"abc");
    client.last_data(longer, b"def");
    expect_rejected(&mut client, longer, "a body that is longer than announced");

    let fine = next();
    client.get(fine, "/fine", &[]);
    assert!(http2::body(&client.answer(fine)).contains("GET /fine"), "the connection goes on");
}

#[test]
fn an_http_2_upload_that_its_client_breaks_off_after_the_answer_is_not_malformed() {
    let upstream = upstream::echo();
    let route = "  - { name: all, match: { path_prefix: / }, upstream: up, body_limit: 1KiB }";
    let text = format!("access_log: access.log\n{}", yaml(upstream.address, route));
    let gateway = Gateway::start(&text);
    let mut client = http2::Client::new(gateway.web());
    client.post(1, "/", "5000");
    assert!(http2::body(&client.answer(1)).contains("longer than this route accepts"));
    // The end of a body that is shorter than announced.
    client.last_data(1, b"abc");
    let reset = client.read_of(1).expect("the stream is reset");
    assert_eq!((reset.kind, &*reset.payload), (3, &[0, 0, 0, 1][..]));
    // One that has no answer yet is malformed, and is written behind it.
    client.post(3, "/", "500");
    client.last_data(3, b"abc");
    assert_eq!(client.answer(3)[0].payload.first(), Some(&0x8c));
    eventually("the second one is counted", || {
        (rejected(&gateway, "malformed") == 1.0).then_some(())
    });
    let log = eventually("the access log is written", || {
        let log = std::fs::read_to_string(gateway.dir.path().join("access.log")).ok()?;
        log.contains("\"error\":\"HTTP/2").then_some(log)
    });
    assert_eq!(log.matches("\"error\":\"HTTP/2").count(), 1, "{log}");
}

#[test]
fn a_large_header_of_http_2_is_answered_counted_and_logged() {
    let upstream = upstream::echo();
    let text = format!("limits: {{ header_bytes: 8KiB }}\n{}", yaml(upstream.address, ALL));
    let gateway = Gateway::start(&text);
    let mut client = http2::Client::new(gateway.web());
    client.get(1, "/", &[("x", &"y".repeat(7_000))]);
    assert!(http2::body(&client.answer(1)).contains("GET / "));
    client.get(3, "/", &[("x", &"y".repeat(9_000))]);
    assert!(http2::body(&client.answer(3)).contains("`limits.header_bytes`"));
    eventually("it is counted", || (rejected(&gateway, "too_large") == 1.0).then_some(()));
    // So much that h2 rejects it by itself.
    for stream in [5, 7] {
        client.get(stream, "/", &[("x", &"y".repeat(30_000))]);
        let frames = client.answer(stream);
        assert_eq!((frames.len(), frames[0].kind), (1, 1), "{frames:?}");
    }
    eventually("both are counted", || (rejected(&gateway, "too_large") == 3.0).then_some(()));
}

#[test]
fn fields_of_http_2_are_passed_on_as_http_1_has_them() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(upstream.address, ALL));
    let mut client = http2::Client::new(gateway.web());
    client.get(1, "/", &[("x-t", "\tv"), ("x-u", " v \t"), ("x-w", "a b")]);
    let answer = http2::body(&client.answer(1));
    for pair in ["[\"x-t\",\"v\"]", "[\"x-u\",\"v\"]", "[\"x-w\",\"a b\"]"] {
        assert!(answer.contains(pair), "{answer}");
    }
    client.get(3, "/", &[("content-length", "")]);
    assert!(http2::body(&client.answer(3)).contains("Content-Length is empty"));
    client.get(5, "#x", &[]);
    assert!(http2::body(&client.answer(5)).contains("\"GET / HTTP/1.1\""));
}

#[test]
fn all_cookies_of_a_browser_are_one_field() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(upstream.address, ALL));
    let mut client = http2::Client::new(gateway.web());
    let cookies: Vec<_> = (0..170).map(|number| format!("name{number}=value{number}")).collect();
    let mut fields: Vec<_> = cookies.iter().map(|cookie| ("cookie", &**cookie)).collect();
    client.get(1, "/", &fields);
    let answer = http2::body(&client.answer(1));
    assert!(answer.contains(&format!("[\"cookie\",\"{}\"]", cookies.join("; "))), "{answer}");
    // With the cookies, they are 100 fields, and then 101.
    fields.extend([("x", "y"); 99]);
    client.get(3, "/", &fields);
    assert!(http2::body(&client.answer(3)).contains("\"GET / HTTP/1.1\""));
    fields.push(("x", "y"));
    client.get(5, "/", &fields);
    assert!(http2::body(&client.answer(5)).contains("`limits.headers`"));
    // Their size counts as before.
    let large = "x".repeat(300);
    client.get(7, "/", &[("cookie", &*large); 120]);
    assert!(http2::body(&client.answer(7)).contains("`limits.header_bytes`"));
}

#[test]
fn an_answer_with_too_many_fields_is_logged_with_its_limit() {
    let upstream = upstream::Script::answering(|_| {
        let cookies = "Set-Cookie: a=b\r\n".repeat(120);
        format!("HTTP/1.1 200 OK\r\n{cookies}Content-Length: 2\r\n\r\nok").into_bytes()
    });
    let text = format!("access_log: access.log\n{}", yaml(upstream.address, ALL));
    let gateway = Gateway::start(&text);
    let answer = http::get(gateway.web(), "/");
    assert_eq!(answer.status, 502);
    assert!(answer.text().contains("`limits` of the upstream"), "{}", answer.text());
    gateway
        .wait_log("answer rejected: its header is larger than `limits` of the upstream up allows");
    eventually("the access log has it", || {
        let log = std::fs::read_to_string(gateway.dir.path().join("access.log")).ok()?;
        log.contains("`limits` of the upstream").then_some(())
    });
    let wide = text.replace("{ name: up, ", "{ name: up, limits: { headers: 200 }, ");
    assert_ne!(wide, text, "the upstream is written so");
    gateway.edit(&wide);
    let answer = http::get(gateway.web(), "/");
    assert_eq!(
        (answer.status, answer.headers.iter().filter(|(name, _)| name == "set-cookie").count()),
        (200, 120)
    );
}

//! Compression of responses: by what clients accept, of what may change, and beside nginx's gzip.

use crate::{
    common::{
        Gateway,
        browser::Browser,
        curl,
        http::{Answer, Client},
        upstream::{Connection, Request, Script, ok},
        yaml,
    },
    import::pair_of,
};
use std::{
    io::Read,
    sync::{Arc, Condvar, Mutex},
};

/// A text that shrinks, as pages do.
fn page(length: usize) -> String {
    let lines = (0..).flat_map(|number| format!("<p>line {number} of a page</p>\n").into_bytes());
    String::from_utf8(lines.take(length).collect()).expect("ASCII")
}

/// Answers with a page that the query describes: `type`, `length`, `status`, `field` (a line to add), and
/// `chunked`.
fn pages() -> Script {
    Script::answering(described)
}

fn described(request: &Request) -> Vec<u8> {
    let query = request.path().split_once('?').map_or("", |(_, query)| query);
    let of = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let value = pairs.find(|(known, _)| *known == name).map(|(_, value)| value);
        value.map(|value| value.replace('+', " ").replace('~', "+"))
    };
    let body = page(of("length").map_or(4000, |length| length.parse().expect("a number")));
    let status = of("status").unwrap_or_else(|| "200".to_owned());
    let media = of("type").unwrap_or_else(|| "text/html".to_owned());
    let field = of("field").map_or_else(String::new, |field| format!("{field}\r\n"));
    let head = format!(
        "HTTP/1.1 {status} Its Words\r\nContent-Type: {media}\r\nETag: \"a\"\r\nAccept-Ranges: bytes\r\n{field}"
    );
    let is_empty = request.line.starts_with("HEAD ") || matches!(&*status, "204" | "304");
    let body = if is_empty { "" } else { &body };
    if of("chunked").is_some() {
        let chunk = format!("{:x}\r\n{body}\r\n0\r\nx-sum: 1\r\n\r\n", body.len());
        return format!("{head}Trailer: x-sum\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}").into();
    }
    let length =
        if status == "204" { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    format!("{head}{length}\r\n{body}").into()
}

/// The body, decoded as the response says.
fn decoded(answer: &Answer) -> String {
    let mut text = String::new();
    let body = &answer.body[..];
    match answer.header("content-encoding") {
        None => return answer.text(),
        Some("gzip") => flate2::read::GzDecoder::new(body).read_to_string(&mut text),
        Some("br") => brotli::Decompressor::new(body, 4096).read_to_string(&mut text),
        Some("zstd") => zstd::stream::read::Decoder::new(body)
            .and_then(|mut decoder| decoder.read_to_string(&mut text)),
        Some(other) => panic!("{other}"),
    }
    .expect("it is valid");
    text
}

const ROUTES: &str = "  - { name: own, match: { path: /own }, upstream: up, compress: { encodings: [gzip], types: ['image/*', '*/*+json'], min_size: 100B } }
  - name: all
    match: { path_prefix: / }
    upstream: up
    compress: true
    request_trailers: true
";

#[test]
fn a_client_gets_what_it_accepts_and_can_decode_it() {
    let server = pages();
    let gateway = Gateway::start(&yaml(server.address, ROUTES));
    let mut client = Client::new(gateway.web());
    for (accepted, coding) in [
        ("gzip, deflate, br, zstd", Some("zstd")),
        ("gzip, br", Some("br")),
        ("gzip", Some("gzip")),
        ("br;q=0.1, gzip;q=0.2", Some("gzip")),
        ("gzip;q=0", None),
        ("identity", None),
        ("deflate", None),
    ] {
        for path in ["/a?length=100000", "/a?length=100000&chunked=1", "/a?length=1024"] {
            let answer = client.request("GET", path, &[("Accept-Encoding", accepted)]);
            assert_eq!(answer.header("content-encoding"), coding, "{accepted} {path}");
            assert!(answer.complete);
            let length = if path.contains("100000") { 100_000 } else { 1024 };
            assert_eq!(decoded(&answer), page(length));
            assert_eq!(answer.header("vary"), Some("Accept-Encoding"));
            let is_plain = coding.is_none();
            assert_eq!(answer.header("etag"), Some(if is_plain { "\"a\"" } else { "W/\"a\"" }));
            assert_eq!(answer.header("accept-ranges").is_some(), is_plain);
            if !is_plain {
                assert_eq!(answer.header("content-length"), None);
                assert!(answer.body.len() < length / 3, "{}", answer.body.len());
            }
        }
    }

    // Trailers follow a compressed body too.
    let fields = [("Accept-Encoding", "gzip"), ("TE", "trailers")];
    let answer = client.request("GET", "/a?chunked=1", &fields);
    assert_eq!(answer.trailers, [("x-sum".to_owned(), "1".to_owned())]);
    assert_eq!(decoded(&answer), page(4000));
    assert_eq!(server.connections(), 1, "its connection is used again");
}

#[test]
fn what_must_stay_as_it_came_does() {
    let server = pages();
    let gateway = Gateway::start(&yaml(server.address, ROUTES));
    let mut client = Client::new(gateway.web());
    let mut coding = |method: &str, path: &str, more: &[(&str, &str)]| {
        let fields = [&[("Accept-Encoding", "gzip")], more].concat();
        let answer = client.request(method, path, &fields);
        assert!(answer.complete, "{path}");
        answer.header("content-encoding").map(str::to_owned)
    };
    let gzip = Some("gzip".to_owned());
    for path in ["/a", "/a?status=404", "/a?status=500", "/a?field=Content-Encoding:+identity"] {
        assert_eq!(coding("GET", path, &[]), gzip, "{path}");
    }
    for path in [
        "/a?length=1023",
        "/a?type=image/png",
        "/a?type=application/octet-stream",
        "/a?status=206&field=Content-Range:+bytes+0-3999/9000",
        "/a?status=204",
        "/a?status=304",
        "/a?field=Cache-Control:+no-transform",
        "/a?field=Content-Digest:+sha-256=:a:",
    ] {
        assert_eq!(coding("GET", path, &[]), None, "{path}");
    }
    assert_eq!(
        coding("GET", "/a?field=Content-Encoding:+deflate", &[]).as_deref(),
        Some("deflate")
    );
    assert_eq!(coding("HEAD", "/a", &[]), None);
    assert_eq!(coding("GET", "/a", &[("Cache-Control", "no-transform")]), None);

    assert_eq!(coding("GET", "/own?length=100&type=image/png", &[]), gzip);
    assert_eq!(coding("GET", "/own?type=application/x~json", &[]), gzip);
    assert_eq!(coding("GET", "/own?type=text/html", &[]), None);
    assert_eq!(coding("GET", "/own?length=99&type=image/png", &[]), None);

    // A client of HTTP/1.0 could not see where a body without a length ends.
    let mut old = Client::new(gateway.web());
    old.send("GET /a HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n");
    let answer = old.read("GET");
    assert_eq!((answer.header("content-encoding"), answer.text()), (None, page(4000)));
}

#[test]
fn clients_of_http2_get_it_too() {
    let server = pages();
    let gateway = Gateway::start(&yaml(server.address, ROUTES));
    let url = format!("http://{}/a?length=300000", gateway.web());
    for coding in ["gzip", "br", "zstd"] {
        let accepts = format!("accept-encoding: {coding}");
        let more = ["--http2-prior-knowledge", "-D", "-", "-o", "/dev/null", "-H", &accepts, &url];
        let head = curl(&more);
        assert!(head.contains(&format!("content-encoding: {coding}\r\n")), "{head}");
        assert!(!head.contains("content-length"), "{head}");
        if coding == "gzip" {
            let body = curl(&["--http2-prior-knowledge", "--compressed", &url]);
            assert!(body == page(300_000), "{} bytes", body.len());
        }
    }
}

#[test]
fn the_parts_of_a_stream_do_not_wait() {
    let gate: Arc<(Mutex<usize>, Condvar)> = Arc::default();
    let opened = Arc::clone(&gate);
    let server = Script::start(move |_, mut connection: Connection| {
        if connection.read().is_none() {
            return;
        }
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        connection.write(head).expect("written");
        for number in 0..5 {
            let (lock, condvar) = &*opened;
            let guard = lock.lock().expect("no panic");
            drop(condvar.wait_while(guard, |sent| *sent < number).expect("no panic"));
            let event = format!("data: {number}\n\n");
            connection.write(format!("{:x}\r\n{event}\r\n", event.len())).expect("written");
        }
        connection.write("0\r\n\r\n").expect("written");
    });
    let gateway = Gateway::start(&yaml(server.address, ROUTES));
    {
        let mut client = Client::new(gateway.web());
        client.send("GET /a HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
        let head = client.read_head().expect("a head");
        assert_eq!(head.header("content-encoding"), Some("gzip"));

        let mut encoded = Vec::new();
        for number in 0..5 {
            let expected = format!("data: {number}\n\n");
            let mut text = Vec::new();
            while !text.ends_with(expected.as_bytes()) {
                encoded.extend(client.read_chunk().expect("a chunk"));
                text.clear();
                // The end is missing yet.
                drop(flate2::read::GzDecoder::new(&encoded[..]).read_to_end(&mut text));
            }
            // The next event is sent only after this one was read.
            *gate.0.lock().expect("no panic") = number + 1;
            gate.1.notify_all();
        }
    }
}

#[test]
fn a_response_that_breaks_off_is_not_whole() {
    let server = Script::start(|_, mut connection: Connection| {
        if connection.read().is_some() {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 9000\r\n\r\n";
            connection.write(format!("{head}{}", page(5000))).expect("written");
        }
    });
    let gateway = Gateway::start(&yaml(server.address, ROUTES));
    let answer = Client::new(gateway.web()).request("GET", "/a", &[("Accept-Encoding", "gzip")]);
    assert!(!answer.complete);
}

#[test]
fn a_browser_shows_a_page_in_each_encoding() {
    let server = Script::answering(|request| {
        let body = format!(
            "<!doctype html><title>{}</title>{}",
            request.path().trim_start_matches('/'),
            page(200_000)
        );
        let mut answer = ok(&body);
        let line = b"HTTP/1.1 200 OK\r\n";
        answer.splice(line.len()..line.len(), *b"Content-Type: text/html\r\n");
        answer
    });
    let route = |coding: &str| {
        format!(
            "  - {{ name: {coding}, match: {{ path: /{coding} }}, upstream: up, compress: {{ encodings: {coding} }} }}\n"
        )
    };
    let routes = ["zstd", "br", "gzip"].map(route).concat();
    let gateway = Gateway::start(&yaml(server.address, &routes));
    let mut browser = Browser::start();
    for coding in ["gzip", "br", "zstd"] {
        // A browser takes brotli and zstd from places that it trusts, as 127.0.0.1 is.
        browser.open(&format!("http://{}/{coding}", gateway.web()));
        browser.wait(&format!("document.title === '{coding}'"));
        let lines = browser.value("document.querySelectorAll('p').length");
        assert!(lines.as_u64().is_some_and(|lines| lines > 5000), "{coding}: {lines}");
        let sizes = browser.value(
            "(([entry]) => [entry.encodedBodySize, entry.decodedBodySize])(performance.getEntriesByType('navigation'))",
        );
        let [encoded, plain] = [&sizes[0], &sizes[1]].map(|size| size.as_u64().expect("a size"));
        assert!(plain > 200_000 && encoded * 3 < plain, "{coding}: {sizes}");
    }
}

/// Directives of `http`.
const NGINX: &str = "
    server {
        listen 127.0.0.1:PORT;
        gzip on; gzip_vary on; gzip_proxied any;
        proxy_http_version 1.1; proxy_set_header Host $http_host; proxy_redirect off;
        location / { proxy_pass http://UP; }
        location /types/ { gzip_types text/css application/json; gzip_min_length 2k; proxy_pass http://UP; }
        location /all/ { gzip_types *; proxy_pass http://UP; }
        location /off/ { gzip off; proxy_pass http://UP; }
    }";

/// Pages, as [`pages`] reads them.
const QUERIES: [&str; 17] = [
    "",
    "length=19",
    "length=20",
    "length=2047",
    "length=2048",
    "chunked=1&length=10",
    "chunked=1",
    "type=text/css",
    "type=TEXT/HTML;+charset=utf-8",
    "type=application/json;+charset=utf-8",
    "type=image/png",
    "type=text/htmlx",
    "status=403",
    "status=404",
    "status=304",
    "status=204",
    "field=Content-Encoding:+br",
];

#[test]
fn an_imported_file_compresses_as_nginx_does() {
    let server = pages();
    let pair = pair_of(NGINX, server.address, &[]);
    // nginx does not know `*`.
    let accepts = ["gzip", "gzip;q=0", "br, gzip;q=0.1", "gzip, identity;q=0", "deflate"];
    for (place, query, accepted) in ["/", "/types/", "/all/", "/off/"]
        .iter()
        .flat_map(|place| QUERIES.map(|query| (place, query)))
        .flat_map(|(place, query)| accepts.map(|accepted| (place, query, accepted)))
    {
        let [found, expected] = [pair.gateway, pair.nginx].map(|address| {
            let path = format!("{place}?{query}");
            let fields = [("Accept-Encoding", accepted), ("Via", "1.1 other")];
            let answer = Client::new(address).request("GET", &path, &fields);
            let [coding, etag, vary] = ["content-encoding", "etag", "vary"]
                .map(|name| answer.header(name).map(str::to_owned));
            let is_foreign = coding.as_deref() == Some("br");
            let body = if is_foreign { answer.text() } else { decoded(&answer) };
            (answer.status, coding, etag, vary, body.len(), body == page(body.len()))
        });
        assert_eq!(found, expected, "{place}?{query} {accepted}");
    }
}

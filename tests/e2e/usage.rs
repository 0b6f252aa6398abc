//! Costs by numbers in the response's body, end to end: every API, streaming or not, in gzip or not,
//! over both versions of HTTP, and clients that leave at every point.

use crate::{
    common::{
        Gateway, await_ends,
        http::{self, Client},
        http2, http2_server,
        upstream::{Connection, Script},
    },
    fixtures::{FIXTURES, Fixture, fixture, gzip},
};
use flowgate::usage::{Encoding, Format, Passed, Preset, Queries, Reader, settled};
use std::{
    io::{BufRead, Read},
    net::SocketAddr,
    sync::Arc,
};

/// More than any test uses.
const LIMIT: u64 = 1_000_000;

/// The reserve of each rule.
const RESERVE: u64 = 30;

/// The body of each request.
const REQUEST: &str =
    "{\"model\":\"any\",\"messages\":[{\"role\":\"user\",\"content\":\"Hello!\"}]}";

/// A file with a route for each preset, whose rule counts each case for itself.
fn yaml(upstream: SocketAddr, protocol: &str) -> String {
    let routes: Vec<String> = Preset::ALL
        .into_iter()
        .map(|preset| {
            let name = preset.label();
            format!(
                "  - name: {name}
    match: {{ path_prefix: /{name}/ }}
    upstream: app
    request_headers: {{ remove: accept-encoding }}
    flow:
      - name: {name}
        algorithm: fixed_window
        limit: {LIMIT}/30d
        key: header:x-case
        cost: {{ reserve: {RESERVE}, settle: {name} }}
"
            )
        })
        .collect();
    let routes = routes.concat();
    format!(
        "workers: 2
listeners: [{{ name: web, listen: 127.0.0.1:0 }}]
admin: {{ listen: 127.0.0.1:0 }}
upstreams: [{{ name: app, protocol: {protocol}, servers: [{{ url: 'http://{upstream}' }}] }}]
routes:
{routes}"
    )
}

/// Returns what a case has cost: a further request says how much is left.
fn cost(gateway: &Gateway, preset: Preset, case: &str) -> u64 {
    let path = format!("/{}/probe", preset.label());
    let probe = Client::new(gateway.web()).request("GET", &path, &[("x-case", case)]);
    let field = probe.header("ratelimit").expect("the quota").to_owned();
    let left = field.split(";r=").nth(1).and_then(|rest| rest.split(';').next());
    let left: u64 = left.expect("what is left").parse().expect("a number");
    LIMIT - RESERVE - left
}

fn content_type(fixture: &Fixture) -> &'static str {
    match fixture.format {
        Format::Json => "application/json",
        Format::Lines => "application/x-ndjson",
        Format::Events => "text/event-stream; charset=utf-8",
    }
}

fn head(fixture: &Fixture, fields: &str) -> Vec<u8> {
    let kind = content_type(fixture);
    format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n{fields}\r\n")
        .into_bytes()
}

fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// Returns the fixture whose name is the last segment of a path, and what comes before it.
fn asked(path: &str) -> (&'static Fixture, &str) {
    let mut segments = path.rsplit('/');
    let name = segments.next().expect("a name");
    (fixture(name), segments.next().expect("a kind"))
}

/// A server that responds with a fixture, as its path says: `/PRESET/KIND/NAME`.
fn server() -> Script {
    Script::start(|_, mut connection| {
        while let Some(request) = connection.read() {
            if request.path().ends_with("/probe") {
                connection.write(b"HTTP/1.1 204 No Content\r\n\r\n");
                continue;
            }
            let (fixture, kind) = asked(request.path());
            match kind.split_once('-') {
                Some(("cut", end)) => {
                    let end: usize = end.parse().expect("a length");
                    let begin = [head(fixture, ""), chunk(&fixture.body[..end])].concat();
                    connection.write(begin);
                    // Until the gateway closes it.
                    connection.read();
                    return;
                }
                _ => respond(&mut connection, fixture, kind),
            }
        }
    })
}

fn respond(connection: &mut Connection, fixture: &Fixture, kind: &str) {
    let is_gzip = kind == "gzip";
    let body = if is_gzip { gzip(fixture.body) } else { fixture.body.to_vec() };
    let fields = if is_gzip { "Content-Encoding: gzip\r\n" } else { "" };
    let mut response = head(fixture, fields);
    body.chunks(97).for_each(|piece| response.extend(chunk(piece)));
    let end = if kind == "trailers" { "0\r\nx-checksum: 1\r\n\r\n" } else { "0\r\n\r\n" };
    response.extend(end.as_bytes());
    connection.write(response);
}

/// Returns the cost of a response of which `body` has passed.
fn expected(fixture: &Fixture, body: &[u8], is_whole: bool) -> u64 {
    let queries = Queries::new(&[fixture.preset.query()]).expect("it can be followed");
    let mut reader = Reader::new(Arc::new(queries), fixture.format, Encoding::Identity);
    reader.push(body);
    reader.finish();
    if is_whole {
        assert_eq!(reader.events(), fixture.events);
    }
    let passed = Passed {
        request_bytes: REQUEST.len() as u64,
        response_bytes: body.len() as u64,
        events: reader.events(),
        is_whole,
    };
    settled(&reader.reading(0), &passed, RESERVE, &Preset::otherwise())
}

fn post(path: &str, case: &str) -> String {
    let length = REQUEST.len().to_string();
    http::head("POST", path, &[("x-case", case), ("content-length", &length)]) + REQUEST
}

#[test]
fn every_api_pays_its_tokens_in_every_form() {
    let server = server();
    let gateway = Gateway::start(&yaml(server.address, "h1"));
    for fixture in FIXTURES {
        for kind in ["plain", "gzip", "trailers"] {
            let case = format!("{kind}-{}", fixture.name);
            let path = format!("/{}/{kind}/{}", fixture.preset.label(), fixture.name);
            let mut client = Client::new(gateway.web());
            client.send(post(&path, &case));
            let response = client.read("POST");
            assert_eq!(response.status, 200);
            if kind != "gzip" {
                assert_eq!(response.body, fixture.body, "{case} reaches the client unchanged");
            }
            let expected = expected(fixture, fixture.body, true);
            if let Some(tokens) = fixture.tokens {
                assert_eq!(expected, tokens);
            }
            assert_eq!(cost(&gateway, fixture.preset, &case), expected, "{case}");
        }
    }
}

#[test]
fn a_client_that_leaves_pays_at_least_what_has_passed() {
    let server = server();
    let gateway = Gateway::start(&yaml(server.address, "h1"));
    for fixture in FIXTURES.iter().filter(|fixture| fixture.format != Format::Json) {
        let lines = fixture.body.split_inclusive(|byte| *byte == b'\n');
        let mut end = 0;
        for line in lines {
            // In the middle of the line and behind it.
            for end in [end + line.len() / 2, end + line.len()] {
                if end > 0 && end < fixture.body.len() && line.len() > 1 {
                    check_cut(&gateway, fixture, end);
                }
            }
            end += line.len();
        }
    }
}

fn check_cut(gateway: &Gateway, fixture: &Fixture, end: usize) {
    let case = format!("{}-{end}", fixture.name);
    let path = format!("/{}/cut-{end}/{}", fixture.preset.label(), fixture.name);
    let mut client = Client::new(gateway.web());
    client.send(post(&path, &case));
    assert_eq!(client.read_head().expect("a head").status, 200);

    let mut body = Vec::new();
    while body.len() < end {
        let mut size = String::new();
        client.stream.read_line(&mut size).expect("a chunk");
        let size = usize::from_str_radix(size.trim(), 16).expect("a size");
        let mut part = vec![0; size + 2];
        client.stream.read_exact(&mut part).expect("its data");
        body.extend_from_slice(&part[..size]);
    }
    assert_eq!(body, &fixture.body[..end]);
    drop(client);
    await_ends(gateway);
    let expected = expected(fixture, &fixture.body[..end], false);
    assert_eq!(cost(gateway, fixture.preset, &case), expected, "{case}");
}

#[test]
fn both_sides_may_speak_http2() {
    let server = http2_server::scripted(&[], |_, mut frames| {
        while let Some((stream, request)) = frames.request() {
            // A probe has no body.
            let body: &[u8] = if request.is_empty() { b"{}" } else { fixture("openai.json").body };
            frames.head(stream);
            for piece in body.chunks(200) {
                frames.write(0, 0, stream, piece);
            }
            frames.write(0, http2_server::END_STREAM, stream, b"");
        }
    });
    let gateway = Gateway::start(&yaml(server.address, "h2"));
    let mut client = http2::Client::new(gateway.web());
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/openai/chat"),
        ("x-case", "http2"),
    ];
    client.fields(1, &fields, false);
    client.last_data(1, REQUEST.as_bytes());
    let frames = client.answer(1);
    assert_eq!(http2::body(&frames).as_bytes(), fixture("openai.json").body);
    assert_eq!(cost(&gateway, Preset::OpenAi, "http2"), 29);
}

#[test]
fn only_a_failure_before_the_response_gives_everything_back() {
    let server = Script::start(|_, mut connection| {
        while let Some(request) = connection.read() {
            if request.path().ends_with("/probe") {
                connection.write(b"HTTP/1.1 204 No Content\r\n\r\n");
            } else if request.path().ends_with("/broken") {
                // The response breaks off after its first event.
                let fixture = fixture("openai.sse");
                connection.write([head(fixture, ""), chunk(&fixture.body[..300])].concat());
                return;
            } else {
                return;
            }
        }
    });
    let gateway = Gateway::start(&yaml(server.address, "h1"));
    let mut client = Client::new(gateway.web());
    client.send(post("/openai/none", "none"));
    assert_eq!(client.read("POST").status, 502);
    assert_eq!(cost(&gateway, Preset::OpenAi, "none"), 0);

    let mut client = Client::new(gateway.web());
    client.send(post("/openai/broken", "broken"));
    let mut rest = Vec::new();
    let _ended = client.stream.read_to_end(&mut rest);
    let least = expected(fixture("openai.sse"), &fixture("openai.sse").body[..300], false);
    assert!(least >= RESERVE);
    await_ends(&gateway);
    assert_eq!(cost(&gateway, Preset::OpenAi, "broken"), least);
}

#[test]
fn an_encoding_that_is_not_read_pays_the_reserve_and_what_passed() {
    let server = Script::answering(|request| {
        if request.path().ends_with("/probe") {
            return b"HTTP/1.1 204 No Content\r\n\r\n".to_vec();
        }
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: br\r\nContent-Length: 3\r\n\r\n";
        [head.as_bytes(), b"\x8b\x00\x80"].concat()
    });
    let gateway = Gateway::start(&yaml(server.address, "h1"));
    let mut client = Client::new(gateway.web());
    client.send(post("/openai/br", "br"));
    assert_eq!(client.read("POST").status, 200);
    assert_eq!(cost(&gateway, Preset::OpenAi, "br"), RESERVE);
}

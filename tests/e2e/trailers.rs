//! Trailers of requests: they come after the decision, and must not undo it.

use crate::common::{
    Gateway,
    http::{Client, head},
    http2,
    upstream::Script,
    yaml,
};

/// Says in its answer's body which trailers came, and whether any were announced.
fn listing() -> Script {
    Script::answering(|request| {
        let names: Vec<_> = request.trailers.iter().map(|(name, _)| name.to_lowercase()).collect();
        let announced = request.header("trailer").map_or("-", |_| "+");
        crate::common::upstream::ok(&format!("{announced} {}", names.join(" ")))
    })
}

const NAMES: &str = "x-api-key x_api_key x-tenant x-tier x-admin x-fast x-other-route authorization \
                     cookie expect range if-match if-none-match via x-real-ip x-forwarded-port \
                     x!forwarded!for forwarded content-type content-length te trailer host \
                     transfer-encoding connection keep-alive x-http-method-override x-original-url \
                     x-set x_set x-removed x_removed x.removed x_request_id";

const ROUTES: &str = "  - name: gold
    match: { path_prefix: /, header: { x-tenant: gold } }
    upstream: up
    flow: [{ name: other, limit: 9/1h, key: header:x-other-route }]
  - name: all
    match: { path_prefix: / }
    upstream: up
    REST
    request_headers: { set: { X-Set: a }, remove: [X-Removed] }
    flow:
      - name: keyed
        algorithm: sliding_window
        limit: 100/1h
        key: header:x-api-key
        priority: { header: x-fast, max_wait: 1s }
        except: { header: { x-admin: { present: true } } }
        overrides: [{ when: { 'header:x-tier': high }, limit: 200/1h }]
";

/// Returns what the upstream lists for a request with these trailers, over HTTP/1.1.
fn listed(client: &mut Client, kind: &str, names: &[&str]) -> String {
    let fields = [
        ("Transfer-Encoding", "chunked"),
        ("X-Api-Key", "junk"),
        ("Content-Type", kind),
        ("Trailer", &names.join(", ")),
    ];
    let trailers = names.join(": 1\r\n") + ": 1\r\n";
    client.send(head("POST", "/", &fields) + &format!("2\r\nhi\r\n0\r\n{trailers}\r\n"));
    client.read("POST").text()
}

#[test]
fn trailers_pass_only_where_they_mean_something_and_never_those_that_decide() {
    let upstream = listing();
    let forged: Vec<_> = NAMES.split_whitespace().collect();
    let all = [&forged[..], &["x-sum"]].concat();
    for (setting, kind, expected) in [
        ("", "text/plain", "- "),
        ("", "application/grpc+proto", "+ x-sum"),
        ("request_trailers: true", "text/plain", "+ x-sum"),
    ] {
        let gateway = Gateway::start(&yaml(upstream.address, &ROUTES.replace("REST", setting)));
        let mut client = Client::new(gateway.web());
        assert_eq!(listed(&mut client, kind, &["x-sum"]), expected, "{setting}, {kind}");
        assert_eq!(listed(&mut client, kind, &all), expected, "{setting}, {kind}");
        let none = if expected == "- " { "- " } else { "+ " };
        assert_eq!(listed(&mut client, kind, &forged), none, "{setting}, {kind}");
    }
}

#[test]
fn trailers_of_http_2_are_the_same() {
    let upstream = listing();
    for (setting, expected) in [("", "- "), ("request_trailers: true", "+ x-sum")] {
        let gateway = Gateway::start(&yaml(upstream.address, &ROUTES.replace("REST", setting)));
        let mut client = http2::Client::new(gateway.web());
        let head = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")];
        client.fields(1, &[&head[..], &[("trailer", "x-sum, x-api-key")]].concat(), false);
        client.data(1, b"hi");
        client.fields(1, &[("x-sum", "1"), ("x-api-key", "T"), ("x-real-ip", "6.6.6.6")], true);
        assert_eq!(http2::body(&client.answer(1)), expected);
    }
}

#[test]
fn a_second_header_of_a_request_ends_the_connection_with_goaway() {
    const GOAWAY: u8 = 7;
    let upstream = listing();
    let gateway = Gateway::start(&yaml(upstream.address, &ROUTES.replace("REST", "")));
    let mut client = http2::Client::new(gateway.web());
    client.get(1, "/", &[]);
    client.answer(1);
    client.get(1, "/", &[]);
    let last = std::iter::from_fn(|| client.read()).last().expect("a frame");
    // The last stream, and PROTOCOL_ERROR.
    assert_eq!((last.kind, &*last.payload), (GOAWAY, &[0, 0, 0, 1, 0, 0, 0, 1][..]));
}

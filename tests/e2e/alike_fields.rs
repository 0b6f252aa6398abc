//! Fields of requests that servers take for one another: no client may write one beside the gateway's.

use crate::common::{
    Gateway,
    http::Client,
    http2,
    upstream::{Script, ok},
    yaml,
};

/// Says in its response's body which fields it got, one a line, in the order of their names.
fn listing() -> Script {
    Script::answering(|request| {
        let line = |(name, value): &(String, String)| format!("{}: {value}\n", name.to_lowercase());
        let mut lines: Vec<String> = request.headers.iter().map(line).collect();
        lines.sort_unstable();
        ok(&lines.concat())
    })
}

fn gateway(upstream: &Script, file: &str, edits: &str) -> Gateway {
    let route = format!(
        "  - name: all\n    match: {{ path_prefix: / }}\n    upstream: up\n    request_headers: {edits}\n"
    );
    Gateway::start(&format!("{file}{}", yaml(upstream.address, &route)))
}

/// The responses' bodies to the same request over HTTP/1.1 and HTTP/2.
fn over_both(gateway: &Gateway, fields: &[(&str, &str)]) -> [String; 2] {
    let http1 = Client::new(gateway.web()).request("GET", "/", fields).text();
    let fields: Vec<_> = fields.iter().map(|(name, value)| (name.to_lowercase(), *value)).collect();
    let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let mut client = http2::Client::new(gateway.web());
    client.get(1, "/", &fields);
    [http1, http2::body(&client.answer(1))]
}

/// The values of all fields that CGI names like `name`.
fn values<'a>(listed: &'a str, name: &str) -> Vec<&'a str> {
    let sign = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let fields = listed.lines().filter_map(|line| line.split_once(": "));
    let alike = fields.filter(|(sent, _)| sent.chars().map(sign).eq(name.chars()));
    alike.map(|(_, value)| value).collect()
}

const FORGED: &[(&str, &str)] = &[
    ("X-Real-IP", "forged"),
    ("X_Real_IP", "forged"),
    ("x.real.ip", "forged"),
    ("X_REAL_IP", "forged"),
    ("x!real-ip", "forged"),
    ("X-Real-IP", "forged"),
    ("X-Internal-User", "forged"),
    ("X_Internal_User", "forged"),
    ("X.Internal.User", "forged"),
    ("X_Internal-User", "forged"),
    ("X_Internal-User", "forged"),
    ("X-Empty", "forged"),
    ("X_Empty", "forged"),
    ("Forwarded", "for=forged"),
    ("X-Forwarded-For", "forged"),
    ("X_Forwarded_For", "forged"),
    ("X_FORWARDED-FOR", "forged"),
    ("X.Forwarded.For", "forged"),
    ("X-Forwarded-Proto", "forged"),
    ("X_Forwarded_Proto", "forged"),
    ("X-Forwarded_Host", "forged"),
    ("x!forwarded!host", "forged"),
    ("X_Request_ID", "forged"),
    ("X-Other_Name", "passes"),
    ("X_Real_IP_2", "passes"),
];

#[test]
fn no_spelling_of_a_field_that_the_gateway_writes_or_removes_passes() {
    let upstream = listing();
    let edits = "{ set: { x-real-ip: '{client_ip}', x-empty: '{client_cert_subject}' }, \
                 remove: [x-internal-user] }";
    let gateway = gateway(&upstream, "", edits);
    for got in over_both(&gateway, FORGED) {
        assert!(!got.contains("forged"), "{got}");
        assert_eq!(values(&got, "x-real-ip"), ["127.0.0.1"], "{got}");
        assert_eq!(values(&got, "x-empty"), [""], "{got}");
        assert_eq!(values(&got, "x-forwarded-for"), ["127.0.0.1"], "{got}");
        assert_eq!(values(&got, "x-forwarded-proto"), ["http"], "{got}");
        assert_eq!(values(&got, "x-forwarded-host").len(), 1, "{got}");
        assert_eq!(values(&got, "x-request-id").len(), 1, "{got}");
        assert_eq!(values(&got, "x-other-name"), ["passes"], "{got}");
        assert_eq!(values(&got, "x-real-ip-2"), ["passes"], "{got}");
    }
}

#[test]
fn a_trusted_proxy_writes_the_usual_names_and_its_clients_write_others() {
    let upstream = listing();
    let gateway = gateway(&upstream, "trusted_proxies: [127.0.0.1]\n", "{ remove: [x-secret] }");
    let said = [
        ("X-Forwarded-For", "192.0.2.7"),
        ("X_Forwarded_For", "forged"),
        ("X-Forwarded-Proto", "https"),
        ("X.Forwarded.Proto", "forged"),
        ("X-Forwarded-Host", "shop.example.com"),
        ("X_FORWARDED_HOST", "forged"),
        ("Forwarded", "for=192.0.2.7"),
        ("X_Secret", "forged"),
    ];
    for got in over_both(&gateway, &said) {
        assert!(!got.contains("forged"), "{got}");
        assert_eq!(values(&got, "x-forwarded-for"), ["127.0.0.1", "192.0.2.7"], "{got}");
        assert_eq!(values(&got, "x-forwarded-proto"), ["https"], "{got}");
        assert_eq!(values(&got, "x-forwarded-host"), ["shop.example.com"], "{got}");
        assert_eq!(values(&got, "forwarded"), ["for=192.0.2.7"], "{got}");
    }
    // The proxy has written none of them.
    let forged = [
        ("X_Forwarded_For", "forged"),
        ("X_Forwarded_Proto", "forged"),
        ("X_Forwarded_Host", "forged"),
    ];
    for got in over_both(&gateway, &forged) {
        assert!(!got.contains("forged"), "{got}");
        assert_eq!(values(&got, "x-forwarded-for"), ["127.0.0.1"], "{got}");
        assert_eq!(values(&got, "x-forwarded-proto"), ["http"], "{got}");
    }
}

#[test]
fn an_edit_of_another_spelling_leaves_what_the_gateway_writes() {
    let upstream = listing();
    let edits = "{ remove: [x_forwarded_for, x_forwarded_port, x_request_id, content_length], \
                 set: { x-forwarded-port: '{port}', x-user: one, x_user: two } }";
    let gateway = gateway(&upstream, "", edits);
    let sent = [
        ("X_Forwarded_For", "forged"),
        ("X-Forwarded-Port", "forged"),
        ("X_Forwarded_Port", "forged"),
        ("X.User", "forged"),
    ];
    for got in over_both(&gateway, &sent) {
        assert!(!got.contains("forged"), "{got}");
        assert_eq!(values(&got, "x-forwarded-for"), ["127.0.0.1"], "{got}");
        assert_eq!(values(&got, "x-forwarded-port").len(), 1, "{got}");
        assert_eq!(values(&got, "x-request-id").len(), 1, "{got}");
        assert_eq!(values(&got, "x-user"), ["one", "two"], "both are the gateway's: {got}");
    }
    // The length that frames a body stays.
    let mut client = Client::new(gateway.web());
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
    assert_eq!(values(&client.read("POST").text(), "content-length"), ["2"]);
}

#[test]
fn responses_pass_with_all_spellings() {
    let upstream = Script::answering(|_| {
        b"HTTP/1.1 200 OK\r\nX_Inner: a\r\nX-Inner: b\r\nContent-Length: 0\r\n\r\n".to_vec()
    });
    let route = "  - name: all\n    match: { path_prefix: / }\n    upstream: up\n    \
                 response_headers: { remove: x-inner }\n";
    let gateway = Gateway::start(&yaml(upstream.address, route));
    let answer = Client::new(gateway.web()).request("GET", "/", &[]);
    assert_eq!(answer.header("x-inner"), None);
    assert_eq!(answer.header("x_inner"), Some("a"));
}

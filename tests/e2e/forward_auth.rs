//! Forward auth: a service decides about each request, and nothing but its consent lets one pass.

use crate::common::{
    Gateway, await_ends, eventually,
    http::{Answer, Client, head},
    http2, metrics,
    upstream::{Connection, Request, Script, ok},
    yaml,
};
use core::time::Duration;
use std::{
    io::{Read, Write},
    net::SocketAddr,
    sync::{Arc, Mutex, mpsc},
};

/// The requests that a service got.
type Asked = Arc<Mutex<Vec<Request>>>;

/// Says in its response's body what it got: its fields by line, then its body.
fn listing() -> Script {
    Script::answering(|request| ok(&listed(request)))
}

fn listed(request: &Request) -> String {
    let fields = request.headers.iter().map(|(name, value)| format!("{name}: {value}\n"));
    let fields: String = fields.collect();
    let trailers: Vec<_> = request.trailers.iter().map(|(name, _)| name.as_str()).collect();
    format!(
        "{}\n{fields}trailers {}\nbody {}\n",
        request.line,
        trailers.join(" "),
        request.body.len()
    )
}

/// Answers as `oauth2-proxy` does at `/oauth2/auth`: 202 with the user, if the cookie is one of its own.
fn oauth2_proxy() -> (Script, Asked) {
    let asked = Asked::default();
    let seen = Arc::clone(&asked);
    let script = Script::answering(move |request| {
        seen.lock().expect("not poisoned").push(request.clone());
        let cookie = request.header("cookie").unwrap_or_default();
        match cookie.strip_prefix("_oauth2_proxy=") {
            Some(user) => format!(
                "HTTP/1.1 202 Accepted\r\nX-Auth-Request-User: {user}\r\n\
                 X-Auth-Request-Email: {user}@example.com\r\nX-Other: secret\r\n\
                 Set-Cookie: _oauth2_proxy={user}; HttpOnly\r\nContent-Length: 9\r\n\r\nAccepted\n"
            )
            .into(),
            None => "HTTP/1.1 401 Unauthorized\r\nContent-Type: text/plain\r\n\
                     WWW-Authenticate: Bearer\r\nContent-Length: 12\r\n\r\nUnauthorized"
                .into(),
        }
    });
    (script, asked)
}

/// A route with a service, and further keys of the route.
fn route(service: SocketAddr, forward: &str, rest: &str) -> String {
    format!(
        "  - name: all\n    match: {{ path_prefix: / }}\n    upstream: up\n    \
         auth: {{ forward: {{ url: 'http://{service}/oauth2/auth', {forward} }} }}\n{rest}"
    )
}

const COPY: &str = "copy: [x-auth-request-user, x-auth-request-email]";

fn signed_in(user: &str) -> String {
    format!("_oauth2_proxy={user}")
}

fn last(asked: &Asked) -> Request {
    asked.lock().expect("not poisoned").last().expect("asked").clone()
}

#[test]
fn a_service_decides_and_says_who_the_client_is() {
    let upstream = listing();
    let (service, asked) = oauth2_proxy();
    let route = route(service.address, COPY, "");
    let gateway =
        Gateway::start(&format!("access_log: access.log\n{}", yaml(upstream.address, &route)));
    let mut client = Client::new(gateway.web());

    let denied = client.get("/orders?id=1");
    assert_eq!((denied.status, denied.text().as_str()), (401, "Unauthorized"));
    assert_eq!(denied.header("www-authenticate"), Some("Bearer"));
    assert_eq!(denied.header("content-type"), Some("text/plain"));
    assert_eq!(upstream.connections(), 0);

    let cookie = signed_in("ann");
    let passed = client.request("GET", "/orders?id=1", &[("Cookie", &cookie)]);
    let got = passed.text();
    assert_eq!(passed.status, 200, "{got}");
    assert!(got.contains("x-auth-request-user: ann\n"), "{got}");
    assert!(got.contains("x-auth-request-email: ann@example.com\n"), "{got}");
    assert!(!got.contains("x-other"), "not copied: {got}");
    assert_eq!(passed.header("set-cookie"), Some("_oauth2_proxy=ann; HttpOnly"));

    let request = last(&asked);
    assert_eq!(request.line, "GET /oauth2/auth HTTP/1.1");
    for (name, value) in [
        ("host", service.address.to_string().as_str()),
        ("x-forwarded-method", "GET"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-host", "gateway.test"),
        ("x-forwarded-uri", "/orders?id=1"),
        ("x-forwarded-for", "127.0.0.1"),
        ("cookie", &cookie),
    ] {
        assert_eq!(request.header(name), Some(value), "{name}");
    }

    let name = "flowgate_forward_auth_requests_total";
    let counts = eventually("both are counted", || {
        let counts = metrics(&gateway, name);
        (counts.values().sum::<f64>() >= 2.0).then_some(counts)
    });
    for outcome in ["allowed", "denied"] {
        let series = format!("{name}{{route=\"all\",outcome=\"{outcome}\"}}");
        assert_eq!(counts.get(&series), Some(&1.0), "{counts:?}");
    }
    let lines = eventually("both are logged", || {
        let log = std::fs::read_to_string(gateway.dir.path().join("access.log")).ok()?;
        let lines: Vec<serde_json::Value> =
            log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        (lines.len() >= 2).then_some(lines)
    });
    for (line, outcome) in lines.iter().zip(["denied", "allowed"]) {
        assert_eq!(line["auth"], outcome, "{line}");
        assert!(line["auth_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{line}");
    }
}

/// Ways in which a client may try to get a field of its own to the upstream.
const SMUGGLED: &[&[(&str, &str)]] = &[
    &[("X-Auth-Request-User", "admin")],
    &[("x-auth-request-user", "admin"), ("X-AUTH-REQUEST-USER", "admin")],
    &[("X_Auth_Request_User", "admin")],
    &[("X-Auth_Request-User", "admin")],
    &[("x.auth.request.user", "admin")],
    &[("X~Auth~Request~User", "admin")],
    &[("x_auth_request_email", "admin")],
    &[("Connection", "X-Auth-Request-User"), ("X-Auth-Request-User", "admin")],
    &[("Connection", "close, x_auth_request_user, X-Auth-Request-Email")],
    &[("Connection", "keep-alive"), ("Connection", "x-auth-request-user,")],
    &[("X-Auth-Request-Groups", "admin"), ("X_Auth_Request_Groups", "admin")],
    &[("X-Auth-Request-User", ""), ("X_AUTH_REQUEST_USER", "admin")],
];

#[test]
fn what_a_client_sends_in_copied_fields_never_reaches_the_upstream() {
    let upstream = listing();
    let (service, _asked) = oauth2_proxy();
    let copy = "copy: [X-Auth-Request-User, x-auth-request-email, x-auth-request-groups]";
    let rest = "    request_trailers: true\n";
    let gateway = Gateway::start(&yaml(upstream.address, &route(service.address, copy, rest)));
    let cookie = signed_in("ann");
    for fields in SMUGGLED {
        let mut client = Client::new(gateway.web());
        let fields = [&[("Cookie", cookie.as_str())], *fields].concat();
        let got = client.request("GET", "/", &fields).text();
        assert!(!got.contains("admin"), "{fields:?}: {got}");
        let folded: Vec<String> = got
            .lines()
            .map(|line| line.to_lowercase().replace(['_', '.', '~'], "-"))
            .filter(|line| line.starts_with("x-auth-request-"))
            .collect();
        let expected = ["x-auth-request-user: ann", "x-auth-request-email: ann@example-com"];
        assert_eq!(folded, expected, "{fields:?}: {got}");
    }
}

#[test]
fn copied_fields_are_no_trailers_either() {
    let upstream = listing();
    let (service, _asked) = oauth2_proxy();
    let rest = "    request_trailers: true\n";
    let gateway = Gateway::start(&yaml(upstream.address, &route(service.address, COPY, rest)));
    let names = "x-auth-request-user, x_auth_request_user, x-auth_request-email, x-sum";
    for kind in ["text/plain", "application/grpc"] {
        let fields = [
            ("Cookie", signed_in("ann")),
            ("Transfer-Encoding", "chunked".to_owned()),
            ("Content-Type", kind.to_owned()),
            ("Trailer", names.to_owned()),
        ];
        let fields = fields.each_ref().map(|(name, value)| (*name, value.as_str()));
        let trailers = names.replace(", ", ": admin\r\n") + ": admin\r\n";
        let mut client = Client::new(gateway.web());
        client.send(head("POST", "/", &fields) + &format!("2\r\nhi\r\n0\r\n{trailers}\r\n"));
        let got = client.read("POST").text().to_lowercase();
        assert!(got.contains("trailers x-sum\nbody 2\n"), "{kind}: {got}");
    }
}

/// The fields of a client that the service does not get.
const LEFT_OUT: &[(&str, &str)] = &[
    ("Content-Type", "text/plain"),
    ("Content-Encoding", "gzip"),
    ("Content_Language", "en"),
    ("Range", "bytes=0-1"),
    ("If-None-Match", "\"a\""),
    ("If_Range", "\"a\""),
    ("TE", "trailers"),
    ("Trailer", "x-sum"),
    ("Keep-Alive", "timeout=5"),
    ("Connection", "keep-alive, te, X-Hop"),
    ("X-Hop", "a"),
    ("Proxy-Authorization", "Basic YTpi"),
    ("Upgrade", "h2c"),
    ("Forwarded", "for=1.2.3.4"),
    ("X-Forwarded-For", "1.2.3.4"),
    ("X_Forwarded_For", "1.2.3.4"),
    ("X-Forwarded-Proto", "https"),
    ("X-Forwarded-Host", "evil.test"),
    ("X_Forwarded-Host", "evil.test"),
    ("X-Forwarded-Method", "OPTIONS"),
    ("X-Forwarded-Uri", "/public"),
    ("X_Forwarded_Uri", "/public"),
    ("x.forwarded.uri", "/public"),
    ("X-Original-URL", "/public"),
    ("X-Rewrite-URL", "/public"),
    ("Content-Length", "5"),
];

#[test]
fn the_service_gets_the_clients_request_without_its_body_and_conditions() {
    let upstream = listing();
    let (service, asked) = oauth2_proxy();
    let gateway = Gateway::start(&yaml(upstream.address, &route(service.address, COPY, "")));
    let mut client = Client::new(gateway.web());
    let kept =
        [("Cookie", "_oauth2_proxy=ann"), ("Authorization", "Basic YTpi"), ("Accept", "text/html")];
    client.send(head("POST", "/a%2e/./b?x=/y", &[&kept[..], LEFT_OUT].concat()) + "hello");
    let passed = client.read("POST");
    assert_eq!(passed.status, 200, "{}", passed.text());
    assert!(passed.text().contains("body 5\n"), "{}", passed.text());

    let request = last(&asked);
    assert_eq!((request.line.as_str(), request.body.len()), ("GET /oauth2/auth HTTP/1.1", 0));
    let mut names: Vec<_> =
        request.headers.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
    names.sort_unstable();
    let expected = [
        "accept",
        "authorization",
        "cookie",
        "host",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-method",
        "x-forwarded-proto",
        "x-forwarded-uri",
        "x-request-id",
    ];
    assert_eq!(names, expected, "{request:?}");
    for (name, value) in [
        ("x-forwarded-method", "POST"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-host", "gateway.test"),
    ] {
        assert_eq!(request.header(name), Some(value), "{name}");
    }
    let target = passed.text().split(' ').nth(1).map(str::to_owned);
    assert_eq!(
        request.header("x-forwarded-uri").map(str::to_owned),
        target,
        "as the server gets it"
    );
}

#[test]
fn the_service_gets_the_fields_that_the_file_sets_whatever_the_client_sends() {
    let upstream = listing();
    let (service, asked) = oauth2_proxy();
    let set = "set: { x-original-url: '{scheme}://{host}{path}{query}', x-original-method: '{method}', x-site: shop }";
    let forward = format!("{COPY}, {set}");
    let gateway = Gateway::start(&yaml(upstream.address, &route(service.address, &forward, "")));
    let mut client = Client::new(gateway.web());
    let fields = [
        ("Cookie", "_oauth2_proxy=ann"),
        ("X-Original-Url", "http://gateway.test/public"),
        ("X_Original_Url", "http://gateway.test/public"),
        ("X-Site", "other"),
        ("X_Site", "other"),
    ];
    let passed = client.request("DELETE", "/admin/./x?x=/y", &fields);
    assert_eq!(passed.status, 200, "{}", passed.text());

    // The path is the one that the server gets, not the one that the client wrote.
    let request = last(&asked);
    for (name, value) in [
        ("x-original-url", "http://gateway.test/admin/x?x=/y"),
        ("x-original-method", "DELETE"),
        ("x-site", "shop"),
    ] {
        let alike =
            |(sent, _): &&(String, String)| sent.to_ascii_lowercase().replace('_', "-") == name;
        let found: Vec<_> =
            request.headers.iter().filter(alike).map(|(_, value)| value.as_str()).collect();
        assert_eq!(found, [value], "{name}: {request:?}");
    }
    assert!(passed.text().contains("DELETE /admin/x?x=/y "), "{}", passed.text());
    // The server gets none of them but the client's.
    assert!(!passed.text().contains("shop"), "{}", passed.text());
}

#[test]
fn a_service_never_decides_about_another_target_than_the_server_gets() {
    let upstream = listing();
    let (service, asked) = oauth2_proxy();
    let cookie = ("Cookie", "_oauth2_proxy=ann");
    for (template, host, expected) in [
        ("{scheme}://{host}{path}{query}", "http://gateway.test", "/admin/é?x=é"),
        ("{uri}", "", "/admin/é?x=é"),
        ("{url}", "http://gateway.test", "/admin/é?x=é"),
    ] {
        let forward = format!("{COPY}, set: {{ x-original-url: '{template}' }}");
        let gateway =
            Gateway::start(&yaml(upstream.address, &route(service.address, &forward, "")));
        let passed = Client::new(gateway.web()).request("GET", "/admin/é?x=é", &[cookie]);
        assert_eq!(passed.status, 200, "{}", passed.text());
        let seen = last(&asked).header("x-original-url").map(str::to_owned);
        let seen = seen.map(|seen| seen.replacen(&gateway.web().to_string(), "gateway.test", 1));
        assert_eq!(seen, Some(format!("{host}{expected}")), "{template}");

        // The service would take the first part of the path for the host.
        let before = asked.lock().expect("not poisoned").len();
        let mut old = Client::new(gateway.web());
        old.send("GET /admin/users HTTP/1.0\r\nCookie: _oauth2_proxy=ann\r\n\r\n");
        let status = if host.is_empty() { 200 } else { 502 };
        assert_eq!(old.read("GET").status, status, "{template}");
        let count = asked.lock().expect("not poisoned").len() - before;
        assert_eq!(count, usize::from(host.is_empty()), "{template}: the service is not asked");
    }
}

#[test]
fn a_trusted_proxy_says_whose_request_it_is_but_never_which() {
    let upstream = listing();
    let (service, asked) = oauth2_proxy();
    let gateway = Gateway::start(&format!(
        "trusted_proxies: [127.0.0.1]\n{}",
        yaml(upstream.address, &route(service.address, COPY, ""))
    ));
    let mut client = Client::new(gateway.web());
    let fields = [
        ("X-Forwarded-For", "192.0.2.7"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "shop.example.com"),
        ("X_Forwarded_Host", "evil.test"),
        ("X-Forwarded-Uri", "/public"),
        ("X-Forwarded-Method", "OPTIONS"),
    ];
    assert_eq!(client.request("DELETE", "/a", &fields).status, 401);
    let request = last(&asked);
    for (name, value) in [
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "shop.example.com"),
        ("x-forwarded-uri", "/a"),
        ("x-forwarded-method", "DELETE"),
    ] {
        assert_eq!(request.header(name), Some(value), "{name}");
    }
    let of = |name: &str| {
        let all = request.headers.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        all.map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(of("x-forwarded-for"), "192.0.2.7, 127.0.0.1");
    assert!(!request.headers.iter().any(|(_, value)| value == "evil.test"), "{request:?}");
}

/// A gateway in front of `upstream` whose service runs `script`.
fn in_front_of(
    upstream: &Script,
    forward: &str,
    rest: &str,
    script: impl Fn(usize, Connection) + Send + Sync + 'static,
) -> (Gateway, Script) {
    let service = Script::start(script);
    let gateway = Gateway::start(&yaml(upstream.address, &route(service.address, forward, rest)));
    (gateway, service)
}

/// Serves each request with the same bytes.
fn always(bytes: impl Into<Vec<u8>>) -> impl Fn(usize, Connection) + Send + Sync + 'static {
    let bytes = bytes.into();
    move |_, mut connection| {
        while connection.read().is_some() {
            if connection.write(&bytes).is_none() {
                return;
            }
        }
    }
}

#[test]
fn a_response_that_is_no_consent_goes_to_the_client_whole() {
    let upstream = listing();
    let long = "x".repeat(700_000);
    let chunked = format!("{:x}\r\n{long}\r\n0\r\n\r\n", long.len());
    for (response, status, fields, body) in [
        (
            "HTTP/1.1 302 Found\r\nLocation: https://login.test/?rd=/a\r\nSet-Cookie: a=1\r\n\
             Set-Cookie: b=2; Secure\r\nContent-Length: 0\r\n\r\n"
                .to_owned(),
            302,
            &[("location", "https://login.test/?rd=/a"), ("set-cookie", "a=1"), ("set-cookie", "b=2; Secure")][..],
            "",
        ),
        (
            "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"a\"\r\n\
             WWW-Authenticate: Bearer\r\nConnection: x-hop\r\nX-Hop: 1\r\nContent-Length: 4\r\n\r\nhalt"
                .to_owned(),
            401,
            &[("www-authenticate", "Basic realm=\"a\""), ("www-authenticate", "Bearer")],
            "halt",
        ),
        (
            format!("HTTP/1.1 403 Forbidden\r\nX-A: b\r\nTransfer-Encoding: chunked\r\n\r\n{chunked}"),
            403,
            &[("x-a", "b")],
            &long,
        ),
        ("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n".to_owned(), 304, &[("etag", "\"a\"")], ""),
        ("HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nno".to_owned(), 500, &[], "no"),
        ("HTTP/1.0 403 No\r\n\r\nuntil the end".to_owned(), 403, &[], "until the end"),
    ] {
        let close = response.starts_with("HTTP/1.0");
        let bytes = response.clone();
        let (gateway, _service) = in_front_of(&upstream, COPY, "", move |_, mut connection| {
            while connection.read().is_some() && connection.write(&bytes).is_some() && !close {}
        });
        let mut client = Client::new(gateway.web());
        for method in ["GET", "POST", "HEAD", "GET"] {
            let answer = client.request(method, "/", &[]);
            assert_eq!((answer.status, answer.complete), (status, true), "{method} {response:.60}");
            for (name, value) in fields {
                let has = |(known, text): &(String, String)| known == name && text == value;
                assert!(answer.headers.iter().any(has), "{method} {name}: {:?}", answer.headers);
            }
            assert_eq!(answer.header("x-hop"), None);
            let expected = if method == "HEAD" { "" } else { body };
            assert!(answer.text() == expected, "{method} {response:.60}");
        }
    }
    assert_eq!(upstream.connections(), 0, "nothing has passed");
}

#[test]
fn a_login_page_stands_for_a_401_and_for_no_other_response() {
    let upstream = listing();
    let login = "login: '/oauth2/start?rd={url}&to={uri}'";
    let (gateway, _service) = in_front_of(&upstream, login, "", |_, mut connection| {
        while let Some(request) = connection.read() {
            let status = request.header("x-status").unwrap_or("401").to_owned();
            let head = format!("HTTP/1.1 {status} No\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n");
            let rest = "WWW-Authenticate: Bearer\r\nContent-Length: 4\r\n\r\nhalt";
            if connection.write((head + rest).as_bytes()).is_none() {
                return;
            }
        }
    });
    let mut client = Client::new(gateway.web());
    for method in ["GET", "POST", "HEAD", "GET"] {
        let answer = client.request(method, "/a%20b?c=d&e=%26", &[("Host", "app.test:8443")]);
        let to = "/oauth2/start?rd=http%3A%2F%2Fapp.test%3A8443%2Fa%2520b%3Fc%3Dd%26e%3D%2526\
                  &to=%2Fa%2520b%3Fc%3Dd%26e%3D%2526";
        assert_eq!((answer.status, answer.header("location")), (302, Some(to)), "{method}");
        assert_eq!((answer.complete, answer.text().as_str()), (true, ""), "{method}");
        let cookies = answer.headers.iter().filter(|(name, _)| name == "set-cookie");
        assert_eq!(cookies.map(|(_, value)| value.as_str()).collect::<Vec<_>>(), ["a=1", "b=2"]);
        assert_eq!(answer.header("www-authenticate"), None);
    }
    for status in ["403", "500"] {
        let answer = client.request("GET", "/", &[("X-Status", status)]);
        assert_eq!((answer.status.to_string().as_str(), answer.text().as_str()), (status, "halt"));
    }

    // A call of gRPC shows no page.
    let mut http2 = http2::Client::new(gateway.web());
    assert_eq!(over_http2(&mut http2, 1, &[("content-type", "application/grpc")]), "halt");
    assert_eq!(over_http2(&mut http2, 3, &[]), "");
    assert_eq!(upstream.connections(), 0, "nothing has passed");
    let outcomes = metrics(&gateway, "flowgate_forward_auth_requests_total");
    let denied = outcomes.iter().find(|(labels, _)| labels.contains("denied"));
    assert_eq!(denied.map(|(_, count)| *count), Some(8.0), "{outcomes:?}");
}

#[test]
fn a_field_may_have_another_name_for_the_upstream() {
    let upstream = listing();
    let (service, _asked) = oauth2_proxy();
    let copy = "copy: [{ from: x-auth-request-user, to: x-user }, x-auth-request-email]";
    let rules = "    flow: [{ name: each, limit: 2/6h, key: 'auth:x-auth-request-user' }]\n";
    let gateway = Gateway::start(&yaml(upstream.address, &route(service.address, copy, rules)));
    let mut client = Client::new(gateway.web());
    let forged = [
        ("X-User", "admin"),
        ("X_User", "admin"),
        ("X-Auth-Request-User", "admin"),
        ("x.auth.request.user", "admin"),
    ];
    let ask = |client: &mut Client, user: &str| {
        let cookie = signed_in(user);
        let fields: Vec<_> = forged.into_iter().chain([("Cookie", cookie.as_str())]).collect();
        client.request("GET", "/", &fields)
    };
    let answer = ask(&mut client, "ann");
    let got = answer.text();
    assert!(got.contains("x-user: ann\n"), "{got}");
    assert!(got.contains("x-auth-request-email: ann@example.com\n"), "{got}");
    assert!(!got.contains("admin") && !got.contains("x-auth-request-user:"), "{got}");

    // Rules count by the service's name.
    let statuses = ["ann", "ann", "bob"].map(|user| ask(&mut client, user).status);
    assert_eq!(statuses, [200, 429, 200]);
}

#[test]
fn a_service_that_fails_lets_no_request_pass() {
    let upstream = listing();
    let flood = "HTTP/1.1 103 Early Hints\r\nx: y\r\n\r\n".repeat(200);
    let huge = format!("HTTP/1.1 200 OK\r\nX-Auth-Request-User: {}\r\n\r\n", "a".repeat(100_000));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(200));
    for (response, status) in [
        ("", 502),
        ("garbage\r\n\r\n", 502),
        ("HTTP/1.1 999 Wow\r\n\r\n", 502),
        ("HTTP/1.1 20 OK\r\n\r\n", 502),
        ("HTTP/2 200 OK\r\n\r\n", 502),
        ("HTTP/1.1 200 OK\r\nX-Auth-Request-User: admin\r\n", 502),
        ("HTTP/1.1 200 OK\r\nX-Auth-Request-User : admin\r\n\r\n", 502),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 502),
        ("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", 502),
        (
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
            502,
        ),
        ("HTTP/1.1 100 Continue\r\n\r\n", 502),
        (&flood, 502),
        (&huge, 502),
        (&many, 502),
    ] {
        let bytes = response.to_owned();
        let (gateway, _service) = in_front_of(&upstream, COPY, "", move |_, mut connection| {
            connection.read();
            connection.write(&bytes);
        });
        let upgrade =
            [("Connection", "upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13")];
        for fields in [&[][..], &upgrade] {
            let answer = Client::new(gateway.web()).request("GET", "/", fields);
            assert_eq!(answer.status, status, "{response:.60}: {}", answer.text());
            assert!(answer.text().contains("auth service"), "{}", answer.text());
        }
    }
    assert_eq!(upstream.connections(), 0, "nothing has passed");
}

#[test]
fn a_service_that_is_slow_or_dead_ends_in_504_and_502() {
    let upstream = listing();
    // Silent, and one that sends a head by the byte.
    for slow in [true, false] {
        let (gateway, _service) =
            in_front_of(&upstream, "timeout: 300ms", "", move |_, mut connection| {
                connection.read();
                for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r" {
                    if slow && connection.write([*byte]).is_none() {
                        return;
                    }
                    std::thread::park_timeout(Duration::from_millis(50));
                }
                let _end = connection.stream.read(&mut [0]);
            });
        let answer = Client::new(gateway.web()).get("/");
        assert_eq!(answer.status, 504, "{}", answer.text());
        assert!(answer.text().contains("the auth service did not respond in time"));
    }

    let unused = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let dead = unused.local_addr().expect("an address");
    drop(unused);
    let gateway = Gateway::start(&yaml(upstream.address, &route(dead, COPY, "")));
    let answer = Client::new(gateway.web()).get("/");
    assert_eq!(answer.status, 502, "{}", answer.text());
    let call = [("Content-Type", "application/grpc"), ("Content-Length", "0")];
    let answer = Client::new(gateway.web()).request("POST", "/", &call);
    assert_eq!((answer.status, answer.header("grpc-status")), (200, Some("14")));
    assert_eq!(upstream.connections(), 0, "nothing has passed");
}

#[test]
fn a_denial_whose_body_stalls_is_cut_off_and_a_consent_waits_for_no_body() {
    let upstream = listing();
    let rest = "    timeouts: { idle: 300ms }\n";
    let (gateway, _service) = in_front_of(&upstream, COPY, rest, |_, mut connection| {
        let Some(request) = connection.read() else { return };
        let status = if request.header("x-in").is_some() { "200 OK" } else { "403 No" };
        connection.write(format!("HTTP/1.1 {status}\r\nContent-Length: 9\r\n\r\nhalf"));
        let _end = connection.stream.read(&mut [0]);
    });
    let answer = Client::new(gateway.web()).get("/");
    assert_eq!((answer.status, answer.text().as_str(), answer.complete), (403, "half", false));
    let answer = Client::new(gateway.web()).request("GET", "/", &[("X-In", "1")]);
    assert_eq!((answer.status, answer.complete), (200, true));
}

#[test]
fn the_services_cookies_come_with_the_final_response_whatever_it_is() {
    let upstream = Script::answering(|request| match request.path() {
        "/own" => "HTTP/1.1 200 OK\r\nSet-Cookie: own=1\r\nContent-Length: 0\r\n\r\n".into(),
        _ => "broken\r\n\r\n".into(),
    });
    let allowed =
        "HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nContent-Length: 0\r\n\r\n";
    let rest = "    flow: [{ name: each, limit: 2/1h }]\n";
    let (gateway, _service) = in_front_of(&upstream, COPY, rest, always(allowed));
    let mut client = Client::new(gateway.web());
    for (path, status, cookies) in
        [("/own", 200, "own=1 a=1 b=2"), ("/bad", 502, "a=1 b=2"), ("/own", 429, "a=1 b=2")]
    {
        let answer = client.get(path);
        let got = answer.headers.iter().filter(|(name, _)| name == "set-cookie");
        let got: Vec<_> = got.map(|(_, value)| value.as_str()).collect();
        assert_eq!((answer.status, got.join(" ").as_str()), (status, cookies), "{path}");
    }
}

#[test]
fn rules_count_by_what_the_service_says_and_not_what_it_rejects() {
    let upstream = listing();
    let (service, _asked) = oauth2_proxy();
    let rest = "    flow: [{ name: each, limit: 2/1h, key: 'auth:x-auth-request-user' }, \
                { name: by-field, limit: 3/1h, key: 'header:x-auth-request-user' }, \
                { name: total, limit: 5/1h }]\n";
    let gateway = Gateway::start(&yaml(upstream.address, &route(service.address, COPY, rest)));
    let mut client = Client::new(gateway.web());
    for _ in 0..9 {
        assert_eq!(client.request("GET", "/", &[("X-Auth-Request-User", "ann")]).status, 401);
    }
    for (user, forged, status) in [
        ("ann", "bob", 200),
        ("ann", "eve", 200),
        ("ann", "mia", 429),
        ("bob", "ann", 200),
        ("bob", "ann", 200),
        ("bob", "zoe", 429),
        ("mia", "ann", 200),
        ("zoe", "ann", 429),
    ] {
        let cookie = signed_in(user);
        let fields = [("Cookie", cookie.as_str()), ("X-Auth-Request-User", forged)];
        assert_eq!(client.request("GET", "/", &fields).status, status, "{user}");
    }
}

#[test]
fn rules_before_the_service_keep_a_flood_from_it_and_stay_charged() {
    let upstream = listing();
    let (service, asked) = oauth2_proxy();
    let rest = "    flow: [{ name: early, limit: 5/1h, before_auth: true }, \
                { name: at-once, concurrency: 1, before_auth: true }, \
                { name: late, limit: 2/1h, key: 'auth:x-auth-request-user' }]\n";
    let gateway = Gateway::start(&yaml(upstream.address, &route(service.address, COPY, rest)));
    let mut client = Client::new(gateway.web());
    let cookie = signed_in("ann");
    let fields = [("Cookie", cookie.as_str())];
    let statuses: Vec<u16> = [&[][..], &fields, &fields, &fields, &[], &fields, &[]]
        .iter()
        .map(|fields| client.request("GET", "/", fields).status)
        .collect();
    assert_eq!(statuses, [401, 200, 200, 429, 401, 429, 429]);
    assert_eq!(asked.lock().expect("not poisoned").len(), 5, "the flood did not reach it");

    let counts = metrics(&gateway, "flowgate_flow_decisions_total");
    let of = |rule: &str, decision: &str| -> f64 {
        let has = |series: &&String| {
            series.contains(&format!("rule=\"{rule}\""))
                && series.contains(&format!("decision=\"{decision}\""))
        };
        counts.iter().filter(|(series, _)| has(series)).map(|(_, count)| count).sum()
    };
    assert_eq!([of("early", "passed"), of("early", "rejected")], [5.0, 2.0], "{counts:?}");
    assert_eq!([of("late", "passed"), of("late", "rejected")], [2.0, 1.0], "{counts:?}");
    await_ends(&gateway);
}

/// The response to a client of HTTP/2 over a stream: its status as the block has it, and its body.
fn over_http2(client: &mut http2::Client, stream: u32, fields: &[(&str, &str)]) -> String {
    client.get(stream, "/", fields);
    http2::body(&client.answer(stream))
}

#[test]
fn clients_of_http_2_are_authorized_likewise() {
    let upstream = listing();
    let (service, asked) = oauth2_proxy();
    let gateway = Gateway::start(&yaml(upstream.address, &route(service.address, COPY, "")));
    let mut client = http2::Client::new(gateway.web());
    assert_eq!(over_http2(&mut client, 1, &[]), "Unauthorized");
    let forged = [
        ("cookie", "_oauth2_proxy=ann"),
        ("cookie", "b=c"),
        ("x-auth-request-user", "admin"),
        ("x_auth_request_user", "admin"),
        ("x.auth.request.email", "admin"),
    ];
    let got = over_http2(&mut client, 3, &forged);
    assert!(got.contains("x-auth-request-user: ann; b=c\n"), "one cookie for the service: {got}");
    assert!(!got.contains("admin"), "{got}");
    assert_eq!(last(&asked).header("cookie"), Some("_oauth2_proxy=ann; b=c"));

    // A body that the client sends meanwhile is dropped with a denial, and passed on with a consent.
    client.post(5, "/", "70000");
    for _ in 0..7 {
        client.data(5, &[b'x'; 9_000]);
    }
    assert_eq!(http2::body(&client.answer(5)), "Unauthorized");
}

const AGREED: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";

#[test]
fn a_websocket_needs_the_consent_of_the_service() {
    let upstream = Script::start(|_, mut connection| {
        let Some(request) = connection.read_head() else { return };
        connection.write(AGREED);
        connection.write(request.header("x-auth-request-user").unwrap_or("nobody"));
        let _end = connection.stream.read(&mut [0]);
    });
    let (service, asked) = oauth2_proxy();
    let gateway = Gateway::start(&yaml(upstream.address, &route(service.address, COPY, "")));
    let upgrade = [
        ("Connection", "Upgrade, X-Auth-Request-User"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("X-Auth-Request-User", "admin"),
    ];
    let mut client = Client::new(gateway.web());
    assert_eq!(client.request("GET", "/", &upgrade).status, 401);
    assert_eq!(last(&asked).header("upgrade"), None);
    assert_eq!(upstream.connections(), 0);

    let cookie = signed_in("ann");
    let fields = [&upgrade[..], &[("Cookie", cookie.as_str())]].concat();
    let agreed = client.request("GET", "/", &fields);
    assert_eq!((agreed.status, agreed.header("set-cookie").is_some()), (101, true));
    let mut user = [0; 3];
    client.stream.read_exact(&mut user).expect("the server's bytes");
    assert_eq!(&user, b"ann");

    let connect = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/"),
        ("sec-websocket-version", "13"),
    ];
    let mut client = http2::Client::new(gateway.web());
    client.fields(1, &connect, false);
    assert_eq!(http2::body(&client.answer(1)), "Unauthorized");
    client.fields(3, &[&connect[..], &[("cookie", &cookie)]].concat(), false);
    let data = eventually("the server's bytes", || {
        let frame = client.read_of(3)?;
        (frame.kind == 0).then_some(frame.payload)
    });
    assert_eq!(data, b"ann");
}

#[test]
fn nothing_of_a_body_is_asked_for_or_lost_before_the_decision() {
    let upstream = listing();
    let (service, _asked) = oauth2_proxy();
    let gateway = Gateway::start(&yaml(upstream.address, &route(service.address, COPY, "")));
    let expect = [("Expect", "100-continue"), ("Content-Length", "3000000")];
    let mut client = Client::new(gateway.web());
    client.send(head("PUT", "/", &expect));
    let answer = client.read_head().expect("a response");
    assert_eq!(answer.status, 401, "the client need not send the body");
    client.read_body(answer, "PUT");
    assert!(client.is_closed());

    let cookie = signed_in("ann");
    let fields = [&expect[..], &[("Cookie", cookie.as_str())]].concat();
    let mut client = Client::new(gateway.web());
    client.send(head("PUT", "/", &fields));
    assert_eq!(client.read_head().expect("an interim response").status, 100);
    client.send(vec![b'x'; 3_000_000]);
    assert!(client.read("PUT").text().contains("body 3000000\n"));

    let fields = [("Content-Length", "3000000"), ("Cookie", cookie.as_str())];
    client.send([head("PUT", "/", &fields).into_bytes(), vec![b'x'; 3_000_000]].concat());
    assert!(client.read("PUT").text().contains("body 3000000\n"), "sent at once");
}

#[test]
fn a_client_that_leaves_drops_the_request_to_the_service() {
    let upstream = listing();
    let (ended, ends) = mpsc::channel();
    let ended = Mutex::new(ended);
    let (gateway, _service) =
        in_front_of(&upstream, "timeout: 60s", "", move |_, mut connection| {
            if connection.read().is_none() {
                return;
            }
            let read = connection.stream.read(&mut [0]);
            let sent = ended.lock().expect("not poisoned").send(read.unwrap_or(0));
            sent.expect("the test waits");
        });
    let mut client = Client::new(gateway.web());
    client.send(head("GET", "/", &[]));
    eventually("the service is asked", || {
        let connects = metrics(&gateway, "flowgate_upstream_requests_total");
        connects.values().any(|count| *count > 0.0).then_some(())
    });
    drop(client);
    assert_eq!(ends.recv_timeout(Duration::from_mins(1)), Ok(0), "the connection ends");
    let series = "flowgate_forward_auth_requests_total{route=\"all\",outcome=\"cancelled\"}";
    eventually("it is counted", || {
        let counts = metrics(&gateway, "flowgate_forward_auth_requests_total");
        (counts.get(series) == Some(&1.0)).then_some(())
    });
}

#[test]
fn connections_to_the_service_are_used_again_and_replaced_when_it_has_closed_them() {
    let upstream = listing();
    let (service, _asked) = oauth2_proxy();
    let gateway = Gateway::start(&yaml(upstream.address, &route(service.address, COPY, "")));
    let address = gateway.web();
    let cookie = signed_in("ann");
    std::thread::scope(|scope| {
        for client in 0..32 {
            let cookie = &cookie;
            scope.spawn(move || {
                let mut connection = Client::new(address);
                for _ in 0..50 {
                    let fields = [("Cookie", cookie.as_str())];
                    let fields = if client % 2 == 0 { &fields[..] } else { &[] };
                    let status = connection.request("GET", "/", fields).status;
                    assert_eq!(status, if client % 2 == 0 { 200 } else { 401 });
                }
            });
        }
    });
    assert!(service.connections() <= 40, "{} connections", service.connections());

    // One that closes each connection after its response, without a word.
    let (gateway, _service) = in_front_of(&upstream, "timeout: 20s", "", |_, mut connection| {
        connection.read();
        connection.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    });
    let mut client = Client::new(gateway.web());
    for _ in 0..20 {
        assert_eq!(client.get("/").status, 200);
    }
}

/// The two upstreams have other settings, and neither may close the connections of the other.
#[test]
fn a_service_may_be_the_server_of_the_upstream_itself() {
    let upstream = listing();
    let file = yaml(upstream.address, &route(upstream.address, COPY, ""));
    let gateway = Gateway::start(&file);
    let mut client = Client::new(gateway.web());
    for _ in 0..20 {
        assert_eq!(client.get("/").status, 200);
    }
    assert_eq!(upstream.connections(), 2, "one for each");
}

#[test]
fn a_service_may_be_an_upstream_with_several_servers() {
    let upstream = listing();
    let (service, asked) = oauth2_proxy();
    let unused = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let dead = unused.local_addr().expect("an address");
    drop(unused);
    let gateway = Gateway::start(&format!(
        "listeners: [{{ name: web, listen: 127.0.0.1:0 }}]\nupstreams:\n  - {{ name: up, servers: [{{ url: 'http://{}' }}] }}\n  \
         - {{ name: login, servers: [{{ url: 'http://{dead}' }}, {{ url: 'http://{}' }}] }}\n\
         routes:\n  - {{ name: all, match: {{ path_prefix: / }}, upstream: up, \
         auth: {{ forward: {{ upstream: login, path: '/oauth2/auth?allowed_groups=a', {COPY} }} }} }}\n",
        upstream.address, service.address
    ));
    let mut client = Client::new(gateway.web());
    let cookie = signed_in("ann");
    for _ in 0..10 {
        assert_eq!(client.request("GET", "/", &[("Cookie", &cookie)]).status, 200);
    }
    assert_eq!(last(&asked).path(), "/oauth2/auth?allowed_groups=a");
    let host = last(&asked).header("host").map(str::to_owned);
    assert_eq!(host, Some(service.address.to_string()));
}

#[test]
fn a_request_that_waits_is_decided_by_the_file_that_it_came_under() {
    let upstream = listing();
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let service = Script::start(move |_, mut connection| {
        connection.read();
        wait.lock().expect("not poisoned").recv().expect("the test goes on");
        connection.write("HTTP/1.1 200 OK\r\nRemote-User: ann\r\nContent-Length: 0\r\n\r\n");
    });
    let before = route(service.address, "copy: remote-user, timeout: 60s", "");
    let gateway = Gateway::start(&yaml(upstream.address, &before));
    let mut client = Client::new(gateway.web());
    client.send(head("GET", "/", &[("Remote-User", "admin")]));
    eventually("the service is asked", || (service.connections() > 0).then_some(()));

    let open = "  - { name: all, match: { path_prefix: / }, upstream: up }\n";
    gateway.edit(&yaml(upstream.address, open));
    eventually("the new file is in force", || {
        (Client::new(gateway.web()).get("/").status == 200).then_some(())
    });
    go.send(()).expect("the service waits");
    let answer: Answer = client.read("GET");
    assert!(answer.text().contains("remote-user: ann\n"), "{}", answer.text());
    assert!(!answer.text().contains("admin"), "{}", answer.text());
    client.stream.get_mut().flush().expect("open");
}

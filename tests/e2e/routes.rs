//! What routes match beside host and path, and what they do without an upstream.

use crate::common::{
    Gateway, curl, eventually,
    http::{self, Client},
    metrics, upstream, yaml,
};
use std::net::SocketAddr;

/// Adds the listener `other` to a configuration.
fn with_other(yaml: &str) -> String {
    let web = "  - { name: web, listen: 127.0.0.1:0 }\n";
    yaml.replace(web, &format!("{web}  - {{ name: other, listen: 127.0.0.1:0 }}\n"))
}

#[test]
fn a_route_of_one_listener_takes_all_that_comes_by_it() {
    let upstream = upstream::echo();
    let routes = "  - { name: api, match: { path: /api }, upstream: up, response_headers: { set: { x-route: api } } }
  - { name: all, match: { path_prefix: / }, upstream: up, response_headers: { set: { x-route: all } } }
  - { name: own, match: { listener: other }, upstream: up, response_headers: { set: { x-route: own } } }
  - { name: both, match: { listener: [web, other], path: /b }, upstream: up, response_headers: { set: { x-route: both } } }";
    let gateway = Gateway::start(&with_other(&yaml(upstream.address, routes)));
    let mut web = Client::new(gateway.web());
    let mut other = Client::new(gateway.address("other"));
    for (path, by_web, by_other) in
        [("/api", "api", "own"), ("/x", "all", "own"), ("/b", "both", "both")]
    {
        assert_eq!(web.get(path).header("x-route"), Some(by_web), "{path}");
        assert_eq!(other.get(path).header("x-route"), Some(by_other), "{path}");
    }
    let answer = over_http2(gateway.address("other"), "/api", &[]);
    assert!(answer.starts_with("HTTP/2 200") && answer.contains("x-route: own\r\n"), "{answer}");
    let routes = http::ask(gateway.address("admin"), "/routes").json();
    let shown: Vec<_> =
        routes["routes"].as_array().expect("a list").iter().map(|route| &route["match"]).collect();
    assert_eq!(shown, ["/b listener web|other", "/* listener other", "/api", "/*"]);
}

/// Sends a request over HTTP/2 with curl; returns the answer with its header.
fn over_http2(address: SocketAddr, path: &str, arguments: &[&str]) -> String {
    let url = format!("http://{address}{path}");
    curl(&[&["--http2-prior-knowledge", "-i", "--path-as-is", &url], arguments].concat())
}

#[test]
fn cleartext_is_redirected_to_https_in_one_line() {
    let upstream = upstream::echo();
    let routes = "  - { name: tls, match: { path_prefix: / }, redirect: https }
  - { name: moved, match: { path_prefix: /old }, redirect: { to: \"/new{path}?\", status: 301 } }
  - { name: plain, match: { path_prefix: /plain }, redirect: \"/{path}\" }
  - { name: slash, match: { path_prefix: /s }, redirect: \"{path}/\", body_limit: 1KiB }";
    let gateway = Gateway::start(&yaml(upstream.address, routes));
    let mut client = Client::new(gateway.web());
    for (path, status, location) in [
        ("/a%2f%20b?c=d&e=%26", 308, "https://shop.example/a%2f%20b?c=d&e=%26"),
        ("/", 308, "https://shop.example/"),
        ("//evil.example/x", 308, "https://shop.example//evil.example/x"),
        ("/old/x?y", 301, "/new/old/x"),
        ("//plain/evil.example", 302, "/plain/evil.example"),
        ("//s/x", 302, "/s/x/"),
        ("/s/\"<x>?q", 302, "/s/%22%3Cx%3E/?q"),
    ] {
        let answer = client.request("GET", path, &[("Host", "Shop.Example:8080")]);
        assert_eq!((answer.status, answer.header("location")), (status, Some(location)), "{path}");
        assert_eq!(answer.header("content-length"), Some("0"), "{path}");
    }
    // The connection goes on after a body that is not needed, and after HEAD.
    client.send("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
    assert_eq!(client.read("POST").header("location"), Some("https://a/a"));
    assert_eq!(
        client.request("HEAD", "/a", &[("Host", "[::1]:1")]).header("location"),
        Some("https://[::1]/a")
    );
    // Without a host there is nowhere to go.
    client.send("GET /a HTTP/1.0\r\n\r\n");
    assert_eq!(client.read("GET").status, 400);
    let answer = over_http2(gateway.web(), "/a?b", &["-d", "x"]);
    assert!(
        answer.starts_with("HTTP/2 308") && answer.contains("location: https://127.0.0.1/a?b\r\n"),
        "{answer}"
    );
    assert_eq!(upstream.connections(), 0);
    let counted = metrics(&gateway, "flowgate_http_requests_total");
    let of = |route: &str| {
        counted.iter().filter(|(key, _)| key.contains(route)).map(|(_, n)| n).sum::<f64>()
    };
    assert_eq!((of("route=\"tls\""), of("route=\"moved\"")), (7.0, 1.0));
}

/// Routes that answer.
const RESPONSES: &str = "  - name: json
    match: { path: /json }
    respond: { status: 203, body: '{\"ip\": \"{client_ip}\", \"path\": \"{path}{query}\", \"a\": {\"b\": \"{{path}}\"}}', headers: { x-from: '{host}' } }
    flow: [{ name: r, limit: 4/1h }]
    access: { deny: 192.0.2.1 }
  - name: html
    match: { path_prefix: /html }
    respond: { headers: { content-type: text/html }, body: '<p>{path}</p>' }
  - { name: gone, match: { path: /gone }, respond: 410 }
  - { name: empty, match: { path: /empty }, respond: { status: 204, headers: { x-a: b } } }";

#[test]
fn a_response_is_what_the_file_says_and_the_rules_of_its_route_apply() {
    let upstream = upstream::echo();
    let yaml = format!("access_log: access.json\n{}", yaml(upstream.address, RESPONSES));
    let gateway = Gateway::start(&yaml);
    let mut client = Client::new(gateway.web());
    let answer = client.get("/json?\"q\\");
    assert_eq!(answer.status, 203);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("x-from"), Some("gateway.test"));
    assert!(answer.header("ratelimit").is_some_and(|value| value.starts_with("\"r\";r=3;")));
    let expected =
        serde_json::json!({ "ip": "127.0.0.1", "path": "/json?%22q\\", "a": { "b": "{path}" } });
    assert_eq!(answer.json(), expected);
    let head = client.request("HEAD", "/json", &[]);
    assert_eq!((head.status, head.body.len()), (203, 0));
    let length = r#"{"ip": "127.0.0.1", "path": "/json", "a": {"b": "{path}"}}"#.len();
    assert_eq!(head.header("content-length"), Some(&*length.to_string()));
    let answer = over_http2(gateway.web(), "/json?x", &[]);
    assert!(answer.starts_with("HTTP/2 203") && answer.contains("/json?x"), "{answer}");
    assert_eq!(client.get("/json").status, 203);
    assert_eq!(client.get("/json").status, 429, "the rule of the route");
    let html = client.get("/html/<script>'x'&");
    assert_eq!(html.header("content-type"), Some("text/html"));
    assert_eq!(html.text(), "<p>/html/%3Cscript%3E&#39;x&#39;&#38;</p>");
    let gone = client.get("/gone");
    assert_eq!(
        (gone.status, gone.header("content-length"), gone.header("content-type")),
        (410, Some("0"), None)
    );
    let empty = client.get("/empty");
    assert_eq!(
        (empty.status, empty.header("x-a"), empty.header("content-length")),
        (204, Some("b"), None)
    );
    assert_eq!(upstream.connections(), 0);
    let log = gateway.dir.path().join("access.json");
    let lines = eventually("all are logged", || {
        let text = std::fs::read_to_string(&log).ok()?;
        (text.lines().count() == 8).then_some(text)
    });
    let line: serde_json::Value =
        serde_json::from_str(lines.lines().next().expect("a line")).expect("JSON");
    assert_eq!(
        (&line["route"], &line["status"], &line["attempts"]),
        (&"json".into(), &203.into(), &0.into())
    );
    assert_eq!(
        (&line["flow"]["decision"], &line["upstream"]),
        (&"passed".into(), &serde_json::Value::Null)
    );
    let routes = http::ask(gateway.address("admin"), "/routes").json();
    let shown =
        routes["routes"].as_array().expect("a list").iter().find(|route| route["name"] == "gone");
    assert_eq!(shown.expect("it is there")["answer"], "respond 410");
}

#[test]
fn the_upstream_receives_what_a_rewrite_makes_of_a_request() {
    let upstream = upstream::echo();
    let routes = "  - name: api
    match: { path_prefix: /api }
    upstream: up
    rewrite: { strip_prefix: /api, add_prefix: /v1, host: app.internal:81 }
    request_headers: { set: { x-was: '{scheme} {host} {path}{query}', x-by: '{method} {client_ip}' } }
    flow: [{ name: r, limit: 100/1h, key: path }]
  - name: user
    match: { path_prefix: /u }
    upstream: up
    rewrite: { path_regex: { match: '^/u/([0-9]+)(.*)$', replace: '/users/$1$2' } }
  - name: joined
    match: { path_prefix: /j }
    upstream: up
    rewrite: { path_regex: { match: x, replace: '' } }";
    let gateway = Gateway::start(&yaml(upstream.address, routes));
    let mut client = Client::new(gateway.web());
    for (path, line) in [
        ("/api/a%2fb%20c?d=%2e&/api", "GET /v1/a%2fb%20c?d=%2e&/api HTTP/1.1"),
        ("/api", "GET /v1/ HTTP/1.1"),
        ("/api?x", "GET /v1/?x HTTP/1.1"),
        ("//%61pi/./x", "GET /v1/x HTTP/1.1"),
        ("/api//x", "GET /v1//x HTTP/1.1"),
        ("/u/7/x?y", "GET /users/7/x?y HTTP/1.1"),
        ("/u/x", "GET /u/x HTTP/1.1"),
        ("/j/axb", "GET /j/ab HTTP/1.1"),
    ] {
        let answer = client.get(path);
        assert_eq!((answer.status, &answer.json()["line"]), (200, &line.into()), "{path}");
        let sent = over_http2(gateway.web(), path, &[]);
        assert!(sent.contains(&format!("\"line\":\"{line}\"")), "{sent}");
    }
    let headers = client.request("GET", "/api/a%20b?c", &[("Host", "A.example:1")]).json();
    let value = |name: &str| {
        let headers = headers["headers"].as_array().expect("a list").iter();
        let found: Vec<_> =
            headers.filter(|field| field[0] == name).map(|field| field[1].clone()).collect();
        assert_eq!(found.len(), 1, "{name}");
        found[0].clone()
    };
    assert_eq!(value("host"), "app.internal:81");
    assert_eq!(value("x-forwarded-host"), "A.example:1");
    assert_eq!(value("x-was"), "http a.example /api/a%20b?c");
    assert_eq!(value("x-by"), "GET 127.0.0.1");
    let seen = upstream.connections();
    for path in ["/j/.x.", "/j/%x5c"] {
        assert_eq!(client.get(path).status, 400, "{path}");
        client = Client::new(gateway.web());
    }
    assert_eq!(upstream.connections(), seen);
    let routes = http::ask(gateway.address("admin"), "/routes").json();
    assert_eq!(routes["routes"][0]["rewrite"], "strip /api, add /v1, host app.internal:81");
}

/// A user whose password nobody knows.
const NO_USER: &str = "nobody:$2y$05$bvIG6Nmid91Mu9RcmmWZfOpG29Fwqhp9izrpUlNDcHYnxtiP7OuIe\n";

/// Returns a file whose routes set a field that browsers need; one has a server that fails, and one
/// a server that does not answer.
fn with_origins(upstream: SocketAddr, dead: SocketAddr, silent: SocketAddr) -> String {
    let routes = "  - &api
    name: api
    match: { path_prefix: /api }
    upstream: up
    flow: [{ name: r, limit: 1/1h }]
    body_limit: 1KiB
    response_headers:
      set: { access-control-allow-origin: 'https://app.example', x-for: '{method} {path}', retry-after: 9, cache-control: max-age=60 }
      remove: [ratelimit-policy]
    reject: { body: '{\"rule\": \"{rule}\", \"in\": {retry_after}, \"of\": \"{method}\"}' }
  - { <<: *api, name: dead, match: { path_prefix: /dead }, upstream: dead, flow: [] }
  - { <<: *api, name: silent, match: { path_prefix: /silent }, upstream: silent, flow: [], timeouts: { first_byte: 200ms } }
  - { <<: *api, name: secured, match: { path_prefix: /secured }, flow: [], auth: { basic: users } }
  - { <<: *api, name: closed, match: { path_prefix: /closed }, flow: [], access: { allow: [10.0.0.0/8] } }
  - { <<: *api, name: slow, match: { path_prefix: /slow }, flow: [], timeouts: { idle: 200ms } }
  - { name: sent, match: { path_prefix: /sent }, redirect: /api, response_headers: { set: { access-control-allow-origin: 'https://app.example', cache-control: max-age=60 } } }";
    yaml(upstream, routes).replace(
        "routes:\n",
        &format!(
            "  - {{ name: dead, servers: [{{ url: \"http://{dead}\" }}] }}\n  \
             - {{ name: silent, servers: [{{ url: \"http://{silent}\" }}] }}\nroutes:\n"
        ),
    )
}

/// CORS as a browser needs it: also where the gateway answers.
#[test]
fn the_port_is_the_one_that_the_client_asked_for() {
    let upstream = upstream::echo();
    let routes = "  - name: all
    match: { path_prefix: / }
    upstream: up
    request_headers: { set: { x-forwarded-port: '{port}' } }";
    let text = yaml(upstream.address, routes);
    let sent = |gateway: &Gateway, host: &str, field: &str| {
        let fields = [("Host", host), ("X-Forwarded-Port", field)];
        let answer = Client::new(gateway.web()).request("GET", "/", &fields).json();
        let headers = answer["headers"].as_array().expect("a list").iter();
        let found: Vec<_> = headers
            .filter(|field| field[0] == "x-forwarded-port")
            .map(|field| field[1].as_str().expect("a text").to_owned())
            .collect();
        found.join(" ")
    };

    let gateway = Gateway::start(&text);
    for (host, expected) in
        [("a.example:8443", "8443"), ("a.example", "80"), ("[::1]:99", "99"), ("[::1]", "80")]
    {
        assert_eq!(
            sent(&gateway, host, "444"),
            expected,
            "{host}: what a client writes does not count"
        );
    }

    let gateway = Gateway::start(&format!("trusted_proxies: [127.0.0.1]\n{text}"));
    for (field, expected) in [("444", "444"), ("x", "8443"), ("", "8443"), ("70000", "8443")] {
        assert_eq!(sent(&gateway, "a.example:8443", field), expected, "{field}");
    }
}

#[test]
fn what_is_set_on_responses_is_on_those_of_the_gateway_too() {
    let upstream = upstream::echo();
    let dead = upstream::Script::start(|_, _| ());
    let silent = upstream::Script::start(|_, mut connection| while connection.read().is_some() {});
    let folder = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(folder.path().join("users"), NO_USER).expect("written");
    let text = with_origins(upstream.address, dead.address, silent.address);
    let gateway = Gateway::start_in(folder, &text, &[]);
    let mut client = Client::new(gateway.web());
    let origin =
        |answer: &http::Answer| answer.header("access-control-allow-origin").map(str::to_owned);
    let own = Some("https://app.example".to_owned());
    let passed = client.get("/api/a");
    assert_eq!((passed.status, origin(&passed)), (200, own.clone()));
    assert_eq!(
        (passed.header("cache-control"), passed.header("ratelimit-policy")),
        (Some("max-age=60"), None)
    );
    for method in ["OPTIONS", "GET"] {
        let rejected = client.request(
            method,
            "/api/b",
            &[("Origin", "https://app.example"), ("Access-Control-Request-Method", "PUT")],
        );
        assert_eq!((rejected.status, origin(&rejected)), (429, own.clone()));
        assert_eq!(rejected.header("x-for"), Some(&*format!("{method} /api/b")));
        let wait: u64 = rejected.header("retry-after").expect("there").parse().expect("seconds");
        assert!(wait > 60, "what the gateway says itself stays: {wait}");
        assert!(rejected.header("ratelimit-policy").is_some());
        assert_eq!(
            rejected.header("cache-control"),
            None,
            "an error is not the upstream's content"
        );
        assert_eq!(rejected.json(), serde_json::json!({ "rule": "r", "in": wait, "of": method }));
    }
    let rejected = over_http2(gateway.web(), "/api/c", &["-X", "OPTIONS"]);
    assert!(
        rejected.starts_with("HTTP/2 429")
            && rejected.contains("access-control-allow-origin: https://app.example"),
        "{rejected}"
    );
    let dead = client.get("/dead");
    assert_eq!((dead.status, origin(&dead)), (502, own.clone()));
    let sent = client.get("/sent");
    assert_eq!(
        (sent.status, origin(&sent), sent.header("cache-control")),
        (302, own.clone(), Some("max-age=60"))
    );
    client.send("POST /api/d HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\n");
    let too_long = client.read("POST");
    assert_eq!((too_long.status, origin(&too_long)), (413, own.clone()));
    for (path, status) in [("/secured", 401), ("/closed", 403), ("/slow", 408), ("/silent", 504)] {
        let mut client = Client::new(gateway.web());
        client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n"));
        // The rest of this body never comes.
        client.send(if status == 408 { "ab" } else { "abc" });
        let answer = client.read("POST");
        assert_eq!((answer.status, origin(&answer)), (status, own.clone()), "{path}");
        assert_eq!(answer.header("x-for"), Some(&*format!("POST {path}")));
        assert_eq!(answer.header("www-authenticate").is_some(), status == 401, "{path}");
    }
}

/// A page of the file's own for what flowgate answers, in place of a problem+json document.
#[test]
fn errors_have_the_bodies_that_the_file_gives_them() {
    let upstream = upstream::Script::answering(|_| {
        b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\nbusy".to_vec()
    });
    let dead = upstream::Script::start(|_, _| ());
    let routes = "  - name: up
    match: { path_prefix: / }
    upstream: up
    flow: [{ name: r, limit: 1/1h }]
    errors: &errors
      - { status: [502, 504], body: '<p>We are back soon: {path}</p>' }
      - { status: 413, body: too long, content_type: text/x-short }
      - { body: '{\"path\": \"{path}\"}' }
  - { name: dead, match: { path_prefix: /dead }, upstream: dead, body_limit: 1KiB, errors: *errors }
  - { name: closed, match: { path_prefix: /closed }, upstream: up, access: { allow: [10.0.0.0/8] }, errors: *errors }
  - { name: both, match: { path_prefix: /both }, upstream: up, flow: [{ name: r, limit: 1/1h, cost: 2, burst: 2 }], reject: { body: rejected }, errors: *errors }";
    let text = yaml(upstream.address, routes).replace(
        "routes:\n",
        &format!(
            "  - {{ name: dead, servers: [{{ url: \"http://{}\" }}] }}\nroutes:\n",
            dead.address
        ),
    );
    let gateway = Gateway::start(&text);
    let mut client = Client::new(gateway.web());
    let shown = |answer: &http::Answer| {
        let content_type = answer.header("content-type").unwrap_or_default().to_owned();
        (answer.status, content_type, answer.text())
    };
    let html = "text/html; charset=utf-8".to_owned();
    let page = "<p>We are back soon: /dead/a&#38;b</p>".to_owned();
    let dead = client.get("/dead/a&b");
    assert_eq!(shown(&dead), (502, html.clone(), page.clone()));
    let head = client.request("HEAD", "/dead/a&b", &[]);
    assert_eq!((head.status, head.header("content-length")), (502, Some(&*page.len().to_string())));
    let answer = over_http2(gateway.web(), "/dead/x", &[]);
    assert!(answer.starts_with("HTTP/2 502") && answer.ends_with("soon: /dead/x</p>"), "{answer}");
    let busy = client.get("/a");
    assert_eq!(shown(&busy), (502, String::new(), "busy".to_owned()), "the upstream's own error");
    let json = |path: &str| ("application/json".to_owned(), format!("{{\"path\": \"{path}\"}}"));
    let rejected = client.get("/b");
    let (content_type, body) = json("/b");
    assert_eq!(shown(&rejected), (429, content_type, body));
    assert!(rejected.header("retry-after").is_some() && rejected.header("ratelimit").is_some());
    let (content_type, body) = json("/closed");
    assert_eq!(shown(&client.get("/closed")), (403, content_type, body));
    assert_eq!(client.get("/both").text(), "busy");
    assert_eq!(client.get("/both").text(), "rejected");
    let call = client.request(
        "POST",
        "/dead/x",
        &[("Content-Type", "application/grpc"), ("Content-Length", "0")],
    );
    assert_eq!(
        (call.status, call.header("grpc-status"), call.text()),
        (200, Some("14"), String::new())
    );
    client.send("POST /dead/y HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\n");
    let too_long = client.read("POST");
    assert_eq!(shown(&too_long), (413, "text/x-short".to_owned(), "too long".to_owned()));
}

#[test]
fn one_id_is_in_all_that_a_request_leads_to() {
    let upstream = upstream::echo();
    let routes = "  - { name: up, match: { path_prefix: / }, upstream: up, request_headers: { set: { x-id: '{request_id}' } } }
  - { name: own, match: { path: /own }, respond: { body: '{request_id}' } }";
    let gateway = Gateway::start(&yaml(upstream.address, routes));
    let mut client = Client::new(gateway.web());
    let own = client.get("/own");
    assert!(own.body.len() >= 16 && own.header("x-request-id") == Some(&own.text()), "{own:?}");
    let passed = client.get("/");
    let id = passed.header("x-request-id").expect("it has one");
    assert!(
        passed.json()["headers"]
            .as_array()
            .expect("a list")
            .contains(&serde_json::json!(["x-id", id]))
    );
}

#[test]
fn a_redirect_takes_groups_of_the_path_and_never_leads_to_a_host_that_a_client_chose() {
    let upstream = upstream::echo();
    let routes = "  - { name: moved, match: { path_regex: '/old/(.*)' }, redirect: { to: '/new/$1', status: 301 } }
  - { name: two, match: { path_regex: ['/shop/(de|en)(/x)?/(.*)', '/(de)()/shop/(.*)'] }, redirect: '/$1/shop$2/$3' }
  - { name: named, match: { path_regex: '/n/(?P<year>[0-9]+)-(?P<name>[^/]*)' }, redirect: 'https://{host}/$year/$name?n=$name&cost=$$5' }
  - { name: bare, match: { path_regex: '/index[.]php(.*)' }, redirect: '$1' }
  - { name: behind, match: { path_regex: '/h(.*)' }, redirect: 'https://www.example.com$1' }
  - { name: plain, match: { path_prefix: /p }, redirect: '/price$$1/$metadata' }";
    let gateway = Gateway::start(&yaml(upstream.address, routes));
    let mut client = Client::new(gateway.web());
    for (path, location) in [
        ("/old/a/b?c=d", "/new/a/b?c=d"),
        ("/old/", "/new/"),
        ("/old//evil.example", "/new//evil.example"),
        ("/old/a%2fb%20%41", "/new/a%2fb%20%41"),
        ("/%6fld/a%3fb%23c%20%41", "/new/a%3Fb%23c%20A"),
        ("/shop/de/x/y", "/de/shop/x/y"),
        ("/shop/en/y", "/en/shop/y"),
        ("/de/shop/y", "/de/shop/y"),
        ("/n/2026-a&b=c+d", "https://shop.example/2026/a&b=c+d?n=a%26b=c%2Bd&cost=$5"),
        ("/index.php/x?q", "/x?q"),
        ("/index.php//evil.example", "/evil.example"),
        ("/index.phphttps://evil.example", "/https://evil.example"),
        ("/index.php", "/"),
        ("/h/x", "https://www.example.com/x"),
        ("/h.evil.example", "https://www.example.com/.evil.example"),
        ("/h@evil.example", "https://www.example.com/@evil.example"),
        ("/h:80", "https://www.example.com/:80"),
        ("/h", "https://www.example.com/"),
        ("/p", "/price$1/$metadata"),
    ] {
        let answer = client.request("GET", path, &[("Host", "Shop.Example")]);
        assert_eq!(answer.header("location"), Some(location), "{path}");
        let answer = over_http2(gateway.web(), path, &["-H", "host: shop.example"]);
        assert!(answer.contains(&format!("location: {location}\r\n")), "{path}: {answer}");
    }
    // A line end, encoded or not, never gets into the header.
    for path in ["/old/a%0d%0aset-cookie:%20x=y", "/index.php%0aset-cookie:x"] {
        let answer = http::get(gateway.web(), path);
        assert_eq!((answer.status, answer.header("set-cookie")), (400, None), "{path}");
    }
    let routes = http::ask(gateway.address("admin"), "/routes").json();
    let shown =
        routes["routes"].as_array().expect("a list").iter().find(|route| route["name"] == "moved");
    assert_eq!(shown.expect("it is there")["answer"], "redirect 301 /new/$1");
}

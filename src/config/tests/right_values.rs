//! Words and values of other gateways, each with the right one: the hint has it, and a file that is
//! written as the hint says is accepted.

use super::{FRAME, parsed};

/// A file with a wrong value, what its hint says, and the same file as the hint says.
struct Case<'a> {
    wrong: &'a str,
    /// A part of the hint.
    code: &'a str,
    right: &'a str,
}

/// Asserts that the wrong file has one error, whose hint has the code, which the right file has,
/// too, and that the right file is accepted.
#[track_caller]
fn check(case: &Case<'_>, file: impl Fn(&str) -> String) {
    let Case { wrong, code, right } = case;
    let problems = parsed(&file(wrong)).expect_err(wrong);
    let found: Vec<_> = problems.list().map(|diagnostic| diagnostic.help).collect();
    assert!(found.len() == 1, "{wrong}: {problems}");
    assert!(found[0].contains(&format!("`{code}`")), "{wrong}: {problems}");
    assert!(right.contains(code), "{right} has {code}");
    if let Err(problems) = parsed(&file(right)) {
        panic!("{right}: {problems}");
    }
}

#[track_caller]
fn in_rule(cases: &[(&str, &str, &str)]) {
    for &(wrong, code, right) in cases {
        check(&Case { wrong, code, right }, |rule| {
            format!(
                "{FRAME}routes:\n  - name: r\n    match: {{ path_prefix: / }}\n    upstream: app\n    \
                 flow: [{{ name: a, {rule} }}]\n"
            )
        });
    }
}

#[track_caller]
fn in_match(cases: &[(&str, &str, &str)]) {
    for &(wrong, code, right) in cases {
        check(&Case { wrong, code, right }, |conditions| {
            format!("{FRAME}routes: [{{ name: r, upstream: app, match: {{ {conditions} }} }}]\n")
        });
    }
}

#[track_caller]
fn in_route(cases: &[(&str, &str, &str)]) {
    for &(wrong, code, right) in cases {
        check(&Case { wrong, code, right }, |lines| {
            format!("{FRAME}routes:\n  - name: r\n    {lines}\n")
        });
    }
}

#[track_caller]
fn in_upstream(cases: &[(&str, &str, &str)]) {
    for &(wrong, code, right) in cases {
        check(&Case { wrong, code, right }, |keys| {
            format!(
                "listeners: [{{ name: web, listen: 8080 }}]\nupstreams: [{{ name: app, {keys} }}]\n\
                 routes: [{{ name: r, match: {{ path_prefix: / }}, upstream: app }}]\n"
            )
        });
    }
}

#[track_caller]
fn in_file(cases: &[(&str, &str, &str)]) {
    const ROUTES: &str = "routes: [{ name: r, match: { path_prefix: / }, upstream: app }]\n";
    for &(wrong, code, right) in cases {
        check(&Case { wrong, code, right }, |line| format!("{FRAME}{ROUTES}{line}\n"));
    }
}

#[test]
fn keys_of_rules() {
    in_rule(&[
        ("limit: 5/s, key: X-Api-Key", "header:x-api-key", "limit: 5/s, key: 'header:x-api-key'"),
        (
            "limit: 5/s, key: $http_x_api_key",
            "header:x-api-key",
            "limit: 5/s, key: 'header:x-api-key'",
        ),
        (
            "limit: 5/s, key: header.x-tenant",
            "header:x-tenant",
            "limit: 5/s, key: 'header:x-tenant'",
        ),
        (
            "limit: 5/s, key: req.hdr(X-Tenant)",
            "header:x-tenant",
            "limit: 5/s, key: 'header:x-tenant'",
        ),
        ("limit: 5/s, key: $cookie_sid", "cookie:sid", "limit: 5/s, key: 'cookie:sid'"),
        ("limit: 5/s, key: $arg_q", "query:q", "limit: 5/s, key: 'query:q'"),
        ("limit: 5/s, key: src", "client_ip", "limit: 5/s, key: client_ip"),
        ("limit: 5/s, key: X-Forwarded-For", "client_ip", "limit: 5/s, key: client_ip"),
        (
            "limit: 5/s, key: $binary_remote_addr$host",
            "[client_ip, host]",
            "limit: 5/s, key: [client_ip, host]",
        ),
        ("max_conns: 9", "concurrency", "concurrency: 9"),
        ("maxconn: 9", "concurrency", "concurrency: 9"),
        (
            "limit: 5/s, overrides: [{ when: { X-Tenant: gold }, limit: 9/s }]",
            "header:x-tenant",
            "limit: 5/s, overrides: [{ when: { 'header:x-tenant': gold }, limit: 9/s }]",
        ),
        (
            "limit: 5/s, overrides: [{ when: { path: /a }, limit: 9/s }]",
            "path_prefix",
            "limit: 5/s, overrides: [{ when: { path_prefix: /a }, limit: 9/s }]",
        ),
        ("limit: 5/s, algorithm: gcra", "leaky_bucket", "limit: 5/s, algorithm: leaky_bucket"),
        (
            "limit: 5/s, except: { path_prefix: '~ ^/a' }",
            "path_prefix: /api",
            "limit: 5/s, except: { path_prefix: /api }",
        ),
    ]);
    let file = |key: &str| {
        format!(
            "{FRAME}routes:\n  - name: r\n    match: {{ path_prefix: / }}\n    upstream: app\n    \
             auth: {{ jwt: {{ jwks: a }} }}\n    flow: [{{ name: a, limit: 5/s, key: {key} }}]\n"
        )
    };
    for wrong in ["jwt.sub", "claims.sub", "$jwt_claim_sub"] {
        let problems = crate::config::Text::new("gateway.yaml".as_ref(), &file(wrong)).rules();
        let problems = problems.expect_err(wrong).to_string();
        assert!(problems.contains("did you mean `jwt:sub`?"), "{problems}");
    }
    crate::config::Text::new("gateway.yaml".as_ref(), &file("'jwt:sub'")).rules().expect("right");
}

#[test]
fn rates() {
    in_rule(&[
        ("limit: 10r/s", "10/1s", "limit: 10/1s"),
        ("limit: 10 r/s", "10/1s", "limit: 10/1s"),
        ("limit: 300r/m", "300/1m", "limit: 300/1m"),
        ("limit: 10rps", "10/1s", "limit: 10/1s"),
        ("limit: 10 req/s", "10/1s", "limit: 10/1s"),
        ("limit: 10 requests per second", "10/1s", "limit: 10/1s"),
        ("limit: 600 per minute", "600/1m", "limit: 600/1m"),
        ("limit: 60rpm", "60/1m", "limit: 60/1m"),
        ("limit: 1k/s", "1000/1s", "limit: 1000/1s"),
    ]);
    for wrong in ["limit: r/s", "limit: 10/x", "limit: many", "limit: 99999999999999999999r/s"] {
        let text = format!(
            "{FRAME}routes: [{{ name: r, match: {{ path: / }}, upstream: app, flow: [{{ name: a, {wrong} }}] }}]\n"
        );
        let shown = parsed(&text).expect_err(wrong).to_string();
        assert!(shown.contains("= help: write"), "{shown}");
    }
}

#[test]
fn costs() {
    in_rule(&[
        (
            "limit: 9/s, cost: { status: 5 }",
            "cost: { settle: { status: { 401: 1, default: 0 } } }",
            "limit: 9/s, cost: { settle: { status: { 401: 1, default: 0 } } }",
        ),
        (
            "limit: 9/s, cost: { status: { 500: 5 } }",
            "cost: { settle: { status: { 401: 1, default: 0 } } }",
            "limit: 9/s, cost: { settle: { status: { 401: 1, default: 0 } } }",
        ),
        (
            "limit: 9/s, cost: { 404: 5 }",
            "cost: { settle: { status: { 401: 1, default: 0 } } }",
            "limit: 9/s, cost: { settle: { status: { 401: 1, default: 0 } } }",
        ),
        (
            "limit: 9/s, cost: { header: 5 }",
            "cost: { POST: 5, default: 1 }",
            "limit: 9/s, cost: { POST: 5, default: 1 }",
        ),
        ("limit: 9/s, cost: { post: 5 }", "POST", "limit: 9/s, cost: { POST: 5 }"),
        ("limit: 9/s, cost: { any: 5 }", "default", "limit: 9/s, cost: { default: 5 }"),
    ]);
    let text = format!(
        "{FRAME}routes: [{{ name: r, match: {{ path: / }}, upstream: app, flow: [{{ name: a, limit: 9/s, cost: {{ status: 5 }} }}] }}]\n"
    );
    let shown = parsed(&text).expect_err("a status").to_string();
    assert!(shown.contains("known after the response"), "{shown}");
}

#[test]
fn paths_and_hosts() {
    in_match(&[
        ("location: /api", "path_prefix", "path_prefix: /api"),
        ("server_name: a.b", "host", "host: a.b"),
        ("path: '~ ^/api'", "path_regex: '/api.*'", "path_regex: '/api.*'"),
        ("path: '~* [.]php$'", "path_regex: '(?i).*[.]php'", "path_regex: '(?i).*[.]php'"),
        ("path: '= /api'", "path: /api", "path: /api"),
        ("path_prefix: '^~ /api'", "path_prefix: /api", "path_prefix: /api"),
        ("path: /api/*", "path_prefix: /api", "path_prefix: /api"),
        ("path_prefix: /api/*", "path_prefix: /api", "path_prefix: /api"),
        ("path: /api*", "path_prefix: /api", "path_prefix: /api"),
        ("path: /users/*/items", "path: '/users/{id}/items'", "path: '/users/{id}/items'"),
        ("path: '*'", "path_prefix: /", "path_prefix: /"),
        ("path: '/*.php'", "path_regex: '.*[.]php'", "path_regex: '.*[.]php'"),
        ("path: PathPrefix(`/api`)", "path_prefix: /api", "path_prefix: /api"),
    ]);
}

#[test]
fn keys_of_routes() {
    in_route(&[
        (
            "upstream: app\n    location: /login",
            "match: { path_prefix: /login }",
            "upstream: app\n    match: { path_prefix: /login }",
        ),
        (
            "upstream: app\n    server_name: a.b",
            "match: { host: shop.example.com }",
            "upstream: app\n    match: { host: shop.example.com }",
        ),
    ]);
    let with_match =
        |keys: &str| format!("upstream: app\n    match: {{ path_prefix: / }}\n    {keys}");
    for (wrong, code, right) in [
        ("client_max_body_size: 10m", "body_limit", "body_limit: 10m"),
        (
            "max_conns: 9",
            "flow: [{ name: total, concurrency: 100 }]",
            "flow: [{ name: total, concurrency: 100 }]",
        ),
        (
            "rate: 10r/s",
            "flow: [{ name: total, limit: 100/1s }]",
            "flow: [{ name: total, limit: 100/1s }]",
        ),
    ] {
        in_route(&[(&with_match(wrong), code, &with_match(right))]);
    }
}

#[test]
fn keys_of_upstreams_and_servers() {
    const SERVERS: &str = "servers: [{ url: http://a }]";
    for (wrong, code, right) in [
        ("balance: leastconn", "least_request", "balance: least_request"),
        ("balance: least-connections", "least_request", "balance: least_request"),
        ("balance: LEAST_REQUEST", "least_request", "balance: least_request"),
        ("balance: roundrobin", "round_robin", "balance: round_robin"),
        ("balance: source", "hash", "balance: hash"),
        ("balance: maglev", "hash", "balance: hash"),
        ("least_conn: true", "balance: least_request", "balance: least_request"),
        ("algorithm: random", "balance", "balance: random"),
    ] {
        let [wrong, right] = [wrong, right].map(|keys| format!("{SERVERS}, {keys}"));
        in_upstream(&[(&wrong, code, &right)]);
    }
    let text = |upstream: &str, server: &str, flow: &str| {
        format!(
            "listeners: [{{ name: web, listen: 8080 }}]\n\
             upstreams: [{{ name: app, servers: [{{ url: http://a{server} }}]{upstream} }}]\n\
             routes: [{{ name: r, match: {{ path_prefix: / }}, upstream: app{flow} }}]\n"
        )
    };
    for wrong in [text("", ", max_conns: 9", ""), text(", max_conns: 9", "", "")] {
        let shown = parsed(&wrong).expect_err("rejected").to_string();
        assert!(shown.contains("`flow: [{ name: total, concurrency: 100 }]`"), "{shown}");
    }
    parsed(&text("", "", ", flow: [{ name: total, concurrency: 100 }]")).expect("right");
}

#[test]
fn keys_of_the_file() {
    in_file(&[
        ("client_max_body_size: 1m", "limits: { body: 1MiB }", "limits: { body: 1MiB }"),
        ("limits: { client_max_body_size: 1m }", "body", "limits: { body: 1m }"),
        (
            "worker_connections: 9",
            "limits: { connections: 10000 }",
            "limits: { connections: 10000 }",
        ),
        ("worker_processes: 2", "workers", "workers: 2"),
        ("keepalive_timeout: 65", "timeouts: { keep_alive: 75s }", "timeouts: { keep_alive: 75s }"),
        ("resolver: 10.0.0.2", "dns_servers", "dns_servers: 10.0.0.2"),
    ]);
    for (wrong, code) in [
        ("location: /api", "routes: [{ name: api, match: { path_prefix: /api }, upstream: app }]"),
        ("server_name: a.b", "match: { host: shop.example.com }"),
    ] {
        let with_routes = format!(
            "{FRAME}routes: [{{ name: r, match: {{ path_prefix: / }}, upstream: app }}]\n{wrong}\n"
        );
        let shown = parsed(&with_routes).expect_err(wrong).to_string();
        assert!(shown.contains(&format!("`{code}`")), "{shown}");
    }
    let route = "routes: [{ name: api, match: { path_prefix: /api }, upstream: app }]\n";
    parsed(&format!("{FRAME}{route}")).expect("right");
}

#[test]
fn rules_and_overrides_are_counted_apart() {
    let overrides = |count: usize| {
        let each = (0..count).map(|n| format!("{{ when: {{ 'header:x': '{n}' }}, limit: 2/s }}"));
        each.collect::<Vec<_>>().join(", ")
    };
    let text = |rules: &str| {
        format!(
            "{FRAME}routes: [{{ name: r, match: {{ path: / }}, upstream: app, flow: [{rules}] }}]\n"
        )
    };
    let two = |count: usize| {
        let overrides = overrides(count);
        text(&format!(
            "{{ name: a, limit: 9/s }}, {{ name: b, limit: 8/s, overrides: [{overrides}] }}"
        ))
    };
    let shown = parsed(&two(500)).expect_err("too many").to_string();
    assert!(shown.contains("2 rules and 500 overrides are too many"), "{shown}");
    assert!(shown.contains("at most 16 rules and overrides together"), "{shown}");
    parsed(&two(14)).expect("sixteen");
}

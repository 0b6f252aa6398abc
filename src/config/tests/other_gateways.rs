//! Words, forms and values of other gateways: one error for each, whose hint is right for flowgate.

use super::{FRAME, parsed};

/// Asserts that a route with these lines has one error, whose hint contains `help`.
#[track_caller]
fn route(lines: &str, help: &str) {
    one(&format!("{FRAME}routes:\n  - name: r\n    match: {{ path: / }}\n    {lines}\n"), help);
}

#[track_caller]
fn rule(keys: &str, help: &str) {
    route(&format!("upstream: app\n    flow: [{{ name: a, {keys} }}]"), help);
}

#[track_caller]
fn upstream(lines: &str, help: &str) {
    one(
        &format!(
            "listeners: [{{ name: web, listen: 8080 }}]\nupstreams:\n  - name: app\n    {lines}\n\
             routes: [{{ name: r, match: {{ path: / }}, upstream: app }}]\n"
        ),
        help,
    );
}

#[track_caller]
fn one(text: &str, help: &str) {
    let problems = parsed(text).expect_err("the file is rejected");
    let found: Vec<_> = problems.list().map(|diagnostic| diagnostic.help).collect();
    assert!(found.len() == 1 && found[0].contains(help), "{help}\n{problems}");
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn keys_of_routes() {
    for (lines, help) in [
        ("upstream: app\n    client_max_body_size: 10MB", "write `body_limit`"),
        ("return: 301", "write `respond: 204` or `redirect: https`"),
        ("upstream: app\n    cors: true", "`cors: { origins: [https://app.example.com] }`"),
        ("upstream: app\n    stripPrefix: /api", "`rewrite: { strip_prefix: /api }`"),
        ("upstream: app\n    basicAuth: users", "`auth: { basic: users.htpasswd }`"),
        ("upstream: app\n    circuitBreaker: { errors: 5 }", "write `breaker`"),
        ("upstream: app\n    ipAllowList: [10.0.0.1]", "`access: { allow: [10.0.0.0/8] }`"),
        (
            "upstream: app\n    inFlightReq: { amount: 9 }",
            "`flow: [{ name: total, concurrency: 100 }]`",
        ),
        ("upstream: app\n    rate-limit: 9", "`flow: [{ name: total, limit: 100/1s }]`"),
        ("redirectScheme: { scheme: https }", "write `redirect: https`"),
        ("upstream: app\n    limit_req: a", "`flow: [{ name: total, limit: 100/1s }]`"),
        ("upstream: app\n    limit_conn: a", "`flow: [{ name: total, concurrency: 100 }]`"),
        ("upstream: app\n    add_header: { x-a: b }", "`response_headers`"),
        ("upstream: app\n    proxy_set_header: { x-a: b }", "`request_headers`"),
        ("reverse_proxy: app", "write `upstream`"),
        ("upstream: app\n    handle_path: /api", "`rewrite: { strip_prefix: /api }`"),
        ("upstream: app\n    methods: [GET]", "write it in `match`"),
        ("upstream: app\n    healthCheck: { path: /up }", "write `health` at the upstream"),
        ("upstream: app\n    gzip: true", "write `compress: true`"),
        ("upstream: app\n    error_page: 502", "write `errors: [{ status: 502, body: … }]`"),
        ("upstream: app\n    jwt: { jwks: a }", "`auth: { jwt: { jwks: issuer.json } }`"),
        ("upstream: app\n    ip_whitelist: [10.0.0.1]", "`access: { allow: [10.0.0.0/8] }`"),
        ("upstream: app\n    deny: [10.0.0.1]", "`access: { deny: [192.0.2.1] }`"),
        ("upstream: app\n    basic_auth: users", "`auth: { basic: users.htpasswd }`"),
        ("upstream: app\n    proxy_read_timeout: 5s", "`timeouts: { first_byte: 60s, idle: 60s }`"),
        ("upstream: app\n    middlewares: [a]", "such as `flow`"),
        ("upstream: app\n    max_concurrency: 9", "`flow: [{ name: total, concurrency: 100 }]`"),
        ("upstream: app\n    cache: true", "remove it"),
        ("cluster: app", "write `upstream`"),
        ("upstream: app\n    timeouts: { connect: 5s }", "`connect_timeout` at the upstream"),
        ("upstream: app\n    timeouts: { read: 5s }", "`first_byte`"),
        ("redirect: { url: 'https://a' }", "write `to`"),
        ("redirect: { scheme: https }", "write `to: https`"),
        ("respond: { code: 204 }", "write `status`"),
        ("upstream: app\n    request_headers: { add: { x-a: b } }", "write it in `set`"),
        ("upstream: app\n    request_headers: { x-a: b }", "write it in `set`"),
        ("upstream: app\n    request_headers: { delete: [x-a] }", "write `remove`"),
        ("upstream: app\n    request_headers: { unset: x-a }", "write `remove`"),
        ("upstream: app\n    response_headers: { hide: [x-a] }", "write `remove`"),
        ("upstream: app\n    response_headers: { rename: { x-a: x-b } }", "old name in `remove`"),
        ("upstream: app\n    response_headers: { without: [x-a] }", "write one of `set`, `remove`"),
        ("upstream: app\n    auth: { jwt: { jwks_uri: 'https://a' } }", "`jwks: issuer.json`"),
        ("upstream: app\n    auth: { jwt: {} }", "`jwks: issuer.json`"),
        ("upstream: app\n    auth: { jwt: { jwks: 'https://a' } }", "flowgate fetches no URLs"),
    ] {
        route(lines, help);
    }
    one(
        &format!("{FRAME}routes: [{{ name: r, upstream: app, rule: 'Host(`a.b`)' }}]\n"),
        "write it in `match`",
    );
    for key in ["client_ip", "source_ip"] {
        one(
            &format!(
                "{FRAME}routes: [{{ name: r, upstream: app, match: {{ {key}: 10.0.0.1 }} }}]\n"
            ),
            "`access: { allow: [10.0.0.0/8] }`",
        );
    }
}

#[test]
fn keys_of_rules() {
    rule("limit: 5/s, nodelay: true", "remove it");
    rule("limit: 5/s, whitelist: [10.0.0.1]", "`except: { client_ip: [10.0.0.0/8] }`");
    rule("quota: 5/s", "write `limit`");
    rule("limit: 5/s, average: 5", "write it in `limit`");
    rule("limit: 5/s, key: $binary_remote_addr", "did you mean `client_ip`?");
    rule("limit: 5/s, pacing: true", "`algorithm: pacing`");
}

#[test]
fn keys_of_upstreams() {
    const SERVERS: &str = "servers: [{ url: http://a }]\n    ";
    for (lines, help) in [
        ("health_check: { path: /up }", "write `health`"),
        ("health: { url: /up }", "write `path`"),
        ("health: { path: /up, period: 5s }", "write `interval`"),
        ("lb_policy: random", "write `balance`"),
        ("balance: least_conn", "did you mean `least_request`?"),
        ("balance: ip_hash", "did you mean `hash`?"),
        ("sticky: true", "`sticky: { cookie: NAME }`"),
        ("keepalive: 9", "write `max_idle`"),
    ] {
        upstream(&format!("{SERVERS}{lines}"), help);
    }
    upstream("targets: [{ url: http://a }]", "write `servers`");
    upstream("servers: [{ url: http://a, max_fails: 3 }]", "`ejection: { failures: 5 }`");
    upstream("servers: [{ url: http://a }]\n    maxFails: 3", "`ejection: { failures: 5 }`");
    let https = "servers: [{ url: https://a }]\n    ";
    upstream(&format!("{https}tls: {{ sni: a }}"), "write `server_name`");
    upstream(&format!("{https}tls: {{ insecure_skip_verify: true }}"), "write `insecure`");
    upstream(&format!("{https}tls: {{ verify: true }}"), "remove it: flowgate verifies servers");
}

#[test]
fn keys_of_the_file_and_of_listeners() {
    const ROUTES: &str = "routes: [{ name: r, match: { path: / }, upstream: app }]\n";
    for (line, help) in [
        ("redis: redis://a", "`store: { redis: redis://10.0.1.9:6379 }`"),
        ("metrics: true", "`/metrics`"),
        ("real_ip_header: x", "`trusted_proxies: [10.0.0.0/8]`"),
        ("real_ip_header: x", "`client_ip_header: cf-connecting-ip`"),
        ("log_format: main", "`access_log_format: combined`"),
        ("access_log: stdout\naccess_log_format: clf", "`combined`"),
        ("gzip: true", "`compress: true` at the routes"),
        ("server: { listen: 80 }", "`flowgate import nginx.conf`"),
        ("http: { routers: {} }", "docs/migrating.md"),
        ("access_log: 'syslog://192.0.2.1'", "write `stdout`, or a file name"),
        ("access_log: file:///var/log/a.log", "write `/var/log/a.log`"),
        ("store: { password: a }", "`redis: redis://:PASSWORD@HOST`"),
    ] {
        one(&format!("{FRAME}{ROUTES}{line}\n"), help);
    }
    let frame = FRAME.replace("8080 }", "8080, http2: true }");
    let problems = parsed(&format!("{frame}{ROUTES}")).expect_err("the file is rejected");
    assert!(problems.to_string().contains("remove it"), "{problems}");
}

#[test]
fn values_in_another_form() {
    for (value, help) in [
        ("http://unix:/tmp/a.sock", "write `unix:/tmp/a.sock`"),
        ("http://unix:/tmp/a.sock:/", "write `unix:/tmp/a.sock`"),
    ] {
        upstream(&format!("servers: [{{ url: '{value}' }}]"), help);
    }
    upstream("servers: ['127.0.0.1:81']", "write `{ url: http://127.0.0.1:81 }`");
    upstream("servers: 127.0.0.1:81", "write `servers: [{ url: http://127.0.0.1:81 }]`");
    upstream("servers: ['unix:/tmp/a']", "write `{ url: unix:/tmp/a }`");
    upstream("servers: 'https://a'", "write `servers: [{ url: https://a }]`");
    upstream("servers: [{ host: 127.0.0.1 }]", "`url: http://HOST:PORT`");
    rule("limit: 5/s, key: { header: x-api-key }", "`key: header:x-api-key`");
    rule("limit: 0.5/s", "`1/2s` for `0.5/s`");
    rule("limit: 10.0/1m", "write `10/1m`");
    rule(
        "limit: 5/s, overrides: [{ when: { header: { x: y } }, limit: 9/s }]",
        "`header:x-tenant: gold`",
    );
    for (lines, help) in [
        ("redirect: 301 https://x/", "write `redirect: { to: https://x/, status: 301 }`"),
        ("upstream: app\n    request_headers: { set: { Host: a } }", "`rewrite: { host: … }`"),
        ("upstream: [{ name: app, weight: 1 }]", "write the name of an upstream"),
        ("upstream:", "write the name of an upstream"),
        ("upstream: 'http://10.0.0.1:81'", "servers: [{ url: http://10.0.0.1:81 }]"),
        ("upstream: app\n    retry: 3", "write `retry: { attempts: 3 }`"),
        ("upstream: app\n    retry: yes", "write `retry: { attempts: … }`"),
        (
            "upstream: app\n    rewrite: { add_prefix: “/” }",
            "in place of the typographic quote `“`",
        ),
    ] {
        route(lines, help);
    }
    one(
        &format!(
            "{FRAME}routes: [{{ name: r, upstream: app, match: {{ host: 'https://a.b/c' }} }}]\n"
        ),
        "write `a.b`",
    );
    one(
        "listeners: [{ name: web, listen: {{ env.ADDRESS }} }]\nroutes: []\n",
        "a variable of the environment as `${NAME}`",
    );
    one(
        "routes: [{ name: r, match: { path_regex: \"/\\d+\" }, respond: 200 }]\n",
        "write the text in single quotes",
    );
}

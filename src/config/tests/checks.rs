//! Listeners, upstreams and routes that cannot work, each rejected in a sentence.

use super::{FRAME, messages, parsed, plan, rejected};
use crate::config;

#[test]
fn upstreams_and_listeners_are_checked() {
    messages(
        "\
listeners:
  - { name: web, listen: 0.0.0.0:80 }
  - { name: web, listen: 0.0.0.0:80 }
upstreams:
  - name: a
    servers: [{ url: http://h:1 }, { url: http://h:1 }]
    balance: hashed
    health: { path: healthz, expect: ok, host: a b }
  - { name: b, servers: [], hash_key: path }
  - { name: c, servers: [{ url: ftp://h }, { url: h, weight: 0 }] }
  - { name: d, servers: [{ url: http://a, weight: 997 }, { url: http://b, weight: 991 }] }
  - { name: e, servers: [{ url: http://a, backup: true }, { url: http://b, backup: true }] }
routes:
  - { name: r, match: { path: / }, upstream: zzz }
",
        &[
            "two listeners share the name `web` | write another name: it distinguishes them in logs, metrics and reloads",
            "two listeners on `0.0.0.0:80` | write another port",
            "the server is in the list already | write `weight: 2` at the first to send it more",
            "`balance` cannot be `hashed` | write one of `round_robin`, `least_request`, `random`, `hash`",
            "`healthz` is not a path | write what the server is asked for, as in `/healthz`",
            "`ok` is not a status or a range of them | write statuses from 100 to 599, as in `200` or `200-399`",
            "`a b` is not a host | write a name or an address, as in `app.internal:8080`",
            "`servers` is empty | write at least one: `servers: [{ url: http://10.0.1.5:8000 }]`",
            "`hash_key` without `balance: hash` | write `balance: hash`, or remove it",
            "`ftp://h` is not an http:// or https:// URL | write `http://HOST:PORT`, as in `http://10.0.1.5:8000`, or `https://HOST:PORT`, or `unix:/PATH`",
            "`h` is not an http:// or https:// URL | write `http://h`",
            "`weight` cannot be 0 | write a number from 1 to 1000",
            "the cycle of the weights is too long | write weights whose sum, divided by what they share, is at most 1000",
            "all servers are backups | remove `backup: true` from those that get requests at all times",
            "there is no upstream `zzz` | write one of `b`, `c`, `d`, `e`",
        ],
    );
}

#[test]
fn listeners_that_would_get_the_same_connections_are_rejected() {
    let file = |one: &str, other: &str, admin: &str| {
        format!(
            "listeners: [{{ name: a, listen: '{one}' }}, {{ name: b, listen: '{other}' }}]\n\
             admin: {{ listen: '{admin}' }}\n\
             upstreams: [{{ name: up, servers: [{{ url: http://h:1 }}] }}]\n\
             routes: [{{ name: all, match: {{ path_prefix: / }}, upstream: up }}]\n"
        )
    };
    rejected(
        &file("0.0.0.0:80", "127.0.0.1:81", "127.0.0.1:80"),
        "
error: listeners on `0.0.0.0:80` and on `127.0.0.1:80` collide
 --> gateway.yaml:2:18
  |
1 | listeners: [{ name: a, listen: '0.0.0.0:80' }, { name: b, listen: '127.0.0.1:81' }]
  |                                ------------ first here
2 | admin: { listen: '127.0.0.1:80' }
  |                  ^^^^^^^^^^^^^^ here
  |
  = help: write another port: `0.0.0.0` is every IPv4 address",
    );
    let every = "write another port: `[::]` is every address, IPv4 too";
    for (one, other) in [("0.0.0.0:80", "[::]:80"), ("[::]:80", "192.0.2.1:80")] {
        let message = format!("listeners on `{one}` and on `{other}` collide | {every}");
        messages(&file(one, other, "[::1]:81"), &[&message]);
    }
    for (one, other) in [("0.0.0.0:80", "[::1]:80"), ("192.0.2.1:80", "192.0.2.2:80")] {
        plan(&file(one, other, "[::1]:81"));
    }
}

#[test]
fn the_admin_listener_asks_for_proof_unless_it_is_on_loopback() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.yaml");
    let read = |admin: &str| {
        let text = format!(
            "listeners: [{{ name: a, listen: ':80' }}]\nadmin: {admin}\n\
             upstreams: [{{ name: up, servers: [{{ url: http://h:1 }}] }}]\n\
             routes: [{{ name: all, match: {{ path_prefix: / }}, upstream: up }}]\n"
        );
        std::fs::write(&path, text).unwrap();
        config::read(&path).map_err(|problems| problems.to_string())
    };
    let secret = "0123456789abcdef-secret";
    std::fs::write(folder.path().join("good"), format!("{secret}\n")).unwrap();
    std::fs::write(folder.path().join("short"), "secret").unwrap();
    for (admin, expected) in [
        ("{ listen: 0.0.0.0:9901 }", "requires no token or certificate"),
        ("{ listen: ':9901' }", "requires no token or certificate"),
        ("{ token: short-secret }", "the token has 12 characters"),
        ("{ token: 'a secret with a blank' }", "a character that is not allowed in a header"),
        ("{ token_file: none }", "cannot read the token file `"),
        ("{ token_file: short }", "cannot be used: the token has 6 characters"),
        (&format!("{{ token: {secret}, token_file: good }}"), "two tokens"),
        ("{ listen: ':9901', tls: { cert: none, key: none } }", "requires no token or certificate"),
        ("{ tls: { cert: none, key: none, client_ca: none } }", "cannot read the certificate `"),
    ] {
        let problems = read(admin).unwrap_err();
        assert!(problems.contains(expected), "{admin}: {problems}");
        assert!(!problems.contains("secret"), "{problems}");
    }
    for admin in [
        format!("{{ listen: 0.0.0.0:9901, token: {secret} }}"),
        "{ listen: ':9901', token_file: good }".to_owned(),
    ] {
        let plan = read(&admin).unwrap();
        let found = plan.settings.admin.as_ref().unwrap().token.as_ref().unwrap();
        assert_eq!(found.reveal(), secret);
        let watched: Vec<_> = plan.files.iter().map(|file| format!("{file:?}")).collect();
        assert_eq!(watched.iter().any(|file| file.contains("good")), admin.contains("good"));
        let shown = format!("{:?}{}", plan.settings, config::describe(&plan));
        assert!(!shown.contains(secret), "{shown}");
    }
    // Without its other files it is known that it asks for proof, and how it is reached.
    read("{ listen: ':9901', token_file: none }").unwrap_err();
    assert!(config::read_rules(&path).is_ok());
    let address = config::read_admin(&path).unwrap().unwrap();
    assert_eq!(address.token_file, Some(folder.path().join("none")));
    assert_eq!((address.listen.port(), address.certificate), (9901, None));
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn routes_are_checked() {
    let head = format!("{FRAME}routes:\n  - name: r\n    upstream: app\n    ");
    for (rest, message) in [
        ("timeout: 1s", "a route needs `match` | write `match: { path_prefix: /login }`"),
        (
            "match: {}",
            "a match needs at least one condition | write `match: { path_prefix: / }` for a route that takes every request",
        ),
        (
            "match: { path: /a, path_prefix: /a }",
            "a match takes one kind of path | write one of `path`, `path_prefix` and `path_regex`, or two routes",
        ),
        ("match: { listener: [web, wbe] }", "there is no listener `wbe` | did you mean `web`?"),
        ("match: { listener: tls }", "there is no listener `tls` | write one of `web`"),
        ("match: { method: get }", "`get` is not upper-case, as methods are | write `GET`"),
        (
            "match: { header: { x y: 1 } }",
            "`x y` is not the name of a header | write letters, digits and `-`, as in `x-tenant`",
        ),
        (
            "match: { header: { a: { equals: 1, regex: 2 } } }",
            "a field's pattern takes exactly one condition | write one of `equals`, `regex` and `present: true`",
        ),
        (
            "match: { query: { a: { present: false } } }",
            "a field that must be absent cannot be matched | write `present: true`, and a more specific route for requests that have it",
        ),
        ("match: { query: { a: 1, a: 2 } }", "`a` is written twice | remove one of the two"),
        (
            "match: { path: / }\n    timeout: 1s\n    timeouts: { request: 2s }",
            "the whole request has two timeouts | write one of `timeout` and `timeouts: { request: … }`",
        ),
        (
            "match: { path: / }\n    upgrades: h2c",
            "an upgrade to `h2c` would bypass the rules | write a protocol that is not HTTP, as in `websocket`",
        ),
        (
            "match: { path: / }\n    upgrades: [SPDY/3.1, HTTP/2.0]",
            "an upgrade to `HTTP/2.0` would bypass the rules | write a protocol that is not HTTP, as in `websocket`",
        ),
        (
            "match: { path: / }\n    upgrades: [tcp, TLS/1.0]",
            "an upgrade to `TLS/1.0` would bypass the rules | write a protocol that is not HTTP, as in `websocket`",
        ),
        (
            "match: { path: / }\n    request_headers: { set: { Host: a } }",
            "`host` belongs to the gateway itself | write `rewrite: { host: … }` at the route: it changes the host for the upstream",
        ),
        (
            "match: { path: / }\n    response_headers: { set: { x-a: 1, X-A: 2 } }",
            "`x-a` is set twice | header names are the same in either case; remove one",
        ),
        (
            "match: { path: / }\n    reject: { status: 200 }",
            "`200` is not the status of an error | write a status from 400 to 599, as in `429`, or `close` to end the connection without a response",
        ),
        (
            "match: { path: / }\n    reject: { content_type: text/html }",
            "`content_type` without `body` | write the `body` that it is the type of, or remove it",
        ),
        (
            "match: { path: / }\n    flow: []\n    flwo: []",
            "a route has no key `flwo`; did you mean `flow`? | write `flow`",
        ),
        (
            "match: { path: / }\n    limits: { body: 1MB }",
            "a route takes no `limits` | write `body_limit: 1MB` for the size of a body, and rules in `flow` for rates, as in `flow: [{ name: total, limit: 100/1s }]`",
        ),
        (
            "match: { path: / }\n    pacing: { limit: 10/1s }",
            "pacing has no key `limit`; did you mean `rate`? | write `rate`",
        ),
        (
            "match: { path: / }\n    pacing: { rate: 10/1s, algorithm: pacing }",
            "pacing takes no `algorithm` | remove it: the route's own pacing applies to all its requests; or write a rule, as in `flow: [{ name: even, algorithm: pacing, limit: 10/1s }]`",
        ),
        (
            "match: { path: / }\n    flow: [{ name: even, algorithm: pacing, rate: 10/1s }]",
            "a rule has no key `rate`; did you mean `limit`? | write `limit`",
        ),
        (
            "match: { path: / }\n    flow: [{ name: even, limit: 10/1s, pacing: { rate: 10/1s } }]",
            "a rule takes no `pacing` | write `algorithm: pacing` and `limit: 10/1s`; or, for all requests of the route, `pacing: { rate: 10/1s }` beside `flow`",
        ),
    ] {
        messages(&format!("{head}{rest}\n"), &[message]);
    }
}

#[test]
fn breakers_are_checked() {
    for (breaker, message) in [
        (
            "probes: 5",
            "a breaker without a condition to open | write `error_ratio: 0.5`, `slow_after` with `slow_ratio`, or `errors: 10`",
        ),
        (
            "slow_after: 1s",
            "`slow_after` without `slow_ratio` | write how many may be slow, as in `slow_ratio: 0.5`",
        ),
        (
            "errors: 5, slow_ratio: 0.5",
            "`slow_ratio` without `slow_after` | write what is slow, as in `slow_after: 1s`",
        ),
        (
            "error_ratio: 50",
            "`50` is not a part of a whole | write a number from 0 to 1, or a percentage, as in `0.5` or `50%` for a half",
        ),
        (
            "error_ratio: '0.5'",
            "expected a percentage, or a number from 0 to 1 for `error_ratio`, not a text | write it without quotes: `error_ratio: 0.5`",
        ),
        (
            "errors: 5, key: client_ip",
            "a breaker takes no `key` | write a separate route for those requests, to the same upstream: a breaker applies to its whole route",
        ),
        (
            "errors: 5, cost: 2",
            "a breaker takes no `cost` | remove it: a response counts as one, whatever its request's cost",
        ),
    ] {
        let text = format!(
            "{FRAME}routes: [{{ name: r, match: {{ path: / }}, upstream: app, breaker: {{ {breaker} }} }}]\n"
        );
        messages(&text, &[message]);
    }
}

#[test]
fn patterns_that_cannot_be_are_rejected_in_the_words_of_the_router() {
    for pattern in [
        "path: no-slash",
        "path: '/a/{'",
        "path_prefix: x",
        "path_regex: '('",
        "host: 'a b'",
        "host: 'a.*.b'",
    ] {
        let text =
            format!("{FRAME}routes:\n  - name: r\n    upstream: app\n    match: {{ {pattern} }}\n");
        let problems = parsed(&text).unwrap_err();
        assert_eq!(problems.count(), 1, "{problems}");
        let diagnostic = problems.list().next().unwrap();
        assert_eq!(diagnostic.line, 6, "{problems}");
        assert!(!diagnostic.help.is_empty(), "{problems}");
    }
}

#[test]
fn lists_and_maps_that_a_request_walks_have_a_bound() {
    let many = |count: usize, item: fn(usize) -> String| {
        (0..count).map(item).collect::<Vec<_>>().join(", ")
    };
    let hosts = many(1001, |n| format!("h{n}.example"));
    let headers = many(201, |n| format!("x-{n}: a"));
    messages(
        &format!(
            "{FRAME}routes: [{{ name: r, match: {{ path: /, host: [{hosts}], header: {{ {headers} }} }}, upstream: app }}]\n"
        ),
        &[
            "`host` holds 1001 values | write at most 1000",
            "`header` holds 201 values | write at most 200",
        ],
    );
}

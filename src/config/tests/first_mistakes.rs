//! What the errors say to someone who writes a first file: keys in the wrong map, words of other
//! gateways, blanks that are missing.

use super::{FRAME, messages};

#[track_caller]
fn route(lines: &str, expected: &[&str]) {
    let text =
        format!("{FRAME}routes:\n  - name: r\n    match: {{ path_prefix: / }}\n    {lines}\n");
    messages(&text, expected);
}

#[track_caller]
fn rule(keys: &str, expected: &[&str]) {
    route(&format!("upstream: app\n    flow: [{{ name: a, {keys} }}]"), expected);
}

#[test]
fn a_word_of_another_gateway_is_one_error_that_names_the_key() {
    rule("rate: 5/1m", &["a rule has no key `rate`; did you mean `limit`? | write `limit`"]);
    rule(
        "limit: 5/1m, per: client_ip",
        &["a rule has no key `per`; did you mean `key`? | write `key`"],
    );
    route(
        "upstream: app\n    retries: 3",
        &[
            "a route has no key `retries`; did you mean `retry`? | write `retry`",
            "expected a map for a retry, not a plain value | write `retry: { attempts: 3 }`",
        ],
    );
    route(
        "upstream: app\n    flow: 5/1m",
        &[
            "expected a list for `flow`, not a plain value | write `[{ name: total, limit: 100/1s }]`",
        ],
    );
    rule("limit: 5/1m, key: ip", &["`ip` is not a key | did you mean `client_ip`?"]);
    messages(
        "listeners: [{ name: web, port: 8080 }]\nroutes: [{ name: r, match: { path: / }, respond: 200 }]\n",
        &["a listener has no key `port`; did you mean `listen`? | write `listen`"],
    );
    messages(
        "listeners: [{ name: web, adress: 8080 }]\nroutes: [{ name: r, match: { prefix: / }, respond: 200 }]\n",
        &[
            "a listener has no key `adress`; did you mean `listen`? | write `listen`",
            "a match has no key `prefix`; did you mean `path_prefix`? | write `path_prefix`",
        ],
    );
}

#[test]
fn a_word_for_on_or_off_is_no_name() {
    for (line, expected) in [
        (
            "access_log: true",
            "`access_log` cannot be `true` | write `stdout`, or a file name as `access.log` or `./true`",
        ),
        (
            "access_log: no",
            "`access_log` cannot be `no` | write `off`, or a file name as `access.log` or `./no`",
        ),
        (
            "via: false",
            "`false` is not a name for `Via` | write `on`, `off`, or a word without spaces, as in `edge-1`",
        ),
    ] {
        let routes = "routes: [{ name: r, match: { path: / }, upstream: app }]\n";
        messages(&format!("{FRAME}{routes}{line}\n"), &[expected]);
    }
    for word in ["true", "on", "false", "No", "[none]", "a/", "/1", "a/1/2"] {
        let shown = word.trim_matches(['[', ']']);
        let expected = format!(
            "`{shown}` is not the name of a protocol | write `websocket`, or `upgrades: []` for none"
        );
        route(&format!("upstream: app\n    upgrades: {word}"), &[&expected]);
    }
}

#[test]
fn a_key_in_the_wrong_map_says_where_it_belongs() {
    rule(
        "limit: 5/1m, status: 503",
        &[
            "a rule takes no `status` | write it for the whole route, beside `flow`: `reject: { status: 503 }`",
        ],
    );
    route(
        "upstream: app\n    path: /login",
        &["a route takes no `path` | write it in `match`, as in `match: { path_prefix: /login }`"],
    );
    route(
        "upstream: app\n    limit: 5/1m",
        &[
            "a route takes no `limit` | write a rule in `flow`, as in `flow: [{ name: total, limit: 100/1s }]`",
        ],
    );
    messages(
        &format!(
            "{FRAME}routes:\n  - name: r\n    upstream: app\n    match:\n      path: /\n      flow: []\n"
        ),
        &["a match takes no `flow` | it belongs to the route: write it in the column of `match`"],
    );
    messages(
        &format!("{FRAME}routes: [{{ name: r, upstream: app, path: /login }}]\n"),
        &["a route takes no `path` | write it in `match`, as in `match: { path_prefix: /login }`"],
    );
    let routes = "routes: [{ name: r, match: { path: / }, upstream: app }]\n";
    messages(
        &format!("{FRAME}{routes}timeouts: {{ idle: 5s }}\n"),
        &["the timeouts take no `idle` | write it in the `timeouts` of a route"],
    );
    route(
        "upstream: app\n    websocket: true",
        &["a route takes no `websocket` | write `upgrades: websocket`"],
    );
    messages(
        "listeners: [{ name: web, listen: 8443, tls: { cert: a.pem, key: a.key } }]\nroutes: [{ name: r, match: { path: / }, respond: 200 }]\n",
        &[
            "the TLS of a listener takes no `cert` | write it in `certificates`, as in `certificates: [{ cert: site.pem, key: site.key }]`",
            "the TLS of a listener takes no `key` | write it in `certificates`, as in `certificates: [{ cert: site.pem, key: site.key }]`",
        ],
    );
    messages(
        &format!("{FRAME}routes: [{{ name: r, upstream: app, match: /login }}]\n"),
        &["expected a map for a match, not a plain value | write `match: { path_prefix: /login }`"],
    );
}

#[test]
fn a_value_in_another_form_is_shown_in_the_right_one() {
    const NOT_A_MAP: &str = "expected the value of a header for `set`, not a map";
    const BASIC: &str = "write `auth: { basic: users.htpasswd }`: a file that `htpasswd -B` makes";
    let set = "upstream: app\n    request_headers:\n      set:\n        x-real-ip:";
    for (lines, expected) in [
        (format!("{set} {{client_ip}}"), format!("{NOT_A_MAP} | write a text in braces in quotes, as in `\"{{client_ip}}\"`")),
        (format!("{set} {{ a: b }}"), format!("{NOT_A_MAP} | write `some text`")),
        (
            "upstream: app\n    response_headers: { set: { strict-transport-security: max-age=1, preload } }".to_owned(),
            "expected the value of a header for `set`, not nothing | write a text that contains a `,` in quotes, as in `\"one, two\"`".to_owned(),
        ),
        (
            "upstream: app\n    response_headers: { set: { x-a: } }".to_owned(),
            "expected the value of a header for `set`, not nothing | write `some text`".to_owned(),
        ),
        ("upstream: app\n    auth: users".to_owned(), format!("expected a map for auth, not a plain value | {BASIC}")),
        (
            "upstream: app\n    auth: { basic: { me: secret } }".to_owned(),
            "expected a file name for `basic`, not a map | write the name of a file that `htpasswd -B` makes, as in `basic: users.htpasswd`".to_owned(),
        ),
    ] {
        route(&lines, &[&expected]);
    }
    for (rule, path) in [("PathPrefix(`/api`)", "/api"), ("Host(`a.b`)", "…"), ("/api", "/api")] {
        messages(
            &format!("{FRAME}routes: [{{ name: r, upstream: app, match: '{rule}' }}]\n"),
            &[&format!(
                "expected a map for a match, not a plain value | write `match: {{ path_prefix: {path} }}`"
            )],
        );
    }
    messages(
        "listeners: [{ name: web, listen: *:8080 }]\nroutes: []\n",
        &[
            "an address to listen on does not begin with `*` | write `:8080` for every address of this machine",
        ],
    );
    messages(
        "listeners:\n  name: web\n    listen: 8080\nroutes: []\n",
        &[
            "the line begins deeper than `name` above, which has a value already | write `- name` where an item begins, or begin it in the column of `name`",
        ],
    );
}

#[test]
fn a_missing_blank_is_the_one_error() {
    rule("limit:5/1m", &["a space is missing after the `:` in `limit:5/1m` | write `limit: 5/1m`"]);
    messages(
        "listeners: [{ name: web, listen: 127.0.0.1:8080 }]\n\
         upstreams:\n  - name: app\n    servers:\n      -url: http://127.0.0.1:9000\n\
         routes: [{ name: r, match: { path: / }, upstream: app }]\n",
        &["a space is missing after the `-` in `-url` | write `- url`"],
    );
}

#[test]
fn an_item_without_its_dash_is_a_key_written_twice() {
    messages(
        &format!(
            "{FRAME}routes:\n  - name: r\n    upstream: app\n    match: {{ path: / }}\n    name: s\n"
        ),
        &[
            "`name` is written twice | remove one of the two, or write `- name` where another item begins",
        ],
    );
}

//! What a user sees when a file is wrong: the whole drawing for each kind of problem, and all
//! problems at once.

use super::{FRAME, messages, parsed, rejected};

#[test]
#[expect(clippy::too_many_lines, reason = "a drawing of several problems")]
fn all_problems_of_a_file_are_drawn_at_once_in_the_order_of_the_file() {
    rejected(
        "\
listeners:
  - name: web
    listen: localhost:8080
upstreams:
  - name: shop
    servers: [{ url: http://10.0.1.5:8000, wieght: 2 }]
routes:
  - name: checkout
    match: { path: /checkout }
    upstream: shpo
    flow:
      - { name: a, limit: 0/1s }
      - { name: a, limit: 10/1s, brust: 5 }
",
        "
error: `localhost:8080` is not an address to listen on
 --> gateway.yaml:3:13
  |
3 |     listen: localhost:8080
  |             ^^^^^^^^^^^^^^
  |
  = help: write an IP address and a port: `127.0.0.1:8080` for this machine only, `:8080` for every address of it

error: a server has no key `wieght`; did you mean `weight`?
 --> gateway.yaml:6:44
  |
6 |     servers: [{ url: http://10.0.1.5:8000, wieght: 2 }]
  |                                            ^^^^^^
  |
  = help: write `weight`

error: there is no upstream `shpo`
  --> gateway.yaml:10:15
   |
10 |     upstream: shpo
   |               ^^^^
   |
   = help: did you mean `shop`?

error: a limit of 0 lets nothing pass
  --> gateway.yaml:12:27
   |
12 |       - { name: a, limit: 0/1s }
   |                           ^^^^
   |
   = help: write at least 1, as in `1/1s`; to reject all requests, write `limit: 0`

error: two rules share the name `a`
  --> gateway.yaml:13:17
   |
12 |       - { name: a, limit: 0/1s }
   |                 - first here
13 |       - { name: a, limit: 10/1s, brust: 5 }
   |                 ^ again here
   |
   = help: write another name: it distinguishes them in logs, metrics and reloads

error: a rule has no key `brust`; did you mean `burst`?
  --> gateway.yaml:13:34
   |
13 |       - { name: a, limit: 10/1s, brust: 5 }
   |                                  ^^^^^
   |
   = help: write `burst`
",
    );
}

#[test]
fn a_file_that_is_not_yaml_says_where() {
    rejected(
        "listeners:\n  - name: web\n   listen: 127.0.0.1:8080\n",
        "
error: the indentation does not fit the lines above
 --> gateway.yaml:3:4
  |
3 |    listen: 127.0.0.1:8080
  |    ^
  |
  = help: align the keys of a map in one column, and the `-` of a list in another
",
    );
}

#[test]
fn a_tab_and_an_open_quote_are_named_where_they_stand() {
    rejected(
        "listeners:\n  - name: web\n\tlisten: 127.0.0.1:8080\n",
        "
error: a tab is used where YAML requires spaces
 --> gateway.yaml:3:1
  |
3 |     listen: 127.0.0.1:8080
  | ^^^^ this is a tab
  |
  = help: indent with spaces
",
    );
    rejected(
        "listeners:\n  - name: \"web\n    listen: 127.0.0.1:8080\nroutes:\n  - name: \"all\"\n",
        "
error: the quote that opens here is never closed
 --> gateway.yaml:2:11
  |
2 |   - name: \"web
  |           ^
  |
  = help: close it on the same line
",
    );
}

#[test]
fn a_key_that_a_quoted_text_contains_is_not_called_missing() {
    rejected(
        "\
listeners: [{ name: web, listen: 127.0.0.1:8080 }]
upstreams:
  - name: \"app
      servers: [{ url: http://127.0.0.1:9000 }]\"
routes: [{ name: r, match: { path: / }, upstream: app }]
",
        "
error: the missing key `servers` is within a quoted text
 --> gateway.yaml:3:11
  |
3 |   - name: \"app
  |           ^ the text begins here
4 |       servers: [{ url: http://127.0.0.1:9000 }]\"
  |       ------- and has this in it
  |
  = help: close the quote before the key
",
    );
    messages(
        &format!("{FRAME}routes: [{{ name: 'r, match: {{ path: / }}, upstream: app' }}]\n"),
        &["the missing key `match` is within a quoted text | close the quote before the key"],
    );
    // A text of several lines is not blamed for a key that is missing elsewhere.
    messages(
        &format!(
            "{FRAME}routes:\n  - name: r\n    match: {{ path: / }}\n    reject: {{ body: \"one\n      match: two\" }}\n"
        ),
        &[NO_ACTION],
    );
}

/// That a route says nothing of what it does; the upstream is one of the file.
const NO_ACTION: &str = "a route needs one of `upstream`, `redirect` and `respond` | write `upstream: app`, `redirect: https` or `respond: 204`";

#[test]
fn a_missing_upstream_is_one_of_the_file() {
    messages(&format!("{FRAME}routes: [{{ name: r, match: {{ path: / }} }}]\n"), &[NO_ACTION]);
}

#[test]
fn a_misspelled_key_is_one_problem() {
    messages(
        &format!(
            "{FRAME}routes: [{{ nmae: r, mtach: {{ path: / }}, upstream: app, flow: [{{ name: a, limt: 5/1s }}] }}]\n"
        ),
        &[
            "a route has no key `nmae`; did you mean `name`? | write `name`",
            "a route has no key `mtach`; did you mean `match`? | write `match`",
            "a rule has no key `limt`; did you mean `limit`? | write `limit`",
        ],
    );
    // Its value is looked at too, unless the right key is there.
    let rule = |keys: &str| {
        format!(
            "{FRAME}routes: [{{ name: r, match: {{ path: / }}, upstream: app, flow: [{{ name: a, {keys} }}] }}]\n"
        )
    };
    messages(
        &rule("limt: 0/1s"),
        &[
            "a rule has no key `limt`; did you mean `limit`? | write `limit`",
            "a limit of 0 lets nothing pass | write at least 1, as in `1/1s`; to reject all requests, write `limit: 0`",
        ],
    );
    for keys in ["limt: 0/1s, limit: 1/1s", "limit: 1/1s, limt: 0/1s"] {
        messages(&rule(keys), &["a rule has no key `limt`; did you mean `limit`? | write `limit`"]);
    }
}

#[test]
fn a_missing_dash_is_named() {
    rejected(
        "\
listeners: [{ name: web, listen: 8080 }]
upstreams:
  name: app
  servers: [{ url: http://127.0.0.1:9000 }]
routes: [{ name: r, match: { path: / }, upstream: app, flow: { name: a, limit: 0/1s } }]
",
        "
error: a `-` is missing: `upstreams` is a list
 --> gateway.yaml:3:3
  |
3 |   name: app
  |   ^^^^ an item begins here
  |
  = help: write `- name: …`, and indent the item's other keys as far

error: `[` and `]` are missing: `flow` is a list
 --> gateway.yaml:5:64
  |
5 | routes: [{ name: r, match: { path: / }, upstream: app, flow: { name: a, limit: 0/1s } }]
  |                                                                ^^^^ an item begins here
  |
  = help: write `flow: [{ name: … }]`

error: a limit of 0 lets nothing pass
 --> gateway.yaml:5:80
  |
5 | routes: [{ name: r, match: { path: / }, upstream: app, flow: { name: a, limit: 0/1s } }]
  |                                                                                ^^^^
  |
  = help: write at least 1, as in `1/1s`; to reject all requests, write `limit: 0`
",
    );
}

#[test]
fn a_map_of_names_is_one_error() {
    const LISTENERS: &str = "listeners: [{ name: web, listen: 8080 }]\n";
    const ROUTES: &str = "routes: [{ name: r, match: { path: / }, upstream: app }]\n";
    messages(
        &format!("{LISTENERS}upstreams:\n  app: {{ servers: [{{ url: http://a }}] }}\n{ROUTES}"),
        &[
            "`upstreams` is a list, not a map of names | write `- name: app` in place of `app`, and the other keys below it",
        ],
    );
    messages(
        &format!("{LISTENERS}upstreams: {{ app: {{ servers: [{{ url: http://a }}] }} }}\n{ROUTES}"),
        &["`upstreams` is a list, not a map of names | write `upstreams: [{ name: app, … }]`"],
    );
    messages(
        &format!("{FRAME}routes:\n  r:\n    match: {{ path: / }}\n    upstream: app\n"),
        &[
            "`routes` is a list, not a map of names | write `- name: r` in place of `r`, and the other keys below it",
        ],
    );
    let overrides = "overrides: { gold: { limit: 9/s } }";
    messages(
        &format!(
            "{FRAME}routes: [{{ name: r, match: {{ path: / }}, upstream: app, flow: [{{ name: a, limit: 5/s, {overrides} }}] }}]\n"
        ),
        &["`overrides` is a list, not a map of names | write `overrides: [{ when: …, … }]`"],
    );
}

#[test]
fn an_empty_file_is_rejected_and_so_is_one_of_comments_only() {
    let drawing = "
error: the file is empty
--> gateway.yaml
 = help: write `listeners`, `upstreams` and `routes`; `flowgate demo` runs an example
";
    for text in ["", "\n\n", "# listeners:\n", "---\n", "~\n"] {
        rejected(text, drawing);
    }
}

#[test]
fn a_file_needs_listeners_and_routes() {
    messages(
        "end: true",
        &[
            "the file needs `listeners` | write `listeners: [{ name: checkout, listen: 127.0.0.1:8080 }]`",
            "the file needs `routes` | write `routes: [{ name: checkout, match: { path_prefix: /login }, upstream: checkout }]`",
        ],
    );
    messages(
        "listeners: []\nupstreams: []\nroutes: []\n",
        &[
            "`listeners` is empty | write at least one: `listeners: [{ name: checkout, listen: 127.0.0.1:8080 }]`",
            "`routes` is empty | write at least one: `routes: [{ name: checkout, match: { path_prefix: /login }, upstream: checkout }]`",
        ],
    );
}

#[test]
fn every_duplicate_key_is_reported_with_its_first() {
    rejected(
        &format!(
            "{FRAME}routes:\n  - {{ name: r, upstream: app, match: {{ path: / }}, name: r }}\n\
             headers: off\nheaders: draft\nheaders: legacy\n"
        ),
        "
error: `name` is written twice
 --> gateway.yaml:4:51
  |
4 |   - { name: r, upstream: app, match: { path: / }, name: r }
  |       ---- first here                             ^^^^ again here
  |
  = help: remove one of the two, or write `- name` where another item begins

error: `headers` is written twice
 --> gateway.yaml:6:1
  |
5 | headers: off
  | ------- first here
6 | headers: draft
  | ^^^^^^^ again here
  |
  = help: remove one of the two

error: `headers` is written twice
 --> gateway.yaml:7:1
  |
5 | headers: off
  | ------- first here
6 | headers: draft
7 | headers: legacy
  | ^^^^^^^ again here
  |
  = help: remove one of the two
",
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn wrong_types_say_what_is_wanted() {
    let head = format!("{FRAME}routes: [{{ name: r, match: {{ path: / }}, upstream: app }}]\n");
    for (line, message) in [
        (
            "workers: four",
            "`four` is not a whole number | write digits without quotes, unit or point, as in `10`",
        ),
        (
            "workers: \"4\"",
            "expected a whole number for `workers`, not a text | write it without quotes: `workers: 4`",
        ),
        ("workers: 0", "`workers` cannot be 0 | write a number from 1 to 1024"),
        ("workers: [4]", "expected a whole number for `workers`, not a list | write `10`"),
        ("workers:", "expected a whole number for `workers`, not nothing | write `10`"),
        ("workers: {}", "expected a whole number for `workers`, not a map | write `10`"),
        (
            "explain_headers: yes",
            "`yes` is neither true nor false | write `true` or `false`, without quotes",
        ),
        (
            "drain_timeout: 30",
            "`30` has no unit | write the unit: `30s` for seconds, `30ms` for milliseconds",
        ),
        ("drain_timeout: 2d", "`drain_timeout` cannot be as long as `2d` | write at most `1d`"),
        (
            "timeouts: 5s",
            "expected a map for the timeouts, not a plain value | write `{ header_read: 5s }`",
        ),
        ("timeouts: { write: 0s }", "`write` cannot be 0s | write at least `1ms`"),
        ("limits: { header_bytes: 1KiB }", "`header_bytes` cannot be 1KiB | write at least `8KiB`"),
        (
            "limits: { header_bytes: 1GiB }",
            "`header_bytes` cannot be as large as `1GiB` | write at most `1MiB`",
        ),
        (
            "headers: drafty",
            "`headers` cannot be `drafty` | did you mean `draft`? write one of `draft`, `legacy`, `off`",
        ),
        (
            "trusted_proxies: [10.0.0.0/8, lan]",
            "`lan` is not a network | write an address or a range, as in `10.0.0.0/8`, `192.0.2.1` or `2001:db8::/32`",
        ),
        (
            "access_log_headers: [referer, Cookie]",
            "the access log does not take `Cookie`, which has secrets | remove it; `auth` has the user's name in the log",
        ),
        ("access_log: ''", "`` is not a file name | write a path, as in `certs/site.pem`"),
        (
            "admin: { listen: 127.0.0.1:8080 }",
            "two listeners on `127.0.0.1:8080` | write another port",
        ),
        ("end: yes", "`yes` is neither true nor false | write `true` or `false`, without quotes"),
        (
            "store: redis://127.0.0.1",
            "expected a map for the store, not a plain value | write `{ redis: redis://10.0.1.9:6379 }`",
        ),
        (
            "~: 1",
            "a key must be a word | write a word before the `:`, in quotes if it is `null` or `~`",
        ),
        (
            "? [a]\n: b",
            "a key must be a word | write a word before the `:`, in quotes if it is `null` or `~`",
        ),
        (
            "1: 2",
            "the file has no key `1` | write one of `listeners`, `upstreams`, `routes`, `budgets`, `flow`, `include`, `acme`, `admin`, `trusted_proxies`, `client_ip_header`, `nat64`, `geo`, `dns_servers`, `timeouts`, `limits`, `headers`, `explain_headers`, `via`, `request_id`, `h1_header_case`, `access_log`, `access_log_format`, `access_log_headers`, `tracing`, `workers`, `drain_timeout`, `store`, `end`",
        ),
    ] {
        messages(&format!("{head}{line}\n"), &[message]);
    }
}

#[test]
fn the_file_must_be_a_map() {
    messages(
        "- a\n- b\n",
        &[
            "expected a map for the file, not a list | write `{ listeners: [{ name: checkout, listen: 127.0.0.1:8080 }], upstreams: [{ name: checkout, servers: [{ url: http://10.0.1.5:8000 }] }], routes: [{ name: checkout, match: { path_prefix: /login }, upstream: checkout }] }`",
        ],
    );
    messages(
        "just text",
        &[
            "expected a map for the file, not a plain value | write `{ listeners: [{ name: checkout, listen: 127.0.0.1:8080 }], upstreams: [{ name: checkout, servers: [{ url: http://10.0.1.5:8000 }] }], routes: [{ name: checkout, match: { path_prefix: /login }, upstream: checkout }] }`",
        ],
    );
}

#[test]
fn a_value_behind_an_alias_is_marked_at_both_places() {
    rejected(
        &format!(
            "{FRAME}routes:\n  - name: r\n    match: {{ path: /a, header: {{ a: &p x y }} }}\n    upstream: app\n  - name: *p\n    match: {{ path: / }}\n    upstream: app\n"
        ),
        "
error: a name cannot hold ` `
 --> gateway.yaml:5:40
  |
5 |     match: { path: /a, header: { a: &p x y } }
  |                                        ^^^
6 |     upstream: app
7 |   - name: *p
  |           -- used here
  |
  = help: write letters, digits and any of `- _ . / :`
",
    );
}

#[test]
fn the_mark_at_the_end_must_be_the_end() {
    messages(
        &format!(
            "{FRAME}end: true\nroutes: [{{ name: r, match: {{ path: / }}, upstream: app }}]\n"
        ),
        &[
            "`end` is not the last key of the file | move it to the last line: it marks the end of the file",
        ],
    );
}

#[test]
fn control_characters_of_the_file_never_reach_the_terminal() {
    let text = format!(
        "{FRAME}\"\\e[31mred\": 1\nroutes: [{{ name: r, match: {{ path: / }}, upstream: \"a\\u202eb\\e\" }}]\n"
    );
    let drawn = parsed(&text).unwrap_err().to_string();
    assert!(!drawn.contains('\u{1b}') && !drawn.contains('\u{202e}'), "{drawn}");
}

#[test]
fn ten_thousand_problems_are_drawn_and_all_are_counted() {
    use std::fmt::Write;
    let mut text = format!("{FRAME}routes:\n");
    for n in 0..12_000 {
        _ = writeln!(
            text,
            "  - {{ name: r{n}, match: {{ path: /{n} }}, upstream: app, flwo: [] }}"
        );
    }
    let problems = parsed(&text).unwrap_err();
    assert_eq!(problems.count(), 12_000);
    assert!(problems.to_string().ends_with("… and 2000 more"));
}

#[test]
fn what_an_alias_repeats_is_said_once() {
    let text = format!(
        "{FRAME}routes:
  - {{ name: a, match: {{ path: /a }}, upstream: app, flow: &f [{{ name: x, limit: 0/1s }}] }}
  - {{ name: b, match: {{ path: /b }}, upstream: app, flow: *f }}
  - {{ name: c, match: {{ path: /c }}, upstream: app, flow: *f }}
"
    );
    messages(
        &text,
        &[
            "a limit of 0 lets nothing pass | write at least 1, as in `1/1s`; to reject all requests, write `limit: 0`",
        ],
    );
}

#[test]
fn no_error_shows_a_secret_of_its_line() {
    for line in [
        "request_headers: { set: { authorization: Bearer s3cret, x: y }, nonsense: 1 }",
        "request_headers: { set: { Authorization: \"Bearer s3cret\" }, nonsense: 1 }",
        "request_headers: { set: { cookie: 's3cret' }, nonsense: 1 }",
        "request_headers: { set: { x-api-key: s3cret }, nonsense: 1 }",
        "request_headers: { set: { x-api-key: [s3cret] } }",
        "request_headers: { set: { x-password: \"s3cret\\x07\" } }",
        "request_headers: { set: { cookie: \"s\\x33cret\\x07\" } }",
        "request_headers: { set: { authorization:s3cret } }",
        "request_headers: { set: \"authorization: s3cret\" }",
        "request_headers: { set: { authorization: Basic s3cret",
        "request_headers: { set: { authorization: a b: s3cret } }",
        "request_headers: { set: { authorization: a, s3cret } }",
        "request_headers:\n      set:\n        cookie: s3cret\n        cookie: s3cret",
        "request_headers:\n      set:\n        cookie:\n          s3cret: 1",
        "request_headers:\n      set:\n        cookie: |\n          s3cret\u{7}",
        "request_headers:\n      set:\n        authorization: Basic\n          s3cret: 1",
        "request_headers:\n      set:\n        authorization: \"Basic s3cret\n        x: 1",
        "redirect: { location: http://me:s3cret@a/, nonsense: 1 }",
        "upstream: http://me:s3cret@a",
    ] {
        let text =
            format!("{FRAME}routes:\n  - name: r\n    match: {{ path_prefix: / }}\n    {line}\n");
        let problems = parsed(&text).expect_err("the file is rejected");
        let json = serde_json::to_string(&problems.list().collect::<Vec<_>>()).unwrap();
        for shown in [problems.to_string(), problems.draw(true), problems.summary(), json] {
            assert!(!shown.contains("s3cret"), "{line}:\n{shown}");
        }
    }
}

#[test]
fn an_error_beside_a_secret_is_still_shown() {
    rejected(
        &format!(
            "{FRAME}tracing: {{ otlp: {{ endpoint: http://a, headers: {{ authorization: s3cret }}, tmeout: 1s }} }}
routes: [{{ name: r, match: {{ path_prefix: / }}, upstream: app }}]
"
        ),
        "
error: the collector of traces has no key `tmeout`; did you mean `timeout`?
 --> gateway.yaml:3:76
  |
3 | tracing: { otlp: { endpoint: http://a, headers: { authorization: ****** }, tmeout: 1s } }
  |                                                                            ^^^^^^
  |
  = help: write `timeout`
",
    );
}

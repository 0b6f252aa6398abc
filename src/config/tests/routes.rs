//! What routes do besides limiting: redirects, responses, rewrites and placeholders.

use super::{FRAME, messages, parsed, plan, rejected, warnings};
use crate::config::{Action, Redirect, SendProxyProtocol, describe};
use http::StatusCode;

/// A file whose route has these keys.
fn file(keys: &str) -> String {
    format!("{FRAME}routes:\n  - name: r\n    match: {{ path_prefix: / }}\n    {keys}\n")
}

fn redirect(keys: &str) -> Redirect {
    let plan = plan(&file(&format!("redirect: {keys}")));
    let Action::Redirect(redirect) = &plan.routes[0].action else { panic!("no redirect") };
    redirect.clone()
}

#[test]
fn errors_are_those_of_flowgate_unless_from_says_otherwise() {
    let route = |errors: &str| {
        format!(
            "{FRAME}routes: [{{ name: a, match: {{ path: /a }}, upstream: app, errors: [{errors}] }}]\n"
        )
    };
    let plan = parsed(&route("{ status: 502, body: own }, { status: 502, from: upstream, body: theirs }, { from: both, body: all }")).unwrap();
    let options = &plan.routes[0].options;
    let own = |status: u16| options.error_body(status.try_into().unwrap()).cloned();
    let theirs = |status: u16| options.upstream_error_body(status.try_into().unwrap()).cloned();
    assert_ne!(own(502), theirs(502));
    assert_eq!(own(404), theirs(404));
    assert!(own(404).is_some() && own(404) != own(502) && own(404) != theirs(502));

    let usual = parsed(&route("{ body: own }")).unwrap();
    assert_eq!(usual.routes[0].options.upstream_error_body(StatusCode::BAD_GATEWAY), None);

    let covered = "an entry before this one has all its statuses";
    warnings(&route("{ from: both, body: a }, { status: 502, body: b }"), &[covered]);
    warnings(&route("{ from: upstream, body: a }, { status: 502, body: b }"), &[]);
    messages(
        &route("{ from: servers, body: a }"),
        &["`from` cannot be `servers` | write one of `flowgate`, `upstream`, `both`"],
    );
    let own = "routes: [{ name: a, match: { path: /a }, respond: 200, errors: [{ from: both, body: a }] }]\n";
    let idle = "`from` does nothing in a route without `upstream`";
    let listener = FRAME.lines().next().unwrap();
    warnings(&format!("{listener}\n{own}"), &[idle]);
}

#[test]
fn a_sticky_upstream_has_the_name_of_a_cookie() {
    let sticky = |keys: &str| {
        let upstream = format!("url: http://127.0.0.1:9000 }}], sticky: {keys} }}]");
        file("upstream: app").replace("url: http://127.0.0.1:9000 }] }]", &upstream)
    };
    let read = plan(&sticky("{ cookie: server }"));
    assert_eq!(read.upstreams[0].options.sticky.as_deref(), Some("server"));
    assert!(describe(&read).contains("    sticky by the cookie server\n"));
    for (keys, message) in [
        (
            "{ cookie: 'a b' }",
            "`***` is not the name of a cookie | write 1 to 64 letters, digits and `-` or `_`, as in `server`",
        ),
        (
            "{ name: a }",
            "sticky sessions has no key `name`; did you mean `cookie`? | write `cookie`",
        ),
        (
            "true",
            "expected a map for sticky sessions, not a plain value | write `sticky: { cookie: NAME }`",
        ),
    ] {
        messages(&sticky(keys), &[message]);
    }
}

#[test]
fn connections_with_a_proxy_header_are_of_http1() {
    let upstream = |keys: &str| {
        let upstream = format!("url: http://127.0.0.1:9000 }}], {keys} }}]");
        file("upstream: app").replace("url: http://127.0.0.1:9000 }] }]", &upstream)
    };
    let read = |keys: &str| plan(&upstream(keys)).upstreams[0].options.send_proxy_protocol;
    assert_eq!(read("send_proxy_protocol: v1"), Some(SendProxyProtocol::V1));
    assert_eq!(read("send_proxy_protocol: v2, protocol: h1"), Some(SendProxyProtocol::V2));
    assert_eq!(read("protocol: h2"), None);
    messages(
        &upstream("send_proxy_protocol: v2, protocol: h2"),
        &[
            "`send_proxy_protocol` beside `protocol: h2`, whose connections serve many clients | remove one of the two, or write `protocol: h1`",
        ],
    );
}

#[test]
fn a_redirect_is_a_word_a_url_or_a_path() {
    for (keys, words, keeps_query) in [
        ("https", "redirect 308 https://{host}{path}", true),
        ("{ to: https, status: 301 }", "redirect 301 https://{host}{path}", true),
        ("https://b.example{path}", "redirect 302 https://b.example{path}", true),
        ("{ to: /a, status: 303 }", "redirect 303 /a", true),
        ("/a?", "redirect 302 /a", false),
        ("/a?b=c", "redirect 302 /a?b=c", false),
        ("'/a{query}'", "redirect 302 /a{query}", false),
        ("'{path}/'", "redirect 302 {path}/", true),
        ("'{scheme}://b.example/'", "redirect 302 {scheme}://b.example/", true),
    ] {
        let redirect = redirect(keys);
        assert_eq!((&*redirect.to_string(), redirect.keeps_query), (words, keeps_query), "{keys}");
    }
}

#[test]
fn a_route_takes_a_list_of_paths() {
    for (keys, words) in [
        ("path: [/a, '/u/{id}']", "/a|/u/{id}"),
        ("path_prefix: [/api, /v2]", "/api/*|/v2/*"),
        ("path_prefix: [/]", "/*"),
        ("path_regex: [/a.*, '/(b|c)']", "~/a.*|~/(b|c)"),
    ] {
        let file =
            format!("{FRAME}routes:\n  - {{ name: r, match: {{ {keys} }}, upstream: app }}\n");
        assert_eq!(plan(&file).table.matcher(0).map(ToString::to_string).as_deref(), Some(words));
    }
    let file =
        |keys| format!("{FRAME}routes:\n  - name: r\n    match: {{ {keys} }}\n    upstream: app\n");
    messages(&file("path: [/a, b]"), &["the path `b` does not begin with `/` | write `/b`"]);
    messages(
        &file("path: [/a], path_prefix: [/b]"),
        &[
            "a match takes one kind of path | write one of `path`, `path_prefix` and `path_regex`, or two routes",
        ],
    );
}

#[test]
fn what_a_route_cannot_do_is_an_error() {
    for (keys, message) in [
        (
            "upstream: app\n    redirect: https",
            "a route has `upstream` or `redirect`, not both | remove one of the two, or write two routes",
        ),
        (
            "redirect: https\n    respond: {}",
            "a route has `redirect` or `respond`, not both | remove one of the two, or write two routes",
        ),
        (
            "redirect: b.example",
            "`b.example` is neither a URL nor a path | write `https`, or a URL as in `https://{host}{path}`, or a path as in `/new{path}`",
        ),
        (
            "redirect: 'https://'",
            "`https://` is neither a URL nor a path | write `https`, or a URL as in `https://{host}{path}`, or a path as in `/new{path}`",
        ),
        (
            "redirect: '/a b'",
            "`/a b` is not allowed in a URL | write other characters as escapes, a space as `%20`",
        ),
        (
            "redirect: { to: https, status: 304 }",
            "`304` is not the status of a redirect | write 301, 302, 303, 307 or 308",
        ),
        (
            "respond: { status: 199 }",
            "`199` is not the status of a response | write a status from 200 to 599, or `close` to end the connection without a response",
        ),
        (
            "respond: closed",
            "`closed` is not the status of a response | write a status from 200 to 599, or `close` to end the connection without a response",
        ),
        ("respond: []", "expected a status, or `close` for `respond`, not a list | write `200`"),
        (
            "respond: { status: close, body: x }",
            "`body` beside `status: close`, which sends no response | remove `body`, or write a number as `status`",
        ),
        (
            "respond: { status: close, headers: { x-a: b } }",
            "`headers` beside `status: close`, which sends no response | remove `headers`, or write a number as `status`",
        ),
        (
            "upstream: app\n    reject: { status: close, body: x }",
            "`body` beside `status: close`, which sends no response | remove `body`, or write a number as `status`",
        ),
        (
            "respond: { status: 204, body: x }",
            "a response with status 204 has no body | remove `body`, or write another status",
        ),
    ] {
        messages(&file(keys), &[message]);
    }
}

#[test]
fn a_redirect_names_only_groups_that_its_route_has() {
    let file = |paths: &str, to: &str| {
        format!("{FRAME}routes:\n  - name: r\n    match: {{ {paths} }}\n    redirect: '{to}'\n")
    };
    let help = |group: &str| {
        format!(
            "write what `${group}` stands for in parentheses, as in `match: {{ path_regex: '/old/(.*)' }}`, \
             or `$${group}` for the text itself"
        )
    };
    for (paths, to, group, message) in [
        (
            "path_prefix: /old",
            "/new/$1",
            "1",
            "`$1` is a group of `path_regex`, which this route does not have",
        ),
        ("path_regex: /old/.*", "/new/$1", "1", "`/old/.*` has no group `1`"),
        ("path_regex: '/old/(.*)'", "/new/$12", "12", "`/old/(.*)` has no group `12`"),
        ("path_regex: ['/(a)/(b)', '/(c)']", "/$2", "2", "`/(c)` has no group `2`"),
    ] {
        messages(&file(paths, to), &[&format!("{message} | {}", help(group))]);
    }
    for to in ["https://$1/x", "https://$1.example.com", "https://a.example:$1", "//$1"] {
        messages(
            &file("path_regex: '/old/(.*)'", to),
            &[
                "clients could choose the host of the URL by `$1` | write the host, and groups behind it, as in `https://www.example.com/$1`",
            ],
        );
    }
    // What is wrong with the expression is said once.
    let problems = "not a regular expression: unclosed group";
    let drawn =
        parsed(&file("path_regex: '/old/(.*'", "/new/$1")).expect_err("rejected").to_string();
    assert!(drawn.contains(problems) && !drawn.contains("has no group"), "{drawn}");
    rejected(
        &file("path_regex: /old/.*", "/new/$1/x"),
        r"
error: `/old/.*` has no group `1`
 --> gateway.yaml:6:21
  |
6 |     redirect: '/new/$1/x'
  |                     ^^
  |
  = help: write what `$1` stands for in parentheses, as in `match: { path_regex: '/old/(.*)' }`, or `$$1` for the text itself
",
    );
    // A group may have the name of a variable of nginx. A dollar sign before other words is text.
    for (paths, to) in [
        ("path_regex: '/old/(?P<uri>.*)'", "/new/$uri"),
        ("path_regex: '/old/(.*)'", "/new/$$1/$/$metadata/$1?"),
        ("path_prefix: /old", "/new/$metadata"),
    ] {
        warnings(&file(paths, to), &["no route uses the upstream `app`"]);
    }
}

#[test]
fn rewrites_and_placeholders_are_checked() {
    for (keys, message) in [
        (
            "upstream: app\n    rewrite: {}",
            "a rewrite that changes nothing | write `rewrite: { strip_prefix: /api }`, or remove it",
        ),
        (
            "upstream: app\n    rewrite: { strip_prefix: api }",
            "the path `api` does not begin with `/` | write `/api`",
        ),
        (
            "upstream: app\n    rewrite: { path_regex: { match: '(a)', replace: $2 } }",
            "the expression has no group `2` | write `$1` for the first group, or `$$` for a dollar sign",
        ),
        (
            "upstream: app\n    rewrite: { path_regex: { match: a } }",
            "a replacement needs `replace` | write `replace: some text`",
        ),
        (
            "upstream: app\n    rewrite: { host: a/b }",
            "`a/b` is not a host | write a name or an address, as in `app.internal:8080`",
        ),
        (
            "respond: { body: '{rule}' }",
            "`{rule}` is known only in the `body` of `reject` | remove it, or write `{{rule}}` for the text itself",
        ),
        (
            "upstream: app\n    response_headers: { set: { x-a: '{hots}' } }",
            "there is no placeholder `{hots}` | did you mean `{host}`? write `{{hots}}` for the text itself",
        ),
        (
            "redirect: 'https://a.example/{id}'",
            "there is no placeholder `{id}` | write one of `{asn}`, `{client_cert_fingerprint}`, `{client_cert_subject}`, `{client_ip}`, `{country}`, `{host}`, `{method}`, `{path}`, `{port}`, `{query}`, `{request_id}`, `{scheme}`, `{uri}`, `{url}`; write `{{id}}` for the text itself",
        ),
    ] {
        messages(&file(keys), &[message]);
    }
}

#[test]
fn a_placeholder_is_reported_where_it_stands() {
    rejected(
        &file(
            "upstream: app\n    reject: { body: '{ \"by\": \"{rule}\", \"in\": {retryafter} }' }",
        ),
        r#"
error: there is no placeholder `{retryafter}`
 --> gateway.yaml:7:46
  |
7 |     reject: { body: '{ "by": "{rule}", "in": {retryafter} }' }
  |                                              ^^^^^^^^^^^^
  |
  = help: did you mean `{retry_after}`? write `{{retryafter}}` for the text itself
"#,
    );
}

#[test]
fn a_file_that_only_answers_needs_no_upstream() {
    let text = "listeners: [{ name: web, listen: 127.0.0.1:8080 }]\n\
                routes: [{ name: r, match: { path: / }, respond: { body: '{\"a\":{\"b\":1}}' } }]\n";
    assert!(describe(&plan(text)).contains("\n  r  / → respond 200\n    no limit\n"));
    let text = text.replace("{ body: '{\"a\":{\"b\":1}}' }", "204");
    assert!(describe(&plan(&text)).contains("\n  r  / → respond 204\n    no limit\n"));
}

#[test]
fn what_does_nothing_or_leads_in_circles_is_a_warning() {
    warnings(
        &file("redirect: https\n    breaker: { errors: 5 }\n    upgrades: []"),
        &[
            "no route uses the upstream `app`",
            "`breaker` does nothing in a route without `upstream`",
            "`upgrades` does nothing in a route without `upstream`",
        ],
    );
}

#[test]
fn bodies_of_errors_that_come_too_late_are_a_warning() {
    let errors = "[{ status: [502, 504], body: a }, { status: 504, body: b }, { body: c }, { status: 413, body: d }]";
    warnings(
        &file(&format!("upstream: app\n    errors: {errors}")),
        &[
            "an entry before this one has all its statuses",
            "an entry before this one has all its statuses",
        ],
    );
}

#[test]
fn check_shows_what_routes_do() {
    let rewrite = "{ strip_prefix: /a/, path_regex: { match: '^/(x)', replace: '/$1$$' }, add_prefix: /b, host: c:81 }";
    let text = describe(&plan(&file(&format!("upstream: app\n    rewrite: {rewrite}"))));
    let shown = "  r  /* → app\n    rewrite  strip /a, replace ^/(x) by /$1$$, add /b, host c:81\n    no limit\n";
    assert!(text.contains(shown), "{text}");
}

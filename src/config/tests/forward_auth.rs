//! Forward auth: where the service is, and what may be copied and counted.

use super::{FRAME, messages, plan, rejected, warnings};
use crate::config::{describe, diff};

fn route(auth: &str, rest: &str) -> String {
    format!(
        "{FRAME}routes: [{{ name: a, match: {{ path: /a }}, upstream: app, auth: {auth}{rest} }}]\nend: true\n"
    )
}

fn forward(keys: &str) -> String {
    route(&format!("{{ forward: {{ {keys} }} }}"), "")
}

const URL: &str = "url: 'http://127.0.0.1:9091/auth'";

#[test]
fn a_service_that_wants_the_proxy_protocol_is_an_error() {
    let login =
        "{ name: login, send_proxy_protocol: v1, servers: [{ url: 'http://127.0.0.1:9' }] }";
    let text = route("{ forward: { upstream: login, path: /auth } }", "");
    let text = text.replacen("upstreams: [", &format!("upstreams: [{login}, "), 1);
    messages(
        &text,
        &[
            "an auth service is asked without the PROXY protocol | write an upstream of its own without `send_proxy_protocol`",
        ],
    );
}

#[test]
fn a_service_is_at_one_place() {
    for (keys, expected) in [
        (
            "copy: remote-user",
            "`forward` without `url` or `upstream` | write `url: http://HOST:PORT/PATH`, or `upstream: NAME` with `path: /PATH`",
        ),
        (
            "url: 'http://127.0.0.1:9091/auth', upstream: app, path: /auth",
            "`upstream` beside `url` | remove one of the two",
        ),
        (
            "url: 'http://127.0.0.1:9091', path: /auth",
            "`path` beside `url` | write the path at the end of `url`, and remove this",
        ),
        (
            "upstream: app",
            "`upstream` without `path` | write what the service is asked for, as in `path: /oauth2/auth`",
        ),
        ("upstream: ap, path: /auth", "there is no upstream `ap` | did you mean `app`?"),
        (
            "url: 'https://auth.test/a'",
            "`https://auth.test/a` has TLS | write `upstream: NAME` with `path: /PATH` in its place: upstreams have TLS, sockets, several servers and health checks",
        ),
    ] {
        messages(&forward(keys), &[expected]);
    }
    rejected(
        &forward("url: 127.0.0.1, copy: [remote-user, host]"),
        "
error: `127.0.0.1` is not an http:// URL
 --> gateway.yaml:3:81
  |
3 | routes: [{ name: a, match: { path: /a }, upstream: app, auth: { forward: { url: 127.0.0.1, copy: [remote-user, host] } } }]
  |                                                                                 ^^^^^^^^^
  |
  = help: write `url: http://HOST:PORT/PATH`, as in `http://127.0.0.1:9091/api/authz/forward-auth`

error: `host` cannot be copied from the auth service
 --> gateway.yaml:3:112
  |
3 | routes: [{ name: a, match: { path: /a }, upstream: app, auth: { forward: { url: 127.0.0.1, copy: [remote-user, host] } } }]
  |                                                                                                                ^^^^
  |
  = help: remove it: it is about the connection; copy fields such as `remote-user`
",
    );
}

#[test]
fn a_login_page_is_a_url_or_a_path_and_a_copied_field_has_two_names() {
    for (keys, expected) in [
        (
            "login: oauth2/start",
            "`oauth2/start` is neither a URL nor a path | write `https`, or a URL as in `https://{host}{path}`, or a path as in `/new{path}`",
        ),
        (
            "login: '/start?rd={urls}'",
            "there is no placeholder `{urls}` | did you mean `{url}`? write `{{urls}}` for the text itself",
        ),
        (
            "copy: [x-user, { from: x-auth-request-user, to: x_user }]",
            "`x-user` is copied twice, or servers read two names alike | remove one",
        ),
        (
            "copy: [{ from: x-auth-request-user }]",
            "a copied field needs `to` | write `to: remote-user`",
        ),
    ] {
        messages(&forward(&format!("{URL}, {keys}")), &[expected]);
    }

    let keys = "login: '/start?rd={url}', copy: [{ from: x-a, to: x-b }, x-c]";
    let said = describe(&plan(&forward(&format!("{URL}, {keys}"))));
    let expected = "copy x-a as x-b x-c, login /start?rd={url}, timeout 2s";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn a_service_decides_alone() {
    for own in ["basic: users", "jwt: { jwks: keys.json }"] {
        let name = own.split(':').next().unwrap_or_default();
        let text = route(&format!("{{ {own}, forward: {{ {URL} }} }}"), "");
        let problems = super::parsed(&text).unwrap_err();
        let expected = format!("`forward` beside `{name}`");
        assert!(problems.list().any(|problem| problem.message == expected), "{problems}");
    }
}

#[test]
fn fields_about_the_way_of_a_request_cannot_be_copied() {
    for name in [
        "connection",
        "Keep-Alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "expect",
        "host",
        "Content-Length",
        "content_length",
        "content-type",
        "proxy-authorization",
        "x-forwarded-for",
        "X_Forwarded_For",
        "x-forwarded-proto",
        "x-forwarded-host",
        "x-forwarded-uri",
        "x-forwarded-method",
        "x-forwarded-port",
        "forwarded",
        "via",
        "x-request-id",
        "traceparent",
        "set-cookie",
    ] {
        let problems = super::parsed(&forward(&format!("{URL}, copy: [remote-user, {name}]")));
        let problems = problems.unwrap_err();
        let found: Vec<_> = problems.list().collect();
        assert_eq!(found.len(), 1, "{name}: {problems}");
        assert!(found[0].message.contains("cannot be copied"), "{name}: {problems}");
        assert!(problems.to_string().contains("gateway.yaml:3:"), "{problems}");
    }
    for name in ["remote-user", "authorization", "x-forwarded-user", "X-Auth-Request-Email"] {
        warnings(&forward(&format!("{URL}, copy: {name}")), &[]);
    }
    messages(
        &forward(&format!("{URL}, copy: [remote-user, Remote_User]")),
        &["`remote-user` is copied twice, or servers read two names alike | remove one"],
    );
}

#[test]
fn a_key_needs_a_field_that_the_service_says() {
    let keyed = |keys: &str, key: &str| {
        let rule = format!(", flow: [{{ name: each, limit: 9/1s, key: '{key}' }}]");
        route(&format!("{{ forward: {{ {URL}{keys} }} }}"), &rule)
    };
    warnings(&keyed(", copy: Remote-User", "auth:remote-user"), &[]);
    for (keys, key, expected) in [
        (
            ", copy: remote-user",
            "auth:remote-groups",
            "the rule `each` counts by `auth:remote-groups`, and `copy` of its route's `forward` does not name the field | write `copy: [remote-groups]` at `forward`, or the name of a field that it has",
        ),
        (
            ", copy: remote-user",
            "user",
            "the rule `each` counts by `user`, and its route has no `auth: { basic }` or `auth: { jwt }` | write `key: auth:NAME` with a field that `copy` of `forward` names, as in `key: auth:remote-user`",
        ),
        (
            ", copy: remote-user",
            "jwt:sub",
            "the rule `each` counts by `jwt:sub`, and its route has no `auth: { jwt }` | write `auth: { jwt: { jwks: FILE } }` at the route: clients could forge a claim that is not verified",
        ),
    ] {
        messages(&keyed(keys, key), &[expected]);
    }
    let without = format!(
        "{FRAME}routes: [{{ name: a, match: {{ path: /a }}, upstream: app, flow: [{{ name: each, limit: 9/1s, key: 'auth:remote-user' }}] }}]\nend: true\n"
    );
    messages(
        &without,
        &[
            "the rule `each` counts by `auth:remote-user`, and its route has no `auth: { forward }` | write `auth: { forward: { url: http://…, copy: [remote-user] } }` at the route: clients could forge a field that no service says",
        ],
    );
}

#[test]
fn check_diff_and_trailers_know_the_service() {
    let old = plan(&forward(&format!("{URL}, copy: [remote-user, Remote-Groups]")));
    let words = describe(&old);
    let expected = "\n    auth  forward, auth http://127.0.0.1:9091 /auth, copy remote-user remote-groups, timeout 2s\n";
    assert!(words.contains(expected), "{words}");
    for name in ["remote-user", "remote-groups"] {
        assert!(old.deciding_headers.iter().any(|known| &**known == name), "{name}");
    }
    let new = plan(&forward(&format!("{URL}, copy: [remote-user, Remote-Groups], timeout: 3s")));
    assert!(diff(&old, &new).to_string().contains("edited (auth)"), "{}", diff(&old, &new));

    // Two routes with one service share its connections, and an upstream of the file is used by it.
    let two = format!(
        "{FRAME}  - {{ name: login, servers: [{{ url: 'http://127.0.0.1:4180' }}] }}\nroutes:\n  \
         - {{ name: a, match: {{ path: /a }}, upstream: app, auth: {{ forward: {{ {URL} }} }} }}\n  \
         - {{ name: b, match: {{ path: /b }}, upstream: app, auth: {{ forward: {{ url: 'http://127.0.0.1:9091/other' }} }} }}\n  \
         - {{ name: c, match: {{ path: /c }}, upstream: app, auth: {{ forward: {{ upstream: login, path: '/oauth2/auth?a=b' }} }} }}\nend: true\n"
    )
    .replace("upstreams: [{ name: app, servers: [{ url: http://127.0.0.1:9000 }] }]\n", "upstreams:\n  - { name: app, servers: [{ url: 'http://127.0.0.1:9000' }] }\n");
    warnings(&two, &[]);
    let plan = plan(&two);
    let names: Vec<_> = plan.upstreams.iter().map(|upstream| &*upstream.name).collect();
    assert_eq!(names, ["app", "login", "auth http://127.0.0.1:9091"]);
    let of_routes: Vec<_> = plan.routes.iter().map(|route| route.auth_upstream).collect();
    assert_eq!(of_routes, [Some(2), Some(2), Some(1)]);
    assert!(describe(&plan).contains("auth  forward, login /oauth2/auth, timeout 2s\n"));
}

#[test]
fn a_rule_before_the_service_looks_at_the_request_alone() {
    let ruled = |rule: &str| {
        let rest = format!(", flow: [{{ name: each, before_auth: true, {rule} }}]");
        route(&format!("{{ forward: {{ {URL}, copy: remote-user }} }}"), &rest)
    };
    warnings(&ruled("limit: 9/1s, key: client_ip"), &[]);
    let words = describe(&plan(&ruled("limit: 9/1s, key: client_ip")));
    assert!(words.contains("decides before the auth service is asked"), "{words}");

    let is_known_later = "`before_auth` in a rule that looks at who the client is, which `auth` says later | write a key and conditions of the request itself, as in `key: client_ip`, or remove `before_auth`";
    for (rule, expected) in [
        ("limit: 9/1s, key: 'auth:remote-user'", is_known_later),
        (
            "algorithm: pacing, limit: 9/1s",
            "`before_auth` in a rule that has requests wait | remove `before_auth`, or write a rule without pacing and `priority`",
        ),
    ] {
        messages(&ruled(rule), &[expected]);
    }
    for rule in ["limit: 9/1s, key: user", "limit: 9/1s, key: 'jwt:sub'"] {
        let problems = super::parsed(&ruled(rule)).unwrap_err().to_string();
        assert!(problems.contains("which `auth` says later"), "{problems}");
    }
    let without = format!(
        "{FRAME}routes: [{{ name: a, match: {{ path: /a }}, upstream: app, flow: [{{ name: each, limit: 9/1s, before_auth: true }}] }}]\nend: true\n"
    );
    messages(
        &without,
        &[
            "the rule `each` has `before_auth`, and its route has no `auth: { forward }` | remove `before_auth`: all rules of the route decide together",
        ],
    );
}

//! Rules that look at members of a request's JSON body.

use super::{FRAME, messages, plan, warnings, with_rules};
use crate::config::describe;

fn with_rule(rule: &str) -> String {
    with_rules(&format!("      - {{ name: a, {rule} }}\n"))
}

#[test]
fn a_member_is_a_key_like_a_header() {
    let text = with_rule("limit: 9/1s, key: [client_ip, 'json:o.model'], on_missing_key: reject");
    let shown = describe(&plan(&text));
    assert!(shown.contains("client_ip (IPv6: /64), json:o.model"), "{shown}");
    // A client can choose it.
    let alone = with_rule("limit: 9/1s, key: 'json:model', on_duplicate_key: first");
    warnings(&alone, &["a client gets more of `a` by sending another key"]);
}

#[test]
fn what_is_no_member_is_rejected() {
    let help = "write the name of a member, or names with dots between them, as in `options.seed`";
    for (key, message) in [
        ("json:", "`` is not the path of a member"),
        ("json:a..b", "`a..b` is not the path of a member"),
        ("json:$.a", "`$.a` is not the path of a member"),
        ("json:a[0]", "`a[0]` is not the path of a member"),
        ("json:a b", "`a b` has a character that separates keys"),
    ] {
        let rule = with_rule(&format!("limit: 9/1s, key: '{key}'"));
        messages(&rule, &[&format!("{message} | {help}")]);
    }
    messages(
        &with_rule("limit: 9/1s, key: 'body.model'"),
        &["`body.model` is not a key | did you mean `json:model`?"],
    );
}

#[test]
fn the_body_is_not_there_before_auth() {
    let text = format!(
        "{FRAME}routes: [{{ name: r, match: {{ path: /a }}, upstream: app, auth: {{ forward: {{ url: http://127.0.0.1:9091 }} }}, \
         flow: [{{ name: each, limit: 9/1s, before_auth: true, key: 'json:model' }}] }}]\n"
    );
    messages(
        &text,
        &[
            "`before_auth` in a rule that looks at the body, which is read after `auth` | write a key of the header, as in `key: client_ip`, or remove `before_auth`",
        ],
    );
}

#[test]
fn a_route_looks_at_64_members_at_most() {
    let rule = |first: usize, count: usize| {
        let parts: Vec<_> = (first..first + count).map(|n| format!("'json:m{n}'")).collect();
        format!("      - {{ name: r{first}, limit: 9/1s, key: [{}] }}\n", parts.join(", "))
    };
    let rules = |count: usize| (0..count).map(|n| rule(8 * n, 8)).collect::<String>();
    plan(&with_rules(&rules(8)));
    messages(
        &with_rules(&(rules(8) + &rule(64, 1))),
        &["the rules of a route look at more than 64 members | remove some of them"],
    );
}

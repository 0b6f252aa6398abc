//! Who may use a route.

use super::{FRAME, messages, plan, warnings};
use crate::config::{describe, diff};

fn route(access: &str) -> String {
    format!(
        "{FRAME}routes: [{{ name: a, match: {{ path: /a }}, upstream: app, access: {access} }}]\nend: true\n"
    )
}

#[test]
fn an_access_list_names_networks_that_can_be_reached() {
    for (access, expected) in [
        (
            "{}",
            "`access` without `allow` and `deny` | write `allow: [10.0.0.0/8]`, or remove it: all clients may use the route",
        ),
        (
            "{ allow: all }",
            "`all` is not a network | write an address or a range, as in `10.0.0.0/8`, `192.0.2.1` or `2001:db8::/32`",
        ),
    ] {
        messages(&route(access), &[expected]);
    }
    warnings(
        &route("{ allow: [10.1.0.0/16, 192.0.2.1], deny: 10.0.0.0/8 }"),
        &["`10.1.0.0/16` is allowed and denied"],
    );
    warnings(&route("{ allow: [], deny: [] }"), &["no client may use the route"]);
    warnings(&route("{ allow: 10.0.0.0/8, deny: 10.1.0.0/16 }"), &[]);
}

#[test]
fn check_and_diff_name_access() {
    let old = plan(&route("{ allow: [10.0.0.0/9, 10.128.0.0/9, ::1], deny: 10.0.0.5 }"));
    let words = describe(&old);
    assert!(
        words.contains("\n    access  allow 10.0.0.0/8, ::1/128; deny 10.0.0.5/32\n"),
        "{words}"
    );
    let new = plan(&route("{ deny: 10.0.0.5 }"));
    assert!(diff(&old, &new).to_string().contains("edited (access)"), "{}", diff(&old, &new));
}

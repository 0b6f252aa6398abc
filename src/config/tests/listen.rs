//! Addresses of listeners: several addresses, Unix sockets and their permissions.

use super::{messages, warnings};

/// A file whose listener has these keys, and whose rule counts by address.
fn file(listener: &str, rule: &str) -> String {
    format!(
        "listeners: [{{ name: web, {listener} }}]\n\
         routes: [{{ name: a, match: {{ path: /a }}, respond: 200, \
         flow: [{{ name: each, limit: 1/1s, key: client_ip{rule} }}] }}]\nend: true\n"
    )
}

#[test]
fn a_listener_has_at_least_one_address_and_each_once() {
    let path = "write `unix:` and a path, as in `unix:/run/flowgate/web.sock`";
    for (listener, expected) in [
        ("listen: []", "`listen` is empty | write at least one: `listen: 127.0.0.1:8080`"),
        ("listen: [':80', ':80']", "two listeners on `[::]:80` | write another port"),
        (
            "listen: ['127.0.0.1:0', '127.0.0.1:0']",
            "`127.0.0.1:0` twice at one listener | write it once, or name two listeners",
        ),
        (
            "listen: ['unix:/a', ':80', 'unix:/a']",
            "two listeners on `unix:/a` | write another path",
        ),
        ("listen: 'unix:web.sock'", &format!("`unix:web.sock` has no absolute path | {path}")),
        (
            "listen: 'unix:/run/'",
            &format!("`unix:/run/` has a path that no socket can have | {path}"),
        ),
        (
            "listen: ':80', unix_mode: '0600'",
            "`unix_mode` without a Unix socket | remove it, or write `listen: unix:/PATH`",
        ),
        (
            "listen: 'unix:/a', unix_mode: '0668'",
            "`0668` is no permission of a file | write three octal digits, as in `\"0660\"`: read and write for the owner and the group",
        ),
    ] {
        messages(&file(listener, ""), &[expected]);
    }
    for mode in ["'0660'", "660", "\"777\"", "0o600"] {
        let listener = format!("listen: 'unix:/a', unix_mode: {mode}, trusted_proxies: [unix]");
        warnings(&file(&listener, ""), &[]);
    }
}

#[test]
fn a_rule_by_address_is_warned_of_where_clients_have_none() {
    let unknown = "`each` counts by address, and clients of a Unix socket have none";
    warnings(&file("listen: 'unix:/a'", ""), &[unknown]);
    warnings(&file("listen: [':80', 'unix:/a']", ", on_missing_key: skip"), &[unknown]);
    warnings(&file("listen: 'unix:/a', trusted_proxies: [10.0.0.0/8, unix]", ""), &[]);
    let never = "`on_missing_key` with a key that is never missing | write `key: header:NAME`, `cookie:NAME`, `query:NAME` or `json:NAME`, or remove it";
    messages(&file("listen: ':80'", ", on_missing_key: skip"), &[never]);
}

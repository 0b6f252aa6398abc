//! Which clients may use a route.

use super::{FRAME, messages, parsed, plan, warnings};
use crate::config::{Live, Retired, Watched, describe, diff, read, read_rules};
use crate::flow::Instant;
use std::{fs, path::Path};

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
fn networks_of_mapped_addresses_are_those_of_ipv4() {
    for (written, network) in [
        ("::ffff:10.0.0.5", "10.0.0.5/32"),
        ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ("::ffff:0:0/96", "0.0.0.0/0"),
        ("::/0", "::/0"),
        ("::ffff:0:0/95", "::fffe:0:0/95"),
        ("2001:db8::/32", "2001:db8::/32"),
    ] {
        let words = describe(&plan(&route(&format!("{{ deny: '{written}' }}"))));
        assert!(words.contains(&format!("\n    access  deny {network}\n")), "{words}");
    }
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

#[test]
fn networks_of_nat64_are_those_of_ipv4_and_a_prefix_is_checked() {
    let route = |access: &str| {
        format!(
            "{FRAME}routes: [{{ name: a, match: {{ path: /a }}, upstream: app, access: {{ {access} }} }}]\n"
        )
    };
    let own = "nat64: ['2001:db8::/32']\n";
    let of_ipv4 = plan(&route("deny: [192.0.2.0/24]"));
    for network in ["64:ff9b::192.0.2.0/120", "2001:db8:c000:200::/56"] {
        let behind_prefix = plan(&format!("{}{own}", route(&format!("deny: ['{network}']"))));
        let access = &behind_prefix.routes[0].options.access;
        assert_eq!(*access, of_ipv4.routes[0].options.access, "{network}");
    }
    // Without the prefix it is one of IPv6, and an edit of the prefix is one of the route.
    let text = route("deny: ['2001:db8:c000:200::/56']");
    let access = &plan(&text).routes[0].options.access;
    assert_eq!(access.as_ref().unwrap().to_string(), "deny 2001:db8:c000:200::/56");
    assert_ne!(plan(&text).routes[0].print, plan(&format!("{text}{own}")).routes[0].print);

    for (text, expected) in [
        (route("allow: ['64:ff9b::/96']"), "is a prefix of NAT64, which stands for all IPv4"),
        (format!("{}{own}", route("allow: ['2001:db8::/32']")), "write the clients' IPv4 networks"),
        (format!("{}nat64: ['2001:db8::/33']\n", route("deny: []")), "has no length of a prefix"),
        (format!("{}nat64: ['2001:db8::1/64']\n", route("deny: []")), "write `2001:db8::/64`"),
        (
            format!("{}nat64: ['2001:db8:0:0:100::/96']\n", route("deny: []")),
            "reserved ninth octet",
        ),
        (format!("{}nat64: ['::/96']\n", route("deny: []")), "addresses of the system's own"),
        (format!("{}nat64: [10.0.0.0/8]\n", route("deny: []")), "is not a prefix of NAT64"),
    ] {
        let drawn = parsed(&text).unwrap_err().to_string();
        assert!(drawn.contains(expected), "{drawn}");
    }
}

const HASH: &str = "$2y$05$bvIG6Nmid91Mu9RcmmWZfO5HJIMCT8riNW0hEp8f6/FuA2/mHZFpe";

/// Writes a file whose routes know the users of `users`.
fn with_users(folder: &Path, users: &str, rule: &str) -> std::path::PathBuf {
    let file = folder.join("gateway.yaml");
    let text = format!(
        "{FRAME}routes:\n  - {{ name: a, match: {{ path: /a }}, upstream: app, auth: {{ basic: users }}, flow: [{rule}] }}\n\
         \x20 - {{ name: b, match: {{ path: /b }}, upstream: app, auth: {{ basic: users }} }}\nend: true\n"
    );
    fs::write(&file, text).unwrap();
    fs::write(folder.join("users"), users).unwrap();
    file
}

#[test]
fn a_password_file_that_cannot_be_used_is_an_error_without_its_secrets() {
    let folder = tempfile::tempdir().unwrap();
    for (users, expected) in [
        (
            "alice:s3cret\n".to_owned(),
            "line 1: the password of `alice` is plain text, or hashed by DES",
        ),
        (
            format!("bob:{HASH}\nalice:$apr1$s3cret$x\n"),
            "line 2: the password of `alice` is hashed by MD5",
        ),
        ("# nothing\n".to_owned(), "it names no user"),
    ] {
        let problems = read(&with_users(folder.path(), &users, "")).unwrap_err();
        let drawn = problems.to_string();
        // Once, though two routes name it.
        assert_eq!(drawn.matches(expected).count(), 1, "{drawn}");
        assert!(drawn.contains("write each user by `htpasswd -B FILE USER`"), "{drawn}");
        assert!(!drawn.contains("s3cret"), "{drawn}");
    }
    let file = with_users(folder.path(), "", "");
    fs::remove_file(folder.path().join("users")).unwrap();
    let drawn = read(&file).unwrap_err().to_string();
    assert!(drawn.contains("cannot read the password file"), "{drawn}");
    // Rules can be tested without it.
    assert!(read_rules(&file).is_ok());
}

#[test]
fn a_new_password_is_an_edit_of_the_routes_that_name_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let users = format!("alice:{HASH}\n");
    let file = with_users(folder.path(), &users, "{ name: each, limit: 1/1s, key: user }");
    let plan = read(&file).unwrap();
    let words = describe(&plan);
    assert!(words.contains("\n    auth  basic, 1 user\n"), "{words}");
    assert!(words.contains("for each user:"), "{words}");
    assert!(plan.files.contains(&Watched::File(folder.path().join("users"))));
    let live = Live::start(plan, Instant::EPOCH);
    let apply =
        || live.apply(read(&file).unwrap(), Instant::EPOCH, &mut Retired::default()).to_string();
    assert!(apply().contains("nothing changed"));
    fs::write(folder.path().join("users"), format!("{users}bob:{HASH}\n")).unwrap();
    let said = apply();
    assert!(said.contains("route a (auth), route b (auth)"), "{said}");
    assert!(said.contains("reset 0"), "{said}");
}

#[test]
fn a_rule_counts_by_user_only_where_users_are_known() {
    let rule = "flow: [{ name: each, limit: 1/1s, key: user }]";
    messages(
        &format!("{FRAME}routes: [{{ name: a, match: {{ path: /a }}, upstream: app, {rule} }}]"),
        &[
            "the rule `each` counts by `user`, and its route has no `auth` | write `auth: { basic: FILE }` or `auth: { jwt: { jwks: FILE } }` at the route",
        ],
    );
    messages(
        &format!(
            "{FRAME}routes: [{{ name: a, match: {{ path: /a }}, upstream: app, auth: {{}} }}]"
        ),
        &[
            "`auth` without `basic`, `jwt` or `forward` | write `auth: { basic: FILE }`, `auth: { jwt: { jwks: FILE } }` or `auth: { forward: { url: http://… } }`, or remove it",
        ],
    );
}

#[test]
fn a_rule_counts_by_a_claim_only_where_it_is_verified() {
    let rule = "flow: [{ name: each, limit: 1/1s, key: 'jwt:sub' }]";
    let forged = "the rule `each` counts by `jwt:sub`, and its route has no `auth: { jwt }` | write `auth: { jwt: { jwks: FILE } }` \
                  at the route: clients could forge a claim that is not verified";
    messages(
        &format!("{FRAME}routes: [{{ name: a, match: {{ path: /a }}, upstream: app, {rule} }}]"),
        &[forged],
    );
    let folder = tempfile::tempdir().unwrap();
    let file = with_users(
        folder.path(),
        &format!("alice:{HASH}"),
        "{ name: each, limit: 1/1s, key: 'jwt:sub' }",
    );
    let drawn = read(&file).unwrap_err().to_string();
    assert!(drawn.contains("its route has no `auth: { jwt }`"), "{drawn}");
    assert!(read_rules(&file).is_ok());
}

#[test]
fn conditions_look_at_claims_and_users_only_where_they_are_verified() {
    let help = "write `auth: { jwt: { jwks: FILE } }` at the route, or a condition that needs no proof, such as `client_ip`";
    for (rule, expected) in [
        (
            "except: { jwt: { plan: [gold, silver] } }",
            "an exception of the rule `each` looks at `jwt:plan`, and its route has no `auth: { jwt }`: clients could forge it",
        ),
        (
            "except: { user: ann }",
            "an exception of the rule `each` looks at `user`, and its route has no `auth`",
        ),
        (
            "overrides: [{ when: { jwt:plan: gold }, limit: 2/1s }]",
            "an override of the rule `each` looks at `jwt:plan`, and its route has no `auth: { jwt }`: clients could forge it",
        ),
        (
            "overrides: [{ when: { user: [ann, bob] }, limit: 2/1s }]",
            "an override of the rule `each` looks at `user`, and its route has no `auth`",
        ),
    ] {
        messages(
            &format!(
                "{FRAME}routes: [{{ name: a, match: {{ path: /a }}, upstream: app, flow: [{{ name: each, limit: 1/1s, {rule} }}] }}]"
            ),
            &[&format!("{expected} | {help}")],
        );
    }
    for condition in
        ["jwt: { plan: gold }", "jwt:plan: gold", "user: ann", "claims: { plan: gold }"]
    {
        let text = format!(
            "{FRAME}routes: [{{ name: a, match: {{ path: /a, {condition} }}, upstream: app }}]\nend: true\n"
        );
        let said = crate::config::Text::new("gateway.yaml".as_ref(), &text).rules().unwrap_err();
        let said = said.to_string();
        assert!(said.contains("the route decides which `auth` applies"), "{said}");
    }
}

#[test]
fn a_key_set_is_checked_against_the_algorithms_and_an_edit_of_it_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.yaml");
    let keys = folder.path().join("keys.json");
    let write = |jwt: &str| {
        let text = format!(
            "{FRAME}routes:\n  - {{ name: a, match: {{ path: /a }}, upstream: app, auth: {{ jwt: {{ jwks: keys.json{jwt} }} }} }}\nend: true\n"
        );
        fs::write(&file, text).unwrap();
    };
    let secret = |id: &str| {
        let key = "YSBzZWNyZXQgb2YgdGhpcnR5LXR3byBieXRlcyAuLi4";
        format!("{{\"keys\":[{{\"kty\":\"oct\",\"k\":\"{key}\",\"kid\":\"{id}\"}}]}}")
    };
    fs::write(&keys, secret("a")).unwrap();
    for (jwt, expected) in [
        // Secrets must be asked for.
        ("", "has no key for the `algorithms` of this route"),
        (", algorithms: none", "`none` is not an algorithm that verifies tokens"),
        (", algorithms: HS256, header: x, cookie: y", "a token in a header and in a cookie"),
    ] {
        write(jwt);
        let drawn = read(&file).unwrap_err().to_string();
        assert!(drawn.contains(expected), "{drawn}");
        assert!(!drawn.contains("YSBz"), "{drawn}");
    }
    write(", algorithms: [HS256, ES256], header: X-Token");
    let old = read(&file).unwrap();
    assert!(describe(&old).contains("\n    auth  jwt, 1 key\n"), "{}", describe(&old));
    assert!(old.deciding_headers.iter().any(|name| &**name == "x-token"));
    fs::write(&keys, secret("b")).unwrap();
    assert!(diff(&old, &read(&file).unwrap()).to_string().contains("edited (auth)"));
}

#[test]
fn a_field_with_the_clients_address_needs_trusted_proxies() {
    let file = |keys: &str, rest: &str| {
        let frame = FRAME.replace("name: web,", &format!("name: web, {keys}"));
        format!(
            "{frame}routes: [{{ name: a, match: {{ path: /a }}, upstream: app }}]\n{rest}end: true\n"
        )
    };
    let header = "client_ip_header: cf-connecting-ip";
    let proxies = "trusted_proxies: 10.0.0.0/8";
    let lacks = "`client_ip_header` without `trusted_proxies` | write `trusted_proxies: [10.0.0.0/8]`: the proxies in front that write this field. Any other client could choose its address";
    messages(&file("", &format!("{header}\n")), &[lacks]);
    messages(&file(&format!("{header}, "), ""), &[lacks]);
    messages(&file(&format!("{header}, trusted_proxies: [], "), &format!("{proxies}\n")), &[lacks]);
    for (keys, rest) in [
        (String::new(), format!("{header}\n{proxies}\n")),
        (format!("{header}, {proxies}, "), String::new()),
        (format!("{header}, "), format!("{proxies}\n")),
        (format!("{proxies}, "), format!("{header}\n")),
    ] {
        let plan = plan(&file(&keys, &rest));
        assert!(describe(&plan).contains("client_ip_header"), "{keys} {rest}");
    }

    let before = plan(&file("", &format!("{header}\n{proxies}\n")));
    let after = plan(&file("", &format!("{proxies}\nclient_ip_header: x-real-ip\n")));
    let said = diff(&before, &after).to_string();
    assert!(said.contains("client_ip_header cf-connecting-ip → x-real-ip"), "{said}");

    for (name, error) in [
        (
            "forwarded",
            "`forwarded` is a field that flowgate does not read | let the proxy write `X-Forwarded-For`, which is read without this key",
        ),
        (
            "Host",
            "`Host` is not a field with the client's address | write the field that your proxy sets to the client's address, as in `cf-connecting-ip` or `x-real-ip`",
        ),
        (
            "proxy_protocol",
            "`proxy_protocol` is not a header | write `proxy_protocol: true` at the listener",
        ),
    ] {
        messages(&file("", &format!("{proxies}\nclient_ip_header: {name}\n")), &[error]);
    }
}

#[test]
fn a_listener_names_its_proxies_and_needs_them_for_the_proxy_protocol() {
    let file = |keys: &str, rest: &str| {
        let frame = FRAME.replace("name: web,", &format!("name: web, {keys},"));
        format!(
            "{frame}routes: [{{ name: a, match: {{ path: /a }}, upstream: app }}]\n{rest}end: true\n"
        )
    };
    let global = "trusted_proxies: 10.0.0.0/8\n";
    let lacks = "`proxy_protocol` without `trusted_proxies` | write `trusted_proxies: [10.0.0.0/8]`: the load balancers in front of this listener";
    messages(&file("proxy_protocol: true", ""), &[lacks]);
    messages(&file("proxy_protocol: true, trusted_proxies: []", global), &[lacks]);
    let old = plan(&file("proxy_protocol: true", global));
    assert!(describe(&old).contains("127.0.0.1:8080  PROXY protocol\n"), "{}", describe(&old));
    let limit = format!("{global}limits: {{ connections_per_client: 20 }}\n");
    let new = plan(&file("trusted_proxies: 192.0.2.1", &limit));
    let words = describe(&new);
    assert!(words.contains("\n    trusted_proxies  192.0.2.1/32\n"), "{words}");
    assert!(words.contains("\n  connections_per_client 20\n"), "{words}");
    let difference = diff(&old, &new).to_string();
    for expected in [
        "listener web  edited (trusted_proxies, proxy_protocol true → false)",
        "limits.connections_per_client none → 20",
    ] {
        assert!(difference.contains(expected), "{difference}");
    }
}

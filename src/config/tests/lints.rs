//! Each check by its name: a file with the fault, one without, and a comment that silences it.

use super::{FRAME, parsed, plan, with_rules};
use crate::{
    config::{Lint, Plan},
    flow::Instant,
};

const STORE: &str = "store: { redis: redis://127.0.0.1 }\n";

/// Returns `name line` of each remark, but for those that tests of other checks would have.
fn found(plan: &Plan) -> Vec<String> {
    let remarks = plan.remarks_at(Instant::EPOCH);
    let diagnostics = remarks.list().filter(|diagnostic| diagnostic.name != Some(Lint::MissingEnd));
    diagnostics
        .map(|diagnostic| format!("{} {}", diagnostic.name.expect("a name"), diagnostic.line))
        .collect()
}

/// Asserts that `faulty` has just this remark, that `sound` has none, and that a comment above the
/// line, or behind it, silences it there.
#[track_caller]
fn check(lint: Lint, faulty: &str, sound: &str) {
    let plan_of = |text: &str| plan(text);
    let remarks = plan_of(faulty).remarks_at(Instant::EPOCH);
    let diagnostic = remarks.list().find(|diagnostic| diagnostic.name == Some(lint));
    let diagnostic = diagnostic.unwrap_or_else(|| panic!("{lint} is not found: {remarks}"));
    assert!(!diagnostic.help.is_empty(), "{lint} has a hint");
    assert_eq!(found(&plan_of(faulty)), [format!("{lint} {}", diagnostic.line)], "{faulty}");
    assert_eq!(found(&plan_of(sound)), Vec::<String>::new(), "{lint}: {sound}");
    let drawn = remarks.to_string();
    assert!(drawn.contains(&format!("[{lint}]: ")), "{drawn}");
    let lines: Vec<_> = faulty.lines().map(str::to_owned).collect();
    let comment = format!("# flowgate: allow({lint}) as discussed");
    let mut above = lines.clone();
    above.insert(diagnostic.line - 1, comment.clone());
    let mut behind = lines.clone();
    behind[diagnostic.line - 1] = format!("{} {comment}", lines[diagnostic.line - 1]);
    let mut elsewhere = lines;
    elsewhere.insert(diagnostic.line.saturating_sub(2), comment);
    for silent in [above, behind] {
        assert_eq!(found(&plan_of(&silent.join("\n"))), Vec::<String>::new(), "{silent:#?}");
    }
    if diagnostic.line > 1 {
        assert_eq!(found(&plan_of(&elsewhere.join("\n"))).len(), 1, "{elsewhere:#?}");
    }
}

fn rules(lines: &[&str]) -> String {
    let lines = lines.iter().map(|line| format!("      - {{ {line} }}\n"));
    with_rules(&lines.collect::<String>())
}

#[test]
fn a_server_that_is_a_listener_of_the_same_file() {
    let text = |listen: &str, url: &str| {
        format!(
            "listeners: [{{ name: web, listen: \"{listen}\" }}]\nupstreams:\n  - name: app\n    servers: [{{ url: \"{url}\" }}]\nroutes: [{{ name: r, match: {{ path_prefix: / }}, upstream: app }}]\ntrusted_proxies: []\n"
        )
    };
    for (listen, faulty, sound) in [
        ("127.0.0.1:80", "http://localhost", "http://localhost:81"),
        (":8080", "http://127.0.0.1:8080", "http://10.0.0.9:8080"),
        ("0.0.0.0:8080", "http://LOCALHOST:8080", "http://app:8080"),
        ("[::1]:8080", "http://[::1]:8080", "http://127.0.0.1:8080"),
        ("10.0.0.5:8080", "http://10.0.0.5:8080", "http://localhost:8080"),
    ] {
        check(Lint::UpstreamIsListener, &text(listen, faulty), &text(listen, sound));
    }
}

#[test]
fn trusted_proxies_that_are_everybody() {
    let file = |list: &str| {
        format!(
            "{FRAME}routes: [{{ name: r, match: {{ path_prefix: / }}, upstream: app }}]\ntrusted_proxies: {list}\n"
        )
    };
    let of_listener = |list: &str| {
        format!(
            "listeners: [{{ name: web, listen: 127.0.0.1:8080, trusted_proxies: {list} }}]\n\
             upstreams: [{{ name: app, servers: [{{ url: http://a }}] }}]\n\
             routes: [{{ name: r, match: {{ path_prefix: / }}, upstream: app }}]\n"
        )
    };
    for faulty in [
        "0.0.0.0/0",
        "[10.0.0.0/8, 0.0.0.0/0]",
        "['::/0']",
        "['::ffff:0.0.0.0/96']",
        "[0.0.0.0/1, 128.0.0.0/1]",
        "[128.0.0.0/1, 10.0.0.0/8, 0.0.0.0/2, 64.0.0.0/2]",
        "['::/1', '8000::/1']",
        "[0.0.0.0/0, '::/0']",
    ] {
        check(Lint::TrustsEveryone, &file(faulty), &file("[10.0.0.0/8, '2001:db8::/32']"));
        check(Lint::TrustsEveryone, &of_listener(faulty), &of_listener("[]"));
    }
    check(Lint::TrustsEveryone, &file("0.0.0.0/0"), &file("[0.0.0.0/1, 128.0.0.0/2]"));
}

#[test]
fn networks_with_host_bits_in_every_list_of_networks() {
    let file = |proxies: &str, access: &str, rule: &str| {
        format!(
            "{FRAME}routes:\n  - name: r\n    match: {{ path_prefix: / }}\n    upstream: app\n\
             \x20   access: {access}\n    flow: [{{ name: a, limit: 9/s{rule} }}]\n\
             trusted_proxies: {proxies}\n"
        )
    };
    let right = file("[10.0.0.0/8]", "{ deny: [192.0.2.1] }", "");
    for (faulty, sound) in [
        (file("[10.1.2.3/8]", "{ deny: [192.0.2.1] }", ""), right.clone()),
        (file("['2001:db8::1/32']", "{ deny: [192.0.2.1] }", ""), right.clone()),
        (file("[]", "{ deny: [192.0.2.1/24] }", ""), file("[]", "{ deny: 192.0.2.0/24 }", "")),
        (file("[]", "{ allow: 192.0.2.1/24 }", ""), file("[]", "{ allow: 192.0.2.1/32 }", "")),
        (
            file("[]", "{ deny: [192.0.2.1] }", ", except: { client_ip: [10.0.0.1/8] }"),
            file("[]", "{ deny: [192.0.2.1] }", ", except: { client_ip: [10.0.0.1] }"),
        ),
        (
            file(
                "[]",
                "{ deny: [192.0.2.1] }",
                ", overrides: [{ when: { client_ip: 10.0.0.1/8 }, limit: 5/s }]",
            ),
            file(
                "[]",
                "{ deny: [192.0.2.1] }",
                ", overrides: [{ when: { client_ip: 10.0.0.0/8 }, limit: 5/s }]",
            ),
        ),
    ] {
        check(Lint::NetworkHostBits, &faulty, &sound);
    }
    let of_listener = |list: &str| {
        format!(
            "listeners: [{{ name: web, listen: 127.0.0.1:8080, trusted_proxies: {list} }}]\n\
             upstreams: [{{ name: app, servers: [{{ url: http://a }}] }}]\n\
             routes: [{{ name: r, match: {{ path_prefix: / }}, upstream: app }}]\n"
        )
    };
    check(Lint::NetworkHostBits, &of_listener("10.1.2.3/8"), &of_listener("10.1.2.3"));
    let shown = plan(&of_listener("10.1.2.3/8")).remarks_at(Instant::EPOCH).to_string();
    assert!(shown.contains("`10.1.2.3/8` has host bits"), "{shown}");
    assert!(shown.contains("write `10.0.0.0/8` for the network, or `10.1.2.3`"), "{shown}");
}

#[test]
fn keys_of_paths_and_hosts_that_clients_choose() {
    const PATH: &str = "{ name: a, limit: 9/s, key: path }";
    const HOST: &str = "{ name: a, limit: 9/s, key: host }";
    let file = |matched: &str, rules: &str| {
        format!(
            "{FRAME}routes:\n  - name: r\n    match: {{ {matched} }}\n    upstream: app\n    flow: [{rules}]\n"
        )
    };
    for (faulty, sound) in [
        (file("path_prefix: /", PATH), file("path: /login", PATH)),
        (file("path_prefix: /api", PATH), file("path: [/a, /b]", PATH)),
        (file("path: '/users/{id}'", PATH), file("path: /users", PATH)),
        (file("path_regex: '/a.*'", PATH), file("path: /a, host: a.b", PATH)),
        (file("host: a.b", PATH), file("host: a.b, path: /a", PATH)),
        (file("path_prefix: /", HOST), file("host: a.b", HOST)),
        (file("path: /login", HOST), file("host: [a.b, c.d], path: /login", HOST)),
        (file("host: '*.a.b'", HOST), file("host: x.a.b", HOST)),
        (
            file("path_prefix: /", "{ name: a, limit: 9/s, key: [client_ip, path] }"),
            file("path_prefix: /", "{ name: a, limit: 9/s, key: [client_ip, method] }"),
        ),
        (
            file("path_prefix: /", PATH),
            file(
                "path_prefix: /",
                "{ name: a, limit: 9/s, key: path }, { name: b, limit: 20/s, key: client_ip }",
            ),
        ),
    ] {
        check(Lint::ClientChosenTarget, &faulty, &sound);
    }
    // A note is no warning: the gateway does not log it.
    let plan = plan(&file("path_prefix: /", PATH));
    assert!(plan.warnings_at(Instant::EPOCH).is_empty());
    assert!(!plan.remarks_at(Instant::EPOCH).has_warnings());
}

#[test]
fn a_regular_expression_for_a_part_of_the_path() {
    let text = |regex: &str| {
        let keys = format!("match: {{ path_regex: '{regex}' }}");
        format!("{FRAME}routes:\n  - name: a\n    {keys}\n    upstream: app\n")
    };
    for (faulty, sound) in [("^/api", "^/api/.*"), ("[.]php$", ".*[.]php$"), ("(?i)^/a", "^/a$")] {
        check(Lint::RegexWithOneAnchor, &text(faulty), &text(sound));
    }
    for (faulty, sound) in [
        ("api", "/api"),
        ("[.](jpg|png)", ".*[.](jpg|png)"),
        (r"\.php", r"(.*)\.php"),
        ("(?i)v[0-9]+/.*", "(?i)[/a-z]v[0-9]+/.*"),
        ("^api/.*$", "^/api/.*$"),
        ("[a-z]+/.*", "[a-z]*/.*"),
        (r"\d+", r"\w?/.*"),
        ("a+(b|c)", "a?/.*"),
        ("a", "a{0}/.*"),
        ("a", "a|/b"),
        ("a", r"a\(|/b"),
        ("a", "[.-9]a"),
        ("a", "[^a]a"),
        ("a", "(a|/b)"),
    ] {
        check(Lint::RegexWithoutSlash, &text(faulty), &text(sound));
    }
}

#[test]
fn limits_that_reject_every_body() {
    let route = |more: &str, limit: &str| {
        format!(
            "{FRAME}routes:\n  - name: a\n    match: {{ path: /a{more} }}\n    upstream: app\n    body_limit: {limit}\n"
        )
    };
    let file = |limit: &str| {
        format!(
            "{FRAME}limits: {{ body: {limit} }}\nroutes: [{{ name: a, match: {{ path: /a }}, upstream: app }}]\n"
        )
    };
    check(Lint::NoBodies, &route("", "0"), &route("", "1"));
    check(Lint::NoBodies, &route(", method: [GET, POST]", "0KiB"), &route(", method: GET", "0"));
    check(Lint::NoBodies, &file("0"), &file("1EiB"));
    let own = file("0").replace("upstream: app }", "upstream: app, body_limit: 1MiB }");
    check(Lint::NoBodies, &file("0"), &own);
}

#[test]
fn variables_of_other_gateways_where_placeholders_stand() {
    let route = |keys: &str| {
        format!(
            "{FRAME}routes:\n  - name: a\n    match: {{ path: /a }}\n    {keys}\n  - name: b\n    match: {{ path: /b }}\n    upstream: app\n"
        )
    };
    let set = |value: &str| {
        route(&format!("upstream: app\n    request_headers: {{ set: {{ x-a: '{value}' }} }}"))
    };
    let reject = |text: &str| route(&format!("upstream: app\n    reject: {{ body: '{text}' }}"));
    for (faulty, sound) in [
        (set("$remote_addr"), set("{client_ip}")),
        (set("%REQ(x-b)%"), set("%REQUEST")),
        (set("of $host!"), set("of $hosts, $hostname, $ and 5%")),
        (reject("of $http_host!"), reject("of $http_hosts, $ and 5%")),
        (route("redirect: 'https://a$request_uri'"), route("redirect: 'https://a{path}{query}'")),
        (
            route("respond: { body: '$remote_addr' }"),
            route("respond: { body: 'query($uri: String) { a(host: $host) }' }"),
        ),
        (route("redirect: 'https://a$is_args$args'"), route("redirect: 'https://a{query}'")),
    ] {
        check(Lint::LiteralVariable, &faulty, &sound);
    }
    let both = plan(&route("redirect: 'https://$host$request_uri'")).warnings.to_string();
    for help in ["write `{host}`", "write `{path}{query}`"] {
        assert!(both.contains(help), "{both}");
    }
    let text = set("$hosts $host");
    let warnings = plan(&text).warnings;
    let column = warnings.list().next().map(|warning| warning.column);
    let line = text.lines().find(|line| line.contains("$host")).unwrap_or_default();
    assert_eq!(column, line.find("$host'").map(|at| at + 1), "{warnings}");
}

#[test]
fn routes_that_no_request_gets() {
    let text = |path: &str| {
        format!(
            "{FRAME}routes:\n\
             \x20 - name: a\n    match: {{ path: /x }}\n    upstream: app\n\
             \x20 - name: b\n    match: {{ path: {path} }}\n    upstream: app\n"
        )
    };
    check(Lint::UnreachableRoute, &text("/x"), &text("/y"));
    let text = |matches: &str| {
        format!(
            "{FRAME}routes:\n\
             \x20 - name: site\n    match: {{ listener: web }}\n    upstream: app\n\
             \x20 - name: login\n    match: {{ {matches} }}\n    upstream: app\n"
        )
    };
    check(Lint::UnreachableRoute, &text("path: /login"), &text("listener: web, path: /login"));
    let two = text("path: /login")
        .replace("listeners: [", "listeners: [{ name: tls, listen: 8443 }, ")
        + "  - { name: other, match: { listener: tls }, upstream: app }\n";
    let drawn = plan(&two).warnings.to_string();
    for words in
        ["every listener has a route", "`site` comes first", "`other` comes first", "or remove it"]
    {
        assert!(drawn.contains(words), "{words}: {drawn}");
    }
}

#[test]
fn rules_beside_stricter_ones() {
    let low = "name: low, limit: 5/1s";
    check(
        Lint::NeverRejects,
        &rules(&[low, "name: high, limit: 9/1s, burst: 9"]),
        &rules(&[low, "name: high, limit: 3/1s, burst: 9"]),
    );
    let total = "name: total, algorithm: sliding_window, limit: 50/1s";
    let each = |limit: u64| {
        format!("name: each, algorithm: sliding_window, limit: {limit}/1s, key: client_ip")
    };
    check(Lint::NeverRejects, &rules(&[total, &each(100)]), &rules(&[total, &each(10)]));
    for (other, sound) in [
        // It rejects requests without the field.
        (
            total,
            "name: each, algorithm: sliding_window, limit: 99/1s, key: header:x, on_missing_key: reject",
        ),
        // The total counts more of each.
        ("name: total, algorithm: sliding_window, limit: 50/1s, cost: 2", &each(100)),
        ("name: total, algorithm: sliding_window, limit: 50/1s, dry_run: true", &each(100)),
        ("name: total, algorithm: sliding_window, limit: 50/1m", &each(100)),
    ] {
        assert_eq!(found(&plan(&rules(&[other, sound]))), Vec::<String>::new(), "{sound}");
    }
}

#[test]
fn requests_that_cost_more_than_there_is() {
    let rule = |burst: u64| format!("name: a, limit: 20/1s, burst: {burst}, cost: {{ POST: 5 }}");
    check(Lint::CostAboveLimit, &rules(&[&rule(4)]), &rules(&[&rule(5)]));
    let nothing = parsed(&rules(&["name: a, limit: 20/1s, burst: 4, cost: 5"])).unwrap_err();
    assert!(nothing.to_string().starts_with("error: nothing can ever pass"), "{nothing}");
}

#[test]
fn cold_services_that_get_next_to_nothing() {
    let rule = |limit: &str| format!("name: a, limit: {limit}, warm_up: {{ cold_factor: 3 }}");
    check(Lint::WarmUpBelowFactor, &rules(&[&rule("2/1s")]), &rules(&[&rule("3/1s")]));
    // The same rate in other words.
    for sound in ["1/100ms", "30/1m", "3/1m"] {
        assert_eq!(found(&plan(&rules(&[&rule(sound)]))), Vec::<String>::new(), "{sound}");
    }
}

#[test]
fn starts_further_apart_than_the_longest_wait() {
    let pacing =
        |words: &str| format!("{}    pacing: {{ {words} }}\n", rules(&["name: a, concurrency: 9"]));
    check(Lint::PacingAboveMaxWait, &pacing("rate: 1/1s"), &pacing("rate: 1/1s, max_wait: 1s"));
    let rule = |cost: u64| {
        format!("name: a, algorithm: pacing, limit: 2/1s, cost: {{ default: {cost}, GET: 3 }}")
    };
    check(Lint::PacingAboveMaxWait, &rules(&[&rule(2)]), &rules(&[&rule(1)]));
    assert_eq!(found(&plan(&pacing("rate: 1/1s, max_wait: 0s"))), Vec::<String>::new());
    // No `max_wait` is that long.
    for timeout in ["off", "30d", "1h"] {
        let plan = plan(&format!("{}    timeout: {timeout}\n", pacing("rate: 1/1d")));
        let shown = plan.warnings.to_string();
        assert!(shown.contains("hour: write `max_wait: 0s` to space starts by"), "{shown}");
    }
    // Half of the route's second is the longest wait, whatever `max_wait` says.
    let short = "timeout: 1s";
    let long = "timeouts: { request: 1s }";
    for (words, timeout, name, help) in [
        ("rate: 1/1s", short, "pacing-above-max-wait", "`max_wait: 1s` and `timeout: 2s`"),
        ("rate: 1/1s", long, "pacing-above-max-wait", "1s` and `timeouts: { request: 2s }`"),
        ("rate: 1/1s, max_wait: 5s", short, "wait-above-timeout", "500ms`, or a longer `timeout`"),
        ("rate: 1/1s, max_wait: 5s", long, "wait-above-timeout", "longer `timeouts.request`"),
    ] {
        let plan = plan(&format!("{}    {timeout}\n", pacing(words)));
        assert_eq!(found(&plan).len(), 1, "{words}");
        let shown = plan.warnings.to_string();
        assert!(shown.contains(name) && shown.contains(help), "{shown}");
    }
}

#[test]
fn syncs_that_come_when_the_window_is_over() {
    let text = |interval: &str| {
        let rule = format!("name: a, limit: 9/1s, scope: cluster, sync_interval: {interval}");
        STORE.to_owned() + &rules(&[&rule])
    };
    check(Lint::SyncIntervalTooLong, &text("1s"), &text("100ms"));
}

#[test]
fn rules_by_address_behind_a_proxy() {
    let rule = rules(&["name: each, limit: 9/1s, key: client_ip"]);
    let text = |address: &str, more: &str| rule.replace("127.0.0.1:8080", address) + more;
    check(
        Lint::NoTrustedProxies,
        &text("10.0.0.5:8080", ""),
        &text("10.0.0.5:8080", "trusted_proxies: [10.0.0.0/24]\n"),
    );
    for (address, more) in [
        ("10.0.0.5:8080", "trusted_proxies: []\n"),
        ("0.0.0.0:8080", ""),
        ("127.0.0.1:8080", ""),
        ("203.0.113.5:8080", ""),
        ("10.0.0.5:8080, trusted_proxies: []", ""),
    ] {
        assert_eq!(found(&plan(&text(address, more))), Vec::<String>::new(), "{address} {more}");
    }
    let other = rules(&["name: all, limit: 9/1s"]).replace("127.0.0.1:8080", "10.0.0.5:8080");
    assert_eq!(found(&plan(&other)), Vec::<String>::new(), "no rule by address");
}

#[test]
fn keys_that_clients_choose() {
    let by_key = "name: key, limit: 9/1s, key: header:x-api-key";
    let by_address = "name: address, limit: 90/1s, key: client_ip";
    check(Lint::ClientChosenKey, &rules(&[by_key]), &rules(&[by_key, by_address]));
    for faulty in [
        "name: a, limit: 9/1s, key: cookie:session",
        "name: a, limit: 9/1s, key: [client_ip, query:page]",
        "name: a, concurrency: 9, key: header:x-tenant",
        "name: a, limit: 9/1s, key: header:x-forwarded-for",
    ] {
        assert_eq!(found(&plan(&rules(&[faulty]))), ["client-chosen-key 8"], "{faulty}");
    }
    let total = "name: total, algorithm: sliding_window, limit: 90/1s";
    for sound in [[by_key, total], [by_key, "name: one, concurrency: 5, key: client_ip"]] {
        assert_eq!(found(&plan(&rules(&sound))), Vec::<String>::new(), "{sound:?}");
    }
    let dry = rules(&["name: a, limit: 9/1s, key: header:x-api-key, dry_run: true"]);
    assert_eq!(found(&plan(&dry)), Vec::<String>::new());
    let inside = rules(&[by_key]) + "    access: { allow: [10.0.0.0/8] }\n";
    assert_eq!(found(&plan(&inside)), Vec::<String>::new(), "clients are known");
}

#[test]
fn overrides_that_clients_choose() {
    let rule = |more: &str| {
        rules(&[&format!(
            "name: a, algorithm: sliding_window, limit: 9/1s, key: client_ip, {more}"
        )])
    };
    let when = |when: &str| rule(&format!("overrides: [{{ when: {{ {when} }}, limit: 90/1s }}]"));
    for (faulty, sound) in [
        (when("header:X-Plan: pro"), when("header:x-api-key: pro")),
        (when("query:plan: pro"), when("method: POST")),
        (
            when("header:x-plan: { present: true }"),
            when("header:x-session-token: { present: true }"),
        ),
        (
            when("header:x-plan: { regex: 'pro.*' }"),
            when("header:x-plan: { regex: 'pro-[0-9a-f]{32}' }"),
        ),
        (when("header:x-plan: pro, path_prefix: /a"), when("header:x-plan: 7c9e6679-7425-40de")),
        (when("header:x-plan: pro, query:a: b"), when("header:x-plan: pro, client_ip: 10.0.0.1")),
        (
            rule("except: { header: { x-internal: '1' } }"),
            rule("except: { header: { x-secret: '1' } }"),
        ),
        (
            rule("except: { method: GET, header: { x-internal: { present: true } } }"),
            rule("except: { method: GET, client_ip: 10.0.0.1 }"),
        ),
    ] {
        check(Lint::ClientChosenOverride, &faulty, &sound);
    }
    let faulty = when("header:x-plan: pro");
    let by_field = faulty.replace("key: client_ip", "key: [client_ip, header:x-plan]");
    assert_eq!(found(&plan(&by_field)), ["client-chosen-key 8"], "the field is in the key");
    for sound in [
        rule("overrides: [{ when: { header:x-plan: trial }, limit: 5/1s }]"),
        faulty.replace("key: client_ip", "key: client_ip, dry_run: true"),
        format!("trusted_proxies: [10.0.0.1]\n{faulty}"),
        faulty.replace("8080 }", "8080, proxy_protocol: true, trusted_proxies: [10.0.0.1] }"),
        format!("{faulty}    access: {{ allow: [10.0.0.0/8] }}\n"),
    ] {
        assert_eq!(found(&plan(&sound)), Vec::<String>::new(), "{sound}");
    }
}

#[test]
fn routes_that_a_host_bypasses() {
    const RULES: &str = "flow: [{ name: strict, limit: 5/1s }]";
    let text = |login: &str, shop: &str| {
        format!(
            "{FRAME}routes:\n  - name: login\n    match: {{ path: /login }}\n    upstream: app\n    {login}\n  \
             - name: shop\n    match: {{ host: shop.example.com }}\n    upstream: app\n    {shop}\n"
        )
    };
    let plain = "timeout: 5s";
    let sound = text(RULES, RULES);
    check(Lint::BypassedRoute, &text(RULES, plain), &sound);
    let allowed = "access: { allow: [10.0.0.0/8] }";
    check(Lint::BypassedRoute, &text(allowed, plain), &text(plain, plain));
    let prefix = text(RULES, plain).replace("path: /login", "path_prefix: /login, method: POST");
    check(Lint::BypassedRoute, &prefix, &text(RULES, allowed));
    let both = |text: &str| text.replace("match: { ", "match: { listener: web, ");
    check(Lint::BypassedRoute, &both(&text(RULES, plain)), &both(&sound));
    let faulty = text(RULES, plain);
    let second =
        "  - { name: b, match: { host: shop.example.com, path: /login }, upstream: app }\n";
    let two = faulty.replace("listeners: [", "listeners: [{ name: tls, listen: 8443 }, ");
    let other =
        faulty.replace("upstreams: [", "upstreams: [{ name: b, servers: [{ url: http://a }] }, ");
    let list = faulty.replace("path: /login", "path: [/login, /signup]");
    check(Lint::BypassedRoute, &format!("{list}{second}"), &sound);
    for sound in [
        format!("{faulty}{second}"),
        format!("{faulty}{}", second.replace("upstream: app", "respond: 403")),
        format!("{list}{}", second.replace("path: /login", "path_prefix: [/login, /signup]")),
        two.replace("com }", "com, listener: web }"),
        text(RULES, "rewrite: { add_prefix: /shop }"),
        text("flow: [{ name: strict, limit: 5/1s, dry_run: true }]", plain),
        faulty.replace("path: /login", "path_prefix: /"),
        faulty.replace("path: /login", "path: /login, host: a.example.com"),
        faulty.replace("com }", "com, path: /a }"),
        faulty.replace("com }", "com, method: GET }"),
        other.replacen("upstream: app", "upstream: b", 1),
        two.replace("com }", "com, listener: web }")
            .replace("path: /login", "path: /login, listener: tls"),
    ] {
        assert_eq!(found(&plan(&sound)), Vec::<String>::new(), "{sound}");
    }
}

#[test]
fn stores_on_other_machines() {
    let text = |url: &str| {
        format!("store: {{ redis: {url} }}\n") + &rules(&["name: a, limit: 9/1s, scope: cluster"])
    };
    check(Lint::StoreWithoutTls, &text("redis://10.0.1.9"), &text("rediss://10.0.1.9"));
    for sound in ["redis://localhost", "redis://127.0.0.1:6380", "'redis://[::1]'"] {
        assert_eq!(found(&plan(&text(sound))), Vec::<String>::new(), "{sound}");
    }
    let with_password = plan(&text("redis://me:hidden@store.internal"));
    let shown = with_password.warnings.to_string();
    assert!(shown.contains("password") && !shown.contains("hidden"), "{shown}");
}

#[test]
fn a_format_of_a_log_that_nothing_writes() {
    let text = |log: &str| {
        format!("{log}access_log_format: combined\n") + &rules(&["name: a, limit: 9/1s"])
    };
    check(Lint::KeyWithoutEffect, &text(""), &text("access_log: stdout\n"));
    check(Lint::KeyWithoutEffect, &text("access_log: off\n"), &text("access_log: a.log\n"));
}

#[test]
fn admin_tokens_in_cleartext() {
    let text = |admin: &str| format!("admin: {{ {admin} }}\n") + &rules(&["name: a, limit: 9/1s"]);
    let token = "token: 0123456789abcdef-secret";
    let on = |address: &str| text(&format!("listen: '{address}:9901', {token}"));
    check(Lint::AdminWithoutTls, &on("10.0.0.1"), &on("127.0.0.1"));
    for remote in ["", "0.0.0.0", "[::]", "203.0.113.5"] {
        let remarks = plan(&on(remote)).warnings.to_string();
        assert!(remarks.contains("[admin-without-tls]"), "{remote}: {remarks}");
        assert!(!remarks.contains("secret"), "{remarks}");
    }
    for sound in [on("[::1]"), text(token)] {
        assert_eq!(found(&plan(&sound)), Vec::<String>::new(), "{sound}");
    }
}

#[test]
fn files_without_their_mark() {
    let text = rules(&["name: a, limit: 9/1s"]);
    let shown = |text: &str| plan(text).remarks_at(Instant::EPOCH).to_string();
    assert!(
        shown(&text).starts_with("note[missing-end]: the file does not end"),
        "{}",
        shown(&text)
    );
    assert_eq!(shown(&format!("{text}end: true\n")), "");
    for silent in [
        format!("# flowgate: allow(missing-end)\n{text}"),
        format!("{text}# flowgate: allow(missing-end)"),
    ] {
        assert_eq!(shown(&silent), "", "{silent}");
    }
}

#[test]
fn a_name_that_no_check_has_is_a_warning() {
    let text = format!(
        "# flowgate: allow(unused-upstraem, missing-end)\n{}",
        rules(&["name: a, limit: 9/1s"])
    );
    let shown = plan(&text).remarks_at(Instant::EPOCH).to_string();
    let expected = "\
warning[unknown-check]: there is no check `unused-upstraem`
 --> gateway.yaml:1:19
  |
1 | # flowgate: allow(unused-upstraem, missing-end)
  |                   ^^^^^^^^^^^^^^^
  |
  = help: did you mean `unused-upstream`?";
    assert_eq!(shown, expected);
    let far = text.replace("unused-upstraem", "frobnicate");
    let shown = plan(&far).remarks_at(Instant::EPOCH).to_string();
    assert!(shown.contains("docs/checks.md lists them"), "{shown}");
}

#[test]
fn several_comments_and_several_names_silence_the_next_line() {
    let line = "      - { name: b, limit: 9/1s, burst: 9, cost: { POST: 10 } }\n";
    let odd = |comments: &str| {
        with_rules(&format!(
            "      - {{ name: a, limit: 5/1s, cost: {{ POST: 4 }} }}\n{comments}{line}"
        ))
    };
    assert_eq!(found(&plan(&odd(""))), ["cost-above-limit 9"]);
    for comments in [
        "      # flowgate: allow(never-rejects, cost-above-limit)\n",
        "# flowgate: allow(never-rejects)\n# Why, at length.\n\t# flowgate:allow( cost-above-limit )\n",
    ] {
        let comments = comments.replace('\t', "  ");
        assert_eq!(found(&plan(&odd(&comments))), Vec::<String>::new(), "{comments}");
    }
    // A blank line between the two ends it, as does any other line.
    assert_eq!(
        found(&plan(&odd("# flowgate: allow(cost-above-limit)\n\n"))),
        ["cost-above-limit 11"]
    );
}

#[test]
fn a_text_is_no_comment() {
    let body = |body: &str| {
        format!(
            "{FRAME}routes:\n  - name: r\n    match: {{ path: / }}\n    respond: {{ status: 200 }}\n\
             \x20   reject:\n      body: {body}\n    retry: {{}}\n"
        )
    };
    // The upstream is unused, and `retry` does nothing without one.
    let sound = ["unused-upstream 2", "key-without-effect 9"];
    for (text, expected) in [
        ("x # flowgate: allow(none)", &["unknown-check 8"][..]),
        ("'x # flowgate: allow(none)'", &[]),
        ("\"# flowgate: allow(key-without-effect)\"", &[]),
        ("|\n        # flowgate: allow(key-without-effect)", &[]),
        ("|\n        # flowgate: allow(none)\n        more", &[]),
    ] {
        let found = found(&plan(&body(text)));
        let others: Vec<_> = found.iter().filter(|found| found.starts_with("unknown")).collect();
        assert_eq!(others, expected, "{text}");
        let kept = found.iter().filter(|found| found.starts_with("key-without-effect")).count();
        assert_eq!(kept, 1, "{text}: {found:?}");
    }
    assert_eq!(found(&plan(&body("x"))), sound);
}

#[test]
fn the_page_lists_every_check() {
    let page = include_str!("../../../docs/checks.md");
    for lint in Lint::ALL {
        assert_eq!(page.matches(&format!("| `{lint}` | ")).count(), 1, "{lint} in docs/checks.md");
    }
    let rows = page.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, Lint::ALL.len());
}

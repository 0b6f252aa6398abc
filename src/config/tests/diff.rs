//! What `flowgate diff` reports about two files.

use super::{FRAME, plan};
use crate::config::{ChangeKind, diff};

fn routes(rules: &str) -> String {
    format!(
        "{FRAME}routes:\n  - {{ name: a, match: {{ path: /a }}, upstream: app, flow: [{rules}] }}\n\
         \x20 - {{ name: b, match: {{ path: /b }}, upstream: app }}\n"
    )
}

#[test]
fn each_rule_is_kept_converted_reset_added_or_removed() {
    let old = routes(
        "{ name: same, limit: 1/1s }, { name: numbers, limit: 10/1s }, { name: key, limit: 1/1s }, \
         { name: gone, concurrency: 5 }",
    );
    let new = routes(
        "{ name: same, limit: 1/1s }, { name: numbers, limit: 20/1s }, \
         { name: key, limit: 1/1s, key: client_ip }, { name: new, concurrency: 5 }",
    );
    let difference = diff(&plan(&old), &plan(&new));
    assert_eq!(
        [ChangeKind::Edited, ChangeKind::Kept],
        [0, 1].map(|at| difference.routes[at].change)
    );
    let rules = difference.routes[0].rules.iter();
    let changes: Vec<_> = rules.map(|rule| (rule.name.as_str(), rule.change)).collect();
    let expected = [
        ("same", "kept"),
        ("numbers", "converted"),
        ("key", "reset"),
        ("new", "added"),
        ("gone", "removed"),
    ];
    assert_eq!(changes, expected);
    let said = difference.to_string();
    for line in [
        "route a  edited (numbers 10/1s → 20/1s, key key none → client_ip/64, +rule new 5, -rule gone)",
        "  numbers  converted\n    from token_bucket 10/1s",
        "  key  reset",
        "warning: counting starts from zero",
        "routes +0 ~1 -0; rules kept 1, converted 1, reset 1, added 1, removed 1",
    ] {
        assert!(said.contains(line), "no {line:?} in:\n{said}");
    }
    assert!(!said.contains("route b"), "{said}");
    let json = serde_json::to_value(&difference).unwrap();
    assert_eq!(json["routes"][0]["rules"][1]["change"], "converted");
    assert_eq!(json["routes"][0]["rules"][1]["warning"], serde_json::Value::Null);
    let warning = json["routes"][0]["rules"][2]["warning"].as_str();
    assert!(warning.is_some_and(|text| said.contains(text)), "{json}");
    assert_eq!(json["routes"][1]["change"], "kept");
}

#[test]
fn what_differs_of_a_kept_rule_is_listed_beside_its_promise() {
    let pairs = [
        ("", "cost: { GET: 2 }", "", "; cost: GET 2, else 1"),
        ("cost: 3", "cost: 2", "; cost: else 3", "; cost: else 2"),
        (
            "except: { method: OPTIONS, client_ip: 10.0.0.0/8 }",
            "except: { path_prefix: [/a, /b], header: { x-a: b } }",
            "; exempt: client_ip=10.0.0.0/8 or method=OPTIONS",
            "; exempt: path_prefix=/a|/b or header:x-a=b",
        ),
        (
            "key: client_ip, max_keys: 100",
            "key: client_ip, max_keys: 200",
            "; for each client_ip (IPv6: /64): at most 100 keys",
            "; for each client_ip (IPv6: /64): at most 200 keys",
        ),
        (
            "key: 'header:x-a'",
            "key: 'header:x-a', on_missing_key: skip",
            " in all",
            "; without a key: not counted",
        ),
        (
            "key: 'header:x-a'",
            "key: 'header:x-a', on_duplicate_key: last",
            " in all",
            "; of several values: the last",
        ),
        ("", "dry_run: true", "", "; dry run: counts, rejects nothing"),
    ];
    for (before, after, from, to) in pairs {
        let [old, new] = [before, after].map(|words| {
            let comma = if words.is_empty() { "" } else { ", " };
            plan(&routes(&format!("{{ name: it, limit: 10/1s, burst: 4{comma}{words} }}")))
        });
        let difference = diff(&old, &new);
        let rule = &difference.routes[0].rules[0];
        assert!(["kept", "converted"].contains(&rule.change), "{difference}");
        let promise = "token_bucket 10/1s, burst 4: at most 4 at once, 14 in any 1s";
        for (said, words) in [(&rule.before, from), (&rule.after, to)] {
            let said = said.as_ref().unwrap();
            assert!(said.starts_with(promise) && said.contains(words), "{said}");
        }
        let said = difference.to_string();
        let lines = format!(
            "\n    from {}\n    to   {}\n",
            rule.before.as_ref().unwrap(),
            rule.after.as_ref().unwrap()
        );
        assert!(said.contains(&lines), "{said}");
    }
}

#[test]
fn an_edit_of_shared_pacing_resets_the_pacing_alone() {
    let old = routes("").replacen(
        "upstream: app",
        "upstream: app, breaker: { errors: 5 }, \
         pacing: { rate: 10/1s, scope: cluster, on_store_error: allow }",
        1,
    );
    let old = format!("store: {{ redis: redis://127.0.0.1 }}\n{old}");
    let difference = diff(&plan(&old), &plan(&old.replace("rate: 10/1s", "rate: 11/1s")));
    let rules = &difference.routes[0].rules;
    let changes: Vec<_> = rules.iter().map(|rule| (&*rule.name, rule.change)).collect();
    assert_eq!(changes, [("breaker", "kept"), ("pacing", "reset")]);
}

#[test]
fn listeners_upstreams_and_settings_are_listed() {
    let old = routes("");
    let new = old.replacen("127.0.0.1:8080", "127.0.0.1:8081", 1).replacen(
        "upstreams:",
        "workers: 7\ndrain_timeout: 3s\nstore: { redis: redis://127.0.0.1 }\nupstreams:",
        1,
    ) + "  - { name: c, match: { path: /c }, upstream: app }\n";
    let new = new.replacen("  - { name: b, match: { path: /b }, upstream: app }\n", "", 1);
    let difference = diff(&plan(&old), &plan(&new));
    let said = difference.to_string();
    for line in [
        "route c  added",
        "route b  removed",
        "listener web  edited (listen 127.0.0.1:8080 → 127.0.0.1:8081)\n",
        " → 7, drain_timeout 30s → 3s\n",
        "in force at the next start: store, workers\n",
        "routes +1 ~0 -1",
    ] {
        assert!(said.contains(line), "no {line:?} in:\n{said}");
    }
    assert!(!difference.is_empty());
    let same = diff(&plan(&old), &plan(&old));
    assert!(same.is_empty() && same.to_string().starts_with("nothing differs\n"), "{same}");
}

/// What is written, what replaces it, and the words that name the edit.
const EDITS: [(&str, &str, &str); 45] = [
    ("first_byte: 5s", "first_byte: 4s", "timeouts.first_byte 5s → 4s"),
    ("idle: 6s", "idle: 4s", "timeouts.idle 6s → 4s"),
    ("event_stream: 7s", "event_stream: 4s", "timeouts.event_stream 7s → 4s"),
    ("tunnel: 8s", "tunnel: 4s", "timeouts.tunnel 8s → 4s"),
    ("request: 9s", "request: 4s", "timeouts.request 9s → 4s"),
    ("request: 9s", "request: off", "timeouts.request 9s → off"),
    ("body_limit: 1MiB", "body_limit: 2MiB", "body_limit 1.0 MiB → 2.0 MiB"),
    ("min_body_rate: 1KiB/s", "min_body_rate: off", "min_body_rate 1.0 KiB/s → off"),
    ("[websocket]", "[other]", "upgrades [websocket] → [other]"),
    ("relaxed_path: false", "relaxed_path: true", "relaxed_path false → true"),
    ("request_trailers: false", "request_trailers: true", "request_trailers false → true"),
    ("remove: [x-a]", "remove: [x-c]", "request_headers"),
    ("x-b: c", "x-b: d", "response_headers"),
    ("body: slow", "body: fast", "reject"),
    ("body: gone", "body: away", "errors"),
    ("strip_prefix: /s", "strip_prefix: /t", "rewrite"),
    ("upstream: up", "upstream: app", "upstream up → app"),
    (
        "redirect: https",
        "redirect: /y",
        "answer redirect 308 https://{host}{path} → redirect 302 /y",
    ),
    ("redirect: https", "upstream: app", "answer redirect 308 https://{host}{path} → app"),
    ("body: fine", "body: good", "respond"),
    ("{ path: /a }", "{ path: /b }", "match /a → /b"),
    ("rate: 10/1s", "rate: 11/1s", "pacing 10/1s → 11/1s"),
    ("max_wait: 1s, max_queue", "max_wait: 2s, max_queue", "pacing max_wait 1s → 2s"),
    ("scope: cluster, on_store_error: allow", "scope: process", "pacing scope cluster → process"),
    ("error: allow", "error: deny", "pacing on_store_error allow → deny"),
    ("errors: 5", "errors: 6", "breaker"),
    ("limit: 10/1s, burst", "limit: 11/1s, burst", "it 10/1s → 11/1s"),
    ("burst: 4", "burst: 5", "it burst 4 → burst 5"),
    ("header:x-k", "header:x-l", "it key header:x-k → header:x-l"),
    ("max_keys: 100", "max_keys: 200", "it max_keys 100 → 200"),
    ("on_missing_key: reject", "on_missing_key: skip", "it on_missing_key"),
    ("on_duplicate_key: reject", "on_duplicate_key: first", "it on_duplicate_key"),
    ("cost: 2", "cost: 3", "it cost"),
    ("method: PUT", "method: POST", "it except"),
    ("dry_run: false", "dry_run: true", "it dry_run false → true"),
    ("scope: cluster, on_store_error: local", "scope: process", "it scope cluster → process"),
    ("error: local", "error: allow", "it on_store_error local → allow"),
    ("equals: gold", "equals: silver", "lent priority"),
    ("sync_interval: 1s", "sync_interval: 2s", "synced sync_interval 1s → 2s"),
    ("limit: 20/1s", "limit: 21/1s", "chosen when header:x-o=a 20/1s → 21/1s"),
    ("peek_body: 1KiB", "peek_body: 2KiB", "limits.peek_body 1.0 KiB → 2.0 KiB"),
    ("upload_buffers: 1MiB", "upload_buffers: 2MiB", "limits.upload_buffers 1.0 MiB → 2.0 MiB"),
    ("body: 1MiB }\n", "body: 2MiB }\n", "limits.body 1.0 MiB → 2.0 MiB"),
    ("header_read: 5s", "header_read: 6s", "timeouts.header_read 5s → 6s"),
    ("redis://127", "redis://128", "store"),
];

#[test]
fn an_edit_of_any_key_is_named() {
    let route = "timeouts: { first_byte: 5s, idle: 6s, event_stream: 7s, tunnel: 8s, request: 9s }, \
                 body_limit: 1MiB, min_body_rate: 1KiB/s, upgrades: [websocket], relaxed_path: false, \
                 request_trailers: false, rewrite: { strip_prefix: /s }, request_headers: { remove: [x-a] }, \
                 response_headers: { set: { x-b: c } }, reject: { body: slow }, errors: [{ body: gone }], \
                 pacing: { rate: 10/1s, max_wait: 1s, max_queue: 5, scope: cluster, on_store_error: allow }, \
                 breaker: { errors: 5 }, ";
    let rule = "limit: 10/1s, burst: 4, key: 'header:x-k', max_keys: 100, on_missing_key: reject, \
                on_duplicate_key: reject, cost: 2, except: { method: PUT }, dry_run: false, \
                scope: cluster, on_store_error: local";
    let lent = "algorithm: fixed_window, limit: 7/1m, \
                priority: { header: x-plan, equals: gold, max_wait: 1s }";
    let chosen = "limit: 7/1m, key: 'header:x-o', \
                  overrides: [{ when: { 'header:x-o': a }, limit: 20/1s }]";
    let synced = "algorithm: fixed_window, limit: 7/1m, scope: cluster, sync_interval: 1s";
    let app = "name: app, servers: [{ url: http://127.0.0.1:9000 }]";
    let frame = FRAME.replace(app, &format!("{app} }}, {{ {}", app.replace("app", "up")));
    let old = format!(
        "store: {{ redis: redis://127.0.0.1 }}\nlimits: {{ peek_body: 1KiB, upload_buffers: 1MiB, body: 1MiB }}\n\
         timeouts: {{ header_read: 5s }}\n{frame}routes:\n  - {{ {route}name: a, \
         match: {{ path: /a }}, upstream: app, flow: [{{ name: it, {rule} }}, {{ name: synced, {synced} }}] }}\n\
         \x20 - {{ name: c, match: {{ path: /c }}, body_limit: 1KiB, redirect: https }}\n\
         \x20 - {{ name: d, match: {{ path: /d }}, body_limit: 1KiB, respond: {{ body: fine }} }}\n\
         \x20 - {{ name: b, match: {{ path: /b }}, body_limit: 1KiB, upstream: up, \
         flow: [{{ name: lent, {lent} }}, {{ name: chosen, {chosen} }}] }}\n"
    );
    let mut wrong = Vec::new();
    for (from, to, named) in EDITS {
        assert_eq!(old.matches(from).count(), 1, "{from}");
        let difference = diff(&plan(&old), &plan(&old.replace(from, to)));
        let differs = difference.routes.iter().flat_map(|route| &route.differs);
        let words: Vec<_> = differs.chain(&difference.settings).cloned().collect();
        if words != [named] || !difference.to_string().contains(named) {
            wrong.push((named, words));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn an_edit_of_any_key_of_an_upstream_is_named() {
    let old = "listeners: [{ name: web, listen: 127.0.0.1:8080 }]\n\
        upstreams: [{ name: app, servers: [{ url: 'http://a:1', weight: 2 }, { url: 'http://b:1' }], balance: random, connect_timeout: 1s, \
        idle_timeout: 2s, max_idle: 5, limits: { header_bytes: 16KiB, headers: 50 }, health: { path: /h }, \
        ejection: { failures: 3 }, slow_start: 3s, resolve: 5s }]\n\
        routes: [{ name: a, match: { path: /a }, upstream: app }]\n";
    let edits = [
        ("weight: 2", "weight: 3", "weight of a:1 2 → 3"),
        (
            "{ url: 'http://b:1' }",
            "{ url: 'http://b:1', backup: true }",
            "backup of b:1 false → true",
        ),
        ("balance: random", "balance: round_robin", "balance random → round_robin"),
        ("connect_timeout: 1s", "connect_timeout: 4s", "connect_timeout 1s → 4s"),
        ("idle_timeout: 2s", "idle_timeout: 4s", "idle_timeout 2s → 4s"),
        ("max_idle: 5", "max_idle: 6", "max_idle 5 → 6"),
        ("bytes: 16KiB", "bytes: 32KiB", "limits.header_bytes 16.0 KiB → 32.0 KiB"),
        ("headers: 50", "headers: 60", "limits.headers 50 → 60"),
        ("path: /h", "path: /h, interval: 1s", "health"),
        ("failures: 3", "failures: 4", "ejection"),
        ("slow_start: 3s", "slow_start: 4s", "slow_start 3s → 4s"),
        ("resolve: 5s", "resolve: ttl", "resolve 5s → ttl"),
        ("resolve: 5s", "resolve: 0", "resolve 5s → 0s"),
    ];
    for (from, to, named) in edits {
        assert_eq!(old.matches(from).count(), 1, "{from}");
        let said = diff(&plan(old), &plan(&old.replace(from, to))).to_string();
        assert!(said.contains(&format!("upstream app  edited ({named})")), "{named}:\n{said}");
    }
}

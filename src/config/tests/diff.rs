//! What `flowgate diff` tells of two files.

use super::{FRAME, plan};
use crate::config::{Fate, diff};

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
    assert_eq!([Fate::Edited, Fate::Kept], [0, 1].map(|at| difference.routes[at].change));
    let rules = difference.routes[0].rules.iter();
    let told: Vec<_> = rules.map(|rule| (rule.name.as_str(), rule.change)).collect();
    let expected = [
        ("same", "kept"),
        ("numbers", "converted"),
        ("key", "reset"),
        ("new", "added"),
        ("gone", "removed"),
    ];
    assert_eq!(told, expected);
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
fn what_differs_of_a_kept_rule_is_told_beside_its_promise() {
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
            "; for each client_ip/64: at most 100 keys",
            "; for each client_ip/64: at most 200 keys",
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
fn listeners_upstreams_and_settings_are_told() {
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

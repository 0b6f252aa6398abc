//! Rules that reject a client for a while.

use super::{messages, plan, with_rules};
use std::time::Duration;

fn with_rule(rule: &str) -> String {
    with_rules(&format!("      - {{ name: a, {rule} }}\n"))
}

#[test]
fn a_rule_and_its_overrides_ban() {
    let text = with_rule(
        "limit: 9/1m, reject_for: 10m, overrides: [{ when: { method: PUT }, limit: 3/1m }]",
    );
    let plan = plan(&text);
    let found: Vec<_> = plan.routes[0].flow.flow.iter().map(|rule| rule.reject_for).collect();
    assert_eq!(found, [Some(Duration::from_mins(10)); 2]);
}

#[test]
fn what_cannot_ban_is_an_error() {
    for (rule, message) in [
        (
            "concurrency: 9, reject_for: 10m",
            "`reject_for` beside `concurrency` | remove it: whether a request finds a place depends on others",
        ),
        (
            "limit: 9/1s, algorithm: pacing, reject_for: 10m",
            "`reject_for` beside `algorithm: pacing` | remove it, or write another rule without pacing",
        ),
    ] {
        messages(&with_rule(rule), &[message]);
    }
    let shared = with_rule("limit: 9/1s, scope: cluster, reject_for: 10m");
    messages(
        &format!("{shared}store: {{ redis: redis://127.0.0.1:6379 }}\n"),
        &["`reject_for` beside `scope: cluster` | remove one: each gateway bans by itself"],
    );
}

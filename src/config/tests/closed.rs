//! Rules with a limit of 0.

use super::*;
use crate::flow::Algorithm;

fn text(rules: &str) -> String {
    format!(
        "{FRAME}routes:\n  - {{ name: r, match: {{ path_prefix: / }}, upstream: app, flow: [{rules}] }}\n"
    )
}

#[test]
fn a_limit_of_0_closes_a_rule_or_an_override_whatever_else_it_says() {
    for (rule, closed) in [
        ("limit: 0", vec![true]),
        ("limit: 0, burst: 20, cost: 9, key: client_ip", vec![true]),
        ("limit: 0, algorithm: fixed_window, tz: Europe/Berlin", vec![true]),
        ("limit: 0, algorithm: sliding_window, buckets: 3", vec![true]),
        (
            "limit: 0, overrides: [{ when: { header:x-plan: gold }, limit: 9/1m, burst: 3 }]",
            vec![false, true],
        ),
        (
            "limit: 9/1m, overrides: [{ when: { header:x-plan: none }, limit: 0 }]",
            vec![true, false],
        ),
    ] {
        let plan = plan(&text(&format!("{{ name: a, {rule} }}")));
        let flow = &plan.routes[0].flow.flow;
        let found: Vec<_> = flow.iter().map(|rule| rule.algorithm == Algorithm::Closed).collect();
        assert_eq!(found, closed, "{rule}");
    }
}

#[test]
fn a_closed_rule_asks_no_store() {
    let rules = "{ name: a, limit: 0, scope: cluster, sync_interval: 1s }";
    let plan = plan(&format!("{}store: {{ redis: redis://127.0.0.1:6379 }}\n", text(rules)));
    let rule = &plan.routes[0].rules[0];
    assert_eq!((rule.shared, rule.sync_interval), (None, None));
}

#[test]
fn plans_need_a_limit_above_0() {
    let rules = "{ name: a, limit: 0, plans: { by: header:x-plan, limits: { gold: 9/1m } } }";
    messages(
        &text(rules),
        &[
            "`plans` in a rule with `limit: 0` | write the limit of clients without a plan, at least 1, or the plans as `overrides`",
        ],
    );
}

//! Costs that are settled after the response: how they are written, and the rules that cannot have
//! them.

use super::{messages, plan, with_rules};
use crate::config::{ResponseEnd, Settle};

fn with_rule(rule: &str) -> String {
    with_rules(&format!("      - {{ name: a, {rule} }}\n"))
}

/// Returns how the first rule settles, with its reserve.
fn settled(cost: &str) -> (Settle, u64) {
    let plan = plan(&with_rule(&format!("limit: 100/1m, cost: {cost}")));
    let cost = plan.routes[0].rules[0].options.cost.clone();
    (Settle::clone(cost.settle.as_ref().expect("it is settled")), cost.default)
}

#[test]
fn a_reserve_is_one_unless_the_file_has_another() {
    let (settle, reserve) = settled("{ settle: { status: { 401: 5, '500-599': 2, default: 0 } } }");
    assert_eq!(reserve, 1);
    let cost = |status| settle.cost(ResponseEnd { status: Some(status), is_failure: false });
    assert_eq!([401, 503, 200].map(cost), [Some(5), Some(2), Some(0)]);

    let (_, reserve) = settled("{ reserve: 7, settle: { status: { default: 0 } } }");
    assert_eq!(reserve, 7);
    let (_, reserve) =
        settled("{ reserve: { default: 3, POST: 10 }, settle: { status: { default: 0 } } }");
    assert_eq!(reserve, 3);
}

#[test]
fn a_settled_cost_that_cannot_work_is_rejected() {
    const STATUS: &str = "settle: { status: { 401: 1, default: 0 } }";
    for (rule, message) in [
        (
            format!("limit: 10/1s, cost: {{ reserve: 11, {STATUS} }}"),
            "nothing can ever pass: a request costs 11 of limit 10 | write a cost of at most 10, or a larger limit",
        ),
        (
            format!("limit: 10/1s, burst: 3, cost: {{ reserve: 4, {STATUS} }}"),
            "nothing can ever pass: a request costs 4 of burst 3 | write a cost of at most 3, or a larger burst",
        ),
        (
            format!("limit: 10/1s, cost: {{ reserve: {{ POST: 11 }}, {STATUS} }}"),
            "no POST can ever pass: POST costs 11 of limit 10 | write a cost of at most 10, or a larger limit",
        ),
        (
            format!("limit: 10/1s, cost: {{ reserve: 0, {STATUS} }}"),
            "`reserve` cannot be 0 | write a number from 1 to 1000000000000",
        ),
        (
            format!("concurrency: 3, cost: {{ {STATUS} }}"),
            "`reserve` and `settle` in a rule with `concurrency` | write a plain cost, as in `cost: 5`: it counts requests only while they run",
        ),
        (
            format!("limit: 10/1s, algorithm: pacing, cost: {{ {STATUS} }}"),
            "`reserve` and `settle` in a rule with `algorithm: pacing` | write a plain cost, as in `cost: 5`: a start that is over cannot be moved",
        ),
        (
            format!(
                "limit: 10/1s, algorithm: fixed_window, priority: {{ header: x-a }}, cost: {{ {STATUS} }}"
            ),
            "`reserve` and `settle` in a rule with `priority` | write a plain cost, as in `cost: 5`: what a request has borrowed is not given back",
        ),
        (
            "limit: 10/1s, cost: { settle: {} }".to_owned(),
            "a settlement without a source | write what the cost is, as in `settle: { status: { 401: 1, default: 0 } }`",
        ),
        (
            "limit: 10/1s, cost: { reserve: 2 }".to_owned(),
            "a cost that is settled needs `settle` | write `settle: { status: { 401: 1, default: 0 } }`",
        ),
        (
            "limit: 10/1s, cost: { settle: { status: { 99: 1 } } }".to_owned(),
            "`99` is not a status or a range of them | write statuses from 100 to 599, as in `200` or `200-399`",
        ),
        (
            "limit: 10/1s, cost: { settle: { status: { 401: 1000000000001 } } }".to_owned(),
            "`status` cannot be 1000000000001 | write a number from 0 to 1000000000000",
        ),
    ] {
        messages(&with_rule(&rule), &[message]);
    }
}

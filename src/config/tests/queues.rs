//! Queues for free places: which rules may have one, how long requests may wait, and what an edit says.

use super::{FRAME, messages, plan, warnings};
use crate::{
    config::describe,
    flow::{Algorithm, limiter::auto_limit},
    geo::Located,
    route::{Seed, Target},
};
use std::time::Duration;

/// Returns a file with a route that has this rule, and these other keys.
fn file(rule: &str, keys: &str) -> String {
    format!(
        "{FRAME}routes:\n  - {{ name: r, match: {{ path_prefix: / }}, upstream: app{keys}, \
         flow: [{{ name: places, {rule} }}] }}\n"
    )
}

#[test]
fn a_queue_has_defaults_and_bounds() {
    let text = file("concurrency: 4, queue: {}", "");
    let rule = &plan(&text).routes[0].flow.flow[0];
    let queue = rule.queue.as_ref().expect("a queue");
    assert_eq!((queue.max_wait, queue.max), (Duration::from_millis(500), 1000));

    messages(
        &file("concurrency: 4, queue: { max: 0 }", ""),
        &["`max` cannot be 0 | write a number from 1 to 1000000"],
    );
}

#[test]
fn only_places_here_have_a_queue() {
    messages(
        &file("limit: 4/1s, queue: { max: 9 }", ""),
        &[
            "`queue` in a rule without `concurrency` | write `concurrency: 64` in place of `limit`, or \
           remove `queue`: only requests in flight have places that others wait for. `algorithm: \
           pacing` spaces requests by waiting",
        ],
    );
    let clustered = file("concurrency: 4, scope: cluster, queue: { max: 9 }", "");
    let clustered = format!("store: {{ redis: redis://127.0.0.1:6379 }}\n{clustered}");
    messages(
        &clustered,
        &[
            "`queue` beside `scope: cluster` | remove one: each gateway has places of its own, and a \
           request waits for one of those",
        ],
    );
}

#[test]
fn no_request_waits_for_longer_than_half_of_its_time() {
    let timeouts = ", timeouts: { request: 10s }";
    plan(&file("concurrency: 4, queue: { max_wait: 5s }", timeouts));
    let message = "such a wait leaves too little time for the response | write at most `max_wait: 5s`, \
                   or a longer `timeouts: { request: … }`";
    messages(&file("concurrency: 4, queue: { max_wait: 5001ms }", timeouts), &[message]);

    // The shortest timeout of the routes that share the places counts.
    let budget = "budgets: [{ name: places, concurrency: 4, queue: { max_wait: 6s } }]\n";
    let routes = "routes:\n  \
         - { name: a, match: { path: /a }, upstream: app, timeouts: { request: 20s }, flow: [{ budget: places }] }\n  \
         - { name: b, match: { path: /b }, upstream: app, timeouts: { request: 10s }, flow: [{ budget: places }] }\n  \
         - { name: c, match: { path: /c }, upstream: app, timeouts: { request: 1s } }\n";
    messages(&format!("{budget}{FRAME}{routes}"), &[message]);
}

#[test]
fn check_says_how_many_wait_and_how_long() {
    let text = describe(&plan(&file("concurrency: 4, queue: { max_wait: 2s, max: 9 }", "")));
    let line = "queue: at most 9 wait for a place, each at most 2s, first in, first out";
    assert!(text.contains(line), "{text}");
}

#[test]
fn the_order_of_a_queue_has_sharers_weights_and_classes() {
    let queue = "{ max_wait: 2s, max: 9, share_by: 'header:x-tenant', weights: { gold: 4 }, \
                 classes: { by: 'header:x-class', first_to_last: [interactive, batch], floor: 10% }, \
                 order: lifo_when_late }";
    let text = file(&format!("concurrency: 4, queue: {queue}"), "");
    let plan = plan(&text);
    let queue = plan.routes[0].flow.flow[0].queue.as_ref().expect("a queue");
    assert_eq!((queue.classes.get(), queue.floor, queue.newest_when_late), (2, 1_000, true));
    let line = "queue: at most 9 wait for a place, each at most 2s, the newest first when late; fair \
                between values of header:x-tenant (gold 4), by header:x-class interactive before batch, \
                the last at least 10 %";
    let described = describe(&plan);
    assert!(described.contains(line), "{described}");
}

#[test]
fn weights_are_by_value_and_by_plan() {
    let queue = "{ max_wait: 2s, max: 9, share_by: 'header:x-tenant', weights: { acme: 4 }, \
                 plans: { by: 'header:x-plan', weights: { gold: 3, silver: 2 } } }";
    let plan = plan(&file(&format!("concurrency: 4, queue: {queue}"), ""));
    let described = describe(&plan);
    let line = "fair between values of header:x-tenant (acme 4; by header:x-plan gold 3, silver 2)";
    assert!(described.contains(line), "{described}");

    let shares = plan.routes[0].rules[0].shares.as_ref().expect("an order");
    let weight = |tenant: &str, plan: &str| {
        let mut fields = http::HeaderMap::new();
        fields.insert("x-tenant", tenant.parse().expect("a value"));
        fields.insert("x-plan", plan.parse().expect("a value"));
        let target = Target {
            listener: None,
            host: "localhost",
            path: "/",
            query: None,
            method: &http::Method::GET,
            headers: (&fields).into(),
            certificate: None,
            identity: None,
            body: None,
            place: Located::default(),
        };
        let client = [127, 0, 0, 1].into();
        shares.of(&Seed::new([1, 2]), &target, client).weight.get()
    };
    assert_eq!([weight("one", "gold"), weight("one", "silver"), weight("one", "none")], [3, 2, 1]);
    assert_eq!(weight("acme", "silver"), 4, "the value's own weight comes first");
}

#[test]
fn an_order_that_cannot_work_is_rejected() {
    for (queue, message) in [
        (
            "{ plans: { by: 'header:x-plan', weights: { gold: 4 } } }",
            "`plans` without `share_by` | write `share_by: header:x-tenant`, whose values the weights are of",
        ),
        (
            "{ share_by: client_ip, plans: { by: 'header:x-plan', weights: {} } }",
            "`plans` without a weight | write the weight of each plan, as in `weights: { gold: 4 }`",
        ),
        (
            "{ weights: { gold: 4 } }",
            "`weights` without `share_by` | write `share_by: header:x-tenant`, whose values the weights are of",
        ),
        (
            "{ share_by: route }",
            "`route` is the same for all requests here | write what differs, as in `header:x-tenant`",
        ),
        (
            "{ share_by: client_ip, weights: { gold: 4 } }",
            "`gold` is no value of `client_ip/64` | write a value as requests have it; of a key with several \
             parts, all of them with `, ` between them",
        ),
        (
            "{ classes: { by: 'header:x-class', first_to_last: [one] } }",
            "a queue has 2 to 16 classes, and this has 1 | list their names, as in `first_to_last: \
             [interactive, batch]`",
        ),
        (
            "{ classes: { by: 'header:x-class', first_to_last: [one, one] } }",
            "the class `one` is there twice | remove one",
        ),
        ("{ order: lifo }", "`order` cannot be `lifo` | write one of `fair`, `lifo_when_late`"),
    ] {
        messages(&file(&format!("concurrency: 4, queue: {queue}"), ""), &[message]);
    }
}

#[test]
fn an_order_that_clients_choose_is_warned_of() {
    let open = file("concurrency: 4, queue: { share_by: 'header:x-tenant' }", "");
    let message = "any client chooses its turn in the queue of `places`";
    warnings(&open, &[message]);
    let class = "{ classes: { by: 'query:class', first_to_last: [a, b] } }";
    warnings(&file(&format!("concurrency: 4, queue: {class}"), ""), &[message]);
    let plan = "{ share_by: client_ip, plans: { by: 'header:x-plan', weights: { gold: 4 } } }";
    warnings(&file(&format!("concurrency: 4, queue: {plan}"), ""), &[message]);
    warnings(&file("concurrency: 4, queue: { share_by: client_ip }", ""), &[]);
    warnings(&format!("trusted_proxies: [10.0.0.0/8]\n{open}"), &[]);
}

#[test]
fn a_limit_finds_itself_within_bounds() {
    let algorithm = |rule: &str| plan(&file(rule, "")).routes[0].flow.flow[0].algorithm.clone();
    let auto = |min, max| Algorithm::AutoConcurrency(auto_limit::Config { min, max });
    assert_eq!(algorithm("concurrency: auto"), auto(1, 1000));
    assert_eq!(algorithm("concurrency: { auto: {} }"), auto(1, 1000));
    assert_eq!(algorithm("concurrency: { auto: { min: 4, max: 500 } }"), auto(4, 500));
    assert_eq!(algorithm("concurrency: { auto: { max: 9 } }, queue: {}"), auto(1, 9));
    assert_eq!(algorithm("concurrency: auto, key: route"), auto(1, 1000));

    messages(
        &file("concurrency: { auto: { min: 8, max: 4 } }", ""),
        &[
            "the lowest limit, 8, is above the highest, 4 | write a `max` of at least 8, or a lower `min`",
        ],
    );
    messages(
        &file("concurrency: { auto: { min: 2000 } }", ""),
        &[
            "the lowest limit, 2000, is above the highest, 1000 | write a `max` of at least 2000, or a \
           lower `min`",
        ],
    );
    messages(
        &file("concurrency: { auto: { max: 4 } }, cost: 5", ""),
        &["nothing can ever pass: a request costs 5 of max 4 | write a cost of at most 4, \
           or a larger max"],
    );
}

#[test]
fn one_limit_is_found_for_all_requests() {
    let cluster = file("concurrency: auto, scope: cluster", "");
    messages(
        &format!("store: {{ redis: redis://127.0.0.1:6379 }}\n{cluster}"),
        &[
            "this rule cannot be shared: its limit finds itself, by what one gateway sees | write `scope: process`: each gateway finds its \
           own limit, and those in front of one service raise and lower theirs together",
        ],
    );
    messages(
        &file("concurrency: auto, key: client_ip", ""),
        &[
            "`key` beside `concurrency: auto` | remove it: one limit is found for all requests, as the \
           service has its places for all. `queue: { share_by: header:x-tenant }` shares them fairly",
        ],
    );
    let plans = "concurrency: auto, plans: { by: header:x-plan, limits: { gold: 9 } }";
    messages(
        &file(plans, ""),
        &["`plans` beside `concurrency: auto` | remove it: one limit is found for all requests. \
           `queue: { share_by: header:x-tenant, weights: { gold: 4 } }` shares its places"],
    );
}

#[test]
fn check_says_that_a_limit_finds_itself() {
    let text = describe(&plan(&file("concurrency: { auto: { min: 4, max: 500 } }", "")));
    let promise = "concurrency auto 4 to 500: the limit finds itself, at most 500 in flight";
    assert!(text.contains(promise), "{text}");
}

//! Queues for free places: which rules may have one, how long requests may wait, and what an edit says.

use super::{FRAME, messages, plan};
use crate::config::describe;
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

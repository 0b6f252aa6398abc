//! How long a request may wait for its start.

use super::{FRAME, parsed, plan, warnings};
use crate::flow::Algorithm;
use std::time::Duration;

#[test]
fn no_wait_is_longer_than_half_of_what_the_request_may_take() {
    let route = |timeouts: &str| {
        format!(
            "{FRAME}routes:\n  - {{ name: r, match: {{ path_prefix: / }}, upstream: app, \
             pacing: {{ rate: 20/1s, max_wait: 5s }}{timeouts}, flow: [\
             {{ name: a, algorithm: pacing, limit: 20/1s, max_wait: 4s, \
             overrides: [{{ when: {{ method: PUT }}, limit: 20/1s }}] }}, \
             {{ name: b, algorithm: pacing, limit: 20/1s }}, \
             {{ name: c, algorithm: fixed_window, limit: 1/1s, \
             priority: {{ header: x, max_wait: 6s }} }}] }}\n"
        )
    };
    let waits = |text: &str| {
        let plan = plan(text);
        let route = &plan.routes[0];
        let paced = route.flow.flow.iter().filter_map(|rule| {
            let Algorithm::Pacing(pacing) = &rule.algorithm else { return None };
            Some(pacing.max_wait)
        });
        let own = route.flow.pacing.iter().map(|pacing| pacing.max_wait);
        let lent = route.rules.iter().filter_map(|rule| Some(rule.priority.as_ref()?.max_wait));
        own.chain(paced).chain(lent).map(|wait| wait.as_millis()).collect::<Vec<_>>()
    };
    assert_eq!(waits(&route("")), [5_000, 4_000, 4_000, 500, 6_000]);
    let short = route(", timeouts: { request: 200ms }");
    assert_eq!(waits(&short), [100; 5]);
    warnings(&short, &["such a wait leaves too little time for the response"; 3]);
    // At just the half, nothing is cut.
    warnings(&route(", timeouts: { request: 12s }"), &[]);
}

#[test]
fn without_a_timeout_of_the_request_a_wait_has_the_bound_of_its_own() {
    let route = |max_wait: &str, timeout: &str| {
        format!(
            "{FRAME}routes:\n  - {{ name: r, match: {{ path_prefix: / }}, upstream: app, \
             pacing: {{ rate: 20/1s, max_wait: {max_wait} }}, {timeout} }}\n"
        )
    };
    let hour = Duration::from_hours(1);
    for timeout in ["timeouts: { request: off }", "timeout: off", "timeout: 30d", "timeout: 2h"] {
        let text = route("1h", timeout);
        let waits = plan(&text).routes[0].flow.pacing.as_ref().map(|pacing| pacing.max_wait);
        assert_eq!(waits, Some(hour), "{timeout}");
        warnings(&text, &[]);
        let longer = parsed(&route("3601s", timeout)).expect_err("too long").to_string();
        assert!(longer.contains("write at most `1h`"), "{longer}");
    }
    assert_eq!(plan(&route("1h", "timeout: off")).routes[0].options.timeouts.request, None);
}

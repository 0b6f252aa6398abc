//! The quotas that a route publishes to clients.

use crate::{
    config::plan::{Limit, RulePlan},
    flow::{
        Algorithm,
        limiter::{
            fixed_window, leaky_bucket, sliding_counter, sliding_log, sliding_window, token_bucket,
            warm_up,
        },
    },
};
use http::HeaderValue;
use std::time::Duration;

/// Returns the quota that the rule `name` keeps, if it is one over time.
pub(super) fn quota(name: &str, algorithm: &Algorithm) -> Option<Limit> {
    let (rate, calendar) = match algorithm {
        Algorithm::TokenBucket(token_bucket::Config { rate, .. })
        | Algorithm::WarmUp(warm_up::Config { rate, .. })
        | Algorithm::LeakyBucket(leaky_bucket::Config { rate, .. })
        | Algorithm::SlidingLog(sliding_log::Config { rate })
        | Algorithm::SlidingWindow(sliding_window::Config { rate, .. })
        | Algorithm::SlidingCounter(sliding_counter::Config { rate }) => (rate, None),
        Algorithm::FixedWindow(fixed_window::Config { rate, align }) => (rate, align.calendar()),
        Algorithm::Concurrency(_) | Algorithm::Pacing(_) => return None,
        Algorithm::Synced(config) => return quota(name, config.whole()),
    };
    let (text, window) = calendar.map_or_else(
        || (rate.to_string(), Some(rate.window())),
        |calendar| (format!("{}/{}", rate.count(), calendar.name()), calendar.even()),
    );
    Some(Limit { text: text.into(), policy: item(name, rate.count(), window).into() })
}

/// Returns a rule's item in `RateLimit-Policy`.
///
/// Source: draft-ietf-httpapi-ratelimit-headers-10, section 3. `w` is in whole seconds; a window
/// that divides the second is published as one second's worth, any other one without `w`, as are
/// months, which differ in length.
fn item(name: &str, count: u64, window: Option<Duration>) -> String {
    const SECOND: u128 = 1_000_000_000;
    let nanos = window.map_or(0, |window| window.as_nanos());
    if nanos > 0 && nanos.is_multiple_of(SECOND) {
        format!("\"{name}\";q={count};w={}", nanos / SECOND)
    } else if nanos > 0 && SECOND.is_multiple_of(nanos) {
        format!("\"{name}\";q={};w=1", u128::from(count) * (SECOND / nanos))
    } else {
        format!("\"{name}\";q={count}")
    }
}

/// Returns the header that publishes a route's quotas, or `None` if it has none. Overrides have
/// their own, which is sent to the clients that they are for.
pub(super) fn policy(rules: &[RulePlan]) -> Option<HeaderValue> {
    let shown = rules.iter().filter(|rule| !rule.dry_run && rule.when.is_none());
    let items: Vec<_> = shown.filter_map(|rule| Some(&*rule.quota.as_ref()?.policy)).collect();
    (!items.is_empty()).then(|| HeaderValue::try_from(items.join(", ")).ok())?
}

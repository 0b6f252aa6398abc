//! The quotas that a route publishes to clients.

use crate::{
    config::plan::{Limit, RulePlan},
    flow::{
        Algorithm, Rate,
        limiter::{
            fixed_window, leaky_bucket, sliding_counter, sliding_log, sliding_window, token_bucket,
            warm_up,
        },
    },
};
use http::HeaderValue;
use std::time::Duration;

const SECOND: u128 = 1_000_000_000;

/// Returns the quota that the rule `name` keeps, if it is one over time.
pub(super) fn quota(name: &str, algorithm: &Algorithm) -> Option<Limit> {
    let (rate, most) = match algorithm {
        Algorithm::TokenBucket(token_bucket::Config { rate, burst })
        | Algorithm::WarmUp(warm_up::Config { rate, burst, .. }) => (rate, *burst),
        Algorithm::LeakyBucket(leaky_bucket::Config { rate, capacity }) => (rate, *capacity),
        Algorithm::SlidingLog(sliding_log::Config { rate })
        | Algorithm::SlidingWindow(sliding_window::Config { rate, .. })
        | Algorithm::SlidingCounter(sliding_counter::Config { rate })
        | Algorithm::FixedWindow(fixed_window::Config { rate, .. }) => (rate, rate.count()),
        Algorithm::Concurrency(_)
        | Algorithm::AutoConcurrency(_)
        | Algorithm::Pacing(_)
        | Algorithm::Closed => return None,
        Algorithm::Planned(config) => return quota(name, config.own()),
        Algorithm::Synced(config) => return quota(name, config.whole()),
    };
    let (text, seconds) = algorithm.calendar().map_or_else(
        || (rate.to_string(), Some(refill_seconds(*rate, most))),
        |calendar| (format!("{}/{}", rate.count(), calendar.name()), calendar.even().map(whole)),
    );
    let is_shown = !matches!(algorithm, Algorithm::WarmUp(_));
    let policy = is_shown.then(|| item(name, most, seconds).into());
    Some(Limit { text: text.into(), policy })
}

/// Returns a rule's item in `RateLimit-Policy`: the most that a client can have left, and the time
/// in which as much refills, in seconds. Months, which differ in length, have none.
///
/// Source: draft-ietf-httpapi-ratelimit-headers-11, section 3.
fn item(name: &str, most: u64, seconds: Option<u128>) -> String {
    match seconds {
        Some(seconds) => format!("\"{name}\";q={most};w={seconds}"),
        None => format!("\"{name}\";q={most}"),
    }
}

/// Returns how long `rate` takes for `count`, rounded up to seconds like the other fields.
fn refill_seconds(rate: Rate, count: u64) -> u128 {
    /// The largest number that the field may have.
    const MOST: u128 = 999_999_999_999_999;
    let nanos = u128::from(rate.window_nanos()) * u128::from(count);
    nanos.div_ceil(u128::from(rate.count()) * SECOND).min(MOST)
}

fn whole(window: Duration) -> u128 {
    window.as_nanos().div_ceil(SECOND)
}

/// Returns the header that publishes a route's quotas, or `None` if it has none. Overrides have
/// their own, which is sent to the clients that they are for.
pub(super) fn policy<'r>(rules: impl Iterator<Item = &'r RulePlan>) -> Option<HeaderValue> {
    let shown = rules.filter(|rule| !rule.dry_run && rule.when.is_none());
    let items: Vec<_> = shown.filter_map(|rule| rule.quota.as_ref()?.policy.as_deref()).collect();
    (!items.is_empty()).then(|| HeaderValue::try_from(items.join(", ")).ok())?
}

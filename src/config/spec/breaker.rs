//! The breaker: when it opens, and how it closes.

use super::leaf::{HOUR, Integer, MILLI, Part, Period};
use crate::config::decode::Key;
use schemars::JsonSchema;
use serde::Deserialize;

/// Counts answers: a 5xx of the upstream is a failure, and so is our own 502 or 504 in its place; a
/// 4xx is not. Needs one of `error_ratio`, `slow_ratio` and `errors`. While it is open, requests
/// get 503 with the exact `Retry-After`; then `probes` of them go through, and all must be good for
/// it to close.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "a breaker", extend("x-instead" = [["key", ANOTHER_ROUTE], ["overrides", ANOTHER_ROUTE], ["except", ANOTHER_ROUTE], ["cost", "remove it: an answer counts as one, whatever its request cost"], ["scope", "remove it: each gateway learns from the answers that it sees"]]))]
pub(in crate::config) struct BreakerSpec {
    /// Opens when more than this part of the answers in `window` are failures; 1: when all are.
    #[serde(default)]
    pub error_ratio: Key<Part>,
    /// An answer is slow if its header comes later than this after the request was sent on; a wait
    /// in pacing before that does not count.
    #[serde(default)]
    pub slow_after: Key<Period<1_000, { 24 * HOUR }>>,
    /// Opens when more than this part of the answers in `window` are slow; 1: when all are.
    #[serde(default)]
    pub slow_ratio: Key<Part>,
    /// Opens at this many failures in `window`.
    #[serde(default)]
    pub errors: Key<Integer<1, 1_000_000_000>>,
    /// The fewest answers in `window` that it opens on.
    #[serde(default)]
    #[schemars(extend("x-default" = "20; 1 with `errors` alone"))]
    pub min_requests: Key<Integer<1, 1_000_000_000>>,
    /// How long an answer counts, but for a bucket's length.
    #[serde(default)]
    #[schemars(extend("default" = "10s"))]
    pub window: Key<Period<{ 10 * MILLI }, HOUR>>,
    /// Into how many parts the window is cut; they follow the clock.
    #[serde(default)]
    #[schemars(extend("default" = 10))]
    pub buckets: Key<Integer<1, 1000>>,
    /// How long it stays open before it lets probes through.
    #[serde(default)]
    #[schemars(extend("default" = "5s"))]
    pub open_for: Key<Period<MILLI, { 24 * HOUR }>>,
    /// How many requests it lets through to find out. All good: it closes. One bad: it opens again.
    #[serde(default)]
    #[schemars(extend("default" = 3))]
    pub probes: Key<Integer<1, 1000>>,
    /// Decides and counts, and rejects nothing.
    #[serde(default)]
    #[schemars(extend("default" = false))]
    pub dry_run: Key<bool>,
}

const ANOTHER_ROUTE: &str = "write a route of its own for those requests, to the same upstream: a breaker is of all of its route's";

//! `RateLimit` and its kin: the decision record as a client reads it.
//!
//! `RateLimit` and `RateLimit-Policy` follow draft-ietf-httpapi-ratelimit-headers-10.

use super::reply::whole_seconds;
use crate::{
    config::{RateLimitHeaders, Route, RouteRule},
    flow::{Quota, Report, SlotId},
};
use bytes::{BufMut, BytesMut};
use core::fmt::Write as _;
use http::{HeaderMap, HeaderName, HeaderValue};

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const X_RULE: HeaderName = HeaderName::from_static("x-flowgate-rule");
const X_REASON: HeaderName = HeaderName::from_static("x-flowgate-reason");

/// The name that a route's pacing goes by where a rule's name stands.
const PACING: &str = "pacing";

/// Returns the name of the rule behind `slot`.
pub(super) fn rule_name(route: &Route, slot: SlotId) -> &str {
    route.rules.iter().find(|rule| rule.slot == slot).map_or(PACING, |rule| &rule.name)
}

/// Tells the client how much of which quota is left.
pub(super) fn describe(
    headers: &mut HeaderMap,
    route: &Route,
    report: &Report,
    words: RateLimitHeaders,
) {
    let legacy = match words {
        RateLimitHeaders::Off => return,
        RateLimitHeaders::Draft => false,
        RateLimitHeaders::Legacy => true,
    };
    let Some(policy) = &route.policy else { return };
    let mut value = BytesMut::with_capacity(96);
    let mut tightest: Option<&Quota> = None;
    for quota in &report.quotas {
        let Some(rule) = shown(route, quota) else { continue };
        if !value.is_empty() {
            value.put_slice(b", ");
        }
        let (left, reset) = (quota.remaining(), whole_seconds(quota.reset));
        // Writing to memory does not fail.
        let _ = write!(value, "\"{}\";r={left};t={reset}", rule.name);
        if tightest.is_none_or(|so_far| left < so_far.remaining()) {
            tightest = Some(quota);
        }
    }
    let Some(tightest) = tightest else { return };
    if let Ok(value) = HeaderValue::from_maybe_shared(value.freeze()) {
        headers.insert(RATELIMIT, value);
    }
    headers.insert(RATELIMIT_POLICY, policy.clone());
    if legacy {
        headers.insert(X_LIMIT, HeaderValue::from(tightest.limit));
        headers.insert(X_REMAINING, HeaderValue::from(tightest.remaining()));
        headers.insert(X_RESET, HeaderValue::from(whole_seconds(tightest.reset)));
    }
}

/// Names the rule that decided, for whoever asked to be told.
pub(super) fn explain(headers: &mut HeaderMap, rule: &str, reason: &'static str) {
    if let Ok(rule) = HeaderValue::from_str(rule) {
        headers.insert(X_RULE, rule);
    }
    headers.insert(X_REASON, HeaderValue::from_static(reason));
}

/// The rule of `quota`, if clients are told of it: it has a quota over time, and
/// it is in force.
fn shown<'a>(route: &'a Route, quota: &Quota) -> Option<&'a RouteRule> {
    let rule = route.rules.iter().find(|rule| rule.slot == quota.slot)?;
    (rule.quota.is_some() && !rule.dry_run).then_some(rule)
}

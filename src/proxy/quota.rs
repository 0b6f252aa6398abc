//! `RateLimit` and its kin: the decision record as a client reads it.
//!
//! `RateLimit` and `RateLimit-Policy` follow draft-ietf-httpapi-ratelimit-headers-10.

use super::reply::whole_seconds;
use crate::{
    config::{RateLimitHeaders, Route, RouteRule},
    flow::{Quota, Report, SlotId},
};
use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

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

/// What a client is told of its quotas, made when its request is decided.
#[derive(Debug)]
pub(super) struct Told {
    ratelimit: HeaderValue,
    /// Limit, what is left, seconds to the reset: of the tightest quota, for clients
    /// that know the older fields only.
    legacy: Option<[u64; 3]>,
}

impl Told {
    /// `None` if the route has no quota to tell of, or `words` says so.
    pub(super) fn of(route: &Route, report: &Report, words: RateLimitHeaders) -> Option<Self> {
        if route.policy.is_none() || words == RateLimitHeaders::Off {
            return None;
        }
        let mut value = SmallVec::<[u8; 256]>::new();
        let mut tightest: Option<&Quota> = None;
        for quota in &report.quotas {
            let Some(rule) = shown(route, quota) else { continue };
            if !value.is_empty() {
                value.extend_from_slice(b", ");
            }
            value.push(b'"');
            value.extend_from_slice(rule.name.as_bytes());
            value.extend_from_slice(b"\";r=");
            put_number(&mut value, quota.remaining());
            value.extend_from_slice(b";t=");
            put_number(&mut value, whole_seconds(quota.reset));
            if tightest.is_none_or(|so_far| quota.remaining() < so_far.remaining()) {
                tightest = Some(quota);
            }
        }
        let tightest = tightest?;
        let legacy = (words == RateLimitHeaders::Legacy)
            .then(|| [tightest.limit, tightest.remaining(), whole_seconds(tightest.reset)]);
        Some(Self { ratelimit: HeaderValue::from_bytes(&value).ok()?, legacy })
    }

    /// Writes the fields.
    pub(super) fn write(self, headers: &mut HeaderMap, route: &Route) {
        headers.insert(RATELIMIT, self.ratelimit);
        if let Some(policy) = &route.policy {
            headers.insert(RATELIMIT_POLICY, policy.clone());
        }
        for (name, number) in
            [X_LIMIT, X_REMAINING, X_RESET].into_iter().zip(self.legacy.into_iter().flatten())
        {
            headers.insert(name, HeaderValue::from(number));
        }
    }
}

/// Appends `number` in decimal: a fifth of the cost of `core::fmt`.
fn put_number(value: &mut SmallVec<[u8; 256]>, number: u64) {
    value.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
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

//! `RateLimit` and its kin: the decision record as a client reads it.
//!
//! `RateLimit` and `RateLimit-Policy` follow draft-ietf-httpapi-ratelimit-headers-10.

use super::reply::whole_seconds;
use crate::{
    config::{RateLimitHeaders, Route, RouteRule},
    flow::{Quota, Report},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const X_RULE: HeaderName = HeaderName::from_static("x-flowgate-rule");
const X_REASON: HeaderName = HeaderName::from_static("x-flowgate-reason");

/// What a client is told of its quotas, made when its request is decided: the one
/// that has least left, as it is the one to heed. `RateLimit-Policy` names them all.
#[derive(Debug)]
pub(super) struct Told {
    ratelimit: HeaderValue,
    /// Limit, what is left, seconds to the reset, for clients that know the older
    /// fields only.
    legacy: Option<[u64; 3]>,
}

impl Told {
    /// `None` if the route has no quota to tell of, or `words` says so.
    pub(super) fn of(route: &Route, report: &Report, words: RateLimitHeaders) -> Option<Self> {
        if route.policy.is_none() || words == RateLimitHeaders::Off {
            return None;
        }
        let shown = report.quotas.iter().filter_map(|quota| Some((shown(route, quota)?, quota)));
        let (rule, quota) = shown.min_by_key(|(_, quota)| quota.remaining())?;
        let (left, reset) = (quota.remaining(), whole_seconds(quota.reset));
        let (mut digits, mut more) = (itoa::Buffer::new(), itoa::Buffer::new());
        // A fifth of the cost of `format!`.
        let line = [
            b"\"",
            rule.name.as_bytes(),
            b"\";r=",
            digits.format(left).as_bytes(),
            b";t=",
            more.format(reset).as_bytes(),
        ]
        .concat();
        let legacy = (words == RateLimitHeaders::Legacy).then_some([quota.limit, left, reset]);
        Some(Self { ratelimit: HeaderValue::from_maybe_shared(Bytes::from(line)).ok()?, legacy })
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

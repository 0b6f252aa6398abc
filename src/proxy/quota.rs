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
    /// Of a request that an override is for; else the route's.
    policy: Option<HeaderValue>,
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
        let ratelimit = HeaderValue::from_maybe_shared(Bytes::from(line)).ok()?;
        Some(Self { ratelimit, legacy, policy: own_policy(route, report) })
    }

    /// Writes the fields.
    pub(super) fn write(self, headers: &mut HeaderMap, route: &Route) {
        headers.insert(RATELIMIT, self.ratelimit);
        if let Some(policy) = self.policy.or_else(|| route.policy.clone()) {
            headers.insert(RATELIMIT_POLICY, policy);
        }
        for (name, number) in
            [X_LIMIT, X_REMAINING, X_RESET].into_iter().zip(self.legacy.into_iter().flatten())
        {
            headers.insert(name, HeaderValue::from(number));
        }
    }
}

/// Returns the quotas of a request that an override is for.
fn own_policy(route: &Route, report: &Report) -> Option<HeaderValue> {
    let rules = || report.quotas.iter().filter_map(|quota| shown(route, quota));
    rules().find(|rule| rule.when.is_some())?;
    let items: Vec<_> = rules().filter_map(|rule| Some(&*rule.quota.as_ref()?.policy)).collect();
    HeaderValue::try_from(items.join(", ")).ok()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::{self, Live},
        flow::{Claim, Instant, Key},
    };

    #[test]
    fn who_an_override_is_for_is_told_its_quota() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.yaml");
        let rules = "{ name: a, limit: 5/1m, overrides: [{ when: { method: PUT }, limit: 9/1m }] }, { name: b, limit: 20/1s }";
        let text = format!(
            "listeners: [{{ name: web, listen: 127.0.0.1:0 }}]
upstreams: [{{ name: app, servers: [{{ url: http://127.0.0.1:9000 }}] }}]
routes: [{{ name: r, match: {{ path_prefix: / }}, upstream: app, flow: [{rules}] }}]\n"
        );
        std::fs::write(&path, text).unwrap();
        let plan = config::read(&path).unwrap_or_else(|problems| panic!("{problems}"));
        let snapshot = Live::start(plan, Instant::EPOCH).load_full();
        let route = &snapshot.routes[0];
        for (asked, policy) in
            [([0, 2], "\"a\";q=9;w=60, \"b\";q=20;w=1"), ([1, 2], "\"a\";q=5;w=60, \"b\";q=20;w=1")]
        {
            let claim = |at: usize| Claim {
                slot: route.rules[at].slot,
                key: Key::Shared,
                cost: 1,
                patience: core::time::Duration::ZERO,
            };
            let admission = route.gate.enter(Instant::EPOCH, &asked.map(claim)).unwrap();
            let told = Told::of(route, &admission.report, RateLimitHeaders::Draft).unwrap();
            let mut headers = HeaderMap::new();
            told.write(&mut headers, route);
            assert_eq!(headers[RATELIMIT_POLICY], policy);
            assert!(headers[RATELIMIT].to_str().unwrap().starts_with("\"a\";r="));
        }
    }
}

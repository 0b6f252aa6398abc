//! `RateLimit` and its kin: the decision record as a client reads it.
//!
//! `RateLimit` and `RateLimit-Policy` follow draft-ietf-httpapi-ratelimit-headers-10.

use super::reply::whole_seconds;
use crate::{
    config::{RateLimitHeaders, Route, RouteRule},
    flow::{Quota, ReasonKind, Report},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
/// What [`Told`] writes: the first two, or with the older fields all.
static FIELDS: [HeaderName; 5] = [RATELIMIT, RATELIMIT_POLICY, X_LIMIT, X_REMAINING, X_RESET];

const X_RULE: HeaderName = HeaderName::from_static("x-flowgate-rule");
const X_REASON: HeaderName = HeaderName::from_static("x-flowgate-reason");

/// What a client is told of its quotas, known when its request is decided: of the one
/// that has least left, as it is the one to heed. `RateLimit-Policy` names them all.
#[derive(Debug)]
pub(super) struct Told {
    /// Which of the route's rules it is.
    rule: usize,
    limit: u64,
    left: u64,
    /// In seconds.
    reset: u64,
    /// Whether clients are told in the older fields, too.
    legacy: bool,
    /// Of a request that an override is for; else the route's.
    policy: Option<Box<HeaderValue>>,
}

impl Told {
    /// `None` if the route has no quota to tell of, or `words` says so.
    pub(super) fn of(route: &Route, report: &Report, words: RateLimitHeaders) -> Option<Self> {
        if route.policy.is_none() || words == RateLimitHeaders::Off {
            return None;
        }
        let (mut least, mut is_overridden) = (None, false);
        for quota in &report.quotas {
            let Some((at, rule)) = shown(route, quota) else { continue };
            is_overridden |= rule.when.is_some();
            let left = quota.remaining();
            if least.is_none_or(|(_, _, least)| left < least) {
                least = Some((at, quota, left));
            }
        }
        let (rule, quota, left) = least?;
        Some(Self {
            rule,
            limit: quota.limit,
            left,
            reset: whole_seconds(quota.reset),
            legacy: words == RateLimitHeaders::Legacy,
            policy: if is_overridden { own_policy(route, report) } else { None },
        })
    }

    /// Returns which fields it writes.
    pub(super) fn fields(&self) -> &'static [HeaderName] {
        let (draft, _older) = FIELDS.split_at(2);
        if self.legacy { &FIELDS } else { draft }
    }

    /// Writes the fields. `route` is the one that the client was told of.
    pub(super) fn write(self, headers: &mut HeaderMap, route: &Route) {
        let Some(rule) = route.rules.get(self.rule) else { return };
        let (mut left, mut reset) = (itoa::Buffer::new(), itoa::Buffer::new());
        let (left, reset) = (left.format(self.left), reset.format(self.reset));
        // A fifth of the cost of `format!`. To the byte, as `Bytes` keeps a longer one apart.
        let mut line = Vec::with_capacity(rule.name.len() + left.len() + reset.len() + 8);
        line.push(b'"');
        line.extend_from_slice(rule.name.as_bytes());
        line.extend_from_slice(b"\";r=");
        line.extend_from_slice(left.as_bytes());
        line.extend_from_slice(b";t=");
        line.extend_from_slice(reset.as_bytes());
        if let Ok(line) = HeaderValue::from_maybe_shared(Bytes::from(line)) {
            headers.insert(RATELIMIT, line);
        }
        if let Some(policy) = self.policy.map(|policy| *policy).or_else(|| route.policy.clone()) {
            headers.insert(RATELIMIT_POLICY, policy);
        }
        if self.legacy {
            headers.insert(X_LIMIT, HeaderValue::from(self.limit));
            headers.insert(X_REMAINING, HeaderValue::from(self.left));
            headers.insert(X_RESET, HeaderValue::from(self.reset));
        }
    }
}

/// Returns the quotas of a request that an override is for.
fn own_policy(route: &Route, report: &Report) -> Option<Box<HeaderValue>> {
    let rules = report.quotas.iter().filter_map(|quota| shown(route, quota));
    let items: Vec<_> = rules.filter_map(|(_, rule)| Some(&*rule.quota.as_ref()?.policy)).collect();
    HeaderValue::try_from(items.join(", ")).ok().map(Box::new)
}

/// Names the rule that decided and why, for whoever asked to be told.
pub(super) fn explain(headers: &mut HeaderMap, rule: &str, reason: ReasonKind) {
    if let Ok(rule) = HeaderValue::from_str(rule) {
        headers.insert(X_RULE, rule);
    }
    headers.insert(X_REASON, HeaderValue::from_static(reason.word()));
}

/// The rule of `quota` and its place among the route's, if clients are told of it: it
/// has a quota over time, and it is in force.
fn shown<'a>(route: &'a Route, quota: &Quota) -> Option<(usize, &'a RouteRule)> {
    let mut rules = route.rules.iter().enumerate();
    let shown = rules.find(|(_, rule)| rule.slot == quota.slot)?;
    (shown.1.quota.is_some() && !shown.1.dry_run).then_some(shown)
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

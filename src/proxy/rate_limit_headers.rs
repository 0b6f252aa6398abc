//! `RateLimit` and its kin: the decision record as a client reads it.
//!
//! `RateLimit` and `RateLimit-Policy` follow draft-ietf-httpapi-ratelimit-headers-11. Of requests
//! that cost the same, a client sends at most what `r` allows until `t` has passed, and one more
//! then. After a rejection, it sends one once `Retry-After` has passed. Such a client is not
//! rejected by a rule with a quota, unless others use it too.

use crate::proxy::gateway_error::whole_seconds;
use crate::{
    config::{RateLimitHeaders, Route, RouteRule},
    flow::{Quota, ReasonKind, Rejection, Report},
    http1::FieldList,
};
use http::{HeaderName, HeaderValue};

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
/// What [`RateLimitFields`] may write: the first two, or with the older fields all.
static FIELDS: [HeaderName; 5] = [RATELIMIT, RATELIMIT_POLICY, X_LIMIT, X_REMAINING, X_RESET];

const X_RULE: HeaderName = HeaderName::from_static("x-flowgate-rule");
const X_REASON: HeaderName = HeaderName::from_static("x-flowgate-reason");

/// The fields with a client's quotas, known when its request is decided. `RateLimit-Policy` names
/// them all; `RateLimit` describes the one with the least left.
#[derive(Debug)]
pub(crate) struct RateLimitFields {
    tightest: Option<TightestQuota>,
    /// True if the older fields are written, too.
    legacy: bool,
    /// Of a request that an override is for, or that has a plan; else the route's.
    policy: Option<Box<HeaderValue>>,
}

/// The state of the quota with the least left.
#[derive(Clone, Copy, Debug)]
struct TightestQuota {
    /// Which of the route's rules it is.
    rule: usize,
    limit: u64,
    left: u64,
    /// The seconds until more is left.
    growth: u64,
    /// The seconds until nothing is used.
    reset: u64,
}

impl RateLimitFields {
    /// Describes the quota that an admitted client meets first. `None` if the route has no quota to
    /// describe, or `words` says so.
    pub(crate) fn admitted(
        route: &Route,
        report: &Report,
        words: RateLimitHeaders,
    ) -> Option<Self> {
        if route.policy.is_none() || words == RateLimitHeaders::Off {
            return None;
        }

        let mut tightest = None;
        let mut is_overridden = false;
        let mut expected = 0;
        for quota in &report.quotas {
            let Some(at) = rule_of(route, quota, expected) else { continue };
            expected = at + 1;
            let rule = &route.rules[at];
            if !is_shown(rule) {
                continue;
            }
            is_overridden |= rule.when.is_some() || quota.plan.is_some();
            let tightness = quota.tightness();
            if tightest.is_none_or(|(_, _, least)| tightness < least) {
                tightest = Some((at, quota, tightness));
            }
        }

        let (rule, quota, _) = tightest?;
        Some(Self {
            tightest: Some(TightestQuota {
                rule,
                limit: quota.limit,
                left: quota.remaining(),
                growth: whole_seconds(quota.until_growth()),
                reset: whole_seconds(quota.reset),
            }),
            legacy: words == RateLimitHeaders::Legacy,
            policy: if is_overridden { own_policy(route, report) } else { None },
        })
    }

    /// Describes the quota that decided, if one did that time refills: a client that obeyed the
    /// fields of another one could be rejected again. What is left of it is not enough for the
    /// request, so that the fields say 0, and `t` is `Retry-After`.
    pub(crate) fn rejected(
        route: &Route,
        rejection: &Rejection,
        words: RateLimitHeaders,
    ) -> Option<Self> {
        if route.policy.is_none() || words == RateLimitHeaders::Off {
            return None;
        }

        let quotas = &rejection.report.quotas;
        let is_overridden = |quota: &Quota| {
            let rule = shown(route, quota);
            rule.is_some_and(|(_, entry)| entry.when.is_some() || quota.plan.is_some())
        };

        let decided = quotas.iter().find(|quota| quota.slot == rejection.slot);
        let tightest = decided.zip(rejection.reason.retry_after()).and_then(|(quota, wait)| {
            let (rule, _) = shown(route, quota)?;
            let growth = whole_seconds(wait);
            let reset = whole_seconds(quota.reset.max(wait));
            Some(TightestQuota { rule, limit: quota.limit, left: 0, growth, reset })
        });

        Some(Self {
            tightest,
            legacy: words == RateLimitHeaders::Legacy,
            policy: if quotas.iter().any(is_overridden) {
                own_policy(route, &rejection.report)
            } else {
                None
            },
        })
    }

    /// Returns which fields it may write.
    pub(crate) fn fields(&self) -> &'static [HeaderName] {
        let (draft, _older) = FIELDS.split_at(2);
        if self.legacy { &FIELDS } else { draft }
    }

    /// Writes the fields. `route` is the one whose quotas these are.
    pub(crate) fn write(&self, headers: &mut FieldList, route: &Route) {
        let Self { tightest, legacy, policy } = self;
        if let Some(policy) = policy.as_deref().or(route.policy.as_ref()) {
            headers.insert(&RATELIMIT_POLICY, policy);
        }
        let Some(tightest) = tightest else { return };
        let Some(rule) = route.rules.get(tightest.rule) else { return };
        let mut left = itoa::Buffer::new();
        let mut growth = itoa::Buffer::new();
        let left = left.format(tightest.left).as_bytes();
        let growth = growth.format(tightest.growth).as_bytes();
        let name = rule.name.as_bytes();
        // The name stands in the policy too, which is valid. `format!` takes five times as long.
        headers.insert_changing(&RATELIMIT, &[b"\"", name, b"\";r=", left, b";t=", growth]);
        if *legacy {
            headers.insert(X_LIMIT, HeaderValue::from(tightest.limit));
            headers.insert_changing(&X_REMAINING, &[left]);
            headers.insert(X_RESET, HeaderValue::from(tightest.reset));
        }
    }
}

/// Returns the quotas of a request that an override is for, or that has a plan.
fn own_policy(route: &Route, report: &Report) -> Option<Box<HeaderValue>> {
    let rules = report.quotas.iter().filter_map(|quota| Some((quota, shown(route, quota)?.1)));
    let items = rules.filter_map(|(quota, rule)| rule.quota_of(quota.plan)?.policy.as_deref());
    let items: Vec<_> = items.collect();
    HeaderValue::try_from(items.join(", ")).ok().map(Box::new)
}

/// Names the rule that decided and why, if `explain_headers` asks for it.
pub(crate) fn explain(headers: &mut FieldList, rule: &str, reason: ReasonKind) {
    if let Ok(rule) = HeaderValue::from_str(rule) {
        headers.insert(X_RULE, rule);
    }
    headers.insert(X_REASON, HeaderValue::from_static(reason.word()));
}

/// The rule of `quota` and its place among the route's, if clients see it: it
/// has a quota over time, and it is in force.
fn shown<'a>(route: &'a Route, quota: &Quota) -> Option<(usize, &'a RouteRule)> {
    let at = rule_of(route, quota, 0)?;
    Some((at, &route.rules[at])).filter(|(_, rule)| is_shown(rule))
}

/// The place of the rule of `quota`, probably `expected`: quotas are in the order of rules, unless an
/// edit changed it.
fn rule_of(route: &Route, quota: &Quota, expected: usize) -> Option<usize> {
    let is_it = |rule: &RouteRule| rule.slot == quota.slot;
    if route.rules.get(expected).is_some_and(is_it) {
        return Some(expected);
    }
    route.rules.iter().position(is_it)
}

fn is_shown(rule: &RouteRule) -> bool {
    rule.quota.as_ref().is_some_and(|quota| quota.policy.is_some()) && !rule.dry_run
}

#[cfg(test)]
mod obedience;

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{
        config::{self, Live},
        flow::{Claim, Instant, Key},
    };
    use core::time::Duration;
    use http::HeaderMap;
    use std::sync::Arc;

    /// Returns the first route of a gateway with these rules.
    pub(in crate::proxy) fn route(rules: &str) -> Arc<Route> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.yaml");
        let text = format!(
            "listeners: [{{ name: web, listen: 127.0.0.1:0 }}]
upstreams: [{{ name: app, servers: [{{ url: http://127.0.0.1:9000 }}] }}]
routes: [{{ name: r, match: {{ path_prefix: / }}, upstream: app, flow: [{rules}] }}]\n"
        );
        std::fs::write(&path, text).unwrap();
        let plan = config::read(&path).unwrap_or_else(|problems| panic!("{problems}"));
        let snapshot = Live::start(plan, Instant::EPOCH).load_full();
        Arc::clone(&snapshot.routes[0])
    }

    pub(in crate::proxy) fn claim(route: &Route, at: usize) -> Claim {
        let slot = route.rules[at].slot;
        let patience = Duration::ZERO;
        Claim { slot, key: Key::Shared, cost: route.rules[at].cost.default, patience, plan: None }
    }

    fn written(quota: Option<RateLimitFields>, route: &Route) -> HeaderMap {
        let mut headers = FieldList::default();
        quota.expect("a quota").write(&mut headers, route);
        headers.into_map()
    }

    /// Returns the fields when a second request comes at once.
    fn second(rules: &str) -> HeaderMap {
        let route = route(rules);
        let claims: Vec<_> = (0..route.rules.len()).map(|at| claim(&route, at)).collect();
        let first = route.gate.enter(Instant::EPOCH, &claims).unwrap();
        let quota = match route.gate.enter(Instant::EPOCH, &claims) {
            Ok(it) => RateLimitFields::admitted(&route, &it.report, RateLimitHeaders::Legacy),
            Err(it) => RateLimitFields::rejected(&route, &it, RateLimitHeaders::Legacy),
        };
        drop(first);
        written(quota, &route)
    }

    #[test]
    fn the_quota_that_decides_is_sent_and_no_other() {
        let equal = "{ name: a, limit: 2/1s }, { name: b, limit: 2/1h }";
        assert_eq!(second(equal)[RATELIMIT], "\"b\";r=0;t=1800", "as much is left, for longer");
        assert_eq!(second(equal)[X_RESET], "3600", "until all is left");
        // Four are left of one, and one is of the other: of requests that cost 5 none is and one.
        let costly = "{ name: a, limit: 14/1h, cost: 5 }, { name: b, limit: 3/1s }";
        assert_eq!(second(costly)[RATELIMIT], "\"a\";r=4;t=258");
        let both = "{ name: a, limit: 1/1s }, { name: b, limit: 9/1h, cost: 5 }";
        let quota = second(both);
        assert_eq!(quota[RATELIMIT], "\"b\";r=0;t=400", "what is left is not enough");
        assert_eq!(quota[X_RESET], "2000");
        assert_eq!(
            (&quota[X_LIMIT], &quota[X_REMAINING]),
            (&"9".parse().unwrap(), &"0".parse().unwrap())
        );
        // No client may take a quota for the reason that has none.
        let busy = "{ name: a, limit: 9/1s }, { name: b, concurrency: 1 }";
        let quota = second(busy);
        assert_eq!(quota.get(RATELIMIT).or_else(|| quota.get(X_RESET)), None);
        assert_eq!(quota[RATELIMIT_POLICY], "\"a\";q=9;w=1");
    }

    #[test]
    fn the_most_that_can_be_left_is_the_limit_of_all_fields() {
        for (rule, most, remaining, growth, reset) in [
            ("limit: 10/1s, burst: 30", "30", "28", "1", "1"),
            ("limit: 6/1m, burst: 3", "3", "1", "10", "20"),
            ("algorithm: leaky_bucket, limit: 6/1m, burst: 3", "3", "1", "10", "20"),
            ("algorithm: fixed_window, limit: 6/1m", "6", "4", "60", "60"),
            ("algorithm: sliding_log, limit: 6/1m", "6", "4", "61", "61"),
            ("algorithm: sliding_window, limit: 6/1m, strict: false", "6", "4", "60", "60"),
            ("algorithm: sliding_counter, limit: 6/1m", "6", "4", "90", "120"),
        ] {
            let headers = second(&format!("{{ name: a, {rule} }}"));
            let of = |name| headers[&name].to_str().unwrap().to_owned();
            assert_eq!(of(RATELIMIT), format!("\"a\";r={remaining};t={growth}"), "{rule}");
            assert!(of(RATELIMIT_POLICY).starts_with(&format!("\"a\";q={most};w=")), "{rule}");
            assert_eq!(
                [of(X_LIMIT), of(X_REMAINING), of(X_RESET)],
                [most, remaining, reset],
                "{rule}"
            );
        }
    }

    #[test]
    fn a_client_with_an_override_gets_its_quota() {
        let rules = "{ name: a, limit: 5/1m, overrides: [{ when: { method: PUT }, limit: 9/1m }] }, { name: b, limit: 20/1s }";
        let route = route(rules);
        for (asked, policy) in
            [([0, 2], "\"a\";q=9;w=60, \"b\";q=20;w=1"), ([1, 2], "\"a\";q=5;w=60, \"b\";q=20;w=1")]
        {
            let claims = asked.map(|at| claim(&route, at));
            let admission = route.gate.enter(Instant::EPOCH, &claims).unwrap();
            let quota =
                RateLimitFields::admitted(&route, &admission.report, RateLimitHeaders::Draft);
            let headers = written(quota, &route);
            assert_eq!(headers[RATELIMIT_POLICY], policy);
            assert!(headers[RATELIMIT].to_str().unwrap().starts_with("\"a\";r="));
        }
    }
}

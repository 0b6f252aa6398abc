//! `/routes`: the routes in matching order with their rules and counts, as JSON.

use super::{context::Admin, live::Sampler, live_keys::Surveys};
use crate::{
    config::{GateRules, Route, RuleGroup, Snapshot, Upstream},
    explain::AutoState,
    flow::{Instant, Observation, RuleObservation, Sums, rule_of},
    meter::Resent,
};
use serde::Serialize;
use std::{collections::BTreeMap, sync::atomic::Ordering::Relaxed, time::Duration};

/// Writes the page.
///
/// # Errors
///
/// None: all map keys are strings.
pub(super) fn write(
    snapshot: &Snapshot,
    admin: &Admin,
    now: Instant,
) -> serde_json::Result<Vec<u8>> {
    let Admin { sampler, surveys, .. } = admin;
    let order = snapshot.table.order();
    let seen: Vec<(&Route, Observation)> = order
        .iter()
        .map(|index| &*snapshot.routes[*index])
        .map(|route| (route, route.gate.observe(now)))
        .collect();
    let groups: Vec<(&RuleGroup, Observation)> =
        snapshot.groups.iter().map(|group| (&**group, group.gate.observe(now))).collect();
    let view = RoutesView {
        version: snapshot.version,
        config_hash: &snapshot.hash,
        routes: seen.iter().map(|(route, seen)| RouteView::of(route, seen, surveys)).collect(),
        budgets: groups.iter().map(|(group, seen)| BudgetView::of(group, seen, surveys)).collect(),
        upstreams: snapshot
            .upstreams
            .iter()
            .map(|upstream| UpstreamView::of(upstream, sampler))
            .collect(),
    };
    let mut json = serde_json::to_vec_pretty(&view)?;
    json.push(b'\n');
    Ok(json)
}

#[derive(Serialize)]
struct RoutesView<'a> {
    version: u64,
    config_hash: &'a str,
    routes: Vec<RouteView<'a>>,
    /// The rules that routes share.
    budgets: Vec<BudgetView<'a>>,
    upstreams: Vec<UpstreamView<'a>>,
}

#[derive(Serialize)]
struct RouteView<'a> {
    name: &'a str,
    r#match: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream: Option<&'a str>,
    /// The response that it gives itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rewrite: Option<&'a str>,
    /// The clients that may use it, if not all.
    #[serde(skip_serializing_if = "Option::is_none")]
    access: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<String>,
    /// The proof that a client must give, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    auth: Option<String>,
    /// The rules that it shares with other routes, as in `budget site`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    budgets: Vec<String>,
    /// In the chain's order: flow rules, breaker, pacing.
    rules: Vec<RuleView<'a>>,
    in_flight: u64,
    in_flight_max: u64,
    waiting: u64,
    last_second: SumsView,
    last_minute: SumsView,
    total: SumsView,
}

/// A rule that routes share, with its overrides.
#[derive(Serialize)]
struct BudgetView<'a> {
    /// Its place in the file and its name, as in `budget site`.
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<&'a str>,
    rules: Vec<RuleView<'a>>,
}

#[derive(Serialize)]
struct RuleView<'a> {
    name: &'a str,
    /// The condition of an override.
    #[serde(skip_serializing_if = "Option::is_none")]
    when: Option<&'a str>,
    algorithm: &'a str,
    /// As configured: `10/1m`.
    #[serde(rename = "limit", skip_serializing_if = "Option::is_none")]
    quota: Option<String>,
    /// The key, if clients are counted separately.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    dry_run: bool,
    /// The most that one client may use.
    most: u64,
    /// The usage of the fullest key, or of all requests together.
    used: u64,
    passed: u64,
    delayed: u64,
    rejected: u64,
    /// `rejected` by reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    rejected_by_reason: BTreeMap<&'static str, u64>,
    /// Rejections without dry run.
    dry_run_rejected: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<KeysView>,
    /// The requests that wait for a place, if the rule has a queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<u32>,
    /// The clients that it rejects for a while, if it bans any.
    #[serde(skip_serializing_if = "Option::is_none")]
    banned: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    breaker: Option<BreakerView>,
    /// The state of a limit that finds itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    auto: Option<AutoState>,
}

#[derive(Serialize)]
struct BreakerView {
    /// `closed`, `open` or `half_open`.
    state: &'static str,
    opened: u64,
    half_opened: u64,
    closed: u64,
    answers: u64,
    failed: u64,
    slow: u64,
}

#[derive(Serialize)]
struct KeysView {
    live: u32,
    max: u32,
    evicted: u64,
    restored: u64,
    overflowed: u64,
}

#[derive(Serialize)]
struct SumsView {
    passed: u64,
    delayed: u64,
    rejected: u64,
    completed: u64,
    failed: u64,
    cancelled: u64,
    /// Over completed and failed requests.
    latency_mean_ms: Option<f64>,
    latency_min_ms: Option<f64>,
    /// Over delayed requests.
    wait_mean_ms: Option<f64>,
}

#[derive(Serialize)]
struct UpstreamView<'a> {
    name: &'a str,
    /// Retries that the budget did not allow.
    retries_exhausted: u64,
    servers: Vec<ServerView>,
}

#[derive(Serialize)]
struct ServerView {
    address: String,
    /// The name that was resolved to this address.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    weight: u32,
    in_flight: u32,
    requests: u64,
    failures: u64,
    /// Responses with a status of 500 to 599.
    server_errors: u64,
    /// Requests sent again after it failed them.
    retries: u64,
    /// `healthy`, `not asked yet`, `ejected`, `unreachable` or `unhealthy`.
    health: &'static str,
    /// The share of its latest requests that failed, if at least half of them did.
    #[serde(skip_serializing_if = "Option::is_none")]
    failing: Option<f64>,
    ejections: u64,
}

impl<'a> RouteView<'a> {
    fn of(route: &'a Route, seen: &'a Observation, surveys: &Surveys) -> Self {
        Self {
            name: &route.name,
            r#match: &route.matches,
            upstream: route.action.upstream().map(|upstream| &*upstream.name),
            answer: route.action.own_words(),
            rewrite: route.options.rewrite.as_ref().map(|rewrite| &*rewrite.words),
            access: route.options.access.as_ref().map(ToString::to_string),
            retry: route.options.retry.as_ref().map(ToString::to_string),
            auth: route.options.auth.as_ref().map(ToString::to_string),
            budgets: route.groups.iter().map(|group| group.owner.to_string()).collect(),
            rules: rules(route.gate_rules(), seen, surveys),
            in_flight: seen.in_flight,
            in_flight_max: seen.in_flight_max,
            waiting: seen.waiting,
            last_second: SumsView::of(&seen.last_second),
            last_minute: SumsView::of(&seen.last_minute),
            total: SumsView::of(&seen.totals),
        }
    }
}

impl<'a> BudgetView<'a> {
    fn of(group: &'a RuleGroup, seen: &'a Observation, surveys: &Surveys) -> Self {
        Self {
            name: group.owner.to_string(),
            parent: group.parent.as_deref(),
            rules: rules(group.gate_rules(), seen, surveys),
        }
    }
}

/// Returns the views of a gate's rules.
fn rules<'a>(of: GateRules<'a>, seen: &'a Observation, surveys: &Surveys) -> Vec<RuleView<'a>> {
    seen.rules.iter().map(|rule| RuleView::of(of, rule, surveys)).collect()
}

impl<'a> RuleView<'a> {
    fn of(of: GateRules<'a>, seen: &'a RuleObservation, surveys: &Surveys) -> Self {
        // Breaker and pacing are not among the rules.
        let rule = of.rules.iter().find(|rule| rule.slot == seen.slot);
        let keyed = rule.filter(|rule| !rule.key.is_shared());
        let by_reason = seen.counts.rejected.each();
        let fullest = surveys.fullest(of, seen.slot);
        let fullest = fullest.first().map_or(0, |usage| usage.used);

        Self {
            name: rule_of(&seen.name),
            when: rule.and_then(|rule| rule.when.as_ref()).map(|when| &**when.words()),
            algorithm: seen.algorithm,
            quota: rule.and_then(|rule| rule.quota.as_ref()).map(|quota| quota.text.to_string()),
            key: keyed.map(|rule| rule.key.to_string()),
            dry_run: seen.dry_run,
            most: seen.limit,
            used: seen.used.max(fullest),
            passed: seen.counts.passed,
            delayed: seen.counts.delayed,
            rejected: seen.counts.rejected.total(),
            rejected_by_reason: by_reason.map(|(kind, count)| (kind.word(), count)).collect(),
            dry_run_rejected: seen.counts.dry_run_rejected.total(),
            keys: seen.keys.map(|keys| KeysView {
                live: keys.live,
                max: keys.max,
                evicted: seen.counts.churn.evicted,
                restored: seen.counts.churn.restored,
                overflowed: seen.counts.churn.overflowed,
            }),
            waiting: seen.waiting,
            banned: seen.banned,
            breaker: seen.breaker.map(|seen| BreakerView {
                state: seen.phase.word(),
                opened: seen.opened,
                half_opened: seen.half_opened,
                closed: seen.closed,
                answers: seen.answers.all,
                failed: seen.answers.failed,
                slow: seen.answers.slow,
            }),
            auto: seen.auto.as_ref().map(AutoState::of),
        }
    }
}

impl SumsView {
    fn of(sums: &Sums) -> Self {
        Self {
            passed: sums.passed,
            delayed: sums.delayed,
            rejected: sums.rejected,
            completed: sums.completed,
            failed: sums.failed,
            cancelled: sums.cancelled,
            latency_mean_ms: mean_ms(sums.latency_sum, sums.completed + sums.failed),
            latency_min_ms: sums.latency_min.map(|latency| latency.as_secs_f64() * 1e3),
            wait_mean_ms: mean_ms(sums.wait_sum, sums.delayed),
        }
    }
}

impl<'a> UpstreamView<'a> {
    fn of(upstream: &'a Upstream, sampler: &Sampler) -> Self {
        let servers = upstream.servers().into_iter().map(|server| ServerView {
            address: server.address(),
            name: server.ip.map(|_| server.authority()),
            weight: server.weight,
            in_flight: server.in_flight.load(Relaxed),
            requests: server.meter.requests.load(Relaxed),
            failures: server.meter.failures.load(Relaxed),
            server_errors: server.meter.server_errors.load(Relaxed),
            retries: Resent::ALL.iter().map(|reason| server.meter.resent(*reason)).sum(),
            health: server.health_word(),
            failing: sampler.failing(server.id),
            ejections: server.health.ejections(),
        });
        let retries_exhausted = upstream.retries.exhausted();
        Self { name: &upstream.name, retries_exhausted, servers: servers.collect() }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a mean is read, not counted with")]
fn mean_ms(sum: Duration, count: u64) -> Option<f64> {
    (count > 0).then(|| sum.as_secs_f64() * 1e3 / count as f64)
}

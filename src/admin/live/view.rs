//! What a client gets of a sample, as JSON.

use super::{
    board::{Board, unix_seconds},
    failing::FailingView,
    query::{Query, RouteSort},
    route::{Columns, RouteTrack, SAMPLES, Sample, millis},
    upstreams::UpstreamsView,
};
use crate::{
    admin::{
        live_keys::{KeyView, Names, RejectedKeysView, Surveys, rejected},
        readiness::{Readiness, RejectedReload},
    },
    cluster::Store,
    config::{Diagnostic, Route, RouteRule, ShownCertificate, Snapshot},
    flow::{Instant, ReasonKind, RuleObservation, rule_of},
    worst_paths::WorstPaths,
};
use serde::Serialize;
use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

/// The rules that reject the most, of all routes.
const MOST_REJECTING: usize = 8;

/// The most rules of a route.
const MOST_RULES: usize = 40;

/// The fullest and the most rejected keys of a rule.
const MOST_KEYS: usize = 5;

/// The certificates that end first.
const MOST_CERTIFICATES: usize = 30;

/// The longest text of the drawn problems.
const LONGEST_DRAWING: usize = 16 * 1024;

/// What a sample is shown with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Around<'a> {
    pub readiness: &'a Readiness,
    pub store: Option<&'a Store>,
    pub surveys: &'a Surveys,
    pub names: Names<'a>,
    pub worst_paths: &'a WorstPaths,
    pub started: Instant,
    pub now: Instant,
}

/// One sample, as one client asked for it.
#[derive(Debug, Serialize)]
pub(crate) struct SampleView {
    /// Seconds since the Unix epoch.
    at: u64,
    uptime: u64,
    ready: bool,
    all: PointView,
    reasons: BTreeMap<&'static str, u64>,
    rejecting: Vec<RejectingView>,
    failing: FailingView,
    routes: RoutesView,
    upstreams: UpstreamsView,
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<StoreView>,
    /// A number that changes with what [`ConfigView`] shows.
    pub edits: u64,
}

/// The five minutes before, of all routes and of those on the page.
#[derive(Debug, Serialize)]
pub(crate) struct HistoryView {
    /// The time of the last sample of each column; the others are a second apart.
    at: u64,
    samples: usize,
    all: Columns,
    routes: BTreeMap<String, Columns>,
}

#[derive(Debug, Serialize)]
struct PointView {
    passed: u32,
    delayed: u32,
    rejected: u32,
    failed: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    p50: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p99: Option<f64>,
    in_flight: u32,
    waiting: u32,
}

/// A rule that rejects.
#[derive(Debug, Serialize)]
struct RejectingView {
    route: String,
    rule: String,
    reason: &'static str,
    /// Over the last ten seconds.
    per_second: f64,
    /// Whether it only counts what it would reject.
    dry_run: bool,
}

#[derive(Debug, Serialize)]
struct RoutesView {
    total: usize,
    found: usize,
    page: usize,
    pages: usize,
    rows: Vec<RouteView>,
}

#[derive(Debug, Serialize)]
struct RouteView {
    name: String,
    matches: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<String>,
    now: PointView,
    in_flight_max: u64,
    rules: Vec<RuleView>,
    #[serde(skip_serializing_if = "is_zero")]
    more_rules: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    breaker: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct RuleView {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    when: Option<String>,
    algorithm: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    quota: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    dry_run: bool,
    shared: bool,
    limit: u64,
    /// What the fullest key has used, or all together.
    used: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<KeysView>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fullest: Vec<KeyView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rejected_keys: Option<RejectedKeysView>,
    passed: f64,
    delayed: f64,
    rejected: f64,
    would_reject: f64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    reasons: BTreeMap<&'static str, f64>,
    rejected_total: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    breaker: Option<BreakerView>,
}

#[derive(Debug, Serialize)]
struct KeysView {
    live: u32,
    max: u32,
}

#[derive(Debug, Serialize)]
struct BreakerView {
    state: &'static str,
    opened: u64,
    answers: u64,
    failed: u64,
    slow: u64,
}

#[derive(Debug, Serialize)]
struct StoreView {
    up: bool,
    /// While it fails: since when and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    gateways: u32,
    divisor: u32,
    syncing: bool,
    errors: u64,
    cached_rejections: u64,
}

/// The configuration in force, and the edits before it.
#[derive(Debug, Serialize)]
pub(crate) struct ConfigView {
    flowgate: &'static str,
    version: u64,
    hash: String,
    routes: usize,
    upstreams: usize,
    listeners: Vec<String>,
    started: u64,
    /// When it was applied.
    applied: u64,
    /// What changed.
    changes: String,
    /// Whether the latest edit was rejected.
    is_behind: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    rejected: Option<RejectedView>,
    /// Whether the file may be edited here.
    edit: bool,
    /// When edits were applied (true) or rejected.
    edits: Vec<(u64, bool)>,
    /// Those that end first.
    certificates: Vec<ShownCertificate>,
    more_certificates: usize,
    /// Whether keys are shown by name.
    shows_keys: bool,
}

#[derive(Debug, Serialize)]
struct RejectedView {
    at: u64,
    count: usize,
    problems: Vec<Diagnostic>,
    drawing: String,
}

impl PointView {
    fn of(sample: &Sample) -> Self {
        Self {
            passed: sample.passed,
            delayed: sample.delayed,
            rejected: sample.rejected,
            failed: sample.failed,
            p50: millis(sample.p50),
            p99: millis(sample.p99),
            in_flight: sample.in_flight,
            waiting: sample.waiting,
        }
    }
}

/// The routes that a client sees, by their indexes in the snapshot.
#[derive(Debug, Default)]
pub(crate) struct RoutesPage {
    found: usize,
    number: usize,
    count: usize,
    pub indexes: Vec<usize>,
}

impl RoutesPage {
    /// Returns the page that `query` asks for.
    pub(crate) fn of(board: &Board, query: &Query) -> Self {
        let Some((snapshot, tracks)) = board.routes() else { return Self::default() };
        let is_found = |index: &usize| {
            let route = &snapshot.routes[*index];
            let upstream = route.action.upstream().map(|upstream| &*upstream.name);
            let rules = route.rules.iter().map(|rule| &*rule.name);
            let words: Vec<&str> =
                [&*route.name, &*route.matches].into_iter().chain(upstream).chain(rules).collect();
            query.finds(&words.join(" "))
        };
        let mut indexes: Vec<usize> = snapshot.table.order().into_iter().filter(is_found).collect();
        let latest = |index: &usize| &tracks[*index].latest;
        match query.sort {
            RouteSort::Rejected => {
                indexes.sort_by_cached_key(|index| Reverse(tracks[*index].last_minute()));
            }
            RouteSort::Failed => {
                indexes.sort_by_key(|index| Reverse(tracks[*index].failed_lately.sum()));
            }
            RouteSort::Requests => {
                indexes.sort_by_cached_key(|index| Reverse(tracks[*index].last_minute().1));
            }
            RouteSort::Latency => indexes.sort_by_key(|index| Reverse(latest(index).p99)),
            RouteSort::InFlight => indexes.sort_by_key(|index| Reverse(latest(index).in_flight)),
            RouteSort::Name => indexes.sort_by_key(|index| &snapshot.routes[*index].name),
            RouteSort::Order => {}
        }
        // Many names may contain that of one route.
        indexes.sort_by_key(|index| !query.is_name(&snapshot.routes[*index].name));
        let found = indexes.len();
        let count = found.div_ceil(query.size).max(1);
        let number = query.page.min(count - 1);
        let indexes = indexes.into_iter().skip(number * query.size).take(query.size).collect();
        Self { found, number, count, indexes }
    }
}

impl HistoryView {
    /// Returns the histories of these routes, by their indexes.
    pub(crate) fn of(board: &Board, indexes: &[usize]) -> Self {
        let mut routes = BTreeMap::new();
        if let Some((snapshot, tracks)) = board.routes() {
            let shown = indexes.iter().filter_map(|index| {
                let history = tracks.get(*index)?.history.as_ref()?;
                Some((snapshot.routes[*index].name.to_string(), history.columns()))
            });
            routes.extend(shown);
        }
        Self {
            at: board.at.map_or(0, unix_seconds),
            samples: SAMPLES,
            all: board.all.columns(),
            routes,
        }
    }
}

impl SampleView {
    pub(crate) fn of(
        board: &Board,
        snapshot: &Snapshot,
        page: &RoutesPage,
        query: &Query,
        around: Around<'_>,
    ) -> Self {
        let edits = around.readiness.edits();
        let rejected_at = edits.rejected.as_ref().map_or(0, |rejected| rejected.at.as_nanos());
        let edits = snapshot.version ^ rejected_at.rotate_left(16);
        let reasons = ReasonKind::ALL.iter().zip(board.reasons).filter(|(_, count)| *count > 0);
        Self {
            at: board.at.map_or(0, unix_seconds),
            uptime: around.now.since(around.started).as_secs(),
            ready: around.readiness.is_ready(),
            all: PointView::of(&board.latest()),
            reasons: reasons.map(|(kind, count)| (kind.word(), count)).collect(),
            rejecting: rejecting(board),
            failing: FailingView::of(board, around.worst_paths.list(around.now)),
            routes: RoutesView::of(board, snapshot, page, around),
            upstreams: UpstreamsView::of(snapshot, board, query),
            store: around.store.map(StoreView::of),
            edits,
        }
    }
}

/// Returns the rules that reject the most.
fn rejecting(board: &Board) -> Vec<RejectingView> {
    let Some((snapshot, tracks)) = board.routes() else { return Vec::new() };
    let mut found = Vec::new();
    for (route, track) in snapshot.routes.iter().zip(tracks) {
        for rule in &track.rules {
            let named = |reason, per_second, dry_run| RejectingView {
                route: route.name.to_string(),
                rule: rule_of(&rule.name).to_owned(),
                reason,
                per_second,
                dry_run,
            };
            let reasons = rule.reasons.iter().map(|(kind, window)| (kind.word(), window.rate()));
            let rejected = reasons.filter(|(_, rate)| *rate > 0.0);
            found.extend(rejected.map(|(reason, rate)| named(reason, rate, false)));
            let would = rule.would_reject.rate();
            if would > 0.0 {
                found.push(named("", would, true));
            }
        }
    }
    found.sort_by(|a, b| a.dry_run.cmp(&b.dry_run).then(b.per_second.total_cmp(&a.per_second)));
    found.truncate(MOST_REJECTING);
    found
}

impl RoutesView {
    fn of(board: &Board, snapshot: &Snapshot, page: &RoutesPage, around: Around<'_>) -> Self {
        let tracks = board.routes().map_or(&[][..], |(_, tracks)| tracks);
        let rows = page.indexes.iter().filter_map(|index| {
            Some(RouteView::of(snapshot.routes.get(*index)?, tracks.get(*index)?, around))
        });
        Self {
            total: snapshot.routes.len(),
            found: page.found,
            page: page.number,
            pages: page.count,
            rows: rows.collect(),
        }
    }
}

impl RouteView {
    fn of(route: &Route, track: &RouteTrack, around: Around<'_>) -> Self {
        let seen = route.gate.observe(around.now);
        let rules = seen.rules.iter().take(MOST_RULES);
        Self {
            name: route.name.to_string(),
            matches: route.matches.to_string(),
            upstream: route.action.upstream().map(|upstream| upstream.name.to_string()),
            answer: route.action.own_words(),
            now: PointView::of(&track.latest),
            in_flight_max: seen.in_flight_max,
            rules: rules.map(|rule| RuleView::of(route, track, rule, around)).collect(),
            more_rules: seen.rules.len().saturating_sub(MOST_RULES),
            breaker: seen.rules.iter().find_map(|rule| Some(rule.breaker?.phase.word())),
        }
    }
}

impl RuleView {
    fn of(route: &Route, track: &RouteTrack, seen: &RuleObservation, around: Around<'_>) -> Self {
        let Around { now, names, surveys, .. } = around;
        let fullest = surveys.fullest(route.gate_rules(), seen.slot);
        // Breaker and pacing are not among the route's rules.
        let rule = route.rules.iter().find(|rule| rule.slot == seen.slot);
        let keyed = rule.filter(|rule| !rule.key.is_shared());
        let rates = track.rule(&seen.name);
        let rate = |of: fn(&super::route::RuleTrack) -> f64| rates.map_or(0.0, of);
        let reasons = rates.into_iter().flat_map(|rates| &rates.reasons);
        let reasons = reasons.map(|(kind, window)| (kind.word(), window.rate()));
        Self {
            name: rule_of(&seen.name).to_owned(),
            when: rule.and_then(|rule| rule.when.as_ref()).map(|when| when.words().to_string()),
            algorithm: seen.algorithm,
            quota: rule.and_then(quota),
            key: keyed.map(|rule| rule.key.to_string()),
            dry_run: seen.dry_run,
            shared: rule.is_some_and(|rule| rule.shared.is_some()),
            limit: seen.limit,
            used: fullest.first().map_or(0, |usage| usage.used).max(seen.used),
            fullest: fullest
                .iter()
                .take(MOST_KEYS)
                .map(|usage| KeyView::of(usage, names))
                .collect(),
            rejected_keys: rejected(&route.gate, seen, (now, MOST_KEYS), names),
            keys: seen.keys.map(|keys| KeysView { live: keys.live, max: keys.max }),
            passed: rate(|rates| rates.passed.rate()),
            delayed: rate(|rates| rates.delayed.rate()),
            rejected: rate(super::route::RuleTrack::rejected),
            would_reject: rate(|rates| rates.would_reject.rate()),
            reasons: reasons.filter(|(_, rate)| *rate > 0.0).collect(),
            rejected_total: seen.counts.rejected.total(),
            breaker: seen.breaker.map(|seen| BreakerView {
                state: seen.phase.word(),
                opened: seen.opened,
                answers: seen.answers.all,
                failed: seen.answers.failed,
                slow: seen.answers.slow,
            }),
        }
    }
}

fn quota(rule: &RouteRule) -> Option<String> {
    rule.quota.as_ref().map(|quota| quota.text.to_string())
}

impl StoreView {
    fn of(store: &Store) -> Self {
        let read = store.read();
        Self {
            up: read.is_up,
            failure: read.failure.map(|failure| failure.to_string()),
            gateways: read.gateways,
            divisor: read.divisor,
            syncing: read.is_syncing,
            errors: read.errors.iter().map(|(_, count)| count).sum(),
            cached_rejections: read.cached_rejections,
        }
    }
}

impl ConfigView {
    pub(crate) fn of(snapshot: &Snapshot, around: Around<'_>, wall_of_start: Instant) -> Self {
        let edits = around.readiness.edits();
        let started = unix_seconds(wall_of_start);
        let applied = edits.applied.as_ref();
        let changes = applied.and_then(|applied| applied.outcome.as_ref().ok());
        let names = snapshot.listeners.iter();
        let certificates = snapshot.certificates();
        Self {
            flowgate: env!("CARGO_PKG_VERSION"),
            version: snapshot.version,
            hash: snapshot.hash.clone(),
            routes: snapshot.routes.len(),
            upstreams: snapshot.upstreams.len(),
            listeners: names
                .map(|listener| format!("{} {}", listener.name, listener.address))
                .collect(),
            started,
            applied: applied.map_or(started, |applied| unix_seconds(applied.at)),
            changes: changes.cloned().unwrap_or_default(),
            is_behind: edits.recent.back().is_some_and(|last| last.outcome.is_err()),
            rejected: edits.rejected.as_ref().map(RejectedView::of),
            edit: snapshot.settings.admin.as_ref().is_some_and(|admin| admin.edit),
            edits: edits
                .recent
                .iter()
                .map(|edit| (unix_seconds(edit.at), edit.outcome.is_ok()))
                .collect(),
            more_certificates: certificates.len().saturating_sub(MOST_CERTIFICATES),
            certificates: certificates.into_iter().take(MOST_CERTIFICATES).collect(),
            shows_keys: snapshot.settings.shows_keys(),
        }
    }
}

impl RejectedView {
    fn of(rejected: &Arc<RejectedReload>) -> Self {
        let drawing: String = rejected.drawing.chars().take(LONGEST_DRAWING).collect();
        Self {
            at: unix_seconds(rejected.at),
            count: rejected.count,
            problems: rejected.problems.clone(),
            drawing,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

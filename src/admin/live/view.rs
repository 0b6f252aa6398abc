//! Fills the views of [`crate::admin::sample`] for one client.

use super::{
    board::{Board, unix_seconds},
    budgets::BudgetsPage,
    query::{Query, RouteSort},
    route::{RouteTrack, RuleTrack, RuleTracks, SAMPLES, Second, millis},
};
use crate::{
    admin::{
        keys_view::KeyView,
        live_keys::{Names, Surveys, bans, debt, rejected},
        readiness::{Readiness, RejectedReload},
        sample::{
            BreakerState, BudgetList, ConfigState, Failing, History, KeyCount, Point, RejectedEdit,
            RejectingRule, RouteList, RouteRow, RuleRow, Sample, StoreState, UpstreamList,
        },
    },
    cluster::Store,
    config::{GateRules, Route, RouteRule, RuleGroup, Snapshot},
    explain::AutoState,
    flow::{Instant, ReasonKind, RuleObservation, rule_of},
    worst_paths::WorstPaths,
};
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

/// The state of the gateway that a sample shows beside the board.
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

impl Point {
    fn of(sample: &Second) -> Self {
        Self {
            passed: sample.passed.into(),
            delayed: sample.delayed.into(),
            rejected: sample.rejected.into(),
            failed: sample.failed.into(),
            p50: millis(sample.p50),
            p99: millis(sample.p99),
            in_flight: sample.in_flight.into(),
            waiting: sample.waiting.into(),
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

impl History {
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

impl Sample {
    pub(crate) fn of(
        board: &Board,
        snapshot: &Snapshot,
        page: &RoutesPage,
        budgets: &BudgetsPage,
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
            all: Point::of(&board.latest()),
            reasons: reasons.map(|(kind, count)| (kind.word().into(), count)).collect(),
            rejecting: rejecting(board),
            failing: Failing::of(board, around.worst_paths.list(around.now)),
            routes: RouteList::of(board, snapshot, page, around),
            budgets: BudgetList::of(board, budgets, around),
            upstreams: UpstreamList::of(snapshot, board, query),
            store: around.store.map(StoreState::of),
            edits,
        }
    }
}

/// Returns the rules that reject the most.
fn rejecting(board: &Board) -> Vec<RejectingRule> {
    let Some((snapshot, tracks)) = board.routes() else { return Vec::new() };
    let mut found = Vec::new();

    for (route, track) in snapshot.routes.iter().zip(tracks) {
        for rule in track.rules.iter() {
            rejecting_by(rule, &route.name, None, &mut found);
        }
    }
    for (group, tracks) in board.budgets() {
        for rule in tracks.iter() {
            rejecting_by(rule, "", Some(group), &mut found);
        }
    }
    found.sort_by(|a, b| a.dry_run.cmp(&b.dry_run).then(b.per_second.total_cmp(&a.per_second)));
    found.truncate(MOST_REJECTING);
    found
}

/// Adds the reasons for which a rule rejects, of a route or of several.
fn rejecting_by(
    rule: &RuleTrack,
    route: &str,
    group: Option<&Arc<RuleGroup>>,
    found: &mut Vec<RejectingRule>,
) {
    let named = |reason: &'static str, per_second, dry_run| RejectingRule {
        route: route.to_owned(),
        budget: group.map(|group| group.owner.to_string()),
        rule: rule_of(&rule.name).to_owned(),
        reason: reason.into(),
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

impl RouteList {
    fn of(board: &Board, snapshot: &Snapshot, page: &RoutesPage, around: Around<'_>) -> Self {
        let tracks = board.routes().map_or(&[][..], |(_, tracks)| tracks);
        let rows = page.indexes.iter().filter_map(|index| {
            Some(RouteRow::of(snapshot.routes.get(*index)?, tracks.get(*index)?, around))
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

impl RouteRow {
    fn of(route: &Route, track: &RouteTrack, around: Around<'_>) -> Self {
        let seen = route.gate.observe(around.now);
        let rules = seen.rules.iter().take(MOST_RULES);
        Self {
            name: route.name.to_string(),
            matches: route.matches.to_string(),
            upstream: route.action.upstream().map(|upstream| upstream.name.to_string()),
            answer: route.action.own_words(),
            now: Point::of(&track.latest),
            in_flight_max: seen.in_flight_max,
            rules: rules
                .map(|rule| RuleRow::of(route.gate_rules(), &track.rules, rule, around))
                .collect(),
            budgets: route.groups.iter().map(|group| group.owner.to_string()).collect(),
            more_rules: seen.rules.len().saturating_sub(MOST_RULES),
            breaker: seen.rules.iter().find_map(|rule| Some(rule.breaker?.phase.word().into())),
        }
    }
}

impl RuleRow {
    pub(super) fn of(
        of: GateRules<'_>,
        tracks: &RuleTracks,
        seen: &RuleObservation,
        around: Around<'_>,
    ) -> Self {
        let Around { now, names, surveys, .. } = around;
        let fullest = surveys.fullest(of, seen.slot);
        // Breaker and pacing are not among the rules.
        let rule = of.rules.iter().find(|rule| rule.slot == seen.slot);
        let keyed = rule.filter(|rule| !rule.key.is_shared());
        let rates = tracks.rule(&seen.name);
        let rate = |of: fn(&RuleTrack) -> f64| rates.map_or(0.0, of);
        let reasons = rates.into_iter().flat_map(|rates| &rates.reasons);
        let reasons = reasons.map(|(kind, window)| (kind.word().into(), window.rate()));

        let owed = fullest.iter().map(|usage| debt(usage.used, usage.limit, seen.settles));
        let most_owed = owed.max().unwrap_or(0).max(debt(seen.used, seen.limit, seen.settles));

        Self {
            name: rule_of(&seen.name).to_owned(),
            when: rule.and_then(|rule| rule.when.as_ref()).map(|when| when.words().to_string()),
            algorithm: seen.algorithm.into(),
            quota: rule.and_then(quota),
            key: keyed.map(|rule| rule.key.to_string()),
            dry_run: seen.dry_run,
            shared: rule.is_some_and(|rule| rule.shared.is_some()),
            limit: seen.limit,
            used: fullest.first().map_or(0, |usage| usage.used).max(seen.used),
            debt: most_owed,
            fullest: fullest
                .iter()
                .take(MOST_KEYS)
                .map(|usage| KeyView::of(usage, seen.settles, names))
                .collect(),
            rejected_keys: rejected(of.gate, seen, now, MOST_KEYS, names),
            bans: bans(of.gate, seen.slot, now, MOST_KEYS, names),
            keys: seen.keys.map(|keys| KeyCount { live: keys.live.into(), max: keys.max.into() }),
            passed: rate(|rates| rates.passed.rate()),
            delayed: rate(|rates| rates.delayed.rate()),
            rejected: rate(RuleTrack::rejected),
            would_reject: rate(|rates| rates.would_reject.rate()),
            reasons: reasons.filter(|(_, rate)| *rate > 0.0).collect(),
            rejected_total: seen.counts.rejected.total(),
            breaker: seen.breaker.map(|seen| BreakerState {
                state: seen.phase.word().into(),
                opened: seen.opened,
                answers: seen.answers.all,
                failed: seen.answers.failed,
                slow: seen.answers.slow,
            }),
            auto: seen.auto.as_ref().map(AutoState::of),
        }
    }
}

fn quota(rule: &RouteRule) -> Option<String> {
    rule.quota.as_ref().map(|quota| quota.text.to_string())
}

impl StoreState {
    fn of(store: &Store) -> Self {
        let read = store.read();
        Self {
            up: read.is_up,
            failure: read.failure.map(|failure| failure.to_string()),
            gateways: read.gateways.into(),
            divisor: read.divisor,
            syncing: read.is_syncing,
            errors: read.errors.iter().map(|(_, count)| count).sum(),
            cached_rejections: read.cached_rejections,
        }
    }
}

impl ConfigState {
    pub(crate) fn of(snapshot: &Snapshot, around: Around<'_>, wall_of_start: Instant) -> Self {
        let edits = around.readiness.edits();
        let started = unix_seconds(wall_of_start);
        let applied = edits.applied.as_ref();
        let changes = applied.and_then(|applied| applied.outcome.as_ref().ok());
        let names = snapshot.listeners.iter();
        let certificates = snapshot.certificates();

        Self {
            flowgate: env!("CARGO_PKG_VERSION").into(),
            version: snapshot.version,
            hash: snapshot.hash.clone(),
            routes: snapshot.file_routes().count(),
            upstreams: snapshot.upstreams.len(),
            listeners: names
                .map(|listener| format!("{} {}", listener.name, listener.listens()))
                .collect(),
            started,
            applied: applied.map_or(started, |applied| unix_seconds(applied.at)),
            changes: changes.cloned().unwrap_or_default(),
            is_behind: edits.recent.back().is_some_and(|last| last.outcome.is_err()),
            rejected: edits.rejected.as_ref().map(RejectedEdit::of),
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

impl RejectedEdit {
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

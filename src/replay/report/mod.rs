//! The report of a replay, counted in bounded memory.

mod against;
mod chart;
mod clients;
mod html;
mod text;

pub(super) use against::{Against, Comparison};
pub(super) use chart::draw;
pub use chart::{Column, Timeline};
pub(crate) use chart::{escaped, escaped_lines};
pub use clients::{RejectedClient, RejectedClients};
pub(super) use html::HtmlReport;
pub(super) use text::write;

use super::{
    engine::{ArrivalResult, Engine},
    event::Arrival,
};
use crate::flow::{
    Algorithm, Instant, Key, Quota, SlotId, Verdict, calendar::Calendar, time::nanos,
};
use clients::{TopKeys, Worst};
use core::time::Duration;
use std::{collections::BTreeMap, sync::Arc};

/// Rejected clients to name per rule.
const MOST_NAMED: usize = 5;

/// Collects the report.
#[derive(Debug)]
pub struct Collector {
    routes: Vec<RouteTally>,
    unreached: BTreeMap<&'static str, u64>,
    span: Option<(Instant, Instant)>,
}

#[derive(Debug)]
struct RouteTally {
    report: RouteReport,
    /// The waits of delayed requests in nanoseconds.
    waits: Vec<u64>,
    rules: Vec<RuleTally>,
}

#[derive(Debug)]
struct RuleTally {
    slot: SlotId,
    /// True for the route's pacing.
    is_pacing: bool,
    /// True if it paces, as a rule or for the route.
    paces: bool,
    report: RuleReport,
    worst: Option<Worst>,
    /// The largest cost that passed.
    costliest: u64,
    keys: TopKeys,
}

/// The report of a replay.
#[derive(Clone, Debug)]
pub struct ReplayReport {
    /// In the order of the file.
    pub routes: Vec<RouteReport>,
    /// Arrivals that reached no route, by reason.
    pub unreached: Vec<(&'static str, u64)>,
    /// The first and the last arrival.
    pub span: Option<(Instant, Instant)>,
}

/// The results of a route.
#[derive(Clone, Debug)]
pub struct RouteReport {
    /// The route's name.
    pub name: String,
    /// Arrivals for this route.
    pub offered: u64,
    /// Arrivals that started at once.
    pub passed: u64,
    /// Arrivals that waited and started.
    pub delayed: u64,
    /// Rejected arrivals by reason.
    pub rejected: BTreeMap<&'static str, u64>,
    /// The median wait of started arrivals.
    pub wait_p50: Duration,
    /// The 99th percentile.
    pub wait_p99: Duration,
    /// The longest wait.
    pub wait_max: Duration,
    /// In the order of the file, then breaker and pacing.
    pub rules: Vec<RuleReport>,
    /// Counts over time.
    pub timeline: Timeline,
}

/// The results of a rule.
#[derive(Clone, Debug, Default)]
pub struct RuleReport {
    /// Its name, with the condition of an override.
    pub name: String,
    /// Requests that it checked.
    pub asked: u64,
    /// Requests that it passed at once, whatever other rules decided.
    pub passed: u64,
    /// Requests that it delayed.
    pub delayed: u64,
    /// Requests that it rejected.
    pub rejected: u64,
    /// Requests that it would have rejected without dry run.
    pub dry_run: u64,
    /// The largest usage, and the limit.
    pub used: (u64, u64),
    /// The most that passed in any window.
    pub worst: Option<WorstReport>,
    /// For a calendar rule, whose windows vary: where `used` was reached.
    pub calendar: Option<CalendarReport>,
    /// The clients that it rejected most often.
    pub keys: RejectedClients,
}

/// The calendar window in which most passed.
#[derive(Clone, Debug)]
pub struct CalendarReport {
    /// Its description, as `month (Europe/Berlin)`.
    pub window: String,
    /// The time when the most was reached.
    pub at: Instant,
    /// The client's key, for a keyed rule.
    pub key: Option<String>,
}

/// The most that passed in any window.
#[derive(Clone, Debug)]
pub struct WorstReport {
    /// The window's length.
    pub window: Duration,
    /// The cost that passed.
    pub measured: u64,
    /// The cost that may pass.
    pub promised: u64,
    /// The end of the window.
    pub at: Instant,
    /// The client's key, for a keyed rule.
    pub key: Option<String>,
    /// True if some clients were not measured.
    pub is_partial: bool,
}

impl CalendarReport {
    fn of(calendar: &Calendar) -> Self {
        Self { window: calendar.name().to_owned(), at: Instant::EPOCH, key: None }
    }
}

impl Collector {
    /// Starts counting the decisions of `engine` at `from`.
    pub fn new(engine: &Engine, from: Instant) -> Self {
        let route = |route: &Arc<crate::config::Route>| {
            let flow = route.flow.flow.iter().zip(&route.rules).map(|(rule, plan)| {
                let promised = rule.algorithm.most_in_a_window();
                let mut tally = RuleTally::new(plan.slot, &rule.name, promised);
                if let Algorithm::FixedWindow(config) = &rule.algorithm {
                    tally.report.calendar = config.align.calendar().map(CalendarReport::of);
                }
                RuleTally { paces: matches!(rule.algorithm, Algorithm::Pacing(_)), ..tally }
            });

            let pacing = route.flow.pacing.as_ref().zip(route.pacing).map(|(pacing, slot)| {
                let promised = (pacing.rate.count() + 1, pacing.rate.window());
                let tally = RuleTally::new(slot, route.rule_name(slot), Some(promised));
                RuleTally { is_pacing: true, paces: true, ..tally }
            });

            let breaker =
                route.breaker.map(|slot| RuleTally::new(slot, route.rule_name(slot), None));

            RouteTally {
                report: RouteReport {
                    name: route.name.to_string(),
                    offered: 0,
                    passed: 0,
                    delayed: 0,
                    rejected: BTreeMap::new(),
                    wait_p50: Duration::ZERO,
                    wait_p99: Duration::ZERO,
                    wait_max: Duration::ZERO,
                    rules: Vec::new(),
                    timeline: Timeline::new(from),
                },
                waits: Vec::new(),
                rules: flow.chain(breaker).chain(pacing).collect(),
            }
        };

        Self {
            routes: engine.snapshot().routes.iter().map(route).collect(),
            unreached: BTreeMap::new(),
            span: None,
        }
    }

    /// Counts the result of an arrival.
    pub fn note(&mut self, engine: &Engine, arrival: &Arrival, result: &ArrivalResult) {
        let (first, last) = self.span.unwrap_or((arrival.at, arrival.at));
        let now = arrival.at.max(last);
        self.span = Some((first, now));

        match result.route {
            Err(reason) => *self.unreached.entry(reason.words()).or_default() += 1,
            Ok(index) => {
                let rules = &engine.snapshot().routes[index].rules;
                let show = |slot| {
                    let rule = rules.iter().find(|rule| rule.slot == slot);
                    rule.map_or_else(String::new, |rule| engine.show_key(arrival, rule))
                };
                self.routes[index].note(result, now, show);
            }
        }
    }

    /// Returns the report.
    pub fn report(self) -> ReplayReport {
        ReplayReport {
            routes: self.routes.into_iter().map(RouteTally::report).collect(),
            unreached: self.unreached.into_iter().collect(),
            span: self.span,
        }
    }
}

impl RouteTally {
    /// Counts an arrival at `now` or earlier, where time has stepped back; `show` returns its key
    /// for a rule.
    fn note(&mut self, result: &ArrivalResult, now: Instant, show: impl Fn(SlotId) -> String) {
        let report = &mut self.report;
        report.offered += 1;
        report.timeline.note(now, result.start.map(|start| start.max(now)));
        match result.start.map(|_| nanos(result.report.wait())) {
            Some(0) => report.passed += 1,
            Some(wait) => {
                report.delayed += 1;
                self.waits.push(wait);
            }
            None => {
                let reason = result.decided.and_then(|decided| decided.decision.reason());
                if let Some(kind) = reason {
                    *report.rejected.entry(kind.word()).or_default() += 1;
                }
            }
        }
        for quota in &result.report.quotas {
            if let Some(rule) = self.rules.iter_mut().find(|rule| rule.slot == quota.slot) {
                rule.note(quota, result, now, || show(quota.slot));
            }
        }
    }

    fn report(mut self) -> RouteReport {
        self.waits.sort_unstable();
        let started = self.report.passed + self.report.delayed;
        // The others did not wait.
        let nth = |part: u64| {
            let rank = (started * part).div_ceil(100).max(1);
            let among = rank.checked_sub(self.report.passed + 1);
            let wait = among.and_then(|at| self.waits.get(usize::try_from(at).ok()?));
            Duration::from_nanos(wait.copied().unwrap_or(0))
        };
        RouteReport {
            wait_p50: nth(50),
            wait_p99: nth(99),
            wait_max: Duration::from_nanos(self.waits.last().copied().unwrap_or(0)),
            rules: self.rules.into_iter().map(RuleTally::report).collect(),
            ..self.report
        }
    }
}

impl RuleTally {
    fn new(slot: SlotId, name: &str, promised: Option<(u64, Duration)>) -> Self {
        let report = |(promised, window)| WorstReport {
            window,
            measured: 0,
            promised,
            at: Instant::EPOCH,
            key: None,
            is_partial: false,
        };
        Self {
            slot,
            is_pacing: false,
            paces: false,
            report: RuleReport {
                name: name.to_owned(),
                worst: promised.map(report),
                ..RuleReport::default()
            },
            worst: promised.map(|(_, window)| Worst::new(window)),
            costliest: 1,
            keys: TopKeys::default(),
        }
    }

    fn note(
        &mut self,
        quota: &Quota,
        result: &ArrivalResult,
        now: Instant,
        show: impl Fn() -> String,
    ) {
        let claim = result.claims.iter().find(|claim| claim.slot == self.slot);
        let key = claim.map_or(Key::Shared, |claim| claim.key);

        let report = &mut self.report;
        report.asked += 1;
        match quota.verdict {
            Verdict::Passed => report.passed += 1,
            Verdict::Delayed => report.delayed += 1,
            Verdict::DryRunRejected(_) => report.dry_run += 1,
            Verdict::Rejected(_) => {}
        }

        if let Some(start) = result.start {
            if quota.used > report.used.0 {
                report.used = (quota.used, quota.limit);
                if let Some(calendar) = &mut report.calendar {
                    calendar.at = now;
                    calendar.key = (key != Key::Shared).then(&show);
                }
            }

            if !matches!(quota.verdict, Verdict::DryRunRejected(_))
                && let Some(worst) = &mut self.worst
            {
                // Pacing limits starts; a loan counts in the window that it is taken from, which
                // opens when the rule's own wait ends.
                let at = if self.is_pacing { start.max(now) } else { now + quota.wait };
                worst.note(now, at, key, quota.cost, show);
                self.costliest = self.costliest.max(quota.cost);
            }
        } else if result.rule() == Some(self.slot) {
            report.rejected += 1;
            self.keys.note(key, show);
        }
    }

    fn report(mut self) -> RuleReport {
        if let Some(worst) = &mut self.worst {
            worst.settle(Instant::FAR_FUTURE);
        }
        let keys = self.keys.top(MOST_NAMED);
        // Starts are paced by the costs before them, so that a window's last cost counts in full.
        let whole_last = if self.paces { self.costliest - 1 } else { 0 };
        let measured = |report: WorstReport, worst: Worst| WorstReport {
            window: worst.window(),
            measured: worst.most,
            promised: report.promised.saturating_add(whole_last),
            at: worst.at,
            key: Some(worst.key_text).filter(|key| !key.is_empty()),
            is_partial: worst.is_partial,
        };
        let worst =
            self.report.worst.zip(self.worst).map(|(report, worst)| measured(report, worst));
        RuleReport { worst, keys, ..self.report }
    }
}

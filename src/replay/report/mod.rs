//! What a replay came to: counted on the way, in bounded memory, and reported at the end.

mod html;
mod keys;
mod svg;
mod text;
mod timeline;
mod worst;

pub(super) use html::Page;
pub use keys::{RejectedKey, RejectedKeys};
pub(super) use svg::draw;
pub(crate) use svg::{escaped, escaped_lines};
pub(super) use text::write;
pub use timeline::{Column, Timeline};

use super::{
    engine::{Engine, Ruling},
    event::Arrival,
};
use crate::flow::{
    Algorithm, Instant, Key, Quota, SlotId, Verdict, calendar::Calendar, time::nanos,
};
use core::time::Duration;
use keys::TopKeys;
use std::collections::BTreeMap;
use worst::Worst;

/// How many clients are named of those that a rule rejected.
const MOST_NAMED: usize = 5;

/// Counts while arrivals are decided.
#[derive(Debug)]
pub struct Collector {
    routes: Vec<RouteTally>,
    unreached: BTreeMap<&'static str, u64>,
    span: Option<(Instant, Instant)>,
}

#[derive(Debug)]
struct RouteTally {
    told: RouteReport,
    /// Of requests that waited, in nanoseconds.
    waits: Vec<u64>,
    rules: Vec<RuleTally>,
}

#[derive(Debug)]
struct RuleTally {
    slot: SlotId,
    /// Whether it is the route's own pacing.
    is_pacing: bool,
    /// Whether it paces, as a rule or as the route's own.
    paces: bool,
    told: RuleReport,
    worst: Option<Worst>,
    /// The largest cost that passed.
    costliest: u64,
    keys: TopKeys,
}

/// What a replay came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// In the order of the file.
    pub routes: Vec<RouteReport>,
    /// Arrivals that reached no route, by reason.
    pub unreached: Vec<(&'static str, u64)>,
    /// The first arrival and the last.
    pub span: Option<(Instant, Instant)>,
}

/// What came of a route's arrivals.
#[derive(Clone, Debug)]
pub struct RouteReport {
    /// Its name.
    pub name: String,
    /// Arrivals.
    pub offered: u64,
    /// Those that started at once.
    pub passed: u64,
    /// Those that waited and started.
    pub delayed: u64,
    /// Those that were rejected, by the reason's word.
    pub rejected: BTreeMap<&'static str, u64>,
    /// The half of those that started waited no longer.
    pub wait_p50: Duration,
    /// 99 of 100 waited no longer.
    pub wait_p99: Duration,
    /// The longest wait.
    pub wait_max: Duration,
    /// In the order of the file; the breaker and the pacing last.
    pub rules: Vec<RuleReport>,
    /// What happened when.
    pub timeline: Timeline,
}

/// What a rule decided.
#[derive(Clone, Debug, Default)]
pub struct RuleReport {
    /// Its name; of an override the rule's, and when it is asked instead.
    pub name: String,
    /// Requests that it was asked about.
    pub asked: u64,
    /// Requests that it let pass at once, whatever other rules said.
    pub passed: u64,
    /// Requests that it made wait.
    pub delayed: u64,
    /// Requests whose rejection was its own.
    pub rejected: u64,
    /// Requests that it would have rejected, were it not a dry run.
    pub dry_run: u64,
    /// The most of its limit that was in use, and the limit.
    pub used: (u64, u64),
    /// The most that it let pass in any window.
    pub worst: Option<WorstReport>,
    /// Where `used` was, of a rule that counts by a calendar, whose windows differ in length.
    pub calendar: Option<CalendarReport>,
    /// Whom it rejected most often.
    pub keys: RejectedKeys,
}

/// The window of a calendar in which most passed.
#[derive(Clone, Debug)]
pub struct CalendarReport {
    /// What it is called, as `month (Europe/Berlin)`.
    pub window: String,
    /// When the last of it passed.
    pub at: Instant,
    /// Whose it was, for a keyed rule.
    pub key: Option<String>,
}

/// The most that passed in any window.
#[derive(Clone, Debug)]
pub struct WorstReport {
    /// The window.
    pub window: Duration,
    /// What passed.
    pub measured: u64,
    /// What may.
    pub promised: u64,
    /// When the window ended.
    pub at: Instant,
    /// Whose it was, for a keyed rule.
    pub key: Option<String>,
    /// Whether some clients were not measured.
    pub is_partial: bool,
}

impl CalendarReport {
    fn of(calendar: &Calendar) -> Self {
        Self { window: calendar.name().to_owned(), at: Instant::EPOCH, key: None }
    }
}

impl Collector {
    /// Begins to count what `engine` decides from `from` on.
    pub fn new(engine: &Engine, from: Instant) -> Self {
        let route = |route: &std::sync::Arc<crate::config::Route>| {
            let flow = route.flow.flow.iter().zip(&route.rules).map(|(rule, plan)| {
                let promised = rule.algorithm.most_in_a_window();
                let mut tally = RuleTally::new(plan.slot, &rule.name, promised);
                if let Algorithm::FixedWindow(config) = &rule.algorithm {
                    tally.told.calendar = config.align.calendar().map(CalendarReport::of);
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
                told: RouteReport {
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

    /// Counts what became of an arrival.
    pub fn note(&mut self, engine: &Engine, arrival: &Arrival, ruling: &Ruling) {
        let (first, last) = self.span.unwrap_or((arrival.at, arrival.at));
        let now = arrival.at.max(last);
        self.span = Some((first, now));
        match ruling.route {
            Err(reason) => *self.unreached.entry(reason.words()).or_default() += 1,
            Ok(index) => {
                let rules = &engine.snapshot().routes[index].rules;
                let show = |slot| {
                    let rule = rules.iter().find(|rule| rule.slot == slot);
                    rule.map_or_else(String::new, |rule| engine.show_key(arrival, rule))
                };
                self.routes[index].note(ruling, now, show);
            }
        }
    }

    /// Adds up.
    pub fn report(self) -> Report {
        Report {
            routes: self.routes.into_iter().map(RouteTally::report).collect(),
            unreached: self.unreached.into_iter().collect(),
            span: self.span,
        }
    }
}

impl RouteTally {
    /// Counts what became of an arrival at `now`, or earlier where time has stepped back;
    /// `show` shows its key for a rule.
    fn note(&mut self, ruling: &Ruling, now: Instant, show: impl Fn(SlotId) -> String) {
        let told = &mut self.told;
        told.offered += 1;
        told.timeline.note(now, ruling.start.map(|start| start.max(now)));
        match ruling.start.map(|_| nanos(ruling.report.wait())) {
            Some(0) => told.passed += 1,
            Some(wait) => {
                told.delayed += 1;
                self.waits.push(wait);
            }
            None => {
                let reason = ruling.decided.and_then(|decided| decided.decision.reason());
                if let Some(kind) = reason {
                    *told.rejected.entry(kind.word()).or_default() += 1;
                }
            }
        }
        for quota in &ruling.report.quotas {
            if let Some(rule) = self.rules.iter_mut().find(|rule| rule.slot == quota.slot) {
                rule.note(quota, ruling, now, || show(quota.slot));
            }
        }
    }

    fn report(mut self) -> RouteReport {
        self.waits.sort_unstable();
        let started = self.told.passed + self.told.delayed;
        // The others did not wait.
        let nth = |part: u64| {
            let rank = (started * part).div_ceil(100).max(1);
            let among = rank.checked_sub(self.told.passed + 1);
            let wait = among.and_then(|at| self.waits.get(usize::try_from(at).ok()?));
            Duration::from_nanos(wait.copied().unwrap_or(0))
        };
        RouteReport {
            wait_p50: nth(50),
            wait_p99: nth(99),
            wait_max: Duration::from_nanos(self.waits.last().copied().unwrap_or(0)),
            rules: self.rules.into_iter().map(RuleTally::report).collect(),
            ..self.told
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
            told: RuleReport {
                name: name.to_owned(),
                worst: promised.map(report),
                ..RuleReport::default()
            },
            worst: promised.map(|(_, window)| Worst::new(window)),
            costliest: 1,
            keys: TopKeys::default(),
        }
    }

    /// Counts what the rule said, and what came of it.
    fn note(&mut self, quota: &Quota, ruling: &Ruling, now: Instant, show: impl Fn() -> String) {
        let claim = ruling.claims.iter().find(|claim| claim.slot == self.slot);
        let key = claim.map_or(Key::Shared, |claim| claim.key);
        let told = &mut self.told;
        told.asked += 1;
        match quota.verdict {
            Verdict::Passed => told.passed += 1,
            Verdict::Delayed => told.delayed += 1,
            Verdict::DryRunRejected(_) => told.dry_run += 1,
            Verdict::Rejected(_) => {}
        }
        if let Some(start) = ruling.start {
            if quota.used > told.used.0 {
                told.used = (quota.used, quota.limit);
                if let Some(calendar) = &mut told.calendar {
                    calendar.at = now;
                    calendar.key = (key != Key::Shared).then(&show);
                }
            }
            if !matches!(quota.verdict, Verdict::DryRunRejected(_))
                && let Some(worst) = &mut self.worst
            {
                // What a pacing promises is said of starts; a loan counts in the window
                // that it is taken from, which opens when the rule's own wait ends.
                let at = if self.is_pacing { start.max(now) } else { now + quota.wait };
                worst.note(now, at, (key, quota.cost), show);
                self.costliest = self.costliest.max(quota.cost);
            }
        } else if ruling.rule() == Some(self.slot) {
            told.rejected += 1;
            self.keys.note(key, show);
        }
    }

    fn report(mut self) -> RuleReport {
        if let Some(worst) = &mut self.worst {
            worst.settle(Instant::FAR_FUTURE);
        }
        let keys = self.keys.top(MOST_NAMED);
        // Starts are paced by what those before cost, so that of a window's last one all counts.
        let whole_last = if self.paces { self.costliest - 1 } else { 0 };
        let measured = |told: WorstReport, worst: Worst| WorstReport {
            window: worst.window(),
            measured: worst.most,
            promised: told.promised.saturating_add(whole_last),
            at: worst.at,
            key: Some(worst.whose).filter(|key| !key.is_empty()),
            is_partial: worst.is_partial,
        };
        let worst = self.told.worst.zip(self.worst).map(|(told, worst)| measured(told, worst));
        RuleReport { worst, keys, ..self.told }
    }
}

//! A decision of flow control, as the access log and `replay` show it.

use super::{FlowRecord, LoggedKey};
use crate::{
    config::Route,
    flow::{Quota, ReasonKind, Rejection, Report, SlotId, Verdict},
};
use core::time::Duration;

/// The kind of a decision, in the words of logs, metrics and reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DecisionKind {
    /// It started at once.
    Passed,
    /// It passed after a wait.
    Delayed,
    /// It was rejected.
    Rejected(ReasonKind),
}

impl DecisionKind {
    /// Returns its word: `passed`, `delayed` or `rejected`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Delayed => "delayed",
            Self::Rejected(_) => "rejected",
        }
    }

    /// Returns the reason of a rejection.
    pub const fn reason(self) -> Option<ReasonKind> {
        match self {
            Self::Passed | Self::Delayed => None,
            Self::Rejected(kind) => Some(kind),
        }
    }
}

/// A decision with the one rule to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionRecord {
    /// The decision.
    pub decision: DecisionKind,
    /// That rule's quota; `None` if no rule with a limit passed the request. Rules in dry run do not
    /// decide.
    pub quota: Option<Quota>,
    /// The first rule that would have rejected the request, were it not in dry run.
    pub dry_run: Option<SlotId>,
    /// The delay of the request, or how long it waited in vain.
    pub wait: Duration,
    /// Time until a retry can succeed.
    pub retry_after: Option<Duration>,
}

impl DecisionRecord {
    /// Returns an admission by `route` with the tightest rule that passed it: see [`Quota::tightness`].
    pub fn admitted(report: &Report, route: &Route) -> Self {
        let decides = |quota: &&Quota| counts(quota) && !route.is_dry_run(quota.slot);
        let tightest = report.quotas.iter().filter(decides).min_by_key(|quota| quota.tightness());
        let wait = report.wait();
        let decision = if wait.is_zero() { DecisionKind::Passed } else { DecisionKind::Delayed };
        Self {
            decision,
            quota: tightest.copied(),
            dry_run: dry_run(report),
            wait,
            retry_after: None,
        }
    }

    /// Returns a rejection with the rule that decided.
    pub fn rejected(rejection: &Rejection) -> Self {
        let quotas = &rejection.report.quotas;
        let kind = rejection.reason.kind();
        let blank = Quota {
            slot: rejection.slot,
            verdict: Verdict::Rejected(kind),
            limit: 0,
            used: 0,
            cost: 0,
            plan: None,
            wait: Duration::ZERO,
            reset: Duration::ZERO,
            growth: None,
        };

        let decisive = quotas.iter().find(|quota| quota.slot == rejection.slot);
        let decisive = decisive.copied().unwrap_or(blank);
        Self {
            decision: DecisionKind::Rejected(kind),
            quota: Some(decisive),
            dry_run: dry_run(&rejection.report),
            wait: decisive.wait,
            retry_after: rejection.reason.retry_after(),
        }
    }

    /// Returns the log's record for a request of `route`.
    pub fn record<'a>(&self, route: Option<&'a Route>, keys: &'a [LoggedKey]) -> FlowRecord<'a> {
        let counted = self.quota.filter(counts);
        FlowRecord {
            decision: self.decision.word(),
            reason: self.decision.reason().map(ReasonKind::word),
            rule: self.quota.zip(route).map(|(quota, route)| route.rule_name(quota.slot)),
            dry_run: self.dry_run.zip(route).map(|(slot, route)| route.rule_name(slot)),
            limit: counted.map(|quota| quota.limit),
            used: counted.map(|quota| quota.used),
            cost: self.quota.map(|quota| quota.cost),
            reserved: &[],
            charges: &[],
            settled: &[],
            wait: self.wait,
            left: false,
            retry_after: self.retry_after,
            keys,
            priority: keys,
            plans: keys,
            sharers: &[],
            limits: &[],
            limit_changes: &[],
        }
    }
}

/// Returns the first rule that would have rejected the request, were it not in dry run.
fn dry_run(report: &Report) -> Option<SlotId> {
    let would_reject = |quota: &&Quota| matches!(quota.verdict, Verdict::DryRunRejected(_));
    report.quotas.iter().find(would_reject).map(|quota| quota.slot)
}

/// Returns whether a rule has a limit, which a breaker has not.
const fn counts(quota: &Quota) -> bool {
    quota.limit > 0
}

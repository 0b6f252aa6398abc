//! What flow control decided about one request, as the access log and `replay` show it.

use super::{FlowRecord, LoggedKey};
use crate::{
    config::Route,
    flow::{Quota, ReasonKind, Rejection, Report, Verdict},
};
use core::time::Duration;

/// What was decided about a request, in the words of logs, metrics and reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Decision {
    /// It starts at once.
    Passed,
    /// It starts after a wait.
    Delayed,
    /// It does not start.
    Rejected(ReasonKind),
}

impl Decision {
    /// Returns its word: `passed`, `delayed` or `rejected`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Delayed => "delayed",
            Self::Rejected(_) => "rejected",
        }
    }

    /// Returns why it was rejected, if it was.
    pub const fn reason(self) -> Option<ReasonKind> {
        match self {
            Self::Passed | Self::Delayed => None,
            Self::Rejected(kind) => Some(kind),
        }
    }
}

/// A decision, reduced to the rule that it hangs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided {
    /// What was decided.
    pub decision: Decision,
    /// Where that rule stands; `None` if no rule that counts let the request pass, as where
    /// all are in dry run, or there is none.
    pub quota: Option<Quota>,
    /// How long the request is held.
    pub wait: Duration,
    /// When to come back.
    pub retry_after: Option<Duration>,
}

impl Decided {
    /// Returns an admission and the tightest rule of those that let the request pass: see
    /// [`Quota::tightness`].
    pub fn admitted(report: &Report) -> Self {
        let passed =
            |quota: &&Quota| counts(quota) && !matches!(quota.verdict, Verdict::DryRunRejected(_));
        let tightest = report.quotas.iter().filter(passed).min_by_key(|quota| quota.tightness());
        let wait = report.wait();
        let decision = if wait.is_zero() { Decision::Passed } else { Decision::Delayed };
        Self { decision, quota: tightest.copied(), wait, retry_after: None }
    }

    /// Returns a rejection and the rule that decided.
    pub fn rejected(rejection: &Rejection) -> Self {
        let quotas = &rejection.report.quotas;
        let kind = rejection.reason.kind();
        let blank = Quota {
            slot: rejection.slot,
            verdict: Verdict::Rejected(kind),
            limit: 0,
            used: 0,
            cost: 0,
            wait: Duration::ZERO,
            reset: Duration::ZERO,
        };
        Self {
            decision: Decision::Rejected(kind),
            quota: quotas.iter().find(|it| it.slot == rejection.slot).copied().or(Some(blank)),
            wait: Duration::ZERO,
            retry_after: rejection.reason.retry_after(),
        }
    }

    /// Returns the decision in the words of the log, of a request of `route`.
    pub fn record<'a>(&self, route: Option<&'a Route>, keys: &'a [LoggedKey]) -> FlowRecord<'a> {
        let counted = self.quota.filter(counts);
        FlowRecord {
            decision: self.decision.word(),
            reason: self.decision.reason().map(ReasonKind::word),
            rule: self.quota.zip(route).map(|(quota, route)| route.rule_name(quota.slot)),
            limit: counted.map(|quota| quota.limit),
            used: counted.map(|quota| quota.used),
            cost: self.quota.map(|quota| quota.cost),
            wait: self.wait,
            retry_after: self.retry_after,
            keys,
            priority: keys,
        }
    }
}

/// Whether a rule has a number that something is used of, which a breaker has not.
const fn counts(quota: &Quota) -> bool {
    quota.limit > 0
}

//! What flow control decided about one request, as the access log and `replay` tell it.

use super::{FlowRecord, LoggedKey};
use crate::{
    config::Route,
    flow::{Quota, Reason, Rejection, Report, Verdict},
};
use core::time::Duration;

/// A decision, reduced to the rule that it hangs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided {
    /// One of the words of `flowgate_flow_decisions_total`.
    pub verdict: &'static str,
    /// Where that rule stands; `None` if no rule that counts let the request pass, as where
    /// all are in dry run, or there is none.
    pub quota: Option<Quota>,
    /// How long the request is held.
    pub wait: Duration,
    /// When to come back.
    pub retry_after: Option<Duration>,
}

impl Decided {
    /// Returns an admission and the rule that has least left, of those that let the
    /// request pass.
    pub fn admitted(report: &Report) -> Self {
        let passed = |quota: &&Quota| counts(quota) && quota.verdict != Verdict::DryRunBlock;
        let tightest = report.quotas.iter().filter(passed).min_by_key(|quota| quota.remaining());
        let wait = report.wait();
        let verdict = if wait.is_zero() { "passed" } else { "delayed" };
        Self { verdict, quota: tightest.copied(), wait, retry_after: None }
    }

    /// Returns a refusal and the rule that it came from.
    pub fn rejected(rejection: &Rejection) -> Self {
        let quotas = &rejection.report.quotas;
        let blank = Quota {
            slot: rejection.slot,
            verdict: Verdict::Block,
            limit: 0,
            used: 0,
            cost: 0,
            wait: Duration::ZERO,
            reset: Duration::ZERO,
        };
        Self {
            verdict: word(rejection.reason),
            quota: quotas.iter().find(|it| it.slot == rejection.slot).copied().or(Some(blank)),
            wait: Duration::ZERO,
            retry_after: rejection.reason.retry_after(),
        }
    }

    /// Returns the decision in the words of the log, of a request of `route`.
    pub fn record<'a>(&self, route: Option<&'a Route>, keys: &'a [LoggedKey]) -> FlowRecord<'a> {
        let counted = self.quota.filter(counts);
        FlowRecord {
            verdict: self.verdict,
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

/// The word of a refusal: a client's own quota, what protects the service, or what
/// spares one that fails.
const fn word(reason: Reason) -> &'static str {
    match reason {
        Reason::Rate { .. }
        | Reason::TooCostly { .. }
        | Reason::MissingKey
        | Reason::Undecided { .. } => "rejected",
        Reason::Concurrency { .. } | Reason::QueueFull { .. } | Reason::QueueWait { .. } => "shed",
        Reason::Broken { .. } => "broken",
    }
}

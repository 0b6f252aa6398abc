//! The slots' results for one request, before any is charged.

use super::slots::ChainSlot;
use crate::flow::{
    decision::{Claim, Decision, Quota, Reason, Verdict},
    keyed::{KeySlot, Lookup},
    limiter::{QuotaUsage, Usage},
    slot::SlotAnswer,
    time::Instant,
};
use core::time::Duration;
use smallvec::SmallVec;

pub(super) struct SlotResult<'a> {
    pub(super) index: usize,
    pub(super) claim: &'a Claim,
    pub(super) verdict: Verdict,
    pub(super) wait: Duration,
    pub(super) lookup: Lookup,
    /// Whether a grant admits what the rule would reject.
    pub(super) is_granted: bool,
}

pub(super) struct Evaluation<'a> {
    pub(super) results: SmallVec<[SlotResult<'a>; 4]>,
    pub(super) now: Instant,
    pub(super) start: Instant,
    /// An index of `results`, and the reason.
    pub(super) rejection: Option<(usize, Reason)>,
    /// Whether the route's statistics count the request.
    pub(super) is_counted: bool,
}

impl<'a> Evaluation<'a> {
    pub(super) fn new(now: Instant) -> Self {
        Self { results: SmallVec::new(), now, start: now, rejection: None, is_counted: true }
    }

    /// Checks a slot that was [prepared](crate::flow::slot::Retune::prepare), with the state that
    /// this returned.
    pub(super) fn check(
        &mut self,
        at: usize,
        entry: &ChainSlot,
        claim: &'a Claim,
        known: Option<KeySlot>,
    ) {
        let now = self.now;
        let SlotAnswer { decision, lookup } = entry.slot.check(now, claim, known, &entry.pending);
        let is_granted = matches!(decision, Decision::Reject(_)) && entry.grants.admit(claim, now);
        let (verdict, wait) = match decision {
            Decision::Reject(_) if is_granted => (Verdict::Passed, Duration::ZERO),
            Decision::Pass => (Verdict::Passed, Duration::ZERO),
            // A dry run charges but does not delay.
            Decision::Delay(wait) if entry.wanted.is_dry_run() => (Verdict::Passed, wait),
            Decision::Delay(wait) => {
                self.start = self.start.max(now + wait);
                (Verdict::Delayed, wait)
            }
            Decision::Reject(reason) if entry.wanted.is_dry_run() => {
                (Verdict::DryRunRejected(reason.kind()), Duration::ZERO)
            }
            Decision::Reject(reason) => {
                self.reject(self.results.len(), reason);
                (Verdict::Rejected(reason.kind()), Duration::ZERO)
            }
        };
        let result = SlotResult { index: at, claim, verdict, wait, lookup, is_granted };
        self.results.push(result);
    }

    fn reject(&mut self, at: usize, reason: Reason) {
        if self.rejection.is_none_or(|(_, first)| reason.outranks(first)) {
            self.rejection = Some((at, reason));
        }
    }
}

impl SlotResult<'_> {
    /// Returns the record of this result.
    pub(super) fn quota(&self, limit: u64, usage: Usage) -> Quota {
        self.quota_with_growth(limit, QuotaUsage { usage, growth: None })
    }

    /// Returns the record of this result for a request that is admitted.
    pub(super) fn quota_with_growth(&self, limit: u64, usage: QuotaUsage) -> Quota {
        let QuotaUsage { usage: Usage { used, reset }, growth } = usage;
        let &Self { claim: &Claim { slot, cost, .. }, verdict, wait, .. } = self;
        // The claimed slot, which may be a previous one: the claimant knows the rule by it.
        Quota { slot, verdict, limit, used, cost, wait, reset, growth }
    }
}

//! What the slots say of one request, before any is told.

use super::slots::ChainSlot;
use crate::flow::{
    claim::Claim,
    decision::{Decision, Quota, Reason, Verdict},
    keyed::Lookup,
    slot::Answer,
    time::Instant,
    traits::Usage,
};
use core::time::Duration;
use smallvec::SmallVec;

/// A slot that was asked: which link, by which claim, what it said and where the state
/// lies that it judged by.
pub(super) struct SlotResult<'a> {
    pub(super) link: usize,
    pub(super) claim: &'a Claim,
    pub(super) verdict: Verdict,
    pub(super) wait: Duration,
    pub(super) place: Lookup,
}

/// The answers of all the slots, as they come in.
pub(super) struct Evaluation<'a> {
    pub(super) asked: SmallVec<[SlotResult<'a>; 4]>,
    /// When they are asked, in the chain's time.
    pub(super) now: Instant,
    pub(super) start: Instant,
    /// Which of `asked`, and why.
    pub(super) rejection: Option<(usize, Reason)>,
}

impl<'a> Evaluation<'a> {
    pub(super) fn new(now: Instant) -> Self {
        Self { asked: SmallVec::new(), now, start: now, rejection: None }
    }

    pub(super) fn note(&mut self, at: usize, link: &ChainSlot, claim: &'a Claim) {
        let now = self.now;
        let Answer { decision, place } = link.slot.check(now, claim, &link.pending);
        let (verdict, wait) = match decision {
            Decision::Pass => (Verdict::Passed, Duration::ZERO),
            // It charges what it would in earnest, and no request waits for that.
            Decision::Delay(wait) if link.wanted.is_dry_run() => (Verdict::Passed, wait),
            Decision::Delay(wait) => {
                self.start = self.start.max(now + wait);
                (Verdict::Delayed, wait)
            }
            Decision::Reject(reason) if link.wanted.is_dry_run() => {
                (Verdict::DryRunRejected(reason.kind()), Duration::ZERO)
            }
            Decision::Reject(reason) => {
                self.reject(self.asked.len(), reason);
                (Verdict::Rejected(reason.kind()), Duration::ZERO)
            }
        };
        self.asked.push(SlotResult { link: at, claim, verdict, wait, place });
    }

    fn reject(&mut self, at: usize, reason: Reason) {
        if self.rejection.is_none_or(|(_, first)| reason.outranks(first)) {
            self.rejection = Some((at, reason));
        }
    }
}

impl SlotResult<'_> {
    /// Returns the record of what this slot said, now that it has the `standing`.
    pub(super) fn quota(&self, limit: u64, Usage { used, reset }: Usage) -> Quota {
        let &Self { claim: &Claim { slot, cost, .. }, verdict, wait, .. } = self;
        // The slot as claimed, since who claims a former one knows the rule by that.
        Quota { slot, verdict, limit, used, cost, wait, reset }
    }
}

//! What a decision would be, without the decision.

use super::{
    Chain,
    evaluation::{Evaluation, SlotResult},
    slots::ChainSlot,
};
use crate::flow::{
    decision::{Claim, Quota, Rejection, Report, Verdict},
    limiter::Times,
    time::Instant,
};

impl Chain {
    /// Returns what [`enter`](Self::enter) would decide about a request at `now`, and what it
    /// would report.
    ///
    /// No later decision depends on it: nothing is charged, the chain's time stays as it is, and
    /// what [`check_all`](Self::check_all) prepares is made anew for each request.
    ///
    /// # Errors
    ///
    /// The rejection.
    #[expect(clippy::result_large_err, reason = "as that of `Gate::enter`")]
    pub(in crate::flow) fn peek(
        &mut self,
        now: Instant,
        claims: &[Claim],
    ) -> Result<Report, Rejection> {
        let now = now.max(self.latest);
        let mut evaluation = Evaluation::new(now);
        self.check_all(claims, &mut evaluation);
        let is_passed = evaluation.rejection.is_none();
        let quotas = evaluation.results.iter();
        let quotas = quotas.map(|result| self.quota(result, &evaluation, is_passed)).collect();
        let report = Report { quotas, transition: None };
        match evaluation.rejection {
            None => Ok(report),
            Some((at, reason)) => {
                let claim = evaluation.results[at].claim;
                Err(Rejection { slot: claim.slot, key: Some(claim.key), reason, report })
            }
        }
    }

    /// Returns a slot's part. `is_passed`: whether all let the request pass, which then counts.
    fn quota(
        &self,
        result: &SlotResult<'_>,
        evaluation: &Evaluation<'_>,
        is_passed: bool,
    ) -> Quota {
        let &Evaluation { now, start, .. } = evaluation;
        let &SlotResult { index, claim, verdict, wait, lookup, is_granted } = result;
        let ChainSlot { slot, .. } = &self.slots[index];
        let is_counted = matches!(verdict, Verdict::Passed | Verdict::Delayed);
        if is_passed && is_counted && !is_granted && claim.cost > 0 {
            let times = Times { now, own: now + wait, start };
            result.quota_with_growth(slot.limit(), slot.usage_after(times, claim.cost, lookup))
        } else if is_passed {
            result.quota_with_growth(slot.limit(), slot.usage_and_growth(now, claim.cost, lookup))
        } else {
            result.quota(slot.limit(), slot.usage(now, lookup))
        }
    }
}

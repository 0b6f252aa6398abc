//! A decision in two steps, with a call to the store in between.

use super::{
    Chain, Charged, RejectedBy,
    evaluation::{Evaluation, SlotResult},
    slots::ChainSlot,
};
use crate::flow::{
    decision::{Claim, Key, Quota, Reason, Report, SlotId, Verdict},
    pending::{Pending, Ticket},
    time::Instant,
};
use core::time::Duration;
use smallvec::SmallVec;

/// A request that passed every slot here and is not charged yet.
#[derive(Debug, Default)]
pub(in crate::flow) struct Reserved {
    ticket: Ticket,
    claims: SmallVec<[ReservedClaim; 4]>,
}

/// One slot's part.
#[derive(Clone, Copy, Debug)]
struct ReservedClaim {
    claim: Claim,
    verdict: Verdict,
    /// Whether it has spent of a grant.
    is_granted: bool,
}

#[derive(Clone, Copy, Debug)]
pub(in crate::flow) struct StoreRejection<'a> {
    pub(in crate::flow) slot: SlotId,
    /// `None`: no key is to blame, as the store fails.
    pub(in crate::flow) key: Option<Key>,
    pub(in crate::flow) reason: Reason,
    pub(in crate::flow) quotas: &'a [Quota],
}

impl Chain {
    /// Reserves room for a request at `now`: until it is [confirmed](Self::confirm) or
    /// [abandoned](Self::abandon), others are decided as if it had been charged.
    ///
    /// # Errors
    ///
    /// The reason of the rejection; nothing is reserved.
    pub(in crate::flow) fn reserve(
        &mut self,
        now: Instant,
        claims: &[Claim],
        report: &mut Report,
    ) -> Result<Reserved, RejectedBy> {
        // A request that is charged later borrows nothing.
        let claims: SmallVec<[Claim; 4]> =
            claims.iter().map(|claim| Claim { patience: Duration::ZERO, ..*claim }).collect();
        let mut evaluation = Evaluation::new(self.clamp(now));
        self.check_all(&claims, &mut evaluation);
        if let Some(blame) = evaluation.rejection {
            return Err(self.reject(&evaluation, blame, report));
        }
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        let mut granted = SmallVec::new();
        for result in &evaluation.results {
            let &SlotResult { index, claim: &claim, verdict, lookup, is_granted, .. } = result;
            if is_granted {
                self.slots[index].grants.spend(&claim);
            } else if claim.cost > 0 && matches!(verdict, Verdict::Passed | Verdict::Delayed) {
                let Claim { key, cost, .. } = claim;
                self.slots[index].pending.add(Pending { ticket, key, lookup, cost });
            }
            granted.push(ReservedClaim { claim, verdict, is_granted });
        }
        Ok(Reserved { ticket, claims: granted })
    }

    pub(in crate::flow) fn abandon(&mut self, reserved: &Reserved) {
        for entry in &mut self.slots {
            if !entry.pending.is_empty() {
                entry.pending.remove(reserved.ticket);
            }
        }
        for reserved in reserved.claims.iter().filter(|claim| claim.is_granted) {
            let claim = core::slice::from_ref(&reserved.claim);
            let entry = self.slots.iter_mut().find(|entry| entry.claim_in(claim).is_some());
            if let Some(entry) = entry {
                entry.grants.give_back(&reserved.claim);
            }
        }
    }

    /// Charges a reserved request. `elsewhere` are the decisions of rules in the store, each under
    /// its slot here, where it is only counted.
    pub(in crate::flow) fn confirm(
        &mut self,
        now: Instant,
        reserved: &Reserved,
        elsewhere: &[Quota],
        report: &mut Report,
    ) -> Charged {
        self.abandon(reserved);
        let claims = reserved.claims();
        let now = self.arrive(now, &claims);
        let mut evaluation = self.reevaluate(now, reserved, &claims);
        for quota in elsewhere {
            evaluation.start = evaluation.start.max(now + quota.wait);
            self.count(quota.slot, quota.verdict);
        }
        let charged = self.pass(&evaluation, report);
        report.quotas.extend_from_slice(elsewhere);
        charged
    }

    /// Rejects a reserved request because the store did; nothing is charged.
    pub(in crate::flow) fn reject_by_store(
        &mut self,
        now: Instant,
        reserved: &Reserved,
        elsewhere: &StoreRejection<'_>,
        report: &mut Report,
    ) -> RejectedBy {
        self.abandon(reserved);
        let claims = reserved.claims();
        let now = self.arrive(now, &claims);
        let evaluation = self.reevaluate(now, reserved, &claims);
        self.record_rejection(&evaluation, report);
        let StoreRejection { slot, key, reason, quotas } = *elsewhere;
        match (self.current(slot), key) {
            (Some(entry), Some(key)) => entry.on_reject(reason.kind(), key, now),
            (Some(entry), None) => entry.counts.rejected.add(reason.kind()),
            (None, _) => {}
        }
        report.quotas.extend_from_slice(quotas);
        RejectedBy { slot, key, reason }
    }

    /// Returns the results at the reservation, as of `now`.
    fn reevaluate<'a>(
        &self,
        now: Instant,
        reserved: &Reserved,
        claims: &'a [Claim],
    ) -> Evaluation<'a> {
        let mut evaluation = Evaluation::new(now);
        for (claim, granted) in claims.iter().zip(&reserved.claims) {
            let is_of_it =
                |entry: &ChainSlot| entry.claim_in(core::slice::from_ref(claim)).is_some();
            // An edit may have removed the slot since.
            let Some(at) = self.slots.iter().position(is_of_it) else { continue };
            let ChainSlot { slot, wanted, .. } = &self.slots[at];
            let (lookup, due) = slot.due(now, claim);
            let (verdict, wait) = match granted.verdict {
                Verdict::Passed | Verdict::Delayed if due <= now || granted.is_granted => {
                    (Verdict::Passed, Duration::ZERO)
                }
                Verdict::Passed | Verdict::Delayed if wanted.is_dry_run() => {
                    (Verdict::Passed, due.since(now))
                }
                Verdict::Passed | Verdict::Delayed => {
                    evaluation.start = evaluation.start.max(due);
                    (Verdict::Delayed, due.since(now))
                }
                Verdict::Rejected(_) | Verdict::DryRunRejected(_) => {
                    (granted.verdict, Duration::ZERO)
                }
            };
            let is_granted = granted.is_granted;
            let result = SlotResult { index: at, claim, verdict, wait, lookup, is_granted };
            evaluation.results.push(result);
        }
        evaluation
    }

    /// Returns the slot, or the one that it was reset to.
    fn current(&mut self, slot: SlotId) -> Option<&mut ChainSlot> {
        self.slots.iter_mut().find(|entry| entry.id == slot || entry.previous == Some(slot))
    }

    /// Counts for its key that a dry run in the store would have rejected a request.
    pub(in crate::flow) fn note_rejected_key(&mut self, slot: SlotId, key: Key, now: Instant) {
        let now = self.clamp(now);
        if let Some(entry) = self.current(slot) {
            entry.note_rejected(key, now);
        }
    }

    /// Counts a decision of the store.
    fn count(&mut self, slot: SlotId, verdict: Verdict) {
        let Some(entry) = self.current(slot) else { return };
        let counts = &mut entry.counts;
        match verdict {
            Verdict::Passed => counts.passed += 1,
            Verdict::Delayed => counts.delayed += 1,
            Verdict::Rejected(kind) => counts.rejected.add(kind),
            Verdict::DryRunRejected(kind) => counts.dry_run_rejected.add(kind),
        }
    }
}

impl Reserved {
    /// Returns whether nothing is pending for it.
    pub(in crate::flow) fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    fn claims(&self) -> SmallVec<[Claim; 4]> {
        self.claims.iter().map(|granted| granted.claim).collect()
    }
}

//! A decision in two steps, for requests about which another is asked in between.

use super::{
    Chain, Charged, RejectedBy,
    evaluation::{Evaluation, SlotResult},
    slots::ChainSlot,
};
use crate::flow::{
    claim::{Claim, SlotId},
    decision::{Quota, Reason, Report, Verdict},
    pending::{Pending, Ticket},
    time::Instant,
};
use core::time::Duration;
use smallvec::SmallVec;

/// A request that every slot here let pass, and that was not charged yet.
#[derive(Debug, Default)]
pub(in crate::flow) struct Reserved {
    ticket: Ticket,
    claims: SmallVec<[Granted; 4]>,
}

/// What a slot said of it.
#[derive(Clone, Copy, Debug)]
struct Granted {
    claim: Claim,
    verdict: Verdict,
}

/// Who rejected a request in the end.
#[derive(Clone, Copy, Debug)]
pub(in crate::flow) struct Elsewhere<'a> {
    pub(in crate::flow) slot: SlotId,
    pub(in crate::flow) reason: Reason,
    pub(in crate::flow) quotas: &'a [Quota],
}

impl Chain {
    /// Sees to it that a request arriving at `now` will fit: until it is
    /// [confirmed](Self::confirm) or [abandoned](Self::abandon), others are decided as
    /// if it had been charged.
    ///
    /// # Errors
    ///
    /// Why it may not start; then nothing is kept for it.
    pub(in crate::flow) fn reserve(
        &mut self,
        now: Instant,
        claims: &[Claim],
        report: &mut Report,
    ) -> Result<Reserved, RejectedBy> {
        // A request that is not charged at once borrows nothing.
        let claims: SmallVec<[Claim; 4]> =
            claims.iter().map(|claim| Claim { patience: Duration::ZERO, ..*claim }).collect();
        let mut hearing = Evaluation::new(self.arrive(now, &claims));
        self.hear(&claims, &mut hearing);
        if let Some(blame) = hearing.rejection {
            return Err(self.reject(&hearing, blame, report));
        }
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        let mut granted = SmallVec::new();
        for &SlotResult { link, claim: &claim, verdict, place, .. } in &hearing.asked {
            if claim.cost > 0 && matches!(verdict, Verdict::Passed | Verdict::Delayed) {
                let Claim { key, cost, .. } = claim;
                self.links[link].pending.add(Pending { ticket, key, place, cost });
            }
            granted.push(Granted { claim, verdict });
        }
        Ok(Reserved { ticket, claims: granted })
    }

    /// Forgets a request that was reserved.
    pub(in crate::flow) fn abandon(&mut self, reserved: &Reserved) {
        for link in &mut self.links {
            if !link.pending.is_empty() {
                link.pending.remove(reserved.ticket);
            }
        }
    }

    /// Charges a request that was reserved. `elsewhere` is what other rules of the route
    /// said, each under the slot that it has here: it is counted there, and no more.
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
        let mut hearing = self.recall(now, reserved, &claims);
        for quota in elsewhere {
            hearing.start = hearing.start.max(now + quota.wait);
            self.count(quota.slot, quota.verdict);
        }
        let charged = self.pass(&hearing, report);
        report.quotas.extend_from_slice(elsewhere);
        charged
    }

    /// Ends a request that was reserved, and rejected elsewhere: none was charged.
    pub(in crate::flow) fn reject_elsewhere(
        &mut self,
        now: Instant,
        reserved: &Reserved,
        elsewhere: &Elsewhere<'_>,
        report: &mut Report,
    ) -> RejectedBy {
        self.abandon(reserved);
        let claims = reserved.claims();
        let now = self.arrive(now, &claims);
        let hearing = self.recall(now, reserved, &claims);
        self.tell_rejected(&hearing, report);
        self.count(elsewhere.slot, Verdict::Rejected(elsewhere.reason.kind()));
        report.quotas.extend_from_slice(elsewhere.quotas);
        RejectedBy { slot: elsewhere.slot, reason: elsewhere.reason }
    }

    /// Returns what the slots said when the request was reserved, as of `now`.
    fn recall<'a>(&self, now: Instant, reserved: &Reserved, claims: &'a [Claim]) -> Evaluation<'a> {
        let mut hearing = Evaluation::new(now);
        for (claim, granted) in claims.iter().zip(&reserved.claims) {
            let is_of_it = |link: &ChainSlot| link.claim_in(core::slice::from_ref(claim)).is_some();
            // A slot that an edit has removed since has nothing to say any more.
            let Some(at) = self.links.iter().position(is_of_it) else { continue };
            let ChainSlot { slot, wanted, .. } = &self.links[at];
            let (place, due) = slot.due(now, claim);
            let (verdict, wait) = match granted.verdict {
                Verdict::Passed | Verdict::Delayed if due <= now => {
                    (Verdict::Passed, Duration::ZERO)
                }
                Verdict::Passed | Verdict::Delayed if wanted.is_dry_run() => {
                    (Verdict::Passed, due.since(now))
                }
                Verdict::Passed | Verdict::Delayed => {
                    hearing.start = hearing.start.max(due);
                    (Verdict::Delayed, due.since(now))
                }
                Verdict::Rejected(_) | Verdict::DryRunRejected(_) => {
                    (granted.verdict, Duration::ZERO)
                }
            };
            hearing.asked.push(SlotResult { link: at, claim, verdict, wait, place });
        }
        hearing
    }

    /// Counts what a rule decided elsewhere.
    fn count(&mut self, slot: SlotId, verdict: Verdict) {
        let is_it = |link: &&mut ChainSlot| link.id == slot || link.former == Some(slot);
        let Some(link) = self.links.iter_mut().find(is_it) else { return };
        let counts = &mut link.counts;
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
    pub(in crate::flow) fn is_over(&self) -> bool {
        self.claims.is_empty()
    }

    fn claims(&self) -> SmallVec<[Claim; 4]> {
        self.claims.iter().map(|granted| granted.claim).collect()
    }
}

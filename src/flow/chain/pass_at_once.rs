//! The shortest way through the chain: a request that every slot lets pass at once, and of which no
//! report is made.

use super::{Chain, Held, HeldSlot};
use crate::flow::{
    decision::{Claim, Decision},
    keyed::Lookup,
    limiter::Times,
    time::Instant,
};
use smallvec::SmallVec;

impl Chain {
    /// Charges a request at `now` if every slot lets it pass at once, as [`Chain::enter`] does, and
    /// returns its start. Adds to `held` what it holds. The route's statistics do not count it, and no
    /// breaker's transition is reported. If any slot says anything else, returns `None` and changes no
    /// later decision.
    pub(in crate::flow) fn pass_at_once(
        &mut self,
        now: Instant,
        claims: &[Claim],
        held: &mut Held,
    ) -> Option<Instant> {
        if self.journal.is_some() {
            return None;
        }
        let now = self.clamp(now);
        let mut passed: SmallVec<[(usize, &Claim, Lookup); 4]> = SmallVec::new();
        for (index, entry) in self.slots.iter_mut().enumerate() {
            let Some(claim) = entry.claim_in(claims) else { continue };
            let known = entry.prepare(now, claim);
            let answer = entry.slot.check(now, claim, known, &entry.pending);
            if answer.decision != Decision::Pass {
                return None;
            }
            passed.push((index, claim, answer.lookup));
        }
        let times = Times { now, own: now, start: now };
        for &(index, claim, lookup) in &passed {
            let entry = &mut self.slots[index];
            entry.counts.passed += 1;
            if claim.cost > 0
                && let Some(hold) = entry.slot.charge(times, claim.cost, lookup)
            {
                held.push(HeldSlot { slot: entry.id, hold, cost: claim.cost });
            }
        }
        Some(now)
    }
}

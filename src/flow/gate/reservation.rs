//! A decision in two steps, with a call to the store in between.

use super::{
    Admission, Gate, Permit,
    chain::{Chain, Charged},
    chain_slot::ChainSlot,
    decide::{Evaluation, SlotResult},
    gates::{Evaluations, Gates, LockedGates},
};
use crate::flow::{
    decision::{Claim, Key, Quota, Reason, RejectedBy, Rejection, Report, SlotId, Verdict},
    slot::{Pending, Ticket},
    time::Instant,
};
use core::{mem::take, time::Duration};
use smallvec::SmallVec;
use std::sync::Arc;

/// A request that passed all rules here and is not charged yet, because a store is still asked
/// about others.
///
/// Until it is confirmed, other requests are decided as if it had been charged. A rejection or a
/// drop leaves no trace.
#[must_use = "a reservation that is dropped at once has no effect"]
#[derive(Debug)]
pub struct Reservation {
    gates: Gates,
    /// The part of each gate, in the order in which they decide; empty once it has ended.
    parts: Parts,
}

type Parts = SmallVec<[Reserved; 1]>;

impl Gates {
    /// Decides about a request at `now` like [`enter`](Self::enter), but charges it only when the
    /// [`Reservation`] is confirmed.
    ///
    /// Requests do not borrow while reservations exist, because they may be charged in a later
    /// window than they were checked in.
    ///
    /// Then a decision copies each state that they share and takes time for each of them.
    ///
    /// # Errors
    ///
    /// The reason of the rejection, whatever the store decides.
    #[expect(clippy::result_large_err, reason = "as that of `enter`")]
    pub fn reserve(&self, now: Instant, claims: &[Claim]) -> Result<Reservation, Rejection> {
        let mut report = Report::default();
        // A statement of its own releases the locks before the rest.
        let decided = self.lock().reserve(now, claims, &mut report);
        match decided {
            Ok(parts) => Ok(Reservation { gates: self.clone(), parts }),
            Err(rejected) => Err(rejected.with(report)),
        }
    }
}

impl Gate {
    /// Reserves like [`Gates::reserve`], for requests that meet no other gate.
    ///
    /// # Errors
    ///
    /// As there.
    #[expect(clippy::result_large_err, reason = "as that of `enter`")]
    pub fn reserve(
        self: &Arc<Self>,
        now: Instant,
        claims: &[Claim],
    ) -> Result<Reservation, Rejection> {
        Gates::from(Arc::clone(self)).reserve(now, claims)
    }
}

impl Reservation {
    /// Admits the request after the store let it pass.
    ///
    /// `elsewhere` are the store's decisions, each under a slot of these gates, which count but do
    /// not charge them; the report has them after its own. The request starts at the latest start;
    /// pacing counts from `now`.
    pub fn confirm(mut self, now: Instant, elsewhere: &[Quota]) -> Admission {
        let parts = take(&mut self.parts);
        let mut report = Report::default();
        let gates = &self.gates;
        let charged = gates.with_turns(|all| all.confirm(now, &parts, elsewhere, &mut report));
        Admission { permit: Permit::of_all(&self.gates, charged), report }
    }

    /// Rejects the request because the store did, by the rule of `slot` for `reason`. The request's
    /// key there is among the [rejected](Gate::rejected_keys) ones; `None` if the store fails.
    /// `elsewhere` as for [`confirm`](Self::confirm).
    pub fn reject(
        mut self,
        now: Instant,
        slot: SlotId,
        key: Option<Key>,
        reason: Reason,
        elsewhere: &[Quota],
    ) -> Rejection {
        let parts = take(&mut self.parts);
        let elsewhere = StoreRejection { slot, key, reason, quotas: elsewhere };
        let mut report = Report::default();
        let gates = &self.gates;
        let rejected =
            gates.with_turns(|all| all.reject_by_store(now, &parts, &elsewhere, &mut report));
        rejected.with(report)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.parts.iter().any(|part| !part.is_empty()) {
            self.gates.with_turns(|all| {
                all.each(|at, chain| {
                    chain.abandon(&self.parts[at]);
                    chain.give_all_turns();
                });
            });
        }
    }
}

/// A request that passed every slot of a gate and is not charged yet.
#[derive(Debug, Default)]
pub(super) struct Reserved {
    ticket: Ticket,
    claims: SmallVec<[ReservedClaim; 4]>,
}

/// One slot's part.
#[derive(Clone, Copy, Debug)]
struct ReservedClaim {
    claim: Claim,
    verdict: Verdict,
    /// True if it has spent of a grant.
    is_granted: bool,
    /// True if the request exceeds the limit of a dry run that would ban for it.
    begins_ban: bool,
    /// True if the request takes its place here later.
    is_later: bool,
}

/// The rejection of a reserved request by the store.
#[derive(Clone, Copy, Debug)]
struct StoreRejection<'a> {
    slot: SlotId,
    /// `None` if the store fails: then no key has used too much.
    key: Option<Key>,
    reason: Reason,
    quotas: &'a [Quota],
}

impl LockedGates<'_> {
    /// Reserves room for a request at `now`: until it is [confirmed](Self::confirm) or
    /// [abandoned](Chain::abandon), others are decided as if it had been charged.
    ///
    /// # Errors
    ///
    /// The reason of the rejection; nothing is reserved.
    fn reserve(
        &mut self,
        now: Instant,
        claims: &[Claim],
        report: &mut Report,
    ) -> Result<Parts, RejectedBy> {
        // A request that is charged later borrows nothing.
        let claims: SmallVec<[Claim; 4]> =
            claims.iter().map(|claim| Claim { patience: Duration::ZERO, ..*claim }).collect();

        let now = self.clamp(now);
        let evaluations = self.evaluate(now, &claims, true);
        if let Some(rejecting) = evaluations.all.rejection {
            return Err(self.reject(&evaluations, rejecting, report));
        }

        let mut parts = Parts::new();
        self.each(|at, chain| parts.push(chain.reserve(evaluations.of_gate(at).results)));
        Ok(parts)
    }

    /// Charges a reserved request. `elsewhere` are the decisions of rules in the store, each under
    /// its slot here, where it is only counted.
    fn confirm(
        &mut self,
        now: Instant,
        parts: &[Reserved],
        elsewhere: &[Quota],
        report: &mut Report,
    ) -> Charged {
        let claims: SmallVec<[_; 1]> = parts.iter().map(Reserved::claims).collect();
        let mut evaluations = self.reopen(now, parts, &claims);

        for quota in elsewhere {
            let all = &mut evaluations.all;
            all.start = all.start.max(all.now + quota.wait);
            self.each(|_, chain| chain.count(quota.slot, quota.verdict));
        }

        let mut charged = self.pass(&evaluations, report);
        report.quotas.extend_from_slice(elsewhere);
        charged.keep_report(report);
        charged
    }

    /// Rejects a reserved request because the store did; nothing is charged.
    fn reject_by_store(
        &mut self,
        now: Instant,
        parts: &[Reserved],
        elsewhere: &StoreRejection<'_>,
        report: &mut Report,
    ) -> RejectedBy {
        let claims: SmallVec<[_; 1]> = parts.iter().map(Reserved::claims).collect();
        let evaluations = self.reopen(now, parts, &claims);
        let StoreRejection { slot, key, reason, quotas } = *elsewhere;

        self.each(|at, chain| {
            let part = evaluations.of_gate(at);
            chain.record_rejection(part, report);
            chain.give_all_turns();
            match (chain.current(slot), key) {
                (Some(entry), Some(key)) => entry.on_reject(reason.kind(), key, part.now),
                (Some(entry), None) => entry.counts.rejected.add(reason.kind()),
                (None, _) => {}
            }
        });
        report.quotas.extend_from_slice(quotas);
        RejectedBy { slot, key, reason }
    }

    /// Ends the reservation, and returns its results as of `now`.
    fn reopen<'a>(
        &mut self,
        now: Instant,
        parts: &[Reserved],
        claims: &'a [SmallVec<[Claim; 4]>],
    ) -> Evaluations<'a> {
        let now = self.clamp(now);
        let mut evaluations = Evaluations::new(now, true);
        self.each(|at, chain| {
            let reserved = &parts[at];
            chain.abandon(reserved);
            chain.reevaluate(reserved, &claims[at], &mut evaluations.all);
            evaluations.end_gate();
        });
        evaluations
    }
}

impl Chain {
    /// Reserves room for a request that all gates let pass.
    fn reserve(&mut self, results: &[SlotResult<'_>]) -> Reserved {
        let ticket = Ticket(self.tickets);
        self.tickets += 1;

        let mut granted = SmallVec::new();
        for result in results {
            let &SlotResult { index, claim: &claim, verdict, lookup, is_granted, is_later, .. } =
                result;
            if is_granted {
                self.slots[index].grants.spend(&claim);
            } else if claim.cost > 0
                && !is_later
                && matches!(verdict, Verdict::Passed | Verdict::Delayed)
            {
                let Claim { key, cost, .. } = claim;
                self.slots[index].pending.add(Pending { ticket, key, lookup, cost });
            }
            let begins_ban = result.begins_ban;
            granted.push(ReservedClaim { claim, verdict, is_granted, begins_ban, is_later });
        }
        Reserved { ticket, claims: granted }
    }

    fn abandon(&mut self, reserved: &Reserved) {
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

    /// Adds the results at the reservation, as of the evaluation's instant.
    ///
    /// This converts and recalls states, which changes no later decision.
    fn reevaluate<'a>(
        &mut self,
        reserved: &Reserved,
        claims: &'a [Claim],
        evaluation: &mut Evaluation<'a>,
    ) {
        let now = evaluation.now;
        for entry in &mut self.slots {
            if let Some(claim) = entry.claim_in(claims) {
                entry.prepare(now, claim);
            }
        }

        for (claim, granted) in claims.iter().zip(&reserved.claims) {
            let is_of_it =
                |entry: &ChainSlot| entry.claim_in(core::slice::from_ref(claim)).is_some();
            // An edit may have removed the slot since.
            let Some(at) = self.slots.iter().position(is_of_it) else { continue };
            let ChainSlot { slot, rule, .. } = &self.slots[at];
            let (lookup, due) = slot.due(now, claim);

            let (verdict, wait) = match granted.verdict {
                Verdict::Delayed if granted.is_later => (Verdict::Delayed, Duration::ZERO),
                Verdict::Passed | Verdict::Delayed if due <= now || granted.is_granted => {
                    (Verdict::Passed, Duration::ZERO)
                }
                Verdict::Passed | Verdict::Delayed if rule.is_dry_run() => {
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

            let &ReservedClaim { is_granted, begins_ban, is_later, .. } = granted;
            evaluation.waits |= is_later;
            let result = SlotResult {
                index: at,
                claim,
                verdict,
                wait,
                lookup,
                is_granted,
                begins_ban,
                is_later,
            };
            evaluation.results.push(result);
        }
    }

    /// Returns the slot, or the one that it was reset to, by one edit or several.
    pub(super) fn current(&mut self, slot: SlotId) -> Option<&mut ChainSlot> {
        self.slots.iter_mut().find(|entry| entry.stands_for(slot))
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
    pub(super) fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    fn claims(&self) -> SmallVec<[Claim; 4]> {
        self.claims.iter().map(|granted| granted.claim).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{
        Algorithm, Key, Outcome, ReasonKind, Rules, Verdict,
        limiter::{breaker, concurrency, token_bucket},
        timeline::{keyed, one, paced, rate, rule},
    };
    use core::time::Duration;

    const NOW: Instant = Instant::EPOCH;

    fn bucket(burst: u64) -> Algorithm {
        Algorithm::TokenBucket(token_bucket::Config { rate: rate(10, 1000), burst })
    }

    fn in_flight(limit: u64) -> Algorithm {
        Algorithm::Concurrency(concurrency::Config { limit })
    }

    fn claim(slot: SlotId, key: Key) -> Claim {
        Claim { slot, key, cost: 1, patience: Duration::ZERO, plan: None }
    }

    /// Returns a gate with `rules`, and a claim on each of its slots.
    fn open(rules: &Rules) -> (Arc<Gate>, Vec<Claim>) {
        let gate = Arc::new(Gate::new(NOW));
        let it = gate.install(rules, NOW);
        let slots = it.flow.into_iter().chain(it.breaker).chain(it.pacing);
        let claims = slots.map(|slot| claim(slot, Key::Shared)).collect();
        (gate, claims)
    }

    /// Returns what another says under `slot`.
    fn said(slot: SlotId, verdict: Verdict, wait: u64) -> Quota {
        let wait = Duration::from_millis(wait);
        Quota {
            plan: None,
            slot,
            verdict,
            limit: 7,
            used: 3,
            cost: 1,
            wait,
            reset: Duration::ZERO,
            growth: None,
        }
    }

    #[test]
    fn others_are_decided_as_if_a_reservation_had_been_charged() {
        for algorithm in [bucket(2), in_flight(2)] {
            let (gate, claims) = open(&one(algorithm));
            let first = gate.reserve(NOW, &claims).expect("room for two");
            let second = gate.reserve(NOW, &claims).expect("room for two");
            assert!(gate.reserve(NOW, &claims).is_err() && gate.enter(NOW, &claims).is_err());
            drop(first);
            let third = gate.enter(NOW, &claims).expect("one has gone");
            assert_eq!(third.report.quotas[0].used, 1, "none is charged before its second step");
            let second = second.confirm(NOW, &[]);
            assert_eq!(second.report.quotas[0].used, 2);
            assert!(gate.enter(NOW, &claims).is_err());
        }
    }

    #[test]
    fn what_others_said_is_counted_here_and_delays_the_start() {
        let rules = Rules {
            flow: vec![rule("here", bucket(9)), rule("there", bucket(9))],
            ..Rules::default()
        };
        let (gate, claims) = open(&rules);
        let here = claims[0].slot;
        let there = claims[1].slot;
        let now = NOW;
        let reserve = || gate.reserve(now, &claims[..1]).expect("room");
        let quota = said(there, Verdict::Delayed, 20);
        let admission = reserve().confirm(now, &[quota]);
        assert_eq!(admission.permit.start(), now + Duration::from_millis(20));
        assert_eq!(admission.report.quotas[1], quota);
        let reason = Reason::Concurrency { limit: 7 };
        let quota = said(there, Verdict::Rejected(ReasonKind::Concurrency), 0);
        let rejection = reserve().reject(now, there, None, reason, &[quota]);
        assert_eq!((rejection.slot, rejection.reason), (there, reason));
        let dry =
            reserve().confirm(now, &[said(there, Verdict::DryRunRejected(ReasonKind::Rate), 0)]);
        assert_eq!(dry.permit.start(), now);
        let slots: Vec<_> = rejection.report.quotas.iter().map(|quota| quota.slot).collect();
        assert_eq!(slots, [here, there]);
        let seen = gate.observe(now);
        let counts = |at: usize| seen.rules[at].counts;
        assert_eq!((counts(0).passed, counts(0).rejected.total()), (2, 0));
        let there = counts(1);
        assert_eq!(
            (there.delayed, there.rejected.total(), there.dry_run_rejected.total()),
            (1, 1, 1)
        );
        assert_eq!((seen.totals.passed, seen.totals.delayed, seen.totals.rejected), (1, 1, 1));
    }

    #[test]
    fn a_key_that_the_store_rejects_is_among_the_rejected_ones() {
        let (gate, claims) = open(&keyed(bucket(1), 100));
        let slot = claims[0].slot;
        let reason = Reason::Concurrency { limit: 7 };
        for key in [Some(Key::Of(7)), Some(Key::Of(7)), Some(Key::Of(8)), None] {
            let reserved = gate.reserve(NOW, &[]).expect("no rule here");
            let rejection = reserved.reject(NOW, slot, key, reason, &[]);
            assert_eq!((rejection.slot, rejection.key), (slot, key));
        }
        let seen = gate.rejected_keys(slot, NOW).expect("some");
        let keys: Vec<_> = seen.keys.sorted().iter().map(|key| (key.key, key.count)).collect();
        assert_eq!((seen.total, keys), (3, vec![(7, 2), (8, 1)]));
        assert_eq!(gate.observe(NOW).rules[0].counts.rejected.total(), 4);
    }

    #[test]
    fn the_first_to_be_confirmed_is_the_first_to_start() {
        let (gate, claims) = open(&paced(rate(10, 1000), 100, 1));
        let [first, second] = [0, 1].map(|_| gate.reserve(NOW, &claims).expect("may wait"));
        assert!(gate.reserve(NOW, &claims).is_err(), "would wait for too long");
        assert_eq!(second.confirm(NOW, &[]).permit.start(), NOW);
        assert_eq!(first.confirm(NOW, &[]).permit.start(), NOW + Duration::from_millis(100));
    }

    #[test]
    fn clients_without_room_of_their_own_fit_beside_each_other() {
        let (gate, claims) = open(&keyed(in_flight(1), 1));
        let slot = claims[0].slot;
        // Of the same overflow state, which the high bits choose.
        let [own, one, other] = [1_u128, 64 << 64 | 2, 128 << 64 | 3].map(Key::Of);
        let _held = gate.enter(NOW, &[claim(slot, own)]).expect("a fresh client").permit;
        let reserved = gate.reserve(NOW, &[claim(slot, one)]).expect("a fresh client");
        assert!(gate.reserve(NOW, &[claim(slot, other)]).is_err());
        drop(reserved);
        assert!(gate.reserve(NOW, &[claim(slot, other)]).is_ok());
    }

    #[test]
    fn a_client_evicted_between_the_steps_keeps_its_usage() {
        let (gate, claims) = open(&keyed(bucket(2), 1));
        let slot = claims[0].slot;
        let [one, other] = [1_u128 << 64, 2 << 64].map(Key::Of);
        gate.enter(NOW, &[claim(slot, one)]).expect("the first");
        let reserved = gate.reserve(NOW, &[claim(slot, one)]).expect("the second");
        gate.enter(NOW, &[claim(slot, other)]).expect("a new client");
        assert!(gate.reserve(NOW, &[claim(slot, one)]).is_err(), "a third");
        let report = reserved.confirm(NOW, &[]).report;
        assert_eq!(report.quotas[0].used, 2);
    }

    #[test]
    fn a_reservation_outlives_an_edit() {
        let (gate, claims) = open(&one(in_flight(1)));
        let [kept, removed] = [0, 1].map(|_| {
            let reserved = gate.reserve(NOW, &claims).expect("room");
            gate.install(&one(in_flight(2)), NOW);
            reserved
        });
        let kept = kept.confirm(NOW, &[]);
        assert!(gate.enter(NOW, &claims).is_err(), "one in flight and one to be");
        gate.install(&Rules::default(), NOW);
        assert!(removed.confirm(NOW, &[]).report.quotas.is_empty());
        drop(kept);
        // Reset, it is charged to the successor.
        let reset = gate.install(&one(bucket(1)), NOW).flow[0];
        let reserved = gate.reserve(NOW, &[claim(reset, Key::Shared)]).expect("room");
        let successor = gate.install(&one(in_flight(1)), NOW).flow[0];
        let _permit = reserved.confirm(NOW, &[]).permit;
        assert!(gate.enter(NOW, &[claim(successor, Key::Shared)]).is_err());
    }

    #[test]
    fn a_breaker_that_opened_meanwhile_stays_open() {
        let config = breaker::Config {
            error_ratio: None,
            slow: None,
            errors: Some(1),
            min_requests: 1,
            window: Duration::from_secs(1),
            buckets: 10,
            open_for: Duration::from_secs(1),
            probes: 1,
            dry_run: false,
        };
        let (gate, claims) = open(&Rules { breaker: Some(config), ..Rules::default() });
        let reserved = gate.reserve(NOW, &claims).expect("closed");
        let failed = gate.enter(NOW, &claims).expect("closed").permit;
        assert!(failed.finish(Outcome::Failure { at: NOW }).is_some());
        reserved.confirm(NOW, &[]).permit.finish(Outcome::Success { at: NOW });
        assert!(gate.enter(NOW, &claims).is_err());
    }
}

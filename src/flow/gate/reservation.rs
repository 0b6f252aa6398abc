//! A request that passed here while the store is asked about it.

use super::{Admission, Gate, Permit};
use crate::flow::{
    chain::{Reserved, StoreRejection},
    decision::{Claim, Key, Quota, Reason, Rejection, Report, SlotId},
    time::Instant,
};
use core::mem::take;
use std::sync::Arc;

/// A request that passed all rules here and is not charged yet, because a store is still asked
/// about others.
///
/// Until it is confirmed, other requests are decided as if it had been charged. A rejection or a
/// drop leaves no trace.
#[must_use = "a reservation that is dropped at once has no effect"]
#[derive(Debug)]
pub struct Reservation {
    gate: Arc<Gate>,
    reserved: Reserved,
}

impl Gate {
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
    pub fn reserve(
        self: &Arc<Self>,
        now: Instant,
        claims: &[Claim],
    ) -> Result<Reservation, Rejection> {
        let mut report = Report::default();
        let decided = self.lock().reserve(now, claims, &mut report);
        match decided {
            Ok(reserved) => Ok(Reservation { gate: Arc::clone(self), reserved }),
            Err(rejected) => Err(rejected.with(report)),
        }
    }
}

impl Reservation {
    /// Admits the request after the store let it pass.
    ///
    /// `elsewhere` are the store's decisions, each under a slot of this gate, which counts but does
    /// not charge them; the report has them after its own. The request starts at the latest start;
    /// pacing counts from `now`.
    pub fn confirm(mut self, now: Instant, elsewhere: &[Quota]) -> Admission {
        let gate = Arc::clone(&self.gate);
        let reserved = take(&mut self.reserved);
        let mut report = Report::default();
        let charged = gate.lock().confirm(now, &reserved, elsewhere, &mut report);
        Admission { permit: Permit::new(gate, charged), report }
    }

    /// Rejects the request because the store did, by the rule of `slot` for `reason`. The request's
    /// key there is among the [rejected](Gate::rejected_keys) ones; `None` if the store fails.
    /// `elsewhere` as for [`confirm`](Self::confirm).
    pub fn reject(
        mut self,
        now: Instant,
        (slot, key): (SlotId, Option<Key>),
        reason: Reason,
        elsewhere: &[Quota],
    ) -> Rejection {
        let reserved = take(&mut self.reserved);
        let elsewhere = StoreRejection { slot, key, reason, quotas: elsewhere };
        let mut report = Report::default();
        let rejected = self.gate.lock().reject_by_store(now, &reserved, &elsewhere, &mut report);
        rejected.with(report)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.reserved.is_empty() {
            self.gate.lock().abandon(&self.reserved);
        }
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
        Claim { slot, key, cost: 1, patience: Duration::ZERO }
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
        let rejection = reserve().reject(now, (there, None), reason, &[quota]);
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
            let rejection = reserved.reject(NOW, (slot, key), reason, &[]);
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

//! The gates that decide together about a request: its route's own, and those of the budgets that
//! it shares with other routes.
//!
//! All are locked at once, checked, and then charged: a request that one rule rejects leaves no trace
//! in any. [`Gate::number`] gives the order in which they are locked, the same for every request, so
//! that requests never wait for each other in a circle. A route without budgets locks its own
//! gate alone.

use super::{
    Admission, Gate, Permit,
    chain::{Chain, Charged, Held, Queues},
    decide::{Evaluation, RejectingResult, extended},
    lock_order::LockOrder,
    settle::SettledReserve,
};
use crate::flow::{
    decision::{Claim, Outcome, RejectedBy, Rejection, Report},
    time::Instant,
};
use core::time::Duration;
use smallvec::SmallVec;
use std::sync::{Arc, MutexGuard};

/// The gates that decide about the requests of a route.
#[derive(Clone, Debug)]
pub struct Gates {
    /// The route's own.
    own: Arc<Gate>,
    /// Those of its budgets; `None` if it has none.
    budgets: Option<Arc<BudgetGates>>,
}

/// The gates of the budgets that a request meets, each once.
#[derive(Debug)]
pub struct BudgetGates {
    /// In the order in which they are locked.
    gates: Box<[Arc<Gate>]>,
    /// Their places in `gates`, in the order in which they decide.
    order: Box<[u8]>,
}

impl From<Arc<Gate>> for Gates {
    fn from(own: Arc<Gate>) -> Self {
        Self { own, budgets: None }
    }
}

impl Gates {
    /// Returns the gates of a route that meets these `budgets`, at most 255, each of which has
    /// [a number of its own](Gate::with_number). They decide in this order.
    pub fn new<'g>(own: Arc<Gate>, budgets: impl Iterator<Item = &'g Arc<Gate>>) -> Self {
        let LockOrder { gates, deciding } =
            LockOrder::of(budgets.cloned().collect(), |gate: &Arc<Gate>| gate.number);
        let all = BudgetGates { order: deciding.into(), gates: gates.into() };
        Self { own, budgets: (!all.gates.is_empty()).then(|| Arc::new(all)) }
    }

    /// Returns the route's own gate.
    pub const fn own(&self) -> &Arc<Gate> {
        &self.own
    }

    /// Decides like [`Gate::enter`], by all gates.
    ///
    /// # Errors
    ///
    /// The reason of the rejection; no gate was charged.
    #[expect(clippy::result_large_err, reason = "as that of `Gate::enter`")]
    pub fn enter(&self, now: Instant, claims: &[Claim]) -> Result<Admission, Rejection> {
        let mut report = Report::default();
        match self.decide(now, claims, &mut report) {
            Ok(permit) => Ok(Admission { permit, report }),
            Err(rejected) => Err(rejected.with(report)),
        }
    }

    /// Decides like [`Gate::decide`], by all gates.
    ///
    /// # Errors
    ///
    /// The reason of the rejection; no gate was charged.
    #[inline]
    pub fn decide(
        &self,
        now: Instant,
        claims: &[Claim],
        report: &mut Report,
    ) -> Result<Permit, RejectedBy> {
        if self.budgets.is_none() {
            return self.own.decide(now, claims, report);
        }
        let charged = self.enter_all(now, claims, report, true)?;
        Ok(Permit::of_all(self, charged))
    }

    /// Decides like [`Gate::decide_uncounted`], by all gates.
    ///
    /// # Errors
    ///
    /// The reason of the rejection; no gate was charged.
    #[inline]
    pub fn decide_uncounted(
        &self,
        now: Instant,
        claims: &[Claim],
        report: &mut Report,
    ) -> Result<Option<Permit>, RejectedBy> {
        if self.budgets.is_none() {
            return self.own.decide_uncounted(now, claims, report);
        }
        let charged = self.enter_all(now, claims, report, false)?;
        Ok(charged.has_end().then(|| Permit::of_all(self, charged)))
    }

    /// Charges like [`Gate::pass_uncounted`]. With budgets it returns false: ask
    /// [`decide_uncounted`](Self::decide_uncounted) then.
    #[inline]
    pub fn pass_uncounted(
        &self,
        now: Instant,
        claims: &[Claim],
        permit: &mut Option<Permit>,
    ) -> bool {
        self.budgets.is_none() && self.own.pass_uncounted(now, claims, permit)
    }

    /// Returns what [`enter`](Self::enter) would decide, like [`Gate::peek`].
    ///
    /// # Errors
    ///
    /// The rejection.
    #[expect(clippy::result_large_err, reason = "as that of `Gate::enter`")]
    pub fn peek(&self, now: Instant, claims: &[Claim]) -> Result<Report, Rejection> {
        if self.budgets.is_none() {
            return self.own.peek(now, claims);
        }
        self.lock().peek(now, claims)
    }

    // A function of its own, so that requests without budgets do not pay for its locals.
    #[inline(never)]
    fn enter_all(
        &self,
        now: Instant,
        claims: &[Claim],
        report: &mut Report,
        is_counted: bool,
    ) -> Result<Charged, RejectedBy> {
        self.lock().enter(now, claims, report, is_counted)
    }

    /// Locks all gates, in their [order](LockOrder).
    pub(super) fn lock(&self) -> LockedGates<'_> {
        let own = self.own.lock();
        let Some(budgets) = self.budgets.as_deref() else {
            return LockedGates { own, budgets: SmallVec::new(), order: &[] };
        };
        let locked = budgets.gates.iter().map(|gate| gate.lock()).collect();
        LockedGates { own, budgets: locked, order: &budgets.order }
    }

    pub(super) const fn budgets(&self) -> Option<&Arc<BudgetGates>> {
        self.budgets.as_ref()
    }
}

impl BudgetGates {
    /// Gives back what an admitted request holds of their slots.
    pub(super) fn release(&self, charged: &Charged, outcome: Outcome) {
        for gate in &self.gates {
            if charged.held.iter().any(|held| held.slot.gate == gate.number) {
                gate.lock().release_all(charged, outcome);
            }
        }
    }

    /// Returns those of which the request has something to settle.
    pub(super) fn of_reserves<'s>(
        &'s self,
        settled: &'s [SettledReserve],
    ) -> impl Iterator<Item = &'s Arc<Gate>> {
        let has_any =
            |gate: &Arc<Gate>| settled.iter().any(|settled| settled.is_of_gate(gate.number));
        self.gates.iter().filter(move |gate| has_any(gate))
    }

    /// Frees the places of a request that has left at `now`, while it waited for its start.
    pub(super) fn free_places(&self, now: Instant, charged: &Charged) {
        for gate in &self.gates {
            if charged.queues.iter().any(|slot| slot.gate == gate.number) {
                gate.lock().free_places(now, charged.start, &charged.queues);
            }
        }
    }
}

/// The gates of a request, locked.
pub(super) struct LockedGates<'g> {
    own: MutexGuard<'g, Chain>,
    /// In the order in which they were locked.
    budgets: SmallVec<[MutexGuard<'g, Chain>; 4]>,
    /// Their places, in the order in which they decide.
    order: &'g [u8],
}

/// The results of all gates for one request, before any is charged.
pub(super) struct Evaluations<'a> {
    /// The own gate's first, then those of budgets in the order in which they decide.
    pub(super) parts: SmallVec<[Evaluation<'a>; 4]>,
    pub(super) rejecting: Option<RejectingGate>,
}

/// The result that rejects the request, of several the one whose reason outranks the others.
#[derive(Clone, Copy)]
pub(super) struct RejectingGate {
    /// Its gate's place in [`Evaluations::parts`].
    gate: usize,
    result: RejectingResult,
}

impl LockedGates<'_> {
    /// Decides about a request, and charges it if it is admitted: see [`Chain::enter`].
    fn enter(
        &mut self,
        now: Instant,
        claims: &[Claim],
        report: &mut Report,
        is_counted: bool,
    ) -> Result<Charged, RejectedBy> {
        let now = self.clamp(now);
        let mut evaluations = self.evaluate(now, claims, is_counted);
        match evaluations.rejecting {
            None => Ok(self.pass(&mut evaluations, report)),
            Some(rejecting) => Err(self.reject(&evaluations, rejecting, report)),
        }
    }

    /// Returns what [`Self::enter`] would decide: see [`Chain::peek`].
    #[expect(clippy::result_large_err, reason = "as that of `Gate::enter`")]
    fn peek(&mut self, now: Instant, claims: &[Claim]) -> Result<Report, Rejection> {
        let now = self.latest().max(now);
        let mut kept = Vec::new();
        self.each(|_, chain| kept.push(chain.keep_states(now, claims)));
        let mut evaluations = self.evaluate(now, claims, false);
        let is_passed = evaluations.rejecting.is_none();
        evaluations.start_together();

        let mut report = Report::default();
        self.each(|at, chain| {
            let part = &evaluations.parts[at];
            let quotas = part.results.iter().map(|result| chain.quota(result, part, is_passed));
            report.quotas.extend(quotas);
        });
        let mut kept = kept.into_iter();
        self.each(|_, chain| kept.next().into_iter().for_each(|kept| chain.restore_states(kept)));

        let Some(RejectingGate { gate, result }) = evaluations.rejecting else { return Ok(report) };
        let claim = evaluations.parts[gate].results[result.at].claim;
        Err(Rejection { slot: claim.slot, key: Some(claim.key), reason: result.reason, report })
    }

    /// Runs `work` on each chain with its place, in the order in which they decide.
    pub(super) fn each(&mut self, mut work: impl FnMut(usize, &mut Chain)) {
        work(0, &mut self.own);
        for (at, place) in (1..).zip(self.order) {
            if let Some(chain) = self.budgets.get_mut(usize::from(*place)) {
                work(at, chain);
            }
        }
    }

    /// Returns the latest instant that any of the gates has seen.
    fn latest(&self) -> Instant {
        let budgets = self.budgets.iter().map(|chain| chain.latest);
        budgets.fold(self.own.latest, Instant::max)
    }

    /// Returns the later one of `now` and the latest instant seen, which it becomes for each gate.
    pub(super) fn clamp(&mut self, now: Instant) -> Instant {
        let now = self.latest().max(now);
        self.each(|_, chain| chain.latest = now);
        now
    }

    /// Prepares and checks every slot that has a claim.
    pub(super) fn evaluate<'a>(
        &mut self,
        now: Instant,
        claims: &'a [Claim],
        is_counted: bool,
    ) -> Evaluations<'a> {
        let mut evaluations = Evaluations { parts: SmallVec::new(), rejecting: None };
        let mut has_lent = false;

        self.each(|at, chain| {
            let mut part = Evaluation::new(now);
            // The statistics are of routes. A budget has its rule's counts only.
            part.is_counted = is_counted && at == 0;
            chain.check_each(claims, &mut part);
            has_lent |= chain.has_lent;
            evaluations.add(part);
        });

        if has_lent && let Some(RejectingGate { gate, result }) = evaluations.rejecting {
            let rejects_for = |wait| self.rejects_for(&evaluations, now + wait);
            let reason = extended(result.reason, rejects_for);
            let result = RejectingResult { reason, ..result };
            evaluations.rejecting = Some(RejectingGate { gate, result });
        }
        evaluations
    }

    /// Returns for how long the checked slots would reject the request at `then`, if they would.
    fn rejects_for(&self, evaluations: &Evaluations<'_>, then: Instant) -> Option<Duration> {
        let places = self.order.iter().map(|place| usize::from(*place));
        let budgets = places.filter_map(|place| self.budgets.get(place).map(|chain| &**chain));
        let chains = core::iter::once(&*self.own).chain(budgets);
        let parts = chains.zip(&evaluations.parts);
        parts.filter_map(|(chain, part)| chain.rejects_for(&part.results, then)).max()
    }

    /// Charges an admitted request to every checked slot.
    pub(super) fn pass(
        &mut self,
        evaluations: &mut Evaluations<'_>,
        report: &mut Report,
    ) -> Charged {
        let start = evaluations.start_together();
        let mut whole = Charged {
            start,
            held: Held::new(),
            queues: Queues::new(),
            reserves: Vec::new(),
            is_counted: false,
        };

        self.each(|at, chain| {
            let Charged { held, queues, reserves, is_counted, .. } =
                chain.pass(&evaluations.parts[at], report);
            whole.held.extend(held);
            whole.queues.extend(queues);
            whole.reserves.extend(reserves);
            whole.is_counted |= is_counted;
        });
        whole
    }

    /// Rejects a request for one of the results.
    pub(super) fn reject(
        &mut self,
        evaluations: &Evaluations<'_>,
        RejectingGate { gate, result }: RejectingGate,
        report: &mut Report,
    ) -> RejectedBy {
        let claim = evaluations.parts[gate].results[result.at].claim;
        self.each(|at, chain| {
            let part = &evaluations.parts[at];
            if at == gate {
                chain.reject(part, result, report);
            } else {
                chain.record_rejection(part, report);
            }
        });
        RejectedBy { slot: claim.slot, key: Some(claim.key), reason: result.reason }
    }
}

impl<'a> Evaluations<'a> {
    /// Adds the results of the next gate.
    fn add(&mut self, part: Evaluation<'a>) {
        if let Some(result) = part.rejection
            && self.rejecting.is_none_or(|first| result.reason.outranks(first.result.reason))
        {
            self.rejecting = Some(RejectingGate { gate: self.parts.len(), result });
        }
        self.parts.push(part);
    }

    /// Has the request start at the latest start that any gate asks for, and returns it.
    pub(super) fn start_together(&mut self) -> Instant {
        let start = self.parts.iter().map(|part| part.start).max().unwrap_or(Instant::EPOCH);
        self.parts.iter_mut().for_each(|part| part.start = start);
        start
    }
}

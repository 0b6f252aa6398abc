//! The gates that decide together about a request: its route's own, and those of the budgets that
//! it shares with other routes.
//!
//! All are locked at once, checked, and then charged: a request that one rule rejects leaves no trace
//! in any. [`Gate::number`] gives the order in which they are locked, the same for every request, so
//! that requests never wait for each other in a circle. A route without budgets locks its own
//! gate alone.

use super::{
    Admission, Gate, Permit,
    chain::{Chain, Charged},
    decide::{Evaluation, GateResults, RejectingResult, extended},
    lock_order::LockOrder,
    settle::SettledReserve,
};
use crate::flow::{
    decision::{Claim, Outcome, RejectedBy, Rejection, Report, SlotId},
    limit_change::AutoStats,
    time::Instant,
};
use core::{task::Waker, time::Duration};
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

    /// Has a limit that finds itself take over the one of a recorded decision: see
    /// [`Gate::follow_limit`].
    pub fn follow_limit(&self, slot: SlotId, now: Instant, limit: u32) {
        let budgets = self.budgets().into_iter().flat_map(|budgets| budgets.all());
        let mut gates = core::iter::once(self.own()).chain(budgets);
        if let Some(gate) = gates.find(|gate| gate.number() == slot.gate) {
            gate.follow_limit(slot, now, limit);
        }
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

    /// Returns the limit that finds itself behind this slot, like [`Gate::auto_stats`].
    pub fn auto_stats(&self, slot: SlotId) -> Option<AutoStats> {
        let budgets = self.budgets().into_iter().flat_map(|budgets| budgets.all());
        let mut gates = core::iter::once(self.own()).chain(budgets);
        gates.find(|gate| gate.number() == slot.gate)?.auto_stats(slot)
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

    /// Runs `work` on all gates, and then wakes those whose wait it has ended, without the locks.
    pub(super) fn with_turns<T>(&self, work: impl FnOnce(&mut LockedGates<'_>) -> T) -> T {
        let mut all = self.lock();
        let result = work(&mut all);
        let mut woken = Vec::new();
        all.each(|_, chain| woken.append(&mut chain.woken));
        drop(all);
        woken.into_iter().for_each(Waker::wake);
        result
    }

    pub(super) const fn budgets(&self) -> Option<&Arc<BudgetGates>> {
        self.budgets.as_ref()
    }
}

impl BudgetGates {
    /// Returns the gates, in the order in which they are locked.
    pub(super) fn all(&self) -> &[Arc<Gate>] {
        &self.gates
    }

    /// Gives back what an admitted request holds of their slots.
    pub(super) fn release(&self, charged: &Charged, outcome: Outcome) {
        for gate in &self.gates {
            if charged.held.iter().any(|held| held.slot.gate == gate.number) {
                gate.with_turns(|chain| chain.release_all(charged, outcome));
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
    /// The own gate's results first, then those of budgets in the order in which they decide.
    pub(super) all: Evaluation<'a>,
    /// The index in `all` behind the last result of each gate.
    ends: SmallVec<[usize; 8]>,
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
        let evaluations = self.evaluate(now, claims, is_counted);
        match evaluations.all.rejection {
            None => {
                let mut charged = self.pass(&evaluations, report);
                charged.keep_report(report);
                Ok(charged)
            }
            Some(rejecting) => Err(self.reject(&evaluations, rejecting, report)),
        }
    }

    /// Returns what [`Self::enter`] would decide: see [`Chain::peek`].
    #[expect(clippy::result_large_err, reason = "as that of `Gate::enter`")]
    fn peek(&mut self, now: Instant, claims: &[Claim]) -> Result<Report, Rejection> {
        let now = self.latest().max(now);
        let mut kept = Vec::new();
        self.each(|_, chain| kept.push(chain.keep_states(now, claims)));
        let evaluations = self.evaluate(now, claims, false);
        let is_passed = evaluations.all.rejection.is_none();

        let mut report = Report::default();
        self.each(|at, chain| {
            let part = evaluations.of_gate(at);
            let quotas = part.results.iter().map(|result| chain.quota(result, part, is_passed));
            report.quotas.extend(quotas);
        });
        let mut kept = kept.into_iter();
        self.each(|_, chain| kept.next().into_iter().for_each(|kept| chain.restore_states(kept)));

        let Some(RejectingResult { at, reason }) = evaluations.all.rejection else {
            return Ok(report);
        };
        let claim = evaluations.all.results[at].claim;
        Err(Rejection { slot: claim.slot, key: Some(claim.key), reason, report })
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
        let mut evaluations = Evaluations::new(now, is_counted);
        let mut has_lent = false;

        self.each(|_, chain| {
            chain.check_each(claims, &mut evaluations.all);
            evaluations.end_gate();
            has_lent |= chain.has_lent;
        });

        if has_lent && let Some(RejectingResult { at, reason }) = evaluations.all.rejection {
            let reason = extended(reason, |wait| self.rejects_for(&evaluations, now + wait));
            evaluations.all.rejection = Some(RejectingResult { at, reason });
        }
        evaluations
    }

    /// Returns for how long the checked slots would reject the request at `then`, if they would.
    fn rejects_for(&self, evaluations: &Evaluations<'_>, then: Instant) -> Option<Duration> {
        let places = self.order.iter().map(|place| usize::from(*place));
        let budgets = places.filter_map(|place| self.budgets.get(place).map(|chain| &**chain));
        let chains = core::iter::once(&*self.own).chain(budgets);
        let waits = chains
            .enumerate()
            .filter_map(|(at, chain)| chain.rejects_for(evaluations.of_gate(at).results, then));
        waits.max()
    }

    /// Charges an admitted request to every checked slot.
    pub(super) fn pass(&mut self, evaluations: &Evaluations<'_>, report: &mut Report) -> Charged {
        let mut charged = Charged::of(&evaluations.all);
        self.each(|at, chain| chain.pass(evaluations.of_gate(at), report, &mut charged));
        charged
    }

    /// Rejects a request for one of the results.
    pub(super) fn reject(
        &mut self,
        evaluations: &Evaluations<'_>,
        rejecting: RejectingResult,
        report: &mut Report,
    ) -> RejectedBy {
        let RejectingResult { at: rejecting_at, reason } = rejecting;
        let mut begin = 0;
        self.each(|at, chain| {
            let part = evaluations.of_gate(at);
            match rejecting_at.checked_sub(begin).filter(|own| *own < part.results.len()) {
                Some(own) => _ = chain.reject(part, RejectingResult { at: own, reason }, report),
                None => chain.record_rejection(part, report),
            }
            begin += part.results.len();
        });
        let claim = evaluations.all.results[rejecting_at].claim;
        RejectedBy { slot: claim.slot, key: Some(claim.key), reason }
    }
}

impl<'a> Evaluations<'a> {
    /// Returns an evaluation without results.
    pub(super) fn new(now: Instant, is_counted: bool) -> Self {
        let all = Evaluation { is_counted, ..Evaluation::new(now) };
        Self { all, ends: SmallVec::new() }
    }

    /// Says that the results so far are all of the gate that was asked last.
    pub(super) fn end_gate(&mut self) {
        self.ends.push(self.all.results.len());
    }

    /// Returns the results of a gate, by its place in the order in which they decide. Statistics are of
    /// routes, so a budget's gate counts no requests.
    pub(super) fn of_gate(&self, at: usize) -> GateResults<'_, 'a> {
        let begin = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        let whole = self.all.of_gate();
        GateResults {
            results: &whole.results[begin..self.ends[at]],
            is_counted: whole.is_counted && at == 0,
            ..whole
        }
    }
}

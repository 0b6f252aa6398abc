//! Requests that wait for places of limits on requests in flight.
//!
//! A request that finds no free place is charged at once by all other rules, and gets a [`Permit`] that
//! waits. [`Permit::poll_start`] has it queue for the first place that it needs. It keeps the places
//! that it has, and queues for one at a time, in the order in which the slots decide. When a request
//! ends, the chain gives its place to the next one in the queue, and wakes that. If the wait ends
//! without a place, all charges are given back.

use super::{
    Gate, Permit,
    chain::HeldSlot,
    places::{Attempt, Queued, TakenPlace},
    settle::Reserve,
};
use crate::flow::{
    decision::{Claim, Outcome, Quota, Reason, Rejection, Report, SlotId, Verdict},
    queue::{Arrival, Sharer, Start},
    slot::Charge,
    time::Instant,
};
use core::{
    task::{Poll, Waker},
    time::Duration,
};
use smallvec::SmallVec;
use std::sync::Arc;

/// A request that waits for places.
#[derive(Debug)]
pub(super) struct Waiting {
    arrival: Instant,
    /// The places that it needs, in the order in which it takes them.
    places: SmallVec<[Place; 2]>,
    /// The number of places that it has taken of these.
    taken: usize,
    /// Its ticket in the queue for the next one, and the end of that wait.
    queued: Option<Queued>,
    /// The charges that are given back if it does not start.
    pub(super) charges: SmallVec<[Reserve; 4]>,
    /// The decisions of all slots.
    report: Report,
    /// The part that it has in the order of each queue; of others the default.
    sharers: Vec<(SlotId, Sharer)>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    /// The slot that has it.
    slot: SlotId,
    claim: Claim,
}

impl Waiting {
    pub(super) fn new(arrival: Instant) -> Self {
        Self {
            arrival,
            places: SmallVec::new(),
            taken: 0,
            queued: None,
            charges: SmallVec::new(),
            report: Report::default(),
            sharers: Vec::new(),
        }
    }

    /// Adds a place of this slot.
    pub(super) fn needs(&mut self, slot: SlotId, claim: Claim) {
        self.places.push(Place { slot, claim });
    }

    /// Keeps the decisions of all slots.
    pub(super) fn keep(&mut self, report: &Report) {
        self.report = report.clone();
    }

    /// Notes that the request has got its next place, and returns the claim on that.
    fn note_taken(&mut self, taken: Option<&TakenPlace>) -> Option<Claim> {
        let claim = self.places.get(self.taken)?.claim;
        self.taken += 1;
        let has_waited = self.queued.take().is_some();
        let arrival = self.arrival;
        if let Some(change) = taken.and_then(|taken| taken.change) {
            self.report.change = Some(change);
        }

        if let Some(TakenPlace { start, .. }) = taken
            && let Some(quota) = self.quota_mut(claim.slot)
        {
            let Charge { usage, limit, .. } = start.charge;
            quota.wait = if has_waited { start.at.since(arrival) } else { Duration::ZERO };
            let is_at_once = quota.wait.is_zero();
            quota.verdict = if is_at_once { Verdict::Passed } else { Verdict::Delayed };
            quota.limit = limit;
            quota.used = usage.usage.used;
        }
        Some(claim)
    }

    fn sharer(&self, slot: SlotId) -> Sharer {
        let sharer = self.sharers.iter().find(|(of, _)| *of == slot);
        sharer.map(|(_, sharer)| *sharer).unwrap_or_default()
    }

    fn quota_mut(&mut self, slot: SlotId) -> Option<&mut Quota> {
        self.report.quotas.iter_mut().find(|quota| quota.slot == slot)
    }
}

impl Permit {
    /// Returns whether the request has to wait for places before it may start. Then
    /// [`poll_start`](Self::poll_start) says when it may.
    pub const fn is_waiting(&self) -> bool {
        self.charged.waiting.is_some()
    }

    /// Gives the request its part in the order of the queues, by the slots as they are claimed. Before the
    /// first call of [`poll_start`](Self::poll_start).
    pub fn share(&mut self, sharers: Vec<(SlotId, Sharer)>) {
        if let Some(waiting) = &mut self.charged.waiting {
            waiting.sharers = sharers;
        }
    }

    /// Returns the end of the wait that [`poll_start`](Self::poll_start) has begun: it must be called
    /// then, if not before.
    pub fn waits_until(&self) -> Option<Instant> {
        Some(self.charged.waiting.as_ref()?.queued?.until)
    }

    /// Takes the places that the request still needs, or queues for the first that is not free. `waker`
    /// is woken when that changes, and replaces the one of the call before. Returns the report with
    /// the waits, once the request has all places: it may begin at [`Self::start`].
    ///
    /// # Errors
    ///
    /// The rejection of a request that may not wait, or has waited too long. All that it was charged is
    /// given back, and the permit holds nothing any more.
    pub fn poll_start(&mut self, now: Instant, waker: &Waker) -> Poll<Result<Report, Rejection>> {
        loop {
            let Some(waiting) = &self.charged.waiting else {
                return Poll::Ready(Ok(Report::default()));
            };
            let Some(&place) = waiting.places.get(waiting.taken) else {
                return Poll::Ready(Ok(self.begin(now)));
            };

            let ticket = waiting.queued.map(|queued| queued.ticket);
            let claim = &place.claim;
            let arrival = Arrival {
                claim,
                sharer: waiting.sharer(place.claim.slot),
                at: waiting.arrival,
                waker,
            };
            let attempt = self.gate_of(place.slot).map(|gate| {
                gate.with_turns(|chain| {
                    let now = chain.clamp(now);
                    match ticket {
                        None => chain.take_place(place.slot, &arrival, now),
                        Some(ticket) => chain.poll_place(place.slot, ticket, now, waker),
                    }
                })
            });

            match attempt {
                None => self.take(None),
                Some(Attempt::Taken(taken)) => self.take(taken.as_ref()),
                Some(Attempt::Queued(queued)) => {
                    if let Some(waiting) = &mut self.charged.waiting {
                        waiting.queued = Some(queued);
                    }
                    return Poll::Pending;
                }
                Some(Attempt::Rejected(reason)) => {
                    return Poll::Ready(Err(self.reject(place.claim, reason, now)));
                }
            }
        }
    }

    /// Ends the wait of a request whose client has left at `now`, and gives back all that it was charged.
    /// Returns its report so far.
    pub fn withdraw(&mut self, now: Instant) -> Report {
        let Some(mut waiting) = self.charged.waiting.take() else { return Report::default() };
        let now = self.leave_queue(&mut waiting, now);

        let arrival = waiting.arrival;
        let next = waiting.places.get(waiting.taken).map(|place| place.claim.slot);
        if let Some(quota) = next.and_then(|slot| waiting.quota_mut(slot)) {
            quota.wait = now.since(arrival);
        }
        self.give_back(&waiting, now);
        if self.charged.is_counted {
            self.gate.lock().statistic.on_waited(now, arrival, now);
        }
        self.charged.start = now;
        waiting.report
    }

    /// Begins the request, which has all its places.
    fn begin(&mut self, now: Instant) -> Report {
        let Some(waiting) = self.charged.waiting.take() else { return Report::default() };
        let waited = waiting.report.wait();
        let start = self.charged.start.max(waiting.arrival + waited);
        self.charged.start = start;
        if self.charged.is_counted {
            let mut chain = self.gate.lock();
            let now = chain.clamp(now);
            chain.statistic.on_waited(now, waiting.arrival, start);
        }
        waiting.report
    }

    /// Notes that the request has its next place.
    fn take(&mut self, taken: Option<&TakenPlace>) {
        let Some(waiting) = &mut self.charged.waiting else { return };
        let Some(Claim { cost, .. }) = waiting.note_taken(taken) else { return };
        if let Some(&TakenPlace { start: Start { slot, charge, .. }, .. }) = taken
            && let Some(hold) = charge.hold
        {
            self.charged.held.push(HeldSlot { slot, hold, cost });
        }
    }

    /// Rejects the request by the rule of this claim.
    fn reject(&mut self, claim: Claim, reason: Reason, now: Instant) -> Rejection {
        let kind = reason.kind();
        let mut report = Report::default();
        if let Some(mut waiting) = self.charged.waiting.take() {
            let waited = now.since(waiting.arrival);
            if let Some(quota) = waiting.quota_mut(claim.slot) {
                quota.verdict = Verdict::Rejected(kind);
                quota.wait = waited;
            }
            self.give_back(&waiting, now);
            report = waiting.report;
        }

        self.ended = true;
        if let Some(budgets) = &self.budgets {
            budgets.release(&self.charged, Outcome::Cancelled);
        }
        let is_counted = self.charged.is_counted;
        self.gate.with_turns(|chain| {
            chain.release_all(&self.charged, Outcome::Cancelled);
            let now = chain.clamp(now);
            if is_counted {
                chain.statistic.on_waited_in_vain(now);
            }
        });
        if let Some(gate) = self.gate_of(claim.slot) {
            gate.lock().count_late(&claim, kind, now);
        }
        self.charged.held.clear();
        Rejection { slot: claim.slot, key: Some(claim.key), reason, report }
    }

    /// Takes the request out of its queue. A place that it has got meanwhile is given back with the
    /// others. Returns the time.
    fn leave_queue(&mut self, waiting: &mut Waiting, now: Instant) -> Instant {
        let Some(&Place { slot, claim }) = waiting.places.get(waiting.taken) else { return now };
        let Some(gate) = self.gate_of(slot) else { return now };
        let Some(Queued { ticket, .. }) = waiting.queued.take() else { return now };

        let gate = Arc::clone(gate);
        gate.with_turns(|chain| {
            let now = chain.clamp(now);
            if let Some(TakenPlace { start, .. }) = chain.leave_place(slot, ticket, now)
                && let Some(hold) = start.charge.hold
            {
                let slot = start.slot;
                self.charged.held.push(HeldSlot { slot, hold, cost: claim.cost });
            }
            now
        })
    }

    /// Gives back what other rules were charged: what they hold is released with the permit.
    fn give_back(&mut self, waiting: &Waiting, now: Instant) {
        let budgets = self.budgets.iter().flat_map(|budgets| budgets.all());
        for gate in core::iter::once(&self.gate).chain(budgets) {
            let of_gate = |charge: &&Reserve| charge.is_of_gate(gate.number());
            if waiting.charges.iter().any(|charge| of_gate(&charge)) {
                gate.lock().give_back(now, waiting.charges.iter().filter(of_gate));
            }
        }
        self.charged.reserves.clear();

        let start = self.charged.start;
        if now < start && !self.charged.queues.is_empty() {
            self.gate.lock().free_places(now, start, &self.charged.queues);
            if let Some(budgets) = &self.budgets {
                budgets.free_places(now, &self.charged);
            }
        }
    }

    fn gate_of(&self, slot: SlotId) -> Option<&Arc<Gate>> {
        let budgets = self.budgets.iter().flat_map(|budgets| budgets.all());
        core::iter::once(&self.gate).chain(budgets).find(|gate| gate.number() == slot.gate)
    }
}

#[cfg(test)]
mod tests;

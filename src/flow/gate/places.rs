//! The chain's part in the wait for places: a request takes one, or queues for it; and the end of another
//! gives it one.

use super::{Gate, chain::Chain, chain_slot::ChainSlot, settle::Reserve};
use crate::flow::{
    decision::{Claim, Decision, Reason, ReasonKind, RuleChange, SlotId},
    keyed::{KeySlot, Lookup},
    limiter::{Difference, Times},
    queue::{Arrival, Progress, QueueDecision, Start, WaitQueue},
    slot::{Charge, Settled, SlotAnswer},
    time::Instant,
    transfer::{Journal, LateSettlement},
};
use core::{mem::take, task::Waker};

/// The place of a request in a queue, and the end of its wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queued {
    pub(super) ticket: u32,
    pub(super) until: Instant,
}

/// The result of an attempt to take a place.
#[derive(Debug)]
pub(super) enum Attempt {
    /// The request has it; `None` if the rule that had it is gone.
    Taken(Option<TakenPlace>),
    Queued(Queued),
    Rejected(Reason),
}

/// A place that a request has taken.
#[derive(Debug)]
pub(super) struct TakenPlace {
    pub(super) start: Start,
    /// A change of the rule's limit that this request reports.
    pub(super) change: Option<RuleChange>,
}

/// The circumstances of a turn: the time, the journal of the chain, and those to wake.
pub(super) struct Turning<'c> {
    pub(super) now: Instant,
    pub(super) journal: Option<&'c Journal>,
    pub(super) woken: &'c mut Vec<Waker>,
}

impl Gate {
    /// Runs `work` on the chain, and then wakes those whose wait it has ended, without the lock.
    #[inline]
    pub(super) fn with_turns<T>(&self, work: impl FnOnce(&mut Chain) -> T) -> T {
        let mut chain = self.lock();
        let result = work(&mut chain);
        if !chain.woken.is_empty() {
            let woken = take(&mut chain.woken);
            drop(chain);
            woken.into_iter().for_each(Waker::wake);
        }
        result
    }
}

impl Chain {
    /// Takes a place of a slot for a request, or has it wait there.
    pub(super) fn take_place(
        &mut self,
        slot: SlotId,
        arrival: &Arrival<'_>,
        now: Instant,
    ) -> Attempt {
        let Self { slots, journal, woken, .. } = self;
        let Some(entry) = slots.iter_mut().find(|entry| entry.stands_for(slot)) else {
            return Attempt::Taken(None);
        };

        let claim = arrival.claim;
        let known = entry.prepare(now, claim);
        let answer = entry.slot.check(now, claim, known, &entry.pending);
        match (entry.queued(answer, claim, now), answer.lookup) {
            (QueueDecision::As(Decision::Reject(reason)), _) => Attempt::Rejected(reason),
            (QueueDecision::Wait, Lookup::At(key_slot)) => {
                let attempt = entry.begin_wait(arrival, key_slot, now, woken);
                // The limit may have risen since the latest turn.
                if entry.is_auto {
                    entry.give_turns(key_slot, Turning { now, journal: journal.as_ref(), woken });
                }
                attempt
            }
            // A new client has room.
            (QueueDecision::As(Decision::Pass | Decision::Delay(_)), lookup)
            | (QueueDecision::Wait, lookup @ Lookup::New { .. }) => {
                let charge = entry.charge_place(claim, lookup, now, journal.as_ref());
                entry.counts.passed += 1;
                let start = Start { at: now, slot: entry.id, charge };
                Attempt::Taken(Some(TakenPlace { start, change: entry.take_change() }))
            }
        }
    }

    /// Looks after a request that waits in the queue of a slot.
    pub(super) fn poll_place(
        &mut self,
        slot: SlotId,
        ticket: u32,
        now: Instant,
        waker: &Waker,
    ) -> Attempt {
        let Some(entry) = self.current(slot) else { return Attempt::Taken(None) };
        let slot = entry.id;
        let Some(queue) = &mut entry.queue else { return Attempt::Taken(None) };

        let line = queue.line_of(ticket);
        match queue.poll(ticket, now, waker) {
            Some(Progress::Waiting { until }) => Attempt::Queued(Queued { ticket, until }),
            Some(Progress::Started(start)) => {
                entry.counts.delayed += 1;
                entry.drop_closed_queue();
                let change = entry.take_change();
                Attempt::Taken(Some(TakenPlace { start, change }))
            }
            Some(Progress::Rejected(reason)) => {
                self.after_leaving(slot, line, now);
                Attempt::Rejected(reason)
            }
            None => Attempt::Taken(None),
        }
    }

    /// Takes a request that leaves out of the queue of a slot. Returns the place that it has got
    /// meanwhile.
    pub(super) fn leave_place(
        &mut self,
        slot: SlotId,
        ticket: u32,
        now: Instant,
    ) -> Option<TakenPlace> {
        let entry = self.current(slot)?;
        let queue = entry.queue.as_mut()?;
        let line = queue.line_of(ticket);
        let start = queue.forget(ticket);
        entry.counts.delayed += 1;
        let slot = entry.id;
        self.after_leaving(slot, line, now);
        start.map(|start| TakenPlace { start, change: None })
    }

    /// Gives turns after a request has left a line: the next one may need fewer places, and fit.
    fn after_leaving(&mut self, slot: SlotId, line: Option<KeySlot>, now: Instant) {
        let Self { slots, journal, woken, .. } = self;
        let Some(entry) = slots.iter_mut().find(|entry| entry.id == slot) else { return };
        if let Some(key_slot) = line {
            entry.give_turns(key_slot, Turning { now, journal: journal.as_ref(), woken });
        }
        entry.drop_closed_queue();
    }

    /// Counts a request that the rule of this claim rejects at the end of its wait.
    pub(super) fn count_late(&mut self, claim: &Claim, kind: ReasonKind, now: Instant) {
        let now = self.clamp(now);
        if let Some(entry) = self.current(claim.slot) {
            entry.on_reject(kind, claim.key, now);
        }
    }

    /// Gives back charges to this chain's slots.
    pub(super) fn give_back<'c>(
        &mut self,
        now: Instant,
        charges: impl Iterator<Item = &'c Reserve>,
    ) {
        let now = self.clamp(now);
        for charge in charges {
            let slot = charge.charged();
            let entry = self.slots.iter_mut().find(|entry| entry.id == slot);
            let Some(entry) = entry else { continue };

            let difference = Difference::Less(charge.cost());
            let settled = entry.slot.settle(now, charge.owner(), difference);
            if let Some(Settled { key_slot, receipt, .. }) = settled
                && let Some(journal) = &self.journal
                && let Some(owner) = entry.slot.exported(key_slot)
            {
                let settlement = LateSettlement { now, receipt, difference, unforeseen: None };
                journal.settled(slot, owner, settlement);
            }
        }
    }

    /// Gives free places to those that wait for them, in all queues.
    pub(super) fn give_all_turns(&mut self) {
        let Self { slots, journal, woken, latest: now, .. } = self;
        for entry in slots.iter_mut().filter(|entry| entry.queue.is_some()) {
            let turning = Turning { now: *now, journal: journal.as_ref(), woken: &mut *woken };
            entry.give_all_turns(turning);
        }
    }
}

impl ChainSlot {
    /// Decides about a request after the limiter, if requests may wait here.
    #[inline]
    pub(super) fn queued(&self, answer: SlotAnswer, claim: &Claim, now: Instant) -> QueueDecision {
        match &self.queue {
            Some(queue) => queue.decide(answer, claim.cost, now),
            None => QueueDecision::As(answer.decision),
        }
    }

    /// Has a request wait for a place of this state. One that comes from another queue may have no time
    /// left, and a full queue may have no room for its share.
    fn begin_wait(
        &mut self,
        arrival: &Arrival<'_>,
        key_slot: KeySlot,
        now: Instant,
        woken: &mut Vec<Waker>,
    ) -> Attempt {
        let Some(queue) = &mut self.queue else { return Attempt::Taken(None) };
        let until = queue.deadline(arrival.at);
        if until <= now {
            return Attempt::Rejected(queue.late(key_slot, now));
        }
        if let Err(reason) = queue.make_room(key_slot, arrival.sharer, now, woken) {
            return Attempt::Rejected(reason);
        }
        let ticket = queue.push(arrival, key_slot, now);
        Attempt::Queued(Queued { ticket, until })
    }

    /// Charges a request that takes a place.
    fn charge_place(
        &mut self,
        claim: &Claim,
        lookup: Lookup,
        now: Instant,
        journal: Option<&Journal>,
    ) -> Charge {
        let times = Times::at(now);
        // Only a breaker has transitions.
        let charge = self.slot.on_pass(times, claim.cost, lookup, &mut None);
        if let Some(journal) = journal
            && let Some(owner) = self.slot.exported(charge.key_slot)
        {
            let plan = self.slot.plan_at(charge.key_slot);
            journal.charged(self.id, owner, times, claim.cost, plan);
        }
        charge
    }

    /// Gives free places of a state to those that wait for them.
    pub(super) fn give_turns(&mut self, key_slot: KeySlot, mut turning: Turning<'_>) {
        let Some(mut queue) = self.queue.take() else { return };
        while let Some(ticket) = queue.next(key_slot, turning.now, turning.woken) {
            if !self.give_turn(&mut queue, ticket, &mut turning) {
                break;
            }
        }
        if self.is_auto {
            self.slot.set_waiting(turning.now, queue.has_line(key_slot));
        }
        self.queue = Some(queue);
    }

    /// Gives free places of all states to those that wait for them.
    fn give_all_turns(&mut self, turning: Turning<'_>) {
        let Turning { now, journal, woken } = turning;
        let waited_for = self.queue.as_ref().map(|queue| queue.key_slots()).unwrap_or_default();
        for key_slot in waited_for {
            self.give_turns(key_slot, Turning { now, journal, woken: &mut *woken });
        }
    }

    /// Gives a request a place, if there is one. Returns whether its wait has ended.
    fn give_turn(&mut self, queue: &mut WaitQueue, ticket: u32, turning: &mut Turning<'_>) -> bool {
        let Some(claim) = queue.claim(ticket) else { return false };
        let now = turning.now;
        let known = self.prepare(now, &claim);
        let SlotAnswer { decision, lookup } = self.slot.check(now, &claim, known, &self.pending);

        match decision {
            Decision::Pass | Decision::Delay(_) => {
                let charge = self.charge_place(&claim, lookup, now, turning.journal);
                queue.start(ticket, Start { at: now, slot: self.id, charge }, turning.woken);
                true
            }
            // An edit has made the limit less than the request costs.
            Decision::Reject(reason) if reason.is_lasting() => {
                queue.reject(ticket, reason, turning.woken);
                true
            }
            Decision::Reject(_) => false,
        }
    }
}

/// Edits.
impl ChainSlot {
    /// Gives the queue the settings of the edited rule. Those that wait go on, also without a queue.
    pub(super) fn convert_queue(&mut self, turning: Turning<'_>) {
        let config = self.rule.queue().cloned();
        match (&mut self.queue, config) {
            (Some(queue), Some(config)) => queue.set(config, turning.now, turning.woken),
            (Some(queue), None) => queue.close(),
            (None, config) => self.queue = config.map(|config| Box::new(WaitQueue::new(config))),
        }
        if self.is_auto {
            self.slot.set_waiting(turning.now, self.has_waiting());
        }
        self.drop_closed_queue();
        self.give_all_turns(turning);
    }

    /// Goes on with the queue of the slot that this one was reset from: its requests wait for places of
    /// this one, in the same order.
    pub(super) fn take_queue(&mut self, mut queue: Box<WaitQueue>, mut turning: Turning<'_>) {
        let Some(config) = self.rule.queue().cloned() else {
            return queue.dissolve(turning.woken);
        };
        let now = turning.now;
        let tickets = queue.take_lines();
        for ticket in tickets {
            let Some(claim) = queue.claim(ticket) else { continue };
            let known = self.prepare(now, &claim);
            let lookup = self.slot.check(now, &claim, known, &self.pending).lookup;
            match lookup {
                Lookup::At(key_slot) if queue.has_line(key_slot) => {
                    queue.put_back(ticket, key_slot, now);
                }
                Lookup::At(_) | Lookup::New { .. } => {
                    if !self.give_turn(&mut queue, ticket, &mut turning)
                        && let Lookup::At(key_slot) = lookup
                    {
                        queue.put_back(ticket, key_slot, now);
                    }
                }
            }
        }
        queue.set(config, now, turning.woken);
        self.queue = Some(queue);
        if self.is_auto {
            self.slot.set_waiting(now, self.has_waiting());
        }
    }

    /// Returns whether requests wait here.
    fn has_waiting(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.waiting() > 0)
    }

    /// Has those start that wait, because their rule is gone.
    pub(super) fn dissolve_queue(&mut self, woken: &mut Vec<Waker>) {
        if let Some(queue) = self.queue.take() {
            queue.dissolve(woken);
        }
    }

    /// Drops a queue in which no request may wait any more, once none does.
    fn drop_closed_queue(&mut self) {
        if self.rule.queue().is_none() && self.queue.as_ref().is_some_and(|queue| queue.is_unused())
        {
            self.queue = None;
        }
    }
}

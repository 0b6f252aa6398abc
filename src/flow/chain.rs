//! A route's slots, which decide together.

mod evaluation;
mod keys;
mod pass_at_once;
mod peek;
mod reservation;
mod slots;
mod take_over;
mod transfer;

use super::{
    decision::{Claim, Decision, Outcome, Reason, RejectedBy, Report, SlotId, Verdict},
    grants::Grants,
    keyed::KeySlot,
    limiter::{End, Times, Until, breaker},
    pending::Pendings,
    rules::{Change, Installed, Rules, rule_of},
    shared::{Delta, RemoteState, RoundTrip},
    slot::{Charge, Hold, Slot},
    statistic::{Counts, Observation, Statistic, Totals},
    time::{Instant, WallOffset},
    transfer::Journal,
};
use core::time::Duration;
use evaluation::{Evaluation, SlotResult};
pub use keys::NotReset;
pub(super) use reservation::{Reserved, StoreRejection};
use slots::{ChainSlot, Wanted};
use smallvec::SmallVec;

/// The most replaced slots whose charges still wait to be synced, which happens about ten times a
/// second.
const MAX_UNSYNCED: usize = 64;

/// How often `retry_after` is extended. Each round passes one loan, and no rule lends from many
/// windows.
const MAX_ROUNDS: u32 = 8;

#[derive(Debug)]
pub(super) struct Chain {
    statistic: Statistic,
    /// Flow rules, then the breaker, then pacing.
    slots: Vec<ChainSlot>,
    /// Slots that edits removed or reset, until their charges are synced.
    unsynced: Vec<ChainSlot>,
    next: u32,
    tickets: u64,
    /// The latest instant seen. Threads read the clock before they take the lock, so theirs may be
    /// earlier.
    latest: Instant,
    wall: WallOffset,
    /// Whether an edit may have left clients' states to be converted.
    is_behind: bool,
    /// Whether a request ever borrowed from a coming window.
    has_lent: bool,
    /// Sends another process the changes to the states that it has.
    journal: Option<Journal>,
}

/// A request that passed every slot.
#[derive(Debug)]
pub(super) struct Charged {
    /// The latest start that any slot asked for.
    pub(super) start: Instant,
    pub(super) held: Held,
    /// Where it waits for its turn.
    pub(super) queues: Queues,
    /// Whether the route's statistics count it.
    pub(super) is_counted: bool,
}

/// The slots in which a request waits, if all clients share their queues.
pub(super) type Queues = SmallVec<[SlotId; 1]>;

/// What a request holds until its end.
pub(super) type Held = SmallVec<[HeldSlot; 4]>;

/// What a request holds of one slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldSlot {
    slot: SlotId,
    hold: Hold,
    cost: u64,
}

impl HeldSlot {
    /// Returns whether it is released by the answer.
    pub(super) fn awaits_answer(&self) -> bool {
        self.hold.until == Until::Answer
    }
}

impl Chain {
    pub(super) fn new(now: Instant) -> Self {
        let statistic = Statistic::default();
        let slots = Vec::new();
        let unsynced = Vec::new();
        Self {
            statistic,
            slots,
            unsynced,
            next: 0,
            tickets: 0,
            latest: now,
            wall: WallOffset::default(),
            is_behind: false,
            has_lent: false,
            journal: None,
        }
    }

    /// Replaces the rules; rules are matched by name. Returns how each changed, and the unused
    /// slots, which the caller drops outside the lock.
    pub(super) fn install(&mut self, rules: &Rules, now: Instant) -> (Installed, Vec<ChainSlot>) {
        debug_assert!(self.journal.is_none(), "the rules are being exported");
        let now = self.clamp(now);
        let mut before: Vec<Option<ChainSlot>> = self.slots.drain(..).map(Some).collect();
        let mut unused = Vec::new();
        let mut installed = Installed::default();
        let flow = rules.flow.iter().cloned().map(Wanted::Flow);
        let breaker = rules.breaker.iter().cloned().map(Wanted::Breaker);
        let pacing = rules.pacing.iter().cloned().map(Wanted::Pacing);
        for wanted in flow.chain(breaker).chain(pacing) {
            let same = before.iter_mut().find(|entry| {
                entry.as_ref().is_some_and(|entry| entry.wanted.is_version_of(&wanted))
            });
            let (entry, change) = match same.and_then(Option::take) {
                None => (self.entry(wanted, None, Counts::default()), Change::Added),
                Some(entry) => self.replace(entry, wanted, now, &mut unused),
            };
            match entry.wanted {
                Wanted::Flow(_) => installed.flow.push(entry.id),
                Wanted::Breaker(_) => installed.breaker = Some(entry.id),
                Wanted::Pacing(_) => installed.pacing = Some(entry.id),
            }
            installed.changes.push((entry.wanted.name(), change));
            self.slots.push(entry);
        }
        for entry in before.into_iter().flatten() {
            installed.changes.push((entry.wanted.name(), Change::Removed));
            self.hand_over_counts(&entry);
            unused.push(entry);
        }
        let (unsynced, mut unused): (Vec<_>, Vec<_>) =
            unused.into_iter().partition(|entry| entry.wanted.is_synced());
        self.unsynced.extend(unsynced);
        let excess = self.unsynced.len().saturating_sub(MAX_UNSYNCED);
        unused.extend(self.unsynced.drain(..excess));
        self.is_behind = true;
        self.catch_up();
        (installed, unused)
    }

    /// Applies a step of the wall clock to the rules that count by it.
    pub(super) fn set_wall(&mut self, wall: WallOffset, now: Instant) {
        debug_assert!(self.journal.is_none(), "the rules are being exported");
        let now = self.clamp(now);
        if core::mem::replace(&mut self.wall, wall) == wall {
            return;
        }
        for entry in self.slots.iter_mut().filter(|entry| entry.wanted.follows_wall()) {
            let is_same = entry.slot.retune(entry.wanted.build(wall), now);
            debug_assert!(is_same, "it is built of the same rule");
        }
        self.is_behind = true;
        self.catch_up();
    }

    /// Converts some states that an edit left. Returns whether there may be more.
    pub(super) fn catch_up(&mut self) -> bool {
        let now = self.latest;
        self.is_behind =
            self.is_behind && self.slots.iter_mut().any(|entry| entry.slot.catch_up(now));
        self.is_behind
    }

    /// Decides about a request at `now` and charges it if it is admitted. Adds each slot's part to
    /// `report`. The route's statistics count it if `is_counted`.
    ///
    /// # Errors
    ///
    /// The reason of the rejection; no slot was charged.
    #[inline]
    pub(super) fn enter(
        &mut self,
        now: Instant,
        claims: &[Claim],
        report: &mut Report,
        is_counted: bool,
    ) -> Result<Charged, RejectedBy> {
        let mut evaluation = Evaluation::new(self.clamp(now));
        evaluation.is_counted = is_counted;
        self.check_all(claims, &mut evaluation);
        match evaluation.rejection {
            None => Ok(self.pass(&evaluation, report)),
            Some(blame) => Err(self.reject(&evaluation, blame, report)),
        }
    }

    /// Records how an admitted request is answered, and removes from `held` what that releases.
    /// Returns the breaker's transition.
    pub(super) fn answer(
        &mut self,
        start: Instant,
        held: &mut Held,
        outcome: Outcome,
    ) -> Option<breaker::Transition> {
        let now = self.end(outcome);
        let mut turn = None;
        held.retain(|hold| {
            let ends = hold.awaits_answer();
            if ends {
                let released = self.release(now, start, hold, outcome);
                turn = turn.or(released);
            }
            !ends
        });
        turn
    }

    /// Ends an admitted request. Returns the breaker's transition.
    pub(super) fn leave(
        &mut self,
        Charged { start, held, is_counted, .. }: &Charged,
        outcome: Outcome,
    ) -> Option<breaker::Transition> {
        let start = *start;
        let now = self.end(outcome);
        if *is_counted {
            self.statistic.on_done(now, start, outcome);
        }
        let mut turn = None;
        for hold in held {
            let released = self.release(now, start, hold, outcome);
            turn = turn.or(released);
        }
        turn
    }

    /// Frees the places of a request that has left at `now`, while it waited in `queues` for `start`.
    pub(super) fn free_places(&mut self, now: Instant, start: Instant, queues: &[SlotId]) {
        let now = self.clamp(now);
        for entry in self.slots.iter_mut().filter(|entry| queues.contains(&entry.id)) {
            if let Some(journal) = &self.journal
                && let Some(owner) = entry.slot.exported(KeySlot::Shared)
                && !entry.wanted.is_keyed()
            {
                journal.left(entry.id, owner, now, start);
            }
            entry.slot.abandon(start, now);
        }
    }

    /// Returns the time of the end or answer, clamped.
    fn end(&mut self, outcome: Outcome) -> Instant {
        match outcome {
            Outcome::Success { at } | Outcome::Failure { at } => self.clamp(at),
            Outcome::Cancelled => self.latest,
        }
    }

    fn release(
        &mut self,
        now: Instant,
        start: Instant,
        hold: &HeldSlot,
        outcome: Outcome,
    ) -> Option<breaker::Transition> {
        let HeldSlot { slot, hold: Hold { key_slot, token, .. }, cost } = *hold;
        // A slot that an edit removed or reset is gone; its successor did not charge this request.
        let entry = self.slots.iter_mut().find(|entry| entry.id == slot)?;
        let end = End { now, start, outcome, token };
        if let Some(journal) = &self.journal
            && let Some(owner) = entry.slot.exported(key_slot)
        {
            journal.released(slot, owner, &end, cost);
        }
        entry.slot.on_done(key_slot, &end, cost)
    }

    pub(super) fn observe(&self, now: Instant) -> Observation {
        let now = now.max(self.latest);
        Observation {
            rules: self.slots.iter().map(|entry| entry.observe(now)).collect(),
            ..self.statistic.observe(now)
        }
    }

    pub(super) fn totals(&self, now: Instant) -> Totals {
        self.statistic.totals(now.max(self.latest))
    }

    /// Collects unsynced charges of a slot: see
    /// [`Sync::collect`](crate::flow::slot::Sync::collect). An unused slot is dropped when it is
    /// done.
    pub(super) fn collect(
        &mut self,
        slot: SlotId,
        from: u32,
        most: usize,
        into: &mut Vec<Delta>,
    ) -> Option<u32> {
        let next = self.slot_mut(slot)?.collect(from, most, into);
        if next.is_none() {
            self.unsynced.retain(|entry| entry.id != slot);
        }
        next
    }

    /// Adopts a store's states. Returns whether all others were forgotten.
    pub(super) fn adopt(&mut self, slot: SlotId, trip: RoundTrip, states: &[RemoteState]) -> bool {
        let trip = RoundTrip { came: self.clamp(trip.came), ..trip };
        self.slot_mut(slot).is_some_and(|slot| slot.adopt(trip, states))
    }

    fn slot_mut(&mut self, slot: SlotId) -> Option<&mut dyn Slot> {
        let mut slots = self.slots.iter_mut().chain(&mut self.unsynced);
        slots.find(|entry| entry.id == slot).map(|entry| &mut *entry.slot)
    }

    /// Clamps `now`, and prepares the keyed slots for `claims`.
    ///
    /// This converts and recalls states, which changes no later decision.
    #[inline]
    fn arrive(&mut self, now: Instant, claims: &[Claim]) -> Instant {
        let now = self.clamp(now);
        self.prepare(now, claims);
        now
    }

    /// Prepares the keyed slots for `claims`.
    #[inline]
    fn prepare(&mut self, now: Instant, claims: &[Claim]) {
        for entry in &mut self.slots {
            if let Some(claim) = entry.claim_in(claims) {
                entry.prepare(now, claim);
            }
        }
    }

    /// Prepares and checks every slot that has a claim.
    ///
    /// This converts and recalls states, which changes no later decision.
    #[inline]
    fn check_all<'a>(&mut self, claims: &'a [Claim], evaluation: &mut Evaluation<'a>) {
        // Also after a rejection: the longest one prevails, and the report has all of them.
        for (at, entry) in self.slots.iter_mut().enumerate() {
            if let Some(claim) = entry.claim_in(claims) {
                let known = entry.prepare(evaluation.now, claim);
                evaluation.check(at, entry, claim, known);
            }
        }
        if self.has_lent && evaluation.rejection.is_some() && evaluation.results.len() > 1 {
            self.extend_retry_after(evaluation);
        }
    }

    /// Extends `retry_after` until no rule rejects: a rule that would pass the request now may have
    /// lent what it has later. Clients see whole seconds, so these must fit too.
    fn extend_retry_after(&self, evaluation: &mut Evaluation<'_>) {
        let Some((at, reason)) = evaluation.rejection else { return };
        let Some(mut wait) = reason.retry_after() else { return };
        for _ in 0..MAX_ROUNDS {
            let second = Duration::from_secs(wait.as_secs() + u64::from(wait.subsec_nanos() > 0));
            let later = [wait, second].into_iter().filter_map(|wait| {
                let others = evaluation.results.iter().filter(|result| !result.is_granted);
                let longer = others.filter_map(|result| {
                    let entry = &self.slots[result.index];
                    let then = evaluation.now + wait;
                    match entry.slot.check(then, result.claim, None, &entry.pending).decision {
                        Decision::Reject(it) if !entry.wanted.is_dry_run() => it.retry_after(),
                        Decision::Reject(_) | Decision::Pass | Decision::Delay(_) => None,
                    }
                });
                longer.max().map(|longer| wait + longer)
            });
            let Some(later) = later.max() else { break };
            wait = later;
        }
        evaluation.rejection = Some((at, reason.with_retry_after(wait)));
    }

    /// Charges an admitted request to every checked slot.
    #[inline]
    fn pass(&mut self, evaluation: &Evaluation<'_>, report: &mut Report) -> Charged {
        let &Evaluation { now, start, is_counted, .. } = evaluation;
        if is_counted {
            self.statistic.on_pass(now, start);
        }
        let mut held = Held::new();
        let mut queues = Queues::new();
        for result in &evaluation.results {
            let &SlotResult { index, claim, verdict, wait, lookup, is_granted } = result;
            let &Claim { key, cost, patience, .. } = claim;
            let entry = &mut self.slots[index];
            if verdict == Verdict::Delayed && !patience.is_zero() && !self.has_lent {
                self.has_lent = true;
                self.journal.iter().for_each(|journal| journal.lent(entry.id));
            }
            if let Verdict::DryRunRejected(kind) = verdict {
                entry.on_reject(kind, key, now);
            }
            let ChainSlot { id, slot, counts, wanted, grants, .. } = entry;
            match verdict {
                Verdict::Passed => counts.passed += 1,
                Verdict::Delayed => counts.delayed += 1,
                Verdict::Rejected(_) => {}
                Verdict::DryRunRejected(_) => slot.on_reject(lookup),
            }
            let is_charged =
                cost > 0 && !is_granted && matches!(verdict, Verdict::Passed | Verdict::Delayed);
            if is_granted {
                grants.spend(claim);
            }
            if start > now && is_charged && !wanted.is_dry_run() && slot.is_queue() {
                queues.push(*id);
            }
            let quota = if is_charged {
                let times = Times { now, own: now + wait, start };
                let Charge { key_slot, hold, usage, limit } =
                    slot.on_pass(times, cost, lookup, &mut report.transition);
                if let Some(journal) = &self.journal
                    && let Some(owner) = slot.exported(key_slot)
                {
                    journal.charged(*id, owner, times, cost);
                }
                if let Some(hold) = hold {
                    held.push(HeldSlot { slot: *id, hold, cost });
                }
                result.quota_with_growth(limit, usage)
            } else {
                result.quota_with_growth(slot.limit(), slot.usage_and_growth(now, cost, lookup))
            };
            report.quotas.push(quota);
        }
        Charged { start, held, queues, is_counted }
    }

    /// Rejects a request for the result at this index.
    fn reject(
        &mut self,
        evaluation: &Evaluation<'_>,
        (at, reason): (usize, Reason),
        report: &mut Report,
    ) -> RejectedBy {
        self.record_rejection(evaluation, report);
        let SlotResult { index, claim, .. } = evaluation.results[at];
        self.slots[index].on_reject(reason.kind(), claim.key, evaluation.now);
        RejectedBy { slot: claim.slot, key: Some(claim.key), reason }
    }

    /// Records a rejected request in every checked slot.
    fn record_rejection(&mut self, evaluation: &Evaluation<'_>, report: &mut Report) {
        let now = evaluation.now;
        if evaluation.is_counted {
            self.statistic.on_reject(now);
        }
        for result in &evaluation.results {
            let slot = &mut self.slots[result.index].slot;
            report.quotas.push(result.quota(slot.limit(), slot.usage(now, result.lookup)));
            slot.on_reject(result.lookup);
        }
    }

    /// Returns the slot that replaces `slot` for `wanted`.
    fn replace(
        &mut self,
        mut entry: ChainSlot,
        wanted: Wanted,
        now: Instant,
        unused: &mut Vec<ChainSlot>,
    ) -> (ChainSlot, Change) {
        if entry.wanted == wanted {
            return (entry, Change::Kept);
        }
        if entry.slot.retune(wanted.build(self.wall), now) {
            return (ChainSlot { wanted, ..entry }, Change::Converted);
        }
        let previous = Some(entry.id);
        let counts = entry.counts();
        unused.push(entry);
        (self.entry(wanted, previous, counts), Change::Reset)
    }

    /// Adds the counts of a removed override to its rule: the rule's sum must not decrease.
    fn hand_over_counts(&mut self, gone: &ChainSlot) {
        let Wanted::Flow(gone_rule) = &gone.wanted else { return };
        let is_rule_of_it = |entry: &&mut ChainSlot| match &entry.wanted {
            Wanted::Flow(rule) => rule_of(&rule.name) == rule_of(&gone_rule.name),
            Wanted::Breaker(_) | Wanted::Pacing(_) => false,
        };
        if let Some(rule) = self.slots.iter_mut().rev().find(is_rule_of_it) {
            rule.counts += gone.counts();
        }
    }

    fn clamp(&mut self, now: Instant) -> Instant {
        self.latest = self.latest.max(now);
        self.latest
    }

    fn entry(&mut self, wanted: Wanted, previous: Option<SlotId>, counts: Counts) -> ChainSlot {
        let id = SlotId(self.next);
        self.next += 1;
        let slot = wanted.build(self.wall);
        let pending = Pendings::default();
        let grants = Grants::default();
        ChainSlot { id, previous, wanted, slot, counts, pending, rejections: None, grants }
    }
}

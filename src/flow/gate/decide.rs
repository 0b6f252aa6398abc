//! The decision about a request: all slots are checked before any is charged.

use super::{
    chain::{Chain, Charged, Held, HeldSlot},
    chain_slot::ChainSlot,
    settle::Reserve,
};
use crate::flow::{
    decision::{
        Claim, Decision, Key, Quota, Reason, ReasonKind, RejectedBy, Rejection, Report, Verdict,
    },
    keyed::{KeySlot, Lookup},
    limiter::{QuotaUsage, Receipt, Times, Usage},
    queue::QueueDecision,
    slot::{Charge, KeptState, SlotAnswer},
    time::Instant,
    transfer::{Journal, StateOwner},
};
use core::time::Duration;
use smallvec::SmallVec;

/// The most rounds that extend `retry_after`. Each passes one loan, and no rule lends from many
/// windows.
const MAX_ROUNDS: u32 = 8;

/// Copies of states before a check, each with the index of its slot.
#[derive(Default)]
pub(super) struct KeptStates(Vec<(usize, KeptState)>);

/// The slots' results for one request, before any is charged.
pub(super) struct Evaluation<'a> {
    /// In the order in which the slots decide; of several gates, one after the other.
    pub(super) results: SmallVec<[SlotResult<'a>; 8]>,
    pub(super) now: Instant,
    /// The latest start that any slot asks for.
    pub(super) start: Instant,
    pub(super) rejection: Option<RejectingResult>,
    /// True if the route's statistics count the request.
    pub(super) is_counted: bool,
    /// True if it has to wait for a place.
    pub(super) waits: bool,
}

/// The part of one gate in an [`Evaluation`].
#[derive(Clone, Copy)]
pub(super) struct GateResults<'e, 'a> {
    pub(super) results: &'e [SlotResult<'a>],
    pub(super) now: Instant,
    /// The start of the request, which all gates share.
    pub(super) start: Instant,
    /// True if the statistics of this gate count the request.
    pub(super) is_counted: bool,
    /// True if it has to wait for a place, of whatever gate.
    pub(super) waits: bool,
}

/// The result of one slot.
pub(super) struct SlotResult<'a> {
    pub(super) index: usize,
    pub(super) claim: &'a Claim,
    pub(super) verdict: Verdict,
    pub(super) wait: Duration,
    pub(super) lookup: Lookup,
    /// True if a grant admits what the rule would reject.
    pub(super) is_granted: bool,
    /// True if the request exceeds the limit of a rule that bans for it.
    pub(super) begins_ban: bool,
    /// True if the request takes its place here later, after a wait for this one or an earlier one.
    pub(super) is_later: bool,
}

/// The result that rejects the request, of several the one whose reason outranks the others.
#[derive(Clone, Copy)]
pub(super) struct RejectingResult {
    /// Its index in [`Evaluation::results`].
    pub(super) at: usize,
    pub(super) reason: Reason,
}

impl<'a> Evaluation<'a> {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            results: SmallVec::new(),
            now,
            start: now,
            rejection: None,
            is_counted: true,
            waits: false,
        }
    }

    /// Returns the results of all slots, if one gate has them.
    pub(super) fn of_gate(&self) -> GateResults<'_, 'a> {
        let &Self { ref results, now, start, is_counted, waits, .. } = self;
        GateResults { results, now, start, is_counted, waits }
    }

    /// Checks a slot that was [prepared](crate::flow::slot::Slot::prepare), with the state that
    /// this returned.
    pub(super) fn check(
        &mut self,
        at: usize,
        entry: &ChainSlot,
        claim: &'a Claim,
        known: Option<KeySlot>,
    ) {
        let now = self.now;
        let mut answer = entry.slot.check(now, claim, known, &entry.pending);
        if entry.queue.is_some() && self.waits_here(entry, &mut answer, claim) {
            return self.wait(at, claim, answer.lookup);
        }
        let begins_ban = entry.bans.is_some() && decide_bans(entry, &mut answer, claim, now);
        let SlotAnswer { decision, lookup } = answer;
        let is_granted = matches!(decision, Decision::Reject(_)) && entry.grants.admit(claim, now);

        let (verdict, wait) = match decision {
            Decision::Reject(_) if is_granted => (Verdict::Passed, Duration::ZERO),
            Decision::Pass => (Verdict::Passed, Duration::ZERO),
            // A dry run charges but does not delay.
            Decision::Delay(wait) if entry.rule.is_dry_run() => (Verdict::Passed, wait),
            Decision::Delay(wait) => {
                self.start = self.start.max(now + wait);
                (Verdict::Delayed, wait)
            }
            Decision::Reject(reason) if entry.rule.is_dry_run() => {
                (Verdict::DryRunRejected(reason.kind()), Duration::ZERO)
            }
            Decision::Reject(reason) => {
                self.reject(self.results.len(), reason);
                (Verdict::Rejected(reason.kind()), Duration::ZERO)
            }
        };

        let begins_ban = begins_ban && !is_granted;
        self.results.push(SlotResult {
            index: at,
            claim,
            verdict,
            wait,
            lookup,
            is_granted,
            begins_ban,
            is_later: false,
        });
    }

    /// Has the queue of a slot decide after the limiter. Returns whether the request takes its place here
    /// later: it takes its places in order, so it does if it waits for an earlier one.
    #[inline(never)]
    fn waits_here(&self, entry: &ChainSlot, answer: &mut SlotAnswer, claim: &Claim) -> bool {
        let waits = match entry.queued(*answer, claim, self.now) {
            QueueDecision::Wait => true,
            QueueDecision::As(decision) => {
                answer.decision = decision;
                match decision {
                    Decision::Pass => self.waits && claim.cost > 0,
                    Decision::Reject(reason) => {
                        self.waits && matches!(reason, Reason::NoRoomToWait { .. })
                    }
                    Decision::Delay(_) => false,
                }
            }
        };
        if waits && entry.grants.admit(claim, self.now) {
            // What a grant admits is not counted, and so needs no place.
            let limit = entry.slot.limit_at(answer.lookup);
            answer.decision = Decision::Reject(Reason::Concurrency { limit });
            return false;
        }
        waits
    }

    /// Adds the result of a slot in which the request takes its place later.
    fn wait(&mut self, index: usize, claim: &'a Claim, lookup: Lookup) {
        self.waits = true;
        let result = SlotResult {
            index,
            claim,
            verdict: Verdict::Delayed,
            wait: Duration::ZERO,
            lookup,
            is_granted: false,
            begins_ban: false,
            is_later: true,
        };
        self.results.push(result);
    }

    fn reject(&mut self, at: usize, reason: Reason) {
        if self.rejection.is_none_or(|first| reason.outranks(first.reason)) {
            self.rejection = Some(RejectingResult { at, reason });
        }
    }
}

impl SlotResult<'_> {
    /// Returns whether the request is to be charged to the slot, once all let it pass.
    fn is_charged(&self) -> bool {
        let passes = matches!(self.verdict, Verdict::Passed | Verdict::Delayed);
        passes && !self.is_granted && !self.is_later && self.claim.cost > 0
    }

    /// Returns the record of this result.
    fn quota(&self, limit: u64, usage: Usage) -> Quota {
        self.quota_with_growth(limit, QuotaUsage { usage, growth: None })
    }

    /// Returns the record of this result for a request that is admitted.
    fn quota_with_growth(&self, limit: u64, usage: QuotaUsage) -> Quota {
        let QuotaUsage { usage: Usage { used, reset }, growth } = usage;
        let &Self { claim: &Claim { slot, cost, plan, .. }, verdict, wait, .. } = self;
        // The claimed slot, which may be a previous one: the claimant knows the rule by it.
        Quota { slot, verdict, limit, used, cost, plan, wait, reset, growth }
    }
}

impl ChainSlot {
    /// Bans a client that has exceeded the limit, and lets another process that takes over know.
    #[inline(never)]
    pub(super) fn ban_noted(&mut self, key: Key, now: Instant, journal: Option<&Journal>) {
        if let Some(end) = self.ban(key, now)
            && let Some((journal, owner)) = journal.zip(StateOwner::of(key))
        {
            journal.banned(self.id, owner, now, end);
        }
    }

    /// Notes what a dry run would do.
    #[inline(never)]
    fn would_reject(
        &mut self,
        result: &SlotResult<'_>,
        kind: ReasonKind,
        now: Instant,
        journal: Option<&Journal>,
    ) {
        let key = result.claim.key;
        self.on_reject(kind, key, now);
        if result.begins_ban {
            self.ban_noted(key, now, journal);
        }
        self.slot.on_reject(result.lookup);
    }

    /// Notes that a request takes its place here later. Returns the record of this result.
    #[inline(never)]
    fn later(&self, result: &SlotResult<'_>, now: Instant, charged: &mut Charged) -> Quota {
        let &SlotResult { claim, lookup, .. } = result;
        if let Some(waiting) = &mut charged.waiting {
            waiting.needs(self.id, *claim);
        }
        let usage = self.slot.usage_and_growth(now, claim.cost, lookup);
        result.quota_with_growth(self.slot.limit_at(lookup), usage)
    }
}

impl Chain {
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
            None => {
                let mut charged = Charged::of(&evaluation);
                self.pass(evaluation.of_gate(), report, &mut charged);
                charged.keep_report(report);
                Ok(charged)
            }
            Some(rejecting) => Err(self.reject(evaluation.of_gate(), rejecting, report)),
        }
    }

    /// Charges a request at `now` if every slot lets it pass at once, as [`Chain::enter`] does, and
    /// returns its start. It is the shortest way through the chain: no report is made, no statistics
    /// count the request, and no breaker's transition is reported. Adds to `held` what the request
    /// holds. If any slot says anything else, returns `None` and changes no later decision.
    pub(super) fn pass_at_once(
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
            let is_simple = entry.queue.is_none() && entry.bans.is_none() && !entry.rule.settles();
            if answer.decision != Decision::Pass || !is_simple {
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

    /// Returns the decision that [`enter`](Self::enter) would make about a request at `now`, with
    /// its report.
    ///
    /// No later decision depends on it: nothing is charged, the chain's time stays as it is, and
    /// what [`check_all`](Self::check_all) prepares is made anew for each request.
    ///
    /// # Errors
    ///
    /// The rejection.
    #[expect(clippy::result_large_err, reason = "as that of `Gate::enter`")]
    pub(super) fn peek(&mut self, now: Instant, claims: &[Claim]) -> Result<Report, Rejection> {
        let now = now.max(self.latest);
        let kept = self.keep_states(now, claims);
        let mut evaluation = Evaluation::new(now);
        self.check_all(claims, &mut evaluation);

        let is_passed = evaluation.rejection.is_none();
        let part = evaluation.of_gate();
        let quotas = part.results.iter().map(|result| self.quota(result, part, is_passed));
        let quotas = quotas.collect();
        let report = Report { quotas, transition: None, change: None };
        self.restore_states(kept);

        match evaluation.rejection {
            None => Ok(report),
            Some(RejectingResult { at, reason }) => {
                let claim = evaluation.results[at].claim;
                Err(Rejection { slot: claim.slot, key: Some(claim.key), reason, report })
            }
        }
    }

    /// Returns copies of the states that a check of these claims may convert to another plan, or whose
    /// limit it may have move on.
    pub(super) fn keep_states(&mut self, now: Instant, claims: &[Claim]) -> KeptStates {
        let mut kept = KeptStates::default();
        for (index, entry) in self.slots.iter_mut().enumerate() {
            if (entry.rule.has_plans() || entry.is_auto)
                && let Some(claim) = entry.claim_in(claims)
                && let Some(state) = entry.slot.keep(now, claim.key)
            {
                kept.0.push((index, state));
            }
        }
        kept
    }

    /// Undoes a check of kept states.
    pub(super) fn restore_states(&mut self, kept: KeptStates) {
        for (index, state) in kept.0 {
            self.slots[index].slot.restore(state);
        }
    }

    /// Returns a slot's part. `is_passed`: all let the request pass, which then counts.
    pub(super) fn quota(
        &self,
        result: &SlotResult<'_>,
        part: GateResults<'_, '_>,
        is_passed: bool,
    ) -> Quota {
        let GateResults { now, start, .. } = part;
        let &SlotResult { index, claim, wait, lookup, .. } = result;
        let ChainSlot { slot, .. } = &self.slots[index];
        let limit = slot.limit_at(lookup);
        if is_passed && result.is_charged() {
            let times = Times { now, own: now + wait, start };
            result.quota_with_growth(limit, slot.usage_after(times, claim.cost, lookup))
        } else if is_passed {
            result.quota_with_growth(limit, slot.usage_and_growth(now, claim.cost, lookup))
        } else {
            result.quota(limit, slot.usage(now, lookup))
        }
    }

    /// Prepares and checks every slot that has a claim.
    ///
    /// This converts and recalls states, which changes no later decision.
    #[inline]
    pub(super) fn check_all<'a>(&mut self, claims: &'a [Claim], evaluation: &mut Evaluation<'a>) {
        self.check_each(claims, evaluation);
        if self.has_lent
            && evaluation.results.len() > 1
            && let Some(RejectingResult { at, reason }) = evaluation.rejection
        {
            let Evaluation { results, now, .. } = &*evaluation;
            let reason = extended(reason, |wait| self.rejects_for(results, *now + wait));
            evaluation.rejection = Some(RejectingResult { at, reason });
        }
    }

    /// Prepares and checks every slot that has a claim, and leaves `retry_after` as the slots say.
    #[inline]
    pub(super) fn check_each<'a>(&mut self, claims: &'a [Claim], evaluation: &mut Evaluation<'a>) {
        // Also after a rejection: the longest one prevails, and the report has all of them.
        for (at, entry) in self.slots.iter_mut().enumerate() {
            if let Some(claim) = entry.claim_in(claims) {
                let known = entry.prepare(evaluation.now, claim);
                evaluation.check(at, entry, claim, known);
            }
        }
    }

    /// Returns for how long the checked slots would reject the request at `then`, if they would.
    pub(super) fn rejects_for(
        &self,
        results: &[SlotResult<'_>],
        then: Instant,
    ) -> Option<Duration> {
        let asked = results.iter().filter(|result| !result.is_granted);
        let waits = asked.filter_map(|result| {
            let entry = &self.slots[result.index];
            match entry.slot.check(then, result.claim, None, &entry.pending).decision {
                Decision::Reject(reason) if !entry.rule.is_dry_run() => reason.retry_after(),
                Decision::Reject(_) | Decision::Pass | Decision::Delay(_) => None,
            }
        });
        waits.max()
    }

    /// Charges an admitted request to every checked slot. Adds to `charged` what the request holds.
    #[inline]
    pub(super) fn pass(
        &mut self,
        part: GateResults<'_, '_>,
        report: &mut Report,
        charged: &mut Charged,
    ) {
        let GateResults { results, now, start, is_counted, waits } = part;
        if is_counted {
            if waits { self.statistic.on_wait() } else { self.statistic.on_pass(now, start) }
        }

        for result in results {
            let &SlotResult { index, claim, verdict, wait, lookup, is_granted, is_later, .. } =
                result;
            let &Claim { cost, patience, .. } = claim;
            let entry = &mut self.slots[index];

            if is_later {
                report.quotas.push(entry.later(result, now, charged));
                continue;
            }
            if verdict == Verdict::Delayed && !patience.is_zero() && !self.has_lent {
                self.has_lent = true;
                self.journal.iter().for_each(|journal| journal.lent(entry.id));
            }

            if let Verdict::DryRunRejected(kind) = verdict {
                entry.would_reject(result, kind, now, self.journal.as_ref());
            }
            let ChainSlot { id, slot, counts, rule, grants, .. } = entry;
            match verdict {
                Verdict::Passed => counts.passed += 1,
                Verdict::Delayed => counts.delayed += 1,
                Verdict::Rejected(_) | Verdict::DryRunRejected(_) => {}
            }
            if is_granted {
                grants.spend(claim);
            }

            let is_charged = result.is_charged();
            if start > now && is_charged && !rule.is_dry_run() && slot.is_queue() {
                charged.queues.push(*id);
            }
            let quota = if is_charged {
                let times = Times { now, own: now + wait, start };
                let Charge { key_slot, hold, usage, limit, at } =
                    slot.on_pass(times, cost, lookup, &mut report.transition);
                if let Some(journal) = &self.journal
                    && let Some(owner) = slot.exported(key_slot)
                {
                    journal.charged(*id, owner, times, cost, slot.plan_at(key_slot));
                }
                if let Some(hold) = hold {
                    charged.held.push(HeldSlot { slot: *id, hold, cost });
                }
                if waits || rule.settles() {
                    let reserved = if rule.settles() { cost } else { 0 };
                    counts.reserved = counts.reserved.saturating_add(reserved);
                    let receipt = Receipt { at: Some(at), limit };
                    let charge = Reserve::new(*id, claim, key_slot, receipt);
                    charged.keep_charge(charge, hold.is_none(), rule.settles());
                }
                entry.report_change(report);
                result.quota_with_growth(limit, usage)
            } else {
                let usage = slot.usage_and_growth(now, cost, lookup);
                result.quota_with_growth(slot.limit_at(lookup), usage)
            };
            report.quotas.push(quota);
        }
    }

    /// Rejects a request for one of the results.
    pub(super) fn reject(
        &mut self,
        part: GateResults<'_, '_>,
        rejecting: RejectingResult,
        report: &mut Report,
    ) -> RejectedBy {
        let RejectingResult { at, reason } = rejecting;
        self.record_rejection(part, report);
        let SlotResult { index, claim, .. } = part.results[at];
        self.slots[index].on_reject(reason.kind(), claim.key, part.now);
        RejectedBy { slot: claim.slot, key: Some(claim.key), reason }
    }

    /// Counts a rejected request in the route's statistics.
    pub(super) fn count_rejection(&mut self, now: Instant) {
        let now = self.clamp(now);
        self.statistic.on_reject(now);
    }

    /// Records a rejected request in every checked slot.
    pub(super) fn record_rejection(&mut self, part: GateResults<'_, '_>, report: &mut Report) {
        let now = part.now;
        if part.is_counted {
            self.statistic.on_reject(now);
        }
        for result in part.results {
            if result.begins_ban {
                let entry = &mut self.slots[result.index];
                entry.ban_noted(result.claim.key, now, self.journal.as_ref());
            }
            let slot = &mut self.slots[result.index].slot;
            let usage = slot.usage(now, result.lookup);
            report.quotas.push(result.quota(slot.limit_at(result.lookup), usage));
            slot.on_reject(result.lookup);
        }
    }
}

/// Has the bans of a slot decide after the limiter. Returns whether the request begins a ban.
#[inline(never)]
fn decide_bans(entry: &ChainSlot, answer: &mut SlotAnswer, claim: &Claim, now: Instant) -> bool {
    let Some((bans, length)) = entry.bans.as_ref().zip(entry.rule.reject_for()) else {
        return false;
    };
    let (decision, begins_ban) =
        bans.decide(claim, answer.decision, now, length, answer.lookup.is_own());
    answer.decision = decision;
    begins_ban
}

/// Extends the `retry_after` of `reason` until no rule rejects: a rule that would pass the request
/// now may have lent what it has later. `rejects_for` says for how long the rules would reject the
/// request after a wait. Clients see whole seconds, so these must fit too.
pub(super) fn extended(
    reason: Reason,
    rejects_for: impl Fn(Duration) -> Option<Duration>,
) -> Reason {
    let Some(mut wait) = reason.retry_after() else { return reason };
    for _ in 0..MAX_ROUNDS {
        let second = Duration::from_secs(wait.as_secs() + u64::from(wait.subsec_nanos() > 0));
        let later =
            [wait, second].into_iter().filter_map(|wait| Some(wait + rejects_for(wait)?)).max();
        let Some(later) = later else { break };
        wait = later;
    }
    reason.with_retry_after(wait)
}

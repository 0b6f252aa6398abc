//! A route's slots, asked and told together.

mod evaluation;
mod reservation;
mod slots;

use super::{
    breaker,
    claim::{Claim, SlotId},
    decision::{Decision, Outcome, Reason, RejectedBy, Report, Verdict},
    pending::Pendings,
    rules::{Change, Installed, Rules, rule_of},
    shared::{Delta, RemoteState, RoundTrip},
    slot::{Charge, Hold, Slot},
    statistic::{Counts, Observation, Statistic},
    time::{Instant, WallOffset},
    traits::{End, Times, Until},
};
use core::time::Duration;
use evaluation::{Evaluation, SlotResult};
pub(super) use reservation::{Elsewhere, Reserved};
use slots::{ChainSlot, Wanted};
use smallvec::SmallVec;

/// The most slots that are kept for what they have to tell: more than edits remove before they are
/// asked, which is some ten times a second.
const MOST_UNTOLD: usize = 64;

/// How often a rejected request is asked about again for a later time. Each time is the end of what
/// one rule has lent, and no rule lends from many windows.
const MOST_ROUNDS: u32 = 8;

/// A route's slots.
#[derive(Debug)]
pub(super) struct Chain {
    statistic: Statistic,
    /// Flow, then the breaker, then pacing.
    links: Vec<ChainSlot>,
    /// Slots that edits have removed or reset, until gateways are told what was charged to them.
    untold: Vec<ChainSlot>,
    /// The next slot's identity.
    next: u32,
    /// The next reservation's.
    tickets: u64,
    /// The latest instant seen. Threads read the clock before they take the lock,
    /// so theirs may be earlier.
    latest: Instant,
    /// How far the wall's clock is from it.
    wall: WallOffset,
    /// Whether an edit may have left clients' states to be converted.
    is_behind: bool,
    /// Whether a window to come was ever lent from.
    has_lent: bool,
}

/// A request that every slot let pass.
#[derive(Debug)]
pub(super) struct Charged {
    /// The latest start that any slot asked for.
    pub(super) start: Instant,
    pub(super) held: Held,
}

/// What a request holds until its end.
pub(super) type Held = SmallVec<[HeldSlot; 4]>;

/// What a request holds of one slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldSlot {
    slot: SlotId,
    stake: Hold,
    cost: u64,
}

impl HeldSlot {
    /// Returns whether it ends with the request's answer.
    pub(super) fn awaits_answer(&self) -> bool {
        self.stake.until == Until::Answer
    }
}

impl Chain {
    /// Returns a chain without rules.
    pub(super) fn new(now: Instant) -> Self {
        let (statistic, links, untold) = (Statistic::default(), Vec::new(), Vec::new());
        Self {
            statistic,
            links,
            untold,
            next: 0,
            tickets: 0,
            latest: now,
            wall: WallOffset::default(),
            is_behind: false,
            has_lent: false,
        }
    }

    /// Makes this the chain of `rules`. Rules are found again by name. Returns what
    /// became of them, and the slots that are no longer used, to be dropped outside
    /// the lock.
    pub(super) fn install(&mut self, rules: &Rules, now: Instant) -> (Installed, Vec<ChainSlot>) {
        let now = self.clamp(now);
        let mut before: Vec<Option<ChainSlot>> = self.links.drain(..).map(Some).collect();
        let mut unused = Vec::new();
        let mut installed = Installed::default();
        let flow = rules.flow.iter().cloned().map(Wanted::Flow);
        let breaker = rules.breaker.iter().cloned().map(Wanted::Breaker);
        let pacing = rules.pacing.iter().cloned().map(Wanted::Pacing);
        for wanted in flow.chain(breaker).chain(pacing) {
            let same = before
                .iter_mut()
                .find(|link| link.as_ref().is_some_and(|link| link.wanted.is_version_of(&wanted)));
            let (link, change) = match same.and_then(Option::take) {
                None => (self.link(wanted, None, Counts::default()), Change::Added),
                Some(link) => self.succeed(link, wanted, now, &mut unused),
            };
            match link.wanted {
                Wanted::Flow(_) => installed.flow.push(link.id),
                Wanted::Breaker(_) => installed.breaker = Some(link.id),
                Wanted::Pacing(_) => installed.pacing = Some(link.id),
            }
            installed.changes.push((link.wanted.name(), change));
            self.links.push(link);
        }
        for link in before.into_iter().flatten() {
            installed.changes.push((link.wanted.name(), Change::Removed));
            self.leave_counts(&link);
            unused.push(link);
        }
        let (untold, mut unused): (Vec<_>, Vec<_>) =
            unused.into_iter().partition(|link| link.wanted.is_exchanged());
        self.untold.extend(untold);
        let excess = self.untold.len().saturating_sub(MOST_UNTOLD);
        unused.extend(self.untold.drain(..excess));
        self.is_behind = true;
        self.catch_up();
        (installed, unused)
    }

    /// Has the rules follow the wall's clock, which was stepped, as far as they count by it.
    pub(super) fn set_wall(&mut self, wall: WallOffset, now: Instant) {
        let now = self.clamp(now);
        if core::mem::replace(&mut self.wall, wall) == wall {
            return;
        }
        for link in self.links.iter_mut().filter(|link| link.wanted.follows_wall()) {
            let is_same = link.slot.retune(link.wanted.build(wall), now);
            debug_assert!(is_same, "it is built of the same rule");
        }
        self.is_behind = true;
        self.catch_up();
    }

    /// Converts some of the states that an edit has left. Returns whether there may be
    /// more of them.
    pub(super) fn catch_up(&mut self) -> bool {
        let now = self.latest;
        self.is_behind =
            self.is_behind && self.links.iter_mut().any(|link| link.slot.catch_up(now));
        self.is_behind
    }

    /// Admits a request arriving at `now`, and charges what it claims. Either way
    /// an empty `report` tells what each slot said.
    ///
    /// # Errors
    ///
    /// Why it may not start; then no slot was charged.
    #[inline]
    pub(super) fn enter(
        &mut self,
        now: Instant,
        claims: &[Claim],
        report: &mut Report,
    ) -> Result<Charged, RejectedBy> {
        let mut hearing = Evaluation::new(self.arrive(now, claims));
        self.hear(claims, &mut hearing);
        match hearing.rejection {
            None => Ok(self.pass(&hearing, report)),
            Some(blame) => Err(self.reject(&hearing, blame, report)),
        }
    }

    /// Notes how a request that [`enter`](Self::enter) admitted is answered, and
    /// takes from `held` what ends with that. Returns what the breaker turned to.
    pub(super) fn answer(
        &mut self,
        start: Instant,
        held: &mut Held,
        outcome: Outcome,
    ) -> Option<breaker::Turn> {
        let now = self.end(outcome);
        let mut turn = None;
        held.retain(|hold| {
            let ends = hold.awaits_answer();
            if ends {
                let told = self.release(now, start, hold, outcome);
                turn = turn.or(told);
            }
            !ends
        });
        turn
    }

    /// Ends a request that [`enter`](Self::enter) admitted. Returns what the breaker
    /// turned to.
    pub(super) fn leave(
        &mut self,
        start: Instant,
        held: &[HeldSlot],
        outcome: Outcome,
    ) -> Option<breaker::Turn> {
        let now = self.end(outcome);
        self.statistic.on_done(now, start, outcome);
        let mut turn = None;
        for hold in held {
            let told = self.release(now, start, hold, outcome);
            turn = turn.or(told);
        }
        turn
    }

    /// Returns when a request has ended, or was answered, in the chain's time.
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
    ) -> Option<breaker::Turn> {
        let HeldSlot { slot, stake: Hold { seat, token, .. }, cost } = *hold;
        // A slot that an edit removed or reset has nothing to give back to: a successor
        // answers for claims, not for what it never charged.
        let link = self.links.iter_mut().find(|link| link.id == slot)?;
        link.slot.on_done(seat, &End { now, start, outcome, token }, cost)
    }

    /// Returns what was seen up to `now`.
    pub(super) fn observe(&self, now: Instant) -> Observation {
        let now = now.max(self.latest);
        Observation {
            rules: self.links.iter().map(|link| link.observe(now)).collect(),
            ..self.statistic.observe(now)
        }
    }

    /// Takes from a slot what the store does not know yet: see [`Sync::collect`](crate::flow::slot::Sync::collect). One that is used
    /// no more is given up at its end.
    pub(super) fn collect(
        &mut self,
        slot: SlotId,
        from: u32,
        most: usize,
        into: &mut Vec<Delta>,
    ) -> Option<u32> {
        let next = self.slot_mut(slot)?.collect(from, most, into);
        if next.is_none() {
            self.untold.retain(|link| link.id != slot);
        }
        next
    }

    /// Has a slot take over what a store has told. Returns whether it has forgotten all else.
    pub(super) fn adopt(&mut self, slot: SlotId, way: RoundTrip, told: &[RemoteState]) -> bool {
        let way = RoundTrip { came: self.clamp(way.came), ..way };
        self.slot_mut(slot).is_some_and(|slot| slot.adopt(way, told))
    }

    fn slot_mut(&mut self, slot: SlotId) -> Option<&mut dyn Slot> {
        let mut links = self.links.iter_mut().chain(&mut self.untold);
        links.find(|link| link.id == slot).map(|link| &mut *link.slot)
    }

    /// Makes ready to decide about `claims`. Returns when that is, in the chain's time.
    ///
    /// What that converts or recalls is no trace of the request: every later decision is as if
    /// all had been converted by the edit.
    #[inline]
    fn arrive(&mut self, now: Instant, claims: &[Claim]) -> Instant {
        let now = self.clamp(now);
        for link in self.links.iter_mut().filter(|link| link.wanted.is_keyed()) {
            if let Some(&Claim { key, .. }) = link.claim_in(claims) {
                link.slot.prepare(now, key);
            }
        }
        now
    }

    /// Asks every slot that there is a claim on.
    #[inline]
    fn hear<'a>(&self, claims: &'a [Claim], hearing: &mut Evaluation<'a>) {
        // One rejection does not spare the other slots the question: the one that rejects for
        // longest decides, and the report names them all.
        for (at, link) in self.links.iter().enumerate() {
            if let Some(claim) = link.claim_in(claims) {
                hearing.note(at, link, claim);
            }
        }
        if self.has_lent && hearing.rejection.is_some() && hearing.asked.len() > 1 {
            self.put_off(hearing);
        }
    }

    /// Has a rejected request come back when no rule rejects it: one that lets it pass now may
    /// have lent what it has later. Clients are told whole seconds, so that those count, too.
    fn put_off(&self, hearing: &mut Evaluation<'_>) {
        let Some((at, reason)) = hearing.rejection else { return };
        let Some(mut wait) = reason.retry_after() else { return };
        for _ in 0..MOST_ROUNDS {
            let second = Duration::from_secs(wait.as_secs() + u64::from(wait.subsec_nanos() > 0));
            let later = [wait, second].into_iter().filter_map(|wait| {
                let longer = hearing.asked.iter().filter_map(|asked| {
                    let link = &self.links[asked.link];
                    let then = hearing.now + wait;
                    match link.slot.check(then, asked.claim, &link.pending).decision {
                        Decision::Reject(it) if !link.wanted.is_dry_run() => it.retry_after(),
                        Decision::Reject(_) | Decision::Pass | Decision::Delay(_) => None,
                    }
                });
                longer.max().map(|longer| wait + longer)
            });
            let Some(later) = later.max() else { break };
            wait = later;
        }
        hearing.rejection = Some((at, reason.over_after(wait)));
    }

    /// Tells every slot that was asked about a request that all let pass.
    #[inline]
    fn pass(&mut self, hearing: &Evaluation<'_>, report: &mut Report) -> Charged {
        let &Evaluation { now, start, .. } = hearing;
        self.statistic.on_pass(now, start);
        let mut held = Held::new();
        for asked in &hearing.asked {
            let &SlotResult { link, claim: &Claim { cost, patience, .. }, verdict, wait, place } =
                asked;
            self.has_lent |= verdict == Verdict::Delayed && !patience.is_zero();
            let ChainSlot { id, slot, counts, .. } = &mut self.links[link];
            match verdict {
                Verdict::Passed => counts.passed += 1,
                Verdict::Delayed => counts.delayed += 1,
                Verdict::Rejected(_) => {}
                Verdict::DryRunRejected(kind) => {
                    counts.dry_run_rejected.add(kind);
                    slot.on_reject(place);
                }
            }
            let is_charged = cost > 0 && matches!(verdict, Verdict::Passed | Verdict::Delayed);
            let usage = if is_charged {
                let times = Times { now, own: now + wait, start };
                let Charge { hold, usage } = slot.on_pass(times, cost, place, &mut report.turn);
                if let Some(stake) = hold {
                    held.push(HeldSlot { slot: *id, stake, cost });
                }
                usage
            } else {
                slot.usage(now, place)
            };
            report.quotas.push(asked.quota(slot.limit(), usage));
        }
        Charged { start, held }
    }

    /// Ends a request that a slot rejected: which of those that were asked, and why.
    fn reject(
        &mut self,
        hearing: &Evaluation<'_>,
        (at, reason): (usize, Reason),
        report: &mut Report,
    ) -> RejectedBy {
        self.tell_rejected(hearing, report);
        let SlotResult { link, claim, .. } = hearing.asked[at];
        self.links[link].counts.rejected.add(reason.kind());
        RejectedBy { slot: claim.slot, reason }
    }

    /// Tells every slot that was asked about a request that was rejected.
    fn tell_rejected(&mut self, hearing: &Evaluation<'_>, report: &mut Report) {
        let now = hearing.now;
        self.statistic.on_reject(now);
        for asked in &hearing.asked {
            let slot = &mut self.links[asked.link].slot;
            report.quotas.push(asked.quota(slot.limit(), slot.usage(now, asked.place)));
            slot.on_reject(asked.place);
        }
    }

    /// Returns the link that follows `link` when it is to be `wanted`.
    fn succeed(
        &mut self,
        mut link: ChainSlot,
        wanted: Wanted,
        now: Instant,
        unused: &mut Vec<ChainSlot>,
    ) -> (ChainSlot, Change) {
        if link.wanted == wanted {
            return (link, Change::Kept);
        }
        if link.slot.retune(wanted.build(self.wall), now) {
            return (ChainSlot { wanted, ..link }, Change::Converted);
        }
        let (former, counts) = (Some(link.id), link.counts());
        unused.push(link);
        (self.link(wanted, former, counts), Change::Reset)
    }

    /// Gives the counts of an alternative that is gone to its rule: their sum must not sink.
    fn leave_counts(&mut self, gone: &ChainSlot) {
        let Wanted::Flow(gone_rule) = &gone.wanted else { return };
        let is_rule_of_it = |link: &&mut ChainSlot| match &link.wanted {
            Wanted::Flow(rule) => rule_of(&rule.name) == rule_of(&gone_rule.name),
            Wanted::Breaker(_) | Wanted::Pacing(_) => false,
        };
        if let Some(rule) = self.links.iter_mut().rev().find(is_rule_of_it) {
            rule.counts += gone.counts();
        }
    }

    fn clamp(&mut self, now: Instant) -> Instant {
        self.latest = self.latest.max(now);
        self.latest
    }

    fn link(&mut self, wanted: Wanted, former: Option<SlotId>, counts: Counts) -> ChainSlot {
        let id = SlotId(self.next);
        self.next += 1;
        let (slot, pending) = (wanted.build(self.wall), Pendings::default());
        ChainSlot { id, former, wanted, slot, counts, pending }
    }
}

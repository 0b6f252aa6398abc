//! A route's slots, which decide together.

use super::{
    chain_slot::ChainSlot, decide::Evaluation, places::Turning, settle::Reserve, waiting::Waiting,
};
use crate::flow::{
    bans::Bans,
    decision::{Outcome, Report, SlotId},
    grants::Grants,
    keyed::KeySlot,
    limiter::{End, Until, breaker},
    queue::WaitQueue,
    rules::{Change, Installed, Rules, SlotRule, rule_of},
    slot::{Hold, Pendings},
    statistic::{Counts, Observation, Statistic, Totals},
    time::{Instant, WallOffset},
    transfer::Journal,
};
use core::{
    mem::{replace, swap, take},
    task::Waker,
};
use smallvec::SmallVec;

/// The most replaced slots whose charges still wait to be synced, which happens about ten times a
/// second.
const MAX_UNSYNCED: usize = 64;

#[derive(Debug)]
pub(super) struct Chain {
    pub(super) statistic: Statistic,
    /// Flow rules, then the breaker, then pacing.
    pub(super) slots: Vec<ChainSlot>,
    /// Slots that edits removed or reset, until their charges are synced.
    pub(super) unsynced: Vec<ChainSlot>,
    /// The gate's number.
    gate: u32,
    next: u32,
    pub(super) tickets: u64,
    /// The latest instant seen. Threads read the clock before they take the lock, so theirs may be
    /// earlier.
    pub(super) latest: Instant,
    pub(super) wall: WallOffset,
    /// True if an edit may have left clients' states to be converted.
    is_behind: bool,
    /// True once a request has borrowed from a coming window.
    pub(super) has_lent: bool,
    /// Sends another process the changes to the states that it has.
    pub(super) journal: Option<Journal>,
    /// Those whose wait for a place has ended, to be woken without the lock.
    pub(super) woken: Vec<Waker>,
}

/// A request that passed every slot.
#[derive(Debug)]
pub(super) struct Charged {
    /// The latest start that any slot asked for.
    pub(super) start: Instant,
    pub(super) held: Held,
    /// The queues in which it waits for its turn.
    pub(super) queues: Queues,
    /// The charges that its end settles. Most requests have none, and allocate nothing.
    pub(super) reserves: Vec<Reserve>,
    /// The places that it still waits for, if it does.
    pub(super) waiting: Option<Box<Waiting>>,
    /// True if the route's statistics count it.
    pub(super) is_counted: bool,
}

impl Charged {
    /// Returns what a request that starts at `start` holds before any slot has charged it.
    pub(super) fn new(start: Instant, is_counted: bool) -> Self {
        Self {
            start,
            held: Held::new(),
            queues: Queues::new(),
            reserves: Vec::new(),
            waiting: None,
            is_counted,
        }
    }

    /// Returns what a request with these results holds before any slot has charged it.
    pub(super) fn of(evaluation: &Evaluation<'_>) -> Self {
        let mut charged = Self::new(evaluation.start, evaluation.is_counted);
        if evaluation.waits {
            charged.waiting = Some(Box::new(Waiting::new(evaluation.now)));
        }
        charged
    }

    /// Keeps the report for a request that waits.
    pub(super) fn keep_report(&mut self, report: &Report) {
        if let Some(waiting) = &mut self.waiting {
            waiting.keep(report);
        }
    }

    /// Keeps a charge that is given back if the request does not start after its wait, or that its end
    /// settles.
    #[inline(never)]
    pub(super) fn keep_charge(&mut self, charge: Reserve, is_given_back: bool, settles: bool) {
        if let Some(waiting) = self.waiting.as_mut().filter(|_| is_given_back) {
            waiting.charges.push(charge.clone());
        }
        if settles {
            self.reserves.push(charge);
        }
    }

    /// Returns whether a rule depends on the request's end.
    pub(super) fn has_end(&self) -> bool {
        !self.held.is_empty()
            || !self.queues.is_empty()
            || !self.reserves.is_empty()
            || self.waiting.is_some()
    }
}

/// The slots in which a request waits, if all clients share their queues.
pub(super) type Queues = SmallVec<[SlotId; 1]>;

/// The parts of slots that a request holds until its end.
pub(super) type Held = SmallVec<[HeldSlot; 4]>;

/// The part of one slot that a request holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldSlot {
    pub(super) slot: SlotId,
    pub(super) hold: Hold,
    pub(super) cost: u64,
}

impl HeldSlot {
    /// Returns whether the response releases it.
    pub(super) fn awaits_answer(&self) -> bool {
        self.hold.until == Until::Answer
    }
}

impl Chain {
    pub(super) fn new(gate: u32, now: Instant) -> Self {
        Self {
            gate,
            statistic: Statistic::default(),
            slots: Vec::new(),
            unsynced: Vec::new(),
            next: 0,
            tickets: 0,
            latest: now,
            wall: WallOffset::default(),
            is_behind: false,
            has_lent: false,
            journal: None,
            woken: Vec::new(),
        }
    }

    /// Returns the slot with this id, unless an edit removed or reset it.
    pub(super) fn slot_mut(&mut self, slot: SlotId) -> Option<&mut ChainSlot> {
        self.slots.iter_mut().find(|entry| entry.id == slot)
    }

    /// Returns the later one of `now` and the latest instant seen, which it becomes.
    pub(super) fn clamp(&mut self, now: Instant) -> Instant {
        self.latest = self.latest.max(now);
        self.latest
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
}

/// Edits.
impl Chain {
    /// Replaces the rules; rules are matched by name. Returns the change of each, and the unused
    /// slots, which the caller drops outside the lock.
    pub(super) fn install(&mut self, rules: &Rules, now: Instant) -> (Installed, Vec<ChainSlot>) {
        debug_assert!(self.journal.is_none(), "the rules are being exported");
        let now = self.clamp(now);
        let mut before: Vec<Option<ChainSlot>> = self.slots.drain(..).map(Some).collect();
        let mut unused = Vec::new();
        let mut installed = Installed::default();

        let flow = rules.flow.iter().cloned().map(SlotRule::Flow);
        let breaker = rules.breaker.iter().cloned().map(SlotRule::Breaker);
        let pacing = rules.pacing.iter().cloned().map(SlotRule::Pacing);
        for rule in flow.chain(breaker).chain(pacing) {
            let same = before
                .iter_mut()
                .find(|entry| entry.as_ref().is_some_and(|entry| entry.rule.is_version_of(&rule)));
            let (entry, change) = match same.and_then(Option::take) {
                None => (self.entry(rule, Vec::new(), Counts::default()), Change::Added),
                Some(entry) => self.replace(entry, rule, now, &mut unused),
            };
            match entry.rule {
                SlotRule::Flow(_) => installed.flow.push(entry.id),
                SlotRule::Breaker(_) => installed.breaker = Some(entry.id),
                SlotRule::Pacing(_) => installed.pacing = Some(entry.id),
            }
            installed.changes.push((entry.rule.name(), change));
            self.slots.push(entry);
        }

        for entry in before.into_iter().flatten() {
            installed.changes.push((entry.rule.name(), Change::Removed));
            self.hand_over_counts(&entry);
            unused.push(entry);
        }
        for entry in &mut unused {
            entry.dissolve_queue(&mut self.woken);
        }

        // Charges of a removed rule still have to reach the store.
        let (unsynced, mut unused): (Vec<_>, Vec<_>) =
            unused.into_iter().partition(|entry| entry.rule.is_synced());
        self.unsynced.extend(unsynced);
        let excess = self.unsynced.len().saturating_sub(MAX_UNSYNCED);
        unused.extend(self.unsynced.drain(..excess));

        self.is_behind = true;
        self.catch_up();
        (installed, unused)
    }

    /// Goes on where `old` stops. The statistics, and the counts of rules of the same name, are
    /// those of `old`: this chain's own are of requests that it did not really decide. A rate rule
    /// that is the same in both goes on with the state that `old` has of it.
    ///
    /// States of which requests hold a part stay where they are, so that each part is given back
    /// where it was taken. New requests do not use `old` any more.
    pub(super) fn take_over(&mut self, old: &mut Self, now: Instant) {
        let now = self.clamp(old.clamp(now));
        self.has_lent |= old.has_lent;
        self.statistic.take_history(&mut old.statistic, now);

        for entry in &mut self.slots {
            let of_old = old.slots.iter_mut().find(|before| before.rule.is_version_of(&entry.rule));
            let Some(before) = of_old else {
                entry.counts = Counts::default();
                entry.rejections = None;
                continue;
            };

            entry.counts = before.counts;
            if let (Some(learned), Some(before)) = (&mut entry.learned, &before.learned) {
                before.export().into_iter().for_each(|sample| learned.add(sample));
            }
            if before.rule.counts_by() == entry.rule.counts_by() {
                entry.rejections = before.rejections.take();
                entry.grants = take(&mut before.grants);
                entry.keep_bans(before.bans.take());
            }
            if before.rule == entry.rule && before.rule.holds_nothing() {
                swap(&mut before.slot, &mut entry.slot);
            }
        }
        self.is_behind = true;
    }

    /// Applies a step of the wall clock to the rules that count by it.
    pub(super) fn set_wall(&mut self, wall: WallOffset, now: Instant) {
        debug_assert!(self.journal.is_none(), "the rules are being exported");
        let now = self.clamp(now);
        if replace(&mut self.wall, wall) == wall {
            return;
        }
        for entry in self.slots.iter_mut().filter(|entry| entry.rule.follows_wall()) {
            let is_same = entry.slot.retune(entry.rule.build(wall), now);
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

    /// Returns the slot that replaces `entry` for `rule`.
    fn replace(
        &mut self,
        mut entry: ChainSlot,
        rule: SlotRule,
        now: Instant,
        unused: &mut Vec<ChainSlot>,
    ) -> (ChainSlot, Change) {
        if entry.rule == rule {
            return (entry, Change::Kept);
        }
        if entry.slot.retune(rule.build(self.wall), now) {
            let learned = entry.learned.or_else(|| rule.settles().then(Box::default));
            let is_auto = rule.is_auto();
            let bans = entry.bans.take();
            let mut converted = ChainSlot { rule, learned, is_auto, ..entry };
            converted.keep_bans(bans);
            converted.convert_queue(self.turning(now));
            return (converted, Change::Converted);
        }

        let predecessors = entry.take_predecessors();
        let counts = entry.counts();
        let learned = entry.learned.take();
        let queue = entry.queue.take();
        let bans = entry.bans.take().filter(|_| entry.rule.counts_by() == rule.counts_by());
        unused.push(entry);
        let mut fresh = self.entry(rule, predecessors, counts);
        fresh.learned = learned.or(fresh.learned);
        fresh.keep_bans(bans);
        if let Some(queue) = queue {
            fresh.take_queue(queue, self.turning(now));
        }
        (fresh, Change::Reset)
    }

    fn turning(&mut self, now: Instant) -> Turning<'_> {
        Turning { now, journal: self.journal.as_ref(), woken: &mut self.woken }
    }

    /// Adds the counts of a removed override to its rule: the rule's sum must not decrease.
    fn hand_over_counts(&mut self, gone: &ChainSlot) {
        let SlotRule::Flow(gone_rule) = &gone.rule else { return };
        let is_rule_of_it = |entry: &&mut ChainSlot| match &entry.rule {
            SlotRule::Flow(rule) => rule_of(&rule.name) == rule_of(&gone_rule.name),
            SlotRule::Breaker(_) | SlotRule::Pacing(_) => false,
        };
        if let Some(rule) = self.slots.iter_mut().rev().find(is_rule_of_it) {
            rule.counts += gone.counts();
        }
    }

    fn entry(&mut self, rule: SlotRule, predecessors: Vec<SlotId>, counts: Counts) -> ChainSlot {
        let id = SlotId { gate: self.gate, number: self.next };
        self.next += 1;
        let slot = rule.build(self.wall);
        let pending = Pendings::default();
        let grants = Grants::default();
        let learned = rule.settles().then(Box::default);
        let bans = rule.most_bans().map(|most| Box::new(Bans::new(most)));
        let queue = rule.queue().map(|config| Box::new(WaitQueue::new(config.clone())));
        let is_auto = rule.is_auto();
        ChainSlot {
            id,
            predecessors,
            rule,
            slot,
            counts,
            pending,
            rejections: None,
            grants,
            bans,
            learned,
            queue,
            is_auto,
        }
    }
}

/// Ends of requests.
impl Chain {
    /// Records the response to an admitted request, and removes from `held` what that releases.
    /// Returns the breaker's transition.
    pub(super) fn on_response(
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
    pub(super) fn on_end(
        &mut self,
        charged: &Charged,
        outcome: Outcome,
    ) -> Option<breaker::Transition> {
        if charged.is_counted {
            let now = self.end(outcome);
            self.statistic.on_done(now, charged.start, outcome);
        }
        self.release_all(charged, outcome)
    }

    /// Gives back what an admitted request holds of this chain's slots. Returns the breaker's
    /// transition.
    pub(super) fn release_all(
        &mut self,
        charged: &Charged,
        outcome: Outcome,
    ) -> Option<breaker::Transition> {
        let now = self.end(outcome);
        let mut turn = None;
        for hold in &charged.held {
            let released = self.release(now, charged.start, hold, outcome);
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
                && !entry.rule.is_keyed()
            {
                journal.left(entry.id, owner, now, start);
            }
            entry.slot.abandon(start, now);
        }
    }

    /// Returns the time of the end or response, clamped.
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
        held: &HeldSlot,
        outcome: Outcome,
    ) -> Option<breaker::Transition> {
        let HeldSlot { slot, hold: Hold { key_slot, token, .. }, cost } = *held;
        // A slot that an edit removed or reset is gone; its successor did not charge this request.
        let entry = self.slots.iter_mut().find(|entry| entry.id == slot)?;
        let end = End { now, start, outcome, token };
        let owner = match &self.journal {
            Some(_) => entry.slot.exported(key_slot),
            None => None,
        };
        let turned = entry.slot.on_done(key_slot, &end, cost);

        // Another process must hear first of those that take the place.
        if entry.queue.is_some() {
            let journal = self.journal.as_ref();
            entry.give_turns(key_slot, Turning { now, journal, woken: &mut self.woken });
        }
        if let (Some(journal), Some(owner)) = (&self.journal, owner) {
            journal.released(slot, owner, &end, cost);
        }
        turned
    }
}

#[cfg(test)]
mod tests {
    use crate::flow::{
        Algorithm, Claim, Gate, Instant, Key, Rules, SlotId,
        limiter::{
            fixed_window::{self, Align},
            token_bucket,
        },
        timeline::{rate, rule},
    };
    use core::time::Duration;
    use std::sync::Arc;

    fn gate(rules: &Rules) -> (Arc<Gate>, Vec<SlotId>) {
        let gate = Arc::new(Gate::new(Instant::EPOCH));
        let slots = gate.install(rules, Instant::EPOCH).flow;
        (gate, slots)
    }

    /// Asks at `now` and with a patience, both in milliseconds. Returns how long a rejected request
    /// should wait.
    fn ask(
        (gate, slots): &(Arc<Gate>, Vec<SlotId>),
        now: u64,
        cost: u64,
        patience: u64,
    ) -> Option<Duration> {
        let patience = Duration::from_millis(patience);
        let claim =
            |slot: &SlotId| Claim { slot: *slot, key: Key::Shared, cost, patience, plan: None };
        let claims: Vec<Claim> = slots.iter().map(claim).collect();
        let now = Instant::EPOCH + Duration::from_millis(now);
        gate.enter(now, &claims).err().and_then(|rejection| rejection.reason.retry_after())
    }

    #[test]
    fn loans_that_are_taken_over_extend_retry_after() {
        let window = fixed_window::Config { rate: rate(2, 100), align: Align::Clock };
        let bucket = token_bucket::Config { rate: rate(1, 100), burst: 3 };
        let rules = Rules {
            flow: vec![
                rule("window", Algorithm::FixedWindow(window)),
                rule("bucket", Algorithm::TokenBucket(bucket)),
            ],
            ..Rules::default()
        };
        let old = gate(&rules);
        assert_eq!(ask(&old, 100, 1, 0), None);
        assert_eq!(ask(&old, 130, 2, 500), None, "it borrows the window from 200 on");
        let new = gate(&rules);
        new.0.take_over(&old.0, Instant::EPOCH + Duration::from_millis(130));
        // The bucket has room from 200 on, and the window from 300 on.
        assert_eq!(ask(&new, 140, 1, 0), Some(Duration::from_millis(160)));
    }

    #[test]
    fn time_does_not_step_back_for_a_state_that_is_taken_over() {
        let bucket = token_bucket::Config { rate: rate(1, 100), burst: 1 };
        let rules =
            Rules { flow: vec![rule("it", Algorithm::TokenBucket(bucket))], ..Rules::default() };
        let old = gate(&rules);
        assert_eq!(ask(&old, 1_000, 1, 0), None);
        let new = gate(&rules);
        new.0.take_over(&old.0, Instant::EPOCH + Duration::from_millis(900));
        assert_eq!(ask(&new, 950, 1, 0), Some(Duration::from_millis(100)));
    }
}

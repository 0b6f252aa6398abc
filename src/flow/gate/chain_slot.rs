//! A slot in the chain, with its rule and counts.

use crate::flow::{
    bans::Bans,
    decision::{Claim, Key, ReasonKind, Report, RuleChange, SlotId},
    grants::Grants,
    keyed::KeySlot,
    learned::Learned,
    queue::WaitQueue,
    rules::SlotRule,
    slot::{LimiterSlot, Pendings, Slot, build},
    statistic::{Counts, RuleObservation},
    time::{Instant, WallOffset},
    top::RejectionCounts,
};
use core::mem::take;

/// The most slots that a slot stands for while no request waits there.
const MOST_PREDECESSORS: usize = 16;

#[derive(Debug)]
pub(super) struct ChainSlot {
    pub(super) id: SlotId,
    /// The slots that this one was reset from, the latest first. Requests that began before an edit still
    /// claim them.
    pub(super) predecessors: Vec<SlotId>,
    pub(super) rule: SlotRule,
    pub(super) slot: Box<dyn Slot>,
    /// Without those that [`Slot::keys`] has.
    pub(super) counts: Counts,
    pub(super) pending: Pendings,
    /// From the first rejection of a keyed rule on.
    pub(super) rejections: Option<Box<RejectionCounts>>,
    pub(super) grants: Grants,
    /// The clients that it rejects for a while, if it bans any.
    pub(super) bans: Option<Box<Bans>>,
    /// The latest costs, if they are settled.
    pub(super) learned: Option<Box<Learned>>,
    /// The requests that wait for a place, if they may.
    pub(super) queue: Option<Box<WaitQueue>>,
    /// True if its limit finds itself.
    pub(super) is_auto: bool,
}

impl ChainSlot {
    /// Returns the claim on this slot, or on one that it was reset from; that key may be built
    /// differently, but still distinguishes clients.
    pub(super) fn claim_in<'a>(&self, claims: &'a [Claim]) -> Option<&'a Claim> {
        let on = |slot| claims.iter().find(|claim| claim.slot == slot);
        on(self.id).or_else(|| self.predecessors.iter().find_map(|slot| on(*slot)))
    }

    /// True if claims on `slot` are claims on this one.
    pub(super) fn stands_for(&self, slot: SlotId) -> bool {
        self.id == slot || self.predecessors.contains(&slot)
    }

    /// Returns the predecessors of the slot that this one is reset to: all of which requests may wait
    /// here, and otherwise the latest.
    pub(super) fn take_predecessors(&mut self) -> Vec<SlotId> {
        let mut predecessors = take(&mut self.predecessors);
        predecessors.insert(0, self.id);
        if self.queue.as_ref().is_none_or(|queue| queue.is_unused()) {
            predecessors.truncate(MOST_PREDECESSORS);
        }
        predecessors
    }

    /// Prepares a check of `claim`: see [`Slot::prepare`].
    #[inline]
    pub(super) fn prepare(&mut self, now: Instant, claim: &Claim) -> Option<KeySlot> {
        if self.is_auto {
            self.slot.tick(now);
        }
        if self.rule.has_plans() {
            return self.slot.prepare_plan(now, claim.key, claim.plan);
        }
        if self.rule.is_keyed() { self.slot.prepare(now, claim.key) } else { Some(KeySlot::Shared) }
    }

    /// Counts a rejection, of a request that it really rejected or would have without dry run.
    pub(super) fn on_reject(&mut self, kind: ReasonKind, key: Key, now: Instant) {
        if self.rule.is_dry_run() {
            self.counts.dry_run_rejected.add(kind);
        } else {
            self.counts.rejected.add(kind);
        }
        if self.is_auto && kind == ReasonKind::Concurrency {
            self.slot.on_full(now);
        }
        self.note_rejected(key, now);
    }

    /// Reports the latest change of a limit that finds itself, unless a request has reported it.
    #[inline]
    pub(super) fn report_change(&mut self, report: &mut Report) {
        if self.is_auto && report.change.is_none() {
            report.change = self.take_change();
        }
    }

    /// Takes the latest change of a limit that finds itself, unless a request has reported it.
    pub(super) fn take_change(&mut self) -> Option<RuleChange> {
        let change = self.slot.take_change()?;
        Some(RuleChange { slot: self.id, change })
    }

    /// Counts a rejection for its key.
    pub(super) fn note_rejected(&mut self, key: Key, now: Instant) {
        if let Key::Of(key) = key
            && self.rule.is_keyed()
        {
            let new = || Box::new(RejectionCounts::new(now));
            self.rejections.get_or_insert_with(new).record(key, now);
        }
    }

    /// Bans a client at `now` that has exceeded the limit. Returns the end of the ban, if it is a new
    /// one.
    pub(super) fn ban(&mut self, key: Key, now: Instant) -> Option<Instant> {
        let end = now + self.rule.reject_for()?;
        let is_new = self.bans.as_mut()?.begin(key, now, end);
        self.counts.bans += u64::from(is_new);
        is_new.then_some(end)
    }

    /// Keeps the bans of the slot that this one comes after, which counts by the same key.
    pub(super) fn keep_bans(&mut self, before: Option<Box<Bans>>) {
        if let Some(most) = self.rule.most_bans() {
            let mut bans = before.unwrap_or_else(|| Box::new(Bans::new(most)));
            bans.set_most(most);
            self.bans = Some(bans);
        }
    }

    /// Returns the counts, including those of the slots that this one replaced.
    pub(super) fn counts(&self) -> Counts {
        let mut counts = self.counts;
        counts.churn += self.slot.keys().map(|keys| keys.churn).unwrap_or_default();
        counts
    }

    pub(super) fn observe(&self, now: Instant) -> RuleObservation {
        RuleObservation {
            settles: self.rule.settles(),
            name: self.rule.name(),
            slot: self.id,
            algorithm: self.rule.word(),
            dry_run: self.rule.is_dry_run(),
            limit: self.slot.limit(),
            used: self.slot.shared(now).used,
            counts: self.counts(),
            breaker: self.slot.breaker(now),
            keys: self.slot.keys(),
            waiting: self.queue.as_ref().map(|queue| queue.waiting()),
            auto: self.slot.auto(),
            banned: self.bans.as_ref().map(|bans| bans.in_force(now).count()),
        }
    }
}

impl SlotRule {
    /// Builds an unused slot of this rule.
    pub(super) fn build(&self, wall: WallOffset) -> Box<dyn Slot> {
        match self {
            Self::Flow(rule) => build(&rule.algorithm, rule.keyed.as_ref(), wall),
            Self::Breaker(config) => LimiterSlot::boxed(config.build(), None),
            Self::Pacing(config) => LimiterSlot::boxed(config.build(), None),
        }
    }
}

//! A slot in the chain, and the rule that it is built from.

use crate::flow::{
    Algorithm,
    build::build,
    decision::{Claim, Key, ReasonKind, SlotId},
    grants::Grants,
    keyed::KeySlot,
    limiter::{breaker, pacing},
    pending::Pendings,
    rules::Rule,
    slot::{LimiterSlot, Slot},
    statistic::{Counts, RuleObservation},
    time::{Instant, WallOffset},
    top::RejectionCounts,
};
use std::sync::Arc;

#[derive(Debug)]
pub(in crate::flow) struct ChainSlot {
    pub(super) id: SlotId,
    /// The slot that this one was reset from. Requests that began before the edit still claim it.
    pub(super) previous: Option<SlotId>,
    pub(super) wanted: Wanted,
    pub(super) slot: Box<dyn Slot>,
    /// Without what [`Observe::keys`](crate::flow::slot::Observe::keys) counts.
    pub(super) counts: Counts,
    pub(super) pending: Pendings,
    /// From the first rejection of a keyed rule on.
    pub(super) rejections: Option<Box<RejectionCounts>>,
    pub(super) grants: Grants,
}

/// The rule of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Flow(Rule),
    Breaker(breaker::Config),
    Pacing(pacing::Config),
}

impl ChainSlot {
    /// Returns the claim on this slot, or on the one that it was reset from; that key may be built
    /// differently, but still distinguishes clients.
    pub(super) fn claim_in<'a>(&self, claims: &'a [Claim]) -> Option<&'a Claim> {
        let on = |slot| claims.iter().find(|claim| claim.slot == slot);
        on(self.id).or_else(|| on(self.previous?))
    }

    /// Prepares a check of `claim`: see [`prepare`](crate::flow::slot::Retune::prepare).
    #[inline]
    pub(super) fn prepare(&mut self, now: Instant, claim: &Claim) -> Option<KeySlot> {
        if self.wanted.is_keyed() {
            self.slot.prepare(now, claim.key)
        } else {
            Some(KeySlot::Shared)
        }
    }

    /// Counts a rejection, of a request that it really rejected or would have without dry run.
    pub(super) fn on_reject(&mut self, kind: ReasonKind, key: Key, now: Instant) {
        if self.wanted.is_dry_run() {
            self.counts.dry_run_rejected.add(kind);
        } else {
            self.counts.rejected.add(kind);
        }
        self.note_rejected(key, now);
    }

    /// Counts a rejection for its key.
    pub(super) fn note_rejected(&mut self, key: Key, now: Instant) {
        if let Key::Of(key) = key
            && self.wanted.is_keyed()
        {
            let new = || Box::new(RejectionCounts::new(now));
            self.rejections.get_or_insert_with(new).record(key, now);
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
            name: self.wanted.name(),
            slot: self.id,
            algorithm: self.wanted.word(),
            dry_run: self.wanted.is_dry_run(),
            limit: self.slot.limit(),
            used: self.slot.shared(now).used,
            counts: self.counts(),
            breaker: self.slot.breaker(now),
            keys: self.slot.keys(),
        }
    }
}

impl Wanted {
    pub(super) fn build(&self, wall: WallOffset) -> Box<dyn Slot> {
        match self {
            Self::Flow(rule) => build(&rule.algorithm, rule.keyed.as_ref(), wall),
            Self::Breaker(config) => LimiterSlot::boxed(config.build(), None),
            Self::Pacing(config) => LimiterSlot::boxed(config.build(), None),
        }
    }

    pub(super) fn is_version_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Flow(mine), Self::Flow(theirs)) => mine.name == theirs.name,
            (Self::Breaker(_), Self::Breaker(_)) | (Self::Pacing(_), Self::Pacing(_)) => true,
            (Self::Flow(_) | Self::Breaker(_) | Self::Pacing(_), _) => false,
        }
    }

    pub(super) fn name(&self) -> Arc<str> {
        match self {
            Self::Flow(rule) => Arc::clone(&rule.name),
            Self::Breaker(_) | Self::Pacing(_) => self.word().into(),
        }
    }

    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Flow(rule) => rule.algorithm.word(),
            Self::Breaker(_) => "breaker",
            Self::Pacing(_) => "pacing",
        }
    }

    fn rule(&self) -> Option<&Rule> {
        match self {
            Self::Flow(rule) => Some(rule),
            Self::Breaker(_) | Self::Pacing(_) => None,
        }
    }

    /// Returns whether its windows follow the wall clock.
    pub(super) fn follows_wall(&self) -> bool {
        self.rule().is_some_and(|rule| rule.algorithm.follows_wall())
    }

    /// Returns the key by which clients are counted, as text.
    pub(super) fn counts_by(&self) -> Option<&str> {
        self.rule()?.keyed.as_ref().map(|keyed| &*keyed.by)
    }

    /// Returns whether each client has its own state.
    pub(super) fn is_keyed(&self) -> bool {
        self.rule().is_some_and(|rule| rule.keyed.is_some())
    }

    /// Returns whether gateways sync its states.
    pub(super) fn is_synced(&self) -> bool {
        self.rule().is_some_and(|rule| matches!(rule.algorithm, Algorithm::Synced(_)))
    }

    pub(super) const fn is_dry_run(&self) -> bool {
        match self {
            Self::Flow(rule) => rule.dry_run,
            Self::Breaker(config) => config.dry_run,
            Self::Pacing(_) => false,
        }
    }
}

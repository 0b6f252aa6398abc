//! A route's rules, and how an edit changed each.

use super::{
    bans::BAN_BYTES,
    decision::SlotId,
    keyed::{Keyed, OTHERS, summary_bytes},
    limiter::{Algorithm, breaker, concurrency::QueueConfig, pacing},
};
use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A route's flow control.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Limits that must all agree.
    pub flow: Vec<Rule>,
    /// Keeps requests from a failing service.
    pub breaker: Option<breaker::Config>,
    /// Spaces the starts of what passed.
    pub pacing: Option<pacing::Config>,
}

/// One limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Its identity: an edit finds the state by it.
    pub name: Arc<str>,
    /// Its algorithm, with the numbers.
    pub algorithm: Algorithm,
    /// The key, if each client has its own state.
    pub keyed: Option<Keyed>,
    /// True for a dry run: it only counts what it would reject.
    pub dry_run: bool,
    /// True if the end of a request settles its cost, of which its claim has the reserve. Only for
    /// algorithms that count over time.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub settles: bool,
    /// The queue for requests that find no free place. Only for limits on requests in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Box<QueueConfig>>,
    /// The time for which a client is rejected that has exceeded the limit. Only for algorithms that
    /// count over time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reject_for: Option<Duration>,
}

/// The rule of a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SlotRule {
    /// A limit.
    Flow(Rule),
    /// The breaker.
    Breaker(breaker::Config),
    /// The route's pacing.
    Pacing(pacing::Config),
}

impl Rule {
    /// Returns the most memory in bytes that its states and the summary of evicted clients take;
    /// `lends` as for [`Algorithm::bytes_per_key`].
    pub fn most_bytes(&self, lends: bool) -> u64 {
        let each = self.algorithm.bytes_per_key(lends) as u64;
        let Some(&Keyed { max_keys, .. }) = self.keyed.as_ref() else { return each };
        let summary = if self.algorithm.is_remembered() { summary_bytes(max_keys) } else { 0 };
        let bans = if self.reject_for.is_some() { BAN_BYTES } else { 0 };
        each.saturating_mul(u64::from(max_keys) + u64::from(OTHERS))
            .saturating_add(summary as u64)
            .saturating_add(bans * u64::from(max_keys))
    }
}

/// Returns the rule's name from an identity. An override's identity is the rule's name, a blank,
/// and what distinguishes it.
pub fn rule_of(identity: &str) -> &str {
    identity.split_once(' ').map_or(identity, |(name, _)| name)
}

/// The result of installing rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Installed {
    /// The slots of `Rules::flow`, in its order.
    pub flow: Vec<SlotId>,
    /// The slot of `Rules::breaker`.
    pub breaker: Option<SlotId>,
    /// The slot of `Rules::pacing`.
    pub pacing: Option<SlotId>,
    /// By name: first the installed rules in their order, then the removed ones.
    pub changes: Vec<(Arc<str>, Change)>,
}

/// The effect of an edit on a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is new.
    Added,
    /// It is unchanged.
    Kept,
    /// It has other numbers, in force with the next decision; its state stays.
    Converted,
    /// It has another algorithm or key, or began or ceased to sync, and starts with a fresh state.
    Reset,
    /// It is gone.
    Removed,
}

impl SlotRule {
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

    /// Returns whether its numbers depend on the client's plan.
    pub(super) fn has_plans(&self) -> bool {
        self.rule().is_some_and(|rule| rule.algorithm.plans().is_some())
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

    /// Returns the settings of its queue. A dry run has none: it holds no request back.
    pub(super) fn queue(&self) -> Option<&QueueConfig> {
        let rule = self.rule().filter(|rule| !rule.dry_run)?;
        rule.queue.as_deref()
    }

    /// Returns whether its limit finds itself.
    pub(super) fn is_auto(&self) -> bool {
        self.rule().is_some_and(|rule| matches!(rule.algorithm, Algorithm::AutoConcurrency(_)))
    }

    /// Returns the time for which a client is rejected that has exceeded the limit.
    pub(super) fn reject_for(&self) -> Option<Duration> {
        self.rule()?.reject_for
    }

    /// Returns the most clients that it bans at once; `None` if it bans none.
    pub(super) fn most_bans(&self) -> Option<usize> {
        let rule = self.rule().filter(|rule| rule.reject_for.is_some())?;
        let most = rule.keyed.as_ref().map_or(1, |keyed| keyed.max_keys);
        Some(usize::try_from(most).unwrap_or(usize::MAX))
    }

    /// Returns whether the end of a request settles its cost.
    pub(super) fn settles(&self) -> bool {
        self.rule().is_some_and(|rule| rule.settles)
    }

    /// Returns whether a request holds something until its answer or end, and its state counts that.
    pub fn holds(&self) -> bool {
        match self {
            Self::Flow(rule) => matches!(
                rule.algorithm.own(),
                Algorithm::Concurrency(_) | Algorithm::AutoConcurrency(_)
            ),
            Self::Breaker(_) => true,
            Self::Pacing(_) => false,
        }
    }

    /// Returns the cost in flight of a state with these numbers, if it counts that.
    pub fn in_flight(&self, numbers: &[u64]) -> u64 {
        match self {
            // Of a rule with plans, the plan comes first.
            Self::Flow(_) if self.holds() => {
                numbers.get(usize::from(self.has_plans())).copied().unwrap_or(0)
            }
            Self::Flow(_) | Self::Breaker(_) | Self::Pacing(_) => 0,
        }
    }

    /// Returns whether requests in flight hold nothing of its state, and no other gateway knows it.
    pub(super) fn holds_nothing(&self) -> bool {
        match self {
            Self::Flow(rule) => {
                !rule.settles
                    && !matches!(
                        rule.algorithm.own(),
                        Algorithm::Concurrency(_)
                            | Algorithm::AutoConcurrency(_)
                            | Algorithm::Synced(_)
                    )
            }
            Self::Breaker(_) | Self::Pacing(_) => false,
        }
    }
}

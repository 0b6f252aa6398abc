//! A route's rules, and how an edit changed each.

use super::{
    decision::SlotId,
    keyed::{Keyed, OTHERS, summary_bytes},
    limiter::{Algorithm, breaker, pacing},
};
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
    /// How it decides.
    pub algorithm: Algorithm,
    /// Whether each client has its own state.
    pub keyed: Option<Keyed>,
    /// Whether it only counts what it would reject.
    pub dry_run: bool,
}

impl Rule {
    /// Returns the most memory in bytes that its states and the summary of evicted clients take;
    /// `lends` as for [`Algorithm::bytes_per_key`].
    pub fn most_bytes(&self, lends: bool) -> u64 {
        let each = self.algorithm.bytes_per_key(lends) as u64;
        let Some(&Keyed { max_keys, .. }) = self.keyed.as_ref() else { return each };
        let summary = if self.algorithm.is_remembered() { summary_bytes(max_keys) } else { 0 };
        each.saturating_mul(u64::from(max_keys) + u64::from(OTHERS)).saturating_add(summary as u64)
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

/// How an edit changed a rule.
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

//! What a route's rules are, and what becomes of each at an edit.

use super::{
    breaker,
    claim::SlotId,
    keyed::{Keyed, OTHERS, summary_bytes},
    limiter::Algorithm,
    pacing,
};
use std::sync::Arc;

/// A route's flow control, as wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Limits that must all agree.
    pub flow: Vec<Rule>,
    /// What keeps requests from a service that fails.
    pub breaker: Option<breaker::Config>,
    /// Spacing of what they let pass.
    pub pacing: Option<pacing::Config>,
}

/// One limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its identity: state is found again by it.
    pub name: Arc<str>,
    /// How it decides.
    pub algorithm: Algorithm,
    /// Whether each client has its own state.
    pub keyed: Option<Keyed>,
    /// Whether it only counts what it would reject.
    pub dry_run: bool,
}

impl Rule {
    /// Returns the memory that its states take at most, in bytes, with what is remembered of
    /// clients that lost their places, if it `lends` or not: see [`Algorithm::bytes_per_key`].
    pub fn most_bytes(&self, lends: bool) -> u64 {
        let each = self.algorithm.bytes_per_key(lends) as u64;
        let Some(&Keyed { max_keys, .. }) = self.keyed.as_ref() else { return each };
        let summary = if self.algorithm.is_remembered() { summary_bytes(max_keys) } else { 0 };
        each.saturating_mul(u64::from(max_keys) + u64::from(OTHERS)).saturating_add(summary as u64)
    }
}

/// Returns the name of the rule with this identity. The alternatives to a rule, which are
/// asked in its place, have its name, a blank, and what distinguishes them.
pub fn rule_of(identity: &str) -> &str {
    identity.split_once(' ').map_or(identity, |(name, _)| name)
}

/// What became of the rules of the chain before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Installed {
    /// The slots of `Rules::flow`, in its order.
    pub flow: Vec<SlotId>,
    /// The slot of `Rules::breaker`.
    pub breaker: Option<SlotId>,
    /// The slot of `Rules::pacing`.
    pub pacing: Option<SlotId>,
    /// By name, first the wanted in their order, then the removed.
    pub changes: Vec<(Arc<str>, Change)>,
}

/// What became of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is new.
    Added,
    /// It is equal.
    Kept,
    /// It has other numbers, which the very next decision heeds; its state stays.
    Converted,
    /// It has another algorithm or key, or is exchanged where it was not or the other way
    /// round, and starts with a fresh state.
    Reset,
    /// It is gone.
    Removed,
}

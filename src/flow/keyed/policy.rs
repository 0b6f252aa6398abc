//! What a table needs to know about states of any limiter.

use super::{PastUsage, Scale};

/// A limiter's view of its states at an instant.
pub(in crate::flow) trait StatePolicy<S> {
    /// Returns whether `state` must not be evicted.
    fn is_held(&self, state: &S) -> bool;
    /// Returns whether `state` decides as a fresh one does.
    fn is_fresh(&self, state: &S) -> bool;
    fn scale(&self) -> Scale;
    /// Returns what to remember of `state` when it is evicted.
    fn past_usage(&self, state: &S) -> PastUsage;
    fn renew(&self, state: &mut S);
    /// Raises the usage of `state` to this past usage.
    fn absorb(&self, state: &mut S, usage: PastUsage);

    /// Returns what an eviction of `state` loses; zero if nothing.
    fn loss(&self, state: &S) -> u64 {
        if self.is_fresh(state) { 0 } else { self.scale().weight(self.past_usage(state)).max(1) }
    }
}

/// How to convert states and usages of before the latest edit.
pub(in crate::flow) struct Conversion<'a, S> {
    pub(in crate::flow) state: &'a dyn Fn(&mut S),
    pub(in crate::flow) usage: &'a dyn Fn(PastUsage) -> PastUsage,
}

//! What a table asks about its states, which it does not understand.

use super::{PastUsage, Scale};

/// What a table has to know of its states, as of an instant.
pub(in crate::flow) trait Judge<S> {
    /// Returns whether `state` must stay where it is.
    fn is_held(&self, state: &S) -> bool;
    /// Returns whether `state` decides as a fresh one does.
    fn is_fresh(&self, state: &S) -> bool;
    /// Returns how usages are read.
    fn scale(&self) -> Scale;
    /// Returns what is kept of `state` when its place goes to another client.
    fn past_usage(&self, state: &S) -> PastUsage;
    /// Makes `state` a fresh one.
    fn renew(&self, state: &mut S);
    /// Makes `state` that of a client which has used so much at least.
    fn absorb(&self, state: &mut S, usage: PastUsage);

    /// Returns what is lost with the place of `state`; zero if nothing is.
    fn loss(&self, state: &S) -> u64 {
        if self.is_fresh(state) { 0 } else { self.scale().weight(self.past_usage(state)).max(1) }
    }
}

/// How what is of before the latest edit becomes what is of now.
pub(in crate::flow) struct Conversion<'a, S> {
    pub(in crate::flow) state: &'a dyn Fn(&mut S),
    pub(in crate::flow) usage: &'a dyn Fn(PastUsage) -> PastUsage,
}

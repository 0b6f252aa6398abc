//! How the slot's limiter answers a table's questions about states.

use crate::flow::{
    keyed::{PastUsage, Scale, StatePolicy},
    limiter::Evictable,
    time::Instant,
};

/// Converts a past usage of `old` to one of `limiter`, through a state.
pub(super) fn convert_past_usage<F: Evictable>(
    limiter: &F,
    old: &F,
    usage: PastUsage,
    edited: Instant,
) -> PastUsage {
    if old.scale(edited).weight(usage) == 0 {
        return PastUsage::NONE;
    }
    let mut state = old.fresh();
    old.absorb(&mut state, usage, edited);
    limiter.convert(old, &mut state, edited);
    limiter.past_usage(&state, edited)
}

/// A limiter at an instant.
pub(super) struct PolicyAt<'a, F> {
    pub(super) limiter: &'a F,
    pub(super) now: Instant,
}

impl<F: Evictable> StatePolicy<F::State> for PolicyAt<'_, F> {
    fn is_held(&self, state: &F::State) -> bool {
        self.limiter.is_held(state, self.now)
    }

    fn is_fresh(&self, state: &F::State) -> bool {
        self.limiter.is_fresh(state, self.now)
    }

    fn scale(&self) -> Scale {
        self.limiter.scale(self.now)
    }

    fn past_usage(&self, state: &F::State) -> PastUsage {
        self.limiter.past_usage(state, self.now)
    }

    fn renew(&self, state: &mut F::State) {
        self.limiter.renew(state);
    }

    fn absorb(&self, state: &mut F::State, usage: PastUsage) {
        self.limiter.absorb(state, usage, self.now);
    }
}

//! What a slot tells its table about states.

use super::Formula;
use crate::flow::{
    keyed::{Judge, Scale, Usage},
    time::Instant,
};

/// Turns a usage of `old` into one of `formula`, by way of a state.
pub(super) fn convert_usage<F: Formula>(
    formula: &F,
    old: &F,
    usage: Usage,
    edited: Instant,
) -> Usage {
    if old.scale(edited).weight(usage) == 0 {
        return Usage::NONE;
    }
    let mut state = old.fresh();
    old.absorb(&mut state, usage, edited);
    formula.convert(old, &mut state, edited);
    formula.usage(&state, edited)
}

/// A formula that judges states as of an instant.
pub(super) struct AsOf<'a, F> {
    pub(super) formula: &'a F,
    pub(super) now: Instant,
}

impl<F: Formula> Judge<F::State> for AsOf<'_, F> {
    fn is_held(&self, state: &F::State) -> bool {
        self.formula.is_held(state, self.now)
    }

    fn is_fresh(&self, state: &F::State) -> bool {
        self.formula.is_fresh(state, self.now)
    }

    fn scale(&self) -> Scale {
        self.formula.scale(self.now)
    }

    fn usage(&self, state: &F::State) -> Usage {
        self.formula.usage(state, self.now)
    }

    fn renew(&self, state: &mut F::State) {
        self.formula.renew(state);
    }

    fn absorb(&self, state: &mut F::State, usage: Usage) {
        self.formula.absorb(state, usage, self.now);
    }
}

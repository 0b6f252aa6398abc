//! The rules that wait for a node, or for the only server, and how many go in one round trip.

use super::{call::BUDGET, pace::Pace};
use crate::flow::Instant;
use std::{collections::BTreeSet, sync::Arc};

/// The rules that wait for a node.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) pace: Pace,
    /// The rule with the oldest question is first, so that each has its turn even if one of them
    /// makes the store fail again and again.
    waiting: BTreeSet<(Instant, Arc<str>)>,
}

impl Lane {
    /// Adds a rule whose last question was at `called`.
    pub(super) fn add(&mut self, called: Instant, name: Arc<str>) {
        self.waiting.insert((called, name));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes the rules of one round trip and the sum of their costs: as many as fit [`BUDGET`], or
    /// one. `ask` returns the question about a rule and its cost.
    pub(super) fn take<Q>(
        &mut self,
        mut ask: impl FnMut(&Arc<str>) -> Option<(Q, usize)>,
    ) -> (Vec<(Arc<str>, Q)>, usize) {
        let mut taken = Vec::new();
        let mut sum = 0_usize;
        while let Some((called, name)) = self.waiting.pop_first() {
            let Some((question, cost)) = ask(&name) else { continue };
            if !taken.is_empty() && sum.saturating_add(cost) > BUDGET {
                self.waiting.insert((called, name));
                break;
            }
            sum = sum.saturating_add(cost);
            taken.push((name, question));
        }
        (taken, sum)
    }

    /// Removes all rules, and waits for no answer.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.pace.give_up();
    }
}

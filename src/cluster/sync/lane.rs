//! What is to be asked of a node, or of the only store, and how much of that in one round trip.

use super::{call::BUDGET, pace::Pace};
use crate::flow::Instant;
use std::{collections::BTreeSet, sync::Arc};

/// The rules that wait for a node.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) pace: Pace,
    /// First whose last question is longest ago: where the store fails again and again, each has
    /// its turn, whoever it is that it fails over.
    waiting: BTreeSet<(Instant, Arc<str>)>,
}

impl Lane {
    /// Has a rule wait that was asked about last at `called`.
    pub(super) fn add(&mut self, called: Instant, name: Arc<str>) {
        self.waiting.insert((called, name));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes what goes in one round trip, as `ask` tells the question about a rule and what it may
    /// cost: one, or as many as stay below what all may. Returns the sum, too.
    pub(super) fn take<Q>(
        &mut self,
        mut ask: impl FnMut(&Arc<str>) -> Option<(Q, usize)>,
    ) -> (Vec<(Arc<str>, Q)>, usize) {
        let (mut taken, mut sum) = (Vec::new(), 0_usize);
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

    /// Has nobody wait, nor any answer be waited for.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.pace.give_up();
    }
}

//! Which clients a rule refused most.

use crate::flow::Key;
use ahash::RandomState;
use core::cmp::Reverse;
use std::collections::HashMap;

/// How many clients are told apart; further ones are counted together.
const MOST_KEYS: usize = 50_000;

/// Refusals by client.
#[derive(Debug, Default)]
pub(super) struct TopKeys {
    counts: HashMap<u128, (String, u64), RandomState>,
    /// Refusals of clients beyond those told apart.
    pub(super) others: u64,
}

impl TopKeys {
    /// Counts a refusal; `show` is asked once for each client.
    pub(super) fn note(&mut self, key: Key, show: impl FnOnce() -> String) {
        let Key::Of(print) = key else { return };
        if let Some((_, count)) = self.counts.get_mut(&print) {
            *count += 1;
        } else if self.counts.len() < MOST_KEYS {
            self.counts.insert(print, (show(), 1));
        } else {
            self.others += 1;
        }
    }

    /// Returns the `most` that were refused most often, and how many clients were at all.
    pub(super) fn top(self, most: usize) -> (Vec<(String, u64)>, usize) {
        let count = self.counts.len();
        let mut all: Vec<(String, u64)> = self.counts.into_values().collect();
        all.sort_unstable_by(|a, b| (Reverse(a.1), &a.0).cmp(&(Reverse(b.1), &b.0)));
        all.truncate(most);
        (all, count)
    }
}

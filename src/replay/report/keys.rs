//! Which clients a rule rejected most, of any number of clients, in bounded memory.
//!
//! The counts are those of space-saving (Metwally, Agrawal, El Abbadi: "Efficient
//! computation of frequent and top-k elements in data streams", 2005), with many of the
//! least counters given up at once instead of one at every rejection. What is given up is
//! remembered as one number: no client without a counter was rejected more often than
//! that, and whoever gets a counter later may have been rejected as often before.

use crate::flow::Key;
use ahash::RandomState;
use core::cmp::Reverse;
use std::collections::HashMap;

/// How many clients have a counter.
const MOST_KEYS: usize = 100_000;

/// Rejections by client.
#[derive(Debug)]
pub(super) struct TopKeys {
    counts: HashMap<u128, RejectedKey, RandomState>,
    /// How many may have a counter.
    most: usize,
    /// The most rejections of any client without a counter. Every rise takes one from
    /// half of the counters, so that of n rejections it is at most 2n / `most`.
    given_up: u64,
}

/// A client that a rule rejected, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedKey {
    /// Its key, for people.
    pub key: String,
    /// It was rejected as often at least.
    pub at_least: u64,
    /// It was rejected as often at most; the same where the count is exact.
    pub at_most: u64,
}

/// The clients that a rule rejected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RejectedKeys {
    /// Those that were rejected most often, as far as is known.
    pub top: Vec<RejectedKey>,
    /// How many there were at all, at least.
    pub count: usize,
    /// Whether that is how many there were, and who is at the top beyond doubt.
    pub is_exact: bool,
    /// How often one that is not at the top may have been rejected, at most.
    pub rest_at_most: u64,
}

impl Default for TopKeys {
    fn default() -> Self {
        Self::of(MOST_KEYS)
    }
}

impl TopKeys {
    fn of(most: usize) -> Self {
        Self { counts: HashMap::default(), most, given_up: 0 }
    }

    /// Counts a rejection; `show` is asked when a client gets a counter.
    pub(super) fn note(&mut self, key: Key, show: impl FnOnce() -> String) {
        let Key::Of(print) = key else { return };
        if let Some(known) = self.counts.get_mut(&print) {
            known.at_least += 1;
            known.at_most += 1;
            return;
        }
        if self.counts.len() >= self.most {
            self.give_up();
        }
        let counter = RejectedKey { key: show(), at_least: 1, at_most: self.given_up + 1 };
        self.counts.insert(print, counter);
    }

    /// Makes room for half as many clients as may have a counter.
    fn give_up(&mut self) {
        let mut counts: Vec<u64> = self.counts.values().map(|known| known.at_most).collect();
        let half = counts.len() / 2;
        if half < counts.len() {
            self.given_up = *counts.select_nth_unstable(half).1;
        }
        // All alike, so that it does not hang on the order of a table.
        self.counts.retain(|_, known| known.at_most > self.given_up);
    }

    /// Returns the `most` that were rejected most often, and how many clients were at all.
    pub(super) fn top(self, most: usize) -> RejectedKeys {
        let is_exact = self.given_up == 0;
        let count = if is_exact { self.counts.len() } else { self.most };
        let mut top: Vec<RejectedKey> = self.counts.into_values().collect();
        top.sort_unstable_by(|a, b| {
            (Reverse(a.at_least), &a.key).cmp(&(Reverse(b.at_least), &b.key))
        });
        let rest = top.iter().skip(most).map(|known| known.at_most).max();
        top.truncate(most);
        let rest_at_most = rest.unwrap_or(0).max(self.given_up);
        RejectedKeys { top, count, is_exact, rest_at_most }
    }
}

impl RejectedKey {
    /// Returns how often: `×7`, and `×5 to 7` where no more is known.
    pub(super) fn times(&self) -> String {
        match (self.at_least, self.at_most) {
            (least, most) if least == most => format!("×{most}"),
            (least, most) => format!("×{least} to {most}"),
        }
    }
}

impl RejectedKeys {
    /// Returns what follows the names: how many more there are, and what is known of them.
    pub(super) fn more(&self) -> String {
        let Self { count, is_exact, rest_at_most, .. } = self;
        match count.saturating_sub(self.top.len()) {
            0 => String::new(),
            more if *is_exact => format!(" and {more} more"),
            more => format!(" and at least {more} more, each ×{rest_at_most} at most"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn noted(most: usize, rejections: &[u128]) -> TopKeys {
        let mut keys = TopKeys::of(most);
        for print in rejections {
            keys.note(Key::Of(*print), || print.to_string());
        }
        keys
    }

    #[test]
    fn who_comes_after_many_others_is_found() {
        let crowd = 0..100_000;
        let rejections: Vec<u128> = crowd.chain(core::iter::repeat_n(200_000, 1000)).collect();
        let keys = noted(1000, &rejections).top(1);
        let RejectedKey { key, at_least: 1000, at_most } = &keys.top[0] else {
            panic!("{keys:?}");
        };
        assert!(key == "200000" && (1000..=1200).contains(at_most), "{keys:?}");
        assert!(!keys.is_exact && keys.count == 1000 && keys.rest_at_most < 1000, "{keys:?}");
    }

    #[test]
    fn nothing_is_uncertain_while_all_have_a_counter() {
        let keys = noted(4, &[1, 2, 3, 4, 4]).top(2);
        let exact =
            |key: &str, times| RejectedKey { key: key.to_owned(), at_least: times, at_most: times };
        let top = vec![exact("4", 2), exact("1", 1)];
        assert_eq!(keys, RejectedKeys { top, count: 4, is_exact: true, rest_at_most: 1 });
        assert_eq!(keys.more(), " and 2 more");
        assert_eq!(noted(3, &[1, 2, 3, 4]).top(1).more(), " and at least 2 more, each ×1 at most");
    }

    proptest! {
        #[test]
        fn every_count_is_within_its_bounds(
            rejections in proptest::collection::vec(0..40_u128, 0..400),
            most in 1..20_usize,
        ) {
            let keys = noted(most, &rejections);
            let given_up = keys.given_up;
            prop_assert!(keys.counts.len() <= most);
            prop_assert!(given_up <= 2 * rejections.len() as u64 / most as u64);
            let keys = keys.top(3);
            let mut clients = 0;
            for client in 0..40 {
                let times = rejections.iter().filter(|print| **print == client).count() as u64;
                clients += usize::from(times > 0);
                match keys.top.iter().find(|known| known.key == client.to_string()) {
                    Some(known) => prop_assert!((known.at_least..=known.at_most).contains(&times)),
                    None => prop_assert!(times <= keys.rest_at_most),
                }
            }
            prop_assert_eq!(keys.is_exact, clients <= most);
            prop_assert_eq!(keys.count, clients.min(most));
        }
    }
}

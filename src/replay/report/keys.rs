//! The clients that a rule rejected most often, in bounded memory.
//!
//! Space-saving (Metwally, Agrawal, El Abbadi: "Efficient computation of frequent and top-k
//! elements in data streams", 2005), but many of the smallest counters are dropped at once. One
//! number remembers them: the most rejections of a client without a counter, with which later
//! counters begin.

use crate::flow::Key;
use ahash::RandomState;
use core::cmp::Reverse;
use std::collections::HashMap;

/// The most clients with a counter.
const MOST_KEYS: usize = 100_000;

#[derive(Debug)]
pub(super) struct TopKeys {
    counts: HashMap<u128, RejectedClient, RandomState>,
    /// The most counters.
    most: usize,
    /// The most rejections of a client without a counter. Each increase takes one from half of the
    /// counters, so that after n rejections it is at most 2n / `most`.
    given_up: u64,
}

/// A rejected client with its count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedClient {
    /// Its key as text.
    pub key: String,
    /// The fewest rejections that it can have.
    pub at_least: u64,
    /// The most rejections that it can have.
    pub at_most: u64,
}

/// The clients that a rule rejected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RejectedClients {
    /// The most often rejected ones.
    pub top: Vec<RejectedClient>,
    /// The fewest rejected clients that there were.
    pub count: usize,
    /// Whether `count` and `top` are exact.
    pub is_exact: bool,
    /// The most rejections of a client outside `top`.
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

    /// Counts a rejection; `show` returns the key of a new counter.
    pub(super) fn note(&mut self, key: Key, show: impl FnOnce() -> String) {
        let Key::Of(fingerprint) = key else { return };
        if let Some(known) = self.counts.get_mut(&fingerprint) {
            known.at_least += 1;
            known.at_most += 1;
            return;
        }
        if self.counts.len() >= self.most {
            self.give_up();
        }
        let counter = RejectedClient { key: show(), at_least: 1, at_most: self.given_up + 1 };
        self.counts.insert(fingerprint, counter);
    }

    fn give_up(&mut self) {
        let mut counts: Vec<u64> = self.counts.values().map(|known| known.at_most).collect();
        let half = counts.len() / 2;
        if half < counts.len() {
            self.given_up = *counts.select_nth_unstable(half).1;
        }
        // All with the same count, whatever the order of the table.
        self.counts.retain(|_, known| known.at_most > self.given_up);
    }

    /// Returns the `most` most rejected clients, and how many there were.
    pub(super) fn top(self, most: usize) -> RejectedClients {
        let is_exact = self.given_up == 0;
        let count = if is_exact { self.counts.len() } else { self.most };
        let mut top: Vec<RejectedClient> = self.counts.into_values().collect();
        top.sort_unstable_by(|a, b| {
            (Reverse(a.at_least), &a.key).cmp(&(Reverse(b.at_least), &b.key))
        });
        let rest = top.iter().skip(most).map(|known| known.at_most).max();
        top.truncate(most);
        let rest_at_most = rest.unwrap_or(0).max(self.given_up);
        RejectedClients { top, count, is_exact, rest_at_most }
    }
}

impl RejectedClient {
    /// Formats the count: `×7`, or `×5 to 7`.
    pub(super) fn times(&self) -> String {
        match (self.at_least, self.at_most) {
            (least, most) if least == most => format!("×{most}"),
            (least, most) => format!("×{least} to {most}"),
        }
    }
}

impl RejectedClients {
    /// Describes the clients outside `top`.
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
        for fingerprint in rejections {
            keys.note(Key::Of(*fingerprint), || fingerprint.to_string());
        }
        keys
    }

    #[test]
    fn a_late_client_is_found_among_many() {
        let crowd = 0..100_000;
        let rejections: Vec<u128> = crowd.chain(core::iter::repeat_n(200_000, 1000)).collect();
        let keys = noted(1000, &rejections).top(1);
        let RejectedClient { key, at_least: 1000, at_most } = &keys.top[0] else {
            panic!("{keys:?}");
        };
        assert!(key == "200000" && (1000..=1200).contains(at_most), "{keys:?}");
        assert!(!keys.is_exact && keys.count == 1000 && keys.rest_at_most < 1000, "{keys:?}");
    }

    #[test]
    fn nothing_is_uncertain_while_all_have_a_counter() {
        let keys = noted(4, &[1, 2, 3, 4, 4]).top(2);
        let exact = |key: &str, times| RejectedClient {
            key: key.to_owned(),
            at_least: times,
            at_most: times,
        };
        let top = vec![exact("4", 2), exact("1", 1)];
        assert_eq!(keys, RejectedClients { top, count: 4, is_exact: true, rest_at_most: 1 });
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
                let times = rejections.iter().filter(|fingerprint| **fingerprint == client).count() as u64;
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

//! Counts by client in bounded memory: the clients that a rule rejected most often, and the most that
//! it passed in any window.
//!
//! Rejections are counted by space-saving (Metwally, Agrawal, El Abbadi: "Efficient computation of
//! frequent and top-k elements in data streams", 2005), but many of the smallest counters are
//! dropped at once. One number remembers them: the most rejections of a client without a counter,
//! with which later counters begin. Windows are measured exactly, or not at all.

use crate::flow::{Instant, Key, time::nanos};
use ahash::RandomState;
use core::{cmp::Reverse, time::Duration};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// The most clients with a counter or a window.
const MOST_KEYS: usize = 100_000;

/// Counters of rejections by client.
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
    /// True if `count` and `top` are exact.
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
        // Clients with equal counts are dropped together, whatever the order of the table.
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

/// The most instants to keep: 64 MiB.
const MOST_INSTANTS: usize = 4_000_000;

/// The most that a rule passed in any window.
#[derive(Debug)]
pub(super) struct Worst {
    window: Duration,
    /// By fingerprint; 0 for a rule without keys.
    windows: HashMap<u128, Window, RandomState>,
    instants: usize,
    /// Costs that count later than they were decided, in the order of time.
    ahead: BTreeMap<(Instant, u64), Passed>,
    /// Counts the entries of `ahead`.
    put_ahead: u64,
    /// The most measured.
    pub(super) most: u64,
    /// The time when it was reached.
    pub(super) at: Instant,
    /// The client's key as text; empty without keys.
    pub(super) key_text: String,
    /// The client's key.
    key: Key,
    /// True if some clients were not measured.
    pub(super) is_partial: bool,
}

#[derive(Debug)]
struct Passed {
    key: Key,
    cost: u64,
    /// Its key as text.
    key_text: String,
}

/// Instants and costs in the last window, oldest first.
#[derive(Debug, Default)]
struct Window {
    passed: VecDeque<(Instant, u64)>,
    sum: u64,
}

impl Worst {
    pub(super) fn new(window: Duration) -> Self {
        Self {
            window,
            // A constant hash makes runs reproducible.
            windows: HashMap::with_hasher(RandomState::with_seeds(0, 0, 0, 0)),
            instants: 0,
            ahead: BTreeMap::new(),
            put_ahead: 0,
            most: 0,
            at: Instant::EPOCH,
            key_text: String::new(),
            key: Key::Shared,
            is_partial: false,
        }
    }

    pub(super) fn window(&self) -> Duration {
        self.window
    }

    /// Records a cost that passed at `now`, which does not step back, and counts at `at` or later;
    /// `show` returns the key.
    pub(super) fn note(
        &mut self,
        now: Instant,
        at: Instant,
        key: Key,
        cost: u64,
        show: impl FnOnce() -> String,
    ) {
        self.settle(now);
        if at <= now {
            self.measure(key, now, cost, show);
        } else if self.instants + self.ahead.len() < MOST_INSTANTS {
            let key_text = if key == Key::Shared { String::new() } else { show() };
            self.ahead.insert((at, self.put_ahead), Passed { key, cost, key_text });
            self.put_ahead += 1;
        } else {
            self.is_partial = true;
        }
    }

    /// Measures what counts until `now`, or all for [`Instant::FAR_FUTURE`].
    pub(super) fn settle(&mut self, now: Instant) {
        while let Some(next) = self.ahead.first_entry().filter(|next| next.key().0 <= now) {
            let ((at, _), Passed { key, cost, key_text }) = next.remove_entry();
            self.measure(key, at, cost, || key_text);
        }
    }

    /// Measures a cost at `now`, after all earlier ones.
    fn measure(&mut self, key: Key, now: Instant, cost: u64, show: impl FnOnce() -> String) {
        let fingerprint = match key {
            Key::Of(fingerprint) => fingerprint,
            Key::Shared | Key::Missing | Key::Duplicate => 0,
        };

        // The window is (now - window, now].
        let ended = now.as_nanos().checked_sub(nanos(self.window)).map(Instant::from_nanos);
        if !self.windows.contains_key(&fingerprint) && !self.has_room(ended) {
            self.is_partial = true;
            return;
        }

        let window = self.windows.entry(fingerprint).or_default();
        let before = window.passed.len();
        window.forget(ended);
        match window.passed.back_mut() {
            Some((at, sum)) if *at == now => *sum += cost,
            _ => window.passed.push_back((now, cost)),
        }
        window.sum += cost;
        self.instants = self.instants + window.passed.len() - before;

        if window.sum > self.most {
            // Keys are formatted only when they change.
            if key != Key::Shared && (key != self.key || self.most == 0) {
                self.key_text = show();
            }
            self.most = window.sum;
            self.at = now;
            self.key = key;
        }
    }

    /// Returns whether a new client fits, after removing ended windows if needed.
    fn has_room(&mut self, ended: Option<Instant>) -> bool {
        let fits = |worst: &Self| worst.windows.len() < MOST_KEYS && worst.instants < MOST_INSTANTS;
        // After a failure this is not tried again.
        if fits(self) || self.is_partial {
            return fits(self);
        }
        self.windows.retain(|_, window| {
            window.forget(ended);
            !window.passed.is_empty()
        });
        self.instants = self.windows.values().map(|window| window.passed.len()).sum();
        fits(self)
    }
}

impl Window {
    fn forget(&mut self, ended: Option<Instant>) {
        while let Some(&(at, cost)) = self.passed.front()
            && ended.is_some_and(|ended| at <= ended)
        {
            self.sum -= cost;
            self.passed.pop_front();
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

    #[test]
    fn a_window_holds_its_end_and_not_its_beginning() {
        let mut worst = Worst::new(Duration::from_nanos(10));
        for (at, most) in [(0, 1), (9, 2), (10, 2), (19, 2), (19, 3), (100, 3)] {
            let now = Instant::from_nanos(at);
            worst.note(now, now, Key::Shared, 1, String::new);
            assert_eq!(worst.most, most, "{at}");
        }
        assert_eq!(worst.at, Instant::from_nanos(19));
    }

    proptest! {
        #[test]
        fn it_is_the_most_of_any_window(
            mut passed in proptest::collection::vec((0..60_u64, 0..9_u64, 0..3_u128, 1..4_u64), 0..60),
            window in 1..20_u64,
        ) {
            passed.sort_by_key(|(now, ..)| *now);
            let mut worst = Worst::new(Duration::from_nanos(window));
            for (now, later, key, cost) in &passed {
                let [now, at] = [*now, now + later].map(Instant::from_nanos);
                worst.note(now, at, Key::Of(*key), *cost, || key.to_string());
            }
            worst.settle(Instant::FAR_FUTURE);
            let counted = passed.iter().map(|(now, later, key, cost)| (now + later, key, cost));
            let windows = counted.clone().map(|(end, key, _)| {
                let within = |(at, key_text, _): &(u64, &u128, &u64)| {
                    *key_text == key && *at <= end && at + window > end
                };
                let sum = counted.clone().filter(within).map(|(.., cost)| cost).sum::<u64>();
                (sum, Instant::from_nanos(end), key.to_string())
            });
            let windows: Vec<_> = windows.collect();
            let most = windows.iter().map(|(sum, ..)| *sum).max();
            prop_assert_eq!(worst.most, most.unwrap_or(0));
            let it = (worst.most, worst.at, worst.key_text);
            prop_assert!(most.is_none() || windows.contains(&it), "{:?} of {:?}", it, windows);
            prop_assert!(!worst.is_partial);
        }
    }
}

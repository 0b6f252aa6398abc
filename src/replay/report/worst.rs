//! The most that a rule passed in any window, measured exactly.

use crate::flow::{Instant, Key, time::nanos};
use ahash::RandomState;
use core::time::Duration;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// The most clients to measure.
const MOST_KEYS: usize = 100_000;

/// The most instants to keep: 64 MiB.
const MOST_INSTANTS: usize = 4_000_000;

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
    /// When it was reached.
    pub(super) at: Instant,
    /// The client's key as text; empty without keys.
    pub(super) key_text: String,
    /// The client's key.
    key: Key,
    /// Whether some clients were not measured.
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
        (key, cost): (Key, u64),
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

    #[test]
    fn a_window_holds_its_end_and_not_its_beginning() {
        let mut worst = Worst::new(Duration::from_nanos(10));
        for (at, most) in [(0, 1), (9, 2), (10, 2), (19, 2), (19, 3), (100, 3)] {
            let now = Instant::from_nanos(at);
            worst.note(now, now, (Key::Shared, 1), String::new);
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
                worst.note(now, at, (Key::Of(*key), *cost), || key.to_string());
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

//! The most that a rule let pass within any window, measured exactly over what it did.

use crate::flow::{Instant, Key, time::nanos};
use ahash::RandomState;
use core::time::Duration;
use std::collections::{HashMap, VecDeque};

/// How many clients are measured one by one.
const MOST_KEYS: usize = 100_000;

/// How many instants are kept of them all: 64 MiB.
const MOST_INSTANTS: usize = 4_000_000;

/// Measures one rule.
#[derive(Debug)]
pub(super) struct Worst {
    window: Duration,
    /// By fingerprint; a rule without keys has one, at 0.
    windows: HashMap<u128, Window, RandomState>,
    instants: usize,
    /// What was measured.
    pub(super) most: u64,
    /// When that was reached.
    pub(super) at: Instant,
    /// Whose it was.
    pub(super) key: Key,
    /// Whether some clients were not measured for want of room.
    pub(super) is_partial: bool,
}

/// What passed in the last window: instants and costs, oldest first.
#[derive(Debug, Default)]
struct Window {
    passed: VecDeque<(Instant, u64)>,
    sum: u64,
}

impl Worst {
    pub(super) fn new(window: Duration) -> Self {
        Self {
            window,
            // A hash that is the same at every run.
            windows: HashMap::with_hasher(RandomState::with_seeds(0, 0, 0, 0)),
            instants: 0,
            most: 0,
            at: Instant::EPOCH,
            key: Key::Shared,
            is_partial: false,
        }
    }

    pub(super) fn window(&self) -> Duration {
        self.window
    }

    /// Notes what passed at `now`, which does not step back.
    pub(super) fn note(&mut self, key: Key, now: Instant, cost: u64) {
        let print = match key {
            Key::Of(print) => print,
            Key::Shared | Key::Missing => 0,
        };
        // All of (now - window, now], which is everything while no window has ended.
        let ended = now.as_nanos().checked_sub(nanos(self.window)).map(Instant::from_nanos);
        if !self.windows.contains_key(&print) && !self.has_room(ended) {
            self.is_partial = true;
            return;
        }
        let window = self.windows.entry(print).or_default();
        let before = window.passed.len();
        window.forget(ended);
        match window.passed.back_mut() {
            Some((at, sum)) if *at == now => *sum += cost,
            _ => window.passed.push_back((now, cost)),
        }
        window.sum += cost;
        self.instants = self.instants + window.passed.len() - before;
        if window.sum > self.most {
            (self.most, self.at, self.key) = (window.sum, now, key);
        }
    }

    /// Makes room for a new client, if need be by forgetting those whose window ended.
    fn has_room(&mut self, ended: Option<Instant>) -> bool {
        let fits = |it: &Self| it.windows.len() < MOST_KEYS && it.instants < MOST_INSTANTS;
        // Once it was in vain, it is not tried at every arrival.
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
            worst.note(Key::Shared, Instant::from_nanos(at), 1);
            assert_eq!(worst.most, most, "{at}");
        }
        assert_eq!(worst.at, Instant::from_nanos(19));
    }

    proptest! {
        #[test]
        fn it_is_the_most_of_any_window(
            mut passed in proptest::collection::vec((0..60_u64, 0..3_u128, 1..4_u64), 0..60),
            window in 1..20_u64,
        ) {
            passed.sort_by_key(|(at, ..)| *at);
            let mut worst = Worst::new(Duration::from_nanos(window));
            let mut most = 0;
            for (at, key, cost) in &passed {
                worst.note(Key::Of(*key), Instant::from_nanos(*at), *cost);
            }
            for (end, key, _) in &passed {
                let within = |(at, whose, _): &&(u64, u128, u64)| whose == key && at <= end && at + window > *end;
                most = most.max(passed.iter().filter(within).map(|(.., cost)| cost).sum());
            }
            prop_assert_eq!(worst.most, most);
            prop_assert!(!worst.is_partial);
        }
    }
}

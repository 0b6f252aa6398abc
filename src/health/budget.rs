//! The retries that an upstream's servers may get: a share of the requests that
//! were sent a first time, so that retries never multiply an outage.
//!
//! Source: the retry budgets of Finagle and linkerd (a ratio and a floor per second).

use crate::flow::Instant;
use core::time::Duration;
use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// Half of the time that is looked back on.
const HALF: Duration = Duration::from_secs(5);

/// Retries that each half allows whatever its requests: 10 a second.
const FLOOR: u64 = 50;

/// The retries of an upstream, shared by all workers and kept over reloads. A request costs one
/// atomic addition; the lock is taken for retries and once a second.
#[derive(Debug, Default)]
pub struct RetryBudget {
    requests: AtomicU64,
    exhausted: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The beginning of the current half.
    began: Option<Instant>,
    /// The requests ever sent by then.
    requests: u64,
    /// Retries in the current half.
    retries: u64,
    /// Requests and retries in the half before.
    before: (u64, u64),
}

impl RetryBudget {
    /// Counts a request that may be sent again.
    pub fn count(&self) {
        self.requests.fetch_add(1, Relaxed);
    }

    /// Takes one retry at `now`, and returns whether there was one left: `percent` of the requests
    /// of the last 5 to 10 s, and 10 a second beside.
    pub fn take(&self, now: Instant, percent: u32) -> bool {
        let requests = self.requests.load(Relaxed);
        let mut state = self.lock();
        state.turn(now, requests);
        let (requests_before, retries_before) = state.before;
        let seen = requests_before + requests.saturating_sub(state.requests);
        let most = 2 * FLOOR + seen.saturating_mul(percent.into()) / 100;
        let is_left = retries_before + state.retries < most;
        if is_left {
            state.retries += 1;
        } else {
            self.exhausted.fetch_add(1, Relaxed);
        }
        is_left
    }

    /// Lets time pass. To be called about once a second.
    pub fn observe(&self, now: Instant) {
        self.lock().turn(now, self.requests.load(Relaxed));
    }

    /// Returns how many retries there were too many.
    pub fn exhausted(&self) -> u64 {
        self.exhausted.load(Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Begins another half if the current one is over. `requests` is how many were ever sent.
    fn turn(&mut self, now: Instant, requests: u64) {
        let elapsed = self.began.map_or(2 * HALF, |began| now.since(began));
        if elapsed < HALF {
            return;
        }
        let is_recent = elapsed < 2 * HALF;
        let current = (requests.saturating_sub(self.requests), self.retries);
        self.before = if is_recent { current } else { (0, 0) };
        self.began = Some(now);
        self.requests = requests;
        self.retries = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    /// Counts the retries that are left at `now`, and takes them.
    fn drain(budget: &RetryBudget, millis: u64, percent: u32) -> u64 {
        (0..100_000).take_while(|_| budget.take(at(millis), percent)).count() as u64
    }

    #[test]
    fn a_share_of_the_requests_is_sent_again_and_a_few_in_any_case() {
        let budget = RetryBudget::default();
        budget.observe(at(0));
        assert_eq!(drain(&budget, 0, 20), 100, "the floor");
        for _ in 0..1000 {
            budget.count();
        }
        assert_eq!(drain(&budget, 1, 20), 200);
        assert_eq!(drain(&budget, 2, 30), 100, "another route with another share");
        assert_eq!(drain(&budget, 4_999, 30), 0);
        assert_eq!(budget.exhausted(), 4, "each time one was rejected");
        budget.observe(at(5_000));
        assert_eq!(drain(&budget, 9_999, 30), 0, "the half before counts");
        budget.observe(at(10_000));
        assert_eq!(drain(&budget, 10_000, 30), 100, "it is forgotten");
    }

    #[test]
    fn requests_of_long_ago_allow_no_retries() {
        let budget = RetryBudget::default();
        budget.observe(at(0));
        for _ in 0..1_000_000 {
            budget.count();
        }
        assert_eq!(drain(&budget, 60_000, 100), 100);
        for _ in 0..10 {
            budget.count();
        }
        assert_eq!(drain(&budget, 60_001, 100), 10);
    }

    #[test]
    fn retries_stay_below_the_share_in_every_long_run() {
        let budget = RetryBudget::default();
        let mut retries = 0;
        for millis in 0..100_000 {
            if millis % 1000 == 0 {
                budget.observe(at(millis));
            }
            budget.count();
            // Everything fails, and every retry fails too.
            retries += (0..3).filter(|_| budget.take(at(millis), 20)).count();
        }
        let most = 100_000 / 5 + 10 * 100 + 2 * 100;
        assert!((100_000 / 5..=most).contains(&retries), "{retries}");
    }
}

//! The one lock of a route.

use super::{
    chain::{Chain, Charged, Held, Installed, Refused, Rules},
    decision::{Outcome, Rejection, Report},
    slot::Claim,
    statistic::Observation,
    time::Instant,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A route's chain, shared by its requests and found again by every edit.
#[derive(Debug)]
pub struct Gate {
    chain: Mutex<Chain>,
}

/// An admitted request: what it may do, and the record of the decision.
#[derive(Debug)]
pub struct Admission {
    /// To be kept until the request ends.
    pub permit: Permit,
    /// What each slot said.
    pub report: Report,
}

/// An admitted request. Dropping it ends the request as cancelled.
#[must_use = "a permit dropped at once ends its request as cancelled"]
#[derive(Debug)]
pub struct Permit {
    gate: Arc<Gate>,
    start: Instant,
    held: Held,
    outcome: Outcome,
}

impl Gate {
    /// Opens a gate without rules, which admits everything.
    pub fn new(now: Instant) -> Self {
        Self { chain: Mutex::new(Chain::new(now)) }
    }

    /// Puts `rules` in force for the next decision. Rules that keep their name and
    /// algorithm keep their state; requests in flight do not notice.
    ///
    /// A keyed token bucket with other numbers takes a few nanoseconds for each of
    /// its keys, during which no request is decided.
    pub fn install(&self, rules: &Rules, now: Instant) -> Installed {
        let (installed, _unused) = self.lock().install(rules, now);
        installed
    }

    /// Decides about a request arriving at `now`, and charges it if it is admitted.
    ///
    /// Every slot with a claim is asked, then every one is told. No heap memory is
    /// taken for up to four slots, but for a client that a keyed rule has not seen,
    /// and for the first request of all.
    ///
    /// # Errors
    ///
    /// Why the request may not start; then nothing was charged.
    #[expect(clippy::result_large_err, reason = "a refusal must not allocate either")]
    pub fn enter(self: &Arc<Self>, now: Instant, claims: &[Claim]) -> Result<Admission, Rejection> {
        let mut report = Report::default();
        // In a statement of its own, so that the lock is given back before the rest.
        let decided = self.lock().enter(now, claims, &mut report);
        match decided {
            Ok(Charged { start, held }) => {
                let gate = Arc::clone(self);
                let permit = Permit { gate, start, held, outcome: Outcome::Cancelled };
                Ok(Admission { permit, report })
            }
            Err(Refused { slot, reason }) => Err(Rejection { slot, reason, report }),
        }
    }

    /// Returns what was seen up to `now`.
    pub fn observe(&self, now: Instant) -> Observation {
        self.lock().observe(now)
    }

    // Private, so that no guard outlives a call and no two calls can deadlock.
    fn lock(&self) -> MutexGuard<'_, Chain> {
        self.chain.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit {
    /// Returns when the request may start: when it arrived, unless it must wait.
    pub const fn start(&self) -> Instant {
        self.start
    }

    /// Ends the request with `outcome`.
    pub fn finish(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.gate.lock().leave(self.start, &self.held, self.outcome);
    }
}

//! A bound on what is in flight.
//!
//! A request of cost `n` passes iff `in flight + n ≤ limit`, and holds `n` from its
//! decision to its end: the wait for a start that pacing asks for is included. The
//! end is the drop of its permit, however that comes about.
//!
//! Worst case: `limit` in flight at every instant; exact. An edit that lowers the
//! limit ends nothing: it refuses until enough has ended. Requests admitted before
//! the rule was added or reset are not counted.
//!
//! Differs from Sentinel's thread grade, which checks `n` but counts 1.

use crate::flow::{
    decision::{Decision, Reason},
    slot::{Formula, Standing, Times},
    time::Instant,
};
use core::time::Duration;

/// At most `limit` in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Cost that may be in flight.
    pub limit: u64,
}

#[derive(Debug)]
pub(super) struct Concurrency {
    limit: u64,
}

impl Config {
    /// Returns the limiter.
    pub(super) const fn build(&self) -> Concurrency {
        Concurrency { limit: self.limit }
    }
}

/// A client's cost in flight.
pub(super) type State = u64;

impl Formula for Concurrency {
    type State = State;

    const HOLDS: bool = true;

    fn limit(&self) -> u64 {
        self.limit
    }

    fn fresh(&self) -> State {
        0
    }

    fn is_fresh(&self, in_flight: &State, _now: Instant) -> bool {
        *in_flight == 0
    }

    fn check(&self, in_flight: &State, _now: Instant, cost: u64) -> Decision {
        let limit = self.limit;
        if cost > limit {
            Decision::Block(Reason::TooCostly { limit })
        } else if in_flight.saturating_add(cost) > limit {
            Decision::Block(Reason::Concurrency { limit })
        } else {
            Decision::Pass
        }
    }

    fn standing(&self, in_flight: &State, _now: Instant) -> Standing {
        Standing { used: *in_flight, reset: Duration::ZERO }
    }

    fn charge(&self, in_flight: &mut State, _times: Times, cost: u64) {
        *in_flight = in_flight.saturating_add(cost);
    }

    fn release(&self, in_flight: &mut State, cost: u64) {
        *in_flight = in_flight.saturating_sub(cost);
    }

    fn convert(&self, _old: &Self, _in_flight: &mut State, _now: Instant) {}
}

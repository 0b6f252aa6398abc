//! A bound on requests in flight.
//!
//! A request of cost `n` passes iff `in flight + n ≤ limit`, and holds `n` from its decision to the
//! drop of its permit, including a wait for pacing.
//!
//! Worst case: `limit` in flight, exact. An edit that lowers the limit ends no request: it rejects
//! until enough have ended. Requests admitted before the rule was added or reset do not count.
//!
//! Differs from Sentinel's thread grade, which checks `n` but counts 1.

use super::{End, EndOfRequest, Evictable, Limiter, Times, Transfer, Until, Usage};
use crate::flow::{
    decision::{Decision, Reason, ReasonKind},
    time::{Instant, spelled},
};
use core::{fmt, num::NonZeroU8, time::Duration};
use serde::{Deserialize, Serialize};

/// At most `limit` in flight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Cost that may be in flight.
    pub limit: u64,
}

/// The settings of a queue for free places.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueConfig {
    /// The longest wait, counted from the arrival of a request.
    pub max_wait: Duration,
    /// The most waiting requests, of all keys together.
    pub max: u32,
    /// The number of classes.
    pub classes: NonZeroU8,
    /// The least share of the last class while it waits, in ten-thousandths.
    pub floor: u16,
    /// True if the newest request of a sharer starts first, once its oldest has waited for longer than half
    /// of `max_wait`.
    pub newest_when_late: bool,
}

impl QueueConfig {
    /// Returns a queue in the order of arrival.
    pub const fn new(max_wait: Duration, max: u32) -> Self {
        Self { max_wait, max, classes: NonZeroU8::MIN, floor: 0, newest_when_late: false }
    }
}

/// As `check` says it.
impl fmt::Display for QueueConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { max_wait, max, newest_when_late, .. } = self;
        let wait = spelled(*max_wait).replace(' ', "");
        let order =
            if *newest_when_late { "the newest first when late" } else { "first in, first out" };
        write!(f, "at most {max} wait for a place, each at most {wait}, {order}")
    }
}

#[derive(Debug)]
pub(in crate::flow) struct Concurrency {
    limit: u64,
}

impl Config {
    pub(in crate::flow) const fn build(&self) -> Concurrency {
        Concurrency { limit: self.limit }
    }
}

/// The cost that a client has in flight.
#[derive(Clone, Debug)]
pub(in crate::flow) struct State {
    cost: u64,
}

impl State {
    /// Returns the state of a client with this cost in flight.
    pub(in crate::flow) const fn stored(cost: u64) -> Self {
        Self { cost }
    }
}

impl Limiter for Concurrency {
    type State = State;

    fn limit(&self) -> u64 {
        self.limit
    }

    fn fresh(&self) -> State {
        State::stored(0)
    }

    fn is_fresh(&self, in_flight: &State, _now: Instant) -> bool {
        in_flight.cost == 0
    }

    fn check(&self, in_flight: &State, _now: Instant, cost: u64) -> Decision {
        let limit = self.limit;
        if cost > limit {
            Decision::Reject(Reason::TooCostly { limit, kind: ReasonKind::Concurrency })
        } else if in_flight.cost.saturating_add(cost) > limit {
            Decision::Reject(Reason::Concurrency { limit })
        } else {
            Decision::Pass
        }
    }

    fn usage(&self, in_flight: &State, _now: Instant) -> Usage {
        Usage { used: in_flight.cost, reset: Duration::ZERO }
    }

    fn charge(&self, in_flight: &mut State, _times: Times, cost: u64) {
        in_flight.cost = in_flight.cost.saturating_add(cost);
    }

    fn convert(&self, _old: &Self, _in_flight: &mut State, _now: Instant) {}

    fn end_of_request(&self) -> Option<&dyn EndOfRequest<Self::State>> {
        Some(self)
    }
}

impl Evictable for Concurrency {
    fn is_held(&self, in_flight: &State, _now: Instant) -> bool {
        in_flight.cost > 0
    }
}

impl Transfer for Concurrency {
    fn export(&self, in_flight: &State) -> Vec<u64> {
        vec![in_flight.cost]
    }

    fn import(&self, numbers: &[u64]) -> Option<State> {
        let &[cost] = numbers else { return None };
        Some(State::stored(cost))
    }

    fn abandon(&self, in_flight: &mut State, cost: u64) {
        in_flight.cost = in_flight.cost.saturating_sub(cost);
    }
}

impl EndOfRequest<State> for Concurrency {
    fn until(&self) -> Until {
        Until::End
    }

    fn release(&self, in_flight: &mut State, _end: &End, cost: u64) {
        in_flight.cost = in_flight.cost.saturating_sub(cost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{
        Algorithm, Change, Rules,
        timeline::{Timeline, check, keyed, one},
    };

    fn limit(limit: u64) -> Rules {
        one(Algorithm::Concurrency(Config { limit }))
    }

    #[test]
    fn as_many_as_the_limit_are_in_flight() {
        check(
            &limit(2),
            "
            0      pass
            0      pass
            0      block concurrency 2
            9      block concurrency 2
            9 done 1
            9      pass
            9      block concurrency 2
            ",
        );
    }

    #[test]
    fn a_request_holds_what_it_costs() {
        check(
            &limit(5),
            "
            0 cost=6 block costly 5
            0 cost=4 pass
            0 cost=2 block concurrency 5
            0        pass
            1 done   1
            1 cost=4 pass
            1 cost=0 pass
            1        block concurrency 5
            ",
        );
    }

    #[test]
    fn an_edit_keeps_what_is_in_flight() {
        Timeline::new(&limit(2))
            .check("0 x2 pass")
            .edit(&limit(1), &[Change::Converted])
            .check(
                "
                1      block concurrency 1
                1 done 1
                1      block concurrency 1
                1 done 0
                1      pass
                ",
            )
            .edit(&limit(3), &[Change::Converted])
            .check("2 x2 pass")
            .check("2    block concurrency 3");
    }

    #[test]
    fn an_end_releases_the_client_that_began() {
        let rules = |max_keys| keyed(Algorithm::Concurrency(Config { limit: 1 }), max_keys);
        Timeline::new(&rules(4))
            .check(
                "
                0 key=a pass
                0 key=b pass
                0 key=a block concurrency 1
                1 done  1
                1 key=b block concurrency 1
                1 key=a pass
                ",
            )
            .edit(&rules(9), &[Change::Converted])
            .check(
                "
                2 key=b block concurrency 1
                2 done  1
                2 key=b pass
                2 key=a block concurrency 1
                ",
            );
    }
}

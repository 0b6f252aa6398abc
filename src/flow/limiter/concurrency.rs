//! A bound on requests in flight.
//!
//! A request of cost `n` passes iff `in flight + n ≤ limit`, and holds `n` from its decision to the
//! drop of its permit, including a wait for pacing.
//!
//! Worst case: `limit` in flight, exact. An edit that lowers the limit ends no request: it rejects
//! until enough have ended. Requests admitted before the rule was added or reset do not count.
//!
//! The limit is a number, or finds itself: see [`auto_limit`]. Then a request also passes that costs more
//! than the limit of the moment, if nothing else is in flight and it costs at most `max`.
//!
//! Differs from Sentinel's thread grade, which checks `n` but counts 1.

use super::{
    Adapts, End, EndOfRequest, Evictable, Limiter, Times, Transfer, Until, Usage,
    auto_limit::{self, AutoLimit},
};
use crate::flow::{
    decision::{Decision, Outcome, Reason, ReasonKind},
    limit_change::{AutoStats, LimitChange},
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
    /// True if requests differ in their share of a full queue: by class, by sharer, or by the key of the
    /// rule.
    #[serde(default)]
    pub shares: bool,
}

impl QueueConfig {
    /// Returns a queue in the order of arrival.
    pub const fn new(max_wait: Duration, max: u32) -> Self {
        Self {
            max_wait,
            max,
            classes: NonZeroU8::MIN,
            floor: 0,
            newest_when_late: false,
            shares: false,
        }
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
    /// If the limit finds itself, its bound.
    limit: u64,
    auto: Option<auto_limit::Config>,
}

impl Config {
    pub(in crate::flow) const fn build(&self) -> Concurrency {
        Concurrency { limit: self.limit, auto: None }
    }
}

impl auto_limit::Config {
    pub(in crate::flow) const fn build(self) -> Concurrency {
        Concurrency { limit: self.max as u64, auto: Some(self) }
    }
}

/// The cost that a client has in flight.
#[derive(Clone, Debug)]
pub(in crate::flow) struct State {
    cost: u64,
    /// The limit, if it finds itself.
    auto: Option<Box<AutoLimit>>,
}

impl State {
    /// Returns the state of a client with this cost in flight.
    pub(in crate::flow) const fn stored(cost: u64) -> Self {
        Self { cost, auto: None }
    }
}

impl Concurrency {
    /// Runs `work` on a limit that finds itself, and notes the time.
    #[inline]
    fn with_auto(&self, state: &mut State, now: Instant, work: impl FnOnce(&mut AutoLimit)) {
        if let (Some(config), Some(auto)) = (self.auto, &mut state.auto) {
            work(auto);
            auto.tick(config, now, state.cost);
        }
    }

    /// Returns the most cost that may be in flight now.
    #[inline]
    fn now(&self, state: &State) -> u64 {
        match (self.auto, &state.auto) {
            (Some(config), Some(auto)) => auto.level(config).into(),
            (Some(_) | None, _) => self.limit,
        }
    }
}

impl Limiter for Concurrency {
    type State = State;

    const ADAPTS: bool = true;

    fn limit(&self) -> u64 {
        self.limit
    }

    fn limit_of(&self, state: &State) -> u64 {
        self.now(state)
    }

    fn fresh(&self) -> State {
        let auto = self.auto.map(|config| Box::new(AutoLimit::new(config, None)));
        State { cost: 0, auto }
    }

    fn is_fresh(&self, state: &State, _now: Instant) -> bool {
        state.cost == 0 && state.auto.is_none()
    }

    fn check(&self, state: &State, _now: Instant, cost: u64) -> Decision {
        if cost > self.limit {
            let kind = ReasonKind::Concurrency;
            return Decision::Reject(Reason::TooCostly { limit: self.limit, kind });
        }
        let limit = self.now(state);
        let is_alone = state.auto.is_some() && state.cost == 0;
        if state.cost.saturating_add(cost) > limit && !is_alone {
            Decision::Reject(Reason::Concurrency { limit })
        } else {
            Decision::Pass
        }
    }

    fn usage(&self, state: &State, _now: Instant) -> Usage {
        Usage { used: state.cost, reset: Duration::ZERO }
    }

    fn charge(&self, state: &mut State, _times: Times, cost: u64) {
        state.cost = state.cost.saturating_add(cost);
    }

    fn convert(&self, old: &Self, state: &mut State, _now: Instant) {
        let Some(config) = self.auto else {
            state.auto = None;
            return;
        };
        if let Some(auto) = &mut state.auto {
            auto.fit(config);
        } else {
            let known = u32::try_from(old.limit).unwrap_or(u32::MAX);
            state.auto = Some(Box::new(AutoLimit::new(config, Some(known))));
        }
    }

    fn end_of_request(&self) -> Option<&dyn EndOfRequest<Self::State>> {
        Some(self)
    }

    fn adapts(&self) -> Option<&dyn Adapts<Self::State>> {
        self.auto.is_some().then_some(self as &dyn Adapts<State>)
    }
}

impl Evictable for Concurrency {
    fn is_held(&self, state: &State, _now: Instant) -> bool {
        state.cost > 0
    }
}

impl Transfer for Concurrency {
    fn export(&self, state: &State) -> Vec<u64> {
        let auto = state.auto.iter().flat_map(|auto| auto.export());
        core::iter::once(state.cost).chain(auto).collect()
    }

    fn import(&self, numbers: &[u64]) -> Option<State> {
        let (&cost, rest) = numbers.split_first()?;
        let auto = match self.auto {
            Some(config) => Some(Box::new(AutoLimit::import(config, rest)?)),
            None if rest.is_empty() => None,
            None => return None,
        };
        Some(State { cost, auto })
    }

    fn abandon(&self, state: &mut State, cost: u64) {
        state.cost = state.cost.saturating_sub(cost);
    }
}

impl EndOfRequest<State> for Concurrency {
    fn until(&self) -> Until {
        Until::End
    }

    fn release(&self, state: &mut State, end: &End, cost: u64) {
        state.cost = state.cost.saturating_sub(cost);
        self.with_auto(state, end.now, |auto| {
            let is_good = matches!(end.outcome, Outcome::Success { .. });
            auto.on_response(end.now, end.now.since(end.start), cost, is_good);
        });
    }
}

impl Adapts<State> for Concurrency {
    fn tick(&self, state: &mut State, now: Instant) {
        self.with_auto(state, now, |_| {});
    }

    fn set_waiting(&self, state: &mut State, now: Instant, waits: bool) {
        self.with_auto(state, now, |auto| auto.set_waiting(now, waits));
    }

    fn on_full(&self, state: &mut State, now: Instant) {
        self.with_auto(state, now, |auto| auto.on_full(now));
    }

    fn take_change(&self, state: &mut State) -> Option<LimitChange> {
        state.auto.as_mut()?.take_change()
    }

    fn follow(&self, state: &mut State, limit: u32) {
        if let (Some(config), Some(auto)) = (self.auto, &mut state.auto) {
            auto.follow(config, limit);
        }
    }

    fn stats(&self, state: &State) -> Option<AutoStats> {
        Some(state.auto.as_ref()?.stats(self.auto?))
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

    fn auto(min: u32, max: u32) -> Rules {
        one(Algorithm::AutoConcurrency(auto_limit::Config { min, max }))
    }

    #[test]
    fn an_edit_from_a_number_begins_there_and_keeps_what_is_in_flight() {
        Timeline::new(&limit(3))
            .check("0 x3 pass")
            .edit(&auto(1, 100), &[Change::Converted])
            .check(
                "
                1      block concurrency 3
                1 done 2
                1      pass
                1      block concurrency 3
                ",
            )
            .edit(&auto(5, 100), &[Change::Converted])
            .check("2 x2 pass")
            .check("2    block concurrency 5")
            .edit(&limit(1), &[Change::Converted])
            .check("3    block concurrency 1");
    }

    #[test]
    fn a_request_that_costs_more_than_the_limit_found_passes_alone() {
        check(
            &auto(1, 5),
            "
            0 cost=6 block costly 5
            0 cost=5 pass
            0        block concurrency 2
            1 done   0
            1        pass
            1 cost=5 block concurrency 2
            1        pass
            1        block concurrency 2
            ",
        );
    }
}

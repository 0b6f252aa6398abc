//! The time between the round trips of a gateway to a node, or to the only server.
//!
//! A gateway far from the store has several round trips in flight, so that the store is busy while
//! the responses travel. Their starts are as far apart as the store needs for each, so that requests
//! of others are served in between. All gateways together have at most [`TOGETHER`] in flight: that
//! is the work that a request may find ahead of it after the store was held up. A gateway that
//! waited for long falls back to one round trip, and adds one with each response.
//!
//! After a round trip a gateway rests, so that the calls of many gateways do not queue up before the
//! store. A gateway whose call waited for others pauses twice as long as it waited. If `K` gateways
//! do so, few calls are at the store at a time instead of `K`, and the store is nearly as busy as
//! before. A gateway alone never pauses. A call waited if it took longer than the fastest one
//! lately. The network or a busy machine may be the reason, so no pause is longer than a call of
//! each gateway takes.

use super::call::BUDGET;
use crate::flow::Instant;
use core::time::Duration;
use std::{collections::BTreeSet, sync::Arc};

/// The most round trips that all gateways together have in flight, unless there are more gateways:
/// 6.4 ms of the store, of the 20 that a request may wait.
const TOGETHER: u32 = 16;

/// The wait for others after which a gateway falls back to one round trip: half of that.
const LONG: Duration = Duration::from_micros(BUDGET as u64 * TOGETHER as u64 / 2);

/// The order in time of the round trips to a node.
#[derive(Debug)]
pub(super) struct Pace {
    under_way: u32,
    /// The most that may be in flight, by the latest answers.
    most: u32,
    /// The earliest start of the next one beside others, and the earliest after the rests.
    spaced: Instant,
    rested: Instant,
    spacing: CallSpacing,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            under_way: 0,
            most: 1,
            spaced: Instant::EPOCH,
            rested: Instant::EPOCH,
            spacing: CallSpacing::default(),
        }
    }
}

impl Pace {
    /// Returns the earliest start of the next round trip, if so many gateways share the store;
    /// `None` while another one must end first.
    pub(super) fn next(&self, gateways: u32) -> Option<Instant> {
        let fill = self.spacing.way().as_micros() / (BUDGET as u128 * u128::from(gateways.max(1)));
        let fill = u32::try_from(fill).unwrap_or(u32::MAX).saturating_add(1);
        let most = self.most.min(TOGETHER / gateways.max(1)).min(fill).max(1);
        let next = if self.under_way == 0 { self.rested } else { self.spaced.max(self.rested) };
        (self.under_way < most).then_some(next)
    }

    /// Begins a round trip that is expected to take the store `cost`.
    pub(super) fn begin(&mut self, now: Instant, cost: Duration) {
        self.under_way += 1;
        self.spaced = now + cost;
    }

    /// Ends a round trip.
    pub(super) const fn end(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }

    /// Learns from a round trip that was answered at `now` and took so long.
    pub(super) fn learn(&mut self, now: Instant, took: Duration, cost: Duration, gateways: u32) {
        // A small round trip takes no longer than its way, and shows no wait.
        if cost > Duration::from_micros(BUDGET as u64 / 2) {
            let (waited, rest) = self.spacing.after(took, cost, gateways);
            self.most = if waited > LONG { 1 } else { (self.most + 1).min(TOGETHER) };
            self.rested = self.rested.max(now) + rest;
        }
    }

    /// Ends all round trips, without answers.
    pub(super) fn give_up(&mut self) {
        self.under_way = 0;
        self.most = 1;
    }
}

/// The length of a rest, as a multiple of the time waited for others.
const TIMES: u32 = 2;

/// The number of calls after which the quickest one is forgotten, as the way to the store may have
/// become longer.
const FORGOTTEN: u32 = 1000;

/// Knows the quickest call lately.
#[derive(Debug)]
pub(super) struct CallSpacing {
    /// Its duration without the store's own time.
    least: Duration,
}

impl Default for CallSpacing {
    fn default() -> Self {
        Self { least: Duration::MAX }
    }
}

impl CallSpacing {
    /// Returns the time of the quickest call without the store's own time; zero before the first.
    pub(super) fn way(&self) -> Duration {
        if self.least == Duration::MAX { Duration::ZERO } else { self.least }
    }

    /// Returns the time for which a round trip has waited for others, and the time to rest after
    /// it. The round trip `took` so long, of which `cost` was expected to be the store's own time.
    /// So many gateways share the store.
    pub(super) fn after(
        &mut self,
        took: Duration,
        cost: Duration,
        gateways: u32,
    ) -> (Duration, Duration) {
        let beyond = took.saturating_sub(cost);
        self.least = beyond.min(self.least.saturating_add(beyond / FORGOTTEN));
        let waited = beyond.saturating_sub(self.least);
        (waited, waited.saturating_mul(TIMES).min(cost.saturating_mul(gateways)))
    }
}

/// The rules that wait for a node.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) pace: Pace,
    /// The rule with the oldest question is first, so that each has its turn even if one of them
    /// makes the store fail again and again.
    waiting: BTreeSet<(Instant, Arc<str>)>,
}

impl Lane {
    /// Adds a rule whose last question was at `called`.
    pub(super) fn add(&mut self, called: Instant, name: Arc<str>) {
        self.waiting.insert((called, name));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes the rules of one round trip and the sum of their costs: as many as fit [`BUDGET`], or
    /// one. `ask` returns the question about a rule and its cost.
    pub(super) fn take<Q>(
        &mut self,
        mut ask: impl FnMut(&Arc<str>) -> Option<(Q, usize)>,
    ) -> (Vec<(Arc<str>, Q)>, usize) {
        let mut taken = Vec::new();
        let mut sum = 0_usize;
        while let Some((called, name)) = self.waiting.pop_first() {
            let Some((question, cost)) = ask(&name) else { continue };
            if !taken.is_empty() && sum.saturating_add(cost) > BUDGET {
                self.waiting.insert((called, name));
                break;
            }
            sum = sum.saturating_add(cost);
            taken.push((name, question));
        }
        (taken, sum)
    }

    /// Removes all rules, and waits for no answer.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.pace.give_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: Duration = Duration::from_micros(400);

    /// Simulates gateways that call a store all the time, for some seconds. A call travels for `way`,
    /// and the store works for `call` on each instead of [`CALL`]. Returns the busy part of the
    /// store's time, the mean wait of a call in the second half, and the most calls of one gateway
    /// that are in flight.
    fn called(
        gateways: u32,
        way: Duration,
        seconds: u64,
        call: Duration,
    ) -> (f64, Duration, usize) {
        let mut them: Vec<(Pace, Vec<(Instant, Instant)>)> = Vec::new();
        them.resize_with(gateways as usize, Default::default);
        let end = Instant::EPOCH + Duration::from_secs(seconds);
        let mut free = Instant::EPOCH;
        let mut calls = 0;
        let mut waited = Duration::ZERO;
        let mut late = 0;
        let mut most = 0;
        loop {
            // What happens next: an answer, or else a call.
            let next = |(pace, answers): &(Pace, Vec<(Instant, Instant)>)| {
                let answer = answers.first().map(|answer| answer.1);
                answer.into_iter().chain(pace.next(gateways)).min().unwrap_or(end)
            };
            let Some((pace, answers)) = them.iter_mut().min_by_key(|one| next(one)) else {
                continue;
            };
            let begins = pace.next(gateways);
            if let Some((asked, came)) = answers.first().copied()
                && begins.is_none_or(|begins| came <= begins)
            {
                answers.remove(0);
                pace.end();
                pace.learn(came, came.since(asked), CALL, gateways);
                // It does not go back in time.
                pace.rested = pace.rested.max(came);
                continue;
            }
            let Some(now) = begins else { continue };
            let came = now + way / 2;
            let begun = came.max(free);
            free = begun + call;
            if free > end {
                break;
            }
            calls += 1;
            if came.since(Instant::EPOCH) > end.since(Instant::EPOCH) / 2 {
                waited += begun.since(came);
                late += 1;
            }
            pace.begin(now, CALL);
            answers.push((now, free + way / 2));
            most = most.max(answers.len());
        }
        let busy = (calls * call).as_secs_f64() / end.since(Instant::EPOCH).as_secs_f64();
        (busy, waited / late, most)
    }

    #[test]
    fn many_gateways_keep_a_call_waiting_for_few_others_and_the_store_as_busy() {
        for way in [100, 1_000, 4_000].map(Duration::from_micros) {
            for (gateways, most) in [(3, 3), (8, 4), (100, 40)] {
                let (busy, waited, _) = called(gateways, way, 20, CALL);
                assert!(busy > 0.7, "{gateways}, {way:?}: {busy}");
                assert!(waited < most * CALL, "{gateways}, {way:?}: {waited:?}");
            }
        }
    }

    #[test]
    fn a_gateway_alone_keeps_the_store_busy_however_long_the_way_is_and_does_not_rest() {
        for way in [100, 1_000, 4_000].map(Duration::from_micros) {
            let (busy, waited, most) = called(1, way, 2, CALL);
            assert!(busy > 0.75, "{way:?}: {busy}, {most}");
            assert!(waited < CALL && most <= 12, "{way:?}: {waited:?}, {most}");
        }
    }

    #[test]
    fn a_gateway_keeps_a_call_waiting_for_a_moment_however_slow_the_store_is() {
        for way in [100, 4_000].map(Duration::from_micros) {
            let (busy, waited, most) = called(1, way, 20, 5 * CALL);
            assert!(busy > 0.7 && waited < TOGETHER * CALL, "{way:?}: {busy}, {waited:?}, {most}");
        }
    }
}

#[cfg(test)]
mod call_spacing_tests {
    use super::*;

    const CALL: Duration = Duration::from_micros(500);

    #[test]
    fn a_way_that_has_become_longer_is_no_reason_to_rest_for_ever() {
        // The one is quicker than it was to be.
        for near in [CALL / 2, 2 * CALL] {
            let mut spacing = CallSpacing::default();
            let far = 4 * CALL;
            let mut after = |took, gateways| spacing.after(took, CALL, gateways).1;
            assert_eq!(after(near, 8), Duration::ZERO);
            assert!(after(far, 8) > near);
            assert_eq!(after(far, 2), 2 * CALL, "a call of each");
            let longer = (0..2_000).find(|_| after(far, 8).is_zero());
            assert!(longer.is_some_and(|calls| calls > 100), "{near:?}: {longer:?}");
        }
    }
}

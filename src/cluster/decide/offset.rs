//! The offset between this process's clock and the store's, for paced starts.
//!
//! The store gives a start by its own clock. A gateway that waited from when the answer came would
//! start late by the time that the answer took. Two starts whose answers took different times would
//! be too close to each other. So the gateway converts the start to its own clock, which is ahead
//! of the store's by the **offset**. A call that was sent at `asked`, decided at `given` by the
//! store's clock and answered at `came` bounds it:
//!
//! ```text
//! asked − given  ≤  offset  ≤  came − given
//! ```
//!
//! The offset is the least upper bound of the last seconds: too large by what the fastest answer
//! took to come. A start that has passed when its answer comes is at once.
//!
//! Clocks drift, so a bound is forgotten after some seconds. Clocks are set, and other stores take
//! over, so a bound that contradicts the latest answer is forgotten at once.
//!
//! Source: the minimum filter of the Network Time Protocol (RFC 5905, 10), which trusts the answer
//! that took least.

use super::call::{Ask, Verdicts};
use crate::flow::{Decision, Instant, RoundTrip};
use core::time::Duration;
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

/// The time for which a bound is used, and twice that at most: a quick answer is among them, and
/// clocks that are kept drift by less than a millisecond.
const PERIOD: Duration = Duration::from_secs(10);

/// The offsets to the stores of all pacing, by its name: the nodes of a cluster have a clock each.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Offsets(Mutex<HashMap<String, Offset>>);

/// The lead of our clock over a store's, in nanoseconds.
#[derive(Debug)]
struct Offset {
    /// The beginning of the period.
    since: Instant,
    /// The least upper bound of this period, and that of the one before.
    least: [i128; 2],
}

impl Offsets {
    /// Replaces the waits of paced requests by what is left of them when the answer comes.
    pub(in crate::cluster) fn record(
        &self,
        trip: RoundTrip,
        asks: &[Ask<'_>],
        verdicts: &mut Verdicts,
    ) {
        for (ask, judgement) in asks.iter().zip(&mut verdicts.answers) {
            if ask.rule.paces() {
                let wait = match judgement.decision {
                    Decision::Delay(wait) => wait,
                    // What the answer took is learned all the same.
                    Decision::Pass | Decision::Reject(_) => Duration::ZERO,
                };
                let left = self.left(ask.name, trip, wait);
                if let Decision::Delay(wait) = &mut judgement.decision {
                    *wait = left;
                }
            }
        }
    }

    /// Learns from an answer, and returns what is left of `wait` when it came.
    fn left(&self, name: &str, trip: RoundTrip, wait: Duration) -> Duration {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let least = if let Some(offset) = all.get_mut(name) {
            offset.learn(trip)
        } else {
            // No more are kept than are asked for in two periods.
            all.retain(|_, offset| trip.came.since(offset.since) < 2 * PERIOD);
            let most = ahead(trip.came, trip.given);
            all.insert(name.to_owned(), Offset { since: trip.came, least: [most; 2] });
            most
        };
        let left = least - ahead(trip.came, trip.given + wait);
        Duration::from_nanos(u64::try_from(left.max(0)).unwrap_or(u64::MAX))
    }
}

impl Offset {
    /// Learns from an answer, and returns the offset.
    fn learn(&mut self, RoundTrip { asked, given, came }: RoundTrip) -> i128 {
        let [least, most] = [asked, came].map(|ours| ahead(ours, given));
        let age = came.since(self.since);
        if age >= PERIOD {
            let before = if age < 2 * PERIOD { self.least[0] } else { most };
            self.since = came;
            self.least = [most, before];
        }
        self.least[0] = self.least[0].min(most);
        self.least = self.least.map(|bound| bound.max(least));
        self.least[0].min(self.least[1])
    }
}

fn ahead(ours: Instant, stores: Instant) -> i128 {
    i128::from(ours.as_nanos()) - i128::from(stores.as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: u64 = 20;

    fn millis(count: u64) -> Instant {
        Instant::EPOCH + Duration::from_millis(count)
    }

    /// A call that reached the store at `given`, whose clock is behind ours by so much, 1 ms after
    /// it was made, and whose answer took so long.
    fn call(given: u64, behind: u64, took: u64) -> RoundTrip {
        let [asked, came] = [given - 1, given + took].map(|at| millis(at + behind));
        RoundTrip { asked, given: millis(given), came }
    }

    /// Returns when a request starts that the store has delayed, in milliseconds of our clock.
    fn start(offsets: &Offsets, trip: RoundTrip, wait: u64) -> u64 {
        let left = offsets.left("a", trip, Duration::from_millis(wait));
        (trip.came + left).as_nanos() / 1_000_000
    }

    #[test]
    fn starts_are_as_far_apart_as_the_store_says_however_uneven_its_answers_come() {
        let offsets = Offsets::default();
        let took = [2, 90, 14, 55, 3, 100, 0, 77];
        assert_eq!(start(&offsets, call(1_000, 3_000, 0), 0), 4_000);
        // A queue of 200 ms: each finds it as long as the one before.
        for (at, took) in (1..1_000).zip(took.into_iter().cycle()) {
            let given = 1_000 + at * INTERVAL;
            let expected = 4_000 + at * INTERVAL + 200;
            assert_eq!(start(&offsets, call(given, 3_000, took), 200), expected);
        }
        let late = call(30_000, 3_000, 250);
        assert_eq!(start(&offsets, late, 200), 33_250, "at once, as its start is past");
    }

    #[test]
    fn an_offset_follows_clocks_that_drift_or_are_set() {
        let offsets = Offsets::default();
        assert_eq!(start(&offsets, call(1_000, 3_000, 40), 100), 4_140);
        assert_eq!(start(&offsets, call(1_100, 3_000, 10), 100), 4_210, "an answer that took less");
        // The store's clock is set back by a second, and forth by two.
        assert_eq!(
            start(&offsets, call(1_200, 4_000, 10), 100),
            5_299,
            "no earlier than asked for"
        );
        assert_eq!(start(&offsets, call(3_300, 2_000, 10), 100), 5_410);
        // Ours gains 5 ms, unnoticed by any answer; after two periods only later ones count.
        assert_eq!(start(&offsets, call(3_400, 2_005, 10), 100), 5_510);
        assert_eq!(start(&offsets, call(14_000, 2_005, 10), 100), 16_110);
        assert_eq!(start(&offsets, call(24_100, 2_005, 10), 100), 26_215);
    }

    #[test]
    fn a_rule_that_is_asked_for_no_more_is_forgotten() {
        let offsets = Offsets::default();
        let ask = |name: &str, at| _ = offsets.left(name, call(at, 0, 1), Duration::ZERO);
        ask("a", 1_000);
        ask("b", 15_000);
        ask("c", 22_000);
        let mut names: Vec<_> = offsets.0.lock().unwrap().keys().cloned().collect();
        names.sort();
        assert_eq!(names, ["b", "c"]);
    }
}

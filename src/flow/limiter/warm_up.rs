//! Token bucket with a warm-up: tokens cost more time while the service is cold, and the bucket
//! holds less.
//!
//! With the curve of `flow::ramp`, the coldness `X` up to `M` of `flow::warmth`, and `TAT` of
//! [`token_bucket`](super::token_bucket):
//!
//! ```text
//! slack  = T·(burst − 1)           what a warm bucket holds beside one request
//! n pass iff  TAT + T·(n − 1) ≤ t + slack
//! full   = max(slack·(1 − X/M), saved)         what the bucket holds at most
//! then  TAT = max(TAT, t + slack − full) + cost(X, n),  X = X − n·T
//! ```
//!
//! With `X = 0` it is the token bucket; fully cold, it passes one request, and the next after that
//! one's cost. `saved` is at most the latest pause (see `warmth`), and stays within the token
//! bucket's bound because a cold service's tokens cost more.
//!
//! Worst case: that of the token bucket, `burst + ⌊D·N/W⌋` in any `D`, whose `TAT` is never later
//! than this one. Fully cold: `N/f` in a window `W`, what a second saves up, and one more. Memory:
//! 16 bytes more per key.
//!
//! What is given back of a reserve has the price of a warm service, which is never more than was paid.
//!
//! An edit keeps the fill as a share of the bucket's size, and the coldness as a share of the
//! largest. Adding or removing a warm-up resets the state.
//!
//! Source: Guava `SmoothRateLimiter`, Sentinel `WarmUpController`. Sentinel steps once a second and
//! counts whole tokens and requests, so that `N < f` per second never pass; it counts in windows,
//! without a bucket.

use super::{
    Evictable, GivenBack, Limiter, Times, Transfer, Usage,
    ramp::{Ramp, WarmUp, share},
    token_bucket::{LATEST, given_back},
    warmth::{Budget, Step, Warmth},
    whole,
};
use crate::flow::{
    decision::{Decision, Reason, fitting},
    keyed::PastUsage,
    rate::{Interval, Rate},
    time::Instant,
};
use core::time::Duration;
use serde::{Deserialize, Serialize};

/// `rate` in the long run when warm, up to `burst` at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// The rate at which the bucket fills when the service is warm.
    pub rate: Rate,
    /// The most at once when it is warm.
    pub burst: u64,
    /// The warm-up.
    pub warm_up: WarmUp,
}

#[derive(Debug, PartialEq, Eq)]
pub(in crate::flow) struct WarmBucket {
    interval: Interval,
    burst: u64,
    /// `(burst − 1)·T`.
    slack: u128,
    ramp: Ramp,
}

/// A client's bucket as of its last request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::flow) struct State {
    tat: Tat,
    warmth: Warmth,
}

/// `TAT` in units of the interval, in halves: a `u128` would need padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tat {
    low: u64,
    high: u64,
}

impl Tat {
    #[expect(clippy::cast_possible_truncation, reason = "the halves of the instant")]
    const fn of(units: u128) -> Self {
        Self { low: units as u64, high: (units >> 64) as u64 }
    }

    fn units(self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }
}

impl Config {
    pub(in crate::flow) fn build(&self) -> WarmBucket {
        let interval = Interval::of(self.rate);
        let slack = interval.times(self.burst.saturating_sub(1));
        WarmBucket { interval, burst: self.burst, slack, ramp: Ramp::new(self.rate, self.warm_up) }
    }
}

impl WarmBucket {
    fn step(&self, State { tat, warmth }: &State, now: Instant, cost: u64) -> Step {
        warmth.step(&self.ramp, now, self.budget(*tat, now), cost)
    }

    fn budget(&self, tat: Tat, now: Instant) -> Budget {
        Budget { start: self.interval.at(now), tat: tat.units(), slack: self.slack }
    }
}

impl Limiter for WarmBucket {
    type State = State;

    fn limit(&self) -> u64 {
        self.burst
    }

    fn fresh(&self) -> State {
        State { tat: Tat::of(0), warmth: Warmth::coldest(&self.ramp) }
    }

    fn is_fresh(&self, State { tat, warmth }: &State, now: Instant) -> bool {
        tat.units() <= self.interval.at(now) && warmth.is_coldest(&self.ramp, now)
    }

    fn check(&self, State { tat, .. }: &State, now: Instant, cost: u64) -> Decision {
        if cost > self.burst {
            return Decision::too_costly(self.burst);
        }
        let opens = tat.units() + self.interval.times(cost.saturating_sub(1));
        match opens.saturating_sub(self.interval.at(now) + self.slack) {
            0 => Decision::Pass,
            wait => Decision::Reject(Reason::Rate { retry_after: self.interval.duration(wait) }),
        }
    }

    /// At least `limit − used` requests are left, and exactly that when the service is warm: each
    /// further request is cheaper. `reset` is when the bucket is as full as it gets before it
    /// cools.
    fn usage(&self, state: &State, now: Instant) -> Usage {
        let Step { from, cold } = self.step(state, now, 1);
        let units = self.interval.at(now);
        let left = (units + self.slack).checked_sub(from).map_or(0, |left| {
            1 + u64::try_from(left / self.ramp.cost(cold, 1)).unwrap_or(u64::MAX - 1)
        });
        let full = state.tat.units().saturating_sub(self.ramp.share(cold, self.slack));
        Usage {
            used: self.burst.saturating_sub(left),
            reset: self.interval.duration(full.saturating_sub(units)),
        }
    }

    /// Several requests take longer than one of their cost while the service is cold, which it stays
    /// until the next one.
    fn growth(&self, state: &State, now: Instant, cost: u64, used: u64) -> Option<Duration> {
        let fits = fitting(self.burst.saturating_sub(used), cost);
        if fits == 0 {
            return match self.check(state, now, cost) {
                Decision::Pass | Decision::Delay(_) => Some(Duration::ZERO),
                Decision::Reject(reason) => reason.retry_after(),
            };
        }
        let wanted = fits.saturating_add(1).saturating_mul(cost);
        let Step { from, cold } = self.step(state, now, 1);
        let others = self.ramp.cost(cold, 1).saturating_mul(u128::from(wanted.saturating_sub(1)));
        let opens = from.saturating_add(others).saturating_sub(self.slack);
        let growth = self.interval.duration(opens.saturating_sub(self.interval.at(now)));
        let then = self.usage(state, now + growth);
        (self.burst.saturating_sub(then.used) >= wanted).then_some(growth)
    }

    fn charge(&self, state: &mut State, times: Times, cost: u64) {
        let budget = self.budget(state.tat, times.now);
        let Step { from, cold } = state.warmth.on_start(&self.ramp, times.now, budget, cost);
        state.tat = Tat::of((from + self.ramp.cost(cold, cost)).min(LATEST));
    }

    fn give_back(&self, state: &mut State, part: &GivenBack) {
        let part = given_back(self.interval, self.burst, part);
        state.tat = Tat::of(state.tat.units().saturating_sub(part));
    }

    fn convert(&self, old: &Self, state: &mut State, now: Instant) {
        if self == old {
            return;
        }
        let Step { from, .. } = old.step(state, now, 1);
        let saves = state.warmth.convert(&self.ramp, &old.ramp, now);
        let owed = if saves { from } else { state.tat.units() };
        let missing = owed.saturating_sub(old.interval.at(now));
        let [old_size, size] = [old, self].map(|bucket| bucket.interval.times(bucket.burst));
        // A debt beyond the bucket's size stays as a time.
        let debt = self.interval.convert(missing.saturating_sub(old_size), old.interval);
        let missing = share(missing, old_size, size) + debt;
        state.tat = Tat::of(self.interval.at(now) + missing);
    }
}

impl Evictable for WarmBucket {
    fn past_usage(&self, State { tat, .. }: &State, _now: Instant) -> PastUsage {
        PastUsage::until(self.interval.instant(tat.units()))
    }

    /// Fully cold, whatever it was.
    fn absorb(&self, state: &mut State, usage: PastUsage, _now: Instant) {
        let tat = state.tat.units().max(self.interval.at(usage.over()));
        *state = State { tat: Tat::of(tat), ..self.fresh() };
    }
}

impl Transfer for WarmBucket {
    fn export(&self, State { tat, warmth }: &State) -> Vec<u64> {
        [tat.high, tat.low].into_iter().chain(warmth.numbers()).collect()
    }

    fn import(&self, numbers: &[u64]) -> Option<State> {
        let &[high, low, cold, last, due] = numbers else { return None };
        let tat = Tat::of(whole([high, low])?);
        Some(State { tat, warmth: Warmth::of_numbers(&self.ramp, [cold, last, due]) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{
        Algorithm, Change, Rules,
        timeline::{Timeline, check, one, rate},
    };

    fn bucket(count: u64, burst: u64, period: u64, cold_factor: u32) -> Rules {
        let warm_up = WarmUp { period: Duration::from_millis(period), cold_factor };
        one(Algorithm::WarmUp(Config { rate: rate(count, 1000), burst, warm_up }))
    }

    #[test]
    fn a_cold_bucket_passes_one_each_cold_interval() {
        // M is 5.25 s, T 100 ms: the first costs 300 ms less a 105th part of 200 / 2.
        check(
            &bucket(10, 10, 10_000, 3),
            "
            0          pass
            0          block rate 298.095239
            298.095238 block rate 0.000001
            298.095239 pass
            298.095239 block rate 294.285715
            ",
        );
    }

    #[test]
    fn one_that_costs_more_passes_when_no_more_is_to_come() {
        check(
            &bucket(10, 5, 10_000, 3),
            "
            0 cost=6 block costly 5
            0 cost=5 pass
            0 cost=5 block rate 1852.380953
            0 cost=1 block rate 1452.380953
            1452.380953 pass
            ",
        );
    }

    #[test]
    fn less_than_one_in_a_cold_interval_keeps_it_cold_and_passes() {
        let slow = bucket(1, 1, 1_000, 3);
        check(&slow, "0 pass\n1250 block rate 500\n1750 pass\n9999 pass\n11749 pass");
    }

    #[test]
    fn an_edit_keeps_fill_and_coldness_as_shares() {
        Timeline::new(&bucket(10, 1, 10_000, 3))
            .check("0 pass")
            .edit(&bucket(100, 1, 10_000, 3), &[Change::Converted])
            .check("0 block rate 208.095239")
            .edit(&bucket(100, 1, 10_000, 3), &[Change::Kept])
            .check("500 pass");
    }
}

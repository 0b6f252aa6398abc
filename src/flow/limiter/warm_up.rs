//! Token bucket for a service that has to be warmed up: its tokens cost more time
//! while it is cold, and its bucket holds less.
//!
//! With the curve of `flow::ramp`, coldness `X` of at most `M`, and the
//! theoretical arrival time `TAT` of [`token_bucket`](super::token_bucket):
//!
//! ```text
//! slack   = T·(burst − 1)             what a warm bucket holds beside one request
//! full    = TAT − slack·X/M           when it is as full as its coldness lets it be
//! missing = max(TAT − t, slack·X/M)   nothing is saved up for a cold service
//! n pass iff  missing ≤ slack  and  full − t + T·(n − 1) ≤ slack
//! then  TAT = t + missing + cost(X, n),  X = X − n·T
//! ```
//!
//! From `full` on, time is silence, and `X` grows by it, so that no other instant is
//! kept. With `X = 0` it is the token bucket; cold, it passes one request, and the next
//! when that one's cost has gone by. From `full` on whatever `burst` allows passes,
//! since a longer wait only makes it colder.
//!
//! Worst case: that of the token bucket, `burst + ⌊D·N/W⌋` in any `D`: its `TAT` is never
//! later than `full`, as a cost on the curve is never less than `n·T`; cold, at most `N/f` in a window `W`, and one more.
//! Memory: 16 bytes more a key.
//!
//! An edit keeps the fill as a share of the bucket's size, and the coldness as one of
//! the coldest. With and without a warm-up are two algorithms.
//!
//! Source: Guava `SmoothRateLimiter`, Sentinel `WarmUpController`. That one moves on
//! once a second and counts in whole tokens and requests, so that `N < f` per second
//! never pass; it needs no bucket, as it counts in windows.

use crate::flow::{
    decision::{Decision, Reason},
    ramp::{Cold, Ramp, WarmUp, share},
    rate::{Interval, Rate},
    slot::{Formula, Standing, Times},
    time::Instant,
};

/// `rate` in the long run when warm, up to `burst` at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// How fast the bucket fills when the service is warm.
    pub rate: Rate,
    /// What may pass at once when it is.
    pub burst: u64,
    /// How it is warmed up.
    pub warm_up: WarmUp,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct WarmBucket {
    interval: Interval,
    burst: u64,
    /// `(burst − 1)·T`.
    slack: u128,
    ramp: Ramp,
}

/// A client's bucket as of its last request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// `TAT`, in units of the interval.
    tat: u128,
    cold: Cold,
}

/// A bucket as of an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct View {
    missing: u128,
    cold: Cold,
}

impl Config {
    /// Returns the limiter.
    pub(super) fn build(&self) -> WarmBucket {
        let interval = Interval::of(self.rate);
        let slack = interval.times(self.burst.saturating_sub(1));
        WarmBucket { interval, burst: self.burst, slack, ramp: Ramp::new(self.rate, self.warm_up) }
    }
}

impl WarmBucket {
    /// Returns from when on the bucket is as full as its coldness lets it be.
    fn full(&self, state: &State) -> u128 {
        state.tat.saturating_sub(self.ramp.share(state.cold, self.slack))
    }

    fn view(&self, state: &State, now: Instant) -> View {
        let (now, &State { tat, cold }) = (self.interval.at(now), state);
        match now.checked_sub(self.full(state)) {
            None => View { missing: tat.saturating_sub(now), cold },
            Some(silence) => {
                let cold = self.ramp.after_silence(cold, silence);
                View { missing: self.ramp.share(cold, self.slack), cold }
            }
        }
    }

    /// Returns from when on `cost` pass, in units.
    fn opening(&self, state: &State, cost: u64) -> u128 {
        let more = self.interval.times(cost.saturating_sub(1));
        state.tat.max(self.full(state) + more).saturating_sub(self.slack)
    }
}

impl Formula for WarmBucket {
    type State = State;

    fn limit(&self) -> u64 {
        self.burst
    }

    fn fresh(&self) -> State {
        State { tat: 0, cold: self.ramp.coldest() }
    }

    fn is_fresh(&self, state: &State, now: Instant) -> bool {
        self.full(state) <= self.interval.at(now)
            && self.view(state, now).cold == self.ramp.coldest()
    }

    fn check(&self, state: &State, now: Instant, cost: u64) -> Decision {
        if cost > self.burst {
            return Decision::Block(Reason::TooCostly { limit: self.burst });
        }
        match self.opening(state, cost).saturating_sub(self.interval.at(now)) {
            0 => Decision::Pass,
            wait => Decision::Block(Reason::Rate { retry_after: self.interval.duration(wait) }),
        }
    }

    /// What is left is at least what is said, and just that when the service is warm:
    /// each further request is cheaper. The reset is when the bucket is as full as it
    /// gets before it cools.
    fn standing(&self, state: &State, now: Instant) -> Standing {
        let View { missing, cold } = self.view(state, now);
        let left = self.slack.checked_sub(missing).map_or(0, |slack| {
            1 + u64::try_from(slack / self.ramp.cost(cold, 1)).unwrap_or(u64::MAX - 1)
        });
        let owed = self.full(state).saturating_sub(self.interval.at(now));
        Standing { used: self.burst.saturating_sub(left), reset: self.interval.duration(owed) }
    }

    fn charge(&self, state: &mut State, times: Times, cost: u64) {
        let View { missing, cold } = self.view(state, times.now);
        let tat = self.interval.at(times.now) + missing + self.ramp.cost(cold, cost);
        *state = State { tat, cold: self.ramp.after(cold, cost) };
    }

    fn convert(&self, old: &Self, state: &mut State, now: Instant) {
        if self == old {
            return;
        }
        let View { missing, cold } = old.view(state, now);
        let cold = self.ramp.convert(cold, &old.ramp);
        let [old_size, size] = [old, self].map(|it| it.interval.times(it.burst));
        // What is owed beyond the bucket's size is owed as a time.
        let debt = self.interval.convert(missing.saturating_sub(old_size), old.interval);
        let missing = share(missing, old_size, size) + debt;
        let missing = missing.max(self.ramp.share(cold, self.slack));
        *state = State { tat: self.interval.at(now) + missing, cold };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{
        Algorithm, Change, Rules,
        timeline::{Timeline, check, one, rate},
    };
    use core::time::Duration;

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
            0 cost=5 block rate 1490.476191
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

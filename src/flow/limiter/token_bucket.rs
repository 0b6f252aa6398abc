//! Token bucket, kept as one instant: the generic cell rate algorithm.
//!
//! A bucket of `burst` tokens fills at `N` per `W`. With the interval `T = W/N` and the theoretical
//! arrival time `TAT`, at which the bucket is full again, a request of cost `n` at `t` passes iff
//! the bucket holds `n` tokens:
//!
//! ```text
//! max(TAT, t) − t + n·T ≤ burst·T         then  TAT = max(TAT, t) + n·T
//! ```
//!
//! (`TAT − T·(burst − 1) ≤ t` in the usual form.) With `W/N = p/q` in lowest terms, time is in
//! units of `1/q` ns: a nanosecond is `q` and `T` is `p`, so nothing drifts. `2^64 ns · q + burst·p
//! < 2^128`.
//!
//! Worst case: `burst` at once, and `burst + ⌊D·N/W⌋` in any duration `D`; exact.
//!
//! An edit keeps the fill as a share of the bucket's size.
//!
//! Where a cost is known after the response only, the difference `d` from the reserve moves `TAT`
//! then: by `+ d·T` like a charge, or by `− d·T`. `TAT` may lie further ahead than a bucket's size: a
//! debt, which is paid before the next request passes. What is given back after an edit is the same
//! share of the bucket's size.
//!
//! Source: ITU-T I.371 (2004), annex A; the crate governor, which rounds `T` down to nanoseconds
//! and is equal where that is exact.

use super::{
    Evictable, GivenBack, Limiter, QuotaUsage, Times, Transfer, Usage, halves, ramp::share, whole,
};
use crate::flow::{
    decision::{Decision, Reason, fitting},
    keyed::PastUsage,
    rate::{Interval, Rate},
    time::Instant,
};
use serde::{Deserialize, Serialize};

/// `rate` in the long run, up to `burst` at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// The rate at which the bucket fills.
    pub rate: Rate,
    /// The bucket's size: the most at once after a pause.
    pub burst: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(in crate::flow) struct TokenBucket {
    interval: Interval,
    burst: u64,
    /// `burst·T`.
    capacity: u128,
}

/// The latest `TAT`, beyond that of any debt that is ever paid: sums stay below 128 bits.
pub(super) const LATEST: u128 = 1 << 119;

/// A client's `TAT`, in units of the interval.
pub(in crate::flow) type State = u128;

impl Config {
    pub(in crate::flow) fn build(&self) -> TokenBucket {
        let interval = Interval::of(self.rate);
        TokenBucket { interval, burst: self.burst, capacity: interval.times(self.burst) }
    }
}

impl TokenBucket {
    /// Returns the interval `T`, the unit of the state.
    pub(in crate::flow) const fn interval(&self) -> Interval {
        self.interval
    }

    /// Converts a cost charged to a bucket of `old` to the same share of this one.
    pub(in crate::flow) fn resized(&self, old: &Self, cost: u64) -> u64 {
        let full = u128::from(old.burst.max(1));
        let burst = u128::from(self.burst);
        let cost = (u128::from(cost) * burst).div_ceil(full);
        u64::try_from(cost).unwrap_or(u64::MAX)
    }

    /// Returns what a full bucket has more: `max(TAT, t) − t`.
    const fn missing(&self, tat: State, now: Instant) -> u128 {
        tat.saturating_sub(self.interval.at(now))
    }
}

impl Limiter for TokenBucket {
    type State = State;

    fn limit(&self) -> u64 {
        self.burst
    }

    fn fresh(&self) -> State {
        0
    }

    fn is_fresh(&self, tat: &State, now: Instant) -> bool {
        self.missing(*tat, now) == 0
    }

    fn check(&self, tat: &State, now: Instant, cost: u64) -> Decision {
        if cost > self.burst {
            return Decision::too_costly(self.burst);
        }
        let after = self.missing(*tat, now) + self.interval.times(cost);
        match after.saturating_sub(self.capacity) {
            0 => Decision::Pass,
            excess => {
                Decision::Reject(Reason::Rate { retry_after: self.interval.duration(excess) })
            }
        }
    }

    fn usage(&self, tat: &State, now: Instant) -> Usage {
        let missing = self.missing(*tat, now);
        Usage { used: self.interval.count(missing), reset: self.interval.duration(missing) }
    }

    /// As by [`check`](Self::check), with fewer divisions.
    fn usage_and_growth(&self, tat: &State, now: Instant, cost: u64) -> QuotaUsage {
        let missing = self.missing(*tat, now);
        let used = self.interval.count(missing);
        let usage = Usage { used, reset: self.interval.duration(missing) };
        let cost = cost.max(1);
        let fits = fitting(self.burst.saturating_sub(used), cost);
        let wanted = fits.saturating_add(1).saturating_mul(cost);
        let growth = self
            .burst
            .checked_sub(wanted)
            .map(|most| self.interval.duration(missing.saturating_sub(self.interval.times(most))));
        QuotaUsage { usage, growth }
    }

    fn rank(&self, tat: &State, now: Instant) -> u128 {
        self.missing(*tat, now)
    }

    fn charge(&self, tat: &mut State, times: Times, cost: u64) {
        let tat_after = (*tat).max(self.interval.at(times.now)) + self.interval.times(cost);
        *tat = tat_after.min(LATEST);
    }

    fn give_back(&self, tat: &mut State, part: &GivenBack) {
        *tat = tat.saturating_sub(given_back(self.interval, self.burst, part));
    }

    fn convert(&self, old: &Self, tat: &mut State, now: Instant) {
        if self == old {
            return;
        }
        let missing = old.missing(*tat, now);
        let full = old.capacity.max(1);
        // More may be missing than a bucket holds, if gateways together passed too much.
        let buckets = self.capacity.saturating_mul(missing / full);
        let missing = buckets.saturating_add(share(missing % full, old.capacity, self.capacity));
        *tat = self.interval.at(now).saturating_add(missing);
    }
}

/// Returns the time of a part that is given back to a bucket of this size, in units of the interval:
/// of a charge before an edit, the same share of the size.
pub(super) fn given_back(interval: Interval, burst: u64, part: &GivenBack) -> u128 {
    let GivenBack { receipt, cost, .. } = *part;
    if receipt.limit == burst {
        return interval.times(cost);
    }

    let before = u128::from(receipt.limit.max(1));
    let scaled = u128::from(cost) * u128::from(burst);
    let whole = u64::try_from(scaled / before).unwrap_or(u64::MAX);
    // Rounded down, as a conversion rounds what is used up.
    interval.times(whole) + scaled % before * u128::from(interval.units()) / before
}

impl Evictable for TokenBucket {
    fn past_usage(&self, tat: &State, _now: Instant) -> PastUsage {
        PastUsage::until(self.interval.instant(*tat))
    }

    fn absorb(&self, tat: &mut State, usage: PastUsage, _now: Instant) {
        *tat = (*tat).max(self.interval.at(usage.over()));
    }
}

impl Transfer for TokenBucket {
    fn export(&self, tat: &State) -> Vec<u64> {
        halves(*tat).into()
    }

    fn import(&self, numbers: &[u64]) -> Option<State> {
        whole(numbers.try_into().ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{
        Algorithm, Change, Rules,
        timeline::{Timeline, check, one, rate},
    };

    fn bucket(count: u64, window: u64, burst: u64) -> Rules {
        one(Algorithm::TokenBucket(Config { rate: rate(count, window), burst }))
    }

    #[test]
    fn a_burst_then_the_steady_rate() {
        check(
            &bucket(10, 1000, 2),
            "
            0    x2 pass
            0    block rate 100
            99   block rate 1
            100  pass
            900  x2 pass
            900  block rate 100
            850  block rate 100
            ",
        );
    }

    #[test]
    fn a_costly_request_waits_for_its_tokens() {
        check(
            &bucket(10, 1000, 5),
            "
            0   cost=6 block costly 5
            0   cost=3 pass
            0   cost=3 block rate 100
            100 cost=3 pass
            100        block rate 100
            100 cost=0 pass
            599 cost=5 block rate 1
            600 cost=5 pass
            ",
        );
    }

    #[test]
    fn thirds_of_a_nanosecond_are_not_lost() {
        check(
            &bucket(3, 1000, 1),
            "
            0          pass
            333.333333 block rate 0.000001
            333.333334 pass
            666.666667 block rate 0.000001
            666.666668 pass
            ",
        );
        check(
            &bucket(3, 1000, 3),
            "
            0    x3 pass
            0    block rate 333.333334
            1000 x3 pass
            1000 block rate 333.333334
            ",
        );
    }

    #[test]
    fn an_edit_keeps_the_share_that_is_left() {
        Timeline::new(&bucket(10, 1000, 10))
            .check("0 x5 pass")
            .edit(&bucket(100, 1000, 100), &[Change::Converted])
            .check("0 x50 pass")
            .check("0 block rate 10")
            .edit(&bucket(10, 1000, 4), &[Change::Converted])
            .check("0 block rate 100")
            .check("200 x2 pass")
            .check("200 block rate 100");
    }
}

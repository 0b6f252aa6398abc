//! The cold-start curve: the longer a service has idled, the longer the interval.
//!
//! With `c` requests per second, a period `p` and a cold factor `f`, Guava and
//! Sentinel store a token for each request not made, up to a maximum, and above a
//! threshold the interval grows with what is stored, from `1/c` to `f/c`:
//!
//! ```text
//! threshold = p·c/(f−1)        max = threshold + 2·p·c/(1+f)
//! interval  = 1/c + slope·(stored − threshold)        slope = (f−1)/(c·(max−threshold))
//! ```
//!
//! The store below the threshold fills as fast as it is spent, so only the part above has an
//! effect. That part is the **coldness** `X` kept here, as a time from 0 to `M = 2(p+L)/(1+f)`. It
//! grows by the time that passes in silence (see [`warmth`](super::warmth)) and shrinks by `T` for
//! each request. With `T = W/N`:
//!
//! ```text
//! interval(X) = T·(1 + (f−1)·X/M)
//! n requests:  n·T + (f−1)·(2X−d)·d/(2M),  d = min(n·T, X)       then  X = X − d
//! ```
//!
//! This is the area under the curve: under constant load a cold service is warm after `p+L`, and a
//! warm one is cold after `M` of silence. `L` is half a second, because the originals step once a
//! second, at its end, and this curve should be in the middle of their steps. The rate never falls
//! below one request per cold interval `f·T`, however small `c` is.
//!
//! All numbers are integers in units of [`Interval`], in which `T` is whole; `X` keeps 56 bits of
//! `M`.

use crate::flow::{
    rate::{Interval, Rate},
    time::Instant,
};
use core::{num::NonZeroU64, time::Duration};
use serde::{Deserialize, Serialize};

/// The warm-up of a cold service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmUp {
    /// Its duration under constant load.
    pub period: Duration,
    /// The ratio of a cold service's interval to the limit's, from 2 to [`Self::MAX_FACTOR`].
    pub cold_factor: u32,
}

/// The excess of a warm-up over its period: half of Sentinel's step of a second.
const LAG: Duration = Duration::from_millis(500);

impl WarmUp {
    /// Returns how long it takes under constant load: half a second more than the period, or half
    /// as long again if that is shorter than a second.
    pub fn duration(&self) -> Duration {
        self.period.saturating_add(LAG.min(self.period / 2))
    }

    const fn factor(&self) -> u32 {
        if self.cold_factor < 2 {
            2
        } else if self.cold_factor > Self::MAX_FACTOR {
            Self::MAX_FACTOR
        } else {
            self.cold_factor
        }
    }

    /// Returns how long a warm service takes to become fully cold without requests.
    pub fn coldest(&self) -> Duration {
        self.duration() * 2 / (1 + self.factor())
    }

    /// The largest cold factor; larger ones are reduced to it.
    pub const MAX_FACTOR: u32 = 1_000;
}

/// The curve of one rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::flow) struct Ramp {
    interval: Interval,
    /// `M`.
    max: NonZeroU64,
    /// `f − 1`.
    slope: u32,
    /// Coldness is counted in steps of `2^shift` units of the interval.
    shift: u32,
}

/// The coldness `X`, in steps.
pub(in crate::flow) type Cold = u64;

/// Bits of the largest coldness.
const BITS: u32 = 56;

impl Ramp {
    pub(in crate::flow) fn new(rate: Rate, warm_up: WarmUp) -> Self {
        let interval = Interval::of(rate);
        let units = interval.at(Instant::EPOCH + warm_up.coldest());
        let shift = (u128::BITS - units.leading_zeros()).saturating_sub(BITS);
        let max = u64::try_from(units >> shift).ok().and_then(NonZeroU64::new);
        Self { interval, max: max.unwrap_or(NonZeroU64::MIN), slope: warm_up.factor() - 1, shift }
    }

    /// Returns the coldness of a service that was idle for long.
    pub(in crate::flow) const fn coldest(&self) -> Cold {
        self.max.get()
    }

    /// Returns the time that `n` requests take at this coldness, in units.
    pub(in crate::flow) fn cost(&self, cold: Cold, n: u64) -> u128 {
        let warmed = u128::from(self.warmed(cold, n));
        let area = u128::from(self.slope) * (2 * u128::from(cold) - warmed) * warmed;
        let extra = area.div_ceil(2 * u128::from(self.max.get()));
        self.interval.times(n) + (extra << self.shift)
    }

    pub(in crate::flow) fn after(&self, cold: Cold, n: u64) -> Cold {
        cold - self.warmed(cold, n)
    }

    /// Returns the time of `n` requests beyond that of a warm service, in units.
    pub(in crate::flow) fn extra(&self, cold: Cold, n: u64) -> u128 {
        self.cost(cold, n) - self.interval.times(n)
    }

    /// Returns the time of `n` requests at full coldness.
    pub(in crate::flow) fn cold_interval(&self, n: u64) -> Duration {
        self.interval.duration(self.interval.times(n) * (u128::from(self.slope) + 1))
    }

    /// Returns how much later than these intervals a cold bucket that saves up `slack` units admits
    /// as many again: all but one of them must fit in it.
    pub(in crate::flow) fn apart(&self, n: u64, slack: u128) -> Duration {
        self.interval.duration(self.interval.times(n.saturating_sub(1)).min(slack))
    }

    pub(in crate::flow) const fn units(&self, at: Instant) -> u128 {
        self.interval.at(at)
    }

    pub(in crate::flow) fn after_silence(&self, cold: Cold, silence: Duration) -> Cold {
        let units = self.interval.at(Instant::EPOCH + silence);
        let grown = units.div_ceil(1 << self.shift).saturating_add(cold.into());
        u64::try_from(grown).unwrap_or(u64::MAX).min(self.max.get())
    }

    /// Returns `of · cold / coldest`, rounded up.
    pub(in crate::flow) fn share(&self, cold: Cold, of: u128) -> u128 {
        share(cold.into(), self.max.get().into(), of)
    }

    /// Converts a coldness of the curve `other`.
    pub(in crate::flow) fn convert(&self, cold: Cold, other: &Self) -> Cold {
        let converted = other.share(cold, self.max.get().into());
        u64::try_from(converted).unwrap_or(u64::MAX).min(self.max.get())
    }

    fn warmed(&self, cold: Cold, n: u64) -> Cold {
        u64::try_from(self.interval.times(n) >> self.shift).unwrap_or(u64::MAX).min(cold)
    }
}

/// Returns `of · part / whole`, rounded up, at most `of`.
pub(in crate::flow) fn share(part: u128, whole: u128, of: u128) -> u128 {
    // Drop low bits so that the products fit; rounding up means less budget.
    let excess = (u128::BITS - whole.leading_zeros()).saturating_sub(63);
    let part = part.div_ceil(1 << excess);
    let whole = (whole >> excess).max(1);
    if part >= whole {
        return of;
    }
    let times = of / whole;
    let rest = of % whole;
    (times * part + (rest * part).div_ceil(whole)).min(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(count: u64, window: Duration, period: Duration, cold_factor: u32) -> Ramp {
        let rate = Rate::new(count, window).expect("a rate");
        Ramp::new(rate, WarmUp { period, cold_factor })
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_cold_service_asked_without_a_pause_is_warm_after_the_period() {
        for (count, period, factor) in
            [(200, 10, 3), (6, 5, 2), (100, 10, 5), (300_000, 1, 10), (1_000_000_000_000, 10, 3)]
        {
            let ramp = curve(count, SECOND, Duration::from_secs(period), factor);
            // 2·(p+L)·c/(1+f) requests.
            let requests = (2 * period + 1) * count / u64::from(1 + factor);
            let cost = ramp.cost(ramp.coldest(), requests);
            let took = ramp.interval.duration(cost);
            assert!(
                took.abs_diff(Duration::from_millis(1_000 * period + 500)) < SECOND / 50,
                "{took:?}"
            );
            assert!(ramp.after(ramp.coldest(), requests + 1) <= ramp.coldest() / 10_000);
        }
    }

    #[test]
    fn one_by_one_costs_what_it_costs_together() {
        for factor in [2, 3, 10, 1_000] {
            let ramp = curve(7, SECOND, Duration::from_secs(5), factor);
            let mut cold = ramp.coldest();
            let mut sum = 0;
            for n in 1..=200 {
                sum += ramp.cost(cold, 1);
                cold = ramp.after(cold, 1);
                let together = ramp.cost(ramp.coldest(), n);
                // Each is rounded up to a unit, a seventh of a nanosecond.
                assert!((together..=together + u128::from(n)).contains(&sum));
                assert_eq!(cold, ramp.after(ramp.coldest(), n));
            }
            assert_eq!((cold, ramp.cost(cold, 3)), (0, ramp.interval.times(3)));
        }
    }

    #[test]
    fn the_first_interval_is_the_cold_one_and_none_is_longer() {
        let ramp = curve(200, SECOND, Duration::from_secs(10), 3);
        // A thousandth part less, as the curve falls by a step within it.
        let first = ramp.interval.duration(ramp.cost(ramp.coldest(), 1));
        assert!(first <= Duration::from_millis(15) && first > Duration::from_micros(14_980));
        let slow = curve(1, Duration::from_mins(1), Duration::from_secs(10), 3);
        let first = slow.interval.duration(slow.cost(slow.coldest(), 1));
        assert_eq!(first, Duration::from_millis(65_250));
    }

    #[test]
    fn silence_cools_and_extremes_do_not_overflow() {
        let ramp = curve(200, SECOND, Duration::from_secs(10), 3);
        assert_eq!(ramp.after_silence(0, 21 * SECOND / 4), ramp.coldest());
        assert_eq!(ramp.after_silence(0, Duration::MAX), ramp.coldest());
        let day = Duration::from_hours(24);
        for (count, window) in [(1, Rate::MAX_WINDOW), (Rate::MAX_COUNT, Duration::from_nanos(1))] {
            for period in [Duration::from_nanos(1), day] {
                let ramp = curve(count, window, period, u32::MAX);
                assert!(
                    ramp.cost(ramp.coldest(), Rate::MAX_COUNT) >= ramp.cost(0, Rate::MAX_COUNT)
                );
                assert_eq!(ramp.after_silence(ramp.coldest(), Duration::MAX), ramp.coldest());
                assert_eq!(ramp.convert(ramp.coldest(), &ramp), ramp.coldest());
            }
        }
    }

    #[test]
    fn a_share_is_rounded_to_less_budget() {
        assert_eq!(share(1, 3, 10), 4);
        assert_eq!(share(0, 3, 10), 0);
        assert_eq!(share(3, 3, 10), 10);
        let long = 1 << 118;
        assert_eq!(share(long, long, 77), 77);
        assert_eq!(share(long / 2, long, 1 << 100), 1 << 99);
        assert!(share(long / 3, long, 300) >= 100);
        assert!(share(long / 3, long, 300) <= 101);
    }
}

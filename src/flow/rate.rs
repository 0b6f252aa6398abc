//! Rates and exact intervals.

use super::time::{self, Instant, nanos};
use core::{fmt, num::NonZeroU64, time::Duration};
use serde::{Deserialize, Serialize};

/// `count` per `window`, as written: `60/1m` and `1/1s` differ for every algorithm that looks at a
/// whole window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "(u64, Duration)", try_from = "(u64, Duration)")]
pub struct Rate {
    count: NonZeroU64,
    /// In nanoseconds.
    pub(super) window: NonZeroU64,
}

impl Rate {
    /// The largest count. Products of a count and a window stay below 128 bits.
    pub const MAX_COUNT: u64 = 1_000_000_000_000;

    /// The longest window: 366 days.
    pub const MAX_WINDOW: Duration = Duration::from_hours(8784);

    /// Returns the rate, or `None` if either number is zero or over its maximum.
    pub fn new(count: u64, window: Duration) -> Option<Self> {
        if count > Self::MAX_COUNT || window > Self::MAX_WINDOW {
            return None;
        }
        Some(Self { count: NonZeroU64::new(count)?, window: NonZeroU64::new(nanos(window))? })
    }

    /// Returns the count.
    pub const fn count(self) -> u64 {
        self.count.get()
    }

    /// Returns the window.
    pub const fn window(self) -> Duration {
        Duration::from_nanos(self.window.get())
    }

    /// Returns the window in nanoseconds.
    pub const fn window_nanos(self) -> u64 {
        self.window.get()
    }
}

impl From<Rate> for (u64, Duration) {
    fn from(rate: Rate) -> Self {
        (rate.count(), rate.window())
    }
}

impl TryFrom<(u64, Duration)> for Rate {
    type Error = &'static str;

    fn try_from(rate: (u64, Duration)) -> Result<Self, Self::Error> {
        let (count, window) = rate;
        Self::new(count, window).ok_or("no rate")
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.count, time::spelled(self.window()))
    }
}

/// The time between two requests at a rate: `p/q` nanoseconds in lowest terms. Instants and
/// durations are counted in units of `1/q` ns, so that nothing is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    /// Units in an interval.
    p: NonZeroU64,
    /// Units in a nanosecond.
    q: NonZeroU64,
}

impl Interval {
    pub(super) const fn of(rate: Rate) -> Self {
        Self::new(rate.window, rate.count)
    }

    /// Returns the `count`-th part of `window` nanoseconds.
    pub(super) const fn new(window: NonZeroU64, count: NonZeroU64) -> Self {
        let divisor = gcd(window.get(), count.get());
        match (NonZeroU64::new(window.get() / divisor), NonZeroU64::new(count.get() / divisor)) {
            (Some(p), Some(q)) => Self { p, q },
            // A divisor is not larger than what it divides.
            (None, _) | (_, None) => Self { p: window, q: count },
        }
    }

    /// Returns `now` in units.
    pub(super) const fn at(self, now: Instant) -> u128 {
        now.as_nanos() as u128 * self.q.get() as u128
    }

    /// Returns `n` intervals in units.
    pub(super) const fn times(self, n: u64) -> u128 {
        n as u128 * self.p.get() as u128
    }

    /// Returns the first instant not before `units`.
    pub(super) fn instant(self, units: u128) -> Instant {
        Instant::from_nanos(div_ceil(units, self.q))
    }

    /// Returns `units` as a duration, rounded up to nanoseconds.
    pub(super) fn duration(self, units: u128) -> Duration {
        Duration::from_nanos(div_ceil(units, self.q))
    }

    /// Returns `units` in intervals, rounded up.
    pub(super) fn count(self, units: u128) -> u64 {
        div_ceil(units, self.p)
    }

    /// Returns the number of intervals from the epoch to `now`, rounded down.
    pub(super) fn whole(self, now: Instant) -> u64 {
        let units = self.at(now);
        let p = self.p.get();
        match u64::try_from(units) {
            Ok(units) => units / p,
            Err(_) => u64::try_from(units / u128::from(p)).unwrap_or(u64::MAX),
        }
    }

    /// Returns `units` as whole microseconds and a rest below 1000 times [`Self::parts`].
    pub(super) fn split(self, units: u128) -> (u64, u64) {
        let whole = u128::from(self.q.get()) * 1000;
        let narrow = |units| u64::try_from(units).unwrap_or(u64::MAX);
        (narrow(units / whole), narrow(units % whole))
    }

    /// Inverts [`Self::split`].
    pub(super) fn join(self, micros: u64, rest: u64) -> u128 {
        (u128::from(micros) * 1000 * u128::from(self.q.get())).saturating_add(rest.into())
    }

    /// Returns the units of a nanosecond.
    pub(super) const fn parts(self) -> u64 {
        self.q.get()
    }

    /// Returns the units of an interval.
    pub(super) const fn units(self) -> u64 {
        self.p.get()
    }

    /// Converts `units` of `other` to units of this interval, rounded up.
    pub(super) fn convert(self, units: u128, other: Self) -> u128 {
        // In two parts: the product may exceed 128 bits.
        let ours = u128::from(self.q.get());
        let theirs = u128::from(other.q.get());
        (units / theirs) * ours + (units % theirs * ours).div_ceil(theirs)
    }
}

/// Returns the quotient, rounded up and at most `u64::MAX`.
pub(super) fn div_ceil(units: u128, by: NonZeroU64) -> u64 {
    // The dividend is nearly always short, and this several times as fast.
    match u64::try_from(units) {
        Ok(units) => units.div_ceil(by.get()),
        Err(_) => u64::try_from(units.div_ceil(u128::from(by.get()))).unwrap_or(u64::MAX),
    }
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        let rest = a % b;
        a = b;
        b = rest;
    }
    a
}

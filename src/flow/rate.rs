//! How many per how long.

use super::time::{self, Instant, nanos};
use core::{fmt, num::NonZeroU64, time::Duration};

/// `count` per `window`, kept as written: `60/1m` and `1/1s` are different limits
/// for every algorithm that looks at a whole window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    count: NonZeroU64,
    /// In nanoseconds.
    pub(super) window: NonZeroU64,
}

impl Rate {
    /// The largest count: more than any algorithm needs, small enough that no
    /// product of a count and a window leaves 128 bits.
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

    /// Returns how many.
    pub const fn count(self) -> u64 {
        self.count.get()
    }

    /// Returns per how long.
    pub const fn window(self) -> Duration {
        Duration::from_nanos(self.window.get())
    }

    /// Returns the window in nanoseconds.
    pub const fn window_nanos(self) -> u64 {
        self.window.get()
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.count, time::spelled(self.window()))
    }
}

/// The time between two requests at a rate, exactly: `p/q` nanoseconds, in lowest
/// terms. Points in time and durations are counted in units of `1/q` ns, in which
/// nothing is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    /// Units in an interval.
    p: NonZeroU64,
    /// Units in a nanosecond.
    q: NonZeroU64,
}

impl Interval {
    /// Returns the interval of `rate`.
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

    /// Returns the shortest whole duration that lasts `units`.
    pub(super) fn duration(self, units: u128) -> Duration {
        Duration::from_nanos(div_ceil(units, self.q))
    }

    /// Returns how many intervals it takes to last `units`.
    pub(super) fn count(self, units: u128) -> u64 {
        div_ceil(units, self.p)
    }

    /// Returns how many intervals end by `now`, counted from the clock's zero.
    pub(super) fn whole(self, now: Instant) -> u64 {
        let (units, p) = (self.at(now), self.p.get());
        match u64::try_from(units) {
            Ok(units) => units / p,
            Err(_) => u64::try_from(units / u128::from(p)).unwrap_or(u64::MAX),
        }
    }

    /// Returns `units` as whole microseconds and what is left of them, which is less than
    /// 1000 times [`Self::parts`].
    pub(super) fn split(self, units: u128) -> (u64, u64) {
        let whole = u128::from(self.q.get()) * 1000;
        let narrow = |units| u64::try_from(units).unwrap_or(u64::MAX);
        (narrow(units / whole), narrow(units % whole))
    }

    /// Returns what [`Self::split`] was given.
    pub(super) fn join(self, micros: u64, rest: u64) -> u128 {
        (u128::from(micros) * 1000 * u128::from(self.q.get())).saturating_add(rest.into())
    }

    /// Returns how many units a nanosecond has.
    pub(super) const fn parts(self) -> u64 {
        self.q.get()
    }

    /// Returns how many units an interval has.
    pub(super) const fn units(self) -> u64 {
        self.p.get()
    }

    /// Returns a point in time `units` of `other` in units of this, rounded up.
    pub(super) fn convert(self, units: u128, other: Self) -> u128 {
        // In two parts, since the product of the whole may leave 128 bits.
        let (ours, theirs) = (u128::from(self.q.get()), u128::from(other.q.get()));
        (units / theirs) * ours + (units % theirs * ours).div_ceil(theirs)
    }
}

/// Returns the quotient, rounded up, or the most a `u64` can say.
pub(super) fn div_ceil(units: u128, by: NonZeroU64) -> u64 {
    // Nearly always short, and then several times as fast.
    match u64::try_from(units) {
        Ok(units) => units.div_ceil(by.get()),
        Err(_) => u64::try_from(units.div_ceil(u128::from(by.get()))).unwrap_or(u64::MAX),
    }
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

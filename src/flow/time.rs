//! Points in time.

use core::{
    fmt,
    ops::{Add, Sub},
    time::Duration,
};
use serde::{Deserialize, Serialize};

/// A point in time: nanoseconds on a clock that never steps back.
///
/// The clock starts at the wall clock's time since the Unix epoch; later steps of the wall clock
/// are a [`WallOffset`]. Arithmetic saturates; the range ends in the year 2554.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Instant(u64);

impl Instant {
    /// The clock's zero.
    pub const EPOCH: Self = Self(0);

    /// The last representable instant: never.
    pub const FAR_FUTURE: Self = Self(u64::MAX);

    /// Returns the instant `nanos` nanoseconds after [`Self::EPOCH`].
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds since [`Self::EPOCH`].
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time since `earlier`, or zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The lead of the wall clock over [`Instant`]s, by steps since the process started. Up to 292
/// years either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WallOffset(i64);

impl WallOffset {
    /// Returns the offset of this many nanoseconds.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Returns the offset in nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Returns the wall clock's time at `now`.
    pub const fn at(self, now: Instant) -> Instant {
        Instant(now.0.saturating_add_signed(self.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(nanos(rhs)))
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, rhs: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(rhs)))
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.0))
    }
}

/// Returns `duration` in nanoseconds, at most `u64::MAX` (584 years).
pub(crate) fn nanos(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(duration.subsec_nanos().into())
}

/// Writes `duration` exactly, in days and smaller units, as `31d 12h`: months and years vary in
/// length.
pub(crate) fn spelled(duration: Duration) -> String {
    const DAY: u64 = 24 * 60 * 60;
    let days = duration.as_secs() / DAY;
    let rest = duration.saturating_sub(Duration::from_secs(days * DAY));
    let within_a_day = humantime::format_duration(rest);
    match days {
        0 => within_a_day.to_string(),
        _ if rest.is_zero() => format!("{days}d"),
        _ => format!("{days}d {within_a_day}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_spelled_as_it_may_be_written() {
        let hours = |hours: u64| Duration::from_secs(hours * 60 * 60);
        for (duration, text) in [
            (Duration::ZERO, "0s"),
            (Duration::from_millis(90_500), "1m 30s 500ms"),
            (hours(23), "23h"),
            (hours(24), "1d"),
            (hours(36), "1d 12h"),
            (hours(31 * 24), "31d"),
            (hours(366 * 24) + Duration::from_nanos(1), "366d 1ns"),
        ] {
            assert_eq!(spelled(duration), text);
            assert_eq!(humantime::parse_duration(text), Ok(duration));
        }
    }
}

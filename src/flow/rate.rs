//! How many per how long.

use super::time::nanos;
use core::{fmt, num::NonZeroU64, time::Duration};

/// `count` per `window`, kept as written: `60/1m` and `1/1s` are different limits
/// for every algorithm that looks at a whole window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    count: NonZeroU64,
    /// In nanoseconds.
    window: NonZeroU64,
}

impl Rate {
    /// The largest count: more than any algorithm needs, small enough that no
    /// product of a count and a window leaves 128 bits.
    pub const MAX_COUNT: u64 = 1_000_000_000_000;

    /// The longest window: 366 days.
    pub const MAX_WINDOW: Duration = Duration::from_hours(366 * 24);

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
        write!(f, "{}/{}", self.count, humantime::format_duration(self.window()))
    }
}

//! What a gateway knows of the store's clock.

use crate::flow::time::Instant;
use core::time::Duration;

/// How long time may stand still, beside an answer's duration, when a clock turns out to be behind.
/// Synchronised machines differ less.
const MOST_STILL: Duration = Duration::from_secs(1);

/// The times of a call to the store, which bound the difference of the clocks.
#[derive(Clone, Copy, Debug)]
pub struct RoundTrip {
    /// When it was asked, by our clock.
    pub asked: Instant,
    /// When it was answered, by the store's clock.
    pub given: Instant,
    /// When the answer came, by our clock.
    pub came: Instant,
}

/// The store's time by the gateway's clock.
#[derive(Clone, Copy, Debug)]
pub(in crate::flow) struct StoreClock {
    /// The store's time minus the gateway's, in nanoseconds.
    offset: i64,
    /// The store's time when that was measured; time does not step back before it.
    least: Instant,
}

impl StoreClock {
    /// Returns the gateway's clock, while nothing is known.
    pub(super) const fn own() -> Self {
        Self { offset: 0, least: Instant::EPOCH }
    }

    /// Returns the offset in nanoseconds and the least time, for [`Self::of_numbers`].
    pub(in crate::flow) const fn numbers(self) -> (i64, Instant) {
        (self.offset, self.least)
    }

    /// Inverts [`Self::numbers`].
    pub(in crate::flow) const fn of_numbers(offset: i64, least: Instant) -> Self {
        Self { offset, least }
    }

    /// Returns the store's time at `now`, never less than before.
    pub(super) fn time(self, now: Instant) -> Instant {
        self.past(now).max(self.least)
    }

    /// Returns the store's time at `now`, possibly long ago.
    pub(super) fn past(self, now: Instant) -> Instant {
        let offset = Duration::from_nanos(self.offset.unsigned_abs());
        if self.offset < 0 { now - offset } else { now + offset }
    }

    /// Learns from an answer. Returns the clock, and whether it is another one, so that usage by
    /// the previous one is to be forgotten.
    pub(in crate::flow) fn learn(self, trip: RoundTrip) -> (Self, bool) {
        let RoundTrip { asked, given, came } = trip;
        let offset = i128::from(given.as_nanos()) - i128::from(came.as_nanos());
        // A slow answer has an old time, which does not mean a clock ahead.
        let is_other = self.time(asked).since(given) > MOST_STILL;
        let least = if is_other { Instant::EPOCH } else { self.time(came) };
        (Self { offset: i64::try_from(offset).unwrap_or(0), least }, is_other)
    }
}

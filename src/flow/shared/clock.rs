//! The store's clock, as far as a gateway knows it.

use crate::flow::time::Instant;
use core::time::Duration;

/// How long time stands still at most, beside what an answer took, when a clock turns out to be
/// behind: more than the clocks of machines that are kept differ.
const MOST_STILL: Duration = Duration::from_secs(1);

/// When the store was asked and answered. What one clock lacks to the other lies between what each
/// end of the way says.
#[derive(Clone, Copy, Debug)]
pub struct RoundTrip {
    /// By our clock.
    pub asked: Instant,
    /// When it was answered, by the clock of the store.
    pub given: Instant,
    /// When the answer came, by our clock.
    pub came: Instant,
}

/// The time of the store, as the gateway's clock shows it.
#[derive(Clone, Copy, Debug)]
pub(in crate::flow) struct StoreClock {
    /// What the gateway's clock lacks to the store's, in nanoseconds; it may be ahead.
    lack: i64,
    /// When that was found, by the store's clock: time does not step back before it.
    least: Instant,
}

impl StoreClock {
    /// Returns the gateway's own clock, for as long as nothing is known.
    pub(super) const fn own() -> Self {
        Self { lack: 0, least: Instant::EPOCH }
    }

    /// Returns the store's time at `now`, as far as is known, and never less than before.
    pub(super) fn time(self, now: Instant) -> Instant {
        self.past(now).max(self.least)
    }

    /// Returns the store's time at `now`, which may be long ago.
    pub(super) fn past(self, now: Instant) -> Instant {
        let lack = Duration::from_nanos(self.lack.unsigned_abs());
        if self.lack < 0 { now - lack } else { now + lack }
    }

    /// Returns what an answer shows of the store's clock, and whether that is another clock, so that
    /// what was counted by the former one is to be forgotten.
    pub(in crate::flow) fn learn(self, trip: RoundTrip) -> (Self, bool) {
        let RoundTrip { asked, given, came } = trip;
        let lack = i128::from(given.as_nanos()) - i128::from(came.as_nanos());
        // An answer that took long tells a time that is long past: that is no clock ahead.
        let is_other = self.time(asked).since(given) > MOST_STILL;
        let least = if is_other { Instant::EPOCH } else { self.time(came) };
        (Self { lack: i64::try_from(lack).unwrap_or(0), least }, is_other)
    }
}

//! The responses of a slot, and the comparison of two slots.

use super::{Fixed, ONE};
use crate::flow::time::{Instant, nanos};
use core::time::Duration;

/// The longest response time that counts.
const LONGEST: Duration = Duration::from_hours(1);

/// The responses since a slot or a measurement began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// The begin, in nanoseconds.
    pub(super) begin: u64,
    /// All responses.
    pub(super) responses: u64,
    /// Those of the service that were no failure.
    pub(super) good: u64,
    /// The cost of these requests.
    pub(super) cost: u64,
    /// The sum of their response times, in nanoseconds.
    pub(super) time: u64,
    /// The sum of the squares of their response times in microseconds.
    pub(super) squares: u128,
    /// The time in which requests waited, in nanoseconds.
    pub(super) waited: u64,
    /// The requests that were rejected for want of a place.
    pub(super) rejected: u64,
}

impl Tally {
    pub(super) fn new(begin: Instant) -> Self {
        Self { begin: begin.as_nanos(), ..Self::default() }
    }

    /// Adds a response.
    pub(super) fn add(&mut self, time: Duration, cost: u64, is_good: bool) {
        self.responses += 1;
        if is_good {
            let time = nanos(time.min(LONGEST));
            let micros = u128::from(time / 1_000);
            self.good += 1;
            self.cost = self.cost.saturating_add(cost);
            self.time = self.time.saturating_add(time);
            self.squares = self.squares.saturating_add(micros * micros);
        }
    }

    /// Returns the time since the begin.
    pub(super) fn length(&self, now: Instant) -> u64 {
        now.as_nanos().saturating_sub(self.begin)
    }

    /// Returns the mean response time; `None` if no response was good.
    pub(super) fn mean(&self) -> Option<u64> {
        self.time.checked_div(self.good)
    }

    /// Returns the squared coefficient of variation of the response times, from 1 to 6.
    pub(super) fn spread(&self) -> Fixed {
        let count = u128::from(self.good.max(1));
        let sum = u128::from(self.time / 1_000);
        let square = sum.saturating_mul(sum);
        let above = self.squares.saturating_mul(count).saturating_sub(square);
        let ratio = above.saturating_mul(1 << 16) / square.max(1);
        Fixed::try_from(ratio).unwrap_or(Fixed::MAX).clamp(ONE, 6 * ONE)
    }

    /// Returns a bound of the mean response time: the mean less one standard error.
    pub(super) fn surely(&self, mean: u64) -> u64 {
        let count = Fixed::try_from(self.good.max(1)).unwrap_or(Fixed::MAX);
        let variance = (self.spread() << 16) / count;
        let error = variance.unsigned_abs().isqrt().min(ONE.unsigned_abs() / 2);
        mean / 16 * (ONE.unsigned_abs() - error) / ONE.unsigned_abs() * 16
    }

    /// Returns the mean cost in flight, for this mean response time.
    pub(super) fn held(&self, mean: u64, now: Instant) -> u32 {
        let held = u128::from(self.cost) * u128::from(mean) / u128::from(self.length(now).max(1));
        u32::try_from(held).unwrap_or(u32::MAX)
    }

    /// Returns the sample of a time that ends now.
    pub(super) fn sample(&self, level: u32, now: Instant) -> Sample {
        Sample { cost: self.cost, length: self.length(now), level, end: now.as_nanos() }
    }
}

/// The throughput at one level of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// The cost of the requests with good responses.
    pub(super) cost: u64,
    /// The time in which these came, in nanoseconds.
    pub(super) length: u64,
    pub(super) level: u32,
    /// The end of that time, in nanoseconds.
    pub(super) end: u64,
}

impl Sample {
    /// Returns by what share the throughput followed the limit from `earlier` to this one: 0 not at all,
    /// [`ONE`] in proportion. At most 4 either way. The levels differ.
    pub(super) fn elasticity(&self, earlier: &Self) -> Fixed {
        let here = product(self.cost, earlier.length);
        let there = product(earlier.cost, self.length);
        let levels = i128::from(self.level) + i128::from(earlier.level);
        let apart = i128::from(self.level) - i128::from(earlier.level);

        let gained =
            here.saturating_sub(there).saturating_mul(levels).saturating_mul(i128::from(ONE));
        let all = here.saturating_add(there).max(1).saturating_mul(apart);
        let ratio = gained.checked_div(all).unwrap_or(0);
        let most = i128::from(4 * ONE);
        Fixed::try_from(ratio.clamp(-most, most)).unwrap_or(0)
    }
}

fn product(one: u64, other: u64) -> i128 {
    i128::from(one).saturating_mul(i128::from(other))
}

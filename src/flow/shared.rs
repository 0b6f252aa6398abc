//! Limits that several gateways share through a store.
//!
//! Either the store decides about each request (`Stored`), or gateways sync: each decides by its
//! own states, periodically sends its charges to the store ([`Delta`]), and adopts the merged
//! states ([`RemoteState`]): `Gate::collect` and `Gate::adopt`.

use super::time::Instant;
use core::{fmt, str::FromStr, time::Duration};
use smallvec::SmallVec;

/// Integers below `2^53`, as the store's scripts take them.
pub type Numbers = SmallVec<[u64; 8]>;

/// The name of a state among gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StateName {
    /// The state of all, or of all without a key.
    All,
    /// The state of the client with this fingerprint.
    Key(u128),
    /// An overflow state.
    Overflow(u32),
}

/// The charges of a gateway to one state since its last sync, and what it has given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    /// The state's name.
    pub name: StateName,
    /// The total cost.
    pub cost: u64,
    /// The state of a client with just these charges, for the script.
    pub numbers: Numbers,
    /// The same with what was given back as charges; empty if nothing was.
    pub given: Numbers,
}

/// The merged state of all gateways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteState {
    /// The state's name.
    pub name: StateName,
    /// The state's numbers.
    pub numbers: Numbers,
}

/// Writes `-`, 32 hexadecimal digits, or `~` and a number.
impl fmt::Display for StateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("-"),
            Self::Key(key) => write!(f, "{key:032x}"),
            Self::Overflow(at) => write!(f, "~{at}"),
        }
    }
}

/// The text is no name of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no name of a state")]
pub struct NoName;

impl FromStr for StateName {
    type Err = NoName;

    fn from_str(text: &str) -> Result<Self, NoName> {
        if text == "-" {
            return Ok(Self::All);
        }
        let parsed = match text.strip_prefix('~') {
            Some(at) => at.parse().map(Self::Overflow),
            None => u128::from_str_radix(text, 16).map(Self::Key),
        };
        parsed.map_err(|_| NoName)
    }
}

/// The longest time for which the clock stands still, beside an answer's duration, if it is ahead.
/// Synchronised machines differ less.
const MOST_STILL: Duration = Duration::from_secs(1);

/// The times of a call to the store, which bound the difference of the clocks.
#[derive(Clone, Copy, Debug)]
pub struct RoundTrip {
    /// The time of the question, by our clock.
    pub asked: Instant,
    /// The time of the answer, by the store's clock.
    pub given: Instant,
    /// The time at which the answer came, by our clock.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written() {
        for name in
            [StateName::All, StateName::Key(7), StateName::Key(u128::MAX), StateName::Overflow(63)]
        {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
        assert_eq!("~x".parse::<StateName>(), Err(NoName));
        assert_eq!("no".parse::<StateName>(), Err(NoName));
    }
}

//! Limits that several gateways share through a store.
//!
//! Either the store decides about each request ([`Stored`]), or gateways sync: each decides by its
//! own states, periodically sends its charges to the store ([`Delta`]), and adopts the merged
//! states ([`RemoteState`]): `Gate::collect` and `Gate::adopt`.

mod clock;
mod stored;
pub(super) mod synced;

pub use clock::RoundTrip;
pub(super) use clock::StoreClock;
pub use stored::{Judgement, Stored, Terms, Unstorable};

use core::{fmt, str::FromStr};
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

/// What a gateway has charged to one state since its last sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    /// The state's name.
    pub name: StateName,
    /// The total cost.
    pub cost: u64,
    /// The state of a client with just these charges, for the script.
    pub numbers: Numbers,
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

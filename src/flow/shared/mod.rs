//! Limits that several gateways share through a store.
//!
//! Either the store decides about each request ([`Stored`]), or gateways sync: each decides by its
//! own states, sends the store its [`Delta`]s from time to time, which are what it has charged
//! since, and takes over the merged states ([`RemoteState`]): `Gate::collect` and `Gate::adopt`.

mod clock;
mod stored;
pub(super) mod synced;

pub use clock::RoundTrip;
pub(super) use clock::StoreClock;
pub use stored::{Judgement, Stored, Terms, Unstorable};

use core::{fmt, str::FromStr};
use smallvec::SmallVec;

/// Whole numbers below `2^53`, as a script of the store has them.
pub type Numbers = SmallVec<[u64; 8]>;

/// Whose state, by the name that it has among gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Whose {
    /// That of all, or of all without a key.
    All,
    /// That of the client with this fingerprint.
    Key(u128),
    /// That of clients for whom a gateway has no room.
    Overflow(u32),
}

/// What a gateway has charged to one state since it told the last time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delta {
    /// To whose.
    pub whose: Whose,
    /// What it comes to.
    pub cost: u64,
    /// The state of somebody who was charged just that: as the script takes it.
    pub numbers: Numbers,
}

/// What all gateways together have charged to one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteState {
    /// To whose.
    pub whose: Whose,
    /// The state, as a script tells it.
    pub numbers: Numbers,
}

/// Writes `-`, 32 hexadecimal digits, or `~` and a number.
impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("-"),
            Self::Key(key) => write!(f, "{key:032x}"),
            Self::Overflow(at) => write!(f, "~{at}"),
        }
    }
}

/// The text is none of those.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no name of a state")]
pub struct NoName;

impl FromStr for Whose {
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
        for whose in [Whose::All, Whose::Key(7), Whose::Key(u128::MAX), Whose::Overflow(63)] {
            assert_eq!(whose.to_string().parse(), Ok(whose));
        }
        assert_eq!("~x".parse::<Whose>(), Err(NoName));
        assert_eq!("no".parse::<Whose>(), Err(NoName));
    }
}

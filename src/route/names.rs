//! Numbers by name, for names that come from the configuration.

use core::hash::BuildHasherDefault;
use smallvec::SmallVec;
use std::collections::HashMap;

/// A name. Most are short enough to lie beside their numbers, which saves a search
/// among many routes one trip to memory each.
type Name = SmallVec<[u8; 24]>;

/// A map from names to numbers.
#[derive(Debug, Default)]
pub(super) enum Names {
    #[default]
    None,
    /// As most segments of a path have it.
    One(Name, usize),
    /// The hash needs no secret, as no request adds to the map.
    Many(HashMap<Name, usize, BuildHasherDefault<ahash::AHasher>>),
}

impl Names {
    /// Returns the number of `name`.
    pub(super) fn get(&self, name: &str) -> Option<usize> {
        match self {
            Self::None => None,
            Self::One(only, number) => (only.as_slice() == name.as_bytes()).then_some(*number),
            Self::Many(numbers) => numbers.get(name.as_bytes()).copied(),
        }
    }

    /// Returns the number of `name`, which is `new` if it had none.
    pub(super) fn number(&mut self, name: &str, new: usize) -> usize {
        let name = Name::from_slice(name.as_bytes());
        match self {
            Self::None => *self = Self::One(name, new),
            Self::One(only, number) if *only == name => return *number,
            Self::One(only, number) => {
                let both = [(core::mem::take(only), *number), (name, new)];
                *self = Self::Many(both.into_iter().collect());
            }
            Self::Many(numbers) => return *numbers.entry(name).or_insert(new),
        }
        new
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::None)
    }
}

//! A map from names of the configuration to numbers.

use core::hash::BuildHasherDefault;
use smallvec::SmallVec;
use std::collections::HashMap;

/// A name. Most are stored inline, which saves a memory access each.
type Name = SmallVec<[u8; 24]>;

#[derive(Debug, Default)]
pub(super) enum Names {
    #[default]
    None,
    /// Usual for path segments.
    One(Name, usize),
    /// The hash needs no secret: requests add nothing.
    Many(HashMap<Name, usize, BuildHasherDefault<ahash::AHasher>>),
}

impl Names {
    pub(super) fn get(&self, name: &str) -> Option<usize> {
        match self {
            Self::None => None,
            Self::One(only, number) => (only.as_slice() == name.as_bytes()).then_some(*number),
            Self::Many(numbers) => numbers.get(name.as_bytes()).copied(),
        }
    }

    /// Returns the number of `name`, or assigns `new`.
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

//! The tables: one entry a key, in the order in which the reference shows them.

mod breaker;
mod gateway;
mod route;
mod rule;
mod store;

pub(in crate::config) use gateway::*;
pub(in crate::config) use route::*;
pub(in crate::config) use rule::*;

use super::{
    Default::{self, Absent},
    Key, Kind,
};
use std::time::Duration;

const fn key(name: &'static str, kind: Kind, default: Default, doc: &'static str) -> Key {
    Key { name, kind, default, doc }
}

/// A word of the language that a later version will understand.
const fn later(name: &'static str, doc: &'static str) -> Key {
    key(name, Kind::Later, Absent, doc)
}

/// A word that other maps take, with what to write instead.
const fn foreign(name: &'static str, instead: &'static str) -> Key {
    key(name, Kind::Foreign, Absent, instead)
}

const fn integer(min: u64, max: u64) -> Kind {
    Kind::Integer { min, max }
}

const fn word(today: &'static [&'static str]) -> Kind {
    Kind::Word { today, later: &[] }
}

/// A wait that must end: at least a millisecond, at most a day.
const TIMEOUT: Kind =
    Kind::Duration { min: Duration::from_millis(1), max: Duration::from_hours(24) };

/// The algorithms that this version decides by.
pub(in crate::config) const ALGORITHMS: &[&str] = &[
    "token_bucket",
    "leaky_bucket",
    "sliding_log",
    "sliding_window",
    "sliding_counter",
    "fixed_window",
    "pacing",
];

//! A settlement, in the words of the script.

use crate::flow::{Difference, Instant, Stored, Terms};
use std::{fmt::Write as _, sync::Arc};

/// A charge in the store that the end of its request settles.
#[derive(Clone, Debug)]
pub struct StoreReserve {
    /// The state's key in the store.
    key: String,
    /// The rule by which it was charged.
    rule: Arc<Stored>,
    cost: u64,
    /// The time of the charge, by the store's clock.
    at: Instant,
}

/// A charge of one of the asks that the end of the request settles.
#[derive(Debug)]
pub struct ReservedAsk {
    /// The index of the ask.
    pub at: usize,
    /// The charge.
    pub reserve: StoreReserve,
}

/// The difference between a reserve and the cost, which the store is to settle.
#[derive(Clone, Debug)]
pub struct Settlement {
    key: String,
    rule: Arc<Stored>,
    difference: Difference,
    at: Instant,
}

/// A settlement with its number.
#[derive(Clone, Debug)]
pub struct Numbered {
    /// The number: another one for each settlement of a gateway.
    pub number: u64,
    /// The settlement.
    pub settlement: Arc<Settlement>,
}

/// The part of a call that its settlements share.
#[derive(Clone, Copy, Debug)]
pub(in crate::cluster) struct Places {
    /// The least number of the hash tag that may be sent again.
    pub(in crate::cluster) low: u64,
    /// The place, from 1, among the keys of the call, of the set of what was settled.
    pub(in crate::cluster) settled: usize,
    /// That of the state.
    pub(in crate::cluster) state: usize,
}

impl StoreReserve {
    /// Returns the record of a charge of `cost` to the state under `key`, made at `at` by the store's
    /// clock.
    pub const fn new(key: String, rule: Arc<Stored>, cost: u64, at: Instant) -> Self {
        Self { key, rule, cost, at }
    }

    /// Returns the cost that was charged.
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// Returns what is to be settled if the request has this cost; `None` if nothing is.
    pub fn settlement(self, cost: u64) -> Option<Settlement> {
        let Self { key, rule, cost: reserved, at } = self;
        let difference = Difference::between(reserved, cost)?;
        Some(Settlement { key, rule, difference, at })
    }
}

impl Settlement {
    /// Returns the key of the state.
    pub(in crate::cluster) fn key(&self) -> &str {
        &self.key
    }
}

impl Numbered {
    /// Returns it in the words of the script. Only calendars look at `now`.
    pub(in crate::cluster) fn line(&self, places: Places, now: Instant) -> String {
        let Settlement { rule, difference, at, .. } = &*self.settlement;
        let (word, Terms { word: algorithm, cost, numbers }) = match *difference {
            Difference::More(cost) => ("more", rule.terms_of_excess(cost, now)),
            Difference::Less(cost) => ("less", rule.terms_to_give_back(cost, *at)),
        };
        let Places { low, settled, state } = places;
        let micros = at.as_nanos() / 1000;
        let nanos = at.as_nanos() % 1000;
        let mut line = format!(
            "settle {} {low} {settled} {state} {micros} {nanos} {word} {algorithm} {cost}",
            self.number
        );
        for number in numbers {
            // Writing to a string does not fail.
            _ = write!(line, " {number}");
        }
        line
    }
}

/// Returns the key of the set of numbers that `gateway` has settled in states with this hash tag.
pub(in crate::cluster) fn settled_key(prefix: &str, tag: &str, gateway: &str) -> String {
    format!("{prefix}{{{tag}}}:settled:{gateway}")
}

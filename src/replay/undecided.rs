//! Arrivals in the order of the input, until the result of each is known by all configurations.

use super::{
    engine::ArrivalResult,
    event::{Arrival, Id},
};
use std::collections::{HashMap, VecDeque};

/// The results of an arrival by the configuration, and by the one to compare with.
pub(super) type Results = [Option<ArrivalResult>; 2];

/// Arrivals that wait for their results, or for those of an earlier one.
#[derive(Debug, Default)]
pub(super) struct UndecidedArrivals {
    /// In order.
    arrivals: VecDeque<UndecidedArrival>,
    /// The number of the first of them.
    first: u64,
    /// The numbers of those without a result.
    numbers: HashMap<Id, u64>,
}

/// An arrival with the results that are known.
#[derive(Debug)]
pub(super) struct UndecidedArrival {
    /// Its number in the input.
    pub(super) number: u64,
    pub(super) arrival: Arrival,
    pub(super) results: Results,
}

impl UndecidedArrivals {
    /// Adds an arrival.
    pub(super) fn push(&mut self, added: UndecidedArrival, is_compared: bool) {
        if !added.is_decided(is_compared) {
            let number = self.first + self.arrivals.len() as u64;
            self.numbers.insert(added.arrival.id, number);
        }
        self.arrivals.push_back(added);
    }

    /// Notes the result of an arrival by one of the configurations.
    pub(super) fn note(&mut self, id: Id, of: usize, result: ArrivalResult) {
        let Some(number) = self.numbers.get(&id) else { return };
        let place = usize::try_from(number - self.first).unwrap_or(usize::MAX);
        let arrival = self.arrivals.get_mut(place);
        if let Some(known) = arrival.and_then(|arrival| arrival.results.get_mut(of)) {
            *known = Some(result);
        }
    }

    /// Takes the first arrival, if all its results are known.
    pub(super) fn pop(&mut self, is_compared: bool) -> Option<UndecidedArrival> {
        let first = self.arrivals.pop_front_if(|first| first.is_decided(is_compared))?;
        self.numbers.remove(&first.arrival.id);
        self.first += 1;
        Some(first)
    }
}

impl UndecidedArrival {
    const fn is_decided(&self, is_compared: bool) -> bool {
        let [here, there] = &self.results;
        here.is_some() && (there.is_some() || !is_compared)
    }
}

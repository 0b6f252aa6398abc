//! Arrivals that wait in a queue: what becomes of one is known only when others have ended.

use super::{
    engine::ArrivalResult,
    event::{Arrival, Ending, Id},
};
use crate::{
    config::{Claims, Snapshot},
    flow::{Instant, Permit},
};
use core::task::Waker;
use std::{
    collections::{BTreeMap, BTreeSet},
    mem::take,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Wake,
};

/// The arrivals that wait, and those whose wait has ended.
#[derive(Debug, Default)]
pub(super) struct Waits {
    waiting: BTreeMap<u64, WaitingArrival>,
    /// The times at which the waits end, unless a place is free before.
    ends: BTreeSet<(Instant, u64)>,
    woken: Arc<Woken>,
    ended: Vec<EndedWait>,
}

/// An arrival that waits.
#[derive(Debug)]
pub(super) struct WaitingArrival {
    pub(super) arrival: Box<Arrival>,
    pub(super) permit: Permit,
    pub(super) claims: Claims,
    /// Its route's index in the snapshot.
    pub(super) route: usize,
    pub(super) snapshot: Arc<Snapshot>,
    /// The end of its wait, once it is in `ends`.
    end: Option<Instant>,
}

/// An arrival whose wait has ended.
#[derive(Debug)]
pub struct EndedWait {
    /// The arrival.
    pub arrival: Box<Arrival>,
    /// The decision in the end.
    pub result: ArrivalResult,
    /// The configuration that decided.
    pub snapshot: Arc<Snapshot>,
}

/// The numbers of arrivals whose permit has woken them.
#[derive(Debug, Default)]
struct Woken(Mutex<Vec<u64>>);

/// Wakes one arrival.
struct Alarm {
    number: u64,
    woken: Arc<Woken>,
}

impl Woken {
    fn lock(&self) -> MutexGuard<'_, Vec<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.woken.lock().push(self.number);
    }
}

impl WaitingArrival {
    pub(super) fn new(
        arrival: &Arrival,
        permit: Permit,
        claims: Claims,
        route: usize,
        snapshot: &Arc<Snapshot>,
    ) -> Self {
        let arrival = Box::new(arrival.clone());
        Self { arrival, permit, claims, route, snapshot: Arc::clone(snapshot), end: None }
    }

    /// Returns when its client leaves, if it does.
    pub(super) fn leaves_at(&self) -> Option<Instant> {
        match self.arrival.ending {
            Ending::Cancelled(after) => Some(self.arrival.at + after),
            Ending::Responded(_) | Ending::Failed => None,
        }
    }
}

impl Waits {
    /// Returns the waker of the arrival of this number.
    pub(super) fn waker(&self, number: u64) -> Waker {
        Waker::from(Arc::new(Alarm { number, woken: Arc::clone(&self.woken) }))
    }

    /// Keeps an arrival whose permit waits.
    pub(super) fn insert(&mut self, number: u64, mut waiting: WaitingArrival) {
        let until = waiting.permit.waits_until().unwrap_or(Instant::FAR_FUTURE);
        let end = waiting.leaves_at().map_or(until, |leaves| leaves.min(until));
        waiting.end = Some(end);
        self.ends.insert((end, number));
        self.waiting.insert(number, waiting);
    }

    /// Takes the arrival of this number, to look after it.
    pub(super) fn take(&mut self, number: u64) -> Option<WaitingArrival> {
        let waiting = self.waiting.remove(&number)?;
        if let Some(end) = waiting.end {
            self.ends.remove(&(end, number));
        }
        Some(waiting)
    }

    /// Returns the number of the arrival with this id, if it waits.
    pub(super) fn find(&self, id: Id) -> Option<u64> {
        let mut waiting = self.waiting.iter();
        waiting.find(|(_, waiting)| waiting.arrival.id == id).map(|(number, _)| *number)
    }

    /// Returns the first end of a wait, with the number of its arrival.
    pub(super) fn first_end(&self) -> Option<(Instant, u64)> {
        self.ends.first().copied()
    }

    /// Returns the numbers of those that were woken, in the order in which they are to start.
    pub(super) fn take_woken(&self) -> Vec<u64> {
        // Most arrivals wait for nothing.
        if self.waiting.is_empty() { Vec::new() } else { take(&mut *self.woken.lock()) }
    }

    /// Notes the end of a wait.
    pub(super) fn end(&mut self, ended: EndedWait) {
        self.ended.push(ended);
    }

    /// Takes those whose wait has ended.
    pub(super) fn take_ended(&mut self) -> Vec<EndedWait> {
        take(&mut self.ended)
    }
}

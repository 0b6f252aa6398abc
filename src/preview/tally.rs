//! The counts of a worker for a preview.

use super::treatment::{Treatment, TreatmentChange};
use crate::flow::{Instant, SlotId, Top};
use ahash::AHashMap;
use core::{net::IpAddr, time::Duration};
use http::Method;

/// The most kinds of change that are kept apart.
const MOST_KINDS: usize = 65_536;

/// Examples of each kind of change.
const MOST_EXAMPLES: usize = 3;

/// The most bytes of a path that an example shows.
const MOST_PATH: usize = 80;

/// Clients of a worker between two readings, and of all workers in all.
const MOST_CLIENTS: usize = 256;

/// Counts of requests.
#[derive(Debug)]
pub(super) struct Tally {
    /// By [`TreatmentChange`], `Same` last.
    pub(super) changes: ChangeCounts,
    /// Requests that the new file did not decide about, as a password would have to be checked.
    pub(super) unchecked: u64,
    /// Requests whose kind had no room.
    pub(super) other_kinds: u64,
    pub(super) kinds: AHashMap<Kind, KindCount>,
    /// Requests of one kind after the other that are not in `kinds` yet: most are alike.
    run: Option<(Kind, u64)>,
    pub(super) clients: Top<Client, ClientCount>,
}

/// Counts by [`TreatmentChange`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ChangeCounts([u64; TreatmentChange::ALL.len() + 1]);

/// The treatment of requests by both files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    pub(super) here: Side,
    pub(super) there: Side,
    pub(super) change: TreatmentChange,
}

/// The treatment of requests by one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Side {
    /// The route's index in its snapshot.
    pub(super) route: Option<u32>,
    pub(super) treatment: Treatment,
}

#[derive(Debug, Default)]
pub(super) struct KindCount {
    pub(super) count: u64,
    /// Of requests that the new file delays.
    pub(super) wait_sum: Duration,
    pub(super) wait_max: Duration,
    pub(super) examples: Vec<Example>,
}

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Example {
    pub(super) at: Instant,
    pub(super) method: Method,
    pub(super) path: Box<str>,
    pub(super) client: IpAddr,
}

/// The client that a rule counts by itself, or a client's address where no rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Client {
    /// The route of the new file.
    pub(super) route: Option<u32>,
    /// The rule of that route.
    pub(super) rule: Option<SlotId>,
    /// The fingerprint of its key, or the bits of the address.
    pub(super) key: u128,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ClientCount {
    pub(super) changes: ChangeCounts,
    /// Of its last request.
    pub(super) address: Option<IpAddr>,
    /// Its key in words, if keys may be shown.
    pub(super) name: Option<Box<str>>,
}

/// One request.
pub(super) struct Compared<'a> {
    pub(super) kind: Kind,
    pub(super) wait: Duration,
    pub(super) client: Client,
    pub(super) address: IpAddr,
    pub(super) name: Option<Box<str>>,
    pub(super) at: Instant,
    pub(super) method: &'a Method,
    pub(super) path: &'a str,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            changes: ChangeCounts::default(),
            unchecked: 0,
            other_kinds: 0,
            kinds: AHashMap::new(),
            run: None,
            clients: Top::new(MOST_CLIENTS),
        }
    }
}

impl ChangeCounts {
    pub(super) const fn of(&self, change: TreatmentChange) -> u64 {
        self.0[change as usize]
    }

    pub(super) const fn add(&mut self, change: TreatmentChange, count: u64) {
        self.0[change as usize] += count;
    }

    pub(super) fn join(&mut self, other: Self) {
        for (mine, others) in self.0.iter_mut().zip(other.0) {
            *mine += others;
        }
    }

    pub(super) fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl Tally {
    /// Counts a request that both files treat alike, and that neither delays.
    #[inline]
    pub(super) fn note_same(&mut self, kind: Kind) {
        self.changes.add(TreatmentChange::Same, 1);
        match &mut self.run {
            Some((latest, count)) if *latest == kind => *count += 1,
            _ => {
                self.end_run();
                self.run = Some((kind, 1));
            }
        }
    }

    /// Counts any other request.
    pub(super) fn note_change(&mut self, compared: Compared<'_>) {
        let Compared { kind, wait, client, address, name, at, method, path } = compared;
        let change = kind.change;
        self.changes.add(change, 1);
        if let Some(count) = self.kind(kind, 1) {
            count.wait_sum += wait;
            count.wait_max = count.wait_max.max(wait);
            if change != TreatmentChange::Same && count.examples.len() < MOST_EXAMPLES {
                let path = shortened(path).into();
                count.examples.push(Example { at, method: method.clone(), path, client: address });
            }
        }
        if change != TreatmentChange::Same {
            let count = self.clients.add(client, 1, ClientCount::default);
            count.changes.add(change, 1);
            count.address = Some(address);
            count.name = name.or_else(|| count.name.take());
        }
    }

    /// Moves requests that are alike to the others of their kind.
    fn end_run(&mut self) {
        if let Some((kind, count)) = self.run.take() {
            self.kind(kind, count);
        }
    }

    /// Counts requests, and returns the count of their kind if there is room for it.
    fn kind(&mut self, kind: Kind, requests: u64) -> Option<&mut KindCount> {
        if self.kinds.len() >= MOST_KINDS && !self.kinds.contains_key(&kind) {
            self.other_kinds += requests;
            return None;
        }
        let count = self.kinds.entry(kind).or_default();
        count.count += requests;
        Some(count)
    }

    /// Adds what another one has counted since.
    pub(super) fn merge(&mut self, mut other: Self) {
        other.end_run();
        self.changes.join(other.changes);
        self.unchecked += other.unchecked;
        self.other_kinds += other.other_kinds;
        for (kind, count) in other.kinds {
            let Some(mine) = self.kind(kind, count.count) else { continue };
            mine.wait_sum += count.wait_sum;
            mine.wait_max = mine.wait_max.max(count.wait_max);
            let room = MOST_EXAMPLES - mine.examples.len();
            mine.examples.extend(count.examples.into_iter().take(room));
        }
        self.clients.merge(other.clients, |mine, theirs| {
            mine.changes.join(theirs.changes);
            mine.address = theirs.address;
            mine.name = theirs.name.or_else(|| mine.name.take());
        });
    }
}

/// Returns the beginning of a path.
fn shortened(path: &str) -> &str {
    path.get(..path.floor_char_boundary(MOST_PATH)).unwrap_or(path)
}

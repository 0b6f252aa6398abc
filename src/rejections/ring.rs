//! A worker's last rejections.

use crate::{
    access_log::DecisionRecord,
    config::Route,
    flow::{Instant, Key, Rejection},
};
use core::{
    net::IpAddr,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};
use std::sync::{Arc, Mutex, PoisonError};

/// The number of rejections that are kept for each worker, and shown of all.
pub const KEPT: usize = 1000;

/// The last rejections of a process.
#[derive(Debug, Default)]
pub struct Rejections {
    rings: Mutex<Vec<Arc<Ring>>>,
}

/// The recorder of a worker's rejections.
#[derive(Debug)]
pub struct Recorder(Arc<Ring>);

#[derive(Debug, Default)]
struct Ring {
    records: Mutex<Records>,
    /// Those that came while the ring was read.
    missed: AtomicU64,
}

#[derive(Debug, Default)]
struct Records {
    /// In a circle: `next` is the oldest once there are [`KEPT`].
    list: Vec<RejectionRecord>,
    next: usize,
    total: u64,
}

/// One rejection. It holds names only, so that no configuration lives on for it.
#[derive(Clone, Debug)]
pub(super) struct RejectionRecord {
    /// By the wall clock.
    pub(super) at: Instant,
    pub(super) route: Arc<str>,
    /// `None`: the word of `part`.
    pub(super) rule: Option<Arc<str>>,
    pub(super) part: &'static str,
    pub(super) key: Option<Key>,
    pub(super) client: Option<IpAddr>,
    pub(super) decided: DecisionRecord,
}

impl Rejections {
    /// Returns what one more worker records with.
    pub fn recorder(&self) -> Recorder {
        let ring = Arc::<Ring>::default();
        self.rings.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&ring));
        Recorder(ring)
    }

    /// Returns a copy of all records in any order, how many rejections there were, and how many of
    /// them were missed.
    pub(super) fn read(&self) -> (Vec<RejectionRecord>, u64, u64) {
        let rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut all = Vec::new();
        let mut total = 0;
        let mut missed = 0;
        for ring in rings {
            let records = ring.records.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend_from_slice(&records.list);
            total += records.total;
            drop(records);
            missed += ring.missed.load(Relaxed);
        }
        (all, total + missed, missed)
    }
}

impl Recorder {
    /// Records that `route` has rejected a request of `client`, if that is known, at `at` by the
    /// wall clock.
    pub fn record(
        &self,
        route: &Route,
        rejection: &Rejection,
        client: Option<IpAddr>,
        at: Instant,
    ) {
        let rule = route.rules.iter().find(|rule| rule.slot == rejection.slot);
        let is_breaker = route.breaker == Some(rejection.slot);
        let record = RejectionRecord {
            at,
            route: Arc::clone(&route.name),
            rule: rule.map(|rule| Arc::clone(&rule.name)),
            part: if is_breaker { "breaker" } else { "pacing" },
            key: rejection.key,
            client,
            decided: DecisionRecord::rejected(rejection),
        };
        self.push(record);
    }

    pub(super) fn push(&self, record: RejectionRecord) {
        match self.0.records.try_lock() {
            Ok(mut records) => records.push(record),
            Err(_) => {
                self.0.missed.fetch_add(1, Relaxed);
            }
        }
    }
}

impl Records {
    fn push(&mut self, record: RejectionRecord) {
        self.total += 1;
        if self.list.len() < KEPT {
            if self.list.capacity() == 0 {
                // Once, so that later rejections allocate nothing.
                self.list.reserve_exact(KEPT);
            }
            self.list.push(record);
            return;
        }
        self.list[self.next] = record;
        self.next = (self.next + 1) % KEPT;
    }
}

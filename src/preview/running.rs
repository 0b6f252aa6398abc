//! A preview: two files, and what was counted of them.

use super::{
    alike::{AlikeRoute, alike_routes},
    tally::Tally,
};
use crate::{
    config::{Route, Snapshot},
    flow::Instant,
    route::Seed,
};
use ahash::AHashMap;
use core::{sync::atomic::AtomicU64, time::Duration};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The parts that a preview begins with.
#[derive(Debug)]
pub struct Start {
    /// The file in force.
    pub base: Arc<Snapshot>,
    /// The new file, in a snapshot of its own.
    pub snapshot: Snapshot,
    /// Its text.
    pub text: Vec<u8>,
    /// Stands for what the file in force had on the disk.
    pub on_disk: u64,
    /// The most memory that its rules take, in bytes.
    pub memory: u64,
    /// The secret of the fingerprints of keys.
    pub seed: Seed,
    /// True if keys are shown in words.
    pub shows_keys: bool,
    /// The longest time that it goes on.
    pub most: Option<Duration>,
    /// The threads that serve requests.
    pub workers: usize,
}

/// A new file, and what it would do.
#[derive(Debug)]
pub struct Preview {
    pub(super) id: u64,
    pub(super) base: Arc<Snapshot>,
    pub(super) snapshot: Snapshot,
    text: Vec<u8>,
    on_disk: u64,
    pub(super) memory: u64,
    pub(super) seed: Seed,
    pub(super) shows_keys: bool,
    pub(super) started: Instant,
    /// The time when it ends at the latest.
    pub(super) until: Option<Instant>,
    /// The time when its report was read last, in nanoseconds.
    pub(super) read_at: AtomicU64,
    /// The indexes of the routes in force, by their addresses.
    indexes: AHashMap<usize, u32>,
    /// True if both files find the route with the same index for each request with a plain path.
    routes_alike: bool,
    /// By the indexes of the routes in force. Empty if no route needs less work than others.
    alike: Vec<Option<AlikeRoute>>,
    /// For each route of the new file the route in force with the same name.
    twins: Vec<Option<Twin>>,
    pub(super) tallies: Box<[Mutex<Tally>]>,
    pub(super) total: Mutex<Tally>,
}

/// A route in force with the same name as one of the new file.
#[derive(Clone, Copy, Debug)]
struct Twin {
    index: u32,
    /// True if both send requests to an upstream, or answer alike.
    answers_alike: bool,
    has_same_auth: bool,
}

impl Preview {
    pub(super) fn new(start: Start, id: u64, now: Instant) -> Self {
        let Start { base, snapshot, text, on_disk, memory, seed, shows_keys, most, workers } =
            start;
        let index = |(index, route): (usize, &Arc<Route>)| {
            Some((Arc::as_ptr(route).addr(), u32::try_from(index).ok()?))
        };
        let indexes = base.routes.iter().enumerate().filter_map(index).collect();
        let names: AHashMap<&str, usize> =
            base.routes.iter().enumerate().map(|(index, route)| (&*route.name, index)).collect();
        let twin = |route: &Arc<Route>| {
            let index = *names.get(&*route.name)?;
            let known = &base.routes[index];
            Some(Twin {
                index: u32::try_from(index).ok()?,
                answers_alike: known.action.own_words() == route.action.own_words(),
                has_same_auth: known.options.auth == route.options.auth,
            })
        };
        let twins = snapshot.routes.iter().map(twin).collect();
        let searched = |snapshot: &Snapshot| -> Vec<(bool, bool)> {
            let options = snapshot.routes.iter().map(|route| &route.options);
            options.map(|options| (options.relaxed_path, options.cors.is_some())).collect()
        };
        // With as many routes, both or none have one for the requests that no other one matches.
        let geo_alike = base.settings.geo == snapshot.settings.geo;
        let routes_alike = base.table.is_same(&snapshot.table)
            && (geo_alike || !snapshot.table.looks_at_places())
            && base.routes.len() == snapshot.routes.len()
            && searched(&base) == searched(&snapshot);
        let alike = || alike_routes(&base, &snapshot, shows_keys);
        let alike = if routes_alike { alike() } else { Vec::new() };

        Self {
            id,
            snapshot,
            text,
            on_disk,
            memory,
            seed,
            shows_keys,
            started: now,
            until: most.map(|most| now + most),
            read_at: AtomicU64::new(now.as_nanos()),
            indexes,
            routes_alike,
            alike,
            twins,
            tallies: (0..workers.max(1)).map(|_| Mutex::default()).collect(),
            total: Mutex::default(),
            base,
        }
    }

    /// Returns the new file.
    pub const fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Returns the file in force.
    pub const fn base(&self) -> &Arc<Snapshot> {
        &self.base
    }

    /// Returns the text of the new file.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Returns what stands for the file in force as it was on the disk when the preview began.
    pub const fn on_disk(&self) -> u64 {
        self.on_disk
    }

    /// Returns whether a route in force has the name of the new file's route with this index, and
    /// answers alike.
    pub(super) fn is_same(&self, here: Option<u32>, there: Option<u32>) -> bool {
        let twin = there.and_then(|there| self.twin(there)).filter(|twin| twin.answers_alike);
        twin.is_some_and(|twin| Some(twin.index) == here)
    }

    /// Returns whether a route in force asks its clients for the same as the new file's route with
    /// this index, of the same name.
    pub(super) fn has_same_auth(&self, here: Option<u32>, there: usize) -> bool {
        let twin = u32::try_from(there).ok().and_then(|there| self.twin(there));
        twin.is_some_and(|twin| twin.has_same_auth && here == Some(twin.index))
    }

    /// Returns the index of the new file's route for a request whose route in force is `here`, if
    /// that needs no search.
    pub(super) fn index_without_search(&self, here: Option<u32>, path: &str) -> Option<usize> {
        // Rules have a part in what becomes of encoded slashes and of parameters. Counting without
        // an early exit becomes vector instructions.
        let odd = path.bytes().filter(|byte| matches!(byte, b'%' | b';')).count();
        let is_known = self.routes_alike && odd == 0;
        usize::try_from(here.filter(|_| is_known)?).ok()
    }

    /// Returns the route of the new file with this index, if it needs no more of a request than the
    /// route in force with this index.
    pub(super) fn alike_route(&self, index: usize) -> Option<&AlikeRoute> {
        self.alike.get(index)?.as_ref()
    }

    fn twin(&self, there: u32) -> Option<Twin> {
        self.twins.get(there as usize).copied().flatten()
    }

    /// Returns the index of a route in force.
    pub(super) fn index_of(&self, route: &Arc<Route>) -> Option<u32> {
        self.indexes.get(&Arc::as_ptr(route).addr()).copied()
    }

    pub(super) fn tally(&self, worker: usize) -> MutexGuard<'_, Tally> {
        let tally = &self.tallies[worker % self.tallies.len()];
        tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

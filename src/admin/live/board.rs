//! The samples of all routes and servers, under the configuration in force.

use super::{
    history::{History, Sample},
    route::{RouteTrack, micros, narrow},
    server::ServerTrack,
};
use crate::{
    config::{Route, Snapshot},
    flow::{Instant, ReasonKind},
    meter::Durations,
};
use std::{collections::HashMap, sync::Arc};

/// How many routes have a history at once, of 9.4 KiB each; the others show their latest second.
const MOST_HISTORIES: usize = 4000;

/// How many routes are sampled before other tasks of the thread get their turn.
pub(super) const STEP: usize = 256;

/// What was sampled.
#[derive(Debug, Default)]
pub(super) struct Board {
    snapshot: Option<Arc<Snapshot>>,
    /// In the order of the snapshot's routes.
    tracks: Vec<RouteTrack>,
    /// By the servers' ids.
    servers: HashMap<usize, ServerTrack>,
    pub all: History,
    /// Rejections of all routes in the latest second, by reason.
    pub reasons: [u64; ReasonKind::ALL.len()],
    /// When the latest sample was taken, by the wall clock.
    pub at: Option<Instant>,
    /// How many routes have a history.
    histories: usize,
    under_way: Sum,
    is_sampling: bool,
}

/// The sums of the sample being taken.
#[derive(Debug, Default)]
struct Sum {
    sample: Sample,
    durations: Durations,
    histories: usize,
}

impl Board {
    /// Begins a sample. Returns how many routes are to be sampled.
    pub(super) fn begin(&mut self, snapshot: Arc<Snapshot>, now: Instant) -> usize {
        let is_known =
            self.snapshot.as_ref().is_some_and(|known| known.version == snapshot.version);
        if !is_known {
            self.follow(snapshot, now);
        }
        self.under_way = Sum::default();
        self.is_sampling = true;
        self.tracks.len()
    }

    /// Takes the routes of another snapshot between two samples.
    pub(super) fn catch_up(&mut self, snapshot: Arc<Snapshot>, now: Instant) {
        let is_other =
            self.snapshot.as_ref().is_some_and(|known| known.version != snapshot.version);
        if is_other && !self.is_sampling {
            self.follow(snapshot, now);
        }
    }

    /// Takes the routes of another snapshot.
    fn follow(&mut self, snapshot: Arc<Snapshot>, now: Instant) {
        let old = self.snapshot.as_ref().map_or(&[][..], |old| &old.routes[..]);
        let tracks = core::mem::take(&mut self.tracks);
        let names = old.iter().map(|route| Arc::clone(&route.name));
        let mut known: HashMap<Arc<str>, RouteTrack> = names.zip(tracks).collect();
        let track = |route: &Arc<Route>| {
            known.remove(&route.name).unwrap_or_else(|| RouteTrack::new(route, now))
        };
        self.tracks = snapshot.routes.iter().map(track).collect();
        self.snapshot = Some(snapshot);
    }

    /// Samples some routes.
    pub(super) fn sample(&mut self, from: usize, now: Instant) {
        let Some(snapshot) = &self.snapshot else { return };
        let routes = snapshot.routes.iter().zip(&mut self.tracks).skip(from).take(STEP);
        let sum = &mut self.under_way;
        for (route, track) in routes {
            let has_room = self.histories < MOST_HISTORIES;
            let had = track.history.is_some();
            let durations = track.sample(route, now, has_room);
            if !had && track.history.is_some() {
                self.histories += 1;
            }
            sum.add(&track.latest, &durations);
            sum.histories += usize::from(track.history.is_some());
        }
    }

    /// Ends a sample.
    pub(super) fn end(&mut self, wall: Instant) {
        let Some(snapshot) = &self.snapshot else { return };
        let Sum { mut sample, durations, histories } = core::mem::take(&mut self.under_way);
        sample.p50 = micros(&durations, 0.5);
        sample.p99 = micros(&durations, 0.99);
        self.all.push(sample);
        self.is_sampling = false;
        self.histories = histories;
        self.at = Some(wall);
        self.reasons = [0; ReasonKind::ALL.len()];
        let reasons = self.tracks.iter().flat_map(|track| &track.rules);
        for (kind, window) in reasons.flat_map(|rule| &rule.reasons) {
            self.reasons[*kind as usize] += u64::from(window.latest());
        }
        let upstreams = snapshot.upstreams.iter();
        let mut servers = core::mem::take(&mut self.servers);
        self.servers = upstreams
            .flat_map(|upstream| upstream.servers())
            .map(|server| {
                let mut track = servers.remove(&server.id).unwrap_or_default();
                track.sample(&server.meter);
                (server.id, track)
            })
            .collect();
    }

    /// Returns the snapshot that was sampled with the tracks of its routes, in its order.
    pub(super) fn routes(&self) -> Option<(&Arc<Snapshot>, &[RouteTrack])> {
        self.snapshot.as_ref().map(|snapshot| (snapshot, &self.tracks[..]))
    }

    pub(super) fn server(&self, id: usize) -> ServerTrack {
        self.servers.get(&id).copied().unwrap_or_default()
    }

    pub(super) fn latest(&self) -> Sample {
        self.all.latest(1).next().copied().unwrap_or_default()
    }
}

impl Sum {
    fn add(&mut self, other: &Sample, durations: &Durations) {
        let sample = &mut self.sample;
        for (sum, more) in [
            (&mut sample.passed, other.passed),
            (&mut sample.delayed, other.delayed),
            (&mut sample.rejected, other.rejected),
            (&mut sample.failed, other.failed),
            (&mut sample.in_flight, other.in_flight),
            (&mut sample.waiting, other.waiting),
        ] {
            *sum = narrow(u64::from(*sum) + u64::from(more));
        }
        self.durations.add(durations);
    }
}

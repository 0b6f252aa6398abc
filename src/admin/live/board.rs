//! The samples of all routes and servers, under the configuration in force, one a second.

use super::route::{History, RouteTrack, RuleTracks, Second, Window, micros, narrow};
use crate::{
    clock::Clock,
    config::{Live, Route, RuleGroup, Snapshot},
    flow::{Instant, ReasonKind},
    meter::{Durations, ServerMeter},
};
use core::{sync::atomic::Ordering::Relaxed, time::Duration};
use std::{
    collections::HashMap,
    ptr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::watch;

/// The number of routes that have a history at once, of 9.4 KiB each; the others show their latest second.
const MOST_HISTORIES: usize = 4000;

/// The number of routes that are sampled before other tasks of the thread get their turn.
pub(super) const STEP: usize = 256;

/// The samples.
#[derive(Debug, Default)]
pub(crate) struct Board {
    snapshot: Option<Arc<Snapshot>>,
    /// In the order of the snapshot's routes.
    tracks: Vec<RouteTrack>,
    /// In the order of the rules that routes share.
    budgets: Vec<RuleTracks>,
    /// By the servers' ids.
    servers: HashMap<usize, ServerTrack>,
    pub(super) all: History,
    /// Rejections of all routes in the latest second, by reason.
    pub(super) reasons: [u64; ReasonKind::ALL.len()],
    /// The time when the latest sample was taken, by the wall clock.
    pub(super) at: Option<Instant>,
    /// The number of routes that have a history.
    histories: usize,
    under_way: Sum,
    is_sampling: bool,
}

/// The sums of the sample being taken.
#[derive(Debug, Default)]
struct Sum {
    sample: Second,
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
    pub(crate) fn catch_up(&mut self, snapshot: Arc<Snapshot>, now: Instant) {
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
        self.budgets = self.follow_budgets(&snapshot, now);
        self.snapshot = Some(snapshot);
    }

    /// Returns the tracks of the rules that routes share in another snapshot.
    fn follow_budgets(&mut self, snapshot: &Snapshot, now: Instant) -> Vec<RuleTracks> {
        let old = self.snapshot.as_ref().map_or(&[][..], |old| &old.groups[..]);
        let tracks = core::mem::take(&mut self.budgets);
        let owners = old.iter().map(|group| &group.owner);
        let mut known: HashMap<_, _> = owners.zip(tracks).collect();

        let track = |group: &Arc<RuleGroup>| {
            let known = known.remove(&group.owner);
            known.unwrap_or_else(|| RuleTracks::new(&group.gate.observe(now).rules))
        };
        snapshot.groups.iter().map(track).collect()
    }

    /// Samples the rules that routes share.
    fn sample_budgets(&mut self, now: Instant) {
        let Some(snapshot) = &self.snapshot else { return };
        for (group, tracks) in snapshot.groups.iter().zip(&mut self.budgets) {
            tracks.follow(&group.gate.observe(now).rules);
        }
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
    pub(super) fn end(&mut self, now: Instant, wall: Instant) {
        self.sample_budgets(now);
        let Some(snapshot) = &self.snapshot else { return };
        let Sum { mut sample, durations, histories } = core::mem::take(&mut self.under_way);
        sample.p50 = micros(&durations, 0.5);
        sample.p99 = micros(&durations, 0.99);
        self.all.push(sample);
        self.is_sampling = false;
        self.histories = histories;
        self.at = Some(wall);
        self.reasons = [0; ReasonKind::ALL.len()];
        let own = self.tracks.iter().map(|track| &track.rules);
        let reasons = own.chain(&self.budgets).flat_map(RuleTracks::iter);
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
    pub(crate) fn routes(&self) -> Option<(&Arc<Snapshot>, &[RouteTrack])> {
        self.snapshot.as_ref().map(|snapshot| (snapshot, &self.tracks[..]))
    }

    /// Returns the rules that routes share in the snapshot that was sampled, with their tracks.
    pub(super) fn budgets(&self) -> impl Iterator<Item = (&Arc<RuleGroup>, &RuleTracks)> {
        let groups = self.snapshot.iter().flat_map(|snapshot| &snapshot.groups);
        groups.zip(&self.budgets)
    }

    /// Returns the routes whose requests meet a rule that routes share.
    pub(super) fn meeting(&self, group: &RuleGroup) -> impl Iterator<Item = &Arc<Route>> + Clone {
        let routes = self.snapshot.iter().flat_map(|snapshot| &snapshot.routes);
        routes.filter(move |route| route.groups.iter().any(|met| ptr::eq(&raw const **met, group)))
    }

    pub(super) fn server(&self, id: usize) -> ServerTrack {
        self.servers.get(&id).copied().unwrap_or_default()
    }

    pub(super) fn latest(&self) -> Second {
        self.all.latest(1).next().copied().unwrap_or_default()
    }
}

impl Sum {
    fn add(&mut self, other: &Second, durations: &Durations) {
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

const SECOND: Duration = Duration::from_secs(1);

/// Takes samples, and wakes clients when there is another one.
#[derive(Debug)]
pub(crate) struct Sampler {
    board: Mutex<Board>,
    /// The number of samples.
    taken: watch::Sender<u64>,
}

impl Default for Sampler {
    fn default() -> Self {
        Self { board: Mutex::default(), taken: watch::Sender::new(0) }
    }
}

impl Sampler {
    /// Samples the configuration in force once a second, for ever, and calls `each` after it.
    pub(crate) async fn run(&self, live: &Live, clock: &Clock, each: impl Fn()) {
        self.sample(live, clock).await;
        let mut next = clock.now() + SECOND;
        loop {
            clock.sleep_until(next).await;
            self.sample(live, clock).await;
            each();
            // After a suspended machine the next one is a second away.
            next = (next + SECOND).max(clock.now());
        }
    }

    /// Takes a sample.
    pub(crate) async fn sample(&self, live: &Live, clock: &Clock) {
        let now = clock.now();
        let count = self.board().begin(live.load_full(), now);
        for from in (0..count).step_by(STEP) {
            self.board().sample(from, now);
            tokio::task::yield_now().await;
        }
        self.board().end(now, clock.wall(now));
        self.taken.send_modify(|taken| *taken += 1);
    }

    /// Takes the routes of the configuration in force, if it is another one than that of the latest
    /// sample, so that a page shows one configuration. While a sample is being taken, it changes
    /// nothing.
    pub(crate) fn catch_up(&self, live: &Live, clock: &Clock) {
        self.board().catch_up(live.load_full(), clock.now());
    }

    /// Returns the share of a server's latest requests that failed, if at least half of them did.
    pub(crate) fn failing(&self, server: usize) -> Option<f64> {
        self.board().server(server).failing()
    }

    pub(crate) fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what changes with each sample.
    pub(crate) fn taken(&self) -> watch::Receiver<u64> {
        self.taken.subscribe()
    }
}

/// Returns an instant of the wall clock in seconds since the Unix epoch.
pub(super) fn unix_seconds(wall: Instant) -> u64 {
    wall.as_nanos() / 1_000_000_000
}

/// From this share of failed requests on, a server is shown as failing.
const FAILING: f64 = 0.5;

/// The requests that a server got, and how many of them failed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ServerTrack {
    is_known: bool,
    last: ServerCounts,
    /// In the latest second.
    pub latest: ServerCounts,
    /// In the latest seconds that had requests, so that an idle server keeps its remark.
    requests: Window,
    bad: Window,
}

/// The counts of a server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ServerCounts {
    pub requests: u64,
    /// Requests without a complete response.
    pub failures: u64,
    /// Responses with a status of 500 to 599.
    pub server_errors: u64,
}

impl ServerTrack {
    /// Takes the sample of a second.
    pub(super) fn sample(&mut self, meter: &ServerMeter) {
        let now = ServerCounts {
            requests: meter.requests.load(Relaxed),
            failures: meter.failures.load(Relaxed),
            server_errors: meter.server_errors.load(Relaxed),
        };
        if self.is_known {
            self.latest = ServerCounts {
                requests: now.requests.saturating_sub(self.last.requests),
                failures: now.failures.saturating_sub(self.last.failures),
                server_errors: now.server_errors.saturating_sub(self.last.server_errors),
            };
        } else {
            // What it did before the first sample is its latest, too.
            self.latest = ServerCounts::default();
            self.remember(now);
        }
        self.is_known = true;
        self.last = now;
        self.remember(self.latest);
    }

    fn remember(&mut self, counts: ServerCounts) {
        let ServerCounts { requests, failures, server_errors } = counts;
        let bad = failures + server_errors;
        // A request may fail in another second than the one in which it came.
        if requests + bad > 0 {
            self.requests.push(requests);
            self.bad.push(bad);
        }
    }

    /// Returns the share of its latest requests that failed, by a status of 500 to 599 or without a
    /// complete response, if at least half of them did.
    #[expect(clippy::cast_precision_loss, reason = "a share is read, not counted with")]
    pub(super) fn failing(&self) -> Option<f64> {
        let bad = self.bad.sum();
        let share = bad as f64 / self.requests.sum().max(bad).max(1) as f64;
        (share >= FAILING).then_some(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts some requests in a second, and returns the share that is shown then.
    fn second(track: &mut ServerTrack, meter: &ServerMeter, counts: [u64; 3]) -> Option<f64> {
        let [requests, failures, server_errors] = counts;
        meter.requests.fetch_add(requests, Relaxed);
        meter.failures.fetch_add(failures, Relaxed);
        meter.server_errors.fetch_add(server_errors, Relaxed);
        track.sample(meter);
        track.failing()
    }

    #[test]
    fn a_server_is_failing_while_half_of_its_latest_requests_fail() {
        let meter = ServerMeter::default();
        let mut track = ServerTrack::default();
        assert_eq!(second(&mut track, &meter, [0, 0, 0]), None);
        assert_eq!(second(&mut track, &meter, [4, 0, 1]), None);
        assert_eq!(second(&mut track, &meter, [4, 1, 2]), Some(0.5));
        // It stays so while there are no requests.
        for _ in 0..60 {
            assert_eq!(second(&mut track, &meter, [0, 0, 0]), Some(0.5));
        }
        assert_eq!(track.latest.requests, 0);
        // Ten seconds of good responses end it.
        for _ in 0..10 {
            second(&mut track, &meter, [1, 0, 0]);
        }
        assert_eq!(track.failing(), None);
    }

    #[test]
    fn what_a_server_did_before_the_first_sample_counts() {
        let meter = ServerMeter::default();
        assert_eq!(second(&mut ServerTrack::default(), &meter, [3, 0, 3]), Some(1.0));
    }
}

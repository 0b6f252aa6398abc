//! What all workers' clients of the store share: how it does, and what is counted.

use super::{
    StoreError,
    client::{PATIENCE, PAUSES},
    gateways::Gateways,
    greeting::Told,
    leases::AllLeases,
    offset::Offsets,
    script::Scripts,
};
use crate::{
    clock::Clock,
    config::{Division, Store as Settings},
    flow::Instant,
    route::Seed,
};
use core::{num::NonZeroUsize, time::Duration};
use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};
use tokio::sync::{Notify, watch};

/// The upper bounds of the round trips' histogram, inclusive: from one on a local socket to the
/// longest that anybody would wait.
pub const ROUND_TRIP_BOUNDS: [Duration; 12] = [
    Duration::from_micros(100),
    Duration::from_micros(250),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2_500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(20),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_secs(1),
];

/// The least between two lines of the log about refusals of one kind.
const REFUSAL_PAUSE: Duration = Duration::from_secs(10);

/// A store, as this process sees it.
#[derive(Debug)]
pub struct Store {
    pub(super) settings: Arc<Settings>,
    pub(super) scripts: Scripts,
    /// This process's name there.
    pub(super) name: String,
    /// How far its clock is from ours.
    pub(super) offsets: Offsets,
    pub(super) leases: AllLeases,
    health: Mutex<Health>,
    /// How often it has failed, since it decided or from the start. Each change has all clients
    /// look whether it is there for them.
    failures: watch::Sender<u64>,
    errors: [AtomicU64; StoreError::COUNTED.len()],
    round_trips: [AtomicU64; ROUND_TRIP_BOUNDS.len() + 1],
    waited_nanos: AtomicU64,
    /// Whether the latest exchange of states went wrong.
    is_cut_off: AtomicBool,
    /// Whether all states were taken over once.
    has_exchanged: AtomicBool,
    /// How often it has begun or ended to refuse the exchange of one rule.
    refusals: AtomicU64,
    /// Rings when rules are to be divided otherwise, or what [`Self::heard`] waits for is there.
    turned: Notify,
    /// States that were told, and taken over.
    exchanged: [AtomicU64; 2],
}

#[derive(Debug)]
struct Health {
    /// How many clients there are to be, and what the next one is called.
    clients: usize,
    next: u64,
    /// After how many failures it answered each that has a connection, the last time.
    answered: HashMap<u64, u64>,
    /// What was said of it last.
    said_up: Option<bool>,
    /// When a refused call was last spoken of, by the kind of its error.
    said_refused: [Option<Instant>; StoreError::COUNTED.len()],
    /// The secret of the fingerprints, as the store told it or as it is told.
    secret: [u64; 2],
    gateways: Gateways,
}

/// The numbers of a [`Store`] at one moment.
#[derive(Clone, Debug)]
pub struct Reading {
    /// Whether every worker has a connection that works.
    pub is_up: bool,
    /// Gateways that it has seen lately.
    pub gateways: u32,
    /// Among how many gateways rules are divided: no fewer than the file says, nor than there were
    /// when it lost its memory.
    pub divisor: u32,
    /// Failed calls and connections by their words.
    pub errors: Vec<(&'static str, u64)>,
    /// Decisions by how long they took: one number for each of [`ROUND_TRIP_BOUNDS`], and one for
    /// those beyond. Not cumulative.
    pub round_trips: Vec<u64>,
    /// The sum of all.
    pub waited: Duration,
    /// Whether states can be exchanged.
    pub is_exchanging: bool,
    /// States of which something was told, and those that were taken over.
    pub exchanged: [u64; 2],
}

impl Store {
    /// Returns a store that none of so many workers has reached yet.
    pub fn new(settings: Settings, workers: NonZeroUsize) -> Self {
        // As `Seed::random` takes it from the system's random numbers.
        let secret = [(); 2].map(|()| RandomState::new().hash_one(()));
        // Others return after a pause and one attempt to connect; the lease is for more of these.
        let absence = settings.lease + settings.connect_timeout + PAUSES[1];
        let gateways = Gateways::new(settings.gateways, absence);
        Self {
            settings: Arc::new(settings),
            scripts: Scripts::new(),
            // Not a secret: it only must be nobody else's.
            name: format!("{:016x}", fastrand::u64(..)),
            offsets: Offsets::default(),
            leases: AllLeases::default(),
            health: Mutex::new(Health {
                clients: workers.get(),
                next: 0,
                answered: HashMap::new(),
                said_up: None,
                said_refused: Default::default(),
                secret,
                gateways,
            }),
            failures: watch::Sender::default(),
            errors: Default::default(),
            round_trips: Default::default(),
            waited_nanos: AtomicU64::new(0),
            // Nothing has failed yet.
            is_cut_off: AtomicBool::new(false),
            has_exchanged: AtomicBool::new(false),
            refusals: AtomicU64::new(0),
            turned: Notify::new(),
            exchanged: Default::default(),
        }
    }

    /// Returns among how many gateways rules are divided while it fails, and whether those are
    /// whose states are exchanged.
    pub fn division(&self) -> Division {
        Division {
            gateways: self.health().gateways.divisor(),
            is_cut_off: self.is_cut_off(),
            refusals: self.refusals.load(Relaxed),
        }
    }

    /// Returns whether states cannot be exchanged: since that has failed, or if anything has before
    /// all states were taken over, until it goes well.
    pub fn is_cut_off(&self) -> bool {
        self.is_cut_off.load(Relaxed) || (!self.has_exchanged() && self.has_failed())
    }

    /// Waits until rules are to be divided otherwise.
    pub async fn turned(&self) {
        self.turned.notified().await;
    }

    pub(super) fn set_cut_off(&self, is_cut_off: bool) {
        if self.is_cut_off.swap(is_cut_off, Relaxed) != is_cut_off {
            self.turned.notify_one();
        }
    }

    /// Notes that all states that it has to tell were taken over.
    pub(super) fn on_all_taken(&self) {
        if !self.has_exchanged.swap(true, Relaxed) {
            self.turned.notify_one();
        }
    }

    fn has_exchanged(&self) -> bool {
        self.has_exchanged.load(Relaxed)
    }

    /// Returns whether anything has failed.
    pub(super) fn has_failed(&self) -> bool {
        *self.failures.borrow() > 0
    }

    /// Waits until it has answered all clients, and told all states if they are exchanged; or has
    /// failed. Not longer than a connection and a call may take.
    pub async fn heard(&self, is_exchanged: bool, clock: &Clock) {
        let heard = async {
            let is_well = || self.is_up(&self.health()) && (self.has_exchanged() || !is_exchanged);
            while !is_well() && !self.has_failed() && !self.is_cut_off() {
                self.turned().await;
            }
        };
        let limit = self.settings.connect_timeout + self.settings.timeout.max(PATIENCE);
        // Who has not answered by then fails, which the clients find out.
        _ = clock.timeout(limit, heard).await;
    }

    /// Notes that it has begun or ended to refuse the exchange of one rule.
    pub(super) fn on_refusals(&self) {
        self.refusals.fetch_add(1, Relaxed);
        self.turned.notify_one();
    }

    /// Counts states that were told and taken over.
    pub(super) fn on_exchange(&self, told: usize, taken: usize) {
        for (counter, count) in self.exchanged.iter().zip([told, taken]) {
            counter.fetch_add(count as u64, Relaxed);
        }
    }

    /// Reads all numbers.
    pub fn read(&self) -> Reading {
        let health = self.health();
        let words = StoreError::COUNTED.map(StoreError::word);
        Reading {
            is_up: self.is_up(&health),
            gateways: health.gateways.told(),
            divisor: health.gateways.divisor(),
            errors: words.into_iter().zip(self.errors.iter().map(|it| it.load(Relaxed))).collect(),
            round_trips: self.round_trips.iter().map(|it| it.load(Relaxed)).collect(),
            waited: Duration::from_nanos(self.waited_nanos.load(Relaxed)),
            is_exchanging: self.has_exchanged() && !self.is_cut_off(),
            exchanged: [0, 1].map(|at| self.exchanged[at].load(Relaxed)),
        }
    }

    /// Returns the secret of the fingerprints, as far as it is known.
    pub(super) fn seed(&self) -> Seed {
        Seed::new(self.health().secret)
    }

    /// Returns what this gateway proposes as the secret of all, in hexadecimal digits.
    pub(super) fn secret(&self) -> String {
        let [high, low] = self.health().secret;
        format!("{high:016x}{low:016x}")
    }

    /// Takes what the store has told, `is_first` over a connection, and returns the secret of the
    /// fingerprints.
    pub(super) fn learn(&self, told: &Told, is_first: bool, now: Instant) -> Seed {
        let mut health = self.health();
        health.secret = told.secret;
        let before = health.gateways.divisor();
        health.gateways.on_told(told.gateways, is_first || told.is_unknown, now);
        if health.gateways.divisor() != before {
            self.turned.notify_one();
        }
        Seed::new(told.secret)
    }

    /// Returns a number for a client.
    pub(super) fn number(&self) -> u64 {
        let mut health = self.health();
        health.next += 1;
        health.next
    }

    /// Returns what tells of each failure.
    pub(super) fn failures(&self) -> watch::Receiver<u64> {
        self.failures.subscribe()
    }

    /// Notes that it has answered a client that asked after so many failures.
    pub(super) fn on_up(&self, client: u64, failures: u64) {
        let mut health = self.health();
        health.answered.insert(client, failures);
        if self.is_up(&health) && health.said_up != Some(true) {
            health.said_up = Some(true);
            let gateways = health.gateways.told();
            tracing::info!(gateways, "the store decides");
            self.turned.notify_one();
        }
    }

    /// Notes that there will be one more than the workers, which has not reached it yet.
    pub fn expect_another(&self) {
        let mut health = self.health();
        health.clients += 1;
    }

    /// Notes that a client's connection works no more.
    pub(super) fn on_down(&self, client: u64) {
        self.health().answered.remove(&client);
    }

    /// Notes that a client has ended.
    pub(super) fn on_end(&self, client: u64) {
        let mut health = self.health();
        health.clients = health.clients.saturating_sub(1);
        health.answered.remove(&client);
    }

    /// Whether it has answered all clients since it failed last.
    fn is_up(&self, health: &Health) -> bool {
        let failures = *self.failures.borrow();
        let answered = health.answered.values().filter(|asked| **asked == failures).count();
        health.clients > 0 && answered == health.clients
    }

    /// Counts an error, and says so if it is the first since all was well.
    pub(super) fn on_error(&self, error: StoreError, detail: &str) {
        self.count(error);
        let mut health = self.health();
        if health.said_up != Some(false) {
            health.said_up = Some(false);
            self.failures.send_modify(|failures| *failures += 1);
            self.turned.notify_one();
            tracing::warn!(%error, detail, "the store fails; rules go by `on_store_error`");
        }
    }

    /// Counts an error that the store has answered with about one call: it is there, and may decide
    /// about others. Says so, now and then.
    pub(super) fn on_refusal(&self, error: StoreError, detail: &str, now: Instant) {
        let Some(at) = self.count(error) else { return };
        let last = &mut self.health().said_refused[at];
        if last.is_none_or(|last| now.since(last) >= REFUSAL_PAUSE) {
            *last = Some(now);
            tracing::warn!(%error, detail, "the store refuses a call; rules go by `on_store_error`");
        }
    }

    /// Counts an error, and returns its place among all.
    fn count(&self, error: StoreError) -> Option<usize> {
        let at = StoreError::COUNTED.iter().position(|it| *it == error)?;
        self.errors[at].fetch_add(1, Relaxed);
        Some(at)
    }

    /// Counts a decision that took so long.
    pub(super) fn on_decision(&self, took: Duration) {
        let bucket = ROUND_TRIP_BOUNDS.partition_point(|bound| *bound < took);
        self.round_trips[bucket].fetch_add(1, Relaxed);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.waited_nanos.fetch_add(nanos, Relaxed);
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::StoreKind;

    fn store(workers: usize) -> Store {
        let settings = Settings {
            nodes: Vec::new(),
            kind: StoreKind::Single,
            is_tls: false,
            ca: None,
            user: None,
            password: None,
            database: 0,
            prefix: String::new(),
            connect_timeout: Duration::ZERO,
            timeout: Duration::ZERO,
            lease: Duration::ZERO,
            gateways: 1,
        };
        Store::new(settings, NonZeroUsize::new(workers).unwrap())
    }

    #[test]
    fn the_store_is_up_when_all_clients_have_reached_it() {
        let store = store(2);
        let [one, other, third] = [(); 3].map(|()| store.number());
        assert!(!store.read().is_up);
        store.on_up(one, 0);
        assert!(!store.read().is_up, "the other has not begun");
        store.on_up(other, 0);
        assert!(store.read().is_up);
        store.on_down(other);
        assert!(!store.read().is_up);
        store.on_end(other);
        assert!(store.read().is_up, "the one that is left has a connection");
        store.expect_another();
        assert!(!store.read().is_up, "the exchange has begun, and has none");
        store.on_end(third);
        assert!(store.read().is_up);
    }

    #[test]
    fn a_call_that_the_store_refuses_is_counted_and_does_not_make_it_fail() {
        let store = store(1);
        store.on_up(store.number(), 0);
        for seconds in 0..3 {
            let now = Instant::EPOCH + Duration::from_secs(seconds);
            store.on_refusal(StoreError::Other, "WRONGTYPE", now);
        }
        let reading = store.read();
        let counted = reading.errors.iter().find(|(word, _)| *word == "other");
        assert_eq!((reading.is_up, counted), (true, Some(&("other", 3))));
        assert!(!store.failures().has_changed().unwrap(), "nobody has to look for it");
    }

    #[test]
    fn after_a_failure_the_store_is_up_when_it_has_answered_who_asked_since() {
        let store = store(2);
        let [one, idle] = [(); 2].map(|()| store.number());
        let mut failures = store.failures();
        store.on_up(one, 0);
        store.on_up(idle, 0);
        store.on_error(StoreError::Timeout, "to a question");
        store.on_down(one);
        assert!(failures.has_changed().unwrap(), "all are told");
        assert_eq!(*failures.borrow_and_update(), 1);
        store.on_error(StoreError::Connection, "to the next attempt");
        assert!(!failures.has_changed().unwrap(), "it still fails");
        store.on_up(one, 1);
        assert!(!store.read().is_up, "who has not asked since may have lost it, too");
        store.on_up(idle, 0);
        assert!(!store.read().is_up, "that was asked before");
        store.on_up(idle, 1);
        assert!(store.read().is_up);
        store.on_error(StoreError::Connection, "to a question");
        assert_eq!(*failures.borrow_and_update(), 2);
    }
}

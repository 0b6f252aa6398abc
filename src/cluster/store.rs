//! The store as all its clients share it: its health, and the counters.

use super::{
    decide::offset::Offsets,
    error::{CallFailure, FailureScope, StoreError},
    gateways::{Gateways, HelloReply},
    health::{FailedNodes, Health, SyncOutcome},
    leases::AllLeases,
    scripts::{BACKGROUND_CALL_TIMEOUT, LONGEST_BACKOFF, Scripts},
    settle::backlog::Backlog,
};
use crate::{
    clock::Clock,
    config::{LocalShare, StoreSettings},
    flow::Instant,
    route::Seed,
};
use core::{
    fmt::{self, Display, Formatter},
    num::NonZeroUsize,
    time::Duration,
};
use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::UNIX_EPOCH,
};
use tokio::sync::{Notify, watch};

/// The upper bounds of the round trips' histogram, inclusive: from one on a local socket to the
/// longest wait that makes sense.
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

/// The least between two lines of the log about rejected calls of one kind.
const REJECTION_PAUSE: Duration = Duration::from_secs(10);

/// After how long without a stale state the next one is a new event for the log.
const STALE_PAUSE: Duration = Duration::from_mins(10);

/// A store, as this process sees it.
#[derive(Debug)]
pub struct Store {
    pub(super) settings: Arc<StoreSettings>,
    pub(super) scripts: Scripts,
    /// This process's name there.
    pub(super) name: String,
    /// The offsets of its clock from ours.
    pub(super) offsets: Offsets,
    pub(super) leases: AllLeases,
    /// The settlements that it has not confirmed.
    pub(super) backlog: Arc<Backlog>,
    status: Mutex<StoreStatus>,
    /// The number of times that the store, or some of its nodes, began to fail. Each change has all
    /// clients check it.
    failures: watch::Sender<u64>,
    errors: [AtomicU64; StoreError::COUNTED.len()],
    round_trips: [AtomicU64; ROUND_TRIP_BOUNDS.len() + 1],
    waited_nanos: AtomicU64,
    /// The result of [`Health::is_cut_off`], for requests.
    is_cut_off: AtomicBool,
    /// The number of times that it began or ended to reject the sync of one rule.
    sync_rejections: AtomicU64,
    /// Notified when rules are to be divided otherwise, or what [`Self::wait_until_settled`] waits for is there.
    share_changed: Notify,
    /// States that were sent, and received.
    synced_states: [AtomicU64; 2],
    /// The number of times that it lost states, or may have, or that an operator changed one.
    cache_resets: AtomicU64,
    cached_rejections: AtomicU64,
}

/// The findings of its clients about the store.
#[derive(Debug)]
struct StoreStatus {
    health: Health,
    /// The time at which a call that failed alone was last logged, by the kind of the error.
    logged_rejections: [Option<Instant>; StoreError::COUNTED.len()],
    /// The time at which dropped settlements were last logged.
    logged_drop: Option<Instant>,
    /// The time at which a state was last found to be stale.
    stale: Option<Instant>,
    /// The secret of the fingerprints: of the store, or the one that this gateway proposes.
    secret: [u64; 2],
    /// True if the secret is that of the store.
    has_secret: bool,
    /// The latest change by an operator.
    change: Vec<u8>,
    gateways: Gateways,
    /// Why it fails, or failed last.
    failure: Option<StoreFailure>,
}

/// Since when and why the store fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFailure {
    /// By the wall clock, as `logged`.
    since: Instant,
    error: StoreError,
    detail: String,
    logged: Instant,
}

impl StoreFailure {
    fn new(failure: &CallFailure, now: Instant) -> Self {
        Self { since: now, error: failure.error, detail: failure.detail.clone(), logged: now }
    }
}

impl Display for StoreFailure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { since, error, detail, logged: _ } = self;
        let since = UNIX_EPOCH + since.since(Instant::EPOCH);
        let since = humantime::format_rfc3339_seconds(since);
        write!(f, "failing since {since}: {error}: {detail}")
    }
}

/// The numbers of a [`Store`] at one moment.
#[derive(Clone, Debug)]
pub struct StoreReading {
    /// True if every worker has a connection that works, to every node of a Redis Cluster.
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
    /// True if states can be synced.
    pub is_syncing: bool,
    /// States that were sent, and received.
    pub synced_states: [u64; 2],
    /// Requests that this gateway rejected without a call.
    pub cached_rejections: u64,
    /// Settlements that it has not confirmed yet.
    pub waiting_settlements: u64,
    /// Settlements that it has applied or that were dropped, by the words of their ends.
    pub settlements: Vec<(&'static str, u64)>,
    /// While it fails: since when and why.
    pub failure: Option<StoreFailure>,
}

impl Store {
    /// Returns a store that none of so many workers has reached yet.
    pub fn new(settings: StoreSettings, workers: NonZeroUsize) -> Self {
        // As `Seed::random` takes it from the system's random numbers.
        let secret = [(); 2].map(|()| RandomState::new().hash_one(()));

        // Others return after a pause and one attempt to connect; the lease is for more of these.
        let absence = settings.lease + settings.connect_timeout + LONGEST_BACKOFF;
        let gateways = Gateways::new(settings.gateways, absence);

        Self {
            settings: Arc::new(settings),
            scripts: Scripts::new(),
            // Not secret, but unique.
            name: format!("{:016x}", fastrand::u64(..)),
            offsets: Offsets::default(),
            leases: AllLeases::default(),
            backlog: Arc::default(),
            status: Mutex::new(StoreStatus {
                health: Health::new(workers.get()),
                logged_rejections: Default::default(),
                logged_drop: None,
                stale: None,
                secret,
                has_secret: false,
                change: Vec::new(),
                gateways,
                failure: None,
            }),
            failures: watch::Sender::default(),
            errors: Default::default(),
            round_trips: Default::default(),
            waited_nanos: AtomicU64::new(0),
            is_cut_off: AtomicBool::new(false),
            sync_rejections: AtomicU64::new(0),
            share_changed: Notify::new(),
            synced_states: Default::default(),
            cache_resets: AtomicU64::new(0),
            cached_rejections: AtomicU64::new(0),
        }
    }

    /// Returns the divisor of rules that go by `local`, and whether rules with `sync_interval` do.
    pub fn local_share(&self) -> LocalShare {
        LocalShare {
            gateways: self.status().gateways.divisor(),
            is_cut_off: self.is_cut_off(),
            sync_rejections: self.sync_rejections.load(Relaxed),
        }
    }

    /// Returns whether the sync fails, or something failed before all states had arrived.
    pub fn is_cut_off(&self) -> bool {
        self.is_cut_off.load(Relaxed)
    }

    /// Waits until the division of rules changes.
    pub async fn share_changed(&self) {
        self.share_changed.notified().await;
    }

    /// Notes that there is a sync. Only the first call counts.
    pub fn want_states(&self) {
        self.note(|status| status.health.on_wanted());
    }

    /// Notes the outcome of a sync.
    pub(super) fn on_sync(&self, came: SyncOutcome) {
        self.note(|status| status.health.on_sync(came));
    }

    /// Returns whether states are awaited, and nothing has failed.
    pub(super) fn is_asking(&self) -> bool {
        self.status().health.is_asking()
    }

    /// Waits until it has answered all clients, with all states if `is_synced`, or has failed.
    /// Takes as long as connecting and a call at most.
    pub async fn wait_until_settled(&self, is_synced: bool, clock: &Clock) {
        let settled = async {
            while !self.status().health.is_settled(is_synced) {
                self.share_changed().await;
            }
        };
        let limit =
            self.settings.connect_timeout + self.settings.timeout.max(BACKGROUND_CALL_TIMEOUT);
        // A client without an answer by then reports a failure itself.
        _ = clock.timeout(limit, settled).await;
    }

    /// Notes that it has begun or stopped rejecting the sync of one rule.
    pub(super) fn on_sync_rejection(&self) {
        self.sync_rejections.fetch_add(1, Relaxed);
        self.share_changed.notify_one();
    }

    /// Counts states that were sent and received.
    pub(super) fn on_states(&self, sent: usize, received: usize) {
        for (counter, count) in self.synced_states.iter().zip([sent, received]) {
            counter.fetch_add(count as u64, Relaxed);
        }
    }

    /// Returns how often it has lost states, or may have, or an operator has changed one.
    pub(super) fn cache_resets(&self) -> u64 {
        self.cache_resets.load(Relaxed)
    }

    /// Invalidates the cached rejections, so that requests ask the store again.
    pub(super) fn forget_rejections(&self) {
        self.cache_resets.fetch_add(1, Relaxed);
    }

    /// Counts a request that the gateway rejected without a call.
    pub(super) fn on_cached_rejection(&self) {
        self.cached_rejections.fetch_add(1, Relaxed);
    }

    /// Reads all numbers.
    pub fn read(&self) -> StoreReading {
        let status = self.status();
        let words = StoreError::COUNTED.map(StoreError::word);

        StoreReading {
            is_up: status.health.is_up() && status.health.is_whole(),
            gateways: status.gateways.count(),
            divisor: status.gateways.divisor(),
            errors: words
                .into_iter()
                .zip(self.errors.iter().map(|count| count.load(Relaxed)))
                .collect(),
            round_trips: self.round_trips.iter().map(|count| count.load(Relaxed)).collect(),
            waited: Duration::from_nanos(self.waited_nanos.load(Relaxed)),
            is_syncing: status.health.is_syncing(),
            synced_states: [0, 1].map(|at| self.synced_states[at].load(Relaxed)),
            cached_rejections: self.cached_rejections.load(Relaxed),
            waiting_settlements: self.backlog.len() as u64,
            settlements: self.backlog.ends(),
            failure: status.failure.clone().filter(|_| status.health.is_failing()),
        }
    }

    /// Returns the secret of the fingerprints, as far as it is known.
    pub fn seed(&self) -> Seed {
        Seed::new(self.status().secret)
    }

    /// Returns what this gateway proposes as the secret of all, in hexadecimal digits.
    pub(super) fn secret(&self) -> String {
        let [high, low] = self.status().secret;
        format!("{high:016x}{low:016x}")
    }

    /// Takes the answer to a registration, `is_first` over a connection. Returns the secret of the
    /// fingerprints.
    pub(super) fn learn(&self, reply: &HelloReply, is_first: bool, now: Instant) -> Seed {
        let mut status = self.status();
        status.secret = reply.secret;
        status.has_secret = true;

        let is_changed = status.change != reply.change;
        status.change.clone_from(&reply.change);
        if reply.is_unknown || is_changed {
            self.cache_resets.fetch_add(1, Relaxed);
        }

        let before = status.gateways.divisor();
        status.gateways.update(reply.gateways, is_first || reply.is_unknown, now);
        if status.gateways.divisor() != before {
            self.share_changed.notify_one();
        }

        Seed::new(reply.secret)
    }

    /// Returns whether the store has returned the secret of the fingerprints.
    pub(super) fn has_learned(&self) -> bool {
        self.status().has_secret
    }

    /// Returns the key of what all gateways share under this name.
    pub(super) fn key(&self, name: &str) -> String {
        format!("{}{{gateways}}:{name}", self.settings.prefix)
    }

    /// Returns a number for a client, or a connection.
    pub(super) fn number(&self) -> u64 {
        self.status().health.number()
    }

    /// Returns the number of failures, to be watched.
    pub(super) fn failures(&self) -> watch::Receiver<u64> {
        self.failures.subscribe()
    }

    /// Notes that it has answered a call that a client made after so many failures.
    pub(super) fn on_up(&self, client: u64, failures: u64) {
        self.note(|status| {
            if status.health.on_up(client, failures) {
                tracing::info!(gateways = status.gateways.count(), "the store decides");
                self.share_changed.notify_one();
            }
        });
    }

    /// Notes that a client has lost its connection.
    pub(super) fn on_down(&self, client: u64) {
        self.note(|status| status.health.on_down(client));
    }

    /// Notes that a client has ended.
    pub(super) fn on_end(&self, client: u64) {
        self.note(|status| status.health.on_end(client));
    }

    /// Counts a failure at `now` by the wall clock. Logs it if the store did not fail before, or if it
    /// now fails for another reason, then once in ten seconds.
    pub(super) fn on_error(&self, failure: &CallFailure, now: Instant) {
        let CallFailure { error, detail, call, .. } = failure;
        self.count_once(failure);

        self.note(|status| {
            if let Some(failures) = status.health.on_error() {
                tracing::warn!(call, %error, detail, "the store fails; `on_store_error` decides until it is back");
                status.failure = Some(StoreFailure::new(failure, now));
                self.failures.send_replace(failures);
                self.share_changed.notify_one();
                return;
            }

            let Some(known) = &mut status.failure else { return };
            if known.error != *error && now.since(known.logged) >= REJECTION_PAUSE {
                tracing::warn!(call, %error, detail, "the store still fails, for another reason");
                *known = StoreFailure { since: known.since, ..StoreFailure::new(failure, now) };
            }
        });
    }

    /// Notes which nodes of a Redis Cluster fail for a client. If some failed for no client before,
    /// logs them and has all clients check.
    pub(super) fn on_nodes(&self, client: u64, failed: FailedNodes) {
        let mut status = self.status();
        if let Some((lost, failures)) = status.health.on_nodes(client, failed) {
            tracing::warn!(%lost, "nodes of the store fail; `on_store_error` decides for their routes");
            self.failures.send_replace(failures);
        }
    }

    /// Notes that a client has checked its other nodes after so many failures. Logs the nodes that
    /// now fail for no client.
    pub(super) fn on_checked(&self, client: u64, failures: u64) {
        let mut status = self.status();
        let back = status.health.on_checked(client, failures);
        if !back.is_empty() {
            tracing::info!(%back, "nodes of the store decide again");
        }
    }

    /// Counts the failure of one call, while the store may decide about others. Logs it once in ten
    /// seconds per kind.
    pub(super) fn on_rejected_call(&self, failure: &CallFailure, now: Instant) {
        let CallFailure { error, detail, call, .. } = failure;
        let Some(at) = self.count(*error) else { return };
        let last = &mut self.status().logged_rejections[at];
        if last.is_none_or(|last| now.since(last) >= REJECTION_PAUSE) {
            *last = Some(now);
            if failure.scope == FailureScope::Late {
                tracing::warn!(call, %error, detail, "the store replied too late to a call, and in time to others; `on_store_error` decided that request");
            } else {
                tracing::warn!(call, %error, detail, "the store rejected a call; `on_store_error` decided that request");
            }
        }
    }

    /// Notes that a state of this rule was further ahead than a window. Logs it once for each step
    /// of the clock.
    pub(super) fn on_stale(&self, rule: &str, now: Instant) {
        let last = self.status().stale.replace(now);
        if last.is_none_or(|last| now.since(last) >= STALE_PAUSE) {
            tracing::warn!(
                rule,
                "the store's clock stepped back by more than the rule's window; the counts from before begin again"
            );
        }
    }

    /// Logs that settlements were dropped for this reason, once in ten seconds.
    pub(super) fn on_dropped_settlements(&self, count: usize, reason: &str, now: Instant) {
        let last = &mut self.status().logged_drop;
        if last.is_none_or(|last| now.since(last) >= REJECTION_PAUSE) {
            *last = Some(now);
            tracing::warn!(
                count,
                reason,
                "settlements for the store are dropped; what was reserved stays charged"
            );
        }
    }

    /// Counts a failure, unless it is counted already.
    pub(super) fn count_once(&self, failure: &CallFailure) {
        if failure.scope != FailureScope::Counted {
            self.count(failure.error);
        }
    }

    /// Counts an error, and returns its place among all.
    pub(super) fn count(&self, error: StoreError) -> Option<usize> {
        let at = StoreError::COUNTED.iter().position(|counted| *counted == error)?;
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

    /// Notes what a client has found out, and wakes those that wait for it.
    fn note(&self, note: impl FnOnce(&mut StoreStatus)) {
        let mut status = self.status();
        let of_states =
            |status: &StoreStatus| (status.health.is_cut_off(), status.health.is_syncing());
        let before = of_states(&status);
        note(&mut status);
        let after = of_states(&status);
        self.is_cut_off.store(after.0, Relaxed);
        if after != before {
            self.share_changed.notify_one();
        }
    }

    fn status(&self) -> MutexGuard<'_, StoreStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::StoreKind;

    fn store(workers: usize) -> Store {
        let settings = StoreSettings {
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

    fn failure() -> CallFailure {
        CallFailure::timeout("to a question".to_owned())
    }

    #[test]
    fn a_call_that_the_store_rejects_is_counted_and_does_not_make_it_fail() {
        let store = store(1);
        store.on_up(store.number(), 0);
        for seconds in 0..3 {
            let now = Instant::EPOCH + Duration::from_secs(seconds);
            store.on_rejected_call(&CallFailure { error: StoreError::Other, ..failure() }, now);
        }
        let reading = store.read();
        let counted = reading.errors.iter().find(|(word, _)| *word == "other");
        assert_eq!((reading.is_up, counted), (true, Some(&("other", 3))));
        assert!(!store.failures().has_changed().unwrap(), "no client has to check it");
    }

    #[test]
    fn the_first_failure_since_it_decided_has_all_clients_check_it() {
        let store = store(1);
        let client = store.number();
        let mut failures = store.failures();
        for count in 1..3 {
            store.on_up(client, count - 1);
            assert!(store.read().is_up);
            store.on_error(&failure(), Instant::EPOCH);
            assert!(failures.has_changed().unwrap());
            assert_eq!(*failures.borrow_and_update(), count);
            store.on_error(
                &CallFailure { error: StoreError::Connection, ..failure() },
                Instant::EPOCH,
            );
            assert!(!failures.has_changed().unwrap(), "it still fails");
            assert!(!store.read().is_up);
        }
    }

    #[test]
    fn while_the_store_fails_it_says_since_when_and_the_reason_that_was_logged_last() {
        let store = store(1);
        let at = |seconds| Instant::EPOCH + Duration::from_secs(seconds);
        let fails = |error, seconds| {
            store.on_error(&CallFailure { error, ..failure() }, at(seconds));
            store.read().failure.map(|failure| failure.to_string())
        };
        let text = |error: StoreError| {
            let detail = failure().detail;
            Some(format!("failing since 1970-01-01T00:00:07Z: {error}: {detail}"))
        };
        assert_eq!(store.read().failure, None);
        assert_eq!(fails(StoreError::Connection, 7), text(StoreError::Connection));
        assert_eq!(fails(StoreError::Denied, 16), text(StoreError::Connection));
        assert_eq!(fails(StoreError::Denied, 17), text(StoreError::Denied));
        store.on_up(store.number(), 1);
        assert_eq!(store.read().failure, None);
    }

    #[test]
    fn requests_learn_at_once_that_states_cannot_be_synced() {
        let store = store(1);
        store.on_up(store.number(), 0);
        store.want_states();
        assert!(!store.is_cut_off());
        store.on_error(&failure(), Instant::EPOCH);
        assert!(store.is_cut_off() && store.local_share().is_cut_off);
        store.on_sync(SyncOutcome::All);
        assert!(!store.is_cut_off() && store.read().is_syncing);
    }
}

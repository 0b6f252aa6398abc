//! The life of certificates: looks at what is on disk, and orders what is due.
//!
//! The files are the truth. This task keeps nothing that a restart would lose: it reads certificates and
//! records again and again, so that it also sees the work of other gateways that share the folder.

use super::{
    client::{Client, Transport},
    order::{NewCertificate, OrderContext, OrderError},
    renewal_info,
    schedule::{Issued, Record, Validity, instant, shown},
    status::{CertificateStatus, Status},
    storage::{Lock, Storage, issued, write_issued},
    x509,
};
use crate::{
    clock::Clock,
    config::{Acme, AcmeOrder, Live, Origin},
    flow::Instant,
};
use core::time::Duration;
use std::{
    collections::{BTreeMap, HashSet},
    io,
    path::PathBuf,
    sync::Arc,
};
use tokio::{
    sync::mpsc,
    task::{Id, JoinError, JoinSet},
};

/// The interval at which an edit is seen.
const POLL: Duration = Duration::from_secs(1);

/// The interval at which the files are read again, as another gateway or the wall clock may have changed.
const RESCAN: Duration = Duration::from_secs(10);

/// The most orders at once.
const MOST_ORDERS: usize = 8;

/// Gets and renews the certificates of the configuration in force.
#[expect(missing_debug_implementations, reason = "a transport is a function")]
pub struct Task {
    live: Arc<Live>,
    clock: Clock,
    status: Arc<Status>,
    transport: Transport,
    /// The receiver of the news that a certificate was written.
    changed: mpsc::Sender<()>,
    running: JoinSet<()>,
    /// The certificates about which a task runs.
    busy: HashSet<PathBuf>,
    files: BTreeMap<Id, PathBuf>,
    /// The failure to open the folder that was logged last.
    logged: Option<String>,
}

impl Task {
    /// Begins without an order. `changed` gets a message when a certificate was written.
    pub fn new(
        live: Arc<Live>,
        clock: Clock,
        status: Arc<Status>,
        transport: Transport,
        changed: mpsc::Sender<()>,
    ) -> Self {
        Self {
            live,
            clock,
            status,
            transport,
            changed,
            running: JoinSet::new(),
            busy: HashSet::new(),
            files: BTreeMap::new(),
            logged: None,
        }
    }

    /// Runs until it is dropped, which ends all orders.
    pub async fn run(mut self) {
        let mut known: Option<Arc<Acme>> = None;
        let mut next_scan = self.clock.now();
        loop {
            let acme = self.live.load().settings.acme.clone();
            let now = self.clock.now();
            if known.as_deref() != acme.as_deref() || next_scan <= now {
                next_scan = now + self.scan(acme.as_ref());
                known = acme;
            }

            let tick = self.clock.timer(next_scan.min(now + POLL));
            tokio::select! {
                () = tick => {}
                Some(ended) = self.running.join_next_with_id() => {
                    self.note_end(ended);
                    next_scan = self.clock.now();
                }
            }
        }
    }

    fn note_end(&mut self, ended: Result<(Id, ()), JoinError>) {
        let id = match ended {
            Ok((id, ())) => id,
            Err(error) => {
                tracing::error!(%error, "an order panicked");
                error.id()
            }
        };
        if let Some(file) = self.files.remove(&id) {
            self.busy.remove(&file);
        }
    }

    /// Looks at each certificate, and starts what is due. Returns how long nothing more need be done.
    fn scan(&mut self, acme: Option<&Arc<Acme>>) -> Duration {
        let Some(acme) = acme.filter(|acme| !acme.orders.is_empty()) else {
            self.status.replace(BTreeMap::new());
            return RESCAN;
        };
        let now = self.clock.wall_now();
        let Some(storage) = self.open(acme, now) else { return RESCAN };

        let mut wait = RESCAN;
        let mut seen = BTreeMap::new();
        for order in &acme.orders {
            let issued = issued(order);
            let record = storage.record(order);
            let due = due(issued.as_ref(), &record, now);
            seen.insert(order.label(), status(issued.as_ref(), &record, now));
            if due > now {
                wait = wait.min(due.since(now));
            } else if !self.busy.contains(&order.file) && self.busy.len() < MOST_ORDERS {
                self.start(acme, &storage, order);
            }
        }
        self.status.replace(seen);
        wait.max(POLL)
    }

    /// Opens the folder. A failure is logged once, and counted as one of each certificate.
    fn open(&mut self, acme: &Acme, now: Instant) -> Option<Storage> {
        let error = match Storage::open(&acme.folder) {
            Ok(storage) => {
                storage.prune(now);
                self.logged = None;
                return Some(storage);
            }
            Err(error) => error.to_string(),
        };

        let folder = acme.folder.storage.display();
        if self.logged.as_ref() != Some(&error) {
            tracing::error!(%folder, %error, "cannot use `acme.storage`: no certificate is requested or renewed; let the gateway's user write there");
        }
        let failed = CertificateStatus {
            valid_until: None,
            next_order: now + RESCAN,
            failures: 1,
            error: Some(format!("cannot use {folder}: {error}")),
        };
        self.status.replace(acme.orders.iter().map(|one| (one.label(), failed.clone())).collect());
        self.logged = Some(error);
        None
    }

    fn start(&mut self, acme: &Arc<Acme>, storage: &Storage, order: &Arc<AcmeOrder>) {
        let job = Job {
            acme: Arc::clone(acme),
            storage: storage.clone(),
            order: Arc::clone(order),
            live: Arc::clone(&self.live),
            client: Client::new(Arc::clone(acme), Arc::clone(&self.transport), self.clock.clone()),
            clock: self.clock.clone(),
            status: Arc::clone(&self.status),
            changed: self.changed.clone(),
        };
        self.busy.insert(order.file.clone());
        let handle = self.running.spawn(job.run());
        self.files.insert(handle.id(), order.file.clone());
    }
}

/// Returns when something is to be done for a certificate: an order, or a look at the renewal information.
fn due(issued: Option<&Issued>, record: &Record, now: Instant) -> Instant {
    let order = record.order_at(issued, now);
    let check = issued.filter(|issued| issued.id.is_some()).map(|one| record.check_at(one, now));
    check.map_or(order, |check| order.min(check.max(record.retry_at(now))))
}

fn status(issued: Option<&Issued>, record: &Record, now: Instant) -> CertificateStatus {
    CertificateStatus {
        valid_until: issued.map(|issued| issued.validity.not_after),
        next_order: record.order_at(issued, now),
        failures: record.failures,
        error: (record.failures > 0).then(|| record.error.clone()),
    }
}

/// The work for one certificate that is due.
struct Job {
    acme: Arc<Acme>,
    storage: Storage,
    order: Arc<AcmeOrder>,
    live: Arc<Live>,
    client: Client,
    clock: Clock,
    status: Arc<Status>,
    changed: mpsc::Sender<()>,
}

impl Job {
    async fn run(self) {
        // What another gateway does need not be done here; the files show its result.
        let lock = match self.storage.lock(&self.order) {
            Ok(Some(lock)) => lock,
            Ok(None) => return self.pause().await,
            Err(error) => return self.cannot_store(&error).await,
        };
        self.run_locked(&lock).await;
    }

    async fn run_locked(&self, _lock: &Lock) {
        let now = self.clock.wall_now();
        let issued = issued(&self.order);
        let mut record = self.storage.record(&self.order);

        if let Some(issued) = &issued
            && record.check_at(issued, now) <= now
            && record.order_at(Some(issued), now) > now
        {
            record.renewal = renewal_info::request(&self.client, issued, now).await;
            if let Err(error) = self.storage.write_record(&self.order, &record) {
                return self.cannot_store(&error).await;
            }
        }
        if record.order_at(issued.as_ref(), now) > now {
            return;
        }

        // Before the authority is asked, this shows whether its certificate could be kept.
        let lifetime = issued.as_ref().map(|issued| issued.validity.lifetime());
        record.begin(lifetime, now, fastrand::f64());
        if let Err(error) = self.storage.write_record(&self.order, &record) {
            return self.cannot_store(&error).await;
        }
        self.place(issued.as_ref(), record).await;
    }

    /// Orders a certificate, and records what came of it.
    async fn place(&self, issued: Option<&Issued>, mut record: Record) {
        let certificate = self.order.label();
        tracing::info!(%certificate, directory = %self.acme.directory, attempt = record.failures, "ordering a certificate");

        let outcome = match self.client.read_directory().await {
            Ok(()) => {
                let context = OrderContext {
                    acme: &self.acme,
                    storage: &self.storage,
                    client: &self.client,
                    clock: &self.clock,
                };
                let replaces = issued.and_then(|issued| issued.id.as_deref());
                context.obtain(&self.order, record.failures, replaces).await
            }
            Err(error) => Err(OrderError::Unreachable(error)),
        };

        let outcome = match outcome {
            Ok(new) => self.wait_to_use(issued, &record, new).await,
            Err(error) => Err(error),
        };
        match outcome {
            Ok(pem) => self.keep(&pem, record).await,
            Err(error) => {
                record.fail(self.clock.wall_now(), &error.to_string(), self.client.retry_after());
                self.warn(issued, &record);
                if let Err(error) = self.storage.write_record(&self.order, &record) {
                    self.cannot_store(&error).await;
                }
            }
        }
    }

    /// Waits until a new certificate can replace those in use, and returns its key and its chain.
    ///
    /// # Errors
    ///
    /// It is not valid, and one in use is.
    async fn wait_to_use(
        &self,
        issued: Option<&Issued>,
        record: &Record,
        new: NewCertificate,
    ) -> Result<String, OrderError> {
        let now = self.clock.wall_now();
        let use_at = record.use_at(new.validity, &self.in_use(issued), issued, now);
        let use_at = use_at.ok_or(OrderError::NotValid(new.validity))?;
        if use_at > now {
            self.clock.timer(self.clock.now() + use_at.since(now)).await;
        }
        Ok(new.pem)
    }

    /// Returns the times of the certificates that authorities have issued and a new one would replace:
    /// the order's own, and those that clients get for its names. After an edit of the names these are
    /// others, and after the loss of the file they are only in memory.
    fn in_use(&self, issued: Option<&Issued>) -> Vec<Validity> {
        let snapshot = self.live.load();
        let mut found: Vec<Validity> = issued.map(|issued| issued.validity).into_iter().collect();
        for tls in snapshot.listeners.iter().filter_map(|listener| listener.tls.as_ref()) {
            for name in &self.order.names {
                let shown = tls.find(Some(name), |_| true);
                if shown.origin == Origin::Acme && shown.names.contains(name) {
                    found.extend(shown.key.cert.first().and_then(|own| x509::validity(own)));
                }
            }
        }
        found
    }

    /// Writes the certificate. An order counts against the authority's limits, so a full disk does not
    /// lose its result: it is written again and again until this process ends.
    async fn keep(&self, pem: &str, mut record: Record) {
        while let Err(error) = write_issued(&self.order, pem) {
            self.cannot_store(&error).await;
        }
        record.succeed(self.clock.wall_now());
        if let Err(error) = self.storage.write_record(&self.order, &record) {
            self.cannot_store(&error).await;
        }

        self.status.count(true);
        let certificate = self.order.label();
        let issued = issued(&self.order);
        let until = issued.map(|issued| shown(issued.validity.not_after)).unwrap_or_default();
        tracing::info!(%certificate, valid_until = %until, "the authority has issued a certificate");
        // The file is watched too, where the system reports changes.
        _ = self.changed.try_send(());
    }

    fn warn(&self, issued: Option<&Issued>, record: &Record) {
        self.status.count(false);
        let certificate = self.order.label();
        let error = &record.error;
        let failures = record.failures;
        let next = shown(instant(record.retry_at));
        match issued {
            Some(issued) => {
                let until = shown(issued.validity.not_after);
                tracing::warn!(%certificate, %error, failures, "cannot renew the certificate: the one in use is valid until {until}; next attempt at {next}");
            }
            None => {
                tracing::warn!(%certificate, %error, failures, "cannot get the certificate: clients get a self-signed one; next attempt at {next}");
            }
        }
    }

    async fn cannot_store(&self, error: &io::Error) {
        let certificate = self.order.label();
        let folder = self.acme.folder.storage.display();
        tracing::error!(%certificate, %folder, %error, "cannot write to `acme.storage`: the certificate in use stays; trying again in a minute");
        self.clock.timer(self.clock.now() + Duration::from_mins(1)).await;
    }

    async fn pause(&self) {
        self.clock.timer(self.clock.now() + RESCAN).await;
    }
}

//! The control thread: it wires the layers, watches the file and ends the process. No request
//! passes through it.

mod catch_up;
mod drain;
mod error;
mod files;
mod listeners;
mod log;
mod prepare;
mod reading;
mod readings;
mod reload;
mod sync_thread;
mod system;
mod wall;

use crate::{
    access_log,
    admin::{self, Readiness},
    clock::{Clock, WallWatch},
    cluster::{Client, Store},
    config::{self, Live, Plan, Retired, Watched, watch},
    meter::Counters,
    proxy::{
        ClientConnections, Connections, Connector, Descriptors, HealthWatch, NameWatch, Passwords,
        Pools, RequestIdMaker, RequestLog, Resolver, TimeoutLog, Worker,
    },
    route::Seed,
    shutdown::{SignalEvent, Signals},
    workers::Handle,
};
pub use error::StartError;
use error::cannot;
use files::FileStates;
use listeners::{Listeners, Opened, Sockets, open};
pub use log::Log;
use prepare::{open_log, warn, warn_of_descriptors};
use reading::{Cause, Contents, Reading, RejectedEdit};
use readings::{Readings, end};
use std::{
    io,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::Arc,
};
use sync_thread::SyncThread;
pub use system::take_small_pages;
use system::{give_way, raise_file_limit};
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Runs the gateway with the file at `path` until a signal ends it. Calls `listening` when its
/// listeners accept connections.
///
/// # Errors
///
/// See [`StartError`]. After the start only a signal ends it.
pub fn run(
    path: &Path,
    log: &Log,
    counters: Arc<Counters>,
    listening: impl FnOnce(),
) -> Result<(), StartError> {
    let descriptors = raise_file_limit();
    let mut seen = FileStates::look(&Watched::files([path.to_owned()]));
    let plan = reading::read(&mut seen, || config::read(path)).map_err(StartError::Config)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(cannot("start a runtime"))?;
    let ended = runtime.block_on(async {
        let (mut gateway, (sockets, admin)) = Gateway::start(plan, counters, seen, descriptors)?;
        gateway.log_has_fields = log.is_json();
        // The admin listener starts before the wait for the store, so that probes are answered.
        if let Some((address, sockets)) = admin {
            gateway.serve_admin(address, sockets)?;
        }
        if gateway.wait_for_store().await {
            gateway.listen(sockets)?;
            listening();
            gateway.serve().await;
        }
        gateway.drain().await;
        Ok(())
    });
    // This does not wait for a reading of the file.
    runtime.shutdown_background();
    ended
}

struct Gateway {
    path: PathBuf,
    clock: Clock,
    live: Arc<Live>,
    descriptors: Descriptors,
    retired: Retired,
    counters: Arc<Counters>,
    readiness: Arc<Readiness>,
    /// The shared store, if any.
    store: Option<Arc<Store>>,
    sync_thread: Option<SyncThread>,
    workers: Vec<Handle>,
    listeners: Listeners,
    access_log: access_log::Sink,
    /// Whether the gateway's log is JSON.
    log_has_fields: bool,
    signals: Signals,
    /// Requests from the admin listener.
    reload_requests: mpsc::Receiver<()>,
    /// Ends the admin listener.
    closing: CancellationToken,
    /// The files of the last configuration read, applied or rejected.
    seen: FileStates,
    /// Why it was rejected, if it was.
    rejected: Option<RejectedEdit>,
    readings: Readings<Contents, Reading>,
    /// Changes found by the last check, which may be incomplete.
    unsettled: Option<FileStates>,
    /// How often in a row a poll found a file being written.
    held: u32,
}

impl Gateway {
    /// Opens every listener, then starts the workers, all or nothing. No client is served yet.
    fn start(
        plan: Plan,
        counters: Arc<Counters>,
        seen: FileStates,
        descriptors: Descriptors,
    ) -> Result<(Self, Sockets), StartError> {
        let clock = Clock::start();
        let signals = Signals::listen().map_err(cannot("listen to signals"))?;
        let count = plan.settings.workers.get();
        let opened = open(&plan, count)?;
        let log = open_log(&plan)?;
        let access_log = access_log::Sink::start(log, plan.settings.workers, Arc::clone(&counters))
            .map_err(cannot("start the access log"))?;
        warn(&plan, clock.now());
        warn_of_descriptors(descriptors, plan.settings.limits.connections);
        let path = plan.path.clone();
        let store = plan.settings.store.as_deref().cloned();
        let store = store.map(|settings| Arc::new(Store::new(settings, plan.settings.workers)));
        let live = Arc::new(Live::start(plan, clock.now()));
        if let Some(store) = &store {
            live.divide(store.local_share(), clock.now());
        }
        let sync_thread =
            store.as_ref().map(|store| SyncThread::start(store, &live, &clock)).transpose()?;
        let shared = Shared { clock: &clock, live: &live, counters: &counters, descriptors };
        let workers = start_workers(shared, &access_log, store.as_ref())?;
        let gateway = Self {
            path,
            clock,
            live,
            descriptors,
            retired: Retired::default(),
            counters,
            readiness: Arc::default(),
            store,
            sync_thread,
            workers,
            listeners: Listeners::default(),
            access_log,
            log_has_fields: false,
            signals,
            reload_requests: mpsc::channel(1).1,
            closing: CancellationToken::new(),
            seen,
            rejected: None,
            readings: Readings::default(),
            unsettled: None,
            held: 0,
        };
        Ok((gateway, opened))
    }

    /// Waits until the store has answered, if there is one. Returns `false` if a signal ends the
    /// gateway.
    async fn wait_for_store(&mut self) -> bool {
        let Some(store) = self.store.as_deref().filter(|_| self.live.load().is_shared()) else {
            return true;
        };
        tokio::select! {
            biased;
            () = self.signals.end() => return false,
            () = store.heard(self.live.load_full().has_synced_rules(), &self.clock) => {}
        }
        self.divide();
        true
    }

    fn listen(&mut self, sockets: Vec<Opened>) -> Result<(), StartError> {
        for opened in sockets {
            self.listeners.listen(opened, &self.live, &self.workers)?;
        }
        give_way();
        Ok(())
    }

    fn serve_admin(
        &mut self,
        address: SocketAddr,
        sockets: Vec<TcpListener>,
    ) -> Result<(), StartError> {
        let Some(socket) = sockets.into_iter().next() else { return Ok(()) };
        let listener = tokio::net::TcpListener::from_std(socket)
            .map_err(cannot("serve the admin listener"))?;
        tracing::info!(listener = %"admin", %address, "listening");
        let (reload, requests) = mpsc::channel(1);
        self.reload_requests = requests;
        let state = admin::State {
            live: Arc::clone(&self.live),
            counters: Arc::clone(&self.counters),
            readiness: Arc::clone(&self.readiness),
            store: self.store.clone(),
            clock: self.clock.clone(),
            reload,
        };
        tokio::spawn(admin::serve(listener, state, self.closing.clone().cancelled_owned()));
        Ok(())
    }

    /// Runs until a signal ends it.
    async fn serve(&mut self) {
        let (mut guard, mut changes) = start_watching();
        self.watch(guard.as_mut());
        let mut poll = tokio::time::interval(watch::POLL);
        poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let routes = self.live.load().routes.len();
        tracing::info!(config = %self.path.display(), workers = self.workers.len(), routes, "ready");
        self.readiness.set_ready(true);
        self.start_watches();
        let mut pending = None;
        let mut check = None;
        let mut cause = None;
        loop {
            if check.is_none() && !self.readings.are_full() {
                check = cause.take().map(|cause| self.check_files(cause));
            }
            tokio::select! {
                biased;
                signal = next_signal(&mut self.signals, &mut pending) => match signal {
                    SignalEvent::End => break,
                    SignalEvent::Reopen => self.reopen_log(),
                    SignalEvent::Reload => cause = Some(Cause::Requested),
                },
                result = end(check.as_mut()) => {
                    check = None;
                    match result {
                        Ok(check) => self.read_if_needed(check),
                        Err(error) => tracing::error!(%error, "cannot compare the configuration with the one in force"),
                    }
                    self.follow(guard.as_mut());
                }
                (contents, reading) = self.readings.ended() => {
                    match reading {
                        // It is read again when its writer has closed it.
                        Ok(_) if contents.may_be_half(guard.as_ref()) => {}
                        Ok(reading) => self.reload(contents, reading),
                        Err(error) => tracing::error!(%error, "cannot read the configuration"),
                    }
                    self.follow(guard.as_mut());
                }
                Some(()) = self.reload_requests.recv() => cause = Some(Cause::Requested),
                Some(()) = changes.recv() => {
                    // Signals do not wait for the end of an edit.
                    pending = self.settle(&mut changes).await;
                    if !guard.as_ref().is_some_and(watch::Watcher::is_being_written) {
                        cause = cause.max(Some(Cause::Event));
                    }
                }
                () = shares_changed(self.store.as_deref()) => self.divide(),
                _ = poll.tick() => {
                    if !self.is_held(guard.as_ref()) {
                        cause = cause.max(Some(Cause::Poll));
                    }
                }
            }
        }
    }

    /// Starts the tasks that follow steps of the wall clock and the health of servers, on this
    /// thread, because only one may change the rules.
    fn start_watches(&self) {
        let clock = self.clock.clone();
        let watch = WallWatch::new(move || clock.read());
        let live = Arc::clone(&self.live);
        let counters = Arc::clone(&self.counters);
        tokio::spawn(wall::follow(watch, self.clock.clone(), live, counters));
        let watch =
            HealthWatch::new(self.clock.clone(), Arc::clone(&self.live), Connector::default());
        tokio::spawn(watch.run());
        let names = NameWatch::new(self.clock.clone(), Arc::clone(&self.live), Resolver::System);
        tokio::spawn(names.run());
    }

    /// Divides shared rules among the gateways, as the store's state requires.
    fn divide(&self) {
        if let Some(store) = &self.store {
            self.live.divide(store.local_share(), self.clock.now());
        }
    }

    /// Updates the shares of shared rules and the watched folders.
    fn follow(&self, guard: Option<&mut watch::Watcher>) {
        self.divide();
        self.watch(guard);
    }

    fn reopen_log(&self) {
        let target = &self.live.load().settings.access_log;
        match self.access_log.redirect(target) {
            Ok(()) => tracing::info!("access log reopened"),
            Err(error) => {
                tracing::error!(%error, ?target, "cannot reopen the access log; it stays where it was");
            }
        }
    }
}

/// Starts watching for file events. Without them only the timer finds changes.
fn start_watching() -> (Option<watch::Watcher>, mpsc::Receiver<()>) {
    match watch::watch() {
        Ok((guard, changes)) => (Some(guard), changes),
        Err(error) => {
            tracing::warn!(%error, every = ?watch::POLL, "cannot watch the configuration for changes; comparing it regularly instead");
            (None, mpsc::channel(1).1)
        }
    }
}

struct Shared<'a> {
    clock: &'a Clock,
    live: &'a Arc<Live>,
    counters: &'a Arc<Counters>,
    descriptors: Descriptors,
}

/// Starts the workers without listeners.
fn start_workers(
    Shared { clock, live, counters, descriptors }: Shared<'_>,
    log: &access_log::Sink,
    store: Option<&Arc<Store>>,
) -> Result<Vec<Handle>, StartError> {
    let seed = Seed::random();
    let count = live.load().settings.workers;
    let passwords = Arc::new(Passwords::new(count));
    let clients = Arc::<ClientConnections>::default();
    (0..count.get())
        .map(|index| {
            let live = Arc::clone(live);
            let counters = Arc::clone(counters);
            let log = log.handle(index);
            let store = store.cloned();
            let passwords = Arc::clone(&passwords);
            let clients = Arc::clone(&clients);
            Handle::start(index, clock.clone(), move |clock| Worker {
                live,
                pools: Pools::default(),
                connector: Connector::default(),
                tasks: TaskTracker::new(),
                counters,
                store: store.map(|store| Client::start(store, clock.clone())),
                clock,
                access_log: log,
                descriptors,
                request_log: RequestLog::default(),
                connections: Connections::default(),
                timeout_log: TimeoutLog::default(),
                request_ids: RequestIdMaker::default(),
                seed,
                passwords,
                clients,
            })
        })
        .collect::<io::Result<_>>()
        .map_err(cannot("start a worker"))
}

/// Waits until the shares of shared rules change, if there is a store.
async fn shares_changed(store: Option<&Store>) {
    match store {
        Some(store) => store.turned().await,
        None => core::future::pending().await,
    }
}

/// Takes the pending signal, or waits for one.
async fn next_signal(signals: &mut Signals, pending: &mut Option<SignalEvent>) -> SignalEvent {
    match pending.take() {
        Some(signal) => signal,
        None => signals.next().await,
    }
}

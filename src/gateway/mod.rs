//! The control thread: it wires the layers, watches the file and ends the process. No request
//! passes through it.

mod acme_thread;
mod admin_listener;
mod drain;
mod edit;
mod error;
mod expiry_watch;
mod listeners;
mod log;
mod preview;
mod process;
mod reading;
mod reload;
mod take_over;
mod threads;
mod upgrade;
mod wall;

use crate::{
    access_log,
    admin::{self, Readiness},
    clock::{Clock, WallWatch, monotonic},
    cluster::Store,
    config::{self, Live, Plan, Watched, watch},
    flow::Instant,
    meter::Counters,
    proxy::{Connector, Descriptors, HealthWatch, NameWatch, Resolver},
    route::Seed,
    shutdown::{SignalEvent, Signals},
    traces::{self, Exporter},
    workers::WorkerHandle,
};
use acme_thread::AcmeThread;
use admin_listener::AdminListener;
pub use error::StartError;
use error::cannot;
use expiry_watch::ExpiryWatch;
use listeners::{Listeners, Opened, OpenedAdmin, Sockets, open};
pub use log::Log;
pub use process::take_small_pages;
use process::{PidFile, give_way, raise_file_limit};
use reading::{Cause, Contents, FileStates, Reading, end};
use reload::{Reloads, open_log, warn_at_start};
use std::{path::Path, sync::Arc};
use take_over::{UpgradeState, resume, take_state};
use threads::{Recorded, Shared, SyncThread, start_workers};
use tokio::{sync::mpsc, task};
use upgrade::{IncomingState, Inherited, Predecessor, Program, Successor};

/// Runs the gateway with the file at `path` until a signal ends it, or another process has taken
/// over. The file at `pid_file` names the process that serves. Calls `listening` when the listeners
/// accept connections.
///
/// # Errors
///
/// See [`StartError`]. After the start only a signal ends it.
pub fn run(
    path: &Path,
    pid_file: Option<&Path>,
    log: &Log,
    counters: Arc<Counters>,
    listening: impl FnOnce(),
) -> Result<(), StartError> {
    let descriptors = raise_file_limit();

    let (predecessor, inherited) = upgrade::find()?;
    let predecessor = predecessor.map(Arc::new);
    let origin = Origin {
        predecessor: predecessor.clone(),
        inherited,
        pid_file: PidFile::new(pid_file),
        descriptors,
    };

    let ended = run_from(origin, path, log, counters, listening);
    if let (Some(predecessor), Err(error)) = (&predecessor, &ended) {
        predecessor.fail(&error.summary());
    }
    ended
}

/// The values with which a process starts.
struct Origin {
    /// The process to take over from, if there is one.
    predecessor: Option<Arc<Predecessor>>,
    inherited: Inherited,
    pid_file: PidFile,
    descriptors: Descriptors,
}

fn run_from(
    origin: Origin,
    path: &Path,
    log: &Log,
    counters: Arc<Counters>,
    listening: impl FnOnce(),
) -> Result<(), StartError> {
    let mut seen = FileStates::look(&Watched::files([path.to_owned()]));
    let plan = reading::read(&mut seen, || config::read(path)).map_err(StartError::Config)?;

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(cannot("start a runtime"))?;

    let ended = runtime.block_on(async {
        let predecessor = origin.predecessor.clone();
        let (mut gateway, sockets, state) = Gateway::start(plan, counters, seen, origin)?;
        gateway.reloads.log_has_fields = log.is_json();
        let end = match gateway.open(sockets, predecessor.zip(state)).await? {
            Opening::Ended => End::Signal,
            Opening::Open => {
                listening();
                gateway.start_watches();
                gateway.serve().await
            }
        };

        gateway.drain(end).await;
        Ok(())
    });

    // This does not wait for a reading of the file.
    runtime.shutdown_background();
    ended
}

/// True if the listeners are open.
enum Opening {
    Open,
    /// A signal ended the gateway before.
    Ended,
}

/// Why the gateway ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Signal,
    /// The process with this id serves in its place.
    HandedOver(u32),
}

/// The control loop: it gets the events of the process, and lets the other parts act on them.
struct Gateway {
    clock: Clock,
    /// The start of the process.
    started: Instant,
    live: Arc<Live>,
    counters: Arc<Counters>,
    readiness: Arc<Readiness>,
    signals: Signals,
    preview: preview::Control,
    edit: edit::Control,
    /// The parts of requests that the admin pages show.
    recorded: Recorded,
    /// The certificates of which the log has warned.
    expiry: ExpiryWatch,
    serving: Serving,
    acme: AcmeThread,
    reloads: Reloads,
    upgrade: UpgradeState,
}

/// The parts that serve requests: listeners, workers, and the threads beside them.
struct Serving {
    /// The shared store, if any.
    store: Option<Arc<Store>>,
    sync_thread: Option<SyncThread>,
    workers: Vec<WorkerHandle>,
    listeners: Listeners,
    admin: AdminListener,
    access_log: access_log::Sink,
    /// Sends traces until all workers have ended.
    exporter: task::JoinHandle<()>,
    descriptors: Descriptors,
}

fn open_store(plan: &Plan) -> Option<Arc<Store>> {
    let settings = plan.settings.store.as_deref().cloned()?;
    Some(Arc::new(Store::new(settings, plan.settings.workers)))
}

/// Returns the clock and the key of fingerprints: those of the process that served before, or new
/// ones.
fn clock_and_seed(predecessor: Option<&Predecessor>) -> (Clock, Seed) {
    let clock = predecessor.map_or_else(Clock::start, Predecessor::clock);
    let seed = predecessor.map_or_else(Seed::random, Predecessor::seed);
    (clock, seed)
}

/// Prepares the signals for the process to end, or to start another one in its place.
fn own_process() -> Result<(Signals, Program, Successor), StartError> {
    let signals = Signals::listen().map_err(cannot("listen to signals"))?;
    let program = Program::own().map_err(cannot("find the own program"))?;
    let successor = Successor::start().map_err(cannot("start a thread"))?;
    Ok((signals, program, successor))
}

impl Gateway {
    /// Opens every listener, then starts the workers, all or nothing. No client is served yet.
    fn start(
        plan: Plan,
        counters: Arc<Counters>,
        seen: FileStates,
        origin: Origin,
    ) -> Result<(Self, Sockets, Option<IncomingState>), StartError> {
        let Origin { predecessor, mut inherited, pid_file, descriptors } = origin;
        let (clock, secret) = clock_and_seed(predecessor.as_deref());
        let (signals, program, successor) = own_process()?;

        let opened = open(&plan, plan.settings.workers.get(), &mut inherited)?;
        let access_log = start_log(&plan, &counters)?;
        warn_at_start(&plan, descriptors, clock.now());

        let path = plan.path.clone();
        let store = open_store(&plan);

        let state = predecessor.as_deref().map(|old| take_state(old, &clock, &plan)).transpose()?;
        let live = Arc::new(resume(plan, &clock, state.as_ref()));
        let sync_thread = share(store.as_ref(), &live, &clock)?;

        let preview = preview::Control::new(secret);
        let recorded = Recorded::default();
        let (spans, exporter) = start_exporter(&live, &clock, &counters);

        let shared = Shared {
            clock: &clock,
            live: &live,
            counters: &counters,
            descriptors,
            preview: &preview,
            recorded: &recorded,
            spans,
        };
        let workers = start_workers(shared, &access_log, store.as_ref())?;

        let serving = Serving {
            store,
            sync_thread,
            workers,
            listeners: Listeners::default(),
            admin: AdminListener::default(),
            access_log,
            exporter,
            descriptors,
        };

        let gateway = Self {
            started: clock.now(),
            clock,
            live,
            counters,
            readiness: Arc::default(),
            signals,
            preview,
            edit: edit::Control::default(),
            recorded,
            expiry: ExpiryWatch::default(),
            serving,
            acme: AcmeThread::default(),
            reloads: Reloads::new(path, seen),
            upgrade: UpgradeState::new(program, successor, secret, pid_file),
        };

        Ok((gateway, Sockets { inherited: inherited.finish(), ..opened }, state))
    }

    /// Opens the listeners, after `predecessor` has stopped accepting if there is one.
    async fn open(
        &mut self,
        sockets: Sockets,
        predecessor: Option<(Arc<Predecessor>, IncomingState)>,
    ) -> Result<Opening, StartError> {
        let Sockets { listeners, admin, inherited } = sockets;
        if let Some((predecessor, mut state)) = predecessor {
            if !self.wait_for_store().await {
                return Ok(Opening::Ended);
            }
            predecessor.stop(inherited, &mut state)?;
            self.open_admin(admin)?;
            self.listen(listeners)?;
            predecessor.release(&mut state)?;
            self.upgrade.late = Some(predecessor.follow(state).map_err(cannot("start a thread"))?);
        } else {
            // The admin listener starts before the wait for the store, so that probes are answered.
            self.open_admin(admin)?;
            if !self.wait_for_store().await {
                return Ok(Opening::Ended);
            }
            self.listen(listeners)?;
        }

        give_way();
        self.upgrade.pid_file.write().map_err(cannot("write the pid file"))?;
        Ok(Opening::Open)
    }

    /// Waits until the store has answered, if there is one. Returns `false` if a signal ends the
    /// gateway.
    async fn wait_for_store(&mut self) -> bool {
        let Some(store) = self.serving.store.as_deref().filter(|_| self.live.load().is_shared())
        else {
            return true;
        };
        tokio::select! {
            biased;
            () = self.signals.end() => return false,
            () = store.wait_until_settled(self.live.load_full().has_synced_rules(), &self.clock) => {}
        }
        self.divide();
        true
    }

    fn open_admin(&mut self, opened: Option<OpenedAdmin>) -> Result<(), StartError> {
        let Some(opened) = opened else { return Ok(()) };
        let state = self.admin_state();
        self.serving.admin.open(opened, state).map_err(cannot("serve the admin listener"))
    }

    /// Returns what makes the state of the admin pages, from the sender of their requests.
    fn admin_state(&self) -> impl Fn(mpsc::Sender<()>) -> admin::State + use<> {
        let live = Arc::clone(&self.live);
        let counters = Arc::clone(&self.counters);
        let readiness = Arc::clone(&self.readiness);
        let store = self.serving.store.clone();
        let clock = self.clock.clone();
        let previews = Arc::clone(&self.preview.previews);
        let preview = self.preview.sender.clone();
        let saves = self.edit.sender.clone();
        let rejections = Arc::clone(&self.recorded.rejections);
        let worst_paths = Arc::clone(&self.recorded.worst_paths);
        let watching = self.serving.access_log.watching();
        let seed = self.upgrade.seed;
        let started = self.started;
        let key_names = Arc::clone(&self.recorded.key_names);
        let acme = Arc::clone(&self.acme.status);

        move |reload| admin::State {
            live: Arc::clone(&live),
            counters: Arc::clone(&counters),
            readiness: Arc::clone(&readiness),
            store: store.clone(),
            clock: clock.clone(),
            started,
            reload,
            previews: Arc::clone(&previews),
            preview: preview.clone(),
            saves: saves.clone(),
            rejections: Arc::clone(&rejections),
            worst_paths: Arc::clone(&worst_paths),
            watching: watching.clone(),
            seed,
            key_names: Arc::clone(&key_names),
            acme: Arc::clone(&acme),
        }
    }

    fn listen(&mut self, sockets: Vec<Opened>) -> Result<(), StartError> {
        for opened in sockets {
            self.serving.listeners.listen(opened, &self.live, &self.serving.workers)?;
        }
        Ok(())
    }

    /// Runs until a signal ends it, or another process serves in its place.
    async fn serve(&mut self) -> End {
        let (mut guard, mut changes) = start_watching();
        self.watch(guard.as_mut());

        let mut poll = tokio::time::interval(watch::POLL);
        poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        self.say_ready();

        let mut pending = None;
        let mut check = None;
        let mut cause = None;
        loop {
            // The state must not be converted while it is handed over.
            if check.is_none()
                && !self.reloads.readings.are_full()
                && !self.upgrade.successor.is_busy()
            {
                check = cause.take().map(|cause| self.check_files(cause));
            }
            if check.is_none() && cause.is_none() && self.reloads.readings.latest().is_none() {
                self.upgrade.notify.reloaded();
            }

            tokio::select! {
                biased;
                signal = next_signal(&mut self.signals, &mut pending) => {
                    if signal == SignalEvent::End {
                        return End::Signal;
                    }
                    cause = cause.max(self.on_signal(signal));
                }
                event = self.upgrade.successor.event() => {
                    if let Some(end) = self.on_upgrade(event).await {
                        return end;
                    }
                }
                result = end(check.as_mut()) => {
                    check = None;
                    self.on_check(result);
                    self.follow(guard.as_mut());
                }
                (contents, reading) = self.reloads.readings.ended(), if !self.upgrade.successor.is_busy() => {
                    self.on_reading(contents, reading, guard.as_ref());
                    self.follow(guard.as_mut());
                }
                Some(()) = self.serving.admin.requests.recv() => cause = Some(Cause::Requested),
                event = self.preview.event() => self.on_preview(event),
                event = self.edit.event() => self.on_edit(event),
                Some(()) = changes.recv() => {
                    // Signals do not wait for the end of an edit.
                    pending = self.settle(&mut changes).await;
                    if !guard.as_ref().is_some_and(watch::Watcher::is_being_written) {
                        cause = cause.max(Some(Cause::Event));
                    }
                }
                () = self.acme.changed() => cause = cause.max(Some(Cause::Event)),
                () = shares_changed(self.serving.store.as_deref()) => self.divide(),
                _ = poll.tick() => {
                    if self.on_poll(guard.as_ref()) {
                        cause = cause.max(Some(Cause::Poll));
                    }
                }
            }
        }
    }

    /// Applies what was read, unless its writer may not have closed it: then it is read again.
    fn on_reading(
        &mut self,
        contents: Contents,
        reading: Result<Reading, task::JoinError>,
        guard: Option<&watch::Watcher>,
    ) {
        match reading {
            Ok(_) if contents.may_be_half(guard) => {}
            Ok(reading) => self.reload(contents, reading),
            Err(error) => tracing::error!(%error, "cannot read the configuration"),
        }
    }

    /// Returns whether the files may be checked now, and does what else comes at intervals.
    fn on_poll(&mut self, guard: Option<&watch::Watcher>) -> bool {
        self.warn_of_certificates();
        !self.is_held(guard)
    }

    /// Logs which certificates end soon or have ended, each stage once.
    fn warn_of_certificates(&mut self) {
        let certificates = self.live.load().certificates();
        self.expiry.warn(&certificates, self.clock.wall_now());
    }

    fn say_ready(&self) {
        let workers = self.serving.workers.len();
        let routes = self.live.load().file_routes().count();
        tracing::info!(config = %self.reloads.path.display(), workers, routes, "ready");
        self.readiness.set_ready(true);
        self.upgrade.notify.ready();
    }

    /// Does what a signal asks for, but for the end. Returns why the files are to be checked, if
    /// they are.
    fn on_signal(&mut self, signal: SignalEvent) -> Option<Cause> {
        match signal {
            SignalEvent::Reopen => self.reopen_log(),
            SignalEvent::Upgrade => self.begin_upgrade(),
            SignalEvent::Reload => {
                self.upgrade.notify.reloading(monotonic());
                return Some(Cause::Requested);
            }
            SignalEvent::End => {}
        }
        None
    }

    /// Starts the tasks that follow steps of the wall clock and the health of servers, on this
    /// thread, because only one may change the rules.
    fn start_watches(&mut self) {
        self.follow_acme();
        let clock = self.clock.clone();
        let watch = WallWatch::new(move || clock.read()).knowing(self.clock.wall_offset());
        let followers = wall::Followers {
            clock: self.clock.clone(),
            live: Arc::clone(&self.live),
            previews: Arc::clone(&self.preview.previews),
            counters: Arc::clone(&self.counters),
        };
        tokio::spawn(wall::follow(watch, self.upgrade.successor.watch_busy(), followers));
        let previews = Arc::clone(&self.preview.previews);
        tokio::spawn(preview::watch(previews, self.clock.clone()));
        let watch =
            HealthWatch::new(self.clock.clone(), Arc::clone(&self.live), Connector::default());
        tokio::spawn(watch.run());
        let names = NameWatch::new(self.clock.clone(), Arc::clone(&self.live), Resolver::default());
        tokio::spawn(names.run());
    }

    /// Divides shared rules among the gateways, as the store's state requires. During an upgrade
    /// [`resume`](Self::resume) or the new process does it, because the rules are being exported.
    fn divide(&self) {
        if let Some(store) = &self.serving.store
            && !self.upgrade.successor.is_busy()
        {
            self.live.divide(store.local_share(), self.clock.now());
        }
    }

    /// Updates the shares of shared rules and the watched folders.
    fn follow(&mut self, guard: Option<&mut watch::Watcher>) {
        self.divide();
        self.follow_acme();
        self.watch(guard);
    }

    fn reopen_log(&self) {
        let target = &self.live.load().settings.access_log;
        match self.serving.access_log.redirect(target) {
            Ok(()) => tracing::info!("access log reopened"),
            Err(error) => {
                tracing::error!(%error, ?target, "cannot reopen the access log; the old file stays in use");
            }
        }
    }
}

/// Begins to share rules by the store, if there is one.
fn share(
    store: Option<&Arc<Store>>,
    live: &Arc<Live>,
    clock: &Clock,
) -> Result<Option<SyncThread>, StartError> {
    let Some(store) = store else { return Ok(None) };
    live.divide(store.local_share(), clock.now());
    SyncThread::start(store, live, clock).map(Some)
}

/// Starts what sends traces, and returns where recorders put them.
fn start_exporter(
    live: &Arc<Live>,
    clock: &Clock,
    counters: &Arc<Counters>,
) -> (traces::SpanQueue, task::JoinHandle<()>) {
    let (spans, queued) = traces::queue(Arc::clone(counters));
    let exporter = Exporter::new(queued, Arc::clone(live), clock.clone(), Arc::clone(counters));
    (spans, tokio::spawn(exporter.run()))
}

fn start_log(plan: &Plan, counters: &Arc<Counters>) -> Result<access_log::Sink, StartError> {
    let log = open_log(plan)?;
    access_log::Sink::start(log, plan.settings.workers, Arc::clone(counters))
        .map_err(cannot("start the access log"))
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

/// Waits until the shares of shared rules change, if there is a store.
async fn shares_changed(store: Option<&Store>) {
    match store {
        Some(store) => store.share_changed().await,
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

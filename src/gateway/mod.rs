//! The control thread: it wires the layers, watches the file, and ends the
//! process in good order. No request passes through it.
//!
//! Here is what it owns and its loop; `drain.rs` ends it, `files.rs` knows what a configuration is
//! made of, `readings.rs` which readings of it are under way, `reload.rs` puts another one in
//! force, `listeners.rs` opens and closes ports, `log.rs` writes the gateway's own log, `system.rs` asks
//! the system for what suits a gateway.

mod catch_up;
mod drain;
mod error;
mod exchanger;
mod files;
mod listeners;
mod log;
mod prepare;
mod reading;
mod readings;
mod reload;
mod system;
mod wall;

use crate::{
    access_log,
    admin::{self, Readiness},
    clock::{Clock, WallWatch},
    cluster::{Client, Store},
    config::{self, Live, Plan, Retired, watch},
    meter::Counters,
    proxy::{Connections, Connector, Descriptors, Pools, RequestLog, TimeoutLog, Worker},
    route::Seed,
    shutdown::{Signals, Wish},
    workers::Handle,
};
pub use error::StartError;
use error::cannot;
use exchanger::Exchanger;
use files::Seen;
use listeners::{Listeners, Opened, Sockets, open};
pub use log::Log;
use prepare::{open_log, warn, warn_of_descriptors};
use reading::{Contents, Reading, Refusal, Why};
use readings::{Readings, end};
use std::{
    io,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::Arc,
};
pub use system::take_small_pages;
use system::{give_way, raise_file_limit};
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Runs the gateway with the file at `path` until it is asked to end. `log` has been started,
/// `counters` are the process's. Calls `listening` once its listeners accept connections.
///
/// # Errors
///
/// See [`StartError`]; once started, nothing ends it but a signal.
pub fn run(
    path: &Path,
    log: &Log,
    counters: Arc<Counters>,
    listening: impl FnOnce(),
) -> Result<(), StartError> {
    let descriptors = raise_file_limit();
    let mut seen = Seen::look(&[path.to_owned()]);
    let plan = reading::read(path, &mut seen, || config::read(path)).map_err(StartError::Config)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(cannot("start a runtime"))?;
    let ended = runtime.block_on(async {
        let (mut gateway, (sockets, admin)) = Gateway::start(plan, counters, seen, descriptors)?;
        gateway.log_has_fields = log.is_json();
        // Before the store is waited for, as who probes the gateway meanwhile is to be answered.
        if let Some((address, sockets)) = admin {
            gateway.administer(address, sockets)?;
        }
        if gateway.hear_store().await {
            gateway.listen(sockets)?;
            listening();
            gateway.serve().await;
        }
        gateway.drain().await;
        Ok(())
    });
    // A file that is read just then is waited for no more.
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
    /// What gateways share, if they do.
    store: Option<Arc<Store>>,
    exchanger: Option<Exchanger>,
    workers: Vec<Handle>,
    listeners: Listeners,
    access_log: access_log::Sink,
    /// Whether programs read the gateway's own log.
    log_has_fields: bool,
    signals: Signals,
    /// From the admin listener.
    reload_requests: mpsc::Receiver<()>,
    /// Ends the admin listener.
    closing: CancellationToken,
    /// The files of the configuration that was read last, in force or refused.
    seen: Seen,
    /// Why it was refused, if it was.
    refused: Option<Refusal>,
    readings: Readings<Contents, Reading>,
    /// What the last look found changed, which may be half of what it is to be.
    unsettled: Option<Seen>,
    /// How often in a row it was time to look while a file was being written.
    held: u32,
}

impl Gateway {
    /// Opens every listener, then starts the workers: all or nothing. No client is served yet.
    fn start(
        plan: Plan,
        counters: Arc<Counters>,
        seen: Seen,
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
        let store = store.map(|it| Arc::new(Store::new(it, plan.settings.workers)));
        let live = Arc::new(Live::start(plan, clock.now()));
        if let Some(store) = &store {
            live.divide(store.division(), clock.now());
        }
        let exchanger = store.as_ref().map(|it| Exchanger::start(it, &live, &clock)).transpose()?;
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
            exchanger,
            workers,
            listeners: Listeners::default(),
            access_log,
            log_has_fields: false,
            signals,
            reload_requests: mpsc::channel(1).1,
            closing: CancellationToken::new(),
            seen,
            refused: None,
            readings: Readings::default(),
            unsettled: None,
            held: 0,
        };
        Ok((gateway, opened))
    }

    /// Waits until the store has been heard, if it can be: no client is served before. Returns
    /// `false` if the gateway is to end.
    async fn hear_store(&mut self) -> bool {
        let Some(store) = self.store.as_deref().filter(|_| self.live.load().is_shared()) else {
            return true;
        };
        tokio::select! {
            biased;
            () = self.signals.end() => return false,
            () = store.heard(self.live.load_full().exchanges(), &self.clock) => {}
        }
        self.divide();
        true
    }

    /// Begins to serve.
    fn listen(&mut self, sockets: Vec<Opened>) -> Result<(), StartError> {
        for opened in sockets {
            self.listeners.listen(opened, &self.live, &self.workers)?;
        }
        give_way();
        Ok(())
    }

    /// Serves the admin listener on this thread.
    fn administer(
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
        let (mut guard, mut changes) = match watch::watch() {
            Ok((guard, changes)) => (Some(guard), changes),
            Err(error) => {
                tracing::warn!(%error, every = ?watch::POLL, "cannot watch the configuration for changes; comparing it regularly instead");
                (None, mpsc::channel(1).1)
            }
        };
        self.watch(guard.as_mut());
        let mut poll = tokio::time::interval(watch::POLL);
        poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let routes = self.live.load().routes.len();
        tracing::info!(config = %self.path.display(), workers = self.workers.len(), routes, "ready");
        self.readiness.set_ready(true);
        self.follow_wall();
        let (mut said, mut looking, mut wanted) = (None, None, None);
        loop {
            if looking.is_none() && !self.readings.are_full() {
                looking = wanted.take().map(|why| self.look(why));
            }
            tokio::select! {
                biased;
                wish = next_wish(&mut self.signals, &mut said) => match wish {
                    Wish::End => break,
                    Wish::Reopen => self.reopen_log(),
                    Wish::Reload => wanted = Some(Why::Asked),
                },
                look = end(looking.as_mut()) => {
                    looking = None;
                    match look {
                        Ok(look) => self.read_if_needed(look),
                        Err(error) => tracing::error!(%error, "cannot compare the configuration with the one in force"),
                    }
                    self.follow(guard.as_mut());
                }
                (contents, reading) = self.readings.ended() => {
                    match reading {
                        // It is read again once it is closed.
                        Ok(_) if contents.may_be_half(guard.as_ref()) => {}
                        Ok(reading) => self.reload(contents, reading),
                        Err(error) => tracing::error!(%error, "cannot read the configuration"),
                    }
                    self.follow(guard.as_mut());
                }
                Some(()) = self.reload_requests.recv() => wanted = Some(Why::Asked),
                Some(()) = changes.recv() => {
                    // A signal does not wait for an edit to be over.
                    said = self.settle(&mut changes).await;
                    if !guard.as_ref().is_some_and(watch::Watcher::is_being_written) {
                        wanted = wanted.max(Some(Why::Event));
                    }
                }
                () = turned(self.store.as_deref()) => self.divide(),
                _ = poll.tick() => {
                    if !self.is_held(guard.as_ref()) {
                        wanted = wanted.max(Some(Why::Poll));
                    }
                }
            }
        }
    }

    /// Has everything follow the wall's clock. On this thread, as only one at a time may change
    /// the rules.
    fn follow_wall(&self) {
        let clock = self.clock.clone();
        let watch = WallWatch::new(move || clock.read());
        let (live, counters) = (Arc::clone(&self.live), Arc::clone(&self.counters));
        tokio::spawn(wall::follow(watch, self.clock.clone(), live, counters));
    }

    /// Divides the rules that gateways share as the store says.
    fn divide(&self) {
        if let Some(store) = &self.store {
            self.live.divide(store.division(), self.clock.now());
        }
    }

    /// Follows what may have changed beside the file: how shared rules are divided, and by
    /// which folders the way to it goes.
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

/// What all workers have.
struct Shared<'a> {
    clock: &'a Clock,
    live: &'a Arc<Live>,
    counters: &'a Arc<Counters>,
    descriptors: Descriptors,
}

/// Starts the workers, which have nothing to accept yet.
fn start_workers(
    Shared { clock, live, counters, descriptors }: Shared<'_>,
    log: &access_log::Sink,
    store: Option<&Arc<Store>>,
) -> Result<Vec<Handle>, StartError> {
    let (seed, count) = (Seed::random(), live.load().settings.workers.get());
    (0..count)
        .map(|index| {
            let (live, counters, log) = (Arc::clone(live), Arc::clone(counters), log.handle(index));
            let store = store.cloned();
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
                seed,
            })
        })
        .collect::<io::Result<_>>()
        .map_err(cannot("start a worker"))
}

/// Waits until shared rules are to be divided otherwise, if there is a store.
async fn turned(store: Option<&Store>) {
    match store {
        Some(store) => store.turned().await,
        None => core::future::pending().await,
    }
}

/// Takes the wish that was noted, or waits for one.
async fn next_wish(signals: &mut Signals, said: &mut Option<Wish>) -> Wish {
    match said.take() {
        Some(wish) => wish,
        None => signals.next().await,
    }
}

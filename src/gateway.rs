//! The control thread: it wires the layers, watches the file, and ends the
//! process in good order. No request passes through it.

use crate::{
    access_log,
    admin::{self, Readiness},
    certs,
    clock::Clock,
    config::{self, Diagnostics, Live, Plan, Retired, watch},
    meter::Counters,
    proxy::{Acceptor, Bound, Connections, Connector, Pools, Worker, bind, certificates},
    route::Seed,
    shutdown::{Signals, Wish},
    workers::Handle,
};
use core::{net::SocketAddr, sync::atomic::Ordering::Relaxed};
use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// How much the control thread gives way: compiling ten thousand routes must not
/// take a core from a worker.
const NICENESS: i32 = 5;

/// Why the gateway could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration has errors.
    #[error("{0}")]
    Config(Diagnostics),
    /// A listener cannot be opened.
    #[error("listener {name} cannot listen on {address}")]
    Listen {
        /// The listener's name.
        name: Arc<str>,
        /// Its address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The operating system refused something else.
    #[error("cannot {what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// Returns what turns an error of the operating system into a [`StartError`].
fn cannot(what: &'static str) -> impl FnOnce(io::Error) -> StartError {
    move |source| StartError::System { what, source }
}

/// Runs the gateway with the file at `path` until it is asked to end.
///
/// # Errors
///
/// See [`StartError`]; once started, nothing ends it but a signal.
pub fn run(path: &Path) -> Result<(), StartError> {
    raise_file_limit();
    make_certificates(path);
    let plan = config::read(path).map_err(StartError::Config)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(cannot("start a runtime"))?;
    runtime.block_on(async {
        let mut gateway = Gateway::start(plan)?;
        gateway.serve().await;
        Ok(())
    })
}

/// Makes the development certificate where the file at `path` asks for it, and
/// returns whether it did.
pub fn make_certificates(path: &Path) -> bool {
    let mut made = false;
    for (certificate, key) in config::certificate_files(path) {
        match certs::make_if_missing(&certificate, &key) {
            Ok(false) => {}
            Ok(true) => {
                made = true;
                tracing::info!(
                    certificate = %certificate.display(),
                    "made a development certificate for localhost; it is for trying only, see certs/README.md"
                );
            }
            Err(error) => {
                tracing::warn!(certificate = %certificate.display(), %error, "cannot make a certificate");
            }
        }
    }
    made
}

/// A listener's sockets, one for each worker.
struct Opened {
    name: Arc<str>,
    configured: SocketAddr,
    address: SocketAddr,
    sockets: Vec<std::net::TcpListener>,
}

fn open(name: &Arc<str>, configured: SocketAddr, count: usize) -> Result<Opened, StartError> {
    let (address, sockets) = bind(configured, count).map_err(|source| StartError::Listen {
        name: Arc::clone(name),
        address: configured,
        source,
    })?;
    Ok(Opened { name: Arc::clone(name), configured, address, sockets })
}

struct Gateway {
    path: PathBuf,
    clock: Clock,
    live: Arc<Live>,
    retired: Retired,
    counters: Arc<Counters>,
    readiness: Arc<Readiness>,
    workers: Vec<Handle>,
    /// Listeners by name, with the address as configured.
    listeners: HashMap<Arc<str>, SocketAddr>,
    access_log: access_log::Sink,
    signals: Signals,
    reload_requests: mpsc::Receiver<()>,
    /// Ends the admin listener.
    closing: CancellationToken,
    /// What the files held when they were read last.
    fingerprint: u64,
}

impl Gateway {
    /// Opens every listener, then starts the workers: all or nothing.
    fn start(plan: Plan) -> Result<Self, StartError> {
        let clock = Clock::start();
        let count = plan.settings.workers.get();
        let sockets = plan
            .listeners
            .iter()
            .map(|listener| open(&listener.name, listener.address, count))
            .collect::<Result<Vec<_>, _>>()?;
        let admin =
            plan.settings.admin.map(|address| open(&Arc::from("admin"), address, 1)).transpose()?;
        let counters = Arc::<Counters>::default();
        let access_log = access_log::Sink::open(
            &plan.settings.access_log,
            plan.settings.workers,
            Arc::clone(&counters),
        )
        .map_err(cannot("open the access log"))?;
        warn(&plan);
        let (path, fingerprint) = (plan.path.clone(), config::fingerprint(&plan.files));
        let live = Arc::new(Live::start(plan, clock.now()));
        let workers = start_workers(count, &clock, &live, &counters, &access_log)?;
        let (requests, reload_requests) = mpsc::channel(1);
        let mut gateway = Self {
            path,
            clock,
            live,
            retired: Retired::default(),
            counters,
            readiness: Arc::default(),
            workers,
            listeners: HashMap::new(),
            access_log,
            signals: Signals::listen().map_err(cannot("listen to signals"))?,
            reload_requests,
            closing: CancellationToken::new(),
            fingerprint,
        };
        if let Some(opened) = admin {
            gateway.administer(opened, requests)?;
        }
        for opened in sockets {
            gateway.listen(opened)?;
        }
        give_way();
        Ok(gateway)
    }

    /// Serves the admin listener on this thread.
    fn administer(&self, opened: Opened, reload: mpsc::Sender<()>) -> Result<(), StartError> {
        let Some(socket) = opened.sockets.into_iter().next() else { return Ok(()) };
        let listener = tokio::net::TcpListener::from_std(socket)
            .map_err(cannot("serve the admin listener"))?;
        tracing::info!(listener = %opened.name, address = %opened.address, "listening");
        let state = admin::State {
            live: Arc::clone(&self.live),
            counters: Arc::clone(&self.counters),
            readiness: Arc::clone(&self.readiness),
            clock: self.clock.clone(),
            reload,
        };
        tokio::spawn(admin::serve(listener, state, self.closing.clone().cancelled_owned()));
        Ok(())
    }

    /// Gives every worker its socket of a listener.
    fn listen(&mut self, opened: Opened) -> Result<(), StartError> {
        let Opened { name, configured, address, sockets } = opened;
        let tls = certificates(&self.live.load(), &name).is_some();
        let acceptor = tls
            .then(|| Acceptor::new(Arc::clone(&self.live), Arc::clone(&name)))
            .transpose()
            .map_err(cannot("set up TLS"))?;
        tracing::info!(listener = %name, %address, tls, "listening");
        for (worker, socket) in self.workers.iter().zip(sockets) {
            worker.listen(Bound { name: Arc::clone(&name), socket, tls: acceptor.clone() });
        }
        self.listeners.insert(name, configured);
        Ok(())
    }

    /// Runs until a signal ends it.
    async fn serve(&mut self) {
        let watching = watch::watch(&self.live.load().files);
        let (mut guard, mut changes) = match watching {
            Ok((guard, changes)) => (Some(guard), changes),
            Err(error) => {
                tracing::warn!(%error, every = ?watch::POLL, "cannot watch the configuration; looking at it");
                (None, mpsc::channel(1).1)
            }
        };
        let mut poll = tokio::time::interval(watch::POLL);
        poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let routes = self.live.load().routes.len();
        tracing::info!(config = %self.path.display(), workers = self.workers.len(), routes, "ready");
        self.readiness.set_ready(true);
        let mut said = None;
        loop {
            let wish = tokio::select! {
                biased;
                wish = next_wish(&mut self.signals, &mut said) => Some(wish),
                Some(()) = self.reload_requests.recv() => Some(Wish::Reload),
                Some(()) = changes.recv() => {
                    // A signal does not wait for an edit to be over.
                    said = self.settle(&mut changes).await;
                    None
                }
                _ = poll.tick() => None,
            };
            let asked = match wish {
                Some(Wish::End) => break,
                Some(Wish::Reopen) => {
                    self.reopen_log();
                    continue;
                }
                Some(Wish::Reload) => true,
                None => false,
            };
            self.reload(asked);
            if let Some(guard) = &mut guard
                && let Err(error) = guard.set(&self.live.load().files)
            {
                tracing::debug!(%error, "a folder cannot be watched");
            }
        }
        self.drain().await;
    }

    /// Waits until an edit is over, or until a signal comes, which it returns.
    async fn settle(&mut self, changes: &mut mpsc::Receiver<()>) -> Option<Wish> {
        let latest = self.clock.now() + watch::QUIET_MOST;
        while self.clock.now() < latest {
            tokio::select! {
                wish = self.signals.next() => return Some(wish),
                more = self.clock.timeout(watch::QUIET, changes.recv()) => {
                    if !matches!(more, Ok(Some(()))) {
                        break;
                    }
                }
            }
        }
        None
    }

    fn reopen_log(&self) {
        match self.access_log.redirect(&self.live.load().settings.access_log) {
            Ok(()) => tracing::info!("access log opened again"),
            Err(error) => {
                tracing::error!(%error, "the access log cannot be opened again; it stays where it was");
            }
        }
    }

    /// Reads the files, unless they are as they were, and puts them in force if
    /// nothing is wrong with them.
    fn reload(&mut self, asked: bool) {
        self.retired.sweep();
        let files = self.live.load().files.clone();
        let fingerprint = config::fingerprint(&files);
        if fingerprint == self.fingerprint {
            if asked {
                tracing::info!(config = %self.path.display(), "unchanged");
            }
            return;
        }
        self.fingerprint = fingerprint;
        let read = self.live.read(&self.path).or_else(|problems| {
            if make_certificates(&self.path) { self.live.read(&self.path) } else { Err(problems) }
        });
        match read {
            Ok(plan) => self.take(plan),
            Err(problems) => self.refuse(&problems.summary(), &problems.to_string()),
        }
    }

    /// Puts `plan` in force, listeners included, or leaves everything as it was.
    fn take(&mut self, plan: Plan) {
        let new = plan
            .listeners
            .iter()
            .filter(|listener| self.listeners.get(&listener.name) != Some(&listener.address));
        let opened = new
            .map(|listener| open(&listener.name, listener.address, self.workers.len()))
            .collect::<Result<Vec<_>, _>>();
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => {
                return self.refuse(&error.to_string(), &format!("error: {}", chain(&error)));
            }
        };
        let moved_log = plan.settings.access_log != self.live.load().settings.access_log;
        warn(&plan);
        let files = plan.files.clone();
        let summary = self.live.apply(plan, self.clock.now(), &mut self.retired);
        self.fingerprint = config::fingerprint(&files);
        self.close_listeners();
        for listener in opened {
            if let Err(error) = self.listen(listener) {
                tracing::error!(error = %chain(&error), "a listener of the new configuration is lost");
            }
        }
        if moved_log {
            self.reopen_log();
        }
        self.counters.reloads_ok.fetch_add(1, Relaxed);
        self.counters
            .last_reload_seconds
            .store(self.clock.now().as_nanos() / 1_000_000_000, Relaxed);
        self.readiness.reloaded(self.clock.now(), &summary.to_string());
        match summary.warning() {
            None => tracing::info!("{summary}"),
            Some(warning) => tracing::warn!("{summary}; {warning}"),
        }
    }

    /// Closes the listeners that the configuration in force does not have, or has
    /// elsewhere.
    fn close_listeners(&mut self) {
        let snapshot = Arc::clone(&self.live.load());
        let stays = |name: &str, address: SocketAddr| {
            snapshot
                .listeners
                .iter()
                .any(|listener| &*listener.name == name && listener.address == address)
        };
        let gone: Vec<_> = self
            .listeners
            .iter()
            .filter(|(name, address)| !stays(name, **address))
            .map(|(name, _)| Arc::clone(name))
            .collect();
        for name in gone {
            tracing::info!(listener = %name, "closing");
            self.listeners.remove(&name);
            for worker in &self.workers {
                worker.close(Arc::clone(&name));
            }
        }
    }

    /// Says what is wrong, once, and keeps what is in force.
    fn refuse(&self, line: &str, drawing: &str) {
        self.counters.reloads_failed.fetch_add(1, Relaxed);
        self.readiness.refused(self.clock.now(), drawing);
        tracing::error!(
            "configuration refused, the last good one stays in force: {line}\n{drawing}"
        );
    }

    /// Ends in good order, or at once at the second signal or the deadline.
    async fn drain(&mut self) {
        let limit = self.live.load().settings.drain_timeout;
        tracing::info!(?limit, "draining; a second signal ends at once");
        self.readiness.set_ready(false);
        for worker in &self.workers {
            worker.drain();
        }
        let (workers, signals) = (&mut self.workers, &mut self.signals);
        let all_ended = async {
            for worker in workers.iter_mut() {
                worker.ended().await;
            }
        };
        let again = async { while signals.next().await != Wish::End {} };
        let whole = tokio::select! {
            ended = self.clock.timeout(limit, all_ended) => ended.is_ok(),
            () = again => false,
        };
        if whole {
            tracing::info!("drained");
        } else {
            tracing::warn!("ending with requests in flight");
        }
        for worker in &self.workers {
            worker.stop();
        }
        self.closing.cancel();
    }
}

/// Starts the workers, which have nothing to accept yet.
fn start_workers(
    count: usize,
    clock: &Clock,
    live: &Arc<Live>,
    counters: &Arc<Counters>,
    log: &access_log::Sink,
) -> Result<Vec<Handle>, StartError> {
    let seed = Seed::random();
    (0..count)
        .map(|index| {
            let (live, counters, log) = (Arc::clone(live), Arc::clone(counters), log.handle(index));
            Handle::start(index, clock.clone(), move |clock| Worker {
                clock,
                live,
                pools: Pools::default(),
                connector: Connector::default(),
                tasks: TaskTracker::new(),
                counters,
                access_log: log,
                connections: Connections::default(),
                seed,
            })
        })
        .collect::<io::Result<_>>()
        .map_err(cannot("start a worker"))
}

/// Takes the wish that was noted, or waits for one.
async fn next_wish(signals: &mut Signals, said: &mut Option<Wish>) -> Wish {
    match said.take() {
        Some(wish) => wish,
        None => signals.next().await,
    }
}

/// An error and what caused it, in one line.
fn chain(error: &dyn core::error::Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        line += ": ";
        line += &cause.to_string();
        source = cause.source();
    }
    line
}

/// Logs what is odd about a configuration.
fn warn(plan: &Plan) {
    if !plan.warnings.is_empty() {
        tracing::warn!("{}\n{}", plan.warnings.summary(), plan.warnings);
    }
}

/// Lets the process have as many connections as it is allowed to.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}

/// Has the calling thread give way to the workers.
fn give_way() {
    // Zero means the calling thread on Linux, whose threads have their own priority.
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        tracing::debug!(%error, "cannot lower the control thread's priority");
    }
}

/// Has the gateway's own log written to the standard error, in lines for people or,
/// with `json`, for machines; `RUST_LOG` picks what is written, `info` otherwise.
pub fn log_to_stderr(json: bool) {
    use std::io::IsTerminal;
    use tracing_subscriber::{EnvFilter, fmt};
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let colour = io::stderr().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let lines =
        fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(colour).with_target(false);
    if json { lines.json().init() } else { lines.init() }
}

//! The control thread: it wires the layers, watches the file, and ends the
//! process in good order. No request passes through it.

use crate::{
    access_log,
    admin::{self, Readiness},
    certs,
    clock::Clock,
    config::{self, Diagnostics, Listener, Live, Plan, Retired, Snapshot, watch},
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
    let certificates = config::certificate_files(path);
    make_certificates(&certificates);
    let seen = Seen::look(&named_files(path, &certificates));
    let plan = config::read(path).map_err(StartError::Config)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(cannot("start a runtime"))?;
    runtime.block_on(async {
        let mut gateway = Gateway::start(plan, seen)?;
        gateway.serve().await;
        Ok(())
    })
}

/// Makes the development certificate where one of these pairs of a certificate and its
/// key asks for it, and returns whether it did.
fn make_certificates(pairs: &[(PathBuf, PathBuf)]) -> bool {
    let mut made = false;
    for (certificate, key) in pairs {
        match certs::make_if_missing(certificate, key) {
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
    open_at(name, configured, configured, false, count)
}

/// Opens a listener at `address`, which is `configured` unless that has port 0.
fn open_at(
    name: &Arc<str>,
    configured: SocketAddr,
    address: SocketAddr,
    shared: bool,
    count: usize,
) -> Result<Opened, StartError> {
    let (address, sockets) = bind(address, count, shared).map_err(|source| StartError::Listen {
        name: Arc::clone(name),
        address: configured,
        source,
    })?;
    Ok(Opened { name: Arc::clone(name), configured, address, sockets })
}

/// Opens a listener on the sockets of one that runs.
fn take_over(
    name: &Arc<str>,
    configured: SocketAddr,
    running: &Running,
) -> Result<Opened, StartError> {
    let address = running.address;
    let sockets = duplicates(&running.sockets).map_err(|source| StartError::Listen {
        name: Arc::clone(name),
        address,
        source,
    })?;
    Ok(Opened { name: Arc::clone(name), configured, address, sockets })
}

/// A listener that runs.
struct Running {
    configured: SocketAddr,
    /// With the port that the system picked.
    address: SocketAddr,
    tls: bool,
    /// The workers' sockets, for a listener that takes the place of this one. The kernel
    /// resets connections that come in while a socket closes.
    sockets: Vec<std::net::TcpListener>,
}

impl Running {
    fn is(&self, listener: &Listener) -> bool {
        self.configured == listener.address && self.tls == listener.tls.is_some()
    }
}

fn duplicates(sockets: &[std::net::TcpListener]) -> io::Result<Vec<std::net::TcpListener>> {
    sockets.iter().map(std::net::TcpListener::try_clone).collect()
}

/// Reports whether two sockets could get the same connection.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let everywhere = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port() && (everywhere || one.ip() == other.ip())
}

/// Files, and what each held when it was looked at.
struct Seen(Vec<(PathBuf, u64)>);

impl Seen {
    fn look(files: &[PathBuf]) -> Self {
        Self(files.iter().map(|file| (file.clone(), look_at(file))).collect())
    }

    /// The same look at the same files, and a new one at those not seen yet.
    fn extend(&self, files: &[PathBuf]) -> Self {
        let known: HashMap<_, _> = self.0.iter().map(|(file, held)| (file, *held)).collect();
        let held = |file| known.get(file).copied().unwrap_or_else(|| look_at(file));
        Self(files.iter().map(|file| (file.clone(), held(file))).collect())
    }

    fn files(&self) -> Vec<PathBuf> {
        self.0.iter().map(|(file, _)| file.clone()).collect()
    }

    fn has_all(&self, files: &[PathBuf]) -> bool {
        files.iter().all(|file| self.0.iter().any(|(seen, _)| seen == file))
    }
}

/// The file at `path`, and the certificates and keys that it names.
fn named_files(path: &Path, certificates: &[(PathBuf, PathBuf)]) -> Vec<PathBuf> {
    let named = certificates.iter().flat_map(|(certificate, key)| [certificate, key]);
    std::iter::once(path).chain(named.map(PathBuf::as_path)).map(Path::to_owned).collect()
}

fn look_at(file: &PathBuf) -> u64 {
    config::fingerprint(std::slice::from_ref(file))
}

/// Why a configuration was not put in force.
struct Refusal {
    line: String,
    drawing: String,
    /// Whether the cause may go away without an edit.
    is_outside: bool,
}

impl Refusal {
    fn outside(error: &StartError) -> Self {
        let drawing = format!("error: {}", chain(error));
        Self { line: error.to_string(), drawing, is_outside: true }
    }
}

impl From<Diagnostics> for Refusal {
    fn from(problems: Diagnostics) -> Self {
        let (line, drawing) = (problems.summary(), problems.to_string());
        Self { line, drawing, is_outside: false }
    }
}

struct Gateway {
    path: PathBuf,
    clock: Clock,
    live: Arc<Live>,
    retired: Retired,
    counters: Arc<Counters>,
    readiness: Arc<Readiness>,
    workers: Vec<Handle>,
    listeners: HashMap<Arc<str>, Running>,
    access_log: access_log::Sink,
    signals: Signals,
    reload_requests: mpsc::Receiver<()>,
    /// Ends the admin listener.
    closing: CancellationToken,
    /// The files of the configuration that was read last, in force or refused.
    seen: Seen,
    /// Why it was refused, if it was.
    refused: Option<Refusal>,
}

impl Gateway {
    /// Opens every listener, then starts the workers: all or nothing.
    fn start(plan: Plan, seen: Seen) -> Result<Self, StartError> {
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
        let path = plan.path.clone();
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
            seen,
            refused: None,
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
        let kept = duplicates(&sockets).map_err(cannot("share a listener's sockets"))?;
        tracing::info!(listener = %name, %address, tls, "listening");
        for (worker, socket) in self.workers.iter().zip(sockets) {
            worker.listen(Bound { name: Arc::clone(&name), socket, tls: acceptor.clone() });
        }
        self.listeners.insert(name, Running { configured, address, tls, sockets: kept });
        Ok(())
    }

    /// Runs until a signal ends it.
    async fn serve(&mut self) {
        let (mut guard, mut changes) = match watch::watch() {
            Ok((guard, changes)) => (Some(guard), changes),
            Err(error) => {
                tracing::warn!(%error, every = ?watch::POLL, "cannot watch the configuration; looking at it");
                (None, mpsc::channel(1).1)
            }
        };
        self.watch(guard.as_mut());
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
            self.watch(guard.as_mut());
        }
        self.drain().await;
    }

    fn watch(&self, guard: Option<&mut watch::Watcher>) {
        if let Some(guard) = guard
            && let Err(error) = guard.set(&self.seen.files())
        {
            tracing::debug!(%error, "a folder cannot be watched");
        }
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

    /// Reads the files and puts them in force if nothing is wrong with them. Files that
    /// are as they were are read again only if they were refused, and somebody asks or
    /// the cause is not in them.
    fn reload(&mut self, asked: bool) {
        self.retired.sweep();
        // Before they are read, so that an edit meanwhile is seen the next time.
        let now = Seen::look(&self.seen.files());
        let changed = now.0 != self.seen.0;
        let again = self.refused.as_ref().is_some_and(|refusal| asked || refusal.is_outside);
        if !changed && !again {
            if asked {
                tracing::info!(config = %self.path.display(), "unchanged");
            }
            return;
        }
        self.seen = now;
        match self.read().and_then(|plan| self.take(plan)) {
            Ok(()) => self.refused = None,
            Err(refusal) => {
                let is_news =
                    self.refused.as_ref().is_none_or(|last| last.drawing != refusal.drawing);
                if changed || asked || is_news {
                    self.refuse(&refusal);
                }
                self.refused = Some(refusal);
            }
        }
    }

    fn read(&mut self) -> Result<Plan, Refusal> {
        let mut read = self.live.read(&self.path);
        let (files, has_made) = if let Ok(plan) = &read {
            (plan.files.clone(), false)
        } else {
            let certificates = config::certificate_files(&self.path);
            (named_files(&self.path, &certificates), make_certificates(&certificates))
        };
        // What is named for the first time was not looked at before it was read.
        let again = has_made || !self.seen.has_all(&files);
        self.seen = if has_made { Seen::look(&files) } else { self.seen.extend(&files) };
        if again {
            read = self.live.read(&self.path);
        }
        read.map_err(Refusal::from)
    }

    /// Puts `plan` in force, listeners included, or leaves everything as it was.
    fn take(&mut self, plan: Plan) -> Result<(), Refusal> {
        let opened = self.open_new(&plan).map_err(|error| Refusal::outside(&error))?;
        let log = &plan.settings.access_log;
        let moved_log = (*log != self.live.load().settings.access_log)
            .then(|| access_log::Output::open(log))
            .transpose()
            .map_err(cannot("open the access log"))
            .map_err(|error| Refusal::outside(&error))?;
        warn(&plan);
        let summary = self.live.apply(plan, self.clock.now(), &mut self.retired);
        tokio::spawn(catch_up(self.live.load_full()));
        for listener in opened {
            if let Err(error) = self.listen(listener) {
                tracing::error!(error = %chain(&error), "a listener of the new configuration is lost");
            }
        }
        self.close_listeners();
        if let Some(output) = moved_log
            && let Err(error) = self.access_log.switch(output)
        {
            tracing::error!(%error, "the access log does not move yet");
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
        Ok(())
    }

    /// Opens the listeners of `plan` that do not run as it has them. At the address of
    /// one that is to go, the new one takes over its sockets, so that no connection is
    /// refused; where they overlap otherwise, it listens beside it.
    fn open_new(&self, plan: &Plan) -> Result<Vec<Opened>, StartError> {
        let stays = |name: &str, running: &Running| {
            plan.listeners.iter().any(|new| &*new.name == name && running.is(new))
        };
        let (stay, go): (Vec<_>, Vec<_>) =
            self.listeners.iter().partition(|(name, running)| stays(name, running));
        let mut opened: Vec<Opened> = Vec::new();
        for listener in &plan.listeners {
            let known = self.listeners.get(&listener.name);
            if known.is_some_and(|running| running.is(listener)) {
                continue;
            }
            let address = known
                .filter(|running| running.configured == listener.address)
                .map_or(listener.address, |running| running.address);
            let held = |running: &[(&Arc<str>, &Running)]| {
                running.iter().any(|(_, running)| overlap(running.address, address))
            };
            let ours = held(&go)
                && !held(&stay)
                && !opened.iter().any(|other| overlap(other.address, address));
            let before = go.iter().find(|(_, running)| ours && running.address == address);
            let (name, configured) = (&listener.name, listener.address);
            opened.push(match before {
                Some((_, running)) => take_over(name, configured, running)?,
                None => open_at(name, configured, address, ours, self.workers.len())?,
            });
        }
        Ok(opened)
    }

    /// Closes the listeners that the configuration in force does not have.
    fn close_listeners(&mut self) {
        let snapshot = Arc::clone(&self.live.load());
        let stays = |name: &str| snapshot.listeners.iter().any(|known| &*known.name == name);
        let workers = &self.workers;
        self.listeners.retain(|name, _| {
            if stays(name) {
                return true;
            }
            tracing::info!(listener = %name, "closing");
            for worker in workers {
                worker.close(Arc::clone(name));
            }
            false
        });
    }

    /// Says what is wrong, and keeps what is in force.
    fn refuse(&self, Refusal { line, drawing, .. }: &Refusal) {
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
        // A socket closes when all who have it let it go.
        self.listeners.clear();
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

/// Converts the states that edited rules have left, a few at a time, so that requests
/// are decided and signals are heard between.
async fn catch_up(snapshot: Arc<Snapshot>) {
    for route in &snapshot.routes {
        while route.gate.catch_up() {
            tokio::task::yield_now().await;
        }
    }
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

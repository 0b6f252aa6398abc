//! The listeners: opened before a configuration is applied, then given to the workers, and closed
//! when no configuration has them.

use super::{
    error::{StartError, cannot},
    upgrade::{Inherited, SocketName, Taken},
};
use crate::{
    config::{ListenAddress, ListenPlace, Listener, Live, Plan, Snapshot},
    proxy::{
        Acceptor, Bound, ListenSocket, ListenerConfig, bind, bind_unix, certificates, set_mode,
    },
    workers::WorkerHandle,
};
use core::net::SocketAddr;
use std::{fs, io, net::TcpListener, os::unix::fs::MetadataExt, path::Path, sync::Arc};
use tokio::sync::watch;

/// The running listeners, by their addresses.
#[derive(Default)]
pub(super) struct Listeners(Vec<Running>);

/// The open sockets of one address of a listener.
pub(super) struct Opened {
    at: Address,
    sockets: SocketSource,
}

/// An address of a listener.
#[derive(Clone)]
struct Address {
    /// The listener's name.
    name: Arc<str>,
    configured: ListenAddress,
    /// With the actual port.
    actual: ListenAddress,
    /// The permissions of a Unix socket.
    unix_mode: u32,
    /// True if systemd keeps the socket and its path.
    is_of_systemd: bool,
}

impl Address {
    fn new(listener: &Listener, place: &ListenPlace, actual: ListenAddress) -> Self {
        let name = Arc::clone(&listener.name);
        let configured = place.address.clone();
        let unix_mode = listener.unix_mode;
        Self { name, configured, actual, unix_mode, is_of_systemd: false }
    }

    /// Returns the path of a Unix socket.
    fn path(&self) -> Option<&Path> {
        match &self.actual {
            ListenAddress::Ip(_) => None,
            ListenAddress::Unix(path) => Some(path),
        }
    }

    /// Opens sockets there. With `shared` this process listens there already.
    fn open(&self, shared: bool, count: usize) -> io::Result<Opened> {
        let at = self.clone();
        Ok(match &self.actual {
            ListenAddress::Ip(address) => {
                let (address, sockets) = bind(*address, count, shared)?;
                let sockets = sockets.into_iter().map(ListenSocket::Tcp).collect();
                Opened {
                    at: Self { actual: address.into(), ..at },
                    sockets: SocketSource::New(sockets),
                }
            }
            // All workers accept on one socket.
            ListenAddress::Unix(path) => {
                let socket = bind_unix(path, self.unix_mode)?;
                Opened { at, sockets: SocketSource::New(vec![socket]) }
            }
        })
    }
}

enum SocketSource {
    /// New sockets, one for each worker.
    New(Vec<ListenSocket>),
    /// Those of another process, of any number.
    Inherited(Vec<ListenSocket>),
    /// Those of a running listener, whose configuration it replaces: the kernel resets connections that
    /// arrive while a socket closes.
    TakenOver(watch::Sender<ListenerConfig>, Vec<ListenSocket>),
}

/// The listeners for clients, and the admin listener.
#[derive(Default)]
pub(super) struct Sockets {
    pub(super) listeners: Vec<Opened>,
    pub(super) admin: Option<OpenedAdmin>,
    /// The listeners of the old process whose sockets these are; `None` is its admin listener.
    pub(super) inherited: Vec<Option<String>>,
}

/// The open admin listener.
pub(super) struct OpenedAdmin {
    pub(super) configured: SocketAddr,
    /// With the actual port.
    pub(super) address: SocketAddr,
    pub(super) sockets: Vec<TcpListener>,
}

impl OpenedAdmin {
    /// Opens the admin listener of `plan`. With `shared` this process listens there already.
    fn open(plan: &Plan, configured: SocketAddr, shared: bool) -> Result<Self, StartError> {
        let opened = bind(configured, 1, shared);
        let (address, sockets) =
            opened.map_err(|error| StartError::Open(plan.cannot_administer(configured, &error)))?;
        Ok(Self { configured, address, sockets })
    }
}

/// Opens the listeners of `plan` with `count` sockets each, and its admin listener. Takes
/// `inherited` sockets instead where there are any.
///
/// # Errors
/// One cannot be opened.
pub(super) fn open(
    plan: &Plan,
    count: usize,
    inherited: &mut Inherited,
) -> Result<Sockets, StartError> {
    let mut opened = Vec::new();
    for listener in &plan.listeners {
        for place in &listener.addresses {
            let wanted = &place.address;
            if let Some(taken) = inherited.take(Some(&listener.name), wanted) {
                let Taken { address, sockets, is_of_systemd } = taken;
                let at = Address { is_of_systemd, ..Address::new(listener, place, address) };
                opened.push(Opened { at, sockets: SocketSource::Inherited(sockets) });
                continue;
            }
            let shared = inherited.any(|other| other.overlaps(wanted));
            let one = Address::new(listener, place, wanted.clone()).open(shared, count);
            opened.push(one.map_err(cannot_listen(plan, listener, place))?);
        }
    }

    let open_admin = |configured: SocketAddr| {
        let wanted = configured.into();
        if let Some(Taken { address: ListenAddress::Ip(address), sockets, .. }) =
            inherited.take(None, &wanted)
        {
            let tcp = |socket| match socket {
                ListenSocket::Tcp(socket) => Some(socket),
                ListenSocket::Unix(_) => None,
            };
            let sockets = sockets.into_iter().filter_map(tcp).collect();
            return Ok(OpenedAdmin { configured, address, sockets });
        }
        let shared = inherited.any(|other| other.overlaps(&wanted));
        OpenedAdmin::open(plan, configured, shared)
    };

    let admin = plan.settings.admin.as_ref().map(|admin| admin.listen).map(open_admin);
    Ok(Sockets { listeners: opened, admin: admin.transpose()?, ..Sockets::default() })
}

/// Returns what makes an error of the file's line that a listener cannot listen at one of its addresses.
fn cannot_listen<'a>(
    plan: &'a Plan,
    listener: &'a Listener,
    place: &'a ListenPlace,
) -> impl Fn(io::Error) -> StartError + 'a {
    move |error| StartError::Open(plan.cannot_listen(listener, place, &error))
}

/// One address of a listener, where the workers accept connections.
struct Running {
    at: Address,
    tls: bool,
    /// Changes the listener; dropping it closes the workers' sockets.
    listener_config: watch::Sender<ListenerConfig>,
    /// The workers have copies: these can be handed over to another process.
    sockets: Vec<ListenSocket>,
    /// The path of a Unix socket as it was when this process began to listen.
    file: Option<SocketFile>,
}

/// A file of a file system, whatever its name is.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SocketFile {
    device: u64,
    inode: u64,
}

impl SocketFile {
    /// Returns the file that is at `path`.
    fn at(path: &Path) -> Option<Self> {
        let found = fs::symlink_metadata(path).ok()?;
        Some(Self { device: found.dev(), inode: found.ino() })
    }
}

impl Running {
    fn is(&self, listener: &Listener, place: &ListenPlace) -> bool {
        self.is_at(listener, place)
            && self.tls == listener.tls.is_some()
            && (self.at.path().is_none() || self.at.unix_mode == listener.unix_mode)
    }

    fn is_at(&self, listener: &Listener, place: &ListenPlace) -> bool {
        self.at.name == listener.name && self.at.configured == place.address
    }

    /// Returns whether `plan` has it as it runs.
    fn stays(&self, plan: &Plan) -> bool {
        let has =
            |listener: &Listener| listener.addresses.iter().any(|place| self.is(listener, place));
        plan.listeners.iter().any(|listener| has(listener))
    }

    /// Removes the path of a Unix socket before that closes, unless another process has the socket too,
    /// or has put its own there. One that stays behind is replaced at the next start.
    fn remove_path(&self) {
        if let Some(path) = self.at.path()
            && !self.at.is_of_systemd
            && !self.listener_config.borrow().is_handed_over
            && self.file.is_some()
            && SocketFile::at(path) == self.file
            && let Err(error) = fs::remove_file(path)
        {
            tracing::debug!(listener = %self.at.name, %error, "cannot remove the socket");
        }
    }
}

impl Listeners {
    /// Makes every worker accept for a listener.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub(super) fn listen(
        &mut self,
        opened: Opened,
        live: &Arc<Live>,
        workers: &[WorkerHandle],
    ) -> Result<(), StartError> {
        let Opened { at, sockets } = opened;
        let Address { name, actual: address, .. } = &at;

        let snapshot = live.load_full();
        let tls = certificates(&snapshot, name).is_some();
        let proxy_protocol = snapshot.listener(name).is_some_and(|known| known.proxy_protocol);
        let acceptor = tls
            .then(|| Acceptor::new(Arc::clone(live), Arc::clone(name)))
            .transpose()
            .map_err(cannot("set up TLS"))?;

        tracing::info!(listener = %name, %address, tls, "listening");
        let listener_config = ListenerConfig {
            name: Arc::clone(name),
            tls: acceptor,
            proxy_protocol,
            is_handed_over: false,
        };

        // A new socket has its permissions, and that of systemd those of its unit.
        let keeps_mode = at.is_of_systemd || matches!(sockets, SocketSource::New(_));
        if let Some(path) = at.path().filter(|_| !keeps_mode)
            && let Err(error) = set_mode(path, at.unix_mode)
        {
            tracing::error!(listener = %name, %error, "cannot set `unix_mode`");
        }
        let file = at.path().and_then(SocketFile::at);

        let (listener_config, sockets) = match sockets {
            SocketSource::New(sockets) | SocketSource::Inherited(sockets) => {
                let (sender, listener_config) = watch::channel(listener_config);
                accept(&sockets, &listener_config, workers)
                    .map_err(cannot("accept on a listener"))?;
                (sender, sockets)
            }
            SocketSource::TakenOver(sender, sockets) => {
                sender.send_replace(listener_config);
                (sender, sockets)
            }
        };

        // It is in the place of the one whose sockets it has, or of its own with other terms.
        let is_same = |running: &Running| {
            running.at.actual == at.actual
                || (running.at.name == at.name && running.at.configured == at.configured)
        };
        self.0.retain(|running| !is_same(running));
        self.0.push(Running { at, tls, listener_config, sockets, file });
        Ok(())
    }

    /// Returns copies of all sockets, for another process.
    pub(super) fn sockets(&self) -> io::Result<Vec<(SocketName, ListenSocket)>> {
        let mut sockets = Vec::new();
        for running in &self.0 {
            let Address { name, configured, is_of_systemd, .. } = running.at.clone();
            let listener = Some(name.to_string());
            let name = SocketName { listener, configured, is_of_systemd };
            for socket in &running.sockets {
                sockets.push((name.clone(), socket.try_clone()?));
            }
        }
        Ok(sockets)
    }

    /// Stops accepting on these listeners and leaves what waits in their queues to the process that
    /// has their sockets too. Returns when no worker accepts any more.
    pub(super) async fn hand_over(&self, names: &[Option<String>]) {
        let is_named = |name: &str| names.iter().flatten().any(|other| other == name);
        let running: Vec<&Running> =
            self.0.iter().filter(|running| is_named(&running.at.name)).collect();
        for running in &running {
            running
                .listener_config
                .send_modify(|listener_config| listener_config.is_handed_over = true);
        }
        for running in running {
            running.listener_config.closed().await;
        }
    }

    /// Accepts again on the listeners that were handed over.
    pub(super) fn resume(&self, workers: &[WorkerHandle]) {
        for running in &self.0 {
            if !running.listener_config.borrow().is_handed_over {
                continue;
            }
            running
                .listener_config
                .send_modify(|listener_config| listener_config.is_handed_over = false);
            if let Err(error) =
                accept(&running.sockets, &running.listener_config.subscribe(), workers)
            {
                tracing::error!(listener = %running.at.name, %error, "cannot accept again");
            }
        }
    }

    /// Opens the listeners of `plan` that do not run as configured. At the address of one that is
    /// removed, the new one takes over its sockets, so that no connection is reset; where addresses
    /// overlap otherwise, it listens beside it. The admin listener leaves the address `left`.
    ///
    /// # Errors
    /// One cannot be opened; then none is.
    pub(super) fn open_new(
        &self,
        plan: &Plan,
        workers: usize,
        left: Option<SocketAddr>,
    ) -> Result<Vec<Opened>, StartError> {
        let left = left.map(ListenAddress::from);
        let mut opened: Vec<Opened> = Vec::new();
        for listener in &plan.listeners {
            for place in &listener.addresses {
                if !self.0.iter().any(|running| running.is(listener, place)) {
                    let one = self.open_one(plan, &opened, listener, place, workers, left.as_ref());
                    opened.push(one.map_err(cannot_listen(plan, listener, place))?);
                }
            }
        }
        Ok(opened)
    }

    /// Opens one address of a listener of `plan`, beside those of it that are `opened` already.
    fn open_one(
        &self,
        plan: &Plan,
        opened: &[Opened],
        listener: &Listener,
        place: &ListenPlace,
        workers: usize,
        left: Option<&ListenAddress>,
    ) -> io::Result<Opened> {
        let known = self.0.iter().find(|running| running.is_at(listener, place));
        let actual = known.map_or_else(|| place.address.clone(), |known| known.at.actual.clone());
        let at = Address::new(listener, place, actual);

        let (stay, go): (Vec<_>, Vec<_>) = self.0.iter().partition(|running| running.stays(plan));
        let held = |running: &[&Running]| {
            running.iter().any(|running| running.at.actual.overlaps(&at.actual))
        };
        let is_left = left.is_some_and(|left| left.overlaps(&at.actual));
        let ours = (held(&go) || is_left)
            && !held(&stay)
            && !opened.iter().any(|other| other.at.actual.overlaps(&at.actual));

        let before = go.iter().find(|running| ours && running.at.actual == at.actual);
        let Some(running) = before else { return at.open(ours, workers) };
        let sockets = running.sockets.iter().map(ListenSocket::try_clone);
        let sockets = sockets.collect::<io::Result<_>>()?;
        let sockets = SocketSource::TakenOver(running.listener_config.clone(), sockets);
        Ok(Opened { at: Address { is_of_systemd: running.at.is_of_systemd, ..at }, sockets })
    }

    /// Opens the admin listener of `plan` at an address where it is not yet. It listens beside the
    /// one that is at `left`, and beside a listener that leaves its address.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(super) fn open_admin(
        &self,
        plan: &Plan,
        configured: SocketAddr,
        left: Option<SocketAddr>,
    ) -> Result<OpenedAdmin, StartError> {
        let gone = self.0.iter().filter(|running| !running.stays(plan));
        let mut left = gone.map(|running| running.at.actual.clone()).chain(left.map(Into::into));
        let shared = left.any(|other| other.overlaps(&configured.into()));
        OpenedAdmin::open(plan, configured, shared)
    }

    /// Closes the listeners that `snapshot` does not have, except sockets that were taken over.
    pub(super) fn close_others(&mut self, snapshot: &Snapshot) {
        self.0.retain(|running| {
            let is_known = |known: &Listener| {
                let mut places = known.addresses.iter();
                known.name == running.at.name
                    && places.any(|place| place.address == running.at.configured)
            };
            let stays = snapshot.listeners.iter().any(|known| is_known(known));
            if !stays {
                let Address { name, actual, .. } = &running.at;
                tracing::info!(listener = %name, address = %actual, "closing");
                running.remove_path();
            }
            stays
        });
    }

    /// Closes all of them.
    pub(super) fn clear(&mut self) {
        self.0.iter().for_each(Running::remove_path);
        self.0.clear();
    }
}

/// Makes the workers accept on copies of `sockets`, each worker on at least one and each socket by
/// at least one: another process may have had more workers or fewer.
fn accept(
    sockets: &[ListenSocket],
    listener_config: &watch::Receiver<ListenerConfig>,
    workers: &[WorkerHandle],
) -> io::Result<()> {
    let turns = workers.len().max(sockets.len());
    let workers = workers.iter().cycle();
    for (socket, worker) in sockets.iter().cycle().zip(workers).take(turns) {
        worker.listen(Bound {
            socket: socket.try_clone()?,
            listener_config: listener_config.clone(),
        });
    }
    Ok(())
}

//! The listeners: opened before a configuration is applied, then given to the workers, and closed
//! when no configuration has them.

use super::{
    error::{StartError, cannot},
    upgrade::{Inherited, SocketName},
};
use crate::{
    config::{Listener, Live, Plan, Snapshot, overlap},
    proxy::{Acceptor, Bound, ListenerConfig, bind, certificates},
    workers::WorkerHandle,
};
use core::net::SocketAddr;
use std::{collections::HashMap, io, net::TcpListener, sync::Arc};
use tokio::sync::watch;

/// The running listeners by name.
#[derive(Default)]
pub(super) struct Listeners(HashMap<Arc<str>, Running>);

pub(super) struct Opened {
    name: Arc<str>,
    configured: SocketAddr,
    /// With the actual port.
    address: SocketAddr,
    sockets: SocketSource,
}

enum SocketSource {
    /// New sockets, one for each worker, or inherited ones of any number.
    New(Vec<TcpListener>),
    /// Those of a running listener, whose configuration it replaces: the kernel resets connections that
    /// arrive while a socket closes.
    TakenOver(watch::Sender<ListenerConfig>, Vec<TcpListener>),
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
        let name = &listener.name;
        let configured = listener.address;
        opened.push(if let Some((address, sockets)) = inherited.take(Some(name), configured) {
            let sockets = SocketSource::New(sockets);
            Opened { name: Arc::clone(name), configured, address, sockets }
        } else {
            let shared = inherited.any(|other| overlap(other, configured));
            open_at(name, configured, configured, shared, count)
                .map_err(|error| StartError::Open(plan.cannot_listen(listener, &error)))?
        });
    }

    let open_admin = |configured| {
        if let Some((address, sockets)) = inherited.take(None, configured) {
            return Ok(OpenedAdmin { configured, address, sockets });
        }
        let shared = inherited.any(|other| overlap(other, configured));
        OpenedAdmin::open(plan, configured, shared)
    };

    let admin = plan.settings.admin.as_ref().map(|admin| admin.listen).map(open_admin);
    Ok(Sockets { listeners: opened, admin: admin.transpose()?, ..Sockets::default() })
}

/// Opens a listener at `address`: `configured`, or its actual port if that has port 0.
fn open_at(
    name: &Arc<str>,
    configured: SocketAddr,
    address: SocketAddr,
    shared: bool,
    count: usize,
) -> io::Result<Opened> {
    let (address, sockets) = bind(address, count, shared)?;
    Ok(Opened { name: Arc::clone(name), configured, address, sockets: SocketSource::New(sockets) })
}

struct Running {
    configured: SocketAddr,
    /// With the actual port.
    address: SocketAddr,
    tls: bool,
    /// Changes the listener; dropping it closes the workers' sockets.
    listener_config: watch::Sender<ListenerConfig>,
    /// The workers have copies: these can be handed over to another process.
    sockets: Vec<TcpListener>,
}

impl Running {
    fn is(&self, listener: &Listener) -> bool {
        self.configured == listener.address && self.tls == listener.tls.is_some()
    }

    /// Returns whether `plan` has it as it runs.
    fn stays(&self, name: &str, plan: &Plan) -> bool {
        plan.listeners.iter().any(|new| &*new.name == name && self.is(new))
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
        let Opened { name, configured, address, sockets } = opened;

        let snapshot = live.load_full();
        let tls = certificates(&snapshot, &name).is_some();
        let proxy_protocol = snapshot.listener(&name).is_some_and(|known| known.proxy_protocol);
        let acceptor = tls
            .then(|| Acceptor::new(Arc::clone(live), Arc::clone(&name)))
            .transpose()
            .map_err(cannot("set up TLS"))?;

        tracing::info!(listener = %name, %address, tls, "listening");
        let listener_config = ListenerConfig {
            name: Arc::clone(&name),
            tls: acceptor,
            proxy_protocol,
            is_handed_over: false,
        };

        let (listener_config, sockets) = match sockets {
            SocketSource::New(sockets) => {
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

        self.0.insert(name, Running { configured, address, tls, listener_config, sockets });
        Ok(())
    }

    /// Returns copies of all sockets, for another process.
    pub(super) fn sockets(&self) -> io::Result<Vec<(SocketName, TcpListener)>> {
        let mut sockets = Vec::new();
        for (name, running) in &self.0 {
            let name =
                SocketName { listener: Some(name.to_string()), configured: running.configured };
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
            self.0.iter().filter(|(name, _)| is_named(name)).map(|(_, running)| running).collect();
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
        for (name, running) in &self.0 {
            if !running.listener_config.borrow().is_handed_over {
                continue;
            }
            running
                .listener_config
                .send_modify(|listener_config| listener_config.is_handed_over = false);
            if let Err(error) =
                accept(&running.sockets, &running.listener_config.subscribe(), workers)
            {
                tracing::error!(listener = %name, %error, "cannot accept again");
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
        let (stay, go): (Vec<_>, Vec<_>) =
            self.0.iter().partition(|(name, running)| running.stays(name, plan));

        let mut opened: Vec<Opened> = Vec::new();
        for listener in &plan.listeners {
            let known = self.0.get(&listener.name);
            if known.is_some_and(|running| running.is(listener)) {
                continue;
            }

            let address = known
                .filter(|running| running.configured == listener.address)
                .map_or(listener.address, |running| running.address);

            let held = |running: &[(&Arc<str>, &Running)]| {
                running.iter().any(|(_, running)| overlap(running.address, address))
            };
            let is_left = left.is_some_and(|left| overlap(left, address));
            let ours = (held(&go) || is_left)
                && !held(&stay)
                && !opened.iter().any(|other| overlap(other.address, address));

            let before = go.iter().find(|(_, running)| ours && running.address == address);
            let name = &listener.name;
            let configured = listener.address;
            opened.push(match before {
                Some((_, running)) => {
                    let sockets = running.sockets.iter().map(TcpListener::try_clone);
                    let sockets = sockets.collect::<io::Result<_>>();
                    let sockets = sockets
                        .map_err(|error| StartError::Open(plan.cannot_listen(listener, &error)))?;
                    let sockets = SocketSource::TakenOver(running.listener_config.clone(), sockets);
                    Opened { name: Arc::clone(name), configured, address, sockets }
                }
                None => open_at(name, configured, address, ours, workers)
                    .map_err(|error| StartError::Open(plan.cannot_listen(listener, &error)))?,
            });
        }
        Ok(opened)
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
        let gone = self.0.iter().filter(|(name, running)| !running.stays(name, plan));
        let mut left = gone.map(|(_, running)| running.address).chain(left);
        let shared = left.any(|other| overlap(other, configured));
        OpenedAdmin::open(plan, configured, shared)
    }

    /// Closes the listeners that `snapshot` does not have, except sockets that were taken over.
    pub(super) fn close_others(&mut self, snapshot: &Snapshot) {
        self.0.retain(|name, _| {
            let stays = snapshot.listeners.iter().any(|known| known.name == *name);
            if !stays {
                tracing::info!(listener = %name, "closing");
            }
            stays
        });
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Makes the workers accept on copies of `sockets`, each worker on at least one and each socket by
/// at least one: another process may have had more workers or fewer.
fn accept(
    sockets: &[TcpListener],
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

//! The listeners: opened before a configuration is applied, then given to the workers, and closed
//! when no configuration has them.

use super::error::{StartError, cannot};
use crate::{
    config::{Listener, Live, Plan, Snapshot, overlap},
    proxy::{Acceptor, Bound, Face, bind, certificates},
    workers::Handle,
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
    /// New sockets, one for each worker.
    New(Vec<TcpListener>),
    /// Those of a running listener, whose face it replaces: the kernel resets connections that
    /// arrive while a socket closes.
    TakenOver(watch::Sender<Face>),
}

/// The listeners for clients, and the admin listener.
pub(super) type Sockets = (Vec<Opened>, Option<(SocketAddr, Vec<TcpListener>)>);

/// Opens the listeners of `plan` with `count` sockets each, and its admin listener.
///
/// # Errors
/// One cannot be opened.
pub(super) fn open(plan: &Plan, count: usize) -> Result<Sockets, StartError> {
    let opened = plan.listeners.iter().map(|listener| {
        open_at(&listener.name, listener.address, listener.address, false, count)
            .map_err(|error| StartError::Open(plan.cannot_listen(listener, &error)))
    });
    let opened = opened.collect::<Result<_, _>>()?;
    let admin = plan.settings.admin.map(|address| {
        bind(address, 1, false)
            .map_err(|error| StartError::Open(plan.cannot_administer(address, &error)))
    });
    Ok((opened, admin.transpose()?))
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
    face: watch::Sender<Face>,
}

impl Running {
    fn is(&self, listener: &Listener) -> bool {
        self.configured == listener.address && self.tls == listener.tls.is_some()
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
        workers: &[Handle],
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
        let face = Face { name: Arc::clone(&name), tls: acceptor, proxy_protocol };
        let face = match sockets {
            SocketSource::New(sockets) => {
                let (sender, face) = watch::channel(face);
                for (worker, socket) in workers.iter().zip(sockets) {
                    worker.listen(Bound { socket, face: face.clone() });
                }
                sender
            }
            SocketSource::TakenOver(sender) => {
                sender.send_replace(face);
                sender
            }
        };
        self.0.insert(name, Running { configured, address, tls, face });
        Ok(())
    }

    /// Opens the listeners of `plan` that do not run as configured. At the address of one that is
    /// removed, the new one takes over its sockets, so that no connection is reset; where addresses
    /// overlap otherwise, it listens beside it.
    ///
    /// # Errors
    /// One cannot be opened; then none is.
    pub(super) fn open_new(&self, plan: &Plan, workers: usize) -> Result<Vec<Opened>, StartError> {
        let stays = |name: &str, running: &Running| {
            plan.listeners.iter().any(|new| &*new.name == name && running.is(new))
        };
        let (stay, go): (Vec<_>, Vec<_>) =
            self.0.iter().partition(|(name, running)| stays(name, running));
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
            let ours = held(&go)
                && !held(&stay)
                && !opened.iter().any(|other| overlap(other.address, address));
            let before = go.iter().find(|(_, running)| ours && running.address == address);
            let name = &listener.name;
            let configured = listener.address;
            opened.push(match before {
                Some((_, running)) => {
                    let sockets = SocketSource::TakenOver(running.face.clone());
                    Opened { name: Arc::clone(name), configured, address, sockets }
                }
                None => open_at(name, configured, address, ours, workers)
                    .map_err(|error| StartError::Open(plan.cannot_listen(listener, &error)))?,
            });
        }
        Ok(opened)
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

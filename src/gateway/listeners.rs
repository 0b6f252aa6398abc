//! The listeners: opened before a configuration is in force, given to the workers when
//! it is, and closed when it no longer has them.

use super::error::{StartError, cannot};
use crate::{
    config::{Listener, Live, Plan, Snapshot, overlap},
    proxy::{Acceptor, Bound, Face, bind, certificates},
    workers::Handle,
};
use core::net::SocketAddr;
use std::{collections::HashMap, io, net::TcpListener, sync::Arc};
use tokio::sync::watch;

/// The listeners that run, by name.
#[derive(Default)]
pub(super) struct Listeners(HashMap<Arc<str>, Running>);

/// A listener that is to run.
pub(super) struct Opened {
    name: Arc<str>,
    configured: SocketAddr,
    /// With the port that the system picked.
    address: SocketAddr,
    place: Place,
}

/// Where a listener accepts.
enum Place {
    /// On sockets of its own, one for each worker.
    New(Vec<TcpListener>),
    /// On those of one that runs, whose face it replaces. The kernel resets connections that
    /// come in while a socket closes.
    TakenOver(watch::Sender<Face>),
}

/// All that a gateway listens on: for clients, and for its admin.
pub(super) type Sockets = (Vec<Opened>, Option<(SocketAddr, Vec<TcpListener>)>);

/// Opens the listeners of `plan` with `count` sockets each, and the admin listener, if it
/// has one.
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

/// Opens a listener at `address`, which is `configured` unless that has port 0.
fn open_at(
    name: &Arc<str>,
    configured: SocketAddr,
    address: SocketAddr,
    shared: bool,
    count: usize,
) -> io::Result<Opened> {
    let (address, sockets) = bind(address, count, shared)?;
    Ok(Opened { name: Arc::clone(name), configured, address, place: Place::New(sockets) })
}

/// A listener that runs.
struct Running {
    configured: SocketAddr,
    /// With the port that the system picked.
    address: SocketAddr,
    tls: bool,
    /// Changes the listener; without it the workers close their sockets.
    face: watch::Sender<Face>,
}

impl Running {
    fn is(&self, listener: &Listener) -> bool {
        self.configured == listener.address && self.tls == listener.tls.is_some()
    }
}

impl Listeners {
    /// Has every worker accept for a listener.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub(super) fn listen(
        &mut self,
        opened: Opened,
        live: &Arc<Live>,
        workers: &[Handle],
    ) -> Result<(), StartError> {
        let Opened { name, configured, address, place } = opened;
        let tls = certificates(&live.load(), &name).is_some();
        let acceptor = tls
            .then(|| Acceptor::new(Arc::clone(live), Arc::clone(&name)))
            .transpose()
            .map_err(cannot("set up TLS"))?;
        tracing::info!(listener = %name, %address, tls, "listening");
        let face = Face { name: Arc::clone(&name), tls: acceptor };
        let face = match place {
            Place::New(sockets) => {
                let (sender, face) = watch::channel(face);
                for (worker, socket) in workers.iter().zip(sockets) {
                    worker.listen(Bound { socket, face: face.clone() });
                }
                sender
            }
            Place::TakenOver(sender) => {
                sender.send_replace(face);
                sender
            }
        };
        self.0.insert(name, Running { configured, address, tls, face });
        Ok(())
    }

    /// Opens the listeners of `plan` that do not run as it has them. At the address of
    /// one that is to go, the new one takes over its sockets, so that no connection is
    /// refused; where they overlap otherwise, it listens beside it.
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
            let (name, configured) = (&listener.name, listener.address);
            opened.push(match before {
                Some((_, running)) => {
                    let place = Place::TakenOver(running.face.clone());
                    Opened { name: Arc::clone(name), configured, address, place }
                }
                None => open_at(name, configured, address, ours, workers)
                    .map_err(|error| StartError::Open(plan.cannot_listen(listener, &error)))?,
            });
        }
        Ok(opened)
    }

    /// Closes the listeners that `snapshot` does not have, but for the sockets that another has
    /// taken over.
    pub(super) fn close_others(&mut self, snapshot: &Snapshot) {
        self.0.retain(|name, _| {
            let stays = snapshot.listeners.iter().any(|known| known.name == *name);
            if !stays {
                tracing::info!(listener = %name, "closing");
            }
            stays
        });
    }

    /// Closes all.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

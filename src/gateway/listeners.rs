//! The listeners: opened before a configuration is in force, given to the workers when
//! it is, and closed when it no longer has them.

use super::{StartError, cannot};
use crate::{
    config::{Listener, Live, Plan, Snapshot, overlap},
    proxy::{Acceptor, Bound, bind, certificates},
    workers::Handle,
};
use core::net::SocketAddr;
use std::{collections::HashMap, io, sync::Arc};

/// The listeners that run, by name.
#[derive(Default)]
pub(super) struct Listeners(HashMap<Arc<str>, Running>);

/// A listener's sockets, one for each worker.
pub(super) struct Opened {
    pub(super) name: Arc<str>,
    configured: SocketAddr,
    pub(super) address: SocketAddr,
    pub(super) sockets: Vec<std::net::TcpListener>,
}

/// All that a gateway listens on, the admin listener last.
pub(super) type Sockets = (Vec<Opened>, Option<Opened>);

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
        open_at(&Arc::from("admin"), address, address, false, 1)
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
    Ok(Opened { name: Arc::clone(name), configured, address, sockets })
}

/// Opens a listener on the sockets of one that runs.
fn take_over(name: &Arc<str>, configured: SocketAddr, running: &Running) -> io::Result<Opened> {
    let sockets = duplicates(&running.sockets)?;
    Ok(Opened { name: Arc::clone(name), configured, address: running.address, sockets })
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

impl Listeners {
    /// Gives every worker its socket of a listener.
    ///
    /// # Errors
    /// TLS cannot be set up, or the sockets cannot be shared.
    pub(super) fn listen(
        &mut self,
        opened: Opened,
        live: &Arc<Live>,
        workers: &[Handle],
    ) -> Result<(), StartError> {
        let Opened { name, configured, address, sockets } = opened;
        let tls = certificates(&live.load(), &name).is_some();
        let acceptor = tls
            .then(|| Acceptor::new(Arc::clone(live), Arc::clone(&name)))
            .transpose()
            .map_err(cannot("set up TLS"))?;
        let kept = duplicates(&sockets).map_err(cannot("share a listener's sockets"))?;
        tracing::info!(listener = %name, %address, tls, "listening");
        for (worker, socket) in workers.iter().zip(sockets) {
            worker.listen(Bound { name: Arc::clone(&name), socket, tls: acceptor.clone() });
        }
        self.0.insert(name, Running { configured, address, tls, sockets: kept });
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
            let new = match before {
                Some((_, running)) => take_over(name, configured, running),
                None => open_at(name, configured, address, ours, workers),
            };
            opened.push(new.map_err(|e| StartError::Open(plan.cannot_listen(listener, &e)))?);
        }
        Ok(opened)
    }

    /// Closes the listeners that `snapshot` does not have.
    pub(super) fn close_others(&mut self, snapshot: &Snapshot, workers: &[Handle]) {
        let stays = |name: &str| snapshot.listeners.iter().any(|known| &*known.name == name);
        self.0.retain(|name, _| {
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

    /// Lets go of all sockets: one closes when all who have it let it go.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

fn duplicates(sockets: &[std::net::TcpListener]) -> io::Result<Vec<std::net::TcpListener>> {
    sockets.iter().map(std::net::TcpListener::try_clone).collect()
}

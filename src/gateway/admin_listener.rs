//! The admin listener of a running gateway.

use super::{listeners::OpenedAdmin, upgrade::SocketName};
use crate::{admin, proxy::ListenSocket};
use std::{
    io,
    net::{SocketAddr, TcpListener},
};
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// The admin listener, if there is one.
pub(super) struct AdminListener {
    /// As in the configuration.
    configured: Option<SocketAddr>,
    /// With the actual port.
    address: Option<SocketAddr>,
    /// Copies, which can be handed over to another process.
    sockets: Vec<TcpListener>,
    /// Clients' requests to reload.
    pub(super) requests: mpsc::Receiver<()>,
    reload: mpsc::Sender<()>,
    /// Serve the pages.
    servers: TaskTracker,
    /// Ends the pages.
    closing: CancellationToken,
    /// Ends the accepting.
    handing_over: CancellationToken,
}

impl Default for AdminListener {
    fn default() -> Self {
        let (reload, requests) = mpsc::channel(1);
        Self {
            configured: None,
            address: None,
            sockets: Vec::new(),
            requests,
            reload,
            servers: TaskTracker::new(),
            closing: CancellationToken::new(),
            handing_over: CancellationToken::new(),
        }
    }
}

impl AdminListener {
    /// Serves the pages on the sockets that were opened, and on no others. `state` makes their state,
    /// from the sender of [`Self::requests`].
    pub(super) fn open(
        &mut self,
        opened: OpenedAdmin,
        state: impl Fn(mpsc::Sender<()>) -> admin::State,
    ) -> io::Result<()> {
        tracing::info!(listener = %"admin", address = %opened.address, "listening");
        self.leave();
        self.configured = Some(opened.configured);
        self.address = Some(opened.address);
        self.sockets = opened.sockets;
        self.accept(state)
    }

    /// Returns whether the listener is at an address that the configuration has or had.
    pub(super) fn is_at(&self, configured: Option<SocketAddr>) -> bool {
        self.configured == configured
    }

    /// Returns its address, with the actual port.
    pub(super) const fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Closes the listener because the configuration has none.
    pub(super) fn remove(&mut self) {
        if self.configured.is_some() {
            tracing::info!(listener = %"admin", "closing");
            self.leave();
        }
    }

    /// Accepts no more connections at its address. Open ones end with their next response, and
    /// streams after a few seconds.
    fn leave(&mut self) {
        self.handing_over.cancel();
        self.handing_over = CancellationToken::new();
        self.configured = None;
        self.address = None;
        self.sockets.clear();
    }

    /// Accepts again, if it was handed over.
    pub(super) fn resume(
        &mut self,
        state: impl Fn(mpsc::Sender<()>) -> admin::State,
    ) -> io::Result<()> {
        if !self.handing_over.is_cancelled() {
            return Ok(());
        }
        self.handing_over = CancellationToken::new();
        self.accept(state)
    }

    fn accept(&self, state: impl Fn(mpsc::Sender<()>) -> admin::State) -> io::Result<()> {
        for socket in &self.sockets {
            let listener = tokio::net::TcpListener::from_std(socket.try_clone()?)?;
            let handed_over = self.handing_over.clone().cancelled_owned();
            let closed = self.closing.clone().cancelled_owned();
            let state = state(self.reload.clone());
            self.servers.spawn(admin::serve(listener, state, handed_over, closed));
        }
        Ok(())
    }

    /// Ends the pages. Waits until streams have ended and requests are answered, for about two
    /// seconds at most.
    pub(super) async fn close(&self) {
        self.closing.cancel();
        self.servers.close();
        self.servers.wait().await;
    }

    /// Accepts no more connections.
    pub(super) fn hand_over(&self) {
        self.handing_over.cancel();
    }

    /// Waits until the connections have ended, after it was handed over.
    pub(super) async fn handed_over(&self) {
        self.servers.close();
        self.servers.wait().await;
    }

    /// Returns copies of its sockets, for another process.
    pub(super) fn sockets(&self) -> io::Result<Vec<(SocketName, ListenSocket)>> {
        let Some(configured) = self.configured else { return Ok(Vec::new()) };
        let name =
            SocketName { listener: None, configured: configured.into(), is_of_systemd: false };
        let copy =
            |socket: &TcpListener| Ok((name.clone(), ListenSocket::Tcp(socket.try_clone()?)));
        self.sockets.iter().map(copy).collect()
    }
}

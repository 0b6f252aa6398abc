//! One worker's idle connections to upstream servers.

use super::body::{RequestBody, Upload, upload};
use crate::{
    config::{Server, Upstream},
    flow::Instant,
    proxy::service::Worker,
};
use core::{fmt, sync::atomic::Ordering::Relaxed};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

/// Idle connections by [`Server::id`]. Another worker never takes from it; the
/// lock is there for the compiler, and never waited for.
#[derive(Default)]
pub struct Pools {
    servers: Mutex<Vec<Vec<Idle>>>,
}

struct Idle {
    sender: SendRequest<RequestBody>,
    since: Instant,
}

/// How the pool comes to new connections.
#[derive(Debug, Default)]
pub enum Connector {
    /// Over TCP, by name or address.
    #[default]
    Tcp,
    /// To a server in this process: the other ends arrive there.
    #[cfg(test)]
    Memory(tokio::sync::mpsc::UnboundedSender<tokio::io::DuplexStream>),
}

impl Pools {
    /// Takes the most recently used idle connection to `server`.
    fn take(
        &self,
        server: &Server,
        upstream: &Upstream,
        now: Instant,
    ) -> Option<SendRequest<RequestBody>> {
        let mut servers = self.lock();
        let idle = servers.get_mut(server.id)?;
        while let Some(connection) = idle.pop() {
            if !connection.sender.is_closed() && now.since(connection.since) < upstream.idle_timeout
            {
                return Some(connection.sender);
            }
        }
        None
    }

    fn put(&self, server: &Server, most: usize, idle: Idle) {
        let mut servers = self.lock();
        if servers.len() <= server.id {
            servers.resize_with(server.id + 1, Vec::new);
        }
        if let Some(connections) = servers.get_mut(server.id)
            && connections.len() < most
        {
            connections.push(idle);
        }
    }

    /// Closes what has been closed or idle for too long; `upstreams` says how long
    /// that is for whom, and who is still configured.
    pub(crate) fn sweep(&self, upstreams: &[Arc<Upstream>], now: Instant) {
        for (id, connections) in self.lock().iter_mut().enumerate() {
            let limit = upstreams
                .iter()
                .filter(|upstream| upstream.servers.iter().any(|server| server.id == id))
                .map(|upstream| upstream.idle_timeout)
                .max()
                .unwrap_or_default();
            connections.retain(|idle| !idle.sender.is_closed() && now.since(idle.since) < limit);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Vec<Idle>>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Pools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let idle: usize = self.lock().iter().map(Vec::len).sum();
        f.debug_struct("Pools").field("idle", &idle).finish()
    }
}

/// A connection to a server, held by one request. Dropped, it is closed, unless it
/// was given back before.
pub(super) struct Lease {
    worker: Arc<Worker>,
    upstream: Arc<Upstream>,
    server: Arc<Server>,
    sender: Option<SendRequest<RequestBody>>,
    /// Whether an earlier request was served on it, so that the server may have
    /// closed it in the meantime.
    pub(super) reused: bool,
    /// The request's body, which must have been sent before it is given back.
    pub(super) upload: Option<Arc<Upload>>,
}

impl Lease {
    /// Returns an idle connection to `server`, or else a new one.
    ///
    /// # Errors
    ///
    /// The server cannot be reached within the upstream's connect timeout.
    pub(super) async fn take(
        worker: &Arc<Worker>,
        upstream: &Arc<Upstream>,
        server: &Arc<Server>,
        fresh: bool,
    ) -> io::Result<Self> {
        server.in_flight.fetch_add(1, Relaxed);
        let mut lease = Self {
            worker: Arc::clone(worker),
            upstream: Arc::clone(upstream),
            server: Arc::clone(server),
            sender: None,
            reused: true,
            upload: None,
        };
        while !fresh
            && let Some(mut sender) = worker.pools.take(server, upstream, worker.clock.now())
        {
            // Its task may not have run since its last answer ended.
            if sender.ready().await.is_ok() {
                lease.sender = Some(sender);
                return Ok(lease);
            }
        }
        lease.reused = false;
        server.meter.connects.fetch_add(1, Relaxed);
        // In a box because it is rare, and would make every request's future larger.
        let connecting = worker.clock.timeout(upstream.connect_timeout, connect(worker, server));
        let connected = Box::pin(connecting).await;
        match connected
            .unwrap_or_else(|elapsed| Err(io::Error::new(io::ErrorKind::TimedOut, elapsed)))
        {
            Ok(sender) => {
                lease.sender = Some(sender);
                Ok(lease)
            }
            Err(error) => {
                server.meter.connect_failures.fetch_add(1, Relaxed);
                Err(error)
            }
        }
    }

    /// Returns the connection.
    pub(super) fn sender(&mut self) -> Option<&mut SendRequest<RequestBody>> {
        self.sender.as_mut()
    }

    pub(super) fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Gives the connection back, if its request was sent whole.
    pub(super) fn give_back(&mut self) {
        let sent = self.upload.as_ref().is_none_or(|sent| sent.state() == upload::DONE);
        if let Some(sender) = self.sender.take()
            && sent
            && !sender.is_closed()
        {
            let since = self.worker.clock.now();
            self.worker.pools.put(&self.server, self.upstream.max_idle, Idle { sender, since });
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.server.in_flight.fetch_sub(1, Relaxed);
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("server", &self.server.host)
            .field("reused", &self.reused)
            .finish_non_exhaustive()
    }
}

async fn connect(worker: &Arc<Worker>, server: &Server) -> io::Result<SendRequest<RequestBody>> {
    match &worker.connector {
        Connector::Tcp => {
            let stream = TcpStream::connect((&*server.host, server.port)).await?;
            stream.set_nodelay(true)?;
            handshake(stream).await
        }
        #[cfg(test)]
        Connector::Memory(accept) => {
            let (near, far) = tokio::io::duplex(64 * 1024);
            accept.send(far).map_err(|_| io::ErrorKind::ConnectionRefused)?;
            handshake(near).await
        }
    }
}

async fn handshake<T>(stream: T) -> io::Result<SendRequest<RequestBody>>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    tokio::spawn(async move {
        // Ends when its lease or the pool lets go of it; its error reaches the
        // request that waits for it.
        drop(connection.with_upgrades().await);
    });
    Ok(sender)
}

//! One worker's idle connections to upstream servers.

use super::{
    body::{Upload, upload},
    health::{self, Connecting},
    wire::Wire,
};
use crate::{
    config::{Server, Upstream},
    flow::Instant,
    proxy::service::Worker,
};
use core::{
    fmt, future::poll_fn, ops::Range, sync::atomic::Ordering::Relaxed, task::Poll, time::Duration,
};
use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Idle connections by [`Server::id`]. Another worker never takes from it; the
/// lock is there for the compiler, and never waited for.
#[derive(Default)]
pub struct Pools {
    servers: Mutex<Vec<Vec<Idle>>>,
}

struct Idle {
    wire: Wire,
    since: Instant,
    /// How long its server keeps it, as it announced.
    announced: Option<Duration>,
}

impl Idle {
    /// Whether it can be used at `now`, where a connection may be idle for `limit`.
    fn is_usable(&self, now: Instant, limit: Duration) -> bool {
        let limit = self.announced.unwrap_or(limit).min(limit);
        !self.wire.sender.is_closed() && now.since(self.since) < limit
    }
}

impl Pools {
    /// Takes the most recently used idle connection to `server`.
    fn take(&self, server: &Server, upstream: &Upstream, now: Instant) -> Option<Wire> {
        let mut servers = self.lock();
        let idle = servers.get_mut(server.id)?;
        while let Some(connection) = idle.pop() {
            if connection.is_usable(now, upstream.options.idle_timeout)
                && connection.wire.limits == upstream.options.limits
            {
                return Some(connection.wire);
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
                .map(|upstream| upstream.options.idle_timeout)
                .max()
                .unwrap_or_default();
            connections.retain(|idle| idle.is_usable(now, limit));
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

/// A connection to a server, held by one request. Dropped, it is cut off, unless
/// it was given back or detached before.
pub(super) struct Lease {
    worker: Arc<Worker>,
    upstream: Arc<Upstream>,
    server: Arc<Server>,
    wire: Option<Wire>,
    /// Whether an earlier request was served on it, so that the server may have
    /// closed it in the meantime.
    pub(super) reused: bool,
    /// Since when it is held.
    pub(super) since: Instant,
    /// The request's body.
    pub(super) upload: Option<Arc<Upload>>,
    /// Whether the answer came before the kernel had taken all of the request. The server
    /// may mean to read no more of it, and would then find the next request behind the rest.
    is_early: bool,
    /// How long the server keeps the connection, as it announced.
    announced: Option<Duration>,
}

impl Lease {
    /// Returns an idle connection to `server`, or else a new one, in the time
    /// that there is, beginning now.
    ///
    /// # Errors
    ///
    /// The server cannot be reached within the upstream's connect timeout, or in
    /// `time`.
    pub(super) async fn take(
        worker: &Arc<Worker>,
        upstream: &Arc<Upstream>,
        server: &Arc<Server>,
        fresh: bool,
        time: Range<Instant>,
    ) -> io::Result<Self> {
        server.in_flight.fetch_add(1, Relaxed);
        let mut lease = Self {
            worker: Arc::clone(worker),
            upstream: Arc::clone(upstream),
            server: Arc::clone(server),
            wire: None,
            reused: true,
            since: time.start,
            upload: None,
            is_early: false,
            announced: None,
        };
        let limit = upstream.options.connect_timeout.min(time.end.since(time.start));
        while !fresh && let Some(mut wire) = worker.pools.take(server, upstream, time.start) {
            if is_ready(&mut wire, worker, limit).await {
                lease.wire = Some(wire);
                return Ok(lease);
            }
            wire.abort();
        }
        lease.reused = false;
        server.meter.connects.fetch_add(1, Relaxed);
        let connecting =
            (upstream.servers.len() > 1).then(|| Connecting::begin(&server.health, time.start));
        // In a box because it is rare, and would make every request's future larger.
        let connected = Box::pin(
            worker.clock.timeout(limit, worker.connector.connect(server, upstream.options.limits)),
        )
        .await;
        drop(connecting);
        match connected
            .unwrap_or_else(|elapsed| Err(io::Error::new(io::ErrorKind::TimedOut, elapsed)))
        {
            Ok(wire) => {
                lease.wire = Some(wire);
                lease.since = worker.clock.now();
                Ok(lease)
            }
            Err(error) => {
                server.meter.connect_failures.fetch_add(1, Relaxed);
                Err(error)
            }
        }
    }

    /// Returns the connection.
    pub(super) fn wire(&self) -> Option<&Wire> {
        self.wire.as_ref()
    }

    /// Returns the connection, to send over it.
    pub(super) fn wire_mut(&mut self) -> Option<&mut Wire> {
        self.wire.as_mut()
    }

    pub(super) fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Whether the client's upload was cut off for the client's doing.
    pub(super) fn is_cut(&self) -> bool {
        self.upload.as_deref().is_some_and(Upload::is_cut)
    }

    /// Returns how far the client's upload is, if there is one.
    pub(super) fn upload_state(&self) -> Option<u8> {
        self.upload.as_deref().map(Upload::state)
    }

    /// Counts that its server gave no whole answer, unless the client broke off. A tunnel is
    /// none.
    pub(super) fn on_failure(&self) {
        if self.wire.is_some() && !self.is_cut() {
            self.server.meter.failures.fetch_add(1, Relaxed);
        }
    }

    /// Notes that the answer's head is there.
    pub(super) fn on_answer(&mut self) {
        let taken = self.upload.as_ref().is_none_or(|sent| sent.state() == upload::DONE);
        self.is_early = !taken || !self.wire.as_ref().is_some_and(Wire::has_left);
        health::succeeded(&self.upstream, &self.server, || self.worker.clock.now());
    }

    /// Notes how long the server keeps the connection once it is idle, if it says so.
    pub(super) fn keep_for(&mut self, announced: Option<Duration>) {
        self.announced = announced;
    }

    /// Returns the request's body if the answer came before its end.
    pub(super) fn early_upload(mut self) -> Option<Arc<Upload>> {
        self.upload.take().filter(|sent| sent.state() != upload::DONE)
    }

    /// Gives the connection back at `since`, if its request had been sent whole before the
    /// answer came.
    pub(super) fn give_back(&mut self, since: Instant) {
        if !self.is_early
            && let Some(wire) = self.wire.take()
            && !wire.sender.is_closed()
        {
            let idle = Idle { wire, since, announced: self.announced };
            self.worker.pools.put(&self.server, self.upstream.options.max_idle, idle);
        }
    }

    /// Leaves the connection to the tunnel that it has become, which its server works on
    /// for as long as the lease lives.
    pub(super) fn detach(&mut self) {
        self.wire = None;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.server.in_flight.fetch_sub(1, Relaxed);
        // Left alone, its task would go on sending to a server that does not read.
        if let Some(wire) = self.wire.take() {
            wire.abort();
        }
    }
}

/// Whether an idle connection takes another request. Its task may not have run
/// since its last answer ended.
async fn is_ready(wire: &mut Wire, worker: &Worker, limit: Duration) -> bool {
    match poll_fn(|context| Poll::Ready(wire.sender.poll_ready(context))).await {
        Poll::Ready(ready) => ready.is_ok(),
        Poll::Pending => {
            matches!(Box::pin(worker.clock.timeout(limit, wire.sender.ready())).await, Ok(Ok(())))
        }
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

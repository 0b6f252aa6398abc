//! A connection to a server on loan to one request.

use super::health::{self, Connecting};
use super::{
    Http1Connection as Connection,
    connect::{Connector, Offer, Opened},
    connection::UpstreamConnection,
    http2::STREAMS_MAX,
    pool::{Idle, Opener, Pools, Shared, Wait},
    reservation::{Reservation, Sharing},
};
use crate::proxy::body::upload::{Upload, UploadState};
use crate::{
    clock::Clock,
    config::{Server, Upstream, UpstreamProtocol},
    flow::Instant,
};
use core::{error::Error, fmt, sync::atomic::Ordering::Relaxed, time::Duration};
use std::{io, sync::Arc};

/// The connections of one worker to servers: those that are open, and the way to open more.
#[derive(Debug)]
pub struct ServerConnections {
    /// The clock, with timers that wake the worker.
    pub clock: Clock,
    /// The open connections that no request of HTTP/1.1 uses.
    pub pools: Pools,
    /// Opens connections.
    pub connector: Connector,
}

/// A connection to a server, held by one request. Dropping it cuts the connection off, unless it was
/// given back or detached before.
pub(crate) struct Lease {
    connections: Arc<ServerConnections>,
    upstream: Arc<Upstream>,
    server: Arc<Server>,
    connection: Option<UpstreamConnection>,
    /// True if an earlier request was served on it, so that the server may have closed it in the
    /// meantime.
    pub(crate) reused: bool,
    /// The time since which it is held.
    pub(crate) since: Instant,
    /// The request's body.
    pub(crate) upload: Option<Arc<Upload>>,
    /// True if the response came before the kernel had taken all of the request. The server may read no
    /// more of it, and would then take the rest for the beginning of the next request.
    is_early: bool,
    /// True if the server may have left the request's body unread, and would take it for the next request.
    may_leave_body: bool,
    /// The time for which the server keeps the connection, as it announced.
    announced: Option<Duration>,
    sharing: Sharing,
    /// The header that a new connection begins with, if it does.
    header: Option<Box<[u8]>>,
}

/// The needs of a request that decide which connections it can use.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a need of its own")]
pub(crate) struct ConnectionNeeds {
    /// A new connection, in HTTP/1.1.
    pub(crate) fresh: bool,
    /// A connection of HTTP/1.1.
    pub(crate) http1: bool,
    /// One that the server has not closed: the request cannot be sent again.
    pub(crate) once: bool,
    /// A short wait: another server is left, and the request may go there.
    pub(crate) soon: bool,
    /// The time by which the whole request must have ended.
    pub(crate) deadline: Instant,
}

/// A request does not wait for a connection, but goes to another server.
#[derive(Debug, thiserror::Error)]
#[error("the connection takes longer than usual")]
struct GivenUp;

/// True if the request did not wait for a connection as long as the server may take.
pub(crate) fn is_given_up(error: &io::Error) -> bool {
    error.get_ref().is_some_and(<dyn Error + Send + Sync>::is::<GivenUp>)
}

/// No connection of HTTP/2 had room for the request in time, and flowgate opens no more.
#[derive(Debug, thiserror::Error)]
#[error("the most connections that flowgate opens to it carry as many requests as it allows")]
struct WithoutRoom;

/// True if flowgate had no connection for the request, which is not the server's fault.
pub(crate) fn is_without_room(error: &io::Error) -> bool {
    error.get_ref().is_some_and(<dyn Error + Send + Sync>::is::<WithoutRoom>)
}

impl ConnectionNeeds {
    /// True if the request can use a connection of HTTP/2.
    fn may_share(self, upstream: &Upstream, server: &Server) -> bool {
        !self.http1
            && match upstream.options.protocol {
                UpstreamProtocol::H1 => false,
                UpstreamProtocol::H2 => true,
                UpstreamProtocol::Auto => server.is_tls,
            }
    }
}

impl Lease {
    /// Returns a lease of `server` from `now` on, without a connection.
    pub(crate) fn new(
        connections: &Arc<ServerConnections>,
        upstream: &Arc<Upstream>,
        server: Arc<Server>,
        upload: Option<Arc<Upload>>,
        now: Instant,
    ) -> Self {
        server.in_flight.fetch_add(1, Relaxed);
        Self {
            connections: Arc::clone(connections),
            upstream: Arc::clone(upstream),
            server,
            connection: None,
            reused: true,
            since: now,
            upload,
            is_early: false,
            may_leave_body: false,
            announced: None,
            sharing: Sharing::All,
            header: None,
        }
    }

    /// Takes the connection that is reserved for the client's connection, and returns true if there is one
    /// to the server.
    #[cold]
    pub(crate) fn resume(&mut self, reservation: &Reservation, needs: ConnectionNeeds) -> bool {
        if needs.fresh {
            return false;
        }
        let idle = reservation.take(&self.server, &self.upstream, self.since);
        let idle = idle.filter(|idle| !needs.once || idle.connection.is_quiet_by_kernel());
        let Some(Idle { connection, .. }) = idle else { return false };
        self.connection = Some(UpstreamConnection::Http1(connection));
        self.sharing = Sharing::OneClient;
        true
    }

    /// Has the connection begin with a header of the PROXY protocol, and serve only the client that this
    /// names, if `is_kept` its later requests too.
    #[cold]
    pub(crate) fn introduce(&mut self, header: Box<[u8]>, is_kept: bool) {
        self.header = Some(header);
        self.keep_from_others(is_kept);
    }

    /// Reserves the connection for this client if `is_kept`, or if it was reserved before. Otherwise it is
    /// closed after the request.
    pub(crate) fn keep_from_others(&mut self, is_kept: bool) {
        if is_kept {
            self.sharing = Sharing::OneClient;
        } else if self.sharing == Sharing::All {
            self.sharing = Sharing::Closed;
        }
    }

    /// Has the connection closed after the request, also if it was kept for this client.
    pub(crate) fn close_after_request(&mut self) {
        self.sharing = Sharing::Closed;
    }

    /// Takes a connection to the server: an idle one, a place on one of HTTP/2, or else a new one.
    ///
    /// # Errors
    ///
    /// The server cannot be reached within the upstream's connect timeout, or before the deadline.
    pub(crate) async fn find(&mut self, mut needs: ConnectionNeeds) -> io::Result<()> {
        if self.header.is_some() {
            needs.fresh = true;
            needs.http1 = true;
        }
        let limit = self.upstream.options.connect_timeout.min(needs.deadline.since(self.since));
        // In boxes, because they are rare and would make every request's future larger.
        if needs.may_share(&self.upstream, &self.server) {
            Box::pin(self.share(needs, limit)).await
        } else if self.reuse(needs) {
            Ok(())
        } else {
            Box::pin(self.open(needs, limit)).await
        }
    }

    /// Takes an idle connection of HTTP/1.1, and returns true if there is one.
    fn reuse(&mut self, needs: ConnectionNeeds) -> bool {
        if needs.fresh {
            return false;
        }
        let Self { connections, upstream, server, .. } = &*self;
        while let Some(connection) = connections.pools.take(server, upstream, self.since) {
            if !needs.once || connection.is_quiet_by_kernel() {
                self.connection = Some(UpstreamConnection::Http1(connection));
                return true;
            }
        }
        false
    }

    /// Opens a connection of HTTP/1.1.
    async fn open(&mut self, needs: ConnectionNeeds, limit: Duration) -> io::Result<()> {
        match self.connect(Offer::Http1, needs, limit).await? {
            Opened::Http1(connection) => {
                self.connection = Some(UpstreamConnection::Http1(connection));
            }
            // HTTP/2 was not offered.
            Opened::Http2(_) => {}
        }
        Ok(())
    }

    async fn connect(
        &mut self,
        offer: Offer,
        needs: ConnectionNeeds,
        limit: Duration,
    ) -> io::Result<Opened> {
        let Self { connections, upstream, server, header, .. } = self;
        server.meter.connects.fetch_add(1, Relaxed);

        // With another server left, later requests go there while this connection takes long to open.
        let mut slow = (upstream.members().servers.len() > 1)
            .then(|| Connecting::begin(&server.health, self.since));
        let patience = slow.as_ref().filter(|_| needs.soon).and_then(|slow| slow.patience);

        let clock = &connections.clock;
        let connecting =
            connections.connector.connect(server, upstream, offer, header.as_deref(), clock);
        let opened = wait_for(connecting, clock, limit, patience).await;
        let now = clock.now();
        match &opened {
            Ok(_) => {
                if let Some(slow) = &mut slow {
                    slow.took = Some(now.since(self.since));
                }
            }
            Err(error) => {
                let is_own = is_given_up(error) || health::is_own_shortage(error);
                if !is_own && now < needs.deadline {
                    server.meter.connect_failures.fetch_add(1, Relaxed);
                }
            }
        }

        drop(slow);
        self.reused = false;
        self.since = now;
        opened
    }

    /// Takes a place on a connection of HTTP/2, or a connection of its own if the server does not
    /// speak it.
    async fn share(&mut self, needs: ConnectionNeeds, limit: Duration) -> io::Result<()> {
        let connections = Arc::clone(&self.connections);
        let clock = &connections.clock;
        let room_by = self.since + limit;
        let mut deadline = room_by;
        let mut is_seen = false;

        loop {
            let upstream = &self.upstream;
            let server = &self.server;
            let offered = connections
                .pools
                .with_http2(server, |pool| pool.offer(server, upstream, self.since));
            let left = deadline.since(clock.now());

            match offered {
                Shared::Stream(stream) if needs.once && stream.was_idle() && !is_seen => {
                    // Its task may not have read yet that the server has ended the connection.
                    is_seen = true;
                    drop(stream);
                    tokio::task::yield_now().await;
                }
                Shared::Stream(stream) => {
                    self.connection = Some(UpstreamConnection::Http2(stream));
                    return Ok(());
                }
                Shared::Http1 => {
                    if self.reuse(needs) {
                        return Ok(());
                    }
                    return self.begin(None, needs, left).await;
                }
                Shared::Open(opener) => return self.begin(Some(opener), needs, left).await,
                Shared::Wait(wait @ Wait::Room(_)) => {
                    let left = room_by.since(clock.now());
                    let waited = clock.timeout(left, wait.over()).await;
                    waited.unwrap_or_else(|_| Err(io::Error::other(WithoutRoom)))?;
                    // The server has as long as ever, if a connection must be opened now.
                    deadline = needs.deadline.min(clock.now() + limit);
                }
                Shared::Wait(wait @ Wait::Opening(_)) => {
                    let patience = needs.soon.then(|| server.health.patience()).flatten();
                    wait_for(wait.over(), clock, left, patience).await?;
                }
            }
            self.since = clock.now();
        }
    }

    /// Opens a connection of the protocol that the server chooses.
    async fn begin(
        &mut self,
        opener: Option<Opener>,
        needs: ConnectionNeeds,
        limit: Duration,
    ) -> io::Result<()> {
        let streams = opener.as_ref().map_or(STREAMS_MAX, Opener::streams);
        // Other requests may wait for it too, and not be as impatient.
        let needs = ConnectionNeeds { soon: needs.soon && opener.is_none(), ..needs };
        let result = self.connect(Offer::Any { streams }, needs, limit).await;
        let pools = &self.connections.pools;
        let stream =
            pools.with_http2(&self.server, |pool| pool.note(&self.server, &result, opener));
        match result? {
            Opened::Http1(connection) => {
                self.connection = Some(UpstreamConnection::Http1(connection));
            }
            Opened::Http2(_) => self.connection = stream.map(UpstreamConnection::Http2),
        }
        Ok(())
    }

    /// True if its connection may carry other requests too.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.connection, Some(UpstreamConnection::Http2(_)))
    }

    /// Notes that the server did not respond in time. Other requests use another connection: this one may
    /// be dead.
    pub(crate) fn on_timeout(&self) {
        if let Some(UpstreamConnection::Http2(stream)) = &self.connection {
            stream.retire();
        }
    }

    /// Returns the connection.
    pub(crate) fn connection(&self) -> Option<&UpstreamConnection> {
        self.connection.as_ref()
    }

    /// Returns the connection for sending.
    pub(crate) fn connection_mut(&mut self) -> Option<&mut UpstreamConnection> {
        self.connection.as_mut()
    }

    pub(crate) fn server(&self) -> &Arc<Server> {
        &self.server
    }

    pub(crate) fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// True if the upload was cut off because of the client.
    pub(crate) fn is_cut(&self) -> bool {
        self.upload.as_deref().is_some_and(Upload::is_cut)
    }

    /// Returns the progress of the client's upload, if there is one.
    pub(crate) fn upload_state(&self) -> Option<UploadState> {
        self.upload.as_deref().map(Upload::state)
    }

    /// Counts a response that its server did not complete, unless the client broke off. The end of a
    /// tunnel does not count.
    pub(crate) fn on_failure(&self) {
        if self.connection.is_some() && !self.is_cut() {
            self.server.meter.failures.fetch_add(1, Relaxed);
        }
    }

    /// Notes that the response's head has come.
    pub(crate) fn on_response(&mut self) {
        self.on_copy_response();
        health::succeeded(&self.upstream, &self.server, || self.connections.clock.now());
    }

    /// Notes that the head of the response to a copy for a mirror has come, which says nothing of the
    /// server's health.
    pub(crate) fn on_copy_response(&mut self) {
        let taken = self.upload.as_ref().is_none_or(|sent| sent.state() == UploadState::Done);
        let is_sent = match &self.connection {
            Some(UpstreamConnection::Http1(connection)) => connection.is_sent(),
            Some(UpstreamConnection::Http2(_)) | None => true,
        };
        self.is_early = !taken || !is_sent;
    }

    /// Notes that the request has a body where servers may expect none. The connection is closed after the
    /// response.
    #[cold]
    pub(crate) fn on_unexpected_body(&mut self) {
        self.may_leave_body = true;
    }

    /// Notes for how long the server keeps the idle connection, if it announced that.
    pub(crate) fn keep_for(&mut self, announced: Option<Duration>) {
        self.announced = announced;
    }

    /// Returns the request's body if the response came before its end.
    pub(crate) fn early_upload(mut self) -> Option<Arc<Upload>> {
        self.upload.take().filter(|sent| sent.state() != UploadState::Done)
    }

    /// Gives the connection back at `since`, if all of the request had been sent before the response came.
    /// `reservation` is that of the client's connection.
    pub(crate) fn give_back(&mut self, since: Instant, reservation: &Reservation) {
        if !self.is_early
            && !self.may_leave_body
            && let Some(UpstreamConnection::Http1(connection)) =
                self.connection.take_if(UpstreamConnection::rest)
        {
            let idle = Idle { connection, since, announced: self.announced };
            let most = self.upstream.options.max_idle;
            match self.sharing {
                Sharing::All => self.connections.pools.put(&self.server, most, idle),
                Sharing::OneClient if most > 0 => reservation.put(&self.server, idle),
                Sharing::OneClient | Sharing::Closed => drop(idle),
            }
        }
    }

    /// Returns the connection for the tunnel that it has become. It counts for its server as long as the
    /// lease lives. There is none if a part of the request's body has not left: the server would take the
    /// bytes of the tunnel for the rest of it.
    pub(crate) fn detach(&mut self) -> Option<Box<Connection>> {
        match self.connection.take()? {
            UpstreamConnection::Http1(connection) => {
                Some(connection).filter(|connection| connection.is_sent())
            }
            UpstreamConnection::Http2(_) => None,
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.server.in_flight.fetch_sub(1, Relaxed);
    }
}

/// Waits for a connection: for `limit`, or for the shorter `patience` of the request.
async fn wait_for<T>(
    connection: impl Future<Output = io::Result<T>>,
    clock: &Clock,
    limit: Duration,
    patience: Option<Duration>,
) -> io::Result<T> {
    let is_patient = patience.is_none_or(|patience| patience >= limit);
    let wait = patience.unwrap_or(limit).min(limit);
    clock.timeout(wait, connection).await.unwrap_or_else(|elapsed| {
        Err(if is_patient { late(elapsed) } else { io::Error::other(GivenUp) })
    })
}

fn late(elapsed: impl Into<Box<dyn Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, elapsed)
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("server", &self.server.host)
            .field("reused", &self.reused)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn a_socket_that_is_busy_is_not_taken_for_a_wait_that_was_given_up() {
        assert!(is_given_up(&io::Error::other(GivenUp)));
        // The error of a Unix socket whose server accepts no more connections.
        for error in [io::Error::from(Errno::AGAIN), io::ErrorKind::WouldBlock.into()] {
            assert!(!is_given_up(&error));
        }
    }
}

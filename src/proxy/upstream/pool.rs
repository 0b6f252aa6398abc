//! One worker's connections to servers: idle ones of HTTP/1.1, and those of HTTP/2 that requests
//! share.

use super::{
    connect::Opened,
    http1,
    http2::{self, STREAMS_MAX, Stream},
    transport::ConnectionSettings,
};
use crate::{
    config::{Server, Upstream, UpstreamProtocol},
    flow::Instant,
};
use core::{fmt, time::Duration};
use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::{Notify, watch};

/// The longest time between two sweeps, and the shortest.
const SWEEP_LATEST: Duration = Duration::from_secs(5);
const SWEEP_PAUSE: Duration = Duration::from_millis(50);

/// Connections by [`Server::id`]: idle ones of HTTP/1.1, and those of HTTP/2. Only one worker uses them:
/// no thread ever waits for the lock.
#[derive(Default)]
pub struct Pools {
    servers: Mutex<BTreeMap<usize, OfServer>>,
}

#[derive(Default)]
struct OfServer {
    idle: Vec<Alike>,
    /// `None` until HTTP/2 was tried.
    http2: Option<Box<Http2Pool>>,
}

/// Idle connections of HTTP/1.1 that were opened with the same settings. Several upstreams may have the
/// same server with different ones.
#[derive(Debug)]
struct Alike {
    settings: ConnectionSettings,
    connections: Vec<Idle>,
}

/// An idle connection of HTTP/1.1.
#[derive(Debug)]
pub(super) struct Idle {
    pub(super) connection: Box<http1::Connection>,
    pub(super) since: Instant,
    /// The time for which its server keeps it, as it announced.
    pub(super) announced: Option<Duration>,
}

impl Idle {
    /// Returns the time until which it can be used, if a connection may be idle for `limit`.
    fn end(&self, limit: Duration) -> Instant {
        self.since + self.announced.unwrap_or(limit).min(limit)
    }

    /// True if it can be used at `now`, where a connection may be idle for `limit`.
    fn is_usable(&mut self, now: Instant, limit: Duration) -> bool {
        now < self.end(limit) && self.connection.is_quiet_by_runtime()
    }

    /// True if it can be used at `now` for a request to `server`.
    pub(super) fn fits(&mut self, server: &Server, upstream: &Upstream, now: Instant) -> bool {
        self.is_usable(now, upstream.options.idle_timeout)
            && self.connection.settings().fit(server, upstream)
    }
}

impl Pools {
    /// Takes the most recently used idle connection to `server`.
    pub(super) fn take(
        &self,
        server: &Server,
        upstream: &Upstream,
        now: Instant,
    ) -> Option<Box<http1::Connection>> {
        let mut servers = self.lock();
        let idle = &mut servers.get_mut(&server.id)?.idle;
        let alike = idle.iter_mut().find(|alike| alike.settings.fit(server, upstream))?;
        while let Some(mut idle) = alike.connections.pop() {
            if idle.is_usable(now, upstream.options.idle_timeout) {
                return Some(idle.connection);
            }
        }
        None
    }

    /// Keeps a connection for the next request, unless there are `most` with its settings already.
    pub(super) fn put(&self, server: &Server, most: usize, idle: Idle) {
        let mut servers = self.lock();
        let all = &mut servers.entry(server.id).or_default().idle;
        let settings = idle.connection.settings();
        match all.iter_mut().find(|alike| alike.settings.is_same(settings)) {
            Some(alike) if alike.connections.len() < most => alike.connections.push(idle),
            None if most > 0 => {
                let settings = settings.clone();
                all.push(Alike { settings, connections: vec![idle] });
            }
            Some(_) | None => {}
        }
    }

    /// Works on the connections of HTTP/2 to `server`.
    pub(crate) fn with_http2<T>(
        &self,
        server: &Server,
        work: impl FnOnce(&mut Http2Pool) -> T,
    ) -> T {
        let mut servers = self.lock();
        work(servers.entry(server.id).or_default().http2.get_or_insert_default())
    }

    /// Closes the connections that their servers have closed, that were idle for too long, or that no
    /// upstream is configured for any more. Returns the time of the next sweep, so that each connection is
    /// closed in time.
    pub(crate) fn sweep(&self, upstreams: &[Arc<Upstream>], now: Instant) -> Instant {
        // A connection that becomes idle after this sweep is not idle for too long before that time.
        let shortest = upstreams.iter().map(|upstream| upstream.options.idle_timeout).min();
        let mut next = now + shortest.map_or(SWEEP_LATEST, |shortest| shortest.min(SWEEP_LATEST));

        let all = upstreams.iter().flat_map(|upstream| {
            upstream.servers().into_iter().map(move |server| (&**upstream, server))
        });
        let mut servers: Vec<_> = all.collect();
        servers.sort_unstable_by_key(|(_, server)| server.id);

        self.lock().retain(|id, of_server| {
            let start = servers.partition_point(|(_, server)| server.id < *id);
            let users = servers[start..].iter().take_while(|(_, server)| server.id == *id);
            let users = users.map(|(upstream, server)| (*upstream, &**server));
            let limit = users.clone().map(|(upstream, _)| upstream.options.idle_timeout).max();
            let limit = limit.unwrap_or_default();
            of_server.idle.retain_mut(|alike| {
                alike.connections.retain_mut(|idle| idle.is_usable(now, limit));
                users.clone().any(|(upstream, server)| alike.settings.fit(server, upstream))
            });
            let http2 = of_server.http2.as_mut().and_then(|http2| http2.sweep(&users, now, limit));
            let idle = of_server.idle.iter().flat_map(|alike| &alike.connections);
            let ends = idle.map(|idle| idle.end(limit)).chain(http2);
            next = ends.fold(next, Instant::min);
            users.clone().next().is_some()
        });
        next.max(now + SWEEP_PAUSE)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, OfServer>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Pools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers = self.lock();
        let alike = servers.values().flat_map(|of_server| &of_server.idle);
        let idle: usize = alike.map(|alike| alike.connections.len()).sum();
        f.debug_struct("Pools").field("idle", &idle).finish()
    }
}

/// The most connections of one worker to one server. They are opened one after the other, and only when
/// the open ones carry as many requests as the server allows.
const CONNECTIONS_MAX: usize = 100;

/// One worker's connections of HTTP/2 to one server.
#[derive(Debug, Default)]
pub(crate) struct Http2Pool {
    connections: Vec<Arc<http2::Connection>>,
    /// The state of a connection that is being opened; requests that find no room wait for it.
    opening: Option<watch::Receiver<Opening>>,
    /// True if the server chose HTTP/1.1 last, so that no request waits for another's connection.
    is_http1: bool,
    /// The number of requests at once that the server allowed last.
    streams: Option<usize>,
    /// Notified when there may be room.
    room: Arc<Notify>,
}

/// The state of a connection that is being opened.
#[derive(Clone, Debug)]
pub(crate) enum Opening {
    Pending,
    Done,
    Failed(io::ErrorKind, Arc<str>),
}

/// The pool's offer to a request.
pub(crate) enum Shared {
    /// A place on a connection.
    Stream(Box<Stream>),
    /// The server speaks HTTP/1.1.
    Http1,
    /// The request opens a connection.
    Open(Opener),
    /// The request waits, and then takes another offer.
    Wait(Wait),
}

/// A wait for room on a connection.
pub(crate) enum Wait {
    Opening(watch::Receiver<Opening>),
    Room(Arc<Notify>),
}

/// The duty to open a connection. If it is dropped, another request takes it over.
#[derive(Debug)]
pub(crate) struct Opener {
    opening: watch::Sender<Opening>,
    streams: usize,
}

impl Opener {
    /// Returns the number of requests at once that the server is expected to allow.
    pub(crate) fn streams(&self) -> usize {
        self.streams
    }
}

impl Wait {
    /// Waits until another offer may be better.
    ///
    /// # Errors
    ///
    /// The connection that was waited for could not be opened.
    pub(crate) async fn over(self) -> io::Result<()> {
        match self {
            Self::Room(room) => room.notified().await,
            Self::Opening(mut opening) => {
                let ended = opening.wait_for(|opening| !matches!(opening, Opening::Pending)).await;
                if let Ok(ended) = ended
                    && let Opening::Failed(kind, why) = &*ended
                {
                    return Err(io::Error::new(*kind, why.to_string()));
                }
            }
        }
        Ok(())
    }
}

impl Http2Pool {
    /// Returns the offer to a request to `server` at `now`. A connection that was idle for longer than the
    /// upstream keeps it is left to [`Self::sweep`].
    pub(crate) fn offer(
        &mut self,
        server: &Arc<Server>,
        upstream: &Upstream,
        now: Instant,
    ) -> Shared {
        let limit = upstream.options.idle_timeout;
        self.connections.retain(|connection| !connection.is_over());
        let mut fitting = self
            .connections
            .iter()
            .filter(|connection| connection.settings().fit(server, upstream))
            .filter(|connection| !connection.is_idle(now, limit));

        // The open connections.
        if let Some(connection) = fitting.clone().find(|connection| connection.has_room()) {
            return Shared::Stream(Stream::on(connection, &self.room, server));
        }
        if let Some(full) = fitting.next() {
            self.streams = Some(full.streams_max()).filter(|streams| *streams > 0);
        } else if self.is_http1 && upstream.options.protocol == UpstreamProtocol::Auto {
            return Shared::Http1;
        }

        // The one that is being opened.
        if let Some(opening) = self.opening.as_ref().filter(|opening| opening.has_changed().is_ok())
        {
            return Shared::Wait(Wait::Opening(opening.clone()));
        }
        if self.connections.len() >= CONNECTIONS_MAX {
            return Shared::Wait(Wait::Room(Arc::clone(&self.room)));
        }

        // A new one.
        let (sender, opening) = watch::channel(Opening::Pending);
        self.opening = Some(opening);
        let streams = self.streams.unwrap_or(STREAMS_MAX).max(1);
        Shared::Open(Opener { opening: sender, streams })
    }

    /// Notes the result of opening a connection, and returns a place on it if it is of HTTP/2. `opener` is
    /// that of the request that opened it for others too.
    pub(crate) fn note(
        &mut self,
        server: &Arc<Server>,
        result: &io::Result<Opened>,
        opener: Option<Opener>,
    ) -> Option<Box<Stream>> {
        if opener.is_some() {
            self.opening = None;
        }

        let (ended, stream) = match result {
            Err(error) => (Opening::Failed(error.kind(), error.to_string().into()), None),
            Ok(Opened::Http1(_)) => {
                self.is_http1 = true;
                (Opening::Done, None)
            }
            Ok(Opened::Http2(connection)) => {
                self.is_http1 = false;
                self.connections.push(Arc::clone(connection));
                (Opening::Done, Some(Stream::on(connection, &self.room, server)))
            }
        };

        if let Some(opener) = opener {
            // Perhaps no request waits for it.
            opener.opening.send_replace(ended);
        }
        stream
    }

    /// Drops connections that are over, that were idle for `limit`, or that none of the `users` would open
    /// in the same way with the current configuration. Returns the time at which the next one will have
    /// been idle for that long.
    pub(crate) fn sweep<'u>(
        &mut self,
        users: &(impl Iterator<Item = (&'u Upstream, &'u Server)> + Clone),
        now: Instant,
        limit: Duration,
    ) -> Option<Instant> {
        self.connections.retain(|connection| {
            let is_wanted =
                users.clone().any(|(upstream, server)| connection.settings().fit(server, upstream));
            is_wanted && !connection.is_over() && !connection.is_idle(now, limit)
        });
        self.room.notify_waiters();
        let idle = self.connections.iter().filter_map(|connection| connection.idle_since());
        idle.min().map(|since| since + limit)
    }
}

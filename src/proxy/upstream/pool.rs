//! One worker's idle connections to upstream servers.

use super::{http1::Connection, http2::pool::Http2Pool};
use crate::{
    config::{Server, Upstream},
    flow::Instant,
};
use core::{fmt, time::Duration};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The longest and the shortest time between two sweeps.
const SWEEP_LATEST: Duration = Duration::from_secs(5);
const SWEEP_PAUSE: Duration = Duration::from_millis(50);

/// Connections by [`Server::id`]: idle ones of HTTP/1.1, and those of HTTP/2. Another worker never
/// takes from it; the lock is there for the compiler, and never waited for.
#[derive(Default)]
pub struct Pools {
    servers: Mutex<BTreeMap<usize, OfServer>>,
}

#[derive(Default)]
struct OfServer {
    idle: Vec<Idle>,
    /// There once HTTP/2 was tried.
    http2: Option<Box<Http2Pool>>,
}

#[derive(Debug)]
pub(super) struct Idle {
    pub(super) connection: Box<Connection>,
    pub(super) since: Instant,
    /// How long its server keeps it, as it announced.
    pub(super) announced: Option<Duration>,
}

impl Idle {
    /// Returns until when it can be used, where a connection may be idle for `limit`.
    fn end(&self, limit: Duration) -> Instant {
        self.since + self.announced.unwrap_or(limit).min(limit)
    }

    /// Whether it can be used at `now`, where a connection may be idle for `limit`.
    fn is_usable(&mut self, now: Instant, limit: Duration) -> bool {
        now < self.end(limit) && self.connection.is_quiet_by_runtime()
    }

    /// Whether it can be used at `now` for a request to `server`.
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
    ) -> Option<Box<Connection>> {
        let mut servers = self.lock();
        let idle = &mut servers.get_mut(&server.id)?.idle;
        while let Some(mut idle) = idle.pop() {
            if idle.fits(server, upstream, now) {
                return Some(idle.connection);
            }
        }
        None
    }

    /// Keeps a connection for the next request, unless there are `most` already.
    pub(super) fn put(&self, server: &Server, most: usize, idle: Idle) {
        let mut servers = self.lock();
        let of_server = servers.entry(server.id).or_default();
        if of_server.idle.len() < most {
            of_server.idle.push(idle);
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

    /// Closes what has been closed or idle for too long; `upstreams` says how long
    /// that is for each server, and which servers are still configured. Returns by when to do it again,
    /// so that each is closed in time.
    pub(crate) fn sweep(&self, upstreams: &[Arc<Upstream>], now: Instant) -> Instant {
        // One that becomes idle after this is not idle for too long before.
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
            of_server.idle.retain_mut(|idle| idle.is_usable(now, limit));
            let http2 = of_server.http2.as_mut().and_then(|http2| http2.sweep(&users, now, limit));
            let ends = of_server.idle.iter().map(|idle| idle.end(limit)).chain(http2);
            next = ends.fold(next, Instant::min);
            !of_server.idle.is_empty() || users.clone().next().is_some()
        });
        next.max(now + SWEEP_PAUSE)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, OfServer>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Pools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let idle: usize = self.lock().values().map(|of_server| of_server.idle.len()).sum();
        f.debug_struct("Pools").field("idle", &idle).finish()
    }
}

//! The outcomes of requests change the health of their servers, and each change is logged.

pub(crate) use crate::health::ServerFailure;
use crate::{
    config::{Server, Upstream},
    flow::Instant,
    health::{HealthChange, RequestTotals, ServerHealth},
};
use core::{sync::atomic::Ordering::Relaxed, time::Duration};
use rustix::io::Errno;
use std::io;

/// Notes that `server` responded.
pub(crate) fn succeeded(upstream: &Upstream, server: &Server, now: impl FnOnce() -> Instant) {
    if server.health.is_suspect()
        && let Some(change) = server.health.succeeded(now())
    {
        log(upstream, server, change, "it answered a request");
    }
}

/// Notes that `server` failed a request, because of `cause` and not because of the client.
pub(crate) fn failed(
    upstream: &Upstream,
    server: &Server,
    now: Instant,
    failure: ServerFailure,
    cause: &str,
) {
    let ejection = &upstream.options.ejection;
    let turn = upstream.ejection_state.take_turn();
    let change = server.health.failed(now, failure, ejection, || out(upstream));
    drop(turn);
    if let Some(change) = change {
        log(upstream, server, change, cause);
    }
}

/// Judges each server of these upstreams by its share of failed requests, and logs that no server of an
/// upstream is healthy. One thread of the process calls it about once a second.
pub(crate) fn observe<'u>(upstreams: impl IntoIterator<Item = &'u Upstream>, now: Instant) {
    for upstream in upstreams {
        upstream.retries.observe(now);
        log_if_none_is_healthy(upstream);
        let servers = upstream.servers();
        if servers.len() <= 1 {
            continue;
        }

        for server in &servers {
            let totals = RequestTotals {
                requests: server.meter.requests.load(Relaxed),
                failures: server.meter.failures.load(Relaxed),
            };
            let ejection = &upstream.options.ejection;
            let turn = upstream.ejection_state.take_turn();
            let change = server.health.observe(now, totals, ejection, || out(upstream));
            drop(turn);
            if let Some(change) = change {
                log(upstream, server, change, "too many of its requests failed");
            }
        }
    }
}

/// Logs once that the last healthy server of `upstream` has failed, and once that one is healthy again.
fn log_if_none_is_healthy(upstream: &Upstream) {
    let members = upstream.members();
    let servers = &members.servers;
    // An upstream has no servers while its name has no address.
    let is_none_healthy =
        !servers.is_empty() && !servers.iter().any(|server| server.health.is_healthy());
    let has_backups = !members.backup_schedule.is_empty();
    if !upstream.ejection_state.note(is_none_healthy) {
        return;
    }
    let upstream = &upstream.name;
    if is_none_healthy && has_backups {
        tracing::warn!(%upstream, "no server of the upstream is healthy, and no backup: requests go to all that are no backups, and to backups if those fail");
    } else if is_none_healthy {
        tracing::warn!(%upstream, "no server of the upstream is healthy: requests go to all of them");
    } else {
        tracing::info!(%upstream, "a server of the upstream is healthy again: requests go to healthy servers");
    }
}

/// Returns the number of servers that get no requests while another is healthy, and of all servers.
fn out(upstream: &Upstream) -> (usize, usize) {
    let servers = &upstream.members().servers;
    (servers.iter().filter(|server| server.health.is_out()).count(), servers.len())
}

pub(crate) fn log(upstream: &Upstream, server: &Server, change: HealthChange, cause: &str) {
    let upstream = &upstream.name;
    let server = server.address();
    if change.is_good() {
        tracing::info!(%upstream, %server, cause, "{change}");
    } else {
        tracing::warn!(%upstream, %server, cause, "{change}");
    }
}

/// Returns true if a connection failed because flowgate lacks descriptors, ports or memory.
pub(crate) fn is_own_shortage(error: &io::Error) -> bool {
    const OWN: [Errno; 5] =
        [Errno::MFILE, Errno::NFILE, Errno::ADDRNOTAVAIL, Errno::NOBUFS, Errno::NOMEM];
    let code = error.raw_os_error();
    code.is_some_and(|code| OWN.iter().any(|errno| errno.raw_os_error() == code))
}

/// Makes other requests go to other servers while a connection takes long to open. It is dropped when the
/// connection is open, or no longer awaited.
pub(crate) struct Connecting<'h> {
    health: &'h ServerHealth,
    /// The time after which it should be given up if another server is left.
    pub(crate) patience: Option<Duration>,
    /// The time that it took, once it is open.
    pub(crate) took: Option<Duration>,
}

impl<'h> Connecting<'h> {
    pub(crate) fn begin(health: &'h ServerHealth, now: Instant) -> Self {
        Self { health, patience: health.connecting(now), took: None }
    }
}

impl Drop for Connecting<'_> {
    fn drop(&mut self) {
        self.health.connected(self.took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::tests::live;
    use std::{sync::Barrier, thread};

    #[test]
    fn workers_that_fail_two_servers_at_once_eject_one() {
        for _ in 0..200 {
            let (clock, live) = live(
                "listeners: [{ name: web, listen: '127.0.0.1:0' }]\n\
                 upstreams: [{ name: up, servers: [{ url: 'http://10.0.0.1' }, { url: 'http://10.0.0.2' }] }]\n\
                 routes: [{ name: all, match: { path_prefix: / }, upstream: up }]\n",
            );
            let snapshot = live.load_full();
            let upstream = &snapshot.upstreams[0];
            let servers = upstream.servers();
            let now = clock.now();
            let begin = Barrier::new(2);
            thread::scope(|scope| {
                for server in &servers {
                    scope.spawn(|| {
                        begin.wait();
                        failed(upstream, server, now, ServerFailure::Connect, "a test");
                    });
                }
            });
            let mut words: Vec<_> = servers.iter().map(|server| server.health.word()).collect();
            words.sort_unstable();
            assert_eq!(words, ["ejected", "unreachable"]);
        }
    }
}

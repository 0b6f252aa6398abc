//! Upstreams and their servers.

use super::{board::Board, query::Query};
use crate::config::{Balance, Server, Snapshot, Upstream};
use serde::Serialize;
use std::sync::{Arc, atomic::Ordering::Relaxed};

/// How many upstreams are shown, those with servers out of order first.
const MOST_UPSTREAMS: usize = 30;

/// How many servers of each.
const MOST_SERVERS: usize = 30;

#[derive(Debug, Serialize)]
pub(super) struct UpstreamsView {
    total: usize,
    /// Servers that are not healthy.
    out: usize,
    /// Servers that get requests, of which at least half fail.
    failing: usize,
    rows: Vec<UpstreamRow>,
}

#[derive(Debug, Serialize)]
struct UpstreamRow {
    name: String,
    balance: Balance,
    out: usize,
    servers_total: usize,
    servers: Vec<ServerRow>,
}

#[derive(Debug, Serialize)]
struct ServerRow {
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// `healthy`, `not asked yet`, `ejected`, `unreachable` or `unhealthy`.
    health: &'static str,
    weight: u32,
    in_flight: u32,
    requests: u64,
    failures: u64,
    /// Responses with a status of 500 to 599.
    server_errors: u64,
    /// The share of its latest requests that failed, if at least half of them did.
    #[serde(skip_serializing_if = "Option::is_none")]
    failing: Option<f64>,
    ejections: u64,
}

impl UpstreamsView {
    pub(super) fn of(snapshot: &Snapshot, board: &Board, query: &Query) -> Self {
        let servers: Vec<(&Arc<Upstream>, Vec<Arc<Server>>)> =
            snapshot.upstreams.iter().map(|upstream| (upstream, upstream.servers())).collect();
        let out = |servers: &[Arc<Server>]| {
            servers.iter().filter(|server| !server.health.is_healthy()).count()
        };
        let is_failing = |server: &Arc<Server>| {
            server.health.is_healthy() && board.server(server.id).failing().is_some()
        };
        let failing =
            |servers: &[Arc<Server>]| servers.iter().filter(|server| is_failing(server)).count();
        let mut found: Vec<_> = servers
            .iter()
            .filter(|(upstream, servers)| {
                query.finds(&upstream.name)
                    || servers.iter().any(|server| query.finds(&server.authority()))
            })
            .map(|(upstream, servers)| (out(servers), upstream, servers))
            .collect();
        found.sort_by_key(|(out, _, servers)| (*out == 0, failing(servers) == 0));
        let rows = found.into_iter().take(MOST_UPSTREAMS).map(|(out, upstream, servers)| {
            let mut rows: Vec<_> = servers.iter().collect();
            rows.sort_by_key(|server| (server.health.is_healthy(), !is_failing(server)));
            UpstreamRow {
                name: upstream.name.to_string(),
                balance: upstream.options.balance,
                out,
                servers_total: servers.len(),
                servers: rows
                    .into_iter()
                    .take(MOST_SERVERS)
                    .map(|server| ServerRow::of(server, board))
                    .collect(),
            }
        });
        Self {
            total: servers.len(),
            out: servers.iter().map(|(_, servers)| out(servers)).sum(),
            failing: servers.iter().map(|(_, servers)| failing(servers)).sum(),
            rows: rows.collect(),
        }
    }
}

impl ServerRow {
    fn of(server: &Server, board: &Board) -> Self {
        let track = board.server(server.id);
        Self {
            address: server.address(),
            name: server.ip.map(|_| server.authority()),
            health: server.health_word(),
            weight: server.weight,
            in_flight: server.in_flight.load(Relaxed),
            requests: track.latest.requests,
            failures: track.latest.failures,
            server_errors: track.latest.server_errors,
            failing: track.failing(),
            ejections: server.health.ejections(),
        }
    }
}

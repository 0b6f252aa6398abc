//! Upstreams and their servers.

use super::{board::Board, query::Query};
use crate::{
    admin::sample::{ServerRow, UpstreamList, UpstreamRow},
    config::{Server, Snapshot, Upstream},
};
use std::sync::{Arc, atomic::Ordering::Relaxed};

/// The number of upstreams that are shown, those with servers out of order first.
const MOST_UPSTREAMS: usize = 30;

/// The number of servers of each.
const MOST_SERVERS: usize = 30;

impl UpstreamList {
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
                balance: Some(upstream.options.balance),
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
            health: server.health_word().into(),
            weight: server.weight,
            in_flight: server.in_flight.load(Relaxed).into(),
            requests: track.latest.requests,
            failures: track.latest.failures,
            bad_statuses: track.latest.server_errors,
            failing: track.failing(),
            ejections: server.health.ejections(),
        }
    }
}

//! Checks the nodes of a Redis Cluster: a broken connection is noticed only when it is used.

use super::store_connection::StoreConnection;
use crate::cluster::{error::within, limits::BACKGROUND_CALL_TIMEOUT};
use redis::{aio::MultiplexedConnection, cmd};
use tokio::task::JoinSet;

/// A check of all nodes in a task of its own, because a node that hangs takes long.
#[derive(Default)]
pub(super) struct Probe(JoinSet<()>);

impl Probe {
    /// Begins a check after so many failures of the store, unless one is running.
    pub(super) fn begin(&mut self, connection: &StoreConnection, failures: u64) {
        while self.0.try_join_next().is_some() {}
        if self.0.is_empty() && connection.servers.nodes().is_some() {
            self.0.spawn(check(connection.clone(), failures));
        }
    }

    /// The same, and gives up a check that began before these failures.
    pub(super) fn begin_anew(&mut self, connection: &StoreConnection, failures: u64) {
        self.0 = JoinSet::new();
        self.begin(connection, failures);
    }
}

/// Checks all healthy nodes but the one that this worker registered with just now. A node that does not answer
/// fails from now on.
async fn check(connection: StoreConnection, failures: u64) {
    let Some(nodes) = connection.servers.nodes() else { return };
    let registered = nodes.node_of(&connection.client.store.key("gateways"));
    let mut checks = JoinSet::new();
    for (node, server) in nodes.healthy().filter(|(node, _)| Some(*node) != registered) {
        checks.spawn(check_node(connection.clone(), node, server));
    }
    while checks.join_next().await.is_some() {}
    connection.client.store.on_checked(connection.client.number, failures);
}

async fn check_node(connection: StoreConnection, node: usize, mut server: MultiplexedConnection) {
    let client = &connection.client;
    let time = cmd("TIME");
    let answer = client
        .clock
        .timeout(client.limit.max(BACKGROUND_CALL_TIMEOUT), time.exec_async(&mut server))
        .await;
    if let Err(failure) = within(answer) {
        // A failure of the node or of the call, never of the store.
        drop(connection.record(failure.of_call("check").of_node(node)));
    }
}

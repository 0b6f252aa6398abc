//! Asks the nodes of a Redis Cluster whether they are there: over a connection that nobody asks by,
//! nobody learns that it has broken.

use super::store_connection::StoreConnection;
use crate::cluster::{error::within, limits::PATIENCE};
use redis::{aio::MultiplexedConnection, cmd};
use tokio::task::JoinSet;

/// A check of all nodes, beside all else that a client's task does, as one that hangs takes long.
#[derive(Default)]
pub(super) struct Probe(JoinSet<()>);

impl Probe {
    /// Begins one after so many failures of the store, unless one is under way.
    pub(super) fn begin(&mut self, link: &StoreConnection, failures: u64) {
        while self.0.try_join_next().is_some() {}
        if self.0.is_empty() && link.connection.nodes().is_some() {
            self.0.spawn(check(link.clone(), failures));
        }
    }

    /// The same, and gives up the one that is under way, which began before these failures.
    pub(super) fn begin_anew(&mut self, link: &StoreConnection, failures: u64) {
        self.0 = JoinSet::new();
        self.begin(link, failures);
    }
}

/// Asks all nodes that are not out but for the one that was greeted just now: who does not answer
/// is out.
async fn check(link: StoreConnection, failures: u64) {
    let Some(nodes) = link.connection.nodes() else { return };
    let greeted = nodes.node_of(&link.inner.store.key("gateways"));
    let mut asked = JoinSet::new();
    for (node, connection) in nodes.not_out().filter(|(node, _)| Some(*node) != greeted) {
        asked.spawn(ask(link.clone(), node, connection));
    }
    while asked.join_next().await.is_some() {}
    link.inner.store.on_checked(link.inner.number, failures);
}

async fn ask(link: StoreConnection, node: usize, mut connection: MultiplexedConnection) {
    let limit = link.inner.limit.max(PATIENCE);
    let time = cmd("TIME");
    let answer = link.inner.clock.timeout(limit, time.exec_async(&mut connection)).await;
    if let Err(failure) = within(answer) {
        // It is the node's, or the call's: never the store's.
        drop(link.record(failure.of_call("check").of_node(node)));
    }
}

//! The task that renews the leases of a worker's requests in flight, and gives back those of
//! requests that ended.
//!
//! It does not wait for the connection task, nor one node of a Redis Cluster for another.

use super::{
    held::{Lease, Renewal},
    lease_update::{Batch, BatchResult, Node, Update},
};
use crate::cluster::{
    error::CallFailure,
    redis::{ClientState, StoreConnection},
};
use std::{collections::HashSet, sync::Arc};
use tokio::task::JoinSet;

/// Keeps leases for as long as the worker lasts.
pub(in crate::cluster) async fn keep(client: Arc<ClientState>) {
    let mut next = client.clock.now() + client.heartbeat();
    let mut renewals = Lanes::default();
    let mut releases = Lanes::default();
    // The connection over which the kept leases were last given back.
    let mut tried = 0;
    loop {
        let mut is_beat = false;
        tokio::select! {
            () = renewals.end() => {}
            () = releases.end() => {}
            () = client.leases.ended.notified() => {}
            () = client.clock.timer(next) => is_beat = true,
        }
        if is_beat {
            next = client.clock.now() + client.heartbeat();
        }
        let Some(connection) = client.connection().clone() else { continue };
        if is_beat {
            for (node, batches) in connection.batches(client.leases.held()) {
                renewals.begin(&connection, node, renew_own(connection.clone(), batches));
            }
        }
        if is_beat || connection.number != tried {
            tried = connection.number;
            let is_one = connection.is_one_server();
            let node_of = |tag: &str| connection.node_of(tag);
            let is_reached =
                |tag: &str| node_of(tag).map_or(is_one, |node| !connection.is_failed(node));
            client.leases.put_back_kept(is_reached);
        }
        let is_free = |tag: &str| releases.is_free(&connection, connection.node_of(tag));
        let ended = client.leases.take_ended(is_free);
        for (node, batches) in connection.batches(ended) {
            releases.begin(&connection, node, give_back(connection.clone(), batches));
        }
    }
}

/// The updates that run, one at a time for each node, so that leases that end meanwhile are given
/// back together.
#[derive(Default)]
struct Lanes {
    running: JoinSet<Lane>,
    busy: HashSet<Lane>,
}

/// The number of a connection, and a node.
type Lane = (u64, Node);

impl Lanes {
    fn is_free(&self, connection: &StoreConnection, node: Node) -> bool {
        !self.busy.contains(&(connection.number, node))
    }

    /// Begins an update, unless one is running there.
    fn begin(
        &mut self,
        connection: &StoreConnection,
        node: Node,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        let lane = (connection.number, node);
        if self.busy.insert(lane) {
            self.running.spawn(async move {
                work.await;
                lane
            });
        }
    }

    /// Waits until an update has ended.
    async fn end(&mut self) {
        match self.running.join_next().await {
            Some(Ok(lane)) => drop(self.busy.remove(&lane)),
            // The runtime ends.
            Some(Err(_)) => {}
            None => core::future::pending().await,
        }
    }
}

/// Gives leases at one node back, or keeps them for the next connection.
async fn give_back(connection: StoreConnection, batches: Vec<Batch<Lease>>) {
    let count = batches.iter().map(Vec::len).sum();
    let leases = Arc::clone(&connection.client.leases);
    for (batch, result) in connection.update(Update::Release, batches).await {
        match result {
            BatchResult::Done => leases.heard(&batch),
            BatchResult::Later | BatchResult::Apart => leases.keep(batch),
            BatchResult::Failed(failure) => {
                failure.map(|failure| connection.fail(failure));
                leases.put_back(batch);
            }
        }
    }
    leases.given_back(count);
}

/// Renews what the worker holds at one node.
async fn renew_own(connection: StoreConnection, batches: Vec<Batch<Renewal>>) {
    if let Err(failure) = connection.renew(batches).await {
        connection.fail(failure);
    }
}

impl StoreConnection {
    /// Renews the leases of all workers at nodes with new connections. It must come before any
    /// request: the store would grant a lease that has run out to another.
    pub(in crate::cluster) async fn renew_anew(&self) -> Result<(), CallFailure> {
        let mut held = self.client.store.leases.held();
        held.retain(|renewal| !self.is_kept(&renewal.lease.0));
        let mut nodes = JoinSet::new();
        for (_, batches) in self.batches(held) {
            let connection = self.clone();
            nodes.spawn(async move { connection.renew(batches).await });
        }
        let mut all = Ok(());
        // Otherwise, the runtime ends.
        while let Some(Ok(renewed)) = nodes.join_next().await {
            all = all.and(renewed);
        }
        all
    }

    /// Renews leases at one node. The error concerns the whole store.
    async fn renew(&self, batches: Vec<Batch<Renewal>>) -> Result<(), CallFailure> {
        let mut renewed = Ok(());
        for (batch, result) in self.update(Update::Renew, batches).await {
            batch.into_iter().for_each(Renewal::renewed);
            if let BatchResult::Failed(Some(failure)) = result {
                renewed = Err(failure);
            }
        }
        renewed
    }
}

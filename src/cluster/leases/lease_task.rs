//! The task that keeps a worker's leases: it renews those of requests in flight, and gives back
//! what has ended. Beside the one that sees to the connection, so that neither waits for the other;
//! nor does what lies at one node of a Redis Cluster wait for another node.

use super::{
    held::{Lease, Renewal},
    lease_update::{Batch, Node, Outcome, Update},
};
use crate::cluster::{
    error::Failure,
    redis::store_connection::{ClientState, StoreConnection},
};
use std::{collections::HashSet, sync::Arc};
use tokio::task::JoinSet;

/// Keeps leases for as long as the worker lasts.
pub(in crate::cluster) async fn keep(client: Arc<ClientState>) {
    let mut next = client.clock.now() + client.beat();
    let (mut renewals, mut releases) = (Lanes::default(), Lanes::default());
    // Over which connection it was tried to give back what was kept.
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
            next = client.clock.now() + client.beat();
        }
        let Some(connection) = client.connection().clone() else { continue };
        if is_beat {
            for (node, batches) in connection.batches(client.leases.held()) {
                renewals.begin(&connection, node, renew_own(connection.clone(), batches));
            }
        }
        if is_beat || connection.number != tried {
            tried = connection.number;
            let is_one = connection.servers.nodes().is_none();
            let node_of = |tag: &str| connection.servers.node_of(tag);
            let is_reached =
                |tag: &str| node_of(tag).map_or(is_one, |node| !connection.is_failed(node));
            client.leases.put_back_kept(is_reached);
        }
        let is_free = |tag: &str| releases.is_free(&connection, connection.servers.node_of(tag));
        let ended = client.leases.take_ended(is_free);
        for (node, batches) in connection.batches(ended) {
            releases.begin(&connection, node, give_back(connection.clone(), batches));
        }
    }
}

/// What is under way at nodes: at each one thing after the other, so that what ends meanwhile is
/// given back together.
#[derive(Default)]
struct Lanes {
    under_way: JoinSet<Lane>,
    busy: HashSet<Lane>,
}

/// A connection, by its number, and which node is reached over it.
type Lane = (u64, Node);

impl Lanes {
    fn is_free(&self, connection: &StoreConnection, node: Node) -> bool {
        !self.busy.contains(&(connection.number, node))
    }

    /// Begins something, unless something is under way there.
    fn begin(
        &mut self,
        connection: &StoreConnection,
        node: Node,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        let lane = (connection.number, node);
        if self.busy.insert(lane) {
            self.under_way.spawn(async move {
                work.await;
                lane
            });
        }
    }

    /// Waits until something has ended.
    async fn end(&mut self) {
        match self.under_way.join_next().await {
            Some(Ok(lane)) => drop(self.busy.remove(&lane)),
            // The runtime ends.
            Some(Err(_)) => {}
            None => core::future::pending().await,
        }
    }
}

/// Gives leases at one node back, or leaves them to the next connection.
async fn give_back(connection: StoreConnection, batches: Vec<Batch<Lease>>) {
    let count = batches.iter().map(Vec::len).sum();
    let leases = Arc::clone(&connection.client.leases);
    for (batch, fate) in connection.tell(Update::Release, batches).await {
        match fate {
            Outcome::Told => {}
            Outcome::Later | Outcome::Apart => leases.keep(batch),
            Outcome::Failed(failure) => {
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
    /// Renews all that is held, but for what others than new connections have to see to. To be done
    /// before any request: the store would grant it what has run out meanwhile.
    pub(in crate::cluster) async fn renew_anew(&self) -> Result<(), Failure> {
        let mut held = self.client.store.leases.held();
        held.retain(|it| !self.is_kept(&it.lease.0));
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

    /// Renews leases at one node. The error is that of the whole store.
    async fn renew(&self, batches: Vec<Batch<Renewal>>) -> Result<(), Failure> {
        let mut renewed = Ok(());
        for (batch, fate) in self.tell(Update::Renew, batches).await {
            batch.into_iter().for_each(Renewal::renewed);
            if let Outcome::Failed(Some(failure)) = fate {
                renewed = Err(failure);
            }
        }
        renewed
    }
}

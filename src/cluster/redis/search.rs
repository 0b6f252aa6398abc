//! Connects to the store again, and to nodes of a Redis Cluster that fail: less and less often.

use super::{
    nodes::Nodes,
    servers::connect_servers,
    store_connection::{ClientState, StoreConnection},
};
use crate::{
    cluster::{
        error::{CallFailure, within},
        scripts::{BACKGROUND_CALL_TIMEOUT, FIRST_BACKOFF, LONGEST_BACKOFF},
    },
    flow::Instant,
};
use core::time::Duration;
use redis::{aio::MultiplexedConnection, cmd};
use std::sync::{Arc, PoisonError};
use tokio::task::JoinSet;

/// The wait before the next attempt: twice as long each time.
pub(super) struct Backoff(Duration);

impl Backoff {
    pub(super) const fn new() -> Self {
        Self(FIRST_BACKOFF)
    }

    /// Returns when the next attempt is due, with jitter.
    pub(super) fn next(&mut self, now: Instant) -> Instant {
        let jittered = self.0.mul_f64(1.0 - fastrand::f64() / 2.0);
        self.0 = (self.0 * 2).min(LONGEST_BACKOFF);
        now + jittered
    }
}

/// Attempts to reach nodes that fail, in a task of their own, because a node that hangs takes long.
pub(super) struct Search {
    backoff: Backoff,
    next: Option<Instant>,
    running: JoinSet<Result<StoreConnection, CallFailure>>,
}

impl Search {
    pub(super) fn new() -> Self {
        Self { backoff: Backoff::new(), next: None, running: JoinSet::new() }
    }

    /// Returns when the next attempt is due, if any is.
    pub(super) const fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Plans an attempt, unless one is running.
    pub(super) fn want(&mut self, now: Instant) {
        if self.running.is_empty() && self.next.is_none() {
            self.next = Some(self.backoff.next(now));
        }
    }

    /// Begins an attempt that is due.
    pub(super) fn begin(&mut self, connection: &StoreConnection, now: Instant) {
        if self.next.is_some_and(|next| next <= now) {
            self.next = None;
            self.running.spawn(reconnect(connection.clone()));
        }
    }

    /// Returns the connection that an attempt has made; `None` if no attempt is running.
    pub(super) async fn end(&mut self) -> Option<Result<StoreConnection, CallFailure>> {
        // A task ends otherwise only with the runtime.
        self.running.join_next().await?.ok()
    }

    /// Makes the next wait short again, unless an attempt is planned or running. Plans one if a
    /// slot has no node: no request about its keys can notice a new node.
    pub(super) fn on_beat(&mut self, connection: &StoreConnection, now: Instant) {
        if self.next.is_none() && self.running.is_empty() {
            self.backoff = Backoff::new();
            if connection.servers.nodes().is_some_and(|nodes| !nodes.slots().are_all_owned()) {
                self.want(now);
            }
        }
    }
}

/// Connects to nodes that failed or are new. Meanwhile, and if that fails, `connection` is used.
async fn reconnect(connection: StoreConnection) -> Result<StoreConnection, CallFailure> {
    connect(&connection.client, connection.servers.nodes()).await
}

impl StoreConnection {
    /// Returns a new connection over which the store has answered.
    pub(in crate::cluster) async fn open(client: &Arc<ClientState>) -> Result<Self, CallFailure> {
        connect(client, None).await
    }
}

/// Returns a connection over which the store has answered. It takes over the connections of
/// `former` that work.
pub(super) async fn connect(
    client: &Arc<ClientState>,
    former: Option<&Nodes>,
) -> Result<StoreConnection, CallFailure> {
    let store = &client.store;
    let limit = store.settings.connect_timeout;
    let caller = client.caller();
    let known = client.primary.lock().unwrap_or_else(PoisonError::into_inner).take();
    let servers = match client.clock.timeout(limit, connect_servers(&caller, known, former)).await {
        Ok(Ok(servers)) => servers,
        Ok(Err(error)) => return Err(CallFailure::from(&error)),
        Err(elapsed) => return Err(CallFailure::unreached(elapsed)),
    };
    let mut connection = StoreConnection {
        client: Arc::clone(client),
        servers,
        seed: store.seed(),
        number: store.number(),
        answers: Arc::default(),
    };
    connection.register(!connection.is_kept(&store.key("gateways"))).await?;
    Ok(connection)
}

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

    /// Begins a check, and gives up one that began before these failures.
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

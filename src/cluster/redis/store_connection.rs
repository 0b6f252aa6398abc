//! A connection to the store: how scripts run over it, and what a failure means.
//!
//! A failure of one call, as of a key with another type, concerns that call only. A failure at a
//! node of a Redis Cluster concerns that node only. Any other failure has the worker connect again.

use super::{connect::Caller, nodes::Nodes, sentinels::Primary, servers::Servers};
use crate::{
    clock::Clock,
    cluster::{
        decide::{in_flight::InFlight, rejection_cache::RejectionCache},
        error::{CallFailure, FailureScope, StoreError, within},
        leases::Leases,
        scripts::{HEARTBEAT, Lua, in_time, is_unknown},
        store::Store,
    },
    flow::Instant,
    route::Seed,
};
use core::{fmt, time::Duration};
use redis::{Cmd, RedisResult, Value, aio::MultiplexedConnection};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::Notify;

/// The state that the client of one worker, its connection and its tasks share.
pub(in crate::cluster) struct ClientState {
    pub(in crate::cluster) store: Arc<Store>,
    pub(in crate::cluster) clock: Clock,
    /// Identifies the client.
    pub(in crate::cluster) number: u64,
    /// The most that a call may take.
    pub(in crate::cluster) limit: Duration,
    /// `None` while the store is down.
    connection: Mutex<Option<StoreConnection>>,
    /// The latest secret of the fingerprints.
    pub(in crate::cluster) seed: Mutex<Seed>,
    /// Notified when there is a new connection.
    pub(in crate::cluster) connected: Notify,
    /// Notified when the connection is given up.
    pub(super) lost: Notify,
    /// Notified when a node of a Redis Cluster fails, or slots have moved.
    pub(super) node_failed: Notify,
    /// Notified when nodes must be checked one by one.
    pub(super) check_soon: Notify,
    pub(in crate::cluster) leases: Arc<Leases>,
    /// Notified when there is a settlement to send.
    pub(in crate::cluster) unsettled: Notify,
    pub(in crate::cluster) rejection_cache: RejectionCache,
    pub(in crate::cluster) in_flight: Arc<InFlight>,
    /// The primary that the sentinels name, if it is not the connected one.
    pub(super) primary: Mutex<Option<Primary>>,
}

/// A connection that works, as far as flowgate knows.
#[derive(Clone)]
pub struct StoreConnection {
    pub(in crate::cluster) client: Arc<ClientState>,
    pub(super) servers: Servers,
    pub(super) seed: Seed,
    /// Identifies the connection.
    pub(in crate::cluster) number: u64,
    pub(super) answers: Arc<LastAnswers>,
}

/// The time at which each node, or the only server, last answered a call in time.
#[derive(Default)]
pub(super) struct LastAnswers(Mutex<HashMap<Option<usize>, Instant>>);

impl StoreConnection {
    /// Returns the secret of the fingerprints that all gateways share.
    pub const fn seed(&self) -> &Seed {
        &self.seed
    }

    /// Runs a script within the limit of a call.
    pub(in crate::cluster) async fn run(
        &mut self,
        script: &Lua,
        keys: &[String],
        arguments: &[String],
    ) -> Result<Value, CallFailure> {
        self.run_within(self.client.limit, script, keys, arguments).await
    }

    /// Runs a script within another limit.
    pub(in crate::cluster) async fn run_within(
        &mut self,
        limit: Duration,
        script: &Lua,
        keys: &[String],
        arguments: &[String],
    ) -> Result<Value, CallFailure> {
        let node = keys.first().and_then(|key| self.node_of(key));
        let nodes = self.servers.nodes();
        if let Some(failure) = node.and_then(|node| nodes?.failure_of(node)) {
            return Err(failure.of_call(script.name));
        }

        let Self { client, servers, .. } = self;
        let asked = client.clock.now();
        let mut route = CallRoute { first: node, last: node, redirected: None };
        let call = route.call(servers, script, keys, arguments);
        let answer = in_time(&client.clock, limit, call).await;

        if matches!(answer, Ok(Ok(_))) && limit <= client.limit {
            self.answers.note(route.last, client.clock.now());
        }
        if servers.nodes().is_some_and(Nodes::is_outdated) {
            client.node_failed.notify_one();
        }

        let is_late = answer.is_err();
        within(answer).map_err(|failure| {
            let failure = failure.of_call(script.name);
            if is_late && self.answers.has_come_since(route.last, asked) {
                return failure.late();
            }
            match servers.nodes() {
                Some(nodes) => route.blame(client, nodes, failure, is_late),
                None => failure,
            }
        })
    }

    /// Calls the server that has a key. It sets no limit of time: the caller must.
    pub(in crate::cluster) async fn query(&mut self, key: &str, call: &Cmd) -> RedisResult<Value> {
        let mut node = self.node_of(key);
        self.servers.query(&mut node, call).await
    }

    /// Returns whether one server has all keys: the store is no Redis Cluster.
    pub(in crate::cluster) const fn is_one_server(&self) -> bool {
        self.servers.nodes().is_none()
    }

    /// Returns the connection to the only server, or to `node` of a Redis Cluster unless it fails.
    pub(in crate::cluster) fn server(&self, node: Option<usize>) -> Option<MultiplexedConnection> {
        self.servers.at(node)
    }

    /// Returns the node of a Redis Cluster that has a key.
    pub(in crate::cluster) fn node_of(&self, key: &str) -> Option<usize> {
        self.servers.node_of(key)
    }

    /// Returns whether this node fails, so that no call is sent to it.
    pub(in crate::cluster) fn is_failed(&self, node: usize) -> bool {
        self.servers.nodes().is_some_and(|nodes| nodes.is_failed(node))
    }

    /// Counts a failure. No more calls are sent to a node that failed. A failure of the whole store
    /// is returned and not counted.
    pub(in crate::cluster) fn record(&self, failure: CallFailure) -> Result<(), CallFailure> {
        let ClientState { store, clock, .. } = &*self.client;
        match failure.scope {
            FailureScope::Call | FailureScope::Slot | FailureScope::Late => {
                store.on_rejected_call(&failure, clock.now());
            }
            FailureScope::Node(node) => self.mark_failed(node, failure),
            FailureScope::Counted => {}
            FailureScope::Store => return Err(failure),
        }
        Ok(())
    }

    fn mark_failed(&self, node: usize, failure: CallFailure) {
        let ClientState { store, number, node_failed, .. } = &*self.client;
        store.count(failure.error);
        let Some(nodes) = self.servers.nodes() else { return };
        nodes.mark_failed(node, failure);
        let current = self.client.connection();
        // What an earlier connection found is over.
        if current.as_ref().is_some_and(|current| current.number == self.number) {
            store.on_nodes(*number, nodes.failed());
            node_failed.notify_one();
        }
    }

    /// Counts a failure, and gives the connection up if the whole store failed.
    pub(in crate::cluster) fn fail(&self, failure: CallFailure) -> StoreError {
        let error = failure.error;
        if let Err(failure) = self.record(failure) {
            self.client.store.on_error(&failure, self.client.clock.wall_now());
            self.give_up();
        }
        error
    }

    /// Gives the connection up, so that the worker connects again, unless it does so already.
    pub(super) fn give_up(&self) {
        let mut current = self.client.connection();
        if current.as_ref().is_some_and(|current| current.number == self.number) {
            *current = None;
            self.client.store.on_down(self.client.number);
            self.client.lost.notify_one();
        }
    }
}

/// The nodes that a call is sent to, in a Redis Cluster.
struct CallRoute {
    /// The node that has the keys.
    first: Option<usize>,
    /// The node that the call waits for: another one after a redirection.
    last: Option<usize>,
    /// The node that answered a redirected call, before the call began again because that node did
    /// not know the script.
    redirected: Option<usize>,
}

impl CallRoute {
    /// Runs a script, and sends its text where it is unknown.
    async fn call(
        &mut self,
        servers: &mut Servers,
        script: &Lua,
        keys: &[String],
        arguments: &[String],
    ) -> RedisResult<Value> {
        match servers.query(&mut self.last, &script.call(true, keys, arguments)).await {
            Err(error) if is_unknown(&error) => {
                self.redirected = self.last.filter(|_| self.last != self.first);
                self.last = self.first;
                servers.query(&mut self.last, &script.call(false, keys, arguments)).await
            }
            answer => answer,
        }
    }

    /// Attributes a failure to a node, or to none if two nodes used the time up together.
    fn blame(
        &self,
        client: &ClientState,
        nodes: &Nodes,
        failure: CallFailure,
        is_late: bool,
    ) -> CallFailure {
        let Some(first) = self.first else { return failure };
        let Some(last) = self.last else { return failure };
        let other = self.redirected.unwrap_or(last);
        if is_late && other != first {
            client.check_soon.notify_one();
            return failure.of_two([first, other].map(|node| nodes.name(node)));
        }
        let failure = failure.of_node(last);
        if failure.is_of_call() { failure.named(&nodes.name(last)) } else { failure }
    }
}

impl LastAnswers {
    fn note(&self, node: Option<usize>, now: Instant) {
        self.lock().insert(node, now);
    }

    /// Returns whether `node` has answered a call in time since `asked`, so that it decides.
    fn has_come_since(&self, node: Option<usize>, asked: Instant) -> bool {
        self.lock().get(&node).is_some_and(|last| *last >= asked)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Option<usize>, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientState {
    /// Returns the state of a client that has no connection yet. `limit` is the longest that a call
    /// may take.
    pub(in crate::cluster) fn new(
        store: Arc<Store>,
        clock: Clock,
        limit: Duration,
        number: u64,
    ) -> Self {
        Self {
            seed: Mutex::new(store.seed()),
            number,
            leases: store.leases.add(format!("{}-{number}", store.name)),
            limit,
            store,
            clock,
            connection: Mutex::default(),
            connected: Notify::new(),
            lost: Notify::new(),
            node_failed: Notify::new(),
            check_soon: Notify::new(),
            unsettled: Notify::new(),
            rejection_cache: RejectionCache::default(),
            in_flight: Arc::default(),
            primary: Mutex::default(),
        }
    }

    /// Returns what connecting needs.
    pub(super) fn caller(&self) -> Caller {
        Caller { store: Arc::clone(&self.store), clock: self.clock.clone(), limit: self.limit }
    }

    /// Returns the time between two registrations, and between two renewals of leases: a third of a
    /// lease, because two may fail.
    pub(in crate::cluster) fn heartbeat(&self) -> Duration {
        (self.store.settings.lease / 3).min(HEARTBEAT)
    }

    pub(in crate::cluster) fn connection(&self) -> MutexGuard<'_, Option<StoreConnection>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Directs the next connection to this primary. The present one is used until then.
    pub(super) fn replace_primary(&self, primary: Primary) {
        let Primary { host, port, .. } = &primary;
        tracing::warn!(primary = %format_args!("{host}:{port}"), "the sentinels name another primary");
        *self.primary.lock().unwrap_or_else(PoisonError::into_inner) = Some(primary);
    }
}

impl fmt::Debug for StoreConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreConnection").field("number", &self.number).finish_non_exhaustive()
    }
}

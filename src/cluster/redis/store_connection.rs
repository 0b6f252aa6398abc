//! A connection that works, as far as is known: how scripts run over it, and what follows when that
//! fails. Only what the store answers about one call, as of a key that holds something else, concerns
//! that call alone; and what fails at a node of a Redis Cluster, only that node.

use super::{caller::Caller, connection::Connection, nodes::Nodes, sentinels::Primary};
use crate::{
    clock::Clock,
    cluster::{
        decide::{in_flight::InFlight, rejections::Rejections},
        error::{Failure, Scope, StoreError, within},
        in_time::in_time,
        leases::held::Leases,
        limits::BEAT,
        script::{Lua, is_unknown},
        store::Store,
    },
    flow::Instant,
    route::Seed,
};
use core::{fmt, time::Duration};
use redis::{Cmd, Value};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::Notify;

/// What a client, its connection and its tasks share.
pub(in crate::cluster) struct Inner {
    pub(in crate::cluster) store: Arc<Store>,
    pub(in crate::cluster) clock: Clock,
    /// Tells it from the other clients of this store.
    pub(in crate::cluster) number: u64,
    /// The most that a call may take.
    pub(in crate::cluster) limit: Duration,
    /// `None` while the store is down.
    link: Mutex<Option<StoreConnection>>,
    /// The secret of the fingerprints, as it was told last.
    pub(in crate::cluster) seed: Mutex<Seed>,
    /// Rings when there is a link.
    pub(in crate::cluster) made: Notify,
    /// Rings when it was given up.
    pub(in crate::cluster) broken: Notify,
    /// Rings when a node of a Redis Cluster is out.
    pub(in crate::cluster) hurt: Notify,
    /// Rings when one may be that has to be asked by itself.
    pub(in crate::cluster) doubted: Notify,
    pub(in crate::cluster) leases: Arc<Leases>,
    pub(in crate::cluster) rejections: Rejections,
    pub(in crate::cluster) in_flight: Arc<InFlight>,
    /// The primary that sentinels name, where another one is connected to.
    pub(in crate::cluster) primary: Mutex<Option<Primary>>,
}

/// A connection that works, as far as is known.
#[derive(Clone)]
pub struct StoreConnection {
    pub(in crate::cluster) inner: Arc<Inner>,
    pub(in crate::cluster) connection: Connection,
    pub(in crate::cluster) seed: Seed,
    /// Tells it from others.
    pub(in crate::cluster) number: u64,
    pub(super) answers: Arc<Answers>,
}

/// When each node, or the only server, last answered a call in time.
#[derive(Default)]
pub(super) struct Answers(Mutex<HashMap<Option<usize>, Instant>>);

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
    ) -> Result<Value, Failure> {
        self.run_within(self.inner.limit, script, keys, arguments).await
    }

    /// The same, within another limit.
    pub(in crate::cluster) async fn run_within(
        &mut self,
        limit: Duration,
        script: &Lua,
        keys: &[String],
        arguments: &[String],
    ) -> Result<Value, Failure> {
        let node = self.node_of(keys);
        let nodes = self.connection.nodes();
        if let Some(failure) = node.and_then(|node| nodes?.why_out(node)) {
            return Err(failure.of_call(script.name));
        }
        let Self { inner, connection, .. } = self;
        let asked = inner.clock.now();
        let (mut awaited, mut sent_on) = (node, None);
        let call = async {
            let first = script.call(true, keys, arguments);
            match connection.query(&mut awaited, &first).await {
                Err(error) if is_unknown(&error) => {
                    let again: Cmd = script.call(false, keys, arguments);
                    sent_on = awaited.filter(|_| awaited != node);
                    awaited = node;
                    connection.query(&mut awaited, &again).await
                }
                answer => answer,
            }
        };
        let answer = in_time(&inner.clock, limit, call).await;
        if answer.is_ok() && limit <= inner.limit {
            self.answers.note(awaited, inner.clock.now());
        }
        if connection.nodes().is_some_and(Nodes::is_outdated) {
            inner.hurt.notify_one();
        }
        let is_late = answer.is_err();
        within(answer).map_err(|failure| {
            let failure = failure.of_call(script.name);
            if is_late && self.answers.has_come_since(awaited, asked) {
                return failure.late();
            }
            let (Some(nodes), Some(first), Some(last)) = (connection.nodes(), node, awaited) else {
                return failure;
            };
            // Of two that have used the time up, each may be in time when it is asked alone.
            if is_late && let Some(other) = sent_on.or(Some(last)).filter(|it| *it != first) {
                inner.doubted.notify_one();
                return failure.of_two([first, other].map(|at| nodes.name(at)));
            }
            let failure = failure.of_node(last);
            if failure.is_of_call() { failure.named(&nodes.name(last)) } else { failure }
        })
    }

    /// Returns which node of a Redis Cluster has these keys, which have one tag.
    pub(in crate::cluster) fn node_of(&self, keys: &[String]) -> Option<usize> {
        keys.first().and_then(|key| self.connection.node_of(key))
    }

    /// Whether this node is asked nothing more.
    pub(in crate::cluster) fn is_out(&self, node: usize) -> bool {
        self.connection.nodes().is_some_and(|nodes| nodes.is_out(node))
    }

    /// Counts a failure, and returns it if it is that of the whole store, which is not counted yet.
    /// A node that fails is asked nothing more.
    pub(in crate::cluster) fn record(&self, failure: Failure) -> Result<(), Failure> {
        let Inner { store, clock, .. } = &*self.inner;
        match failure.scope {
            Scope::Call | Scope::Slot | Scope::Late => {
                store.on_refusal(&failure, clock.now());
            }
            Scope::Node(node) => self.put_out(node, failure),
            Scope::Out => {}
            Scope::Store => return Err(failure),
        }
        Ok(())
    }

    fn put_out(&self, node: usize, failure: Failure) {
        let Inner { store, number, hurt, .. } = &*self.inner;
        store.count(failure.error);
        let Some(nodes) = self.connection.nodes() else { return };
        nodes.put_out(node, failure);
        let link = self.inner.link();
        // What an earlier one met is over.
        if link.as_ref().is_some_and(|it| it.number == self.number) {
            store.on_nodes(*number, nodes.out(), nodes.slots());
            hurt.notify_one();
        }
    }

    /// Counts a failure, and gives the connection up if it is that of the whole store.
    pub(in crate::cluster) fn fail(&self, failure: Failure) -> StoreError {
        let error = failure.error;
        if let Err(failure) = self.record(failure) {
            self.inner.store.on_error(&failure);
            self.give_up();
        }
        error
    }

    /// Has the task look for another connection, unless it does.
    pub(in crate::cluster) fn give_up(&self) {
        let mut link = self.inner.link();
        if link.as_ref().is_some_and(|it| it.number == self.number) {
            *link = None;
            self.inner.store.on_down(self.inner.number);
            self.inner.broken.notify_one();
        }
    }
}

impl Answers {
    fn note(&self, node: Option<usize>, now: Instant) {
        self.lock().insert(node, now);
    }

    /// Whether `node` has answered a call in time since then, so that it decides.
    fn has_come_since(&self, node: Option<usize>, asked: Instant) -> bool {
        self.lock().get(&node).is_some_and(|last| *last >= asked)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Option<usize>, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Returns that of a client that has no connection yet, whose calls may take so long.
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
            link: Mutex::default(),
            made: Notify::new(),
            broken: Notify::new(),
            hurt: Notify::new(),
            doubted: Notify::new(),
            rejections: Rejections::default(),
            in_flight: Arc::default(),
            primary: Mutex::default(),
        }
    }

    /// Returns what it takes to make calls without a connection.
    pub(super) fn caller(&self) -> Caller {
        let (store, clock) = (Arc::clone(&self.store), self.clock.clone());
        Caller { store, clock, limit: self.limit }
    }

    /// Returns the time between two greetings, and between two renewals of leases: three times in a
    /// lease, as two may fail.
    pub(in crate::cluster) fn beat(&self) -> Duration {
        (self.store.settings.lease / 3).min(BEAT)
    }

    pub(in crate::cluster) fn link(&self) -> MutexGuard<'_, Option<StoreConnection>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the next connection be one to this primary, while the present one is used.
    pub(in crate::cluster) fn replace_primary(&self, primary: Primary) {
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

//! A worker's way to the store: one connection that its requests share, and a task that sees to it.
//!
//! A request never waits for a connection, nor for longer than the limit of a call. When a call
//! fails, the connection is given up: requests go by `on_store_error` at once, until the task has a
//! new one over which the store has answered and taken a write (`attend.rs`). Only what the store
//! answers about one call, as of a key that holds something else, concerns that call alone; and what
//! fails at a node of a Redis Cluster, only that node.

use super::{
    Ask, StoreError, Verdicts,
    attend::run,
    call,
    dial::Connection,
    error::{Failure, Scope, within},
    keeper::keep,
    leases::{Held, Leases},
    nodes::Nodes,
    rejections::{Memory, Rejections},
    script::{Lua, is_unknown},
    sentinels::Primary,
    store::Store,
};
use crate::{
    clock::Clock,
    flow::{Instant, Judgement, RoundTrip},
    route::Seed,
};
use core::{fmt, time::Duration};
use redis::{Cmd, Value};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::{sync::Notify, task::JoinHandle};

/// The first pause before a new attempt to connect, and the longest: soon enough for a failover,
/// seldom enough for a store that comes up under the load of all gateways. Each is shortened by up
/// to a half, so that gateways do not come at once.
pub(super) const PAUSES: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];

/// The least that a call may take that no request waits for.
pub(super) const PATIENCE: Duration = Duration::from_millis(100);

/// The most between two greetings: soon enough to notice a new gateway, seldom enough for a store
/// that hundreds of workers greet.
const BEAT: Duration = Duration::from_secs(4);

/// A worker's client of the store.
pub struct Client {
    inner: Arc<Inner>,
    tasks: [JoinHandle<()>; 2],
}

pub(super) struct Inner {
    pub(super) store: Arc<Store>,
    pub(super) clock: Clock,
    /// Tells it from the other clients of this store.
    pub(super) number: u64,
    /// The most that a call may take.
    pub(super) limit: Duration,
    /// `None` while the store is down.
    link: Mutex<Option<Link>>,
    /// The secret of the fingerprints, as it was told last.
    pub(super) seed: Mutex<Seed>,
    /// Rings when there is a link.
    pub(super) made: Notify,
    /// Rings when it was given up.
    pub(super) broken: Notify,
    /// Rings when a node of a Redis Cluster is out.
    pub(super) hurt: Notify,
    /// Rings when one may be that has to be asked by itself.
    pub(super) doubted: Notify,
    pub(super) leases: Arc<Leases>,
    rejections: Rejections,
    /// The primary that sentinels name, where another one is connected to.
    pub(super) primary: Mutex<Option<Primary>>,
}

/// A connection that works, as far as is known.
#[derive(Clone)]
pub struct Link {
    pub(super) inner: Arc<Inner>,
    pub(super) connection: Connection,
    pub(super) seed: Seed,
    /// Tells it from others.
    pub(super) number: u64,
}

/// What the store decided, and what the request holds of it.
#[derive(Debug)]
pub struct Decided {
    /// The decisions. Waits are what is left of them at `came`.
    pub verdicts: Verdicts,
    /// When they came, by this process's clock.
    pub came: Instant,
    /// To be kept until the request ends.
    pub held: Held,
}

impl Client {
    /// Returns a client, and has its task connect. To be called on the worker's runtime.
    pub fn start(store: Arc<Store>, clock: Clock) -> Self {
        let limit = store.settings.timeout;
        Self::with_limit(store, clock, limit)
    }

    /// The same for the exchange, whose calls may take longer, as no request waits for them. Nor do
    /// its greetings overtake them.
    pub(super) fn start_patient(store: Arc<Store>, clock: Clock) -> Self {
        let limit = store.settings.timeout.max(PATIENCE);
        Self::with_limit(store, clock, limit)
    }

    fn with_limit(store: Arc<Store>, clock: Clock, limit: Duration) -> Self {
        let number = store.number();
        let inner = Arc::new(Inner {
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
            primary: Mutex::default(),
        });
        let tasks = [tokio::spawn(run(Arc::clone(&inner))), tokio::spawn(keep(Arc::clone(&inner)))];
        Self { inner, tasks }
    }

    /// Returns the secret of the fingerprints of clients whose states are exchanged.
    pub fn seed(&self) -> Seed {
        *self.inner.seed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether states cannot be exchanged.
    pub fn is_cut_off(&self) -> bool {
        self.inner.store.is_cut_off()
    }

    /// Waits until the store has come up, perhaps before this was asked.
    pub(super) fn connected(&self) -> impl Future<Output = ()> + use<> {
        let inner = Arc::clone(&self.inner);
        async move { inner.made.notified().await }
    }

    /// Has the store know which requests have ended, and that this gateway ends, and waits for that: as
    /// long as two calls may take, or for a moment while the store is down.
    pub async fn give_back(&self) {
        let is_up = self.link().is_some();
        let limit = if is_up { self.inner.limit.max(PATIENCE) } else { PATIENCE };
        // What is left runs out.
        _ = self.inner.clock.timeout(limit, self.inner.leases.all_given_back()).await;
        self.leave().await;
    }

    /// Returns the way to the store, if it is up.
    pub fn link(&self) -> Option<Link> {
        self.inner.link().clone()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.inner.link().take();
        self.inner.store.on_end(self.inner.number);
    }
}

impl Link {
    /// Returns the secret of the fingerprints that all gateways share.
    pub const fn seed(&self) -> &Seed {
        &self.seed
    }

    /// Returns the rejection that the store would answer `ask` with at `now`, if it has told that before:
    /// without a call. A request that has one is rejected.
    pub fn rejection(&self, ask: &Ask<'_>, now: Instant) -> Option<Judgement> {
        let found = self.inner.rejections.find(ask, self.memory(), now);
        if found.is_some() {
            self.inner.store.on_cached_rejection();
        }
        found
    }

    fn memory(&self) -> Memory {
        Memory { connection: self.number, losses: self.inner.store.losses() }
    }

    /// Has the store decide about a request, in one round trip.
    ///
    /// # Errors
    ///
    /// Why it has not, as far as is known: what failed on the way may have been charged.
    pub async fn decide(mut self, asks: &[Ask<'_>]) -> Result<Decided, StoreError> {
        let inner = Arc::clone(&self.inner);
        let (store, settings) = (&inner.store, &inner.store.settings);
        let (asked, memory) = (inner.clock.now(), self.memory());
        let keys: Vec<String> = asks.iter().map(|ask| call::key(&settings.prefix, ask)).collect();
        if self.node_of(&keys).is_some_and(|node| self.is_out(node)) {
            return Err(StoreError::Down);
        }
        let name = if asks.iter().any(|ask| ask.rule.holds()) {
            inner.leases.name()
        } else {
            String::new()
        };
        let micros = u64::try_from(settings.lease.as_micros()).unwrap_or(u64::MAX);
        let lease = call::Lease { name: &name, micros };
        // Before the call, as it may be lost on the way back.
        let held = inner.leases.ask(call::leases(&settings.prefix, asks, lease));
        let lines = asks.iter().map(|ask| call::line(ask, lease, asked));
        let arguments: Vec<String> = [String::new()].into_iter().chain(lines).collect();
        let answer = self.run(&store.scripts.decide, &keys, &arguments).await;
        let read =
            |answer| call::read(asks, &answer).map_err(|_| Failure::nonsense("to a question"));
        let mut verdicts = match answer.and_then(read) {
            Ok(verdicts) => verdicts,
            Err(failure) => {
                if failure.has_done_nothing() {
                    drop(held.decided([]));
                }
                return Err(self.fail(failure));
            }
        };
        let came = inner.clock.now();
        store.on_decision(came.since(asked));
        for (ask, judgement) in asks.iter().zip(&verdicts.answers) {
            inner.rejections.note(ask, judgement, memory, (asked, came));
        }
        let way = RoundTrip { asked, given: verdicts.now, came };
        store.offsets.heed(way, asks, &mut verdicts);
        if let Some(ask) = verdicts.stale.and_then(|at| asks.get(at)) {
            store.on_stale(ask.name, came);
        }
        let held = held.decided(call::granted(asks, &verdicts));
        Ok(Decided { verdicts, came, held })
    }

    /// Runs a script within the limit of a call.
    pub(super) async fn run(
        &mut self,
        script: &Lua,
        keys: &[String],
        arguments: &[String],
    ) -> Result<Value, Failure> {
        self.run_within(self.inner.limit, script, keys, arguments).await
    }

    /// The same, within another limit.
    pub(super) async fn run_within(
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
        let answer = inner.clock.timeout(limit, call).await;
        if connection.nodes().is_some_and(Nodes::is_outdated) {
            inner.hurt.notify_one();
        }
        let is_late = answer.is_err();
        within(answer).map_err(|failure| {
            let failure = failure.of_call(script.name);
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
    fn node_of(&self, keys: &[String]) -> Option<usize> {
        keys.first().and_then(|key| self.connection.node_of(key))
    }

    /// Whether this node is asked nothing more.
    pub(super) fn is_out(&self, node: usize) -> bool {
        self.connection.nodes().is_some_and(|nodes| nodes.is_out(node))
    }

    /// Counts a failure, and returns it if it is that of the whole store, which is not counted yet.
    /// A node that fails is asked nothing more.
    pub(super) fn heed(&self, failure: Failure) -> Result<(), Failure> {
        let Inner { store, clock, .. } = &*self.inner;
        match failure.scope {
            Scope::Call | Scope::Slot => {
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
            store.on_nodes(*number, nodes);
            hurt.notify_one();
        }
    }

    /// Counts a failure, and gives the connection up if it is that of the whole store.
    pub(super) fn fail(&self, failure: Failure) -> StoreError {
        let error = failure.error;
        if let Err(failure) = self.heed(failure) {
            self.inner.store.on_error(&failure);
            self.give_up();
        }
        error
    }

    /// Has the task look for another connection, unless it does.
    pub(super) fn give_up(&self) {
        let mut link = self.inner.link();
        if link.as_ref().is_some_and(|it| it.number == self.number) {
            *link = None;
            self.inner.store.on_down(self.inner.number);
            self.inner.broken.notify_one();
        }
    }
}

impl Inner {
    /// Returns the time between two greetings, and between two renewals of leases: three times in a
    /// lease, as two may fail.
    pub(super) fn beat(&self) -> Duration {
        (self.store.settings.lease / 3).min(BEAT)
    }

    pub(super) fn link(&self) -> MutexGuard<'_, Option<Link>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("is_up", &self.inner.link().is_some())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("number", &self.number).finish_non_exhaustive()
    }
}

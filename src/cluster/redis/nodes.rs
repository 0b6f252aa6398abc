//! Connections to the nodes of a Redis Cluster, and which nodes fail.
//!
//! No call is sent to a node that fails, so that no request waits for it. In the background
//! flowgate looks for it, and for the nodes that have its slots now. The other nodes are used as
//! before.

use super::{
    connect::{Caller, first, open, query_all},
    slots::{Node, Slots},
};
use crate::{
    clock::Clock,
    cluster::{
        error::{CallFailure, within},
        health::FailedNodes,
        scripts::{BACKGROUND_CALL_TIMEOUT, is_unknown},
    },
    config::StoreSettings,
};
use core::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};
use redis::{
    Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value, aio::MultiplexedConnection,
    cmd,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::task::JoinSet;

/// The first call over a new connection, by the script of requests: a rule with a window of one
/// second that always passes. It writes, and what it writes is soon gone.
const CHECK: [&str; 2] = ["", "fixed 0 1 - 0 4503599627370495 1000000 0"];

/// The number of connected nodes that are asked for the slots.
const ASKED: usize = 3;

/// The nodes of a Redis Cluster.
#[derive(Clone)]
pub(super) struct Nodes(Arc<All>);

struct All {
    slots: Arc<Slots>,
    /// By the index of the node in `slots`.
    connections: BTreeMap<usize, NodeConnection>,
    /// The nodes that fail, and why.
    failed: Mutex<BTreeMap<usize, CallFailure>>,
    /// True if slots have moved.
    is_outdated: AtomicBool,
}

/// A connection to one node.
struct NodeConnection {
    connection: MultiplexedConnection,
    /// True if the connection is new: the node may have lost its memory.
    is_new: bool,
}

impl Nodes {
    /// Asks for the slots, and has each node decide once. A node that does not in time fails.
    /// Connections of `former` that work are kept.
    pub(super) async fn connect(caller: &Caller, former: Option<&Self>) -> RedisResult<Self> {
        let settings = &caller.store.settings;
        let slots = match former {
            Some(former) => former.ask_slots(settings, &caller.clock).await?,
            None => ask_anew(settings, &caller.clock, None).await?,
        };

        let mut reached = JoinSet::new();
        for (at, node) in slots.nodes.iter().enumerate() {
            let Some(tag) = &node.tag else { continue };
            let key = format!("{}{{{tag}}}:check", settings.prefix);
            let former = former.and_then(|former| former.named(&node.name()));
            let former = former.map(|(_, connection)| connection);
            let caller = caller.clone();
            let host = node.host.clone();
            let port = node.port;
            reached.spawn(async move {
                let reach = reach(&caller, &host, port, former, key);
                let reached = caller.clock.timeout(patience(&caller.store.settings), reach).await;
                (at, reached.unwrap_or_else(|elapsed| Err(CallFailure::unreached(elapsed))))
            });
        }

        let mut connections = BTreeMap::new();
        let mut failed = BTreeMap::new();
        while let Some(reached) = reached.join_next().await {
            // Otherwise, the runtime ends.
            let Ok((at, reached)) = reached else { continue };
            match reached {
                Ok(connection) => drop(connections.insert(at, connection)),
                Err(failure) => {
                    caller.store.count(failure.error);
                    failed.insert(at, failure);
                }
            }
        }

        Ok(Self(Arc::new(All {
            slots: Arc::new(slots),
            connections,
            failed: Mutex::new(failed),
            is_outdated: AtomicBool::new(false),
        })))
    }

    /// Asks some healthy nodes for the slots, or else all known nodes.
    async fn ask_slots(&self, settings: &Arc<StoreSettings>, clock: &Clock) -> RedisResult<Slots> {
        let mut asked = JoinSet::new();
        for (at, connection) in self.healthy().take(ASKED) {
            let Some(node) = self.0.slots.nodes.get(at) else { continue };
            asked.spawn(ask_slots(connection, node.host.clone()));
        }
        match clock.timeout(patience(settings), first(asked, "no node answers")).await {
            Ok(Ok(slots)) => Ok(slots),
            Ok(Err(_)) | Err(_) => ask_anew(settings, clock, Some(&self.0.slots)).await,
        }
    }

    /// Calls a node, and follows a redirection: the first node has done nothing then. `node`
    /// becomes the node that the call waits for.
    pub(super) async fn query(&self, node: &mut usize, call: &Cmd) -> RedisResult<Value> {
        let Some(first) = self.0.connections.get(node) else {
            let error = (ErrorKind::ClusterConnectionNotFound, "no connection to the node");
            return Err(RedisError::from(error));
        };

        let redirection = match call.query_async(&mut first.connection.clone()).await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };

        let is_moved = redirection.kind() == ErrorKind::Server(ServerErrorKind::Moved);
        if is_moved {
            self.outdate();
        } else if redirection.kind() != ErrorKind::Server(ServerErrorKind::Ask) {
            return Err(redirection);
        }

        let other = redirection.redirect_node().and_then(|(name, _)| self.redirected(*node, name));
        // The slots do not name a node that had none when they were asked for.
        let Some((at, mut other)) = other else { return Err(redirection) };

        *node = at;
        if is_moved {
            return call.query_async(&mut other).await;
        }

        // The other node has these keys, and not their slot yet.
        let answers = query_all(&mut other, &[cmd("ASKING"), call.clone()]).await?;
        answers.into_iter().nth(1).unwrap_or(Err(redirection))
    }

    /// Returns the node that `by` names in a redirection.
    fn redirected(&self, by: usize, name: &str) -> Option<(usize, MultiplexedConnection)> {
        // Without a host, the node has the host of `by`.
        match name.strip_prefix(':') {
            Some(port) if !port.contains(':') => {
                self.named(&format!("{}:{port}", self.0.slots.nodes.get(by)?.host))
            }
            Some(_) | None => self.named(name),
        }
    }

    /// Returns the node of this name, unless it fails.
    fn named(&self, name: &str) -> Option<(usize, MultiplexedConnection)> {
        let at = self.0.slots.nodes.iter().position(|node| node.name() == name)?;
        let node = self.0.connections.get(&at).filter(|_| !self.is_failed(at))?;
        Some((at, node.connection.clone()))
    }

    /// Returns the node that has a key, as far as flowgate knows.
    pub(super) fn node_of(&self, key: &str) -> Option<usize> {
        self.0.slots.node_of(key)
    }

    /// Returns whether the connection to the node that has a key was kept.
    pub(super) fn is_kept(&self, key: &str) -> bool {
        let node = self.node_of(key).and_then(|node| self.0.connections.get(&node));
        node.is_some_and(|node| !node.is_new)
    }

    /// Notes that slots have moved.
    pub(super) fn outdate(&self) {
        self.0.is_outdated.store(true, Relaxed);
    }

    pub(super) fn is_outdated(&self) -> bool {
        self.0.is_outdated.load(Relaxed)
    }

    /// Returns whether no node fails and no slot has moved.
    pub(super) fn is_healthy(&self) -> bool {
        !self.is_outdated() && self.lock().is_empty()
    }

    pub(super) fn is_failed(&self, node: usize) -> bool {
        self.lock().contains_key(&node)
    }

    /// Returns the nodes that do not fail.
    pub(super) fn healthy(&self) -> impl Iterator<Item = (usize, MultiplexedConnection)> {
        let nodes = self.0.connections.iter().filter(|(at, _)| !self.is_failed(**at));
        nodes.map(|(at, node)| (*at, node.connection.clone()))
    }

    /// Sends no more calls to a node.
    pub(super) fn mark_failed(&self, node: usize, why: CallFailure) {
        self.lock().entry(node).or_insert(why);
    }

    /// Returns the nodes without their connections, which are given up.
    pub(super) fn without_connections(&self) -> Self {
        Self(Arc::new(All {
            slots: Arc::clone(&self.0.slots),
            connections: BTreeMap::new(),
            failed: Mutex::default(),
            is_outdated: AtomicBool::new(true),
        }))
    }

    /// Returns the nodes that fail, and why.
    pub(super) fn failed(&self) -> FailedNodes {
        let why = |(at, why): (&usize, &CallFailure)| (self.name(*at), why.detail.clone());
        self.lock().iter().map(why).collect()
    }

    /// Returns the slots of each node.
    pub(super) fn slots(&self) -> &Slots {
        &self.0.slots
    }

    /// Returns the name of a node.
    pub(super) fn name(&self, node: usize) -> String {
        self.0.slots.nodes.get(node).map(Node::name).unwrap_or_default()
    }

    /// Returns the result of a call to a node that fails, without a call.
    pub(super) fn failure_of(&self, node: usize) -> Option<CallFailure> {
        let failed = self.lock();
        let CallFailure { error, detail, .. } = failed.get(&node)?;
        Some(CallFailure::known(*error, detail.clone()).named(&self.name(node)))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, CallFailure>> {
        self.0.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns how long connecting to a node may take: other attempts must have time after a node that
/// hangs.
fn patience(settings: &StoreSettings) -> Duration {
    (settings.connect_timeout / 4).max(settings.timeout.min(settings.connect_timeout / 3))
}

/// Asks for the slots: the nodes that the file names, and a little later the last known ones,
/// because the former may be gone. The first answer counts, so that no node that hangs delays the
/// others.
async fn ask_anew(
    settings: &Arc<StoreSettings>,
    clock: &Clock,
    last: Option<&Slots>,
) -> RedisResult<Slots> {
    let now = clock.now();
    let later = now + patience(settings) / 4;
    let named = settings.nodes.iter().map(|named| (named.clone(), now));
    let last = last.into_iter().flat_map(Slots::servers).map(|server| (server, later));
    let mut asked = JoinSet::new();
    for ((host, port), at) in named.chain(last) {
        let settings = Arc::clone(settings);
        let timer = clock.timer(at);
        asked.spawn(async move {
            timer.await;
            ask_slots(open(&settings, &host, port).await?, host).await
        });
    }
    first(asked, "no node answers").await
}

/// Asks a node at `host` for the slots.
async fn ask_slots(mut connection: MultiplexedConnection, host: String) -> RedisResult<Slots> {
    let answer = cmd("CLUSTER").arg("SLOTS").query_async(&mut connection).await?;
    // A node that was taken out of its cluster knows no node with slots.
    Slots::read(&answer, &host).filter(|slots| !slots.nodes.is_empty()).ok_or_else(|| {
        RedisError::from((ErrorKind::Parse, "the answer to CLUSTER SLOTS makes no sense"))
    })
}

/// Returns a connection to a node over which the script of requests has run: `former` if it works.
/// A new connection must be as fast as requests need it: otherwise a slow node would come and go.
async fn reach(
    caller: &Caller,
    host: &str,
    port: u16,
    former: Option<MultiplexedConnection>,
    key: String,
) -> Result<NodeConnection, CallFailure> {
    let keys = [key];
    if let Some(former) = former
        && let Ok(connection) =
            checked(caller, former, &keys, caller.limit.max(BACKGROUND_CALL_TIMEOUT)).await
    {
        return Ok(NodeConnection { connection, is_new: false });
    }
    let opened = open(&caller.store.settings, host, port).await;
    let opened = opened.map_err(|error| CallFailure::from(&error))?;
    let connection = checked(caller, opened, &keys, caller.limit).await?;
    Ok(NodeConnection { connection, is_new: true })
}

async fn checked(
    caller: &Caller,
    mut connection: MultiplexedConnection,
    keys: &[String],
    limit: Duration,
) -> Result<MultiplexedConnection, CallFailure> {
    let script = &caller.store.scripts.decide;
    let check = async {
        match script.call(true, keys, CHECK).exec_async(&mut connection).await {
            Err(error) if is_unknown(&error) => {
                script.call(false, keys, CHECK).exec_async(&mut connection).await
            }
            answer => answer,
        }
    };
    match within(caller.clock.timeout(limit, check).await) {
        // A slot that moves or a forbidden command is no failure of the node.
        Err(failure) if !failure.is_of_call() => Err(failure),
        Ok(()) | Err(_) => Ok(connection),
    }
}

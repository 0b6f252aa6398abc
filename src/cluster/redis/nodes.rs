//! The way to a Redis Cluster: a connection to each node, and which of the nodes are out.
//!
//! A node that fails is asked nothing more, so that nobody waits for it, nor is kept from the
//! others. Whether it is back, and who has which keys now, is found out anew, while the others are
//! asked as before.

use super::{
    caller::Caller,
    connect::{first, open, query_all},
    outages::Out,
    slots::{Node, Slots},
};
use crate::{
    clock::Clock,
    cluster::{
        error::{Failure, within},
        limits::PATIENCE,
        script::is_unknown,
    },
    config::Store as Settings,
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

/// What a node is asked before requests are: in the words of their script, about a rule of which one
/// second lets everything pass, so that it writes and what it has written is soon gone.
const CHECK: [&str; 2] = ["", "fixed 0 1 - 0 4503599627370495 1000000 0"];

/// How many of the nodes that are known are asked who has which keys.
const ASKED: usize = 3;

/// A connection to each node.
#[derive(Clone)]
pub(in crate::cluster) struct Nodes(Arc<All>);

struct All {
    slots: Arc<Slots>,
    /// By their places in `slots`.
    connections: BTreeMap<usize, NodeConnection>,
    /// Those that are asked nothing, and why.
    out: Mutex<BTreeMap<usize, Failure>>,
    /// Whether others have some keys now.
    is_outdated: AtomicBool,
}

/// A connection to one of them.
struct NodeConnection {
    connection: MultiplexedConnection,
    /// Whether it is another one than before, when the node may have lost its memory.
    is_new: bool,
}

impl Nodes {
    /// Asks who has which keys, and has each of them decide: who does not in time is out.
    /// Connections to those of `former` that are not out are used.
    pub(super) async fn connect(caller: &Caller, former: Option<&Self>) -> RedisResult<Self> {
        let (settings, clock) = (&caller.store.settings, &caller.clock);
        let slots = match former {
            Some(former) => former.ask_slots(settings, clock).await?,
            None => ask_anew(settings, clock, None).await?,
        };
        let mut reached = JoinSet::new();
        for (at, node) in slots.nodes.iter().enumerate() {
            let Some(tag) = &node.tag else { continue };
            let key = format!("{}{{{tag}}}:check", settings.prefix);
            let former = former.and_then(|former| former.named(&node.name())).map(|(_, it)| it);
            let (caller, host, port) = (caller.clone(), node.host.clone(), node.port);
            reached.spawn(async move {
                let reach = reach(&caller, (&host, port), former, key);
                let reached = caller.clock.timeout(patience(&caller.store.settings), reach).await;
                (at, reached.unwrap_or_else(|elapsed| Err(Failure::unreached(elapsed))))
            });
        }
        let (mut connections, mut out) = (BTreeMap::new(), BTreeMap::new());
        while let Some(reached) = reached.join_next().await {
            // Otherwise, the runtime ends.
            let Ok((at, reached)) = reached else { continue };
            match reached {
                Ok(way) => drop(connections.insert(at, way)),
                Err(failure) => {
                    caller.store.count(failure.error);
                    out.insert(at, failure);
                }
            }
        }
        let (slots, out, is_outdated) = (Arc::new(slots), Mutex::new(out), AtomicBool::new(false));
        Ok(Self(Arc::new(All { slots, connections, out, is_outdated })))
    }

    /// Asks some of those that are not out who has which keys, or else all that are known.
    async fn ask_slots(&self, settings: &Arc<Settings>, clock: &Clock) -> RedisResult<Slots> {
        let mut asked = JoinSet::new();
        for (at, connection) in self.not_out().take(ASKED) {
            let Some(node) = self.0.slots.nodes.get(at) else { continue };
            asked.spawn(ask_slots(connection, node.host.clone()));
        }
        match clock.timeout(patience(settings), first(asked, "no node answers")).await {
            Ok(Ok(slots)) => Ok(slots),
            Ok(Err(_)) | Err(_) => ask_anew(settings, clock, Some(&self.0.slots)).await,
        }
    }

    /// Calls a node, and follows if that sends us to another: it has done nothing then. `node` becomes
    /// the one that is waited for.
    pub(super) async fn query(&self, node: &mut usize, call: &Cmd) -> RedisResult<Value> {
        let Some(way) = self.0.connections.get(node) else {
            let error = (ErrorKind::ClusterConnectionNotFound, "no connection to the node");
            return Err(RedisError::from(error));
        };
        let sent = match call.query_async(&mut way.connection.clone()).await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let is_moved = sent.kind() == ErrorKind::Server(ServerErrorKind::Moved);
        if is_moved {
            self.outdate();
        } else if sent.kind() != ErrorKind::Server(ServerErrorKind::Ask) {
            return Err(sent);
        }
        // One that had no slots when they were asked for is not known.
        let other = sent.redirect_node().and_then(|(name, _)| self.redirected(*node, name));
        let Some((at, mut other)) = other else { return Err(sent) };
        *node = at;
        if is_moved {
            return call.query_async(&mut other).await;
        }
        // It has these keys, but not yet their slot: it must hear that we know.
        let answers = query_all(&mut other, &[cmd("ASKING"), call.clone()]).await?;
        answers.into_iter().nth(1).unwrap_or(Err(sent))
    }

    /// Returns the connection to the node that another one calls so.
    fn redirected(&self, by: usize, name: &str) -> Option<(usize, MultiplexedConnection)> {
        // Without a host it is where the other one is.
        match name.strip_prefix(':') {
            Some(port) if !port.contains(':') => {
                self.named(&format!("{}:{port}", self.0.slots.nodes.get(by)?.host))
            }
            Some(_) | None => self.named(name),
        }
    }

    /// Returns the connection to the node of this name, unless that is out.
    fn named(&self, name: &str) -> Option<(usize, MultiplexedConnection)> {
        let at = self.0.slots.nodes.iter().position(|node| node.name() == name)?;
        let way = self.0.connections.get(&at).filter(|_| !self.is_out(at))?;
        Some((at, way.connection.clone()))
    }

    /// Returns which node has a key, as it was known when these were connected to.
    pub(super) fn node_of(&self, key: &str) -> Option<usize> {
        self.0.slots.node_of(key)
    }

    /// Whether the connection to the node that has a key is kept from before.
    pub(super) fn is_kept(&self, key: &str) -> bool {
        let way = self.node_of(key).and_then(|node| self.0.connections.get(&node));
        way.is_some_and(|way| !way.is_new)
    }

    /// Notes that others may have some keys now.
    pub(super) fn outdate(&self) {
        self.0.is_outdated.store(true, Relaxed);
    }

    pub(super) fn is_outdated(&self) -> bool {
        self.0.is_outdated.load(Relaxed)
    }

    /// Whether there is nothing to be found out anew.
    pub(super) fn is_well(&self) -> bool {
        !self.is_outdated() && self.lock().is_empty()
    }

    pub(super) fn is_out(&self, node: usize) -> bool {
        self.lock().contains_key(&node)
    }

    /// Returns those that are not out.
    pub(in crate::cluster) fn not_out(
        &self,
    ) -> impl Iterator<Item = (usize, MultiplexedConnection)> {
        let ways = self.0.connections.iter().filter(|(at, _)| !self.is_out(**at));
        ways.map(|(at, way)| (*at, way.connection.clone()))
    }

    /// Has a node be asked nothing more.
    pub(super) fn put_out(&self, node: usize, why: Failure) {
        self.lock().entry(node).or_insert(why);
    }

    /// Returns what stays known of nodes when the connections to them are given up: where they are.
    pub(super) fn without_connections(&self) -> Self {
        Self(Arc::new(All {
            slots: Arc::clone(&self.0.slots),
            connections: BTreeMap::new(),
            out: Mutex::default(),
            is_outdated: AtomicBool::new(true),
        }))
    }

    /// Returns those that are out, and why, by their names.
    pub(super) fn out(&self) -> Out {
        let why = |(at, why): (&usize, &Failure)| (self.name(*at), why.detail.clone());
        self.lock().iter().map(why).collect()
    }

    /// Returns which of them has which keys.
    pub(super) fn slots(&self) -> &Arc<Slots> {
        &self.0.slots
    }

    /// Returns the name of one of them.
    pub(super) fn name(&self, node: usize) -> String {
        self.0.slots.nodes.get(node).map(Node::name).unwrap_or_default()
    }

    /// Returns what a call of a node comes to that is out.
    pub(super) fn why_out(&self, node: usize) -> Option<Failure> {
        let out = self.lock();
        let Failure { error, detail, .. } = out.get(&node)?;
        Some(Failure::out(*error, detail.clone()).named(&self.name(node)))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Failure>> {
        self.0.out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a node may take to let us in: one that hangs must leave time for the others, and for
/// who is asked after it.
fn patience(settings: &Settings) -> Duration {
    (settings.connect_timeout / 4).max(settings.timeout.min(settings.connect_timeout / 3))
}

/// Asks the nodes that the file names who has which keys, and a little later those that were known
/// last, as the former may be gone: all at once, so that the first answer counts and none that hangs
/// is waited for.
async fn ask_anew(
    settings: &Arc<Settings>,
    clock: &Clock,
    last: Option<&Slots>,
) -> RedisResult<Slots> {
    let (now, later) = (clock.now(), clock.now() + patience(settings) / 4);
    let named = settings.nodes.iter().map(|named| (named.clone(), now));
    let last = last.into_iter().flat_map(Slots::servers).map(|server| (server, later));
    let mut asked = JoinSet::new();
    for ((host, port), at) in named.chain(last) {
        let (settings, clock) = (Arc::clone(settings), clock.clone());
        asked.spawn(async move {
            clock.timer(at).await;
            ask_slots(open(&settings, &host, port).await?, host).await
        });
    }
    first(asked, "no node answers").await
}

/// Asks a node at `host` who has which keys.
async fn ask_slots(mut connection: MultiplexedConnection, host: String) -> RedisResult<Slots> {
    let answer = cmd("CLUSTER").arg("SLOTS").query_async(&mut connection).await?;
    // One that was taken out of its cluster knows of no node that has any.
    Slots::read(&answer, &host).filter(|slots| !slots.nodes.is_empty()).ok_or_else(|| {
        RedisError::from((ErrorKind::Parse, "the answer to CLUSTER SLOTS makes no sense"))
    })
}

/// Returns a connection to a node over which the script of requests has run: the former one, unless
/// that has broken and nobody noticed. A new one is for a node that was out, which is let in by
/// what puts it out again, the limit of a call: otherwise, a slow one would come and go.
async fn reach(
    caller: &Caller,
    (host, port): (&str, u16),
    former: Option<MultiplexedConnection>,
    key: String,
) -> Result<NodeConnection, Failure> {
    let keys = [key];
    if let Some(former) = former
        && let Ok(connection) = checked(caller, former, &keys, caller.limit.max(PATIENCE)).await
    {
        return Ok(NodeConnection { connection, is_new: false });
    }
    let opened = open(&caller.store.settings, host, port).await;
    let opened = opened.map_err(|error| Failure::from(&error))?;
    let connection = checked(caller, opened, &keys, caller.limit).await?;
    Ok(NodeConnection { connection, is_new: true })
}

async fn checked(
    caller: &Caller,
    mut connection: MultiplexedConnection,
    keys: &[String],
    limit: Duration,
) -> Result<MultiplexedConnection, Failure> {
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
        // A slot that moves, or what we may not, concerns that alone.
        Err(failure) if !failure.is_of_call() => Err(failure),
        Ok(()) | Err(_) => Ok(connection),
    }
}

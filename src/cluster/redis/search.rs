//! Looks for the store, and for nodes of a Redis Cluster that are out: less and less often.

use super::{
    connection::dial,
    nodes::Nodes,
    store_connection::{Inner, StoreConnection},
};
use crate::cluster::{error::Failure, limits::PAUSES};
use crate::flow::Instant;
use core::time::Duration;
use std::sync::{Arc, PoisonError};
use tokio::task::JoinSet;

/// How long to wait before the next attempt: longer each time.
pub(super) struct Pause(Duration);

impl Pause {
    pub(super) const fn new() -> Self {
        Self(PAUSES[0])
    }

    /// Returns when, jittered.
    pub(super) fn next(&mut self, now: Instant) -> Instant {
        let jittered = self.0.mul_f64(1.0 - fastrand::f64() / 2.0);
        self.0 = (self.0 * 2).min(PAUSES[1]);
        now + jittered
    }
}

/// Attempts to reach nodes that are out, beside all else that a client's task does, as one that
/// hangs takes long.
pub(super) struct Search {
    pause: Pause,
    /// When to begin the next one.
    next: Option<Instant>,
    under_way: JoinSet<Result<StoreConnection, Failure>>,
}

impl Search {
    pub(super) fn new() -> Self {
        Self { pause: Pause::new(), next: None, under_way: JoinSet::new() }
    }

    /// Returns when to begin the next attempt, if there is anything to be looked for.
    pub(super) const fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Has an attempt follow, unless one is under way.
    pub(super) fn want(&mut self, now: Instant) {
        if self.under_way.is_empty() && self.next.is_none() {
            self.next = Some(self.pause.next(now));
        }
    }

    /// Begins an attempt if it is time to.
    pub(super) fn begin(&mut self, link: &StoreConnection, now: Instant) {
        if self.next.is_some_and(|next| next <= now) {
            self.next = None;
            self.under_way.spawn(another(link.clone()));
        }
    }

    /// Returns what an attempt has found, when it ends; `None` if none is under way.
    pub(super) async fn end(&mut self) -> Option<Result<StoreConnection, Failure>> {
        // A task ends otherwise only with the runtime.
        self.under_way.join_next().await?.ok()
    }

    /// Has the next attempt come soon, unless something is looked for; and now, if some keys were
    /// nobody's: nobody may ask about them, and so learn who has them.
    pub(super) fn on_beat(&mut self, link: &StoreConnection, now: Instant) {
        if self.next.is_none() && self.under_way.is_empty() {
            self.pause = Pause::new();
            if link.connection.nodes().is_some_and(|nodes| !nodes.slots().are_all_owned()) {
                self.want(now);
            }
        }
    }
}

/// Connects to the nodes of a Redis Cluster that were out, or have keys that others had; until that
/// is done, and if it fails, those that are not are asked as before.
async fn another(link: StoreConnection) -> Result<StoreConnection, Failure> {
    connect(&link.inner, link.connection.nodes()).await
}

/// Returns a connection over which the store has answered: one that takes over those of `former`
/// that work.
pub(super) async fn connect(
    inner: &Arc<Inner>,
    former: Option<&Nodes>,
) -> Result<StoreConnection, Failure> {
    let store = &inner.store;
    let limit = store.settings.connect_timeout;
    let caller = inner.caller();
    let known = inner.primary.lock().unwrap_or_else(PoisonError::into_inner).take();
    let connection = match inner.clock.timeout(limit, dial(&caller, known, former)).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => return Err(Failure::from(&error)),
        Err(elapsed) => return Err(Failure::unreached(elapsed)),
    };
    let (inner, number) = (Arc::clone(inner), store.number());
    let mut link =
        StoreConnection { inner, connection, seed: store.seed(), number, answers: Arc::default() };
    link.greet(!link.is_kept(&store.key("gateways"))).await?;
    Ok(link)
}

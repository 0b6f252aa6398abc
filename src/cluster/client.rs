//! A worker's client of the store: one connection that its requests share, and three tasks.
//!
//! A request never waits for a connection, nor for an answer longer than the limit of a call. When
//! the store fails, the connection is given up: requests go by `on_store_error` at once, until the
//! task has a new connection over which the store has answered and written.

use super::{
    lease_task::keep,
    redis::{ClientState, StoreConnection, run},
    scripts::BACKGROUND_CALL_TIMEOUT,
    settle::call::StoreReserve,
    settle_task::send,
    store::Store,
};
use crate::{clock::Clock, route::Seed};
use core::{fmt, time::Duration};
use redis::cmd;
use std::sync::{Arc, PoisonError};
use tokio::task::JoinHandle;

/// A worker's client of the store.
pub struct StoreClient {
    client: Arc<ClientState>,
    tasks: [JoinHandle<()>; 3],
}

impl StoreClient {
    /// Returns a client, whose task begins to connect. To be called on the worker's runtime.
    pub fn start(store: Arc<Store>, clock: Clock) -> Self {
        let limit = store.settings.timeout;
        Self::with_limit(store, clock, limit)
    }

    /// Returns a client for the sync. Its calls may take longer, because no request waits for them.
    pub(super) fn start_patient(store: Arc<Store>, clock: Clock) -> Self {
        let limit = store.settings.timeout.max(BACKGROUND_CALL_TIMEOUT);
        Self::with_limit(store, clock, limit)
    }

    fn with_limit(store: Arc<Store>, clock: Clock, limit: Duration) -> Self {
        let number = store.number();
        let client = Arc::new(ClientState::new(store, clock, limit, number));
        let tasks = [
            tokio::spawn(run(Arc::clone(&client))),
            tokio::spawn(keep(Arc::clone(&client))),
            tokio::spawn(send(Arc::clone(&client))),
        ];
        Self { client, tasks }
    }

    /// Returns the secret of the fingerprints.
    pub fn seed(&self) -> Seed {
        *self.client.seed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the sync fails.
    pub fn is_cut_off(&self) -> bool {
        self.client.store.is_cut_off()
    }

    /// Waits for the next connection to the store. A connection since the last wait counts too.
    pub(super) fn connected(&self) -> impl Future<Output = ()> + use<> {
        let client = Arc::clone(&self.client);
        async move { client.connected.notified().await }
    }

    /// Settles a reserve: the request has this cost. Returns at once; the settlement is sent without
    /// the request, and again until the store confirms it.
    pub fn settle(&self, reserve: StoreReserve, cost: u64) {
        let Some(settlement) = reserve.settlement(cost) else { return };
        let ClientState { store, clock, unsettled, .. } = &*self.client;
        let now = clock.now();
        if store.backlog.add(settlement, now) {
            unsettled.notify_one();
        } else {
            store.on_dropped_settlements(1, "full", now);
        }
    }

    /// Gives the leases of ended requests back, waits until their costs are settled, and removes this gateway from the store. Waits at
    /// most as long as two calls may take, or for a moment while the store is down.
    pub async fn give_back(&self) {
        let is_up = self.connection().is_some();
        let limit = if is_up {
            self.client.limit.max(BACKGROUND_CALL_TIMEOUT)
        } else {
            BACKGROUND_CALL_TIMEOUT
        };

        // What is left runs out.
        let backlog = &self.client.store.backlog;
        let all = async { tokio::join!(self.client.leases.all_given_back(), backlog.emptied()) };
        _ = self.client.clock.timeout(limit, all).await;
        self.leave().await;
    }

    /// Removes this gateway from the store before it ends, so that the remaining gateways share the
    /// limits at once.
    pub(super) async fn leave(&self) {
        let Some(mut connection) = self.connection() else { return };
        let client = Arc::clone(&connection.client);
        let key = client.store.key("gateways");
        let mut leave = cmd("ZREM");
        leave.arg(&key).arg(&client.store.name);
        let left = connection.query(&key, &leave);
        // Otherwise, it is forgotten after a lease.
        let _left = client.clock.timeout(client.limit.max(BACKGROUND_CALL_TIMEOUT), left).await;
    }

    /// Returns the connection, if the store is up.
    pub fn connection(&self) -> Option<StoreConnection> {
        self.client.connection().clone()
    }
}

impl Drop for StoreClient {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.client.connection().take();
        self.client.store.on_end(self.client.number);
    }
}

impl fmt::Debug for StoreClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreClient")
            .field("is_up", &self.client.connection().is_some())
            .finish_non_exhaustive()
    }
}

//! Sends the settlements, and sends those again that the store has not confirmed.

use super::{
    error::CallFailure,
    redis::{ClientState, StoreConnection},
    scripts::BACKGROUND_CALL_TIMEOUT,
    settle::backlog::Batch,
    store::Store,
};
use crate::clock::Clock;
use core::time::Duration;
use redis::Value;
use std::sync::Arc;
use tokio::task::JoinSet;

/// The most calls of a worker in flight.
const CALLS: usize = 32;

/// The time after a failure until its settlements are sent again.
const PAUSE: Duration = Duration::from_millis(100);

/// The longest time in which the last settlements are sent.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// Sends settlements for as long as the worker lasts.
pub(super) async fn send(client: Arc<ClientState>) {
    let mut running = JoinSet::new();
    loop {
        let now = client.clock.now();
        let late = client.store.backlog.drop_late(now);
        if late > 0 {
            client.store.on_dropped_settlements(late, "late", now);
        }

        if let Some(connection) = client.connection().clone() {
            while running.len() < CALLS
                && let Some(batch) = take(&connection)
            {
                running.spawn(send_batch(connection.clone(), batch));
            }
        }

        let has_some = client.store.backlog.len() > 0;
        tokio::select! {
            Some(_) = running.join_next() => {}
            () = client.unsettled.notified() => {}
            () = client.clock.timer(now + PAUSE), if has_some => {}
        }
    }
}

impl Store {
    /// Sends the settlements that still wait when all requests of this process have ended, over a
    /// connection of its own: for at most two seconds.
    pub async fn end_settlements(self: &Arc<Self>, clock: &Clock) {
        if self.backlog.len() == 0 {
            return;
        }
        let limit = self.settings.timeout.max(BACKGROUND_CALL_TIMEOUT);
        let client = ClientState::new(Arc::clone(self), clock.clone(), limit, self.number());
        _ = clock.timeout(END_PATIENCE, send_all(Arc::new(client))).await;

        let count = self.backlog.len();
        if count > 0 {
            tracing::warn!(
                count,
                "ending with settlements that the store has not confirmed; what was reserved stays charged"
            );
        }
    }
}

/// Sends all settlements that can be sent.
async fn send_all(client: Arc<ClientState>) {
    let Ok(connection) = StoreConnection::open(&client).await else { return };
    let mut running = JoinSet::new();
    loop {
        while running.len() < CALLS
            && let Some(batch) = take(&connection)
        {
            running.spawn(send_batch(connection.clone(), batch));
        }
        if running.join_next().await.is_none() {
            return;
        }
    }
}

/// Takes settlements that this connection can send.
fn take(connection: &StoreConnection) -> Option<Batch> {
    let client = &connection.client;
    let is_one = connection.is_one_server();
    let is_reached =
        |tag: &str| connection.node_of(tag).map_or(is_one, |node| !connection.is_failed(node));
    client.store.backlog.take(client.clock.now(), is_reached)
}

/// Sends some settlements. Those that the store does not confirm are sent again.
async fn send_batch(mut connection: StoreConnection, batch: Batch) {
    let client = Arc::clone(&connection.client);
    let store = &client.store;
    let keys = batch.keys(&store.settings.prefix, &store.name);
    let arguments: Vec<String> =
        [String::new()].into_iter().chain(batch.lines(client.clock.now())).collect();

    let answer = connection.run(&store.scripts.settle, &keys, &arguments).await;
    let rejected = answer.and_then(|answer| {
        numbers(&answer).ok_or_else(|| CallFailure::invalid_reply("to a settlement"))
    });
    match rejected {
        Ok(rejected) => {
            if !rejected.is_empty() {
                let now = client.clock.now();
                store.on_dropped_settlements(rejected.len(), "rejected", now);
            }
            batch.done(&rejected);
        }
        Err(failure) => {
            batch.later(client.clock.now() + PAUSE);
            connection.fail(failure);
        }
    }
}

/// Returns the numbers in an answer.
fn numbers(answer: &Value) -> Option<Vec<u64>> {
    let Value::Array(numbers) = answer else { return None };
    let number = |value: &Value| {
        let Value::Int(number) = value else { return None };
        u64::try_from(*number).ok()
    };
    numbers.iter().map(number).collect()
}

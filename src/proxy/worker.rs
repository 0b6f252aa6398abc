//! What the requests of one worker share.

use crate::proxy::{
    connections::{descriptors::Descriptors, per_client::ClientConnections, registry::Connections},
    message::{date::DateCache, request_id::RequestIdMaker},
    request::auth::Passwords,
    request_log::RequestLog,
    response::body_memory::BodyMemory,
    timeouts::timeout::TimeoutLog,
    upstream::{connect::Connector, pool::Pools},
};
use crate::{
    access_log,
    clock::Clock,
    cluster::StoreClient,
    config::Live,
    key_names::KeyNames,
    meter::{self, Counters},
    preview::PreviewHandle,
    rejections,
    route::{Seed, Unread},
    traces,
};
use core::{net::IpAddr, sync::atomic::Ordering::Relaxed};
use std::sync::Arc;
use tokio_util::task::TaskTracker;

/// What the requests of one worker share.
#[derive(Debug)]
pub struct Worker {
    /// The clock, with timers that wake this worker.
    pub clock: Clock,
    /// The rules in force.
    pub live: Arc<Live>,
    /// Idle connections to upstream servers.
    pub pools: Pools,
    /// How new ones are made.
    pub connector: Connector,
    /// What the worker must wait for before it ends.
    pub tasks: TaskTracker,
    /// The process's counters.
    pub counters: Arc<Counters>,
    /// Logs requests that cannot be served.
    pub request_log: RequestLog,
    /// Where requests are logged.
    pub access_log: access_log::Handle,
    /// How many descriptors the process may have.
    pub descriptors: Descriptors,
    /// Its open client connections.
    pub connections: Connections,
    /// Says in the log which settings end requests.
    pub timeout_log: TimeoutLog,
    /// What the field `Date` says.
    pub dates: DateCache,
    /// Memory for the bodies of rejections.
    pub bodies: BodyMemory,
    /// Makes the ids of requests.
    pub request_ids: RequestIdMaker,
    /// Says to which traces its requests belong.
    pub traces: traces::Recorder,
    /// The key of clients' fingerprints: the same for all workers.
    pub seed: Seed,
    /// The way to the store, if there is one.
    pub store: Option<StoreClient>,
    /// The passwords that the process checks: the same for all workers.
    pub passwords: Arc<Passwords>,
    /// How many connections each client has: the same for all workers.
    pub clients: Arc<ClientConnections>,
    /// The new file that decides about all requests without effect, if there is one.
    pub preview: PreviewHandle,
    /// Keeps the last rejections.
    pub rejections: rejections::Recorder,
    /// The names of keys that pages may show.
    pub key_names: Arc<KeyNames>,
}

impl Worker {
    /// Counts and logs a request of `client` that was rejected before any rule was asked.
    pub(super) fn rejected(&self, client: IpAddr, reason: meter::HttpRejection, why: &str) {
        if let Some(count) = self.request_log.count(&self.counters, self.clock.now(), reason) {
            let reason = reason.label();
            tracing::info!(%client, reason, count, "request rejected: {why}");
        }
    }

    /// Counts and logs that the client of a request is not known, because what its proxy writes
    /// cannot be read.
    #[cold]
    pub(super) fn unread_client(&self, proxy: IpAddr, unread: &Unread<'_>) {
        self.counters.unread_clients.fetch_add(1, Relaxed);
        if let Some(count) = self.request_log.unread_client(self.clock.now()) {
            tracing::warn!(
                %proxy,
                count,
                "X-Forwarded-For names no client, so the proxy counts as the client: {unread}"
            );
        }
    }

    /// Counts and logs a connection of `client` that is closed before its first request.
    pub(super) fn closed(&self, client: IpAddr, reason: meter::HttpRejection, why: &str) {
        if let Some(count) = self.request_log.count(&self.counters, self.clock.now(), reason) {
            let reason = reason.label();
            tracing::info!(%client, reason, count, "connection closed: {why}");
        }
    }
}

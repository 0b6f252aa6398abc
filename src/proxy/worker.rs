//! The values that the requests of one worker share.

use crate::proxy::{
    connections::{
        copies::CopyPlaces,
        limits::{ClientConnections, Descriptors},
        registry::Connections,
    },
    message::{date::DateCache, request_id::RequestIdMaker},
    passwords::Passwords,
    request_log::RequestLog,
    timeouts::timeout::TimeoutLog,
    upstream::lease::ServerConnections,
};
use crate::{
    access_log,
    acme::Challenges,
    clock::Clock,
    cluster::StoreClient,
    config::Live,
    key_names::KeyNames,
    meter::{self, Counters},
    preview::PreviewHandle,
    rejections,
    route::{Seed, Unread},
    traces,
    worst_paths::PathRecorder,
};
use bytes::{Bytes, BytesMut};
use core::{
    net::IpAddr,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};
use std::sync::{Arc, Mutex, PoisonError};
use tokio_util::task::TaskTracker;

/// The state that the requests of one worker share.
#[derive(Debug)]
pub struct Worker {
    /// The clock, with timers that wake this worker.
    pub clock: Clock,
    /// The rules in force.
    pub live: Arc<Live>,
    /// Its connections to servers.
    pub servers: Arc<ServerConnections>,
    /// The tasks that the worker must wait for before it ends.
    pub tasks: TaskTracker,
    /// The process's counters.
    pub counters: Arc<Counters>,
    /// The number of descriptors that the process may have.
    pub descriptors: Descriptors,
    /// Its open client connections.
    pub connections: Connections,
    /// The value of the field `Date`.
    pub dates: DateCache,
    /// Memory for the bodies of rejections.
    pub bodies: BodyMemory,
    /// Bounds the responses that are compressed at once.
    pub encoders: EncoderPlaces,
    /// Bounds the copies of requests for mirrors.
    pub copies: CopyPlaces,
    /// Reads what authorities of certificates ask for.
    pub challenges: Challenges,
    /// The key of clients' fingerprints: the same for all workers.
    pub seed: Seed,
    /// The way to the store, if there is one.
    pub store: Option<StoreClient>,
    /// The passwords that the process checks: the same for all workers.
    pub passwords: Arc<Passwords>,
    /// The number of connections that each client has: the same for all workers.
    pub clients: Arc<ClientConnections>,
    /// Everything that observes the requests.
    pub records: Records,
}

/// The logs and records that the requests of one worker go to, without effect on them.
#[derive(Debug)]
pub struct Records {
    /// Makes the ids by which records name requests.
    pub request_ids: RequestIdMaker,
    /// Writes a line for each request.
    pub access_log: access_log::Handle,
    /// Records the traces of requests.
    pub traces: traces::Recorder,
    /// Logs requests that cannot be served.
    pub request_log: RequestLog,
    /// Logs the settings that end requests.
    pub timeout_log: TimeoutLog,
    /// The new file that decides about all requests without effect, if there is one.
    pub preview: PreviewHandle,
    /// Keeps the last rejections.
    pub rejections: rejections::Recorder,
    /// Counts the paths whose requests fail or are slow.
    pub worst_paths: PathRecorder,
    /// The names of keys that pages may show.
    pub key_names: Arc<KeyNames>,
}

impl Worker {
    /// Counts and logs a request of `client` that was rejected before any rule was asked.
    pub(super) fn rejected(&self, client: IpAddr, reason: meter::HttpRejection, why: &str) {
        if let Some(count) =
            self.records.request_log.count(&self.counters, self.clock.now(), reason)
        {
            let reason = reason.label();
            tracing::info!(%client, reason, count, "request rejected: {why}");
        }
    }

    /// Returns the key of the cookies for sticky sessions: the store's, which all gateways have and a
    /// restart keeps, or else that of this process, which an upgrade hands over.
    pub(super) fn cookie_seed(&self) -> Seed {
        self.store.as_ref().map_or(self.seed, StoreClient::seed)
    }

    /// Counts and logs that the client of a request is not known, because what its proxy writes
    /// cannot be read.
    #[cold]
    pub(super) fn unread_client(&self, proxy: IpAddr, header: &str, unread: &Unread<'_>) {
        self.counters.unread_clients.fetch_add(1, Relaxed);
        if let Some(count) = self.records.request_log.unread_client(self.clock.now()) {
            tracing::warn!(
                %proxy,
                count,
                "{header} names no client, so the proxy counts as the client: {unread}"
            );
        }
    }

    /// Logs why the handshake of TLS with `client` failed.
    pub(super) fn failed_handshake(&self, client: IpAddr, listener: &str, why: &str) {
        if let Some(count) = self.records.request_log.failed_handshake(self.clock.now()) {
            tracing::info!(%client, listener, count, "TLS handshake failed: {why}");
        }
    }

    /// Counts and logs a connection of `client` that is closed before its first request.
    pub(super) fn closed(&self, client: IpAddr, reason: meter::HttpRejection, why: &str) {
        if let Some(count) =
            self.records.request_log.count(&self.counters, self.clock.now(), reason)
        {
            let reason = reason.label();
            tracing::info!(%client, reason, count, "connection closed: {why}");
        }
    }
}

/// The memory that is taken at once, in bytes. A body is smaller, unless names are long.
const SIZE: usize = 512;

/// Memory that is used again once nothing needs the bodies in it. Each worker has its own, so that
/// none waits for the lock.
#[derive(Debug, Default)]
pub struct BodyMemory(Mutex<BytesMut>);

impl BodyMemory {
    /// Returns a body with these parts.
    pub(crate) fn body(&self, parts: &[&[u8]]) -> Bytes {
        let mut memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        memory.reserve(SIZE);
        for part in parts {
            memory.extend_from_slice(part);
        }
        memory.split().freeze()
    }
}

/// The most encoders of a worker at once. One of brotli has some 3 MiB (docs/benchmarks.md), so that clients
/// that read slowly take no more than 0.8 GiB. Responses beyond it pass as they are.
const MOST_ENCODERS: usize = 256;

/// Places for the encoders of a worker's responses.
#[derive(Clone, Debug, Default)]
pub struct EncoderPlaces(Arc<AtomicUsize>);

/// A place for an encoder, which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct EncoderPlace(Arc<AtomicUsize>);

impl EncoderPlaces {
    /// Returns a place, if one is free.
    pub(crate) fn take(&self) -> Option<EncoderPlace> {
        let place = EncoderPlace(Arc::clone(&self.0));
        (self.0.fetch_add(1, Relaxed) < MOST_ENCODERS).then_some(place)
    }
}

impl Drop for EncoderPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_left_is_free_again() {
        let places = EncoderPlaces::default();
        let mut taken: Vec<_> = (0..MOST_ENCODERS).map_while(|_| places.take()).collect();
        assert_eq!(taken.len(), MOST_ENCODERS);
        assert!(places.take().is_none() && places.take().is_none());
        taken.pop();
        assert!(places.take().is_some(), "those that got none have left none");
    }

    #[test]
    fn a_body_gets_the_memory_of_one_that_is_gone() {
        let memory = BodyMemory::default();
        let gone = memory.body(&[b"the first"]).as_ptr();
        let kept = memory.body(&[b"the", b" second"]);
        assert_eq!(kept.as_ptr(), gone);
        let other = memory.body(&[&[b'x'; 2 * SIZE]]);
        assert_eq!((&kept[..], other.len()), (&b"the second"[..], 2 * SIZE));
    }
}

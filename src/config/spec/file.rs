//! The whole file, and what holds for the gateway as a whole.

use super::{
    AccessLog, AdminSpec, CertificateFiles, ListenerSpec, RateLimitHeaders, RouteSpec, StoreSpec,
    UpstreamSpec,
    leaf::{HOUR, Integer, LEAST_HEADER, LogTarget, Network, Period, Size, Timeout, Via},
};
use crate::config::decode::{At, Key, List, Printed, Several};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::Path;

/// The whole file. `listeners`, `upstreams` and `routes` are needed, everything else has a default
/// that is safe at the edge.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "the file")]
pub(in crate::config) struct FileSpec {
    /// Where clients connect.
    pub listeners: Key<List<ListenerSpec>>,
    /// The services behind the gateway.
    pub upstreams: Key<List<UpstreamSpec>>,
    /// Which request goes to which upstream, and how many may. The best match wins, not the first.
    pub routes: Key<List<Printed<RouteSpec>>>,
    /// Health, readiness, metrics and routes on a listener of their own.
    #[serde(default)]
    pub admin: Key<AdminSpec>,
    /// Whose `X-Forwarded-For` is believed: the proxies in front of this one.
    #[serde(default)]
    #[schemars(extend("x-default" = "none"))]
    pub trusted_proxies: Key<Several<Network>>,
    /// How long a client's connection may take.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub timeouts: Key<ClientTimeoutsSpec>,
    /// How much a client may send.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub limits: Key<LimitsSpec>,
    /// Which headers tell a client its quota: `RateLimit` and `RateLimit-Policy` (draft),
    /// `X-RateLimit-*` as well (legacy), or none.
    #[serde(default)]
    #[schemars(extend("default" = "draft"))]
    pub headers: Key<RateLimitHeaders>,
    /// Adds `x-flowgate-rule` and `x-flowgate-reason` to rejections, which shows clients how the
    /// rules are named.
    #[serde(default)]
    #[schemars(extend("default" = false))]
    pub explain_headers: Key<bool>,
    /// Adds `Via: 1.1 flowgate` to requests, or `Via: 1.1 NAME`. nginx does not compress answers to
    /// requests that have it, unless `gzip_proxied` says so.
    #[serde(default)]
    #[schemars(extend("default" = "off"))]
    pub via: Key<Via>,
    /// One JSON line a request, to `stdout` or to a file; USR1 reopens it.
    #[serde(default)]
    #[schemars(extend("default" = "off"))]
    pub access_log: Key<LogTarget>,
    /// Threads that serve requests. Read at start only.
    #[serde(default)]
    #[schemars(extend("x-default" = "one a core"))]
    pub workers: Key<Integer<1, 1024>>,
    /// How long a stopping gateway waits for requests in flight.
    #[serde(default)]
    #[schemars(extend("default" = "30s"))]
    pub drain_timeout: Key<Period<0, { 24 * HOUR }>>,
    /// The Redis or Valkey that keeps what gateways share: the rules with `scope: cluster`. Read at
    /// start only.
    #[serde(default)]
    pub store: Key<StoreSpec>,
    /// The mark `end: true` as the last line. Once the file in force has it, a file without it is
    /// rejected as cut short.
    #[serde(default)]
    pub end: Key<bool>,
}

/// Deadlines of a client's connection.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "the timeouts")]
pub(in crate::config) struct ClientTimeoutsSpec {
    /// From the first byte of a request to the end of its header.
    #[serde(default)]
    #[schemars(extend("default" = "10s"))]
    pub header_read: Key<Timeout>,
    /// How long a connection may idle between requests.
    #[serde(default)]
    #[schemars(extend("default" = "75s"))]
    pub keep_alive: Key<Timeout>,
    /// From the connection to the end of the TLS handshake.
    #[serde(default)]
    #[schemars(extend("default" = "10s"))]
    pub tls_handshake: Key<Timeout>,
    /// How long a client may take no byte of its answer.
    #[serde(default)]
    #[schemars(extend("default" = "60s"))]
    pub write: Key<Timeout>,
}

/// Sizes and counts beyond which a request is rejected.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "the limits")]
pub(in crate::config) struct LimitsSpec {
    /// The whole header of a request: 431 beyond it. At least 8KiB.
    #[serde(default)]
    #[schemars(extend("default" = "32KiB"))]
    pub header_bytes: Key<Size<LEAST_HEADER, { 1 << 20 }>>,
    /// How many header fields: 431 beyond it.
    #[serde(default)]
    #[schemars(extend("default" = 100))]
    pub headers: Key<Integer<1, 10_000>>,
    /// The body of a request: 413 beyond it. A route's `body_limit` overrides it.
    #[serde(default)]
    #[schemars(extend("default" = "1GiB"))]
    pub body: Key<Size<0, { u64::MAX }>>,
    /// Client connections at once, all listeners together. Twice as many file descriptors are
    /// enough, and a few; with fewer, no client is accepted while three quarters of them are in
    /// use.
    #[serde(default)]
    #[schemars(extend("default" = 100_000))]
    pub connections: Key<Integer<1, 10_000_000>>,
    /// Memory for uploads over HTTP/2 that upstreams have not taken yet, all connections together.
    /// Beyond it, a connection that holds 64KiB or more is not read.
    #[serde(default)]
    #[schemars(extend("default" = "256MiB"))]
    pub upload_buffers: Key<Size<0, { 1 << 40 }>>,
}

impl FileSpec {
    /// Returns the certificates of all listeners.
    pub(in crate::config) fn certificates(&self) -> impl Iterator<Item = CertificateFiles> {
        self.listeners.items().iter().flat_map(|at| at.value.certificates())
    }

    /// Returns the file with relative names meant from `folder`.
    pub(in crate::config) fn resolved(mut self, folder: &Path) -> Self {
        let listeners = self.listeners.at.iter_mut().flat_map(|at| &mut at.value.0);
        let tls = listeners.filter_map(|at| at.value.tls.at.as_mut());
        let certificates = tls.filter_map(|at| at.value.certificates.at.as_mut());
        for certificate in certificates.flat_map(|at| &mut at.value.0) {
            certificate.value.cert.resolve(folder);
            certificate.value.key.resolve(folder);
        }
        if let Some(store) = &mut self.store.at {
            store.value.ca.resolve(folder);
        }
        if let Some(At { value: LogTarget(AccessLog::File(file)), .. }) = &mut self.access_log.at {
            *file = folder.join(&file);
        }
        self
    }

    /// Returns the file as if it named no certificates.
    pub(in crate::config) fn without_certificates(mut self) -> Self {
        for listener in self.listeners.at.iter_mut().flat_map(|at| &mut at.value.0) {
            listener.value.tls = Key::default();
        }
        if let Some(store) = &mut self.store.at {
            store.value.ca = Key::default();
        }
        self
    }
}

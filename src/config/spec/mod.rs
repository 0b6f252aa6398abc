//! The file as written. A field is a key: its documentation is the reference, its type and its
//! attributes are bounds and default. Whether the values make sense together is the compiler's
//! question.

mod breaker;
mod route;
mod rule;
mod store;

pub(super) use breaker::BreakerSpec;
pub(super) use route::{
    FieldConditions, FieldSpec, HeaderEditsSpec, MatchSpec, RejectSpec, RouteSpec,
};
pub(super) use rule::{
    AlgorithmWord, Align, CostSpec, ExceptSpec, LimitSpec, OverrideSpec, PacingSpec, PrioritySpec,
    RuleSpec, Scope, WarmUpSpec,
};
pub use rule::{OnMissing, OnStoreError};
pub(super) use store::StoreSpec;

use super::{
    certificate::CertificateFiles,
    decode::{At, Key, List, Printed, Several},
    leaf::{
        Address, FileName, HOUR, Integer, LogTarget, Name, Network, Period, Size, Timeout, Url, Via,
    },
    settings::{AccessLog, RateLimitHeaders},
};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::Path;

/// The smallest header that a browser's ordinary request fits into, and hyper's smallest buffer.
const LEAST_HEADER: u64 = 8 * 1024;

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

/// An address to accept connections on: HTTP/1.1 and HTTP/2, with TLS where `tls` says so.
/// Listeners come and go with the file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "a listener")]
pub(in crate::config) struct ListenerSpec {
    /// The listener's name in logs and metrics.
    pub name: Key<Name>,
    /// IP address and port, as in `127.0.0.1:8080`. `:8080` or `8080` listens on every address,
    /// IPv4 and IPv6, as `[::]:8080` does; `0.0.0.0:8080` on every IPv4 address.
    pub listen: Key<Address>,
    /// Certificates; a listener without speaks cleartext.
    #[serde(default)]
    pub tls: Key<TlsSpec>,
}

/// The client's server name picks the certificate, the first one where none fits. The files are
/// watched and reloaded like this file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "the TLS of a listener")]
pub(in crate::config) struct TlsSpec {
    /// At least one certificate with its key.
    pub certificates: Key<List<CertificateSpec>>,
}

/// Two PEM files. Names are relative to the folder of this file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "a certificate")]
pub(in crate::config) struct CertificateSpec {
    /// The certificate, followed by its intermediates.
    pub cert: Key<FileName>,
    /// Its private key.
    pub key: Key<FileName>,
}

/// Serves `/healthz`, `/readyz`, `/metrics`, `/routes`, and `POST /reload`, which reads the
/// configuration again. Whoever reaches it can do so, and read the rules: keep it on loopback or
/// inside the network. Read at start only.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "the admin listener")]
pub(in crate::config) struct AdminSpec {
    /// IP address and port, or a port alone for every address.
    #[serde(default)]
    #[schemars(extend("default" = "127.0.0.1:9901"))]
    pub listen: Key<Address>,
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

/// A service: one or more servers that answer alike, over HTTP/1.1 with kept connections.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "an upstream", extend("x-later" = ["health"]))]
pub(in crate::config) struct UpstreamSpec {
    /// What routes call it.
    pub name: Key<Name>,
    /// At least one server.
    pub servers: Key<List<ServerSpec>>,
    /// In turn by weight, the less busy of two picked by weight, or by weighted chance.
    #[serde(default)]
    #[schemars(extend("default" = "round_robin"))]
    pub balance: Key<Balance>,
    /// How long a connection may take to open.
    #[serde(default)]
    #[schemars(extend("default" = "3s"))]
    pub connect_timeout: Key<Timeout>,
    /// How long an idle connection is kept. Set it below the server's own limit, so that the server
    /// never closes first; a server that announces less by `Keep-Alive: timeout=` is given up 1s
    /// before that.
    #[serde(default)]
    #[schemars(extend("default" = "4s"))]
    pub idle_timeout: Key<Timeout>,
    /// Idle connections kept for each server by each worker.
    #[serde(default)]
    #[schemars(extend("default" = 256))]
    pub max_idle: Key<Integer<0, 100_000>>,
    /// What the header of an answer may be: 502 beyond it.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub limits: Key<ResponseLimitsSpec>,
}

/// One address of an upstream.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "a server")]
pub(in crate::config) struct ServerSpec {
    /// `http://HOST:PORT`; a name is resolved when a connection opens.
    pub url: Key<Url>,
    /// Its share beside the others.
    #[serde(default)]
    #[schemars(extend("default" = 1))]
    pub weight: Key<Integer<1, 1000>>,
}

/// Sizes and counts beyond which an upstream's answer is not taken.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "the limits of an upstream")]
pub(in crate::config) struct ResponseLimitsSpec {
    /// The whole header of an answer. At least 8KiB.
    #[serde(default)]
    #[schemars(extend("default" = "64KiB"))]
    pub header_bytes: Key<Size<LEAST_HEADER, { 1 << 20 }>>,
    /// How many header fields. More than 100 cost each answer some memory and time.
    #[serde(default)]
    #[schemars(extend("default" = 100))]
    pub headers: Key<Integer<1, 10_000>>,
}

/// How an upstream picks one of its servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline, extend("x-later" = ["hash"]))]
pub enum Balance {
    /// In turn, by weight.
    RoundRobin,
    /// The less busy of two, both picked by weight.
    LeastRequest,
    /// By weighted chance.
    Random,
}

impl Balance {
    /// Returns its word in the file.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::RoundRobin => "round_robin",
            Self::LeastRequest => "least_request",
            Self::Random => "random",
        }
    }
}

impl ListenerSpec {
    /// Returns the files of its certificates; there is none for cleartext.
    pub(super) fn certificates(&self) -> impl Iterator<Item = CertificateFiles> {
        let tls = self.tls.value();
        let list = tls.map_or(&[][..], |tls| tls.certificates.items()).iter();
        list.filter_map(|at| {
            Some(CertificateFiles { cert: at.value.cert.path()?, key: at.value.key.path()? })
        })
    }
}

impl FileSpec {
    /// Returns the certificates of all listeners.
    pub(super) fn certificates(&self) -> impl Iterator<Item = CertificateFiles> {
        self.listeners.items().iter().flat_map(|at| at.value.certificates())
    }

    /// Returns the file with relative names meant from `folder`.
    pub(super) fn resolved(mut self, folder: &Path) -> Self {
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
    pub(super) fn without_certificates(mut self) -> Self {
        for listener in self.listeners.at.iter_mut().flat_map(|at| &mut at.value.0) {
            listener.value.tls = Key::default();
        }
        if let Some(store) = &mut self.store.at {
            store.value.ca = Key::default();
        }
        self
    }
}

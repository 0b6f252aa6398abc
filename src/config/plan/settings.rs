//! The settings of the gateway as a whole, of its traces and of its store.

use super::{Acme, Admin, UpstreamTls};
use crate::{
    config::{
        spec::{
            AccessLog, CollectorEndpoint, HeaderCase, LogFormat, ParentTraces, RateLimitHeaders,
            RequestIds, SampleRatio, Secret,
        },
        vocabulary::ShownKey,
    },
    flow::{self, Stored},
    geo::Geo,
    route::{Nat64, NetworkList},
};
use http::{HeaderName, HeaderValue};
use std::{
    net::SocketAddr,
    num::{NonZeroU64, NonZeroUsize},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

/// The part of a snapshot that is neither a listener, an upstream nor a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Threads that serve requests; read at start only.
    pub workers: NonZeroUsize,
    /// The time that a stopping gateway waits for requests in flight.
    pub drain_timeout: Duration,
    /// Whose word about clients is believed.
    pub trusted_proxies: NetworkList,
    /// The field in which they name the client, if the file says so.
    pub client_ip_header: Option<HeaderName>,
    /// The prefixes of IPv6 behind which an IPv4 client stands.
    pub nat64: Nat64,
    /// The files that say where clients are, if there are any.
    pub geo: Option<Arc<Geo>>,
    /// The DNS servers that resolve the names of servers; if empty, those of the system.
    pub dns_servers: Vec<SocketAddr>,
    /// Deadlines of a client's connection.
    pub timeouts: ClientTimeouts,
    /// Sizes and counts beyond which a request is rejected.
    pub limits: Limits,
    /// Where the access log goes.
    pub access_log: AccessLog,
    /// The format of its lines.
    pub access_log_format: LogFormat,
    /// The header fields of requests that it has.
    pub logged_headers: Arc<[HeaderName]>,
    /// The authority that issues certificates, if the file has one.
    pub acme: Option<Arc<Acme>>,
    /// The admin listener, if there is one; its address is read at start only.
    pub admin: Option<Admin>,
    /// The headers that have a client's quota.
    pub rate_limit_headers: RateLimitHeaders,
    /// True if rejections name the rule that decided, and why.
    pub explain_headers: bool,
    /// The value of `Via` that requests get, if they do.
    pub via: Option<Arc<HeaderValue>>,
    /// The requests that keep their `X-Request-Id`.
    pub request_ids: RequestIds,
    /// The form of header names as they are written to clients of HTTP/1.1.
    pub header_case: HeaderCase,
    /// The requests that are recorded as traces; `None`: none is, and `traceparent` is left alone.
    pub tracing: Option<Arc<Tracing>>,
    /// The store that gateways share, if they do; read at start only.
    pub store: Option<Arc<StoreSettings>>,
    /// The keys of one value, for reports.
    pub(in crate::config) keys: Vec<ShownKey>,
}

impl Settings {
    /// Returns whether clients' keys may be shown by name.
    pub fn shows_keys(&self) -> bool {
        self.admin.as_ref().is_some_and(|admin| admin.show_keys)
    }
}

/// Deadlines of a client's connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientTimeouts {
    /// From the first byte of a request to the end of its header.
    pub header_read: Duration,
    /// The longest time that a connection may idle between requests.
    pub keep_alive: Duration,
    /// From the connection to the end of the TLS handshake.
    pub tls_handshake: Duration,
    /// The longest time that a client may take no byte of its answer.
    pub write: Duration,
}

/// Sizes and counts beyond which a request is rejected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The whole header of a request, in bytes.
    pub header_bytes: usize,
    /// The most header fields.
    pub headers: usize,
    /// The body of a request, in bytes, where the route does not say otherwise.
    pub body: u64,
    /// The least rate of a request's body, in bytes per second.
    pub min_body_rate: Option<NonZeroU64>,
    /// Client connections at once, all listeners together.
    pub connections: usize,
    /// Connections of one client at once; `None`: as many as there may be.
    pub connections_per_client: Option<usize>,
    /// The most that HTTP/2 connections may hold of uploads, all together, in bytes.
    pub upload_buffers: u64,
    /// The most bytes of a body that are held back for its members.
    pub peek_body: usize,
}

/// The requests that are recorded, and the collector of their spans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracing {
    /// The collector.
    pub collector: Collector,
    /// The share of new traces that are sampled.
    pub sample: SampleRatio,
    /// Whose `traceparent` is continued.
    pub parents: ParentTraces,
    /// The name of the gateway.
    pub service_name: String,
    /// Further attributes of the gateway.
    pub resource: Vec<(String, String)>,
}

/// A collector that speaks OTLP over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    /// Where it is.
    pub endpoint: CollectorEndpoint,
    /// The header fields of each export; not to be shown.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The longest time that an export may take.
    pub timeout: Duration,
    /// The verification of its certificate; `None` without TLS.
    pub tls: Option<Arc<UpstreamTls>>,
}

/// Where the store is, and how it is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    /// Hosts and ports: of the store, of its nodes, or of the sentinels; at least one.
    pub nodes: Vec<(String, u16)>,
    /// Its kind.
    pub kind: StoreKind,
    /// True if connections are TLS.
    pub is_tls: bool,
    /// Whose certificates are trusted, PEM; `None`: those that the system trusts.
    pub ca: Option<PathBuf>,
    /// The user of the store; `None` is the default one.
    pub user: Option<String>,
    /// `None`: none is asked for.
    pub password: Option<Secret>,
    /// The number of the database.
    pub database: i64,
    /// The prefix of every key.
    pub prefix: String,
    /// The longest time that a connection may take to open.
    pub connect_timeout: Duration,
    /// The longest time that an answer may take.
    pub timeout: Duration,
    /// The time that a request in flight stays counted there when its gateway is gone.
    pub lease: Duration,
    /// The fewest gateways among which limits are divided while it fails.
    pub gateways: u32,
}

/// The kind of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// One server.
    Single,
    /// A primary that sentinels know.
    Sentinel {
        /// Its name.
        primary: String,
        /// The user of the sentinels; `None` is the default one.
        user: Option<String>,
        /// `None`: they ask for none.
        password: Option<Secret>,
    },
    /// A Redis Cluster.
    Cluster,
}

/// Returns the name of a rule's states in the store, within its route: another one for states that
/// mean something else. Synced states lag behind, so that they must not be those by which the store
/// decides.
pub(in crate::config) fn name_in_store(
    rule: &flow::Rule,
    stored: &Stored,
    is_synced: bool,
) -> String {
    let suffix = if is_synced { ":exchanged" } else { "" };
    let mut name = format!("{}:{}{suffix}", rule.name, stored.shape());
    if let Some(keyed) = &rule.keyed {
        name.push(':');
        name += &keyed.by;
    }
    name
}

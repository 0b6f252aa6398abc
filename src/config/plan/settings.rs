//! The settings of the gateway as a whole.

use super::{Acme, Admin, StoreSettings, Tracing};
use crate::{
    config::{
        spec::{AccessLog, HeaderCase, RateLimitHeaders, RequestIds},
        vocabulary::ShownKey,
    },
    route::{Nat64, NetworkList},
};
use http::{HeaderName, HeaderValue};
use std::{
    net::SocketAddr,
    num::{NonZeroU64, NonZeroUsize},
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
    /// The DNS servers that resolve the names of servers; if empty, those of the system.
    pub dns_servers: Vec<SocketAddr>,
    /// Deadlines of a client's connection.
    pub timeouts: ClientTimeouts,
    /// Sizes and counts beyond which a request is rejected.
    pub limits: Limits,
    /// Where the access log goes.
    pub access_log: AccessLog,
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
}

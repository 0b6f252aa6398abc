//! The whole file, and what holds for the gateway as a whole.

use super::{
    AccessLog, AdminSpec, AuthSpec, CertificateFiles, HeaderCase, ListenerSpec, RateLimitHeaders,
    RequestIds, RouteSpec, StoreSpec, TracingSpec, UpstreamSpec, UpstreamTlsSpec,
    keys::keys,
    leaf::{
        ByteRate, FileName, HOUR, Integer, LEAST_HEADER, LogTarget, Network, Period, Size, Timeout,
        Via,
    },
};
use crate::config::{
    decode::{At, Key, List, Printed, Several},
    diagnostics::Source,
    vocabulary::Document,
};
use std::path::PathBuf;

keys! {
    /// The whole file. `listeners` and `routes` are needed, and `upstreams` if a route names one;
    /// everything else has a default that is safe at the edge.
    struct FileSpec: "the file" {
        /// Where clients connect.
        listeners: List<ListenerSpec>;
        /// The services behind the gateway.
        upstreams: List<UpstreamSpec>, else "none";
        /// Which request goes to which upstream, and how many may. The best match wins, not the
        /// first.
        routes: List<Printed<RouteSpec>>;
        /// Files with more `listeners`, `upstreams` and `routes`: files, folders (every `*.yaml` in
        /// them), or patterns, as in `conf.d/*.yaml`.
        include: Several<FileName>, else "none";
        /// Health, metrics and what the gateway knows, on a listener of its own.
        admin: AdminSpec, else "–";
        /// Whose `X-Forwarded-For` is believed: the proxies in front of this one.
        trusted_proxies: Several<Network>, else "none";
        /// How long a client's connection may take.
        timeouts: ClientTimeoutsSpec = {};
        /// How much a client may send.
        limits: LimitsSpec = {};
        /// Which headers have a client's quota: `RateLimit` and `RateLimit-Policy` (draft),
        /// `X-RateLimit-*` as well (legacy), or none.
        headers: RateLimitHeaders = "draft";
        /// Adds `x-flowgate-rule` and `x-flowgate-reason` to rejections, which shows clients how
        /// the rules are named.
        explain_headers: bool = false;
        /// Adds `Via: 1.1 flowgate` to requests, or `Via: 1.1 NAME`. nginx does not compress
        /// answers to requests that have it, unless `gzip_proxied` says so.
        via: Via = "off";
        /// Gives each request an id, `X-Request-Id`, for the upstream, the client and the access
        /// log. A valid id of the request itself is kept: that of every client (on), or of
        /// `trusted_proxies` only (trusted).
        request_id: RequestIds = "on";
        /// How header names are written to HTTP/1.1 clients: `content-type` or, for old clients that
        /// depend on the case, `Content-Type`.
        h1_header_case: HeaderCase = "lower";
        /// One JSON line a request, to `stdout` or to a file; USR1 reopens it.
        access_log: LogTarget = "off";
        /// Which requests are recorded as traces, and where those are sent.
        tracing: TracingSpec, else "–";
        /// Threads that serve requests. Read at start only.
        workers: Integer<1, 1024>, else "one a core";
        /// How long a stopping gateway waits for requests in flight.
        drain_timeout: Period<0, { 24 * HOUR }> = "30s";
        /// The Redis or Valkey that keeps what gateways share: the rules with `scope: cluster`.
        /// Read at start only.
        store: StoreSpec, else "–";
        /// The mark `end: true` as the last line. Once the file in force has it, a file without it
        /// is rejected as cut short.
        end: bool, else "–";
    }

    /// Deadlines of a client's connection.
    struct ClientTimeoutsSpec: "the timeouts" {
        /// From the first byte of a request to the end of its header.
        header_read: Timeout = "10s";
        /// How long a connection may idle between requests.
        keep_alive: Timeout = "75s";
        /// From the connection to the end of the TLS handshake.
        tls_handshake: Timeout = "10s";
        /// How long a client may take no byte of its answer.
        write: Timeout = "60s";
    }

    /// Sizes and counts beyond which a request is rejected.
    struct LimitsSpec: "the limits" {
        /// The whole header of a request: 431 beyond it. At least 8KiB.
        header_bytes: Size<LEAST_HEADER, { 1 << 20 }> = "32KiB";
        /// How many header fields: 431 beyond it.
        headers: Integer<1, 10_000> = 100;
        /// The body of a request: 413 beyond it. A route's `body_limit` overrides it.
        body: Size<0, { u64::MAX }> = "1GiB";
        /// The least rate of a request's body, on average: 408 below it. 5s are free, and only time in
        /// which flowgate waits for the client counts. gRPC is exempt. A route's `min_body_rate`
        /// overrides it.
        min_body_rate: ByteRate = "off";
        /// Client connections at once, all listeners together. Twice as many file descriptors are
        /// enough, and a few; with fewer, no client is accepted while three quarters of them are in
        /// use.
        connections: Integer<1, 10_000_000> = 100_000;
        /// Connections of one client at once: of an IPv4 address, or of the first 64 bits of an IPv6
        /// address. Further ones are closed before TLS begins. Trusted proxies have no such limit.
        connections_per_client: Integer<1, 10_000_000>, else "no limit";
        /// Memory for uploads over HTTP/2 that upstreams have not taken yet, all connections
        /// together. Beyond it, a connection that holds 64KiB or more is not read.
        upload_buffers: Size<0, { 1 << 40 }> = "256MiB";
    }
}

impl Document for FileSpec {
    const SCHEMA: &'static str = include_str!("../../../gateway.schema.json");
}

impl FileSpec {
    pub(in crate::config) fn certificates(&self) -> impl Iterator<Item = CertificateFiles> {
        self.listeners.items().iter().flat_map(|at| at.value.certificates())
    }

    /// Returns the files of the TLS to upstreams and to the collector of traces.
    pub(in crate::config) fn upstream_files(&self) -> Vec<PathBuf> {
        let tls = self.upstreams.items().iter().filter_map(|at| at.value.tls.value());
        let tracing = self.tracing.value().map(TracingSpec::files).unwrap_or_default();
        tls.flat_map(UpstreamTlsSpec::files).chain(tracing).collect()
    }

    /// Returns the files by which routes know clients.
    pub(in crate::config) fn auth_files(&self) -> Vec<PathBuf> {
        let routes = self.routes.items().iter().filter_map(|at| at.value.1.auth.value());
        let files = |auth: &AuthSpec| {
            let jwks = auth.jwt.value().and_then(|jwt| jwt.jwks.path());
            [auth.basic.path(), jwks].into_iter().flatten().map(|at| at.value)
        };
        routes.flat_map(|auth| files(auth)).collect()
    }

    /// Returns the files of the admin listener.
    pub(in crate::config) fn admin_files(&self) -> Vec<PathBuf> {
        self.admin.value().into_iter().flat_map(AdminSpec::files).collect()
    }

    /// Returns the file with relative names meant from the folders of the files that they stand in.
    pub(in crate::config) fn resolved(mut self, source: &Source) -> Self {
        let listeners = self.listeners.at.iter_mut().flat_map(|at| &mut at.value.0);
        let tls = listeners.filter_map(|at| at.value.tls.at.as_mut());
        let certificates = tls.filter_map(|at| at.value.certificates.at.as_mut());
        for certificate in certificates.flat_map(|at| &mut at.value.0) {
            certificate.value.cert.resolve(source);
            certificate.value.key.resolve(source);
        }
        for upstream in self.upstreams.at.iter_mut().flat_map(|at| &mut at.value.0) {
            upstream.value.resolve(source);
        }
        let routes = self.routes.at.iter_mut().flat_map(|at| &mut at.value.0);
        for auth in routes.filter_map(|at| at.value.1.auth.at.as_mut()) {
            auth.value.basic.resolve(source);
            if let Some(jwt) = &mut auth.value.jwt.at {
                jwt.value.jwks.resolve(source);
            }
        }
        if let Some(store) = &mut self.store.at {
            store.value.ca.resolve(source);
        }
        if let Some(tracing) = &mut self.tracing.at {
            tracing.value.resolve(source);
        }
        if let Some(admin) = &mut self.admin.at {
            admin.value.resolve(source);
        }
        if let Some(At { value: LogTarget(AccessLog::File(file)), .. }) = &mut self.access_log.at {
            *file = source.folder().join(&file);
        }
        self
    }

    /// Returns the file without what names other files. That routes have `auth`, and that the admin
    /// listener asks for a credential, stays known.
    pub(in crate::config) fn without_files(mut self) -> Self {
        for listener in self.listeners.at.iter_mut().flat_map(|at| &mut at.value.0) {
            listener.value.tls = Key::default();
        }
        for upstream in self.upstreams.at.iter_mut().flat_map(|at| &mut at.value.0) {
            upstream.value.forget_tls();
        }
        for route in self.routes.at.iter_mut().flat_map(|at| &mut at.value.0) {
            route.value.1.auth.at = None;
        }
        if let Some(store) = &mut self.store.at {
            store.value.ca = Key::default();
        }
        self.tracing = Key::default();
        if let Some(admin) = &mut self.admin.at {
            admin.value.token_file.at = None;
            admin.value.tls.at = None;
        }
        self
    }
}

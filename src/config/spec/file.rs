//! The whole file, and what holds for the gateway as a whole.

use super::other_words::file::{
    CLIENT_TIMEOUTS_INSTEAD, CLIENT_TIMEOUTS_MEANT, FILE_INSTEAD, FILE_MEANT, LIMITS_MEANT,
};
use super::{
    AccessLog, AcmeSpec, AdminSpec, AuthSpec, CertificateFiles, GeoSpec, HeaderCase, ListenerSpec,
    LogFormat, NetworksSpec, RateLimitHeaders, RequestIds, RouteSpec, RuleSpec, StoreSpec,
    TracingSpec, UpstreamSpec, UpstreamTlsSpec,
    access::{files_of, files_of_mut},
    keys::keys,
    leaf::{
        ByteRate, ClientIpHeader, DnsServer, FileName, HOUR, Integer, LEAST_HEADER, LogTarget,
        LoggedName, Nat64Prefix, Period, Size, Timeout, Via,
    },
};
use crate::config::{
    decode::{At, Key, List, Printed, Several},
    diagnostics::Source,
};
use std::path::PathBuf;

keys! {
    /// The whole file. `listeners` and `routes` are required, and `upstreams` if a route names one.
    /// All other keys have defaults that are safe for a gateway on the internet.
    #[instead = FILE_INSTEAD]
    #[meant = FILE_MEANT]
    struct FileSpec: "the file" {
        /// Where clients connect.
        listeners: List<ListenerSpec>;
        /// The services behind the gateway.
        upstreams: List<UpstreamSpec>, else "none";
        /// Which requests go to which upstream, and how many may. The best match wins, not the
        /// first.
        routes: List<Printed<RouteSpec>>;
        /// Rules that several routes share: each is written once, used by its name, and counts the
        /// requests of all routes that use it together. A budget takes every key of a
        /// [rule](#routesflow).
        budgets: List<Printed<RuleSpec>>, else "none";
        /// Rules and budgets for the requests of all routes, those of included files too.
        flow: List<Printed<RuleSpec>>, else "no rules";
        /// Files with more `listeners`, `upstreams`, `routes` and `budgets`: files, folders (every
        /// `*.yaml` in them), or patterns, as in `conf.d/*.yaml`.
        include: Several<FileName>, else "none";
        /// The authority that issues certificates for listeners with `acme` names.
        acme: AcmeSpec, else "–";
        /// Health, metrics and pages for operators, on a separate listener.
        admin: AdminSpec, else "–";
        /// The proxies in front of this gateway. flowgate believes what they say about clients, in
        /// `X-Forwarded-For` or in `client_ip_header`.
        trusted_proxies: NetworksSpec, else "none";
        /// The field in which the trusted proxies name the client, as in `cf-connecting-ip` or
        /// `x-real-ip`. It replaces `X-Forwarded-For`, also for upstreams. flowgate removes it from
        /// the requests of all other peers.
        client_ip_header: ClientIpHeader = "x-forwarded-for";
        /// The prefixes of your NAT64, as in `64:ff9b:1::/48` (RFC 6052). A client with an address
        /// behind one counts, and is shown, as its IPv4 address. `64:ff9b::/96` needs no entry.
        nat64: Several<Nat64Prefix>, else "none";
        /// The files that say in which country and in which network of a provider clients are.
        geo: GeoSpec, else "–";
        /// The DNS servers that resolve the names of upstreams' servers, as in `10.0.0.2` or
        /// `127.0.0.1:8600`.
        dns_servers: Several<DnsServer>, else "those in `/etc/resolv.conf`";
        /// How long a client's connection may take.
        timeouts: ClientTimeoutsSpec = {};
        /// How much a client may send.
        limits: LimitsSpec = {};
        /// Which response headers report a client's quota: `RateLimit` and `RateLimit-Policy`
        /// (draft), `X-RateLimit-*` as well (legacy), or none (off).
        headers: RateLimitHeaders = "draft";
        /// Adds `x-flowgate-rule` and `x-flowgate-reason` to rejections. Clients then see the names
        /// of rules.
        explain_headers: bool = false;
        /// Adds `Via: 1.1 flowgate` to requests, or `Via: 1.1 NAME`. nginx does not compress
        /// responses to requests with `Via`, unless `gzip_proxied` allows it.
        via: Via = "off";
        /// Gives each request an id, `X-Request-Id`, for the upstream, the client and the access
        /// log. With `on`, a valid id of any client is kept; with `trusted`, only an id from
        /// `trusted_proxies`.
        request_id: RequestIds = "on";
        /// How header names are written to HTTP/1.1 clients: `content-type` or, for old clients that
        /// depend on the case, `Content-Type`.
        h1_header_case: HeaderCase = "lower";
        /// One line per request, to `stdout` or to a file. The signal USR1 opens the file again.
        access_log: LogTarget = "off";
        /// `json`: all that is known of a request, which `flowgate replay` decides by exactly.
        /// `combined`: the format of Apache and nginx, which log tools read.
        access_log_format: LogFormat = "json";
        /// Header fields of requests that the access log has too, as in `[user-agent, referer]`. Not
        /// `authorization` and `cookie`, which have secrets.
        access_log_headers: Several<LoggedName>, else "none";
        /// Which requests are traced, and where their traces go.
        tracing: TracingSpec, else "–";
        /// Threads that serve requests. Read at start only.
        workers: Integer<1, 1024>, else "one a core";
        /// How long a stopping gateway waits for requests in flight.
        drain_timeout: Period<0, { 24 * HOUR }> = "30s";
        /// The Redis or Valkey with the counts of rules with `scope: cluster`. Read at start only.
        store: StoreSpec, else "–";
        /// `end: true` as the last line marks the end of the file. Once the file in force has it, a
        /// file without it is rejected as cut short.
        end: bool, else "–";
    }

    /// Deadlines of a client's connection.
    #[instead = CLIENT_TIMEOUTS_INSTEAD]
    #[meant = CLIENT_TIMEOUTS_MEANT]
    struct ClientTimeoutsSpec: "the timeouts" {
        /// From the first byte of a request to the end of its header.
        header_read: Timeout = "10s";
        /// How long a connection may idle between requests.
        keep_alive: Timeout = "75s";
        /// From the connection to the end of the TLS handshake.
        tls_handshake: Timeout = "10s";
        /// How long a client may read no byte of its response.
        write: Timeout = "60s";
    }

    /// Sizes and counts. Requests beyond them are rejected.
    #[meant = LIMITS_MEANT]
    struct LimitsSpec: "the limits" {
        /// The whole header of a request: 431 beyond it. At least 8KiB.
        header_bytes: Size<LEAST_HEADER, { 1 << 20 }> = "32KiB";
        /// How many header fields: 431 beyond it.
        headers: Integer<1, 10_000> = 100;
        /// The largest body of a request: 413 beyond it. A route's `body_limit` overrides it.
        body: Size<0, { u64::MAX }> = "1GiB";
        /// The minimum rate of a request's body, on average: 408 below it. The first 5s are free,
        /// and only time in which flowgate waits for the client counts. gRPC is exempt. A route's
        /// `min_body_rate` overrides it.
        min_body_rate: ByteRate = "off";
        /// Client connections at once on all listeners together. The process needs twice as many
        /// file descriptors and a few more. While three quarters of the descriptors are in use,
        /// flowgate accepts no client.
        connections: Integer<1, 10_000_000> = 100_000;
        /// Connections at once of one client: an IPv4 address, or the first 64 bits of an IPv6
        /// address. Further ones are closed before TLS begins. Trusted proxies have no such limit.
        connections_per_client: Integer<1, 10_000_000>, else "no limit";
        /// Memory for HTTP/2 uploads that upstreams have not taken yet, for all connections
        /// together. Beyond it, flowgate does not read connections that hold 64KiB or more.
        upload_buffers: Size<0, { 1 << 40 }> = "256MiB";
        /// The most of a body that is held back for its members (`json:NAME`), which rules and upstreams look
        /// at. A longer body has no members. It must arrive within `timeouts.header_read`.
        peek_body: Size<1024, { 16 << 20 }> = "64KiB";
    }
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

    /// Returns the files of networks, wherever lists name them.
    pub(in crate::config) fn network_files(&self) -> Vec<At<PathBuf>> {
        let listeners = self.listeners.items().iter().map(|at| &at.value.trusted_proxies);
        let lists = listeners.chain([&self.trusted_proxies]);
        let routes = self.routes.items().iter().flat_map(|at| at.value.1.network_files());
        let shared = self.shared_rules().flat_map(|at| at.value.1.network_files());
        let files = lists.flat_map(files_of).chain(routes).chain(shared);
        files.filter_map(Key::path).collect()
    }

    /// Returns the files that say where clients are.
    pub(in crate::config) fn geo_files(&self) -> Vec<PathBuf> {
        self.geo.value().into_iter().flat_map(GeoSpec::files).map(|at| at.value).collect()
    }

    /// Returns the rules that several routes share, wherever the file has them.
    pub(super) fn shared_rules(&self) -> impl Iterator<Item = &At<Printed<RuleSpec>>> {
        let listeners = self.listeners.items().iter().map(|at| &at.value.flow);
        let upstreams = self.upstreams.items().iter().map(|at| &at.value.flow);
        let lists = [&self.budgets, &self.flow].into_iter().chain(listeners).chain(upstreams);
        lists.flat_map(Key::<List<_>>::items)
    }

    /// Returns the files of authorities of clients' certificates.
    pub(in crate::config) fn client_ca_files(&self) -> Vec<PathBuf> {
        let tls = self.listeners.items().iter().filter_map(|at| at.value.tls.value());
        tls.filter_map(|tls| tls.client_ca.path()).map(|at| at.value).collect()
    }

    /// Returns the files of the admin listener.
    pub(in crate::config) fn admin_files(&self) -> Vec<PathBuf> {
        self.admin.value().into_iter().flat_map(AdminSpec::files).collect()
    }

    /// Returns the file with relative names meant from the folders of the files that they stand in.
    pub(in crate::config) fn resolved(mut self, source: &Source) -> Self {
        let listeners = self.listeners.at.iter_mut().flat_map(|at| &mut at.value.0);
        for tls in listeners.filter_map(|at| at.value.tls.at.as_mut()) {
            tls.value.resolve(source);
        }

        for upstream in self.upstreams.at.iter_mut().flat_map(|at| &mut at.value.0) {
            upstream.value.resolve(source);
        }

        let listeners = self.listeners.at.iter_mut().flat_map(|at| &mut at.value.0);
        let lists = listeners.map(|at| &mut at.value.trusted_proxies);
        for file in lists.chain([&mut self.trusted_proxies]).flat_map(files_of_mut) {
            file.resolve(source);
        }

        for route in self.routes.at.iter_mut().flat_map(|at| &mut at.value.0) {
            route.value.1.resolve_files(source);
        }
        let listeners = self.listeners.at.iter_mut().flat_map(|at| &mut at.value.0);
        let upstreams = self.upstreams.at.iter_mut().flat_map(|at| &mut at.value.0);
        let lists = listeners.map(|at| &mut at.value.flow);
        let lists = lists.chain(upstreams.map(|at| &mut at.value.flow));
        for list in lists.chain([&mut self.budgets, &mut self.flow]) {
            for rule in list.at.iter_mut().flat_map(|at| &mut at.value.0) {
                rule.value.1.resolve_files(source);
            }
        }
        let routes = self.routes.at.iter_mut().flat_map(|at| &mut at.value.0);
        for auth in routes.filter_map(|at| at.value.1.auth.at.as_mut()) {
            auth.value.basic.resolve(source);
            if let Some(jwt) = &mut auth.value.jwt.at {
                jwt.value.jwks.resolve(source);
            }
        }

        if let Some(acme) = &mut self.acme.at {
            acme.value.resolve(source);
        }
        if let Some(geo) = &mut self.geo.at {
            geo.value.resolve(source);
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

    /// Returns the file without what names other files. That routes have `auth`, and that listeners ask
    /// for certificates and the admin listener for a credential, stays known.
    pub(in crate::config) fn without_files(mut self) -> Self {
        for listener in self.listeners.at.iter_mut().flat_map(|at| &mut at.value.0) {
            // A certificate without one of its files stays an error.
            let tls = listener.value.tls.at.as_mut();
            let list = tls.and_then(|tls| tls.value.certificates.at.as_mut());
            let is_whole = list.is_none_or(|list| {
                list.value.0.retain(|certificate| certificate.value.lacks_a_file());
                list.value.0.is_empty()
            });
            let asks = listener.value.asks_for_certificates();
            if is_whole && asks {
                listener.value.tls.at = None;
            } else if is_whole {
                listener.value.tls = Key::default();
            }
        }
        for upstream in self.upstreams.at.iter_mut().flat_map(|at| &mut at.value.0) {
            upstream.value.forget_tls();
        }
        for route in self.routes.at.iter_mut().flat_map(|at| &mut at.value.0) {
            // A service is no file.
            let is_own = |at: &mut At<Box<AuthSpec>>| !at.value.forward.is_written();
            route.value.1.auth.at.take_if(is_own);
        }
        if let Some(store) = &mut self.store.at {
            store.value.ca = Key::default();
        }
        // Logs have what the files said.
        if let Some(geo) = &mut self.geo.at {
            geo.value.forget_missing();
        }
        self.acme = Key::default();
        self.tracing = Key::default();
        if let Some(admin) = &mut self.admin.at {
            admin.value.token_file.at = None;
            admin.value.tls.at = None;
        }
        self
    }
}

//! Upstreams and their servers.

use super::other_words::upstream::{
    HEALTH_MEANT, SERVER_INSTEAD, SERVER_MEANT, STICKY_MEANT, UPSTREAM_INSTEAD, UPSTREAM_MEANT,
    UPSTREAM_TLS_INSTEAD, UPSTREAM_TLS_MEANT,
};
use super::{
    Balance, CertificateFiles, RuleSpec, SendProxyProtocol, UpstreamProtocol,
    keys::keys,
    leaf::{
        Authority, CheckPath, CookieName, FileName, HOUR, Host, Integer, KeyPart, LEAST_HEADER,
        Name, Period, ResolveWord, Size, Statuses, Timeout, Url,
    },
};
use crate::config::{
    decode::{At, Key, List, Printed, Several},
    diagnostics::{Source, SourceSpan},
};
use std::path::PathBuf;

keys! {
    /// A service: one or more servers that give the same answers, over HTTP/1.1 or HTTP/2 with kept
    /// connections.
    #[instead = UPSTREAM_INSTEAD]
    #[meant = UPSTREAM_MEANT]
    struct UpstreamSpec: "an upstream" {
        /// The upstream's name, for `upstream` in routes.
        name: Name;
        /// At least one server.
        #[help = "write `servers: [{ url: http://… }]`"]
        servers: List<ServerSpec>;
        /// How flowgate chooses a server: in turn by weight (`round_robin`), the less busy of two
        /// that are picked by weight (`least_request`), by weighted chance (`random`), or the same
        /// server for the same `hash_key` (`hash`).
        balance: Balance = "round_robin";
        /// With `balance: hash`, the part of a request that selects its server, or several parts.
        hash_key: Several<KeyPart>, else "client_ip";
        /// Keeps each client at one server, by a cookie that flowgate sets.
        #[help = "write `sticky: { cookie: NAME }`"]
        sticky: StickySpec, else "–";
        /// Rules and budgets for the requests to this upstream, whatever their route. A request is
        /// counted once, also if it is sent to several servers.
        flow: List<Printed<RuleSpec>>, else "no rules";
        /// HTTP/1.1 (`h1`), HTTP/2 (`h2`, which gRPC needs), or what each server chooses in the TLS
        /// handshake (`auto`; HTTP/1.1 in cleartext).
        protocol: UpstreamProtocol = "auto";
        /// Begins each connection with a header of the PROXY protocol (`v1` or `v2`), which names the client.
        /// Connections are then HTTP/1.1, and serve the requests of one client connection only.
        send_proxy_protocol: SendProxyProtocol, else "–";
        /// How long a connection may take to open.
        connect_timeout: Timeout = "3s";
        /// How long an idle connection is kept. Set it below the server's own limit, so that the
        /// server never closes first. If a server announces less with `Keep-Alive: timeout=`,
        /// flowgate closes 1s before that.
        idle_timeout: Timeout = "4s";
        /// Idle connections kept for each server by each worker.
        max_idle: Integer<0, 100_000> = 1024;
        /// When flowgate resolves the names of servers again: when their DNS records expire (`ttl`),
        /// or after this time. Each address of a name is a server. With 0, each new connection
        /// resolves the name itself.
        resolve: ResolveWord = "ttl";
        /// Limits of a response's header: 502 beyond them.
        limits: ResponseLimitsSpec = {};
        /// Sends a request to each server from time to time. A server that fails these checks gets
        /// no requests.
        health: HealthSpec, else "–";
        /// Stops sending requests for a while to a server that fails them.
        ejection: EjectionSpec = {};
        /// How long the share of a server that returns after a failure grows from a tenth to the
        /// whole.
        slow_start: Period<0, HOUR> = "10s";
        /// TLS to servers with an `https://` URL.
        tls: UpstreamTlsSpec, else "–";
    }

    /// Sticky sessions: flowgate sets a cookie for the server that a client got. While that server gets
    /// requests, it gets those of the client; `balance` chooses for all others.
    #[meant = STICKY_MEANT]
    struct StickySpec: "sticky sessions" {
        /// The name of the cookie.
        cookie: CookieName;
    }

    /// Health checks: the gateway sends a `GET` to each server, once for all workers. Servers count
    /// as healthy until their checks fail. If no server is healthy, all get requests.
    #[meant = HEALTH_MEANT]
    struct HealthSpec: "the health check of an upstream" {
        /// The path of the check, with a query if necessary.
        path: CheckPath;
        /// The `Host` of the check, for servers that reject other hosts than their own.
        host: Authority, else "the server's address; `localhost` for a socket";
        /// The time from the end of one check to the next. It varies by a tenth.
        interval: Timeout = "5s";
        /// How long a check may take, the connection included.
        timeout: Timeout = "1s";
        /// Passed checks in a row after which a failing server gets requests again.
        healthy_after: Integer<1, 1000> = 2;
        /// Failed checks in a row after which a server gets no requests.
        unhealthy_after: Integer<1, 1000> = 3;
        /// The statuses of a passed check.
        expect: Several<Statuses> = "200-399";
    }

    /// Ejection: flowgate sends no requests for a while to a server if it cannot open a connection.
    /// It does the same if several requests in a row fail: the server closes the connection before
    /// its response's header is complete, sends an invalid header, or none in time. Statuses do not
    /// count, and neither do failures that a client causes. Afterwards one request tries the
    /// server. If no server is left, all get requests.
    struct EjectionSpec: "the ejection of an upstream" {
        /// Failed requests in a row that eject a server.
        failures: Integer<1, 1_000_000> = 5;
        /// Failed requests, in percent, that eject a server: of the requests in 10s, if there are
        /// at least 20.
        failure_percent: Integer<1, 100> = 50;
        /// How long the first ejection lasts. Each further ejection lasts twice as long. After 5m
        /// without an ejection, the next one lasts `period` again.
        period: Timeout = "10s";
        /// The longest ejection.
        longest: Timeout = "5m";
        /// The largest share of the servers that may be ejected at once, in percent, rounded down.
        /// 0 turns ejection off.
        most_percent: Integer<0, 100> = 50;
    }

    /// One address of an upstream.
    #[instead = SERVER_INSTEAD]
    #[meant = SERVER_MEANT]
    struct ServerSpec: "a server" {
        /// `http://HOST:PORT`, `https://HOST:PORT` for TLS, or `unix:/PATH` for a socket. See
        /// `resolve` for names.
        url: Url;
        /// The server's share of the requests, relative to the others.
        weight: Integer<1, 1000> = 1;
        /// It gets requests only while none of the other servers can.
        backup: bool = false;
    }

    /// Sizes and counts. Responses beyond them become 502.
    struct ResponseLimitsSpec: "the limits of an upstream" {
        /// The whole header of a response. At least 8KiB.
        header_bytes: Size<LEAST_HEADER, { 1 << 20 }> = "64KiB";
        /// How many header fields. More than 100 cost each response some memory and time.
        headers: Integer<1, 10_000> = 100;
    }

    /// How flowgate verifies servers with `https://`, and which certificate it shows them. The
    /// files are PEM. flowgate watches them; connections that open after a change use the new
    /// files.
    #[instead = UPSTREAM_TLS_INSTEAD]
    #[meant = UPSTREAM_TLS_MEANT]
    struct UpstreamTlsSpec: "the TLS of an upstream" {
        /// Trusted certificates: authorities, or the servers' own certificates. Without it,
        /// flowgate trusts the system's authorities.
        ca: FileName, else "–";
        /// The certificate for servers that ask for one, followed by its intermediates.
        cert: FileName, else "–";
        /// Its private key.
        key: FileName, else "–";
        /// The name that flowgate sends to the servers (SNI), and that their certificates must
        /// have. Without it, the host of the URL.
        server_name: Host, else "–";
        /// Accepts every certificate, whatever its name and validity. For tests only.
        insecure: bool = false;
        /// Takes a response without a length for whole also if its server ends the connection
        /// without the `close_notify` of TLS. Others that can end connections can then cut such
        /// responses short unseen.
        without_close_notify: bool = false;
    }
}

/// What the file says of the TLS to an upstream.
#[derive(Debug, Default)]
pub(in crate::config) struct TlsOptions {
    pub ca: Option<At<PathBuf>>,
    pub identity: Option<CertificateFiles>,
    pub server_name: Option<At<String>>,
    pub is_insecure: bool,
    /// Whether a response may end with a connection that ends without notice.
    pub may_end_unnoticed: bool,
}

impl UpstreamSpec {
    /// Has relative names of files meant from the folder of the file that they stand in.
    pub(super) fn resolve(&mut self, source: &Source) {
        if let Some(tls) = &mut self.tls.at {
            tls.value.resolve(source);
        }
    }

    /// Leaves out what it says of TLS.
    pub(super) fn forget_tls(&mut self) {
        self.tls = Key::default();
        let servers = self.servers.at.iter_mut().flat_map(|at| &mut at.value.0);
        for url in servers.filter_map(|at| at.value.url.at.as_mut()) {
            url.value.0.is_tls = false;
        }
    }
}

impl UpstreamTlsSpec {
    /// Returns the options that could be read.
    pub(in crate::config) fn options(&self) -> TlsOptions {
        let pair = self.cert.path().zip(self.key.path());
        TlsOptions {
            ca: self.ca.path(),
            identity: pair.map(|(cert, key)| CertificateFiles { cert, key }),
            server_name: self.server_name.as_ref().map(|at| at.as_ref().map(|name| name.0.clone())),
            is_insecure: self.insecure.is_true(),
            may_end_unnoticed: self.without_close_notify.is_true(),
        }
    }

    /// Returns where one of `cert` and `key` stands that lacks the other, with both names.
    pub(in crate::config) fn lone_file(&self) -> Option<(SourceSpan, &'static str, &'static str)> {
        match (self.cert.span, self.key.span) {
            (Some(span), None) => Some((span, "cert", "key")),
            (None, Some(span)) => Some((span, "key", "cert")),
            (None, None) | (Some(_), Some(_)) => None,
        }
    }

    /// Has relative names of files meant from the folder of the file that they stand in.
    pub(super) fn resolve(&mut self, source: &Source) {
        for file in [&mut self.ca, &mut self.cert, &mut self.key] {
            file.resolve(source);
        }
    }

    /// Returns the files that it names.
    pub(super) fn files(&self) -> impl Iterator<Item = PathBuf> {
        [&self.ca, &self.cert, &self.key].into_iter().filter_map(|file| Some(file.path()?.value))
    }
}

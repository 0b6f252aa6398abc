//! Upstreams and their servers.

use super::{
    Balance, CertificateFiles, UpstreamProtocol,
    keys::keys,
    leaf::{
        CheckPath, FileName, HOUR, Host, Integer, KeyPart, LEAST_HEADER, Name, Period, Size,
        Statuses, Timeout, Url,
    },
};
use crate::config::{
    decode::{At, Key, List, Several},
    diagnostics::{Place, Source},
};
use std::path::PathBuf;

keys! {
    /// A service: one or more servers that answer alike, over HTTP/1.1 or HTTP/2 with kept
    /// connections.
    #[cfg_attr(test, schemars(extend("x-instead" = [["url", "write `servers: [{ url: http://10.0.1.5:8000 }]`"]])))]
    struct UpstreamSpec: "an upstream" {
        /// What routes call it.
        name: Name;
        /// At least one server.
        servers: List<ServerSpec>;
        /// In turn by weight, the less busy of two picked by weight, by weighted chance, or the same
        /// server for the same `hash_key`.
        balance: Balance = "round_robin";
        /// With `balance: hash`, the part of a request that decides about its server, or several.
        hash_key: Several<KeyPart>, else "client_ip";
        /// HTTP/1.1 (`h1`), HTTP/2 (`h2`, which gRPC needs), or what each server chooses in the TLS
        /// handshake (`auto`; HTTP/1.1 in cleartext).
        protocol: UpstreamProtocol = "auto";
        /// How long a connection may take to open.
        connect_timeout: Timeout = "3s";
        /// How long an idle connection is kept. Set it below the server's own limit, so that the
        /// server never closes first; a server that announces less by `Keep-Alive: timeout=` is
        /// given up 1s before that.
        idle_timeout: Timeout = "4s";
        /// Idle connections kept for each server by each worker.
        max_idle: Integer<0, 100_000> = 256;
        /// How often the names of servers are resolved; each address of a name is a server. 0 has each
        /// connection resolve its name itself.
        resolve: Period<0, { 24 * HOUR }> = "30s";
        /// What the header of an answer may be: 502 beyond it.
        limits: ResponseLimitsSpec = {};
        /// Asks each server for a path from time to time. One that fails gets no requests.
        health: HealthSpec, else "–";
        /// When a server that fails requests gets none for a while.
        ejection: EjectionSpec = {};
        /// How long a server's share of the requests grows, from a tenth, once it is asked again
        /// after a failure.
        slow_start: Period<0, HOUR> = "10s";
        /// TLS to the servers whose URL begins with `https://`.
        tls: UpstreamTlsSpec, else "–";
    }

    /// Health checks: the gateway asks each server, once for all workers, with `GET`. Servers count
    /// as healthy until their checks say otherwise. When none is left, all are asked.
    struct HealthSpec: "the health check of an upstream" {
        /// What is asked for: a path, and a query if need be.
        path: CheckPath;
        /// From the end of one check to the next, a tenth more or less.
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

    /// Ejection: a server to which no connection can be opened gets no requests for a while, and so
    /// does one that fails several: that closes the connection before its answer is whole, gives no
    /// valid one, or none in time. Its answers do not count, whatever their status, nor what a client
    /// causes. Afterwards one request tries it. When no server is left, all are asked.
    struct EjectionSpec: "the ejection of an upstream" {
        /// Failed requests in a row that eject a server.
        failures: Integer<1, 1_000_000> = 5;
        /// Failed requests, in percent, that eject a server: of those in 10s, if they are 20 or more.
        failure_percent: Integer<1, 100> = 50;
        /// How long the first ejection lasts. Each further one lasts twice as long; a server without
        /// one for 5m begins with the first again.
        period: Timeout = "10s";
        /// The longest ejection.
        longest: Timeout = "5m";
        /// The largest part of the servers that may be ejected at once, in percent, rounded down. 0
        /// turns ejection off.
        most_percent: Integer<0, 100> = 50;
    }

    /// One address of an upstream.
    #[cfg_attr(test, schemars(extend("x-meant" = [["address", "url"], ["host", "url"]])))]
    struct ServerSpec: "a server" {
        /// `http://HOST:PORT`, `https://HOST:PORT` for TLS, or `unix:/PATH` for a socket. See
        /// `resolve` for names.
        url: Url;
        /// Its share beside the others.
        weight: Integer<1, 1000> = 1;
    }

    /// Sizes and counts beyond which an upstream's answer is not taken.
    struct ResponseLimitsSpec: "the limits of an upstream" {
        /// The whole header of an answer. At least 8KiB.
        header_bytes: Size<LEAST_HEADER, { 1 << 20 }> = "64KiB";
        /// How many header fields. More than 100 cost each answer some memory and time.
        headers: Integer<1, 10_000> = 100;
    }

    /// How servers with `https://` are verified, and what flowgate shows them of itself. The files
    /// are PEM; they are watched and reloaded like this file, for connections that open from then
    /// on.
    struct UpstreamTlsSpec: "the TLS of an upstream" {
        /// Whose certificates are trusted: authorities, or the servers' own certificates. Without it
        /// those that the system trusts.
        ca: FileName, else "–";
        /// The certificate for servers that ask for one, followed by its intermediates.
        cert: FileName, else "–";
        /// Its private key.
        key: FileName, else "–";
        /// The name that is sent to the servers (SNI) and that their certificates must have. Without
        /// it the host of the URL.
        server_name: Host, else "–";
        /// Trusts every certificate, whatever its name and time. For tests only.
        insecure: bool = false;
    }
}

/// What the file says of the TLS to an upstream.
#[derive(Debug, Default)]
pub(in crate::config) struct TlsOptions {
    pub ca: Option<At<PathBuf>>,
    pub identity: Option<CertificateFiles>,
    pub server_name: Option<At<String>>,
    pub is_insecure: bool,
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
        }
    }

    /// Returns where one of `cert` and `key` stands that lacks the other, with both names.
    pub(in crate::config) fn lone_file(&self) -> Option<(Place, &'static str, &'static str)> {
        match (self.cert.place, self.key.place) {
            (Some(place), None) => Some((place, "cert", "key")),
            (None, Some(place)) => Some((place, "key", "cert")),
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

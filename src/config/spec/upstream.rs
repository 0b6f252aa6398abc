//! Upstreams and their servers.

use super::{
    Balance,
    keys::keys,
    leaf::{CheckPath, HOUR, Integer, LEAST_HEADER, Name, Period, Size, Statuses, Timeout, Url},
};
use crate::config::decode::{List, Several};

keys! {
    /// A service: one or more servers that answer alike, over HTTP/1.1 with kept connections.
    struct UpstreamSpec: "an upstream" {
        /// What routes call it.
        name: Name;
        /// At least one server.
        servers: List<ServerSpec>;
        /// In turn by weight, the less busy of two picked by weight, or by weighted chance.
        balance: Balance = "round_robin";
        /// How long a connection may take to open.
        connect_timeout: Timeout = "3s";
        /// How long an idle connection is kept. Set it below the server's own limit, so that the
        /// server never closes first; a server that announces less by `Keep-Alive: timeout=` is
        /// given up 1s before that.
        idle_timeout: Timeout = "4s";
        /// Idle connections kept for each server by each worker.
        max_idle: Integer<0, 100_000> = 256;
        /// What the header of an answer may be: 502 beyond it.
        limits: ResponseLimitsSpec = {};
        /// Asks each server for a path from time to time. One that fails gets no requests.
        health: HealthSpec, else "–";
        /// When a server that fails requests gets none for a while.
        ejection: EjectionSpec = {};
        /// How long a server's share of the requests grows, from a tenth, once it is asked again
        /// after a failure.
        slow_start: Period<0, HOUR> = "10s";
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
    struct ServerSpec: "a server" {
        /// `http://HOST:PORT`; a name is resolved when a connection opens.
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
}

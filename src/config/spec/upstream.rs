//! Upstreams and their servers.

use super::{
    Balance,
    keys::keys,
    leaf::{Integer, LEAST_HEADER, Name, Size, Timeout, Url},
};
use crate::config::decode::List;

keys! {
    /// A service: one or more servers that answer alike, over HTTP/1.1 with kept connections.
    #[schemars(extend("x-later" = ["health"]))]
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

//! Upstreams and their servers.

use super::{
    Balance,
    leaf::{Integer, LEAST_HEADER, Name, Size, Timeout, Url},
};
use crate::config::decode::{Key, List};
use schemars::JsonSchema;
use serde::Deserialize;

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

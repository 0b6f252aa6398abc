//! The store that gateways share.

use super::leaf::{
    FileName, HOUR, Integer, MILLI, Password, Period, Prefix, Primary, SECOND, StoreUrl, Timeout,
    User,
};
use crate::config::decode::{Key, Several};
use schemars::JsonSchema;
use serde::Deserialize;

/// A Redis 5 or later, or a Valkey, that all gateways reach: one server, the primary that sentinels
/// know, or a Redis Cluster. `docs/cluster.md` tells what it decides, and what holds while it
/// fails.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "the store")]
pub(in crate::config) struct StoreSpec {
    /// `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`, or `rediss://…` for TLS; several for
    /// sentinels or the nodes of a cluster.
    pub redis: Key<Several<StoreUrl>>,
    /// The name of a primary: then `redis` names sentinels. User and password in the URL are the
    /// primary's.
    #[serde(default)]
    pub sentinel: Key<Primary>,
    /// The user by which sentinels are asked, if it is not their default one.
    #[serde(default)]
    pub sentinel_user: Key<User>,
    /// The password that sentinels ask for, if they do.
    #[serde(default)]
    pub sentinel_password: Key<Password>,
    /// Whether `redis` names nodes of a Redis Cluster.
    #[serde(default)]
    #[schemars(extend("default" = false))]
    pub cluster: Key<bool>,
    /// Whose certificates are trusted, PEM, read again for each connection; without it those that
    /// the system trusts.
    #[serde(default)]
    pub ca: Key<FileName>,
    /// What every key begins with; without braces.
    #[serde(default)]
    #[schemars(extend("default" = "flowgate:"))]
    pub prefix: Key<Prefix>,
    /// How long a connection may take to open.
    #[serde(default)]
    #[schemars(extend("default" = "1s"))]
    pub connect_timeout: Key<Timeout>,
    /// How long an answer may take: the most that a request waits for the store.
    #[serde(default)]
    #[schemars(extend("default" = "20ms"))]
    pub timeout: Key<Period<MILLI, { 10 * SECOND }>>,
    /// How long what is in flight stays counted when its gateway is gone, and how long that gateway
    /// counts as one.
    #[serde(default)]
    #[schemars(extend("default" = "10s"))]
    pub lease: Key<Period<SECOND, HOUR>>,
    /// The fewest gateways among which limits are divided while the store fails; as long as it
    /// answers, it counts them.
    #[serde(default)]
    #[schemars(extend("default" = 1))]
    pub gateways: Key<Integer<1, 10_000>>,
}

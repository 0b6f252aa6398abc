//! The store that gateways share.

use super::{
    keys::keys,
    leaf::{
        FileName, HOUR, Integer, MILLI, Password, Period, Prefix, Primary, SECOND, StoreUrl,
        Timeout, User,
    },
};
use crate::config::decode::Several;

keys! {
    /// A Redis (5 or later) or Valkey that all gateways reach: one server, the primary that
    /// sentinels name, or a Redis Cluster. `docs/cluster.md` describes what it decides, and what
    /// happens while it fails.
    #[instead = &[["password", "write it in `redis`, as in `redis: redis://:PASSWORD@HOST`"]]]
    #[meant = &[["url", "redis"], ["address", "redis"], ["valkey", "redis"]]]
    struct StoreSpec: "the store" {
        /// `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`, or `rediss://…` for TLS. Several for
        /// sentinels or the nodes of a cluster.
        redis: Several<StoreUrl>;
        /// The name of a primary. `redis` then names sentinels. User and password in the URL are
        /// for the primary.
        sentinel: Primary, else "–";
        /// The user for the sentinels, if it is not their default user.
        sentinel_user: User, else "–";
        /// The password for the sentinels, if they need one.
        sentinel_password: Password, else "–";
        /// Whether `redis` names nodes of a Redis Cluster.
        cluster: bool = false;
        /// Trusted certificates, as PEM. flowgate reads the file for each connection. Without it,
        /// flowgate trusts the system's authorities.
        ca: FileName, else "–";
        /// The prefix of every key in the store, without braces.
        prefix: Prefix = "flowgate:";
        /// How long a connection may take to open.
        connect_timeout: Timeout = "1s";
        /// How long a reply may take. A request waits at most this long for the store.
        timeout: Period<MILLI, { 10 * SECOND }> = "20ms";
        /// How long the requests in flight of a killed gateway still count, and how long it still
        /// counts as a gateway.
        lease: Period<SECOND, HOUR> = "10s";
        /// While the store fails, limits are divided by at least this number of gateways. Otherwise
        /// the store counts the gateways.
        gateways: Integer<1, 10_000> = 1;
    }
}

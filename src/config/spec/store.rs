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
    /// A Redis 5 or later, or a Valkey, that all gateways reach: one server, the primary that
    /// sentinels know, or a Redis Cluster. `docs/cluster.md` says what it decides, and what holds
    /// while it fails.
    struct StoreSpec: "the store" {
        /// `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`, or `rediss://…` for TLS; several for
        /// sentinels or the nodes of a cluster.
        redis: Several<StoreUrl>;
        /// The name of a primary: then `redis` names sentinels. User and password in the URL are
        /// the primary's.
        sentinel: Primary, else "–";
        /// The user by which sentinels are asked, if it is not their default one.
        sentinel_user: User, else "–";
        /// The password that sentinels ask for, if they do.
        sentinel_password: Password, else "–";
        /// Whether `redis` names nodes of a Redis Cluster.
        cluster: bool = false;
        /// Whose certificates are trusted, PEM, read again for each connection; without it those
        /// that the system trusts.
        ca: FileName, else "–";
        /// What every key begins with; without braces.
        prefix: Prefix = "flowgate:";
        /// How long a connection may take to open.
        connect_timeout: Timeout = "1s";
        /// How long an answer may take: the most that a request waits for the store.
        timeout: Period<MILLI, { 10 * SECOND }> = "20ms";
        /// How long what is in flight stays counted when its gateway is gone, and how long that
        /// gateway counts as one.
        lease: Period<SECOND, HOUR> = "10s";
        /// The fewest gateways among which limits are divided while the store fails; as long as it
        /// answers, it counts them.
        gateways: Integer<1, 10_000> = 1;
    }
}

//! The store that gateways share.

use super::{TIMEOUT, integer, key};
use crate::config::vocabulary::{
    Default::{Absent, Required, Value},
    Kind, Section,
};
use std::time::Duration;

/// The store.
pub(in crate::config) static STORE: Section = Section {
    title: "the store",
    doc: "A Redis 5 or later, or a Valkey, that all gateways reach: one server, the primary that sentinels know, or a Redis Cluster. `docs/cluster.md` tells what it decides, and what holds while it fails.",
    keys: &[
        key(
            "redis",
            Kind::Several(&Kind::RedisUrl),
            Required,
            "`redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`, or `rediss://…` for TLS; several for sentinels or the nodes of a cluster.",
        ),
        key(
            "sentinel",
            Kind::Text,
            Absent,
            "The name of a primary: then `redis` names sentinels. User and password in the URL are the primary's.",
        ),
        key(
            "sentinel_user",
            Kind::Text,
            Absent,
            "The user by which sentinels are asked, if it is not their default one.",
        ),
        key(
            "sentinel_password",
            Kind::Text,
            Absent,
            "The password that sentinels ask for, if they do.",
        ),
        key(
            "cluster",
            Kind::Flag,
            Value("false"),
            "Whether `redis` names nodes of a Redis Cluster.",
        ),
        key(
            "ca",
            Kind::File,
            Absent,
            "Whose certificates are trusted, PEM, read again for each connection; without it those that the system trusts.",
        ),
        key(
            "prefix",
            Kind::Text,
            Value("flowgate:"),
            "What every key begins with; without braces.",
        ),
        key("connect_timeout", TIMEOUT, Value("1s"), "How long a connection may take to open."),
        key(
            "timeout",
            Kind::Duration { min: Duration::from_millis(1), max: Duration::from_secs(10) },
            Value("20ms"),
            "How long an answer may take: the most that a request waits for the store.",
        ),
        key(
            "lease",
            Kind::Duration { min: Duration::from_secs(1), max: Duration::from_hours(1) },
            Value("10s"),
            "How long what is in flight stays counted when its gateway is gone, and how long that gateway counts as one.",
        ),
        key(
            "gateways",
            integer(1, 10_000),
            Value("1"),
            "The fewest gateways among which limits are divided while the store fails; as long as it answers, it counts them.",
        ),
    ],
};

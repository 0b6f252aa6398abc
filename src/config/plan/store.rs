//! The store that gateways share, as the file names it.

use crate::{
    config::spec::Secret,
    flow::{self, Stored},
};
use std::{path::PathBuf, time::Duration};

/// Where the store is, and how it is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    /// Hosts and ports: of the store, of its nodes, or of the sentinels; at least one.
    pub nodes: Vec<(String, u16)>,
    /// Its kind.
    pub kind: StoreKind,
    /// True if connections are TLS.
    pub is_tls: bool,
    /// Whose certificates are trusted, PEM; `None`: those that the system trusts.
    pub ca: Option<PathBuf>,
    /// The user of the store; `None` is the default one.
    pub user: Option<String>,
    /// `None`: none is asked for.
    pub password: Option<Secret>,
    /// The number of the database.
    pub database: i64,
    /// The prefix of every key.
    pub prefix: String,
    /// The longest time that a connection may take to open.
    pub connect_timeout: Duration,
    /// The longest time that an answer may take.
    pub timeout: Duration,
    /// The time that a request in flight stays counted there when its gateway is gone.
    pub lease: Duration,
    /// The fewest gateways among which limits are divided while it fails.
    pub gateways: u32,
}

/// The kind of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// One server.
    Single,
    /// A primary that sentinels know.
    Sentinel {
        /// Its name.
        primary: String,
        /// The user of the sentinels; `None` is the default one.
        user: Option<String>,
        /// `None`: they ask for none.
        password: Option<Secret>,
    },
    /// A Redis Cluster.
    Cluster,
}

/// Returns the name of a rule's states in the store, within its route: another one for states that
/// mean something else. Synced states lag behind, so that they must not be those by which the store
/// decides.
pub(in crate::config) fn name_in_store(
    rule: &flow::Rule,
    stored: &Stored,
    is_synced: bool,
) -> String {
    let suffix = if is_synced { ":exchanged" } else { "" };
    let mut name = format!("{}:{}{suffix}", rule.name, stored.shape());
    if let Some(keyed) = &rule.keyed {
        name.push(':');
        name += &keyed.by;
    }
    name
}

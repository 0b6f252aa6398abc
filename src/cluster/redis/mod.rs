//! Connections to a store of any kind: one server, one behind sentinels, or a Redis Cluster.

mod caller;
pub(super) mod connect;
pub(super) mod connection_task;
pub(super) mod nodes;
pub(super) mod outages;
mod probe;
pub(super) mod search;
pub(super) mod sentinels;
pub(super) mod servers;
pub(super) mod slots;
pub(super) mod store_connection;

//! Connections to a store of any kind: one server, one behind sentinels, or a Redis Cluster.
//!
//! The rest of the cluster asks a [`StoreConnection`], which knows the servers behind it. A
//! worker's connection task ([`run`]) makes it, and makes another when it fails.

mod connect;
mod connection_task;
mod nodes;
mod search;
mod sentinels;
mod servers;
mod slots;
mod store_connection;

pub use store_connection::StoreConnection;

pub(super) use connect::query_all;
pub(super) use connection_task::run;
pub(super) use store_connection::ClientState;

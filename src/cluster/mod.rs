//! One limit across many gateways: rules whose states a Redis or Valkey store keeps.
//!
//! A request's rules that gateways share are decided by one script in the store, which charges all
//! of them or none (`decide/decide.lua`). Its arithmetic is whole numbers, so that it decides as
//! [`flow`](crate::flow) does, one by one; why and until when is worked out from the state that it
//! tells, by the same formulas ([`Stored`](crate::flow::Stored)).
//!
//! Each worker has a [`Client`], which gives a request a [`StoreConnection`] to ask by, or none
//! while the store fails: nobody waits for a connection, nor longer for an answer than the limit of
//! a call. All of them share a [`Store`], which counts, and says in the log when that changes.

mod client;
mod decide;
mod error;
mod gateways;
mod health;
mod hello;
mod in_time;
mod leases;
mod limits;
mod recorded;
mod redis;
mod script;
mod store;
mod sync;

pub use client::Client;
pub use decide::{
    call::{Ask, Lease, Verdicts},
    in_flight::DecisionPermit,
    request::Decided,
};
pub use error::StoreError;
pub use leases::held::Held;
pub use recorded::Recorded;
pub use redis::store_connection::StoreConnection;
pub use store::{ROUND_TRIP_BOUNDS, Reading, Store};
pub use sync::{
    call::{MOST_STATES, Page, Push, line, most_deltas},
    task::SyncTask,
};

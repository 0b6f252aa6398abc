//! One limit across many gateways: rules whose states a Redis or Valkey store keeps.
//!
//! One script in the store decides about all shared rules of a request, and charges all of them or
//! none (`decide/decide.lua`). It uses whole numbers, so that it decides exactly as
//! [`flow`](crate::flow) does. The gateway derives the reason and the wait from the state in the
//! answer, by the same formulas ([`Stored`](crate::flow::Stored)).
//!
//! Costs that are known only after the response are settled by a later call (`settle`).
//!
//! Each worker has a [`StoreClient`], which gives a request a [`StoreConnection`], or none while
//! the store fails: no request waits for a connection, nor for an answer longer than the limit of a
//! call. All workers share a [`Store`], which counts and logs.

mod change;
mod client;
mod decide;
mod error;
mod gateways;
mod health;
mod lease_task;
mod leases;
mod recorded_calls;
mod redis;
mod request;
mod scripts;
mod settle;
mod settle_task;
mod store;
mod sync;

pub use change::{SharedState, StateChange, SyncTerms};
pub use client::StoreClient;
pub use decide::{
    call::{Ask, Lease, Verdicts},
    in_flight::DecisionPermit,
};
pub use error::StoreError;
pub use leases::Held;
pub use recorded_calls::RecordedCalls;
pub use redis::StoreConnection;
pub use request::Decided;
pub use settle::call::{Numbered, ReservedAsk, Settlement, StoreReserve};
pub use store::{ROUND_TRIP_BOUNDS, Store, StoreFailure, StoreReading};
pub use sync::{
    call::{MOST_STATES, Push, SyncReply, line, most_deltas},
    task::SyncTask,
};

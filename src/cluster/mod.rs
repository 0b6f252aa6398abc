//! One limit across many gateways: rules whose states a Redis or Valkey store keeps.
//!
//! A request's rules that gateways share are decided by one script in the store, which charges
//! all of them or none (`decide.lua`). Its arithmetic is whole numbers, so that it decides as
//! [`flow`](crate::flow) does, one by one; why and until when is worked out from the state that
//! it tells, by the same formulas ([`Stored`](crate::flow::Stored)).
//!
//! Each worker has a [`Client`], which gives a request a [`Link`] to ask by, or none while the
//! store fails: nobody waits for a connection, nor longer for an answer than the limit of a call.
//! All of them share a [`Store`], which counts, and says in the log when that changes.

mod attend;
mod call;
mod check;
mod client;
mod dial;
mod error;
mod exchange;
mod gateways;
mod greeting;
mod health;
mod keeper;
mod leases;
mod nodes;
mod offset;
mod outages;
mod periodic;
mod pushing;
mod recorded;
mod rejections;
mod script;
mod search;
mod sentinels;
mod slots;
mod store;
mod telling;

pub use call::{Ask, Lease, Verdicts};
pub use client::{Client, Decided, Link};
pub use error::StoreError;
pub use exchange::{MOST_STATES, Page, Push, line, most_deltas};
pub use leases::Held;
pub use periodic::Periodic;
pub use recorded::Recorded;
pub use store::{ROUND_TRIP_BOUNDS, Reading, Store};

//! Sockets that clients connect to.

mod accept;
pub(crate) mod begin;
mod bind;

pub(crate) use accept::accept;
pub use bind::{Bound, ListenerConfig, bind};

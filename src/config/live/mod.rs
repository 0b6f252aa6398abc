//! The configuration in force: watching the file, and putting another one in its place.
//!
//! **Rules are swapped, state stays.** A snapshot is immutable. What has state outlives it: a gate
//! and a meter belong to a route's name, what is in flight and a meter to a server's address, whose
//! turn it is to an upstream's name.

mod builder;
mod current;
mod cut;
mod local_share;
mod members;
mod summary;
pub mod watch;

pub use current::{Live, Retired};
pub use local_share::LocalShare;
pub use summary::Summary;

//! The configuration in force: watching the file, and putting another one in its place.

mod builder;
mod current;
mod cut;
mod members;
mod summary;
pub mod watch;

pub use current::{Live, LocalShare, Retired};
pub use summary::Summary;

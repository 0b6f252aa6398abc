//! The configuration in force: watching the file, and putting another one in its place.

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

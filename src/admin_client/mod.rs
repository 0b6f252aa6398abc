//! The client of the admin listener, for every command that asks a running gateway.
//!
//! A command has [`AdminOptions`] among its options, makes an [`AdminClient`] of them, and asks
//! within [`run`]. Every wait has an end, and every answer a greatest size.

mod client;
mod endpoint;
mod error;
mod events;
mod search;

pub use client::AdminClient;
pub use endpoint::AdminEndpoint;
pub use error::ClientError;
pub use events::{Pieces, ServerSentEvent, ServerSentEvents};
pub use search::AdminOptions;

use std::io;

/// Runs a command's work on this thread.
///
/// # Errors
/// That of the work, or of a system that has no room for a runtime.
pub fn run<T, E: From<io::Error>>(work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

//! Why the gateway could not start, and errors in one line.

use crate::config::Diagnostics;
use std::io;

/// Why the gateway could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration has errors.
    #[error("{0}")]
    Config(Diagnostics),
    /// A listener or the access log cannot be opened; where the file has it.
    #[error("{0}")]
    Open(Diagnostics),
    /// The operating system refused something else.
    #[error("cannot {what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// Returns what turns an error of the operating system into a [`StartError`].
pub(super) fn cannot(what: &'static str) -> impl FnOnce(io::Error) -> StartError {
    move |source| StartError::System { what, source }
}

/// An error and what caused it, in one line.
pub(super) fn chain(error: &dyn core::error::Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        line += ": ";
        line += &cause.to_string();
        source = cause.source();
    }
    line
}

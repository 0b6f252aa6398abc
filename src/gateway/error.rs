//! Errors of the start.

use super::upgrade::TakeoverError;
use crate::config::Diagnostics;
use std::io;

/// Why the gateway could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration has errors.
    #[error("{0}")]
    Config(Diagnostics),
    /// A listener or the access log cannot be opened; with its position in the file.
    #[error("{0}")]
    Open(Diagnostics),
    /// The process that started this one cannot be taken over.
    #[error("cannot take over")]
    Upgrade(#[source] Box<dyn core::error::Error + Send + Sync>),
    /// A call to the operating system failed.
    #[error("cannot {what}")]
    System {
        /// The call, as in `open a file`.
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
}

impl StartError {
    /// Returns the cause in one line.
    pub(super) fn summary(&self) -> String {
        match self {
            Self::Config(problems) | Self::Open(problems) => problems.summary(),
            Self::System { .. } | Self::Upgrade(_) => chain(self),
        }
    }
}

impl From<TakeoverError> for StartError {
    fn from(error: TakeoverError) -> Self {
        Self::Upgrade(Box::new(error))
    }
}

/// Returns a conversion from [`io::Error`] to [`StartError`].
pub(super) fn cannot(what: &'static str) -> impl FnOnce(io::Error) -> StartError {
    move |source| StartError::System { what, source }
}

/// Returns an error and its causes in one line.
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

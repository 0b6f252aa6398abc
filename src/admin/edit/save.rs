//! What the control thread is asked to do: to replace the file.

use crate::config::Diagnostics;
use tokio::sync::oneshot;

/// A new text for the file in force.
#[derive(Debug)]
pub struct Save {
    /// The new text.
    pub text: Vec<u8>,
    /// What [`config::content_hash`](crate::config::content_hash) says of the file that was edited.
    pub of: u64,
    /// For what that did, in words.
    pub reply: oneshot::Sender<Result<String, SaveError>>,
}

/// Why the file was not replaced. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The new text has errors.
    #[error("{0}")]
    Invalid(Diagnostics),
    /// The file is another than the one that was edited.
    #[error("the file has changed since it was loaded: load it again")]
    Changed,
    /// It is not the time for it.
    #[error("{0}")]
    Conflict(&'static str),
    /// The file cannot be written, or a listener not opened.
    #[error("{0}")]
    Failed(String),
}

//! The commands of the admin listener's clients to the control thread.

use core::time::Duration;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

/// A request to the control thread.
#[derive(Debug)]
pub enum Command {
    /// Begin a preview, in place of the one before.
    Begin {
        /// The new file.
        text: Vec<u8>,
        /// The longest time that it goes on.
        most: Option<Duration>,
        /// True if the reply is only what it would take.
        is_check: bool,
        /// For what it takes.
        reply: oneshot::Sender<Result<Cost, CommandError>>,
    },
    /// End the preview, if there is one.
    Stop {
        /// Receives the end of that.
        reply: oneshot::Sender<()>,
    },
    /// Put the new file of the preview in force.
    Apply {
        /// For what that did, in words.
        reply: oneshot::Sender<Result<String, CommandError>>,
    },
}

/// The resources that a preview takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// The hash of the new file.
    pub config_hash: String,
    /// True if it is the file in force.
    pub is_in_force: bool,
    /// The most memory that its rules take, in bytes, beside those in force.
    pub memory_bytes: u64,
    /// The warnings and notes about the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warnings: Option<String>,
}

/// Why a command was not carried out. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The new file has errors.
    #[error("{0}")]
    Invalid(String),
    /// It is not the time for it.
    #[error("{0}")]
    Conflict(String),
    /// The file in force cannot be replaced, or a listener not opened.
    #[error("{0}")]
    Failed(String),
}

//! Why `flowgate top` ended.

use crate::admin_client::ClientError;
use std::io;

/// Why the command ended without success.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    /// The gateway does not answer, or says why not.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The terminal cannot be used.
    #[error("cannot use the terminal")]
    Io(#[from] io::Error),
}

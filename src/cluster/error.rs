//! What can go wrong between a gateway and the store.

use redis::{ErrorKind, RedisError};

/// Why the store has not decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It has failed before, and has not been reached again since.
    #[error("the store is down")]
    Down,
    /// It took too long. Whether it has charged the request is not known.
    #[error("the store took too long")]
    Timeout,
    /// There is no connection, or it broke.
    #[error("no connection to the store")]
    Connection,
    /// Wrong password, or a user who may not.
    #[error("the store does not let us in")]
    Denied,
    /// A replica, as after a failover.
    #[error("the store takes no writes")]
    ReadOnly,
    /// It has no memory left.
    #[error("the store is out of memory")]
    Memory,
    /// It answers with another error.
    #[error("the store answers with an error")]
    Other,
    /// Its answer is none to what was asked.
    #[error("the store's answer makes no sense")]
    Nonsense,
}

impl StoreError {
    /// All that are counted: every one but [`Self::Down`], which stands for one counted before.
    pub const COUNTED: [Self; 7] = [
        Self::Timeout,
        Self::Connection,
        Self::Denied,
        Self::ReadOnly,
        Self::Memory,
        Self::Other,
        Self::Nonsense,
    ];

    /// Returns the word for it in metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Timeout => "timeout",
            Self::Connection => "connection",
            Self::Denied => "denied",
            Self::ReadOnly => "read_only",
            Self::Memory => "memory",
            Self::Other => "other",
            Self::Nonsense => "nonsense",
        }
    }
}

impl From<&RedisError> for StoreError {
    fn from(error: &RedisError) -> Self {
        // A script's own error has the code of what it called in its text.
        let says = |code: &str| {
            let text = error.detail().unwrap_or_default();
            error.code() == Some(code) || text.contains(&format!("{code} "))
        };
        let is_denied = error.kind() == ErrorKind::AuthenticationFailed
            || ["NOPERM", "NOAUTH", "WRONGPASS"].into_iter().any(says);
        if is_denied {
            Self::Denied
        } else if says("READONLY") {
            Self::ReadOnly
        } else if says("OOM") {
            Self::Memory
        } else if error.is_timeout() {
            Self::Timeout
        } else if error.is_io_error() || error.is_unrecoverable_error() {
            Self::Connection
        } else {
            Self::Other
        }
    }
}

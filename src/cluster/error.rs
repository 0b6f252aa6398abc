//! The failures of calls to the store.

use crate::clock::Elapsed;
use redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind};

/// The codes of a store that rejects writes.
const NO_WRITES: [&str; 5] = ["READONLY", "LOADING", "MASTERDOWN", "NOREPLICAS", "MISCONF"];

/// The text of `CLUSTERDOWN` when a node serves no slot. The code alone may concern one slot.
const CLUSTER_DOWN: &str = "The cluster is down";

/// Why the store has not decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It failed before, and has not been reached since.
    #[error("the store is down")]
    Down,
    /// It took too long. Whether it has charged the request is not known.
    #[error("the store did not reply in time")]
    Timeout,
    /// There is no connection, or it broke.
    #[error("no connection to the store")]
    Connection,
    /// A wrong password, or a user without the right.
    #[error("the store rejected the login or a command")]
    Denied,
    /// A replica, a primary with too few replicas, or a server that loads its data.
    #[error("the store is read-only")]
    ReadOnly,
    /// It has no memory left.
    #[error("the store is out of memory")]
    Memory,
    /// It answers with another error.
    #[error("the store replied with an error")]
    Other,
    /// The answer does not fit the call.
    #[error("the store sent an invalid reply")]
    InvalidReply,
}

impl StoreError {
    /// All that are counted. [`Self::Down`] stands for one that was counted before.
    pub const COUNTED: [Self; 7] = [
        Self::Timeout,
        Self::Connection,
        Self::Denied,
        Self::ReadOnly,
        Self::Memory,
        Self::Other,
        Self::InvalidReply,
    ];

    /// Returns its word in metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Timeout => "timeout",
            Self::Connection => "connection",
            Self::Denied => "denied",
            Self::ReadOnly => "read_only",
            Self::Memory => "memory",
            Self::Other => "other",
            Self::InvalidReply => "invalid_reply",
        }
    }
}

impl From<&RedisError> for StoreError {
    fn from(error: &RedisError) -> Self {
        // A script's own error has the code of what it called in its text.
        let text = error.detail().unwrap_or_default();
        let says = |code: &str| error.code() == Some(code) || text.contains(&format!("{code} "));
        let is_denied = error.kind() == ErrorKind::AuthenticationFailed
            || ["NOPERM", "NOAUTH", "WRONGPASS"].into_iter().any(says)
            || text.contains("The user executing the script can't");

        if is_denied {
            Self::Denied
        } else if NO_WRITES.into_iter().any(says) || text.starts_with(CLUSTER_DOWN) {
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

/// A call that failed.
#[derive(Debug)]
pub(super) struct CallFailure {
    pub(super) error: StoreError,
    /// For the log.
    pub(super) detail: String,
    pub(super) scope: FailureScope,
    /// The name of the call for the log, if known.
    pub(super) call: Option<&'static str>,
}

/// The scope of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureScope {
    /// This call: the store has answered, for example that a key has another type or a command is
    /// forbidden.
    Call,
    /// The slot of the keys in a Redis Cluster: it moves, or no node has it.
    Slot,
    /// This call: it was late, while the store or the node answered others in time.
    Late,
    /// This node of a Redis Cluster.
    Node(usize),
    /// A node of a Redis Cluster, whose failure is counted already.
    Counted,
    /// The store.
    Store,
}

impl CallFailure {
    /// Returns the failure of a call that took too long.
    pub(super) const fn timeout(detail: String) -> Self {
        Self { error: StoreError::Timeout, detail, scope: FailureScope::Store, call: None }
    }

    /// Returns the failure of an answer that does not fit `what`.
    pub(super) fn invalid_reply(what: &str) -> Self {
        let detail = what.to_owned();
        Self { error: StoreError::InvalidReply, detail, scope: FailureScope::Call, call: None }
    }

    /// Returns the failure to connect in time.
    pub(super) fn unreached(elapsed: Elapsed) -> Self {
        Self { error: StoreError::Connection, ..Self::timeout(elapsed.to_string()) }
    }

    /// Returns the failure of a call that was not made, because its node fails for this reason.
    pub(super) const fn known(error: StoreError, detail: String) -> Self {
        Self { error, detail, scope: FailureScope::Counted, call: None }
    }

    /// Adds the name of the call.
    pub(super) fn of_call(self, name: &'static str) -> Self {
        Self { call: Some(name), ..self }
    }

    /// Adds the names of two nodes, of which the first redirected the call to the second.
    pub(super) fn of_two(self, [one, other]: [String; 2]) -> Self {
        let detail = format!("{}, over two nodes: {one} and {other}", self.detail);
        Self { scope: FailureScope::Slot, detail, ..self }
    }

    /// Returns it as the failure of a call that was late while others were in time.
    pub(super) fn late(self) -> Self {
        Self { scope: FailureScope::Late, ..self }
    }

    /// Adds the name of the node.
    pub(super) fn named(self, node: &str) -> Self {
        Self { detail: format!("{node}: {}", self.detail), ..self }
    }

    /// Adds the keys of the call.
    pub(super) fn about(self, keys: &[String]) -> Self {
        Self { detail: format!("{}; keys: {}", self.detail, keys.join(", ")), ..self }
    }

    /// Returns it as the failure of this node, unless it concerns only the call.
    pub(super) fn of_node(self, node: usize) -> Self {
        let scope = match self.scope {
            FailureScope::Call => FailureScope::Call,
            FailureScope::Slot => FailureScope::Slot,
            FailureScope::Late => FailureScope::Late,
            FailureScope::Counted => FailureScope::Counted,
            FailureScope::Node(_) | FailureScope::Store => FailureScope::Node(node),
        };
        Self { scope, ..self }
    }

    /// Returns whether it concerns only the call or its slot.
    pub(super) fn is_of_call(&self) -> bool {
        matches!(self.scope, FailureScope::Call | FailureScope::Slot)
    }

    /// Returns whether the call took too long: the next call to the node would, too.
    pub(super) fn is_late(&self) -> bool {
        self.error == StoreError::Timeout
    }

    /// Returns whether no script has run: the call was not made, or redirected.
    pub(super) fn has_done_nothing(&self) -> bool {
        match self.scope {
            FailureScope::Slot => !self.is_late(),
            FailureScope::Counted => true,
            FailureScope::Call
            | FailureScope::Late
            | FailureScope::Node(_)
            | FailureScope::Store => false,
        }
    }

    /// Returns whether the store decides about other keys as before.
    pub(super) fn is_of_part(&self) -> bool {
        matches!(
            self.scope,
            FailureScope::Node(_) | FailureScope::Counted | FailureScope::Slot | FailureScope::Late
        )
    }
}

/// Returns the answer to a call that had a limit of time.
pub(super) fn within<T>(answer: Result<RedisResult<T>, Elapsed>) -> Result<T, CallFailure> {
    match answer {
        Ok(answer) => answer.map_err(|error| CallFailure::from(&error)),
        Err(elapsed) => Err(CallFailure::timeout(elapsed.to_string())),
    }
}

impl From<&RedisError> for CallFailure {
    fn from(error: &RedisError) -> Self {
        let detail = error.to_string();
        let of_slot = [
            ServerErrorKind::Moved,
            ServerErrorKind::Ask,
            ServerErrorKind::TryAgain,
            ServerErrorKind::ClusterDown,
        ];
        let is_of_slot = of_slot.into_iter().any(|kind| error.kind() == ErrorKind::Server(kind));
        let is_answer = matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension);

        let error = StoreError::from(error);
        let scope = match error {
            StoreError::Denied | StoreError::Other if is_of_slot => FailureScope::Slot,
            StoreError::Denied | StoreError::Other if is_answer => FailureScope::Call,
            StoreError::Down
            | StoreError::Timeout
            | StoreError::Connection
            | StoreError::Denied
            | StoreError::ReadOnly
            | StoreError::Memory
            | StoreError::Other
            | StoreError::InvalidReply => FailureScope::Store,
        };

        Self { error, detail, scope, call: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_about_one_call_does_not_concern_others() {
        for (line, error, scope) in [
            (
                "WRONGTYPE Operation against a key holding the wrong kind of value",
                "other",
                FailureScope::Call,
            ),
            (
                "TRYAGAIN Multiple keys request during rehashing of slot",
                "other",
                FailureScope::Slot,
            ),
            ("CLUSTERDOWN Hash slot not served", "other", FailureScope::Slot),
            ("MOVED 7 127.0.0.1:1", "other", FailureScope::Slot),
            ("ASK 7 127.0.0.1:1", "other", FailureScope::Slot),
            ("CLUSTERDOWN The cluster is down", "read_only", FailureScope::Store),
            (
                "NOPERM User few has no permissions to run the 'eval' command",
                "denied",
                FailureScope::Call,
            ),
            (
                "ERR The user executing the script can't run this command",
                "denied",
                FailureScope::Call,
            ),
            (
                "OOM command not allowed when used memory > 'maxmemory'",
                "memory",
                FailureScope::Store,
            ),
            (
                "READONLY You can't write against a read only replica.",
                "read_only",
                FailureScope::Store,
            ),
            ("LOADING Redis is loading the dataset in memory", "read_only", FailureScope::Store),
            ("MASTERDOWN Link with MASTER is down", "read_only", FailureScope::Store),
            ("NOREPLICAS Not enough good replicas to write.", "read_only", FailureScope::Store),
        ] {
            let answer = redis::parse_redis_value(format!("-{line}\r\n").as_bytes());
            let answer = answer.and_then(redis::Value::extract_error);
            let failure = CallFailure::from(&answer.unwrap_err());
            assert_eq!((failure.error.word(), failure.scope), (error, scope), "{line}");
            let scope = if scope == FailureScope::Store { FailureScope::Node(7) } else { scope };
            assert_eq!(failure.of_node(7).scope, scope, "{line}");
        }
        let broken = RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        let broken = CallFailure::from(&broken);
        assert_eq!((broken.error, broken.scope), (StoreError::Connection, FailureScope::Store));
    }
}

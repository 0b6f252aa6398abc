//! What can go wrong between a gateway and the store.

use crate::clock::Elapsed;
use redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind};

/// The codes of a store that takes no writes.
const NO_WRITES: [&str; 5] = ["READONLY", "LOADING", "MASTERDOWN", "NOREPLICAS", "MISCONF"];

/// What a node of a Redis Cluster says when it serves no slot, beside the code that it has for one
/// slot that nobody serves.
const CLUSTER_DOWN: &str = "The cluster is down";

/// Why the store has not decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It has failed before, and has not been reached again since.
    #[error("the store is down")]
    Down,
    /// It took too long. Whether it has charged the request is not known.
    #[error("the store did not reply in time")]
    Timeout,
    /// There is no connection, or it broke.
    #[error("no connection to the store")]
    Connection,
    /// Wrong password, or a user who may not.
    #[error("the store rejected the login or a command")]
    Denied,
    /// A replica, as after a failover, or one without enough of its own; one that loads its data.
    #[error("the store is read-only")]
    ReadOnly,
    /// It has no memory left.
    #[error("the store is out of memory")]
    Memory,
    /// It answers with another error.
    #[error("the store replied with an error")]
    Other,
    /// Its answer is none to what was asked.
    #[error("the store sent an invalid reply")]
    InvalidReply,
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
        Self::InvalidReply,
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

/// What became of a call.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: StoreError,
    /// For the log.
    pub(super) detail: String,
    pub(super) scope: Scope,
    /// What was called, if that is known, for the log.
    pub(super) call: Option<&'static str>,
}

/// Whom a failure concerns. Others may fare better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// The call: the store has answered, and only about this one, as of a key that holds something
    /// else or a command that we may not call.
    Call,
    /// The slot of its keys in a Redis Cluster, which moves or which no node has.
    Slot,
    /// The call: it was late, while the store or the node answered others in time.
    Late,
    /// This node of a Redis Cluster.
    Node(usize),
    /// The same, and that was counted before.
    Known,
    /// The store.
    Store,
}

impl Failure {
    /// Returns that of a call that took too long.
    pub(super) const fn timeout(detail: String) -> Self {
        Self { error: StoreError::Timeout, detail, scope: Scope::Store, call: None }
    }

    /// Returns that of an answer that is none to `what`.
    pub(super) fn invalid_reply(what: &str) -> Self {
        let detail = what.to_owned();
        Self { error: StoreError::InvalidReply, detail, scope: Scope::Call, call: None }
    }

    /// Returns that of a node or a store which could not be reached in time.
    pub(super) fn unreached(elapsed: Elapsed) -> Self {
        Self { error: StoreError::Connection, ..Self::timeout(elapsed.to_string()) }
    }

    /// Returns that of a call that was not made, as its node is out for this reason.
    pub(super) const fn known(error: StoreError, detail: String) -> Self {
        Self { error, detail, scope: Scope::Known, call: None }
    }

    /// Returns it as that of this call.
    pub(super) fn of_call(self, name: &'static str) -> Self {
        Self { call: Some(name), ..self }
    }

    /// Returns it as that of a call which one node has sent on to another, of these names.
    pub(super) fn of_two(self, [one, other]: [String; 2]) -> Self {
        let detail = format!("{}, over two nodes: {one} and {other}", self.detail);
        Self { scope: Scope::Slot, detail, ..self }
    }

    /// Returns it as that of a call which was late while others were answered in time.
    pub(super) fn late(self) -> Self {
        Self { scope: Scope::Late, ..self }
    }

    /// Returns it with the name of the node that has answered so.
    pub(super) fn named(self, node: &str) -> Self {
        Self { detail: format!("{node}: {}", self.detail), ..self }
    }

    /// Returns it with the keys that were asked about.
    pub(super) fn about(self, keys: &[String]) -> Self {
        Self { detail: format!("{}; keys: {}", self.detail, keys.join(", ")), ..self }
    }

    /// Returns it as that of this node, unless only the call is concerned.
    pub(super) fn of_node(self, node: usize) -> Self {
        let scope = match self.scope {
            Scope::Call => Scope::Call,
            Scope::Slot => Scope::Slot,
            Scope::Late => Scope::Late,
            Scope::Known => Scope::Known,
            Scope::Node(_) | Scope::Store => Scope::Node(node),
        };
        Self { scope, ..self }
    }

    /// Whether only the call is concerned, or its slot.
    pub(super) fn is_of_call(&self) -> bool {
        matches!(self.scope, Scope::Call | Scope::Slot)
    }

    /// Whether its time ran out: what follows it to the same node would be late, too.
    pub(super) fn is_late(&self) -> bool {
        self.error == StoreError::Timeout
    }

    /// Whether no script has run: the node was not asked, or has sent us elsewhere.
    pub(super) fn has_done_nothing(&self) -> bool {
        match self.scope {
            Scope::Slot => !self.is_late(),
            Scope::Known => true,
            Scope::Call | Scope::Late | Scope::Node(_) | Scope::Store => false,
        }
    }

    /// Whether a node is out, a slot moves or one call was late: the store decides about others as
    /// before.
    pub(super) fn is_of_part(&self) -> bool {
        matches!(self.scope, Scope::Node(_) | Scope::Known | Scope::Slot | Scope::Late)
    }
}

/// Returns the answer to a call that had a limit of time.
pub(super) fn within<T>(answer: Result<RedisResult<T>, Elapsed>) -> Result<T, Failure> {
    match answer {
        Ok(answer) => answer.map_err(|error| Failure::from(&error)),
        Err(elapsed) => Err(Failure::timeout(elapsed.to_string())),
    }
}

impl From<&RedisError> for Failure {
    fn from(error: &RedisError) -> Self {
        let detail = error.to_string();
        let of_slot = [
            ServerErrorKind::Moved,
            ServerErrorKind::Ask,
            ServerErrorKind::TryAgain,
            ServerErrorKind::ClusterDown,
        ];
        let is_of_slot = of_slot.into_iter().any(|it| error.kind() == ErrorKind::Server(it));
        let is_answer = matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension);
        let error = StoreError::from(error);
        let scope = match error {
            StoreError::Denied | StoreError::Other if is_of_slot => Scope::Slot,
            StoreError::Denied | StoreError::Other if is_answer => Scope::Call,
            StoreError::Down
            | StoreError::Timeout
            | StoreError::Connection
            | StoreError::Denied
            | StoreError::ReadOnly
            | StoreError::Memory
            | StoreError::Other
            | StoreError::InvalidReply => Scope::Store,
        };
        Self { error, detail, scope, call: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_store_answers_about_a_call_is_told_from_what_holds_for_all() {
        for (line, error, scope) in [
            (
                "WRONGTYPE Operation against a key holding the wrong kind of value",
                "other",
                Scope::Call,
            ),
            ("TRYAGAIN Multiple keys request during rehashing of slot", "other", Scope::Slot),
            ("CLUSTERDOWN Hash slot not served", "other", Scope::Slot),
            ("MOVED 7 127.0.0.1:1", "other", Scope::Slot),
            ("ASK 7 127.0.0.1:1", "other", Scope::Slot),
            ("CLUSTERDOWN The cluster is down", "read_only", Scope::Store),
            ("NOPERM User few has no permissions to run the 'eval' command", "denied", Scope::Call),
            ("ERR The user executing the script can't run this command", "denied", Scope::Call),
            ("OOM command not allowed when used memory > 'maxmemory'", "memory", Scope::Store),
            ("READONLY You can't write against a read only replica.", "read_only", Scope::Store),
            ("LOADING Redis is loading the dataset in memory", "read_only", Scope::Store),
            ("MASTERDOWN StoreConnection with MASTER is down", "read_only", Scope::Store),
            ("NOREPLICAS Not enough good replicas to write.", "read_only", Scope::Store),
        ] {
            let answer = redis::parse_redis_value(format!("-{line}\r\n").as_bytes());
            let answer = answer.and_then(redis::Value::extract_error);
            let failure = Failure::from(&answer.unwrap_err());
            assert_eq!((failure.error.word(), failure.scope), (error, scope), "{line}");
            let scope = if scope == Scope::Store { Scope::Node(7) } else { scope };
            assert_eq!(failure.of_node(7).scope, scope, "{line}");
        }
        let broken = RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        let broken = Failure::from(&broken);
        assert_eq!((broken.error, broken.scope), (StoreError::Connection, Scope::Store));
    }
}

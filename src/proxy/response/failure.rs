//! Why an upstream gave no answer that the client could have.

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No server could be reached.
    Unreachable,
    /// The server did not answer in time.
    Timeout,
    /// The server's answer was not HTTP, or the connection broke.
    Broken,
    /// The header of the server's answer is larger than the upstream's limits allow.
    HeadTooLarge,
    /// The request's body is longer than the route allows.
    TooLong,
    /// The client stopped sending its body, or sent no valid one.
    ClientStalled,
    /// The client's body broke off or was malformed.
    ClientBroken,
}

impl Failure {
    /// Returns whether it was the client's doing, and says nothing of the server.
    pub(crate) const fn is_of_client(self) -> bool {
        match self {
            Self::TooLong | Self::ClientStalled | Self::ClientBroken => true,
            Self::Unreachable | Self::Timeout | Self::Broken | Self::HeadTooLarge => false,
        }
    }
}

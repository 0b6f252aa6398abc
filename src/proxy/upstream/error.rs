//! Why a server gave no answer, or none that is whole.

use super::cause::cause;
use crate::http1::{BodyError, HeadError};
use crate::proxy::body::request_body::{Cut, RequestBody};
use core::fmt;
use std::io;

/// Why a request to a server failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpstreamError {
    /// It ended the connection before the header of its answer was whole.
    #[error("the server closed the connection without an answer")]
    Closed,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the answer is malformed: {0}{hint}", hint = head_hint(*.0))]
    Head(HeadError),
    /// Its body is.
    #[error("{0}")]
    Body(BodyError),
    /// See [`INTERIM_MAX`](super::http1::INTERIM_MAX).
    #[error("too many interim answers")]
    Interim,
    /// The request's body could not be sent.
    #[error(transparent)]
    Upload(Cut),
    #[error("{0}{hint}", hint = http2_hint(.0))]
    Http2(h2::Error),
}

impl UpstreamError {
    /// Whether the server closed the connection before the header of its answer was whole.
    pub(crate) fn is_closed(&self) -> bool {
        match self {
            Self::Closed => true,
            Self::Io(error) => is_end(error),
            Self::Head(_) | Self::Body(_) | Self::Interim | Self::Upload(_) | Self::Http2(_) => {
                false
            }
        }
    }
}

impl From<h2::Error> for UpstreamError {
    fn from(error: h2::Error) -> Self {
        match error.get_io().map(io::Error::kind) {
            Some(kind) => Self::Io(error.into_io().unwrap_or_else(|| kind.into())),
            None => Self::Http2(error),
        }
    }
}

/// Returns what an operator may do about a malformed answer. The first bytes of HTTP/2 and of TLS are no
/// version of HTTP/1.1.
const fn head_hint(error: HeadError) -> &'static str {
    if matches!(error, HeadError::Version) {
        "; does the server speak only HTTP/2 (`protocol: h2`) or TLS (`https://`)?"
    } else {
        ""
    }
}

/// The same of an error of HTTP/2. The text of an HTTP/1.1 answer, read as a frame, is longer than any
/// frame may be.
fn http2_hint(error: &h2::Error) -> &'static str {
    if error.reason() == Some(h2::Reason::FRAME_SIZE_ERROR) {
        "; does the server speak only HTTP/1.1 (`protocol: auto`)?"
    } else {
        ""
    }
}

/// Whether a connection ended, in whatever way.
fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), ConnectionReset | BrokenPipe | ConnectionAborted | UnexpectedEof)
}

/// A request without an answer.
pub(crate) struct Unanswered {
    pub(crate) why: NoResponseReason,
    /// The request's body, if the server has not processed the request and the body can be sent
    /// again.
    pub(crate) unprocessed: Option<RequestBody>,
}

/// Why there is no answer.
pub(crate) enum NoResponseReason {
    Broken(UpstreamError),
    /// The server has rejected the request, and can take others over the same connection.
    Rejected(UpstreamError),
    /// The header of the answer is larger than the upstream's limits allow.
    TooLarge,
    /// The request has no form in HTTP/2.
    Unsendable,
}

impl fmt::Display for NoResponseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(error) | Self::Rejected(error) => f.write_str(&cause(error)),
            Self::TooLarge => f.write_str("the header of the answer is too large"),
            Self::Unsendable => f.write_str("the request has no form in HTTP/2"),
        }
    }
}

impl From<UpstreamError> for Unanswered {
    fn from(error: UpstreamError) -> Self {
        let too_large =
            matches!(error, UpstreamError::Head(HeadError::TooLarge | HeadError::TooManyFields));
        let why =
            if too_large { NoResponseReason::TooLarge } else { NoResponseReason::Broken(error) };
        Self { why, unprocessed: None }
    }
}

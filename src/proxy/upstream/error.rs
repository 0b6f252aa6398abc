//! Failures of requests to servers, and their causes in words.

use crate::config::UnsupportedCertificate;
use crate::http1::{BodyError, HeadError};
use crate::proxy::body::request_body::{Cut, RequestBody};
use core::{error::Error, fmt};
use std::io;
use tokio_rustls::rustls::{self, AlertDescription, CertificateError, OtherError};

/// A failure of a request to a server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpstreamError {
    /// The server ended the connection before the header of its response was complete.
    #[error("the server closed the connection without an answer")]
    Closed,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the answer is malformed: {0}{hint}", hint = head_hint(*.0))]
    Head(HeadError),
    /// The body of the response is malformed, or incomplete.
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
    /// True if the server ended the connection before the header of its response was complete.
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

/// Returns a hint for the operator about a malformed response. The first bytes of HTTP/2 and of TLS are
/// not a version of HTTP/1.1.
const fn head_hint(error: HeadError) -> &'static str {
    if matches!(error, HeadError::Version) {
        "; does the server speak only HTTP/2 (`protocol: h2`) or TLS (`https://`)?"
    } else {
        ""
    }
}

/// Returns a hint for the operator about an error of HTTP/2. The text of an HTTP/1.1 response, read as a
/// frame, is longer than any frame may be.
fn http2_hint(error: &h2::Error) -> &'static str {
    if error.reason() == Some(h2::Reason::FRAME_SIZE_ERROR) {
        "; does the server speak only HTTP/1.1 (`protocol: auto`)?"
    } else {
        ""
    }
}

/// True if the error says that the connection ended.
fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), ConnectionReset | BrokenPipe | ConnectionAborted | UnexpectedEof)
}

/// A request without a response.
pub(crate) struct Unanswered {
    pub(crate) why: NoResponseReason,
    /// The body of the request, if the server has not processed it and the body can be sent again.
    pub(crate) unprocessed: Option<RequestBody>,
}

/// The reason for which there is no response.
pub(crate) enum NoResponseReason {
    Broken(UpstreamError),
    /// The server has rejected the request, and can take others over the same connection.
    Rejected(UpstreamError),
    /// The header of the response is larger than the upstream's limits allow.
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

/// Returns the first cause of an error, in words.
pub(crate) fn cause(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    loop {
        // An error of IO does not report the error that it wraps as its source.
        let inner = innermost.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let inner = inner.map(|inner| inner as &(dyn Error + 'static));
        match inner.or_else(|| innermost.source()) {
            Some(inner) => innermost = inner,
            None => break,
        }
    }
    match innermost.downcast_ref::<rustls::Error>() {
        Some(rustls::Error::InvalidMessage(_)) => "TLS: the server does not speak it".to_owned(),
        Some(tls) => tls_cause(tls),
        None => innermost.to_string(),
    }
}

/// Returns why a handshake failed, with a hint for the operator if the reason alone is not clear.
fn tls_cause(error: &rustls::Error) -> String {
    if let rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(other))) = error
        && let Some(unsupported) = other.downcast_ref::<UnsupportedCertificate>()
    {
        return format!("TLS: {unsupported}");
    }
    let hint = if let rustls::Error::AlertReceived(
        AlertDescription::HandshakeFailure
        | AlertDescription::InsufficientSecurity
        | AlertDescription::ProtocolVersion,
    ) = error
    {
        // rustls leaves out the others for their weaknesses.
        "; flowgate has TLS 1.3, and TLS 1.2 with ECDHE and AES-GCM or ChaCha20-Poly1305: a server \
         with CBC suites, RSA or DHE key exchange, or older versions alone needs one of these"
    } else {
        ""
    };
    format!("TLS: {error}{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::InvalidMessage;

    #[test]
    fn a_failed_connection_is_explained_in_words() {
        let tls = |error: rustls::Error| io::Error::new(io::ErrorKind::InvalidData, error);
        for (error, words) in [
            (io::ErrorKind::ConnectionReset.into(), "connection reset"),
            (
                tls(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)),
                "TLS: the server does not speak it",
            ),
            (
                tls(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)),
                "TLS: invalid peer certificate: UnknownIssuer",
            ),
            (
                tls(UnsupportedCertificate::RsaKey(1024).into()),
                "TLS: the server's RSA key has 1024 bits: give the server a key of 2048 to 8192 \
                 bits, or one of ECDSA",
            ),
            (
                tls(rustls::Error::AlertReceived(AlertDescription::HandshakeFailure)),
                "TLS: received fatal alert: HandshakeFailure; flowgate has TLS 1.3, and TLS 1.2 \
                 with ECDHE and AES-GCM or ChaCha20-Poly1305: a server with CBC suites, RSA or DHE \
                 key exchange, or older versions alone needs one of these",
            ),
        ] {
            assert_eq!(cause(&error), words);
        }
    }
}

//! The reasons why a head is rejected, and the status of the response.

use super::framing::FramingError;
use http::StatusCode;

/// The reason why a head is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// RFC 9112, 2.2: more than [`MAX_EMPTY_LINES`](super::MAX_EMPTY_LINES).
    #[error("there are too many empty lines before the header")]
    EmptyLines,
    /// RFC 9110, 9.1.
    #[error("the method is not a token")]
    Method,
    /// RFC 9112, 3.2.
    #[error("the target has invalid characters")]
    Target,
    /// It is longer than [`MAX_TARGET`](super::MAX_TARGET), or its line than [`HeadLimits::bytes`](super::HeadLimits::bytes).
    #[error("the target is too long")]
    TargetTooLong,
    /// RFC 9112, 2.3: missing, or not `HTTP/`, a digit, a dot and a digit.
    #[error("the HTTP version is malformed")]
    Version,
    /// RFC 9110, 15.6.6: well-formed, and neither 1.0 nor 1.1.
    #[error("the HTTP version is not supported")]
    UnknownVersion,
    /// RFC 9112, 4: the code is not 100 to 999, or the phrase has control characters.
    #[error("the status is malformed")]
    Status,
    /// RFC 9112, 5.1 and 5.2: also a folded line, and a blank before the colon.
    #[error("a field name is not a token with a colon behind it")]
    FieldName,
    /// RFC 9110, 5.5.
    #[error("a field value has control characters")]
    FieldValue,
    /// RFC 9112, 2.2: CR without LF.
    #[error("a line does not end with CRLF")]
    LineEnd,
    /// There are more fields than [`HeadLimits::fields`](super::HeadLimits::fields).
    #[error("there are too many header fields")]
    TooManyFields,
    /// The head is larger than [`HeadLimits::bytes`](super::HeadLimits::bytes), or a name longer than 65,535.
    #[error("the header is too large")]
    TooLarge,
    /// The end of the body is uncertain.
    #[error(transparent)]
    Framing(#[from] FramingError),
}

impl HeadError {
    /// Returns the status of the response to a request with this head. Its connection must be closed.
    pub fn status(self) -> StatusCode {
        match self {
            Self::TargetTooLong => StatusCode::URI_TOO_LONG,
            Self::UnknownVersion => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Self::TooManyFields | Self::TooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Framing(FramingError::TooManyConnectionOptions) => {
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
            }
            Self::Framing(FramingError::UnknownTransferCoding) => StatusCode::NOT_IMPLEMENTED,

            Self::EmptyLines
            | Self::Method
            | Self::Target
            | Self::Version
            | Self::Status
            | Self::FieldName
            | Self::FieldValue
            | Self::LineEnd
            | Self::Framing(
                FramingError::ContentLength
                | FramingError::ContentLengthsDiffer
                | FramingError::ContentLengthWithTransferEncoding
                | FramingError::TransferEncodingInHttp10
                | FramingError::TransferEncoding,
            ) => StatusCode::BAD_REQUEST,
        }
    }

    pub(super) fn of(error: httparse::Error, token: Self) -> Self {
        match error {
            httparse::Error::HeaderName => Self::FieldName,
            httparse::Error::HeaderValue => Self::FieldValue,
            httparse::Error::NewLine => Self::LineEnd,
            httparse::Error::Status => Self::Status,
            httparse::Error::Token => token,
            httparse::Error::TooManyHeaders => Self::TooManyFields,
            httparse::Error::Version => Self::Version,
        }
    }
}

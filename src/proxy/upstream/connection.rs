//! What one request is sent over, and its answer comes over.

use super::{error::UpstreamError, http1, http2_client::Stream};
use bytes::Bytes;
use core::task::{Context, Poll};
use http_body::{Frame, SizeHint};

/// A way to a server for one request.
pub(crate) enum UpstreamConnection {
    Http1(Box<http1::Connection>),
    Http2(Stream),
}

impl UpstreamConnection {
    /// Polls for the next part of the answer's body. A request's body that has not left yet is sent
    /// meanwhile.
    pub(crate) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        match self {
            Self::Http1(connection) => connection.poll_frame(context),
            Self::Http2(stream) => stream.poll_frame(context),
        }
    }

    /// Whether all of the answer has been read.
    pub(crate) fn is_end(&self) -> bool {
        match self {
            Self::Http1(connection) => connection.is_end(),
            Self::Http2(stream) => stream.is_end(),
        }
    }

    /// Makes it idle, if another request may follow on it. One that is shared never is.
    pub(crate) fn rest(&mut self) -> bool {
        match self {
            Self::Http1(connection) => connection.rest(),
            Self::Http2(_) => false,
        }
    }

    /// Returns how much of the answer's body is left, as far as that is known.
    pub(crate) fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(connection) => connection.size_hint(),
            Self::Http2(stream) => stream.size_hint(),
        }
    }
}

//! What one request is sent over, and its answer comes over.

use super::{
    error::{Unanswered, UpstreamError},
    http1,
    http2::Stream,
};
use crate::proxy::{
    body::request_body::RequestBody,
    message::{
        request::Request,
        response::{Response, ResponseHead},
    },
};
use bytes::Bytes;
use core::task::{Context, Poll};
use http_body::{Frame, SizeHint};

/// A way to a server for one request.
pub(crate) enum UpstreamConnection {
    Http1(Box<http1::Connection>),
    Http2(Box<Stream>),
}

impl UpstreamConnection {
    /// Begins a request with `body`. Its answer may use the memory of a head without fields.
    ///
    /// # Errors
    ///
    /// It cannot be sent over this connection.
    pub(crate) fn begin(
        &mut self,
        request: &Request<RequestBody>,
        body: RequestBody,
        answer: impl FnOnce() -> Box<ResponseHead>,
    ) -> Result<(), Unanswered> {
        match self {
            Self::Http1(connection) => {
                connection.begin(request, body, answer());
                Ok(())
            }
            Self::Http2(stream) => stream.begin(request, body),
        }
    }

    /// Sends the request, and polls for the head of its answer, which may come before all of the
    /// request has left.
    pub(crate) fn poll_answer(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Response<()>, Unanswered>> {
        match self {
            Self::Http1(connection) => connection.poll_answer(context).map_err(Unanswered::from),
            Self::Http2(stream) => stream.poll_answer(context),
        }
    }

    /// Takes the interim answers that have come since the last call, but for 100.
    pub(crate) fn take_interim(&mut self) -> Option<Vec<Response<()>>> {
        match self {
            Self::Http1(connection) => connection.take_interim(),
            Self::Http2(stream) => stream.take_interim(),
        }
    }

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

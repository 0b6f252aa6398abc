//! The connection of one request to its server, or its stream on one.

use super::{
    error::{Unanswered, UpstreamError},
    http1,
    http2::Stream,
};
use crate::proxy::{
    body::request_body::RequestBody,
    message::{Request, Response, ResponseHead},
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
    /// Begins a request with `body`. The head of its response may use the memory of one without fields.
    ///
    /// # Errors
    ///
    /// It cannot be sent over this connection.
    pub(crate) fn begin(
        &mut self,
        request: &Request<RequestBody>,
        body: RequestBody,
        memory: impl FnOnce() -> Box<ResponseHead>,
    ) -> Result<(), Unanswered> {
        match self {
            Self::Http1(connection) => {
                connection.begin(request, body, memory());
                Ok(())
            }
            Self::Http2(stream) => stream.begin(request, body),
        }
    }

    /// Sends the request, and polls for the head of its response, which may come before all of the
    /// request has left.
    pub(crate) fn poll_response(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Response<()>, Unanswered>> {
        match self {
            Self::Http1(connection) => connection.poll_response(context).map_err(Unanswered::from),
            Self::Http2(stream) => stream.poll_response(context),
        }
    }

    /// Takes the interim responses that have come since the last call, except for 100.
    pub(crate) fn take_interim(&mut self) -> Option<Vec<Response<()>>> {
        match self {
            Self::Http1(connection) => connection.take_interim(),
            Self::Http2(stream) => stream.take_interim(),
        }
    }

    /// Polls for the next part of the response's body, and sends the rest of the request's body
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

    /// True if all of the response has been read.
    pub(crate) fn is_end(&self) -> bool {
        match self {
            Self::Http1(connection) => connection.is_end(),
            Self::Http2(stream) => stream.is_end(),
        }
    }

    /// Makes the connection idle, and returns true if another request may follow on it. A shared one
    /// stays as it is.
    pub(crate) fn rest(&mut self) -> bool {
        match self {
            Self::Http1(connection) => connection.rest(),
            Self::Http2(_) => false,
        }
    }

    /// Returns the size of the rest of the response's body, as far as it is known.
    pub(crate) fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(connection) => connection.size_hint(),
            Self::Http2(stream) => stream.size_hint(),
        }
    }
}

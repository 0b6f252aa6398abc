//! A request's body whose beginning is held back until the rules have looked at it.

use super::{ClientBody, client_body::ClientBodyError, request_body::ask_for};
use crate::{
    proxy::timeouts::streams::Stream,
    route::{BodyMembers, MemberPaths, Scanner},
};
use bytes::{Bytes, BytesMut};
use core::{
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use std::sync::Arc;

/// The body of a request, of which the beginning was read before. What is held comes first, as one part:
/// a client that sends single bytes takes no more memory than it sends.
#[derive(Debug)]
pub(crate) struct PeekedBody {
    held: BytesMut,
    trailers: Option<HeaderMap>,
    rest: ClientBody,
}

impl PeekedBody {
    /// Takes what is held, as no server gets it.
    pub(super) fn forget(&mut self) -> Bytes {
        self.trailers = None;
        mem::take(&mut self.held).freeze()
    }

    pub(super) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ClientBodyError>>> {
        if !self.held.is_empty() {
            let held = mem::take(&mut self.held).freeze();
            return Poll::Ready(Some(Ok(Frame::data(held))));
        }
        if let Some(trailers) = self.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        Pin::new(&mut self.rest).poll_frame(context)
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.held.is_empty() && self.trailers.is_none() && self.rest.is_end_stream()
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        let rest = self.rest.size_hint();
        let held = self.held.len() as u64;
        let mut all = SizeHint::new();
        all.set_lower(rest.lower().saturating_add(held));
        if let Some(upper) = rest.upper() {
            all.set_upper(upper.saturating_add(held));
        }
        all
    }
}

/// Reads the beginning of a body, up to a number of bytes, until its members are known.
#[derive(Debug)]
pub(crate) struct Peek {
    body: PeekedBody,
    scanner: Scanner,
    /// The most bytes to hold.
    most: usize,
    /// The stream whose client waits for 100 before it sends the body, in HTTP/2.
    expectation: Option<Arc<Stream>>,
}

impl Peek {
    /// Begins to read a body, of which at most so many bytes are held. `expectation` is where a client of
    /// HTTP/2 waits for 100.
    pub(crate) fn new(
        body: ClientBody,
        paths: Arc<MemberPaths>,
        most: usize,
        expectation: Option<Arc<Stream>>,
    ) -> Self {
        let body = PeekedBody { held: BytesMut::new(), trailers: None, rest: body };
        Self { body, scanner: Scanner::new(paths), most, expectation }
    }

    /// Reads until the body has ended, or is known to have no members.
    ///
    /// # Errors
    ///
    /// The body is malformed, or the client has left.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ClientBodyError>> {
        loop {
            let rest = &mut self.body.rest;
            // Nothing asks for more once all that was declared is here.
            if rest.is_end_stream() || rest.size_hint().exact() == Some(0) {
                return Poll::Ready(Ok(()));
            }
            let polled = Pin::new(rest).poll_frame(context);
            if polled.is_pending()
                && let Some(stream) = self.expectation.take()
            {
                ask_for(&stream);
            }
            let Some(frame) = ready!(polled) else { return Poll::Ready(Ok(())) };
            self.expectation = None;

            match frame?.into_data() {
                Ok(data) => {
                    let is_useful = self.scanner.push(&data);
                    self.body.held.extend_from_slice(&data);
                    if !is_useful || self.body.held.len() > self.most {
                        self.scanner.give_up();
                        return Poll::Ready(Ok(()));
                    }
                }
                Err(frame) => self.body.trailers = frame.into_trailers().ok(),
            }
        }
    }

    /// Returns the body with all its bytes, and its members, if it is a JSON object.
    pub(crate) fn finish(self) -> (ClientBody, Option<BodyMembers>) {
        (ClientBody::Peeked(Box::new(self.body)), self.scanner.finish())
    }
}

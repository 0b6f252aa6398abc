//! A connection of HTTP/1.1 to a server.
//!
//! The task of the request that has it moves its bytes: there is no task of its own. An idle
//! connection waits in the pool, which checks it now and then, and before it is used.

mod output;
#[cfg(test)]
mod tests;

use super::{
    error::UpstreamError,
    transport::{BoxedIo, ConnectionSettings},
};
use crate::config::UpstreamTls;
use crate::http1::{BodyDecoder, BodyLength, FieldList, HeadLimits, RequestKind, ResponseHead};
use crate::proxy::{
    body::RequestBody,
    io::input::Input,
    message::{self, Request, Response},
};
use bytes::{Buf, Bytes};
use core::{
    fmt,
    future::poll_fn,
    mem,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_body::{Frame, SizeHint};
use hyper::ext::ReasonPhrase;
use output::Output;
use std::io;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most interim responses (1xx) before a response, and their bytes.
pub(super) const INTERIM_MAX: (usize, usize) = (100, 64 * 1024);

/// A connection of HTTP/1.1 to a server, which serves one request at a time.
pub(crate) struct Connection {
    io: BoxedIo,
    settings: ConnectionSettings,
    input: Input,
    output: Output,
    /// The kind of the request in progress.
    request: RequestKind,
    head: ResponseHead,
    /// Memory for the response's head.
    memory: Option<Box<message::ResponseHead>>,
    /// The number of interim responses so far, and their bytes.
    interim_total: (usize, usize),
    /// The interim responses that the client may receive.
    interim: Vec<Response<()>>,
    body: BodyDecoder,
    /// Whether trailers have been read, and not yet been taken.
    has_trailers: bool,
    is_idle: bool,
}

impl Connection {
    /// Begins HTTP/1.1 over `io`.
    pub(super) fn new(io: BoxedIo, settings: ConnectionSettings) -> Box<Self> {
        let limits = limits(&settings);
        Box::new(Self {
            io,
            settings,
            input: Input::new(),
            output: Output::default(),
            request: RequestKind::Other,
            head: ResponseHead::default(),
            memory: None,
            interim_total: (0, 0),
            interim: Vec::new(),
            body: BodyDecoder::new(BodyLength::None, limits),
            has_trailers: false,
            is_idle: false,
        })
    }

    /// Returns the settings that it was opened with.
    pub(super) fn settings(&self) -> &ConnectionSettings {
        &self.settings
    }

    /// Begins a request with `body`. [`Self::poll_response`] sends it. The response's head uses
    /// `memory`, which has no fields.
    pub(crate) fn begin(
        &mut self,
        request: &Request<RequestBody>,
        body: RequestBody,
        memory: Box<message::ResponseHead>,
    ) {
        self.input.make_room();
        self.output.begin(request, body);
        self.request = RequestKind::of(request.method().as_str().as_bytes());
        self.memory = Some(memory);
        self.interim_total = (0, 0);
        self.interim.clear();
        self.is_idle = false;
    }

    /// Sends a request, and waits for the head of its response.
    ///
    /// # Errors
    ///
    /// See [`Self::poll_response`].
    pub(crate) async fn send(
        &mut self,
        mut request: Request<RequestBody>,
    ) -> Result<Response<()>, UpstreamError> {
        let body = mem::replace(request.body_mut(), RequestBody::Empty);
        self.begin(&request, body, Box::default());
        poll_fn(|context| self.poll_response(context)).await
    }

    /// Sends the request, and polls for the head of its response, which may come before all of the
    /// request has left.
    ///
    /// # Errors
    ///
    /// The connection ended, the response is malformed, or the client's body cannot be sent.
    pub(crate) fn poll_response(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Response<()>, UpstreamError>> {
        self.poll_upload(context)?;
        loop {
            if let Some(length) = self.parse_head()? {
                return Poll::Ready(Ok(self.response(length)));
            }
            if !ready!(self.input.poll_read(&mut self.io, context))? {
                return Poll::Ready(Err(UpstreamError::Closed));
            }
        }
    }

    /// Sends as much of the request as has come.
    fn poll_upload(&mut self, context: &mut Context<'_>) -> Result<(), UpstreamError> {
        match self.output.poll(&mut self.io, context) {
            Poll::Ready(Err(cut)) => Err(UpstreamError::Upload(cut)),
            Poll::Ready(Ok(())) | Poll::Pending => Ok(()),
        }
    }

    /// Returns the length of the response's head once all of it has come. Interim responses before it
    /// are taken out.
    fn parse_head(&mut self) -> Result<Option<usize>, UpstreamError> {
        let limits = limits(&self.settings);
        while !self.input.bytes.is_empty() {
            let parsed = self.head.parse(&self.input.bytes, limits, self.request);
            let Some(length) = parsed.map_err(UpstreamError::Head)? else { break };
            let status = self.head.status();
            if !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS {
                return Ok(Some(length));
            }
            if status != StatusCode::CONTINUE {
                let interim = self.interim_head(status, length);
                self.interim.push(interim);
            }
            self.input.bytes.advance(length);
            self.interim_total = (self.interim_total.0 + 1, self.interim_total.1 + length);
            if self.interim_total.0 > INTERIM_MAX.0 || self.interim_total.1 > INTERIM_MAX.1 {
                return Err(UpstreamError::Interim);
            }
        }
        Ok(None)
    }

    /// Returns an interim response whose head has `length` bytes.
    #[cold]
    fn interim_head(&mut self, status: StatusCode, length: usize) -> Response<()> {
        self.head.lower_names(&mut self.input.bytes);
        let bytes = Bytes::copy_from_slice(&self.input.bytes[..length]);
        let mut headers = FieldList::default();
        self.head.move_fields(bytes, &mut headers);
        let head = message::ResponseHead { status, reason: None, headers };
        Response::from_parts(Box::new(head), ())
    }

    /// Takes the interim responses that have come since the last call, except for 100.
    pub(crate) fn take_interim(&mut self) -> Option<Vec<Response<()>>> {
        (!self.interim.is_empty()).then(|| mem::take(&mut self.interim))
    }

    /// Returns the response whose head has `length` bytes.
    fn response(&mut self, length: usize) -> Response<()> {
        self.head.lower_names(&mut self.input.bytes);
        let bytes = self.input.take(length);

        self.body = BodyDecoder::new(self.head.framing().body, limits(&self.settings));
        if let Some(length) = self.body.left() {
            let left = length.saturating_sub(self.input.bytes.len() as u64);
            self.input.expect(usize::try_from(left).unwrap_or(usize::MAX));
        }
        self.has_trailers = false;

        let mut head = self.memory.take().unwrap_or_default();
        head.status = self.head.status();
        let usual = head.status.canonical_reason().map(str::as_bytes);
        let reason = Some(self.head.reason(&bytes)).filter(|reason| usual != Some(reason));
        head.reason = reason.and_then(|reason| ReasonPhrase::try_from(reason).ok());
        self.head.move_fields(bytes, &mut head.headers);
        Response::from_parts(head, ())
    }

    /// Polls for the next part of the response's body, and sends the rest of the request's body
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// The body breaks off or is malformed, or the client's body cannot be sent.
    pub(crate) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        self.poll_upload(context)?;
        loop {
            if let Some(data) = self.decode()? {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            if self.body.is_end() {
                let trailers = mem::take(&mut self.has_trailers).then(|| self.trailers());
                return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
            }
            let has_more = match ready!(self.input.poll_read(&mut self.io, context)) {
                Err(error) if self.may_end_with(&error) => false,
                read => read?,
            };
            if !has_more {
                self.body.end().map_err(UpstreamError::Body)?;
            }
        }
    }

    /// True if the body may end with this error: that of TLS for a connection that ends without notice.
    #[cold]
    fn may_end_with(&self, error: &io::Error) -> bool {
        error.kind() == io::ErrorKind::UnexpectedEof
            && self.head.framing().body == BodyLength::UntilClose
            && self.settings.tls.as_deref().is_some_and(UpstreamTls::may_end_unnoticed)
    }

    /// Returns the data among the bytes that were read, if there is any.
    fn decode(&mut self) -> Result<Option<Bytes>, UpstreamError> {
        if self.input.bytes.is_empty() || self.body.is_end() {
            return Ok(None);
        }
        let decoded = self.body.decode(&mut self.input.bytes).map_err(UpstreamError::Body)?;
        self.has_trailers = decoded.is_end && self.body.trailers().is_some();
        let mut data = self.input.take(decoded.consumed);
        data.truncate(decoded.data.end);
        data.advance(decoded.data.start);
        Ok(Some(data).filter(|data| !data.is_empty()))
    }

    #[cold]
    fn trailers(&self) -> HeaderMap {
        let mut trailers = HeaderMap::new();
        for field in self.body.trailers().into_iter().flat_map(|trailers| trailers.fields().iter())
        {
            // Both are valid by how they were parsed.
            if let Ok(name) = HeaderName::from_bytes(field.name)
                && let Ok(value) = HeaderValue::from_bytes(field.value)
            {
                trailers.append(name, value);
            }
        }
        trailers
    }

    /// True if all of the response has been read.
    ///
    /// The end of a chunked response must be read by itself if the response is early: the caller may
    /// delay it until the client stops sending.
    pub(crate) fn is_end(&self) -> bool {
        let is_early = self.head.framing().body == BodyLength::Chunked && !self.is_sent();
        self.body.is_end() && !self.has_trailers && !is_early
    }

    /// Returns the size of the rest of the response's body, as far as it is known.
    pub(crate) fn size_hint(&self) -> SizeHint {
        self.body.left().map_or_else(SizeHint::default, SizeHint::with_exact)
    }

    /// True if all of the request has left for the server, as far as the system knows.
    pub(crate) fn is_sent(&self) -> bool {
        self.output.is_sent()
    }

    /// Makes the connection idle, and returns true if another request may follow on it.
    pub(crate) fn rest(&mut self) -> bool {
        let is_reusable = self.is_end()
            && self.is_sent()
            && self.input.bytes.is_empty()
            && self.head.framing().keeps_alive;
        if is_reusable {
            self.input.rest();
            self.output.rest();
            self.is_idle = true;
        }
        is_reusable
    }

    /// True if the server has neither closed the connection nor sent anything since it became idle. Bytes
    /// without a request would be taken for the response to the next one.
    pub(super) fn is_quiet_by_runtime(&mut self) -> bool {
        self.io.is_quiet_by_runtime()
    }

    /// The same by the system, from which the runtime may not have heard yet.
    pub(super) fn is_quiet_by_kernel(&self) -> bool {
        self.io.is_quiet_by_kernel()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl Drop for Connection {
    /// Ends an idle connection in good order: TLS sends `close_notify`.
    fn drop(&mut self) {
        if self.is_idle {
            let mut context = Context::from_waker(Waker::noop());
            let _best_effort = Pin::new(&mut self.io).poll_shutdown(&mut context);
        }
    }
}

fn limits(settings: &ConnectionSettings) -> HeadLimits {
    HeadLimits { bytes: settings.limits.header_bytes, fields: settings.limits.headers }
}

/// The tunnel that the connection becomes with a 101.
impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.input.bytes.is_empty() {
            return Pin::new(&mut self.io).poll_read(context, buffer);
        }
        let length = self.input.bytes.len().min(buffer.remaining());
        buffer.put_slice(&self.input.take(length));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

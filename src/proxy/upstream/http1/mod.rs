//! A connection of HTTP/1.1 to a server.
//!
//! The task of the request that has it moves its bytes: there is no task of its own. An idle
//! connection waits in the pool, where it is looked at now and then, and before it is used.

mod output;
#[cfg(test)]
mod tests;

use super::{
    error::UpstreamError,
    transport::{BoxedIo, ConnectionSettings},
};
use crate::config::UpstreamTls;
use crate::http1::{BodyDecoder, BodyLength, FieldList, HeadLimits, RequestKind, ResponseHead};
use crate::proxy::message::{
    request::Request,
    response::{self, Response},
};
use crate::proxy::{body::request_body::RequestBody, io::input::Input};
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

/// Interim answers (1xx) before one answer at most, and their bytes.
pub(super) const INTERIM_MAX: (usize, usize) = (100, 64 * 1024);

/// A connection of HTTP/1.1 to a server, which serves one request at a time.
pub(crate) struct Connection {
    io: BoxedIo,
    settings: ConnectionSettings,
    input: Input,
    output: Output,
    /// Of the request under way.
    request: RequestKind,
    head: ResponseHead,
    /// Memory for the answer's head.
    answer: Option<Box<response::ResponseHead>>,
    /// Interim answers so far, and their bytes.
    interim_total: (usize, usize),
    /// Those that the client may receive.
    interim: Vec<Response<()>>,
    body: BodyDecoder,
    /// Whether trailers have been read, and not yet been taken.
    has_trailers: bool,
    is_idle: bool,
}

impl Connection {
    /// Begins to speak over `io`.
    pub(super) fn new(io: BoxedIo, settings: ConnectionSettings) -> Box<Self> {
        let limits = limits(&settings);
        Box::new(Self {
            io,
            settings,
            input: Input::new(),
            output: Output::default(),
            request: RequestKind::Other,
            head: ResponseHead::default(),
            answer: None,
            interim_total: (0, 0),
            interim: Vec::new(),
            body: BodyDecoder::new(BodyLength::None, limits),
            has_trailers: false,
            is_idle: false,
        })
    }

    /// Returns what it was opened for.
    pub(super) fn settings(&self) -> &ConnectionSettings {
        &self.settings
    }

    /// Begins a request with `body`. [`Self::poll_answer`] sends it. The answer's head uses the
    /// memory of `answer`, which has no fields.
    pub(crate) fn begin(
        &mut self,
        request: &Request<RequestBody>,
        body: RequestBody,
        answer: Box<response::ResponseHead>,
    ) {
        self.input.make_room();
        self.output.begin(request, body);
        self.request = RequestKind::of(request.method().as_str().as_bytes());
        self.answer = Some(answer);
        self.interim_total = (0, 0);
        self.interim.clear();
        self.is_idle = false;
    }

    /// Sends a request, and waits for the head of its answer.
    ///
    /// # Errors
    ///
    /// See [`Self::poll_answer`].
    pub(crate) async fn send(
        &mut self,
        mut request: Request<RequestBody>,
    ) -> Result<Response<()>, UpstreamError> {
        let body = mem::replace(request.body_mut(), RequestBody::Empty);
        self.begin(&request, body, Box::default());
        poll_fn(|context| self.poll_answer(context)).await
    }

    /// Sends the request, and polls for the head of its answer, which may come before all of the
    /// request has left.
    ///
    /// # Errors
    ///
    /// There is none: the connection ended, what came is no answer, or the client's body cannot be
    /// sent.
    pub(crate) fn poll_answer(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Response<()>, UpstreamError>> {
        self.poll_upload(context)?;
        loop {
            if let Some(length) = self.parse_head()? {
                return Poll::Ready(Ok(self.answer(length)));
            }
            if !ready!(self.input.poll_read(&mut self.io, context))? {
                return Poll::Ready(Err(UpstreamError::Closed));
            }
        }
    }

    /// Sends what there is of the request.
    fn poll_upload(&mut self, context: &mut Context<'_>) -> Result<(), UpstreamError> {
        match self.output.poll(&mut self.io, context) {
            Poll::Ready(Err(cut)) => Err(UpstreamError::Upload(cut)),
            Poll::Ready(Ok(())) | Poll::Pending => Ok(()),
        }
    }

    /// Returns the length of the answer's head once it is there, behind any interim answers, which
    /// are left out.
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

    /// Returns an interim answer whose head has `length` bytes.
    #[cold]
    fn interim_head(&mut self, status: StatusCode, length: usize) -> Response<()> {
        self.head.lower_names(&mut self.input.bytes);
        let bytes = Bytes::copy_from_slice(&self.input.bytes[..length]);
        let mut headers = FieldList::default();
        self.head.move_fields(bytes, &mut headers);
        let head = response::ResponseHead { status, reason: None, headers };
        Response::from_parts(Box::new(head), ())
    }

    /// Takes the interim answers that have come since the last call, but for 100.
    pub(crate) fn take_interim(&mut self) -> Option<Vec<Response<()>>> {
        (!self.interim.is_empty()).then(|| mem::take(&mut self.interim))
    }

    /// Returns the answer whose head has `length` bytes.
    fn answer(&mut self, length: usize) -> Response<()> {
        self.head.lower_names(&mut self.input.bytes);
        let bytes = self.input.take(length);
        self.body = BodyDecoder::new(self.head.framing().body, limits(&self.settings));
        if let Some(length) = self.body.left() {
            let left = length.saturating_sub(self.input.bytes.len() as u64);
            self.input.expect(usize::try_from(left).unwrap_or(usize::MAX));
        }
        self.has_trailers = false;
        let mut answer = self.answer.take().unwrap_or_default();
        answer.status = self.head.status();
        let usual = answer.status.canonical_reason().map(str::as_bytes);
        let reason = Some(self.head.reason(&bytes)).filter(|reason| usual != Some(reason));
        answer.reason = reason.and_then(|reason| ReasonPhrase::try_from(reason).ok());
        self.head.move_fields(bytes, &mut answer.headers);
        Response::from_parts(answer, ())
    }

    /// Polls for the next part of the answer's body. What has not left yet of the request's is sent
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

    /// Whether a body may end with this error: that of TLS for a connection that ends without notice.
    #[cold]
    fn may_end_with(&self, error: &io::Error) -> bool {
        error.kind() == io::ErrorKind::UnexpectedEof
            && self.head.framing().body == BodyLength::UntilClose
            && self.settings.tls.as_deref().is_some_and(UpstreamTls::may_end_unnoticed)
    }

    /// Returns the data in what was read, if there is any.
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

    /// Whether all of the answer has been read.
    ///
    /// The end of one in chunks must be read by itself if it is early: what follows may be delayed
    /// then until the client stops sending.
    pub(crate) fn is_end(&self) -> bool {
        let is_early = self.head.framing().body == BodyLength::Chunked && !self.is_sent();
        self.body.is_end() && !self.has_trailers && !is_early
    }

    /// Returns how much of the answer's body is left, as far as that is known.
    pub(crate) fn size_hint(&self) -> SizeHint {
        self.body.left().map_or_else(SizeHint::default, SizeHint::with_exact)
    }

    /// Whether all of the request has left for the server, as far as the system knows.
    pub(crate) fn is_sent(&self) -> bool {
        self.output.is_sent()
    }

    /// Makes it idle. Returns whether another request may follow the one that was answered.
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

    /// Whether the server has neither closed it nor sent anything since it became idle. What is sent
    /// unasked would be taken for the answer to the next request.
    pub(super) fn is_quiet_by_runtime(&mut self) -> bool {
        self.io.is_quiet_by_runtime()
    }

    /// The same, asked of the system: between its news the runtime may be late.
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
    /// Ends an idle connection in good order, which means something to TLS.
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

/// As the tunnel that it becomes with a 101.
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

//! A response's body on its way to the client. Its end, however it comes, is the end of the request.

use super::{encoder::Encoder, tunnel::Joined};
use crate::flow::Instant;
use crate::proxy::{
    body::{Cut, EarlyEnd},
    message::{
        grpc::{self, Code},
        hop_by_hop::strip_trailers,
    },
    rate_limit_headers::RateLimitFields,
    record::Completion,
    timeouts::{body_timeout::BodyTimeout, streams::Part, timeout::Timeout},
    upstream::{Http1Connection, error::UpstreamError},
};
use bytes::Bytes;
use core::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use http::{HeaderMap, Version};
use http_body::{Body, Frame, SizeHint};
use std::io;

/// The time that the trailers of a call that has taken too long may wait for its client.
const GRPC_GRACE: Duration = Duration::from_secs(5);

/// Why a response was cut off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResponseCut {
    /// The upstream stopped sending.
    #[error("the upstream stopped in the middle of its answer")]
    UpstreamStalled,
    /// The request took longer than the route allows.
    #[error("the request took longer than the route allows")]
    Deadline,
    /// The request's body was cut off.
    #[error(transparent)]
    Upload(Cut),
    /// The upstream's response broke off, or is malformed.
    #[error("the answer could not be read")]
    Upstream(#[source] Box<UpstreamError>),
    /// The encoder cannot go on.
    #[error("the response could not be compressed")]
    Encoder(#[source] io::Error),
}

impl From<UpstreamError> for ResponseCut {
    fn from(error: UpstreamError) -> Self {
        if let UpstreamError::Upload(cut) = error {
            Self::Upload(cut)
        } else {
            Self::Upstream(Box::new(error))
        }
    }
}

/// A response's body on its way to the client. Its end, however it comes, is the
/// end of the request.
#[derive(Debug)]
pub(crate) struct ResponseBody {
    source: Source,
    completion: Box<Completion>,
    /// What its end waits for, if it is early.
    end: Option<EarlyEnd>,
    /// Why it breaks off, once what came before is on its way.
    cut: Option<ResponseCut>,
}

#[derive(Debug)]
enum Source {
    Own(Option<Bytes>),
    /// The client gets no response.
    NoResponse,
    /// Over the connection that the completion has on loan.
    Upstream {
        body_timeout: BodyTimeout,
        /// True if the client learns from trailers why it is cut off.
        is_grpc: bool,
        /// Compresses it, if that is wanted.
        encoder: Option<Box<Encoder>>,
    },
    /// None: the connection is the server's from here on.
    Tunnel {
        server: Box<Http1Connection>,
        idle: Duration,
    },
}

impl ResponseBody {
    /// Responds with `bytes` of our own.
    pub(crate) fn own(bytes: Bytes, mut completion: Box<Completion>) -> Self {
        let source = Source::Own(Some(bytes).filter(|bytes| !bytes.is_empty()));
        if matches!(source, Source::Own(None)) {
            completion.complete();
        }
        Self { source, completion, end: None, cut: None }
    }

    /// Ends the connection, or the stream of HTTP/2, without a response.
    pub(crate) fn none(mut completion: Box<Completion>) -> Self {
        completion.close();
        Self { source: Source::NoResponse, completion, end: None, cut: None }
    }

    /// Passes on what the upstream sends, with no pause longer than `body_timeout`. Trailers say to a
    /// client of gRPC over HTTP/2 that its deadline has passed. `encoder` compresses it.
    pub(crate) fn upstream(
        body_timeout: BodyTimeout,
        is_grpc: bool,
        encoder: Option<Box<Encoder>>,
        mut completion: Box<Completion>,
    ) -> Self {
        if completion.is_read() && encoder.is_none() {
            completion.complete();
        }
        if let Some(stream) = &completion.arrival.stream {
            // What ends it is a reset, and would overtake trailers.
            let grace = if is_grpc { GRPC_GRACE } else { Duration::ZERO };
            stream.end_by(body_timeout.deadline + grace);
        }
        Self {
            source: Source::Upstream { body_timeout, is_grpc, encoder },
            completion,
            end: None,
            cut: None,
        }
    }

    /// Joins the client to `server`, until both are silent for `idle`.
    pub(crate) fn tunnel(
        server: Box<Http1Connection>,
        idle: Duration,
        completion: Box<Completion>,
    ) -> Self {
        Self { source: Source::Tunnel { server, idle }, completion, end: None, cut: None }
    }

    /// Ends it and its request, and returns what the next request of its connection can use.
    pub(crate) fn end(self) -> Box<Completion> {
        self.completion.renew()
    }

    /// Returns whether it is none, and the client is to be joined to its server.
    pub(crate) fn is_tunnel(&self) -> bool {
        matches!(self.source, Source::Tunnel { .. })
    }

    /// Returns whether the client gets no response.
    pub(crate) fn is_without_response(&self) -> bool {
        matches!(self.source, Source::NoResponse)
    }

    /// Returns the server that the client is to be joined to.
    pub(crate) fn into_tunnel(self) -> Option<Joined<Box<Http1Connection>>> {
        match self.source {
            Source::Tunnel { server, idle } => {
                Some(Joined { server, idle, completion: self.completion })
            }
            Source::Own(_) | Source::NoResponse | Source::Upstream { .. } => None,
        }
    }

    /// Returns whether no request may follow on a connection of HTTP/1.
    pub(crate) fn closes(&self) -> bool {
        self.completion.closes
    }

    /// Returns when its request must have ended, however slowly the client takes it.
    pub(crate) fn deadline(&self) -> Instant {
        match &self.source {
            Source::Upstream { body_timeout, .. } => body_timeout.deadline,
            Source::Own(_) | Source::NoResponse | Source::Tunnel { .. } => Instant::FAR_FUTURE,
        }
    }

    /// Notes which limit it was cut off for.
    pub(crate) fn time_out(&mut self, timeout: Timeout) {
        self.completion.upstream.timeout = Some(timeout);
    }
}

/// Removes from a response's trailers what its client may not receive.
fn strip(trailers: &mut HeaderMap, completion: &Completion) {
    match &completion.route {
        Some(route) => {
            let quota = completion.decision.quota.as_ref().map_or(&[][..], RateLimitFields::fields);
            strip_trailers(trailers, &route.options.response_headers, quota);
        }
        None => trailers.clear(),
    }
}

impl ResponseBody {
    /// Ends the response to a call of gRPC whose deadline has passed.
    #[cold]
    fn end_late(&mut self) -> Frame<Bytes> {
        self.completion.cut_off();
        self.source = Source::Own(None);
        let why = "the deadline has passed";
        Frame::trailers(grpc::trailers(Code::DeadlineExceeded, why))
    }

    /// Polls for the next part that the upstream sends.
    #[inline]
    fn poll_upstream(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseCut>>> {
        let Source::Upstream { body_timeout, is_grpc, .. } = &mut self.source else {
            return Poll::Ready(None);
        };
        if let Poll::Ready(mut frame) = self.completion.poll_frame(context) {
            body_timeout.renew();
            if let Some(Ok(part)) = &mut frame {
                if let Some(data) = part.data_ref() {
                    self.completion.read_part(data);
                }
                if let Some(trailers) = part.trailers_mut() {
                    self.completion.read_trailing_costs(trailers);
                    strip(trailers, &self.completion);
                    if trailers.is_empty() {
                        frame = None;
                    }
                }
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(ResponseCut::from)));
        }

        let peer = &self.completion.peer;
        let stream = &self.completion.arrival.stream;
        let deadline = |until| peer.poll_deadline(stream.as_ref(), until, context);
        let is_late = ready!(body_timeout.poll_with(&peer.worker.clock, deadline));
        let cut = if is_late { ResponseCut::Deadline } else { ResponseCut::UpstreamStalled };
        self.completion.upstream.timeout = Some(body_timeout.over());
        let has_trailers = *is_grpc && matches!(cut, ResponseCut::Deadline);
        Poll::Ready(Some(if has_trailers { Ok(self.end_late()) } else { Err(cut) }))
    }

    /// Polls for the next part of a body that is compressed.
    #[inline(never)]
    fn poll_encoded(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseCut>>> {
        loop {
            let Some(encoder) = self.encoder() else { return Poll::Ready(None) };
            if let Some(output) = encoder.take_output() {
                return Poll::Ready(Some(Ok(Frame::data(output))));
            }
            if encoder.is_finished() {
                let trailers = encoder.take_trailers();
                return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
            }

            let polled = self.poll_upstream(context);
            let Some(encoder) = self.encoder() else { return Poll::Ready(None) };
            let done = match polled {
                Poll::Pending => {
                    let flushed = encoder.flush();
                    if flushed.is_ok() && !encoder.has_output() {
                        return Poll::Pending;
                    }
                    flushed
                }
                Poll::Ready(None) => encoder.finish(None),
                Poll::Ready(Some(Err(cut))) => return Poll::Ready(Some(Err(cut))),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => encoder.write(&data),
                    Err(frame) => encoder.finish(frame.into_trailers().ok()),
                },
            };
            if let Err(error) = done {
                return Poll::Ready(Some(Err(ResponseCut::Encoder(error))));
            }
        }
    }

    fn encoder(&mut self) -> Option<&mut Encoder> {
        match &mut self.source {
            Source::Upstream { encoder, .. } => encoder.as_deref_mut(),
            Source::Own(_) | Source::NoResponse | Source::Tunnel { .. } => None,
        }
    }

    /// Notes that the response breaks off.
    #[cold]
    fn break_off(
        &mut self,
        cut: Option<ResponseCut>,
        context: &Context<'_>,
    ) -> Poll<Option<Result<Frame<Part>, ResponseCut>>> {
        if let Some(ResponseCut::Upstream(why)) = &cut {
            self.completion.note_broken_off(why);
        }
        self.completion.fail();
        if self.completion.arrival.version != Version::HTTP_2 {
            return Poll::Ready(cut.map(Err));
        }
        // A reset drops what h2 has not written yet.
        self.cut = cut;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Body for ResponseBody {
    type Data = Part;
    type Error = ResponseCut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Part>, ResponseCut>>> {
        let this = &mut *self;
        if this.cut.is_some() {
            return Poll::Ready(this.cut.take().map(Err));
        }

        let frame = match &mut this.source {
            Source::Upstream { .. } if this.end.is_some() => None,
            Source::Own(bytes) => bytes.take().map(|bytes| Ok(Frame::data(bytes))),
            Source::NoResponse | Source::Tunnel { .. } => None,
            Source::Upstream { encoder: None, .. } => ready!(this.poll_upstream(context)),
            Source::Upstream { encoder: Some(_), .. } => ready!(this.poll_encoded(context)),
        };

        let ended = match &frame {
            None => {
                if this.end.is_none() {
                    this.completion.complete();
                    this.end = this.completion.early_end();
                }
                if let Some(end) = &mut this.end {
                    ready!(end.poll(context));
                }
                true
            }
            Some(Err(_)) => return this.break_off(frame.and_then(Result::err), context),
            Some(Ok(part)) => {
                if let Some(bytes) = part.data_ref() {
                    this.completion.add_bytes(bytes.len());
                }
                // Nothing asks for more after trailers.
                part.is_trailers() || this.is_end_stream()
            }
        };

        if ended {
            this.completion.complete();
        }
        let part = |bytes| Part::new(bytes, this.completion.arrival.stream.as_ref());
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(part))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Own(bytes) => bytes.is_none(),
            Source::Upstream { encoder: None, .. } => self.completion.is_read(),
            Source::Upstream { encoder: Some(encoder), .. } => encoder.is_over(),
            Source::NoResponse | Source::Tunnel { .. } => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Own(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Source::Upstream { encoder: None, .. } => self.completion.size_hint(),
            Source::Upstream { encoder: Some(_), .. } => SizeHint::default(),
            Source::NoResponse | Source::Tunnel { .. } => SizeHint::with_exact(0),
        }
    }
}

//! Bodies on their way through: nothing is gathered, everything is bounded.

use super::{
    client_body::{ClientBody, ClientBodyError},
    grpc::{self, Code},
    headers::strip_trailers,
    lingering::{EarlyEnd, drain},
    pace::Pace,
    peer::Peer,
    stamp::Stamp,
    streams::Part,
    tail::Tail,
    timeout::Timeout,
    timer::RequestTimer,
    trailers::RequestTrailers,
    upgrade::Joined,
    upload_buffer::{BodyBuffer, UploadPart},
    upstream::{Http1Connection, error::UpstreamError},
};
use crate::{clock::Clock, config::Route, flow::Instant};
use bytes::Bytes;
use core::{
    num::NonZeroU64,
    pin::Pin,
    sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed},
    task::{Context, Poll, ready},
    time::Duration,
};
use http::{HeaderMap, Version};
use http_body::{Body, Frame, SizeHint};
use std::{collections::VecDeque, sync::Arc};
use tokio::{sync::Notify, time::Sleep};

/// How long the trailers of a call that has taken too long may wait for its client.
const GRPC_GRACE: Duration = Duration::from_secs(5);

/// Why a body was cut off.
#[derive(Debug, thiserror::Error)]
pub(super) enum Cut {
    /// The client sent more than the route takes.
    #[error("the request body is longer than the route allows")]
    TooLong,
    /// The client stopped sending.
    #[error("the client stopped in the middle of its request body")]
    ClientStalled,
    /// The client sent less than the route wants.
    #[error("the client sent its request body too slowly")]
    ClientSlow,
    /// The upstream stopped sending.
    #[error("the upstream stopped in the middle of its answer")]
    UpstreamStalled,
    /// The request took longer than the route allows.
    #[error("the request took longer than the route allows")]
    Deadline,
    /// The request that it belongs to has ended.
    #[error("the request was given up")]
    GivenUp(#[source] h2::Error),
    /// The client's connection failed, or its body is malformed.
    #[error("the body could not be read")]
    Broken(#[source] ClientBodyError),
    /// The upstream's answer broke off, or is malformed.
    #[error("the answer could not be read")]
    Upstream(#[source] Box<UpstreamError>),
}

impl From<UpstreamError> for Cut {
    fn from(error: UpstreamError) -> Self {
        if let UpstreamError::Upload(cut) = error { cut } else { Self::Upstream(Box::new(error)) }
    }
}

/// How far an upload has come, for the task that waits for the answer.
#[derive(Debug, Default)]
pub(super) struct Upload {
    /// Whether its length was declared.
    pub(super) is_declared: bool,
    bytes: AtomicU64,
    state: AtomicU8,
    /// When its last part was taken to be sent on.
    taken: Stamp,
    /// Notified when it is read no more, in HTTP/2.
    pub(super) gone: Notify,
}

/// The states of an [`Upload`].
pub(super) mod upload {
    /// The upstream has yet to take what the client sent.
    pub(in crate::proxy) const UNDER_WAY: u8 = 0;
    pub(in crate::proxy) const DONE: u8 = 1;
    pub(in crate::proxy) const TOO_LONG: u8 = 2;
    pub(in crate::proxy) const STALLED: u8 = 3;
    pub(in crate::proxy) const BROKEN: u8 = 4;
    /// The client's next part is waited for.
    pub(in crate::proxy) const AWAITED: u8 = 5;
    pub(in crate::proxy) const SLOW: u8 = 6;

    /// Returns the limit that cut an upload off in this state, if one did.
    pub(in crate::proxy) fn timeout(state: u8) -> Option<super::Timeout> {
        match state {
            STALLED => Some(super::Timeout::Idle),
            SLOW => Some(super::Timeout::BodyRate),
            _ => None,
        }
    }
}

impl Upload {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// One of [`upload`]'s constants.
    pub(super) fn state(&self) -> u8 {
        self.state.load(Relaxed)
    }

    /// Returns whether it was cut off for the client's doing.
    pub(super) fn is_cut(&self) -> bool {
        use upload::{BROKEN, SLOW, STALLED, TOO_LONG};
        matches!(self.state(), TOO_LONG | STALLED | BROKEN | SLOW)
    }

    /// Returns when its last part was taken to be sent on, if any was; once it is done,
    /// that is when it ended.
    pub(super) fn taken(&self) -> Option<Instant> {
        self.taken.get()
    }
}

/// A request's body on its way to the upstream.
#[derive(Debug)]
pub(super) enum RequestBody {
    /// There is none.
    Empty,
    /// What the client sends, up to a limit.
    Streaming(Box<Streaming>),
}

/// See [`RequestBody::Streaming`].
#[derive(Debug)]
pub(super) struct Streaming {
    /// There until this is dropped.
    incoming: Option<ClientBody>,
    /// In HTTP/2 only.
    buffer: Option<BodyBuffer>,
    /// Bytes that may still come.
    left: u64,
    /// `None`: the upstream receives none.
    trailers: Option<RequestTrailers>,
    upload: Arc<Upload>,
    clock: Clock,
    patience: Patience,
    pace: Option<Pace>,
    /// What was sent in vain, and is sent again first.
    again: VecDeque<Again>,
}

/// A part of a body that is sent again.
#[derive(Debug)]
pub(super) enum Again {
    Data(Bytes),
    Trailers(HeaderMap),
}

impl Again {
    fn len(&self) -> usize {
        match self {
            Self::Data(bytes) => bytes.len(),
            Self::Trailers(_) => 0,
        }
    }
}

impl RequestBody {
    /// Wraps what the client sends: as much, and with no longer pauses, than the
    /// route allows, and at least `pace` bytes a second.
    pub(super) fn new(
        incoming: ClientBody,
        route: &Route,
        pace: Option<NonZeroU64>,
        peer: &Peer,
        trailers: Option<RequestTrailers>,
    ) -> Self {
        if matches!(incoming, ClientBody::Empty) {
            return Self::Empty;
        }
        let is_declared = incoming.size_hint().exact().is_some();
        let upload = Arc::new(Upload { is_declared, ..Upload::default() });
        let buffer = peer.upload_buffer().map(|buffer| BodyBuffer::new(buffer, &upload));
        let clock = &peer.worker.clock;
        // HTTP/2 may say only later that a body of length 0 ends, and nothing would ask for more.
        if incoming.is_end_stream() || incoming.size_hint().exact() == Some(0) {
            if let Some(buffer) = buffer {
                drain(incoming, buffer, clock);
            }
            return Self::Empty;
        }
        Self::Streaming(Box::new(Streaming {
            incoming: Some(incoming),
            buffer,
            left: route.options.body_limit,
            trailers,
            upload,
            clock: clock.clone(),
            patience: Patience::new(
                Timeout::Idle,
                route.options.timeouts.idle,
                Instant::FAR_FUTURE,
            ),
            pace: pace.map(Pace::new),
            again: VecDeque::new(),
        }))
    }

    /// Returns where its progress can be followed, or `None` if it is empty.
    pub(super) fn upload(&self) -> Option<Arc<Upload>> {
        match self {
            Self::Empty => None,
            Self::Streaming(body) => Some(Arc::clone(&body.upload)),
        }
    }

    /// Has `sent`, which was sent in vain, sent again before the rest.
    pub(super) fn begin_again(&mut self, sent: Vec<Again>) {
        if let Self::Streaming(body) = self {
            let unsent = core::mem::take(&mut body.again);
            body.again = sent.into_iter().chain(unsent).collect();
        }
    }
}

impl Streaming {
    fn cut(&self, state: u8, why: Cut) -> Poll<Option<Result<Frame<UploadPart>, Cut>>> {
        self.upload.state.store(state, Relaxed);
        Poll::Ready(Some(Err(why)))
    }
}

impl Drop for Streaming {
    fn drop(&mut self) {
        if let (Some(incoming), Some(buffer)) = (self.incoming.take(), self.buffer.take()) {
            drain(incoming, buffer, &self.clock);
        }
    }
}

impl Body for RequestBody {
    type Data = UploadPart;
    type Error = Cut;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<UploadPart>, Cut>>> {
        let Self::Streaming(body) = self.get_mut() else { return Poll::Ready(None) };
        if let Some(part) = body.again.pop_front() {
            return Poll::Ready(Some(Ok(match part {
                Again::Data(bytes) => Frame::data(UploadPart::from(bytes)),
                Again::Trailers(trailers) => Frame::trailers(trailers),
            })));
        }
        let Some(incoming) = &mut body.incoming else { return Poll::Ready(None) };
        let polled = match Pin::new(&mut *incoming).poll_frame(context) {
            Poll::Ready(frame) => {
                body.patience.renew();
                let now = body.clock.now();
                body.upload.taken.set(now);
                if let (Some(pace), Some(Ok(frame))) = (&mut body.pace, &frame) {
                    pace.receive(frame.data_ref().map_or(0, |data| data.len() as u64), now);
                }
                frame
            }
            Poll::Pending => {
                body.upload.state.store(upload::AWAITED, Relaxed);
                let pace = body.pace.as_mut();
                if pace.is_some_and(|pace| pace.poll(context, &body.clock).is_ready()) {
                    return body.cut(upload::SLOW, Cut::ClientSlow);
                }
                ready!(body.patience.poll(context, &body.clock, None));
                return body.cut(upload::STALLED, Cut::ClientStalled);
            }
        };
        match polled {
            None => {
                body.upload.state.store(upload::DONE, Relaxed);
                Poll::Ready(None)
            }
            Some(Err(error)) => body.cut(upload::BROKEN, Cut::Broken(error)),
            Some(Ok(mut frame)) => {
                let mut ended = frame.is_trailers();
                if let Some(trailers) = frame.trailers_mut() {
                    match &body.trailers {
                        Some(allowed) => allowed.filter(trailers),
                        None => trailers.clear(),
                    }
                }
                let length = frame.data_ref().map_or(0, |data| data.len() as u64);
                let Some(left) = body.left.checked_sub(length) else {
                    return body.cut(upload::TOO_LONG, Cut::TooLong);
                };
                body.left = left;
                body.upload.bytes.fetch_add(length, Relaxed);
                // Once all that was declared is here nothing asks for more, although HTTP/2
                // may say only later that it ends.
                ended |= incoming.is_end_stream();
                ended |= incoming.size_hint().exact() == Some(0);
                let state = if ended { upload::DONE } else { upload::UNDER_WAY };
                body.upload.state.store(state, Relaxed);
                let frame = frame.map_data(|bytes| match &body.buffer {
                    Some(buffer) => buffer.hold(bytes),
                    None => UploadPart::from(bytes),
                });
                Poll::Ready(Some(Ok(frame)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Streaming(body) => {
                body.again.is_empty() && body.incoming.as_ref().is_none_or(Body::is_end_stream)
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Streaming(body) => {
                let rest =
                    body.incoming.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
                let again: usize = body.again.iter().map(Again::len).sum();
                match rest.exact() {
                    Some(rest) => SizeHint::with_exact(rest + again as u64),
                    None => rest,
                }
            }
        }
    }
}

/// An answer's body on its way to the client. Its end, however it comes, is the
/// end of the request.
#[derive(Debug)]
pub(super) struct ResponseBody {
    source: Source,
    tail: Box<Tail>,
    /// What its end waits for, if it is early.
    end: Option<EarlyEnd>,
    /// Why it breaks off, once what came before is on its way.
    cut: Option<Cut>,
}

#[derive(Debug)]
enum Source {
    Own(Option<Bytes>),
    /// Over the connection that the tail has on loan.
    Upstream {
        patience: Patience,
        /// Whether the client learns from trailers why it is cut off.
        is_grpc: bool,
    },
    /// None: the connection is the server's from here on.
    Tunnel {
        server: Box<Http1Connection>,
        idle: Duration,
    },
}

impl ResponseBody {
    /// Answers with `bytes` of our own.
    pub(super) fn own(bytes: Bytes, mut tail: Box<Tail>) -> Self {
        let source = Source::Own(Some(bytes).filter(|bytes| !bytes.is_empty()));
        if matches!(source, Source::Own(None)) {
            tail.complete();
        }
        Self { source, tail, end: None, cut: None }
    }

    /// Passes on what the upstream sends, with no pause longer than `patience`. Trailers tell a
    /// client of gRPC over HTTP/2 that its deadline has passed.
    pub(super) fn upstream(patience: Patience, is_grpc: bool, mut tail: Box<Tail>) -> Self {
        if tail.is_read() {
            tail.complete();
        }
        Self { source: Source::Upstream { patience, is_grpc }, tail, end: None, cut: None }
    }

    /// Joins the client to `server`, until both are silent for `idle`.
    pub(super) fn tunnel(server: Box<Http1Connection>, idle: Duration, tail: Box<Tail>) -> Self {
        Self { source: Source::Tunnel { server, idle }, tail, end: None, cut: None }
    }

    /// Returns the server that the client is to be joined to.
    ///
    /// # Errors
    ///
    /// There is none: it is a body.
    #[expect(clippy::result_large_err, reason = "moved once; a box would be an allocation")]
    pub(super) fn into_tunnel(self) -> Result<Joined<Box<Http1Connection>>, Self> {
        match self.source {
            Source::Tunnel { server, idle } => Ok(Joined { server, idle, tail: self.tail }),
            source @ (Source::Own(_) | Source::Upstream { .. }) => Err(Self { source, ..self }),
        }
    }

    /// Whether no request may follow on a connection of HTTP/1.
    pub(super) fn closes(&self) -> bool {
        self.tail.closes
    }

    /// Returns when its request must have ended, however slowly the client takes it.
    pub(super) fn deadline(&self) -> Instant {
        match &self.source {
            Source::Upstream { patience, .. } => patience.deadline,
            Source::Own(_) | Source::Tunnel { .. } => Instant::FAR_FUTURE,
        }
    }

    /// Notes which limit it was cut off for.
    pub(super) fn time_out(&mut self, timeout: Timeout) {
        self.tail.timeout = Some(timeout);
    }
}

/// Removes from an answer's trailers what its client may not receive.
fn strip(trailers: &mut HeaderMap, tail: &Tail) {
    match &tail.route {
        Some(route) => strip_trailers(trailers, &route.options.response_headers, tail.told),
        None => trailers.clear(),
    }
}

impl ResponseBody {
    /// Ends the answer to a call of gRPC whose deadline has passed.
    fn end_late(&mut self) -> Frame<Bytes> {
        self.tail.cut_off();
        self.source = Source::Own(None);
        let why = "the deadline has passed";
        Frame::trailers(grpc::trailers(Code::DeadlineExceeded, why))
    }

    /// Notes that the answer breaks off.
    fn break_off(
        &mut self,
        cut: Option<Cut>,
        context: &Context<'_>,
    ) -> Poll<Option<Result<Frame<Part>, Cut>>> {
        if let Some(Cut::Upstream(why)) = &cut {
            self.tail.note_broken_off(why);
        }
        self.tail.fail();
        if self.tail.version != Version::HTTP_2 {
            return Poll::Ready(cut.map(Err));
        }
        // hyper drops what it has not written yet.
        self.cut = cut;
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Finds the stream at the first poll, which is in its task.
    fn find_stream(&mut self) {
        if self.tail.stream.is_some() || self.tail.version != Version::HTTP_2 {
            return;
        }
        self.tail.stream = self.tail.peer.http2.get().and_then(|activity| activity.stream());
        let stream = &self.tail.stream;
        if let (Some(stream), Source::Upstream { patience, is_grpc, .. }) = (stream, &self.source) {
            // What ends it is a reset, and would overtake trailers.
            let grace = if *is_grpc { GRPC_GRACE } else { Duration::ZERO };
            stream.end_by(patience.deadline + grace);
        }
    }
}

impl Body for ResponseBody {
    type Data = Part;
    type Error = Cut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Part>, Cut>>> {
        let this = &mut *self;
        this.find_stream();
        if this.cut.is_some() {
            return Poll::Ready(this.cut.take().map(Err));
        }
        let frame = match &mut this.source {
            Source::Upstream { .. } if this.end.is_some() => None,
            Source::Own(bytes) => bytes.take().map(|bytes| Ok(Frame::data(bytes))),
            Source::Tunnel { .. } => None,
            Source::Upstream { patience, is_grpc } => match this.tail.poll_frame(context) {
                Poll::Ready(mut frame) => {
                    patience.renew();
                    if let Some(Ok(frame)) = &mut frame
                        && let Some(trailers) = frame.trailers_mut()
                    {
                        strip(trailers, &this.tail);
                    }
                    frame.map(|frame| frame.map_err(Cut::from))
                }
                Poll::Pending => {
                    let peer = &this.tail.peer;
                    let timer = (this.tail.version != Version::HTTP_2).then_some(&peer.timer);
                    let cut = ready!(patience.poll(context, &peer.worker.clock, timer));
                    this.tail.timeout = Some(patience.over());
                    let is_told = *is_grpc && matches!(cut, Cut::Deadline);
                    Some(if is_told { Ok(this.end_late()) } else { Err(cut) })
                }
            },
        };
        let ended = match &frame {
            None => {
                if this.end.is_none() {
                    this.tail.complete();
                    this.end = this.tail.early_end();
                }
                if let Some(end) = &mut this.end {
                    ready!(end.poll(context));
                }
                true
            }
            Some(Err(_)) => return this.break_off(frame.and_then(Result::err), context),
            Some(Ok(part)) => {
                this.tail.add_bytes(part.data_ref().map_or(0, Bytes::len));
                // Nothing asks for more after trailers.
                part.is_trailers() || this.is_end_stream()
            }
        };
        if ended {
            this.tail.complete();
        }
        let part = |bytes| Part::new(bytes, this.tail.stream.as_ref());
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(part))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Own(bytes) => bytes.is_none(),
            Source::Upstream { .. } => self.tail.is_read(),
            Source::Tunnel { .. } => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Own(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Source::Upstream { .. } => self.tail.size_hint(),
            Source::Tunnel { .. } => SizeHint::with_exact(0),
        }
    }
}

/// How long to wait for the next part of a body. The timer is made at the first
/// wait: a body that comes with its head costs none.
#[derive(Debug)]
pub(super) struct Patience {
    /// The setting that `idle` comes from.
    setting: Timeout,
    idle: Duration,
    /// When the whole request must have ended.
    deadline: Instant,
    waiting: Option<Pin<Box<Sleep>>>,
    /// When the wait under way is too long, if there is one.
    until: Option<Instant>,
    /// Whether the deadline has passed.
    late: bool,
}

impl Patience {
    pub(super) fn new(setting: Timeout, idle: Duration, deadline: Instant) -> Self {
        Self { setting, idle, deadline, waiting: None, until: None, late: false }
    }

    /// Returns which limit the wait that has ended was too long for.
    fn over(&self) -> Timeout {
        if self.late { Timeout::Request } else { self.setting }
    }

    fn renew(&mut self) {
        self.until = None;
    }

    /// Waits with the timer of the request's connection, or without one by its own.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        clock: &Clock,
        timer: Option<&RequestTimer>,
    ) -> Poll<Cut> {
        let is_new = self.until.is_none();
        let limit = || self.deadline.min(clock.now() + self.idle);
        let until = *self.until.get_or_insert_with(limit);
        if let Some(timer) = timer {
            ready!(timer.poll(until));
        } else {
            let own = self.waiting.get_or_insert_with(|| Box::pin(clock.timer(until)));
            if is_new {
                own.as_mut().reset(clock.to_tokio(until));
            }
            ready!(own.as_mut().poll(context));
        }
        self.late = clock.now() >= self.deadline;
        Poll::Ready(if self.late { Cut::Deadline } else { Cut::UpstreamStalled })
    }
}

//! Bodies on their way through: nothing is gathered, everything is bounded.

use super::{
    activity::{Activity, Stamp, Uploading},
    grpc::{self, Code},
    headers::strip_trailers,
    lingering::{EarlyEnd, drain},
    pace::Pace,
    streams::Part,
    tail::Tail,
    timeout::Timeout,
    trailers::RequestTrailers,
    upload_buffer::{BodyBuffer, UploadPart},
    upstream::error::UpstreamError,
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
use hyper::body::Incoming;
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
    Broken(#[source] hyper::Error),
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
    incoming: Option<Incoming>,
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
    activity: Arc<Activity>,
    /// From when it is first asked for.
    noted: Option<Uploading>,
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
        incoming: Incoming,
        route: &Route,
        pace: Option<NonZeroU64>,
        (clock, activity): (&Clock, &Arc<Activity>),
        trailers: Option<RequestTrailers>,
    ) -> Self {
        let is_declared = incoming.size_hint().exact().is_some();
        let upload = Arc::new(Upload { is_declared, ..Upload::default() });
        let buffer = activity.upload_buffer().map(|buffer| BodyBuffer::new(buffer, &upload));
        // HTTP/2 may say only later that a body of length 0 ends, and nothing would ask for more.
        if incoming.is_end_stream() || incoming.size_hint().exact() == Some(0) {
            if let Some(buffer) = buffer {
                drain(incoming, buffer, activity);
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
            activity: Arc::clone(activity),
            noted: None,
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
    /// Notes that it is being read.
    fn begin(&mut self) {
        self.noted.get_or_insert_with(|| self.activity.upload());
    }

    fn cut(&self, state: u8, why: Cut) -> Poll<Option<Result<Frame<UploadPart>, Cut>>> {
        self.upload.state.store(state, Relaxed);
        Poll::Ready(Some(Err(why)))
    }
}

impl Drop for Streaming {
    fn drop(&mut self) {
        if self.upload.state() != upload::DONE {
            self.activity.on_unread();
        }
        if let (Some(incoming), Some(buffer)) = (self.incoming.take(), self.buffer.take()) {
            drain(incoming, buffer, &self.activity);
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
        body.begin();
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
                ready!(body.patience.poll(context, &body.clock));
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

    /// Finds the stream at the first poll, which is in its task.
    fn find_stream(&mut self) {
        if self.tail.stream.is_some() || self.tail.version != Version::HTTP_2 {
            return;
        }
        self.tail.stream = self.tail.peer.activity.stream();
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
            // A stream of HTTP/2 would not hear when that is over.
            let is_http1 = this.tail.version != Version::HTTP_2;
            let is_blocked = is_http1 && this.tail.peer.activity.is_blocked();
            return if is_blocked { Poll::Pending } else { Poll::Ready(this.cut.take().map(Err)) };
        }
        let frame = match &mut this.source {
            Source::Upstream { .. } if this.end.is_some() => None,
            Source::Own(bytes) => bytes.take().map(|bytes| Ok(Frame::data(bytes))),
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
                    let clock = &this.tail.peer.worker.clock;
                    let cut = ready!(patience.poll(context, clock));
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
            Some(Err(cut)) => {
                if let Cut::Upstream(why) = cut {
                    this.tail.note_broken_off(why);
                }
                this.tail.fail();
                // hyper drops what it has not written yet.
                this.cut = frame.and_then(Result::err);
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
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
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Own(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Source::Upstream { .. } => self.tail.size_hint(),
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
    /// Whether the wait that `waiting` was armed for is over.
    renewed: bool,
    /// Whether the deadline has passed.
    late: bool,
}

impl Patience {
    pub(super) fn new(setting: Timeout, idle: Duration, deadline: Instant) -> Self {
        Self { setting, idle, deadline, waiting: None, renewed: false, late: false }
    }

    /// Returns which limit the wait that has ended was too long for.
    fn over(&self) -> Timeout {
        if self.late { Timeout::Request } else { self.setting }
    }

    fn renew(&mut self) {
        self.renewed = true;
    }

    fn poll(&mut self, context: &mut Context<'_>, clock: &Clock) -> Poll<Cut> {
        if self.waiting.is_none() || self.renewed {
            self.renewed = false;
            let until = self.deadline.min(clock.now() + self.idle);
            match &mut self.waiting {
                Some(timer) => timer.as_mut().reset(clock.to_tokio(until)),
                None => self.waiting = Some(Box::pin(clock.timer(until))),
            }
        }
        let Some(timer) = &mut self.waiting else { return Poll::Pending };
        ready!(timer.as_mut().poll(context));
        self.late = clock.now() >= self.deadline;
        Poll::Ready(if self.late { Cut::Deadline } else { Cut::UpstreamStalled })
    }
}

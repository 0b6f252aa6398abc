//! A request's body on its way to the upstream: nothing is gathered, everything is bounded.

use super::{BodyCopy, ClientBody, Upload, UploadState, client_body::ClientBodyError, drain};
use crate::proxy::{
    connections::upload_buffer::{UploadBuffer, UploadPart},
    message::{Response, hop_by_hop::RequestTrailers},
    timeouts::{
        body_timeout::{BodyTimeout, Pace},
        streams::Stream,
        timeout::Timeout,
    },
};
use crate::{clock::Clock, config::Route, flow::Instant};
use bytes::Bytes;
use core::{
    num::NonZeroU64,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use http::{HeaderMap, StatusCode};
use http_body::{Body, Frame, SizeHint};
use std::{collections::VecDeque, sync::Arc};

/// Why a request's body was cut off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Cut {
    /// The client sent more than the route takes.
    #[error("the request body is longer than the route allows")]
    TooLong,
    /// The client stopped sending.
    #[error("the client stopped in the middle of its request body")]
    ClientStalled,
    /// The client sent less than the route wants.
    #[error("the client sent its request body too slowly")]
    ClientSlow,
    /// The client's connection failed, or its body is malformed.
    #[error("the body could not be read")]
    Broken(#[source] ClientBodyError),
}

/// A request's body on its way to the upstream.
#[derive(Debug)]
pub(crate) enum RequestBody {
    /// There is none.
    Empty,
    /// What the client sends, up to a limit.
    Streaming(Box<Streaming>),
}

/// See [`RequestBody::Streaming`].
#[derive(Debug)]
pub(crate) struct Streaming {
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
    body_timeout: BodyTimeout,
    pace: Option<Pace>,
    /// What was sent in vain, and is sent again first.
    again: VecDeque<Again>,
    /// The stream whose client waits for 100 before it sends the body, in HTTP/2.
    expectation: Option<Arc<Stream>>,
    /// Gets what the client sends, for a mirror.
    copy: Option<Box<BodyCopy>>,
}

/// A body of HTTP/2 that is being read from h2, which counts for what its connection holds.
#[derive(Debug)]
pub(crate) struct BodyBuffer {
    connection: Arc<UploadBuffer>,
    /// Notified when the body is read no more.
    upload: Arc<Upload>,
}

impl BodyBuffer {
    pub(crate) fn new(connection: &Arc<UploadBuffer>, upload: &Arc<Upload>) -> Self {
        connection.begin_body();
        Self { connection: Arc::clone(connection), upload: Arc::clone(upload) }
    }

    /// Wraps a part of the body, which is held until the returned value is dropped.
    pub(crate) fn hold(&self, bytes: Bytes) -> UploadPart {
        self.connection.hold(bytes)
    }
}

impl Drop for BodyBuffer {
    fn drop(&mut self) {
        self.upload.gone.notify_one();
        self.connection.end_body();
    }
}

/// A part of a body that is sent again.
#[derive(Debug)]
pub(crate) enum Again {
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
    pub(crate) fn new(
        incoming: ClientBody,
        route: &Route,
        pace: Option<NonZeroU64>,
        clock: &Clock,
        buffer: Option<&Arc<UploadBuffer>>,
        trailers: Option<RequestTrailers>,
    ) -> Self {
        if matches!(incoming, ClientBody::Empty) {
            return Self::Empty;
        }
        let is_declared = incoming.size_hint().exact().is_some();
        let upload = Arc::new(Upload::new(is_declared));
        let buffer = buffer.map(|buffer| BodyBuffer::new(buffer, &upload));

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
            body_timeout: BodyTimeout::new(
                Timeout::Idle,
                route.options.timeouts.idle,
                Instant::FAR_FUTURE,
            ),
            pace: pace.map(Pace::new),
            again: VecDeque::new(),
            expectation: None,
            copy: None,
        }))
    }

    /// Lets go of what was read of it before the decision, as no server gets it.
    pub(crate) fn forget_peeked(&mut self) {
        if let Self::Streaming(body) = self
            && let Some(ClientBody::Peeked(peeked)) = &mut body.incoming
        {
            let held = peeked.forget();
            // Its connection has counted it as unread until now.
            if let Some(buffer) = &body.buffer {
                drop(buffer.hold(held));
            }
        }
    }

    /// Returns a body that is here already.
    pub(crate) fn of_bytes(bytes: Bytes, clock: &Clock) -> Self {
        if bytes.is_empty() {
            return Self::Empty;
        }
        Self::Streaming(Box::new(Streaming {
            incoming: None,
            buffer: None,
            left: 0,
            trailers: None,
            upload: Arc::new(Upload::new(true)),
            clock: clock.clone(),
            body_timeout: BodyTimeout::new(Timeout::Idle, Duration::MAX, Instant::FAR_FUTURE),
            pace: None,
            again: VecDeque::from([Again::Data(bytes)]),
            expectation: None,
            copy: None,
        }))
    }

    /// Has the body copied while it passes. Nothing of it has been read.
    pub(crate) fn copy_to(&mut self, copy: BodyCopy) {
        if let Self::Streaming(body) = self {
            body.copy = Some(Box::new(copy));
        }
    }

    /// Notes that a client of HTTP/2 waits for 100 before it sends the body. One whose body was read
    /// before has got it.
    pub(crate) fn expect(&mut self, stream: &Arc<Stream>) {
        if let Self::Streaming(body) = self
            && !matches!(body.incoming, Some(ClientBody::Peeked(_)))
        {
            body.expectation = Some(Arc::clone(stream));
        }
    }

    /// Returns where its progress can be followed, or `None` if it is empty.
    pub(crate) fn upload(&self) -> Option<Arc<Upload>> {
        match self {
            Self::Empty => None,
            Self::Streaming(body) => Some(Arc::clone(&body.upload)),
        }
    }

    /// Returns whether its trailers may go to a server of HTTP/2.
    pub(crate) fn sends_trailers_in_http2(&self) -> bool {
        let Self::Streaming(body) = self else { return false };
        body.trailers.as_ref().is_some_and(RequestTrailers::pass_in_http2)
    }

    /// Has `sent`, which was sent in vain, sent again before the rest.
    pub(crate) fn begin_again(&mut self, sent: Vec<Again>) {
        if let Self::Streaming(body) = self {
            let unsent = core::mem::take(&mut body.again);
            body.again = sent.into_iter().chain(unsent).collect();
        }
    }
}

/// Asks the client of a stream of HTTP/2 to send the body.
#[cold]
pub(super) fn ask_for(stream: &Stream) {
    let mut response = Response::from_parts(Box::default(), ());
    *response.status_mut() = StatusCode::CONTINUE;
    stream.push_interim(response.into_http());
}

impl Streaming {
    /// Asks a client that waits for 100 to send the body. The body is first read before there is a
    /// response, which no 100 may follow.
    #[cold]
    fn ask(&mut self) {
        if let Some(stream) = self.expectation.take() {
            ask_for(&stream);
        }
    }

    /// Counts a frame of the client, and returns what the server gets of it. Nothing follows if it
    /// `is_last`.
    fn pass_on(
        &mut self,
        mut frame: Frame<Bytes>,
        is_last: bool,
    ) -> Poll<Option<Result<Frame<UploadPart>, Cut>>> {
        let is_last = is_last || frame.is_trailers();
        if let Some(trailers) = frame.trailers_mut() {
            match &self.trailers {
                Some(allowed) => allowed.filter(trailers),
                None => trailers.clear(),
            }
            if trailers.is_empty() {
                // Some HTTP/2 servers end the whole connection at a frame without fields.
                self.upload.set(UploadState::Done);
                self.copy_part(&[], is_last);
                return Poll::Ready(None);
            }
        }

        let length = frame.data_ref().map_or(0, |data| data.len() as u64);
        let Some(left) = self.left.checked_sub(length) else {
            return self.cut(UploadState::TooLong, Cut::TooLong);
        };
        self.left = left;
        if self.copy.is_some() {
            self.copy_part(frame.data_ref().map_or(&[][..], |data| data), is_last);
        }
        self.upload.add(length);
        self.upload.set(if is_last { UploadState::Done } else { UploadState::UnderWay });

        let frame = frame.map_data(|bytes| match &self.buffer {
            Some(buffer) => buffer.hold(bytes),
            None => UploadPart::from(bytes),
        });
        Poll::Ready(Some(Ok(frame)))
    }

    /// Adds a part to the copy for a mirror, if there is one.
    #[cold]
    fn copy_part(&mut self, part: &[u8], is_last: bool) {
        let copy = self.copy.take().and_then(|copy| copy.add(part));
        match copy {
            Some(copy) if is_last => copy.finish(),
            copy => self.copy = copy,
        }
    }

    fn cut(&self, state: UploadState, why: Cut) -> Poll<Option<Result<Frame<UploadPart>, Cut>>> {
        self.upload.set(state);
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
                body.expectation = None;
                body.body_timeout.renew();
                let now = body.clock.now();
                body.upload.take_at(now);
                if let (Some(pace), Some(Ok(frame))) = (&mut body.pace, &frame) {
                    pace.receive(frame.data_ref().map_or(0, |data| data.len() as u64), now);
                }
                frame
            }
            Poll::Pending => {
                body.upload.wait(&body.clock);
                if body.expectation.is_some() {
                    body.ask();
                }
                let pace = body.pace.as_mut();
                if pace.is_some_and(|pace| pace.poll(context, &body.clock).is_ready()) {
                    return body.cut(UploadState::Slow, Cut::ClientSlow);
                }
                ready!(body.body_timeout.poll(context, &body.clock));
                return body.cut(UploadState::Stalled, Cut::ClientStalled);
            }
        };

        match polled {
            None => {
                body.upload.set(UploadState::Done);
                body.copy_part(&[], true);
                Poll::Ready(None)
            }
            Some(Err(error)) => body.cut(UploadState::Broken, Cut::Broken(error)),
            Some(Ok(frame)) => {
                // Once all that was declared is here nothing asks for more, although HTTP/2
                // may say only later that it ends.
                let is_last = incoming.is_end_stream() || incoming.size_hint().exact() == Some(0);
                body.pass_on(frame, is_last)
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

//! The body of a client's request, on its way from the client's connection to whoever reads it.
//!
//! Over HTTP/2 the h2 crate has it. Over HTTP/1.1 the task of the connection reads it, one part at a
//! time and only when it is asked for, as that task alone sees whether the client has left.

use super::{BodyBuffer, peeked::PeekedBody};
use crate::{clock::Clock, flow::Instant, http1::BodyError};
use bytes::{Buf, Bytes};
use core::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};
use h2::RecvStream;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::{runtime::Handle, time::Sleep};

/// A request's body.
#[derive(Debug)]
pub(crate) enum ClientBody {
    /// There is none.
    Empty,
    Http1(Http1Body),
    Http2(Http2Body),
    /// The beginning of one of these was read.
    Peeked(Box<PeekedBody>),
}

impl ClientBody {
    /// Returns what a stream of HTTP/2 brings, of which the client has declared the length or not.
    pub(crate) fn of_stream(stream: RecvStream, declared: Option<u64>) -> Self {
        if stream.is_end_stream() {
            return Self::Empty;
        }
        Self::Http2(Http2Body { stream, left: declared, is_data_read: false })
    }
}

/// Why a body cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientBodyError {
    /// It is malformed, or the client left before its end.
    #[error(transparent)]
    Http1(#[from] BodyError),
    /// Its stream was reset before its end, or its connection has failed. In a box to keep results small.
    #[error(transparent)]
    Http2(Box<h2::Error>),
}

impl ClientBodyError {
    fn of_stream(error: h2::Error) -> Self {
        Self::Http2(Box::new(error))
    }
}

/// A body of HTTP/2.
#[derive(Debug)]
pub(crate) struct Http2Body {
    stream: RecvStream,
    /// Bytes to come, if the client has declared a length.
    left: Option<u64>,
    /// True once only trailers may follow.
    is_data_read: bool,
}

impl Http2Body {
    fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ClientBodyError>>> {
        if !self.is_data_read {
            match ready!(self.stream.poll_data(context)) {
                Some(Ok(data)) => {
                    // The client may send as much again. An error says that the stream is over.
                    drop(self.stream.flow_control().release_capacity(data.len()));
                    self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                // A reset, also one with NO_ERROR, comes before the end of the body.
                Some(Err(error)) => {
                    return Poll::Ready(Some(Err(ClientBodyError::of_stream(error))));
                }
                None => self.is_data_read = true,
            }
        }
        let trailers = ready!(self.stream.poll_trailers(context)).transpose();
        let frame = |trailers: Result<_, _>| {
            trailers.map(Frame::trailers).map_err(ClientBodyError::of_stream)
        };
        Poll::Ready(trailers.map(frame))
    }
}

/// A body of HTTP/1.1, for whoever reads it.
#[derive(Debug)]
pub(crate) struct Http1Body(Arc<Mutex<State>>);

/// The same, for the connection's task.
#[derive(Debug)]
pub(crate) struct BodySender(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    part: Option<Bytes>,
    trailers: Option<HeaderMap>,
    end: Option<Result<(), BodyError>>,
    /// What has not been read yet of a body whose length was declared.
    left: Option<u64>,
    /// True if the reader waits.
    is_wanted: bool,
    reader: Option<Waker>,
    connection: Waker,
}

/// Returns both sides of a body, of which the length is known if it was declared.
pub(crate) fn channel(left: Option<u64>, context: &Context<'_>) -> (BodySender, Http1Body) {
    let state = State {
        part: None,
        trailers: None,
        end: None,
        left,
        is_wanted: false,
        reader: None,
        connection: context.waker().clone(),
    };
    let state = Arc::new(Mutex::new(state));
    (BodySender(Arc::clone(&state)), Http1Body(state))
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn is_end(&self) -> bool {
        let is_read = self.part.is_none() && self.trailers.is_none();
        is_read && (self.left == Some(0) || matches!(self.end, Some(Ok(()))))
    }

    fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ClientBodyError>>> {
        if let Some(part) = self.part.take() {
            self.left = self.left.map(|left| left.saturating_sub(part.len() as u64));
            return Poll::Ready(Some(Ok(Frame::data(part))));
        }
        if let Some(trailers) = self.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }

        match self.end {
            Some(Ok(())) => return Poll::Ready(None),
            Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
            None => {}
        }

        self.is_wanted = true;
        let waker = context.waker();
        if !self.reader.as_ref().is_some_and(|reader| reader.will_wake(waker)) {
            self.reader = Some(waker.clone());
        }
        // The connection's task looks when it has polled the request.
        if !self.connection.will_wake(waker) {
            self.connection.wake_by_ref();
        }
        Poll::Pending
    }
}

impl BodySender {
    /// Returns whether the reader waits for a part.
    pub(crate) fn is_wanted(&self) -> bool {
        lock(&self.0).is_wanted
    }

    /// Hands over a part, which is not empty.
    pub(crate) fn send(&self, part: Bytes) {
        self.give(|state| state.part = Some(part));
    }

    /// Notes that it has ended.
    pub(crate) fn end(&self, trailers: Option<HeaderMap>) {
        self.give(|state| {
            state.trailers = trailers;
            state.end = Some(Ok(()));
        });
    }

    /// Notes that it cannot be read to its end.
    pub(crate) fn fail(&self, error: BodyError) {
        self.give(|state| state.end = Some(Err(error)));
    }

    fn give(&self, change: impl FnOnce(&mut State)) {
        let mut state = lock(&self.0);
        change(&mut state);
        state.is_wanted = false;
        let connection = &state.connection;
        let other = state.reader.as_ref().filter(|reader| !reader.will_wake(connection)).cloned();
        drop(state);
        other.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Http1Body {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.is_wanted = false;
        state.part = None;
        // It looks for its client's leave from now on.
        let connection =
            state.reader.as_ref().filter(|reader| !reader.will_wake(&state.connection));
        let connection = connection.is_some().then(|| state.connection.clone());
        drop(state);
        connection.into_iter().for_each(Waker::wake);
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = ClientBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ClientBodyError>>> {
        match self.get_mut() {
            Self::Empty => Poll::Ready(None),
            Self::Http1(body) => lock(&body.0).poll_frame(context),
            Self::Http2(body) => body.poll_frame(context),
            Self::Peeked(body) => body.poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Http1(body) => lock(&body.0).is_end(),
            Self::Http2(body) => body.stream.is_end_stream(),
            Self::Peeked(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Http1(body) => {
                let left = lock(&body.0).left;
                left.map_or_else(SizeHint::default, SizeHint::with_exact)
            }
            Self::Http2(body) => body.left.map_or_else(SizeHint::default, SizeHint::with_exact),
            Self::Peeked(body) => body.size_hint(),
        }
    }
}

/// The time that a client may go on sending: enough for one that first sends all and then reads.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// The time that it may be silent meanwhile.
pub(crate) const DRAIN_SILENCE: Duration = Duration::from_secs(5);

/// The most bytes that it may send: what `limits.body` would let pass by default.
pub(crate) const DRAIN_BYTES: usize = 1024 * 1024 * 1024;

/// The rest of a request's body that is read to save its connection: what a client sends in less
/// time than a new connection takes it, or a TLS handshake the gateway.
pub(crate) const DISCARD_BYTES: usize = 64 * 1024;

/// The bytes and the time that a client still has after its response.
#[derive(Debug)]
struct DrainLimits {
    /// Ends with the client's silence or with [`DRAIN_TIMEOUT`].
    timer: Pin<Box<Sleep>>,
    clock: Clock,
    end: Instant,
    /// Bytes that may still come.
    left: usize,
}

impl DrainLimits {
    fn begin(clock: &Clock) -> Self {
        let now = clock.now();
        let timer = Box::pin(clock.timer(now + DRAIN_SILENCE));
        Self { timer, end: now + DRAIN_TIMEOUT, clock: clock.clone(), left: DRAIN_BYTES }
    }

    /// Notes that `count` bytes came. Returns whether more may come.
    fn renew(&mut self, count: usize) -> bool {
        self.left = self.left.saturating_sub(count);
        let until = self.end.min(self.clock.now() + DRAIN_SILENCE);
        self.timer.as_mut().reset(self.clock.to_tokio(until));
        self.left > 0
    }

    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.timer.as_mut().poll(context)
    }
}

/// Takes what the client of HTTP/2 still sends of a body that is not needed, and then lets go of
/// it, upon which the stream is reset if the body has not ended.
///
/// Some clients lose a response if the reset arrives together with it: curl 7.88 reports an error,
/// and so does git. They stop by themselves once they have read the response.
pub(crate) fn drain(mut body: ClientBody, buffer: BodyBuffer, clock: &Clock) {
    if body.is_end_stream() {
        return;
    }
    // There is none when the worker has ended, and its connections with it.
    let Ok(runtime) = Handle::try_current() else { return };
    let mut limits = DrainLimits::begin(clock);
    runtime.spawn(async move {
        poll_fn(|context| {
            while let Poll::Ready(frame) = Pin::new(&mut body).poll_frame(context) {
                let Some(Ok(frame)) = frame else { return Poll::Ready(()) };
                let part = frame.into_data().map(|bytes| buffer.hold(bytes));
                if !limits.renew(part.map_or(0, |part| part.remaining())) {
                    return Poll::Ready(());
                }
            }
            limits.poll_end(context)
        })
        .await;
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::tests::Woken;

    #[test]
    fn a_reader_in_another_task_and_the_connection_wake_each_other() {
        let tasks = [(); 2].map(|()| Arc::<Woken>::default());
        let [connection, reader] = tasks.clone().map(Waker::from);
        let (sender, body) = channel(None, &Context::from_waker(&connection));
        let mut body = ClientBody::Http1(body);
        let mut poll = || Pin::new(&mut body).poll_frame(&mut Context::from_waker(&reader));
        assert!(!sender.is_wanted() && poll().is_pending());
        assert!(sender.is_wanted());
        assert_eq!(tasks.each_ref().map(|task| task.times()), [1, 0]);
        sender.send(Bytes::from_static(b"abc"));
        assert_eq!(tasks.each_ref().map(|task| task.times()), [1, 1]);
        assert!(!sender.is_wanted() && poll().is_ready());
        drop(body);
        assert!(!sender.is_wanted());
        assert_eq!(tasks.each_ref().map(|task| task.times()), [2, 1]);
    }
}

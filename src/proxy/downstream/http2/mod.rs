//! Serves a connection of HTTP/2: the h2 crate reads its requests, each gets a task, and one timer
//! watches over all.

mod client_frames;
mod frame_filter;
mod stream;

use super::unreadable::UnreadableRequest;
use crate::proxy::{
    body::ClientBody,
    connections::{
        activity::{Activity, NextAction},
        registry::{ConnectionOptions, GRACE},
        upload_buffer::{Receiver, UploadBuffer},
    },
    io::outgoing,
    message::http2_frame::PREFACE,
    peer::Peer,
    record::Completion,
    request::begin,
    timeouts::{streams::Part, timer::ConnectionTimer},
};
use crate::{config::ClientTimeouts, flow::Instant};
use bytes::Bytes;
use core::{
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Duration,
};
use frame_filter::FrameFilter;
use h2::{
    Ping, PingPong, RecvStream,
    server::{Builder, Connection, Handshake, SendResponse},
};
use http::{HeaderMap, Request, header::CONTENT_LENGTH};
use std::{io, sync::Arc};
use stream::{StreamTask, translate};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Streams that one HTTP/2 connection may have open at once.
const STREAMS_MAX: u32 = 100;
/// The most bytes of a response that h2 buffers; its default of 400 KiB times a
/// hundred streams would let one connection hold 40 MiB.
const STREAM_SEND_BUFFER: usize = 64 * 1024;
/// Flow-control windows of HTTP/2: what a client may send before it is read. A stream's is
/// what an upload transfers in one round trip; a connection's leaves room beside uploads that
/// their upstream does not take. What all connections hold has its own bound: see
/// [`UploadBuffer`].
const STREAM_WINDOW: u32 = 2 * 1024 * 1024;
const CONNECTION_WINDOW: u32 = 16 * 1024 * 1024;
/// The time for which a client may be silent before it gets a ping.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// The time for which it may be silent after that.
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// By how much a request's header in HTTP/2 may be larger than the limit to be rejected with an
/// explanation. h2 rejects a larger one with a status alone.
const EXPLAINED_BYTES: usize = 16 * 1024;

/// Speaks HTTP/2 until the connection ends.
pub(crate) async fn serve<T>(io: T, ahead: Bytes, peer: Arc<Peer>, options: ConnectionOptions)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let clock = peer.worker.clock.clone();
    let buffer = UploadBuffer::new(&peer.worker.counters, options.limits.upload_buffers);
    let made = Activity::new(&clock, &peer.handle, buffer);
    let activity = Arc::clone(peer.http2.get_or_init(|| made));
    let watched = Watched::new(io, ahead, &activity);
    let io = FrameFilter::new(watched, Arc::clone(&peer));
    let mut connection = ClientConnection::Handshake(builder(&options).handshake(io));

    peer.handle.on_http2();
    let armed = clock.now() + options.timeouts.header_read;
    let sleep = pin!(clock.timer(armed));
    let mut watch = Watch {
        activity: &activity,
        timeouts: &options.timeouts,
        timer: ConnectionTimer::new(&clock, sleep, armed),
        look_at: armed,
        is_closing: false,
        liveness: Liveness { pings: None, look_at: armed, is_asked: false },
    };

    let unread = poll_fn(|context| {
        peer.handle.wake_on_drain(context);
        loop {
            if connection.poll(&peer, &activity, &mut watch.liveness, context).is_ready() {
                return Poll::Ready(None);
            }
            // Not before it was polled: a request that has arrived is under way.
            if peer.handle.is_draining() && !watch.is_closing {
                watch.is_closing = true;
                if !connection.shut_down() {
                    return Poll::Ready(None);
                }
                continue;
            }
            match watch.poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Look::Ended(unread)) => return Poll::Ready(unread),
                Poll::Ready(Look::Close) if connection.shut_down() => {}
                Poll::Ready(Look::Close) => return Poll::Ready(None),
            }
        }
    })
    .await;
    if let Some(unread) = unread {
        unread.note(&peer);
    }
}

/// Returns what makes a connection of a client's socket.
fn builder(options: &ConnectionOptions) -> Builder {
    let list = options.limits.header_bytes + EXPLAINED_BYTES;
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(STREAMS_MAX)
        // A proxy in front may cancel all of its users' requests at once.
        .max_pending_accept_reset_streams(STREAMS_MAX as usize)
        .max_send_buffer_size(STREAM_SEND_BUFFER)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(u32::try_from(list).unwrap_or(u32::MAX))
        .enable_connect_protocol();
    builder
}

/// A client's connection, as far as it has come.
enum ClientConnection<T> {
    Handshake(Handshake<T, Part>),
    Open(Connection<T, Part>),
}

impl<T: AsyncRead + AsyncWrite + Unpin> ClientConnection<T> {
    /// Polls until the connection has ended, and begins the requests that come.
    fn poll(
        &mut self,
        peer: &Arc<Peer>,
        activity: &Activity,
        liveness: &mut Liveness,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        if let Self::Handshake(handshake) = self {
            let Ok(mut open) = ready!(Pin::new(handshake).poll(context)) else {
                return Poll::Ready(());
            };
            liveness.begin(open.ping_pong(), peer.worker.clock.now());
            *self = Self::Open(open);
        }
        let Self::Open(connection) = self else { return Poll::Pending };

        while let Some(Ok((request, reply))) = ready!(connection.poll_accept(context)) {
            accept(peer, activity, request, reply);
        }
        Poll::Ready(())
    }

    /// Begins to close the connection in good order. Returns false if there is nothing to wait for.
    fn shut_down(&mut self) -> bool {
        match self {
            Self::Handshake(_) => false,
            Self::Open(connection) => {
                connection.graceful_shutdown();
                true
            }
        }
    }
}

/// Begins a request, and has a task serve it.
fn accept(
    peer: &Arc<Peer>,
    activity: &Activity,
    request: Request<RecvStream>,
    reply: SendResponse<Part>,
) {
    let declared = declared_length(request.headers());
    let (request, tunnel) = translate(request);
    let request = request.map(|stream| {
        stream.map_or(ClientBody::Empty, |stream| ClientBody::of_stream(stream, declared))
    });

    let begun = begin(Completion::new(Arc::clone(peer)), request.into());
    let stream = activity.newest_stream();
    let task = StreamTask { begun, peer: Arc::clone(peer), stream: stream.clone(), reply, tunnel };
    let task = tokio::spawn(task.run());
    if let Some(stream) = stream {
        stream.serve(task.abort_handle());
    }
}

/// Returns the length of a body, if the client has declared one.
fn declared_length(headers: &HeaderMap) -> Option<u64> {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let first = lengths.next()?;
    let is_one = lengths.all(|other| other == first);
    first.to_str().ok()?.parse().ok().filter(|_| is_one)
}

/// Pings a client that is silent, and finds out whether its connection still lives.
struct Liveness {
    pings: Option<PingPong>,
    look_at: Instant,
    /// True if the client has got a ping and was silent since.
    is_asked: bool,
}

impl Liveness {
    fn begin(&mut self, pings: Option<PingPong>, now: Instant) {
        self.pings = pings;
        self.look_at = now + PING_INTERVAL;
    }

    /// Looks after the client at `now`. Returns whether it has not answered a ping.
    fn is_dead(&mut self, activity: &Activity, now: Instant, context: &mut Context<'_>) -> bool {
        let Some(pings) = self.pings.as_mut().filter(|_| self.look_at <= now) else { return false };

        if activity.was_heard() {
            self.is_asked = false;
            self.look_at = now + PING_INTERVAL;
            return false;
        }
        if self.is_asked {
            return true;
        }
        // h2 sends the next one only when the former's answer was taken.
        drop(pings.poll_pong(context));
        self.is_asked = pings.send_ping(Ping::opaque()).is_ok();
        self.look_at = now + PING_TIMEOUT;
        false
    }

    /// Returns when to look again.
    fn look_at(&self) -> Instant {
        if self.pings.is_some() { self.look_at } else { Instant::FAR_FUTURE }
    }
}

/// Watches over a connection with one timer.
struct Watch<'a, 't> {
    activity: &'a Activity,
    timeouts: &'a ClientTimeouts,
    timer: ConnectionTimer<'t>,
    /// The time when the connection is to be looked at.
    look_at: Instant,
    is_closing: bool,
    liveness: Liveness,
}

/// The result of a look at a connection.
enum Look {
    /// It is to end in good order.
    Close,
    /// It is cut off, perhaps because what has come of it is late.
    Ended(Option<UnreadableRequest>),
}

impl Watch<'_, '_> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Look> {
        loop {
            if let Some(urgent) = self.activity.urgent(self.timeouts) {
                self.look_at = self.look_at.min(urgent);
            }
            let look_at = self.look_at.min(self.liveness.look_at());
            let now = ready!(self.timer.poll(look_at, context));

            if self.liveness.is_dead(self.activity, now, context) {
                return Poll::Ready(Look::Ended(None));
            }
            self.look_at = match self.activity.next_action(now, self.timeouts) {
                NextAction::PrefaceLate => {
                    return Poll::Ready(Look::Ended(Some(UnreadableRequest::LATE)));
                }
                NextAction::Abort => return Poll::Ready(Look::Ended(None)),
                NextAction::Close if self.is_closing => return Poll::Ready(Look::Ended(None)),
                NextAction::Close => {
                    self.is_closing = true;
                    // The rest of the last response may be on its way still.
                    let is_blocked = self.activity.is_blocked();
                    self.look_at = now + if is_blocked { self.timeouts.write } else { GRACE };
                    return Poll::Ready(Look::Close);
                }
                NextAction::LookAgain(deadline) => deadline,
            };
        }
    }
}

/// A byte stream that notes blocked writes in its [`Activity`], and holds back what would be too much.
#[derive(Debug)]
pub(crate) struct Watched<T> {
    inner: T,
    /// The bytes that were read already, which are read once more before anything else.
    ahead: Bytes,
    activity: Arc<Activity>,
    /// Bytes of the preface that have yet to come.
    preface: usize,
    receiver: Receiver,
}

impl<T> Watched<T> {
    /// Wraps a socket of which the beginning was read, to be read again.
    pub(crate) fn new(inner: T, ahead: Bytes, activity: &Arc<Activity>) -> Self {
        let receiver = Receiver::new(Arc::clone(activity.upload_buffer()));
        Self { inner, ahead, activity: Arc::clone(activity), preface: PREFACE.len(), receiver }
    }

    fn note_read(&mut self, read: &[u8]) {
        self.activity.on_read();
        let mut frames = read;
        if self.preface > 0 {
            frames = read.get(self.preface..).unwrap_or_default();
            self.preface = self.preface.saturating_sub(read.len());
            if self.preface == 0 {
                self.activity.on_preface();
            }
        }
        self.receiver.on_received(frames);
    }

    fn noted<R>(&self, polled: Poll<R>) -> Poll<R> {
        self.activity.on_write(polled.is_pending());
        polled
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            let count = self.ahead.len().min(buffer.remaining());
            let again = self.ahead.split_to(count);
            buffer.put_slice(&again);
            self.note_read(&again);
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let Self { inner, receiver, activity, .. } = &mut *self;
        ready!(receiver.poll_room(activity.clock(), context));
        let polled = Pin::new(inner).poll_read(context, buffer);
        self.note_read(&buffer.filled()[before..]);
        polled
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.noted(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = outgoing::poll_write(&mut self.inner, context, slices);
        self.noted(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_flush(context);
        self.noted(polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_shutdown(context);
        self.noted(polled)
    }
}

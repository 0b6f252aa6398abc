//! Serves a connection of HTTP/2: hyper reads its requests, and one timer watches over it.

mod client_frames;
mod frame_filter;

use super::unreadable::UnreadableRequest;
use crate::proxy::{
    body::ClientBody,
    connections::{
        activity::{Activity, NextAction},
        registry::{ConnectionOptions, GRACE},
        upload_buffer::{Receiver, UploadBuffer},
    },
    io::outgoing,
    message::{ExtendedConnect, http2_frame::PREFACE},
    peer::Peer,
    record::completion::Completion,
    request::decide::begin,
    response::response_body::ResponseBody,
    timeouts::timer::ConnectionTimer,
};
use crate::{config::ClientTimeouts, flow::Instant};
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use core::{
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Duration,
};
use frame_filter::FrameFilter;
use http::{
    HeaderValue, Method, Request, Response,
    header::{CONNECTION, DATE, SEC_WEBSOCKET_KEY, UPGRADE},
};
use hyper::{body::Incoming, ext::Protocol, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{io, sync::Arc};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Streams that one HTTP/2 connection may have open at once.
const STREAMS_MAX: u32 = 100;
/// What hyper may buffer of one HTTP/2 response; its default of 400 KiB times a
/// hundred streams would let one connection hold 40 MiB.
const STREAM_SEND_BUFFER: usize = 64 * 1024;
/// Flow-control windows of HTTP/2: what a client may send before it is read. A stream's is
/// what an upload transfers in one round trip; a connection's leaves room beside uploads that
/// their upstream does not take. What all connections hold has its own bound: see
/// [`UploadBuffer`].
const STREAM_WINDOW: u32 = 2 * 1024 * 1024;
const CONNECTION_WINDOW: u32 = 16 * 1024 * 1024;
/// How often a silent HTTP/2 connection is asked whether it still lives.
const PING_INTERVAL: Duration = Duration::from_secs(30);
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
    let io = FrameFilter::new(watched, Arc::clone(&activity), Arc::clone(&peer));
    let served = Arc::clone(&peer);
    let service = service_fn(move |request| respond(&served, request));
    let mut connection = builder(&activity, &options).serve_connection(TokioIo::new(io), service);

    peer.handle.on_http2();
    let armed = clock.now() + options.timeouts.header_read;
    let sleep = pin!(clock.timer(armed));
    let mut watch = Watch {
        activity: &activity,
        timeouts: &options.timeouts,
        timer: ConnectionTimer::new(&clock, sleep, armed),
        look_at: armed,
        is_closing: false,
    };

    let unread = poll_fn(|context| {
        peer.handle.wake_on_drain(context);
        loop {
            // What the connection begins now are tasks of requests.
            drop(activity.take_upgrade());
            if Pin::new(&mut connection).poll(context).is_ready() {
                return Poll::Ready(None);
            }
            activity.interim().settle();
            // Not before it was polled: a request that has arrived is under way.
            if peer.handle.is_draining() && !watch.is_closing {
                watch.is_closing = true;
                Pin::new(&mut connection).graceful_shutdown();
                continue;
            }
            match watch.poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Look::Ended(unread)) => return Poll::Ready(unread),
                Poll::Ready(Look::Close) => Pin::new(&mut connection).graceful_shutdown(),
            }
        }
    })
    .await;

    if let Some(unread) = unread {
        unread.note(&peer);
    }
}

/// Returns what hyper serves the connection with.
fn builder(activity: &Arc<Activity>, options: &ConnectionOptions) -> http2::Builder<Spawner> {
    let list = options.limits.header_bytes + EXPLAINED_BYTES;
    let mut builder = http2::Builder::new(Spawner(Arc::clone(activity)));
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        // A proxy in front may cancel all of its users' requests at once.
        .max_pending_accept_reset_streams(STREAMS_MAX as usize)
        .max_send_buf_size(STREAM_SEND_BUFFER)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(u32::try_from(list).unwrap_or(u32::MAX))
        .keep_alive_interval(PING_INTERVAL)
        .auto_date_header(false)
        .enable_connect_protocol();
    builder
}

/// Begins a request. Returns what serves it, in a box, as it is large and hyper moves it several times.
fn respond(
    peer: &Arc<Peer>,
    request: Request<Incoming>,
) -> Pin<Box<impl Future<Output = Result<Response<ResponseBody>, NoResponse>> + use<>>> {
    let mut request = request.map(ClientBody::of_stream);
    translate(&mut request);
    let peer = Arc::clone(peer);
    let begun = begin(Completion::new(Arc::clone(&peer)), request.into());
    Box::pin(async move {
        let mut response = begun.serve().await;
        if response.body().is_without_response() {
            return Err(NoResponse);
        }
        if !response.headers().contains_key(&DATE) {
            response.headers_mut().append(DATE, peer.date());
        }
        Ok(response.into_http())
    })
}

/// A request that gets no response: hyper resets its stream, with `INTERNAL_ERROR` as nginx does.
#[derive(Debug, thiserror::Error)]
#[error("the request gets no response")]
struct NoResponse;

/// Runs streams as tasks that their connection knows.
#[derive(Clone, Debug)]
struct Spawner(Arc<Activity>);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Spawner {
    fn execute(&self, stream: F) {
        let Some(upgrade) = self.0.take_upgrade() else {
            let task = tokio::spawn(stream);
            return self.0.on_task(task.abort_handle());
        };
        let ends = Arc::clone(&upgrade);
        let task = tokio::spawn(async move {
            stream.await;
            ends.end();
        });
        upgrade.begin(task.abort_handle());
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
}

/// What a look at a connection has come to.
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
            let Poll::Ready(now) = self.timer.poll(self.look_at, context) else {
                return Poll::Pending;
            };
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
    /// What was read already and is to be read once more, before anything else.
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

/// Makes a CONNECT that names a protocol the GET that it stands for. Others stay as they are.
fn translate(request: &mut Request<ClientBody>) {
    if request.method() != Method::CONNECT {
        return;
    }
    let named = request.extensions_mut().remove::<Protocol>();
    let Some(token) = named.and_then(|name| HeaderValue::from_str(name.as_str()).ok()) else {
        return;
    };
    let client = hyper::upgrade::on(&mut *request);
    *request.method_mut() = Method::GET;
    *request.body_mut() = ClientBody::Empty;
    let is_websocket = token.as_bytes().eq_ignore_ascii_case(b"websocket");
    let headers = request.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, token);
    // HTTP/2 has none. It protects from responses of caches, and keeps no secret.
    let key = BASE64_STANDARD.encode(fastrand::u128(..).to_be_bytes());
    if is_websocket && let Ok(key) = HeaderValue::try_from(key) {
        headers.insert(SEC_WEBSOCKET_KEY, key);
    }
    request.extensions_mut().insert(ExtendedConnect(client));
}

//! Serves a connection of HTTP/2: hyper reads its requests, and one timer watches over it.

use super::{frame_filter::FrameFilter, io::Watched};
use crate::proxy::{
    body::{client_body::ClientBody, extended_connect::translate, upload_buffer::UploadBuffer},
    completion::Completion,
    connections::{
        activity::{Activity, NextAction},
        options::ConnectionOptions,
        registry::GRACE,
    },
    downstream::unreadable::UnreadableRequest,
    peer::Peer,
    request::decide::begin,
    response::response_body::ResponseBody,
    timeouts::timer::ConnectionTimer,
};
use crate::{config::ClientTimeouts, flow::Instant};
use bytes::Bytes;
use core::{
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};
use http::{Request, Response, header::DATE};
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};

/// Streams that one HTTP/2 connection may have open at once.
const STREAMS_MAX: u32 = 100;
/// What hyper may buffer of one HTTP/2 answer; its default of 400 KiB times a
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
    /// When the connection is to be looked at.
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
                    // The rest of the last answer may be on its way still.
                    let is_blocked = self.activity.is_blocked();
                    self.look_at = now + if is_blocked { self.timeouts.write } else { GRACE };
                    return Poll::Ready(Look::Close);
                }
                NextAction::LookAgain(deadline) => deadline,
            };
        }
    }
}

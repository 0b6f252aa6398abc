//! One client connection: protocol, limits, and its end.

use super::{
    activity::{Activity, Verdict},
    io::Watched,
    peer::Peer,
    service::handle,
    streams::Spawner,
};
use crate::{
    config::{ClientTimeouts, Limits, Settings},
    meter::Refusal,
};
use core::{
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};
use hyper::{
    Request,
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};

/// Streams that one HTTP/2 connection may have open at once.
const STREAMS_MAX: u32 = 100;
/// What hyper may buffer of one HTTP/2 answer; its default of 400 KiB times a
/// hundred streams would let one connection hold 40 MiB.
const STREAM_SEND_BUFFER: usize = 64 * 1024;
/// Flow-control windows of HTTP/2: what a client may send before it is read.
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// How often a silent HTTP/2 connection is asked whether it still lives.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// The least that hyper's read buffer may be limited to.
const BUFFER_MIN: usize = 64 * 1024;

/// The version of HTTP that a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// The limits of a connection, those of the configuration that it began under. A
/// copy: an idle connection must not keep a whole configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manners {
    pub(super) timeouts: ClientTimeouts,
    pub(super) limits: Limits,
}

impl Manners {
    pub(super) fn of(settings: &Settings) -> Self {
        Self { timeouts: settings.timeouts, limits: settings.limits }
    }
}

/// Serves a connection until it ends, is idle for too long or is drained.
pub(super) async fn serve<T>(io: T, protocol: Protocol, peer: Arc<Peer>, manners: Manners)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let activity = Arc::clone(&peer.activity);
    let io = TokioIo::new(Watched::new(io, Arc::clone(&activity), protocol == Protocol::Http1));
    let timeouts = manners.timeouts;
    let (worker, client) = (Arc::clone(&peer.worker), peer.address);
    let service = service_fn(move |request: Request<Incoming>| handle(Arc::clone(&peer), request));
    let refused = match protocol {
        Protocol::Http1 => {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                // The connection's own timer tells an idle client from a slow one.
                .header_read_timeout(None)
                .max_headers(manners.limits.headers)
                .max_header_size(manners.limits.header_bytes)
                .max_buf_size(BUFFER_MIN.max(manners.limits.header_bytes * 2))
                .serve_connection(io, service)
                .with_upgrades();
            drive(connection, &activity, &timeouts, &worker.clock).await
        }
        Protocol::Http2 => {
            let list = u32::try_from(manners.limits.header_bytes).unwrap_or(u32::MAX);
            let connection = http2::Builder::new(Spawner(Arc::clone(&activity)))
                .timer(TokioTimer::new())
                .max_concurrent_streams(STREAMS_MAX)
                .max_send_buf_size(STREAM_SEND_BUFFER)
                .initial_stream_window_size(STREAM_WINDOW)
                .initial_connection_window_size(CONNECTION_WINDOW)
                .max_header_list_size(list)
                .keep_alive_interval(PING_INTERVAL)
                .serve_connection(io, service);
            drive(connection, &activity, &timeouts, &worker.clock).await
        }
    };
    // Not in the access log: neither path nor host is known, and `replay` could not use it.
    if let Some(reason) = refused {
        worker.counters.refuse(reason);
        tracing::debug!(%client, reason = reason.label(), "a request was refused unread");
    }
}

/// Returns which refusal of hyper's, made before the gateway saw a request, a
/// connection has ended with.
fn refusal(error: &hyper::Error) -> Option<Refusal> {
    if error.is_parse_too_large() {
        return Some(Refusal::TooLarge);
    }
    error.is_parse().then_some(Refusal::Malformed)
}

/// A connection that can be asked to end.
trait Graceful: Future<Output = hyper::Result<()>> {
    /// Ends it when what is under way has ended.
    fn graceful_shutdown(self: Pin<&mut Self>);
}

impl<I, B, S> Graceful for http1::UpgradeableConnection<I, S>
where
    S: hyper::service::HttpService<Incoming, ResBody = B>,
    S::Error: Into<Box<dyn core::error::Error + Send + Sync>>,
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    B: hyper::body::Body + 'static,
    B::Error: Into<Box<dyn core::error::Error + Send + Sync>>,
{
    fn graceful_shutdown(self: Pin<&mut Self>) {
        Self::graceful_shutdown(self);
    }
}

impl<I, B, S, E> Graceful for http2::Connection<I, S, E>
where
    S: hyper::service::HttpService<Incoming, ResBody = B>,
    S::Error: Into<Box<dyn core::error::Error + Send + Sync>>,
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    B: hyper::body::Body + 'static,
    B::Error: Into<Box<dyn core::error::Error + Send + Sync>>,
    E: hyper::rt::bounds::Http2ServerConnExec<S::Future, B>,
{
    fn graceful_shutdown(self: Pin<&mut Self>) {
        Self::graceful_shutdown(self);
    }
}

/// Polls `connection` to its end, and looks at its activity on the way. Returns why its
/// last request was refused, if that was so before anybody saw it.
///
/// The timer is only ever moved to an earlier deadline; where it rings too early
/// it is armed anew, so that a request costs no timer operation.
async fn drive<C: Graceful>(
    connection: C,
    activity: &Activity,
    timeouts: &ClientTimeouts,
    clock: &crate::clock::Clock,
) -> Option<Refusal> {
    let mut connection = pin!(connection);
    let mut bell = pin!(activity.bell.notified());
    let mut timer = pin!(clock.timer(clock.now() + timeouts.header_read));
    let mut armed = clock.now() + timeouts.header_read;
    let mut closing = false;
    // The bell and the timer are polled once to make this task known to them; later
    // a flag each tells whether they rang.
    let (mut listening, mut ticking) = (false, false);
    poll_fn(|context: &mut Context<'_>| {
        if !listening {
            listening = true;
            if bell.as_mut().poll(context).is_ready() {
                context.waker().wake_by_ref();
            }
        }
        loop {
            if activity.is_draining() && !closing {
                closing = true;
                connection.as_mut().graceful_shutdown();
            }
            if let Poll::Ready(end) = connection.as_mut().poll(context) {
                return Poll::Ready(end.err().as_ref().and_then(refusal));
            }
            let rang = if ticking {
                timer.is_elapsed()
            } else {
                ticking = true;
                timer.as_mut().poll(context).is_ready()
            };
            if !rang {
                let Some(deadline) = activity.urgent(timeouts) else { return Poll::Pending };
                if deadline >= armed {
                    return Poll::Pending;
                }
                armed = deadline;
                timer.as_mut().reset(clock.to_tokio(deadline));
                ticking = false;
                continue;
            }
            let now = clock.now();
            match activity.judge(now, timeouts) {
                Verdict::HeadLate => return Poll::Ready(Some(Refusal::HeaderTimeout)),
                Verdict::Abort => return Poll::Ready(None),
                Verdict::Close if closing => return Poll::Ready(None),
                Verdict::Close => {
                    closing = true;
                    connection.as_mut().graceful_shutdown();
                    armed = now + timeouts.write;
                }
                Verdict::LookAgain(deadline) => armed = deadline,
                Verdict::Overdue => armed = now + timeouts.write,
            }
            timer.as_mut().reset(clock.to_tokio(armed));
            ticking = false;
        }
    })
    .await
}

//! One client connection: protocol, limits, and its end.

use super::{
    activity::{Activity, Verdict},
    asleep::Asleep,
    connections::GRACE,
    http1_stream::Http1Stream,
    http2_stream::Http2Stream,
    io::Watched,
    peer::Peer,
    service::handle,
    streams::Spawner,
    unread::Unread,
    upload_buffer::UploadBuffer,
};
use crate::{
    clock::Clock,
    config::{ClientTimeouts, Limits, Settings},
    flow::Instant,
};
use bytes::Bytes;
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
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::futures::Notified,
    time::Sleep,
};

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
/// The least that hyper's read buffer may be limited to.
const BUFFER_MIN: usize = 64 * 1024;

/// By how much a request's header in HTTP/2 may be larger than the limit to be refused with an
/// explanation. h2 refuses a larger one with a status alone.
const EXPLAINED_BYTES: usize = 16 * 1024;

/// How long an HTTP/1.1 connection is idle before it gives up what it only needs while
/// it serves, some 20 KiB. To begin again costs a part of a request: who asks more
/// often than this never pays it.
const REST: Duration = Duration::from_millis(100);
/// The same for one that had several requests within [`REST`]: to look at it every
/// tenth of a second would not be free.
const REST_OF_BUSY: Duration = Duration::from_secs(1);

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
///
/// One that speaks HTTP/1.1 gives up everything but its socket while it is idle. What
/// it needs besides is in boxes, so that the task itself is small. What was read from
/// it already comes `ahead`.
pub(super) async fn serve<T>(
    io: T,
    ahead: Bytes,
    protocol: Protocol,
    peer: Arc<Peer>,
    manners: Manners,
) where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let activity = Arc::clone(&peer.activity);
    let clock = &peer.worker.clock;
    let armed = clock.now() + manners.timeouts.header_read;
    let bell = pin!(activity.bell.notified());
    let timer = pin!(clock.timer(armed));
    let mut watch = Watch {
        activity: &activity,
        timeouts: &manners.timeouts,
        clock,
        bell,
        listening: false,
        timer,
        ticking: false,
        armed,
    };
    if protocol == Protocol::Http2 {
        let limit = manners.limits.upload_buffers;
        activity.count_uploads(UploadBuffer::new(&peer.worker.counters, limit));
    }
    let io = Watched::new(io, ahead, Arc::clone(&activity), protocol);
    let refused = match protocol {
        Protocol::Http1 => by_turns(io, &peer, &manners, &mut watch).await,
        Protocol::Http2 => Box::pin(http2(io, &peer, &manners, &mut watch)).await,
    };
    if let Some(unread) = refused {
        unread.note(&peer);
    }
}

/// Sleeps while the client is idle and speaks HTTP/1.1 while it is not, until the
/// connection ends.
async fn by_turns<T>(
    mut io: Watched<T>,
    peer: &Arc<Peer>,
    manners: &Manners,
    watch: &mut Watch<'_, '_>,
) -> Option<Unread>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    loop {
        let mut asleep = Asleep::new(io);
        drive(&mut asleep, watch).await;
        match Box::pin(http1(asleep.woken()?, peer, manners, watch)).await {
            Ok(idle) => io = idle,
            Err(refused) => return refused,
        }
        peer.forget();
    }
}

/// Speaks HTTP/1.1 until the connection is idle, and returns it.
///
/// # Errors
///
/// It has ended, perhaps by a refusal.
async fn http1<T>(
    io: Watched<T>,
    peer: &Arc<Peer>,
    manners: &Manners,
    watch: &mut Watch<'_, '_>,
) -> Result<Watched<T>, Option<Unread>>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let peer = Arc::clone(peer);
    let stream = Http1Stream::new(io, &peer.activity);
    let service = service_fn(move |request: Request<Incoming>| handle(Arc::clone(&peer), request));
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // The connection's own timer distinguishes an idle client from a slow one.
        .header_read_timeout(None)
        // The stream shows whether the client has left.
        .half_close(true)
        .max_headers(manners.limits.headers)
        .max_header_size(manners.limits.header_bytes)
        .max_buf_size(BUFFER_MIN.max(manners.limits.header_bytes * 2))
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    match drive(&mut connection, watch).await {
        Left::Ended(None) => Err(None),
        Left::Ended(Some(unread)) => {
            let stream = connection.into_parts().map(|parts| parts.io.into_inner());
            if let Some((io, own)) = stream.and_then(Http1Stream::into_unanswered) {
                let mut farewell = Farewell { io, answer: unread.answer(&own).into() };
                Box::pin(drive(&mut farewell, watch)).await;
            }
            Err(Some(unread))
        }
        Left::Idle => {
            let parts = connection.into_parts().ok_or(None)?;
            watch.activity.on_rest();
            Ok(parts.io.into_inner().into_inner(parts.read_buf))
        }
    }
}

/// Speaks HTTP/2 until the connection ends.
async fn http2<T>(
    io: Watched<T>,
    peer: &Arc<Peer>,
    manners: &Manners,
    watch: &mut Watch<'_, '_>,
) -> Option<Unread>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let list = manners.limits.header_bytes + EXPLAINED_BYTES;
    let list = u32::try_from(list).unwrap_or(u32::MAX);
    let io = Http2Stream::new(io, Arc::clone(peer));
    let spawner = Spawner(Arc::clone(&peer.activity));
    let peer = Arc::clone(peer);
    let service = service_fn(move |request: Request<Incoming>| handle(Arc::clone(&peer), request));
    let mut connection = http2::Builder::new(spawner)
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_send_buf_size(STREAM_SEND_BUFFER)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(list)
        .keep_alive_interval(PING_INTERVAL)
        .serve_connection(TokioIo::new(io), service);
    match drive(&mut connection, watch).await {
        Left::Ended(refused) => refused,
        Left::Idle => None,
    }
}

/// The end of an HTTP/1.1 connection on which a request could not be read.
struct Farewell<T> {
    io: Watched<T>,
    answer: Bytes,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Future for Farewell<T> {
    type Output = hyper::Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        let Self { io, answer } = self.get_mut();
        while !answer.is_empty() {
            match Pin::new(&mut *io).poll_write(context, answer) {
                Poll::Ready(Ok(written)) if written > 0 => drop(answer.split_to(written)),
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => return Poll::Pending,
            }
        }
        // How well it is closed makes no difference any more.
        Pin::new(io).poll_shutdown(context).map(|_| Ok(()))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Graceful for Farewell<T> {
    const RESTS: bool = false;

    /// It ends in any case.
    fn graceful_shutdown(&mut self) {}
}

/// A connection that can be asked to end.
trait Graceful: Future<Output = hyper::Result<()>> + Unpin {
    /// Whether it is left when it is idle.
    const RESTS: bool;

    /// Ends it when what is under way has ended.
    fn graceful_shutdown(&mut self);
}

impl<T: AsyncRead + AsyncWrite + Unpin> Graceful for Asleep<T> {
    const RESTS: bool = false;

    fn graceful_shutdown(&mut self) {
        self.close();
    }
}

impl<I, B, S> Graceful for http1::UpgradeableConnection<I, S>
where
    S: hyper::service::HttpService<Incoming, ResBody = B> + Unpin,
    S::Error: Into<Box<dyn core::error::Error + Send + Sync>>,
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    B: hyper::body::Body + 'static,
    B::Error: Into<Box<dyn core::error::Error + Send + Sync>>,
{
    const RESTS: bool = true;

    fn graceful_shutdown(&mut self) {
        Self::graceful_shutdown(Pin::new(self));
    }
}

impl<I, B, S, E> Graceful for http2::Connection<I, S, E>
where
    S: hyper::service::HttpService<Incoming, ResBody = B> + Unpin,
    S::Error: Into<Box<dyn core::error::Error + Send + Sync>>,
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    B: hyper::body::Body + 'static,
    B::Error: Into<Box<dyn core::error::Error + Send + Sync>>,
    E: hyper::rt::bounds::Http2ServerConnExec<S::Future, B> + Unpin,
{
    const RESTS: bool = false;

    fn graceful_shutdown(&mut self) {
        Self::graceful_shutdown(Pin::new(self));
    }
}

/// How a connection was left.
enum Left {
    /// It has ended, perhaps because a request was refused before it was seen.
    Ended(Option<Unread>),
    /// In good order between two requests.
    Idle,
}

impl Left {
    fn ended(end: &hyper::Result<()>) -> Self {
        Self::Ended(end.as_ref().err().and_then(Unread::of))
    }
}

/// What wakes a connection's task besides its socket, whatever it does just then.
struct Watch<'a, 'b> {
    activity: &'a Activity,
    timeouts: &'a ClientTimeouts,
    clock: &'a Clock,
    /// The bell and the timer are polled once to make the task known to them; later a
    /// flag each says whether they rang.
    bell: Pin<&'a mut Notified<'b>>,
    listening: bool,
    timer: Pin<&'a mut Sleep>,
    ticking: bool,
    armed: Instant,
}

impl Watch<'_, '_> {
    fn listen(&mut self, context: &mut Context<'_>) {
        if !self.listening {
            self.listening = true;
            self.activity.attend(context.waker());
            if self.bell.as_mut().poll(context).is_ready() {
                context.waker().wake_by_ref();
            }
        }
    }

    fn rang(&mut self, context: &mut Context<'_>) -> bool {
        if self.ticking {
            return self.timer.is_elapsed();
        }
        self.ticking = true;
        self.timer.as_mut().poll(context).is_ready()
    }

    fn arm(&mut self, deadline: Instant) {
        self.armed = deadline;
        self.timer.as_mut().reset(self.clock.to_tokio(deadline));
        self.ticking = false;
    }

    /// Returns the deadline to which the timer must be moved, if there is one.
    fn urgent(&self, rest: Option<Duration>) -> Option<Instant> {
        let urgent = self.activity.urgent(self.timeouts).or_else(|| self.rest_at(rest));
        urgent.filter(|&deadline| deadline < self.armed)
    }

    /// Returns when the connection may rest, if it does so at all once it has been idle
    /// for `rest`.
    fn rest_at(&self, rest: Option<Duration>) -> Option<Instant> {
        let rest = rest?;
        self.activity.idle_since().map(|since| since + rest)
    }
}

/// Polls `connection` to its end, and looks at its activity on the way.
///
/// The timer is only ever moved to an earlier deadline; where it rings too early
/// it is armed anew, so that a request costs no timer operation.
async fn drive<C: Graceful>(connection: &mut C, watch: &mut Watch<'_, '_>) -> Left {
    let mut closing = false;
    let mut rest = C::RESTS.then_some(REST);
    poll_fn(|context: &mut Context<'_>| {
        watch.listen(context);
        loop {
            if let Poll::Ready(end) = Pin::new(&mut *connection).poll(context) {
                return Poll::Ready(Left::ended(&end));
            }
            // Not before it was polled: a request that has arrived is under way.
            if watch.activity.is_draining() && !closing {
                closing = true;
                rest = None;
                connection.graceful_shutdown();
                continue;
            }
            if !watch.rang(context) {
                let Some(deadline) = watch.urgent(rest) else { return Poll::Pending };
                watch.arm(deadline);
                continue;
            }
            let now = watch.clock.now();
            let may_rest = |watch: &Watch<'_, '_>| watch.rest_at(rest).is_some_and(|at| at <= now);
            if may_rest(watch) {
                // hyper has to be polled to learn that a body is read no more: it
                // reads the rest of it, or ends the connection. Nothing is left of the
                // request then, and hyper is between two.
                if let Poll::Ready(end) = Pin::new(&mut *connection).poll(context) {
                    return Poll::Ready(Left::ended(&end));
                }
                if may_rest(watch) {
                    return Poll::Ready(Left::Idle);
                }
            }
            let armed = match watch.activity.judge(now, watch.timeouts) {
                Verdict::HeadLate => {
                    return Poll::Ready(Left::Ended(Some(Unread::LATE)));
                }
                Verdict::Abort => return Poll::Ready(Left::Ended(None)),
                Verdict::Close if closing => return Poll::Ready(Left::Ended(None)),
                Verdict::Close => {
                    closing = true;
                    rest = None;
                    connection.graceful_shutdown();
                    // The rest of the last answer may be on its way still.
                    now + if watch.activity.is_blocked() { watch.timeouts.write } else { GRACE }
                }
                Verdict::LookAgain(deadline) => {
                    rest = rest.map(|_| REST_OF_BUSY);
                    watch.rest_at(rest).map_or(deadline, |at| at.min(deadline))
                }
                Verdict::Overdue => now + watch.timeouts.write,
            };
            watch.arm(armed);
        }
    })
    .await
}

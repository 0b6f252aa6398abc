//! What a client still sends after its answer.

use super::{
    activity::{Activity, Uploading},
    body::Upload,
    fields::{Field, Fields},
    readiness::Readiness,
    tail::Tail,
    upload_buffer::BodyBuffer,
};
use crate::{clock::Clock, flow::Instant};
use bytes::Buf;
use core::{
    fmt,
    future::poll_fn,
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use http::Version;
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::sync::Arc;
use tokio::{
    io::{AsyncRead, ReadBuf},
    runtime::Handle,
    time::Sleep,
};

/// How long a client may go on sending: enough for one that first sends all and then reads.
const LINGER: Duration = Duration::from_secs(30);

/// How long it may be silent meanwhile.
const LINGER_SILENCE: Duration = Duration::from_secs(5);

/// How much it may send: what `limits.body` would let pass by default.
const LINGER_BYTES: usize = 1024 * 1024 * 1024;

/// The rest of a request's body that is read to save its connection: what a client sends in less
/// time than a new connection takes it, or a TLS handshake the gateway.
const DISCARD_BYTES: u64 = 64 * 1024;

/// How long that may take.
const DISCARD: Duration = Duration::from_secs(10);

/// How long an early answer's end waits for the client of HTTP/2 to stop sending.
const EARLY_END: Duration = Duration::from_secs(1);

/// Bytes that are read in one go.
const READ: usize = 8 * 1024;

/// Takes what the client still sends until it has closed its side too.
///
/// To what comes for a socket that is closed the kernel answers with a reset, which may reach
/// the client before it has read why its request was refused, or stops it in the middle of a
/// write. So a server closes in stages (RFC 9112, 9.6).
#[derive(Debug)]
pub(super) struct Lingering {
    patience: Patience,
    /// The connection is not idle meanwhile.
    _noted: Uploading,
}

/// What a client may still send after its answer.
#[derive(Debug)]
struct Patience {
    /// Ends with the client's silence or with [`LINGER`].
    timer: Pin<Box<Sleep>>,
    clock: Clock,
    end: Instant,
    /// Bytes that may still come.
    left: usize,
}

impl Patience {
    fn begin(activity: &Activity) -> Self {
        let clock = activity.clock().clone();
        let now = clock.now();
        let timer = Box::pin(clock.timer(now + LINGER_SILENCE));
        Self { timer, end: now + LINGER, clock, left: LINGER_BYTES }
    }

    /// Notes that `count` bytes came. Returns whether more may come.
    fn renew(&mut self, count: usize) -> bool {
        self.left = self.left.saturating_sub(count);
        let until = self.end.min(self.clock.now() + LINGER_SILENCE);
        self.timer.as_mut().reset(self.clock.to_tokio(until));
        self.left > 0
    }

    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.timer.as_mut().poll(context)
    }
}

impl Lingering {
    /// Begins when the gateway's own side has been closed.
    pub(super) fn begin(activity: &Arc<Activity>) -> Self {
        Self { patience: Patience::begin(activity), _noted: activity.linger() }
    }

    /// Reads from `stream` until it ends, has taken too long, or has brought too much.
    pub(super) fn poll<T: AsyncRead + Unpin>(
        &mut self,
        stream: &mut T,
        readiness: &mut Readiness,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        loop {
            if self.patience.poll_end(context).is_ready() {
                return Poll::Ready(());
            }
            let mut space = [MaybeUninit::uninit(); READ];
            let mut unwanted = ReadBuf::uninit(&mut space);
            let read = ready!(readiness.poll_read(stream, context, &mut unwanted));
            let count = unwanted.filled().len();
            if read.is_err() || count == 0 || !self.patience.renew(count) {
                return Poll::Ready(());
            }
        }
    }
}

/// Reads the body of a request that is answered without it, if it is small, so that its connection
/// can serve the next one. `fields` is what the request has, and `tail` its answer's, which is told
/// if the connection ends instead. Who waits for 100 need not send the body.
///
/// In HTTP/2 the stream ends, and nothing else with it: see [`drain`].
pub(super) fn discard<B>(body: B, fields: Fields, tail: &mut Tail)
where
    B: Body<Data: Buf + Send> + Unpin + Send + 'static,
{
    if body.is_end_stream() || tail.version == Version::HTTP_2 {
        return;
    }
    let activity = &tail.peer.activity;
    let is_small = body.size_hint().lower() <= DISCARD_BYTES;
    if tail.closes || !is_small || fields.has(Field::Expect) {
        activity.on_unread();
        tail.closes = true;
        return;
    }
    // At once: the connection must not take its bytes for a head's.
    let (noted, activity, worker) = (activity.upload(), Arc::clone(activity), &tail.peer.worker);
    let clock = worker.clock.clone();
    worker.tasks.spawn(async move {
        if clock.timeout(DISCARD, read_out(body)).await != Ok(Some(())) {
            activity.on_unread();
        }
        drop(noted);
    });
}

/// Takes what the client of HTTP/2 still sends of a body that is not needed, and then lets go of
/// it, upon which the stream is reset if the body has not ended.
///
/// Some clients lose an answer if the reset arrives together with it: curl 7.88 reports an error,
/// and so does git. They stop by themselves once they have read the answer.
pub(super) fn drain(mut body: Incoming, buffer: BodyBuffer, activity: &Arc<Activity>) {
    if body.is_end_stream() {
        return;
    }
    // There is none when the worker has ended, and its connections with it.
    let Ok(runtime) = Handle::try_current() else { return };
    let mut patience = Patience::begin(activity);
    let noted = activity.upload();
    runtime.spawn(async move {
        let _noted = noted;
        poll_fn(|context| {
            while let Poll::Ready(frame) = Pin::new(&mut body).poll_frame(context) {
                let Some(Ok(frame)) = frame else { return Poll::Ready(()) };
                let part = frame.into_data().map(|bytes| buffer.hold(bytes));
                if !patience.renew(part.map_or(0, |part| part.remaining())) {
                    return Poll::Ready(());
                }
            }
            patience.poll_end(context)
        })
        .await;
    });
}

/// A wait at the end of an answer, until its client has stopped sending.
pub(super) struct EarlyEnd(Pin<Box<dyn Future<Output = ()> + Send>>);

impl EarlyEnd {
    /// Begins to wait for the end of `upload`, though not for long.
    ///
    /// curl 7.88 notices the end of an answer without a length only if its own side has ended
    /// before. An upload of a declared length that ends early is an error in HTTP/2: its stream
    /// is reset, which curl notices.
    pub(super) fn of(upload: Arc<Upload>, clock: Clock) -> Self {
        Self(Box::pin(async move {
            let _in_time = clock.timeout(EARLY_END, upload.gone.notified()).await;
        }))
    }

    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(context)
    }
}

impl fmt::Debug for EarlyEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EarlyEnd").finish_non_exhaustive()
    }
}

/// Reads a body to its end, or returns `None`.
async fn read_out<B: Body<Data: Buf> + Unpin>(mut body: B) -> Option<()> {
    let mut left = DISCARD_BYTES;
    while let Some(frame) = body.frame().await {
        let length = frame.ok()?.data_ref().map_or(0, |data| data.remaining() as u64);
        left = left.checked_sub(length)?;
    }
    Some(())
}

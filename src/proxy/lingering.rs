//! What a client still sends that nobody wants.

use super::{
    activity::{Activity, Uploading},
    fields::{Field, Fields},
    readiness::Readiness,
    tail::Tail,
};
use bytes::Bytes;
use core::{
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use http::Version;
use http_body::Body;
use http_body_util::BodyExt;
use std::sync::Arc;
use tokio::{
    io::{AsyncRead, ReadBuf},
    time::Sleep,
};

/// How long a client may go on sending: enough for some megabytes over a slow line, and for one
/// that first sends all and then reads.
const LINGER: Duration = Duration::from_secs(10);

/// How much it may send meanwhile.
const LINGER_BYTES: usize = 16 * 1024 * 1024;

/// The rest of a request's body that is read to save its connection: what a client sends in less
/// time than a new connection takes it, or a TLS handshake the gateway.
const DISCARD_BYTES: u64 = 64 * 1024;

/// Bytes that are read in one go.
const READ: usize = 8 * 1024;

/// Takes what the client still sends until it has closed its side too.
///
/// To what comes for a socket that is closed the kernel answers with a reset, which may reach
/// the client before it has read why its request was refused, or stops it in the middle of a
/// write. So a server closes in stages (RFC 9112, 9.6).
#[derive(Debug)]
pub(super) struct Lingering {
    timer: Pin<Box<Sleep>>,
    /// Bytes that may still come.
    left: usize,
    /// The connection is not idle meanwhile.
    _noted: Uploading,
}

impl Lingering {
    /// Begins when the gateway's own side has been closed.
    pub(super) fn begin(activity: &Arc<Activity>) -> Self {
        let timer = Box::pin(activity.timer(LINGER));
        Self { timer, left: LINGER_BYTES, _noted: activity.linger() }
    }

    /// Reads from `stream` until it ends, has taken too long, or has brought too much.
    pub(super) fn poll<T: AsyncRead + Unpin>(
        &mut self,
        stream: &mut T,
        readiness: &mut Readiness,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        if self.timer.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        loop {
            let mut space = [MaybeUninit::uninit(); READ];
            let mut unwanted = ReadBuf::uninit(&mut space);
            let read = ready!(readiness.poll_read(stream, context, &mut unwanted));
            let count = unwanted.filled().len();
            self.left = self.left.saturating_sub(count);
            if read.is_err() || count == 0 || self.left == 0 {
                return Poll::Ready(());
            }
        }
    }
}

/// Reads the body of a request that is answered without it, if it is small, so that its connection
/// can serve the next one. `fields` is what the request has, and `tail` its answer's, which is told
/// if the connection ends instead.
///
/// In HTTP/2 the stream ends, and nothing else with it. Who waits for 100 need not send the body.
pub(super) fn discard<B>(body: B, fields: Fields, tail: &mut Tail)
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
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
        if clock.timeout(LINGER, read_out(body)).await != Ok(Some(())) {
            activity.on_unread();
        }
        drop(noted);
    });
}

/// Reads a body to its end, or returns `None`.
async fn read_out<B: Body<Data = Bytes> + Unpin>(mut body: B) -> Option<()> {
    let mut left = DISCARD_BYTES;
    while let Some(frame) = body.frame().await {
        let length = frame.ok()?.data_ref().map_or(0, |data| data.len() as u64);
        left = left.checked_sub(length)?;
    }
    Some(())
}

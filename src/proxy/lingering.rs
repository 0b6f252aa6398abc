//! What a client of HTTP/2 still sends after its answer.

use super::{
    body::Upload,
    client_body::ClientBody,
    downstream::http1::{DISCARD_BYTES, LINGER, LINGER_BYTES, LINGER_SILENCE},
    fields::{Field, Fields},
    tail::Tail,
    upload_buffer::BodyBuffer,
};
use crate::{clock::Clock, flow::Instant};
use bytes::Buf;
use core::{
    fmt,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use http::Version;
use http_body::Body;
use std::sync::Arc;
use tokio::{runtime::Handle, time::Sleep};

/// How long an early answer's end waits for the client of HTTP/2 to stop sending.
const EARLY_END: Duration = Duration::from_secs(1);

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
    fn begin(clock: &Clock) -> Self {
        let now = clock.now();
        let timer = Box::pin(clock.timer(now + LINGER_SILENCE));
        Self { timer, end: now + LINGER, clock: clock.clone(), left: LINGER_BYTES }
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

/// Decides about the body of a request that is answered without it. `fields` is what the request
/// has, and `tail` its answer's, which is told if the connection ends: it stays only if the rest of
/// the body is small. Who waits for 100 need not send the body.
///
/// In HTTP/2 the stream ends, and nothing else with it: see [`drain`].
pub(super) fn discard<B: Body>(body: &B, fields: Fields, tail: &mut Tail) {
    if body.is_end_stream() || tail.version == Version::HTTP_2 {
        return;
    }
    let is_small = body.size_hint().lower() <= DISCARD_BYTES as u64;
    tail.closes |= !is_small || fields.has(Field::Expect);
}

/// Takes what the client of HTTP/2 still sends of a body that is not needed, and then lets go of
/// it, upon which the stream is reset if the body has not ended.
///
/// Some clients lose an answer if the reset arrives together with it: curl 7.88 reports an error,
/// and so does git. They stop by themselves once they have read the answer.
pub(super) fn drain(mut body: ClientBody, buffer: BodyBuffer, clock: &Clock) {
    if body.is_end_stream() {
        return;
    }
    // There is none when the worker has ended, and its connections with it.
    let Ok(runtime) = Handle::try_current() else { return };
    let mut patience = Patience::begin(clock);
    runtime.spawn(async move {
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

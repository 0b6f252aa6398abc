//! What a client still sends after its response.

use super::{client_body::ClientBody, upload_buffer::BodyBuffer};
use crate::{clock::Clock, flow::Instant};
use bytes::Buf;
use core::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use http_body::Body;
use tokio::{runtime::Handle, time::Sleep};

/// How long a client may go on sending: enough for one that first sends all and then reads.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// How long it may be silent meanwhile.
pub(crate) const DRAIN_SILENCE: Duration = Duration::from_secs(5);

/// How much it may send: what `limits.body` would let pass by default.
pub(crate) const DRAIN_BYTES: usize = 1024 * 1024 * 1024;

/// The rest of a request's body that is read to save its connection: what a client sends in less
/// time than a new connection takes it, or a TLS handshake the gateway.
pub(crate) const DISCARD_BYTES: usize = 64 * 1024;

/// What a client may still send after its answer.
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
/// Some clients lose an answer if the reset arrives together with it: curl 7.88 reports an error,
/// and so does git. They stop by themselves once they have read the answer.
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

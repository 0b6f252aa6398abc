//! The wait for a request's head.

use super::session::Session;
use crate::proxy::downstream::unreadable::UnreadableRequest;
use crate::proxy::io::client_io::ClientIo;
use crate::{flow::Instant, http1::HeadLimits};
use core::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

/// How long a connection is idle before it gives up what it only needs while it serves.
const REST: Duration = Duration::from_millis(100);
/// The same for one that has had several requests, and been busy for longer than [`REST`].
const REST_OF_BUSY: Duration = Duration::from_secs(1);

/// What the wait has come to.
pub(super) enum HeadWait {
    /// It is there, and has this length.
    Whole(usize),
    /// Nothing has come for a while, since this instant.
    Idle(Instant),
    /// The connection is to be closed.
    Over,
    /// The client has left.
    Gone,
    /// What has come is no head, or it is late.
    Rejected(UnreadableRequest),
}

impl<T: ClientIo> Session<'_, '_, T> {
    pub(super) fn poll_head(&mut self, context: &mut Context<'_>) -> Poll<HeadWait> {
        self.input.make_room();
        let limits = &self.options.limits;
        let limits = HeadLimits { bytes: limits.header_bytes, fields: limits.headers };
        loop {
            // A client that ends a body with a line more than it declared is common.
            if matches!(&self.input.bytes[..], b"\r\n" | b"\n") {
                self.input.bytes.clear();
            }
            if !self.input.bytes.is_empty() {
                match self.head.parse(&self.input.bytes, limits) {
                    Ok(Some(length)) => return Poll::Ready(HeadWait::Whole(length)),
                    Ok(None) => {}
                    Err(error) => {
                        return Poll::Ready(HeadWait::Rejected(UnreadableRequest::of_head(error)));
                    }
                }
            }
            match self.input.poll_read(self.io, context) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(_) => return Poll::Ready(HeadWait::Gone),
                Poll::Pending => break,
            }
        }
        self.peer.handle.wake_on_drain(context);
        // TLS may have something of its own to say.
        if let Poll::Ready(Err(_)) = Pin::new(&mut *self.io).poll_flush(context) {
            return Poll::Ready(HeadWait::Gone);
        }
        let now = || self.peer.now();
        if !self.input.bytes.is_empty() {
            let since = *self.head_since.get_or_insert_with(now);
            let due = since + self.options.timeouts.header_read;
            return self
                .timer
                .poll(due, context)
                .map(|_| HeadWait::Rejected(UnreadableRequest::LATE));
        }
        if self.peer.handle.is_draining() {
            return Poll::Ready(HeadWait::Over);
        }
        let since = *self.idle_since.get_or_insert_with(now);
        let close_at = since + self.options.timeouts.keep_alive;
        let is_busy = self.requests > 1 && since.since(self.since) > REST;
        let rest = if is_busy { REST_OF_BUSY } else { REST };
        let now = ready!(self.timer.poll(close_at.min(since + rest), context));
        Poll::Ready(if now < close_at { HeadWait::Idle(since) } else { HeadWait::Over })
    }
}

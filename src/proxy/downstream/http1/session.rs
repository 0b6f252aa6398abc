//! A connection while it is busy.

use crate::proxy::{
    completion::Completion,
    connections::options::ConnectionOptions,
    io::{client_io::ClientIo, input::Input, outgoing::Outgoing},
    peer::Peer,
    timeouts::timer::ConnectionTimer,
};
use crate::{flow::Instant, http1::RequestHead};
use bytes::Bytes;
use core::task::{Context, Poll, ready};
use std::{io, sync::Arc};

/// A connection while it is busy.
pub(super) struct Session<'a, 't, T> {
    pub(super) io: &'a mut T,
    pub(super) timer: &'a mut ConnectionTimer<'t>,
    pub(super) peer: Arc<Peer>,
    pub(super) options: ConnectionOptions,
    pub(super) input: Input,
    pub(super) outgoing: Outgoing<Bytes>,
    pub(super) head: RequestHead,
    /// For the next request, in the memory of the last one's.
    pub(super) completion: Option<Box<Completion>>,
    /// Since when it is busy, and how many requests it has served.
    pub(super) since: Instant,
    pub(super) requests: u32,
    /// Since when the head that is read is due; the first byte of it has come then.
    pub(super) head_since: Option<Instant>,
    /// Since when no request is under way.
    pub(super) idle_since: Option<Instant>,
    /// Since when the client takes nothing of what there is for it.
    pub(super) blocked_since: Option<Instant>,
    /// Whether the client has ended its side.
    pub(super) has_ended: bool,
}

impl<'a, 't, T: ClientIo> Session<'a, 't, T> {
    pub(super) fn new(
        io: &'a mut T,
        timer: &'a mut ConnectionTimer<'t>,
        peer: Arc<Peer>,
        options: ConnectionOptions,
    ) -> Self {
        let since = peer.worker.clock.now();
        Self {
            io,
            timer,
            peer,
            options,
            input: Input::new(),
            outgoing: Outgoing::default(),
            head: RequestHead::default(),
            completion: None,
            since,
            requests: 0,
            head_since: None,
            idle_since: None,
            blocked_since: None,
            has_ended: false,
        }
    }

    /// Writes all that there is for the client, unless that takes too long.
    pub(super) fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match self.poll_write(context) {
                Poll::Ready(Ok(true)) => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(false)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    ready!(self.poll_blocked(context));
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
            }
        }
    }

    /// Writes a part of what there is for the client; see [`Outgoing::poll_write`].
    pub(super) fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let polled = self.outgoing.poll_write(self.io, context);
        if polled.is_ready() {
            self.blocked_since = None;
        }
        polled
    }

    /// Waits for the time that a client may take nothing. To be called when it takes nothing.
    pub(super) fn poll_blocked(&mut self, context: &mut Context<'_>) -> Poll<Instant> {
        let now = || self.peer.worker.clock.now();
        let since = *self.blocked_since.get_or_insert_with(now);
        self.timer.poll(since + self.options.timeouts.write, context)
    }

    /// Waits for the earliest deadline of the request under way, and has it looked at.
    pub(super) fn poll_deadlines(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let next = self.peer.timer.next();
        if next < Instant::FAR_FUTURE {
            let now = ready!(self.timer.poll(next, context));
            self.peer.timer.fire(now);
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

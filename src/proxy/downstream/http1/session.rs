//! A busy connection: it waits for a head, has the request served, and writes the response, again and again.

use super::{
    request::CurrentRequest,
    response::{self, Relayed, write_own},
};
use crate::proxy::{
    connections::registry::ConnectionOptions,
    downstream::unreadable::UnreadableRequest,
    io::{
        ClientIo,
        input::{Input, Prefixed},
        outgoing::Outgoing,
    },
    message::ResponseHead,
    peer::Peer,
    record::Completion,
    request::begin,
    response::{response_body::ResponseBody, tunnel::tunnel},
    timeouts::timer::ConnectionTimer,
};
use crate::{
    config::HeaderCase,
    flow::Instant,
    http1::{HeadLimits, RequestHead},
};
use bytes::Bytes;
use core::{
    future::poll_fn,
    mem,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Duration,
};
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
    /// True if the client has ended its side.
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

/// The next step after a request.
enum Next {
    Request,
    Close {
        /// True if the client may still be sending what is not read.
        drains: bool,
    },
    /// The client has left, or is cut off.
    Gone,
}

impl<T: ClientIo> Session<'_, '_, T> {
    /// Serves requests until the connection is idle, and returns since when; `None` if it has
    /// ended. It begins with what has come, of which the first byte came at `since`. No request has
    /// been under way since `idle_since`: blank lines do not change that.
    pub(super) async fn run(
        mut self,
        began: Bytes,
        since: Option<Instant>,
        idle_since: Instant,
    ) -> Option<Instant> {
        self.input = Input::beginning_with(&began);
        self.head_since = since;
        self.idle_since = Some(idle_since);
        drop(began);

        loop {
            let next = match poll_fn(|context| self.poll_head(context)).await {
                HeadWait::Whole(length) => self.serve(length).await,
                HeadWait::Idle(since) => return Some(since),
                HeadWait::Over => Next::Close { drains: false },
                HeadWait::Gone => Next::Gone,
                HeadWait::Rejected(unread) => self.reject(unread),
            };
            match next {
                Next::Request => {}
                Next::Close { drains } => {
                    Box::pin(self.close(drains)).await;
                    return None;
                }
                Next::Gone => return None,
            }
        }
    }

    /// Responds without reading a request, and closes the connection.
    pub(super) async fn reject_and_close(mut self, why: UnreadableRequest) {
        if let Next::Close { drains } = self.reject(why) {
            self.close(drains).await;
        }
    }

    /// Responds to a request that could not be read.
    #[cold]
    fn reject(&mut self, unread: UnreadableRequest) -> Next {
        unread.note(&self.peer);
        let Some((response, body)) = unread.response() else { return Next::Gone };
        let date = self.peer.date();
        let is_titled = self.options.header_case == HeaderCase::Title;
        write_own(self.outgoing.head(), &response, &body, is_titled, &date);
        Next::Close { drains: true }
    }

    /// Serves the request whose head has this length.
    async fn serve(&mut self, length: usize) -> Next {
        let begun = poll_fn(|context| Poll::Ready(self.begin(length, context))).await;
        let (request, mut current) = match begun {
            Ok(begun) => begun,
            Err(unread) => return self.reject(unread),
        };

        let response = {
            let completion = self.completion.take();
            let completion = completion.unwrap_or_else(|| Completion::new(Arc::clone(&self.peer)));
            let mut handled = pin!(begin(completion, request).serve());
            poll_fn(|context| self.poll_response(handled.as_mut(), &mut current, context)).await
        };
        let Some(response) = response else { return Next::Gone };

        current.begin_response();
        let (head, body) = response.into_parts();
        if body.is_without_response() {
            self.peer.spare_heads.give_response(head);
            // With unread bytes, the kernel resets the connection. The client could then lose the
            // responses to its earlier requests.
            return Next::Close { drains: self.requests > 1 };
        }

        if body.is_tunnel() {
            Box::pin(self.join(&head, body, current.is_titled)).await;
            return Next::Gone;
        }

        let mut relay = self.begin_relay(&head, body, &mut current);
        self.peer.spare_heads.give_response(head);
        match poll_fn(|context| self.poll_relay(&mut relay, &mut current, context)).await {
            Relayed::Whole => self.next(relay.keeps_alive, current).await,
            Relayed::CutOff => Next::Gone,
        }
    }

    /// Joins the client to the server that has agreed to another protocol.
    async fn join(&mut self, head: &ResponseHead, body: ResponseBody, is_titled: bool) {
        let Some(joined) = body.into_tunnel() else { return };
        let date = self.peer.date();
        response::write_agreement(self.outgoing.head(), head, is_titled, &date);
        if poll_fn(|context| self.poll_flush(context)).await.is_ok() {
            let ahead = mem::take(&mut self.input.bytes).freeze();
            tunnel(Prefixed::new(&mut *self.io, ahead), joined).await;
        }
    }

    /// Decides what follows a request that has been answered.
    async fn next(&mut self, keeps_alive: bool, mut current: CurrentRequest) -> Next {
        let is_kept = keeps_alive && current.keeps_alive && !self.has_ended;
        let is_kept = is_kept && !self.peer.handle.is_draining();
        if current.is_read() {
            let drains = !self.input.bytes.is_empty();
            return if is_kept { Next::Request } else { Next::Close { drains } };
        }
        if is_kept && Box::pin(self.discard(&mut current)).await {
            return Next::Request;
        }
        Next::Close { drains: true }
    }
}

/// The time that a connection is idle before it gives up what it only needs while it serves.
const REST: Duration = Duration::from_millis(100);
/// The same for one that has had several requests, and been busy for longer than [`REST`].
const REST_OF_BUSY: Duration = Duration::from_secs(1);

/// The result of the wait.
pub(super) enum HeadWait {
    /// It is there, and has this length.
    Whole(usize),
    /// Nothing has come for a while, since this instant.
    Idle(Instant),
    /// The connection is to be closed.
    Over,
    /// The client has left.
    Gone,
    /// The bytes that have come are no head, or they are late.
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

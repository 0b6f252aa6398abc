//! HTTP/1.1 towards clients, from a connection's first byte to its last.
//!
//! One task drives a connection and all that is done for its requests, and sees in every state
//! whether the client has left. A connection that is idle holds nothing but its socket: see
//! [`serve`]. While it is busy a [`Session`] reads a head, has the request served, and moves the
//! bodies both ways.

mod exchange;
mod head;
mod linger;
mod relay;
mod request;
mod response;
mod target;

pub(in crate::proxy) use self::{
    linger::{DISCARD_BYTES, LINGER, LINGER_BYTES, LINGER_SILENCE},
    response::write_own,
};

use self::{exchange::Exchange, head::Head, linger::Lingering, relay::Relayed};
use super::super::{
    connection::Manners,
    connections::GRACE,
    date::DateCache,
    input::Input,
    outgoing::Outgoing,
    peer::Peer,
    service::handle,
    timer::ConnectionTimer,
    unread::Unread,
    upgrade::{Rewound, tunnel},
};
use crate::{flow::Instant, http1::RequestHead};
use bytes::Bytes;
use core::{
    future::poll_fn,
    mem::{self, MaybeUninit},
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Duration,
};
use std::{io, sync::Arc};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What is read at once of a client that was idle: most heads are shorter, and cost no second read.
const FIRST_READ: usize = 2048;

/// How long a connection is idle before it gives up what it only needs while it serves.
const REST: Duration = Duration::from_millis(100);
/// The same for one that has had several requests, and been busy for longer than [`REST`].
const REST_OF_BUSY: Duration = Duration::from_secs(1);

/// Serves a connection until it ends, is idle for too long or is drained.
///
/// The first byte of what has come already, `ahead`, came at `since`.
pub(in crate::proxy) async fn serve<T>(
    mut io: T,
    ahead: Bytes,
    since: Option<Instant>,
    peer: Arc<Peer>,
    manners: Manners,
) where
    T: AsyncRead + AsyncWrite + Unpin + Send,
{
    let clock = &peer.worker.clock;
    let now = clock.now();
    let armed = now + manners.timeouts.header_read;
    let sleep = pin!(clock.timer(armed));
    let mut timer = ConnectionTimer::new(clock, sleep, armed);
    let mut idle_since = now;
    let mut head_since = since;
    let mut ahead = ahead;
    loop {
        if ahead.is_empty() {
            let close_at = idle_since + manners.timeouts.keep_alive;
            match poll_fn(|context| poll_idle(&mut io, &peer, &mut timer, close_at, context)).await
            {
                Idle::Spoke(bytes) => ahead = bytes,
                Idle::Left => return,
                Idle::Over => break,
            }
        }
        let began = mem::take(&mut ahead);
        let session = Session::new(&mut io, &mut timer, Arc::clone(&peer), manners);
        // In a box, so that an idle connection does not hold it.
        match Box::pin(session.run(began, head_since.take())).await {
            Some(since) => idle_since = since,
            None => return,
        }
        peer.forget();
    }
    let close_by = peer.worker.clock.now() + GRACE;
    poll_fn(|context| match Pin::new(&mut io).poll_shutdown(context) {
        // How well it is closed makes no difference any more.
        Poll::Ready(_) => Poll::Ready(()),
        Poll::Pending => timer.poll(close_by, context).map(drop),
    })
    .await;
}

/// How a connection stops being idle.
enum Idle {
    Spoke(Bytes),
    Left,
    /// It is to be closed.
    Over,
}

/// Waits without memory for what comes.
fn poll_idle<T: AsyncRead + AsyncWrite + Unpin>(
    io: &mut T,
    peer: &Peer,
    timer: &mut ConnectionTimer<'_>,
    close_at: Instant,
    context: &mut Context<'_>,
) -> Poll<Idle> {
    peer.handle.attend(context);
    // Not a part of any future, which would be larger by as much.
    let mut space = [MaybeUninit::uninit(); FIRST_READ];
    let mut read = ReadBuf::uninit(&mut space);
    match Pin::new(&mut *io).poll_read(context, &mut read) {
        Poll::Ready(Ok(())) if !read.filled().is_empty() => {
            return Poll::Ready(Idle::Spoke(Bytes::copy_from_slice(read.filled())));
        }
        Poll::Ready(_) => return Poll::Ready(Idle::Left),
        Poll::Pending => {}
    }
    // TLS may have something of its own to say.
    if let Poll::Ready(Err(_)) = Pin::new(io).poll_flush(context) {
        return Poll::Ready(Idle::Left);
    }
    if peer.handle.is_draining() {
        return Poll::Ready(Idle::Over);
    }
    timer.poll(close_at, context).map(|_| Idle::Over)
}

/// A connection while it is busy.
struct Session<'a, 't, T> {
    io: &'a mut T,
    timer: &'a mut ConnectionTimer<'t>,
    peer: Arc<Peer>,
    manners: Manners,
    input: Input,
    outgoing: Outgoing<Bytes>,
    head: RequestHead,
    /// Since when it is busy, and how many requests it has served.
    since: Instant,
    requests: u32,
    /// Since when the head that is read is due; the first byte of it has come then.
    head_since: Option<Instant>,
    /// Since when no request is under way.
    idle_since: Option<Instant>,
    /// Since when the client takes nothing of what there is for it.
    blocked_since: Option<Instant>,
    /// Whether the client has ended its side.
    has_ended: bool,
    date: DateCache,
}

/// What follows a request.
enum Next {
    Request,
    Close {
        /// Whether the client may still be sending what nobody reads.
        lingers: bool,
    },
    /// The client has left, or is cut off.
    Gone,
}

impl<'a, 't, T: AsyncRead + AsyncWrite + Unpin + Send> Session<'a, 't, T> {
    fn new(
        io: &'a mut T,
        timer: &'a mut ConnectionTimer<'t>,
        peer: Arc<Peer>,
        manners: Manners,
    ) -> Self {
        let since = peer.worker.clock.now();
        Self {
            io,
            timer,
            peer,
            manners,
            input: Input::new(),
            outgoing: Outgoing::default(),
            head: RequestHead::default(),
            since,
            requests: 0,
            head_since: None,
            idle_since: None,
            blocked_since: None,
            has_ended: false,
            date: DateCache::default(),
        }
    }

    /// Serves requests until the connection is idle, and returns since when; `None` if it has
    /// ended. It begins with what has come, of which the first byte came at `since`.
    async fn run(mut self, began: Bytes, since: Option<Instant>) -> Option<Instant> {
        self.input = Input::beginning_with(&began);
        self.head_since = since;
        drop(began);
        loop {
            let next = match poll_fn(|context| self.poll_head(context)).await {
                Head::Whole(length) => self.serve(length).await,
                Head::Idle(since) => return Some(since),
                Head::Over => Next::Close { lingers: false },
                Head::Gone => Next::Gone,
                Head::Rejected(unread) => self.reject(unread),
            };
            match next {
                Next::Request => {}
                Next::Close { lingers } => {
                    Box::pin(self.close(lingers)).await;
                    return None;
                }
                Next::Gone => return None,
            }
        }
    }

    /// Answers a request that could not be read.
    fn reject(&mut self, unread: Unread) -> Next {
        unread.note(&self.peer);
        if unread.status.is_none() {
            return Next::Gone;
        }
        let clock = &self.peer.worker.clock;
        unread.write(self.outgoing.head(), &self.date.at(clock.wall_now()));
        Next::Close { lingers: true }
    }

    /// Serves the request whose head has this length.
    async fn serve(&mut self, length: usize) -> Next {
        let begun = poll_fn(|context| Poll::Ready(self.begin(length, context))).await;
        let (request, mut exchange) = match begun {
            Ok(begun) => begun,
            Err(unread) => return self.reject(unread),
        };
        let response = {
            let mut handled = pin!(handle(Arc::clone(&self.peer), request));
            poll_fn(|context| self.poll_response(handled.as_mut(), &mut exchange, context)).await
        };
        let Some(response) = response else { return Next::Gone };
        exchange.answer();
        let (head, body) = response.into_parts();
        let body = match body.into_tunnel() {
            Err(body) => body,
            Ok(joined) => {
                let date = self.date.at(self.peer.worker.clock.wall_now());
                response::write_agreement(self.outgoing.head(), &head, exchange.is_titled, &date);
                if poll_fn(|context| self.poll_flush(context)).await.is_ok() {
                    let ahead = mem::take(&mut self.input.bytes).freeze();
                    Box::pin(tunnel(Rewound::new(&mut *self.io, ahead), joined)).await;
                }
                return Next::Gone;
            }
        };
        let mut relay = self.begin_relay(&head, body, &mut exchange);
        self.peer.header_maps.give(head.headers);
        match poll_fn(|context| self.poll_relay(&mut relay, &mut exchange, context)).await {
            Relayed::Whole => self.next(relay.keeps_alive, exchange).await,
            Relayed::CutOff => Next::Gone,
        }
    }

    /// Decides what follows a request that has been answered.
    async fn next(&mut self, keeps_alive: bool, mut exchange: Exchange) -> Next {
        let is_kept = keeps_alive && exchange.keeps_alive && !self.has_ended;
        let is_kept = is_kept && !self.peer.handle.is_draining();
        if exchange.is_read() {
            let lingers = !self.input.bytes.is_empty();
            return if is_kept { Next::Request } else { Next::Close { lingers } };
        }
        if is_kept && Box::pin(self.discard(&mut exchange)).await {
            return Next::Request;
        }
        Next::Close { lingers: true }
    }

    /// Closes the connection in good order: what there is is written, then the gateway's side is
    /// closed, and if it `lingers` the client's is waited for.
    async fn close(&mut self, lingers: bool) {
        let mut lingering = Lingering::default();
        poll_fn(|context| {
            if !lingering.is_shut() {
                if ready!(self.poll_flush(context)).is_err() {
                    return Poll::Ready(());
                }
                match Pin::new(&mut *self.io).poll_shutdown(context) {
                    Poll::Ready(Ok(())) => lingering.begin(self.peer.worker.clock.now()),
                    Poll::Ready(Err(_)) => return Poll::Ready(()),
                    Poll::Pending => {
                        let now = || self.peer.worker.clock.now();
                        let since = *self.blocked_since.get_or_insert_with(now);
                        return self.timer.poll(since + GRACE, context).map(drop);
                    }
                }
            }
            if !lingers || self.has_ended {
                return Poll::Ready(());
            }
            let clock = &self.peer.worker.clock;
            lingering.poll(self.io, self.timer, clock, context)
        })
        .await;
    }

    /// Writes all that there is for the client, unless that takes too long.
    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
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
    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let polled = self.outgoing.poll_write(self.io, context);
        if polled.is_ready() {
            self.blocked_since = None;
        }
        polled
    }

    /// Waits for the time that a client may take nothing. To be called when it takes nothing.
    fn poll_blocked(&mut self, context: &mut Context<'_>) -> Poll<Instant> {
        let now = || self.peer.worker.clock.now();
        let since = *self.blocked_since.get_or_insert_with(now);
        self.timer.poll(since + self.manners.timeouts.write, context)
    }

    /// Waits for the earliest deadline of the request under way, and has it looked at.
    fn poll_deadlines(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let next = self.peer.timer.next();
        if next < Instant::FAR_FUTURE {
            let now = ready!(self.timer.poll(next, context));
            self.peer.timer.ring(now);
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

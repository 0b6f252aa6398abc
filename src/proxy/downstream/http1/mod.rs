//! HTTP/1.1 towards clients, from a connection's first byte to its last.
//!
//! One task drives a connection and all that is done for its requests, and sees in every state
//! whether the client has left. A connection that is idle holds nothing but its socket: see
//! [`serve()`]. While it is busy a [`session`] reads a head, has the request served, and moves the
//! bodies both ways.

mod client_input;
mod request;
mod response;
mod session;

use crate::flow::Instant;
use crate::proxy::{
    connections::registry::{ConnectionOptions, GRACE},
    downstream::unreadable::UnreadableRequest,
    io::{ClientIo, input::poll_first_read},
    peer::Peer,
    timeouts::timer::ConnectionTimer,
};
use bytes::Bytes;
use core::{
    future::poll_fn,
    mem,
    pin::{Pin, pin},
    task::{Context, Poll},
};
use session::Session;
use std::sync::Arc;

/// Serves a connection until it ends, is idle for too long or is drained.
///
/// The first byte of what has come already, `ahead`, came at `since`.
#[expect(clippy::manual_async_fn, reason = "one would hold each argument twice")]
pub(crate) fn serve<T>(
    mut io: T,
    mut ahead: Bytes,
    mut since: Option<Instant>,
    peer: Arc<Peer>,
    options: ConnectionOptions,
) -> impl Future<Output = ()> + Send
where
    T: ClientIo,
{
    async move {
        let clock = &peer.worker.clock;
        let now = clock.now();
        let armed = now + options.timeouts.header_read;
        let sleep = pin!(clock.timer(armed));
        let mut timer = ConnectionTimer::new(clock, sleep, armed);
        let mut idle_since = now;
        loop {
            if ahead.is_empty() {
                let close_at = idle_since + options.timeouts.keep_alive;
                match poll_fn(|context| poll_idle(&mut io, &peer, &mut timer, close_at, context))
                    .await
                {
                    Idle::Spoke(bytes) => ahead = bytes,
                    Idle::Left => return,
                    Idle::Over => break,
                }
            }

            let began = mem::take(&mut ahead);
            let session = Session::new(&mut io, &mut timer, Arc::clone(&peer), options);
            // In a box, so that an idle connection does not hold it.
            let mut busy = Box::pin(session.run(began, since.take(), idle_since));
            let poll =
                |context: &mut Context<'_>| peer.poll_time.during(|| busy.as_mut().poll(context));
            match poll_fn(poll).await {
                Some(since) => idle_since = since,
                None => return,
            }
            drop(busy);
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
}

/// Responds to a client of which no request is read, and closes the connection.
pub(crate) async fn reject<T>(
    mut io: T,
    peer: Arc<Peer>,
    options: ConnectionOptions,
    why: UnreadableRequest,
) where
    T: ClientIo,
{
    let clock = &peer.worker.clock;
    let armed = clock.now() + options.timeouts.header_read;
    let sleep = pin!(clock.timer(armed));
    let mut timer = ConnectionTimer::new(clock, sleep, armed);
    Session::new(&mut io, &mut timer, Arc::clone(&peer), options).reject_and_close(why).await;
}

/// How a connection stops being idle.
enum Idle {
    Spoke(Bytes),
    Left,
    /// It is to be closed.
    Over,
}

/// Waits without memory for what comes.
fn poll_idle<T: ClientIo>(
    io: &mut T,
    peer: &Peer,
    timer: &mut ConnectionTimer<'_>,
    close_at: Instant,
    context: &mut Context<'_>,
) -> Poll<Idle> {
    peer.handle.wake_on_drain(context);
    match poll_first_read(io, context) {
        Poll::Ready(Ok(bytes)) if !bytes.is_empty() => return Poll::Ready(Idle::Spoke(bytes)),
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

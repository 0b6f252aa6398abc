//! The bytes of a client while its request is served, and after its response: its body is read, and its
//! leave is noticed.

use super::{request::CurrentRequest, response, session::Session};
use crate::proxy::{
    body::{DISCARD_BYTES, DRAIN_BYTES, DRAIN_SILENCE, DRAIN_TIMEOUT},
    connections::registry::GRACE,
    io::ClientIo,
    message::Response,
    response::response_body::ResponseBody,
    timeouts::timer::ConnectionTimer,
};
use crate::{clock::Clock, flow::Instant, http1::BodyError};
use core::{
    future::poll_fn,
    mem::MaybeUninit,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Duration,
};
use http::Version;
use tokio::{
    io::{AsyncRead, ReadBuf},
    task::yield_now,
};

/// The most bytes that are read ahead while none are wanted: an end behind them shows that the client has
/// left.
const READ_AHEAD: usize = 16 * 1024;

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// The result of a look at the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientState {
    /// Whoever reads the body has something to read.
    Sent,
    /// Nothing has changed.
    Waits,
    /// It has left.
    Left,
}

impl<T: ClientIo> Session<'_, '_, T> {
    /// Polls for the response to the request under way; `None` if its client has left.
    pub(super) fn poll_response<F>(
        &mut self,
        mut handled: Pin<&mut F>,
        current: &mut CurrentRequest,
        context: &mut Context<'_>,
    ) -> Poll<Option<Response<ResponseBody>>>
    where
        F: Future<Output = Response<ResponseBody>>,
    {
        loop {
            self.peer.timer.begin();
            let polled = handled.as_mut().poll(context);
            if let Some(interim) = self.peer.interim.take() {
                self.write_interim(&interim, current);
            }
            if let Poll::Ready(response) = polled {
                return Poll::Ready(Some(response));
            }

            match self.look_at_client(current, context) {
                ClientState::Sent => continue,
                ClientState::Waits => {}
                ClientState::Left => return Poll::Ready(None),
            }
            loop {
                match self.poll_write(context) {
                    Poll::Ready(Ok(false)) => {}
                    Poll::Ready(Ok(true)) | Poll::Pending => break,
                    Poll::Ready(Err(_)) => return Poll::Ready(None),
                }
            }
            if self.poll_deadlines(context).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Writes interim responses.
    #[cold]
    fn write_interim(&mut self, interim: &[Response<()>], current: &CurrentRequest) {
        // A client of HTTP/1.0 does not know them.
        if current.version == Version::HTTP_11 {
            for response in interim {
                response::write_interim(self.outgoing.head(), response, current.is_titled);
            }
        }
    }

    /// Reads what the client sends: the body if it is wanted, else what shows that it stays.
    pub(super) fn look_at_client(
        &mut self,
        current: &mut CurrentRequest,
        context: &mut Context<'_>,
    ) -> ClientState {
        let is_wanted = current.is_wanted();
        if is_wanted {
            if current.decode(&mut self.input) {
                return ClientState::Sent;
            }
            if current.meets_expectation() {
                self.outgoing.head().extend_from_slice(CONTINUE);
            }
        } else if self.input.bytes.len() >= READ_AHEAD {
            return ClientState::Waits;
        }

        while !self.has_ended {
            match self.input.poll_read(self.io, context) {
                Poll::Pending => return ClientState::Waits,
                Poll::Ready(Ok(true)) if is_wanted => {
                    if current.decode(&mut self.input) {
                        return ClientState::Sent;
                    }
                }
                Poll::Ready(Ok(true)) => {
                    if self.input.bytes.len() >= READ_AHEAD {
                        return ClientState::Waits;
                    }
                }
                // It may still listen, and learns then that its body is not whole.
                Poll::Ready(_) if is_wanted => {
                    self.has_ended = true;
                    current.fail(BodyError::Incomplete);
                    return ClientState::Sent;
                }
                Poll::Ready(_) => return ClientState::Left,
            }
        }
        ClientState::Waits
    }
}

/// The time that the rest of a body is read to save its connection.
const DISCARD: Duration = Duration::from_secs(10);

/// Bytes that are read in one go, and how many before other tasks have their turn.
const READ: usize = 8 * 1024;
const TURN_MAX: usize = 256 * 1024;

/// Takes what the client still sends until it has closed its side too.
///
/// To what comes for a socket that is closed the kernel answers with a reset, which may reach
/// the client before it has read why its request was rejected, or stops it in the middle of a
/// write. So a server closes in stages (RFC 9112, 9.6).
#[derive(Debug, Default)]
pub(super) struct InputDrain {
    since: Option<Instant>,
    silent_since: Option<Instant>,
    bytes: usize,
}

impl InputDrain {
    /// Begins when the gateway's own side has been closed.
    pub(super) fn begin(&mut self, now: Instant) {
        self.since = Some(now);
        self.silent_since = Some(now);
    }

    /// Returns whether the gateway's own side has been closed.
    pub(super) fn is_shut(&self) -> bool {
        self.since.is_some()
    }

    /// Reads from `io` until it ends, has taken too long, or has brought too much.
    pub(super) fn poll<T: AsyncRead + Unpin>(
        &mut self,
        io: &mut T,
        timer: &mut ConnectionTimer<'_>,
        clock: &Clock,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        let mut turn = 0;
        loop {
            let mut space = [MaybeUninit::uninit(); READ];
            let mut unwanted = ReadBuf::uninit(&mut space);
            let Poll::Ready(read) = Pin::new(&mut *io).poll_read(context, &mut unwanted) else {
                break;
            };
            let count = unwanted.filled().len();
            self.bytes += count;
            turn += count;
            if read.is_err() || count == 0 || self.bytes > DRAIN_BYTES {
                return Poll::Ready(());
            }
            if turn >= TURN_MAX {
                let _pending = pin!(yield_now()).poll(context);
                break;
            }
        }

        if turn > 0 {
            self.silent_since = Some(clock.now());
        }
        let end =
            |since: Option<Instant>, limit| since.map_or(Instant::EPOCH, |since| since + limit);
        let until = end(self.since, DRAIN_TIMEOUT).min(end(self.silent_since, DRAIN_SILENCE));
        timer.poll(until, context).map(drop)
    }
}

impl<T: ClientIo> Session<'_, '_, T> {
    /// Closes the connection in good order: what there is is written, then the gateway's side is
    /// closed, and if it `drains` the gateway waits until the client closes its own.
    pub(super) async fn close(&mut self, drains: bool) {
        let mut drain = InputDrain::default();
        poll_fn(|context| {
            if !drain.is_shut() {
                if ready!(self.poll_flush(context)).is_err() {
                    return Poll::Ready(());
                }
                match Pin::new(&mut *self.io).poll_shutdown(context) {
                    Poll::Ready(Ok(())) => drain.begin(self.peer.worker.clock.now()),
                    Poll::Ready(Err(_)) => return Poll::Ready(()),
                    Poll::Pending => {
                        let now = || self.peer.worker.clock.now();
                        let since = *self.blocked_since.get_or_insert_with(now);
                        return self.timer.poll(since + GRACE, context).map(drop);
                    }
                }
            }
            if !drains || self.has_ended {
                return Poll::Ready(());
            }
            let clock = &self.peer.worker.clock;
            drain.poll(self.io, self.timer, clock, context)
        })
        .await;
    }

    /// Reads the rest of a body that will not be used, if it is small. Returns whether its connection
    /// can serve another request. A client that waits for 100 need not send the body.
    pub(super) async fn discard(&mut self, current: &mut CurrentRequest) -> bool {
        if current.is_held_back() || current.has_large_rest() {
            return false;
        }
        let until = self.peer.worker.clock.now() + DISCARD;
        let mut passed = 0;
        poll_fn(|context| {
            loop {
                match current.pass_over(&mut self.input) {
                    Ok(count) => passed += count,
                    Err(_) => return Poll::Ready(false),
                }
                if current.is_read() || passed > 2 * DISCARD_BYTES {
                    return Poll::Ready(current.is_read());
                }
                match self.input.poll_read(self.io, context) {
                    Poll::Ready(Ok(true)) => {}
                    Poll::Ready(_) => {
                        self.has_ended = true;
                        return Poll::Ready(false);
                    }
                    Poll::Pending => {
                        ready!(self.timer.poll(until, context));
                        return Poll::Ready(false);
                    }
                }
            }
        })
        .await
    }
}

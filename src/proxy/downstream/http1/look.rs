//! Looks at the client while its request is served: its body is read, and its leave is noticed.

use super::{current_request::CurrentRequest, response, session::Session};
use crate::http1::BodyError;
use crate::proxy::io::client_io::ClientIo;
use crate::proxy::message::response::Response;
use crate::proxy::response::response_body::ResponseBody;
use core::{
    pin::Pin,
    task::{Context, Poll},
};
use http::Version;

/// How much is read ahead of a client whose bytes are not wanted yet, in bytes: it shows that the client
/// has left, unless it has sent more.
const READ_AHEAD: usize = 16 * 1024;

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// What became of a look at the client.
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

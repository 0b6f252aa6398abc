//! A request that is being served: what is left of its body, and whether its client stays.

use super::{Session, response};
use crate::{
    http1::{BodyDecoder, BodyError, Framing, HeadLimits, RequestKind, Trailers},
    proxy::{body::ResponseBody, client_body::BodySender, input::Input},
};
use bytes::Buf;
use core::{
    pin::Pin,
    task::{Context, Poll},
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, Version, header::TE};
use tokio::io::{AsyncRead, AsyncWrite};

/// How much is read ahead of a client whose bytes nobody wants yet: it shows that the client has
/// left, unless it has sent more.
const READ_AHEAD: usize = 16 * 1024;

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// See the module.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) request: RequestKind,
    pub(super) version: Version,
    /// Whether another request may follow, as far as this one says.
    pub(super) keeps_alive: bool,
    /// Whether the client takes trailers.
    pub(super) takes_trailers: bool,
    /// Whether it heeds the case of names.
    pub(super) is_titled: bool,
    decoder: BodyDecoder,
    /// Who reads the body, if there is one that has not ended.
    sender: Option<BodySender>,
    expectation: Expectation,
}

/// Whether the client waits for 100 before it sends its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expectation {
    None,
    Open,
    /// The response has come first, which no 100 can follow.
    Unmet,
}

/// What became of a look at the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    /// Whoever reads the body has something to read.
    Sent,
    /// Nothing has changed.
    Waits,
    /// It has left.
    Left,
}

impl Exchange {
    pub(super) fn new(
        request: RequestKind,
        version: Version,
        framing: &Framing,
        limits: HeadLimits,
    ) -> Self {
        Self {
            request,
            version,
            keeps_alive: framing.keeps_alive,
            takes_trailers: false,
            is_titled: false,
            decoder: BodyDecoder::new(framing.body, limits),
            sender: None,
            expectation: Expectation::None,
        }
    }

    /// Notes whether the request with these fields takes trailers.
    pub(super) fn accepts_trailers(&mut self, headers: &HeaderMap) {
        let lists = headers.get_all(TE).iter().filter_map(|list| list.to_str().ok());
        let mut codings = lists.flat_map(|list| list.split(','));
        self.takes_trailers = codings.any(|coding| coding.trim().eq_ignore_ascii_case("trailers"));
    }

    /// Notes whether the client waits for 100 before it sends the body.
    pub(super) fn expects(&mut self, expects: bool) {
        if expects && self.version == Version::HTTP_11 {
            self.expectation = Expectation::Open;
        }
    }

    /// Has `sender` get the body, of which a part may be there.
    pub(super) fn send_body(&mut self, sender: BodySender, input: &mut Input) {
        self.sender = Some(sender);
        self.decode(input);
    }

    /// Whether the whole body has come.
    pub(super) fn is_read(&self) -> bool {
        self.decoder.is_end()
    }

    /// Whether the client may still be waiting to send its body.
    pub(super) fn is_held_back(&self) -> bool {
        self.expectation != Expectation::None
    }

    /// Notes that the response has begun.
    pub(super) fn answer(&mut self) {
        if self.expectation == Expectation::Open {
            self.expectation = Expectation::Unmet;
        }
    }

    /// Returns how much of a body of declared length has not come.
    pub(super) fn left(&self) -> Option<u64> {
        self.decoder.left()
    }

    /// Hands over what there is of the body. Returns whether that was anything.
    fn decode(&mut self, input: &mut Input) -> bool {
        let Some(sender) = &self.sender else { return false };
        if input.bytes.is_empty() || self.decoder.is_end() {
            return false;
        }
        self.expectation = Expectation::None;
        let decoded = match self.decoder.decode(&mut input.bytes) {
            Ok(decoded) => decoded,
            Err(error) => {
                self.fail(error);
                return true;
            }
        };
        let mut data = input.take(decoded.consumed);
        data.truncate(decoded.data.end);
        data.advance(decoded.data.start);
        let is_new = !data.is_empty() || decoded.is_end;
        if !data.is_empty() {
            sender.send(data);
        }
        if decoded.is_end {
            sender.end(self.decoder.trailers().map(trailers));
            self.sender = None;
        }
        is_new
    }

    /// Passes over what there is of the body. Returns how much that was.
    ///
    /// # Errors
    ///
    /// It is malformed.
    pub(super) fn pass_over(&mut self, input: &mut Input) -> Result<usize, BodyError> {
        if input.bytes.is_empty() || self.decoder.is_end() {
            return Ok(0);
        }
        let decoded = self.decoder.decode(&mut input.bytes)?;
        input.bytes.advance(decoded.consumed);
        Ok(decoded.consumed)
    }

    fn fail(&mut self, error: BodyError) {
        // It is not known where the next request begins.
        self.keeps_alive = false;
        if let Some(sender) = self.sender.take() {
            sender.fail(error);
        }
    }
}

fn trailers(read: &Trailers) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    for field in read.fields().iter() {
        // Both are valid by how they were parsed.
        if let Ok(name) = HeaderName::from_bytes(field.name)
            && let Ok(value) = HeaderValue::from_bytes(field.value)
        {
            trailers.append(name, value);
        }
    }
    trailers
}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Session<'_, '_, T> {
    /// Polls for the response to the request under way; `None` if its client has left.
    pub(super) fn poll_response<F>(
        &mut self,
        mut handled: Pin<&mut F>,
        exchange: &mut Exchange,
        context: &mut Context<'_>,
    ) -> Poll<Option<Response<ResponseBody>>>
    where
        F: Future<Output = Response<ResponseBody>>,
    {
        loop {
            self.peer.timer.begin();
            let polled = handled.as_mut().poll(context);
            for interim in self.peer.interim.take() {
                // A client of HTTP/1.0 does not know them.
                if exchange.version == Version::HTTP_11 {
                    response::write_interim(self.outgoing.head(), &interim, exchange.is_titled);
                }
            }
            if let Poll::Ready(response) = polled {
                return Poll::Ready(Some(response));
            }
            match self.look_at_client(exchange, context) {
                Client::Sent => continue,
                Client::Waits => {}
                Client::Left => return Poll::Ready(None),
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

    /// Reads what the client sends: the body if it is wanted, else what shows that it stays.
    pub(super) fn look_at_client(
        &mut self,
        exchange: &mut Exchange,
        context: &mut Context<'_>,
    ) -> Client {
        let is_wanted = exchange.sender.as_ref().is_some_and(BodySender::is_wanted);
        if is_wanted {
            if exchange.decode(&mut self.input) {
                return Client::Sent;
            }
            if exchange.expectation == Expectation::Open {
                exchange.expectation = Expectation::None;
                self.outgoing.head().extend_from_slice(CONTINUE);
            }
        } else if self.input.bytes.len() >= READ_AHEAD {
            return Client::Waits;
        }
        while !self.has_ended {
            match self.input.poll_read(self.io, context) {
                Poll::Pending => return Client::Waits,
                Poll::Ready(Ok(true)) if is_wanted => {
                    if exchange.decode(&mut self.input) {
                        return Client::Sent;
                    }
                }
                Poll::Ready(Ok(true)) => {
                    if self.input.bytes.len() >= READ_AHEAD {
                        return Client::Waits;
                    }
                }
                // It may still listen, and learns then that its body is not whole.
                Poll::Ready(_) if is_wanted => {
                    self.has_ended = true;
                    exchange.fail(BodyError::Incomplete);
                    return Client::Sent;
                }
                Poll::Ready(_) => return Client::Left,
            }
        }
        Client::Waits
    }
}

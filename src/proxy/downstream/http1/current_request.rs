//! A request that is being served: what is left of its body, and whether its client stays.

use crate::http1::{BodyDecoder, BodyError, Framing, HeadLimits, RequestKind, Trailers};
use crate::http1::{FieldKind, FieldList};
use crate::proxy::{
    body::{client_body::BodySender, drain_body::DISCARD_BYTES},
    io::input::Input,
    message::hop_by_hop::accepts_trailers,
};
use bytes::Buf;
use http::{HeaderMap, HeaderName, HeaderValue, Version};

/// A request that is being served, with the decoder of its body.
#[derive(Debug)]
pub(crate) struct CurrentRequest {
    pub(crate) request: RequestKind,
    pub(crate) version: Version,
    /// Whether another request may follow, as far as this one says.
    pub(crate) keeps_alive: bool,
    /// Whether the client takes trailers.
    pub(crate) takes_trailers: bool,
    /// Whether it depends on the case of names.
    pub(crate) is_titled: bool,
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

impl CurrentRequest {
    pub(crate) fn new(
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
    pub(crate) fn accepts_trailers(&mut self, headers: &FieldList) {
        if headers.set().has(FieldKind::Te) {
            self.takes_trailers = accepts_trailers(headers);
        }
    }

    /// Notes whether the client waits for 100 before it sends the body.
    pub(crate) fn expects(&mut self, expects: bool) {
        if expects && self.version == Version::HTTP_11 {
            self.expectation = Expectation::Open;
        }
    }

    /// Has `sender` get the body, of which a part may be there.
    pub(crate) fn send_body(&mut self, sender: BodySender, input: &mut Input) {
        self.sender = Some(sender);
        self.decode(input);
    }

    /// Whether the whole body has come.
    pub(crate) fn is_read(&self) -> bool {
        self.decoder.is_end()
    }

    /// Whether the client may still be waiting to send its body.
    pub(crate) fn is_held_back(&self) -> bool {
        self.expectation != Expectation::None
    }

    /// Whether whoever reads the body waits for it.
    pub(crate) fn is_wanted(&self) -> bool {
        self.sender.as_ref().is_some_and(BodySender::is_wanted)
    }

    /// Whether the client is to be asked now for its body. It is asked once.
    pub(crate) fn meets_expectation(&mut self) -> bool {
        let is_open = self.expectation == Expectation::Open;
        if is_open {
            self.expectation = Expectation::None;
        }
        is_open
    }

    /// Notes that the response has begun.
    pub(crate) fn answer(&mut self) {
        if self.expectation == Expectation::Open {
            self.expectation = Expectation::Unmet;
        }
    }

    /// Whether more of a body of declared length has not come than is discarded to save its connection.
    pub(crate) fn has_large_rest(&self) -> bool {
        self.decoder.left().is_some_and(|left| left > DISCARD_BYTES as u64)
    }

    /// Hands over what there is of the body. Returns whether that was anything.
    #[inline(never)]
    pub(crate) fn decode(&mut self, input: &mut Input) -> bool {
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
    pub(crate) fn pass_over(&mut self, input: &mut Input) -> Result<usize, BodyError> {
        if input.bytes.is_empty() || self.decoder.is_end() {
            return Ok(0);
        }
        let decoded = self.decoder.decode(&mut input.bytes)?;
        input.bytes.advance(decoded.consumed);
        Ok(decoded.consumed)
    }

    /// Notes that the body cannot be read to its end.
    #[cold]
    pub(crate) fn fail(&mut self, error: BodyError) {
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

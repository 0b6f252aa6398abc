//! From a head's bytes to a request, and the decoder of its body.

use super::session::Session;
use crate::proxy::{
    body::{BodySender, ClientBody, DISCARD_BYTES, client_body::channel},
    downstream::unreadable::UnreadableRequest,
    io::{ClientIo, input::Input},
    message::{Request, hop_by_hop::accepts_trailers},
};
use crate::{
    config::HeaderCase,
    http1::{
        BodyDecoder, BodyError, BodyLength, FieldKind, FieldList, Framing, HeadLimits, RequestKind,
        Trailers,
    },
    route::{Word, any_byte},
};
use bytes::{Buf, Bytes};
use core::task::Context;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version, header};

/// A request that is being served, with the decoder of its body.
#[derive(Debug)]
pub(crate) struct CurrentRequest {
    pub(crate) request: RequestKind,
    pub(crate) version: Version,
    /// True if another request may follow, as far as this one says.
    pub(crate) keeps_alive: bool,
    /// True if the client takes trailers.
    pub(crate) takes_trailers: bool,
    /// True if it depends on the case of names.
    pub(crate) is_titled: bool,
    decoder: BodyDecoder,
    /// The reader of the body, if there is one that has not ended.
    sender: Option<BodySender>,
    expectation: Expectation,
}

/// The wait of a client for 100 before it sends its body.
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

    /// Returns whether the whole body has come.
    pub(crate) fn is_read(&self) -> bool {
        self.decoder.is_end()
    }

    /// Returns whether the client may still be waiting to send its body.
    pub(crate) fn is_held_back(&self) -> bool {
        self.expectation != Expectation::None
    }

    /// Returns whether whoever reads the body waits for it.
    pub(crate) fn is_wanted(&self) -> bool {
        self.sender.as_ref().is_some_and(BodySender::is_wanted)
    }

    /// Returns whether the client is to be asked now for its body. It is asked once.
    pub(crate) fn meets_expectation(&mut self) -> bool {
        let is_open = self.expectation == Expectation::Open;
        if is_open {
            self.expectation = Expectation::None;
        }
        is_open
    }

    /// Notes that the response has begun.
    pub(crate) fn begin_response(&mut self) {
        if self.expectation == Expectation::Open {
            self.expectation = Expectation::Unmet;
        }
    }

    /// Returns whether more of a body of declared length has not come than is discarded to save its connection.
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

const NO_URI: UnreadableRequest = UnreadableRequest::malformed(
    "the target has a character that must be percent-encoded, or is not a URI",
);

impl<T: ClientIo> Session<'_, '_, T> {
    /// Takes a head of this length, and begins to serve its request.
    ///
    /// # Errors
    ///
    /// The target is none.
    pub(super) fn begin(
        &mut self,
        length: usize,
        context: &Context<'_>,
    ) -> Result<(Request<ClientBody>, CurrentRequest), UnreadableRequest> {
        self.requests = self.requests.saturating_add(1);
        self.head_since = None;
        self.idle_since = None;
        self.head.lower_names(&mut self.input.bytes);

        let bytes = self.input.take(length);
        let mut head = self.peer.spare_heads.request();
        // It is a token.
        head.method = Method::from_bytes(self.head.method(&bytes)).unwrap_or_default();
        head.uri = uri(&bytes, self.head.target(&bytes)).ok_or(NO_URI)?;
        head.version = self.head.version();
        self.head.move_fields(bytes, &mut head.headers);

        let mut request = Request::from_parts(head, ClientBody::Empty);
        let framing = *self.head.framing();
        let limits = &self.options.limits;
        let limits = HeadLimits { bytes: limits.header_bytes, fields: limits.headers };

        let mut current = CurrentRequest::new(
            RequestKind::of(request.method().as_str().as_bytes()),
            request.version(),
            &framing,
            limits,
        );
        current.accepts_trailers(request.headers());
        current.is_titled = self.options.header_case == HeaderCase::Title;

        if framing.body != BodyLength::None {
            self.begin_body(framing.body, &mut request, &mut current, context);
        }
        Ok((request, current))
    }

    /// Begins to pass on the request's body.
    #[inline(never)]
    fn begin_body(
        &mut self,
        length: BodyLength,
        request: &mut Request<ClientBody>,
        current: &mut CurrentRequest,
        context: &Context<'_>,
    ) {
        let left = match length {
            BodyLength::Exactly(length) => Some(length),
            BodyLength::None | BodyLength::Chunked | BodyLength::UntilClose => None,
        };
        let (sender, body) = channel(left, context);
        current.expects(request.headers().contains_key(&header::EXPECT));
        current.send_body(sender, &mut self.input);
        *request.body_mut() = ClientBody::Http1(body);
    }
}

/// Returns the target as a URI that shares `head`; `None` if it is none.
fn uri(head: &Bytes, target: &[u8]) -> Option<Uri> {
    match encoded(target) {
        None => Uri::from_maybe_shared(head.slice_ref(target)).ok(),
        Some(encoded) => Uri::from_maybe_shared(Bytes::from(encoded)).ok(),
    }
}

/// Returns the target as the parser of URIs takes it; `None` if that is what it is.
fn encoded(target: &[u8]) -> Option<Vec<u8>> {
    let odd =
        |word: Word| word.equal(b'"') | word.equal(b'<') | word.equal(b'>') | word.equal(b'`');
    any_byte(target, odd).then(|| encode(target))
}

#[cold]
fn encode(target: &[u8]) -> Vec<u8> {
    let mut written = Vec::with_capacity(2 * target.len());
    let mut is_query = false;
    let mut is_fragment = false;
    for byte in target {
        is_fragment |= *byte == b'#';
        let is_odd = match byte {
            // A fragment, which is dropped, does not matter.
            _ if is_fragment => false,
            b'<' | b'>' => true,
            b'`' => !is_query,
            b'"' => is_query,
            _ => false,
        };
        is_query |= *byte == b'?';
        if is_odd {
            const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
            let [high, low] = [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
            written.extend_from_slice(&[b'%', high, low]);
        } else {
            written.push(*byte);
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_uri_cannot_have_is_encoded_and_nothing_else() {
        for (target, expected) in [
            ("/a?b=c", None),
            ("/a\"<`?b=\"<`>#\"<", Some("/a\"%3C%60?b=%22%3C`%3E#\"<")),
            ("/?a?\"", Some("/?a?%22")),
            ("http://a/<", Some("http://a/%3C")),
        ] {
            let found = encoded(target.as_bytes());
            let found = found.map(|found| String::from_utf8(found).expect("text"));
            assert_eq!(found.as_deref(), expected, "{target}");
        }
    }
}

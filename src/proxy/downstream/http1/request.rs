//! From a head's bytes to a request.

use super::{current_request::CurrentRequest, session::Session, target};
use crate::proxy::message::request::Request;
use crate::proxy::{
    body::client_body::{ClientBody, channel},
    downstream::unreadable::UnreadableRequest,
    io::client_io::ClientIo,
};
use crate::{
    config::HeaderCase,
    http1::{BodyLength, HeadLimits, RequestKind},
};
use bytes::Bytes;
use core::task::Context;
use http::{Method, Uri, header};

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
    match target::encoded(target) {
        None => Uri::from_maybe_shared(head.slice_ref(target)).ok(),
        Some(encoded) => Uri::from_maybe_shared(Bytes::from(encoded)).ok(),
    }
}

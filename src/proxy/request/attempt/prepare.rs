//! What is done with a request before it is sent.

use super::request::UpstreamRequest;
use crate::proxy::{
    body::request_body::RequestBody,
    message::request::{Request, RequestHead},
    placeholders,
    request::forward,
};
use crate::{config::Server, http1::FieldKind, traces::TRACEPARENT};
use http::{HeaderValue, Method, header};
use std::sync::Arc;

impl UpstreamRequest<'_> {
    /// Makes the client's request the upstream's. Returns whether it does no harm to send it again.
    pub(super) fn prepare(&self, request: &mut Request<RequestBody>) -> bool {
        if self.forward.fields.has(FieldKind::Expect)
            && let (Some(activity), Some(stream)) = (self.peer.http2.get(), self.stream)
        {
            request.body_mut().expect(activity, stream);
        }
        let is_repeatable = matches!(request.body(), RequestBody::Empty)
            && self.forward.upgrade.is_none()
            && match &self.route.options.retry {
                None => is_safe(request.method()),
                Some(policy) => policy.methods.contains(request.method()),
            };
        let rewrite = self.route.options.rewrite.as_ref();
        let host = rewrite.and_then(|rewrite| rewrite.host.as_ref());
        forward::prepare(request, self.peer, self.forward, host);
        let edits = &self.route.options.request_headers;
        let RequestHead { headers, trace, .. } = request.head_mut();
        if trace.is_some()
            && edits.names(&TRACEPARENT)
            && let Some(trace) = trace.take()
        {
            headers.insert(&TRACEPARENT, trace.header());
        }
        placeholders::edit(headers, edits, self.values);
        is_repeatable
    }

    /// Notes the server before it is asked, as the client may leave at any time.
    pub(super) fn begin_attempt(
        &mut self,
        server: &Arc<Server>,
        request: &mut Option<Request<RequestBody>>,
    ) {
        self.attempts += 1;
        self.timeout = None;
        if self.forward.authority.value.is_empty() {
            self.name_host(server, request);
        }
        if self.entry.is_some() {
            self.log_attempt(server, request);
        }
    }

    /// Gives a request of HTTP/1.0 that names no host the server's address as its `Host`, unless the
    /// route sets another.
    #[cold]
    fn name_host(&self, server: &Server, request: &mut Option<Request<RequestBody>>) {
        let rewrite = self.route.options.rewrite.as_ref();
        if rewrite.is_none_or(|rewrite| rewrite.host.is_none())
            && let Some(request) = request
            && let Ok(host) = HeaderValue::try_from(server.host_field())
        {
            request.headers_mut().insert(header::HOST, host);
        }
    }

    /// Notes the server for the access log and the trace.
    #[inline(never)]
    fn log_attempt(&mut self, server: &Arc<Server>, request: &mut Option<Request<RequestBody>>) {
        let Some(entry) = &mut self.entry else { return };
        entry.asked(server, self.attempts);
        if let (Some(recording), Some(request)) = (&mut entry.recording, request) {
            let now = self.peer.worker.clock.now();
            let path = request.uri().path().to_owned();
            // What the route set in its place is not that of this attempt.
            request.headers_mut().remove(&TRACEPARENT);
            request.head_mut().trace = Some(recording.attempt(server, path, now));
        }
    }
}

/// Safe methods (RFC 9110, 9.2.1) that the gateway serves.
fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

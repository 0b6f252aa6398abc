//! The fourth stage of a request: the head of a server's response is there, and becomes the client's.

use super::{dropped_body::release, forward};
use crate::proxy::{
    gateway_error::{Failure, GatewayError},
    message::{
        ExtendedConnect, RequestHead, Response,
        hop_by_hop::{X_FORWARDED_PROTO, strip_hop_by_hop},
    },
    placeholders,
    record::Completion,
    response::{
        compress, cors,
        own_response::{error_response, replace_body},
        response_body::ResponseBody,
        tunnel::{Http2Tunnel, Joined, tunnel},
    },
    timeouts::{body_timeout::BodyTimeout, timeout::Timeout},
    upstream::{Http1Connection, keep_alive, sticky},
};
use crate::{
    config::{Body, Route},
    flow::Instant,
    http1::{FieldKind, FieldList},
};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, Version, header};
use std::sync::Arc;

const NO_CONTENT: StatusCode = StatusCode::NO_CONTENT;
const UPGRADE_REQUIRED: StatusCode = StatusCode::UPGRADE_REQUIRED;

/// A request with the head of its server's response, whose body comes over the completion's lease.
pub(super) struct Forwarded {
    pub(super) response: Response<()>,
    pub(super) route: Arc<Route>,
    /// The head of the request, as the server got it.
    pub(super) head: Box<RequestHead>,
    /// The end of the time that the whole request may take.
    pub(super) deadline: Instant,
    pub(super) is_grpc: bool,
    /// The protocol that the server may change to.
    pub(super) upgrade: Option<Box<HeaderValue>>,
    pub(super) completion: Box<Completion>,
}

impl Forwarded {
    /// Turns the server's response into the client's.
    pub(super) fn respond(mut self) -> Response<ResponseBody> {
        let status = self.response.status();
        if status == StatusCode::SWITCHING_PROTOCOLS {
            return self.switch();
        }
        self.completion.read_costs(self.response.headers());
        if self.head.extended.is_some() && status.is_success() {
            // The client would take it for the server's consent.
            return self.reject("it answered an upgrade with a success");
        }

        let fields = self.response.headers().set();
        if !fields.are_plain() || matches!(status, NO_CONTENT | UPGRADE_REQUIRED) {
            self.clean(status);
        }
        self.add_own_fields();
        if status.as_u16() >= 400
            && let Some(body) = self.error_body(status)
        {
            return self.replace_error(status, &body);
        }

        let Self { mut response, route, head, deadline, is_grpc, mut completion, .. } = self;
        completion.begin_forwarded_response(status, head);
        if route.usage.is_some() {
            completion.begin_usage(response.headers());
        }
        let encoder = match &route.options.compress {
            Some(compress) if !is_grpc => {
                compress::begin(compress, status, response.headers_mut(), &completion)
            }
            Some(_) | None => None,
        };

        let timeouts = &route.options.timeouts;
        let is_event_stream =
            fields.has(FieldKind::ContentType) && is_event_stream(response.headers());
        let body_timeout = if is_event_stream {
            BodyTimeout::new(Timeout::EventStream, timeouts.event_stream, deadline)
        } else {
            BodyTimeout::new(Timeout::Idle, timeouts.idle, deadline)
        };
        let is_grpc = is_grpc && completion.arrival.version == Version::HTTP_2;
        response.map(|()| ResponseBody::upstream(body_timeout, is_grpc, encoder, completion))
    }

    /// Returns the body that the route has for the server's error.
    #[cold]
    fn error_body(&self, status: StatusCode) -> Option<Body> {
        let options = &self.route.options;
        options.upstream_error_body(status).filter(|_| !self.is_grpc).cloned()
    }

    /// Responds with the server's status and the route's `body`.
    #[cold]
    fn replace_error(self, status: StatusCode, body: &Body) -> Response<ResponseBody> {
        let Self { mut response, head, mut completion, .. } = self;
        let body = replace_body(&mut response, body, &completion);
        completion.begin_forwarded_response(status, head);

        // Of the server's response only the body is dropped: its connection is used again.
        release(completion.upstream.lease.take(), &completion.peer);
        response.map(|()| ResponseBody::own(body, completion))
    }

    /// Adds the fields of the gateway, and those that the route sets.
    fn add_own_fields(&mut self) {
        let headers = self.response.headers_mut();
        if let Some(quota) = &self.completion.decision.quota {
            quota.write(headers, &self.route);
        }
        self.completion.write_id(headers);
        if let Some(upstream) = self.route.action.upstream()
            && upstream.options.sticky.is_some()
            && let Some(lease) = &self.completion.upstream.lease
        {
            // Of a request that was sent to an upstream, its scheme is there.
            let proto = self.head.headers.get(&X_FORWARDED_PROTO);
            let is_secure = proto.is_some_and(|proto| proto.eq_ignore_ascii_case(b"https"));
            let seed = self.completion.peer.worker.cookie_seed();
            let sent = self.completion.upstream.sticky;
            sticky::write(headers, &seed, lease.upstream(), lease.server(), sent, is_secure);
        }
        let edits = &self.route.options.response_headers;
        placeholders::edit(headers, edits, self.completion.values.as_deref());
        cors::write(&self.route.options, self.completion.origin.as_deref(), headers);
    }

    /// Removes and rewrites the fields that the client may not receive as they came.
    #[inline(never)]
    fn clean(&mut self, status: StatusCode) {
        let headers = self.response.headers_mut();
        let fields = headers.set();

        // It says which protocol the client must ask for (RFC 9110, 15.5.22).
        let is_http1 = self.completion.arrival.version != Version::HTTP_2;
        let required = (status == UPGRADE_REQUIRED && is_http1)
            .then(|| headers.value(&header::UPGRADE))
            .flatten();
        if fields.has(FieldKind::OtherHop)
            && let Some(lease) = &mut self.completion.upstream.lease
        {
            lease.keep_for(keep_alive::announced(headers));
        }

        strip_hop_by_hop(headers, fields);
        if fields.have_blanks() {
            headers.trim();
        }
        if let Some(protocols) = required {
            headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(header::UPGRADE, protocols);
        }

        forward::frame_response(status, headers, fields);
    }

    /// Responds in place of the server, whose response the client may not receive.
    #[cold]
    fn reject(self, cause: &str) -> Response<ResponseBody> {
        let Self { head, mut completion, .. } = self;
        completion.note_bad_response(cause);
        completion.observers.keep_path(&head.uri);
        if let Some(lease) = completion.upstream.lease.take() {
            lease.on_failure();
        }
        completion.stand_for_upstream();
        error_response(GatewayError::Upstream(Failure::Broken), None, completion)
    }

    /// Joins the client to the server, if both mean the same protocol.
    #[inline(never)]
    fn switch(mut self) -> Response<ResponseBody> {
        let agreed = self.response.headers().get(&header::UPGRADE);
        let agreement = self.upgrade.take().filter(|token| {
            agreed.is_some_and(|agreed| agreed.eq_ignore_ascii_case(token.as_bytes()))
        });
        let lease = &mut self.completion.upstream.lease;
        let server = agreement.and_then(|token| Some((token, lease.as_mut()?.detach()?)));
        let Some((token, server)) = server else {
            // The client may have sent bytes for the tunnel, which are no request.
            self.completion.closes = true;
            return self.reject("it switched to a protocol that was not asked for");
        };

        let headers = self.response.headers_mut();
        let fields = headers.set();
        strip_hop_by_hop(headers, fields);
        // A 101 has none, and neither has a success of CONNECT (RFC 9110, 8.6).
        headers.remove(&header::CONTENT_LENGTH);
        self.add_own_fields();

        if let Some(extended) = self.head.extended.take() {
            return self.join_stream(extended, server);
        }
        let Self { mut response, route, head, mut completion, .. } = self;
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, *token);
        completion.begin_forwarded_response(StatusCode::SWITCHING_PROTOCOLS, head);
        let idle = route.options.timeouts.tunnel;
        response.map(|()| ResponseBody::tunnel(server, idle, completion))
    }

    /// Consents to a tunnel over a stream of HTTP/2, and joins the client to `server` in a task.
    fn join_stream(
        self,
        extended: ExtendedConnect,
        server: Box<Http1Connection>,
    ) -> Response<ResponseBody> {
        let Self { mut response, route, head, mut completion, .. } = self;
        response.headers_mut().remove(&header::SEC_WEBSOCKET_ACCEPT);
        *response.status_mut() = StatusCode::OK;
        completion.begin_forwarded_response(StatusCode::OK, head);

        // The stream's response ends with its head, and the request with the tunnel.
        let stream = completion.of_head_only();
        let peer = Arc::clone(&completion.peer);
        let joined = Joined { server, idle: route.options.timeouts.tunnel, completion };
        stream.peer.worker.tasks.spawn(async move {
            // A client that leaves before the response has begun ends the request as cancelled.
            let Some((from_client, to_client)) = extended.accepted().await else { return };
            let buffer = peer.upload_buffer().cloned();
            let mut client = Http2Tunnel::new(from_client, to_client, buffer);
            let reset = client.reset();
            tokio::select! {
                // What came before a reset is passed on first.
                biased;
                is_broken = tunnel(&mut client, joined) => {
                    if is_broken {
                        reset.send();
                    }
                }
                // The request ends as cancelled.
                () = reset.client_left() => {}
            }
        });
        response.map(|()| ResponseBody::own(Bytes::new(), stream))
    }
}

/// Returns whether a response is a stream of events, which may be silent for long.
#[inline(never)]
fn is_event_stream(headers: &FieldList) -> bool {
    const EVENT_STREAM: &[u8] = b"text/event-stream";
    let value = headers.first(FieldKind::ContentType).unwrap_or_default();
    let parts = value.trim_ascii_start().split_at_checked(EVENT_STREAM.len());
    parts.is_some_and(|(media, rest)| {
        media.eq_ignore_ascii_case(EVENT_STREAM)
            && matches!(rest.trim_ascii_start().first(), None | Some(b';'))
    })
}

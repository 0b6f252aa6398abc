//! The part of a request's journey that takes time: held, sent on, answered.

use super::{
    discard::discard,
    exchange::{Answer, Exchange},
    extended_connect::{Counted, ExtendedConnect},
    failure::Failure,
    fields::{Field, Fields},
    grpc::{self, is_grpc},
    headers::{self, Forward},
    hop_by_hop::strip_hop_by_hop,
    options::Protocol,
    own_answer,
    patience::Patience,
    placeholders,
    quota::Told,
    refusal::Refusal,
    reply::refuse,
    request::Invalid,
    request_body::RequestBody,
    response_body::ResponseBody,
    retry::Retries,
    tail::Tail,
    timeout::Timeout,
    upgrade::{Joined, tunnel},
    upstream::{keep_alive, lease::Lease},
};
use crate::{config::Route, flow::Instant, meter};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version, header};
use hyper_util::rt::TokioIo;
use std::sync::Arc;

/// An admitted request.
pub(super) struct Journey {
    /// As the client sent it, until it is prepared for the upstream.
    pub(super) request: Option<Request<RequestBody>>,
    pub(super) route: Arc<Route>,
    pub(super) forward: Forward,
    /// What the client speaks.
    pub(super) protocol: Protocol,
    /// The fields with the client's quotas.
    pub(super) told: Option<Told>,
    /// When it may start.
    pub(super) start: Instant,
    /// The client's side of a tunnel over HTTP/2.
    pub(super) extended: Option<ExtendedConnect>,
    pub(super) tail: Box<Tail>,
}

const NO_PROTOCOL: Invalid = Invalid {
    kind: meter::Refusal::Method,
    why: "this route does not allow the protocol that CONNECT asks for",
};

impl Journey {
    /// Waits until the request may start, sends it on and brings the answer back.
    pub(super) async fn travel(mut self: Box<Self>) -> Response<ResponseBody> {
        if self.start > self.tail.started {
            let (clock, start) = (self.tail.peer.worker.clock.clone(), self.start);
            // In a box because it is rare, and would make every request's future larger.
            Box::pin(async move { clock.sleep_until(start).await }).await;
            self.start = self.tail.peer.worker.clock.now();
        }
        self.upgrade();
        if self.extended.is_some() && self.forward.upgrade.is_none() {
            return refuse(Refusal::Invalid(NO_PROTOCOL), &HeaderMap::new(), self.tail);
        }
        let Some(upstream) = self.route.action.upstream().map(Arc::clone) else {
            return self.answer_itself();
        };
        let content_type = self.content_type();
        let is_grpc = content_type.as_ref().is_some_and(is_grpc);
        let deadline = self.deadline(is_grpc);
        if let (Some(entry), Some(request)) = (&mut self.tail.entry, &self.request) {
            entry.upload = request.body().upload();
            entry.sent(self.start);
        }
        let mut exchange = Exchange {
            peer: &self.tail.peer,
            route: &self.route,
            upstream: &upstream,
            values: self.tail.values.as_deref(),
            forward: &self.forward,
            start: self.start,
            deadline,
            protocol: self.protocol,
            attempts: 0,
            retries: Retries::new(self.route.options.retry.as_ref()),
            entry: self.tail.entry.as_deref_mut(),
            timeout: None,
        };
        let sent = exchange.send(&mut self.request).await;
        self.tail.timeout = exchange.timeout;
        self.tail.attempts = exchange.attempts;
        if let Some(entry) = &mut self.tail.entry {
            let status = sent.as_ref().ok().map(|(response, _)| response.status());
            entry.returned(status, self.tail.peer.worker.clock.now());
        }
        match sent {
            Ok(answer) => {
                if let Some(request) = self.request.take() {
                    self.tail.peer.header_maps.give(request.into_parts().0.headers);
                }
                self.answer(answer, (deadline, is_grpc))
            }
            Err(failure) => {
                if failure.is_of_client() {
                    self.tail.blame_client();
                }
                if let Some(unsent) = self.request.take() {
                    discard(unsent.body(), self.forward.fields, &mut self.tail);
                }
                let hint = content_type.map(|value| (header::CONTENT_TYPE, value));
                refuse(Refusal::Upstream(failure), &HeaderMap::from_iter(hint), self.tail)
            }
        }
    }

    /// Answers as the route says, without an upstream.
    fn answer_itself(mut self: Box<Self>) -> Response<ResponseBody> {
        if let Some(request) = self.request.take() {
            discard(request.body(), self.forward.fields, &mut self.tail);
        }
        own_answer::answer(&self.route, self.told.take(), self.tail)
    }

    /// Notes the protocol that the request asks for, if the route allows it.
    fn upgrade(&mut self) {
        let Some(request) = &self.request else { return };
        let Some(token) = headers::upgrade_token(request, self.forward.fields) else { return };
        if self.route.action.upstream().is_none() {
            return;
        }
        let allowed = |name: &String| token.as_bytes().eq_ignore_ascii_case(name.as_bytes());
        if self.route.options.upgrades.iter().any(allowed) {
            self.forward.upgrade = Some(token);
        }
    }

    /// Returns when the whole request must have ended. The client of gRPC may say so as well.
    fn deadline(&self, is_grpc: bool) -> Instant {
        let limit = self.route.options.timeouts.request;
        let own = self.request.as_ref().filter(|_| is_grpc);
        let own = own.and_then(|request| grpc::timeout(request.headers()));
        self.tail.started + own.map_or(limit, |own| own.min(limit))
    }

    /// Returns what decides how the client must be answered.
    fn content_type(&self) -> Option<HeaderValue> {
        let request = self.request.as_ref().filter(|_| self.forward.fields.has(Field::ContentType));
        request?.headers().get(header::CONTENT_TYPE).cloned()
    }

    /// Turns the upstream's answer into the client's.
    fn answer(
        mut self: Box<Self>,
        (mut response, mut lease): Answer,
        (deadline, is_grpc): (Instant, bool),
    ) -> Response<ResponseBody> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return self.switch(response, lease);
        }
        if self.extended.is_some() && response.status().is_success() {
            // The client would take it for the server's consent.
            lease.on_failure();
            return refuse(Refusal::Upstream(Failure::Broken), &HeaderMap::new(), self.tail);
        }
        let fields = Fields::of(response.headers());
        let status = response.status();
        let headers = response.headers_mut();
        // It says which protocol the client must ask for (RFC 9110, 15.5.22).
        let required = (status == StatusCode::UPGRADE_REQUIRED && self.protocol == Protocol::Http1)
            .then(|| headers.get(header::UPGRADE).cloned())
            .flatten();
        if fields.has(Field::OtherHop) {
            lease.keep_for(keep_alive::announced(headers));
        }
        strip_hop_by_hop(headers, fields);
        if let Some(protocols) = required {
            headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(header::UPGRADE, protocols);
        }
        headers::frame_answer(status, headers, fields);
        if let Some(told) = self.told.take() {
            self.tail.told = told.fields();
            told.write(headers, &self.route);
        }
        self.tail.write_id(headers);
        let edits = &self.route.options.response_headers;
        placeholders::edit(headers, edits, self.tail.values.as_deref());
        *response.version_mut() = Version::HTTP_11;
        self.tail.answered(status);
        let timeouts = &self.route.options.timeouts;
        let is_event_stream = fields.has(Field::ContentType) && is_event_stream(response.headers());
        let patience = if is_event_stream {
            Patience::new(Timeout::EventStream, timeouts.event_stream, deadline)
        } else {
            Patience::new(Timeout::Idle, timeouts.idle, deadline)
        };
        self.tail.lease = Some(lease);
        let is_grpc = is_grpc && self.protocol == Protocol::Http2;
        response.map(|()| ResponseBody::upstream(patience, is_grpc, self.tail))
    }

    /// Joins the client to the upstream, if both mean the same protocol.
    fn switch(
        mut self: Box<Self>,
        mut response: Response<()>,
        mut lease: Lease,
    ) -> Response<ResponseBody> {
        let agreed = response.headers().get(header::UPGRADE);
        let agreement = self.forward.upgrade.take().filter(|token| {
            agreed.is_some_and(|agreed| agreed.as_bytes().eq_ignore_ascii_case(token.as_bytes()))
        });
        let Some((token, server)) = agreement.and_then(|token| Some((token, lease.detach()?)))
        else {
            lease.on_failure();
            return refuse(Refusal::Upstream(Failure::Broken), &HeaderMap::new(), self.tail);
        };
        self.tail.lease = Some(lease);
        let headers = response.headers_mut();
        strip_hop_by_hop(headers, Fields::of(headers));
        if let Some(told) = self.told.take() {
            told.write(headers, &self.route);
        }
        self.tail.write_id(headers);
        let edits = &self.route.options.response_headers;
        placeholders::edit(headers, edits, self.tail.values.as_deref());
        let idle = self.route.options.timeouts.tunnel;
        if let Some(ExtendedConnect(client)) = self.extended {
            headers.remove(header::SEC_WEBSOCKET_ACCEPT);
            *response.status_mut() = StatusCode::OK;
            self.tail.answered(StatusCode::OK);
            let head = self.tail.of_head_only();
            let peer = Arc::clone(&self.tail.peer);
            let joined = Joined { server, idle, tail: self.tail };
            head.peer.worker.tasks.spawn(async move {
                // Who leaves before the answer is there ends it as cancelled.
                let Ok(client) = client.await else { return };
                let buffer = peer.upload_buffer().cloned();
                tunnel(Counted { io: TokioIo::new(client), buffer }, joined).await;
            });
            return response.map(|()| ResponseBody::own(Bytes::new(), head));
        }
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, token);
        self.tail.answered(StatusCode::SWITCHING_PROTOCOLS);
        response.map(|()| ResponseBody::tunnel(server, idle, self.tail))
    }
}

/// Whether an answer is a stream of events, which may be silent for long.
fn is_event_stream(headers: &HeaderMap) -> bool {
    const EVENT_STREAM: &[u8] = b"text/event-stream";
    let value = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let media = value.and_then(|value| value.split(|&byte| byte == b';').next());
    media.is_some_and(|media| media.trim_ascii().eq_ignore_ascii_case(EVENT_STREAM))
}

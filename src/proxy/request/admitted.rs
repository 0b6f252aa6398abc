//! Requests that were admitted: paced, sent to the upstream, and answered.

use super::{
    attempt::UpstreamRequest,
    forward::{self, Forward},
};
use crate::proxy::{
    body::{DISCARD_BYTES, RequestBody},
    gateway_error::{Failure, GatewayError},
    message::{
        ExtendedConnect, Request, RequestHead, Response,
        grpc::{self, is_grpc},
        hop_by_hop::strip_hop_by_hop,
        validate::Invalid,
    },
    placeholders,
    record::completion::Completion,
    response::{
        own_response::{error_response, respond_as_configured},
        response_body::ResponseBody,
        tunnel::{Http2Tunnel, Joined, tunnel},
    },
    timeouts::{body_timeout::BodyTimeout, timeout::Timeout},
    upstream::{keep_alive, retry::Retries},
};
use crate::{
    config::{Action, Route},
    flow::Instant,
    http1::{FieldKind, FieldList, FieldSet},
    meter,
    worst_paths::{PathShape, SLOW},
};
use bytes::Bytes;
use core::time::Duration;
use http::{HeaderValue, StatusCode, Version, header};
use http_body::Body;
use std::sync::Arc;

/// An admitted request.
pub(crate) struct AdmittedRequest {
    /// As the client sent it, until it is prepared for the upstream.
    pub(crate) request: Option<Request<RequestBody>>,
    pub(crate) route: Arc<Route>,
    pub(crate) forward: Forward,
    /// The time when it may start.
    pub(crate) start: Instant,
    /// The client's side of a tunnel over HTTP/2.
    pub(crate) extended: Option<ExtendedConnect>,
    pub(crate) completion: Box<Completion>,
}

const NO_CONTENT: StatusCode = StatusCode::NO_CONTENT;
const UPGRADE_REQUIRED: StatusCode = StatusCode::UPGRADE_REQUIRED;

const NO_PROTOCOL: Invalid = Invalid {
    kind: meter::HttpRejection::Method,
    why: "this route does not allow the protocol that CONNECT asks for",
};

impl AdmittedRequest {
    /// Waits until the request may start, sends it on and brings the response back.
    pub(crate) async fn serve(mut self) -> Response<ResponseBody> {
        if self.start > self.completion.started {
            let clock = self.completion.peer.worker.clock.clone();
            let start = self.start;
            // In a box because it is rare, and would make every request's future larger.
            Box::pin(async move { clock.sleep_until(start).await }).await;
            self.start = self.completion.peer.worker.clock.now();
        }
        if self.forward.fields.has(FieldKind::Upgrade) {
            self.upgrade();
        }
        if self.extended.is_some() && self.forward.upgrade.is_none() {
            return self.reject_protocol();
        }
        let Some(upstream) = self.route.action.upstream().map(Arc::clone) else {
            return self.answer_itself();
        };
        let content_type = self.content_type();
        let is_grpc = content_type.as_ref().is_some_and(|value| is_grpc(value.as_bytes()));
        let (deadline, is_clients_deadline) = self.deadline(is_grpc);
        self.write_id_and_trace();
        self.completion.upload = self.request.as_ref().and_then(|sent| sent.body().upload());
        if self.completion.entry.is_some() {
            self.note_sent();
        }
        let mut attempt = UpstreamRequest {
            peer: &self.completion.peer,
            route: &self.route,
            upstream: &upstream,
            values: self.completion.values.as_deref(),
            forward: &self.forward,
            start: self.start,
            deadline,
            is_clients_deadline,
            is_grpc,
            stream: self.completion.stream.as_ref(),
            attempts: 0,
            retries: Retries::new(self.route.options.retry.as_ref()),
            entry: self.completion.entry.as_deref_mut(),
            timeout: None,
        };
        let mut waiting = WaitingRequest {
            request: &mut self.request,
            bad_path: &mut self.completion.bad_path,
            has_ended: false,
        };
        let sent = attempt.send(waiting.request, &mut self.completion.lease).await;
        waiting.has_ended = true;
        drop(waiting);
        self.completion.timeout = attempt.timeout;
        self.completion.attempts = attempt.attempts;
        if let Some(entry) = &mut self.completion.entry {
            let status = sent.as_ref().ok().map(Response::status);
            entry.returned(status, self.completion.peer.worker.clock.now());
        }
        match sent {
            Ok(response) => self.answer(response, (deadline, is_grpc)),
            Err(failure) => self.answer_failure(failure, content_type),
        }
    }

    /// Writes into the request by what logs and traces name it.
    fn write_id_and_trace(&mut self) {
        let Some(request) = &mut self.request else { return };
        let RequestHead { trace, headers, .. } = request.head_mut();
        if let Some(id) = &self.completion.request_id {
            id.write(headers);
        }
        if let Some(trace) = trace {
            trace.prepare(headers);
        }
    }

    /// Notes for the access log that the request is sent.
    #[inline(never)]
    fn note_sent(&mut self) {
        if let (Some(entry), Some(request)) = (&mut self.completion.entry, &self.request) {
            entry.upload = request.body().upload();
            entry.sent(self.start);
        }
    }

    /// Responds in place of the upstream, which gave no response.
    #[cold]
    fn answer_failure(
        mut self,
        failure: Failure,
        content_type: Option<HeaderValue>,
    ) -> Response<ResponseBody> {
        self.completion.lease = None;
        if failure.is_of_client() {
            self.completion.blame_client();
        } else {
            self.keep_path();
        }
        if let Some(unsent) = self.request.take() {
            discard(unsent.body(), self.forward.fields, &mut self.completion);
        }
        let grpc = content_type.filter(|value| is_grpc(value.as_bytes()));
        error_response(GatewayError::Upstream(failure), grpc, self.completion)
    }

    /// Answers as the route says, without an upstream.
    #[inline(never)]
    fn answer_itself(mut self) -> Response<ResponseBody> {
        let is_failure =
            matches!(&self.route.action, Action::Respond(own) if own.status.is_server_error());
        if is_failure || self.start.since(self.completion.started) >= SLOW {
            self.keep_path();
        }
        if let Some(request) = self.request.take() {
            discard(request.body(), self.forward.fields, &mut self.completion);
        }
        respond_as_configured(&self.route, self.completion)
    }

    /// Notes the protocol that the request asks for, if the route allows it.
    #[inline(never)]
    fn upgrade(&mut self) {
        let Some(request) = &self.request else { return };
        let Some(token) = forward::upgrade_token(request, self.forward.fields) else { return };
        if self.route.action.upstream().is_none() {
            return;
        }
        let allowed = |listed: &String| forward::is_protocol(token.as_bytes(), listed);
        if self.route.options.upgrades.iter().any(allowed) {
            self.forward.upgrade = Some(Box::new(token));
        }
    }

    /// Responds to a request for a protocol that the route does not allow.
    #[cold]
    fn reject_protocol(self) -> Response<ResponseBody> {
        error_response(GatewayError::Invalid(NO_PROTOCOL), None, self.completion)
    }

    /// Returns when the whole request must have ended, and whether the client said so, as those of
    /// gRPC may.
    fn deadline(&self, is_grpc: bool) -> (Instant, bool) {
        let limit = self.route.options.timeouts.request;
        let own = if is_grpc { self.grpc_timeout() } else { None };
        let own = own.filter(|own| limit.is_none_or(|limit| *own < limit));
        let deadline =
            own.or(limit).map_or(Instant::FAR_FUTURE, |left| self.completion.started + left);
        (deadline, own.is_some())
    }

    #[inline(never)]
    fn grpc_timeout(&self) -> Option<Duration> {
        grpc::timeout(self.request.as_ref()?.headers())
    }

    /// Returns what decides how the client must be answered.
    fn content_type(&self) -> Option<HeaderValue> {
        if !self.forward.fields.has(FieldKind::ContentType) {
            return None;
        }
        self.request.as_ref()?.headers().value(&header::CONTENT_TYPE)
    }

    /// Turns the upstream's response into the client's.
    fn answer(
        mut self,
        mut response: Response<()>,
        (deadline, is_grpc): (Instant, bool),
    ) -> Response<ResponseBody> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return self.switch(response);
        }
        if self.extended.is_some() && response.status().is_success() {
            // The client would take it for the server's consent.
            return self.reject_answer("it answered an upgrade with a success");
        }
        let fields = response.headers().set();
        let status = response.status();
        let headers = response.headers_mut();
        if !fields.are_plain() || matches!(status, NO_CONTENT | UPGRADE_REQUIRED) {
            self.clean(status, headers);
        }
        if let Some(quota) = &self.completion.quota {
            quota.write(headers, &self.route);
        }
        self.completion.write_id(headers);
        let edits = &self.route.options.response_headers;
        placeholders::edit(headers, edits, self.completion.values.as_deref());
        self.completion.answered(status);
        self.give_head_back();

        let timeouts = &self.route.options.timeouts;
        let is_event_stream =
            fields.has(FieldKind::ContentType) && is_event_stream(response.headers());
        let body_timeout = if is_event_stream {
            BodyTimeout::new(Timeout::EventStream, timeouts.event_stream, deadline)
        } else {
            BodyTimeout::new(Timeout::Idle, timeouts.idle, deadline)
        };
        let is_grpc = is_grpc && self.completion.version == Version::HTTP_2;
        response.map(|()| ResponseBody::upstream(body_timeout, is_grpc, self.completion))
    }

    /// Gives back the request's head, of which nothing is needed once the response has begun but the path
    /// of a bad one.
    fn give_head_back(&mut self) {
        if self.completion.is_bad() {
            self.keep_path();
        }
        if let Some(request) = self.request.take() {
            let (head, _) = request.into_parts();
            self.completion.peer.keep_head(head);
        }
    }

    /// Keeps the client's path of a request that failed or is slow.
    #[cold]
    fn keep_path(&mut self) {
        if let Some(request) = &self.request {
            self.completion.bad_path = Some(PathShape::of(request.uri().path()));
        }
    }

    /// Removes and rewrites the fields that the client may not receive as they came.
    #[inline(never)]
    fn clean(&mut self, status: StatusCode, headers: &mut FieldList) {
        let fields = headers.set();
        // It says which protocol the client must ask for (RFC 9110, 15.5.22).
        let is_http1 = self.completion.version != Version::HTTP_2;
        let required = (status == UPGRADE_REQUIRED && is_http1)
            .then(|| headers.value(&header::UPGRADE))
            .flatten();
        if fields.has(FieldKind::OtherHop)
            && let Some(lease) = &mut self.completion.lease
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
        forward::frame_answer(status, headers, fields);
    }

    /// Responds in place of the upstream, whose response the client may not receive.
    #[cold]
    fn reject_answer(mut self, cause: &str) -> Response<ResponseBody> {
        self.completion.note_bad_answer(cause);
        self.keep_path();
        if let Some(lease) = self.completion.lease.take() {
            lease.on_failure();
        }
        error_response(GatewayError::Upstream(Failure::Broken), None, self.completion)
    }

    /// Joins the client to the upstream, if both mean the same protocol.
    #[inline(never)]
    fn switch(mut self, mut response: Response<()>) -> Response<ResponseBody> {
        let agreed = response.headers().get(&header::UPGRADE);
        let agreement = self.forward.upgrade.take().filter(|token| {
            agreed.is_some_and(|agreed| agreed.eq_ignore_ascii_case(token.as_bytes()))
        });
        let lease = &mut self.completion.lease;
        let server = agreement.and_then(|token| Some((token, lease.as_mut()?.detach()?)));
        let Some((token, server)) = server else {
            // The client may have sent bytes for the tunnel, which are no request.
            self.completion.closes = true;
            return self.reject_answer("it switched to a protocol that was not asked for");
        };
        let headers = response.headers_mut();
        let fields = headers.set();
        strip_hop_by_hop(headers, fields);
        // A 101 has none, and neither has a success of CONNECT (RFC 9110, 8.6).
        headers.remove(&header::CONTENT_LENGTH);
        if let Some(quota) = &self.completion.quota {
            quota.write(headers, &self.route);
        }
        self.completion.write_id(headers);
        let edits = &self.route.options.response_headers;
        placeholders::edit(headers, edits, self.completion.values.as_deref());
        let idle = self.route.options.timeouts.tunnel;
        if let Some(extended) = self.extended.take() {
            headers.remove(&header::SEC_WEBSOCKET_ACCEPT);
            *response.status_mut() = StatusCode::OK;
            self.completion.answered(StatusCode::OK);
            self.give_head_back();
            let head = self.completion.of_head_only();
            let peer = Arc::clone(&self.completion.peer);
            let joined = Joined { server, idle, completion: self.completion };
            head.peer.worker.tasks.spawn(async move {
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
            return response.map(|()| ResponseBody::own(Bytes::new(), head));
        }
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, *token);
        self.completion.answered(StatusCode::SWITCHING_PROTOCOLS);
        self.give_head_back();
        response.map(|()| ResponseBody::tunnel(server, idle, self.completion))
    }
}

/// A request that waits for the head of its response. If its client leaves, dropping it keeps the
/// client's path, as the response may have been slow.
struct WaitingRequest<'a> {
    request: &'a mut Option<Request<RequestBody>>,
    bad_path: &'a mut Option<PathShape>,
    /// True once there is a response, or a failure.
    has_ended: bool,
}

impl Drop for WaitingRequest<'_> {
    fn drop(&mut self) {
        if !self.has_ended
            && let Some(request) = self.request
        {
            *self.bad_path = Some(PathShape::of(request.uri().path()));
        }
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

/// Decides about the body of a request that is answered without it. `fields` is what the request
/// has, and `completion` its response's, which says whether the connection ends: it stays only if the rest of
/// the body is small. Who waits for 100 need not send the body.
///
/// In HTTP/2 the stream ends, and nothing else with it: see `drain`.
pub(crate) fn discard<B: Body>(body: &B, fields: FieldSet, completion: &mut Completion) {
    if body.is_end_stream() || completion.version == Version::HTTP_2 {
        return;
    }
    let is_small = body.size_hint().lower() <= DISCARD_BYTES as u64;
    completion.closes |= !is_small || fields.has(FieldKind::Expect);
}

//! The third stage of a request: the rules have admitted it. It waits for its start, and is sent to a server,
//! which makes it [`Forwarded`]; or the gateway responds itself.

use super::{
    attempt::UpstreamRequest,
    forward::{self, Forward},
    forwarded::Forwarded,
};
use crate::proxy::{
    body::{DISCARD_BYTES, RequestBody},
    gateway_error::{Failure, GatewayError},
    message::{
        Request, RequestHead, Response,
        grpc::{self, is_grpc},
        validate::Invalid,
    },
    record::{Completion, Event, Observers},
    response::{
        own_response::{error_response, respond_as_configured},
        response_body::ResponseBody,
    },
    upstream::{retry::Retries, sticky},
};
use crate::{
    config::{Action, Route, Upstream},
    flow::Instant,
    http1::{FieldKind, FieldSet},
    meter,
    worst_paths::SLOW,
};
use http::{HeaderValue, Version, header};
use http_body::Body;
use std::sync::Arc;

/// A request that the rules have admitted.
pub(crate) struct Admitted {
    pub(super) request: Request<RequestBody>,
    pub(super) route: Arc<Route>,
    pub(super) forward: Forward,
    /// The earliest start.
    pub(super) start: Instant,
    pub(super) completion: Box<Completion>,
}

/// The end of the time that a whole request may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    pub(super) at: Instant,
    /// True if the client set it, as those of gRPC may, and not the route.
    pub(super) is_clients: bool,
}

const NO_PROTOCOL: Invalid = Invalid {
    kind: meter::HttpRejection::Method,
    why: "this route does not allow the protocol that CONNECT asks for",
};

impl Admitted {
    /// Waits until the request may start, sends it, and returns the response to the client.
    pub(super) async fn serve(mut self) -> Response<ResponseBody> {
        if self.start > self.completion.arrival.at {
            let clock = self.completion.peer.worker.clock.clone();
            let start = self.start;
            // In a box because it is rare, and would make every request's future larger.
            Box::pin(async move { clock.sleep_until(start).await }).await;
            self.start = self.completion.peer.worker.clock.now();
        }

        if self.forward.fields.has(FieldKind::Upgrade) {
            self.allow_upgrade();
        }
        if self.request.head().extended.is_some() && self.forward.upgrade.is_none() {
            return self.reject_protocol();
        }

        match self.route.action.upstream().map(Arc::clone) {
            Some(upstream) => self.forward(&upstream).await,
            None => self.respond_itself(),
        }
    }

    /// Sends the request to a server of `upstream`, and returns the response to the client.
    async fn forward(mut self, upstream: &Arc<Upstream>) -> Response<ResponseBody> {
        let content_type = self.content_type();
        let is_grpc = content_type.as_ref().is_some_and(|value| is_grpc(value.as_bytes()));
        let deadline = self.deadline(is_grpc);
        self.write_id_and_trace();

        let Self { request, route, forward, start, completion } = &mut self;
        if let Some(cookie) = &upstream.options.sticky {
            completion.upstream.sticky = sticky::wanted(cookie, request.headers());
        }
        completion.upstream.upload = request.body().upload();
        if completion.observers.are_logging() {
            let upload = request.body().upload();
            completion.observers.note(Event::Sent { upload, at: *start });
        }

        let observers = &mut completion.observers;
        let mut waiting = WaitingRequest { request, observers, has_ended: false };
        let mut attempt = UpstreamRequest {
            peer: &completion.peer,
            route,
            upstream,
            values: completion.values.as_deref(),
            forward,
            start: *start,
            deadline,
            is_grpc,
            stream: completion.arrival.stream.as_ref(),
            attempts: 0,
            sticky: completion.upstream.sticky,
            retries: Retries::new(route.options.retry.as_ref()),
            observers: &mut *waiting.observers,
            timeout: None,
        };
        let sent = attempt.send(&mut *waiting.request, &mut completion.upstream.lease).await;
        completion.upstream.timeout = attempt.timeout;
        completion.upstream.attempts = attempt.attempts;
        waiting.has_ended = true;
        drop(waiting);

        if completion.observers.are_logging() {
            let status = sent.as_ref().ok().map(Response::status);
            let at = completion.peer.worker.clock.now();
            completion.observers.note(Event::Returned { status, at });
        }
        match sent {
            Ok(response) => self.forwarded(response, deadline.at, is_grpc).respond(),
            Err(failure) => {
                // A client could otherwise choose when its reserve is given back.
                let is_clients = deadline.is_clients && failure == Failure::Timeout;
                if !failure.is_of_client() && !is_clients {
                    self.completion.stand_for_upstream();
                }
                self.respond_to_failure(failure, content_type)
            }
        }
    }

    /// Goes on with the head of a server's response.
    fn forwarded(self, response: Response<()>, deadline: Instant, is_grpc: bool) -> Forwarded {
        let Self { request, route, mut forward, completion, .. } = self;
        let upgrade = forward.upgrade.take();
        let (head, _) = request.into_parts();
        Forwarded { response, route, head, deadline, is_grpc, upgrade, completion }
    }

    /// Writes into the request the names that logs and traces give it.
    fn write_id_and_trace(&mut self) {
        let RequestHead { trace, headers, .. } = self.request.head_mut();
        if let Some(id) = &self.completion.arrival.request_id {
            id.write_to_upstream(headers);
        }
        if let Some(trace) = trace {
            trace.prepare(headers);
        }
    }

    /// Responds in place of the upstream, which gave no response.
    #[cold]
    fn respond_to_failure(
        self,
        failure: Failure,
        content_type: Option<HeaderValue>,
    ) -> Response<ResponseBody> {
        let Self { request, forward, mut completion, .. } = self;
        completion.upstream.lease = None;
        if failure.is_of_client() {
            completion.blame_client();
        } else {
            completion.observers.keep_path(request.uri());
        }

        discard(request.body(), forward.fields, &mut completion);
        let grpc = content_type.filter(|value| is_grpc(value.as_bytes()));
        error_response(GatewayError::Upstream(failure), grpc, completion)
    }

    /// Responds as the route says, without an upstream.
    #[inline(never)]
    fn respond_itself(self) -> Response<ResponseBody> {
        let Self { mut request, route, forward, start, mut completion } = self;
        request.body_mut().forget_peeked();
        let is_failure =
            matches!(&route.action, Action::Respond(own) if own.status.is_server_error());
        if is_failure || start.since(completion.arrival.at) >= SLOW {
            completion.observers.keep_path(request.uri());
        }

        discard(request.body(), forward.fields, &mut completion);
        let grpc = grpc::content_type(request.headers());
        respond_as_configured(&route, grpc, completion)
    }

    /// Notes the protocol that the client wants to change to, if the route allows it.
    #[inline(never)]
    fn allow_upgrade(&mut self) {
        let token = forward::upgrade_token(&self.request, self.forward.fields);
        let Some(token) = token else { return };
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

    /// Returns the deadline of the whole request.
    fn deadline(&self, is_grpc: bool) -> Deadline {
        let limit = self.route.options.timeouts.request;
        let own = if is_grpc { grpc::timeout(self.request.headers()) } else { None };
        let own = own.filter(|own| limit.is_none_or(|limit| *own < limit));

        let arrival = self.completion.arrival.at;
        let at = own.or(limit).map_or(Instant::FAR_FUTURE, |left| arrival + left);
        Deadline { at, is_clients: own.is_some() }
    }

    /// Returns the content type, which decides about the form of error responses.
    fn content_type(&self) -> Option<HeaderValue> {
        if !self.forward.fields.has(FieldKind::ContentType) {
            return None;
        }
        self.request.headers().value(&header::CONTENT_TYPE)
    }
}

/// A request that waits for the head of its response. If its client leaves, dropping it keeps the
/// client's path, as the response may have been slow.
struct WaitingRequest<'a> {
    request: &'a mut Request<RequestBody>,
    observers: &'a mut Observers,
    /// True once there is a response, or a failure.
    has_ended: bool,
}

impl Drop for WaitingRequest<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.observers.keep_path(self.request.uri());
        }
    }
}

/// Decides about the body of a request whose response does not need it. `fields` is what the request
/// has, and `completion` its response's, which says whether the connection ends: it stays only if the rest of
/// the body is small. A client that waits for 100 need not send the body.
///
/// In HTTP/2 the stream ends, and nothing else with it: see `drain`.
pub(super) fn discard<B: Body>(body: &B, fields: FieldSet, completion: &mut Completion) {
    if body.is_end_stream() || completion.arrival.version == Version::HTTP_2 {
        return;
    }
    let is_small = body.size_hint().lower() <= DISCARD_BYTES as u64;
    completion.closes |= !is_small || fields.has(FieldKind::Expect);
}

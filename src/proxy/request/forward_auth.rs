//! Forward auth: a service decides about a request before the rules do.
//!
//! A status of 200 to 299 is the only way to the rules. Whatever else happens, the client gets a response
//! here: that of the service, or an error.

use super::{
    Decided,
    admitted::discard,
    auth_request::{AskedFor, AuthCall},
    dropped_body::release,
    forward::frame_response,
    received::{Found, Received, written},
};
use crate::proxy::{
    body::{BodyBuffer, ClientBody, RequestBody, drain},
    gateway_error::{Failure, GatewayError},
    message::{Request, RequestHead, Response, grpc, hop_by_hop::strip_hop_by_hop},
    peer::Peer,
    placeholders,
    record::{Completion, Event, preview},
    response::{cors, own_response::error_response, response_body::ResponseBody},
    timeouts::{body_timeout::BodyTimeout, timeout::Timeout},
    upstream::lease::Lease,
};
use crate::{
    config::{ForwardAuth, Route, Snapshot, Upstream},
    flow::Instant,
    http1::{FieldKind, FieldList},
    meter::{self, AuthOutcome},
    route::{Identity, sent_path},
};
use bytes::Bytes;
use core::time::Duration;
use http::{
    HeaderName, HeaderValue, Method, StatusCode,
    header::{CONNECTION, CONTENT_LENGTH, LOCATION, SET_COOKIE},
};
use std::sync::Arc;

/// A request that waits until its auth service has decided.
pub(crate) struct Undetermined {
    pub(super) forward: Arc<ForwardAuth>,
    pub(super) service: Arc<Upstream>,
    pub(super) found: Found,
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) request: Request<ClientBody>,
    pub(super) completion: Box<Completion>,
}

impl Undetermined {
    /// Has the service decide, and then the rules.
    ///
    /// Dropping the future drops the request to the service with its connection.
    pub(super) async fn ask(mut self) -> Decided {
        let peer = Arc::clone(&self.completion.peer);
        let began = peer.worker.clock.now();
        if self.found.route.rules.iter().any(|rule| rule.before_auth) {
            let Self { forward, service, found, snapshot, request, completion } = self;
            let mut received = Received::after_auth(&snapshot, request, None, began, completion);
            if let Err(rejection) = received.decide_early(&found) {
                return received.reject_early(found, &rejection);
            }
            let (request, completion) = received.into_parts();
            self = Self { forward, service, found, snapshot, request, completion };
        }

        // Of what no field can have, the service cannot know what it decides about.
        let Some(request) = self.auth_request(&peer) else {
            return Decided::Responded(self.fail(Failure::Broken));
        };
        let timing = Timing::begin(&self, &peer, began);

        let mut lease = None;
        let call = AuthCall {
            peer: &peer,
            route: &self.found.route.name,
            upstream: &self.service,
            deadline: self.deadline(began),
        };
        let sent = call.send(request, &mut lease).await;
        let sent = sent.and_then(|response| match response.status().as_u16() {
            200..=599 => Ok(response),
            // A 101 is no response to what was asked, and others are none of HTTP.
            _ => Err(Failure::Broken),
        });

        let outcome = match &sent {
            Ok(response) if response.status().is_success() => AuthOutcome::Allowed,
            Ok(_) => AuthOutcome::Denied,
            Err(Failure::Timeout) => AuthOutcome::Timeout,
            Err(_) => AuthOutcome::Error,
        };
        let took = timing.end(outcome);
        self.completion.observers.note(Event::Authorized { outcome, took });
        match sent {
            Ok(response) if outcome == AuthOutcome::Allowed => {
                release(lease, &peer);
                self.pass(&response)
            }
            Ok(response) => match self.login(&response) {
                Some(redirect) => {
                    release(lease, &peer);
                    Decided::Responded(self.deny(redirect, None))
                }
                None => Decided::Responded(self.deny(response, lease)),
            },
            Err(failure) => Decided::Responded(self.fail(failure)),
        }
    }

    /// Returns the request to the service; `None` if no field can have the target, or what the file sets.
    fn auth_request(&self, peer: &Peer) -> Option<Request<RequestBody>> {
        let Found { route, authority, is_proxied, .. } = &self.found;
        let asked = AskedFor {
            head: self.request.head(),
            authority,
            target: asked_target(&self.request, route.options.relaxed_path)?,
            is_proxied: *is_proxied,
        };
        let mut request = asked.request(&self.forward, peer, |headers| {
            self.found.name_client(peer, headers);
        });
        if let Some(id) = &self.completion.arrival.request_id {
            id.write_to_upstream(request.headers_mut());
        }
        if !self.forward.set.is_empty() {
            let target = str::from_utf8(asked.target.as_bytes()).ok()?;
            let values = self.completion.values.as_ref().map(|values| values.with_target(target));
            let fields = &self.forward.set;
            if !placeholders::replace(request.headers_mut(), fields, values.as_ref()) {
                return None;
            }
        }
        Some(request)
    }

    /// Returns the time by which the service must have decided.
    fn deadline(&self, now: Instant) -> Instant {
        let whole = self.found.route.options.timeouts.request;
        let whole = whole.map(|limit| self.completion.arrival.at + limit);
        let own = now + self.forward.timeout;
        whole.map_or(own, |whole| own.min(whole))
    }

    /// Goes on with what the service has said about the client, and without what the client has said in
    /// its place.
    fn pass(self, response: &Response<()>) -> Decided {
        let Self { forward, found, snapshot, mut request, mut completion, .. } = self;
        let lines = copied(&forward, response.headers());
        guard(request.headers_mut(), &forward);
        for (name, value) in &lines {
            request.headers_mut().append(name, value);
        }
        completion.observers.note(Event::Rewritten(request.headers()));

        let cookies = response.headers().get_all(&SET_COOKIE).filter_map(value);
        completion.auth_cookies = cookies.collect();

        let identity = Some(Identity::of_service(response.headers().into(), forward.names()));
        let now = completion.peer.worker.clock.now();
        Received::after_auth(&snapshot, request, identity, now, completion).decide_found(found)
    }

    /// Returns the redirect to the login page that stands for a 401, with the service's cookies; `None` if
    /// the client gets the response as it is. No client of gRPC follows a redirect.
    fn login(&self, response: &Response<()>) -> Option<Response<()>> {
        let login = self.forward.login.as_ref()?;
        let is_meant = response.status() == StatusCode::UNAUTHORIZED
            && grpc::content_type(self.request.headers()).is_none();
        let location = self.completion.values.as_ref().filter(|_| is_meant)?.location(login)?;

        let mut redirect = Response::from_parts(self.completion.peer.spare_heads.response(), ());
        *redirect.status_mut() = login.status;
        let headers = redirect.headers_mut();
        headers.insert(LOCATION, location);
        headers.insert(CONTENT_LENGTH, HeaderValue::from(0));
        for cookie in response.headers().get_all(&SET_COOKIE).filter_map(value) {
            headers.append(SET_COOKIE, cookie);
        }
        Some(redirect)
    }

    /// Passes the service's response on to the client.
    fn deny(mut self, mut response: Response<()>, lease: Option<Lease>) -> Response<ResponseBody> {
        self.completion.peer.worker.counters.count_rejection(meter::HttpRejection::Auth);
        // The client gets the service's response: the error only says where it comes from.
        self.observe_end(GatewayError::AuthService(Failure::Broken));
        let Self { found, request, mut completion, .. } = self;

        let status = response.status();
        let headers = response.headers_mut();
        let fields = headers.set();
        strip_hop_by_hop(headers, fields);
        if fields.have_blanks() {
            headers.trim();
        }
        frame_response(status, headers, fields);
        completion.write_id(headers);
        let options = &found.route.options;
        let is_error = status.as_u16() >= 400;
        let values = completion.values.as_deref();
        placeholders::add_to_own(is_error, headers, &options.response_headers, values);
        cors::write(options, completion.origin.as_deref(), headers);

        let is_head = request.method() == Method::HEAD;
        let head = let_go(request, &mut completion);
        completion.peer.keep_head(head);
        completion.begin_response(status);
        if is_head || lease.is_none() {
            describe_length(response.headers_mut(), lease.as_ref());
            release(lease, &completion.peer);
            return response.map(|()| ResponseBody::own(Bytes::new(), completion));
        }

        completion.upstream.lease = lease;
        let limit = options.timeouts.request;
        let deadline = limit.map_or(Instant::FAR_FUTURE, |limit| completion.arrival.at + limit);
        let timeout = BodyTimeout::new(Timeout::Idle, options.timeouts.idle, deadline);
        response.map(|()| ResponseBody::upstream(timeout, false, None, completion))
    }

    /// Responds in place of a service that has not decided.
    #[cold]
    fn fail(mut self, failure: Failure) -> Response<ResponseBody> {
        if failure == Failure::Timeout {
            self.completion.upstream.timeout = Some(Timeout::Auth);
        }
        let error = GatewayError::AuthService(failure);
        self.observe_end(error);
        let Self { request, mut completion, .. } = self;
        if !failure.is_of_client() {
            completion.stand_for_upstream();
        }
        let grpc = grpc::content_type(request.headers());
        let head = let_go(request, &mut completion);
        completion.peer.keep_head(head);
        error_response(error, grpc, completion)
    }

    /// Has observers know of a request about which no rule decides.
    fn observe_end(&mut self, error: GatewayError) {
        let Self { forward, snapshot, request, completion, .. } = self;
        let now = completion.peer.worker.clock.now();
        preview::rejected_undecided(snapshot, request, error, completion, now);
        guard(request.headers_mut(), forward);
        completion.observers.note(Event::Rewritten(request.headers()));
    }
}

/// Lets go of a request whose body is not needed, and returns its head.
pub(super) fn let_go(
    request: Request<ClientBody>,
    completion: &mut Completion,
) -> Box<RequestHead> {
    let (head, body) = request.into_parts();
    match completion.peer.upload_buffer() {
        Some(buffer) => {
            let buffer = BodyBuffer::new(buffer, &Arc::default());
            drain(body, buffer, &completion.peer.worker.clock);
        }
        None => discard(&body, head.headers.set(), completion),
    }
    head
}

/// Returns the path and the query that the client asks for. The path is that by which routes are found,
/// so that the service decides about the same one; servers of a route with `relaxed_path` get it as
/// written. `None` if no field can have it.
fn asked_target(request: &Request<ClientBody>, is_relaxed: bool) -> Option<HeaderValue> {
    let path = written(request);
    let sent = if is_relaxed { None } else { sent_path(path) };
    let path = sent.as_deref().unwrap_or(path);
    let target = match request.uri().query() {
        Some(query) => HeaderValue::try_from(format!("{path}?{query}")),
        None => HeaderValue::try_from(path.to_owned()),
    };
    target.ok()
}

/// Removes what a client has sent in fields that only the service may write, in every spelling that
/// servers read alike, and keeps `Connection` from naming them.
fn guard(headers: &mut FieldList, forward: &ForwardAuth) {
    headers.remove_names(|name| forward.guards(name));
    if !headers.set().has_options() {
        return;
    }
    let is_named = |option: &&[u8]| !forward.guards(option.trim_ascii());
    let lists: Vec<Vec<u8>> = headers
        .all(FieldKind::Connection)
        .map(|list| {
            list.split(|byte| *byte == b',').filter(is_named).collect::<Vec<_>>().join(&b',')
        })
        .collect();
    headers.remove(&CONNECTION);
    for list in lists {
        if let Ok(list) = HeaderValue::try_from(list) {
            headers.append(CONNECTION, list);
        }
    }
}

/// Returns the lines of the service's response that the server is to receive.
fn copied(forward: &ForwardAuth, headers: &FieldList) -> Vec<(HeaderName, HeaderValue)> {
    let of = |[from, to]: [&HeaderName; 2]| {
        let values = headers.get_all(from).filter_map(value);
        values.map(|value| (to.clone(), value)).collect::<Vec<_>>()
    };
    forward.renamed().flat_map(of).collect()
}

fn value(bytes: &[u8]) -> Option<HeaderValue> {
    HeaderValue::from_bytes(bytes.trim_ascii()).ok()
}

/// Says to a HEAD how long the body is that a GET would get.
fn describe_length(headers: &mut FieldList, lease: Option<&Lease>) {
    let connection = lease.and_then(Lease::connection);
    let length = connection.and_then(|connection| connection.size_hint().exact());
    if let Some(length) = length {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
}

/// The time that a service takes. Dropped before its end, it counts a client that has left.
struct Timing {
    peer: Arc<Peer>,
    route: Arc<Route>,
    began: Instant,
    has_ended: bool,
}

impl Timing {
    fn begin(asking: &Undetermined, peer: &Arc<Peer>, began: Instant) -> Self {
        let route = Arc::clone(&asking.found.route);
        Self { peer: Arc::clone(peer), route, began, has_ended: false }
    }

    /// Counts the end, and returns the time that it took.
    fn end(mut self, outcome: AuthOutcome) -> Duration {
        self.has_ended = true;
        self.count(outcome)
    }

    fn count(&self, outcome: AuthOutcome) -> Duration {
        let took = self.peer.worker.clock.now().since(self.began);
        self.route.meter.record_auth(outcome, took);
        took
    }
}

impl Drop for Timing {
    fn drop(&mut self) {
        if !self.has_ended {
            self.count(AuthOutcome::Cancelled);
        }
    }
}

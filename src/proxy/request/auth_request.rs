//! The request to an auth service: a `GET` with the header of the client's request, and without its body.

use super::forward::{append_forwarded, join_cookies, replace_forwarded};
use crate::proxy::{
    body::RequestBody,
    gateway_error::Failure,
    message::{Request, RequestHead, Response, hop_by_hop::strip_hop_by_hop},
    peer::{Authority, Peer},
    request_log::FailedAttempt,
    upstream::{
        balance::{Picked, Tried, pick},
        connection::UpstreamConnection,
        error::{NoResponseReason, Unanswered as NoResponse, cause},
        health::{self, ServerFailure},
        lease::{ConnectionNeeds, Lease, is_given_up, is_without_room},
        reservation::binds_login,
    },
};
use crate::{
    config::{ForwardAuth, Server, Upstream},
    flow::Instant,
    http1::{FieldKind, FieldList, folds_to},
};
use core::{future::poll_fn, sync::atomic::Ordering::Relaxed};
use http::{
    HeaderName, HeaderValue, Method, Uri, Version,
    header::{AUTHORIZATION, FORWARDED, HOST},
};
use std::{io, sync::Arc};

const X_FORWARDED_METHOD: HeaderName = HeaderName::from_static("x-forwarded-method");
const X_FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");

/// The fields that the service does not get, by their beginning: those of a body, and those that make a
/// request conditional. A service that took one of the last two for the target would decide about another
/// target than the server gets.
const LEFT_OUT_PREFIXES: [&str; 4] = ["content-", "if-", "x-original-", "x-rewrite-"];

/// Others, by their name.
const LEFT_OUT: [&str; 6] =
    ["expect", "range", "trailer", "transfer-encoding", "x-forwarded-method", "x-forwarded-uri"];

/// The most attempts at one request: a connection that its server has closed is no attempt.
const ATTEMPTS_MAX: u32 = 3;

/// A client's request, as the auth service hears of it.
pub(super) struct AskedFor<'a> {
    pub(super) head: &'a RequestHead,
    pub(super) authority: &'a Authority,
    /// The path and the query that the client asks for, in the form in which the server gets them.
    pub(super) target: HeaderValue,
    /// True if a trusted proxy sent the request.
    pub(super) is_proxied: bool,
}

impl AskedFor<'_> {
    /// Returns the request to the service. `name_client` corrects what a proxy says about the client.
    pub(super) fn request(
        &self,
        forward: &ForwardAuth,
        peer: &Peer,
        name_client: impl FnOnce(&mut FieldList),
    ) -> Request<RequestBody> {
        let mut headers = self.head.headers.clone();
        name_client(&mut headers);
        let fields = headers.set();
        strip_hop_by_hop(&mut headers, fields);
        headers.remove_names(is_left_out);

        if fields.repeats(FieldKind::Cookie) && self.head.version == Version::HTTP_2 {
            join_cookies(&mut headers);
        }
        if fields.have_blanks() {
            headers.trim();
        }
        if self.is_proxied {
            append_forwarded(&mut headers, peer, self.authority);
        } else {
            headers.remove(&FORWARDED);
            replace_forwarded(&mut headers, self.authority);
        }
        self.write_target(&mut headers);

        let trace = self.head.trace;
        if let Some(trace) = &trace {
            trace.prepare(&mut headers);
        }
        headers.remove(&HOST);
        if let Some(host) = &forward.host {
            headers.insert(HOST, host);
        }
        let head = RequestHead {
            method: Method::GET,
            uri: Uri::from(forward.target.clone()),
            sent_target: None,
            version: Version::HTTP_11,
            headers,
            extended: None,
            trace,
        };
        Request::from_parts(Box::new(head), RequestBody::Empty)
    }

    fn write_target(&self, headers: &mut FieldList) {
        headers.append(X_FORWARDED_URI, &self.target);
        if let Ok(method) = HeaderValue::from_str(self.head.method.as_str()) {
            headers.append(X_FORWARDED_METHOD, method);
        }
    }
}

fn is_left_out(name: &[u8]) -> bool {
    let begins =
        |prefix: &&str| name.get(..prefix.len()).is_some_and(|begin| folds_to(begin, prefix));
    LEFT_OUT_PREFIXES.iter().any(begins) || LEFT_OUT.iter().any(|folded| folds_to(name, folded))
}

/// Sends a request to an auth service.
pub(super) struct AuthCall<'a> {
    pub(super) peer: &'a Peer,
    /// The name of the client's route.
    pub(super) route: &'a str,
    pub(super) upstream: &'a Arc<Upstream>,
    /// The time by which the header of the response must be there.
    pub(super) deadline: Instant,
}

impl AuthCall<'_> {
    /// Sends `request`, and waits for the head of the response, whose body comes over the connection on
    /// `lease` then.
    ///
    /// # Errors
    ///
    /// No server has responded, or none in time. The service has not let the request pass.
    pub(super) async fn send(
        &self,
        mut request: Request<RequestBody>,
        lease: &mut Option<Lease>,
    ) -> Result<Response<()>, Failure> {
        let clock = &self.peer.worker.clock;
        let left = self.deadline.since(clock.now());
        let sent = clock.timeout(left, self.attempts(&mut request, lease)).await;
        sent.unwrap_or_else(|_| {
            self.note_late(lease.as_ref());
            Err(Failure::Timeout)
        })
    }

    async fn attempts(
        &self,
        request: &mut Request<RequestBody>,
        lease: &mut Option<Lease>,
    ) -> Result<Response<()>, Failure> {
        let worker = &self.peer.worker;
        let has_host = request.headers().contains_key(&HOST);
        let mut tried = Tried::default();
        let mut number = 0;
        loop {
            let now = worker.clock.now();
            let random = |below: usize| fastrand::usize(..below.max(1));
            let picked = pick(self.upstream, tried, now, None, random);
            let Picked { place, server, is_other_left } = picked.ok_or(Failure::Unreachable)?;
            if !has_host && let Ok(host) = HeaderValue::try_from(server.host_field()) {
                request.headers_mut().insert(HOST, host);
            }

            number += 1;
            let may_go_on = is_other_left && number < ATTEMPTS_MAX;
            match self.attempt(request, &server, may_go_on, lease).await {
                Ok(response) => return Ok(response),
                Err(error) => {
                    self.note_failure(&server, number, &error);
                    *lease = None;
                    if !may_go_on {
                        return Err(error.failure);
                    }
                }
            }
            tried.add(place);
        }
    }

    /// Sends the request to one server. A connection that the server closed while it was idle is replaced
    /// once: the request has no effect of its own.
    async fn attempt(
        &self,
        request: &Request<RequestBody>,
        server: &Arc<Server>,
        is_other_left: bool,
        lease: &mut Option<Lease>,
    ) -> Result<Response<()>, AttemptError> {
        let worker = &self.peer.worker;
        let mut needs = ConnectionNeeds {
            fresh: false,
            http1: false,
            once: false,
            soon: is_other_left,
            deadline: self.deadline,
        };
        loop {
            let now = worker.clock.now();
            let on = Lease::new(&worker.servers, self.upstream, Arc::clone(server), None, now);
            let on = lease.insert(on);
            on.find(needs).await.map_err(|error| AttemptError::connect(&error))?;

            server.meter.requests.fetch_add(1, Relaxed);
            if binds_login(request.headers(), &AUTHORIZATION) {
                // The service may take later requests on the connection for this client's.
                on.keep_from_others(false);
            }
            let Some(connection) = on.connection_mut() else {
                return Err(AttemptError::connect(&io::ErrorKind::NotConnected.into()));
            };
            let is_kept = |lease: &Lease| lease.reused || lease.is_shared();
            match respond(connection, request).await {
                Ok(response) => {
                    on.on_response();
                    if response.status().is_server_error() {
                        server.meter.server_errors.fetch_add(1, Relaxed);
                    }
                    return Ok(response);
                }
                Err(failed) if is_kept(on) && !needs.fresh && is_closed(&failed) => {
                    needs.fresh = true;
                }
                Err(failed) => return Err(AttemptError::response(&failed.why)),
            }
        }
    }

    /// Counts and logs an attempt that failed.
    #[cold]
    fn note_failure(&self, server: &Server, number: u32, error: &AttemptError) {
        if error.of == ServerFailure::Connect {
            server.meter.requests.fetch_add(1, Relaxed);
        }
        server.meter.failures.fetch_add(1, Relaxed);
        if !error.is_own {
            let now = self.peer.worker.clock.now();
            health::failed(self.upstream, server, now, error.of, &error.cause);
        }
        self.log(server, number, &error.cause);
    }

    /// Counts and logs that the response took too long.
    #[cold]
    fn note_late(&self, lease: Option<&Lease>) {
        let Some(lease) = lease else { return };
        lease.on_timeout();
        let server = lease.server();
        server.meter.failures.fetch_add(1, Relaxed);
        let is_connected = lease.connection().is_some();
        let of = if is_connected { ServerFailure::Response } else { ServerFailure::Connect };
        let cause = "no response within auth.forward.timeout";
        health::failed(self.upstream, server, self.peer.worker.clock.now(), of, cause);
        self.log(server, 1, cause);
    }

    fn log(&self, server: &Server, number: u32, cause: &str) {
        let worker = &self.peer.worker;
        let upstream = &self.upstream.name;
        let failed = FailedAttempt { route: self.route, upstream, server, number, cause };
        worker.records.request_log.attempt_failed(worker.clock.now(), &failed);
    }
}

/// The reason for which an attempt brought no response.
struct AttemptError {
    failure: Failure,
    of: ServerFailure,
    /// True if flowgate lacked something, and not the server.
    is_own: bool,
    cause: String,
}

impl AttemptError {
    fn connect(error: &io::Error) -> Self {
        let is_own = health::is_own_shortage(error) || is_given_up(error) || is_without_room(error);
        let cause = format!("cannot connect: {}", cause(error));
        Self { failure: Failure::Unreachable, of: ServerFailure::Connect, is_own, cause }
    }

    fn response(why: &NoResponseReason) -> Self {
        let failure = match why {
            NoResponseReason::TooLarge => Failure::HeadTooLarge,
            NoResponseReason::Broken(_)
            | NoResponseReason::Rejected(_)
            | NoResponseReason::Unsendable => Failure::Broken,
        };
        let cause = why.to_string();
        Self { failure, of: ServerFailure::Response, is_own: false, cause }
    }
}

/// Returns whether the server has closed the connection, or not taken the request.
pub(super) fn is_closed(failed: &NoResponse) -> bool {
    match &failed.why {
        NoResponseReason::Broken(error) => error.is_closed() || failed.unprocessed.is_some(),
        NoResponseReason::Rejected(_) => true,
        NoResponseReason::TooLarge | NoResponseReason::Unsendable => false,
    }
}

/// Sends a request without a body, and waits for the head of its response. Interim responses are dropped.
async fn respond(
    connection: &mut UpstreamConnection,
    request: &Request<RequestBody>,
) -> Result<Response<()>, NoResponse> {
    connection.begin(request, RequestBody::Empty, Box::default)?;
    poll_fn(|context| {
        let response = connection.poll_response(context);
        drop(connection.take_interim());
        response
    })
    .await
}

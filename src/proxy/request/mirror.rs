//! Mirroring: a copy of an admitted request goes to another upstream, and its response is dropped.
//!
//! A copy is a task of its own, without effect on the client's request: the task shares nothing with it but
//! the memory of its parts. It has a deadline and a place among those of its worker, and it changes neither
//! what rules count nor what is known of servers.

use super::attempt::expects_body;
use super::{auth_request::is_closed, dropped_body::poll_drop};
use crate::proxy::{
    body::{BodyCopy, CopiedBody, NotCopied, RequestBody},
    connections::copies::CopyPlace,
    message::{Request, RequestHead},
    request_log::FailedAttempt,
    upstream::{
        balance::{Picked, Tried, pick},
        connection::UpstreamConnection,
        error::{NoResponseReason, Unanswered, cause},
        lease::{ConnectionNeeds, Lease},
        proxy_header::{self, Proxied},
        reservation::{Reservation, binds_login},
    },
    worker::Worker,
};
use crate::{
    config::{Mirror, Route, Server, Upstream},
    flow::Instant,
    meter::CopyOutcome,
};
use bytes::Bytes;
use core::future::poll_fn;
use http::{
    HeaderValue, Method, StatusCode,
    header::{AUTHORIZATION, HOST, TRAILER},
};
use http_body::Body as _;
use std::sync::Arc;
use tokio::{runtime::Handle, sync::oneshot};

/// The most bytes of a copy's response that are read. Its connection is closed after more.
const RESPONSE_BYTES: usize = 1024 * 1024;

/// A request that is copied for the mirror of its route, if its rules admit it.
#[derive(Clone)]
pub(crate) struct Mirroring {
    pub(super) worker: Arc<Worker>,
    pub(super) route: Arc<Route>,
    pub(super) upstream: Arc<Upstream>,
    /// The key that decides about the server, if the upstream assigns keys to servers.
    pub(super) key: Option<u64>,
    /// The addresses for the PROXY protocol, if they are known.
    pub(super) proxied: Option<Proxied>,
}

impl Mirroring {
    /// Begins to copy `request`, whose head is as its server gets it.
    #[cold]
    pub(super) fn begin(&self, request: &mut Request<RequestBody>) {
        let Some(mirror) = &self.route.options.mirror else { return };
        // There is none when the worker has ended.
        let Ok(runtime) = Handle::try_current() else { return };
        let Some(place) = self.worker.copies.take() else {
            self.route.meter.count_copy(CopyOutcome::Dropped);
            return;
        };

        let limit = mirror.body_limit;
        if request.body().size_hint().lower() > limit {
            self.route.meter.count_copy(CopyOutcome::TooLong);
            return;
        }
        let body = if matches!(request.body(), RequestBody::Empty) {
            AwaitedBody::None(place)
        } else {
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            let (copy, copied) = BodyCopy::new(limit, place);
            request.body_mut().copy_to(copy);
            AwaitedBody::Coming(copied)
        };

        let mut head = request.head().clone();
        head.extended = None;
        // Its trailers are not copied.
        head.headers.remove(&TRAILER);
        let copy = RequestCopy { mirroring: self.clone(), head: Box::new(head) };
        runtime.spawn(copy.run(body));
    }
}

/// The body of a copy that has not begun.
enum AwaitedBody {
    None(CopyPlace),
    Coming(oneshot::Receiver<Result<CopiedBody, NotCopied>>),
}

/// A copy of a request, without its body.
struct RequestCopy {
    mirroring: Mirroring,
    head: Box<RequestHead>,
}

impl RequestCopy {
    /// Waits for the whole body, sends the copy, and counts how it ended.
    async fn run(self, body: AwaitedBody) {
        let route = Arc::clone(&self.mirroring.route);
        let outcome = match body {
            AwaitedBody::None(_place) => self.send(Bytes::new()).await,
            AwaitedBody::Coming(copied) => match copied.await {
                Ok(Ok(CopiedBody { bytes, place: _place })) => self.send(bytes).await,
                Ok(Err(NotCopied::TooLong)) => CopyOutcome::TooLong,
                Ok(Err(NotCopied::NoRoom)) => CopyOutcome::Dropped,
                Err(_) => CopyOutcome::Incomplete,
            },
        };
        route.meter.count_copy(outcome);
    }

    /// Sends the copy to a server, and drops the response as it comes.
    async fn send(self, body: Bytes) -> CopyOutcome {
        let Self { mirroring, head } = self;
        let Some(mirror) = mirroring.route.options.mirror.clone() else {
            return CopyOutcome::Failed;
        };
        let clock = &mirroring.worker.clock;
        let now = clock.now();
        let random = |below: usize| fastrand::usize(..below.max(1));
        let picked = pick(&mirroring.upstream, Tried::default(), now, mirroring.key, random);
        let Some(Picked { server, .. }) = picked else { return CopyOutcome::Failed };

        let mut request = Request::from_parts(head, RequestBody::Empty);
        let has_host = request.headers().get(&HOST).is_some_and(|host| !host.is_empty());
        if !has_host && let Ok(host) = HeaderValue::try_from(server.host_field()) {
            request.headers_mut().insert(HOST, host);
        }
        let deadline = now + mirror.timeout;
        let attempt = Attempt { mirroring: &mirroring, server: &server, deadline };
        match clock.timeout(mirror.timeout, attempt.send(&request, body)).await {
            Ok(Ok(status)) if status.is_server_error() => CopyOutcome::ServerError,
            Ok(Ok(_)) => CopyOutcome::Ok,
            Ok(Err(why)) => {
                attempt.log(&mirror, &why);
                CopyOutcome::Failed
            }
            Err(_) => {
                attempt.log(&mirror, "no whole response within mirror.timeout");
                CopyOutcome::Timeout
            }
        }
    }
}

/// The attempt to send a copy to a server.
struct Attempt<'a> {
    mirroring: &'a Mirroring,
    server: &'a Arc<Server>,
    deadline: Instant,
}

impl Attempt<'_> {
    /// Sends the copy, and returns the status of the response once its body has been dropped. A connection
    /// that the server closed while it was idle is replaced once, if the server has not processed the copy
    /// or the method is safe.
    ///
    /// # Errors
    ///
    /// There is no response, for this reason.
    async fn send(
        &self,
        request: &Request<RequestBody>,
        body: Bytes,
    ) -> Result<StatusCode, String> {
        let Mirroring { worker, upstream, proxied, .. } = self.mirroring;
        let clock = &worker.clock;
        let deadline = self.deadline;
        let mut needs =
            ConnectionNeeds { fresh: false, http1: false, once: true, soon: false, deadline };
        loop {
            let server = Arc::clone(self.server);
            let mut lease = Lease::new(&worker.servers, upstream, server, None, clock.now());
            if let Some(version) = upstream.options.send_proxy_protocol {
                lease.introduce(proxy_header::header(version, *proxied), false);
            }
            if binds_login(request.headers(), &AUTHORIZATION) {
                lease.close_after_request();
            }
            if !body.is_empty() && !expects_body(request.method()) {
                lease.on_unexpected_body();
            }
            lease
                .find(needs)
                .await
                .map_err(|error| format!("cannot connect: {}", cause(&error)))?;

            let is_kept = lease.reused || lease.is_shared();
            let Some(connection) = lease.connection_mut() else {
                return Err("cannot connect".to_owned());
            };
            let body = RequestBody::of_bytes(body.clone(), clock);
            match respond(connection, request, body).await {
                Ok(StatusCode::SWITCHING_PROTOCOLS) => {
                    return Err("it switched to a protocol that was not asked for".to_owned());
                }
                Ok(status) => {
                    lease.on_copy_response();
                    drop_body(&mut lease).await;
                    lease.give_back(clock.now(), &Reservation::default());
                    return Ok(status);
                }
                Err(failed)
                    if is_kept
                        && !needs.fresh
                        && is_closed(&failed)
                        && (failed.unprocessed.is_some() || is_safe(request.method())) =>
                {
                    needs.fresh = true;
                }
                Err(failed) => return Err(described(&failed.why)),
            }
        }
    }

    /// Logs that there was no response, once a second at most for each server.
    #[cold]
    fn log(&self, mirror: &Mirror, why: &str) {
        let Mirroring { worker, route, .. } = self.mirroring;
        let cause = format!("a copy for the mirror: {why}");
        let failed = FailedAttempt {
            route: &route.name,
            upstream: &mirror.upstream,
            server: self.server,
            number: 1,
            cause: &cause,
        };
        worker.records.request_log.attempt_failed(worker.clock.now(), &failed);
    }
}

fn described(why: &NoResponseReason) -> String {
    why.to_string()
}

/// Safe methods (RFC 9110, 9.2.1) that the gateway serves.
fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Sends a request, and waits for the head of its response. Interim responses are dropped.
async fn respond(
    connection: &mut UpstreamConnection,
    request: &Request<RequestBody>,
    body: RequestBody,
) -> Result<StatusCode, Unanswered> {
    connection.begin(request, body, Box::default)?;
    let response = poll_fn(|context| {
        let response = connection.poll_response(context);
        drop(connection.take_interim());
        response
    });
    response.await.map(|response| response.status())
}

/// Drops the body of a response as it comes.
async fn drop_body(lease: &mut Lease) {
    let mut left = RESPONSE_BYTES;
    poll_fn(|context| match lease.connection_mut() {
        Some(connection) => poll_drop(connection, &mut left, context),
        None => core::task::Poll::Ready(()),
    })
    .await;
}

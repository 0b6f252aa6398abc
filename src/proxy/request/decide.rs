//! Decides about a request: finds its route, asks its rules, and responds or forwards it.

use super::{
    admitted::{AdmittedRequest, discard},
    examine::{Examined, Halt, examine, reject_client},
    forward::Forward,
    shared::{self, LocalDecision, PendingDecision, StoreQuery},
};
use crate::proxy::{
    body::{BodyBuffer, ClientBody, RequestBody, drain},
    gateway_error::GatewayError,
    message::{
        Request, Response,
        grpc::{self, is_grpc},
        hop_by_hop::RequestTrailers,
    },
    passwords::Attempt,
    peer::Peer,
    rate_limit_headers::RateLimitFields,
    record::{
        completion::Completion,
        log_entry::{self, LogEntry},
        preview,
    },
    response::{
        own_response::{ReplyOptions, error_response, reject},
        response_body::ResponseBody,
    },
};
use crate::{
    config::{Claims, Route, Snapshot},
    flow::{Admission, Instant, Permit, Rejection, Report},
    http1::FieldKind,
    preview::{Alike, Treatment},
    route::Identity,
};
use std::sync::Arc;

/// What becomes of a request after the decision.
enum Step {
    Answered(Response<ResponseBody>),
    Forward(AdmittedRequest),
    /// The store must be asked.
    Ask(Box<PendingDecision>, Box<Arrival>),
}

/// A request whose password is checked.
struct Unverified {
    attempt: Attempt,
    snapshot: Arc<Snapshot>,
    request: Request<ClientBody>,
    completion: Box<Completion>,
}

/// A request that was decided, or whose password must be checked before.
pub(crate) struct Begun(Result<Step, Box<Unverified>>);

impl Begun {
    /// Serves the request.
    ///
    /// Dropping the future at any point ends the request as cancelled: the permit, the
    /// upstream connection and the notes are all held by values that it owns.
    pub(crate) async fn serve(self) -> Response<ResponseBody> {
        let step = match self.0 {
            Ok(step) => step,
            // In a box because it is rare, and would make every request's future larger.
            Err(unverified) => Box::pin(verify(*unverified)).await,
        };
        match step {
            Step::Answered(response) => response,
            Step::Forward(admitted) => admitted.serve().await,
            // In a box for the same reason.
            Step::Ask(pending, arrival) => Box::pin(ask(*pending, *arrival)).await,
        }
    }
}

/// Begins a request: finds its route, and decides about it. `completion` is not in use.
pub(crate) fn begin(mut completion: Box<Completion>, mut request: Request<ClientBody>) -> Begun {
    let peer = &completion.peer;
    let worker = &peer.worker;
    if worker.connections.are_retiring() {
        peer.handle.drain();
    }
    let now = peer.read_clock();
    let snapshot = worker.live.load();
    let is_noted = snapshot.settings.tracing.is_some() || worker.access_log.is_on();
    let entry = if is_noted { note_arrival(peer, &mut request, &snapshot) } else { None };
    completion.begin(request.method().clone(), request.version(), now);
    completion.entry = entry;
    completion.stream = completion.peer.on_stream();
    completion.assign_id(request.headers(), &snapshot);
    Begun(decide(&snapshot, request, completion, None, now))
}

/// Begins the request's trace, and its line of the access log, as far as there are any.
#[inline(never)]
fn note_arrival(
    peer: &Peer,
    request: &mut Request<ClientBody>,
    snapshot: &Arc<Snapshot>,
) -> Option<Box<LogEntry>> {
    let tracing = snapshot.settings.tracing.as_deref();
    let trace = tracing.map(|tracing| log_entry::begin_trace(peer, tracing, request, snapshot));
    let is_recorded = trace.as_ref().is_some_and(|trace| trace.recording.is_some());
    let is_logged = is_recorded || peer.worker.access_log.is_on();
    let mut entry = is_logged.then(|| Box::new(LogEntry::new(request, snapshot, peer.address)));
    if let Some(trace) = trace {
        if let Some(entry) = &mut entry {
            entry.trace(trace.id, trace.recording);
        }
        request.head_mut().trace = Some(trace.context);
    }
    entry
}

/// Decides about a request at `now`, unless its password must be checked before. `identity` is
/// known if it was.
fn decide(
    snapshot: &Arc<Snapshot>,
    request: Request<ClientBody>,
    mut completion: Box<Completion>,
    identity: Option<Identity>,
    now: Instant,
) -> Result<Step, Box<Unverified>> {
    let preview = preview::running(&completion.peer, snapshot);
    let mut claims = Claims::new();
    let files = (snapshot, preview.as_ref());
    let examined = examine(files, &request, &mut completion, (identity, now), &mut claims);
    let Examined { route, forward, trailers, alike } = match examined {
        Ok(examined) => examined,
        Err(Halt::Error(error)) => {
            return Ok(answer_error(snapshot, error, request, completion, now));
        }
        Err(Halt::Unverified(attempt)) => {
            let snapshot = Arc::clone(snapshot);
            return Err(Box::new(Unverified { attempt: *attempt, snapshot, request, completion }));
        }
    };
    let is_shared = route.is_shared;
    let query = is_shared.then(|| StoreQuery::of(&completion.peer.worker, &route, &claims));
    let query = query.flatten();
    let settings = &snapshot.settings;
    let options =
        ReplyOptions { headers: settings.rate_limit_headers, explain: settings.explain_headers };
    let admitted = admitted(request, route, forward, trailers, (completion, now));
    Ok(Arrival { admitted, options }.decide(query, &claims, alike, now))
}

/// Responds to a request that no rule is asked about, in the preview too.
#[cold]
fn answer_error(
    snapshot: &Arc<Snapshot>,
    error: GatewayError,
    request: Request<ClientBody>,
    mut completion: Box<Completion>,
    now: Instant,
) -> Step {
    preview::rejected_unasked(snapshot, &request, error, &mut completion, now);
    reject_unread(error, request, completion)
}

/// Prepares a request that is about to be decided.
fn admitted(
    request: Request<ClientBody>,
    route: Arc<Route>,
    forward: Forward,
    trailers: Option<RequestTrailers>,
    (completion, start): (Box<Completion>, Instant),
) -> AdmittedRequest {
    // Calls of gRPC may be silent for long.
    let is_grpc = || request.headers().first(FieldKind::ContentType).is_some_and(is_grpc);
    let pace = route.options.min_body_rate.filter(|_| !is_grpc());
    let held = (&completion.peer.worker.clock, completion.peer.upload_buffer());
    let body = |body| RequestBody::new(body, &route, pace, held, trailers);
    let extended = request.head().extended.clone();
    let request = Some(request.map(body));
    AdmittedRequest { request, route, forward, start, extended, completion }
}

/// Responds to a request that is not decided about, and whose body is not needed.
#[inline(never)]
fn reject_unread(
    error: GatewayError,
    request: Request<ClientBody>,
    mut completion: Box<Completion>,
) -> Step {
    let (head, body) = request.into_parts();
    completion.closes = error.closes();
    match completion.peer.upload_buffer() {
        Some(buffer) => {
            drain(body, BodyBuffer::new(buffer, &Arc::default()), &completion.peer.worker.clock);
        }
        None => discard(&body, head.headers.set(), &mut completion),
    }
    let grpc = grpc::content_type(&head.headers);
    completion.peer.keep_head(head);
    Step::Answered(error_response(error, grpc, completion))
}

/// Has the password checked, and decides.
async fn verify(unverified: Unverified) -> Step {
    let Unverified { attempt, snapshot, request, completion } = unverified;
    let peer = Arc::clone(&completion.peer);
    let worker = &peer.worker;
    let client = attempt.client;
    let step = match worker.passwords.finish(attempt, &worker.clock).await {
        Ok(identity) => decide(&snapshot, request, completion, Some(identity), worker.clock.now()),
        Err(error) => {
            reject_client(worker, client, error);
            Ok(answer_error(&snapshot, error, request, completion, worker.clock.now()))
        }
    };
    match step {
        Ok(step) => step,
        // It is not, as the identity is known.
        Err(again) => {
            let Unverified { request, completion, .. } = *again;
            reject_unread(GatewayError::TooManyChecks, request, completion)
        }
    }
}

/// Has the store decide, and goes on from there.
async fn ask(pending: PendingDecision, mut arrival: Arrival) -> Response<ResponseBody> {
    let admitted = &mut arrival.admitted;
    let peer = Arc::clone(&admitted.completion.peer);
    let (decided, held) = pending.ask(&peer.worker, &admitted.route).await;
    admitted.completion.held = held.map(Box::new);
    match arrival.settle(decided) {
        Ok(admitted) => admitted.serve().await,
        Err(response) => response,
    }
}

/// A request that is about to be decided.
struct Arrival {
    admitted: AdmittedRequest,
    options: ReplyOptions,
}

impl Arrival {
    /// Asks the rules, here or in the store.
    fn decide(
        mut self,
        query: Option<StoreQuery>,
        claims: &Claims,
        alike: Option<Alike<'_>>,
        now: Instant,
    ) -> Step {
        let AdmittedRequest { route, .. } = &self.admitted;
        if route.is_shared {
            return self.decide_with_store(query, claims, now);
        }
        let mut report = Report::default();
        let decided = route.gate.decide(now, claims, &mut report);
        if let Some(alike) = alike {
            let treatment = Treatment::of(decided.as_ref().err(), &report);
            let AdmittedRequest { request, completion, .. } = &mut self.admitted;
            let request = request.as_ref();
            preview::decide_alike(alike, (claims, treatment), request, completion, now);
        }
        match decided {
            Ok(permit) => {
                self.admit(permit, &report);
                Step::Forward(self.admitted)
            }
            Err(rejection) => Step::Answered(self.reject(&rejection.with(report))),
        }
    }

    /// Asks the rules of this process, and says what is left to ask the store.
    #[inline(never)]
    fn decide_with_store(self, query: Option<StoreQuery>, claims: &Claims, now: Instant) -> Step {
        let AdmittedRequest { route, completion, .. } = &self.admitted;
        match shared::begin(&completion.peer.worker, route, now, claims, query) {
            LocalDecision::Decided(decided) => match self.settle(decided) {
                Ok(admitted) => Step::Forward(admitted),
                Err(response) => Step::Answered(response),
            },
            LocalDecision::Ask(pending) => Step::Ask(pending, Box::new(self)),
        }
    }

    /// Lets it go on or responds, as was decided.
    fn settle(
        mut self,
        decided: Result<Admission, Rejection>,
    ) -> Result<AdmittedRequest, Response<ResponseBody>> {
        match decided {
            Ok(Admission { permit, report }) => {
                self.admit(permit, &report);
                Ok(self.admitted)
            }
            Err(rejection) => Err(self.reject(&rejection)),
        }
    }

    /// Lets it go on.
    fn admit(&mut self, permit: Permit, report: &Report) {
        let Self { admitted, options } = self;
        // Another thread may have read a later time and come first. That is no wait.
        if !report.wait().is_zero() {
            admitted.start = permit.start();
        }
        let completion = &mut admitted.completion;
        if let Some(entry) = &mut completion.entry {
            entry.admitted(report, &admitted.route);
        }
        preview::admitted(report, admitted.request.as_ref(), completion);
        if let Some(shown) = completion.shown_keys.take() {
            shown.keep(&completion.peer.worker, report);
        }
        completion.permit = Some(permit);
        completion.log(report.transition);
        completion.quota = RateLimitFields::admitted(&admitted.route, report, options.headers);
    }

    /// Responds instead.
    #[inline(never)]
    fn reject(self, rejection: &Rejection) -> Response<ResponseBody> {
        let Self { admitted, options } = self;
        let AdmittedRequest { request, route, forward, mut completion, .. } = admitted;
        if let Some(entry) = &mut completion.entry {
            entry.rejected(rejection);
        }
        preview::rejected(rejection, request.as_ref(), &mut completion);
        record(rejection, &route, &completion);
        if let Some(shown) = completion.shown_keys.take() {
            shown.keep(&completion.peer.worker, &rejection.report);
        }
        let grpc = request.and_then(|request| {
            let (head, body) = request.into_parts();
            discard(&body, forward.fields, &mut completion);
            let grpc = grpc::content_type(&head.headers);
            completion.peer.keep_head(head);
            grpc
        });
        reject(rejection, &route, &options, grpc, completion)
    }
}

/// Keeps a rejection for operators, with what the access log would have of the client.
fn record(rejection: &Rejection, route: &Route, completion: &Completion) {
    let worker = &completion.peer.worker;
    let logged = completion.entry.as_ref().filter(|_| worker.access_log.is_written());
    let client = logged.map(|entry| entry.client);
    worker.rejections.record(route, rejection, client, worker.clock.wall(completion.started));
}

//! What a worker's requests share, and the part of a request that takes no
//! time: found, decided, and either answered or sent on.

use super::{
    admitted::AdmittedRequest,
    auth::{Attempt, Checked},
    discard::discard,
    forward::Forward,
    preview::{self, Client as PreviewClient},
    shared::{self, LocalDecision, PendingDecision, StoreQuery},
    trace,
};
use crate::proxy::{
    body::{
        client_body::ClientBody, drain_body::drain, request_body::RequestBody,
        trailers::RequestTrailers, upload_buffer::BodyBuffer,
    },
    completion::Completion,
    connections::options::Protocol,
    log_entry::LogEntry,
    message::{
        grpc::is_grpc,
        request_id::X_REQUEST_ID,
        validate::{Invalid, inspect},
    },
    peer::{Authority, Peer},
    placeholders::Values,
    response::{
        rate_limit_headers::RateLimitFields,
        refusal::{DENIED, Refusal},
        reply::{ReplyOptions, refuse, reject},
        response_body::ResponseBody,
    },
    shown_keys::ShownKeys,
};
use crate::{
    config::{Claims, KeySource, RequestContext, Route, RouteRule, Snapshot, Unrouted},
    flow::{Admission, Instant, Permit, Rejection, Report},
    meter,
    route::{Identity, Seed, Target, client_ip, low_bits, normal_path, without_dot_segments},
};
use crate::{
    http1::{FieldKind, FieldList, FieldSet},
    proxy::message::{
        request::{Request, RequestHead},
        response::Response,
    },
};
use core::net::IpAddr;
use http::{Uri, Version, uri::PathAndQuery};
use http_body::Body as _;
use std::{borrow::Cow, sync::Arc};

/// What becomes of a request after the decision.
///
/// In boxes, as it is copied on its way into the connection.
enum Step {
    Answered(Box<Response<ResponseBody>>),
    Forward(Box<AdmittedRequest>),
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
            Step::Answered(response) => *response,
            Step::Forward(admitted) => admitted.travel().await,
            // In a box for the same reason.
            Step::Ask(pending, arrival) => Box::pin(ask(*pending, *arrival)).await,
        }
    }
}

/// Begins a request: finds its route, and decides about it.
pub(crate) fn begin(peer: Arc<Peer>, mut request: Request<ClientBody>) -> Begun {
    peer.on_request();
    let worker = &peer.worker;
    if worker.connections.are_retiring() {
        peer.handle.drain();
    }
    let now = peer.read_clock();
    let snapshot = worker.live.load();
    let tracing = snapshot.settings.tracing.as_deref();
    let trace = tracing.map(|tracing| trace::begin(&peer, tracing, &request, &snapshot));
    let is_recorded = trace.as_ref().is_some_and(|trace| trace.recording.is_some());
    let mut entry = (is_recorded || worker.access_log.is_on())
        .then(|| Box::new(LogEntry::new(&request, &snapshot, peer.address)));
    let mut completion = Completion::new(peer, request.method().clone(), request.version(), now);
    if let Some(trace) = trace {
        if let Some(entry) = &mut entry {
            entry.trace(trace.id, trace.recording);
        }
        request.head_mut().trace = Some(trace.context);
    }
    completion.entry = entry;
    completion.stream = completion.peer.on_stream();
    completion.identify(request.headers(), &snapshot);
    Begun(decide(&snapshot, request, completion, None, now))
}

/// Decides about a request by the file in preview too, if there is one.
fn decide_in_preview(
    snapshot: &Arc<Snapshot>,
    request: &Request<ClientBody>,
    found: &Found<'_>,
    completion: &mut Completion,
    now: Instant,
) {
    if completion.peer.worker.preview.is_on() {
        let client = PreviewClient::Known(found.identity.as_ref());
        preview::decide(
            snapshot,
            request,
            (&found.authority.host, &found.path, client),
            completion,
            now,
        );
    }
}

/// Decides about a request at `now`, unless its password must be checked before. `identity` is
/// known if it was.
fn decide(
    snapshot: &Arc<Snapshot>,
    mut request: Request<ClientBody>,
    mut completion: Box<Completion>,
    identity: Option<Identity>,
    now: Instant,
) -> Result<Step, Box<Unverified>> {
    let mut found = match find(snapshot, &request, &mut completion) {
        Ok(found) => found,
        Err(refusal) => {
            preview::refused(snapshot, &request, refusal, &mut completion, now);
            return Ok(turn_away(refusal, request, completion));
        }
    };
    found.identity = identity;
    if found.route.options.auth.is_some() {
        match found.authenticate(&request, &mut completion, now) {
            None | Some(Checked::Passed(_)) => {}
            Some(Checked::Later(attempt)) => {
                let snapshot = Arc::clone(snapshot);
                return Err(Box::new(Unverified { attempt, snapshot, request, completion }));
            }
            Some(Checked::Rejected(refusal)) => {
                preview::refused(snapshot, &request, refusal, &mut completion, now);
                return Ok(turn_away(refusal, request, completion));
            }
        }
    }
    decide_in_preview(snapshot, &request, &found, &mut completion, now);
    let mut claims = Claims::new();
    found.claim(&completion.peer, &request, &mut claims);
    completion.shown_keys = found.shown_keys(&completion.peer, &request, snapshot, &claims);
    let is_shared = found.route.is_shared;
    let query = is_shared.then(|| StoreQuery::of(&completion.peer.worker, &found.route, &claims));
    let query = query.flatten();
    if let Some(entry) = &mut completion.entry {
        entry.claimed(&found.route, &claims);
    }
    let sent = found.sent.take();
    let trailers = found.trailers(&request, snapshot);
    let key = found.server_key(&completion.peer, &request);
    let Found { authority, fields, route, trusted, .. } = found;
    let settings = &snapshot.settings;
    let forward = Forward {
        authority,
        key,
        upgrade: None,
        trusted,
        fields,
        target: sent.map(Box::new),
        trailers: trailers.is_some(),
        via: settings.via.clone(),
    };
    if let Some(id) = &completion.request_id {
        request.headers_mut().insert(&X_REQUEST_ID, id);
    }
    let RequestHead { trace, headers, .. } = request.head_mut();
    if let Some(trace) = trace {
        trace.prepare(headers);
    }
    let options =
        ReplyOptions { headers: settings.rate_limit_headers, explain: settings.explain_headers };
    let admitted = admitted(request, route, forward, trailers, (completion, now));
    Ok(Arrival { admitted, options }.decide(query, &claims, now))
}

/// Prepares a request that is about to be decided.
fn admitted(
    request: Request<ClientBody>,
    route: Arc<Route>,
    forward: Forward,
    trailers: Option<RequestTrailers>,
    (completion, start): (Box<Completion>, Instant),
) -> Box<AdmittedRequest> {
    let protocol = match request.version() {
        Version::HTTP_2 => Protocol::Http2,
        _ => Protocol::Http1,
    };
    // Calls of gRPC may be silent for long.
    let is_grpc = request.headers().first(FieldKind::ContentType).is_some_and(is_grpc);
    let pace = route.options.min_body_rate.filter(|_| !is_grpc);
    let held = (&completion.peer.worker.clock, completion.peer.upload_buffer());
    let body = |body| RequestBody::new(body, &route, pace, held, trailers);
    let extended = request.head().extended.clone();
    let request = Some(request.map(body));
    // Made where it stays: it is large.
    Box::new(AdmittedRequest {
        request,
        route,
        forward,
        protocol,
        quota: None,
        start,
        extended,
        completion,
    })
}

/// Answers a request that is not decided about, and whose body is not needed.
fn turn_away(
    refusal: Refusal,
    request: Request<ClientBody>,
    mut completion: Box<Completion>,
) -> Step {
    let (head, body) = request.into_parts();
    completion.closes = refusal.closes();
    match completion.peer.upload_buffer() {
        Some(buffer) => {
            drain(body, BodyBuffer::new(buffer, &Arc::default()), &completion.peer.worker.clock);
        }
        None => discard(&body, head.headers.set(), &mut completion),
    }
    Step::Answered(Box::new(refuse(refusal, &head.headers, completion)))
}

/// Has the password checked, and decides.
async fn verify(unverified: Unverified) -> Step {
    let Unverified { attempt, snapshot, request, mut completion } = unverified;
    let peer = Arc::clone(&completion.peer);
    let worker = &peer.worker;
    let client = attempt.client;
    let step = match worker.passwords.finish(attempt, &worker.clock).await {
        Ok(identity) => decide(&snapshot, request, completion, Some(identity), worker.clock.now()),
        Err(refusal) => {
            reject_client(&mut completion, client, refusal);
            preview::refused(&snapshot, &request, refusal, &mut completion, worker.clock.now());
            Ok(turn_away(refusal, request, completion))
        }
    };
    match step {
        Ok(step) => step,
        // It is not, as the identity is known.
        Err(again) => {
            let Unverified { request, completion, .. } = *again;
            turn_away(Refusal::TooManyChecks, request, completion)
        }
    }
}

/// Counts and logs that a client is not let in.
fn reject_client(completion: &mut Completion, client: IpAddr, refusal: Refusal) {
    let worker = &completion.peer.worker;
    worker.rejected(client, meter::Refusal::Auth, &refusal.detail());
}

/// Has the store decide, and goes on from there.
async fn ask(pending: PendingDecision, mut arrival: Arrival) -> Response<ResponseBody> {
    let admitted = &mut arrival.admitted;
    let peer = Arc::clone(&admitted.completion.peer);
    let (decided, held) = pending.ask(&peer.worker, &admitted.route).await;
    admitted.completion.held = held.map(Box::new);
    match arrival.settle(decided) {
        Ok(admitted) => admitted.travel().await,
        Err(response) => *response,
    }
}

/// A request that is about to be decided.
struct Arrival {
    admitted: Box<AdmittedRequest>,
    options: ReplyOptions,
}

impl Arrival {
    /// Asks the rules, here or in the store.
    fn decide(mut self, query: Option<StoreQuery>, claims: &Claims, now: Instant) -> Step {
        let AdmittedRequest { route, completion, .. } = &*self.admitted;
        if route.is_shared {
            return match shared::begin(&completion.peer.worker, route, now, claims, query) {
                LocalDecision::Decided(decided) => match self.settle(decided) {
                    Ok(admitted) => Step::Forward(admitted),
                    Err(response) => Step::Answered(response),
                },
                LocalDecision::Ask(pending) => Step::Ask(pending, Box::new(self)),
            };
        }
        let mut report = Report::default();
        match route.gate.decide(now, claims, &mut report) {
            Ok(permit) => {
                self.admit(permit, &report);
                Step::Forward(self.admitted)
            }
            Err(refused) => Step::Answered(self.reject(&refused.with(report))),
        }
    }

    /// Lets it go on or answers it, as was decided.
    fn settle(
        mut self,
        decided: Result<Admission, Rejection>,
    ) -> Result<Box<AdmittedRequest>, Box<Response<ResponseBody>>> {
        match decided {
            Ok(Admission { permit, report }) => {
                self.admit(permit, &report);
                Ok(self.admitted)
            }
            Err(rejection) => Err(self.reject(&rejection)),
        }
    }

    /// Lets it go on.
    #[inline]
    fn admit(&mut self, permit: Permit, report: &Report) {
        let Self { admitted, options } = self;
        // Another thread may have read a later time and come first. That is no wait.
        if !report.wait().is_zero() {
            admitted.start = permit.start();
        }
        let completion = &mut admitted.completion;
        if let Some(entry) = &mut completion.entry {
            entry.admitted(report);
        }
        preview::admitted(report, admitted.request.as_ref(), completion);
        if let Some(shown) = completion.shown_keys.take() {
            shown.keep(&completion.peer.worker, report);
        }
        completion.permit = Some(permit);
        completion.log(report.transition);
        admitted.quota = RateLimitFields::admitted(&admitted.route, report, options.headers);
    }

    /// Answers it instead.
    fn reject(self, rejection: &Rejection) -> Box<Response<ResponseBody>> {
        let Self { admitted, options } = self;
        let AdmittedRequest { request, route, forward, mut completion, .. } = *admitted;
        if let Some(entry) = &mut completion.entry {
            entry.rejected(rejection);
        }
        preview::rejected(rejection, request.as_ref(), &mut completion);
        record(rejection, &route, &completion);
        if let Some(shown) = completion.shown_keys.take() {
            shown.keep(&completion.peer.worker, &rejection.report);
        }
        let headers = request.map_or_else(FieldList::default, |request| {
            let (head, body) = request.into_parts();
            discard(&body, forward.fields, &mut completion);
            head.headers
        });
        Box::new(reject(rejection, &route, &options, &headers, completion))
    }
}

/// Keeps a rejection for operators, with what the access log would have of the client.
fn record(rejection: &Rejection, route: &Route, completion: &Completion) {
    let worker = &completion.peer.worker;
    let logged = completion.entry.as_ref().filter(|_| worker.access_log.is_written());
    let client = logged.map(|entry| entry.client);
    worker.rejections.record(route, rejection, client, worker.clock.wall(completion.started));
}

/// A request whose route is known.
struct Found<'a> {
    authority: Arc<Authority>,
    fields: FieldSet,
    path: Cow<'a, str>,
    client: IpAddr,
    identity: Option<Identity>,
    route: Arc<Route>,
    /// Whether the peer is one of `trusted_proxies`.
    trusted: bool,
    /// What the upstream is asked for, if that is not what the client wrote.
    sent: Option<PathAndQuery>,
}

impl Found<'_> {
    /// Finds out who the client is, unless that is known. Returns what is in the way.
    fn authenticate(
        &mut self,
        request: &Request<ClientBody>,
        completion: &mut Completion,
        now: Instant,
    ) -> Option<Checked> {
        if self.identity.is_none() {
            let auth = self.route.options.auth.as_ref()?;
            let passwords = &completion.peer.worker.passwords;
            let wall = completion.peer.worker.clock.wall(now);
            match passwords.check(auth, request.headers().into(), self.client, (now, wall)) {
                Checked::Passed(identity) => self.identity = Some(identity),
                Checked::Rejected(refusal) => {
                    reject_client(completion, self.client, refusal);
                    return Some(Checked::Rejected(refusal));
                }
                later @ Checked::Later(_) => return Some(later),
            }
        }
        if let Some(entry) = &mut completion.entry {
            entry.user = self.identity.as_ref().and_then(Identity::user).cloned();
        }
        None
    }

    /// Returns what filters the request's trailers, if the upstream is to receive any.
    fn trailers(
        &self,
        request: &Request<ClientBody>,
        snapshot: &Snapshot,
    ) -> Option<RequestTrailers> {
        let may_have = self.fields.has(FieldKind::Trailer);
        may_have.then(|| RequestTrailers::of(request.headers(), snapshot, &self.route)).flatten()
    }

    fn target<'a>(&'a self, request: &'a Request<ClientBody>, peer: &'a Peer) -> Target<'a> {
        let identity = self.identity.as_ref();
        Target { identity, ..target(request, peer, &self.authority.host, &self.path) }
    }

    /// Adds to `claims` what the request asks of its route's rules.
    fn claim(&self, peer: &Peer, request: &Request<ClientBody>, claims: &mut Claims) {
        let target = self.target(request, peer);
        let client = self.client;
        let known = |rule: &RouteRule, _: &str| {
            let print = match (&rule.shared, &peer.worker.store) {
                // By the secret that all gateways have.
                (Some(_), Some(store)) if !rule.key.is_shared() => {
                    rule.key.fingerprint(&store.seed(), &target, client).ok()
                }
                _ => peer.fingerprint(&rule.key, &target, client),
            };
            print.map_or(KeySource::Request, KeySource::Fingerprint)
        };
        let context = RequestContext { seed: &peer.worker.seed, target: &target, client };
        self.route.claim(context, known, claims);
    }

    /// Returns the keys whose names may be kept, if there are any.
    fn shown_keys(
        &self,
        peer: &Peer,
        request: &Request<ClientBody>,
        snapshot: &Snapshot,
        claims: &Claims,
    ) -> Option<Box<ShownKeys>> {
        if !snapshot.settings.shows_keys() {
            return None;
        }
        let asked = (&self.target(request, peer), self.client);
        ShownKeys::of(&peer.worker, &self.route, claims, asked)
    }

    /// Returns what decides about its server, if the upstream assigns keys to servers and the
    /// request has one. The same in all gateways.
    fn server_key(&self, peer: &Peer, request: &Request<ClientBody>) -> Option<u64> {
        let key = self.route.action.upstream()?.options.hash_key.as_ref()?;
        let target = self.target(request, peer);
        key.fingerprint(&Seed::new([0, 0]), &target, self.client).ok().map(low_bits)
    }
}

fn target<'a>(
    request: &'a Request<ClientBody>,
    peer: &'a Peer,
    host: &'a str,
    path: &'a str,
) -> Target<'a> {
    let query = request.uri().query();
    let method = request.method();
    let headers = request.headers().into();
    let listener = Some(&*peer.listener);
    Target { listener, host, path, query, method, headers, identity: None }
}

/// Finds the route, and notes it in `completion`.
fn find<'a>(
    snapshot: &Snapshot,
    request: &'a Request<ClientBody>,
    completion: &mut Completion,
) -> Result<Found<'a>, Refusal> {
    let uri = request.uri();
    let peer = &completion.peer;
    let worker = &peer.worker;
    let refused = |invalid: Invalid| {
        worker.rejected(peer.address, invalid.kind, &invalid.detail());
        Refusal::Invalid(invalid)
    };
    let limits = &snapshot.settings.limits;
    let fields = request.headers().set();
    let authority = inspect(request, fields, limits).map_err(refused)?;
    let authority = peer.authority(authority).map_err(refused)?;
    let host = &authority.host;
    if let Some(entry) = &mut completion.entry {
        entry.host = Arc::clone(host);
    }
    if !peer.may_ask_for(host) {
        worker.counters.refuse(meter::Refusal::Host);
        return Err(Refusal::Misdirected);
    }
    // Empty if the target is a fragment only.
    let written = if uri.path().is_empty() { "/" } else { uri.path() };
    let path = normal_path(written);
    let route = match snapshot.find(&target(request, peer, host, &path), written) {
        Ok(route) => route,
        Err(Unrouted::Path(why)) => return Err(refused(Invalid::path(why))),
        Err(Unrouted::NoRoute) => {
            worker.counters.refuse(meter::Refusal::NoRoute);
            return Err(Refusal::NoRoute);
        }
    };
    let client = client_ip(peer.address, request.headers().into(), peer.trusted_proxies(snapshot));
    if let Some(entry) = &mut completion.entry {
        entry.client = client;
    }
    let route = Arc::clone(route);
    completion.route = Some(Arc::clone(&route));
    let trusted = peer.is_trusted(snapshot);
    completion.values = Values::of(
        &route,
        request,
        (peer, completion.request_id.as_ref()),
        trusted,
        (host, client),
    );
    if route.options.access.as_ref().is_some_and(|access| !access.allows(client)) {
        worker.rejected(client, meter::Refusal::Access, DENIED);
        return Err(Refusal::Denied);
    }
    // Before it has cost anybody anything.
    if request.body().size_hint().exact().is_some_and(|length| length > route.options.body_limit) {
        return Err(Refusal::TooLong);
    }
    // A path that is its own form has no segment to leave out.
    let is_own_form = matches!(path, Cow::Borrowed(_)) || route.options.relaxed_path;
    let sent = sent(&route, uri, written, is_own_form).map_err(Invalid::path).map_err(refused)?;
    Ok(Found { authority, fields, path, client, identity: None, route, trusted, sent })
}

/// Returns what the upstream is asked for, if that is not what the client wrote.
///
/// # Errors
///
/// Why servers may read it differently.
fn sent(
    route: &Route,
    uri: &Uri,
    path: &str,
    is_own_form: bool,
) -> Result<Option<PathAndQuery>, &'static str> {
    let sent = match &route.options.rewrite {
        Some(rewrite) if rewrite.changes_path() && path.starts_with('/') => {
            Some(rewrite.path(path, route.options.relaxed_path)?)
        }
        _ if is_own_form => None,
        _ => without_dot_segments(path),
    };
    sent.map(|path| with_query(path, uri)).transpose()
}

/// Returns the target with this path and the query of `uri`.
///
/// # Errors
///
/// What the path has that no target has.
fn with_query(mut target: String, uri: &Uri) -> Result<PathAndQuery, &'static str> {
    if let Some(query) = uri.query() {
        target.push('?');
        target.push_str(query);
    }
    let length = target.len();
    let made = PathAndQuery::try_from(target).ok();
    made.filter(|made| made.as_str().len() == length).ok_or("a character that no path has")
}

//! Requests in a preview: what a new file would do with them.

use super::completion::Completion;
use crate::proxy::{
    gateway_error::GatewayError,
    message::{Request, validate::Invalid},
    peer::Peer,
};
use crate::{
    config::{KeySource, RequestContext, Route, RouteRule, Snapshot},
    flow::{Claim, Instant, Rejection, Report},
    geo::Located,
    meter,
    preview::{
        Alike, Arrival, Here, Identified, LiveRequest, OwnRejection, RunningPreview, Treatment,
        Trial,
    },
    route::{BodyMembers, Identity, Target, normal_path},
};
use core::{cell::OnceCell, net::IpAddr};
use http_body::Body;
use std::sync::Arc;

/// What the file in force knows of a request's client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Client<'a> {
    /// It has this address, and this identity if the route asks for one.
    Known(IpAddr, Option<&'a Identity>),
    /// The route rejects its credentials, or it has none.
    Rejected,
    /// Not read yet.
    Unasked,
}

/// A request as the file in force reads it, for a decision of the new file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    /// The host, as routes know it.
    pub(crate) host: &'a str,
    /// The path, as routes know it.
    pub(crate) path: &'a str,
    pub(crate) client: Client<'a>,
    /// The members of the body that the file in force looks at.
    pub(crate) body: Option<&'a BodyMembers>,
}

/// Returns the preview beside the file in force, if there is one.
#[inline]
pub(crate) fn running(peer: &Peer, snapshot: &Arc<Snapshot>) -> Option<RunningPreview> {
    let handle = &peer.worker.records.preview;
    if handle.is_on() { handle.running(snapshot) } else { None }
}

/// Begins the preview of a request that the file in force is about to decide. A new file that needs to
/// know no more about it than the file in force is returned: it decides [after](decide_alike) that.
/// Another one decides now.
pub(crate) fn begin<'a, B: Body>(
    running: &'a RunningPreview,
    request: &Request<B>,
    asked: &Asked<'_>,
    completion: &mut Completion,
    now: Instant,
) -> Option<Alike<'a>> {
    let alike = alike(running, request, asked.client, completion);
    if alike.is_none() {
        decide(running, request, asked, completion, now);
    }
    alike
}

fn alike<'a, B>(
    running: &'a RunningPreview,
    request: &Request<B>,
    client: Client<'_>,
    completion: &Completion,
) -> Option<Alike<'a>> {
    let Client::Known(address, _) = client else { return None };
    running.get()?.alike(completion.route.as_ref()?, written(request), address)
}

/// Has the new file decide about a request.
fn decide<B: Body>(
    running: &RunningPreview,
    request: &Request<B>,
    asked: &Asked<'_>,
    completion: &mut Completion,
    now: Instant,
) {
    let Some(preview) = running.get() else { return };
    let &Asked { host, path, client, body } = asked;
    let peer = &completion.peer;
    let headers = request.headers().into();
    let address = peer.proxies(preview.snapshot()).client(peer.address, headers).address;

    let uri = request.uri();
    let method = request.method();
    let listener = Some(&*peer.listener);
    let query = uri.query();
    let certificate = peer.certificate().map(|certificate| &**certificate);
    let found = OnceCell::new();
    let place = Located::of(preview.snapshot().settings.geo.as_deref(), address, &found);
    let target = Target {
        listener,
        host,
        path,
        query,
        method,
        headers,
        certificate,
        place,
        identity: None,
        body,
    };
    let seed = &peer.worker.seed;

    let arrival = Arrival {
        request: RequestContext { seed, target: &target, client: address },
        path: written(request),
        here: completion.route.as_ref(),
        length: request.body().size_hint().exact(),
        is_logged: completion.observers.entry.is_some(),
        worker: peer.worker.records.preview.worker(),
    };

    let known = |rule: &RouteRule, _: &str| {
        let print = peer.fingerprint(&rule.key, &target, address);
        print.map_or(KeySource::Request, KeySource::Fingerprint)
    };
    let identify =
        |route: &Route, is_same: bool| identify(route, is_same, client, request, peer, now);
    let trial = preview.decide(&arrival, identify, known, now);
    keep(trial, completion);
}

/// Has the new file decide about a request with these claims that the file in force has treated like
/// this, and compares.
pub(crate) fn decide_alike<B>(
    alike: Alike<'_>,
    claims: &[Claim],
    treatment: Treatment,
    request: &Request<B>,
    completion: &mut Completion,
    now: Instant,
) {
    let peer = &completion.peer;
    let worker = &peer.worker;
    let live = LiveRequest {
        claims,
        here: here(treatment, request, completion),
        is_logged: completion.observers.entry.is_some(),
        wall: worker.clock.wall(completion.arrival.at),
        worker: worker.records.preview.worker(),
    };

    let by_client = |rule: &RouteRule| {
        let method = request.method();
        let headers = request.headers().into();
        // The rule looks at nothing else.
        let target = Target {
            listener: None,
            host: "",
            path: "",
            query: None,
            method,
            headers,
            certificate: None,
            place: Located::default(),
            identity: None,
            body: None,
        };
        let client = alike.client;
        let print = peer.fingerprint(&rule.key, &target, client);
        let known = print.map_or(KeySource::Request, KeySource::Fingerprint);
        let context = RequestContext { seed: &worker.seed, target: &target, client };
        rule.claim_by_client(context, known)
    };

    let show = |rule: &RouteRule| {
        let path = normal_path(written(request));
        let query = request.uri().query();
        let method = request.method();
        let headers = request.headers().into();
        // It needs nothing else.
        let target = Target {
            listener: None,
            host: "",
            path: &path,
            query,
            method,
            headers,
            certificate: peer.certificate().map(|certificate| &**certificate),
            place: Located::default(),
            identity: None,
            body: None,
        };
        rule.key.show(&target, alike.client)
    };

    let trial = alike.decide(&live, by_client, show, now);
    keep(trial, completion);
}

/// Keeps what the new file has decided until the request ends.
fn keep(mut trial: Option<Box<Trial>>, completion: &mut Completion) {
    if let (Some(entry), Some(trial)) = (&mut completion.observers.entry, &mut trial) {
        entry.decision.preview = trial.take_record();
    }
    completion.observers.trial = trial;
}

/// Has the new file decide about a request that the file in force rejects before any rule was
/// asked.
pub(crate) fn rejected_undecided<B: Body>(
    snapshot: &Arc<Snapshot>,
    request: &Request<B>,
    error: GatewayError,
    completion: &mut Completion,
    now: Instant,
) {
    // No file serves the others.
    let Some(why) = why(error) else { return };
    let client = match error {
        GatewayError::Unauthenticated(_)
        | GatewayError::Guessing(_)
        | GatewayError::TooManyChecks
        | GatewayError::AuthService(_) => Client::Rejected,
        GatewayError::Invalid(_)
        | GatewayError::NoRoute
        | GatewayError::Misdirected
        | GatewayError::Denied
        | GatewayError::ForeignOrigin
        | GatewayError::TooLong
        | GatewayError::Upstream(_) => Client::Unasked,
    };

    undecided(snapshot, request, client, Treatment::OwnRejection(why), completion, now);
}

/// Has the new file decide about a preflight request, which the file in force lets pass without a rule.
pub(crate) fn preflight<B: Body>(
    snapshot: &Arc<Snapshot>,
    request: &Request<B>,
    completion: &mut Completion,
    now: Instant,
) {
    undecided(snapshot, request, Client::Unasked, Treatment::Passed, completion, now);
}

/// Has the new file decide about a request of a client that the file in force has treated like this
/// without a rule, and compares.
fn undecided<B: Body>(
    snapshot: &Arc<Snapshot>,
    request: &Request<B>,
    client: Client<'_>,
    treatment: Treatment,
    completion: &mut Completion,
    now: Instant,
) {
    let peer = Arc::clone(&completion.peer);
    let Some(running) = running(&peer, snapshot) else { return };
    let host = request.headers().get(&http::header::HOST);
    let authority = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    let Some(authority) = authority.or(host) else { return };
    let Ok(authority) = peer.authority(authority) else { return };

    let path = normal_path(written(request));
    let asked = Asked { host: &authority.host, path: &path, client, body: None };
    decide(&running, request, &asked, completion, now);
    compare(treatment, request, completion);
}

/// Compares an admission with the decision of the new file, if there is one.
pub(crate) fn admitted<B>(report: &Report, request: &Request<B>, completion: &mut Completion) {
    if is_waiting(completion) {
        compare(Treatment::admitted(report), request, completion);
    }
}

/// Compares a rejection with the decision of the new file, if there is one.
pub(crate) fn rejected<B>(
    rejection: &Rejection,
    request: &Request<B>,
    completion: &mut Completion,
) {
    if is_waiting(completion) {
        compare(Treatment::Rejected(rejection.slot, rejection.reason.kind()), request, completion);
    }
}

/// Returns whether the decision of the new file is still to be compared.
fn is_waiting(completion: &Completion) -> bool {
    completion.observers.trial.as_ref().is_some_and(|trial| trial.is_waiting())
}

fn compare<B>(treatment: Treatment, request: &Request<B>, completion: &mut Completion) {
    let Some(mut trial) = completion.observers.trial.take() else { return };
    let here = here(treatment, request, completion);
    let worker = &completion.peer.worker;
    worker.records.preview.compare(&mut trial, &here, worker.clock.wall(completion.arrival.at));
    completion.observers.trial = Some(trial);
}

/// Returns what became of a request by the file in force.
fn here<'a, B>(
    treatment: Treatment,
    request: &'a Request<B>,
    completion: &'a Completion,
) -> Here<'a> {
    let route = completion.route.as_ref();
    Here { route, treatment, method: request.method(), path: written(request) }
}

/// Returns the client's user by a route of the new file.
fn identify<B>(
    route: &Route,
    is_same: bool,
    client: Client<'_>,
    request: &Request<B>,
    peer: &Peer,
    now: Instant,
) -> Identified {
    match (&route.options.auth, client) {
        (None, _) => Identified::As(None),
        (Some(_), Client::Known(_, identity)) if is_same => Identified::As(identity.cloned()),
        (Some(_), Client::Rejected) if is_same => Identified::Rejected,
        // Nothing but the service knows.
        (Some(auth), _) if auth.forward.is_some() => Identified::Unchecked,
        (Some(auth), _) => {
            let wall = peer.worker.clock.wall(now);
            peer.worker.passwords.known(auth, request.headers().into(), now, wall)
        }
    }
}

/// Returns why no rule is asked, if another file could serve the request.
fn why(error: GatewayError) -> Option<OwnRejection> {
    match error {
        GatewayError::NoRoute => Some(OwnRejection::NoRoute),
        GatewayError::Invalid(Invalid { kind: meter::HttpRejection::Path, .. }) => {
            Some(OwnRejection::Path)
        }
        GatewayError::Denied => Some(OwnRejection::Denied),
        GatewayError::Unauthenticated(_)
        | GatewayError::Guessing(_)
        | GatewayError::TooManyChecks
        | GatewayError::AuthService(_) => Some(OwnRejection::Unauthenticated),
        GatewayError::TooLong => Some(OwnRejection::TooLong),
        GatewayError::Invalid(_)
        | GatewayError::Misdirected
        | GatewayError::ForeignOrigin
        | GatewayError::Upstream(_) => None,
    }
}

/// Returns the path that a client wrote.
fn written<B>(request: &Request<B>) -> &str {
    let path = request.uri().path();
    // Empty if the target is a fragment only.
    if path.is_empty() { "/" } else { path }
}

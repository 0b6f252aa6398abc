//! Requests in a preview: what a new file would do with them.

use crate::proxy::message::request::Request;
use crate::proxy::{
    completion::Completion, message::validate::Invalid, peer::Peer, response::refusal::Refusal,
};
use crate::{
    config::{KeySource, RequestContext, Route, RouteRule, Snapshot},
    flow::{Instant, Rejection, Report},
    meter,
    preview::{Arrival, Here, Identified, Refused, Treatment},
    route::{Identity, Target, client_ip, normal_path},
};
use http_body::Body;
use std::sync::Arc;

/// What the file in force knows of a request's client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Client<'a> {
    /// It is this one, if the route asks for that.
    Known(Option<&'a Identity>),
    /// It is not who it must be.
    Rejected,
    /// Not read yet.
    Unasked,
}

/// Has the new file decide about a request, if there is a preview. `host` and `path` are as routes
/// know them.
pub(crate) fn decide<B: Body>(
    snapshot: &Arc<Snapshot>,
    request: &Request<B>,
    (host, path, client): (&str, &str, Client<'_>),
    completion: &mut Completion,
    now: Instant,
) {
    let peer = &completion.peer;
    let is_logged = completion.entry.is_some();
    let trial = peer.worker.preview.with(snapshot, |preview| {
        let headers = request.headers().into();
        let address = client_ip(peer.address, headers, peer.trusted_proxies(preview.snapshot()));
        let uri = request.uri();
        let method = request.method();
        let listener = Some(&*peer.listener);
        let query = uri.query();
        let target = Target { listener, host, path, query, method, headers, identity: None };
        let seed = &peer.worker.seed;
        let arrival = Arrival {
            request: RequestContext { seed, target: &target, client: address },
            path: written(request),
            here: completion.route.as_ref(),
            length: request.body().size_hint().exact(),
            is_logged,
            worker: peer.worker.preview.worker(),
        };
        let known = |rule: &RouteRule, _: &str| {
            let print = peer.fingerprint(&rule.key, &target, address);
            print.map_or(KeySource::Request, KeySource::Fingerprint)
        };
        let identify =
            |route: &Route, is_same: bool| identify(route, is_same, client, request, (peer, now));
        preview.decide(&arrival, identify, known, now)
    });
    completion.trial = trial.flatten();
    if let (Some(entry), Some(trial)) = (&mut completion.entry, &mut completion.trial) {
        entry.preview = trial.take_record();
    }
}

/// Has the new file decide about a request that the file in force refuses, before any rule was asked.
pub(crate) fn refused<B: Body>(
    snapshot: &Arc<Snapshot>,
    request: &Request<B>,
    refusal: Refusal,
    completion: &mut Completion,
    now: Instant,
) {
    // No file serves the others.
    let Some(why) = why(refusal) else { return };
    let peer = Arc::clone(&completion.peer);
    if !peer.worker.preview.is_on() {
        return;
    }
    let host = request.headers().get(&http::header::HOST);
    let authority = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    let Some(authority) = authority.or(host) else { return };
    let Ok(authority) = peer.authority(authority) else { return };
    let client = match refusal {
        Refusal::Unauthenticated(_) | Refusal::Guessing(_) | Refusal::TooManyChecks => {
            Client::Rejected
        }
        Refusal::Invalid(_)
        | Refusal::NoRoute
        | Refusal::Misdirected
        | Refusal::Denied
        | Refusal::TooLong
        | Refusal::Upstream(_) => Client::Unasked,
    };
    let path = normal_path(written(request));
    decide(snapshot, request, (&authority.host, &path, client), completion, now);
    compare(Treatment::Refused(why), request, completion);
}

/// Compares an admission with the decision of the new file, if there is one.
pub(crate) fn admitted<B>(
    report: &Report,
    request: Option<&Request<B>>,
    completion: &mut Completion,
) {
    if let Some(request) = request.filter(|_| completion.trial.is_some()) {
        compare(Treatment::admitted(report), request, completion);
    }
}

/// Compares a rejection with the decision of the new file, if there is one.
pub(crate) fn rejected<B>(
    rejection: &Rejection,
    request: Option<&Request<B>>,
    completion: &mut Completion,
) {
    if let Some(request) = request.filter(|_| completion.trial.is_some()) {
        compare(Treatment::Rejected(rejection.slot, rejection.reason.kind()), request, completion);
    }
}

fn compare<B>(treatment: Treatment, request: &Request<B>, completion: &mut Completion) {
    let Completion { peer, trial, route, started, .. } = completion;
    let Some(trial) = trial else { return };
    let method = request.method();
    let path = written(request);
    let here = Here { route: route.as_ref(), treatment, method, path };
    peer.worker.preview.compare(trial, &here, peer.worker.clock.wall(*started));
}

/// Says who the client is by a route of the new file.
fn identify<B>(
    route: &Route,
    is_same: bool,
    client: Client<'_>,
    request: &Request<B>,
    (peer, now): (&Peer, Instant),
) -> Identified {
    match (&route.options.auth, client) {
        (None, _) => Identified::As(None),
        (Some(_), Client::Known(identity)) if is_same => Identified::As(identity.cloned()),
        (Some(_), Client::Rejected) if is_same => Identified::Rejected,
        (Some(auth), _) => {
            let wall = peer.worker.clock.wall(now);
            peer.worker.passwords.known(auth, request.headers().into(), (now, wall))
        }
    }
}

/// Returns why no rule is asked, if another file could serve the request.
fn why(refusal: Refusal) -> Option<Refused> {
    match refusal {
        Refusal::NoRoute => Some(Refused::NoRoute),
        Refusal::Invalid(Invalid { kind: meter::Refusal::Path, .. }) => Some(Refused::Path),
        Refusal::Denied => Some(Refused::Denied),
        Refusal::Unauthenticated(_) | Refusal::Guessing(_) | Refusal::TooManyChecks => {
            Some(Refused::Unauthenticated)
        }
        Refusal::TooLong => Some(Refused::TooLong),
        Refusal::Invalid(_) | Refusal::Misdirected | Refusal::Upstream(_) => None,
    }
}

/// Returns the path that a client wrote.
fn written<B>(request: &Request<B>) -> &str {
    let path = request.uri().path();
    // Empty if the target is a fragment only.
    if path.is_empty() { "/" } else { path }
}

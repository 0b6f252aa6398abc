//! What is known of a request before its rules are asked: its route, its client, and what it
//! claims.

use super::{
    auth::{Attempt, Checked},
    forward::Forward,
    preview::{self, Client as PreviewClient},
};
use crate::proxy::{
    body::{client_body::ClientBody, trailers::RequestTrailers},
    completion::Completion,
    log_entry::LogEntry,
    message::{
        request::Request,
        validate::{Invalid, inspect},
    },
    peer::{Peer, is_in},
    placeholders::Values,
    response::gateway_error::{DENIED, GatewayError},
    shown_keys::ShownKeys,
    worker::Worker,
};
use crate::{
    config::{Claims, KeySource, RequestContext, Route, RouteRule, Snapshot, Unrouted},
    flow::Instant,
    http1::FieldKind,
    meter,
    preview::{Alike, RunningPreview},
    route::{
        Identity, KeySpec, Rewrite, Seed, Target, client_ip, low_bits, normal_path, sent_path,
    },
};
use core::net::IpAddr;
use http::{Uri, uri::PathAndQuery};
use http_body::Body as _;
use std::{borrow::Cow, sync::Arc};

/// A request that its route's rules may be asked about.
pub(crate) struct Examined<'p> {
    pub(crate) route: Arc<Route>,
    pub(crate) forward: Forward,
    /// What filters its trailers, if the upstream is to receive any.
    pub(crate) trailers: Option<RequestTrailers>,
    /// What the file in preview decides after the one in force, if its decision takes the same
    /// claims.
    pub(crate) alike: Option<Alike<'p>>,
}

/// Why no rule is asked now.
pub(crate) enum Halt {
    Error(GatewayError),
    /// A password must be checked.
    Unverified(Box<Attempt>),
}

impl From<GatewayError> for Halt {
    fn from(error: GatewayError) -> Self {
        Self::Error(error)
    }
}

/// Finds the route and the client of a request, and notes them in `completion`. Adds to `claims`
/// what the request asks of the route's rules. Its client's identity is known if a password was
/// checked. The file in preview decides too, or gives back what it has left to do.
///
/// # Errors
///
/// The request is rejected before any rule is asked, or a password must be checked first.
pub(crate) fn examine<'p>(
    (snapshot, preview): (&Arc<Snapshot>, Option<&'p RunningPreview>),
    request: &Request<ClientBody>,
    completion: &mut Completion,
    (mut identity, now): (Option<Identity>, Instant),
    claims: &mut Claims,
) -> Result<Examined<'p>, Halt> {
    let uri = request.uri();
    let fields = request.headers().set();
    let peer = &completion.peer;
    let rejected = |invalid: Invalid| invalid_request(peer, invalid);
    let authority =
        inspect(request, fields, &snapshot.settings.limits).and_then(|asked| peer.authority(asked));
    let authority = authority.map_err(rejected)?;
    let host = &authority.host;
    if let Some(entry) = &mut completion.entry {
        entry.host = Arc::clone(host);
    }
    if !peer.may_ask_for(host) {
        peer.worker.counters.count_rejection(meter::HttpRejection::Host);
        return Err(GatewayError::Misdirected.into());
    }
    // Empty if the target is a fragment only.
    let written = if uri.path().is_empty() { "/" } else { uri.path() };
    let path = normal_path(written);
    let mut target = target(request, peer, host, &path);
    let route = match snapshot.find(&target, written) {
        Ok(route) => Arc::clone(route),
        Err(why) => return Err(unrouted(peer, why).into()),
    };
    let proxies = peer.trusted_proxies(snapshot);
    let trusted = is_in(peer.address, proxies);
    let client = if trusted {
        client_ip(peer.address, request.headers().into(), proxies)
    } else {
        peer.address
    };
    if let Some(entry) = &mut completion.entry {
        entry.client = client;
    }
    let options = &route.options;
    if options.has_placeholders {
        let id = completion.request_id.as_ref();
        let values = Values::of(request, (peer, id), trusted, (host, client));
        completion.values = Some(Box::new(values));
    }
    completion.route = Some(Arc::clone(&route));
    if options.access.as_ref().is_some_and(|access| !access.allows(client)) {
        peer.worker.rejected(client, meter::HttpRejection::Access, DENIED);
        return Err(GatewayError::Denied.into());
    }
    // Before it has cost anybody anything.
    if is_longer(request.body(), options.body_limit) {
        return Err(GatewayError::TooLong.into());
    }
    // A path that is its own form has no segment to leave out.
    let is_own_form = matches!(path, Cow::Borrowed(_)) || options.relaxed_path;
    let sent = match &options.rewrite {
        None if is_own_form => None,
        rewrite => rewritten(&route, rewrite.as_ref(), uri, written, is_own_form)
            .map_err(|why| rejected(Invalid::path(why)))?,
    };
    if options.auth.is_some() {
        let entry = completion.entry.as_deref_mut();
        authenticate(&route, request, (peer, entry), (&mut identity, client), now)?;
    }
    let mut alike = None;
    if let Some(preview) = preview {
        alike = preview::alike(preview, request, client, completion);
        if alike.is_none() {
            let known = (&**host, &*path, PreviewClient::Known(identity.as_ref()));
            preview::decide(preview, request, known, completion, now);
            target = self::target(request, &completion.peer, host, &path);
        }
    }
    target.identity = identity.as_ref();
    let peer = &completion.peer;
    claim(&route, peer, &target, client, claims);
    if snapshot.settings.shows_keys() {
        completion.shown_keys = ShownKeys::of(&peer.worker, &route, claims, (&target, client));
    }
    if let Some(entry) = &mut completion.entry {
        entry.claimed(&route, claims);
    }
    // The same in all gateways.
    let hash_key = route.action.upstream().and_then(|upstream| upstream.options.hash_key.as_ref());
    let key = hash_key.and_then(|key| hash(key, &target, client));
    let trailers = if fields.has(FieldKind::Trailer) {
        RequestTrailers::of(request.headers(), snapshot, &route)
    } else {
        None
    };
    let forward = Forward {
        key,
        upgrade: None,
        trusted,
        fields,
        target: sent,
        trailers: trailers.is_some(),
        via: snapshot.settings.via.clone(),
        authority,
    };
    Ok(Examined { route, forward, trailers, alike })
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

/// Counts and logs a request that is not valid.
#[cold]
fn invalid_request(peer: &Peer, invalid: Invalid) -> GatewayError {
    peer.worker.rejected(peer.address, invalid.kind, &invalid.detail());
    GatewayError::Invalid(invalid)
}

/// Counts a request without a route.
#[cold]
fn unrouted(peer: &Peer, why: Unrouted) -> GatewayError {
    match why {
        Unrouted::Path(why) => invalid_request(peer, Invalid::path(why)),
        Unrouted::NoRoute => {
            peer.worker.counters.count_rejection(meter::HttpRejection::NoRoute);
            GatewayError::NoRoute
        }
    }
}

/// Whether a body declares more than `limit` bytes.
fn is_longer(body: &ClientBody, limit: u64) -> bool {
    match body {
        ClientBody::Empty => false,
        body => body.size_hint().exact().is_some_and(|length| length > limit),
    }
}

/// Authenticates the client, unless that is done.
///
/// # Errors
///
/// It is not let in, or its password must be checked.
#[inline(never)]
fn authenticate(
    route: &Route,
    request: &Request<ClientBody>,
    (peer, entry): (&Peer, Option<&mut LogEntry>),
    (identity, client): (&mut Option<Identity>, IpAddr),
    now: Instant,
) -> Result<(), Halt> {
    if identity.is_none()
        && let Some(auth) = &route.options.auth
    {
        let wall = peer.worker.clock.wall(now);
        match peer.worker.passwords.check(auth, request.headers().into(), client, (now, wall)) {
            Checked::Passed(passed) => *identity = Some(passed),
            Checked::Rejected(error) => {
                reject_client(&peer.worker, client, error);
                return Err(Halt::Error(error));
            }
            Checked::Later(attempt) => return Err(Halt::Unverified(Box::new(attempt))),
        }
    }
    if let Some(entry) = entry {
        entry.user = identity.as_ref().and_then(Identity::user).cloned();
    }
    Ok(())
}

/// Counts and logs that a client is not let in.
#[cold]
pub(crate) fn reject_client(worker: &Worker, client: IpAddr, error: GatewayError) {
    worker.rejected(client, meter::HttpRejection::Auth, &error.detail());
}

/// Adds to `claims` what the request asks of its route's rules.
fn claim(route: &Route, peer: &Peer, target: &Target<'_>, client: IpAddr, claims: &mut Claims) {
    let known = |rule: &RouteRule, _: &str| {
        let print = match (&rule.shared, &peer.worker.store) {
            // By the secret that all gateways have.
            (Some(_), Some(store)) if !rule.key.is_shared() => {
                rule.key.fingerprint(&store.seed(), target, client).ok()
            }
            _ => peer.fingerprint(&rule.key, target, client),
        };
        print.map_or(KeySource::Request, KeySource::Fingerprint)
    };
    let context = RequestContext { seed: &peer.worker.seed, target, client };
    route.claim(context, known, claims);
}

/// Returns a number for the request's `key`, if it has one.
#[inline(never)]
fn hash(key: &KeySpec, target: &Target<'_>, client: IpAddr) -> Option<u64> {
    key.fingerprint(&Seed::new([0, 0]), target, client).ok().map(low_bits)
}

/// Returns what the upstream is asked for, if that is not what the client wrote.
///
/// # Errors
///
/// Why servers may read it differently.
#[inline(never)]
fn rewritten(
    route: &Route,
    rewrite: Option<&Rewrite>,
    uri: &Uri,
    path: &str,
    is_own_form: bool,
) -> Result<Option<Box<PathAndQuery>>, &'static str> {
    let sent = match rewrite {
        Some(rewrite) if rewrite.changes_path() && path.starts_with('/') => {
            Some(rewrite.path(path, route.options.relaxed_path)?)
        }
        _ if is_own_form => None,
        _ => sent_path(path),
    };
    sent.map(|path| with_query(path, uri).map(Box::new)).transpose()
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

//! What is known of a request before its rules are asked: its route, its client, and what it
//! claims.

use super::forward::Forward;
use crate::proxy::{
    body::ClientBody,
    gateway_error::{DENIED, GatewayError},
    message::{
        Request,
        hop_by_hop::RequestTrailers,
        validate::{Invalid, inspect},
    },
    passwords::{Attempt, Checked},
    peer::{Authority, Peer},
    placeholders::Values,
    record::{
        completion::Completion,
        log_entry::LogEntry,
        preview::{self, Client as PreviewClient},
        shown_keys::ShownKeys,
    },
    worker::Worker,
};
use crate::{
    config::{Claims, KeySource, RequestContext, Route, RouteRule, Snapshot, Unrouted},
    flow::Instant,
    http1::FieldKind,
    meter,
    preview::{Alike, RunningPreview},
    route::{Identity, KeySpec, Rewrite, Seed, Target, low_bits, normal_path, sent_path},
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
    let authority = asked_authority(snapshot, request, completion)?;
    let host = &authority.host;
    // Empty if the target is a fragment only.
    let written = if uri.path().is_empty() { "/" } else { uri.path() };
    let path = normal_path(written);

    let peer = &completion.peer;
    let mut target = target(request, peer, host, &path);
    let route = match snapshot.find(&target, written) {
        Ok(route) => Arc::clone(route),
        Err(why) => return Err(unrouted(peer, why).into()),
    };
    let (client, trusted) = client_address(snapshot, request, peer);
    let options = &route.options;
    if let Some(entry) = &mut completion.entry {
        entry.client = client;
    }
    if options.has_placeholders {
        let id = completion.request_id.as_ref();
        let values = Values::of(request, (peer, id), trusted, (host, client));
        completion.values = Some(Box::new(values));
    }
    completion.route = Some(Arc::clone(&route));
    check_access(&route, peer, client, request.body())?;

    // A path that is its own form has no segment to leave out.
    let is_own_form = matches!(path, Cow::Borrowed(_)) || options.relaxed_path;
    let sent = sent_target(&route, uri, written, is_own_form)
        .map_err(|why| invalid_request(peer, Invalid::path(why)))?;
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

    let trailers = request_trailers(request, snapshot, &route);
    let forward = Forward {
        key: server_key(&route, &target, client),
        upgrade: None,
        trusted,
        fields: request.headers().set(),
        target: sent,
        trailers: trailers.is_some(),
        via: snapshot.settings.via.clone(),
        authority,
    };
    Ok(Examined { route, forward, trailers, alike })
}

/// Returns the authority that the request asks for, and notes its host.
///
/// # Errors
///
/// The request is not valid, or the connection's certificate is not the host's.
fn asked_authority(
    snapshot: &Snapshot,
    request: &Request<ClientBody>,
    completion: &mut Completion,
) -> Result<Arc<Authority>, GatewayError> {
    let peer = &completion.peer;
    let authority = inspect(request, request.headers().set(), &snapshot.settings.limits)
        .and_then(|asked| peer.authority(asked))
        .map_err(|invalid| invalid_request(peer, invalid))?;

    if let Some(entry) = &mut completion.entry {
        entry.host = Arc::clone(&authority.host);
    }
    if !peer.may_ask_for(&authority.host) {
        peer.worker.counters.count_rejection(meter::HttpRejection::Host);
        return Err(GatewayError::Misdirected);
    }
    Ok(authority)
}

/// Returns the client's address and whether a trusted proxy sent the request.
fn client_address(
    snapshot: &Snapshot,
    request: &Request<ClientBody>,
    peer: &Peer,
) -> (IpAddr, bool) {
    let proxies = peer.proxies(snapshot);
    let found = proxies.client(peer.address, request.headers().into());
    if let Some(unread) = found.unread {
        peer.worker.unread_client(peer.address, &unread);
    }
    (found.address, found.is_proxied)
}

/// Checks what keeps a request out before it has cost anybody anything.
///
/// # Errors
///
/// The client's address may not use the route, or the body is too long.
fn check_access(
    route: &Route,
    peer: &Peer,
    client: IpAddr,
    body: &ClientBody,
) -> Result<(), GatewayError> {
    if route.options.access.as_ref().is_some_and(|access| !access.allows(client)) {
        peer.worker.rejected(client, meter::HttpRejection::Access, DENIED);
        return Err(GatewayError::Denied);
    }
    if is_longer(body, route.options.body_limit) {
        return Err(GatewayError::TooLong);
    }
    Ok(())
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

/// Returns whether a body declares more than `limit` bytes.
fn is_longer(body: &ClientBody, limit: u64) -> bool {
    match body {
        ClientBody::Empty => false,
        ClientBody::Http1(_) | ClientBody::Http2(_) => {
            body.size_hint().exact().is_some_and(|length| length > limit)
        }
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

/// Returns the filter of the trailers that the request announces.
fn request_trailers(
    request: &Request<ClientBody>,
    snapshot: &Arc<Snapshot>,
    route: &Arc<Route>,
) -> Option<RequestTrailers> {
    let headers = request.headers();
    if headers.set().has(FieldKind::Trailer) {
        RequestTrailers::of(headers, snapshot, route)
    } else {
        None
    }
}

/// Returns the number by which the upstream's servers share out requests, the same in all gateways.
fn server_key(route: &Route, target: &Target<'_>, client: IpAddr) -> Option<u64> {
    let upstream = route.action.upstream()?;
    hash(upstream.options.hash_key.as_ref()?, target, client)
}

/// Returns a number for the request's `key`, if it has one.
#[inline(never)]
fn hash(key: &KeySpec, target: &Target<'_>, client: IpAddr) -> Option<u64> {
    key.fingerprint(&Seed::new([0, 0]), target, client).ok().map(low_bits)
}

/// Returns the target of the request to the upstream, if it is not the one that the client wrote.
/// The path that was `written` need not change if it `is_own_form`.
///
/// # Errors
///
/// Servers may read the path differently.
fn sent_target(
    route: &Route,
    uri: &Uri,
    written: &str,
    is_own_form: bool,
) -> Result<Option<Box<PathAndQuery>>, &'static str> {
    match &route.options.rewrite {
        None if is_own_form => Ok(None),
        rewrite => rewritten(route, rewrite.as_ref(), uri, written, is_own_form),
    }
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
        Some(_) | None if is_own_form => None,
        Some(_) | None => sent_path(path),
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

//! The first stage of a request: its head is there. It becomes a [`Routed`] request, or a response.

use super::{
    Decided,
    admitted::discard,
    challenge::{self, Challenged},
    forward::{self, Forward},
    forward_auth::{Undetermined, let_go},
    mirror::Mirroring,
    peek::{Peeking, may_have_members},
    routed::{Routed, Sharers},
};
use crate::proxy::{
    body::{BodyBuffer, ClientBody, RequestBody, drain},
    gateway_error::{DENIED, GatewayError},
    message::{
        Request,
        grpc::{self, is_grpc},
        hop_by_hop::RequestTrailers,
        validate::{Invalid, inspect},
    },
    passwords::{Attempt, Checked},
    peer::{Authority, Peer},
    placeholders::{self, Values},
    record::{
        Completion, Event, Observers,
        preview::{self, Asked, Client as PreviewClient},
    },
    response::{
        compress::accepted_coding,
        cors::{self, Asks},
        own_response::{ReplyOptions, error_response},
    },
    upstream::proxy_header::Proxied,
};
use crate::{
    config::{
        Auth, Claims, ForwardAuth, KeySource, RequestContext, Route, RouteRule, Snapshot, Unrouted,
        Upstream,
    },
    flow::{Instant, Rejection, Report, Sharer, SlotId},
    geo::{Located, Place},
    http1::{FieldKind, FieldList},
    meter,
    preview::{Alike, RunningPreview},
    route::{
        BodyMembers, Identity, KeySpec, MemberPaths, Rewrite, Seed, Target, low_bits, normal_path,
        sent_path,
    },
};
use core::{cell::OnceCell, net::IpAddr};
use http::{HeaderName, Uri, uri::PathAndQuery};
use http_body::Body as _;
use std::{borrow::Cow, sync::Arc};

/// A request whose head was read.
pub(super) struct Received<'s> {
    snapshot: &'s Arc<Snapshot>,
    request: Request<ClientBody>,
    /// The client's identity, if the route needs one and it is known.
    identity: Option<Identity>,
    /// The members of its body, if the rules look at them and they are known.
    members: Option<Box<BodyMembers>>,
    now: Instant,
    completion: Box<Completion>,
}

/// A request that waits until its password is checked.
pub(crate) struct Unverified {
    attempt: Attempt,
    snapshot: Arc<Snapshot>,
    request: Request<ClientBody>,
    completion: Box<Completion>,
}

/// The route of a request, and the client that may use it.
pub(super) struct Found {
    pub(super) route: Arc<Route>,
    pub(super) authority: Arc<Authority>,
    /// The path as routes know it, if the client wrote it differently.
    normal_path: Option<String>,
    client: IpAddr,
    /// The place of the client, once something has asked.
    place: OnceCell<Place>,
    /// True if a trusted proxy sent the request.
    pub(super) is_proxied: bool,
    /// The field in which trusted proxies name clients, if it is not `X-Forwarded-For`.
    client_ip_header: Option<Box<HeaderName>>,
    /// The target, if another one than the client's is sent.
    target: Option<Box<PathAndQuery>>,
}

impl Found {
    /// Returns where the client is, by the files of `snapshot`.
    fn located<'a>(&'a self, snapshot: &'a Snapshot) -> Located<'a> {
        Located::of(snapshot.settings.geo.as_deref(), self.client, &self.place)
    }

    /// Has `headers` name the client in `X-Forwarded-For`, if trusted proxies name it in another field.
    pub(super) fn name_client(&self, peer: &Peer, headers: &mut FieldList) {
        if let Some(header) = &self.client_ip_header {
            forward::name_client(headers, header, self.is_proxied, peer, self.client);
        }
    }
}

/// The address of a request's client.
struct ClientAddress {
    client: IpAddr,
    /// True if a trusted proxy sent the request.
    is_proxied: bool,
    /// The field in which trusted proxies name clients, if it is not `X-Forwarded-For`.
    header: Option<Box<HeaderName>>,
}

impl<'s> Received<'s> {
    /// Notes a request that came at `now`. `completion` is not in use.
    pub(super) fn new(
        snapshot: &'s Arc<Snapshot>,
        mut request: Request<ClientBody>,
        now: Instant,
        mut completion: Box<Completion>,
    ) -> Self {
        let observers = Observers::begin(&completion.peer, &mut request, snapshot);
        completion.begin(request.head(), snapshot, now);
        completion.observers = observers;
        Self { snapshot, request, identity: None, members: None, now, completion }
    }

    /// Decides about the request, unless an authority of certificates may have sent it.
    pub(super) fn decide(self) -> Decided {
        match challenge::asked(self.snapshot, &self.request) {
            None => self.decide_routed(),
            Some(question) => {
                let snapshot = Arc::clone(self.snapshot);
                let challenged = Challenged::new(question, snapshot, self.request, self.completion);
                Decided::Challenged(Box::new(challenged))
            }
        }
    }

    /// Finds the route and the client, and has the route's rules decide.
    pub(super) fn decide_routed(mut self) -> Decided {
        let found = match self.find() {
            Ok(found) => found,
            Err(error) => return self.respond(error),
        };

        if found.route.options.cors.is_some() && self.is_preflight() {
            return self.respond_to_preflight();
        }
        if let Some(auth) = &found.route.options.auth {
            if let (Some(forward), Some(service)) = (&auth.forward, &found.route.auth_upstream) {
                let forward = Arc::clone(forward);
                let service = Arc::clone(service);
                return self.await_service(found, forward, service);
            }
            match self.authenticate(auth, found.client) {
                Checked::Passed(identity) => {
                    self.completion.observers.note(Event::Identified(&identity));
                    self.identity = Some(identity);
                }
                Checked::Rejected(error) => return self.reject_client(found.client, error),
                Checked::Later(attempt) => return self.await_password(attempt),
            }
        }

        self.decide_found(found)
    }

    /// Goes on with a request about which an auth service has decided.
    pub(super) fn after_auth(
        snapshot: &'s Arc<Snapshot>,
        request: Request<ClientBody>,
        identity: Option<Identity>,
        now: Instant,
        completion: Box<Completion>,
    ) -> Self {
        Self { snapshot, request, identity, members: None, now, completion }
    }

    /// Returns the request with the members of its body.
    pub(super) fn with_members(self, members: Option<BodyMembers>) -> Self {
        Self { members: members.map(Box::new), ..self }
    }

    /// Has the rules of the route decide, once the members of the body that they look at are known.
    pub(super) fn decide_found(self, found: Found) -> Decided {
        match &found.route.members {
            Some(paths) if may_have_members(&self.request, self.peeked_bytes()) => {
                let paths = Arc::clone(paths);
                self.await_body(found, paths)
            }
            Some(_) | None => self.decide_known(found),
        }
    }

    /// Returns the most bytes of a body that are held back.
    fn peeked_bytes(&self) -> usize {
        self.snapshot.settings.limits.peek_body
    }

    /// Goes on once the body is there.
    #[inline(never)]
    fn await_body(self, found: Found, paths: Arc<MemberPaths>) -> Decided {
        let Self { snapshot, request, identity, completion, .. } = self;
        let snapshot = Arc::clone(snapshot);
        let peeking = Peeking::new(found, paths, snapshot, request, identity, completion);
        Decided::Peeking(Box::new(peeking))
    }

    /// Has the rules of the route decide.
    pub(super) fn decide_known(mut self, found: Found) -> Decided {
        let preview = preview::running(&self.completion.peer, self.snapshot);
        let mut claims = Claims::new();
        let alike = self.claim(&found, preview.as_ref(), &mut claims);
        if found.route.auth_upstream.is_some() {
            claims.retain(|claim| !found.route.is_before_auth(claim.slot));
        }
        let sharers = self.sharers(&found);
        Routed { sharers, ..self.route(found) }.decide(&claims, alike)
    }

    /// Returns the parts of the request in the order of queues, if those of the route need any.
    fn sharers(&self, found: &Found) -> Option<Sharers> {
        found.route.shares_queues.then(|| self.queue_shares(found).into())
    }

    #[inline(never)]
    fn queue_shares(&self, found: &Found) -> Vec<(SlotId, Sharer)> {
        let Self { request, completion, .. } = self;
        let path = found.normal_path.as_deref().unwrap_or_else(|| written(request));
        let peer = &completion.peer;
        let target = Target {
            identity: self.identity.as_ref(),
            body: self.members.as_deref(),
            place: found.located(self.snapshot),
            ..target(request, peer, &found.authority.host, path)
        };
        let seed = &peer.worker.seed;
        let request = RequestContext { seed, target: &target, client: found.client };
        found.route.sharers(request, |_| None)
    }

    /// Has the rules decide that stand before the auth service. They hold what they have charged until
    /// the request ends.
    ///
    /// # Errors
    ///
    /// One of them rejects the request.
    #[expect(clippy::result_large_err, reason = "as that of `Gates::enter`")]
    pub(super) fn decide_early(&mut self, found: &Found) -> Result<(), Rejection> {
        let Self { request, completion, now, .. } = self;
        let Found { route, authority, client, .. } = found;
        let path = found.normal_path.as_deref().unwrap_or_else(|| written(request));
        let head = target(request, &completion.peer, &authority.host, path);
        let target = Target { place: found.located(self.snapshot), ..head };
        let mut claims = Claims::new();
        claim(route, &completion.peer, &target, *client, &mut claims);
        claims.retain(|claim| route.is_before_auth(claim.slot));
        if claims.is_empty() {
            return Ok(());
        }

        let mut report = Report::default();
        match route.gates.decide_uncounted(*now, &claims, &mut report) {
            Ok(permit) => {
                completion.decision.early_permit = permit;
                Ok(())
            }
            Err(rejected) => {
                route.gate.count_rejection(*now);
                Err(rejected.with(report))
            }
        }
    }

    /// Returns the request and its record.
    pub(super) fn into_parts(self) -> (Request<ClientBody>, Box<Completion>) {
        (self.request, self.completion)
    }

    /// Responds to a request that such a rule has rejected.
    pub(super) fn reject_early(self, found: Found, rejection: &Rejection) -> Decided {
        Decided::Responded(self.route(found).reject(rejection))
    }

    /// Finds the route of the request and its client's address, and checks whether that client may use
    /// the route.
    ///
    /// # Errors
    ///
    /// The request is not valid, no route matches, or the route takes no such client, body or path.
    fn find(&mut self) -> Result<Found, GatewayError> {
        let Self { snapshot, request, completion, .. } = self;
        let authority = asked_authority(snapshot, request, completion)?;
        let written = written(request);
        let path = normal_path(written);

        let peer = &completion.peer;
        let place = OnceCell::new();
        let geo = snapshot.settings.geo.as_deref();
        // The route of a request seldom depends on its client.
        let address =
            snapshot.table.looks_at_places().then(|| client_address(snapshot, request, peer));
        let located = address.as_ref().map(|address| Located::of(geo, address.client, &place));
        let head = target(request, peer, &authority.host, &path);
        let target = Target { place: located.unwrap_or_default(), ..head };
        let route = match snapshot.find(&target, written) {
            Ok(route) => Arc::clone(route),
            Err(why) => return Err(unrouted(peer, why)),
        };

        let address = address.unwrap_or_else(|| client_address(snapshot, request, peer));
        let ClientAddress { client, is_proxied, header } = address;
        let located = Located::of(geo, client, &place);
        completion.observers.note(Event::Client(client, located));
        if route.options.has_placeholders {
            let id = completion.arrival.request_id.as_ref();
            let asked = placeholders::Asked::of(request.headers(), peer, &authority, is_proxied);
            let values = Values::of(request, asked, id, client, located.place(), peer);
            completion.values = Some(Box::new(values));
        }
        completion.route = Some(Arc::clone(&route));
        if let Some(cors) = &route.options.cors {
            completion.origin = cors::allowed_origin(cors, request.headers());
        }
        if let Some(compress) = &route.options.compress {
            completion.coding = accepted_coding(compress, request.headers());
        }
        check_access(&route, peer, client, located, request.body())?;

        // A path that is its own form has no segment to leave out.
        let is_own_form = matches!(path, Cow::Borrowed(_)) || route.options.relaxed_path;
        let target = sent_target(&route, request.uri(), written, is_own_form)
            .map_err(|why| invalid_request(peer, Invalid::path(why)))?;
        let normal_path = match path {
            Cow::Borrowed(_) => None,
            Cow::Owned(path) => Some(path),
        };
        let client_ip_header = header;
        Ok(Found {
            route,
            authority,
            normal_path,
            client,
            place,
            is_proxied,
            client_ip_header,
            target,
        })
    }

    /// Returns the client's identity by its credentials, unless that is known already.
    #[inline(never)]
    fn authenticate(&mut self, auth: &Auth, client: IpAddr) -> Checked {
        if let Some(identity) = self.identity.take() {
            return Checked::Passed(identity);
        }
        let worker = &self.completion.peer.worker;
        let wall = worker.clock.wall(self.now);
        worker.passwords.check(auth, self.request.headers().into(), client, self.now, wall)
    }

    /// Adds to `claims` the values that the route's rules decide by. A new file in preview that takes
    /// other claims decides now. One that takes the same is returned: it decides after the file in force.
    fn claim<'p>(
        &mut self,
        found: &Found,
        preview: Option<&'p RunningPreview>,
        claims: &mut Claims,
    ) -> Option<Alike<'p>> {
        let Self { request, identity, members, completion, .. } = self;
        let Found { route, authority, client, .. } = found;
        let path = found.normal_path.as_deref().unwrap_or_else(|| written(request));
        let body = members.as_deref();
        let alike = preview.and_then(|preview| {
            let client = PreviewClient::Known(*client, identity.as_ref());
            let asked = Asked { host: &authority.host, path, client, body };
            preview::begin(preview, request, &asked, completion, self.now)
        });

        let Completion { peer, observers, .. } = &mut **completion;
        let place = found.located(self.snapshot);
        let head = target(request, peer, &authority.host, path);
        let target = Target { identity: identity.as_ref(), body, place, ..head };
        claim(route, peer, &target, *client, claims);
        if self.snapshot.settings.shows_keys() {
            observers.note_keys(&peer.worker, route, claims, &target, *client);
        }
        observers.note_claims(route, claims);
        alike
    }

    /// Goes on with the route and with everything that its server is to receive.
    fn route(self, found: Found) -> Routed {
        let key = self.server_key(&found);
        let mirror = match &found.route.mirror_upstream {
            Some(upstream) => self.mirroring(&found, upstream),
            None => None,
        };
        let Self { snapshot, mut request, now, completion, .. } = self;
        let proxied = proxied(&found, &completion.peer);
        found.name_client(&completion.peer, request.headers_mut());
        let Found { route, authority, is_proxied, target, .. } = found;
        let trailers = request_trailers(&request, snapshot, &route);
        let settings = &snapshot.settings;

        let forward = Forward {
            key,
            proxied,
            mirror,
            upgrade: None,
            trusted: is_proxied,
            fields: request.headers().set(),
            target,
            trailers: trailers.is_some(),
            via: settings.via.clone(),
            authority,
        };
        let options = ReplyOptions {
            headers: settings.rate_limit_headers,
            explain: settings.explain_headers,
        };
        let request = limit_body(request, &route, trailers, &completion);
        Routed { request, route, forward, options, now, completion, sharers: None }
    }

    /// Returns the number by which the upstream's servers share out requests, the same in all gateways.
    fn server_key(&self, found: &Found) -> Option<u64> {
        let upstream = found.route.action.upstream()?;
        self.hash(upstream.options.hash_key.as_ref()?, found)
    }

    /// Decides whether the request is copied for the mirror at `upstream`.
    #[inline(never)]
    fn mirroring(&self, found: &Found, upstream: &Arc<Upstream>) -> Option<Box<Mirroring>> {
        let mirror = found.route.options.mirror.as_ref()?;
        let peer = &self.completion.peer;
        mirror.share.includes(fastrand::u128(..)).then(|| {
            let hash_key = upstream.options.hash_key.as_ref();
            Box::new(Mirroring {
                worker: Arc::clone(&peer.worker),
                route: Arc::clone(&found.route),
                upstream: Arc::clone(upstream),
                key: hash_key.and_then(|key| self.hash(key, found)),
                proxied: peer.proxied(found.client),
            })
        })
    }

    /// Returns a number for the request's `key`, if it has one.
    #[inline(never)]
    fn hash(&self, key: &KeySpec, found: &Found) -> Option<u64> {
        let Self { request, completion, .. } = self;
        let path = found.normal_path.as_deref().unwrap_or_else(|| written(request));
        let target = Target {
            identity: self.identity.as_ref(),
            body: self.members.as_deref(),
            place: found.located(self.snapshot),
            ..target(request, &completion.peer, &found.authority.host, path)
        };
        key.fingerprint(&Seed::new([0, 0]), &target, found.client).ok().map(low_bits)
    }

    /// Returns whether a browser asks whether a script may send another request.
    fn is_preflight(&self) -> bool {
        cors::is_preflight(self.request.head())
    }

    /// Responds to a preflight, about which no rule decides.
    #[cold]
    fn respond_to_preflight(self) -> Decided {
        let Self { snapshot, request, now, mut completion, .. } = self;
        preview::preflight(snapshot, &request, &mut completion, now);

        let asked = Asks::of(request.headers());
        let head = let_go(request, &mut completion);
        completion.peer.keep_head(head);
        Decided::Responded(cors::respond_to_preflight(asked, completion))
    }

    /// Goes on once a thread has checked the password.
    #[cold]
    fn await_password(self, attempt: Attempt) -> Decided {
        let Self { snapshot, request, completion, .. } = self;
        let snapshot = Arc::clone(snapshot);
        Decided::Unverified(Box::new(Unverified { attempt, snapshot, request, completion }))
    }

    /// Goes on once the auth service has decided.
    #[inline(never)]
    fn await_service(
        self,
        found: Found,
        forward: Arc<ForwardAuth>,
        service: Arc<Upstream>,
    ) -> Decided {
        let Self { snapshot, request, completion, .. } = self;
        let snapshot = Arc::clone(snapshot);
        let undetermined = Undetermined { forward, service, found, snapshot, request, completion };
        Decided::Undetermined(Box::new(undetermined))
    }

    /// Responds to a client that is not authenticated.
    #[cold]
    fn reject_client(self, client: IpAddr, error: GatewayError) -> Decided {
        let worker = &self.completion.peer.worker;
        worker.rejected(client, meter::HttpRejection::Auth, &error.detail());
        self.respond(error)
    }

    /// Responds to a request about which no rule decides, and whose body is not needed.
    #[cold]
    pub(super) fn respond(self, error: GatewayError) -> Decided {
        let Self { snapshot, request, now, mut completion, .. } = self;
        preview::rejected_undecided(snapshot, &request, error, &mut completion, now);

        let (head, body) = request.into_parts();
        completion.closes = error.closes();
        match completion.peer.upload_buffer() {
            Some(buffer) => {
                let buffer = BodyBuffer::new(buffer, &Arc::default());
                drain(body, buffer, &completion.peer.worker.clock);
            }
            None => discard(&body, head.headers.set(), &mut completion),
        }

        let grpc = grpc::content_type(&head.headers);
        completion.peer.keep_head(head);
        Decided::Responded(error_response(error, grpc, completion))
    }
}

impl Unverified {
    /// Has the password checked, and decides.
    pub(super) async fn verify(self) -> Decided {
        let Self { attempt, snapshot, request, completion } = self;
        let peer = Arc::clone(&completion.peer);
        let worker = &peer.worker;
        let client = attempt.client;
        let checked = worker.passwords.finish(attempt, &worker.clock).await;

        let snapshot = &snapshot;
        let now = worker.clock.now();
        match checked {
            Ok(identity) => {
                let identity = Some(identity);
                Received { snapshot, request, identity, members: None, now, completion }.decide()
            }
            Err(error) => Received::after_auth(snapshot, request, None, now, completion)
                .reject_client(client, error),
        }
    }
}

/// Returns what the PROXY protocol says of the request's client, if its server gets that.
fn proxied(found: &Found, peer: &Peer) -> Option<Box<Option<Proxied>>> {
    let upstream = found.route.action.upstream()?;
    upstream.options.send_proxy_protocol.map(|_| Box::new(peer.proxied(found.client)))
}

/// Returns the path that the client wrote.
pub(super) fn written(request: &Request<ClientBody>) -> &str {
    let path = request.uri().path();
    // Empty if the target is a fragment only.
    if path.is_empty() { "/" } else { path }
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

    completion.observers.note(Event::Host(&authority.host));
    if !peer.may_ask_for(&authority.host) {
        peer.worker.counters.count_rejection(meter::HttpRejection::Host);
        return Err(GatewayError::Misdirected);
    }
    Ok(authority)
}

/// Returns the client's address.
fn client_address(
    snapshot: &Snapshot,
    request: &Request<ClientBody>,
    peer: &Peer,
) -> ClientAddress {
    let proxies = peer.proxies(snapshot);
    let found = proxies.client(peer.address, request.headers().into());
    if let Some(unread) = found.unread {
        peer.worker.unread_client(peer.address, proxies.header_name(), &unread);
    }
    let header = proxies.header.cloned().map(Box::new);
    ClientAddress { client: found.address, is_proxied: found.is_proxied, header }
}

/// Checks the client's address and the declared length of the body.
///
/// # Errors
///
/// The client's address may not use the route, or the body is too long.
fn check_access(
    route: &Route,
    peer: &Peer,
    client: IpAddr,
    place: Located<'_>,
    body: &ClientBody,
) -> Result<(), GatewayError> {
    if route.options.access.as_ref().is_some_and(|access| !access.allows(client, place)) {
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
    let certificate = peer.certificate().map(|certificate| &**certificate);
    Target {
        listener,
        host,
        path,
        query,
        method,
        headers,
        certificate,
        place: Located::default(),
        identity: None,
        body: None,
    }
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
        ClientBody::Http1(_) | ClientBody::Http2(_) | ClientBody::Peeked(_) => {
            body.size_hint().exact().is_some_and(|length| length > limit)
        }
    }
}

/// Adds to `claims` the request's claims on its route's rules.
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

/// Bounds the body of a request: its length, and the time that the client takes.
fn limit_body(
    request: Request<ClientBody>,
    route: &Route,
    trailers: Option<RequestTrailers>,
    completion: &Completion,
) -> Request<RequestBody> {
    // Calls of gRPC may be silent for long.
    let is_grpc = || request.headers().first(FieldKind::ContentType).is_some_and(is_grpc);
    let pace = route.options.min_body_rate.filter(|_| !is_grpc());

    let peer = &completion.peer;
    request.map(|body| {
        let clock = &peer.worker.clock;
        RequestBody::new(body, route, pace, clock, peer.upload_buffer(), trailers)
    })
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

/// Returns the target with this path and the query of `uri`. A query that the path has comes first.
///
/// # Errors
///
/// What the path has that no target has.
fn with_query(mut target: String, uri: &Uri) -> Result<PathAndQuery, &'static str> {
    if let Some(query) = uri.query() {
        target.push(if target.contains('?') { '&' } else { '?' });
        target.push_str(query);
    }
    let length = target.len();
    let made = PathAndQuery::try_from(target).ok();
    made.filter(|made| made.as_str().len() == length).ok_or("a character that no path has")
}

//! The journey of a request: found, decided, held, forwarded, answered.

use super::{
    Connections,
    activity::Activity,
    body::{Patience, RequestBody, ResponseBody},
    claim::claims,
    entry::Entry,
    exchange::{Answer, Exchange},
    headers::{self, Forward},
    pool::{Connector, Pools},
    quota,
    reply::{Manner, Refusal, refuse, reject},
    request::{Host, check_path, inspect},
    tail::Tail,
    tls::certificates,
    upgrade::tunnel,
};
use crate::{
    access_log,
    clock::Clock,
    config::{Live, Route, Snapshot},
    flow::{Instant, Permit, Rejection, Report},
    meter::{self, Counters},
    route::{Seed, Target, client_ip, normal_path},
};
use bytes::Bytes;
use core::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
};
use http::{HeaderValue, Request, Response, StatusCode, header::UPGRADE};
use hyper::{body::Incoming, upgrade::OnUpgrade};
use std::sync::Arc;
use tokio_util::task::TaskTracker;

/// What the requests of one worker share.
#[derive(Debug)]
pub struct Worker {
    /// With an alarm that rings on this worker.
    pub clock: Clock,
    /// The rules in force.
    pub live: Arc<Live>,
    /// Idle connections to upstream servers.
    pub pools: Pools,
    /// How new ones are made.
    pub connector: Connector,
    /// What the worker must wait for before it ends.
    pub tasks: TaskTracker,
    /// The process's counters.
    pub counters: Arc<Counters>,
    /// Where requests are logged.
    pub access_log: access_log::Handle,
    /// Its open client connections.
    pub connections: Connections,
    /// The key of clients' fingerprints: the same for all workers.
    pub seed: Seed,
}

/// The other end of a client's connection.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) worker: Arc<Worker>,
    pub(super) address: IpAddr,
    /// `address` as it stands in `X-Forwarded-For`.
    pub(super) address_value: HeaderValue,
    /// `http` or `https`.
    pub(super) scheme: HeaderValue,
    /// The listener's certificates and the name that the client asked for.
    pub(super) server_name: Option<ServerName>,
    pub(super) activity: Arc<Activity>,
}

/// The name that a TLS client asked for.
#[derive(Debug)]
pub(super) struct ServerName {
    pub(super) listener: Arc<str>,
    pub(super) name: String,
}

impl Peer {
    pub(super) fn new(
        worker: Arc<Worker>,
        address: SocketAddr,
        server_name: Option<ServerName>,
        tls: bool,
    ) -> Self {
        let address = address.ip().to_canonical();
        let activity = Activity::new(&worker.clock);
        let address_value = HeaderValue::try_from(address.to_string())
            .unwrap_or_else(|_| HeaderValue::from_static("unknown"));
        let scheme = HeaderValue::from_static(if tls { "https" } else { "http" });
        Self { worker, address, address_value, scheme, server_name, activity }
    }
}

impl Peer {
    /// Whether `host` may be asked for on this connection: with several certificates,
    /// a client that trusts one of them for its connection must not get from it what
    /// another stands for (RFC 9110, 7.4).
    fn may_ask_for(&self, snapshot: &Snapshot, host: &str) -> bool {
        let Some(ServerName { listener, name }) = &self.server_name else { return true };
        certificates(snapshot, listener)
            .is_none_or(|all| all.iter().nth(1).is_none() || all.agree(name, host))
    }
}

/// A request whose route is known.
struct Journey {
    worker: Arc<Worker>,
    snapshot: Arc<Snapshot>,
    route: Arc<Route>,
    authority: HeaderValue,
    trusted: bool,
    tail: Tail,
}

/// Serves one request.
///
/// Dropping the future at any point ends the request as cancelled: the permit, the
/// upstream connection and the notes are all held by values that it owns.
pub(super) async fn handle(
    peer: Arc<Peer>,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Infallible> {
    peer.activity.on_request();
    let worker = Arc::clone(&peer.worker);
    let now = worker.clock.now();
    let snapshot = Arc::clone(&worker.live.load());
    let mut tail = Tail::new(peer, request.method().clone(), now);
    if worker.access_log.is_on() {
        tail.entry = Some(Box::new(Entry::new(&request, &snapshot, tail.peer.address)));
    }
    let (authority, client, decided) = match decide(&snapshot, &request, &mut tail, now) {
        Ok(decided) => decided,
        Err(refusal) => return Ok(refuse(refusal, request.headers(), tail)),
    };
    let Some(route) = tail.route.clone() else {
        return Ok(refuse(Refusal::NoRoute, request.headers(), tail));
    };
    let report = match decided {
        Ok(report) => report,
        Err(rejection) => {
            let settings = &snapshot.settings;
            let manner =
                Manner { headers: settings.rate_limit_headers, explain: settings.explain_headers };
            if let Some(entry) = &mut tail.entry {
                entry.rejected(&rejection);
            }
            return Ok(reject(&rejection, &route, &manner, request.headers(), tail));
        }
    };
    let start = tail.permit.as_ref().map_or(now, Permit::start);
    if let Some(entry) = &mut tail.entry {
        entry.client = client;
        entry.admitted(&report, start.since(now));
    }
    if start > now {
        worker.clock.sleep_until(start).await;
    }
    let trusted = client != tail.peer.address || is_trusted(&snapshot, tail.peer.address);
    let journey = Journey { worker, snapshot, route, authority, trusted, tail };
    Ok(journey.forward(request, &report).await)
}

fn is_trusted(snapshot: &Snapshot, address: IpAddr) -> bool {
    snapshot.settings.trusted_proxies.iter().any(|network| network.contains(&address))
}

type Decided = (HeaderValue, IpAddr, Result<Report, Rejection>);

/// Finds the route and asks its gate. Notes the route and the permit in `tail`.
fn decide(
    snapshot: &Snapshot,
    request: &Request<Incoming>,
    tail: &mut Tail,
    now: Instant,
) -> Result<Decided, Refusal> {
    let counters = &tail.peer.worker.counters;
    let refused = |invalid: super::request::Invalid| {
        counters.refuse(invalid.kind);
        Refusal::Invalid(invalid)
    };
    let Host { sent, host } = inspect(request).map_err(refused)?;
    let (uri, peer) = (request.uri(), &tail.peer);
    if !peer.may_ask_for(snapshot, &host) {
        return Err(Refusal::Misdirected);
    }
    let path = normal_path(uri.path());
    let target = Target {
        host: &host,
        path: &path,
        query: uri.query(),
        method: request.method(),
        headers: request.headers(),
    };
    let route = snapshot.table.find(&target).and_then(|index| snapshot.routes.get(index));
    let Some(route) = route else {
        check_path(uri.path()).map_err(refused)?;
        counters.refuse(meter::Refusal::NoRoute);
        return Err(Refusal::NoRoute);
    };
    if !route.relaxed_path {
        check_path(uri.path()).map_err(refused)?;
    }
    let client = client_ip(peer.address, request.headers(), &snapshot.settings.trusted_proxies);
    let claims = claims(route, &peer.worker.seed, &target, client);
    let decided = match route.gate.enter(now, &claims) {
        Ok(admission) => {
            tail.permit = Some(admission.permit);
            Ok(admission.report)
        }
        Err(rejection) => Err(rejection),
    };
    tail.route = Some(Arc::clone(route));
    Ok((sent, client, decided))
}

impl Journey {
    /// Sends the request on and brings the answer back.
    async fn forward(
        mut self,
        mut request: Request<Incoming>,
        report: &Report,
    ) -> Response<ResponseBody> {
        let route = Arc::clone(&self.route);
        if declared_length(&request).is_some_and(|length| length > route.body_limit) {
            return refuse(Refusal::TooLong, request.headers(), self.tail);
        }
        let upgrade =
            headers::upgrade_token(request.method(), request.version(), request.headers())
                .filter(|token| allows(&route, token));
        let client_side = upgrade.as_ref().map(|_| hyper::upgrade::on(&mut request));
        let grpc_hint = request.headers().get(http::header::CONTENT_TYPE).cloned();
        let (mut parts, incoming) = request.into_parts();
        let token = upgrade.clone();
        let forward = Forward { authority: self.authority.clone(), upgrade, trusted: self.trusted };
        headers::prepare(&mut parts, &self.tail.peer, forward);
        headers::edit(&mut parts.headers, &route.request_headers);
        let body =
            RequestBody::new(incoming, route.body_limit, route.timeouts.idle, &self.worker.clock);
        if let Some(entry) = &mut self.tail.entry {
            entry.upload = body.upload();
            entry.sent(self.worker.clock.now());
        }
        let mut exchange = Exchange {
            worker: &self.worker,
            route: &route,
            deadline: self.tail.started + route.timeouts.request,
            upgrades: token.is_some(),
            attempts: 0,
        };
        let sent = exchange.send(Request::from_parts(parts, body)).await;
        let (attempts, deadline) = (exchange.attempts, exchange.deadline);
        if let Some(entry) = &mut self.tail.entry {
            let server = sent.as_ref().ok().map(|(_, lease)| lease.server());
            entry.answered(self.worker.clock.now(), server, attempts);
        }
        match sent {
            Ok(answer) => self.answer(answer, report, deadline, client_side.zip(token)),
            Err(failure) => {
                let mut hint = http::HeaderMap::new();
                if let Some(content_type) = grpc_hint {
                    hint.insert(http::header::CONTENT_TYPE, content_type);
                }
                refuse(Refusal::Upstream(failure), &hint, self.tail)
            }
        }
    }

    /// Turns the upstream's answer into the client's.
    fn answer(
        mut self,
        (mut response, lease): Answer,
        report: &Report,
        deadline: Instant,
        upgrade: Option<(OnUpgrade, HeaderValue)>,
    ) -> Response<ResponseBody> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return self.switch(response, upgrade);
        }
        let settings = &self.snapshot.settings;
        let headers = response.headers_mut();
        headers::strip_hop_by_hop(headers);
        quota::describe(headers, &self.route, report, settings.rate_limit_headers);
        headers::edit(headers, &self.route.response_headers);
        *response.version_mut() = http::Version::HTTP_11;
        self.tail.answered(response.status());
        let patience = Patience::new(&self.worker.clock, self.route.timeouts.idle, deadline);
        response.map(|incoming| ResponseBody::upstream(incoming, lease, patience, self.tail))
    }

    /// Joins the client to the upstream, if both mean the same protocol.
    fn switch(
        mut self,
        mut response: Response<Incoming>,
        upgrade: Option<(OnUpgrade, HeaderValue)>,
    ) -> Response<ResponseBody> {
        let agreed = response.headers().get(UPGRADE).cloned();
        let Some((client, token)) = upgrade.filter(|(_, token)| {
            agreed
                .as_ref()
                .is_some_and(|agreed| agreed.as_bytes().eq_ignore_ascii_case(token.as_bytes()))
        }) else {
            return refuse(
                Refusal::Upstream(super::exchange::Failure::Broken),
                &http::HeaderMap::new(),
                self.tail,
            );
        };
        let server = hyper::upgrade::on(&mut response);
        headers::strip_hop_by_hop(response.headers_mut());
        headers::edit(response.headers_mut(), &self.route.response_headers);
        let headers = response.headers_mut();
        headers.insert(http::header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, token);
        self.tail.answered(StatusCode::SWITCHING_PROTOCOLS);
        let idle = self.route.timeouts.idle;
        let tasks = self.worker.tasks.clone();
        let peer = Arc::clone(&self.tail.peer);
        let (method, started) = (self.tail.method.clone(), self.tail.started);
        tasks.spawn(tunnel(client, server, idle, self.tail));
        // The tunnel's tail ends the request; this one only ends the answer's head.
        peer.activity.on_request();
        let head = Tail::of_head_only(peer, method, started);
        response.map(|_| ResponseBody::own(Bytes::new(), head))
    }
}

fn declared_length(request: &Request<Incoming>) -> Option<u64> {
    use http_body::Body as _;
    request.body().size_hint().exact()
}

fn allows(route: &Route, token: &HeaderValue) -> bool {
    route.upgrades.iter().any(|allowed| token.as_bytes().eq_ignore_ascii_case(allowed.as_bytes()))
}

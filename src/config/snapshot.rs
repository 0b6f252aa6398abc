//! What the gateway runs by: immutable, and shared by every request that began under it.

use super::{
    certificate::Certificates,
    node::Place,
    settings::Settings,
    spec::{Balance, OnMissing, OnStoreError},
};
use crate::{
    flow::{self, Gate, SlotId, Stored},
    meter,
    route::{self, KeySpec, Matcher, Target},
};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use ipnet::IpNet;
use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize},
    },
    time::Duration,
};

/// A configuration in force.
#[derive(Debug)]
pub struct Snapshot {
    /// Counts the configurations of this process, from 1.
    pub version: u64,
    /// 16 hexadecimal digits that stand for the text of the file.
    pub hash: String,
    /// The text of the file, to see whether the next one is only its beginning.
    pub(super) text: Arc<str>,
    /// What holds for the gateway as a whole.
    pub settings: Settings,
    /// Where clients connect.
    pub listeners: Vec<Arc<Listener>>,
    /// In the order of the file.
    pub upstreams: Vec<Arc<Upstream>>,
    /// In the order of the file; [`Self::table`] gives indexes into it.
    pub routes: Vec<Arc<Route>>,
    /// Which route a request belongs to.
    pub table: route::Table,
    /// The files whose change is a change of the configuration.
    pub files: Vec<PathBuf>,
    /// The header fields that decide about requests, as [`route::folded_name`] has them, sorted:
    /// those that any match, key, override, priority or exception names.
    pub deciding_headers: Arc<[Box<str>]>,
    /// Whether the file ends with `end: true`, so that the next one must.
    pub(super) is_sealed: bool,
    /// Whether the process has begun without a store, and so asks none to its end.
    pub(super) is_storeless: bool,
    /// The identity of the next server that is new.
    pub(super) next_server: usize,
}

/// Where clients connect.
#[derive(Debug)]
pub struct Listener {
    /// Its name in logs and metrics.
    pub name: Arc<str>,
    /// The address; with port 0 the system picks one.
    pub address: SocketAddr,
    /// `None`: cleartext.
    pub tls: Option<Arc<Certificates>>,
    /// The files of its certificates as the configuration names them.
    pub(super) certificates: Vec<PathBuf>,
    /// Where the file has the address.
    pub(super) place: Place,
}

/// A service behind the gateway.
#[derive(Debug)]
pub struct Upstream {
    /// What routes call it.
    pub name: Arc<str>,
    /// In the order of the file; at least one.
    pub servers: Vec<Arc<Server>>,
    /// Indexes of `servers` in the order of their turns by weight; 1 to 1000 of them.
    pub schedule: Vec<u16>,
    /// Whose turn it is: counts up, taken modulo the schedule's length.
    pub turn: AtomicUsize,
    /// What the file says beside its servers.
    pub options: UpstreamOptions,
}

/// What the file says about an upstream, beside its servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamOptions {
    /// How a server is picked.
    pub balance: Balance,
    /// How long a connection may take to open.
    pub connect_timeout: Duration,
    /// How long an idle connection is kept.
    pub idle_timeout: Duration,
    /// Idle connections kept for each server by each worker.
    pub max_idle: usize,
    /// What the header of an answer may be.
    pub limits: AnswerLimits,
}

/// Sizes and counts beyond which an upstream's answer is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerLimits {
    /// The whole header of an answer, in bytes.
    pub header_bytes: usize,
    /// How many header fields.
    pub headers: usize,
}

/// A server of an upstream. Its identity, what is in flight and its meter belong to its address
/// and outlive a reload; its weight is this configuration's.
#[derive(Debug)]
pub struct Server {
    /// Counted from 0, and never given to another address while the process lives.
    pub id: usize,
    /// A name or an address; IPv6 without brackets.
    pub host: Arc<str>,
    /// Its port.
    pub port: u16,
    /// 1 to 1000.
    pub weight: u32,
    /// Requests that it works on.
    pub in_flight: Arc<AtomicU32>,
    /// What it was asked and how it answered.
    pub meter: Arc<meter::ServerMeter>,
}

impl Server {
    /// Returns `host:port`, with an IPv6 address in brackets.
    pub fn address(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

/// Where requests of one kind go, and how many may.
#[derive(Debug)]
pub struct Route {
    /// Its identity, metric label and word in the log.
    pub name: Arc<str>,
    /// What it matches, in words.
    pub matches: Arc<str>,
    /// Where its requests go.
    pub upstream: Arc<Upstream>,
    /// What the file says about its requests, beside its rules.
    pub options: RouteOptions,
    /// Decides; kept over reloads by the route's name.
    pub gate: Arc<Gate>,
    /// What the gate runs by.
    pub flow: flow::Rules,
    /// What a request must bring for each of the gate's rules, in their order.
    pub rules: Vec<RouteRule>,
    /// The slot of the breaker, if there is one.
    pub breaker: Option<SlotId>,
    /// The slot of pacing, if there is one.
    pub pacing: Option<SlotId>,
    /// How a store decides about pacing, if gateways share it.
    pub paced: Option<Shared>,
    /// Whether gateways share any of its rules.
    pub is_shared: bool,
    /// The value of `RateLimit-Policy`, if there are quotas.
    pub policy: Option<HeaderValue>,
    /// What was answered; kept over reloads by the route's name.
    pub meter: Arc<meter::RouteMeter>,
    /// Tells an edited route from an unedited one.
    pub(super) print: u64,
}

/// What the file says about a route's requests, beside its rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteOptions {
    /// Deadlines of the upstream's response.
    pub timeouts: RouteTimeouts,
    /// The largest body of a request, in bytes.
    pub body_limit: u64,
    /// Protocols that a client may upgrade to, lower-case.
    pub upgrades: Vec<String>,
    /// Whether paths pass that servers read differently.
    pub relaxed_path: bool,
    /// Whether the upstream receives the trailers of requests other than gRPC.
    pub request_trailers: bool,
    /// Changes to what the upstream receives.
    pub request_headers: HeaderEdits,
    /// Changes to what the client receives.
    pub response_headers: HeaderEdits,
    /// The response to a rejected request, if the file has one.
    pub reject: Option<Reject>,
}

/// Deadlines of the upstream's answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteTimeouts {
    /// From the request's end to the header of the answer.
    pub first_byte: Duration,
    /// How long a body may stand still, in either direction.
    pub idle: Duration,
    /// How long an answer that is a stream of events may stand still.
    pub event_stream: Duration,
    /// How long a tunnel may stand still.
    pub tunnel: Duration,
    /// The whole exchange, tunnels excepted.
    pub request: Duration,
}

/// Changes to the headers of a message: `remove` first, then `set`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderEdits {
    /// Fields to write, in place of any that are there.
    pub set: Vec<(HeaderName, HeaderValue)>,
    /// Fields to remove.
    pub remove: Vec<HeaderName>,
}

/// What a refused client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reject {
    /// 400 to 599; `None`: as the reason demands.
    pub status: Option<StatusCode>,
    /// `None`: a problem+json document.
    pub body: Option<Bytes>,
    /// The type of `body`.
    pub content_type: HeaderValue,
}

/// What a request must bring for one rule.
#[derive(Clone, Debug)]
pub struct RouteRule {
    /// The rule's slot in the gate.
    pub slot: SlotId,
    /// Its name in headers, logs and metrics.
    pub name: Arc<str>,
    /// Which requests it is asked about instead of the rule of that name that follows;
    /// `None` for the rule itself.
    pub when: Option<Arc<When>>,
    /// What is counted separately; [`KeySpec::is_shared`] if nothing is.
    pub key: KeySpec,
    /// What becomes of a request that lacks a part of the key.
    pub on_missing: OnMissing,
    /// How much a request counts.
    pub cost: Cost,
    /// Who is exempt, if anyone.
    pub except: Option<Arc<Except>>,
    /// Who may borrow from the windows to come, if anyone.
    pub priority: Option<Arc<Priority>>,
    /// The quota to publish; `None` for a rule without a rate.
    pub quota: Option<Limit>,
    /// Whether it only counts what it would refuse.
    pub dry_run: bool,
    /// How a store decides about it, if gateways share it.
    pub shared: Option<Shared>,
}

/// A rule that gateways share.
#[derive(Clone, Debug)]
pub struct Shared {
    /// Its name in the store: with the route as the hash tag, so that all that one request is
    /// asked about lies together, and with what its states mean.
    pub name: Arc<str>,
    /// How the store decides.
    pub rule: Arc<Stored>,
    /// What holds while it fails.
    pub on_error: OnStoreError,
    /// `None`: every decision is the store's.
    pub exchange: Option<Arc<Exchange>>,
}

/// How gateways exchange a rule's states.
#[derive(Debug, Default)]
pub struct Exchange {
    /// How often.
    pub interval: Duration,
    /// The most that this gateway has lately told in two exchanges of one state, and that others
    /// could not know before.
    pub unseen: AtomicU64,
    /// Whether the store answers what it is told of this rule with an error, so that the rule does
    /// as it says of a store that fails, alone.
    pub is_refused: AtomicBool,
}

/// A quota over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// In words, as in the file: `10/1m`.
    pub text: Arc<str>,
    /// Its item in `RateLimit-Policy`.
    pub policy: Arc<str>,
}

impl Snapshot {
    /// Returns whether gateways share any rule.
    pub fn is_shared(&self) -> bool {
        self.routes.iter().any(|route| route.is_shared)
    }

    /// Returns whether gateways exchange the states of any rule.
    pub fn exchanges(&self) -> bool {
        self.routes.iter().flat_map(|route| &*route.rules).any(|rule| rule.exchange().is_some())
    }
}

impl Route {
    /// Returns the name in the store of the rule with this identity, or of the pacing, if gateways
    /// share it.
    pub fn in_store(&self, identity: &str) -> Option<&Arc<str>> {
        let mut rules = self.rules.iter().zip(&self.flow.flow);
        let shared = match rules.find(|(_, it)| *it.name == *identity) {
            Some((rule, _)) => rule.shared.as_ref(),
            None => self.paced.as_ref().filter(|_| identity == "pacing"),
        };
        shared.map(|it| &it.name)
    }
}

impl RouteRule {
    /// Returns how gateways exchange its states, if they do.
    pub fn exchange(&self) -> Option<&Arc<Exchange>> {
        self.shared.as_ref()?.exchange.as_ref()
    }
}

/// How much a request counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// For methods that are not named; at least 1.
    pub default: u64,
    /// For those that are; at least 1 each.
    pub by_method: Vec<(Method, u64)>,
}

impl Cost {
    /// Returns how much a request with this method counts.
    pub fn of(&self, method: &Method) -> u64 {
        let named = self.by_method.iter().find(|(named, _)| named == method);
        named.map_or(self.default, |(_, cost)| *cost)
    }
}

/// Requests that may borrow from a rule's windows to come.
#[derive(Debug)]
pub struct Priority {
    words: Arc<str>,
    requests: route::Table,
    /// The longest that one waits for what it borrows.
    pub max_wait: Duration,
}

impl Priority {
    /// Returns the priority of requests that match, which are those of `words`.
    pub(super) fn new(words: Arc<str>, matcher: Matcher, max_wait: Duration) -> Self {
        Self { words, requests: route::Table::build(vec![matcher]), max_wait }
    }

    /// Says which requests have it.
    pub fn words(&self) -> &str {
        &self.words
    }

    /// Returns the names of the header fields that it looks at.
    pub fn header_names(&self) -> impl Iterator<Item = &str> {
        self.requests.header_names()
    }

    /// Reports whether this request has it.
    pub fn covers(&self, target: &Target<'_>) -> bool {
        self.requests.find(target).is_some()
    }
}

/// Requests that a rule neither refuses nor counts.
#[derive(Debug)]
pub struct Except {
    words: Arc<str>,
    client_ip: Vec<IpNet>,
    /// Each exempts by one condition.
    requests: Option<route::Table>,
    looks_at_headers: bool,
}

impl Except {
    /// Returns the exceptions of `words`, or `None` if there is none.
    pub(super) fn new(
        words: Arc<str>,
        client_ip: Vec<IpNet>,
        requests: Vec<Matcher>,
    ) -> Option<Self> {
        if client_ip.is_empty() && requests.is_empty() {
            return None;
        }
        let looks_at_headers = requests.iter().any(|matcher| !matcher.headers.is_empty());
        let requests = (!requests.is_empty()).then(|| route::Table::build(requests));
        Some(Self { words, client_ip, requests, looks_at_headers })
    }

    /// Says which requests are exempt.
    pub fn words(&self) -> &str {
        &self.words
    }

    /// Reports whether some request is exempt by a header.
    pub const fn looks_at_headers(&self) -> bool {
        self.looks_at_headers
    }

    /// Returns the names of the header fields that it looks at.
    pub fn header_names(&self) -> impl Iterator<Item = &str> {
        self.requests.iter().flat_map(route::Table::header_names)
    }

    /// Reports whether it makes no difference to it which of these a request is.
    pub fn takes_alike(&self, one: &Target<'_>, other: &Target<'_>) -> bool {
        let takes = |target| self.requests.as_ref().is_some_and(|it| it.find(target).is_some());
        takes(one) == takes(other)
    }

    /// Reports whether the rule leaves this request alone.
    pub fn covers(&self, target: &Target<'_>, client: IpAddr) -> bool {
        self.client_ip.iter().any(|network| network.contains(&client))
            || self.requests.as_ref().is_some_and(|table| table.find(target).is_some())
    }
}

/// Requests for which a rule has other numbers.
#[derive(Debug)]
pub struct When {
    words: Arc<str>,
    /// Empty: any.
    client_ip: Vec<IpNet>,
    /// One of them must match.
    requests: route::Table,
    looks_at_fields: bool,
}

impl When {
    pub(super) fn new(words: Arc<str>, client_ip: Vec<IpNet>, requests: Vec<Matcher>) -> Self {
        let has_fields = |it: &Matcher| !(it.headers.is_empty() && it.query.is_empty());
        let looks_at_fields = requests.iter().any(has_fields);
        Self { words, client_ip, requests: route::Table::build(requests), looks_at_fields }
    }

    /// Reports whether some request is one of these by a header or by its query.
    pub const fn looks_at_fields(&self) -> bool {
        self.looks_at_fields
    }

    /// Says when: the identity of an alternative within its rule.
    pub fn words(&self) -> &Arc<str> {
        &self.words
    }

    /// Returns the names of the header fields that it looks at.
    pub fn header_names(&self) -> impl Iterator<Item = &str> {
        self.requests.header_names()
    }

    /// Reports whether it makes no difference to it which of these a request is.
    pub fn takes_alike(&self, one: &Target<'_>, other: &Target<'_>) -> bool {
        self.requests.find(one).is_some() == self.requests.find(other).is_some()
    }

    /// Reports whether servers could disagree whether the request is one of these: it has a header
    /// line or a query parameter several times that this looks at.
    pub fn is_ambiguous(&self, target: &Target<'_>, client: IpAddr) -> bool {
        self.looks_at_fields
            && (self.client_ip.is_empty() || self.client_ip.iter().any(|net| net.contains(&client)))
            && self.requests.looks_at_repeated(target)
    }

    /// Reports whether the request is one of these.
    pub fn covers(&self, target: &Target<'_>, client: IpAddr) -> bool {
        (self.client_ip.is_empty() || self.client_ip.iter().any(|net| net.contains(&client)))
            && self.requests.find(target).is_some()
    }
}

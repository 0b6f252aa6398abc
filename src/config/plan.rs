//! What a file means, before it is in force: compiled, checked, and without state.

use super::{
    error::{Diagnostics, Source},
    node::Place,
    problem::{Problem, quoted},
    settings::{AccessLog, Settings},
    snapshot::{Cost, Except, Limit, Listener, Priority, RouteOptions, UpstreamOptions, When},
    spec::{OnMissing, OnStoreError},
    values::Endpoint,
};
use crate::{
    flow::{self, Instant},
    route,
};
use http::HeaderValue;
use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

/// A whole configuration, ready to be put in force by [`super::Live`].
#[derive(Debug)]
pub struct Plan {
    /// The file as it was named.
    pub path: PathBuf,
    /// 16 hexadecimal digits that stand for its text.
    pub hash: String,
    /// What holds for the gateway as a whole.
    pub settings: Settings,
    /// Where clients connect; at least one.
    pub listeners: Vec<Arc<Listener>>,
    /// What is odd, though not wrong, at any time.
    pub(super) warnings: Diagnostics,
    /// The files whose change is a change of the configuration: this one, certificates and keys.
    pub files: Vec<PathBuf>,
    /// Where the file has the admin listener's address.
    pub(super) admin: Option<Place>,
    /// Where the file has the access log's.
    pub(super) access_log: Option<Place>,
    pub(super) upstreams: Vec<UpstreamPlan>,
    /// In the order of the file; at least one.
    pub(super) routes: Vec<RoutePlan>,
    pub(super) table: route::Table,
    /// See [`super::Snapshot::deciding_headers`].
    pub(super) deciding_headers: Arc<[Box<str>]>,
    /// Whether the file ends with `end: true`.
    pub(super) is_sealed: bool,
    /// Whether the file ends with `end: false`.
    pub(super) unseals: bool,
}

impl Plan {
    /// Returns the address of the first server, if it is a loopback address.
    pub fn first_loopback_server(&self) -> Option<SocketAddr> {
        let Endpoint { host, port } = &self.upstreams.first()?.servers.first()?.endpoint;
        let address: IpAddr = host.parse().ok()?;
        address.is_loopback().then(|| SocketAddr::new(address, *port))
    }

    /// Returns, as the problem of the file's line, that `listener` cannot listen at its address.
    pub fn cannot_listen(&self, listener: &Listener, error: &io::Error) -> Diagnostics {
        self.no_listener(&listener.name, listener.address, listener.place, error)
    }

    /// Returns, as the problem of the file's line, that the admin listener cannot listen at
    /// `address`.
    pub fn cannot_administer(&self, address: SocketAddr, error: &io::Error) -> Diagnostics {
        self.no_listener("admin", address, self.admin.unwrap_or_default(), error)
    }

    /// Returns, as the problem of the file's line, that the access log cannot be opened.
    pub fn cannot_log(&self, error: &io::Error) -> Diagnostics {
        let message = match &self.settings.access_log {
            AccessLog::Off | AccessLog::Stdout => format!("cannot open the access log: {error}"),
            AccessLog::File(path) => {
                format!("cannot open the access log {}: {error}", quoted(&path.to_string_lossy()))
            }
        };
        let help = "write a file in a folder that is there and that this user may write to; \
                    relative names are meant from this file's folder";
        let place = self.access_log.unwrap_or_default();
        self.warnings.instead(Problem::error(place, message).help(help))
    }

    fn no_listener(
        &self,
        name: &str,
        address: SocketAddr,
        place: Place,
        error: &io::Error,
    ) -> Diagnostics {
        let message = format!("listener {name} cannot listen on {address}: {error}");
        let help = if error.kind() == io::ErrorKind::AddrInUse {
            "end what listens there, or write another port"
        } else {
            "write an address of this machine and a port that this user may listen on"
        };
        self.warnings.instead(Problem::error(place, message).help(help))
    }

    /// Returns what is odd about it, though not wrong, as of `now`; so are certificates that
    /// are out of date.
    pub fn warnings_at(&self, now: Instant) -> Diagnostics {
        let certificates = self.listeners.iter().filter_map(|listener| listener.tls.as_ref());
        let certificates = certificates.flat_map(|certificates| certificates.iter());
        self.warnings.and(certificates.filter_map(|certificate| certificate.out_of_date(now)))
    }
}

impl Plan {
    /// Returns the file that it is made of.
    pub(super) fn source(&self) -> &Source {
        self.warnings.source()
    }
}

/// An upstream without its servers' state.
#[derive(Debug)]
pub(super) struct UpstreamPlan {
    pub name: Arc<str>,
    pub servers: Vec<ServerPlan>,
    pub schedule: Vec<u16>,
    pub options: UpstreamOptions,
}

/// A server without its state.
#[derive(Debug)]
pub(super) struct ServerPlan {
    pub endpoint: Endpoint,
    pub weight: u32,
}

/// A route without its gate and its meter.
#[derive(Debug)]
pub(super) struct RoutePlan {
    pub name: Arc<str>,
    /// What it matches, in words.
    pub matches: Arc<str>,
    /// Index into the plan's upstreams.
    pub upstream: usize,
    pub options: RouteOptions,
    pub flow: flow::Rules,
    /// Beside `flow.flow`, in its order.
    pub rules: Vec<RulePlan>,
    /// What holds of pacing while the store fails, if it is shared.
    pub paced: Option<OnStoreError>,
    pub policy: Option<HeaderValue>,
    /// Tells an edited route from an unedited one.
    pub print: u64,
}

impl RoutePlan {
    /// Returns the hash tag of the names of its rules in the store: the keys of one tag lie on one node
    /// of a Redis Cluster, and all that one request asks must. `is_by_key` adds `:*`, for which each state
    /// has its key: where all rules that the store decides use the same one, each key may lie on
    /// another node.
    pub(super) fn hash_tag(&self, is_by_key: bool) -> String {
        let by_key = if is_by_key && self.uses_one_key() { ":*" } else { "" };
        format!("{{{}{by_key}}}", self.name)
    }

    fn uses_one_key(&self) -> bool {
        let decided = |rule: &&RulePlan| rule.shared.is_some() && rule.sync_interval.is_none();
        let mut keys = self.rules.iter().filter(decided).map(|rule| &rule.key);
        let Some(first) = keys.next() else { return false };
        self.paced.is_none() && !first.is_shared() && keys.all(|key| key == first)
    }
}

/// What the proxy needs to know of a rule.
#[derive(Clone, Debug)]
pub(super) struct RulePlan {
    pub name: Arc<str>,
    /// Where the file names it.
    pub place: Place,
    /// Of an alternative.
    pub when: Option<Arc<When>>,
    pub key: route::KeySpec,
    pub on_missing: OnMissing,
    pub cost: Cost,
    pub except: Option<Arc<Except>>,
    pub priority: Option<Arc<Priority>>,
    pub quota: Option<Limit>,
    pub dry_run: bool,
    /// What holds while the store fails, if the rule is shared.
    pub shared: Option<OnStoreError>,
    /// How often gateways exchange its states, if they do.
    pub sync_interval: Option<Duration>,
}

//! An upstream in force: its servers, and whose turn it is.

use crate::{
    config::plan::{UpstreamPlan, UpstreamTls},
    health::{EjectionState, RetryBudget, ServerHealth},
    meter,
};
use arc_swap::{ArcSwap, Guard};
use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    ops::Deref,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed},
    },
};

/// The addresses of names.
pub(in crate::config) type Names = BTreeMap<Arc<str>, Arc<[IpAddr]>>;

/// The servers of an upstream at the moment.
#[derive(Debug)]
pub struct Members {
    /// In the order of the file, a name by each of its addresses; at least one.
    pub servers: Vec<Arc<Server>>,
    /// The places of those that are no backups, in the order of their turns by weight; at least one.
    pub schedule: Vec<u16>,
    /// The places of the backups, likewise; often none.
    pub backup_schedule: Vec<u16>,
    /// The names among them that are resolved.
    pub(in crate::config) names: Names,
}

/// A service behind the gateway.
#[derive(Debug)]
pub struct Upstream {
    /// The definition in the file.
    pub(in crate::config) plan: UpstreamPlan,
    /// Replaced when a name has other addresses; everything else stays.
    pub(in crate::config) members: ArcSwap<Members>,
    /// Whose turn it is: counts up, taken modulo the schedule's length.
    pub turn: AtomicUsize,
    /// The number of requests that may be sent again; kept over reloads by the upstream's name.
    pub retries: Arc<RetryBudget>,
    /// Whose turn it is to eject a server; kept likewise.
    pub ejection_state: Arc<EjectionState>,
}

impl Deref for Upstream {
    type Target = UpstreamPlan;

    fn deref(&self) -> &UpstreamPlan {
        &self.plan
    }
}

impl Upstream {
    /// Returns its servers, for a moment: do not hold them over an `.await`.
    pub fn members(&self) -> Guard<Arc<Members>> {
        self.members.load()
    }

    /// Returns a list of its servers, to keep.
    pub fn servers(&self) -> Vec<Arc<Server>> {
        self.members().servers.clone()
    }

    /// Returns whether a server is one of them, and not an address that a name has lost.
    pub fn has(&self, server: &Server) -> bool {
        self.members().servers.iter().any(|member| member.id == server.id)
    }

    /// Returns whether a server has this place among them.
    pub fn is_at(&self, place: usize, server: &Server) -> bool {
        self.members().servers.get(place).is_some_and(|member| member.id == server.id)
    }

    /// Returns whether the file says the same of both.
    pub fn is_planned_like(&self, other: &Self) -> bool {
        self.plan == other.plan
    }

    /// Returns the names among its servers.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        let hosts = self.plan.servers.iter().map(|server| &server.endpoint.host);
        hosts.filter(|host| !host.starts_with('/') && host.parse::<IpAddr>().is_err())
    }

    /// Returns how connections to `server` are secured; `None` for cleartext.
    pub fn tls_of(&self, server: &Server) -> Option<&Arc<UpstreamTls>> {
        self.options.tls.as_ref().filter(|_| server.is_tls)
    }
}

/// The health of a server that has got no request, and passed no check.
const NOT_ASKED: &str = "not asked yet";

/// A server of an upstream. Its identity, what is in flight and its meter belong to its address
/// and outlive a reload; so does its health, which belongs to the upstream's name as well. Its
/// weight, and whether it is a backup, are this configuration's.
#[derive(Debug)]
pub struct Server {
    /// Counted from 0, and never given to another address while the process lives.
    pub id: usize,
    /// A name or an address, IPv6 without brackets; or the path of a Unix socket, which begins
    /// with `/`.
    pub host: Arc<str>,
    /// Its port; 0 for a Unix socket.
    pub port: u16,
    /// Its place among the host's addresses, if the host was resolved.
    pub ip: Option<IpAddr>,
    /// True if it speaks TLS.
    pub is_tls: bool,
    /// 1 to 1000.
    pub weight: u32,
    /// True if it gets requests only while no other server can.
    pub is_backup: bool,
    /// Stands for its address where keys are assigned to servers: the same in all gateways.
    pub hash: u64,
    /// Requests that it works on.
    pub in_flight: Arc<AtomicU32>,
    /// The counters of its requests and responses.
    pub meter: Arc<meter::ServerMeter>,
    /// True if it gets requests.
    pub health: Arc<ServerHealth>,
}

impl Server {
    /// Returns the path of its Unix socket, if it has one.
    pub fn socket(&self) -> Option<&Path> {
        self.host.starts_with('/').then(|| Path::new(&*self.host))
    }

    /// Returns the host that the file names with the port, or `unix:` and the path of a socket.
    pub fn authority(&self) -> String {
        if self.socket().is_some() {
            return format!("unix:{}", self.host);
        }
        match self.host.parse() {
            Ok(IpAddr::V6(ip)) => format!("[{ip}]:{}", self.port),
            Ok(IpAddr::V4(_)) | Err(_) => format!("{}:{}", self.host, self.port),
        }
    }

    /// Returns the `Host` of a request or a check that names none. A Unix socket is `localhost`.
    pub fn host_field(&self) -> String {
        if self.socket().is_some() { "localhost".to_owned() } else { self.authority() }
    }

    /// Returns its health in words: `not asked yet`, or the word of [`ServerHealth::word`].
    pub fn health_word(&self) -> &'static str {
        let is_asked = self.meter.requests.load(Relaxed) > 0;
        if !is_asked && self.health.is_unchecked() { NOT_ASKED } else { self.health.word() }
    }

    /// Returns the address and the port, with an IPv6 address in brackets. It is the
    /// [authority](Self::authority) as long as no name was resolved.
    pub fn address(&self) -> String {
        self.ip.map_or_else(|| self.authority(), |ip| SocketAddr::new(ip, self.port).to_string())
    }
}

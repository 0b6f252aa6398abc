//! The plan of a file before it is in force: compiled, checked, and without state.

use super::{
    Certificate, Certificates, RoutePlan, RuleGroupPlan, RulePlan, Settings, TlsTerms, UpstreamPlan,
};
use crate::{
    config::{
        decode::At,
        diagnostics::{Diagnostics, Problem, Source, SourceSpan, quoted},
        spec::{AccessLog, ListenAddress, values::Endpoint},
        watched::Watched,
    },
    flow::{Instant, Rule, calendar::Calendar},
    route::{self, NetworkList},
};
use http::HeaderName;
use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};

/// A whole configuration, ready to be put in force by [`crate::config::Live`].
#[derive(Debug)]
pub struct Plan {
    /// The file as it was named.
    pub path: PathBuf,
    /// 16 hexadecimal digits that stand for its text.
    pub hash: String,
    /// The settings of the gateway as a whole.
    pub settings: Settings,
    /// Where clients connect; at least one.
    pub listeners: Vec<Arc<Listener>>,
    /// Warnings that hold at any time.
    pub(in crate::config) warnings: Diagnostics,
    /// Notes that only `check` prints.
    pub(in crate::config) notes: Vec<Problem>,
    /// The things to watch for changes: this file, those that it includes, certificates and keys.
    pub files: Vec<Watched>,
    /// The places of its parts in the file.
    pub(in crate::config) places: Places,
    pub(in crate::config) upstreams: Vec<UpstreamPlan>,
    /// The rules that several routes share.
    pub(in crate::config) groups: Vec<RuleGroupPlan>,
    /// In the order of the file; at least one.
    pub(in crate::config) routes: Vec<RoutePlan>,
    pub(in crate::config) table: route::Table,
    /// See [`crate::config::Snapshot::deciding_headers`].
    pub(in crate::config) deciding_headers: Arc<[Box<str>]>,
}

/// The places in the file of what problems with a whole plan point at.
#[derive(Debug, Default)]
pub(in crate::config) struct Places {
    /// The admin listener's address.
    pub admin: Option<SourceSpan>,
    /// The access log.
    pub access_log: Option<SourceSpan>,
    /// The format of its lines.
    pub access_log_format: Option<SourceSpan>,
    /// The proxies that all listeners trust.
    pub trusted_proxies: Option<SourceSpan>,
    /// The authority for certificates.
    pub acme: Option<SourceSpan>,
    /// The names that each certificate of that authority has.
    pub acme_names: Vec<Vec<At<String>>>,
    /// Beside the plan's upstreams, but for those that routes name by their URL.
    pub upstreams: Vec<UpstreamPlace>,
}

/// The place of an upstream in the file.
#[derive(Debug)]
pub(in crate::config) struct UpstreamPlace {
    /// Its name.
    pub span: SourceSpan,
    /// The URLs of its servers.
    pub servers: Vec<SourceSpan>,
}

impl Plan {
    /// Returns the calendar of this name, if a rule has it.
    pub fn calendar(&self, name: &str) -> Option<Calendar> {
        let mut calendars = self.each_rule().filter_map(|(rule, _)| rule.algorithm.calendar());
        calendars.find(|calendar| calendar.name() == name).cloned()
    }

    /// Returns the routes that the file has.
    pub(in crate::config) fn file_routes(&self) -> impl Iterator<Item = &RoutePlan> {
        self.routes.iter().filter(|route| !route.is_for_unmatched())
    }

    /// Returns all rules, of routes first, then those that routes share.
    pub(in crate::config) fn each_rule(&self) -> impl Iterator<Item = (&Rule, &RulePlan)> {
        let routes = self.routes.iter().map(|route| (&route.flow, &route.rules));
        let groups = self.groups.iter().map(|group| (&group.flow, &group.rules));
        routes.chain(groups).flat_map(|(flow, rules)| flow.flow.iter().zip(rules))
    }

    /// Returns the address of the first server, if it is a loopback address.
    pub fn first_loopback_server(&self) -> Option<SocketAddr> {
        let Endpoint { host, port, .. } = &self.upstreams.first()?.servers.first()?.endpoint;
        let address: IpAddr = host.parse().ok()?;
        address.is_loopback().then(|| SocketAddr::new(address, *port))
    }

    /// Returns, as the problem of the file's line, that `listener` cannot listen at `place`.
    pub fn cannot_listen(
        &self,
        listener: &Listener,
        place: &ListenPlace,
        error: &io::Error,
    ) -> Diagnostics {
        self.no_listener(&listener.name, &place.address, place.span, error)
    }

    /// Returns, as the problem of the file's line, that the admin listener cannot listen at
    /// `address`.
    pub fn cannot_administer(&self, address: SocketAddr, error: &io::Error) -> Diagnostics {
        self.no_listener("admin", &address.into(), self.places.admin.unwrap_or_default(), error)
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
                    relative names start from this file's folder";
        let span = self.places.access_log.unwrap_or_default();
        self.warnings.instead(Problem::error(span, message).help(help))
    }

    fn no_listener(
        &self,
        name: &str,
        address: &ListenAddress,
        span: SourceSpan,
        error: &io::Error,
    ) -> Diagnostics {
        let message = format!("listener {name} cannot listen on {address}: {error}");
        let help = match (address, error.kind()) {
            (ListenAddress::Ip(_), io::ErrorKind::AddrInUse) => {
                "stop the program that listens there, or write another port"
            }
            (ListenAddress::Ip(_), _) => {
                "write an address of this machine and a port that this user may listen on"
            }
            (ListenAddress::Unix(_), io::ErrorKind::AddrInUse) => {
                "stop the program that listens there, or write another path"
            }
            (ListenAddress::Unix(_), _) => {
                "write a path in a folder that is there and that this user may write to"
            }
        };
        self.warnings.instead(Problem::error(span, message).help(help))
    }

    /// Returns what is odd about it, though not wrong, as of `now`; so are certificates that
    /// are out of date.
    pub fn warnings_at(&self, now: Instant) -> Diagnostics {
        self.warnings_of(|certificate, peers| certificate.out_of_date(now, peers))
    }

    /// Returns the same with notes on what could be better.
    pub fn remarks_at(&self, now: Instant) -> Diagnostics {
        self.warnings_at(now).and(self.notes.iter().cloned())
    }

    /// Returns the same without certificates that have ended, of which the log has a line for each.
    pub fn warnings_for_log(&self, now: Instant) -> Diagnostics {
        self.warnings_of(|certificate, peers| {
            certificate.out_of_date(now, peers).filter(|_| !certificate.has_ended(now))
        })
    }

    /// Returns the warnings with those that `check` has of each certificate and its peers.
    fn warnings_of(&self, check: impl Fn(&Certificate, &str) -> Option<Problem>) -> Diagnostics {
        let shown = certificates(&self.listeners).map(|certificate| (certificate, "clients"));
        let tls = self.upstreams.iter().filter_map(|upstream| upstream.options.tls.as_ref());
        let own = tls.filter_map(|tls| Some((tls.identity()?, "servers")));
        let admin = self.settings.admin.as_ref().and_then(|admin| admin.tls.as_ref());
        let of_admin = admin.map(|tls| (tls.certificate(), "clients"));
        let all = shown.chain(own).chain(of_admin);
        self.warnings.and(all.filter_map(|(certificate, peers)| check(certificate, peers)))
    }
}

impl Plan {
    pub(in crate::config) fn source(&self) -> &Source {
        self.warnings.source()
    }
}

/// Where clients connect.
#[derive(Debug)]
pub struct Listener {
    /// Its name in logs and metrics.
    pub name: Arc<str>,
    /// Its addresses, at least one.
    pub addresses: Vec<ListenPlace>,
    /// The permissions of its Unix sockets.
    pub unix_mode: u32,
    /// `None`: cleartext.
    pub tls: Option<Arc<Certificates>>,
    /// The terms of that TLS.
    pub terms: TlsTerms,
    /// Whose word about clients is believed, if not the file's list.
    pub trusted_proxies: Option<NetworkList>,
    /// The field in which they name the client, if not the file's.
    pub client_ip_header: Option<HeaderName>,
    /// True if connections begin with a header of the PROXY protocol.
    pub proxy_protocol: bool,
    /// The files of its certificates as the configuration names them.
    pub(in crate::config) certificates: Vec<PathBuf>,
}

/// An address of a listener, and where the file has it.
#[derive(Clone, Debug)]
pub struct ListenPlace {
    /// The address.
    pub address: ListenAddress,
    /// Its place in the file.
    pub(in crate::config) span: SourceSpan,
}

impl Listener {
    /// Returns its addresses in words, with commas between them.
    pub fn listens(&self) -> String {
        let addresses = self.addresses.iter().map(|place| place.address.to_string());
        addresses.collect::<Vec<_>>().join(", ")
    }

    /// Returns where the file has its first address.
    pub(in crate::config) fn span(&self) -> SourceSpan {
        self.addresses.first().map(|place| place.span).unwrap_or_default()
    }

    /// Returns whether clients without an address reach it.
    pub(in crate::config) fn has_unix_socket(&self) -> bool {
        self.addresses.iter().any(|place| place.address.ip().is_none())
    }
}

pub(in crate::config) fn certificates(
    listeners: &[Arc<Listener>],
) -> impl Iterator<Item = &Certificate> {
    listeners.iter().filter_map(|listener| listener.tls.as_ref()).flat_map(|all| all.iter())
}

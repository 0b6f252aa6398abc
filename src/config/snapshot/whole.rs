//! The snapshot that the gateway runs by: immutable, and shared by every request that began under
//! it.

use super::{Route, RuleGroup, Upstream};
use crate::{
    config::{
        diagnostics::File,
        plan::{Listener, Settings, ShownCertificate, shown},
        watched::Watched,
    },
    flow::Gate,
    geo::Place,
    route::{self, NO_NETWORKS, Proxies},
};
use http::HeaderName;
use std::{net::IpAddr, path::Path, sync::Arc};

/// A configuration in force.
#[derive(Debug)]
pub struct Snapshot {
    /// Counts the configurations of this process, from 1.
    pub version: u64,
    /// 16 hexadecimal digits that stand for the text of the file.
    pub hash: String,
    /// The texts of the files, to see whether the next ones are only their beginnings.
    pub(in crate::config) text: Arc<str>,
    /// Where each file has its text, and whether it ends with `end: true`, so that the next must.
    pub(in crate::config) texts: Arc<[File]>,
    /// The settings of the gateway as a whole.
    pub settings: Settings,
    /// Where clients connect.
    pub listeners: Vec<Arc<Listener>>,
    /// In the order of the file.
    pub upstreams: Vec<Arc<Upstream>>,
    /// The rules that several routes share.
    pub groups: Vec<Arc<RuleGroup>>,
    /// In the order of the file; [`Self::table`] gives indexes into it. The last one may be for the
    /// requests that no other one matches.
    pub routes: Vec<Arc<Route>>,
    /// The route of a request.
    pub table: route::Table,
    /// True if a route answers preflight requests.
    pub(in crate::config) answers_preflights: bool,
    /// True if a server is to get the addresses of client connections.
    pub sends_proxy_protocol: bool,
    /// The files whose change is a change of the configuration.
    pub files: Vec<Watched>,
    /// The header fields that decide about requests, as [`route::folded_name`] has them, sorted:
    /// those that any match, key, override, priority or exception names.
    pub deciding_headers: Arc<[Box<str>]>,
    /// True if the process has begun without a store, and so asks none to its end.
    pub(in crate::config) is_storeless: bool,
}

impl Snapshot {
    /// Returns the routes that the file has.
    pub fn file_routes(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.routes.iter().filter(|route| !route.is_for_unmatched())
    }

    /// Returns the name of the file, and its text without those that it includes.
    pub fn main_file(&self) -> (&Path, &str) {
        match self.texts.first() {
            Some(file) => (&file.path, &self.text[file.range.clone()]),
            None => (Path::new(""), ""),
        }
    }

    /// Returns where a client is, by its files.
    pub fn place(&self, client: IpAddr) -> Place {
        self.settings.geo.as_ref().map(|geo| geo.place(client)).unwrap_or_default()
    }

    /// Returns the certificates that it shows, the one that ends first at the beginning.
    pub fn certificates(&self) -> Vec<ShownCertificate> {
        let upstreams = self.upstreams.iter();
        let of_upstreams = upstreams.map(|one| (&*one.name, one.options.tls.as_ref()));
        shown(&self.listeners, self.settings.admin.as_ref(), of_upstreams)
    }

    /// Returns whose word about clients is believed at a listener, and how addresses are read. At a
    /// listener that an edit has removed, nobody's is.
    pub fn proxies(&self, listener: Option<&str>) -> Proxies<'_> {
        let settings = &self.settings;
        let Some(name) = listener else {
            let header = other_than_usual(settings.client_ip_header.as_ref());
            return Proxies { trusted: &settings.trusted_proxies, header, nat64: &settings.nat64 };
        };
        let listener = self.listener(name);
        let own = listener.and_then(|listener| listener.client_ip_header.as_ref());
        Proxies {
            trusted: listener.map_or(&NO_NETWORKS, |listener| {
                listener.trusted_proxies.as_ref().unwrap_or(&settings.trusted_proxies)
            }),
            header: other_than_usual(own.or(settings.client_ip_header.as_ref())),
            nat64: &settings.nat64,
        }
    }

    /// Returns the listener of this name.
    pub fn listener(&self, name: &str) -> Option<&Arc<Listener>> {
        self.listeners.iter().find(|listener| *listener.name == *name)
    }

    /// Returns the gates of routes and of shared rules, each with a name of its own.
    pub fn gates(&self) -> impl Iterator<Item = (Arc<str>, &Arc<Gate>)> {
        let routes = self.routes.iter().map(|route| (Arc::clone(&route.name), &route.gate));
        let groups = self.groups.iter();
        routes.chain(groups.map(|group| (group.owner.to_string().into(), &group.gate)))
    }

    /// Returns whether gateways share any rule.
    pub fn is_shared(&self) -> bool {
        let has_group = self.groups.iter().any(|group| group.is_shared);
        has_group || self.routes.iter().any(|route| route.is_shared)
    }

    /// Reports whether gateways sync any rule.
    pub fn has_synced_rules(&self) -> bool {
        let shared = self.groups.iter().flat_map(|group| &*group.rules);
        let mut rules = self.routes.iter().flat_map(|route| &*route.rules).chain(shared);
        rules.any(|rule| rule.sync().is_some())
    }
}

/// Returns the name of a field, unless it is the usual one.
fn other_than_usual(header: Option<&HeaderName>) -> Option<&HeaderName> {
    header.filter(|name| name.as_str() != "x-forwarded-for")
}

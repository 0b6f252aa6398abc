//! The routes of each host.

use super::{
    HostPattern, PathPattern,
    host::Kind,
    names::Names,
    pattern::Pattern,
    rank::{Ranking, Search},
    regexes::Regexes,
    tree::Tree,
};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct RoutesByHost {
    all: Vec<HostRoutes>,
    exact: Names,
    wildcards: Names,
    any: Option<usize>,
}

#[derive(Debug, Default)]
pub(super) struct HostRoutes {
    tree: Tree,
    regexes: Regexes,
    /// Ranks of routes without a path.
    any: Vec<usize>,
}

impl RoutesByHost {
    /// Collects the routes that name this listener, or those that name none.
    pub(super) fn new(ranking: &Ranking, listener: Option<&str>) -> Self {
        let mut ranks_by_host: BTreeMap<Option<&HostPattern>, Vec<usize>> = BTreeMap::new();
        for (rank, route) in ranking.routes().iter().enumerate() {
            let listeners = &route.matcher.listeners;
            let is_one = match listener {
                Some(name) => listeners.iter().any(|listener| **listener == *name),
                None => listeners.is_empty(),
            };
            if !is_one {
                continue;
            }
            let hosts = &route.matcher.hosts;
            let any = hosts.is_empty().then_some(None);
            for host in hosts.iter().map(Some).chain(any) {
                ranks_by_host.entry(host).or_default().push(rank);
            }
        }
        let mut hosts = Self::default();
        for (host, ranks) in ranks_by_host {
            let number = hosts.all.len();
            hosts.all.push(HostRoutes::new(ranking, &ranks));
            match host.map(HostPattern::kind) {
                Some(Kind::Exact(name)) => {
                    hosts.exact.number(name, number);
                }
                Some(Kind::Wildcard(suffix)) => {
                    hosts.wildcards.number(suffix, number);
                }
                None => hosts.any = Some(number),
            }
        }
        hosts
    }

    /// Returns the routes of each pattern that matches `host`, the most specific first.
    pub(super) fn of<'a>(&'a self, host: &'a str) -> impl Iterator<Item = &'a HostRoutes> {
        let name = (!self.wildcards.is_empty()).then_some(host);
        let suffixes = core::iter::successors(name.and_then(parent), |name| parent(name));
        let wildcards = suffixes.filter_map(|suffix| self.wildcards.get(suffix));
        self.exact
            .get(host)
            .into_iter()
            .chain(wildcards)
            .chain(self.any)
            .map(|number| &self.all[number])
    }
}

/// Returns `name` without its first label.
fn parent(name: &str) -> Option<&str> {
    name.split_once('.').map(|(_, parent)| parent)
}

impl HostRoutes {
    /// Collects the routes of these ascending ranks.
    fn new(ranking: &Ranking, ranks: &[usize]) -> Self {
        let mut tree = Tree::default();
        let mut any = Vec::new();
        let mut regexes: Vec<(usize, &Pattern)> = Vec::new();
        for &rank in ranks {
            match &ranking.routes()[rank].path {
                PathPattern::Exact(path) | PathPattern::Template(path) => {
                    tree.insert_whole(path, rank);
                }
                PathPattern::Prefix(path) => tree.insert_prefix(path, rank),
                PathPattern::Regex(regex) => regexes.push((rank, regex.pattern())),
                PathPattern::Any => any.push(rank),
            }
        }
        Self { tree, regexes: Regexes::new(&regexes), any }
    }

    /// Searches for the best route of the normal `path`.
    pub(super) fn search(&self, path: &str, search: &mut Search<'_>) {
        self.tree.search(path, search);
        if search.best().is_none() {
            self.regexes.search(path, search);
        }
        if search.best().is_none() {
            search.offer(&self.any);
        }
    }
}

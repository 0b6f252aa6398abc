//! The table of all routes.

use super::{
    Advantage, FieldPattern, HostPattern, Matcher, PathPattern, QueryPattern, Target,
    host::Kind,
    pattern::Pattern,
    rank::{Ranked, Ranking, Search},
    regexes::Regexes,
    tree::{Names, Tree},
};
use crate::geo::PlaceSet;
use ahash::AHashMap;
use core::cmp::Reverse;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Finds the route of a request.
///
/// Hosts are found by hash and paths in a tree of segments, so that a search takes as many steps
/// among ten thousand routes as among one. Routes that share host and path are tried one by one.
/// Regular expressions are tried after all other paths, as one automaton per host.
///
/// A search allocates only if one of several regular expressions matches.
#[derive(Debug, Default)]
pub struct Table {
    ranking: Ranking,
    /// The routes of each listener that is named.
    listeners: Vec<(Arc<str>, RoutesByHost)>,
    /// Those that name no listener.
    hosts: RoutesByHost,
    /// Each route's rank, the best of several.
    ranks: Vec<usize>,
    looks_at_places: bool,
}

impl Table {
    /// Returns whether both have the same routes under the same indexes, and so find the same.
    pub fn is_same(&self, other: &Self) -> bool {
        let routes = self.ranking.routes().iter().zip(other.ranking.routes());
        self.ranks == other.ranks
            && self.ranking.routes().len() == other.ranking.routes().len()
            && routes.enumerate().all(|(rank, (one, other))| {
                // One matcher has all paths of its route.
                let has_same_matcher =
                    || self.ranks[one.index] != rank || one.matcher == other.matcher;
                one.index == other.index && one.path == other.path && has_same_matcher()
            })
    }

    /// Builds the table; a route is its index in `matchers`.
    pub fn build(matchers: Vec<Matcher>) -> Self {
        let number = matchers.len();
        let ranking = Ranking::new(matchers);
        let named: BTreeSet<Arc<str>> = ranking
            .routes()
            .iter()
            .flat_map(|route| route.matcher.listeners.iter().map(Arc::clone))
            .collect();
        let of = |name: Arc<str>| (Arc::clone(&name), RoutesByHost::new(&ranking, Some(&name)));
        let listeners = named.into_iter().map(of).collect();
        let hosts = RoutesByHost::new(&ranking, None);
        let mut ranks = vec![0; number];
        for (rank, route) in ranking.routes().iter().enumerate().rev() {
            ranks[route.index] = rank;
        }
        let looks_at_places = ranking.routes().iter().any(|one| !one.matcher.places.is_empty());
        Self { ranking, listeners, hosts, ranks, looks_at_places }
    }

    /// Returns the best route for `target`, if any matches.
    pub fn find(&self, target: &Target<'_>) -> Option<usize> {
        self.find_besides(target, None).map(|route| route.index)
    }

    /// Returns the route that would get `target` if `route`, which gets it, were not there, and why
    /// `route` comes before it.
    pub fn runner_up(&self, target: &Target<'_>, route: usize) -> Option<(usize, Advantage)> {
        let best = self.find_besides(target, None).filter(|best| best.index == route)?;
        let next = self.find_besides(target, Some(route))?;
        Some((next.index, Advantage::of(target.host, best, next)))
    }

    /// Returns the best route, `besides` excepted.
    fn find_besides<'t>(
        &'t self,
        target: &'t Target<'_>,
        besides: Option<usize>,
    ) -> Option<&'t Ranked> {
        let named = target
            .listener
            .and_then(|listener| self.listeners.iter().find(|(name, _)| **name == *listener));
        let own = named.and_then(|(_, hosts)| self.search(hosts, target, besides));
        own.or_else(|| self.search(&self.hosts, target, besides))
    }

    fn search<'t>(
        &'t self,
        hosts: &'t RoutesByHost,
        target: &'t Target<'_>,
        besides: Option<usize>,
    ) -> Option<&'t Ranked> {
        hosts.of(target.host).find_map(|site| {
            let mut search = Search::new(&self.ranking, target).besides(besides);
            site.search(target.path, &mut search);
            search.best()
        })
    }

    /// Returns the matcher of a route, if it exists.
    pub fn matcher(&self, route: usize) -> Option<&Matcher> {
        self.ranks.get(route).map(|rank| &*self.ranking.routes()[*rank].matcher)
    }

    /// Returns the header names that matchers look at, possibly repeated.
    pub fn header_names(&self) -> impl Iterator<Item = &str> {
        let matchers = self.ranking.routes().iter().map(|route| &route.matcher);
        matchers.flat_map(|matcher| &matcher.headers).map(FieldPattern::name)
    }

    /// Returns whether some matcher looks at where the client is.
    pub const fn looks_at_places(&self) -> bool {
        self.looks_at_places
    }

    /// Returns whether `target` repeats a header or query parameter that some route looks at.
    pub fn looks_at_repeated(&self, target: &Target<'_>) -> bool {
        self.ranking.routes().iter().any(|route| route.matcher.looks_at_repeated(target))
    }

    /// Returns all routes, the most specific first: of two that match a request by the same
    /// listener for the same host pattern and path, the earlier one gets it. A route with several
    /// hosts or paths is placed by its most specific one.
    pub fn order(&self) -> Vec<usize> {
        let routes = self.ranking.routes().iter().enumerate();
        let best = routes.filter(|(rank, route)| self.ranks[route.index] == *rank);
        let mut routes: Vec<&Ranked> = best.map(|(_, route)| route).collect();
        // The sort is stable: the rank decides among equal hosts.
        routes.sort_by_key(|route| {
            let Matcher { listeners, hosts, .. } = &*route.matcher;
            let host = hosts.iter().map(host_key).min().unwrap_or((3, Reverse(0)));
            (listeners.is_empty(), host)
        });
        routes.into_iter().map(|route| route.index).collect()
    }

    /// Returns each route that never gets a request, after the routes that get all of them: these
    /// have equal conditions, or every one of `listeners`, which are all there are, has a route
    /// that takes all requests before the later one, which names no listener. A route with several
    /// hosts, paths or listeners is listed if earlier ones take each of them.
    pub fn shadowed(&self, listeners: &[Arc<str>]) -> Vec<(Vec<usize>, usize)> {
        let mut owners: AHashMap<Conditions<'_>, usize> = AHashMap::with_capacity(self.ranks.len());
        let of_listeners = self.owners_of_hosts();
        let mut found = Vec::new();
        for (index, rank) in self.ranks.iter().enumerate() {
            let matcher = &*self.ranking.routes()[*rank].matcher;
            let conditions = conditions(matcher);
            let mut earlier: Vec<usize> = conditions
                .into_iter()
                .map(|conditions| *owners.entry(conditions).or_insert(index))
                .collect();
            if earlier.contains(&index) {
                let Some(owners) = owners_of(matcher, listeners, &of_listeners) else { continue };
                earlier = owners;
            }
            earlier.sort_unstable();
            earlier.dedup();
            if !earlier.is_empty() {
                found.push((earlier, index));
            }
        }
        found
    }

    /// Returns the routes that take all requests of a listener that they name: of all hosts, or of
    /// the host in the key.
    fn owners_of_hosts(&self) -> Owners<'_> {
        let mut owners = Owners::new();
        for Ranked { index, path, matcher } in self.ranking.routes() {
            let takes_all = *path == PathPattern::Any
                && matcher.methods.is_empty()
                && matcher.headers.is_empty()
                && matcher.query.is_empty()
                && matcher.certificate.is_empty()
                && matcher.places.is_empty()
                && matcher.whole_query.is_none();
            for listener in matcher.listeners.iter().filter(|_| takes_all) {
                for host in hosts_of(matcher) {
                    owners.entry((&**listener, host)).or_insert(*index);
                }
            }
        }
        owners
    }
}

type Owners<'t> = AHashMap<(&'t str, Option<&'t HostPattern>), usize>;

/// Returns the routes that take all requests for the hosts of `later` before it is tried, if each
/// listener has one.
fn owners_of(later: &Matcher, listeners: &[Arc<str>], owners: &Owners<'_>) -> Option<Vec<usize>> {
    if !later.listeners.is_empty() {
        return None;
    }
    let all = listeners.iter().flat_map(|listener| {
        let of_all = owners.get(&(&**listener, None));
        hosts_of(later).map(move |host| of_all.or_else(|| owners.get(&(&**listener, host))))
    });
    all.map(Option::<&usize>::copied).collect()
}

/// Returns the hosts of a matcher; `None` stands for every host.
fn hosts_of(matcher: &Matcher) -> impl Iterator<Item = Option<&HostPattern>> {
    let any = matcher.hosts.is_empty().then_some(None);
    matcher.hosts.iter().map(Some).chain(any)
}

/// Returns the paths of a matcher.
fn paths_of(matcher: &Matcher) -> impl Iterator<Item = &PathPattern> {
    let any = matcher.paths.is_empty().then_some(&PathPattern::Any);
    matcher.paths.iter().chain(any)
}

fn host_key(host: &HostPattern) -> (u8, Reverse<usize>) {
    match host.kind() {
        Kind::Exact(_) => (0, Reverse(0)),
        Kind::Wildcard(suffix) => (1, Reverse(suffix.len())),
        Kind::Below(name) => (2, Reverse(name.len())),
    }
}

/// A matcher's conditions for one of its listeners, hosts and paths, independent of the order of
/// its lists.
#[derive(PartialEq, Eq, Hash)]
struct Conditions<'a> {
    listener: Option<&'a str>,
    host: Option<&'a HostPattern>,
    path: &'a PathPattern,
    methods: Vec<&'a str>,
    headers: Vec<FieldPattern>,
    query: Vec<FieldPattern>,
    certificate: Vec<FieldPattern>,
    places: &'a PlaceSet,
    whole_query: Option<&'a QueryPattern>,
}

fn conditions(matcher: &Matcher) -> impl Iterator<Item = Conditions<'_>> {
    let any_listener = matcher.listeners.is_empty().then_some(None);
    let listeners = matcher.listeners.iter().map(|listener| Some(&**listener)).chain(any_listener);
    let pairs =
        listeners.flat_map(move |listener| hosts_of(matcher).map(move |host| (listener, host)));
    let each = pairs.flat_map(move |(listener, host)| {
        paths_of(matcher).map(move |path| (listener, host, path))
    });
    each.map(|(listener, host, path)| {
        let mut methods: Vec<&str> = matcher.methods.iter().map(http::Method::as_str).collect();
        methods.sort_unstable();
        methods.dedup();
        let headers = sorted(matcher.headers.iter().map(FieldPattern::without_case));
        let query = sorted(matcher.query.iter().cloned());
        let certificate = sorted(matcher.certificate.iter().cloned());
        let whole_query = matcher.whole_query.as_ref();
        let places = &matcher.places;
        Conditions {
            listener,
            host,
            path,
            methods,
            headers,
            query,
            certificate,
            places,
            whole_query,
        }
    })
}

fn sorted(patterns: impl Iterator<Item = FieldPattern>) -> Vec<FieldPattern> {
    let mut patterns: Vec<FieldPattern> = patterns.collect();
    patterns.sort_by_cached_key(FieldPattern::to_string);
    patterns.dedup();
    patterns
}

#[derive(Debug, Default)]
pub(super) struct RoutesByHost {
    all: Vec<HostRoutes>,
    exact: Names,
    wildcards: Names,
    /// What hosts begin with.
    beginnings: Names,
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
                Some(Kind::Below(name)) => {
                    hosts.beginnings.number(name, number);
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
        let name = (!self.beginnings.is_empty()).then_some(host);
        let names = core::iter::successors(name.and_then(shorter), |name| shorter(name));
        let beginnings = names.filter_map(|name| self.beginnings.get(name));
        self.exact
            .get(host)
            .into_iter()
            .chain(wildcards)
            .chain(beginnings)
            .chain(self.any)
            .map(|number| &self.all[number])
    }
}

/// Returns `name` without its last label.
fn shorter(name: &str) -> Option<&str> {
    name.rsplit_once('.').map(|(shorter, _)| shorter)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{geo::Located, route::normal_path};
    use http::{HeaderMap, Method};

    #[test]
    fn a_prefix_may_have_templates_and_the_longest_one_wins() {
        let routes =
            ["* ^/orgs/{org}", "* ^/orgs", "* ^/orgs/{org}/repos", "* ^/orgs/acme", "* ^/{any}"];
        for (request, expected) in [
            ("GET a/orgs", Some(1)),
            ("GET a/orgs/", Some(1)),
            ("GET a/orgs/b", Some(0)),
            ("GET a/orgs/b/x", Some(0)),
            ("GET a/orgs/b/repos/x", Some(2)),
            ("GET a/orgs/acme", Some(3)),
            ("GET a/orgs/acme/x", Some(3)),
            ("GET a/orgs/acme/repos", Some(2)),
            ("GET a/other/x", Some(4)),
            ("GET a/", None),
        ] {
            check(&routes, request, expected);
        }
    }

    #[test]
    fn the_more_specific_host_wins_whatever_the_path() {
        let routes = [
            "* =/a",
            "*.example =/a",
            "*.b.example =/a",
            "a.b.example ^/",
            "[::1] ^/",
            "c.* =/a",
            "c.d.* =/a",
        ];
        for (request, expected) in [
            ("GET c.example/a", Some(1)),
            ("GET c.test/a", Some(5)),
            ("GET c.x.test/a", Some(5)),
            ("GET c.d.test/a", Some(6)),
            ("GET c.d/a", Some(5)),
            ("GET c/a", Some(0)),
            ("GET xc.test/a", Some(0)),
            ("GET a.b.example/a", Some(3)),
            ("GET c.b.example/a", Some(2)),
            ("GET d.c.b.example/a", Some(2)),
            ("GET b.example/a", Some(1)),
            ("GET example/a", Some(0)),
            ("GET xb.example/a", Some(1)),
            ("GET [::1]/a", Some(4)),
            ("GET [::2]/a", Some(0)),
        ] {
            check(&routes, request, expected);
        }
    }

    #[test]
    fn less_specific_hosts_are_tried_when_the_rest_does_not_match() {
        let routes = ["a.example =/a POST", "*.example =/a PUT", "* ^/"];
        for (request, expected) in [
            ("POST a.example/a", Some(0)),
            ("PUT a.example/a", Some(1)),
            ("GET a.example/a", Some(2)),
            ("GET b.example/a", Some(2)),
        ] {
            check(&routes, request, expected);
        }
    }

    #[test]
    fn the_more_specific_path_wins() {
        let routes = [
            "* ^/",
            "* ~/a/.*",
            "* ~/a/b/.*",
            "* ~/z.*",
            "* ^/a",
            "* ^/a/b/c",
            "* =/a/{x}/c",
            "* =/a/{x}/{y}",
            "* =/a/b/c",
            "* =/{x}/b/d",
        ];
        for (path, expected) in [
            ("/a/b/c", Some(8)),
            ("/a/x/c", Some(6)),
            ("/a/x/y", Some(7)),
            ("/a/b/d", Some(9)),
            ("/a/b/c/", Some(5)),
            ("/a/b/c/d", Some(5)),
            ("/a//c", Some(4)),
            ("/a/x/", Some(4)),
            ("/a", Some(4)),
            ("/ax", Some(0)),
            ("/zz", Some(3)),
            ("/", Some(0)),
            ("*", Some(0)),
            ("", Some(0)),
        ] {
            check(&routes, &format!("GET host{path}"), expected);
        }
    }

    #[test]
    fn prefixes_match_by_whole_segments() {
        for prefix in ["^/api", "^/api/"] {
            for (path, expected) in [
                ("/api", Some(0)),
                ("/api/", Some(0)),
                ("/api/x/y", Some(0)),
                ("/apix", None),
                ("/ap", None),
                ("/API", None),
                ("api", None),
            ] {
                check(&[&format!("* {prefix}")], &format!("GET host{path}"), expected);
            }
        }
    }

    #[test]
    fn trailing_slashes_and_empty_segments_count() {
        let routes = ["* =/a", "* =/b/", "* =/c/{x}"];
        for (path, expected) in [
            ("/a", Some(0)),
            ("/a/", None),
            ("/b", None),
            ("/b/", Some(1)),
            ("/b//", Some(1)),
            ("/c/", None),
            ("/c/x", Some(2)),
            ("/c/x/", None),
        ] {
            check(&routes, &format!("GET host{path}"), expected);
        }
    }

    #[test]
    fn no_spelling_of_a_path_slips_past_its_route() {
        let routes = ["* ^/", "* ^/admin", "* =/caf%c3%a9", "* =/a%2Fb", "* ~/v[0-9]/x"];
        for (path, expected) in [
            ("/%61dmin", Some(1)),
            ("//admin", Some(1)),
            ("/admin%2Fx", Some(1)),
            ("/./admin/.", Some(1)),
            ("/caf%C3%A9", Some(2)),
            ("/caf%c3%A9", Some(2)),
            ("/a/b", Some(0)),
            ("/%76%31/x", Some(4)),
        ] {
            check(&routes, &format!("GET host{path}"), expected);
        }
    }

    #[test]
    fn conditions_break_ties_and_then_the_file_does() {
        let routes = [
            "* =/a",
            "* =/a x-a=1 x-b=1",
            "* =/a POST",
            "* =/a x-a=1",
            "* =/a ?q=1",
            "* =/a",
            "* =/a x-a=1 ?q=1",
        ];
        for (request, expected) in [
            ("GET host/a", 0),
            ("POST host/a x-a=1 x-b=1", 2),
            ("GET host/a x-a=1 x-b=1", 1),
            ("GET host/a x-a=1", 3),
            ("GET host/a x-a=2", 0),
            ("GET host/a?q=1", 4),
            ("GET host/a?p=1&q=%31", 4),
            ("GET host/a?q=2&q=1", 4),
            ("GET host/a?q=2&q=3", 0),
            ("GET host/a?q=1 x-a=1", 6),
        ] {
            check(&routes, request, Some(expected));
        }
    }

    #[test]
    fn header_names_have_no_case_and_parameter_names_have() {
        check(&["* ^/ X-A=1"], "GET host/ x-a=1", Some(0));
        check(&["* ^/ ?Q=1"], "GET host/?q=1", None);
    }

    #[test]
    fn a_second_line_does_not_bypass_a_route() {
        check(&["* ^/ x-a=1"], "GET host/ x-a=1 x-a=2", Some(0));
        check(&["* ^/ x-a=1"], "GET host/ x-a=2 x-a=1", Some(0));
        check(&["* ^/ x-a=1"], "GET host/ x-a=2 x-a=3", None);
    }

    #[test]
    fn a_regex_in_file_order_comes_before_a_method() {
        check(&["* ~/a.*", "* ~/a.* GET"], "GET host/ab", Some(0));
        check(&["* ~/a.* POST", "* ~/a.*"], "GET host/ab", Some(1));
    }

    #[test]
    fn routes_of_the_listener_come_before_all_others() {
        let routes = ["* ^/ @web", "a.example =/a", "* =/x @web,tls", "a.example =/b @tls"];
        for (request, expected) in [
            ("GET a.example/a @web", Some(0)),
            ("GET a.example/x @web", Some(2)),
            ("GET a.example/a @tls", Some(1)),
            ("GET a.example/b @tls", Some(3)),
            ("GET a.example/b", None),
            ("GET a.example/a", Some(1)),
            ("GET a.example/a @other", Some(1)),
        ] {
            check(&routes, request, expected);
        }
        assert_eq!(table(&routes).order(), [3, 2, 0, 1]);
        let routes = ["* ^/ @a", "* ^/ @b", "* ^/", "* ^/ @a,b", "* ^/ @b,c"];
        assert_eq!(table(&routes).shadowed(&[]), [(vec![0, 1], 3)]);
    }

    #[test]
    fn a_route_is_never_reached_if_all_listeners_have_one_that_takes_everything() {
        for (routes, listeners, expected) in [
            (&["* ^/ @web", "* =/login"][..], &["web"][..], &[0][..]),
            (&["* ^/ @web", "* =/login"], &["web", "tls"], &[]),
            (&["* * @web", "* ^/ @tls", "a.example =/login"], &["web", "tls"], &[0, 1]),
            (&["* ^/ @web,tls", "* =/a", "* =/b @tls"], &["web", "tls"], &[0]),
            (&["* ^/ @web GET", "* =/login"], &["web"], &[]),
            (&["* ^/ @web x-a=1", "* =/login"], &["web"], &[]),
            (&["* ^/a @web", "* =/a/b"], &["web"], &[]),
            (&["a.example ^/ @web", "* =/login"], &["web"], &[]),
            (&["a.example ^/ @web", "a.example,b.example =/login"], &["web"], &[]),
            (&["a.example,b.example ^/ @web", "a.example =/login"], &["web"], &[0]),
            (
                &["a.example ^/ @web", "* ^/ @tls", "b.example * @web", "b.example,a.example =/"],
                &["web", "tls"],
                &[0, 1, 2],
            ),
        ] {
            let listeners: Vec<Arc<str>> = listeners.iter().map(|name| Arc::from(*name)).collect();
            let found = table(routes).shadowed(&listeners);
            let earlier: Vec<usize> = found.into_iter().flat_map(|(earlier, _)| earlier).collect();
            assert_eq!(earlier, expected, "{routes:?}");
        }
    }

    #[test]
    fn the_runner_up_is_named_with_what_it_lacks() {
        use Advantage::{Conditions, Host, Listener, Order, Path};
        for (routes, request, expected) in [
            (&["* ^/ @web", "a.example =/a"][..], "GET a.example/a @web", Some((1, Listener))),
            (&["a.example ^/", "*.example =/a"], "GET a.example/a", Some((1, Host))),
            (&["*.b.example ^/", "*.example =/a"], "GET a.b.example/a", Some((1, Host))),
            (&["* ^/a", "* ^/", "* ^/a/b"], "GET host/a/b", Some((0, Path))),
            (&["* ^/", "* ^/ GET"], "GET host/a", Some((0, Conditions))),
            (&["* ^/ x-a=1", "* ^/ x-a=1 x-b=1"], "GET host/ x-a=1 x-b=1", Some((0, Conditions))),
            (&["* ~/a", "* ~/.*"], "GET host/a", Some((1, Order))),
            (&["* ^/a", "* ^/a"], "GET host/a", Some((1, Order))),
            (&["* ^/a", "* ^/b"], "GET host/a", None),
        ] {
            let table = table(routes);
            let found = ask(request, |target| {
                let winner = table.find(target).unwrap();
                table.runner_up(target, winner)
            });
            assert_eq!(found, expected, "{request} {routes:?}");
        }
    }

    #[test]
    fn a_route_gets_each_of_its_paths() {
        let routes = ["* ^/a,^/b/c,=/x", "* ^/b,^/a/b", "* =/x,=/y", "* ^/y,~/[yz].*"];
        for (path, expected) in [
            ("/a", Some(0)),
            ("/a/b", Some(1)),
            ("/b", Some(1)),
            ("/b/c/d", Some(0)),
            ("/x", Some(0)),
            ("/y", Some(2)),
            ("/y/1", Some(3)),
            ("/z", Some(3)),
            ("/c", None),
        ] {
            check(&routes, &format!("GET host{path}"), expected);
        }
        let table = table(&routes);
        assert_eq!(table.order(), [0, 2, 1, 3]);
        let next = |request| ask(request, |target| table.runner_up(target, table.find(target)?));
        assert_eq!(next("GET host/a/b"), Some((0, Advantage::Path)));
        assert_eq!(next("GET host/x"), Some((2, Advantage::Order)));
        assert_eq!(next("GET host/z"), None);
    }

    #[test]
    fn a_route_is_never_reached_if_earlier_ones_take_all_its_paths() {
        let routes = ["* ^/a,^/b", "* ^/c,^/a", "* ^/b,^/c,^/a", "* ^/c,^/d"];
        assert_eq!(table(&routes).shadowed(&[]), [(vec![0, 1], 2)]);
    }

    #[test]
    fn an_empty_table_finds_nothing() {
        check(&[], "GET host/", None);
    }

    #[test]
    fn the_order_is_that_of_the_search() {
        let routes =
            ["* ^/", "* ~/a", "*.example ^/", "* =/a", "b.example ^/x", "a.a.example,* ^/"];
        assert_eq!(table(&routes).order(), [4, 5, 2, 3, 1, 0]);
    }

    #[test]
    fn routes_that_can_never_win_are_reported() {
        let routes = [
            "a,b =/x/{id} GET,POST x-a=1 x-b=1",
            "a =/x/{id} GET",
            "b =/x/{other} POST,GET,GET X-B=1 X-A=1",
            "b,c =/x/{id} GET,POST x-a=1 x-b=1",
            "c =/x/{id} POST,GET x-a=1 x-b=1",
            "* ^/",
            "* *",
            "a,a =/y",
        ];
        assert_eq!(table(&routes).shadowed(&[]), [(vec![0], 2), (vec![3], 4), (vec![5], 6)]);
    }

    #[test]
    fn a_route_has_its_matcher() {
        let table = table(&["* ^/", "a.example =/a"]);
        let shown = |route| table.matcher(route).map(ToString::to_string);
        assert_eq!(
            (shown(0), shown(1), shown(2)),
            (Some("/*".into()), Some("a.example/a".into()), None)
        );
    }

    #[test]
    fn tables_are_the_same_if_each_index_has_the_same_matcher() {
        let one = ["* ^/ GET", "a.example =/a", "* ~/x+ @web"];
        assert!(table(&one).is_same(&table(&one)));
        let others: [&[&str]; 6] = [
            &one[..2],
            &["a.example =/a", "* ^/ GET", "* ~/x+ @web"],
            &["* ^/ PUT", "a.example =/a", "* ~/x+ @web"],
            &["* ^/ GET", "b.example =/a", "* ~/x+ @web"],
            &["* ^/ GET", "a.example =/a", "* ~/x+ @inner"],
            &["* ^/ GET", "a.example =/a,=/b", "* ~/x+ @web"],
        ];
        for other in others {
            assert!(!table(&one).is_same(&table(other)), "{other:?}");
        }
    }

    #[track_caller]
    fn check(routes: &[&str], request: &str, expected: Option<usize>) {
        assert_eq!(ask(request, |target| table(routes).find(target)), expected, "{request}");
    }

    fn ask<T>(request: &str, work: impl FnOnce(&Target<'_>) -> T) -> T {
        let mut words = request.split(' ');
        let method: Method = words.next().unwrap().parse().unwrap();
        let address = words.next().unwrap();
        let (address, query) = match address.split_once('?') {
            Some((address, query)) => (address, Some(query)),
            None => (address, None),
        };
        let (host, path) = address.split_at(address.find(['/', '*']).unwrap_or(address.len()));
        let mut headers = HeaderMap::new();
        let mut listener = None;
        let words = words.inspect(|word| listener = word.strip_prefix('@').or(listener));
        for (name, value) in words.filter_map(|word| word.split_once('=')) {
            headers.append(super::super::header::name(name).unwrap(), value.parse().unwrap());
        }
        let path = &*normal_path(path);
        let target = Target {
            listener,
            certificate: None,
            place: Located::default(),
            identity: None,
            body: None,
            host,
            path,
            query,
            method: &method,
            headers: (&headers).into(),
        };
        work(&target)
    }

    fn path(text: &str) -> PathPattern {
        let (kind, path) = text.split_at(1);
        let path = match kind {
            "=" => PathPattern::exact(path),
            "^" => PathPattern::prefix(path),
            "~" => PathPattern::regex(path),
            _ => Ok(PathPattern::Any),
        };
        path.unwrap()
    }

    /// Reads `host,host =/exact|^/prefix|~regex|*,… [METHOD,…] [header=value…] [?name=value…]
    /// [@listener,…]`.
    fn table(routes: &[&str]) -> Table {
        Table::build(routes.iter().map(|route| matcher(route)).collect())
    }

    fn matcher(route: &str) -> Matcher {
        let mut words = route.split(' ');
        let hosts = words.next().unwrap().split(',').filter(|host| *host != "*");
        let hosts = hosts.map(|host| HostPattern::parse(host).unwrap()).collect();
        let paths = words.next().unwrap().split(',').map(path).collect();
        let mut matcher = Matcher { hosts, paths, ..Matcher::default() };
        for word in words {
            match word.split_once('=') {
                None if word.starts_with('@') => {
                    matcher.listeners.extend(word[1..].split(',').map(Arc::from));
                }
                None => matcher
                    .methods
                    .extend(word.split(',').map(|method| method.parse::<Method>().unwrap())),
                Some((name, value)) => match name.strip_prefix('?') {
                    Some(name) => matcher.query.push(FieldPattern::equals(name, value).unwrap()),
                    None => matcher.headers.push(FieldPattern::equals(name, value).unwrap()),
                },
            }
        }
        matcher
    }
}

//! All routes of a configuration, and the search for a request's.

use super::{
    FieldPattern, HostPattern, Matcher, PathPattern, Target,
    host::Kind,
    normal_path,
    rank::{Ranked, Ranking, Search},
    sites::Sites,
};
use core::cmp::Reverse;
use std::collections::HashMap;

/// Finds the route of a request.
///
/// Hosts are found by hash, paths in a tree of segments, so a search takes the same
/// steps among one route and among ten thousand. Only what no structure can order
/// costs more with its number: routes that share host *and* path and differ in
/// method, header or query are tried one by one, and regular expressions, which are
/// asked after all other paths have failed, run as one automaton per host.
///
/// A search allocates only for a path with escapes or double slashes, and where one
/// of several regular expressions matches.
#[derive(Debug, Default)]
pub struct Table {
    ranking: Ranking,
    sites: Sites,
    /// Each route's rank.
    ranks: Vec<usize>,
}

impl Table {
    /// Builds the table of `matchers`; routes are known by their places among them.
    pub fn build(matchers: Vec<Matcher>) -> Self {
        let ranking = Ranking::new(matchers);
        let sites = Sites::new(&ranking);
        let mut ranks = vec![0; ranking.routes().len()];
        for (rank, route) in ranking.routes().iter().enumerate() {
            ranks[route.index] = rank;
        }
        Self { ranking, sites, ranks }
    }

    /// Returns the best route for `target`, or `None` if no route matches.
    pub fn find(&self, target: &Target<'_>) -> Option<usize> {
        let path = normal_path(target.path);
        self.sites.of(target.host).find_map(|site| {
            let mut search = Search::new(&self.ranking, target);
            site.search(&path, &mut search);
            search.best().map(|route| route.index)
        })
    }

    /// Returns the matcher of a route, or `None` if there is no such route.
    pub fn matcher(&self, route: usize) -> Option<&Matcher> {
        self.ranks.get(route).map(|rank| &self.ranking.routes()[*rank].matcher)
    }

    /// Returns all routes, the most specific first: if two match a request for the same
    /// host pattern, the earlier one here gets it. A route with several hosts stands
    /// where its most specific host puts it.
    pub fn order(&self) -> Vec<usize> {
        let mut routes: Vec<&Ranked> = self.ranking.routes().iter().collect();
        // Stable, so that the rank decides among equal hosts.
        routes.sort_by_key(|route| {
            route.matcher.hosts.iter().map(host_key).min().unwrap_or((2, Reverse(0)))
        });
        routes.into_iter().map(|route| route.index).collect()
    }

    /// Returns the pairs `(earlier, later)` of routes whose matchers ask the same, so that
    /// the later one never gets a request. A later route with several hosts is listed if
    /// an earlier one takes each of them.
    #[expect(clippy::mutable_key_type, reason = "a regular expression is compared by its text")]
    pub fn shadowed(&self) -> Vec<(usize, usize)> {
        let mut owners: HashMap<Asked<'_>, usize> = HashMap::new();
        let mut pairs = Vec::new();
        for (index, rank) in self.ranks.iter().enumerate() {
            let matcher = &self.ranking.routes()[*rank].matcher;
            let asked = asked(matcher);
            let mut earlier: Vec<usize> =
                asked.into_iter().map(|asked| *owners.entry(asked).or_insert(index)).collect();
            earlier.sort_unstable();
            if let Some(&owner) = earlier.first()
                && !earlier.contains(&index)
            {
                pairs.push((owner, index));
            }
        }
        pairs
    }
}

/// Returns what hosts are ordered by.
fn host_key(host: &HostPattern) -> (u8, Reverse<usize>) {
    match host.kind() {
        Kind::Exact(_) => (0, Reverse(0)),
        Kind::Wildcard(suffix) => (1, Reverse(suffix.len())),
    }
}

/// What a matcher asks of requests for one of its hosts; equal for two matchers that
/// differ in the order of their lists only.
#[derive(PartialEq, Eq, Hash)]
struct Asked<'a> {
    host: Option<&'a HostPattern>,
    path: &'a PathPattern,
    methods: Vec<&'a str>,
    headers: Vec<FieldPattern>,
    query: Vec<FieldPattern>,
}

fn asked(matcher: &Matcher) -> impl Iterator<Item = Asked<'_>> {
    let any = matcher.hosts.is_empty().then_some(None);
    matcher.hosts.iter().map(Some).chain(any).map(|host| {
        let mut methods: Vec<&str> = matcher.methods.iter().map(http::Method::as_str).collect();
        methods.sort_unstable();
        methods.dedup();
        let headers = sorted(matcher.headers.iter().map(FieldPattern::without_case));
        let query = sorted(matcher.query.iter().cloned());
        Asked { host, path: &matcher.path, methods, headers, query }
    })
}

fn sorted(patterns: impl Iterator<Item = FieldPattern>) -> Vec<FieldPattern> {
    let mut patterns: Vec<FieldPattern> = patterns.collect();
    patterns.sort_by_cached_key(FieldPattern::to_string);
    patterns.dedup();
    patterns
}

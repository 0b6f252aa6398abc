//! The order of routes, best match first, apart from the host.

use super::{HostPattern, Matcher, PathPattern, Target, host::Kind};
use core::{cmp::Reverse, fmt};
use std::sync::Arc;

/// Routes in order. A route's index here is its rank.
#[derive(Debug, Default)]
pub(super) struct Ranking {
    routes: Vec<Ranked>,
    /// The number of routes with an exact path, which come first.
    exact_paths: usize,
}

#[derive(Debug)]
pub(super) struct Ranked {
    /// The route's index in the file.
    pub(super) index: usize,
    /// One of the matcher's paths: a route with several is here once for each.
    pub(super) path: PathPattern,
    pub(super) matcher: Arc<Matcher>,
}

impl Ranking {
    pub(super) fn new(matchers: Vec<Matcher>) -> Self {
        let mut routes = Vec::with_capacity(matchers.len());
        for (index, matcher) in matchers.into_iter().enumerate() {
            let matcher = Arc::new(matcher);
            let any = matcher.paths.is_empty().then_some(PathPattern::Any);
            let paths = matcher.paths.iter().cloned().chain(any);
            routes.extend(paths.map(|path| Ranked { index, path, matcher: Arc::clone(&matcher) }));
        }
        routes.sort_by_cached_key(key);
        let exact_paths =
            routes.partition_point(|route| matches!(route.path, PathPattern::Exact(_)));
        Self { routes, exact_paths }
    }

    pub(super) fn routes(&self) -> &[Ranked] {
        &self.routes
    }
}

fn key(route: &Ranked) -> impl Ord + use<> {
    (path_key(route), conditions_key(&route.matcher), route.index)
}

/// Returns how specific the path is: the lowest wins.
pub(super) fn path_key(Ranked { index, path, .. }: &Ranked) -> impl Ord + use<> {
    let regex = if matches!(path, PathPattern::Regex(_)) { *index } else { 0 };
    (pattern_key(path), regex)
}

/// Returns how specific a path is, but for the order of regular expressions.
fn pattern_key(path: &PathPattern) -> impl Ord + use<> {
    let (kind, length, literals) = match path {
        // No two exact paths match the same request.
        PathPattern::Exact(_) => (0, 0, 0),
        PathPattern::Template(path) => (1, 0, path.literals()),
        PathPattern::Prefix(path) => (2, path.as_slice().len(), path.literals()),
        PathPattern::Regex(_) => (3, 0, 0),
        PathPattern::Any => (4, 0, 0),
    };
    (kind, Reverse(length), Reverse(literals))
}

/// Returns the paths of a route, the most specific first.
pub(super) fn by_specificity(paths: &[PathPattern]) -> Vec<&PathPattern> {
    let mut paths: Vec<&PathPattern> = paths.iter().collect();
    paths.sort_by_cached_key(|path| pattern_key(path));
    paths
}

/// Returns how many other conditions there are: the lowest wins.
pub(super) fn conditions_key(matcher: &Matcher) -> impl Ord + use<> {
    let by_place = [!matcher.places.countries().is_empty(), !matcher.places.asns().is_empty()];
    let by_place: usize = by_place.map(usize::from).iter().sum();
    let headers = matcher.headers.len() + matcher.certificate.len() + by_place;
    let query = matcher.query.len() + usize::from(matcher.whole_query.is_some());
    (matcher.methods.is_empty(), Reverse(headers), Reverse(query))
}

/// A search with its best route so far.
pub(super) struct Search<'a> {
    ranking: &'a Ranking,
    target: &'a Target<'a>,
    best: Option<usize>,
    /// A route that does not count.
    besides: Option<usize>,
}

impl<'a> Search<'a> {
    pub(super) fn new(ranking: &'a Ranking, target: &'a Target<'a>) -> Self {
        Self { ranking, target, best: None, besides: None }
    }

    /// Returns it without the route of this index, if there is one.
    pub(super) fn besides(self, besides: Option<usize>) -> Self {
        Self { besides, ..self }
    }

    /// Takes the first of the ascending `ranks` that matches, if it is better than the best.
    pub(super) fn offer(&mut self, ranks: &[usize]) {
        let better = ranks.iter().take_while(|rank| self.best.is_none_or(|best| **rank < best));
        let mut better = better.copied();
        let found = better.find(|rank| {
            let Ranked { index, matcher, .. } = &self.ranking.routes[*rank];
            Some(*index) != self.besides && matcher.matches(self.target)
        });
        self.best = found.or(self.best);
    }

    /// Returns whether the best has an exact path: no other path is better.
    pub(super) fn has_exact(&self) -> bool {
        self.best.is_some_and(|best| best < self.ranking.exact_paths)
    }

    pub(super) fn best(&self) -> Option<&'a Ranked> {
        self.best.map(|rank| &self.ranking.routes[rank])
    }
}

/// By what a route comes before another that matches too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advantage {
    /// It names the listener.
    Listener,
    /// Its host is more specific.
    Host,
    /// Its path is more specific.
    Path,
    /// It has more conditions on method, headers or query.
    Conditions,
    /// It is earlier in the file.
    Order,
}

impl Advantage {
    /// Returns what puts `winner` before `other`; both match a request for `host`.
    pub(super) fn of(host: &str, winner: &Ranked, other: &Ranked) -> Self {
        let names = |route: &Ranked| !route.matcher.listeners.is_empty();
        let of_host = |route: &Ranked| {
            let patterns = route.matcher.hosts.iter();
            patterns.filter_map(|pattern| host_key(pattern, host)).min()
        };
        let any = (3, Reverse(0));
        if names(winner) != names(other) {
            Self::Listener
        } else if of_host(winner).unwrap_or(any) != of_host(other).unwrap_or(any) {
            Self::Host
        } else if has_regex(winner) && has_regex(other) {
            Self::Order
        } else if path_key(winner) != path_key(other) {
            Self::Path
        } else if conditions_key(&winner.matcher) != conditions_key(&other.matcher) {
            Self::Conditions
        } else {
            Self::Order
        }
    }
}

fn has_regex(route: &Ranked) -> bool {
    matches!(route.path, PathPattern::Regex(_))
}

/// Returns how specific a pattern is, the lowest most; `None` if it does not match.
fn host_key(pattern: &HostPattern, host: &str) -> Option<(u8, Reverse<usize>)> {
    match pattern.kind() {
        Kind::Exact(name) => (**name == *host).then_some((0, Reverse(0))),
        Kind::Wildcard(suffix) => {
            let matches = host.strip_suffix(&**suffix).is_some_and(|rest| rest.ends_with('.'));
            matches.then_some((1, Reverse(suffix.len())))
        }
        Kind::Below(name) => {
            let matches = host.strip_prefix(&**name).is_some_and(|rest| rest.starts_with('.'));
            matches.then_some((2, Reverse(name.len())))
        }
    }
}

impl fmt::Display for Advantage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Listener => "it names the listener",
            Self::Host => "its host is more specific",
            Self::Path => "its path is more specific",
            Self::Conditions => "it has more conditions",
            Self::Order => "it is earlier in the file",
        })
    }
}

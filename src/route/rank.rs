//! The order of routes, best match first, by all but the host.

use super::{Matcher, PathPattern, Target};
use core::cmp::Reverse;

/// Routes in their order. A route's place here is its rank.
#[derive(Debug, Default)]
pub(super) struct Ranking {
    routes: Vec<Ranked>,
    /// How many routes have an exact path: they come first.
    exact_paths: usize,
}

#[derive(Debug)]
pub(super) struct Ranked {
    /// The route's place in the file.
    pub(super) index: usize,
    pub(super) matcher: Matcher,
}

impl Ranking {
    pub(super) fn new(matchers: Vec<Matcher>) -> Self {
        let indexed = matchers.into_iter().enumerate();
        let mut routes: Vec<Ranked> =
            indexed.map(|(index, matcher)| Ranked { index, matcher }).collect();
        routes.sort_by_cached_key(key);
        let exact_paths =
            routes.partition_point(|route| matches!(route.matcher.path, PathPattern::Exact(_)));
        Self { routes, exact_paths }
    }

    pub(super) fn routes(&self) -> &[Ranked] {
        &self.routes
    }
}

/// Returns what the rank of `route` is decided by, in turn.
fn key(route: &Ranked) -> impl Ord + use<> {
    let Ranked { index, matcher } = route;
    let (kind, literals, regex) = match &matcher.path {
        // Of the exact paths no two match one request.
        PathPattern::Exact(_) => (0, 0, 0),
        PathPattern::Template(path) => (1, path.literals(), 0),
        PathPattern::Prefix(path) => (2, path.literals(), 0),
        PathPattern::Regex(_) => (3, 0, *index),
        PathPattern::Any => (4, 0, 0),
    };
    let conditions =
        (matcher.methods.is_empty(), Reverse(matcher.headers.len()), Reverse(matcher.query.len()));
    (kind, Reverse(literals), regex, conditions, *index)
}

/// A request in search of its route, and the best that it has met.
pub(super) struct Search<'a> {
    ranking: &'a Ranking,
    target: &'a Target<'a>,
    best: Option<usize>,
}

impl<'a> Search<'a> {
    pub(super) fn new(ranking: &'a Ranking, target: &'a Target<'a>) -> Self {
        Self { ranking, target, best: None }
    }

    /// Takes the first of `ranks`, which rise, whose method, header and query match, if
    /// it is better than the best.
    pub(super) fn offer(&mut self, ranks: &[usize]) {
        let better = ranks.iter().take_while(|rank| self.best.is_none_or(|best| **rank < best));
        let found =
            better.copied().find(|rank| self.ranking.routes[*rank].matcher.admits(self.target));
        self.best = found.or(self.best);
    }

    /// Returns whether the best has an exact path, which no other path betters.
    pub(super) fn has_exact(&self) -> bool {
        self.best.is_some_and(|best| best < self.ranking.exact_paths)
    }

    /// Returns the best route.
    pub(super) fn best(&self) -> Option<&'a Ranked> {
        self.best.map(|rank| &self.ranking.routes[rank])
    }
}

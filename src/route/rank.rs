//! The order of routes, best match first, apart from the host.

use super::{Matcher, PathPattern, Target};
use core::cmp::Reverse;
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
    let (kind, literals, regex) = match path {
        // No two exact paths match the same request.
        PathPattern::Exact(_) => (0, 0, 0),
        PathPattern::Template(path) => (1, path.literals(), 0),
        PathPattern::Prefix(path) => (2, path.literals(), 0),
        PathPattern::Regex(_) => (3, 0, *index),
        PathPattern::Any => (4, 0, 0),
    };
    (kind, Reverse(literals), regex)
}

/// Returns how many other conditions there are: the lowest wins.
pub(super) fn conditions_key(matcher: &Matcher) -> impl Ord + use<> {
    (matcher.methods.is_empty(), Reverse(matcher.headers.len()), Reverse(matcher.query.len()))
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

//! The order of a server's routes, in which flowgate chooses as nginx does among locations.
//!
//! nginx takes an exact location, or else the longest prefix; regular expressions come before that
//! unless it has `^~`. flowgate takes an exact path, the longest prefix by whole segments, regular
//! expressions in the order of the file, and at last `path_prefix: /`.
//!
//! Regular expressions within prefixes, in their places among the routes of a server.
//!
//! They are asked once their prefix is the longest of its level, and before those of the levels
//! around it. So their routes take paths that begin so, behind the locations that nginx finds first.
//!
//! The match of a location's route, or of one that closes its paths.

use super::{
    access::guards,
    locations::{Kind, Location, kind},
    pattern::{at_least, begins_with, encoded, path_regex, path_regex_within},
    report::ImportReport,
    tree::{Directive, Scope},
};
use core::cmp::Reverse;
use serde_json::{Value, json};

/// Returns the locations in the order of their routes. With `is_by_regex`, those of prefixes come in
/// the order of the file, behind other regular expressions.
pub(super) fn ordered<'a>(
    all: &[Location<'a>],
    scope: &Scope<'a>,
    is_by_regex: bool,
    report: &mut ImportReport,
) -> Vec<Matched<'a>> {
    let mut routes: Vec<_> = all
        .iter()
        .filter_map(|location| match location.kind {
            Kind::Exact(path) => Some(Matched::new(location, "path", json!(encoded(path)))),
            Kind::Prefix(..) | Kind::Regex(..) => None,
        })
        .collect();

    let mut prefixes: Vec<_> =
        all.iter().filter(|location| matches!(location.kind, Kind::Prefix(..))).collect();
    prefixes.sort_by_key(|location| Reverse(prefix(location).map_or(0, str::len)));

    let is_regex = |location: &&Location<'_>| matches!(location.kind, Kind::Regex(..));
    let (regexes, inner): (Vec<_>, Vec<_>) =
        all.iter().filter(is_regex).partition(|location| location.prefix.is_none());
    let has_regexes = !regexes.is_empty() || !inner.is_empty();

    if !has_regexes && !is_by_regex && prefixes.iter().all(|location| is_segments(location, all)) {
        routes.extend(prefixes.into_iter().map(|location| {
            let path = prefix(location).unwrap_or_default();
            let path = path.strip_suffix('/').filter(|path| !path.is_empty()).unwrap_or(path);
            with_redirect(Matched::new(location, "path_prefix", json!(encoded(path))), all)
        }));
        return routes;
    }

    let is_first = |location: &&Location<'_>| !regexes.is_empty() && stops(location, all);
    let (first, last): (Vec<_>, Vec<_>) = prefixes.into_iter().partition(is_first);
    let server = Locations { all, scope };
    let mut first: Vec<_> = first.iter().map(|location| by_regex(location, all, true)).collect();
    let mut last: Vec<_> = last.iter().map(|location| by_regex(location, all, false)).collect();

    let middle = if regexes.is_empty() {
        last = insert(&inner, last, server, report);
        Vec::new()
    } else {
        let (own, other): (Vec<_>, Vec<_>) =
            inner.into_iter().partition(|regex| index_among(regex, &first).is_some());
        first = insert(&own, first, server, report);
        between(&other, &first, server, report)
    };

    for route in first {
        let Kind::Prefix(path, false) = route.location.kind else {
            routes.push(route);
            continue;
        };
        // A shorter location has `^~`, whose route comes before the regular expressions.
        let within = |regex: &&Location<'a>| server.within(regex, path, report);
        routes.extend(regexes.iter().filter_map(within));
        routes.push(route);
    }

    routes.extend(middle);
    routes.extend(regexes.iter().filter_map(|regex| server.anywhere(regex, report)));
    routes.extend(last);
    routes
}

fn prefix<'a>(location: &Location<'a>) -> Option<&'a str> {
    match location.kind {
        Kind::Prefix(path, _) => Some(path),
        Kind::Exact(_) | Kind::Regex(..) => None,
    }
}

/// Reports whether whole segments begin like this prefix, or the path between is another's.
fn is_segments(location: &Location<'_>, all: &[Location<'_>]) -> bool {
    let path = prefix(location).unwrap_or_default();
    let Some(shorter) = path.strip_suffix('/') else { return false };
    shorter.is_empty() || is_passing(location.block) || has_exact(shorter, all)
}

/// Reports whether a prefix comes before the regular expressions of the server: they are not asked
/// once it, or a shorter one whose route would take its paths, is the longest.
fn stops(location: &Location<'_>, all: &[Location<'_>]) -> bool {
    let Kind::Prefix(path, stops) = location.kind else { return false };
    let is_below = |other: &Location<'_>| matches!(other.kind, Kind::Prefix(outer, true) if path.starts_with(outer) && outer != path);
    stops || all.iter().any(is_below)
}

/// Matches a prefix in its place among the regular expressions of the file.
fn by_regex<'a>(location: &Location<'a>, all: &[Location<'a>], is_before: bool) -> Matched<'a> {
    let path = prefix(location).unwrap_or_default();
    if path == "/" && !is_before {
        return Matched::new(location, "path_prefix", json!("/"));
    }
    with_redirect(Matched::new(location, "path_regex", json!(begins_with(&encoded(path)))), all)
}

/// Adds that nginx redirects `/api` to `/api/` if only the latter has a location that passes on.
fn with_redirect<'a>(mut route: Matched<'a>, all: &[Location<'a>]) -> Matched<'a> {
    let path = prefix(&route.location).unwrap_or_default();
    let shorter = path.strip_suffix('/').filter(|shorter| !shorter.is_empty());
    let is_free = |shorter: &&str| {
        !has_exact(shorter, all) && !all.iter().any(|other| prefix(other) == Some(*shorter))
    };
    if is_passing(route.location.block) {
        route.redirects = shorter.filter(is_free).map(encoded);
    }
    route
}

fn has_exact(path: &str, all: &[Location<'_>]) -> bool {
    all.iter().any(|location| location.kind == Kind::Exact(path))
}

/// Reports whether a location passes requests to another server.
fn is_passing(block: &Directive) -> bool {
    let scope = Scope(vec![block]);
    let ways =
        ["proxy_pass", "fastcgi_pass", "uwsgi_pass", "scgi_pass", "grpc_pass", "memcached_pass"];
    !scope.all(&ways).is_empty()
}

/// Returns where the route of a regular expression belongs among those of prefixes.
pub(super) fn index_among(regex: &Location<'_>, routes: &[Matched<'_>]) -> Option<usize> {
    routes.iter().position(|route| is_behind(&route.location, regex))
}

/// Inserts the routes of regular expressions before those of their prefixes.
pub(super) fn insert<'a>(
    regexes: &[&Location<'a>],
    mut routes: Vec<Matched<'a>>,
    server: Locations<'a, '_>,
    report: &mut ImportReport,
) -> Vec<Matched<'a>> {
    for regex in innermost_first(regexes) {
        let at = index_among(regex, &routes).unwrap_or(routes.len());
        let behind = routes.split_off(at);
        let (before, behind): (Vec<_>, Vec<_>) =
            behind.into_iter().partition(|route| is_before(&route.location, regex));
        routes.extend(before);
        // Its paths follow once all are in their places.
        routes.push(Matched::new(regex, "path_regex", Value::Null));
        routes.extend(behind);
    }

    with_paths(&[], routes, server, report)
}

/// Returns the routes of regular expressions that come behind `first` and before those of the server.
pub(super) fn between<'a>(
    regexes: &[&Location<'a>],
    first: &[Matched<'a>],
    server: Locations<'a, '_>,
    report: &mut ImportReport,
) -> Vec<Matched<'a>> {
    let all = innermost_first(regexes).into_iter();
    let routes = all.map(|regex| Matched::new(regex, "path_regex", Value::Null));
    with_paths(first, routes.collect(), server, report)
}

fn innermost_first<'a, 's>(regexes: &[&'s Location<'a>]) -> Vec<&'s Location<'a>> {
    let mut all = regexes.to_vec();
    all.sort_by_key(|regex| Reverse(regex.around.len()));
    all
}

/// Returns routes that come behind those of `first`, with the paths of regular expressions.
fn with_paths<'a>(
    first: &[Matched<'a>],
    routes: Vec<Matched<'a>>,
    server: Locations<'a, '_>,
    report: &mut ImportReport,
) -> Vec<Matched<'a>> {
    let places = first.iter().chain(&routes).map(|route| route.location.block.id);
    let places: Vec<_> = places.collect();

    let mut all = Vec::new();
    for (at, route) in routes.into_iter().enumerate() {
        let location = &route.location;
        let (Kind::Regex(..), Some(path)) = (location.kind, location.prefix) else {
            all.push(route);
            continue;
        };

        let earlier = &places[..first.len() + at];
        let late = server
            .all
            .iter()
            .find(|other| is_before(other, location) && !earlier.contains(&other.block.id));

        all.extend(match late {
            Some(other) => {
                let why = format!("its route would also take paths of `{}`", other.block.words());
                server.closed(location, &begins_with(&encoded(path)), &why, report)
            }
            None => server.within(location, path, report),
        });
    }
    all
}

/// Reports whether nginx finds a location before a regular expression within a prefix, for some of
/// that prefix's paths.
fn is_before(other: &Location<'_>, regex: &Location<'_>) -> bool {
    let around = regex.around.last().map(|block| block.id);
    let begin = match other.kind {
        Kind::Exact(_) => None,
        Kind::Prefix(path, _) => Some(path).filter(|_| !is_behind(other, regex)),
        Kind::Regex(..) => {
            other.prefix.filter(|_| other.around.last().map(|block| block.id) != around)
        }
    };

    begin.zip(regex.prefix).is_some_and(|(begin, path)| begin.starts_with(path))
}

/// Reports whether a prefix is asked after a regular expression: it is the one around it, or within
/// that one without a `^~`.
fn is_behind(location: &Location<'_>, regex: &Location<'_>) -> bool {
    let Some(around) = regex.around.last() else { return false };
    if !matches!(location.kind, Kind::Prefix(..)) {
        return false;
    }
    let mut blocks = location.around.iter().chain([&location.block]);
    if !blocks.any(|block| block.id == around.id) {
        return false;
    }
    blocks.next().is_none_or(|inner| !matches!(kind(inner), Some(Kind::Prefix(_, true))))
}

/// A location with the match of its route.
#[derive(Clone, Debug)]
pub(super) struct Matched<'a> {
    pub location: Location<'a>,
    /// A key of `match` and its value.
    pub path: (&'static str, Value),
    /// The path without its last slash, which nginx redirects to the one with it.
    pub redirects: Option<String>,
    /// The match takes more paths than the location, which keeps clients out: all get 403.
    pub is_closed: bool,
}

/// The locations of a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Locations<'a, 's> {
    pub all: &'s [Location<'a>],
    /// The scope of the server.
    pub scope: &'s Scope<'a>,
}

impl<'a> Matched<'a> {
    /// Returns the server itself as the location of all paths that have none.
    pub(super) fn of_server(block: &'a Directive) -> Self {
        let kind = Kind::Prefix("/", false);
        let location = Location { kind, block, around: Vec::new(), prefix: None, is_closed: false };
        Self::new(&location, "path_prefix", json!("/"))
    }

    pub(super) fn new(location: &Location<'a>, key: &'static str, value: Value) -> Self {
        let is_closed = location.is_closed;
        Self { location: location.clone(), path: (key, value), redirects: None, is_closed }
    }
}

impl<'a> Locations<'a, '_> {
    /// Returns the route of a regular expression of the server.
    pub(super) fn anywhere(
        self,
        location: &Location<'a>,
        report: &mut ImportReport,
    ) -> Option<Matched<'a>> {
        let Kind::Regex(text, ignores_case) = location.kind else { return None };
        match path_regex(text, ignores_case) {
            Ok(regex) => Some(Matched::new(location, "path_regex", json!(regex))),
            Err(why) => self.closed(location, &at_least(text, ignores_case), &why, report),
        }
    }

    /// Returns the route of a regular expression for the paths that begin so.
    pub(super) fn within(
        self,
        location: &Location<'a>,
        path: &str,
        report: &mut ImportReport,
    ) -> Option<Matched<'a>> {
        let Kind::Regex(text, ignores_case) = location.kind else { return None };

        match path_regex_within(path, text, ignores_case) {
            Ok(Some(regex)) => Some(Matched::new(location, "path_regex", json!(regex))),
            Ok(None) => {
                report.take_all(location.block);
                None
            }
            Err(why) => self.closed(location, &begins_with(&encoded(path)), &why, report),
        }
    }

    /// Returns a route that rejects all paths of `regex` in place of a location that is no route,
    /// if that keeps clients out which another location lets in.
    pub(super) fn closed(
        self,
        location: &Location<'a>,
        regex: &str,
        why: &str,
        report: &mut ImportReport,
    ) -> Option<Matched<'a>> {
        // One line for all of it.
        report.take_all(location.block);

        let kept = guards(&location.scope(self.scope));
        let is_open = |other: &Location<'a>| guards(&other.scope(self.scope)) != kept;
        if kept.is_empty() || !self.all.iter().any(is_open) {
            report.note(location.block, format!("{why}; there is no route for it"));
            return None;
        }

        report.block(
            location.block,
            format!("{why}. It keeps clients out: all paths that match `{regex}` get 403"),
            None,
        );

        let route = Matched::new(location, "path_regex", json!(regex));
        Some(Matched { is_closed: true, ..route })
    }
}

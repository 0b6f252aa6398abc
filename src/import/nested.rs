//! Regular expressions within prefixes, in their places among the routes of a server.
//!
//! They are asked once their prefix is the longest of its level, and before those of the levels
//! around it. So their routes take paths that begin so, behind the locations that nginx finds first.

use super::{
    locations::{Kind, Location, kind},
    matched::{Locations, Matched},
    pattern::{begins_with, encoded},
    report::ImportReport,
};
use core::cmp::Reverse;
use serde_json::Value;

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

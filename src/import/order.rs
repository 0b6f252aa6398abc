//! The order of a server's routes, in which flowgate chooses as nginx does among locations.
//!
//! nginx takes an exact location, or else the longest prefix; regular expressions come before that
//! unless it has `^~`. flowgate takes an exact path, the longest prefix by whole segments, regular
//! expressions in the order of the file, and at last `path_prefix: /`.

use super::{
    locations::{Kind, Location},
    pattern::{begins_with, path_regex},
    report::Report,
    scope::Scope,
    tree::Directive,
};
use crate::route::literal_path;
use serde_json::{Value, json};

/// A location with the match of its route.
#[derive(Clone, Debug)]
pub(super) struct Matched<'a> {
    pub location: Location<'a>,
    /// A key of `match` and its value.
    pub path: (&'static str, Value),
    /// The path without its last slash, which nginx redirects to the one with it.
    pub redirects: Option<String>,
}

/// Returns the locations in the order of their routes.
pub(super) fn ordered<'a>(all: &[Location<'a>], report: &mut Report) -> Vec<Matched<'a>> {
    let mut routes: Vec<_> = all
        .iter()
        .filter_map(|location| match location.kind {
            Kind::Exact(path) => Some(matched(location, "path", json!(encoded(path)))),
            Kind::Prefix(..) | Kind::Regex(..) => None,
        })
        .collect();
    let mut prefixes: Vec<_> =
        all.iter().filter(|it| matches!(it.kind, Kind::Prefix(..))).collect();
    prefixes.sort_by_key(|location| core::cmp::Reverse(prefix(location).map_or(0, str::len)));
    let regexes: Vec<_> = all.iter().filter(|it| matches!(it.kind, Kind::Regex(..))).collect();
    if regexes.is_empty() && prefixes.iter().all(|location| is_segments(location, all)) {
        routes.extend(prefixes.into_iter().map(|location| {
            let path = prefix(location).unwrap_or_default();
            let path = path.strip_suffix('/').filter(|path| !path.is_empty()).unwrap_or(path);
            with_redirect(matched(location, "path_prefix", json!(encoded(path))), all)
        }));
        return routes;
    }
    let (first, last): (Vec<_>, Vec<_>) =
        prefixes.into_iter().partition(|location| stops(location, all, &regexes, report));
    routes.extend(first.into_iter().map(|location| by_regex(location, all, !regexes.is_empty())));
    for location in regexes {
        let Kind::Regex(text, ignores_case) = location.kind else { continue };
        match path_regex(text, ignores_case) {
            Ok(regex) => routes.push(matched(location, "path_regex", json!(regex))),
            Err(why) => report.note(location.block, format!("{why}; there is no route for it")),
        }
    }
    routes.extend(last.into_iter().map(|location| by_regex(location, all, false)));
    routes
}

fn matched<'a>(location: &Location<'a>, key: &'static str, value: Value) -> Matched<'a> {
    Matched { location: location.clone(), path: (key, value), redirects: None }
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

/// Reports whether regular expressions are not asked once this prefix is the longest.
fn stops(
    location: &Location<'_>,
    all: &[Location<'_>],
    regexes: &[&Location<'_>],
    report: &mut Report,
) -> bool {
    let Kind::Prefix(path, stops) = location.kind else { return false };
    let is_below = |other: &Location<'_>| matches!(other.kind, Kind::Prefix(outer, true) if path.starts_with(outer) && outer != path);
    if stops || regexes.is_empty() || !all.iter().any(is_below) {
        return stops;
    }
    report.note(
        location.block,
        "a shorter location has `^~`: regular expressions are not asked before this one either",
    );
    true
}

/// Matches a prefix in its place among the regular expressions of the file.
fn by_regex<'a>(location: &Location<'a>, all: &[Location<'a>], is_before: bool) -> Matched<'a> {
    let path = prefix(location).unwrap_or_default();
    if path == "/" && !is_before {
        return matched(location, "path_prefix", json!("/"));
    }
    with_redirect(matched(location, "path_regex", json!(begins_with(&encoded(path)))), all)
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

/// Returns a path as requests have it: nginx compares it without its escapes.
fn encoded(path: &str) -> String {
    literal_path(&path.replace('%', "%25")).into_owned()
}

//! The order of a server's routes, in which flowgate chooses as nginx does among locations.
//!
//! nginx takes an exact location, or else the longest prefix; regular expressions come before that
//! unless it has `^~`. flowgate takes an exact path, the longest prefix by whole segments, regular
//! expressions in the order of the file, and at last `path_prefix: /`.

use super::{
    locations::{Kind, Location},
    matched::{Locations, Matched},
    nested,
    pattern::{begins_with, encoded},
    report::ImportReport,
    scope::Scope,
    tree::Directive,
};
use serde_json::json;

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
    prefixes.sort_by_key(|location| core::cmp::Reverse(prefix(location).map_or(0, str::len)));
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
        last = nested::insert(&inner, last, server, report);
        Vec::new()
    } else {
        let (own, other): (Vec<_>, Vec<_>) =
            inner.into_iter().partition(|regex| nested::index_among(regex, &first).is_some());
        first = nested::insert(&own, first, server, report);
        nested::between(&other, &first, server, report)
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

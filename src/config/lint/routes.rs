//! Routes that no request gets, that a client avoids, or that lead in circles.

use super::Findings;
use crate::{
    config::{
        diagnostics::{Lint, Problem},
        plan::{Access, Action, Plan, RoutePlan},
    },
    geo::Located,
    route::{Matcher, PathPattern, Table, Target},
};
use ahash::AHashMap;
use http::{HeaderMap, Method};
use std::sync::Arc;

/// Returns what restricts the clients of a route, as the beginning of a sentence.
fn guard(route: &RoutePlan) -> Option<&'static str> {
    let is_in_force = |rules: &RoutePlan| rules.rules.iter().any(|rule| !rule.dry_run);
    if route.options.auth.is_some() {
        Some("its `auth` does")
    } else if route.options.access.as_ref().is_some_and(Access::names_clients) {
        Some("its `access` does")
    } else {
        (is_in_force(route) || route.flow.pacing.is_some()).then_some("its rules do")
    }
}

/// True if every request for the hosts of a route gets this route or one with a more specific path.
fn takes_hosts(matcher: &Matcher) -> bool {
    !matcher.hosts.is_empty()
        && takes_all_paths(matcher)
        && matcher.methods.is_empty()
        && matcher.headers.is_empty()
        && matcher.query.is_empty()
        && matcher.certificate.is_empty()
        && matcher.places.is_empty()
        && matcher.whole_query.is_none()
}

fn takes_all_paths(matcher: &Matcher) -> bool {
    matcher.paths.is_empty() || matcher.paths.contains(&PathPattern::Any)
}

/// The most routes of hosts that are compared with each route that has rules.
const MOST_COMPARED: usize = 100;

/// Returns a path for each path of a route, but for regular expressions.
fn examples(matcher: &Matcher) -> Vec<String> {
    let written = matcher.paths.iter().map(ToString::to_string);
    let paths = written.filter(|path| path.starts_with('/'));
    paths.map(|path| path.trim_end_matches("/*").to_owned()).collect()
}

/// True if the route `open` gets a request for one of its hosts and of `paths`. It does not, if the host has
/// a more specific route.
fn takes_path(table: &Table, open: usize, paths: &[String], method: &Method) -> bool {
    let Some(matcher) = table.matcher(open) else { return false };
    let headers = HeaderMap::new();
    let found = |host: &str, path: &str| {
        table.find(&Target {
            listener: matcher.listeners.first().map(|name| &**name),
            certificate: None,
            place: Located::default(),
            identity: None,
            body: None,
            host,
            path,
            query: None,
            method,
            headers: (&headers).into(),
        })
    };
    // A wildcard stands for any name below it.
    let mut hosts = matcher.hosts.iter().map(|host| host.to_string().replacen('*', "a", 1));
    hosts.any(|host| paths.iter().any(|path| found(&host, path) == Some(open)))
}

/// Warns of routes for a path that have rules and name no host, beside a route for all paths of a host
/// that has none and leads to the same upstream: the host decides before the path.
pub(super) fn bypassed(plan: &Plan, findings: &mut Findings) {
    let all = || {
        plan.routes.iter().enumerate().filter_map(|(index, route)| {
            let Action::Forward(upstream) = route.action else { return None };
            Some((index, route, upstream, plan.table.matcher(index)?))
        })
    };

    let mut open: AHashMap<(usize, Option<&Arc<str>>), Vec<usize>> = AHashMap::new();
    for (index, route, upstream, matcher) in all() {
        if guard(route).is_none() && route.options.rewrite.is_none() && takes_hosts(matcher) {
            let any = matcher.listeners.is_empty().then_some(None);
            for listener in matcher.listeners.iter().map(Some).chain(any) {
                open.entry((upstream, listener)).or_default().push(index);
            }
        }
    }

    for (_, route, upstream, matcher) in all() {
        let is_narrow = matcher.hosts.is_empty() && !takes_all_paths(matcher);
        let Some(guard) = guard(route).filter(|_| is_narrow) else { continue };
        let any = matcher.listeners.is_empty().then_some(None);
        let listeners = matcher.listeners.iter().map(Some).chain(any);

        let paths = examples(matcher);
        let method = matcher.methods.first().unwrap_or(&Method::GET);
        let takes = |other: &usize| takes_path(&plan.table, *other, &paths, method);
        let open = listeners.filter_map(|listener| open.get(&(upstream, listener)));
        let found = open.flatten().take(MOST_COMPARED).copied().find(takes);
        if let Some(other) = found {
            findings.add(bypass(route, &plan.routes[other], guard));
        }
    }
}

fn bypass(route: &RoutePlan, other: &RoutePlan, guard: &str) -> Problem {
    let message =
        format!("a client avoids the route `{}` by sending a host of `{}`", route.name, other.name);
    Problem::warning(Lint::BypassedRoute, route.span, message)
        .label(format!("{guard} not hold for that host"))
        .also(other.span, format!("`{}` comes first, and has the same upstream", other.name))
        .help("write a second route with this path and that `host`, or the same in that route")
}

/// Warns of routes that no request can get, because other ones take all of them.
pub(super) fn unreachable(plan: &Plan, findings: &mut Findings) {
    let routes = &plan.routes;
    let listeners: Vec<_> =
        plan.listeners.iter().map(|listener| Arc::clone(&listener.name)).collect();

    for (earlier, later) in plan.table.shadowed(&listeners) {
        let has_listener =
            |route| plan.table.matcher(route).is_some_and(|matcher| !matcher.listeners.is_empty());
        let by_listeners = earlier.iter().all(|route| has_listener(*route)) && !has_listener(later);

        let (label, help) = if by_listeners {
            (
                "every listener has a route that takes all requests first",
                "name a `listener` here too, so that this route comes first, or remove it",
            )
        } else {
            (
                "other routes with the same conditions come first",
                "remove it, or write a more specific `match`",
            )
        };

        let message = format!("the route `{}` can never be reached", routes[later].name);
        let problem = Problem::warning(Lint::UnreachableRoute, routes[later].span, message);
        let problem = earlier.iter().fold(problem.label(label), |problem, route| {
            let earlier = &routes[*route];
            problem.also(earlier.span, format!("`{}` comes first", earlier.name))
        });
        findings.add(problem.help(help));
    }
}

/// Warns of routes that redirect requests to their own URL: those of TLS to https.
pub(super) fn redirected_to_themselves(plan: &Plan, findings: &mut Findings) {
    for (index, route) in plan.routes.iter().enumerate() {
        let Action::Redirect(redirect) = &route.action else { continue };
        let Some(matcher) = plan.table.matcher(index) else { continue };
        let has_conditions = !matcher.headers.is_empty()
            || !matcher.certificate.is_empty()
            || !matcher.places.is_empty();
        if !redirect.is_to_https_alone() || has_conditions {
            continue;
        }

        let takes = |name| matcher.listeners.is_empty() || matcher.listeners.contains(name);
        let mut by_tls = plan.listeners.iter().filter(|listener| listener.tls.is_some());
        if let Some(listener) = by_tls.find(|listener| takes(&listener.name)) {
            let message = format!(
                "requests of the listener `{}` are redirected to their own URL",
                listener.name
            );
            findings.add(
                Problem::warning(Lint::RedirectLoop, route.span, message)
                    .label("takes them too")
                    .help("write `match: { listener: … }` with a listener that has no `tls`"),
            );
        }
    }
}

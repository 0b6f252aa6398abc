//! Rules of which a client gets more by what it sends.

use super::{Findings, never_rejects::is_stricter};
use crate::{
    config::{
        diagnostics::{Lint, Problem},
        plan::{Access, Listener, Plan, RoutePlan, RulePlan},
    },
    route::{HostPattern, KeyPart, KeySpec, Matcher, PathPattern},
};
use std::{borrow::Cow, sync::Arc};

/// Warns of a rule by a key that a client may choose, in a route without one that holds whatever it
/// sends.
pub(super) fn chosen_keys(plan: &Plan, findings: &mut Findings) {
    for route in plan.routes.iter().filter(|route| !is_bounded(route)) {
        if let Some(rule) = route.rules.iter().find(|rule| !rule.dry_run && is_chosen(rule)) {
            findings.add(chosen(rule));
        }
    }
}

/// Notes a rule by path or host in a route where clients choose these, and where no other rule holds
/// whatever they choose.
pub(super) fn chosen_targets(plan: &Plan, findings: &mut Findings) {
    for (index, route) in plan.routes.iter().enumerate() {
        let Some(matcher) = plan.table.matcher(index).filter(|_| !is_bounded(route)) else {
            continue;
        };
        let counts = route.rules.iter().filter(|rule| !rule.dry_run && !is_chosen(rule));
        let mut chosen = counts.filter_map(|rule| Some((rule, chosen_target(rule, matcher)?)));
        if let Some((rule, part)) = chosen.next() {
            findings.add(chosen_by_target(rule, &part));
        }
    }
}

/// Warns of rules that admit more if a client sends a certain field.
pub(super) fn chosen_overrides(plan: &Plan, findings: &mut Findings) {
    if has_proxy(plan) {
        return;
    }

    for route in plan.routes.iter().filter(|route| !knows_clients(route)) {
        let mut rules = route.rules.iter().enumerate().filter(|(_, rule)| !rule.dry_run);
        let chosen = |(index, rule)| Some((rule, chosen_field(route, index, rule)?));
        let Some((rule, field)) = rules.find_map(chosen) else { continue };

        let message = format!("any client gets more of `{}` by sending a field", rule.name);
        findings.add(
            Problem::warning(Lint::ClientChosenOverride, rule.span, message)
                .label(format!("more by `{field}`"))
                .help(
                    "write the secret that only such clients know, as in \
                     `header:x-api-key: ${PARTNER_KEY}`, or `client_ip`, or prove who clients are \
                     by `auth`",
                ),
        );
    }
}

/// Warns of plans that clients choose by sending a field.
pub(super) fn chosen_plans(plan: &Plan, findings: &mut Findings) {
    if has_proxy(plan) {
        return;
    }

    for rule in open_rules(plan) {
        let Some(plans) = rule.plans.as_ref().filter(|plans| *plans.by() != rule.key) else {
            continue;
        };
        let Some(part) = plans.by().parts().iter().find(|part| part.is_sent()) else { continue };
        let message = format!("any client chooses its plan of `{}`", rule.name);
        findings.add(
            Problem::warning(Lint::ClientChosenOverride, rule.span, message)
                .label(format!("by sending `{part}`"))
                .help(
                    "write what clients cannot choose, as in `by: jwt:plan` with `auth`, or \
                     `by: key` with a file of the keys that you gave out",
                ),
        );
    }
}

/// Warns of queues in whose order clients choose their place by sending a field.
pub(super) fn chosen_turns(plan: &Plan, findings: &mut Findings) {
    if has_proxy(plan) {
        return;
    }

    for rule in open_rules(plan) {
        let keys = rule.shares.iter().flat_map(|shares| shares.keys());
        let Some(part) = keys.flat_map(KeySpec::parts).find(|part| part.is_sent()) else {
            continue;
        };
        let message = format!("any client chooses its turn in the queue of `{}`", rule.name);
        findings.add(
            Problem::warning(Lint::ClientChosenKey, rule.span, message)
                .label(format!("by sending `{part}`"))
                .help(
                    "write what clients cannot choose, as in `jwt:tenant` with `auth`, or \
                     `client_ip`; or have a proxy in front set the field, and name that proxy in \
                     `trusted_proxies`",
                ),
        );
    }
}

/// Returns the rules that clients meet without proving who they are.
fn open_rules(plan: &Plan) -> impl Iterator<Item = &RulePlan> {
    let open: Vec<_> = plan.routes.iter().filter(|route| !knows_clients(route)).collect();
    let is_met =
        |index: usize| open.iter().any(|route| route.groups.iter().any(|met| met.index == index));
    let shared = plan.groups.iter().enumerate().filter(|(index, _)| is_met(*index));
    let shared: Vec<_> = shared.flat_map(|(_, group)| &group.rules).collect();
    open.into_iter().flat_map(|route| &route.rules).chain(shared)
}

/// True if a proxy in front is trusted, which may set the fields that clients send.
fn has_proxy(plan: &Plan) -> bool {
    let is_behind = |listener: &Arc<Listener>| {
        let own = listener.trusted_proxies.as_ref();
        own.is_some_and(|list| !list.is_empty()) || listener.proxy_protocol
    };
    !plan.settings.trusted_proxies.is_empty() || plan.listeners.iter().any(is_behind)
}

/// True if the route knows its clients, or has a rule that holds whatever they send.
fn is_bounded(route: &RoutePlan) -> bool {
    let has_rule = route.rules.iter().any(holds_for_all) || route.flow.pacing.is_some();
    knows_clients(route) || has_rule
}

/// True if `auth` or the client's certificate proves the part, so that a client cannot choose it.
const fn is_proven(part: &KeyPart) -> bool {
    matches!(part, KeyPart::User | KeyPart::Jwt(_) | KeyPart::Auth(_) | KeyPart::ClientCert)
}

/// Returns the field that any client can send to be exempt from a rule, or to get another version of
/// it that admits more. A field in the rule's key says which client it is.
fn chosen_field<'r>(route: &RoutePlan, index: usize, rule: &'r RulePlan) -> Option<&'r str> {
    let is_key = |field: &str| {
        rule.key.parts().iter().any(|part| part.to_string().eq_ignore_ascii_case(field))
    };
    let exempt = rule.except.as_ref().and_then(|except| except.chosen_field());
    let admits_more = || {
        let when = rule.when.as_ref()?.chosen_field()?;
        let is_base = |other: &RulePlan| other.name == rule.name && other.when.is_none();
        let base = route.rules.iter().position(is_base)?;
        let [base, version] = [base, index].map(|at| &route.flow.flow[at].algorithm);
        (base != version && is_stricter(base, version)).then_some(when)
    };
    exempt.or_else(admits_more).filter(|field| !is_key(field))
}

/// Reports whether only clients that are known may use the route.
fn knows_clients(route: &RoutePlan) -> bool {
    route.options.auth.is_some() || route.options.access.as_ref().is_some_and(Access::names_clients)
}

/// True if a client cannot get more of a rule by sending something else.
fn holds_for_all(rule: &RulePlan) -> bool {
    let is_fixed = |part: &KeyPart| match part {
        KeyPart::Route
        | KeyPart::ClientIp { .. }
        | KeyPart::Listener
        | KeyPart::Method
        | KeyPart::User
        | KeyPart::Jwt(_)
        | KeyPart::Auth(_)
        | KeyPart::ClientCert
        | KeyPart::Country
        | KeyPart::Asn => true,
        KeyPart::Host
        | KeyPart::Path
        | KeyPart::Segment(_)
        | KeyPart::Header(_)
        | KeyPart::Cookie(_)
        | KeyPart::Query(_)
        | KeyPart::Json(_) => false,
    };
    !rule.dry_run && rule.key.parts().iter().all(is_fixed)
}

/// True if a client chooses under which key it counts: each new value has a new count.
fn is_chosen(rule: &RulePlan) -> bool {
    let parts = rule.key.parts();
    parts.iter().any(KeyPart::is_sent) && !parts.iter().any(is_proven)
}

/// Returns the part of a rule's key, `path`, `host` or `{org}`, of which a client that the rule does
/// not tell from others may choose among any number of values.
fn chosen_target<'r>(rule: &'r RulePlan, matcher: &Matcher) -> Option<Cow<'r, str>> {
    let is_path = |path: &PathPattern| matches!(path, PathPattern::Exact(_));
    let has_paths = !matcher.paths.is_empty() && matcher.paths.iter().all(is_path);
    let has_hosts = !matcher.hosts.is_empty() && matcher.hosts.iter().all(HostPattern::is_exact);
    let parts = rule.key.parts();
    if parts.iter().any(is_proven) {
        return None;
    }
    parts.iter().find_map(|part| match part {
        KeyPart::Path => Some("path".into()).filter(|_| !has_paths),
        KeyPart::Host => Some("host".into()).filter(|_| !has_hosts),
        KeyPart::Segment(segment) => Some(format!("`{{{}}}`", segment.name()).into()),
        KeyPart::Route
        | KeyPart::ClientIp { .. }
        | KeyPart::Listener
        | KeyPart::Method
        | KeyPart::User
        | KeyPart::Header(_)
        | KeyPart::Cookie(_)
        | KeyPart::Query(_)
        | KeyPart::Jwt(_)
        | KeyPart::Auth(_)
        | KeyPart::Json(_)
        | KeyPart::ClientCert
        | KeyPart::Country
        | KeyPart::Asn => None,
    })
}

fn chosen_by_target(rule: &RulePlan, part: &str) -> Problem {
    let message = format!("a client gets more of `{}` by asking for another {part}", rule.name);
    let example = match part {
        "path" => Some("/login"),
        "host" => Some("shop.example.com"),
        _ => None,
    };
    let naming = example.map(|example| {
        format!("; or name each {part} in the route's `match`, as in `{part}: {example}`")
    });
    Problem::note(Lint::ClientChosenTarget, message)
        .at(rule.span)
        .label(format!("counts by {}, and the route takes any {part}", rule.key))
        .help(format!(
            "write a rule with `key: client_ip` beside it, or one without a key{}",
            naming.unwrap_or_default()
        ))
}

fn chosen(rule: &RulePlan) -> Problem {
    let message = format!("a client gets more of `{}` by sending another key", rule.name);
    let names_client = rule.key.parts().iter().any(|part| {
        let KeyPart::Header(name) = part else { return false };
        ["x-forwarded-for", "x-real-ip", "forwarded"].contains(&name.as_str())
    });
    let help = if names_client {
        "write `key: client_ip`, and the proxies in front as `trusted_proxies`: then their word \
         counts, and no client's"
    } else {
        "write a rule with `key: client_ip` beside it, or one without a key, or prove who clients \
         are by `auth`"
    };
    Problem::warning(Lint::ClientChosenKey, rule.span, message)
        .label(format!("counts by {}", rule.key))
        .help(help)
}

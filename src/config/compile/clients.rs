//! Rules that count by what a proxy or a client says of itself.

use super::{compiler::Compiler, idle::is_stricter};
use crate::{
    config::{
        decode::{At, Key, List},
        diagnostics::{Lint, Problem, SourceSpan},
        plan::{Access, RoutePlan, RuleGroupPlan, RulePlan},
        spec::{ListenerSpec, NetworksSpec},
    },
    route::{HostPattern, KeyPart, Matcher, PathPattern, Table},
};
use std::{
    borrow::Cow,
    net::{IpAddr, SocketAddr},
};

impl Compiler {
    /// Warns of rules by address that see a proxy's only.
    pub(super) fn behind_proxies(
        &mut self,
        listeners: &Key<List<ListenerSpec>>,
        trusted: &Key<NetworksSpec>,
        routes: &[RoutePlan],
        table: &Table,
    ) {
        if trusted.is_written() {
            return;
        }

        let by_address = |route: &RoutePlan| {
            let counts = |rule: &&RulePlan| rule.key.parts().iter().any(is_address);
            route.rules.iter().find(counts).map(|rule| (rule.span, rule.name.clone()))
        };

        for at in listeners.items() {
            let spec = &at.value;
            let Some(address) = spec.listen.address().filter(is_private) else { continue };
            if spec.trusted_proxies.is_written() || spec.proxy_protocol.is_true() {
                continue;
            }
            let Some(name) = spec.name.value() else { continue };

            let is_for = |index: usize| {
                let of = |names: &[_]| names.is_empty() || names.contains(&name.0);
                table.matcher(index).is_some_and(|matcher| of(&matcher.listeners))
            };

            let mut served = routes.iter().enumerate().filter(|(index, _)| is_for(*index));
            if let Some((span, rule)) = served.find_map(|(_, route)| by_address(route)) {
                self.warn(behind_proxy(span, &rule, address));
                return;
            }
        }
    }

    /// Warns of a rule by a key that a client may choose, in a route without one that holds
    /// whatever it sends.
    pub(super) fn chosen_keys(&mut self, routes: &[RoutePlan]) {
        for route in routes {
            let is_bounded = route.rules.iter().any(holds_for_all) || route.flow.pacing.is_some();
            if knows_clients(route) || is_bounded {
                continue;
            }
            if let Some(rule) = route.rules.iter().find(|rule| !rule.dry_run && is_chosen(rule)) {
                self.warn(chosen(rule));
            }
        }
    }
}

impl Compiler {
    /// Notes a rule by path or host in a route where clients choose these, and where no other rule
    /// holds whatever they choose.
    pub(super) fn chosen_targets(&mut self, routes: &[RoutePlan], table: &Table) {
        for (index, route) in routes.iter().enumerate() {
            let is_bounded = route.rules.iter().any(holds_for_all) || route.flow.pacing.is_some();
            let Some(matcher) = table.matcher(index) else { continue };
            if knows_clients(route) || is_bounded {
                continue;
            }
            let counts = route.rules.iter().filter(|rule| !rule.dry_run && !is_chosen(rule));
            let mut chosen = counts.filter_map(|rule| Some((rule, chosen_target(rule, matcher)?)));
            if let Some((rule, part)) = chosen.next() {
                self.notes.push(chosen_by_target(rule, &part));
            }
        }
    }

    /// Warns of rules that admit more if a client sends a certain field. Behind a proxy that is
    /// trusted, the proxy may set the field.
    pub(super) fn chosen_overrides(
        &mut self,
        listeners: &Key<List<ListenerSpec>>,
        trusted: &Key<NetworksSpec>,
        routes: &[RoutePlan],
        groups: &[RuleGroupPlan],
    ) {
        let has_proxy = |spec: &ListenerSpec| {
            !spec.trusted_proxies.items().is_empty() || spec.proxy_protocol.is_true()
        };
        let mut own = listeners.items().iter();
        if !trusted.items().is_empty() || own.any(|at| has_proxy(&at.value)) {
            return;
        }

        for route in routes.iter().filter(|route| !knows_clients(route)) {
            let mut rules = route.rules.iter().enumerate().filter(|(_, rule)| !rule.dry_run);
            if let Some((rule, field)) =
                rules.find_map(|(index, rule)| Some((rule, chosen_field(route, index, rule)?)))
            {
                let message = format!("any client gets more of `{}` by sending a field", rule.name);
                self.warn(
                    Problem::warning(Lint::ClientChosenOverride, rule.span, message)
                        .label(format!("more by `{field}`"))
                        .help(
                            "write the secret that only such clients know, as in \
                             `header:x-api-key: ${PARTNER_KEY}`, or `client_ip`, or prove who \
                             clients are by `auth`",
                        ),
                );
            }
        }

        self.chosen_plans(routes, groups);
    }

    /// Warns of plans that clients choose by sending a field.
    fn chosen_plans(&mut self, routes: &[RoutePlan], groups: &[RuleGroupPlan]) {
        let open: Vec<_> = routes.iter().filter(|route| !knows_clients(route)).collect();
        let own = open.iter().flat_map(|route| &route.rules);
        let shared = groups.iter().enumerate().filter(|(index, _)| {
            open.iter().any(|route| route.groups.iter().any(|met| met.index == *index))
        });

        for rule in own.chain(shared.flat_map(|(_, group)| &group.rules)) {
            let Some(plans) = rule.plans.as_ref().filter(|plans| *plans.by() != rule.key) else {
                continue;
            };
            let is_sent = |part: &&KeyPart| {
                matches!(part, KeyPart::Header(_) | KeyPart::Cookie(_) | KeyPart::Query(_))
            };
            let Some(part) = plans.by().parts().iter().find(is_sent) else { continue };
            let message = format!("any client chooses its plan of `{}`", rule.name);
            self.warn(
                Problem::warning(Lint::ClientChosenOverride, rule.span, message)
                    .label(format!("by sending `{part}`"))
                    .help(
                        "write what clients cannot choose, as in `by: jwt:plan` with `auth`, or \
                         `by: key` with a file of the keys that you gave out",
                    ),
            );
        }
    }
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

const fn is_address(part: &KeyPart) -> bool {
    matches!(part, KeyPart::ClientIp { .. })
}

/// True if a network that is not the Internet leads to the address. Loopback is for trials.
fn is_private(at: &At<SocketAddr>) -> bool {
    match at.value.ip().to_canonical() {
        IpAddr::V4(ip) => ip.is_private(),
        IpAddr::V6(ip) => ip.is_unique_local(),
    }
}

fn behind_proxy(rule: SourceSpan, name: &str, listener: At<SocketAddr>) -> Problem {
    let message = format!("`{name}` counts by address, and no proxy in front is trusted");
    Problem::warning(Lint::NoTrustedProxies, rule, message)
        .label("behind a proxy all clients are one")
        .also(listener.span, "a private address")
        .help(
            "write the proxy's network, as in `trusted_proxies: [10.0.0.0/24]`, or \
             `trusted_proxies: []` if clients connect directly",
        )
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
        | KeyPart::Auth(_) => true,
        KeyPart::Host
        | KeyPart::Path
        | KeyPart::Segment(_)
        | KeyPart::Header(_)
        | KeyPart::Cookie(_)
        | KeyPart::Query(_) => false,
    };
    !rule.dry_run && rule.key.parts().iter().all(is_fixed)
}

/// True if a client chooses under which key it counts: each new value has a new count.
fn is_chosen(rule: &RulePlan) -> bool {
    let parts = rule.key.parts();
    let is_sent = |part: &KeyPart| {
        matches!(part, KeyPart::Header(_) | KeyPart::Cookie(_) | KeyPart::Query(_))
    };
    let is_proven =
        |part: &KeyPart| matches!(part, KeyPart::User | KeyPart::Jwt(_) | KeyPart::Auth(_));
    parts.iter().any(is_sent) && !parts.iter().any(is_proven)
}

/// Returns the part of a rule's key, `path`, `host` or `{org}`, of which a client that the rule does
/// not tell from others may choose among any number of values.
fn chosen_target<'r>(rule: &'r RulePlan, matcher: &Matcher) -> Option<Cow<'r, str>> {
    let is_path = |path: &PathPattern| matches!(path, PathPattern::Exact(_));
    let has_paths = !matcher.paths.is_empty() && matcher.paths.iter().all(is_path);
    let has_hosts = !matcher.hosts.is_empty() && matcher.hosts.iter().all(HostPattern::is_exact);
    let parts = rule.key.parts();
    if parts.iter().any(|part| matches!(part, KeyPart::User | KeyPart::Jwt(_) | KeyPart::Auth(_))) {
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
        | KeyPart::Auth(_) => None,
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

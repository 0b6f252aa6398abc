//! Listeners behind a proxy that is not trusted, and servers that are listeners.

use super::Findings;
use crate::{
    config::{
        diagnostics::{Lint, Problem},
        plan::{Listener, Plan, RulePlan},
        spec::{ListenAddress, values::Endpoint},
    },
    route::{KeyPart, NO_ADDRESS},
};
use std::{
    net::{IpAddr, SocketAddr},
    path::Path,
};

/// Warns of a rule by address that sees a proxy's only.
pub(super) fn no_trusted_proxies(plan: &Plan, findings: &mut Findings) {
    if plan.places.trusted_proxies.is_some() {
        return;
    }

    for listener in plan.listeners.iter().filter(|listener| may_be_behind_proxy(listener)) {
        if let Some(rule) = rule_by_address(plan, listener) {
            let message =
                format!("`{}` counts by address, and no proxy in front is trusted", rule.name);
            findings.add(
                Problem::warning(Lint::NoTrustedProxies, rule.span, message)
                    .label("behind a proxy all clients are one")
                    .also(listener.span(), "a private address")
                    .help(
                        "write the proxy's network, as in `trusted_proxies: [10.0.0.0/24]`, or \
                         `trusted_proxies: []` if clients connect directly",
                    ),
            );
            return;
        }
    }
}

/// Warns of a rule by address at a Unix socket, whose clients have none.
pub(super) fn no_addresses(plan: &Plan, findings: &mut Findings) {
    for listener in &plan.listeners {
        let trusted = listener.trusted_proxies.as_ref();
        let trusted = trusted.unwrap_or(&plan.settings.trusted_proxies);
        if !listener.has_unix_socket() || trusted.contains(NO_ADDRESS) {
            continue;
        }
        if let Some(rule) = rule_by_address(plan, listener) {
            let message = format!(
                "`{}` counts by address, and clients of a Unix socket have none",
                rule.name
            );
            findings.add(
                Problem::warning(Lint::NoTrustedProxies, rule.span, message)
                    .label("requests without an address count as `on_missing_key` says")
                    .also(listener.span(), "a Unix socket")
                    .help(
                        "write `trusted_proxies: [unix]` if a proxy connects there and names its clients",
                    ),
            );
            return;
        }
    }
}

/// Returns a rule by address that requests of the listener meet.
fn rule_by_address<'p>(plan: &'p Plan, listener: &Listener) -> Option<&'p RulePlan> {
    let takes = |index: usize| {
        let of = |names: &[_]| names.is_empty() || names.contains(&listener.name);
        plan.table.matcher(index).is_some_and(|matcher| of(&matcher.listeners))
    };
    let served = plan.routes.iter().enumerate().filter(|(index, _)| takes(*index));
    served.flat_map(|(_, route)| &route.rules).find(|rule| counts_by_address(rule))
}

/// True if a network that is not the Internet leads to the listener, which trusts no proxy of its own.
/// Loopback is for trials.
fn may_be_behind_proxy(listener: &Listener) -> bool {
    let is_private = |address: SocketAddr| match address.ip().to_canonical() {
        IpAddr::V4(ip) => ip.is_private(),
        IpAddr::V6(ip) => ip.is_unique_local(),
    };
    let mut addresses = listener.addresses.iter().filter_map(|place| place.address.ip());
    addresses.any(is_private) && listener.trusted_proxies.is_none() && !listener.proxy_protocol
}

fn counts_by_address(rule: &RulePlan) -> bool {
    rule.key.parts().iter().any(|part| matches!(part, KeyPart::ClientIp { .. }))
}

/// Warns of servers that are listeners of the same file: a request could go around until all
/// connections are used.
pub(super) fn upstream_is_listener(plan: &Plan, findings: &mut Findings) {
    for (upstream, place) in plan.upstreams.iter().zip(&plan.places.upstreams) {
        for (server, span) in upstream.servers.iter().zip(&place.servers) {
            let endpoint = &server.endpoint;
            let mut places = plan.listeners.iter().flat_map(|listener| &listener.addresses);
            let Some(own) = places.find(|own| reaches(endpoint, &own.address)) else { continue };
            let message = format!("the server `{endpoint}` is a listener of this gateway");
            findings.add(
                Problem::warning(Lint::UpstreamIsListener, *span, message)
                    .also(own.span, "listens here")
                    .help("write the address of the service, or another port at the listener"),
            );
        }
    }
}

/// True if connections to the server `endpoint` reach a socket on `listener`.
fn reaches(endpoint: &Endpoint, listener: &ListenAddress) -> bool {
    let listener = match listener {
        ListenAddress::Ip(address) => address,
        ListenAddress::Unix(path) => return **path == *Path::new(&*endpoint.host),
    };
    let ip = listener.ip();
    let is_local = ip.is_loopback() || ip.is_unspecified();
    let is_same = match endpoint.host.parse::<IpAddr>() {
        Ok(host) if host.is_unspecified() => is_local,
        Ok(host) => host == ip || (host.is_loopback() && ip.is_unspecified()),
        Err(_) => is_local && &*endpoint.host == "localhost",
    };
    is_same && endpoint.port == listener.port()
}

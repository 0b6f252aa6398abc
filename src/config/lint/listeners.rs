//! Listeners behind a proxy that is not trusted, and servers that are listeners.

use super::Findings;
use crate::{
    config::{
        diagnostics::{Lint, Problem},
        plan::{Listener, Plan, RulePlan},
        spec::values::Endpoint,
    },
    route::KeyPart,
};
use std::net::{IpAddr, SocketAddr};

/// Warns of a rule by address that sees a proxy's only.
pub(super) fn no_trusted_proxies(plan: &Plan, findings: &mut Findings) {
    if plan.places.trusted_proxies.is_some() {
        return;
    }

    for listener in plan.listeners.iter().filter(|listener| may_be_behind_proxy(listener)) {
        let takes = |index: usize| {
            let of = |names: &[_]| names.is_empty() || names.contains(&listener.name);
            plan.table.matcher(index).is_some_and(|matcher| of(&matcher.listeners))
        };

        let served = plan.routes.iter().enumerate().filter(|(index, _)| takes(*index));
        let mut rules = served.flat_map(|(_, route)| &route.rules);
        if let Some(rule) = rules.find(|rule| counts_by_address(rule)) {
            let message =
                format!("`{}` counts by address, and no proxy in front is trusted", rule.name);
            findings.add(
                Problem::warning(Lint::NoTrustedProxies, rule.span, message)
                    .label("behind a proxy all clients are one")
                    .also(listener.span, "a private address")
                    .help(
                        "write the proxy's network, as in `trusted_proxies: [10.0.0.0/24]`, or \
                         `trusted_proxies: []` if clients connect directly",
                    ),
            );
            return;
        }
    }
}

/// True if a network that is not the Internet leads to the listener, which trusts no proxy of its own.
/// Loopback is for trials.
fn may_be_behind_proxy(listener: &Listener) -> bool {
    let is_private = match listener.address.ip().to_canonical() {
        IpAddr::V4(ip) => ip.is_private(),
        IpAddr::V6(ip) => ip.is_unique_local(),
    };
    is_private && listener.trusted_proxies.is_none() && !listener.proxy_protocol
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
            let mut listeners = plan.listeners.iter();
            let Some(own) = listeners.find(|own| reaches(endpoint, own.address)) else { continue };
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
fn reaches(endpoint: &Endpoint, listener: SocketAddr) -> bool {
    let ip = listener.ip();
    let is_local = ip.is_loopback() || ip.is_unspecified();
    let is_same = match endpoint.host.parse::<IpAddr>() {
        Ok(host) if host.is_unspecified() => is_local,
        Ok(host) => host == ip || (host.is_loopback() && ip.is_unspecified()),
        Err(_) => is_local && &*endpoint.host == "localhost",
    };
    is_same && endpoint.port == listener.port()
}

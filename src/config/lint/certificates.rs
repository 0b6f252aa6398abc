//! Hosts without a certificate, and certificates that no client can use.

use super::Findings;
use crate::{
    config::{
        diagnostics::{Lint, Problem, quoted},
        plan::{Certificates, Plan, certificates},
    },
    route::{HostPattern, Matcher},
};
use std::net::IpAddr;

/// Warns of the first host of each route that clients of TLS cannot verify: none of the certificates of
/// the route's listeners names it.
pub(super) fn host_without_certificate(plan: &Plan, findings: &mut Findings) {
    for (index, route) in plan.routes.iter().enumerate() {
        let Some(matcher) = plan.table.matcher(index) else { continue };
        let Some(host) = uncovered_host(plan, matcher) else { continue };
        let message = format!("no certificate names the host {}", quoted(&host));
        findings.add(
            Problem::warning(Lint::HostWithoutCertificate, route.span, message)
                .label("clients that use `https` get another host's certificate")
                .help("write a certificate for it in `tls` of the listener; if its clients use `http` alone, silence this with `# flowgate: allow(host-without-certificate)`"),
        );
    }
}

/// Returns the first host of a route that no certificate of its listeners names.
fn uncovered_host(plan: &Plan, matcher: &Matcher) -> Option<String> {
    let takes = |name| matcher.listeners.is_empty() || matcher.listeners.contains(name);
    let listeners = plan.listeners.iter().filter(|listener| takes(&listener.name));
    let with_tls = listeners.filter_map(|listener| listener.tls.as_deref());
    let all: Vec<_> = with_tls.filter(|certificates| has_names(certificates)).collect();

    let is_covered = |host: &str| all.iter().any(|certificates| certificates.cover(host));
    let patterns = matcher.hosts.iter().map(HostPattern::to_string);
    let mut hosts = patterns.filter(|host| !is_exempt(host));
    hosts.find(|host| !all.is_empty() && !is_covered(host))
}

/// Warns of certificates that name no host.
pub(super) fn without_name(plan: &Plan, findings: &mut Findings) {
    let nameless = certificates(&plan.listeners).filter(|shown| shown.names.is_empty());
    for certificate in nameless {
        let message = "the certificate names no host";
        findings.add(
            Problem::warning(Lint::CertificateWithoutName, certificate.span, message)
                .help("clients reject it unless it has the name that they request"),
        );
    }
}

/// Notes names of certificates to get that no request can reach.
pub(super) fn ordered_without_route(plan: &Plan, findings: &mut Findings) {
    let matchers = || (0..plan.routes.len()).filter_map(|route| plan.table.matcher(route));
    if matchers().any(|matcher| matcher.hosts.is_empty()) {
        return;
    }

    for at in plan.places.acme_names.iter().flatten() {
        let mut hosts = matchers().flat_map(|matcher| &matcher.hosts);
        if hosts.any(|pattern| pattern.matches(&at.value)) {
            continue;
        }
        let message = format!("no route has the host {}", quoted(&at.value));
        let note = Problem::note(Lint::AcmeNameWithoutRoute, message).at(at.span);
        findings.add(note.help(
            "flowgate gets the certificate, and responds 404; write a route with \
             `match: { host: … }`, or remove the name",
        ));
    }
}

/// Notes certificates to get while no listener can answer the challenge HTTP-01.
pub(super) fn ordered_without_plain_listener(plan: &Plan, findings: &mut Findings) {
    let is_plain = plan.settings.acme.as_ref().is_some_and(|acme| acme.has_plain_listener);
    let Some(first) = plan.places.acme_names.first().filter(|_| !is_plain) else { return };
    let Some(span) = first.first().map(|at| at.span) else { return };
    let message = "no listener without TLS can answer the challenge HTTP-01";
    findings.add(Problem::note(Lint::AcmeWithoutPlainListener, message).at(span).help(
        "flowgate answers TLS-ALPN-01, for which port 443 must reach this gateway itself, not a proxy that ends TLS; for both, add `{ name: plain, listen: \":80\" }`",
    ));
}

/// True if at least one is for a host. Those without a name are a warning of their own, and
/// those for `localhost` are for a trial.
fn has_names(certificates: &Certificates) -> bool {
    let mut names = certificates.iter().flat_map(|certificate| &certificate.names);
    names.any(|name| name != "localhost")
}

/// True if a host is an address, which certificates name in another way, or this machine, or
/// stands for names that no certificate has as one.
fn is_exempt(host: &str) -> bool {
    host.starts_with('[')
        || host.ends_with(".*")
        || host.parse::<IpAddr>().is_ok()
        || host == "localhost"
        || host.ends_with(".localhost")
}

//! Hosts of routes for which no listener has a certificate.

use super::compiler::Compiler;
use crate::{
    config::{
        diagnostics::{Lint, Problem, SourceSpan, quoted},
        plan::Certificates,
    },
    route::{HostPattern, Matcher},
};
use std::net::IpAddr;

impl Compiler {
    /// Warns of the first host of the route at `span` that clients of TLS cannot verify: none of the
    /// certificates of the route's listeners names it.
    pub(super) fn uncovered_host(&mut self, matcher: &Matcher, span: SourceSpan) {
        let takes = |name| matcher.listeners.is_empty() || matcher.listeners.contains(name);
        let with_names = |certificates: &&_| has_names(certificates);
        let of_route = self.certificates.iter().filter(|(name, _)| takes(name));
        let all: Vec<_> =
            of_route.map(|(_, certificates)| &**certificates).filter(with_names).collect();
        let is_covered = |host: &str| all.iter().any(|certificates| certificates.cover(host));
        let patterns = matcher.hosts.iter().map(HostPattern::to_string);
        let mut hosts = patterns.filter(|host| !is_exempt(host));
        let found = hosts.find(|host| !all.is_empty() && !is_covered(host));
        if let Some(host) = found {
            let message = format!("no certificate names the host {}", quoted(&host));
            self.warn(
                Problem::warning(Lint::HostWithoutCertificate, span, message)
                    .label("clients that use `https` get another host's certificate")
                    .help("write a certificate for it in `tls` of the listener; if its clients use `http` alone, silence this with `# flowgate: allow(host-without-certificate)`"),
            );
        }
    }
}

/// Reports whether at least one is for a host. Those without a name are a warning of their own, and
/// those for `localhost` are for a trial.
fn has_names(certificates: &Certificates) -> bool {
    let mut names = certificates.iter().flat_map(|certificate| &certificate.names);
    names.any(|name| name != "localhost")
}

/// Reports whether a host is an address, which certificates name in another way, or this machine, or
/// stands for names that no certificate has as one.
fn is_exempt(host: &str) -> bool {
    host.starts_with('[')
        || host.ends_with(".*")
        || host.parse::<IpAddr>().is_ok()
        || host == "localhost"
        || host.ends_with(".localhost")
}

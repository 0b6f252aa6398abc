//! `set_real_ip_from` and `real_ip_header`: which proxies say who the client is, and how.

use super::{networks::network, report::ImportReport, scope::Scope, tree::Directive};
use ipnet::IpNet;

/// The proxies that a block trusts.
#[derive(Clone, Debug, Default)]
pub(super) struct RealIp {
    /// Those that name the client in `X-Forwarded-For`.
    pub trusted: Vec<IpNet>,
}

impl RealIp {
    /// Reads what holds in a block. What flowgate cannot read is left to [`lost`].
    pub(super) fn read(scope: &Scope<'_>, report: &mut ImportReport) -> Self {
        let from = scope.all(&["set_real_ip_from"]);
        if from.is_empty() || lost(scope).is_some() {
            return Self::default();
        }
        let header = scope.take("real_ip_header", report);
        if let Some(header) = header.filter(|_| !scope.is_on("real_ip_recursive", report)) {
            report.note(header, "flowgate uses the last address that is not a trusted proxy, as with `real_ip_recursive on`");
        }
        let mut trusted = Vec::new();
        for directive in from {
            match network(directive.arg(0)) {
                Some(network) => {
                    report.take(directive);
                    trusted.push(network);
                }
                None => report.note(directive, "it is neither an address nor a network"),
            }
        }
        Self { trusted }
    }
}

/// Returns why the client's address is another one here than in nginx, if it is.
pub(super) fn lost(scope: &Scope<'_>) -> Option<&'static str> {
    if scope.all(&["set_real_ip_from"]).is_empty() {
        return None;
    }
    let header = scope.find("real_ip_header").map_or("X-Real-IP", |directive| directive.arg(0));
    if !header.eq_ignore_ascii_case("x-forwarded-for") {
        return Some(
            "the client's address is lost: flowgate reads it from X-Forwarded-For and from no other field (real_ip_header)",
        );
    }
    let is_within = |block: &&Directive| block.name == "location";
    let own = scope.0.iter().copied().filter(is_within);
    let has_own = own.flat_map(Directive::inner).any(|inner| inner.name == "set_real_ip_from");
    has_own.then_some(
        "the client's address is lost: a location has no trusted proxies of its own here",
    )
}

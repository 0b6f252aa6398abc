//! Parts of the file that nothing uses.

use super::Findings;
use crate::config::{
    diagnostics::{Lint, Problem},
    plan::Plan,
    spec::{AccessLog, LogFormat},
};
use std::collections::BTreeSet;

/// Warns of upstreams to which no route sends requests.
pub(super) fn upstreams(plan: &Plan, findings: &mut Findings) {
    let sends = plan.routes.iter().filter_map(|route| route.action.upstream().copied());
    let asks = plan.routes.iter().filter_map(|route| route.auth_upstream);
    let copies = plan.routes.iter().filter_map(|route| route.mirror_upstream);
    let used: BTreeSet<usize> = sends.chain(asks).chain(copies).collect();

    // Those of auth services that routes name by their URL have no place.
    for (index, (upstream, place)) in plan.upstreams.iter().zip(&plan.places.upstreams).enumerate()
    {
        if used.contains(&index) {
            continue;
        }
        let message = format!("no route uses the upstream `{}`", upstream.name);
        findings.add(
            Problem::warning(Lint::UnusedUpstream, place.span, message)
                .help("write `upstream: …` in a route, or remove it"),
        );
    }
}

/// Warns of budgets that no request meets.
pub(super) fn budgets(plan: &Plan, findings: &mut Findings) {
    let met = plan.routes.iter().flat_map(|route| &route.groups);
    let used: BTreeSet<usize> = met.map(|met| met.index).collect();

    for (index, group) in plan.groups.iter().enumerate() {
        let Some(name) = group.owner.budget().filter(|_| !used.contains(&index)) else { continue };
        let message = format!("nothing uses the budget `{name}`");
        findings.add(
            Problem::warning(Lint::UnusedBudget, group.span, message)
                .help(format!("write `flow: [{{ budget: {name} }}]` in a route, or remove it")),
        );
    }
}

/// Warns of a format of lines that nothing writes.
pub(super) fn log_format(plan: &Plan, findings: &mut Findings) {
    let settings = &plan.settings;
    let is_unused =
        settings.access_log == AccessLog::Off && settings.access_log_format == LogFormat::Combined;
    if let Some(span) = plan.places.access_log_format.filter(|_| is_unused) {
        let message = "`access_log_format` without an access log";
        findings.add(
            Problem::warning(Lint::KeyWithoutEffect, span, message)
                .help("write `access_log: stdout`, or a file, or remove it"),
        );
    }
}

/// Notes an authority without a certificate to get.
pub(super) fn authority(plan: &Plan, findings: &mut Findings) {
    let is_unused = plan.settings.acme.as_ref().is_some_and(|acme| acme.orders.is_empty());
    if let Some(span) = plan.places.acme.filter(|_| is_unused) {
        let message = "`acme` without a certificate for it";
        findings.add(Problem::note(Lint::AcmeUnused, message).at(span).help(
            "write names at a listener: `tls: { certificates: [{ acme: [shop.example.com] }] }`",
        ));
    }
}

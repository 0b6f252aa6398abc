//! The lints: what is odd about a whole plan, though not wrong.
//!
//! Each is a pure function over the plan. What is odd about one value alone is warned of where that
//! value is compiled.

mod certificates;
mod clients;
mod listeners;
mod never_rejects;
mod routes;
mod rules;
mod unused;

use super::{
    diagnostics::{Problem, Severity},
    plan::Plan,
};

/// All of them. The order is that of the findings that have the same place in the file.
const LINTS: &[fn(&Plan, &mut Findings)] = &[
    routes::unreachable,
    routes::bypassed,
    routes::redirected_to_themselves,
    rules::never_reject,
    rules::unreadable_responses,
    rules::end_is_missing,
    rules::bucket_doubles_limit,
    unused::upstreams,
    unused::budgets,
    unused::log_format,
    unused::authority,
    rules::budgets_without_key,
    listeners::no_trusted_proxies,
    listeners::no_addresses,
    listeners::upstream_is_listener,
    certificates::host_without_certificate,
    certificates::without_name,
    certificates::ordered_without_route,
    certificates::ordered_without_plain_listener,
    clients::chosen_keys,
    clients::chosen_targets,
    clients::chosen_overrides,
    clients::chosen_plans,
    clients::chosen_turns,
];

/// The warnings and notes found so far.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) warnings: Vec<Problem>,
    /// Only `check` prints them.
    pub(super) notes: Vec<Problem>,
}

impl Findings {
    fn add(&mut self, problem: Problem) {
        if problem.severity == Severity::Note {
            self.notes.push(problem);
        } else {
            self.warnings.push(problem);
        }
    }
}

/// Returns what all lints find in a plan.
pub(super) fn findings(plan: &Plan) -> Findings {
    let mut findings = Findings::default();
    for lint in LINTS {
        lint(plan, &mut findings);
    }
    findings
}

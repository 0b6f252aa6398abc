//! Costs that are settled after the response: what they need, and the rules that cannot have them.

use super::{compiler::Compiler, numbers::Costs};
use crate::config::{
    decode::{Either, Entries, SettledOr},
    diagnostics::{Problem, SourceSpan},
    plan::{Cost, Settle, SettleSource, StatusCosts},
    spec::{AlgorithmWord, RuleSpec, Scope, SettleSpec},
};
use std::sync::Arc;

impl Compiler {
    /// Returns the cost of a rule's requests, and reports a rule that cannot settle it.
    pub(super) fn final_cost(&mut self, rule: &RuleSpec, costs: Costs) -> Cost {
        let settle = self.settle(rule, &costs).map(Arc::new);
        Cost { settle, ..Cost::from(costs) }
    }

    fn settle(&mut self, rule: &RuleSpec, costs: &Costs) -> Option<Settle> {
        let span = costs.settled?;
        let Either::Map(SettledOr::Settled(spec)) = &rule.cost.at.as_ref()?.value else {
            return None;
        };

        if let Some((what, why)) = unsettled(rule) {
            let message = format!("`reserve` and `settle` in a rule with {what}");
            self.error(
                Problem::error(span, message)
                    .help(format!("write a plain cost, as in `cost: 5`: {why}")),
            );
            return None;
        }
        let at = spec.settle.at.as_ref()?;
        self.source(&at.value, at.span).map(|source| Settle { source })
    }

    fn source(&mut self, spec: &SettleSpec, span: SourceSpan) -> Option<SettleSource> {
        let Some(Entries(entries)) = spec.status.value() else {
            if !spec.status.is_written() {
                self.error(Problem::error(span, "a settlement without a source").help(
                    "write what the cost is, as in `settle: { status: { 401: 1, default: 0 } }`",
                ));
            }
            return None;
        };

        let mut listed = Vec::with_capacity(entries.len());
        let mut default = None;
        for (statuses, cost) in entries {
            let cost = cost.number().map(|at| at.value);
            match &statuses.value.0 {
                None => default = cost,
                Some(statuses) => listed.extend(cost.map(|cost| (statuses.clone(), cost))),
            }
        }
        Some(SettleSource::Status(StatusCosts::new(listed, default)))
    }
}

/// Returns what a rule has that cannot be settled, if it has, and why not.
fn unsettled(rule: &RuleSpec) -> Option<(&'static str, &'static str)> {
    if rule.concurrency.is_written() {
        return Some(("`concurrency`", "it counts requests only while they run"));
    }
    if rule.algorithm.is_some_and(|word| word.value == AlgorithmWord::Pacing) {
        return Some(("`algorithm: pacing`", "a start that is over cannot be moved"));
    }
    if rule.priority.is_written() {
        return Some(("`priority`", "what a request has borrowed is not given back"));
    }
    if rule.scope.is_some_and(|scope| scope.value == Scope::Cluster) {
        return Some(("`scope: cluster`", "only rules of one process are settled"));
    }
    None
}

//! Nobody is held until there is no time left for an answer: one that waits for its start has no
//! more time in all than `timeouts.request`, of which half is the answer's.

use super::Compiler;
use crate::config::{
    decode::At,
    problem::Problem,
    spec::{RouteSpec, RuleKind, RuleSpec},
};
use std::time::Duration;

impl Compiler {
    /// Shortens each `max_wait` of a route to half of its `timeouts.request`, so that what would
    /// wait longer is refused at once; warns of those that are written.
    pub(super) fn shorten_waits(&mut self, spec: &mut RouteSpec) {
        let Some(most) = spec.timeouts.as_ref().map(|timeouts| timeouts.request / 2) else {
            return;
        };
        let paced = spec.pacing.iter_mut().filter_map(|pacing| pacing.pace.max_wait.as_mut());
        for max_wait in paced.chain(spec.flow.iter_mut().flat_map(waits)) {
            if max_wait.value <= most {
                continue;
            }
            max_wait.value = most;
            if max_wait.written {
                self.warn(
                    Problem::warning(
                        max_wait.place,
                        "a wait so long leaves too little time for the answer",
                    )
                    .label("longer than half of the route's `timeouts.request`")
                    .help("write a shorter `max_wait`, or a longer `timeouts.request`"),
                );
            }
        }
        // An override has the wait of its rule, which was warned of.
        for version in spec.flow.iter_mut().flat_map(|rule| &mut rule.overrides) {
            if let Some(max_wait) = of_kind(&mut version.kind) {
                max_wait.value = max_wait.value.min(most);
            }
        }
    }
}

fn waits(rule: &mut RuleSpec) -> impl Iterator<Item = &mut At<Duration>> {
    let lent = rule.priority.as_mut().map(|priority| &mut priority.max_wait);
    rule.kind.as_mut().and_then(of_kind).into_iter().chain(lent)
}

fn of_kind(kind: &mut RuleKind) -> Option<&mut At<Duration>> {
    match kind {
        RuleKind::Pacing(pace) => pace.max_wait.as_mut(),
        RuleKind::TokenBucket { .. }
        | RuleKind::LeakyBucket { .. }
        | RuleKind::SlidingLog { .. }
        | RuleKind::SlidingWindow { .. }
        | RuleKind::SlidingCounter { .. }
        | RuleKind::FixedWindow { .. }
        | RuleKind::Concurrency { .. } => None,
    }
}

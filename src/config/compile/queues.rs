//! Queues for free places: which rules may have one, and how long requests may wait.

use super::{budgets::Groups, compiler::Compiler};
use crate::{
    config::{
        diagnostics::{Problem, SourceSpan},
        plan::{RoutePlan, RulePlan},
        spec::{QueueSpec, RuleSpec, Scope},
    },
    flow::{QueueConfig, time::spelled},
};
use std::time::Duration;

impl Compiler {
    /// Compiles the queue of a rule, and reports a rule that cannot have one. Returns it with the place
    /// of its longest wait in the file.
    pub(super) fn queue(&mut self, rule: &RuleSpec) -> Option<(Box<QueueConfig>, SourceSpan)> {
        let at = rule.queue.at.as_ref()?;
        let is_cluster = rule.scope.is_some_and(|scope| scope.value == Scope::Cluster);
        let is_before_auth = rule.before_auth.is_true();

        let (message, help) = if !rule.concurrency.is_written() {
            (
                "`queue` in a rule without `concurrency`",
                "write `concurrency: 64` in place of `limit`, or remove `queue`: only requests in \
                 flight have places that others wait for. `algorithm: pacing` spaces requests by waiting",
            )
        } else if is_cluster {
            (
                "`queue` beside `scope: cluster`",
                "remove one: each gateway has places of its own, and a request waits for one of those",
            )
        } else if is_before_auth {
            (
                "`queue` beside `before_auth`",
                "remove one: the auth service is asked at once, and no request waits before that",
            )
        } else {
            return queue_config(&at.value, at.span);
        };
        self.error(Problem::error(at.span, message).help(help));
        None
    }

    /// Reports queues in which requests may wait for longer than half of `timeouts.request`: the other
    /// half is for the response.
    pub(super) fn queue_waits(&mut self, routes: &[RoutePlan], groups: &Groups) {
        for route in routes {
            for (rule, plan) in route.flow.flow.iter().zip(&route.rules) {
                self.queue_wait(plan, rule.queue.as_deref(), core::iter::once(route));
            }
        }
        for (index, group) in groups.plans.iter().enumerate() {
            let meets = |route: &&RoutePlan| route.groups.iter().any(|met| met.index == index);
            for (rule, plan) in group.flow.flow.iter().zip(&group.rules) {
                self.queue_wait(plan, rule.queue.as_deref(), routes.iter().filter(meets));
            }
        }
    }

    /// Reports a queue whose requests, of these routes, may wait for too long.
    fn queue_wait<'r>(
        &mut self,
        plan: &RulePlan,
        queue: Option<&QueueConfig>,
        routes: impl Iterator<Item = &'r RoutePlan>,
    ) {
        let Some((queue, span)) = queue.zip(plan.queue_wait) else { return };
        let timeout = |route: &'r RoutePlan| Some((route.options.timeouts.request?, route));
        let shortest = routes.filter_map(timeout).min_by_key(|(timeout, _)| *timeout);
        let Some((timeout, route)) = shortest.filter(|(least, _)| queue.max_wait > *least / 2)
        else {
            return;
        };

        let shown = |wait: Duration| spelled(wait).replace(' ', "");
        let message = "such a wait leaves too little time for the response";
        let problem = Problem::error(span, message)
            .label(format!("requests of `{}` have {} in all", route.name, shown(timeout)))
            .help(format!(
                "write at most `max_wait: {}`, or a longer `timeouts: {{ request: … }}`",
                shown(timeout / 2)
            ));
        self.error(problem);
    }
}

fn queue_config(spec: &QueueSpec, span: SourceSpan) -> Option<(Box<QueueConfig>, SourceSpan)> {
    let max_wait = spec.max_wait.duration()?;
    let max = u32::try_from(spec.max.number()?.value).unwrap_or(u32::MAX);
    let config = QueueConfig { max_wait: max_wait.value, max };
    Some((Box::new(config), if max_wait.written { max_wait.span } else { span }))
}

//! Queues for free places: which rules may have one, how long requests may wait, and in which order.

use super::{budgets::Groups, compiler::Compiler};
use crate::{
    config::{
        decode::{At, Entries},
        diagnostics::{Problem, SourceSpan, quoted},
        plan::{MAX_CLASSES, QueueClasses, QueuePlans, QueueShares, RoutePlan, RulePlan, Weights},
        spec::{ClassesSpec, QueueOrder, QueuePlansSpec, QueueSpec, RuleSpec, Scope, leaf},
    },
    flow::{QueueConfig, time::spelled},
    route::{KeyPart, KeySpec},
};
use std::{
    num::{NonZeroU8, NonZeroU32},
    sync::Arc,
    time::Duration,
};

/// The queue of a rule, if it has one.
#[derive(Default)]
pub(super) struct CompiledQueue {
    pub(super) config: Option<Box<QueueConfig>>,
    /// The parts that requests have in its order, if they differ.
    pub(super) turns: Option<Arc<QueueShares>>,
    /// Where the file has its longest wait.
    pub(super) wait: Option<SourceSpan>,
}

impl Compiler {
    /// Compiles the queue of a rule, and reports a rule that cannot have one.
    pub(super) fn queue(&mut self, rule: &RuleSpec) -> CompiledQueue {
        let Some(at) = &rule.queue.at else { return CompiledQueue::default() };
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
            let is_keyed = rule.key.is_written();
            return self.compiled_queue(&at.value, at.span, is_keyed).unwrap_or_default();
        };
        self.error(Problem::error(at.span, message).help(help));
        CompiledQueue::default()
    }

    fn compiled_queue(
        &mut self,
        spec: &QueueSpec,
        span: SourceSpan,
        is_keyed: bool,
    ) -> Option<CompiledQueue> {
        let max_wait = spec.max_wait.duration()?;
        let max = u32::try_from(spec.max.number()?.value).unwrap_or(u32::MAX);
        let shares = self.queue_shares(spec)?;
        let classes = shares.classes.as_ref().map_or(1, |classes| classes.hashes.len());
        let floor = spec.classes.value().and_then(|classes| classes.floor.value());
        let is_shared = shares.by.is_some() || shares.classes.is_some();

        let config = QueueConfig {
            classes: u8::try_from(classes).ok().and_then(NonZeroU8::new)?,
            // In millionths.
            floor: floor.map_or(0, |floor| u16::try_from(u32::from(floor.0) / 100).unwrap_or(0)),
            newest_when_late: *spec.order.value()? == QueueOrder::LifoWhenLate,
            shares: is_shared || is_keyed,
            ..QueueConfig::new(max_wait.value, max)
        };
        Some(CompiledQueue {
            config: Some(Box::new(config)),
            turns: is_shared.then(|| Arc::new(shares)),
            wait: Some(if max_wait.written { max_wait.span } else { span }),
        })
    }

    /// Compiles the parts of requests in the order of a queue.
    fn queue_shares(&mut self, spec: &QueueSpec) -> Option<QueueShares> {
        let by = match &spec.share_by.at {
            Some(at) => Some(self.queue_key(&at.value.0.0, at.span)?),
            None if spec.share_by.is_written() => return None,
            None => None,
        };
        let weights = [(spec.weights.span, "weights"), (spec.plans.span, "plans")];
        let lone = weights.into_iter().find_map(|(span, key)| Some((span?, key)));
        if let (None, Some((span, key))) = (&by, lone) {
            let problem = Problem::error(span, format!("`{key}` without `share_by`"));
            self.error(
                problem.help("write `share_by: header:x-tenant`, whose values the weights are of"),
            );
            return None;
        }

        let weights = match (&spec.weights.at, &by) {
            (Some(at), Some(by)) => self.queue_weights(&at.value, by)?,
            (Some(_) | None, _) => Weights::default(),
        };
        let plans = match &spec.plans.at {
            Some(at) => Some(self.queue_plans(&at.value)?),
            None => None,
        };
        let classes = match &spec.classes.at {
            Some(at) => Some(self.queue_classes(&at.value, at.span)?),
            None => None,
        };
        Some(QueueShares { by, weights, plans, classes })
    }

    /// Compiles the weights by plan.
    fn queue_plans(&mut self, spec: &QueuePlansSpec) -> Option<QueuePlans> {
        let part = spec.by.at.as_ref()?;
        let by = self.queue_key(core::slice::from_ref(part), part.span)?;
        let at = spec.weights.at.as_ref()?;
        let weights = self.queue_weights(&at.value, &by)?;
        if weights.by_hash.is_empty() {
            let problem = Problem::error(at.span, "`plans` without a weight");
            self.error(problem.help("write the weight of each plan, as in `weights: { gold: 4 }`"));
            return None;
        }
        Some(QueuePlans { by, weights })
    }

    /// Compiles the weights of values of `by`.
    fn queue_weights(
        &mut self,
        Entries(entries): &Entries<leaf::Text, leaf::Integer<1, 1000>>,
        by: &KeySpec,
    ) -> Option<Weights> {
        let mut by_hash = Vec::with_capacity(entries.len());
        let mut words = Vec::with_capacity(entries.len());
        for (name, weight) in entries {
            let weight = weight.number()?.value;
            let hash = self.queue_hash(by, &name.value.0, name.span)?;
            if by_hash.iter().any(|(other, _)| *other == hash) {
                let message = format!("the weight of {} is there twice", quoted(&name.value.0));
                self.error(Problem::error(name.span, message).help("remove one"));
                return None;
            }
            let weight = u32::try_from(weight).ok().and_then(NonZeroU32::new)?;
            by_hash.push((hash, weight));
            words.push(format!("{} {weight}", name.value.0));
        }
        by_hash.sort_unstable();
        if by_hash.is_empty() {
            return Some(Weights::default());
        }
        Some(Weights { by_hash, words: self.conceal(words.join(", ")).into() })
    }

    fn queue_classes(&mut self, spec: &ClassesSpec, span: SourceSpan) -> Option<QueueClasses> {
        let part = spec.by.at.as_ref()?;
        let by = self.queue_key(core::slice::from_ref(part), part.span)?;
        let names = spec.first_to_last.items();
        if names.len() < 2 || names.len() > MAX_CLASSES {
            let span = spec.first_to_last.span.unwrap_or(span);
            let message =
                format!("a queue has 2 to {MAX_CLASSES} classes, and this has {}", names.len());
            let help = "list their names, as in `first_to_last: [interactive, batch]`";
            self.error(Problem::error(span, message).help(help));
            return None;
        }

        let mut hashes = Vec::with_capacity(names.len());
        for name in names {
            let hash = self.queue_hash(&by, &name.value.0, name.span)?;
            if hashes.contains(&hash) {
                let message = format!("the class {} is there twice", quoted(&name.value.0));
                self.error(Problem::error(name.span, message).help("remove one"));
                return None;
            }
            hashes.push(hash);
        }
        let words: Vec<&str> = names.iter().map(|name| &*name.value.0).collect();
        let words = self.conceal(words.join(" before ")).into();
        Some(QueueClasses { by, hashes, words })
    }

    /// Compiles the key of a queue.
    fn queue_key(&mut self, words: &[At<leaf::KeyPart>], span: SourceSpan) -> Option<KeySpec> {
        let mut parts = Vec::with_capacity(words.len());
        for at in words {
            let part = self.pattern(KeyPart::parse(&at.value.0, 64), at.span)?;
            self.needs_file_of(&part, at.span);
            if part == KeyPart::Route {
                let problem = Problem::error(at.span, "`route` is the same for all requests here");
                self.error(problem.help("write what differs, as in `header:x-tenant`"));
                return None;
            }
            parts.push(part);
        }
        self.pattern(KeySpec::new(parts), span)
    }

    /// Returns the hash of a value, and reports one that no request has.
    fn queue_hash(&mut self, by: &KeySpec, name: &str, span: SourceSpan) -> Option<u64> {
        let hash = QueueShares::hash_of(by, name, &self.nat64);
        if hash.is_none() {
            let message = format!("{} is no value of `{by}`", quoted(name));
            let help = "write a value as requests have it; of a key with several parts, all of them with `, ` between them";
            self.error(Problem::error(span, message).help(help));
        }
        hash
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

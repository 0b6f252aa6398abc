//! The numbers of a rule, its algorithm, and the keys that only some algorithms
//! take.

use super::compiler::Compiler;
use crate::{
    config::{
        decode::{At, Either, Entries, Key, MarkedOr},
        diagnostics::{Problem, SourceSpan},
        plan::{Cost, ReservedNumbers},
        spec::{
            AlgorithmWord, AutoBoundsSpec, ComputedReserveSpec, CostSpec, LimitSpec, OverrideSpec,
            RateSpec, RuleLimitSpec, RuleSpec, WarmUpSpec,
            leaf::{ChargedFactor, Integer, MemberName, MethodOrDefault, RateOrZero},
            values::{self, Limit},
        },
    },
    flow::{WarmUp, limiter::auto_limit},
    usage::Weight,
};
use http::Method;

/// The numbers of a rule, or of an override. A number is `None` if it could not be read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Numbers {
    Limit {
        limit: Option<At<Limit>>,
        burst: Option<At<u64>>,
    },
    Concurrency(Option<At<u64>>),
    /// The limit finds itself.
    Auto(At<auto_limit::Config>),
    /// A limit of 0.
    Closed,
}

/// The cost of a request; if it is settled after the response, the reserve.
#[derive(Debug)]
pub(super) struct Costs {
    pub default: At<u64>,
    pub by_method: Vec<(Method, At<u64>)>,
    /// The place of `reserve`, or the map without it, if the cost is settled.
    pub settled: Option<SourceSpan>,
    /// The reserve, if it is computed for each request.
    pub computed: Option<Computed>,
}

/// A reserve that is computed for each request.
#[derive(Clone, Debug, Default)]
pub(super) struct Computed {
    pub request_bytes: Weight,
    pub json: Option<ReservedNumbers>,
    /// `None`: what the rule has learned.
    pub plus: Option<u64>,
}

impl Computed {
    fn of(spec: &ComputedReserveSpec) -> Self {
        let weight = spec.request_bytes.value().map_or(0, |weight| weight.0);
        let request_bytes = Weight::thousandths(i64::try_from(weight).unwrap_or(i64::MAX));
        let plus = spec.plus.value().map_or(Some(0), |plus| plus.0);
        let otherwise = spec.otherwise.value().and_then(|otherwise| otherwise.0);
        let json = spec.json.value().map(|json| {
            // One that could not be read makes no difference: that has been reported.
            let weight =
                |key: &Key<ChargedFactor>| key.value().map_or_else(Weight::default, |at| at.0);
            let terms = match json {
                Either::Plain(path) => vec![(path.0.clone(), Weight::ONE)],
                Either::Map(Entries(entries)) => {
                    let term =
                        |(path, key): &(At<MemberName>, _)| (path.value.0.clone(), weight(key));
                    entries.iter().map(term).collect()
                }
            };
            ReservedNumbers { terms, otherwise }
        });
        Self { request_bytes, json, plus }
    }
}

impl From<Costs> for Cost {
    fn from(costs: Costs) -> Self {
        let by_method = costs.by_method.into_iter().map(|(method, at)| (method, at.value));
        Self { default: costs.default.value, by_method: by_method.collect(), settle: None }
    }
}

impl Compiler {
    /// Returns the numbers of a rule, and reports the keys that another kind of rule takes.
    pub(super) fn numbers(&mut self, rule: &RuleSpec, span: SourceSpan) -> Option<Numbers> {
        match (rule.limit.span, rule.concurrency.span) {
            (Some(limit), Some(concurrency)) => {
                self.error(
                    Problem::error(concurrency, "a rule takes one of `limit` and `concurrency`")
                        .label("a second one")
                        .also(limit, "the first")
                        .help("write two rules; they decide together"),
                );
                None
            }
            (None, None) => {
                self.error(
                    Problem::error(span, "a rule needs `limit` or `concurrency`")
                        .help("write `limit: 100/1s`, or `concurrency: 64`"),
                );
                None
            }
            (None, Some(_)) => {
                self.foreign("algorithm", rule.algorithm.span, "`concurrency` takes none");
                for (name, span, ..) in owned(rule) {
                    self.foreign(name, span, "`concurrency` takes none");
                }
                self.concurrency(rule)
            }
            (Some(_), None) if is_zero(&rule.limit) => Some(Numbers::Closed),
            (Some(_), None) => {
                for (name, span, owners, takes) in owned(rule) {
                    if rule.algorithm.is_some_and(|word| !owners.contains(&word.value)) {
                        self.foreign(name, span, takes);
                    }
                }
                let limit = self.rule_limit(&rule.limit);
                Some(Numbers::Limit { limit, burst: rule.burst.number() })
            }
        }
    }

    /// Returns the numbers of a rule with `concurrency`.
    fn concurrency(&mut self, rule: &RuleSpec) -> Option<Numbers> {
        let At { value, span, written } = rule.concurrency.at.as_ref()?.as_ref();
        let number = |value| At { value, span, written };
        let bounds = match value {
            Either::Plain(number_or_auto) => match number_or_auto.0 {
                Some(limit) => return Some(Numbers::Concurrency(Some(number(limit)))),
                None => AUTO_BOUNDS,
            },
            Either::Map(spec) => self.auto_bounds(spec.auto.value()?)?,
        };

        if let Some(span) = rule.plans.span {
            self.error(Problem::error(span, "`plans` beside `concurrency: auto`").help(
                "remove it: one limit is found for all requests. `queue: { share_by: header:x-tenant, \
                 weights: { gold: 4 } }` shares its places",
            ));
            return None;
        }
        if let Some(span) = rule.key.span.filter(|_| !is_of_all(rule)) {
            self.error(Problem::error(span, "`key` beside `concurrency: auto`").help(
                "remove it: one limit is found for all requests, as the service has its places for \
                 all. `queue: { share_by: header:x-tenant }` shares them fairly",
            ));
            return None;
        }
        Some(Numbers::Auto(At { value: bounds, span, written }))
    }

    /// Returns the bounds of a limit that finds itself.
    fn auto_bounds(&mut self, spec: &AutoBoundsSpec) -> Option<auto_limit::Config> {
        let min = spec.min.number()?;
        let max = spec.max.number()?;
        if min.value > max.value {
            let at = if min.written { min } else { max };
            let message =
                format!("the lowest limit, {}, is above the highest, {}", min.value, max.value);
            self.error(
                Problem::error(at.span, message)
                    .help(format!("write a `max` of at least {}, or a lower `min`", min.value)),
            );
            return None;
        }
        let bound = |at: At<u64>| u32::try_from(at.value).ok();
        Some(auto_limit::Config { min: bound(min)?, max: bound(max)? })
    }

    /// Reports a key that means nothing in this kind of rule.
    fn foreign(&mut self, name: &str, span: Option<SourceSpan>, why: &str) {
        if let Some(span) = span {
            let problem = Problem::error(span, format!("`{name}` has no effect in this rule"));
            self.error(problem.help(format!("remove it: {why}")));
        }
    }

    pub(super) fn limit(&mut self, key: &Key<LimitSpec>) -> Option<At<Limit>> {
        let at = key.at.as_ref()?;
        let limit = match &at.value {
            Either::Plain(limit) => Ok(limit.0),
            Either::Map(spec) => long_limit(spec)?,
        };
        self.keep(limit, at.span)
    }

    /// Returns the limit of a rule, unless it is 0.
    fn rule_limit(&mut self, key: &Key<RuleLimitSpec>) -> Option<At<Limit>> {
        let at = key.at.as_ref()?;
        let limit = match &at.value {
            Either::Plain(limit) => Ok(limit.0?),
            Either::Map(spec) => long_limit(spec)?,
        };
        self.keep(limit, at.span)
    }

    pub(super) fn override_numbers(
        &mut self,
        at: &At<OverrideSpec>,
        rule: &RuleSpec,
        base: Numbers,
    ) -> Option<Numbers> {
        let spec = &at.value;
        match base {
            Numbers::Concurrency(_) | Numbers::Auto(_) => {
                let limit = self.misplaced(spec.limit.span, "the rule has `concurrency`");
                let burst = self.misplaced(spec.burst.span, "the rule has `concurrency`");
                if limit || burst {
                    return None;
                }

                if !spec.concurrency.is_written() {
                    return self.changes_nothing(at.span, "concurrency: 64");
                }
                Some(Numbers::Concurrency(spec.concurrency.number()))
            }
            Numbers::Limit { .. } | Numbers::Closed => {
                let is_closed = matches!(base, Numbers::Closed);
                let (limit, burst) = match base {
                    Numbers::Limit { limit, burst } => (limit, burst),
                    Numbers::Concurrency(_) | Numbers::Auto(_) | Numbers::Closed => (None, None),
                };
                let in_flight = self.misplaced(spec.concurrency.span, "the rule has `limit`");
                let has_burst = rule.algorithm.is_some_and(|word| {
                    [AlgorithmWord::TokenBucket, AlgorithmWord::LeakyBucket].contains(&word.value)
                });
                let why = "its algorithm has no `burst`";
                if (!has_burst && self.misplaced(spec.burst.span, why)) || in_flight {
                    return None;
                }

                if !spec.limit.is_written() && !spec.burst.is_written() {
                    return self.changes_nothing(at.span, "limit: 100/1s");
                }

                if is_zero(&spec.limit) || (!spec.limit.is_written() && is_closed) {
                    return Some(Numbers::Closed);
                }
                let limit =
                    if spec.limit.is_written() { self.rule_limit(&spec.limit) } else { limit };
                let burst =
                    if spec.burst.is_written() { Some(spec.burst.number()?) } else { burst };
                Some(Numbers::Limit { limit, burst })
            }
        }
    }

    /// Reports a number that the rule does not have; returns whether it is written.
    fn misplaced(&mut self, span: Option<SourceSpan>, why: &str) -> bool {
        if let Some(span) = span {
            let message = "an override changes the numbers that its rule has";
            self.error(Problem::error(span, message).help(format!("remove it: {why}")));
        }
        span.is_some()
    }

    fn changes_nothing(&mut self, span: SourceSpan, example: &str) -> Option<Numbers> {
        self.error(
            Problem::error(span, "an override that changes nothing")
                .help(format!("write a number beside `when`, as in `{example}`")),
        );
        None
    }
}

/// The bounds of `concurrency: auto`.
const AUTO_BOUNDS: auto_limit::Config = auto_limit::Config { min: 1, max: 1000 };

/// Returns whether a rule counts all requests together.
fn is_of_all(rule: &RuleSpec) -> bool {
    rule.key.value().is_some_and(|parts| parts.0.0.iter().all(|part| &*part.value.0 == "route"))
}

/// Returns whether a limit is 0, which rejects all.
fn is_zero(key: &Key<RuleLimitSpec>) -> bool {
    matches!(key.value(), Some(Either::Plain(RateOrZero(None))))
}

/// Returns the long form of a limit; `None` if a part of it could not be read.
fn long_limit(spec: &RateSpec) -> Option<Result<Limit, values::InvalidValue>> {
    let count = spec.requests.number()?.value;
    let window = spec.window.duration()?.value;
    Some(values::rate_of(count, window).map(|rate| Limit { rate, unit: None }))
}

/// A key that only some algorithms take: its name, its span, which algorithms, and that in words.
type Owned = (&'static str, Option<SourceSpan>, &'static [AlgorithmWord], &'static str);

/// Returns the keys of a rule that only some algorithms take.
fn owned(rule: &RuleSpec) -> [Owned; 9] {
    use AlgorithmWord::{FixedWindow, LeakyBucket, Pacing, SlidingWindow, TokenBucket};
    const BURST: &str = "only `token_bucket` and `leaky_bucket` take it";
    const WARM_UP: &str = "only `token_bucket` and `pacing` take it";
    const WAITS: &str = "only `algorithm: pacing` makes requests wait";
    const LENDS: &str = "only `sliding_window` and `fixed_window` have windows to borrow from";
    const SLIDING: &str = "only `algorithm: sliding_window` takes it";
    const FIXED: &str = "only `algorithm: fixed_window` takes it";
    [
        ("burst", rule.burst.span, &[TokenBucket, LeakyBucket], BURST),
        ("warm_up", rule.warm_up.span, &[TokenBucket, Pacing], WARM_UP),
        ("max_wait", rule.max_wait.span, &[Pacing], WAITS),
        ("max_queue", rule.max_queue.span, &[Pacing], WAITS),
        ("priority", rule.priority.span, &[SlidingWindow, FixedWindow], LENDS),
        ("buckets", rule.buckets.span, &[SlidingWindow], SLIDING),
        ("strict", rule.strict.span, &[SlidingWindow], SLIDING),
        ("align", rule.align.span, &[FixedWindow], FIXED),
        ("tz", rule.tz.span, &[FixedWindow], FIXED),
    ]
}

pub(super) fn warm_up(key: &Key<Box<WarmUpSpec>>) -> Option<WarmUp> {
    let spec = key.value()?;
    let period = spec.period.duration()?.value;
    let cold_factor = u32::try_from(spec.cold_factor.number()?.value).unwrap_or(u32::MAX);
    Some(WarmUp { period, cold_factor })
}

/// Returns how much requests of a rule at `span` count.
pub(super) fn costs(key: &Key<CostSpec>, span: SourceSpan) -> Costs {
    let one = At { value: 1, span, written: false };
    let Some(at) = &key.at else { return Costs::of(one) };
    match &at.value {
        Either::Plain(cost) => Costs::of(at.as_ref().map(|_| cost.0)),
        Either::Map(MarkedOr::Map(Entries(entries))) => Costs::by_method(one, entries),
        Either::Map(MarkedOr::Marked(spec)) => {
            let one = At { span: at.span, ..one };
            let costs = match spec.reserve.at.as_ref().map(|at| at.as_ref()) {
                None => Costs::of(one),
                Some(At { value: Either::Plain(cost), span, written }) => Costs {
                    computed: cost.0.is_none().then(Computed::default),
                    ..Costs::of(At { value: cost.0.unwrap_or(1), span, written })
                },
                Some(At { value: Either::Map(MarkedOr::Map(Entries(entries))), .. }) => {
                    Costs::by_method(one, entries)
                }
                Some(At { value: Either::Map(MarkedOr::Marked(spec)), .. }) => {
                    Costs { computed: Some(Computed::of(spec)), ..Costs::of(one) }
                }
            };
            Costs { settled: Some(spec.reserve.span.unwrap_or(at.span)), ..costs }
        }
    }
}

impl Costs {
    /// Returns one cost of all requests.
    const fn of(default: At<u64>) -> Self {
        Self { default, by_method: Vec::new(), settled: None, computed: None }
    }

    fn by_method<const MAX: u64>(
        default: At<u64>,
        entries: &[(At<MethodOrDefault>, Key<Integer<1, MAX>>)],
    ) -> Self {
        let mut costs = Self::of(default);
        for (method, cost) in entries {
            match (&method.value.0, cost.number()) {
                (None, cost) => costs.default = cost.unwrap_or(default),
                (Some(method), Some(cost)) => costs.by_method.push((method.clone(), cost)),
                (Some(_), None) => {}
            }
        }
        costs
    }
}

//! Costs that are settled after the response: what they need, and the rules that cannot have them.

use super::{
    compiler::Compiler,
    numbers::{Computed, Costs},
    routes::Parts,
};
use crate::{
    config::{
        decode::{At, Either, Entries, Key, MarkedOr},
        diagnostics::{Lint, Problem, SourceSpan, quoted},
        plan::{
            ComputedReserve, Cost, CountedBytes, JsonCost, RoutePlan, RulePlan, Settle,
            SettleSource, StatusCosts,
        },
        spec::{
            AlgorithmWord, BytesWord, OtherwiseSpec, RuleSpec, Scope, SettleSpec, SettledCost,
            SettledCostSpec, SettlementSpec,
            leaf::{ChargedFactor, Factor, JsonPath, PresetName, StatusesOrDefault},
        },
    },
    route::MemberPaths,
    usage::{Otherwise, Preset, Queries, Query, Weight},
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
        let Either::Map(MarkedOr::Marked(spec)) = &rule.cost.at.as_ref()?.value else {
            return None;
        };

        if let Some((what, why)) = unsettled(rule) {
            let message = format!("`reserve` and `settle` in a rule with {what}");
            let help = format!("write a plain cost, as in `cost: 5`: {why}");
            self.error(Problem::error(span, message).help(help));
            return None;
        }
        let at = spec.settle.at.as_ref()?;
        let source = self.source(&at.value, at.span)?;
        self.reserved_numbers(spec);
        let reserve = costs.computed.clone().map(|Computed { request_bytes, json, plus }| {
            ComputedReserve { request_bytes, json, plus, most: u64::MAX, most_of_plans: Vec::new() }
        });
        let while_streaming = self.while_streaming(rule, spec, &source);
        Some(Settle { source, reserve, while_streaming })
    }

    /// Returns whether what a response has cost so far is charged while it passes, and reports a rule
    /// that cannot do so.
    fn while_streaming(
        &mut self,
        rule: &RuleSpec,
        spec: &SettledCostSpec,
        source: &SettleSource,
    ) -> bool {
        let key = &spec.settle_while_streaming;
        let Some(span) = key.span.filter(|_| key.is_true()) else { return false };
        let fixed = match source {
            SettleSource::Status(_) => Some("status"),
            SettleSource::Header(_) => Some("header"),
            SettleSource::Trailer(_) => Some("trailer"),
            SettleSource::Json(_) | SettleSource::Bytes(_) | SettleSource::Time(_) => None,
        };
        if let Some(name) = fixed {
            let message = format!("`settle_while_streaming` with `{name}`");
            self.error(Problem::error(span, message).help(
                "remove it: only numbers in the body, bytes and time grow while a response passes",
            ));
        }

        let is_shared = rule.scope.value().is_some_and(|scope| *scope == Scope::Cluster);
        if is_shared && !rule.sync_interval.is_written() {
            let message = "`settle_while_streaming` with `scope: cluster` and no `sync_interval`";
            self.error(Problem::error(span, message).help(
                "write `sync_interval: 100ms` beside `scope`, or remove it: the store would get a command for each charge",
            ));
        }
        true
    }

    /// Reports keys of a computed reserve that do not go together.
    fn reserved_numbers(&mut self, spec: &SettledCostSpec) {
        let Some(Either::Map(MarkedOr::Marked(spec))) = spec.reserve.value() else { return };
        if let Some(Either::Map(Entries(entries))) = spec.json.value() {
            self.unique(
                entries.iter().map(|(path, _)| (path.value.0.to_string(), path.span)),
                |path: &String| format!("{} twice", quoted(path)),
                "write each name once: a factor of 2 counts it twice",
            );
        }

        let has_json = spec.json.is_written();
        if let Some(span) = spec.otherwise.span.filter(|_| !has_json) {
            self.error(
                Problem::error(span, "`otherwise` without `json`")
                    .help("write `plus`: only a number in the body may be missing"),
            );
        }
        let is_auto = spec.plus.value().is_some_and(|plus| plus.0.is_none());
        if let Some(span) = spec.plus.span.filter(|_| has_json && is_auto) {
            self.error(Problem::error(span, "`plus: auto` beside `json`").help(
                "write a number: what is learned stands in for `json`, by `otherwise: auto`",
            ));
        }
    }

    fn source(&mut self, spec: &SettlementSpec, span: SourceSpan) -> Option<SettleSource> {
        let spec = match spec {
            Either::Plain(PresetName(preset)) => {
                let words = format!("`{}`", preset.label());
                let otherwise = Preset::otherwise();
                return Some(SettleSource::Json(JsonCost {
                    words,
                    query: preset.query(),
                    otherwise,
                }));
            }
            Either::Map(spec) => spec,
        };

        let sources = [
            ("status", spec.status.is_written(), spec.status.span),
            ("json", spec.json.is_written(), spec.json.span),
            ("header", spec.header.is_written(), spec.header.span),
            ("trailer", spec.trailer.is_written(), spec.trailer.span),
            ("bytes", spec.bytes.is_written(), spec.bytes.span),
            ("time", spec.time.is_written(), spec.time.span),
        ];
        let mut written = sources.into_iter().filter(|(_, is_written, _)| *is_written);
        let Some((first, ..)) = written.next() else {
            self.error(Problem::error(span, "a settlement without a source").help(
                "write what the cost is, as in `settle: { status: { 401: 1, default: 0 } }`, or an API, as in `settle: openai`",
            ));
            return None;
        };
        if let Some((second, _, at)) = written.next() {
            let message =
                format!("a settlement has one source, and this has `{first}` and `{second}`");
            self.error(
                Problem::error(at.unwrap_or(span), message)
                    .help("remove one, or write another rule that settles by it"),
            );
            return None;
        }

        if let Some(Entries(entries)) = spec.json.value() {
            return self.json(spec, entries);
        }
        if let Some(span) = spec.otherwise.span.filter(|_| !spec.json.is_written()) {
            self.error(
                Problem::error(span, "`otherwise` without `json`")
                    .help("remove it: only numbers in a response may be missing"),
            );
        }
        spec.status.value().map(|Entries(entries)| by_status(entries)).or_else(|| measured(spec))
    }

    /// Returns the cost by numbers in the response.
    fn json(
        &mut self,
        spec: &SettleSpec,
        entries: &[(At<JsonPath>, Key<Factor>)],
    ) -> Option<SettleSource> {
        self.unique(
            entries.iter().map(|(path, _)| (path.value.0.clone(), path.span)),
            |path| format!("{} twice", quoted(path)),
            "write each path once: a factor of 2 counts it twice",
        );
        let numbers: Vec<(&str, Weight)> = entries
            .iter()
            .filter_map(|(path, factor)| Some((&*path.value.0, factor.value()?.0)))
            .collect();

        let query = Query::sum(numbers.iter().copied());
        if let Err(error) = Queries::new(core::slice::from_ref(&query)) {
            self.error(
                Problem::error(spec.json.span?, format!("{error}"))
                    .help("write fewer paths, or one for a total"),
            );
            return None;
        }
        if let (false, Some(span)) = (spec.otherwise.is_written(), spec.json.span) {
            let message = "a client that leaves before these numbers come pays the reserve only";
            self.warn(
                Problem::warning(Lint::JsonWithoutOtherwise, span, message).help(
                    "write what such a response costs at least, as in `otherwise: { request_bytes: 0.25, events: 1 }`",
                ),
            );
        }

        let words = numbers.iter().map(|(path, factor)| format!("{factor} × {path}"));
        let words = words.collect::<Vec<_>>().join(" + ");
        let otherwise = spec.otherwise.value().map(otherwise).unwrap_or_default();
        Some(SettleSource::Json(JsonCost { words, query, otherwise }))
    }

    /// Reports rules of a route that look at more members of bodies than one reader finds.
    pub(super) fn not_too_many_members(&mut self, plan: &RoutePlan, parts: &Parts<'_>) {
        let groups = &parts.groups.plans;
        let met = plan.groups.iter().flat_map(|met| &groups[met.index].rules);
        let rules = plan.rules.iter().chain(met).flat_map(|rule| rule.options.members());
        let upstream = plan.action.upstream().and_then(|at| parts.upstreams.get(*at));
        let hash_key = upstream.and_then(|compiled| compiled.plan.options.hash_key.as_ref());
        let all = rules.chain(hash_key.iter().flat_map(|key| key.members()));
        if let Err(error) = MemberPaths::new(all) {
            self.error(Problem::error(plan.span, error.message).help(error.help));
        }
    }

    /// Reports rules of a route that read more numbers than one reader finds.
    pub(super) fn not_too_many_numbers(&mut self, plan: &RoutePlan, parts: &Parts<'_>) {
        let groups = &parts.groups.plans;
        let met = plan.groups.iter().flat_map(|met| &groups[met.index].rules);
        let rules = plan.rules.iter().chain(met);
        let query = |rule: &RulePlan| rule.cost.settle.as_deref()?.query().cloned();
        let readers: Vec<_> = rules.filter_map(|rule| Some((rule, query(rule)?))).collect();
        let Some((rule, _)) = readers.first() else { return };

        let queries: Vec<Query> = readers.iter().map(|(_, query)| query.clone()).collect();
        if let Err(error) = Queries::new(&queries) {
            let message = format!("the rules of the route `{}` read {error}", plan.name);
            self.error(
                Problem::error(rule.span, message)
                    .help("settle fewer rules by the response, or by the same numbers"),
            );
        }
    }
}

/// Returns the cost by the status.
fn by_status(entries: &[(At<StatusesOrDefault>, Key<SettledCost>)]) -> SettleSource {
    let mut listed = Vec::with_capacity(entries.len());
    let mut default = None;
    for (statuses, cost) in entries {
        let cost = cost.number().map(|at| at.value);
        match &statuses.value.0 {
            None => default = cost,
            Some(statuses) => listed.extend(cost.map(|cost| (statuses.clone(), cost))),
        }
    }
    SettleSource::Status(StatusCosts::new(listed, default))
}

/// Returns the cost by a field, the bytes or the time.
fn measured(spec: &SettleSpec) -> Option<SettleSource> {
    let header = spec.header.value().map(|name| SettleSource::Header(name.0.clone()));
    let trailer = spec.trailer.value().map(|name| SettleSource::Trailer(name.0.clone()));
    let bytes = spec.bytes.value().map(|word| {
        SettleSource::Bytes(match word {
            BytesWord::Request => CountedBytes::Request,
            BytesWord::Response => CountedBytes::Response,
            BytesWord::Both => CountedBytes::Both,
        })
    });
    let time = spec.time.duration().map(|at| SettleSource::Time(at.value));
    header.or(trailer).or(bytes).or(time)
}

fn otherwise(spec: &OtherwiseSpec) -> Otherwise {
    match spec {
        Either::Plain(_) => Otherwise::Refund,
        Either::Map(weights) => {
            let weight = |key: &Key<ChargedFactor>| {
                key.value().map_or_else(Weight::default, |factor| factor.0)
            };
            Otherwise::Weights {
                request_bytes: weight(&weights.request_bytes),
                response_bytes: weight(&weights.response_bytes),
                events: weight(&weights.events),
            }
        }
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
    None
}

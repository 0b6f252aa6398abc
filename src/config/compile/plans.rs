//! The plans of a rule: their numbers, from the configuration and from files.

use super::{
    compiler::Compiler,
    numbers::{Costs, Numbers},
    plan_file::{PlanFile, PlanRow},
    quotas,
};
use crate::{
    config::{
        decode::{At, Either, Entries},
        diagnostics::{Problem, SourceSpan, quoted},
        plan::ClientPlans,
        spec::{
            AlgorithmWord, PlanNumbers, PlansSpec, RuleSpec,
            leaf::Text,
            values::{self, Limit, PlanNumber},
        },
    },
    counted::counted,
    flow::{Algorithm, PlanKey, PlanTable, PlannedConfig},
    route::{KeyPart, KeySpec},
};
use ahash::AHashMap;
use core::mem::{replace, take};
use std::{
    collections::hash_map::Entry,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

/// The most plans of one rule.
const MAX_PLANS: usize = 1_000_000;

/// The most rows of a file that are reported.
const MAX_REPORTED: usize = 20;

/// The most plans that `check` prints with their numbers.
const MAX_WORDS: usize = 8;

/// The plans of a rule as far as they are read.
#[derive(Default)]
struct Rows {
    levels: Vec<Algorithm>,
    /// The index of the numbers of each plan that was read.
    plans: Vec<(PlanKey, u32)>,
    seen: AHashMap<PlanKey, Place>,
    /// The numbers that were compiled, with the index of their level; `None`: they have a problem.
    known: AHashMap<(Option<Limit>, u64), Option<u32>>,
}

/// The place of a plan: its line in the file, or its span in the configuration.
#[derive(Clone, Copy)]
struct Place {
    span: SourceSpan,
    line: Option<u64>,
}

/// A rule with plans.
#[derive(Clone, Copy)]
pub(super) struct PlannedRule<'r> {
    pub(super) spec: &'r RuleSpec,
    pub(super) name: &'r str,
    pub(super) key: &'r KeySpec,
    pub(super) numbers: Numbers,
    pub(super) costs: &'r Costs,
}

impl Compiler {
    /// Returns the algorithm of a rule with the numbers of its plans, and the plans, if it has any;
    /// `None` if they have a problem.
    pub(super) fn with_plans(
        &mut self,
        rule: PlannedRule<'_>,
        own: Algorithm,
    ) -> Option<(Algorithm, Option<Arc<ClientPlans>>)> {
        match &rule.spec.plans.at {
            Some(plans) => {
                let (algorithm, plans) = self.plans(plans, rule, own)?;
                Some((algorithm, Some(plans)))
            }
            // What could not be read has been reported.
            None => (!rule.spec.plans.is_written()).then_some((own, None)),
        }
    }

    /// Compiles the plans of a rule. Returns its algorithm with their numbers; `None` if they have a
    /// problem.
    fn plans(
        &mut self,
        plans: &At<Box<PlansSpec>>,
        rule: PlannedRule<'_>,
        own: Algorithm,
    ) -> Option<(Algorithm, Arc<ClientPlans>)> {
        let spec = &plans.value;
        let by = self.plan_by(spec, rule.key)?;
        if !spec.limits.is_written() && !spec.file.is_written() {
            self.error(Problem::error(plans.span, "`plans` without a plan").help(
                "write `limits: { gold: 1000/1m }`, or `file: accounts.csv` with a plan a line",
            ));
            return None;
        }

        if matches!(rule.numbers, Numbers::Closed) {
            self.error(Problem::error(plans.span, "`plans` in a rule with `limit: 0`").help(
                "write the limit of clients without a plan, at least 1, or the plans as `overrides`",
            ));
            return None;
        }

        let mut rows = Rows::default();
        let before = self.errors.count();
        let named = self.named_plans(spec, rule, &by, &mut rows);
        let file = self.plans_of_file(spec, rule, &by, &mut rows);
        if self.errors.count() > before {
            return None;
        }

        if rows.plans.len() > MAX_PLANS {
            let message = format!("the rule `{}` has {} plans", rule.name, rows.plans.len());
            let help = format!("write at most {MAX_PLANS}");
            self.error(Problem::error(plans.span, message).help(help));
            return None;
        }

        let words = words(&named, &rows, file.as_deref());
        let quotas = rows.levels.iter().map(|level| quotas::quota(rule.name, level)).collect();
        let table = Arc::new(PlanTable::new(rows.plans, rows.levels));
        let named = named.into_iter().map(|(key, name, _)| (key, name)).collect();
        let plans = ClientPlans::new(by, Arc::clone(&table), named, quotas, words.into());
        Some((Algorithm::Planned(PlannedConfig::new(own, table)), Arc::new(plans)))
    }

    /// Returns the part of a request that names its plan.
    fn plan_by(&mut self, spec: &PlansSpec, key: &KeySpec) -> Option<KeySpec> {
        let at = spec.by.at.as_ref()?;
        if at.value.0 == "key" {
            if key.is_shared() {
                self.error(
                    Problem::error(at.span, "`by: key` in a rule without a `key`").help(
                        "write the rule's `key`, or the part of a request that names the plan, as in `by: jwt:plan`",
                    ),
                );
                return None;
            }
            return Some(key.clone());
        }

        let part = self.pattern(KeyPart::parse(&at.value.0, 64), at.span)?;
        self.needs_file_of(&part, at.span);
        if part == KeyPart::Route {
            let problem = Problem::error(at.span, "`route` names no plan");
            self.error(problem.help("write what does, as in `by: jwt:plan`"));
            return None;
        }
        self.pattern(KeySpec::new(vec![part]), at.span)
    }

    /// Compiles the plans that the configuration itself has. Returns their names and numbers.
    fn named_plans(
        &mut self,
        spec: &PlansSpec,
        rule: PlannedRule<'_>,
        by: &KeySpec,
        rows: &mut Rows,
    ) -> Vec<(PlanKey, Arc<str>, u32)> {
        let mut named = Vec::new();
        let Some(at) = &spec.limits.at else { return named };
        let Entries(entries) = &at.value;

        for (name, numbers) in entries {
            let Some(numbers) = &numbers.at else { continue };
            let place = Place { span: name.span, line: None };
            let Some(key) = self.plan_key(by, &name.value.0, place, rows) else { continue };
            let numbers = self.plan_numbers(name, numbers, rule.numbers);
            let level = numbers.and_then(|numbers| self.level(rule, numbers, rows));
            if let Some(level) = level {
                rows.plans.push((key, level));
                named.push((key, name.value.0.as_str().into(), level));
            }
        }
        named
    }

    /// Compiles the plans of the file that the rule names.
    fn plans_of_file(
        &mut self,
        spec: &PlansSpec,
        rule: PlannedRule<'_>,
        by: &KeySpec,
        rows: &mut Rows,
    ) -> Option<Arc<PlanFile>> {
        let named = spec.file.path()?;
        // What is wrong with the file as a whole has been reported.
        let file = Arc::clone(self.plan_files.get(&named.value)?.as_ref()?);
        let mut hasher = DefaultHasher::new();
        (self.network_print, file.print).hash(&mut hasher);
        self.network_print = hasher.finish();

        // Of a faulty file, the first rows are shown: the others often have the same fault.
        let others = take(&mut self.errors);
        let mut faulty = 0;
        for row in &file.rows {
            let before = self.errors.count();
            self.plan_of_row(row, named.span, rule, by, rows);
            if self.errors.count() > before {
                faulty += 1;
                let place = format!("line {} of {}: ", row.line, file.path.display());
                self.errors.place_from(before, &place);
                if faulty >= MAX_REPORTED {
                    break;
                }
            }
        }

        let found = replace(&mut self.errors, others);
        self.errors.extend(found);
        Some(file)
    }

    fn plan_of_row(
        &mut self,
        row: &PlanRow,
        span: SourceSpan,
        rule: PlannedRule<'_>,
        by: &KeySpec,
        rows: &mut Rows,
    ) {
        let place = Place { span, line: Some(row.line) };
        let Some(key) = self.plan_key(by, &row.key, place, rows) else { return };
        let Some(number) = self.read_number(values::plan_number(&row.limit), span) else { return };
        let number = self.plan_number(number, &row.key, span, rule.numbers);

        let numbers = match (number, row.burst.as_str()) {
            (None, _) => None,
            (numbers, "") => numbers,
            (Some(Numbers::Limit { limit, .. }), burst) => {
                let burst =
                    self.read_number(values::integer_within(burst, 1, 1_000_000_000_000), span);
                let burst = burst.and_then(|burst| self.plan_burst(rule.spec, burst, span));
                burst.map(|burst| Numbers::Limit { limit, burst: Some(burst) })
            }
            (Some(Numbers::Concurrency(_) | Numbers::Auto(_) | Numbers::Closed), _) => {
                self.error(
                    Problem::error(span, "a `burst` beside `concurrency`").help("remove it"),
                );
                None
            }
        };

        if let Some(level) = numbers.and_then(|numbers| self.level(rule, numbers, rows)) {
            rows.plans.push((key, level));
        }
    }

    /// Returns the key of a plan, and reports that there are two of its name.
    fn plan_key(
        &mut self,
        by: &KeySpec,
        name: &str,
        place: Place,
        rows: &mut Rows,
    ) -> Option<PlanKey> {
        let Some(key) = ClientPlans::key_of(by, name, &self.nat64) else {
            let message = format!("{} is no value of `{by}`", quoted(name));
            let help = "write the plan's name; of a key with several parts, all values with `, ` between them";
            self.error(Problem::error(place.span, message).help(help));
            return None;
        };

        match rows.seen.entry(key) {
            Entry::Vacant(free) => _ = free.insert(place),
            Entry::Occupied(taken) => {
                let first = *taken.get();
                let other = match first.line {
                    Some(line) => format!(", first in line {line}"),
                    None => String::new(),
                };
                let message = format!("the plan {} is there twice{other}", quoted(name));
                let mut problem = Problem::error(place.span, message).help("remove one");
                if first.line.is_none() {
                    problem = problem.also(first.span, "first here");
                }
                self.error(problem);
                return None;
            }
        }
        Some(key)
    }

    /// Returns the numbers of a plan of the configuration.
    fn plan_numbers(
        &mut self,
        name: &At<Text>,
        numbers: &At<PlanNumbers>,
        base: Numbers,
    ) -> Option<Numbers> {
        let spec = match &numbers.value {
            Either::Plain(number) => {
                return self.plan_number(number.0, &name.value.0, numbers.span, base);
            }
            Either::Map(spec) => spec,
        };

        match base {
            Numbers::Concurrency(_) | Numbers::Auto(_) => {
                let has_limit = [spec.limit.span, spec.burst.span].into_iter().flatten().next();
                if let Some(span) = has_limit {
                    let problem = Problem::error(span, "the rule has `concurrency`");
                    self.error(problem.help("write how many requests may be in flight"));
                    return None;
                }
                if !spec.concurrency.is_written() {
                    return self.empty_plan(numbers.span, "concurrency: 64");
                }
                Some(Numbers::Concurrency(Some(spec.concurrency.number()?)))
            }
            Numbers::Limit { limit: own, burst } => {
                if let Some(span) = spec.concurrency.span {
                    let problem = Problem::error(span, "the rule has `limit`");
                    self.error(problem.help("write a limit, as in `1000/1m`"));
                    return None;
                }
                if !spec.limit.is_written() && !spec.burst.is_written() {
                    return self.empty_plan(numbers.span, "limit: 1000/1m");
                }

                let limit = if spec.limit.is_written() { self.limit(&spec.limit)? } else { own? };
                let limit = self.same_window(limit, &name.value.0, own?)?;
                let burst =
                    if spec.burst.is_written() { Some(spec.burst.number()?) } else { burst };
                Some(Numbers::Limit { limit: Some(limit), burst })
            }
            // Reported before the plans are read.
            Numbers::Closed => None,
        }
    }

    fn empty_plan(&mut self, span: SourceSpan, example: &str) -> Option<Numbers> {
        let problem = Problem::error(span, "a plan without a number");
        self.error(problem.help(format!("write one, as in `{example}`")));
        None
    }

    /// Returns the numbers of a plan with this limit.
    fn plan_number(
        &mut self,
        number: PlanNumber,
        name: &str,
        span: SourceSpan,
        base: Numbers,
    ) -> Option<Numbers> {
        match (number, base) {
            (PlanNumber::Limit(limit), Numbers::Limit { limit: own, burst }) => {
                let limit = At { value: limit, span, written: true };
                let limit = self.same_window(limit, name, own?)?;
                Some(Numbers::Limit { limit: Some(limit), burst })
            }
            (PlanNumber::Concurrency(limit), Numbers::Concurrency(_) | Numbers::Auto(_)) => {
                Some(Numbers::Concurrency(Some(At { value: limit, span, written: true })))
            }
            // Reported before the plans are read.
            (_, Numbers::Closed) => None,
            (PlanNumber::Limit(_), Numbers::Concurrency(_) | Numbers::Auto(_)) => {
                let message = format!("the plan {} has a rate, and its rule none", quoted(name));
                self.error(
                    Problem::error(span, message)
                        .help("write how many requests may be in flight, as in `64`"),
                );
                None
            }
            (PlanNumber::Concurrency(number), Numbers::Limit { limit: own, .. }) => {
                let window = own.map_or_else(|| "1m".to_owned(), |own| window(own.value));
                let message = format!("the plan {} has no window", quoted(name));
                let help = format!("write `{number}/{window}`");
                self.error(Problem::error(span, message).help(help));
                None
            }
        }
    }

    /// Returns the limit of a plan if its window is that of its rule: the counts are the same for
    /// all plans.
    fn same_window(&mut self, limit: At<Limit>, name: &str, own: At<Limit>) -> Option<At<Limit>> {
        let parts = |limit: Limit| (limit.rate.window(), limit.unit);
        if parts(limit.value) == parts(own.value) {
            return Some(limit);
        }
        let rule = window(own.value);
        let message = format!(
            "the plan {} has the window {}, and its rule {rule}",
            quoted(name),
            window(limit.value)
        );
        let help = format!("write how many per {rule}: all plans share the counts of the rule");
        self.error(Problem::error(limit.span, message).help(help));
        None
    }

    /// Returns the size of a bucket, and reports that the rule has none.
    fn plan_burst(&mut self, rule: &RuleSpec, burst: u64, span: SourceSpan) -> Option<At<u64>> {
        let has_burst = rule.algorithm.is_some_and(|word| {
            [AlgorithmWord::TokenBucket, AlgorithmWord::LeakyBucket].contains(&word.value)
        });
        if !has_burst {
            let problem =
                Problem::error(span, "a `burst`, which the rule's algorithm does not have");
            self.error(problem.help("remove it: only `token_bucket` and `leaky_bucket` take it"));
            return None;
        }
        Some(At { value: burst, span, written: true })
    }

    /// Returns the index of these numbers among the levels, which get them if they are new.
    fn level(&mut self, rule: PlannedRule<'_>, numbers: Numbers, rows: &mut Rows) -> Option<u32> {
        let known = match numbers {
            Numbers::Limit { limit, burst } => {
                (Some(limit?.value), burst.map_or(0, |burst| burst.value))
            }
            Numbers::Concurrency(limit) => (None, limit?.value),
            Numbers::Auto(bounds) => (None, bounds.value.max.into()),
            Numbers::Closed => return None,
        };
        if let Some(level) = rows.known.get(&known) {
            return *level;
        }

        let level = self.algorithm(rule.spec, numbers, rule.costs).and_then(|algorithm| {
            let level = u32::try_from(rows.levels.len()).ok()?;
            rows.levels.push(algorithm);
            Some(level)
        });
        rows.known.insert(known, level);
        level
    }

    fn read_number<T>(&mut self, read: Result<T, values::Wrong>, span: SourceSpan) -> Option<T> {
        match read {
            Ok(value) => Some(value),
            Err(values::Wrong::Text(invalid)) => {
                self.error(Problem::error(span, invalid.message).help(invalid.help));
                None
            }
            Err(values::Wrong::Bound { found, wanted }) => {
                self.error(Problem::error(span, format!("{found} is not {wanted}")));
                None
            }
        }
    }
}

/// Writes the window of a limit as the file does.
fn window(limit: Limit) -> String {
    let text = limit.unit.map(|unit| unit.word().to_owned());
    text.unwrap_or_else(|| crate::flow::time::spelled(limit.rate.window()).replace(' ', ""))
}

/// Returns the plans in words: the numbers of the first ones, and how many the file has.
fn words(named: &[(PlanKey, Arc<str>, u32)], rows: &Rows, file: Option<&PlanFile>) -> String {
    let numbers = |level: u32| {
        let algorithm = usize::try_from(level).ok().and_then(|level| rows.levels.get(level));
        algorithm.map(in_words).unwrap_or_default()
    };
    let shown = named.iter().take(MAX_WORDS);
    let mut words: Vec<_> =
        shown.map(|(_, name, level)| format!("{name} {}", numbers(*level))).collect();
    if named.len() > MAX_WORDS {
        words.push(format!("{} more", named.len() - MAX_WORDS));
    }

    if let Some(file) = file {
        let name = file.path.file_name().unwrap_or_default().to_string_lossy();
        words.push(format!(
            "{} of {name}, {:08x}",
            counted(file.rows.len(), "plan"),
            file.print >> 32
        ));
    }
    words.join(", ")
}

/// Returns the numbers of a plan in words.
fn in_words(algorithm: &Algorithm) -> String {
    let limit = quotas::quota("", algorithm).map(|quota| quota.text.to_string());
    let burst = match algorithm {
        Algorithm::Concurrency(config) => return config.limit.to_string(),
        Algorithm::AutoConcurrency(config) => return format!("auto {config}"),
        Algorithm::Pacing(config) => return config.rate.to_string(),
        Algorithm::TokenBucket(config) if config.burst != config.rate.count() => config.burst,
        Algorithm::WarmUp(config) if config.burst != config.rate.count() => config.burst,
        Algorithm::LeakyBucket(config) if config.capacity != config.rate.count() => config.capacity,
        Algorithm::TokenBucket(_)
        | Algorithm::WarmUp(_)
        | Algorithm::LeakyBucket(_)
        | Algorithm::SlidingLog(_)
        | Algorithm::SlidingWindow(_)
        | Algorithm::SlidingCounter(_)
        | Algorithm::FixedWindow(_)
        | Algorithm::Closed
        | Algorithm::Planned(_)
        | Algorithm::Synced(_) => return limit.unwrap_or_default(),
    };
    format!("{} burst {burst}", limit.unwrap_or_default())
}

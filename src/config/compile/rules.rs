//! Rules and pacing: numbers that can work, keys that fit, and rules that can never decide.

use super::{
    compiler::Compiler,
    numbers::{Costs, Numbers, Windows, costs, warm_up},
    quotas,
};
use crate::{
    config::{
        decode::{At, Key, List},
        diagnostics::{Place, Problem, quoted},
        plan::{BREAKER, Cost, PACING, RulePlan, When},
        spec::{
            AlgorithmWord, OnMissing, OnStoreError, PacingSpec, RuleSpec, calendar, leaf::Name,
            values::Limit,
        },
    },
    flow::{
        self, Algorithm, Keyed, Rate, Stored, WarmUp,
        limiter::{
            concurrency, fixed_window, leaky_bucket, sliding_counter, sliding_log, sliding_window,
            token_bucket, warm_up,
        },
        pacing,
        time::spelled,
    },
    route::{KeySpec, Part},
};
use bytesize::ByteSize;
use std::{collections::hash_map::Entry, sync::Arc, time::Duration};

impl Compiler {
    pub(super) fn rules(
        &mut self,
        key: &Key<List<RuleSpec>>,
        pacing: Option<&At<Box<PacingSpec>>>,
    ) -> (flow::Rules, Vec<RulePlan>, Option<OnStoreError>) {
        let specs = self.at_most_16(key);
        self.names("rule", specs.iter().filter_map(|at| at.value.name.as_ref()));
        self.own_names(specs.iter().filter_map(|at| at.value.name.as_ref()));
        let mut places = Vec::with_capacity(specs.len());
        let mut rules = flow::Rules::default();
        let mut plans: Vec<RulePlan> = Vec::with_capacity(specs.len());
        for at in specs {
            for (rule, plan) in self.rule(at).into_iter().flatten() {
                places.push(at.place);
                rules.flow.push(rule);
                plans.push(plan);
            }
        }
        for (idle, busy) in idle_rules(&rules.flow, &plans) {
            let message = format!("the rule `{}` can never reject anything", plans[idle].name);
            self.warn(
                Problem::warning(places[idle], message)
                    .label("allows what the other one rejects first")
                    .also(places[busy], format!("`{}` is as strict or stricter", plans[busy].name))
                    .help("remove it, or write a lower limit"),
            );
        }
        let pacing = pacing.map(|at| &at.value);
        rules.pacing = pacing.and_then(|spec| self.route_pacing(spec));
        let shared = rules.pacing.as_ref().zip(pacing).and_then(|(config, spec)| {
            self.scope(&spec.scope, &spec.on_store_error, [Stored::paced(config)])
        });
        let is_shared = shared.is_some() || plans.iter().any(|plan| plan.shared.is_some());
        if let Some(at) = plans.iter().position(|plan| is_shared && plan.priority.is_some()) {
            self.error(
                Problem::error(places[at], "`priority` beside a rule with `scope: cluster`")
                    .help("remove one: what is lent here cannot wait for what others decide"),
            );
        }
        (rules, plans, shared)
    }

    /// Returns the rules of a route, and reports more than sixteen. Each override is asked as a rule
    /// of its own.
    fn at_most_16<'k>(&mut self, key: &'k Key<List<RuleSpec>>) -> &'k [At<RuleSpec>] {
        let specs = key.items();
        let count = specs.iter().map(|at| 1 + at.value.overrides.items().len()).sum::<usize>();
        if count <= MAX_RULES {
            return specs;
        }
        self.error(
            Problem::error(key.place.unwrap_or_default(), format!("{count} rules are too many"))
                .help(format!("write at most {MAX_RULES} rules a route")),
        );
        &specs[..specs.len().min(MAX_RULES)]
    }

    /// Reports names of rules that a route's own slots go by.
    fn own_names<'n>(&mut self, names: impl Iterator<Item = &'n At<Name>>) {
        for name in names.filter(|name| [BREAKER, PACING].contains(&&*name.value.0)) {
            self.error(
                Problem::error(name.place, format!("no rule can be called `{}`", name.value.0))
                    .label("the route's own goes by this name")
                    .help("write another name: it tells them apart in logs, metrics and reloads"),
            );
        }
    }

    /// Compiles a rule: first its alternatives, of which a request is asked by the first that fits.
    fn rule(&mut self, at: &At<RuleSpec>) -> Option<Vec<(flow::Rule, RulePlan)>> {
        let spec = &at.value;
        let numbers = self.numbers(at);
        let overrides = self.overrides(spec, numbers);
        let key = self.key(at, &overrides);
        let is_keyed = key.as_ref().is_some_and(|key| !key.is_shared());
        let max_keys = spec.max_keys.number();
        if let Some(at) = max_keys.filter(|at| at.written && !is_keyed) {
            self.error(
                Problem::error(at.place, "`max_keys` without a `key`")
                    .help("write `key: client_ip`, or remove it: all requests share one count"),
            );
        }
        let costs = costs(&spec.cost, at.place);
        let algorithm = numbers.and_then(|numbers| self.algorithm(spec, numbers, &costs));
        let except = spec.except.as_ref().and_then(|at| self.except(&at.value, at.place));
        let priority = spec.priority.value().and_then(|spec| self.priority(spec)).map(Arc::new);
        let mut versions = self.alternatives(spec, &overrides, &costs);
        let named = spec.name.at.as_ref()?;
        let name = named.value.0.clone();
        let key = key?;
        let algorithm = algorithm?;
        versions.push((algorithm, None));
        let stored = versions.iter().map(|(algorithm, _)| Stored::new(algorithm));
        let shared = self.scope(&spec.scope, &spec.on_store_error, stored);
        let sync_interval = self.sync_interval(&spec.sync_interval, &spec.scope, &mut versions);
        let cost = Cost::from(costs);
        let dry_run = spec.dry_run.is_true();
        let keyed = is_keyed.then(|| Keyed {
            by: key.to_string().into(),
            max_keys: max_keys.map_or(u32::MAX, |at| u32::try_from(at.value).unwrap_or(u32::MAX)),
        });
        let version = |(algorithm, when): (Algorithm, Option<Arc<When>>)| {
            // A name cannot hold blanks, so that this is nobody else's.
            let identity = when.as_ref().map(|when| format!("{name} when {}", when.words()).into());
            let plan = RulePlan {
                name: name.clone(),
                place: named.place,
                when,
                key: key.clone(),
                on_missing: spec.on_missing_key.map_or(OnMissing::Shared, |at| at.value),
                cost: cost.clone(),
                except: except.clone(),
                priority: priority.clone(),
                quota: quotas::quota(&name, &algorithm),
                dry_run,
                shared,
                sync_interval,
            };
            let name = identity.unwrap_or_else(|| name.clone());
            let keyed = keyed.clone();
            (flow::Rule { name, algorithm, keyed, dry_run }, plan)
        };
        let versions: Vec<_> = versions.into_iter().map(version).collect();
        self.memory(&versions, max_keys.map_or(at.place, |at| at.place));
        Some(versions)
    }

    /// Compiles what the overrides of a rule count, and for which requests.
    fn alternatives(
        &mut self,
        rule: &RuleSpec,
        overrides: &[(At<Arc<When>>, Numbers)],
        costs: &Costs,
    ) -> Vec<(Algorithm, Option<Arc<When>>)> {
        self.unique(
            overrides.iter().map(|(when, _)| (when.value.words(), when.place)),
            |words| format!("two overrides when {}", quoted(words)),
            "remove one: the first that fits a request is the one that counts",
        );
        let mut versions = Vec::with_capacity(overrides.len() + 1);
        for (when, numbers) in overrides {
            let algorithm = self.algorithm(rule, *numbers, costs);
            versions.extend(algorithm.map(|algorithm| (algorithm, Some(Arc::clone(&when.value)))));
        }
        versions
    }

    /// Reads the overrides of a rule that has these `numbers`.
    fn overrides(
        &mut self,
        rule: &RuleSpec,
        numbers: Option<Numbers>,
    ) -> Vec<(At<Arc<When>>, Numbers)> {
        let on_duplicate = rule.on_duplicate_key.map(|at| at.value.into()).unwrap_or_default();
        let mut overrides = Vec::with_capacity(rule.overrides.items().len());
        for at in rule.overrides.items() {
            let when = self.when(&at.value.when, on_duplicate);
            let numbers = numbers.and_then(|base| self.override_numbers(at, rule, base));
            overrides.extend(when.zip(numbers));
        }
        overrides
    }

    /// Warns of a rule that may take more memory than anyone means to give.
    fn memory(&mut self, versions: &[(flow::Rule, RulePlan)], place: Place) {
        let each = versions.iter().map(|(rule, plan)| rule.most_bytes(plan.priority.is_some()));
        let most = each.fold(0, u64::saturating_add);
        let Some((rule, plan)) = versions.last().filter(|_| most > MUCH_MEMORY) else { return };
        let mut help = Vec::new();
        if let Some(keyed) = &rule.keyed {
            let each = most / u64::from(keyed.max_keys);
            help.push(format!("`max_keys: {}`", (MUCH_MEMORY / each).max(1)));
        }
        if matches!(rule.algorithm, Algorithm::SlidingLog(_)) {
            let flat = "`algorithm: sliding_window` with `strict: true`, whose memory does not \
                        grow with the limit";
            help.push(flat.to_owned());
        }
        let message = format!("the rule `{}` may take {:.1} of memory", plan.name, ByteSize(most));
        self.warn(Problem::warning(place, message).help(format!("write {}", help.join(", or "))));
    }

    fn key(
        &mut self,
        at: &At<RuleSpec>,
        overrides: &[(At<Arc<When>>, Numbers)],
    ) -> Option<KeySpec> {
        let spec = &at.value;
        let ipv6_prefix = spec.ipv6_prefix.number();
        let v6_prefix = ipv6_prefix.and_then(|at| u8::try_from(at.value).ok()).unwrap_or(64);
        let words = spec.key.items();
        let mut parts: Vec<Part> = Vec::with_capacity(words.len());
        for at in words {
            let Some(part) = self.pattern(Part::parse(&at.value.0, v6_prefix), at.place) else {
                continue;
            };
            if parts.contains(&part) {
                let message = format!("{} stands in the key twice", quoted(&at.value.0));
                self.error(Problem::error(at.place, message).help("remove one"));
                continue;
            }
            if part == Part::Route && words.len() > 1 {
                self.error(
                    Problem::error(at.place, "`route` means nothing beside other parts")
                        .help("remove it: every rule counts for its own route"),
                );
            }
            parts.push(part);
        }
        let has = |test: fn(&Part) -> bool| parts.iter().any(test);
        let from_client = has(|part| matches!(part, Part::ClientIp { .. }));
        let may_lack =
            has(|part| matches!(part, Part::Header(_) | Part::Cookie(_) | Part::Query(_)));
        if let Some(at) = ipv6_prefix.filter(|at| at.written && !from_client) {
            self.error(
                Problem::error(at.place, "`ipv6_prefix` without `client_ip` in the key")
                    .help("write `key: client_ip`, or remove it"),
            );
        }
        if let Some(at) = spec.on_missing_key.filter(|at| at.written && !may_lack) {
            self.error(
                Problem::error(at.place, "`on_missing_key` with a key that is never missing")
                    .help("write `key: header:NAME`, `cookie:NAME` or `query:NAME`, or remove it"),
            );
        }
        let mut whens = overrides.iter().map(|(when, _)| when);
        let may_repeat = may_lack || whens.any(|when| when.value.looks_at_fields());
        if let Some(at) = spec.on_duplicate_key.filter(|at| at.written && !may_repeat) {
            self.error(
                Problem::error(
                    at.place,
                    "`on_duplicate_key` with a key that nobody can send twice",
                )
                .help("write `key: header:NAME`, `cookie:NAME` or `query:NAME`, or remove it"),
            );
        }
        if parts.len() < words.len() {
            return None;
        }
        let key = self.pattern(KeySpec::new(parts), spec.key.place.unwrap_or(at.place))?;
        let on_duplicate = spec.on_duplicate_key.map(|at| at.value.into()).unwrap_or_default();
        Some(key.with_duplicates(on_duplicate))
    }

    /// Returns what `rule` counts by, with these `numbers`.
    fn algorithm(&mut self, rule: &RuleSpec, numbers: Numbers, costs: &Costs) -> Option<Algorithm> {
        let (limit, burst) = match numbers {
            Numbers::Concurrency(limit) => {
                let limit = limit?;
                self.cost(costs, limit, "concurrency");
                let config = concurrency::Config { limit: limit.value };
                return Some(Algorithm::Concurrency(config));
            }
            Numbers::Limit { limit, burst } => (limit?, burst),
        };
        let word = *rule.algorithm.value()?;
        if word == AlgorithmWord::FixedWindow {
            return self.fixed_window(rule, limit, costs);
        }
        let rate = self.keep(limit.value.steady(), limit.place)?;
        if !matches!(
            word,
            AlgorithmWord::TokenBucket | AlgorithmWord::LeakyBucket | AlgorithmWord::Pacing
        ) {
            self.cost(costs, rate.map(Rate::count), "limit");
        }
        Some(match word {
            AlgorithmWord::TokenBucket => {
                let burst = self.bucket(rate, burst, costs);
                let rate = rate.value;
                match warm_up(&rule.warm_up) {
                    None => Algorithm::TokenBucket(token_bucket::Config { rate, burst }),
                    Some(warm_up) => Algorithm::WarmUp(warm_up::Config { rate, burst, warm_up }),
                }
            }
            AlgorithmWord::LeakyBucket => {
                let capacity = self.bucket(rate, burst, costs);
                Algorithm::LeakyBucket(leaky_bucket::Config { rate: rate.value, capacity })
            }
            AlgorithmWord::SlidingLog => {
                Algorithm::SlidingLog(sliding_log::Config { rate: rate.value })
            }
            AlgorithmWord::SlidingWindow => {
                let strict = rule.strict.is_true();
                let buckets = self.buckets(rate.value, rule.buckets.number()?)?;
                let rate = rate.value;
                Algorithm::SlidingWindow(sliding_window::Config { rate, buckets, strict })
            }
            AlgorithmWord::SlidingCounter => {
                Algorithm::SlidingCounter(sliding_counter::Config { rate: rate.value })
            }
            AlgorithmWord::FixedWindow => return None,
            // A pace has no largest cost.
            AlgorithmWord::Pacing => {
                let warm_up = warm_up(&rule.warm_up);
                let max_wait = rule.max_wait.duration()?;
                let max_queue = rule.max_queue.number();
                Algorithm::Pacing(self.pacing(rate.value, max_wait, max_queue, warm_up))
            }
        })
    }

    fn fixed_window(
        &mut self,
        rule: &RuleSpec,
        limit: At<Limit>,
        costs: &Costs,
    ) -> Option<Algorithm> {
        let windows = self.windows(rule, limit.value.unit)?;
        let rate = if matches!(windows, Windows::Calendar(..)) {
            limit.map(|limit| limit.rate)
        } else {
            self.keep(limit.value.steady(), limit.place)?
        };
        self.cost(costs, rate.map(Rate::count), "limit");
        let align = self.align(&windows)?;
        Some(Algorithm::FixedWindow(fixed_window::Config { rate: rate.value, align }))
    }

    /// Returns when windows begin.
    fn align(&mut self, windows: &Windows) -> Option<fixed_window::Align> {
        Some(match windows {
            Windows::Clock => fixed_window::Align::Clock,
            Windows::FirstRequest => fixed_window::Align::FirstRequest,
            Windows::Calendar(unit, zone) => {
                // It takes a millisecond to make one, and a file may ask for the same often.
                let calendar = match self.calendars.entry((*unit, zone.clone())) {
                    Entry::Occupied(known) => known.get().clone(),
                    Entry::Vacant(new) => new.insert(calendar::calendar(*unit, zone)?).clone(),
                };
                fixed_window::Align::Calendar(calendar)
            }
        })
    }

    /// Returns the size of a bucket, and refuses a cost that is larger.
    fn bucket(&mut self, rate: At<Rate>, burst: Option<At<u64>>, cost: &Costs) -> u64 {
        let (size, what) = match burst {
            Some(burst) => (burst, "burst"),
            // As many as the limit says may come at once: a smaller bucket would refuse what the
            // limit allows.
            None => (rate.map(Rate::count), "limit"),
        };
        self.cost(cost, size, what);
        if let Some(burst) = burst {
            self.outweighs(rate, burst);
        }
        size.value
    }

    /// Warns of a burst beside which the limit hardly matters: the bucket, which is full at first,
    /// holds more than the limit lets pass in a day.
    fn outweighs(&mut self, rate: At<Rate>, burst: At<u64>) {
        const DAY: Duration = Duration::from_hours(24);
        let count = rate.value.count();
        let windows = u32::try_from(burst.value / count).unwrap_or(u32::MAX);
        let filled_in = rate.value.window().saturating_mul(windows);
        if windows > 10 && filled_in > DAY {
            let message = format!(
                "a burst of {} outweighs the limit, which lets as many pass in {}",
                burst.value,
                spelled(filled_in)
            );
            let problem = Problem::warning(burst.place, message).also(rate.place, "the limit");
            self.warn(problem.help("write a smaller burst: all of it can be used at once"));
        }
    }

    /// Refuses more buckets than the window has nanoseconds, of which some would have none.
    fn buckets(&mut self, rate: Rate, buckets: At<u64>) -> Option<u32> {
        let nanos = rate.window_nanos();
        if buckets.value > nanos {
            let shown = spelled(rate.window());
            let message = format!("{} buckets of {shown} are shorter than 1ns", buckets.value);
            let help = format!("write `buckets: {nanos}`, or fewer");
            self.error(Problem::error(buckets.place, message).help(help));
        }
        u32::try_from(buckets.value.min(nanos)).ok()
    }

    /// Refuses a cost that can never pass, and warns where only some methods never can.
    fn cost(&mut self, cost: &Costs, limit: At<u64>, what: &str) {
        let never = |at: At<u64>, who: &str| {
            (at, format!("{who} costs {} of {what} {}", at.value, limit.value))
        };
        let help = format!("write a cost of at most {}, or a larger {what}", limit.value);
        if cost.default.value > limit.value {
            let (at, message) = never(cost.default, "a request");
            let problem = Problem::error(at.place, format!("nothing can ever pass: {message}"));
            self.error(problem.also(limit.place, "the bound").help(help));
            return;
        }
        for (method, at) in &cost.by_method {
            if at.value > limit.value {
                let (at, message) = never(*at, method.as_str());
                let problem =
                    Problem::warning(at.place, format!("no {method} can ever pass: {message}"));
                self.warn(problem.also(limit.place, "the bound").help(help.clone()));
            }
        }
    }

    fn route_pacing(&mut self, spec: &PacingSpec) -> Option<pacing::Config> {
        let limit = self.limit(&spec.rate)?;
        let rate = self.keep(limit.value.steady(), limit.place)?.value;
        let max_wait = spec.max_wait.duration()?;
        Some(self.pacing(rate, max_wait, spec.max_queue.number(), warm_up(&spec.warm_up)))
    }

    fn pacing(
        &mut self,
        rate: Rate,
        max_wait: At<Duration>,
        max_queue: Option<At<u64>>,
        warm_up: Option<WarmUp>,
    ) -> pacing::Config {
        let fitting = pacing::fitting(rate, max_wait.value);
        let most = fitting.max(1);
        let max_queue = max_queue.map_or(most, |at| {
            if at.value > most {
                let message = format!("no more than {fitting} requests can ever wait");
                self.warn(
                    Problem::warning(at.place, message)
                        .also(max_wait.place, "what would wait longer is rejected")
                        .help("remove it, or write a longer `max_wait`"),
                );
            }
            at.value
        });
        pacing::Config { rate, max_wait: max_wait.value, max_queue, warm_up }
    }
}

/// The most rules of a route: a decision asks each of them, and the answer's headers name them.
const MAX_RULES: usize = 16;

/// What a rule may take before it is warned of: 1 GiB.
const MUCH_MEMORY: u64 = 1 << 30;

/// Reports whether all that `busy` lets pass fits into `idle`: the same algorithm with numbers no
/// larger, or a window beside a bucket.
fn is_stricter(busy: &Algorithm, idle: &Algorithm) -> bool {
    match (busy, idle) {
        (Algorithm::WarmUp(a), Algorithm::WarmUp(b)) => {
            a.rate.window() == b.rate.window()
                && a.rate.count() <= b.rate.count()
                && a.burst <= b.burst
                && a.warm_up == b.warm_up
        }
        (Algorithm::TokenBucket(a), Algorithm::TokenBucket(b)) => {
            a.rate.window() == b.rate.window()
                && a.rate.count() <= b.rate.count()
                && a.burst <= b.burst
        }
        (Algorithm::LeakyBucket(a), Algorithm::LeakyBucket(b)) => {
            a.rate.window() == b.rate.window()
                && a.rate.count() <= b.rate.count()
                && a.capacity <= b.capacity
        }
        (Algorithm::SlidingWindow(a), Algorithm::SlidingWindow(b)) => {
            (a.rate.window(), a.buckets, a.strict) == (b.rate.window(), b.buckets, b.strict)
                && a.rate.count() <= b.rate.count()
        }
        (Algorithm::SlidingLog(a), Algorithm::SlidingLog(b)) => {
            a.rate.window() == b.rate.window() && a.rate.count() <= b.rate.count()
        }
        (Algorithm::SlidingCounter(a), Algorithm::SlidingCounter(b)) => {
            a.rate.window() == b.rate.window() && a.rate.count() <= b.rate.count()
        }
        (Algorithm::FixedWindow(a), Algorithm::FixedWindow(b)) => {
            (a.rate.window(), &a.align) == (b.rate.window(), &b.align)
                && a.align != fixed_window::Align::FirstRequest
                && a.rate.count() <= b.rate.count()
        }
        (Algorithm::Concurrency(a), Algorithm::Concurrency(b)) => a.limit <= b.limit,
        (Algorithm::SlidingLog(a), Algorithm::TokenBucket(b)) => fits(a.rate, b.rate, b.burst),
        (Algorithm::SlidingLog(a), Algorithm::LeakyBucket(b)) => fits(a.rate, b.rate, b.capacity),
        (Algorithm::TokenBucket(a), Algorithm::SlidingLog(b)) => holds(a.rate, a.burst, b.rate),
        (Algorithm::LeakyBucket(a), Algorithm::SlidingLog(b)) => holds(a.rate, a.capacity, b.rate),
        (Algorithm::TokenBucket(a), Algorithm::FixedWindow(b)) if !is_by_calendar(b) => {
            holds(a.rate, a.burst, b.rate)
        }
        (Algorithm::LeakyBucket(a), Algorithm::FixedWindow(b)) if !is_by_calendar(b) => {
            holds(a.rate, a.capacity, b.rate)
        }
        _ => false,
    }
}

const fn is_by_calendar(config: &fixed_window::Config) -> bool {
    matches!(config.align, fixed_window::Align::Calendar(_))
}

/// Reports whether a bucket never runs empty of what passes a window, whenever that begins: it
/// holds the window's count, and gains as much while the window lasts.
fn fits(window: Rate, bucket: Rate, burst: u64) -> bool {
    let gained = u128::from(bucket.count()) * u128::from(window.window_nanos());
    let spent = u128::from(window.count()) * u128::from(bucket.window_nanos());
    window.count() <= burst && spent <= gained
}

/// Reports whether a window never holds more than its count of what passes a bucket: the burst, and
/// what the bucket gains while the window lasts.
fn holds(bucket: Rate, burst: u64, window: Rate) -> bool {
    let unit = u128::from(bucket.window_nanos());
    let gained = u128::from(bucket.count()) * u128::from(window.window_nanos());
    u128::from(burst) * unit + gained <= u128::from(window.count()) * unit
}

/// Returns pairs of a rule that can never reject and the stricter one that always rejects before it:
/// of the same key, cost and exceptions.
fn idle_rules(rules: &[flow::Rule], plans: &[RulePlan]) -> Vec<(usize, usize)> {
    // A rule that has overrides is not asked by all.
    let is_split =
        |plan: &RulePlan| plans.iter().any(|it| it.when.is_some() && it.name == plan.name);
    let is_busier = |busy: usize, idle: usize| {
        let (a, b) = (&plans[busy], &plans[idle]);
        let stricter = is_stricter(&rules[busy].algorithm, &rules[idle].algorithm);
        stricter
            && !a.dry_run
            && a.cost == b.cost
            && (a.except.is_none() && b.except.is_none())
            && (!is_split(a) && !is_split(b))
            && rules[busy].keyed == rules[idle].keyed
            && a.key.on_duplicate() == b.key.on_duplicate()
            && a.on_missing == b.on_missing
            // What one gateway rejects, the others may let pass.
            && a.shared.is_some() == b.shared.is_some()
    };
    let of = |idle: usize| {
        let busy = |busy: &usize| {
            // Of two equal rules, the second is the idle one.
            *busy != idle && is_busier(*busy, idle) && (*busy < idle || !is_busier(idle, *busy))
        };
        (0..rules.len()).find(busy).map(|busy| (idle, busy))
    };
    (0..rules.len()).filter_map(of).collect()
}

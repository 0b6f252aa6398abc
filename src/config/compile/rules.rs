//! Rules and pacing: numbers that can work, keys that fit, and rules that can never decide.

use super::{
    compiler::Compiler,
    numbers::{Costs, Numbers, costs},
    plans::PlannedRule,
    queues::CompiledQueue,
    quotas,
};
use crate::{
    config::{
        decode::At,
        diagnostics::{Lint, Problem, SourceSpan, quoted},
        plan::{BREAKER, PACING, QueueShares, RuleOptions, RulePlan, When},
        spec::{AlgorithmWord, OnStoreError, PacingSpec, RuleSpec, Scope, leaf::Name},
    },
    flow::{self, Algorithm, Keyed, Stored, Unstorable},
    route::{KeyPart, KeySpec, Matcher},
};
use bytesize::ByteSize;
use std::{sync::Arc, time::Duration};

impl Compiler {
    pub(super) fn rules(
        &mut self,
        specs: &[&At<RuleSpec>],
        span: SourceSpan,
        pacing: Option<&At<Box<PacingSpec>>>,
    ) -> (flow::Rules, Vec<RulePlan>, Option<OnStoreError>) {
        let specs = self.at_most_16(specs, span);
        self.names("rule", specs.iter().filter_map(|at| at.value.name.as_ref()));
        self.own_names(specs.iter().filter_map(|at| at.value.name.as_ref()));
        let mut rules = flow::Rules::default();
        let mut plans: Vec<RulePlan> = Vec::with_capacity(specs.len());

        for at in specs {
            for (rule, plan) in self.rule(&at.value, at.span).into_iter().flatten() {
                rules.flow.push(rule);
                plans.push(plan);
            }
        }

        let pacing = pacing.map(|at| &at.value);
        rules.pacing = pacing.and_then(|spec| self.route_pacing(spec));
        let shared = rules.pacing.as_ref().zip(pacing).and_then(|(config, spec)| {
            self.scope(&spec.scope, &spec.on_store_error, [Stored::paced(config)])
        });
        let is_shared = shared.is_some() || plans.iter().any(|plan| plan.shared.is_some());
        if let Some(plan) = plans.iter().find(|plan| is_shared && plan.priority.is_some()) {
            self.error(
                Problem::error(plan.span, "`priority` beside a rule with `scope: cluster`")
                    .help("remove one: a loan here cannot wait for the decision of other gateways"),
            );
        }

        (rules, plans, shared)
    }

    /// Returns the rules of a route, and reports more than sixteen. Each override is asked as a rule
    /// of its own.
    fn at_most_16<'k, 's>(
        &mut self,
        specs: &'k [&'s At<RuleSpec>],
        span: SourceSpan,
    ) -> &'k [&'s At<RuleSpec>] {
        let count = specs.iter().map(|at| 1 + at.value.overrides.items().len()).sum::<usize>();
        if count <= MAX_RULES {
            return specs;
        }

        let of = |count: usize, word: &str| match count {
            1 => format!("1 {word}"),
            count => format!("{count} {word}s"),
        };
        let rules = of(specs.len(), "rule");

        let (found, help) = match count - specs.len() {
            0 => (rules, format!("write at most {MAX_RULES} rules in a route")),
            overrides => (
                format!("{rules} and {}", of(overrides, "override")),
                format!(
                    "write at most {MAX_RULES} rules and overrides together in a route: each \
                     override counts as a rule. Clients with the same numbers share one override: \
                     list their values, as in `when: {{ header:x-plan: [gold, silver] }}`, or their \
                     networks in a file, as in `when: {{ client_ip: {{ file: partners.txt }} }}`. For \
                     other numbers by customer, write `plans: {{ by: key, file: accounts.csv }}`"
                ),
            ),
        };

        let message = format!("{found} are too many");
        self.error(Problem::error(span, message).help(help));
        &specs[..specs.len().min(MAX_RULES)]
    }

    /// Reports names of rules that a route's own slots go by.
    pub(super) fn own_names<'n>(&mut self, names: impl Iterator<Item = &'n At<Name>>) {
        for name in names.filter(|name| [BREAKER, PACING].contains(&&*name.value.0)) {
            self.error(
                Problem::error(name.span, format!("no rule can be called `{}`", name.value.0))
                    .label("this name is reserved for the route's own")
                    .help("write another name: it distinguishes them in logs, metrics and reloads"),
            );
        }
    }

    /// Compiles a rule: first its alternatives, of which a request is asked by the first that fits.
    pub(super) fn rule(
        &mut self,
        spec: &RuleSpec,
        span: SourceSpan,
    ) -> Option<Vec<(flow::Rule, RulePlan)>> {
        let numbers = self.numbers(spec, span);
        let overrides = self.overrides(spec, numbers);
        let key = self.key(spec, span, &overrides);
        let is_keyed = key.as_ref().is_some_and(|key| !key.is_shared());
        let max_keys = spec.max_keys.number();

        self.max_keys_without_key(max_keys.filter(|_| !is_keyed));

        let costs = costs(&spec.cost, span);
        let algorithm = numbers.and_then(|numbers| self.algorithm(spec, numbers, &costs));
        let except = spec.except.as_ref().and_then(|at| self.except(&at.value, at.span));
        let priority = spec.priority.value().and_then(|spec| self.priority(spec)).map(Arc::new);
        let mut versions = self.alternatives(spec, &overrides, &costs);

        let named = spec.name.at.as_ref()?;
        let name = named.value.0.clone();
        let key = key?;
        let algorithm = algorithm?;
        let planned =
            PlannedRule { spec, name: &name, key: &key, numbers: numbers?, costs: &costs };
        let (algorithm, plans) = self.with_plans(planned, algorithm)?;
        versions.push((algorithm, None));
        let shared = self.scope(&spec.scope, &spec.on_store_error, stored(&versions));
        let sync_interval = self.sync_interval(&spec.sync_interval, &spec.scope, &mut versions);
        let cost = self.final_cost(spec, costs);
        let settles = cost.settle.is_some();
        let CompiledQueue { config: queue, turns, wait: queue_wait } = self.queue(spec);
        let dry_run = spec.dry_run.is_true();
        let reject_for = self.reject_for(spec);

        let keyed = is_keyed.then(|| keyed(&key, max_keys));

        let version = |(algorithm, when): (Algorithm, Option<Arc<When>>)| {
            // A name cannot hold blanks, so that no other rule has this one.
            let identity = when.as_ref().map(|when| format!("{name} when {}", when.words()).into());
            let shared = shared.filter(|_| algorithm != Algorithm::Closed);
            let sync_interval = sync_interval.filter(|_| algorithm != Algorithm::Closed);
            let options = RuleOptions {
                name: name.clone(),
                plans: plans.clone().filter(|_| when.is_none()),
                when,
                key: key.clone(),
                on_missing: spec.on_missing_key.map(|at| at.value).unwrap_or_default(),
                cost: cost.cut_to(&algorithm),
                except: except.clone(),
                priority: priority.clone(),
                shares: turns.clone(),
                quota: quotas::quota(&name, &algorithm),
                is_auto: matches!(algorithm, Algorithm::AutoConcurrency(_)),
                dry_run,
                retry_after_jitter: spec.retry_after_jitter.duration().map(|at| at.value),
                before_auth: spec.before_auth.is_true(),
            };
            let plan = RulePlan { span: named.span, options, shared, sync_interval, queue_wait };
            let name = identity.unwrap_or_else(|| name.clone());
            let keyed = keyed.clone();
            let queue = queue.clone();
            (flow::Rule { name, algorithm, keyed, dry_run, settles, queue, reject_for }, plan)
        };

        let versions: Vec<_> = versions.into_iter().map(version).collect();
        self.before_auth(spec, &versions);
        self.memory(&versions, max_keys.map_or(span, |at| at.span));
        Some(versions)
    }

    /// Returns the time for which a rule rejects a client that has exceeded it, and reports a rule that
    /// cannot.
    fn reject_for(&mut self, spec: &RuleSpec) -> Option<Duration> {
        let at = spec.reject_for.duration()?;
        let paces = spec.algorithm.is_some_and(|word| word.value == AlgorithmWord::Pacing);
        let (message, help) = if spec.concurrency.is_written() {
            (
                "`reject_for` beside `concurrency`",
                "remove it: whether a request finds a place depends on others",
            )
        } else if paces {
            (
                "`reject_for` beside `algorithm: pacing`",
                "remove it, or write another rule without pacing",
            )
        } else if spec.scope.is_some_and(|scope| scope.value == Scope::Cluster) {
            ("`reject_for` beside `scope: cluster`", "remove one: each gateway bans by itself")
        } else {
            return Some(at.value);
        };
        self.error(Problem::error(at.span, message).help(help));
        None
    }

    /// Reports what a rule needs that decides before the auth service is asked, and that is not there
    /// yet.
    fn before_auth(&mut self, spec: &RuleSpec, versions: &[(flow::Rule, RulePlan)]) {
        let Some(at) = spec.before_auth.as_ref().filter(|at| at.value) else { return };
        let has_identity = |plan: &RulePlan| {
            let by_plan = plan.plans.iter().any(|plans| plans.by().needs_identity());
            by_plan || plan.key.needs_identity() || plan.options.identity().next().is_some()
        };
        let of_any = |test: &dyn Fn(&flow::Rule, &RulePlan) -> bool| {
            versions.iter().any(|(rule, plan)| test(rule, plan))
        };

        let has_members = |plan: &RulePlan| plan.options.members().next().is_some();

        let (message, help) = if of_any(&|_, plan| has_members(plan)) {
            (
                "`before_auth` in a rule that looks at the body, which is read after `auth`",
                "write a key of the header, as in `key: client_ip`, or remove `before_auth`",
            )
        } else if of_any(&|_, plan| has_identity(plan)) {
            (
                "`before_auth` in a rule that looks at who the client is, which `auth` says later",
                "write a key and conditions of the request itself, as in `key: client_ip`, or remove `before_auth`",
            )
        } else if of_any(&|_, plan| plan.shared.is_some()) {
            (
                "`before_auth` beside `scope: cluster`",
                "remove one: no store is asked before the auth service",
            )
        } else if of_any(&|rule, plan| {
            plan.priority.is_some() || matches!(rule.algorithm, Algorithm::Pacing(_))
        }) {
            (
                "`before_auth` in a rule that has requests wait",
                "remove `before_auth`, or write a rule without pacing and `priority`",
            )
        } else {
            return;
        };
        self.error(Problem::error(at.span, message).help(help));
    }

    /// Says to the rules of a route where its paths have the segments that their keys name.
    pub(super) fn segments(&mut self, rules: &mut [RulePlan], matcher: &Matcher) {
        for rule in rules {
            let key = rule.options.key.clone().of_paths(&matcher.paths);
            self.known_segments(rule, &key, "counts");
            rule.options.key = key;

            let shares = rule.options.shares.as_ref();
            let shares = shares.map(|shares| shares.of_paths(&matcher.paths));
            for key in shares.iter().flat_map(QueueShares::keys) {
                self.known_segments(rule, key, "shares its places");
            }
            rule.options.shares = shares.map(Arc::new);
        }
    }

    /// Reports a key with a segment that no path of the route has.
    fn known_segments(&mut self, rule: &RulePlan, key: &KeySpec, verb: &str) {
        let unknown = key.segments().find(|segment| !segment.is_known());
        let Some(segment) = unknown.filter(|_| rule.when.is_none()) else { return };
        let name = segment.name();
        let message = format!(
            "the rule `{}` {verb} by `{key}`, and no path of its route has `{{{name}}}`",
            rule.name
        );
        self.error(Problem::error(rule.span, message).help(format!(
            "write the segment into the route's `path` or `path_prefix`, as in \
             `path_prefix: '/{name}s/{{{name}}}'`"
        )));
    }

    fn alternatives(
        &mut self,
        rule: &RuleSpec,
        overrides: &[(At<Arc<When>>, Numbers)],
        costs: &Costs,
    ) -> Vec<(Algorithm, Option<Arc<When>>)> {
        self.unique(
            overrides.iter().map(|(when, _)| (when.value.words(), when.span)),
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
    fn memory(&mut self, versions: &[(flow::Rule, RulePlan)], span: SourceSpan) {
        let each = versions.iter().map(|(rule, plan)| rule.most_bytes(plan.priority.is_some()));
        let most = each.fold(0, u64::saturating_add);
        let Some((rule, plan)) = versions.last().filter(|_| most > MUCH_MEMORY) else { return };
        let mut help = Vec::new();
        if let Some(keyed) = &rule.keyed {
            let each = most / u64::from(keyed.max_keys);
            help.push(format!("`max_keys: {}`", (MUCH_MEMORY / each).max(1)));
        }
        if matches!(rule.algorithm.own(), Algorithm::SlidingLog(_)) {
            let flat = "`algorithm: sliding_window` with `strict: true`, whose memory does not \
                        grow with the limit";
            help.push(flat.to_owned());
        }
        let message = format!("the rule `{}` may take {:.1} of memory", plan.name, ByteSize(most));
        self.warn(
            Problem::warning(Lint::MuchMemory, span, message)
                .help(format!("write {}", help.join(", or "))),
        );
    }

    /// Reports the most keys of a rule without a key.
    fn max_keys_without_key(&mut self, max_keys: Option<At<u64>>) {
        if let Some(at) = max_keys.filter(|at| at.written) {
            self.error(
                Problem::error(at.span, "`max_keys` without a `key`")
                    .help("write `key: client_ip`, or remove it: all requests share one count"),
            );
        }
    }

    /// Reports the bits of IPv6 and IPv4 addresses beside a key without an address.
    fn prefixes_without_address(&mut self, prefixes: [Option<At<u64>>; 2]) {
        for (name, at) in ["ipv6_prefix", "ipv4_prefix"].iter().zip(prefixes) {
            if let Some(at) = at.filter(|at| at.written) {
                self.error(
                    Problem::error(at.span, format!("`{name}` without `client_ip` in the key"))
                        .help("write `key: client_ip`, or remove it"),
                );
            }
        }
    }

    fn key(
        &mut self,
        spec: &RuleSpec,
        span: SourceSpan,
        overrides: &[(At<Arc<When>>, Numbers)],
    ) -> Option<KeySpec> {
        let prefixes = [spec.ipv6_prefix.number(), spec.ipv4_prefix.number()];
        // Where one could not be read, which has been reported, the stand-in is never used.
        let [v6_prefix, v4_prefix] =
            prefixes.map(|at| at.and_then(|at| u8::try_from(at.value).ok()).unwrap_or_default());
        let words = &spec.key.at.as_ref()?.value.0.0;

        let mut parts: Vec<KeyPart> = Vec::with_capacity(words.len());
        for at in words {
            let Some(part) = self.pattern(KeyPart::parse(&at.value.0, v6_prefix), at.span) else {
                continue;
            };
            self.needs_file_of(&part, at.span);
            let part = part.with_v4_prefix(v4_prefix);
            if parts.contains(&part) {
                let message = format!("{} is in the key twice", quoted(&at.value.0));
                self.error(Problem::error(at.span, message).help("remove one"));
                continue;
            }
            if part == KeyPart::Route && words.len() > 1 {
                self.error(
                    Problem::error(at.span, "`route` has no effect beside other parts")
                        .help("remove it: every rule counts for its own route"),
                );
            }
            parts.push(part);
        }

        let has = |test: fn(&KeyPart) -> bool| parts.iter().any(test);
        let from_client = has(|part| matches!(part, KeyPart::ClientIp { .. }));
        let may_repeat = has(KeyPart::is_sent);
        let may_lack = may_repeat || has(may_be_missing) || (from_client && self.has_unix_socket());

        if !from_client {
            self.prefixes_without_address(prefixes);
        }
        if let Some(at) = spec.on_missing_key.filter(|at| at.written && !may_lack) {
            self.error(
                Problem::error(at.span, "`on_missing_key` with a key that is never missing")
                    .help(SENT_KEYS),
            );
        }

        let mut whens = overrides.iter().map(|(when, _)| when);
        let may_repeat = may_repeat || whens.any(|when| when.value.looks_at_fields());
        if let Some(at) = spec.on_duplicate_key.filter(|at| at.written && !may_repeat) {
            self.error(
                Problem::error(
                    at.span,
                    "`on_duplicate_key` with a key that no client can send twice",
                )
                .help(SENT_KEYS),
            );
        }

        if parts.len() < words.len() {
            return None;
        }
        let key = self.pattern(KeySpec::new(parts), spec.key.span.unwrap_or(span))?;
        let on_duplicate = spec.on_duplicate_key.map(|at| at.value.into()).unwrap_or_default();
        Some(key.with_duplicates(on_duplicate))
    }
}

/// Returns the table of a rule with this key.
fn keyed(key: &KeySpec, max_keys: Option<At<u64>>) -> Keyed {
    let max_keys = max_keys.map_or(u32::MAX, |at| u32::try_from(at.value).unwrap_or(u32::MAX));
    Keyed { by: key.to_string().into(), max_keys }
}

/// Returns the versions of a rule in the store. What is closed needs none.
fn stored<T>(versions: &[(Algorithm, T)]) -> Vec<Result<Stored, Unstorable>> {
    let open = versions.iter().filter(|(algorithm, _)| *algorithm != Algorithm::Closed);
    open.flat_map(|(algorithm, _)| all_numbers(algorithm)).map(Stored::new).collect()
}

/// Returns the numbers of an algorithm, and those of its plans.
fn all_numbers(algorithm: &Algorithm) -> impl Iterator<Item = &Algorithm> {
    let plans = algorithm.plans().into_iter().flat_map(|plans| plans.table().levels());
    core::iter::once(algorithm).chain(plans)
}

/// The help for a rule whose key no request lacks or repeats.
const SENT_KEYS: &str =
    "write `key: header:NAME`, `cookie:NAME`, `query:NAME` or `json:NAME`, or remove it";

/// The most rules of a route: a decision asks each of them, and the answer's headers name them.
const MAX_RULES: usize = 16;

/// The memory of a rule without a warning: 1 GiB.
const MUCH_MEMORY: u64 = 1 << 30;

/// True if a request may lack the part because of its path, its certificate, what `auth` says, or where its
/// client is.
const fn may_be_missing(part: &KeyPart) -> bool {
    matches!(
        part,
        KeyPart::User
            | KeyPart::Jwt(_)
            | KeyPart::Auth(_)
            | KeyPart::ClientCert
            | KeyPart::Country
            | KeyPart::Asn
            | KeyPart::Segment(_)
    )
}

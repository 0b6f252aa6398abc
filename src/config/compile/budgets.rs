//! Rules that several routes share: budgets, and the rules of the file, its listeners and its
//! upstreams. Also, which of them the requests of a route meet.

use super::{
    compiler::{Compiler, suggestion},
    quotas,
    routes::Parts,
};
use crate::{
    config::{
        decode::{At, Key, List, Printed},
        diagnostics::{Problem, SourceSpan},
        plan::{GroupDefinition, GroupOwner, MetGroup, RoutePlan, RuleGroupPlan, RulePlan},
        spec::{FileSpec, RuleSpec, keys::WrittenKeys, leaf::Name},
    },
    flow,
    route::Matcher,
};
use std::{
    collections::{BTreeSet, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

/// The rules that several routes share, and where each is used.
#[derive(Debug, Default)]
pub(super) struct Groups {
    pub(super) plans: Vec<RuleGroupPlan>,
    /// The budgets by name; `None` for one whose problems are reported.
    budgets: HashMap<Arc<str>, Option<usize>>,
    /// The groups of the file's `flow`.
    of_file: Vec<usize>,
    /// Those of each listener.
    of_listeners: Vec<(Arc<str>, Vec<usize>)>,
    /// Those of each upstream.
    of_upstreams: HashMap<Arc<str>, Vec<usize>>,
}

/// The entries of a `flow`.
#[derive(Default)]
pub(super) struct FlowEntries<'s> {
    /// The rules of its own.
    pub(super) rules: Vec<&'s At<RuleSpec>>,
    /// The names of budgets.
    budgets: Vec<(Arc<str>, SourceSpan)>,
    /// Where the file has the list, or else the route.
    pub(super) span: SourceSpan,
}

/// The longest wait that a shared rule may ask for: half of the default `timeouts.request`.
const LONGEST_WAIT: Duration = Duration::from_mins(30);

/// The most rules that a request may meet: a decision asks each of them, and the answer's headers
/// name them.
const MOST_RULES: usize = 16;

impl Compiler {
    /// Compiles all that routes may share.
    pub(super) fn groups(&mut self, spec: &FileSpec) -> Groups {
        self.longest_wait = LONGEST_WAIT;
        self.has_short_timeout = false;
        self.shortened_waits.clear();

        let mut groups = Groups::default();
        self.budgets(&spec.budgets, &mut groups);
        groups.of_file = self.shared_flow(&spec.flow, GroupOwner::File, &mut groups);

        for at in spec.listeners.items() {
            let Some(name) = at.value.name.value() else { continue };
            let owner = |rule| GroupOwner::Listener(Arc::clone(&name.0), rule);
            let met = self.shared_flow(&at.value.flow, owner, &mut groups);
            groups.of_listeners.push((Arc::clone(&name.0), met));
        }
        for at in spec.upstreams.items() {
            let Some(name) = at.value.name.value() else { continue };
            let owner = |rule| GroupOwner::Upstream(Arc::clone(&name.0), rule);
            let met = self.shared_flow(&at.value.flow, owner, &mut groups);
            groups.of_upstreams.insert(Arc::clone(&name.0), met);
        }
        groups
    }

    fn budgets(&mut self, key: &Key<List<Printed<RuleSpec>>>, groups: &mut Groups) {
        let specs = key.items();
        self.names("budget", specs.iter().filter_map(|at| at.value.1.name.as_ref()));
        self.own_names(specs.iter().filter_map(|at| at.value.1.name.as_ref()));

        for at in specs {
            let Printed(print, spec) = &at.value;
            if let Some(span) = spec.budget.span {
                self.error(
                    Problem::error(span, "a budget cannot stand for another one")
                        .help("write `parent: NAME` to have another budget decide too"),
                );
            }
            let Some(name) = self.needed_name(spec, at.span, "a budget") else { continue };
            let owner = GroupOwner::Budget(Arc::clone(&name));
            let index = self.shared_rule(owner, *print, spec, at.span);
            let index = index.map(|plan| groups.add(plan));
            groups.budgets.insert(name, index);
        }

        for at in specs {
            let parent = at.value.1.parent.as_ref();
            let (Some(name), Some(parent)) = (at.value.1.name.value(), parent) else { continue };
            if let Some(index) = groups.budgets.get(&name.0).copied().flatten()
                && self.find_budget(&parent.value.0, parent.span, groups).is_some()
            {
                groups.plans[index].definition.parent = Some(Arc::clone(&parent.value.0));
            }
        }
        self.circles(groups);
    }

    /// Reports budgets that are their own ancestors.
    fn circles(&mut self, groups: &mut Groups) {
        for index in 0..groups.plans.len() {
            let ancestors = groups.ancestors(index);
            if !ancestors.contains(&index) {
                continue;
            }
            let circle = [index].into_iter().chain(ancestors);
            let names: Vec<_> = circle.map(|at| groups.name(at)).collect();
            let message = format!("the budgets {} form a circle", words(names.into_iter()));
            let help = "remove one `parent`: the last budget of a chain has none";
            self.error(Problem::error(groups.plans[index].span, message).help(help));
            // The others of the circle need no message of their own.
            groups.plans[index].definition.parent = None;
        }
    }

    /// Compiles the `flow` of the file, a listener or an upstream. Returns the groups that its
    /// requests meet.
    fn shared_flow(
        &mut self,
        key: &Key<List<Printed<RuleSpec>>>,
        owner: impl Fn(Arc<str>) -> GroupOwner,
        groups: &mut Groups,
    ) -> Vec<usize> {
        let items = key.items();
        let own = || items.iter().filter(|at| !at.value.1.budget.is_written());
        self.names("rule", own().filter_map(|at| at.value.1.name.as_ref()));
        self.own_names(own().filter_map(|at| at.value.1.name.as_ref()));

        let mut met = Vec::new();
        for at in items {
            let Printed(print, spec) = &at.value;
            if spec.budget.is_written() {
                if let Some((name, span)) = self.budget_entry(spec) {
                    met.extend(self.find_budget(&name, span, groups));
                }
                continue;
            }
            self.no_parent(spec);
            let Some(name) = self.needed_name(spec, at.span, "a rule") else { continue };
            let plan = self.shared_rule(owner(name), *print, spec, at.span);
            met.extend(plan.map(|plan| groups.add(plan)));
        }
        met
    }

    /// Compiles a rule that has a gate of its own; `None` if it has a problem.
    fn shared_rule(
        &mut self,
        owner: GroupOwner,
        print: u128,
        spec: &RuleSpec,
        span: SourceSpan,
    ) -> Option<RuleGroupPlan> {
        self.network_print = 0;
        let versions = self.rule(spec, span)?;
        let mut flow = flow::Rules::default();
        let mut rules = Vec::with_capacity(versions.len());
        for (rule, plan) in versions {
            flow.flow.push(rule);
            rules.push(plan);
        }

        let print = print ^ u128::from(self.address_print()).rotate_left(64);
        let store_tag = RuleGroupPlan::own_tag(&owner).into();
        let definition = GroupDefinition { owner, flow, parent: None, print };
        Some(RuleGroupPlan { definition, span, rules, store_tag })
    }

    /// Returns what the `flow` of a route lists.
    pub(super) fn flow_entries<'s>(
        &mut self,
        specs: &'s [At<RuleSpec>],
        span: SourceSpan,
    ) -> FlowEntries<'s> {
        let rules = Vec::with_capacity(specs.len());
        let mut entries = FlowEntries { rules, budgets: Vec::new(), span };
        for at in specs {
            if at.value.budget.is_written() {
                entries.budgets.extend(self.budget_entry(&at.value));
            } else {
                self.needed_name(&at.value, at.span, "a rule");
                self.no_parent(&at.value);
                entries.rules.push(at);
            }
        }
        entries
    }

    /// Returns the budget that an entry of a `flow` names, and reports other keys beside it.
    fn budget_entry(&mut self, spec: &RuleSpec) -> Option<(Arc<str>, SourceSpan)> {
        let named = spec.budget.as_ref();
        let others: Vec<_> = spec.written().into_iter().filter(|key| *key != "budget").collect();
        if let (Some(span), false) = (spec.budget.span, others.is_empty()) {
            let message = format!("{} beside `budget`", words(others.into_iter()));
            let help = "write `{ budget: NAME }` alone, and the numbers where `budgets` has it";
            self.error(Problem::error(span, message).help(help));
        }
        named.map(|at| (Arc::clone(&at.value.0), at.span))
    }

    /// Returns the name of a rule or a budget, and reports that it is missing.
    fn needed_name(&mut self, spec: &RuleSpec, span: SourceSpan, what: &str) -> Option<Arc<str>> {
        if !spec.name.is_written() {
            let message = format!("{what} needs `name`");
            self.error(Problem::error(span, message).help("write `name: per-client`"));
        }
        spec.name.value().map(|name| Arc::clone(&name.0))
    }

    /// Reports `parent` at a rule that is no budget.
    fn no_parent(&mut self, spec: &RuleSpec) {
        if let Some(span) = spec.parent.span {
            self.error(
                Problem::error(span, "`parent` at a rule that is not a budget")
                    .help("write the rule under `budgets`, or name both budgets in this `flow`"),
            );
        }
    }

    /// Returns the group of a budget, and reports a name that none has.
    fn find_budget(&mut self, name: &str, span: SourceSpan, groups: &Groups) -> Option<usize> {
        if let Some(index) = groups.budgets.get(name) {
            return *index;
        }
        let known = groups.budgets.keys().map(|name| &**name).collect();
        let message = format!("no budget is named `{name}`");
        self.error(Problem::error(span, message).help(suggestion(name, known, "budget")));
        None
    }
}

/// The shared rules that a route's requests meet.
impl Compiler {
    /// Adds to each route the groups that its requests meet.
    pub(super) fn meet(
        &mut self,
        route: &mut RoutePlan,
        exempt: &[At<Name>],
        entries: &FlowEntries<'_>,
        matcher: &Matcher,
        parts: &Parts<'_>,
    ) {
        let &Parts { groups, upstreams, .. } = parts;
        let exempt = self.exempt(exempt, groups);
        let mut met = Met { groups, exempt, found: Vec::new() };

        met.add_all(&groups.of_file, None);
        let takes =
            |name: &Arc<str>| matcher.listeners.is_empty() || matcher.listeners.contains(name);
        for (listener, of_listener) in groups.of_listeners.iter().filter(|(name, _)| takes(name)) {
            met.add_all(of_listener, Some(listener));
        }
        for (name, span) in &entries.budgets {
            met.add_all(self.find_budget(name, *span, groups).as_slice(), None);
        }
        met.add_parents();
        let upstream = route.action.upstream().map(|index| &upstreams[*index].name);
        if let Some(of_upstream) = upstream.and_then(|name| groups.of_upstreams.get(name)) {
            met.add_all(of_upstream, None);
            met.add_parents();
        }

        route.groups = met.found.into_iter().map(Found::into_group).collect();
        self.distinct_names(route, groups);
        self.not_too_many(route, groups, entries.span);
        self.no_loans_beside_store(route, groups);

        let shared = route.groups.iter().map(|met| &groups.plans[met.index]);
        let mut hasher = DefaultHasher::new();
        for (met, group) in route.groups.iter().zip(shared.clone()) {
            (group.print, &group.owner, &met.listeners).hash(&mut hasher);
        }
        let rules = route.rules.iter().chain(shared.flat_map(|group| &group.rules));
        let policy = quotas::policy(rules);
        route.definition.policy = policy;
        if !route.groups.is_empty() {
            route.definition.print ^= u128::from(hasher.finish());
        }
    }

    /// Returns what a route is exempt from, and reports names that nothing has.
    fn exempt(&mut self, names: &[At<Name>], groups: &Groups) -> BTreeSet<Arc<str>> {
        let mut known = BTreeSet::new();
        for plan in &groups.plans {
            if may_exempt(&plan.owner) {
                known.insert(Arc::clone(plan.owner.rule()));
            }
        }
        known.extend(groups.budgets.keys().cloned());

        for at in names.iter().filter(|at| !known.contains(&at.value.0)) {
            let message = format!("no budget or shared rule is named `{}`", at.value.0);
            let names = known.iter().map(|name| &**name).collect();
            let help = suggestion(&at.value.0, names, "budget");
            self.error(Problem::error(at.span, message).help(help));
        }
        names.iter().map(|at| Arc::clone(&at.value.0)).collect()
    }

    /// Reports a rule of a route that has the name of a shared rule that its requests meet.
    fn distinct_names(&mut self, route: &RoutePlan, groups: &Groups) {
        let own = route.rules.iter().map(|rule| (rule, None));
        let shared = route.groups.iter().flat_map(|met| {
            let group = &groups.plans[met.index];
            group.rules.iter().map(move |rule| (rule, Some(met.index)))
        });
        let mut seen: HashMap<&str, (&RulePlan, Option<usize>)> = HashMap::new();
        for (rule, group) in own.chain(shared) {
            let (first, owner) = *seen.entry(&rule.name).or_insert((rule, group));
            if owner != group {
                let message = format!("a request meets two rules that are called `{}`", rule.name);
                self.error(
                    Problem::error(first.span, message)
                        .label(format!("in the route `{}`", route.name))
                        .also(rule.span, "the other one")
                        .help("write another name: headers, logs and metrics name the rule"),
                );
                return;
            }
        }
    }

    /// Reports more than sixteen rules that a request may meet.
    fn not_too_many(&mut self, route: &RoutePlan, groups: &Groups, span: SourceSpan) {
        let shared = route.groups.iter().map(|met| groups.plans[met.index].rules.len());
        let shared = shared.sum::<usize>();
        let count = route.rules.len() + shared;
        if shared == 0 || count <= MOST_RULES {
            return;
        }
        let message = format!("the requests of the route `{}` meet {count} rules", route.name);
        let help = format!(
            "let them meet at most {MOST_RULES}, with budgets, their parents, overrides, and the rules \
             of the file, the listener and the upstream; `exempt_from` leaves some out"
        );
        self.error(Problem::error(span, message).help(help));
    }

    /// Reports a rule with `priority` that a request meets beside one that gateways share.
    fn no_loans_beside_store(&mut self, route: &RoutePlan, groups: &Groups) {
        let shared = route.groups.iter().flat_map(|met| &groups.plans[met.index].rules);
        let rules = || route.rules.iter().chain(shared.clone());
        let is_clustered = route.paced.is_some() || rules().any(|rule| rule.shared.is_some());
        let has_own = route.rules.iter().any(|rule| rule.shared.is_some()) || route.paced.is_some();
        let lending = rules().find(|rule| rule.priority.is_some());
        if let (true, Some(rule)) = (is_clustered && !route.groups.is_empty(), lending)
            && !(has_own && route.rules.iter().any(|rule| rule.priority.is_some()))
        {
            let message = format!(
                "`priority` of `{}`, whose requests meet a rule with `scope: cluster`",
                rule.name
            );
            self.error(
                Problem::error(rule.span, message)
                    .label(format!("in the route `{}`", route.name))
                    .help("remove one: a loan here cannot wait for the decision of other gateways"),
            );
        }
    }
}

/// Checks of the whole file.
impl Compiler {
    /// Gives rules about which the store decides, and which some request meets together, one hash tag:
    /// a node of a Redis Cluster decides about them at once.
    pub(super) fn store_tags(groups: &mut [RuleGroupPlan], routes: &mut [RoutePlan]) {
        let decided = |route: &RoutePlan, groups: &[RuleGroupPlan]| -> Vec<usize> {
            let met = route.groups.iter().map(|met| met.index);
            let mut met: Vec<_> = met.filter(|at| groups[*at].is_decided_by_store()).collect();
            met.sort_unstable();
            met
        };

        // The first of each set of groups that requests meet together.
        let mut first: Vec<usize> = (0..groups.len()).collect();
        let mut has_changed = true;
        while has_changed {
            has_changed = false;
            for route in routes.iter() {
                let met = decided(route, groups);
                let Some(least) = met.iter().map(|at| first[*at]).min() else { continue };
                for at in met {
                    has_changed |= first[at] != least;
                    first[at] = least;
                }
            }
        }

        let tags: Vec<Arc<str>> =
            first.iter().map(|at| Arc::clone(&groups[*at].store_tag)).collect();
        for route in routes {
            route.store_tag = decided(route, groups).first().map(|at| Arc::clone(&tags[*at]));
            if let Some(tag) = route.store_tag.as_ref().filter(|_| route.is_decided_by_store()) {
                route.definition.print ^= print_of(tag);
            }
        }
        for (group, tag) in groups.iter_mut().zip(tags) {
            group.definition.print ^= print_of(&tag);
            group.store_tag = tag;
        }
    }
}

fn print_of(tag: &str) -> u128 {
    let mut hasher = DefaultHasher::new();
    tag.hash(&mut hasher);
    u128::from(hasher.finish()).rotate_left(32)
}

/// Returns whether `exempt_from` may name a shared rule. That of an upstream is for all requests that
/// it gets.
const fn may_exempt(owner: &GroupOwner) -> bool {
    match owner {
        GroupOwner::Budget(_) | GroupOwner::File(_) | GroupOwner::Listener(..) => true,
        GroupOwner::Upstream(..) => false,
    }
}

impl Groups {
    fn add(&mut self, plan: RuleGroupPlan) -> usize {
        self.plans.push(plan);
        self.plans.len() - 1
    }

    fn name(&self, index: usize) -> &str {
        self.plans[index].owner.budget().map_or("", |name| name)
    }

    /// Returns the index of the parent, if the group has one that could be compiled.
    fn parent(&self, index: usize) -> Option<usize> {
        let parent = self.plans[index].parent.as_ref()?;
        self.budgets.get(parent).copied().flatten()
    }

    /// Returns the parents of a group, its own first. Those of a circle are listed once.
    fn ancestors(&self, index: usize) -> Vec<usize> {
        let mut found = Vec::new();
        let mut next = self.parent(index);
        while let Some(parent) = next.filter(|parent| !found.contains(parent)) {
            found.push(parent);
            next = self.parent(parent);
        }
        found
    }
}

/// A group that a route's requests meet, and by which listeners.
struct Found {
    index: usize,
    /// `None`: by all.
    listeners: Option<Vec<Arc<str>>>,
}

impl Found {
    fn into_group(self) -> MetGroup {
        MetGroup { index: self.index, listeners: self.listeners.map(Into::into) }
    }
}

/// The groups found so far for a route.
struct Met<'g> {
    groups: &'g Groups,
    exempt: BTreeSet<Arc<str>>,
    found: Vec<Found>,
}

impl Met<'_> {
    /// Adds groups for the requests of a listener; `None`: of all.
    fn add_all(&mut self, indexes: &[usize], listener: Option<&Arc<str>>) {
        for index in indexes {
            self.add(*index, listener);
        }
    }

    fn add(&mut self, index: usize, listener: Option<&Arc<str>>) {
        let plan = &self.groups.plans[index];
        if may_exempt(&plan.owner) && self.exempt.contains(plan.owner.rule()) {
            return;
        }

        match self.found.iter_mut().find(|found| found.index == index) {
            None => {
                let listeners = listener.map(|name| vec![Arc::clone(name)]);
                self.found.push(Found { index, listeners });
            }
            Some(found) => match (&mut found.listeners, listener) {
                (Some(names), Some(name)) if !names.contains(name) => names.push(Arc::clone(name)),
                (Some(_) | None, Some(_)) => {}
                (names, None) => *names = None,
            },
        }
    }

    /// Adds the parents of all groups found, for the same requests.
    fn add_parents(&mut self) {
        let mut at = 0;
        while let Some(Found { index, listeners }) = self.found.get(at) {
            if let Some(parent) = self.groups.parent(*index) {
                match listeners.clone() {
                    None => self.add(parent, None),
                    Some(names) => names.iter().for_each(|name| self.add(parent, Some(name))),
                }
            }
            at += 1;
        }
    }
}

/// Returns names in one text, as in `` `a`, `b` ``.
fn words<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let quoted: Vec<_> = names.map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

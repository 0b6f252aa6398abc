//! A snapshot of a plan, with what the one before has to pass on.

use super::{
    LocalShare, Summary,
    current::divided,
    members::{ServerBuilder, ServerIds},
};
use crate::{
    config::{
        plan::{
            ClientPlans, GroupOwner, Listener, MetGroup, Plan, RoutePlan, RuleGroupPlan, RulePlan,
            Settings, Settle, UpstreamPlan, certificates, name_in_store,
        },
        report::changes::{ConfigChanges, at_start_only},
        snapshot::{
            Route, RouteRule, RuleGroup, RuleSync, Settling, Shared, SharedPlans, Snapshot,
            Upstream,
        },
        spec::OnStoreError,
    },
    flow::{Change, Gate, Gates, Instant, Rule, Rules, SlotId, Stored, WallOffset},
    geo::Geo,
    route::{KeySpec, MemberPaths, PathPattern, Table},
    usage::{Queries, Query},
};
use ahash::AHashMap;
use arc_swap::ArcSwap;
use std::{
    collections::HashMap,
    path::Path,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

/// Makes a snapshot of a plan and of what the one before has to pass on.
pub(super) struct Builder<'o> {
    old: Option<&'o Snapshot>,
    /// The routes of a snapshot that has decided about the same requests by the plan, by name.
    previewed: AHashMap<&'o str, &'o Arc<Route>>,
    local_share: LocalShare,
    wall: WallOffset,
    now: Instant,
    servers: ServerBuilder<'o>,
    summary: Summary,
    /// Gates of another process, by the names of [`Snapshot::gates`].
    gates: HashMap<Arc<str>, Arc<Gate>>,
}

/// The parts of a snapshot that its routes refer to.
struct Parts<'s> {
    upstreams: &'s [Arc<Upstream>],
    groups: &'s [Arc<RuleGroup>],
    table: &'s Table,
}

impl<'o> Builder<'o> {
    pub(super) fn new(
        old: Option<&'o Snapshot>,
        local_share: LocalShare,
        wall: WallOffset,
        now: Instant,
        ids: &'o mut ServerIds,
    ) -> Self {
        Self {
            old,
            previewed: AHashMap::new(),
            local_share,
            wall,
            now,
            servers: ServerBuilder::new(old, ids),
            summary: Summary::default(),
            gates: HashMap::new(),
        }
    }

    /// Uses the gates of another process for the routes of these names.
    pub(super) fn with_gates(self, gates: HashMap<Arc<str>, Arc<Gate>>) -> Self {
        Self { gates, ..self }
    }

    /// Has routes with edited rules go on with the gates of `previewed`.
    pub(super) fn with_gates_of(self, previewed: &'o Snapshot) -> Self {
        let previewed = previewed.routes.iter().map(|route| (&*route.name, route)).collect();
        Self { previewed, ..self }
    }

    pub(super) fn snapshot(mut self, plan: Plan) -> (Snapshot, Summary) {
        let version = self.old.map_or(1, |old| old.version + 1);
        if let Some(old) = self.old {
            self.summary.changes = ConfigChanges::between(old, &plan);
            self.summary.restart = at_start_only(&old.settings, &plan.settings);
        }
        let is_storeless =
            self.old.map_or_else(|| plan.settings.store.is_none(), |old| old.is_storeless);
        self.summary.lacks_store = is_storeless && plan.settings.store.is_some();
        let text = Arc::clone(&plan.source().text);
        let texts = Arc::clone(&plan.source().files);
        let geo = plan.settings.geo.map(|geo| self.shared_geo(geo));
        let settings = Settings { geo, ..plan.settings };
        let upstreams = self.upstreams(plan.upstreams);
        let groups = self.groups(plan.groups);
        let parts = Parts { upstreams: &upstreams, groups: &groups, table: &plan.table };
        let routes = self.routes(plan.routes, &parts);
        self.summary.version = version;
        let snapshot = Snapshot {
            version,
            is_storeless,
            text,
            hash: plan.hash,
            settings,
            listeners: kept(plan.listeners, self.old),
            sends_proxy_protocol: upstreams
                .iter()
                .any(|upstream| upstream.options.send_proxy_protocol.is_some()),
            upstreams,
            groups,
            answers_preflights: routes.iter().any(|route| route.options.cors.is_some()),
            routes,
            table: plan.table,
            deciding_headers: plan.deciding_headers,
            files: plan.files,
            texts,
        };
        (snapshot, self.summary)
    }

    /// Returns the files that say where clients are. One that has not changed stays the one that is in memory:
    /// long requests may hold old snapshots.
    fn shared_geo(&self, new: Arc<Geo>) -> Arc<Geo> {
        match self.old.and_then(|old| old.settings.geo.as_ref()) {
            Some(old) if **old == *new => Arc::clone(old),
            Some(old) => Arc::new(Arc::unwrap_or_clone(new).sharing(old)),
            None => new,
        }
    }

    fn gate(&self) -> Arc<Gate> {
        let gate = Gate::new(self.now);
        gate.set_wall(self.wall, self.now);
        Arc::new(gate)
    }

    fn upstreams(&mut self, plans: Vec<UpstreamPlan>) -> Vec<Arc<Upstream>> {
        let old: HashMap<&str, &Arc<Upstream>> =
            self.old.iter().flat_map(|old| &old.upstreams).map(|u| (&*u.name, u)).collect();
        let renewed = |mut plan: UpstreamPlan| match old.get(&*plan.name) {
            Some(old) if old.plan == plan => Arc::clone(old),
            Some(old) => {
                // Connections and sessions belong to it.
                if old.options.tls == plan.options.tls {
                    plan.options.tls.clone_from(&old.options.tls);
                }
                Arc::new(self.upstream(plan, Some(old)))
            }
            None => Arc::new(self.upstream(plan, None)),
        };
        plans.into_iter().map(renewed).collect()
    }

    fn upstream(&mut self, plan: UpstreamPlan, old: Option<&Arc<Upstream>>) -> Upstream {
        let members = old.map(|old| old.members());
        let members = self.servers.members(&plan, members.as_ref().map(|members| &***members));
        let members = ArcSwap::from_pointee(members);
        let turn = old.map_or(0, |old| old.turn.load(Relaxed));
        let retries = old.map_or_else(Arc::default, |old| Arc::clone(&old.retries));
        let ejection_state = old.map_or_else(Arc::default, |old| Arc::clone(&old.ejection_state));
        Upstream { plan, members, turn: AtomicUsize::new(turn), retries, ejection_state }
    }

    /// Makes the rules that several routes share.
    fn groups(&mut self, plans: Vec<RuleGroupPlan>) -> Vec<Arc<RuleGroup>> {
        let old = self.old.map_or(&[][..], |old| &old.groups);
        let mut old: HashMap<&GroupOwner, &Arc<RuleGroup>> =
            old.iter().map(|group| (&group.owner, group)).collect();

        let gates = self.old.iter().flat_map(|old| old.gates()).map(|(_, gate)| gate);
        let numbers = gates.chain(self.gates.values()).map(|gate| gate.number());
        let mut number = numbers.max().unwrap_or_default();

        let renewed = |plan: RuleGroupPlan| match old.remove(&plan.owner) {
            // Nothing that it is made of was edited.
            Some(known) if known.print == plan.print => {
                self.summary.rules_kept += known.rules.len();
                Arc::clone(known)
            }
            known => Arc::new(self.group(plan, known, &mut number)),
        };
        plans.into_iter().map(renewed).collect()
    }

    fn group(
        &mut self,
        plan: RuleGroupPlan,
        known: Option<&Arc<RuleGroup>>,
        number: &mut u32,
    ) -> RuleGroup {
        let owner = plan.owner.to_string();
        let gate = match known {
            Some(known) => Arc::clone(&known.gate),
            None => self.gates.remove(&*owner).unwrap_or_else(|| {
                *number += 1;
                let gate = Gate::with_number(*number, self.now);
                gate.set_wall(self.wall, self.now);
                Arc::new(gate)
            }),
        };

        let shared_ones = plan.rules.iter().map(shared_here);
        let here = divided(&plan.flow, shared_ones, false, self.local_share);
        let installed = gate.install(&here, self.now);
        let tags = [RuleGroupPlan::own_tag(&plan.owner), plan.store_tag.to_string()];
        let rules = in_force(plan.rules, installed.flow, &gate, &plan.definition.flow, &tags);

        let is_shared = rules.iter().any(|rule| rule.shared.is_some());
        let group = RuleGroup { definition: plan.definition, gate, rules, is_shared };
        let is_moved = |identity: &str| {
            known.is_some_and(|old| old.in_store(identity) != group.in_store(identity))
        };
        self.note(&owner, &installed.changes, is_moved);
        group
    }

    fn routes(&mut self, plans: Vec<RoutePlan>, parts: &Parts<'_>) -> Vec<Arc<Route>> {
        let &Parts { upstreams, groups, table } = parts;
        let old = self.old.map_or(&[][..], |old| &old.routes);
        let mut old: AHashMap<&str, &Arc<Route>> =
            old.iter().map(|route| (&*route.name, route)).collect();
        let mut routes = Vec::with_capacity(plans.len());

        for (index, plan) in plans.into_iter().enumerate() {
            let upstream = plan.action.upstream().map(|index| &upstreams[*index]);
            let auth_upstream = plan.auth_upstream.map(|index| &upstreams[index]);
            let mirror_upstream = plan.mirror_upstream.map(|index| &upstreams[index]);
            let known = old.remove(&*plan.name);
            match known {
                _ if plan.is_for_unmatched() => {}
                Some(known) if known.print == plan.print => {}
                Some(_) => self.summary.routes_changed += 1,
                None => self.summary.routes_added += 1,
            }

            routes.push(match known {
                // Nothing that it is made of was edited.
                Some(known)
                    if known.print == plan.print
                        && known.options == plan.options
                        && known.has_groups(groups, &plan.groups)
                        && known.action.upstream().map(Arc::as_ptr)
                            == upstream.map(Arc::as_ptr)
                        && known.auth_upstream.as_ref().map(Arc::as_ptr)
                            == auth_upstream.map(Arc::as_ptr)
                        && known.mirror_upstream.as_ref().map(Arc::as_ptr)
                            == mirror_upstream.map(Arc::as_ptr) =>
                {
                    let others = known.breaker.into_iter().chain(known.pacing);
                    self.summary.rules_kept += known.own_rules().len() + others.count();
                    Arc::clone(known)
                }
                known => {
                    let paths = table.matcher(index).map_or(&[][..], |matcher| &matcher.paths);
                    Arc::new(self.route(plan, parts, paths, known))
                }
            });
        }

        self.summary.routes_removed = old.values().filter(|gone| !gone.is_for_unmatched()).count();
        routes
    }

    fn route(
        &mut self,
        plan: RoutePlan,
        parts: &Parts<'_>,
        paths: &[PathPattern],
        known: Option<&Arc<Route>>,
    ) -> Route {
        let &Parts { upstreams, groups, .. } = parts;
        let previewed = self.previewed_gate(&plan, known);
        let gate = match (previewed, known) {
            (Some(gate), _) => gate,
            (None, Some(old)) => old.gate.clone(),
            (None, None) => self.gates.remove(&*plan.name).unwrap_or_else(|| self.gate()),
        };

        let here = divided(
            &plan.flow,
            plan.rules.iter().map(shared_here),
            plan.paced.is_some(),
            self.local_share,
        );
        let installed = gate.install(&here, self.now);
        let tags = [false, true].map(|is_by_key| plan.hash_tag(is_by_key));

        let mut rules = in_force(plan.rules, installed.flow, &gate, &plan.definition.flow, &tags);
        let mut met = Vec::with_capacity(plan.groups.len());
        for MetGroup { index, listeners } in plan.groups {
            let group = &groups[index];
            met.push(Arc::clone(group));
            rules.extend(group.rules.iter().map(|rule| RouteRule {
                group: Some(Arc::clone(group)),
                listeners: listeners.clone(),
                options: rule.options.clone().of_paths(paths),
                ..rule.clone()
            }));
        }

        let usage = number_queries(&mut rules);
        let RoutePlan { definition, action, paced, auth_upstream, mirror_upstream, .. } = plan;
        let paced = definition.flow.pacing.as_ref().zip(paced).and_then(|(pacing, on_error)| {
            let stored = Stored::paced(pacing).ok()?;
            Some(shared(&tags[0], &format!("pacing:{}", stored.shape()), stored, on_error, None))
        });

        let action = action.map(|index| Arc::clone(&upstreams[index]));
        let route = Route {
            members: members(&rules, action.upstream()),
            is_shared: paced.is_some() || rules.iter().any(|rule| rule.shared.is_some()),
            auto: rules.iter().filter(|rule| rule.is_auto).map(|rule| rule.slot).collect(),
            shares_queues: rules.iter().any(|rule| rule.shares.is_some()),
            settling: Settling::of(&rules),
            paced,
            definition,
            action,
            auth_upstream: auth_upstream.map(|index| Arc::clone(&upstreams[index])),
            mirror_upstream: mirror_upstream.map(|index| Arc::clone(&upstreams[index])),
            gates: Gates::new(Arc::clone(&gate), met.iter().map(|group| &group.gate)),
            groups: met,
            gate,
            rules,
            usage,
            breaker: installed.breaker,
            pacing: installed.pacing,
            meter: known.map_or_else(Arc::default, |old| old.meter.clone()),
        };

        let is_moved = |identity: &str| {
            known.is_some_and(|old| old.in_store(identity) != route.in_store(identity))
        };
        self.note(&route.name, &installed.changes, is_moved);
        route
    }

    /// Returns the gate that a preview has for a route with new or edited rules. What gateways
    /// share was not asked of the store in the preview: such a route goes on as at a reload.
    fn previewed_gate(&self, plan: &RoutePlan, known: Option<&Arc<Route>>) -> Option<Arc<Gate>> {
        let route = self.previewed.get(&*plan.name).filter(|route| route.flow == plan.flow)?;
        let is_shared = route.is_shared || known.is_some_and(|known| known.is_shared);
        if is_shared || known.is_some_and(|known| known.flow == plan.flow) {
            return None;
        }
        if let Some(known) = known {
            route.gate.take_over(&known.gate, self.now);
        }
        Some(Arc::clone(&route.gate))
    }

    /// Counts what became of the rules of a gate; `is_moved` says which have another name in the
    /// store.
    fn note(
        &mut self,
        owner: &str,
        changes: &[(Arc<str>, Change)],
        is_moved: impl Fn(&str) -> bool,
    ) {
        let summary = &mut self.summary;
        for (rule, change) in changes {
            let named = || format!("{owner}/{rule}");
            match change {
                // The gate knows only of what is counted here.
                Change::Kept | Change::Converted if is_moved(rule) => summary.moved.push(named()),
                Change::Kept => summary.rules_kept += 1,
                Change::Converted => summary.rules_converted += 1,
                Change::Reset => summary.reset.push(named()),
                Change::Added | Change::Removed => {}
            }
        }
    }
}

/// Returns whether gateways share a rule. No store has rejected its syncs yet.
fn shared_here(rule: &RulePlan) -> Option<bool> {
    rule.shared.is_some().then_some(false)
}

/// Returns the rules of a gate as requests meet them. `tags` are the hash tags in the store: of
/// rules that gateways sync, and of rules about which the store decides.
fn in_force(
    plans: Vec<RulePlan>,
    slots: Vec<SlotId>,
    gate: &Gate,
    flow: &Rules,
    tags: &[String; 2],
) -> Vec<RouteRule> {
    let rules = plans.into_iter().zip(slots).zip(&flow.flow);
    let rule = |((plan, slot), rule): ((RulePlan, SlotId), &Rule)| RouteRule {
        shared: plan.shared.and_then(|on_error| {
            let stored = Stored::new(&rule.algorithm).ok()?;
            let interval = plan.sync_interval;
            let name = name_in_store(rule, &stored, interval.is_some());
            let tag = &tags[usize::from(interval.is_none())];
            let plans = shared_plans(tag, rule, plan.options.plans.as_ref(), interval.is_some());
            let shared = shared(tag, &name, stored, on_error, interval);
            Some(Shared { plans: plans.map(Arc::new), ..shared })
        }),
        slot,
        identity: Arc::clone(&rule.name),
        algorithm: rule.algorithm.word(),
        group: None,
        listeners: None,
        learned: plan.options.cost.computes_reserve().then(|| gate.learned(slot)).flatten(),
        options: plan.options,
        query: None,
        problem: OnceLock::new(),
    };
    rules.map(rule).collect()
}

/// Numbers the queries of rules that find numbers in responses, and returns all of them.
fn number_queries(rules: &mut [RouteRule]) -> Option<Arc<Queries>> {
    let mut queries: Vec<Query> = Vec::new();
    for rule in rules {
        let query = rule.options.cost.settle.as_deref().and_then(Settle::query);
        rule.query = query.map(|query| {
            queries.iter().position(|known| known == query).unwrap_or_else(|| {
                queries.push(query.clone());
                queries.len() - 1
            })
        });
    }
    // The file was checked for what a reader cannot follow.
    Queries::new(&queries).ok().filter(|queries| !queries.is_empty()).map(Arc::new)
}

/// Returns the members of bodies that rules and the upstream look at, if there are any.
fn members(rules: &[RouteRule], upstream: Option<&Arc<Upstream>>) -> Option<Arc<MemberPaths>> {
    let hash_key = upstream.and_then(|upstream| upstream.options.hash_key.as_ref());
    let hashed = hash_key.into_iter().flat_map(KeySpec::members);
    let members = rules.iter().flat_map(|rule| rule.options.members());
    // The file was checked for too many.
    MemberPaths::new(members.chain(hashed)).ok().flatten().map(Arc::new)
}

/// Returns the numbers of a rule's plans in the store, if it has plans.
fn shared_plans(
    tag: &str,
    rule: &Rule,
    plans: Option<&Arc<ClientPlans>>,
    is_synced: bool,
) -> Option<SharedPlans> {
    let plans = Arc::clone(plans?);
    let levels = rule.algorithm.plans()?.table().levels().iter().map(|level| {
        let stored = Stored::new(level).ok()?;
        let name = format!("{tag}:{}", name_in_store(rule, &stored, is_synced));
        Some((name.into(), Arc::new(stored)))
    });
    Some(SharedPlans { plans, levels: levels.collect::<Option<_>>()? })
}

fn shared(
    tag: &str,
    name: &str,
    rule: Stored,
    on_error: OnStoreError,
    interval: Option<Duration>,
) -> Shared {
    let name = format!("{tag}:{name}").into();
    let sync = interval.map(|interval| Arc::new(RuleSync { interval, ..RuleSync::default() }));
    Shared { name, rule: Arc::new(rule), plans: None, on_error, sync }
}

/// Returns listeners that show the certificates in force where the files of the authority's cannot be
/// read any more.
fn kept(mut listeners: Vec<Arc<Listener>>, old: Option<&Snapshot>) -> Vec<Arc<Listener>> {
    let Some(old) = old else { return listeners };
    for listener in &mut listeners {
        let in_force = |file: &Path| {
            let issued = certificates(&old.listeners).filter(|one| one.path == file);
            issued.filter(|one| !one.is_self_signed()).take(1).collect()
        };
        let tls = listener.tls.as_ref().and_then(|tls| tls.keeping(in_force));
        if let (Some(tls), Some(listener)) = (tls, Arc::get_mut(listener)) {
            listener.tls = Some(Arc::new(tls));
        }
    }
    listeners
}

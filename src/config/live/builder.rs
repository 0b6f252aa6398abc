//! A snapshot of a plan, with what the one before has to pass on.

use super::{
    LocalShare, Summary,
    local_share::divided,
    members::{ServerBuilder, ServerIds},
};
use crate::{
    config::{
        plan::{Plan, RoutePlan, UpstreamPlan, name_in_store},
        report::changes::{ConfigChanges, at_start_only},
        snapshot::{Route, RouteRule, RuleSync, Shared, Snapshot, Upstream},
        spec::OnStoreError,
    },
    flow::{Change, Gate, Instant, Stored, WallOffset},
};
use ahash::AHashMap;
use arc_swap::ArcSwap;
use std::{
    collections::HashMap,
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
    /// Gates of another process, by route.
    gates: HashMap<Arc<str>, Arc<Gate>>,
}

impl<'o> Builder<'o> {
    pub(super) fn new(
        old: Option<&'o Snapshot>,
        (local_share, wall): (LocalShare, WallOffset),
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
        let upstreams = self.upstreams(plan.upstreams);
        let routes = self.routes(plan.routes, &upstreams);
        self.summary.version = version;
        let snapshot = Snapshot {
            version,
            is_storeless,
            text,
            hash: plan.hash,
            settings: plan.settings,
            listeners: plan.listeners,
            upstreams,
            routes,
            table: plan.table,
            deciding_headers: plan.deciding_headers,
            files: plan.files,
            texts,
        };
        (snapshot, self.summary)
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

    fn routes(&mut self, plans: Vec<RoutePlan>, upstreams: &[Arc<Upstream>]) -> Vec<Arc<Route>> {
        let old = self.old.map_or(&[][..], |old| &old.routes);
        let mut old: AHashMap<&str, &Arc<Route>> =
            old.iter().map(|route| (&*route.name, route)).collect();
        let mut routes = Vec::with_capacity(plans.len());

        for plan in plans {
            let upstream = plan.action.upstream().map(|index| &upstreams[*index]);
            let known = old.remove(&*plan.name);
            match known {
                Some(known) if known.print == plan.print => {}
                Some(_) => self.summary.routes_changed += 1,
                None => self.summary.routes_added += 1,
            }

            routes.push(match known {
                // Nothing that it is made of was edited.
                Some(known)
                    if known.print == plan.print
                        && known.options == plan.options
                        && known.action.upstream().map(Arc::as_ptr)
                            == upstream.map(Arc::as_ptr) =>
                {
                    let others = known.breaker.into_iter().chain(known.pacing);
                    self.summary.rules_kept += known.rules.len() + others.count();
                    Arc::clone(known)
                }
                known => Arc::new(self.route(plan, upstreams, known)),
            });
        }

        self.summary.routes_removed = old.len();
        routes
    }

    fn route(
        &mut self,
        plan: RoutePlan,
        upstreams: &[Arc<Upstream>],
        known: Option<&Arc<Route>>,
    ) -> Route {
        let previewed = self.previewed_gate(&plan, known);
        let gate = match (previewed, known) {
            (Some(gate), _) => gate,
            (None, Some(old)) => old.gate.clone(),
            (None, None) => self.gates.remove(&*plan.name).unwrap_or_else(|| self.gate()),
        };

        let shared_ones = plan.rules.iter().map(|rule| rule.shared.is_some().then_some(false));
        let here = divided(&plan.flow, shared_ones, plan.paced.is_some(), self.local_share);
        let installed = gate.install(&here, self.now);
        let tags = [false, true].map(|is_by_key| plan.hash_tag(is_by_key));

        let RoutePlan { definition, action, rules, paced } = plan;
        let flow = installed.flow.into_iter().zip(&definition.flow.flow);
        let rules = rules.into_iter().zip(flow).map(|(rule, (slot, identity))| RouteRule {
            shared: rule.shared.and_then(|on_error| {
                let stored = Stored::new(&identity.algorithm).ok()?;
                let interval = rule.sync_interval;
                let name = name_in_store(identity, &stored, interval.is_some());
                let tag = &tags[usize::from(interval.is_none())];
                Some(shared(tag, &name, stored, on_error, interval))
            }),
            slot,
            options: rule.options,
            problem: OnceLock::new(),
        });
        let rules: Vec<RouteRule> = rules.collect();

        let paced = definition.flow.pacing.as_ref().zip(paced).and_then(|(pacing, on_error)| {
            let stored = Stored::paced(pacing).ok()?;
            Some(shared(&tags[0], &format!("pacing:{}", stored.shape()), stored, on_error, None))
        });

        let route = Route {
            is_shared: paced.is_some() || rules.iter().any(|rule| rule.shared.is_some()),
            paced,
            definition,
            action: action.map(|index| Arc::clone(&upstreams[index])),
            gate,
            rules,
            breaker: installed.breaker,
            pacing: installed.pacing,
            meter: known.map_or_else(Arc::default, |old| old.meter.clone()),
        };

        self.note(&route, known, &installed.changes);
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

    /// Counts what became of a route's rules.
    fn note(&mut self, route: &Route, known: Option<&Arc<Route>>, changes: &[(Arc<str>, Change)]) {
        let summary = &mut self.summary;
        for (rule, change) in changes {
            let named = || format!("{}/{rule}", route.name);
            let is_moved = || known.is_some_and(|old| old.in_store(rule) != route.in_store(rule));
            match change {
                // The gate knows only of what is counted here.
                Change::Kept | Change::Converted if is_moved() => summary.moved.push(named()),
                Change::Kept => summary.rules_kept += 1,
                Change::Converted => summary.rules_converted += 1,
                Change::Reset => summary.reset.push(named()),
                Change::Added | Change::Removed => {}
            }
        }
    }
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
    Shared { name, rule: Arc::new(rule), on_error, sync }
}

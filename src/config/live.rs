//! The configuration in force, and putting another one in its place; the only user of `arc_swap`.
//!
//! **Rules are swapped, state stays.** A snapshot is immutable. What has state outlives it: a gate
//! and a meter belong to a route's name, what is in flight and a meter to a server's address, whose
//! turn it is to an upstream's name.

use super::{
    changes::{Changes, MOVED, RESET, at_start_only},
    cut,
    error::Diagnostics,
    plan::{Plan, RoutePlan, ServerPlan, UpstreamPlan},
    snapshot::{Exchange, Route, RouteRule, Server, Shared, Snapshot, Upstream},
    source,
    spec::OnStoreError,
    store::name_in_store,
};
use crate::flow::{self, Algorithm, Change, Gate, Instant, Stored, WallOffset};
use ahash::AHashMap;
use arc_swap::{ArcSwap, Guard};
use std::{
    collections::HashMap,
    fmt,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

/// Holds the snapshot that requests begin under.
#[derive(Debug)]
pub struct Live {
    current: ArcSwap<Snapshot>,
    division: Mutex<Division>,
    wall: Mutex<WallOffset>,
}

/// Among how many gateways shared rules are divided while their store fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Division {
    /// Those that the store has seen.
    pub gateways: u32,
    /// Whether states cannot be exchanged, so that rules of which they are hold divided.
    pub is_cut_off: bool,
    /// How often the rules have changed of which the store [refuses](Exchange::is_refused) that,
    /// which hold divided in any case.
    pub refusals: u64,
}

/// What a reload did, for one line of the log.
#[derive(Debug, Default)]
pub struct Summary {
    /// The snapshot's version.
    pub version: u64,
    /// What differs from the one before.
    pub changes: Changes,
    /// Routes that are new.
    pub routes_added: usize,
    /// Routes that were edited.
    pub routes_changed: usize,
    /// Routes that are gone.
    pub routes_removed: usize,
    /// Rules that are as they were.
    pub rules_kept: usize,
    /// Rules with other numbers, whose state went on.
    pub rules_converted: usize,
    /// Rules with another algorithm or key, or whose states are exchanged as of now or no more,
    /// which began afresh, as `route/rule`.
    pub reset: Vec<String>,
    /// Rules whose state here went on, but which gateways count together otherwise than before or
    /// no more, so that this count began afresh, as `route/rule`.
    pub moved: Vec<String>,
    /// Keys that were edited and are read at start only.
    pub restart: Vec<&'static str>,
    /// Whether there is a store in the file and none was at the start, so that none is asked until
    /// the restart.
    pub lacks_store: bool,
}

/// Snapshots that were replaced, kept until no request needs them.
///
/// The last one to let a snapshot go frees it, and with ten thousand routes that takes
/// milliseconds. Kept here, that is never a worker.
#[derive(Debug, Default)]
pub struct Retired {
    snapshots: Vec<Arc<Snapshot>>,
}

impl Live {
    /// Puts the first plan in force.
    pub fn start(plan: Plan, now: Instant) -> Self {
        let division = Division { gateways: 1, is_cut_off: true, refusals: 0 };
        let wall = WallOffset::default();
        let (snapshot, _) = Builder::new(None, (division, wall), now).snapshot(plan);
        Self {
            current: ArcSwap::from_pointee(snapshot),
            division: Mutex::new(division),
            wall: Mutex::new(wall),
        }
    }

    /// Returns the snapshot in force, for a moment: do not hold it over an `.await`.
    pub fn load(&self) -> Guard<Arc<Snapshot>> {
        self.current.load()
    }

    /// Returns the snapshot in force, to keep: a request takes it once and keeps it to its end.
    pub fn load_full(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// Reads the file at `path` as [`super::read`] does, to take the place of the one in force.
    ///
    /// # Errors
    /// All that is wrong with it. Also a file cut short: the one in force ends with `end: true`,
    /// and this one does not.
    pub fn read(&self, path: &Path) -> Result<Plan, Diagnostics> {
        let source = source::read(path)?;
        let plan = super::parse(&source)?;
        if self.load().is_sealed && !plan.is_sealed && !plan.unseals {
            return Err(cut::unsealed(&source));
        }
        Ok(plan)
    }

    /// Returns what looks cut short in `plan` beside what is in force, to be confirmed before
    /// [`Self::apply`]: a file that is only the beginning of the one in force and does not end with
    /// `end: true`, or a certificate that has lost a part of its chain.
    pub fn doubt(&self, plan: &Plan) -> Option<Diagnostics> {
        cut::doubt(&self.load(), plan)
    }

    /// Puts `plan` in force: the rules into their gates, then the snapshot in one step. Requests,
    /// connections and tunnels in flight do not notice. One caller at a time, who keeps what was
    /// replaced in `retired`.
    ///
    /// With ten thousand routes, requests begin under the old snapshot for tens of milliseconds
    /// after the first gate has its new rules. Those that were reset decide about them too; those
    /// that were added do not, as the old snapshot cannot know them.
    pub fn apply(&self, plan: Plan, now: Instant, retired: &mut Retired) -> Summary {
        let old = self.current.load_full();
        let (division, wall) = (*self.division(), *self.wall());
        let (snapshot, summary) = Builder::new(Some(&old), (division, wall), now).snapshot(plan);
        self.current.store(Arc::new(snapshot));
        retired.snapshots.push(old);
        retired.sweep();
        summary
    }

    /// Divides shared rules so while their store fails: in force for the next decision. By the
    /// one caller of [`Self::apply`].
    pub fn divide(&self, division: Division, now: Instant) {
        if core::mem::replace(&mut *self.division(), division) != division {
            for route in self.load().routes.iter().filter(|route| route.is_shared) {
                let pacing = route.paced.is_some();
                let shared = route.rules.iter().map(|rule| {
                    let is_refused = |it: &Arc<Exchange>| it.is_refused.load(Relaxed);
                    rule.shared.is_some().then(|| rule.exchange().is_some_and(is_refused))
                });
                route.gate.install(&divided(&route.flow, shared, pacing, division), now);
            }
        }
    }

    /// Has the rules that count by the clock or the calendar follow the wall's clock, which was
    /// stepped: in force for the next decision. By the one caller of [`Self::apply`], who
    /// has the gates [catch up](Gate::catch_up) afterwards.
    pub fn set_wall(&self, wall: WallOffset, now: Instant) {
        *self.wall() = wall;
        for route in &self.load().routes {
            route.gate.set_wall(wall, now);
        }
    }

    fn wall(&self) -> MutexGuard<'_, WallOffset> {
        self.wall.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn division(&self) -> MutexGuard<'_, Division> {
        self.division.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Retired {
    /// Frees the snapshots that no request needs any more, and returns how many are left. To be
    /// called now and then.
    pub fn sweep(&mut self) -> usize {
        self.snapshots.retain(|snapshot| Arc::strong_count(snapshot) > 1);
        self.snapshots.len()
    }
}

impl Summary {
    /// Returns how many rules began afresh, here or in the store.
    pub fn rules_reset(&self) -> usize {
        self.reset.len() + self.moved.len()
    }

    /// Returns a line for the log about what began afresh or waits for a restart, if anything did.
    pub fn warning(&self) -> Option<String> {
        const MOST_NAMED: usize = 10;
        let mut lines = Vec::new();
        for (why, rules) in [(RESET, &self.reset), (MOVED, &self.moved)] {
            if rules.is_empty() {
                continue;
            }
            let named = rules.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>().join(", ");
            let more = rules.len().saturating_sub(MOST_NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            lines.push(format!("{why}: {named}{more}"));
        }
        if !self.restart.is_empty() {
            lines.push(format!("takes effect at the next start: {}", self.restart.join(", ")));
        }
        if self.lacks_store {
            lines.push(
                "flowgate started without a store and connects to none until the next start: until then \
                 rules with `scope: cluster` follow `on_store_error` (`local`: this gateway counts alone, \
                 with the whole limit)"
                    .to_owned(),
            );
        }
        (!lines.is_empty()).then(|| lines.join("; "))
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "reloaded v{}: {}; kept {}, converted {}, reset {}",
            self.version,
            self.changes,
            self.rules_kept,
            self.rules_converted,
            self.rules_reset()
        )
    }
}

/// Makes a snapshot of a plan and of what the one before has to pass on.
struct Builder<'o> {
    old: Option<&'o Snapshot>,
    division: Division,
    wall: WallOffset,
    now: Instant,
    servers: HashMap<(Arc<str>, u16), Arc<Server>>,
    next_server: usize,
    summary: Summary,
}

impl<'o> Builder<'o> {
    fn new(
        old: Option<&'o Snapshot>,
        (division, wall): (Division, WallOffset),
        now: Instant,
    ) -> Self {
        let servers = old.iter().flat_map(|old| &old.upstreams).flat_map(|u| &u.servers);
        Self {
            old,
            division,
            wall,
            now,
            servers: servers.map(|s| ((s.host.clone(), s.port), s.clone())).collect(),
            next_server: old.map_or(0, |old| old.next_server),
            summary: Summary::default(),
        }
    }

    fn snapshot(mut self, plan: Plan) -> (Snapshot, Summary) {
        let version = self.old.map_or(1, |old| old.version + 1);
        if let Some(old) = self.old {
            self.summary.changes = Changes::between(old, &plan);
            self.summary.restart = at_start_only(&old.settings, &plan.settings);
        }
        let is_storeless =
            self.old.map_or_else(|| plan.settings.store.is_none(), |old| old.is_storeless);
        self.summary.lacks_store = is_storeless && plan.settings.store.is_some();
        let text = Arc::clone(&plan.source().text);
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
            is_sealed: plan.is_sealed,
            next_server: self.next_server,
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
        plans
            .into_iter()
            .map(|plan| match old.get(&*plan.name) {
                Some(old) if is_same(old, &plan) => Arc::clone(old),
                old => Arc::new(self.upstream(plan, old.map_or(0, |old| old.turn.load(Relaxed)))),
            })
            .collect()
    }

    fn upstream(&mut self, plan: UpstreamPlan, turn: usize) -> Upstream {
        Upstream {
            name: plan.name,
            servers: plan.servers.into_iter().map(|plan| self.server(plan)).collect(),
            schedule: plan.schedule,
            turn: AtomicUsize::new(turn),
            options: plan.options,
        }
    }

    fn server(&mut self, plan: ServerPlan) -> Arc<Server> {
        let ServerPlan { endpoint, weight } = plan;
        let known = self.servers.get(&(endpoint.host.clone(), endpoint.port));
        let server = match known {
            Some(known) if known.weight == weight => return Arc::clone(known),
            Some(known) => Server {
                id: known.id,
                host: endpoint.host,
                port: endpoint.port,
                weight,
                in_flight: Arc::clone(&known.in_flight),
                meter: Arc::clone(&known.meter),
            },
            None => {
                self.next_server += 1;
                Server {
                    id: self.next_server - 1,
                    host: endpoint.host,
                    port: endpoint.port,
                    weight,
                    in_flight: Arc::default(),
                    meter: Arc::default(),
                }
            }
        };
        let server = Arc::new(server);
        self.servers.insert((server.host.clone(), server.port), Arc::clone(&server));
        server
    }

    fn routes(&mut self, plans: Vec<RoutePlan>, upstreams: &[Arc<Upstream>]) -> Vec<Arc<Route>> {
        let old = self.old.map_or(&[][..], |old| &old.routes);
        let mut old: AHashMap<&str, &Arc<Route>> =
            old.iter().map(|route| (&*route.name, route)).collect();
        let mut routes = Vec::with_capacity(plans.len());
        for plan in plans {
            let upstream = &upstreams[plan.upstream];
            let known = old.remove(&*plan.name);
            match known {
                Some(known) if known.print == plan.print => {}
                Some(_) => self.summary.routes_changed += 1,
                None => self.summary.routes_added += 1,
            }
            routes.push(match known {
                // Nothing that it is made of was edited, so that it can serve on as it is.
                Some(known)
                    if known.print == plan.print
                        && known.options.body_limit == plan.options.body_limit
                        && Arc::ptr_eq(&known.upstream, upstream) =>
                {
                    let others = known.breaker.into_iter().chain(known.pacing);
                    self.summary.rules_kept += known.rules.len() + others.count();
                    Arc::clone(known)
                }
                known => Arc::new(self.route(plan, upstream, known)),
            });
        }
        self.summary.routes_removed = old.len();
        routes
    }

    fn route(
        &mut self,
        plan: RoutePlan,
        upstream: &Arc<Upstream>,
        known: Option<&Arc<Route>>,
    ) -> Route {
        let gate = known.map_or_else(|| self.gate(), |old| old.gate.clone());
        let shared_ones = plan.rules.iter().map(|rule| rule.shared.is_some().then_some(false));
        let here = divided(&plan.flow, shared_ones, plan.paced.is_some(), self.division);
        let installed = gate.install(&here, self.now);
        let tags = [false, true].map(|is_by_key| plan.hash_tag(is_by_key));
        let flow = installed.flow.into_iter().zip(&plan.flow.flow);
        let rules = plan.rules.into_iter().zip(flow).map(|(rule, (slot, identity))| RouteRule {
            shared: rule.shared.and_then(|on_error| {
                let stored = Stored::new(&identity.algorithm).ok()?;
                let interval = rule.sync_interval;
                let name = name_in_store(identity, &stored, interval.is_some());
                let tag = &tags[usize::from(interval.is_none())];
                Some(shared(tag, &name, stored, on_error, interval))
            }),
            slot,
            name: rule.name,
            when: rule.when,
            key: rule.key,
            on_missing: rule.on_missing,
            cost: rule.cost,
            except: rule.except,
            priority: rule.priority,
            quota: rule.quota,
            dry_run: rule.dry_run,
        });
        let rules: Vec<RouteRule> = rules.collect();
        let paced = plan.flow.pacing.as_ref().zip(plan.paced).and_then(|(pacing, on_error)| {
            let stored = Stored::paced(pacing).ok()?;
            Some(shared(&tags[0], &format!("pacing:{}", stored.shape()), stored, on_error, None))
        });
        let route = Route {
            is_shared: paced.is_some() || rules.iter().any(|rule| rule.shared.is_some()),
            paced,
            name: plan.name,
            matches: plan.matches,
            upstream: Arc::clone(upstream),
            options: plan.options,
            gate,
            flow: plan.flow,
            rules,
            breaker: installed.breaker,
            pacing: installed.pacing,
            policy: plan.policy,
            meter: known.map_or_else(Arc::default, |old| old.meter.clone()),
            print: plan.print,
        };
        self.note(&route, known, &installed.changes);
        route
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

/// Returns the rules as they hold here while the store fails: the shared ones divided, of which
/// there is told whether the store refuses to exchange their states.
fn divided(
    rules: &flow::Rules,
    shared: impl Iterator<Item = Option<bool>>,
    is_paced: bool,
    Division { gateways, is_cut_off, .. }: Division,
) -> flow::Rules {
    let mut rules = rules.clone();
    for (rule, is_refused) in rules.flow.iter_mut().zip(shared) {
        if let Some(is_refused) = is_refused {
            let is_exchanged = matches!(rule.algorithm, Algorithm::Synced(_));
            let is_whole = is_exchanged && !is_cut_off && !is_refused;
            rule.algorithm = rule.algorithm.among(if is_whole { 1 } else { gateways });
        }
    }
    if is_paced {
        rules.pacing = rules.pacing.map(|pacing| pacing.among(gateways));
    }
    rules
}

fn shared(
    tag: &str,
    name: &str,
    rule: Stored,
    on_error: OnStoreError,
    interval: Option<Duration>,
) -> Shared {
    let name = format!("{tag}:{name}").into();
    let exchange = interval.map(|interval| Arc::new(Exchange { interval, ..Exchange::default() }));
    Shared { name, rule: Arc::new(rule), on_error, exchange }
}

/// Reports whether an upstream is as it was, so that routes can go on with it.
fn is_same(old: &Upstream, plan: &UpstreamPlan) -> bool {
    old.options == plan.options
        && old.schedule == plan.schedule
        && old.servers.len() == plan.servers.len()
        && old.servers.iter().zip(&plan.servers).all(|(old, plan)| {
            old.host == plan.endpoint.host
                && old.port == plan.endpoint.port
                && old.weight == plan.weight
        })
}

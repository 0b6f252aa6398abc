//! The configuration in force, and putting another one in its place.
//!
//! **Rules are swapped, state stays.** A snapshot is immutable, but for the addresses of names. What has state outlives it: a gate
//! and a meter belong to a route's name, what is in flight and a meter to a server's address, whose
//! turn it is to an upstream's name.

use super::{
    Summary,
    builder::Builder,
    cut,
    members::{ServerBuilder, ServerIds},
};
use crate::{
    config::{
        diagnostics::Diagnostics,
        load,
        plan::Plan,
        snapshot::{RouteRule, RuleSync, Snapshot, Upstream},
        spec::Resolve,
    },
    flow::{self, Algorithm, Gate, Instant, WallOffset},
};
use arc_swap::{ArcSwap, Guard};
use std::{
    collections::HashMap,
    net::IpAddr,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Holds the snapshot that requests begin under.
#[derive(Debug)]
pub struct Live {
    current: ArcSwap<Snapshot>,
    local_share: Mutex<LocalShare>,
    wall: Mutex<WallOffset>,
    /// Held while servers are made.
    servers: Mutex<ServerIds>,
    /// Counts the reloads that an operator asked for.
    requested_reloads: AtomicU64,
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
        Self::resume(plan, now, WallOffset::default(), HashMap::new()).0
    }

    /// Puts the first plan in force, with gates that another process had for the routes and shared
    /// rules of these names: their states are kept, converted or reset as by an edit. The wall clock is `wall`
    /// ahead.
    pub fn resume(
        plan: Plan,
        now: Instant,
        wall: WallOffset,
        gates: HashMap<Arc<str>, Arc<Gate>>,
    ) -> (Self, Summary) {
        let local_share = LocalShare { gateways: 1, is_cut_off: true, sync_rejections: 0 };
        let mut servers = ServerIds::default();
        let builder = Builder::new(None, local_share, wall, now, &mut servers);
        let (snapshot, summary) = builder.with_gates(gates).snapshot(plan);
        let live = Self {
            current: ArcSwap::from_pointee(snapshot),
            local_share: Mutex::new(local_share),
            wall: Mutex::new(wall),
            servers: Mutex::new(servers),
            requested_reloads: AtomicU64::new(0),
        };
        (live, summary)
    }

    /// Notes that an operator asks for a reload: what it has from outside of its files, such as the
    /// addresses of names, is fetched again.
    pub fn request_reload(&self) {
        self.requested_reloads.fetch_add(1, Relaxed);
    }

    /// Returns how often an operator has asked for a reload.
    pub fn requested_reloads(&self) -> u64 {
        self.requested_reloads.load(Relaxed)
    }

    /// Returns the snapshot in force, for a moment: do not hold it over an `.await`.
    pub fn load(&self) -> Guard<Arc<Snapshot>> {
        self.current.load()
    }

    /// Returns the snapshot in force, to keep: a request takes it once and keeps it to its end.
    pub fn load_full(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// Reads the file at `path` as [`read`](crate::config::read()) does, to take the place of the one in force.
    ///
    /// # Errors
    /// All that is wrong with it. Also a file cut short: the one in force ends with `end: true`,
    /// and this one does not.
    pub fn read(&self, path: &Path) -> Result<Plan, Diagnostics> {
        self.sealed(load::read(path)?)
    }

    /// Returns `plan` unless its file was cut short.
    ///
    /// # Errors
    /// The file in force ends with `end: true`, and this one does not.
    pub fn sealed(&self, plan: Plan) -> Result<Plan, Diagnostics> {
        let unsealed = cut::unsealed(&self.load(), &plan);
        unsealed.map_or(Ok(plan), Err)
    }

    /// Returns what looks cut short in `plan` beside what is in force, to be confirmed before
    /// [`Self::apply`]: a file that is only the beginning of the one in force and does not end with
    /// `end: true`, or a certificate that has lost a part of its chain.
    pub fn doubt(&self, plan: &Plan) -> Option<Diagnostics> {
        cut::doubt(&self.load(), plan)
    }

    /// Puts `plan` in force: the rules into their gates, then the snapshot in one step. Requests,
    /// connections and tunnels in flight go on. One caller at a time, which keeps the replaced
    /// snapshots in `retired`.
    ///
    /// With ten thousand routes, requests begin under the old snapshot for tens of milliseconds
    /// after the first gate has its new rules. Those that were reset decide about them too; those
    /// that were added do not, as the old snapshot cannot know them.
    pub fn apply(&self, plan: Plan, now: Instant, retired: &mut Retired) -> Summary {
        self.replace(plan, None, now, retired)
    }

    /// Puts `plan` in force as [`Self::apply`] does, with the state of its preview: new and edited
    /// rules go on with what they have counted in `previewed`, all others with what is in force.
    pub fn apply_previewed(
        &self,
        plan: Plan,
        previewed: &Snapshot,
        now: Instant,
        retired: &mut Retired,
    ) -> Summary {
        self.replace(plan, Some(previewed), now, retired)
    }

    /// Makes a snapshot of `plan` that is not in force: nothing of it is shared with what is. Rules
    /// that gateways share count here alone, by this gateway's part of the limit.
    pub fn preview(&self, plan: Plan, now: Instant) -> Snapshot {
        let local_share = LocalShare { is_cut_off: true, ..*self.local_share() };
        let mut servers = ServerIds::default();
        let builder = Builder::new(None, local_share, *self.wall(), now, &mut servers);
        builder.snapshot(plan).0
    }

    fn replace(
        &self,
        plan: Plan,
        previewed: Option<&Snapshot>,
        now: Instant,
        retired: &mut Retired,
    ) -> Summary {
        let old = self.current.load_full();
        let local_share = *self.local_share();
        let wall = *self.wall();
        let mut servers = self.servers();
        let mut builder = Builder::new(Some(&old), local_share, wall, now, &mut servers);
        if let Some(previewed) = previewed {
            builder = builder.with_gates_of(previewed);
        }
        let (snapshot, summary) = builder.snapshot(plan);
        self.current.store(Arc::new(snapshot));
        drop(servers);
        retired.snapshots.push(old);
        retired.sweep();
        summary
    }

    /// Makes the addresses that a name has now servers of the upstreams that follow it. Requests in
    /// flight go on, and addresses that stay keep their connections and their health.
    pub fn resolve(&self, name: &Arc<str>, addresses: &Arc<[IpAddr]>) {
        let mut servers = self.servers();
        let snapshot = self.load();
        let follows = |upstream: &&Arc<Upstream>| {
            upstream.options.resolve != Resolve::OnConnect
                && upstream.names().any(|known| known == name)
                && upstream.members().names.get(name) != Some(addresses)
        };
        for upstream in snapshot.upstreams.iter().filter(follows) {
            let mut builder = ServerBuilder::new(Some(&snapshot), &mut servers);
            builder.resolve(name, addresses);
            let members = builder.members(&upstream.plan, Some(&upstream.members()));
            upstream.members.store(Arc::new(members));
        }
    }

    /// Divides shared rules so while their store fails: in force for the next decision. By the
    /// one caller of [`Self::apply`].
    pub fn divide(&self, local_share: LocalShare, now: Instant) {
        if core::mem::replace(&mut *self.local_share(), local_share) != local_share {
            let snapshot = self.load();
            let is_rejected = |sync: &Arc<RuleSync>| sync.is_rejected.load(Relaxed);
            let shared = |rule: &RouteRule| {
                rule.shared.is_some().then(|| rule.sync().is_some_and(is_rejected))
            };
            for route in snapshot.routes.iter().filter(|route| route.is_shared) {
                let pacing = route.paced.is_some();
                let shared = route.own_rules().iter().map(shared);
                route.gate.install(&divided(&route.flow, shared, pacing, local_share), now);
            }
            for group in snapshot.groups.iter().filter(|group| group.is_shared) {
                let shared = group.rules.iter().map(shared);
                group.gate.install(&divided(&group.flow, shared, false, local_share), now);
            }
        }
    }

    /// Has rules that count by the clock or the calendar follow a step of the wall clock, from the
    /// next decision on. Only the caller of [`Self::apply`] may call it; it then has the gates
    /// [catch up](crate::flow::Gate::catch_up) afterwards.
    pub fn set_wall(&self, wall: WallOffset, now: Instant) {
        *self.wall() = wall;
        for (_, gate) in self.load().gates() {
            gate.set_wall(wall, now);
        }
    }

    pub(super) fn servers(&self) -> MutexGuard<'_, ServerIds> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wall(&self) -> MutexGuard<'_, WallOffset> {
        self.wall.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn local_share(&self) -> MutexGuard<'_, LocalShare> {
        self.local_share.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Among how many gateways shared rules are divided while their store fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalShare {
    /// Those that the store has seen.
    pub gateways: u32,
    /// True if the store cannot be reached, so that synced rules are divided too.
    pub is_cut_off: bool,
    /// Counts changes of which rules the store [rejects](crate::config::RuleSync::is_rejected) to
    /// sync; those are divided in any case.
    pub sync_rejections: u64,
}

/// Returns the rules as they hold here while the store fails, with the shared ones divided.
/// `shared` says of each shared rule whether the store rejects its syncs.
pub(super) fn divided(
    rules: &flow::Rules,
    shared: impl Iterator<Item = Option<bool>>,
    is_paced: bool,
    LocalShare { gateways, is_cut_off, .. }: LocalShare,
) -> flow::Rules {
    let mut rules = rules.clone();
    for (rule, is_rejected) in rules.flow.iter_mut().zip(shared) {
        if let Some(is_rejected) = is_rejected {
            let is_synced = matches!(rule.algorithm, Algorithm::Synced(_));
            let is_whole = is_synced && !is_cut_off && !is_rejected;
            rule.algorithm = rule.algorithm.among(if is_whole { 1 } else { gateways });
        }
    }
    if is_paced {
        rules.pacing = rules.pacing.map(|pacing| pacing.among(gateways));
    }
    rules
}

//! A route in force: its gate, and what its requests ask of each rule.

use super::{RuleGroup, Upstream};
use crate::{
    config::{
        plan::{Action, ClientPlans, FlowPart, Limit, MetGroup, RouteDefinition, RuleOptions},
        spec::OnStoreError,
    },
    flow::{Estimate, Gate, Gates, PlanKey, SlotId, Stored},
    meter,
    route::MemberPaths,
    usage::Queries,
};
use http::HeaderName;
use std::{
    ops::Deref,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64},
    },
    time::Duration,
};

/// Where requests of one kind go, and how many may.
#[derive(Debug)]
pub struct Route {
    /// The definition in the file.
    pub(in crate::config) definition: RouteDefinition,
    /// The action for requests that may pass.
    pub action: Action<Arc<Upstream>>,
    /// The upstream that decides about each request before the rules, if one does.
    pub auth_upstream: Option<Arc<Upstream>>,
    /// The upstream that gets copies of its requests, if one does.
    pub mirror_upstream: Option<Arc<Upstream>>,
    /// Decides; kept over reloads by the route's name.
    pub gate: Arc<Gate>,
    /// The route's gate and those of the rules that it shares with other routes, which decide
    /// together.
    pub gates: Gates,
    /// The rules that it shares with other routes, in the order in which they decide.
    pub groups: Vec<Arc<RuleGroup>>,
    /// The conditions of a request for each of the gate's rules, in their order; then for the rules
    /// that the route shares with others.
    pub rules: Vec<RouteRule>,
    /// The numbers that its rules find in the bodies of responses, if any does.
    pub usage: Option<Arc<Queries>>,
    /// The members of a request's body that the rules and the upstream look at, if any does.
    pub members: Option<Arc<MemberPaths>>,
    /// The slot of the breaker, if there is one.
    pub breaker: Option<SlotId>,
    /// The slot of pacing, if there is one.
    pub pacing: Option<SlotId>,
    /// Pacing by a store, if gateways share it.
    pub paced: Option<Shared>,
    /// True if gateways share any of its rules.
    pub is_shared: bool,
    /// The needs of rules whose costs are known after the response.
    pub settling: Settling,
    /// True if the order of a queue depends on more than the arrival.
    pub shares_queues: bool,
    /// The slots of rules whose limit finds itself.
    pub auto: Vec<SlotId>,
    /// The counters of responses; kept over reloads by the route's name.
    pub meter: Arc<meter::RouteMeter>,
}

/// The needs of a route's rules whose costs are known after the response.
#[derive(Clone, Copy, Debug)]
pub struct Settling {
    /// True if a rule computes the reserve of each request.
    pub computes_reserves: bool,
    /// True if a rule charges what a response has cost so far, while it passes.
    pub while_streaming: bool,
}

impl Settling {
    /// Returns the needs of these rules.
    pub(in crate::config) fn of(rules: &[RouteRule]) -> Self {
        Self {
            computes_reserves: rules.iter().any(|rule| rule.cost.computes_reserve()),
            while_streaming: rules.iter().any(|rule| rule.cost.settles_while_streaming()),
        }
    }
}

impl Deref for Route {
    type Target = RouteDefinition;

    fn deref(&self) -> &RouteDefinition {
        &self.definition
    }
}

/// The conditions of a request for one rule.
#[derive(Clone, Debug)]
pub struct RouteRule {
    /// The rule's slot in its gate.
    pub slot: SlotId,
    /// Distinguishes it from the other rules that a request meets: its name, and that of an
    /// override with its condition.
    pub identity: Arc<str>,
    /// Its algorithm's word.
    pub algorithm: &'static str,
    /// The shared rule that it belongs to; `None` for one of the route's own.
    pub group: Option<Arc<RuleGroup>>,
    /// The listeners whose requests it is asked about; `None`: all.
    pub listeners: Option<Arc<[Arc<str>]>>,
    /// Its conditions of requests.
    pub options: RuleOptions,
    /// The number of its query among those of the route, if it finds numbers in responses.
    pub query: Option<usize>,
    /// The rule in the store, if gateways share it.
    pub shared: Option<Shared>,
    /// What it has learned for its reserve, if that is computed.
    pub learned: Option<Estimate>,
    /// The beginning of the body for requests that the rate of this rule alone has rejected, once
    /// there was one: it depends on the file only.
    pub problem: OnceLock<Box<[u8]>>,
}

impl Deref for RouteRule {
    type Target = RuleOptions;

    fn deref(&self) -> &RuleOptions {
        &self.options
    }
}

/// A rule that gateways share.
#[derive(Clone, Debug)]
pub struct Shared {
    /// Its name in the store: the route as the hash tag, so that all that one request asks lies on
    /// one node, and what its states mean.
    pub name: Arc<str>,
    /// The decision by the store.
    pub rule: Arc<Stored>,
    /// The numbers of the rule's plans.
    pub plans: Option<Arc<SharedPlans>>,
    /// The behavior while it fails.
    pub on_error: OnStoreError,
    /// `None`: every decision is the store's.
    pub sync: Option<Arc<RuleSync>>,
}

/// The numbers of plans in the store.
#[derive(Debug)]
pub struct SharedPlans {
    /// The plans of the rule.
    pub plans: Arc<ClientPlans>,
    /// Beside the table's levels: the name, and the decision. A name says how its state counts, so
    /// that plans of a bucket with other rates have other states.
    pub levels: Vec<(Arc<str>, Arc<Stored>)>,
}

/// The sync of a rule between gateways.
#[derive(Debug, Default)]
pub struct RuleSync {
    /// The interval.
    pub interval: Duration,
    /// The most that this gateway has lately sent in two syncs of one state, which the others
    /// could not know before.
    pub unseen: AtomicU64,
    /// True if the store answers the syncs of this rule with an error: then the rule follows its
    /// `on_store_error`, alone.
    pub is_rejected: AtomicBool,
}

impl Route {
    /// Returns whether its requests meet these of the `groups`.
    pub(in crate::config) fn has_groups(
        &self,
        groups: &[Arc<RuleGroup>],
        met: &[MetGroup],
    ) -> bool {
        let met = met.iter().map(|met| &groups[met.index]);
        self.groups.iter().map(Arc::as_ptr).eq(met.map(Arc::as_ptr))
    }

    /// Returns the gate of a rule that its requests meet.
    pub fn gate_of(&self, slot: SlotId) -> &Arc<Gate> {
        let rule = self.rules.iter().find(|rule| rule.slot == slot);
        let group = rule.and_then(|rule| rule.group.as_ref());
        group.map_or(&self.gate, |group| &group.gate)
    }

    /// Returns the fields that its auth service writes for the upstream.
    pub fn auth_fields(&self) -> impl Iterator<Item = &HeaderName> {
        let auth = self.options.auth.as_ref();
        auth.and_then(|auth| auth.forward.as_ref()).into_iter().flat_map(|forward| forward.names())
    }

    /// Returns the rules that only this route has.
    pub fn own_rules(&self) -> &[RouteRule] {
        let own = self.rules.iter().take_while(|rule| rule.group.is_none()).count();
        &self.rules[..own]
    }

    /// Returns what gateways share of the rule behind `slot`, if they do, and whether it is a dry
    /// run.
    pub fn shared(&self, slot: SlotId) -> Option<(&Shared, bool)> {
        if self.pacing == Some(slot) {
            return self.paced.as_ref().map(|shared| (shared, false));
        }
        let rule = self.rules.iter().find(|rule| rule.slot == slot)?;
        rule.shared.as_ref().map(|shared| (shared, rule.dry_run))
    }

    /// Returns whether the rule behind `slot` settles costs after the response.
    pub fn settles(&self, slot: SlotId) -> bool {
        let rule = self.rules.iter().find(|rule| rule.slot == slot);
        rule.is_some_and(|rule| rule.cost.settle.is_some())
    }

    /// Returns the name in the store of the rule with this identity, or of the pacing, if gateways
    /// share it.
    pub fn in_store(&self, identity: &str) -> Option<&Arc<str>> {
        let shared = match self.part(identity)? {
            FlowPart::Rule(at) => self.own_rules().get(at)?.shared.as_ref(),
            FlowPart::Breaker => None,
            FlowPart::Pacing => self.paced.as_ref(),
        };
        shared.map(|shared| &shared.name)
    }
}

impl Shared {
    /// Returns the name and the decision for clients of a plan.
    pub fn numbers_of(&self, plan: Option<PlanKey>) -> (&str, &Arc<Stored>) {
        let of_plan = || {
            let plans = self.plans.as_deref()?;
            let (name, rule) = plans.levels.get(plans.plans.level(plan?)?)?;
            Some((&**name, rule))
        };
        of_plan().unwrap_or((&self.name, &self.rule))
    }

    /// Returns whether the store decides about each request, unless it fails.
    pub const fn is_in_store(&self) -> bool {
        self.sync.is_none()
    }
}

impl RouteRule {
    /// Returns whether it is asked about requests of a listener.
    pub fn is_asked_at(&self, listener: Option<&str>) -> bool {
        let Some(names) = &self.listeners else { return true };
        listener.is_some_and(|listener| names.iter().any(|name| **name == *listener))
    }

    /// Returns the quota of clients of a plan.
    pub fn quota_of(&self, plan: Option<PlanKey>) -> Option<&Limit> {
        let own = self.quota.as_ref();
        self.plans.as_deref().map_or(own, |plans| plans.quota(plan, own))
    }

    /// Returns how the store decides about each request, if it does.
    pub fn in_store(&self) -> Option<&Shared> {
        self.shared.as_ref().filter(|shared| shared.is_in_store())
    }

    /// Returns how gateways sync it, if they do.
    pub fn sync(&self) -> Option<&Arc<RuleSync>> {
        self.shared.as_ref()?.sync.as_ref()
    }
}

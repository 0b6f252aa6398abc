//! A route in force: its gate, and what its requests ask of each rule.

use super::Upstream;
use crate::{
    config::{
        plan::{Cost, Except, Limit, Priority, RouteOptions, When},
        spec::{OnMissing, OnStoreError},
    },
    flow::{self, Gate, SlotId, Stored},
    meter,
    route::KeySpec,
};
use http::HeaderValue;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64},
    },
    time::Duration,
};

/// Where requests of one kind go, and how many may.
#[derive(Debug)]
pub struct Route {
    /// Its identity, metric label and word in the log.
    pub name: Arc<str>,
    /// What it matches, in words.
    pub matches: Arc<str>,
    /// Where its requests go.
    pub upstream: Arc<Upstream>,
    /// What the file says about its requests, beside its rules.
    pub options: RouteOptions,
    /// Decides; kept over reloads by the route's name.
    pub gate: Arc<Gate>,
    /// What the gate runs by.
    pub flow: flow::Rules,
    /// What a request must bring for each of the gate's rules, in their order.
    pub rules: Vec<RouteRule>,
    /// The slot of the breaker, if there is one.
    pub breaker: Option<SlotId>,
    /// The slot of pacing, if there is one.
    pub pacing: Option<SlotId>,
    /// How a store decides about pacing, if gateways share it.
    pub paced: Option<Shared>,
    /// Whether gateways share any of its rules.
    pub is_shared: bool,
    /// The value of `RateLimit-Policy`, if there are quotas.
    pub policy: Option<HeaderValue>,
    /// What was answered; kept over reloads by the route's name.
    pub meter: Arc<meter::RouteMeter>,
    /// Tells an edited route from an unedited one.
    pub(in crate::config) print: u64,
}

/// What a request must bring for one rule.
#[derive(Clone, Debug)]
pub struct RouteRule {
    /// The rule's slot in the gate.
    pub slot: SlotId,
    /// Its name in headers, logs and metrics.
    pub name: Arc<str>,
    /// Which requests it is asked about instead of the rule of that name that follows;
    /// `None` for the rule itself.
    pub when: Option<Arc<When>>,
    /// What is counted separately; [`KeySpec::is_shared`] if nothing is.
    pub key: KeySpec,
    /// What becomes of a request that lacks a part of the key.
    pub on_missing: OnMissing,
    /// How much a request counts.
    pub cost: Cost,
    /// Who is exempt, if anyone.
    pub except: Option<Arc<Except>>,
    /// Who may borrow from the windows to come, if anyone.
    pub priority: Option<Arc<Priority>>,
    /// The quota to publish; `None` for a rule without a rate.
    pub quota: Option<Limit>,
    /// Whether it only counts what it would refuse.
    pub dry_run: bool,
    /// How a store decides about it, if gateways share it.
    pub shared: Option<Shared>,
}

/// A rule that gateways share.
#[derive(Clone, Debug)]
pub struct Shared {
    /// Its name in the store: with the route as the hash tag, so that all that one request is
    /// asked about lies together, and with what its states mean.
    pub name: Arc<str>,
    /// How the store decides.
    pub rule: Arc<Stored>,
    /// What holds while it fails.
    pub on_error: OnStoreError,
    /// `None`: every decision is the store's.
    pub exchange: Option<Arc<Exchange>>,
}

/// How gateways exchange a rule's states.
#[derive(Debug, Default)]
pub struct Exchange {
    /// How often.
    pub interval: Duration,
    /// The most that this gateway has lately told in two exchanges of one state, and that others
    /// could not know before.
    pub unseen: AtomicU64,
    /// Whether the store answers what it is told of this rule with an error, so that the rule does
    /// as it says of a store that fails, alone.
    pub is_refused: AtomicBool,
}

impl Route {
    /// Returns the name in the store of the rule with this identity, or of the pacing, if gateways
    /// share it.
    pub fn in_store(&self, identity: &str) -> Option<&Arc<str>> {
        let mut rules = self.rules.iter().zip(&self.flow.flow);
        let shared = match rules.find(|(_, it)| *it.name == *identity) {
            Some((rule, _)) => rule.shared.as_ref(),
            None => self.paced.as_ref().filter(|_| identity == "pacing"),
        };
        shared.map(|it| &it.name)
    }
}

impl RouteRule {
    /// Returns how gateways exchange its states, if they do.
    pub fn exchange(&self) -> Option<&Arc<Exchange>> {
        self.shared.as_ref()?.exchange.as_ref()
    }
}

//! The rules of one gate, whatever has them: a route, or a rule that several routes share.

use super::{Route, RouteRule, Snapshot};
use crate::{
    config::plan::{GroupDefinition, GroupOwner},
    flow::Gate,
};
use std::{fmt, ops::Deref, sync::Arc};

/// The rules of a gate, with their owner.
#[derive(Clone, Copy, Debug)]
pub struct GateRules<'s> {
    /// The part of the file that has them.
    pub owner: RuleOwner<'s>,
    /// Decides by them.
    pub gate: &'s Arc<Gate>,
    /// In the gate's order.
    pub rules: &'s [RouteRule],
}

/// The part of the file that has rules.
#[derive(Clone, Copy, Debug)]
pub enum RuleOwner<'s> {
    /// The route of this name.
    Route(&'s Arc<str>),
    /// The budgets, or the `flow` of the file, a listener or an upstream.
    Shared(&'s GroupOwner),
}

impl<'s> RuleOwner<'s> {
    /// Returns the name of the route, if it is one.
    pub fn route(self) -> Option<&'s str> {
        match self {
            Self::Route(name) => Some(name),
            Self::Shared(_) => None,
        }
    }

    /// Returns the name of the budget, if it is one; of another shared rule the words of its place.
    pub fn budget(self) -> Option<String> {
        match self {
            Self::Route(_) => None,
            Self::Shared(owner) => {
                Some(owner.budget().map_or_else(|| owner.to_string(), ToString::to_string))
            }
        }
    }
}

/// As in `login` or `budget site`.
impl fmt::Display for RuleOwner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Route(name) => f.write_str(name),
            Self::Shared(owner) => owner.fmt(f),
        }
    }
}

impl Route {
    /// Returns the rules that only this route has.
    pub fn gate_rules(&self) -> GateRules<'_> {
        let owner = RuleOwner::Route(&self.name);
        GateRules { owner, gate: &self.gate, rules: self.own_rules() }
    }
}

impl RuleGroup {
    /// Returns its rules.
    pub fn gate_rules(&self) -> GateRules<'_> {
        let owner = RuleOwner::Shared(&self.owner);
        GateRules { owner, gate: &self.gate, rules: &self.rules }
    }
}

impl Snapshot {
    /// Returns the rules that several routes share.
    pub fn shared_rules(&self) -> impl Iterator<Item = GateRules<'_>> {
        self.groups.iter().map(|group| group.gate_rules())
    }

    /// Returns the shared rule of this name: a budget, or a rule in the words of
    /// [`RuleOwner::budget`].
    pub fn shared_rule(&self, name: &str) -> Option<GateRules<'_>> {
        self.shared_rules().find(|rules| rules.owner.budget().is_some_and(|own| own == name))
    }
}

/// A rule that several routes share, with its overrides and their gate.
#[derive(Debug)]
pub struct RuleGroup {
    /// The definition in the file.
    pub(in crate::config) definition: GroupDefinition,
    /// Decides; kept over reloads by the place in the file and the rule's name.
    pub gate: Arc<Gate>,
    /// The conditions of a request for each of the gate's rules, in their order.
    pub rules: Vec<RouteRule>,
    /// True if gateways share it.
    pub is_shared: bool,
}

impl Deref for RuleGroup {
    type Target = GroupDefinition;

    fn deref(&self) -> &GroupDefinition {
        &self.definition
    }
}

impl RuleGroup {
    /// Returns the name in the store of the rule with this identity, if gateways share it.
    pub fn in_store(&self, identity: &str) -> Option<&Arc<str>> {
        let rule = self.rules.iter().find(|rule| *rule.identity == *identity)?;
        rule.shared.as_ref().map(|shared| &shared.name)
    }
}

//! Rules that several routes share: budgets, and the rules of the file, its listeners and its
//! upstreams.

use super::{RulePlan, name_in_store};
use crate::{
    config::diagnostics::SourceSpan,
    flow::{self, Stored},
};
use std::{fmt, ops::Deref, sync::Arc};

/// The place in the file that has a shared rule, with the rule's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupOwner {
    /// The budgets.
    Budget(Arc<str>),
    /// The `flow` of the whole file.
    File(Arc<str>),
    /// The `flow` of a listener: its name, then the rule's.
    Listener(Arc<str>, Arc<str>),
    /// The `flow` of an upstream: its name, then the rule's.
    Upstream(Arc<str>, Arc<str>),
}

impl GroupOwner {
    /// Returns the name, if it is a budget.
    pub const fn budget(&self) -> Option<&Arc<str>> {
        match self {
            Self::Budget(name) => Some(name),
            Self::File(_) | Self::Listener(..) | Self::Upstream(..) => None,
        }
    }

    /// Returns the rule's name.
    pub const fn rule(&self) -> &Arc<str> {
        match self {
            Self::Budget(name)
            | Self::File(name)
            | Self::Listener(_, name)
            | Self::Upstream(_, name) => name,
        }
    }
}

/// As in `budget site` or `listener web total`. No route has such a name, because names hold no
/// blank.
impl fmt::Display for GroupOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Budget(name) => write!(f, "budget {name}"),
            Self::File(rule) => write!(f, "file {rule}"),
            Self::Listener(name, rule) => write!(f, "listener {name} {rule}"),
            Self::Upstream(name, rule) => write!(f, "upstream {name} {rule}"),
        }
    }
}

/// The definition of a shared rule in the file, which a plan and a snapshot hold alike.
#[derive(Clone, Debug)]
pub struct GroupDefinition {
    /// Its place in the file. An edit finds the state by it.
    pub owner: GroupOwner,
    /// The rules of its gate: one for each override, then the rule itself.
    pub flow: flow::Rules,
    /// The budget that also decides about each request of this one.
    pub parent: Option<Arc<str>>,
    /// Differs if the group was edited.
    pub(in crate::config) print: u128,
}

/// A shared rule with its overrides, without its gate.
#[derive(Debug)]
pub(in crate::config) struct RuleGroupPlan {
    pub definition: GroupDefinition,
    /// Where the file has it.
    pub span: SourceSpan,
    /// Beside `flow.flow`, in its order.
    pub rules: Vec<RulePlan>,
    /// The hash tag of the rules about which the store decides: the group's own, or that of all
    /// groups that some request meets together with it.
    pub store_tag: Arc<str>,
}

impl Deref for RuleGroupPlan {
    type Target = GroupDefinition;

    fn deref(&self) -> &GroupDefinition {
        &self.definition
    }
}

impl RuleGroupPlan {
    /// Returns the hash tag of the group's rules in the store, if it shares no tag with others.
    pub(in crate::config) fn own_tag(owner: &GroupOwner) -> String {
        format!("{{{owner}}}")
    }

    /// Returns the name in the store of the rule with this identity, if gateways share it.
    pub(in crate::config) fn in_store(&self, identity: &str) -> Option<String> {
        let mut rules = self.flow.flow.iter().zip(&self.rules);
        let (rule, plan) = rules.find(|(rule, _)| *rule.name == *identity)?;
        plan.shared?;
        let stored = Stored::new(&rule.algorithm).ok()?;
        let is_synced = plan.sync_interval.is_some();
        let tag = if is_synced { &*Self::own_tag(&self.owner) } else { &*self.store_tag };
        Some(format!("{tag}:{}", name_in_store(rule, &stored, is_synced)))
    }

    /// Returns whether the store decides about each request of a rule.
    pub(in crate::config) fn is_decided_by_store(&self) -> bool {
        self.rules.iter().any(RulePlan::is_decided_by_store)
    }
}

/// A group that the requests of a route meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::config) struct MetGroup {
    /// Its index in the plan's groups.
    pub index: usize,
    /// The listeners whose requests meet it; `None`: all.
    pub listeners: Option<Arc<[Arc<str>]>>,
}

//! A rule in force that several routes share.

use super::RouteRule;
use crate::{config::plan::GroupDefinition, flow::Gate};
use std::{ops::Deref, sync::Arc};

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

//! A gate's rules as they are exported.

use crate::flow::{
    breaker,
    calendar::Calendar,
    limiter::Algorithm,
    pacing,
    rules::{Rule, Rules},
};
use serde::{Deserialize, Serialize};

/// The rules of a gate, each with its slot's number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateExport {
    /// In the chain's order.
    pub rules: Vec<(u32, ExportedRule)>,
    /// Whether a request ever borrowed from a coming window.
    pub has_lent: bool,
}

/// The rule of a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExportedRule {
    /// A limit.
    Flow(Rule),
    /// The breaker.
    Breaker(breaker::Config),
    /// The route's pacing.
    Pacing(pacing::Config),
}

impl GateExport {
    /// Replaces the names of calendars, all that is exported of them, by what `find` knows.
    pub fn resolve(&mut self, find: impl Fn(&str) -> Option<Calendar>) {
        for (_, rule) in &mut self.rules {
            if let ExportedRule::Flow(rule) = rule
                && let Some(calendar) = rule.algorithm.calendar_mut()
                && let Some(known) = find(calendar.name())
            {
                *calendar = known;
            }
        }
    }

    /// Returns the rules.
    pub(in crate::flow) fn rules(&self) -> Rules {
        let mut rules = Rules::default();
        for (_, rule) in &self.rules {
            match rule {
                ExportedRule::Flow(rule) => rules.flow.push(rule.clone()),
                ExportedRule::Breaker(config) => rules.breaker = Some(config.clone()),
                ExportedRule::Pacing(config) => rules.pacing = Some(config.clone()),
            }
        }
        rules
    }
}

impl ExportedRule {
    /// Returns whether a request holds something until its answer or end, and its state counts that.
    pub fn holds(&self) -> bool {
        match self {
            Self::Flow(rule) => matches!(rule.algorithm, Algorithm::Concurrency(_)),
            Self::Breaker(_) => true,
            Self::Pacing(_) => false,
        }
    }

    /// Returns the cost in flight of a state with these numbers, if it counts that.
    pub fn in_flight(&self, numbers: &[u64]) -> u64 {
        match self {
            Self::Flow(_) if self.holds() => numbers.first().copied().unwrap_or(0),
            Self::Flow(_) | Self::Breaker(_) | Self::Pacing(_) => 0,
        }
    }
}

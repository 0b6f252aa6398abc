//! How what a request claims on one route follows from what it claims on another.

use super::{Route, RouteRule};
use crate::{flow::SlotId, route::KeyPart};

/// Where a claim comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimSource {
    /// It is the other route's claim on the slot `from`, on the slot `to`.
    Other {
        /// The other route's slot.
        from: SlotId,
        /// The slot.
        to: SlotId,
    },
    /// It is that on the rule with this index, and depends on the client's address and the method
    /// only: see [`RouteRule::claim_by_client`].
    Client(usize),
    /// Every request claims this slot, at a cost of 1.
    Always(SlotId),
}

impl Route {
    /// Returns where the claims of a request on this route come from, in their order, if it claims
    /// something on `other` too. `None` if some need more of the request.
    pub fn claims_from(&self, other: &Self) -> Option<Vec<ClaimSource>> {
        let mut sources = self.rules_from(other)?;
        for (own, others) in [(self.breaker, other.breaker), (self.pacing, other.pacing)] {
            sources.extend(own.map(|to| match others {
                Some(from) => ClaimSource::Other { from, to },
                None => ClaimSource::Always(to),
            }));
        }
        Some(sources)
    }

    /// Returns the most claims that a request may have.
    pub fn most_claims(&self) -> usize {
        self.rules.len() + usize::from(self.breaker.is_some()) + usize::from(self.pacing.is_some())
    }

    fn rules_from(&self, other: &Self) -> Option<Vec<ClaimSource>> {
        // Of a rule and its alternatives one is asked, so that none is known alone.
        if self.rules.iter().chain(&other.rules).any(|rule| rule.when.is_some()) {
            let pairs = self.rules.iter().zip(&other.rules);
            let are_same = self.rules.len() == other.rules.len()
                && pairs.clone().all(|(rule, others)| rule.claims_like(others));
            let source = |(rule, others): (&RouteRule, &RouteRule)| ClaimSource::Other {
                from: others.slot,
                to: rule.slot,
            };
            return are_same.then(|| pairs.map(source).collect());
        }
        let source = |(index, rule): (usize, &RouteRule)| {
            // That in the same place has the same slot, unless an edit has changed it.
            let in_place = other.rules.get(index).into_iter();
            let mut candidates = in_place.chain(&other.rules);
            if let Some(others) = candidates.find(|others| rule.claims_like(others)) {
                return Some(ClaimSource::Other { from: others.slot, to: rule.slot });
            }
            rule.is_by_client().then_some(ClaimSource::Client(index))
        };
        self.rules.iter().enumerate().map(source).collect()
    }
}

impl RouteRule {
    /// Returns whether a request claims the same of both.
    fn claims_like(&self, other: &Self) -> bool {
        // The store's key makes other fingerprints.
        self.shared.is_none()
            && other.shared.is_none()
            && self.listeners == other.listeners
            && self.options.claims_like(&other.options)
    }

    /// Returns whether a claim depends on the client's address and the method only.
    fn is_by_client(&self) -> bool {
        let is_client = |part: &KeyPart| matches!(part, KeyPart::ClientIp { .. });
        self.when.is_none()
            && self.listeners.is_none()
            && self.priority.is_none()
            && self.plans.is_none()
            && self.except.as_ref().is_none_or(|except| except.is_by_client())
            && (self.key.is_shared() || self.key.parts().iter().all(is_client))
    }
}

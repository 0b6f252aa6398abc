//! Extra budget that an operator gives to a key for some time.
//!
//! A grant is a cost that a rule admits although it would reject it. What a grant admits is not
//! counted by the rule, so it means the same for every algorithm: until its end the key has exactly
//! so much more, and afterwards the rule goes on as if those requests had not come.

use super::{
    decision::{Claim, Key},
    time::Instant,
};

/// The most grants of a rule at once.
pub const MOST_GRANTS: usize = 64;

/// A grant in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Whose it is: [`Key::Of`], or [`Key::Shared`] for a rule without keys.
    pub key: Key,
    /// The cost that it admits in all.
    pub count: u64,
    /// The cost that is left of it.
    pub left: u64,
    /// The end of the grant.
    pub until: Instant,
}

/// The grants of a rule. Those that are spent or over are dropped when another one is added.
#[derive(Debug, Default)]
pub(super) struct Grants(Vec<Grant>);

impl Grants {
    /// Returns whether a grant admits a request that the rule would reject.
    pub(super) fn admit(&self, claim: &Claim, now: Instant) -> bool {
        let of_it = self.0.iter().find(|grant| grant.key == claim.key);
        of_it.is_some_and(|grant| now < grant.until && claim.cost <= grant.left)
    }

    pub(super) fn spend(&mut self, claim: &Claim) {
        if let Some(grant) = self.of_mut(claim.key) {
            grant.left = grant.left.saturating_sub(claim.cost);
        }
    }

    /// Gives back what a request has spent that was not admitted after all.
    pub(super) fn give_back(&mut self, claim: &Claim) {
        if let Some(grant) = self.of_mut(claim.key) {
            grant.left = grant.left.saturating_add(claim.cost).min(grant.count);
        }
    }

    /// Adds a grant in place of the key's earlier one. Returns whether there is room.
    pub(super) fn add(&mut self, grant: Grant, now: Instant) -> bool {
        self.0.retain(|other| other.key != grant.key && is_in_force(other, now));
        if self.0.len() >= MOST_GRANTS {
            return false;
        }
        self.0.push(grant);
        true
    }

    pub(super) fn in_force(&self, now: Instant) -> Vec<Grant> {
        self.0.iter().copied().filter(|grant| is_in_force(grant, now)).collect()
    }

    fn of_mut(&mut self, key: Key) -> Option<&mut Grant> {
        self.0.iter_mut().find(|grant| grant.key == key)
    }
}

fn is_in_force(grant: &Grant, now: Instant) -> bool {
    grant.left > 0 && now < grant.until
}

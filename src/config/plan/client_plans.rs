//! Numbers of a rule that depend on the client's plan.

use super::Limit;
use crate::{
    flow::{PlanKey, PlanTable},
    route::{KeySpec, Nat64, Seed, Target, low_bits},
};
use std::{fmt, net::IpAddr, sync::Arc};

/// Makes the hashes of plans' names. They are no secrets: the hash of a name only chooses numbers,
/// and every process must make the same ones.
const SEED: Seed = Seed::new([0, 0]);

/// The beginning of a plan's hash as text, before its hexadecimal digits.
const HASH: char = '#';

/// The plans of a rule.
#[derive(Debug, PartialEq, Eq)]
pub struct ClientPlans {
    /// The part of a request that names its plan.
    by: KeySpec,
    table: Arc<PlanTable>,
    /// The plans that the configuration itself has, with their names.
    named: Vec<(PlanKey, Arc<str>)>,
    /// Beside the table's levels: the quota that clients of the plan see.
    quotas: Vec<Option<Limit>>,
    /// The plans and their numbers in words.
    words: Arc<str>,
}

impl ClientPlans {
    /// Returns the plans of `table`. `named` and `words` are those of the configuration; `quotas`
    /// stand beside the table's levels.
    pub(in crate::config) const fn new(
        by: KeySpec,
        table: Arc<PlanTable>,
        named: Vec<(PlanKey, Arc<str>)>,
        quotas: Vec<Option<Limit>>,
        words: Arc<str>,
    ) -> Self {
        Self { by, table, named, quotas, words }
    }

    /// Returns the key of the plan of this name.
    pub(in crate::config) fn key_of(by: &KeySpec, name: &str, nat64: &Nat64) -> Option<PlanKey> {
        by.read(&SEED, nat64, name).ok().map(plan_key)
    }

    /// Returns the part of a request that names its plan.
    pub const fn by(&self) -> &KeySpec {
        &self.by
    }

    /// Returns the plan of a request, if the table has it.
    pub fn of(&self, target: &Target<'_>, client: IpAddr) -> Option<PlanKey> {
        let key = plan_key(self.by.fingerprint(&SEED, target, client).ok()?);
        self.table.level_of(key).map(|_| key)
    }

    /// Returns the quota that clients of a plan see; of `None`, and of a plan that the table does
    /// not have, `own`.
    pub fn quota<'q>(&'q self, plan: Option<PlanKey>, own: Option<&'q Limit>) -> Option<&'q Limit> {
        match plan.and_then(|plan| self.table.level_of(plan)) {
            Some(level) => self.quotas.get(level)?.as_ref(),
            None => own,
        }
    }

    /// Returns the place of a plan's numbers in the table.
    pub fn level(&self, plan: PlanKey) -> Option<usize> {
        self.table.level_of(plan)
    }

    /// Returns a plan as text: its name, if the configuration has it, and else its hash.
    pub fn shown(&self, plan: PlanKey) -> String {
        match self.named.iter().find(|(key, _)| *key == plan) {
            Some((_, name)) => name.to_string(),
            None => format!("{HASH}{:016x}", plan.hash()),
        }
    }

    /// Returns the plan of a text that [`shown`](Self::shown) wrote.
    pub fn read(&self, text: &str) -> Option<PlanKey> {
        let hash = text.strip_prefix(HASH).filter(|digits| digits.len() == 16);
        let hash = hash.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let by_name = || Self::key_of(&self.by, text, &Nat64::default());
        hash.map(PlanKey::new).or_else(by_name)
    }
}

/// The numbers of each plan, as in `jwt:plan: gold 1000/1m, silver 300/1m`.
impl fmt::Display for ClientPlans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.by, self.words)
    }
}

const fn plan_key(fingerprint: u128) -> PlanKey {
    PlanKey::new(low_bits(fingerprint))
}

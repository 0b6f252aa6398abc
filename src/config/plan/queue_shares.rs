//! The part that each request has in the order of a queue.

use crate::{
    flow::Sharer,
    route::{KeySpec, Nat64, PathPattern, Seed, Target, low_bits},
};
use std::{fmt, net::IpAddr, num::NonZeroU32, sync::Arc};

/// Makes the hashes of names in the configuration. They are no secrets: the hash of a name only chooses
/// its weight or its class.
const SEED: Seed = Seed::new([0, 0]);

/// The most classes of a queue.
pub(in crate::config) const MAX_CLASSES: usize = 16;

/// The part of each request in the order of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueShares {
    /// The values between which the places are shared.
    pub(in crate::config) by: Option<KeySpec>,
    pub(in crate::config) weights: Weights,
    /// The weights of values that have none of their own.
    pub(in crate::config) plans: Option<QueuePlans>,
    pub(in crate::config) classes: Option<QueueClasses>,
}

/// The weights of values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::config) struct Weights {
    /// By the hash of a value, in order.
    pub(in crate::config) by_hash: Vec<(u64, NonZeroU32)>,
    /// The same in words, as in `gold 4, silver 2`; empty without any.
    pub(in crate::config) words: Arc<str>,
}

/// The weights of a queue by plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::config) struct QueuePlans {
    pub(in crate::config) by: KeySpec,
    pub(in crate::config) weights: Weights,
}

/// The classes of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::config) struct QueueClasses {
    pub(in crate::config) by: KeySpec,
    /// The hashes of their names, the first class first.
    pub(in crate::config) hashes: Vec<u64>,
    /// The classes in words.
    pub(in crate::config) words: Arc<str>,
}

impl QueueShares {
    /// Returns the hash of a name in the configuration; `None` if no request has it.
    pub(in crate::config) fn hash_of(by: &KeySpec, name: &str, nat64: &Nat64) -> Option<u64> {
        by.read(&SEED, nat64, name).ok().map(low_bits)
    }

    /// Returns the part of a request.
    pub(in crate::config) fn of(&self, seed: &Seed, target: &Target<'_>, client: IpAddr) -> Sharer {
        let mut sharer = Sharer::default();
        if let Some(by) = &self.by {
            // Requests without a value share one part.
            sharer.key = by.fingerprint(seed, target, client).map(low_bits).unwrap_or_default();
            let own = self.weights.of(by, target, client);
            let of_plan = || {
                let QueuePlans { by, weights } = self.plans.as_ref()?;
                weights.of(by, target, client)
            };
            sharer.weight = own.or_else(of_plan).unwrap_or(NonZeroU32::MIN);
        }
        if let Some(QueueClasses { by, hashes, .. }) = &self.classes {
            let class = by.fingerprint(&SEED, target, client).map(low_bits).ok();
            let class = class.and_then(|class| hashes.iter().position(|hash| *hash == class));
            sharer.class = class.and_then(|class| u8::try_from(class).ok()).unwrap_or(u8::MAX);
        }
        sharer
    }

    /// Returns the parts of a request that it looks at.
    pub(in crate::config) fn keys(&self) -> impl Iterator<Item = &KeySpec> {
        let plans = self.plans.iter().map(|plans| &plans.by);
        self.by.iter().chain(plans).chain(self.classes.iter().map(|classes| &classes.by))
    }

    /// Returns it for a route with these paths, some of whose segments it may name.
    pub(in crate::config) fn of_paths(&self, paths: &[PathPattern]) -> Self {
        let mut of_route = self.clone();
        let Self { by, plans, classes, .. } = &mut of_route;
        let plans = plans.iter_mut().map(|plans| &mut plans.by);
        let classes = classes.iter_mut().map(|classes| &mut classes.by);
        for key in by.iter_mut().chain(plans).chain(classes) {
            *key = key.clone().of_paths(paths);
        }
        of_route
    }
}

impl Weights {
    /// Returns the weight of the value that a request has, if it has one with a weight.
    fn of(&self, by: &KeySpec, target: &Target<'_>, client: IpAddr) -> Option<NonZeroU32> {
        if self.by_hash.is_empty() {
            return None;
        }
        let hash = low_bits(by.fingerprint(&SEED, target, client).ok()?);
        let at = self.by_hash.binary_search_by_key(&hash, |(of, _)| *of).ok()?;
        self.by_hash.get(at).map(|(_, weight)| *weight)
    }
}

/// As in `fair between values of header:x-tenant (acme 4; by jwt:plan gold 2), by header:x-class interactive before batch`.
impl fmt::Display for QueueShares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        if let Some(by) = &self.by {
            write!(f, "fair between values of {by}")?;
            let own = Some(self.weights.words.to_string()).filter(|words| !words.is_empty());
            let plans = self.plans.as_ref();
            let plans = plans.map(|plans| format!("by {} {}", plans.by, plans.weights.words));
            let words: Vec<String> = own.into_iter().chain(plans).collect();
            if !words.is_empty() {
                write!(f, " ({})", words.join("; "))?;
            }
            separator = ", ";
        }
        match &self.classes {
            Some(classes) => write!(f, "{separator}by {} {}", classes.by, classes.words),
            None => Ok(()),
        }
    }
}

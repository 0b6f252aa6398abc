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
    /// By the hash of a value, in order.
    pub(in crate::config) weights: Vec<(u64, NonZeroU32)>,
    pub(in crate::config) classes: Option<QueueClasses>,
    /// The weights in words.
    pub(in crate::config) words: Arc<str>,
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
            sharer.weight = self.weight(by, target, client);
        }
        if let Some(QueueClasses { by, hashes, .. }) = &self.classes {
            let class = by.fingerprint(&SEED, target, client).map(low_bits).ok();
            let class = class.and_then(|class| hashes.iter().position(|hash| *hash == class));
            sharer.class = class.and_then(|class| u8::try_from(class).ok()).unwrap_or(u8::MAX);
        }
        sharer
    }

    fn weight(&self, by: &KeySpec, target: &Target<'_>, client: IpAddr) -> NonZeroU32 {
        if self.weights.is_empty() {
            return NonZeroU32::MIN;
        }
        let hash = by.fingerprint(&SEED, target, client).map(low_bits).ok();
        let find = |hash| self.weights.binary_search_by_key(&hash, |(of, _)| *of).ok();
        hash.and_then(find).map_or(NonZeroU32::MIN, |at| self.weights[at].1)
    }

    /// Returns the parts of a request that it looks at.
    pub(in crate::config) fn keys(&self) -> impl Iterator<Item = &KeySpec> {
        self.by.iter().chain(self.classes.iter().map(|classes| &classes.by))
    }

    /// Returns it for a route with these paths, some of whose segments it may name.
    pub(in crate::config) fn of_paths(&self, paths: &[PathPattern]) -> Self {
        let mut of_route = self.clone();
        let Self { by, classes, .. } = &mut of_route;
        for key in by.iter_mut().chain(classes.iter_mut().map(|classes| &mut classes.by)) {
            *key = key.clone().of_paths(paths);
        }
        of_route
    }
}

/// As in `fair between header:x-tenant (gold 4), by header:x-class interactive before batch`.
impl fmt::Display for QueueShares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        if let Some(by) = &self.by {
            write!(f, "fair between values of {by}{}", self.words)?;
            separator = ", ";
        }
        match &self.classes {
            Some(classes) => write!(f, "{separator}by {} {}", classes.by, classes.words),
            None => Ok(()),
        }
    }
}

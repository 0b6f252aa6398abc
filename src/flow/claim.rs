//! A request's claims on slots (Envoy: descriptors).

use core::time::Duration;

/// Identifies a slot of a gate. An edit that keeps or converts a rule keeps its slot; an added or
/// reset rule gets a new one, and a reset rule also answers claims on its previous slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub(super) u32);

/// Whose state a claim is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// The state that all share.
    Shared,
    /// The state of this fingerprint, used as it is: it must be evenly spread and beyond a client's
    /// control (a keyed hash).
    Of(u128),
    /// The request has the key several times, and is rejected for it.
    Duplicate,
    /// The request lacks the key, and is rejected for it.
    Missing,
}

/// A request's claim on one slot. A slot without a claim is not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The slot.
    pub slot: SlotId,
    /// Whose state. A rule without keys only looks for [`Key::Missing`] and [`Key::Duplicate`].
    pub key: Key,
    /// What the request costs. At zero it passes uncharged.
    pub cost: u64,
    /// How long it may wait to borrow from a coming window, if the rule has windows; zero without
    /// priority.
    pub patience: Duration,
}

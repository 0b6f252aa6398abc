//! What a request asks of a slot.

use core::time::Duration;

/// The identity of one slot in one gate. An edit that keeps or converts a rule
/// keeps its slot; a rule that is added or reset gets a new one. Claims on the one
/// that a rule was reset from still reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub(super) u32);

/// Whose state a claim is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// The one that all share.
    Shared,
    /// The one of this fingerprint, which must be evenly spread and beyond a
    /// client's control (a keyed hash): its bits are used as they are.
    Of(u128),
    /// None: the request has it several times, and is rejected for it.
    Duplicate,
    /// None: the request lacks the key, and is rejected for it.
    Missing,
}

/// A request's claim on one slot. A slot without a claim is not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The slot.
    pub slot: SlotId,
    /// Whose state. A rule without keys heeds only [`Key::Missing`] and [`Key::Duplicate`].
    pub key: Key,
    /// What the request costs. What costs nothing passes and is not charged.
    pub cost: u64,
    /// How long it may wait for a window to open from which it borrows, where the rule
    /// has windows; zero for a request without priority.
    pub patience: Duration,
}

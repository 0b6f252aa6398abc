//! A slot of a route's chain. It decides, follows edits, syncs with other gateways and shows its
//! counts.

mod keys;
mod limiter_slot;
mod observe;
mod policy;
mod retune;
mod sync;
mod transfer;

use super::{
    decision::{Claim, Decision, Key},
    keyed::{Fullest, KeySlot, Keys, Lookup},
    limiter::{End, QuotaUsage, Times, Token, Until, Usage, breaker},
    pending::Pendings,
    shared::{Delta, RemoteState, RoundTrip},
    time::Instant,
    transfer::{LateChange, StateOwner, StatePart},
};
use core::{any::Any, fmt::Debug};
pub(super) use limiter_slot::LimiterSlot;

/// A slot's decision, and the state that it used.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotAnswer {
    pub(super) decision: Decision,
    /// Where the state is, for [`Slot::on_pass`], [`Slot::on_reject`] and [`Slot::usage`].
    pub(super) lookup: Lookup,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Charge {
    pub(super) key_slot: KeySlot,
    /// What the request holds until its answer or end, if anything.
    pub(super) hold: Option<Hold>,
    /// Including the request.
    pub(super) usage: QuotaUsage,
    /// The most that may be used.
    pub(super) limit: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    pub(super) until: Until,
    pub(super) key_slot: KeySlot,
    pub(super) token: Token,
}

/// A slot with any limiter. All slots of a route are checked before any is charged, under one lock.
/// [`check`](Self::check) borrows the slot immutably, so that a rejected request leaves no trace.
pub(super) trait Slot:
    Retune + Sync + Transfers + Observe + KeyStates + Debug + Send
{
    /// Decides about `claim` at `now`, so that what is `pending` fits too. `known` is what
    /// [`Retune::prepare`] returned for it; `None` has the state looked up.
    fn check(
        &self,
        now: Instant,
        claim: &Claim,
        known: Option<KeySlot>,
        pending: &Pendings,
    ) -> SlotAnswer;

    /// Returns where the state of `claim` is, and the start of a request that passed before.
    fn due(&self, now: Instant, claim: &Claim) -> (Lookup, Instant);

    /// Returns what is used of a checked state, without the request.
    fn usage(&self, now: Instant, lookup: Lookup) -> Usage;

    /// Returns what is used of a checked state, without the request, and when more requests of this
    /// `cost` fit.
    fn usage_and_growth(&self, now: Instant, cost: u64, lookup: Lookup) -> QuotaUsage;

    /// Returns what would be used if the request were charged.
    fn usage_after(&self, times: Times, cost: u64, lookup: Lookup) -> QuotaUsage;

    /// Charges an admitted request. Writes a breaker's transition into `turn`.
    fn on_pass(
        &mut self,
        times: Times,
        cost: u64,
        lookup: Lookup,
        turn: &mut Option<breaker::Transition>,
    ) -> Charge;

    /// Charges an admitted request like [`Self::on_pass`], and returns only what it holds. Reports no
    /// transition of a breaker.
    fn charge(&mut self, times: Times, cost: u64, lookup: Lookup) -> Option<Hold>;

    /// Records that a request that was checked here was rejected.
    fn on_reject(&mut self, lookup: Lookup);

    /// Releases what a request holds at its answer or end. Returns a breaker's transition.
    fn on_done(&mut self, key_slot: KeySlot, end: &End, cost: u64) -> Option<breaker::Transition>;

    /// Returns whether requests wait here, in one queue of all clients.
    fn is_queue(&self) -> bool;

    /// Frees the place of a request that has left at `now` and would start at `start`, if all clients
    /// share one queue here.
    fn abandon(&mut self, start: Instant, now: Instant);
}

/// How a slot follows edits.
pub(super) trait Retune: Any {
    /// Takes over the limiter of `wanted` and returns true; or false, unchanged, if its algorithm
    /// or key differs. Clients' states are converted later by [`prepare`](Self::prepare) and
    /// [`catch_up`](Self::catch_up).
    fn retune(&mut self, wanted: Box<dyn Slot>, now: Instant) -> bool;

    /// Prepares a check with `key`: converts the states that it will read, and recalls a client
    /// without a place. Returns where the state of a client with a place is.
    fn prepare(&mut self, now: Instant, key: Key) -> Option<KeySlot>;

    /// Converts some states that the latest edit left. Returns whether there may be more.
    fn catch_up(&mut self, now: Instant) -> bool;
}

pub(super) trait Sync {
    /// Collects unsynced charges from state number `from` on until there are `most`. Returns the
    /// number to continue from, if that is not the end.
    fn collect(&mut self, from: u32, most: usize, into: &mut Vec<Delta>) -> Option<u32>;

    /// Adopts the store's states. Returns whether all others were forgotten because the store's
    /// clock is another one.
    fn adopt(&mut self, trip: RoundTrip, states: &[RemoteState]) -> bool;
}

/// How a slot's state moves to another process.
pub(super) trait Transfers {
    /// Exports the next parts. Returns whether there are more. No edit may come until the end.
    fn export(&mut self, now: Instant, into: &mut Vec<StatePart>) -> bool;

    /// Begins anew.
    fn end_export(&mut self);

    /// Returns the name of a state if it was exported.
    fn exported(&self, key_slot: KeySlot) -> Option<StateOwner>;

    /// Takes a part of an equal slot. Returns whether it is one.
    fn import(&mut self, now: Instant, part: StatePart) -> bool;

    /// Applies a change that another process sends.
    fn apply(&mut self, now: Instant, owner: StateOwner, change: LateChange);
}

/// What logs, metrics and `/routes` show of a slot.
pub(super) trait Observe {
    /// Returns the most that [`Usage::used`] may be.
    fn limit(&self) -> u64;

    /// Returns what is used of the shared state.
    fn shared(&self, now: Instant) -> Usage;

    fn breaker(&self, now: Instant) -> Option<breaker::BreakerStats>;

    /// Returns the number of keys of a keyed slot.
    fn keys(&self) -> Option<Keys>;
}

/// What operators see and change of single clients' states.
pub(super) trait KeyStates {
    /// Looks at some states before number `before`. Returns the number to continue from, if there
    /// are more.
    fn find_fullest(&mut self, now: Instant, before: u32, fullest: &mut Fullest) -> Option<u32>;

    /// Returns what a client has used, if it has a state of its own.
    fn usage_of(&mut self, now: Instant, key: u128) -> Option<Usage>;

    /// Gives the client a state as of one never seen.
    fn renew(&mut self, now: Instant, key: Key) -> Renewed;
}

/// The result of [`KeyStates::renew`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewed {
    /// It has the whole budget.
    Done,
    /// It had used nothing.
    Unused,
    /// It shares an overflow state with others.
    Overflowed,
}

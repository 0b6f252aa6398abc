//! A slot of a route's chain, and the four things asked of it: to decide, to follow an edit, to sync
//! with other gateways, and to show what it has counted.

mod judge;
mod limiter_slot;
mod observe;
mod retune;
mod sync;

use super::{
    breaker,
    claim::{Claim, Key},
    decision::Decision,
    keyed::{KeySlot, Keys, Lookup},
    pending::Pendings,
    shared::{Delta, RemoteState, RoundTrip},
    time::Instant,
    traits::{End, Times, Token, Until, Usage},
};
use core::{any::Any, fmt::Debug};
pub(super) use limiter_slot::LimiterSlot;

/// A slot's answer, and what it rests on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) decision: Decision,
    /// Where the state lies, for [`Slot::on_pass`], [`Slot::on_reject`] and
    /// [`Slot::usage`].
    pub(super) place: Lookup,
}

/// What charging a request came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charge {
    /// What the request holds until it is answered or has ended, if anything.
    pub(super) hold: Option<Hold>,
    /// With the request.
    pub(super) usage: Usage,
}

/// What a request holds of a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    pub(super) until: Until,
    pub(super) seat: KeySlot,
    pub(super) token: Token,
}

/// A slot, whatever its limiter.
///
/// All slots of a route are asked before any is charged, under one lock. Since
/// [`check`](Self::check) borrows the slot immutably, a request that another slot
/// rejects leaves no trace in this one.
pub(super) trait Slot: Retune + Sync + Observe + Debug + Send {
    /// Decides about `claim` from the state as of `now`, so that what is `pending` fits, too.
    fn check(&self, now: Instant, claim: &Claim, pending: &Pendings) -> Answer;

    /// Returns where the state of `claim` lies, and when it may start, which was let pass
    /// before.
    fn due(&self, now: Instant, claim: &Claim) -> (Lookup, Instant);

    /// Returns what is used at the `place` of an answer, without the request.
    fn usage(&self, now: Instant, place: Lookup) -> Usage;

    /// Charges a request that every slot let pass, at the `place` of its answer. Writes
    /// into `turn` what that has turned a breaker to, if it has.
    fn on_pass(
        &mut self,
        times: Times,
        cost: u64,
        place: Lookup,
        turn: &mut Option<breaker::Turn>,
    ) -> Charge;

    /// Notes that a request which this slot was asked about was rejected.
    fn on_reject(&mut self, place: Lookup);

    /// Notes the end, or the answer, of a request that holds something at `seat`.
    /// Returns what that has turned a breaker to.
    fn on_done(&mut self, seat: KeySlot, end: &End, cost: u64) -> Option<breaker::Turn>;
}

/// What an edit asks of a slot.
pub(super) trait Retune: Any {
    /// Goes over to the limiter of `wanted`, and returns true; or false, unchanged, if
    /// `wanted` is of another algorithm or key. Clients' own states are left to be
    /// converted: [`prepare`](Self::prepare) and [`catch_up`](Self::catch_up).
    fn retune(&mut self, wanted: Box<dyn Slot>, now: Instant) -> bool;

    /// Makes ready to decide about claims with `key`: converts what [`Slot::check`] will
    /// look at, as far as the latest edit has left that to be done, and recalls a client
    /// that has no place.
    fn prepare(&mut self, now: Instant, key: Key);

    /// Converts some of what the latest edit has left. Returns whether there may be more.
    fn catch_up(&mut self, now: Instant) -> bool;
}

/// What syncing with other gateways asks of a slot.
pub(super) trait Sync {
    /// Takes what the store does not know yet, from a place on in the order of states, until
    /// there are `most`. Returns the place to go on from, if that is not the end.
    fn collect(&mut self, from: u32, most: usize, into: &mut Vec<Delta>) -> Option<u32>;

    /// Takes over the store's states. Returns whether all else was forgotten, as the store's
    /// clock is another one.
    fn adopt(&mut self, way: RoundTrip, states: &[RemoteState]) -> bool;
}

/// What logs, metrics and `/routes` show of a slot.
pub(super) trait Observe {
    /// Returns the most that [`Usage::used`] may be.
    fn limit(&self) -> u64;

    /// Returns what is used of what all share.
    fn shared(&self, now: Instant) -> Usage;

    /// Returns what was seen, if the slot is a breaker.
    fn breaker(&self, now: Instant) -> Option<breaker::Seen>;

    /// Returns the number of keys, if the slot has keys.
    fn keys(&self) -> Option<Keys>;
}

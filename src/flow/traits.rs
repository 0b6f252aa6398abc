//! What an algorithm implements: [`Limiter`] and [`Evictable`], and one of the other traits for
//! what only a few algorithms do.

use super::{
    decision::{Decision, Outcome},
    keyed::{PastUsage, Scale},
    phase::{Seen, Turn},
    shared::{Numbers, StoreClock},
    time::Instant,
};
use core::{fmt::Debug, time::Duration};

/// What is used of a limit, and how long until nothing is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) used: u64,
    pub(super) reset: Duration,
}

/// When an admitted request arrived and when it may start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) now: Instant,
    /// When this slot let it start: `now`, but for pacing and for a loan.
    pub(super) own: Instant,
    /// The latest start that any slot asked for; `now` if none did.
    pub(super) start: Instant,
}

/// What a limiter notes with a request that it charges, and gets back when that ends.
pub(super) type Token = u32;

/// How long a request holds what it was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// Until it is answered, or has ended without an answer.
    Answer,
    /// Until it has ended.
    End,
}

/// How an admitted request ended, or how it was answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// When that is known.
    pub(super) now: Instant,
    /// When it was allowed to begin.
    pub(super) start: Instant,
    pub(super) outcome: Outcome,
    /// What [`EndOfRequest::token`] returned when it was charged.
    pub(super) token: Token,
}

/// Decides over states that it does not own.
///
/// `now` never steps back between two calls: the chain sees to that.
pub(super) trait Limiter: Debug + Send + 'static {
    /// What one client, or all of them together, have used.
    type State: Clone + Debug + Send;

    /// Returns the most that [`Usage::used`] may be.
    fn limit(&self) -> u64;

    /// Returns the state of a client never seen.
    fn fresh(&self) -> Self::State;

    /// Returns whether `state` decides, from `now` on, as a fresh one does. One that was
    /// charged after `now` does not.
    fn is_fresh(&self, state: &Self::State, now: Instant) -> bool;

    /// Decides about a request of `cost`, and changes nothing.
    fn check(&self, state: &Self::State, now: Instant, cost: u64) -> Decision;

    /// Returns what is used as of `now`.
    fn usage(&self, state: &Self::State, now: Instant) -> Usage;

    /// Charges a request that every slot let pass.
    fn charge(&self, state: &mut Self::State, times: Times, cost: u64);

    /// Turns a state of `old` into one of this limiter, without creating budget.
    fn convert(&self, old: &Self, state: &mut Self::State, now: Instant);

    /// Returns this if it lends.
    fn lends(&self) -> Option<&dyn Lends<Self::State>> {
        None
    }

    /// Returns this if it spaces requests.
    fn spaces(&self) -> Option<&dyn Spaces<Self::State>> {
        None
    }

    /// Returns this if the end of a request changes its state.
    fn end_of_request(&self) -> Option<&dyn EndOfRequest<Self::State>> {
        None
    }

    /// Returns this if it is a breaker.
    fn breaks(&self) -> Option<&dyn Breaks<Self::State>> {
        None
    }

    /// Returns this if gateways sync its states.
    fn syncs(&self) -> Option<&dyn Syncs<Self::State>> {
        None
    }

    /// As [`syncs`](Self::syncs), to be changed.
    fn syncs_mut(&mut self) -> Option<&mut dyn Syncs<Self::State>> {
        None
    }
}

/// What a full table of keys needs to know of a client's state: see `keyed.rs`.
pub(super) trait Evictable: Limiter {
    /// Returns whether `state` must not go to another client: its requests are in flight or
    /// wait, or the store does not know yet what it was charged.
    fn is_held(&self, _state: &Self::State, _now: Instant) -> bool {
        false
    }

    /// Returns how past usages are read.
    fn scale(&self, now: Instant) -> Scale {
        Scale::Time(now)
    }

    /// Returns what is kept of `state` when its place goes to another client.
    fn past_usage(&self, _state: &Self::State, _now: Instant) -> PastUsage {
        PastUsage::NONE
    }

    /// Makes `state` a fresh one, in its memory.
    fn renew(&self, state: &mut Self::State) {
        *state = self.fresh();
    }

    /// Makes `state` one that decides from `now` on as strictly as before, and as strictly as one
    /// of this past usage.
    fn absorb(&self, _state: &mut Self::State, _usage: PastUsage, _now: Instant) {}
}

/// Lets requests with priority borrow from a window to come.
pub(super) trait Lends<S> {
    /// Returns how long a request waits, which would be rejected now, until a window opens in
    /// which it fits; `None` if none does. It is charged then, as of [`Times::own`].
    fn loan(&self, state: &S, now: Instant, cost: u64) -> Option<Duration>;
}

/// Keeps starts apart.
pub(super) trait Spaces<S> {
    /// Returns when a request may start that this let pass before, and that is charged only now.
    fn due(&self, state: &S, now: Instant) -> Instant;
}

/// Takes back at the end of a request what that held.
pub(super) trait EndOfRequest<S> {
    /// Returns how long a request holds what it was charged.
    fn until(&self) -> Until;

    /// Returns what [`End::token`] will be for the request that was just charged.
    fn token(&self, _state: &S) -> Token {
        0
    }

    /// Takes back what a request of this cost held, and learns from how it ended.
    fn release(&self, state: &mut S, end: &End, cost: u64);
}

/// Opens and closes by how requests end.
pub(super) trait Breaks<S> {
    /// Takes the phase to which the latest charge or release has turned this.
    fn take_turn(&self, state: &mut S) -> Option<Turn>;

    /// Returns what is to be shown.
    fn seen(&self, state: &S, now: Instant) -> Seen;
}

/// Shares states with other gateways through a store: see `shared/synced.rs`.
pub(super) trait Syncs<S> {
    /// Takes what was charged to `state` since the last time, if anything was: what it comes to,
    /// and its numbers.
    fn take(&self, state: &mut S) -> Option<(u64, Numbers)>;

    /// Makes `state` what the store holds, and what was charged here since the last
    /// [`take`](Self::take).
    fn adopt(&self, state: &mut S, numbers: &[u64], now: Instant);

    /// Returns what is known of the store's clock.
    fn clock(&self) -> StoreClock;

    /// Replaces what is known of the store's clock.
    fn set_clock(&mut self, clock: StoreClock);
}

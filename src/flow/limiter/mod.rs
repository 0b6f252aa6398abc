//! The algorithms of flow rules, one file each.
//!
//! A file has the algorithm's configuration, its formula with source and worst case, its state, and
//! the state's conversion after an edit. A new algorithm takes a file, a line here, and the arms that
//! the compiler requires.
//!
//! Every algorithm implements `Limiter` and `Evictable`. Few implement one of the other traits,
//! which a limiter offers by a method such as `Limiter::lends`.

pub mod auto_limit;
pub mod breaker;
pub mod concurrency;
pub mod fixed_window;
pub mod leaky_bucket;
pub mod pacing;
pub mod sliding_counter;
pub mod sliding_log;
pub mod sliding_window;
pub mod token_bucket;
pub mod warm_up;

mod algorithm;
pub(super) mod by_wall;
pub(super) mod closed;
mod loans;
pub(super) mod plans;
pub(super) mod ramp;
pub(super) mod stored;
pub(super) mod synced;
mod warmth;

use super::{
    decision::{BreakerStats, Decision, Outcome, PlanKey, Transition, fitting},
    keyed::{PastUsage, Scale},
    limit_change::{AutoStats, LimitChange},
    shared::{Numbers, StoreClock},
    time::Instant,
};
pub use algorithm::{Algorithm, SyncedConfig};
use core::{cmp::Ordering, fmt::Debug, time::Duration};
use plans::Plan;
pub use plans::{PlanTable, PlannedConfig};
use serde::{Deserialize, Serialize};

/// The used part of a limit, and the time until nothing is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Cost; for pacing, the number of requests that wait. At most [`Limiter::limit`] unless an edit
    /// lowered it, or requests cost more than was reserved for them.
    pub(super) used: u64,
    /// The time until nothing is used if no request comes; for pacing, until one starts at once.
    /// Zero if that depends on requests in flight.
    pub(super) reset: Duration,
}

/// The usage, and the time until more requests of a cost fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct QuotaUsage {
    pub(super) usage: Usage,
    /// As in [`Quota`](super::decision::Quota).
    pub(super) growth: Option<Duration>,
}

/// The arrival and the start of an admitted request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) now: Instant,
    /// The start that this slot gave it: later than `now` only for pacing and loans.
    pub(super) own: Instant,
    /// The latest start that any slot asked for; `now` if none did.
    pub(super) start: Instant,
}

impl Times {
    /// Returns the times of a request that arrives and starts at `now`.
    pub(super) const fn at(now: Instant) -> Self {
        Self { now, own: now, start: now }
    }
}

/// The record of a charge, by which a part of it is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Receipt {
    /// The time of the charge; `None` if an edit has had it count elsewhere.
    pub(super) at: Option<Instant>,
    /// The limit of the state that was charged, then: an edit keeps the share of a bucket.
    pub(super) limit: u64,
}

/// A part of a charge that is given back at `now`.
#[derive(Clone, Copy, Debug)]
pub(super) struct GivenBack {
    pub(super) now: Instant,
    pub(super) receipt: Receipt,
    pub(super) cost: u64,
}

/// The difference between the cost of a request and its reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Difference {
    /// This much more was reserved.
    Less(u64),
    /// It costs this much more.
    More(u64),
}

impl Difference {
    /// Returns the difference; `None` if there is none.
    pub fn between(reserve: u64, cost: u64) -> Option<Self> {
        match cost.cmp(&reserve) {
            Ordering::Less => Some(Self::Less(reserve - cost)),
            Ordering::Equal => None,
            Ordering::Greater => Some(Self::More(cost - reserve)),
        }
    }
}

/// A number that a limiter stores with a charged request and receives back at its end.
pub(super) type Token = u32;

/// The end of the time in which a request holds its charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// Until it is answered, or has ended without an answer.
    Answer,
    /// Until it has ended.
    End,
}

/// The end of an admitted request, or the response to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// The time of the end or of the response.
    pub(super) now: Instant,
    /// The start that it was given.
    pub(super) start: Instant,
    pub(super) outcome: Outcome,
    /// The result of [`EndOfRequest::token`] from when it was charged.
    pub(super) token: Token,
}

/// Decides over states that it does not own.
///
/// The chain ensures that `now` never steps back between two calls.
pub(super) trait Limiter: Debug + Send + 'static {
    /// The usage of one client, or of all of them together.
    type State: Clone + Debug + Send;

    /// True if its states have plans: see [`plans`].
    const HAS_PLANS: bool = false;

    /// True if its limit may follow what it sees: then [`Limiter::adapts`] says whether it does.
    const ADAPTS: bool = false;

    /// Returns the most that [`Usage::used`] may be.
    fn limit(&self) -> u64;

    /// Returns the most that [`Usage::used`] of this state may be.
    fn limit_of(&self, _state: &Self::State) -> u64 {
        self.limit()
    }

    /// Returns the state of a client never seen.
    fn fresh(&self) -> Self::State;

    /// Returns whether `state` decides like a fresh one from `now` on. A state charged after `now`
    /// does not.
    fn is_fresh(&self, state: &Self::State, now: Instant) -> bool;

    /// Decides about a request of this `cost` at `now`; changes nothing. The cost is at least 1.
    fn check(&self, state: &Self::State, now: Instant, cost: u64) -> Decision;

    /// Returns what is used at `now`.
    fn usage(&self, state: &Self::State, now: Instant) -> Usage;

    /// Returns the time until one more request of this `cost` fits than fits now, when this much is
    /// `used`. `None` if there is no such time, or only the end of a request makes room.
    #[inline]
    fn growth(&self, state: &Self::State, now: Instant, cost: u64, used: u64) -> Option<Duration> {
        if self.end_of_request().is_some() || self.spaces().is_some() {
            return None;
        }
        let fits = fitting(self.limit_of(state).saturating_sub(used), cost);
        match self.check(state, now, fits.saturating_add(1).saturating_mul(cost)) {
            Decision::Pass | Decision::Delay(_) => Some(Duration::ZERO),
            Decision::Reject(reason) => reason.retry_after(),
        }
    }

    /// Returns what is used at `now`, and when more requests of this `cost` fit.
    #[inline]
    fn usage_and_growth(&self, state: &Self::State, now: Instant, cost: u64) -> QuotaUsage {
        let usage = self.usage(state, now);
        QuotaUsage { usage, growth: self.growth(state, now, cost.max(1), usage.used) }
    }

    /// Returns a number that orders states by what is used; zero if nothing is. Cheaper than
    /// [`usage`](Self::usage) where that divides.
    fn rank(&self, state: &Self::State, now: Instant) -> u128 {
        self.usage(state, now).used.into()
    }

    /// Returns a bound of [`rank`](Self::rank) at any time, without a division.
    fn most_rank(&self, _state: &Self::State) -> u128 {
        u128::MAX
    }

    /// Charges a request that every slot let pass.
    fn charge(&self, state: &mut Self::State, times: Times, cost: u64);

    /// Gives back a part of what an earlier request was charged. The part leaves the window or the
    /// entry that the request was charged to, if that still counts.
    fn give_back(&self, _state: &mut Self::State, _part: &GivenBack) {}

    /// Returns the time at which a charge at `at` counts, for its [`Receipt`].
    fn counted_at(&self, at: Instant) -> Instant {
        at
    }

    /// Returns whether an edit from `old` to this limiter has earlier charges count elsewhere: then
    /// [`give_back`](Self::give_back) does not find them any more.
    fn moves_charges(&self, _old: &Self) -> bool {
        false
    }

    /// Turns a state of `old` into one of this limiter, without creating budget.
    fn convert(&self, old: &Self, state: &mut Self::State, now: Instant);

    /// Returns the place of a plan; 0 for the rule's own numbers.
    fn plan(&self, _key: Option<PlanKey>) -> Plan {
        0
    }

    /// Returns the plan whose numbers a state has.
    fn plan_of(&self, _state: &Self::State) -> Plan {
        0
    }

    /// Converts a state to the numbers of a plan, if it has others.
    fn follow(&self, _state: &mut Self::State, _plan: Plan, _now: Instant) {}

    /// Returns `self` if it lends.
    fn lends(&self) -> Option<&dyn Lends<Self::State>> {
        None
    }

    /// Returns `self` if it spaces requests.
    fn spaces(&self) -> Option<&dyn Spaces<Self::State>> {
        None
    }

    /// Returns `self` if the end of a request changes its state.
    fn end_of_request(&self) -> Option<&dyn EndOfRequest<Self::State>> {
        None
    }

    /// Returns `self` if it is a breaker.
    fn breaks(&self) -> Option<&dyn Breaks<Self::State>> {
        None
    }

    /// Returns `self` if its limit follows what it sees.
    fn adapts(&self) -> Option<&dyn Adapts<Self::State>> {
        None
    }

    /// Returns `self` if gateways sync its states.
    fn syncs(&self) -> Option<&dyn Syncs<Self::State>> {
        None
    }

    fn syncs_mut(&mut self) -> Option<&mut dyn Syncs<Self::State>> {
        None
    }
}

/// The form of a limiter's states as numbers.
pub(super) trait Transfer: Limiter {
    /// Returns the numbers of a state, for [`Self::import`] by an equal limiter.
    fn export(&self, state: &Self::State) -> Vec<u64>;

    /// Returns the state of these numbers; `None` if they are no state's.
    fn import(&self, numbers: &[u64]) -> Option<Self::State>;

    /// Charges a request that another process has admitted.
    fn charge_elsewhere(&self, state: &mut Self::State, times: Times, cost: u64) {
        self.charge(state, times, cost);
    }

    /// Gives back a part of a charge whose request another process has settled.
    fn give_back_elsewhere(&self, state: &mut Self::State, part: &GivenBack) {
        self.give_back(state, part);
    }

    /// Ends the requests of a process that is gone, in all of this cost.
    fn abandon(&self, _state: &mut Self::State, _cost: u64) {}
}

/// The questions of a full table of keys (`keyed`) about a client's state.
pub(super) trait Evictable: Transfer {
    /// Returns whether `state` must stay with its client: its requests are in flight or wait, or
    /// the store does not know its charges yet.
    fn is_held(&self, _state: &Self::State, _now: Instant) -> bool {
        false
    }

    /// Returns how past usages are read at `now`.
    fn scale(&self, now: Instant) -> Scale {
        Scale::Time(now)
    }

    /// Returns what to remember of `state` when its place goes to another client.
    fn past_usage(&self, _state: &Self::State, _now: Instant) -> PastUsage {
        PastUsage::NONE
    }

    /// Resets `state` to a fresh one and reuses its memory.
    fn renew(&self, state: &mut Self::State) {
        *state = self.fresh();
    }

    /// Makes `state` at least as strict from `now` on as it was, and as one of this past usage.
    fn absorb(&self, _state: &mut Self::State, _usage: PastUsage, _now: Instant) {}
}

/// Lets requests with priority borrow from a coming window.
pub(super) trait Lends<S> {
    /// Returns how long a request that would be rejected now waits for a window in which it fits;
    /// `None` if none does. It is charged then, at [`Times::own`].
    fn loan(&self, state: &S, now: Instant, cost: u64) -> Option<Duration>;
}

/// Keeps starts apart.
pub(super) trait Spaces<S> {
    /// Returns the start of a request that passed before and is charged only now.
    fn due(&self, state: &S, now: Instant) -> Instant;

    /// Frees the place of a request that has left at `now` and would start at `start`.
    fn abandon(&self, state: &mut S, start: Instant, now: Instant);
}

/// Releases at the end of a request what it held.
pub(super) trait EndOfRequest<S> {
    /// Returns how long a request holds what it was charged.
    fn until(&self) -> Until;

    /// Returns the [`End::token`] of the request that was just charged.
    fn token(&self, _state: &S) -> Token {
        0
    }

    /// Releases a request of this cost, and learns from how it ended.
    fn release(&self, state: &mut S, end: &End, cost: u64);
}

/// A breaker, which opens and closes by how requests end.
pub(super) trait Breaks<S> {
    /// Takes the transition that the latest charge or release caused.
    fn take_transition(&self, state: &mut S) -> Option<Transition>;

    /// Returns what logs and metrics show.
    fn seen(&self, state: &S, now: Instant) -> BreakerStats;
}

/// A limit that follows what it sees.
pub(super) trait Adapts<S> {
    /// Notes the time, before a decision.
    fn tick(&self, state: &mut S, now: Instant);

    /// Notes whether requests wait for places from now on.
    fn set_waiting(&self, state: &mut S, now: Instant, waits: bool);

    /// Notes that a request was rejected because it found no place.
    fn on_full(&self, state: &mut S, now: Instant);

    /// Takes the latest change of the limit that no request has reported yet.
    fn take_change(&self, state: &mut S) -> Option<LimitChange>;

    /// Takes over the limit of a recorded decision.
    fn follow(&self, state: &mut S, limit: u32);

    /// Returns what logs and metrics show.
    fn stats(&self, state: &S) -> Option<AutoStats>;
}

/// The charges of a gateway to a state since its last sync, and what it has given back.
#[derive(Debug)]
pub(super) struct Unsynced {
    /// The total of the charges.
    pub(super) cost: u64,
    /// The state of a client with just these charges.
    pub(super) numbers: Numbers,
    /// The state of a client with what was given back as charges; empty if nothing was.
    pub(super) given: Numbers,
}

/// Syncs states with other gateways through a store: see [`synced`].
pub(super) trait Syncs<S> {
    /// Takes what was charged to `state` and given back since the last call, if anything.
    fn take(&self, state: &mut S) -> Option<Unsynced>;

    /// Replaces `state` by the store's, plus what was charged and less what was given back here since
    /// the last [`take`](Self::take).
    fn adopt(&self, state: &mut S, numbers: &[u64], now: Instant);

    fn clock(&self) -> StoreClock;

    fn set_clock(&mut self, clock: StoreClock);
}

/// Returns a wide number in halves, the high one first.
#[expect(clippy::cast_possible_truncation, reason = "the halves of the number")]
pub(super) const fn halves(wide: u128) -> [u64; 2] {
    [(wide >> 64) as u64, wide as u64]
}

/// Inverts [`halves`]. `None` above a bound that no state reaches, so that sums do not overflow.
pub(super) fn whole([high, low]: [u64; 2]) -> Option<u128> {
    let wide = u128::from(high) << 64 | u128::from(low);
    (wide < 1 << 120).then_some(wide)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{
        WarmUp,
        timeline::{paced, rate},
    };
    use core::time::Duration;

    #[test]
    fn a_key_takes_as_much_memory_as_the_documentation_says() {
        let rate = rate(100, 1000);
        let align = fixed_window::Align::Clock;
        let warm_up = WarmUp { period: Duration::from_secs(10), cold_factor: 3 };
        let sliding =
            |strict| Algorithm::SlidingWindow(sliding_window::Config { rate, buckets: 10, strict });
        for (algorithm, bytes) in [
            (Algorithm::LeakyBucket(leaky_bucket::Config { rate, capacity: 100 }), 56),
            (Algorithm::WarmUp(warm_up::Config { rate, burst: 100, warm_up }), 72),
            (Algorithm::SlidingLog(sliding_log::Config { rate }), 72 + 1792),
            (sliding(false), 80 + 8 * 10),
            (sliding(true), 80 + 96),
            (Algorithm::SlidingCounter(sliding_counter::Config { rate }), 56),
            (Algorithm::FixedWindow(fixed_window::Config { rate, align }), 56),
            (Algorithm::Concurrency(concurrency::Config { limit: 100 }), 48),
            (Algorithm::Pacing(paced(rate, 500, 100).pacing.expect("pacing")), 168 + 16 * 51),
        ] {
            assert_eq!(algorithm.bytes_per_key(false), bytes, "{algorithm:?}");
            let loans = match algorithm {
                Algorithm::SlidingWindow(_) => 32 + 16 * 16,
                Algorithm::FixedWindow(_) => 32 + 16 * 4,
                Algorithm::TokenBucket(_)
                | Algorithm::WarmUp(_)
                | Algorithm::LeakyBucket(_)
                | Algorithm::SlidingLog(_)
                | Algorithm::SlidingCounter(_)
                | Algorithm::Concurrency(_)
                | Algorithm::AutoConcurrency(_)
                | Algorithm::Pacing(_)
                | Algorithm::Closed
                | Algorithm::Planned(_)
                | Algorithm::Synced(_) => 0,
            };
            assert_eq!(algorithm.bytes_per_key(true), bytes + loans, "{algorithm:?}");
        }
    }
}

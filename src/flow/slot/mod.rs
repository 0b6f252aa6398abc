//! A slot of a route's chain. It decides, follows edits, syncs with other gateways and shows its
//! counts.

mod limiter_slot;
mod sync;
mod transfer;

pub(super) use limiter_slot::LimiterSlot;

use super::{
    breaker,
    decision::{Claim, Decision, Key, PlanKey},
    keyed::{Fullest, KeySlot, Keyed, Keys, Lookup},
    limit_change::{AutoStats, LimitChange},
    limiter::{
        Algorithm, Difference, End, PlannedConfig, QuotaUsage, Receipt, SyncedConfig, Times, Token,
        Until, Usage,
        by_wall::ByWall,
        closed::Closed,
        plans::{Plan, Planned},
        synced::Synced,
    },
    shared::{Delta, RemoteState, RoundTrip},
    time::{Instant, WallOffset},
    transfer::{LateChange, StateOwner, StatePart},
};
use core::{any::Any, fmt::Debug};

/// A limiter with its states, of whatever algorithm: the chain's view of a [`LimiterSlot`].
///
/// All slots of a route are checked before any is charged, under one lock. [`check`](Self::check)
/// borrows the slot immutably, so that a rejected request leaves no trace.
pub(super) trait Slot: Any + Debug + Send {
    /// Decides about `claim` at `now`, so that what is `pending` fits too. `known` is what
    /// [`Self::prepare`] returned for it; `None` has the state looked up.
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

    // A limit that finds itself. It has one state for all clients.

    /// Notes the time, before a check.
    fn tick(&mut self, now: Instant);

    /// Notes whether requests wait for places from now on.
    fn set_waiting(&mut self, now: Instant, waits: bool);

    /// Notes that a request was rejected because it found no place.
    fn on_full(&mut self, now: Instant);

    /// Takes the latest change of the limit that no request has reported yet.
    fn take_change(&mut self) -> Option<LimitChange>;

    /// Takes over the limit of a recorded decision.
    fn follow_limit(&mut self, limit: u32);

    /// Returns what logs and metrics show; `None` if the limit does not find itself.
    fn auto(&self) -> Option<AutoStats>;

    /// Releases what a request holds at its answer or end. Returns a breaker's transition.
    fn on_done(&mut self, key_slot: KeySlot, end: &End, cost: u64) -> Option<breaker::Transition>;

    /// Settles the cost of a request whose reserve was charged here. Returns where the state is that
    /// this has changed, if any, and the receipt by which another process finds the charge.
    fn settle(&mut self, now: Instant, owner: &Owner, difference: Difference) -> Option<Settled>;

    /// Returns whether requests wait here, in one queue of all clients.
    fn is_queue(&self) -> bool;

    /// Frees the place of a request that has left at `now` and would start at `start`, if all clients
    /// share one queue here.
    fn abandon(&mut self, start: Instant, now: Instant);

    // Edits.

    /// Takes over the limiter of `wanted` and returns true; or false, unchanged, if its algorithm
    /// or key differs. Clients' states are converted later by [`prepare`](Self::prepare) and
    /// [`catch_up`](Self::catch_up).
    fn retune(&mut self, wanted: Box<dyn Slot>, now: Instant) -> bool;

    /// Prepares a check with `key`: converts the states that it will read, and recalls a client
    /// without a place. Returns where the state of a client with a place is.
    fn prepare(&mut self, now: Instant, key: Key) -> Option<KeySlot>;

    /// Prepares a check like [`prepare`](Self::prepare), and converts the state that it will read to
    /// the numbers of this plan. Only rules with plans need it.
    fn prepare_plan(&mut self, now: Instant, key: Key, plan: Option<PlanKey>) -> Option<KeySlot>;

    /// Returns the plan of a state.
    fn plan_at(&self, key_slot: KeySlot) -> Plan;

    /// Returns a copy of the state of `key` for [`restore`](Self::restore), if it has a place and
    /// plans.
    fn keep(&mut self, now: Instant, key: Key) -> Option<KeptState>;

    /// Undoes what was done to a state since it was [kept](Self::keep).
    fn restore(&mut self, kept: KeptState);

    /// Converts some states that the latest edit left. Returns whether there may be more.
    fn catch_up(&mut self, now: Instant) -> bool;

    // Syncs with other gateways.

    /// Collects unsynced charges from state number `from` on until there are `most`. Returns the
    /// number to continue from, if that is not the end.
    fn collect(&mut self, from: u32, most: usize, into: &mut Vec<Delta>) -> Option<u32>;

    /// Adopts the store's states. Returns whether all others were forgotten because the store's
    /// clock is another one.
    fn adopt(&mut self, trip: RoundTrip, states: &[RemoteState]) -> bool;

    // The move to another process.

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

    // Logs, metrics and `/routes`.

    /// Returns the most that [`Usage::used`] may be, for clients without a plan.
    fn limit(&self) -> u64;

    /// Returns the most that [`Usage::used`] of a checked state may be.
    fn limit_at(&self, lookup: Lookup) -> u64;

    /// Returns the usage of the shared state.
    fn shared(&self, now: Instant) -> Usage;

    fn breaker(&self, now: Instant) -> Option<breaker::BreakerStats>;

    /// Returns the number of keys of a keyed slot.
    fn keys(&self) -> Option<Keys>;

    // Single clients, for operators.

    /// Looks at some states before number `before`. Returns the number to continue from, if there
    /// are more.
    fn find_fullest(&mut self, now: Instant, before: u32, fullest: &mut Fullest) -> Option<u32>;

    /// Returns what a client has used, and of which limit, if it has a state of its own.
    fn usage_of(&mut self, now: Instant, key: u128) -> Option<(Usage, u64)>;

    /// Gives the client a state as of one never seen.
    fn renew(&mut self, now: Instant, key: Key) -> Renewed;
}

/// A slot's decision, and the state that it used.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotAnswer {
    pub(super) decision: Decision,
    /// The place of the state, for [`Slot::on_pass`], [`Slot::on_reject`] and [`Slot::usage`].
    pub(super) lookup: Lookup,
}

/// The charge of an admitted request to one slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charge {
    pub(super) key_slot: KeySlot,
    /// The part that the request holds until its response or end, if any.
    pub(super) hold: Option<Hold>,
    /// Including the request.
    pub(super) usage: QuotaUsage,
    /// The most that may be used.
    pub(super) limit: u64,
    /// The time at which it counts.
    pub(super) at: Instant,
}

/// The state that a reserve was charged to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) key: Key,
    pub(super) plan: Option<PlanKey>,
    /// Its place when it was charged.
    pub(super) key_slot: KeySlot,
    pub(super) receipt: Receipt,
}

/// A state whose charges were settled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settled {
    pub(super) key_slot: KeySlot,
    /// That of the charge, as it is after edits.
    pub(super) receipt: Receipt,
    /// That of the excess, if there was one.
    pub(super) excess: Receipt,
}

/// A copy of a state and its place.
pub(super) struct KeptState {
    key_slot: KeySlot,
    state: Box<dyn Any>,
}

/// The part of a slot's state that a request holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    pub(super) until: Until,
    pub(super) key_slot: KeySlot,
    pub(super) token: Token,
}

/// The result of [`Slot::renew`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewed {
    /// It has the whole budget.
    Done,
    /// It had used nothing.
    Unused,
    /// It shares an overflow state with others.
    Overflowed,
}

/// Builds an unused slot.
pub(super) fn build(
    algorithm: &Algorithm,
    keyed: Option<&Keyed>,
    wall: WallOffset,
) -> Box<dyn Slot> {
    match algorithm {
        Algorithm::TokenBucket(config) => LimiterSlot::boxed(config.build(), keyed),
        Algorithm::WarmUp(config) => LimiterSlot::boxed(config.build(), keyed),
        Algorithm::LeakyBucket(config) => LimiterSlot::boxed(config.build(), keyed),
        Algorithm::SlidingLog(config) => LimiterSlot::boxed(config.build(), keyed),
        Algorithm::SlidingWindow(config) => LimiterSlot::boxed(config.build(), keyed),
        Algorithm::SlidingCounter(config) => {
            LimiterSlot::boxed(ByWall::new(config.build(), wall), keyed)
        }
        Algorithm::FixedWindow(config) => {
            LimiterSlot::boxed(ByWall::new(config.build(), wall), keyed)
        }
        Algorithm::Concurrency(config) => LimiterSlot::boxed(config.build(), keyed),
        Algorithm::AutoConcurrency(config) => LimiterSlot::boxed(config.build(), keyed),
        Algorithm::Pacing(config) => LimiterSlot::boxed(config.build(), keyed),
        Algorithm::Closed => LimiterSlot::boxed(Closed, keyed),
        Algorithm::Planned(config) => build_planned(config, keyed, wall),
        Algorithm::Synced(config) => {
            build_synced(config, keyed).unwrap_or_else(|| build(&config.here(), keyed, wall))
        }
    }
}

/// Builds the limiters of a [`PlannedConfig`]: one of the rule's own numbers, and those of plans.
macro_rules! planned {
    ($own:ident, $config:ident, $algorithm:ident) => {
        Planned::new($own.build(), $config.table(), |level| match level {
            Algorithm::$algorithm(config) => Some(config.build()),
            _ => None,
        })
    };
}

/// Builds an unused slot of a rule with plans.
fn build_planned(config: &PlannedConfig, keyed: Option<&Keyed>, wall: WallOffset) -> Box<dyn Slot> {
    match config.own() {
        Algorithm::TokenBucket(own) => {
            LimiterSlot::boxed(planned!(own, config, TokenBucket), keyed)
        }
        Algorithm::WarmUp(own) => LimiterSlot::boxed(planned!(own, config, WarmUp), keyed),
        Algorithm::LeakyBucket(own) => {
            LimiterSlot::boxed(planned!(own, config, LeakyBucket), keyed)
        }
        Algorithm::SlidingLog(own) => LimiterSlot::boxed(planned!(own, config, SlidingLog), keyed),
        Algorithm::SlidingWindow(own) => {
            LimiterSlot::boxed(planned!(own, config, SlidingWindow), keyed)
        }
        Algorithm::SlidingCounter(own) => {
            LimiterSlot::boxed(ByWall::new(planned!(own, config, SlidingCounter), wall), keyed)
        }
        Algorithm::FixedWindow(own) => {
            LimiterSlot::boxed(ByWall::new(planned!(own, config, FixedWindow), wall), keyed)
        }
        Algorithm::Concurrency(own) => {
            LimiterSlot::boxed(planned!(own, config, Concurrency), keyed)
        }
        Algorithm::Pacing(own) => LimiterSlot::boxed(planned!(own, config, Pacing), keyed),
        // Plans of plans, of a limit that finds itself, of a rule that syncs, or of a limit of 0 are never
        // made.
        own @ (Algorithm::AutoConcurrency(_)
        | Algorithm::Closed
        | Algorithm::Planned(_)
        | Algorithm::Synced(_)) => build(own, keyed, wall),
    }
}

/// Builds an unused slot; `None` for an algorithm that cannot sync, which no such configuration
/// has.
fn build_synced(config: &SyncedConfig, keyed: Option<&Keyed>) -> Option<Box<dyn Slot>> {
    let slot = match (config.whole(), &config.here()) {
        (Algorithm::TokenBucket(whole), Algorithm::TokenBucket(here)) => {
            LimiterSlot::boxed(Synced::new(whole.build(), here.build()), keyed)
        }
        (Algorithm::LeakyBucket(whole), Algorithm::LeakyBucket(here)) => {
            LimiterSlot::boxed(Synced::new(whole.build(), here.build()), keyed)
        }
        (Algorithm::SlidingWindow(whole), Algorithm::SlidingWindow(here)) => {
            LimiterSlot::boxed(Synced::new(whole.build(), here.build()), keyed)
        }
        (Algorithm::SlidingCounter(whole), Algorithm::SlidingCounter(here)) => {
            LimiterSlot::boxed(Synced::new(whole.build(), here.build()), keyed)
        }
        (Algorithm::FixedWindow(whole), Algorithm::FixedWindow(here)) => {
            LimiterSlot::boxed(Synced::new(whole.build(), here.build()), keyed)
        }
        (Algorithm::Planned(whole), Algorithm::Planned(here)) => {
            return build_synced_with_plans(whole, here, keyed);
        }
        _ => return None,
    };
    Some(slot)
}

/// Builds an unused slot of a rule with plans that syncs.
fn build_synced_with_plans(
    all: &PlannedConfig,
    part: &PlannedConfig,
    keyed: Option<&Keyed>,
) -> Option<Box<dyn Slot>> {
    let slot = match (all.own(), part.own()) {
        (Algorithm::SlidingWindow(whole), Algorithm::SlidingWindow(here)) => {
            let whole = planned!(whole, all, SlidingWindow);
            LimiterSlot::boxed(Synced::new(whole, planned!(here, part, SlidingWindow)), keyed)
        }
        (Algorithm::SlidingCounter(whole), Algorithm::SlidingCounter(here)) => {
            let whole = planned!(whole, all, SlidingCounter);
            LimiterSlot::boxed(Synced::new(whole, planned!(here, part, SlidingCounter)), keyed)
        }
        (Algorithm::FixedWindow(whole), Algorithm::FixedWindow(here)) => {
            let whole = planned!(whole, all, FixedWindow);
            LimiterSlot::boxed(Synced::new(whole, planned!(here, part, FixedWindow)), keyed)
        }
        _ => return None,
    };
    Some(slot)
}

// Pending requests passed here while the store is still asked about them. They are charged to no
// state, so a rejection elsewhere has nothing to undo. Other requests must fit beside them, which is
// tried on a copy of the state; so each still fits when it is charged.

/// The identity of a reservation in its gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ticket(pub(super) u64);

/// One slot's charge for a reserved request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) ticket: Ticket,
    pub(super) key: Key,
    /// The place of its state when it was checked.
    pub(super) lookup: Lookup,
    pub(super) cost: u64,
}

/// One slot's charges for all reserved requests.
#[derive(Debug, Default)]
pub(super) struct Pendings(Vec<Pending>);

impl Pendings {
    /// Returns whether there are none, which is usual.
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn add(&mut self, pending: Pending) {
        self.0.push(pending);
    }

    pub(super) fn remove(&mut self, ticket: Ticket) {
        if let Some(at) = self.0.iter().position(|pending| pending.ticket == ticket) {
            self.0.swap_remove(at);
        }
    }

    /// Returns the pending costs for the state that a request with `key`, found at `lookup`, uses.
    pub(super) fn of(&self, key: Key, lookup: Lookup) -> impl Iterator<Item = u64> + Clone {
        let together = self.0.iter().filter(move |pending| {
            let is_same_client = match pending.key {
                Key::Of(_) => pending.key == key,
                Key::Shared | Key::Missing | Key::Duplicate => false,
            };
            is_same_client || shares(pending.lookup) == shares(lookup) && shares(lookup).is_some()
        });
        together.map(|pending| pending.cost)
    }
}

/// Returns the state behind `lookup` if several clients share it.
fn shares(lookup: Lookup) -> Option<KeySlot> {
    match lookup {
        Lookup::At(KeySlot::Own(_)) | Lookup::New { .. } => None,
        Lookup::At(key_slot) => Some(key_slot),
    }
}

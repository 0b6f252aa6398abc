//! Limits that gateways share by syncing states periodically.
//!
//! Each gateway decides immediately with the whole numbers, from the state that it last took from
//! the store and its own charges since. These charges, the **delta**, are kept beside the state as
//! the state of a client that was fresh at the last sync. A sync merges the delta into the store's
//! state and adopts that, merged with the charges made meanwhile. No charge is lost, and after a
//! sync without traffic all gateways have the same state.
//!
//! With `K` gateways and an interval `I`, a charge is known to all others after at most `2·I`: up
//! to `I` until it is sent, up to `I` until they ask. If a gateway charges `u` to a state in that
//! time, together they pass at most
//!
//! ```text
//! what one would, and (K − 1)·u more;   u ≤ N, or burst + 2·I·N/W for a bucket
//! ```
//!
//! A bucket remembers the excess, and rejects until it has drained.
//!
//! Time is the store's. The difference is taken before the answer's way back, so that a gateway is
//! never ahead of the store, whose windows end before it opens the next. Time never steps back: it
//! stands still for an answer's duration and at most a second. A state that a faster clock counted
//! is in the future, and is forgotten.
//!
//! While the store cannot be reached, the rule is divided among the gateways (`gateways` above 1).

mod merge;

use super::{Numbers, StoreClock};
use crate::flow::{
    decision::Decision,
    keyed::{Keyed, PastUsage, Scale},
    limiter::{Algorithm, SyncedConfig},
    slot::{LimiterSlot, Slot},
    time::Instant,
    traits::{Evictable, Limiter, Syncs, Times, Usage},
    transfer::Transfer,
};
pub(super) use merge::Merge;

/// Builds an unused slot; `None` for an algorithm that cannot sync, which no such configuration
/// has.
pub(in crate::flow) fn build(
    config: &SyncedConfig,
    keyed: Option<&Keyed>,
) -> Option<Box<dyn Slot>> {
    let slot = match (config.whole(), &config.here()) {
        (Algorithm::TokenBucket(whole), Algorithm::TokenBucket(here)) => {
            Synced::boxed(whole.build(), here.build(), keyed)
        }
        (Algorithm::LeakyBucket(whole), Algorithm::LeakyBucket(here)) => {
            Synced::boxed(whole.build(), here.build(), keyed)
        }
        (Algorithm::SlidingWindow(whole), Algorithm::SlidingWindow(here)) => {
            Synced::boxed(whole.build(), here.build(), keyed)
        }
        (Algorithm::SlidingCounter(whole), Algorithm::SlidingCounter(here)) => {
            Synced::boxed(whole.build(), here.build(), keyed)
        }
        (Algorithm::FixedWindow(whole), Algorithm::FixedWindow(here)) => {
            Synced::boxed(whole.build(), here.build(), keyed)
        }
        _ => return None,
    };
    Some(slot)
}

#[derive(Debug)]
pub(super) struct Synced<F> {
    /// The limit of all gateways together, for the store's states and deltas.
    whole: F,
    /// The limit that decides here.
    here: F,
    clock: StoreClock,
}

/// A state, and the charges since the last sync.
#[derive(Debug)]
pub(super) struct SyncedState<S> {
    state: S,
    /// Unused while `cost` is zero.
    delta: S,
    cost: u64,
}

/// A copy has no unsynced charges: the original sends them.
impl<S: Clone> Clone for SyncedState<S> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), delta: self.delta.clone(), cost: 0 }
    }
}

impl<F: Merge> Synced<F> {
    fn boxed(whole: F, here: F, keyed: Option<&Keyed>) -> Box<dyn Slot> {
        LimiterSlot::boxed(Self { whole, here, clock: StoreClock::own() }, keyed)
    }
}

impl<F: Merge> Limiter for Synced<F> {
    type State = SyncedState<F::State>;

    fn limit(&self) -> u64 {
        self.here.limit()
    }

    fn fresh(&self) -> Self::State {
        SyncedState { state: self.here.fresh(), delta: self.whole.fresh(), cost: 0 }
    }

    fn is_fresh(&self, synced: &Self::State, now: Instant) -> bool {
        let now = self.clock.past(now);
        self.here.is_fresh(&synced.state, now)
            && (synced.cost == 0 || self.whole.is_over(&synced.delta, now))
    }

    fn check(&self, synced: &Self::State, now: Instant, cost: u64) -> Decision {
        self.here.check(&synced.state, self.clock.time(now), cost)
    }

    fn usage(&self, synced: &Self::State, now: Instant) -> Usage {
        self.here.usage(&synced.state, self.clock.time(now))
    }

    fn most_rank(&self, synced: &Self::State) -> u128 {
        self.here.most_rank(&synced.state)
    }

    fn rank(&self, synced: &Self::State, now: Instant) -> u128 {
        self.here.rank(&synced.state, self.clock.time(now))
    }

    fn charge(&self, synced: &mut Self::State, times: Times, cost: u64) {
        let [now, own, start] =
            [times.now, times.own, times.start].map(|time| self.clock.time(time));
        let times = Times { now, own, start };
        self.here.charge(&mut synced.state, times, cost);
        if synced.cost == 0 {
            self.whole.clear(&mut synced.delta);
        }
        self.whole.record(&mut synced.delta, &synced.state, times, cost);
        synced.cost = synced.cost.saturating_add(cost);
    }

    fn convert(&self, old: &Self, synced: &mut Self::State, now: Instant) {
        // The edit may be long ago.
        let now = self.clock.past(now);
        self.here.convert(&old.here, &mut synced.state, now);
        self.whole.convert(&old.whole, &mut synced.delta, now);
        synced.cost = self.whole.converted(&old.whole, synced.cost);
    }

    fn syncs(&self) -> Option<&dyn Syncs<Self::State>> {
        Some(self)
    }

    fn syncs_mut(&mut self) -> Option<&mut dyn Syncs<Self::State>> {
        Some(self)
    }
}

impl<F: Merge> Evictable for Synced<F> {
    fn is_held(&self, synced: &Self::State, now: Instant) -> bool {
        let now = self.clock.time(now);
        let is_sent = synced.cost == 0 || self.whole.is_over(&synced.delta, now);
        !is_sent || self.here.is_held(&synced.state, now)
    }

    fn scale(&self, now: Instant) -> Scale {
        self.here.scale(self.clock.time(now))
    }

    fn past_usage(&self, synced: &Self::State, now: Instant) -> PastUsage {
        self.here.past_usage(&synced.state, self.clock.time(now))
    }

    fn renew(&self, synced: &mut Self::State) {
        self.here.renew(&mut synced.state);
        synced.cost = 0;
    }

    fn absorb(&self, synced: &mut Self::State, usage: PastUsage, now: Instant) {
        self.here.absorb(&mut synced.state, usage, self.clock.time(now));
    }
}

/// The store has what was charged, but for what the other process sends it still.
impl<F: Merge> Transfer for Synced<F> {
    fn export(&self, synced: &Self::State) -> Vec<u64> {
        self.here.export(&synced.state)
    }

    fn import(&self, numbers: &[u64]) -> Option<Self::State> {
        Some(SyncedState { state: self.here.import(numbers)?, ..self.fresh() })
    }

    fn charge_elsewhere(&self, synced: &mut Self::State, times: Times, cost: u64) {
        let [now, own, start] =
            [times.now, times.own, times.start].map(|time| self.clock.time(time));
        self.here.charge(&mut synced.state, Times { now, own, start }, cost);
    }
}

impl<F: Merge> Syncs<SyncedState<F::State>> for Synced<F> {
    fn take(&self, synced: &mut SyncedState<F::State>) -> Option<(u64, Numbers)> {
        let cost = core::mem::take(&mut synced.cost);
        (cost > 0).then(|| (cost, self.whole.delta(&synced.delta, cost)))
    }

    fn clock(&self) -> StoreClock {
        self.clock
    }

    fn set_clock(&mut self, clock: StoreClock) {
        self.clock = clock;
    }

    fn adopt(&self, synced: &mut SyncedState<F::State>, numbers: &[u64], now: Instant) {
        // A script has no larger exact numbers; smaller ones cannot overflow below.
        if numbers.iter().any(|number| *number >= 1 << 53) {
            return;
        }
        let Some(mut state) = self.whole.parse(numbers) else { return };
        if synced.cost > 0 {
            self.whole.merge(&mut state, &synced.delta, synced.cost);
        }
        self.here.convert(&self.whole, &mut state, self.clock.time(now));
        synced.state = state;
    }
}

//! A limit that gateways hold together by exchanging states now and then.
//!
//! Each gateway decides at once, by an algorithm of this folder and with its whole numbers,
//! from the state that it last took from the store and what it has charged itself since. That second
//! part, the **delta**, lies beside the state: it is the state of a client that came fresh at the
//! last exchange. To exchange is to have the store merge the delta into the state of all, and to
//! take that over, merged with what was charged here meanwhile. So nothing that was let pass is
//! lost, and after an exchange in which nothing came all gateways have the same state.
//!
//! With `K` gateways and an interval `I`, what one of them charges is known to all others after
//! two intervals at most: up to `I` until it is sent, up to `I` until they ask. Let `u` be what
//! a gateway charges to a state in that time. Whoever lets the last of all requests pass has
//! counted all but what the others have not sent, so that together they let pass
//!
//! ```text
//! what one would, and (K − 1)·u more;   u ≤ N, or burst + 2·I·N/W for a bucket
//! ```
//!
//! A bucket remembers what was too much, and rejects for as long as it takes to drain.
//!
//! Time is the store's: what the gateway's clock lacks to that is added. It is read before the
//! store's answer comes back, so that a gateway is never ahead of the store, whose windows
//! end before it opens the next. Time does not step back: it stands still, for as long as the answer
//! took and a second at the most. What was counted by a clock that was further ahead lies in the future, and is forgotten.
//!
//! Where the store is lost, the rule is divided among the gateways (`gateways` above 1).

mod merge;

use super::{Numbers, StoreClock};
use crate::flow::{
    decision::Decision,
    keyed::{Keyed, PastUsage, Scale},
    limiter::{Algorithm, SyncedConfig},
    slot::{LimiterSlot, Slot},
    time::Instant,
    traits::{Evictable, Limiter, Syncs, Times, Usage},
};
pub(super) use merge::Merge;

/// Builds the slot, unused; `None` for an algorithm whose states cannot be merged, of which there is
/// no such configuration.
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

/// A limiter whose states are exchanged.
#[derive(Debug)]
pub(super) struct Synced<F> {
    /// What all gateways together hold to: the store's states are of this, and deltas.
    whole: F,
    /// What this one decides by.
    here: F,
    clock: StoreClock,
}

/// A state, and what was charged here since the last exchange.
#[derive(Debug)]
pub(super) struct Cell<S> {
    state: S,
    /// Means nothing while `cost` is zero.
    delta: S,
    cost: u64,
}

/// A copy begins with the same state, and has nothing to tell that the original will.
impl<S: Clone> Clone for Cell<S> {
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
    type State = Cell<F::State>;

    fn limit(&self) -> u64 {
        self.here.limit()
    }

    fn fresh(&self) -> Self::State {
        Cell { state: self.here.fresh(), delta: self.whole.fresh(), cost: 0 }
    }

    fn is_fresh(&self, cell: &Self::State, now: Instant) -> bool {
        let now = self.clock.past(now);
        self.here.is_fresh(&cell.state, now)
            && (cell.cost == 0 || self.whole.is_over(&cell.delta, now))
    }

    fn check(&self, cell: &Self::State, now: Instant, cost: u64) -> Decision {
        self.here.check(&cell.state, self.clock.time(now), cost)
    }

    fn usage(&self, cell: &Self::State, now: Instant) -> Usage {
        self.here.usage(&cell.state, self.clock.time(now))
    }

    fn charge(&self, cell: &mut Self::State, times: Times, cost: u64) {
        let [now, own, start] = [times.now, times.own, times.start].map(|it| self.clock.time(it));
        let times = Times { now, own, start };
        self.here.charge(&mut cell.state, times, cost);
        if cell.cost == 0 {
            self.whole.clear(&mut cell.delta);
        }
        self.whole.note(&mut cell.delta, &cell.state, times, cost);
        cell.cost = cell.cost.saturating_add(cost);
    }

    fn convert(&self, old: &Self, cell: &mut Self::State, now: Instant) {
        // Which may be long ago.
        let now = self.clock.past(now);
        self.here.convert(&old.here, &mut cell.state, now);
        self.whole.convert(&old.whole, &mut cell.delta, now);
        cell.cost = self.whole.converted(&old.whole, cell.cost);
    }

    fn syncs(&self) -> Option<&dyn Syncs<Self::State>> {
        Some(self)
    }

    fn syncs_mut(&mut self) -> Option<&mut dyn Syncs<Self::State>> {
        Some(self)
    }
}

impl<F: Merge> Evictable for Synced<F> {
    fn is_held(&self, cell: &Self::State, now: Instant) -> bool {
        let now = self.clock.time(now);
        let is_told = cell.cost == 0 || self.whole.is_over(&cell.delta, now);
        !is_told || self.here.is_held(&cell.state, now)
    }

    fn scale(&self, now: Instant) -> Scale {
        self.here.scale(self.clock.time(now))
    }

    fn past_usage(&self, cell: &Self::State, now: Instant) -> PastUsage {
        self.here.past_usage(&cell.state, self.clock.time(now))
    }

    fn renew(&self, cell: &mut Self::State) {
        self.here.renew(&mut cell.state);
        cell.cost = 0;
    }

    fn absorb(&self, cell: &mut Self::State, usage: PastUsage, now: Instant) {
        self.here.absorb(&mut cell.state, usage, self.clock.time(now));
    }
}

impl<F: Merge> Syncs<Cell<F::State>> for Synced<F> {
    fn take(&self, cell: &mut Cell<F::State>) -> Option<(u64, Numbers)> {
        let cost = core::mem::take(&mut cell.cost);
        (cost > 0).then(|| (cost, self.whole.delta(&cell.delta, cost)))
    }

    fn clock(&self) -> StoreClock {
        self.clock
    }

    fn set_clock(&mut self, clock: StoreClock) {
        self.clock = clock;
    }

    fn adopt(&self, cell: &mut Cell<F::State>, numbers: &[u64], now: Instant) {
        // No script can tell more exactly, and what follows needs no care for larger ones.
        if numbers.iter().any(|number| *number >= 1 << 53) {
            return;
        }
        let Some(mut state) = self.whole.told(numbers) else { return };
        if cell.cost > 0 {
            self.whole.merge(&mut state, &cell.delta, cell.cost);
        }
        self.here.convert(&self.whole, &mut state, self.clock.time(now));
        cell.state = state;
    }
}

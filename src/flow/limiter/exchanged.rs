//! A limit that gateways hold together by exchanging states now and then.
//!
//! Each gateway decides at once, by an algorithm of this folder and with its whole numbers,
//! from the state that the store told last and what it has charged itself since. That second
//! part, the **delta**, lies beside the state: it is the state of somebody who came fresh at the
//! last exchange. To exchange is to have the store merge the delta into the state of all, and to
//! take that over, merged with what was charged here meanwhile. So nothing that was let pass is
//! lost, and after an exchange in which nothing came all gateways have the same state.
//!
//! With `K` gateways and an interval `I`, what one of them charges is known to all others after
//! two intervals at most: up to `I` until it is told, up to `I` until they ask. Let `u` be what
//! a gateway charges to a state in that time. Whoever lets the last of all requests pass has
//! counted all but what the others have not told, so that together they let pass
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

use super::Algorithm;
use crate::flow::{
    decision::Decision,
    exchange::{Numbers, RoundTrip},
    keyed::{Keyed, Scale, Usage},
    rate::Rate,
    slot::{Formula, Slot, Stage, Standing, Times},
    time::{Instant, WallOffset},
};
use core::time::Duration;
pub(super) use merge::Merge;

/// How long time stands still at most, beside what an answer took, when a clock turns out to be
/// behind: more than the clocks of machines that are kept differ.
const MOST_STILL: Duration = Duration::from_secs(1);

/// An algorithm whose states gateways exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    whole: Box<Algorithm>,
    gateways: u32,
}

impl Config {
    /// Has gateways exchange the states of `whole`, which is divided among so `many` while
    /// they cannot, and else among one; `None` if its states cannot be merged.
    pub fn new(whole: Algorithm, many: u32) -> Option<Self> {
        match whole {
            Algorithm::TokenBucket(_)
            | Algorithm::LeakyBucket(_)
            | Algorithm::SlidingWindow(_)
            | Algorithm::SlidingCounter(_)
            | Algorithm::FixedWindow(_) => Some(Self { whole: Box::new(whole), gateways: many }),
            Algorithm::WarmUp(_)
            | Algorithm::SlidingLog(_)
            | Algorithm::Concurrency(_)
            | Algorithm::Pacing(_)
            | Algorithm::Exchanged(_) => None,
        }
    }

    /// Returns the algorithm that holds for all gateways together.
    pub fn whole(&self) -> &Algorithm {
        &self.whole
    }

    /// Returns the most that a gateway lets pass of one state before all others know, who exchange
    /// at this `interval`.
    pub fn most_unseen(&self, interval: Duration) -> u64 {
        let refilled = |rate: Rate, burst: u64| {
            let units = (2 * interval).as_nanos() * u128::from(rate.count());
            let refill = units / u128::from(rate.window_nanos());
            burst.saturating_add(u64::try_from(refill).unwrap_or(u64::MAX))
        };
        match &*self.whole {
            Algorithm::TokenBucket(it) => refilled(it.rate, it.burst),
            Algorithm::LeakyBucket(it) => refilled(it.rate, it.capacity),
            Algorithm::SlidingWindow(it) => it.rate.count(),
            Algorithm::SlidingCounter(it) => it.rate.count(),
            Algorithm::FixedWindow(it) => it.rate.count(),
            // Of these there is no such configuration.
            Algorithm::WarmUp(_)
            | Algorithm::SlidingLog(_)
            | Algorithm::Concurrency(_)
            | Algorithm::Pacing(_)
            | Algorithm::Exchanged(_) => 0,
        }
    }

    /// Returns the algorithm that decides here at the moment.
    pub(super) fn here(&self) -> Algorithm {
        if self.gateways > 1 { self.whole.among(self.gateways) } else { (*self.whole).clone() }
    }

    /// Returns what is divided among so many.
    pub(super) fn among(&self, gateways: u32) -> Self {
        Self { gateways, ..self.clone() }
    }

    /// Builds the slot, unused.
    pub(super) fn build(&self, keyed: Option<&Keyed>) -> Box<dyn Slot> {
        match (&*self.whole, &self.here()) {
            (Algorithm::TokenBucket(whole), Algorithm::TokenBucket(here)) => {
                Exchanged::boxed(whole.build(), here.build(), keyed)
            }
            (Algorithm::LeakyBucket(whole), Algorithm::LeakyBucket(here)) => {
                Exchanged::boxed(whole.build(), here.build(), keyed)
            }
            (Algorithm::SlidingWindow(whole), Algorithm::SlidingWindow(here)) => {
                Exchanged::boxed(whole.build(), here.build(), keyed)
            }
            (Algorithm::SlidingCounter(whole), Algorithm::SlidingCounter(here)) => {
                Exchanged::boxed(whole.build(), here.build(), keyed)
            }
            (Algorithm::FixedWindow(whole), Algorithm::FixedWindow(here)) => {
                Exchanged::boxed(whole.build(), here.build(), keyed)
            }
            // Of others there is no such configuration.
            (_, here) => here.build(keyed, WallOffset::default()),
        }
    }
}

/// A formula whose states are exchanged.
#[derive(Debug)]
pub(super) struct Exchanged<F> {
    /// What all gateways together hold to: states that are told are of this, and deltas.
    whole: F,
    /// What this one decides by.
    here: F,
    /// What the gateway's clock lacks to the store's, in nanoseconds; it may be ahead.
    lack: i64,
    /// When it was found, by the store's clock: time does not step back before that.
    least: Instant,
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

impl<F: Merge> Exchanged<F> {
    fn boxed(whole: F, here: F, keyed: Option<&Keyed>) -> Box<dyn Slot> {
        Stage::boxed(Self { whole, here, lack: 0, least: Instant::EPOCH }, keyed)
    }

    /// Returns what the store's clock tells at `now`, as far as is known, and never less than before.
    fn time(&self, now: Instant) -> Instant {
        self.past(now).max(self.least)
    }

    /// Returns what the store's clock told at `now`, which may be long ago.
    fn past(&self, now: Instant) -> Instant {
        let lack = Duration::from_nanos(self.lack.unsigned_abs());
        if self.lack < 0 { now - lack } else { now + lack }
    }
}

impl<F: Merge> Formula for Exchanged<F> {
    type State = Cell<F::State>;

    fn limit(&self) -> u64 {
        self.here.limit()
    }

    fn fresh(&self) -> Self::State {
        Cell { state: self.here.fresh(), delta: self.whole.fresh(), cost: 0 }
    }

    fn is_fresh(&self, cell: &Self::State, now: Instant) -> bool {
        let now = self.past(now);
        self.here.is_fresh(&cell.state, now)
            && (cell.cost == 0 || self.whole.is_over(&cell.delta, now))
    }

    fn check(&self, cell: &Self::State, now: Instant, cost: u64) -> Decision {
        self.here.check(&cell.state, self.time(now), cost)
    }

    fn standing(&self, cell: &Self::State, now: Instant) -> Standing {
        self.here.standing(&cell.state, self.time(now))
    }

    fn charge(&self, cell: &mut Self::State, times: Times, cost: u64) {
        let [now, own, start] = [times.now, times.own, times.start].map(|it| self.time(it));
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
        let now = self.past(now);
        self.here.convert(&old.here, &mut cell.state, now);
        self.whole.convert(&old.whole, &mut cell.delta, now);
        cell.cost = self.whole.converted(&old.whole, cell.cost);
    }

    fn inherit(&mut self, former: &Self) {
        (self.lack, self.least) = (former.lack, former.least);
    }

    fn is_held(&self, cell: &Self::State, now: Instant) -> bool {
        let now = self.time(now);
        let is_told = cell.cost == 0 || self.whole.is_over(&cell.delta, now);
        !is_told || self.here.is_held(&cell.state, now)
    }

    fn scale(&self, now: Instant) -> Scale {
        self.here.scale(self.time(now))
    }

    fn usage(&self, cell: &Self::State, now: Instant) -> Usage {
        self.here.usage(&cell.state, self.time(now))
    }

    fn renew(&self, cell: &mut Self::State) {
        self.here.renew(&mut cell.state);
        cell.cost = 0;
    }

    fn absorb(&self, cell: &mut Self::State, usage: Usage, now: Instant) {
        self.here.absorb(&mut cell.state, usage, self.time(now));
    }

    fn take(&self, cell: &mut Self::State) -> Option<(u64, Numbers)> {
        let cost = core::mem::take(&mut cell.cost);
        (cost > 0).then(|| (cost, self.whole.delta(&cell.delta, cost)))
    }

    fn set_clock(&mut self, RoundTrip { asked, given, came }: RoundTrip) -> bool {
        let before = self.time(came);
        let lack = i128::from(given.as_nanos()) - i128::from(came.as_nanos());
        // An answer that took long tells a time that is long past: that is no clock ahead.
        let is_far = self.time(asked).since(given) > MOST_STILL;
        self.lack = i64::try_from(lack).unwrap_or(0);
        self.least = if is_far { Instant::EPOCH } else { before };
        is_far
    }

    fn adopt(&self, cell: &mut Self::State, numbers: &[u64], now: Instant) {
        // No script can tell more exactly, and what follows needs no care for larger ones.
        if numbers.iter().any(|number| *number >= 1 << 53) {
            return;
        }
        let Some(mut state) = self.whole.told(numbers) else { return };
        if cell.cost > 0 {
            self.whole.merge(&mut state, &cell.delta, cell.cost);
        }
        self.here.convert(&self.whole, &mut state, self.time(now));
        cell.state = state;
    }
}

//! A limiter with its states, and how it decides.

use super::{
    Answer, Charge, Hold, Slot,
    judge::{AsOf, convert_past_usage},
};
use crate::flow::{
    breaker,
    claim::{Claim, Key},
    decision::{Decision, Reason},
    keyed::{Conversion, KeySlot, Keyed, Lookup, Table},
    pending::Pendings,
    time::Instant,
    traits::{End, Evictable, Times, Usage},
};
use core::time::Duration;
use std::sync::Arc;

/// A limiter with its states: the one implementation of [`Slot`].
#[derive(Debug)]
pub(in crate::flow) struct LimiterSlot<F: Evictable> {
    pub(super) limiter: F,
    /// What some clients' states are still of, after an edit.
    pub(super) former: Option<Former<F>>,
    pub(super) states: States<F::State>,
}

/// A limiter that an edit has replaced.
#[derive(Debug)]
pub(super) struct Former<F> {
    pub(super) limiter: F,
    /// When. States are converted as of then, however late that is done: until then
    /// nothing has touched them.
    pub(super) edited: Instant,
}

#[derive(Debug)]
pub(super) enum States<S> {
    One(S),
    Keyed { by: Arc<str>, table: Table<S> },
}

impl<F: Evictable> LimiterSlot<F> {
    /// Builds the slot, unused.
    pub(in crate::flow) fn boxed(limiter: F, keyed: Option<&Keyed>) -> Box<dyn Slot> {
        let fresh = limiter.fresh();
        let states = match keyed {
            None => States::One(fresh),
            Some(Keyed { by, max_keys }) => {
                States::Keyed { by: Arc::clone(by), table: Table::new(fresh, *max_keys) }
            }
        };
        Box::new(Self { limiter, former: None, states })
    }

    /// Has `work` done on the table of a keyed rule, given what judges its states as of `now`, and
    /// how to convert what the latest edit may have left.
    pub(super) fn on_table<T>(
        &mut self,
        now: Instant,
        work: impl FnOnce(&mut Table<F::State>, &AsOf<'_, F>, Option<&Conversion<'_, F::State>>) -> T,
    ) -> Option<T> {
        let Self { limiter, former, states } = self;
        let States::Keyed { table, .. } = states else { return None };
        let (limiter, judge) = (&*limiter, AsOf { limiter, now });
        let Some(Former { limiter: old, edited }) = former else {
            return Some(work(table, &judge, None));
        };
        let state = |state: &mut F::State| limiter.convert(old, state, *edited);
        let usage = |usage| convert_past_usage(limiter, old, usage, *edited);
        Some(work(table, &judge, Some(&Conversion { state: &state, usage: &usage })))
    }

    /// Converts the state at `seat`, if the latest edit has left that to be done.
    pub(super) fn prepare_seat(&mut self, seat: KeySlot) {
        if self.former.is_some() {
            self.on_table(Instant::EPOCH, |table, _, stale| {
                stale.map(|stale| table.prepare_seat(seat, stale.state))
            });
        }
    }

    #[inline]
    pub(super) fn find(&self, now: Instant, key: Key) -> Lookup {
        match (&self.states, key) {
            (States::Keyed { table, .. }, Key::Of(key)) => table.find(
                key,
                self.limiter.end_of_request().is_some(),
                &AsOf { limiter: &self.limiter, now },
            ),
            (States::One(_) | States::Keyed { .. }, _) => Lookup::At(KeySlot::Shared),
        }
    }
}

impl<F: Evictable> LimiterSlot<F> {
    fn decide(&self, state: &F::State, now: Instant, claim: &Claim) -> Decision {
        let decision = self.limiter.check(state, now, claim.cost);
        if claim.patience.is_zero() || !matches!(decision, Decision::Reject(Reason::Rate { .. })) {
            return decision;
        }
        let loan = self.limiter.lends().and_then(|lender| lender.loan(state, now, claim.cost));
        loan.filter(|wait| *wait <= claim.patience).map_or(decision, Decision::Delay)
    }

    fn decide_at(
        &self,
        place: Lookup,
        now: Instant,
        claim: &Claim,
        pending: &Pendings,
    ) -> Decision {
        let state = self.states.get(place);
        let decision = if pending.is_empty() {
            self.decide(state, now, claim)
        } else {
            self.decide_beside(state, now, claim.cost, pending.of(claim.key, place))
        };
        match decision {
            refused @ Decision::Reject(_) => refused,
            passes @ (Decision::Pass | Decision::Delay(_)) => {
                self.decide_by_itself(place, now, claim).unwrap_or(passes)
            }
        }
    }

    /// Returns why a client that shares a state for want of room may not start by what it has used
    /// itself, if that is so. Such a client borrows nothing: a loan would be noted in the shared
    /// state, which may have room before it starts.
    fn decide_by_itself(&self, place: Lookup, now: Instant, claim: &Claim) -> Option<Decision> {
        let States::Keyed { table, .. } = &self.states else { return None };
        match self.limiter.check(table.beside(place)?, now, claim.cost) {
            Decision::Pass | Decision::Delay(_) => None,
            refused @ Decision::Reject(_) => Some(refused),
        }
    }

    /// Decides whether a request of `cost` fits beside those that are `pending`, in
    /// whatever order they will be charged. If so it is the first, and starts before them.
    /// Nothing is lent: what is left of the next window may be theirs.
    fn decide_beside(
        &self,
        state: &F::State,
        now: Instant,
        cost: u64,
        pending: impl Iterator<Item = u64> + Clone,
    ) -> Decision {
        match self.limiter.check(state, now, cost) {
            Decision::Reject(reason) if reason.is_lasting() => return Decision::Reject(reason),
            Decision::Reject(_) | Decision::Pass | Decision::Delay(_) => {}
        }
        // It is hardest for the least of them to be the last, behind the cost of all others.
        let costs = pending.chain([cost]);
        let least = costs.clone().min().unwrap_or(cost);
        let (mut all, mut is_left_out) = (state.clone(), false);
        for cost in costs {
            if cost == least && !is_left_out {
                is_left_out = true;
                continue;
            }
            let times = Times { now, own: now, start: self.due_of(&all, now) };
            self.limiter.charge(&mut all, times, cost);
        }
        match self.limiter.check(&all, now, least) {
            Decision::Reject(reason) => Decision::Reject(reason),
            Decision::Pass | Decision::Delay(_) => match self.due_of(state, now).since(now) {
                Duration::ZERO => Decision::Pass,
                wait => Decision::Delay(wait),
            },
        }
    }

    /// Returns when a request may start that was let pass before, and that is charged only now.
    fn due_of(&self, state: &F::State, now: Instant) -> Instant {
        self.limiter.spaces().map_or(now, |limiter| limiter.due(state, now))
    }

    /// Returns where the state at `place` lies from now on, as found just before.
    pub(super) fn take_seat(&mut self, now: Instant, place: Lookup) -> KeySlot {
        self.on_table(now, |table, judge, _| table.seat(place, judge)).unwrap_or(KeySlot::Shared)
    }
}

impl<S: Clone> States<S> {
    pub(super) fn get(&self, place: Lookup) -> &S {
        match self {
            Self::One(state) => state,
            Self::Keyed { table, .. } => table.get(place),
        }
    }

    pub(super) fn get_mut(&mut self, seat: KeySlot) -> &mut S {
        match self {
            Self::One(state) => state,
            Self::Keyed { table, .. } => table.get_mut(seat),
        }
    }

    pub(super) fn shared(&self) -> &S {
        self.get(Lookup::At(KeySlot::Shared))
    }
}

impl<F: Evictable> Slot for LimiterSlot<F> {
    fn check(&self, now: Instant, claim: &Claim, pending: &Pendings) -> Answer {
        let place = self.find(now, claim.key);
        let decision = match claim {
            Claim { key: Key::Missing, .. } => Decision::Reject(Reason::MissingKey),
            Claim { key: Key::Duplicate, .. } => Decision::Reject(Reason::DuplicateKey),
            Claim { cost: 0, .. } => Decision::Pass,
            claim => self.decide_at(place, now, claim, pending),
        };
        Answer { decision, place }
    }

    fn due(&self, now: Instant, claim: &Claim) -> (Lookup, Instant) {
        let place = self.find(now, claim.key);
        let is_free = claim.cost == 0;
        (place, if is_free { now } else { self.due_of(self.states.get(place), now) })
    }

    fn usage(&self, now: Instant, place: Lookup) -> Usage {
        self.limiter.usage(self.states.get(place), now)
    }

    fn on_pass(
        &mut self,
        times: Times,
        cost: u64,
        place: Lookup,
        turn: &mut Option<breaker::Turn>,
    ) -> Charge {
        let seat = self.take_seat(times.now, place);
        let state = self.states.get_mut(seat);
        self.limiter.charge(state, times, cost);
        let usage = self.limiter.usage(state, times.now);
        if let Some(turned) = self.limiter.breaks().and_then(|breaker| breaker.take_turn(state)) {
            *turn = Some(turned);
        }
        let hold = self.limiter.end_of_request().map(|end| Hold {
            until: end.until(),
            seat,
            token: end.token(state),
        });
        Charge { hold, usage }
    }

    fn on_reject(&mut self, place: Lookup) {
        if let States::Keyed { table, .. } = &mut self.states {
            table.pass_over(place);
        }
    }

    fn on_done(&mut self, seat: KeySlot, end: &End, cost: u64) -> Option<breaker::Turn> {
        self.prepare_seat(seat);
        let state = self.states.get_mut(seat);
        if let Some(limiter) = self.limiter.end_of_request() {
            limiter.release(state, end, cost);
        }
        self.limiter.breaks()?.take_turn(state)
    }
}

//! A limiter with its states.

use super::{
    Charge, Hold, Slot, SlotAnswer,
    policy::{PolicyAt, convert_past_usage},
};
use crate::flow::{
    decision::{Claim, Decision, Key, Reason},
    keyed::{Conversion, KeySlot, Keyed, Lookup, Table},
    limiter::{End, Evictable, QuotaUsage, Times, Usage, breaker},
    pending::Pendings,
    time::Instant,
    transfer::Exporting,
};
use core::time::Duration;
use std::sync::Arc;

/// A limiter with its states: the one implementation of [`Slot`].
#[derive(Debug)]
pub(in crate::flow) struct LimiterSlot<F: Evictable> {
    pub(super) limiter: F,
    /// The limiter before the latest edit, of which some clients' states still are.
    pub(super) previous: Option<Previous<F>>,
    pub(super) states: States<F::State>,
    /// What another process has of it.
    pub(super) exporting: Exporting,
}

/// A limiter that an edit has replaced.
#[derive(Debug)]
pub(super) struct Previous<F> {
    pub(super) limiter: F,
    pub(super) edited: Instant,
}

#[derive(Debug)]
pub(super) enum States<S> {
    One(S),
    Keyed { by: Arc<str>, table: Table<S> },
}

impl<F: Evictable> LimiterSlot<F> {
    /// Builds an unused slot.
    pub(in crate::flow) fn boxed(limiter: F, keyed: Option<&Keyed>) -> Box<dyn Slot> {
        let fresh = limiter.fresh();
        let states = match keyed {
            None => States::One(fresh),
            Some(Keyed { by, max_keys }) => {
                States::Keyed { by: Arc::clone(by), table: Table::new(fresh, *max_keys) }
            }
        };
        Box::new(Self { limiter, previous: None, states, exporting: Exporting::Nothing })
    }

    /// Runs `work` on a keyed rule's table with its policy at `now` and the conversion that the
    /// latest edit may require.
    pub(super) fn on_table<T>(
        &mut self,
        now: Instant,
        work: impl FnOnce(
            &mut Table<F::State>,
            &PolicyAt<'_, F>,
            Option<&Conversion<'_, F::State>>,
        ) -> T,
    ) -> Option<T> {
        let Self { limiter, previous, states, .. } = self;
        let States::Keyed { table, .. } = states else { return None };
        let policy = PolicyAt { limiter, now };
        let limiter = &*limiter;
        let Some(Previous { limiter: old, edited }) = previous else {
            return Some(work(table, &policy, None));
        };
        let state = |state: &mut F::State| limiter.convert(old, state, *edited);
        let usage = |usage| convert_past_usage(limiter, old, usage, *edited);
        Some(work(table, &policy, Some(&Conversion { state: &state, usage: &usage })))
    }

    /// Converts a state that the latest edit left.
    pub(super) fn refresh(&mut self, key_slot: KeySlot) {
        if self.previous.is_some() {
            self.on_table(Instant::EPOCH, |table, _, stale| {
                stale.map(|stale| table.refresh(key_slot, stale.state))
            });
        }
    }

    #[inline]
    pub(super) fn find(&self, now: Instant, key: Key) -> Lookup {
        match (&self.states, key) {
            (States::Keyed { table, .. }, Key::Of(key)) => table.find(
                key,
                self.limiter.end_of_request().is_some(),
                &PolicyAt { limiter: &self.limiter, now },
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
        lookup: Lookup,
        now: Instant,
        claim: &Claim,
        pending: &Pendings,
    ) -> Decision {
        let state = self.states.get(lookup);
        let decision = if pending.is_empty() {
            self.decide(state, now, claim)
        } else {
            self.decide_beside(state, now, claim.cost, pending.of(claim.key, lookup))
        };
        match decision {
            rejected @ Decision::Reject(_) => rejected,
            passes @ (Decision::Pass | Decision::Delay(_)) => {
                self.decide_by_itself(lookup, now, claim).unwrap_or(passes)
            }
        }
    }

    /// Returns the rejection of a client in an overflow state by its own usage, if there is one.
    /// Such a client borrows nothing: the shared state may have room before the loan starts.
    fn decide_by_itself(&self, lookup: Lookup, now: Instant, claim: &Claim) -> Option<Decision> {
        let States::Keyed { table, .. } = &self.states else { return None };
        match self.limiter.check(table.beside(lookup)?, now, claim.cost) {
            Decision::Pass | Decision::Delay(_) => None,
            rejected @ Decision::Reject(_) => Some(rejected),
        }
    }

    /// Decides whether a request of `cost` fits beside the `pending` ones in any order of charges.
    /// It starts before them. Nothing is lent: the rest of the next window may be theirs.
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
        // The hardest case is the smallest one last, after the cost of all others.
        let costs = pending.chain([cost]);
        let least = costs.clone().min().unwrap_or(cost);
        let mut all = state.clone();
        let mut is_left_out = false;
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

    /// Returns the start of a request that passed before and is charged only now.
    fn due_of(&self, state: &F::State, now: Instant) -> Instant {
        self.limiter.spaces().map_or(now, |limiter| limiter.due(state, now))
    }

    /// Returns the place of a state that is about to be charged.
    #[inline]
    fn place_of(&mut self, now: Instant, lookup: Lookup) -> KeySlot {
        match lookup {
            // Usual, and nothing has to move for it.
            Lookup::At(key_slot @ (KeySlot::Shared | KeySlot::Own(_))) => key_slot,
            Lookup::At(KeySlot::Overflow(_)) | Lookup::New { .. } => self.occupy(now, lookup),
        }
    }

    /// Gives a client just found its place in the table.
    pub(super) fn occupy(&mut self, now: Instant, lookup: Lookup) -> KeySlot {
        self.on_table(now, |table, policy, _| table.occupy(lookup, policy))
            .unwrap_or(KeySlot::Shared)
    }
}

/// Takes the transition that a breaker's latest charge has made.
#[inline]
fn take_transition<F: Evictable>(limiter: &F, state: &mut F::State) -> Option<breaker::Transition> {
    limiter.breaks()?.take_transition(state)
}

/// Returns what a request that was just charged holds until its answer or end.
#[inline]
fn hold<F: Evictable>(limiter: &F, state: &F::State, key_slot: KeySlot) -> Option<Hold> {
    let end = limiter.end_of_request()?;
    Some(Hold { until: end.until(), key_slot, token: end.token(state) })
}

impl<S: Clone> States<S> {
    pub(super) fn get(&self, lookup: Lookup) -> &S {
        match self {
            Self::One(state) => state,
            Self::Keyed { table, .. } => table.get(lookup),
        }
    }

    pub(super) fn get_mut(&mut self, key_slot: KeySlot) -> &mut S {
        match self {
            Self::One(state) => state,
            Self::Keyed { table, .. } => table.get_mut(key_slot),
        }
    }

    pub(super) fn shared(&self) -> &S {
        self.get(Lookup::At(KeySlot::Shared))
    }
}

impl<F: Evictable> Slot for LimiterSlot<F> {
    fn check(
        &self,
        now: Instant,
        claim: &Claim,
        known: Option<KeySlot>,
        pending: &Pendings,
    ) -> SlotAnswer {
        let lookup = known.map_or_else(|| self.find(now, claim.key), Lookup::At);
        let decision = match claim {
            Claim { key: Key::Missing, .. } => Decision::Reject(Reason::MissingKey),
            Claim { key: Key::Duplicate, .. } => Decision::Reject(Reason::DuplicateKey),
            Claim { cost: 0, .. } => Decision::Pass,
            claim => self.decide_at(lookup, now, claim, pending),
        };
        SlotAnswer { decision, lookup }
    }

    fn due(&self, now: Instant, claim: &Claim) -> (Lookup, Instant) {
        let lookup = self.find(now, claim.key);
        let is_free = claim.cost == 0;
        (lookup, if is_free { now } else { self.due_of(self.states.get(lookup), now) })
    }

    fn usage(&self, now: Instant, lookup: Lookup) -> Usage {
        self.limiter.usage(self.states.get(lookup), now)
    }

    fn usage_and_growth(&self, now: Instant, cost: u64, lookup: Lookup) -> QuotaUsage {
        self.limiter.usage_and_growth(self.states.get(lookup), now, cost)
    }

    fn usage_after(&self, times: Times, cost: u64, lookup: Lookup) -> QuotaUsage {
        let mut state = match &self.states {
            States::One(state) => state.clone(),
            States::Keyed { table, .. } => {
                table.copy_to_charge(lookup, &PolicyAt { limiter: &self.limiter, now: times.now })
            }
        };
        self.limiter.charge(&mut state, times, cost);
        self.limiter.usage_and_growth(&state, times.now, cost)
    }

    fn on_pass(
        &mut self,
        times: Times,
        cost: u64,
        lookup: Lookup,
        turn: &mut Option<breaker::Transition>,
    ) -> Charge {
        let key_slot = self.place_of(times.now, lookup);
        let state = self.states.get_mut(key_slot);
        self.limiter.charge(state, times, cost);
        let usage = self.limiter.usage_and_growth(state, times.now, cost);
        if let Some(turned) = take_transition(&self.limiter, state) {
            *turn = Some(turned);
        }
        let hold = hold(&self.limiter, state, key_slot);
        Charge { key_slot, hold, usage, limit: self.limiter.limit() }
    }

    fn charge(&mut self, times: Times, cost: u64, lookup: Lookup) -> Option<Hold> {
        let key_slot = self.place_of(times.now, lookup);
        let state = self.states.get_mut(key_slot);
        self.limiter.charge(state, times, cost);
        _ = take_transition(&self.limiter, state);
        hold(&self.limiter, state, key_slot)
    }

    fn on_reject(&mut self, lookup: Lookup) {
        if let States::Keyed { table, .. } = &mut self.states {
            table.on_reject(lookup);
        }
    }

    fn on_done(&mut self, key_slot: KeySlot, end: &End, cost: u64) -> Option<breaker::Transition> {
        self.refresh(key_slot);
        let state = self.states.get_mut(key_slot);
        if let Some(limiter) = self.limiter.end_of_request() {
            limiter.release(state, end, cost);
        }
        self.limiter.breaks()?.take_transition(state)
    }

    fn is_queue(&self) -> bool {
        self.limiter.spaces().is_some() && matches!(self.states, States::One(_))
    }

    fn abandon(&mut self, start: Instant, now: Instant) {
        if let (Some(limiter), States::One(state)) = (self.limiter.spaces(), &mut self.states) {
            limiter.abandon(state, start, now);
        }
    }
}

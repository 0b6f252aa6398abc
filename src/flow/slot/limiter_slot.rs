//! A limiter with its states.

use super::{Charge, Hold, KeptState, Owner, Pendings, Renewed, Settled, Slot, SlotAnswer};
use crate::flow::{
    breaker,
    decision::{Claim, Decision, Key, PlanKey, Reason},
    keyed::{
        Conversion, Fullest, KeySlot, Keyed, Keys, Lookup, PastUsage, Scale, StatePolicy, Table,
    },
    limit_change::{AutoStats, LimitChange},
    limiter::{
        Adapts, Difference, End, Evictable, GivenBack, QuotaUsage, Receipt, Times, Unsynced, Usage,
        plans::Plan,
    },
    shared::{Delta, RemoteState, RoundTrip, StoreClock},
    time::Instant,
    transfer::{Exporting, LateChange, StateOwner, StatePart},
};
use core::{any::Any, time::Duration};
use std::sync::Arc;

/// States to read in one call, most of which are unchanged: a few microseconds under the gate's
/// lock.
const READ_LIMIT: u32 = 512;

/// States to look at under one lock: about a microsecond.
const STEP: u32 = 128;

/// The same while states are converted that an edit left.
const STEP_CONVERTING: u32 = 32;

/// A limiter with its states: the one implementation of [`Slot`].
#[derive(Debug)]
pub(in crate::flow) struct LimiterSlot<F: Evictable> {
    pub(super) limiter: F,
    /// The limiter before the latest edit, of which some clients' states still are.
    pub(super) previous: Option<Previous<F>>,
    pub(super) states: States<F::State>,
    /// The part that another process has of it.
    pub(super) exporting: Exporting,
    /// The latest edit that had earlier charges count elsewhere.
    moved: Option<Instant>,
    /// The plan of a client without a place, while a check is prepared for it.
    newcomer_plan: Plan,
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
        Box::new(Self {
            limiter,
            previous: None,
            states,
            exporting: Exporting::Nothing,
            moved: None,
            newcomer_plan: 0,
        })
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
        let Self { limiter, previous, states, newcomer_plan, .. } = self;
        let States::Keyed { table, .. } = states else { return None };
        let policy = PolicyAt { limiter, now, plan: *newcomer_plan };
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
                &PolicyAt { limiter: &self.limiter, now, plan: 0 },
            ),
            (States::One(_) | States::Keyed { .. }, _) => Lookup::At(KeySlot::Shared),
        }
    }
}

impl<F: Evictable> LimiterSlot<F> {
    /// Runs `work` on a limit that finds itself.
    #[inline]
    fn adapt<T>(
        &mut self,
        work: impl FnOnce(&dyn Adapts<F::State>, &mut F::State) -> T,
    ) -> Option<T> {
        let limiter = self.limiter.adapts()?;
        Some(work(limiter, self.states.get_mut(KeySlot::Shared)))
    }

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

    /// Returns where to settle the cost of a request, after [`Slot::prepare`]; `None` if nothing that
    /// was charged there is to be found any more.
    fn place_to_settle(
        &mut self,
        now: Instant,
        owner: &Owner,
        difference: Difference,
    ) -> Option<KeySlot> {
        let lookup = self.find(now, owner.key);
        let States::Keyed { table, .. } = &self.states else { return Some(KeySlot::Shared) };

        if let Difference::Less(_) = difference {
            let is_own = matches!(owner.key_slot, KeySlot::Own(_));
            let is_shared = matches!(lookup, Lookup::At(KeySlot::Overflow(_)));
            // A client that was evicted has charged nothing to the state that it shares since.
            if table.is_unknown(lookup) || (is_own && is_shared) {
                return None;
            }
        }
        Some(self.place_of(now, lookup))
    }

    /// Returns a receipt as it is after edits.
    fn known_receipt(&self, receipt: Receipt) -> Receipt {
        let is_moved = |at: Instant| self.moved.is_some_and(|moved| at <= moved);
        Receipt { at: receipt.at.filter(|at| !is_moved(*at)), ..receipt }
    }

    /// Settles a difference in a state.
    fn settle_state(
        limiter: &F,
        state: &mut F::State,
        now: Instant,
        receipt: Receipt,
        difference: Difference,
    ) {
        match difference {
            Difference::More(cost) => limiter.charge(state, Times::at(now), cost),
            Difference::Less(cost) => {
                limiter.give_back(state, &GivenBack { now, receipt, cost });
            }
        }
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
            States::Keyed { table, .. } => table.copy_to_charge(
                lookup,
                &PolicyAt { limiter: &self.limiter, now: times.now, plan: 0 },
            ),
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
        let at = self.limiter.counted_at(times.own);
        Charge { key_slot, hold, usage, limit: self.limiter.limit_of(state), at }
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

    fn tick(&mut self, now: Instant) {
        self.adapt(|limiter, state| limiter.tick(state, now));
    }

    fn set_waiting(&mut self, now: Instant, waits: bool) {
        self.adapt(|limiter, state| limiter.set_waiting(state, now, waits));
    }

    fn on_full(&mut self, now: Instant) {
        self.adapt(|limiter, state| limiter.on_full(state, now));
    }

    fn take_change(&mut self) -> Option<LimitChange> {
        self.adapt(|limiter, state| limiter.take_change(state))?
    }

    fn follow_limit(&mut self, limit: u32) {
        self.adapt(|limiter, state| limiter.follow(state, limit));
    }

    fn auto(&self) -> Option<AutoStats> {
        self.limiter.adapts()?.stats(self.states.shared())
    }

    fn on_done(&mut self, key_slot: KeySlot, end: &End, cost: u64) -> Option<breaker::Transition> {
        self.refresh(key_slot);
        let state = self.states.get_mut(key_slot);
        if let Some(limiter) = self.limiter.end_of_request() {
            limiter.release(state, end, cost);
        }
        self.limiter.breaks()?.take_transition(state)
    }

    fn settle(&mut self, now: Instant, owner: &Owner, difference: Difference) -> Option<Settled> {
        // What requests hold until their end is not settled.
        if self.limiter.end_of_request().is_some() || self.limiter.spaces().is_some() {
            return None;
        }
        self.newcomer_plan = self.limiter.plan(owner.plan);
        self.prepare(now, owner.key);
        self.newcomer_plan = 0;
        let key_slot = self.place_to_settle(now, owner, difference)?;
        self.refresh(key_slot);

        let receipt = self.known_receipt(owner.receipt);
        let state = self.states.get_mut(key_slot);
        Self::settle_state(&self.limiter, state, now, receipt, difference);
        let at = Some(self.limiter.counted_at(now));
        let excess = Receipt { at, limit: self.limiter.limit_of(state) };
        Some(Settled { key_slot, receipt, excess })
    }

    fn is_queue(&self) -> bool {
        self.limiter.spaces().is_some() && matches!(self.states, States::One(_))
    }

    fn abandon(&mut self, start: Instant, now: Instant) {
        if let (Some(limiter), States::One(state)) = (self.limiter.spaces(), &mut self.states) {
            limiter.abandon(state, start, now);
        }
    }

    fn retune(&mut self, wanted: Box<dyn Slot>, now: Instant) -> bool {
        let Ok(wanted) = (wanted as Box<dyn Any>).downcast::<Self>() else { return false };
        // After this one previous limiter is enough.
        while self.catch_up(now) {}

        let Self { mut limiter, states, .. } = *wanted;
        if let (Some(wanted), Some(previous)) = (limiter.syncs_mut(), self.limiter.syncs()) {
            wanted.set_clock(previous.clock());
        }

        let convert = |state: &mut F::State| limiter.convert(&self.limiter, state, now);
        match (&mut self.states, states) {
            (States::One(state), States::One(_)) => convert(state),
            (States::Keyed { by, table }, States::Keyed { by: same, table: wanted })
                if *by == same =>
            {
                table.retune(&wanted, convert);
            }
            (States::One(_) | States::Keyed { .. }, _) => return false,
        }

        if limiter.moves_charges(&self.limiter) {
            self.moved = Some(limiter.counted_at(now));
        }
        let previous = core::mem::replace(&mut self.limiter, limiter);
        self.previous = Some(Previous { limiter: previous, edited: now });
        true
    }

    fn prepare(&mut self, now: Instant, key: Key) -> Option<KeySlot> {
        let Key::Of(key) = key else { return None };
        self.on_table(now, |table, policy, stale| table.prepare(key, policy, stale))?
    }

    fn prepare_plan(&mut self, now: Instant, key: Key, plan: Option<PlanKey>) -> Option<KeySlot> {
        let plan = self.limiter.plan(plan);
        self.newcomer_plan = plan;
        let known = self.prepare(now, key);
        self.newcomer_plan = 0;

        let Self { limiter, states, .. } = self;
        let read = match (&mut *states, known, key) {
            (States::Keyed { table, .. }, None, Key::Of(key)) => table.overflow_mut(key),
            (states, known, _) => Some(states.get_mut(known.unwrap_or(KeySlot::Shared))),
        };
        if let Some(state) = read {
            limiter.follow(state, plan, now);
        }
        known
    }

    fn plan_at(&self, key_slot: KeySlot) -> Plan {
        if F::HAS_PLANS { self.limiter.plan_of(self.states.get(Lookup::At(key_slot))) } else { 0 }
    }

    fn keep(&mut self, now: Instant, key: Key) -> Option<KeptState> {
        // A copy of a state that syncs would lose charges; its numbers are the same for all plans.
        let differs = F::HAS_PLANS || self.limiter.adapts().is_some();
        if !differs || self.limiter.syncs().is_some() {
            return None;
        }
        let key_slot = match key {
            Key::Of(_) if matches!(self.states, States::Keyed { .. }) => self.prepare(now, key)?,
            Key::Of(_) | Key::Shared | Key::Missing | Key::Duplicate => KeySlot::Shared,
        };
        let state = self.states.get(Lookup::At(key_slot)).clone();
        Some(KeptState { key_slot, state: Box::new(state) })
    }

    fn restore(&mut self, kept: KeptState) {
        if let Ok(state) = kept.state.downcast::<F::State>() {
            *self.states.get_mut(kept.key_slot) = *state;
        }
    }

    fn catch_up(&mut self, now: Instant) -> bool {
        let more = self.on_table(now, |table, policy, stale| {
            stale.is_some_and(|stale| table.catch_up(policy, stale))
        });
        let more = more.unwrap_or(false);
        if !more {
            self.previous = None;
        }
        more
    }

    fn collect(&mut self, from: u32, most: usize, into: &mut Vec<Delta>) -> Option<u32> {
        self.limiter.syncs()?;

        let to = from.saturating_add(READ_LIMIT);
        for at in from..to {
            if into.len() >= most {
                return Some(at);
            }
            let (key_slot, name) = self.states.nth(at)?;
            self.refresh(key_slot);
            let taken = self.limiter.syncs()?.take(self.states.get_mut(key_slot));
            into.extend(taken.map(|Unsynced { cost, numbers, given }| Delta {
                name,
                cost,
                numbers,
                given,
            }));
        }
        Some(to)
    }

    fn adopt(&mut self, trip: RoundTrip, states: &[RemoteState]) -> bool {
        let now = trip.came;
        let Some(limiter) = self.limiter.syncs_mut() else { return false };
        let (clock, has_forgotten) = limiter.clock().learn(trip);
        limiter.set_clock(clock);

        if has_forgotten {
            self.states.forget(self.limiter.fresh());
        }

        for RemoteState { name, numbers } in states {
            if let Some(key_slot) = self.slot_of(now, *name, numbers) {
                let state = self.states.get_mut(key_slot);
                if let Some(limiter) = self.limiter.syncs() {
                    limiter.adopt(state, numbers, now);
                }
            }
        }
        has_forgotten
    }

    fn export(&mut self, now: Instant, into: &mut Vec<StatePart>) -> bool {
        match self.exporting {
            Exporting::Nothing => {
                while self.catch_up(now) {}
                self.exporting = Exporting::Others(0);
            }
            Exporting::Others(next) => self.exporting = self.export_others(next, into),
            Exporting::Clients(next) => self.exporting = self.export_clients(next, into),
            Exporting::Summary(next) => {
                let policy = PolicyAt { limiter: &self.limiter, now, plan: 0 };
                let States::Keyed { table, .. } = &self.states else {
                    self.exporting = Exporting::Done;
                    return false;
                };
                let (used, more, cells) = table.summary(next, &policy);
                if !used.is_empty() {
                    into.push(StatePart::Summary { cells, used });
                }
                self.exporting = more.map_or(Exporting::Done, Exporting::Summary);
            }
            Exporting::Done => {}
        }
        self.exporting != Exporting::Done
    }

    fn end_export(&mut self) {
        self.exporting = Exporting::Nothing;
    }

    fn exported(&self, key_slot: KeySlot) -> Option<StateOwner> {
        if !self.exporting.has(key_slot) {
            return None;
        }
        Some(match (key_slot, &self.states) {
            (KeySlot::Own(at), States::Keyed { table, .. }) => StateOwner::of_key(table.key_of(at)),
            (KeySlot::Overflow(at), _) => StateOwner::Overflow(at),
            (KeySlot::Shared | KeySlot::Own(_), _) => StateOwner::All,
        })
    }

    fn import(&mut self, now: Instant, part: StatePart) -> bool {
        match part {
            StatePart::State(owner, numbers) => self.import_state(owner, &numbers),
            StatePart::Summary { cells, used } => {
                let import = self
                    .on_table(now, |table, policy, _| table.import_summary(cells, &used, policy));
                import.unwrap_or(false)
            }
            StatePart::Hand(hand) => {
                self.on_table(now, |table, _, _| table.set_hand(hand)).is_some()
            }
            // The chain's.
            StatePart::Learned(_) | StatePart::Bans(_) => false,
            StatePart::StoreClock(offset, least) => match self.limiter.syncs_mut() {
                Some(limiter) => {
                    limiter.set_clock(StoreClock::of_numbers(offset, least));
                    true
                }
                None => false,
            },
        }
    }

    fn apply(&mut self, now: Instant, owner: StateOwner, change: LateChange) {
        let Some(key_slot) = self.key_slot(now, owner, change) else { return };
        self.refresh(key_slot);

        let state = self.states.get_mut(key_slot);
        match change {
            LateChange::Charge { own, start, cost, plan, .. } => {
                let times = Times { now, own: own.max(now), start: start.max(now) };
                self.limiter.follow(state, plan, now);
                self.limiter.charge_elsewhere(state, times, cost);
            }
            LateChange::Release { start, outcome, token, cost, .. } => {
                let end = LateChange::end(now, start, outcome, token);
                if let Some(limiter) = self.limiter.end_of_request() {
                    limiter.release(state, &end, cost);
                }
            }
            LateChange::Leave { start, .. } => {
                if let Some(limiter) = self.limiter.spaces() {
                    limiter.abandon(state, start, now);
                }
            }
            LateChange::Settle { at, limit, difference, .. } => {
                let receipt = self.known_receipt(Receipt { at, limit });
                let state = self.states.get_mut(key_slot);
                match difference {
                    Difference::More(cost) => {
                        self.limiter.charge_elsewhere(state, Times::at(now), cost);
                    }
                    Difference::Less(cost) => {
                        let part = GivenBack { now, receipt, cost };
                        self.limiter.give_back_elsewhere(state, &part);
                    }
                }
            }
            LateChange::Abandon { cost } => self.limiter.abandon(state, cost),
            // The chain's.
            LateChange::Ban { .. } | LateChange::Lent => {}
        }
    }

    fn limit(&self) -> u64 {
        if F::ADAPTS { self.limiter.limit_of(self.states.shared()) } else { self.limiter.limit() }
    }

    fn limit_at(&self, lookup: Lookup) -> u64 {
        if F::HAS_PLANS || F::ADAPTS {
            self.limiter.limit_of(self.states.get(lookup))
        } else {
            self.limiter.limit()
        }
    }

    fn shared(&self, now: Instant) -> Usage {
        self.limiter.usage(self.states.shared(), now)
    }

    fn breaker(&self, now: Instant) -> Option<breaker::BreakerStats> {
        Some(self.limiter.breaks()?.seen(self.states.shared(), now))
    }

    fn keys(&self) -> Option<Keys> {
        match &self.states {
            States::One(_) => None,
            States::Keyed { table, .. } => Some(table.keys()),
        }
    }

    fn find_fullest(&mut self, now: Instant, before: u32, fullest: &mut Fullest) -> Option<u32> {
        let is_converting = self.previous.is_some();
        let States::Keyed { table, .. } = &self.states else { return None };

        // From the last one: what came late is often fuller, and each key that is fuller than those
        // before it takes a place among the fullest.
        let end = table.len().min(before);
        let start = end.saturating_sub(if is_converting { STEP_CONVERTING } else { STEP });

        for at in (start..end).rev() {
            if is_converting {
                self.refresh(KeySlot::Own(at));
            }
            let States::Keyed { table, .. } = &self.states else { return None };
            let (key, state) = table.client(at);
            if self.limiter.most_rank(state) > fullest.least() {
                fullest.offer(self.limiter.rank(state, now), key);
            }
        }

        (start > 0).then_some(start)
    }

    fn usage_of(&mut self, now: Instant, key: u128) -> Option<(Usage, u64)> {
        self.prepare(now, Key::Of(key));
        let lookup = self.find(now, Key::Of(key));
        let is_own = matches!(lookup, Lookup::At(KeySlot::Own(_)));
        let state = self.states.get(lookup);
        is_own.then(|| (self.limiter.usage(state, now), self.limiter.limit_of(state)))
    }

    fn renew(&mut self, now: Instant, key: Key) -> Renewed {
        self.prepare(now, key);
        let lookup = self.find(now, key);

        match (lookup, &self.states) {
            (Lookup::At(KeySlot::Overflow(_)), _) => return Renewed::Overflowed,
            (lookup, States::Keyed { table, .. }) if table.is_unknown(lookup) => {
                return Renewed::Unused;
            }
            (Lookup::At(_) | Lookup::New { .. }, _) => {}
        }

        if self.limiter.is_fresh(self.states.get(lookup), now) {
            return Renewed::Unused;
        }

        let key_slot = self.occupy(now, lookup);
        self.limiter.renew(self.states.get_mut(key_slot));
        Renewed::Done
    }
}

/// Converts a past usage of `old` to one of `limiter`, through a state.
fn convert_past_usage<F: Evictable>(
    limiter: &F,
    old: &F,
    usage: PastUsage,
    edited: Instant,
) -> PastUsage {
    if old.scale(edited).weight(usage) == 0 {
        return PastUsage::NONE;
    }
    let mut state = old.fresh();
    old.absorb(&mut state, usage, edited);
    limiter.convert(old, &mut state, edited);
    limiter.past_usage(&state, edited)
}

/// A limiter at an instant.
pub(super) struct PolicyAt<'a, F> {
    pub(super) limiter: &'a F,
    now: Instant,
    /// The plan of states that are renewed.
    plan: Plan,
}

impl<F: Evictable> StatePolicy<F::State> for PolicyAt<'_, F> {
    fn is_held(&self, state: &F::State) -> bool {
        self.limiter.is_held(state, self.now)
    }

    fn is_fresh(&self, state: &F::State) -> bool {
        self.limiter.is_fresh(state, self.now)
    }

    fn scale(&self) -> Scale {
        self.limiter.scale(self.now)
    }

    fn past_usage(&self, state: &F::State) -> PastUsage {
        self.limiter.past_usage(state, self.now)
    }

    fn renew(&self, state: &mut F::State) {
        self.limiter.renew(state);
        if F::HAS_PLANS {
            self.limiter.follow(state, self.plan, self.now);
        }
    }

    fn absorb(&self, state: &mut F::State, usage: PastUsage) {
        self.limiter.absorb(state, usage, self.now);
    }
}

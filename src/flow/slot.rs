//! One stage of admission: a formula and the states it decides from.

mod exchange;
mod judge;

use super::{
    breaker,
    decision::{Decision, Outcome, Reason},
    exchange::{Delta, Numbers, RoundTrip, Told},
    keyed::{Conversion, Keyed, Keys, Place, Scale, Seat, Table, Usage},
    pending::Pendings,
    time::Instant,
};
use core::{any::Any, fmt::Debug, time::Duration};
use judge::{AsOf, convert_usage};
use std::sync::Arc;

/// The identity of one slot in one gate. An edit that keeps or converts a rule
/// keeps its slot; a rule that is added or reset gets a new one. Claims on the one
/// that a rule was reset from still reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub(super) u32);

/// Whose state a claim is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// The one that all share.
    Shared,
    /// The one of this fingerprint, which must be evenly spread and beyond a
    /// client's control (a keyed hash): its bits are used as they are.
    Of(u128),
    /// None: the request has it several times, and is rejected for it.
    Duplicate,
    /// None: the request lacks the key, and is rejected for it.
    Missing,
}

/// A request's claim on one slot. A slot without a claim is not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The slot.
    pub slot: SlotId,
    /// Whose state. A rule without keys heeds only [`Key::Missing`] and [`Key::Duplicate`].
    pub key: Key,
    /// What the request costs. What costs nothing passes and is not charged.
    pub cost: u64,
    /// How long it may wait for a window to open from which it borrows, where the rule
    /// has windows; zero for a request without priority.
    pub patience: Duration,
}

/// A slot's answer, and what it rests on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) decision: Decision,
    /// Where the state lies, for [`Slot::on_pass`], [`Slot::on_reject`] and
    /// [`Slot::standing`].
    pub(super) place: Place,
}

/// What charging a request came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charge {
    /// What must be told again when the request has ended or is answered, if it must.
    pub(super) hold: Option<Stake>,
    /// With the request.
    pub(super) standing: Standing,
}

/// What is used, and how long until nothing is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) used: u64,
    pub(super) reset: Duration,
}

/// When an admitted request arrived and when it may start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) now: Instant,
    /// When this slot let it start: `now`, but for pacing and for a loan.
    pub(super) own: Instant,
    /// The latest that any slot asked for; `now` if none did.
    pub(super) start: Instant,
}

/// What a formula wants to be told again at the end of a request, as under which of
/// its generations that was admitted.
pub(super) type Token = u32;

/// How long a request is held to what it was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// Until it is answered, or has ended without an answer.
    Answer,
    /// Until it has ended.
    End,
}

/// What a request holds of a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stake {
    pub(super) until: Until,
    pub(super) seat: Seat,
    pub(super) token: Token,
}

/// How an admitted request ended, or how it was answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// When that is known.
    pub(super) now: Instant,
    /// When it was allowed to begin.
    pub(super) start: Instant,
    pub(super) outcome: Outcome,
    /// What [`Formula::token`] said when it was charged.
    pub(super) token: Token,
}

/// What one algorithm decides, over a state that it does not own.
///
/// `now` never steps back between two calls: the chain sees to that.
pub(super) trait Formula: Debug + Send + 'static {
    /// What one client, or all of them together, have used.
    type State: Clone + Debug + Send;

    /// Whether the end of a request must be told, or its answer:
    /// [`release`](Self::release).
    const HOLDS: Option<Until> = None;

    /// Returns the most that a standing's `used` may be.
    fn limit(&self) -> u64;

    /// Returns the state of a client never seen.
    fn fresh(&self) -> Self::State;

    /// Returns whether `state` decides, from `now` on, as a fresh one does. One that was
    /// charged after `now` does not.
    fn is_fresh(&self, state: &Self::State, now: Instant) -> bool;

    /// Decides about a request of `cost`, and changes nothing.
    fn check(&self, state: &Self::State, now: Instant, cost: u64) -> Decision;

    /// Returns how long a request with priority, which would be rejected now, waits for
    /// a window to open in which it fits; `None` if this has no such windows. It is
    /// charged then, as of [`Times::own`].
    fn loan(&self, _state: &Self::State, _now: Instant, _cost: u64) -> Option<Duration> {
        None
    }

    /// Returns when a request may start that this let pass before, and that is charged
    /// only now.
    fn due(&self, _state: &Self::State, now: Instant) -> Instant {
        now
    }

    /// Returns what is used as of `now`.
    fn standing(&self, state: &Self::State, now: Instant) -> Standing;

    /// Charges a request that every slot let pass.
    fn charge(&self, state: &mut Self::State, times: Times, cost: u64);

    /// Returns what the end of the request that was just charged shall bring back.
    fn token(&self, _state: &Self::State) -> Token {
        0
    }

    /// Takes back what a request held until its end, and learns from that.
    fn release(&self, _state: &mut Self::State, _end: &End, _cost: u64) {}

    /// Takes what the latest charge or release has turned a breaker to.
    fn turned(&self, _state: &mut Self::State) -> Option<breaker::Turn> {
        None
    }

    /// Returns what was seen, if this is a breaker.
    fn breaker(&self, _state: &Self::State, _now: Instant) -> Option<breaker::Seen> {
        None
    }

    /// Takes over what `former`, whose place this one takes, knows beside its numbers.
    fn inherit(&mut self, _former: &Self) {}

    /// Returns whether `state` must not go to another client: its requests are in flight or
    /// wait, or what it was charged is yet to be told.
    fn is_held(&self, _state: &Self::State, _now: Instant) -> bool {
        false
    }

    /// Returns how usages are read.
    fn scale(&self, now: Instant) -> Scale {
        Scale::Time(now)
    }

    /// Returns what is kept of `state` when its place goes to another client.
    fn usage(&self, _state: &Self::State, _now: Instant) -> Usage {
        Usage::NONE
    }

    /// Makes `state` a fresh one, in its memory.
    fn renew(&self, state: &mut Self::State) {
        *state = self.fresh();
    }

    /// Makes `state` one that decides from `now` on as strictly as before, and as each whose usage
    /// was so much.
    fn absorb(&self, _state: &mut Self::State, _usage: Usage, _now: Instant) {}

    /// Takes what gateways are to be told that was charged to `state`, if they exchange
    /// states and there is anything: what it comes to, and its numbers.
    fn take(&self, _state: &mut Self::State) -> Option<(u64, Numbers)> {
        None
    }

    /// Learns what the store's clock told. Returns whether what was counted by
    /// another clock is to be forgotten.
    fn set_clock(&mut self, _way: RoundTrip) -> bool {
        false
    }

    /// Makes `state` what the store told, and what was charged here since the last
    /// [`take`](Self::take).
    fn adopt(&self, _state: &mut Self::State, _numbers: &[u64], _now: Instant) {}

    /// Turns a state of `old` into one of this formula, without creating budget.
    fn convert(&self, old: &Self, state: &mut Self::State, now: Instant);
}

/// A stage of admission, whatever its formula.
///
/// All slots of a route are asked before any is told, under one lock. Since
/// [`check`](Self::check) borrows the slot immutably, a request that another slot
/// rejects leaves no trace in this one.
pub(super) trait Slot: Any + Debug + Send {
    /// Decides about `claim` from the state as of `now`, so that what is `pending` fits, too.
    fn check(&self, now: Instant, claim: &Claim, pending: &Pendings) -> Answer;

    /// Returns where the state of `claim` lies, and when it may start, which was let pass
    /// before.
    fn due(&self, now: Instant, claim: &Claim) -> (Place, Instant);

    /// Returns what is used at the `place` of an answer, without the request.
    fn standing(&self, now: Instant, place: Place) -> Standing;

    /// Charges a request that every slot let pass, at the `place` of its answer. Writes
    /// into `turn` what that has turned a breaker to, if it has.
    fn on_pass(
        &mut self,
        times: Times,
        cost: u64,
        place: Place,
        turn: &mut Option<breaker::Turn>,
    ) -> Charge;

    /// Notes that a request which this slot was asked about was rejected.
    fn on_reject(&mut self, place: Place);

    /// Notes the end, or the answer, of a request that holds something at `seat`.
    /// Returns what that has turned a breaker to.
    fn on_done(&mut self, seat: Seat, end: &End, cost: u64) -> Option<breaker::Turn>;

    /// Goes over to the formula of `wanted`, and returns true; or false, unchanged, if
    /// `wanted` is of another algorithm or key. Clients' own states are left to be
    /// converted: [`prepare`](Self::prepare) and [`catch_up`](Self::catch_up).
    fn retune(&mut self, wanted: Box<dyn Slot>, now: Instant) -> bool;

    /// Makes ready to decide about claims with `key`: converts what [`check`](Self::check) will
    /// look at, as far as the latest edit has left that to be done, and recalls a client
    /// that has no place.
    fn prepare(&mut self, now: Instant, key: Key);

    /// Converts some of what the latest edit has left. Returns whether there may be more.
    fn catch_up(&mut self, now: Instant) -> bool;

    /// Takes what gateways are to be told, from a place on in the order of states, until
    /// there are `most`. Returns the place to go on from, if that is not the end.
    fn collect(&mut self, from: u32, most: usize, into: &mut Vec<Delta>) -> Option<u32>;

    /// Takes over what the store told. Returns whether all else was forgotten, as the store's
    /// clock is another one.
    fn adopt(&mut self, way: RoundTrip, told: &[Told]) -> bool;

    /// Returns the most that a standing's `used` may be.
    fn limit(&self) -> u64;

    /// Returns the standing of what is shared by all.
    fn shared(&self, now: Instant) -> Standing;

    /// Returns what was seen, if the slot is a breaker.
    fn breaker(&self, now: Instant) -> Option<breaker::Seen>;

    /// Returns the number of keys, if the slot has keys.
    fn keys(&self) -> Option<Keys>;
}

/// A formula with its states: the one implementation of [`Slot`].
#[derive(Debug)]
pub(super) struct Stage<F: Formula> {
    formula: F,
    /// What some clients' states are still of, after an edit.
    former: Option<Former<F>>,
    states: States<F::State>,
}

/// A formula that an edit has replaced.
#[derive(Debug)]
struct Former<F> {
    formula: F,
    /// When. States are converted as of then, however late that is done: until then
    /// nothing has touched them.
    edited: Instant,
}

#[derive(Debug)]
enum States<S> {
    One(S),
    Keyed { by: Arc<str>, table: Table<S> },
}

impl<F: Formula> Stage<F> {
    /// Builds the slot, unused.
    pub(super) fn boxed(formula: F, keyed: Option<&Keyed>) -> Box<dyn Slot> {
        let fresh = formula.fresh();
        let states = match keyed {
            None => States::One(fresh),
            Some(Keyed { by, max_keys }) => {
                States::Keyed { by: Arc::clone(by), table: Table::new(fresh, *max_keys) }
            }
        };
        Box::new(Self { formula, former: None, states })
    }

    /// Has `work` done on the table of a keyed rule, given what judges its states as of `now`, and
    /// how to convert what the latest edit may have left.
    fn on_table<T>(
        &mut self,
        now: Instant,
        work: impl FnOnce(&mut Table<F::State>, &AsOf<'_, F>, Option<&Conversion<'_, F::State>>) -> T,
    ) -> Option<T> {
        let Self { formula, former, states } = self;
        let States::Keyed { table, .. } = states else { return None };
        let (formula, judge) = (&*formula, AsOf { formula, now });
        let Some(Former { formula: old, edited }) = former else {
            return Some(work(table, &judge, None));
        };
        let state = |state: &mut F::State| formula.convert(old, state, *edited);
        let usage = |usage| convert_usage(formula, old, usage, *edited);
        Some(work(table, &judge, Some(&Conversion { state: &state, usage: &usage })))
    }

    /// Converts the state at `seat`, if the latest edit has left that to be done.
    fn prepare_seat(&mut self, seat: Seat) {
        if self.former.is_some() {
            self.on_table(Instant::EPOCH, |table, _, stale| {
                stale.map(|stale| table.prepare_seat(seat, stale.state))
            });
        }
    }

    #[inline]
    fn find(&self, now: Instant, key: Key) -> Place {
        match (&self.states, key) {
            (States::Keyed { table, .. }, Key::Of(key)) => {
                table.find(key, F::HOLDS.is_some(), &AsOf { formula: &self.formula, now })
            }
            (States::One(_) | States::Keyed { .. }, _) => Place::At(Seat::Shared),
        }
    }
}

impl<F: Formula> Stage<F> {
    fn decide(&self, state: &F::State, now: Instant, claim: &Claim) -> Decision {
        let decision = self.formula.check(state, now, claim.cost);
        if claim.patience.is_zero() || !matches!(decision, Decision::Reject(Reason::Rate { .. })) {
            return decision;
        }
        let loan = self.formula.loan(state, now, claim.cost);
        loan.filter(|wait| *wait <= claim.patience).map_or(decision, Decision::Delay)
    }

    fn decide_at(&self, place: Place, now: Instant, claim: &Claim, pending: &Pendings) -> Decision {
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
    fn decide_by_itself(&self, place: Place, now: Instant, claim: &Claim) -> Option<Decision> {
        let States::Keyed { table, .. } = &self.states else { return None };
        match self.formula.check(table.beside(place)?, now, claim.cost) {
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
        match self.formula.check(state, now, cost) {
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
            let times = Times { now, own: now, start: self.formula.due(&all, now) };
            self.formula.charge(&mut all, times, cost);
        }
        match self.formula.check(&all, now, least) {
            Decision::Reject(reason) => Decision::Reject(reason),
            Decision::Pass | Decision::Delay(_) => match self.formula.due(state, now).since(now) {
                Duration::ZERO => Decision::Pass,
                wait => Decision::Delay(wait),
            },
        }
    }

    /// Returns where the state at `place` lies from now on, as found just before.
    fn take_seat(&mut self, now: Instant, place: Place) -> Seat {
        self.on_table(now, |table, judge, _| table.seat(place, judge)).unwrap_or(Seat::Shared)
    }
}

impl<S: Clone> States<S> {
    fn get(&self, place: Place) -> &S {
        match self {
            Self::One(state) => state,
            Self::Keyed { table, .. } => table.get(place),
        }
    }

    fn get_mut(&mut self, seat: Seat) -> &mut S {
        match self {
            Self::One(state) => state,
            Self::Keyed { table, .. } => table.get_mut(seat),
        }
    }

    fn shared(&self) -> &S {
        self.get(Place::At(Seat::Shared))
    }
}

impl<F: Formula> Slot for Stage<F> {
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

    fn due(&self, now: Instant, claim: &Claim) -> (Place, Instant) {
        let place = self.find(now, claim.key);
        let is_free = claim.cost == 0;
        (place, if is_free { now } else { self.formula.due(self.states.get(place), now) })
    }

    fn standing(&self, now: Instant, place: Place) -> Standing {
        self.formula.standing(self.states.get(place), now)
    }

    fn on_pass(
        &mut self,
        times: Times,
        cost: u64,
        place: Place,
        turn: &mut Option<breaker::Turn>,
    ) -> Charge {
        let seat = self.take_seat(times.now, place);
        let state = self.states.get_mut(seat);
        self.formula.charge(state, times, cost);
        let standing = self.formula.standing(state, times.now);
        if let Some(turned) = self.formula.turned(state) {
            *turn = Some(turned);
        }
        let hold = F::HOLDS.map(|until| Stake { until, seat, token: self.formula.token(state) });
        Charge { hold, standing }
    }

    fn on_reject(&mut self, place: Place) {
        if let States::Keyed { table, .. } = &mut self.states {
            table.pass_over(place);
        }
    }

    fn on_done(&mut self, seat: Seat, end: &End, cost: u64) -> Option<breaker::Turn> {
        self.prepare_seat(seat);
        let state = self.states.get_mut(seat);
        self.formula.release(state, end, cost);
        self.formula.turned(state)
    }

    fn retune(&mut self, wanted: Box<dyn Slot>, now: Instant) -> bool {
        let Ok(wanted) = (wanted as Box<dyn Any>).downcast::<Self>() else { return false };
        // One former formula is enough to remember: the gate has caught up already.
        while self.catch_up(now) {}
        let Self { mut formula, states, .. } = *wanted;
        formula.inherit(&self.formula);
        let convert = |state: &mut F::State| formula.convert(&self.formula, state, now);
        match (&mut self.states, states) {
            (States::One(state), States::One(_)) => convert(state),
            (States::Keyed { by, table }, States::Keyed { by: same, table: wanted })
                if *by == same =>
            {
                table.retune(&wanted, convert);
            }
            (States::One(_) | States::Keyed { .. }, _) => return false,
        }
        let former = core::mem::replace(&mut self.formula, formula);
        self.former = Some(Former { formula: former, edited: now });
        true
    }

    fn prepare(&mut self, now: Instant, key: Key) {
        if let Key::Of(key) = key {
            self.on_table(now, |table, judge, stale| table.prepare(key, judge, stale));
        }
    }

    fn catch_up(&mut self, now: Instant) -> bool {
        let more = self.on_table(now, |table, judge, stale| {
            stale.is_some_and(|stale| table.catch_up(judge, stale))
        });
        let more = more.unwrap_or(false);
        if !more {
            self.former = None;
        }
        more
    }

    fn collect(&mut self, from: u32, most: usize, into: &mut Vec<Delta>) -> Option<u32> {
        self.collect_from(from, most, into)
    }

    fn adopt(&mut self, way: RoundTrip, told: &[Told]) -> bool {
        self.adopt_all(way, told)
    }

    fn limit(&self) -> u64 {
        self.formula.limit()
    }

    fn shared(&self, now: Instant) -> Standing {
        self.formula.standing(self.states.shared(), now)
    }

    fn breaker(&self, now: Instant) -> Option<breaker::Seen> {
        self.formula.breaker(self.states.shared(), now)
    }

    fn keys(&self) -> Option<Keys> {
        match &self.states {
            States::One(_) => None,
            States::Keyed { table, .. } => Some(table.keys()),
        }
    }
}

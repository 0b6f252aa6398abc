//! Numbers by plan: a rule whose limit depends on the plan of the client that asks.
//!
//! The states stay those of the rule's key; only the numbers differ. A state remembers its plan. When
//! a request has another plan than the state of its key, the state is converted as by an edit of the
//! numbers, and then the new numbers decide. All plans of a rule have its algorithm and its window.
//!
//! An edit of the plans converts each state to the new numbers of the same plan; if there is none,
//! to the rule's own.

use super::{
    Algorithm, EndOfRequest, Evictable, GivenBack, Lends, Limiter, QuotaUsage, Spaces, Times,
    Token, Transfer, Until, Usage,
    by_wall::FollowsWall,
    synced::{Given, GivenTo, Merge},
};
use crate::flow::{
    calendar::Calendar,
    decision::{Decision, PlanKey},
    keyed::{PastUsage, Scale},
    shared::Numbers,
    time::Instant,
};
use core::{cell::OnceCell, time::Duration};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The place of a plan in its table, from 1 on; 0 is the rule's own numbers.
pub(in crate::flow) type Plan = u32;

/// The numbers of each plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanTable {
    /// In the order of their keys, each once.
    rows: Vec<PlanRow>,
    /// The numbers of rows, each once.
    levels: Vec<Algorithm>,
}

/// A plan and its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PlanRow {
    key: PlanKey,
    /// The index of its numbers in the table's.
    level: u32,
}

impl PlanTable {
    /// Returns the table of these plans, each with the index of its numbers in `levels`. All
    /// numbers must be of one algorithm and one window. Of a plan with several rows, the first one
    /// counts.
    pub fn new(plans: impl IntoIterator<Item = (PlanKey, u32)>, levels: Vec<Algorithm>) -> Self {
        let mut rows: Vec<_> =
            plans.into_iter().map(|(key, level)| PlanRow { key, level }).collect();
        rows.sort_by_key(|row| row.key);
        rows.dedup_by_key(|row| row.key);
        Self { rows, levels }
    }

    /// Returns the index of a plan's numbers among the [levels](Self::levels); `None` if the table
    /// does not have the plan.
    pub fn level_of(&self, key: PlanKey) -> Option<usize> {
        let row = self.rows.get((self.find(key) as usize).checked_sub(1)?)?;
        usize::try_from(row.level).ok()
    }

    /// Returns the numbers of plans.
    pub fn levels(&self) -> &[Algorithm] {
        &self.levels
    }

    fn find(&self, key: PlanKey) -> Plan {
        let found = self.rows.binary_search_by_key(&key, |row| row.key);
        found.ok().and_then(|at| Plan::try_from(at + 1).ok()).unwrap_or(0)
    }

    fn row(&self, plan: Plan) -> Option<PlanRow> {
        self.rows.get((plan as usize).checked_sub(1)?).copied()
    }
}

/// An algorithm with other numbers for some plans.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedConfig {
    /// The rule's own numbers.
    pub(in crate::flow) own: Box<Algorithm>,
    pub(in crate::flow) table: Arc<PlanTable>,
}

impl PlannedConfig {
    /// Returns the algorithm of a rule with these plans. The numbers of all of them are of the
    /// algorithm of its `own`.
    pub fn new(own: Algorithm, table: Arc<PlanTable>) -> Self {
        Self { own: Box::new(own), table }
    }

    /// Returns the rule's own numbers: those of clients without a plan.
    pub fn own(&self) -> &Algorithm {
        &self.own
    }

    /// Returns the plans.
    pub const fn table(&self) -> &Arc<PlanTable> {
        &self.table
    }

    pub(in crate::flow) fn change_calendars(&mut self, change: &mut dyn FnMut(&mut Calendar)) {
        self.own.change_calendars(change);
        for level in &mut Arc::make_mut(&mut self.table).levels {
            level.change_calendars(change);
        }
    }

    /// Divides all numbers among this many gateways.
    pub(in crate::flow) fn among(&self, gateways: u32) -> Self {
        let levels = self.table.levels.iter().map(|level| level.among(gateways)).collect();
        let table = PlanTable { rows: self.table.rows.clone(), levels };
        Self { own: Box::new(self.own.among(gateways)), table: Arc::new(table) }
    }

    /// Returns the algorithm whose numbers are the largest: the most that any plan admits.
    pub fn largest(&self) -> &Algorithm {
        let most = |algorithm: &Algorithm| algorithm.most_in_a_window().map(|(most, _)| most);
        self.table
            .levels
            .iter()
            .chain([&*self.own])
            .max_by_key(|algorithm| most(algorithm))
            .unwrap_or(&self.own)
    }
}

/// Limiters of one algorithm, one for each plan.
#[derive(Debug)]
pub(in crate::flow) struct Planned<F> {
    own: F,
    table: Arc<PlanTable>,
    /// Beside the table's levels. They are built when they are first needed: the gate is locked
    /// while an edit installs a table, which may have many.
    levels: Box<[OnceCell<Option<F>>]>,
    build: fn(&Algorithm) -> Option<F>,
}

/// A state, and the plan whose numbers it has.
#[derive(Clone, Debug)]
pub(in crate::flow) struct PlannedState<S> {
    inner: S,
    plan: Plan,
}

impl<F> Planned<F> {
    /// `build` returns `None` for another algorithm than the rule's, which no table has.
    pub(in crate::flow) fn new(
        own: F,
        table: &Arc<PlanTable>,
        build: fn(&Algorithm) -> Option<F>,
    ) -> Self {
        let levels = table.levels.iter().map(|_| OnceCell::new()).collect();
        Self { own, table: Arc::clone(table), levels, build }
    }

    /// Returns the limiter of a plan.
    fn of(&self, plan: Plan) -> &F {
        let Some(row) = self.table.row(plan) else { return &self.own };
        let level = row.level as usize;
        let built = self.levels.get(level).and_then(|built| {
            built.get_or_init(|| (self.build)(self.table.levels.get(level)?)).as_ref()
        });
        built.unwrap_or(&self.own)
    }

    /// Returns the place here of a plan of `old`.
    fn place_of(&self, old: &Self, plan: Plan) -> Plan {
        if Arc::ptr_eq(&self.table, &old.table) {
            return plan;
        }
        old.table.row(plan).map_or(0, |row| self.table.find(row.key))
    }
}

impl<F: Evictable> Limiter for Planned<F> {
    type State = PlannedState<F::State>;

    const HAS_PLANS: bool = true;

    fn limit(&self) -> u64 {
        self.own.limit()
    }

    fn limit_of(&self, state: &Self::State) -> u64 {
        self.of(state.plan).limit()
    }

    fn fresh(&self) -> Self::State {
        PlannedState { inner: self.own.fresh(), plan: 0 }
    }

    fn is_fresh(&self, state: &Self::State, now: Instant) -> bool {
        self.of(state.plan).is_fresh(&state.inner, now)
    }

    fn check(&self, state: &Self::State, now: Instant, cost: u64) -> Decision {
        self.of(state.plan).check(&state.inner, now, cost)
    }

    fn usage(&self, state: &Self::State, now: Instant) -> Usage {
        self.of(state.plan).usage(&state.inner, now)
    }

    fn growth(&self, state: &Self::State, now: Instant, cost: u64, used: u64) -> Option<Duration> {
        self.of(state.plan).growth(&state.inner, now, cost, used)
    }

    fn usage_and_growth(&self, state: &Self::State, now: Instant, cost: u64) -> QuotaUsage {
        self.of(state.plan).usage_and_growth(&state.inner, now, cost)
    }

    fn charge(&self, state: &mut Self::State, times: Times, cost: u64) {
        self.of(state.plan).charge(&mut state.inner, times, cost);
    }

    fn give_back(&self, state: &mut Self::State, part: &GivenBack) {
        self.of(state.plan).give_back(&mut state.inner, part);
    }

    /// All plans have one window.
    fn moves_charges(&self, old: &Self) -> bool {
        self.own.moves_charges(&old.own)
    }

    fn convert(&self, old: &Self, state: &mut Self::State, now: Instant) {
        let plan = self.place_of(old, state.plan);
        self.of(plan).convert(old.of(state.plan), &mut state.inner, now);
        state.plan = plan;
    }

    fn plan(&self, key: Option<PlanKey>) -> Plan {
        key.map_or(0, |key| self.table.find(key))
    }

    fn plan_of(&self, state: &Self::State) -> Plan {
        state.plan
    }

    fn follow(&self, state: &mut Self::State, plan: Plan, now: Instant) {
        if state.plan != plan {
            self.of(plan).convert(self.of(state.plan), &mut state.inner, now);
            state.plan = plan;
        }
    }

    fn lends(&self) -> Option<&dyn Lends<Self::State>> {
        self.own.lends().map(|_| self as &dyn Lends<Self::State>)
    }

    fn spaces(&self) -> Option<&dyn Spaces<Self::State>> {
        self.own.spaces().map(|_| self as &dyn Spaces<Self::State>)
    }

    fn end_of_request(&self) -> Option<&dyn EndOfRequest<Self::State>> {
        self.own.end_of_request().map(|_| self as &dyn EndOfRequest<Self::State>)
    }
}

impl<F: Evictable> Evictable for Planned<F> {
    fn is_held(&self, state: &Self::State, now: Instant) -> bool {
        self.of(state.plan).is_held(&state.inner, now)
    }

    /// The same for all plans: they have one window.
    fn scale(&self, now: Instant) -> Scale {
        self.own.scale(now)
    }

    fn past_usage(&self, state: &Self::State, now: Instant) -> PastUsage {
        self.of(state.plan).past_usage(&state.inner, now)
    }

    fn renew(&self, state: &mut Self::State) {
        self.own.renew(&mut state.inner);
        state.plan = 0;
    }

    fn absorb(&self, state: &mut Self::State, usage: PastUsage, now: Instant) {
        self.of(state.plan).absorb(&mut state.inner, usage, now);
    }
}

/// The plan comes first. The other process has the same table.
impl<F: Evictable> Transfer for Planned<F> {
    fn export(&self, state: &Self::State) -> Vec<u64> {
        let inner = self.of(state.plan).export(&state.inner);
        core::iter::once(u64::from(state.plan)).chain(inner).collect()
    }

    fn import(&self, numbers: &[u64]) -> Option<Self::State> {
        let [plan, inner @ ..] = numbers else { return None };
        let plan = Plan::try_from(*plan).ok()?;
        Some(PlannedState { inner: self.of(plan).import(inner)?, plan })
    }

    fn charge_elsewhere(&self, state: &mut Self::State, times: Times, cost: u64) {
        self.of(state.plan).charge_elsewhere(&mut state.inner, times, cost);
    }

    fn abandon(&self, state: &mut Self::State, cost: u64) {
        Transfer::abandon(self.of(state.plan), &mut state.inner, cost);
    }
}

impl<F: Evictable> Lends<PlannedState<F::State>> for Planned<F> {
    fn loan(&self, state: &PlannedState<F::State>, now: Instant, cost: u64) -> Option<Duration> {
        self.of(state.plan).lends()?.loan(&state.inner, now, cost)
    }
}

impl<F: Evictable> Spaces<PlannedState<F::State>> for Planned<F> {
    fn due(&self, state: &PlannedState<F::State>, now: Instant) -> Instant {
        self.of(state.plan).spaces().map_or(now, |spaces| spaces.due(&state.inner, now))
    }

    fn abandon(&self, state: &mut PlannedState<F::State>, start: Instant, now: Instant) {
        if let Some(spaces) = self.of(state.plan).spaces() {
            spaces.abandon(&mut state.inner, start, now);
        }
    }
}

impl<F: Evictable> EndOfRequest<PlannedState<F::State>> for Planned<F> {
    fn until(&self) -> Until {
        self.own.end_of_request().map_or(Until::End, EndOfRequest::until)
    }

    fn token(&self, state: &PlannedState<F::State>) -> Token {
        let end = self.of(state.plan).end_of_request();
        end.map(|end| end.token(&state.inner)).unwrap_or_default()
    }

    fn release(&self, state: &mut PlannedState<F::State>, end: &super::End, cost: u64) {
        if let Some(limiter) = self.of(state.plan).end_of_request() {
            limiter.release(&mut state.inner, end, cost);
        }
    }
}

impl<F: FollowsWall> FollowsWall for Planned<F> {
    fn step(&self, state: &mut Self::State, from: Instant, to: Instant) {
        self.of(state.plan).step(&mut state.inner, from, to);
    }
}

/// Only algorithms whose states do not depend on the limit sync with plans, so that a state of the
/// store fits each plan.
impl<F: Merge> Merge for Planned<F> {
    fn clear(&self, delta: &mut Self::State) {
        self.own.clear(&mut delta.inner);
    }

    fn record(&self, delta: &mut Self::State, state: &Self::State, times: Times, cost: u64) {
        self.own.record(&mut delta.inner, &state.inner, times, cost);
    }

    fn merge(&self, state: &mut Self::State, delta: &Self::State, cost: u64) {
        self.own.merge(&mut state.inner, &delta.inner, cost);
    }

    fn give(
        &self,
        unsynced: GivenTo<'_, Self::State>,
        state: &Self::State,
        part: &GivenBack,
    ) -> u64 {
        let GivenTo { given, delta } = unsynced;
        let unsynced = GivenTo { given: &mut given.inner, delta: &mut delta.inner };
        self.own.give(unsynced, &state.inner, part)
    }

    fn take_given(&self, state: &mut Self::State, delta: &Self::State, given: &Given<Self::State>) {
        let Given { state: of_given, cost } = given;
        let given = Given { state: of_given.inner.clone(), cost: *cost };
        self.own.take_given(&mut state.inner, &delta.inner, &given);
    }

    fn gives_first(&self, delta: &Self::State, given: &Given<Self::State>) -> bool {
        let given = Given { state: given.state.inner.clone(), cost: given.cost };
        self.own.gives_first(&delta.inner, &given)
    }

    fn given_numbers(&self, given: &Given<Self::State>) -> Numbers {
        let given = Given { state: given.state.inner.clone(), cost: given.cost };
        self.own.given_numbers(&given)
    }

    fn is_over(&self, delta: &Self::State, now: Instant) -> bool {
        self.own.is_over(&delta.inner, now)
    }

    fn converted(&self, old: &Self, cost: u64) -> u64 {
        self.own.converted(&old.own, cost)
    }

    fn delta(&self, delta: &Self::State, cost: u64) -> Numbers {
        self.own.delta(&delta.inner, cost)
    }

    fn parse(&self, numbers: &[u64]) -> Option<Self::State> {
        Some(PlannedState { inner: self.own.parse(numbers)?, plan: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{
        Change, Claim, Gate, Key, Keyed, Outcome, Report, Rule, Rules, SlotId,
        calendar::Run,
        limiter::{
            concurrency, fixed_window, leaky_bucket, sliding_counter, sliding_log, sliding_window,
            token_bucket,
        },
        timeline::rate,
    };
    use core::num::NonZeroU64;
    use proptest::{collection::vec, prelude::*};
    use std::collections::HashMap;

    const WINDOW: u64 = 1000;

    /// Makes an algorithm of each kind whose limit is `count`.
    const KINDS: [fn(u64) -> Algorithm; 8] = [
        |count| {
            let burst = count / 2 + 1;
            Algorithm::TokenBucket(token_bucket::Config { rate: rate(count, WINDOW), burst })
        },
        |count| {
            let rate = rate(count, WINDOW);
            Algorithm::LeakyBucket(leaky_bucket::Config { rate, capacity: count })
        },
        |count| Algorithm::SlidingLog(sliding_log::Config { rate: rate(count, WINDOW) }),
        |count| {
            let rate = rate(count, WINDOW);
            Algorithm::SlidingWindow(sliding_window::Config { rate, buckets: 5, strict: false })
        },
        |count| {
            let rate = rate(count, WINDOW);
            Algorithm::SlidingWindow(sliding_window::Config { rate, buckets: 4, strict: true })
        },
        |count| Algorithm::SlidingCounter(sliding_counter::Config { rate: rate(count, WINDOW) }),
        |count| {
            let align = fixed_window::Align::Clock;
            Algorithm::FixedWindow(fixed_window::Config { rate: rate(count, WINDOW), align })
        },
        |count| Algorithm::Concurrency(concurrency::Config { limit: count }),
    ];

    /// A step of a trace.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        /// A request after so many ms, of a key, with a plan and a cost.
        Request { after: u64, key: u128, plan: u64, cost: u64 },
        /// Other numbers of the plans, and of the rule itself.
        Edit([u64; 3]),
        /// Asks what would be decided, which changes nothing.
        Peek { key: u128, plan: u64 },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let request = (0_u64..400, 0_u128..3, 0_u64..4, 1_u64..4)
            .prop_map(|(after, key, plan, cost)| Step::Request { after, key, plan, cost });
        let edit = [1_u64..20, 1_u64..20, 1_u64..20].prop_map(Step::Edit);
        let peek = (0_u128..3, 0_u64..4).prop_map(|(key, plan)| Step::Peek { key, plan });
        vec(prop_oneof![12 => request, 1 => edit, 2 => peek], 1..120)
    }

    fn planned(kind: fn(u64) -> Algorithm, [own, gold, silver]: [u64; 3]) -> Algorithm {
        let plans = [(PlanKey::new(1), 0), (PlanKey::new(2), 1)];
        let table = PlanTable::new(plans, vec![kind(gold), kind(silver)]);
        Algorithm::Planned(PlannedConfig::new(kind(own), Arc::new(table)))
    }

    fn rules(algorithm: Algorithm, keyed: Option<Keyed>) -> Rules {
        let flow = vec![Rule {
            name: "it".into(),
            algorithm,
            keyed,
            dry_run: false,
            settles: false,
            queue: None,
            reject_for: None,
        }];
        Rules { flow, ..Rules::default() }
    }

    fn by_key(algorithm: Algorithm) -> Rules {
        rules(algorithm, Some(Keyed { by: "key".into(), max_keys: 100 }))
    }

    /// A rule of one client alone, whose numbers are edited before each request to those of its plan.
    struct EditedRule {
        gate: Arc<Gate>,
        slot: SlotId,
        /// 0: the rule's own.
        plan: usize,
    }

    impl EditedRule {
        fn new(kind: fn(u64) -> Algorithm, numbers: [u64; 3], now: Instant) -> Self {
            let gate = Arc::new(Gate::new(now));
            let slot = gate.install(&rules(kind(numbers[0]), None), now).flow[0];
            Self { gate, slot, plan: 0 }
        }

        fn edit(&self, kind: fn(u64) -> Algorithm, numbers: [u64; 3], now: Instant) {
            self.gate.install(&rules(kind(numbers[self.plan]), None), now);
        }
    }

    /// The names of the plans: 1 and 2 are in the table.
    fn plan_of(name: u64) -> (Option<PlanKey>, usize) {
        match name {
            0 => (None, 0),
            1 | 2 => (Some(PlanKey::new(name)), usize::from(name == 2) + 1),
            _ => (Some(PlanKey::new(name)), 0),
        }
    }

    proptest! {
        #[test]
        fn a_client_whose_plan_changes_goes_on_as_after_an_edit_of_the_numbers(
            kind in 0..KINDS.len(),
            numbers in [1_u64..20, 1_u64..20, 1_u64..20],
            steps in steps(),
        ) {
            let kind = KINDS[kind];
            let mut numbers = numbers;
            let mut now = Instant::EPOCH + Duration::from_secs(7);
            let gate = Arc::new(Gate::new(now));
            let slot = gate.install(&by_key(planned(kind, numbers)), now).flow[0];
            let mut clients: HashMap<u128, EditedRule> = HashMap::new();
            let mut running = Vec::new();

            for step in steps {
                let (key, name, cost) = match step {
                    Step::Edit(edited) => {
                        numbers = edited;
                        let changes = gate.install(&by_key(planned(kind, numbers)), now).changes;
                        prop_assert!(matches!(changes[0].1, Change::Converted | Change::Kept));
                        for client in clients.values() {
                            client.edit(kind, numbers, now);
                        }
                        continue;
                    }
                    Step::Peek { key, plan } => {
                        let (plan, _) = plan_of(plan);
                        let claim = claim(slot, Key::Of(key << 64), 1, plan);
                        drop(gate.peek(now, &[claim]));
                        continue;
                    }
                    Step::Request { after, key, plan, cost } => {
                        now = now + Duration::from_millis(after);
                        (key, plan, cost)
                    }
                };

                let (plan, place) = plan_of(name);
                let client =
                    clients.entry(key).or_insert_with(|| EditedRule::new(kind, numbers, now));
                if client.plan != place {
                    client.plan = place;
                    client.edit(kind, numbers, now);
                }

                let mut report = Report::default();
                let of_plan = claim(slot, Key::Of(key << 64), cost, plan);
                let decided = gate.decide(now, &[of_plan], &mut report);
                let mut expected = Report::default();
                let alone = claim(client.slot, Key::Shared, cost, None);
                let of_client = client.gate.decide(now, &[alone], &mut expected);

                let reason = decided.as_ref().err().map(|rejected| rejected.reason);
                prop_assert_eq!(reason, of_client.as_ref().err().map(|rejected| rejected.reason));
                let [quota, alone] = [&report, &expected].map(|report| report.quotas[0]);
                prop_assert_eq!(
                    (quota.limit, quota.used, quota.reset, quota.growth),
                    (alone.limit, alone.used, alone.reset, alone.growth)
                );

                running.extend(decided.ok().zip(of_client.ok()));
                if running.len() > 5 {
                    let (first, alone) = running.swap_remove(0);
                    first.finish(Outcome::Success { at: now });
                    alone.finish(Outcome::Success { at: now });
                }
            }
        }
    }

    fn claim(slot: SlotId, key: Key, cost: u64, plan: Option<PlanKey>) -> Claim {
        Claim { slot, key, cost, patience: Duration::ZERO, plan }
    }

    #[test]
    fn an_evicted_client_returns_under_its_plan_with_what_it_used() {
        for kind in &KINDS[..7] {
            let keyed = Keyed { by: "key".into(), max_keys: 1 };
            let rules = rules(planned(*kind, [2, 10, 4]), Some(keyed));
            let now = Instant::EPOCH + Duration::from_secs(7);
            let gate = Arc::new(Gate::new(now));
            let slot = gate.install(&rules, now).flow[0];
            let gold = Some(PlanKey::new(1));
            let ask = |key: u128, plan| {
                let claim = claim(slot, Key::Of(key << 64), 1, plan);
                gate.enter(now, &[claim]).is_ok()
            };

            let passed = (0..20).filter(|_| ask(1, gold)).count();
            assert!(passed > 4, "{passed}");
            // Another client takes the only place.
            assert!(ask(2, None));
            assert!(!ask(1, gold), "{:?}", kind(1));
        }
    }

    #[test]
    fn another_process_gets_the_calendars_of_all_plans() {
        let run = Run { start: Instant::EPOCH, count: NonZeroU64::MAX };
        let calendar = Calendar::new("day", NonZeroU64::MIN, vec![run]);
        let of = |count| {
            let align = fixed_window::Align::Calendar(calendar.clone());
            Algorithm::FixedWindow(fixed_window::Config { rate: rate(count, WINDOW), align })
        };
        let table = PlanTable::new([(PlanKey::new(1), 0)], vec![of(9)]);
        let algorithm = Algorithm::Planned(PlannedConfig::new(of(3), Arc::new(table)));

        let sent = serde_json::to_string(&algorithm).expect("text");
        let mut came: Algorithm = serde_json::from_str(&sent).expect("an algorithm");
        assert_ne!(came, algorithm, "only the names are sent");
        came.change_calendars(&mut |came| *came = calendar.clone());
        assert_eq!(came, algorithm);
    }

    #[test]
    fn plans_that_an_edit_removes_get_the_numbers_of_the_rule() {
        let now = Instant::EPOCH;
        let gate = Arc::new(Gate::new(now));
        let kind = KINDS[6];
        let slot = gate.install(&by_key(planned(kind, [2, 10, 4])), now).flow[0];
        let gold = Some(PlanKey::new(1));
        let ask = || gate.enter(now, &[claim(slot, Key::Of(1 << 64), 1, gold)]).is_ok();
        assert_eq!((0..9).filter(|_| ask()).count(), 9);

        let without = PlannedConfig::new(kind(2), Arc::new(PlanTable::default()));
        let edited = gate.install(&by_key(Algorithm::Planned(without)), now);
        assert_eq!(edited.changes[0].1, Change::Converted);
        assert!(!ask(), "9 of 2 are used");
    }
}

//! The one lock of a route, and the chain of slots behind it.
//!
//! [`Gate`] is what others use; the files after their subject have its methods and the part of the
//! chain's logic that they need: [`decide`], [`waiting`] and [`places`], [`reservation`], [`settle`],
//! [`sync`], [`transfer`], [`operators`].
//! Several gates decide together as [`Gates`].

mod chain;
mod chain_slot;
mod decide;
mod gates;
mod lock_order;
mod operators;
mod places;
mod reservation;
mod settle;
mod sync;
mod transfer;
mod waiting;

pub use gates::{BudgetGates, Gates};
pub use operators::{KeyUsage, NotReset};
pub use reservation::Reservation;
pub use settle::{FinalCost, Reserve, SettledReserve};
pub use transfer::ImportedSlots;

use super::{
    breaker::Transition,
    decision::{Claim, Outcome, RejectedBy, Rejection, Report, SlotId},
    limit_change::AutoStats,
    rules::{Installed, Rules},
    statistic::{Observation, Totals},
    time::{Instant, WallOffset},
};
use chain::{Chain, Charged, Held, HeldSlot};
use chain_slot::ChainSlot;
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A route's or a budget's chain, shared by its requests and kept over edits.
#[derive(Debug)]
pub struct Gate {
    /// Distinguishes it from the other gates that decide about a request.
    number: u32,
    chain: Mutex<Chain>,
}

/// An admitted request with the record of its decision.
#[derive(Debug)]
pub struct Admission {
    /// Keep it until the request ends.
    pub permit: Permit,
    /// Each slot's part in the decision.
    pub report: Report,
}

/// An admitted request. Dropping it ends the request as cancelled.
#[must_use = "a permit dropped at once ends its request as cancelled"]
#[derive(Debug)]
pub struct Permit {
    gate: Arc<Gate>,
    budgets: Option<Arc<BudgetGates>>,
    charged: Charged,
    ended: bool,
}

impl Gate {
    /// Returns a gate without rules, which admits everything.
    pub fn new(now: Instant) -> Self {
        Self { number: 0, chain: Mutex::new(Chain::new(0, now)) }
    }

    /// Returns a gate without rules that decides together with others. Its `number`, above 0, is its
    /// own among those that may decide about a request, and stays over edits: budgets are
    /// locked in the order of their numbers.
    pub fn with_number(number: u32, now: Instant) -> Self {
        Self { number, chain: Mutex::new(Chain::new(number, now)) }
    }

    /// Returns the number that it was made with; 0 for a route's.
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// Installs `rules` from the next decision on. Rules that keep their name and algorithm keep
    /// their state; requests in flight are not affected.
    ///
    /// Claims on the previous slots remain valid: a reset rule answers for its previous slot, but
    /// not for older ones. An added rule is not checked for requests that cannot know it. A renamed
    /// rule is an added one.
    ///
    /// States of a keyed rule's clients are converted when a decision uses them or by
    /// [`catch_up`](Self::catch_up), so that no request waits for all. Decisions are the same
    /// either way.
    pub fn install(&self, rules: &Rules, now: Instant) -> Installed {
        // No state may be two edits old.
        while self.catch_up() {}
        let (installed, _unused) = self.with_turns(|chain| chain.install(rules, now));
        installed
    }

    /// Takes the place of `old`, which decided the same requests until now. The statistics go on
    /// from there, and so do rate rules that are the same in both. All other rules go on with what
    /// they have counted here.
    ///
    /// Requests that `old` admitted end there.
    pub fn take_over(&self, old: &Self, now: Instant) {
        if core::ptr::eq(self, old) {
            return;
        }
        // No state may be two edits old.
        while old.catch_up() {}
        self.lock().take_over(&mut old.lock(), now);
    }

    /// Applies a step of the wall clock: from `now` on it differs from instants by `wall`. Only
    /// rules that count by the clock or a calendar are affected. States are converted as after
    /// [`install`](Self::install).
    pub fn set_wall(&self, wall: WallOffset, now: Instant) {
        // No state may be two steps old.
        while self.catch_up() {}
        self.lock().set_wall(wall, now);
    }

    /// Converts a few states that an edit left. Returns whether there may be more. Call it until
    /// there are none, with pauses: it holds the lock.
    pub fn catch_up(&self) -> bool {
        self.lock().catch_up()
    }

    /// Decides about a request arriving at `now`, and charges it if it is admitted.
    ///
    /// Every slot with a claim is checked, then every one is charged. Up to four slots take no heap
    /// memory, except for a new client of a keyed rule, for sliding windows whose buckets an edit
    /// changed, and for the gate's first request.
    ///
    /// # Errors
    ///
    /// The reason of the rejection; nothing was charged.
    #[expect(clippy::result_large_err, reason = "a rejection must not allocate either")]
    pub fn enter(self: &Arc<Self>, now: Instant, claims: &[Claim]) -> Result<Admission, Rejection> {
        let mut report = Report::default();
        match self.decide(now, claims, &mut report) {
            Ok(permit) => Ok(Admission { permit, report }),
            Err(rejected) => Err(rejected.with(report)),
        }
    }

    /// Decides like [`enter`](Self::enter), into an empty `report` of the caller: a report has
    /// several hundred bytes and need not be moved.
    ///
    /// # Errors
    ///
    /// The reason of the rejection; nothing was charged.
    #[inline]
    pub fn decide(
        self: &Arc<Self>,
        now: Instant,
        claims: &[Claim],
        report: &mut Report,
    ) -> Result<Permit, RejectedBy> {
        // A statement of its own releases the lock before the rest.
        let decided = self.lock().enter(now, claims, report, true);
        decided.map(|charged| Permit::new(Arc::clone(self), charged))
    }

    /// Decides like [`decide`](Self::decide), by rules that are not in force: the route's statistics
    /// count nothing. Returns a permit only if a rule depends on the request's end.
    ///
    /// # Errors
    ///
    /// The reason of the rejection; nothing was charged.
    #[inline]
    pub fn decide_uncounted(
        self: &Arc<Self>,
        now: Instant,
        claims: &[Claim],
        report: &mut Report,
    ) -> Result<Option<Permit>, RejectedBy> {
        let charged = self.lock().enter(now, claims, report, false)?;
        Ok(charged.has_end().then(|| Permit::new(Arc::clone(self), charged)))
    }

    /// Counts in the route's statistics a rejection that
    /// [`decide_uncounted`](Self::decide_uncounted) has made.
    pub fn count_rejection(&self, now: Instant) {
        self.lock().count_rejection(now);
    }

    /// Charges a request that every rule lets pass at once, like
    /// [`decide_uncounted`](Self::decide_uncounted). It makes no report, and so takes less time.
    /// Returns false if a rule says anything else; then no later decision has changed.
    #[inline]
    pub fn pass_uncounted(
        self: &Arc<Self>,
        now: Instant,
        claims: &[Claim],
        permit: &mut Option<Permit>,
    ) -> bool {
        let mut held = Held::new();
        // A statement of its own releases the lock before the rest.
        let start = self.lock().pass_at_once(now, claims, &mut held);
        let Some(start) = start else { return false };
        if !held.is_empty() {
            let charged = Charged { held, ..Charged::new(start, false) };
            *permit = Some(Permit::new(Arc::clone(self), charged));
        }
        true
    }

    /// Returns what [`enter`](Self::enter) would decide about a request at `now`, and what it would
    /// report, without a transition of the breaker. Nothing is charged or counted, and no later
    /// decision depends on it.
    ///
    /// It copies the states that it looks at: up to 8 bytes for each request that a sliding log
    /// remembers.
    ///
    /// # Errors
    ///
    /// The rejection.
    #[expect(clippy::result_large_err, reason = "as that of `enter`")]
    pub fn peek(&self, now: Instant, claims: &[Claim]) -> Result<Report, Rejection> {
        self.lock().peek(now, claims)
    }

    /// Returns the statistics at `now`.
    pub fn observe(&self, now: Instant) -> Observation {
        self.lock().observe(now)
    }

    /// Returns what the limit behind this slot has found; `None` if it does not find itself, or an edit
    /// removed the slot.
    pub fn auto_stats(&self, slot: SlotId) -> Option<AutoStats> {
        self.with_slot(slot, Instant::EPOCH, |entry, _| entry.slot.auto())?
    }

    /// Returns the totals without the rules, which takes no longer than a decision.
    pub fn totals(&self, now: Instant) -> Totals {
        self.lock().totals(now)
    }

    /// Runs `work` on the slot with this id, at the later one of `now` and the latest instant seen.
    /// `None` if an edit removed or reset the slot.
    fn with_slot<T>(
        &self,
        slot: SlotId,
        now: Instant,
        work: impl FnOnce(&mut ChainSlot, Instant) -> T,
    ) -> Option<T> {
        let mut chain = self.lock();
        let now = chain.clamp(now);
        chain.slot_mut(slot).map(|entry| work(entry, now))
    }

    // Private: no guard outlives a call, so that calls cannot deadlock.
    fn lock(&self) -> MutexGuard<'_, Chain> {
        self.chain.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit {
    const fn new(gate: Arc<Gate>, charged: Charged) -> Self {
        Self { gate, budgets: None, charged, ended: false }
    }

    /// Returns the permit of a request that all these gates have admitted.
    fn of_all(gates: &Gates, charged: Charged) -> Self {
        let gate = Arc::clone(gates.own());
        Self { gate, budgets: gates.budgets().cloned(), charged, ended: false }
    }

    /// Returns when the request may start: on arrival, unless it must wait.
    pub const fn start(&self) -> Instant {
        self.charged.start
    }

    /// Returns whether a rule depends on the request's end. If not, dropping the permit early
    /// changes no later decision, unless it [waits in a queue](Self::waits_in_queue) and leaves.
    pub fn holds(&self) -> bool {
        !self.charged.held.is_empty() || self.is_waiting()
    }

    /// Returns whether the request waits at `now` for a start that [`Self::leave`] would free.
    pub fn waits_in_queue(&self, now: Instant) -> bool {
        now < self.charged.start && !self.charged.queues.is_empty()
    }

    /// Returns whether a slot waits for [`Self::answered`].
    pub fn awaits_answer(&self) -> bool {
        self.charged.held.iter().any(HeldSlot::awaits_answer)
    }

    /// Records the answer when its head is known, before the last byte is sent. The request's body
    /// took as long as `uploading`, which does not make the answer slow. Returns the breaker's
    /// transition.
    pub fn answered(&mut self, outcome: Outcome, uploading: Duration) -> Option<Transition> {
        if !self.awaits_answer() {
            return None;
        }
        let Charged { start, held, .. } = &mut self.charged;
        self.gate.lock().on_response(*start + uploading, held, outcome)
    }

    /// Ends the request as cancelled by a client that left at `now`. If it still waited for its start,
    /// pacing gives its place to another request.
    pub fn leave(mut self, now: Instant) {
        if self.is_waiting() {
            self.withdraw(now);
        } else if self.waits_in_queue(now) {
            let Charged { start, queues, .. } = &self.charged;
            self.gate.lock().free_places(now, *start, queues);
            if let Some(budgets) = &self.budgets {
                budgets.free_places(now, &self.charged);
            }
        }
    }

    /// Ends the request with `outcome`, which also is its answer if none was reported. Returns the
    /// breaker's transition.
    pub fn finish(mut self, outcome: Outcome) -> Option<Transition> {
        self.ended = true;
        self.end(outcome)
    }

    fn end(&mut self, outcome: Outcome) -> Option<Transition> {
        if self.is_waiting() {
            self.withdraw(Instant::EPOCH);
        }
        if let Some(budgets) = &self.budgets {
            budgets.release(&self.charged, outcome);
        }
        self.gate.with_turns(|chain| chain.on_end(&self.charged, outcome))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.ended {
            self.end(Outcome::Cancelled);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{
        Algorithm, Change, Key, Quota, Rule, SlotId, Verdict,
        limiter::{
            concurrency,
            fixed_window::{self, Align},
            token_bucket,
        },
        timeline::{Timeline, check, keyed, one, paced, rate, rule},
    };

    fn bucket(count: u64, burst: u64) -> Algorithm {
        Algorithm::TokenBucket(token_bucket::Config { rate: rate(count, 1000), burst })
    }

    fn in_flight(limit: u64) -> Algorithm {
        Algorithm::Concurrency(concurrency::Config { limit })
    }

    fn rules<const N: usize>(flow: [Rule; N]) -> Rules {
        Rules { flow: flow.into(), ..Rules::default() }
    }

    #[test]
    fn of_several_that_reject_the_one_that_does_for_longest_decides() {
        let fast = rule("fast", bucket(10, 1));
        let slow = rule("slow", bucket(2, 1));
        for flow in [[fast.clone(), slow.clone()], [slow, fast]] {
            check(
                &Rules { flow: flow.into(), ..paced(rate(1, 1000), 300, 9) },
                "
                0       pass
                0       block queue 1000 700
                499     block queue 501 201
                600     block queue 400 100
                699     block queue 301 1
                700     wait 300
                ",
            );
        }
    }

    #[test]
    fn a_rate_decides_beside_a_limit_in_flight_whose_end_no_clock_knows() {
        let rate = rule("rate", bucket(10, 1));
        let large = rule("in flight", in_flight(1));
        for flow in [[rate.clone(), large.clone()], [large, rate]] {
            check(
                &rules(flow),
                "
                0   pass
                0   block rate 100
                99  block rate 1
                100 block concurrency 1
                ",
            );
        }
    }

    #[test]
    fn what_never_helps_is_reported_first() {
        check(
            &rules([rule("rate", bucket(10, 5)), rule("large", in_flight(2))]),
            "
            0 cost=2 pass
            0 cost=2 block concurrency 2
            0 cost=4 block costly 2
            0 cost=6 block costly 5
            ",
        );
    }

    #[test]
    fn a_dry_run_rejects_no_request_and_charges_what_it_would_pass() {
        let dry = Rule { dry_run: true, ..rule("dry", bucket(10, 1)) };
        let timeline = Timeline::new(&rules([dry, rule("real", bucket(10, 3))])).check(
            "
            0   x3 pass
            0   block rate 100
            100 pass
            ",
        );
        let seen = timeline.gate.observe(Instant::EPOCH);
        let [dry, real] = [0, 1].map(|at| seen.rules[at].counts);
        assert_eq!((dry.passed, dry.dry_run_rejected.total(), dry.rejected.total()), (2, 2, 0));
        assert_eq!((real.passed, real.dry_run_rejected.total(), real.rejected.total()), (4, 0, 1));
    }

    #[test]
    fn an_uncounted_request_is_charged_and_held_only_where_its_end_matters() {
        let claim = |slot| {
            [Claim { slot, key: Key::Shared, cost: 1, patience: Duration::ZERO, plan: None }]
        };
        let gate = Arc::new(Gate::new(Instant::EPOCH));
        let decide =
            |slot| gate.decide_uncounted(Instant::EPOCH, &claim(slot), &mut Report::default()).ok();
        let rate = gate.install(&rules([rule("rate", bucket(10, 2))]), Instant::EPOCH).flow[0];
        let passed = [(); 3].map(|()| decide(rate).map(|permit| permit.is_some()));
        assert_eq!(passed, [Some(false), Some(false), None]);
        let few = gate.install(&rules([rule("few", in_flight(1))]), Instant::EPOCH).flow[0];
        let held = decide(few).flatten().expect("its end matters");
        assert!(decide(few).is_none());
        drop(held);
        assert!(decide(few).flatten().is_some());
        let seen = gate.observe(Instant::EPOCH);
        assert_eq!((seen.totals, seen.in_flight, seen.in_flight_max), Default::default());
        assert_eq!((seen.rules[0].counts.passed, seen.rules[0].counts.rejected.total()), (2, 1));
    }

    #[test]
    fn an_edit_reports_what_became_of_each_rule() {
        use Change::{Added, Converted, Kept, Removed, Reset};
        let before = rules([
            rule("same", bucket(10, 1)),
            rule("numbers", bucket(10, 1)),
            rule("algorithm", bucket(10, 1)),
            keyed(bucket(10, 1), 9).flow.remove(0),
            rule("gone", bucket(10, 1)),
        ]);
        let mut after = before.clone();
        after.flow[1].algorithm = bucket(20, 1);
        after.flow[2].algorithm = in_flight(1);
        after.flow[3].keyed = None;
        after.flow[4].name = "new".into();
        after.flow.reverse();
        after.pacing = paced(rate(1, 1), 1, 1).pacing;
        let gate = Gate::new(Instant::EPOCH);
        let old = gate.install(&before, Instant::EPOCH);
        let new = gate.install(&after, Instant::EPOCH);
        let changes: Vec<_> = new.changes.iter().map(|(name, change)| (&**name, *change)).collect();
        let expected = [
            ("new", Added),
            ("it", Reset),
            ("algorithm", Reset),
            ("numbers", Converted),
            ("same", Kept),
            ("pacing", Added),
            ("gone", Removed),
        ];
        assert_eq!(changes, expected);
        assert_eq!(new.flow[3..], [old.flow[1], old.flow[0]]);
        let mut slots: Vec<_> = old.flow.iter().chain(&new.flow).chain(&new.pacing).collect();
        slots.sort_unstable();
        slots.dedup();
        assert_eq!(slots.len(), 9, "a reset slot is another slot");
    }

    #[test]
    fn a_reset_concurrency_limit_takes_nothing_back_from_the_old_one() {
        Timeline::new(&one(in_flight(1)))
            .check("0 pass")
            .edit(&keyed(in_flight(1), 9), &[Change::Reset])
            .check(
                "
                1 key=a pass
                1 done  1
                1 key=a block concurrency 1
                1 done  0
                1 key=a pass
                ",
            );
    }

    #[test]
    fn a_claim_on_a_rule_since_reset_is_charged_to_its_successor() {
        let fixed = fixed_window::Config { rate: rate(3, 1000), align: Align::FirstRequest };
        let after = one(Algorithm::FixedWindow(fixed));
        for key in [Key::Shared, Key::Of(7 << 64)] {
            for after in [after.clone(), keyed(after.flow[0].algorithm.clone(), 9)] {
                let gate = Arc::new(Gate::new(Instant::EPOCH));
                let old = gate.install(&one(bucket(10, 3)), Instant::EPOCH).flow[0];
                let new = gate.install(&after, Instant::EPOCH);
                assert_eq!(new.changes[0].1, Change::Reset);
                let claim =
                    [Claim { slot: old, key, cost: 1, patience: Duration::ZERO, plan: None }];
                for used in 1..=3 {
                    let admission = gate.enter(Instant::EPOCH, &claim).expect("three");
                    let quota = admission.report.quotas[0];
                    assert_eq!((quota.slot, quota.used), (old, used));
                }
                let rejection = gate.enter(Instant::EPOCH, &claim).expect_err("a fourth");
                // By the claimed slot.
                assert_eq!((rejection.slot, rejection.report.quotas[0].slot), (old, old));
                let seen = &gate.observe(Instant::EPOCH).rules[0];
                assert_eq!((seen.slot, seen.counts.passed), (new.flow[0], 3));
            }
        }
    }

    #[test]
    fn what_an_old_claim_holds_is_given_back_to_the_successor() {
        let gate = Arc::new(Gate::new(Instant::EPOCH));
        let old = gate.install(&one(in_flight(1)), Instant::EPOCH).flow[0];
        let claim = |slot| {
            [Claim { slot, key: Key::Of(7 << 64), cost: 1, patience: Duration::ZERO, plan: None }]
        };
        let before = gate.enter(Instant::EPOCH, &claim(old)).expect("the first");
        let new = gate.install(&keyed(in_flight(1), 9), Instant::EPOCH).flow[0];
        let after = gate.enter(Instant::EPOCH, &claim(old)).expect("the first of the new one");
        assert!(gate.enter(Instant::EPOCH, &claim(old)).is_err());
        assert!(gate.enter(Instant::EPOCH, &claim(new)).is_err());
        drop(before);
        assert!(gate.enter(Instant::EPOCH, &claim(new)).is_err(), "held of the old one");
        // Numbers edited since do not make it forget.
        gate.install(&keyed(in_flight(2), 9), Instant::EPOCH);
        let second = gate.enter(Instant::EPOCH, &claim(old)).expect("a second");
        assert!(gate.enter(Instant::EPOCH, &claim(new)).is_err());
        drop((after, second));
        let both = [new, new].map(|slot| gate.enter(Instant::EPOCH, &claim(slot)).ok());
        assert!(both.iter().all(Option::is_some));
    }

    #[test]
    fn a_request_that_misses_a_key_is_rejected_by_name() {
        let gate = Arc::new(Gate::new(Instant::EPOCH));
        let slot = gate.install(&one(bucket(10, 5)), Instant::EPOCH).flow[0];
        let claim = |key| [Claim { slot, key, cost: 1, patience: Duration::ZERO, plan: None }];
        assert!(gate.enter(Instant::EPOCH, &claim(Key::Shared)).is_ok());
        let rejection = gate.enter(Instant::EPOCH, &claim(Key::Missing)).expect_err("no key");
        assert_eq!((rejection.slot, rejection.reason), (slot, crate::flow::Reason::MissingKey));
        assert_eq!(rejection.report.quotas[0].used, 1);
        let unknown = [Claim {
            slot: SlotId { gate: 0, number: 77 },
            key: Key::Missing,
            cost: 1,
            patience: Duration::ZERO,
            plan: None,
        }];
        assert!(gate.enter(Instant::EPOCH, &unknown).is_ok());
    }

    #[test]
    fn a_report_has_the_usage_of_each_slot() {
        let gate = Arc::new(Gate::new(Instant::EPOCH));
        let flow = vec![rule("rate", bucket(10, 5)), rule("large", in_flight(9))];
        let wanted = Rules { flow, ..paced(rate(10, 1000), 1000, 7) };
        let installed = gate.install(&wanted, Instant::EPOCH);
        let slots = [installed.flow[0], installed.flow[1], installed.pacing.expect("pacing")];
        let claims = slots.map(|slot| Claim {
            slot,
            key: Key::Shared,
            cost: 2,
            patience: Duration::ZERO,
            plan: None,
        });
        let _first = gate.enter(Instant::EPOCH, &claims).expect("a burst");
        let second = gate.enter(Instant::EPOCH, &claims).expect("a burst");
        let ms = Duration::from_millis;
        let quota = |at: usize, verdict, [limit, used]: [u64; 2], [wait, reset]: [u64; 2]| Quota {
            plan: None,
            slot: slots[at],
            verdict,
            limit,
            used,
            cost: 2,
            wait: ms(wait),
            reset: ms(reset),
            // Two fit when the bucket lacks three.
            growth: (at == 0).then_some(ms(100)),
        };
        let expected = [
            quota(0, Verdict::Passed, [5, 4], [0, 400]),
            quota(1, Verdict::Passed, [9, 4], [0, 0]),
            quota(2, Verdict::Delayed, [7, 1], [200, 400]),
        ];
        assert_eq!(second.report.quotas[..], expected);
        assert_eq!(second.permit.start(), Instant::EPOCH + ms(200));
    }

    #[test]
    fn the_statistic_remembers_a_second_and_a_minute() {
        let gate = Arc::new(Gate::new(Instant::EPOCH));
        gate.install(&paced(rate(10, 1000), 150, 9), Instant::EPOCH);
        let at = |millis| Instant::EPOCH + Duration::from_millis(millis);
        let enter = |millis| {
            let pacing = gate.install(&paced(rate(10, 1000), 150, 9), at(0)).pacing;
            let claim = Claim {
                slot: pacing.expect("pacing"),
                key: Key::Shared,
                cost: 1,
                patience: Duration::ZERO,
                plan: None,
            };
            gate.enter(at(millis), &[claim]).ok().map(|admission| admission.permit)
        };
        let first = enter(100).expect("at once");
        let second = enter(100).expect("in 100 ms");
        assert!(enter(100).is_none());
        assert_eq!(gate.observe(at(150)).waiting, 1);
        first.finish(Outcome::Success { at: at(130) });
        second.finish(Outcome::Failure { at: at(900) });
        drop(enter(1_100));

        let seen = gate.observe(at(1_150));
        assert_eq!((seen.in_flight, seen.in_flight_max, seen.waiting), (0, 2, 0));
        let totals = seen.totals;
        assert_eq!((totals.passed, totals.delayed, totals.rejected), (2, 1, 1));
        assert_eq!((totals.completed, totals.failed, totals.cancelled), (1, 1, 1));
        assert_eq!(totals.latency_min, Some(Duration::from_millis(30)));
        assert_eq!(totals.latency_sum, Duration::from_millis(30 + 700));
        assert_eq!(totals.wait_sum, Duration::from_millis(100));
        assert_eq!(seen.waits.iter().sum::<u64>(), 1);
        assert_eq!(seen.last_minute, totals);
        let second = seen.last_second;
        assert_eq!((second.passed, second.failed, second.completed), (1, 1, 0));
        let later = gate.observe(at(61_150));
        assert_eq!((later.last_minute.passed, later.totals), (0, totals));
    }
}

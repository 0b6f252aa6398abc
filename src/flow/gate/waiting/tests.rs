//! Requests that wait for places of a gate.

mod measures;

use super::*;
use crate::flow::{
    Admission, Algorithm, Change, Gates, Key,
    Key::Shared,
    Outcome, QueueConfig, ReasonKind, Rule, Rules,
    limiter::{concurrency, token_bucket},
    timeline::{paced, rate, rule},
};
use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    task::Wake,
};

/// Counts how often a request is woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// A request of a gate under test.
struct Request {
    permit: Permit,
    bell: Arc<Bell>,
}

/// The end of a wait, as a test sees it.
#[derive(Debug, PartialEq)]
enum Seen {
    Waits,
    /// After so many milliseconds.
    Starts(u128),
    Rejected(Reason),
}

fn at(millis: u64) -> Instant {
    Instant::EPOCH + Duration::from_millis(millis)
}

/// Returns a rule with this many places and a queue.
fn places(name: &str, limit: u64, max_wait: u64, max: u32) -> Rule {
    let algorithm = Algorithm::Concurrency(concurrency::Config { limit });
    let queue = QueueConfig::new(Duration::from_millis(max_wait), max);
    Rule { queue: Some(Box::new(queue)), ..rule(name, algorithm) }
}

fn bucket(name: &str, burst: u64) -> Rule {
    let config = token_bucket::Config { rate: rate(1, 1_000_000), burst };
    rule(name, Algorithm::TokenBucket(config))
}

fn rules<const N: usize>(flow: [Rule; N]) -> Rules {
    Rules { flow: flow.into(), ..Rules::default() }
}

/// Gates with the slots of their rules.
struct World {
    gates: Gates,
    slots: Vec<SlotId>,
}

impl World {
    fn new(rules: &Rules) -> Self {
        let gate = Arc::new(Gate::new(Instant::EPOCH));
        let installed = gate.install(rules, Instant::EPOCH);
        let slots = installed.flow.into_iter().chain(installed.pacing).collect();
        Self { gates: Gates::from(gate), slots }
    }

    /// Adds a budget with these rules.
    fn with_budget(mut self, budget: &Rules) -> Self {
        let gate = Arc::new(Gate::with_number(1, Instant::EPOCH));
        self.slots.extend(gate.install(budget, Instant::EPOCH).flow);
        self.gates = Gates::new(Arc::clone(self.gates.own()), [&gate].into_iter());
        self
    }

    fn gate(&self) -> &Gate {
        self.gates.own()
    }

    fn edit(&self, rules: &Rules, now: u64) -> Vec<Change> {
        let installed = self.gate().install(rules, at(now));
        installed.changes.into_iter().map(|(_, change)| change).collect()
    }

    fn claims(&self, key: Key, cost: u64) -> Vec<Claim> {
        let claim = |&slot| Claim { slot, key, cost, patience: Duration::ZERO, plan: None };
        self.slots.iter().map(claim).collect()
    }

    fn enter(&self, now: u64) -> Result<Request, Reason> {
        self.enter_as(now, Shared, 1)
    }

    fn enter_as(&self, now: u64, key: Key, cost: u64) -> Result<Request, Reason> {
        let Admission { permit, .. } = self
            .gates
            .enter(at(now), &self.claims(key, cost))
            .map_err(|rejection| rejection.reason)?;
        let mut request = Request { permit, bell: Arc::default() };
        if request.permit.is_waiting() {
            let seen = request.look(now);
            assert_eq!(seen, Seen::Waits, "it was to wait");
        }
        Ok(request)
    }

    fn start(&self, now: u64) -> Request {
        let request = self.enter(now).expect("room");
        assert!(!request.permit.is_waiting(), "it starts at once");
        request
    }

    fn wait(&self, now: u64) -> Request {
        let request = self.enter(now).expect("room to wait");
        assert!(request.permit.is_waiting(), "there is no place");
        request
    }

    fn used(&self, rule: usize) -> u64 {
        self.gate().observe(Instant::EPOCH).rules[rule].used
    }
}

impl Request {
    fn look(&mut self, now: u64) -> Seen {
        let waker = Waker::from(Arc::clone(&self.bell));
        match self.permit.poll_start(at(now), &waker) {
            Poll::Pending => Seen::Waits,
            Poll::Ready(Ok(report)) => Seen::Starts(report.wait().as_millis()),
            Poll::Ready(Err(rejection)) => Seen::Rejected(rejection.reason),
        }
    }

    fn is_woken(&self) -> bool {
        self.bell.0.load(Relaxed) > 0
    }

    fn end(self, now: u64) {
        self.permit.finish(Outcome::Success { at: at(now) });
    }
}

#[test]
fn requests_start_in_the_order_of_their_arrival() {
    let world = World::new(&rules([places("it", 1, 100, 9)]));
    let first = world.start(0);
    let mut second = world.wait(1);
    let mut third = world.wait(2);
    assert!(!second.is_woken());

    first.end(10);
    assert!(second.is_woken() && !third.is_woken(), "the place goes to one");
    assert_eq!(second.look(10), Seen::Starts(9));
    assert_eq!(second.permit.start(), at(10));
    assert_eq!(third.look(10), Seen::Waits);
    second.end(30);
    assert_eq!(third.look(31), Seen::Starts(28), "from when the place was free");
    third.end(40);
    assert_eq!(world.used(0), 0);

    let seen = world.gate().observe(at(40));
    let counts = seen.rules[0].counts;
    assert_eq!((counts.passed, counts.delayed, counts.rejected.total()), (1, 2, 0));
    assert_eq!((seen.totals.passed, seen.totals.delayed, seen.totals.completed), (1, 2, 3));
    assert_eq!((seen.in_flight, seen.in_flight_max, seen.waiting), (0, 3, 0));
    assert_eq!(seen.totals.wait_sum, Duration::from_millis(9 + 28));
}

#[test]
fn nobody_overtakes_a_request_that_needs_more_places() {
    let world = World::new(&rules([places("it", 3, 100, 9)]));
    let first = world.enter_as(0, Shared, 2).expect("room");
    let mut large = world.enter_as(1, Shared, 2).expect("it may wait");
    let mut small = world.enter_as(2, Shared, 1).expect("it may wait");
    assert!(small.permit.is_waiting(), "one place is free, but another request is first");
    first.end(10);
    assert_eq!((large.look(10), small.look(10)), (Seen::Starts(9), Seen::Starts(8)));
}

#[test]
fn those_behind_a_large_request_start_when_that_leaves_or_is_late() {
    let world = World::new(&rules([places("it", 3, 100, 9)]));
    let _first = world.enter_as(0, Shared, 2).expect("room");
    let leaving = world.enter_as(1, Shared, 3).expect("it may wait");
    let mut late = world.enter_as(2, Shared, 2).expect("it may wait");
    let mut small = world.enter_as(50, Shared, 1).expect("it may wait");
    leaving.permit.leave(at(60));
    assert_eq!(small.look(60), Seen::Waits, "the next one needs two places");
    assert!(matches!(late.look(102), Seen::Rejected(_)));
    assert!(small.is_woken());
    assert_eq!(small.look(102), Seen::Starts(52));
}

#[test]
fn thousands_that_leave_give_their_places_and_their_memory_back() {
    let keyed = Some(crate::flow::Keyed { by: "client_ip".into(), max_keys: 9_000 });
    let world = World::new(&rules([Rule { keyed, ..places("it", 1, 1_000, 9_000) }]));
    let key = |client: u128| Key::Of((client + 1) << 64);
    let running: Vec<_> = (0..2_000).map(|client| world.enter_as(0, key(client), 1)).collect();
    assert!(running.iter().all(Result::is_ok));
    let waiting: Vec<_> = (0..4_000_u128)
        .map(|nth| world.enter_as(1, key(nth % 2_000), 1).expect("it may wait"))
        .collect();
    assert_eq!(world.gate().observe(at(1)).rules[0].waiting, Some(4_000));
    drop(waiting);
    let seen = world.gate().observe(at(2));
    assert_eq!((seen.rules[0].waiting, seen.in_flight), (Some(0), 2_000));
    drop(running);
    assert_eq!(world.gate().observe(at(3)).in_flight, 0);
}

#[test]
fn a_full_queue_rejects_with_an_estimate_of_the_rate_of_starts() {
    let world = World::new(&rules([places("it", 1, 500, 2)]));
    let mut running = world.start(0);
    let mut waiting = vec![world.wait(0), world.wait(0)];
    let long = Duration::from_millis(500);
    let full = |now| world.enter(now).map(|_| ()).expect_err("two wait");
    assert_eq!(full(1), Reason::NoRoomToWait { retry_after: long }, "nothing has started yet");

    for now in [20, 40, 60] {
        running.end(now);
        running = waiting.remove(0);
        assert!(matches!(running.look(now), Seen::Starts(_)));
        waiting.push(world.wait(now));
    }
    let estimate = Duration::from_millis(2 * 20);
    assert_eq!(full(60), Reason::NoRoomToWait { retry_after: estimate });
    assert_eq!(full(60).kind(), ReasonKind::Queue);
}

#[test]
fn a_request_that_has_waited_for_too_long_gives_back_what_it_was_charged() {
    let flow = [bucket("rate", 5), places("it", 1, 100, 9)];
    let world = World::new(&rules(flow));
    let _running = world.start(0);
    let mut late = world.wait(10);
    assert_eq!(world.used(0), 2, "the rate counts it when it arrives");
    assert_eq!(late.permit.waits_until(), Some(at(110)));
    assert_eq!(late.look(109), Seen::Waits);

    let reason = Reason::WaitedTooLong { retry_after: Duration::from_millis(100) };
    assert_eq!(late.look(110), Seen::Rejected(reason));
    drop(late);
    assert_eq!((world.used(0), world.used(1)), (1, 1));
    let seen = world.gate().observe(at(110));
    assert_eq!(seen.rules[1].counts.rejected.of(ReasonKind::Queue), 1);
    assert_eq!((seen.totals.rejected, seen.in_flight, seen.waiting), (1, 1, 0));
}

#[test]
fn a_client_that_leaves_frees_its_turn_and_what_it_was_charged() {
    let flow = [bucket("rate", 5), places("it", 1, 100, 9)];
    let world = World::new(&rules(flow));
    let running = world.start(0);
    let leaving = world.wait(1);
    let mut next = world.wait(2);
    leaving.permit.leave(at(5));
    assert_eq!((world.used(0), world.gate().observe(at(5)).waiting), (2, 1));

    running.end(10);
    assert_eq!(next.look(10), Seen::Starts(8));
    let seen = world.gate().observe(at(10));
    assert_eq!((seen.in_flight, seen.totals.cancelled, seen.totals.delayed), (1, 1, 2));
}

#[test]
fn a_client_that_leaves_after_its_turn_has_come_passes_the_place_on() {
    let world = World::new(&rules([places("it", 1, 100, 9)]));
    let running = world.start(0);
    let leaving = world.wait(1);
    let mut next = world.wait(2);
    running.end(10);
    assert!(leaving.is_woken() && !next.is_woken());
    drop(leaving);
    assert!(next.is_woken());
    assert_eq!(next.look(11), Seen::Starts(8));
}

#[test]
fn a_place_is_not_given_to_a_request_whose_wait_is_over() {
    let world = World::new(&rules([places("it", 1, 100, 9)]));
    let running = world.start(0);
    let mut late = world.wait(0);
    let mut next = world.wait(50);
    running.end(120);
    assert!(late.is_woken());
    assert!(matches!(late.look(120), Seen::Rejected(Reason::WaitedTooLong { .. })));
    assert_eq!(next.look(120), Seen::Starts(70));
}

#[test]
fn a_request_waits_in_one_queue_at_a_time_and_keeps_the_places_that_it_has() {
    let own = rules([places("own", 1, 100, 9)]);
    let shared = rules([places("shared", 1, 60, 9)]);
    let world = World::new(&own).with_budget(&shared);
    let first = world.start(0);
    let mut second = world.wait(10);

    // Another route has the place of the budget when that of the route is free.
    let other = Gates::new(
        Arc::new(Gate::new(Instant::EPOCH)),
        world.gates.budgets().into_iter().flat_map(|budgets| budgets.all()),
    );
    let claims = world.claims(Shared, 1);
    let mut of_other = other.enter(at(20), &claims[1..]).expect("it may wait").permit;
    assert!(of_other.poll_start(at(20), Waker::noop()).is_pending());
    first.end(30);
    assert!(
        of_other.poll_start(at(30), Waker::noop()).is_ready(),
        "the first of the budget's queue"
    );
    assert_eq!(second.look(30), Seen::Waits, "it has the route's place, and waits for the other");
    assert_eq!(second.permit.waits_until(), Some(at(70)), "counted from its arrival");
    assert_eq!(world.used(0), 1);

    of_other.finish(Outcome::Success { at: at(50) });
    assert!(second.is_woken());
    assert_eq!(second.look(50), Seen::Starts(40));
    second.end(60);
    assert_eq!(world.used(0), 0);
}

#[test]
fn a_rejection_in_a_later_queue_gives_back_the_places_that_the_request_has() {
    let own = rules([places("own", 1, 100, 9)]);
    let shared = rules([places("shared", 1, 60, 9)]);
    let world = World::new(&own).with_budget(&shared);
    let claims = world.claims(Shared, 1);
    let other = Gates::new(
        Arc::new(Gate::new(Instant::EPOCH)),
        world.gates.budgets().into_iter().flat_map(|budgets| budgets.all()),
    );
    let _held = other.enter(at(0), &claims[1..]).expect("room").permit;
    let mut late = world.wait(10);
    let mut next = world.wait(11);
    assert_eq!(world.used(0), 1);
    assert!(matches!(late.look(70), Seen::Rejected(Reason::WaitedTooLong { .. })));
    assert!(next.is_woken(), "it has the route's place now");
    assert!(matches!(next.look(70), Seen::Waits));
}

#[test]
fn clients_with_places_of_their_own_wait_for_those() {
    let keyed = Some(crate::flow::Keyed { by: "client_ip".into(), max_keys: 9 });
    let world = World::new(&rules([Rule { keyed, ..places("it", 1, 100, 2) }]));
    let [one, other] = [1_u128 << 64, 2 << 64].map(Key::Of);
    let first = world.enter_as(0, one, 1).expect("room");
    let mut second = world.enter_as(1, one, 1).expect("it may wait");
    let of_other = world.enter_as(2, other, 1).expect("room of its own");
    assert!(second.permit.is_waiting() && !of_other.permit.is_waiting());
    let _third = world.enter_as(3, one, 1).expect("it may wait");
    let reason = world.enter_as(4, other, 1).map(|_| ()).expect_err("two wait in all");
    assert!(matches!(reason, Reason::NoRoomToWait { .. }));
    of_other.end(5);
    assert_eq!(second.look(5), Seen::Waits);
    first.end(6);
    assert_eq!(second.look(6), Seen::Starts(5));
}

#[test]
fn an_edit_keeps_the_queue_and_its_order() {
    let world = World::new(&rules([places("it", 1, 100, 9)]));
    let _running = world.start(0);
    let mut waiting = [world.wait(1), world.wait(2), world.wait(3)];

    assert_eq!(world.edit(&rules([places("it", 2, 500, 9)]), 10), [Change::Converted]);
    assert_eq!(
        waiting.each_mut().map(|request| request.look(10)),
        [Seen::Starts(9), Seen::Waits, Seen::Waits]
    );
    assert_eq!(waiting[1].permit.waits_until(), Some(at(102)), "as when it came");

    // Of two that wait, the newest is one too many.
    assert_eq!(world.edit(&rules([places("it", 2, 500, 1)]), 20), [Change::Converted]);
    assert_eq!(waiting[1].look(20), Seen::Waits);
    assert!(matches!(waiting[2].look(20), Seen::Rejected(Reason::NoRoomToWait { .. })));
}

#[test]
fn those_that_wait_go_on_when_an_edit_takes_the_queue_away() {
    let world = World::new(&rules([places("it", 1, 100, 9)]));
    let running = world.start(0);
    let mut waiting = world.wait(1);
    assert_eq!(
        world.edit(&rules([Rule { queue: None, ..places("it", 1, 1, 1) }]), 5),
        [Change::Converted]
    );
    let reason = world.enter(6).map(|_| ()).expect_err("no other may wait");
    assert!(matches!(reason, Reason::NoRoomToWait { .. }));
    running.end(10);
    assert_eq!(waiting.look(10), Seen::Starts(9));
    assert_eq!(world.enter(11).map(|_| ()), Err(Reason::Concurrency { limit: 1 }));
}

#[test]
fn an_edit_that_resets_the_rule_has_those_that_wait_queue_for_the_new_places() {
    let keyed = Some(crate::flow::Keyed { by: "client_ip".into(), max_keys: 9 });
    let world = World::new(&rules([places("it", 1, 100, 9)]));
    let running = world.start(0);
    let mut waiting = [world.wait(1), world.wait(2)];
    let reset = rules([Rule { keyed, ..places("it", 1, 100, 9) }]);
    assert_eq!(world.edit(&reset, 5), [Change::Reset]);
    assert_eq!(waiting[0].look(5), Seen::Starts(4), "what held the old place does not count");
    assert_eq!(waiting[1].look(5), Seen::Waits);
    running.end(6);
    assert_eq!(waiting[1].look(6), Seen::Waits);
    let [first, mut second] = waiting;
    first.end(7);
    assert_eq!(second.look(7), Seen::Starts(5));
}

/// An edit and its revert, or any number of edits, within one wait.
#[test]
fn no_place_is_lost_by_several_edits_that_reset_the_rule() {
    let keyed = Some(crate::flow::Keyed { by: "client_ip".into(), max_keys: 9 });
    let plain = rules([places("it", 2, 1_000_000, 99)]);
    let by_client = rules([Rule { keyed, ..places("it", 2, 1_000_000, 99) }]);
    let world = World::new(&plain);
    let mut open = vec![world.start(0), world.start(0)];
    let mut waiting: Vec<Request> = (1..=8).map(|now| world.wait(now)).collect();

    let mut now = 10;
    for edit in 0..40 {
        now += 1;
        let edited = if edit % 2 == 0 { &by_client } else { &plain };
        assert_eq!(world.edit(edited, now), [Change::Reset]);
        if edit % 4 == 3 {
            // One leaves, perhaps with a place of which it has not heard.
            drop(waiting.pop());
        }
        if edit % 8 == 1 {
            open.remove(0).end(now);
        }
        if edit % 3 == 0 {
            let (started, still): (Vec<_>, Vec<_>) = waiting
                .into_iter()
                .map(|mut request| (request.look(now), request))
                .partition(|(seen, _)| matches!(seen, Seen::Starts(_)));
            open.extend(started.into_iter().map(|(_, request)| request));
            waiting = still.into_iter().map(|(_, request)| request).collect();
        }
    }
    drop(waiting);
    for request in open {
        request.end(now);
    }

    assert_eq!(world.used(0), 0);
    let world = World { slots: vec![world.gate().observe(at(now)).rules[0].slot], ..world };
    let _both = [world.start(now), world.start(now)];
    assert!(world.enter(now).expect("it may wait").permit.is_waiting());
}

#[test]
fn a_place_that_was_given_before_an_edit_is_given_back_where_it_was_taken() {
    let keyed = |by: &str| Some(crate::flow::Keyed { by: by.into(), max_keys: 9 });
    let by = |by: &str| rules([Rule { keyed: keyed(by), ..places("it", 1, 100, 9) }]);
    let world = World::new(&by("client_ip"));
    let keys = [1_u128 << 64, 2 << 64, 3 << 64].map(Key::Of);
    let running = keys.map(|key| world.enter_as(0, key, 1).expect("room"));
    let mut waiting = keys.map(|key| world.enter_as(1, key, 1).expect("it may wait"));
    for request in running {
        request.end(2);
    }
    // All have their places, and none has heard of it.
    assert_eq!(world.edit(&by("header:x-k"), 3), [Change::Reset]);
    let slot = world.gate().observe(at(3)).rules[0].slot;
    let fresh = World { slots: vec![slot], ..world };
    let other = fresh.enter_as(4, keys[0], 1).expect("room in the new table");
    assert!(!other.permit.is_waiting());

    for request in &mut waiting {
        assert!(matches!(request.look(5), Seen::Starts(_)));
    }
    for request in waiting {
        request.end(6);
    }
    assert!(fresh.enter_as(7, keys[0], 1).expect("it may wait").permit.is_waiting());
    other.end(8);
    assert_eq!(fresh.used(0), 0);
}

#[test]
fn requests_start_at_once_when_their_rule_is_gone() {
    let world = World::new(&rules([places("it", 1, 100, 9)]));
    let _running = world.start(0);
    let mut waiting = world.wait(1);
    assert_eq!(world.edit(&Rules::default(), 5), [Change::Removed]);
    assert!(waiting.is_woken());
    assert_eq!(waiting.look(5), Seen::Starts(0));
}

#[test]
fn a_dry_run_holds_no_request_back() {
    let dry = Rule { dry_run: true, ..places("it", 1, 100, 9) };
    let world = World::new(&rules([dry]));
    let _first = world.start(0);
    let _second = world.start(1);
    let counts = world.gate().observe(at(1)).rules[0].counts;
    assert_eq!((counts.passed, counts.dry_run_rejected.total()), (1, 1));
}

#[test]
fn a_paced_request_keeps_its_start_and_its_place() {
    let paced = Rules { flow: vec![places("it", 1, 500, 9)], ..paced(rate(10, 1000), 500, 9) };
    let world = World::new(&paced);
    let first = world.start(0);
    let mut second = world.wait(0);
    first.end(10);
    assert_eq!(second.look(10), Seen::Starts(100), "pacing delays it for longer");
    assert_eq!(second.permit.start(), at(100));
}

#[test]
fn a_question_without_effect_says_that_a_request_would_wait() {
    let world = World::new(&rules([places("it", 1, 100, 1)]));
    let _running = world.start(0);
    let claims = world.claims(Shared, 1);
    let report = world.gates.peek(at(1), &claims).expect("it may wait");
    assert_eq!(report.quotas[0].verdict, Verdict::Delayed);
    let _waiting = world.wait(1);
    let rejection = world.gates.peek(at(2), &claims).expect_err("the queue is full");
    assert_eq!(rejection.reason.kind(), ReasonKind::Queue);
    assert_eq!(world.gate().observe(at(2)).waiting, 1);
}

#[test]
fn sharers_take_turns_for_the_places() {
    let world = World::new(&rules([places("it", 1, 1_000, 9)]));
    let mut running = world.start(0);
    let mut waiting: Vec<(u64, Request)> = Vec::new();
    for key in [1, 1, 1, 2, 3] {
        let Admission { mut permit, .. } =
            world.gates.enter(at(1), &world.claims(Shared, 1)).expect("room to wait");
        permit.share(vec![(world.slots[0], Sharer { key, ..Sharer::default() })]);
        let mut request = Request { permit, bell: Arc::default() };
        assert_eq!(request.look(1), Seen::Waits);
        waiting.push((key, request));
    }

    let mut order = Vec::new();
    for now in 2..7 {
        running.end(now);
        let next = waiting.iter().position(|(_, request)| request.is_woken()).expect("one starts");
        let (key, mut request) = waiting.remove(next);
        assert!(matches!(request.look(now), Seen::Starts(_)));
        order.push(key);
        running = request;
    }
    assert_eq!(order, [1, 2, 3, 1, 1]);
}

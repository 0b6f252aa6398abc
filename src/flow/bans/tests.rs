use super::*;
use crate::flow::{
    Algorithm, Change, Gate, ReasonKind, Report, Rule, Rules, SlotId,
    limiter::{
        fixed_window::{self, Align},
        token_bucket,
    },
    timeline::{Timeline, keyed, one, rate, rule},
    transfer::{Journal, StatePart},
};
use proptest::prelude::{Strategy, prop_assert_eq, prop_oneof, proptest};
use std::sync::Arc;

fn bucket(count: u64, window: u64, burst: u64) -> Algorithm {
    Algorithm::TokenBucket(token_bucket::Config { rate: rate(count, window), burst })
}

fn banning(mut rules: Rules, millis: u64) -> Rules {
    for rule in &mut rules.flow {
        rule.reject_for = Some(Duration::from_millis(millis));
    }
    rules
}

fn at(millis: u64) -> Instant {
    Instant::EPOCH + Duration::from_millis(millis)
}

#[test]
fn a_client_that_exceeds_is_rejected_for_the_whole_time_and_no_longer() {
    Timeline::new(&banning(keyed(bucket(10, 1000, 2), 9), 5000)).check(
        "
        0    key=a x2 pass
        0    key=a block rate 5000
        1    key=a block banned 4999
        1    key=b pass
        4999 key=a block banned 1
        5000 key=a x2 pass
        5000 key=a block rate 5000
        ",
    );
}

#[test]
fn the_wait_ends_when_the_limit_admits_the_request_again() {
    let window = fixed_window::Config { rate: rate(2, 60_000), align: Align::Clock };
    Timeline::new(&banning(one(Algorithm::FixedWindow(window)), 5000)).check(
        "
        0     x2 pass
        0     block rate 60000
        2000  block banned 58000
        59999 block rate 5000
        60000 block banned 4999
        64999 x2 pass
        ",
    );
}

#[test]
fn a_request_that_never_fits_begins_no_ban_and_a_rejection_elsewhere_neither() {
    let mut rules = banning(one(bucket(10, 1000, 2)), 5000);
    rules.flow.push(rule("other", bucket(1, 1000, 1)));
    Timeline::new(&rules).check(
        "
        0    cost=3 block costly 2
        0    pass
        0    block rate 1000
        0    block rate 1000
        1000 pass
        ",
    );
}

#[test]
fn what_others_have_used_in_a_full_table_bans_no_client() {
    let gate = Gate::new(at(0));
    let slot = gate.install(&one(bucket(1, 1000, 1)), at(0)).flow[0];
    let claim = Claim { slot, key: Key::Of(7), cost: 1, patience: Duration::ZERO, plan: None };
    let rejected = Decision::Reject(Reason::Rate { retry_after: Duration::from_millis(3) });
    let length = Duration::from_secs(5);
    let longer = Decision::Reject(Reason::Rate { retry_after: length });

    let mut bans = Bans::new(9);
    assert_eq!(bans.decide(&claim, rejected, at(0), length, true), (longer, true));
    assert_eq!(bans.decide(&claim, rejected, at(0), length, false), (rejected, false));

    // One that is banned stays so, wherever its usage is.
    assert!(bans.begin(claim.key, at(0), at(5000)));
    let banned = Decision::Reject(Reason::Banned { retry_after: length });
    assert_eq!(bans.decide(&claim, Decision::Pass, at(0), length, false), (banned, false));
}

#[test]
fn a_dry_run_counts_whom_it_would_ban() {
    let mut rules = banning(one(bucket(10, 1000, 1)), 5000);
    rules.flow[0].dry_run = true;
    let timeline = Timeline::new(&rules).check("0 x3 pass\n1 pass");
    let counts = timeline.gate.observe(at(1)).rules[0].counts;
    let rejected = counts.dry_run_rejected;
    let of = |kind| rejected.of(kind);
    assert_eq!((of(ReasonKind::Rate), of(ReasonKind::Banned), counts.bans), (1, 2, 1));
}

#[test]
fn a_ban_survives_edits_of_numbers_and_of_the_algorithm() {
    let window = fixed_window::Config { rate: rate(9, 1000), align: Align::Clock };
    let window = Algorithm::FixedWindow(window);
    Timeline::new(&banning(keyed(bucket(1, 1000, 1), 9), 5000))
        .check("0 key=a pass\n0 key=a block rate 5000")
        .edit(&banning(keyed(bucket(9, 1000, 9), 5), 100), &[Change::Converted])
        .check("10 key=a block banned 4990")
        .edit(&banning(keyed(window.clone(), 5), 100), &[Change::Reset])
        .check("20 key=a block banned 4980\n20 key=b pass")
        .edit(&keyed(window.clone(), 5), &[Change::Converted])
        .check("30 key=a pass");
}

/// A rule whose clients are banned for a minute, with one that is.
fn gate_with_ban() -> (Arc<Gate>, SlotId) {
    let gate = Arc::new(Gate::new(Instant::EPOCH));
    let rules = banning(keyed(bucket(1, 1000, 1), 9), 60_000);
    let slot = gate.install(&rules, Instant::EPOCH).flow[0];
    assert!(enter(&gate, slot, 7, 0).is_ok());
    assert_eq!(enter(&gate, slot, 7, 0), Err(Reason::Rate { retry_after: Duration::from_mins(1) }));
    (gate, slot)
}

fn enter(gate: &Arc<Gate>, slot: SlotId, key: u128, millis: u64) -> Result<(), Reason> {
    let claim = Claim { slot, key: Key::Of(key), cost: 1, patience: Duration::ZERO, plan: None };
    gate.enter(at(millis), &[claim]).map(drop).map_err(|rejection| rejection.reason)
}

#[test]
fn a_reset_ends_a_ban_and_is_shown_until_then() {
    let (gate, slot) = gate_with_ban();
    assert_eq!(gate.bans(slot, at(1), 9), (1, vec![(Key::Of(7), at(60_000))]));
    assert_eq!(gate.reset_key(slot, at(30_000), Key::Of(7)), Ok(true), "though nothing is used");
    assert_eq!(gate.bans(slot, at(30_000), 9), (0, vec![]));
    assert_eq!(enter(&gate, slot, 7, 30_000), Ok(()));

    let (gate, slot) = gate_with_ban();
    gate.reset_all(slot).expect("it can be reset");
    assert_eq!(enter(&gate, slot, 7, 1), Ok(()));
}

#[test]
fn peeking_begins_no_ban() {
    let gate = Arc::new(Gate::new(Instant::EPOCH));
    let rules = banning(keyed(bucket(1, 1000, 1), 9), 60_000);
    let slot = gate.install(&rules, Instant::EPOCH).flow[0];
    assert!(enter(&gate, slot, 7, 0).is_ok());
    let claim = [Claim { slot, key: Key::Of(7), cost: 1, patience: Duration::ZERO, plan: None }];
    assert!(gate.peek(at(1), &claim).is_err());
    assert_eq!(enter(&gate, slot, 7, 1_000), Ok(()));
}

#[test]
fn every_way_of_a_decision_finds_a_ban() {
    let (gate, slot) = gate_with_ban();
    let claim = [Claim { slot, key: Key::Of(7), cost: 1, patience: Duration::ZERO, plan: None }];
    let banned = Some(Duration::from_secs(50));
    let uncounted = gate.decide_uncounted(at(10_000), &claim, &mut Report::default());
    assert_eq!(uncounted.err().and_then(|rejected| rejected.reason.retry_after()), banned);
    assert!(!gate.pass_uncounted(at(10_000), &claim, &mut None));
    let reserved = gate.reserve(at(10_000), &claim).map(drop);
    assert_eq!(reserved.err().and_then(|rejected| rejected.reason.retry_after()), banned);
    assert_eq!(gate.observe(at(10_000)).rules[0].counts.bans, 1);
}

#[test]
fn a_cost_that_is_settled_beyond_the_limit_begins_a_ban() {
    let gate = Arc::new(Gate::new(Instant::EPOCH));
    let mut rules = banning(keyed(bucket(10, 1000, 10), 9), 60_000);
    rules.flow[0].settles = true;
    let slot = gate.install(&rules, Instant::EPOCH).flow[0];
    let ask = |millis| {
        let key = Key::Of(7);
        let claim = Claim { slot, key, cost: 1, patience: Duration::ZERO, plan: None };
        let entered = gate.enter(at(millis), &[claim]).map(|admission| admission.permit);
        entered.map_err(|rejection| rejection.reason)
    };
    let mut all = ask(0).expect("the first");
    all.settle(at(1), |_| Some(10_u64.into()));
    assert_eq!(gate.bans(slot, at(1), 9).0, 0, "the limit is used up, and not exceeded");
    let mut more = ask(1_000).expect("it is full again");
    more.settle(at(1_001), |_| Some(11_u64.into()));
    let rejected = ask(1_002).expect_err("it is banned");
    let retry_after = Duration::from_millis(59_999);
    assert_eq!(rejected, Reason::Banned { retry_after });
    assert!(ask(61_000).is_err());
    assert!(ask(61_001).is_ok());
}

#[test]
fn bans_move_to_another_process_with_those_that_begin_meanwhile() {
    let (old, slot) = gate_with_ban();
    let (journal, changes) = Journal::new();
    let export = old.begin_export(journal);
    let new = Arc::new(Gate::new(Instant::EPOCH));
    let slots = new.import(&export, Instant::EPOCH);
    let number = export.rules[0].0;
    let here = slots.find(number).expect("a slot");
    let mut parts = Vec::new();
    while old.export(number, &mut parts) {}
    assert!(parts.iter().any(|part| matches!(part, StatePart::Bans(_))));
    for part in parts {
        assert!(new.import_part(here, Instant::EPOCH, part));
    }

    assert!(enter(&old, slot, 8, 10).is_ok());
    assert!(enter(&old, slot, 8, 10).is_err());
    while let Some(late) = changes.next() {
        new.apply(here, late.owner, late.change);
    }
    let banned = |key, millis| match enter(&new, here, key, millis) {
        Err(Reason::Banned { retry_after }) => Some(retry_after.as_millis()),
        _ => None,
    };
    assert_eq!(banned(7, 1_000), Some(59_000));
    assert_eq!(banned(8, 1_000), Some(59_010));
}

/// A step of a walk.
#[derive(Clone, Copy, Debug)]
enum Step {
    Begin { key: u128, length: u64 },
    Lift(u128),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..6_u128, 1..50_u64).prop_map(|(key, length)| Step::Begin { key, length }),
        (0..6_u128).prop_map(Step::Lift),
        (0..20_u64).prop_map(Step::Wait),
    ]
}

proptest! {
    /// The oracle keeps a list, and looks through all of it.
    #[test]
    fn bans_are_as_a_list_has_them(
        steps in proptest::collection::vec(step(), 0..60),
        most in 1..5_usize,
    ) {
        let mut bans = Bans::new(most);
        let mut list: Vec<(Instant, u128)> = Vec::new();
        let mut now = at(0);
        for step in steps {
            match step {
                Step::Begin { key, length } => {
                    let end = now + Duration::from_millis(length);
                    let is_new = !list.iter().any(|(end, other)| *other == key && now < *end);
                    prop_assert_eq!(bans.begin(Key::Of(key), now, end), is_new);
                    if is_new {
                        list.retain(|(end, other)| *other != key && now < *end);
                        list.push((end, key));
                        list.sort_unstable();
                        let excess = list.len().saturating_sub(most);
                        list.drain(..excess);
                    }
                }
                Step::Lift(key) => {
                    let was = list.iter().any(|(end, other)| *other == key && now < *end);
                    prop_assert_eq!(bans.lift(Key::Of(key), now), was);
                    list.retain(|(_, other)| *other != key);
                }
                Step::Wait(millis) => now = now + Duration::from_millis(millis),
            }
            let expected: Vec<_> = list.iter().rev().filter(|(end, _)| now < *end)
                .map(|(end, key)| (Key::Of(*key), *end)).collect();
            prop_assert_eq!(bans.in_force(now).collect::<Vec<_>>(), expected);
        }
    }
}

#[test]
fn a_rule_says_how_much_memory_its_bans_may_take() {
    let rules = keyed(bucket(1, 1000, 1), 1000);
    let without: &Rule = &rules.flow[0];
    let with = &banning(rules.clone(), 1000).flow[0];
    assert_eq!(with.most_bytes(false) - without.most_bytes(false), 1000 * BAN_BYTES);
}

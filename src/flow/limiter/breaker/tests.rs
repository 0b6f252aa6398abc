//! Timelines of the breaker.

use super::*;
use crate::flow::{
    Change, Claim, Gate, Key, Permit, Rules,
    limiter::{Algorithm, concurrency},
    timeline::{Timeline, check, one, paced, rate},
};
use std::sync::Arc;

/// Opens at more than half of at least 4 answers in 100 ms, for 50 ms.
fn half() -> Config {
    Config {
        error_ratio: Ratio::new(500_000),
        slow: None,
        errors: None,
        min_requests: 4,
        window: Duration::from_millis(100),
        buckets: 10,
        open_for: Duration::from_millis(50),
        probes: 2,
        dry_run: false,
    }
}

fn rules(config: Config) -> Rules {
    Rules { breaker: Some(config), ..Rules::default() }
}

#[test]
fn it_opens_when_more_than_the_ratio_fail() {
    check(
        &rules(half()),
        "
        0 x5   pass
        1 fail 4
        1 fail 3
        1 ok   2
        1 ok   1
        1      pass
        2 fail 1
        2      block open 50
        51.999999 block open 0.000001
        ",
    );
}

#[test]
fn fewer_answers_than_the_least_open_nothing() {
    check(
        &rules(half()),
        "
        0 x4   pass
        1 fail 3
        1 fail 2
        1 fail 1
        1      pass
        1 fail 1
        1      block open 50
        ",
    );
}

#[test]
fn answers_are_forgotten_when_the_window_has_passed() {
    check(
        &rules(half()),
        "
        0   x4   pass
        5   fail 3
        5   fail 2
        5   fail 1
        100 fail 0
        100 x3   pass
        199 fail 2
        199 fail 1
        199      pass
        199 fail 1
        199      block open 50
        ",
    );
}

#[test]
fn as_many_probes_as_wanted_close_it_if_all_are_good() {
    check(
        &rules(half()),
        "
        0 x4   pass
        0 fail 3
        0 fail 2
        0 fail 1
        0 fail 0
        50 x2  pass
        50     block probing
        51 ok  1
        51     block probing
        60 ok  0
        60 x3  pass
        61 fail 2
        61 fail 1
        61 fail 0
        61     pass
        ",
    );
}

#[test]
fn one_bad_probe_opens_it_again_and_the_others_are_not_heard() {
    check(
        &rules(half()),
        "
        0 x4    pass
        0 fail  3
        0 fail  2
        0 fail  1
        0 fail  0
        50 x2   pass
        55 fail 1
        55      block open 50
        56 ok   0
        104     block open 1
        105     pass
        ",
    );
}

#[test]
fn a_probe_without_an_answer_gives_its_place_back() {
    check(
        &rules(half()),
        "
        0 x4    pass
        0 fail  3
        0 fail  2
        0 fail  1
        0 fail  0
        50 x2   pass
        55 done 1
        55      pass
        55      block probing
        56 ok   1
        57 ok   0
        57 x9   pass
        ",
    );
}

#[test]
fn what_was_under_way_when_it_opened_decides_nothing() {
    check(
        &rules(half()),
        "
        0 x7    pass
        0 fail  6
        0 fail  5
        0 fail  4
        0 fail  3
        50      pass
        51 ok   3
        51 ok   2
        51 fail 1
        51      pass
        51      block probing
        52 ok   1
        52 ok   0
        52 x9   pass
        ",
    );
}

#[test]
fn a_probe_that_another_rule_rejects_leaves_no_trace() {
    let limit = Algorithm::Concurrency(concurrency::Config { limit: 4 });
    let rules = Rules { breaker: Some(half()), ..one(limit) };
    let timeline = Timeline::new(&rules).check(
        "
        0 x4        pass
        0 fail      3
        0 fail      2
        0 fail      1
        0 fail      0
        50 cost=5   block costly 4
        ",
    );
    let seen = timeline.gate.observe(Instant::EPOCH).rules[1].breaker.expect("a breaker");
    assert_eq!((seen.phase, seen.half_opened), (Phase::Open, 0));
    timeline.check("50 x2 pass").check("50 block probing");
}

#[test]
fn errors_are_counted_and_all_may_be_needed() {
    let errors = Config { error_ratio: None, errors: Some(2), min_requests: 1, ..half() };
    check(&rules(errors), "0 x3 pass\n0 fail 2\n0 ok 1\n0 fail 0\n0 block open 50");
    let all = Config { error_ratio: Some(Ratio::ONE), ..half() };
    check(
        &rules(all),
        "
        0 x5   pass
        0 ok   4
        0 fail 3
        0 fail 2
        0 fail 1
        0 fail 0
        0      pass
        100 ok 0
        100 x4 pass
        200 fail 3
        200 fail 2
        200 fail 1
        200 fail 0
        200    block open 50
        ",
    );
}

#[test]
fn an_answer_is_slow_after_its_time_from_the_start() {
    let slow = Slow { after: Duration::from_millis(10), ratio: Ratio::new(500_000).unwrap() };
    let slow = Config { error_ratio: None, slow: Some(slow), min_requests: 2, ..half() };
    check(
        &rules(slow.clone()),
        "
        0 x4         pass
        10 ok        3
        10 fail      2
        10.000001 ok 1
        10.000001 ok 0
        11           pass
        22 ok        0
        22           block open 50
        ",
    );
    let paced = Rules { breaker: Some(slow), ..paced(rate(10, 1000), 100, 9) };
    check(
        &paced,
        "
        0      pass
        0      wait 100
        5 ok   1
        110 ok 0
        110    wait 90
        210 ok 0
        ",
    );
}

#[test]
fn an_edit_keeps_an_open_breaker_open() {
    let wider = Config { open_for: Duration::from_secs(9), probes: 1, ..half() };
    Timeline::new(&rules(half()))
        .check("0 x4 pass\n0 fail 3\n0 fail 2\n0 fail 1\n0 fail 0")
        .edit(&rules(wider.clone()), &[Change::Converted])
        .check("49 block open 1")
        .check("50 pass\n50 block probing")
        .edit(&rules(half()), &[Change::Converted])
        .check("51 pass\n51 block probing\n51 ok 1")
        .edit(&rules(wider), &[Change::Converted])
        .check("51 x2 pass")
        .edit(&Rules::default(), &[Change::Removed])
        .edit(&rules(half()), &[Change::Added])
        .check("51 x9 pass");
}

#[test]
fn an_edit_of_the_window_forgets_nothing_that_may_be_in_it() {
    let long = Config { window: Duration::from_secs(1), ..half() };
    Timeline::new(&rules(half()))
        .check("0 x4 pass\n55 fail 3\n55 fail 2\n55 fail 1")
        .edit(&rules(long), &[Change::Converted])
        .check("999 fail 0\n999 block open 50");
}

#[test]
fn a_dry_run_rejects_no_request_and_still_turns() {
    let dry = Config { dry_run: true, probes: 1, ..half() };
    let timeline = Timeline::new(&rules(dry)).check(
        "
        0 x5    pass
        0 fail  4
        0 fail  3
        0 fail  2
        0 fail  1
        1       pass
        49      pass
        50      pass
        50 fail 3
        ",
    );
    let seen = &timeline.gate.observe(Instant::EPOCH).rules[0];
    assert_eq!((seen.counts.dry_run_rejected.total(), seen.counts.passed), (2, 6));
    assert_eq!(seen.breaker.map(|seen| seen.phase), Some(Phase::HalfOpen));
}

/// Lets a request in whose breaker then hears `outcome`.
fn enter(gate: &Arc<Gate>, at: Instant) -> (Permit, Option<Transition>) {
    let slot = gate.install(&rules(half()), at).breaker.expect("a breaker");
    let claim = Claim { slot, key: Key::Shared, cost: 1, patience: Duration::ZERO, plan: None };
    let admission = gate.enter(at, &[claim]).expect("it is not open");
    (admission.permit, admission.report.transition)
}

#[test]
fn an_answer_is_judged_when_it_begins_and_not_again_at_its_end() {
    let gate = Arc::new(Gate::new(Instant::EPOCH));
    let at = |millis| Instant::EPOCH + Duration::from_millis(millis);
    for _ in 0..4 {
        let (mut permit, turn) = enter(&gate, at(1));
        assert_eq!(turn, None);
        assert!(permit.awaits_answer());
        assert_eq!(permit.answered(Outcome::Success { at: at(2) }, Duration::ZERO), None);
        assert!(!permit.awaits_answer());
        assert_eq!(permit.answered(Outcome::Failure { at: at(2) }, Duration::ZERO), None);
        assert_eq!(permit.finish(Outcome::Failure { at: at(3) }), None);
    }
    let seen = gate.observe(at(3));
    assert_eq!(seen.totals.failed, 4);
    let answers = seen.rules[0].breaker.expect("a breaker").answers;
    assert_eq!(answers, AnswerCounts { all: 4, failed: 0, slow: 0 });
}

#[test]
fn each_transition_is_returned_once_to_the_request_that_caused_it() {
    let gate = Arc::new(Gate::new(Instant::EPOCH));
    let at = |millis| Instant::EPOCH + Duration::from_millis(millis);
    let mut permits = [(); 4].map(|()| Some(enter(&gate, at(0)).0));
    let mut fail = |n: usize| permits[n].take()?.finish(Outcome::Failure { at: at(1) });
    assert_eq!([fail(0), fail(1), fail(2)], [None; 3]);
    let opened = fail(3).expect("it opens");
    assert_eq!(opened.to_string(), "opened: of 4 answers 4 failed and 0 were slow");
    let (mut first, turn) = enter(&gate, at(51));
    let (second, none) = enter(&gate, at(51));
    assert_eq!((turn.map(|transition| transition.to), none), (Some(Phase::HalfOpen), None));
    assert_eq!(first.answered(Outcome::Success { at: at(52) }, Duration::ZERO), None);
    let closed = second.finish(Outcome::Success { at: at(53) }).expect("it closes");
    assert_eq!(closed.to_string(), "closed: 2 probes were good");
    let seen = gate.observe(at(53)).rules[0].breaker.expect("a breaker");
    assert_eq!((seen.opened, seen.half_opened, seen.closed), (1, 1, 1));
    drop(first);
}

#[test]
fn a_ratio_is_exceeded_by_more_and_the_whole_by_all() {
    let ratio = |millionths| Ratio::new(millionths).expect("a part");
    assert!(!ratio(500_000).is_exceeded(5, 10) && ratio(500_000).is_exceeded(6, 10));
    assert!(!ratio(0).is_exceeded(0, 10) && ratio(0).is_exceeded(1, 10));
    assert!(!Ratio::ONE.is_exceeded(9, 10) && Ratio::ONE.is_exceeded(10, 10));
    assert_eq!(Ratio::new(1_000_001), None);
    assert_eq!(
        [ratio(500_000), ratio(1_500), ratio(0)].map(|ratio| ratio.to_string()).join(" "),
        "50 % 0.15 % 0 %"
    );
}

//! Timelines of settled costs.

use crate::flow::{
    Algorithm, Change, Rules, WarmUp,
    calendar::{Calendar, Run},
    limiter::{
        fixed_window::{self, Align},
        leaky_bucket, sliding_counter, sliding_log, sliding_window, token_bucket, warm_up,
    },
    time::Instant,
    timeline::{Timeline, check, keyed, rate, settled},
};
use core::{num::NonZeroU64, time::Duration};

const MINUTE: u64 = 60_000;

fn bucket(count: u64, burst: u64) -> Rules {
    settled(Algorithm::TokenBucket(token_bucket::Config { rate: rate(count, MINUTE), burst }))
}

fn window(count: u64, window: u64, align: Align) -> Rules {
    settled(Algorithm::FixedWindow(fixed_window::Config { rate: rate(count, window), align }))
}

#[test]
fn with_the_whole_limit_reserved_one_of_five_at_once_passes() {
    check(
        &bucket(100, 100),
        "
        0 cost=100    pass
        0 cost=100 x4 block rate 60000
        0 settle=58   0
        0 cost=100    block rate 34800
        34799.999999 cost=100 block rate 0.000001
        34800 cost=100 pass
        ",
    );
}

#[test]
fn a_debt_of_five_at_once_is_paid_before_the_next_request_passes() {
    check(
        &bucket(100, 100),
        "
        0 x5         pass
        0 settle=58  4
        0 settle=110 3
        0 settle=150 2
        0 settle=170 1
        0 settle=175 0
        0            block rate 338400
        100000       block rate 238400
        338399.999999 block rate 0.000001
        338400       pass
        338400       block rate 600
        ",
    );
}

#[test]
fn more_than_a_bucket_holds_is_owed() {
    // Retry-After has whole seconds: 91.
    check(&bucket(100, 100), "0 pass\n0 settle=250 0\n0 block rate 90600");
}

#[test]
fn an_excess_counts_from_its_settlement_and_not_from_the_admission() {
    check(
        &bucket(100, 100),
        "
        0             pass
        60000 settle=101 0
        60000         block rate 600
        60600         pass
        ",
    );
}

#[test]
fn what_is_given_back_late_is_no_more_than_a_full_bucket() {
    check(
        &bucket(100, 100),
        "
        0 cost=50      pass
        90000 settle=0 0
        90000 cost=100 pass
        90000          block rate 600
        ",
    );
}

#[test]
fn a_leaky_bucket_owes_and_gives_back_as_a_token_bucket_does() {
    let config = leaky_bucket::Config { rate: rate(10, 1000), capacity: 10 };
    check(
        &settled(Algorithm::LeakyBucket(config)),
        "
        0 cost=5   pass
        0 cost=5   pass
        0 settle=1 1
        0 cost=4   pass
        0          block rate 100
        0 settle=25 1
        0          block rate 2100
        ",
    );
}

#[test]
fn a_warm_up_gives_back_the_price_of_a_warm_service() {
    let warm_up = WarmUp { period: Duration::from_secs(10), cold_factor: 3 };
    let config = warm_up::Config { rate: rate(10, 1000), burst: 10, warm_up };
    check(
        &settled(Algorithm::WarmUp(config)),
        "
        0                  pass
        0                  block rate 298.095239
        0 settle=0         0
        0                  block rate 198.095239
        198.095239         pass
        ",
    );
}

#[test]
fn a_part_leaves_the_window_that_was_charged_and_no_other() {
    check(
        &window(10, 1000, Align::Clock),
        "
        100 cost=6   pass
        900 settle=2 0
        900 cost=8   pass
        900          block rate 100
        1100 cost=6  pass
        1100 settle=0 1
        1100 cost=4  pass
        1100         block rate 900
        ",
    );
}

#[test]
fn an_excess_is_charged_to_the_current_window_and_ends_with_it() {
    check(
        &window(10, 1000, Align::Clock),
        "
        900 cost=6     pass
        1100 settle=30 0
        1100           block rate 900
        1999.999999    block rate 0.000001
        2000 cost=10   pass
        ",
    );
}

#[test]
fn a_day_of_a_calendar_and_a_window_of_a_first_request_give_back_too() {
    let step = NonZeroU64::new(1_000_000_000).expect("not zero");
    let runs = vec![Run { start: Instant::EPOCH, count: NonZeroU64::MAX }];
    let calendar = Align::Calendar(Calendar::new("day", step, runs));
    for align in [calendar, Align::FirstRequest] {
        check(
            &window(10, 1000, align),
            "
            100 cost=10    pass
            500            block rate 500
            500 settle=7   0
            500 cost=3     pass
            500            block rate 500
            1000 cost=10   pass
            1100 settle=0  1
            1100           block rate 900
            1200 settle=10 0
            1200           block rate 800
            ",
        );
    }
}

#[test]
fn a_log_forgets_a_part_where_it_was_charged() {
    check(
        &settled(Algorithm::SlidingLog(sliding_log::Config { rate: rate(10, 1000) })),
        "
        0 cost=5       pass
        100 cost=5     pass
        200 settle=2   1
        200 cost=3     pass
        200            block rate 800.000001
        300 settle=9   1
        400            block rate 700.000001
        1000.000001    block rate 100
        1100.000001 cost=3 pass
        1100.000001    block rate 100
        1100.000001 cost=3 block rate 100
        1200.000001 cost=3 pass
        ",
    );
}

#[test]
fn a_log_entry_that_is_given_back_whole_is_gone() {
    check(
        &settled(Algorithm::SlidingLog(sliding_log::Config { rate: rate(2, 1000) })),
        "
        0   pass
        100 pass
        200 settle=0 1
        200 pass
        200 block rate 900.000001
        ",
    );
}

#[test]
fn a_bucket_of_a_sliding_window_gets_its_part_back() {
    let config = sliding_window::Config { rate: rate(10, 1000), buckets: 10, strict: false };
    check(
        &settled(Algorithm::SlidingWindow(config)),
        "
        50 cost=6    pass
        350 cost=4   pass
        450 settle=1 1
        450 cost=5   pass
        450          block rate 550
        450 settle=0 1
        450 cost=4   pass
        450 settle=25 1
        450          block rate 950
        ",
    );
}

#[test]
fn a_sliding_counter_gives_back_in_both_windows() {
    let config = sliding_counter::Config { rate: rate(100, 1000) };
    check(
        &settled(Algorithm::SlidingCounter(config)),
        "
        500 cost=80    pass
        1000 settle=40 0
        1500 cost=80   pass
        1500           block rate 25
        1500 settle=81 0
        1500           block rate 50
        3500 cost=100  pass
        3500 settle=0  0
        3500 cost=100  pass
        ",
    );
}

#[test]
fn an_edit_keeps_the_share_of_a_reserve() {
    // Half of the reserve is given back after the bucket has become ten times as large.
    Timeline::new(&bucket(100, 100))
        .check("0 cost=100 pass")
        .edit(&bucket(1000, 1000), &[Change::Converted])
        .check("0 settle=50 0")
        .check("0 cost=500 pass")
        .check("0 block rate 60");
}

#[test]
fn an_edit_of_the_count_keeps_what_a_window_gets_back() {
    Timeline::new(&window(10, 1000, Align::Clock))
        .check("100 cost=10 pass")
        .edit(&window(12, 1000, Align::Clock), &[Change::Converted])
        .check("200 settle=4 0")
        .check("200 cost=8 pass")
        .check("200 block rate 800");
}

#[test]
fn an_edit_of_the_window_keeps_the_reserves_of_requests_in_flight() {
    Timeline::new(&window(10, 1000, Align::Clock))
        .check("100 cost=4 pass")
        .edit(&window(10, 2000, Align::Clock), &[Change::Converted])
        .check("200 settle=0 0")
        .check("200 cost=6 pass")
        .check("200 block rate 1800");
}

#[test]
fn a_rule_that_no_longer_settles_still_does_for_requests_in_flight() {
    let config = token_bucket::Config { rate: rate(10, 1000), burst: 10 };
    let plain = Algorithm::TokenBucket(config);
    Timeline::new(&settled(plain.clone()))
        .check("0 cost=9 pass")
        .edit(&crate::flow::timeline::one(plain), &[Change::Converted])
        .check("0 settle=0 0")
        .check("0 cost=10 pass");
}

#[test]
fn a_request_that_settles_nothing_keeps_its_reserve() {
    check(
        &bucket(100, 100),
        "
        0 cost=100 pass
        0 done     0
        0          block rate 600
        ",
    );
}

#[test]
fn a_client_that_was_evicted_owes_what_it_costs() {
    let config = token_bucket::Config { rate: rate(100, MINUTE), burst: 100 };
    let mut rules = keyed(Algorithm::TokenBucket(config), 1);
    rules.flow[0].settles = true;
    // The first client's place goes to the second, and the debt stays the first one's.
    check(
        &rules,
        "
        0 key=a       pass
        0 key=b       pass
        0 settle=250  1
        0 key=a       block rate 90600
        0 key=b       pass
        0 key=a cost=0 pass
        ",
    );
}

#[test]
fn a_client_that_was_evicted_gets_its_reserve_back() {
    let config = token_bucket::Config { rate: rate(100, MINUTE), burst: 100 };
    let mut rules = keyed(Algorithm::TokenBucket(config), 1);
    rules.flow[0].settles = true;
    check(
        &rules,
        "
        0 key=a cost=100 pass
        0 key=b cost=100 pass
        0 settle=40      1
        0 key=a cost=60  pass
        0 key=a          block rate 600
        0 key=b          block rate 600
        ",
    );
}

#[test]
fn what_a_response_has_cost_so_far_is_charged_once_and_corrected_at_the_end() {
    check(
        &bucket(100, 100),
        "
        0 cost=10     pass
        0 charge=10   1
        0 charge=60   1
        0 cost=41     block rate 600
        0 charge=55   1
        0 charge=61   1
        0 cost=40     block rate 600
        0 settle=50   0
        0 cost=50     pass
        0             block rate 600
        ",
    );
}

#[test]
fn a_debt_begins_while_the_response_passes() {
    check(
        &bucket(100, 100),
        "
        0             pass
        0 charge=250  1
        0             block rate 90600
        90600         pass
        90600         block rate 600
        90600 settle=260 1
        90600         block rate 6600
        ",
    );
}

#[test]
fn what_was_charged_too_much_leaves_the_window_that_was_charged_last() {
    check(
        &window(10, 1000, Align::Clock),
        "
        900 cost=2      pass
        1100 charge=5   1
        2100 charge=9   1
        2200 settle=4   0
        2200 cost=10    pass
        2200            block rate 800
        ",
    );
    // One is still charged of the window before the last: 3 of the 3, and 1 of the 3 of 1100 leave.
    check(
        &settled(Algorithm::SlidingLog(sliding_log::Config { rate: rate(10, 1000) })),
        "
        500 cost=2     pass
        1000 charge=5  1
        1200 charge=8  1
        1300 settle=4  0
        1300 cost=6    pass
        1300           block rate 200.000001
        1500.000001 cost=2 pass
        1500.000001    block rate 500
        ",
    );
}

#[test]
fn an_edit_keeps_the_share_of_each_charge_of_a_response() {
    // 40 of 100 were charged before the bucket became ten times as large, and 100 of 1000 since.
    Timeline::new(&bucket(100, 100))
        .check("0 cost=10 pass")
        .check("0 charge=40 1")
        .edit(&bucket(1000, 1000), &[Change::Converted])
        .check("0 charge=140 1")
        .check("0 cost=501 block rate 60")
        .check("0 settle=20 0")
        .check("0 cost=800 pass")
        .check("0 block rate 60");
}

#[test]
fn a_request_whose_rule_was_reset_is_charged_nothing_more() {
    let window = window(10, 1000, Align::Clock);
    Timeline::new(&bucket(100, 100))
        .check("0 cost=10 pass")
        .edit(&window, &[Change::Reset])
        .check("0 charge=90 1")
        .check("0 cost=10 pass")
        .check("0 settle=0 1")
        .check("0 block rate 1000");
}

#[test]
fn a_ban_begins_with_the_charge_that_exceeds_the_limit() {
    let mut rules = keyed(
        Algorithm::TokenBucket(token_bucket::Config { rate: rate(100, MINUTE), burst: 100 }),
        9,
    );
    rules.flow[0].settles = true;
    rules.flow[0].reject_for = Some(Duration::from_mins(10));
    check(
        &rules,
        "
        0 key=a        pass
        0 charge=99    1
        0 key=a        pass
        0 charge=101   2
        0 key=a        block banned 600000
        0 key=b        pass
        ",
    );
}

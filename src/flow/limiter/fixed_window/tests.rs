//! Timelines of fixed windows.

use super::*;
use crate::flow::{
    Algorithm, Change, Rules,
    calendar::Run,
    timeline::{Timeline, check, one, rate},
};
use core::num::NonZeroU64;

/// In milliseconds.
const DAY: u64 = 24 * 60 * 60 * 1000;

fn per(count: u64, window: u64, align: Align) -> Rules {
    one(Algorithm::FixedWindow(Config { rate: rate(count, window), align }))
}

#[test]
fn windows_follow_the_clock() {
    check(
        &per(2, 100, Align::Clock),
        "
        50  pass
        99  pass
        99  block rate 1
        100 x2 pass
        100 block rate 100
        199.999999 block rate 0.000001
        200 pass
        ",
    );
}

#[test]
fn a_boundary_doubles_what_passes() {
    check(
        &per(100, 10, Align::Clock),
        "
        16 x60 pass
        20 x80 pass
        30 x100 pass
        39 x20 block rate 1
        ",
    );
}

#[test]
fn a_window_begins_with_its_first_request() {
    check(
        &per(2, 100, Align::FirstRequest),
        "
        1050  cost=3 block costly 2
        1060  pass
        1150  pass
        1159  block rate 1
        1160  pass
        1259  pass
        1259.5 block rate 0.5
        1400  pass
        1499  pass
        1500  pass
        ",
    );
}

#[test]
fn the_first_window_begins_with_the_clock() {
    check(
        &per(2, 100, Align::FirstRequest),
        "
        60  x2 pass
        99  block rate 1
        130 x2 pass
        229 block rate 1
        ",
    );
}

#[test]
fn a_calendar_says_when_windows_end() {
    let months = || {
        let begin = |day: u64| Run {
            start: Instant::EPOCH + Duration::from_hours(24 * day),
            count: NonZeroU64::MIN,
        };
        let runs = [0, 31, 59, 90].map(begin).into();
        let calendar = Calendar::new("month", NonZeroU64::MIN, runs);
        per(2, 31 * DAY, Align::Calendar(calendar))
    };
    let day = |days: u64| days * DAY;
    Timeline::new(&months())
        .check(&format!("{}      x2 pass", day(30)))
        .check(&format!("{}         block rate {}", day(30), day(1)))
        .check(&format!("{}      x2 pass", day(31)))
        .check(&format!("{}         block rate {}", day(31), day(28)))
        .check(&format!("{}.999999  block rate 0.000001", day(59) - 1))
        .check(&format!("{}      x2 pass", day(59)))
        .edit(&per(2, DAY, Align::Clock), &[Change::Converted])
        .check(&format!("{}         block rate {}", day(59), day(1)))
        .edit(&months(), &[Change::Converted])
        .check(&format!("{}         block rate {}", day(59), day(31)))
        .edit(&per(2, 40 * DAY, Align::FirstRequest), &[Change::Converted])
        .check(&format!("{}         block rate {}", day(60), day(39)));
}

#[test]
fn one_with_priority_borrows_from_the_next_window() {
    for align in [Align::Clock, Align::FirstRequest] {
        check(
            &per(2, 100, align),
            "
            100 x2          pass
            130             block rate 70
            130 prio=69     block rate 70
            130 prio=70     wait 70
            130 cost=2      block rate 170
            130             block rate 70
            140 prio=500    wait 60
            140 prio=500    block rate 160
            140             block rate 160
            200             block rate 100
            250 prio=500    wait 50
            300             pass
            300             block rate 100
            550 x2          pass
            ",
        );
    }
}

#[test]
fn in_a_dry_run_a_loan_is_counted_and_delays_no_request() {
    let mut rules = per(2, 100, Align::Clock);
    rules.flow[0].dry_run = true;
    let day = Timeline::new(&rules).check("100 x2 pass\n130 prio=500 x2 pass\n200 pass");
    let counts = day.gate.observe(Instant::EPOCH).rules[0].counts;
    // The last one would have found both places of its window lent.
    assert_eq!((counts.passed, counts.dry_run_rejected.total()), (4, 1));
}

#[test]
fn a_loan_survives_edits() {
    Timeline::new(&per(2, 100, Align::Clock))
        .check("100 x2 pass\n130 prio=500 wait 70")
        .edit(&per(3, 100, Align::Clock), &[Change::Converted])
        .check("140 pass\n140 prio=500 x2 wait 60\n140 block rate 160")
        .edit(&per(9, 1000, Align::Clock), &[Change::Converted])
        .check("250 x3 pass\n250 block rate 750");
}

#[test]
fn a_loan_further_ahead_than_the_next_window_is_used_when_it_starts() {
    Timeline::new(&per(5, 10_000, Align::Clock))
        .check("500 x5 pass\n500 prio=20000 x5 wait 9500\n600 block rate 19400")
        .edit(&per(5, 1000, Align::Clock), &[Change::Converted])
        .check("600 block rate 400\n1000 x5 pass\n9999 x5 pass\n9999 block rate 1001")
        .check("10000 block rate 1000\n11000 x5 pass");
    let shortened = || {
        Timeline::new(&per(5, 10_000, Align::FirstRequest))
            .check("100000 x5 pass\n100000 prio=20000 x5 wait 10000")
            .check("105000 block rate 15000")
            .edit(&per(5, 1000, Align::FirstRequest), &[Change::Converted])
            .check("105000 x5 pass\n105000 block rate 1000")
    };
    shortened().check("109000 x5 pass\n109001 block rate 1999\n110000 block rate 1000");
    shortened()
        .check("109500 block rate 1500\n109500 prio=1499 block rate 1500")
        .check("109500 prio=1500 x2 wait 1500\n111000 x3 pass\n111000 block rate 1000");
}

#[test]
fn a_window_that_an_edit_lengthens_over_a_loan_ends_by_the_loans_start() {
    let borrowed = || {
        Timeline::new(&per(100, 1000, Align::FirstRequest))
            .check("100000 pass\n100900 x99 pass\n100900 prio=5000 x100 wait 100")
            .edit(&per(100, 3000, Align::FirstRequest), &[Change::Converted])
    };
    borrowed()
        .check("101040 block rate 2960")
        .edit(&per(100, 1000, Align::FirstRequest), &[Change::Converted])
        .check("101040 block rate 960\n102000 x100 pass\n102000 block rate 1000");
    // A start is where it was, however often its window's length is edited.
    borrowed()
        .check("100960 block rate 3040")
        .edit(&per(100, 1000, Align::FirstRequest), &[Change::Converted])
        .edit(&per(100, 3000, Align::FirstRequest), &[Change::Converted])
        .check("103999 block rate 1\n104000 x100 pass");
}

#[test]
fn a_window_that_is_not_the_clocks_first_lasts_its_length_near_the_clocks_zero_too() {
    // The same as a minute later, but that the first window ends with its first second.
    for minute in [0, 60_000] {
        let at = |millis: u64| minute + millis;
        Timeline::new(&per(100, 1000, Align::FirstRequest))
            .check(&format!("{} pass", at(1000)))
            .check(&format!("{} x99 pass\n{0} prio=5000 x100 wait 100", at(1900)))
            .edit(&per(100, 3000, Align::FirstRequest), &[Change::Converted])
            .check(&format!("{} block rate 3049", at(1951)))
            .edit(&per(100, 1000, Align::FirstRequest), &[Change::Converted])
            .check(&format!("{} block rate 950", at(2050)));
    }
    // No window is open, and the next one is shorter than the time since the clock's zero.
    Timeline::new(&per(5, 1000, Align::FirstRequest))
        .check("1000 pass\n1999 x4 pass\n2000 cost=6 block costly 5")
        .edit(&per(5, 2100, Align::FirstRequest), &[Change::Converted])
        .check("2000 x5 pass\n2100 block rate 2000");
}

#[test]
fn a_window_that_comes_to_follow_the_clock_lasts_until_a_boundary_after_its_end() {
    let full = || {
        Timeline::new(&per(100, 1000, Align::FirstRequest))
            .check("60200 pass\n61190 x99 pass\n61200 x99 pass")
    };
    let clock = per(100, 1000, Align::Clock);
    full()
        .check("61500 pass")
        .edit(&clock, &[Change::Converted])
        .check("61500 block rate 1500\n61500 prio=1500 x100 wait 1500")
        .check("62999 block rate 1001\n64000 x100 pass\n64000 block rate 1000");
    // One that is just over was not by the clock's last boundary; nor is one ahead of the clock.
    full()
        .check("62199 pass\n62200 cost=101 block costly 100")
        .edit(&clock, &[Change::Converted])
        .check("62999 block rate 1")
        .edit(&per(100, 1000, Align::FirstRequest), &[Change::Converted])
        .check("62999.5 block rate 0.5\n63000 x100 pass");
    // What is lent of the window after it is not over before that one is.
    full()
        .check("61300 pass\n61300 prio=900 x50 wait 900")
        .edit(&clock, &[Change::Converted])
        .check("63999 block rate 1\n64000 x100 pass");
    // A shorter window ends with its own length, and at once where that has passed.
    full()
        .check("61500 pass")
        .edit(&per(100, 100, Align::Clock), &[Change::Converted])
        .check("61550 block rate 50\n61600 x100 pass");
}

#[test]
fn a_window_that_an_edit_put_off_to_a_boundary_is_put_off_no_further_by_the_next() {
    for (window, wait) in [(100, 100), (1000, 1000), (5000, 1500)] {
        Timeline::new(&per(100, 1000, Align::FirstRequest))
            .check("61200 x100 pass")
            .check("61500 block rate 700")
            .edit(&per(100, 1000, Align::Clock), &[Change::Converted])
            .check("61500 block rate 1500")
            .edit(&per(100, window, Align::FirstRequest), &[Change::Converted])
            .check(&format!("61500 block rate {wait}\n{} x100 pass", 61500 + wait));
    }
}

#[test]
fn an_edit_of_the_count_keeps_what_is_used() {
    Timeline::new(&per(5, 100, Align::Clock))
        .check("10 x4 pass")
        .edit(&per(3, 100, Align::Clock), &[Change::Converted])
        .check("20 block rate 80")
        .edit(&per(6, 100, Align::Clock), &[Change::Converted])
        .check("20 x2 pass")
        .check("20 block rate 80");
}

#[test]
fn an_edit_of_the_window_forgets_nothing_that_may_be_in_it() {
    Timeline::new(&per(5, 100, Align::Clock))
        .check("130 x5 pass")
        .edit(&per(5, 1000, Align::Clock), &[Change::Converted])
        .check("250 block rate 750")
        .edit(&per(5, 100, Align::Clock), &[Change::Converted])
        .check("250 block rate 50")
        .check("300 pass")
        .edit(&per(5, 1000, Align::FirstRequest), &[Change::Converted])
        .check("1299 x4 pass")
        .check("1299 block rate 1")
        .check("1300 pass")
        .edit(&per(1, 100, Align::FirstRequest), &[Change::Converted])
        .check("1399 block rate 1")
        .edit(&per(1, 1000, Align::FirstRequest), &[Change::Converted])
        .check("2299 block rate 1")
        .edit(&per(1, 1500, Align::FirstRequest), &[Change::Converted])
        .check("2299 block rate 501")
        .edit(&per(1, 300, Align::FirstRequest), &[Change::Converted])
        .check("2299 pass\n2598 block rate 1");
}

#[test]
fn an_edit_in_the_clocks_first_window_forgets_nothing_either() {
    for first in [0, 3600] {
        let at = |second: u64| (first + second) * 1000;
        Timeline::new(&per(5, at(3600) - at(0), Align::FirstRequest))
            .check(&format!("{} x5 pass", at(1800)))
            .edit(&per(5, 600_000, Align::FirstRequest), &[Change::Converted])
            .check(&format!("{}    block rate 598000", at(1802)))
            .edit(&per(5, 60_000, Align::FirstRequest), &[Change::Converted])
            .check(&format!("{}    block rate 58000", at(1802)))
            .check(&format!("{} x5 pass", at(1860)));
    }
}

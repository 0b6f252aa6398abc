//! Laws of the cold start, in the token bucket and in pacing.

use crate::{
    config,
    day::{Day, DecidedRequest, MORNING, Step, cost, rule},
    oracle::{Past, assert_promise},
};
use core::time::Duration;
use flowgate::flow::{Algorithm, Rate, Rules, WarmUp, limiter::warm_up, pacing};
use proptest::{collection::vec, prelude::*};

const SECOND: Duration = Duration::from_secs(1);

fn bucket(count: u64, window: Duration, burst: u64, warm_up: WarmUp) -> Rules {
    let rate = Rate::new(count, window).expect("a rate");
    let algorithm = Algorithm::WarmUp(warm_up::Config { rate, burst, warm_up });
    Rules { flow: vec![rule(0, algorithm, false)], ..Rules::default() }
}

fn days() -> impl Strategy<Value = (Rules, Vec<Step>)> {
    let window = prop::sample::select(vec![1_000_000_000_u64, 999_999_937, 100]);
    window.prop_flat_map(|window| {
        let rules = (1..=13_u64, 1..=9_u64, 1..=20 * window, 2..=5_u32).prop_map(
            move |(count, burst, period, cold_factor)| {
                let warm_up = WarmUp { period: Duration::from_nanos(period), cold_factor };
                bucket(count, Duration::from_nanos(window), burst, warm_up)
            },
        );
        let step = prop_oneof![
            4 => (0..=window / 8).prop_map(Step::Wait),
            1 => (0..=window * 3).prop_map(Step::Wait),
            6 => cost().prop_map(|cost| Step::Enter { client: 0, cost }),
        ];
        (rules, vec(step, 1..200))
    })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_more_passes_than_of_a_warm_bucket((rules, steps) in days()) {
        let mut day = Day::new(&rules);
        let requests: Vec<DecidedRequest> =
            steps.into_iter().filter_map(|step| day.step(step)).collect();
        let passed = requests.iter().filter(|request| request.decided.is_ok());
        let passed = passed.map(|request| (request.now.as_nanos(), request.cost)).collect();
        assert_promise(&rules.flow[0].algorithm, &Past { passed, ..Past::default() });
    }

    #[test]
    fn a_rejected_request_passes_at_retry_after_and_not_earlier_unless_it_can_never(
        (rules, steps) in days(),
    ) {
        let mut day = Day::new(&rules);
        for step in steps {
            let before = day.states();
            let Some(DecidedRequest { client, cost, decided: Err(reason), .. }) = day.step(step) else {
                continue;
            };
            prop_assert_eq!(before, day.states(), "it leaves no trace");
            let Some(retry_after) = reason.retry_after() else { continue };
            let now = day.now;
            prop_assert!(retry_after > Duration::ZERO);
            // Also half way, as a bucket that cools does not only fill.
            for early in [retry_after / 2, retry_after.saturating_sub(Duration::from_nanos(1))] {
                let mut other = Day::new(&rules);
                std::mem::swap(&mut other, &mut day);
                prop_assert!(other.enter(now + early, client, cost).decided.is_err());
                day = other;
            }
            prop_assert!(day.enter(now + retry_after, client, cost).decided.is_ok());
            break;
        }
    }

    #[test]
    fn as_much_passes_as_is_said_to_be_left((rules, steps) in days()) {
        let mut day = Day::new(&rules);
        for step in steps {
            let Some(request) = day.step(step) else { continue };
            let left = request.report.quotas[0].remaining();
            if request.decided.is_ok() && left > 0 {
                for _ in 0..left {
                    prop_assert!(day.enter(day.now, 0, 1).decided.is_ok());
                }
                break;
            }
        }
    }

    #[test]
    fn one_passes_in_each_cold_interval((rules, steps) in days()) {
        let Algorithm::WarmUp(warm_up::Config { rate, warm_up, .. }) = &rules.flow[0].algorithm
        else { return Ok(()) };
        let cold = rate.window_nanos().div_ceil(rate.count()) * u64::from(warm_up.cold_factor);
        let mut day = Day::new(&rules);
        let steps = steps.into_iter().map(|step| match step {
            Step::Enter { client, .. } => Step::Enter { client, cost: 1 },
            Step::Wait(_) | Step::End(_) => step,
        });
        for request in steps.filter_map(|step| day.step(step)) {
            if let Err(reason) = request.decided {
                let wait = reason.retry_after().expect("a rate");
                prop_assert!(wait <= Duration::from_nanos(cold + 1), "{wait:?} of {cold} ns");
            }
        }
    }
}

/// What Sentinel's `WarmUpController` admits of so many offered in each second, by its
/// formulas: the rate at the second's beginning, kept for the whole of it.
fn reference(count: u32, period: u32, factor: u32, offered: u32) -> Vec<f64> {
    let [count, period, factor, offered] = [count, period, factor, offered].map(f64::from);
    let most = 2.0 * period * count / (1.0 + factor);
    let mut above = most;
    let mut seconds = Vec::new();
    while above > 0.0 {
        let rate = 1.0 / ((factor - 1.0) / (count * most) * above + 1.0 / count);
        let passed = rate.floor().min(offered);
        seconds.push(passed);
        above -= passed.max(1.0);
    }
    seconds.push(offered.min(count));
    seconds
}

/// Asserts that what started in each second lies within one step of the reference.
fn assert_near(reference: &[f64], starts: &[u64]) {
    for second in 0..reference.len() {
        let is_in = |&&at: &&u64| at / 1_000_000_000 == second as u64;
        let got = f64::from(u32::try_from(starts.iter().filter(is_in).count()).expect("few"));
        let before = reference[second.saturating_sub(1)];
        let after = reference[(second + 1).min(reference.len() - 1)];
        // One more, as a second may hold one more than its rate.
        assert!(
            (before - 1.0..=after + 1.0).contains(&got),
            "{got} in second {second}: {reference:?}"
        );
    }
}

#[test]
fn a_cold_bucket_follows_the_curve_within_one_step() {
    assert_eq!(reference(200, 10, 3, 200)[..3], [66.0, 69.0, 73.0]);
    for (count, period, factor) in
        [(200, 10, 3), (100, 10, 3), (100, 5, 3), (100, 10, 5), (1_000, 10, 3), (300, 5, 10)]
    {
        let warm_up = WarmUp { period: period * SECOND, cold_factor: factor };
        let reference = reference(count, period, factor, count);
        for burst in [1, 2, count.into()] {
            let mut day = Day::new(&bucket(count.into(), SECOND, burst, warm_up));
            let mut starts = Vec::new();
            // As soon as each may start.
            while day.now.since(MORNING).as_secs() < reference.len() as u64 {
                let now = day.now;
                match day.enter(now, 0, 1).decided {
                    Ok(start) => starts.push(nanos(start.since(MORNING))),
                    Err(reason) => day.now = now + reason.retry_after().expect("a rate"),
                }
                day.live.clear();
            }
            assert_near(&reference, &starts);
        }
    }
}

#[test]
fn a_cold_pacer_follows_the_same_curve() {
    for (count, period, factor) in [(200, 10, 3), (100, 10, 5), (1_000, 5, 3)] {
        let warm_up = Some(WarmUp { period: period * SECOND, cold_factor: factor });
        let rate = Rate::new(count.into(), SECOND).expect("a rate");
        let max_wait = Duration::from_hours(1);
        let pacing = Some(pacing::Config { rate, max_wait, max_queue: u64::MAX, warm_up });
        let mut day = Day::new(&Rules { pacing, ..Rules::default() });
        let reference = reference(count, period, factor, count);
        let requests = u64::from(count) * (reference.len() as u64 + 1);
        let starts: Vec<u64> = (0..requests)
            .map(|_| day.enter(MORNING, 0, 1).decided.expect("it may wait"))
            .map(|start| nanos(start.since(MORNING)))
            .collect();
        assert_near(&reference, &starts);
        // Warm, they are one interval apart to the nanosecond.
        let last = &starts[starts.len() - 100..];
        assert!(last.windows(2).all(|pair| pair[1] - pair[0] == 1_000_000_000 / u64::from(count)));
    }
}

#[test]
fn a_warm_bucket_cools_in_silence() {
    let warm_up = WarmUp { period: 10 * SECOND, cold_factor: 3 };
    let per_second = |silence: u64| {
        let mut day = Day::new(&bucket(100, SECOND, 2, warm_up));
        let mut second = |from: u64| {
            let mut passed = 0;
            for millis in 0..1_000 {
                let now = MORNING + Duration::from_millis(from * 1_000 + millis);
                passed += u32::from(day.enter(now, 0, 1).decided.is_ok());
                day.live.clear();
            }
            passed
        };
        assert_eq!(second(0), 35);
        (1..20).for_each(|from| _ = second(from));
        assert_eq!(second(20), 100);
        second(21 + silence)
    };
    assert_eq!(per_second(0), 100);
    // Half as cold after half of 5 s, and no colder than cold.
    assert!((46..=52).contains(&per_second(3)), "{}", per_second(3));
    assert_eq!([per_second(6), per_second(60)], [35, 35]);
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("within centuries")
}

/// Offers so many a second, evenly, in clumps that are a `pause` apart, for 40 s. Returns
/// when they started.
fn offer(rules: &Rules, per_second: u64, pause: Duration) -> Vec<u64> {
    let mut day = Day::new(rules);
    let mut starts = Vec::new();
    for at in 0..40 * per_second {
        let even = at * 1_000_000_000 / per_second;
        let late = even.checked_rem(nanos(pause)).unwrap_or(0);
        let now = MORNING + Duration::from_nanos(even - late);
        let start = day.enter(now, 0, 1).decided.ok();
        starts.extend(start.map(|start| nanos(start.since(MORNING))));
        day.live.clear();
    }
    starts
}

/// Returns how many start in a second.
fn in_second(starts: &[u64], second: u64) -> usize {
    starts.iter().filter(|&&at| at / 1_000_000_000 == second).count()
}

fn pacer(count: u64, max_wait: Duration, warm_up: WarmUp) -> Rules {
    let rate = Rate::new(count, SECOND).expect("a rate");
    let warm_up = Some(warm_up);
    let pacing = Some(pacing::Config { rate, max_wait, max_queue: u64::MAX, warm_up });
    Rules { pacing, ..Rules::default() }
}

const TEN_SECONDS: WarmUp = WarmUp { period: Duration::from_secs(10), cold_factor: 3 };

#[test]
fn a_service_offered_its_cold_rate_or_more_gets_warm_however_that_is_spread() {
    for offered in [334, 400, 500, 650, 800, 990, 1_000] {
        let mut rules: Vec<_> = [1, 2, 5, 1_000]
            .map(|burst| (bucket(1_000, SECOND, burst, TEN_SECONDS), Duration::ZERO))
            .into();
        for pause in [1, 10, 100, 500, 1_000].map(Duration::from_millis) {
            rules.push((bucket(1_000, SECOND, 1_000, TEN_SECONDS), pause));
        }
        for max_wait in [0, 1, 500].map(Duration::from_millis) {
            rules.push((pacer(1_000, max_wait, TEN_SECONDS), Duration::ZERO));
        }
        for (rules, pause) in rules {
            let starts = offer(&rules, offered, pause);
            let reference = reference(1_000, 10, 3, 1_000);
            for second in 1..38 {
                let got = in_second(&starts, second);
                let cold = usize::try_from(offered).expect("few").min(333);
                assert!(
                    got + 1 >= cold,
                    "{got} of {offered} in second {second}: {rules:?} {pause:?}"
                );
            }
            // What is rejected once it is warm: nothing, but where a beat meets no interval.
            let warm = reference.len() as u64 + 4;
            let late: usize = (warm..38).map(|second| in_second(&starts, second)).sum();
            let all = usize::try_from((38 - warm) * offered).expect("few");
            assert!(late + 1 >= all, "{late} of {all} at {offered}/s: {rules:?} {pause:?}");
        }
    }
}

#[test]
fn a_service_asked_by_costly_requests_alone_gets_warm_like_any_other() {
    for cost in [2, 76, 80, 150, 300] {
        let mut day = Day::new(&bucket(300, SECOND, 300, TEN_SECONDS));
        let mut passed = [0; 2];
        while day.now.since(MORNING) < 40 * SECOND {
            let now = day.now;
            match day.enter(now, 0, cost).decided {
                Ok(_) => passed[usize::from(now.since(MORNING) >= 20 * SECOND)] += cost,
                Err(reason) => day.now = now + reason.retry_after().expect("a rate"),
            }
            day.live.clear();
        }
        // Cold, about 100 a second; warm, all but what the last one lacks.
        assert!((2_000..5_000).contains(&passed[0]), "{passed:?} of {cost}");
        assert!((6_000 - cost..=6_000 + cost).contains(&passed[1]), "{passed:?} of {cost}");
    }
}

#[test]
fn a_service_offered_part_of_its_rate_follows_the_curve_within_one_step() {
    for offered in [334, 400, 500, 650, 800, 990] {
        let reference = reference(1_000, 10, 3, u32::try_from(offered).expect("few"));
        for burst in [2, 1_000] {
            assert_near(
                &reference,
                &offer(&bucket(1_000, SECOND, burst, TEN_SECONDS), offered, Duration::ZERO),
            );
        }
        // With a queue, those who waited come after, a little more than are offered.
        let pacer = pacer(1_000, Duration::from_millis(1), TEN_SECONDS);
        assert_near(&reference, &offer(&pacer, offered, Duration::ZERO));
    }
}

#[test]
fn a_service_offered_less_than_its_cold_rate_gets_all_and_stays_cold() {
    for pause in [0, 100, 1_000].map(Duration::from_millis) {
        let rules = bucket(1_000, SECOND, 1_000, TEN_SECONDS);
        let mut day = Day::new(&rules);
        // A clump meets a cold service once; from the next on, the pause is saved up.
        for at in 0..20 * 250 {
            let even = at * 4_000_000;
            let late = even % nanos(pause).max(1);
            let now = MORNING + Duration::from_nanos(even - late);
            let decided = day.enter(now, 0, 1).decided;
            assert!(decided.is_ok() || now.since(MORNING) < SECOND / 2, "{now:?} {pause:?}");
            day.live.clear();
        }
        // Asked for all of its rate, it begins like one that was never asked, but for what
        // the latest pause has left.
        let starts = (20_000..21_000)
            .map(|at| MORNING + Duration::from_millis(at))
            .filter(|&now| day.enter(now, 0, 1).decided.is_ok());
        let left = usize::try_from(pause.as_millis() / 3).expect("few");
        let starts = starts.count();
        assert!((333..=343 + left).contains(&starts), "{starts} after {pause:?}");
    }
}

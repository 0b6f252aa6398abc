//! Where ours decide otherwise on purpose: how often, and by what alone.
//!
//! `docs/comparisons.md` has the table, with the numbers that are asserted here.

use super::{Day, keyed, lines, millis, one, rate, references, traces, whole};
use core::time::Duration;
use flowgate::flow::{
    Algorithm, Instant, Rate, Rules,
    limiter::{concurrency, sliding_counter, sliding_window, token_bucket},
    pacing,
};
use serde_json::Value;

/// What became of the same arrivals here and there, each by its own state.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    traces: usize,
    /// Of those, the ones in which all is equal.
    equal: usize,
    arrivals: u64,
    /// Ours passed, theirs did not, and the other way round.
    only_ours: u64,
    only_theirs: u64,
    /// The cost of what passed.
    ours: u64,
    theirs: u64,
}

/// Plays the traces of `family` on gates of ours, and on `model`, which must decide as
/// the reference did.
fn tally(
    family: &str,
    rules: impl Fn(&Value) -> Rules,
    model: Option<fn(&Value, u64) -> references::Model>,
) -> Tally {
    let mut tally = Tally::default();
    for (name, path) in traces(&format!("deviating/{family}")) {
        let mut lines = lines(&path);
        let head = lines.next().expect("a first line");
        let params = &head["params"];
        let epoch = Instant::EPOCH + Duration::from_millis(whole(&head["epoch_ms"]));
        let mut model = model.map(|model| model(params, epoch.as_nanos()));
        let mut day = Day::new(&rules(params), epoch);
        let differed = tally.only_ours + tally.only_theirs;
        tally.traces += 1;
        for line in lines {
            let now = epoch + millis(&line["t"]);
            if !line["event"].is_null() {
                day.live.remove(&whole(&line["of"]));
                continue;
            }
            let cost = line["n"].as_u64().unwrap_or(1);
            let theirs = line["decision"] != "block";
            if let Some(model) = &mut model {
                let key = line["key"].as_str().unwrap_or_default();
                assert_eq!(model(now.as_nanos(), cost, key), theirs, "{name}: {line}");
            }
            let admission = day.gate.enter(now, &[day.claim(&line)]).ok();
            tally.arrivals += 1;
            tally.theirs += if theirs { cost } else { 0 };
            tally.ours += admission.as_ref().map_or(0, |_| cost);
            tally.only_ours += u64::from(admission.is_some() && !theirs);
            tally.only_theirs += u64::from(admission.is_none() && theirs);
            // The end of what only we admitted is not recorded.
            day.live.extend(
                admission.filter(|_| theirs).map(|admission| (whole(&line["i"]), admission.permit)),
            );
        }
        tally.equal += usize::from(tally.only_ours + tally.only_theirs == differed);
    }
    tally
}

#[test]
fn sliding_counter_keeps_the_fraction_that_russellluo_drops() {
    let rules = |params: &Value| {
        let rate = rate(&params["limit"], &params["sizeMs"]);
        one(Algorithm::SlidingCounter(sliding_counter::Config { rate }))
    };
    let tally = tally("russellluo_local", rules, Some(references::russellluo_local));
    let expected = Tally {
        traces: 46,
        equal: 15,
        arrivals: 31_763,
        only_ours: 1_186,
        only_theirs: 1_282,
        ours: 1_406_239,
        theirs: 1_406_434,
    };
    assert_eq!(tally, expected);
}

#[test]
fn sliding_counter_does_not_count_what_it_rejects_as_mennanov_does() {
    let rules = |params: &Value| {
        let rate = rate(&params["capacity"], &params["rateMs"]);
        one(Algorithm::SlidingCounter(sliding_counter::Config { rate }))
    };
    let tally = tally("mennanov_sliding", rules, Some(references::mennanov_sliding));
    let expected = Tally {
        traces: 27,
        equal: 9,
        arrivals: 21_903,
        only_ours: 3_538,
        only_theirs: 4,
        ours: 14_301,
        theirs: 10_767,
    };
    assert_eq!(tally, expected);
}

#[test]
fn token_bucket_fills_evenly_where_sentinels_fills_in_steps() {
    let rules = |params: &Value| {
        let rate = rate(&params["unitProduceNum"], &params["intervalInMs"]);
        let burst = whole(&params["maxTokenNum"]);
        one(Algorithm::TokenBucket(token_bucket::Config { rate, burst }))
    };
    let tally = tally("sentinel_tokenbucket", rules, Some(references::sentinel_tokenbucket));
    let expected = Tally {
        traces: 31,
        equal: 13,
        arrivals: 9_780,
        only_ours: 1_046,
        only_theirs: 902,
        ours: 6_784,
        theirs: 6_600,
    };
    assert_eq!(tally, expected);
}

#[test]
fn a_keyed_token_bucket_fills_evenly_where_sentinels_hot_parameter_fills_in_steps() {
    let rules = |params: &Value| {
        let (base, hot) = references::counts(params);
        let window = Duration::from_secs(whole(&params["durationInSec"]));
        let burst = whole(&params["burstCount"]);
        keyed([base, hot].map(|count| {
            let rate = Rate::new(count, window).expect("a rate");
            Algorithm::TokenBucket(token_bucket::Config { rate, burst: count + burst })
        }))
    };
    let tally = tally("sentinel_param_default", rules, Some(references::sentinel_param_default));
    let expected = Tally {
        traces: 53,
        equal: 22,
        arrivals: 9_690,
        only_ours: 970,
        only_theirs: 256,
        ours: 8_317,
        theirs: 7_602,
    };
    assert_eq!(tally, expected);
}

/// The Java one, then the Go one.
fn throttling(costs: &str) -> [Tally; 2] {
    let rules = |params: &Value, count: &str, window: &str| Rules {
        pacing: Some(pacing::Config {
            rate: rate(&params[count], &params[window]),
            max_wait: millis(&params["maxQueueingTimeMs"]),
            max_queue: u64::MAX,
            warm_up: None,
        }),
        ..Rules::default()
    };
    let java = |params: &Value| rules(params, "count", "statDurationMs");
    let go = |params: &Value| rules(params, "threshold", "statIntervalMs");
    [
        tally(&format!("sentinel_throttling{costs}"), java, Some(references::sentinel_throttling)),
        tally(
            &format!("sentinelgo_throttling{costs}"),
            go,
            Some(references::sentinelgo_throttling),
        ),
    ]
}

#[test]
fn pacing_rounds_no_interval() {
    let expected = [
        Tally {
            traces: 53,
            equal: 42,
            arrivals: 53_545,
            only_ours: 869,
            only_theirs: 952,
            ours: 11_342,
            theirs: 11_425,
        },
        Tally {
            traces: 22,
            equal: 18,
            arrivals: 17_049,
            only_ours: 289,
            only_theirs: 276,
            ours: 7_912,
            theirs: 7_899,
        },
    ];
    assert_eq!(throttling(""), expected);
}

#[test]
fn pacing_waits_for_the_cost_of_the_one_before() {
    let expected = [
        Tally {
            traces: 14,
            equal: 0,
            arrivals: 2_636,
            only_ours: 234,
            only_theirs: 837,
            ours: 288_882,
            theirs: 178_108,
        },
        Tally {
            traces: 5,
            equal: 0,
            arrivals: 715,
            only_ours: 82,
            only_theirs: 240,
            ours: 9_951,
            theirs: 7_037,
        },
    ];
    assert_eq!(throttling("_costs"), expected);
}

#[test]
fn keyed_pacing_rounds_no_interval_and_waits_for_the_cost_of_the_one_before() {
    let model = references::sentinel_param_throttle;
    let tally = tally("sentinel_param_throttle", references::paced_by_key, Some(model));
    let expected = Tally {
        traces: 15,
        equal: 1,
        arrivals: 31_400,
        only_ours: 602,
        only_theirs: 8_014,
        ours: 51_774,
        theirs: 46_445,
    };
    assert_eq!(tally, expected);
}

#[test]
fn sliding_window_counts_what_sentinel_averages_to_a_second() {
    let rules = |params: &Value| {
        // Of half a request in a window, one in two.
        let rate = rate(&params["count"], &params["intervalMs"]);
        let buckets = u32::try_from(whole(&params["sampleCount"])).expect("few buckets");
        one(Algorithm::SlidingWindow(sliding_window::Config { rate, buckets, strict: false }))
    };
    let tally = tally("sentinel_default_qps", rules, Some(references::sentinel_default_qps));
    let expected = Tally {
        traces: 16,
        equal: 0,
        arrivals: 4_061,
        only_ours: 39,
        only_theirs: 1_359,
        ours: 613,
        theirs: 1_982,
    };
    assert_eq!(tally, expected);
}

#[test]
fn concurrency_holds_the_cost_that_sentinels_threads_only_check() {
    let rules = |params: &Value| {
        one(Algorithm::Concurrency(concurrency::Config { limit: whole(&params["count"]) }))
    };
    let tally = tally("sentinel_default_thread", rules, None);
    let expected = Tally {
        traces: 1,
        equal: 0,
        arrivals: 288,
        only_ours: 0,
        only_theirs: 73,
        ours: 476,
        theirs: 686,
    };
    assert_eq!(tally, expected);
}

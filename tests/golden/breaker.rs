//! The breaker and Sentinel's three, which it departs from on purpose.
//!
//! Here it counts in one bucket that follows the clock, as they do, so that what is
//! left to differ are the answers it hears. Each trace that has such a difference is
//! listed with the number of its arrivals that are decided otherwise.

use crate::{integer, lines, millis, traces, whole};
use core::time::Duration;
use flowgate::flow::{
    Claim, Gate, Instant, Key, Outcome, Rules,
    breaker::{Config, Ratio, Slow},
};
use serde_json::Value;
use std::{collections::HashMap, path::Path, sync::Arc};

/// Traces with arrivals that are decided otherwise, and how many. In the first kind,
/// Sentinel's half-open breaker is decided by requests that were under way when it
/// opened; in the second, a ratio of 1 never opens it.
const DEVIATING: [(&str, usize); 5] = [
    ("sentinel_cb_error_count/th3_min5_si1000_tw1_rate5__late_completions", 1),
    ("sentinel_cb_error_ratio/th0.5_min5_si1000_tw1_rate40__late_completions", 192),
    ("sentinel_cb_error_ratio/th1.0_min5_si1000_tw1_rate30__all_bad", 444),
    ("sentinel_cb_error_ratio/th1.0_min5_si1000_tw1_rate3__flapping", 3),
    ("sentinel_cb_slow_ratio/rt50_ratio0.5_min5_si1000_tw1_rate40__late_completions", 26),
];

#[test]
fn breakers_decide_as_sentinels_but_for_what_was_under_way() {
    let mut deviating = Vec::new();
    let mut arrivals = 0;
    let mut played = 0;
    for family in ["sentinel_cb_error_count", "sentinel_cb_error_ratio", "sentinel_cb_slow_ratio"] {
        for (name, path) in traces(family) {
            let (all, different) = play(&path);
            played += 1;
            arrivals += all;
            if different > 0 {
                deviating.push((name, different));
            }
        }
    }
    assert_eq!((played, arrivals), (64, 51_227));
    let expected = DEVIATING.map(|(name, count)| (name.to_owned(), count));
    assert_eq!(deviating, expected);
}

/// Returns how many arrivals a trace has, and how many of them are decided otherwise.
fn play(path: &Path) -> (usize, usize) {
    let mut lines = lines(path);
    let head = lines.next().expect("a first line");
    let epoch = Instant::EPOCH + Duration::from_millis(whole(&head["epoch_ms"]));
    let gate = Arc::new(Gate::new(epoch));
    let rules = Rules { breaker: Some(config(&head["params"])), ..Rules::default() };
    let slot = gate.install(&rules, epoch).breaker.expect("a breaker");
    let mut live = HashMap::new();
    let mut arrivals = 0;
    let mut different = 0;
    for line in lines {
        let at = epoch + millis(&line["t"]);
        if line["event"] == "complete" {
            // Of what only Sentinel let pass nothing is known here.
            let permit = live.remove(&whole(&line["of"]));
            let failed = line["error"] == true;
            let outcome = if failed { Outcome::Failure { at } } else { Outcome::Success { at } };
            permit.map(|permit: flowgate::flow::Permit| permit.finish(outcome));
        } else if line["event"].is_null() {
            arrivals += 1;
            let admitted = gate
                .enter(
                    at,
                    &[Claim {
                        slot,
                        key: Key::Shared,
                        cost: 1,
                        patience: Duration::ZERO,
                        plan: None,
                    }],
                )
                .ok();
            let passed = line["decision"] == "pass";
            different += usize::from(admitted.is_some() != passed);
            // What Sentinel rejected never ends.
            live.extend(
                admitted.filter(|_| passed).map(|admission| (whole(&line["i"]), admission.permit)),
            );
        }
    }
    (arrivals, different)
}

fn config(params: &Value) -> Config {
    let ratio = |value: &Value| {
        let millionths = integer((value.as_f64().expect("a ratio") * 1e6).round());
        Ratio::new(u32::try_from(millionths).expect("small")).expect("a part")
    };
    let is = |grade: &str| params["grade"] == grade;
    Config {
        error_ratio: is("error_ratio").then(|| ratio(&params["threshold"])),
        slow: is("slow_ratio").then(|| Slow {
            after: millis(&params["maxAllowedRtMs"]),
            ratio: ratio(&params["slowRatioThreshold"]),
        }),
        // Sentinel's opens at one more.
        errors: is("error_count").then(|| whole(&params["threshold"]) + 1),
        min_requests: whole(&params["minRequestAmount"]),
        window: millis(&params["statIntervalMs"]),
        buckets: 1,
        open_for: Duration::from_secs(whole(&params["timeWindowSec"])),
        probes: 1,
        dry_run: false,
    }
}

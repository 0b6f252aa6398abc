//! The cold start beside Sentinel's, in Java and in Go, where there are always more
//! requests than may pass: what passes in each second lies within one step of theirs,
//! that is, between their second before and their second after.

use crate::{lines, millis, traces, whole};
use core::time::Duration;
use flowgate::flow::{
    Algorithm, Claim, Gate, Instant, Key, Rule, Rules, WarmUp, limiter::warm_up, pacing,
};
use serde_json::Value;
use std::{path::Path, sync::Arc};

/// Traces in which Sentinel admits nothing for ever, as the count is less than the cold
/// factor, and how many ours admits.
const DEADLOCKS: [(&str, u64); 7] = [
    ("sentinel_warmup/q1_w10_c3__sustained_1.5x", 16),
    ("sentinel_warmup/q1_w10_c3__sustained_1x", 23),
    ("sentinel_warmup/q2_w10_c3__sustained_1x", 47),
    ("sentinel_warmup/q2_w10_c3__sustained_4x", 36),
    ("sentinelgo_warmup/q1_w10_c3__sustained_1.5x", 16),
    ("sentinelgo_warmup/q1_w10_c3__sustained_1x", 23),
    ("sentinelgo_warmup/q1_w10_c3__sustained_4x", 18),
];

#[test]
fn a_cold_start_lies_within_one_step_of_sentinels() {
    let (mut deadlocks, mut beside) = (Vec::new(), Vec::new());
    for family in ["sentinel_warmup", "sentinelgo_warmup", "sentinel_warmup_ratelimiter"] {
        for (name, path) in traces(family) {
            let Played { theirs, ours, cost } = play(&path);
            if theirs.iter().all(|&passed| passed == 0) {
                deadlocks.push((name, ours.iter().sum()));
                continue;
            }
            for (second, &got) in ours.iter().enumerate() {
                let [before, after] = [second.saturating_sub(1), second + 1];
                let near = [before, second, after].map(|it| theirs.get(it).copied());
                let near = near.into_iter().flatten();
                let (least, most) = (near.clone().min(), near.max());
                // A second may hold one request more than its rate, or one less.
                let steps = least.expect("one").saturating_sub(cost)..=most.expect("one") + cost;
                if !steps.contains(&got) {
                    beside.push((name.clone(), second, theirs[second], got));
                }
            }
        }
    }
    let expected = DEADLOCKS.map(|(name, ours)| (name.to_owned(), ours));
    assert_eq!(deadlocks, expected);
    // Its intervals are whole milliseconds: 11 of them where ours is 10.5.
    let rounded = "sentinel_warmup_ratelimiter/q100_w10_c3_mq500__sustained_1.5x".to_owned();
    assert_eq!(beside, [(rounded, 10, 75, 95)]);
}

/// What passed in each second, by cost, and the largest cost.
struct Played {
    theirs: Vec<u64>,
    ours: Vec<u64>,
    cost: u64,
}

fn play(path: &Path) -> Played {
    let mut lines = lines(path);
    let head = lines.next().expect("a first line");
    let epoch = Instant::EPOCH + Duration::from_millis(head["epoch_ms"].as_u64().expect("one"));
    let gate = Arc::new(Gate::new(epoch));
    let installed = gate.install(&rules(&head["params"]), epoch);
    let slot = installed.flow.into_iter().chain(installed.pacing).next().expect("one rule");
    let mut played = Played { theirs: vec![], ours: vec![], cost: 0 };
    let mut arrived = 0;
    for line in lines {
        let now = epoch + millis(&line["t"]);
        let cost = line["n"].as_u64().expect("a cost");
        played.cost = played.cost.max(cost);
        arrived = now.since(epoch).as_secs();
        if line["decision"] != "block" {
            count(&mut played.theirs, now + millis(&line["wait_ms"]), epoch, cost);
        }
        if let Ok(admission) =
            gate.enter(now, &[Claim { slot, key: Key::Shared, cost, patience: Duration::ZERO }])
        {
            count(&mut played.ours, admission.permit.start(), epoch, cost);
        }
    }
    // The last second is not a whole one.
    let seconds = usize::try_from(arrived).expect("few");
    played.theirs.resize(seconds, 0);
    played.ours.resize(seconds, 0);
    played
}

fn count(seconds: &mut Vec<u64>, at: Instant, epoch: Instant, cost: u64) {
    let second = usize::try_from(at.since(epoch).as_secs()).expect("few");
    seconds.resize(seconds.len().max(second + 1), 0);
    seconds[second] += cost;
}

fn rules(params: &Value) -> Rules {
    let (count, factor) = if params["count"].is_null() {
        (&params["threshold"], &params["warmUpColdFactor"])
    } else {
        (&params["count"], &params["coldFactor"])
    };
    let rate = crate::rate(count, &Value::from(1_000));
    let warm_up = WarmUp {
        period: Duration::from_secs(whole(&params["warmUpPeriodSec"])),
        cold_factor: u32::try_from(whole(factor)).expect("small"),
    };
    if !params["maxQueueingTimeMs"].is_null() {
        let (max_wait, warm_up) = (millis(&params["maxQueueingTimeMs"]), Some(warm_up));
        let pacing = Some(pacing::Config { rate, max_wait, max_queue: u64::MAX, warm_up });
        return Rules { pacing, ..Rules::default() };
    }
    // As by default: one second's worth.
    let burst = (rate.count() / rate.window().as_secs()).max(1);
    let algorithm = Algorithm::WarmUp(warm_up::Config { rate, burst, warm_up });
    let rule = Rule { name: "rule".into(), algorithm, keyed: None, dry_run: false };
    Rules { flow: vec![rule], ..Rules::default() }
}

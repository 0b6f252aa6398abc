//! The cold start beside Sentinel's, in Java and in Go: every recorded trace, second by
//! second, and by name what sets the two apart.
//!
//! `warm_up.txt` has a line for each trace: the word for what differs (`SUMS` explains
//! them), the seconds in which ours lies more than one step beside theirs, and the cost
//! that passed, theirs and ours. A step is from their second before to their second
//! after, give or take one request.

use crate::{lines, millis, traces, whole};
use core::time::Duration;
use flowgate::flow::{
    Algorithm, Claim, Gate, Instant, Key, Rule, Rules, WarmUp, limiter::warm_up, pacing,
};
use serde_json::Value;
use std::{collections::BTreeMap, path::Path, sync::Arc};

/// What sets the traces of each word apart from ours: how many they are, the seconds more
/// than one step beside, and the cost that passed, theirs and ours. `docs/comparisons.md`
/// has the reasons at length.
///
/// - `back`: the clock steps back, and what is counted then is lost or rejected.
/// - `beat`: without a queue, what comes within an interval is lost, and it stays cold.
/// - `clumps`: a window lets a cold rate's second start at once, a bucket one request.
/// - `costly`: what costs more than a cold second's rate does not pass a cold window, and
///   waits in a queue for its own cost.
/// - `never`: a count below the cold factor, whose cold rate is cut down to nothing.
/// - `queue`: intervals in milliseconds, and what waits counts as silence until it starts.
/// - `saved`: a bucket saves up to `burst` while less is offered than it allows.
/// - `seconds`: warmth and coldness by whole seconds of the clock.
/// - `step`: nothing; no second lies beside, and the sums differ by a tenth at most.
/// - `whole`: rates cut down to whole requests, which shows at few requests a second.
const SUMS: [(&str, [u64; 4]); 10] = [
    ("back", [12, 5, 11_677, 20_692]),
    ("beat", [2, 15, 530, 1_141]),
    ("clumps", [10, 18, 9_401, 6_629]),
    ("costly", [6, 1, 14_809, 18_214]),
    ("never", [18, 52, 0, 341]),
    ("queue", [9, 29, 10_825, 11_759]),
    ("saved", [13, 35, 642_608, 680_716]),
    ("seconds", [8, 13, 460_760, 486_513]),
    ("step", [43, 0, 2_485_515, 2_539_852]),
    ("whole", [9, 2, 524, 631]),
];

#[test]
fn each_cold_start_lies_within_one_step_of_sentinels_but_for_what_is_named() {
    let mut expected = include_str!("warm_up.txt").lines();
    let mut sums = BTreeMap::<&str, [u64; 4]>::new();
    for family in ["sentinel_warmup", "sentinelgo_warmup", "sentinel_warmup_ratelimiter"] {
        for (name, path) in traces(family) {
            let played = play(&path);
            let [beside, theirs, ours] = played.sums();
            let line = expected.next().expect("a line for each trace");
            let word = line.split(' ').nth(1).expect("a word");
            assert_eq!(line, format!("{name} {word} {beside} {theirs} {ours}"));
            if word == "step" {
                assert!(beside == 0 && theirs.abs_diff(ours) * 10 <= theirs, "{line}");
            }
            let sum = sums.entry(word).or_default();
            *sum = [sum[0] + 1, sum[1] + beside, sum[2] + theirs, sum[3] + ours];
        }
    }
    assert_eq!(expected.next(), None, "each line has a trace");
    assert_eq!(sums, SUMS.into());
}

/// What passed in each second, by cost, and the largest cost.
struct Played {
    theirs: Vec<u64>,
    ours: Vec<u64>,
    cost: u64,
}

impl Played {
    /// Returns the seconds more than one step beside theirs, and all that passed, theirs
    /// and ours.
    fn sums(&self) -> [u64; 3] {
        let steps = (0..self.theirs.len()).map(|second| {
            let near = &self.theirs[second.saturating_sub(1)..self.theirs.len().min(second + 2)];
            let [least, most] =
                [near.iter().min(), near.iter().max()].map(|extreme| *extreme.expect("one"));
            // A second may hold one request more than its rate, or one less.
            least.saturating_sub(self.cost)..=most + self.cost
        });
        let beside = steps.zip(&self.ours).filter(|(steps, got)| !steps.contains(got)).count();
        [beside as u64, self.theirs.iter().sum(), self.ours.iter().sum()]
    }
}

fn play(path: &Path) -> Played {
    let mut lines = lines(path);
    let head = lines.next().expect("a first line");
    let epoch = Instant::EPOCH + Duration::from_millis(head["epoch_ms"].as_u64().expect("one"));
    let gate = Arc::new(Gate::new(epoch));
    let installed = gate.install(&rules(&head["params"]), epoch);
    let slot = installed.flow.into_iter().chain(installed.pacing).next().expect("one rule");
    let mut played = Played { theirs: vec![], ours: vec![], cost: 0 };
    let mut latest = epoch;
    for line in lines {
        let now = epoch + millis(&line["t"]);
        let cost = line["n"].as_u64().expect("a cost");
        played.cost = played.cost.max(cost);
        latest = latest.max(now);
        if line["decision"] != "block" {
            count(&mut played.theirs, now + millis(&line["wait_ms"]), epoch, cost);
        }
        if let Ok(admission) = gate.enter(
            now,
            &[Claim { slot, key: Key::Shared, cost, patience: Duration::ZERO, plan: None }],
        ) {
            count(&mut played.ours, admission.permit.start(), epoch, cost);
        }
    }
    // The last second is not a whole one.
    let seconds = usize::try_from(latest.since(epoch).as_secs()).expect("few");
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
        let max_wait = millis(&params["maxQueueingTimeMs"]);
        let warm_up = Some(warm_up);
        let pacing = Some(pacing::Config { rate, max_wait, max_queue: u64::MAX, warm_up });
        return Rules { pacing, ..Rules::default() };
    }
    // As by default.
    let burst = rate.count();
    let algorithm = Algorithm::WarmUp(warm_up::Config { rate, burst, warm_up });
    let rule = Rule {
        name: "rule".into(),
        algorithm,
        keyed: None,
        dry_run: false,
        settles: false,
        queue: None,
        reject_for: None,
    };
    Rules { flow: vec![rule], ..Rules::default() }
}

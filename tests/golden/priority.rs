//! Borrowing from the window to come, beside Sentinel's prioritized requests.
//!
//! There an ordinary request does not see what is lent: together more than the limit
//! start in a window. So decisions part with the first loan that another one would
//! have to heed; what is asserted is how many do, and by whose promise.

use crate::{lines, millis, traces, whole};
use core::time::Duration;
use flowgate::flow::{
    Algorithm, Claim, Gate, Instant, Key, Rate, Rule, Rules, limiter::sliding_window,
};
use std::{path::Path, sync::Arc};

#[test]
fn loans_are_granted_as_by_sentinel_and_heeded_beyond_it() {
    let (mut arrivals, mut different, mut equal) = (0, 0, 0);
    let mut most = (0, 0);
    for (_, path) in traces("sentinel_default_qps_prio") {
        let played = play(&path);
        arrivals += played.arrivals;
        different += played.different;
        equal += u32::from(played.different == 0);
        most = (most.0.max(played.over[0]), most.1.max(played.over[1]));
    }
    // Two of 32 traces; up to 3 more than the limit start there, and here none.
    assert_eq!((arrivals, different, equal, most), (15_344, 25, 30, (3, 0)));
}

struct Played {
    arrivals: u32,
    different: u32,
    /// By how much their starts and ours exceed the limit in the worst `b` buckets.
    over: [u64; 2],
}

fn play(path: &Path) -> Played {
    let mut lines = lines(path);
    let head = lines.next().expect("a first line");
    let params = &head["params"];
    let epoch = Instant::EPOCH + Duration::from_millis(whole(&head["epoch_ms"]));
    let (count, window) = (whole(&params["count"]), millis(&params["intervalMs"]));
    let rate = Rate::new(count, window).expect("a rate");
    let buckets = u32::try_from(whole(&params["sampleCount"])).expect("few");
    let config = sliding_window::Config { rate, buckets, strict: false };
    let algorithm = Algorithm::SlidingWindow(config);
    let rule = Rule { name: "rule".into(), algorithm, keyed: None, dry_run: false };
    let gate = Arc::new(Gate::new(epoch));
    let rules = Rules { flow: vec![rule], ..Rules::default() };
    let slot = gate.install(&rules, epoch).flow[0];
    // Sentinel's must be shorter than its timeout, ours at most as long.
    let longest = millis(&params["occupyTimeoutMs"]).saturating_sub(Duration::from_nanos(1));
    let mut played = Played { arrivals: 0, different: 0, over: [0; 2] };
    let mut starts = [Vec::new(), Vec::new()];
    for line in lines {
        let now = epoch + millis(&line["t"]);
        let cost = line["n"].as_u64().expect("a cost");
        let patience = if line["prio"] == true { longest } else { Duration::ZERO };
        let claim = Claim { slot, key: Key::Shared, cost, patience };
        let ours = gate.enter(now, &[claim]).ok().map(|it| it.permit.start());
        let passed = line["decision"] != "block";
        let theirs = passed.then(|| now + millis(&line["wait_ms"]));
        played.arrivals += 1;
        played.different += u32::from(ours != theirs);
        starts[0].extend(theirs.map(|at| (at, cost)));
        starts[1].extend(ours.map(|at| (at, cost)));
    }
    let length = window / buckets;
    played.over = starts.map(|starts| {
        let bucket = |at: Instant| at.as_nanos() / u64::try_from(length.as_nanos()).expect("short");
        let within = |last: u64| {
            let live = starts.iter().filter(|(at, _)| {
                (last.saturating_sub(u64::from(buckets) - 1)..=last).contains(&bucket(*at))
            });
            live.map(|(_, cost)| cost).sum::<u64>()
        };
        starts.iter().map(|(at, _)| within(bucket(*at)).saturating_sub(count)).max().unwrap_or(0)
    });
    played
}

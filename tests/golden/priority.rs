//! Borrowing from the window to come, beside Sentinel's prioritized requests.
//!
//! There a loan is forgotten when no request comes in the bucket that it was taken from,
//! and all loans are added to each window that is looked at. A model of these lines
//! decides every recorded arrival as Sentinel did; what is asserted is how many ours
//! decides otherwise, and by whose promise.

use crate::{lines, millis, traces, whole};
use core::time::Duration;
use flowgate::flow::{
    Algorithm, Claim, Gate, Instant, Key, Rate, Rule, Rules, SlotId, limiter::sliding_window,
};
use std::{collections::BTreeMap, path::Path, sync::Arc};

#[test]
fn loans_are_granted_as_by_sentinel_and_heeded_beyond_it() {
    let mut arrivals = 0;
    let mut different = 0;
    let mut equal = 0;
    let mut modelled = 0;
    let mut most = (0, 0);
    for (_, path) in traces("sentinel_default_qps_prio") {
        let played = play(&path);
        arrivals += played.arrivals;
        modelled += played.modelled;
        different += played.different;
        equal += u32::from(played.different == 0);
        most = (most.0.max(played.over[0]), most.1.max(played.over[1]));
    }
    assert_eq!(modelled, arrivals);
    // Two of 32 traces; up to 3 more than the limit start there, and here none.
    assert_eq!((arrivals, different, equal, most), (15_344, 25, 30, (3, 0)));
}

struct Played {
    arrivals: u32,
    different: u32,
    /// Arrivals that the model decides as Sentinel did.
    modelled: u32,
    /// By how much their starts and ours exceed the limit in the worst `b` buckets.
    over: [u64; 2],
}

fn play(path: &Path) -> Played {
    let mut lines = lines(path);
    let head = lines.next().expect("a first line");
    let params = &head["params"];
    let epoch = Instant::EPOCH + Duration::from_millis(whole(&head["epoch_ms"]));
    let count = whole(&params["count"]);
    let window = millis(&params["intervalMs"]);
    let rate = Rate::new(count, window).expect("a rate");
    let buckets = u32::try_from(whole(&params["sampleCount"])).expect("few");
    let config = sliding_window::Config { rate, buckets, strict: false };
    let (gate, slot) = gate(config, epoch);
    // Sentinel's must be shorter than its timeout, ours at most as long.
    let longest = millis(&params["occupyTimeoutMs"]).saturating_sub(Duration::from_nanos(1));
    let mut played = Played { arrivals: 0, different: 0, modelled: 0, over: [0; 2] };
    let mut starts = [Vec::new(), Vec::new()];
    let mut sentinel = Sentinel {
        buckets: u64::from(buckets),
        length: whole(&params["intervalMs"]) / u64::from(buckets),
        count,
        timeout: whole(&params["occupyTimeoutMs"]),
        ..Sentinel::default()
    };
    for line in lines {
        let now = epoch + millis(&line["t"]);
        let cost = line["n"].as_u64().expect("a cost");
        let patience = if line["prio"] == true { longest } else { Duration::ZERO };
        let claim = Claim { slot, key: Key::Shared, cost, patience, plan: None };
        let ours = gate.enter(now, &[claim]).ok().map(|entered| entered.permit.start());
        let passed = line["decision"] != "block";
        let theirs = passed.then(|| now + millis(&line["wait_ms"]));
        let model = sentinel.enter(whole(&line["t"]), cost, line["prio"] == true);
        played.modelled += u32::from(model.map(|wait| now + Duration::from_millis(wait)) == theirs);
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

fn gate(config: sliding_window::Config, epoch: Instant) -> (Arc<Gate>, SlotId) {
    let algorithm = Algorithm::SlidingWindow(config);
    let rule = Rule {
        name: "rule".into(),
        algorithm,
        keyed: None,
        dry_run: false,
        settles: false,
        queue: None,
        reject_for: None,
    };
    let gate = Arc::new(Gate::new(epoch));
    let slot = gate.install(&Rules { flow: vec![rule], ..Rules::default() }, epoch).flow[0];
    (gate, slot)
}

/// Sentinel's window with loans, in milliseconds.
#[derive(Default)]
struct Sentinel {
    buckets: u64,
    length: u64,
    count: u64,
    timeout: u64,
    /// What passed, by bucket.
    counted: BTreeMap<u64, u64>,
    /// What was lent, by the bucket that it was taken from.
    lent: BTreeMap<u64, u64>,
}

impl Sentinel {
    /// Returns how long a request waits, if it may start.
    fn enter(&mut self, t: u64, cost: u64, has_priority: bool) -> Option<u64> {
        let now = t / self.length;
        let later = self.lent.split_off(&(now + 1));
        // A loan is found by whoever opens its bucket, and by nobody afterwards.
        let found = self.lent.remove(&now).unwrap_or(0);
        self.lent = later;
        self.counted.retain(|bucket, _| bucket + self.buckets > now);
        *self.counted.entry(now).or_default() += found;
        let used: u64 = self.counted.values().sum();
        if used + cost <= self.count {
            *self.counted.entry(now).or_default() += cost;
            return Some(0);
        }
        let wait = self.borrow(t, cost, used).filter(|_| has_priority)?;
        *self.lent.entry((t + wait) / self.length).or_default() += cost;
        Some(wait)
    }

    /// Returns how long until enough buckets have left for the request and all loans.
    fn borrow(&self, t: u64, cost: u64, used: u64) -> Option<u64> {
        let lent: u64 = self.lent.values().sum();
        let now = t / self.length;
        let mut still = used;
        // At its beginning the current bucket is not looked for.
        for ahead in 0..self.buckets - u64::from(t.is_multiple_of(self.length)) {
            let wait = (ahead + 1) * self.length - t % self.length;
            if lent >= self.count || wait >= self.timeout {
                return None;
            }
            let leaves = (now + ahead + 1).checked_sub(self.buckets);
            still -= leaves.and_then(|bucket| self.counted.get(&bucket)).unwrap_or(&0);
            if still + lent + cost <= self.count {
                return Some(wait);
            }
        }
        None
    }
}

#[test]
fn a_loan_is_kept_where_sentinel_forgets_it() {
    let mut sentinel =
        Sentinel { buckets: 2, length: 500, count: 1, timeout: 500, ..Sentinel::default() };
    let theirs = [(0, false), (600, true), (1600, false)]
        .map(|(t, has_priority)| sentinel.enter(t, 1, has_priority));
    assert_eq!(theirs, [Some(0), Some(400), Some(0)]);
    let rate = Rate::new(1, Duration::from_secs(1)).expect("a rate");
    let config = sliding_window::Config { rate, buckets: 2, strict: false };
    let (gate, slot) = gate(config, Instant::EPOCH);
    let ours = [(0, 0), (600, 499), (1600, 0)].map(|(t, patience)| {
        let [now, patience] = [t, patience].map(Duration::from_millis);
        let claim = Claim { slot, key: Key::Shared, cost: 1, patience, plan: None };
        let start =
            gate.enter(Instant::EPOCH + now, &[claim]).ok().map(|entered| entered.permit.start());
        start.map(|start| start.since(Instant::EPOCH).as_millis())
    });
    assert_eq!(ours, [Some(0), Some(1000), None]);
}

//! Our decisions equal those recorded from reference implementations, one by one.
//!
//! `tests/golden/README.md` tells what was recorded from whom.

#[path = "golden/breaker.rs"]
mod breaker;
#[path = "golden/warm_up.rs"]
mod warm_up;

use core::time::Duration;
use flate2::read::GzDecoder;
use flowgate::flow::{
    Algorithm, Claim, Gate, Instant, Key, Outcome, Permit, Rate, Rule, Rules, SlotId,
    limiter::{concurrency, fixed_window, sliding_log, sliding_window, token_bucket},
    pacing,
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Traces whose clock steps back. Sentinel's windows then lose counts or refuse all
/// until the clock has caught up; our chain clamps, and decides as of the latest
/// instant it has seen. That is asserted in `laws.rs`.
const CLOCK_STEPS_BACK: [&str; 5] = [
    "sentinel_default_qps/q100__clock_back_underfull",
    "sentinel_default_qps/q10__clock_back",
    "sentinel_default_qps/q20_s1_i1000__clock_back_underfull",
    "sentinel_throttling/q100_mq0__clock_back_underfull",
    "sentinel_throttling/q10_mq0__clock_back_underfull",
];

/// Traces that are compared from 1 s on: the listing's first window begins when the
/// program does, ours with a request, and here there is none at the very start.
const FIRST_WINDOW_DIFFERS: [&str; 2] =
    ["seed_counter/l100_w1000__ramp_0_3x", "seed_counter/l2_w1000__poisson_1.0x"];

#[test]
fn fixed_window_decides_as_the_counter_of_the_articles() {
    compare("seed_counter", 18, |params| {
        let rate = rate(&params["limit"], &params["windowMs"]);
        let align = fixed_window::Align::FirstRequest;
        one(Algorithm::FixedWindow(fixed_window::Config { rate, align }))
    });
}

#[test]
fn sliding_log_decides_as_the_log_of_the_articles() {
    compare("seed_sliding_log", 30, |params| {
        let rate = rate(&params["limit"], &params["windowMs"]);
        one(Algorithm::SlidingLog(sliding_log::Config { rate }))
    });
}

#[test]
fn sliding_window_decides_as_sentinels_default_rule() {
    compare("sentinel_default_qps", 30, |params| {
        let rate = rate(&params["count"], &params["intervalMs"]);
        let buckets = u32::try_from(whole(&params["sampleCount"])).expect("few buckets");
        one(Algorithm::SlidingWindow(sliding_window::Config { rate, buckets, strict: false }))
    });
}

#[test]
fn concurrency_decides_as_sentinels_thread_grade() {
    compare("sentinel_default_thread", 10, |params| {
        one(Algorithm::Concurrency(concurrency::Config { limit: whole(&params["count"]) }))
    });
}

#[test]
fn pacing_waits_as_sentinels_throttling() {
    compare("sentinel_throttling", 110, |params| Rules {
        pacing: Some(pacing::Config {
            rate: rate(&params["count"], &params["statDurationMs"]),
            max_wait: millis(&params["maxQueueingTimeMs"]),
            max_queue: u64::MAX,
            warm_up: None,
        }),
        ..Rules::default()
    });
}

#[test]
fn token_bucket_decides_as_governor() {
    compare("governor_gcra", 83, |params| {
        let interval = Duration::from_nanos(whole(&params["replenish_interval_ns"]));
        let rate = Rate::new(1, interval).expect("an interval");
        let burst = whole(&params["burst"]);
        one(Algorithm::TokenBucket(token_bucket::Config { rate, burst }))
    });
}

/// Plays each of the `count` traces of `family` on a gate with the rules that its
/// parameters ask for.
fn compare(family: &str, count: usize, rules: impl Fn(&Value) -> Rules) {
    let mut played = 0;
    for (name, path) in traces(family) {
        if !CLOCK_STEPS_BACK.contains(&name.as_str()) {
            play(&name, &path, &rules);
            played += 1;
        }
    }
    assert_eq!(played, count, "every trace of {family} is played");
}

/// Returns the traces of `family` by name.
fn traces(family: &str) -> BTreeMap<String, PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(family);
    let files = fs::read_dir(directory).expect("the traces").map(|file| {
        let path = file.expect("a trace").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a plain name");
        (format!("{family}/{}", name.trim_end_matches(".jsonl.gz")), path)
    });
    files.collect()
}

/// Returns the lines of a trace, its head first.
fn lines(path: &Path) -> impl Iterator<Item = Value> {
    let lines = BufReader::new(GzDecoder::new(File::open(path).expect("a trace"))).lines();
    lines.map(|line| serde_json::from_str(&line.expect("gzip over text")).expect("JSON lines"))
}

fn play(name: &str, path: &Path, rules: impl Fn(&Value) -> Rules) {
    let mut lines = lines(path);
    let mut head = lines.next().expect("a first line");
    let mut params = head["params"].take();
    // Governor's interval stands beside its parameters.
    params["replenish_interval_ns"] = head["replenish_interval_ns"].take();
    let epoch = Instant::EPOCH + Duration::from_millis(head["epoch_ms"].as_u64().unwrap_or(0));
    let mut day = Day::new(&rules(&params), epoch);
    let from = epoch + Duration::from_secs(FIRST_WINDOW_DIFFERS.contains(&name).into());
    for line in lines {
        let now = epoch + millis(&line["t"]);
        if now < from {
            continue;
        }
        if line["event"].is_null() {
            day.arrive(name, &line, now);
        } else {
            assert_eq!(line["event"], "complete", "{name}: {line}");
            day.complete(whole(&line["of"]), now);
        }
    }
}

/// A gate while a trace is played.
struct Day {
    gate: Arc<Gate>,
    slot: SlotId,
    live: HashMap<u64, Permit>,
}

impl Day {
    fn new(rules: &Rules, epoch: Instant) -> Self {
        let gate = Arc::new(Gate::new(epoch));
        let installed = gate.install(rules, epoch);
        let slot = installed.flow.into_iter().chain(installed.pacing).next().expect("one rule");
        Self { gate, slot, live: HashMap::new() }
    }

    fn arrive(&mut self, name: &str, line: &Value, now: Instant) {
        let cost = line["n"].as_u64().unwrap_or(1);
        match self.gate.enter(now, &[Claim { slot: self.slot, key: Key::Shared, cost }]) {
            Ok(admission) => {
                let wait = admission.permit.start().since(now);
                let decided = if wait.is_zero() { "pass" } else { "wait" };
                assert_eq!(line["decision"], decided, "{name}: {line}");
                let recorded = millis(&line["wait_ms"]);
                assert!(wait.abs_diff(recorded) <= MICROSECOND, "{name}: {line}, not {wait:?}");
                self.live.insert(whole(&line["i"]), admission.permit);
            }
            Err(rejection) => {
                assert_eq!(line["decision"], "block", "{name}: {line}");
                if !line["retry_ms"].is_null() {
                    let retry_after = rejection.reason.retry_after();
                    assert_eq!(retry_after, Some(millis(&line["retry_ms"])), "{name}: {line}");
                }
                if line["reason"] == "insufficient_capacity" {
                    assert!(rejection.reason.is_lasting(), "{name}: {line}");
                }
            }
        }
    }

    fn complete(&mut self, of: u64, at: Instant) {
        let permit = self.live.remove(&of).expect("it was admitted");
        permit.finish(Outcome::Success { at });
    }
}

const MICROSECOND: Duration = Duration::from_micros(1);

fn one(algorithm: Algorithm) -> Rules {
    let name = algorithm.word().into();
    Rules { flow: vec![Rule { name, algorithm, keyed: None, dry_run: false }], ..Rules::default() }
}

/// Returns a count that may have halves, per milliseconds.
fn rate(count: &Value, window: &Value) -> Rate {
    let (count, window) = (count.as_f64().expect("a count"), millis(window));
    let rate = if count.fract() == 0.0 {
        Rate::new(integer(count), window)
    } else {
        Rate::new(integer(count * 2.0), window * 2)
    };
    rate.expect("a rate within its bounds")
}

/// Returns milliseconds with up to six decimals, which a double holds exactly.
fn millis(value: &Value) -> Duration {
    Duration::from_nanos(integer((value.as_f64().unwrap_or(0.0) * 1e6).round()))
}

fn whole(value: &Value) -> u64 {
    integer(value.as_f64().expect("a number"))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "asserted")]
fn integer(value: f64) -> u64 {
    assert!(value >= 0.0 && value.fract() == 0.0 && value < 1e15, "{value}");
    value as u64
}

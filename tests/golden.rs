//! Our decisions equal those recorded from reference implementations, one by one.
//!
//! `tests/golden/README.md` says what was recorded, and from which programs.

#[path = "golden/breaker.rs"]
mod breaker;
#[path = "golden/deviations.rs"]
mod deviations;
#[path = "cluster/equal.rs"]
mod equal;
mod port;
#[path = "golden/priority.rs"]
mod priority;
#[path = "golden/references.rs"]
mod references;
#[path = "cluster/server.rs"]
mod server;
#[path = "golden/warm_up.rs"]
mod warm_up;

use core::time::Duration;
use equal::{Event, Store};
use flate2::read::GzDecoder;
use flowgate::flow::{
    Algorithm, Claim, Gate, Instant, Key, Keyed, Outcome, Permit, Rate, Reason, Rule, Rules,
    SlotId,
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

/// Traces whose clock steps back. Sentinel's windows then lose counts or reject all
/// until the clock has caught up; our chain clamps, and decides as of the latest
/// instant it has seen. That is asserted in `laws.rs`.
const CLOCK_STEPS_BACK: [&str; 5] = [
    "sentinel_default_qps/q100__clock_back_underfull",
    "sentinel_default_qps/q10__clock_back",
    "sentinel_default_qps/q20_s1_i1000__clock_back_underfull",
    "sentinel_throttling/q100_mq0__clock_back_underfull",
    "sentinel_throttling/q10_mq0__clock_back_underfull",
];

#[test]
fn fixed_window_decides_as_the_counter_of_the_articles() {
    compare("seed_counter", (18, 13_274), |params| {
        let rate = rate(&params["limit"], &params["windowMs"]);
        let align = fixed_window::Align::FirstRequest;
        one(Algorithm::FixedWindow(fixed_window::Config { rate, align }))
    });
}

#[test]
fn sliding_log_decides_as_the_log_of_the_articles() {
    compare("seed_sliding_log", (30, 9_284), |params| {
        let rate = rate(&params["limit"], &params["windowMs"]);
        one(Algorithm::SlidingLog(sliding_log::Config { rate }))
    });
}

#[test]
fn sliding_window_decides_as_sentinels_default_rule() {
    compare("sentinel_default_qps", (30, 18_272), |params| {
        let rate = rate(&params["count"], &params["intervalMs"]);
        let buckets = u32::try_from(whole(&params["sampleCount"])).expect("few buckets");
        one(Algorithm::SlidingWindow(sliding_window::Config { rate, buckets, strict: false }))
    });
}

#[test]
fn concurrency_decides_as_sentinels_thread_grade() {
    compare("sentinel_default_thread", (10, 10_715), |params| {
        one(Algorithm::Concurrency(concurrency::Config { limit: whole(&params["count"]) }))
    });
}

#[test]
fn pacing_waits_as_sentinels_throttling() {
    compare("sentinel_throttling", (110, 109_946), |params| Rules {
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
fn pacing_decides_and_waits_as_mennanovs_leaky_bucket() {
    compare("mennanov_leakybucket", (43, 27_996), |params| {
        let interval = nanos(&params["rateNs"]);
        let places = whole(&params["capacity"]);
        // It rejects a request that would wait for so many intervals.
        let most = interval * u32::try_from(places).expect("few places");
        let max_wait = most.saturating_sub(Duration::from_nanos(1));
        let rate = Rate::new(1, interval).expect("an interval");
        let pacing = Some(pacing::Config { rate, max_wait, max_queue: u64::MAX, warm_up: None });
        Rules { pacing, ..Rules::default() }
    });
}

#[test]
fn token_bucket_decides_as_mennanovs() {
    compare("mennanov_tokenbucket", (26, 19_446), |params| {
        let rate = Rate::new(1, nanos(&params["refillNs"])).expect("an interval");
        let burst = whole(&params["capacity"]);
        one(Algorithm::TokenBucket(token_bucket::Config { rate, burst }))
    });
}

#[test]
fn fixed_window_decides_as_mennanovs() {
    compare("mennanov_fixed", (31, 25_381), |params| {
        let rate = rate(&params["capacity"], &params["rateMs"]);
        let align = fixed_window::Align::Clock;
        one(Algorithm::FixedWindow(fixed_window::Config { rate, align }))
    });
}

#[test]
fn sliding_window_decides_as_the_rule_of_sentinel_golang() {
    compare("sentinelgo_reject", (30, 9_310), |params| {
        // Its buckets are 500 ms, up to 10 s; another interval has a bucket to itself.
        let interval = whole(&params["statIntervalMs"]);
        let is_shared = interval <= 10_000 && interval.is_multiple_of(500);
        let buckets =
            if is_shared { u32::try_from(interval / 500).expect("at most 20") } else { 1 };
        // Of two and a half a window no third one passes.
        let count = params["threshold"].as_f64().expect("a count").floor();
        let rate = rate(&integer(count).into(), &params["statIntervalMs"]);
        one(Algorithm::SlidingWindow(sliding_window::Config { rate, buckets, strict: false }))
    });
}

#[test]
fn keyed_concurrency_decides_as_sentinels_threads_of_hot_parameters() {
    compare("sentinel_param_thread", (1, 360), |params| {
        let (base, hot) = references::counts(params);
        keyed([base, hot].map(|limit| Algorithm::Concurrency(concurrency::Config { limit })))
    });
}

#[test]
fn keyed_pacing_decides_and_waits_as_sentinels_throttling_of_hot_parameters() {
    compare("sentinel_param_throttle", (29, 5_170), references::paced_by_key);
}

#[test]
fn token_bucket_decides_as_governor() {
    compare("governor_gcra", (83, 72_426), |params| {
        let interval = Duration::from_nanos(whole(&params["replenish_interval_ns"]));
        let rate = Rate::new(1, interval).expect("an interval");
        let burst = whole(&params["burst"]);
        one(Algorithm::TokenBucket(token_bucket::Config { rate, burst }))
    });
}

/// Plays each trace of `family` on a gate with the rules that its parameters ask for:
/// so many traces, with so many arrivals. A store that gateways share decides alike.
fn compare(family: &str, count: (usize, u64), rules: impl Fn(&Value) -> Rules) {
    let mut played = (0, 0);
    let mut store = Store::start();
    for (name, path) in traces(family) {
        if !CLOCK_STEPS_BACK.contains(&name.as_str()) {
            played = (played.0 + 1, played.1 + play(&name, &path, &rules));
            let rules = rules(&params(&path));
            // A store keeps no logs, and paces for a route only.
            let is_local = |algorithm: &Algorithm| {
                matches!(algorithm, Algorithm::SlidingLog(_) | Algorithm::Pacing(_))
            };
            if !rules.flow.iter().any(|rule| is_local(&rule.algorithm)) {
                store.compare(&name, &rules, &events(&path, rules.flow.len() > 1));
            }
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

/// Returns the parameters of a trace's rule.
fn params(path: &Path) -> Value {
    let mut head = lines(path).next().expect("a first line");
    let mut params = head["params"].take();
    // Governor's interval stands beside its parameters.
    params["replenish_interval_ns"] = head["replenish_interval_ns"].take();
    params
}

/// Returns what happens in a trace, whose rule may have another one beside it, for the key `hot`.
fn events(path: &Path, has_hot: bool) -> Vec<Event> {
    let event = |line: Value| {
        if !line["event"].is_null() {
            return Event::End { of: whole(&line["of"]) };
        }
        let ask = Some((key(&line["key"]), line["n"].as_u64().unwrap_or(1)));
        let asks = if has_hot && line["key"] == "hot" { vec![None, ask] } else { vec![ask, None] };
        Event::Arrival { id: whole(&line["i"]), now: Instant::EPOCH + millis(&line["t"]), asks }
    };
    lines(path).skip(1).map(event).collect()
}

/// Returns how many arrivals there were.
fn play(name: &str, path: &Path, rules: impl Fn(&Value) -> Rules) -> u64 {
    let params = params(path);
    let lines = lines(path).skip(1);
    // A trace begins at a whole minute, so that windows fall the same from zero.
    let epoch = Instant::EPOCH;
    let mut day = Day::new(&rules(&params), epoch);
    // Mennanov's token bucket leaves out the part of a token that it has.
    day.late = params["refillNs"].as_u64().map_or(Duration::ZERO, Duration::from_nanos);
    let mut arrivals = 0;
    for line in lines {
        let now = epoch + millis(&line["t"]);
        arrivals += u64::from(line["event"].is_null());
        if line["event"].is_null() {
            day.arrive(name, &line, now);
        } else {
            assert_eq!(line["event"], "complete", "{name}: {line}");
            day.complete(whole(&line["of"]), now);
        }
    }
    arrivals
}

/// A gate while a trace is played.
struct Day {
    gate: Arc<Gate>,
    /// The rule's, and that of the key `hot` if it has one of its own.
    slots: Vec<SlotId>,
    live: HashMap<u64, Permit>,
    /// How much later than need be the reference says to come back, at most.
    late: Duration,
}

impl Day {
    fn new(rules: &Rules, epoch: Instant) -> Self {
        let gate = Arc::new(Gate::new(epoch));
        let installed = gate.install(rules, epoch);
        let slots = installed.flow.into_iter().chain(installed.pacing).collect();
        Self { gate, slots, live: HashMap::new(), late: Duration::ZERO }
    }

    fn claim(&self, line: &Value) -> Claim {
        let is_hot = line["key"] == "hot" && self.slots.len() > 1;
        let slot = self.slots[usize::from(is_hot)];
        let cost = line["n"].as_u64().unwrap_or(1);
        Claim { slot, key: key(&line["key"]), cost, patience: Duration::ZERO, plan: None }
    }

    fn arrive(&mut self, name: &str, line: &Value, now: Instant) {
        match self.gate.enter(now, &[self.claim(line)]) {
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
                    self.advise(rejection.reason, millis(&line["retry_ms"]), line);
                }
                if line["reason"] == "insufficient_capacity" {
                    assert!(rejection.reason.is_lasting(), "{name}: {line}");
                }
            }
        }
    }

    /// Compares when to come back.
    fn advise(&self, reason: Reason, theirs: Duration, line: &Value) {
        if let Reason::QueueWait { wait, .. } = reason {
            // They say when the request would start, were it to wait.
            assert_eq!(wait, theirs, "{line}");
        } else if !reason.is_lasting() {
            let ours = reason.retry_after().expect("a rate");
            let late = theirs.checked_sub(ours).expect("not too early");
            assert!(late <= self.late, "{line}: {ours:?}");
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
    Rules {
        flow: vec![Rule {
            name,
            algorithm,
            keyed: None,
            dry_run: false,
            settles: false,
            queue: None,
            reject_for: None,
        }],
        ..Rules::default()
    }
}

/// Returns two rules with a state for each key.
fn keyed(algorithms: [Algorithm; 2]) -> Rules {
    let mut rules = Rules::default();
    for (at, algorithm) in algorithms.into_iter().enumerate() {
        let keyed = Some(Keyed { by: "key".into(), max_keys: 1_000 });
        rules.flow.push(Rule {
            name: at.to_string().into(),
            algorithm,
            keyed,
            dry_run: false,
            settles: false,
            queue: None,
            reject_for: None,
        });
    }
    rules
}

/// Returns a key as evenly spread as a hash.
fn key(name: &Value) -> Key {
    name.as_str().map_or(Key::Shared, |name| {
        let step = |key: u128, byte| {
            (key ^ u128::from(byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013B)
        };
        Key::Of(name.bytes().fold(0x6C62_272E_07BB_0142_62B8_2175_6295_C58D, step))
    })
}

fn nanos(value: &Value) -> Duration {
    Duration::from_nanos(whole(value))
}

/// Returns a count that may have halves, per milliseconds.
fn rate(count: &Value, window: &Value) -> Rate {
    let count = count.as_f64().expect("a count");
    let window = millis(window);
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

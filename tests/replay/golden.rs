//! Traces recorded from reference implementations, through the door that users have:
//! a configuration in YAML, events in a file, decisions as JSON lines.

use crate::one_route;
use core::fmt::Write as _;
use flate2::read::GzDecoder;
use serde_json::Value;
use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    path::Path,
};

/// The clock of these steps back: see `tests/golden.rs`.
const DIFFERENT: [&str; 5] = [
    "sentinel_default_qps/q100__clock_back_underfull",
    "sentinel_default_qps/q10__clock_back",
    "sentinel_default_qps/q20_s1_i1000__clock_back_underfull",
    "sentinel_throttling/q100_mq0__clock_back_underfull",
    "sentinel_throttling/q10_mq0__clock_back_underfull",
];

#[test]
fn fixed_window_replays_the_counter_of_the_articles() {
    compare("seed_counter", 18, |params| {
        format!(
            "    flow: [{{ name: it, algorithm: fixed_window, align: first_request, limit: {}/{}ms }}]",
            params["limit"], params["windowMs"]
        )
    });
}

#[test]
fn sliding_window_replays_sentinels_default_rule() {
    compare("sentinel_default_qps", 30, |params| {
        format!(
            "    flow: [{{ name: it, algorithm: sliding_window, limit: {}/{}ms, buckets: {} }}]",
            params["count"], params["intervalMs"], params["sampleCount"]
        )
    });
}

#[test]
fn concurrency_replays_sentinels_thread_grade() {
    compare("sentinel_default_thread", 10, |params| {
        format!("    flow: [{{ name: it, concurrency: {} }}]", params["count"])
    });
}

#[test]
fn pacing_replays_sentinels_throttling() {
    compare("sentinel_throttling", 110, |params| {
        let count = number(&params["count"]);
        let window = number(&params["statDurationMs"]);
        let (count, window) =
            if count.fract() == 0.0 { (count, window) } else { (count * 2.0, window * 2.0) };
        let max_wait = &params["maxQueueingTimeMs"];
        format!("    pacing: {{ rate: {count}/{window}ms, max_wait: {max_wait}ms }}")
    });
}

#[test]
fn token_bucket_replays_governor() {
    compare("governor_gcra", 83, |params| {
        format!(
            "    flow: [{{ name: it, algorithm: token_bucket, limit: 1/{}ns, burst: {} }}]",
            params["replenish_interval_ns"], params["burst"]
        )
    });
}

fn compare(family: &str, count: usize, rules: impl Fn(&Value) -> String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(family);
    let mut played = 0;
    for file in fs::read_dir(folder).expect("the traces") {
        let path = file.expect("a trace").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a plain name");
        let name = format!("{family}/{}", name.trim_end_matches(".jsonl.gz"));
        if !DIFFERENT.contains(&name.as_str()) {
            play(&name, &path, &rules);
            played += 1;
        }
    }
    assert_eq!(played, count, "every trace of {family} is played");
}

fn play(name: &str, path: &Path, rules: impl Fn(&Value) -> String) {
    let lines = BufReader::new(GzDecoder::new(File::open(path).expect("a trace"))).lines();
    let mut lines = lines.map(|line| {
        serde_json::from_str::<Value>(&line.expect("gzip over text")).expect("JSON lines")
    });
    let mut head = lines.next().expect("a first line");
    let mut params = head["params"].take();
    params["replenish_interval_ns"] = head["replenish_interval_ns"].take();

    let mut events = String::new();
    let mut arrivals = Vec::new();
    for line in lines {
        if line["event"] == "complete" {
            writeln!(events, r#"{{"t":{},"complete":{}}}"#, line["t"], line["of"]).expect("text");
        } else {
            writeln!(events, r#"{{"t":{},"cost":{}}}"#, line["t"], line["n"]).expect("text");
            arrivals.push(line);
        }
    }

    let (decisions, complaints) =
        crate::replayed(&one_route(&rules(&params)), events, |_| {}).expect("it is replayed");
    assert_eq!(complaints, "", "{name}");
    let mut decisions = decisions.lines();
    for recorded in arrivals {
        let line = decisions.next().expect("a decision for each arrival");
        let ours: Value = serde_json::from_str(line).expect("JSON");
        let word = match recorded["decision"].as_str().expect("a word") {
            "pass" => "passed",
            "wait" => "delayed",
            _ => "rejected",
        };
        assert!(ours["decision"] == word, "{name}: {recorded} {ours}");
        assert_eq!(number(&ours["t"]), number(&recorded["t"]), "{name}");

        let wait = number(&ours["wait_ms"]) - recorded["wait_ms"].as_f64().unwrap_or(0.0);
        assert!(wait.abs() <= 0.001, "{name}: {recorded} {ours}");
        if let Some(retry) = recorded["retry_ms"].as_f64() {
            assert_eq!(number(&ours["retry_after_ms"]), retry, "{name}: {recorded} {ours}");
        }
    }
    assert_eq!(decisions.next(), None, "{name}");
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

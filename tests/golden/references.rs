//! The references that we differ from, in a few lines each.
//!
//! Each of these decides every recorded arrival as the reference did: so what sets ours
//! apart is what stands here, and nothing else.

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "as the references compute"
)]

use super::{keyed, millis, whole};
use core::time::Duration;
use flowgate::flow::{Algorithm, Rate, Rules, pacing};
use serde_json::Value;
use std::collections::{HashMap, VecDeque};

/// Decides about an arrival: at so many nanoseconds, of this cost and key.
pub(crate) type Model = Box<dyn FnMut(u64, u64, &str) -> bool>;

const MS: u64 = 1_000_000;

/// Two windows, the weighted count cut down to a whole number.
pub(crate) fn russellluo_local(params: &Value, _epoch: u64) -> Model {
    let window = whole(&params["sizeMs"]) * MS;
    let limit = whole(&params["limit"]);
    let mut index = 0;
    let mut prev = 0;
    let mut curr = 0;
    Box::new(move |now, cost, _| {
        (index, prev, curr) = roll(index, prev, curr, now / window);
        let weight = (window - now % window) as f64 / window as f64;
        let passes = (weight * prev as f64) as u64 + curr + cost <= limit;
        curr += if passes { cost } else { 0 };
        passes
    })
}

/// The same, but what is rejected is counted, up to one more than the limit.
pub(crate) fn mennanov_sliding(params: &Value, _epoch: u64) -> Model {
    let window = whole(&params["rateMs"]) * MS;
    let limit = whole(&params["capacity"]);
    let epsilon = params["epsilon"].as_f64().expect("a number");
    let mut index = 0;
    let mut prev = 0;
    let mut curr = 0;
    Box::new(move |now, _, _| {
        (index, prev, curr) = roll(index, prev, curr, now / window);
        curr = (curr + 1).min(limit + 1);
        let weighted = (prev * (window - now % window)) as f64 / window as f64;
        weighted + curr as f64 - (limit as f64) < epsilon
    })
}

fn roll(index: u64, prev: u64, curr: u64, now: u64) -> (u64, u64, u64) {
    match now - index {
        0 => (index, prev, curr),
        1 => (now, curr, 0),
        _ => (now, 0, 0),
    }
}

/// Tokens come all at once, at the end of each interval since the start.
pub(crate) fn sentinel_tokenbucket(params: &Value, epoch: u64) -> Model {
    let number = |name: &str| whole(&params[name]);
    let unit = number("unitProduceNum");
    let most = number("maxTokenNum");
    let interval = number("intervalInMs") * MS;
    let mut tokens = if number("fullStart") > 0 { most } else { 0 };
    // Units that have come; the first comes with the first request.
    let mut come = 0;
    Box::new(move |now, cost, _| {
        let due = (now - epoch) / interval + 1;
        tokens = most.min(tokens + (due - come) * unit);
        come = due;
        let passes = cost <= tokens;
        tokens -= if passes { cost } else { 0 };
        passes
    })
}

/// Tokens come when more than a whole duration has passed since they last came.
pub(crate) fn sentinel_param_default(params: &Value, _epoch: u64) -> Model {
    let (base, hot) = counts(params);
    let duration = whole(&params["durationInSec"]) * 1_000;
    let burst = whole(&params["burstCount"]);
    let mut keys: HashMap<String, (u64, u64)> = HashMap::new();
    Box::new(move |now, cost, key| {
        let now = now / MS;
        let count = if key == "hot" { hot } else { base };
        let most = count + burst;
        let known = keys.get(key).copied();
        let (last, rest) = match known {
            Some((last, rest)) if now - last > duration => {
                (now, most.min(rest + (now - last) * count / duration))
            }
            Some(known) => known,
            None => (now, most),
        };
        let left = rest.checked_sub(cost);
        if let Some(left) = left {
            keys.insert(key.to_owned(), (last, left));
        }
        left.is_some()
    })
}

/// Buckets whose sum counts as the average of a second, cut down to a whole number.
pub(crate) fn sentinel_default_qps(params: &Value, _epoch: u64) -> Model {
    let window = whole(&params["intervalMs"]) * MS;
    let buckets = whole(&params["sampleCount"]);
    let limit = params["count"].as_f64().expect("a number");
    let bucket = window / buckets;
    let mut ring: VecDeque<(u64, u64)> = VecDeque::new();
    Box::new(move |now, cost, _| {
        let current = now / bucket;
        ring.retain(|(index, _)| index + buckets > current);
        let sum: u64 = ring.iter().map(|(_, cost)| cost).sum();
        let average = (sum as f64 / (window as f64 / 1e9)) as u64;
        let passes = (average + cost) as f64 <= limit;
        ring.extend(passes.then_some((current, cost)));
        passes
    })
}

/// A queue whose intervals are rounded to nanoseconds, or to milliseconds where the rounded
/// count divides the duration; who comes waits for its own cost.
pub(crate) fn sentinel_throttling(params: &Value, _epoch: u64) -> Model {
    let count = params["count"].as_f64().expect("a number");
    let duration = whole(&params["statDurationMs"]);
    let is_fine = !duration.is_multiple_of((count + 0.5) as u64) || count / duration as f64 > 1.0;
    let unit = if is_fine { 1 } else { MS };
    let interval = move |cost: u64| {
        let exact = (MS / unit * duration * cost) as f64 / count;
        (exact + 0.5).floor() as u64 * unit
    };
    queue(millis(&params["maxQueueingTimeMs"]), interval)
}

/// The same, rounded up to nanoseconds, and no cost above the count.
pub(crate) fn sentinelgo_throttling(params: &Value, _epoch: u64) -> Model {
    let count = params["threshold"].as_f64().expect("a number");
    let duration = (whole(&params["statIntervalMs"]) * MS) as f64;
    let interval = move |cost: u64| (cost as f64 / count * duration).ceil() as u64;
    let mut queue = queue(millis(&params["maxQueueingTimeMs"]), interval);
    Box::new(move |now, cost, key| cost as f64 <= count && queue(now, cost, key))
}

fn queue(longest: Duration, interval: impl Fn(u64) -> u64 + 'static) -> Model {
    let mut next_after: Option<u64> = None;
    Box::new(move |now, cost, _| {
        let start = next_after.map_or(now, |last| now.max(last + interval(cost)));
        let passes = Duration::from_nanos(start - now) <= longest;
        next_after = if passes { Some(start) } else { next_after };
        passes
    })
}

/// A queue for each key, whose intervals are rounded to milliseconds.
pub(crate) fn sentinel_param_throttle(params: &Value, _epoch: u64) -> Model {
    let (base, hot) = counts(params);
    let duration = whole(&params["durationInSec"]) * 1_000;
    // It rejects a request that would wait for so long.
    let longest = millis(&params["maxQueueingTimeMs"]).saturating_sub(Duration::from_nanos(1));
    let mut queues: HashMap<String, Model> = HashMap::new();
    Box::new(move |now, cost, key| {
        let of_key = queues.entry(key.to_owned()).or_insert_with(|| {
            let count = if key == "hot" { hot } else { base };
            let exact = move |cost: u64| (duration * cost) as f64 / count as f64;
            queue(longest, move |cost| (exact(cost) + 0.5).floor() as u64 * MS)
        });
        of_key(now, cost, key)
    })
}

/// Returns the count of a rule on parameters, and that of the key `hot`.
pub(crate) fn counts(params: &Value) -> (u64, u64) {
    let hot = params["hotItems"].as_str().and_then(|items| items.strip_prefix("hot:"));
    let base = whole(&params["count"]);
    (base, hot.map_or(base, |hot| hot.parse().expect("a number")))
}

/// Returns the rules that throttle each key as Sentinel's hot parameters do, where no
/// interval is rounded.
pub(crate) fn paced_by_key(params: &Value) -> Rules {
    let (base, hot) = counts(params);
    let window = Duration::from_secs(whole(&params["durationInSec"]));
    // It rejects a request that would wait for so long.
    let max_wait = millis(&params["maxQueueingTimeMs"]).saturating_sub(Duration::from_nanos(1));
    keyed([base, hot].map(|count| {
        let rate = Rate::new(count, window).expect("a rate");
        Algorithm::Pacing(pacing::Config { rate, max_wait, max_queue: u64::MAX, warm_up: None })
    }))
}

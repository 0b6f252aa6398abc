//! What a rule, a breaker or a pacing promises, in words.

use crate::flow::{
    Algorithm, Rate, WarmUp,
    breaker::{self, Ratio},
    limiter::{
        fixed_window::{self, Align},
        sliding_window,
    },
    pacing,
};
use crate::{config::spec::leaf::short, counted::counted};
use bytesize::ByteSize;
use std::time::Duration;

/// Says the most that a rule lets pass: its line of the table of promises, with its numbers.
pub(in crate::config) fn promise(algorithm: &Algorithm) -> String {
    match algorithm {
        Algorithm::TokenBucket(config) => bucket("token_bucket", config.rate, config.burst),
        Algorithm::WarmUp(config) => {
            let promise = bucket("token_bucket", config.rate, config.burst);
            format!("{promise}, when warm; {}", ramp_promise(config.rate, config.warm_up))
        }
        Algorithm::LeakyBucket(config) => bucket("leaky_bucket", config.rate, config.capacity),
        Algorithm::SlidingLog(config) => {
            let count = config.rate.count();
            let window = short(config.rate.window());
            let log = ByteSize(config.full_bytes() as u64);
            format!(
                "sliding_log {count}/{window}: at most {count} in any {window}, exactly; \
                 a log of up to {log:.1}"
            )
        }
        Algorithm::SlidingWindow(config) => sliding(config),
        Algorithm::SlidingCounter(config) => {
            let count = config.rate.count();
            let window = short(config.rate.window());
            let most = 2 * count - 1;
            // Of a full window the last one is in sight to the end of the next.
            let saturated = match count {
                1 => "1 in every other window".to_owned(),
                count => format!("{} in each", count - 1),
            };
            format!(
                "sliding_counter {count}/{window}: at most {count} in each window of the clock, \
                 {most} in any {window}; {saturated} under saturation"
            )
        }
        Algorithm::FixedWindow(config) => fixed_window_promise(config),
        Algorithm::Concurrency(config) => {
            format!(
                "concurrency {}: at most {} in flight at any instant",
                config.limit, config.limit
            )
        }
        Algorithm::AutoConcurrency(config) => {
            format!(
                "concurrency auto {config}: the limit finds itself, at most {} in flight",
                config.max
            )
        }
        Algorithm::Pacing(config) => format!("pacing {}", pacing_promise(config)),
        Algorithm::Closed => "limit 0: closed, rejects all".to_owned(),
        Algorithm::Planned(config) => promise(config.own()),
        Algorithm::Synced(config) => promise(config.whole()),
    }
}

fn fixed_window_promise(fixed_window::Config { rate, align }: &fixed_window::Config) -> String {
    let count = rate.count();
    let window = short(rate.window());
    let twice = 2 * count;
    let almost = twice - 1;
    match align {
        Align::Clock => format!(
            "fixed_window {count}/{window}: at most {count} in each window from the clock, \
             {twice} in any {window} across a boundary"
        ),
        Align::FirstRequest => format!(
            "fixed_window {count}/{window}: at most {count} in each window from the first request, \
             {almost} in any {window} across a boundary, {twice} across that of the clock's first"
        ),
        Align::Calendar(calendar) => format!(
            "fixed_window {count}/{}: at most {count} in each, {twice} across a boundary",
            calendar.name(),
        ),
    }
}

fn bucket(word: &str, rate: Rate, size: u64) -> String {
    let count = rate.count();
    let window = short(rate.window());
    let most = size.saturating_add(count);
    format!("{word} {count}/{window}, burst {size}: at most {size} at once, {most} in any {window}")
}

/// Returns the rate and the size of a bucket, if a sliding window can count the same instead.
pub(in crate::config) fn bucket_numbers(algorithm: &Algorithm) -> Option<(Rate, u64)> {
    match algorithm {
        Algorithm::TokenBucket(config) => Some((config.rate, config.burst)),
        Algorithm::LeakyBucket(config) => Some((config.rate, config.capacity)),
        Algorithm::Planned(config) => bucket_numbers(config.own()),
        Algorithm::Synced(config) => bucket_numbers(config.whole()),
        Algorithm::WarmUp(_)
        | Algorithm::SlidingLog(_)
        | Algorithm::SlidingWindow(_)
        | Algorithm::SlidingCounter(_)
        | Algorithm::FixedWindow(_)
        | Algorithm::Concurrency(_)
        | Algorithm::AutoConcurrency(_)
        | Algorithm::Pacing(_)
        | Algorithm::Closed => None,
    }
}

fn ramp_promise(rate: Rate, warm_up: WarmUp) -> String {
    let cold =
        rate.window() / u32::try_from(rate.count()).unwrap_or(u32::MAX) * warm_up.cold_factor;
    format!(
        "one each {} when cold, warm after {}, cold after {} of silence",
        short(cold),
        short(warm_up.duration()),
        short(warm_up.coldest()),
    )
}

fn sliding(config: &sliding_window::Config) -> String {
    let count = config.rate.count();
    let window = short(config.rate.window());
    let buckets = config.buckets;
    if config.strict {
        return format!(
            "sliding_window {count}/{window}, {}, strict: at most {count} in any {window}",
            counted(buckets, "bucket")
        );
    }
    let most = 2 * count;
    if buckets == 1 {
        return format!(
            "sliding_window {count}/{window}, 1 bucket: at most {count} in each window from the \
             clock, {most} in any {window} across a boundary"
        );
    }
    let sure = config.rate.window().saturating_sub(config.rate.window() / buckets);
    format!(
        "sliding_window {count}/{window}, {buckets} buckets: at most {count} in any {}, {most} in \
         any {window}",
        short(sure)
    )
}

/// Says when a breaker opens, and how it closes.
pub(in crate::config) fn breaker_promise(config: &breaker::Config) -> String {
    let more_than = |ratio: Ratio| {
        if ratio == Ratio::ONE { "all".to_owned() } else { format!("more than {ratio}") }
    };
    let slow = |slow: breaker::Slow| {
        format!("{} begin after {}", more_than(slow.ratio), short(slow.after))
    };
    let conditions = [
        config.error_ratio.map(|ratio| format!("{} fail", more_than(ratio))),
        config.slow.map(slow),
        config.errors.map(|errors| format!("{errors} fail")),
    ];
    let conditions: Vec<_> = conditions.into_iter().flatten().collect();
    format!(
        "opens when, of at least {} in {}, {}; none passes for {}, then {} must be good",
        counted(usize::try_from(config.min_requests).unwrap_or(usize::MAX), "answer"),
        short(config.window),
        conditions.join(" or "),
        short(config.open_for),
        counted(config.probes as usize, "probe"),
    )
}

/// Says how far apart starts are, and how long a request waits.
pub(in crate::config) fn pacing_promise(config: &pacing::Config) -> String {
    let ramp = |warm_up| format!("; {}", ramp_promise(config.rate, warm_up));
    let ramp = config.warm_up.map_or_else(String::new, ramp);
    let interval = Duration::from_nanos(config.rate.window_nanos() / config.rate.count());
    let window = short(config.rate.window());
    format!(
        "{}/{window}: starts at least {} apart; waits up to {}, {} at most{ramp}",
        config.rate.count(),
        short(interval),
        short(config.max_wait),
        config.max_queue.min(pacing::fitting(config.rate, config.max_wait))
    )
}

//! What should be decided, by the definitions, from a list of all that passed.

use core::time::Duration;
use flowgate::flow::{
    Algorithm, Instant, Rate,
    limiter::{
        concurrency,
        fixed_window::{self, Align},
        leaky_bucket, sliding_counter, sliding_log, sliding_window, token_bucket, warm_up,
    },
    pacing,
};

/// What one client was charged, or all of them together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Past {
    /// When, in nanoseconds, and the cost.
    pub(crate) passed: Vec<(u64, u64)>,
    /// When they may start.
    pub(crate) starts: Vec<u64>,
    pub(crate) in_flight: u64,
}

/// Returns whether a request of `cost` passes at `now`.
pub(crate) fn passes(algorithm: &Algorithm, past: &Past, now: Instant, cost: u64) -> bool {
    let now = now.as_nanos();
    match algorithm {
        // `warm_up.rs` and `tests/auto_limit.rs` have their laws.
        Algorithm::WarmUp(_) | Algorithm::AutoConcurrency(_) => unreachable!("no day has one"),
        Algorithm::TokenBucket(token_bucket::Config { rate, burst: size })
        | Algorithm::LeakyBucket(leaky_bucket::Config { rate, capacity: size }) => {
            bucket_holds(*rate, *size, past, now, cost)
        }
        Algorithm::SlidingWindow(config) => ring_holds(config, past, now, cost),
        Algorithm::SlidingLog(config) => log_holds(config, past, now, cost),
        Algorithm::SlidingCounter(config) => estimate_holds(config, past, now, cost),
        Algorithm::FixedWindow(config) => window_holds(config, past, now, cost),
        Algorithm::Concurrency(concurrency::Config { limit }) => past.in_flight + cost <= *limit,
        Algorithm::Closed => false,
        // For clients without a plan.
        Algorithm::Planned(config) => passes(config.own(), past, Instant::from_nanos(now), cost),
        // By itself.
        Algorithm::Synced(config) => passes(config.whole(), past, Instant::from_nanos(now), cost),
        Algorithm::Pacing(config) => start(config, past, Instant::from_nanos(now)).is_some(),
    }
}

/// In any duration `D` back from now, not more than `size + D·N/W`.
fn bucket_holds(rate: Rate, size: u64, past: &Past, now: u64, cost: u64) -> bool {
    let count = i128::from(rate.count());
    let window = i128::from(rate.window_nanos());
    let mut sum = i128::from(cost);
    let size = i128::from(size);
    let mut holds = sum <= size;
    for &(at, cost) in past.passed.iter().rev() {
        sum += i128::from(cost);
        holds &= (sum - size) * window <= i128::from(now - at) * count;
    }
    holds
}

/// In the latest buckets, not more than `N`.
fn ring_holds(config: &sliding_window::Config, past: &Past, now: u64, cost: u64) -> bool {
    let window = u128::from(config.rate.window_nanos());
    let bucket = |at: u64| u128::from(at) * u128::from(config.buckets) / window;
    let span = u128::from(config.buckets) + u128::from(config.strict);
    let counts = past.passed.iter().filter(|(at, _)| bucket(*at) + span > bucket(now));
    counts.map(|(_, cost)| cost).sum::<u64>() + cost <= config.rate.count()
}

/// In the closed window that ends now, not more than `N`.
fn log_holds(config: &sliding_log::Config, past: &Past, now: u64, cost: u64) -> bool {
    let in_sight = past.passed.iter().filter(|(at, _)| now - at <= config.rate.window_nanos());
    in_sight.map(|(_, cost)| cost).sum::<u64>() + cost <= config.rate.count()
}

/// In the current window and what is in sight of the one before, not more than `N`.
fn estimate_holds(config: &sliding_counter::Config, past: &Past, now: u64, cost: u64) -> bool {
    let window = config.rate.window_nanos();
    let start = now - now % window;
    let count = |from: u64, to: u64| -> u128 {
        let within = past.passed.iter().filter(|(at, _)| (from..to).contains(at));
        within.map(|(_, cost)| u128::from(*cost)).sum()
    };
    let prev = count(start - window, start);
    let curr = count(start, start + window);
    let in_sight = u128::from(start + window - now);
    let window = u128::from(window);
    prev * in_sight + (curr + u128::from(cost)) * window <= u128::from(config.rate.count()) * window
}

/// In the current window, not more than `N`.
fn window_holds(config: &fixed_window::Config, past: &Past, now: u64, cost: u64) -> bool {
    let window = config.rate.window_nanos();
    let mut begin = None;
    let mut used = 0;
    for (at, cost) in past.passed.iter().copied().chain([(now, cost)]) {
        let current = match (&config.align, begin) {
            (Align::Clock, _) => at - at % window,
            (Align::FirstRequest, Some(begin)) if at < begin + window => begin,
            (Align::FirstRequest, _) => at,
            (Align::Calendar(calendar), _) => calendar.window(Instant::from_nanos(at)).0.as_nanos(),
        };
        if begin != Some(current) {
            begin = Some(current);
            used = 0;
        }
        used += cost;
    }
    used <= config.rate.count()
}

/// Returns when a paced request starts, or `None` if it may not wait so long.
pub(crate) fn start(config: &pacing::Config, past: &Past, now: Instant) -> Option<Instant> {
    let now = now.as_nanos();
    let count = u128::from(config.rate.count());
    let window = u128::from(config.rate.window_nanos());
    // In units of 1/count ns, in which the interval is `window`.
    let mut next = 0;
    for (&(at, cost), &start) in past.passed.iter().zip(&past.starts) {
        let own = next.max(u128::from(at) * count);
        // Another slot may have asked for a later one.
        let is_later = u128::from(start) > own.div_ceil(count);
        next = if is_later { u128::from(start) * count } else { own } + u128::from(cost) * window;
    }
    let start = u64::try_from(next.div_ceil(count)).expect("this year").max(now);
    let waiting = past.starts.iter().filter(|&&start| start > now).count() as u64;
    let fits = waiting < config.max_queue && Duration::from_nanos(start - now) <= config.max_wait;
    (start == now || fits).then(|| Instant::from_nanos(start))
}

/// Asserts the promise of each algorithm over a whole day.
pub(crate) fn assert_promise(algorithm: &Algorithm, past: &Past) {
    match algorithm {
        Algorithm::Closed => assert!(past.passed.is_empty(), "it admits nothing"),
        Algorithm::WarmUp(warm_up::Config { rate, burst: size, .. })
        | Algorithm::TokenBucket(token_bucket::Config { rate, burst: size })
        | Algorithm::LeakyBucket(leaky_bucket::Config { rate, capacity: size }) => {
            each_span(&past.passed, |nanos, sum| {
                let filled = u128::from(nanos) * u128::from(rate.count());
                let filled = filled / u128::from(rate.window_nanos());
                assert!(u128::from(sum) <= u128::from(*size) + filled, "{sum} in {nanos} ns");
            });
        }
        Algorithm::SlidingWindow(sliding_window::Config { rate, buckets, strict }) => {
            let window = rate.window_nanos();
            let buckets = u64::from(*buckets);
            each_span(&past.passed, |nanos, sum| {
                if nanos <= window - if *strict { 0 } else { window.div_ceil(buckets) } {
                    assert!(sum <= rate.count(), "{sum} in {nanos} ns");
                }
            });
        }
        Algorithm::SlidingLog(sliding_log::Config { rate }) => {
            each_span(&past.passed, |nanos, sum| {
                assert!(nanos > rate.window_nanos() || sum <= rate.count(), "{sum} in {nanos} ns");
            });
        }
        Algorithm::SlidingCounter(sliding_counter::Config { rate }) => {
            each_span(&past.passed, |nanos, sum| {
                let most = 2 * rate.count() - 1;
                assert!(nanos >= rate.window_nanos() || sum <= most, "{sum} in {nanos} ns");
            });
        }
        Algorithm::FixedWindow(fixed_window::Config { rate, align: Align::Calendar(calendar) }) => {
            let window = |at| calendar.window(Instant::from_nanos(at));
            for &(at, _) in &past.passed {
                let within = past.passed.iter().filter(|(other, _)| window(*other) == window(at));
                let sum: u64 = within.map(|(_, cost)| cost).sum();
                assert!(sum <= rate.count(), "{sum} in {:?}", window(at));
            }
        }
        Algorithm::FixedWindow(fixed_window::Config { rate, align }) => {
            let window = rate.window_nanos();
            let spans = |passed, most| {
                each_span(passed, |nanos, sum| {
                    assert!(nanos >= window || sum <= most, "{sum} in {nanos} ns");
                });
            };
            spans(&past.passed, 2 * rate.count());
            if *align == Align::FirstRequest {
                // The clock's very first window begins with the clock.
                let later = past.passed.partition_point(|(at, _)| *at < window);
                spans(&past.passed[later..], 2 * rate.count() - 1);
            }
        }
        Algorithm::Concurrency(_) | Algorithm::AutoConcurrency(_) => {}
        Algorithm::Planned(config) => assert_promise(config.own(), past),
        Algorithm::Synced(config) => assert_promise(config.whole(), past),
        Algorithm::Pacing(pacing::Config { rate, .. }) => assert_spaced(*rate, past),
    }
}

/// Asserts that starts are as far apart as those before cost.
fn assert_spaced(rate: Rate, past: &Past) {
    let costs = past.passed.iter().map(|(_, cost)| cost);
    let starts: Vec<_> = past.starts.iter().zip(costs).collect();
    for (at, (first, _)) in starts.iter().enumerate() {
        let mut before = 0;
        for pair in starts[at..].windows(2) {
            before += u128::from(*pair[0].1);
            // Less than a nanosecond can be missing, as each is rounded up.
            let units = u128::from(pair[1].0 - *first + 1) * u128::from(rate.count());
            assert!(units > before * u128::from(rate.window_nanos()), "{pair:?}");
        }
    }
}

/// Calls `check` with the length of each span from one request to a later one, both
/// included, and the cost of all within.
fn each_span(passed: &[(u64, u64)], check: impl Fn(u64, u64)) {
    for (at, &(first, _)) in passed.iter().enumerate() {
        let mut sum = 0;
        for &(last, cost) in &passed[at..] {
            sum += cost;
            check(last - first, sum);
        }
    }
}

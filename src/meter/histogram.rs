//! Durations in fixed buckets, without a lock.

use super::atomics::{AtomicU64, Relaxed};
use core::{array, time::Duration};

/// The inclusive upper bounds of the buckets in nanoseconds; one more bucket has longer ones.
///
/// Three steps per decade show a doubled latency and suit thousands of routes.
pub const DURATION_BOUNDS: [u64; 18] = [
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
    60_000_000_000,
];

/// The number of buckets.
pub const BUCKETS: usize = DURATION_BOUNDS.len() + 1;

/// Counts durations.
#[derive(Debug)]
pub(super) struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_nanos: AtomicU64,
}

/// A reading of a histogram.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    /// Counts by bucket, one per [`DURATION_BOUNDS`] and one beyond. Not cumulative.
    pub buckets: [u64; BUCKETS],
    /// The sum of all durations.
    pub sum: Duration,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: array::from_fn(|_| AtomicU64::default()), sum_nanos: AtomicU64::default() }
    }
}

impl Histogram {
    /// Counts a duration. Returns its bucket.
    pub(super) fn record(&self, nanos: u64) -> usize {
        let bucket = DURATION_BOUNDS.partition_point(|bound| *bound < nanos);
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.sum_nanos.fetch_add(nanos, Relaxed);
        bucket
    }

    pub(super) fn read(&self) -> Durations {
        Durations {
            buckets: array::from_fn(|index| self.buckets[index].load(Relaxed)),
            sum: Duration::from_nanos(self.sum_nanos.load(Relaxed)),
        }
    }
}

impl Durations {
    /// Returns how many durations were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns what was counted since an earlier reading of the same histogram.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            buckets: array::from_fn(|index| {
                self.buckets[index].saturating_sub(earlier.buckets[index])
            }),
            sum: self.sum.saturating_sub(earlier.sum),
        }
    }

    /// Adds those of another reading.
    pub fn add(&mut self, other: &Self) {
        for (mine, others) in self.buckets.iter_mut().zip(other.buckets) {
            *mine += others;
        }
        self.sum += other.sum;
    }

    /// Returns the duration that a share of the requests, as 0.99, did not exceed; `None` if none
    /// was counted.
    ///
    /// Within a bucket the durations count as evenly spread, and in the last one as its lower bound,
    /// as Prometheus's `histogram_quantile` has it.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate within a bucket, between zero and its bound"
    )]
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let rank = share.clamp(0.0, 1.0) * count as f64;
        let mut below = 0;
        for (index, bound) in DURATION_BOUNDS.into_iter().enumerate() {
            let inside = self.buckets[index];
            if inside > 0 && (below + inside) as f64 >= rank {
                let lower = index.checked_sub(1).map_or(0, |index| DURATION_BOUNDS[index]);
                let part = (rank - below as f64).max(0.0) / inside as f64;
                let nanos = (bound - lower) as f64 * part;
                return Some(Duration::from_nanos(lower + nanos as u64));
            }
            below += inside;
        }
        DURATION_BOUNDS.last().copied().map(Duration::from_nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durations(millis: impl IntoIterator<Item = u64>) -> Durations {
        let histogram = Histogram::default();
        for millis in millis {
            histogram.record(millis * 1_000_000);
        }
        histogram.read()
    }

    #[test]
    fn a_bucket_includes_its_upper_bound() {
        let histogram = Histogram::default();
        for (bucket, bound) in DURATION_BOUNDS.into_iter().enumerate() {
            assert_eq!(histogram.record(bound), bucket);
            assert_eq!(histogram.record(bound + 1), bucket + 1);
        }
        assert_eq!(histogram.read().count(), 36);
    }

    #[test]
    fn a_quantile_is_interpolated_within_its_bucket() {
        assert_eq!(Durations::default().quantile(0.5), None);
        // 60 in (5 ms, 10 ms], 40 in (50 ms, 100 ms].
        let seen = durations((0..100).map(|at| if at < 60 { 7 } else { 80 }));
        for (share, micros) in [
            (0.0, 5_000),
            (0.3, 7_500),
            (0.6, 10_000),
            (0.8, 75_000),
            (0.99, 98_750),
            (1.0, 100_000),
            (2.0, 100_000),
        ] {
            assert_eq!(seen.quantile(share), Some(Duration::from_micros(micros)), "{share}");
        }
        let slow = durations([100_000, 200_000]);
        assert_eq!(slow.quantile(0.5), Some(Duration::from_mins(1)));
    }

    #[test]
    fn a_quantile_is_off_by_no_more_than_its_bucket() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let mut exact: Vec<u64> = (0..100).map(|_| 1 + random.u64(..5_000)).collect();
            let seen = durations(exact.iter().copied());
            exact.sort_unstable();
            for rank in [50, 90, 99_usize] {
                let share = f64::from(u32::try_from(rank).unwrap()) / 100.0;
                let estimate = seen.quantile(share).unwrap().as_secs_f64() * 1e3;
                let exact = exact[rank - 1];
                let exact = f64::from(u32::try_from(exact).unwrap());
                assert!(estimate <= exact * 2.5 + 0.1 && estimate * 2.5 + 0.1 >= exact, "{rank}");
            }
        }
    }

    #[test]
    fn a_difference_has_what_came_between() {
        let histogram = Histogram::default();
        histogram.record(1);
        let earlier = histogram.read();
        histogram.record(2_000_000);
        let between = histogram.read().since(&earlier);
        assert_eq!((between.count(), between.sum), (1, Duration::from_millis(2)));
        assert_eq!(between.quantile(0.5), Some(Duration::from_micros(1_750)));
    }
}

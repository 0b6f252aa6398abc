//! The algorithms of flow rules, one file each.
//!
//! A file has the algorithm's configuration, its formula with source and worst case, its state, and
//! how an edit converts the state. A new algorithm takes a file, a line here, and the arms that the
//! compiler requires.

pub mod concurrency;
pub mod fixed_window;
pub mod leaky_bucket;
pub mod sliding_counter;
pub mod sliding_log;
pub mod sliding_window;
pub mod token_bucket;
pub mod warm_up;

mod algorithm;
mod allocated;
pub(super) mod by_wall;
mod loans;

pub use algorithm::{Algorithm, SyncedConfig};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{
        WarmUp,
        timeline::{paced, rate},
    };
    use core::time::Duration;

    #[test]
    fn a_key_takes_as_much_memory_as_the_documentation_says() {
        let rate = rate(100, 1000);
        let align = fixed_window::Align::Clock;
        let warm_up = WarmUp { period: Duration::from_secs(10), cold_factor: 3 };
        let sliding =
            |strict| Algorithm::SlidingWindow(sliding_window::Config { rate, buckets: 10, strict });
        for (algorithm, bytes) in [
            (Algorithm::LeakyBucket(leaky_bucket::Config { rate, capacity: 100 }), 56),
            (Algorithm::WarmUp(warm_up::Config { rate, burst: 100, warm_up }), 72),
            (Algorithm::SlidingLog(sliding_log::Config { rate }), 72 + 1792),
            (sliding(false), 80 + 8 * 10),
            (sliding(true), 80 + 96),
            (Algorithm::SlidingCounter(sliding_counter::Config { rate }), 56),
            (Algorithm::FixedWindow(fixed_window::Config { rate, align }), 56),
            (Algorithm::Concurrency(concurrency::Config { limit: 100 }), 40),
            (Algorithm::Pacing(paced(rate, 500, 100).pacing.expect("pacing")), 168 + 16 * 51),
        ] {
            assert_eq!(algorithm.bytes_per_key(false), bytes, "{algorithm:?}");
            let loans = match algorithm {
                Algorithm::SlidingWindow(_) => 32 + 16 * 16,
                Algorithm::FixedWindow(_) => 32 + 16 * 4,
                Algorithm::TokenBucket(_)
                | Algorithm::WarmUp(_)
                | Algorithm::LeakyBucket(_)
                | Algorithm::SlidingLog(_)
                | Algorithm::SlidingCounter(_)
                | Algorithm::Concurrency(_)
                | Algorithm::Pacing(_)
                | Algorithm::Synced(_) => 0,
            };
            assert_eq!(algorithm.bytes_per_key(true), bytes + loans, "{algorithm:?}");
        }
    }
}

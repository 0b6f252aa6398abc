//! The flow slot's algorithms, one file each.
//!
//! A file holds the algorithm's configuration, its formula with source and worst
//! case, its state, and how a state is converted when the numbers are edited.
//! Adding one takes the file and three lines here; the compiler asks for the third.

pub mod concurrency;
pub mod exchanged;
pub mod fixed_window;
pub mod leaky_bucket;
pub mod sliding_counter;
pub mod sliding_log;
pub mod sliding_window;
pub mod stored;
pub mod token_bucket;
pub mod warm_up;

mod allocated;
mod by_wall;
mod loans;

use super::{
    keyed::{Keyed, entry_bytes},
    pacing,
    slot::{Slot, Stage},
    time::WallOffset,
};
use allocated::allocated;
use by_wall::ByWall;
use core::time::Duration;
use loans::Loans;

/// An algorithm with its numbers, as a rule asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// A rate with a burst.
    TokenBucket(token_bucket::Config),
    /// The same for a service that has to be warmed up.
    WarmUp(warm_up::Config),
    /// The same, said from the bucket's side.
    LeakyBucket(leaky_bucket::Config),
    /// The instants of what passed in the last window.
    SlidingLog(sliding_log::Config),
    /// A count in a window that moves by buckets.
    SlidingWindow(sliding_window::Config),
    /// A count in a window that moves by weighing the one before.
    SlidingCounter(sliding_counter::Config),
    /// A count that starts anew with every window.
    FixedWindow(fixed_window::Config),
    /// A bound on what is in flight.
    Concurrency(concurrency::Config),
    /// Even starts, for which requests wait.
    Pacing(pacing::Config),
    /// One of these, whose states gateways exchange now and then.
    Exchanged(exchanged::Config),
}

impl Algorithm {
    /// Returns the word for it in `gateway.yaml`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::TokenBucket(_) | Self::WarmUp(_) => "token_bucket",
            Self::LeakyBucket(_) => "leaky_bucket",
            Self::SlidingLog(_) => "sliding_log",
            Self::SlidingWindow(_) => "sliding_window",
            Self::SlidingCounter(_) => "sliding_counter",
            Self::FixedWindow(_) => "fixed_window",
            Self::Concurrency(_) => "concurrency",
            Self::Pacing(_) => "pacing",
            Self::Exchanged(it) => it.whole().word(),
        }
    }

    /// Returns the most cost that it lets pass in any stretch of time as long as its
    /// window, the stretch's beginning not included, and that window; `None` for what
    /// counts by no window of one length.
    pub fn most_in_a_window(&self) -> Option<(u64, Duration)> {
        let (most, rate) = match self {
            Self::TokenBucket(it) => (it.burst.saturating_add(it.rate.count()), it.rate),
            Self::WarmUp(it) => (it.burst.saturating_add(it.rate.count()), it.rate),
            Self::LeakyBucket(it) => (it.capacity.saturating_add(it.rate.count()), it.rate),
            Self::SlidingLog(it) => (it.rate.count(), it.rate),
            Self::SlidingWindow(it) if it.strict => (it.rate.count(), it.rate),
            Self::SlidingWindow(it) => (it.rate.count().saturating_mul(2), it.rate),
            Self::SlidingCounter(it) => (it.rate.count().saturating_mul(2) - 1, it.rate),
            Self::FixedWindow(it) => match it.align {
                // Across the end of the clock's first window, which a replay may begin in.
                fixed_window::Align::Clock | fixed_window::Align::FirstRequest => {
                    (it.rate.count().saturating_mul(2), it.rate)
                }
                fixed_window::Align::Calendar(_) => return None,
            },
            Self::Concurrency(_) => return None,
            // Of starts that cost 1: the last one may cost more than what is left.
            Self::Pacing(it) => (it.rate.count().saturating_add(1), it.rate),
            // By this gateway alone.
            Self::Exchanged(it) => return it.whole().most_in_a_window(),
        };
        Some((most, rate.window()))
    }

    /// Returns the memory that each key of a keyed rule takes at most, in bytes; if it
    /// `lends`, to requests with patience, then with what that takes.
    pub fn bytes_per_key(&self, lends: bool) -> usize {
        match self {
            Self::TokenBucket(_) | Self::LeakyBucket(_) => entry_bytes::<token_bucket::State>(),
            Self::WarmUp(_) => entry_bytes::<warm_up::State>(),
            Self::SlidingLog(config) => {
                entry_bytes::<sliding_log::State>().saturating_add(allocated(config.full_bytes()))
            }
            Self::SlidingWindow(config) => {
                entry_bytes::<sliding_window::State>() + config.build().heap_bytes(lends)
            }
            Self::SlidingCounter(_) => entry_bytes::<sliding_counter::State>(),
            Self::FixedWindow(_) => {
                entry_bytes::<fixed_window::State>() + if lends { Loans::bytes(1) } else { 0 }
            }
            Self::Concurrency(_) => entry_bytes::<concurrency::State>(),
            Self::Pacing(config) => {
                entry_bytes::<pacing::State>().saturating_add(config.full_bytes())
            }
            // A second state, what it comes to, and padding.
            Self::Exchanged(config) => {
                let one = config.whole().bytes_per_key(lends);
                (2 * one).saturating_sub(entry_bytes::<()>()) + size_of::<u128>()
            }
        }
    }

    /// Returns whether what a client used counts when its requests have ended, so that it is
    /// remembered if its place goes to another.
    pub(super) const fn is_remembered(&self) -> bool {
        match self {
            Self::Concurrency(_) => false,
            Self::TokenBucket(_)
            | Self::WarmUp(_)
            | Self::LeakyBucket(_)
            | Self::SlidingLog(_)
            | Self::SlidingWindow(_)
            | Self::SlidingCounter(_)
            | Self::FixedWindow(_)
            | Self::Pacing(_)
            | Self::Exchanged(_) => true,
        }
    }

    /// Returns whether its windows are those of the wall's clock.
    pub(super) const fn follows_wall(&self) -> bool {
        matches!(self, Self::SlidingCounter(_) | Self::FixedWindow(_))
    }

    /// Builds the slot, unused.
    pub(super) fn build(&self, keyed: Option<&Keyed>, wall: WallOffset) -> Box<dyn Slot> {
        match self {
            Self::TokenBucket(config) => Stage::boxed(config.build(), keyed),
            Self::WarmUp(config) => Stage::boxed(config.build(), keyed),
            Self::LeakyBucket(config) => Stage::boxed(config.build(), keyed),
            Self::SlidingLog(config) => Stage::boxed(config.build(), keyed),
            Self::SlidingWindow(config) => Stage::boxed(config.build(), keyed),
            Self::SlidingCounter(config) => Stage::boxed(ByWall::new(config.build(), wall), keyed),
            Self::FixedWindow(config) => Stage::boxed(ByWall::new(config.build(), wall), keyed),
            Self::Concurrency(config) => Stage::boxed(config.build(), keyed),
            Self::Pacing(config) => Stage::boxed(config.build(), keyed),
            Self::Exchanged(config) => config.build(keyed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{
        WarmUp,
        timeline::{paced, rate},
    };

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
            (Algorithm::Pacing(paced(rate, 500, 100).pacing.expect("pacing")), 136 + 16 * 51),
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
                | Algorithm::Exchanged(_) => 0,
            };
            assert_eq!(algorithm.bytes_per_key(true), bytes + loans, "{algorithm:?}");
        }
    }
}

//! An algorithm with its numbers.

use super::{
    allocated::allocated, concurrency, fixed_window, leaky_bucket, loans::Loans, sliding_counter,
    sliding_log, sliding_window, token_bucket, warm_up,
};
use crate::flow::{keyed::entry_bytes, pacing, rate::Rate};
use core::time::Duration;

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
    /// One of these, whose states gateways sync.
    Synced(SyncedConfig),
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
            Self::Synced(it) => it.whole().word(),
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
            Self::Synced(it) => return it.whole().most_in_a_window(),
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
            Self::Synced(config) => {
                let one = config.whole().bytes_per_key(lends);
                (2 * one).saturating_sub(entry_bytes::<()>()) + size_of::<u128>()
            }
        }
    }

    /// Returns whether what a client used counts when its requests have ended, so that it is
    /// remembered if its place goes to another.
    pub(in crate::flow) const fn is_remembered(&self) -> bool {
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
            | Self::Synced(_) => true,
        }
    }

    /// Returns whether its windows are those of the wall's clock.
    pub(in crate::flow) const fn follows_wall(&self) -> bool {
        matches!(self, Self::SlidingCounter(_) | Self::FixedWindow(_))
    }
}

/// An algorithm whose states gateways sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncedConfig {
    pub(in crate::flow) whole: Box<Algorithm>,
    pub(in crate::flow) gateways: u32,
}

impl SyncedConfig {
    /// Has gateways sync the states of `whole`, which is divided among so `many` while
    /// they cannot, and else among one; `None` if its states cannot be merged.
    pub fn new(whole: Algorithm, many: u32) -> Option<Self> {
        match whole {
            Algorithm::TokenBucket(_)
            | Algorithm::LeakyBucket(_)
            | Algorithm::SlidingWindow(_)
            | Algorithm::SlidingCounter(_)
            | Algorithm::FixedWindow(_) => Some(Self { whole: Box::new(whole), gateways: many }),
            Algorithm::WarmUp(_)
            | Algorithm::SlidingLog(_)
            | Algorithm::Concurrency(_)
            | Algorithm::Pacing(_)
            | Algorithm::Synced(_) => None,
        }
    }

    /// Returns the algorithm that holds for all gateways together.
    pub fn whole(&self) -> &Algorithm {
        &self.whole
    }

    /// Returns the most that a gateway lets pass of one state before all others know, which sync
    /// at this `interval`.
    pub fn most_unseen(&self, interval: Duration) -> u64 {
        let refilled = |rate: Rate, burst: u64| {
            let units = (2 * interval).as_nanos() * u128::from(rate.count());
            let refill = units / u128::from(rate.window_nanos());
            burst.saturating_add(u64::try_from(refill).unwrap_or(u64::MAX))
        };
        match &*self.whole {
            Algorithm::TokenBucket(it) => refilled(it.rate, it.burst),
            Algorithm::LeakyBucket(it) => refilled(it.rate, it.capacity),
            Algorithm::SlidingWindow(it) => it.rate.count(),
            Algorithm::SlidingCounter(it) => it.rate.count(),
            Algorithm::FixedWindow(it) => it.rate.count(),
            // Of these there is no such configuration.
            Algorithm::WarmUp(_)
            | Algorithm::SlidingLog(_)
            | Algorithm::Concurrency(_)
            | Algorithm::Pacing(_)
            | Algorithm::Synced(_) => 0,
        }
    }

    /// Returns the algorithm that decides here at the moment.
    pub(in crate::flow) fn here(&self) -> Algorithm {
        if self.gateways > 1 { self.whole.among(self.gateways) } else { (*self.whole).clone() }
    }

    /// Returns what is divided among so many.
    pub(in crate::flow) fn among(&self, gateways: u32) -> Self {
        Self { gateways, ..self.clone() }
    }
}

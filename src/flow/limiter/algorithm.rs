//! The choice of an algorithm, with its numbers.

use super::{
    auto_limit, closed, concurrency, fixed_window, leaky_bucket, loans::Loans, pacing,
    plans::PlannedConfig, sliding_counter, sliding_log, sliding_window, token_bucket, warm_up,
};
use crate::flow::{calendar::Calendar, keyed::entry_bytes, rate::Rate};
use core::time::Duration;
use serde::{Deserialize, Serialize};

/// An algorithm with its numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Algorithm {
    /// A rate with a burst.
    TokenBucket(token_bucket::Config),
    /// A token bucket with a warm-up.
    WarmUp(warm_up::Config),
    /// A token bucket described by its capacity.
    LeakyBucket(leaky_bucket::Config),
    /// The instants of requests in the last window.
    SlidingLog(sliding_log::Config),
    /// A count over the latest buckets.
    SlidingWindow(sliding_window::Config),
    /// A count that weighs the previous window.
    SlidingCounter(sliding_counter::Config),
    /// A count per window.
    FixedWindow(fixed_window::Config),
    /// A bound on what is in flight.
    Concurrency(concurrency::Config),
    /// A bound on what is in flight that finds itself.
    AutoConcurrency(auto_limit::Config),
    /// Evenly spaced starts.
    Pacing(pacing::Config),
    /// A limit of 0: nothing passes.
    Closed,
    /// An algorithm with other numbers for some plans.
    Planned(PlannedConfig),
    /// An algorithm whose states gateways sync.
    Synced(SyncedConfig),
}

impl Algorithm {
    /// Returns its word in `gateway.yaml`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::TokenBucket(_) | Self::WarmUp(_) => "token_bucket",
            Self::LeakyBucket(_) => "leaky_bucket",
            Self::SlidingLog(_) => "sliding_log",
            Self::SlidingWindow(_) => "sliding_window",
            Self::SlidingCounter(_) => "sliding_counter",
            Self::FixedWindow(_) => "fixed_window",
            Self::Concurrency(_) | Self::AutoConcurrency(_) => "concurrency",
            Self::Pacing(_) => "pacing",
            Self::Closed => "closed",
            Self::Planned(it) => it.own().word(),
            Self::Synced(it) => it.whole().word(),
        }
    }

    /// Returns the calendar that its windows follow, if they do.
    pub fn calendar(&self) -> Option<&Calendar> {
        match self {
            Self::FixedWindow(config) => config.align.calendar(),
            Self::Planned(config) => config.own().calendar(),
            Self::Synced(config) => config.whole().calendar(),
            Self::TokenBucket(_)
            | Self::WarmUp(_)
            | Self::LeakyBucket(_)
            | Self::SlidingLog(_)
            | Self::SlidingWindow(_)
            | Self::SlidingCounter(_)
            | Self::Concurrency(_)
            | Self::AutoConcurrency(_)
            | Self::Pacing(_)
            | Self::Closed => None,
        }
    }

    /// Changes each calendar that windows follow: those of plans, too.
    pub(in crate::flow) fn change_calendars(&mut self, change: &mut dyn FnMut(&mut Calendar)) {
        match self {
            Self::FixedWindow(config) => {
                if let fixed_window::Align::Calendar(calendar) = &mut config.align {
                    change(calendar);
                }
            }
            Self::Planned(config) => config.change_calendars(change),
            Self::Synced(config) => config.whole.change_calendars(change),
            Self::TokenBucket(_)
            | Self::WarmUp(_)
            | Self::LeakyBucket(_)
            | Self::SlidingLog(_)
            | Self::SlidingWindow(_)
            | Self::SlidingCounter(_)
            | Self::Concurrency(_)
            | Self::AutoConcurrency(_)
            | Self::Pacing(_)
            | Self::Closed => {}
        }
    }

    /// Returns the most cost that passes in any time as long as its window, the first instant
    /// excluded, and the window; `None` without a window of one length.
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
                // Across the end of the epoch's window, in which a replay may begin.
                fixed_window::Align::Clock | fixed_window::Align::FirstRequest => {
                    (it.rate.count().saturating_mul(2), it.rate)
                }
                fixed_window::Align::Calendar(_) => return None,
            },
            Self::Concurrency(_) | Self::AutoConcurrency(_) | Self::Closed => return None,
            // For starts of cost 1: the last one may cost more.
            Self::Pacing(it) => (it.rate.count().saturating_add(1), it.rate),
            Self::Planned(it) => return it.largest().most_in_a_window(),
            Self::Synced(it) => return it.whole().most_in_a_window(),
        };
        Some((most, rate.window()))
    }

    /// Returns the most cost that passes at once, of clients without a plan.
    pub fn most_at_once(&self) -> u64 {
        match self {
            Self::TokenBucket(it) => it.burst,
            Self::WarmUp(it) => it.burst,
            Self::LeakyBucket(it) => it.capacity,
            Self::SlidingLog(it) => it.rate.count(),
            Self::SlidingWindow(it) => it.rate.count(),
            Self::SlidingCounter(it) => it.rate.count(),
            Self::FixedWindow(it) => it.rate.count(),
            Self::Concurrency(it) => it.limit,
            Self::AutoConcurrency(it) => it.max.into(),
            Self::Pacing(_) => u64::MAX,
            Self::Closed => 0,
            Self::Planned(it) => it.own().most_at_once(),
            Self::Synced(it) => it.whole().most_at_once(),
        }
    }

    /// Returns the most bytes per key of a keyed rule; if it `lends` to requests with priority,
    /// including the loans.
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
            Self::AutoConcurrency(_) => {
                entry_bytes::<concurrency::State>() + allocated(auto_limit::BYTES)
            }
            Self::Pacing(config) => {
                entry_bytes::<pacing::State>().saturating_add(config.full_bytes())
            }
            Self::Closed => entry_bytes::<closed::State>(),
            // The plan, and padding.
            Self::Planned(config) => config.largest().bytes_per_key(lends) + size_of::<u128>(),
            // A second state, its cost, and padding.
            Self::Synced(config) => {
                let one = config.whole().bytes_per_key(lends);
                (2 * one).saturating_sub(entry_bytes::<()>()) + size_of::<u128>()
            }
        }
    }

    /// Returns whether usage counts after requests have ended, so that it is kept when a client is
    /// evicted.
    pub fn is_remembered(&self) -> bool {
        !matches!(self.own(), Self::Concurrency(_) | Self::AutoConcurrency(_) | Self::Closed)
    }

    /// Returns whether its windows follow the wall clock.
    pub(in crate::flow) fn follows_wall(&self) -> bool {
        matches!(self.own(), Self::SlidingCounter(_) | Self::FixedWindow(_))
    }

    /// Returns the numbers of clients without a plan.
    pub fn own(&self) -> &Self {
        match self {
            Self::Planned(config) => config.own(),
            Self::TokenBucket(_)
            | Self::WarmUp(_)
            | Self::LeakyBucket(_)
            | Self::SlidingLog(_)
            | Self::SlidingWindow(_)
            | Self::SlidingCounter(_)
            | Self::FixedWindow(_)
            | Self::Concurrency(_)
            | Self::AutoConcurrency(_)
            | Self::Pacing(_)
            | Self::Closed
            | Self::Synced(_) => self,
        }
    }

    /// Returns the numbers of plans; `None` if all clients have the same.
    pub fn plans(&self) -> Option<&PlannedConfig> {
        match self {
            Self::Planned(config) => Some(config),
            Self::Synced(config) => config.whole().plans(),
            Self::TokenBucket(_)
            | Self::WarmUp(_)
            | Self::LeakyBucket(_)
            | Self::SlidingLog(_)
            | Self::SlidingWindow(_)
            | Self::SlidingCounter(_)
            | Self::FixedWindow(_)
            | Self::Concurrency(_)
            | Self::AutoConcurrency(_)
            | Self::Pacing(_)
            | Self::Closed => None,
        }
    }
}

/// An algorithm whose states gateways sync.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncedConfig {
    pub(in crate::flow) whole: Box<Algorithm>,
    pub(in crate::flow) gateways: u32,
}

impl SyncedConfig {
    /// Returns `whole` with synced states, divided among `many` gateways while they cannot sync (1
    /// while they can); `None` if its states cannot be merged.
    pub fn new(whole: Algorithm, many: u32) -> Option<Self> {
        match whole {
            Algorithm::TokenBucket(_)
            | Algorithm::LeakyBucket(_)
            | Algorithm::SlidingWindow(_)
            | Algorithm::SlidingCounter(_)
            | Algorithm::FixedWindow(_) => Some(Self { whole: Box::new(whole), gateways: many }),
            // The state of a bucket depends on the numbers, and the store does not know plans.
            Algorithm::Planned(ref config) => {
                let is_count = matches!(
                    config.own(),
                    Algorithm::SlidingWindow(_)
                        | Algorithm::SlidingCounter(_)
                        | Algorithm::FixedWindow(_)
                );
                is_count.then(|| Self { whole: Box::new(whole), gateways: many })
            }
            Algorithm::WarmUp(_)
            | Algorithm::SlidingLog(_)
            | Algorithm::Concurrency(_)
            | Algorithm::AutoConcurrency(_)
            | Algorithm::Pacing(_)
            | Algorithm::Closed
            | Algorithm::Synced(_) => None,
        }
    }

    /// Returns the algorithm of all gateways together.
    pub fn whole(&self) -> &Algorithm {
        &self.whole
    }

    /// Returns the most that a gateway passes for one state before all others know, if they sync at
    /// this `interval`.
    pub fn most_unseen(&self, interval: Duration) -> u64 {
        let refilled = |rate: Rate, burst: u64| {
            let units = (2 * interval).as_nanos() * u128::from(rate.count());
            let refill = units / u128::from(rate.window_nanos());
            burst.saturating_add(u64::try_from(refill).unwrap_or(u64::MAX))
        };
        match self.whole.plans().map_or(&*self.whole, PlannedConfig::largest) {
            Algorithm::TokenBucket(it) => refilled(it.rate, it.burst),
            Algorithm::LeakyBucket(it) => refilled(it.rate, it.capacity),
            Algorithm::SlidingWindow(it) => it.rate.count(),
            Algorithm::SlidingCounter(it) => it.rate.count(),
            Algorithm::FixedWindow(it) => it.rate.count(),
            // `new` accepts none of these.
            Algorithm::WarmUp(_)
            | Algorithm::SlidingLog(_)
            | Algorithm::Concurrency(_)
            | Algorithm::AutoConcurrency(_)
            | Algorithm::Pacing(_)
            | Algorithm::Closed
            | Algorithm::Planned(_)
            | Algorithm::Synced(_) => 0,
        }
    }

    /// Returns the algorithm that decides here now.
    pub(in crate::flow) fn here(&self) -> Algorithm {
        if self.gateways > 1 { self.whole.among(self.gateways) } else { (*self.whole).clone() }
    }

    /// Divides it among this many gateways.
    pub(in crate::flow) fn among(&self, gateways: u32) -> Self {
        Self { gateways, ..self.clone() }
    }
}

/// Returns how many bytes the allocator takes for a request: mimalloc's sizes are multiples of 16,
/// and above 128 a quarter of the lower power of two apart.
pub(in crate::flow) const fn allocated(bytes: usize) -> usize {
    let step = match bytes.checked_next_power_of_two() {
        Some(above) if above > 128 => above / 8,
        Some(_) => 16,
        None => return bytes,
    };
    bytes.div_ceil(step).saturating_mul(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_is_as_much_as_was_asked_for_or_up_to_a_quarter_more() {
        for (asked, given) in [
            (0, 0),
            (1, 16),
            (24, 32),
            (80, 80),
            (88, 96),
            (128, 128),
            (129, 160),
            (480, 512),
            (512, 512),
            (513, 640),
            (1_600, 1_792),
            (usize::MAX, usize::MAX),
        ] {
            assert_eq!(allocated(asked), given, "{asked}");
        }
    }
}

//! The look far below: fewer places, once, when responses have become slow.
//!
//! The limit goes to 1.4 times the places that the throughput would need if responses took as long as
//! unloaded, at most to a fourth. It waits until the cost in flight has fallen to that, and measures the
//! throughput. If it is about the same, the service was too full, and the limit stays. Otherwise the
//! service is slower: the limit goes back, and the unloaded response time is the measured one.

use super::{AutoLimit, Config, Fixed, ONE, Phase, RESPONSES, Sample, Tally, rounded};
use crate::flow::{limit_change::ChangeReason, time::Instant};

/// The places of a dive, for each that the throughput needs.
const SPARE: Fixed = ONE * 14 / 10;

/// The limit stays below if the elasticity is less.
const STAY: Fixed = ONE * 3 / 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dive {
    /// The slot before.
    pub(super) before: Sample,
    pub(super) level: u32,
    /// True once the cost in flight has fallen to the level.
    pub(super) measures: bool,
}

impl AutoLimit {
    /// Begins a dive. Returns false if it would lead no lower.
    pub(super) fn begin_dive(&mut self, config: Config, now: Instant, before: &Sample) -> bool {
        let need = i128::from(SPARE) * i128::from(before.cost) * i128::from(self.unloaded);
        let need = need / i128::from(before.length.max(1));
        let need = Fixed::try_from(need).unwrap_or(Fixed::MAX / 2);
        let least = Fixed::from(config.min) * ONE;
        let level = rounded(need.max(self.limit / 4).max(least));

        let from = self.low();
        if level >= from {
            return false;
        }
        self.phase = Phase::Dive(Dive { before: *before, level, measures: false });
        self.record(now, ChangeReason::Dive, from, level);
        true
    }

    /// Waits until the cost in flight has fallen to the level, measures, and decides.
    pub(super) fn go_on_with(&mut self, dive: Dive, config: Config, now: Instant, in_flight: u64) {
        let Dive { before, level, measures } = dive;
        if !measures {
            if in_flight <= u64::from(level) {
                self.phase = Phase::Dive(Dive { measures: true, ..dive });
                self.tally = Tally::new(now);
            }
            return;
        }

        let Some(mean) = self.tally.mean() else { return };
        let enough = i128::from(RESPONSES) * i128::from(self.tally.spread());
        let is_enough = i128::from(self.tally.responses) * i128::from(ONE) >= enough;
        if !is_enough || self.tally.length(now) < mean.saturating_mul(2) {
            return;
        }

        let sample = self.tally.sample(level, now);
        let is_same = level == before.level;
        if !is_same {
            self.elasticity = sample.elasticity(&before);
        }
        if is_same || self.elasticity < STAY {
            self.change(config, now, Fixed::from(level) * ONE, ChangeReason::DiveKept);
        } else {
            self.unloaded = self.unloaded.max(mean);
            self.record(now, ChangeReason::DiveRefuted, level, self.low());
        }
        self.phase = Phase::Steady;
        self.trend = 0;
        self.latest = [None; 2];
        self.is_unbound = false;
        self.open_slot(now);
    }
}

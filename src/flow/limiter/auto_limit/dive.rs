//! The look far below: fewer places, once, when responses have become slow.
//!
//! The limit goes to 1.4 times the places that the throughput would need if responses took as long as
//! unloaded, at most to a fourth. It waits until the cost in flight has fallen to that, and measures the
//! throughput. If it is about the same, the service was too full, and the limit stays. Otherwise the
//! service is slower: the limit goes back, and the unloaded response time is the measured one.

use super::{AutoLimit, Config, Fixed, ONE, Phase, RESPONSES, SLOW, Sample, Tally, rounded};
use crate::flow::{limit_change::ChangeReason, time::Instant};

/// The places of a dive, for each that the throughput needs.
const SPARE: Fixed = ONE * 14 / 10;

/// The limit stays below if the elasticity is less.
const STAY: Fixed = ONE * 3 / 10;

/// The slots after which a refuted dive is checked for the first time; each next check takes twice as many.
const RECHECK_AFTER: u32 = 16;

/// The checks of a refuted dive.
const RECHECKS: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dive {
    /// The slot before.
    pub(super) before: Sample,
    pub(super) level: u32,
    /// True once the cost in flight has fallen to the level.
    pub(super) measures: bool,
}

/// The next check of a dive that was refuted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Recheck {
    /// The unloaded response time before the dive, in nanoseconds.
    pub(super) unloaded: u64,
    /// The slots until the check.
    pub(super) slots: u32,
    /// The checks so far, with this one.
    pub(super) count: u8,
}

impl AutoLimit {
    /// Begins a dive. Returns false if it would lead no lower.
    pub(super) fn begin_dive(&mut self, config: Config, now: Instant, before: &Sample) -> bool {
        let need = i128::from(SPARE) * i128::from(before.cost) * i128::from(self.unloaded);
        let need = need / i128::from(before.length.max(1));
        let need = Fixed::try_from(need).unwrap_or(Fixed::MAX / 2);
        let least = Fixed::from(config.min) * ONE;
        let fourth = self.limit.min(Fixed::from(before.level) * ONE) / 4;
        let level = rounded(need.max(fourth).max(least));

        let from = self.low();
        if level >= from.min(before.level) {
            // There is nothing to check any more, or it would be due in each slot.
            self.recheck = None;
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
            self.recheck = None;
        } else {
            self.plan_recheck(mean);
            self.unloaded = self.unloaded.max(mean);
            self.record(now, ChangeReason::DiveRefuted, level, self.low());
        }
        self.phase = Phase::Steady;
        self.trend = 0;
        self.latest = [None; 2];
        self.is_unbound = false;
        self.open_slot(now);
    }

    /// Plans the next check of a dive that was refuted at this mean response time: few responses decided
    /// it, and an error would hide for long that the service is too full.
    fn plan_recheck(&mut self, mean: u64) {
        let count = self.recheck.map_or(0, |recheck| recheck.count);
        let unloaded = self.recheck.map_or(self.unloaded, |recheck| recheck.unloaded);
        let is_worth = unloaded < mean && count < RECHECKS;
        self.recheck =
            is_worth.then(|| Recheck { unloaded, slots: RECHECK_AFTER << count, count: count + 1 });
    }

    /// Counts a slot. Returns true if the service is to be checked again, and sets the unloaded response
    /// time to the one before the dive.
    pub(super) fn recheck_is_due(&mut self, surely: u64) -> bool {
        let Some(recheck) = &mut self.recheck else { return false };
        recheck.slots = recheck.slots.saturating_sub(1);
        if recheck.slots > 0 {
            return false;
        }

        let unloaded = recheck.unloaded;
        let is_slow = surely > unloaded.saturating_mul(SLOW);
        if is_slow {
            self.unloaded = unloaded;
        } else {
            self.recheck = None;
        }
        is_slow
    }
}

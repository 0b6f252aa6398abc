//! The state of a limit as numbers, for another process.

use super::{AutoLimit, Config, Dive, Fixed, LONGEST_SLOT, ONE, Phase, Recheck, Sample, Tally};
use crate::flow::{
    limit_change::{ChangeReason, LimitChange},
    time::{Instant, nanos},
};
use core::time::Duration;

/// Numbers of a sample: whether there is one, and what it has.
const SAMPLE: usize = 5;

/// A sample of no slot.
const NO_SAMPLE: [u64; SAMPLE] = [0; SAMPLE];

impl AutoLimit {
    /// Returns its numbers.
    pub(in super::super) fn export(&self) -> Vec<u64> {
        let (phase, of_phase, dive) = match self.phase {
            Phase::Start(sample) => (0, sample_numbers(sample), [0; 2]),
            Phase::Steady => (1, NO_SAMPLE, [0; 2]),
            Phase::Recorded => (3, NO_SAMPLE, [0; 2]),
            Phase::Dive(Dive { before, level, measures }) => {
                (2, sample_numbers(Some(before)), [level.into(), measures.into()])
            }
        };
        let [low, high] = self.latest.map(sample_numbers);
        let Tally { begin, responses, good, cost, time, squares, waited, rejected } = self.tally;

        let mut numbers = vec![
            of_fixed(self.limit),
            self.length,
            self.slot,
            self.is_unbound.into(),
            self.unloaded,
            of_fixed(self.elasticity),
            of_fixed(self.trend),
            self.slow_slots.into(),
            self.doubts.into(),
            phase,
        ];
        numbers.extend(dive);
        numbers.extend(of_phase);
        numbers.extend(low);
        numbers.extend(high);
        numbers.extend([begin, responses, good, cost, time, waited, rejected]);
        numbers.extend([low_half(squares >> 64), low_half(squares)]);
        numbers.extend([self.wanted_until.as_nanos(), self.seen.as_nanos()]);
        numbers.extend(recheck_numbers(self.recheck));
        numbers.extend(change_numbers(self.latest_change));
        numbers.extend(self.changes);
        numbers
    }

    /// Returns the limit of these numbers; `None` if they are no limit's.
    pub(in super::super) fn import(config: Config, numbers: &[u64]) -> Option<Self> {
        let mut read = Reader(numbers);
        let limit = read.fixed()?;
        let is_length = |length: &u64| length.is_power_of_two() && *length <= LONGEST_SLOT;
        let length = read.next().filter(is_length)?;
        let [slot, is_unbound, unloaded] = read.array()?;
        let elasticity = read.fixed()?;
        let trend = read.fixed()?;
        let [slow_slots, doubts, phase, level, measures] = read.array()?;
        let Maybe(of_phase) = read.sample()?;
        let phase = match phase {
            0 => Phase::Start(of_phase),
            1 => Phase::Steady,
            2 => Phase::Dive(Dive {
                before: of_phase?,
                level: u32::try_from(level).ok()?,
                measures: measures > 0,
            }),
            3 => Phase::Recorded,
            _ => return None,
        };
        let latest = [read.sample()?.0, read.sample()?.0];
        let tally = read.tally()?;
        let [wanted_until, seen] = read.array()?.map(Instant::from_nanos);
        let Maybe(recheck) = read.recheck()?;

        let mut auto = Self {
            limit: limit.clamp(0, Fixed::from(u32::MAX) * ONE),
            phase,
            length,
            slot,
            is_unbound: is_unbound > 0,
            latest,
            unloaded,
            elasticity: elasticity.clamp(-4 * ONE, 4 * ONE),
            trend: trend.clamp(-ONE, ONE),
            slow_slots: u8::from(slow_slots > 0),
            doubts: u8::try_from(doubts).unwrap_or(u8::MAX),
            tally,
            recheck,
            waits: false,
            wanted_until,
            seen,
            unreported: None,
            latest_change: read.change()?.0,
            changes: read.array()?,
        };
        auto.fit(config);
        read.0.is_empty().then_some(auto)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half")]
const fn low_half(wide: u128) -> u64 {
    wide as u64
}

fn of_fixed(number: Fixed) -> u64 {
    number.cast_unsigned()
}

fn sample_numbers(sample: Option<Sample>) -> [u64; SAMPLE] {
    sample.map_or(NO_SAMPLE, |Sample { cost, length, level, end }| {
        [1, cost, length, level.into(), end]
    })
}

fn recheck_numbers(recheck: Option<Recheck>) -> [u64; 3] {
    recheck
        .map_or([0; 3], |Recheck { unloaded, slots, count }| [unloaded, slots.into(), count.into()])
}

fn change_numbers(change: Option<LimitChange>) -> [u64; 8] {
    change.map_or([0; 8], |change| {
        let LimitChange { at, reason, from, to, elasticity, trend, unloaded, slot } = change;
        [
            reason as u64 + 1,
            at.as_nanos(),
            from.into(),
            to.into(),
            of_fixed(elasticity.into()),
            of_fixed(trend.into()),
            nanos(unloaded),
            nanos(slot),
        ]
    })
}

/// The value of the numbers, or nothing.
struct Maybe<T>(Option<T>);

/// The numbers that are not read yet.
struct Reader<'n>(&'n [u64]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u64; N]> {
        let (numbers, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*numbers)
    }

    fn next(&mut self) -> Option<u64> {
        let [number] = self.array()?;
        Some(number)
    }

    fn fixed(&mut self) -> Option<Fixed> {
        Some(self.next()?.cast_signed())
    }

    fn sample(&mut self) -> Option<Maybe<Sample>> {
        let [is_there, cost, length, level, end] = self.array()?;
        let level = u32::try_from(level).ok()?;
        Some(Maybe((is_there > 0).then_some(Sample { cost, length, level, end })))
    }

    fn tally(&mut self) -> Option<Tally> {
        let [begin, responses, good, cost, time, waited, rejected] = self.array()?;
        let [high, low] = self.array()?;
        let squares = u128::from(high) << 64 | u128::from(low);
        Some(Tally { begin, responses, good, cost, time, squares, waited, rejected })
    }

    /// A check that is planned has a count above 0.
    fn recheck(&mut self) -> Option<Maybe<Recheck>> {
        let [unloaded, slots, count] = self.array()?;
        let slots = u32::try_from(slots).ok()?;
        let count = u8::try_from(count).ok()?;
        Some(Maybe((count > 0).then_some(Recheck { unloaded, slots, count })))
    }

    fn change(&mut self) -> Option<Maybe<LimitChange>> {
        let [reason, at, from, to, elasticity, trend, unloaded, slot] = self.array()?;
        let Some(reason) = reason.checked_sub(1) else { return Some(Maybe(None)) };
        Some(Maybe(Some(LimitChange {
            at: Instant::from_nanos(at),
            reason: *ChangeReason::ALL.get(usize::try_from(reason).ok()?)?,
            from: u32::try_from(from).ok()?,
            to: u32::try_from(to).ok()?,
            elasticity: i32::try_from(elasticity.cast_signed()).ok()?,
            trend: i32::try_from(trend.cast_signed()).ok()?,
            unloaded: Duration::from_nanos(unloaded),
            slot: Duration::from_nanos(slot),
        })))
    }
}

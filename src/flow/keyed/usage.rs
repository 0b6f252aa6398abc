//! A client's past usage in eight bytes, kept after its eviction.
//!
//! A limit that drains keeps the instant at which nothing is used. A limit that counts in windows
//! keeps two counts: of the current **generation** and of the one before. A generation is as long
//! as a charge counts, so older ones expire by themselves.
//!
//! Counts are rounded up to twelve bits: exact below 4096, then at most 1/2048 too much.

use crate::flow::time::Instant;

/// A client's usage, on the [`Scale`] of its rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::flow) struct PastUsage(u64);

/// The form of a rule's usages at an instant.
#[derive(Clone, Copy, Debug)]
pub(in crate::flow) enum Scale {
    /// As the instant at which nothing is used; with the current time.
    Time(Instant),
    /// As counts; with the current generation.
    Counts(u64),
}

/// Bits of a rounded count after the first one.
const DIGITS: u32 = 11;

impl PastUsage {
    /// No usage.
    pub(in crate::flow) const NONE: Self = Self(0);

    /// Returns the usage that ends at `over`.
    pub(in crate::flow) const fn until(over: Instant) -> Self {
        Self(over.as_nanos())
    }

    /// Returns it as a number, for [`Self::of_bits`].
    pub(super) const fn bits(self) -> u64 {
        self.0
    }

    /// Inverts [`Self::bits`].
    pub(super) const fn of_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns when it ends; the epoch if nothing is used.
    pub(in crate::flow) const fn over(self) -> Instant {
        Instant::from_nanos(self.0)
    }

    /// Returns the usage of these counts.
    pub(in crate::flow) fn counted(generation: u64, [current, before]: [u64; 2]) -> Self {
        Self::of_codes(generation, [code(current), code(before)])
    }

    /// Returns the counts of a generation and of the one before.
    pub(in crate::flow) fn counts(self, generation: u64) -> [u64; 2] {
        self.codes(generation).map(count)
    }

    fn of_codes(generation: u64, [current, before]: [u16; 2]) -> Self {
        match (current, before) {
            (0, 0) => Self::NONE,
            _ => Self(generation << 32 | u64::from(current) << 16 | u64::from(before)),
        }
    }

    /// The last 32 bits of a generation are kept. After exactly 2^32 generations an old usage
    /// counts again, to the client's disadvantage.
    #[expect(clippy::cast_possible_truncation, reason = "the parts of the number")]
    const fn codes(self, generation: u64) -> [u16; 2] {
        let current = (self.0 >> 16) as u16;
        let before = self.0 as u16;
        match (generation as u32).wrapping_sub((self.0 >> 32) as u32) {
            0 => [current, before],
            1 => [0, current],
            _ => [0, 0],
        }
    }
}

impl Scale {
    /// Returns the larger of two usages, by part.
    pub(in crate::flow) fn join(self, one: PastUsage, other: PastUsage) -> PastUsage {
        self.combine(one, other, u64::max, u16::max)
    }

    /// Returns the smaller of two usages, by part.
    pub(in crate::flow) fn meet(self, one: PastUsage, other: PastUsage) -> PastUsage {
        self.combine(one, other, u64::min, u16::min)
    }

    /// Returns a number that orders usages; zero if nothing is used.
    pub(in crate::flow) fn weight(self, usage: PastUsage) -> u64 {
        match self {
            Self::Time(now) => usage.0.saturating_sub(now.as_nanos()),
            Self::Counts(generation) => usage.counts(generation).iter().sum(),
        }
    }

    fn combine(
        self,
        one: PastUsage,
        other: PastUsage,
        instants: impl Fn(u64, u64) -> u64,
        counts: impl Fn(u16, u16) -> u16,
    ) -> PastUsage {
        match self {
            Self::Time(_) => PastUsage(instants(one.0, other.0)),
            Self::Counts(generation) => {
                let one = one.codes(generation);
                let other = other.codes(generation);
                PastUsage::of_codes(generation, [0, 1].map(|at| counts(one[at], other[at])))
            }
        }
    }
}

/// Returns the code of a count, rounded up. Codes are in the order of counts.
fn code(count: u64) -> u16 {
    let exponent = (u64::BITS - count.leading_zeros()).saturating_sub(DIGITS + 1);
    let mantissa = count.div_ceil(1 << exponent);
    u16::try_from((u64::from(exponent) << DIGITS) + mantissa).unwrap_or(u16::MAX)
}

const fn count(code: u16) -> u64 {
    let exponent = (code >> DIGITS) as u32;
    let rest = code as u64 & ((1 << DIGITS) - 1);
    match exponent.checked_sub(1) {
        None => rest,
        Some(exponent) => (rest + (1 << DIGITS)) << exponent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::rate::Rate;

    #[test]
    fn a_count_is_rounded_up_and_keeps_its_order() {
        let mut last = 0;
        for shift in 0..41 {
            for offset in [0, 1, 5, 1000] {
                let exact = (1_u64 << shift).saturating_sub(3) + offset;
                let rounded = count(code(exact));
                assert!(rounded >= exact && rounded - exact <= exact / 2048, "{exact} {rounded}");
                assert!(exact >= 4096 || rounded == exact, "{exact} {rounded}");
            }
            assert!(code(1 << shift) > last);
            last = code(1 << shift);
        }
        assert!(
            (0..u16::MAX)
                .all(|encoded| code(count(encoded)) == encoded
                    && count(encoded) < count(encoded + 1))
        );
        assert!(count(u16::MAX) > Rate::MAX_COUNT);
    }

    #[test]
    fn a_generation_is_followed_by_one_and_then_forgotten() {
        let usage = PastUsage::counted(u64::from(u32::MAX), [7, 3]);
        assert_eq!(usage.counts(u64::from(u32::MAX)), [7, 3]);
        assert_eq!(usage.counts(1 << 32), [0, 7]);
        assert_eq!(usage.counts((1 << 32) + 1), [0, 0]);
        assert_eq!(PastUsage::NONE.counts(0), [0, 0]);
    }

    #[test]
    fn usages_join_and_meet_as_of_a_generation() {
        let scale = Scale::Counts(5);
        let old = PastUsage::counted(4, [9, 9]);
        let new = PastUsage::counted(5, [2, 3]);
        assert_eq!(scale.join(old, new).counts(5), [2, 9]);
        assert_eq!(scale.meet(old, new).counts(5), [0, 3]);
        assert_eq!(scale.meet(old, PastUsage::NONE), PastUsage::NONE);
        assert_eq!([old, new].map(|usage| scale.weight(usage)), [9, 5]);
        let at = |nanos| PastUsage::until(Instant::from_nanos(nanos));
        let scale = Scale::Time(Instant::from_nanos(10));
        assert_eq!(scale.join(at(5), at(15)), at(15));
        assert_eq!(scale.meet(at(5), at(15)), at(5));
        assert_eq!([5, 15].map(|time| scale.weight(at(time))), [0, 5]);
    }
}

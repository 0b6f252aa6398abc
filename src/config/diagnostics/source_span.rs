//! The span of a value in the text.

use std::ops::Range;

/// The bytes of the text that a value stands in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::config) struct SourceSpan {
    start: u32,
    end: u32,
    /// The alias through which the value came here, or the value's own span.
    used: (u32, u32),
}

impl SourceSpan {
    /// Before the first byte of the text.
    pub(in crate::config) const START: Self = Self { start: 0, end: 0, used: (0, 0) };

    /// Returns the span of the bytes `range` of the text.
    pub(in crate::config) fn of(range: Range<usize>) -> Self {
        let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let start = small(range.start);
        let end = small(range.end);
        Self { start, end, used: (start, end) }
    }

    /// Returns the span of the bytes `range` of the text, which an alias at `used` stands for if
    /// that is another span.
    pub(in crate::config) fn used_at(range: Range<usize>, used: Range<usize>) -> Self {
        let Self { start, end, .. } = Self::of(used);
        Self { used: (start, end), ..Self::of(range) }
    }

    /// Returns the same span of a text that begins `base` bytes later.
    pub(in crate::config) fn shifted(self, base: usize) -> Self {
        let base = u32::try_from(base).unwrap_or(u32::MAX);
        let by = |at: u32| at.saturating_add(base);
        let used = (by(self.used.0), by(self.used.1));
        Self { start: by(self.start), end: by(self.end), used }
    }

    /// Returns the span in one number, as serde passes it on.
    pub(in crate::config) fn bits(self) -> u128 {
        let parts = [self.start, self.end, self.used.0, self.used.1];
        parts.into_iter().fold(0, |bits, part| bits << 32 | u128::from(part))
    }

    /// Returns the span that [`Self::bits`] made a number of.
    pub(in crate::config) fn of_bits(bits: u128) -> Self {
        let part =
            |shift: u32| u32::try_from(bits >> shift & u128::from(u32::MAX)).unwrap_or_default();
        Self { start: part(96), end: part(64), used: (part(32), part(0)) }
    }

    /// Returns the bytes of the value itself.
    pub(in crate::config) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// Returns the bytes of the alias that stands for the value, if one does.
    pub(in crate::config) fn alias(self) -> Option<Range<usize>> {
        (self.used != (self.start, self.end)).then_some(self.used.0 as usize..self.used.1 as usize)
    }

    /// Reports whether the value stands in quotes, which makes it text and never a number.
    pub(in crate::config) fn is_quoted(self, text: &str) -> bool {
        text.get(self.range()).is_some_and(|t| t.starts_with(['"', '\'']))
    }
}

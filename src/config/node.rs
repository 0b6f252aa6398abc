//! The file as a tree, which keeps every value's place.
//!
//! The tree is untyped on purpose. A typed parse stops at its first error; over a tree the decoder
//! reports all of them. Scalars keep the text that stands in the file, so that `1.10`, `0x10` and
//! `no` reach a text field as they were written, and nothing is a number before a key asks for one.

use std::{borrow::Cow, ops::Range};

/// Where a value stands in the text, as byte offsets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    start: u32,
    end: u32,
    /// The alias through which the value came here, or the value's own place.
    used: (u32, u32),
}

impl Place {
    /// Returns the place of the bytes `range` of the text.
    pub(super) fn of(range: Range<usize>) -> Self {
        let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let (start, end) = (small(range.start), small(range.end));
        Self { start, end, used: (start, end) }
    }

    /// Returns the place of the bytes `range` of the text, which an alias at `used` stands for if
    /// that is another place.
    pub(super) fn used_at(range: Range<usize>, used: Range<usize>) -> Self {
        let Self { start, end, .. } = Self::of(used);
        Self { used: (start, end), ..Self::of(range) }
    }

    /// Returns the place in one number, as serde passes it on.
    pub(super) fn bits(self) -> u128 {
        let parts = [self.start, self.end, self.used.0, self.used.1];
        parts.into_iter().fold(0, |bits, part| bits << 32 | u128::from(part))
    }

    /// Returns the place that [`Self::bits`] made a number of.
    pub(super) fn of_bits(bits: u128) -> Self {
        let part =
            |shift: u32| u32::try_from(bits >> shift & u128::from(u32::MAX)).unwrap_or_default();
        Self { start: part(96), end: part(64), used: (part(32), part(0)) }
    }

    /// Returns the bytes of the value itself.
    pub(super) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// Returns the bytes of the alias that stands for the value, if one does.
    pub(super) fn alias(self) -> Option<Range<usize>> {
        (self.used != (self.start, self.end)).then_some(self.used.0 as usize..self.used.1 as usize)
    }

    /// Reports whether the value stands in quotes, which makes it text and never a number.
    pub(super) fn is_quoted(self, text: &str) -> bool {
        text.get(self.range()).is_some_and(|t| t.starts_with(['"', '\'']))
    }
}

/// One value of the file and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node<'s> {
    pub place: Place,
    pub content: Content<'s>,
}

/// What a value is, before any key says what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content<'s> {
    /// Nothing after the colon, `~` or `null`.
    Empty,
    /// Text, quoted or block text decoded, everything else as written.
    Scalar(Cow<'s, str>),
    List(Vec<Node<'s>>),
    /// In the order of the file, duplicates included.
    Map(Vec<(Name<'s>, Node<'s>)>),
}

/// The key of a map's entry, which is always a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name<'s> {
    pub place: Place,
    pub text: Cow<'s, str>,
}

impl Node<'_> {
    /// Returns the value under `name`, if this is a map that has it.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        let Content::Map(entries) = &self.content else { return None };
        entries.iter().find(|(key, _)| key.text == name).map(|(_, value)| value)
    }
}

//! The file as a tree, which keeps every value's span.
//!
//! It is untyped because a typed parse stops at its first error. Scalars keep their text, so that
//! `1.10`, `0x10` and `no` reach a text field as written.

use crate::config::diagnostics::SourceSpan;
use std::borrow::Cow;

/// One value of the file and its span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::config) struct Node<'s> {
    pub span: SourceSpan,
    pub content: Content<'s>,
}

/// The content of a value, before any key says what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::config) enum Content<'s> {
    /// Nothing after the colon, `~` or `null`.
    Empty,
    /// Text, quoted or block text decoded, everything else as written.
    Scalar(Cow<'s, str>),
    /// An unreadable value, which has been reported: a scalar with a variable that is not set, or a
    /// value without the blank before it.
    Unset,
    List(Vec<Node<'s>>),
    /// In the order of the file, duplicates included.
    Map(Vec<(Name<'s>, Node<'s>)>),
}

/// The key of a map's entry, which is always a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::config) struct Name<'s> {
    pub span: SourceSpan,
    pub text: Cow<'s, str>,
}

impl Node<'_> {
    /// Returns the first value of the key `name`, if this is a map that has it.
    pub(in crate::config) fn entry(&self, name: &str) -> Option<&Self> {
        let Content::Map(entries) = &self.content else { return None };
        entries.iter().find(|(known, _)| known.text == name).map(|(_, value)| value)
    }

    /// Returns the same value of a text that begins `base` bytes later.
    pub(in crate::config) fn shifted(mut self, base: usize) -> Self {
        self.shift(base);
        self
    }

    fn shift(&mut self, base: usize) {
        self.span = self.span.shifted(base);
        match &mut self.content {
            Content::Empty | Content::Scalar(_) | Content::Unset => {}
            Content::List(items) => {
                for item in items {
                    item.shift(base);
                }
            }
            Content::Map(entries) => {
                for (name, value) in entries {
                    name.span = name.span.shifted(base);
                    value.shift(base);
                }
            }
        }
    }

    /// Returns the value under `name`, if this is a map that has it.
    pub(in crate::config) fn get(&self, name: &str) -> Option<&Self> {
        let Content::Map(entries) = &self.content else { return None };
        entries.iter().find(|(key, _)| key.text == name).map(|(_, value)| value)
    }
}

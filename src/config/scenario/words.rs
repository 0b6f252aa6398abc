//! The words of a sentence, read one after the other.

use crate::config::{
    diagnostics::{Problem, SourceSpan, quoted},
    spec::values,
};
use core::ops::Range;
use std::time::Duration;

/// The error of a sentence, and its bytes.
#[derive(Debug)]
pub(super) struct Wrong {
    pub at: Range<usize>,
    pub message: String,
    pub help: String,
}

impl Wrong {
    /// Returns the problem of a text at `span`; if it stands there as it was read, only
    /// the wrong word is marked.
    pub(super) fn problem(self, span: SourceSpan, as_written: bool) -> Problem {
        let start = span.range().start;
        let span = if as_written {
            SourceSpan::of(start + self.at.start..start + self.at.end)
        } else {
            span
        };
        Problem::error(span, self.message).help(self.help)
    }
}

pub(super) type Found<T> = Result<T, Wrong>;

/// The words of a sentence, one after the other.
pub(super) struct Words<'t> {
    pub text: &'t str,
    pub all: Vec<Range<usize>>,
    pub next: usize,
}

impl<'t> Words<'t> {
    pub(super) fn of(text: &'t str) -> Self {
        let mut all = Vec::new();
        for word in text.split_whitespace() {
            let start = word.as_ptr() as usize - text.as_ptr() as usize;
            all.push(start..start + word.len());
        }
        Self { text, all, next: 0 }
    }

    pub(super) fn peek(&self) -> Option<&'t str> {
        self.all.get(self.next).map(|range| &self.text[range.clone()])
    }

    pub(super) fn take(&mut self) -> Option<&'t str> {
        let word = self.peek();
        self.next += usize::from(word.is_some());
        word
    }

    /// Takes the next word if it is `word`.
    pub(super) fn is(&mut self, word: &str) -> bool {
        let is = self.peek() == Some(word);
        self.next += usize::from(is);
        is
    }

    pub(super) fn wanted(&mut self, what: &str, example: &str) -> Found<&'t str> {
        self.take().ok_or_else(|| Wrong {
            at: self.text.len()..self.text.len(),
            message: format!("{what} is missing"),
            help: format!("write {example}"),
        })
    }

    /// Says what is wrong with the word that was taken last.
    pub(super) fn wrong(&self, message: impl Into<String>, help: impl Into<String>) -> Wrong {
        let at = self.all.get(self.next.saturating_sub(1)).cloned().unwrap_or(0..0);
        Wrong { at, message: message.into(), help: help.into() }
    }

    /// Reads a time, of several words perhaps: `1m 30s`.
    pub(super) fn duration(&mut self, example: &str) -> Found<Duration> {
        let is_amount = |word: &str| {
            word.starts_with(|c: char| c.is_ascii_digit()) && word.ends_with(char::is_alphabetic)
        };
        let first = self.next;
        let mut word = Some(self.wanted("a time", example)?);
        while word.is_some_and(is_amount) && self.peek().is_some_and(is_amount) {
            word = self.take();
        }
        let span = |at: usize| self.all.get(at).cloned().unwrap_or_default();
        let at = span(first).start..span(self.next.saturating_sub(1)).end;
        values::duration(&self.text[at.clone()]).map_err(|invalid| Wrong {
            at,
            message: invalid.message,
            help: invalid.help,
        })
    }

    pub(super) fn number(&mut self, what: &str, example: &str) -> Found<u64> {
        let word = self.wanted(what, example)?;
        let help = format!("write {example}");
        values::integer(word).map_err(|invalid| self.wrong(invalid.message, help))
    }

    pub(super) fn end(&mut self, help: &str) -> Found<()> {
        match self.take() {
            None => Ok(()),
            Some(word) => Err(self.wrong(format!("{} says nothing here", quoted(word)), help)),
        }
    }
}

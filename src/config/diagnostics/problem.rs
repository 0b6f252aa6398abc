//! One thing that is wrong with a file, and the collection of them.

use super::{Lint, SourceSpan};
use serde::Serialize;
use std::collections::HashSet;

/// From how many problems on hints that cost much to find are left out.
const MANY: usize = 500;

/// The most problems that are kept.
const MOST_KEPT: usize = 10_000;

/// The severity of a problem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The file cannot be used.
    #[default]
    Error,
    /// The file can be used, but probably does not do what it was meant to.
    Warning,
    /// The file can be used; something could be better.
    Note,
}

/// One thing that is wrong, or odd, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub(in crate::config) severity: Severity,
    /// Its name, if it is a warning or a note.
    pub(in crate::config) lint: Option<Lint>,
    pub(in crate::config) message: String,
    /// `None`: about the file as a whole.
    pub(in crate::config) span: Option<SourceSpan>,
    pub(in crate::config) label: String,
    pub(in crate::config) also: Vec<(SourceSpan, String)>,
    pub(in crate::config) help: String,
    /// True if the problem is a file that does not exist.
    pub(in crate::config) is_missing_file: bool,
}

impl Problem {
    /// Begins an error about the value at `span`.
    pub(in crate::config) fn error(span: SourceSpan, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            lint: None,
            message: message.into(),
            span: Some(span),
            label: String::new(),
            also: Vec::new(),
            help: String::new(),
            is_missing_file: false,
        }
    }

    /// Begins an error about the file as a whole.
    pub(in crate::config) fn about_file(message: impl Into<String>) -> Self {
        Self { span: None, ..Self::error(SourceSpan::default(), message) }
    }

    /// Begins a warning: the file can be used.
    pub(in crate::config) fn warning(
        lint: Lint,
        span: SourceSpan,
        message: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Warning, lint: Some(lint), ..Self::error(span, message) }
    }

    /// Begins a note about the file as a whole.
    pub(in crate::config) fn note(lint: Lint, message: impl Into<String>) -> Self {
        Self { severity: Severity::Note, lint: Some(lint), ..Self::about_file(message) }
    }

    /// Marks the value that it is about.
    #[must_use]
    pub(in crate::config) const fn at(mut self, span: SourceSpan) -> Self {
        self.span = Some(span);
        self
    }

    /// Returns the same problem of a text that begins `base` bytes later.
    #[must_use]
    pub(in crate::config) fn shifted(mut self, base: usize) -> Self {
        self.span = self.span.map(|span| span.shifted(base));
        for (span, _) in &mut self.also {
            *span = span.shifted(base);
        }
        self
    }

    /// Returns that the key `name` is written twice.
    pub(in crate::config) fn duplicate(name: &str, first: SourceSpan, again: SourceSpan) -> Self {
        Self::error(again, format!("{} is written twice", quoted(name)))
            .label("again here")
            .also(first, "first here")
            .help(match name {
                // Items of lists have a name, and it comes first.
                "name" => "remove one of the two, or write `- name` where another item begins",
                _ => "remove one of the two",
            })
    }

    /// Says what the marked value is.
    #[must_use]
    pub(in crate::config) fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Marks another value that has a part in it.
    #[must_use]
    pub(in crate::config) fn also(mut self, span: SourceSpan, label: impl Into<String>) -> Self {
        self.also.push((span, label.into()));
        self
    }

    /// Says what to write.
    #[must_use]
    pub(in crate::config) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = help.into();
        self
    }

    #[must_use]
    pub(in crate::config) const fn missing_file(mut self, is: bool) -> Self {
        self.is_missing_file = is;
        self
    }

    /// Returns the sentence that says what is wrong.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns where, or `None` where it is about the file as a whole.
    #[cfg(test)]
    pub(in crate::config) fn span(&self) -> Option<SourceSpan> {
        self.span
    }
}

/// The problems found so far, as a reader and a compiler collect them.
#[derive(Debug, Default)]
pub(in crate::config) struct Problems {
    list: Vec<Problem>,
    /// The number of problems beyond those kept.
    beyond: usize,
}

impl Problems {
    /// Adds one.
    pub(in crate::config) fn add(&mut self, problem: Problem) {
        if self.list.len() < MOST_KEPT {
            self.list.push(problem);
        } else {
            self.beyond += 1;
        }
    }

    /// Returns how many there are.
    pub(in crate::config) const fn count(&self) -> usize {
        self.list.len() + self.beyond
    }

    /// Begins the messages of all but the first `kept` problems with their `place`.
    pub(in crate::config) fn place_from(&mut self, kept: usize, place: &str) {
        for problem in self.list.iter_mut().skip(kept) {
            problem.message.insert_str(0, place);
        }
    }

    /// Returns those of a text that begins `base` bytes later.
    pub(in crate::config) fn shifted(mut self, base: usize) -> Self {
        self.list = self.list.into_iter().map(|problem| problem.shifted(base)).collect();
        self
    }

    /// Adds those of another collection.
    pub(in crate::config) fn extend(&mut self, more: Self) {
        self.beyond += more.beyond;
        for problem in more.list {
            self.add(problem);
        }
    }

    /// Returns the first one at `span` or behind it.
    pub(in crate::config) fn first_from(&self, span: SourceSpan) -> Option<&Problem> {
        let later = self.list.iter().filter(|problem| problem.span >= Some(span));
        later.min_by_key(|problem| problem.span)
    }

    pub(in crate::config) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Reports whether there are so many that a hint that costs much to find may be left out.
    pub(in crate::config) fn are_many(&self) -> bool {
        self.list.len() >= MANY
    }

    /// Removes those that `is_silent` picks.
    pub(in crate::config) fn without(mut self, is_silent: impl Fn(&Problem) -> bool) -> Self {
        self.list.retain(|problem| !is_silent(problem));
        self
    }

    /// Sorts them by span, and says once what an alias repeats. Returns also how many more were
    /// found than are kept.
    pub(in crate::config) fn sorted(mut self) -> (Vec<Problem>, usize) {
        self.list.sort_by_key(|problem| problem.span);
        let mut said = HashSet::new();
        self.list.retain(|problem| {
            said.insert((problem.span.map(SourceSpan::range), problem.message.clone()))
        });
        (self.list, self.beyond)
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self { list: vec![problem], beyond: 0 }
    }
}

/// Quotes a word of the file in a message: short, and without control characters.
pub(in crate::config) fn quoted(word: &str) -> String {
    const LONGEST: usize = 60;
    let clean: String = word.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    let clean = clean.replace("\\'", "'").replace("\\\"", "\"");
    if word.chars().count() > LONGEST { format!("`{clean}…`") } else { format!("`{clean}`") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_word_is_short_and_clean() {
        assert_eq!(quoted("it's"), "`it's`");
        assert_eq!(quoted("\u{1b}[31m"), "`\\u{1b}[31m`");
        assert_eq!(quoted(&"x".repeat(100)), format!("`{}…`", "x".repeat(60)));
    }
}

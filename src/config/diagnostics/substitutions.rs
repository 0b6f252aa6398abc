//! Values from the environment, which must not be shown.

use super::{Problem, SourceSpan};
use std::{fmt, ops::Range};

/// Why a message does not show a value.
pub(in crate::config) const HIDDEN: &str = "what comes from the environment is not shown";

/// The values of a file that variables are in.
#[derive(Debug, Default)]
pub(in crate::config) struct Substitutions(Vec<Substitution>);

/// A value that a variable is in.
pub(in crate::config) struct Substitution {
    range: Range<usize>,
    value: String,
    /// The value as the file has it, as in `Bearer ${TOKEN}`.
    pub written: String,
}

impl Substitution {
    pub(in crate::config) fn new(span: SourceSpan, value: String, written: String) -> Self {
        Self { range: span.range(), value, written }
    }

    /// Returns `text` with what the file has in place of the value, in either case of letters.
    pub(in crate::config) fn conceal(&self, text: &str) -> String {
        let value = self.value.to_ascii_lowercase();
        if value.is_empty() {
            return text.to_owned();
        }
        let lower = text.to_ascii_lowercase();
        let mut shown = String::new();
        let mut end = 0;
        for (at, found) in lower.match_indices(&value) {
            shown.push_str(&text[end..at]);
            shown.push_str(&self.written);
            end = at + found.len();
        }
        shown + &text[end..]
    }

    /// Conceals the value in a message, where it may be in part, escaped, or cut short. What is
    /// quoted there stands between backticks.
    fn conceal_quoted(&self, text: &mut String) {
        /// A shorter value is a part of too many words.
        const SHORT: usize = 3;
        let escaped: String = self.value.chars().flat_map(char::escape_debug).collect();
        let values = [&self.value, &escaped].map(|value| value.to_ascii_lowercase());
        let is_part = |quote: &str| {
            let quote = quote.trim_end_matches('…').to_ascii_lowercase();
            !quote.is_empty() && values.iter().any(|v| v.contains(&quote) || quote.contains(&**v))
        };
        let parts: Vec<_> = text.split('`').collect();
        let shown = parts.iter().enumerate().map(|(index, part)| match index % 2 {
            1 if *part != self.written && is_part(part) => self.written.clone(),
            0 if self.value.len() >= SHORT => self.conceal(part),
            _ => (*part).to_owned(),
        });
        *text = shown.collect::<Vec<_>>().join("`");
    }
}

impl fmt::Debug for Substitution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Substitution").field("written", &self.written).finish_non_exhaustive()
    }
}

impl Substitutions {
    /// Returns those of a text that begins `base` bytes later.
    pub(in crate::config) fn shifted(mut self, base: usize) -> Self {
        for one in &mut self.0 {
            one.range = one.range.start + base..one.range.end + base;
        }
        self
    }

    /// Adds those of a later file.
    pub(in crate::config) fn extend(&mut self, later: Self) {
        self.0.extend(later.0);
    }

    pub(in crate::config) fn new(mut list: Vec<Substitution>) -> Self {
        list.sort_by_key(|one| one.range.start);
        // An alias brings the same value again.
        list.dedup_by_key(|one| one.range.start);
        Self(list)
    }

    /// Returns the substitution in the value at `span`, if there is one.
    pub(in crate::config) fn at(&self, span: SourceSpan) -> Option<&Substitution> {
        let start = span.range().start;
        let found = self.0.binary_search_by_key(&start, |one| one.range.start).ok()?;
        Some(&self.0[found])
    }

    /// Returns `value` as the file has it if a variable is in it.
    pub(in crate::config) fn as_written<'v>(&'v self, value: &'v str) -> &'v str {
        self.0.iter().find(|one| one.value == value).map_or(value, |one| &one.written)
    }

    /// Removes from a problem the values that it marks.
    pub(in crate::config) fn conceal(&self, problem: &mut Problem) {
        let spans = problem.span.into_iter().chain(problem.also.iter().map(|(span, _)| *span));
        let marked: Vec<_> = spans.filter_map(|span| self.at(span)).collect();
        for substitution in marked {
            substitution.conceal_quoted(&mut problem.message);
            substitution.conceal_quoted(&mut problem.label);
            let help = problem.help.clone();
            substitution.conceal_quoted(&mut problem.help);
            if problem.help != help {
                // It proposes another value, of which nothing can be shown.
                problem.help = format!("change the value of `{}`; {HIDDEN}", substitution.written);
            }
            for (_, label) in &mut problem.also {
                substitution.conceal_quoted(label);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_concealed_in_part_escaped_and_cut_short() {
        let value = format!("Bearer s3CRET\n{}", "x".repeat(100));
        let span = SourceSpan::of(4..20);
        let written = "Bearer ${TOKEN}".to_owned();
        let all = Substitutions::new(vec![Substitution::new(span, value.clone(), written)]);
        let concealed = |message: String| {
            let mut problem = Problem::error(span, message).help("write `secret`").label("odd");
            all.conceal(&mut problem);
            (problem.message, problem.help)
        };
        let quoted = crate::config::diagnostics::quoted(&value);
        for text in [format!("no header {quoted}"), "no header `S3cret`".to_owned()] {
            assert_eq!(concealed(text).0, "no header `Bearer ${TOKEN}`");
        }
        assert_eq!(concealed(format!("no {value}")).0, "no Bearer ${TOKEN}");
        assert_eq!(concealed("`limit` is odd".to_owned()).1, "write `secret`");
        let mut quoting = Problem::error(span, "odd").help(format!("write `/{value}`"));
        all.conceal(&mut quoting);
        assert_eq!(
            quoting.help,
            "change the value of `Bearer ${TOKEN}`; what comes from the environment is not shown"
        );
        let elsewhere = Problem::error(SourceSpan::of(5..6), "`s3cret`");
        let mut same = elsewhere.clone();
        all.conceal(&mut same);
        assert_eq!(same, elsewhere, "another value of the file");
        assert!(!format!("{all:?}").contains("s3"));
    }
}

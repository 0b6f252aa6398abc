//! Anchored regular expressions.

use super::ParseError;
use core::{
    fmt,
    hash::{Hash, Hasher},
};
use regex::bytes::{CaptureLocations, Regex, RegexBuilder};

/// The longest expression, in bytes.
const MAX_LENGTH: usize = 2048;

/// The most bytes of a compiled expression. `[0-9a-f]{8}` and more takes some 10 KiB;
/// `a{1000}{1000}` would take 30 MiB.
const MAX_COMPILED: usize = 256 << 10;

/// A regular expression over a whole text, as bytes: `.` is any byte but a line feed, `\w` and
/// `(?i)` are ASCII.
#[derive(Clone)]
pub(super) struct Pattern {
    text: Box<str>,
    regex: Regex,
}

impl Pattern {
    pub(super) fn new(text: &str) -> Result<Self, ParseError> {
        if text.len() > MAX_LENGTH {
            return Err(ParseError::new(
                format!("the regular expression is longer than {MAX_LENGTH} bytes"),
                "split it over several routes",
            ));
        }
        // Alone first: `a)(b` is an error, but would compile between the anchors.
        compile(text)?;
        Ok(Self { text: text.into(), regex: compile(&anchored(text))? })
    }

    /// Returns the expression as written.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the expression with its anchors.
    pub(super) fn anchored(&self) -> &str {
        self.regex.as_str()
    }

    pub(super) fn is_match(&self, bytes: &[u8]) -> bool {
        self.regex.is_match(bytes)
    }

    /// Returns the index of the group with this number or name.
    pub(super) fn group(&self, name: &str) -> Option<usize> {
        match name.parse::<usize>() {
            Ok(number) => (number < self.regex.captures_len()).then_some(number),
            Err(_) => self.regex.capture_names().position(|known| known == Some(name)),
        }
    }

    /// Returns where the groups are in a text that matches.
    pub(super) fn locate(&self, bytes: &[u8]) -> Option<CaptureLocations> {
        let mut locations = self.regex.capture_locations();
        self.regex.captures_read(&mut locations, bytes).map(|_| locations)
    }
}

fn anchored(text: &str) -> String {
    format!(r"\A(?:{text})\z")
}

/// Compiles an expression within bounds.
pub(super) fn compile(text: &str) -> Result<Regex, ParseError> {
    let built = RegexBuilder::new(text)
        .unicode(false)
        .size_limit(MAX_COMPILED)
        .dfa_size_limit(MAX_COMPILED)
        .nest_limit(64)
        .build();
    built.map_err(|error| {
        if matches!(error, regex::Error::CompiledTooBig(_)) {
            return ParseError::new(
                format!("the regular expression needs more than {} KiB", MAX_COMPILED >> 10),
                "make the counts of its repetitions smaller",
            );
        }
        // The lines before the last show the expression and a caret.
        let text = error.to_string();
        let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
        ParseError::new(
            format!("not a regular expression: {reason}"),
            "the syntax is that of https://docs.rs/regex#syntax, without look-around and back-references",
        )
    })
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}/", self.text)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

impl Hash for Pattern {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_matches_the_whole_text_only() {
        for (text, bytes, expected) in [
            ("a|b", "a", true),
            ("a|b", "b", true),
            ("a|b", "ab", false),
            ("^a$", "a", true),
            ("a", "xa", false),
            ("a", "ax", false),
            ("a", "a\n", false),
            ("(?i)abc", "aBc", true),
            (r"\d+", "42", true),
            ("", "", true),
            ("", "a", false),
            ("é", "é", true),
        ] {
            assert_eq!(
                Pattern::new(text).unwrap().is_match(bytes.as_bytes()),
                expected,
                "{text} {bytes}"
            );
        }
    }

    #[test]
    fn bad_and_costly_expressions_are_rejected_in_words() {
        for (text, word) in [
            ("a)(b", "not a regular expression"),
            ("(", "not a regular expression"),
            ("(?=a)", "not a regular expression"),
            ("(?x)a #", "not a regular expression"),
            ("(a{1000}){1000}", "256 KiB"),
            (&"a".repeat(3000), "longer than"),
            (&"(".repeat(1000), "not a regular expression"),
        ] {
            let message = Pattern::new(text).unwrap_err().message;
            assert!(message.contains(word), "{text}: {message}");
        }
    }
}

//! Conditions on header lines and query parameters.

use super::{
    ParseError,
    pattern::Pattern,
    spelling::{Decoded, decoded},
};
use crate::http1::Fields;
use core::fmt;
use http::HeaderName;
use std::borrow::Cow;

/// A field's name and required value. [`Repeated`](super::Repeated) says which of several values
/// counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldPattern {
    name: Box<str>,
    value: Value,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Value {
    Present,
    Equals(Box<str>),
    /// Two or more, sorted.
    OneOf(Box<[Box<str>]>),
    Regex(Pattern),
}

impl Value {
    /// Returns one of these texts, of which there is at least one, whatever their order.
    fn one_of(mut texts: Vec<Box<str>>) -> Self {
        texts.sort_unstable();
        texts.dedup();
        match <[Box<str>; 1]>::try_from(texts) {
            Ok([only]) => Self::Equals(only),
            Err(several) => Self::OneOf(several.into()),
        }
    }

    fn matches(&self, value: &[u8]) -> bool {
        match self {
            Self::Present => true,
            Self::Equals(expected) => value == expected.as_bytes(),
            Self::OneOf(expected) => {
                expected.binary_search_by(|text| text.as_bytes().cmp(value)).is_ok()
            }
            Self::Regex(pattern) => pattern.is_match(value),
        }
    }
}

impl FieldPattern {
    /// Matches a field with this value, ignoring surrounding blanks.
    ///
    /// # Errors
    ///
    /// An empty name.
    pub fn equals(name: &str, value: &str) -> Result<Self, ParseError> {
        Self::new(name, Value::Equals(value.trim_matches([' ', '\t']).into()))
    }

    /// Matches a field with one of these values, ignoring surrounding blanks.
    ///
    /// # Errors
    ///
    /// An empty name, or no value.
    pub fn one_of(name: &str, values: &[&str]) -> Result<Self, ParseError> {
        let trimmed = values.iter().map(|value| value.trim_matches([' ', '\t']));
        Self::of_list(name, trimmed)
    }

    /// Matches one of these values exactly, as claims and users are compared.
    ///
    /// # Errors
    ///
    /// An empty name, or no value.
    pub fn exactly_one_of(name: &str, values: &[&str]) -> Result<Self, ParseError> {
        Self::of_list(name, values.iter().copied())
    }

    fn of_list<'v>(name: &str, values: impl Iterator<Item = &'v str>) -> Result<Self, ParseError> {
        let values: Vec<Box<str>> = values.map(Into::into).collect();
        if values.is_empty() {
            return Err(ParseError::new(
                format!("`{}` has no value", name.escape_debug()),
                "write a value, or `{ present: true }` for any",
            ));
        }
        Self::new(name, Value::one_of(values))
    }

    /// Matches a present field with any value.
    ///
    /// # Errors
    ///
    /// An empty name.
    pub fn present(name: &str) -> Result<Self, ParseError> {
        Self::new(name, Value::Present)
    }

    /// Matches a field whose whole value matches the regular expression `regex`.
    ///
    /// # Errors
    ///
    /// An empty name; an expression that does not parse or is too large.
    pub fn regex(name: &str, regex: &str) -> Result<Self, ParseError> {
        Self::new(name, Value::Regex(Pattern::new(regex)?))
    }

    fn new(name: &str, value: Value) -> Result<Self, ParseError> {
        if name.is_empty() {
            return Err(ParseError::new(
                "the name is empty",
                "write the name of the field to look at",
            ));
        }
        Ok(Self { name: name.into(), value })
    }

    /// Returns the name as written.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether it takes any value of a field that is present.
    pub(super) fn takes_any(&self) -> bool {
        matches!(self.value, Value::Present)
    }

    /// Returns whether a field with this value matches.
    pub(super) fn matches(&self, value: &[u8]) -> bool {
        self.value.matches(trimmed(value))
    }

    /// Returns whether this very value matches: blanks around it count.
    pub(super) fn matches_exactly(&self, value: &str) -> bool {
        self.value.matches(value.as_bytes())
    }

    /// Returns the pattern with its name in lower case.
    pub(super) fn without_case(&self) -> Self {
        Self { name: self.name.to_ascii_lowercase().into(), value: self.value.clone() }
    }
}

/// Writes `name`, `name=value`, `name=one|other` or `name~regex`. In a value, `|` is `\|`.
impl fmt::Display for FieldPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Value::Present => f.write_str(&self.name),
            Value::Equals(value) => write!(f, "{}={}", self.name, escaped(value)),
            Value::OneOf(values) => {
                write!(f, "{}", self.name)?;
                values.iter().enumerate().try_for_each(|(index, value)| {
                    let sign = if index == 0 { '=' } else { '|' };
                    write!(f, "{sign}{}", escaped(value))
                })
            }
            Value::Regex(pattern) => write!(f, "{}~{}", self.name, pattern.text()),
        }
    }
}

/// Returns a value so that no `|` in it parts two values.
fn escaped(value: &str) -> Cow<'_, str> {
    if value.contains('|') { value.replace('|', "\\|").into() } else { value.into() }
}

/// Reads a header's name, in any case.
///
/// # Errors
///
/// Characters that no header name has.
pub fn name(text: &str) -> Result<HeaderName, ParseError> {
    HeaderName::from_bytes(text.as_bytes()).map_err(|_| {
        ParseError::new(
            format!("`{}` is not a header name", text.escape_debug()),
            "letters, digits and hyphens, such as `x-tenant`",
        )
    })
}

/// Returns the trimmed values of the lines called `name`, in order.
pub(super) fn values<'a>(headers: Fields<'a>, name: &str) -> impl Iterator<Item = &'a [u8]> {
    headers.get_all(name).map(trimmed)
}

/// Returns `bytes` without the spaces and tabs around them.
pub(super) fn trimmed(bytes: &[u8]) -> &[u8] {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = bytes.iter().position(|byte| !blank(byte)).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(|byte| !blank(byte)).map_or(start, |last| last + 1);
    &bytes[start..end]
}

/// Returns the decoded values of the parameters called `name`, in order; empty without `=`.
pub(super) fn query_values<'a>(
    query: &'a str,
    name: &'a str,
) -> impl Iterator<Item = Decoded> + 'a {
    raw_values(query.split('&'), name).map(|value| form_decoded(value).collect())
}

/// Returns whether servers may read the parameter `name` differently, because some take `;` for a
/// separator.
pub(super) fn is_ambiguous_query(query: &str, name: &str) -> bool {
    // Most queries have none and are read once.
    if !query.as_bytes().contains(&b';') {
        return false;
    }
    let mut apart = raw_values(query.split(['&', ';']), name);
    let together = raw_values(query.split('&'), name).next();
    apart.next() != together || apart.next().is_some()
}

fn raw_values<'a>(
    parameters: impl Iterator<Item = &'a str>,
    name: &'a str,
) -> impl Iterator<Item = &'a str> {
    parameters.filter_map(move |parameter| {
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        form_decoded(key).eq(name.bytes()).then_some(value)
    })
}

fn form_decoded(text: &str) -> impl Iterator<Item = u8> {
    // Plus signs are found before decoding, because an escaped one (`%2B`) stays a plus.
    text.split_inclusive('+').flat_map(|piece| {
        let (plain, space) = match piece.strip_suffix('+') {
            Some(plain) => (plain, Some(b' ')),
            None => (piece, None),
        };
        decoded(plain.as_bytes()).chain(space)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_around_a_value_count_for_nothing() {
        for (value, expected) in
            [("b", true), (" b", true), ("\tb \t", true), ("", false), ("b b", false), ("B", false)]
        {
            assert_eq!(
                FieldPattern::equals("x", " b\t").unwrap().matches(value.as_bytes()),
                expected,
                "{value:?}"
            );
        }
        assert_eq!(trimmed(b" \t "), b"");
    }

    #[test]
    fn a_list_matches_each_of_its_values_and_its_order_makes_no_difference() {
        let list = FieldPattern::one_of("x", &["silver", " gold ", "silver", "a|b"]).unwrap();
        for (value, expected) in [
            ("gold", true),
            (" silver\t", true),
            ("a|b", true),
            ("a", false),
            ("gold|silver", false),
            ("", false),
        ] {
            assert_eq!(list.matches(value.as_bytes()), expected, "{value}");
        }
        assert_eq!(list, FieldPattern::one_of("x", &["a|b", "gold", "silver"]).unwrap());
        assert_eq!(list.to_string(), "x=a\\|b|gold|silver");
        assert_eq!(FieldPattern::one_of("x", &["a"]), FieldPattern::equals("x", "a"));
        assert!(FieldPattern::one_of("x", &[]).is_err());
        let exact = FieldPattern::exactly_one_of("x", &["ann", "bob "]).unwrap();
        let matches = |value| exact.matches_exactly(value);
        assert_eq!(["ann", "ann ", "bob", "bob "].map(matches), [true, false, false, true]);
    }

    #[test]
    fn the_kinds_of_pattern_differ_in_what_they_admit() {
        let present = FieldPattern::present("x").unwrap();
        let regex = FieldPattern::regex("x", "v[0-9]+").unwrap();
        let empty = FieldPattern::equals("x", "").unwrap();
        for (value, expected) in [
            ("", (true, false, true)),
            ("v12", (true, true, false)),
            ("v12x", (true, false, false)),
        ] {
            let value = value.as_bytes();
            assert_eq!(
                (present.matches(value), regex.matches(value), empty.matches(value)),
                expected
            );
        }
    }

    #[test]
    fn an_empty_name_is_rejected() {
        assert!(FieldPattern::present("").is_err());
        assert!(name("").is_err());
        assert!(name("a b").is_err());
        assert_eq!(name("X-Tenant").unwrap(), "x-tenant");
    }
}

#[cfg(test)]
mod query_tests {
    #[test]
    fn every_occurrence_counts_and_is_decoded() {
        for (query, name, expected) in [
            ("a=1", "a", &["1"][..]),
            ("b=2&a=1", "a", &["1"]),
            ("a=1&a=2", "a", &["1", "2"]),
            ("a=1&%61=2&a", "a", &["1", "2", ""]),
            ("%61=1", "a", &["1"]),
            ("a=x%20y", "a", &["x y"]),
            ("a=x+y", "a", &["x y"]),
            ("a=x%2By", "a", &["x+y"]),
            ("a+b=1&a%20b=2", "a b", &["1", "2"]),
            ("a=1=2", "a", &["1=2"]),
            ("a=1;a=2", "a", &["1;a=2"]),
            ("a", "a", &[""]),
            ("a=", "a", &[""]),
            ("A=1", "a", &[]),
            ("", "a", &[]),
            ("&&", "a", &[]),
            ("aa=1", "a", &[]),
        ] {
            let found: Vec<_> = super::query_values(query, name).collect();
            let expected: Vec<_> = expected.iter().map(|value| value.as_bytes()).collect();
            assert!(found.iter().map(|value| &value[..]).eq(expected), "{name} in {query}");
        }
    }

    #[test]
    fn a_value_is_ambiguous_if_a_semicolon_may_end_it_or_begin_another() {
        for (query, expected) in [
            ("a=1", false),
            ("a=1&b=2;c", false),
            ("b=;&a=1", false),
            ("a=1%3Bb", false),
            ("a=1;b", true),
            ("a=1;a=2", true),
            ("b=2;a=1", true),
            ("b=2;a=1&a=1", true),
            ("b=2;%61=1&a=2", true),
            ("a;b=1", true),
            (";", false),
        ] {
            assert_eq!(super::is_ambiguous_query(query, "a"), expected, "{query}");
        }
    }
}

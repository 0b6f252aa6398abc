//! Path patterns.

use super::{ParseError, literal_path, path_meant::meant_path, pattern::Pattern};
use core::fmt;

/// The longest pattern, in bytes.
const MAX_LENGTH: usize = 4096;

/// The most segments of a pattern. The search descends one call per segment.
const MAX_SEGMENTS: usize = 128;

/// A pattern of paths. Patterns and requests are compared case-sensitively in the form of
/// [`normal_path`](super::normal_path); in a pattern `%2F` is part of its segment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum PathPattern {
    /// Every path. A prefix of `/` is the same.
    #[default]
    Any,
    /// This path.
    Exact(Segments),
    /// This path with any non-empty segment in place of each `{parameter}`.
    Template(Segments),
    /// This path and all below it, by whole segments.
    Prefix(Segments),
    /// Paths that a regular expression matches.
    Regex(PathRegex),
}

/// A configured path in segments.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Segments(Box<[Segment]>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Segment {
    Literal(Box<str>),
    /// Two templates that differ only in names are equal.
    Parameter(Name),
}

/// A parameter's name, which is only shown.
#[derive(Clone, Debug)]
pub(super) struct Name(Box<str>);

impl PartialEq for Name {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Name {}

impl core::hash::Hash for Name {
    fn hash<H: core::hash::Hasher>(&self, _: &mut H) {}
}

/// A regular expression over a whole path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PathRegex(Pattern);

impl PathPattern {
    /// Reads an exact path, or a template if it has `{parameter}` segments: `/orders/{id}/items`. A
    /// trailing slash is significant.
    ///
    /// # Errors
    ///
    /// No leading `/`; characters that no path has; a `*` segment; braces around part of a segment.
    pub fn exact(text: &str) -> Result<Self, ParseError> {
        let segments = read(text)?;
        let literal = segments.iter().all(|segment| matches!(segment, Segment::Literal(_)));
        let segments = Segments(segments.into());
        Ok(if literal { Self::Exact(segments) } else { Self::Template(segments) })
    }

    /// Reads a prefix: `/api` and `/api/` match `/api`, `/api/` and `/api/x`, not `/apix`. `/`
    /// matches every path.
    ///
    /// # Errors
    ///
    /// Those of [`Self::exact`], and any `{parameter}`.
    pub fn prefix(text: &str) -> Result<Self, ParseError> {
        let mut segments = read(text)?;
        if segments.iter().any(|segment| matches!(segment, Segment::Parameter(_))) {
            return Err(ParseError::new(
                "a prefix cannot have a `{parameter}`",
                "match the whole path, or use a regular expression",
            ));
        }
        segments.pop_if(|last| matches!(last, Segment::Literal(text) if text.is_empty()));
        Ok(if segments.is_empty() { Self::Any } else { Self::Prefix(Segments(segments.into())) })
    }

    /// Reads a regular expression that must match the whole path.
    ///
    /// # Errors
    ///
    /// An expression that does not parse or is too large.
    pub fn regex(text: &str) -> Result<Self, ParseError> {
        Pattern::new(text).map(|pattern| Self::Regex(PathRegex(pattern)))
    }
}

impl Segments {
    pub(super) fn as_slice(&self) -> &[Segment] {
        &self.0
    }

    /// Returns how many segments are literal.
    pub(super) fn literals(&self) -> usize {
        self.0.iter().filter(|segment| matches!(segment, Segment::Literal(_))).count()
    }
}

impl PathRegex {
    pub(super) fn pattern(&self) -> &Pattern {
        &self.0
    }
}

/// Reads a path into segments, one or more.
fn read(text: &str) -> Result<Vec<Segment>, ParseError> {
    read_path(text).map_err(|error| match meant_path(text) {
        Some(meant) => ParseError { help: format!("write `{meant}`"), ..error },
        None => error,
    })
}

fn read_path(text: &str) -> Result<Vec<Segment>, ParseError> {
    let Some(rest) = text.strip_prefix('/') else {
        return Err(ParseError::new(
            format!("the path `{}` does not begin with `/`", text.escape_debug()),
            format!("write `/{}`", text.escape_debug()),
        ));
    };
    if text.len() > MAX_LENGTH || rest.split('/').count() > MAX_SEGMENTS {
        return Err(ParseError::new(
            format!("the path is longer than {MAX_LENGTH} bytes or {MAX_SEGMENTS} segments"),
            "match a shorter prefix",
        ));
    }
    if rest.contains("//") || rest.starts_with('/') {
        return Err(ParseError::new(
            "the path has an empty segment",
            "write single slashes; a request's double slashes count as one",
        ));
    }
    rest.split('/').map(read_segment).collect()
}

fn read_segment(text: &str) -> Result<Segment, ParseError> {
    let shown = text.escape_debug();
    if let Some(odd) =
        text.chars().find(|c| c.is_whitespace() || c.is_control() || matches!(c, '?' | '#'))
    {
        return Err(ParseError::new(
            format!("the path has the character {odd:?}"),
            "a path ends before `?`, which `query` matches; write other characters as escapes, a space as `%20`",
        ));
    }
    if text == "." {
        return Err(ParseError::new(
            "the path has the segment `.`",
            "leave it out: requests are matched without it",
        ));
    }
    if text.contains('*') && !text.contains(['{', '}']) {
        return Err(ParseError::new(
            format!("`{shown}` is not a pattern of paths"),
            "use a prefix for all below a path, `{name}` for one segment, `%2A` for a star",
        ));
    }
    if !text.contains(['{', '}']) {
        return Ok(Segment::Literal(literal_path(text).into()));
    }
    let name = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let is_word = |name: &&str| {
        !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
    };
    match name.filter(is_word) {
        Some(name) => Ok(Segment::Parameter(Name(name.into()))),
        None => Err(ParseError::new(
            format!("`{shown}` is not a parameter"),
            "a parameter is a whole segment with a name, `{id}`; for a part of a segment use a regular expression",
        )),
    }
}

/// Writes `/exact/{template}`, `/prefix/*`, `/*` for any, `~regex`.
impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("/*"),
            Self::Exact(segments) | Self::Template(segments) => segments.fmt(f),
            Self::Prefix(segments) => write!(f, "{segments}/*"),
            Self::Regex(regex) => write!(f, "~{}", regex.0.text()),
        }
    }
}

impl fmt::Display for Segments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|segment| match segment {
            Segment::Literal(text) => write!(f, "/{text}"),
            Segment::Parameter(name) => write!(f, "/{{{}}}", name.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_shown_as_they_are_understood() {
        for (pattern, expected) in [
            (PathPattern::exact("/"), "/"),
            (PathPattern::exact("/a/"), "/a/"),
            (PathPattern::exact("/a/{id}/b"), "/a/{id}/b"),
            (PathPattern::exact("/caf%c3%a9"), "/caf%C3%A9"),
            (PathPattern::prefix("/"), "/*"),
            (PathPattern::prefix("/api"), "/api/*"),
            (PathPattern::prefix("/api/"), "/api/*"),
            (PathPattern::regex("/v[0-9]+"), "~/v[0-9]+"),
        ] {
            assert_eq!(pattern.unwrap().to_string(), expected);
        }
        assert_eq!(PathPattern::prefix("/"), Ok(PathPattern::Any));
        assert_eq!(PathPattern::exact("/{a}"), PathPattern::exact("/{b}"));
    }

    #[test]
    fn patterns_that_cannot_be_meant_are_rejected_in_words() {
        for (pattern, word) in [
            (PathPattern::exact("a"), "write `/a`"),
            (PathPattern::exact(""), "begin with"),
            (PathPattern::exact("/a?b=c"), "query"),
            (PathPattern::exact("/a b"), "%20"),
            (PathPattern::exact("/a/*"), "prefix"),
            (PathPattern::exact("/a//b"), "single slashes"),
            (PathPattern::exact("/./b"), "leave it out"),
            (PathPattern::exact("//"), "single slashes"),
            (PathPattern::exact("/img-{id}.png"), "whole segment"),
            (PathPattern::exact("/{}"), "whole segment"),
            (PathPattern::exact("/{*rest}"), "whole segment"),
            (PathPattern::exact("/{a}{b}"), "whole segment"),
            (PathPattern::prefix("/a/{id}"), "parameter"),
            (PathPattern::exact(&"/a".repeat(200)), "longer"),
            (PathPattern::regex("("), "not a regular expression"),
        ] {
            let invalid = pattern.unwrap_err();
            assert!(
                format!("{} {}", invalid.message, invalid.help).contains(word),
                "{word}: {invalid:?}"
            );
        }
    }
}

//! Paths: the one form in which routing sees them, what makes one dangerous, and
//! patterns over them.

use super::{
    Invalid,
    escape::{decoded, escaped},
    pattern::Pattern,
};
use core::{fmt, fmt::Write as _};
use std::borrow::Cow;

/// The longest pattern, in bytes.
const MAX_LENGTH: usize = 4096;

/// The most segments of a pattern. The search descends one call per segment.
const MAX_SEGMENTS: usize = 128;

/// Returns the form of `path` that routes and keys are chosen by, so that no two
/// spellings of one path fall under different rules: escapes of printable ASCII are
/// decoded, but for `%2F` and `%25`; all other escapes are in upper case; bytes that
/// a path cannot hold are escaped; slashes in a row are one.
///
/// A path without escapes and double slashes is its own form and is not allocated.
pub fn normal_path(path: &str) -> Cow<'_, str> {
    let bytes = path.as_bytes();
    // Counted rather than looked for: without an early exit these become vector
    // instructions.
    let odd = bytes.iter().filter(|byte| !is_plain(**byte)).count();
    let doubled = bytes.windows(2).filter(|pair| pair == b"//").count();
    if odd + doubled == 0 {
        return Cow::Borrowed(path);
    }
    let mut normal = String::with_capacity(path.len() + 8);
    let mut rest = bytes;
    while let Some(first) = rest.first() {
        let (byte, length) = escaped(rest).map_or((*first, 1), |byte| (byte, 3));
        let kept =
            if length == 1 { byte.is_ascii_graphic() } else { is_plain(byte) && byte != b'/' };
        if !kept {
            // Writing to a String does not fail.
            let _ = write!(normal, "%{byte:02X}");
        } else if !(byte == b'/' && normal.ends_with('/')) {
            normal.push(char::from(byte));
        }
        rest = &rest[length..];
    }
    Cow::Owned(normal)
}

/// Returns whether `byte` stands for itself wherever it is met.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b'%'
}

/// Returns why different servers may understand different things by `path`, or
/// `None` if its meaning is plain: an encoded slash, a backslash, a control
/// character, and the dot segments `.` and `..`, encoded or beside a `;` too.
pub fn dangerous_path(path: &str) -> Option<&'static str> {
    let bytes = path.as_bytes();
    let is_odd = |byte: &&u8| matches!(**byte, b'%' | b'\\') || byte.is_ascii_control();
    let leads = |pair: &&[u8]| matches!(pair, [b'/' | b';', b'.']);
    if bytes.iter().filter(is_odd).count() + bytes.windows(2).filter(leads).count() == 0
        && !path.starts_with('.')
    {
        return None;
    }
    let mut rest = bytes;
    while let Some(first) = rest.first() {
        let escape = escaped(rest);
        match escape.unwrap_or(*first) {
            b'/' if escape.is_some() => return Some("an encoded slash"),
            b'\\' => return Some("a backslash"),
            0 => return Some("a zero byte"),
            byte if byte.is_ascii_control() => return Some("a control character"),
            _ => {}
        }
        rest = &rest[if escape.is_some() { 3 } else { 1 }..];
    }
    path.split('/').any(has_dot_segment).then_some("a dot segment")
}

/// Returns whether `segment`, or a part of it between semicolons (which some servers
/// cut off as parameters), is `.` or `..`.
fn has_dot_segment(segment: &str) -> bool {
    let (mut dots, mut length) = (0, 0);
    for byte in decoded(segment.as_bytes()).chain([b';']) {
        if byte != b';' {
            dots += usize::from(byte == b'.');
            length += 1;
            continue;
        }
        if dots == length && (1..=2).contains(&length) {
            return true;
        }
        (dots, length) = (0, 0);
    }
    false
}

/// Paths that a route serves. Patterns and requests are compared in the form of
/// [`normal_path`]; letters have case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum PathPattern {
    /// Every path. A prefix of `/` is the same.
    #[default]
    Any,
    /// This path.
    Exact(Segments),
    /// This path with any one non-empty segment in each place of a `{parameter}`.
    Template(Segments),
    /// This path and all below it, by whole segments.
    Prefix(Segments),
    /// Paths that a regular expression matches.
    Regex(PathRegex),
}

/// A path that was read from the configuration, cut at its slashes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Segments(Box<[Segment]>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Segment {
    Literal(Box<str>),
    /// Whatever its name: two templates that differ only in names are the same.
    Parameter(Name),
}

/// A parameter's name, which is for people only.
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
    /// Reads an exact path, or a template if it has `{parameter}` segments:
    /// `/orders/{id}/items`. A trailing slash makes another path.
    ///
    /// # Errors
    ///
    /// A path that does not begin with `/`; characters that no path has; a `*`
    /// segment; braces around less than a segment.
    pub fn exact(text: &str) -> Result<Self, Invalid> {
        let segments = read(text)?;
        let literal = segments.iter().all(|segment| matches!(segment, Segment::Literal(_)));
        let segments = Segments(segments.into());
        Ok(if literal { Self::Exact(segments) } else { Self::Template(segments) })
    }

    /// Reads a prefix: `/api` and `/api/` both match `/api`, `/api/` and `/api/x`,
    /// not `/apix`. `/` matches every path.
    ///
    /// # Errors
    ///
    /// As [`Self::exact`], and any `{parameter}`.
    pub fn prefix(text: &str) -> Result<Self, Invalid> {
        let mut segments = read(text)?;
        if segments.iter().any(|segment| matches!(segment, Segment::Parameter(_))) {
            return Err(Invalid::new(
                "a prefix holds no `{parameter}`",
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
    pub fn regex(text: &str) -> Result<Self, Invalid> {
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

/// Reads a path that begins with a slash into its segments, at least one.
fn read(text: &str) -> Result<Vec<Segment>, Invalid> {
    let Some(rest) = text.strip_prefix('/') else {
        return Err(Invalid::new(
            format!("the path `{}` does not begin with `/`", text.escape_debug()),
            format!("write `/{}`", text.escape_debug()),
        ));
    };
    if text.len() > MAX_LENGTH || rest.split('/').count() > MAX_SEGMENTS {
        return Err(Invalid::new(
            format!("the path is longer than {MAX_LENGTH} bytes or {MAX_SEGMENTS} segments"),
            "match a shorter prefix",
        ));
    }
    if rest.contains("//") || rest.starts_with('/') {
        return Err(Invalid::new(
            "the path has an empty segment",
            "write single slashes; a request's double slashes count as one",
        ));
    }
    rest.split('/').map(read_segment).collect()
}

fn read_segment(text: &str) -> Result<Segment, Invalid> {
    let shown = text.escape_debug();
    if let Some(odd) =
        text.chars().find(|c| c.is_whitespace() || c.is_control() || matches!(c, '?' | '#'))
    {
        return Err(Invalid::new(
            format!("the path has the character {odd:?}"),
            "a path ends before `?`, which `query` matches; write other characters as escapes, a space as `%20`",
        ));
    }
    if matches!(text, "*" | "**") {
        return Err(Invalid::new(
            format!("`{shown}` is not a pattern"),
            "use a prefix for all below a path, `{name}` for one segment, `%2A` for a star",
        ));
    }
    if !text.contains(['{', '}']) {
        return Ok(Segment::Literal(normal_path(text).into()));
    }
    let name = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let is_word = |name: &&str| {
        !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
    };
    match name.filter(is_word) {
        Some(name) => Ok(Segment::Parameter(Name(name.into()))),
        None => Err(Invalid::new(
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
    fn every_spelling_of_a_path_has_one_form() {
        for (path, expected) in [
            ("/a/b-c_d.e~f", "/a/b-c_d.e~f"),
            ("/%61dmin", "/admin"),
            ("/a%2fb", "/a%2Fb"),
            ("/a%2541", "/a%2541"),
            ("/caf%c3%a9", "/caf%C3%A9"),
            ("/café", "/caf%C3%A9"),
            ("/a b", "/a%20b"),
            ("/a%20b", "/a%20b"),
            ("/a%00", "/a%00"),
            ("//a///b//", "/a/b/"),
            ("/100%", "/100%"),
            ("/%zz", "/%zz"),
            ("/%7Bid%7D", "/{id}"),
            ("*", "*"),
            ("", ""),
        ] {
            assert_eq!(normal_path(path), expected, "{path}");
            assert_eq!(normal_path(expected), expected, "the form of {path} is its own form");
        }
    }

    #[test]
    fn a_usual_path_is_not_copied() {
        assert!(matches!(normal_path("/a/b;c=1,2/x@y:z"), Cow::Borrowed(_)));
    }

    #[test]
    fn paths_that_servers_read_differently_are_dangerous() {
        for (path, expected) in [
            ("/", None),
            ("/a/b.c/..d/e../...", None),
            ("/a;b=1.2/c", None),
            ("/.well-known/x", None),
            ("/a%20b%3Bc", None),
            ("/100%", None),
            ("/a%252fb", None),
            ("/caf%C3%A9", None),
            ("/a%2fb", Some("an encoded slash")),
            ("/a%2Fb", Some("an encoded slash")),
            ("/a%5cb", Some("a backslash")),
            ("/a\\b", Some("a backslash")),
            ("/a%00", Some("a zero byte")),
            ("/a%0d%0a", Some("a control character")),
            ("/a%7f", Some("a control character")),
            ("/a\tb", Some("a control character")),
            ("/a/..", Some("a dot segment")),
            ("/a/../b", Some("a dot segment")),
            ("/./a", Some("a dot segment")),
            ("/a/%2e%2E/b", Some("a dot segment")),
            ("/a/.%2e", Some("a dot segment")),
            ("/a/..;/b", Some("a dot segment")),
            ("/a/..;x=1/b", Some("a dot segment")),
            ("/a/..%3bx/b", Some("a dot segment")),
            ("/a/;../b", Some("a dot segment")),
            ("..", Some("a dot segment")),
        ] {
            assert_eq!(dangerous_path(path), expected, "{path}");
        }
    }

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
    fn patterns_that_cannot_be_meant_are_refused_in_words() {
        for (pattern, word) in [
            (PathPattern::exact("a"), "write `/a`"),
            (PathPattern::exact(""), "begin with"),
            (PathPattern::exact("/a?b=c"), "query"),
            (PathPattern::exact("/a b"), "%20"),
            (PathPattern::exact("/a/*"), "prefix"),
            (PathPattern::exact("/a//b"), "single slashes"),
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

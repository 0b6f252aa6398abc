//! Anchored regular expressions, and their groups.

use super::{ParseError, PathPattern, literal_path, normal_path};
use core::{
    fmt,
    hash::{Hash, Hasher},
};
use regex::bytes::{CaptureLocations, Regex, RegexBuilder};
use std::borrow::Cow;

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

/// The regular expressions of a route's paths, in the order of the file. A redirect writes their
/// groups: `$1` in `/new/$1`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathGroups(Box<[Pattern]>);

/// A group that every expression of a route has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathGroup {
    /// `1` for `$1`, `page` for `$page`.
    pub name: Box<str>,
    /// Its index in each expression.
    indexes: Box<[usize]>,
}

/// The groups of an expression in a path.
#[derive(Debug)]
pub struct FoundGroups<'p> {
    path: Cow<'p, str>,
    expression: usize,
    locations: CaptureLocations,
}

impl PathGroups {
    /// Takes the regular expressions of `paths`.
    pub fn of(paths: &[PathPattern]) -> Self {
        let patterns = paths.iter().filter_map(|path| match path {
            PathPattern::Regex(regex) => Some(regex.pattern().clone()),
            PathPattern::Any
            | PathPattern::Exact(_)
            | PathPattern::Template(_)
            | PathPattern::Prefix(_) => None,
        });
        Self(patterns.collect())
    }

    /// Returns whether there is no expression.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the group with this number or name.
    ///
    /// # Errors
    ///
    /// The first expression that lacks it.
    pub fn group(&self, name: &str) -> Result<PathGroup, &str> {
        let index = |pattern: &Pattern| pattern.group(name);
        let lacks = |pattern: &&Pattern| index(pattern).is_none();
        if let Some(pattern) = self.0.iter().find(lacks) {
            return Err(pattern.text());
        }
        Ok(PathGroup { name: name.into(), indexes: self.0.iter().filter_map(index).collect() })
    }

    /// Finds the groups of the first expression that matches `path`, which is as the client wrote it.
    ///
    /// Routes compare other spellings of a path than clients write. The groups keep the client's
    /// spelling if the expression also matches that.
    pub fn find<'p>(&self, path: &'p str) -> Option<FoundGroups<'p>> {
        [literal_path(path), normal_path(path)].into_iter().find_map(|routed| {
            let is_match = |pattern: &Pattern| pattern.is_match(routed.as_bytes());
            let expression = self.0.iter().position(is_match)?;
            let pattern = self.0.get(expression)?;
            let groups = |path: Cow<'p, str>| {
                let locations = pattern.locate(path.as_bytes())?;
                Some(FoundGroups { path, expression, locations })
            };
            groups(Cow::Borrowed(path)).or_else(|| groups(routed.clone()))
        })
    }
}

impl FoundGroups<'_> {
    /// Returns the text of a group; it is empty if the group took no part in the match.
    pub fn get(&self, group: &PathGroup) -> &[u8] {
        let index = group.indexes.get(self.expression);
        let range = index.and_then(|index| self.locations.get(*index));
        range.and_then(|(start, end)| self.path.as_bytes().get(start..end)).unwrap_or_default()
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

#[cfg(test)]
mod groups_tests {
    use super::*;

    fn groups(expressions: &[&str]) -> PathGroups {
        let patterns = expressions.iter().map(|text| PathPattern::regex(text).unwrap());
        PathGroups::of(&patterns.collect::<Vec<_>>())
    }

    #[test]
    fn groups_are_those_of_the_first_expression_that_matches() {
        let all = ["/old/(.*)", "/(de|en)(/x)?/(?P<page>[^/]*)", "/(a)|/(b)"];
        for (expressions, path, name, expected) in [
            (&all[..1], "/old/a/b", "1", "a/b"),
            (&all[..1], "/old/a/b", "0", "/old/a/b"),
            (&all[..1], "/old/", "1", ""),
            (&["/old/(.*)", "/(.*)"], "/new", "1", "new"),
            (&["/old/(.*)", "/(.*)"], "/old/x", "1", "x"),
            // Groups that take no part.
            (&all[1..2], "/de/home", "2", ""),
            (&all[1..2], "/de/home", "page", "home"),
            (&all[1..2], "/en/x/home", "3", "home"),
            (&all[2..], "/b", "1", ""),
            (&all[2..], "/b", "2", "b"),
            // The client's spelling, as far as the expression matches it.
            (&all[..1], "/old/%41%2fb%20//c", "1", "%41%2fb%20//c"),
            (&all[..1], "/%6fld/%41%2fb", "1", "A%2Fb"),
            (&all[..1], "//old/./%41", "1", "A"),
        ] {
            let groups = groups(expressions);
            let found = groups.find(path).expect("it matches");
            let text = found.get(&groups.group(name).expect("a group"));
            assert_eq!(str::from_utf8(text), Ok(expected), "{expressions:?} {path} {name}");
        }
    }

    #[test]
    fn every_expression_must_have_a_group() {
        let groups = groups(&["/a/(.*)", "/b/(?P<x>.*)/(.*)"]);
        assert_eq!(groups.group("1").map(|group| group.name), Ok("1".into()));
        assert_eq!(groups.group("2"), Err("/a/(.*)"));
        assert_eq!(groups.group("x"), Err("/a/(.*)"));
        assert_eq!(groups.group("99999999999999999999"), Err("/a/(.*)"));
        assert!(PathGroups::of(&[PathPattern::Any]).is_empty());
        assert!(groups.find("/c").is_none());
    }
}

//! The path that an upstream is asked for in place of a request's.

use super::{
    ParseError, PathPattern, dangerous_path, literal_path,
    path::{Segment, Segments},
    pattern::compile,
    sent_path,
};
use core::fmt;
use http::HeaderValue;
use regex::bytes::{Captures, Regex};

/// The longest path, in bytes, that a rewrite may make: what `http::Uri` takes.
const MAX_PATH: usize = 65_534;

/// The most parts of a replacement.
const MAX_PARTS: usize = 64;

/// Changes to what an upstream is asked for. The default changes nothing.
#[derive(Clone, Debug, Default)]
pub struct Rewrite {
    /// A prefix to remove, by segments.
    strip: PathPattern,
    regex: Option<Regex>,
    by: Box<[Part]>,
    /// Without a slash at its end.
    add: Box<str>,
    /// The rewrite as the file has it.
    pub words: Box<str>,
    /// The `Host` to send.
    pub host: Option<HeaderValue>,
}

/// A part of what a match is replaced by.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Box<str>),
    Group(usize),
}

impl PartialEq for Rewrite {
    fn eq(&self, other: &Self) -> bool {
        let text = |rewrite: &Self| rewrite.regex.as_ref().map(|regex| regex.as_str().to_owned());
        self.strip == other.strip
            && text(self) == text(other)
            && self.by == other.by
            && self.add == other.add
            && self.host == other.host
    }
}

impl Eq for Rewrite {}

impl Rewrite {
    /// Removes a prefix, by whole segments.
    ///
    /// # Errors
    ///
    /// Those of [`PathPattern::literal_prefix`].
    pub fn strip(&mut self, prefix: &str) -> Result<(), ParseError> {
        self.strip = PathPattern::literal_prefix(prefix)?;
        Ok(())
    }

    /// Writes a prefix.
    ///
    /// # Errors
    ///
    /// Those of [`PathPattern::literal_prefix`], and characters that a request's target cannot have.
    pub fn add(&mut self, prefix: &str) -> Result<(), ParseError> {
        PathPattern::literal_prefix(prefix)?;
        check(prefix, &['?', '#', '\\'])?;
        self.add = prefix.trim_end_matches('/').into();
        Ok(())
    }

    /// Replaces the matches of a regular expression, by nothing.
    ///
    /// # Errors
    ///
    /// An expression that does not parse or is too large.
    pub fn replace(&mut self, regex: &str) -> Result<(), ParseError> {
        self.regex = Some(compile(regex)?);
        Ok(())
    }

    /// Replaces them by this: `$1` and `$name` are groups of the expression, `$$` is a `$`. A `?`
    /// begins a query.
    ///
    /// # Errors
    ///
    /// A group that the expression does not have, or characters that a path cannot have.
    pub fn by(&mut self, text: &str) -> Result<(), ParseError> {
        check(text, &['#', '\\'])?;

        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            parts.push(Part::Text(before.into()));
            if let Some(after) = after.strip_prefix('$') {
                parts.push(Part::Text("$".into()));
                rest = after;
                continue;
            }

            let is_number = after.starts_with(|c: char| c.is_ascii_digit());
            let fits = |c: char| {
                c.is_ascii_digit() || (!is_number && (c.is_ascii_alphabetic() || c == '_'))
            };
            let (name, after) = after.split_at(after.find(|c| !fits(c)).unwrap_or(after.len()));
            parts.push(Part::Group(self.group(name)?));
            rest = after;
        }

        parts.push(Part::Text(rest.into()));
        parts.retain(|part| !matches!(part, Part::Text(text) if text.is_empty()));

        if parts.len() > MAX_PARTS {
            let message = format!("the replacement has more than {MAX_PARTS} parts");
            return Err(ParseError::new(message, "write a shorter one"));
        }

        self.by = parts.into();
        Ok(())
    }

    fn group(&self, name: &str) -> Result<usize, ParseError> {
        let mut names = self.regex.iter().flat_map(Regex::capture_names).enumerate();
        let found = match name.parse::<usize>() {
            Ok(number) => names.nth(number).map(|(at, _)| at),
            Err(_) => names.find(|(_, known)| *known == Some(name)).map(|(at, _)| at),
        };
        found.ok_or_else(|| {
            let shown = name.escape_debug();
            let message = format!("the expression has no group `{shown}`");
            ParseError::new(message, "write `$1` for the first group, or `$$` for a dollar sign")
        })
    }

    /// Returns whether it changes paths.
    pub fn changes_path(&self) -> bool {
        self.strip != PathPattern::Any || self.regex.is_some() || !self.add.is_empty()
    }

    /// Returns what is sent in place of `path`, which begins with `/`. It has no segments `.`. A query
    /// behind it comes before the request's own.
    ///
    /// # Errors
    ///
    /// Why servers may read the result differently, unless `is_relaxed`, or that it is too long.
    pub fn path(&self, path: &str, is_relaxed: bool) -> Result<String, &'static str> {
        let path = self.prefix().and_then(|prefix| strip(path, prefix.as_slice())).unwrap_or(path);
        let replaced = match &self.regex {
            Some(regex) => self.replaced(regex, path)?,
            None => None,
        };
        let target = replaced.as_deref().unwrap_or(path);
        let (path, query) = target.split_at(target.find('?').unwrap_or(target.len()));
        let slash = if path.starts_with('/') { "" } else { "/" };
        let path = [&*self.add, slash, path].concat();
        let path = sent_path(&path).unwrap_or(path);
        if path.len() + query.len() > MAX_PATH {
            return Err(TOO_LONG);
        }
        match dangerous_path(&path).filter(|_| !is_relaxed) {
            Some(why) => Err(why),
            None => Ok(path + query),
        }
    }

    fn prefix(&self) -> Option<&Segments> {
        if let PathPattern::Prefix(prefix) = &self.strip { Some(prefix) } else { None }
    }

    fn replaced(&self, regex: &Regex, path: &str) -> Result<Option<String>, &'static str> {
        let mut made = Vec::new();
        let mut end = 0;
        let mut is_match = false;
        for groups in regex.captures_iter(path.as_bytes()) {
            let Some(whole) = groups.get(0) else { continue };
            made.extend_from_slice(&path.as_bytes()[end..whole.start()]);
            end = whole.end();
            is_match = true;
            self.by.iter().for_each(|part| made.extend_from_slice(part.of(&groups)));
            if made.len() > MAX_PATH {
                return Err(TOO_LONG);
            }
        }
        if !is_match {
            return Ok(None);
        }
        made.extend_from_slice(&path.as_bytes()[end..]);
        String::from_utf8(made).map(Some).map_err(|_| "bytes that are not UTF-8")
    }
}

const TOO_LONG: &str = "more bytes than a path may have";

impl Part {
    fn of<'p>(&'p self, groups: &Captures<'p>) -> &'p [u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Group(group) => groups.get(*group).map_or(b"", |found| found.as_bytes()),
        }
    }
}

/// Returns what is left of a path without a prefix, whatever its spelling, or `None` if it begins
/// otherwise.
fn strip<'p>(path: &'p str, prefix: &[Segment]) -> Option<&'p str> {
    let mut rest = path;
    for wanted in prefix {
        let segment = loop {
            let inner = rest.strip_prefix('/')?;
            let length = inner.find('/').unwrap_or(inner.len());
            let segment = literal_path(&inner[..length]);
            rest = &inner[length..];
            // They count for nothing in routes either.
            if !segment.is_empty() && segment != "." {
                break segment;
            }
        };
        if !matches!(wanted, Segment::Literal(wanted) if **wanted == *segment) {
            return None;
        }
    }
    Some(if rest.is_empty() { "/" } else { rest })
}

/// Checks that a target may have the characters of a text. It has none of `others`.
fn check(text: &str, others: &[char]) -> Result<(), ParseError> {
    let odd = text.chars().find(|c| !c.is_ascii_graphic() || others.contains(c));
    match odd {
        None => Ok(()),
        Some(odd) => Err(ParseError::new(
            format!("no path has the character {odd:?}"),
            "write it as an escape, a space as `%20`; the query stays as it is",
        )),
    }
}

/// Writes `strip /api, replace ^/v1 by /v2, add /x, host app.internal`.
impl fmt::Display for Rewrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let strip = self.prefix().map(|prefix| format!("strip {prefix}"));
        let by = || self.by.iter().map(Part::to_string).collect::<String>();
        let replace =
            self.regex.as_ref().map(|regex| format!("replace {} by {}", regex.as_str(), by()));
        let add = (!self.add.is_empty()).then(|| format!("add {}", self.add));
        let host = self.host.as_ref().map(|host| format!("host {}", host.to_str().unwrap_or("?")));
        let words: Vec<_> = [strip, replace, add, host].into_iter().flatten().collect();
        f.write_str(&words.join(", "))
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(&text.replace('$', "$$")),
            Self::Group(group) => write!(f, "${group}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewrite(strip: &str, replace: Option<(&str, &str)>, add: &str) -> Rewrite {
        let mut made = Rewrite::default();
        made.strip(strip).unwrap();
        if let Some((regex, by)) = replace {
            made.replace(regex).unwrap();
            made.by(by).unwrap();
        }
        made.add(add).unwrap();
        made
    }

    #[test]
    fn a_prefix_is_removed_by_segments_in_any_spelling() {
        for (path, expected) in [
            ("/api", "/"),
            ("/api/", "/"),
            ("/api/x/y", "/x/y"),
            ("/apix", "/apix"),
            ("/x/api", "/x/api"),
            ("/", "/"),
            ("/%61pi/%41", "/%41"),
            ("//api//x", "/x"),
            ("/./api/./x", "/x"),
            ("/api/a%20b%2Fc", "/a%20b%2Fc"),
            ("/api%2Fx", "/api%2Fx"),
        ] {
            assert_eq!(
                rewrite("/api", None, "/").path(path, false).as_deref(),
                Ok(expected),
                "{path}"
            );
        }
        assert_eq!(rewrite("/a/b", None, "/").path("/a", false).as_deref(), Ok("/a"));
        assert_eq!(rewrite("/a", None, "/").path("/a//x/b//c", false).as_deref(), Ok("/x/b//c"));
        assert_eq!(rewrite("/a/b/", None, "/").path("/a/b", false).as_deref(), Ok("/"));
    }

    #[test]
    fn matches_are_replaced_and_a_prefix_is_added_at_last() {
        for (regex, by, path, expected) in [
            ("^/u/([0-9]+)$", "/users/$1", "/u/7", "/v/users/7"),
            ("^/u/([0-9]+)$", "/users/$1", "/u/x", "/v/u/x"),
            ("-", "_", "/a-b-c", "/v/a_b_c"),
            ("^/(?<name>[a-z]+)", "/$name$$", "/a/b", "/v/a$/b"),
            ("^/old", "", "/old", "/v/"),
            ("^/(.*)$", "$1", "/x", "/v/x"),
            ("^", "/a", "/x", "/v/a/x"),
            ("z", "y", "/x", "/v/x"),
        ] {
            let made = rewrite("/", Some((regex, by)), "/v/").path(path, false);
            assert_eq!(made.as_deref(), Ok(expected), "{regex} {path}");
        }
        for (by, path, expected) in [
            ("/x?id=$1", "/u/7", "/v/x?id=7"),
            ("/x?id=../$1", "/u/7", "/v/x?id=../7"),
            ("/./x?", "/u/7", "/v/x?"),
        ] {
            let made = rewrite("/", Some(("^/u/(.*)$", by)), "/v").path(path, false);
            assert_eq!(made.as_deref(), Ok(expected), "{by}");
        }
        assert_eq!(
            rewrite("/api", Some(("^/x", "/y")), "/v1").path("/api/x", false).as_deref(),
            Ok("/v1/y")
        );
    }

    #[test]
    fn no_rewrite_makes_a_path_that_servers_read_differently() {
        let joins = rewrite("/", Some(("x", "")), "/");
        assert_eq!(joins.path("/a/.x./b", false), Err("a `..` segment"));
        assert_eq!(joins.path("/a/.x./b", true).as_deref(), Ok("/a/../b"));
        assert_eq!(joins.path("/a/%x2e/b", false).as_deref(), Ok("/a/b"));
        assert_eq!(joins.path("/a%x0d", false), Err("a control character"));
        let grows = rewrite("/", Some(("a", &"$0".repeat(60))), "/");
        assert_eq!(grows.path(&"/a".repeat(2000), false), Err(TOO_LONG));
    }

    #[test]
    fn what_no_path_has_is_rejected() {
        let mut made = Rewrite::default();
        made.replace("(a)(?<b>b)?").unwrap();
        for text in ["$3", "$c", "$", "${b}", "a b", "/x#y", "é", "\\", "a\nb"] {
            assert!(made.by(text).is_err(), "{text}");
        }
        for text in ["", "$0$1$2$b", "$1st", "$$x"] {
            assert!(made.by(text).is_ok(), "{text}");
        }
        for text in ["x", "/a b", "/a?b", "/é", "/{a}"] {
            assert!(made.add(text).is_err(), "{text}");
        }
        assert!(made.replace("(").is_err());
        assert_eq!(made.to_string(), "replace (a)(?<b>b)? by $$x");
    }
}

//! Path patterns.

use super::{ParseError, literal_path, pattern::Pattern};
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
    /// This path and all below it, by whole segments, with any non-empty segment in place of each
    /// `{parameter}`.
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

/// A parameter's name, by which a key may count. It makes no difference to routing.
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
    /// matches every path, and `/orgs/{org}` the paths below `/orgs` that have another segment.
    ///
    /// # Errors
    ///
    /// Those of [`Self::exact`].
    pub fn prefix(text: &str) -> Result<Self, ParseError> {
        let mut segments = read(text)?;
        segments.pop_if(|last| matches!(last, Segment::Literal(text) if text.is_empty()));
        Ok(if segments.is_empty() { Self::Any } else { Self::Prefix(Segments(segments.into())) })
    }

    /// Reads a prefix without templates, which can be written as it is.
    ///
    /// # Errors
    ///
    /// Those of [`Self::prefix`], and any `{parameter}`.
    pub fn literal_prefix(text: &str) -> Result<Self, ParseError> {
        let prefix = Self::prefix(text)?;
        let has_parameter = matches!(
            &prefix,
            Self::Prefix(path) if path.0.iter().any(|part| matches!(part, Segment::Parameter(_)))
        );
        if has_parameter {
            return Err(ParseError::new(
                "this prefix cannot have a `{parameter}`",
                "write each segment as it is, or use a regular expression",
            ));
        }
        Ok(prefix)
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

    /// Returns where a parameter has this name.
    fn position(&self, name: &str) -> Option<usize> {
        self.0
            .iter()
            .position(|segment| matches!(segment, Segment::Parameter(known) if *known.0 == *name))
    }

    /// Returns whether the normal `path` begins with the first `count` segments.
    fn begin(&self, count: usize, path: &str) -> bool {
        let mut rest = segments(path);
        self.0.iter().take(count).all(|segment| {
            rest.next().is_some_and(|text| match segment {
                Segment::Literal(literal) => **literal == *text,
                Segment::Parameter(_) => !text.is_empty(),
            })
        })
    }
}

/// Returns the segments of a normal path, which begins with `/`.
fn segments(path: &str) -> core::str::Split<'_, char> {
    path.strip_prefix('/').unwrap_or(path).split('/')
}

/// The segment of a route's paths that a template names: `org` in `/orgs/{org}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NamedSegment {
    name: Box<str>,
    /// The paths of a route, of which the first that matches a request is the one that routed it.
    /// They end with the last one that has the segment.
    places: Box<[Place]>,
}

/// A path of a route, and where it has the named segment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    path: Segments,
    is_prefix: bool,
    index: Option<usize>,
}

impl Place {
    fn matches(&self, path: &str) -> bool {
        let own = self.path.0.len();
        self.path.begin(own, path) && (self.is_prefix || segments(path).count() == own)
    }
}

impl NamedSegment {
    /// Reads the name of a parameter. No path has the segment until [`Self::of_paths`] says where.
    ///
    /// # Errors
    ///
    /// Characters that no such name has.
    pub(super) fn parse(name: &str) -> Result<Self, ParseError> {
        if !is_parameter_name(name) {
            return Err(ParseError::new(
                format!("`{}` is not the name of a segment", name.escape_debug()),
                "write the name in a template of the route's path: `path:org` for \
                 `path_prefix: '/orgs/{org}'`",
            ));
        }
        Ok(Self { name: name.into(), places: Box::default() })
    }

    /// Returns the segment in the paths of a route.
    pub(super) fn of_paths(&self, paths: &[PathPattern]) -> Self {
        let ranked = super::rank::by_specificity(paths).into_iter();
        let places = ranked.filter_map(|path| {
            let (path, is_prefix) = match path {
                PathPattern::Exact(path) | PathPattern::Template(path) => (path, false),
                PathPattern::Prefix(path) => (path, true),
                // Both come after all that have segments.
                PathPattern::Regex(_) | PathPattern::Any => return None,
            };
            Some(Place { path: path.clone(), is_prefix, index: path.position(&self.name) })
        });
        let mut places: Vec<Place> = places.collect();
        let used = places.iter().rposition(|place| place.index.is_some());
        places.truncate(used.map_or(0, |last| last + 1));
        Self { name: self.name.clone(), places: places.into() }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether some path has the segment.
    pub fn is_known(&self) -> bool {
        !self.places.is_empty()
    }

    /// Returns the segment of a normal path, as it stands there.
    pub(super) fn find<'p>(&self, path: &'p str) -> Option<&'p str> {
        let index = match self.places.iter().find(|place| place.matches(path)) {
            Some(place) => place.index?,
            // An encoded slash, which this route alone takes for text, leads away from its paths.
            None => self
                .places
                .iter()
                .find_map(|place| place.index.filter(|index| place.path.begin(index + 1, path)))?,
        };
        segments(path).nth(index)
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
    match name.filter(|name| is_parameter_name(name)) {
        Some(name) => Ok(Segment::Parameter(Name(name.into()))),
        None => Err(ParseError::new(
            format!("`{shown}` is not a parameter"),
            "a parameter is a whole segment with a name, `{id}`; for a part of a segment use a regular expression",
        )),
    }
}

fn is_parameter_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
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

/// Returns what to write in place of `text`, which is no path, as in `path_prefix: /api` for
/// `/api/*`.
pub(super) fn meant_path(text: &str) -> Option<String> {
    let text = text.trim();
    if let Some(pattern) = text.strip_prefix("(?i)") {
        return Some(regex(pattern, "(?i)"));
    }
    if text.starts_with('^') && !text.starts_with("^~") {
        return Some(regex(text, ""));
    }
    modifier(text).or_else(|| call(text)).or_else(|| stars(text))
}

/// Reads the modifiers of nginx's `location`.
fn modifier(text: &str) -> Option<String> {
    for (sign, flags) in [("~*", "(?i)"), ("~", "")] {
        if let Some(pattern) = text.strip_prefix(sign) {
            return Some(regex(pattern.trim(), flags));
        }
    }
    let is_path = |path: &&str| path.starts_with('/') && !path.contains(char::is_whitespace);
    if let Some(path) = text.strip_prefix("^~").map(str::trim).filter(is_path) {
        return Some(format!("path_prefix: {path}"));
    }
    let path = text.strip_prefix('=').map(str::trim).filter(is_path)?;
    Some(format!("path: {path}"))
}

/// Reads matchers such as Traefik's ``PathPrefix(`/api`)`` and HAProxy's `path_beg /api`.
fn call(text: &str) -> Option<String> {
    let end = text.find(['(', ' '])?;
    let (name, value) = text.split_at(end);
    let value = value.trim_matches(['(', ')', ' ', '`', '"', '\'']);
    let key = match name.to_ascii_lowercase().as_str() {
        "pathprefix" | "path_beg" | "path_dir" => "path_prefix",
        "path" => "path",
        "pathregexp" | "path_reg" => return Some(regex(value, "")),
        _ => return None,
    };
    let is_path = value.starts_with('/') && !value.contains([' ', '`', '(', '*', '{']);
    is_path.then(|| format!("{key}: {value}"))
}

/// Reads paths with stars: `/api/*`, `/api/*/items`, `*.php`.
fn stars(text: &str) -> Option<String> {
    if !text.contains('*') || text.contains(['{', '}', '\\', '(', '[', '$']) {
        return None;
    }
    let whole = format!("/{}", text.trim_start_matches('/'));
    let begin = whole.trim_end_matches('*');
    if !begin.contains('*') && whole != begin {
        // A star at the end stands for all below.
        let prefix = begin.trim_end_matches('/');
        return Some(format!("path_prefix: {}", if prefix.is_empty() { "/" } else { prefix }));
    }
    if whole.split('/').all(|segment| segment == "*" || !segment.contains('*')) {
        return Some(format!("path: '{}'", numbered(&whole)));
    }
    let pattern = whole.replace('.', "[.]").replace("**", "*").replace('*', ".*");
    let begin = if pattern.starts_with("/.*") { &pattern[1..] } else { &pattern };
    Some(format!("path_regex: '{begin}'"))
}

/// Returns a template with a parameter for each segment that is a star.
fn numbered(path: &str) -> String {
    let mut count = 0;
    let segments = path.split('/').map(|segment| {
        if segment != "*" {
            return segment.to_owned();
        }
        count += 1;
        if count == 1 { "{id}".to_owned() } else { format!("{{id{count}}}") }
    });
    segments.collect::<Vec<_>>().join("/")
}

/// Returns a pattern that other gateways search for as one for the whole path.
fn regex(pattern: &str, flags: &str) -> String {
    let pattern = pattern.trim_matches(['"', '\'']);
    let begin = pattern.strip_prefix('^').map_or_else(|| format!(".*{pattern}"), str::to_owned);
    let is_end = begin.ends_with('$') && !begin.ends_with("\\$");
    let whole = if is_end { begin[..begin.len() - 1].to_owned() } else { format!("{begin}.*") };
    let whole = whole.replace(".*.*", ".*").replace('\'', "''");
    format!("path_regex: '{flags}{whole}'")
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
            (PathPattern::prefix("/orgs/{org}"), "/orgs/{org}/*"),
            (PathPattern::prefix("/{org}/"), "/{org}/*"),
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
            (PathPattern::prefix("/a/{i d}"), "character"),
            (PathPattern::literal_prefix("/a/{id}"), "parameter"),
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

#[cfg(test)]
mod path_meant_tests {
    use super::*;

    #[test]
    fn the_paths_of_other_gateways_are_known() {
        for (text, expected) in [
            ("~ ^/api", "path_regex: '/api.*'"),
            ("~ ^/api/v[0-9]+$", "path_regex: '/api/v[0-9]+'"),
            ("~* \\.(jpg|png)$", "path_regex: '(?i).*\\.(jpg|png)'"),
            ("~^/api", "path_regex: '/api.*'"),
            ("^/api/.*", "path_regex: '/api/.*'"),
            ("(?i)^/api$", "path_regex: '(?i)/api'"),
            ("= /health", "path: /health"),
            ("=/health", "path: /health"),
            ("^~ /static", "path_prefix: /static"),
            ("/api/*", "path_prefix: /api"),
            ("/api/**", "path_prefix: /api"),
            ("/api*", "path_prefix: /api"),
            ("/*", "path_prefix: /"),
            ("*", "path_prefix: /"),
            ("api/*", "path_prefix: /api"),
            ("/users/*/items", "path: '/users/{id}/items'"),
            ("/a/*/b/*/c", "path: '/a/{id}/b/{id2}/c'"),
            ("*.php", "path_regex: '.*[.]php'"),
            ("/img/*.png", "path_regex: '/img/.*[.]png'"),
            ("PathPrefix(`/api`)", "path_prefix: /api"),
            ("Path(`/api`)", "path: /api"),
            ("path_beg /api", "path_prefix: /api"),
        ] {
            assert_eq!(meant_path(text).as_deref(), Some(expected), "{text}");
        }
        for text in ["", "/api", "api", "/a b", "/a/{id}", "@named", "=", "^~", "/a/{*rest}"] {
            assert_eq!(meant_path(text), None, "{text}");
        }
    }
}

#[cfg(test)]
mod segment_tests {
    use super::*;
    use crate::route::{literal_path, normal_path};
    use proptest::{collection::vec, prelude::*};

    fn segment(name: &str, paths: &[&str]) -> NamedSegment {
        let pattern = |text: &&str| match text.strip_suffix("/*") {
            Some(prefix) => PathPattern::prefix(prefix).unwrap(),
            None if text.starts_with('~') => PathPattern::regex(&text[1..]).unwrap(),
            None => PathPattern::exact(text).unwrap(),
        };
        let paths: Vec<PathPattern> = paths.iter().map(pattern).collect();
        NamedSegment::parse(name).unwrap().of_paths(&paths)
    }

    #[test]
    fn a_segment_is_found_where_the_path_that_matches_has_it() {
        let paths = ["/orgs/{org}/*", "/v2/{version}/orgs/{org}", "/orgs/health", "~/x/.*"];
        for (path, expected) in [
            ("/orgs/acme", Some("acme")),
            ("/orgs/acme/", Some("acme")),
            ("/orgs/acme/repos/x", Some("acme")),
            ("/orgs/health", None),
            ("/orgs/health/x", Some("health")),
            ("/v2/7/orgs/acme", Some("acme")),
            ("/orgs/", None),
            ("/orgs", None),
            ("/x/orgs", None),
            ("/", None),
            // An encoded slash that this route takes for text, read as a slash.
            ("/v2/7/orgs/acme/b", Some("acme")),
        ] {
            assert_eq!(segment("org", &paths).find(path), expected, "{path}");
        }
        assert_eq!(segment("version", &paths).find("/v2/7/orgs/acme"), Some("7"));
        assert_eq!(segment("version", &paths).find("/orgs/acme"), None);
        assert!(!segment("team", &paths).is_known() && segment("org", &paths).is_known());
    }

    proptest! {
        #[test]
        fn a_segment_is_the_one_at_the_place_of_its_name(
            before in vec("[ab]|\\{x\\}", 0..3),
            after in vec("[ab]", 0..2),
            path in vec("[abc]{1,2}", 0..7),
            is_prefix in any::<bool>(),
        ) {
            let all = [&before[..], &["{name}".to_owned()], &after[..]].concat();
            let pattern = format!("/{}{}", all.join("/"), if is_prefix { "/*" } else { "" });
            let fits = |(own, text): (&String, &String)| own.starts_with('{') || own == text;
            let is_long = path.len() > before.len();
            let is_whole = all.len() <= path.len() && (is_prefix || all.len() == path.len());
            let is_match = is_whole && all.iter().zip(&path).all(fits);
            let leads = is_long && all[..=before.len()].iter().zip(&path).all(fits);
            let found = segment("name", &[&pattern]).find(&format!("/{}", path.join("/")))
                .map(str::to_owned);
            // Only the table sends requests here, so that a path that does not match is another
            // spelling of one that does.
            prop_assert_eq!(found.is_some(), leads);
            prop_assert!(!is_match || found.as_ref() == Some(&path[before.len()]));
        }

        #[test]
        fn both_readings_of_a_path_that_are_alike_have_one_segment(
            text in "/orgs/(a|%2[fF]|%61|;|/|\\.){0,6}",
        ) {
            let segment = segment("org", &["/orgs/{org}/*"]);
            let normal = normal_path(&text);
            let literal = literal_path(&text);
            let one = segment.find(&normal);
            let other = segment.find(&literal);
            // A slash that only some servers see is part of the segment for others.
            let is_alike = !literal[6.min(literal.len())..].split('/').next()
                .is_some_and(|first| first.contains("%2F"));
            if is_alike {
                prop_assert_eq!(one, other);
            } else {
                prop_assert_ne!(one, other);
            }
        }
    }
}

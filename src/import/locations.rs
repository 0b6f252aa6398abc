//! The locations of a server, those within others too.
//!
//! nginx finds a location among those of a server, and then another one among those within it, and
//! so on. An exact one ends the search. Regular expressions of the server are asked unless the
//! prefix that was found there has `^~`, whatever was found within it. So prefixes and exact paths
//! within a prefix are as good as beside it, but for paths that another location of the outer level
//! takes first. Regular expressions within a prefix are asked before those of the server.

use super::{
    access::guards,
    report::ImportReport,
    tree::{Directive, Scope},
};

/// The paths that a location takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind<'a> {
    /// `location = PATH`
    Exact(&'a str),
    /// `location PATH`, or with `^~`, so that no regular expression is asked.
    Prefix(&'a str, bool),
    /// `location ~ REGEX`, or with `~*`, which ignores case.
    Regex(&'a str, bool),
}

/// A location with its block.
#[derive(Clone, Debug)]
pub(super) struct Location<'a> {
    pub kind: Kind<'a>,
    pub block: &'a Directive,
    /// The locations that it is within, the outermost first.
    pub around: Vec<&'a Directive>,
    /// The prefix of the innermost one around, if any.
    pub prefix: Option<&'a str>,
    /// Something within it that is no route keeps clients out.
    pub is_closed: bool,
}

impl<'a> Location<'a> {
    /// Returns its scope in that of its server.
    pub(super) fn scope(&self, server: &Scope<'a>) -> Scope<'a> {
        let inner = self.around.iter().chain([&self.block]);
        inner.fold(server.clone(), |scope, block| scope.within(block))
    }
}

/// Where locations are read.
#[derive(Clone, Debug, Default)]
struct Level<'a> {
    around: Vec<&'a Directive>,
    /// The prefix of the innermost one around, and whether the outermost one has `^~`.
    prefix: Option<(&'a str, bool)>,
    /// Prefixes and exact paths beside those around: nginx finds them first.
    first: Vec<Kind<'a>>,
}

/// Reads the locations of a server that are not named.
pub(super) fn read<'a>(
    server: &'a Directive,
    scope: &Scope<'a>,
    report: &mut ImportReport,
) -> Vec<Location<'a>> {
    let mut all = Vec::new();
    read_level(server, &Level::default(), &mut all, report);
    close(&mut all, scope, report);
    all
}

/// Closes the regular expressions within which another location keeps clients out: nothing within
/// them is a route.
fn close<'a>(all: &mut [Location<'a>], scope: &Scope<'a>, report: &mut ImportReport) {
    for location in all.iter_mut().filter(|location| matches!(location.kind, Kind::Regex(..))) {
        let scope = location.scope(scope);
        let open = guards(&scope);
        for inner in location.block.all("location") {
            let kept = guards(&scope.within(inner));
            if !kept.is_empty() && kept != open {
                report.block(inner, "it keeps clients out. The route around it is closed", None);
                report.take_all(location.block);
                location.is_closed = true;
            }
        }
    }
}

fn read_level<'a>(
    block: &'a Directive,
    level: &Level<'a>,
    all: &mut Vec<Location<'a>>,
    report: &mut ImportReport,
) {
    let own: Vec<_> =
        block.all("location").filter_map(|location| Some((kind(location)?, location))).collect();

    for (found, block) in &own {
        report.take(block);

        if let Some(why) = level.reason_against(*found) {
            // One line for all of it.
            report.take_all(block);
            report.note(block, why);
            continue;
        }

        let kind = match (*found, level.prefix) {
            (Kind::Prefix(path, _), Some((_, stops))) => Kind::Prefix(path, stops),
            (kind, _) => kind,
        };

        let is_replaced = matches!(kind, Kind::Prefix(path, _) if has_prefix(block, path));
        if is_replaced {
            report.note(block, "the location within it takes all of its paths");
        } else {
            all.push(Location {
                kind,
                block,
                around: level.around.clone(),
                prefix: level.prefix.map(|(path, _)| path),
                is_closed: false,
            });
        }

        let others = own.iter().map(|(other, _)| *other).filter(|other| other != found);
        read_level(block, &level.within(kind, block, others), all, report);
    }
}

impl<'a> Level<'a> {
    /// Returns the level within a location, beside which there are others.
    fn within(
        &self,
        kind: Kind<'a>,
        block: &'a Directive,
        others: impl Iterator<Item = Kind<'a>>,
    ) -> Self {
        let prefix = match kind {
            Kind::Prefix(path, stops) => Some((path, stops)),
            // Nothing can be within it.
            Kind::Exact(_) | Kind::Regex(..) => Some(("", false)),
        };
        let around = self.around.iter().copied().chain([block]).collect();

        let length = prefix.map_or(0, |(path, _)| path.len());
        let is_longer = |other: &Kind<'a>| match other {
            Kind::Prefix(path, _) => path.len() > length,
            Kind::Exact(_) => true,
            Kind::Regex(..) => false,
        };

        let first = self.first.iter().copied().chain(others.filter(is_longer)).collect();
        Self { around, prefix, first }
    }

    /// Returns why a location here becomes no route, if it does not.
    fn reason_against(&self, kind: Kind<'_>) -> Option<&'static str> {
        let path = match kind {
            Kind::Exact(path) | Kind::Prefix(path, _) => path,
            Kind::Regex(..) => {
                let is_no_route = self.prefix.is_some_and(|(path, _)| path.is_empty());
                return is_no_route.then_some(NO_ROUTE);
            }
        };

        if !path.starts_with('/') || path.contains(ODD) || path.contains("//") {
            return Some("no request here has such a path");
        }

        match self.prefix {
            Some(("", _)) => return Some(NO_ROUTE),
            Some((outer, _)) if !path.starts_with(outer) => {
                return Some(
                    "nginx rejects a nested location whose path does not begin with that of the outer one",
                );
            }
            _ => {}
        }

        let is_taken = self.first.iter().any(|other| match other {
            Kind::Prefix(other, _) => path.starts_with(other),
            other @ (Kind::Exact(_) | Kind::Regex(..)) => *other == kind,
        });
        is_taken.then_some("another location than the surrounding one matches its paths")
    }
}

/// Reports whether a block has a location for all paths that begin so.
fn has_prefix(block: &Directive, path: &str) -> bool {
    let mut inner = block.all("location").filter_map(kind);
    inner.any(|inner| matches!(inner, Kind::Prefix(inner, _) if inner == path))
}

const NO_ROUTE: &str =
    "a location nested in an exact one or a regular expression does not become a route";

/// Signs of paths that a pattern of flowgate reads as something else.
const ODD: [char; 4] = ['?', '#', '{', '}'];

/// Reads what a location is for; `None` if it is named, or none that nginx takes.
pub(super) fn kind(block: &Directive) -> Option<Kind<'_>> {
    let kind = match (block.arg(0), block.args.get(1)) {
        ("=", Some(path)) => Kind::Exact(path),
        ("^~", Some(path)) => Kind::Prefix(path, true),
        ("~", Some(text)) => Kind::Regex(text, false),
        ("~*", Some(text)) => Kind::Regex(text, true),
        (path, None) => glued(path),
        _ => return None,
    };
    let is_named = matches!(kind, Kind::Prefix(path, _) if path.starts_with('@'));
    (!is_named).then_some(kind)
}

/// Reads a path with its sign written before it, as in `=/x` or `~^/x`.
fn glued(text: &str) -> Kind<'_> {
    if let Some(path) = text.strip_prefix("^~") {
        return Kind::Prefix(path, true);
    }
    if let Some(regex) = text.strip_prefix("~*") {
        return Kind::Regex(regex, true);
    }
    if let Some(regex) = text.strip_prefix('~') {
        return Kind::Regex(regex, false);
    }
    text.strip_prefix('=').map_or(Kind::Prefix(text, false), Kind::Exact)
}

/// Returns a word for a location.
pub(super) fn label(kind: Kind<'_>) -> String {
    let (Kind::Exact(text) | Kind::Prefix(text, _) | Kind::Regex(text, _)) = kind;
    let fits = |sign: char| sign.is_ascii_alphanumeric() || "/_.".contains(sign);
    let text: String = text.chars().map(|sign| if fits(sign) { sign } else { '-' }).collect();
    let words: Vec<_> = text.split('-').filter(|word| !word.is_empty()).collect();
    let label = words.join("-");
    let label = label.trim_matches(['/', '-', '.']);
    if label.is_empty() { "all".into() } else { label.into() }
}

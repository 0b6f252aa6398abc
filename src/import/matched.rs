//! The match of a location's route, or of one that closes its paths.

use super::{
    guards::guards,
    locations::{Kind, Location},
    pattern::{at_least, begins_with, encoded, path_regex, path_regex_within},
    report::ImportReport,
    scope::Scope,
    tree::Directive,
};
use serde_json::{Value, json};

/// A location with the match of its route.
#[derive(Clone, Debug)]
pub(super) struct Matched<'a> {
    pub location: Location<'a>,
    /// A key of `match` and its value.
    pub path: (&'static str, Value),
    /// The path without its last slash, which nginx redirects to the one with it.
    pub redirects: Option<String>,
    /// The match takes more paths than the location, which keeps clients out: all get 403.
    pub is_closed: bool,
}

/// The locations of a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Locations<'a, 's> {
    pub all: &'s [Location<'a>],
    /// The scope of the server.
    pub scope: &'s Scope<'a>,
}

impl<'a> Matched<'a> {
    /// Returns the server itself as the location of all paths that have none.
    pub(super) fn of_server(block: &'a Directive) -> Self {
        let kind = Kind::Prefix("/", false);
        let location = Location { kind, block, around: Vec::new(), prefix: None, is_closed: false };
        Self::new(&location, "path_prefix", json!("/"))
    }

    pub(super) fn new(location: &Location<'a>, key: &'static str, value: Value) -> Self {
        let is_closed = location.is_closed;
        Self { location: location.clone(), path: (key, value), redirects: None, is_closed }
    }
}

impl<'a> Locations<'a, '_> {
    /// Returns the route of a regular expression of the server.
    pub(super) fn anywhere(
        self,
        location: &Location<'a>,
        report: &mut ImportReport,
    ) -> Option<Matched<'a>> {
        let Kind::Regex(text, ignores_case) = location.kind else { return None };
        match path_regex(text, ignores_case) {
            Ok(regex) => Some(Matched::new(location, "path_regex", json!(regex))),
            Err(why) => self.closed(location, &at_least(text, ignores_case), &why, report),
        }
    }

    /// Returns the route of a regular expression for the paths that begin so.
    pub(super) fn within(
        self,
        location: &Location<'a>,
        path: &str,
        report: &mut ImportReport,
    ) -> Option<Matched<'a>> {
        let Kind::Regex(text, ignores_case) = location.kind else { return None };
        match path_regex_within(path, text, ignores_case) {
            Ok(Some(regex)) => Some(Matched::new(location, "path_regex", json!(regex))),
            Ok(None) => {
                report.take_all(location.block);
                None
            }
            Err(why) => self.closed(location, &begins_with(&encoded(path)), &why, report),
        }
    }

    /// Returns a route that rejects all paths of `regex` in place of a location that is no route,
    /// if that keeps clients out which another location lets in.
    pub(super) fn closed(
        self,
        location: &Location<'a>,
        regex: &str,
        why: &str,
        report: &mut ImportReport,
    ) -> Option<Matched<'a>> {
        // One line for all of it.
        report.take_all(location.block);
        let kept = guards(&location.scope(self.scope));
        let is_open = |other: &Location<'a>| guards(&other.scope(self.scope)) != kept;
        if kept.is_empty() || !self.all.iter().any(is_open) {
            report.note(location.block, format!("{why}; there is no route for it"));
            return None;
        }
        report.block(
            location.block,
            format!("{why}. It keeps clients out: all paths that match `{regex}` get 403"),
            None,
        );
        let route = Matched::new(location, "path_regex", json!(regex));
        Some(Matched { is_closed: true, ..route })
    }
}

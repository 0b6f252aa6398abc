//! What requests must look like.

use super::leaf::{FieldName, Host, MethodName, Path, Pattern, Text};
use crate::config::decode::{Either, Entries, Key, Several};
use schemars::JsonSchema;
use serde::Deserialize;

/// Fields by name, with what each must look like: a text that must be equal, or a map.
pub(in crate::config) type FieldConditions<N> = Entries<N, Either<Text, FieldSpec>>;

/// The most specific route wins: exact host before wildcard before any; then exact path before
/// template before the longest prefix before regex, of which the first in the file, before any
/// path, as which `path_prefix: /` counts; then method, more headers, more query fields; then the
/// order of the file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "a match")]
pub(in crate::config) struct MatchSpec {
    /// `shop.example.com`, or `*.example.com` for all names below; any of a list.
    #[serde(default)]
    #[schemars(extend("x-default" = "any"))]
    pub host: Key<Several<Host>>,
    /// The whole path, as in `/health`; `{…}` stands for one segment, as in `/users/{id}`, which
    /// needs quotes where the match is written in braces.
    #[serde(default)]
    #[schemars(extend("x-default" = "any"))]
    pub path: Key<Path>,
    /// The path's beginning by whole segments: `/api` takes `/api` and `/api/x`, not `/apix`. `/`
    /// takes all.
    #[serde(default)]
    #[schemars(extend("x-default" = "any"))]
    pub path_prefix: Key<Path>,
    /// A regular expression that the whole path must match.
    #[serde(default)]
    #[schemars(extend("x-default" = "any"))]
    pub path_regex: Key<Pattern>,
    /// `GET`, or any of a list.
    #[serde(default)]
    #[schemars(extend("x-default" = "any"))]
    pub method: Key<Several<MethodName>>,
    /// Header fields that must all hold: a text that must be equal, or a map.
    #[serde(default)]
    #[schemars(extend("x-default" = "any"))]
    pub header: Key<FieldConditions<FieldName>>,
    /// Query fields that must all hold, in the same way.
    #[serde(default)]
    #[schemars(extend("x-default" = "any"))]
    pub query: Key<FieldConditions<Text>>,
}

/// Exactly one of the three.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "a field's pattern")]
pub(in crate::config) struct FieldSpec {
    /// The whole value.
    #[serde(default)]
    pub equals: Key<Text>,
    /// A regular expression that the whole value must match.
    #[serde(default)]
    pub regex: Key<Pattern>,
    /// `true`: the field must be there, whatever its value.
    #[serde(default)]
    pub present: Key<bool>,
}

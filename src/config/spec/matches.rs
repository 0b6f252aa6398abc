//! What requests must look like.

use super::{
    keys::keys,
    leaf::{FieldName, Host, MethodName, Name, Path, Pattern, Text},
};
use crate::config::decode::{Either, Entries, Several};

/// Fields by name, with what each must look like: a text that must be equal, or a map.
pub(in crate::config) type FieldConditions<N> = Entries<N, Either<Text, FieldSpec>>;

#[cfg(test)]
const BESIDE: &str = "it belongs to the route: write it in the column of `match`";

keys! {
    /// The most specific route wins: one of the request's listener before those without
    /// `listener`; then exact host before wildcard before any; then exact path before
    /// template before the longest prefix before regex, of which the first in the file, before any
    /// path, as which `path_prefix: /` counts; then method, more headers, more query fields; then
    /// the order of the file.
    #[cfg_attr(test, schemars(extend(
        "x-example" = "{ path_prefix: /login }",
        "x-instead" = [["upstream", BESIDE], ["redirect", BESIDE], ["respond", BESIDE], ["access", BESIDE], ["auth", BESIDE], ["flow", BESIDE], ["pacing", BESIDE], ["breaker", BESIDE], ["timeout", BESIDE], ["rewrite", BESIDE]]
    )))]
    struct MatchSpec: "a match" {
        /// `shop.example.com`, or `*.example.com` for all names below; any of a list.
        host: Several<Host>, else "any";
        /// The whole path, as in `/health`; `{…}` stands for one segment, as in `/users/{id}`,
        /// which needs quotes where the match is written in braces.
        path: Path, else "any";
        /// The path's beginning by whole segments: `/api` takes `/api` and `/api/x`, not `/apix`.
        /// `/` takes all.
        path_prefix: Path, else "any";
        /// A regular expression that the whole path must match, as in `/(de|en)/.*`; it needs no `^`
        /// and `$`.
        path_regex: Pattern, else "any";
        /// `GET`, or any of a list.
        method: Several<MethodName>, else "any";
        /// The name of a listener that the request came by, or any of a list.
        listener: Several<Name>, else "any";
        /// Header fields that must all hold: a text that must be equal, or a map.
        header: FieldConditions<FieldName>, else "any";
        /// Query fields that must all hold, in the same way.
        query: FieldConditions<Text>, else "any";
    }

    /// Exactly one of the three.
    struct FieldSpec: "a field's pattern" {
        /// The whole value.
        equals: Text, else "–";
        /// A regular expression that the whole value must match.
        regex: Pattern, else "–";
        /// `true`: the field must be there, whatever its value.
        present: bool, else "–";
    }
}

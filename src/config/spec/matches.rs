//! What requests must look like.

use super::other_words::matches::{MATCH_INSTEAD, MATCH_MEANT};
use super::{
    keys::keys,
    leaf::{FieldName, Host, MethodName, Name, Path, Pattern, Text},
};
use crate::config::decode::{Either, Entries, Several};

/// Fields by name, with what each must look like.
pub(in crate::config) type FieldConditions<N> = Entries<N, ValueSpec>;

/// What a value must look like: texts of which one must be equal, or a map.
pub(in crate::config) type ValueSpec = Either<Several<Text>, FieldSpec>;

keys! {
    /// The most specific route wins. flowgate compares in this order: the listener (routes with the
    /// request's `listener` before routes without); the host (exact, wildcard, any); the path
    /// (exact, template, longest prefix, regular expressions in the order of the file, then any
    /// path, which includes `path_prefix: /`); a method; more headers; more query fields; the order
    /// of the file.
    #[example = "{ path_prefix: /login }"]
    #[instead = MATCH_INSTEAD]
    #[meant = MATCH_MEANT]
    struct MatchSpec: "a match" {
        /// `shop.example.com`, `*.example.com` for all names below it, or `shop.*` for all that go
        /// on so; any of a list.
        host: Several<Host>, else "any";
        /// The whole path, as in `/health`, or any of a list. `{…}` matches one segment, as in
        /// `/users/{id}`; in a match that is written in braces, such a path needs quotes.
        path: Several<Path>, else "any";
        /// A prefix of the path, by whole segments: `/api` matches `/api` and `/api/x`, not
        /// `/apix`. `/` matches all paths. `{…}` matches one segment, as in `/orgs/{org}`. Or any
        /// of a list.
        path_prefix: Several<Path>, else "any";
        /// A regular expression that the whole path must match, as in `/(de|en)/.*`. It needs no
        /// `^` and `$`. Or any of a list.
        path_regex: Several<Pattern>, else "any";
        /// `GET`, or any of a list.
        method: Several<MethodName>, else "any";
        /// The name of the listener that received the request, or any of a list.
        listener: Several<Name>, else "any";
        /// Header fields that must all match: a text that the value must equal, a list of texts of
        /// which it must equal one, or a map.
        header: FieldConditions<FieldName>, else "any";
        /// Query fields that must all match, in the same way.
        query: FieldConditions<Text>, else "any";
        /// A regular expression that the whole query must match, as the client wrote it, without the
        /// `?`: `.*[.][.]/.*`. A request without a query has an empty one.
        query_regex: Pattern, else "any";
    }

    /// Write exactly one of the three keys.
    struct FieldSpec: "a field's pattern" {
        /// The whole value, or a list of values.
        equals: Several<Text>, else "–";
        /// A regular expression that the whole value must match.
        regex: Pattern, else "–";
        /// `true`: the field must be present, with any value.
        present: bool, else "–";
    }
}

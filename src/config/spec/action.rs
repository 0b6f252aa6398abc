//! What routes do without an upstream, and what they change of a path.

use super::{
    keys::keys,
    leaf::{
        AnswerStatus, Authority, EditableName, FieldValue, Path, Pattern, RedirectStatus,
        RedirectTo, Text,
    },
};
use crate::config::decode::Entries;

keys! {
    /// The client is sent elsewhere, with an empty body. The short form `redirect: https` is
    /// `redirect: { to: https }`.
    struct RedirectSpec: "a redirect" {
        /// A URL, or a path on the same host, with placeholders. `https` is short for
        /// `https://{host}{path}`. The query is kept, unless a `?` is written here; one at the end
        /// removes it.
        to: RedirectTo;
        /// 301, 302, 303, 307 or 308; with the last two, clients repeat a POST as a POST.
        status: RedirectStatus, else "308 for `https`, else 302";
    }

    /// An answer of flowgate itself. The short form `respond: 204` is `respond: { status: 204 }`.
    struct RespondSpec: "a response" {
        /// 200 to 599.
        status: AnswerStatus = 200;
        /// Fields of its header, with placeholders.
        headers: Entries<EditableName, FieldValue>, else "–";
        /// Its body, with placeholders. Its type is that of `headers`, or guessed as for `reject`.
        body: Text, else "none";
    }

    /// What the upstream is asked for, in place of the path and the host of the request; routes and
    /// rules see the request as it came. `strip_prefix` first, then `path_regex`, then `add_prefix`.
    struct RewriteSpec: "a rewrite" {
        /// The path's beginning to remove, by whole segments: of `/api/x` without `/api`, `/x` is
        /// left. Other paths stay as they are.
        strip_prefix: Path, else "–";
        /// Replaces parts of the path.
        path_regex: PathRegexSpec, else "–";
        /// What to write before the path.
        add_prefix: Path, else "–";
        /// The `Host` that the upstream receives, with a port or without.
        host: Authority, else "the request's";
    }

    /// Each match is replaced, in the path as the client wrote it, without the query.
    struct PathRegexSpec: "a replacement" {
        /// A regular expression; `^` and `$` are the path's ends.
        #[serde(rename = "match")]
        pattern: Pattern;
        /// What to write in its place: `$1` or `$name` is a group, `$$` a dollar sign.
        replace: Text;
    }
}

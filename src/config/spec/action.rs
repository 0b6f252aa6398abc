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
    /// Redirects the client, with an empty body. The short form `redirect: https` is `redirect: {
    /// to: https }`.
    #[instead = &[["scheme", "write `to: https`"]]]
    #[meant = &[["code", "status"], ["location", "to"], ["target", "to"], ["url", "to"]]]
    struct RedirectSpec: "a redirect" {
        /// A URL, or a path on the same host, with placeholders. `https` is short for
        /// `https://{host}{path}`. The query is kept unless the value has a `?`. A `?` at the end
        /// removes the query. `$1` or `$name` is a group of the route's `path_regex`, `$$` a dollar
        /// sign.
        to: RedirectTo;
        /// 301, 302, 303, 307 or 308; with the last two, clients repeat a POST as a POST.
        status: RedirectStatus, else "308 for `https`, else 302";
    }

    /// A response of flowgate itself. The short form `respond: 204` is `respond: { status: 204 }`.
    /// `respond: close` ends the connection without a response.
    #[meant = &[["code", "status"], ["content", "body"], ["text", "body"]]]
    struct RespondSpec: "a response" {
        /// 200 to 599, or `close`: flowgate ends the connection (in HTTP/2, the stream) without a
        /// response.
        status: AnswerStatus = 200;
        /// Header fields of the response, with placeholders.
        headers: Entries<EditableName, FieldValue>, else "–";
        /// The body, with placeholders. Its type is that in `headers`, or guessed as for `reject`.
        body: Text, else "none";
    }

    /// Changes the path and the host that the upstream receives. Routes and rules see the original
    /// request. flowgate applies `strip_prefix` first, then `path_regex`, then `add_prefix`.
    struct RewriteSpec: "a rewrite" {
        /// A prefix to remove from the path, by whole segments: `/api/x` without `/api` is `/x`.
        /// Other paths do not change.
        strip_prefix: Path, else "–";
        /// Replaces parts of the path.
        path_regex: PathRegexSpec, else "–";
        /// A prefix to add to the path.
        add_prefix: Path, else "–";
        /// The `Host` that the upstream receives, with a port or without.
        host: Authority, else "the request's";
    }

    /// Replaces each match in the path as the client wrote it, without the query.
    struct PathRegexSpec: "a replacement" {
        /// A regular expression; `^` and `$` are the path's ends.
        #[serde(rename = "match")]
        pattern: Pattern;
        /// The replacement: `$1` or `$name` is a group, `$$` a dollar sign. A `?` begins a query, behind
        /// which the request's own comes: `/users?id=$1`.
        replace: Text;
    }
}

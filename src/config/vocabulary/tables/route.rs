//! Routes: what they match, and what they change on the way.

use super::{
    TIMEOUT,
    breaker::BREAKER,
    key,
    rule::{PACING, RULE},
};
use crate::config::vocabulary::{
    Default::{Absent, Required, Value, Words},
    Kind, Section,
};

/// One route.
pub(in crate::config) static ROUTE: Section = Section {
    title: "a route",
    doc: "Requests that match go to the upstream if all rules let them pass, at once.",
    keys: &[
        key(
            "name",
            Kind::Name,
            Required,
            "The route's identity: its state survives an edit under this name. Also its metric label and its word in the log.",
        ),
        key(
            "match",
            Kind::Section(&MATCH),
            Required,
            "Which requests; all that is written must hold.",
        ),
        key("upstream", Kind::Name, Required, "The upstream they go to."),
        key(
            "flow",
            Kind::List(&Kind::Section(&RULE)),
            Words("no rules"),
            "Rules that decide together: a request passes all or none, and is counted by all or none. At most 16.",
        ),
        key(
            "pacing",
            Kind::Section(&PACING),
            Absent,
            "Evens out the starts of what the rules let pass, holding requests for a moment.",
        ),
        key(
            "breaker",
            Kind::Section(&BREAKER),
            Absent,
            "Sends nothing to a service that fails or is slow, until a few probes have found it well.",
        ),
        key("timeout", TIMEOUT, Absent, "Short for `timeouts: { request: … }`."),
        key(
            "timeouts",
            Kind::Section(&ROUTE_TIMEOUTS),
            Absent,
            "Deadlines of the upstream's answer.",
        ),
        key(
            "body_limit",
            Kind::Size { max: u64::MAX },
            Words("`limits.body`"),
            "The body of a request: 413 beyond it.",
        ),
        key(
            "upgrades",
            Kind::Several(&Kind::HeaderName),
            Value("websocket"),
            "Protocols that a client may upgrade to; `[]` for none.",
        ),
        key(
            "relaxed_path",
            Kind::Flag,
            Value("false"),
            "Passes paths as they are written that get 400 otherwise because servers read them differently: with `%5c` or `..`, or with `%2f` where reading it as a slash leads to another route or rule.",
        ),
        key(
            "request_trailers",
            Kind::Flag,
            Value("false"),
            "Passes the trailers of requests to the upstream, but for fields that decide about a request or change how it is handled; those of gRPC pass in any case.",
        ),
        key(
            "request_headers",
            Kind::Section(&HEADER_EDITS),
            Absent,
            "Changes to what the upstream receives.",
        ),
        key(
            "response_headers",
            Kind::Section(&HEADER_EDITS),
            Absent,
            "Changes to what the client receives of the upstream's answers, trailers included; the gateway's own answers have what `reject` says.",
        ),
        key(
            "reject",
            Kind::Section(&REJECT),
            Absent,
            "What a rejected client is told, in place of a problem+json document.",
        ),
    ],
};

/// What a request must look like.
pub(in crate::config) static MATCH: Section = Section {
    title: "a match",
    doc: "The most specific route wins: exact host before wildcard before any; then exact path before template before the longest prefix before regex, of which the first in the file, before any path, as which `path_prefix: /` counts; then method, more headers, more query fields; then the order of the file.",
    keys: &[
        key(
            "host",
            Kind::Several(&Kind::Host),
            Words("any"),
            "`shop.example.com`, or `*.example.com` for all names below; any of a list.",
        ),
        key(
            "path",
            Kind::Path,
            Words("any"),
            "The whole path, as in `/health`; `{…}` stands for one segment, as in `/users/{id}`, which needs quotes where the match is written in braces.",
        ),
        key(
            "path_prefix",
            Kind::Path,
            Words("any"),
            "The path's beginning by whole segments: `/api` takes `/api` and `/api/x`, not `/apix`. `/` takes all.",
        ),
        key(
            "path_regex",
            Kind::Regex,
            Words("any"),
            "A regular expression that the whole path must match.",
        ),
        key("method", Kind::Several(&Kind::Method), Words("any"), "`GET`, or any of a list."),
        key(
            "header",
            Kind::Map { of: "x-tenant", to: &Kind::Either(&Kind::Text, &Kind::Section(&FIELD)) },
            Words("any"),
            "Header fields that must all hold: a text that must be equal, or a map.",
        ),
        key(
            "query",
            Kind::Map { of: "page", to: &Kind::Either(&Kind::Text, &Kind::Section(&FIELD)) },
            Words("any"),
            "Query fields that must all hold, in the same way.",
        ),
    ],
};

/// What a header or query field must look like.
pub(in crate::config) static FIELD: Section = Section {
    title: "a field's pattern",
    doc: "Exactly one of the three.",
    keys: &[
        key("equals", Kind::Text, Absent, "The whole value."),
        key("regex", Kind::Regex, Absent, "A regular expression that the whole value must match."),
        key("present", Kind::Flag, Absent, "`true`: the field must be there, whatever its value."),
    ],
};

/// The upstream's side of the clock.
pub(in crate::config) static ROUTE_TIMEOUTS: Section = Section {
    title: "the timeouts of a route",
    doc: "Deadlines of the upstream's answer: 504 before its header, a cut connection after.",
    keys: &[
        key(
            "first_byte",
            TIMEOUT,
            Value("60s"),
            "From the request's end to the header of the answer.",
        ),
        key("idle", TIMEOUT, Value("60s"), "How long a body may stand still, in either direction."),
        key(
            "event_stream",
            TIMEOUT,
            Value("5m"),
            "How long an answer of the type `text/event-stream` may stand still, in place of `idle`.",
        ),
        key(
            "tunnel",
            TIMEOUT,
            Value("1h"),
            "How long a tunnel may stand still, such as a WebSocket.",
        ),
        key("request", TIMEOUT, Value("1h"), "The whole exchange, tunnels excepted."),
    ],
};

/// Changes to headers.
pub(in crate::config) static HEADER_EDITS: Section = Section {
    title: "header edits",
    doc: "`remove` first, then `set`.",
    keys: &[
        key(
            "set",
            Kind::Map { of: "x-served-by", to: &Kind::HeaderValue },
            Absent,
            "Fields to write, in place of any that are there.",
        ),
        key("remove", Kind::Several(&Kind::HeaderName), Absent, "Fields to remove."),
    ],
};

/// A refusal in the user's words.
pub(in crate::config) static REJECT: Section = Section {
    title: "a rejection",
    doc: "The answer to a request that a rule rejected. `Retry-After` and the quota headers are added to it; gRPC requests get a gRPC status in any case.",
    keys: &[
        key(
            "status",
            Kind::Status,
            Words("429 for a quota, 503 for a full queue or overload"),
            "400 to 599.",
        ),
        key("body", Kind::Text, Words("a problem+json document"), "The body, as it is."),
        key(
            "content_type",
            Kind::HeaderValue,
            Words(
                "`application/json` for a body that begins with `{` or `[`, else `text/plain; charset=utf-8`",
            ),
            "The type of `body`.",
        ),
    ],
};

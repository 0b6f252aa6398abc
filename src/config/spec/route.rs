//! Routes: what they match, and what they change on the way.

use super::{
    BreakerSpec, MatchSpec, PacingSpec, RuleSpec,
    leaf::{EditableName, FieldValue, Name, Protocol, Size, Status, Text, Timeout},
};
use crate::config::decode::{Entries, Key, List, Several};
use schemars::JsonSchema;
use serde::Deserialize;

/// Requests that match go to the upstream if all rules let them pass, at once.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "a route")]
pub(in crate::config) struct RouteSpec {
    /// The route's identity: its state survives an edit under this name. Also its metric label and
    /// its word in the log.
    pub name: Key<Name>,
    /// Which requests; all that is written must hold.
    #[serde(rename = "match")]
    pub matcher: Key<MatchSpec>,
    /// The upstream they go to.
    pub upstream: Key<Name>,
    /// Rules that decide together: a request passes all or none, and is counted by all or none. At
    /// most 16.
    #[serde(default)]
    #[schemars(extend("x-default" = "no rules"))]
    pub flow: Key<List<RuleSpec>>,
    /// Evens out the starts of what the rules let pass, holding requests for a moment.
    #[serde(default)]
    pub pacing: Key<Box<PacingSpec>>,
    /// Sends nothing to a service that fails or is slow, until a few probes have found it well.
    #[serde(default)]
    pub breaker: Key<Box<BreakerSpec>>,
    /// Short for `timeouts: { request: … }`.
    #[serde(default)]
    pub timeout: Key<Timeout>,
    /// Deadlines of the upstream's answer.
    #[serde(default)]
    #[schemars(extend("default" = {}))]
    pub timeouts: Key<RouteTimeoutsSpec>,
    /// The body of a request: 413 beyond it.
    #[serde(default)]
    #[schemars(extend("x-default" = "`limits.body`"))]
    pub body_limit: Key<Size<0, { u64::MAX }>>,
    /// Protocols that a client may upgrade to; `[]` for none.
    #[serde(default)]
    #[schemars(extend("default" = "websocket"))]
    pub upgrades: Key<Several<Protocol>>,
    /// Passes paths as they are written that get 400 otherwise because servers read them
    /// differently: with `%5c` or `..`, or with `%2f` where reading it as a slash leads to another
    /// route or rule.
    #[serde(default)]
    #[schemars(extend("default" = false))]
    pub relaxed_path: Key<bool>,
    /// Passes the trailers of requests to the upstream, but for fields that decide about a request
    /// or change how it is handled; those of gRPC pass in any case.
    #[serde(default)]
    #[schemars(extend("default" = false))]
    pub request_trailers: Key<bool>,
    /// Changes to what the upstream receives.
    #[serde(default)]
    pub request_headers: Key<Box<HeaderEditsSpec>>,
    /// Changes to what the client receives of the upstream's answers, trailers included; the
    /// gateway's own answers have what `reject` says.
    #[serde(default)]
    pub response_headers: Key<Box<HeaderEditsSpec>>,
    /// The response to a rejected client, in place of a problem+json document.
    #[serde(default)]
    pub reject: Key<Box<RejectSpec>>,
}

/// Deadlines of the upstream's answer: 504 before its header, a cut connection after.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "the timeouts of a route")]
pub(in crate::config) struct RouteTimeoutsSpec {
    /// From the request's end to the header of the answer.
    #[serde(default)]
    #[schemars(extend("default" = "60s"))]
    pub first_byte: Key<Timeout>,
    /// How long a body may stand still, in either direction.
    #[serde(default)]
    #[schemars(extend("default" = "60s"))]
    pub idle: Key<Timeout>,
    /// How long an answer of the type `text/event-stream` may stand still, in place of `idle`.
    #[serde(default)]
    #[schemars(extend("default" = "5m"))]
    pub event_stream: Key<Timeout>,
    /// How long a tunnel may stand still, such as a WebSocket.
    #[serde(default)]
    #[schemars(extend("default" = "1h"))]
    pub tunnel: Key<Timeout>,
    /// The whole exchange, tunnels excepted.
    #[serde(default)]
    #[schemars(extend("default" = "1h"))]
    pub request: Key<Timeout>,
}

/// `remove` first, then `set`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "header edits")]
pub(in crate::config) struct HeaderEditsSpec {
    /// Fields to write, in place of any that are there.
    #[serde(default)]
    pub set: Key<Entries<EditableName, FieldValue>>,
    /// Fields to remove.
    #[serde(default)]
    pub remove: Key<Several<EditableName>>,
}

/// The answer to a request that a rule rejected. `Retry-After` and the quota headers are added to
/// it; gRPC requests get a gRPC status in any case.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "a rejection")]
pub(in crate::config) struct RejectSpec {
    /// 400 to 599.
    #[serde(default)]
    #[schemars(extend("x-default" = "429 for a quota, 503 for a full queue or overload"))]
    pub status: Key<Status>,
    /// The body, as it is.
    #[serde(default)]
    #[schemars(extend("x-default" = "a problem+json document"))]
    pub body: Key<Text>,
    /// The type of `body`.
    #[serde(default)]
    #[schemars(extend("x-default" = "`application/json` for a body that begins with `{` or `[`, else `text/plain; charset=utf-8`"))]
    pub content_type: Key<FieldValue>,
}

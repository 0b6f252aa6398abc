//! Routes: what they match, and what they change on the way.

use super::{
    AccessSpec, AuthSpec, BreakerSpec, MatchSpec, PacingSpec, RedirectSpec, RespondSpec,
    RewriteSpec, RuleSpec,
    keys::keys,
    leaf::{
        AnswerStatus, ByteRate, EditableName, FieldValue, Integer, MethodName, Name, Percent,
        Protocol, RedirectTo, RetryCause, Size, Status, Text, Timeout,
    },
};
use crate::config::decode::{Either, Entries, List, Several};

#[cfg(test)]
const IN_MATCH: &str = "write it in `match`, as in `match: { path_prefix: /login }`";

#[cfg(test)]
const IN_FLOW: &str = "write a rule in `flow`, as in `flow: [{ name: total, limit: 100/1s }]`";

keys! {
    /// Requests that match go to the upstream if all rules let them pass, at once; or, with
    /// `redirect` or `respond` in place of `upstream`, flowgate answers them.
    #[cfg_attr(test, schemars(extend(
        "x-instead" = [["path", IN_MATCH], ["path_prefix", IN_MATCH], ["path_regex", IN_MATCH], ["host", IN_MATCH], ["method", IN_MATCH], ["header", IN_MATCH], ["query", IN_MATCH], ["limit", IN_FLOW], ["concurrency", IN_FLOW]],
        "x-meant" = [["rules", "flow"], ["limits", "flow"], ["backend", "upstream"], ["service", "upstream"]]
    )))]
    struct RouteSpec: "a route" {
        /// The route's identity: its state survives an edit under this name. Also its metric label
        /// and its word in the log.
        name: Name;
        /// Which requests; all that is written must hold.
        #[serde(rename = "match")]
        matcher: MatchSpec;
        /// The upstream they go to. Either this, `redirect` or `respond`.
        upstream: Name, else "–";
        /// Sends clients elsewhere: `https`, a URL, or a map.
        redirect: Box<Either<RedirectTo, RedirectSpec>>, else "–";
        /// Answers them: a status, or a map.
        respond: Box<Either<AnswerStatus, RespondSpec>>, else "–";
        /// Which clients may use it, by their address. Checked before the rules.
        access: Box<AccessSpec>, else "all clients";
        /// What a client must prove. Checked after `access` and before the rules.
        auth: Box<AuthSpec>, else "–";
        /// Rules that decide together: a request passes all or none, and is counted by all or none.
        /// At most 16.
        flow: List<RuleSpec>, else "no rules";
        /// Evens out the starts of what the rules let pass, holding requests for a moment.
        pacing: Box<PacingSpec>, else "–";
        /// Sends nothing to a service that fails or is slow, until a few probes have found it well.
        breaker: Box<BreakerSpec>, else "–";
        /// Short for `timeouts: { request: … }`.
        timeout: Timeout, else "–";
        /// Deadlines of the upstream's answer.
        timeouts: RouteTimeoutsSpec = {};
        /// Sends requests again that a server failed, if that can do no harm. Without it only those
        /// that no server can have acted on, and `GET`, `HEAD` and `OPTIONS` whose connection closed.
        retry: Box<RetrySpec>, else "–";
        /// The body of a request: 413 beyond it.
        body_limit: Size<0, { u64::MAX }>, else "`limits.body`";
        /// The least rate of a request's body: 408 below it.
        min_body_rate: ByteRate, else "`limits.min_body_rate`";
        /// Protocols that a client may upgrade to; `[]` for none.
        upgrades: Several<Protocol> = "websocket";
        /// Passes paths as they are written that get 400 otherwise because servers read them
        /// differently: with `%5c` or `..`, with `%2f` where reading it as a slash leads to another
        /// route or rule, or with `;` where cutting off what follows does.
        relaxed_path: bool = false;
        /// Passes the trailers of requests to the upstream, but for fields that decide about a
        /// request or change how it is handled; those of gRPC pass in any case.
        request_trailers: bool = false;
        /// Changes to the path and the host that the upstream is asked for.
        rewrite: Box<RewriteSpec>, else "–";
        /// Changes to what the upstream receives.
        request_headers: Box<HeaderEditsSpec>, else "–";
        /// Changes to what the client receives, trailers included. Answers of flowgate itself get
        /// what is set too, but no field that they have already; its errors get none that says
        /// something of the upstream's content, such as `Cache-Control`.
        response_headers: Box<HeaderEditsSpec>, else "–";
        /// The response to a rejected client, in place of a problem+json document.
        reject: Box<RejectSpec>, else "–";
    }

    /// Deadlines of the upstream's answer: 504 before its header, a cut connection after.
    struct RouteTimeoutsSpec: "the timeouts of a route" {
        /// From the request's end to the header of the answer.
        first_byte: Timeout = "60s";
        /// How long a body may stand still, in either direction.
        idle: Timeout = "60s";
        /// How long an answer of the type `text/event-stream` may stand still, in place of `idle`.
        event_stream: Timeout = "5m";
        /// How long a tunnel may stand still, such as a WebSocket.
        tunnel: Timeout = "1h";
        /// From the request to the end of the answer, tunnels excepted.
        request: Timeout = "1h";
    }

    /// What is sent again, and how often: another server first. A request that a server may have
    /// acted on is sent again only without a body and with one of `methods`.
    struct RetrySpec: "a retry" {
        /// Attempts for one request, the first one included.
        attempts: Integer<1, 10> = 3;
        /// After which failures: no connection (`connect`), one that closes before the answer
        /// (`reset`), no answer within `timeouts.first_byte` (`timeout`), or a status.
        on: Several<RetryCause>, else "connect, reset, 502, 503, 504";
        /// Which requests may arrive twice. `POST` and `PATCH` may not.
        methods: Several<MethodName>, else "GET, HEAD, OPTIONS";
        /// The most retries of requests that a server had, beside 10 a second: a share of the
        /// upstream's requests.
        budget: Percent = "20%";
    }

    /// `remove` first, then `set`.
    struct HeaderEditsSpec: "header edits" {
        /// Fields to write, in place of any that are there; values may have placeholders.
        set: Entries<EditableName, FieldValue>, else "–";
        /// Fields to remove.
        remove: Several<EditableName>, else "–";
    }

    /// The answer to a request that a rule rejected. `Retry-After` and the quota headers are added
    /// to it; gRPC requests get a gRPC status in any case.
    struct RejectSpec: "a rejection" {
        /// 400 to 599.
        status: Status, else "429 for a quota, 503 for a full queue or overload";
        /// The body, with placeholders, of which `{rule}` and `{retry_after}` are known here only.
        body: Text, else "a problem+json document";
        /// The type of `body`.
        content_type: FieldValue, else "`application/json` for a body that begins with `{` or `[`, else `text/plain; charset=utf-8`";
    }
}

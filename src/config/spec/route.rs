//! Routes: what they match, what they change on the way, and what they do without an upstream.

use super::{
    AccessSpec, AuthSpec, BreakerSpec, CompressSpec, CorsSpec, ErrorsFrom, MirrorSpec, PacingSpec,
    RuleSpec,
    keys::keys,
    leaf::{
        AnswerStatus, AnyCertificate, AsNumber, Authority, ByteRate, CountryCode, EditableName,
        FieldName, FieldValue, Fingerprint, Host, Integer, MethodName, Name, OptionalTimeout, Path,
        Pattern, Percent, Protocol, RedirectStatus, RedirectTo, RejectStatus, RetryCause, Size,
        Status, Text, Timeout,
    },
    other_words::route::{
        BASIC, CORS, ERROR_MEANT, HEADER_EDITS_INSTEAD, HEADER_EDITS_MEANT, IN_MATCH_PATH,
        MATCH_INSTEAD, MATCH_MEANT, MIRROR, ROUTE_INSTEAD, ROUTE_MEANT, ROUTE_TIMEOUTS_INSTEAD,
    },
};
use crate::config::decode::{Either, Entries, List, Several};

keys! {
    /// If all rules admit a matching request, flowgate sends it to the upstream, or answers it
    /// itself with `redirect` or `respond`.
    #[instead = ROUTE_INSTEAD]
    #[meant = ROUTE_MEANT]
    struct RouteSpec: "a route" {
        /// The route's identity: its state survives an edit under this name. The name is also the
        /// route's label in metrics and in the log.
        name: Name;
        /// Which requests match. All conditions must hold.
        #[serde(rename = "match")]
        #[help = IN_MATCH_PATH]
        matcher: MatchSpec;
        /// The upstream that gets the requests. Write exactly one of this, `redirect` and
        /// `respond`.
        #[help = "write the name of an upstream; its `servers` have the addresses and the weights"]
        upstream: Name, else "–";
        /// Redirects clients: `https`, a URL, or a map.
        redirect: Box<Either<RedirectTo, RedirectSpec>>, else "–";
        /// Answers requests without an upstream: a status, a map, or `close`.
        respond: Box<Either<AnswerStatus, RespondSpec>>, else "–";
        /// Which clients may use the route, by their address. Checked before the rules.
        access: Box<AccessSpec>, else "all clients";
        /// Which passwords or tokens a client needs. Checked after `access` and before the rules.
        #[help = BASIC]
        auth: Box<AuthSpec>, else "–";
        /// Which scripts of other origins may use the route.
        #[help = CORS]
        cors: Box<CorsSpec>, else "–";
        /// Rules and budgets that decide together: all of them admit and count a request, or none
        /// counts it. At most 16, with those of the file, the listener and the upstream.
        flow: List<RuleSpec>, else "no rules";
        /// Budgets, and rules of the file's or a listener's `flow`, that do not hold for this route.
        exempt_from: Several<Name>, else "none";
        /// Delays admitted requests so that they start evenly.
        pacing: Box<PacingSpec>, else "–";
        /// Sends nothing to a service that fails or is slow, until a few probes succeed.
        breaker: Box<BreakerSpec>, else "–";
        /// Short for `timeouts: { request: … }`.
        timeout: OptionalTimeout, else "–";
        /// Deadlines of the upstream's response.
        timeouts: RouteTimeoutsSpec = {};
        /// Sends a request that a server failed to another server, if that is harmless. Without
        /// `retry`, only requests that no server can have acted on are sent again, and `GET`,
        /// `HEAD` and `OPTIONS` whose connection closed.
        #[help = "write `retry: { attempts: … }`"]
        retry: Box<RetrySpec>, else "–";
        /// The largest body of a request: 413 beyond it.
        body_limit: Size<0, { u64::MAX }>, else "`limits.body`";
        /// The minimum rate of a request's body: 408 below it.
        min_body_rate: ByteRate, else "`limits.min_body_rate`";
        /// Protocols that a client may upgrade to, such as `tcp` or `SPDY/3.1`; `[]` for none. A name without
        /// a version stands for all versions.
        upgrades: Several<Protocol> = "websocket";
        /// Passes paths as written that servers read in different ways and that otherwise get 400:
        /// paths with `%5c`, `%u0061` or `..`; paths with `%2f`, if reading it as a slash leads to
        /// another route or rule; and paths with `;`, if dropping the text after it does. Keeps a
        /// `//` at the beginning.
        relaxed_path: bool = false;
        /// Passes the request trailers that `Trailer` announces to the upstream, except fields that
        /// decide about a request or change how it is handled. Those of gRPC requests pass to HTTP/1.1
        /// servers without it. nginx as an HTTP/2 server ends the connection, with all its requests, at request trailers.
        request_trailers: bool = false;
        /// Changes the path and the host that the upstream receives.
        rewrite: Box<RewriteSpec>, else "–";
        /// Changes the header fields that the upstream receives.
        request_headers: Box<HeaderEditsSpec>, else "–";
        /// Changes the header fields and trailers that the client receives. flowgate's own
        /// responses also get the fields of `set` that they do not have yet. Errors do not get
        /// fields that describe the upstream's content, such as `Cache-Control`.
        response_headers: Box<HeaderEditsSpec>, else "–";
        /// Compresses the upstream's responses, for clients whose `Accept-Encoding` says that they
        /// take that: `true`, or a map.
        compress: Box<Either<bool, CompressSpec>>, else "`false`";
        /// Sends copies of the route's requests to another upstream as well, and drops the responses.
        #[help = MIRROR]
        mirror: Box<MirrorSpec>, else "–";
        /// The response to a rejected client, in place of a problem+json document.
        reject: Box<RejectSpec>, else "–";
        /// The bodies of errors, such as the 502 of an upstream that flowgate cannot reach: the first
        /// entry with the status. A `body` of `reject` comes before them. The upstream's errors pass
        /// as they are, unless `from` says otherwise.
        errors: List<ErrorSpec>, else "problem+json documents";
    }

    /// Deadlines of the upstream's response: 504 before its header; after it, flowgate cuts the
    /// connection. Each is at most 30 days.
    #[instead = ROUTE_TIMEOUTS_INSTEAD]
    struct RouteTimeoutsSpec: "the timeouts of a route" {
        /// From the request's end to the header of the response.
        first_byte: Timeout = "60s";
        /// How long a body may pause, in either direction.
        idle: Timeout = "60s";
        /// How long a response of the type `text/event-stream` may pause, in place of `idle`.
        event_stream: Timeout = "5m";
        /// How long a tunnel, such as a WebSocket, may be silent.
        tunnel: Timeout = "1h";
        /// From the request to the end of the response. `off`: as long as the other timeouts allow.
        /// Tunnels are exempt.
        request: OptionalTimeout = "1h";
    }

    /// Which requests flowgate sends again, and how often. It tries another server first. If a
    /// server may have acted on a request, flowgate repeats it only without a body and with one of
    /// `methods`.
    #[example = "{ attempts: 2 }"]
    struct RetrySpec: "a retry" {
        /// Attempts for one request, the first one included.
        attempts: Integer<1, 10> = 3;
        /// After which failures to retry: no connection (`connect`), a connection that closes
        /// before the response (`reset`), no response within `timeouts.first_byte` (`timeout`), or
        /// a status.
        on: Several<RetryCause>, else "connect, reset, 502, 503, 504";
        /// Methods of requests that may reach servers twice. `POST` and `PATCH` are not allowed.
        methods: Several<MethodName>, else "GET, HEAD, OPTIONS";
        /// The most retries of requests that a server may have processed: this share of the
        /// upstream's requests, plus 10 per second.
        budget: Percent = "20%";
    }

    /// `remove` first, then `set`.
    #[instead = HEADER_EDITS_INSTEAD]
    #[meant = HEADER_EDITS_MEANT]
    struct HeaderEditsSpec: "header edits" {
        /// Fields to write. They replace existing ones, in requests also those with other signs in
        /// their name, such as `X_Real_IP`. Values may have placeholders.
        set: Entries<EditableName, FieldValue>, else "–";
        /// Fields to remove, in requests also those with other signs in their name.
        remove: Several<EditableName>, else "–";
    }

    /// The response to a request that a rule rejected. flowgate adds `Retry-After` and the quota
    /// headers. gRPC requests always get a gRPC status, but with `status: close`.
    struct RejectSpec: "a rejection" {
        /// 400 to 599, or `close`: flowgate ends the connection (in HTTP/2, the stream) without a
        /// response.
        status: RejectStatus, else "429 for a quota, 503 for a full queue or overload";
        /// The body, with placeholders. `{rule}` and `{retry_after}` work only here.
        body: Text, else "a problem+json document";
        /// The type of `body`.
        content_type: FieldValue, else "`application/json` for a body that begins with `{` or `[`, `text/html; charset=utf-8` for `<`, else `text/plain; charset=utf-8`";
    }

    /// The body of errors with some statuses. gRPC requests always get a gRPC status.
    #[example = "{ status: [502, 503, 504], body: We are back soon. }"]
    #[meant = ERROR_MEANT]
    struct ErrorSpec: "an error" {
        /// 400 to 599.
        status: Several<Status>, else "all";
        /// Whose errors get the body: flowgate's own (`flowgate`), the upstream's in place of their
        /// bodies (`upstream`), or `both`.
        from: ErrorsFrom = "flowgate";
        /// The body, with placeholders.
        body: Text;
        /// The type of `body`.
        content_type: FieldValue, else "guessed as for `reject`";
    }
}

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
        /// The certificate that the client has shown, which `tls: { client_ca }` of the listener has
        /// verified: `true` for any, or a map. A client without a certificate does not match.
        client_cert: Either<AnyCertificate, ClientCertSpec>, else "any, or none";
        /// The country of the client's address (with `geo: { country }`), as in `DE`, or any of a list.
        /// An address that the file does not know does not match.
        country: Several<CountryCode>, else "any, or unknown";
        /// The autonomous system of the client's address (with `geo: { asn }`), as in `64500`, or any of
        /// a list. An address that the file does not know does not match.
        asn: Several<AsNumber>, else "any, or unknown";
    }

    /// The parts of a client's certificate that must match.
    #[example = "{ subject: { regex: 'CN=[^,]+,O=Example' } }"]
    #[meant = &[["dn", "subject"], ["sha256", "fingerprint"], ["hash", "fingerprint"]]]
    struct ClientCertSpec: "a client's certificate" {
        /// The distinguished name of its owner, as in `CN=ann,O=Example` (RFC 4514): a text, a list of
        /// texts of which it must equal one, or a map.
        subject: ValueSpec, else "any";
        /// The SHA-256 of the certificate: 64 hexadecimal digits, with colons or without. Or any of a
        /// list.
        fingerprint: Several<Fingerprint>, else "any";
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

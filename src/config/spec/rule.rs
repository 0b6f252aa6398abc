//! Rules, pacing and breakers: how many, counted how, by which key.

use super::{
    AlgorithmWord, Align, BytesWord, ConditionValue, FieldConditions, NetworksSpec, OnDuplicate,
    OnMissing, OnStoreError, PlansSpec, QueueOrder, Scope, ValueSpec,
    keys::keys,
    leaf::{
        AsNumber, ChargedFactor, Condition, CountryCode, Factor, FieldName, FileName, HOUR,
        Integer, JsonPath, KeyPart, MILLI, MemberName, MethodName, MethodOrDefault, Name,
        NumberOrAuto, Part, Path, Pattern, Period, PresetName, Rate, RateOrZero, Refund, SECOND,
        StatusesOrDefault, Text, Thousandths, Zone,
    },
    other_words::rule::{
        IN_RESERVE, IN_SETTLE, PACING_INSTEAD, PACING_MEANT, RULE_INSTEAD, RULE_MEANT,
    },
};
use crate::{
    config::decode::{Either, Entries, List, MarkedMap, MarkedOr, Several},
    route,
};

/// How many per how long, in either form.
pub(in crate::config) type LimitSpec = Either<Rate, RateSpec>;

/// The number of requests that may be in flight, in either form.
pub(in crate::config) type ConcurrencySpec = Either<NumberOrAuto<1, 1_000_000_000>, AutoSpec>;

/// A number of requests per time, in either form, or 0.
pub(in crate::config) type RuleLimitSpec = Either<RateOrZero, RateSpec>;

/// How much a request counts, in one of three forms.
pub(in crate::config) type CostSpec =
    Either<Cost, MarkedOr<SettledCostSpec, Entries<MethodOrDefault, Cost>>>;

/// The largest cost that is settled.
const MOST: u64 = 1_000_000_000_000;

/// How much a request counts until its cost is known.
pub(in crate::config) type ReserveSpec =
    Either<NumberOrAuto<1, MOST>, MarkedOr<ComputedReserveSpec, Entries<MethodOrDefault, Count>>>;

/// Numbers in the body of a request, in either form.
pub(in crate::config) type ReservedJsonSpec =
    Either<MemberName, Entries<MemberName, ChargedFactor>>;

/// The source of a cost that is known after the response, in either form.
pub(in crate::config) type SettlementSpec = Either<PresetName, SettleSpec>;

/// The cost of a response without the numbers that it is read from, in either form.
pub(in crate::config) type OtherwiseSpec = Either<Refund, OtherwiseWeightsSpec>;

/// A cost that is known after the response.
pub(in crate::config) type SettledCost = Integer<0, MOST>;

/// How much a request counts.
pub(in crate::config) type Cost = Integer<1, 1_000_000_000>;

/// The longest wait for a start.
pub(in crate::config) type MaxWait = Period<0, HOUR>;

/// How many requests a window may have.
pub(in crate::config) type Count = Integer<1, 1_000_000_000_000>;

keys! {
    /// How many requests may pass (`limit`), or be in flight (`concurrency`). State survives an
    /// edit under the rule's name, and is converted to new numbers. These edits start the rule
    /// again: another algorithm (`token_bucket` and `leaky_bucket` count as one) or key; adding or
    /// removing `plans`, `sync_interval` or `scope: cluster`; another window of a shared rule.
    #[example = "{ name: total, limit: 100/1s }"]
    #[instead = RULE_INSTEAD]
    #[meant = RULE_MEANT]
    struct RuleSpec: "a rule" {
        /// The rule's identity within its route, in headers, logs and metrics. `pacing` and
        /// `breaker` are reserved for the route's own. Required, except beside `budget`.
        name: Name, else "–";
        /// In a `flow`: the name of one of the `budgets`, which then also decides about these
        /// requests. Write no other key beside it.
        budget: Name, else "–";
        /// In `budgets`: another budget that also decides about each request of this one. Both admit
        /// and count it, or none counts it.
        parent: Name, else "–";
        /// How many requests per time, as in `100/1m`. With `fixed_window` also `/day`, `/week`
        /// (from Monday) or `/month` of the calendar; otherwise a day is 24 hours. `0` rejects all
        /// requests with the reason `closed`. Write either this or `concurrency`.
        limit: RuleLimitSpec, else "–";
        /// How many requests may be in flight at once: a number, or a limit that finds itself (`auto`, or
        /// `{ auto: { min, max } }`). A request that waits in pacing is in flight.
        concurrency: ConcurrencySpec, else "–";
        /// Lets a request that finds no free place wait for one, in place of a rejection (`concurrency`
        /// only).
        queue: Box<QueueSpec>, else "–";
        /// How `limit` is counted. `docs/flow-control.md` says what each algorithm passes at most.
        algorithm: AlgorithmWord = "token_bucket";
        /// How many requests may pass at once: the size of the bucket (`token_bucket` and
        /// `leaky_bucket`).
        burst: Count, else "the limit's count";
        /// Raises the limit slowly while the service is cold; `{}` for the defaults (`token_bucket`
        /// and `pacing`).
        warm_up: Box<WarmUpSpec>, else "–";
        /// The longest wait for an even start. A request that would wait longer is rejected at
        /// once. At most half of the route's `timeouts.request` (`pacing` only).
        max_wait: MaxWait = "500ms";
        /// How many requests may wait, for each key (`pacing` only).
        max_queue: Integer<1, 1_000_000>, else "as many as fit into `max_wait`";
        /// Into how many parts the window is divided (`sliding_window` only).
        buckets: Integer<1, 1000> = 10;
        /// Counts the expiring part of the window fully. Then never more than the limit passes in
        /// any window, and a little less in steady traffic (`sliding_window` only).
        strict: bool = false;
        /// When windows begin (`fixed_window` only).
        align: Align = "clock";
        /// The time zone of the calendar's days, weeks or months, as in `Europe/Berlin`
        /// (`fixed_window` only).
        tz: Zone = "UTC";
        /// What is counted separately: `client_ip`, `host`, `path`, `path:NAME` (the segment that a
        /// template of the route's path names), `method`, `listener`, `user` (with `auth`),
        /// `header:NAME`, `cookie:NAME`, `query:NAME`, `jwt:NAME` (a claim, with `auth: { jwt }`;
        /// dots lead into it, as in `jwt:realm_access.roles`), `auth:NAME` (a field of the auth
        /// service, with `auth: { forward }`), `json:NAME` (a member of the request's JSON body; dots
        /// lead into it, as in `json:options.seed`), `client_cert` (with `client_ca` of a listener),
        /// `country` or `asn` (with `geo`), or a list of them. `route` counts all requests together.
        #[help = "write each part as a text, as in `key: header:x-api-key`"]
        key: Several<KeyPart> = "route";
        /// How many bits of an IPv6 address are one client.
        ipv6_prefix: Integer<1, 128> = 64;
        /// How many bits of an IPv4 address are one client.
        ipv4_prefix: Integer<1, 32> = 32;
        /// Requests without a header, cookie, query field, claim, member, segment or country of `key`: they
        /// share one count (`shared`), are not counted (`skip`), or are rejected (`reject`).
        on_missing_key: OnMissing = "shared";
        /// How a request counts that has a header, cookie, query field or member of `key`, or of an
        /// override's `when`, several times: by its `first` or `last` value, or it is rejected with
        /// 400 (`reject`). Servers differ in the value that they use, so a client could otherwise
        /// choose its count.
        on_duplicate_key: OnDuplicate = "reject";
        /// How many keys are counted separately. This bounds memory. In a full table, a new key
        /// replaces one that has used little; flowgate remembers the usage of the replaced key.
        max_keys: Integer<1, 10_000_000> = 100_000;
        /// The cost of a request: a number, a map by method with `default`, or, if it is known only
        /// after the response, a map with `reserve` and `settle`.
        cost: CostSpec = "1";
        /// Requests that the rule neither rejects nor counts. One matching condition is enough.
        except: Box<ExceptSpec>, else "–";
        /// Other numbers for some requests. The first override whose `when` matches decides in
        /// place of the rule, with its own counts, under the rule's name. Each override counts
        /// among the 16 rules of a route.
        overrides: List<OverrideSpec>, else "none";
        /// Other numbers by the client's plan, with the rule's counts.
        plans: Box<PlansSpec>, else "–";
        /// Requests that may borrow from the next windows (`fixed_window` and `sliding_window`
        /// only).
        priority: Box<PrioritySpec>, else "–";
        /// Rejects a client for this time once it has exceeded the limit, also by a cost that is settled
        /// after the response. Requests meanwhile are rejected with the reason `banned`, count nowhere,
        /// and do not prolong it. Not for `concurrency`, `algorithm: pacing` and `scope: cluster`.
        reject_for: Period<MILLI, { 31 * 24 * HOUR }>, else "–";
        /// Adds a random time up to this one to `Retry-After`, so that clients that were rejected at once
        /// do not come back at once. `Retry-After` is never earlier than the exact time. The access log
        /// and `flowgate explain` have the exact time.
        retry_after_jitter: Period<MILLI, HOUR>, else "–";
        /// Decides and counts, but rejects nothing.
        dry_run: bool = false;
        /// Decides before the [auth service](#routesauthforward) of the route is asked, so that a flood
        /// does not reach the service. Such rules decide together, and what they have counted stays
        /// counted if the service or another rule rejects the request.
        before_auth: bool = false;
        /// Which processes share the count: only this one, or all gateways with the same `store`.
        /// `cluster` is not for `sliding_log`, `algorithm: pacing`, `warm_up` and `priority`.
        scope: Scope = "process";
        /// How a rule with `scope: cluster` decides while the store fails: each gateway counts its
        /// share of the limit (`local`), the rule admits all requests (`allow`), or it rejects all
        /// (`deny`).
        on_store_error: OnStoreError = "local";
        /// How often gateways sync the counts of a rule with `scope: cluster`. Each gateway then
        /// decides at once by the counts that it knows, and together they may admit more than the
        /// limit; `check` prints the bound. Without it, the store decides about every request. Not
        /// for `concurrency` and pacing.
        sync_interval: Period<{ 10 * MILLI }, { 60 * SECOND }>, else "–";
    }

    /// Numbers of the rule that differ for some requests. For missing numbers, the rule's apply.
    struct OverrideSpec: "an override" {
        /// The requests meant: `client_ip`, `country`, `asn` (both with `geo`), `method`, `path_prefix`,
        /// `header:NAME`, `query:NAME`, `user` (with `auth`) and `jwt:NAME` (a claim, with `auth: { jwt
        /// }`): a value, a list of values of which one must match, or, but for the first five, a map.
        /// All conditions must hold.
        /// State survives an edit as long as `when` stays the same.
        when: Entries<Condition, ConditionValue>;
        /// How many requests per time, if the rule has a `limit`; `0` rejects all.
        limit: RuleLimitSpec, else "–";
        /// How many requests may pass at once (`token_bucket` and `leaky_bucket`).
        burst: Count, else "the rule's, or the default for the override's `limit`";
        /// How many requests may be in flight at once, if the rule has `concurrency`.
        concurrency: Integer<1, 1_000_000_000>, else "–";
    }

    /// A limit that finds itself.
    #[example = "{ auto: { min: 4, max: 500 } }"]
    struct AutoSpec: "a limit that finds itself" {
        /// The bounds of the limit; `{}` for the defaults.
        auto: Box<AutoBoundsSpec>;
    }

    /// The bounds of a limit that finds itself. It begins at `min`, but at least at 2, and doubles
    /// while the throughput follows. `docs/overload.md` says how it goes on.
    #[example = "{ min: 4, max: 500 }"]
    struct AutoBoundsSpec: "the bounds of a limit" {
        /// The lowest limit.
        min: Integer<1, 1_000_000> = 1;
        /// The highest limit. No request may cost more.
        max: Integer<1, 1_000_000> = 1000;
    }

    /// A queue for free places of a rule with `concurrency`. A request that finds none waits until
    /// another one has ended. All other rules count it when it arrives; if it does not start, they get
    /// that back. A request that cannot wait, or has waited for too long, is rejected with the reason
    /// `queue`. Each override has a queue of its own.
    #[example = "{ max_wait: 2s, max: 1000 }"]
    struct QueueSpec: "a queue" {
        /// The longest wait, counted from the arrival of the request: at most half of the shortest
        /// `timeouts.request` of the routes whose requests wait here.
        max_wait: Period<MILLI, HOUR> = "500ms";
        /// How many requests may wait, of all keys together.
        max: Integer<1, 1_000_000> = 1000;
        /// Between whose requests the places are shared fairly while they wait: the parts of a key, as in
        /// `header:x-tenant`. Each value takes its turn; of one value, the first request starts first.
        /// Requests without it share as one value.
        share_by: Several<KeyPart>, else "none: in the order of arrival";
        /// The weights of values of `share_by`: one with weight 4 starts four times as many requests.
        weights: Entries<Text, Integer<1, 1000>>, else "1 for each";
        /// The weights by the plan of a request, for values that `weights` does not name.
        plans: Box<QueuePlansSpec>, else "–";
        /// Classes of requests: all that wait of a class start before those of later ones.
        classes: Box<ClassesSpec>, else "–";
        /// The order of requests with one value of `share_by`: always the first that came (`fair`), or the
        /// newest one once the first has waited for longer than half of `max_wait` (`lifo_when_late`).
        order: QueueOrder = "fair";
    }

    /// The weights of the values of `share_by` by plan.
    #[example = "{ by: jwt:plan, weights: { gold: 4, silver: 2 } }"]
    struct QueuePlansSpec: "plans" {
        /// The part of a key that names the plan of a request.
        by: KeyPart;
        /// The weight of each plan. A request with another plan, or with none, weighs 1.
        weights: Entries<Text, Integer<1, 1000>>;
    }

    /// Classes of requests in a queue.
    #[example = "{ by: header:x-class, first_to_last: [interactive, batch], floor: 5% }"]
    struct ClassesSpec: "classes" {
        /// The part of a key that names the class of a request.
        by: KeyPart;
        /// The names of the classes, at most 16; the requests of the first start first. A request with
        /// another class, or with none, is of the last.
        first_to_last: List<Text>;
        /// The least share of the last class while it waits, so that it does not stand still.
        floor: Part = "5%";
    }

    /// A cost that is known only after the response. A request is charged its reserve when it is
    /// admitted, and the difference when the response has ended. What a request costs more is a debt:
    /// later requests pass when it is paid. Not for `concurrency`, `algorithm: pacing` and `priority`.
    #[example = "{ reserve: 1, settle: { status: { 401: 1, default: 0 } } }"]
    #[instead = &[["default", IN_RESERVE], ["GET", IN_RESERVE], ["POST", IN_RESERVE], ["status", IN_SETTLE]]]
    #[meant = &[["estimate", "reserve"], ["settlement", "settle"]]]
    struct SettledCostSpec: "a cost that is settled" {
        /// The cost of a request until it is known: a number, a map by method with `default`, `auto`,
        /// or a map with `request_bytes`, `json` and `plus`. `auto` is what 95 % of the rule's latest 1,000
        /// costs did not exceed, of all keys together, and 1 before the first. A number may be at
        /// most the limit or the burst; what is computed is cut to it.
        reserve: ReserveSpec = 1;
        /// The source of the final cost. A map, or an API whose responses have the number of tokens
        /// (`openai`, `openai_responses`, `anthropic`, `gemini` or `ollama`). If the cost is not known
        /// at the end, the reserve stays charged. If the upstream fails before its response begins, all
        /// of it is given back.
        settle: SettlementSpec;
        /// Charges during responses. The end corrects the total. For costs by `json` or an API,
        /// `bytes` and `time`. With `scope: cluster` it needs `sync_interval`.
        settle_while_streaming: bool = false;
    }

    /// The source of a cost that is known after the response.
    #[example = "{ status: { 401: 1, default: 0 } }"]
    struct SettleSpec: "a settlement" {
        /// The cost by the status of the response: a status or a range of statuses, as in
        /// `'500-599'`, and `default` for all others. The narrowest range decides. A status that is
        /// not listed keeps the reserve.
        status: Entries<StatusesOrDefault, SettledCost>, else "–";
        /// The weighted sum of numbers in the response's JSON body: the path of each number, with
        /// dots between the names of members, and its factor. Of each path, the last value in the
        /// body counts. The body may be JSON, lines of JSON, or `text/event-stream`, also in gzip.
        json: Entries<JsonPath, Factor>, else "–";
        /// The cost of a response without any of these numbers, such as a stream that the client has
        /// left: a weighted sum of what has passed, at least the reserve. With `refund`, a response
        /// that is not streamed costs nothing then.
        otherwise: OtherwiseSpec, else "the reserve";
        /// The cost is the decimal number in this header field of the response, rounded up. Anything
        /// else keeps the reserve.
        header: FieldName, else "–";
        /// The cost is the decimal number in this trailer field of the response, rounded up.
        trailer: FieldName, else "–";
        /// The cost is the number of bytes in the bodies that pass: of the `request`, of the
        /// `response`, or of `both`.
        bytes: BytesWord, else "–";
        /// The cost is the time from the start of the request to the end of its response, in this
        /// unit, rounded up: with `1ms` it is in milliseconds.
        time: Period<1_000, HOUR>, else "–";
    }

    /// The weighted sum of what has passed. It is at least the reserve.
    #[example = "{ request_bytes: 0.25, events: 1 }"]
    struct OtherwiseWeightsSpec: "weights" {
        /// The factor of each byte of the request's body.
        request_bytes: ChargedFactor, else "0";
        /// The factor of each byte of the response's body.
        response_bytes: ChargedFactor, else "0";
        /// The factor of each event of `text/event-stream`, each line of NDJSON, and each object in an
        /// array.
        events: ChargedFactor, else "0";
    }

    /// A reserve that is computed for each request: the weighted length of its body, numbers in it and
    /// `plus`, rounded up once, and cut to the limit or the burst.
    #[example = "{ request_bytes: 0.25, plus: auto }"]
    struct ComputedReserveSpec: "a computed reserve" {
        /// The weight of each byte of the request's body, with at most three decimals. A body without
        /// `Content-Length` counts as empty.
        request_bytes: Thousandths, else "0";
        /// A number in the request's JSON body, as in `max_tokens`. Dots lead into it. Or a map of such
        /// names, each with its factor. Of a repeated member, the larger one of the first and the last
        /// counts. The body is held back as for `key: json:NAME`.
        json: ReservedJsonSpec, else "–";
        /// The number in place of `json` if the body has none, or `auto`. If it lacks any of several, at
        /// least this number is reserved. `auto` is what 95 % of the
        /// rule's latest 1,000 costs did not exceed, without what `request_bytes` and `plus` knew of them.
        otherwise: NumberOrAuto<0, MOST>, else "`auto`";
        /// A number, or `auto`: what 95 % of the rule's latest 1,000 costs did not exceed, without what
        /// `request_bytes` knew of them. `auto` is not for a reserve with `json`.
        plus: NumberOrAuto<0, MOST> = 0;
    }

    /// Write exactly one of the keys.
    struct ConditionSpec: "a condition" {
        /// The whole value of the field, or a list of values.
        equals: Several<Text>, else "–";
        /// A regular expression that the whole value of the field must match.
        regex: Pattern, else "–";
        /// `true`: the field must be present, with any value.
        present: bool, else "–";
        /// For `client_ip`: a file with one network or address a line, as in [`access`](#routesaccess).
        file: FileName, else "–";
    }

    /// The long form of `100/1m`.
    struct RateSpec: "a rate" {
        /// How many requests.
        requests: Count;
        /// In which time.
        window: Period<1, { 366 * 24 * HOUR }>;
    }

    /// Each matching condition exempts a request.
    struct ExceptSpec: "an exception" {
        /// Clients with these addresses or networks.
        client_ip: NetworksSpec, else "none";
        /// Clients with addresses in these countries (with `geo: { country }`).
        country: Several<CountryCode>, else "none";
        /// Clients with addresses of these autonomous systems (with `geo: { asn }`).
        asn: Several<AsNumber>, else "none";
        /// Requests with one of these methods.
        method: Several<MethodName>, else "none";
        /// Requests with these path prefixes, by whole segments.
        path_prefix: Several<Path>, else "none";
        /// Requests with one of these header fields. Clients can send any field: use this behind a
        /// proxy that removes the field.
        header: FieldConditions<FieldName>, else "none";
        /// Requests with one of these users, which `auth` has verified: a name, a list of names, or
        /// a map.
        user: ValueSpec, else "none";
        /// Requests whose token has one of these claims, as in `jwt: { plan: [gold, silver] }`. It
        /// needs `auth: { jwt }`. Of a claim that is a list, one value is enough.
        jwt: FieldConditions<Text>, else "none";
    }

    /// After a pause, a service gets the limit divided by `cold_factor`. The limit grows to its
    /// whole value in about `period` of load without a pause. The service is cold again after about
    /// `2 × period / (1 + cold_factor)` of silence.
    struct WarmUpSpec: "a warm-up" {
        /// How long it takes to warm up.
        period: Period<MILLI, HOUR> = "10s";
        /// By what number the limit is divided for a cold service.
        cold_factor: Integer<2, 1000> = 3;
    }

    /// A request with priority that exceeds the limit waits for a window, or a bucket of one, with
    /// room. It counts there, and no other request gets what it borrowed. Clients can send any
    /// field: use this behind a proxy that removes the field, or for clients that you trust.
    struct PrioritySpec: "a priority" {
        /// The header field that gives priority.
        header: FieldName;
        /// The value that the field must have.
        equals: Text, else "any";
        /// The longest wait. A request that would wait longer is rejected. At most half of the
        /// route's `timeouts.request`.
        max_wait: Period<MILLI, HOUR> = "500ms";
    }

    /// Delays requests so that they start evenly, one interval apart, in the order of arrival.
    /// Requests that would wait too long are rejected. A rule with `algorithm: pacing`, which calls
    /// the rate `limit`, also has `key`, `cost`, `except`, `overrides` and `dry_run`.
    #[instead = PACING_INSTEAD]
    #[meant = PACING_MEANT]
    struct PacingSpec: "pacing" {
        /// How many starts per time; `100/1s` is one every 10 ms.
        rate: LimitSpec;
        /// The longest wait, at most half of the route's `timeouts.request`. A request that would
        /// wait longer is rejected at once. With 0, no request waits: those that come too early are
        /// rejected.
        max_wait: MaxWait = "500ms";
        /// How many requests may wait.
        max_queue: Integer<1, 1_000_000>, else "as many as fit into `max_wait`";
        /// Longer intervals while the service is cold; `{}` for the defaults.
        warm_up: Box<WarmUpSpec>, else "–";
        /// Whose starts are spaced: those of this process, or of all gateways with the same
        /// `store`.
        scope: Scope = "process";
        /// How pacing with `scope: cluster` decides while the store fails, as for a rule.
        on_store_error: OnStoreError = "local";
    }
}

impl MarkedMap for SettledCostSpec {
    const NAME: &'static str = "$settled";
}

impl MarkedMap for ComputedReserveSpec {
    const NAME: &'static str = "$computed";
}

impl From<OnDuplicate> for route::OnDuplicate {
    fn from(word: OnDuplicate) -> Self {
        match word {
            OnDuplicate::First => Self::First,
            OnDuplicate::Last => Self::Last,
            OnDuplicate::Reject => Self::Reject,
        }
    }
}

keys! {
    /// Counts responses. A 5xx of the upstream is a failure, and so is a 502 or 504 of flowgate in
    /// its place; a 4xx is not. One of `error_ratio`, `slow_ratio` and `errors` is required. While
    /// the breaker is open, requests get 503 with the exact `Retry-After`. Then `probes` requests
    /// pass, and the breaker closes if all of them succeed.
    #[instead = &[["key", ANOTHER_ROUTE], ["overrides", ANOTHER_ROUTE], ["except", ANOTHER_ROUTE], ["cost", "remove it: a response counts as one, whatever its request's cost"], ["scope", "remove it: each gateway learns from the answers that it sees"]]]
    struct BreakerSpec: "a breaker" {
        /// Opens when more than this share of the responses in `window` are failures; with 1, when
        /// all are.
        error_ratio: Part, else "–";
        /// A response is slow if flowgate waits longer than this for its header. The request's
        /// wait in pacing does not count, and neither does the time that its body takes.
        slow_after: Period<1_000, { 24 * HOUR }>, else "–";
        /// Opens when more than this share of the responses in `window` are slow; with 1, when all
        /// are.
        slow_ratio: Part, else "–";
        /// Opens at this many failures in `window`.
        errors: Integer<1, 1_000_000_000>, else "–";
        /// The fewest responses in `window` with which it opens.
        min_requests: Integer<1, 1_000_000_000>, else "20; 1 with `errors` alone";
        /// How long a response counts, within the length of a bucket.
        window: Period<{ 10 * MILLI }, HOUR> = "10s";
        /// Into how many parts the window is divided. They follow the clock.
        buckets: Integer<1, 1000> = 10;
        /// How long it stays open before it lets probes through.
        open_for: Period<MILLI, { 24 * HOUR }> = "5s";
        /// How many requests pass as probes. If all succeed, it closes. If one fails, it opens
        /// again.
        probes: Integer<1, 1000> = 3;
        /// Decides and counts, but rejects nothing.
        dry_run: bool = false;
    }
}

const ANOTHER_ROUTE: &str = "write a separate route for those requests, to the same upstream: a breaker applies to its whole route";

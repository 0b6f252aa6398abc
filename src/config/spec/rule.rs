//! Rules and pacing: how many, counted how, for whom.

use super::{
    AlgorithmWord, Align, FieldConditions, FieldSpec, OnDuplicate, OnMissing, OnStoreError, Scope,
    leaf::{
        Condition, FieldName, HOUR, Integer, KeyPart, MILLI, MethodName, MethodOrDefault, Name,
        Network, Path, Period, Rate, SECOND, Text, Zone,
    },
};
use crate::{
    config::decode::{Either, Entries, Key, List, Several},
    route,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// How many per how long, in either form.
pub(in crate::config) type LimitSpec = Either<Rate, RateSpec>;

/// How much a request counts, in either form.
pub(in crate::config) type CostSpec = Either<Cost, Entries<MethodOrDefault, Cost>>;

/// How much a request counts.
pub(in crate::config) type Cost = Integer<1, 1_000_000_000>;

/// The longest wait for a start.
pub(in crate::config) type MaxWait = Period<0, HOUR>;

/// How many requests a window may have.
pub(in crate::config) type Count = Integer<1, 1_000_000_000_000>;

/// How many requests may pass or, paced, start (`limit`), or be in flight (`concurrency`). State
/// survives an edit under the rule's name: new numbers are converted, another algorithm or key
/// begins afresh (`token_bucket` and `leaky_bucket` are one), as does a rule that gets or loses
/// `sync_interval` or `scope: cluster`, or one that gateways share with another window.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "a rule")]
pub(in crate::config) struct RuleSpec {
    /// The rule's identity within its route, in headers, logs and metrics; `pacing` and `breaker`
    /// are the route's own.
    pub name: Key<Name>,
    /// How many per how long, as in `100/1m`. With `fixed_window` also `/day`, `/week` (from
    /// Monday) or `/month` of the calendar; elsewhere a day is 24 hours. Either this or
    /// `concurrency`.
    #[serde(default)]
    pub limit: Key<LimitSpec>,
    /// How many in flight at once; a request that waits in pacing is in flight.
    #[serde(default)]
    pub concurrency: Key<Integer<1, 1_000_000_000>>,
    /// How `limit` is counted; see the promises below.
    #[serde(default)]
    #[schemars(extend("default" = "token_bucket"))]
    pub algorithm: Key<AlgorithmWord>,
    /// How many may pass at once: the size of the bucket (`token_bucket` and `leaky_bucket`).
    #[serde(default)]
    #[schemars(extend("x-default" = "the limit's count"))]
    pub burst: Key<Count>,
    /// A limit that grows while the service is cold; `{}` for the defaults (`token_bucket` and
    /// `pacing`).
    #[serde(default)]
    pub warm_up: Key<Box<WarmUpSpec>>,
    /// The longest wait for an even start; what would wait longer is rejected at once. No longer
    /// than half of the route's `timeouts.request` (`pacing` only).
    #[serde(default)]
    #[schemars(extend("default" = "500ms"))]
    pub max_wait: Key<MaxWait>,
    /// How many may wait, for each key (`pacing` only).
    #[serde(default)]
    #[schemars(extend("x-default" = "as many as fit into `max_wait`"))]
    pub max_queue: Key<Integer<1, 1_000_000>>,
    /// Into how many parts the window is cut (`sliding_window` only).
    #[serde(default)]
    #[schemars(extend("default" = 10))]
    pub buckets: Key<Integer<1, 1000>>,
    /// Counts the expiring part of the window whole: never more than the limit in any window, a
    /// little less in steady traffic (`sliding_window` only).
    #[serde(default)]
    #[schemars(extend("default" = false))]
    pub strict: Key<bool>,
    /// When windows begin (`fixed_window` only).
    #[serde(default)]
    #[schemars(extend("default" = "clock"))]
    pub align: Key<Align>,
    /// The time zone whose days, weeks or months are counted in, as in `Europe/Berlin`
    /// (`fixed_window` only).
    #[serde(default)]
    #[schemars(extend("default" = "UTC"))]
    pub tz: Key<Zone>,
    /// What is counted separately: `client_ip`, `host`, `path`, `method`, `header:NAME`,
    /// `cookie:NAME`, `query:NAME`, or a list of them; `route` counts all together.
    #[serde(default)]
    #[schemars(extend("default" = "route"))]
    pub key: Key<Several<KeyPart>>,
    /// How much of an IPv6 address is one client.
    #[serde(default)]
    #[schemars(extend("default" = 64))]
    pub ipv6_prefix: Key<Integer<1, 128>>,
    /// A request without the header, cookie or query field of `key`: all such share one count, or
    /// are not counted, or are rejected.
    #[serde(default)]
    #[schemars(extend("default" = "shared"))]
    pub on_missing_key: Key<OnMissing>,
    /// A request with a header, cookie or query field of `key`, or of `when` in an override,
    /// several times: its first or its last value counts, or it is rejected with 400. Servers
    /// differ in which one they take, so that a client could count under a name of its choice.
    #[serde(default)]
    #[schemars(extend("default" = "reject"))]
    pub on_duplicate_key: Key<OnDuplicate>,
    /// How many keys are held apart. Memory is bounded by it; when all places are taken, a new key
    /// takes that of one that used little, whose use is remembered.
    #[serde(default)]
    #[schemars(extend("default" = 100_000))]
    pub max_keys: Key<Integer<1, 10_000_000>>,
    /// How much a request counts: a number, or a map by method with `default`.
    #[serde(default)]
    #[schemars(extend("default" = "1"))]
    pub cost: Key<CostSpec>,
    /// Requests that the rule neither rejects nor counts; any of what is written.
    #[serde(default)]
    pub except: Key<Box<ExceptSpec>>,
    /// Other numbers for some requests. The first whose `when` fits is asked in place of the rule,
    /// with counts of its own, under the rule's name. Each counts among the 16 rules of a route.
    #[serde(default)]
    #[schemars(extend("x-default" = "none"))]
    pub overrides: Key<List<OverrideSpec>>,
    /// Requests that may borrow from the windows to come (`fixed_window` and `sliding_window`
    /// only).
    #[serde(default)]
    pub priority: Key<Box<PrioritySpec>>,
    /// Decides and counts, and rejects nothing.
    #[serde(default)]
    #[schemars(extend("default" = false))]
    pub dry_run: Key<bool>,
    /// Who shares the count: this process, or all gateways with the same `store`.
    #[serde(default)]
    #[schemars(extend("default" = "process"))]
    pub scope: Key<Scope>,
    /// What holds while the store fails, for `scope: cluster`: an own count with the limit divided
    /// by the gateways, no limit, or rejection.
    #[serde(default)]
    #[schemars(extend("default" = "local"))]
    pub on_store_error: Key<OnStoreError>,
    /// How often gateways exchange counts, for `scope: cluster`: each decides at once by its own,
    /// and together they may let more pass than the limit, as `check` shows. Without it the store
    /// decides about every request. Not for `concurrency`.
    #[serde(default)]
    pub sync_interval: Key<Period<{ 10 * MILLI }, { 60 * SECOND }>>,
}

/// Numbers of the rule that differ for some requests. What is not written is the rule's.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "an override")]
pub(in crate::config) struct OverrideSpec {
    /// Which requests: `client_ip`, `method` and `path_prefix` (a value, or a list of which one
    /// must fit), `header:NAME` and `query:NAME` (a text, or a map). All that is written must hold;
    /// state survives an edit as long as it stays the same.
    pub when: Key<Entries<Condition, Either<Several<Text>, FieldSpec>>>,
    /// How many per how long, if the rule has a `limit`.
    #[serde(default)]
    pub limit: Key<LimitSpec>,
    /// How many may pass at once (`token_bucket` and `leaky_bucket`).
    #[serde(default)]
    #[schemars(extend("x-default" = "the rule's, or the default for the override's `limit`"))]
    pub burst: Key<Count>,
    /// How many in flight at once, if the rule has `concurrency`.
    #[serde(default)]
    pub concurrency: Key<Integer<1, 1_000_000_000>>,
}

/// The long form of `100/1m`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "a rate")]
pub(in crate::config) struct RateSpec {
    /// How many.
    pub requests: Key<Count>,
    /// Per how long.
    pub window: Key<Period<1, { 366 * 24 * HOUR }>>,
}

/// Any one of them exempts a request.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "an exception")]
pub(in crate::config) struct ExceptSpec {
    /// Clients, by address or network.
    #[serde(default)]
    #[schemars(extend("x-default" = "none"))]
    pub client_ip: Key<Several<Network>>,
    /// Requests with one of these methods.
    #[serde(default)]
    #[schemars(extend("x-default" = "none"))]
    pub method: Key<Several<MethodName>>,
    /// Beginnings of paths, by whole segments.
    #[serde(default)]
    #[schemars(extend("x-default" = "none"))]
    pub path_prefix: Key<Several<Path>>,
    /// Header fields; any one that holds. Clients can send what they like: use it behind a proxy
    /// that removes the field.
    #[serde(default)]
    #[schemars(extend("x-default" = "none"))]
    pub header: Key<FieldConditions<FieldName>>,
}

/// A service that has idled gets the limit divided by `cold_factor` at first, and the whole of it
/// when it has been asked for `period` without a pause. It is cold again after twice the period
/// divided by `1 + cold_factor` of silence.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "a warm-up")]
pub(in crate::config) struct WarmUpSpec {
    /// How long it takes to warm up.
    #[serde(default)]
    #[schemars(extend("default" = "10s"))]
    pub period: Key<Period<MILLI, HOUR>>,
    /// How much less a cold service gets.
    #[serde(default)]
    #[schemars(extend("default" = 3))]
    pub cold_factor: Key<Integer<2, 1000>>,
}

/// A request with priority that is over the limit waits until a window, or a bucket of one, opens
/// in which it fits, and is counted there; no other gets what it borrowed. Clients can send what
/// they like: use it behind a proxy that removes the field, or for clients you trust.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "a priority")]
pub(in crate::config) struct PrioritySpec {
    /// The header field that gives it.
    pub header: Key<FieldName>,
    /// The value that the field must have.
    #[serde(default)]
    #[schemars(extend("x-default" = "any"))]
    pub equals: Key<Text>,
    /// The longest wait; what would wait longer is rejected. No longer than half of the route's
    /// `timeouts.request`.
    #[serde(default)]
    #[schemars(extend("default" = "500ms"))]
    pub max_wait: Key<Period<MILLI, HOUR>>,
}

/// Holds requests so that they start evenly, one interval apart, first come first served; rejects
/// those that would wait too long.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "pacing", extend("x-instead" = [["key", PACING_RULE], ["cost", PACING_RULE], ["except", PACING_RULE], ["overrides", PACING_RULE], ["dry_run", PACING_RULE]]))]
pub(in crate::config) struct PacingSpec {
    /// How many starts per how long; `100/1s` is one every 10 ms.
    pub rate: Key<LimitSpec>,
    /// The longest wait, no longer than half of the route's `timeouts.request`; what would wait
    /// longer is rejected at once. With 0 nothing waits: starts are spaced by rejecting.
    #[serde(default)]
    #[schemars(extend("default" = "500ms"))]
    pub max_wait: Key<MaxWait>,
    /// How many may wait.
    #[serde(default)]
    #[schemars(extend("x-default" = "as many as fit into `max_wait`"))]
    pub max_queue: Key<Integer<1, 1_000_000>>,
    /// Starts further apart while the service is cold; `{}` for the defaults.
    #[serde(default)]
    pub warm_up: Key<Box<WarmUpSpec>>,
    /// Whose starts are evened out: this process's, or those of all gateways with the same `store`.
    #[serde(default)]
    #[schemars(extend("default" = "process"))]
    pub scope: Key<Scope>,
    /// What holds while the store fails, for `scope: cluster`; as for a rule.
    #[serde(default)]
    #[schemars(extend("default" = "local"))]
    pub on_store_error: Key<OnStoreError>,
}

const PACING_RULE: &str = "write a rule with `algorithm: pacing`, under `flow`: the route's own pacing is of all its requests";

impl From<OnDuplicate> for route::OnDuplicate {
    fn from(word: OnDuplicate) -> Self {
        match word {
            OnDuplicate::First => Self::First,
            OnDuplicate::Last => Self::Last,
            OnDuplicate::Reject => Self::Reject,
        }
    }
}

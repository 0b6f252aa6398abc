//! Rules and pacing: how many, counted how, by which key.

use super::{
    AlgorithmWord, Align, FieldConditions, FieldSpec, OnDuplicate, OnMissing, OnStoreError, Scope,
    keys::keys,
    leaf::{
        Condition, FieldName, HOUR, Integer, KeyPart, MILLI, MethodName, MethodOrDefault, Name,
        Network, Path, Period, Rate, SECOND, Text, Zone,
    },
};
use crate::{
    config::decode::{Either, Entries, List, Several},
    route,
};

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

keys! {
    /// How many requests may pass or, paced, start (`limit`), or be in flight (`concurrency`).
    /// State survives an edit under the rule's name: new numbers are converted, another algorithm
    /// or key begins afresh (`token_bucket` and `leaky_bucket` are one), as does a rule that gets
    /// or loses `sync_interval` or `scope: cluster`, or one that gateways share with another
    /// window.
    #[cfg_attr(test, schemars(extend(
        "x-instead" = [["window", IN_LIMIT], ["period", IN_LIMIT], ["interval", IN_LIMIT], ["requests", IN_LIMIT], ["status", IN_REJECT], ["body", IN_REJECT], ["reject", IN_REJECT]],
        "x-meant" = [["rate", "limit"], ["per", "key"], ["by", "key"]]
    )))]
    struct RuleSpec: "a rule" {
        /// The rule's identity within its route, in headers, logs and metrics; `pacing` and
        /// `breaker` are the route's own.
        name: Name;
        /// How many per how long, as in `100/1m`. With `fixed_window` also `/day`, `/week` (from
        /// Monday) or `/month` of the calendar; elsewhere a day is 24 hours. Either this or
        /// `concurrency`.
        limit: LimitSpec, else "–";
        /// How many in flight at once; a request that waits in pacing is in flight.
        concurrency: Integer<1, 1_000_000_000>, else "–";
        /// How `limit` is counted; see the promises below.
        algorithm: AlgorithmWord = "token_bucket";
        /// How many may pass at once: the size of the bucket (`token_bucket` and `leaky_bucket`).
        burst: Count, else "the limit's count";
        /// A limit that grows while the service is cold; `{}` for the defaults (`token_bucket` and
        /// `pacing`).
        warm_up: Box<WarmUpSpec>, else "–";
        /// The longest wait for an even start; what would wait longer is rejected at once. No
        /// longer than half of the route's `timeouts.request` (`pacing` only).
        max_wait: MaxWait = "500ms";
        /// How many may wait, for each key (`pacing` only).
        max_queue: Integer<1, 1_000_000>, else "as many as fit into `max_wait`";
        /// Into how many parts the window is cut (`sliding_window` only).
        buckets: Integer<1, 1000> = 10;
        /// Counts the expiring part of the window whole: never more than the limit in any window, a
        /// little less in steady traffic (`sliding_window` only).
        strict: bool = false;
        /// When windows begin (`fixed_window` only).
        align: Align = "clock";
        /// The time zone whose days, weeks or months are counted in, as in `Europe/Berlin`
        /// (`fixed_window` only).
        tz: Zone = "UTC";
        /// What is counted separately: `client_ip`, `host`, `path`, `method`, `user` (of `auth`),
        /// `header:NAME`, `cookie:NAME`, `query:NAME`, `jwt:NAME` (a claim, of `auth: { jwt }`), or a
        /// list of them; `route` counts all together.
        key: Several<KeyPart> = "route";
        /// How much of an IPv6 address is one client.
        ipv6_prefix: Integer<1, 128> = 64;
        /// A request without the header, cookie or query field of `key`: all such share one count,
        /// or are not counted, or are rejected.
        on_missing_key: OnMissing = "shared";
        /// A request with a header, cookie or query field of `key`, or of `when` in an override,
        /// several times: its first or its last value counts, or it is rejected with 400. Servers
        /// differ in which one they take, so that a client could count under a name of its choice.
        on_duplicate_key: OnDuplicate = "reject";
        /// How many keys are held apart. Memory is bounded by it; when all places are taken, a new
        /// key takes that of one that used little, whose use is remembered.
        max_keys: Integer<1, 10_000_000> = 100_000;
        /// How much a request counts: a number, or a map by method with `default`.
        cost: CostSpec = "1";
        /// Requests that the rule neither rejects nor counts; any of what is written.
        except: Box<ExceptSpec>, else "–";
        /// Other numbers for some requests. The first whose `when` fits is asked in place of the
        /// rule, with counts of its own, under the rule's name. Each counts among the 16 rules of a
        /// route.
        overrides: List<OverrideSpec>, else "none";
        /// Requests that may borrow from the windows to come (`fixed_window` and `sliding_window`
        /// only).
        priority: Box<PrioritySpec>, else "–";
        /// Decides and counts, and rejects nothing.
        dry_run: bool = false;
        /// Who shares the count: this process, or all gateways with the same `store`.
        scope: Scope = "process";
        /// What holds while the store fails, for `scope: cluster`: an own count with the limit
        /// divided by the gateways, no limit, or rejection.
        on_store_error: OnStoreError = "local";
        /// How often gateways sync counts, for `scope: cluster`: each decides at once by its
        /// own, and together they may let more pass than the limit, as `check` shows. Without it
        /// the store decides about every request. Not for `concurrency`.
        sync_interval: Period<{ 10 * MILLI }, { 60 * SECOND }>, else "–";
    }

    /// Numbers of the rule that differ for some requests. What is not written is the rule's.
    struct OverrideSpec: "an override" {
        /// Which requests: `client_ip`, `method` and `path_prefix` (a value, or a list of which one
        /// must fit), `header:NAME` and `query:NAME` (a text, or a map). All that is written must
        /// hold; state survives an edit as long as it stays the same.
        when: Entries<Condition, Either<Several<Text>, FieldSpec>>;
        /// How many per how long, if the rule has a `limit`.
        limit: LimitSpec, else "–";
        /// How many may pass at once (`token_bucket` and `leaky_bucket`).
        burst: Count, else "the rule's, or the default for the override's `limit`";
        /// How many in flight at once, if the rule has `concurrency`.
        concurrency: Integer<1, 1_000_000_000>, else "–";
    }

    /// The long form of `100/1m`.
    struct RateSpec: "a rate" {
        /// How many.
        requests: Count;
        /// Per how long.
        window: Period<1, { 366 * 24 * HOUR }>;
    }

    /// Any one of them exempts a request.
    struct ExceptSpec: "an exception" {
        /// Clients, by address or network.
        client_ip: Several<Network>, else "none";
        /// Requests with one of these methods.
        method: Several<MethodName>, else "none";
        /// Beginnings of paths, by whole segments.
        path_prefix: Several<Path>, else "none";
        /// Header fields; any one that holds. Clients can send what they like: use it behind a
        /// proxy that removes the field.
        header: FieldConditions<FieldName>, else "none";
    }

    /// A service that has idled gets the limit divided by `cold_factor` at first, and the whole of
    /// it when it has been asked for `period` without a pause. It is cold again after twice the
    /// period divided by `1 + cold_factor` of silence.
    struct WarmUpSpec: "a warm-up" {
        /// How long it takes to warm up.
        period: Period<MILLI, HOUR> = "10s";
        /// How much less a cold service gets.
        cold_factor: Integer<2, 1000> = 3;
    }

    /// A request with priority that is over the limit waits until a window, or a bucket of one,
    /// opens in which it fits, and is counted there; no other gets what it borrowed. Clients can
    /// send what they like: use it behind a proxy that removes the field, or for clients you trust.
    struct PrioritySpec: "a priority" {
        /// The header field that gives it.
        header: FieldName;
        /// The value that the field must have.
        equals: Text, else "any";
        /// The longest wait; what would wait longer is rejected. No longer than half of the route's
        /// `timeouts.request`.
        max_wait: Period<MILLI, HOUR> = "500ms";
    }

    /// Holds requests so that they start evenly, one interval apart, first come first served;
    /// rejects those that would wait too long.
    #[cfg_attr(test, schemars(extend("x-instead" = [["key", PACING_RULE], ["cost", PACING_RULE], ["except", PACING_RULE], ["overrides", PACING_RULE], ["dry_run", PACING_RULE]])))]
    struct PacingSpec: "pacing" {
        /// How many starts per how long; `100/1s` is one every 10 ms.
        rate: LimitSpec;
        /// The longest wait, no longer than half of the route's `timeouts.request`; what would wait
        /// longer is rejected at once. With 0 nothing waits: starts are spaced by rejecting.
        max_wait: MaxWait = "500ms";
        /// How many may wait.
        max_queue: Integer<1, 1_000_000>, else "as many as fit into `max_wait`";
        /// Starts further apart while the service is cold; `{}` for the defaults.
        warm_up: Box<WarmUpSpec>, else "–";
        /// Whose starts are evened out: this process's, or those of all gateways with the same
        /// `store`.
        scope: Scope = "process";
        /// What holds while the store fails, for `scope: cluster`; as for a rule.
        on_store_error: OnStoreError = "local";
    }
}

#[cfg(test)]
const IN_LIMIT: &str = "write it in `limit`: how many per how long, as in `limit: 100/1m`";

#[cfg(test)]
const IN_REJECT: &str = "write it for the whole route, beside `flow`: `reject: { status: 503 }`";

#[cfg(test)]
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

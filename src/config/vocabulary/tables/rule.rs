//! Rules and pacing: how many, counted how, for whom.

use super::{ALGORITHMS, foreign, integer, key, route::FIELD, word};
use crate::config::vocabulary::{
    Default::{Absent, Required, Value, Words},
    Kind, Section,
};
use std::time::Duration;

/// One rule.
pub(in crate::config) static RULE: Section = Section {
    title: "a rule",
    doc: "How many requests may pass or, paced, start (`limit`), or be in flight (`concurrency`). State survives an edit under the rule's name: new numbers are converted, another algorithm or key begins afresh (`token_bucket` and `leaky_bucket` are one), as does a rule that gets or loses `sync_interval` or `scope: cluster`, or one that gateways share with another window.",
    keys: &[
        key(
            "name",
            Kind::Name,
            Required,
            "The rule's identity within its route, in headers, logs and metrics; `pacing` and `breaker` are the route's own.",
        ),
        key(
            "limit",
            Kind::Either(&Kind::Rate, &Kind::Section(&RATE)),
            Absent,
            "How many per how long, as in `100/1m`. With `fixed_window` also `/day`, `/week` (from Monday) or `/month` of the calendar; elsewhere a day is 24 hours. Either this or `concurrency`.",
        ),
        key(
            "concurrency",
            integer(1, 1_000_000_000),
            Absent,
            "How many in flight at once; a request that waits in pacing is in flight.",
        ),
        key(
            "algorithm",
            word(ALGORITHMS),
            Value("token_bucket"),
            "How `limit` is counted; see the promises below.",
        ),
        key(
            "burst",
            integer(1, 1_000_000_000_000),
            Words("the limit's count"),
            "How many may pass at once: the size of the bucket (`token_bucket` and `leaky_bucket`).",
        ),
        key(
            "warm_up",
            Kind::Section(&WARM_UP),
            Absent,
            "A limit that grows while the service is cold; `{}` for the defaults (`token_bucket` and `pacing`).",
        ),
        key(
            "max_wait",
            Kind::Duration { min: Duration::ZERO, max: Duration::from_hours(1) },
            Value("500ms"),
            "The longest wait for an even start; what would wait longer is rejected at once. No longer than half of the route's `timeouts.request` (`pacing` only).",
        ),
        key(
            "max_queue",
            integer(1, 1_000_000),
            Words("as many as fit into `max_wait`"),
            "How many may wait, for each key (`pacing` only).",
        ),
        key(
            "buckets",
            integer(1, 1000),
            Value("10"),
            "Into how many parts the window is cut (`sliding_window` only).",
        ),
        key(
            "strict",
            Kind::Flag,
            Value("false"),
            "Counts the expiring part of the window whole: never more than the limit in any window, a little less in steady traffic (`sliding_window` only).",
        ),
        key(
            "align",
            word(&["clock", "first_request"]),
            Value("clock"),
            "When windows begin (`fixed_window` only).",
        ),
        key(
            "tz",
            Kind::Text,
            Value("UTC"),
            "The time zone whose days, weeks or months are counted in, as in `Europe/Berlin` (`fixed_window` only).",
        ),
        key(
            "key",
            Kind::Several(&Kind::KeyPart),
            Value("route"),
            "What is counted separately: `client_ip`, `host`, `path`, `method`, `header:NAME`, `cookie:NAME`, `query:NAME`, or a list of them; `route` counts all together.",
        ),
        key(
            "ipv6_prefix",
            integer(1, 128),
            Value("64"),
            "How much of an IPv6 address is one client.",
        ),
        key(
            "on_missing_key",
            word(&["shared", "skip", "reject"]),
            Value("shared"),
            "A request without the header, cookie or query field of `key`: all such share one count, or are not counted, or are rejected.",
        ),
        key(
            "on_duplicate_key",
            word(&["first", "last", "reject"]),
            Value("reject"),
            "A request with a header, cookie or query field of `key`, or of `when` in an override, several times: its first or its last value counts, or it is rejected with 400. Servers differ in which one they take, so that a client could count under a name of its choice.",
        ),
        key(
            "max_keys",
            integer(1, 10_000_000),
            Value("100000"),
            "How many keys are held apart. Memory is bounded by it; when all places are taken, a new key takes that of one that used little, whose use is remembered.",
        ),
        key(
            "cost",
            Kind::Either(
                &integer(1, 1_000_000_000),
                &Kind::Map { of: "POST", to: &integer(1, 1_000_000_000) },
            ),
            Value("1"),
            "How much a request counts: a number, or a map by method with `default`.",
        ),
        key(
            "except",
            Kind::Section(&EXCEPT),
            Absent,
            "Requests that the rule neither rejects nor counts; any of what is written.",
        ),
        key(
            "overrides",
            Kind::List(&Kind::Section(&OVERRIDE)),
            Words("none"),
            "Other numbers for some requests. The first whose `when` fits is asked in place of the rule, with counts of its own, under the rule's name. Each counts among the 16 rules of a route.",
        ),
        key(
            "priority",
            Kind::Section(&PRIORITY),
            Absent,
            "Requests that may borrow from the windows to come (`fixed_window` and `sliding_window` only).",
        ),
        key("dry_run", Kind::Flag, Value("false"), "Decides and counts, and rejects nothing."),
        key(
            "scope",
            word(&["process", "cluster"]),
            Value("process"),
            "Who shares the count: this process, or all gateways with the same `store`.",
        ),
        key(
            "on_store_error",
            word(&["local", "allow", "deny"]),
            Value("local"),
            "What holds while the store fails, for `scope: cluster`: an own count with the limit divided by the gateways, no limit, or rejection.",
        ),
        key(
            "sync_interval",
            Kind::Duration { min: Duration::from_millis(10), max: Duration::from_mins(1) },
            Absent,
            "How often gateways exchange counts, for `scope: cluster`: each decides at once by its own, and together they may let more pass than the limit, as `check` tells. Without it the store decides about every request. Not for `concurrency`.",
        ),
    ],
};

/// Other numbers for some requests.
pub(in crate::config) static OVERRIDE: Section = Section {
    title: "an override",
    doc: "Numbers of the rule that differ for some requests. What is not written is the rule's.",
    keys: &[
        key(
            "when",
            Kind::Map {
                of: "header:x-tenant",
                to: &Kind::Either(&Kind::Several(&Kind::Text), &Kind::Section(&FIELD)),
            },
            Required,
            "Which requests: `client_ip`, `method` and `path_prefix` (a value, or a list of which one must fit), `header:NAME` and `query:NAME` (a text, or a map). All that is written must hold; state survives an edit as long as it stays the same.",
        ),
        key(
            "limit",
            Kind::Either(&Kind::Rate, &Kind::Section(&RATE)),
            Absent,
            "How many per how long, if the rule has a `limit`.",
        ),
        key(
            "burst",
            integer(1, 1_000_000_000_000),
            Words("the rule's, or the default for the override's `limit`"),
            "How many may pass at once (`token_bucket` and `leaky_bucket`).",
        ),
        key(
            "concurrency",
            integer(1, 1_000_000_000),
            Absent,
            "How many in flight at once, if the rule has `concurrency`.",
        ),
    ],
};

/// The long form of a rate.
pub(in crate::config) static RATE: Section = Section {
    title: "a rate",
    doc: "The long form of `100/1m`.",
    keys: &[
        key("requests", integer(1, 1_000_000_000_000), Required, "How many."),
        key(
            "window",
            Kind::Duration { min: Duration::from_nanos(1), max: Duration::from_hours(8784) },
            Required,
            "Per how long.",
        ),
    ],
};

/// Who is exempt.
pub(in crate::config) static EXCEPT: Section = Section {
    title: "an exception",
    doc: "Any one of them exempts a request.",
    keys: &[
        key(
            "client_ip",
            Kind::Several(&Kind::Network),
            Words("none"),
            "Clients, by address or network.",
        ),
        key(
            "method",
            Kind::Several(&Kind::Method),
            Words("none"),
            "Requests with one of these methods.",
        ),
        key(
            "path_prefix",
            Kind::Several(&Kind::Path),
            Words("none"),
            "Beginnings of paths, by whole segments.",
        ),
        key(
            "header",
            Kind::Map { of: "x-internal", to: &Kind::Either(&Kind::Text, &Kind::Section(&FIELD)) },
            Words("none"),
            "Header fields; any one that holds. Clients can send what they like: use it behind a proxy that removes the field.",
        ),
    ],
};

/// A cold start.
pub(in crate::config) static WARM_UP: Section = Section {
    title: "a warm-up",
    doc: "A service that has idled gets the limit divided by `cold_factor` at first, and the whole of it when it has been asked for `period` without a pause. It is cold again after twice the period divided by `1 + cold_factor` of silence.",
    keys: &[
        key(
            "period",
            Kind::Duration { min: Duration::from_millis(1), max: Duration::from_hours(1) },
            Value("10s"),
            "How long it takes to warm up.",
        ),
        key("cold_factor", integer(2, 1000), Value("3"), "How much less a cold service gets."),
    ],
};

/// Who may borrow.
pub(in crate::config) static PRIORITY: Section = Section {
    title: "a priority",
    doc: "A request with priority that is over the limit waits until a window, or a bucket of one, opens in which it fits, and is counted there; nobody else gets what it borrowed. Clients can send what they like: use it behind a proxy that removes the field, or for clients you trust.",
    keys: &[
        key("header", Kind::HeaderName, Required, "The header field that gives it."),
        key("equals", Kind::Text, Words("any"), "The value that the field must have."),
        key(
            "max_wait",
            Kind::Duration { min: Duration::from_millis(1), max: Duration::from_hours(1) },
            Value("500ms"),
            "The longest wait; what would wait longer is rejected. No longer than half of the route's `timeouts.request`.",
        ),
    ],
};

/// Even starts.
pub(in crate::config) static PACING: Section = Section {
    title: "pacing",
    doc: "Holds requests so that they start evenly, one interval apart, first come first served; rejects those that would wait too long.",
    keys: &[
        key(
            "rate",
            Kind::Either(&Kind::Rate, &Kind::Section(&RATE)),
            Required,
            "How many starts per how long; `100/1s` is one every 10 ms.",
        ),
        key(
            "max_wait",
            Kind::Duration { min: Duration::ZERO, max: Duration::from_hours(1) },
            Value("500ms"),
            "The longest wait, no longer than half of the route's `timeouts.request`; what would wait longer is rejected at once. With 0 nothing waits: starts are spaced by rejecting.",
        ),
        key(
            "max_queue",
            integer(1, 1_000_000),
            Words("as many as fit into `max_wait`"),
            "How many may wait.",
        ),
        key(
            "warm_up",
            Kind::Section(&WARM_UP),
            Absent,
            "Starts further apart while the service is cold; `{}` for the defaults.",
        ),
        key(
            "scope",
            word(&["process", "cluster"]),
            Value("process"),
            "Whose starts are evened out: this process's, or those of all gateways with the same `store`.",
        ),
        key(
            "on_store_error",
            word(&["local", "allow", "deny"]),
            Value("local"),
            "What holds while the store fails, for `scope: cluster`; as for a rule.",
        ),
        foreign("key", PACING_RULE),
        foreign("cost", PACING_RULE),
        foreign("except", PACING_RULE),
        foreign("overrides", PACING_RULE),
        foreign("dry_run", PACING_RULE),
    ],
};

const PACING_RULE: &str = "write a rule with `algorithm: pacing`, under `flow`: the route's own pacing is of all its requests";

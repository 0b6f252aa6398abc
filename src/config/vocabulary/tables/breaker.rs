//! The breaker: when it opens, and how it closes.

use super::{foreign, integer, key};
use crate::config::vocabulary::{
    Default::{Absent, Value, Words},
    Kind, Section,
};
use std::time::Duration;

/// A breaker.
pub(in crate::config) static BREAKER: Section = Section {
    title: "a breaker",
    doc: "Counts answers: a 5xx of the upstream is a failure, and so is our own 502 or 504 in its place; a 4xx is not. Needs one of `error_ratio`, `slow_ratio` and `errors`. While it is open, requests get 503 with the exact `Retry-After`; then `probes` of them go through, and all must be good for it to close.",
    keys: &[
        key(
            "error_ratio",
            Kind::Ratio,
            Absent,
            "Opens when more than this part of the answers in `window` are failures; 1: when all are.",
        ),
        key(
            "slow_after",
            Kind::Duration { min: Duration::from_micros(1), max: Duration::from_hours(24) },
            Absent,
            "An answer is slow if its header comes later than this after the request was sent on; a wait in pacing before that does not count.",
        ),
        key(
            "slow_ratio",
            Kind::Ratio,
            Absent,
            "Opens when more than this part of the answers in `window` are slow; 1: when all are.",
        ),
        key(
            "errors",
            integer(1, 1_000_000_000),
            Absent,
            "Opens at this many failures in `window`.",
        ),
        key(
            "min_requests",
            integer(1, 1_000_000_000),
            Words("20; 1 with `errors` alone"),
            "The fewest answers in `window` that it opens on.",
        ),
        key(
            "window",
            Kind::Duration { min: Duration::from_millis(10), max: Duration::from_hours(1) },
            Value("10s"),
            "How long an answer counts, but for a bucket's length.",
        ),
        key(
            "buckets",
            integer(1, 1000),
            Value("10"),
            "Into how many parts the window is cut; they follow the clock.",
        ),
        key(
            "open_for",
            Kind::Duration { min: Duration::from_millis(1), max: Duration::from_hours(24) },
            Value("5s"),
            "How long it stays open before it lets probes through.",
        ),
        key(
            "probes",
            integer(1, 1000),
            Value("3"),
            "How many requests it lets through to find out. All good: it closes. One bad: it opens again.",
        ),
        key("dry_run", Kind::Flag, Value("false"), "Decides and counts, and rejects nothing."),
        foreign("key", ANOTHER_ROUTE),
        foreign("overrides", ANOTHER_ROUTE),
        foreign("except", ANOTHER_ROUTE),
        foreign("cost", "remove it: an answer counts as one, whatever its request cost"),
        foreign("scope", "remove it: each gateway learns from the answers that it sees"),
    ],
};

const ANOTHER_ROUTE: &str = "write a route of its own for those requests, to the same upstream: a breaker is of all of its route's";

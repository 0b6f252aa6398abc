//! Words of rules in other gateways.

pub(in crate::config::spec) const IN_LIMIT: &str =
    "write it in `limit`: how many per how long, as in `limit: 100/1m`";

pub(in crate::config::spec) const NO_DELAY: &str = "remove it: requests within `burst` do not wait";

pub(in crate::config::spec) const IN_REJECT: &str =
    "write it for the whole route, beside `flow`: `reject: { status: 503 }`";

pub(in crate::config::spec) const PACING_RULE: &str = "remove it: the route's own pacing applies to all its requests; or write a rule, as in `flow: [{ name: even, algorithm: pacing, limit: 10/1s }]`";

pub(in crate::config::spec) const ROUTE_PACING: &str = "write `algorithm: pacing` and `limit: 10/1s`; or, for all requests of the route, `pacing: { rate: 10/1s }` beside `flow`";

pub(in crate::config::spec) const IN_RESERVE: &str =
    "write it in `reserve`, as in `reserve: { default: 1, POST: 10 }`";

pub(in crate::config::spec) const IN_SETTLE: &str =
    "write it in `settle`, as in `settle: { status: { 401: 1, default: 0 } }`";

/// Keys that `RuleSpec` does not take, with what to write instead.
pub(in crate::config::spec) const RULE_INSTEAD: &[[&str; 2]] = &[
    ["window", IN_LIMIT],
    ["period", IN_LIMIT],
    ["interval", IN_LIMIT],
    ["requests", IN_LIMIT],
    ["average", IN_LIMIT],
    ["status", IN_REJECT],
    ["body", IN_REJECT],
    ["reject", IN_REJECT],
    ["nodelay", NO_DELAY],
    ["pacing", ROUTE_PACING],
    ["whitelist", "write `except: { client_ip: [10.0.0.0/8] }`"],
    ["unit", IN_LIMIT],
    ["requests_per_unit", IN_LIMIT],
    ["second", IN_LIMIT],
    ["minute", IN_LIMIT],
    ["hour", IN_LIMIT],
    ["day", IN_LIMIT],
    ["month", IN_LIMIT],
    ["tokens_per_fill", IN_LIMIT],
    ["fill_interval", IN_LIMIT],
    ["time_window", IN_LIMIT],
    ["events", IN_LIMIT],
    ["delay", NO_DELAY],
];

/// Words for keys of `RuleSpec`, with the key that is meant.
pub(in crate::config::spec) const RULE_MEANT: &[[&str; 2]] = &[
    ["rate", "limit"],
    ["rps", "limit"],
    ["per", "key"],
    ["by", "key"],
    ["type", "algorithm"],
    ["exempt", "except"],
    ["quota", "limit"],
    ["max_conns", "concurrency"],
    ["maxconn", "concurrency"],
    ["max_connections", "concurrency"],
    ["max_concurrency", "concurrency"],
    ["in_flight", "concurrency"],
    ["amount", "concurrency"],
    ["max_tokens", "burst"],
    ["bucket_size", "burst"],
    ["capacity", "burst"],
    ["zone", "key"],
    ["limit_by", "key"],
    ["source_criterion", "key"],
    ["identifier", "key"],
    ["group_by", "key"],
    ["max_requests", "limit"],
];

/// Keys that `PacingSpec` does not take, with what to write instead.
pub(in crate::config::spec) const PACING_INSTEAD: &[[&str; 2]] = &[
    ["key", PACING_RULE],
    ["cost", PACING_RULE],
    ["except", PACING_RULE],
    ["overrides", PACING_RULE],
    ["dry_run", PACING_RULE],
    ["algorithm", PACING_RULE],
    ["name", PACING_RULE],
];

/// Words for keys of `PacingSpec`, with the key that is meant.
pub(in crate::config::spec) const PACING_MEANT: &[[&str; 2]] = &[["limit", "rate"]];

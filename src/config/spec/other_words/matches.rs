//! Words of a match in other gateways.

pub(in crate::config::spec) const BESIDE: &str =
    "it belongs to the route: write it in the column of `match`";

pub(in crate::config::spec) const ACCESS: &str = "write `access: { allow: [10.0.0.0/8] }` in the column of `match`; `path_prefix: /` takes every path";

pub(in crate::config::spec) const PROVEN: &str = "the route decides which `auth` applies, so that a match comes before any claim: write `when: { jwt:plan: gold }` in an override of a rule, or `except: { jwt: { plan: gold } }`";

/// Keys that `MatchSpec` does not take, with what to write instead.
pub(in crate::config::spec) const MATCH_INSTEAD: &[[&str; 2]] = &[
    ["upstream", BESIDE],
    ["redirect", BESIDE],
    ["respond", BESIDE],
    ["access", BESIDE],
    ["auth", BESIDE],
    ["flow", BESIDE],
    ["pacing", BESIDE],
    ["breaker", BESIDE],
    ["timeout", BESIDE],
    ["rewrite", BESIDE],
    ["client_ip", ACCESS],
    ["remote_addr", ACCESS],
    ["source_ip", ACCESS],
    ["jwt", PROVEN],
    ["claim", PROVEN],
    ["claims", PROVEN],
    ["user", PROVEN],
];

/// Words for keys of `MatchSpec`, with the key that is meant.
pub(in crate::config::spec) const MATCH_MEANT: &[[&str; 2]] = &[
    ["prefix", "path_prefix"],
    ["regex", "path_regex"],
    ["domain", "host"],
    ["location", "path_prefix"],
    ["path_beg", "path_prefix"],
    ["path_separated_prefix", "path_prefix"],
    ["uri", "path_prefix"],
    ["url", "path_prefix"],
    ["server_name", "host"],
    ["server_names", "host"],
    ["hosts", "host"],
    ["domains", "host"],
    ["hostname", "host"],
    ["authority", "host"],
    ["paths", "path"],
    ["path_exact", "path"],
    ["path_reg", "path_regex"],
    ["path_regexp", "path_regex"],
    ["safe_regex", "path_regex"],
    ["methods", "method"],
    ["verb", "method"],
    ["headers", "header"],
    ["query_params", "query"],
    ["query_parameters", "query"],
    ["params", "query"],
    ["entry_point", "listener"],
    ["entry_points", "listener"],
];

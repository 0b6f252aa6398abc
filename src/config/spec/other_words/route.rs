//! Words of routes, and of their conditions, in other gateways.

use super::file::NO_FILES;

pub(in crate::config::spec) const IN_MATCH: &str =
    "write it in `match`, as in `match: { path_prefix: /login }`";

pub(in crate::config::spec) const IN_FLOW: &str =
    "write a rule in `flow`, as in `flow: [{ name: total, limit: 100/1s }]`";

pub(in crate::config::spec) const CONCURRENCY: &str =
    "write a rule in `flow`, as in `flow: [{ name: total, concurrency: 100 }]`";

pub(in crate::config::spec) const HOST_IN_MATCH: &str =
    "write it in `match`, as in `match: { host: shop.example.com }`";

pub(in crate::config::spec) const BURST: &str = "write a rule in `flow`, as in `flow: [{ name: per-client, limit: 10/1s, burst: 20, key: client_ip }]`";

pub(in crate::config::spec) const BALANCE: &str =
    "write it at the upstream, as in `balance: least_request`";

pub(in crate::config::spec) const HOST_REWRITE: &str = "write `rewrite: { host: app.internal }`";

pub(in crate::config::spec) const NO_BANDWIDTH: &str =
    "remove it: flowgate limits requests, not bytes per second to clients";

pub(in crate::config::spec) const HEADERS: &str = "write `request_headers` or `response_headers`, as in `request_headers: { set: { x-from: gateway } }`";

pub(in crate::config::spec) const WEBSOCKET: &str = "write `upgrades: websocket`";

pub(in crate::config::spec) const STRIP_PREFIX: &str =
    "write it in `rewrite`, as in `rewrite: { strip_prefix: /api }`";

pub(in crate::config::spec) const RULE: &str =
    "write it in `match`, as in `match: { host: shop.example.com, path_prefix: /api }`";

pub(in crate::config::spec) const LIMITS: &str = "write `body_limit: 1MB` for the size of a body, and rules in `flow` for rates, as in `flow: [{ name: total, limit: 100/1s }]`";

pub(in crate::config::spec) const RETURN: &str = "write `respond: 204` or `redirect: https`";

pub(in crate::config::spec) const ALLOW: &str = "write `access: { allow: [10.0.0.0/8] }`";

pub(in crate::config::spec) const DENY: &str = "write `access: { deny: [192.0.2.1] }`";

pub(in crate::config::spec) const BASIC: &str =
    "write `auth: { basic: users.htpasswd }`: a file that `htpasswd -B` makes";

pub(in crate::config::spec) const FORWARD: &str = "write `auth: { forward: { url: http://127.0.0.1:4180/oauth2/auth, copy: [x-auth-request-user] } }`";

pub(in crate::config::spec) const TIMEOUTS: &str = "write `timeouts: { first_byte: 60s, idle: 60s }`: for the response's header, and for a pause in a body";

pub(in crate::config::spec) const MIDDLEWARES: &str =
    "write keys of the route, such as `flow`, `access`, `auth`, `rewrite` and `response_headers`";

pub(in crate::config::spec) const CORS: &str =
    "write `cors: { origins: [https://app.example.com] }`";

pub(in crate::config::spec) const COMPRESS: &str = "write `compress: true`";

pub(in crate::config::spec) const NO_CACHE: &str = "remove it: flowgate stores no responses";

pub(in crate::config::spec) const MIRROR: &str = "write `mirror: { upstream: NAME, share: 10% }`";

pub(in crate::config::spec) const HTTPS: &str = "write `redirect: https`";

pub(in crate::config::spec) const JWT: &str = "write `auth: { jwt: { jwks: issuer.json } }`";

pub(in crate::config::spec) const HEALTH: &str = "write `health` at the upstream";

pub(in crate::config::spec) const ERRORS: &str = "write `errors: [{ status: 502, body: … }]` for flowgate's own errors, with `from: both` for those of servers too";

pub(in crate::config::spec) const IN_SET: &str =
    "write it in `set`, as in `set: { x-served-by: gateway }`";

pub(in crate::config::spec) const RENAME: &str =
    "write the old name in `remove`, and the new one with its value in `set`";

pub(in crate::config::spec) const IN_MATCH_PATH: &str = "write `match: { path_prefix: … }`";

/// Keys that `RouteSpec` does not take, with what to write instead.
pub(in crate::config::spec) const ROUTE_INSTEAD: &[[&str; 2]] = &[
    ["path", IN_MATCH],
    ["path_prefix", IN_MATCH],
    ["path_regex", IN_MATCH],
    ["host", IN_MATCH],
    ["method", IN_MATCH],
    ["methods", IN_MATCH],
    ["header", IN_MATCH],
    ["query", IN_MATCH],
    ["limit", IN_FLOW],
    ["concurrency", CONCURRENCY],
    ["max_concurrency", CONCURRENCY],
    ["max_connections", CONCURRENCY],
    ["in_flight_req", CONCURRENCY],
    ["limit_conn", CONCURRENCY],
    ["rate_limit", IN_FLOW],
    ["limit_req", IN_FLOW],
    ["headers", HEADERS],
    ["add_header", HEADERS],
    ["proxy_set_header", HEADERS],
    ["websocket", WEBSOCKET],
    ["websockets", WEBSOCKET],
    ["strip_prefix", STRIP_PREFIX],
    ["handle_path", STRIP_PREFIX],
    ["rule", RULE],
    ["limits", LIMITS],
    ["return", RETURN],
    ["redirect_scheme", HTTPS],
    ["error_page", ERRORS],
    ["allow", ALLOW],
    ["ip_allow", ALLOW],
    ["ip_allow_list", ALLOW],
    ["ip_whitelist", ALLOW],
    ["deny", DENY],
    ["auth_basic", BASIC],
    ["basic_auth", BASIC],
    ["jwt", JWT],
    ["auth_request", FORWARD],
    ["auth_url", FORWARD],
    ["ext_authz", FORWARD],
    ["external_auth", FORWARD],
    ["forward_auth", FORWARD],
    ["health", HEALTH],
    ["health_check", HEALTH],
    ["proxy_read_timeout", TIMEOUTS],
    ["read_timeout", TIMEOUTS],
    ["middlewares", MIDDLEWARES],
    ["plugins", MIDDLEWARES],
    ["cors_policy", CORS],
    ["enable_cors", CORS],
    ["cache", NO_CACHE],
    ["gzip", COMPRESS],
    ["brotli", COMPRESS],
    ["encode", COMPRESS],
    ["compression", COMPRESS],
    ["mirrors", MIRROR],
    ["mirroring", MIRROR],
    ["shadow", MIRROR],
    ["request_mirror_policies", MIRROR],
    ["requestMirror", MIRROR],
    ["location", IN_MATCH],
    ["prefix", IN_MATCH],
    ["uri", IN_MATCH],
    ["uris", IN_MATCH],
    ["paths", IN_MATCH],
    ["server_name", HOST_IN_MATCH],
    ["server_names", HOST_IN_MATCH],
    ["hosts", HOST_IN_MATCH],
    ["domain", HOST_IN_MATCH],
    ["domains", HOST_IN_MATCH],
    ["max_conns", CONCURRENCY],
    ["maxconn", CONCURRENCY],
    ["burst", BURST],
    ["key", BURST],
    ["rate", IN_FLOW],
    ["balance", BALANCE],
    ["lb_policy", BALANCE],
    ["load_balancing", BALANCE],
    ["proxy_connect_timeout", "write `connect_timeout` at the upstream"],
    ["connect_timeout", "write `connect_timeout` at the upstream"],
    ["proxy_send_timeout", TIMEOUTS],
    ["send_timeout", TIMEOUTS],
    ["host_rewrite", HOST_REWRITE],
    ["host_rewrite_literal", HOST_REWRITE],
    ["preserve_host", HOST_REWRITE],
    ["prefix_rewrite", STRIP_PREFIX],
    ["strip_path", STRIP_PREFIX],
    ["limit_rate", NO_BANDWIDTH],
    ["root", NO_FILES],
    ["try_files", NO_FILES],
    ["file_server", NO_FILES],
    ["ip_restriction", ALLOW],
    ["remote_ip", ALLOW],
    ["http_request", MIDDLEWARES],
    ["http_response", MIDDLEWARES],
];

/// Words for keys of `RouteSpec`, with the key that is meant.
pub(in crate::config::spec) const ROUTE_MEANT: &[[&str; 2]] = &[
    ["rules", "flow"],
    ["rate_limits", "flow"],
    ["matches", "match"],
    ["retries", "retry"],
    ["backend", "upstream"],
    ["service", "upstream"],
    ["cluster", "upstream"],
    ["proxy_pass", "upstream"],
    ["reverse_proxy", "upstream"],
    ["circuit_breaker", "breaker"],
    ["client_max_body_size", "body_limit"],
    ["max_body_size", "body_limit"],
    ["use_backend", "upstream"],
    ["default_backend", "upstream"],
    ["proxy_next_upstream", "retry"],
    ["retry_policy", "retry"],
    ["rate_limiting", "flow"],
    ["max_request_body_size", "body_limit"],
    ["max_request_bytes", "body_limit"],
    ["request_body", "body_limit"],
];

/// Keys that `RouteTimeoutsSpec` does not take, with what to write instead.
pub(in crate::config::spec) const ROUTE_TIMEOUTS_INSTEAD: &[[&str; 2]] = &[
    ["connect", "write `connect_timeout` at the upstream"],
    ["read", "write `first_byte` for the response's header, and `idle` for a pause in a body"],
];

/// Keys that `HeaderEditsSpec` does not take, with what to write instead.
pub(in crate::config::spec) const HEADER_EDITS_INSTEAD: &[[&str; 2]] =
    &[["rename", RENAME], ["*", IN_SET]];

/// Words for keys of `HeaderEditsSpec`, with the key that is meant.
pub(in crate::config::spec) const HEADER_EDITS_MEANT: &[[&str; 2]] =
    &[["delete", "remove"], ["hide", "remove"], ["unset", "remove"]];

/// Words for keys of `ErrorSpec`, with the key that is meant.
pub(in crate::config::spec) const ERROR_MEANT: &[[&str; 2]] = &[
    ["of", "from"],
    ["source", "from"],
    ["code", "status"],
    ["statuses", "status"],
    ["content", "body"],
    ["text", "body"],
];

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

/// Words for keys of `CompressSpec`, with the key that is meant.
pub(in crate::config::spec) const COMPRESS_MEANT: &[[&str; 2]] = &[
    ["encoding", "encodings"],
    ["algorithms", "encodings"],
    ["compressor_library", "encodings"],
    ["gzip_types", "types"],
    ["content_type", "types"],
    ["includedContentTypes", "types"],
    ["gzip_min_length", "min_size"],
    ["min_length", "min_size"],
    ["minimum_length", "min_size"],
    ["min_content_length", "min_size"],
    ["minResponseBodyBytes", "min_size"],
];

/// Words for keys of `CorsSpec`, with the key that is meant.
pub(in crate::config::spec) const CORS_MEANT: &[[&str; 2]] = &[
    ["origin", "origins"],
    ["allow_origin", "origins"],
    ["allow_origins", "origins"],
    ["allowed_origins", "origins"],
    ["allow_origin_string_match", "origins"],
    ["accessControlAllowOriginList", "origins"],
    ["allow_methods", "methods"],
    ["allowed_methods", "methods"],
    ["accessControlAllowMethods", "methods"],
    ["allow_headers", "headers"],
    ["allowed_headers", "headers"],
    ["accessControlAllowHeaders", "headers"],
    ["expose_headers", "expose"],
    ["exposed_headers", "expose"],
    ["accessControlExposeHeaders", "expose"],
    ["allow_credentials", "credentials"],
    ["accessControlAllowCredentials", "credentials"],
    ["accessControlMaxAge", "max_age"],
];

/// Words for keys of `MatchSpec`, with the key that is meant.
pub(in crate::config::spec) const MATCH_MEANT: &[[&str; 2]] = &[
    ["countries", "country"],
    ["country_code", "country"],
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

/// Words for keys of `MirrorSpec`, with the key that is meant.
pub(in crate::config::spec) const MIRROR_MEANT: &[[&str; 2]] = &[
    ["service", "upstream"],
    ["cluster", "upstream"],
    ["name", "upstream"],
    ["to", "upstream"],
    ["percent", "share"],
    ["percentage", "share"],
    ["fraction", "share"],
    ["runtime_fraction", "share"],
    ["sample", "share"],
    ["max_body_size", "body_limit"],
    ["maxBodySize", "body_limit"],
    ["client_max_body_size", "body_limit"],
];

//! Words of upstreams and their servers in other gateways.

use super::file::CONCURRENCY_OF_ROUTE;

pub(in crate::config::spec) const URL: &str =
    "write `url: http://HOST:PORT`, as in `url: http://127.0.0.1:8000`";

pub(in crate::config::spec) const EJECTION: &str = "write `ejection: { failures: 5 }` at the upstream: servers that fail get no requests for a while";

pub(in crate::config::spec) const HEALTH: &str =
    "write `health: { path: /healthz, interval: 5s }` at the upstream";

pub(in crate::config::spec) const NO_SERVER: &str = "remove the server: an edit puts it back";

pub(in crate::config::spec) const LEAST: &str = "write `balance: least_request`";

pub(in crate::config::spec) const HASH: &str =
    "write `balance: hash`, which takes the client's address unless there is a `hash_key`";

pub(in crate::config::spec) const VERIFY: &str =
    "remove it: flowgate verifies servers; `insecure: true` turns that off, for tests only";

/// Keys that `UpstreamSpec` does not take, with what to write instead.
pub(in crate::config::spec) const UPSTREAM_INSTEAD: &[[&str; 2]] = &[
    ["url", "write `servers: [{ url: http://10.0.1.5:8000 }]`"],
    ["sticky_session", STICKY],
    ["session_affinity", STICKY],
    ["sessionAffinity", STICKY],
    ["cookie", STICKY],
    ["max_fails", EJECTION],
    ["max_conns", CONCURRENCY_OF_ROUTE],
    ["maxconn", CONCURRENCY_OF_ROUTE],
    ["max_connections", CONCURRENCY_OF_ROUTE],
    ["max_requests", CONCURRENCY_OF_ROUTE],
    ["max_pending_requests", CONCURRENCY_OF_ROUTE],
    ["circuit_breakers", CONCURRENCY_OF_ROUTE],
    ["concurrency", CONCURRENCY_OF_ROUTE],
    ["least_conn", LEAST],
    ["leastconn", LEAST],
    ["ip_hash", HASH],
    ["consistent_hash", HASH],
    ["round_robin", "write `balance: round_robin`"],
    ["fail_timeout", EJECTION],
    ["outlier_detection", EJECTION],
    ["ssl", "write `https://` in the `url` of the servers"],
    ["https", "write `https://` in the `url` of the servers"],
    ["http2", "write `protocol: h2`"],
    ["resolver", "write `dns_servers: [10.0.0.2]` beside `upstreams`"],
];

/// Words for keys of `UpstreamSpec`, with the key that is meant.
pub(in crate::config::spec) const UPSTREAM_MEANT: &[[&str; 2]] = &[
    ["proxy_protocol", "send_proxy_protocol"],
    ["send_proxy", "send_proxy_protocol"],
    ["send-proxy", "send_proxy_protocol"],
    ["send-proxy-v2", "send_proxy_protocol"],
    ["proxyProtocol", "send_proxy_protocol"],
    ["health_check", "health"],
    ["healthcheck", "health"],
    ["lb_policy", "balance"],
    ["load_balancing", "balance"],
    ["strategy", "balance"],
    ["keepalive", "max_idle"],
    ["endpoints", "servers"],
    ["hosts", "servers"],
    ["nodes", "servers"],
    ["targets", "servers"],
    ["algorithm", "balance"],
    ["load_balancer", "balance"],
    ["load_balancing_policy", "balance"],
    ["policy", "balance"],
    ["server", "servers"],
    ["backends", "servers"],
    ["urls", "servers"],
    ["addresses", "servers"],
    ["lb_endpoints", "servers"],
    ["load_assignment", "servers"],
    ["proxy_connect_timeout", "connect_timeout"],
    ["dial_timeout", "connect_timeout"],
    ["keepalive_timeout", "idle_timeout"],
    ["idle_conn_timeout", "idle_timeout"],
    ["keepalive_connections", "max_idle"],
    ["max_idle_conns_per_host", "max_idle"],
    ["health_checks", "health"],
    ["hash_on", "hash_key"],
    ["hash_policy", "hash_key"],
];

/// Words for keys of `HealthSpec`, with the key that is meant.
pub(in crate::config::spec) const HEALTH_MEANT: &[[&str; 2]] = &[
    ["uri", "path"],
    ["url", "path"],
    ["hostname", "host"],
    ["authority", "host"],
    ["period", "interval"],
];

/// Keys that `ServerSpec` does not take, with what to write instead.
pub(in crate::config::spec) const SERVER_INSTEAD: &[[&str; 2]] = &[
    ["host", URL],
    ["port", URL],
    ["max_fails", EJECTION],
    ["max_conns", CONCURRENCY_OF_ROUTE],
    ["maxconn", CONCURRENCY_OF_ROUTE],
    ["max_connections", CONCURRENCY_OF_ROUTE],
    ["fail_timeout", EJECTION],
    ["slow_start", "write `slow_start` at the upstream"],
    ["check", HEALTH],
    ["inter", HEALTH],
    ["down", NO_SERVER],
    ["disabled", NO_SERVER],
    ["sni", "write `tls: { server_name: app.internal }` at the upstream"],
];

/// Words for keys of `ServerSpec`, with the key that is meant.
pub(in crate::config::spec) const SERVER_MEANT: &[[&str; 2]] = &[
    ["address", "url"],
    ["addr", "url"],
    ["uri", "url"],
    ["target", "url"],
    ["server", "url"],
    ["endpoint", "url"],
];

/// Keys that `UpstreamTlsSpec` does not take, with what to write instead.
pub(in crate::config::spec) const UPSTREAM_TLS_INSTEAD: &[[&str; 2]] = &[["verify", VERIFY]];

/// Words for keys of `UpstreamTlsSpec`, with the key that is meant.
pub(in crate::config::spec) const UPSTREAM_TLS_MEANT: &[[&str; 2]] =
    &[["sni", "server_name"], ["insecure_skip_verify", "insecure"]];

const STICKY: &str = "write `sticky: { cookie: NAME }`";

/// Words for keys of `StickySpec`, with the key that is meant.
pub(in crate::config::spec) const STICKY_MEANT: &[[&str; 2]] =
    &[["name", "cookie"], ["cookie_name", "cookie"]];

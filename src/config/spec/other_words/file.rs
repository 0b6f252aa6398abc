//! Words of the whole file, and of listeners, in other gateways.

pub(in crate::config::spec) const LOG: &str = "write `access_log: stdout` for requests; the variable `RUST_LOG` sets the level of the other log";

pub(in crate::config::spec) const FORMAT: &str = "write `access_log_format: combined`, or `json`";

pub(in crate::config::spec) const OF_ROUTE: &str = "write it in the `timeouts` of a route";

pub(in crate::config::spec) const AT_LISTENER: &str = "write it at a listener, beside `listen`";

pub(in crate::config::spec) const NGINX: &str = "`flowgate import nginx.conf` converts a configuration of nginx; docs/migrating.md has the words of other gateways";

pub(in crate::config::spec) const METRICS: &str =
    "write `admin: { listen: 127.0.0.1:9901 }`, which has `/metrics`";

pub(in crate::config::spec) const COMPRESS_OF_ROUTE: &str = "write `compress: true` at the routes";

pub(in crate::config::spec) const A_ROUTE: &str =
    "write a route, as in `routes: [{ name: api, match: { path_prefix: /api }, upstream: app }]`";

pub(in crate::config::spec) const HOST_OF_ROUTE: &str =
    "write it in the `match` of a route, as in `match: { host: shop.example.com }`";

pub(in crate::config::spec) const BODY_OF_FILE: &str =
    "write `limits: { body: 1MiB }` for the file, or `body_limit: 1MiB` in a route";

pub(in crate::config::spec) const FLOW_OF_ROUTE: &str =
    "write a rule in the `flow` of a route, as in `flow: [{ name: total, limit: 100/1s }]`";

pub(in crate::config::spec) const CONCURRENCY_OF_ROUTE: &str =
    "write a rule in the `flow` of a route, as in `flow: [{ name: total, concurrency: 100 }]`";

pub(in crate::config::spec) const CONNECTIONS: &str = "write `limits: { connections: 10000 }`";

pub(in crate::config::spec) const CERTIFICATE: &str =
    "write `tls: { certificates: [{ cert: site.pem, key: site.key }] }` at a listener";

pub(in crate::config::spec) const OF_ROUTES: &str =
    "write keys of a route, such as `flow`, `access`, `auth`, `rewrite` and `response_headers`";

pub(in crate::config::spec) const NO_FILES: &str =
    "remove it: flowgate serves no files, and sends requests to a service that does";

pub(in crate::config::spec) const REAL_IP: &str =
    "write `trusted_proxies: [10.0.0.0/8]`: flowgate reads the `X-Forwarded-For` of these proxies";

pub(in crate::config::spec) const REAL_IP_HEADER: &str = "write `trusted_proxies: [10.0.0.0/8]`, and `client_ip_header: cf-connecting-ip` if these proxies write another field than `X-Forwarded-For`";

/// Keys that `FileSpec` does not take, with what to write instead.
pub(in crate::config::spec) const FILE_INSTEAD: &[[&str; 2]] = &[
    ["log", LOG],
    ["log_level", LOG],
    ["tls", AT_LISTENER],
    ["http", NGINX],
    ["server", NGINX],
    ["redis", "write `store: { redis: redis://10.0.1.9:6379 }`"],
    ["metrics", METRICS],
    ["prometheus", METRICS],
    ["real_ip_header", REAL_IP_HEADER],
    ["compression", COMPRESS_OF_ROUTE],
    ["compress", COMPRESS_OF_ROUTE],
    ["gzip", COMPRESS_OF_ROUTE],
    ["location", A_ROUTE],
    ["locations", A_ROUTE],
    ["server_name", HOST_OF_ROUTE],
    ["server_names", HOST_OF_ROUTE],
    ["hosts", HOST_OF_ROUTE],
    ["domains", HOST_OF_ROUTE],
    ["virtual_hosts", HOST_OF_ROUTE],
    ["client_max_body_size", BODY_OF_FILE],
    ["max_body_size", BODY_OF_FILE],
    ["body_limit", BODY_OF_FILE],
    ["limit_req", FLOW_OF_ROUTE],
    ["limit_req_zone", FLOW_OF_ROUTE],
    ["rate_limit", FLOW_OF_ROUTE],
    ["rate_limits", FLOW_OF_ROUTE],
    ["flow", FLOW_OF_ROUTE],
    ["limit_conn", CONCURRENCY_OF_ROUTE],
    ["limit_conn_zone", CONCURRENCY_OF_ROUTE],
    ["max_conns", CONNECTIONS],
    ["maxconn", CONNECTIONS],
    ["max_connections", CONNECTIONS],
    ["worker_connections", CONNECTIONS],
    ["keepalive_timeout", "write `timeouts: { keep_alive: 75s }`"],
    ["client_header_timeout", "write `timeouts: { header_read: 10s }`"],
    ["send_timeout", "write `timeouts: { write: 60s }`"],
    ["ssl_certificate", CERTIFICATE],
    ["certificates", CERTIFICATE],
    ["set_real_ip_from", REAL_IP],
    ["forwarded_headers", REAL_IP],
    ["trusted_ips", REAL_IP],
    ["middlewares", OF_ROUTES],
    ["plugins", OF_ROUTES],
    ["error_log", LOG],
    ["log_format", FORMAT],
    ["root", NO_FILES],
];

/// Words for keys of `FileSpec`, with the key that is meant.
pub(in crate::config::spec) const FILE_MEANT: &[[&str; 2]] = &[
    ["worker_processes", "workers"],
    ["nbthread", "workers"],
    ["threads", "workers"],
    ["clusters", "upstreams"],
    ["backends", "upstreams"],
    ["services", "upstreams"],
    ["servers", "upstreams"],
    ["entry_points", "listeners"],
    ["entrypoints", "listeners"],
    ["frontends", "listeners"],
    ["ports", "listeners"],
    ["routers", "routes"],
    ["geoip", "geo"],
    ["geoip2", "geo"],
    ["maxmind", "geo"],
    ["resolver", "dns_servers"],
    ["resolvers", "dns_servers"],
    ["nameservers", "dns_servers"],
    ["trusted_proxy", "trusted_proxies"],
    ["client_ip_headers", "client_ip_header"],
    ["access_log_style", "access_log_format"],
    ["real_ip_from_header", "client_ip_header"],
];

/// Keys that `ClientTimeoutsSpec` does not take, with what to write instead.
pub(in crate::config::spec) const CLIENT_TIMEOUTS_INSTEAD: &[[&str; 2]] = &[
    ["idle", OF_ROUTE],
    ["first_byte", OF_ROUTE],
    ["request", OF_ROUTE],
    ["tunnel", OF_ROUTE],
    ["event_stream", OF_ROUTE],
];

/// Words for keys of `ClientTimeoutsSpec`, with the key that is meant.
pub(in crate::config::spec) const CLIENT_TIMEOUTS_MEANT: &[[&str; 2]] = &[
    ["keepalive", "keep_alive"],
    ["keepalive_timeout", "keep_alive"],
    ["idle_timeout", "keep_alive"],
    ["client_header_timeout", "header_read"],
    ["read_header_timeout", "header_read"],
    ["http_request", "header_read"],
    ["send_timeout", "write"],
    ["write_timeout", "write"],
    ["ssl_handshake_timeout", "tls_handshake"],
    ["handshake", "tls_handshake"],
];

/// Words for keys of `LimitsSpec`, with the key that is meant.
pub(in crate::config::spec) const LIMITS_MEANT: &[[&str; 2]] = &[
    ["client_max_body_size", "body"],
    ["max_body_size", "body"],
    ["body_size", "body"],
    ["body_limit", "body"],
    ["max_conns", "connections"],
    ["maxconn", "connections"],
    ["max_connections", "connections"],
    ["worker_connections", "connections"],
    ["connections_per_ip", "connections_per_client"],
    ["limit_conn", "connections_per_client"],
    ["large_client_header_buffers", "header_bytes"],
    ["max_header_bytes", "header_bytes"],
    ["max_request_headers_kb", "header_bytes"],
    ["max_headers", "headers"],
];

pub(in crate::config::spec) const BESIDE: &str = "write it beside `listeners`, as in `routes: [{ name: api, match: { path_prefix: /api }, upstream: app }]`";

pub(in crate::config::spec) const TLS: &str =
    "write `tls: { certificates: [{ cert: site.pem, key: site.key }] }`";

pub(in crate::config::spec) const IN_CERTIFICATES: &str =
    "write it in `certificates`, as in `certificates: [{ cert: site.pem, key: site.key }]`";

/// Keys that `ListenerSpec` does not take, with what to write instead.
pub(in crate::config::spec) const LISTENER_INSTEAD: &[[&str; 2]] = &[
    ["http2", "remove it: every listener speaks HTTP/1.1 and HTTP/2"],
    ["server_name", HOST_OF_ROUTE],
    ["server_names", HOST_OF_ROUTE],
    ["host", HOST_OF_ROUTE],
    ["hosts", HOST_OF_ROUTE],
    ["domain", HOST_OF_ROUTE],
    ["domains", HOST_OF_ROUTE],
    ["location", BESIDE],
    ["locations", BESIDE],
    ["routes", BESIDE],
    ["client_max_body_size", BODY_OF_FILE],
    ["max_body_size", BODY_OF_FILE],
    ["ssl", TLS],
    ["ssl_certificate", TLS],
    ["certificates", TLS],
    ["maxconn", "write `limits: { connections: 10000 }` beside `listeners`"],
    ["max_connections", "write `limits: { connections: 10000 }` beside `listeners`"],
    ["accept_proxy", "write `proxy_protocol: true`, and `trusted_proxies` with the proxies"],
];

/// Words for keys of `ListenerSpec`, with the key that is meant.
pub(in crate::config::spec) const LISTENER_MEANT: &[[&str; 2]] = &[
    ["port", "listen"],
    ["address", "listen"],
    ["bind", "listen"],
    ["addr", "listen"],
    ["entry_point", "listen"],
    ["trusted_ips", "trusted_proxies"],
    ["client_ip_headers", "client_ip_header"],
    ["real_ip_header", "client_ip_header"],
    ["set_real_ip_from", "trusted_proxies"],
    ["forwarded_headers", "trusted_proxies"],
];

/// Keys that `TlsSpec` does not take, with what to write instead.
pub(in crate::config::spec) const TLS_INSTEAD: &[[&str; 2]] = &[
    ["cert", IN_CERTIFICATES],
    ["key", IN_CERTIFICATES],
    ["acme", "write it in `certificates`, as in `certificates: [{ acme: [shop.example.com] }]`"],
];

/// Words for keys of `TlsSpec`, with the key that is meant.
pub(in crate::config::spec) const TLS_MEANT: &[[&str; 2]] = &[
    ["ca", "client_ca"],
    ["ca_file", "client_ca"],
    ["client_certificate", "client_ca"],
    ["ssl_client_certificate", "client_ca"],
    ["trusted_ca_certs", "client_ca"],
    ["verify_client", "client_auth"],
    ["ssl_verify_client", "client_auth"],
    ["verify", "client_auth"],
    ["protocols", "min_version"],
    ["ssl_protocols", "min_version"],
    ["min_tls_version", "min_version"],
];

/// Words for keys of `AdminSpec`, with the key that is meant.
pub(in crate::config::spec) const ADMIN_MEANT: &[[&str; 2]] =
    &[["port", "listen"], ["address", "listen"]];

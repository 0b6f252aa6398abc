//! Words of listeners in other gateways.

use super::file::{BODY_OF_FILE, HOST_OF_ROUTE};

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

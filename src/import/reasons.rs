//! Why directives have no counterpart.

use super::{report::Effect, tree::Directive};

/// Reasons by name; those that end with `*` are for all names that begin so. These directives change
/// what clients, servers or logs get.
const REASONS: &[(&str, &str)] = &[
    ("access_log", "write `access_log: FILE`: its lines are JSON"),
    ("brotli*", "flowgate does not compress"),
    ("charset*", "bodies pass as they are"),
    ("client_body_timeout", "see `timeouts.idle` of a route"),
    ("client_header_buffer_size", "see `limits.header_bytes`"),
    ("client_header_timeout", "it holds for the whole file: write it in `http`"),
    ("error_log", "the log goes to the standard error"),
    ("error_page", "write `errors` at a route; errors of servers pass as they are"),
    ("expires", "write `response_headers`"),
    ("fastcgi*", "flowgate speaks HTTP to its servers"),
    ("grpc_*", "write an upstream with `protocol: h2`"),
    ("gzip*", "flowgate does not compress"),
    ("if", "write a route with a `match` for each case"),
    ("keepalive_timeout", "it holds for the whole file: write it in `http`"),
    ("large_client_header_buffers", "see `limits.header_bytes` and `limits.headers`"),
    ("limit_rate*", "nothing limits bytes a second"),
    ("listen", "see the other lines of this server"),
    ("location", "a named location does not become a route"),
    ("log_format", "lines of the access log are JSON"),
    ("lua_*", "nothing is programmed"),
    ("mail", "flowgate passes on HTTP only"),
    ("mirror*", "nothing is sent twice"),
    ("perl*", "nothing is programmed"),
    ("proxy_bind", "the system chooses the address"),
    ("proxy_cache*", "flowgate does not cache"),
    ("proxy_cookie*", "cookies pass as they are"),
    ("proxy_http_version", "see `protocol` of an upstream: it is 1.1 or 2"),
    ("proxy_next_upstream*", "write `retry`, which repeats otherwise"),
    ("proxy_redirect", "`Location` does not change"),
    ("proxy_ssl*", "see `tls` of an upstream"),
    ("proxy_store*", "flowgate stores nothing"),
    ("real_ip*", "write `trusted_proxies`: the field is X-Forwarded-For"),
    ("resolver*", "names are resolved by the system: see `resolve` of an upstream"),
    ("rewrite", "see `rewrite` and `redirect` of a route"),
    ("satisfy", "`access` and `auth` must both hold"),
    ("scgi*", "flowgate speaks HTTP to its servers"),
    ("send_timeout", "it holds for the whole file: write it in `http`"),
    ("set", "there are no variables of requests"),
    ("set_real_ip_from", "write `trusted_proxies`: the field is X-Forwarded-For"),
    ("split_clients", "there are no variables of requests"),
    ("ssl_*", "TLS is 1.2 and 1.3 with the ciphers of rustls"),
    ("stream", "flowgate passes on HTTP only"),
    ("stub_status", "see the admin listener: `/metrics`"),
    ("sub_filter*", "bodies pass as they are"),
    ("try_files", "flowgate serves no files"),
    ("underscores_in_headers", "names with underscores pass"),
    ("uwsgi*", "flowgate speaks HTTP to its servers"),
    ("worker_connections", "see `limits.connections`"),
    ("worker_processes", "`workers` is a number"),
];

/// Reasons of directives that change nothing here.
const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("add_header", "no converted location has it"),
    ("alias", "flowgate serves no files"),
    ("allow", "no converted location has it"),
    ("auth_basic*", "no converted location has it"),
    ("autoindex*", "flowgate serves no files"),
    ("client_body*", "bodies pass without being stored"),
    ("client_max_body_size", "no converted location has it"),
    ("default_type", "it matters for a `return` with a text only"),
    ("deny", "no converted location has it"),
    ("etag", "flowgate serves no files"),
    ("geo", "no converted directive uses its variable"),
    ("if_modified_since", "flowgate serves no files"),
    ("index", "flowgate serves no files"),
    ("limit_conn", "no converted location has it"),
    ("limit_conn_dry_run", "no converted location has it"),
    ("limit_conn_status", "no converted location has it"),
    ("limit_req", "no converted location has it: nginx does not ask it before a `return`"),
    ("limit_conn_zone", "no converted limit uses it"),
    ("limit_req_zone", "no converted limit uses it"),
    ("limit_req_dry_run", "no converted location has it"),
    ("limit_req_status", "no converted location has it"),
    ("map", "no converted directive uses its variable"),
    ("open_file_cache*", "flowgate serves no files"),
    ("pid", "write `flowgate run --pid-file`"),
    ("proxy_buffer*", "bodies pass as they come, and are not stored"),
    ("proxy_busy_buffers_size", "bodies pass as they come, and are not stored"),
    ("proxy_connect_timeout", "no converted location has it"),
    ("proxy_hide_header", "no converted location has it"),
    ("proxy_max_temp_file_size", "bodies pass as they come, and are not stored"),
    ("proxy_pass", "no converted location has it"),
    ("proxy_read_timeout", "no converted location has it"),
    ("proxy_request_buffering", "bodies pass as they come, and are not stored"),
    ("proxy_send_timeout", "no converted location has it"),
    ("proxy_set_header", "no converted location has it"),
    ("proxy_temp*", "bodies pass as they come, and are not stored"),
    ("return", "nothing comes to it"),
    ("rewrite_log", "see the access log"),
    ("root", "flowgate serves no files"),
    ("sendfile*", "flowgate serves no files"),
    ("ssl_certificate*", "no converted listener has it"),
    ("tcp_*", "flowgate sets its sockets itself"),
    ("types*", "flowgate serves no files"),
    ("upstream", "no converted location uses it"),
    ("user", "the service says as which user flowgate runs"),
    ("worker_*", "it is of the processes of nginx"),
];

/// Returns why nothing took a directive, and whether that changes anything.
pub(super) fn reason(directive: &Directive) -> (&'static str, Effect) {
    let name = directive.name.as_str();
    let is_meant = |known: &str| match known.strip_suffix('*') {
        Some(begin) => name.starts_with(begin),
        None => known == name,
    };
    let all = REASONS.iter().map(|(known, why)| (*known, *why, Effect::Changes));
    let all = all.chain(WITHOUT_EFFECT.iter().map(|(known, why)| (*known, *why, Effect::None)));
    let found = all.filter(|(known, ..)| is_meant(known)).max_by_key(|(known, ..)| known.len());
    found
        .map_or(("flowgate has no such setting", Effect::Changes), |(_, why, effect)| (why, effect))
}

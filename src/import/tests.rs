//! Conversions of whole files.

mod auth_request;
mod closed;
mod conversions;
mod limits;
mod places;
mod variables;

use super::{command::convert, files::Files, read::read};
use crate::config::Text;
use proptest::prelude::*;
use std::{fs, path::Path};

/// Directives of nginx by their names; most are of modules that its packages have.
const NAMES: &str = "absolute_redirect access_log add_header add_trailer aio alias allow ancient_browser \
    auth_basic auth_basic_user_file auth_delay auth_jwt auth_request auth_request_set autoindex break brotli \
    charset chunked_transfer_encoding client_body_buffer_size client_body_temp_path client_body_timeout \
    client_header_buffer_size client_header_timeout client_max_body_size connection_pool_size create_full_put_path \
    daemon debug_points default_type deny directio disable_symlinks empty_gif env error_log error_page etag expires \
    fastcgi_pass fastcgi_param flv geo geoip_country grpc_pass grpc_set_header gunzip gzip gzip_types hash hls http2 \
    if_modified_since ignore_invalid_headers image_filter include_nothing index internal ip_hash keepalive \
    keepalive_disable keepalive_requests keepalive_timeout large_client_header_buffers least_conn limit_conn \
    limit_conn_dry_run limit_conn_log_level limit_conn_status limit_conn_zone limit_except limit_rate limit_rate_after \
    limit_req limit_req_dry_run limit_req_log_level limit_req_status limit_req_zone lingering_close load_module \
    log_format log_not_found map max_ranges memcached_pass merge_slashes min_delete_depth mirror modern_browser mp4 \
    msie_padding open_file_cache open_log_file_cache output_buffers override_charset pcre_jit perl pid \
    port_in_redirect post_action postpone_output proxy_bind proxy_buffering proxy_buffers proxy_cache \
    proxy_cache_path proxy_connect_timeout proxy_cookie_path proxy_hide_header proxy_http_version \
    proxy_ignore_headers proxy_intercept_errors proxy_max_temp_file_size proxy_method proxy_next_upstream \
    proxy_pass_header proxy_pass_request_body proxy_read_timeout proxy_redirect proxy_request_buffering \
    proxy_send_timeout proxy_set_body proxy_set_header proxy_socket_keepalive proxy_ssl_certificate \
    proxy_ssl_name proxy_ssl_protocols proxy_ssl_server_name proxy_ssl_verify proxy_store proxy_temp_path \
    random real_ip_header real_ip_recursive recursive_error_pages referer_hash_max_size request_pool_size \
    reset_timedout_connection resolver resolver_timeout return rewrite rewrite_log root satisfy scgi_pass secure_link \
    send_lowat send_timeout sendfile server_name server_name_in_redirect server_names_hash_max_size server_tokens set \
    set_real_ip_from slice split_clients ssi ssl ssl_certificate ssl_certificate_key ssl_ciphers ssl_protocols \
    ssl_session_cache ssl_verify_client stub_status sub_filter subrequest_output_buffer_size tcp_nodelay tcp_nopush \
    thread_pool timer_resolution try_files types underscores_in_headers upstream uwsgi_pass user userid \
    valid_referers variables_hash_max_size worker_cpu_affinity worker_priority worker_processes xslt_stylesheet zone";

/// Where a directive stands: at `{}`.
const PLACES: [&str; 5] = [
    "events {}\n@\nhttp { server { listen 81; location / { proxy_pass http://h; } } }",
    "http {\n@\nserver { listen 81; location / { proxy_pass http://h; } } }",
    "http { server { listen 81;\n@\nlocation / { proxy_pass http://h; } } }",
    "http { server { listen 81; location / { proxy_pass http://h;\n@\n} } }",
    "http { upstream h { server 10.0.0.1;\n@\n} server { listen 81; location / { proxy_pass http://h; } } }",
];

/// Returns the result without its comments, and the lines of the report.
pub(super) fn import(text: &str) -> Result<(String, Vec<String>), String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nginx.conf");
    fs::write(&path, text).unwrap();
    let (tree, report) = read(&path, None).map_err(|error| error.to_string())?;
    let (mut config, lines) =
        convert(&tree, &Files { folder: "/etc/nginx".into(), root: None }, report);
    config.comments.clear();
    let folder = folder.path().display().to_string() + "/";
    let short = |text: &str| text.replace(&folder, "");
    let lines = lines.blocks.iter().chain(&lines.changes).chain(&lines.without_effect);
    Ok((short(&config.write()), lines.map(|line| short(line)).collect()))
}

#[test]
fn every_directive_is_in_the_result_or_in_the_report() {
    for place in PLACES {
        let (without, _) = import(&place.replace('@', "")).unwrap();
        for name in NAMES.split_whitespace() {
            for directive in
                [format!("{name} x;"), format!("{name} x y;"), format!("{name} x {{ y z; }}")]
            {
                let (with, lines) = import(&place.replace('@', &directive)).unwrap();
                // What flowgate does in any case: the only server takes all hosts, and workers share.
                let is_usual = matches!(name, "server_name" | "zone");
                let is_reported =
                    lines.iter().any(|line| line.starts_with(&format!("nginx.conf:2: {name}: ")));
                assert!(
                    is_usual || is_reported || with != without,
                    "{directive} in {place}:\n{with}{lines:#?}"
                );
            }
        }
    }
}

#[test]
fn what_converts_exactly_leaves_no_line() {
    let text = r#"
        events {}
        http {
            access_log off; server_tokens off; client_max_body_size 10m;
            geo $limited { default 1; 10.0.0.0/8 0; 10.1.2.3 0; }
            map $limited $key { 0 ""; 1 $binary_remote_addr; }
            limit_req_zone $key zone=perip:1m rate=30r/m;
            limit_conn_zone $http_x_tenant zone=tenant:1m;
            limit_req_status 429;
            upstream app { server 10.0.0.1 weight=2; server 10.0.0.2:81 down; keepalive 8; random; }
            server {
                listen 127.0.0.1:80 default_server;
                location / {
                    proxy_pass http://app; proxy_http_version 1.1; proxy_redirect off;
                    proxy_set_header Connection ""; proxy_set_header Host $http_host;
                    proxy_set_header X-Real-IP $remote_addr; proxy_set_header Cookie "";
                    proxy_hide_header X-Powered-By; add_header X-Frame-Options DENY always;
                    limit_req zone=perip burst=20 nodelay; limit_conn tenant 5; limit_conn_status 503;
                    proxy_connect_timeout 2s; client_max_body_size 0;
                    deny 10.9.0.0/16; allow 10.0.0.0/8; deny all;
                }
                location /api/ { proxy_pass http://app/v1/; proxy_redirect off; }
                location = /up { return 200 "{ok} $host"; }
            }
            server { listen 127.0.0.1:80; server_name old.test; return 301 https://new.test$request_uri; }
        }"#;
    let (yaml, lines) = import(text).unwrap();
    assert_eq!(lines, [""; 0], "{yaml}");
    let expected = "  # nginx.conf:13 location /
  - name: server-1/all
    match: { path_prefix: / }
    upstream: app-2
    request_headers: { set: { x-real-ip: \"{client_ip}\" }, remove: [cookie] }
    upgrades: []
    access: { allow: [10.0.0.0/8], deny: [10.9.0.0/16] }
    flow:
      - { name: perip, limit: 30/1m, burst: 21, key: client_ip, ipv6_prefix: 128, except: { client_ip: [10.0.0.0/8, 10.1.2.3] }, max_keys: 16384 }
      - { name: tenant, concurrency: 5, key: header:x-tenant, on_missing_key: skip, on_duplicate_key: first, max_keys: 16384 }
    body_limit: 1EiB
    response_headers: { set: { x-frame-options: DENY }, remove: [x-powered-by] }
";
    assert!(yaml.contains(expected), "{yaml}");
    for expected in [
        "      - { url: http://10.0.0.1:80, weight: 2 }\n    max_idle: 8\n    balance: random\n",
        "body: \"{{ok}} {host}\"",
        "match: { host: old.test, path_prefix: / }\n    redirect: { to: \"https://new.test{path}{query}\", status: 301 }",
        "match: { path: /api }\n    redirect: { to: \"{path}/\", status: 301 }",
        "rewrite: { strip_prefix: /api, add_prefix: /v1, host: app }",
        "limits: { body: 10MiB }",
    ] {
        assert!(yaml.contains(expected), "{expected} in\n{yaml}");
    }
    Text::new(Path::new("gateway.yaml"), &yaml).rules().unwrap();
}

#[test]
fn what_keeps_clients_out_and_does_not_convert_closes_the_route() {
    for guard in [
        "auth_request /auth;",
        "auth_basic x;",
        "auth_basic x; auth_basic_user_file /nowhere;",
        "limit_except GET { deny all; }",
        "if ($ssl_client_cert ~ x) { return 403; }",
        "secure_link $arg_x;",
    ] {
        let text = format!(
            "http {{ server {{ listen 81; location / {{ proxy_pass http://h; allow 10.0.0.0/8; deny all; {guard} }} }} }}"
        );
        let (yaml, lines) = import(&text).unwrap();
        let closed = "    match: { path_prefix: / }
    respond: { status: 403 }
    access: { allow: [10.0.0.0/8] }\n";
        assert!(yaml.contains(closed), "{guard}: {yaml}");
        assert!(yaml.contains("  #   upstream: h\n"), "{guard}: {yaml}");
        let end = "Closed: requests get 403 until you write this restriction (route `all`)";
        assert!(lines[0].ends_with(end), "{lines:?}");
    }
}

#[test]
fn a_regular_expression_that_keeps_clients_out_and_does_not_convert_closes_its_paths() {
    let import = |open: &str, inner: &str| {
        let text = format!(
            "http {{ server {{ listen 81; location / {{ proxy_pass http://h; }} {open}\n{inner} }} }}"
        );
        import(&text).unwrap()
    };
    let closed = |regex: &str| {
        format!("match: {{ path_regex: \"{regex}\" }}\n    respond: {{ status: 403 }}\n")
    };
    for guard in [
        "deny all;",
        "allow 10.0.0.0/8; deny all; proxy_pass http://h;",
        "auth_basic x; proxy_pass http://h;",
        "auth_request /auth; proxy_pass http://h;",
        "return 403;",
        "return 444;",
        "internal;",
        "if ($arg_x) { return 404; } proxy_pass http://h;",
    ] {
        let (yaml, lines) = import("", &format!("location ~ ^/a/(?=b) {{ {guard} }}"));
        assert!(yaml.contains(&closed("/a/.*")), "{guard}: {yaml}");
        let line = lines.iter().find(|line| line.starts_with("nginx.conf:2: location: "));
        assert!(line.is_some_and(|line| line.ends_with("match `/a/.*` get 403")), "{lines:?}");
    }
    for (regex, expected) in
        [(r"/\.(?=b)", r".*/\\..*"), ("(?=x)y", ".*y.*"), ("^/a+(?=x)", "/a+.*")]
    {
        let (yaml, _) = import("", &format!("location ~ {regex} {{ deny all; }}"));
        assert!(yaml.contains(&closed(expected)), "{expected}: {yaml}");
    }
    let (yaml, _) = import("", "location ~* ^/A/(?=b) { deny all; }");
    assert!(yaml.contains(&closed("(?i)/A/.*")), "{yaml}");
    // Two prefixes are asked in turn behind the regular expression that is within the shorter one.
    let (yaml, _) = import(
        "location ~ y { return 200; } location /p/q/ { return 200; }",
        "location /p/ { return 200; location ~ ^/p/ { deny all; } }",
    );
    assert!(yaml.contains(&closed("/p/.*")), "{yaml}");
    for (open, inner) in [
        ("", "location ~ ^/a/(?=b) { proxy_pass http://h; }"),
        ("deny 10.0.0.1;", "location ~ ^/a/(?=b) { proxy_pass http://h; }"),
        ("", "location ~ ^/a/(?=b) { return 200; deny all; }"),
        ("", "location /b/ { proxy_pass http://h; location ~ ^/a/ { deny all; } }"),
    ] {
        let (yaml, _) = import(open, inner);
        assert!(!yaml.contains("status: 403"), "{inner}: {yaml}");
    }
}

#[test]
fn a_difference_is_a_line() {
    for (directive, expected) in [
        ("limit_req zone=z burst=9 delay=3;", "rejects as nginx does, but holds nothing back"),
        ("limit_req zone=slow burst=99;", "that would take longer than 30 minutes"),
        ("limit_req zone=none;", "there is no zone `none`"),
        ("allow 10.1.0.0/16; deny 10.0.0.0/8;", "`deny` wins here"),
        ("proxy_set_header Host $host;", "also receives the port"),
        ("add_header X-A b;", "errors get the field too"),
        ("rewrite ^/a$ /b last;", "rewrite: see `rewrite`"),
    ] {
        let text = format!(
            "http {{ limit_req_zone $uri zone=z:1m rate=1r/s; limit_req_zone $uri zone=slow:1m rate=1r/m;\n\
             server {{ listen 81; location / {{ proxy_pass http://h;\n{directive} }} }} }}"
        );
        let (_, lines) = import(&text).unwrap();
        let found =
            lines.iter().any(|line| line.starts_with("nginx.conf:3: ") && line.contains(expected));
        assert!(found, "{directive}: {lines:#?}");
    }
    let shared = "http { limit_req_zone $uri zone=z:1m rate=1r/s;\n\
                  server { listen 81; location / { proxy_pass http://h; limit_req zone=z; }
                  location /a/ { proxy_pass http://h; limit_req zone=z burst=5 nodelay; } } }";
    let (_, lines) = import(shared).unwrap();
    assert!(
        lines.iter().any(|line| line
            .contains("limit_req: the zone `z` is one count in nginx; here each of 2 routes counts for itself, because their numbers differ")),
        "{lines:?}"
    );
}

#[test]
fn a_line_names_what_it_is_about_and_is_said_once() {
    let text = "http { map $http_upgrade $connection_upgrade { default upgrade; '' close; }
        limit_req_zone $uri zone=z:1m rate=1r/s; limit_conn_zone $uri zone=c:1m;
        upstream h { server 10.0.0.1; server 10.0.0.2 backup; }
        server { listen 80; limit_req_status 430;
        location / { proxy_pass http://h; limit_req zone=z; limit_conn c 1;
            proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $connection_upgrade; }
        location /b/ { proxy_pass http://h/; proxy_set_header Upgrade $http_upgrade; } } }";
    let (yaml, lines) = import(text).unwrap();
    let expected = [
        "nginx.conf:4: limit_req_status: limits of the route `all` answer 430 and 503; a route has one status: here 430",
        "nginx.conf:7: proxy_pass: here and elsewhere, nginx also changes `Location`",
        "nginx.conf:7: proxy_set_header: here and elsewhere, nginx passes upgrades to every protocol",
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:#?}\n{yaml}");
    assert!(lines.iter().zip(expected).all(|(line, known)| line.starts_with(known)), "{lines:#?}");
}

#[test]
fn lines_are_grouped_by_their_effect() {
    let text =
        "user x;\nhttp { access_log /x; sendfile on;\nlimit_rate 1m; map $a $b { default c; }
        server { listen 81; access_log off; return 204; } }";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nginx.conf");
    fs::write(&path, text).unwrap();
    let (tree, report) = read(&path, None).unwrap();
    let (config, lines) =
        convert(&tree, &Files { folder: folder.path().into(), root: None }, report);
    let begin = path.display();
    let expected = [
        "Changes what clients, servers or logs get (3):".to_owned(),
        format!(
            "  {begin}:2: access_log: its lines have no query, and go to the standard output: write `access_log: FILE` for a file"
        ),
        format!("  {begin}:3: limit_rate: nothing limits bytes a second"),
        format!("  {begin}:4: access_log: the log has all requests"),
        "3 more directives have no effect here.".to_owned(),
    ];
    assert_eq!(lines.titled(), expected);
    assert_eq!(config.comments[1..], expected);
    assert!(config.write().contains("\naccess_log: stdout\n"), "{}", config.write());
    let text = text.replace("access_log /x;", "");
    let (yaml, lines) = import(&text).unwrap();
    assert!(!yaml.contains("access_log") && !lines.concat().contains("access_log"), "{yaml}");
}

#[test]
fn names_that_nginx_drops_are_one_line_of_the_whole_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nginx.conf");
    let general = |text: &str| {
        fs::write(&path, text).unwrap();
        let (tree, report) = read(&path, None).unwrap();
        let files = Files { folder: folder.path().into(), root: None };
        let (_, lines) = convert(&tree, &files, report);
        (lines.general.len(), lines.titled().concat())
    };

    let pass = "server { listen 81; location / { proxy_pass http://h; } }";
    let (count, text) = general(&format!("http {{ {pass} }}"));
    let expected = "Without `underscores_in_headers on`, nginx drops request fields whose names have `_` or `.`: flowgate passes them to servers.";
    assert!(count == 1 && text.ends_with(expected), "{text}");

    // No server gets fields, or nginx passes them as well, or a line is about the directive itself.
    for (http, is_named) in [
        ("server { listen 81; return 204; }".to_owned(), false),
        (format!("underscores_in_headers on; {pass}"), false),
        (format!("underscores_in_headers off; {pass}"), true),
        (pass.replace("listen", "underscores_in_headers off; listen"), true),
    ] {
        let (count, text) = general(&format!("http {{ {http} }}"));
        assert_eq!(
            (count, text.contains("underscores_in_headers: ")),
            (0, is_named),
            "{http}: {text}"
        );
    }
}

#[test]
fn a_realm_is_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    fs::write(&users, "a:$2y$05$abc\n").unwrap();
    for (realm, expected) in [
        ("Staff only", &["nginx.conf:1: auth_basic: the realm is `restricted` here"][..]),
        ("restricted", &[]),
    ] {
        let users = users.display();
        let text = format!(
            "http {{ server {{ listen 81; location / {{ proxy_pass http://h; proxy_set_header Host $http_host; auth_basic '{realm}'; auth_basic_user_file {users}; }} }} }}"
        );
        let (yaml, lines) = import(&text).unwrap();
        assert!(yaml.contains("auth: { basic: "), "{yaml}");
        assert_eq!(lines, expected);
    }
}

#[test]
fn locations_within_others_are_routes_or_one_line() {
    let text = "http { server { listen 81; proxy_redirect off;
        location / { proxy_pass http://h; client_max_body_size 5; deny 10.0.0.1;
            location /a/ { proxy_pass http://h; location = /a/x { proxy_pass http://h; allow all; } }
            location ~ ^/a?/x { proxy_pass http://h; limit_rate 1m; }
            location /b { location /c { limit_rate 1m; } return 200; }
        }
        location = /e { return 200; location /e/f { return 201; } }
        location /a { location /a { return 200; } proxy_pass http://h; }
    } }";
    let (yaml, lines) = import(text).unwrap();
    let expected = [
        "nginx.conf:3: location: another location than the surrounding one matches its paths",
        "nginx.conf:4: limit_rate: nothing limits bytes a second",
        "nginx.conf:5: location: nginx rejects a nested location whose path does not begin with that of the outer one",
        "nginx.conf:7: location: a location nested in an exact one or a regular expression does not become a route",
        "nginx.conf:8: location: the location within it takes all of its paths",
        "nginx.conf:8: proxy_pass: no converted",
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    assert!(lines.iter().zip(expected).all(|(line, known)| line.starts_with(known)), "{lines:#?}");
    let text = text
        .replace("location /a {", "location /z {")
        .replace("{ location /a {", "{ location /z {");
    let (yaml_of_inner, _) = import(&text).unwrap();
    let inner = yaml_of_inner.split("  - name: ").find(|route| route.starts_with("a/x\n"));
    let inner = inner.unwrap_or_else(|| panic!("{yaml_of_inner}"));
    assert!(inner.contains("match: { path: /a/x }") && inner.contains("body_limit: 5B"), "{inner}");
    assert!(!inner.contains("deny"), "its own list replaces the outer one: {inner}");
    assert!(yaml.contains("name: a\n") && !yaml.contains("name: a/x"), "{yaml}");
}

#[test]
fn keys_that_no_rule_has_are_lines() {
    for (key, maps) in [
        ("$request_uri", ""),
        ("$binary_remote_addr$request_id", ""),
        ("$g", "geo $g { default 1; 10.0.0.0/8 0; }"),
    ] {
        let text = format!(
            "http {{ {maps}\nlimit_req_zone {key} zone=z:1m rate=1r/s;\n\
             server {{ listen 81; location / {{ proxy_pass http://h; limit_req zone=z; }} }} }}"
        );
        let (yaml, lines) = import(&text).unwrap();
        assert!(!yaml.contains("flow:"), "{key}: {yaml}");
        assert!(
            lines.iter().any(|line| line.starts_with("nginx.conf:2: limit_req_zone: ")),
            "{lines:?}"
        );
        let of_limit = lines.iter().find(|line| line.starts_with("nginx.conf:3: limit_req: "));
        let end = "Its requests do not have this limit";
        assert!(of_limit.is_some_and(|line| line.ends_with(end)), "{lines:?}");
    }
}

#[test]
fn files_are_included_within_bounds() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let path = folder.path().join("nginx.conf");
    fs::create_dir(folder.path().join("conf.d")).unwrap();
    write("conf.d/b.conf", "server { listen 82; return 200; }");
    write("conf.d/a.conf", "server { listen 81; return 200; }");
    write("conf.d/.c.conf", "nothing");
    write("nginx.conf", "http { include conf.d/*.conf; include none/*; include missing.conf; }");
    let (tree, report) = read(&path, None).unwrap();
    let (config, lines) =
        convert(&tree, &Files { folder: folder.path().into(), root: None }, report);
    let listeners: Vec<_> = config.listeners.iter().map(|item| item.text("listen")).collect();
    assert_eq!(listeners, ["0.0.0.0:81", "0.0.0.0:82"]);
    assert_eq!(lines.changes.len(), 1, "{lines:?}");
    assert!(lines.changes[0].contains("missing.conf cannot be read"), "{lines:?}");
    let fails = |text: &str| {
        write("nginx.conf", text);
        read(&path, None).expect_err(text).to_string()
    };
    assert!(fails("include nginx.conf;").contains(":1: the file includes itself"));
    assert!(fails(&"a {".repeat(40)).contains("nested more than 32 deep"));
    assert!(fails(&"a;".repeat(200_001)).contains("more than 200000 directives"));
    assert!(fails("a {").contains("the file ends within a directive"));
    assert!(fails("}").contains("unexpected `}`; `flowgate import` reads configurations of nginx"));
    assert!(fails(";").contains("unexpected `;`"));
    write("nginx.conf", &" ".repeat((16 << 20) + 1));
    assert!(read(&path, None).is_err());
    write("deep.conf", "include deep2.conf;");
    write("deep2.conf", "include deep.conf;");
    assert!(fails("include deep.conf;").contains("the file includes itself"));
    assert!(
        read(Path::new("/nowhere/nginx.conf"), None)
            .unwrap_err()
            .to_string()
            .contains("cannot read")
    );
}

/// Words that make sense in some places.
fn words() -> impl Strategy<Value = String> {
    let names: Vec<_> = NAMES.split_whitespace().map(str::to_owned).collect();
    let values: Vec<_> = "on off 0 1 5 10m 10s all 10.0.0.0/8 $host $binary_remote_addr $uri $1 zone=z:1m zone=z \
        rate=5r/m burst=3 nodelay delay=1 429 444 301 /a /a/ = ~ ^~ ~* (a|b)+$ http://h http://h/v1/ https://h \
        x-a *.a.test .b.test _ 80 443 ssl default_server [::]:80 default always 'a;b' '{x}' '${host}' '' @named"
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    prop_oneof![proptest::sample::select(values), proptest::sample::select(names)]
}

fn directive(depth: u32) -> BoxedStrategy<String> {
    let names: Vec<_> = NAMES.split_whitespace().map(str::to_owned).collect();
    let parts = (proptest::sample::select(names), prop::collection::vec(words(), 0..4));
    let plain = parts.prop_map(|(name, words)| format!("{name} {};", words.join(" ")));
    if depth == 0 {
        return plain.boxed();
    }
    let inside = prop::collection::vec(directive(depth - 1), 0..6);
    let block = (
        proptest::sample::select(vec!["location", "server", "upstream h", "map $a", "geo"]),
        prop::collection::vec(words(), 0..3),
        inside,
    );
    let block = block.prop_map(|(name, words, inner)| {
        format!("{name} {} {{ {} }}", words.join(" "), inner.join(" "))
    });
    prop_oneof![3 => plain, 2 => block].boxed()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_result_with_routes_is_valid(
        main in prop::collection::vec(directive(1), 0..4),
        server in prop::collection::vec(directive(2), 0..8),
        location in prop::collection::vec(directive(1), 0..8),
    ) {
        let text = format!(
            "http {{ limit_req_zone $uri zone=z:1m rate=1r/s; {} server {{ listen 81; {} location / {{ proxy_pass http://h; {} }} }} }}",
            main.join("\n"), server.join("\n"), location.join("\n"),
        );
        if let Ok((yaml, lines)) = import(&text) {
            // Otherwise the command says that there is nothing to convert.
            prop_assume!(yaml.contains("listeners:\n") && yaml.contains("routes:\n"));
            let checked = Text::new(Path::new("gateway.yaml"), &yaml).rules();
            prop_assert!(checked.is_ok(), "{}\n{yaml}\n{text}\n{lines:#?}", checked.unwrap_err());
        }
    }

    #[test]
    fn any_text_is_read_or_rejected(text in "[a-z{};'\"\\\\$# \n]{0,200}") {
        drop(import(&text));
    }
}

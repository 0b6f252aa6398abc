//! Directives with an equal in flowgate, one kind after another.

use super::{
    closed::{route, routes},
    import,
};

/// Imports a server with these directives and a location that passes everything on.
fn server(directives: &str) -> (String, Vec<String>) {
    let text = format!(
        "http {{ map $http_user_agent $bot {{ default 0; ~*crawler 1; evil 1; }}
        map $bot $robot {{ 1 yes; }}
        map $request_method $odd {{ default 1; GET 0; POST 0; }}
        server {{ listen 81; {directives}
        location / {{ proxy_pass http://h; proxy_redirect off; proxy_set_header Host $http_host; }} }} }}"
    );
    import(&text).unwrap()
}

#[test]
fn conditions_become_routes() {
    for (condition, expected) in [
        ("$http_user_agent ~* Bot", "header: { user-agent: { regex: \"(?i:.*(?:Bot).*)\" } }"),
        ("$http_user_agent ~ (?i)bot", "header: { user-agent: { regex: \"(?i:.*(?:bot).*)\" } }"),
        ("$bot", "header: { user-agent: { regex: \"(?i:evil)|(?i:.*(?:crawler).*)\" } }"),
        ("$robot = yes", "header: { user-agent: { regex: \"(?i:evil)|(?i:.*(?:crawler).*)\" } }"),
        ("$request_method = DELETE", "method: DELETE"),
        ("$request_method ~ ^(PUT|DELETE)$", "method: [PUT, DELETE]"),
        ("$http_x_secret = abc", "header: { x-secret: abc }"),
        ("$cookie_beta = 1", "header: { cookie: { regex: \"(?:.*[; ])?(?i:beta)=1(?:;.*)?\" } }"),
        ("$arg_debug = 1", "query: { debug: \"1\" }"),
    ] {
        let (yaml, _) = server(&format!("if ({condition}) {{ return 403; }}"));
        let all = routes(&yaml);
        let expected =
            format!("match: {{ path_prefix: /, {expected} }}\nrespond: {{ status: 403 }}\n");
        assert!(all[0].1.contains(&expected), "{condition}: {yaml}");
        assert!(all[1].1.contains("match: { path_prefix: / }\nupstream: h\n"), "{yaml}");
        assert_eq!(all.len(), 2, "{yaml}");
    }
}

#[test]
fn negated_conditions_are_those_of_the_route_itself() {
    for (condition, expected) in [
        ("$request_method !~ ^(GET|HEAD|POST)$", "method: [GET, HEAD, POST]"),
        ("$odd", "method: [GET, POST]"),
        ("$http_x_forwarded_proto != https", "header: { x-forwarded-proto: https }"),
        ("$http_user_agent = ''", "header: { user-agent: { regex: \".+\" } }"),
    ] {
        let (yaml, _) = server(&format!("if ({condition}) {{ return 405; }}"));
        let expected = format!("match: {{ path_prefix: /, {expected} }}\nupstream: h\n");
        let all = routes(&yaml);
        assert!(all.iter().any(|(_, route)| route.contains(&expected)), "{condition}: {yaml}");
        let rest = "match: { path_prefix: / }\nrespond: { status: 405 }\n";
        assert!(all.iter().any(|(_, route)| route.contains(rest)), "{condition}: {yaml}");
    }
}

#[test]
fn a_preflight_gets_its_fields() {
    let (yaml, lines) = server(
        "if ($request_method = 'OPTIONS') { add_header Access-Control-Allow-Origin * always;
        add_header Access-Control-Max-Age 600 always; return 204; }",
    );
    let expected = "match: { path_prefix: /, method: OPTIONS }
respond: { status: 204 }
response_headers: { set: { access-control-allow-origin: \"*\", access-control-max-age: \"600\" } }\n";
    assert!(routes(&yaml)[0].1.contains(expected), "{yaml}");
    assert!(!lines.concat().contains(": if: "), "{lines:?}");
}

#[test]
fn conditions_of_a_server_are_one_route_for_all_its_paths() {
    let (yaml, _) = server(
        "if ($http_user_agent ~ bot) { return 444; } location = /a { return 200; } location = /b { return 200; }",
    );
    let all = routes(&yaml);
    let expected = "match: { path: [/a, /b], header: { user-agent: { regex: \".*(?:bot).*\" } } }\nrespond: close\n";
    assert!(all.iter().any(|(_, route)| route.contains(expected)), "{yaml}");
}

#[test]
fn the_scheme_is_that_of_the_listener() {
    let text =
        "http { server { listen 80; listen 443 ssl; ssl_certificate c; ssl_certificate_key k;
        if ($scheme = http) { return 301 https://$http_host$request_uri; }
        location / { proxy_pass http://h; } } }";
    let (yaml, _) = import(text).unwrap();
    let all = routes(&yaml);
    let redirect = "match: { listener: http-80, path_prefix: / }\nredirect: { to: \"https://{host}{path}{query}\", status: 301 }";
    assert!(all.iter().any(|(_, route)| route.contains(redirect)), "{yaml}");
    let passed = "match: { listener: https-443, path_prefix: / }\nupstream: h";
    assert!(all.iter().any(|(_, route)| route.contains(passed)), "{yaml}");
}

#[test]
fn other_hosts_than_these_are_answered() {
    let (yaml, lines) = server("if ($host !~* ^(a\\.test|b\\.test)$) { return 444; }");
    let all = routes(&yaml);
    assert!(all[0].1.contains("match: { path_prefix: / }\nrespond: close\n"), "{yaml}");
    assert!(
        all[1].1.contains("match: { host: [a.test, b.test], path_prefix: / }\nupstream: h"),
        "{yaml}"
    );
    assert!(!lines.concat().contains(": if: "), "{lines:?}");
}

#[test]
fn a_named_location_gets_the_requests_without_a_file() {
    let text = "http { upstream app { server 10.0.0.1:3000; } limit_req_zone $binary_remote_addr zone=z:1m rate=1r/s;
        server { listen 81; root /srv; location / { try_files $uri $uri/ @app; }
        location /only/ { try_files $uri =404; }
        location @app { proxy_pass http://app; proxy_set_header X-Real-IP $remote_addr; limit_req zone=z burst=5 nodelay; } } }";
    let (yaml, lines) = import(text).unwrap();
    let all = route(&yaml, "all");
    for part in ["upstream: app", "x-real-ip: \"{client_ip}\"", "name: z, limit: 1/1s, burst: 6"] {
        assert!(all.contains(part), "{part}: {yaml}");
    }
    assert!(route(&yaml, "only").contains("respond: { status: 501 }"), "{yaml}");
    let said = "try_files: files are not served: all requests go to @app";
    assert!(lines.iter().any(|line| line.ends_with(said)), "{lines:#?}");
    let (yaml, _) =
        import(&text.replace("try_files $uri $uri/ @app", "error_page 404 = @app")).unwrap();
    assert!(route(&yaml, "all").contains("upstream: app"), "{yaml}");
    let (yaml, _) =
        import(&text.replace("location / { try_files $uri $uri/ @app; }", "try_files $uri @app;"))
            .unwrap();
    assert!(route(&yaml, "all").contains("upstream: app"), "{yaml}");
    let (yaml, _) = import(&text.replace(
        "try_files $uri $uri/ @app;",
        "if (!-f $request_filename) { proxy_pass http://app; break; }",
    ))
    .unwrap();
    assert!(route(&yaml, "all").contains("upstream: app"), "{yaml}");
}

#[test]
fn paths_without_a_location_are_files_if_there_is_a_root() {
    for (server, expected) in [("root /srv;", 501), ("", 404)] {
        let text = format!(
            "http {{ server {{ listen 81; {server}\nlocation /api/ {{ proxy_pass http://h; }} }} }}"
        );
        let (yaml, lines) = import(&text).unwrap();
        let other = route(&yaml, "other");
        assert!(other.contains(&format!("respond: {{ status: {expected} }}")), "{yaml}");
        let is_said =
            lines.iter().any(|line| line.starts_with("nginx.conf:1: root: paths without"));
        assert_eq!(is_said, expected == 501, "{lines:?}");
    }
}

#[test]
fn both_lists_of_a_location_and_its_named_one_hold() {
    let text =
        "http { server { listen 81; location / { allow 10.0.0.0/8; deny all; try_files $uri @app; }
        location @app { allow 192.0.2.0/24; deny all; proxy_pass http://h; } } }";
    let (yaml, lines) = import(text).unwrap();
    assert!(route(&yaml, "all").contains("respond: { status: 403 }"), "{yaml}");
    assert!(lines[0].contains("the named location restricts clients too"), "{lines:?}");
}

#[test]
fn addresses_with_variables_are_those_that_they_stand_for() {
    for (directives, expected) in [
        ("proxy_pass http://h$request_uri;", "upstream: h\n"),
        ("proxy_pass http://h$uri$is_args$args;", "upstream: h\n"),
        ("set $app http://h; proxy_pass $app;", "upstream: h\n"),
        ("set $app h; proxy_pass http://$app$request_uri;", "upstream: h\n"),
        ("set $app h; proxy_pass http://$app/x;", "path_regex: { match: \"^.*$\", replace: /x }"),
        ("proxy_pass http://h/v1;", "upstream: h\n"),
        ("grpc_pass grpc://h;", "upstream: h\n"),
        ("rewrite ^/a/(.*)/b$ /c/$1 break; proxy_pass http://h;", "replace: \"/c/$1\""),
    ] {
        let text = format!("http {{ server {{ listen 81; location /v1 {{ {directives} }} }} }}");
        let (yaml, _) = import(&text).unwrap();
        let found = routes(&yaml)
            .into_iter()
            .any(|(_, route)| route.contains("upstream: h\n") && route.contains(expected));
        assert!(found, "{directives}: {yaml}");
        assert_eq!(yaml.contains("protocol: h2"), directives.contains("grpc"), "{yaml}");
    }
    let text = "http { server { listen 81; location ~ ^/u/([0-9]+)/(.*)$ { proxy_pass http://h/user/$2?$args; } } }";
    let (yaml, lines) = import(text).unwrap();
    assert!(yaml.contains("replace: \"/user/$2\""), "{yaml} {lines:?}");
}

#[test]
fn servers_receive_the_client_that_nginx_sends() {
    let (yaml, _) = import(
        "http { set_real_ip_from 10.0.0.0/8; real_ip_header X-Forwarded-For; real_ip_recursive on;
        server { listen 81; location / { proxy_pass http://h; proxy_set_header X-Forwarded-For $remote_addr;
        proxy_set_header X-Request-ID $request_id; } } }",
    )
    .unwrap();
    let expected = "set: { x-forwarded-for: \"{client_ip}\", x-request-id: \"{request_id}\" }";
    assert!(yaml.contains(expected), "{yaml}");
}

#[test]
fn a_listener_on_a_unix_socket_is_one() {
    let (yaml, report) = import(
        "http { set_real_ip_from unix:; real_ip_header X-Forwarded-For; real_ip_recursive on;
        server { listen unix:/run/site/web.sock; listen 81; return 200; } }",
    )
    .unwrap();
    for part in [
        "name: http-run-site-web.sock",
        "listen: unix:/run/site/web.sock",
        "unix_mode: \"0666\"",
        "trusted_proxies: [unix]",
    ] {
        assert!(yaml.contains(part), "{part}: {yaml}{report:?}");
    }
}

#[test]
fn the_field_of_proxies_is_that_of_nginx() {
    let file = |directives: &str| {
        let text = format!("http {{ {directives} server {{ listen 81; return 200; }} }}");
        import(&text).unwrap()
    };
    let proxies = "set_real_ip_from 10.0.0.0/8; real_ip_recursive on;";
    for (header, expected) in [
        ("real_ip_header CF-Connecting-IP;", "client_ip_header: cf-connecting-ip\n"),
        ("real_ip_header X-Real-IP;", "client_ip_header: x-real-ip\n"),
        // The default of nginx.
        ("", "client_ip_header: x-real-ip\n"),
    ] {
        let (yaml, lines) = file(&format!("{proxies} {header}"));
        assert!(yaml.contains(expected), "{yaml}");
        assert!(yaml.contains("trusted_proxies: [10.0.0.0/8]\n"), "{yaml}");
        assert_eq!(lines, [""; 0], "{header}");
    }
    let (yaml, _) = file(&format!("{proxies} real_ip_header X-Forwarded-For;"));
    assert!(!yaml.contains("client_ip_header"), "{yaml}");

    let own = "http { set_real_ip_from 10.0.0.0/8; real_ip_header X-Forwarded-For; real_ip_recursive on;
        server { listen 81; real_ip_header X-Real-IP; return 200; } server { listen 82; return 200; } }";
    let (yaml, _) = import(own).unwrap();
    let expected = "    listen: 0.0.0.0:81\n    client_ip_header: x-real-ip\n  - name: http-82";
    assert!(yaml.contains(expected), "{yaml}");
}

#[test]
fn proxies_of_a_server_are_those_of_its_listener() {
    let (yaml, lines) = import(
        "http { server { listen 81; set_real_ip_from 10.0.0.0/8; real_ip_header X-Forwarded-For; real_ip_recursive on; return 200; }
        server { listen 82; return 200; } }",
    )
    .unwrap();
    let expected = "    listen: 0.0.0.0:81\n    trusted_proxies: [10.0.0.0/8]\n  - name: http-82";
    assert!(yaml.contains(expected), "{yaml}");
    assert_eq!(lines, [""; 0]);
}

#[test]
fn logs_of_the_combined_format_stay_so() {
    let combined = "'$remote_addr - $remote_user [$time_local] \"$request\" ' '$status $body_bytes_sent \"$http_referer\" ' '\"$http_user_agent\"";
    let file = |logs: &str| {
        let text = format!("http {{ {logs} server {{ listen 81; return 200; }} }}");
        import(&text).unwrap()
    };
    for logs in [
        "access_log /a.log;".to_owned(),
        "access_log /a.log combined; access_log off;".to_owned(),
        "access_log /a.log combined buffer=32k;".to_owned(),
        format!("log_format main {combined}'; access_log /a.log main;"),
        format!("log_format main {combined} \"$http_x_forwarded_for\"'; access_log /a.log main;"),
    ] {
        let (yaml, _) = file(&logs);
        assert!(
            yaml.contains("access_log: stdout\naccess_log_format: combined\n"),
            "{logs}: {yaml}"
        );
    }
    for logs in [
        "log_format own '$remote_addr $request_time'; access_log /a.log own;".to_owned(),
        "log_format own '$remote_addr'; access_log /a.log; access_log /b.log own;".to_owned(),
        "access_log off;".to_owned(),
    ] {
        let (yaml, _) = file(&logs);
        assert!(!yaml.contains("access_log_format"), "{logs}: {yaml}");
    }
}

#[test]
fn error_pages_are_texts() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("50x.html");
    std::fs::write(&page, "<h1>{path} is broken</h1>\n").unwrap();
    let root = folder.path().display();
    let text = format!(
        "http {{ server {{ listen 81; error_page 500 502 /50x.html; error_page 404 /404; error_page 403 =200 /x;
        proxy_redirect off; location / {{ proxy_pass http://h; proxy_intercept_errors on; }} location /own {{ proxy_pass http://h; }}
        location = /50x.html {{ root {root}; internal; }}
        location = /404 {{ return 404 '$host has no such page'; }} }} }}"
    );
    let (yaml, lines) = import(&text).unwrap();
    let all = route(&yaml, "all");
    assert!(all.contains("from: both"), "{all}");
    assert!(all.contains("{{path}} is broken") && all.contains("{host} has no such page"), "{all}");
    assert!(all.contains("content_type: text/html, from: both }"), "{all}");
    let own = route(&yaml, "own");
    assert!(own.contains("{{path}} is broken") && !own.contains("from:"), "{own}");
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(lines[0].contains("error_page: flowgate keeps the status of the error"), "{lines:#?}");

    let missing = text.replace("50x.html", "51x.html");
    let (yaml, lines) = import(&missing).unwrap();
    assert!(!yaml.contains("is broken"), "{yaml}");
    assert!(lines.iter().any(|line| line.contains("51x.html is missing here")), "{lines:#?}");
}

#[test]
fn texts_have_the_type_of_their_path() {
    const TYPES: &str =
        "types { text/html html htm; application/json json; } types { text/x-log log; }
        default_type application/octet-stream;";
    for (http, path, expected) in [
        (TYPES, "= /status.json", "application/json"),
        (TYPES, "/status.json", "application/json"),
        (TYPES, "= /A.HTM", "text/html"),
        (TYPES, "= /a.json/b.log", "text/x-log"),
        (TYPES, "= /a.css", "application/octet-stream"),
        (TYPES, "= /a", "application/octet-stream"),
        (TYPES, "= /.json", "application/octet-stream"),
        (TYPES, "/v1.json/", "application/octet-stream"),
        (TYPES, "~ ^/x.*[.]json$", "application/octet-stream"),
        // nginx's own table has no JSON.
        ("", "= /a.html", "text/html"),
        ("", "= /a.json", "text/plain"),
        ("include missing/mime.types;", "= /a.json", "application/json"),
    ] {
        let text = format!(
            "http {{ {http} server {{ listen 81; location {path} {{ return 200 x; }} }} }}"
        );
        let (yaml, _) = import(&text).unwrap();
        let expected = format!("headers: {{ content-type: {expected} }}, body: x");
        assert!(yaml.contains(&expected), "{http} {path}: {expected}\n{yaml}");
    }
}

#[test]
fn types_of_a_location_replace_those_around_it_and_pages_have_their_own() {
    const TYPES: &str =
        "types { text/html html; application/json json; } default_type application/octet-stream;";
    let text = format!(
        "http {{ {TYPES} server {{ listen 81;
        location = /a.json {{ types {{ }} default_type text/x-own; return 200 x; }} }} }}"
    );
    let (yaml, lines) = import(&text).unwrap();
    assert!(yaml.contains("content-type: text/x-own"), "{yaml}");
    assert!(!lines.iter().any(|line| line.contains("default_type: flowgate")), "{lines:?}");

    let text = format!("http {{ {TYPES} server {{ listen 81; error_page 502 /50x.html; error_page 404 /404;
        location / {{ proxy_pass http://h; }} location = /50x.html {{ internal; return 200 '<h1>x</h1>'; }}
        location = /404 {{ return 404 none; }} }} }}");
    let (yaml, _) = import(&text).unwrap();
    for (body, expected) in [("<h1>x</h1>", "text/html"), ("none", "application/octet-stream")] {
        let is_page = |line: &&str| line.contains(body) && line.contains("content_type");
        let page = yaml.lines().find(is_page).expect(&yaml);
        assert!(page.contains(&format!("content_type: {expected} }}")), "{page}");
    }
}

#[test]
fn several_fields_of_one_name_are_one_list_and_a_lost_cookie_is_a_line() {
    let text = "http { server { listen 81; proxy_redirect off; location / { proxy_set_header Host $http_host;
        add_header Link '</a>; rel=preload' always;\nadd_header link '</b>; rel=preload' always;
        add_header X-One 1 always;\nadd_header Set-Cookie a=1 always;\nadd_header Set-Cookie b=2 always;
        add_header X-Bad $x always;\nadd_header X-Bad 1 always; proxy_pass http://h; } } }";
    let (yaml, lines) = import(text).unwrap();
    let all = route(&yaml, "all");
    for part in [
        "link: \"</a>; rel=preload, </b>; rel=preload\"",
        "x-one: \"1\"",
        "set-cookie: \"b=2\"",
        "x-bad: \"1\"",
    ] {
        assert!(all.contains(part), "{part}: {all}");
    }
    let expected = [
        "nginx.conf:3: add_header: one line of the field has all values, separated by commas",
        "nginx.conf:5: add_header: a route sets one cookie: this one is lost, the last one is set",
        "nginx.conf:7: add_header: no placeholder stands for $x",
    ];
    assert_eq!(lines, expected, "{yaml}");
}

#[test]
fn the_line_on_forwarded_addresses_says_whose_flowgate_appends() {
    let text =
        "http { set_real_ip_from 10.0.0.0/8; server { listen 81; location / { proxy_pass http://h;
        proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; } } }";
    let (_, lines) = import(text).unwrap();
    let expected = "proxy_set_header: flowgate appends the address of the peer if that is one of the `trusted_proxies`, and replaces the field of all other peers with it; nginx appends the client's address";
    assert!(lines.iter().any(|line| line.ends_with(expected)), "{lines:?}");
}

#[test]
fn long_timeouts_are_written() {
    let import = |time: &str| {
        let text = format!(
            "http {{ server {{ listen 81; location / {{ proxy_pass http://h; proxy_read_timeout {time}; proxy_send_timeout {time}; proxy_connect_timeout {time}; }} }} }}"
        );
        import(&text).unwrap()
    };
    let (yaml, _) = import("7d");
    assert!(yaml.contains("first_byte: 7days, idle: 7days"), "{yaml}");
    let (yaml, lines) = import("60d");
    assert!(yaml.contains("first_byte: 30days"), "{yaml}");
    assert!(lines.iter().any(|line| line.contains("a timeout has at most 30 days")), "{lines:?}");
}

#[test]
fn a_value_that_flowgate_cannot_take_leaves_the_rest() {
    for (directive, expected) in [
        ("client_max_body_size 99999999g;", "body_limit"),
        ("proxy_set_header Host $server_name;", "upstream: h"),
        ("proxy_set_header X-Big {};", "upstream: h"),
    ] {
        let directive = directive.replace("{}", &"x".repeat(200_000));
        let text = format!(
            "http {{ server {{ listen 81; location / {{ proxy_pass http://h; {directive} }} location = /up {{ return 204; }} }} }}"
        );
        let (yaml, lines) = import(&text).unwrap();
        assert!(route(&yaml, "up").contains("respond: { status: 204 }"), "{yaml}");
        assert!(
            yaml.contains(expected) || lines.iter().any(|line| line.contains(expected)),
            "{expected}: {lines:?}"
        );
        let name = std::path::Path::new("gateway.yaml");
        crate::config::Text::new(name, &yaml).rules().unwrap();
    }
}

#[test]
fn a_server_that_is_listed_twice_has_both_weights() {
    let (yaml, _) = import(
        "http { upstream app { server 10.0.0.1:80; server 10.0.0.1:80 weight=2; server 10.0.0.2:80; }
        server { listen 81; location / { proxy_pass http://app; } } }",
    )
    .unwrap();
    assert!(
        yaml.contains(
            "{ url: http://10.0.0.1:80, weight: 3 }\n      - { url: http://10.0.0.2:80 }\n"
        ),
        "{yaml}"
    );
}

#[test]
fn a_backup_stays_one() {
    let (yaml, lines) = import(
        "http { upstream app { server 10.0.0.1:80; server 10.0.0.2:80 weight=2 backup; }
        server { listen 81; location / { proxy_pass http://app; proxy_redirect off; } } }",
    )
    .unwrap();
    let expected = "{ url: http://10.0.0.1:80 }\n      - { url: http://10.0.0.2:80, weight: 2, backup: true }\n";
    assert!(yaml.contains(expected), "{yaml}");
    assert_eq!(lines, [""; 0]);
}

#[test]
fn a_log_that_nobody_reads_is_none() {
    let (yaml, lines) =
        import("http { access_log /dev/null; server { listen 81; return 204; } }").unwrap();
    assert!(!yaml.contains("access_log"), "{yaml}");
    assert_eq!(lines, [""; 0]);
}

#[test]
fn cookies_keep_clients_at_servers() {
    let upstream = |directive: &str| {
        let text = format!(
            "http {{ upstream u {{ server a; server b; {directive} }}
            server {{ listen 81; location / {{ proxy_pass http://u; proxy_redirect off; proxy_set_header Host $http_host; }} }} }}"
        );
        import(&text).unwrap()
    };
    for (directive, expected, notes) in [
        ("sticky cookie srv;", "sticky: { cookie: srv }", &[][..]),
        ("sticky cookie srv httponly secure path=/;", "sticky: { cookie: srv }", &[]),
        (
            "sticky cookie srv expires=1h domain=.a.test;",
            "sticky: { cookie: srv }",
            &["as long as the browser"],
        ),
        ("hash $cookie_session;", "hash_key: cookie:session", &["requests without the cookie"]),
    ] {
        let (yaml, lines) = upstream(directive);
        assert!(yaml.contains(expected), "{directive}: {yaml}");
        assert_eq!(lines.len(), notes.len(), "{lines:#?}");
        assert!(lines.iter().zip(notes).all(|(line, note)| line.contains(note)), "{lines:#?}");
    }
    let (_, lines) = upstream("sticky learn create=$a lookup=$b zone=c:1m;");
    assert!(lines[0].contains("sticky: an upstream has no such setting"), "{lines:#?}");
}

#[test]
fn a_mirror_is_that_of_the_route() {
    let file = |location: &str, more: &str| {
        format!(
            "http {{ upstream shadow {{ server 10.0.0.9:80; }} server {{ listen 81; {location}
            location / {{ mirror /copy; {more} proxy_pass http://h; proxy_set_header Host $http_host; proxy_redirect off; }} }} }}"
        )
    };
    let usual = "location = /copy { internal; proxy_pass http://shadow$request_uri; proxy_set_header Host $http_host; }";
    let (yaml, lines) = import(&file(usual, "")).unwrap();
    assert!(yaml.contains("mirror: { upstream: shadow }"), "{yaml}");
    assert_eq!(lines, [""; 0]);
    assert!(!yaml.contains("path: /copy,"), "no client reaches the internal location: {yaml}");

    for (location, more, expected, note) in [
        (
            usual,
            "client_max_body_size 20m;",
            "mirror: { upstream: shadow, body_limit: 16MiB }",
            "more than 16 MiB are not copied",
        ),
        (
            usual,
            "mirror_request_body off;",
            "mirror: { upstream: shadow, body_limit: 0B }",
            "requests with bodies are not copied",
        ),
        (usual, "mirror /other;", "mirror: { upstream: shadow }", "a route has one mirror"),
        (
            usual,
            "rewrite ^/a/(.*)$ /$1 break;",
            "mirror: { upstream: shadow }",
            "the path and the host",
        ),
        (
            "location /copy { internal; proxy_pass http://shadow$request_uri; proxy_read_timeout 3s; proxy_set_header X-Copy 1; }",
            "",
            "mirror: { upstream: shadow, timeout: 3s }",
            "proxy_set_header: copies have the header that the route's server gets",
        ),
    ] {
        let (yaml, lines) = import(&file(location, more)).unwrap();
        assert!(yaml.contains(expected), "{location} {more}: {yaml}");
        assert!(lines.iter().any(|line| line.contains(note)), "{location} {more}: {lines:#?}");
    }

    for (location, why) in [
        ("", "`proxy_redirect` of the location"),
        ("location = /copy { internal; return 204; }", "`return` of the location"),
        ("location = /copy { internal; proxy_pass http://shadow; }", "without `$request_uri`"),
        (
            "location = /copy { internal; proxy_pass http://$where$request_uri; }",
            "one upstream, and no variable",
        ),
        ("location = /copy { internal; }", "has no `proxy_pass`"),
    ] {
        let (yaml, lines) = import(&file(location, "")).unwrap();
        assert!(!yaml.contains("mirror:"), "{location}: {yaml}");
        let is_said = |line: &String| line.contains(why) && line.contains("Nothing is copied");
        assert!(lines.iter().any(is_said), "{location}: {lines:#?}");
    }

    let (yaml, lines) = import(&file(usual, "").replace("mirror /copy;", "mirror off;")).unwrap();
    assert!(!yaml.contains("mirror:"), "{yaml}");
    assert!(lines.iter().all(|line| !line.contains("mirror")), "{lines:#?}");
}

#[test]
fn gzip_is_compress_of_routes_that_pass_requests_on() {
    let gzip = "gzip on; gzip_vary on; gzip_proxied any;";
    for (directives, expected, notes) in [
        (gzip, "encodings: gzip, types: [text/html], min_size: 20B", &[][..]),
        (
            "gzip on; gzip_vary on; gzip_proxied any; gzip_types text/css Application/JSON text/html; gzip_min_length 2k; gzip_buffers 4 8k;",
            "encodings: gzip, types: [text/html, text/css, application/json], min_size: 2KiB",
            &[],
        ),
        (
            "gzip on; gzip_types *; gzip_min_length 0; gzip_comp_level 5; gzip_disable msie6;",
            "encodings: gzip, types: [\"*\"], min_size: 1B",
            &["`Vary: Accept-Encoding`", "requests with `Via`", "one level", "every client"],
        ),
    ] {
        let (yaml, mut lines) = server(directives);
        lines.retain(|line| !line.contains(": map: "));
        assert!(yaml.contains(&format!("compress: {{ {expected} }}")), "{directives}: {yaml}");
        assert_eq!(lines.len(), notes.len(), "{lines:#?}");
        for note in notes {
            assert!(lines.iter().any(|line| line.contains(note)), "{note}: {lines:#?}");
        }
    }
    for directives in ["gzip off; gzip_types text/css;", "gzip_types text/css;"] {
        let (yaml, lines) = server(directives);
        assert!(!yaml.contains("compress"), "{directives}: {yaml}");
        let why = "gzip_types: flowgate has no such setting, or it has no effect without `gzip on`";
        assert!(lines.iter().any(|line| line.contains(why)), "{directives}: {lines:?}");
    }
}

#[test]
fn the_report_begins_with_what_must_be_done() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nginx.conf");
    let text = "http { limit_rate 1m;\nserver { listen 443 ssl; ssl_certificate c.pem; ssl_certificate_key k.pem;
        limit_rate 1m; sendfile on; location / { root /srv; } location /a/ { root /a; }
        location /b/ { auth_request /x; proxy_pass http://h; proxy_redirect off; } } }";
    std::fs::write(&path, text).unwrap();
    let (tree, report) = super::read(&path, None).unwrap();
    let files = super::Files { folder: folder.path().into(), root: None };
    let (_, lines) = super::convert(&tree, &files, report);
    let titled = lines.titled().join("\n").replace(&format!("{}/", folder.path().display()), "");
    let expected = "Your site will not work until you do these 4 things:
  nginx.conf:2: ssl_certificate: c.pem is missing: copy it there
  nginx.conf:2: ssl_certificate_key: k.pem is missing: copy it there
  nginx.conf:3: location: it serves files or asks another module. Its requests get 501 (routes `all`, `a`)
  nginx.conf:4: auth_request: `root` of the location that is asked. Closed: requests get 403 until you write this restriction (route `b`)
Changes what clients, servers or logs get (1):
  nginx.conf:1, 3: limit_rate: nothing limits bytes a second
";
    let sorted = |text: &str| {
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let found: Vec<_> = titled.lines().take(7).collect();
    assert_eq!(found[0], expected.lines().next().unwrap());
    assert_eq!(sorted(&found.join("\n")), sorted(expected), "{titled}");
    assert!(
        titled.contains("directives have no effect here.")
            || titled.contains("directive has no effect here."),
        "{titled}"
    );
}

#[test]
fn absolute_names_are_meant_below_the_root() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    std::fs::create_dir_all(root.join("etc/nginx/sites-enabled")).unwrap();
    std::fs::create_dir_all(root.join("etc/nginx/sites-available")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(root.join(name), text).unwrap();
    write("etc/nginx/nginx.conf", "http { include /etc/nginx/sites-enabled/*; }");
    write("etc/nginx/sites-available/a", "server { listen 81; return 204; }");
    std::os::unix::fs::symlink(
        "/etc/nginx/sites-available/a",
        root.join("etc/nginx/sites-enabled/a"),
    )
    .unwrap();
    let path = root.join("etc/nginx/nginx.conf");
    let (tree, report) = super::read(&path, Some(root)).unwrap();
    let files = super::Files { folder: root.join("etc/nginx"), root: Some(root.into()) };
    let (config, _) = super::convert(&tree, &files, report);
    assert_eq!(config.listeners.len(), 1, "{tree:?}");
}

#[test]
fn long_lists_of_addresses_are_written_whole() {
    const COUNT: u32 = 1_500;
    let lines = |before: &str, after: &str| -> String {
        let lines = (0..COUNT).map(|at| format!("{before}10.{}.{}.7{after};", at / 250, at % 250));
        lines.collect::<Vec<_>>().join("\n")
    };
    let proxies = lines("set_real_ip_from ", "");
    let unlimited = lines("", " 0");
    let denied = lines("deny ", "");
    let (yaml, _) = import(&format!(
        "http {{ {proxies} real_ip_header X-Forwarded-For; real_ip_recursive on;
        geo $limited {{ default 1; {unlimited} }}
        map $limited $key {{ 0 ''; 1 $binary_remote_addr; }}
        limit_req_zone $key zone=perip:1m rate=30r/m;
        server {{ listen 81; {denied} location / {{ limit_req zone=perip; proxy_pass http://h; }} }} }}"
    ))
    .unwrap();

    for list in ["trusted_proxies: [", "deny: [", "client_ip: ["] {
        let (_, values) = yaml.split_once(list).unwrap_or_else(|| panic!("no {list}: {yaml}"));
        let (values, _) = values.split_once(']').unwrap();
        assert_eq!(values.split(", ").count(), COUNT as usize, "{list}");
    }
}

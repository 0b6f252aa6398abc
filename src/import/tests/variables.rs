//! Variables that `set` gives a value, and `if` blocks that change more than the response.

use super::import;

/// Returns the lines of the routes without comments, and the lines of the report.
fn routes(server: &str) -> (Vec<String>, Vec<String>) {
    let text = format!(
        "http {{ upstream a {{ server 10.0.0.1:80; }} upstream b {{ server 10.0.0.2:80; }}
        server {{ listen 81; proxy_redirect off; proxy_set_header Host $http_host;\n{server} }} }}"
    );
    let (yaml, mut lines) = import(&text).unwrap();
    lines.retain(|line| !line.contains("nginx.conf:1: ") && !line.contains("nginx.conf:2: "));
    let (_, routes) = yaml.split_once("routes:\n").expect(&yaml);
    let mut all: Vec<String> = Vec::new();
    for line in routes.lines().filter(|line| line.starts_with("    ")) {
        match line.trim() {
            line if line.starts_with("match: ") => all.push(line[7..].to_owned()),
            "upgrades: []" => {}
            line if line.starts_with('#') => {}
            line => {
                let last = all.last_mut().expect("a match comes first");
                *last = format!("{last} {line}");
            }
        }
    }
    (all, lines)
}

#[test]
fn a_flag_of_two_conditions_is_a_route_for_both() {
    let (found, lines) = routes(
        r#"location / {
            set $flag A;
            if ($http_x_one = on) { set $flag "${flag}B"; }
            if ($request_method = POST) { set $flag "${flag}C"; }
            if ($flag = ABC) { return 403; }
            proxy_pass http://a;
        }"#,
    );
    let expected = [
        "{ path_prefix: /, method: POST, header: { x-one: on } } respond: { status: 403 }",
        "{ path_prefix: / } upstream: a",
    ];
    assert_eq!(found, expected.map(|line| line.replace(": on ", ": \"on\" ")));
    assert_eq!(lines, [""; 0]);
}

#[test]
fn an_upstream_that_a_condition_chooses_is_a_route_of_its_own() {
    let (found, lines) = routes(
        "location / {
            set $up http://a;
            if ($http_accept = text/x) { set $up http://b; }
            if ($request_method = POST) { set $up http://b; }
            proxy_pass $up;
        }
        location = /metrics {
            if ($http_x_which = b) { proxy_pass http://b; }
            proxy_pass http://a;
        }",
    );
    let expected = [
        "{ path: /metrics, header: { x-which: b } } upstream: b",
        "{ path: /metrics } upstream: a",
        "{ path_prefix: /, header: { accept: text/x } } upstream: b",
        "{ path_prefix: /, method: POST } upstream: b",
        "{ path_prefix: / } upstream: a",
    ];
    assert_eq!(found, expected);
    assert_eq!(lines, [""; 0]);
}

#[test]
fn a_location_uses_its_own_values_though_others_set_the_same_variables() {
    let (found, lines) = routes(
        "location / {
            set $app 10.0.0.3; set $port 8080; set $proto http;
            proxy_pass $proto://$app:$port;
        }
        location /api/ {
            set $app 10.0.0.4; set $port 8081; set $proto http;
            proxy_pass $proto://$app:$port;
        }",
    );
    let expected = [
        "{ path_prefix: /api } upstream: 10.0.0.4:8081",
        "{ path_prefix: / } upstream: 10.0.0.3:8080",
    ];
    assert!(expected.iter().all(|line| found.iter().any(|route| route == line)), "{found:#?}");
    assert_eq!(lines, [""; 0]);

    // No request comes from `/old/`, with the value that it has there.
    let (found, _) = routes(
        "set $app 10.0.0.3;
        location / { proxy_pass http://$app:80; }
        location /old/ { set $app 10.0.0.4; rewrite ^/old/(.*)$ /$1 last; }",
    );
    assert!(found.iter().any(|line| line.contains("{ path_prefix: / } upstream: 10.0.0.3:80")));
}

#[test]
fn an_if_that_adds_fields_has_those_and_not_its_locations() {
    let (found, lines) = routes(
        "location / {
            add_header X-A a always;
            if ($http_origin = https://o.test) {
                add_header Access-Control-Allow-Origin $scheme://o.test always;
            }
            if ($request_method = OPTIONS) { return 204; }
            proxy_pass http://a;
        }",
    );
    let own = "response_headers: { set: { access-control-allow-origin: \"{scheme}://o.test\" } }";
    let other = "response_headers: { set: { x-a: a } }";
    let expected = [
        format!("{{ path_prefix: /, method: OPTIONS }} respond: {{ status: 204 }} {other}"),
        format!("{{ path_prefix: /, header: {{ origin: https://o.test }} }} upstream: a {own}"),
        format!("{{ path_prefix: / }} upstream: a {other}"),
    ];
    assert_eq!(found, expected);
    assert_eq!(lines, [""; 0]);
}

#[test]
fn a_break_keeps_requests_from_the_return_behind_it() {
    let (found, lines) = routes(
        "location / {
            proxy_pass http://a;
            if ($http_x_key = k) { break; }
            return 403;
        }",
    );
    let expected = [
        "{ path_prefix: /, header: { x-key: k } } upstream: a",
        "{ path_prefix: / } respond: { status: 403 }",
    ];
    assert_eq!(found, expected);
    assert_eq!(lines, [""; 0]);
}

#[test]
fn a_variable_that_is_a_field_is_asked_as_that_field() {
    let (found, lines) = routes(
        "location / {
            set $token $http_x_token;
            if ($token = '') { return 401; }
            proxy_set_header X-Copy $token;
            proxy_set_header X-Token $http_x_token;
            proxy_pass http://a;
        }",
    );
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(
        found[0]
            .starts_with("{ path_prefix: /, header: { x-token: { regex: \".+\" } } } upstream: a")
    );
    assert_eq!(found[1], "{ path_prefix: / } respond: { status: 401 }");
    assert_eq!(lines, ["nginx.conf:6: proxy_set_header: no placeholder stands for $http_x_token"]);
}

#[test]
fn a_condition_that_is_not_clear_closes_what_it_decides() {
    for (condition, why) in [
        ("set $x $1; if ($x = a) { return 403; }", "the value of $x is not clear"),
        ("if ($ssl_client_cert) { proxy_pass http://b; }", "no match asks for $ssl_client_cert"),
        ("if ($body_bytes) { set $x 1; } if ($x) { return 403; }", "the value of $x is not clear"),
    ] {
        let (found, lines) = routes(&format!("location / {{ {condition} proxy_pass http://a; }}"));
        assert_eq!(found, ["{ path_prefix: / } respond: { status: 403 }"], "{condition}");
        let expected = format!("if: {why}. Closed: requests get 403");
        assert!(lines.iter().any(|line| line.contains(&expected)), "{condition}: {lines:#?}");
    }

    // Without such an `if`, the path stays open, with a line.
    let (found, lines) =
        routes("location / { if ($ssl_client_cert) { add_header X-A a; } proxy_pass http://a; }");
    assert_eq!(found, ["{ path_prefix: / } upstream: a"]);
    assert!(lines[0].contains("if: write a route with a `match` for each case"), "{lines:#?}");
}

#[test]
fn lists_of_what_is_kept_out_become_one_expression_for_each_field() {
    let (found, lines) = routes(
        r#"location / {
            set $block 0;
            if ($query_string ~ "union.*select.*\(") { set $block 1; }
            if ($query_string ~ "a=1|b") { set $block 1; }
            if ($block = 1) { return 403; }
            if ($http_user_agent ~* one) { return 403; }
            if ($http_user_agent ~* two) { return 403; }
            if ($args = "") { return 410; }
            proxy_pass http://a;
        }"#,
    );
    let expected = [
        r#"header: { user-agent: { regex: "(?i:.*(?:one).*)|(?i:.*(?:two).*)" } } } respond: { status: 403 }"#,
        r#"query_regex: ".*(?:union.*select.*\\().*|.*(?:a=1|b).*" } respond: { status: 403 }"#,
        r#"query_regex: ".+" } upstream: a"#,
    ];
    let has = |line: &str| found.iter().any(|route| route.contains(line));
    assert!(expected.iter().all(|line| has(line)), "{found:#?}");
    assert_eq!(lines, [""; 0]);
}

#[test]
fn a_map_that_a_condition_asks_is_converted_with_it() {
    let text = |condition: &str| {
        format!(
            "http {{ map $http_x_a $inner {{ default 0; a 1; }}
             map $inner $outer {{ default no; 1 yes; }}
             map $http_x_b $unused {{ default 0; b 1; }}
             server {{ listen 81; location / {{ {condition} return 200; }} }} }}"
        )
    };
    let unused = "map: no converted directive uses its variable";
    let (_, lines) = import(&text("if ($outer = no) { return 403; }")).unwrap();
    assert_eq!(lines, [format!("nginx.conf:3: {unused}")]);
    let (_, lines) = import(&text("")).unwrap();
    assert_eq!(lines, [format!("nginx.conf:1, 2, 3: {unused}")]);
}

#[test]
fn variables_that_nothing_uses_are_counted_as_without_effect() {
    let (_, lines) = routes(
        "location / {
            set $skip 0;
            if ($request_method = POST) { set $skip 1; }
            proxy_pass http://a;
        }",
    );
    let why = "no converted directive uses its variable";
    assert_eq!(lines, [format!("nginx.conf:4: set: {why}"), format!("nginx.conf:5: if: {why}")]);
}

#[test]
fn other_methods_get_405_where_nginx_looks_for_files() {
    let (found, lines) = routes("location /a/ { return 200; }");
    let expected = [
        "{ path_prefix: /a } respond: { status: 200 }",
        "{ path_prefix: /, method: [GET, HEAD, POST] } respond: { status: 404 }",
        "{ path_prefix: / } respond: { status: 405 }",
    ];
    assert!(expected[1..].iter().all(|line| found.iter().any(|route| route == line)), "{found:#?}");
    assert_eq!(lines, [""; 0]);
}

#[test]
fn a_server_name_may_end_with_a_wildcard() {
    let (yaml, lines) = import(
        "http { server { listen 81; return 444; }
        server { listen 81; server_name app.*; return 200; } }",
    )
    .unwrap();
    assert!(yaml.contains("match: { host: \"app.*\", path_prefix: / }"), "{yaml}");
    assert_eq!(lines, [""; 0]);
}

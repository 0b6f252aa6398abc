//! Limits whose keys come from `map` and `geo`, and their statuses.

use super::import;

fn rule(maps: &str, key: &str, limit: &str) -> (String, Vec<String>) {
    let text = format!(
        "http {{ {maps}\nlimit_req_zone {key} zone=z:1m rate=5r/s; limit_req_zone $binary_remote_addr zone=x:1m rate=1r/s;
        server {{ listen 81; location / {{ proxy_pass http://h; {limit} }} }} }}"
    );
    let (yaml, lines) = import(&text).unwrap();
    (yaml, lines)
}

#[test]
fn keys_of_maps_exempt_the_same_requests() {
    let plain = "limit: 5/1s, burst: 3, key: client_ip, ipv6_prefix: 128";
    for (maps, expected) in [
        (
            "map $http_x_key $k { default $binary_remote_addr; secret ''; }",
            format!("{plain}, except: {{ header: {{ x-key: {{ regex: \"(?i:secret)\" }} }} }}"),
        ),
        (
            "map $request_method $k { default $binary_remote_addr; GET ''; HEAD ''; }",
            format!("{plain}, except: {{ method: [GET, HEAD] }}"),
        ),
        (
            "geo $g { default 1; 10.0.0.0/8 0; } map $g $h { 0 free; default paid; } map $h $k { free ''; paid $binary_remote_addr; }",
            format!("{plain}, except: {{ client_ip: 10.0.0.0/8 }}"),
        ),
        (
            "geo $g { default 0; 10.0.0.0/8 1; } map $http_user_agent $u { default 0; ~*friend 1; } map \"$g:$u\" $k { '0:0' $binary_remote_addr; default ''; }",
            format!("{plain}, except: {{ client_ip: 10.0.0.0/8, header: {{ user-agent: {{ regex: \"(?i:.*(?:friend).*)\" }} }} }}"),
        ),
        (
            "map $request_method $k { default ''; POST $binary_remote_addr; }",
            "limit: 1000000000000/1s, burst: 1000000000000, key: client_ip, ipv6_prefix: 128, overrides: [{ when: { method: POST }, limit: 5/1s, burst: 3 }]".into(),
        ),
        (
            "map $http_user_agent $k { default ''; ~*bot $binary_remote_addr; }",
            "overrides: [{ when: { header:user-agent: { regex: \"(?i:.*(?:bot).*)\" } }, limit: 5/1s, burst: 3 }]".into(),
        ),
    ] {
        let (yaml, lines) = rule(maps, "$k", "limit_req zone=z burst=2 nodelay;");
        let yaml = yaml.replace("[10.0.0.0/8]", "10.0.0.0/8").replace("[POST]", "POST");
        let yaml = yaml.replace("\"header:user-agent\"", "header:user-agent");
        assert!(yaml.contains(&expected), "{maps}: {expected}\n{yaml}\n{lines:#?}");
        crate::config::Text::new(std::path::Path::new("gateway.yaml"), &yaml).rules().unwrap();
    }
}

#[test]
fn a_key_that_no_rule_has_still_limits() {
    let maps = "geo $g { default 1; 10.0.0.0/8 0; 10.1.0.0/16 1; } map $g $k { 0 ''; 1 $binary_remote_addr; }";
    let (yaml, lines) = rule(maps, "$k", "limit_req zone=z burst=2 nodelay;");
    assert!(yaml.contains("{ name: z, limit: 5/1s, burst: 3, key: client_ip"), "{yaml}");
    let said = "limit_req: it also counts requests that nginx exempts";
    assert!(lines.iter().any(|line| line.contains(said)), "{lines:#?}");
}

#[test]
fn several_zones_of_a_location_are_rules_beside_each_other() {
    let limits = "limit_req zone=z burst=8 delay=3; limit_req zone=x burst=4; limit_req zone=x burst=2 nodelay; limit_req_status 444;";
    let (yaml, _) = rule("", "$server_name", limits);
    for part in [
        "name: z, limit: 5/1s, burst: 9",
        "name: x, limit: 1/1s",
        "name: x-2, limit: 1/1s, burst: 3",
        "reject: { status: close }",
    ] {
        assert!(yaml.contains(part), "{part}: {yaml}");
    }
    crate::config::Text::new(std::path::Path::new("gateway.yaml"), &yaml).rules().unwrap();
}

#[test]
fn a_zone_that_several_locations_use_becomes_a_budget() {
    let text = "http { limit_req_zone $binary_remote_addr zone=site:1m rate=5r/s; limit_conn_zone $server_name zone=all:1m;
        limit_req_zone $binary_remote_addr zone=own:1m rate=1r/s;
        limit_req zone=site burst=9 nodelay;
        server { listen 81; location / { proxy_pass http://h; } location /a/ { proxy_pass http://h; limit_conn all 7; }
        location /b/ { proxy_pass http://h; limit_conn all 7; limit_req zone=own; } } }";
    let (yaml, lines) = import(text).unwrap();
    let expected = "\
budgets:
  # the zone all, which several locations use
  - name: all
    concurrency: 7
  # the zone site, which several locations use
  - name: site
    limit: 5/1s
    burst: 10
    key: client_ip
    ipv6_prefix: 128
    max_keys: 16384
";
    let found = yaml.find("budgets:").expect("budgets");
    let part = &yaml[found..yaml.find("routes:").expect("routes")];
    assert!(part.starts_with(expected), "{part}");
    assert_eq!(yaml.matches("- { budget: site }").count(), 2, "{yaml}");
    assert_eq!(yaml.matches("- { budget: all }").count(), 2, "{yaml}");
    assert!(yaml.contains("- { name: own, limit: 1/1s"), "{yaml}");
    assert!(!yaml.contains("zone of nginx"), "{yaml}");
    assert!(!lines.iter().any(|line| line.contains("one count in nginx")), "{lines:?}");
}

#[test]
fn a_zone_by_server_is_not_shared_between_servers() {
    let text = "http { limit_conn_zone $server_name zone=all:1m; limit_conn all 7;
        server { listen 81; server_name a.example; location / { proxy_pass http://h; } }
        server { listen 81; server_name b.example; location / { proxy_pass http://h; } } }";
    let (yaml, lines) = import(text).unwrap();
    assert!(!yaml.contains("budgets:"), "{yaml}");
    assert_eq!(yaml.matches("- { name: all, concurrency: 7 }").count(), 2, "{yaml}");
    let note = "here each of 2 routes counts for itself, because its key has `$server_name`";
    assert!(lines.iter().any(|line| line.contains(note)), "{lines:?}");
}

#[test]
fn requests_that_lack_a_part_of_a_key_have_a_rule_of_their_own() {
    let except = |name: &str| format!("except: {{ header: {{ {name}: {{ regex: \".+\" }} }} }}");
    let ip = "key: client_ip, ipv6_prefix: 128";
    let skip = "on_missing_key: skip, on_duplicate_key: first";
    for (key, expected) in [
        (
            "$binary_remote_addr$http_user_agent",
            vec![
                format!(
                    "name: z, limit: 5/1s, burst: 3, key: [client_ip, \"header:user-agent\"], ipv6_prefix: 128, {skip}, max"
                ),
                format!(
                    "name: z-without-user-agent, limit: 5/1s, burst: 3, {ip}, {}, max",
                    except("user-agent")
                ),
            ],
        ),
        (
            "$http_x_tenant$binary_remote_addr",
            vec![
                format!("key: [\"header:x-tenant\", client_ip], ipv6_prefix: 128, {skip}, max"),
                format!("{ip}, {}, max", except("x-tenant")),
            ],
        ),
        (
            "$http_x_a$http_x_b",
            vec![
                format!(
                    "name: z, limit: 5/1s, burst: 3, key: [\"header:x-a\", \"header:x-b\"], {skip}, max"
                ),
                format!(
                    "name: z-without-x-a, limit: 5/1s, burst: 3, key: \"header:x-b\", {skip}, {}, max",
                    except("x-a")
                ),
                format!(
                    "name: z-without-x-b, limit: 5/1s, burst: 3, key: \"header:x-a\", {skip}, {}, max",
                    except("x-b")
                ),
            ],
        ),
    ] {
        has_rules(key, &expected);
    }
}

/// Checks that a zone with this key has these rules and no line, and that they are valid.
fn has_rules(key: &str, expected: &[String]) {
    let (yaml, lines) = rule("", key, "limit_req zone=z burst=2 nodelay; limit_req_status 429;");
    let plain = |text: &str| text.replace('"', "");
    for part in expected {
        assert!(plain(&yaml).contains(&plain(part)), "{key}: {part}\n{yaml}");
    }
    assert_eq!(yaml.matches("- { name: z").count(), expected.len(), "{yaml}");
    assert!(!lines.iter().any(|line| line.contains(": limit_req: ")), "{key}: {lines:#?}");
    crate::config::Text::new(std::path::Path::new("gateway.yaml"), &yaml).rules().unwrap();
}

#[test]
fn a_text_in_a_key_counts_requests_without_the_field() {
    let rest =
        "name: z-without-x-a, limit: 5/1s, burst: 3, except: { header: { x-a: { regex: .+ } } } }";
    let own = "name: z, limit: 5/1s, burst: 3, key: header:x-a, on_missing_key: skip, on_duplicate_key: first, max";
    for key in ["\"v1 $http_x_a\"", "$server_name$http_x_a"] {
        has_rules(key, &[own.to_owned(), rest.to_owned()]);
    }
    let key = "\"$binary_remote_addr$host\"";
    has_rules(key, &["key: [client_ip, host], ipv6_prefix: 128, max".to_owned()]);
}

#[test]
fn requests_that_no_rule_is_for_alone_are_a_line() {
    for (key, without, count) in [
        ("$binary_remote_addr$cookie_sid", "`cookie:sid`", 1),
        ("$binary_remote_addr$arg_id", "`query:id`", 1),
        // Those without the field have one, by the cookie.
        ("$cookie_sid$http_x_key", "`cookie:sid`", 2),
        ("$http_a$http_b$http_c", "`header:b`", 1),
    ] {
        let (yaml, lines) = rule("", key, "limit_req zone=z burst=2 nodelay;");
        let end = format!(
            "requests without {without} do not have this limit: nginx counts them by the rest of the key, and no rule is for them alone"
        );
        assert!(lines.iter().any(|line| line.ends_with(&end)), "{key}: {lines:#?}");
        assert_eq!(yaml.matches("- { name: z").count(), count, "{key}: {yaml}");
        crate::config::Text::new(std::path::Path::new("gateway.yaml"), &yaml).rules().unwrap();
    }

    // An exception of a `map` asks for the same field.
    let maps = "map $http_x $k { default \"$binary_remote_addr$http_x\"; no ''; }";
    let (yaml, lines) = rule(maps, "$k", "limit_req zone=z burst=2 nodelay;");
    assert_eq!(yaml.matches("- { name: z").count(), 1, "{yaml}");
    let part = "requests without `header:x` do not have this limit";
    assert!(lines.iter().any(|line| line.contains(part)), "{lines:#?}");
}

#[test]
fn a_zone_with_requests_that_lack_a_part_is_a_budget_for_each() {
    let text = "http { limit_req_zone $binary_remote_addr$http_x zone=both:1m rate=5r/s;
        limit_req zone=both burst=9 nodelay;
        server { listen 81; location / { proxy_pass http://h; } location /a/ { proxy_pass http://h; } } }";
    let (yaml, lines) = import(text).unwrap();
    for part in [
        "  # the zone both, which several locations use\n  - name: both\n",
        "  # the zone both for requests without `header:x`, which several locations use\n  - name: both-without-x\n",
    ] {
        assert!(yaml.contains(part), "{part}: {yaml}");
    }
    for budget in ["both", "both-without-x"] {
        assert_eq!(yaml.matches(&format!("- {{ budget: {budget} }}")).count(), 2, "{yaml}");
    }
    assert!(!lines.iter().any(|line| line.contains("one count in nginx")), "{lines:?}");
    crate::config::Text::new(std::path::Path::new("gateway.yaml"), &yaml).rules().unwrap();
}

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

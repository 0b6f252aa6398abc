//! Countries and AS numbers of `geoip2`.

use super::{closed::routes, import};

const BLOCKS: &str = "geoip2 /geo/country.mmdb {
    auto_reload 5m;
    $country country iso_code;
    $unclear default=US country iso_code;
    $named default=XX source=$remote_addr country iso_code;
    $city city names en;
    $forwarded source=$http_x_forwarded_for country iso_code;
}
geoip2 /geo/asn.mmdb { $asn autonomous_system_number; }
map $country $allowed { default no; DE yes; at yes; ~^(CH|LI)$ yes; }
map $asn $hoster { 64500 1; 64501 1; default 0; }
limit_req_zone $country zone=country:1m rate=5r/s;
limit_req_zone $named zone=named:1m rate=5r/s;
limit_req_zone $unclear zone=unclear:1m rate=5r/s;
limit_req_zone $asn zone=asn:1m rate=5r/s;
";

/// Imports a server with these directives and a location that passes everything on.
fn server(directives: &str) -> (String, Vec<String>) {
    let text = format!(
        "http {{ {BLOCKS} server {{ listen 81; {directives}
        location / {{ proxy_pass http://h; proxy_redirect off; proxy_set_header Host $http_host; }} }} }}"
    );
    import(&text).unwrap()
}

#[test]
fn the_files_are_those_of_the_blocks() {
    let (yaml, lines) = server("");
    assert!(yaml.contains("geo: { country: /geo/country.mmdb, asn: /geo/asn.mmdb }"), "{yaml}");
    let lines = lines.join("\n");
    assert!(
        lines.contains("flowgate reads countries (`country iso_code`) and AS numbers"),
        "{lines}"
    );
    assert!(lines.contains("flowgate looks up the client's address only"), "{lines}");
    assert!(!lines.contains("auto_reload"), "{lines}");
}

#[test]
fn rejected_countries_and_systems_are_lists_of_clients() {
    for (condition, expected) in [
        ("$country = RU", "access: { deny: [{ country: RU }] }"),
        ("$country ~ ^(RU|CN)$", "access: { deny: [{ country: [CN, RU] }] }"),
        ("$country != DE", "access: { allow: [{ country: DE }] }"),
        ("$country !~* ^(de|at)$", "access: { allow: [{ country: [AT, DE] }] }"),
        ("$allowed = no", "access: { allow: [{ country: [AT, CH, DE, LI] }] }"),
        ("$allowed != yes", "access: { allow: [{ country: [AT, CH, DE, LI] }] }"),
        ("$named = XX", "closed"),
        ("$asn = 64500", "access: { deny: [{ asn: 64500 }] }"),
        ("$hoster", "access: { deny: [{ asn: [64500, 64501] }] }"),
        ("$country", "closed"),
        ("$country = ''", "closed"),
        ("$asn ~ ^645", "closed"),
        ("$forwarded = RU", "closed"),
        ("$city = Berlin", "closed"),
    ] {
        let (yaml, lines) = server(&format!("if ({condition}) {{ return 403; }}"));
        let all = routes(&yaml);
        if expected == "closed" {
            assert!(all[0].1.contains("respond: { status: 403"), "{condition}: {yaml}");
            assert!(lines.concat().contains("Closed: requests get 403"), "{condition}: {lines:?}");
        } else {
            assert!(all[0].1.contains(expected), "{condition}: {yaml}");
            assert!(!lines.concat().contains(": if: "), "{condition}: {lines:?}");
        }
    }
}

#[test]
fn another_address_or_another_file_closes_what_asks_for_it() {
    for blocks in [
        "geoip2_proxy 10.0.0.0/8; geoip2 /geo/c.mmdb { $c country iso_code; }",
        "geoip2 /geo/own.mmdb { $own country iso_code; } geoip2 /geo/c.mmdb { $c country iso_code; }",
    ] {
        let text = format!(
            "http {{ {blocks} server {{ listen 81; if ($c = RU) {{ return 403; }}
            location / {{ proxy_pass http://h; }} }} }}"
        );
        let (yaml, lines) = import(&text).unwrap();
        assert!(routes(&yaml)[0].1.contains("respond: { status: 403"), "{yaml}");
        assert!(lines.concat().contains("Closed: requests get 403"), "{lines:?}");
    }
}

#[test]
fn zones_count_by_country_and_system() {
    for (zone, expected) in [
        ("country", "key: country, on_missing_key: skip"),
        ("named", "key: country, max_keys"),
        ("asn", "key: asn, on_missing_key: skip"),
    ] {
        let (yaml, _) = server(&format!("limit_req zone={zone};"));
        assert!(yaml.contains(expected), "{zone}: {yaml}");
    }
    let (_, lines) = server("limit_req zone=unclear;");
    let why = "unknown addresses count as $unclear=US in nginx";
    assert!(lines.concat().contains(why), "{lines:?}");
}

#[test]
fn servers_get_the_country_in_a_field() {
    let (yaml, _) = server("proxy_set_header X-Country $country; proxy_set_header X-As AS$asn;");
    // The location has fields of its own.
    assert!(!yaml.contains("{country}"), "{yaml}");
    let text = format!(
        "http {{ {BLOCKS} server {{ listen 81; location / {{ proxy_pass http://h; proxy_redirect off;
        proxy_set_header Host $http_host; proxy_set_header X-Country $country;
        proxy_set_header X-As AS$asn; proxy_set_header X-Named $named; }} }} }}"
    );
    let (yaml, lines) = import(&text).unwrap();
    assert!(
        yaml.contains("x-country: \"{country}\"") && yaml.contains("x-as: \"AS{asn}\""),
        "{yaml}"
    );
    assert!(
        lines.concat().contains("a placeholder is empty where $named is its default"),
        "{lines:?}"
    );
}

#[test]
fn the_older_format_is_named() {
    let text = "http { geoip_country /usr/share/GeoIP/GeoIP.dat; server { listen 81;
        if ($geoip_country_code = RU) { return 403; }
        location / { proxy_pass http://h; proxy_redirect off; proxy_set_header Host $http_host; } } }";
    let (yaml, lines) = import(text).unwrap();
    let lines = lines.concat();
    assert!(lines.contains("flowgate reads files in MaxMind's newer format (`.mmdb`)"), "{lines}");
    assert!(routes(&yaml)[0].1.contains("respond: { status: 403"), "{yaml}");
}

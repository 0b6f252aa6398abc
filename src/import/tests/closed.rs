//! What keeps clients out: routes that are closed, and what they keep.

use super::import;
use std::{fs, path::Path};

/// Returns the routes of the result by their names, each with its comments.
pub(super) fn routes(yaml: &str) -> Vec<(String, String)> {
    let (_, routes) = yaml.split_once("routes:\n").expect(yaml);
    let mut all = Vec::new();
    let mut comments = String::new();
    for line in routes.lines().take_while(|line| line.starts_with("  ")) {
        if line.starts_with("  #") {
            comments.extend([line, "\n"]);
        } else if let Some(name) = line.strip_prefix("  - name: ") {
            all.push((name.to_owned(), core::mem::take(&mut comments)));
        } else if let Some((_, route)) = all.last_mut() {
            route.extend([line.trim_start(), "\n"]);
        }
    }
    all
}

/// Returns a route of the result.
pub(super) fn route(yaml: &str, name: &str) -> String {
    let found = routes(yaml).into_iter().find(|(known, _)| known == name);
    found.unwrap_or_else(|| panic!("no route {name} in {yaml}")).1
}

#[test]
fn a_closed_route_keeps_who_may_use_it() {
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("users");
    fs::write(&users, "a:$2y$05$abc\n").unwrap();
    let text = format!(
        "http {{ limit_req_zone $binary_remote_addr zone=z:1m rate=1r/s; server {{ listen 81;
        if ($ssl_client_cert = NONE) {{ return 403; }}
        location / {{ proxy_pass http://h; }}
        location /admin/ {{ proxy_pass http://h; allow 10.0.0.0/8; deny all; limit_req zone=z;
            auth_basic restricted; auth_basic_user_file {}; }}
        location = /up {{ return 200; }} }} }}",
        users.display()
    );
    let (yaml, lines) = import(&text).unwrap();
    let admin = route(&yaml, "admin");
    for part in [
        "respond: { status: 403 }",
        "access: { allow: [10.0.0.0/8] }",
        "auth: { basic: ",
        "flow:",
        "#   upstream: h",
        "because `nginx.conf:2 if ($ssl_client_cert = NONE)` does not convert",
    ] {
        assert!(admin.contains(part), "{part}: {admin}");
    }
    assert!(!admin.contains("\nupstream"), "{admin}");
    assert!(!yaml.contains("0.0.0.0/0"), "nothing hides the lists: {yaml}");
    let line = lines.iter().find(|line| line.starts_with("nginx.conf:2: if: ")).expect("a line");
    assert!(line.ends_with("(routes `up`, `admin-slash`, `admin`, `all`)"), "{line}");
}

#[test]
fn a_condition_closes_the_routes_of_its_own_location_alone() {
    let text = "http { server { listen 81;
        location / { proxy_pass http://h; }
        location /a/ { if ($ssl_client_cert ~ evil) { return 403; } proxy_pass http://h; } } }";
    let (yaml, lines) = import(text).unwrap();
    assert!(route(&yaml, "a").contains("respond: { status: 403 }"), "{yaml}");
    assert!(route(&yaml, "all").contains("upstream: h"), "{yaml}");
    assert!(lines[0].contains("(route `a`)"), "{lines:?}");
}

#[test]
fn an_unclear_condition_closes_whatever_it_would_answer() {
    for answer in
        ["return 301 /x", "return 200", "return 403", "rewrite ^ https://x.test/ permanent"]
    {
        let text = format!(
            "http {{ server {{ listen 81; if ($geoip_country_code = XX) {{ {answer}; }} location / {{ proxy_pass http://h; }} }} }}"
        );
        let (yaml, _) = import(&text).unwrap();
        assert!(route(&yaml, "all").contains("respond: { status: 403 }"), "{answer}: {yaml}");
    }
}

#[test]
fn addresses_are_not_compared_where_they_are_lost() {
    let text = "http { set_real_ip_from 10.0.0.0/8; real_ip_header proxy_protocol;
        limit_req_zone $binary_remote_addr zone=z:1m rate=1r/s;
        server { listen 81 proxy_protocol; listen 82;
        location / { proxy_pass http://h; limit_req zone=z burst=5 nodelay; }
        location /office/ { proxy_pass http://h; allow 10.0.0.0/8; deny all; } } }";
    let (yaml, lines) = import(text).unwrap();
    let office = route(&yaml, "office");
    assert!(office.contains("respond: { status: 403 }"), "{office}");
    assert!(office.contains("access: { allow: [10.0.0.0/8] }"), "{office}");
    let line = lines.iter().find(|line| line.starts_with("nginx.conf:4: limit_req: "));
    assert!(line.is_some_and(|line| line.contains("the client's address is lost")), "{lines:#?}");
}

#[test]
fn paths_of_a_condition_are_closed_and_no_others() {
    let text = r#"http { server { listen 81;
        if ($request_uri ~ "/\.(?!well+)") { return 403; }
        if ($request_uri ~ "/_(?!open)") { return 403; }
        if ($uri = /gone) { return 410; }
        location / { proxy_pass http://h; } location /a/ { proxy_pass http://h; } } }"#;
    let (yaml, lines) = import(text).unwrap();
    let all = routes(&yaml);
    assert!(all[0].1.contains("path_regex: \".*/\\\\..*\" }\nrespond: { status: 403 }"), "{yaml}");
    let exact = "path_regex: \".*/_(?:[^o].*|o(?:[^p].*|p(?:[^e].*|e(?:[^n].*)?)?)?)?\" }\nrespond: { status: 403 }";
    assert!(all[1].1.contains(exact), "{yaml}");
    assert!(all[2].1.contains("path_regex: /gone }\nrespond: { status: 410 }"), "{yaml}");
    assert!(route(&yaml, "all").contains("upstream: h"), "{yaml}");
    assert!(lines[0].contains("Requests for paths that match `.*/\\..*` get 403"), "{lines:?}");
}

#[test]
fn networks_of_a_condition_become_the_access_of_every_route() {
    let import = |geo: &str, more: &str| {
        let text = format!(
            "http {{ geo $bad {{ {geo} }} server {{ listen 81; if ($bad) {{ return 403; }}
            location / {{ proxy_pass http://h; {more} }} location = /x {{ return 200; }} }} }}"
        );
        import(&text).unwrap().0
    };
    let yaml = import("default 0; 192.0.2.0/24 1;", "deny 10.0.0.1;");
    assert!(route(&yaml, "all").contains("access: { deny: [10.0.0.1, 192.0.2.0/24] }"), "{yaml}");
    assert!(route(&yaml, "x").contains("access: { deny: [192.0.2.0/24] }"), "{yaml}");
    let yaml = import("default 1; 192.0.2.0/24 0;", "");
    assert!(route(&yaml, "all").contains("access: { allow: [192.0.2.0/24] }"), "{yaml}");
    let yaml = import("default 1; 192.0.2.0/24 0;", "allow 10.0.0.0/8; deny all;");
    assert!(route(&yaml, "all").contains("respond: { status: 403 }"), "{yaml}");
    let yaml = import("default 0; 192.0.2.0/24 1; 192.0.2.5 0;", "");
    assert!(route(&yaml, "all").contains("respond: { status: 403 }"), "{yaml}");
}

/// Returns a server with TLS and with what it says of certificates of clients.
fn site(name: &str, verify: &str) -> String {
    format!(
        "server {{ listen 443 ssl; server_name {name}; {verify}
         location / {{ proxy_pass http://h; proxy_set_header X-Dn $ssl_client_s_dn; }}
         location /a/ {{ proxy_pass http://h; }} }}"
    )
}

/// Returns a file of servers and the authority of their clients.
fn text(ca: &Path, servers: &[String]) -> String {
    format!(
        "http {{ ssl_certificate c.pem; ssl_certificate_key k.pem; ssl_client_certificate {};
         {} }}",
        ca.display(),
        servers.concat()
    )
}

/// Makes a folder with the file of an authority.
fn authority() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("ca.pem"), "").unwrap();
    folder
}

#[test]
fn a_certificate_that_all_or_no_clients_show_decides_nothing() {
    let folder = authority();
    let imported = |terms: &str| {
        let text = text(&folder.path().join("ca.pem"), &[site("a.test", terms)]);
        let zone = "http { limit_req_zone $ssl_client_s_dn zone=z:1m rate=1r/s;";
        import(&text.replace("http {", zone)).unwrap().0
    };
    let rejects = "if ($ssl_client_verify != SUCCESS) { return 403; }";

    // All clients have shown one.
    let yaml = imported(&format!(
        "ssl_verify_client on; {rejects} proxy_set_header X-Verify $ssl_client_verify;"
    ));
    assert!(!yaml.contains("403"), "{yaml}");
    assert!(yaml.contains("x-verify: SUCCESS"), "{yaml}");

    // Without one, it tells nothing.
    let yaml = imported(&format!("limit_req zone=z; {rejects}"));
    assert!(yaml.contains("respond: { status: 403 }"), "{yaml}");
    assert!(!yaml.contains("client_cert"), "{yaml}");
}

#[test]
fn certificates_of_clients_are_asked_for_by_the_listener() {
    let folder = authority();
    let ca = folder.path().join("ca.pem");
    let text = |servers: &[String]| text(&ca, servers);
    let is_closed = |yaml: &str, name: &str| {
        let route = route(yaml, name);
        route.contains("respond: { status: 403 }") || route.contains("redirect:")
    };

    for (verify, expected) in [
        ("ssl_verify_client on;", format!("client_ca: {} }}", ca.display())),
        (
            "ssl_verify_client optional;",
            format!("client_ca: {}, client_auth: optional }}", ca.display()),
        ),
    ] {
        let (yaml, _) = import(&text(&[site("a.test", verify), site("b.test", verify)])).unwrap();
        let unquoted = yaml.replace('"', "");
        assert!(unquoted.contains(&expected), "{yaml}");
        for (name, closed) in routes(&yaml) {
            assert!(!closed.contains("403"), "{name}: {yaml}");
        }
        assert!(yaml.contains("{client_cert_subject}"), "{yaml}");
    }

    // A listener cannot ask for one host alone.
    for other in ["", "ssl_verify_client optional;", "ssl_verify_client optional_no_ca;"] {
        let servers = [site("a.test", "ssl_verify_client on;"), site("b.test", other)];
        let (yaml, _) = import(&text(&servers)).unwrap();
        assert!(!yaml.contains("client_ca"), "{other}: {yaml}");
        let of_a = routes(&yaml).into_iter().filter(|(name, _)| name.starts_with("a.test"));
        let of_a: Vec<_> = of_a.collect();
        assert!(!of_a.is_empty(), "{yaml}");
        for (name, _) in &of_a {
            assert!(is_closed(&yaml, name), "{name}: {yaml}");
        }
    }
    for more in [
        "ssl_verify_client on; ssl_crl revoked.pem;",
        "ssl_verify_client on; ssl_ocsp leaf;",
        "ssl_verify_client optional_no_ca;",
    ] {
        let (yaml, _) = import(&text(&[site("a.test", more)])).unwrap();
        for (name, _) in routes(&yaml) {
            assert!(is_closed(&yaml, &name), "{more}: {name}: {yaml}");
        }
    }
}

//! Configurations of other gateways, given as flowgate's: one problem, which says what they are.

use crate::config::{Text, read, read_admin, read_rules};
use std::path::Path;

const NGINX: &str = "\
events {}
http {
    limit_req_zone $binary_remote_addr zone=a:1m rate=10r/s;
    server {
        listen 80;
        location / { proxy_pass http://127.0.0.1:3000; }
    }
}
";
const CADDYFILE: &str = "example.com {\n\treverse_proxy localhost:3000\n}\n";
const HAPROXY: &str =
    "defaults\n    mode http\nfrontend web\n    bind :80\n    default_backend app\n";
const TRAEFIK: &str = "http:\n  routers:\n    app:\n      rule: Host(`a.b`)\n      service: app\n";
const TRAEFIK_TOML: &str = "[entryPoints]\n  [entryPoints.web]\n    address = \":80\"\n";
const ENVOY: &str = "static_resources:\n  listeners:\n    - name: web\n";
const KONG: &str = "_format_version: \"3.0\"\nservices:\n  - name: a\n    url: http://a\n";

#[test]
fn every_reader_of_a_file_says_what_it_is_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.conf");
    for (text, name, help) in [
        (NGINX, "nginx", "flowgate import"),
        (CADDYFILE, "Caddy", "docs/migrating.md"),
        (HAPROXY, "HAProxy", "docs/migrating.md"),
        (TRAEFIK, "Traefik", "docs/migrating.md"),
        (TRAEFIK_TOML, "Traefik", "docs/migrating.md"),
        (ENVOY, "Envoy", "docs/migrating.md"),
        (KONG, "Kong", "docs/migrating.md"),
    ] {
        std::fs::write(&path, text).unwrap();
        let read_text = |path: &Path| Text::read(path).and_then(|text| text.plan());
        for problems in [
            read(&path).unwrap_err(),
            read_rules(&path).unwrap_err(),
            read_text(&path).unwrap_err(),
            read_admin(&path).map(|_| ()).unwrap_err(),
        ] {
            assert_eq!(problems.count(), 1, "{problems}");
            let shown = problems.to_string();
            assert!(shown.contains(&format!("this is a configuration of {name}, not of flowgate")));
            assert!(shown.contains(help), "{shown}");
        }
    }
    std::fs::write(&path, NGINX).unwrap();
    let shown = read(&path).unwrap_err().to_string();
    let command = format!("`flowgate import {} --output gateway.yaml`", path.display());
    assert!(shown.contains(&command), "{shown}");
}

#[test]
fn a_file_of_flowgate_with_a_word_of_another_gateway_keeps_its_own_errors() {
    let text = "listeners: [{ name: web, listen: 8080 }]\nroutes: []\nserver {\n  listen 80;\n}\n";
    let problems = super::parsed(text).unwrap_err().to_string();
    assert!(!problems.contains("not of flowgate"), "{problems}");
}

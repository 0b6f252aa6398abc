//! Configurations of other gateways, which are given as flowgate's by mistake.

use crate::config::diagnostics::{Problem, Source};
use std::path::Path;

/// The lines of a text that are read: the words that tell gateways apart come early.
const LINES: usize = 2000;

/// A gateway, by the text of its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gateway {
    Nginx,
    Caddy,
    HaProxy,
    Envoy,
    Traefik,
    Kong,
    Apache,
    Kubernetes,
}

/// Returns what to do about a file that is the configuration of another gateway, if it is one.
pub(in crate::config) fn recognize(source: &Source) -> Option<Problem> {
    let gateway = gateway(&source.text)?;
    let message = format!("this is {}, not of flowgate", gateway.file());
    Some(Problem::about_file(message).help(gateway.help(&source.path)))
}

impl Gateway {
    const fn file(self) -> &'static str {
        match self {
            Self::Nginx => "a configuration of nginx",
            Self::Caddy => "a configuration of Caddy",
            Self::HaProxy => "a configuration of HAProxy",
            Self::Envoy => "a configuration of Envoy",
            Self::Traefik => "a configuration of Traefik",
            Self::Kong => "a configuration of Kong",
            Self::Apache => "a configuration of Apache httpd",
            Self::Kubernetes => "a resource of Kubernetes",
        }
    }

    /// Says what to do about the file at `path`.
    fn help(self, path: &Path) -> String {
        const INIT: &str = "`flowgate init URL` writes a first file for the service at URL";
        match self {
            Self::Nginx => {
                let is_input = path == Path::new("<stdin>");
                let from = if is_input { Path::new("nginx.conf") } else { path };
                let is_usual = from.file_name() == Some("gateway.yaml".as_ref());
                let to = if is_usual { "new.yaml" } else { "gateway.yaml" };
                format!(
                    "`flowgate import {} --output {to}` converts it; docs/migrating.md has the \
                     words of both",
                    from.display()
                )
            }
            Self::Caddy | Self::HaProxy | Self::Envoy | Self::Traefik | Self::Kong => format!(
                "docs/migrating.md says what to write in place of it; {INIT}; `flowgate import` \
                 converts only configurations of nginx"
            ),
            Self::Apache => {
                format!("docs/migrating.md says how other gateways' words are written here; {INIT}")
            }
            Self::Kubernetes => format!(
                "flowgate reads a `gateway.yaml` of its own, which examples/kubernetes/ mounts; {INIT}"
            ),
        }
    }
}

/// Returns the gateway whose configuration `text` is, unless it has flowgate's own keys.
fn gateway(text: &str) -> Option<Gateway> {
    let lines: Vec<&str> = text
        .lines()
        .take(LINES)
        .filter(|line| !line.trim_start().starts_with(['#', ';']) && !line.trim().is_empty())
        .collect();
    let has_key =
        |names: &[&str]| lines.iter().any(|line| key(line).is_some_and(|key| names.contains(&key)));

    if has_key(&["_format_version"]) {
        return Some(Gateway::Kong);
    }

    if has_key(&["listeners", "upstreams", "routes"])
        || text.contains("\"listeners\"") && has_key(&["end"])
    {
        return None;
    }

    let is_json = text.trim_start().starts_with('{') && text.contains('"');
    let has_json = |name: &str| is_json && text.contains(&format!("\"{name}\""));
    let is_envoy = has_key(&["static_resources", "dynamic_resources"])
        || has_json("static_resources")
        || has_json("dynamic_resources")
        || text.contains("type.googleapis.com/envoy");
    if is_envoy {
        return Some(Gateway::Envoy);
    }

    if is_traefik(text, &lines) {
        return Some(Gateway::Traefik);
    }
    if has_key(&["apiVersion"]) && has_key(&["kind"]) {
        return Some(Gateway::Kubernetes);
    }

    if is_haproxy(&lines) {
        return Some(Gateway::HaProxy);
    }
    if lines.iter().any(|line| line.trim_start().starts_with("<VirtualHost")) {
        return Some(Gateway::Apache);
    }
    if is_nginx(&lines) {
        return Some(Gateway::Nginx);
    }
    (is_caddy(&lines) || has_json("apps") && has_json("servers")).then_some(Gateway::Caddy)
}

/// Returns the key of YAML that a line begins with in the first column, without quotes.
fn key(line: &str) -> Option<&str> {
    let (key, _) = line.split_once(':')?;
    let key = key.trim_matches(['"', '\'']);
    let is_key = key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    (is_key && !key.is_empty()).then_some(key)
}

/// Returns the first word of a line, and what follows.
fn words(line: &str) -> (&str, &str) {
    let line = line.trim();
    line.split_once(char::is_whitespace).unwrap_or((line, ""))
}

fn is_traefik(text: &str, lines: &[&str]) -> bool {
    const KEYS: [&str; 3] = ["entryPoints", "certificatesResolvers", "serversTransport"];
    const TABLES: [&str; 8] = [
        "[entryPoints",
        "[providers",
        "[certificatesResolvers",
        "[http.routers",
        "[http.services",
        "[http.middlewares",
        "[tcp.routers",
        "[[http.services",
    ];

    let has_key = |names: &[&str]| {
        lines.iter().any(|line| {
            key(line).is_some_and(|key| names.iter().any(|name| name.eq_ignore_ascii_case(key)))
        })
    };

    let is_table = |line: &&str| {
        let line = line.trim_start();
        TABLES.iter().any(|table| {
            line.get(..table.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(table))
        })
    };

    // The parts of a dynamic configuration.
    let is_part = |line: &&str| {
        line.starts_with(char::is_whitespace)
            && ["routers:", "services:", "middlewares:"].contains(&line.trim())
    };

    has_key(&KEYS)
        || lines.iter().any(is_table)
        || (has_key(&["http", "tcp", "udp"]) && lines.iter().any(is_part))
        || text.contains("traefik.http.")
}

fn is_haproxy(lines: &[&str]) -> bool {
    const SECTIONS: [&str; 6] =
        ["global", "defaults", "frontend", "backend", "listen", "resolvers"];
    const WORDS: [&str; 14] = [
        "acl",
        "balance",
        "bind",
        "daemon",
        "default_backend",
        "http-request",
        "log",
        "maxconn",
        "mode",
        "option",
        "server",
        "stats",
        "timeout",
        "use_backend",
    ];
    let is_section = |line: &&str| {
        let (word, rest) = words(line);
        !line.starts_with(char::is_whitespace)
            && SECTIONS.contains(&word)
            && !rest.ends_with(['{', ';'])
    };
    let is_word =
        |line: &&str| WORDS.contains(&words(line).0) && !line.trim_end().ends_with([';', '{']);
    lines.iter().any(is_section) && lines.iter().any(is_word)
}

fn is_nginx(lines: &[&str]) -> bool {
    const BLOCKS: [&str; 9] =
        ["http", "server", "events", "location", "upstream", "map", "stream", "geo", "if"];
    const DIRECTIVES: [&str; 16] = [
        "worker_processes",
        "listen",
        "server_name",
        "proxy_pass",
        "root",
        "include",
        "limit_req",
        "limit_req_zone",
        "limit_conn",
        "limit_conn_zone",
        "proxy_set_header",
        "return",
        "error_log",
        "access_log",
        "user",
        "server",
    ];
    let is_block = |line: &&str| BLOCKS.contains(&words(line).0) && line.contains('{');
    let is_end = |line: &&str| {
        let line = line.split(" #").next().unwrap_or_default().trim_end();
        line.ends_with(';') || line.contains("; }") || line.contains(";}")
    };
    let is_directive = |line: &&str| DIRECTIVES.contains(&words(line).0) && is_end(line);
    lines.iter().any(is_end) && (lines.iter().any(is_block) || lines.iter().any(is_directive))
}

fn is_caddy(lines: &[&str]) -> bool {
    const DIRECTIVES: [&str; 22] = [
        "abort",
        "basic_auth",
        "basicauth",
        "encode",
        "error",
        "file_server",
        "forward_auth",
        "handle",
        "handle_errors",
        "handle_path",
        "header",
        "import",
        "log",
        "php_fastcgi",
        "redir",
        "respond",
        "reverse_proxy",
        "rewrite",
        "root",
        "tls",
        "try_files",
        "uri",
    ];

    // Enough alone, where a file is one site without braces.
    const OWN: [&str; 5] =
        ["reverse_proxy", "file_server", "php_fastcgi", "handle_path", "respond"];

    let is_site = |line: &&str| {
        let line = line.trim_end();
        !line.starts_with(char::is_whitespace) && line.ends_with('{') && !line.contains(": ")
    };
    let has = |names: &[&str]| lines.iter().any(|line| names.contains(&words(line).0));

    (lines.iter().any(is_site) && has(&DIRECTIVES)) || has(&OWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_gateways_are_recognized() {
        for (expected, text) in [
            (
                Gateway::Nginx,
                "user www-data;\nevents { worker_connections 768; }\nhttp {\n  server {\n    listen 80;\n  }\n}\n",
            ),
            (
                Gateway::Nginx,
                "# a site\nserver {\n\tlisten 80;\n\tlocation /api {\n\t\tproxy_pass http://app;\n\t}\n}\n",
            ),
            (Gateway::Nginx, "upstream app { server 10.0.0.1:80; }\n"),
            (Gateway::Nginx, "limit_req_zone $binary_remote_addr zone=a:1m rate=10r/s;\n"),
            (Gateway::Caddy, "example.com {\n\treverse_proxy localhost:3000\n}\n"),
            (Gateway::Caddy, "{\n\temail me@example.com\n}\n\n:80 {\n\tfile_server\n}\n"),
            (Gateway::Caddy, "localhost\n\nreverse_proxy 127.0.0.1:9000\n"),
            (
                Gateway::Caddy,
                "a.example.com, b.example.com {\n  handle /api/* {\n    respond 204\n  }\n}\n",
            ),
            (Gateway::Caddy, "{\"apps\":{\"http\":{\"servers\":{\"a\":{\"listen\":[\":80\"]}}}}}"),
            (
                Gateway::HaProxy,
                "global\n    daemon\n    maxconn 256\n\ndefaults\n    mode http\n    timeout connect 5s\n\nfrontend web\n    bind *:80\n    default_backend app\n\nbackend app\n    server a 127.0.0.1:8000\n",
            ),
            (
                Gateway::HaProxy,
                "frontend web\n  bind :80\n  use_backend app if { path_beg /api }\n",
            ),
            (
                Gateway::Envoy,
                "admin:\n  address: {}\nstatic_resources:\n  listeners:\n  - name: a\n",
            ),
            (Gateway::Envoy, "{ \"static_resources\": { \"listeners\": [] } }"),
            (
                Gateway::Envoy,
                "resources:\n- \"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\n",
            ),
            (
                Gateway::Traefik,
                "entryPoints:\n  web:\n    address: \":80\"\nproviders:\n  docker: {}\n",
            ),
            (
                Gateway::Traefik,
                "http:\n  routers:\n    app:\n      rule: Host(`a.b`)\n      service: app\n",
            ),
            (Gateway::Traefik, "[entryPoints]\n  [entryPoints.web]\n    address = \":80\"\n"),
            (Gateway::Traefik, "[http.routers.app]\n  rule = \"Host(`a.b`)\"\n"),
            (
                Gateway::Traefik,
                "services:\n  app:\n    labels:\n      - \"traefik.http.routers.app.rule=Host(`a.b`)\"\n",
            ),
            (
                Gateway::Kong,
                "_format_version: \"3.0\"\nservices:\n- name: a\n  routes: []\nupstreams: []\n",
            ),
            (
                Gateway::Apache,
                "<VirtualHost *:80>\n  ProxyPass / http://127.0.0.1:3000/\n</VirtualHost>\n",
            ),
            (
                Gateway::Kubernetes,
                "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {}\n",
            ),
        ] {
            assert_eq!(gateway(text), Some(expected), "{text}");
            assert_eq!(gateway(&text.replace('\n', "\r\n")), Some(expected), "{text}");
        }
    }

    #[test]
    fn files_of_flowgate_with_errors_are_its_own() {
        for text in [
            "",
            "a: 1",
            "listeners: [{ name: web, listen: 80 }]\nserver { listen 80; }\n",
            "upstreams:\n  - name: a\n    servers: 127.0.0.1;\n",
            "routes:\n  - name: r\n    reverse_proxy localhost:3000\n",
            "routes: []\nhttp:\n  routers: {}\n",
            "admin: { listen: 9901 }\n",
            "global: 1\nmode: http\n",
            "\u{0}\u{1}",
            "server",
        ] {
            assert_eq!(gateway(text), None, "{text}");
        }
        for text in
            [include_str!("../../../gateway.yaml"), include_str!("../../../examples/plain.yaml")]
        {
            assert_eq!(gateway(text), None);
        }
    }
}

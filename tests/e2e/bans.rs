//! Clients that a rule rejects for a while, end to end.

use crate::{
    common::{
        Gateway,
        http::{self, Client},
        upstream::{Request, Script},
    },
    explain::explain,
};
use std::process::Command;

/// A server whose responses have the status that the path names, as in `/401`.
fn server() -> Script {
    Script::answering(|request: &Request| {
        let status = request.path().trim_start_matches('/');
        format!("HTTP/1.1 {status} As Asked\r\nContent-Length: 4\r\n\r\nbody").into_bytes()
    })
}

fn yaml(server: &Script, reject_for: &str, limit: &str) -> String {
    format!(
        "workers: 2\n\
         listeners: [{{ name: web, listen: 127.0.0.1:0 }}]\n\
         admin: {{ listen: 127.0.0.1:0 }}\n\
         upstreams: [{{ name: app, servers: [{{ url: 'http://{}' }}] }}]\n\
         routes:\n\
         \x20 - name: login\n\
         \x20   match: {{ path_prefix: / }}\n\
         \x20   upstream: app\n\
         \x20   flow:\n\
         \x20     - {{ name: failed, limit: {limit}, key: 'header:x-tenant', reject_for: {reject_for}, \
         cost: {{ reserve: 1, settle: {{ status: {{ 401: 1, 403: 7, default: 0 }} }} }} }}\n",
        server.address
    )
}

fn get(gateway: &Gateway, tenant: &str, path: &str) -> http::Answer {
    Client::new(gateway.web()).request("GET", path, &[("x-tenant", tenant)])
}

fn command(gateway: &Gateway, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
    command.args(arguments).args(["--admin", &gateway.address("admin").to_string()]);
    let output = command.env_remove("FLOWGATE_ADMIN_TOKEN").output().expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
    String::from_utf8(text).expect("a text")
}

fn metric(gateway: &Gateway, name: &str) -> Option<f64> {
    let text = http::ask(gateway.address("admin"), "/metrics").text();
    let line = text.lines().find(|line| line.starts_with(&format!("{name}{{")))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[test]
fn failed_logins_ban_a_client_until_it_is_reset() {
    let server = server();
    // One of three comes back in two hours, the ban is over in five.
    let gateway = Gateway::start(&yaml(&server, "5h", "3/6h"));
    for _ in 0..3 {
        assert_eq!(get(&gateway, "a", "/401").status, 401);
    }
    for reason in ["rate", "banned", "banned"] {
        let rejected = get(&gateway, "a", "/200");
        let wait: u64 = rejected.header("retry-after").expect("a wait").parse().expect("seconds");
        assert!((17_900..=18_000).contains(&wait), "{wait}");
        assert_eq!((rejected.status, &rejected.json()["reason"]), (429, &reason.into()));
    }
    assert_eq!(get(&gateway, "b", "/200").status, 200);

    let explained = explain(&gateway, "/200", "a");
    assert_eq!(explained["reason"], "banned");
    assert!(command(&gateway, &["keys", "login", "failed"]).contains("  banned  for 1"));
    assert_eq!(metric(&gateway, "flowgate_flow_bans_total"), Some(1.0));
    assert_eq!(metric(&gateway, "flowgate_flow_banned"), Some(1.0));

    command(&gateway, &["reset", "login", "failed", "a"]);
    assert_eq!(get(&gateway, "a", "/200").status, 200);
    assert_eq!(metric(&gateway, "flowgate_flow_banned"), Some(0.0));
}

#[test]
fn a_ban_by_a_settled_cost_survives_an_edit() {
    let server = server();
    let gateway = Gateway::start(&yaml(&server, "5h", "3/6h"));
    assert_eq!(get(&gateway, "a", "/403").status, 403, "it costs 7 of 3");
    assert_eq!(get(&gateway, "a", "/200").json()["reason"], "banned");
    gateway.edit(&yaml(&server, "1h", "100000/1s"));
    let rejected = get(&gateway, "a", "/200");
    assert_eq!(rejected.json()["reason"], "banned");
    let wait: u64 = rejected.header("retry-after").expect("a wait").parse().expect("seconds");
    assert!(wait > 17_000, "the ban keeps its end: {wait}");
}

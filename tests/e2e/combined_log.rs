//! The access log in the combined format, as log tools and `replay` read it.

use crate::common::{Gateway, eventually, http::Client, upstream, yaml};
use serde_json::Value;
use std::{fs, process::Command};

const ROUTES: &str = "  - name: limited
    match: { path_prefix: /limited }
    upstream: up
    flow: [{ name: each, limit: 2/1h, key: client_ip }]
  - { name: rest, match: { path_prefix: / }, upstream: up }
";

#[test]
fn lines_are_combined_and_replay_reads_them() {
    let upstream = upstream::echo();
    let file = |format: &str| {
        let log = format!("access_log: access.log\naccess_log_format: {format}\n");
        yaml(upstream.address, ROUTES) + &log
    };
    let gateway = Gateway::start(&file("combined"));
    let log = gateway.dir.path().join("access.log");
    let lines = |count: usize| {
        eventually("the lines", || {
            let text = fs::read_to_string(&log).ok()?;
            (text.lines().count() == count).then(|| text.lines().map(str::to_owned).collect())
        })
    };

    let mut client = Client::new(gateway.web());
    let fields = [("User-Agent", "a \"b\" \\ c"), ("Referer", "https://example.com/")];
    for _ in 0..3 {
        client.request("GET", "/limited?secret=1", &fields);
    }
    client.get("/other");
    let combined: Vec<String> = lines(4);
    assert!(combined[0].starts_with("127.0.0.1 - - ["), "{}", combined[0]);
    let end = "\"https://example.com/\" \"a \\x22b\\x22 \\x5C c\"";
    assert!(combined[0].ends_with(end), "{}", combined[0]);
    assert!(combined[0].contains(" +0000] \"GET /limited HTTP/1.1\" 200 "), "{}", combined[0]);
    assert!(combined[2].contains("\"GET /limited HTTP/1.1\" 429 "), "{}", combined[2]);
    assert!(combined[3].ends_with("\"-\" \"-\""), "{}", combined[3]);
    assert!(!combined.concat().contains("secret"));

    // The third request of the limited route is rejected by the log's times too.
    let replayed = Command::new(env!("CARGO_BIN_EXE_flowgate"))
        .args(["replay", "--output", "decisions", "-c"])
        .arg(gateway.dir.path().join("gateway.yaml"))
        .arg(&log)
        .output()
        .expect("run");
    assert!(replayed.status.success(), "{}", String::from_utf8_lossy(&replayed.stderr));
    let decisions: Vec<Value> = String::from_utf8_lossy(&replayed.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let routes: Vec<_> = decisions.iter().map(|decision| &decision["route"]).collect();
    assert_eq!(routes, ["limited", "limited", "limited", "rest"]);
    let third = &decisions[2];
    assert_eq!([&third["decision"], &third["rule"]], ["rejected", "each"], "{third}");

    // An edit changes the format of the lines that follow.
    gateway.edit(&file("json"));
    client.get("/later");
    let both: Vec<String> = lines(5);
    assert!(both[4].starts_with("{\"ts\":"), "{}", both[4]);
}

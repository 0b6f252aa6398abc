//! Previews of new files, and putting them in force.

use super::common::{
    Gateway, eventually,
    every_algorithm::{EVERY_ALGORITHM, requests},
    http::{Answer, Client},
    upstream::{Script, ok},
    yaml,
};
use serde_json::Value;
use std::{
    fs,
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
};

const OLD: &str = "
  - { name: all, match: { path_prefix: / }, upstream: up, flow: [{ name: few, limit: 40/6h, burst: 40, key: \"header:x-tenant\" }] }
";

fn send(gateway: &Gateway, method: &str, path: &str, body: &str) -> Answer {
    let mut client = Client::new(gateway.address("admin"));
    let length = body.len();
    client.send(format!(
        "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {length}\r\n\r\n{body}"
    ));
    client.read(method)
}

fn report(gateway: &Gateway) -> Value {
    let answer = send(gateway, "GET", "/preview", "");
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// Adds an access log in the gateway's folder.
fn logged(yaml: &str) -> String {
    yaml.replacen("workers: 2", "workers: 2\naccess_log: access.log", 1)
}

/// Returns the lines of the access log, once there are `count`.
fn lines(gateway: &Gateway, count: usize) -> Vec<Value> {
    let path = gateway.dir.path().join("access.log");
    eventually("all requests are logged", || {
        let text = fs::read_to_string(&path).ok()?;
        let lines: Vec<Value> =
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        (lines.len() >= count).then_some(lines)
    })
}

fn run(gateway: &Gateway) -> Vec<u16> {
    let mut client = Client::new(gateway.web());
    let send = |(path, tenant): (String, String)| {
        client.request("GET", &path, &[("x-tenant", &tenant)]).status
    };
    requests(0x2545_f491_4f6c_dd1d, 150).into_iter().map(send).collect()
}

#[test]
fn a_preview_decides_each_request_as_a_second_gateway_with_the_new_file() {
    let up = Script::answering(|_| ok("hello"));
    let old = logged(&yaml(up.address, OLD));
    let new = logged(&yaml(up.address, EVERY_ALGORITHM));
    let previewing = Gateway::start(&old);
    let plain = Gateway::start(&old);
    let second = Gateway::start(&new);
    let begun = send(&previewing, "POST", "/preview?for=10m", &new);
    assert_eq!(begun.status, 200, "{}", begun.text());
    assert!(begun.json()["memory_bytes"].as_u64().expect("a number") > 100_000);
    let statuses = run(&previewing);
    assert_eq!(statuses, run(&plain), "a preview changes nothing");
    let expected = run(&second);
    let [ours, theirs] = [&previewing, &second].map(|gateway| lines(gateway, expected.len()));
    assert_eq!((ours.len(), theirs.len()), (expected.len(), expected.len()));
    let by_time = |mut lines: Vec<Value>| {
        lines.sort_by_key(|line| line["ts"].as_str().map(str::to_owned));
        lines
    };
    let mut rejected = 0;
    for (number, (ours, theirs)) in by_time(ours).iter().zip(by_time(theirs)).enumerate() {
        let preview = &ours["preview"];
        let flow = &theirs["flow"];
        assert_eq!(preview["route"], theirs["route"], "{number}: {ours} {theirs}");
        for field in ["decision", "reason", "rule", "limit", "used", "cost"] {
            assert_eq!(preview[field], flow[field], "{number}, {field}: {ours} {theirs}");
        }
        if theirs["route"].is_null() {
            assert_eq!(preview["status"], 404);
        }
        rejected += usize::from(theirs["status"] == 429);
    }
    assert!(rejected > 30, "{rejected} of {}", expected.len());
    let found = report(&previewing);
    let count = |is: fn(u16, u16) -> bool| {
        let pairs = statuses.iter().zip(&expected);
        pairs.filter(|(ours, theirs)| is(**ours, **theirs)).count()
    };
    let requests = &found["requests"];
    assert_eq!(requests["compared"], 150);
    assert_eq!(requests["would_be_rejected"], count(|ours, theirs| ours == 200 && theirs >= 400));
    assert_eq!(requests["would_pass"], count(|ours, theirs| ours >= 400 && theirs == 200));
}

#[test]
fn the_file_of_a_preview_is_written_and_put_in_force_with_what_it_has_counted() {
    let up = Script::answering(|_| ok("hello"));
    let old = yaml(up.address, "  - { name: all, match: { path_prefix: / }, upstream: up }");
    let new = format!(
        "# comments stay\n{}",
        old.replace("upstream: up }", "upstream: up, flow: [{ name: few, limit: 2/6h }] }")
    );
    let gateway = Gateway::start(&old);
    assert_eq!(send(&gateway, "POST", "/preview/apply", "").status, 409, "there is none");
    assert_eq!(send(&gateway, "GET", "/preview", "").status, 404);
    assert_eq!(send(&gateway, "POST", "/preview", &new).status, 200);
    let mut client = Client::new(gateway.web());
    for _ in 0..3 {
        assert_eq!(client.get("/").status, 200);
    }
    assert_eq!(report(&gateway)["requests"]["would_be_rejected"], 1);
    let applied = send(&gateway, "POST", "/preview/apply", "");
    assert_eq!(applied.status, 200, "{}", applied.text());
    assert!(applied.json()["summary"].as_str().expect("words").contains("few"));
    assert_eq!(fs::read_to_string(&gateway.config).expect("written"), new);
    assert_eq!(client.get("/").status, 429, "two have passed in the preview");
    let found = report(&gateway);
    assert_eq!(
        (&found["state"], &found["ended_because"]),
        (&"ended".into(), &"the new file was applied".into())
    );
    gateway.wait_log("reloaded v2");
}

#[test]
fn a_preview_that_cannot_be_is_not() {
    let up = Script::answering(|_| ok("hello"));
    let old = yaml(up.address, "  - { name: all, match: { path_prefix: / }, upstream: up }");
    let new = old.replace("upstream: up }", "upstream: up, flow: [{ name: few, limit: 2/6h }] }");
    let gateway = Gateway::start(&old);
    let answer = send(&gateway, "POST", "/preview", &new.replace("limit: 2/6h", "limit: two"));
    assert_eq!(answer.status, 422);
    assert!(answer.text().contains("gateway.yaml:"), "{}", answer.text());
    assert_eq!(send(&gateway, "POST", "/preview?for=never", &new).status, 400);
    // What it would take is said before it begins.
    let cost = send(&gateway, "POST", "/preview?check", &new);
    assert_eq!((cost.status, cost.json()["is_in_force"].as_bool()), (200, Some(false)));
    assert_eq!(send(&gateway, "GET", "/preview", "").status, 404);
    // An edit ends it.
    assert_eq!(send(&gateway, "POST", "/preview", &new).status, 200);
    gateway.edit(&format!("{old}# edited\n"));
    let found = report(&gateway);
    assert_eq!(found["ended_because"], "the file in force was replaced by another one");
    assert_eq!(send(&gateway, "POST", "/preview/apply", "").status, 409);
    // A file that was edited meanwhile is not overwritten.
    assert_eq!(send(&gateway, "POST", "/preview", &new).status, 200);
    let seen = gateway.log_len();
    super::common::replace(&gateway.config, &format!("{old}nonsense: 1\n"));
    gateway.wait_log_after(seen, "configuration rejected");
    let rejected = send(&gateway, "POST", "/preview/apply", "");
    assert_eq!(rejected.status, 409);
    assert!(rejected.text().contains("was rejected, which would be lost"), "{}", rejected.text());
    assert_eq!(send(&gateway, "DELETE", "/preview", "").status, 200);
    assert_eq!(report(&gateway)["ended_because"], "it was stopped");
}

/// A gateway without rules, its file, and the path of a new file with a rule.
fn beside_a_new_file() -> (Script, Gateway, String, PathBuf) {
    let up = Script::answering(|_| ok("hello"));
    let old = yaml(up.address, "  - { name: all, match: { path_prefix: / }, upstream: up }");
    let new = old.replace("upstream: up }", "upstream: up, flow: [{ name: few, limit: 1/6h }] }");
    let gateway = Gateway::start(&old);
    let file = gateway.dir.path().join("new.yaml");
    fs::write(&file, &new).expect("written");
    (up, gateway, old, file)
}

#[test]
fn the_commands_preview_and_apply() {
    let (_up, gateway, old, file) = beside_a_new_file();
    let admin = gateway.address("admin").to_string();
    let command = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
        command.args(arguments).args(["--admin", &admin]);
        command
    };
    let path = file.to_str().expect("text");
    let preview = command(&["preview", path, "--for", "1h"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    gateway.wait_log("a preview begins");
    let mut client = Client::new(gateway.web());
    assert_eq!([client.get("/").status, client.get("/").status], [200, 200]);
    eventually("both are compared", || {
        (report(&gateway)["requests"]["compared"] == 2).then_some(())
    });
    let output = command(&["apply"]).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("few"), "what changed");
    assert_eq!(client.get("/").status, 429);
    let output = preview.wait_with_output().expect("it ends with the preview");
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{out}{err}");
    assert!(err.contains("of memory in the gateway"), "{err}");
    assert!(out.contains("2 requests: 1 the same, 1 would be rejected"), "{out}");
    assert!(out.contains("all: passed → all: rejected by few (rate)"), "{out}");
    fs::write(&file, &old).expect("written");
    let output = command(&["preview", path, "--for", "1s", "--apply"])
        .stdin(Stdio::null())
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read_to_string(&gateway.config).expect("written"), old);
    assert_eq!(client.get("/").status, 200, "the old rules are in force");
    let output = command(&["apply"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no preview is running"));
    fs::write(&file, "listeners: nonsense\n").expect("written");
    let output = command(&["preview", path]).stdin(Stdio::null()).output();
    assert_eq!(output.expect("it runs").status.code(), Some(1));
}

#[test]
fn no_preview_begins_if_the_person_says_no() {
    let (_up, gateway, _, file) = beside_a_new_file();
    // Only a terminal is asked.
    let program = env!("CARGO_BIN_EXE_flowgate");
    let file = file.display();
    let admin = gateway.address("admin");
    let mut terminal = Command::new("script")
        .args(["--quiet", "--return", "--command"])
        .arg(format!("{program} preview {file} --admin {admin}"))
        .arg("/dev/null")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script is installed");
    terminal.stdin.as_mut().expect("piped").write_all(b"n\n").expect("written");
    let output = terminal.wait_with_output().expect("it ends");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{shown}");
    let [cost, question] =
        [" of memory in the gateway", "Begin? [y/N]"].map(|part| shown.find(part));
    assert!(cost.is_some() && cost < question, "{shown}");
    assert_eq!(send(&gateway, "GET", "/preview", "").status, 404, "nothing was started");
}

//! Limits that depend on the client's plan, end to end.

use crate::{
    cluster::{PATIENT, gateways, server::Server},
    common::{Gateway, eventually, http::Client, replace},
    port::free_port,
};
use serde_json::Value;
use std::{fs, process::Command};

const YAML: &str = "\
listeners: [{ name: web, listen: 127.0.0.1:0 }]
admin: { listen: 127.0.0.1:0, show_keys: true }
access_log: access.log
budgets:
  - name: team
    algorithm: fixed_window
    limit: 2/6h
    key: header:x-team
    plans: { by: header:x-plan, limits: { gold: 8/6h, silver: 5/6h }, file: more.csv }
routes:
  - { name: one, match: { path: /one }, respond: { status: 200 }, flow: [{ budget: team }] }
  - { name: two, match: { path: /two }, respond: { status: 200 }, flow: [{ budget: team }] }
";

/// Starts a gateway beside a file of plans.
fn start(yaml: &str, plans: &str) -> Gateway {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("more.csv"), plans).expect("a file");
    Gateway::start_in(folder, yaml, &[])
}

/// Returns how many of so many requests of a team with a plan are admitted, on both routes in turn.
fn admitted(client: &mut Client, team: &str, plan: &str, count: usize) -> usize {
    let ask = |number: usize| {
        let path = if number.is_multiple_of(2) { "/one" } else { "/two" };
        client.request("GET", path, &[("x-team", team), ("x-plan", plan)]).status
    };
    (0..count).map(ask).filter(|status| *status == 200).count()
}

#[test]
fn clients_get_the_numbers_of_their_plans_which_headers_and_the_log_name() {
    let gateway = start(YAML, "key,limit\ntrial,1/6h\n");
    let mut client = Client::new(gateway.web());
    assert_eq!(admitted(&mut client, "a", "gold", 10), 8);
    assert_eq!(admitted(&mut client, "b", "silver", 10), 5);
    assert_eq!(admitted(&mut client, "c", "none", 10), 2);
    assert_eq!(admitted(&mut client, "d", "trial", 10), 1);
    assert_eq!(admitted(&mut client, "b", "gold", 10), 3, "5 of 8 are used");

    let response = client.request("GET", "/one", &[("x-team", "e"), ("x-plan", "gold")]);
    let policy = response.header("ratelimit-policy").expect("its quota");
    assert!(policy.contains("\"team\";q=8"), "{policy}");
    assert!(response.header("ratelimit").expect("what is left").contains("r=7"));

    let line = eventually("the log has a request of the plan", || {
        let log = fs::read_to_string(gateway.config.with_file_name("access.log")).ok()?;
        let line = log.lines().find(|line| line.contains("\"plans\":{\"team\":\"silver\"}"))?;
        serde_json::from_str::<Value>(line).ok()
    });
    assert_eq!(line["flow"]["limit"], 5);

    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
    command.args(["keys", "--admin", &gateway.address("admin").to_string()]);
    let output = command.output().expect("it runs");
    let keys = String::from_utf8(output.stdout).expect("a text");
    assert!(keys.contains("used            8 of 8  a"), "{keys}");
    assert!(keys.contains("used            1 of 1  d"), "{keys}");
}

#[test]
fn a_file_of_plans_is_replaced_at_once_and_a_broken_one_never_replaces_a_good_one() {
    let gateway = start(YAML, "key,limit\ntrial,1/6h\n");
    let mut client = Client::new(gateway.web());
    assert_eq!(admitted(&mut client, "a", "trial", 5), 1);

    let plans = gateway.config.with_file_name("more.csv");
    replace(&plans, "key,limit\ntrial,4/6h\nother,many\n");
    gateway.wait_log("line 3 of");
    assert_eq!(admitted(&mut client, "a", "trial", 5), 0);

    replace(&plans, "key,limit\ntrial,4/6h\n");
    let line = gateway.wait_log("budget team (team plans");
    assert!(line.contains("1 plan of more.csv"), "{line}");
    assert_eq!(admitted(&mut client, "a", "trial", 5), 3);
}

#[test]
fn a_new_process_goes_on_with_the_plans_of_clients() {
    let port = free_port();
    let yaml = YAML.replacen("127.0.0.1:0", &format!("127.0.0.1:{port}"), 1);
    let gateway = start(&yaml, "key,limit\n");
    let mut client = Client::new(gateway.web());
    assert_eq!(admitted(&mut client, "a", "gold", 6), 6);
    gateway.signal("USR2");
    gateway.wait_log("handed over: the new process");
    let mut client = Client::new(gateway.web());
    assert_eq!(admitted(&mut client, "a", "gold", 6), 2);
}

#[test]
fn gateways_share_the_counts_of_a_rule_with_plans() {
    let server = Server::start();
    let store = format!("store: {{ redis: \"redis://127.0.0.1:{}\", {PATIENT} }}\n", server.port);
    let yaml = store
        + &YAML
            .replace(", file: more.csv", "")
            .replace("limit: 2/6h", "limit: 2/6h\n    scope: cluster\n    on_store_error: deny");
    let gateways = gateways(2, &yaml);
    let mut clients = [0, 1].map(|at| Client::new(gateways[at].web()));
    let mut ask = |team: &str, plan: &str, count: usize| -> usize {
        clients.iter_mut().map(|client| admitted(client, team, plan, count)).sum()
    };
    assert_eq!(ask("a", "gold", 6), 8);
    assert_eq!(ask("b", "silver", 6), 5);
    assert_eq!(ask("b", "gold", 6), 3, "5 of 8 are used");
    assert_eq!(ask("c", "none", 6), 2);
}

#[test]
fn gateways_sync_the_counts_of_a_rule_with_plans() {
    let server = Server::start();
    let store = format!("store: {{ redis: \"redis://127.0.0.1:{}\", {PATIENT} }}\n", server.port);
    let yaml = store
        + &YAML
            .replace(", file: more.csv", "")
            .replace("limit: 2/6h", "limit: 2/6h\n    scope: cluster\n    sync_interval: 20ms");
    let gateways = gateways(2, &yaml);
    let mut clients = [0, 1].map(|at| Client::new(gateways[at].web()));
    assert_eq!(admitted(&mut clients[0], "a", "gold", 6), 6);
    eventually("the other gateway knows of them", || {
        let [_, other] = &mut clients;
        let response = other.request("GET", "/one", &[("x-team", "a"), ("x-plan", "gold")]);
        (response.status == 429).then_some(())
    });
}

//! Single keys as operators see and change them, by the commands.

use crate::{
    cluster::{PATIENT, server::Server},
    common::{
        Gateway, eventually, field,
        http::{self, Client},
    },
    port::free_port,
    synced::settled,
};
use serde_json::Value;
use std::process::Command;

const YAML: &str = "\
workers: 2
listeners: [{ name: web, listen: 127.0.0.1:0 }]
admin: { listen: 127.0.0.1:0 }
routes:
  - name: login
    match: { path: /login }
    respond: { status: 200 }
    flow:
      - { name: per-address, limit: 5/6h, burst: 5, key: client_ip }
      - { name: per-tenant, limit: 3/6h, burst: 3, key: \"header:x-tenant\", on_missing_key: skip }
";

/// Runs a command against the gateway. Returns its exit code and what it prints.
fn run(gateway: &Gateway, arguments: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
    command.args(arguments).args(["--admin", &gateway.address("admin").to_string()]);
    let output = command.env_remove("FLOWGATE_ADMIN_TOKEN").output().expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().expect("an exit code"), String::from_utf8(text).expect("a text"))
}

#[track_caller]
fn done(gateway: &Gateway, arguments: &[&str]) -> String {
    let (code, text) = run(gateway, arguments);
    assert_eq!(code, 0, "{text}");
    text
}

/// Sends requests until one is rejected. Returns how many passed.
fn passed(gateway: &Gateway) -> usize {
    let mut client = Client::new(gateway.web());
    (0..100).take_while(|_| client.get("/login").status == 200).count()
}

fn tenant(gateway: &Gateway, name: &str) -> u16 {
    let mut client = Client::new(gateway.web());
    client.send(format!("GET /login HTTP/1.1\r\nhost: a\r\nx-tenant: {name}\r\n\r\n"));
    client.read("GET").status
}

#[test]
fn what_clients_send_does_not_write_on_an_operators_screen() {
    let hostile = "\u{1b}[31m\n\r\u{9b}2J\u{85}\u{7f}\u{202e}\u{2028}\u{2066}end";
    let query: Vec<_> = hostile.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let query = query.concat();
    let text = YAML
        .replace(
            "admin: { listen: 127.0.0.1:0 }",
            "admin: { listen: 127.0.0.1:0, show_keys: true }",
        )
        .replace("key: client_ip", "key: 'query:u'");
    let gateway = Gateway::start(&text);
    let mut client = Client::new(gateway.web());
    let path = format!("/login?u={query}");
    let statuses: Vec<u16> = (0..7).map(|_| client.get(&path).status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429]);

    for arguments in [
        &["keys", "login", "per-address"][..],
        &["keys", "login", "per-address", "--output", "json"],
        &["rejections"],
        &["rejections", "--output", "json"],
        &["top", "--once"],
        &["explain", &path],
        &["explain", &path, "--output", "json"],
        &["reset", "login", "per-address", hostile],
    ] {
        let shown = done(&gateway, arguments);
        let is_obeyed = |sign: &char| {
            *sign != '\n' && (sign.is_control() || "\u{202e}\u{2028}\u{2066}".contains(*sign))
        };
        assert!(!shown.chars().any(|sign| is_obeyed(&sign)), "{arguments:?}: {shown:?}");
        assert!(!shown.lines().any(|line| line.starts_with("\u{85}")), "{shown}");
        // Its line break is none of the output.
        let is_json = arguments.contains(&"json");
        if matches!(arguments[0], "keys" | "rejections") {
            let escape =
                if is_json { r"\u001b[31m\n\r\u009b2J" } else { r"\u{1b}[31m\n\r\u{9b}2J" };
            assert!(shown.contains(escape), "{arguments:?}: {shown}");
        }
    }
}

#[test]
fn an_operator_finds_a_key_resets_it_and_gives_it_more() {
    let gateway = Gateway::start(YAML);
    assert_eq!(passed(&gateway), 5);
    let routes: Value = http::ask(gateway.address("admin"), "/routes").json();
    assert_eq!(routes["routes"][0]["rules"][0]["used"], 5);

    let shown = done(&gateway, &["keys", "login", "per-address"]);
    assert!(
        shown.contains("login/per-address  token_bucket, limit 5 for each client_ip"),
        "{shown}"
    );
    let fingerprint = |line: &str| line.split_whitespace().last().map(str::to_owned);
    let full = shown.lines().find(|line| line.contains("used            5 of 5"));
    let fingerprint = full.and_then(fingerprint).expect("a full key");
    assert!(fingerprint.starts_with("fp:"), "{shown}");
    assert!(shown.contains("rejected        1 of 1 in"), "{shown}");
    assert!(!shown.contains("127.0.0.1"), "{shown}");

    let text = done(&gateway, &["reset", "login", "per-address", &fingerprint]);
    assert!(text.contains("has its whole budget again"), "{text}");
    assert_eq!(passed(&gateway), 5);
    done(&gateway, &["reset", "login", "per-address", "127.0.0.1"]);
    assert_eq!(passed(&gateway), 5);
    done(&gateway, &["reset", "login", "per-address", "--all"]);
    assert_eq!(passed(&gateway), 5);
    let text = done(&gateway, &["grant", "login", "per-address", "127.0.0.1", "3", "--for", "10m"]);
    assert_eq!(text, format!("login/per-address: {fingerprint} has 3 more for 10m\n"));
    assert_eq!(passed(&gateway), 3);

    let reset = gateway.wait_log("key reset by an operator");
    assert!(field(&reset, "by").starts_with("127.0.0.1:"), "{reset}");
    assert_eq!(field(&reset, "key"), fingerprint);
    assert_eq!(
        (field(&reset, "route").as_str(), field(&reset, "rule").as_str()),
        ("login", "per-address")
    );
    let grant = gateway.wait_log("grant by an operator");
    assert_eq!((field(&grant, "count").as_str(), field(&grant, "lasts").as_str()), ("3", "10m"));

    let text = done(&gateway, &["reset", "login", "per-address", "192.0.2.99"]);
    assert!(text.contains("has used nothing, so there is nothing to reset"), "{text}");
    assert_eq!(gateway.log().matches("key reset by an operator").count(), 3);

    let rejected = done(&gateway, &["rejections"]);
    assert!(rejected.contains(&format!("  key {fingerprint}\n")), "{rejected}");

    let (code, text) = run(&gateway, &["reset", "login", "nothing", "127.0.0.1"]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("the route `login` has no rule `nothing`"), "{text}");
}

#[test]
fn a_grant_survives_an_edit_and_names_come_and_go_with_show_keys() {
    let gateway = Gateway::start(YAML);
    assert_eq!(passed(&gateway), 5);
    done(&gateway, &["grant", "login", "per-address", "127.0.0.1", "2", "--for", "1h"]);
    let named = YAML.replace("127.0.0.1:0 }\nroutes", "127.0.0.1:0, show_keys: true }\nroutes");
    gateway.edit(&named.replace("3/6h, burst: 3", "2/6h, burst: 2"));
    assert_eq!(passed(&gateway), 2);
    done(&gateway, &["reset", "login", "per-address", "127.0.0.1"]);
    assert_eq!(tenant(&gateway, "blue one"), 200);
    assert_eq!(tenant(&gateway, "blue one"), 200);
    assert_eq!(tenant(&gateway, "blue one"), 429);
    let shown = done(&gateway, &["keys"]);
    assert!(shown.contains("used            2 of 2  blue one\n"), "{shown}");
    assert!(shown.contains("  127.0.0.1\n"), "{shown}");
    let text = done(&gateway, &["reset", "login", "per-tenant", "blue one"]);
    assert_eq!(text, "login/per-tenant: blue one has its whole budget again\n");
    assert_eq!(tenant(&gateway, "blue one"), 200);

    gateway.edit(YAML);
    eventually("names are not shown", || {
        let shown = done(&gateway, &["keys", "--output", "json"]);
        (!shown.contains("blue one") && shown.contains("\"shows_keys\": false")).then_some(())
    });
}

#[test]
fn keys_that_the_store_rejects_are_listed_by_the_gateway_that_asked() {
    let store = Server::start();
    let named = YAML.replace("127.0.0.1:0 }\nroutes", "127.0.0.1:0, show_keys: true }\nroutes");
    let shared = named.replace("burst: 5, key", "burst: 5, scope: cluster, key");
    let url = format!("store: {{ redis: \"redis://127.0.0.1:{}\", {PATIENT} }}\n", store.port);
    let gateway = Gateway::start(&format!("{url}{shared}"));
    gateway.wait_log("the store decides");
    assert_eq!(passed(&gateway), 5);
    assert_eq!(passed(&gateway), 0);
    let shown = done(&gateway, &["keys", "login", "per-address"]);
    assert!(shown.contains("counted by the store"), "{shown}");
    assert!(shown.contains("rejected        2 of 2 in"), "{shown}");
    assert!(shown.contains("s  127.0.0.1\n"), "{shown}");
    let rejections = done(&gateway, &["rejections"]);
    assert_eq!(rejections.matches("  key 127.0.0.1\n").count(), 2, "{rejections}");
}

#[test]
fn a_store_that_fails_is_named_with_its_cause_by_pages_and_commands() {
    let shared = YAML.replace("burst: 5, key", "burst: 5, scope: cluster, key");
    let url = format!("store: {{ redis: \"redis://127.0.0.1:{}\" }}\n", free_port());
    let gateway = Gateway::start(&format!("{url}{shared}"));
    gateway.wait_log("error=\"no connection to the store\" detail=\"Connection refused");
    let page = http::ask(gateway.address("admin"), "/readyz?verbose").text();
    let keys = done(&gateway, &["keys", "login", "per-address"]);
    let top = done(&gateway, &["top", "--once"]);
    for (text, before) in [
        (page, "store: failing since "),
        (keys, "the store, which is failing since "),
        (top, "  failing since "),
    ] {
        let (_, after) = text.split_once(before).unwrap_or_else(|| panic!("{text}"));
        assert!(
            after[..80].contains("Z: no connection to the store: Connection refused"),
            "{text}"
        );
    }
}

/// Two gateways that share all rules by a store.
fn sharing(store: &Server, rules: &str) -> [Gateway; 2] {
    let url = format!("store: {{ redis: \"redis://127.0.0.1:{}\", {PATIENT} }}\n", store.port);
    let (head, _) = YAML.split_once("    flow:").expect("rules");
    let gateways = [(); 2].map(|()| Gateway::start(&format!("{url}{head}    flow:\n{rules}")));
    for gateway in &gateways {
        gateway.wait_log("the store decides");
    }
    gateways
}

#[test]
fn a_change_of_a_key_in_the_store_holds_on_every_gateway() {
    let store = Server::start();
    let rule = "      - { name: r, limit: 5/6h, burst: 5, key: client_ip, scope: cluster }\n";
    let [one, two] = sharing(&store, rule);
    assert_eq!(passed(&one), 5);
    assert_eq!(passed(&two), 0);
    // Each gateway rejects by itself now, for an hour.
    let text = done(&one, &["reset", "login", "r", "127.0.0.1"]);
    assert!(text.contains("has its whole budget again, on every gateway within five"), "{text}");
    assert_eq!(passed(&one), 5);
    done(&one, &["reset", "login", "r", "127.0.0.1"]);
    let others = eventually("the other gateway asks the store again", || {
        Some(passed(&two)).filter(|passed| *passed > 0)
    });
    assert_eq!(others, 5);
    assert_eq!(passed(&one), 0);
    let text = done(&two, &["grant", "login", "r", "127.0.0.1", "7", "--for", "10m"]);
    assert!(text.contains("has 7 more for 10m, on every gateway within five seconds"), "{text}");
    let mut granted = passed(&two);
    assert_eq!(granted, 7);
    done(&two, &["grant", "login", "r", "127.0.0.1", "4", "--for", "10m"]);
    granted = eventually("the other gateway asks the store again", || {
        Some(passed(&one)).filter(|passed| *passed > 0)
    });
    assert_eq!(granted, 4);
    assert_eq!(passed(&two), 0);
    let logged = one.wait_log("key reset by an operator");
    assert_eq!(field(&logged, "rule"), "r", "{logged}");
    assert_eq!(field(&two.wait_log("grant by an operator"), "count"), "7");
    // By the fingerprint that is shown, which all gateways have.
    let shown = done(&one, &["keys", "login", "r"]);
    let fingerprint = shown.lines().find(|line| line.contains("rejected"));
    let fingerprint = fingerprint.and_then(|line| line.split_whitespace().last());
    let fingerprint = fingerprint.expect("a rejected key");
    done(&two, &["reset", "login", "r", fingerprint]);
    assert_eq!(passed(&two), 5, "{shown}");
    let text = done(&two, &["reset", "login", "r", "192.0.2.1"]);
    assert!(text.contains("has used nothing"), "{text}");

    let (code, text) = run(&one, &["reset", "login", "r", "--all"]);
    assert!(code == 1 && text.contains("gateways share the keys of this rule"), "{text}");
    drop(store);
    let (code, text) = run(&one, &["reset", "login", "r", "127.0.0.1"]);
    assert!(code == 1 && text.contains("the store may not have done it"), "{text}");
}

#[test]
fn a_reset_of_a_synced_key_holds_on_every_gateway_and_no_sync_undoes_it() {
    let store = Server::start();
    let shared = "limit: 5/6h, key: client_ip, scope: cluster, sync_interval: 100ms";
    let rules = format!(
        "      - {{ name: r, {shared}, burst: 5 }}\n      - {{ name: all, limit: 900/6h, scope: cluster, sync_interval: 100ms }}\n"
    );
    let gateways = sharing(&store, &rules);
    settled(&gateways, 5);
    settled(&gateways, 900);
    let [one, two] = &gateways;
    let used = |gateway: &Gateway, rule: usize| {
        let routes: Value = http::ask(gateway.address("admin"), "/routes").json();
        routes["routes"][0]["rules"][rule]["used"].as_u64().expect("a number")
    };
    let settles = |rule: usize, all: u64| {
        eventually("both gateways count the same", || {
            [one, two].iter().all(|gateway| used(gateway, rule) == all).then_some(())
        });
    };
    // Either gateway takes the command.
    for (round, by) in [(1, one), (2, two)] {
        assert_eq!(passed(one), 5, "{round}");
        settles(0, 5);
        assert_eq!(passed(two), 0, "{round}");
        let text = done(by, &["reset", "login", "r", "127.0.0.1"]);
        assert!(text.contains("again, on every gateway within two intervals"), "{text}");
        settles(0, 0);
        // It stays so when both have synced again.
        assert_eq!(Client::new(two.web()).get("/login").status, 200);
        settles(1, 6 * round);
        settles(0, 1);
        done(by, &["reset", "login", "r", "127.0.0.1"]);
        settles(0, 0);
    }
    done(two, &["reset", "login", "all", "all"]);
    settles(1, 0);
    let text = done(one, &["grant", "login", "r", "127.0.0.1", "2", "--for", "10m"]);
    assert!(text.contains("for 10m, on this gateway only"), "{text}");
    let (code, text) = run(one, &["reset", "login", "r", "--all"]);
    assert!(code == 1 && text.contains("gateways share the keys of this rule"), "{text}");
    drop(store);
    let (code, text) = run(one, &["reset", "login", "r", "127.0.0.1"]);
    assert!(code == 1 && text.contains("the store may not have done it"), "{text}");
}

#[test]
fn a_dry_run_in_the_store_is_listed_reset_and_granted_more() {
    let store = Server::start();
    let rules = "      - { name: r, limit: 5/6h, burst: 5, key: client_ip, scope: cluster, dry_run: true }\n\
                 \x20     - { name: c, concurrency: 9, key: client_ip, scope: cluster }\n\
                 \x20     - { name: local, limit: 5/6h, burst: 5, key: client_ip, dry_run: true }\n";
    let [gateway, _other] = sharing(&store, rules);
    let send = |count: usize| {
        let mut client = Client::new(gateway.web());
        assert!((0..count).all(|_| client.get("/login").status == 200));
    };
    let rejected = |rule: &str, count: usize| {
        let shown = done(&gateway, &["keys", "login", rule]);
        let line = format!("would reject {count:>8} of {count} in");
        assert!(shown.contains(&line), "{line}: {shown}");
        assert!(shown.starts_with(&format!("login/{rule}  token_bucket in dry run, ")), "{shown}");
    };
    send(7);
    for rule in ["r", "local"] {
        rejected(rule, 2);
        done(&gateway, &["reset", "login", rule, "127.0.0.1"]);
    }
    send(6);
    for rule in ["r", "local"] {
        rejected(rule, 3);
        done(&gateway, &["grant", "login", rule, "127.0.0.1", "2", "--for", "10m"]);
    }
    send(3);
    rejected("r", 4);
    rejected("local", 4);
    let (code, text) = run(&gateway, &["reset", "login", "c", "127.0.0.1"]);
    assert!(code == 1 && text.contains("which only their end takes back"), "{text}");
}

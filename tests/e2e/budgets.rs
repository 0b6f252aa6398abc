//! Rules that several routes share, end to end.

use crate::{
    cluster::{PATIENT, gateways, server::Server},
    common::{
        Gateway, eventually,
        http::{self, Client, statuses},
        metrics,
    },
    port::free_port,
};
use std::{process::Command, thread};

const YAML: &str = "\
workers: 2
listeners: [{ name: web, listen: 127.0.0.1:0 }]
admin: { listen: 127.0.0.1:0 }
explain_headers: true
budgets:
  - { name: org, limit: 5/6h, burst: 5 }
  - { name: site, limit: 3/6h, burst: 3, key: client_ip, parent: org }
  - { name: places, concurrency: 100 }
flow: [{ budget: places }]
routes:
  - { name: one, match: { path: /one }, respond: { status: 200 }, flow: [{ budget: site }] }
  - name: two
    match: { path: /two }
    respond: { status: 200 }
    flow: [{ name: own, limit: 100/6h, burst: 100 }, { budget: site }]
  - { name: org, match: { path: /org }, respond: { status: 200 }, flow: [{ budget: org }] }
  - { name: free, match: { path: /free }, respond: { status: 200 }, exempt_from: [places] }
";

#[test]
fn routes_share_a_budget_which_headers_log_and_metrics_name() {
    let gateway = Gateway::start(YAML);
    let mut client = Client::new(gateway.web());

    let first = client.get("/one");
    assert_eq!(first.status, 200);
    let policy = first.header("ratelimit-policy").expect("its quotas");
    assert!(policy.contains("\"site\";q=3") && policy.contains("\"org\";q=5"), "{policy}");
    let left = first.header("ratelimit").expect("what is left");
    assert!(left.contains("\"site\";r=2"), "{left}");

    assert_eq!([client.get("/two").status, client.get("/one").status], [200, 200]);
    let rejected = client.get("/two");
    assert_eq!(rejected.status, 429);
    assert_eq!(rejected.header("x-flowgate-rule"), Some("site"));
    assert!(rejected.text().contains("site"), "{}", rejected.text());

    // The parent has counted three.
    let parent: Vec<u16> = (0..3).map(|_| client.get("/org").status).collect();
    assert_eq!(parent, [200, 200, 429]);
    assert_eq!(client.get("/free").status, 200);

    let decisions = metrics(&gateway, "flowgate_budget_decisions_total");
    let count = |labels: &str| decisions[&format!("flowgate_budget_decisions_total{{{labels}}}")];
    assert!(count("budget=\"site\",decision=\"passed\",reason=\"\"") == 3.0, "{decisions:?}");
    assert!(count("budget=\"site\",decision=\"rejected\",reason=\"rate\"") == 1.0);
    assert!(count("budget=\"org\",decision=\"passed\",reason=\"\"") == 5.0);
    assert!(count("budget=\"org\",decision=\"rejected\",reason=\"rate\"") == 1.0);
    eventually("no request holds a place", || {
        let used = metrics(&gateway, "flowgate_budget_used");
        (used["flowgate_budget_used{budget=\"places\"}"] == 0.0).then_some(())
    });
}

#[test]
fn threads_of_all_workers_get_exactly_the_budget() {
    let yaml = YAML
        .replace("limit: 5/6h, burst: 5", "limit: 100/6h, burst: 100")
        .replace("limit: 3/6h, burst: 3", "limit: 1000/6h, burst: 1000")
        .replace("workers: 2", "workers: 4");
    let gateway = Gateway::start(&yaml);
    let web = gateway.web();
    let paths = ["/one", "/two", "/org", "/one", "/two", "/org", "/one", "/org"];
    let clients = paths.map(|path| thread::spawn(move || statuses(web, path, 50)));
    let all = clients.into_iter().flat_map(|client| client.join().expect("it does not panic"));
    let passed = all.filter(|status| *status == 200).count();
    assert_eq!(passed, 100);
}

#[test]
fn an_edit_keeps_what_a_budget_has_counted() {
    let gateway = Gateway::start(YAML);
    assert_eq!(statuses(gateway.web(), "/one", 3), [200; 3]);
    let log = gateway.edit(&YAML.replace(
        "flow: [{ budget: site }] }",
        "flow: [{ budget: site }, { name: more, limit: 9/1s }] }",
    ));
    assert!(log.contains("route one"), "{log}");
    assert_eq!(statuses(gateway.web(), "/two", 1), [429]);

    let log = gateway.edit(
        &YAML.replace("name: org, limit: 5/6h, burst: 5", "name: org, limit: 6/6h, burst: 6"),
    );
    assert!(log.contains("budget org (org 5/6h → 6/6h)"), "{log}");
    assert_eq!(statuses(gateway.web(), "/one", 1), [429], "that of the child is not edited");
}

#[test]
fn a_new_process_goes_on_with_what_budgets_have_counted() {
    let port = free_port();
    let yaml = YAML.replacen("127.0.0.1:0", &format!("127.0.0.1:{port}"), 1);
    let gateway = Gateway::start(&yaml);
    assert_eq!(statuses(gateway.web(), "/one", 2), [200; 2]);
    gateway.signal("USR2");
    gateway.wait_log("handed over: the new process");
    assert_eq!(statuses(gateway.web(), "/two", 2), [200, 429]);
    assert_eq!(statuses(gateway.web(), "/org", 3), [200, 200, 429]);
}

#[test]
fn gateways_share_a_budget_that_several_routes_use() {
    let server = Server::start();
    let store = format!("store: {{ redis: \"redis://127.0.0.1:{}\", {PATIENT} }}\n", server.port);
    let cluster = "scope: cluster, on_store_error: deny";
    let yaml = store
        + &YAML
            .replace("limit: 5/6h, burst: 5", &format!("limit: 40/6h, burst: 40, {cluster}"))
            .replace("limit: 3/6h, burst: 3", &format!("limit: 30/6h, burst: 30, {cluster}"));
    let gateways = gateways(2, &yaml);
    let ask = |path: &str, count: usize| -> usize {
        let each = gateways.iter().flat_map(|gateway| statuses(gateway.web(), path, count));
        each.filter(|status| *status == 200).count()
    };
    assert_eq!(ask("/one", 10) + ask("/two", 10), 30, "of 40");
    assert_eq!(ask("/org", 10), 10, "what the parent has left");
    assert_eq!(http::get(gateways[0].web(), "/org").status, 429);
}

#[test]
fn operators_see_and_change_the_keys_of_a_budget() {
    let gateway = Gateway::start(YAML);
    assert_eq!(statuses(gateway.web(), "/one", 4), [200, 200, 200, 429]);
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
        command.args(arguments).args(["--admin", &gateway.address("admin").to_string()]);
        let output = command.output().expect("it runs");
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).expect("a text"))
    };

    let (_, keys) = run(&["keys", "--budget", "site"]);
    assert!(keys.contains("budget site  token_bucket, limit 3 for each client"), "{keys}");
    assert!(keys.contains("used            3 of 3") && !keys.contains("org"), "{keys}");
    let (_, all) = run(&["keys"]);
    assert!(all.contains("two/own") && all.contains("budget org"), "{all}");

    let (ok, text) = run(&["grant", "--budget", "site", "127.0.0.1", "1", "--for", "10m"]);
    assert!(
        ok && text.contains("budget site: fp:") && text.contains(" has 1 more for 10m"),
        "{text}"
    );
    assert_eq!(statuses(gateway.web(), "/two", 2), [200, 429]);
    let (ok, text) = run(&["reset", "--budget", "site", "127.0.0.1"]);
    assert!(ok && text.contains("budget site: ") && text.contains("whole budget again"), "{text}");
    assert_eq!(statuses(gateway.web(), "/one", 1), [200]);

    assert!(!run(&["keys", "--budget", "sites"]).0);
    let (ok, text) = run(&["reset", "--budget", "site"]);
    assert!(!ok && text.contains("write one key, or `--all`"), "{text}");
    assert!(!run(&["reset", "one"]).0);
}

#[test]
fn requests_without_a_route_are_counted_by_the_files_rules() {
    let yaml = "\
workers: 1
listeners: [{ name: web, listen: 127.0.0.1:0 }]
admin: { listen: 127.0.0.1:0 }
access_log: access.log
flow: [{ name: scan, limit: 2/6h, burst: 2, key: client_ip }]
routes: [{ name: one, match: { path: /one }, respond: { status: 200 } }]
";
    let gateway = Gateway::start(yaml);
    let mut client = Client::new(gateway.web());

    let first = client.get("/wp-login.php");
    assert_eq!(first.status, 404);
    assert!(first.text().contains("no route matches this request"), "{}", first.text());
    assert!(first.header("ratelimit").is_some_and(|left| left.contains("\"scan\";r=1")));

    let others = ["/.env", "/one", "/.git"].map(|path| client.get(path).status);
    assert_eq!(others, [404, 429, 429]);
    let path = gateway.dir.path().join("access.log");
    let line = eventually("the fourth line", || {
        let text = std::fs::read_to_string(&path).ok()?;
        serde_json::from_str::<serde_json::Value>(text.lines().nth(3)?).ok()
    });
    assert_eq!((&line["route"], &line["flow"]["rule"]), (&"(no route)".into(), &"scan".into()));

    let rejections = metrics(&gateway, "flowgate_http_rejected_total");
    let unrouted = rejections.iter().find(|(labels, _)| labels.contains("no_route"));
    assert!(unrouted.is_some_and(|(_, count)| *count == 2.0), "{rejections:?}");
}

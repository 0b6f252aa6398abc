//! The dashboard and the alerts in `examples/`, and `/metrics`, by Prometheus's own tool.

#![expect(clippy::disallowed_types, reason = "processes and sockets live in real time")]
#![expect(clippy::panic, reason = "a helper's failure is the test's")]

#[expect(dead_code, reason = "the end-to-end tests use the rest")]
#[path = "e2e/common/mod.rs"]
mod common;

use common::{
    Gateway, curl,
    upstream::{Script, ok},
};
use regex::Regex;
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

#[test]
fn prometheus_takes_the_rules_their_tests_and_the_scrape_configuration() {
    let folder = examples().join("prometheus");
    for arguments in [
        &["check", "config", "prometheus.yaml"][..],
        &["check", "rules", "alerts.yaml"],
        &["test", "rules", "alerts_test.yaml"],
    ] {
        promtool(arguments, &folder, "");
    }
}

#[test]
fn every_alert_is_tested() {
    let read = |name: &str| read(&examples().join("prometheus").join(name));
    let alerts = read("alerts.yaml");
    let tests = read("alerts_test.yaml");
    let names = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let names: Vec<&str> = names.collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        assert!(tests.contains(&format!("alertname: {name}")), "{name} has no test");
    }
}

#[test]
fn every_metric_of_the_examples_is_documented() {
    let documented = documented();
    let pattern = Regex::new(r"\b(?:flowgate|process)_[a-z_]*[a-z]\b").expect("a pattern");
    let mut found = BTreeSet::new();
    for file in ["grafana/flowgate.json", "prometheus/alerts.yaml", "prometheus/alerts_test.yaml"] {
        let text = read(&examples().join(file));
        for metric in pattern.find_iter(&text).map(|found| found.as_str()) {
            let of_histogram = ["_bucket", "_sum", "_count"]
                .into_iter()
                .filter_map(|suffix| metric.strip_suffix(suffix))
                .any(|family| documented.contains(family));
            assert!(of_histogram || documented.contains(metric), "{metric} in {file}");
            found.insert(metric.to_owned());
        }
    }
    assert!(found.len() > 20, "{found:?}");
}

#[test]
fn every_query_of_the_dashboard_is_one() {
    let text = read(&examples().join("grafana/flowgate.json"));
    let dashboard: Value = serde_json::from_str(&text).expect("it is JSON");
    let mut queries = Vec::new();
    find_queries(&dashboard, &mut queries);
    assert!(queries.len() > 25, "{queries:?}");
    // As rules, which promtool reads from a file.
    let mut rules = "groups:\n  - name: dashboard\n    rules:\n".to_owned();
    for (number, query) in queries.iter().enumerate() {
        let query = query.replace("$__rate_interval", "5m").replace('\'', "''");
        writeln!(rules, "      - {{ record: 'query:{number}', expr: '{query}' }}")
            .expect("written");
    }
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("queries.yaml"), rules).expect("written");
    promtool(&["check", "rules", "queries.yaml"], folder.path(), "");
}

#[test]
fn prometheus_takes_the_metrics_of_a_gateway_that_has_served() {
    let up = Script::answering(|_| ok("hello"));
    let yaml = format!(
        "listeners: [{{ name: web, listen: 127.0.0.1:0 }}]\nadmin: {{ listen: 127.0.0.1:0 }}\n\
         upstreams: [{{ name: up, servers: [{{ url: http://{} }}] }}]\n\
         routes:\n  - name: all\n    match: {{ path_prefix: / }}\n    upstream: up\n\
         \x20   flow: [{{ name: each, limit: 2/1h, key: client_ip }}]\n\
         \x20   breaker: {{ errors: 5 }}\n    pacing: {{ rate: 1000/1s }}\nend: true\n",
        up.address
    );
    let gateway = Gateway::start(&yaml);
    let web = gateway.web();
    let admin = gateway.address("admin");
    for _ in 0..3 {
        curl(&["-s", "-o", "/dev/null", &format!("http://{web}/")]);
    }
    let metrics = format!("http://{admin}/metrics");
    let page = curl(&["-s", &metrics]);
    promtool(&["check", "metrics"], Path::new("."), &page);
    let accept = "accept: application/openmetrics-text";
    let page = curl(&["-s", "-H", accept, &metrics]);
    let exemplar = Regex::new(
        r#"(?m)^flowgate_http_request_duration_seconds_bucket\{[^}]*\} \d+ # \{request_id="[0-9a-f]{32}"\} [0-9.e-]+ \d{10}\.\d{3}$"#,
    );
    assert!(exemplar.expect("a pattern").is_match(&page), "{page}");
}

/// Adds every `expr` within `value`.
fn find_queries(value: &Value, queries: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(query)) = map.get("expr") {
                queries.push(query.clone());
            }
            map.values().for_each(|value| find_queries(value, queries));
        }
        Value::Array(list) => list.iter().for_each(|value| find_queries(value, queries)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns the names in the list of `docs/metrics.md`.
fn documented() -> BTreeSet<String> {
    let page = read(&root().join("docs/metrics.md"));
    let rows = page.lines().filter_map(|row| row.strip_prefix("| `"));
    rows.filter_map(|row| Some(row.split_once('`')?.0.to_owned())).collect()
}

/// Runs promtool in `folder`, which must be content.
fn promtool(arguments: &[&str], folder: &Path, input: &str) {
    let mut promtool = Command::new("promtool")
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is installed: it is in Debian's package `prometheus`");
    let mut stdin = promtool.stdin.take().expect("a pipe");
    // A tool that does not read it says so itself.
    drop(stdin.write_all(input.as_bytes()));
    drop(stdin);
    let output = promtool.wait_with_output().expect("it ends");
    assert!(
        output.status.success(),
        "promtool {arguments:?}:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn examples() -> PathBuf {
    root().join("examples")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

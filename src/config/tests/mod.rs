//! The configuration from text to snapshot, as a user meets it.

mod access;
mod acme;
mod admin_address;
mod bans;
mod budgets;
mod certificates;
mod checks;
mod client_certificates;
mod client_plans;
mod closed;
mod compression;
mod cors;
mod declared_key;
mod diagnostics;
mod diff;
mod duplicates;
mod examples;
mod first_mistakes;
mod foreign_files;
mod forward_auth;
mod geo;
mod include;
mod lints;
mod listen;
mod members;
mod mirror;
mod mutations;
mod networks;
mod other_gateways;
mod overrides;
mod paths;
mod plans;
mod queues;
mod reference;
mod reload;
mod right_values;
mod routes;
mod rules;
mod settle;
mod shared;
mod variables;
mod waits;

use super::{Diagnostics, Plan, diagnostics::Source, load::parse};
use std::path::Path;

/// What every file needs, so that a test can show only the part that it is about.
const FRAME: &str = "\
listeners: [{ name: web, listen: 127.0.0.1:8080 }]
upstreams: [{ name: app, servers: [{ url: http://127.0.0.1:9000 }] }]
";

/// Parses `text` as a file `gateway.yaml`.
fn parsed(text: &str) -> Result<Plan, Diagnostics> {
    parse(&Source::new(Path::new("gateway.yaml"), text))
}

#[track_caller]
pub(in crate::config) fn plan(text: &str) -> Plan {
    parsed(text).unwrap_or_else(|problems| panic!("{problems}"))
}

/// Parses a file with one route, whose `flow` is `rules`.
fn with_rules(rules: &str) -> String {
    format!(
        "{FRAME}routes:\n  - name: r\n    match: {{ path_prefix: / }}\n    upstream: app\n    flow:\n{rules}"
    )
}

/// Asserts that `text` is rejected with just this drawing.
#[track_caller]
fn rejected(text: &str, drawing: &str) {
    let drawn = parsed(text).expect_err("the file is rejected").to_string();
    assert!(drawn == drawing.trim_matches('\n'), "drawn:\n{drawn}\n\nexpected:\n{drawing}");
}

/// Asserts that `text` is rejected with just these messages and hints, as `message | hint`.
#[track_caller]
fn messages(text: &str, expected: &[&str]) {
    let problems = parsed(text).expect_err("the file is rejected");
    let found: Vec<_> = problems
        .list()
        .map(|diagnostic| format!("{} | {}", diagnostic.message, diagnostic.help))
        .collect();
    assert_eq!(found, expected, "\n{problems}");
}

/// Asserts that `text` is taken with just these warnings.
#[track_caller]
fn warnings(text: &str, expected: &[&str]) {
    let plan = plan(text);
    let found: Vec<_> = plan.warnings.list().map(|diagnostic| diagnostic.message).collect();
    assert_eq!(found, expected, "\n{}", plan.warnings);
}

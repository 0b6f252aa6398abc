//! What a proxied and a rejected request cost: instructions and allocations, counted by callgrind.
//!
//! The figures are those of the unoptimized build, which the other tests have made already: one request does the same on
//! each machine, and a step more on its way shows here as it does in a release build. Figures to compare with other
//! proxies are those of `benches/peers`.

#![expect(clippy::disallowed_types, reason = "processes and sockets live in real time")]
#![expect(clippy::panic, reason = "a helper's failure is the test's")]

#[expect(dead_code, reason = "the end-to-end tests use the rest")]
#[path = "e2e/common/mod.rs"]
mod common;

use common::{
    Gateway,
    http::Client,
    upstream::{Script, ok},
    yaml,
};
use std::{collections::HashMap, fs, process::Command};

/// What is counted; enough that the end of one request and the beginning of the next weigh nothing.
const REQUESTS: u64 = 400;

/// How far the instructions may be from the committed figure, in percent: a new compiler moves them too.
const TOLERANCE: u64 = 3;

/// How often a cost that does not fit is counted. On a busy machine a connection waits so long between two requests that
/// it gives its memory back, which costs instructions and allocations.
const TRIES: usize = 5;

/// What takes memory, by the names that callgrind gives.
const ALLOCATE: [&str; 3] =
    ["__rustc::__rust_alloc", "__rustc::__rust_alloc_zeroed", "__rustc::__rust_realloc"];

/// Each rule admits all.
const THREE_RULES: &str = "
    flow:
      - { name: per-client, limit: 1000000/1s, burst: 1000000, key: client_ip }
      - { name: total, algorithm: sliding_window, limit: 1000000/1s }
      - { name: in-flight, concurrency: 20000 }";

/// A rule that rejects all but one.
const USED_UP: &str = "
    flow: [{ name: per-client, limit: 1/1h, key: client_ip }]";

#[test]
fn a_request_costs_what_it_did() {
    check("", &Cost { instructions: 166_700, allocations: 0 });
}

#[test]
fn a_request_with_three_rules_costs_what_it_did() {
    check(THREE_RULES, &Cost { instructions: 193_100, allocations: 0 });
}

#[test]
fn a_rejected_request_costs_what_it_did() {
    check(USED_UP, &Cost { instructions: 129_500, allocations: 0 });
}

/// What one request takes.
#[derive(Debug, PartialEq, Eq)]
struct Cost {
    instructions: u64,
    allocations: u64,
}

#[track_caller]
fn check(rules: &str, committed: &Cost) {
    let fits = |cost: &Cost| {
        let difference = cost.instructions.abs_diff(committed.instructions);
        difference * 100 <= committed.instructions * TOLERANCE
            && cost.allocations == committed.allocations
    };
    let mut cost = measure(rules);
    for _ in 1..TRIES {
        if fits(&cost) {
            break;
        }
        cost = measure(rules);
    }
    assert!(
        fits(&cost),
        "a request costs {cost:?}, not {committed:?}: find out why; if it is worth it, commit the new figure"
    );
}

/// Sends requests one after the other over one connection.
fn measure(rules: &str) -> Cost {
    let up = Script::answering(|_| ok("hello"));
    let routes = format!("  - name: all\n    match: {{ path_prefix: / }}\n    upstream: up{rules}");
    // An idle connection is not to be given up between two requests, however slow the machine is.
    let yaml = yaml(up.address, &routes)
        .replacen("workers: 2", "workers: 1\naccess_log: off", 1)
        .replacen("{ name: up,", "{ name: up, idle_timeout: 10m,", 1);
    let callgrind = [
        "valgrind",
        "--tool=callgrind",
        "--instr-atstart=no",
        "--separate-threads=yes",
        "--callgrind-out-file=counted",
    ];
    let mut gateway = Gateway::start_under(&callgrind, &yaml);
    let mut client = Client::new(gateway.web());
    let mut send = |count| {
        for _ in 0..count {
            let status = client.get("/").status;
            assert!(status == 200 || rules == USED_UP && status == 429, "{status}");
        }
    };
    // The connection to the upstream is open then, and each buffer has its size.
    send(20);
    control(&gateway, "on");
    send(REQUESTS);
    control(&gateway, "off");
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    let threads = fs::read_dir(gateway.dir.path()).expect("its directory");
    let threads = threads.map(|entry| entry.expect("an entry").path());
    let counted = threads.filter(|path| path.to_string_lossy().contains("counted-"));
    let counted = counted.map(|path| fs::read_to_string(path).expect("counted"));
    // The worker's. What the others do depends on the time that passes.
    let counted = counted.max_by_key(|counted| instructions(counted)).expect("a thread");
    Cost {
        instructions: instructions(&counted) / REQUESTS,
        // A few are not a request's: a timer of the runtime, a buffer that grew.
        allocations: (allocations(&counted) + REQUESTS / 2) / REQUESTS,
    }
}

/// Turns callgrind's counting on or off.
fn control(gateway: &Gateway, state: &str) {
    let output = Command::new("callgrind_control")
        .args(["-i", state, &gateway.pid().to_string()])
        .output()
        .expect("valgrind is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The sum of all that was counted.
fn instructions(counted: &str) -> u64 {
    let line = counted.lines().find_map(|line| line.strip_prefix("totals: "));
    line.and_then(|line| line.trim().parse().ok()).expect("callgrind's totals")
}

/// The calls of functions that take memory. A function's name stands where its number comes first.
fn allocations(counted: &str) -> u64 {
    let mut names = HashMap::new();
    let mut called = "";
    let mut calls = 0;
    for line in counted.lines() {
        if let Some((number, name)) = function(line) {
            if let Some(name) = name {
                names.insert(number, name);
            }
            if line.starts_with("cfn=") {
                called = names.get(number).copied().unwrap_or_default();
            }
        } else if let Some(line) = line.strip_prefix("calls=")
            && ALLOCATE.contains(&called)
        {
            let count = line.split(' ').next().and_then(|count| count.parse::<u64>().ok());
            calls += count.expect("a number of calls");
        }
    }
    calls
}

/// Reads `fn=(7) name` or `cfn=(7)`.
fn function(line: &str) -> Option<(&str, Option<&str>)> {
    let line = line.strip_prefix("fn=(").or_else(|| line.strip_prefix("cfn=("))?;
    let (number, name) = line.split_once(')')?;
    Some((number, Some(name.trim()).filter(|name| !name.is_empty())))
}
